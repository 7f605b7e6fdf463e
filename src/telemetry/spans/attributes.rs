//! The spans of a request, made from its request record: names and attributes, by OpenTelemetry's semantic conventions
//! for generative AI and HTTP as far as they have a name for it. Contents only where the trace holds some, which is then
//! redacted; no credential; every text from outside is bounded.

use super::contents::{CallContents, Contents, ResultContents};
use super::step::{Child, Step, Trace};
use crate::telemetry::projection::Inclusion::IfAny;
use crate::telemetry::projection::MemberValue::{
    self, Decimal, Flag, Number, Own, Parts, Text, Texts, Unknown,
};
use crate::telemetry::projection::{
    CallWithDecision, Column, Projection, RecordPart, TextBounds, calls_of, known, word,
};
use model::record::{JudgedCall, RequestRecord, Route};
use opentelemetry::trace::{Event, SpanContext, SpanKind, Status, TraceFlags};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::SystemTime;

/// The conventions' name of what all governed endpoints do.
const CHAT: &str = "chat";
/// The longest text from outside, in characters; as in the log.
const MAX_CHARS: usize = 200;
/// The most calls that become events; further ones are only counted. More than any provider's parallel calls.
const MOST_EVENTS: usize = 128;
const BOUNDS: TextBounds = TextBounds::new(MAX_CHARS, MOST_EVENTS);

/// The attributes of a request, beside those of its trace.
const REQUEST: &[Column<RequestRecord>] = &[
    ("gen_ai.request.model", |record, bounds| bounds.optional(record.model.as_deref()), IfAny),
    ("gen_ai.response.model", |record, bounds| bounds.optional(record.response_model.as_deref()), IfAny),
    ("gen_ai.conversation.id", |record, bounds| bounds.optional(record.conversation.as_deref()), IfAny),
    ("gen_ai.usage.input_tokens", |record, _| Number(record.tokens.prompt), IfAny),
    ("gen_ai.usage.output_tokens", |record, _| Number(record.tokens.completion), IfAny),
    ("gen_ai.usage.cache_read.input_tokens", |record, _| Number(record.tokens.cached), IfAny),
    ("gen_ai.usage.cache_creation.input_tokens", |record, _| Number(record.tokens.cache_written), IfAny),
    ("gen_ai.usage.reasoning.output_tokens", |record, _| Number(record.tokens.reasoning), IfAny),
    ("http.request.method", |record, bounds| Text(bounds.text(&record.method)), IfAny),
    ("url.path", |record, bounds| Text(bounds.text(&record.path)), IfAny),
    ("http.response.status_code", |record, _| Number(record.status.into()), IfAny),
    ("error.type", |record, _| error_type(record), IfAny),
    ("toolrein.request_id", |record, bounds| Text(bounds.text(&record.request_id)), IfAny),
    ("toolrein.endpoint", |record, _| word(record.endpoint.as_str()), IfAny),
    ("toolrein.mode", |record, _| word(record.mode), IfAny),
    ("toolrein.profile", |record, bounds| bounds.optional(record.profile.as_deref()), IfAny),
    ("toolrein.ungoverned", |record, _| word(record.ungoverned), IfAny),
    ("toolrein.streamed", |record, _| Flag(record.streamed), IfAny),
    ("toolrein.client_gone", |record, _| Flag(record.client_gone), IfAny),
    ("toolrein.repeated", |record, _| Flag(record.repeated), IfAny),
    ("toolrein.actions", |record, bounds| action_names(record, bounds), IfAny),
    (
        "toolrein.unjudged",
        |record, bounds| bounds.texts(record.unjudged.iter().map(|why| (*why).into())),
        IfAny,
    ),
    ("toolrein.upstream_requests", |record, _| Number(record.upstream_requests.into()), IfAny),
    ("toolrein.reasks", |record, _| Number(record.reasks.into()), IfAny),
    ("toolrein.tokens_saved", |record, _| Number(record.tokens.saved), IfAny),
    (
        "toolrein.first_byte_seconds",
        |record, _| known(record.times.first_byte.map(|time| time.as_secs_f64()), Decimal),
        IfAny,
    ),
    ("toolrein.overhead_seconds", |record, _| Decimal(record.times.overhead.as_secs_f64()), IfAny),
];

/// The attributes of a call, with the policy that gave the verdict.
const CALL: &[Column<JudgedCall>] = &[
    ("gen_ai.tool.name", |call, bounds| Text(bounds.name(&call.judged.tool)), IfAny),
    ("gen_ai.tool.call.id", |call, bounds| Text(bounds.id(&call.judged.id)), IfAny),
    ("toolrein.verdict", |call, _| word(call.judged.verdict.as_str()), IfAny),
    ("toolrein.policy", |call, _| word(call.policy()), IfAny),
    ("toolrein.reason", |call, _| word(call.reason()), IfAny),
    ("toolrein.also", |call, bounds| further_decision_names(call, bounds), IfAny),
    ("toolrein.unjudged", |call, _| Flag(call.judged.unjudged), IfAny),
];

