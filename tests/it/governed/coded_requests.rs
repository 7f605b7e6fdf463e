//! Requests in a content coding: they are read and governed like plain ones, and go up as they came unless a policy
//! changed them.

use crate::governed::talk::{BOTH, GENEROUS, after, budget, log_line, long_text, own_error, question};
use crate::support::client::{Request, Response};
use crate::support::coded::{CODINGS, encode};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;

const GZIP: (&str, bool) = ("gzip", false);
const ZSTD: (&str, bool) = ("zstd", false);

fn send(toolrein: &Toolrein, coding: &str, body: &[u8]) -> Response {
    let request = Request::post(&toolrein.chat_url(), body).header("content-encoding", coding);
    request.header("content-digest", "sha-256=:x:").send()
}

fn one_call() -> Reply {
    Reply::json(200, &Speech::calls(&[("c", "f", "{}")]).whole())
}

#[test]
fn a_coded_request_that_nothing_changes_goes_up_as_it_came_and_its_reply_is_judged() {
    let upstream = Scripted::start(|_, _| one_call());
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let text = question(false).into_bytes();
    let mut sent: Vec<_> = CODINGS.map(|coding| (coding.0, encode(coding, &text))).into();
    sent.push(("gzip, zstd", encode(ZSTD, &encode(GZIP, &text))));
    sent.push(("X-GZip", encode(GZIP, &text)));
    sent.push(("identity", text));
    for (nth, (coding, body)) in sent.iter().enumerate() {
        assert_eq!(send(&toolrein, coding, body).status, 200);
        let seen = upstream.request(nth);
        assert!(&seen.body == body, "{coding}");
        assert_eq!(seen.header("content-encoding"), Some(*coding));
        assert_eq!(seen.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(seen.header("content-digest"), Some("sha-256=:x:"));
        let counted = "toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}";
        toolrein.wait_for_metric(counted, (nth + 1) as f64);
        assert_eq!(log_line(&toolrein, nth)["model"], "m", "{coding}");
    }
    assert!(toolrein.metric("toolrein_ungoverned_total").abs() < 0.5);
    toolrein.wait_for_metric("toolrein_body_bytes", 0.0);
}

#[test]
fn a_coded_request_that_a_policy_changes_goes_up_plain() {
    let upstream = Scripted::start(|_, _| Reply::text("ok"));
    let toolrein = Toolrein::before(&upstream, "[policy.truncate]\nmax_chars = 1000\n");
    let text = after(&[&long_text(30_000)], false);
    for (nth, coding) in CODINGS.into_iter().enumerate() {
        let reply = send(&toolrein, coding.0, &encode(coding, text.as_bytes()));
        assert!(reply.header("x-toolrein-actions").is_some_and(|acts| acts.starts_with("truncate=1")));
        let seen = upstream.request(nth);
        assert_eq!(seen.json()["model"], "m", "{coding:?}: {}", String::from_utf8_lossy(&seen.body));
        assert!(seen.body.len() < 3000);
        assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()));
        assert_eq!((seen.header("content-encoding"), seen.header("content-digest")), (None, None));
    }
}

#[test]
fn a_re_ask_of_a_coded_request_goes_up_plain() {
    for stream in BOTH {
        let say = |speech: Speech| {
            if stream { Reply::events(&speech.chunks(false)) } else { Reply::json(200, &speech.whole()) }
        };
        let upstream = Scripted::queue([say(Speech::calls(&[("c", "f", "{}")])), say(Speech::text("Done."))]);
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"f\"]\n");
        let body = encode(ZSTD, question(stream).as_bytes());
        let reply = send(&toolrein, "zstd", &body);
        assert!(reply.text().contains("Done.") && !reply.text().contains("\"id\":\"c\""), "{}", reply.text());
        assert!(upstream.request(0).body == body);
        let again = upstream.request(1);
        assert_eq!(again.header("content-encoding"), None);
        assert_eq!(again.json()["messages"].as_array().map(Vec::len), Some(3), "the call and its refusal");
    }
}

