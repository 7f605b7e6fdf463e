//! What no policy changes reaches the other side byte for byte, whatever its form.

use crate::governed::talk::{
    GENEROUS, budget, bytes_of, calling, chat, question, raw_upstream, toolrein_before,
};
use crate::support::client::{Connection, Request};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Bodies in unusual forms that clients write; `STREAM` is replaced by `true` or `false`.
const REQUESTS: [&str; 8] = [
    r#"{"model":"m","messages":[{"role":"user","content":"q"}],"stream":STREAM}"#,
    "\r\n{ \"stream\" :\tSTREAM, \"messages\" : [ { \"content\":\"q\", \"role\" : \"user\" } ] , \"model\":\"m\" }\n\n",
    r#"{"messages":[{"role":"user","content":"\u00e9\/\uD83D\ude00 é😀  \t"}],"model":"a\/b","stream":STREAM}"#,
    r#"{"temperature":1.0e0,"seed":9007199254740993,"top_p":-0.0,"n":1,"messages":[],"model":"m","stream":STREAM}"#,
    r#"{"x":1,"x":{"y":[[],{}]},"messages":[{"role":"user","content":[{"type":"image_url"}],"z":null,"z":2}],"stream":STREAM}"#,
    r#"{"messages":[{"role":"user","content":"nul \u0000, half \ud83d, other half \udE00"}],"stream":STREAM}"#,
    r#"{"functions":[{"name":"f"}],"function_call":"auto","messages":[{"role":"assistant","function_call":{"name":"f","arguments":"{ }"}},{"role":"function","name":"f","content":"r"}],"stream":STREAM}"#,
    r#"{"tools":[],"messages":[{"role":"assistant","tool_calls":[{"id":"","function":{"name":"f","arguments":{"a": 1}}},{"id":"","function":{"name":"f"}}]},{"role":"tool","tool_call_id":"","content":"r"},{"role":"robot"}],"stream":STREAM}"#,
];

/// A whole reply that no serializer would write so.
const WHOLE: &str = "{ \"id\":\"x\",\"object\":\"chat.completion\", \"choices\" :[ {\"index\":0,\"message\":{\
    \"role\":\"assistant\",\"content\":\"\\u00e9 \\/\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\
    \"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"},\"extra\":null}]},\"finish_reason\":\"tool_calls\"}],\
    \"usage\":{\"prompt_tokens\":1e1},\"unknown\":[1.0] }\n";

/// A stream with most of the recorded quirks.
const STREAM: &str = ": PROCESSING\n\ndata:{\"choices\":[],\"prompt_filter_results\":[]}\n\n\
    event: x\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\\u00e9 é\"}}]}\r\n\r\n\
    data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"two lines\"}}]}\n\n\
    id: 7\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n\
    data: not json\n\ndata:\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}}\n\ndata: [DONE]\n\n: bye\n\n";

