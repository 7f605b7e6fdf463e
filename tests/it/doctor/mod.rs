//! `toolrein doctor` against real sockets: what it finds of an upstream, a key, a running proxy and its traffic, and
//! where the key goes.

mod run;
mod setup;
use crate::support;
mod terminal;

use serde_json::json;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Output};
use support::client::{Request, get};
use support::program::Toolrein;
use support::reply::Reply;
use support::scripted::Scripted;

const KEY: &str = "sk-key-of-the-doctor-test";

/// Runs the doctor for this upstream and admin address.
fn doctor(upstream: &str, admin: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    let variables_of_proxies =
        ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]
        .into_iter()
        .chain(variables_of_proxies)
    {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
        command.env_remove(name);
    }
    let admin = admin.trim_start_matches("http://");
    let asked =
        command.args(["doctor", "--upstream", upstream, "--admin", admin]).envs(variables.iter().copied());
    asked.output().expect("the built program runs")
}

/// Asserts that a line of the report begins so and goes on with `text`, and that the key is nowhere in it.
fn says(output: &Output, outcome: &str, subject: &str, text: &str) {
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = report.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(outcome) && words.next() == Some(subject) && line.contains(text)
    });
    assert!(found, "no line {outcome} {subject} {text:?} in\n{report}");
    assert!(!report.contains(KEY), "{report}");
}

/// An upstream that lists models for the right key.
fn upstream() -> Scripted {
    Scripted::start(|_, request| {
        if request.path != "/v1/models" {
            return Reply::json(200, &json!({"choices": []}));
        }
        match request.header("authorization") {
            Some(given) if given == format!("Bearer {KEY}") => {
                Reply::json(200, &json!({"object": "list", "data": []}))
            }
            _ => Reply::json(401, &json!({"error": {"message": "Incorrect API key provided"}})),
        }
    })
}

#[test]
fn a_good_set_up_has_no_problem_and_its_traffic_is_counted() {
    let upstream = upstream();
    let program = Toolrein::before(&upstream, "");
    let silent = doctor(&upstream.base_url(), program.admin_url(), &[("OPENAI_API_KEY", KEY)]);
    says(&silent, "ok", "key", "accepts the key in OPENAI_API_KEY");
    says(&silent, "ok", "proxy", "ready");
    says(&silent, "warning", "traffic", "no request has arrived");
    says(&silent, "warning", "client", "OPENAI_BASE_URL is not set");
    assert_eq!(silent.status.code(), Some(0));
    assert_eq!(upstream.request(0).header("authorization").unwrap(), format!("Bearer {KEY}"));

    let body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}]}).to_string();
    Request::post(&program.chat_url(), body).send();
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 1.0);
    let used = doctor(&upstream.base_url(), program.admin_url(), &[]);
    says(&used, "ok", "traffic", "chat_completions 1");
    says(&used, "warning", "key", "OPENAI_API_KEY is not set here");
    assert!(get(&format!("{}/livez", program.admin_url())).status == 200);
}

/// As Ollama and OpenRouter do: the models are listed to anyone.
#[test]
fn an_address_cannot_turn_the_text_of_the_terminal() {
    let upstream = upstream();
    let address = "http://api.example\u{202e}txt.exe\u{2066}/v1";
    let output = doctor(&upstream.base_url(), "127.0.0.1:9", &[("OPENAI_BASE_URL", address)]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains(r"api.example\u202etxt.exe\u2066"), "{report}");
    assert!(!report.contains(['\u{202e}', '\u{2066}']), "{report}");
}

#[test]
fn a_key_counts_as_accepted_only_where_the_list_of_models_needs_one() {
    let upstream = Scripted::start(|_, _| Reply::json(200, &json!({"object": "list", "data": []})));
    let report = doctor(&upstream.base_url(), "127.0.0.1:1", &[("OPENAI_API_KEY", "sk-wrong")]);
    says(&report, "warning", "key", "OPENAI_API_KEY was not checked");
    assert!(!String::from_utf8_lossy(&report.stdout).contains("accepts the key"));
    let keys: Vec<_> =
        upstream.requests().iter().map(|request| request.header("authorization").is_some()).collect();
    assert_eq!(keys, [true, false]);
    assert_eq!(report.status.code(), Some(0));
}

