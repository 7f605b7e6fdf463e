//! The texts of the reasons of `fresh`, and their numbers.

use super::rule::Rule;
use super::{Newest, Problem};
use crate::plan::{Reason, ReasonKind};
use crate::wire::json::quote;
use std::time::Duration;

/// The most current values that a reason lists: enough to choose from.
const MOST_LISTED: usize = 5;
/// The longest value that is quoted, in characters: longer than any usual id.
const LONGEST_VALUE: usize = 100;

/// Why a call of `tool` is blocked.
pub fn reason(tool: &str, rule: &Rule, problem: &Problem<'_>) -> Reason {
    let (argument, from) = (rule.argument.as_str(), rule.from.as_str());
    let mut numbers = Vec::new();
    let what = match problem {
        Problem::Unknown => format!(
            "{argument} must be a value that {from} gives, and no result of it has given one yet. Call {from} first"
        ),
        Problem::Unnamed { given } => format!(
            "{argument} is {}, which neither a result of {from} nor the instructions name. Use one that they name",
            shown(given)
        ),
        Problem::Coming => format!(
            "{argument} must be a value that {from} gives, and your call of {from} in the same reply has no result yet. \
             Call {tool} again when you have it"
        ),
        Problem::Stale { given, newest } => {
            let given = shown(given);
            format!(
                "{argument} is {given}, but {}. Use what is current, or call {from} again",
                current(from, newest)
            )
        }
        Problem::TooManyCalls { calls_since } => {
            numbers.extend([("calls_since", *calls_since), ("max_calls", rule.max_calls)]);
            format!(
                "{argument} is from a result of {from} that is {calls_since} calls old; at most {} are allowed. Call \
                 {from} again and use what it gives",
                rule.max_calls
            )
        }
        Problem::TooOld { age_ms } => {
            numbers.extend(age_ms.map(|age_ms| ("age_ms", age_ms)));
            numbers.push(("max_age_ms", rule.max_age_ms));
            let allowed = humantime::format_duration(Duration::from_millis(rule.max_age_ms));
            format!(
                "{argument} is from a result of {from} that is older than {allowed}. Call {from} again and use what \
                 it gives"
            )
        }
    };
    Reason::new(ReasonKind::StaleReference, format!("The call was not run: {what}."))
        .retryable()
        .with(numbers)
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
