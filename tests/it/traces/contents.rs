//! What a trace does not contain: texts, arguments, results, credentials. And what it contains where that is allowed.

use crate::support::client::{Request, get};
use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;
use crate::traces::collector::{Collector, Trace, attribute, program};
use crate::traces::requests::{Endpoint, in_all_forms};
use serde_json::{Value, json};

fn holds(bytes: &[u8], needle: &str) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[test]
fn nothing_of_what_was_said_and_no_credential_is_in_a_trace() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |_, request| {
            endpoint.says(request, "s3cr3t text", &[("call_1", "{\"a\":\"s3cr3t\"}")])
        });
        let collector = Collector::start();
        let toolrein = program(&upstream, &collector, "[policy.budget]\n");
        endpoint.ask(&toolrein, stream, &[("x-extra", "s3cr3t")]);
        assert_eq!(collector.trace(0).calls().len(), 1);
        for export in collector.exports() {
            // The key is the test client's.
            for secret in ["s3cr3t", "sk-test"] {
                assert!(!holds(&export.body, secret), "{}", String::from_utf8_lossy(&export.body));
            }
        }
    });
}

#[test]
fn the_collectors_headers_come_from_the_environment_and_are_shown_nowhere() {
    let upstream = Scripted::start(|_, request| Endpoint::Chat.says(request, "Hello.", &[]));
    let collector = Collector::start();
    let headers = "headers = { authorization = \"OTLP_AUTH\", x-tenant = \"OTLP_TENANT\" }\n";
    let variables = [("OTLP_AUTH", "Bearer s3cr3t"), ("OTLP_TENANT", "blue")];
    let settings = format!("log.level = \"trace\"\n{}", collector.settings(headers));
    let toolrein = Toolrein::before_in(&upstream, &settings, &variables);
    Endpoint::Chat.ask(&toolrein, false, &[]);
    collector.trace(0);
    let export = collector.exports().remove(0);
    assert_eq!(
        (export.header("authorization"), export.header("x-tenant")),
        (Some("Bearer s3cr3t"), Some("blue"))
    );
    let config = get(&format!("{}/config", toolrein.admin_url())).text();
    assert!(config.contains("OTLP_AUTH") && !config.contains("s3cr3t"), "{config}");
    let logs = toolrein.stop().join("\n");
    assert!(!logs.contains("s3cr3t"), "{logs}");
}

/// A program whose traces have contents, and which blocks every call of the conversation `stopped`.
fn with_contents(upstream: &Scripted, collector: &Collector) -> Toolrein {
    program(upstream, collector, "contents = true\n[policy.kill]\nconversations = [\"stopped\"]\n")
}

/// A request that follows the first one: the call's result, of this text.
fn followed(endpoint: Endpoint, stream: bool, result: &str) -> Value {
    let mut body = endpoint.question(stream);
    let (list, more) = match endpoint {
        Endpoint::Chat => {
            let function = json!({"name": "f", "arguments": "{\"to\":\"ben@example.org\"}"});
            let call = json!({"id": "call_1", "type": "function", "function": function});
            let made = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            ("messages", [made, json!({"role": "tool", "tool_call_id": "call_1", "content": result})])
        }
        Endpoint::Responses => (
            "input",
            [
                json!({"type": "function_call", "call_id": "call_1", "name": "f",
                    "arguments": "{\"to\":\"ben@example.org\"}"}),
                json!({"type": "function_call_output", "call_id": "call_1", "output": result}),
            ],
        ),
    };
    body[list].as_array_mut().unwrap().extend(more);
    body
}

fn send(program: &Toolrein, endpoint: Endpoint, conversation: &str, body: &Value) {
    let request = Request::post(&format!("{}{}", program.origin(), endpoint.path()), body.to_string());
    let response = request.header("x-toolrein-conversation", conversation).send();
    assert_eq!(response.status, 200, "{}", response.text());
}

fn parsed(json: &Value) -> Value {
    serde_json::from_str(json.as_str().unwrap_or_else(|| panic!("no text: {json}"))).unwrap()
}

/// The placeholder of the address in the result that the client sent, once the input has the form of the conventions.
fn of_input(input: &Value) -> String {
    let roles: Vec<&str> =
        input.as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"], "{input}");
    assert_eq!(input[0]["parts"], json!([{"type": "text", "content": "s3cr3t question"}]));
    let call = &input[1]["parts"][0];
    let named = (&call["type"], &call["id"], &call["name"]);
    assert_eq!(named, (&json!("tool_call"), &json!("call_1"), &json!("f")));
    let result = &input[2]["parts"][0];
    assert_eq!((&result["type"], &result["id"]), (&json!("tool_call_response"), &json!("call_1")));
    let anna = result["response"].as_str().unwrap().strip_suffix(" wrote").unwrap();
    assert!(anna.starts_with("[EMAIL_"), "{input}");
    anna.to_owned()
}

fn holds_output(output: &Value, anna: &str) {
    let last = output.as_array().unwrap().last().unwrap();
    assert_eq!((&last["role"], &last["finish_reason"]), (&json!("assistant"), &json!("tool_call")));
    assert_eq!(output[0]["parts"][0], json!({"type": "text", "content": format!("Written to {anna}.")}));
    assert_eq!(last["parts"].as_array().unwrap().last().unwrap()["arguments"], json!({"to": anna}));
}

