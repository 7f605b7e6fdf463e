//! The reply pipeline of one client request: it reads the replies, has each call judged, and gives the client one
//! coherent reply. A whole reply is a stream of one chunk. Untouched parts go out as they came, byte for byte. Sends no
//! request by itself.

mod bounds;
mod edit;
mod ended;
mod judge;
mod markup;
mod other_form;
mod queue;
mod reader;
mod words;
mod writer;

pub use other_form::{error_data, whole_of};
pub use words::NO_ANSWER;

use self::edit::Continuation;
use self::markup::Cleaner;
use self::queue::Queue;
use self::reader::Reader;
use crate::dialect::chat::choice::ChoiceState;
use crate::dialect::error::own_error;
use crate::dialect::judge::{CallJudge, WAITS, settle_all};
use crate::dialect::reply::{Ending, Form, Limits, Options, Refusal, Reply, ShownChoice, Unjudged};
use crate::dialect::usage::Usage;
use crate::dialect::usage_sum::Usages;
use bytes::Bytes;
use model::plan::approval::ApprovalDecision;
use model::plan::decision::Decision;
use serde_json::Value;
use std::sync::Arc;
use wire::sse::{write_comment, write_event};

/// The default status of a reply.
const OK: u16 = 200;

/// Judges the replies to one client request, re-asks included.
pub struct ReplyJudge<J> {
    pub judging: J,
    pub options: Options,
    form: Form,
    limits: Limits,
    reader: Reader,
    phase: Phase,
    choices: Vec<ChoiceState>,
    /// Output that the client has not got yet.
    queue: Queue,
    /// The values of the first reply that all later ones must repeat.
    head: Option<Continuation>,
    /// The position of the choice that the present reply continues, after the first reply.
    continuing: Option<usize>,
    usage: Usages,
    /// Removes call markup from a final answer.
    markup: Option<Cleaner>,
    unjudged: Vec<Unjudged>,
    /// The client gets other bytes than the upstream's.
    is_changed: bool,
}

/// The phase of the present reply.
#[derive(Debug)]
enum Phase {
    /// Nothing relevant has come yet.
    Head,
    /// It began with the upstream's error, and the exchange decides what to do.
    Refused(Refusal),
    /// What comes is judged.
    Reading,
    /// It reported a failure: there is no re-ask, and toolrein adds nothing.
    Failed,
    /// It is no longer read, and passes through.
    Unjudged,
    /// The client gets nothing more: what follows can no longer be distinguished from what is blocked.
    BrokenOff(Unjudged),
    /// The upstream has marked its end.
    Done {
        failed: bool,
        /// The event that marked the end, if calls before it wait.
        held: Option<Bytes>,
    },
}

impl Phase {
    fn begin_reading(&mut self) {
        if matches!(self, Self::Head) {
            *self = Self::Reading;
        }
    }

    fn fail(&mut self) {
        match self {
            Self::Head | Self::Reading => *self = Self::Failed,
            Self::Done { failed, .. } => *failed = true,
            Self::Refused(_) | Self::Failed | Self::Unjudged | Self::BrokenOff(_) => {}
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self, Self::Failed | Self::Done { failed: true, .. })
    }

    fn is_stopped(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::BrokenOff(_))
    }
}

impl<J: CallJudge> ReplyJudge<J> {
    /// A judge for a reply that the client gets in this form; the first upstream reply is expected in the same form.
    pub fn new(judging: J, form: Form, limits: Limits, options: Options) -> Self {
        let reader = Reader::new(form, limits, judging.is_strict());
        let mut judge = Self {
            judging,
            options,
            form,
            limits,
            reader,
            phase: Phase::Head,
            choices: Vec::new(),
            queue: Queue::default(),
            head: None,
            continuing: None,
            usage: Usages::default(),
            markup: None,
            unjudged: Vec::new(),
            is_changed: false,
        };
        judge.begin(form, OK);
        judge
    }

    /// The choices in the client's view.
    pub fn choices(&self) -> &[ChoiceState] {
        &self.choices
    }

    /// The usage of the last reply, unchanged.
    pub fn usage(&self) -> Option<Value> {
        self.usage.last()
    }

