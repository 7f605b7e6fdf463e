//! One log line for each request, and no word of the conversation and no credential anywhere.

use crate::governed::talk::{
    BOTH, after_groups, budget, calling, chat, log_line, long_text, question, request_lines,
};
use crate::support::client::{Request, get};
use crate::support::program::{Toolrein, before};
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::until;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn a_request_has_one_line_with_the_promised_fields() {
    let calls = calling(2);
    let upstream = Scripted::start(move |nth, request| calls(nth, request).header("x-request-id", "up-9"));
    let policies = format!("{}[policy.truncate]\nmax_chars = 1000\n", budget(3));
    let toolrein = Toolrein::before(&upstream, &policies);
    let long = long_text(3000);
    let act = |policy: &str, action: &str| json!({"policy": policy, "action": action, "count": 1});
    for (nth, stream) in BOTH.into_iter().enumerate() {
        let body = after_groups(&[&[&long, "short"]], stream);
        let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let request = Request::post(&toolrein.chat_url(), &body).header("traceparent", traceparent);
        let reply = request.header("x-request-id", "req-7").header("x-session-id", "talk").send();
        let line = log_line(&toolrein, nth);
        for (field, expected) in [
            ("level", json!("info")),
            ("message", json!("request")),
            ("request_id", json!("req-7")),
            ("traceparent", json!(traceparent)),
            ("conversation", json!("talk")),
            ("model", json!("m")),
            ("route", json!("chat")),
            ("mode", json!("enforce")),
            ("status", json!(200)),
            ("method", json!("POST")),
            ("path", json!("/v1/chat/completions")),
            ("endpoint", json!("chat_completions")),
            ("upstream_requests", json!(1)),
            ("upstream_request_ids", json!(["up-9"])),
            ("request_bytes", json!(body.len())),
            ("reply_bytes", json!(reply.body.len())),
            ("actions", json!([act("truncate", "shortened"), act("budget", "blocked")])),
            (
                "tool_calls",
                json!([
                    {"name": "f", "id": format!("call_{nth}_0"), "verdict": "allow"},
                    {"name": "f", "id": format!("call_{nth}_1"), "verdict": "block", "policy": "budget",
                        "reason": "BUDGET_EXCEEDED", "used": 3, "limit": 3},
                ]),
            ),
        ] {
            assert_eq!(line[field], expected, "{field}, streamed {stream}: {line}");
        }
        assert_eq!(line["streamed"] == true, stream);
        let limit = &line["limits"][0];
        assert_eq!((&limit["policy"], &limit["limit"]), (&json!("budget"), &json!(3)), "{line}");
        assert_eq!(line["caller"].as_str().map(str::len), Some(32), "a hash: {line}");
        assert_eq!(line["results"].as_array().unwrap().len(), 2, "{line}");
        for field in ["timestamp", "total_ms", "overhead_ms", "upstream_ms", "first_byte_ms"] {
            assert!(line[field].is_string() || line[field].is_number(), "{field}: {line}");
        }
        assert!(line["total_ms"].as_f64() >= line["upstream_ms"].as_f64());
        assert_eq!(line.get("client_gone"), None);
    }
    let lines = toolrein.stop();
    let requests = lines.iter().filter(|line| line.contains("\"message\":\"request\"")).count();
    assert_eq!(requests, 2);
}

#[test]
fn the_line_lists_the_upstreams_ids_of_all_its_requests() {
    let calls = calling(2);
    let upstream =
        Scripted::start(move |nth, request| calls(nth, request).header("x-request-id", &format!("up-{nth}")));
    let toolrein = Toolrein::before(&upstream, &budget(2));
    for (nth, stream) in BOTH.into_iter().enumerate() {
        Request::post(&toolrein.chat_url(), after_groups(&[&["one", "two"]], stream)).send();
        let line = log_line(&toolrein, nth);
        let expected = [format!("up-{}", 2 * nth), format!("up-{}", 2 * nth + 1)];
        assert_eq!(line["upstream_request_ids"], json!(expected), "streamed {stream}: {line}");
    }
}

#[test]
fn a_relayed_request_has_a_line_with_its_method_and_path() {
    let upstream =
        Scripted::start(|_, _| Reply::json(200, &json!({"data": []})).header("request-id", "up-7"));
    let toolrein = Toolrein::before(&upstream, "");
    for (method, path, endpoint) in [
        ("GET", "/v1/models", "models"),
        ("POST", "/v1/responses/resp_1/cancel", "responses"),
        ("POST", "/v1/messages/batches", "batches"),
        ("DELETE", "/v1/files/f-1", "files"),
        ("GET", "/elsewhere", "other"),
    ] {
        Request::new(method, &format!("{}{path}?api-key={SECRET}", toolrein.origin()), "").send();
        let line = log_line(&toolrein, upstream.requests().len() - 1);
        assert_eq!((&line["method"], &line["path"]), (&json!(method), &json!(path)), "{line}");
        assert_eq!((&line["endpoint"], &line["route"]), (&json!(endpoint), &json!("relay")), "{line}");
        let expected = (&json!(1), &json!(["up-7"]));
        assert_eq!((&line["upstream_requests"], &line["upstream_request_ids"]), expected, "{line}");
    }
}

