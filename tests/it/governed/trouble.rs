//! Upstreams that fail: an error of toolrein's own if there is no answer, the upstream's error unchanged if there is
//! one, and never an incomplete reply that looks complete.

use crate::governed::talk::{
    BOTH, GENEROUS, after, budget, bytes_of, calling, chat, grouped, log_line, own_error, question,
    toolrein_before,
};
use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Piece, Reply, Speech};
use crate::support::scripted::Scripted;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::net::TcpListener;

#[test]
fn a_dead_upstream_is_a_502_that_may_be_retried() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toolrein = toolrein_before(&format!("http://{address}/v1"), GENEROUS);
    for body in [question(false), question(true), "not json".to_owned()] {
        let reply = chat(&toolrein, body);
        assert_eq!(own_error(&reply, 502, "upstream_unreachable").as_deref(), Some("true"));
        assert!(reply.text().contains(&address.to_string()));
    }
    let line = log_line(&toolrein, 0);
    assert_eq!((&line["level"], &line["error"]), (&"warn".into(), &"upstream_unreachable".into()));
    let detail = line["error_detail"].as_str().unwrap_or_default();
    assert!(detail.contains("refused"), "the log has the reason: {line}");
}

#[test]
fn an_upstream_that_does_not_begin_is_a_504_that_may_be_retried() {
    let upstream = Scripted::start(|_, _| Reply::silence());
    let toolrein =
        Toolrein::before(&upstream, &format!("upstream.first_byte_timeout = \"50ms\"\n{GENEROUS}"));
    for (nth, body) in [question(false), question(true), "not json".to_owned()].into_iter().enumerate() {
        let reply = chat(&toolrein, body);
        assert_eq!(own_error(&reply, 504, "upstream_timeout").as_deref(), Some("true"));
        upstream.wait_for_hang_up(nth);
    }
}

#[test]
fn a_whole_reply_that_stops_or_breaks_off_is_an_error_of_ours_and_nothing_of_it_is_shown() {
    let whole = Speech::text("never shown").whole().to_string();
    let (start, end) = whole.split_at(40);
    let halves = |between: Piece| {
        let pieces = vec![Piece::Data(start.into()), between, Piece::Data(end.into())];
        Reply { pieces, ..Reply::bytes(200, "application/json", "") }
    };
    let chunked = |reply: Reply| Reply { streamed: true, ..reply };
    let replies = [
        (halves(Piece::Cut), 502, "upstream_cut"),
        (chunked(halves(Piece::Cut)), 502, "upstream_cut"),
        (Reply::text("x").cut_after(0), 502, "upstream_cut"),
        (halves(Piece::Wait(Gate::shut())), 504, "upstream_timeout"),
        (chunked(halves(Piece::Wait(Gate::shut()))), 504, "upstream_timeout"),
    ];
    let scripted = replies.clone();
    let upstream = Scripted::start(move |nth, _| scripted[nth % 5].0.clone());
    let toolrein = Toolrein::before(&upstream, &format!("upstream.idle_timeout = \"100ms\"\n{GENEROUS}"));
    // The body of an error that does not end is treated the same way.
    for stream in BOTH {
        for (_, status, code) in &replies {
            let reply = chat(&toolrein, question(stream));
            assert_eq!(own_error(&reply, *status, code).as_deref(), Some("true"));
            assert!(!reply.cut);
        }
    }
}

/// The code of the error that a broken stream ends with.
fn last_error(reply: &Response) -> Option<String> {
    let last: Value = serde_json::from_str(reply.data().last()?).ok()?;
    Some(last["error"]["code"].as_str()?.to_owned())
}

