//! One line for each request, and nowhere a word of what was said or a credential.

use crate::support::client::{Request, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::Scripted;
use crate::talk::{BOTH, after_groups, budget, calling, chat, log_line, long_text, question, request_lines};
use serde_json::json;
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn a_request_has_one_line_with_the_promised_fields() {
    let upstream = Scripted::start(calling(2));
    let policies = format!("{}[policy.truncate]\nmax_chars = 1000\n", budget(3));
    let toolrein = Toolrein::before(&upstream, &policies);
    let long = long_text(3000);
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
            ("billed_requests", json!(1)),
            ("request_bytes", json!(body.len())),
            ("reply_bytes", json!(reply.body.len())),
            ("actions", json!(["truncate=1", "budget=withheld"])),
            ("calls", json!(["f=allowed", "f=withheld by=budget reason=BUDGET_EXCEEDED"])),
        ] {
            assert_eq!(line[field], expected, "{field}, streamed {stream}: {line}");
        }
        assert_eq!(line["streamed"] == true, stream);
        assert!(line["limits"][0].as_str().is_some_and(|limit| limit.ends_with("/3 by=budget")), "{line}");
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
fn a_request_without_an_id_gets_one_and_each_its_own() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, "");
    chat(&toolrein, question(false));
    chat(&toolrein, "not json");
    let ids: Vec<String> = (0..2).map(|nth| log_line(&toolrein, nth)["request_id"].to_string()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() > 4), "{ids:?}");
    assert!(upstream.requests().iter().all(|seen| seen.header("x-request-id").is_none()), "ours alone");
}

/// What must be found nowhere.
const SECRET: &str = "s3cr3t";

/// Requests full of secrets in every place where one may stand.
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

/// What the program says when it does not start with this configuration.
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
