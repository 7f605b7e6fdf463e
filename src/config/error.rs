//! Problems in a configuration, each with its position and a text for the operator. Formats and sorts them; finds none.

use super::slips;
use std::cmp::Reverse;
use std::fmt;

/// All problems of a configuration, sorted by line. Displayed one a line: `proxy.toml:12: upstream.url: expected ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, or the flag with its variable: `--listen or TOOLREIN_LISTEN`.
    pub source: String,
    /// The line in the file, from 1; `None` where it concerns no line.
    pub line: Option<usize>,
    /// The dotted key; empty where it concerns none.
    pub key: String,
    /// What is wrong and what would be right.
    pub text: String,
}

impl Problems {
    /// The problems in the order of their lines; those of flags last.
    pub(super) fn sorted(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line.is_none(), problem.line));
        Self(problems)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            write!(out, "{problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.source)?;
        if let Some(line) = self.line {
            write!(out, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(out, ": {}", self.key)?;
        }
        write!(out, ": {}", self.text)
    }
}

impl std::error::Error for Problems {}

/// A parser's message as a text for operators: without Rust's type names, and with the nearest known name.
pub(super) fn reworded(message: &str, is_table: bool) -> String {
    let message = message.lines().next().unwrap_or_default();
    if message.starts_with("unknown field ") {
        return unknown(message, if is_table { "unknown table" } else { "unknown key" });
    }
    if message.starts_with("unknown variant ") {
        return unknown_choice(message);
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("{key} is missing");
    }
    let mismatch = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    match mismatch.and_then(|mismatch| mismatch.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("expected {}, found {}", expectation(expected), finding(found)),
        None if message == "wanted string or table" => "expected a string".to_owned(),
        None => message.to_owned(),
    }
}

/// The known name that `name` was probably meant to be.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
    };
    let wanted = plain(name);
    let known: Vec<&str> = known.into_iter().collect();
    // Of names that are equally far, the one that begins alike: policies is policy, not notices.
    let alike = |known: &[char]| wanted.iter().zip(known).take_while(|(left, right)| left == right).count();
    let far = known.iter().map(|known| {
        let letters = plain(known);
        ((distance(&wanted, &letters), Reverse(alike(&letters))), *known)
    });
    let ((distance, _), best) = far.min_by_key(|(far, _)| *far)?;
    let is_near = distance <= wanted.len().div_ceil(3).min(3);
    // A name that lacks words, or has one too many: tokens is context_tokens, api_key is api_key_env, base_url is url.
    let has_words = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|before| before.ends_with('_'))
            || long.strip_prefix(short).is_some_and(|after| after.starts_with('_'))
    };
    let shares_words = |known: &&&str| has_words(known, name) || has_words(name, known);
    if is_near { Some(best) } else { known.iter().find(shares_words).copied() }
}

/// A hint for an unknown name: the nearest known name where there is one, else all of them.
pub(super) fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(best) => format!("did you mean `{best}`?"),
        None if known.is_empty() => "there are none here".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

fn unknown(message: &str, what: &str) -> String {
    let names = quoted(message);
    let Some((name, known)) = names.split_first() else { return message.to_owned() };
    let elsewhere =
        || nearest(name, known.iter().copied()).is_none().then(|| slips::known_elsewhere(name)).flatten();
    format!("{what}; {}", elsewhere().unwrap_or_else(|| suggestion(name, known)))
}

fn unknown_choice(message: &str) -> String {
    let names = quoted(message);
    let Some((name, known)) = names.split_first() else { return message.to_owned() };
    let choices: Vec<String> = known.iter().map(|choice| format!("{choice:?}")).collect();
    format!("expected {}, found {name:?}", choices.join(" or "))
}

/// The texts between backticks.
fn quoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// What serde expected, without Rust's type names.
fn expectation(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        "path string" => "a string",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// What serde found, as it is written in the file.
fn finding(found: &str) -> String {
    match found {
        "map" => return "a table".to_owned(),
        "sequence" => return "a list".to_owned(),
        _ => {}
    }
    // Strings are quoted; numbers and booleans are between backticks.
    match found.split_once(' ') {
        Some(("string", text)) => text.to_owned(),
        _ => quoted(found).first().map_or_else(|| found.to_owned(), |&value| value.to_owned()),
    }
}

/// The edit distance in letters (Levenshtein).
fn distance(left: &[char], right: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, a) in left.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (to, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[to + 1];
            row[to + 1] = replaced.min(diagonal + 1).min(row[to] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_known_name_is_suggested_for_a_misspelled_one() {
        let known = ["tool_calls", "context_tokens", "billed_tokens", "notify_at", "exhausted"];
        for (name, meant) in [
            ("tool_call", Some("tool_calls")),
            ("toolCalls", Some("tool_calls")),
            ("tool-calls", Some("tool_calls")),
            ("context_tokes", Some("context_tokens")),
            ("notifyat", Some("notify_at")),
            ("exausted", Some("exhausted")),
            ("tokens", Some("context_tokens")),
            ("notify", Some("notify_at")),
            ("max_tool_calls", Some("tool_calls")),
            ("okens", None),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
        assert_eq!(nearest("any", []), None);
        assert_eq!(nearest("policies", ["notices", "policy"]), Some("policy"));
    }

    #[test]
    fn deserializer_errors_are_reworded_for_operators() {
        for (message, said) in [
            (
                "unknown field `tool_cals`, expected `tool_calls` or `tokens`",
                "unknown key; did you mean `tool_calls`?",
            ),
            (
                "unknown field `spend_usd`, expected `a`",
                "unknown key; did you mean `policy.budget.spend_usd`?",
            ),
            ("unknown field `colour`, expected one of `a`, `bb`, `cc`", "unknown key; known here: a, bb, cc"),
            ("unknown field `x`, there are no fields", "unknown key; there are none here"),
            (
                "unknown variant `stop`, expected one of `answer`, `inform`",
                r#"expected "answer" or "inform", found "stop""#,
            ),
            ("missing field `per`", "`per` is missing"),
            (
                "invalid type: string \"a, expected b\", expected u64",
                r#"expected a whole number, 0 or more, found "a, expected b""#,
            ),
            ("invalid value: integer `-1`, expected u64", "expected a whole number, 0 or more, found -1"),
            (
                "invalid type: floating point `1.5`, expected usize",
                "expected a whole number, 0 or more, found 1.5",
            ),
            ("invalid type: boolean `true`, expected a string", "expected a string, found true"),
            ("invalid type: map, expected a sequence", "expected a list, found a table"),
            ("invalid type: sequence, expected struct Limit", "expected a table, found a list"),
            ("wanted string or table", "expected a string"),
            ("something else\n", "something else"),
        ] {
            assert_eq!(reworded(message, false), said);
        }
    }
}
