//! The texts of the reasons of `fresh`, and their numbers.

use super::rule::Rule;
use super::{Newest, Problem};
use crate::texts::{Text, Texts};
use model::plan::{Reason, ReasonKind};
use std::fmt::Display;
use std::time::Duration;
use wire::json::quote;

/// The most current values that a reason lists: enough to choose from.
const MOST_LISTED: usize = 5;
/// The longest value that is quoted, in characters: longer than any usual id.
const LONGEST_VALUE: usize = 100;

/// Every text.
pub const TEXTS: &[Text] = &[UNKNOWN, UNNAMED, COMING, STALE, TOO_MANY_CALLS, TOO_OLD];

const UNKNOWN: Text = Text {
    key: "unknown",
    default: "The call was not run: {argument} must be a value that {from} gives, and no result of it has given one yet. \
              Call {from} first.",
    placeholders: &["tool", "argument", "from"],
};
const UNNAMED: Text = Text {
    key: "unnamed",
    default: "The call was not run: {argument} is {given}, which neither a result of {from} nor the instructions name. Use \
              one that they name.",
    placeholders: &["tool", "argument", "from", "given"],
};
const COMING: Text = Text {
    key: "coming",
    default: "The call was not run: {argument} must be a value that {from} gives, and your call of {from} in the same \
              reply has no result yet. Call {tool} again when you have it.",
    placeholders: &["tool", "argument", "from"],
};
const STALE: Text = Text {
    key: "stale",
    default: "The call was not run: {argument} is {given}, but {current}. Use what is current, or call {from} again.",
    placeholders: &["tool", "argument", "from", "given", "current"],
};
const TOO_MANY_CALLS: Text = Text {
    key: "too_many_calls",
    default: "The call was not run: {argument} is from a result of {from} that is {calls} {calls:call/calls} old; at most \
              {limit} {limit:is/are} allowed. Call {from} again and use what it gives.",
    placeholders: &["tool", "argument", "from", "calls", "limit"],
};
const TOO_OLD: Text = Text {
    key: "too_old",
    default: "The call was not run: {argument} is from a result of {from} that is older than {limit}. Call {from} again \
              and use what it gives.",
    placeholders: &["tool", "argument", "from", "limit"],
};

/// Why a call of `tool` is blocked.
pub fn reason(texts: &Texts, tool: &str, rule: &Rule, problem: &Problem<'_>) -> Reason {
    let (argument, from) = (rule.argument.as_str(), rule.from.as_str());
    let mut numbers = Vec::new();
    let fill = |text: &Text, more: &[(&str, &dyn Display)]| {
        let common: [(&str, &dyn Display); 3] = [("tool", &tool), ("argument", &argument), ("from", &from)];
        texts.fill(text, &[&common, more].concat())
    };
    let message = match problem {
        Problem::Unknown => fill(&UNKNOWN, &[]),
        Problem::Unnamed { given } => fill(&UNNAMED, &[("given", &shown(given))]),
        Problem::Coming => fill(&COMING, &[]),
        Problem::Stale { given, newest } => {
            fill(&STALE, &[("given", &shown(given)), ("current", &current(from, newest))])
        }
        Problem::TooManyCalls { calls_since } => {
            numbers.extend([("calls_since", *calls_since), ("max_calls", rule.max_calls)]);
            fill(&TOO_MANY_CALLS, &[("calls", calls_since), ("limit", &rule.max_calls)])
        }
        Problem::TooOld { age_ms } => {
            numbers.extend(age_ms.map(|age_ms| ("age_ms", age_ms)));
            numbers.push(("max_age_ms", rule.max_age_ms));
            let allowed = humantime::format_duration(Duration::from_millis(rule.max_age_ms));
            fill(&TOO_OLD, &[("limit", &allowed)])
        }
    };
    Reason::new(ReasonKind::StaleReference, message).retryable().with(numbers)
}

fn current(from: &str, newest: &Newest) -> String {
    if !newest.may_quote {
        return format!("that is not what {from} gave last");
    }
    let values: Vec<String> = newest.values.iter().take(MOST_LISTED).map(|value| shown(value)).collect();
    match newest.values.len().saturating_sub(MOST_LISTED) {
        0 => format!("{from} last gave {}", values.join(", ")),
        more => format!("{from} last gave {} and {more} more", values.join(", ")),
    }
}

/// A value in quotes, shortened if it is long.
fn shown(value: &str) -> String {
    match value.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => quote(&format!("{}...", &value[..end])),
        None => quote(value),
    }
}