#[test]
fn a_request_that_was_never_sent_counts_as_none() {
    let toolrein = Toolrein::start(&before("http://127.0.0.1:9/v1", ""));
    chat(&toolrein, question(false));
    Request::new("GET", &format!("{}/v1/models", toolrein.origin()), "").send();
    for nth in 0..2 {
        let line = log_line(&toolrein, nth);
        assert_eq!(line["error"], "upstream_unreachable", "{line}");
        assert_eq!(line.get("upstream_requests"), None, "{line}");
    }
}

/// The line with this message.
fn line_of(toolrein: &Toolrein, message: &str) -> Value {
    let lines = || toolrein.logs().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    until(message, || lines().find(|line| line["message"] == message))
}

#[test]
fn the_start_names_the_configuration_its_hash_and_the_policies_that_are_on() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let hash = |settings: &str| {
        let toolrein = Toolrein::before(&upstream, settings);
        let line = line_of(&toolrein, "listening");
        assert_eq!(line["policies"], json!(["budget"]), "{line}");
        assert_eq!(line["config"], json!(toolrein.config_file().to_str().unwrap()));
        line["config_hash"].as_str().unwrap().to_owned()
    };
    let first = hash(&budget(3));
    assert!(first.len() == 12 && first.bytes().all(|digit| digit.is_ascii_hexdigit()), "{first}");
    assert_eq!(hash(&budget(3)), first, "the same file has the same hash in another process");
    assert_ne!(hash(&budget(4)), first);
}

#[test]
fn a_reload_logs_what_has_changed() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, &budget(3));
    let started = line_of(&toolrein, "listening");
    assert!(toolrein.reload(&before(&upstream.base_url(), &format!("mode = \"observe\"\n{}", budget(4)))));
    let line = line_of(&toolrein, "the configuration was reloaded");
    let expected = json!([
        {"key": "mode", "old": "\"enforce\"", "new": "\"observe\""},
        {"key": "policy.budget.tool_calls", "old": "3", "new": "4"},
    ]);
    assert_eq!((&line["changes"], &line["mode"]), (&expected, &json!("observe")), "{line}");
    assert!(line["config_hash"].is_string() && line["config_hash"] != started["config_hash"], "{line}");
}

#[test]
fn a_request_without_an_id_gets_one_and_each_its_own() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, "");
    chat(&toolrein, question(false));
    chat(&toolrein, "not json");
    let ids: Vec<String> = (0..2).map(|nth| log_line(&toolrein, nth)["request_id"].to_string()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() > 4), "{ids:?}");
    assert!(upstream.requests().iter().all(|seen| seen.header("x-request-id").is_none()), "ours alone");
}

/// Texts that must not appear anywhere.
const SECRET: &str = "s3cr3t";

/// Requests with secrets in every place where one may occur.
fn whisper(toolrein: &Toolrein) {
    let secret_result = format!("{SECRET} ").repeat(600);
    for stream in BOTH {
        let talk = after_groups(&[&[&secret_result]], stream);
        let talk = talk
            .replace("\"q\"", "\"my password is s3cr3t\"")
            .replace("\\\"a\\\":1", "\\\"a\\\":\\\"s3cr3t\\\"");
        let talk = talk.replacen('{', "{\"user\":\"s3cr3t\",", 1);
        for body in [talk.clone(), format!("{talk} s3cr3t"), format!("{{\"s3cr3t\":{}}}", "[".repeat(200))] {
            for path in ["/v1/chat/completions?key=s3cr3t", "/v1/responses?api-key=s3cr3t"] {
                let request = Request::new("POST", &format!("{}{path}", toolrein.origin()), &body);
                let request = request.header("authorization", "Bearer s3cr3t").header("api-key", "s3cr3t");
                let request = request.header("cookie", "a=s3cr3t").header("x-api-key", "s3cr3t");
                request.header("proxy-authorization", "Basic s3cr3t").send();
            }
        }
    }
}

