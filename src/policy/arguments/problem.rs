//! What is wrong with arguments in words that a model can act on: where, which rule, what was expected. Short,
//! and without the values that were found, which may be long or secret.

use super::checker::{Assertion, Bound, Count, Error, Kind, Of, Types};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;

/// The most problems that are told at once.
const TOLD: usize = 3;

/// The longest key, place and expectation that are repeated, in characters. With [`TOLD`] and a tool's name
/// they keep a message under 600.
const LONGEST_KEY: usize = 40;
const LONGEST_PLACE: usize = 60;
const LONGEST_EXPECTATION: usize = 70;
const LONGEST_TOOL: usize = 64;

/// One thing that is wrong with arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as one would write it in a program: `passengers[0].age`.
    place: String,
    /// The schema's keyword or the setting that objects.
    rule: Cow<'static, str>,
    expected: String,
}

impl Problem {
    /// A problem of the value at the JSON pointer `place`.
    pub fn new(place: &str, rule: impl Into<Cow<'static, str>>, expected: &str) -> Self {
        let expected = clipped(expected, LONGEST_EXPECTATION);
        Self { place: readable(place), rule: rule.into(), expected }
    }

    /// The arguments are no JSON.
    pub fn not_json(error: &serde_json::Error) -> Self {
        Self::new("", "JSON", &format!("one JSON object, found {error}"))
    }

    /// The arguments are JSON, but no object.
    pub fn not_an_object(found: &Value) -> Self {
        Self::new("", "type", &format!("one JSON object, found {}", kind_of(found)))
    }

    /// The arguments are JSON that programs read differently.
    pub fn ambiguous() -> Self {
        Self::new("", "JSON", "less depth, whole characters and numbers in range")
    }

    /// An object holds a key that none should hold.
    pub fn unsafe_key(place: &str, key: &str) -> Self {
        Self::new(place, "unsafe_keys", &format!("no key {key}"))
    }

    /// The arguments do not fit, and to say why would take too long.
    pub fn untold() -> Self {
        Self::new("", "schema", "what the tool's parameters declare")
    }

    /// What `error` says. `nulls` are places where null stood and was taken for absent.
    pub fn of(error: &Error<'_>, nulls: &HashSet<String>) -> Vec<Self> {
        let place = &error.place;
        let (place, expected) = match &error.kind {
            Kind::Any(branches) | Kind::One(branches) => {
                if let Some(branch) = meant(branches, place) {
                    return branch.iter().flat_map(|error| Self::of(error, nulls)).collect();
                }
                (place.clone(), union(branches, error.found))
            }
            Kind::Required(name) => {
                let place = join(place, name);
                let found = if nulls.contains(&place) { ", found null" } else { "" };
                let declared = error.declared_types(name).map_or("a value".to_owned(), one_of);
                (place, format!("{declared}{found}"))
            }
            Kind::Additional(names) | Kind::UnevaluatedProperties(names) => {
                let first = names.first().copied().unwrap_or_default();
                (join(place, first), declared_names(&error.declared_names()))
            }
            kind => (place.clone(), expectation(kind, error.found)),
        };
        vec![Self::new(&place, error.kind.keyword(), &expected)]
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}, expected {}", self.place, self.rule, self.expected)
    }
}

