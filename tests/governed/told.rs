//! What toolrein reports to the client: two headers, and one comment in a stream.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::talk::{
    BOTH, GENEROUS, after, after_groups, budget, calling, chat, log_line, long_text, question,
};
use serde_json::{Value, json};

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
    for (body, comment) in [
        (question(true), ": toolrein budget=blocked:2\n"),
        (after(&["r"], true), ": toolrein budget=blocked:3\n"),
    ] {
        let reply = chat(&toolrein, body);
        let text = reply.text();
        assert_eq!(text.matches(": toolrein").count(), 1, "{text}");
        assert!(text.ends_with(&format!("{comment}data: [DONE]\n\n")), "{text}");
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
