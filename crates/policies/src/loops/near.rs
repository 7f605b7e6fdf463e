//! Arguments that ask for the same: the same words and numbers in another form (order, case, spacing, punctuation), or
//! the same but for what a model varies without meaning: counts of attempts, nonces, times, random ids. Compares two
//! texts; decides nothing. No other number is left out: another page is another call.

mod noise;

use model::call::WrittenArguments;
pub use model::plan::work::step;
use noise::{Noise, counted_name, is_counter_name, is_noise_name, minutes_of, without_noise};
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock};

/// The longest arguments that are compared by their words, in bytes: longer ones are files, not questions.
const LONGEST: usize = 2_000;

/// Arguments, as they are compared. Read at the first comparison, and once.
#[derive(Clone, Debug)]
pub struct Worded {
    written: Arc<WrittenArguments>,
    words: OnceLock<Option<Box<Words>>>,
}

/// How far two different arguments ask for the same. A greater one is a greater difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// The same words and numbers in another form.
    Form,
    /// And other counts of attempts, nonces or timestamps, which say by their names that they mean nothing; or more blanks or
    /// marks in a row alone.
    Noise,
    /// And a count or a time that may mean something.
    Count,
    /// And another random id.
    Id,
}

/// What arguments say, whatever their form.
#[derive(Clone, Debug)]
pub struct Words {
    /// The length of the arguments as they are written, in bytes.
    bytes: usize,
    /// Each text without repeated blanks and marks.
    spelling: Value,
    /// Every text has a letter or a digit: where one has none, its marks may count.
    is_worded: bool,
    /// Each text as its words in order: as it is, and without what [`Nearness`] leaves out.
    forms: [Value; 4],
    /// The counts that [`Nearness::Count`] leaves out, in the order of their names.
    counts: Vec<(String, i64)>,
}

impl Worded {
    /// The arguments of a call of the history.
    pub fn new(written: Arc<WrittenArguments>) -> Self {
        Self { written, words: OnceLock::new() }
    }

    /// How near these and the `other` arguments are; `None` where they ask for different things.
    pub fn nearness(&self, other: Option<&Words>) -> Option<Nearness> {
        self.words()?.nearness(other?)
    }

    /// `None` where they are not compared.
    pub fn words(&self) -> Option<&Words> {
        self.words.get_or_init(|| Words::of(&self.written.text()).map(Box::new)).as_deref()
    }
}

impl Words {
    /// The words of arguments as JSON; `None` where they are not compared.
    pub fn of(arguments: &str) -> Option<Self> {
        if arguments.len() > LONGEST {
            return None;
        }
        step();
        let value: Value = serde_json::from_str(arguments).ok()?;
        let mut counts = Vec::new();
        let levels = [None, Some(Noise::Named), Some(Noise::Count), Some(Noise::Id)];
        let forms = levels.map(|noise| {
            let mut value = value.clone();
            counts.clear();
            put_in_order(&mut value, noise, &mut counts);
            value
        });
        let mut spelling = value;
        let is_worded = remove_repeated_marks(&mut spelling);
        Some(Self { bytes: arguments.len(), spelling, is_worded, forms, counts })
    }

    fn nearness(&self, other: &Self) -> Option<Nearness> {
        if self.spelling == other.spelling {
            return Some(if self.is_worded { Nearness::Noise } else { Nearness::Count });
        }
        let is_equal = |at: usize| self.forms[at] == other.forms[at];
        // As many letters and digits, give or take what is written in another way.
        if self.bytes.abs_diff(other.bytes) <= self.bytes / 2 && is_equal(0) {
            return Some(Nearness::Form);
        }
        if is_equal(1) {
            return Some(Nearness::Noise);
        }
        if !self.counts_on_to(other) {
            return None;
        }
        if is_equal(2) {
            return Some(Nearness::Count);
        }
        is_equal(3).then_some(Nearness::Id)
    }

    /// The counts of these and of `other`, where they ask for the same but for them.
    pub fn counts_beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (i64, i64)> + 'a {
        let is_near = self.nearness(other) == Some(Nearness::Count);
        let counts = self.counts.iter().zip(&other.counts).filter(move |_| is_near);
        counts.map(|((_, one), (_, other))| (*one, *other))
    }

    /// Whether the counts are equal or one apart: others are chosen.
    fn counts_on_to(&self, other: &Self) -> bool {
        self.counts.len() == other.counts.len()
            && self
                .counts
                .iter()
                .zip(&other.counts)
                .all(|((name, one), (other_name, other))| name == other_name && one.abs_diff(*other) <= 1)
    }
}

/// Replaces each text by its words in order, without `noise`: two texts of the same words are equal then, and no others.
fn put_in_order(value: &mut Value, noise: Option<Noise>, counts: &mut Vec<(String, i64)>) {
    match value {
        Value::String(text) => *text = words(&without_noise(text, noise)).join(" "),
        Value::Array(values) => values.iter_mut().for_each(|value| put_in_order(value, noise, counts)),
        Value::Object(members) => {
            members.retain(|name, value| !is_noise(name, value, noise, counts));
            if noise >= Some(Noise::Count) {
                remove_count_of_name(members, counts);
            }
            members.values_mut().for_each(|value| put_in_order(value, noise, counts));
        }
        Value::Number(number) if noise >= Some(Noise::Count) => {
            let text = number.to_string();
            if without_noise(&text, noise).is_empty() {
                *value = Value::Null;
            }
        }
        _ => {}
    }
}