/// The error's code, or else the status where it is a failure of a server.
fn error_type(record: &RequestRecord) -> MemberValue<'_> {
    match record.error {
        None if record.status >= 500 => Text(record.status.to_string().into()),
        error => word(error),
    }
}

fn action_names<'a>(record: &'a RequestRecord, bounds: &'a TextBounds) -> MemberValue<'a> {
    let names = record.actions.iter().map(|action| format!("{}={}", action.policy, action.action));
    bounds.texts(names.map(|name| bounds.text(&name).into_owned().into()))
}

fn further_decision_names<'a>(call: CallWithDecision<'a>, bounds: &'a TextBounds) -> MemberValue<'a> {
    let further = call.further();
    bounds.texts(further.map(|decision| format!("{}={}", decision.policy, decision.reason).into()))
}

/// The spans of a request that has ended: its own, and its steps'.
pub(super) fn spans(record: &RequestRecord, trace: &Trace, scope: &InstrumentationScope) -> Vec<SpanData> {
    let end = trace.ended(record.times.total);
    let steps = trace.steps.iter().map(|step| step_span(&trace.own, step, trace.times(step, end), scope));
    let mut spans: Vec<SpanData> = steps.collect();
    spans.push(request_span(record, trace, end, scope));
    spans
}

/// The span of a step that has ended apart from its request.
pub(super) fn child(child: &Child, scope: &InstrumentationScope) -> SpanData {
    step_span(&child.request, &child.step, child.times(), scope)
}

fn request_span(
    record: &RequestRecord,
    trace: &Trace,
    end: SystemTime,
    scope: &InstrumentationScope,
) -> SpanData {
    let name = match &record.model {
        Some(model) => format!("{CHAT} {}", BOUNDS.text(model)),
        None => CHAT.to_owned(),
    };
    let contents = trace.contents.as_deref();
    let results = contents.map_or(&[][..], |contents| &contents.results);
    let all = results.len() + record.judged.len();
    let results = results.iter().map(|result| result_event(result, trace.began()));
    let calls = calls_of(record).enumerate().map(|(at, call)| {
        let said = contents.and_then(|contents| contents.calls.get(at));
        event(call, said, trace.decided(at))
    });
    let mut events = SpanEvents::default();
    events.events = results.chain(calls).take(MOST_EVENTS).collect();
    events.dropped_count = count(all.saturating_sub(MOST_EVENTS));
    let failed = record.error.is_some() || record.status >= 500;
    SpanData {
        span_context: trace.own.clone(),
        parent_span_id: trace.caller.span_id(),
        parent_span_is_remote: trace.caller.is_valid(),
        span_kind: SpanKind::Server,
        name: name.into(),
        start_time: trace.began(),
        end_time: end,
        attributes: request_attributes(record, trace),
        dropped_attributes_count: 0,
        events,
        links: SpanLinks::default(),
        status: if failed { Status::error(record.error.unwrap_or_default()) } else { Status::Unset },
        instrumentation_scope: scope.clone(),
    }
}

/// The conventions' name of the protocol. toolrein does not know who provides the model.
fn provider(route: Route) -> &'static str {
    if route == Route::Messages { "anthropic" } else { "openai" }
}

fn request_attributes(record: &RequestRecord, trace: &Trace) -> Vec<KeyValue> {
    let mut made = Attributes(Vec::with_capacity(32));
    made.add("gen_ai.operation.name", word(CHAT));
    made.add("gen_ai.provider.name", word(provider(record.route)));
    made.members(&Projection::<RequestRecord>::new(record, REQUEST, &BOUNDS));
    made.add("toolrein.steps_left_out", Number(trace.left_out.into()));
    if let Some(contents) = trace.contents.as_deref() {
        made.contents(contents);
    }
    made.0
}

/// A call of the reply, with the verdict and the policy that gave it.
fn event(part: CallWithDecision<'_>, contents: Option<&CallContents>, at: SystemTime) -> Event {
    let mut made = Attributes(Vec::with_capacity(6));
    made.members(&Projection::<JudgedCall>::new(part, CALL, &BOUNDS));
    if let Some(contents) = contents {
        made.content("gen_ai.tool.call.arguments", contents.arguments.as_deref());
        made.content("gen_ai.tool.call.result", contents.result.as_deref());
    }
    Event::new("tool_call", at, made.0, 0)
}

/// A result that the client sent with the request.
fn result_event(result: &ResultContents, at: SystemTime) -> Event {
    let mut made = Attributes(Vec::with_capacity(3));
    made.add("gen_ai.tool.name", Text(BOUNDS.name(&result.tool)));
    made.add("gen_ai.tool.call.id", Text(BOUNDS.text(&result.id)));
    made.content("gen_ai.tool.call.result", Some(&result.text));
    Event::new("tool_result", at, made.0, 0)
}