#[test]
fn a_stream_that_stops_or_breaks_off_ends_in_an_error_event_and_is_broken() {
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"shown\"}}]}\n\n";
    let replies = [
        (Reply::stream([event, event]).cut_after(1), 1, "upstream_cut"),
        (Reply::stream([event, "data: {\"choices\":[{\"in", ""]).cut_after(2), 1, "upstream_cut"),
        (Reply::stream([event]).cut_after(0), 0, "upstream_cut"),
        (Reply::stream([event, event]).held_after(1, &Gate::shut()), 1, "upstream_timeout"),
        (Reply::stream([event, "data: {\"cho", ""]).held_after(2, &Gate::shut()), 1, "upstream_timeout"),
    ];
    let upstream = Scripted::queue(replies.clone().map(|(reply, _, _)| reply));
    let toolrein = Toolrein::before(&upstream, &format!("upstream.idle_timeout = \"100ms\"\n{GENEROUS}"));
    for (nth, (_, shown, code)) in replies.iter().enumerate() {
        let reply = chat(&toolrein, question(true));
        assert_eq!(reply.status, 200);
        assert!(reply.cut, "never a silent end");
        assert!(reply.text().starts_with(&event.repeat(*shown)), "{}", reply.text());
        assert_eq!(reply.data().len(), shown + 1, "reply {nth}: {}", reply.text());
        assert_eq!(last_error(&reply).as_deref(), Some(*code));
        let event: Value = serde_json::from_str(reply.data().last().unwrap()).unwrap();
        assert_eq!(event["error"]["request_id"].as_str(), reply.header("x-toolrein-request-id"), "{event}");
        assert_eq!(log_line(&toolrein, nth)["error"], *code);
    }
    toolrein.wait_for_metric("toolrein_streams_open", 0.0);
    assert!(toolrein.metric("toolrein_client_gone_total").abs() < 0.5);
}

#[test]
fn a_broken_stream_shows_its_error_event_over_http_2_too() {
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"shown\"}}]}\n\n";
    let upstream = Scripted::queue([Reply::stream([event, event]).cut_after(2)]);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (text, ended) = runtime.block_on(async {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let request =
            hyper::http::Request::post(toolrein.chat_url()).body(Full::new(Bytes::from(question(true))));
        let mut body = client.request(request.unwrap()).await.unwrap().into_body();
        let mut text = Vec::new();
        loop {
            match body.frame().await {
                Some(Ok(frame)) => text.extend(frame.into_data().unwrap()),
                other => break (String::from_utf8(text).unwrap(), other.is_none()),
            }
        }
    });
    assert!(!ended, "never a silent end");
    assert!(text.starts_with(&event.repeat(2)) && text.contains("upstream_cut"), "{text}");
}

#[test]
fn a_stream_that_breaks_off_while_a_call_is_held_or_hidden_shows_nothing_of_the_call() {
    let role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    // A call without a name cannot be judged.
    let nameless = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"arguments\":\"{\"}}]}}]}\n\n";
    let named = nameless.replace("{\"arguments\"", "{\"name\":\"f\",\"arguments\"");
    let replies = [nameless, &named].map(|call| Reply::stream([role, call]).cut_after(2));
    let upstream = Scripted::queue(replies);
    let toolrein = Toolrein::before(&upstream, &budget(1));
    for _ in 0..2 {
        let reply = chat(&toolrein, after(&["r"], true));
        assert!(reply.cut && reply.text().starts_with(role), "{}", reply.text());
        assert!(!reply.text().contains("tool_calls"), "{}", reply.text());
        assert_eq!(last_error(&reply).as_deref(), Some("upstream_cut"));
    }
}

#[test]
fn a_stream_that_breaks_off_behind_its_done_is_whole() {
    let sent = bytes_of(&Reply::events(&Speech::text("whole").chunks(true)));
    let upstream = Scripted::start(move |_, _| {
        let events = Reply::events(&Speech::text("whole").chunks(true));
        let pieces = events.pieces.len();
        events.cut_after(pieces)
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let reply = chat(&toolrein, question(true));
    assert_eq!((reply.text(), reply.cut), (String::from_utf8(sent).unwrap(), false));
    assert_eq!(log_line(&toolrein, 0).get("error"), None);
}

#[test]
fn an_event_over_the_limit_passes_unread_and_is_counted_and_the_rest_is_judged() {
    let long = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "é".repeat(2000));
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let finish = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let sent = [call, &long, finish].concat();
    let pieces = sent.clone();
    let upstream = Scripted::start(move |nth, _| {
        let reply = Reply::stream([&pieces]);
        if nth == 0 { reply } else { reply.in_pieces_of(700) }
    });
    let settings = "limits.event_bytes = 1024\nlimits.held_bytes = 1024\nlimits.reply_bytes = 4096\n";
    let toolrein = Toolrein::before(&upstream, &format!("{settings}{GENEROUS}"));
    for nth in 1..=2 {
        let reply = chat(&toolrein, question(true));
        assert_eq!((reply.text() == sent, reply.cut), (true, false), "{}", reply.text());
        toolrein.wait_for_metric("toolrein_unjudged_total{why=\"event_too_long\"}", nth.into());
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}", nth.into());
    }
}

