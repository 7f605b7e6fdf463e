//! One choice of a reply while it comes: its calls with what was decided on each, its text, and what goes back
//! to the model if calls are withheld. Keeps state; writes no bytes to the client.

use super::confirm::{Question, Unaskable, put_off, written};
use super::judging::{Decision, Judging, Known};
use super::rounds::{Withheld, envelope, write_round};
use crate::wire::assemble::{Added, Assembled, Assembler};
use crate::wire::json::{decode, escape_into, unescape};
use crate::wire::message::ToolCall;
use crate::wire::reply::{Choice, Delta};
use bytes::Bytes;

/// What a call or a choice takes beside its text, about.
const CALL_BYTES: usize = 256;
/// Most members that are kept beside text and calls. Providers send two or three.
const MOST_CARRIED: usize = 16;
/// The reasons for which a reply ends before the model has ended it, as OpenAI, Mistral, DeepSeek, Anthropic, Gemini and
/// gateways before them write them.
const CUT_REASONS: [&str; 10] = [
    "length",
    "content_filter",
    "max_tokens",
    "model_length",
    "insufficient_system_resource",
    "safety",
    "recitation",
    "refusal",
    "error",
    "other",
];

/// What a reply says beside its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    /// The text, escapes as written.
    text: Vec<u8>,
    /// Member names and JSON values, as written, of members such as `reasoning_content`.
    carried: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A choice as it has come so far.
#[derive(Debug, Default)]
pub struct ChoiceState {
    /// Its index as the client sees it.
    pub index: u32,
    /// The client was told the role.
    pub role_sent: bool,
    streamed: bool,
    /// The text of earlier replies of this client request, escapes as written.
    earlier_text: Vec<u8>,
    said: Said,
    assembler: Assembler,
    /// What was decided on each call of the assembler, in its order.
    decisions: Vec<Option<Decision>>,
    /// How it was decided, in the same order.
    marks: Vec<Mark>,
    counts: Counts,
    /// The calls that waited for a person's word and were approved.
    approved: Vec<usize>,
    /// This is not the first reply.
    continued: bool,
    /// The client was shown text of this reply.
    text_shown: bool,
    /// The client was shown a finish reason.
    pub finish_shown: bool,
    /// The upstream has said of this reply that it is finished.
    pub finish_came: bool,
    /// A finish reason came and was held back, since every call was withheld until then.
    finish_held: bool,
    /// Words of ours stand before the answer.
    prefaced: bool,
    /// It said something that is neither text nor a call: a refusal, or audio.
    spoke_otherwise: bool,
    /// Every call before it is decided on.
    undecided: usize,
    /// The reply ended before the model had ended it.
    cut: bool,
    /// What a person is asked about its calls; nobody can be asked about them.
    question: Option<Result<Question, Unaskable>>,
    /// The question stands in its text.
    asked: bool,
}

/// How a call was decided on.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// By its arguments too.
    with_arguments: bool,
    /// Nobody objects to the name that it has.
    name_passes: bool,
    /// The index that the client sees, where calls before it are not released.
    shifted: Option<u64>,
}

/// The calls by what was decided on them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    released: usize,
    hidden: usize,
    waiting: usize,
    /// Not released as they came.
    edited: usize,
}

/// What became of a delta of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedCall {
    /// The call that it belongs to.
    pub call: usize,
    /// It is the call's first delta with arguments.
    pub carries: bool,
    /// It is the call's first delta.
    pub begins: bool,
    /// With it, the client may read a call that was not judged.
    pub escapes: bool,
}

impl AddedCall {
    /// A whole call that is given beside those which count; `begins`: it is none of those.
    pub fn beside((call, begins): (usize, bool)) -> Self {
        Self { call, carries: true, begins, escapes: false }
    }
}

