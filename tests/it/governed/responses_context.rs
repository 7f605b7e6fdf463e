//! What is edited in requests of the Responses API: outputs, notices, and the tools where an upstream takes none.

use crate::governed::talk::{BOTH, GENEROUS, long_text};
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, input, name, sent, tool};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

fn ok(nth: usize, request: &Recorded) -> Reply {
    Output::text(nth, "ok").reply(request)
}

#[test]
fn long_outputs_are_truncated_as_text_and_as_parts_and_images_stay() {
    let upstream = Scripted::start(ok);
    let toolrein = Toolrein::before(&upstream, "[policy.truncate]\nmax_chars = 1000\n");
    let long = long_text(5000);
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"});
    let mut talk = Talk::new(false);
    talk.called("1", "{}", &json!(long));
    talk.called(
        "2",
        "{}",
        &json!([{"type": "input_text", "text": long}, image, {"type": "input_text", "text": "short"}]),
    );
    let answer = talk.ask(&toolrein);
    let actions = answer.response.header("x-toolrein-actions").unwrap_or_default();
    assert!(actions.starts_with("truncate=1"), "the newest is counted: {actions}");
    let first = input(&upstream.request(0));
    let text = first[2]["output"].as_str().unwrap();
    assert!(text.len() < 1200 && text.contains("[toolrein: cut"), "{text}");
    let parts = first[4]["output"].as_array().unwrap();
    assert_eq!((parts.len(), &parts[1], &parts[2]["text"]), (3, &image, &json!("short")));
    assert!(parts[0]["text"].as_str().unwrap().len() < 1200);
    // The same bytes in the next request.
    talk.go_on(&answer).say("more").ask(&toolrein);
    assert_eq!(input(&upstream.request(1))[..first.len()], first);
    upstream.assert_clean();
}

#[test]
fn a_notice_is_a_developer_message_for_listed_models_and_a_suffix_for_others() {
    for (model, is_listed) in [("gpt-5", true), ("mystery-1", false)] {
        for output in [json!("found"), json!([{"type": "input_text", "text": "found"}]), json!([])] {
            let upstream = Scripted::start(ok);
            let toolrein = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 2\n");
            let mut talk = Talk::new(false).with_model(model);
            talk.body["instructions"] = "Be brief.".into();
            talk.called("1", "{}", &output);
            let answer = talk.ask(&toolrein);
            let items = input(&upstream.request(0));
            assert_eq!(upstream.request(0).json()["instructions"], "Be brief.");
            let notice =
                if is_listed { items[3]["content"][0]["text"].clone() } else { items[2]["output"].clone() };
            let text = notice.as_str().map_or_else(|| notice.to_string(), str::to_owned);
            assert!(text.contains("[toolrein] Budget"), "{model}: {items:?}");
            assert_eq!(items.len(), 3 + usize::from(is_listed));
            if is_listed {
                assert_eq!((&items[3]["role"], &items[2]["output"]), (&json!("developer"), &output));
            }
            talk.go_on(&answer).say("more").ask(&toolrein);
            assert_eq!(input(&upstream.request(1))[..items.len()], items, "the same later");
            upstream.assert_clean();
        }
    }
}

/// An upstream that refuses tools, in these words.
fn without_tools(refusal: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |nth, request| match request.json().get("tools") {
        Some(_) => refusal(request),
        None => ok(nth, request),
    })
}

const OLLAMA: &str = "registry.ollama.ai/library/x does not support tools";

#[test]
fn a_model_without_tools_is_asked_again_without_them_whatever_form_the_refusal_has() {
    let in_stream = |begin: usize, is_failed: bool| {
        move |request: &Recorded| {
            let all = Output::new("no").events(&request.json());
            let mut end = json!({"type": "error", "code": null, "message": OLLAMA, "param": null});
            if is_failed {
                end = json!({"type": "response.failed", "response": all[1]["response"]});
                end["response"]["status"] = "failed".into();
                end["response"]["error"] = json!({"code": "server_error", "message": OLLAMA});
            }
            end["sequence_number"] = begin.into();
            Reply::stream(all[..begin].iter().chain([&end]).map(event))
        }
    };
    let refuse = |status: u16| {
        move |_: &Recorded| {
            Reply::json(
                status,
                &json!({"error": {"message": OLLAMA, "type": "api_error", "param": null, "code": null}}),
            )
        }
    };
    type Refusal = Box<dyn Fn(&Recorded) -> Reply + Send + Sync>;
    let cases: Vec<(bool, Refusal)> = vec![
        (false, Box::new(refuse(400))),
        (true, Box::new(refuse(400))),
        (false, Box::new(refuse(500))),
        (true, Box::new(in_stream(0, false))),
        (true, Box::new(in_stream(2, false))),
        (true, Box::new(in_stream(2, true))),
        (true, Box::new(in_stream(0, true))),
    ];
    for (nth, (stream, refusal)) in cases.into_iter().enumerate() {
        for instructions in ["plain", "It\u{7} \\u costs"] {
            let refusal = &refusal;
            let shared: &(dyn Fn(&Recorded) -> Reply + Send + Sync) = refusal.as_ref();
            let reply = shared(&fake(stream, instructions));
            let upstream = without_tools(move |_| reply.clone());
            let toolrein = Toolrein::before(&upstream, GENEROUS);
            let mut talk = Talk::new(stream);
            talk.body["instructions"] = instructions.into();
            talk.body["tool_choice"] = "auto".into();
            talk.body["parallel_tool_calls"] = true.into();
            let answer = talk.ask(&toolrein);
            assert_eq!(answer.said(), "ok", "case {nth}: {}", answer.text());
            let second = upstream.request(1).json();
            for member in ["tools", "tool_choice", "parallel_tool_calls", "max_tool_calls"] {
                assert_eq!(second.get(member), None, "{member}");
            }
            // It is remembered.
            talk.ask(&toolrein);
            assert_eq!(upstream.requests().len(), 3, "case {nth}");
            upstream.assert_clean();
        }
    }
}

