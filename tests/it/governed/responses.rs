//! The Responses API beside its governed POST: WebSockets, and the paths below a response.

use crate::governed::talk::{GENEROUS, budget, log_line, own_error};
use crate::support::client::{Connection, Request, Stream};
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, event};
use crate::support::scripted::Scripted;
use crate::support::until;
use serde_json::{Value, json};

const HANDSHAKE: &str =
    "host: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n";

/// The spellings of the path that a server may take for it.
const PATHS: [&str; 5] = [
    "/v1/responses",
    "/v1/responses/?model=m",
    "/backend-api/codex/responses",
    "/v1/%72esponses",
    "/v1/x/../Responses;a=b",
];

/// Asks for a WebSocket.
fn upgrade(toolrein: &Toolrein, path: &str) -> Stream {
    let mut connection = Connection::open(toolrein.origin());
    connection.write(format!("GET {path} HTTP/1.1\r\n{HANDSHAKE}").as_bytes());
    connection.response()
}

/// The endpoints that the log warns about, in order.
fn warned(toolrein: &Toolrein) -> Vec<Value> {
    let lines = toolrein.logs().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let warnings = lines.filter(|line| line.to_string().contains("without being governed"));
    warnings.map(|line| line.get("endpoint").unwrap_or(&line["fields"]["endpoint"]).clone()).collect()
}

#[test]
fn a_websocket_for_responses_is_refused_so_that_its_client_uses_http() {
    let upstream = Scripted::start(|_, _| Reply::upgrade("websocket"));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (nth, path) in PATHS.into_iter().enumerate() {
        let refused = upgrade(&toolrein, path).rest();
        assert_eq!(own_error(&refused, 426, "websocket_not_governed").as_deref(), Some("false"), "{path}");
        assert_eq!(refused.header("upgrade"), Some("HTTP/1.1"));
        assert_eq!(refused.header("connection"), Some("upgrade"));
        assert!(refused.text().contains("responses.websocket"), "it says how to allow it");
        let line = log_line(&toolrein, nth);
        assert_eq!((&line["endpoint"], &line["route"]), (&json!("responses"), &json!("upgrade")), "{line}");
        assert_eq!((&line["status"], line.get("upstream_requests")), (&json!(426), None), "{line}");
    }
    let counted = "toolrein_requests_total{endpoint=\"responses\",status=\"426\"}";
    toolrein.wait_for_metric(counted, PATHS.len() as f64);
    assert!(upstream.requests().is_empty());
    // Paths below it, and other endpoints, are relayed.
    for path in ["/v1/responses/resp_1", "/v1/realtime?model=m"] {
        assert_eq!(upgrade(&toolrein, path).status, 101, "{path}");
    }
}

#[test]
fn a_client_can_go_on_with_http_on_the_connection_whose_websocket_was_refused() {
    let upstream = Scripted::start(|_, _| Reply::text("ok"));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    let mut stream = upgrade(&toolrein, "/v1/responses");
    while stream.next().unwrap().is_some() {}
    let mut connection = stream.into_connection();
    connection.write(&Request::new("GET", &format!("{}/v1/models", toolrein.origin()), "").bytes());
    assert_eq!(connection.response().rest().status, 200);
}

#[test]
fn a_websocket_for_responses_is_relayed_where_the_operator_wants_it_or_nothing_may_change() {
    let upstream = Scripted::start(|_, _| Reply::upgrade("websocket"));
    for (settings, warnings) in [
        (format!("responses.websocket = \"pass\"\n{}", budget(1)), 1),
        (format!("mode = \"observe\"\n{}", budget(1)), 1),
        (format!("mode = \"off\"\n{}", budget(1)), 0),
    ] {
        let toolrein = Toolrein::before(&upstream, &settings);
        for path in &PATHS[..3] {
            let stream = upgrade(&toolrein, path);
            assert_eq!(stream.status, 101, "{settings}");
            let mut connection = stream.into_connection();
            connection.write(b"hello");
            let mut echo = [0; 5];
            std::io::Read::read_exact(&mut connection.reader, &mut echo).unwrap();
            assert_eq!(&echo, b"hello");
        }
        let counted = "toolrein_requests_total{endpoint=\"responses\",status=\"101\"}";
        toolrein.wait_for_metric(counted, 3.0);
        // The request lines come after the warning.
        log_line(&toolrein, 2);
        assert_eq!(warned(&toolrein), vec![json!("responses"); warnings], "{settings}");
    }
}

