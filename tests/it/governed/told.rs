//! What toolrein reports to the client: two headers, and one comment in a stream.

use crate::governed::talk::{
    BOTH, GENEROUS, after, after_groups, budget, calling, chat, log_line, long_text, question,
};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, may_call, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const ACTIONS: &str = "x-toolrein-actions";
const CONVERSATION: &str = "x-toolrein-conversation";

#[test]
fn actions_on_the_request_are_listed_in_a_response_header() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let policies = "[policy.truncate]\nmax_chars = 1000\n\
        [policy.budget]\ntool_calls = 4\nnotify = \"every_result\"\n";
    let toolrein = Toolrein::before(&upstream, policies);
    let long = long_text(3000);
    for stream in BOTH {
        for (body, expected) in [
            (after_groups(&[&[&long, &long]], stream), Some("truncate=2, budget=notice, tokens_saved=1449")),
            (after(&["short", "short"], stream), Some("budget=notice")),
            (after(&[&long], stream), Some("truncate=1, tokens_saved=613")),
            (after(&["s", "s", "s"], stream), Some("budget=critical")),
            (after(&["short"], stream), None),
            // Earlier cuts and notices are repeated without being reported again, but the tokens that they save are.
            (after(&[&long, &long, "short"], stream), Some("budget=critical, tokens_saved=1449")),
        ] {
            let reply = chat(&toolrein, body);
            assert_eq!(reply.header(ACTIONS), expected, "streamed: {stream}");
            assert_eq!(reply.header(CONVERSATION).is_some(), expected.is_some());
            assert!(!reply.text().contains("toolrein"), "{}", reply.text());
        }
    }
    upstream.assert_clean();
}

#[test]
fn actions_on_a_streamed_reply_are_listed_in_one_comment_before_its_end() {
    let upstream = Scripted::start(calling(3));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    // Two of three calls blocked; and all three, after which the model has to answer.
    for body in [question(true), after(&["r"], true)] {
        let reply = chat(&toolrein, body);
        let text = reply.text();
        assert_eq!(text.matches(": toolrein").count(), 1, "{text}");
        assert!(text.ends_with(": toolrein budget=blocked\ndata: [DONE]\n\n"), "{text}");
    }
}

/// The parts of a header or a comment, each once.
fn parts(list: Option<&str>) -> BTreeSet<&str> {
    list.into_iter().flat_map(|list| list.split(", ")).collect()
}

#[test]
fn a_stream_says_in_its_header_and_its_comment_what_a_whole_reply_says_in_its_header_in_both_dialects() {
    let upstream = Scripted::start(|nth, request| match request.path.ends_with("responses") {
        true if may_call(request) => Output::calls(nth, &[("1", "f", "{}"), ("2", "f", "{}")]).reply(request),
        true => Output::text(nth, "Done without.").reply(request),
        false => calling(2)(nth, request),
    });
    let settings = format!("{}[policy.turn_limits]\ncalls = 1\n", budget(1));
    for nth in 0..4 {
        let (is_chat, is_used_up) = (nth % 2 == 0, nth / 2 == 1);
        let ask = |stream: bool| {
            // Of its own, so that the notice of the request is as new in the stream as in the whole reply.
            let toolrein = Toolrein::before(&upstream, &settings);
            let results: &[&str] = if is_used_up { &["r"] } else { &[] };
            let mut talk = Talk::new(stream);
            for result in results {
                talk.called("old", "{}", &json!(result));
            }
            match is_chat {
                true => chat(&toolrein, after(results, stream)),
                false => Request::post(&url(&toolrein), talk.body.to_string()).send(),
            }
        };
        let (whole, streamed) = (ask(false), ask(true));
        let whole = parts(whole.header(ACTIONS));
        assert!(whole.contains("turn_limits=blocked") && whole.contains("budget=blocked"), "{whole:?}");
        assert_eq!(whole.contains("budget=critical"), is_used_up, "{whole:?}");
        let text = streamed.text();
        let comments: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(": toolrein ")).collect();
        assert_eq!(
            comments,
            ["budget=blocked, turn_limits=blocked"],
            "sorted, each once, and in one comment: {text}"
        );
        let mut told = parts(streamed.header(ACTIONS));
        told.extend(parts(Some(comments[0])));
        assert_eq!(told, whole, "chat: {is_chat}");
    }
}