#[test]
fn requests_and_replies_that_no_policy_touches_keep_every_byte() {
    let upstream = Scripted::start(|nth, request| {
        if String::from_utf8_lossy(&request.body).contains("false") {
            return Reply::bytes(200, "application/json", WHOLE);
        }
        // In one piece, and cut anywhere.
        let stream = Reply::stream([STREAM]);
        if nth % 2 == 0 { stream } else { stream.in_pieces_of(7) }
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut sent = 0;
    for (streamed, expected) in [("false", WHOLE), ("true", STREAM), (" true", STREAM)] {
        for body in REQUESTS {
            let body = body.replace("STREAM", streamed);
            let reply = chat(&toolrein, &body);
            assert_eq!(String::from_utf8_lossy(&upstream.request(sent).body), body);
            assert_eq!((reply.status, reply.text().as_str()), (200, expected), "{body}");
            assert!(!reply.cut);
            sent += 1;
        }
    }
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", sent as f64);
    let odd = toolrein.metric("toolrein_ungoverned_total{why=\"odd_text\"}");
    assert!((toolrein.metric("toolrein_ungoverned_total") - odd).abs() < 0.5, "all of them were read");
}

#[test]
fn a_chunked_request_and_one_in_small_pieces_arrive_whole() {
    let upstream = Scripted::start(|_, _| Reply::text("ok"));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let body = question(false);
    let (start, end) = body.split_at(17);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
    let chunked = format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{start}\r\n{:x}\r\n{end}\r\n0\r\n\r\n",
        start.len(),
        end.len()
    );
    let whole = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    for (nth, sent) in [chunked, whole].into_iter().enumerate() {
        let mut connection = Connection::open(&toolrein.chat_url());
        sent.as_bytes().chunks(50).for_each(|piece| connection.write(piece));
        assert_eq!(connection.response().rest().status, 200);
        let seen = upstream.request(nth);
        assert_eq!(String::from_utf8_lossy(&seen.body), body);
        assert_eq!(seen.header("content-length"), Some(body.len().to_string().as_str()));
        assert_eq!(seen.header("transfer-encoding"), None);
    }
}

#[test]
fn every_path_that_ends_in_chat_completions_is_governed_and_arrives_as_it_was_asked_for() {
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let paths = [
        ("POST", "/v1/chat/completions", true),
        ("POST", "/v1/chat/completions/", true),
        ("POST", "/v1/chat/completions?x=%2F&y=&y", true),
        ("POST", "/openai/deployments/x/chat/completions?api-version=2024-10-21", true),
        ("POST", "/chat/completions", true),
        ("POST", "/v1/chat/completions/id", false),
        ("POST", "/v1/completions", false),
        ("POST", "/v1/responses", false),
        ("PUT", "/v1/chat/completions", false),
    ];
    for (nth, (method, path, governed)) in paths.into_iter().enumerate() {
        for (turn, stream) in [false, true].into_iter().enumerate() {
            let url = format!("{}{path}", toolrein.origin());
            let reply = Request::new(method, &url, question(stream)).send();
            assert_eq!(upstream.request(2 * nth + turn).path, path);
            assert_eq!(reply.text().contains("_1\""), !governed, "the second call, {method} {path}");
        }
    }
}

#[test]
fn a_reply_from_an_http_1_0_upstream_is_sent_in_the_clients_http_version() {
    let whole = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{\"choices\":[]}";
    let stream = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[]}\n\n";
    let unread = b"HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\nwhatever";
    for (answer, body, ask, expected) in [
        (&whole[..], question(false), "HTTP/1.1 200", "{\"choices\":[]}"),
        (stream, question(true), "HTTP/1.1 200", "data: {\"choices\":[]}\n\n"),
        (unread, "not json".to_owned(), "HTTP/1.1 200", "whatever"),
    ] {
        let toolrein = toolrein_before(&raw_upstream(answer), GENEROUS);
        let reply = chat(&toolrein, body);
        assert!(reply.head.first_line.starts_with(ask), "{}", reply.head.first_line);
        assert_eq!((reply.text().as_str(), reply.cut), (expected, false));
        assert_eq!(reply.header("connection"), None, "the connection stays open");
    }
}

#[test]
fn a_client_that_speaks_http_2_gets_the_same_bytes() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("one two")));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (nth, stream) in [false, true].into_iter().enumerate() {
        let body = question(stream);
        let got = runtime.block_on(async {
            let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
            let request = hyper::http::Request::post(toolrein.chat_url()).header("x-own", "1");
            let response = client.request(request.body(Full::new(Bytes::from(body.clone()))).unwrap()).await;
            let response = response.unwrap();
            assert_eq!((response.status().as_u16(), response.version()), (200, hyper::http::Version::HTTP_2));
            response.into_body().collect().await.unwrap().to_bytes()
        });
        let seen = upstream.request(nth);
        assert_eq!(String::from_utf8_lossy(&seen.body), body);
        assert_eq!(seen.header("x-own"), Some("1"));
        let expected = bytes_of(&Reply::speech(&seen, &Speech::text("one two")));
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected));
    }
}
