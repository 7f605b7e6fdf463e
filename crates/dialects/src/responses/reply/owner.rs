//! The item that an event of a stream belongs to. The index says so where it is there and used once; where it is absent
//! (llama.cpp's server) or several items share it (OGX), the ids do. Every id seen for an item is a name of it: some
//! servers give it another one when it is complete. Decides nothing about calls.

use super::ResponsesReplies;
use super::event::Index;
use super::items::OutItem;
use super::last::Last;
use crate::responses::item::{Item, ItemKind};
use wire::json::decode;

/// The item that an event belongs to, by its index in the list of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    At(usize),
    /// No item that is known.
    Unknown,
    /// Clients may take it for parts of different calls; the index is that of the item by its `output_index`.
    Ambiguous(usize),
}

/// What the event that adds an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    New,
    /// The beginning of the call whose pieces came before.
    Pieces(usize),
    /// It was added before.
    Again,
    /// A client may take it for a call of another name that was added before.
    Renamed,
}

/// The ids of an item, decoded; empty where it has none.
pub(super) struct Ids {
    pub(super) item: String,
    pub(super) call: String,
}

impl Ids {
    pub(super) fn of(item: &Item, data: &[u8]) -> Self {
        let text = |id| decode(id, data).into_owned();
        let is_call = matches!(item.kind, ItemKind::Call(_));
        Self {
            item: item.id.map_or_else(String::new, text),
            call: item.call.id.filter(|_| is_call).map_or_else(String::new, text),
        }
    }
}

/// An item of the last event, which repeats one of the reply.
pub(super) struct Copied<'a> {
    pub(super) item: &'a Item,
    pub(super) data: &'a [u8],
    /// Its index in the list.
    pub(super) nth: u64,
    pub(super) ids: Ids,
}

impl Copied<'_> {
    fn is_at(&self, known: &OutItem) -> bool {
        known.index == Some(Index::Number(self.nth))
    }
}

/// The items to which a sign of an event points.
enum Found {
    None,
    One(usize),
    /// Several calls that are not complete; the last of them.
    Several(usize),
}

impl Found {
    fn at(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(at) | Self::Several(at) => Some(*at),
        }
    }
}

impl ResponsesReplies {
    /// The item to which an event with this index and this id belongs.
    pub(super) fn owner_of_piece(&self, index: Option<Index>, id: Option<&str>) -> Owner {
        let has_index = |item: &OutItem| index.is_some() && item.index == index;
        let has_id = |item: &OutItem| id.is_some_and(|id| item.is_known_as(id));
        let by_index = self.find(&has_index);
        let by_id = self.find(&has_id);
        match (by_index.at(), by_id.at()) {
            (None, None) if index.is_none() && id.is_none() => self.owner_without_sign(),
            (None, None) => Owner::Unknown,
            (None, Some(at)) | (Some(at), None) => match (by_index, by_id) {
                (Found::Several(_), _) | (_, Found::Several(_)) => Owner::Ambiguous(at),
                _ => Owner::At(at),
            },
            (Some(at), Some(other)) => match self.find(&|item| has_index(item) && has_id(item)) {
                Found::One(both) => Owner::At(both),
                Found::Several(both) => Owner::Ambiguous(both),
                Found::None => match (self.is_call(at), self.is_call(other)) {
                    (true, true) => Owner::Ambiguous(at),
                    (false, true) => Owner::At(other),
                    _ => Owner::At(at),
                },
            },
        }
    }

    /// A piece without an index and an id belongs to the only call that such an event can mean.
    fn owner_without_sign(&self) -> Owner {
        match self.find(&|item| item.index.is_none() && item.call.is_some() && item.done.is_none()) {
            Found::None => Owner::Unknown,
            Found::One(at) => Owner::At(at),
            Found::Several(at) => Owner::Ambiguous(at),
        }
    }

    /// The only call whose arguments have not ended: a server that gives its events other ids than the item, and no index
    /// that it has, means this one.
    pub(super) fn only_open_call(&self) -> Option<usize> {
        let is_open =
            |item: &OutItem| item.call.is_some() && !item.has_ended_arguments() && !item.is_nameless();
        let mut open = self.items.iter().enumerate().filter(|(_, item)| is_open(item)).map(|(at, _)| at);
        open.next().filter(|_| open.next().is_none())
    }