fn holds_events(trace: &Trace, anna: &str) {
    let events = &trace.request.events;
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["tool_result", "tool_call"]);
    let says = |at: usize, key: &str| attribute(&events[at].attributes, key);
    assert_eq!(says(0, "gen_ai.tool.name"), "f");
    assert_eq!(says(0, "gen_ai.tool.call.id"), "call_1");
    assert_eq!(says(0, "gen_ai.tool.call.result"), format!("{anna} wrote"));
    assert_eq!(parsed(&says(1, "gen_ai.tool.call.arguments")), json!({"to": anna}));
    assert_eq!(says(1, "gen_ai.tool.call.result"), Value::Null, "the tool's own is not known yet");
}

#[test]
fn contents_that_are_allowed_are_redacted_and_have_the_conventions_form() {
    in_all_forms(|endpoint, stream| {
        let call = ("call_2", "{\"to\":\"anna@example.org\"}");
        let upstream = Scripted::start(move |_, request| {
            endpoint.says(request, "Written to anna@example.org.", &[call])
        });
        let collector = Collector::start();
        let toolrein = with_contents(&upstream, &collector);
        send(&toolrein, endpoint, "c", &followed(endpoint, stream, "anna@example.org wrote"));
        let trace = collector.trace(0);
        let anna = of_input(&parsed(&trace.says("gen_ai.input.messages")));
        holds_output(&parsed(&trace.says("gen_ai.output.messages")), &anna);
        holds_events(&trace, &anna);
        for export in collector.exports() {
            for secret in ["anna@", "ben@", "sk-test"] {
                assert!(!holds(&export.body, secret), "{}", String::from_utf8_lossy(&export.body));
            }
        }
    });
}

#[test]
fn a_blocked_calls_event_has_its_arguments_and_the_result_that_the_model_read() {
    in_all_forms(|endpoint, stream| {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => endpoint.says(request, "", &[("call_1", "{\"to\":\"anna@example.org\"}")]),
            _ => endpoint.says(request, "I stop.", &[]),
        });
        let collector = Collector::start();
        let toolrein = with_contents(&upstream, &collector);
        send(&toolrein, endpoint, "stopped", &endpoint.question(stream));
        let trace = collector.trace(0);
        let event = &trace.request.events[0];
        let says = |key: &str| attribute(&event.attributes, key);
        assert_eq!(says("toolrein.verdict"), "block");
        let arguments = parsed(&says("gen_ai.tool.call.arguments"));
        assert!(arguments["to"].as_str().unwrap().starts_with("[EMAIL_"), "{arguments}");
        assert_eq!(parsed(&says("gen_ai.tool.call.result"))["meta"]["policy"], "kill");
        let output = parsed(&trace.says("gen_ai.output.messages"));
        assert_eq!(
            output[0]["parts"],
            json!([{"type": "text", "content": "I stop."}]),
            "what the client got"
        );
        assert_eq!(output[0]["finish_reason"], "stop");
    });
}

#[test]
fn contents_are_bounded_and_what_is_missing_is_announced() {
    let upstream = Scripted::start(|_, request| Endpoint::Chat.says(request, &"a".repeat(20_000), &[]));
    let collector = Collector::start();
    let toolrein = with_contents(&upstream, &collector);
    let mut body = Endpoint::Chat.question(false);
    let said = |text: String| json!({"role": "user", "content": text});
    // The last one ends in a value that a cut before it is redacted would leave half of.
    let long = format!("{}anna@example.org", "x ".repeat(1_996));
    let texts = [vec!["z".repeat(300 << 10)], vec!["y".repeat(5_000); 20], vec![long]].concat();
    body["messages"] = texts.into_iter().map(said).collect();
    send(&toolrein, Endpoint::Chat, "c", &body);
    let trace = collector.trace(0);
    let input = trace.says("gen_ai.input.messages");
    assert!(
        (20_000..=32 << 10).contains(&input.as_str().unwrap().len()),
        "{}",
        input.as_str().unwrap().len()
    );
    let input = parsed(&input);
    let kept = input.as_array().unwrap().len();
    assert_eq!(trace.says("toolrein.messages_left_out"), json!(22 - kept));
    let text = |message: &Value| message["parts"][0]["content"].as_str().unwrap().to_owned();
    assert!(text(&input[0]).ends_with("y… [1000 bytes left out]"), "{}", text(&input[0]));
    let last = text(&input[kept - 1]);
    assert!(last.contains("x [EMAIL") && !last.contains("anna"), "{last}");
    let output = parsed(&trace.says("gen_ai.output.messages"));
    assert!(text(&output[0]).ends_with("a… [16000 bytes left out]"));
}

#[test]
fn what_is_too_long_to_be_redacted_is_left_out_whole() {
    let upstream = Scripted::start(|_, request| Endpoint::Chat.says(request, "Hello.", &[]));
    let collector = Collector::start();
    let toolrein = with_contents(&upstream, &collector);
    let mut body = Endpoint::Chat.question(false);
    body["messages"][0]["content"] = json!("z".repeat(300 << 10));
    send(&toolrein, Endpoint::Chat, "c", &body);
    let input = parsed(&collector.trace(0).says("gen_ai.input.messages"));
    assert_eq!(input[0]["parts"][0]["content"], "[307200 bytes left out]");
}