#[test]
fn a_whole_reply_over_the_limit_passes_unjudged_and_is_counted() {
    let calls = Speech { text: "long ".repeat(1000), ..Speech::calls(&[("c", "f", "{}")]) };
    let whole = calls.whole().to_string();
    let known = Reply::bytes(200, "application/json", whole.clone());
    let chunked = Reply { streamed: true, ..known.clone().in_pieces_of(500) };
    let upstream = Scripted::queue([known, chunked]);
    let settings = "limits.event_bytes = 1024\nlimits.held_bytes = 1024\nlimits.reply_bytes = 2048\n";
    let toolrein = Toolrein::before(&upstream, &format!("{settings}{}", budget(1)));
    for nth in 1..=2 {
        let reply = chat(&toolrein, after(&["r"], false));
        assert_eq!((reply.text() == whole, reply.cut), (true, false));
        toolrein.wait_for_metric("toolrein_unjudged_total{why=\"reply_too_long\"}", nth.into());
    }
}

#[test]
fn a_whole_reply_over_the_limit_that_falls_silent_is_given_up_too() {
    let long = Speech::text(&"long ".repeat(1000)).whole().to_string();
    let reply = Reply { streamed: true, ..Reply::bytes(200, "application/json", long).in_pieces_of(3000) };
    let upstream = Scripted::queue([reply.held_after(1, &Gate::shut())]);
    let settings = "limits.event_bytes = 1024\nlimits.held_bytes = 1024\nlimits.reply_bytes = 2048\n";
    let settings = format!("upstream.idle_timeout = \"100ms\"\n{settings}{GENEROUS}");
    let toolrein = Toolrein::before(&upstream, &settings);
    let stream = Request::post(&toolrein.chat_url(), question(false)).open();
    // Before the client gives up.
    upstream.wait_for_hang_up(0);
    assert!(stream.rest().cut, "broken, not whole");
}

#[test]
fn errors_of_the_upstream_pass_byte_for_byte_with_their_headers() {
    let replies: Vec<Reply> = [400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 529]
        .into_iter()
        .flat_map(|status| {
            let body = format!(
                "{{ \"error\" : {{\"message\":\"no \\u00e9 {status}\", \"code\":\"c{status}\"}} }}\n"
            );
            let json = Reply::bytes(status, "application/json", body);
            let page = Reply::bytes(status, "text/html", format!("<h1>{status}</h1>"));
            let event = Reply { status, ..Reply::stream(["data: {\"error\":{\"message\":\"x\"}}\n\n"]) };
            [json, page, event, Reply::bytes(status, "application/json", "")]
        })
        .map(|reply| {
            let reply = reply
                .header("retry-after", "7")
                .header("retry-after-ms", "70")
                .header("x-ratelimit-reset-requests", "1s");
            reply.header("x-should-retry", "false").header("x-request-id", "req_9")
        })
        .collect();
    let scripted = replies.clone();
    let upstream = Scripted::start(move |nth, _| scripted[nth / 4 % scripted.len()].clone());
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for reply in &replies {
        for body in [question(false), question(true)] {
            let straight = Request::post(&format!("{}/chat/completions", upstream.base_url()), &body).send();
            let through = chat(&toolrein, &body);
            assert_eq!((through.status, &through.body), (reply.status, &straight.body));
            let other = ["transfer-encoding", "content-length", "x-toolrein-request-id"];
            assert_eq!(grouped(&through.head.headers, &other), grouped(&straight.head.headers, &other));
            assert!(!through.cut);
        }
    }
}