/// Takes the number out of a member's name, `k7`, where it is the only one with a number: several are a list.
fn remove_count_of_name(members: &mut Map<String, Value>, counts: &mut Vec<(String, i64)>) {
    let mut counted = members.keys().filter_map(|name| Some((name, counted_name(name)?)));
    let (Some((name, (plain, count))), None) = (counted.next(), counted.next()) else { return };
    let (name, plain) = (name.clone(), plain.to_owned());
    if !members.contains_key(&plain)
        && let Some(value) = members.remove(&name)
    {
        counts.push((plain.clone(), count));
        members.insert(plain, value);
    }
}

/// Whether a member is `noise` as a whole; a count is added to `counts`.
fn is_noise(name: &str, value: &Value, noise: Option<Noise>, counts: &mut Vec<(String, i64)>) -> bool {
    let is_scalar = value.is_string() || value.is_number();
    if noise.is_none() || !is_scalar {
        return false;
    }
    if is_noise_name(name) {
        return true;
    }
    let count = || value.as_i64().or_else(|| value.as_str()?.trim().parse().ok());
    // A time of whole minutes may be chosen, such as the beginning of an appointment: the next minute is not.
    let minutes = || value.as_str().map_or_else(|| minutes_of(&value.to_string()), minutes_of);
    let count = if is_counter_name(name) { count() } else { minutes() };
    match count.filter(|_| noise >= Some(Noise::Count)) {
        Some(count) => {
            counts.push((name.to_owned(), count));
            true
        }
        None => false,
    }
}

/// Leaves one of several equal blanks or marks in a row, and none at the end of a text. False if a text has no letter or digit,
/// where every mark may count.
fn remove_repeated_marks(value: &mut Value) -> bool {
    match value {
        Value::String(text) => {
            let mut out = String::with_capacity(text.len());
            for char in text.chars() {
                let char = if char.is_whitespace() { ' ' } else { char };
                if char.is_alphanumeric() || !out.ends_with(char) {
                    out.push(char);
                }
            }
            let worded = out.trim_end_matches(|char: char| !char.is_alphanumeric()).len();
            if worded > 0 {
                out.truncate(worded);
            }
            *text = out;
            worded > 0
        }
        Value::Array(values) => all_worded(values.iter_mut()),
        Value::Object(members) => all_worded(members.values_mut()),
        _ => true,
    }
}