fn step_span(
    request: &SpanContext,
    step: &Step,
    (began, ended): (SystemTime, SystemTime),
    scope: &InstrumentationScope,
) -> SpanData {
    let state = request.trace_state().clone();
    let mut attributes = step.attributes.clone();
    attributes.extend(step.error.clone().map(|error| KeyValue::new("error.type", error)));
    SpanData {
        span_context: SpanContext::new(request.trace_id(), step.id, TraceFlags::SAMPLED, false, state),
        parent_span_id: request.span_id(),
        parent_span_is_remote: false,
        span_kind: if step.kind.leaves() { SpanKind::Client } else { SpanKind::Internal },
        name: step.kind.as_str().into(),
        start_time: began,
        end_time: ended,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: step.error.clone().map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Attributes, those without information left out.
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn members<P: RecordPart>(&mut self, projection: &Projection<'_, P>) {
        projection.members().for_each(|(key, value)| self.add(key, value));
    }

    fn add(&mut self, key: &'static str, value: MemberValue<'_>) {
        if !value.is_written(IfAny) {
            return;
        }
        let value = match value {
            Own(word) => word.to_owned().into(),
            Text(text) => text.into_owned().into(),
            Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
            Decimal(number) => number.into(),
            Flag(flag) => flag.into(),
            Texts(texts) => {
                let texts = texts.into_iter().map(|text| StringValue::from(text.into_owned()));
                Value::Array(Array::String(texts.collect()))
            }
            Unknown | Parts(_) => return,
        };
        self.0.push(KeyValue::new(key, value));
    }

    fn contents(&mut self, contents: &Contents) {
        self.content("gen_ai.system_instructions", contents.instructions.as_deref());
        self.content("gen_ai.input.messages", contents.input.as_deref());
        self.content("gen_ai.output.messages", contents.output.as_deref());
        self.add("toolrein.messages_left_out", Number(contents.input_left_out));
    }

    /// Adds a text that is already bounded, without cutting it.
    fn content(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.0.push(KeyValue::new(key, text.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::cases::{assert_expected, complete};
    use model::record::{On, PolicyDecision, Route, Verdict};

    /// The attributes as lines.
    fn lines(attributes: &[KeyValue]) -> String {
        attributes.iter().map(|attribute| format!("  {} = {:?}\n", attribute.key, attribute.value)).collect()
    }

    #[test]
    fn the_span_of_a_record_with_everything_in_it_is_as_expected() {
        let mut trace = Trace::new(SpanContext::NONE, SpanContext::NONE, false);
        let text = |text: &str| Some(text.to_owned());
        let call = CallContents { arguments: text("{}"), result: text("none") };
        let result = ResultContents { tool: "a b".to_owned(), id: String::new(), text: "r".to_owned() };
        trace.contents = Some(Box::new(Contents {
            instructions: text("i"),
            input: text("[]"),
            input_left_out: 2,
            output: text("[1]"),
            calls: vec![call],
            results: vec![result],
        }));
        let spans = spans(&complete(), &trace, &InstrumentationScope::default());
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        let events = span.events.iter().map(|event| format!("{}\n{}", event.name, lines(&event.attributes)));
        let events: String = events.collect();
        let written = format!("{} {:?}\n{}{events}", span.name, span.status, lines(&span.attributes));
        assert_expected("span.txt", &written);
    }

    fn texts(attributes: &[KeyValue]) -> Vec<String> {
        attributes.iter().map(|attribute| attribute.value.to_string()).collect()
    }

    #[test]
    fn hostile_names_are_bounded_and_so_is_their_number() {
        let hostile = format!("x\n\u{202e}{}", "y".repeat(10_000));
        let mut record = RequestRecord::new(Route::Chat);
        record.model = Some(hostile.clone());
        record.response_model = Some(hostile.clone());
        record.conversation = Some(hostile.clone());
        record.path.clone_from(&hostile);
        record.act(On::Reply, "loops", hostile.clone(), 1);
        let decision = |policy, reason| PolicyDecision { policy, reason, ..PolicyDecision::default() };
        let decisions = vec![decision("loops", "LOOP"), decision("budget", "BUDGET")];
        let call = JudgedCall {
            tool: hostile.clone(),
            id: hostile,
            verdict: Verdict::Block,
            unjudged: false,
            decisions,
            is_spoken: true,
            new_arguments: None,
        };
        record.judged = vec![call; 1_000];
        let trace = Trace::new(SpanContext::NONE, SpanContext::NONE, false);
        let spans = spans(&record, &trace, &InstrumentationScope::default());
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!((span.events.len(), span.events.dropped_count), (MOST_EVENTS, 1_000 - 128));
        let of_events = span.events.iter().flat_map(|event| texts(&event.attributes));
        let all = texts(&span.attributes).into_iter().chain(of_events).chain([span.name.to_string()]);
        for text in all {
            let is_plain = !text.chars().any(|c| c.is_control() || c == '\u{202e}');
            assert!(text.chars().count() <= MAX_CHARS + 10 && is_plain, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let trace = Trace::new(SpanContext::NONE, SpanContext::NONE, false);
        let record = RequestRecord::new(Route::Chat);
        let span = &spans(&record, &trace, &InstrumentationScope::default())[0];
        let keys: Vec<&str> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(keys, ["gen_ai.operation.name", "gen_ai.provider.name", "toolrein.endpoint"]);
        assert_eq!((span.name.as_ref(), &span.status), ("chat", &Status::Unset));
    }
}