#[test]
fn an_error_inside_a_200_that_is_no_refusal_of_tools_passes_as_it_came() {
    let error = "{\"error\" : {\"message\":\"Provider returned error\",\"code\":502}}";
    let event = format!("data: {error}\n\n");
    let bodies = [
        (false, error.to_owned()),
        (false, format!("{{\"choices\":[],{}", &error[1..])),
        (false, r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#.to_owned()),
        (true, event.clone()),
        (true, format!("{event}data: [DONE]\n\n")),
        (true, format!(": PROCESSING\n\n: PROCESSING\n\n{event}: bye\n\ndata: [DONE]\n\n")),
        (
            true,
            format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\n{event}data: [DONE]\n\n"),
        ),
        (true, format!("event: error\n{event}")),
        (true, event.trim_end().to_owned()),
    ];
    let reply = |(stream, body): &(bool, String)| {
        if *stream { Reply::stream([body]) } else { Reply::bytes(200, "application/json", body.clone()) }
    };
    let mut replies: Vec<Reply> = bodies.iter().map(reply).collect();
    replies.extend(bodies.iter().map(|body| reply(body).in_pieces_of(9)));
    let upstream = Scripted::queue(replies.clone());
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for reply in &replies {
        let got = chat(&toolrein, question(reply.streamed));
        assert_eq!(got.text(), String::from_utf8(bytes_of(reply)).unwrap());
        assert_eq!((got.status, got.cut), (200, false));
    }
    assert_eq!(upstream.requests().len(), replies.len(), "nothing was tried a second time");
}

#[test]
fn blocked_calls_are_reported_even_if_the_re_ask_fails() {
    let failing = |nth: usize| match nth {
        0 => Reply::error(503, "server", "overloaded", "later").header("retry-after", "3"),
        1 => Reply::text("x").cut_after(0),
        _ => Reply::bytes(200, "application/json", "no JSON"),
    };
    for (nth, (status, code)) in
        [(503, "overloaded"), (502, "upstream_cut"), (502, "upstream_cut")].into_iter().enumerate()
    {
        for stream in BOTH {
            let upstream = Scripted::start(
                move |at, request| {
                    if at == 0 { calling(1)(at, request) } else { failing(nth) }
                },
            );
            let toolrein = Toolrein::before(&upstream, &budget(1));
            let reply = chat(&toolrein, after(&["r"], stream));
            if stream {
                assert!(reply.cut && reply.data().last().unwrap().contains("\"error\""), "{}", reply.text());
            } else {
                assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (status, Some(code)));
            }
            assert!(!reply.text().contains("tool_calls"), "{}", reply.text());
            let blocked = "toolrein_tool_calls_total{tool=\"f\",verdict=\"block\"}";
            toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 1.0);
            assert!((toolrein.metric(blocked) - 1.0).abs() < 0.5, "failure {nth}, streamed: {stream}");
            let line = log_line(&toolrein, 0);
            assert_eq!((&line["reasks"], &line["upstream_requests"]), (&1.into(), &2.into()), "{line}");
        }
    }
}

#[test]
fn a_whole_reply_of_odd_shape_to_a_re_ask_of_a_stream_ends_the_stream_with_an_error_or_an_answer() {
    let tools = serde_json::json!([{"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {"name": "wipe_disk"}}]);
    for odd in [
        r#"{"message":"Fine."}"#,
        r#"{"message":7}"#,
        r#"{"message":{"content":"Fine.","tool_calls":[5]}}"#,
        r#"{"message":{"content":"Fine.","tool_calls":["a"]}}"#,
        r#"{"message":{"content":"Fine. \ud83d"}}"#,
        r#"{"delta":{"content":"Fine."}}"#,
    ] {
        let upstream = Scripted::queue([
            Reply::events(&Speech::calls(&[("c", "wipe_disk", "{}")]).chunks(false)),
            Reply::bytes(200, "application/json", format!("{{\"choices\":[{odd}]}}")),
        ]);
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"wipe*\"]\n");
        let mut body: Value = serde_json::from_str(&question(true)).unwrap();
        body["tools"] = tools.clone();
        let text = chat(&toolrein, body.to_string()).text();
        assert!(text.contains("\"content\":\"Fine.") || text.contains("\"error\":{"), "{odd}: {text}");
        assert!(!text.contains("wipe_disk"), "{odd}: {text}");
        let logs = toolrein.stop().join("\n");
        assert!(!logs.contains("panicked"), "{odd}: {logs}");
    }
}
