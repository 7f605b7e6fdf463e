//! A collector for the tests: OTLP over HTTP, decoded by the published protobufs. Keeps the spans, and what came beside
//! them; checks the form of each export.

use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::until;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use prost::Message as _;
use serde_json::{Value, json};

/// See the file's head.
pub struct Collector(Scripted);

impl Collector {
    /// One that takes everything.
    pub fn start() -> Self {
        Self::answering(|_| taken())
    }

    /// One that answers its n-th export (from 0) so.
    pub fn answering(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Self {
        Self(Scripted::start(move |nth, _| answer(nth)))
    }

    /// The settings that send traces to it.
    pub fn settings(&self, more: &str) -> String {
        settings(&self.0.origin(), more)
    }

    /// The exports so far.
    pub fn exports(&self) -> Vec<Recorded> {
        self.0.requests()
    }

    /// The spans so far, in the order of their arrival.
    pub fn spans(&self) -> Vec<Span> {
        let scopes = self.exports().into_iter().flat_map(|export| {
            assert_eq!((export.method.as_str(), export.path.as_str()), ("POST", "/v1/traces"));
            assert_eq!(export.header("content-type"), Some("application/x-protobuf"));
            decoded(&export).resource_spans.into_iter().flat_map(|resource| {
                let of = resource.resource.unwrap().attributes;
                assert_eq!(attribute(&of, "service.name"), json!("agents-of-the-tests"), "{of:?}");
                resource.scope_spans
            })
        });
        scopes.flat_map(|scope| scope.spans).collect()
    }

    /// The trace of the `nth` request whose own span came: that span, and the others by their beginning.
    pub fn trace(&self, nth: usize) -> Trace {
        until("the span of the request", || {
            let spans = self.spans();
            let request = spans.iter().filter(|span| is_request(span)).nth(nth)?.clone();
            let mut steps: Vec<Span> =
                spans.into_iter().filter(|span| span.parent_span_id == request.span_id).collect();
            steps.sort_by_key(|span| span.start_time_unix_nano);
            assert!(steps.iter().all(|step| step.trace_id == request.trace_id), "{steps:?}");
            Some(Trace { request, steps })
        })
    }
}

/// The settings that send traces to the collector at `origin`.
pub fn settings(origin: &str, more: &str) -> String {
    format!(
        "[telemetry]\nper_tool = true\n[telemetry.traces]\nendpoint = {origin:?}\nservice_name = \"agents-of-the-tests\"\n{more}\n"
    )
}

/// The answer of a collector that has taken everything.
pub fn taken() -> Reply {
    Reply::bytes(200, "application/x-protobuf", "")
}

/// What an export holds.
pub fn decoded(export: &Recorded) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(export.body.as_slice()).expect("protobufs of OTLP")
}

/// A request's own span is of kind server.
fn is_request(span: &Span) -> bool {
    span.kind == 2
}

/// The spans of one request.
#[derive(Debug)]
pub struct Trace {
    pub request: Span,
    pub steps: Vec<Span>,
}

impl Trace {
    /// The names of the steps in order.
    pub fn names(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.name.as_str()).collect()
    }

    /// The first step of this name.
    pub fn step(&self, name: &str) -> &Span {
        self.steps.iter().find(|step| step.name == name).unwrap_or_else(|| panic!("{name}: {self:#?}"))
    }

    /// An attribute of the request's span.
    pub fn says(&self, key: &str) -> Value {
        of(&self.request, key)
    }

    /// The calls of the reply: tool, verdict, policy.
    pub fn calls(&self) -> Vec<(Value, Value, Value)> {
        let key = |event: &Event, key: &str| attribute(&event.attributes, key);
        let calls = self.request.events.iter().inspect(|event| assert_eq!(event.name, "tool_call"));
        let parts = ["gen_ai.tool.name", "toolrein.verdict", "toolrein.policy"];
        calls.map(|event| (key(event, parts[0]), key(event, parts[1]), key(event, parts[2]))).collect()
    }
}

/// An attribute of a span; null where it has none.
pub fn of(span: &Span, key: &str) -> Value {
    attribute(&span.attributes, key)
}

/// The attribute `key`; null where there is none.
pub fn attribute(attributes: &[KeyValue], key: &str) -> Value {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    found.and_then(|found| found.value.as_ref()).map_or(Value::Null, as_json)
}

fn as_json(value: &AnyValue) -> Value {
    match value.value.as_ref() {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(holds)) => json!(holds),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::ArrayValue(list)) => list.values.iter().map(as_json).collect(),
        _ => Value::Null,
    }
}

/// Lower hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The program before `upstream`, with traces for `collector`.
pub fn program(upstream: &Scripted, collector: &Collector, policies: &str) -> Toolrein {
    Toolrein::before(upstream, &collector.settings(policies))
}