    fn is_call(&self, at: usize) -> bool {
        self.items[at].call.is_some()
    }

    /// The upstream's items for which `is_it` is true. Of several, those that are complete get nothing more.
    fn find(&self, is_it: &dyn Fn(&OutItem) -> bool) -> Found {
        let all = || self.items.iter().enumerate().rev().filter(|(_, item)| is_it(item));
        let Some((last, _)) = all().next() else { return Found::None };
        if all().nth(1).is_none() {
            return Found::One(last);
        }
        let mut open = all().filter(|(_, item)| item.done.is_none());
        let Some((at, _)) = open.next() else { return Found::One(last) };
        let mut calls = all().filter(|(_, item)| item.done.is_none() && item.call.is_some());
        match (calls.next(), calls.next()) {
            (Some((call, _)), Some(_)) => Found::Several(call),
            _ => Found::One(at),
        }
    }

    /// How many of the upstream's items have this index.
    fn sharing(&self, index: Option<Index>) -> usize {
        self.items.iter().filter(|item| index.is_some() && item.index == index).count()
    }

    /// What the event is that adds `item`.
    pub(super) fn added(&self, index: Option<Index>, item: &Item, data: &[u8]) -> Added {
        if !matches!(item.kind, ItemKind::Call(_)) {
            return Added::New;
        }
        let ids = Ids::of(item, data);
        let in_pieces = |known: &OutItem| {
            let has_index = index.is_some() && known.index == index;
            known.is_nameless() && (has_index || known.is_any_of(&ids))
        };
        if let Some(at) = self.items.iter().rposition(in_pieces) {
            return Added::Pieces(at);
        }
        let is_of_its_own = self.sharing(index) == 0 && index.is_some();
        let twin = self.items.iter().find(|known| {
            known.call.is_some() && known.is_named_by(&ids) && (!is_of_its_own || known.index.is_none())
        });
        match twin {
            None => Added::New,
            Some(known) if known.is_same_tool(item, data) => Added::Again,
            Some(_) => Added::Renamed,
        }
    }

    /// The item that `item` completes: the one to which most signs point, of equals the first. `None` if it is complete
    /// already, or has come in no other event.
    pub(super) fn owner_of_complete(&self, index: Option<Index>, item: &Item, data: &[u8]) -> Option<usize> {
        let ids = Ids::of(item, data);
        let is_call = matches!(item.kind, ItemKind::Call(_));
        let is_open = |known: &OutItem| {
            let is_in_pieces = known.is_nameless() && (is_call || known.is_known_as(&ids.item));
            let is_kind = known.kind == item.kind || is_in_pieces;
            known.done.is_none() && is_kind
        };
        let is_unique = self.sharing(index) == 1;
        let names_one = self.items.iter().filter(|known| known.is_known_as(&ids.item)).count() == 1;
        let signs = |known: &OutItem| {
            let has_index = index.is_some() && known.index == index;
            let is_doubtful = !is_unique && known.has_other_call_id(&ids);
            8 * u8::from(known.is_known_as(&ids.call))
                + 4 * u8::from(has_index && is_unique)
                + 2 * u8::from(known.is_known_as(&ids.item) && names_one)
                + u8::from(has_index && !is_doubtful)
        };
        let open = || self.items.iter().enumerate().filter(|(_, known)| is_open(known));
        let best = open().map(|(at, known)| (signs(known), at)).rev().max_by_key(|(signs, _)| *signs);
        if let Some((1.., at)) = best {
            return Some(at);
        }
        // A server without indexes that changes the ids, too: the first call of this tool.
        let has_none = |known: &OutItem| index.is_none() || known.index.is_none();
        let is_it = |known: &OutItem| is_call && has_none(known) && known.is_same_tool(item, data);
        open().find(|(_, known)| is_it(known)).map(|(at, _)| at)
    }

