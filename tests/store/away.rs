//! What a shared state store that is away means for quotas, and the circuit breaker before it.

use crate::server::{Server, is_connected, share};
use crate::support::program::Toolrein;
use crate::support::scripted::Scripted;
use crate::support::talk::{Form, Talk, in_both_forms, search, text};
use crate::support::until;
use serde_json::json;

const CLOSED: &str = "[policy.quota]\nstore_away = \"block\"\nlimits = { searches = { tools = [\"search*\"], \
    calls = 9, per = \"5h\" } }\n";

/// The state of the circuit breaker, as metrics show it.
fn circuit(program: &Toolrein) -> String {
    let is_so = |state: &&str| program.metric(&format!("toolrein_store_breaker{{state=\"{state}\"}}")) > 0.5;
    let states: Vec<&str> = ["closed", "half_open", "open"].into_iter().filter(is_so).collect();
    states.join(",")
}

#[test]
fn while_the_store_is_away_a_quota_fails_closed_where_the_operator_wants_that() {
    in_both_forms(|form| {
        let mut server = Server::start();
        let upstream = Scripted::start(|nth, request| {
            match request.json()["messages"].to_string().contains("cannot be checked at the moment") {
                true => text("Later then.", request),
                false => search(nth, request),
            }
        });
        let program = server.share(&upstream, CLOSED);
        is_connected(&program);
        let ask = |nth: usize| {
            let mut talk = Talk::new(form);
            talk.messages[0]["content"] = json!(format!("Question {nth}"));
            talk.ask(&program)
        };
        assert_eq!(ask(0).calls.len(), 1);
        server.stop();
        program.wait_for_metric("toolrein_store_up", 0.0);
        let said = ask(1);
        said.assert_coherent(form);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "Later then."));
        let shown = upstream.requests().last().unwrap().json()["messages"].to_string();
        assert!(
            shown.contains("\\\"retryable\\\":true") && shown.contains("\\\"retry_after_ms\\\":5000"),
            "{shown}"
        );
        server.start_again();
        is_connected(&program);
        assert_eq!(ask(2).calls.len(), 1);
        upstream.assert_clean();
    });
}

#[test]
fn a_store_that_was_never_there_blocks_only_what_a_quota_counts() {
    let (port, upstream) = (Server::nowhere(), Scripted::start(search));
    let program = share(port, &upstream, &CLOSED.replace("search*", "fetch*"));
    assert_eq!(Talk::new(Form::Whole).ask(&program).calls.len(), 1);
    let counting = share(port, &upstream, &CLOSED.replace("\"block\"", "\"count_locally\""));
    assert_eq!(Talk::new(Form::Whole).ask(&counting).calls.len(), 1);
}

#[test]
fn a_store_that_takes_no_writes_counts_as_away() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let program = server.share(&upstream, CLOSED);
    is_connected(&program);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    until("the first refusal", || Talk::new(Form::Whole).ask(&program).calls.is_empty().then_some(()));
}

#[test]
fn the_circuit_opens_after_a_few_failures_and_closes_after_one_probe() {
    let (server, upstream) = (Server::start(), Scripted::start(search));
    let settings =
        "store.timeout = \"200ms\"\n[policy.rate_limit]\ntools = { search = { calls = 9, per = \"1h\" } }\n";
    let program = server.share(&upstream, settings);
    is_connected(&program);
    assert_eq!(circuit(&program), "closed");
    server.freeze();
    until("an open circuit", || {
        Talk::new(Form::Whole).ask(&program);
        (circuit(&program) != "closed").then_some(())
    });
    let look_ups = "toolrein_store_errors_total{op=\"look_up\"}";
    let waited = program.metric(look_ups);
    assert!(waited <= 3.0, "{waited} requests waited");
    for _ in 0..10 {
        Talk::new(Form::Whole).ask(&program);
    }
    assert!((program.metric(look_ups) - waited).abs() < 0.5, "the probes are made beside the requests");
    assert!(["open", "half_open"].contains(&circuit(&program).as_str()), "{}", circuit(&program));
    server.thaw();
    until("a closed circuit", || (circuit(&program) == "closed").then_some(()));
    let own = Toolrein::before(&upstream, "");
    assert!(!own.metrics().contains("toolrein_store_breaker{"), "a process of its own has nothing to break");
}
