//! In which direction each key of a policy allows less. A key without a direction is refused by the tests, and in a file
//! that was found it counts as a change of another kind. Compares nothing.

/// What makes a value allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// A limit, as a number or a duration: a lower one. Zero is no limit.
    Limit,
    /// A number or a duration: a lower one, zero included.
    Lower,
    /// A list of what is restricted: more entries.
    Restricted,
    /// A list of what is exempt or permitted: fewer entries.
    Exempt,
    /// A list of all that is permitted; empty: everything.
    Only,
    /// `true`.
    Switch,
    /// One of these words, from the one that allows most to the one that allows least.
    Words(&'static [&'static str]),
    /// Limits by name or pattern, whose best match counts: lower ones, and new ones that are no higher than any before
    /// nor than the value of this key. Zero is no limit.
    ByName(&'static str),
    /// A rate, `{ calls, per }`: fewer calls in a longer time.
    Rate,
    /// Rates by name or pattern, in the same way, with the key of the common one.
    Rates(&'static str),
    /// Restrictions by name: new entries.
    Entries,
    /// The same limit as under this key, in whose place it takes effect.
    InPlaceOf(&'static str),
    /// Neither: texts, addresses, what is sent in other words.
    Neither,
}

use Direction::{
    ByName, Entries, Exempt, InPlaceOf, Limit, Lower, Neither, Only, Rate, Rates, Restricted, Switch, Words,
};

/// From counting alone to blocking.
const DEGREES: Direction = Words(&["count", "annotate", "ask", "block"]);
/// What all policies have.
const OF_ALL: [&str; 1] = ["texts"];

/// The direction of the dotted `key` of `policy`; that of a table holds for all in it. `None`: nobody has decided it.
pub(super) fn direction(policy: &str, key: &str) -> Option<Direction> {
    if OF_ALL.contains(&key) {
        return Some(Neither);
    }
    let keys = POLICIES.iter().find(|(name, _)| *name == policy).map(|(_, keys)| *keys)?;
    keys.iter().find(|(name, _)| *name == key).map(|(_, direction)| *direction)
}

type Keys = &'static [(&'static str, Direction)];

const POLICIES: [(&str, Keys); 25] = [
    ("kill", &[("conversations", Restricted), ("callers", Restricted), ("message", Neither)]),
    (
        "rewrite_query",
        &[
            ("tools", Neither),
            ("argument", Neither),
            ("year", Neither),
            ("fillers", Neither),
            ("min_words", Neither),
            ("audit", Neither),
            ("model", Neither),
        ],
    ),
    ("budget", BUDGET),
    ("rate_limit", &[("default", Rate), ("wait", Lower), ("tools", Rates("default"))]),
    (
        "quota",
        &[
            ("limits", Entries),
            ("exhausted", Words(&["block", "reject"])),
            ("store_away", Words(&["count_locally", "block"])),
            ("notify", Neither),
        ],
    ),
    (
        "loops",
        &[
            ("notice", Limit),
            ("block", Limit),
            ("empty", Limit),
            ("empty_block", Limit),
            ("strict", Switch),
            ("exempt", Exempt),
            ("quiet", Exempt),
            ("empty_texts", Restricted),
            ("empty_keys", Restricted),
        ],
    ),
    (
        "ask_user",
        &[
            ("searches", Neither),
            ("query", Neither),
            ("quality", Neither),
            ("overlap", Neither),
            ("poor", Limit),
            ("same_topic", Limit),
            ("diminishing", Limit),
            ("shared", Neither),
            ("errors", Limit),
            ("budget_left", Neither),
            ("tool", Neither),
            ("max_chars", Lower),
        ],
    ),
    (
        "turn_limits",
        &[
            ("calls", Limit),
            ("parallel", Limit),
            ("tools", ByName("")),
            ("categories.retrieval", Neither),
            ("categories.retrieval.calls", Limit),
            ("categories.action", Neither),
            ("categories.action.calls", Limit),
            ("categories.utility", Neither),
            ("categories.utility.calls", Limit),
        ],
    ),
    (
        "allow",
        &[
            ("only", Only),
            ("except", Restricted),
            ("hide", Switch),
            ("undeclared", Words(&["pass", "block"])),
        ],
    ),
    ("states", &[("start", Neither), ("always", Exempt), ("state", Neither)]),
    (
        "arguments",
        &[("strict", Switch), ("unsafe_keys", Words(&["off", "strip", "refuse"])), ("tools", Entries)],
    ),
    (
        "duplicates",
        &[
            ("tools", Restricted),
            ("keys", Entries),
            ("keyless", Words(&["pass", "compare"])),
            // As shipped a success counts for the whole conversation.
            ("window", Neither),
            ("retrieval", Neither),
            ("after_unknown", Words(&["pass", "verify", "block"])),
            ("checks", Neither),
        ],
    ),
    ("serial", &[("tools", Restricted)]),
    ("min_conversation", &[("tools", Entries)]),
    ("fresh", &[("rules", Restricted), ("unknown", Words(&["pass", "named", "block"]))]),
    (
        "injection",
        &[("action", Words(&["count", "strip", "annotate", "block"])), ("score", Lower), ("exempt", Exempt)],
    ),
    ("definitions", &[("scope", Neither), ("on_change", DEGREES), ("on_instructions", DEGREES)]),
    (
        "redact",
        &[
            ("kinds", Restricted),
            ("patterns", Entries),
            ("user_text", Switch),
            ("exempt", Exempt),
            ("restore", Exempt),
            ("explain", Neither),
        ],
    ),
    ("taint", &[("tools", Restricted), ("action", Words(&["confirm", "block"]))]),
    (
        "intents",
        &[
            ("tools", Exempt),
            ("allow", Exempt),
            ("closable", Exempt),
            ("closed", Neither),
            ("queue", Neither),
            ("own_text", Lower),
        ],
    ),
    ("read_more", &[("reads", Lower), ("max_chars", Lower)]),
    (
        "confirm",
        &[
            ("tools", Restricted),
            ("when", Entries),
            ("form", Neither),
            ("hold", Lower),
            ("words", Exempt),
            ("remember", Words(&["conversation", "no"])),
            ("keys", Neither),
            ("expires", Lower),
            ("max_chars", Lower),
            ("webhook", Neither),
        ],
    ),
    (
        "truncate",
        &[
            ("max_chars", Limit),
            ("tools", ByName("max_chars")),
            ("blob_chars", Limit),
            ("duplicates", Switch),
        ],
    ),
    (
        "compact",
        &[
            ("trigger", Lower),
            ("keep", Lower),
            ("min_gain", Lower),
            ("context_window", Lower),
            ("exempt", Exempt),
            ("style", Neither),
            ("summary", Neither),
        ],
    ),
    (
        "history",
        &[
            ("max_tokens", Limit),
            ("max_chars", Limit),
            ("share", Lower),
            ("down_to", Lower),
            ("context_window", Lower),
        ],
    ),
];

