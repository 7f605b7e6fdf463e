//! Broken histories that strict upstreams refuse are repaired once, and remembered; tools that are refused in streams
//! alone are asked for without streaming, and the client gets its stream.

use crate::support::client::{Request, post};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, search, text};
use mock::strict::violations;
use serde_json::{Value, json};

const PAIRS: &str = "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
                     'tool_call_id'. The following tool_call_ids did not have response messages: a";
const ARGUMENTS: &str =
    "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error";
const STREAMS: &str = "This model doesn't support tool use in streaming mode.";

/// An upstream that refuses what OpenAI refuses, by status or at the head of its stream.
fn strict(in_stream: bool) -> Scripted {
    Scripted::start(move |_, request| {
        if violations(&request.body).is_empty() {
            return text("Fine.", request);
        }
        let is_stream = in_stream && request.json()["stream"] == true;
        match is_stream {
            true => {
                Reply::stream([format!("data: {}\n\n", json!({"error": {"message": PAIRS, "code": 400}}))])
            }
            false => Reply::error(400, "invalid_request_error", "bad", PAIRS),
        }
    })
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "search", "arguments": arguments}})
}

fn calling(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": format!("found {id}")})
}

fn talk_with(form: Form, messages: &[Value]) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages.extend_from_slice(messages);
    talk
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

#[test]
fn calls_without_results_and_results_without_calls_are_repaired_once_and_then_at_once() {
    in_both_forms(|form| {
        for in_stream in [false, true] {
            let upstream = strict(in_stream);
            let program = Toolrein::before(&upstream, "");
            let broken = [
                calling(&[call("a", "{}"), call("b", "{}")]),
                result("b"),
                json!({"role": "user", "content": "Go on."}),
                result("x"),
            ];
            let mut talk = talk_with(form, &broken);
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.text, "Fine.");
            let first = messages(&upstream.request(1));
            assert_eq!(violations(&upstream.request(1).body), Vec::<String>::new());
            assert_eq!(first[2], broken[1], "the result that is there stays");
            let unknown: Value = serde_json::from_str(first[3]["content"].as_str().unwrap()).unwrap();
            assert_eq!((&first[3]["tool_call_id"], &unknown["ok"]), (&json!("a"), &json!(false)));
            assert_eq!(unknown["error"]["type"], "RESULT_UNKNOWN");
            assert_eq!(unknown["meta"]["by"], "toolrein");
            assert_eq!(first[5]["role"], "user");
            assert!(first[5]["content"].as_str().unwrap().ends_with("found x"), "{}", first[5]);
            // The next request of the conversation goes out repaired, in the same way.
            talk.add(&said);
            talk.say("And?");
            assert_eq!(talk.ask(&program).text, "Fine.");
            let next = messages(&upstream.request(2));
            assert_eq!(next[..first.len()], first, "the history is a prefix");
            assert_eq!(upstream.requests().len(), 3, "repaired at once");
            // A healthy conversation with the same model goes out as it came.
            let healthy = talk_with(form, &[calling(&[call("a", "{ }")]), result("a")]);
            healthy.ask(&program);
            assert_eq!(upstream.request(3).body, healthy.body().to_string().as_bytes());
            program.wait_for_metric("toolrein_fallbacks_total{kind=\"repaired_pairs\"}", 1.0);
        }
    });
}

/// What DeepSeek and Moonshot answer in their thinking modes.
const REASONING: [&str; 2] = [
    "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
];

#[test]
fn reasoning_that_the_client_does_not_send_back_becomes_a_blank_and_what_it_sends_stays() {
    in_both_forms(|form| {
        for refusal in REASONING {
            let upstream = Scripted::start(move |_, request| {
                let all = messages(request);
                let is_thought =
                    |message: &Value| message["reasoning_content"].as_str().is_some_and(|it| !it.is_empty());
                match all.iter().filter(|message| message["role"] == "assistant").all(is_thought) {
                    true => text("Fine.", request),
                    false => Reply::error(400, "invalid_request_error", "bad", refusal),
                }
            });
            let program = Toolrein::before(&upstream, "");
            let mut known = calling(&[call("b", "{}")]);
            known["reasoning_content"] = json!("b is next.");
            let history = [calling(&[call("a", "{}")]), result("a"), known, result("b")];
            let mut talk = talk_with(form, &history);
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.text, "Fine.");
            let first = messages(&upstream.request(1));
            assert_eq!((&first[1]["reasoning_content"], &first[3]), (&json!(" "), &history[2]));
            talk.add(&said);
            talk.say("And?");
            assert_eq!(talk.ask(&program).text, "Fine.");
            assert_eq!(messages(&upstream.request(2))[..first.len()], first, "the history is a prefix");
            assert_eq!(upstream.requests().len(), 3, "added at once");
            program.wait_for_metric("toolrein_fallbacks_total{kind=\"blank_reasoning\"}", 1.0);
        }
    });
}

