//! The calls of one choice as the parts of a reply bring them: which call a part belongs to, what is no call, and what
//! repeats a call in the deprecated form. Also what of the reply goes back to the model beside its calls.

use super::super::assemble::{Assembler, assembled, carries};
use super::super::completion::{Choice, Delta};
use super::Form;
use crate::codec::{CallPiece, ReplyEvent, ReplyEvents};
use crate::reply_choice::ReplyChoice;
use model::assembled::Assembled;
use model::call::ToolCall;
use model::message::Content;
use wire::json::decode;
use wire::members::Member;

/// Most members that are kept besides text and calls. Providers send two or three.
const MOST_CARRIED: usize = 16;

/// The finish reasons of replies that the model has finished, without their separators. By any other (`length`, `sensitive`,
/// `network_error`, `abort`) it was cut; there are too many for a list, and new ones come.
const FINISHED_REASONS: [&str; 13] = [
    "",
    "stop",
    "stopsequence",
    "toolcalls",
    "toolcall",
    "tooluse",
    "functioncall",
    "endturn",
    "eos",
    "eostoken",
    "complete",
    "completed",
    "malformedfunctioncall",
];

/// A call that a stream contains in both forms, as `tool_calls` and as `function_call`.
#[derive(Clone, Copy, Debug)]
struct RepeatedCall {
    call: usize,
    /// How many of its deltas were repeated.
    deltas: usize,
}

/// What was read of one choice of the present reply.
#[derive(Debug, Default)]
pub(super) struct ChoiceReader {
    pub(super) index: u32,
    assembler: Assembler,
    repeated: Option<RepeatedCall>,
    /// Its message has a `content`, whatever that is.
    pub(super) has_content: bool,
    /// Member names and JSON values, as written, of members such as `reasoning_content`.
    pub(super) carried: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ChoiceReader {
    pub(super) fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }

