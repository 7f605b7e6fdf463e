//! Replies of the Responses API that end for their length, or by a filter, within a call: the client gets them as they
//! came, and the model is not asked again, since its next reply would be cut too.

use crate::governed::talk::{BOTH, chat};
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, tool, url};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

const REASONS: [&str; 2] = ["max_output_tokens", "content_filter"];

/// A reply that is cut within its last call, as OpenAI sends it; `marked`: the item says so.
fn cut(output: &Output, reason: &str, marked: bool, request: &Recorded) -> Reply {
    let request = request.json();
    let close = |response: &mut Value| {
        response["status"] = "incomplete".into();
        response["incomplete_details"] = json!({ "reason": reason });
        if let Some(item) = response["output"].as_array_mut().and_then(|items| items.last_mut()) {
            item["status"] = if marked { "incomplete" } else { "completed" }.into();
        }
    };
    let mut whole = output.whole(&request);
    close(&mut whole);
    if request["stream"] != true {
        return Reply::json(200, &whole);
    }
    let mut events = output.events(&request);
    let last = events.last_mut().unwrap();
    (last["type"], last["response"]) = ("response.incomplete".into(), whole);
    if let Some(done) = events.iter_mut().rfind(|event| event["type"] == "response.output_item.done") {
        done["item"]["status"] = if marked { "incomplete" } else { "completed" }.into();
    }
    Reply::stream(events.iter().map(event))
}

fn ask(toolrein: &Toolrein, stream: bool) -> String {
    let talk = Talk::new(stream).with_tools(json!([tool("f"), tool("g")]));
    let response = post(&url(toolrein), talk.body.to_string());
    assert_eq!(response.status, 200, "{}", response.text());
    response.text()
}

#[test]
fn a_reply_cut_within_a_call_passes_as_it_came_and_is_not_asked_again() {
    for (stream, reason) in BOTH.into_iter().flat_map(|stream| REASONS.map(|reason| (stream, reason))) {
        for marked in BOTH {
            for output in [
                Output::calls(0, &[("a", "f", "{\"path\":\"/tm")]),
                Output::new(0).says("I write it.").call("a", "f", "{\"text\":\"a long"),
                Output::calls(0, &[("a", "f", "{\"x\":1}"), ("b", "f", "{\"x\":")]),
                Output::calls(0, &[("a", "f", "")]),
            ] {
                for policies in [
                    "base = \"shipped\"\n",
                    "[policy.arguments]\nstrict = true\n",
                    "[policy.loops]\n[policy.arguments]\n",
                    "[policy.allow]\nexcept = [\"g\"]\n[policy.arguments]\n",
                ] {
                    let reply = output.clone();
                    let upstream = Scripted::start(move |_, request| cut(&reply, reason, marked, request));
                    let toolrein = Toolrein::before(&upstream, policies);
                    let text = ask(&toolrein, stream);
                    let sent = cut(&output, reason, marked, &upstream.request(0));
                    assert_eq!(
                        text,
                        String::from_utf8(crate::governed::talk::bytes_of(&sent)).unwrap(),
                        "{policies}"
                    );
                    assert_eq!(upstream.requests().len(), 1, "{stream} {reason} {policies}");
                }
            }
        }
    }
}

#[test]
fn half_a_call_that_is_forbidden_or_needs_an_approval_is_left_out_of_a_reply_that_was_cut() {
    for stream in BOTH {
        for policies in
            ["[policy.confirm]\ntools = [\"g\"]\n", "[policy.arguments]\n[policy.confirm]\ntools = [\"g\"]\n"]
        {
            let output = Output::new(0).says("I pay.").call("secret", "g", "{\"amount\":1");
            let upstream = Scripted::start(move |_, request| cut(&output, REASONS[0], true, request));
            let toolrein = Toolrein::before(&upstream, policies);
            let text = ask(&toolrein, stream);
            assert!(
                !text.contains("secret") && !text.contains("amount"),
                "nobody is asked about half a call: {text}"
            );
            assert!(text.contains("I pay.") && text.contains("max_output_tokens"), "{text}");
            assert_eq!(upstream.requests().len(), 1, "{text}");
        }
    }
}

