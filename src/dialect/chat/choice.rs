//! The state of one choice of a reply: its calls with the decision on each, its text, and what goes back to the model
//! if calls are blocked. Writes no bytes to the client.

mod deciding;

pub use self::deciding::AddedCall;

use self::deciding::{Counts, Mark, Repeats};
use crate::dialect::chat::approved::written;
use crate::dialect::chat::assemble::Assembler;
use crate::dialect::chat::completion::{Choice, Delta};
use crate::dialect::chat::hidden_exchange::{Blocked, write_hidden_exchange};
use crate::dialect::reply::ShownChoice;
use bytes::Bytes;
use model::assembled::Assembled;
use model::call::ToolCall;
use model::message::Content;
use model::plan::approval::{Question, Unasked};
use model::plan::decision::{Decision, Next};
use wire::json::{escape_into, unescape};

/// The approximate memory of a call or a choice besides its text.
const CALL_BYTES: usize = 256;
/// Most members that are kept besides text and calls. Providers send two or three.
const MOST_CARRIED: usize = 16;

/// What a reply contains besides its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    /// The text, escapes as written.
    text: Vec<u8>,
    /// Its message has a `content`, whatever that is.
    has_content: bool,
    /// Member names and JSON values, as written, of members such as `reasoning_content`.
    carried: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A choice as far as it has come.
#[derive(Debug, Default)]
pub struct ChoiceState {
    /// Its index as the client sees it.
    pub index: u32,
    /// The client has the role.
    pub role_sent: bool,
    streamed: bool,
    /// The text of earlier replies of this client request, escapes as written.
    earlier_text: Vec<u8>,
    /// toolrein's line before the answer, escapes as written.
    preface: Vec<u8>,
    /// So much of the present reply's text, escapes as written, was given to the client.
    given_text: usize,
    said: Said,
    assembler: Assembler,
    /// The decision on each call of the assembler, in its order.
    decisions: Vec<Option<Decision>>,
    /// How it was decided, in the same order.
    marks: Vec<Mark>,
    counts: Counts,
    repeats: Option<Repeats>,
    /// The calls that toolrein writes, instead of passing them on: those that a person has approved, as they were
    /// shown, and those in which two parsers see different calls, as they were judged.
    written: Vec<usize>,
    /// This is not the first reply.
    continued: bool,
    /// The client was shown text of this reply.
    text_shown: bool,
    /// The client was shown a finish reason.
    pub finish_shown: bool,
    /// The upstream has sent a finish reason for this reply.
    pub finish_came: bool,
    /// A finish reason came and was held back, since every call was blocked until then.
    finish_held: bool,
    /// toolrein has put a preface before the answer.
    prefaced: bool,
    /// It has something that is neither text nor a call: a refusal, or audio.
    spoke_otherwise: bool,
    /// The index of the first call that is not decided on.
    undecided: usize,
    /// The reply ended before the model had ended it.
    cut: bool,
    /// The question for a person about its calls, or why no person can be asked.
    question: Option<Result<Question, Unasked>>,
    /// The question is in its text.
    asked: bool,
}

