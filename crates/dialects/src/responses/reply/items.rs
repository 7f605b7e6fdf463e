//! The items of a reply as far as they have come. A client may read a call from the event that adds it, from its deltas, from
//! the event that ends its arguments, and from the complete item; where these differ, the call goes out as it was judged.

use super::event::Index;
use crate::reply_choice::{ReplyCall, ReplyChoice, Visibility};
use crate::responses::item::{CallKind, Item, ItemKind};
use bytes::Bytes;
use model::assembled::Assembled;
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
    /// toolrein has written it in place of the upstream's events.
    pub written: bool,
    /// The number of its text in the choice, if it is a message.
    pub text: Option<u32>,
}

/// A call as far as it has come.
#[derive(Debug)]
pub struct Call {
    pub kind: CallKind,
    pub assembled: Assembled,
    /// Its position among the calls of the choice.
    pub at: usize,
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
            at: 0,
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

    /// Whether nothing says its name where no client runs it without one.
    fn lacks_name(&self) -> bool {
        self.needs_name && self.assembled.name.is_empty()
    }

    /// Whether clients may know it by two names.
    fn has_two_names(&self) -> bool {
        let (own, said) = (self.assembled.name(), self.said_name.as_deref());
        // An event may leave out the namespace.
        let is_own = |said: &str| own.strip_suffix(said).is_some_and(|before| !before.ends_with(is_of_name));
        self.says_two_names || (!own.is_empty() && said.is_some_and(|said| !is_own(said)))
    }

    /// Whether its arguments may have been cut. Objects come whole or not at all.
    fn may_be_cut(&self) -> bool {
        match self.kind {
            CallKind::Function | CallKind::McpApproval => self.has_open_arguments(),
            CallKind::Custom => self.is_marked_cut,
            _ => false,
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
    pub fn may_become(&self, item: &Item, data: &[u8], choice: &ReplyChoice) -> bool {
        let is_by_name =
            self.judged_in(choice).is_some_and(|call| call.is_released() && !call.with_arguments);
        (is_by_name && self.is_same_call(item, data)) || self.is_repeated_by(item, data)
    }

    /// Whether `item` is the same call, whatever its arguments are.
    pub fn is_same_call(&self, item: &Item, data: &[u8]) -> bool {
        let (Some(call), ItemKind::Call(kind)) = (&self.call, item.kind) else { return false };
        call.kind == kind
            && call.assembled.id() == item.call.id.map_or("".into(), |id| decode(id, data))
            && call.assembled.name() == item.call.full_name(data).unwrap_or_default()
    }

    /// Its call as it was judged, if it is one.
    pub fn judged_in<'a>(&self, choice: &'a ReplyChoice) -> Option<&'a ReplyCall> {
        choice.calls().get(self.call.as_ref()?.at)
    }

    /// Whether the client sees it; not yet where it is not known.
    pub fn is_shown(&self, choice: &ReplyChoice) -> bool {
        let is_text_shown =
            self.text.is_none_or(|text| choice.visibility(text as usize) != Visibility::Hidden);
        is_text_shown && (self.call.is_none() || self.judged_in(choice).is_some_and(ReplyCall::is_released))
    }

    /// Whether toolrein writes its call.
    pub fn is_call_written(&self, choice: &ReplyChoice) -> bool {
        self.judged_in(choice).is_some_and(ReplyCall::is_shown_as_written)
    }

    /// Its call as the client sees it, as JSON.
    pub fn written_call(&self, choice: &ReplyChoice) -> Option<(CallKind, Bytes)> {
        let (call, judged) = (self.call.as_ref()?, self.judged_in(choice)?);
        Some((call.kind, super::written::judged_call(call.kind, &judged.assembled, self.done.as_ref())))
    }

    /// Adds its call to those of the choice.
    pub fn add_to(&mut self, choice: &mut ReplyChoice) {
        if let Some(call) = &mut self.call {
            call.at =
                choice.add(ReplyCall { has_whole_name: true, is_open: Some(true), ..ReplyCall::default() });
        }
        self.report_to(choice, false);
    }

    /// Reports how far its call has come. `is_last`: it is the last item, and the next event says whether the reply was cut
    /// within it.
    pub fn report_to(&self, choice: &mut ReplyChoice, is_last: bool) {
        let Some(call) = &self.call else { return };
        let is_open = call.may_be_cut();
        let known = choice.call_mut(call.at);
        known.is_complete = self.done.is_some() && !(is_open && is_last);
        known.is_open = Some(is_open);
        known.is_cut_off = call.is_begun_only && call.has_open_arguments();
        known.runs_without_name = !matches!(call.kind, CallKind::Function | CallKind::Custom);
        known.is_unanswerable = call.kind == CallKind::Computer;
        known.differs = call.differs;
        let keeps_arguments = known.has_new_arguments();
        choice.change_call(call.at, |known| {
            let arguments = match () {
                () if keeps_arguments => std::mem::take(&mut known.arguments),
                () if call.lacks_name() => Vec::new(),
                () => call.assembled.arguments.clone(),
            };
            *known = Assembled { arguments, ..call.assembled.clone() };
        });
    }

    /// It is no call after all: the provider has run it itself.
    pub fn give_up_call(&mut self, choice: Option<&mut ReplyChoice>) {
        if let (Some(call), Some(choice)) = (self.call.take(), choice) {
            let known = choice.call_mut(call.at);
            (known.is_complete, known.differs, known.runs_without_name) = (true, false, false);
            choice.change_call(call.at, |known| *known = Assembled::default());
        }
    }

    /// Whether the client sees its call, and a policy has looked at the arguments.
    pub fn is_judged_whole(&self, choices: &[ReplyChoice]) -> bool {
        let judged = choices.first().and_then(|choice| self.judged_in(choice));
        judged.is_some_and(|call| call.is_released() && call.with_arguments)
    }

    /// The reply has ended: takes the arguments from their events where no complete item came, and the name that they say.
    /// Pieces that say no name are no call: OGX sends such pieces for tools that it runs itself.
    pub fn end_call(&mut self) {
        let first_id = self.ids.first();
        let Some(call) = self.call.as_mut().filter(|_| self.done.is_none()) else { return };
        if call.lacks_name()
            && let Some(name) = &call.said_name
        {
            escape_into(name, &mut call.assembled.name);
            if let Some(id) = first_id.filter(|_| call.assembled.id.is_empty()) {
                escape_into(id, &mut call.assembled.id);
            }
        }
        call.is_begun_only = call.ended.is_none();
        call.take_pieces();
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let call = self.call.as_ref().map_or(0, Call::size);
        let ids: usize = self.ids.iter().map(String::len).sum();
        256 + ids + call + self.done.as_ref().map_or(0, Bytes::len)
    }
}
