//! The upstream's errors: as they came, with texts for people, and with a status of their own where they came inside a
//! 200. And toolrein's own errors, which do not name the upstream to strangers.

use crate::governed::talk::{BOTH, GENEROUS, after, question};
use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply};
use crate::support::responses_kit::url;
use crate::support::scripted::Scripted;
use crate::support::until;
use serde_json::{Value, json};
use std::net::{TcpListener, UdpSocket};

const FRIENDLY: &str = "upstream.errors = \"friendly\"\n";
const STATUS: &str = "upstream.error_in_200 = \"status\"\n";

/// A question on each of the governed endpoints.
fn ask(toolrein: &Toolrein, chat: bool, stream: bool) -> Response {
    match chat {
        true => Request::post(&toolrein.chat_url(), question(stream)).send(),
        false => {
            let body = json!({"model": "gpt-5", "stream": stream, "input": "q"});
            Request::post(&url(toolrein), body.to_string()).send()
        }
    }
}

fn each(mut case: impl FnMut(bool, bool)) {
    for chat in BOTH {
        for stream in BOTH {
            case(chat, stream);
        }
    }
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("error"))
}

#[test]
fn an_error_with_a_status_says_what_to_do_and_keeps_what_programs_decide_by() {
    for (status, code, kind, said) in [
        (401, json!("invalid_api_key"), "invalid_request_error", "API key"),
        (402, json!(402), "billing", "credit"),
        (404, json!("model_not_found"), "invalid_request_error", "model's name"),
        (413, Value::Null, "invalid_request_error", "too long"),
        (429, json!("rate_limit_exceeded"), "tokens", "wait"),
        (503, Value::Null, "server_error", "fault of its own"),
    ] {
        let error = json!({"message": "at http://10.0.0.9:8000/v1: key sk-secretsecretsecret42 refused", "type": kind, "param": null, "code": code});
        let reply = Reply::json(status, &json!({ "error": error })).header("retry-after", "7");
        each(|chat, stream| {
            let answer = reply.clone();
            let upstream = Scripted::start(move |_, _| answer.clone());
            let toolrein = Toolrein::before(&upstream, &format!("{FRIENDLY}{GENEROUS}"));
            let got = ask(&toolrein, chat, stream);
            assert_eq!((got.status, got.header("retry-after")), (status, Some("7")));
            assert_eq!(got.header("content-type"), Some("application/json"));
            let error = &got.json()["error"];
            assert!(error["message"].as_str().unwrap().contains(said), "{error}");
            assert_eq!((&error["code"], &error["type"]), (&code, &json!(kind)));
            let upstreams = error["metadata"]["upstream"].to_string();
            assert!(upstreams.contains("refused"), "{upstreams}");
            assert!(
                !got.text().contains("10.0.0.9") && !got.text().contains("secretsecret"),
                "{}",
                got.text()
            );
            assert_eq!(upstream.requests().len(), 1);
        });
    }
}

#[test]
fn plain_errors_and_errors_for_programmers_go_out_byte_for_byte() {
    for (settings, status) in
        [("", 429), ("", 503), (FRIENDLY, 400), ("mode = \"observe\"\nupstream.errors = \"friendly\"\n", 429)]
    {
        let body = "{ \"error\" : {\"message\":\"at 10.0.0.9\",\"code\":\"x\"} }";
        each(|chat, stream| {
            let upstream = Scripted::start(move |_, _| Reply::bytes(status, "application/json", body));
            let toolrein = Toolrein::before(&upstream, &format!("{settings}{GENEROUS}"));
            let got = ask(&toolrein, chat, stream);
            assert_eq!((got.status, got.text()), (status, body.to_owned()));
        });
    }
}

#[test]
fn an_html_page_becomes_an_error_that_a_client_can_read() {
    each(|chat, stream| {
        let page = "<html><body><h1>502 Bad Gateway</h1>upstream 10.1.1.1:8080</body></html>";
        let upstream = Scripted::start(move |_, _| Reply::bytes(502, "text/html", page));
        let toolrein = Toolrein::before(&upstream, &format!("{FRIENDLY}{GENEROUS}"));
        let got = ask(&toolrein, chat, stream);
        assert_eq!((got.status, got.header("content-type")), (502, Some("application/json")));
        assert!(got.json()["error"]["message"].as_str().unwrap().contains("try again"));
        assert!(!got.text().contains("10.1.1.1"));
    });
}