#[test]
fn half_a_call_that_is_blocked_by_its_name_is_left_out_and_not_asked_for_again() {
    for stream in BOTH {
        let output = Output::new(0).says("I pay.").call("secret", "g", "{\"amount\":1");
        let upstream = Scripted::start(move |_, request| cut(&output, REASONS[0], true, request));
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
        let text = ask(&toolrein, stream);
        assert!(text.contains("max_output_tokens") && !text.contains("amount"), "{text}");
        assert_eq!(upstream.requests().len(), 1, "{stream} {text}");

        let upstream = Scripted::start(move |_, _| {
            let speech = Speech::calls(&[("secret", "pay", "{\"amount\":1")]);
            let (mut whole, mut chunks) = (speech.whole(), speech.chunks(false));
            for reply in [&mut whole, chunks.last_mut().unwrap()] {
                reply["choices"][0]["finish_reason"] = "length".into();
            }
            if stream { Reply::events(&chunks) } else { Reply::json(200, &whole) }
        });
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"pay\"]\n");
        let body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "q"}],
            "tools": [{"type": "function", "function": {"name": "pay"}}]});
        let text = chat(&toolrein, body.to_string()).text();
        assert!(text.contains("\"length\"") && !text.contains("amount"), "{text}");
        assert_eq!(upstream.requests().len(), 1, "{stream} {text}");
    }
}

#[test]
fn a_chat_completion_that_was_cut_within_a_call_passes_as_it_came_whatever_word_says_so() {
    for (stream, reason) in BOTH.into_iter().flat_map(|stream| {
        ["length", "MAX_TOKENS", "sensitive", "network_error", "abort", "time_limit", "content_filter"]
            .map(|reason| (stream, reason))
    }) {
        let upstream = Scripted::start(move |_, _| {
            let speech = Speech::calls(&[("a", "f", "{\"path\":\"/tm")]);
            let (mut whole, mut chunks) = (speech.whole(), speech.chunks(false));
            for reply in [&mut whole, chunks.last_mut().unwrap()] {
                reply["choices"][0]["finish_reason"] = reason.into();
            }
            if stream { Reply::events(&chunks) } else { Reply::json(200, &whole) }
        });
        let toolrein = Toolrein::before(&upstream, "base = \"shipped\"\n");
        let body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "q"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]});
        let text = chat(&toolrein, body.to_string()).text();
        assert!(text.contains(reason) && text.contains("/tm"), "{stream} {reason} {text}");
        assert_eq!(upstream.requests().len(), 1, "{stream} {reason}");
    }
}

#[test]
fn a_whole_call_is_judged_by_its_arguments_although_its_item_claims_to_be_cut() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => cut(&Output::calls(0, &[("a", "f", "{\"n\":\"seven\"}")]), REASONS[0], true, request),
            _ => Output::text(nth, "Then not.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.arguments]\nstrict = true\n");
        let mut talk = Talk::new(stream);
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        talk.body["tools"] = json!([{"type": "function", "name": "f", "parameters": schema}]);
        let text = post(&url(&toolrein), talk.body.to_string()).text();
        assert!(text.contains("Then not.") && !text.contains("seven"), "{text}");
    }
}

#[test]
fn a_reply_that_took_all_tokens_that_the_request_allows_was_cut_whatever_it_says() {
    // llama.cpp's server calls such a reply completed. The kit's replies say that they took 5 tokens.
    for (stream, limit, is_cut) in BOTH.into_iter().flat_map(|stream| [(stream, 5, true), (stream, 6, false)])
    {
        let output = Output::calls(0, &[("a", "f", "{\"path\":\"/tm")]);
        let reply = output.clone();
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => reply.reply(request),
            _ => Output::text(nth, "Then not.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, "base = \"shipped\"\n");
        let mut talk = Talk::new(stream).with_tools(json!([tool("f")]));
        talk.body["max_output_tokens"] = limit.into();
        let text = post(&url(&toolrein), talk.body.to_string()).text();
        assert_eq!(upstream.requests().len(), if is_cut { 1 } else { 2 }, "{stream} {limit} {text}");
        if is_cut {
            let sent = output.reply(&upstream.request(0));
            assert_eq!(text, String::from_utf8(crate::governed::talk::bytes_of(&sent)).unwrap());
        }
    }
}

#[test]
fn a_whole_chat_completion_that_took_all_tokens_was_cut_whatever_it_says() {
    // vLLM says `tool_calls` where a reply ended for its length within a call.
    for (member, limit, is_cut) in
        [("max_tokens", 5, true), ("max_completion_tokens", 5, true), ("max_tokens", 6, false)]
    {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("a", "f", "{\"path\":\"/tm")])),
            _ => Reply::speech(request, &Speech::text("Then not.")),
        });
        let toolrein = Toolrein::before(&upstream, "base = \"shipped\"\n");
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]});
        body[member] = limit.into();
        let text = chat(&toolrein, body.to_string()).text();
        assert_eq!(upstream.requests().len(), if is_cut { 1 } else { 2 }, "{member} {limit} {text}");
        assert_eq!(text.contains("/tm"), is_cut, "{text}");
    }
}