impl ChoiceState {
    /// An empty choice.
    pub fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }

    /// As [`Self::new`], for a stream, in which calls are distinguished by their indexes.
    pub fn streamed(index: u32) -> Self {
        Self { index, streamed: true, ..Self::default() }
    }

    /// Whether it comes as a stream.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// What follows is in a new event.
    pub fn next_event(&mut self) {
        self.assembler.next_event();
    }

    /// Adds what a delta contains besides calls.
    pub fn add_text(&mut self, delta: &Delta, text: &[u8]) {
        self.said.has_content |= delta.content != Content::Absent;
        // Nothing of the model's follows a question about its calls.
        if !self.asks_approval() {
            for piece in delta.content.texts() {
                self.said.text.extend_from_slice(piece.raw(text));
            }
        }
        for member in &delta.members {
            match member.key.raw(text) {
                key @ (b"extra_content" | [b'r', b'e', b'a', b's', b'o', b'n', b'i', b'n', b'g', ..]) => {
                    carry(&mut self.said.carried, key, member.value.of(text));
                }
                b"refusal" | b"audio" => {
                    self.spoke_otherwise |= !matches!(member.value.of(text), b"null" | b"\"\"");
                }
                _ => {}
            }
        }
    }

    /// Whether `call`, or a piece of one, is a placeholder and no call.
    pub fn is_placeholder(&self, call: &ToolCall, is_whole: bool, text: &[u8]) -> bool {
        if is_whole {
            return call.is_placeholder(text);
        }
        // A `function_call` that repeats a call of the other form repeats its empty pieces too.
        self.repeats.is_none() && self.assembler.is_placeholder(call, text)
    }

    /// Whether the decision on the call `at` is final.
    pub fn is_settled(&self, at: usize) -> bool {
        self.decision(at).is_some_and(|decision| !matches!(decision, Decision::Hold { .. }))
    }

    /// The decision on the call `at`.
    pub fn decision(&self, at: usize) -> Option<&Decision> {
        self.decisions.get(at).and_then(Option::as_ref)
    }

    /// The index that the client sees for the released call `at`, where an earlier one is not released or has its index.
    pub fn shifted_index(&self, at: usize) -> Option<u64> {
        self.marks.get(at).and_then(|mark| mark.shifted)
    }

    /// Takes the decision on the call that waited under the number `id`.
    pub fn settle(&mut self, id: u32, decision: &Decision) {
        let waits =
            |known: &Option<Decision>| matches!(known, Some(Decision::Hold { id: own, .. }) if *own == id);
        if let Some(at) = self.decisions.iter().position(waits) {
            self.written.extend(decision.is_released().then_some(at));
            self.set(at, decision.clone());
        }
    }

    /// Whether the call `at` goes out as [`Self::as_judged`], not as it came.
    pub fn is_written(&self, at: usize) -> bool {
        self.written.contains(&at)
    }

    /// The call `at` as it was judged, or shown to a person, under its own id; `index` is the upstream's, if it gave
    /// one.
    pub fn as_judged(&self, at: usize, index: Option<u64>) -> String {
        let mut call = self.assembler.calls()[at].clone();
        if let Some(signature) = self.signature_for(at)
            && call.extra.iter().all(|(key, _)| key != b"extra_content")
        {
            call.extra.push((b"extra_content".to_vec(), signature.to_vec()));
        }
        let shifted = self.shifted_index(at).filter(|_| self.streamed || index.is_some());
        written(&call, &call.id(), shifted.or(index))
    }

    /// Whether it ends in a question to a person.
    pub fn is_asking(&self) -> bool {
        matches!(self.question, Some(Ok(_)))
    }

    /// Whether it ends in a question about its calls, which is shown alone: text of the model that the client has not got
    /// is left out.
    pub fn asks_approval(&self) -> bool {
        matches!(&self.question, Some(Ok(question)) if question.is_approval())
    }

    /// Adds the question to the text, if there is one that was not added yet, and returns it as the client is to get
    /// it. The last `after` bytes of the text, escapes as written, follow it, unless it is about calls.
    pub fn ask(&mut self, after: usize) -> Option<String> {
        let question = self.question.as_ref()?.as_ref().ok().filter(|_| !self.asked)?;
        let after = if question.is_approval() {
            self.said.text.truncate(self.given_text);
            if !self.streamed {
                self.earlier_text.clone_from(&self.preface);
            }
            0
        } else {
            after
        };
        let at = self.said.text.len().saturating_sub(after);
        let apart = |nothing: bool| if nothing { "" } else { "\n\n" };
        let inner = format!("{}{}{}", apart(at == 0), question.text, apart(after == 0));
        // The text of an earlier reply is separated from this one where the two are joined, but the client has it
        // already.
        let first = at == 0 && !self.earlier_text.is_empty();
        let shown = format!("{}{inner}", apart(!first));
        let mut escaped = Vec::new();
        escape_into(&inner, &mut escaped);
        self.said.text.splice(at..at, escaped);
        (self.asked, self.text_shown) = (true, true);
        Some(shown)
    }

    /// Whether a call was blocked, or answered in the client's place.
    pub fn has_blocked(&self) -> bool {
        self.counts.hidden > 0
    }

    /// Whether any call was not released as it came.
    pub fn is_edited(&self) -> bool {
        self.counts.edited > 0 || !self.written.is_empty()
    }

    /// Whether a call goes out under another index than the upstream's.
    pub fn is_renumbered(&self) -> bool {
        self.counts.shifted > 0
    }

    /// Whether the client sees any call of it.
    pub fn releases(&self) -> bool {
        self.counts.released > 0
    }

    /// Whether it ended before the model had ended it.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The arguments that the client sees instead of the call `at`'s own, escapes as in JSON.
    pub fn rewritten(&self, at: usize) -> Option<&[u8]> {
        let rewritten = matches!(self.decision(at), Some(Decision::Rewrite { .. }));
        rewritten.then(|| self.assembler.calls()[at].arguments.as_slice())
    }

    /// Whether the client gets nothing to read and nothing to run from this choice.
    pub fn is_silent(&self) -> bool {
        let blank = |text: &[u8]| unescape(text).trim().is_empty();
        !self.releases() && !self.spoke_otherwise && blank(&self.earlier_text) && blank(&self.said.text)
    }

    /// Whether an earlier reply gave text and the client was shown none of this one yet.
    pub fn begins_second_text(&self) -> bool {
        !self.earlier_text.is_empty() && !self.text_shown
    }

    /// Notes that the client was shown an event of this choice.
    pub fn shown(&mut self, event: &Choice) {
        self.role_sent |= event.delta.role.is_some();
        if !self.asks_approval() {
            self.text_shown |= event.delta.content.has_text();
            self.given_text += event.delta.content.text_bytes();
        }
        let is_held = self.is_wholly_blocked();
        self.finish_shown |= event.finish.is_some() && !is_held;
        self.finish_held |= event.finish.is_some() && is_held;
    }

    /// Puts `text` before the model's text; true the first time.
    pub fn preface(&mut self, text: &str) -> bool {
        if !self.prefaced {
            escape_into(text, &mut self.earlier_text);
            escape_into(text, &mut self.preface);
        }
        !std::mem::replace(&mut self.prefaced, true)
    }

    /// Adds `text` in the model's place.
    pub fn speak(&mut self, text: &str) {
        escape_into(text, &mut self.said.text);
        self.text_shown = true;
    }

    /// Bytes of all text that the client sees of it, escapes as written, without the separator between two replies.
    pub fn text_bytes(&self) -> usize {
        self.earlier_text.len() + self.said.text.len()
    }

    /// Goes on with another reply of the upstream to the same client request.
    pub fn begin_next_reply(&mut self) {
        self.earlier_text = self.joined_text();
        self.said = Said::default();
        self.assembler = Assembler::default();
        self.decisions.clear();
        self.marks.clear();
        self.written.clear();
        self.counts = Counts::default();
        (self.undecided, self.cut, self.repeats) = (0, false, None);
        self.question = None;
        self.given_text = 0;
        self.text_shown = false;
        self.finish_held = false;
        self.finish_came = false;
        self.continued = true;
    }

    /// Whether the client still waits for a finish reason: the upstream's last reply did not bring one, or it was
    /// held back before a call came that is released.
    pub fn lacks_finish(&self) -> bool {
        !self.finish_shown && (self.continued || self.finish_held || self.is_asking())
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let calls = self.assembler.size() + self.decisions.len() * CALL_BYTES;
        let carried: usize = self.said.carried.iter().map(|(key, value)| key.len() + value.len()).sum();
        CALL_BYTES + calls + carried + self.said.text.len() + self.earlier_text.len()
    }

    /// The signature in the first call (Gemini signs the first call of each reply), if that is blocked and `at` is the
    /// first one released: the upstream expects it there again.
    pub fn signature_for(&self, at: usize) -> Option<&[u8]> {
        let is_first = at > 0 && !self.decisions[..at].iter().any(is_released);
        let first = self.assembler.calls().first().filter(|_| is_first)?;
        first.extra.iter().find(|(key, _)| key == b"extra_content").map(|(_, value)| value.as_slice())
    }

    fn joined_text(&self) -> Vec<u8> {
        let blank_line: &[u8] =
            if self.earlier_text.is_empty() || self.said.text.is_empty() { b"" } else { br"\n\n" };
        [self.earlier_text.as_slice(), blank_line, self.said.text.as_slice()].concat()
    }
}