#[test]
fn paths_below_a_response_are_relayed_and_counted_and_reading_them_warns_of_nothing() {
    let upstream = Scripted::start(|_, _| Reply::json(200, &json!({"id": "resp_1"})));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let read = [
        ("GET", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1?stream=true&starting_after=3"),
        ("GET", "/v1/responses/resp_1/input_items?limit=2"),
        ("DELETE", "/v1/responses/resp_1"),
    ];
    let posted = ["/v1/responses/resp_1/cancel", "/v1/responses/compact", "/v1/responses/input_tokens"];
    let all = read.into_iter().chain(posted.map(|path| ("POST", path)));
    for (nth, (method, path)) in all.enumerate() {
        let body = if method == "POST" { "{\"model\":\"m\",\"input\":\"q\"}" } else { "" };
        let reply = Request::new(method, &format!("{}{path}", toolrein.origin()), body).send();
        assert_eq!((reply.status, reply.text().as_str()), (200, "{\"id\":\"resp_1\"}"), "{method} {path}");
        let seen = upstream.request(nth);
        assert_eq!((seen.method.as_str(), seen.path.as_str()), (method, path));
        assert_eq!(seen.body, body.as_bytes());
        let line = log_line(&toolrein, nth);
        assert_eq!((&line["endpoint"], &line["route"]), (&json!("responses"), &json!("relay")), "{line}");
        assert_eq!(warned(&toolrein).len(), usize::from(nth > read.len()), "{method} {path}");
    }
    let counted = "toolrein_requests_total{endpoint=\"responses\",status=\"200\"}";
    toolrein.wait_for_metric(counted, 7.0);
}

#[test]
fn the_id_of_a_first_reply_names_the_last_one_to_the_upstream_and_for_its_caller_alone() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => Output::new("first").call("a", "g", "{}").reply(request),
        1 => Output::text("second", "Done without.").reply(request),
        _ => Reply::json(200, &json!({"id": "resp_second"})),
    });
    let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
    let request = |method: &str, path: &str, body: String, caller: &str| {
        let url = format!("{}{path}", toolrein.origin());
        let request = Request::new(method, &url, body).header("content-type", "application/json");
        request.header("authorization", &format!("Bearer {caller}")).send()
    };
    let body =
        json!({"model": "m", "input": "q", "tools": [{"type": "function", "name": "g", "parameters": {}}]});
    let reply = request("POST", "/v1/responses", body.to_string(), "one");
    assert_eq!((reply.status, &reply.json()["id"]), (200, &json!("resp_first")), "{}", reply.text());
    let cases = [
        ("GET", "/v1/responses/resp_first?stream=true", "one", "/v1/responses/resp_second?stream=true"),
        ("GET", "/v1/responses/resp_first/input_items", "one", "/v1/responses/resp_second/input_items"),
        ("POST", "/v1/responses/resp_first/cancel", "one", "/v1/responses/resp_second/cancel"),
        ("DELETE", "/v1/responses/resp_first", "one", "/v1/responses/resp_second"),
        ("GET", "/v1/responses/resp_first", "other", "/v1/responses/resp_first"),
        ("GET", "/v1/responses/resp_unknown", "one", "/v1/responses/resp_unknown"),
    ];
    for (nth, (method, path, caller, expected)) in cases.into_iter().enumerate() {
        assert_eq!(request(method, path, String::new(), caller).status, 200);
        assert_eq!(upstream.request(nth + 2).path, expected, "{method} {path} of {caller}");
    }
}

