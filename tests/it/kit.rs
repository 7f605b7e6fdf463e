//! Tests of the test kit itself: the scripted upstream sends what its script says, records what was sent, and notes
//! what OpenAI would refuse. If this fails, no other test over sockets is reliable.

use crate::support;

use mock::strict::violations;
use serde_json::json;
use support::client::{Connection, Request, get, post};
use support::http1::Framing;
use support::reply::{Gate, Reply, Speech};
use support::scripted::Scripted;

fn chat(upstream: &Scripted) -> String {
    format!("{}/chat/completions", upstream.base_url())
}

#[test]
fn answers_come_in_the_order_of_the_queue_and_requests_are_kept_to_the_byte() {
    let upstream = Scripted::queue([Reply::text("one"), Reply::error(429, "requests", "rate", "slow down")]);
    let body = "{ \"model\":\"m\", \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\"}] }";
    assert_eq!(post(&chat(&upstream), body).json()["choices"][0]["message"]["content"], "one");
    let refused = post(&chat(&upstream), body);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (429, Some("rate")));
    assert_eq!(get(&upstream.origin()).status, 500, "the script is over");
    let seen = upstream.requests();
    assert_eq!(seen[0].body, body.as_bytes());
    assert_eq!((seen[2].method.as_str(), seen[2].path.as_str()), ("GET", "/"));
    assert_eq!(seen[0].header("authorization"), Some("Bearer sk-test"));
    upstream.assert_clean();
}

#[test]
fn a_gate_holds_a_stream_until_it_is_opened() {
    let gate = Gate::shut();
    let chunks = Speech::text("now later").chunks(false);
    let upstream = Scripted::queue([Reply::events(&chunks).held_after(2, &gate)]);
    let mut stream = Request::post(&chat(&upstream), "{}").open();
    let before = stream.until("now");
    assert!(!before.contains("later"));
    gate.open();
    let whole = stream.rest();
    assert_eq!(whole.streamed_text(), "now later");
    assert_eq!(whole.arrivals.len(), chunks.len() + 1, "one piece an event, and [DONE]");
    assert!(whole.arrivals.is_sorted_by_key(|(at, _)| *at) && !whole.cut);
}

#[test]
fn a_hang_up_at_a_gate_is_seen() {
    let upstream = Scripted::queue([Reply::stream(["data: 1\n\n"]).held_after(1, &Gate::shut())]);
    let mut stream = Request::post(&chat(&upstream), "{}").open();
    stream.until("data: 1");
    assert!(!upstream.request(0).hung_up());
    stream.hang_up();
    upstream.wait_for_hang_up(0);
}

#[test]
fn a_cut_reply_is_distinguished_from_a_whole_one() {
    let cut = Reply::stream(["data: 1\n\n", "data: 2\n\n"]).cut_after(1);
    let upstream = Scripted::queue([cut, Reply::stream(["data: 1\n\n"]), Reply::text("x").cut_after(0)]);
    let first = post(&chat(&upstream), "{}");
    assert_eq!((first.text().as_str(), first.cut), ("data: 1\n\n", true));
    assert!(!post(&chat(&upstream), "{}").cut);
    assert!(post(&chat(&upstream), "{}").cut, "a known length that is not reached");
}

#[test]
fn a_stream_can_be_cut_into_pieces_of_any_size() {
    let upstream = Scripted::queue([Reply::stream(["data: h\u{e9}\n\n"]).in_pieces_of(1)]);
    let response = post(&chat(&upstream), "{}");
    assert_eq!((response.text().as_str(), response.arrivals.len()), ("data: h\u{e9}\n\n", 11));
}

#[test]
fn a_connection_serves_requests_one_after_the_other_and_can_be_upgraded() {
    let upstream = Scripted::queue([Reply::text("one"), Reply::upgrade("echo")]);
    let mut connection = Connection::open(&upstream.origin());
    connection.write(&Request::post(&chat(&upstream), "{}").bytes());
    let mut first = connection.response();
    while first.next().unwrap().is_some() {}
    let mut connection = first.into_connection();
    connection.write(b"GET /ws HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    let upgraded = connection.response();
    assert_eq!(upgraded.status, 101);
    let mut connection = upgraded.into_connection();
    connection.write(b"ping");
    let echoed = Framing::Length(4).read_all(&mut connection.reader).unwrap();
    assert_eq!(echoed, b"ping");
}

#[test]
fn a_speech_is_streamed_only_where_that_is_asked_for() {
    let speech = Speech::calls(&[("c1", "f", "{\"a\":1}"), ("c2", "g", "{}")]);
    let upstream = Scripted::start(move |_, request| Reply::speech(request, &speech));
    let whole = post(&chat(&upstream), r#"{"model":"m","messages":[]}"#).json();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][1]["function"]["name"], "g");
    let asked = r#"{"stream":true,"stream_options":{"include_usage":true}}"#;
    let chunks = post(&chat(&upstream), asked).chunks();
    let parts = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]);
    let first = parts.filter(|part| part["index"] == 0);
    let arguments: String = first.filter_map(|part| part["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, "{\"a\":1}");
    assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], 25);
}

#[test]
fn what_openai_refuses_is_noted_and_what_it_takes_is_not() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]});
    let (user, system) = (json!({"role": "user", "content": "q"}), json!({"role": "system", "content": "s"}));
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let (unparsed, named) = (json!({"role": "assistant"}), json!([{"function": {"name": "f.g"}}]));
    let cases = [
        ("", json!({"messages": [user, calls, result("b"), result("a"), system], "tools": tools})),
        ("must be followed", json!({"messages": [user, calls, result("a"), system, result("b")]})),
        ("must be followed", json!({"messages": [user, calls, result("a")]})),
        ("must be a response", json!({"messages": [user, result("a")]})),
        ("must be a response", json!({"messages": [calls, result("a"), result("b"), result("a")]})),
        ("without content", json!({"messages": [unparsed]})),
        ("invalid content", json!({"messages": [{"role": "tool", "tool_call_id": "a", "content": null}]})),
        ("empty array", json!({"messages": [user], "tools": []})),
        ("'tools[].function.name'", json!({"messages": [user], "tools": named})),
        ("only allowed when 'tools'", json!({"messages": [user], "tool_choice": "none"})),
        (
            "not found in 'tools'",
            json!({"messages": [user], "tools": tools, "tool_choice": {"function": {"name": "h"}}}),
        ),
        (
            "json_schema.name",
            json!({"messages": [user], "response_format": {"json_schema": {"name": "a b"}}}),
        ),
        ("'stream_options'", json!({"messages": [user], "stream_options": {"include_usage": true}})),
    ];
    for (expected, mut body) in cases {
        body["model"] = json!("m");
        let found = violations(body.to_string().as_bytes());
        let noted = found.iter().any(|text| text.contains(expected));
        assert!(if expected.is_empty() { found.is_empty() } else { noted }, "{expected}: {found:?}");
    }
}
