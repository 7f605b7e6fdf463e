//! What toolrein writes into a conversation passes an upstream that accepts only what every provider accepts, at once and in
//! every later request: names, arguments and ids of blocked calls. Such an upstream refuses anything else with status 400.

use crate::governed::talk::{BOTH, chat};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit;
use crate::support::scripted::{Recorded, Scripted};
use mock::{strict, strict_responses};
use serde_json::{Value, json};

/// An upstream that refuses what some provider refuses, and else answers by `script`.
fn strict_upstream(script: impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |nth, request| {
        let found = match request.path.ends_with("/responses") {
            true => strict_responses::violations(&request.body),
            false => strict::violations(&request.body),
        };
        if found.is_empty() {
            return script(nth, request);
        }
        Reply::error(400, "invalid_request_error", "invalid_value", &found.join("; "))
    })
}

fn long_name() -> String {
    "open_".repeat(20)
}

/// Names that some provider refuses.
fn refused_names() -> Vec<String> {
    ["browser.tabs.open", "  ", "öffne", "a b", "multi:tool/use"]
        .map(str::to_owned)
        .into_iter()
        .chain([long_name()])
        .collect()
}

const BROKEN: &str = r#"{"path":"a.txt","text":"he said "hi""}"#;

/// Arguments that some parser refuses, and models write.
const NO_JSON: [&str; 5] =
    [BROKEN, "{\"text\":\"two\nlines\"}", "{\"n\":01}", "{\"text\":\"\\ud800\"}", "{\"n\":1e999}"];

/// A client of chat completions that declares `search` and `write_file`.
struct Chat {
    body: Value,
}

impl Chat {
    fn new(stream: bool) -> Self {
        let tool = |name: &str| {
            json!({"type": "function", "function": {"name": name, "parameters": {"type": "object",
            "properties": {"path": {"type": "string"}}}}})
        };
        let messages = json!([{"role": "user", "content": "q"}]);
        Self {
            body: json!({"model": "m", "stream": stream, "messages": messages, "tools": [tool("search"), tool("write_file")]}),
        }
    }

    fn add(&mut self, message: Value) {
        self.body["messages"].as_array_mut().unwrap().push(message);
    }

    fn ask(&self, toolrein: &Toolrein) -> String {
        let response = chat(toolrein, self.body.to_string());
        assert_eq!(response.status, 200, "{}", response.text());
        assert!(!response.text().contains("\"error\""), "{}", response.text());
        match self.body["stream"] == true {
            true => response.streamed_text(),
            false => {
                response.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
            }
        }
    }
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().cloned().unwrap_or_default()
}

/// Asks once, and then twice more: the later requests begin with what the first one ended with.
fn talk_on(upstream: &Scripted, toolrein: &Toolrein, stream: bool, asks: usize) -> Vec<Value> {
    let mut client = Chat::new(stream);
    let text = client.ask(toolrein);
    assert_eq!(text, "Done.");
    let shown = messages(&upstream.request(asks - 1));
    for _ in 0..2 {
        client.add(json!({"role": "assistant", "content": "Done."}));
        client.add(json!({"role": "user", "content": "And?"}));
        let nth = upstream.requests().len();
        client.ask(toolrein);
        assert_eq!(
            messages(&upstream.request(nth))[..shown.len()],
            shown[..],
            "the same bytes at the same place"
        );
    }
    upstream.assert_clean();
    shown
}

#[test]
fn chat_a_name_that_providers_refuse_becomes_an_accepted_one_and_the_model_is_told_which_does_not_exist() {
    for stream in BOTH {
        for name in refused_names() {
            let made = name.clone();
            let upstream = strict_upstream(move |nth, request| match nth {
                0 => Reply::speech(request, &Speech::calls(&[("call_a", &made, "{\"u\":1}")])),
                _ => Reply::speech(request, &Speech::text("Done.")),
            });
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
            let shown = talk_on(&upstream, &toolrein, stream, 2);
            let result = shown[2]["content"].as_str().unwrap();
            let begin: String = name.chars().take(40).collect();
            assert!(result.contains(&begin), "{name}: {result}");
            assert_eq!(shown[1]["content"], Value::Null);
        }
    }
}

