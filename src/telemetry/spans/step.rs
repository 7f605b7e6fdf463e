//! The trace of one request while it runs: its place in the caller's trace, and the steps taken for it with their times.
//! Plain data, bounded; sends nothing.

use super::contents::Contents;
use opentelemetry::trace::{SpanContext, SpanId};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};
use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

/// The most steps of a request; further ones are only counted. More than any request with the most re-asks takes.
const MOST_STEPS: usize = 128;
/// The most times of calls that are kept; further calls have the last one's.
const MOST_CALLS: usize = 128;

/// The trace of one request.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The caller's span; not valid where it has none.
    pub(super) caller: SpanContext,
    /// The request's own span.
    pub(super) own: SpanContext,
    clock: Clock,
    pub(super) steps: Vec<Step>,
    /// Steps that are not kept.
    pub(super) left_out: u32,
    /// When each call was decided on, in order.
    decided: Vec<Instant>,
    /// The retries in another form that the attempts so far explain.
    fallbacks: usize,
    propagates: bool,
    /// What was said, where that is allowed; known at the end.
    pub contents: Option<Box<Contents>>,
}

/// The same moment by both clocks.
#[derive(Clone, Copy, Debug)]
struct Clock {
    began: Instant,
    at: SystemTime,
}

/// Something that was done or waited for within a request, or for it.
#[derive(Clone, Debug)]
pub struct Step {
    pub(super) kind: StepKind,
    pub(super) id: SpanId,
    /// The number of the call that it is about.
    call: Option<u32>,
    began: Instant,
    ended: Option<Instant>,
    pub(super) error: Option<Cow<'static, str>>,
    pub(super) attributes: Vec<KeyValue>,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The first request to the upstream.
    Upstream,
    /// The request to the upstream in another form, after a refusal.
    Fallback,
    /// The model is asked again after blocked calls.
    Reask,
    /// The last re-ask, without tool use.
    FinalAnswer,
    /// A question to the state store that replicas share.
    Store,
    /// The wait for other requests of the conversation.
    Admission,
    /// The question to another model for a summary.
    Summary,
    /// The question to another model about a call.
    Question,
    /// The wait for a person's decision on a call.
    Approval,
    /// The wait until a limit allows a call.
    Wait,
    /// A notification of a person.
    Webhook,
}

impl StepKind {
    /// The span's name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream request",
            Self::Fallback => "fallback",
            Self::Reask => "re-ask",
            Self::FinalAnswer => "final-answer request",
            Self::Store => "store",
            Self::Admission => "wait for conversation",
            Self::Summary => "summary",
            Self::Question => "model question",
            Self::Approval => "approval",
            Self::Wait => "wait for limit",
            Self::Webhook => "webhook",
        }
    }

    /// Whether it is a request to the upstream with the client's conversation.
    pub fn is_attempt(self) -> bool {
        matches!(self, Self::Upstream | Self::Fallback | Self::Reask | Self::FinalAnswer)
    }

    /// Whether another program is asked.
    pub(super) fn leaves(self) -> bool {
        !matches!(self, Self::Admission | Self::Approval | Self::Wait)
    }
}

impl Step {
    fn begin(kind: StepKind, call: Option<u32>) -> Self {
        let id = RandomIdGenerator::default().new_span_id();
        Self { kind, id, call, began: Instant::now(), ended: None, error: None, attributes: Vec::new() }
    }