/// A request as the upstream will get it.
fn fake(stream: bool, instructions: &str) -> Recorded {
    let mut body = Talk::new(stream).body;
    body["instructions"] = instructions.into();
    let probe = Scripted::start(ok);
    crate::support::client::post(&format!("{}/responses", probe.base_url()), body.to_string());
    probe.request(0)
}

#[test]
fn a_refusal_of_one_kind_of_tool_does_not_drop_the_tools() {
    for message in [
        "Hosted tool 'web_search_preview' is not supported with gpt-4.1-nano.",
        "'type' of tool must be 'function'",
        "Invalid discriminator value. Expected 'function' | 'mcp'",
        "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
    ] {
        for stream in BOTH {
            let upstream = without_tools(move |_| Reply::error(400, "invalid_request_error", "x", message));
            let toolrein = Toolrein::before(&upstream, GENEROUS);
            let talk = Talk::new(stream).with_tools(json!([tool("f"), {"type": "web_search"}]));
            let response = crate::support::client::post(
                &crate::support::responses_kit::url(&toolrein),
                talk.body.to_string(),
            );
            assert_eq!(response.status, 400, "{message}: {}", response.text());
            assert_eq!(upstream.requests().len(), 1, "{message}");
        }
    }
}

#[test]
fn loops_are_announced_and_then_blocked() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match input(request).iter().any(is_blocked) {
            true => Output::text(nth, "I stop.").reply(request),
            false => Output::calls(nth, &[(&nth.to_string(), "f", "{\"a\":1}")]).reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.loops]\n");
        let mut talk = Talk::new(stream).with_model("mystery-1");
        for _ in 0..12 {
            let answer = talk.ask(&toolrein);
            talk.go_on(&answer);
            if answer.said() == "I stop." {
                break;
            }
        }
        let made =
            talk.body["input"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call");
        assert_eq!(made.count(), 4, "the fifth is blocked");
        let last = upstream.requests().pop().unwrap();
        assert!(String::from_utf8_lossy(&last.body).contains("[toolrein]"), "announced before");
        upstream.assert_clean();
    }
}

fn is_blocked(item: &Value) -> bool {
    item["output"].as_str().is_some_and(|output| output.contains("\"by\":\"toolrein\""))
}

#[test]
fn rate_limits_duplicates_and_arguments_block_as_in_chat() {
    for (settings, arguments, expected) in [
        ("[policy.rate_limit]\ndefault = { calls = 1, per = \"60s\" }\n", "{\"a\":2}", "RATE_LIMIT"),
        ("[policy.duplicates]\ntools = [\"f\"]\n", "{ \"a\" : 1 }", "DUPLICATE"),
        ("[policy.arguments]\n", "{\"a\":", "VALIDATION"),
    ] {
        for stream in BOTH {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Output::calls(0, &[("0", "f", "{\"a\":1}")]).reply(request),
                1 => Output::calls(1, &[("1", "f", arguments)]).reply(request),
                _ => ok(nth, request),
            });
            let toolrein = Toolrein::before(&upstream, settings);
            let mut talk = Talk::new(stream);
            let first = talk.ask(&toolrein);
            assert_eq!(first.kinds(), ["function:0"], "{settings}");
            assert_eq!(talk.go_on(&first).ask(&toolrein).said(), "ok", "{settings}");
            let last = input(&upstream.request(2)).pop().unwrap();
            assert!(last["output"].as_str().unwrap().contains(expected), "{settings}: {last}");
            assert_eq!(sent(&upstream, 2), ["user", "function:0", "=0", "function:1", "=1"], "{settings}");
            assert_eq!(name(&last), "=1");
            upstream.assert_clean();
        }
    }
}
