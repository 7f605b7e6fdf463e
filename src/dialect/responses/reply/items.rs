//! The items of a reply: its calls with the decision on each, and what the client was shown. A client may read a call
//! from the event that adds it, from its deltas, from the event that ends its arguments, and from the complete item;
//! where these differ, the call goes out as it was judged.

mod deciding;

pub use self::deciding::{Progress, block_by_name, decide, release_rest, set, settle_pieces};

use super::event::Index;
use crate::dialect::responses::item::{CallKind, Item, ItemKind};
use bytes::Bytes;
use model::assembled::Assembled;
use model::call::holds_nothing;
use model::message::Role;
use model::plan::decision::Decision;
use serde::de::IgnoredAny;
use wire::json::{decode, decode_bytes, escape_into, in_one_case, unescape};
use wire::members::members_of;

/// The number of the only choice.
pub const CHOICE: u32 = 0;

/// Most items of one reply that are read: the longest recorded reply has 20.
pub const MOST_ITEMS: usize = 512;

/// Most ids of one item that are kept: its own and its call's, from the event that adds it and from the complete item,
/// and some of pieces.
const MOST_IDS: usize = 8;

/// One item of a reply.
#[derive(Debug, Default)]
pub struct OutItem {
    /// The index that the upstream gave it.
    pub index: Option<Index>,
    /// The index under which the client has it.
    pub shown_as: Option<u64>,
    pub kind: ItemKind,
    /// Every id under which it has come, and those of its call.
    pub ids: Vec<String>,
    pub call: Option<Call>,
    /// The complete item, as JSON.
    pub done: Option<Bytes>,
    /// toolrein wrote it.
    pub own: bool,
    /// toolrein has written it in place of the upstream's events.
    pub written: bool,
    /// Its text, or its call, is in what the client was shown.
    pub counted: bool,
    /// It is pieces of a call that no item claimed.
    pub is_unclaimed: bool,
    /// Whether markup is all that it says, where it is a message of a final answer.
    pub veil: Veil,
}

/// Whether the client sees a message. Calls that the model wrote as text may be removed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Veil {
    /// It does.
    #[default]
    None,
    /// Not known yet: nothing has come that remains.
    Waiting,
    /// It does not: nothing remains, or it belongs to a call that the client does not see.
    Empty,
}

/// A call as far as it has come.
#[derive(Debug)]
pub struct Call {
    pub kind: CallKind,
    pub assembled: Assembled,
    pub decision: Option<Decision>,
    /// No policy objects to its name.
    name_passes: bool,
    /// It was decided on by its arguments too.
    with_arguments: bool,
    /// The arguments by its deltas, and by the event that ends them, as written.
    deltas: Vec<u8>,
    ended: Option<Vec<u8>>,
    /// An event has ended its arguments.
    has_end_event: bool,
    /// Its events differ in what they say.
    pub differs: bool,
    /// Neither its complete item nor its complete arguments came before the reply ended.
    is_begun_only: bool,
    /// Its complete item says that the reply was cut within it.
    is_marked_cut: bool,
    /// Only pieces have come, of a kind that no client runs without a name.
    needs_name: bool,
    /// The name that the event says which ends its arguments, and whether another such event says another one.
    said_name: Option<String>,
    says_two_names: bool,
}

impl Call {
    fn new(kind: CallKind) -> Self {
        Self {
            kind,
            assembled: Assembled { custom: kind == CallKind::Custom, ..Assembled::default() },
            decision: None,
            name_passes: false,
            with_arguments: false,
            deltas: Vec::new(),
            ended: None,
            has_end_event: false,
            differs: false,
            is_begun_only: false,
            is_marked_cut: false,
            needs_name: false,
            said_name: None,
            says_two_names: false,
        }
    }

