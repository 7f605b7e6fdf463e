//! What each named caller used and has left: in metrics and on the page of limits. Who sent the credential is in neither.

use crate::support::client::{Request, get};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::until;
use serde_json::{Value, json};

/// A reply bills 20 tokens and 5: 25 millionths of a dollar.
const PRICE: &str = "model.\"m\".price = { input = 1.0, output = 1.0 }\n";
const DAY: &str = "[policy.budget]\ntool_calls = 0\nday = { spend_usd = 0.001, requests = 9 }\n";
const KEY: &str = "sk-credential-of-the-tests";

fn answering() -> Scripted {
    Scripted::start(|nth, request: &Recorded| match request.path.ends_with("responses") {
        true => Output::text(nth, "Hello.").reply(request),
        false => Reply::speech(request, &Speech::text("Hello.")),
    })
}

fn start(upstream: &Scripted, settings: &str) -> Toolrein {
    Toolrein::before(upstream, &format!("upstream.ask_usage = \"auto\"\n{PRICE}{settings}"))
}

/// Sends a request of `customer` by the header and by the member of the body.
fn ask(program: &Toolrein, customer: &str, is_responses: bool, stream: bool) -> u16 {
    let (path, content) = match is_responses {
        true => ("responses", json!({"input": "Hello"})),
        false => ("chat/completions", json!({"messages": [{"role": "user", "content": "Hello"}]})),
    };
    let mut body = content;
    (body["model"], body["stream"]) = (json!("m"), json!(stream));
    if !customer.is_empty() {
        body["user"] = json!(customer);
    }
    let request = Request::new("POST", &format!("{}/{path}", program.base_url()), body.to_string());
    let request = request.header("authorization", &format!("Bearer {KEY}"));
    match customer.chars().all(|char| char == ' ' || char.is_ascii_graphic()) && !customer.is_empty() {
        true => request.header("x-customer", customer).send().status,
        false => request.send().status,
    }
}

fn limits(program: &Toolrein) -> Value {
    get(&format!("{}/api/limits", program.admin_url())).json()
}

/// The row of this caller once `holds`.
fn row(program: &Toolrein, caller: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until(&format!("the row of {caller}"), || {
        let page = limits(program);
        let row = page["callers"].as_array()?.iter().find(|row| row["caller"] == caller)?.clone();
        holds(&row).then_some(row)
    })
}

#[test]
fn requests_tokens_and_money_are_shown_by_caller_with_what_its_day_has_left() {
    let upstream = answering();
    for caller in ["header:x-customer", "body:user"] {
        let program = start(&upstream, &format!("conversation.caller = \"{caller}\"\n{DAY}"));
        for (is_responses, stream) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(ask(&program, "Anna Smith", is_responses, stream), 200);
        }
        assert_eq!(ask(&program, "Anna Jones", false, false), 200);
        assert_eq!(ask(&program, "", false, false), 200);
        program.wait_for_metric("toolrein_caller_requests_total", 6.0);
        for (series, value) in [
            ("toolrein_caller_requests_total{caller=\"Anna Smith\"}", 4.0),
            ("toolrein_caller_requests_total{caller=\"Anna Jones\"}", 1.0),
            ("toolrein_caller_requests_total{caller=\"none\"}", 1.0),
            ("toolrein_caller_cost_usd_total{caller=\"Anna Jones\"}", 0.000_025),
        ] {
            let found = program.metric(series);
            assert!((found - value).abs() < 1e-9, "{caller} {series}: {found}");
        }
        for (of_callers, of_all) in [
            ("toolrein_caller_tokens_total{type=\"input\"}", "toolrein_tokens_total{type=\"input\"}"),
            ("toolrein_caller_tokens_total{type=\"output\"}", "toolrein_tokens_total{type=\"output\"}"),
            ("toolrein_caller_cost_usd_total", "toolrein_cost_usd_total"),
        ] {
            let (parts, whole) = (program.metric(of_callers), program.metric(of_all));
            assert!(whole > 0.0 && (parts - whole).abs() < 1e-9, "{of_callers} sums to {of_all}");
        }
        let jones = row(&program, "Anna Jones", |_| true);
        let budgets = json!([
            {"policy": "budget", "name": "day:requests", "used": 1, "limit": 9, "left": 8},
            {"policy": "budget", "name": "day:spend_microusd", "used": 25, "limit": 1000, "left": 975},
        ]);
        assert_eq!(
            (&jones["requests"], &jones["input_tokens"], &jones["output_tokens"], &jones["budgets"]),
            (&json!(1), &json!(20), &json!(5), &budgets),
            "{jones}"
        );
        let smith = row(&program, "Anna Smith", |row| row["requests"] == 4);
        assert_eq!(smith["budgets"][0]["left"], 5, "{smith}");
        assert_eq!(limits(&program)["callers"][0]["caller"], "Anna Smith", "the one that cost most is first");
    }
}

#[test]
fn callers_beyond_the_bound_share_one_row_and_a_bound_of_none_shows_none() {
    let upstream = answering();
    let by_body = "conversation.caller = \"body:user\"\ntelemetry.per_tool = true\n";
    let program = start(&upstream, &format!("{by_body}telemetry.callers = 2\n"));
    let long = "x".repeat(300);
    for customer in ["a", "b", "c", "d", "a", "d", "王伟", "nul\u{0}nul", &long] {
        assert_eq!(ask(&program, customer, false, false), 200);
    }
    program.wait_for_metric("toolrein_caller_requests_total", 9.0);
    for (caller, count) in [("a", 2), ("b", 1), ("other", 6)] {
        let series = format!("toolrein_caller_requests_total{{caller=\"{caller}\"}}");
        assert!((program.metric(&series) - f64::from(count)).abs() < 1e-9, "{series}\n{}", program.metrics());
        row(&program, caller, |row| row["requests"] == count);
    }
    assert_eq!(limits(&program)["callers"].as_array().map(Vec::len), Some(3));
    let program = start(&upstream, &format!("{by_body}telemetry.callers = 0\n"));
    assert_eq!(ask(&program, "a", false, false), 200);
    program.wait_for_metric("toolrein_requests_total", 1.0);
    assert!(!program.metrics().contains("toolrein_caller_"), "{}", program.metrics());
    assert_eq!(limits(&program)["callers"], json!([]));
}

#[test]
fn no_credential_names_a_caller() {
    let upstream = answering();
    for caller in ["credential", "jwt", "header:authorization", "header:x-customer", "body:user"] {
        let program = start(&upstream, &format!("conversation.caller = \"{caller}\"\n"));
        // Where the operator names the place, a credential in it is not shown either.
        assert_eq!(ask(&program, KEY, false, false), 200);
        program.wait_for_metric("toolrein_requests_total", 1.0);
        let (metrics, page) = (program.metrics(), limits(&program).to_string());
        assert!(!metrics.contains("sk-cred") && !page.contains("sk-cred"), "{caller}: {metrics}{page}");
        let is_named = caller.contains("customer") || caller.contains("user");
        assert_eq!(
            metrics.contains("toolrein_caller_requests_total{caller=\"other\"} 1"),
            is_named,
            "{metrics}"
        );
    }
}
