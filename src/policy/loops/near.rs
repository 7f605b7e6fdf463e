//! Arguments that differ in form alone: the same words and numbers, whatever their order, case, spacing and punctuation.
//! Compares two texts; decides nothing. No number is left out: another page is another call.

use serde_json::Value;

/// The longest arguments that are compared by their words, in bytes: longer ones are files, not questions.
const LONGEST: usize = 2_000;

/// Whether two arguments, as JSON, have the same words in the same members.
pub fn are_near(one: Option<&str>, other: Option<&str>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    // As many letters and digits, give or take what is written in another way.
    if one.len().max(other.len()) > LONGEST || one.len().abs_diff(other.len()) > one.len() / 2 {
        return false;
    }
    let read = |text| serde_json::from_str::<Value>(text).ok();
    read(one).zip(read(other)).is_some_and(|(one, other)| values_are_near(&one, &other))
}

fn values_are_near(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => one == other || words(one) == words(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && std::iter::zip(one, other).all(|(one, other)| values_are_near(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let in_other = |(key, value)| other.get(key).is_some_and(|other| values_are_near(value, other));
            one.len() == other.len() && one.iter().all(in_other)
        }
        _ => one == other,
    }
}

/// The words and numbers of a text, in lower case and in order. A text without any is its own only word.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let pieces = lower.split(|char: char| !char.is_alphanumeric()).filter(|piece| !piece.is_empty());
    let mut words: Vec<String> = pieces.map(str::to_owned).collect();
    if words.is_empty() {
        words.push(lower);
    }
    words.sort_unstable();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_case_spacing_and_punctuation_do_not_make_other_arguments() {
        for (one, other, near) in [
            (r#"{"q":"history of bicycles"}"#, r#"{"q":"Bicycles: history of"}"#, true),
            (r#"{"q":"größe  der Stadt?"}"#, r#"{"q": "Größe der Stadt"}"#, true),
            (r#"{"q":["a b","c"],"n":1}"#, r#"{"n":1,"q":["B, A","c!"]}"#, true),
            (r#"{"q":"history of bicycles"}"#, r#"{"q":"history of cars"}"#, false),
            (r#"{"q":"bicycles bicycles"}"#, r#"{"q":"bicycles"}"#, false),
            (r#"{"q":"page 1"}"#, r#"{"q":"page 2"}"#, false),
            (r#"{"q":"a","page":1}"#, r#"{"q":"a","page":2}"#, false),
            (r#"{"q":"a"}"#, r#"{"query":"a"}"#, false),
            (r#"{"q":"a"}"#, r#"{"q":"a","page":1}"#, false),
            (r#"{"q":"+"}"#, r#"{"q":"-"}"#, false),
            ("not JSON", "not  JSON", false),
        ] {
            assert_eq!(are_near(Some(one), Some(other)), near, "{one} {other}");
        }
        let long = |word: &str| format!("{{\"q\":\"{word}{}\"}}", "x ".repeat(LONGEST));
        assert!(!are_near(Some(&long("a")), Some(&long("A"))));
        assert!(!are_near(None, Some("{}")));
    }
}
