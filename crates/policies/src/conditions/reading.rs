//! Reading of arguments with every way in which a program may read them: of members that occur twice, or that differ in
//! case alone, each counts, and a list counts for each of its items. Finds values; judges none.

use crate::path::{Path, Step};
use serde_json::Value;
use wire::body::{Fault, Kind, Scanner, Span};
use wire::json::{decode, in_one_case, quote};

/// What some program may find at a path.
#[derive(Debug, Default)]
pub struct Reading {
    pub found: Vec<Scalar>,
    /// Somewhere on the way there is nothing, or null.
    pub missing: bool,
    /// What is there is no plain value, or cannot be read.
    pub in_doubt: bool,
}

/// A plain value.
#[derive(Debug, PartialEq)]
pub enum Scalar {
    Text(String),
    /// As it is written.
    Number(String),
    Flag(bool),
}

/// The deepest text that holds JSON which holds text, and so on.
const DEEPEST: usize = 8;

impl Reading {
    /// The values at `steps` in `text`.
    pub fn of(text: &str, steps: &[Step]) -> Self {
        let mut reading = Self::default();
        if text.trim().is_empty() {
            reading.missing = true;
        } else if reading.read(text.as_bytes(), steps, 0).is_err() {
            reading.in_doubt = true;
        }
        reading
    }

    fn read(&mut self, text: &[u8], steps: &[Step], depth: usize) -> Result<(), Fault> {
        let mut scanner = Scanner::new(text);
        let whole = scanner.skip()?;
        scanner.end()?;
        // Texts that parsers read differently.
        self.in_doubt |= scanner.odd() || depth > DEEPEST;
        if self.in_doubt {
            return Ok(());
        }
        self.find(text, whole, steps, depth)
    }

    fn find(&mut self, text: &[u8], span: Span, steps: &[Step], depth: usize) -> Result<(), Fault> {
        let mut scanner = Scanner::within(text, span);
        match (scanner.peek()?, steps) {
            (Kind::Null, _) => self.missing = true,
            (Kind::Array, [step @ (Step::Each | Step::At(_)), rest @ ..]) => {
                let items = items_of(text, span)?;
                let wanted: Vec<Span> = match step {
                    Step::At(at) => items.get(*at).copied().into_iter().collect(),
                    _ => items,
                };
                self.missing |= wanted.is_empty();
                for item in wanted {
                    self.find(text, item, rest, depth)?;
                }
            }
            // Some programs take a list where they expect one item.
            (Kind::Array, _) => {
                let items = items_of(text, span)?;
                self.missing |= items.is_empty();
                for item in items {
                    self.find(text, item, steps, depth)?;
                }
            }
            (Kind::Object, [Step::Member(name), rest @ ..]) => {
                let mut is_there = false;
                scanner.object()?;
                while let Some(key) = scanner.member()? {
                    let value = scanner.skip()?;
                    if is_same(&decode(key, text), name) {
                        is_there = true;
                        self.find(text, value, rest, depth)?;
                    }
                }
                self.missing |= !is_there;
            }
            (Kind::String, []) => {
                let value = decode(scanner.string()?, text).into_owned();
                self.found.push(Scalar::Text(value));
            }
            (Kind::String, _) => {
                let inner = decode(scanner.string()?, text);
                if self.read(inner.as_bytes(), steps, depth + 1).is_err() {
                    self.in_doubt = true;
                }
            }
            (_, []) => match plain(span.of(text)) {
                Some(value) => self.found.push(value),
                None => self.in_doubt = true,
            },
            _ => self.in_doubt = true,
        }
        Ok(())
    }
}

/// The items of the list at `span`.
fn items_of(text: &[u8], span: Span) -> Result<Vec<Span>, Fault> {
    let mut scanner = Scanner::within(text, span);
    let mut items = Vec::new();
    scanner.array()?;
    while scanner.element()? {
        items.push(scanner.skip()?);
    }
    Ok(items)
}

/// Whether a program may take one name or value for the other: many ignore case, and Go's JSON library reads `ſ` as `s`.
fn is_same(name: &str, other: &str) -> bool {
    in_one_case(name.as_bytes()) == in_one_case(other.as_bytes())
}

