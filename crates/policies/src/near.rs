//! Tests of near tool names: every policy that restricts calls treats a call under such a name as a call of the tool,
//! as programs do. Runs over all policies.

use super::cases::{Conversation, built, declaring, default_of, policy};
use super::set::Rule;
use super::*;
use std::sync::Arc;

/// Names under which programs run `pay`.
const NEAR: [&str; 8] =
    ["pay", "Pay", "PAY", " pay", "pay\n", "functions.pay", "default_api.Pay", "tools.pay "];
/// A name under which they do not.
const OTHER: &str = "payment";

/// What a policy decides on two calls of `pay` in one reply.
#[derive(Clone, Copy, PartialEq)]
enum Blocks {
    First,
    Second,
}

/// Policies that restrict calls by the tool's name, each with settings that let `pay` be called at most once.
fn restricting() -> Vec<(&'static str, Arc<dyn Rule>, Blocks)> {
    vec![
        (
            "rate_limit",
            policy::<rate_limit::RateLimit>("tools = { pay = { calls = 1, per = \"1h\" } }"),
            Blocks::Second,
        ),
        (
            "rate_limit",
            policy::<rate_limit::RateLimit>("default = { calls = 1, per = \"1h\" }"),
            Blocks::Second,
        ),
        (
            "quota",
            policy::<quota::Quota>("limits.money = { tools = [\"pay\"], calls = 1, per = \"1h\" }"),
            Blocks::Second,
        ),
        (
            "turn_limits",
            policy::<turn_limits::TurnLimits>("categories.money = { tools = [\"pay\"], calls = 1 }"),
            Blocks::Second,
        ),
        ("allow", policy::<allow::Allow>("except = [\"pay\"]\nundeclared = \"pass\""), Blocks::First),
        ("allow", policy::<allow::Allow>("only = [\"look\"]\nundeclared = \"pass\""), Blocks::First),
        (
            "states",
            policy::<states::States>("[x.state.start]\nfinal = true\ntools = [\"look\"]"),
            Blocks::First,
        ),
        (
            "arguments",
            policy::<arguments::Arguments>("tools.pay.to = { hosts = [\"a.example\"] }"),
            Blocks::First,
        ),
        ("duplicates", policy::<duplicates::Duplicates>("tools = [\"pay\"]"), Blocks::Second),
        ("serial", policy::<serial::Serial>("tools = [\"pay\"]"), Blocks::Second),
        (
            "min_conversation",
            policy::<min_conversation::MinConversation>("tools.pay = { min_user_messages = 3 }"),
            Blocks::First,
        ),
        (
            "fresh",
            policy::<fresh::Fresh>(
                "rules = [{ tool = \"pay\", argument = \"to\", from = \"show\", path = \"id\" }]\nunknown = \"block\"",
            ),
            Blocks::First,
        ),
        ("confirm", policy::<confirm::Confirm>("tools = [\"pay\"]"), Blocks::First),
    ]
}

#[test]
fn every_policy_that_restricts_calls_takes_near_names_for_the_tool() {
    let declared = declaring(&[("look", "{}"), ("pay", "{}"), ("payment", "{}")]);
    let undeclared = declaring(&[]);
    for (name, rule, blocks) in restricting() {
        for body in [&declared, &undeclared] {
            for first in NEAR {
                for second in NEAR {
                    let mut talk = Conversation::over(&rule, body);
                    let says =
                        |talk: &mut Conversation, tool| talk.judge(tool, ARGUMENTS, 1_000).is_allowed();
                    assert_eq!(says(&mut talk, first), blocks == Blocks::Second, "{name}: {first:?}");
                    assert!(!says(&mut talk, second), "{name}: {first:?}, then {second:?}");
                }
            }
        }
    }
}

/// Arguments that no policy allows.
const ARGUMENTS: &str = "{\"to\":\"http://b.example\"}";

#[test]
fn a_name_that_is_not_near_is_another_tool() {
    let declared = declaring(&[("look", "{}"), ("pay", "{}"), (OTHER, "{}")]);
    for (name, rule, blocks) in restricting() {
        let mut talk = Conversation::over(&rule, &declared);
        let allowed = talk.judge("pay", ARGUMENTS, 1_000).is_allowed();
        assert_eq!(allowed, blocks == Blocks::Second, "{name}");
        let lists_others = name == "states" || !rule.about().callable.includes(OTHER);
        assert_eq!(talk.judge(OTHER, ARGUMENTS, 1_000).is_allowed(), !lists_others, "{name}");
    }
}

#[test]
fn a_list_of_allowed_tools_accepts_near_names_of_declared_tools_only() {
    let only = policy::<allow::Allow>("only = [\"pay\"]\nundeclared = \"pass\"");
    let state = policy::<states::States>("[x.state.start]\nfinal = true\ntools = [\"pay\"]");
    for rule in [only, state] {
        for near in NEAR {
            let mut declared = Conversation::over(&rule, &declaring(&[("pay", "{}")]));
            assert!(declared.judge(near, "{}", 1_000).is_allowed(), "{near:?}");
            let mut undeclared = Conversation::over(&rule, &declaring(&[("look", "{}")]));
            assert_eq!(undeclared.judge(near, "{}", 1_000).is_allowed(), near == "pay", "{near:?}");
        }
    }
}

#[test]
fn calls_of_the_history_count_under_near_names() {
    let counting = restricting()
        .into_iter()
        .filter(|(name, ..)| ["rate_limit", "turn_limits", "duplicates"].contains(name));
    for (name, rule, _) in counting {
        for first in ["pay", "Pay", "functions.pay", "tools.PAY "] {
            for second in NEAR {
                let mut talk = Conversation::with_calls(&rule, first, &[Some(900)]);
                assert!(
                    !talk.judge(second, "{\"n\":0}", 1_000).is_allowed(),
                    "{name}: {first:?}, then {second:?}"
                );
            }
        }
    }
}

#[test]
fn every_policy_that_restricts_calls_is_here() {
    let known: Vec<&str> = restricting().into_iter().map(|(name, ..)| name).collect();
    for entry in REGISTRY {
        let restricts = built(entry, default_of(entry)).about().restricts_calls;
        // It needs more of a conversation than a name.
        let is_known = known.contains(&entry.name) || entry.name == taint::Taint::NAME;
        assert!(is_known || !restricts, "{} belongs into `restricting`", entry.name);
    }
}
