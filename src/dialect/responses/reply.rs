//! The reply pipeline of one client request of the Responses API: it reads the replies, has each call judged, and gives
//! the client one coherent reply. A whole reply is its last event alone. Untouched parts go out as they came, byte for
//! byte. Sends no request by itself.

mod arguments;
pub mod convert;
mod event;
mod hidden;
mod items;
mod kept;
mod last;
mod markup;
mod owner;
mod settling;
mod shown;
mod stream;
mod unjudged;
mod unread;
mod words;
mod writer;
pub mod written;

pub use words::NO_ANSWER;

use self::items::{CHOICE, OutItem, Progress, decide, settle_pieces};
use self::kept::ContinuableReplies;
use self::last::Last;
use self::markup::{Cleaner, no_calls_with_a_list};
use self::shown::Shown;
use self::stream::Held;
use self::writer::Numbers;
use crate::dialect::error::{parse, parse_in_200};
use crate::dialect::judge::{CallJudge, WAITS};
use crate::dialect::reply::{Ending, Form, Limits, Options, Refusal, Reply, ShownChoice, Unjudged};
use crate::dialect::usage::Usage;
use crate::dialect::usage_sum::Usages;
use bytes::Bytes;
use model::plan::approval::ApprovalDecision;
use model::request::Request;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::sse::{Piece, Splitter, write_comment};

const OK: u16 = 200;

/// Judges the replies to one client request, re-asks included.
pub struct ReplyJudge<J> {
    judging: J,
    options: Options,
    form: Form,
    limits: Limits,
    input: Input,
    /// Bytes of a stream that came after an error on which the exchange has not decided.
    rest: Bytes,
    /// The client has the first events of an earlier reply.
    has_head: bool,
    phase: Phase,
    /// The items of the present reply, in the order in which they began.
    items: Vec<OutItem>,
    /// What the client sees of all replies.
    shown: Shown,
    /// Events that wait for decisions on calls.
    queue: VecDeque<Held>,
    queued_bytes: usize,
    /// The last event of the present reply, or the whole reply, once it has come.
    last: Option<Last>,
    /// What follows the last event: `[DONE]` at some servers.
    after: Vec<Bytes>,
    numbers: Numbers,
    /// The members of the first reply that later ones repeat, as written.
    head: Vec<(Vec<u8>, Bytes)>,
    /// The `response.in_progress` that the client has: the heartbeat repeats it.
    in_progress: Option<Bytes>,
    /// This is not the first reply.
    continued: bool,
    kept: ContinuableReplies,
    usage: Usages,
    carried: Vec<&'static str>,
    /// Removes call markup from a final answer.
    markup: Option<Cleaner>,
    unjudged: Vec<Unjudged>,
    is_changed: bool,
}

/// The bytes of the present reply that are not read yet.
enum Input {
    Events(Box<Splitter>),
    Body { form: Form, status: u16, pieces: Vec<Bytes>, size: usize },
    Ended,
}

/// The phase of the present reply.
enum Phase {
    /// Nothing but its first events has come, which say nothing yet.
    Head,
    /// It is the upstream's error, and the exchange decides what to do.
    Refused(Refusal),
    Reading,
    /// It reported a failure: there is no re-ask, and toolrein adds nothing.
    Failed,
    /// It is no longer read, and passes through.
    Unjudged,
    BrokenOff(Unjudged),
    /// The client has its last event.
    Done,
}