#[test]
fn what_was_repaired_is_reported() {
    let upstream = strict(false);
    let program = Toolrein::before(&upstream, "");
    let talk =
        talk_with(Form::Whole, &[calling(&[call("a", "{}")]), json!({"role": "user", "content": "?"})]);
    for _ in 0..2 {
        let said = talk.ask(&program);
        let actions = said.response.header("x-toolrein-actions").unwrap().to_owned();
        assert!(actions.contains("broken_history=repaired"), "{actions}");
    }
}

#[test]
fn arguments_that_are_no_json_are_wrapped() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let calls =
                messages(request).into_iter().filter_map(|message| message["tool_calls"].as_array().cloned());
            let is_sound = |call: Value| {
                let arguments = call["function"]["arguments"].as_str().unwrap().to_owned();
                serde_json::from_str::<Value>(&arguments).is_ok_and(|arguments| arguments.is_object())
            };
            match calls.flatten().all(is_sound) {
                true => text("Fine.", request),
                false => Reply::error(500, "server_error", "500", ARGUMENTS),
            }
        });
        let program = Toolrein::before(&upstream, "");
        let talk = talk_with(form, &[calling(&[call("a", "{\"q\": \"unfin")]), result("a")]);
        for requests in [2, 3] {
            assert_eq!(talk.ask(&program).text, "Fine.");
            assert_eq!(upstream.requests().len(), requests);
            let sent = &messages(&upstream.request(requests - 1))[1]["tool_calls"][0];
            let arguments: Value =
                serde_json::from_str(sent["function"]["arguments"].as_str().unwrap()).unwrap();
            assert_eq!(arguments, json!({"invalid_arguments": "{\"q\": \"unfin"}));
            assert_eq!(sent["id"], "a");
        }
        program.wait_for_metric("toolrein_fallbacks_total{kind=\"repaired_arguments\"}", 1.0);
    });
}

#[test]
fn where_repairing_is_of_no_use_or_not_wanted_the_refusal_is_passed_on_at_once() {
    let broken = [calling(&[call("a", "{}")]), json!({"role": "user", "content": "?"})];
    let healthy = [calling(&[call("a", "{}")]), result("a")];
    in_both_forms(|form| {
        for (settings, messages, error) in [
            ("upstream.broken_history = \"pass\"\n", &broken[..], PAIRS),
            ("mode = \"observe\"\n", &broken, PAIRS),
            ("", &healthy, PAIRS),
            ("", &healthy, ARGUMENTS),
            ("", &broken, "Invalid schema for function 'search'"),
        ] {
            let upstream =
                Scripted::start(move |_, _| Reply::error(400, "invalid_request_error", "bad", error));
            let program = Toolrein::before(&upstream, settings);
            let response = post(&program.chat_url(), talk_with(form, messages).body().to_string());
            assert_eq!((response.status, response.json()["error"]["message"].as_str()), (400, Some(error)));
            assert_eq!(upstream.requests().len(), 1, "{settings} {error}");
        }
    });
}

#[test]
fn a_repair_that_does_not_help_is_tried_once_a_request_and_never_remembered() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, _| Reply::error(400, "invalid_request_error", "bad", PAIRS));
        let program = Toolrein::before(&upstream, "");
        let talk = talk_with(form, &[calling(&[call("a", "{}")]), json!({"role": "user", "content": "?"})]);
        // As a client that tries again twice: each of its tries is sent once more, and no oftener.
        for requests in [2, 4, 6] {
            assert_eq!(post(&program.chat_url(), talk.body().to_string()).status, 400);
            assert_eq!(upstream.requests().len(), requests);
        }
        let first = talk.body()["messages"].clone();
        assert_eq!(upstream.request(2).json()["messages"], first, "nothing was learned");
    });
}

#[test]
fn a_rate_limit_after_the_repair_goes_to_the_client_whose_retry_is_repaired_anew() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 2 => Reply::error(400, "invalid_request_error", "bad", PAIRS),
            1 => Reply::error(429, "requests", "rate_limit_exceeded", "slow down").header("retry-after", "1"),
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, "");
        let talk = talk_with(form, &[calling(&[call("a", "{}")]), json!({"role": "user", "content": "?"})]);
        let response = post(&program.chat_url(), talk.body().to_string());
        assert_eq!((response.status, response.header("retry-after")), (429, Some("1")));
        assert_eq!(talk.ask(&program).text, "Fine.");
        assert_eq!(upstream.requests().len(), 4);
    });
}

#[test]
fn all_fallbacks_together_are_three() {
    let upstream = Scripted::start(|nth, _| {
        let error =
            [PAIRS, ARGUMENTS, "x does not support tools", "Messages with role 'tool' are not supported"];
        Reply::error(400, "invalid_request_error", "bad", error[nth.min(3)])
    });
    let program = Toolrein::before(&upstream, "");
    let talk = talk_with(Form::Whole, &[calling(&[call("a", "{")]), json!({"role": "user", "content": "?"})]);
    assert_eq!(post(&program.chat_url(), talk.body().to_string()).status, 400);
    assert_eq!(upstream.requests().len(), 4);
}

