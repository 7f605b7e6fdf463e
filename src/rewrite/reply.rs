//! The judge of one client request's replies: reads them, decides on each call, and gives the client one coherent
//! reply. A whole reply is a stream of one chunk. What nothing acts on goes out as it came, byte for byte. Asks nobody
//! again by itself.

mod bounds;
mod edit;
mod ended;
mod judge;
mod lines;
mod markup;
mod other_form;
mod queue;
mod reader;
mod usage;
mod words;
mod writer;

pub use other_form::error_data;
pub use words::NO_ANSWER;

use self::edit::Continuation;
use self::markup::Cleaner;
use self::queue::Queue;
use self::reader::Reader;
use self::usage::Usages;
use super::choice::ChoiceState;
use super::confirm::held::Word;
use super::judging::Judging;
use crate::wire::error::UpstreamError;
use bytes::Bytes;
use serde_json::Value;

/// The status of a reply of which nothing else is said.
const OK: u16 = 200;

/// How the client gets its reply, and how one reply of the upstream comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As server-sent events.
    Streamed,
    /// As one JSON body.
    Whole,
}

/// Bounds of one reply, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest event that is judged.
    pub event: usize,
    /// Most of a stream that is held back.
    pub held: usize,
    /// Most that is kept of one reply: of a stream its text and calls, of a whole reply its body.
    pub reply: usize,
}

/// What the caller asked for in the client's place. May change with the form of the request, until a reply is taken.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The stream's usage was asked for by us alone: the client gets none.
    pub cut_usage: bool,
    /// A line to the person who reads the answer, put before it.
    pub preface: Option<String>,
}

/// Why something passed unjudged, or was broken off because it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudged {
    EventTooLong,
    HeldTooMuch,
    ReplyTooLong,
    NotJson,
    /// Two readers may see different calls in it.
    Ambiguous,
}

/// How a reply of the upstream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything is with the client.
    Complete,
    /// Every call of this choice was blocked: the model is to be asked again with the hidden exchange appended.
    Reask { choice: u32, hidden: Bytes },
    /// Calls wait for a person's decision: to be finished again once all are settled.
    Waits,
    /// The reply is the upstream's error, which waits for the caller's decision: see [`ReplyJudge::refusal`].
    Refused,
    /// The rest must not reach the client unjudged.
    BrokenOff(Unjudged),
}

/// A reply that is the upstream's error.
#[derive(Debug)]
pub struct Refusal {
    pub error: UpstreamError,
    /// Its bytes, as the client gets them if it stands.
    pub raw: Bytes,
}

/// Judges one client request's reply, over all replies that it takes.
pub struct ReplyJudge {
    pub judging: Judging,
    pub options: Options,
    form: Form,
    limits: Limits,
    reader: Reader,
    phase: Phase,
    choices: Vec<ChoiceState>,
    /// What the client has not got yet.
    queue: Queue,
    /// What of the first reply all later ones must repeat.
    head: Option<Continuation>,
    /// The place of the choice that the present reply goes on with, after the first reply.
    continuing: Option<usize>,
    usage: Usages,
    /// Takes the markup of calls out of a final answer.
    markup: Option<Cleaner>,
    unjudged: Vec<Unjudged>,
    /// The client gets other bytes than came.
    is_changed: bool,
}

