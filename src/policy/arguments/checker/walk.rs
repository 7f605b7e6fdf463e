//! One walk over a value and the nodes of a schema that apply to it. Each node looks at each value once, whether the
//! walk tells what it finds or only whether all is well; what members and items were looked at is kept beside it
//! for those who ask for the rest. Frames are small, since the walk goes as deep as schema and value together.

mod within;

use super::{Checker, Error, Id, Items, Kind, Members, Node, Of, Place, Rule};
use serde_json::Value;

/// See the file's head.
pub struct Walk<'a> {
    checker: &'a Checker,
    /// What was found; `None` where only the verdict is asked for, which is then reached by the shortest way.
    errors: Option<Vec<Error<'a>>>,
    /// Which members or items of the value at hand were looked at by what applies to it; `None`: nobody asks.
    seen: Option<Vec<bool>>,
    /// The bytes that further errors may take; `None` once they did not fit.
    room: Option<usize>,
}

impl<'a> Walk<'a> {
    /// A walk for the verdict alone.
    pub fn quiet(checker: &'a Checker) -> Self {
        Self { checker, errors: None, seen: None, room: Some(0) }
    }

    /// A walk that tells all, within `room` bytes.
    pub fn telling(checker: &'a Checker, room: usize) -> Self {
        Self { checker, errors: Some(Vec::new()), seen: None, room: Some(room) }
    }

