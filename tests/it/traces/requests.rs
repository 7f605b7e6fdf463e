//! One span for each governed request, in the caller's trace, with the names of the semantic conventions; over both
//! endpoints, whole and streamed.

use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::responses::Output;
use crate::support::scripted::{Recorded, Scripted};
use crate::traces::collector::{Collector, hex, of, program};
use serde_json::{Value, json};

/// The trace and the span of a caller.
pub const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub const PARENT: &str = "00f067aa0ba902b7";

/// A `traceparent` of the caller, sampled or not.
pub fn traceparent(sampled: bool) -> String {
    format!("00-{TRACE}-{PARENT}-0{}", u8::from(sampled))
}

/// The two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Chat,
    Responses,
}

impl Endpoint {
    pub const BOTH: [Self; 2] = [Self::Chat, Self::Responses];

    /// The last part of its path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
        }
    }

    /// A question of a client with one tool, `f`.
    pub fn question(self, stream: bool) -> Value {
        let asked = json!([{"role": "user", "content": "s3cr3t question"}]);
        let parameters = json!({"type": "object"});
        match self {
            Self::Chat => {
                let tools =
                    json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
                let mut body = json!({"model": "m", "stream": stream, "messages": asked, "tools": tools});
                if stream {
                    body["stream_options"] = json!({"include_usage": true});
                }
                body
            }
            Self::Responses => json!({"model": "m", "stream": stream, "input": asked, "tools":
                [{"type": "function", "name": "f", "parameters": parameters, "strict": false}]}),
        }
    }

    /// The model says `text` and makes calls: id and arguments of each.
    pub fn says(self, request: &Recorded, text: &str, calls: &[(&str, &str)]) -> Reply {
        let calls: Vec<_> = calls.iter().map(|(id, arguments)| (*id, "f", *arguments)).collect();
        match self {
            Self::Chat => Reply::speech(request, &Speech { text: text.into(), ..Speech::calls(&calls) }),
            Self::Responses => {
                let output = if text.is_empty() { Output::new("r") } else { Output::text("r", text) };
                calls
                    .iter()
                    .fold(output, |output, (id, tool, arguments)| output.call(id, tool, arguments))
                    .reply(request)
            }
        }
    }

    /// Asks over this endpoint with further headers, reads the whole reply, and checks that it is a success.
    pub fn ask(self, program: &Toolrein, stream: bool, headers: &[(&str, &str)]) -> Response {
        let url = format!("{}{}", program.origin(), self.path());
        let request = Request::post(&url, self.question(stream).to_string());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let response = request.send();
        assert_eq!(response.status, 200, "{}", response.text());
        response
    }
}

/// Every endpoint, whole and streamed.
pub fn in_all_forms(test: impl Fn(Endpoint, bool)) {
    for endpoint in Endpoint::BOTH {
        for stream in [false, true] {
            test(endpoint, stream);
        }
    }
}

#[test]
fn a_request_is_one_span_in_its_callers_trace_with_the_upstream_request_within() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| endpoint.says(request, "Hello.", &[]));
        let collector = Collector::start();
        let toolrein = program(&upstream, &collector, "");
        let parent = traceparent(true);
        let headers = [
            ("traceparent", parent.as_str()),
            ("tracestate", "vendor=1"),
            ("x-request-id", "r-1"),
            ("x-toolrein-conversation", "c-1"),
        ];
        endpoint.ask(&toolrein, stream, &headers);
        let trace = collector.trace(0);
        let request = &trace.request;
        assert_eq!((hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()), (TRACE, PARENT));
        assert_eq!((request.name.as_str(), request.trace_state.as_str()), ("chat m", "vendor=1"));
        for (key, expected) in [
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.provider.name", json!("openai")),
            ("gen_ai.request.model", json!("m")),
            ("gen_ai.conversation.id", json!("c-1")),
            ("http.request.method", json!("POST")),
            ("url.path", json!(endpoint.path())),
            ("http.response.status_code", json!(200)),
            ("toolrein.request_id", json!("r-1")),
            ("toolrein.mode", json!("enforce")),
            ("error.type", Value::Null),
            ("toolrein.client_gone", Value::Null),
        ] {
            assert_eq!(trace.says(key), expected, "{key} of {endpoint:?}, streamed {stream}: {request:?}");
        }
        assert_eq!(trace.says("toolrein.streamed"), if stream { json!(true) } else { Value::Null });
        assert_eq!(trace.names(), ["upstream request"]);
        let step = trace.step("upstream request");
        assert_eq!((step.kind, of(step, "http.response.status_code")), (3, json!(200)));
        assert!(request.start_time_unix_nano <= step.start_time_unix_nano);
        assert!(step.start_time_unix_nano < step.end_time_unix_nano);
        assert!(step.end_time_unix_nano <= request.end_time_unix_nano, "{trace:#?}");
        let sent = upstream.request(0);
        assert_eq!(sent.header("traceparent"), Some(parent.as_str()), "unchanged");
        assert_eq!(sent.header("tracestate"), Some("vendor=1"));
        toolrein.wait_for_metric("toolrein_trace_spans_total{result=\"sent\"}", 2.0);
        assert_eq!(toolrein.metric("toolrein_trace_spans_total{result=\"lost\"}"), 0.0);
    });
}