#[test]
fn chat_a_call_that_repeats_an_id_or_has_none_gets_an_id_of_its_own() {
    for stream in BOTH {
        for ids in [["call_1", "call_1"], ["", ""], ["old_1", "old_1"]] {
            let upstream = strict_upstream(move |nth, request| match ids.get(nth) {
                Some(id) => {
                    Reply::speech(request, &Speech::calls(&[(id, "wipe", "{}"), (id, "wipe", "{\"a\":1}")]))
                }
                None => Reply::speech(request, &Speech::text("Done.")),
            });
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
            let mut client = Chat::new(stream);
            let call =
                json!({"id": "old_1", "type": "function", "function": {"name": "search", "arguments": "{}"}});
            client.add(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
            client.add(json!({"role": "tool", "tool_call_id": "old_1", "content": "r"}));
            assert_eq!(client.ask(&toolrein), "Done.", "{ids:?}");
            let shown = messages(&upstream.request(2));
            client.add(json!({"role": "assistant", "content": "Done."}));
            client.add(json!({"role": "user", "content": "And?"}));
            client.ask(&toolrein);
            assert_eq!(messages(&upstream.request(3))[..shown.len()], shown[..]);
            upstream.assert_clean();
        }
    }
}

#[test]
fn chat_broken_arguments_are_wrapped_in_an_object() {
    for (stream, broken) in BOTH.into_iter().flat_map(|stream| NO_JSON.map(|broken| (stream, broken))) {
        let upstream = strict_upstream(move |nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("call_a", "wipe", broken)])),
            _ => Reply::speech(request, &Speech::text("Done.")),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
        let shown = talk_on(&upstream, &toolrein, stream, 2);
        let arguments = shown[1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(arguments).unwrap()["invalid_arguments"], broken);
    }
}

#[test]
fn chat_a_name_that_the_request_declares_is_kept() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("call_a", "files.wipe", "{}")])),
            _ => Reply::speech(request, &Speech::text("Done.")),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"files.wipe\"]\n");
        let mut client = Chat::new(stream);
        client.body["tools"][1]["function"]["name"] = "files.wipe".into();
        assert_eq!(client.ask(&toolrein), "Done.");
        assert_eq!(messages(&upstream.request(1))[1]["tool_calls"][0]["function"]["name"], "files.wipe");
    }
}