    /// Whether the client sees it.
    pub fn is_released(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::is_released)
    }

    /// Whether the client sees it whatever its arguments are.
    fn is_released_by_name(&self) -> bool {
        self.is_released() && !self.with_arguments
    }

    /// Whether it is a placeholder and no call, as far as it has come: it has no name, and its arguments hold nothing. No
    /// client can run one. An approval request is found by its id, whatever its name is.
    pub fn is_placeholder(&self) -> bool {
        let mut pieces = self.ended.iter().chain([&self.deltas]);
        matches!(self.kind, CallKind::Function | CallKind::Custom)
            && self.assembled.is_placeholder()
            && pieces.all(|piece| holds_nothing(&unescape(piece)))
    }

    /// Whether nothing says its name where no client runs it without one.
    fn needs_a_name(&self) -> bool {
        self.needs_name && self.assembled.name.is_empty() && self.decision.is_none()
    }

    /// Whether clients may know it by two names.
    fn has_two_names(&self) -> bool {
        let (own, said) = (self.assembled.name(), self.said_name.as_deref());
        // An event may leave out the namespace.
        let is_own = |said: &str| own.strip_suffix(said).is_some_and(|before| !before.ends_with(is_of_name));
        self.says_two_names || (!own.is_empty() && said.is_some_and(|said| !is_own(said)))
    }

    /// Whether it waits for a person's decision.
    pub fn is_waiting(&self) -> bool {
        matches!(self.decision, Some(Decision::Hold { .. }))
    }

    /// Whether the decision is final.
    pub fn is_settled(&self) -> bool {
        self.decision.is_some() && !self.is_waiting()
    }

    /// Whether toolrein writes it: its arguments were changed, or its events differ.
    pub fn is_written(&self) -> bool {
        self.is_released()
            && ((self.differs && self.with_arguments)
                || matches!(self.decision, Some(Decision::Rewrite { .. })))
    }

    /// Whether its arguments may have been cut. Objects come whole or not at all.
    fn may_be_cut(&self) -> bool {
        match self.kind {
            CallKind::Function | CallKind::McpApproval => self.has_open_arguments(),
            CallKind::Custom => self.is_marked_cut,
            _ => false,
        }
    }

    /// Drops a call that was cut and that the client does not see: nobody is asked about half a call, and a re-ask would be cut
    /// again.
    fn drop_if_cut(&mut self, is_complete: bool) {
        if !self.decision.as_ref().is_some_and(Decision::is_hidden) {
            return;
        }
        if !is_complete {
            self.take_pieces();
        }
        if self.may_be_cut() {
            self.decision = Some(Decision::Drop);
        }
    }

    /// Whether its arguments are no JSON, as they are where the end is missing.
    fn has_open_arguments(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.assembled.arguments()).is_err()
    }

    /// Sets the name and the id as `item` gives them, and returns whether the name was another before. Some servers give
    /// a call another id when it is complete.
    fn name(&mut self, item: &Item, data: &[u8]) -> bool {
        let escaped = |text: &str| {
            let mut out = Vec::new();
            escape_into(text, &mut out);
            out
        };
        let name = escaped(&item.call.full_name(data).unwrap_or_default());
        let id = escaped(&item.call.id.map_or("".into(), |id| decode(id, data)));
        let was_named = !self.assembled.name.is_empty();
        let is_other = self.assembled.name != name;
        (self.assembled.name, self.assembled.id) = (name, id);
        self.assembled.extra = other_members(item, data);
        was_named && is_other
    }

    /// Sets the arguments of the complete item, and notes whether its events said something else.
    fn complete(&mut self, item: &Item, data: &[u8]) {
        let mut arguments = Vec::new();
        escape_into(&item.call.arguments.text(data), &mut arguments);
        let whole = unescape(&arguments);
        let is_other = |text: &[u8]| unescape(text) != whole;
        let by_deltas = !self.deltas.is_empty() && is_other(&self.deltas);
        self.differs |= by_deltas || self.ended.as_deref().is_some_and(is_other) || item.call.ambiguous;
        self.assembled.arguments = arguments;
        self.is_marked_cut = item.is_marked_cut;
        (self.deltas, self.ended) = (Vec::new(), None);
    }

    /// Takes the arguments from its events, where no complete item came.
    fn take_pieces(&mut self) {
        let deltas = std::mem::take(&mut self.deltas);
        let ended = self.ended.take();
        let is_other = |ended: &Vec<u8>| !deltas.is_empty() && unescape(ended) != unescape(&deltas);
        self.differs |= ended.as_ref().is_some_and(is_other);
        self.assembled.arguments = ended.unwrap_or(deltas);
    }

    /// Bytes kept.
    fn size(&self) -> usize {
        self.assembled.size() + self.deltas.len() + self.ended.as_ref().map_or(0, Vec::len)
    }
}