impl<J: CallJudge> ReplyJudge<J> {
    /// A judge for a reply that the client gets in this form; the first upstream reply is expected in the same form.
    pub fn new(judging: J, form: Form, limits: Limits, options: Options) -> Self {
        let mut judge = Self {
            judging,
            options,
            form,
            limits,
            input: Input::Ended,
            rest: Bytes::new(),
            has_head: false,
            phase: Phase::Head,
            items: Vec::new(),
            shown: Shown::default(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            last: None,
            after: Vec::new(),
            numbers: Numbers::default(),
            head: Vec::new(),
            in_progress: None,
            continued: false,
            kept: ContinuableReplies::default(),
            usage: Usages::default(),
            carried: Vec::new(),
            markup: None,
            unjudged: Vec::new(),
            is_changed: false,
        };
        judge.reserve_preface();
        judge.begin(form, OK);
        judge
    }

    fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Refused(_) | Phase::BrokenOff(_))
    }

    fn begin_reading(&mut self) {
        if matches!(self.phase, Phase::Head) {
            self.phase = Phase::Reading;
        }
    }

    /// Decides on calls as far as possible, and gives out what is decided.
    fn advance(&mut self, ended: bool, now_ms: u64, out: &mut Vec<Bytes>) {
        let progress = match &self.last {
            _ if !ended => Progress::Open,
            Some(last) if last.cut => Progress::Cut,
            _ => Progress::Ended,
        };
        if ended {
            settle_pieces(&mut self.items);
        }
        decide(&mut self.items, progress, &mut self.judging, now_ms);
        if !self.settles_pieces(ended) {
            return self.break_off(Unjudged::Ambiguous);
        }
        if self.has_unanswerable() {
            return self.break_off(Unjudged::Unanswerable);
        }
        self.update();
        self.drain(out);
    }

    /// Brings what the client sees up to date with the decisions.
    fn update(&mut self) {
        self.shown.update(&mut self.items, &self.judging);
    }

    /// Whether all calls were blocked, so that the model is asked again.
    fn is_pending(&self) -> bool {
        let may_ask = !self.shown.is_finished && !self.judging.observes();
        may_ask && self.shown.is_wholly_blocked() && !matches!(self.phase, Phase::Failed)
    }

    /// Reads the events that have come, up to an error on which the exchange decides.
    fn read_on(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        while !self.is_stopped()
            && let Input::Events(splitter) = &mut self.input
            && let Some(piece) = splitter.next(&mut self.rest)
        {
            self.piece(piece, now_ms, out);
        }
    }

    /// The upstream's reply is complete: a whole one is read now.
    fn end_input(&mut self, now_ms: u64, out: &mut Vec<Bytes>) {
        match std::mem::replace(&mut self.input, Input::Ended) {
            Input::Events(mut splitter) => {
                if let Some(piece) = splitter.finish() {
                    self.piece(piece, now_ms, out);
                }
            }
            Input::Body { form, status, pieces, .. } => self.body(form, status, &pieces, now_ms, out),
            Input::Ended => {}
        }
    }

    /// The upstream refuses in `body`, which may say what it bills nevertheless.
    fn refuse(&mut self, refusal: Refusal, body: &[u8]) {
        self.usage.note_error(body);
        self.phase = Phase::Refused(refusal);
    }

    fn body(&mut self, form: Form, status: u16, pieces: &[Bytes], now_ms: u64, out: &mut Vec<Bytes>) {
        let raw: Bytes = pieces.concat().into();
        let is_success = (200..300).contains(&status);
        let whole = if form == Form::Streamed { convert::whole_of(&raw) } else { Some(raw.clone()) };
        let whole = whole.map(|whole| self.without_markup_in_body(whole));
        let last = whole.as_ref().and_then(Last::of_body);
        let has_calls = last.as_ref().is_some_and(Last::has_calls);
        let is_plain = form == Form::Whole && last.as_ref().is_some_and(|last| !last.may_be_error());
        let error = match is_success {
            true if is_plain => None,
            true => parse_in_200(&raw),
            false => Some(parse(&raw).unwrap_or_default()),
        };
        if let Some(error) = error.filter(|_| !has_calls || !is_success) {
            let refusal = Refusal { raw: self.error_bytes(status, raw.clone(), &error), error };
            return self.refuse(refusal, &raw);
        }
        if is_success && last.as_ref().is_some_and(|last| self.lost_calls(last)) {
            return self.refuse(Refusal { raw: raw.clone(), error: no_calls_with_a_list() }, &raw);
        }
        let Some(last) = last else {
            if self.judging.is_strict() || self.continued {
                return self.break_off(Unjudged::NotJson);
            }
            self.note(Unjudged::NotJson);
            self.phase = Phase::Unjudged;
            return out.push(raw);
        };
        if self.form == Form::Whole {
            self.begin_reading();
            return self.take_last(last, now_ms, out);
        }
        match convert::stream_of(&last) {
            Some(events) => {
                self.begin_reading();
                events.into_iter().for_each(|event| self.piece(Piece::Event(event), now_ms, out));
            }
            None => self.break_off(Unjudged::NotJson),
        }
    }

    /// The next step after all that has come.
    fn ending(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending {
        match &self.phase {
            Phase::Refused(_) => return Ending::Refused,
            Phase::BrokenOff(why) => return Ending::BrokenOff(*why),
            _ => {}
        }
        self.items.iter_mut().for_each(OutItem::unveil);
        self.advance(true, now_ms, out);
        if let Phase::BrokenOff(why) = self.phase {
            return Ending::BrokenOff(why);
        }
        if matches!(self.phase, Phase::Failed) {
            self.settle_all();
            self.drain(out);
        }
        self.shown.ask(&mut self.items, &self.judging, self.form == Form::Streamed);
        if self.shown.is_waiting() {
            return Ending::Waits;
        }
        if self.is_pending()
            && self.last.is_some()
            && let Some(hidden) = self.shown.hidden_exchange()
        {
            return Ending::Reask { choice: CHOICE, hidden };
        }
        self.give_last(out);
        Ending::Complete
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
        self.reserve_preface();
    }

    fn begin(&mut self, form: Form, status: u16) {
        self.input = match (self.form, form) {
            (Form::Streamed, Form::Streamed) => Input::Events(Box::new(Splitter::new(self.limits.event))),
            _ => Input::Body { form, status, pieces: Vec::new(), size: 0 },
        };
        self.phase = Phase::Head;
        self.kept.begin_reply();
        (self.rest, self.has_head) = (Bytes::new(), !self.head.is_empty());
        (self.last, self.after) = (None, Vec::new());
        self.markup = self.judging.is_landing().then(|| Cleaner::new(self.judging.known_tools()));
    }

    fn expect_own(&mut self) {
        self.kept.expect_own();
    }

    fn turn_to(&mut self, form: Form) {
        self.form = form;
        self.begin(form, OK);
    }

    fn push(&mut self, bytes: Bytes, now_ms: u64, out: &mut Vec<Bytes>) {
        let limit = self.limits.reply;
        match &mut self.input {
            _ if matches!(self.phase, Phase::BrokenOff(_)) => {}
            Input::Events(_) => {
                let is_first = self.rest.is_empty();
                self.rest = if is_first { bytes } else { [&self.rest[..], &bytes].concat().into() };
                self.read_on(now_ms, out);
            }
            Input::Body { pieces, size, .. } => {
                *size += bytes.len();
                pieces.push(bytes);
                if *size > limit {
                    let pieces = std::mem::take(pieces);
                    self.input = Input::Ended;
                    if self.judging.is_strict() || self.continued {
                        return self.break_off(Unjudged::ReplyTooLong);
                    }
                    self.note(Unjudged::ReplyTooLong);
                    self.phase = Phase::Unjudged;
                    out.extend(pieces);
                }
            }
            Input::Ended if matches!(self.phase, Phase::Unjudged) => out.push(bytes),
            Input::Ended => {}
        }
    }

    fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending {
        self.read_on(now_ms, out);
        if !self.is_stopped() {
            self.end_input(now_ms, out);
        }
        self.ending(now_ms, out)
    }

    fn continue_with(&mut self, _choice: u32) {
        self.kept.end_reply(&self.shown);
        self.shown.begin_next_reply(&mut self.items, self.last.as_ref());
        self.usage.begin_next_reply();
        self.numbers.rewrite();
        self.continued = true;
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
            self.queue.clear();
            let raw = if self.form == Form::Streamed { self.numbered(raw) } else { raw };
            out.push(raw);
        }
        self.read_on(now_ms, out);
    }

    fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes {
        let event = convert::error_event(status, body);
        self.failed(&event)
    }

    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes {
        self.failed_by_us(message, code)
    }

    fn heartbeat(&mut self) -> Bytes {
        match self.in_progress.clone() {
            Some(event) => {
                self.numbers.rewrite();
                self.numbered(event)
            }
            None => write_comment(WAITS),
        }
    }

    fn settle(&mut self, id: u32, decision: ApprovalDecision, out: &mut Vec<Bytes>) {
        self.settle_one(id, decision);
        self.drain(out);
    }

    fn answer(&mut self, id: u32, answer: Option<Arc<str>>, out: &mut Vec<Bytes>) {
        self.answer_call(id, answer, out);
    }

    fn shown(&self) -> Vec<&dyn ShownChoice> {
        let has_begun = !matches!(self.phase, Phase::Head | Phase::Refused(_)) || self.continued;
        if has_begun { vec![&self.shown] } else { Vec::new() }
    }

    fn history(&self, request: &Request, body: &[u8]) -> Option<(String, Bytes)> {
        self.kept_history(request, body)
    }

    fn last_items(&self) -> Vec<String> {
        if !self.items.iter().any(|item| item.call.is_some() && item.is_shown()) {
            return Vec::new();
        }
        let named = || self.items.iter().rev().filter(|item| !item.own && item.is_shown());
        let calls = named().find(|item| item.call.is_some());
        let ids = calls.into_iter().chain(named().next()).filter_map(|item| item.ids.first().cloned());
        let mut ids: Vec<String> = ids.collect();
        ids.dedup();
        ids
    }

    fn carried(&self) -> &[&'static str] {
        &self.carried
    }

    fn usages(&self) -> Vec<Usage> {
        self.usage.tokens()
    }

    fn model(&self) -> Option<String> {
        self.usage.model()
    }

    fn kept_bytes(&self) -> usize {
        let input = match &self.input {
            Input::Events(splitter) => splitter.partial_bytes(),
            Input::Body { size, .. } => *size,
            Input::Ended => 0,
        };
        let items: usize = self.items.iter().map(OutItem::size).sum();
        input
            + self.rest.len()
            + self.queued_bytes
            + items
            + self.shown.size()
            + self.last.as_ref().map_or(0, Last::size)
    }

    fn is_waiting(&self) -> bool {
        self.shown.is_waiting()
    }

    fn is_hiding(&self) -> bool {
        !self.queue.is_empty() || self.shown.is_edited()
    }

    fn is_at_head(&self) -> bool {
        matches!(self.phase, Phase::Head)
    }

    fn at_boundary(&self) -> bool {
        !matches!(&self.input, Input::Events(splitter) if !splitter.at_boundary())
    }

    fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Done) || (self.last.is_some() && self.is_pending())
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

#[cfg(test)]
mod tests;