#[test]
fn no_body_argument_or_credential_is_found_in_logs_metrics_or_configuration() {
    let upstream = Scripted::start(|nth, request| match nth % 4 {
        0 => {
            Reply::speech(request, &Speech::calls(&[("c", "f", "{\"a\":\"s3cr3t\"}"), ("d", "f", "s3cr3t")]))
        }
        1 => Reply::error(400, "s3cr3t", "s3cr3t", "s3cr3t is no good").header("set-cookie", "s3cr3t"),
        2 => {
            Reply::stream(["data: s3cr3t\n\n", "data: {\"error\":{\"message\":\"s3cr3t\"}}\n\n"]).cut_after(1)
        }
        _ => Reply::speech(request, &Speech::text("The password is s3cr3t.")),
    });
    let policies = format!("{}[policy.truncate]\nmax_chars = 1000\n", budget(2));
    for settings in
        ["log.level = \"trace\"\n", "log.level = \"trace\"\nlog.format = \"json\"\nmode = \"observe\"\n"]
    {
        let toolrein = Toolrein::before(&upstream, &format!("{settings}{policies}"));
        whisper(&toolrein);
        let pages = ["/metrics", "/config", "/", "/readyz", "/nothing"];
        let pages = pages.map(|page| get(&format!("{}{page}", toolrein.admin_url())).text());
        assert!(request_lines(&toolrein).len() >= 10);
        let lines = toolrein.stop();
        for text in pages.iter().chain(&lines) {
            let place = text.find(SECRET);
            assert!(place.is_none(), "…{}", &text[place.unwrap().saturating_sub(300)..]);
        }
    }
}

/// The program's output when it does not start with this configuration.
fn refusal(config: &str) -> String {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(config.as_bytes()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    command.arg("serve").arg("--config").arg(file.path()).stdin(Stdio::null());
    let output = command.env_remove("TOOLREIN_UPSTREAM").output().unwrap();
    assert!(!output.status.success(), "it starts with {config}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn a_credential_in_the_upstreams_url_is_refused_without_being_shown() {
    for url in [
        "http://user:s3cr3t@127.0.0.1:9/v1",
        "http://s3cr3t@127.0.0.1:9/v1",
        "http://127.0.0.1:9/v1?api-key=s3cr3t",
        "http://user:s3cr3t@127.0.0.1:9/v1?token=s3cr3t#s3cr3t",
    ] {
        let said = refusal(&format!(
            "listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\nupstream.url = \"{url}\"\n"
        ));
        assert!(said.contains("upstream.url") && !said.contains(SECRET), "{said}");
    }
}

#[test]
fn a_stream_that_the_end_of_the_program_cuts_has_its_line_too() {
    let held = Reply::events(&Speech::text("one two").chunks(false)).held_after(2, &Gate::shut());
    let upstream = Scripted::queue([held]);
    let mut toolrein = Toolrein::before(&upstream, "limits.drain_timeout = \"50ms\"\n");
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    stream.until("one");
    toolrein.terminate();
    toolrein.wait();
    assert_eq!(log_line(&toolrein, 0)["streamed"], true);
}

#[test]
fn the_first_request_of_a_conversation_logs_what_it_holds_before_anything_was_said() {
    let upstream = Scripted::start(|_, request| match request.path.ends_with("responses") {
        true => crate::support::responses::Output::text("r", "ok").reply(request),
        false => Reply::speech(request, &Speech::text("ok")),
    });
    let toolrein = Toolrein::before(&upstream, &budget(3));
    let system = "You answer questions about orders. ".repeat(40);
    let parameters =
        json!({"type": "object", "properties": {"id": {"type": "integer", "description": "of the order"}}});
    let user = json!({"role": "user", "content": "q"});
    let answer = json!({"role": "assistant", "content": "ok"});
    let chat_tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let responses_tool = json!({"type": "function", "name": "f", "parameters": parameters});
    let developer = json!({"role": "developer", "content": system});
    for (nth, (path, list, first, tool)) in [
        ("chat/completions", "messages", json!({"role": "system", "content": system}), chat_tool),
        ("responses", "input", developer, responses_tool),
    ]
    .into_iter()
    .enumerate()
    {
        let url = format!("{}/{path}", toolrein.base_url());
        let ask = |said: Value| {
            let body = json!({"model": "m", list: said, "tools": [tool, tool]});
            assert_eq!(Request::post(&url, body.to_string()).send().status, 200);
        };
        ask(json!([first, user]));
        let line = log_line(&toolrein, 2 * nth);
        let number = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("{key} in {line}"));
        assert!((200..500).contains(&number("start_tokens_system")), "{line}");
        assert!((20..200).contains(&number("start_tokens_tools")), "{line}");
        assert_eq!(number("start_tokens"), number("start_tokens_system") + number("start_tokens_tools"));
        assert_eq!(number("start_tools"), 2);
        ask(json!([first, user, answer, user]));
        let line = log_line(&toolrein, 2 * nth + 1);
        assert!(line.get("start_tokens").is_none(), "a later request: {line}");
    }
}