    /// What was found; `None` where it was too much.
    pub fn told(self) -> Option<Vec<Error<'a>>> {
        self.room.and(self.errors)
    }

    /// Whether `value` at `place` fits the node `id`.
    pub fn node(&mut self, id: Id, value: &'a Value, place: &Place<'_>) -> bool {
        let checker = self.checker;
        let node = &checker.nodes[id];
        // What applies to the value beside this node has seen nothing for it.
        let outer = node.sees_rest.then(|| self.seen.replace(vec![false; parts(value)]));
        let mut fits = true;
        for rule in &node.rules {
            fits &= self.rule(rule, node, value, place);
            if self.room.is_none() || (!fits && self.errors.is_none()) {
                break;
            }
        }
        if let Some(outer) = outer {
            let seen = std::mem::replace(&mut self.seen, outer);
            if let Some((all, seen)) = self.seen.as_mut().zip(seen) {
                all.iter_mut().zip(seen).for_each(|(all, seen)| *all |= seen);
            }
        }
        fits
    }

    fn rule(&mut self, rule: &'a Rule, owner: &'a Node, value: &'a Value, place: &Place<'_>) -> bool {
        let broken = match rule {
            Rule::Assertion(assertion) if assertion.holds(value) => return true,
            Rule::Assertion(assertion) => Some(Kind::Assertion(assertion)),
            Rule::Members(members) => return self.members(members, owner, value, place),
            Rule::Required(names) => return self.required(names, owner, value, place),
            Rule::DependentRequired(named) => return self.dependent_required(named, owner, value, place),
            Rule::Names(id) => self.names(*id, value),
            Rule::Items(items) => return self.items(items, value, place),
            Rule::Contains { id, least, most } => self.contains(*id, value, (*least, *most)),
            Rule::DependentSchemas(named) => return self.dependent_schemas(named, value, place),
            Rule::All(ids) => return self.all(ids, value, place),
            Rule::Any(ids) => self.any(ids, value, place),
            Rule::One(ids) => self.one(ids, value, place),
            Rule::Not(id) => self.takes(*id, value).then_some(Kind::Not),
            Rule::If { test, then, otherwise } => {
                let errors = self.errors.take();
                let branch = if self.attempt(*test, value, place) { then } else { otherwise };
                self.errors = errors;
                return branch.is_none_or(|id| self.node(id, value, place));
            }
            Rule::Unevaluated { of, id } => self.unevaluated(*of, *id, value),
        };
        broken.is_none_or(|kind| self.tell(kind, owner, value, place))
    }

    /// Keeps an error, if errors are asked for. Never fits.
    fn tell(&mut self, kind: Kind<'a>, owner: &'a Node, found: &'a Value, place: &Place<'_>) -> bool {
        if let Some(errors) = &mut self.errors {
            let place = place.pointer();
            let names = match &kind {
                Kind::Additional(names) | Kind::UnevaluatedProperties(names) => size_of_val(names.as_slice()),
                _ => 0,
            };
            let taken = size_of::<Error<'_>>() + place.len() + names;
            self.room = self.room.and_then(|room| room.checked_sub(taken));
            errors.push(Error { found, place, kind, owner, checker: self.checker });
        }
        false
    }

    /// Whether a part of the value at hand fits; what is seen of it is not what is seen of the whole.
    fn below(&mut self, id: Id, value: &'a Value, place: &Place<'_>) -> bool {
        let seen = self.seen.take();
        let fits = self.node(id, value, place);
        self.seen = seen;
        fits
    }

    /// Whether `value` fits, without a word where it does not, and without a trace of what was seen.
    fn takes(&self, id: Id, value: &Value) -> bool {
        Walk::quiet(self.checker).node(id, value, &Place::Root)
    }

    /// Whether the value at hand fits a node that it need not fit: if not, what was seen by it does not count.
    fn attempt(&mut self, id: Id, value: &'a Value, place: &Place<'_>) -> bool {
        let seen = self.seen.clone();
        let fits = self.node(id, value, place);
        if !fits {
            self.seen = seen;
        }
        fits
    }

    fn see(&mut self, at: usize) {
        if let Some(seen) = self.seen.as_mut().and_then(|seen| seen.get_mut(at)) {
            *seen = true;
        }
    }

    /// Whether the walk need not go on once something does not fit.
    fn ends_early(&self) -> bool {
        self.errors.is_none() || self.room.is_none()
    }

    fn required(
        &mut self,
        names: &'a [String],
        owner: &'a Node,
        value: &'a Value,
        place: &Place<'_>,
    ) -> bool {
        let Value::Object(object) = value else { return true };
        let mut fits = true;
        for name in names.iter().filter(|name| !object.contains_key(*name)) {
            fits = self.tell(Kind::Required(name), owner, value, place);
            if self.ends_early() {
                break;
            }
        }
        fits
    }

    fn dependent_required(
        &mut self,
        named: &'a [(String, Vec<String>)],
        owner: &'a Node,
        value: &'a Value,
        place: &Place<'_>,
    ) -> bool {
        let there = |name: &str| value.as_object().is_some_and(|object| object.contains_key(name));
        named
            .iter()
            .filter(|(name, _)| there(name))
            .fold(true, |fits, (_, names)| self.required(names, owner, value, place) && fits)
    }

    fn dependent_schemas(&mut self, named: &'a [(String, Id)], value: &'a Value, place: &Place<'_>) -> bool {
        let there = |name: &str| value.as_object().is_some_and(|object| object.contains_key(name));
        named
            .iter()
            .filter(|(name, _)| there(name))
            .fold(true, |fits, (_, id)| self.node(*id, value, place) && fits)
    }

    fn all(&mut self, ids: &'a [Id], value: &'a Value, place: &Place<'_>) -> bool {
        let mut fits = true;
        for id in ids {
            fits &= self.node(*id, value, place);
            if !fits && self.ends_early() {
                break;
            }
        }
        fits
    }

    fn any(&mut self, ids: &'a [Id], value: &'a Value, place: &Place<'_>) -> Option<Kind<'a>> {
        let (fitting, branches) = self.branches(ids, value, place, 1);
        (fitting == 0).then_some(Kind::Any(branches))
    }

    fn one(&mut self, ids: &'a [Id], value: &'a Value, place: &Place<'_>) -> Option<Kind<'a>> {
        let (fitting, branches) = self.branches(ids, value, place, 2);
        match fitting {
            0 => Some(Kind::One(branches)),
            1 => None,
            _ => Some(Kind::SeveralOfOne),
        }
    }

    /// How many of `ids` fit, and what is wrong with each. Ends with `enough` that fit unless somebody asks for what
    /// none of them has looked at.
    fn branches(
        &mut self,
        ids: &'a [Id],
        value: &'a Value,
        place: &Place<'_>,
        enough: usize,
    ) -> (usize, Vec<Vec<Error<'a>>>) {
        let outer = self.errors.take();
        let enough = if self.seen.is_none() { enough } else { usize::MAX };
        let mut fitting = 0;
        let mut branches = Vec::new();
        for id in ids {
            self.errors = outer.is_some().then(Vec::new);
            fitting += usize::from(self.attempt(*id, value, place));
            branches.extend(self.errors.take());
            if fitting >= enough || self.room.is_none() {
                break;
            }
        }
        self.errors = outer;
        (fitting, branches)
    }
}

/// How many members or items `value` has.
fn parts(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}