    /// Adds an attribute.
    pub fn note(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Self {
        self.attributes.push(KeyValue::new(key, value));
        self
    }

    /// Ends the step now.
    pub fn end(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Ends the step now, with this error: a code of toolrein's own, or an HTTP status.
    pub fn fail(&mut self, error: impl Into<Cow<'static, str>>) {
        self.error = Some(error.into());
        self.end();
    }
}

impl Trace {
    pub(super) fn new(caller: SpanContext, own: SpanContext, propagates: bool) -> Self {
        let clock = Clock { began: Instant::now(), at: SystemTime::now() };
        let (steps, decided) = (Vec::new(), Vec::new());
        Self { caller, own, clock, steps, left_out: 0, decided, fallbacks: 0, propagates, contents: None }
    }

    /// Begins a step; `call`: the number of the call that it is about. `None` beyond the most steps.
    pub fn begin(&mut self, kind: StepKind, call: Option<u32>) -> Option<&mut Step> {
        if self.steps.len() >= MOST_STEPS {
            self.left_out += 1;
            return None;
        }
        self.steps.push(Step::begin(kind, call));
        self.steps.last_mut()
    }

    /// The last step for which `is_it` holds and that has not ended.
    pub fn running(&mut self, is_it: impl Fn(StepKind) -> bool) -> Option<&mut Step> {
        self.steps.iter_mut().rev().find(|step| step.ended.is_none() && is_it(step.kind))
    }

    /// The step that has not ended and is about the call of this number.
    pub fn about(&mut self, call: u32) -> Option<&mut Step> {
        self.steps.iter_mut().rev().find(|step| step.ended.is_none() && step.call == Some(call))
    }

    /// How many of `all` retries in another form came since the last call.
    pub fn new_fallbacks(&mut self, all: usize) -> usize {
        all - std::mem::replace(&mut self.fallbacks, all).min(all)
    }

    /// Notes that so many calls are decided on by now.
    pub fn calls_decided(&mut self, count: usize) {
        let count = count.min(MOST_CALLS);
        if self.decided.len() < count {
            self.decided.resize(count, Instant::now());
        }
    }

    /// The `traceparent` under which the running request to the upstream continues the trace, where it is to do so.
    pub fn traceparent(&self) -> Option<String> {
        let step = self.steps.last().filter(|step| self.propagates && step.kind.is_attempt())?;
        Some(format!("00-{}-{}-01", self.own.trace_id(), step.id))
    }

    /// A step that may outlast the request.
    pub fn child(&self, kind: StepKind) -> Child {
        Child { request: self.own.clone(), clock: self.clock, step: Step::begin(kind, None) }
    }

    /// When the request began.
    pub(super) fn began(&self) -> SystemTime {
        self.clock.at
    }

    /// The request's end, `total` after its beginning.
    pub(super) fn ended(&self, total: Duration) -> SystemTime {
        self.clock.at + total
    }

    /// When the call of this position was decided on.
    pub(super) fn decided(&self, position: usize) -> SystemTime {
        let at = self.decided.get(position).or(self.decided.last());
        self.clock.at(at.copied().unwrap_or(self.clock.began))
    }

    /// The beginning and the end of `step`, which ends with the request at the latest.
    pub(super) fn times(&self, step: &Step, end: SystemTime) -> (SystemTime, SystemTime) {
        let began = self.clock.at(step.began);
        (began, step.ended.map_or(end, |ended| self.clock.at(ended)).max(began))
    }
}

impl Clock {
    fn at(self, instant: Instant) -> SystemTime {
        self.at + instant.saturating_duration_since(self.began)
    }
}

/// A step that may outlast its request, and is sent on its own.
#[derive(Clone, Debug)]
pub struct Child {
    pub(super) request: SpanContext,
    clock: Clock,
    pub step: Step,
}

impl Child {
    /// Begins another step of the same kind and for the same request.
    #[must_use]
    pub fn anew(self) -> Self {
        Self { step: Step::begin(self.step.kind, None), ..self }
    }

    /// The beginning and the end.
    pub(super) fn times(&self) -> (SystemTime, SystemTime) {
        let began = self.clock.at(self.step.began);
        (began, self.step.ended.map_or(began, |ended| self.clock.at(ended)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(propagates: bool) -> Trace {
        Trace::new(SpanContext::NONE, SpanContext::NONE, propagates)
    }

    #[test]
    fn steps_are_bounded_and_those_beyond_are_counted() {
        let mut trace = trace(true);
        for nth in 0..MOST_STEPS + 3 {
            assert_eq!(trace.begin(StepKind::Reask, None).is_some(), nth < MOST_STEPS);
        }
        assert_eq!((trace.steps.len(), trace.left_out), (MOST_STEPS, 3));
    }

    #[test]
    fn a_report_ends_the_newest_step_of_its_kind_or_the_one_about_its_call() {
        let mut trace = trace(false);
        for (kind, call) in
            [(StepKind::Upstream, None), (StepKind::Approval, Some(1)), (StepKind::Wait, Some(2))]
        {
            trace.begin(kind, call);
        }
        assert_eq!(trace.about(1).map(|step| step.kind), Some(StepKind::Approval));
        trace.about(1).into_iter().for_each(Step::end);
        assert!(trace.about(1).is_none() && trace.about(3).is_none());
        trace.running(StepKind::is_attempt).into_iter().for_each(|step| step.fail("500"));
        assert!(trace.running(StepKind::is_attempt).is_none());
        let end = trace.ended(Duration::from_secs(1));
        let open = &trace.steps[2];
        assert_eq!(trace.times(open, end).1, end, "what has not ended ends with the request");
    }

    #[test]
    fn only_a_request_to_the_upstream_is_propagated_and_only_where_that_is_set() {
        for (propagates, kind, expected) in [
            (true, StepKind::Upstream, true),
            (true, StepKind::FinalAnswer, true),
            (true, StepKind::Store, false),
            (false, StepKind::Upstream, false),
        ] {
            let mut trace = trace(propagates);
            assert_eq!(trace.traceparent(), None);
            trace.begin(kind, None);
            assert_eq!(trace.traceparent().is_some(), expected, "{kind:?}");
        }
    }

    #[test]
    fn each_retry_in_another_form_is_explained_once() {
        let mut trace = trace(false);
        assert_eq!([0, 2, 2, 3].map(|all| trace.new_fallbacks(all)), [0, 2, 0, 1]);
    }

    #[test]
    fn calls_beyond_the_most_have_the_time_of_the_last_one() {
        let mut trace = trace(false);
        assert_eq!(trace.decided(0), trace.began());
        trace.calls_decided(1);
        trace.calls_decided(MOST_CALLS * 2);
        assert_eq!(trace.decided.len(), MOST_CALLS);
        assert_eq!(trace.decided(MOST_CALLS * 2), trace.decided(MOST_CALLS - 1));
    }
}
