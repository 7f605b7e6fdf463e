//! `upstream.api_key_env`: toolrein holds the upstream's key, and no credential of the client is sent on.

use crate::access::post;
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use std::process::Command;

const OWN: &str = "sk-own-key-of-the-operator";
const CLIENTS: &str = "sk-of-the-client";
const SETTING: &str = "upstream.api_key_env = \"KEY_OF_THE_UPSTREAM\"\n";

fn before(upstream: &Scripted, settings: &str) -> Toolrein {
    Toolrein::before_in(upstream, &format!("{SETTING}{settings}"), &[("KEY_OF_THE_UPSTREAM", OWN)])
}

fn answering() -> Scripted {
    Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")))
}

#[test]
fn the_key_replaces_whatever_the_client_sent_on_every_route() {
    let upstream = answering();
    let toolrein = before(&upstream, "");
    let bearer = format!("Bearer {CLIENTS}");
    let sent = [
        post(&toolrein.chat_url(), &[("authorization", &bearer)]),
        post(&toolrein.chat_url(), &[("api-key", CLIENTS), ("x-other", "kept")]),
        post(&format!("{}?api-key={CLIENTS}&a=1", toolrein.chat_url()), &[]),
        post(&format!("{}/responses", toolrein.base_url()), &[("x-api-key", &bearer)]),
        post(&format!("{}/embeddings", toolrein.base_url()), &[("authorization", &bearer)]),
        Request::new("GET", &format!("{}/models", toolrein.base_url()), ""),
    ];
    let count = sent.len();
    for request in sent {
        assert_eq!(request.send().status, 200);
    }
    for nth in 0..count {
        let seen = upstream.request(nth);
        let keys: Vec<_> = seen.headers.iter().filter(|(name, _)| name == "authorization").collect();
        assert_eq!(keys, [&("authorization".to_owned(), format!("Bearer {OWN}"))], "{nth}");
        assert!(!format!("{:?} {}", seen.headers, seen.path).contains(CLIENTS), "{nth}: {seen:?}");
    }
    assert_eq!(upstream.request(1).header("x-other"), Some("kept"));
    assert!(upstream.request(2).path.ends_with("/chat/completions?a=1"), "{}", upstream.request(2).path);
}

#[test]
fn a_connection_header_of_the_client_cannot_remove_the_operators_key() {
    let upstream = answering();
    for (settings, header, value) in [
        ("", "authorization", format!("Bearer {OWN}")),
        ("upstream.api_key_header = \"x-api-key\"\n", "x-api-key", OWN.to_owned()),
    ] {
        let toolrein = before(&upstream, settings);
        let named = [("connection", "keep-alive, Authorization, X-API-Key"), ("authorization", "Bearer c")];
        for url in [toolrein.chat_url(), format!("{}/embeddings", toolrein.base_url())] {
            assert_eq!(post(&url, &named).send().status, 200);
            let seen = upstream.request(upstream.requests().len() - 1);
            assert_eq!(seen.header(header), Some(value.as_str()), "{url}");
        }
    }
}

#[test]
fn the_key_is_in_the_header_that_the_upstream_wants() {
    let upstream = answering();
    let toolrein = before(&upstream, "upstream.api_key_header = \"api-key\"\n");
    assert_eq!(post(&toolrein.chat_url(), &[("authorization", "Bearer any")]).send().status, 200);
    let seen = upstream.request(0);
    assert_eq!((seen.header("api-key"), seen.header("authorization")), (Some(OWN), None));
}

#[test]
fn clients_keep_their_identities_and_two_that_differ_are_still_refused() {
    let upstream = answering();
    let toolrein = before(&upstream, "log.format = \"json\"\n");
    for key in ["one", "two", "one"] {
        let request = post(&toolrein.chat_url(), &[("authorization", &format!("Bearer {key}"))]);
        assert_eq!(request.send().status, 200);
    }
    let both = [("authorization", "Bearer one"), ("x-api-key", "two")];
    assert_eq!(post(&toolrein.chat_url(), &both).send().json()["error"]["code"], "ambiguous_credentials");
    let log = toolrein.stop();
    let lines = log.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let callers: Vec<String> = lines
        .filter_map(|line| line.to_string().split("\"caller\":\"").nth(1).map(|rest| rest[..32].to_owned()))
        .collect();
    assert_eq!(callers.len(), 3, "{log:?}");
    assert!(callers[0] == callers[2] && callers[0] != callers[1], "{callers:?}");
}

#[test]
fn the_key_is_in_no_log_no_metric_and_no_page() {
    let upstream = answering();
    let toolrein = before(&upstream, "log.level = \"trace\"\nlog.format = \"json\"\n");
    post(&toolrein.chat_url(), &[("authorization", "Bearer any")]).send();
    Request::new("TRACE", &format!("{}/models", toolrein.base_url()), "").send();
    assert_eq!(upstream.request(1).header("authorization"), None, "TRACE would send it back");
    let page = Request::new("GET", &format!("{}/config", toolrein.admin_url()), "").send().text();
    assert!(page.contains("KEY_OF_THE_UPSTREAM") && !page.contains(OWN), "{page}");
    assert!(!toolrein.metrics().contains(OWN));
    let log = toolrein.stop().join("\n");
    assert!(log.contains("request") && !log.contains(OWN) && !log.contains("Bearer any"), "{log}");
}

#[test]
fn without_the_variable_the_program_does_not_start_and_a_key_in_the_file_is_refused_unquoted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    let run = |command: &str, text: &str| {
        std::fs::write(
            &file,
            format!("listen.proxy = \"127.0.0.1:0\"\nlisten.admin = \"127.0.0.1:0\"\n{text}"),
        )
        .unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        program.arg(command);
        if command == "serve" {
            program.arg("--config");
        }
        let done = program.arg(&file).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
    };
    let (code, said) = run("serve", "upstream.api_key_env = \"UNSET_IN_THE_TESTS\"\n");
    assert!(code == Some(1) && said.contains("UNSET_IN_THE_TESTS is not set"), "{code:?} {said}");
    let (code, said) = run("check", "upstream.api_key_env = \"UNSET_IN_THE_TESTS\"\n");
    assert!(code == Some(0) && said.contains("without it toolrein does not start"), "{code:?} {said}");
    let (code, said) = run("check", "upstream.api_key_env = \"sk-a-real-key\"\n");
    assert!(code == Some(2) && said.contains("not the key itself"), "{code:?} {said}");
    assert!(!said.contains("sk-a-real-key"), "{said}");
}