/// Whether a character may be one of a tool's name.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// The members beside the call's own id, name and arguments: an approved call is handed out with them. None that a reader
/// of JSON could take for the arguments, which a person was shown.
fn other_members(item: &Item, data: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    const SHOWN: [&[u8]; 7] =
        [b"call_id", b"name", b"arguments", b"input", b"action", b"actions", b"operation"];
    const EXACT: [&[u8]; 7] =
        [b"type", b"id", b"namespace", b"execution", b"server_label", b"environment", b"status"];
    let members = members_of(data, item.span);
    let others = members.iter().filter_map(|member| {
        let key = decode_bytes(member.key, data);
        let folded = in_one_case(&key);
        let is_other_spelling = EXACT.contains(&&*folded) && folded != key;
        let is_left_out = SHOWN.contains(&&*folded) || is_other_spelling;
        (!is_left_out).then(|| (key.clone().into_owned(), member.value.of(data).to_vec()))
    });
    others.collect()
}

impl OutItem {
    /// An item that begins with `item`.
    pub fn begin(index: Option<Index>, item: &Item, data: &[u8]) -> Self {
        let call = match item.kind {
            ItemKind::Call(kind) => Some(Call::new(kind)),
            _ => None,
        };
        let mut begun = Self { index, kind: item.kind, call, ..Self::default() };
        begun.learn_ids(item, data);
        if let Some(call) = &mut begun.call {
            call.name(item, data);
            let arguments = item.call.arguments.text(data);
            if !arguments.is_empty() && item.call.arguments.bytes() > 0 {
                let mut early = Vec::new();
                escape_into(&arguments, &mut early);
                // Objects come whole with the event that begins the item, and may be incomplete there.
                call.ended =
                    matches!(call.kind, CallKind::Function | CallKind::Custom | CallKind::McpApproval)
                        .then_some(early);
            }
        }
        begun
    }

    /// The place of a text of toolrein's, which is not written yet.
    pub fn reserved() -> Self {
        Self { kind: ItemKind::Message(Role::Assistant), own: true, ..Self::default() }
    }

    /// Whether it is such a place.
    pub fn is_reserved(&self) -> bool {
        self.own && self.done.is_none()
    }

    /// A call that has come only in pieces so far; `needs_name`: of a kind that no client runs without a name.
    pub fn nameless(index: Option<Index>, needs_name: bool) -> Self {
        let call = Call { needs_name, ..Call::new(CallKind::Function) };
        Self { index, kind: ItemKind::Call(call.kind), call: Some(call), ..Self::default() }
    }

    /// Takes the beginning of a call whose pieces have come before.
    pub fn begin_late(&mut self, index: Option<Index>, item: &Item, data: &[u8]) {
        let begun = Self::begin(index, item, data);
        (self.index, self.kind) = (self.index.or(index), item.kind);
        self.learn_ids(item, data);
        if let (Some(call), Some(new)) = (&mut self.call, begun.call) {
            (call.kind, call.assembled) = (new.kind, new.assembled);
            call.ended = call.ended.take().or(new.ended);
        }
    }

    /// Takes an id under which it has come. Some servers give another one with every event.
    pub fn learn_id(&mut self, id: &str) {
        if !id.is_empty() && self.ids.len() < MOST_IDS && !self.ids.iter().any(|known| known == id) {
            self.ids.push(id.to_owned());
        }
    }

    fn learn_ids(&mut self, item: &Item, data: &[u8]) {
        let of_call = item.call.id.filter(|_| matches!(item.kind, ItemKind::Call(_)));
        item.id.into_iter().chain(of_call).for_each(|id| self.learn_id(&decode(id, data)));
    }

    /// Takes the name that an event says of its call.
    pub fn learn_name(&mut self, name: &str) {
        if let Some(call) = self.call.as_mut().filter(|call| call.kind.is_named()) {
            call.says_two_names |= call.said_name.get_or_insert_with(|| name.to_owned()) != name;
        }
    }

