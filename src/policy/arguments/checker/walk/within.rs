//! What a schema asks of the members and items of a value: which of them its parts apply to, and which were seen.

use super::{Id, Items, Kind, Members, Node, Of, Place, Walk};
use serde_json::Value;

impl<'a> Walk<'a> {
    pub(super) fn members(
        &mut self,
        members: &'a Members,
        owner: &'a Node,
        value: &'a Value,
        place: &Place<'_>,
    ) -> bool {
        let Value::Object(object) = value else { return true };
        let mut fits = true;
        let mut additional = Vec::new();
        for (at, (key, value)) in object.iter().enumerate() {
            let place = Place::Member(place, key);
            let mut is_known = false;
            let named = members.named(key).into_iter();
            let matching = members.patterns.iter().filter(|(pattern, _)| pattern.is_match(key));
            for id in named.chain(matching.map(|(_, id)| *id)) {
                is_known = true;
                fits &= self.below(id, value, &place);
            }
            match members.rest.filter(|_| !is_known) {
                Some(id) if self.checker.is_nothing(id) => {
                    fits = false;
                    if self.errors.is_some() {
                        additional.push(key.as_str());
                    }
                }
                Some(id) => fits &= self.below(id, value, &place),
                None => {}
            }
            if is_known || members.rest.is_some() {
                self.see(at);
            }
            if !fits && self.ends_early() {
                return false;
            }
        }
        if !additional.is_empty() {
            self.tell(Kind::Additional(additional), owner, value, place);
        }
        fits
    }

    pub(super) fn names(&self, id: Id, value: &'a Value) -> Option<Kind<'a>> {
        let mut names = value.as_object()?.keys().map(|key| Value::String(key.clone()));
        let fits = names.all(|name| self.takes(id, &name));
        (!fits).then_some(Kind::PropertyNames)
    }

    pub(super) fn items(&mut self, items: &'a Items, value: &'a Value, place: &Place<'_>) -> bool {
        let Value::Array(array) = value else { return true };
        let mut fits = true;
        for (at, item) in array.iter().enumerate() {
            let Some(id) = items.first.get(at).copied().or(items.rest) else { break };
            fits &= self.below(id, item, &Place::Item(place, at));
            self.see(at);
            if !fits && self.ends_early() {
                break;
            }
        }
        fits
    }

    pub(super) fn contains(
        &mut self,
        id: Id,
        value: &'a Value,
        (least, most): (u64, u64),
    ) -> Option<Kind<'a>> {
        let mut count = 0;
        for (at, item) in value.as_array()?.iter().enumerate() {
            if self.takes(id, item) {
                count += 1;
                self.see(at);
            }
        }
        (count < least || count > most).then_some(Kind::Contains)
    }

    pub(super) fn unevaluated(&mut self, of: Of, id: Id, value: &'a Value) -> Option<Kind<'a>> {
        let mut seen = self.seen.take()?;
        let mut names = Vec::new();
        let mut all_fit = true;
        match (of, value) {
            (Of::Members, Value::Object(object)) => {
                for (seen, (key, part)) in seen.iter_mut().zip(object) {
                    if !*seen && !self.takes(id, part) {
                        all_fit = false;
                        names.push(key.as_str());
                    }
                    *seen = true;
                }
            }
            (Of::Items, Value::Array(array)) => {
                for (seen, part) in seen.iter_mut().zip(array) {
                    all_fit = all_fit && (*seen || self.takes(id, part));
                    *seen = true;
                }
            }
            _ => {}
        }
        self.seen = Some(seen);
        match of {
            _ if all_fit => None,
            Of::Items => Some(Kind::UnevaluatedItems),
            _ => Some(Kind::UnevaluatedProperties(names)),
        }
    }
}
