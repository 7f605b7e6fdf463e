//! A tool call of a reply as received so far: its id, its name in pieces, and its arguments. Stores what was written;
//! the dialects append to it.

use super::call::{ToolCall, holds_nothing};
use wire::json::unescape;
use wire::whole_json::Wholeness;

/// A call as received so far. Strings are kept as written between the quotes, escapes unresolved, since a delta may
/// split an escape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    pub id: Vec<u8>,
    pub name: Vec<u8>,
    pub arguments: Vec<u8>,
    /// Members of the call that toolrein does not know, such as `extra_content`: key and value as written.
    pub extra: Vec<(Vec<u8>, Vec<u8>)>,
    /// It came as the deprecated `function_call`.
    pub legacy: bool,
    /// It calls a custom tool: the arguments are free text.
    pub custom: bool,
    /// The index the upstream gave it.
    pub index: Option<u64>,
    /// The event that last added to it.
    pub event: u64,
    /// The number of its deltas.
    pub deltas: usize,
    /// A delta with arguments has come.
    pub carried: bool,
    /// It came whole, outside of the deltas: none of these belongs to it.
    pub beside: bool,
    /// Earlier names under its index: clients that go by the index alone join the two calls.
    pub before: Vec<Vec<u8>>,
    /// Arguments came with them.
    pub argued_before: bool,
    /// The pieces of its name, where there are several.
    pub pieces: Vec<Vec<u8>>,
    pub wholeness: Wholeness,
}

impl Assembled {
    /// Whether `delta` may be a part of it at all.
    pub fn is_joined_by(&self, delta: &ToolCall) -> bool {
        self.legacy == delta.legacy && !self.beside
    }

    /// The tool's name; empty while it is not known.
    pub fn name(&self) -> String {
        unescape(&self.name)
    }

    /// The call's id; empty where the provider gives none.
    pub fn id(&self) -> String {
        unescape(&self.id)
    }

    /// The arguments as JSON text.
    pub fn arguments(&self) -> String {
        unescape(&self.arguments)
    }

    /// The index the upstream gave it.
    pub fn index(&self) -> Option<u64> {
        self.index
    }

    /// Whether clients that go by the index take it and `other`, which is another call, for one.
    pub fn shares_index(&self, other: &Self) -> bool {
        let is_by_index = |call: &Self| call.index.is_some() && !call.legacy && !call.beside;
        is_by_index(self) && is_by_index(other) && self.index == other.index
    }

    /// The number of its deltas so far.
    pub fn deltas(&self) -> usize {
        self.deltas
    }

    /// Whether the arguments so far are one whole JSON value.
    pub fn is_whole(&self) -> bool {
        self.wholeness.is_whole()
    }

    /// Whether the arguments so far are empty or white space.
    pub fn is_blank(&self) -> bool {
        self.wholeness.is_blank()
    }

    /// Whether it is a placeholder and no call, as far as it has come. See
    /// [`ToolCall::is_placeholder`](super::call::ToolCall::is_placeholder).
    pub fn is_placeholder(&self) -> bool {
        self.name.is_empty() && holds_nothing(&self.arguments())
    }

    /// Whether some client may know it by another name than [`name`](Self::name).
    pub fn has_other_names(&self) -> bool {
        !self.before.is_empty() || self.pieces.len() > 1
    }

    /// The other names that clients may assemble for this call: the `openai` package of Python joins all pieces under
    /// an index, the one of Node takes the last piece, the Vercel AI SDK takes the first, and a client that acts at
    /// once takes each piece.
    pub fn other_names(&self) -> Vec<String> {
        let own = self.own_pieces();
        let all: Vec<&[u8]> = self.before.iter().chain(own).map(Vec::as_slice).collect();
        // Earlier names that came with arguments belong to calls that were already judged: only the joined name is
        // new.
        let is_joined_alone = self.argued_before && !self.is_blank();
        let apart = if is_joined_alone { &all[self.before.len()..] } else { &all[..] };
        let mut names = vec![unescape(&all.concat()), unescape(&own.concat())];
        names.extend(apart.iter().map(|piece| unescape(piece)));
        let name = self.name();
        names.retain(|other| *other != name && !other.is_empty());
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The pieces of its own name.
    pub fn own_pieces(&self) -> &[Vec<u8>] {
        if self.pieces.is_empty() { std::slice::from_ref(&self.name) } else { &self.pieces }
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let extra: usize = self.extra.iter().map(|(key, value)| key.len() + value.len()).sum();
        let names = total(&self.before) + total(&self.pieces);
        self.id.len() + self.name.len() + self.arguments.len() + extra + names
    }
}

/// Bytes of these names.
pub fn total(names: &[Vec<u8>]) -> usize {
    names.iter().map(Vec::len).sum()
}

/// Most bytes of the pieces of a name that clients may join; a name in one piece may be longer. OpenAI accepts names of
/// 64 characters.
pub const MOST_NAME_BYTES: usize = 256;

/// The names that clients which go by the index alone join to `call`, where they see only some of the calls `earlier` (each
/// with whether they see it), and whether arguments came with them; `None` if there is more than is kept.
pub fn forget_unseen(earlier: &[(&Assembled, bool)], call: &Assembled) -> Option<(Vec<Vec<u8>>, bool)> {
    let seen = earlier.iter().filter(|(_, is_seen)| *is_seen).map(|(call, _)| *call);
    let joined: Vec<&Assembled> = joined_by_index(seen, call.index, call.legacy).collect();
    join_names(&joined)
}

/// The calls that came under `index`, the newest first.
pub fn joined_by_index<'a, I>(
    calls: I,
    index: Option<u64>,
    legacy: bool,
) -> impl Iterator<Item = &'a Assembled>
where
    I: IntoIterator<Item = &'a Assembled, IntoIter: DoubleEndedIterator>,
{
    let under = move |call: &&Assembled| {
        index.is_some() && call.index == index && call.legacy == legacy && !call.beside
    };
    calls.into_iter().rev().filter(under).take(MOST_NAME_BYTES + 1)
}

/// What a client that uses only the index joins to a call after these, the newest first: their names, and whether arguments
/// came with them. `None` if there is more than is kept.
pub fn join_names(earlier: &[&Assembled]) -> Option<(Vec<Vec<u8>>, bool)> {
    let mut size = 0;
    for call in earlier {
        // A call without a name counts too: there may be any number of them.
        size += 1 + total(call.own_pieces());
        if size > MOST_NAME_BYTES {
            return None;
        }
    }
    let names = earlier.iter().rev().flat_map(|call| call.own_pieces());
    let before = names.filter(|name| !name.is_empty()).cloned().collect();
    Some((before, earlier.iter().any(|call| !call.is_blank())))
}