/// What the model reads of `problems` with its call of `tool`.
pub fn message(tool: &str, problems: &[Problem]) -> String {
    let mut told: Vec<String> = Vec::new();
    for problem in problems.iter().map(ToString::to_string) {
        if told.len() < TOLD && !told.contains(&problem) {
            told.push(problem);
        }
    }
    let more = problems.len().saturating_sub(told.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let tool = clipped(tool, LONGEST_TOOL);
    format!(
        "The call was not run: its arguments do not fit {tool}. {}{more}. Mend them and call again.",
        told.join("; ")
    )
}

/// The JSON pointer of the member `key` of what stands at `place`.
pub fn join(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The JSON pointer of what holds the value at `place`, and the value's key; `None` at the root.
pub fn parent(place: &str) -> Option<(&str, String)> {
    let (within, key) = place.rsplit_once('/')?;
    Some((within, key.replace("~1", "/").replace("~0", "~")))
}

fn declared_names(names: &[&str]) -> String {
    match names {
        [] => "no such member".to_owned(),
        names => format!("only {}", names.join(", ")),
    }
}

/// The one branch of a union that takes values of this kind at all: its objections are the ones that help.
fn meant<'a, 'b>(branches: &'a [Vec<Error<'b>>], place: &str) -> Option<&'a [Error<'b>]> {
    let is_of_kind = |error: &Error<'_>| {
        let of_kind = matches!(
            error.kind,
            Kind::Assertion(Assertion::Type(_) | Assertion::Options(_) | Assertion::Constant(_))
        );
        of_kind && error.place == place
    };
    let mut branches = branches.iter().filter(|branch| !branch.is_empty() && !branch.iter().any(is_of_kind));
    let first = branches.next()?;
    branches.next().is_none().then_some(first)
}

fn union(branches: &[Vec<Error<'_>>], found: &Value) -> String {
    let mut names: Vec<&str> = Vec::new();
    for error in branches.iter().flatten() {
        if let Kind::Assertion(Assertion::Type(types)) = &error.kind {
            names.extend(types.names());
        }
    }
    names.dedup();
    if names.is_empty() {
        return "a match of one of the declared forms".to_owned();
    }
    format!("{}, found {}", names.join(" or "), kind_of(found))
}

fn expectation(kind: &Kind<'_>, found: &Value) -> String {
    match kind {
        Kind::Assertion(assertion) => demand(assertion, found),
        Kind::SeveralOfOne => "a match of one of the declared forms alone".to_owned(),
        Kind::PropertyNames => "other names of members".to_owned(),
        _ => "what the tool's parameters declare".to_owned(),
    }
}

fn demand(assertion: &Assertion, found: &Value) -> String {
    match assertion {
        Assertion::Nothing => "nothing here".to_owned(),
        Assertion::Type(types) => format!("{}, found {}", one_of(types), kind_of(found)),
        Assertion::Options(options) => {
            let options: Vec<String> = options.all().iter().map(Value::to_string).collect();
            format!("one of {}", options.join(", "))
        }
        Assertion::Constant(constant) => constant.to_string(),
        Assertion::Bound(Bound::Minimum, limit) => format!("at least {limit}"),
        Assertion::Bound(Bound::Maximum, limit) => format!("at most {limit}"),
        Assertion::Bound(Bound::ExclusiveMinimum, limit) => format!("more than {limit}"),
        Assertion::Bound(Bound::ExclusiveMaximum, limit) => format!("less than {limit}"),
        Assertion::MultipleOf(divisor) => format!("a multiple of {divisor}"),
        Assertion::Count(Count { of, is_least, limit }) => {
            let unit = match of {
                Of::Characters => "characters",
                Of::Items => "items",
                Of::Members => "members",
            };
            format!("at {} {limit} {unit}", if *is_least { "least" } else { "most" })
        }
        Assertion::Pattern(pattern, _) => format!("a match of {pattern}"),
        Assertion::Format(format) => format!("format {}", format.name()),
        Assertion::Unique => "no item twice".to_owned(),
    }
}

fn one_of(types: &Types) -> String {
    types.names().collect::<Vec<_>>().join(" or ")
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A JSON pointer as one would write it in a program.
fn readable(place: &str) -> String {
    let mut out = String::new();
    for segment in place.split('/').skip(1) {
        if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            out.push_str(&format!("[{}]", clipped(segment, LONGEST_KEY)));
            continue;
        }
        if !out.is_empty() {
            out.push('.');
        }
        let key = segment.replace("~1", "/").replace("~0", "~");
        out.push_str(&clipped(&key, LONGEST_KEY));
    }
    if out.is_empty() { "arguments".to_owned() } else { clipped(&out, LONGEST_PLACE) }
}

/// `text` without control characters, cut after `most` characters.
fn clipped(text: &str, most: usize) -> String {
    let mut characters = text.chars().filter(|c| !c.is_control());
    let mut out: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() {
        out.push('…');
    }
    out
}