#[test]
fn an_error_in_a_stream_is_for_people_too_wherever_it_comes() {
    let error =
        json!({"error": {"message": "worker gpu-7.cluster.local died", "type": "server_error", "code": 503}});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Well"}, "finish_reason": null}]});
    for begun in BOTH {
        let (error, chunk) = (error.clone(), chunk.clone());
        let upstream = Scripted::start(move |_, _| {
            let first = begun.then(|| format!("data: {chunk}\n\n"));
            Reply::stream(first.into_iter().chain([format!("data: {error}\n\n")]))
        });
        let toolrein = Toolrein::before(&upstream, &format!("{FRIENDLY}{GENEROUS}"));
        let got = ask(&toolrein, true, true);
        let text = got.text();
        assert_eq!(text.contains("Well"), begun);
        let said: Value = serde_json::from_str(got.data().last().unwrap()).unwrap();
        assert!(said["error"]["message"].as_str().unwrap().contains("fault of its own"), "{said}");
        assert_eq!((&said["error"]["code"], &said["error"]["type"]), (&json!(503), &json!("server_error")));
        assert!(
            !text.contains("gpu-7") && said["error"]["metadata"]["upstream"].to_string().contains("died")
        );
        assert!(!text.contains("[DONE]"), "no end that looks whole");
    }
}

#[test]
fn an_error_in_a_stream_of_responses_is_for_people_too() {
    let response = |error: &Value| json!({"id": "resp_1", "object": "response", "status": "failed", "output": [], "error": error});
    let created =
        json!({"type": "response.created", "sequence_number": 0, "response": response(&Value::Null)});
    let error = json!({"type": "error", "sequence_number": 1, "code": "server_error", "message": "gpu-7.cluster.local died", "param": null});
    let failed = json!({"type": "response.failed", "sequence_number": 2,
        "response": response(&json!({"code": "server_error", "message": "gpu-7.cluster.local died"}))});
    let upstream = Scripted::start(move |_, _| Reply::stream([&created, &error, &failed].map(event)));
    let toolrein = Toolrein::before(&upstream, &format!("{FRIENDLY}{GENEROUS}"));
    let got = ask(&toolrein, false, true);
    let text = got.text();
    let events = crate::support::responses::events(&text);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["response.created", "error", "response.failed"], "{text}");
    assert_eq!((&events[1]["code"], &events[1]["sequence_number"]), (&json!("server_error"), &json!(1)));
    assert!(events[1]["message"].as_str().unwrap().contains("fault of its own"), "{text}");
    assert!(
        events[2]["response"]["error"]["message"].as_str().unwrap().contains("fault of its own"),
        "{text}"
    );
    assert_eq!(events[2]["response"]["error"]["code"], "server_error");
    assert!(!text.contains("gpu-7"), "{text}");
}

