//! Wrapper calls, which contain several calls: these are judged, counted and remembered as calls of their own.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::talk::{Form, Talk, in_both_forms, text};
use serde_json::json;

/// The model calls these tools by one call.
fn wrapped(tools: &[&str], request: &Recorded) -> Reply {
    let uses: Vec<_> = tools
        .iter()
        .map(|tool| json!({"recipient_name": format!("functions.{tool}"), "parameters": {"q": tool}}))
        .collect();
    let arguments = json!({ "tool_uses": uses }).to_string();
    Reply::speech(request, &Speech::calls(&[("call_parallel", "multi_tool_use.parallel", &arguments)]))
}

#[test]
fn one_forbidden_inner_call_blocks_the_wrapper_call_and_the_model_reads_which() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => wrapped(&["search", "fetch"], request),
            _ => text("Then without.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"fetch\"]\n");
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "Then without."));
        let asked = upstream.request(1).json();
        let result =
            asked["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        assert!(result.contains("MODE_RESTRICTED") && result.contains("fetch"), "{result}");
    });
}

#[test]
fn an_allowed_wrapper_call_is_forwarded_and_each_inner_call_is_counted() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| wrapped(&["search", "fetch", "search"], request));
        let limits = "[policy.turn_limits]\ncalls = 3\n[policy.quota.limits]\nall = { tools = [\"*\"], calls = 4, per = \"1h\" }\n";
        let program = Toolrein::before(&upstream, limits);
        let said = Talk::new(form).ask(&program);
        assert_eq!(said.calls.len(), 1, "{}", said.response.text());
        program.wait_for_metric("toolrein_tool_calls_total{tool=\"search\"}", 2.0);
        program.wait_for_metric("toolrein_tool_calls_total{tool=\"fetch\"}", 1.0);
        // Three of four are used: three more in one call are too many.
        let mut other = Talk::new(form);
        other.members["seed"] = json!(7);
        let again = other.ask(&program);
        assert_eq!(again.calls.len(), 0, "{}", again.response.text());
    });
}

#[test]
fn inner_calls_of_a_wrapper_call_count_against_the_turn_limit() {
    let upstream = Scripted::start(|nth, request| match nth {
        0 => wrapped(&["search", "fetch", "search"], request),
        _ => text("Enough.", request),
    });
    let program = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 2\n");
    let said = Talk::new(Form::Whole).ask(&program);
    assert_eq!((said.calls.len(), said.text.as_str()), (0, "Enough."));
}