impl ChoiceState {
    /// A choice of which nothing has come.
    pub fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }

    /// The same of a stream, whose calls are told apart by their indexes.
    pub fn streamed(index: u32) -> Self {
        Self { index, streamed: true, ..Self::default() }
    }

    /// Whether it comes as a stream.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Says that what follows stands in a new event.
    pub fn next_event(&mut self) {
        self.assembler.next_event();
    }

    /// Adds a delta of a call. Calls are decided on in their order: one that is called off by its name at once, one that
    /// its name lets through as soon as the name is complete, any other when it is whole and another one follows.
    pub fn add_call(
        &mut self,
        delta: &ToolCall,
        text: &[u8],
        judging: &mut Judging,
        now_ms: u64,
    ) -> AddedCall {
        let added = self.assembler.add(delta, text);
        let at = added.call;
        let carries = self.assembler.carries(at, delta);
        if added.begins {
            self.begin_call();
        }
        if self.decisions[at].is_none() && self.is_asking() {
            // It came behind the finish: the person was asked about the others alone.
            self.set(at, Decision::Drop);
        }
        let escapes = if self.decisions[at].is_some() {
            self.escapes(&added, judging, now_ms)
        } else {
            self.marks[at].name_passes &= !added.names;
            self.block_by_name(at, false, judging, now_ms);
            false
        };
        self.advance(judging, now_ms);
        AddedCall { call: at, carries, begins: added.begins, escapes: escapes || added.ambiguous }
    }

    /// Adds a call of a whole reply.
    pub fn add_whole_call(&mut self, call: &ToolCall, text: &[u8]) -> usize {
        let at = self.assembler.begin(call, text).call;
        self.begin_call();
        at
    }

    /// Adds a whole call from a place beside that which counts: mostly it is one that is known from there. Which call it
    /// is, and whether it is a new one.
    pub fn add_call_beside(&mut self, call: &ToolCall, text: &[u8]) -> (usize, bool) {
        let (name, arguments) = (call.name.map(|name| decode(name, text)), call.arguments.text(text));
        let is_same = |known: &Assembled| {
            name.as_deref() == Some(known.name().as_str()) && known.arguments() == arguments
        };
        let known = self.assembler.calls().iter().position(is_same);
        known.map_or_else(|| (self.add_whole_call(call, text), true), |known| (known, false))
    }

    fn begin_call(&mut self) {
        self.decisions.push(None);
        self.marks.push(Mark::default());
    }

    /// Whether a client may run another call than was judged, now that this was added to one that is decided on.
    fn escapes(&self, added: &Added, judging: &mut Judging, now_ms: u64) -> bool {
        let at = added.call;
        if judging.observes() || !self.decision(at).is_some_and(Decision::is_released) {
            return false;
        }
        let goes_on = added.argues && self.marks[at].with_arguments && self.rewritten(at).is_none();
        goes_on
            || (added.names && judging.objects_to_new_name(self.index, &self.assembler.calls()[at], now_ms))
    }

    /// Blocks the call `at` where its name is enough for that, whatever calls before it are still to be decided on.
    fn block_by_name(&mut self, at: usize, is_followed: bool, judging: &mut Judging, now_ms: u64) {
        let call = &self.assembler.calls()[at];
        let is_named = judging.is_complete_name(call) || is_followed || !call.is_blank();
        if self.marks[at].name_passes || call.name.is_empty() || !is_named {
            return;
        }
        match judging.block_by_name(self.index, call, now_ms) {
            Some(decision) => self.set(at, decision),
            None => self.marks[at].name_passes = true,
        }
    }

    /// Decides on calls in their order, as far as that can be done now.
    fn advance(&mut self, judging: &mut Judging, now_ms: u64) {
        while self.undecided < self.decisions.len() {
            let at = self.undecided;
            let is_followed = at + 1 < self.decisions.len();
            if self.decisions[at].is_none() && is_followed {
                self.block_by_name(at, true, judging, now_ms);
            }
            if self.decisions[at].is_none() {
                let call = &self.assembler.calls()[at];
                if is_followed && call.is_whole() {
                    self.decide(at, Known::Whole, judging, now_ms);
                } else if self.marks[at].name_passes && judging.needs_name_alone(self.index, call) {
                    self.decide(at, Known::Name, judging, now_ms);
                } else {
                    return;
                }
            }
            self.undecided += 1;
        }
    }

    /// Adds what a delta says beside calls.
    pub fn add_text(&mut self, delta: &Delta, text: &[u8]) {
        for piece in delta.content.texts() {
            self.said.text.extend_from_slice(piece.raw(text));
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

    /// Learns why the reply ends.
    pub fn ends_by(&mut self, reason: &str) {
        self.cut |= CUT_REASONS.iter().any(|cut| cut.eq_ignore_ascii_case(reason));
    }

    /// Nothing more of this reply comes: decides on every call that is left.
    pub fn finish_calls(&mut self, judging: &mut Judging, now_ms: u64) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() {
                let known = if self.is_cut_within(at) { Known::Cut } else { Known::Whole };
                self.decide(at, known, judging, now_ms);
            }
        }
        self.undecided = self.decisions.len();
        if let Some(last) = self.undecided.checked_sub(1)
            && matches!(self.decisions[last], Some(Decision::Ask { .. }))
            && self.is_cut_within(last)
        {
            // Nobody is asked about half a call.
            self.set(last, Decision::Drop);
        }
        let needs_yes = |decision: &Option<Decision>| matches!(decision, Some(Decision::Ask { .. }));
        if self.question.is_none() && !self.decisions.is_empty() && self.decisions.iter().all(needs_yes) {
            self.question = Some(judging.question(self.assembler.calls()));
        }
    }

    /// Blocks the calls that are not decided on as far as their names are enough for that.
    pub fn block_rest_by_name(&mut self, judging: &mut Judging, now_ms: u64) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() {
                self.block_by_name(at, true, judging, now_ms);
            }
        }
    }

    /// Whether the reply was cut in the middle of the call `at`.
    fn is_cut_within(&self, at: usize) -> bool {
        let call = &self.assembler.calls()[at];
        self.cut && at + 1 == self.decisions.len() && (call.custom || !call.is_whole())
    }

    /// Lets every call through that is not decided on.
    pub fn release_rest(&mut self, judging: &mut Judging) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() {
                let decision = judging.release_unjudged(self.index, &self.assembler.calls()[at]);
                self.set(at, decision);
            }
        }
    }

    /// Whether nothing more is to be decided on the call `at`.
    pub fn is_settled(&self, at: usize) -> bool {
        self.decision(at).is_some_and(|decision| !matches!(decision, Decision::Hold { .. }))
    }

    /// What was decided on the call `at`.
    pub fn decision(&self, at: usize) -> Option<&Decision> {
        self.decisions.get(at).and_then(Option::as_ref)
    }

    /// The index that the client sees for the released call `at`, where an earlier one is not released.
    pub fn shifted_index(&self, at: usize) -> Option<u64> {
        self.marks.get(at).and_then(|mark| mark.shifted)
    }

    /// The calls that the client sees, in order.
    pub fn released(&self) -> impl Iterator<Item = &Assembled> {
        let decided = self.assembler.calls().iter().zip(&self.decisions);
        decided.filter(|(_, decision)| is_released(decision)).map(|(call, _)| call)
    }

    /// Whether calls were withheld and none was released, so that the model is to be asked again.
    pub fn is_wholly_withheld(&self) -> bool {
        let is_hidden = self.has_withheld() && !self.is_asking() && !self.is_waiting();
        is_hidden && self.counts.released == 0
    }

    /// Whether a call waits for a person's word.
    pub fn is_waiting(&self) -> bool {
        self.counts.waiting > 0
    }

    /// Learns what became of the call that waited under the number `id`.
    pub fn settle(&mut self, id: u32, decision: &Decision) {
        let waits =
            |known: &Option<Decision>| matches!(known, Some(Decision::Hold { id: own, .. }) if *own == id);
        if let Some((at, known)) = self.decisions.iter_mut().enumerate().find(|(_, known)| waits(known)) {
            *known = Some(decision.clone());
            self.approved.extend(decision.is_released().then_some(at));
            self.recount();
        }
    }

    /// Whether a person has approved the call `at` while it waited: it goes out as [`Self::as_shown`].
    pub fn is_approved(&self, at: usize) -> bool {
        self.approved.contains(&at)
    }

    /// The call `at` as it was shown to a person, under its own id; `index` is what the upstream gave it, if it gave any.
    pub fn as_shown(&self, at: usize, index: Option<u64>) -> String {
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

    /// The question as its text holds it, with the calls that it is about.
    pub fn asked(&self) -> Option<(&Question, &[Assembled])> {
        let question = self.question.as_ref()?.as_ref().ok().filter(|_| self.asked)?;
        Some((question, &self.assembler.calls()[..question.calls]))
    }

    /// Says the question, if there is one that was not said, and tells it as the client is to read it. The last
    /// `behind` bytes of the text, escapes as written, follow it.
    pub fn ask(&mut self, behind: usize) -> Option<String> {
        let question = self.question.as_ref()?.as_ref().ok().filter(|_| !self.asked)?;
        let at = self.said.text.len().saturating_sub(behind);
        let apart = |nothing: bool| if nothing { "" } else { "\n\n" };
        let inner = format!("{}{}{}", apart(at == 0), question.text, apart(behind == 0));
        // A text of an earlier reply is set apart where the two are joined, but the client has it already.
        let first = at == 0 && !self.earlier_text.is_empty();
        let told = format!("{}{inner}", apart(!first));
        let mut escaped = Vec::new();
        escape_into(&inner, &mut escaped);
        self.said.text.splice(at..at, escaped);
        (self.asked, self.text_shown) = (true, true);
        Some(told)
    }

    /// Whether all calls were answered by tools of ours, which keep bounds of their own.
    fn is_served(&self) -> bool {
        let is_own =
            |decision: &Option<Decision>| matches!(decision, Some(Decision::Answer { own: true, .. }));
        !self.decisions.is_empty() && self.decisions.iter().all(is_own)
    }

    /// Whether a call was withheld, or answered in the client's place.
    pub fn has_withheld(&self) -> bool {
        self.counts.hidden > 0
    }

    /// Whether any call was not released as it came.
    pub fn is_edited(&self) -> bool {
        self.counts.edited > 0 || !self.approved.is_empty()
    }

    /// Whether the client sees any call of it.
    pub fn releases(&self) -> bool {
        self.counts.released > 0
    }

    /// Whether it ended before the model had ended it.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The arguments that the client sees in the place of the call `at`'s own, escapes as in JSON.
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

    /// Adds text alone, escapes as written.
    pub fn add_plain_text(&mut self, text: &[u8]) {
        self.said.text.extend_from_slice(text);
    }

    /// Learns that the client was shown a role or text of this choice.
    pub fn text_shown(&mut self, has_role: bool, has_text: bool) {
        self.role_sent |= has_role;
        self.text_shown |= has_text;
    }

    /// Learns that the client was shown an event of this choice.
    pub fn shown(&mut self, event: &Choice) {
        self.text_shown(event.delta.role.is_some(), event.delta.content.has_text());
        let is_held = self.is_wholly_withheld();
        self.finish_shown |= event.finish.is_some() && !is_held;
        self.finish_held |= event.finish.is_some() && is_held;
    }

    /// Puts `text` before whatever the model says; true the first time.
    pub fn preface(&mut self, text: &str) -> bool {
        if !self.prefaced {
            escape_into(text, &mut self.earlier_text);
        }
        !std::mem::replace(&mut self.prefaced, true)
    }

    /// Says `text` in the model's place.
    pub fn speak(&mut self, text: &str) {
        escape_into(text, &mut self.said.text);
        self.text_shown = true;
    }

    /// All text that the client sees of this choice.
    pub fn text(&self) -> String {
        unescape(&self.joined_text())
    }

    /// The withheld calls with their synthetic results as the model shall read them; `None` if there are
    /// none. The text beside them is in what the client was shown, which follows the round.
    pub fn round(&self) -> Option<Bytes> {
        let calls = self.assembler.calls().iter().zip(&self.decisions);
        let withheld: Vec<Withheld> = calls
            .filter_map(|(call, decision)| {
                let result = match decision.as_ref()? {
                    Decision::Withhold { policy, reason } => envelope(policy, reason),
                    Decision::Ask { policy, reason, .. } => {
                        envelope(policy, &put_off(reason, self.question.as_ref()))
                    }
                    Decision::Answer { content, .. } => content.clone(),
                    _ => return None,
                };
                Some(Withheld { call: call.clone(), result })
            })
            .collect();
        if withheld.is_empty() {
            return None;
        }
        Some(write_round(&self.said.carried, &withheld))
    }

    /// Goes on with another reply of the upstream to the same client request.
    pub fn begin_next_reply(&mut self) {
        self.earlier_text = self.joined_text();
        self.said = Said::default();
        self.assembler = Assembler::default();
        self.decisions.clear();
        self.marks.clear();
        self.approved.clear();
        self.counts = Counts::default();
        (self.undecided, self.cut) = (0, false);
        self.question = None;
        self.text_shown = false;
        self.finish_held = false;
        self.finish_came = false;
        self.continued = true;
    }

    /// Whether the client waits for a finish reason that the upstream's last reply did not bring, or that was held
    /// back before a call came that is released.
    pub fn lacks_finish(&self) -> bool {
        !self.finish_shown && (self.continued || self.finish_held || self.is_asking())
    }

    /// Whether the upstream was asked again for it.
    pub fn is_continued(&self) -> bool {
        self.continued
    }

    /// Bytes kept.
    pub fn size(&self) -> usize {
        let calls = self.assembler.size() + self.decisions.len() * CALL_BYTES;
        let carried: usize = self.said.carried.iter().map(|(key, value)| key.len() + value.len()).sum();
        CALL_BYTES + calls + carried + self.said.text.len() + self.earlier_text.len()
    }

    /// How many calls it has made.
    pub fn calls(&self) -> usize {
        self.decisions.len()
    }

    /// What the first call says of its reply (Gemini signs the first call of each), where it is withheld and `at` is
    /// the first one released: the upstream wants to find it there again.
    pub fn signature_for(&self, at: usize) -> Option<&[u8]> {
        let is_first = at > 0 && !self.decisions[..at].iter().any(is_released);
        let first = self.assembler.calls().first().filter(|_| is_first)?;
        first.extra.iter().find(|(key, _)| key == b"extra_content").map(|(_, value)| value.as_slice())
    }

    /// The text of earlier replies, escapes as written.
    pub fn earlier_text(&self) -> &[u8] {
        &self.earlier_text
    }

    fn decide(&mut self, at: usize, known: Known, judging: &mut Judging, now_ms: u64) {
        self.assembler.forget_unseen(at, |earlier| is_released(&self.decisions[earlier]));
        let decision = judging.decide(self.index, &self.assembler.calls()[at], known, now_ms);
        self.marks[at].with_arguments = known != Known::Name;
        self.set(at, decision);
    }

    /// Notes what was decided on the call `at`.
    fn set(&mut self, at: usize, decision: Decision) {
        if let Decision::Rewrite { arguments }
        | Decision::Ask { arguments: Some(arguments), .. }
        | Decision::Hold { arguments: Some(arguments), .. } = &decision
        {
            self.assembler.rewrite(at, arguments);
        }
        self.decisions[at] = Some(decision);
        self.recount();
    }

    /// Counts anew what was decided. Behind calls that the client does not see, each gets the index after the one
    /// before it: dense where the upstream's are dense, and never one that is taken.
    fn recount(&mut self) {
        self.counts = Counts::default();
        let (mut next, mut is_shifted) = (0, false);
        let calls = self.assembler.calls().iter().zip(&self.decisions).zip(&mut self.marks);
        for ((call, decision), mark) in calls {
            mark.shifted = None;
            match decision {
                None => continue,
                Some(decision) => {
                    self.counts.hidden += usize::from(decision.is_hidden());
                    self.counts.waiting += usize::from(matches!(decision, Decision::Hold { .. }));
                    self.counts.edited += usize::from(*decision != Decision::Release);
                    if !decision.is_released() {
                        is_shifted = true;
                        continue;
                    }
                }
            }
            self.counts.released += 1;
            if is_shifted {
                mark.shifted = Some(next);
                next += 1;
            } else {
                next = next.max(call.index().unwrap_or(next) + 1);
            }
        }
    }

    fn joined_text(&self) -> Vec<u8> {
        let blank_line: &[u8] =
            if self.earlier_text.is_empty() || self.said.text.is_empty() { b"" } else { br"\n\n" };
        [self.earlier_text.as_slice(), blank_line, self.said.text.as_slice()].concat()
    }
}

/// Whether all calls of the choice with this index were answered by tools of ours.
pub fn is_served(choices: &[ChoiceState], index: u32) -> bool {
    choices.iter().any(|choice| choice.index == index && choice.is_served())
}

fn is_released(decision: &Option<Decision>) -> bool {
    decision.as_ref().is_some_and(Decision::is_released)
}

/// Whether a JSON array holds anything.
fn has_items(array: &[u8]) -> bool {
    array.get(1..array.len() - 1).is_some_and(|inside| !inside.trim_ascii().is_empty())
}

/// Joins a member over deltas: strings and arrays go on, anything else is the newest.
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