#[test]
fn anthropics_upstream_is_asked_as_its_clients_ask() {
    let upstream = Scripted::start(|_, request| {
        let error = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "r"});
        if request.header("anthropic-version").is_none() {
            return Reply::json(
                400,
                &error("invalid_request_error", "anthropic-version: header is required"),
            );
        }
        match request.header("x-api-key") {
            Some(KEY) => Reply::json(200, &json!({"data": [], "has_more": false})),
            _ => Reply::json(401, &error("authentication_error", "invalid x-api-key")),
        }
    });
    let url = format!("{}/v1", upstream.origin());
    let good = doctor(&url, "127.0.0.1:9", &[("OPENAI_API_KEY", KEY)]);
    says(&good, "ok", "upstream", "GET models: 200");
    says(&good, "ok", "key", "accepts the key in OPENAI_API_KEY");
    let wrong = doctor(&url, "127.0.0.1:9", &[("OPENAI_API_KEY", "sk-other")]);
    says(&wrong, "problem", "key", "refuses the key");
    let here = doctor(&url, "127.0.0.1:9", &[("ANTHROPIC_BASE_URL", "http://127.0.0.1:4242")]);
    says(&here, "ok", "client", "ANTHROPIC_BASE_URL is http://127.0.0.1:4242, the proxy");
}

#[test]
fn the_admin_port_is_asked_over_http1_whatever_the_upstream_speaks() {
    let admin = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = admin.local_addr().unwrap().to_string();
    let first = std::thread::spawn(move || {
        let (mut connection, _) = admin.accept().unwrap();
        let mut line = [0; 14];
        connection.read_exact(&mut line).unwrap();
        String::from_utf8_lossy(&line).into_owned()
    });
    doctor("http://127.0.0.1:1/v1", &address, &[("TOOLREIN__UPSTREAM__HTTP2", "true")]);
    assert_eq!(first.join().unwrap(), "GET /readyz HT");
}

#[test]
fn a_wrong_key_a_dead_upstream_and_a_port_of_another_program_are_problems() {
    let upstream = upstream();
    let wrong = doctor(&upstream.base_url(), "127.0.0.1:1", &[("OPENAI_API_KEY", "sk-wrong")]);
    says(&wrong, "problem", "key", "refuses the key in OPENAI_API_KEY (401)");
    says(&wrong, "warning", "proxy", "nothing answers at 127.0.0.1:1");
    assert_eq!(wrong.status.code(), Some(1));

    let other = upstream.base_url().replace("/v1", "");
    let taken = doctor("http://127.0.0.1:1/v1", &other, &[("OPENAI_API_KEY", KEY)]);
    says(&taken, "problem", "upstream", "http://127.0.0.1:1/v1");
    assert!(!String::from_utf8_lossy(&taken.stdout).contains(KEY));
    let to_admin = upstream.requests().into_iter().filter(|request| request.path != "/v1/models");
    assert!(to_admin.clone().count() >= 1);
    assert!(
        to_admin.clone().all(|request| request.header("authorization").is_none()),
        "the key went elsewhere"
    );
}

#[test]
fn an_agent_that_writes_calls_and_results_as_text_is_named() {
    let smolagents = json!([
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Calling tools:\n[{'id': 'a', 'type': 'function', 'function': {'name': 'f', 'arguments': {}}}]"}]},
        {"role": "user", "content": [{"type": "text", "text": "Observation:\n7"}]},
    ]);
    let react = json!([{"role": "user", "content": "q\nThought:"}]);
    let ordinary = json!([
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What did the observation say?"},
    ]);
    let upstream = upstream();
    let program = Toolrein::before(&upstream, "");
    let send = |messages: &serde_json::Value, stop: serde_json::Value| {
        let body = json!({"model": "m", "messages": messages, "stop": stop});
        Request::post(&program.chat_url(), body.to_string()).send();
    };
    send(&ordinary, json!(["\n\n"]));
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 1.0);
    assert!(!program.metrics().contains("calls_as_text"));
    send(&smolagents, json!(null));
    send(&react, json!(["\nObservation"]));
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 3.0);
    let found = doctor(&upstream.base_url(), program.admin_url(), &[]);
    says(
        &found,
        "warning",
        "traffic",
        "2 requests came from agents that write tool calls and results as text",
    );
}