    /// For each item of the last event the item that it repeats. The surest signs are taken first. Each item is
    /// repeated once.
    pub(super) fn repeated_by(&self, last: &Last) -> Vec<Option<usize>> {
        type Sign = fn(&OutItem, &Copied<'_>) -> bool;
        const SIGNS: [Sign; 6] = [
            |known, copy| known.is_known_as(&copy.ids.call) && copy.is_at(known),
            |known, copy| known.is_known_as(&copy.ids.call),
            |known, copy| known.is_known_as(&copy.ids.item),
            |known, copy| copy.is_at(known),
            |known, copy| known.says_the_same(copy),
            |known, copy| known.index.is_none() && known.call.is_none() && !known.is_any_of(&copy.ids),
        ];
        let copies: Vec<Copied<'_>> = last.copies();
        let mut found: Vec<Option<usize>> = vec![None; copies.len()];
        let mut taken = vec![false; self.items.len()];
        for is_sign in SIGNS {
            for (copy, found) in copies.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
                let is_it = |(at, known): &(usize, &OutItem)| {
                    !taken[*at] && known.kind == copy.item.kind && is_sign(known, copy)
                };
                *found = self.items.iter().enumerate().find(is_it).map(|(at, _)| at);
                found.iter().for_each(|at| taken[*at] = true);
            }
        }
        found
    }

    /// Whether the ids of `item` are those of two calls.
    pub(super) fn names_two_calls(&self, item: &Item, data: &[u8]) -> bool {
        let ids = Ids::of(item, data);
        let by = |id: &str| {
            let mut known =
                self.items.iter().enumerate().filter(|(_, item)| item.call.is_some() && item.is_known_as(id));
            known.next().filter(|_| known.next().is_none()).map(|(at, _)| at)
        };
        matches!((by(&ids.call), by(&ids.item)), (Some(at), Some(other)) if at != other)
    }

    /// Whether `item` is complete already: the same call under the same index, or where indexes do not tell.
    pub(super) fn is_complete_already(&self, index: Option<Index>, item: &Item, data: &[u8]) -> bool {
        let has_key = index.is_some() || item.id.is_some() || item.call.id.is_some();
        let is_vague = |index: Option<Index>| index.is_none() || self.sharing(index) > 1;
        let is_again = |known: &OutItem| {
            let is_under = known.index == index || is_vague(known.index) || is_vague(index);
            known.done.is_some() && is_under && known.is_same_call(item, data)
        };
        has_key && self.items.iter().any(is_again)
    }
}

impl OutItem {
    /// Whether `id` is one of the ids under which it has come.
    pub(super) fn is_known_as(&self, id: &str) -> bool {
        !id.is_empty() && self.ids.iter().any(|known| known == id)
    }

    fn is_any_of(&self, ids: &Ids) -> bool {
        self.is_known_as(&ids.item) || self.is_known_as(&ids.call)
    }

    /// Whether these are the ids of this call. The call's id decides, where it has one.
    fn is_named_by(&self, ids: &Ids) -> bool {
        if ids.call.is_empty() { self.is_known_as(&ids.item) } else { self.is_known_as(&ids.call) }
    }

    /// Whether it is a call of the same tool with the same arguments.
    fn says_the_same(&self, copy: &Copied<'_>) -> bool {
        let arguments = self.call.as_ref().map(|call| call.assembled.arguments());
        self.done.is_some()
            && self.is_same_tool(copy.item, copy.data)
            && arguments == Some(copy.item.call.arguments.text(copy.data).into_owned())
    }

    fn has_other_call_id(&self, ids: &Ids) -> bool {
        let own = self.call.as_ref().map(|call| call.assembled.id()).unwrap_or_default();
        !ids.call.is_empty() && !own.is_empty() && own != ids.call
    }

    /// Whether it is a call, and only pieces of it have come.
    fn is_nameless(&self) -> bool {
        let is_it = |call: &super::items::Call| call.assembled.name.is_empty();
        self.done.is_none() && self.call.as_ref().is_some_and(is_it)
    }

    /// Whether both call the same tool.
    fn is_same_tool(&self, item: &Item, data: &[u8]) -> bool {
        let name = self.call.as_ref().map(|call| call.assembled.name());
        self.kind == item.kind && name == Some(item.call.full_name(data).unwrap_or_default().into_owned())
    }
}
