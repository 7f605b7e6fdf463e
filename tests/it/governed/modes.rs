//! `observe` decides everything and changes nothing; `off` reads nothing.

use crate::governed::talk::{BOTH, after, budget, bytes_of, calling, chat, grouped, log_line, long_text};
use crate::support::client::{Connection, Request};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};

type Script = fn(usize, &Recorded) -> Reply;

fn calls_twice(nth: usize, request: &Recorded) -> Reply {
    calling(2)(nth, request)
}

fn refuses_tools(_: usize, request: &Recorded) -> Reply {
    if request.json()["tools"].is_null() {
        return Reply::speech(request, &Speech::text("Without."));
    }
    Reply::error(400, "invalid_request_error", "", "m does not support tools")
}

/// What would act: its policies, the model, what it would be called, and how often in one request.
fn causes() -> [(String, Script, (&'static str, &'static str), u32); 5] {
    let cut = "[policy.truncate]\nmax_chars = 1000\n".to_owned();
    let told = "[policy.budget]\ntool_calls = 2\n".to_owned();
    let rejected = "[policy.budget]\ntool_calls = 1\nexhausted = \"reject\"\n".to_owned();
    [
        (cut, calls_twice, ("truncate", "shortened"), 1),
        (told, calls_twice, ("budget", "notice"), 1),
        (budget(1), calls_twice, ("budget", "blocked"), 2),
        (rejected, calls_twice, ("budget", "rejected"), 1),
        (budget(9), refuses_tools, ("tools_unsupported", "dropped"), 1),
    ]
}

#[test]
fn observing_changes_no_byte_and_tells_what_would_have_been_done() {
    for (policies, script, (policy, action), times) in causes() {
        let upstream = Scripted::start(script);
        let toolrein = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{policies}"));
        for (nth, stream) in BOTH.into_iter().enumerate() {
            // Different for each form, since a request that comes again is not counted again.
            let body = after(&[&long_text(3000 + 100 * nth)], stream);
            let request = Request::post(&toolrein.chat_url(), &body);
            let request = request.header("accept-encoding", "zstd").header("x-session-id", "s");
            let reply = request.send();
            assert_eq!(upstream.requests().len(), nth + 1, "{action}: one request for one");
            let seen = upstream.request(nth);
            assert!(String::from_utf8_lossy(&seen.body) == body, "{action}");
            assert_eq!(seen.header("accept-encoding"), Some("zstd"));
            let expected = script(nth, &seen);
            assert_eq!(reply.text(), String::from_utf8(bytes_of(&expected)).unwrap(), "{action}");
            assert_eq!((reply.status, reply.cut), (expected.status, false));
            let added = ["transfer-encoding", "content-length", "x-toolrein-request-id"];
            assert_eq!(grouped(&reply.head.headers, &added), grouped(&expected.headers, &[]));
            let line = log_line(&toolrein, nth);
            let actions = line["actions"].as_array().cloned().unwrap_or_default();
            let logged = actions.iter().any(|act| act["policy"] == policy && act["action"] == action);
            assert!(logged, "{action}, streamed {stream}: {line}");
            assert_eq!(line["mode"], "observe");
            let series = format!("toolrein_actions_total{{policy=\"{policy}\",action=\"{action}\"}}");
            toolrein.wait_for_metric(&series, f64::from(times) * (nth + 1) as f64);
        }
    }
}

#[test]
fn a_stream_of_known_length_keeps_it_while_observing() {
    let upstream = Scripted::start(|_, _| {
        Reply::bytes(200, "text/event-stream", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n")
    });
    let toolrein = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{}", budget(1)));
    let reply = chat(&toolrein, after(&["r"], true));
    assert_eq!((reply.header("content-length"), reply.header("transfer-encoding")), (Some("36"), None));
}

#[test]
fn a_request_over_the_limit_goes_up_as_it_is_while_observing_and_is_counted() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let settings = format!("mode = \"observe\"\nlimits.request_bytes = 2048\n{}", budget(1));
    let toolrein = Toolrein::before(&upstream, &settings);
    let body = after(&[&long_text(3_000_000)], false);
    for (nth, chunked) in [false, true].into_iter().enumerate() {
        let reply = if chunked {
            let mut connection = Connection::open(&toolrein.chat_url());
            let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
            connection.write(head.as_bytes());
            for piece in body.as_bytes().chunks(1500) {
                connection.write(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            connection.write(b"0\r\n\r\n");
            connection.response().rest()
        } else {
            chat(&toolrein, &body)
        };
        assert_eq!((reply.status, reply.cut), (200, false));
        let seen = upstream.request(nth);
        assert!(seen.body == body.as_bytes(), "chunked {chunked}");
        assert_eq!(seen.header("transfer-encoding").is_some(), chunked);
        toolrein.wait_for_metric("toolrein_ungoverned_total{why=\"too_large\"}", (nth + 1) as f64);
    }
}

#[test]
fn calls_that_are_only_observed_are_counted_as_allowed() {
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{}", budget(1)));
    for (nth, stream) in BOTH.into_iter().enumerate() {
        chat(&toolrein, after(&["r"], stream));
        let both = 2.0 * (nth + 1) as f64;
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}", both);
        toolrein.wait_for_metric("toolrein_actions_total{policy=\"budget\",action=\"blocked\"}", both);
    }
    assert!(toolrein.metric("toolrein_tool_calls_total{verdict=\"block\"}").abs() < 0.5);
}

#[test]
fn off_relays_everything_and_reads_nothing() {
    let upstream = Scripted::start(calling(2));
    let policies = format!("{}[policy.truncate]\nmax_chars = 1000\n", budget(1));
    let toolrein =
        Toolrein::before(&upstream, &format!("mode = \"off\"\nlimits.request_bytes = 1024\n{policies}"));
    let long = long_text(3000);
    let bodies = [after(&[&long], false), after(&[&long], true), "not json".to_owned()];
    for (nth, body) in bodies.iter().enumerate() {
        let request = Request::post(&toolrein.chat_url(), body).header("accept-encoding", "zstd");
        let reply = request.header("x-toolrein-conversation", "s").send();
        let seen = upstream.request(nth);
        assert_eq!(String::from_utf8_lossy(&seen.body), body.as_str());
        assert_eq!(seen.header("accept-encoding"), Some("zstd"));
        assert_eq!(seen.header("x-toolrein-conversation"), None, "ours stay with us");
        assert_eq!(reply.body, bytes_of(&calling(2)(nth, &seen)));
        let mut own = reply.head.headers.iter().filter(|(name, _)| name.starts_with("x-toolrein"));
        assert!(own.all(|(name, _)| name == "x-toolrein-request-id"));
    }
    toolrein.wait_for_metric(
        "toolrein_requests_total{endpoint=\"chat_completions\",model=\"none\",status=\"200\"}",
        3.0,
    );
    for metric in [
        "toolrein_actions_total",
        "toolrein_tool_calls_total",
        "toolrein_ungoverned_total",
        "toolrein_tokens_total",
    ] {
        assert!(toolrein.metric(metric).abs() < 0.5, "{metric}");
    }
    let line = log_line(&toolrein, 0);
    assert_eq!((&line["mode"], &line["route"]), (&"off".into(), &"relay".into()));
}