#[test]
fn a_stored_response_that_is_read_again_has_no_blocked_call_and_the_id_that_the_client_knows() {
    let output = Output::new("first").says("Two of them.").call("a", "f", "{}").call("b", "g", "{}");
    let stored = output.clone();
    let upstream = Scripted::start(move |_, request| match request.method.as_str() {
        "POST" => output.reply(request),
        _ => Reply::json(200, &stored.whole(&json!({"model": "m"}))),
    });
    let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
    let tool = |name: &str| json!({"type": "function", "name": name, "parameters": {}});
    let body = json!({"model": "m", "input": "q", "tools": [tool("f"), tool("g")]});
    let url = format!("{}/responses", toolrein.base_url());
    let first = Request::post(&url, body.to_string()).send().json();
    let again =
        Request::new("GET", &format!("{url}/resp_first"), "").header("authorization", "Bearer sk-test");
    let again = again.send().json();
    assert_eq!((&again["id"], &again["output"]), (&first["id"], &first["output"]));
    assert_eq!(again["output"].as_array().unwrap().len(), 2);
    toolrein.wait_for_metric("toolrein_unjudged_total{why=\"stored_response\"}", 0.0);
}

#[test]
fn calls_of_a_reply_made_in_the_background_pass_and_count_as_unjudged() {
    let done = Output::calls("late", &[("a", "f", "{}")]);
    let upstream = Scripted::start(move |_, request| match request.path.as_str() {
        "/v1/responses" => Reply::json(
            200,
            &json!({"id": "resp_late", "object": "response", "status": "queued", "output": []}),
        ),
        "/v1/responses/resp_late" => Reply::json(200, &done.whole(&json!({"model": "m"}))),
        _ => Reply::stream(done.events(&json!({"model": "m"})).iter().map(event)),
    });
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let url = format!("{}/responses", toolrein.base_url());
    let queued = Request::post(&url, r#"{"model":"m","input":"q","background":true}"#).send();
    assert_eq!(queued.json()["status"], "queued");
    let late = Request::new("GET", &format!("{url}/resp_late"), "").send();
    assert_eq!(late.json()["output"][0]["name"], "f");
    toolrein.wait_for_metric("toolrein_unjudged_total{why=\"stored_response\"}", 1.0);
    let resumed = Request::new("GET", &format!("{url}/resp_late?stream=true&starting_after=1"), "").send();
    assert!(resumed.text().contains("response.completed"), "{}", resumed.text());
    toolrein.wait_for_metric("toolrein_unjudged_total{why=\"stored_response\"}", 2.0);
    // The warning is before the lines of these requests.
    assert_eq!(log_line(&toolrein, 2)["unjudged"], json!(["stored_response"]));
    let warns = |line: &&String| line.contains("a stored response was read");
    assert_eq!(toolrein.logs().iter().filter(warns).count(), 1);
}

#[test]
fn a_request_that_cannot_be_read_is_warned_about_once() {
    let upstream = Scripted::start(|_, _| Reply::json(400, &json!({"error": {"message": "no"}})));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    for nth in 0..2 {
        let url = format!("{}/responses", toolrein.base_url());
        Request::new("POST", &url, "[1, 2]").header("content-type", "application/json").send();
        log_line(&toolrein, nth);
    }
    let warns = |line: &&String| line.contains("a request cannot be read, and no policy sees");
    assert_eq!(toolrein.logs().iter().filter(warns).count(), 1, "{:?}", toolrein.logs());
}

#[test]
fn each_other_endpoint_whose_calls_no_policy_sees_is_warned_about_once() {
    let upstream = Scripted::start(|_, _| Reply::text("ok"));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (method, path) in [
        ("POST", "/model/m/converse"),
        ("POST", "/model/m/converse"),
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/models"),
        ("POST", "/v1/completions"),
        ("POST", "/model/m/converse"),
    ] {
        Request::new(method, &format!("{}{path}", toolrein.origin()), "{}").send();
    }
    until("the last request's line", || crate::governed::talk::request_lines(&toolrein).get(5).map(|_| ()));
    assert_eq!(warned(&toolrein), [json!("bedrock"), json!("completions")]);
}