impl ShownChoice for ChoiceState {
    fn index(&self) -> u32 {
        self.index
    }

    fn is_finished(&self) -> bool {
        self.finish_shown
    }

    fn is_continued(&self) -> bool {
        self.continued
    }

    fn released(&self) -> Vec<&Assembled> {
        let decided = self.assembler.calls().iter().zip(&self.decisions);
        let released = decided.filter(|(call, decision)| is_released(decision) && !call.is_placeholder());
        released.map(|(call, _)| call).collect()
    }

    fn is_waiting(&self) -> bool {
        self.counts.waiting > 0
    }

    fn calls(&self) -> usize {
        self.decisions.len()
    }

    fn text(&self) -> String {
        unescape(&self.joined_text())
    }

    fn asked(&self) -> Option<(&Question, &[Assembled])> {
        let question = self.question.as_ref()?.as_ref().ok()?;
        let is_put = self.asked && question.is_approval();
        is_put.then(|| (question, &self.assembler.calls()[..question.calls]))
    }

    fn is_wholly_blocked(&self) -> bool {
        let is_hidden = self.has_blocked() && !self.is_asking() && !self.is_waiting();
        is_hidden && self.counts.released == 0
    }

    fn hidden_calls(&self) -> Vec<(&Assembled, &Decision)> {
        let decided = self.assembler.calls().iter().zip(&self.decisions);
        let decided = decided.filter_map(|(call, decision)| Some((call, decision.as_ref()?)));
        decided.filter(|(_, decision)| decision.is_hidden()).collect()
    }

    fn hidden_exchange(&self) -> Option<Bytes> {
        let calls = self.assembler.calls().iter().zip(&self.decisions).zip(&self.marks);
        let blocked: Vec<Blocked> = calls
            .filter_map(|((call, decision), mark)| {
                let result = decision.as_ref()?.hidden_result(self.question.as_ref())?;
                Some(Blocked { call: mark.accepted.of(call), result })
            })
            .collect();
        if blocked.is_empty() {
            return None;
        }
        Some(write_hidden_exchange(self.said.has_content, &self.said.carried, &blocked))
    }

    fn next(&self) -> Next {
        Next::of(&self.decisions)
    }
}

fn is_released(decision: &Option<Decision>) -> bool {
    decision.as_ref().is_some_and(Decision::is_released)
}

/// Whether a JSON array holds anything.
fn has_items(array: &[u8]) -> bool {
    array.get(1..array.len() - 1).is_some_and(|inside| !inside.trim_ascii().is_empty())
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