#[test]
fn the_bill_is_in_the_span_under_the_conventions_names() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| endpoint.says(request, "Hello.", &[]));
        let collector = Collector::start();
        let toolrein = program(&upstream, &collector, "");
        endpoint.ask(&toolrein, stream, &[]);
        let trace = collector.trace(0);
        let says = |key: &str| trace.says(key);
        assert!(says("gen_ai.usage.input_tokens").as_i64().is_some_and(|tokens| tokens > 0), "{trace:#?}");
        assert!(says("gen_ai.usage.output_tokens").as_i64().is_some_and(|tokens| tokens > 0), "{trace:#?}");
        assert!(says("gen_ai.response.model").is_string(), "{trace:#?}");
        let tokens = ["input", "output"]
            .map(|kind| toolrein.metric(&format!("toolrein_tokens_total{{type=\"{kind}\"}}")) as i64);
        let told = ["input", "output"].map(|kind| says(&format!("gen_ai.usage.{kind}_tokens")));
        assert_eq!(told, tokens.map(|count| json!(count)), "the same as in the metrics");
    });
}

#[test]
fn what_is_only_relayed_has_no_span() {
    let upstream = Scripted::start(|_, request| Endpoint::Chat.says(request, "Hello.", &[]));
    let collector = Collector::start();
    let toolrein = program(&upstream, &collector, "");
    let relayed = Request::post(&format!("{}/v1/embeddings", toolrein.origin()), "{}");
    assert_eq!(relayed.header("traceparent", &traceparent(true)).send().status, 200);
    Endpoint::Chat.ask(&toolrein, false, &[]);
    toolrein.stop();
    assert_eq!(collector.spans().len(), 2, "{:#?}", collector.spans());
}

#[test]
fn an_error_of_toolreins_own_and_one_of_the_upstream_are_the_spans_error() {
    let error = Reply::error(500, "server_error", "down", "It is down.");
    let upstream = Scripted::queue([error, Reply::text("Hello.").cut_after(0)]);
    let collector = Collector::start();
    let toolrein = program(&upstream, &collector, "");
    let url = toolrein.chat_url();
    assert_eq!(Request::post(&url, Endpoint::Chat.question(false).to_string()).send().status, 500);
    let trace = collector.trace(0);
    assert_eq!(
        (trace.says("http.response.status_code"), trace.says("error.type")),
        (json!(500), json!("500"))
    );
    assert_eq!(trace.request.status.as_ref().map(|status| status.code), Some(2));
    let step = trace.step("upstream request");
    assert_eq!((of(step, "http.response.status_code"), of(step, "error.type")), (json!(500), json!("500")));
    let response = Request::post(&url, Endpoint::Chat.question(false).to_string()).send();
    let code = response.json()["error"]["code"].clone();
    let trace = collector.trace(1);
    assert_eq!(
        (trace.says("error.type"), of(trace.step("upstream request"), "error.type")),
        (code.clone(), code)
    );
}

#[test]
fn a_client_that_leaves_ends_its_span_and_the_upstream_request_with_it() {
    let gate = Gate::shut();
    let upstream =
        Scripted::start(move |_, request| Endpoint::Chat.says(request, "Hello.", &[]).held_after(1, &gate));
    let collector = Collector::start();
    let toolrein = program(&upstream, &collector, "");
    let mut stream = Request::post(&toolrein.chat_url(), Endpoint::Chat.question(true).to_string()).open();
    assert!(stream.next().unwrap().is_some(), "the reply has begun");
    stream.hang_up();
    let trace = collector.trace(0);
    assert_eq!(trace.says("toolrein.client_gone"), json!(true));
    let step = trace.step("upstream request");
    assert_eq!(step.end_time_unix_nano, trace.request.end_time_unix_nano);
}