    /// Bytes kept besides the calls.
    pub(super) fn size(&self) -> usize {
        self.carried.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Reads the part of a frame that is at the position `at` among its choices.
    pub(super) fn read(
        &mut self,
        known: &mut ReplyChoice,
        (at, choice): (usize, &Choice),
        data: &[u8],
        form: Form,
        events: &mut ReplyEvents,
    ) {
        self.assembler.next_event();
        events.push(ReplyEvent::Choice(self.index));
        self.read_content(&choice.delta, data, events);
        let mut beside: Vec<(usize, &ToolCall)> = Vec::new();
        for (position, call) in choice.calls_by_form() {
            let is_beside = position >= choice.delta.calls.len();
            let is_whole = form == Form::Whole || is_beside;
            if self.is_placeholder(known, call, is_whole, data) {
                continue;
            }
            let repeated = match form {
                Form::Streamed => self.repeated_delta(known, call, &beside, data),
                Form::Whole => repeated(call, &beside, data),
            };
            let piece = match repeated {
                Some(known) => {
                    CallPiece { call: known as u16, carries: true, is_whole: true, ..CallPiece::default() }
                }
                None if is_beside => self.add_beside(known, call, data),
                None if is_whole => self.add_whole(known, call, data),
                None => self.add(known, call, data),
            };
            if repeated.is_none() {
                beside.push((piece.call as usize, call));
            }
            events.push(ReplyEvent::Call(CallPiece {
                choice_at: at as u16,
                position: position as u16,
                ..piece
            }));
        }
        if self.ceases_to_repeat(known) {
            events.push(ReplyEvent::Escape);
        }
        if let Some(finish) = choice.finish {
            events.push(ReplyEvent::Finish { is_cut: is_cut(&decode(finish, data)) });
        }
    }

    /// Takes note of a part that says what another one said, but for its text.
    pub(super) fn pass_text(&mut self) {
        self.assembler.next_event();
    }

    /// Whether a part with this `delta` leaves nothing to note but its text.
    pub(super) fn notes_text_alone(&self, delta: &Delta, text: &[u8]) -> bool {
        let is_noted = |member: &Member| is_carried(member.key.raw(text)) && member.value.of(text) != b"null";
        self.repeated.is_none() && !delta.members.iter().any(is_noted)
    }

    /// Reads what a delta contains besides calls.
    fn read_content(&mut self, delta: &Delta, text: &[u8], events: &mut ReplyEvents) {
        if delta.role.is_some() {
            events.push(ReplyEvent::Begin);
        }
        self.has_content |= delta.content != Content::Absent;
        events.extend(
            delta
                .content
                .texts()
                .filter(|text| !text.span.is_empty())
                .map(|text| ReplyEvent::Text(text.span)),
        );
        for member in &delta.members {
            match member.key.raw(text) {
                key if is_carried(key) => carry(&mut self.carried, key, member.value.of(text)),
                b"refusal" | b"audio" if !matches!(member.value.of(text), b"null" | b"\"\"") => {
                    events.push(ReplyEvent::OtherContent);
                }
                _ => {}
            }
        }
    }

    /// Whether `call`, or a piece of one, is a placeholder and no call.
    fn is_placeholder(&self, known: &ReplyChoice, call: &ToolCall, is_whole: bool, text: &[u8]) -> bool {
        if is_whole {
            return call.is_placeholder(text);
        }
        // A `function_call` that repeats a call of the other form repeats its empty pieces too.
        self.repeated.is_none() && self.assembler.is_placeholder(known, call, text)
    }

    /// Adds a part of a call.
    fn add(&mut self, known: &mut ReplyChoice, call: &ToolCall, text: &[u8]) -> CallPiece {
        let added = self.assembler.add(known, call, text);
        CallPiece {
            call: added.call as u16,
            begins: added.begins,
            carries: carries(known, added.call, call),
            names: added.names,
            respells: added.respells,
            argues: added.argues,
            is_ambiguous: call.ambiguous || added.ambiguous,
            ..CallPiece::default()
        }
    }

    /// Adds a call of a whole reply.
    fn add_whole(&mut self, known: &mut ReplyChoice, call: &ToolCall, text: &[u8]) -> CallPiece {
        let at = self.assembler.begin_whole(known, call, text);
        whole_piece(at, true, call)
    }

    /// Adds a whole call from a second message or delta: mostly it repeats a known one.
    fn add_beside(&mut self, known: &mut ReplyChoice, call: &ToolCall, text: &[u8]) -> CallPiece {
        let (name, arguments) = (call.name.map(|name| decode(name, text)), call.arguments.text(text));
        let is_same = |known: &Assembled| {
            name.as_deref() == Some(known.name().as_str()) && known.arguments() == arguments
        };
        // A copy in which another parser may see another call does not count as a copy.
        let same = assembled(known).position(is_same).filter(|_| !call.ambiguous);
        match same {
            Some(at) => whole_piece(at, false, call),
            None => self.add_whole(known, call, text),
        }
    }

    /// The call that a `function_call` repeats, if every delta of that call so far came with one that repeats it. Otherwise
    /// the `function_call` is a call of its own, because a client that reads only this form would join other pieces than
    /// those that were judged.
    fn repeated_delta(
        &mut self,
        known: &ReplyChoice,
        call: &ToolCall,
        beside: &[(usize, &ToolCall)],
        text: &[u8],
    ) -> Option<usize> {
        let at = repeated(call, beside, text)?;
        let calls = known.calls();
        let has_form_of_its_own = assembled(known).any(|call| call.legacy);
        let before = match self.repeated {
            Some(repeated) if repeated.call == at => repeated.deltas,
            None => 0,
            Some(_) => return None,
        };
        let deltas = before + 1;
        if has_form_of_its_own || calls[at].assembled.deltas() != deltas {
            return None;
        }
        self.repeated = Some(RepeatedCall { call: at, deltas });
        Some(at)
    }

    /// Whether the `function_call` that repeated a call no longer does: a client that reads only this form has another
    /// call now.
    fn ceases_to_repeat(&self, known: &ReplyChoice) -> bool {
        self.repeated.is_some_and(|repeated| {
            known.calls()[repeated.call].assembled.deltas() != repeated.deltas
                || assembled(known).any(|call| call.legacy)
        })
    }
}

fn whole_piece(at: usize, begins: bool, call: &ToolCall) -> CallPiece {
    CallPiece {
        call: at as u16,
        begins,
        carries: true,
        is_ambiguous: call.ambiguous,
        is_whole: true,
        ..CallPiece::default()
    }
}

/// The call of a whole reply that a `function_call` repeats. llama-cpp-python writes both forms, and puts a colon
/// after the name of one. `beside` are the calls of the same message.
fn repeated(call: &ToolCall, beside: &[(usize, &ToolCall)], text: &[u8]) -> Option<usize> {
    let is_same = |(_, other): &&(usize, &ToolCall)| !other.legacy && says_the_same(call, other, text);
    let found = beside.iter().find(is_same).filter(|_| call.legacy && !call.ambiguous);
    found.map(|(at, _)| *at)
}

/// Whether two forms of a call, or of a piece of one, are equal.
fn says_the_same(call: &ToolCall, other: &ToolCall, text: &[u8]) -> bool {
    let name = |call: &ToolCall| call.name.map(|name| decode(name, text)).unwrap_or_default();
    let (one, two) = (name(call), name(other));
    let is_same_name =
        one == two || one.strip_suffix(':') == Some(&*two) || two.strip_suffix(':') == Some(&*one);
    is_same_name && call.arguments.text(text) == other.arguments.text(text)
}

/// Whether a reply with this finish reason was cut.
fn is_cut(reason: &str) -> bool {
    let letters = reason.chars().filter(char::is_ascii_alphabetic);
    let reason: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    !FINISHED_REASONS.contains(&&*reason)
}

/// Whether a JSON array holds anything.
fn has_items(array: &[u8]) -> bool {
    array.get(1..array.len() - 1).is_some_and(|inside| !inside.trim_ascii().is_empty())
}

/// Whether a member of a delta goes back to the model beside its calls.
fn is_carried(key: &[u8]) -> bool {
    key == b"extra_content" || key.starts_with(b"reasoning")
}

/// Joins a member over deltas: strings and arrays are appended, anything else is replaced.
fn carry(carried: &mut Vec<(Vec<u8>, Vec<u8>)>, key: &[u8], value: &[u8]) {
    if value == b"null" {
        return;
    }
    let Some((_, so_far)) = carried.iter_mut().find(|(seen, _)| seen == key) else {
        if carried.len() < MOST_CARRIED {
            carried.push((key.to_vec(), value.to_vec()));
        }
        return;
    };
    let kinds = (so_far.first().copied(), value.first().copied());
    let joint: &[u8] = match kinds {
        (Some(b'"'), Some(b'"')) => b"",
        (Some(b'['), Some(b'[')) if has_items(so_far) && has_items(value) => b",",
        (Some(b'['), Some(b'[')) => b"",
        _ => {
            *so_far = value.to_vec();
            return;
        }
    };
    so_far.pop();
    so_far.extend_from_slice(joint);
    so_far.extend_from_slice(&value[1..]);
}