/// An upstream whose model takes tools, but not in streams.
fn unstreamed(
    in_stream: bool,
    script: impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(move |nth, request| {
        let body = request.json();
        match body["stream"] == true && body.get("tools").is_some() {
            true if in_stream => {
                Reply::stream([format!("event: error\ndata: {}\n\n", json!({"error": {"message": STREAMS}}))])
            }
            true => Reply::error(400, "invalid_request_error", "bad", STREAMS),
            false => script(nth, request),
        }
    })
}

#[test]
fn tools_that_are_refused_in_streams_are_asked_for_whole_and_the_client_gets_a_stream() {
    for in_stream in [false, true] {
        let upstream =
            unstreamed(in_stream, |nth, request| search(nth, request).header("x-request-id", "up-1"));
        let program = Toolrein::before(&upstream, "");
        let talk = Talk::new(Form::Streamed);
        let said = talk.ask(&program);
        said.assert_coherent(Form::Streamed);
        assert_eq!((said.calls[0].1.as_str(), said.finishes[0].as_str()), ("search", "tool_calls"));
        assert!(said.usage["total_tokens"].is_u64(), "it was asked for");
        assert_eq!(said.response.header("content-type"), Some("text/event-stream"));
        assert!(said.response.header("content-length").is_none());
        let retried = upstream.request(1).json();
        assert_eq!((&retried["stream"], &retried["stream_options"]), (&json!(false), &Value::Null));
        assert!(retried.get("tools").is_some());
        // The next request is asked for whole at once.
        let mut talk = talk;
        talk.members["stream_options"] = Value::Null;
        let mut body = talk.body();
        body.as_object_mut().unwrap().remove("stream_options");
        let response = Request::post(&program.chat_url(), body.to_string()).send();
        assert_eq!(upstream.requests().len(), 3);
        assert_eq!(response.header("x-request-id"), Some("up-1"), "the upstream's head");
        assert!(response.text().contains("\"tool_calls\"") && response.text().ends_with("data: [DONE]\n\n"));
        assert!(!response.text().contains("\"usage\""), "not asked for: {}", response.text());
        program.wait_for_metric("toolrein_fallbacks_total{kind=\"streaming\"}", 1.0);
        upstream.assert_clean();
    }
}

#[test]
fn streams_without_tools_and_whole_replies_of_such_a_model_are_not_touched() {
    let upstream = unstreamed(false, |_, request| text("Fine.", request));
    let program = Toolrein::before(&upstream, "");
    assert_eq!(Talk::new(Form::Streamed).ask(&program).text, "Fine.");
    let mut plain = Talk::new(Form::Streamed);
    plain.members.as_object_mut().unwrap().remove("tools");
    assert_eq!(plain.ask(&program).text, "Fine.");
    assert_eq!(upstream.request(2).body, plain.body().to_string().as_bytes());
    let whole = Talk::new(Form::Whole);
    assert_eq!(whole.ask(&program).text, "Fine.");
    assert_eq!(upstream.request(3).body, whole.body().to_string().as_bytes());
}

#[test]
fn a_blocked_call_in_a_whole_reply_for_a_stream_is_asked_again_in_one_stream() {
    let upstream = unstreamed(false, |nth, request| match nth {
        1 => search(nth, request),
        _ => text("Then not.", request),
    });
    let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"search\"]\n");
    let said = Talk::new(Form::Streamed).ask(&program);
    said.assert_coherent(Form::Streamed);
    assert_eq!((said.text.as_str(), said.calls.len()), ("Then not.", 0));
    assert_eq!(upstream.request(2).json()["stream"], false);
}

#[test]
fn an_error_after_the_streamed_form_was_left_keeps_its_status() {
    for reply in [
        Reply::error(429, "requests", "rate_limit_exceeded", "slow down"),
        Reply::error(200, "server_error", "bad", "The server is overloaded."),
    ] {
        let status = reply.status;
        let upstream = unstreamed(false, move |_, _| reply.clone());
        let program = Toolrein::before(&upstream, "");
        let response = post(&program.chat_url(), Talk::new(Form::Streamed).body().to_string());
        assert_eq!(response.status, status);
        assert!(response.json()["error"]["message"].is_string());
        assert_eq!(upstream.requests().len(), 2);
    }
}

#[test]
fn several_choices_come_as_several_choices_of_the_stream() {
    let upstream = unstreamed(false, |_, _| Reply::choices(&[("a", "search"), ("b", "fetch")]));
    let program = Toolrein::before(&upstream, "");
    let mut talk = Talk::new(Form::Streamed);
    talk.members["n"] = json!(2);
    let response = post(&program.chat_url(), talk.body().to_string());
    for name in ["search", "fetch"] {
        assert!(response.text().contains(&format!("\"name\":\"{name}\"")), "{}", response.text());
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_for_the_whole_reply_ends_the_request() {
    let gate = Gate::shut();
    let upstream =
        unstreamed(false, move |_, request| Reply::speech(request, &Speech::text("late")).held(&gate));
    let program = Toolrein::before(&upstream, "");
    let body = Talk::new(Form::Streamed).body().to_string();
    let mut connection = crate::support::client::Connection::open(&program.chat_url());
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write(head.as_bytes());
    crate::support::until("the second request", || (upstream.requests().len() == 2).then_some(()));
    drop(connection);
    upstream.wait_for_hang_up(1);
}