#[test]
fn chat_a_blocked_call_beside_a_released_one_is_accepted_in_every_later_request() {
    for stream in BOTH {
        let upstream = strict_upstream(|nth, request| match nth {
            0 => {
                let calls = [
                    ("call_a", "search", "{}"),
                    ("call_a", "browser.tabs.open", "{\"a\":"),
                    ("", "  ", "[1]"),
                ];
                Reply::speech(request, &Speech::calls(&calls))
            }
            _ => Reply::speech(request, &Speech::text("Done.")),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
        let mut client = Chat::new(stream);
        client.ask(&toolrein);
        let call =
            json!({"id": "call_a", "type": "function", "function": {"name": "search", "arguments": "{}"}});
        client.add(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        client.add(json!({"role": "tool", "tool_call_id": "call_a", "content": "r"}));
        assert_eq!(client.ask(&toolrein), "Done.");
        let shown = messages(&upstream.request(1));
        assert_eq!(shown.len(), 1 + 3 + 2, "two blocked calls are back: {shown:?}");
        client.add(json!({"role": "assistant", "content": "Done."}));
        client.add(json!({"role": "user", "content": "And?"}));
        client.ask(&toolrein);
        assert_eq!(messages(&upstream.request(2))[..shown.len()], shown[..]);
        upstream.assert_clean();
    }
}

#[test]
fn chat_a_history_in_text_begins_as_it_was_accepted_after_a_repair() {
    for stream in BOTH {
        // It refuses broken arguments, and then all calls and results.
        let upstream = Scripted::start(|nth, request| {
            let refusal = |text: &str| Reply::error(400, "invalid_request_error", "invalid_value", text);
            let messages = messages(request);
            let mut calls = messages.iter().flat_map(|it| it["tool_calls"].as_array()).flatten();
            if calls.any(|call| call["function"]["arguments"] == BROKEN) {
                return refusal("Failed to parse tool call arguments as JSON");
            }
            if messages.iter().any(|message| message["role"] == "tool") {
                return refusal("This model does not support messages with the 'tool' role.");
            }
            match nth {
                2 => Reply::speech(request, &Speech::calls(&[("call_a", "wipe", "{}")])),
                _ => Reply::speech(request, &Speech::text("Done.")),
            }
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
        let mut client = Chat::new(stream);
        let function = json!({"name": "search", "arguments": BROKEN});
        let call = json!({"id": "old_1", "type": "function", "function": function});
        client.add(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        client.add(json!({"role": "tool", "tool_call_id": "old_1", "content": "r"}));
        assert_eq!(client.ask(&toolrein), "Done.");
        let accepted = messages(&upstream.request(2));
        assert!(accepted[1]["content"].as_str().unwrap().contains("invalid_arguments"), "{accepted:?}");
        client.add(json!({"role": "assistant", "content": "Done."}));
        client.add(json!({"role": "user", "content": "And?"}));
        client.ask(&toolrein);
        assert_eq!(upstream.requests().len(), 5);
        assert_eq!(messages(&upstream.request(4))[..accepted.len()], accepted[..]);
    }
}

/// A reply of the Responses API that reasons and then makes one call.
fn output(nth: usize, tool: &str, arguments: &str) -> Output {
    Output::new(nth).thinks().call(&nth.to_string(), tool, arguments)
}

#[test]
fn responses_names_and_arguments_that_providers_refuse_become_accepted_ones() {
    let cases = refused_names().into_iter().map(|name| (name, "{}".to_owned()));
    let broken = NO_JSON
        .into_iter()
        .chain(["", "[1]", "7"])
        .map(|arguments| ("write_file".to_owned(), arguments.to_owned()));
    for (name, arguments) in cases.chain(broken) {
        for stream in BOTH {
            let made = (name.clone(), arguments.clone());
            let upstream = strict_upstream(move |nth, request| match nth {
                0 => output(0, &made.0, &made.1).reply(request),
                _ => Output::text(nth, "Done.").reply(request),
            });
            let policies = "[policy.allow]\nexcept = [\"write_file\"]\n";
            let toolrein = Toolrein::before(&upstream, policies);
            let tools = json!([responses_kit::tool("f"), responses_kit::tool("write_file")]);
            let mut talk = responses_kit::Talk::new(stream).with_tools(tools);
            let answer = talk.ask(&toolrein);
            assert_eq!(answer.said(), "Done.", "{name} {arguments}");
            let shown = responses_kit::input(&upstream.request(1));
            let result = shown.last().unwrap()["output"].as_str().unwrap();
            let begin: String = name.chars().take(40).collect();
            assert!(result.contains(&begin), "{name}: {result}");
            talk.go_on(&answer).say("And?").ask(&toolrein);
            assert_eq!(responses_kit::input(&upstream.request(2))[..shown.len()], shown[..]);
            upstream.assert_clean();
        }
    }
}

#[test]
fn responses_blocked_calls_without_an_id_of_their_own_get_one() {
    let call = |id: &str, call_id: Value| json!({"type": "function_call", "status": "completed", "id": id, "call_id": call_id, "name": "wipe", "arguments": "{}"});
    for stream in BOTH {
        for [one, other] in [
            [call("fc_1", Value::Null), call("fc_2", json!("call_2"))],
            [call("fc_1", json!("call_1")), call("fc_1", json!("call_2"))],
        ] {
            let upstream = strict_upstream(move |nth, request| match nth {
                0 => Output::new(0).item(one.clone()).item(other.clone()).reply(request),
                _ => Output::text(nth, "Done.").reply(request),
            });
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
            let answer = responses_kit::Talk::new(stream).ask(&toolrein);
            assert_eq!(answer.said(), "Done.");
            assert_eq!(upstream.requests().len(), 2);
            let input = responses_kit::input(&upstream.request(1));
            let named = |member: &str| -> Vec<String> {
                input.iter().filter_map(|item| item[member].as_str()).map(str::to_owned).collect()
            };
            for (member, distinct, all) in [("call_id", 2, 4), ("id", named("id").len(), named("id").len())] {
                let ids: std::collections::BTreeSet<String> = named(member).into_iter().collect();
                assert_eq!((ids.len(), named(member).len()), (distinct, all), "{input:?}");
            }
        }
    }
}

#[test]
fn responses_a_message_without_text_before_a_blocked_call_is_not_sent_back() {
    for (stream, blank) in BOTH.into_iter().flat_map(|stream| [(stream, ""), (stream, "\n\n")]) {
        let upstream = strict_upstream(move |nth, request| match nth {
            0 => Output::new(0).says(blank).call("a", "wipe", "{}").reply(request),
            _ => Output::text(nth, "Done.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
        let answer = responses_kit::Talk::new(stream).ask(&toolrein);
        assert_eq!(answer.said().trim(), "Done.");
        let kinds: Vec<_> = responses_kit::input(&upstream.request(1));
        let kinds: Vec<_> = kinds.iter().map(|item| item["type"].as_str().unwrap_or("message")).collect();
        assert_eq!(kinds, ["message", "function_call", "function_call_output"]);
    }
}

#[test]
fn responses_a_call_that_repeats_an_id_or_has_none_gets_an_id_of_its_own() {
    for id in ["call_old", "call_again", ""] {
        for stream in BOTH {
            let upstream = strict_upstream(move |nth, request| match nth {
                0 | 1 => {
                    let call = json!({"type": "function_call", "status": "completed", "call_id": id, "name": "wipe",
                        "arguments": "{}", "id": "fc_again"});
                    Output::new(nth).item(call).reply(request)
                }
                _ => Output::text(nth, "Done.").reply(request),
            });
            let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
            let mut talk = responses_kit::Talk::new(stream);
            talk.called("old", "{}", &json!("r"));
            let answer = talk.ask(&toolrein);
            assert_eq!(answer.said(), "Done.", "{id}");
            let shown = responses_kit::input(&upstream.request(2));
            talk.go_on(&answer).say("And?").ask(&toolrein);
            assert_eq!(responses_kit::input(&upstream.request(3))[..shown.len()], shown[..]);
            upstream.assert_clean();
        }
    }
}

#[test]
fn responses_a_released_call_with_the_id_of_a_hidden_one_goes_on_where_the_upstream_refuses_that() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| {
            let items = responses_kit::input(request);
            let outputs = items.iter().filter(|item| item["type"] == "function_call_output");
            let mut ids: Vec<&Value> = outputs.map(|item| &item["call_id"]).collect();
            let count = ids.len();
            ids.dedup();
            if ids.len() < count {
                let message = "Duplicate function_call_output for call_id 'call_0'.";
                return Reply::error(400, "invalid_request_error", "invalid_value", message);
            }
            match nth {
                0 => Output::new(0).call("0", "wipe", "{}").reply(request),
                1 => Output::new(1).call("0", "f", "{}").reply(request),
                _ => Output::text(nth, "Done.").reply(request),
            }
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\n");
        let mut talk = responses_kit::Talk::new(stream);
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.kinds(), ["function:0"], "{}", answer.text());
        talk.go_on(&answer);
        assert_eq!(talk.ask(&toolrein).said(), "Done.");
    }
}
