//! The units of a result that can repeat: the items of its longest list where it is JSON, else its lines. And the share
//! of them that earlier results had.

use super::words::hash_of;
pub use model::plan::work::step;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// Text beyond this is not read, in bytes.
const MOST_BYTES: usize = 256 << 10;
/// The most units of one result, and of a turn.
const MOST_UNITS: usize = 4_000;
const MOST_KNOWN: usize = 100_000;
/// Fewer units say nothing about a share.
const FEWEST: usize = 3;
/// How deep lists are looked for.
const DEPTH: usize = 4;

/// The units of a turn's results so far. Shared by the choices of a reply.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownUnits(Arc<HashSet<u64>>);

impl KnownUnits {
    /// Adds the units of a result; returns the share of them, 0 to 1, that earlier ones had. `None`: too few to say.
    pub(super) fn add(&mut self, text: &str) -> Option<f64> {
        let units = units_of(text);
        let shared = units.iter().filter(|unit| self.0.contains(unit)).count();
        let share = (units.len() >= FEWEST).then(|| shared as f64 / units.len() as f64);
        if self.0.len() + units.len() <= MOST_KNOWN {
            Arc::make_mut(&mut self.0).extend(units);
        }
        share
    }
}

fn units_of(text: &str) -> HashSet<u64> {
    let text = text.trim();
    let value = (text.starts_with(['{', '[']) && text.len() <= MOST_BYTES)
        .then(|| serde_json::from_str::<Value>(text).ok())
        .flatten();
    if let Some(value) = value {
        return units_of_json(&value);
    }
    let lines = text.get(..text.floor_char_boundary(MOST_BYTES)).unwrap_or_default().lines();
    let said = lines.map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric));
    said.take(MOST_UNITS).inspect(|_| step()).map(hash_of).collect()
}

/// The items of the longest list, or the members where there is none.
fn units_of_json(value: &Value) -> HashSet<u64> {
    let items = longest_list(value, DEPTH).filter(|items| items.len() >= FEWEST);
    if let Some(items) = items {
        return items
            .iter()
            .take(MOST_UNITS)
            .inspect(|_| step())
            .map(|item| hash_of(item.to_string()))
            .collect();
    }
    let mut units = HashSet::new();
    add_members(value, DEPTH, &mut units);
    units
}

fn longest_list(value: &Value, depth: usize) -> Option<&Vec<Value>> {
    let inner = |value| depth.checked_sub(1).and_then(|depth| longest_list(value, depth));
    match value {
        Value::Array(items) => {
            let nested = items.iter().take(MOST_UNITS).filter_map(inner).max_by_key(|list| list.len());
            Some(nested.filter(|list| list.len() > items.len()).unwrap_or(items))
        }
        Value::Object(members) => members.values().filter_map(inner).max_by_key(|list| list.len()),
        _ => None,
    }
}

fn add_members(value: &Value, depth: usize, units: &mut HashSet<u64>) {
    let members: Vec<(&str, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(key, value)| (key.as_str(), value)).collect(),
        Value::Array(items) => items.iter().map(|item| ("", item)).collect(),
        _ => return,
    };
    for (key, value) in members {
        if units.len() >= MOST_UNITS {
            return;
        }
        match depth.checked_sub(1).filter(|_| value.is_object() || value.is_array()) {
            Some(depth) => add_members(value, depth, units),
            None => {
                step();
                units.insert(hash_of((key, value.to_string())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::work::assert_linear;

    fn share(earlier: &[&str], text: &str) -> Option<f64> {
        let mut known = KnownUnits::default();
        for text in earlier {
            known.add(text);
        }
        known.add(text)
    }

    #[test]
    fn the_share_of_lines_items_or_members_that_were_there_before_is_counted() {
        let list = r#"{"query":"a","results":[{"id":1},{"id":2},{"id":3},{"id":4}]}"#;
        for (earlier, text, expected) in [
            (&["one\ntwo\nthree"][..], "three\n\n two \nfour\nfive", Some(0.5)),
            (&["one\ntwo", "three"], "one\ntwo\nthree", Some(1.0)),
            (&[], "one\ntwo\nthree", Some(0.0)),
            (&["one\ntwo"], "one\ntwo", None),
            (&["one"], "---\n===\n", None),
            (&[list], r#"{"query":"b","results":[{"id": 4},{"id":3},{"id":2},{"id":9}]}"#, Some(0.75)),
            (&[r#"{"a":1,"b":{"c":"x"},"d":[2]}"#], r#"{"a":1,"b":{"c":"x"},"d":[3]}"#, Some(2.0 / 3.0)),
            (&["{\"a\":1,\n\"b\":2,\n\"c\":"], "{\"a\":1,\n\"b\":2,\n\"c\":", Some(1.0)),
        ] {
            assert_eq!(share(earlier, text), expected, "{earlier:?} {text}");
        }
    }

    #[test]
    fn what_is_read_and_kept_has_a_bound_and_takes_linear_time() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let long = format!("{}é", "é\n".repeat(MOST_BYTES));
        for text in [deep.as_str(), &long] {
            share(&[], text);
        }
        let mut known = KnownUnits::default();
        for at in 0..80 {
            let lines: Vec<String> = (0..2 * MOST_UNITS).map(|line| format!("{at} {line}")).collect();
            known.add(&lines.join("\n"));
        }
        assert!(known.0.len() <= MOST_KNOWN);
        assert_linear(200, |size| {
            let lines: Vec<String> = (0..size).map(|line| format!("line {line}")).collect();
            share(&[&lines.join("\n")], "a\nb\nc");
        });
    }
}