    /// Whether clients may know its call by two names.
    pub fn has_two_names(&self) -> bool {
        self.call.as_ref().is_some_and(Call::has_two_names)
    }

    /// Adds a piece of its arguments, as written.
    pub fn add(&mut self, piece: &[u8]) {
        if let Some(call) = &mut self.call {
            call.differs |= self.done.is_some();
            call.deltas.extend_from_slice(piece);
        }
    }

    /// Whether an event has ended the arguments of its call, or it is complete.
    pub fn has_ended_arguments(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.has_end_event || self.done.is_some())
    }

    /// Adds the whole arguments, as decoded text.
    pub fn end_arguments(&mut self, text: &str) {
        if let Some(call) = &mut self.call {
            let mut ended = Vec::new();
            escape_into(text, &mut ended);
            call.differs |=
                call.ended.as_ref().is_some_and(|before| unescape(before) != text) && !text.is_empty();
            call.ended = Some(ended);
            call.has_end_event = true;
        }
    }

    /// Adds the complete item. Returns whether the client may now know the call by another name than before.
    pub fn complete(&mut self, item: &Item, data: &[u8]) -> bool {
        self.done = Some(Bytes::copy_from_slice(item.span.of(data)));
        self.learn_ids(item, data);
        let Some(call) = &mut self.call else { return false };
        let renamed = call.name(item, data);
        call.complete(item, data);
        call.differs |= renamed;
        renamed
    }

    /// Whether `item` has the same content as the complete item that it may repeat.
    pub fn is_repeated_by(&self, item: &Item, data: &[u8]) -> bool {
        match &self.call {
            Some(call) => {
                self.is_same_call(item, data) && call.assembled.arguments() == item.call.arguments.text(data)
            }
            None => self.kind == item.kind,
        }
    }

    /// Whether `item` may go out in place of the complete item that it repeats.
    pub fn may_become(&self, item: &Item, data: &[u8]) -> bool {
        let is_released_by_name = self.call.as_ref().is_some_and(Call::is_released_by_name);
        (is_released_by_name && self.is_same_call(item, data)) || self.is_repeated_by(item, data)
    }

    /// Whether `item` is the same call, whatever its arguments are.
    pub fn is_same_call(&self, item: &Item, data: &[u8]) -> bool {
        let (Some(call), ItemKind::Call(kind)) = (&self.call, item.kind) else { return false };
        call.kind == kind
            && call.assembled.id() == item.call.id.map_or("".into(), |id| decode(id, data))
            && call.assembled.name() == item.call.full_name(data).unwrap_or_default()
    }

    /// Whether the client sees it; it is not known yet for a call that is undecided.
    pub fn is_shown(&self) -> bool {
        self.veil != Veil::Empty && self.call.as_ref().is_none_or(Call::is_released)
    }

    /// Text has come that the client sees.
    pub fn unveil(&mut self) {
        if self.veil == Veil::Waiting {
            self.veil = Veil::None;
        }
    }

    /// Whether the client sees its call, and a policy has looked at the arguments.
    pub fn is_judged_whole(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.is_released() && call.with_arguments)
    }

    /// Whether the decision on it is final.
    pub fn is_settled(&self) -> bool {
        self.veil != Veil::Waiting && self.call.as_ref().is_none_or(Call::is_settled)
    }

    /// Whether its call, if it has one, is decided on or waits for a person.
    pub fn is_decided(&self) -> bool {
        self.call.as_ref().is_none_or(|call| call.decision.is_some())
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let call = self.call.as_ref().map_or(0, Call::size);
        let ids: usize = self.ids.iter().map(String::len).sum();
        256 + ids + call + self.done.as_ref().map_or(0, Bytes::len)
    }
}

impl OutItem {
    /// Its call as it was judged, as JSON.
    pub fn judged(&self) -> Option<(CallKind, Bytes)> {
        let call = self.call.as_ref()?;
        Some((call.kind, super::written::judged_call(call.kind, &call.assembled, self.done.as_ref())))
    }
}
