//! Errors of the Messages API and of servers that imitate it, each with the adaptations that it asks for.

use serde_json::Value;

use crate::error::{UpstreamError, parse};
use crate::refusal::{
    alternative, breaks, classify, misses_tools, objects_to_choice, overflows, refuses_signed_thinking,
    suspects,
};
use model::adaptation::Adaptation;

const ERRORS: &str = include_str!("../../../../../tests/data/messages/errors.jsonl");

/// What the error asks for, in the order in which the engine tries it.
fn asked(status: u16, error: &UpstreamError) -> Vec<&'static str> {
    if overflows(status, error) {
        return vec!["overflow"];
    }
    let known = classify(status, error);
    let broken = breaks(status, error);
    let is_guess = known.is_none();
    let repairs = broken.into_iter().chain(suspects(status, error).iter().filter(|_| is_guess));
    let asked = repairs.chain(known).chain(alternative(status, error));
    let mut names: Vec<_> = asked.map(Adaptation::as_str).collect();
    names.dedup();
    if known != Some(Adaptation::ToolChoice) && objects_to_choice(status, error) {
        names.push("forced_choice");
    }
    if misses_tools(error) {
        names.push("tools_missing");
    }
    if refuses_signed_thinking(error) {
        names.push("signed_thinking");
    }
    names
}

#[test]
fn every_error_of_the_messages_api_asks_for_the_adaptation_that_helps_and_near_misses_for_none() {
    let mut wrong = Vec::new();
    for line in ERRORS.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let status = u16::try_from(case["status"].as_u64().unwrap()).unwrap();
        let error = parse(case["body"].as_str().unwrap().as_bytes()).unwrap();
        let found = serde_json::json!(asked(status, &error));
        if found != case["expect"] {
            wrong.push(format!("{found}, not {}: {}", case["expect"], case["body"]));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