    /// Whether anything is held back for now.
    pub fn is_holding(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl<J: CallJudge> Reply<J> for ReplyJudge<J> {
    fn judging(&self) -> &J {
        &self.judging
    }

    fn judging_mut(&mut self) -> &mut J {
        &mut self.judging
    }

    fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    fn begin(&mut self, form: Form, status: u16) {
        self.reader.begin(form, status);
        self.phase = Phase::Head;
        self.markup = self.judging.is_landing().then(|| Cleaner::new(self.judging.known_tools()));
    }

    fn turn_to(&mut self, form: Form) {
        self.form = form;
        self.reader = Reader::new(form, self.limits, self.judging.is_strict());
        self.begin(form, OK);
    }

    fn push(&mut self, bytes: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        if !matches!(self.phase, Phase::BrokenOff(_)) {
            self.reader.push(bytes);
            self.read_on(now_ms, out);
        }
    }

    fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending {
        self.read_on(now_ms, out);
        if !self.phase.is_stopped() {
            self.reader.finish();
            self.read_on(now_ms, out);
        }
        if !self.phase.is_stopped() {
            self.say_held_text(now_ms, out);
        }
        match &self.phase {
            Phase::Refused(_) => return Ending::Refused,
            Phase::BrokenOff(why) => return Ending::BrokenOff(*why),
            _ => {}
        }
        self.finish_choices(now_ms, out);
        let end = out.len();
        let ending = self.ending(out);
        if self.reader.take_open() && (out.len() > end || ending != Ending::Complete) {
            writer::end_event(out, end);
        }
        ending
    }

    fn continue_with(&mut self, choice: u32) {
        let known = self.choices.iter().position(|state| state.index == choice);
        let place = known.unwrap_or_else(|| self.add_choice(choice));
        self.choices[place].begin_next_reply();
        self.continuing = Some(place);
        self.usage.begin_next_reply();
        self.begin(self.form, OK);
    }

    fn refusal(&self) -> Option<&Refusal> {
        match &self.phase {
            Phase::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    fn let_refusal_stand(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if !matches!(self.phase, Phase::Refused(_)) {
            return;
        }
        if let Phase::Refused(Refusal { raw, .. }) = std::mem::replace(&mut self.phase, Phase::Failed) {
            // The error of a re-ask replaces a whole reply.
            self.queue.clear();
            out.push(raw);
        }
        self.read_on(now_ms, out);
    }

    fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes {
        write_event(&error_data(status, body))
    }

    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes {
        write_event(own_error(message, code, &self.options.request_id, []).as_bytes())
    }

    fn heartbeat(&mut self) -> Bytes {
        write_comment(WAITS)
    }

    fn settle(&mut self, id: u32, decision: ApprovalDecision, out: &mut Vec<Bytes>) {
        self.settle_one(id, decision);
        self.drain(out);
    }

    fn answer(&mut self, id: u32, answer: Option<Arc<str>>, out: &mut Vec<Bytes>) {
        // A question to a person comes before the rest, when all calls are decided on.
        if !matches!(self.answer_one(id, answer), Some(Decision::Ask { .. })) {
            self.drain(out);
        }
    }

    fn shown(&self) -> Vec<&dyn ShownChoice> {
        self.choices.iter().map(|choice| choice as &dyn ShownChoice).collect()
    }

    fn usages(&self) -> Vec<Usage> {
        self.usage.tokens()
    }

    fn model(&self) -> Option<String> {
        self.usage.model()
    }

    fn kept_bytes(&self) -> usize {
        let choices: usize = self.choices.iter().map(ChoiceState::size).sum();
        self.reader.bytes() + self.queue.bytes() + choices
    }

    fn is_waiting(&self) -> bool {
        self.choices.iter().any(ChoiceState::is_waiting)
    }

    fn is_hiding(&self) -> bool {
        self.is_holding() || self.choices.iter().any(ChoiceState::is_edited)
    }

    fn is_at_head(&self) -> bool {
        matches!(self.phase, Phase::Head)
    }

    fn at_boundary(&self) -> bool {
        self.reader.at_boundary()
    }

    fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    fn is_whole(&self) -> bool {
        self.has_whole_stream()
    }

    fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn unjudged(&self) -> &[Unjudged] {
        &self.unjudged
    }

    fn broken_off(&self) -> Option<Unjudged> {
        match self.phase {
            Phase::BrokenOff(why) => Some(why),
            _ => None,
        }
    }
}

impl<J: CallJudge> ReplyJudge<J> {
    fn settle_one(&mut self, id: u32, decision: ApprovalDecision) {
        if let Some(decision) = self.judging.settle(id, decision) {
            self.choices.iter_mut().for_each(|state| state.settle(id, &decision));
        }
    }

    fn answer_one(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision> {
        let decision = self.judging.answered(id, answer)?;
        self.choices.iter_mut().for_each(|state| state.settle(id, &decision));
        Some(decision)
    }

    /// Settles all held calls: nobody can be asked about them.
    fn settle_all(&mut self) {
        for (id, decision) in settle_all(&mut self.judging) {
            self.choices.iter_mut().for_each(|state| state.settle(id, &decision));
        }
    }

    /// Decides on everything that remains, and gives it out.
    fn finish_choices(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        for state in &mut self.choices {
            state.finish_calls(&mut self.judging, now_ms);
        }
        self.drain(out);
    }

    fn ending(&mut self, out: &mut Vec<Bytes>) -> Ending {
        let failed = self.phase.has_failed();
        if failed {
            self.settle_all();
            self.drain(out);
        }
        if self.is_waiting() {
            return Ending::Waits;
        }
        let pending = self.choices.iter().find(|state| self.is_asked_again(state)).filter(|_| !failed);
        if let Some((choice, hidden)) =
            pending.and_then(|state| Some((state.index, state.hidden_exchange()?)))
        {
            return Ending::Reask { choice, hidden };
        }
        match self.form {
            Form::Streamed => self.end_stream(out),
            Form::Whole => self.give_body(out),
        }
        Ending::Complete
    }

    /// Whether all calls of a choice were blocked, so that it is asked again. Not after a finish that the client has:
    /// nothing could follow that.
    fn is_asked_again(&self, state: &ChoiceState) -> bool {
        state.is_wholly_blocked() && !state.finish_shown && !self.judging.observes()
    }

    fn is_pending(&self) -> bool {
        self.choices.iter().any(|state| self.is_asked_again(state))
    }

    /// Adds a choice of a stream and returns its position.
    fn add_choice(&mut self, index: u32) -> usize {
        self.choices.push(ChoiceState::streamed(index));
        self.choices.len() - 1
    }
}

#[cfg(test)]
mod held;
#[cfg(test)]
mod order;
#[cfg(test)]
mod stream_quirks;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod whole_quirks;