#[test]
fn a_request_that_decodes_to_more_than_the_limit_is_refused_and_relayed_while_observing() {
    let upstream = Scripted::start(|_, _| Reply::text("ok"));
    let limit = "limits.request_bytes = \"64KiB\"\n";
    let strict = Toolrein::before(&upstream, &format!("{limit}{GENEROUS}"));
    let observing = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{limit}{GENEROUS}"));
    let text = after(&[&long_text(100_000)], false);
    for (nth, coding) in CODINGS.into_iter().enumerate() {
        let body = encode(coding, text.as_bytes());
        assert!(body.len() < 32_000, "{coding:?}");
        own_error(&send(&strict, coding.0, &body), 413, "request_too_large");
        assert_eq!(send(&observing, coding.0, &body).status, 200);
        assert_eq!(upstream.requests().len(), nth + 1);
        assert!(upstream.request(nth).body == body);
        observing.wait_for_metric("toolrein_ungoverned_total{why=\"too_large\"}", (nth + 1) as f64);
    }
}

/// Bodies under the name of a coding from which nothing can be decoded.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    let text = question(false).into_bytes();
    let gzip = encode(GZIP, &text);
    vec![
        ("compress", b"\x1f\x9d\x90".to_vec()),
        ("gzip, dcb", gzip.clone()),
        ("gzip, gzip, zstd", encode(ZSTD, &encode(GZIP, &gzip))),
        ("zstd", gzip.clone()),
        ("gzip", gzip[..gzip.len() - 1].to_vec()),
    ]
}

#[test]
fn a_plain_body_with_a_wrong_content_encoding_is_governed_and_forwarded_unchanged() {
    let upstream = Scripted::start(|_, _| one_call());
    let toolrein = Toolrein::before(&upstream, "reask.max = 0\n[policy.allow]\nexcept = [\"f\"]\n");
    let text = question(false);
    for coding in ["gzip", "br", "utf-8"] {
        let reply = send(&toolrein, coding, text.as_bytes());
        assert_eq!(reply.header("x-toolrein-actions"), Some("allow=blocked"), "{coding}");
        assert!(!reply.text().contains("\"id\":\"c\""));
        let seen = upstream.requests().into_iter().filter(|seen| seen.body == text.as_bytes());
        assert_eq!(seen.last().unwrap().header("content-encoding"), Some(coding));
    }
}

#[test]
fn a_coding_that_cannot_be_read_is_refused_where_calls_are_restricted_and_else_relayed() {
    let upstream = Scripted::start(|_, _| one_call());
    let restricted = "[policy.allow]\nexcept = [\"f\"]\n";
    let strict = Toolrein::before(&upstream, restricted);
    for (coding, body) in unreadable() {
        let refused = send(&strict, coding, &body);
        own_error(&refused, 400, "request_unreadable");
        assert!(refused.text().contains("unreadable_coding"), "{coding}");
    }
    assert!(upstream.requests().is_empty());
    let mut sent = 0;
    for settings in [budget(9), format!("mode = \"observe\"\n{restricted}")] {
        let toolrein = Toolrein::before(&upstream, &settings);
        for (nth, (coding, body)) in unreadable().into_iter().enumerate() {
            assert_eq!(send(&toolrein, coding, &body).status, 200);
            let seen = upstream.request(sent);
            assert!(seen.body == body, "{coding}");
            assert_eq!(seen.header("content-encoding"), Some(coding));
            let counted = "toolrein_ungoverned_total{why=\"unreadable_coding\"}";
            toolrein.wait_for_metric(counted, (nth + 1) as f64);
            sent += 1;
        }
    }
}

#[test]
fn a_coded_body_that_is_no_chat_request_goes_up_as_it_came_and_is_counted() {
    let upstream = Scripted::start(|_, _| Reply::text("ok"));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let body = encode(GZIP, b"{\"prompt\":\"q\"}");
    assert_eq!(send(&toolrein, "gzip", &body).status, 200);
    let seen = upstream.request(0);
    assert!(seen.body == body);
    assert_eq!(seen.header("content-encoding"), Some("gzip"));
    toolrein.wait_for_metric("toolrein_ungoverned_total{why=\"no_messages\"}", 1.0);
}