fn plain(value: &[u8]) -> Option<Scalar> {
    match serde_json::from_slice(value).ok()? {
        Value::Bool(flag) => Some(Scalar::Flag(flag)),
        Value::Number(_) => Some(Scalar::Number(String::from_utf8(value.trim_ascii().to_vec()).ok()?)),
        _ => None,
    }
}

impl Scalar {
    /// Its number, where every program reads the same one. A text is one if it is a plain whole number: others have
    /// signs, points or zeros that are read differently.
    pub fn number(&self) -> Option<f64> {
        let text = match self {
            Self::Number(number) => return number.parse::<f64>().ok().filter(|number| number.is_finite()),
            Self::Text(text) => text,
            Self::Flag(_) => return None,
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_whole = digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain =
            is_whole && (digits == "0" || digits.bytes().next().is_some_and(|first| first != b'0'));
        is_plain.then(|| text.parse().ok()).flatten()
    }

    /// Its text, if it is one.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Whether it is exactly `known`.
    pub fn equals(&self, known: &Value) -> bool {
        match (self, known) {
            (Self::Text(text), Value::String(known)) => text == known,
            (Self::Number(_), Value::Number(known)) => {
                self.number().is_some_and(|number| known.as_f64() == Some(number))
            }
            (Self::Flag(flag), Value::Bool(known)) => flag == known,
            _ => false,
        }
    }

    /// Whether a program may take it for `known`: case, white space and quotes aside.
    pub fn may_equal(&self, known: &Value) -> bool {
        let own = match self {
            Self::Text(text) => text.trim().to_owned(),
            Self::Number(number) => number.clone(),
            Self::Flag(flag) => flag.to_string(),
        };
        let known_text = known.as_str().map_or_else(|| known.to_string(), str::to_owned);
        let known_text = known_text.trim();
        let are_texts = self.text().is_some() && known.is_string();
        is_same(&own, known_text) || self.equals(known) || (!are_texts && is_converted(&own, known_text))
    }

    /// Whether it is a text, a number or a flag, as `known` is.
    pub fn is_of_kind_of(&self, known: &Value) -> bool {
        match self {
            Self::Text(_) => known.is_string(),
            Self::Number(_) => known.is_number(),
            Self::Flag(_) => known.is_boolean(),
        }
    }
}

/// Whether a program that converts values may take one for the other: `"07"` for 7, `"yes"` or 1 for true.
fn is_converted(own: &str, known: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let are_equal = |one: Option<f64>, other: Option<f64>| one.is_some() && one == other;
    let flags = flag(own).zip(flag(known));
    are_equal(number(own), number(known)) || flags.is_some_and(|(own, known)| own == known)
}

/// The flag for which `text` may be taken, as Pydantic and YAML read it.
fn flag(text: &str) -> Option<bool> {
    let is_one_of = |words: [&str; 5]| words.iter().any(|word| is_same(text, word));
    match text.parse::<f64>() {
        Ok(1.0) => Some(true),
        Ok(0.0) => Some(false),
        _ if is_one_of(["true", "t", "yes", "y", "on"]) => Some(true),
        _ if is_one_of(["false", "f", "no", "n", "off"]) => Some(false),
        _ => None,
    }
}

/// Whether all programs read the same in these arguments: an object in which no name occurs twice, whatever its case,
/// at any depth.
pub fn is_certain(text: &str) -> bool {
    let mut scanner = Scanner::new(text.as_bytes());
    let is_json = scanner.skip().is_ok_and(|_| scanner.end().is_ok()) && !scanner.odd();
    is_json && text.trim_start().starts_with('{') && names_differ(text.as_bytes()).is_ok_and(|differ| differ)
}

fn names_differ(text: &[u8]) -> Result<bool, Fault> {
    let mut scanner = Scanner::new(text);
    match scanner.peek()? {
        Kind::Object => {
            let mut names = Vec::new();
            scanner.object()?;
            while let Some(key) = scanner.member()? {
                names.push(in_one_case(decode(key, text).as_bytes()).into_owned());
                let value = scanner.skip()?;
                if !names_differ(value.of(text))? {
                    return Ok(false);
                }
            }
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            Ok(names.len() == count)
        }
        Kind::Array => {
            scanner.array()?;
            while scanner.element()? {
                let item = scanner.skip()?;
                if !names_differ(item.of(text))? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// Whether all programs read the same in every text of this JSON that holds JSON itself, `deepest` such texts in each
/// other at most.
fn is_certain_inside(text: &[u8], deepest: usize) -> Result<bool, Fault> {
    let mut scanner = Scanner::new(text);
    match scanner.peek()? {
        Kind::String => {
            let inner = decode(scanner.string()?, text);
            let inner = inner.as_bytes();
            let mut within = Scanner::new(inner);
            let is_plain = !matches!(inner.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'));
            // A text that is not JSON is not entered.
            if is_plain || within.skip().is_err() || within.end().is_err() {
                return Ok(true);
            }
            Ok(deepest > 0 && !within.odd() && names_differ(inner)? && is_certain_inside(inner, deepest - 1)?)
        }
        Kind::Object => {
            scanner.object()?;
            while scanner.member()?.is_some() {
                if !is_certain_inside(scanner.skip()?.of(text), deepest)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Kind::Array => {
            scanner.array()?;
            while scanner.element()? {
                if !is_certain_inside(scanner.skip()?.of(text), deepest)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// The values at `paths` in arguments that all programs read the same, each in a form in which equal values are equal;
/// `None` where one of them is missing or in doubt.
pub fn certain_values(text: &str, paths: &[Path]) -> Option<Vec<String>> {
    // Paths lead into texts that hold JSON.
    if !is_certain(text) || !is_certain_inside(text.as_bytes(), DEEPEST).unwrap_or(false) {
        return None;
    }
    let of_path = |path: &Path| {
        let values = path.values(text);
        let written: Vec<String> = values.iter().map(|value| quote(value)).collect();
        (!values.is_empty()).then(|| written.join(","))
    };
    paths.iter().map(of_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_certain_where_no_name_occurs_twice() {
        for (text, expected) in [
            (r#"{"to":"ann","sum":{"n":1},"l":[{"a":1},{"a":2}]}"#, true),
            ("{}", true),
            (r#"{"to":"ann","to":"bob"}"#, false),
            (r#"{"to":"ann","To":"bob"}"#, false),
            (r#"{"sum":1,"ſum":900}"#, false),
            ("{\"key\":1,\"\u{212a}ey\":2}", false),
            (r#"{"to":"ann","\u0074o":"bob"}"#, false),
            (r#"{"sum":{"n":1,"n":2}}"#, false),
            (r#"{"l":[{"a":1,"a":2}]}"#, false),
            (r#"{"to":"\ud800"}"#, false),
            (r#"{"to":"ann"} {}"#, false),
            (r#"["to"]"#, false),
            ("", false),
        ] {
            assert_eq!(is_certain(text), expected, "{text}");
        }
    }

    #[test]
    fn key_values_are_equal_for_equal_arguments_alone() {
        let paths = ["to", "l[*]"].map(|path| Path::parse(path).unwrap());
        let values = |text: &str| certain_values(text, &paths);
        assert_eq!(values(r#"{"to":"a","l":[1,2]}"#), values(r#"{"l":[1, 2.0],"to":"\u0061","x":5}"#));
        assert_ne!(values(r#"{"to":"a","l":["1,2"]}"#), values(r#"{"to":"a","l":["1","2"]}"#));
        for missing in [r#"{"to":"a"}"#, r#"{"to":null,"l":[1]}"#, r#"{"to":"a","to":"a","l":[1]}"#, "x"] {
            assert_eq!(values(missing), None, "{missing}");
        }
    }

    #[test]
    fn a_path_enters_a_json_string_only_if_all_parsers_read_it_the_same() {
        let paths = [Path::parse("to.id").unwrap()];
        for (text, expected) in [
            (r#"{"to":"{\"id\":1}","note":"[draft] {x"}"#, true),
            (r#"{"to":"{\"id\":1,\"ID\":2}"}"#, false),
            (r#"{"to":"{\"id\":1,\"id\":2}"}"#, false),
            (r#"{"to":["{\"id\":1,\"id\":2}"]}"#, false),
            (r#"{"to":"\"{\\\"id\\\":1,\\\"id\\\":2}\""}"#, false),
        ] {
            assert_eq!(certain_values(text, &paths).is_some(), expected, "{text}");
        }
    }
}
