//! Values of JSON as equal or not, as JSON Schema sees it: numbers by their value, objects without order. Work is
//! linear in what is compared, times the logarithm of an object's members.

use super::number::compare;
use serde_json::{Number, Value};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Write;

/// Whether two values are the same.
pub fn are_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Ordering::Equal,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| are_equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| are_equal(left, right)))
        }
        (left, right) => left == right,
    }
}

/// Whether no two of `items` are equal.
pub fn are_unique(items: &[Value]) -> bool {
    let mut known = HashSet::with_capacity(items.len());
    items.len() < 2
        || items.iter().all(|item| {
            let mut spelled = String::new();
            spell(item, &mut spelled);
            known.insert(spelled)
        })
}

/// Writes `value` so that equal ones, and no others, are written alike.
fn spell(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => spell_number(number, out),
        Value::Array(items) => {
            out.push('[');
            for item in items {
                spell(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in members {
                spell_text(key, out);
                spell(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::String(text) => spell_text(text, out),
        Value::Bool(true) => out.push('t'),
        Value::Bool(false) => out.push('f'),
        Value::Null => out.push('n'),
    }
}

fn spell_text(text: &str, out: &mut String) {
    // Writing to a `String` cannot fail. The length says where the text ends.
    let _ = write!(out, "\"{}:{text}", text.len());
}

/// Whole numbers without a fraction, whichever form they came in; those beyond 64 bits come in one form alone.
fn spell_number(number: &Number, out: &mut String) {
    let _ = match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e20 => {
            write!(out, "{:.0}", float + 0.0)
        }
        _ => write!(out, "{number}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_equal_by_value_and_without_order() {
        for (left, right, expected) in [
            (json!(1), json!(1.0), true),
            (json!(-0.0), json!(0), true),
            (json!(1e18), json!(1_000_000_000_000_000_000_i64), true),
            (json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992.0), false),
            (json!(u64::MAX), json!(18_446_744_073_709_551_616.0), false),
            (json!(0.1), json!(0.1), true),
            (json!({"a": 1, "b": [2.0]}), json!({"b": [2], "a": 1.0}), true),
            (json!({"a": 1}), json!({"a": 1, "b": 1}), false),
            (json!({"a": null}), json!({"b": null}), false),
            (json!([1, 2]), json!([2, 1]), false),
            (json!(["a,b"]), json!(["a", "b"]), false),
            (json!({"a": "b\",\"c"}), json!({"a": "b", "c": ""}), false),
            (json!(true), json!("t"), false),
            (json!(1), json!("1"), false),
            (json!(false), json!(0), false),
            (json!([]), json!({}), false),
            (json!(null), json!("n"), false),
        ] {
            assert_eq!(are_equal(&left, &right), expected, "{left} {right}");
            assert_eq!(are_equal(&right, &left), expected, "{right} {left}");
            assert_eq!(!are_unique(&[left.clone(), json!("x"), right.clone()]), expected, "{left} {right}");
        }
    }

    #[test]
    fn many_items_are_told_apart_in_no_time() {
        let items: Vec<Value> = (0..200_000).map(|at| json!({"at": at, "x": [at]})).collect();
        assert!(are_unique(&items));
    }
}