/// A refund of 500 once ran under `confirm.tools = ["refunds"]` without a word.
#[test]
fn a_rule_that_fits_no_tool_in_use_is_named_with_the_tool_that_was_meant() {
    let upstream = upstream();
    let settings = "[policy.confirm]\ntools = [\"refunds\", \"pay*\", \"deploy\"]\n\
                    [policy.rate_limit]\ntools = { look_up = { calls = 5, per = \"1m\" } }\n";
    let program = Toolrein::before(&upstream, settings);
    let health = || get(&format!("{}/api/health", program.admin_url())).json()["rules"].clone();
    assert_eq!(health(), json!({"tools": 0, "unfitted": []}), "nothing is known of any tool yet");
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "lookUp", "arguments": "{}"}});
    let body = json!({"model": "m", "tools": [tool("refund"), tool("mcp__shop__payment")], "messages": [
        {"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "r"}]});
    Request::post(&program.chat_url(), body.to_string()).send();
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 1.0);
    let unfitted = json!([
        {"key": "policy.rate_limit.tools", "pattern": "look_up", "near": "lookUp"},
        {"key": "policy.confirm.tools", "pattern": "refunds", "near": "refund"},
        {"key": "policy.confirm.tools", "pattern": "deploy", "near": null},
    ]);
    assert_eq!(health(), json!({"tools": 3, "unfitted": unfitted}), "pay* fits a payment in any namespace");
    let report = doctor(&upstream.base_url(), program.admin_url(), &[]);
    says(
        &report,
        "warning",
        "rules",
        "policy.confirm.tools: \"refunds\" fits none of the 3 tools declared or used since the start; did you mean \"refund\"?",
    );
    says(&report, "warning", "rules", "\"deploy\" fits none");
    assert_eq!(report.status.code(), Some(0), "a warning is no problem");
}

#[test]
fn the_shipped_patterns_are_guesses_and_not_named() {
    let upstream = upstream();
    let program = Toolrein::before(&upstream, "base = \"shipped\"\n[policy.budget]\ntool_calls = 20\n");
    let tools = json!([{"type": "function", "function": {"name": "zzz", "parameters": {"type": "object"}}}]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools});
    Request::post(&program.chat_url(), body.to_string()).send();
    program.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", 1.0);
    let health = get(&format!("{}/api/health", program.admin_url())).json();
    assert_eq!(health["rules"], json!({"tools": 1, "unfitted": []}));
}

#[test]
fn a_socks_proxy_in_the_environment_is_named_in_one_sentence_by_check_the_doctor_and_the_log() {
    let upstream = upstream();
    let url = upstream.base_url();
    let proxy = [("ALL_PROXY", "socks5h://ann:s3cret@127.0.0.1:1")];
    let sentence = "ALL_PROXY: expected an http:// or https:// proxy (SOCKS is not spoken), found";
    let examined = doctor(&url, "127.0.0.1:1", &proxy);
    says(&examined, "warning", "upstream", sentence);
    says(&examined, "ok", "upstream", "answers (GET models");
    let check = |settings: &str, variables: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("{settings}\n[listen]\nproxy = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n");
        std::fs::write(folder.path().join("mine.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        command.env_clear().envs(variables.iter().copied()).current_dir(folder.path());
        let output = command.args(["check", "mine.toml"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let report = check("upstream.url = \"https://upstream.test/v1\"", &proxy);
    assert!(report.contains(&format!("\nwarning: {sentence}")) && !report.contains("s3cret"), "{report}");
    for (settings, variables) in [
        ("upstream.proxy = \"none\"", proxy.as_slice()),
        ("", &[("HTTPS_PROXY", "http://127.0.0.1:1"), proxy[0]]),
    ] {
        let report = check(settings, variables);
        assert!(!report.contains("SOCKS"), "{settings} {variables:?}: {report}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    command.env_clear().envs(proxy).env("HOME", "/nowhere").args(["run", "--upstream", &url]);
    let run = command.args(["--log-level", "warn", "--", "/bin/true"]).output().unwrap();
    let log = String::from_utf8_lossy(&run.stderr);
    assert!(log.contains(sentence) && !log.contains("s3cret"), "{log}");
}

#[test]
fn the_doctor_names_the_proxy_of_the_environment_that_leads_to_an_https_upstream() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = proxy.local_addr().expect("its address");
    let refusing = std::thread::spawn(move || {
        let (mut client, _) = proxy.accept().expect("the doctor connects");
        let mut asked = [0; 4_096];
        let length = client.read(&mut asked).expect("a request for a tunnel");
        std::io::Write::write_all(&mut client, b"HTTP/1.1 403 Forbidden\r\n\r\n").expect("an answer");
        String::from_utf8_lossy(&asked[..length]).into_owned()
    });
    let variables = [("HTTPS_PROXY", format!("http://{address}"))];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let output = doctor("https://upstream.test/v1", "127.0.0.1:1", &variables);
    says(&output, "problem", "upstream", &format!("through the proxy http://{address}"));
    assert!(refusing.join().expect("no panic").starts_with("CONNECT upstream.test:443 HTTP/1.1\r\n"));
}