/// As [`remove_repeated_marks`], for each of `values`.
fn all_worded<'a>(values: impl Iterator<Item = &'a mut Value>) -> bool {
    let mut all = true;
    for value in values {
        all &= remove_repeated_marks(value);
    }
    all
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
    use model::plan::work::steps_of;
    use model::testing::{SampleRequest, call, reply};

    fn nearness(one: &str, other: &str) -> Option<Nearness> {
        let [one, other] = [one, other].map(Words::of);
        one.zip(other).and_then(|(one, other)| one.nearness(&other))
    }

    #[test]
    fn counts_in_names_minutes_and_marks_alone_are_counts() {
        for (one, other, near) in [
            (r#"{"k7":1}"#, r#"{"k8":1}"#, true),
            (r#"{"a":{"try_9":"x"}}"#, r#"{"a":{"try_10":"x"}}"#, true),
            (r#"{"k7":1}"#, r#"{"k9":1}"#, false),
            (r#"{"k7":1}"#, r#"{"k8":2}"#, false),
            (r#"{"x1":1,"x2":2}"#, r#"{"x2":1,"x3":2}"#, false),
            (r#"{"at":"2026-01-01T00:07:00Z"}"#, r#"{"at":"2026-01-01T00:08:00Z"}"#, true),
            (r#"{"at":"2026-01-01T00:59:00+01:00"}"#, r#"{"at":"2026-01-01T01:00:00+01:00"}"#, true),
            (r#"{"at":"10:07"}"#, r#"{"at":"10:08"}"#, true),
            (r#"{"at":1767225600}"#, r#"{"at":1767225660}"#, true),
            (r#"{"at":"2026-01-01T08:00:00Z"}"#, r#"{"at":"2026-01-01T08:30:00Z"}"#, false),
            (r#"{"at":"2026-01-01"}"#, r#"{"at":"2026-01-02"}"#, false),
            (r#"{"q":"!!"}"#, r#"{"q":"!!!"}"#, true),
            (r#"{"q":" "}"#, r#"{"q":"  "}"#, true),
            (r#"{"q":"🙂"}"#, r#"{"q":"🙂🙂"}"#, true),
            (r#"{"op":"+"}"#, r#"{"op":"-"}"#, false),
        ] {
            assert_eq!(nearness(one, other), near.then_some(Nearness::Count), "{one} {other}");
        }
    }

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
            assert_eq!(nearness(one, other), near.then_some(Nearness::Form), "{one} {other}");
        }
        assert!(Words::of(&format!("{{\"q\":\"{}\"}}", "x ".repeat(LONGEST))).is_none());
    }

    #[test]
    fn counters_nonces_times_and_random_ids_are_no_other_question() {
        let [a, b] = ["0b8e7d6c-1f2a-4c3d-9e8f-001122334455", "9b8e7d6c-1f2a-4c3d-9e8f-00112233445f"];
        for (one, other, near) in [
            (r#"{"q":"a","attempt":1}"#.to_owned(), r#"{"attempt":7,"q":"a"}"#.to_owned(), Nearness::Noise),
            (r#"{"q":"a"}"#.to_owned(), r#"{"q":"a","retry_count":1}"#.to_owned(), Nearness::Noise),
            (r#"{"nonce":"k3j"}"#.to_owned(), r#"{"nonce":"p0q9"}"#.to_owned(), Nearness::Noise),
            (format!(r#"{{"requestId":"{a}"}}"#), format!(r#"{{"requestId":"{b}"}}"#), Nearness::Noise),
            (r#"{"ts":1764000000}"#.to_owned(), r#"{"ts":1764000013}"#.to_owned(), Nearness::Noise),
            (
                r#"{"note":"try number 1"}"#.to_owned(),
                r#"{"note":"try no. seven"}"#.to_owned(),
                Nearness::Noise,
            ),
            (r#"{"q":"go"}"#.to_owned(), r#"{"q":"go!!!"}"#.to_owned(), Nearness::Noise),
            (r#"{"q":"a, b"}"#.to_owned(), r#"{"q":"a,  b 🙂🙂"}"#.to_owned(), Nearness::Noise),
            (r#"{"note":"attempt 1"}"#.to_owned(), r#"{"note":"Attempt #7"}"#.to_owned(), Nearness::Noise),
            (r#"{"q":"x, 2nd try"}"#.to_owned(), r#"{"q":"x, third try"}"#.to_owned(), Nearness::Noise),
            (r#"{"t":1764000001.5}"#.to_owned(), r#"{"t":1764000013.25}"#.to_owned(), Nearness::Count),
            (
                r#"{"q":"news (try 2 of 9)"}"#.to_owned(),
                r#"{"q":"news (try 3 of 9)"}"#.to_owned(),
                Nearness::Noise,
            ),
            (
                r#"{"url":"http://a.example/x?cb=71"}"#.to_owned(),
                r#"{"url":"http://a.example/x?cb=5"}"#.to_owned(),
                Nearness::Noise,
            ),
            (r#"{"n":1}"#.to_owned(), r#"{"n":2}"#.to_owned(), Nearness::Count),
            (r#"{"q":"a","count":"9"}"#.to_owned(), r#"{"q":"a","count":"10"}"#.to_owned(), Nearness::Count),
            (
                r#"{"q":"now 2026-11-28T10:00:01Z"}"#.to_owned(),
                r#"{"q":"now 2026-11-28T10:00:09.25Z"}"#.to_owned(),
                Nearness::Count,
            ),
            (r#"{"at":1764000000123}"#.to_owned(), r#"{"at":1764000013456}"#.to_owned(), Nearness::Count),
            (format!(r#"{{"x":"{a}"}}"#), format!(r#"{{"x":"{b}"}}"#), Nearness::Id),
        ] {
            assert_eq!(nearness(&one, &other), Some(near), "{one} {other}");
            assert_eq!(nearness(&other, &one), Some(near), "{other} {one}");
        }
        for (one, other) in [
            (r#"{"n":1}"#, r#"{"n":5}"#),
            (r#"{"offset":0}"#, r#"{"offset":10}"#),
            (r#"{"page":1}"#, r#"{"page":2}"#),
            (r#"{"id":1}"#, r#"{"id":2}"#),
            (r#"{"x":1,"y":2}"#, r#"{"x":2,"y":2}"#),
            (r#"{"line":1}"#, r#"{"line":2}"#),
            (r#"{"date":"2026-11-01"}"#, r#"{"date":"2026-11-02"}"#),
            (r#"{"start":"2026-11-28T10:00:00Z"}"#, r#"{"start":"2026-11-28T11:00:00Z"}"#),
            (r#"{"cmd":"make test"}"#, r#"{"cmd":"make lint"}"#),
            (r#"{"text":"version 1"}"#, r#"{"text":"version 2"}"#),
        ] {
            assert_eq!(nearness(one, other), None, "{one} {other}");
        }
    }

    #[test]
    fn arguments_are_read_once_however_often_they_are_compared() {
        let request = SampleRequest::new(&[reply([call("c", "f", r#"{"q":"a b"}"#)])]);
        let identity = crate::cases::somebody();
        let transcript = request.transcript(&identity);
        let worded = Worded::new(Arc::clone(&transcript.calls.calls[0].written_arguments));
        let steps = steps_of(|| {
            let next = Words::of("{\"q\":\"B, a\"}");
            assert!((0..100).all(|_| worded.nearness(next.as_ref()).is_some()));
        });
        assert_eq!(steps, 2);
    }
}