const BUDGET: Keys = &[
    ("tool_calls", Limit),
    ("requests", Limit),
    ("time", Limit),
    ("context_tokens", Limit),
    ("billed_tokens", Limit),
    ("spend_usd", Limit),
    ("notify_at", Neither),
    ("notify", Neither),
    // A person who extends it, a model that is only informed, a refusal: neither is more of another.
    ("exhausted", Neither),
    ("extension", Lower),
    ("turn.tool_calls", InPlaceOf("tool_calls")),
    ("turn.requests", InPlaceOf("requests")),
    ("turn.time", InPlaceOf("time")),
    ("turn.billed_tokens", Limit),
    ("turn.spend_usd", Limit),
    ("conversation.tool_calls", Limit),
    ("conversation.requests", Limit),
    ("conversation.time", Limit),
    ("conversation.billed_tokens", InPlaceOf("billed_tokens")),
    ("conversation.spend_usd", InPlaceOf("spend_usd")),
    ("day.tool_calls", Limit),
    ("day.requests", Limit),
    ("day.time", Limit),
    ("day.billed_tokens", Limit),
    ("day.spend_usd", Limit),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::shipped;
    use serde_json::Value;

    /// Calls `look` with each key of the shipped file's policies that no direction above it covers, on or off.
    fn each_key(look: &mut dyn FnMut(&str, &str, &Value)) {
        let all: toml::Table = shipped::with_all_that_is_off().parse().unwrap();
        let Value::Object(policies) = serde_json::to_value(&all["policy"]).unwrap() else { panic!() };
        for (policy, settings) in &policies {
            walk(policy, "", settings, look);
        }
        assert_eq!(policies.len(), POLICIES.len());
    }

    fn walk(policy: &str, above: &str, settings: &Value, look: &mut dyn FnMut(&str, &str, &Value)) {
        for (key, value) in settings.as_object().unwrap() {
            let key = format!("{above}{key}");
            match value {
                Value::Object(inner) if !inner.is_empty() && direction(policy, &key).is_none() => {
                    walk(policy, &format!("{key}."), value, look);
                }
                value => look(policy, &key, value),
            }
        }
    }

    #[test]
    fn every_key_of_every_policy_has_a_direction() {
        let mut seen = 0;
        each_key(&mut |policy, key, _| {
            assert!(direction(policy, key).is_some(), "decide the direction of policy.{policy}.{key}");
            seen += 1;
        });
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn every_direction_is_that_of_a_key() {
        let mut keys = Vec::new();
        each_key(&mut |policy, key, _| keys.push(format!("{policy}.{key}")));
        for (policy, own) in POLICIES {
            for (key, _) in own.iter().filter(|(key, _)| !key.starts_with("categories.")) {
                assert!(keys.contains(&format!("{policy}.{key}")), "there is no policy.{policy}.{key}");
            }
        }
    }
}