/// Where the present reply is.
#[derive(Debug)]
enum Phase {
    /// Nothing has come of it that counts.
    Head,
    /// It began with the upstream's error, which waits for the caller's decision.
    Refused(Refusal),
    /// What comes is judged.
    Reading,
    /// It said that it failed: the upstream is not asked again, and nothing of ours follows.
    Failed,
    /// It is read along no further.
    Unjudged,
    /// The client gets nothing more: what follows can no longer be told from what is blocked.
    BrokenOff(Unjudged),
    /// The upstream has said that nothing more comes.
    Done {
        failed: bool,
        /// The event that said so, where calls wait in front of it.
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

impl ReplyJudge {
    /// A judge at the start of a reply that the client gets in this form; the first one is expected to come in it too.
    pub fn new(judging: Judging, form: Form, limits: Limits, options: Options) -> Self {
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

    /// Says how the next reply comes: the first one, one to another form of a request that was refused, or the one
    /// after [`continue_with`](Self::continue_with); and with which HTTP status.
    pub fn begin(&mut self, form: Form, status: u16) {
        self.reader.begin(form, status);
        self.phase = Phase::Head;
        self.markup = self.judging.is_landing().then(Cleaner::default);
    }

    /// The client gets its reply in this form after all. To be said before anything was judged.
    pub fn turn_to(&mut self, form: Form) {
        self.form = form;
        self.reader = Reader::new(form, self.limits, self.judging.is_strict());
        self.begin(form, OK);
    }

    /// Takes the next bytes of the upstream; what the client shall get is appended to `out`: of a stream at once, of a
    /// whole reply when it is complete.
    pub fn push(&mut self, bytes: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        if !matches!(self.phase, Phase::BrokenOff(_)) {
            self.reader.push(bytes);
            self.read_on(now_ms, out);
        }
    }

    /// The upstream's reply has ended as it should, or all its calls that waited are settled.
    pub fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending {
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

    /// Goes on with a further reply to the same request, for the choice that is asked again.
    pub fn continue_with(&mut self, choice: u32) {
        let known = self.choices.iter().position(|state| state.index == choice);
        let place = known.unwrap_or_else(|| self.add_choice(choice));
        self.choices[place].begin_next_reply();
        self.continuing = Some(place);
        self.usage.begin_next_reply();
        self.begin(self.form, OK);
    }

    /// The upstream's error that the present reply is. The caller sends the request in another form and
    /// [begins](Self::begin) again, or [lets it stand](Self::let_refusal_stand).
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.phase {
            Phase::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Gives the upstream's error out, and whatever came behind it.
    pub fn let_refusal_stand(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        if !matches!(self.phase, Phase::Refused(_)) {
            return;
        }
        if let Phase::Refused(Refusal { raw, .. }) = std::mem::replace(&mut self.phase, Phase::Failed) {
            // The error of asking again takes the place of a whole reply.
            self.queue.clear();
            out.push(raw);
        }
        self.read_on(now_ms, out);
    }

    /// Learns the decision on a call that waited for one, and gives out what waited for it.
    pub fn settle(&mut self, id: u32, decision: Word, out: &mut Vec<Bytes>) {
        self.settle_one(id, decision);
        self.drain(out);
    }

    /// Whether calls wait for a person's decision.
    pub fn is_waiting(&self) -> bool {
        self.choices.iter().any(ChoiceState::is_waiting)
    }

    /// The choices as the client has them.
    pub fn choices(&self) -> &[ChoiceState] {
        &self.choices
    }

    /// The usage of the last reply, as it came.
    pub fn usage(&self) -> Option<Value> {
        self.usage.last()
    }

    /// The usage of all replies together, for metrics.
    pub fn total_usage(&self) -> Option<Value> {
        self.usage.total()
    }

    /// Bytes that are kept: what is held back or not whole yet, and what is known of the choices.
    pub fn kept_bytes(&self) -> usize {
        let choices: usize = self.choices.iter().map(ChoiceState::size).sum();
        self.reader.bytes() + self.queue.bytes() + choices
    }

    /// Whether anything is held back for now.
    pub fn is_holding(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether something of this reply does not reach the client, for now or for good.
    pub fn is_hiding(&self) -> bool {
        self.is_holding() || self.choices.iter().any(ChoiceState::is_edited)
    }

    /// Whether an event of ours may be written now.
    pub fn at_boundary(&self) -> bool {
        self.reader.at_boundary()
    }

    /// Whether the upstream has said that nothing more comes.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    /// Whether the client gets other bytes than came.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Why something passed unjudged or was broken off, each reason once.
    pub fn unjudged(&self) -> &[Unjudged] {
        &self.unjudged
    }

    /// Why the client must get nothing more of the reply, if so.
    pub fn broken_off(&self) -> Option<Unjudged> {
        match self.phase {
            Phase::BrokenOff(why) => Some(why),
            _ => None,
        }
    }

    fn settle_one(&mut self, id: u32, decision: Word) {
        if let Some(decision) = self.judging.settle(id, decision) {
            self.choices.iter_mut().for_each(|state| state.settle(id, &decision));
        }
    }

    /// Nobody can be asked about what waits.
    fn settle_all(&mut self) {
        let ids: Vec<u32> = self.judging.held().map(|call| call.id).collect();
        ids.into_iter().for_each(|id| self.settle_one(id, Word::Unasked));
    }

    /// Decides on everything that is left, and gives it out.
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
        if let Some((choice, hidden)) = pending.and_then(|state| Some((state.index, state.round()?))) {
            return Ending::Reask { choice, hidden };
        }
        match self.form {
            Form::Streamed => self.end_stream(out),
            Form::Whole => self.give_body(out),
        }
        Ending::Complete
    }

    /// Whether all calls of a choice were blocked. What comes behind a finish that the client has is not asked for
    /// again: nothing could follow it.
    fn is_asked_again(&self, state: &ChoiceState) -> bool {
        state.is_wholly_withheld() && !state.finish_shown && !self.judging.observes()
    }

    fn is_pending(&self) -> bool {
        self.choices.iter().any(|state| self.is_asked_again(state))
    }

    /// Adds a choice of a stream; its place.
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
mod tests;
#[cfg(test)]
mod whole_quirks;
