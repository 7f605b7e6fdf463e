//! The endpoint of Anthropic's Messages API as the shell sees it: its paths and those beside it, errors of toolrein's own,
//! threads, and the counting of tokens.

use crate::governed::talk::{GENEROUS, log_line};
use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

const VERTEX: &str = "/v1/projects/p/locations/l/publishers/anthropic/models";

/// A message of the model.
fn message() -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 2}})
}

/// A request with these further members.
fn body(members: &str) -> String {
    format!(r#"{{"model":"m", "max_tokens":9,"messages":[{{"role":"user","content":"q"}}]{members}}}"#)
}

/// Answers as Anthropic would, by the path.
fn anthropic() -> Scripted {
    Scripted::start(|_, request| match request.path.contains("count") {
        true => Reply::json(200, &json!({"input_tokens": 14})),
        false => Reply::json(200, &message()),
    })
}

fn send(toolrein: &Toolrein, method: &str, path: &str, body: &str) -> Response {
    Request::new(method, &format!("{}{path}", toolrein.origin()), body)
        .header("anthropic-version", "2023-06-01")
        .header("x-api-key", "sk-ant-1")
        .header("content-type", "application/json")
        .send()
}

/// The error in a response of Anthropic's shape.
fn error_of(response: &Response) -> Value {
    let body = response.json();
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(body["request_id"].as_str(), response.header("x-toolrein-request-id"), "{body}");
    body["error"].clone()
}

#[test]
fn every_spelling_of_the_path_is_governed_and_goes_on_as_it_came() {
    let upstream = anthropic();
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let vertex = |last: &str| format!("{VERTEX}/{last}");
    for (nth, path) in [
        "/v1/messages",
        "/v1/messages?beta=true",
        "/v1/messages/",
        "/anthropic/v1/messages",
        "/api/anthropic/v1/Messages",
        "/v1/%6dessages",
        "/v1/x/../messages",
        "/v1/messages;a=b",
        &vertex("claude-sonnet@1:rawPredict"),
        &vertex("claude-sonnet@1:streamRawPredict"),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = match path.contains("anthropic/models") {
            true => body("").replacen(r#""model":"m","#, r#""anthropic_version":"vertex-2023-10-16","#, 1),
            false => body(""),
        };
        let reply = send(&toolrein, "POST", path, &asked);
        assert_eq!((reply.status, reply.json()), (200, message()), "{path}");
        assert_eq!(upstream.requests()[nth].path, path);
        assert_eq!(upstream.requests()[nth].body, asked.as_bytes(), "{path}");
        let line = log_line(&toolrein, nth);
        assert_eq!((&line["endpoint"], &line["route"]), (&json!("messages"), &json!("messages")), "{line}");
        assert_eq!(line.get("ungoverned"), None, "{line}");
    }
}

#[test]
fn what_is_beside_the_endpoint_is_relayed_and_counted_and_bedrock_is_warned_about_once() {
    let upstream = Scripted::start(|_, _| Reply::text("as it came"));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let asked = body("");
    for (nth, (method, path, endpoint)) in [
        ("POST", "/v1/messages/batches", "batches"),
        ("GET", "/v1/messages/batches/b/results", "batches"),
        ("GET", "/v1/models", "models"),
        ("POST", "/v1/files", "files"),
        ("POST", "/v1/skills", "other"),
        ("HEAD", "/api/hello", "other"),
        ("GET", "/v1/messages", "messages"),
        ("POST", "/v1/threads/thread_1/messages", "other"),
        ("POST", "/model/anthropic.claude-v2/invoke", "bedrock"),
        ("POST", "/model/anthropic.claude-v2/invoke-with-response-stream", "bedrock"),
        ("POST", "/model/anthropic.claude-v2/converse-stream", "bedrock"),
        ("POST", "/v1/projects/p/locations/l/publishers/google/models/gemini:rawPredict", "models"),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = send(&toolrein, method, path, if method == "POST" { &asked } else { "" });
        assert_eq!(reply.status, 200, "{path}");
        let line = log_line(&toolrein, nth);
        assert_eq!(
            (&line["endpoint"], &line["route"]),
            (&json!(endpoint), &json!("relay")),
            "{path}: {line}"
        );
        if method == "POST" {
            assert_eq!(upstream.requests()[nth].body, asked.as_bytes(), "{path}");
        }
    }
    let warned = |line: &&String| line.contains("without being governed") && line.contains("bedrock");
    assert_eq!(toolrein.logs().iter().filter(warned).count(), 1);
}

#[test]
fn errors_of_toolreins_own_have_the_shape_of_the_api() {
    let known = "[caller.ann]\nkeys = [\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"]\n";
    let restricting = "[policy.allow]\nexcept = [\"rm\"]\n";
    let long = format!(r#","x":"{}""#, "y".repeat(2_000));
    for (settings, path, body, status, kind, code) in [
        (
            "[limits]\nrequest_bytes = \"1KiB\"\n",
            "/v1/messages",
            body(&long),
            413,
            "request_too_large",
            "request_too_large",
        ),
        (
            restricting,
            "/v1/messages",
            body(r#","messages":[]"#),
            400,
            "invalid_request_error",
            "request_unreadable",
        ),
        (known, "/v1/messages", body(""), 401, "authentication_error", "unknown_caller"),
        (known, "/v1/models", String::new(), 401, "authentication_error", "unknown_caller"),
        (known, "/v1/messages/count_tokens", body(""), 401, "authentication_error", "unknown_caller"),
    ] {
        let upstream = anthropic();
        let toolrein = Toolrein::before(&upstream, settings);
        let reply = send(&toolrein, "POST", path, &body);
        assert_eq!(reply.status, status, "{code}: {}", reply.text());
        let error = error_of(&reply);
        assert_eq!(
            (&error["type"], &error["details"]["error_code"]),
            (&json!(kind), &json!(code)),
            "{error}"
        );
        assert!(error["message"].as_str().is_some_and(|text| text.len() > 20), "{error}");
        assert_eq!(reply.header("x-should-retry"), Some("false"), "{code}");
        assert_eq!(upstream.requests().len(), 0, "{code}");
    }
    let toolrein = Toolrein::start(&crate::support::program::before("http://127.0.0.1:9/v1", ""));
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"] {
        let reply = send(&toolrein, "POST", path, &body(""));
        assert_eq!((reply.status, error_of(&reply)["type"].as_str()), (502, Some("api_error")), "{path}");
    }
}

#[test]
fn a_thread_is_not_kept_upstream_so_that_its_client_sends_the_whole_conversation() {
    let upstream = anthropic();
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let continues = r#", "thread" : {"type":"continue","previous_message_id":"msg_1"}"#;
    for (nth, path) in ["/v1/messages", "/v1/messages/count_tokens"].into_iter().enumerate() {
        let created = send(&toolrein, "POST", path, &body(r#", "thread": {"type": "create"} ,"x":1.0"#));
        assert_eq!(created.status, 200, "{}", created.text());
        let sent = String::from_utf8(upstream.requests()[nth].body.clone()).unwrap();
        assert_eq!(sent, body(r#" ,"x":1.0"#), "the member alone is gone");
        let continued = send(&toolrein, "POST", path, &body(continues));
        assert_eq!(continued.status, 404, "{path}");
        let error = error_of(&continued);
        assert_eq!(
            (&error["type"], &error["details"]),
            (&json!("not_found_error"), &json!({"error_code": "thread_not_found"}))
        );
        let unknown = send(&toolrein, "POST", path, &body(r#","thread":{"type":"fork"}"#));
        assert_eq!(unknown.status, 400, "{path}");
        assert_eq!(error_of(&unknown)["details"]["error_code"], "thread_unsupported_request");
        assert_eq!(upstream.requests().len(), nth + 1, "nothing else went upstream");
    }
    let refused = "toolrein_actions_total{policy=\"threads\",action=\"refused\"}";
    toolrein.wait_for_metric(refused, 4.0);
    assert_eq!(toolrein.metric("toolrein_actions_total{policy=\"threads\",action=\"removed\"}"), 2.0);
    let told = |line: &&String| line.contains("has it send the whole conversation");
    assert_eq!(toolrein.logs().iter().filter(told).count(), 1);
}

#[test]
fn threads_are_relayed_ungoverned_where_the_operator_wants_that_or_only_observes() {
    for settings in ["[messages]\nthreads = \"relay\"\n", "mode = \"observe\"\n"] {
        let upstream = anthropic();
        let toolrein = Toolrein::before(&upstream, settings);
        for (nth, kind) in ["create", "continue"].into_iter().enumerate() {
            let asked = body(&format!(r#","thread":{{"type":"{kind}"}}"#));
            assert_eq!(send(&toolrein, "POST", "/v1/messages", &asked).status, 200, "{settings}");
            assert_eq!(upstream.requests()[nth].body, asked.as_bytes());
            assert_eq!(log_line(&toolrein, nth)["ungoverned"], "thread", "{settings}");
        }
        let told = |line: &&String| line.contains("are relayed without being governed, and counted");
        assert_eq!(toolrein.logs().iter().filter(told).count(), 1);
    }
}

#[test]
fn tokens_are_counted_of_the_request_as_it_would_be_sent_and_nothing_else_is_counted() {
    let upstream = anthropic();
    let settings = "[policy.truncate]\nmax_chars = 400\n[policy.budget]\nrequests = 2\n";
    let toolrein = Toolrein::before(&upstream, settings);
    let long = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"q"}},
        {{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"f","input":{{}}}}]}},
        {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":"{}"}}]}}]}}"#,
        "A long line of a page.\\n".repeat(200)
    );
    for _ in 0..5 {
        let counted = send(&toolrein, "POST", "/v1/messages/count_tokens", &long);
        assert_eq!((counted.status, counted.text()), (200, r#"{"input_tokens":14}"#.to_owned()));
    }
    let created = long.replacen("\"model\"", "\"max_tokens\":9,\"model\"", 1);
    assert_eq!(send(&toolrein, "POST", "/v1/messages", &created).status, 200);
    let sent: Vec<Value> =
        upstream.requests().iter().map(|request| request.json()["messages"].clone()).collect();
    assert!(sent.iter().all(|messages| messages == &sent[0]), "{sent:?}");
    assert!(sent[0].to_string().len() < 1_500, "the result is shortened: {}", sent[0]);
    let line = log_line(&toolrein, 0);
    assert_eq!((&line["endpoint"], &line["route"]), (&json!("count_tokens"), &json!("relay")), "{line}");
    assert_eq!((line.get("actions"), line.get("ungoverned")), (None, None), "{line}");
}

#[test]
fn what_cannot_be_read_is_counted_upstream_all_the_same() {
    let upstream = anthropic();
    let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"rm\"]\n");
    for (nth, unread) in ["{", "[]", &body(r#","messages":[]"#)].into_iter().enumerate() {
        assert_eq!(send(&toolrein, "POST", "/v1/messages/count_tokens", unread).status, 200, "{unread}");
        assert_eq!(upstream.requests()[nth].body, unread.as_bytes());
    }
    let vertex = format!("{VERTEX}/count-tokens:rawPredict");
    assert_eq!(send(&toolrein, "POST", &vertex, &body("")).status, 200);
    assert_eq!(log_line(&toolrein, 3)["endpoint"], "count_tokens");
}
