//! Arguments that differ in form alone: the same words and numbers, whatever their order, case, spacing and punctuation.
//! Compares two texts; decides nothing. No number is left out: another page is another call.

use crate::conversation::call::WrittenArguments;
use crate::plan::work::step;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The longest arguments that are compared by their words, in bytes: longer ones are files, not questions.
const LONGEST: usize = 2_000;

/// Arguments, as they are compared. Read at the first comparison, and once.
#[derive(Debug)]
pub struct Worded {
    written: Arc<WrittenArguments>,
    words: OnceLock<Option<Words>>,
}

/// What arguments say, whatever their form.
#[derive(Debug)]
pub struct Words {
    /// The length of the arguments as they are written, in bytes.
    bytes: usize,
    /// Each text as its words in order.
    value: Value,
}

impl Worded {
    /// The arguments of a call of the history.
    pub fn new(written: Arc<WrittenArguments>) -> Self {
        Self { written, words: OnceLock::new() }
    }

    /// Whether these and the `other` arguments have the same words in the same members.
    pub fn is_near(&self, other: Option<&Words>) -> bool {
        self.words().zip(other).is_some_and(|(one, other)| one.is_near(other))
    }

    /// `None` where they are not compared.
    pub fn words(&self) -> Option<&Words> {
        self.words.get_or_init(|| Words::of(&self.written.text())).as_ref()
    }
}

impl Words {
    /// The words of arguments as JSON; `None` where they are not compared.
    pub fn of(arguments: &str) -> Option<Self> {
        if arguments.len() > LONGEST {
            return None;
        }
        step();
        let mut value = serde_json::from_str(arguments).ok()?;
        put_in_order(&mut value);
        Some(Self { bytes: arguments.len(), value })
    }

    fn is_near(&self, other: &Self) -> bool {
        // As many letters and digits, give or take what is written in another way.
        self.bytes.abs_diff(other.bytes) <= self.bytes / 2 && self.value == other.value
    }
}

/// Replaces each text by its words in order: two texts of the same words are equal then, and no others.
fn put_in_order(value: &mut Value) {
    match value {
        Value::String(text) => *text = words(text).join(" "),
        Value::Array(values) => values.iter_mut().for_each(put_in_order),
        Value::Object(members) => members.values_mut().for_each(put_in_order),
        _ => {}
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
    use crate::conversation::Transcript;
    use crate::conversation::memo::NoMemo;
    use crate::plan::work::steps_of;

    #[test]
    fn arguments_that_differ_in_order_case_spacing_or_punctuation_are_near() {
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
            let [one_words, other_words] = [one, other].map(Words::of);
            let is_near = one_words.zip(other_words).is_some_and(|(one, other)| one.is_near(&other));
            assert_eq!(is_near, near, "{one} {other}");
        }
        assert!(Words::of(&format!("{{\"q\":\"{}\"}}", "x ".repeat(LONGEST))).is_none());
    }

    #[test]
    fn arguments_are_read_once_however_often_they_are_compared() {
        let body = br#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"q\":\"a b\"}"}}]}]}"#;
        let request = crate::dialect::chat::parse(body).unwrap();
        let identity = crate::policy::cases::somebody();
        let transcript = Transcript::read(&request, body, &identity, &NoMemo);
        let worded = Worded::new(Arc::clone(&transcript.calls.calls[0].written_arguments));
        let steps = steps_of(|| {
            let next = Words::of("{\"q\":\"B, a\"}");
            assert!((0..100).all(|_| worded.is_near(next.as_ref())));
        });
        assert_eq!(steps, 2);
    }
}