#[test]
fn what_a_stream_needed_after_its_head_is_listed_in_its_comment() {
    let refusal = "data: {\"error\":{\"message\":\"gemma:2b does not support tools\"}}\n\n";
    let upstream = Scripted::start(move |_, request| match request.json().get("tools") {
        Some(_) => Reply::stream([refusal.to_owned()]),
        None => Reply::speech(request, &Speech::text("Without tools.")),
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    // The second request goes without tools at once, which its header says.
    for (header, comment) in [(None, true), (Some("tools_unsupported=dropped"), false)] {
        let reply = chat(&toolrein, question(true));
        assert_eq!(reply.header(ACTIONS), header, "{}", reply.text());
        let comment_is_there = reply.text().contains(": toolrein tools_unsupported=dropped\ndata: [DONE]");
        assert_eq!(comment_is_there, comment, "{}", reply.text());
    }
}

#[test]
fn actions_on_a_whole_reply_are_listed_in_a_response_header() {
    let upstream = Scripted::start(calling(3));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    assert_eq!(chat(&toolrein, question(false)).header(ACTIONS), Some("budget=blocked"));
    let both = chat(&toolrein, after(&["r"], false));
    assert_eq!(both.header(ACTIONS), Some("budget=blocked, budget=critical"));
    assert_eq!(both.json()["choices"][0]["message"]["content"], "Done without.");
}

#[test]
fn a_conversation_is_named_by_each_configured_place_and_its_name_comes_back() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let places = [
        (Some(CONVERSATION), json!({})),
        (Some("x-session-id"), json!({})),
        (Some("x-conversation-id"), json!({})),
        (Some("helicone-session-id"), json!({})),
        (Some("x-litellm-session-id"), json!({})),
        (Some("x-claude-code-session-id"), json!({})),
        (None, json!({"metadata": {"session_id": "talk-9"}})),
        (None, json!({"metadata": {"user": "u", "conversation_id": "talk-9"}})),
    ];
    let mut nth = 0;
    for (header, members) in places {
        for stream in BOTH {
            let mut body: Value = serde_json::from_str(&question(stream)).unwrap();
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let mut request = Request::post(&toolrein.chat_url(), body.to_string());
            if let Some(name) = header {
                request = request.header(name, "talk-9");
            }
            let reply = request.send();
            assert_eq!(reply.header(CONVERSATION), Some("talk-9"), "{header:?} {members}");
            assert_eq!(reply.header(ACTIONS), None);
            assert_eq!(log_line(&toolrein, nth)["conversation"], "talk-9");
            nth += 1;
        }
    }
}

#[test]
fn an_unnamed_conversation_gets_a_stable_name_once_a_policy_has_acted() {
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let first = chat(&toolrein, question(false));
    let name = first.header(CONVERSATION).expect("something acted").to_owned();
    assert!(name.len() >= 16 && name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{name}");
    assert_eq!(chat(&toolrein, after(&["r"], false)).header(CONVERSATION), Some(name.as_str()));
    let others = [question(false).replace("\"q\"", "\"another\"")];
    for other in others {
        let reply = chat(&toolrein, other);
        assert!(reply.header(CONVERSATION).is_some_and(|other| other != name));
    }
    let request = Request::new("POST", &toolrein.chat_url(), question(false));
    let stranger = request.header("authorization", "Bearer sk-other").send();
    assert!(stranger.header(CONVERSATION).is_some_and(|other| other != name), "another caller");
}