/// Errors inside a 200 that real upstreams sent (`tests/data/refusals/error_in_200.jsonl` has more), with the status
/// that each stands for.
const INSIDE: [(&str, u16); 6] = [
    (
        r#"{"id":"gen-1","error":{"message":"Upstream error from Nvidia: Service temporarily overloaded","code":502}}"#,
        502,
    ),
    (
        r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"bad","provider_name":"Novita"}}}"#,
        400,
    ),
    (r#"{"error":{"message":"Compute error."},"message":"Compute error."}"#, 502),
    (r#"{"error":{"message":"Rate limit","code":"rate_limit_exceeded"}}"#, 429),
    (r#"{"object":"error","message":"no","code":404}"#, 404),
    (r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#, 401),
];

#[test]
fn an_error_inside_a_200_gets_its_own_status_where_that_is_set() {
    for (body, status) in INSIDE {
        each(|chat, stream| {
            let upstream = Scripted::start(move |_, _| match stream {
                true => Reply::stream([": waiting\n\n".to_owned(), format!("data: {body}\n\n")])
                    .header("x-request-id", "up-1"),
                false => Reply::bytes(200, "application/json", body).header("x-request-id", "up-1"),
            });
            let toolrein = Toolrein::before(&upstream, &format!("{STATUS}{GENEROUS}"));
            let got = ask(&toolrein, chat, stream);
            assert_eq!(
                (got.status, got.header("content-type")),
                (status, Some("application/json")),
                "{body}"
            );
            assert_eq!(got.header("x-request-id"), Some("up-1"));
            let said = got.json();
            let message = said["error"]["message"].as_str().or(said["message"].as_str());
            assert!(body.contains(message.unwrap()), "{said}");
            assert_eq!(upstream.requests().len(), 1, "nothing is asked again");
            let label = format!("status=\"{status}\"");
            until("the metric", || toolrein.metrics().contains(&label).then_some(()));
        });
    }
}

#[test]
fn without_the_setting_an_error_inside_a_200_stays_there() {
    for (body, _) in INSIDE {
        each(|chat, stream| {
            let upstream = Scripted::start(move |_, _| match stream {
                true => Reply::stream([format!("data: {body}\n\n")]),
                false => Reply::bytes(200, "application/json", body),
            });
            let toolrein = Toolrein::before(&upstream, GENEROUS);
            let got = ask(&toolrein, chat, stream);
            assert_eq!(got.status, 200);
            assert!(got.text().contains(body), "{}", got.text());
        });
    }
}

#[test]
fn both_settings_together_give_a_status_and_a_text() {
    each(|chat, stream| {
        let body = r#"{"error":{"message":"slow down, gpu-7.cluster.local","code":429}}"#;
        let upstream = Scripted::start(move |_, _| match stream {
            true => Reply::stream([format!("data: {body}\n\n")]),
            false => Reply::bytes(200, "application/json", body),
        });
        let toolrein = Toolrein::before(&upstream, &format!("{STATUS}{FRIENDLY}{GENEROUS}"));
        let got = ask(&toolrein, chat, stream);
        assert_eq!((got.status, &got.json()["error"]["code"]), (429, &json!(429)), "{}", got.text());
        assert!(got.json()["error"]["message"].as_str().unwrap().contains("wait a little"), "{}", got.text());
        assert!(!got.text().contains("gpu-7"));
        // Rewritten once: the original is the upstream's, with the members that OpenAI's shape has.
        let error = &got.json()["error"];
        let original = error["metadata"]["upstream"].to_string();
        assert!(original.contains("slow down") && !original.contains("wait a little"), "{original}");
        assert_eq!((error.get("type"), error.get("param")), (Some(&Value::Null), Some(&Value::Null)));
    });
}

#[test]
fn an_error_event_that_is_a_text_is_for_people_too() {
    for begun in BOTH {
        each(|chat, stream| {
            let upstream = Scripted::start(move |_, _| {
                let created = json!({"type": "response.created", "sequence_number": 0,
                    "response": {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}});
                let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Well"}, "finish_reason": null}]});
                let first = if chat { format!("data: {chunk}\n\n") } else { event(&created) };
                let error = "event: error\ndata: worker gpu-7.cluster.local died\n\n".to_owned();
                Reply::stream(begun.then_some(first).into_iter().chain([error]))
            });
            if !stream {
                return;
            }
            let toolrein = Toolrein::before(&upstream, &format!("{FRIENDLY}{GENEROUS}"));
            let got = ask(&toolrein, chat, stream);
            let text = got.text();
            let said: Value = serde_json::from_str(got.data().last().unwrap()).unwrap();
            let error = if chat { &said["error"] } else { &said };
            assert!(error["message"].as_str().unwrap().contains("fault of its own"), "{text}");
            assert_eq!(said["type"] == "error", !chat, "{text}");
            assert!(error["metadata"]["upstream"].to_string().contains("died"), "{text}");
            assert!(!text.contains("gpu-7"), "{text}");
        });
    }
}

#[test]
fn a_stream_whose_error_is_not_the_first_event_is_forwarded_unchanged() {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Well"}, "finish_reason": null}]});
    let stream =
        format!(": one\n\ndata: {chunk}\n\ndata: {{\"error\":{{\"message\":\"late\",\"code\":502}}}}\n\n");
    for size in [1, 7, 1_000] {
        let all = stream.clone();
        let upstream = Scripted::start(move |_, _| Reply::stream([&all]).in_pieces_of(size));
        let toolrein = Toolrein::before(&upstream, &format!("{STATUS}{GENEROUS}"));
        let got = ask(&toolrein, true, true);
        assert_eq!((got.status, got.text()), (200, stream.clone()));
        assert_eq!(got.header("content-type"), Some("text/event-stream"));
    }
}

#[test]
fn the_head_waits_no_longer_than_a_heartbeat_and_an_error_after_that_stays_in_the_stream() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |_, _| {
        let error = "data: {\"error\":{\"message\":\"late\",\"code\":502}}\n\n";
        Reply::stream([": one\n\n", error]).held_after(1, &held)
    });
    let settings = format!("{STATUS}limits.keepalive_comment = \"50ms\"\n{GENEROUS}");
    let toolrein = Toolrein::before(&upstream, &settings);
    let mut open = Request::post(&toolrein.chat_url(), question(true)).open();
    assert!(open.until(": one").contains(": one"));
    gate.open();
    let got = open.rest();
    assert_eq!(got.status, 200);
    assert!(got.text().contains("late"));
}

#[test]
fn a_stream_that_breaks_before_its_first_event_is_an_error_of_ours_with_a_status() {
    let upstream = Scripted::start(|_, _| Reply::stream([": one\n\n"]).cut_after(1));
    let toolrein = Toolrein::before(&upstream, &format!("{STATUS}{GENEROUS}"));
    let got = ask(&toolrein, true, true);
    assert_eq!((got.status, &got.json()["error"]["code"]), (502, &json!("upstream_cut")));
    assert_eq!(got.header("x-should-retry"), Some("true"));
}

#[test]
fn a_refusal_inside_a_stream_whose_second_try_fails_has_the_status_of_that() {
    let upstream = Scripted::start(|nth, _| match nth {
        0 => Reply::stream(["data: {\"error\":{\"message\":\"x does not support tools\"}}\n\n"]),
        _ => Reply::error(429, "requests", "rate_limit_exceeded", "slow down"),
    });
    let toolrein = Toolrein::before(&upstream, &format!("{STATUS}{GENEROUS}"));
    let mut body: Value = serde_json::from_str(&question(true)).unwrap();
    body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    let got = Request::post(&toolrein.chat_url(), body.to_string()).send();
    assert_eq!((got.status, &got.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn policies_errors_and_relayed_endpoints_stay_as_they_are() {
    let upstream =
        Scripted::start(|_, _| Reply::error(429, "requests", "rate_limit_exceeded", "at 10.0.0.9"));
    let toolrein = Toolrein::before(
        &upstream,
        &format!("{FRIENDLY}{STATUS}[policy.budget]\ntool_calls = 1\nexhausted = \"reject\"\n"),
    );
    let relayed = Request::post(&format!("{}/v1/embeddings", toolrein.origin()), "{}").send();
    assert!(relayed.text().contains("10.0.0.9"), "{}", relayed.text());
    let spent = Request::post(&toolrein.chat_url(), after(&["1", "2"], false)).send();
    assert_eq!((spent.status, &spent.json()["error"]["type"]), (400, &json!("toolrein_error")));
    assert!(spent.json()["error"]["metadata"].is_null());
}

/// An address of this machine that is not a loopback one, if it has any. Nothing is sent.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then(|| ip.to_string())
}

#[test]
fn the_upstreams_address_is_named_to_callers_on_this_machine_alone() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = format!(
        "[listen]\nproxy = \"0.0.0.0:0\"\nadmin = \"127.0.0.1:0\"\n[upstream]\nurl = \"http://{address}/v1\"\n"
    );
    let toolrein = Toolrein::start(&config);
    let port = toolrein.origin().rsplit(':').next().unwrap().to_owned();
    let at = |host: &str, path: &str| {
        Request::post(&format!("http://{host}:{port}/v1/{path}"), question(false)).send()
    };
    for path in ["chat/completions", "responses", "embeddings"] {
        let local = at("127.0.0.1", path);
        assert_eq!((local.status, local.text().contains(&address.to_string())), (502, true), "{path}");
        // A machine without a network has loopback addresses alone; the rule itself is tested beside it.
        let Some(host) = own_address() else { continue };
        let strange = at(&host, path);
        assert_eq!((strange.status, &strange.json()["error"]["code"]), (502, &json!("upstream_unreachable")));
        assert_eq!(strange.header("x-should-retry"), Some("true"));
        assert!(
            !strange.text().contains(&address.to_string()) && !strange.text().contains("127.0.0.1"),
            "{}",
            strange.text()
        );
        until("the reason in the log", || {
            toolrein.logs().iter().any(|line| line.contains(&address.to_string())).then_some(())
        });
    }
}
