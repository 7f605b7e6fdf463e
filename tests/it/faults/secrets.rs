//! What the program must not reveal: a canary in every place where a credential or a word of the conversation may
//! occur, searched for in everything that the program writes.

use crate::faults::hand::{Hand, Wire, chat, question};
use crate::support::client::{Request, Response, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::json;

const CANARY: &str = "sk-canary-7f3a9c";

/// A request with the canary as every kind of credential.
fn with_credentials(request: Request) -> Request {
    [
        "authorization",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "cookie",
        "proxy-authorization",
        "openai-organization",
    ]
    .iter()
    .fold(request, |request, name| request.header(name, &format!("Bearer {CANARY}")))
}

fn ask(toolrein: &Toolrein, path: &str, body: &str) -> Response {
    let request = Request::new("POST", &format!("{}{path}", toolrein.origin()), body);
    with_credentials(request.header("content-type", "application/json")).send()
}

/// A conversation with the canary in every text of it.
fn conversation() -> String {
    let call = json!({"id": CANARY, "type": "function", "function": {"name": "f", "arguments": format!("{{\"a\":\"{CANARY}\"}}")}});
    json!({"model": "m", "user": CANARY, "messages": [
        {"role": "system", "content": CANARY},
        {"role": "user", "content": CANARY},
        {"role": "assistant", "content": CANARY, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": CANARY, "content": CANARY.repeat(200)},
    ], "tools": [{"type": "function", "function": {"name": "f", "description": CANARY, "parameters": {"type": "object",
        "properties": {"a": {"type": "string", "pattern": format!("^{CANARY}$"), "description": CANARY}}}}}]})
    .to_string()
}

#[test]
fn no_credential_and_no_conversation_text_appears_in_anything_the_program_writes() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let upstream = Scripted::start(|nth, request| match nth % 4 {
        0 => Reply::speech(
            request,
            // The ids of a reply's calls are logged as the upstream gives them, like the names of tools.
            &Speech::calls(&[("c", "f", &format!("{{\"a\":\"{CANARY}\"}}")), ("d", "f", "{}")]),
        ),
        1 => Reply::error(401, CANARY, CANARY, CANARY).header("www-authenticate", CANARY),
        2 => Reply::stream([format!("data: {CANARY}\n\n"), "data: {\"cho".into()]).cut_after(1),
        _ => Reply::speech(request, &Speech::text(CANARY)),
    });
    let policies = "[policy.budget]\ntool_calls = 2\n[policy.truncate]\nmax_chars = 200\n[policy.loops]\n\
                    [policy.arguments]\nstrict = true\n[policy.injection]\n[policy.duplicates]\n";
    let settings = format!("log.level = \"trace\"\naudit.file = {audit:?}\n{policies}");
    let toolrein = Toolrein::before(&upstream, &settings);
    for body in [conversation(), conversation().replacen('{', "{\"stream\":true,", 1), format!("{{{CANARY}")]
    {
        for path in ["/v1/chat/completions", "/v1/responses"] {
            for _ in 0..4 {
                ask(&toolrein, &format!("{path}?key={CANARY}"), &body);
            }
        }
    }
    let pages = ["/metrics", "/config", "/", "/livez", "/readyz", &format!("/{CANARY}")];
    let mut written: Vec<String> =
        pages.map(|page| get(&format!("{}{page}", toolrein.admin_url())).text()).to_vec();
    assert!(written[0].contains("toolrein_tool_calls_total"));
    written.extend(toolrein.stop());
    assert!(written.len() > 20, "the log has its lines");
    let record = std::fs::read_to_string(&audit).unwrap();
    assert!(record.contains("\"budget\""), "the record has its lines: {record}");
    written.push(record);
    for text in written {
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
fn errors_of_toolreins_own_repeat_no_credential() {
    let url = "http://127.0.0.1:1/v1";
    let dead = crate::faults::hand::before(url, "limits.request_bytes = 1024\nlimits.event_bytes = 1024\n");
    for (path, body) in [
        ("/v1/chat/completions", question(false)),
        ("/v1/chat/completions", "x".repeat(2048)),
        ("/v1/files", CANARY.to_owned()),
    ] {
        let reply = ask(&dead, path, &body);
        assert!(reply.status == 502 || reply.status == 413);
        let head = format!("{:?}", reply.head);
        assert!(!reply.text().contains("canary") && !head.contains("canary"), "{head}{}", reply.text());
    }
}

#[test]
fn hidden_exchanges_and_counts_of_one_caller_do_not_reach_another_caller() {
    // The same words and the same call ids, with another credential: nothing of the first caller is put before the
    // second caller's messages.
    let upstream = Scripted::start(|nth, request| {
        let calls = [("c1", "f", "{}"), ("c2", "f", "{}")];
        Reply::speech(request, &if nth == 0 { Speech::calls(&calls) } else { Speech::text("ok") })
    });
    let toolrein = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 1\nnotify_at = [1.0]\n");
    let first = Request::post(&toolrein.chat_url(), question(false)).send();
    assert!(first.text().contains("c1") && !first.text().contains("c2"), "{}", first.text());
    let message = first.json()["choices"][0]["message"].clone();
    let mut body: serde_json::Value = serde_json::from_str(&question(false)).unwrap();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([message, json!({"role": "tool", "tool_call_id": "c1", "content": "r"})]);
    let body = body.to_string();
    for (nth, (key, restored)) in [("Bearer other", false), ("Bearer sk-test", true)].into_iter().enumerate()
    {
        let url = toolrein.chat_url();
        Request::new("POST", &url, &body)
            .header("content-type", "application/json")
            .header("authorization", key)
            .send();
        let seen = String::from_utf8(upstream.request(nth + 1).body).unwrap();
        assert_eq!(seen.contains("\"c2\""), restored, "{key}: {seen}");
    }
}

#[test]
fn the_admin_port_changes_nothing_for_anybody_and_hides_from_pages_of_a_browser() {
    let (hand, toolrein) = Hand::behind("");
    for path in ["/", "/metrics", "/livez", "/readyz", "/config"] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"] {
            let reply = Request::new(method, &format!("{}{path}", toolrein.admin_url()), "{}").send();
            assert_eq!(reply.status, 405, "{method} {path}");
            assert!(reply.head.headers.iter().all(|(name, _)| !name.starts_with("access-control")));
        }
        let address = toolrein.admin_url().trim_start_matches("http://").to_owned();
        let mut rebound = Wire::new(std::net::TcpStream::connect(address).unwrap());
        rebound.write(format!("GET {path} HTTP/1.1\r\nhost: rebound.example\r\n\r\n"));
        assert_eq!(rebound.head().word(1), "403", "{path}");
    }
    // No page of the admin port is served at the proxy port either.
    let mut client = Wire::to(&toolrein);
    client.write(chat(false).replace("/v1/chat/completions", "/config"));
    assert_eq!(hand.asked().stream().peer_addr().unwrap().ip(), std::net::Ipv4Addr::LOCALHOST);
}
