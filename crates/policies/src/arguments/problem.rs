//! The messages about invalid arguments: where the problem is, which rule was broken, what was expected. Short, and
//! without the values that were found, which may be long or secret.

use super::lenient::types_of;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use model::plan::Issue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use wire::plural::counted;

/// The most problems that are reported at once.
const MOST_REPORTED: usize = 3;

/// The longest key, path and expectation that are repeated, in characters. With [`MOST_REPORTED`] and a tool's
/// name they keep a message under 600.
const LONGEST_KEY: usize = 40;
const LONGEST_PATH: usize = 60;
const LONGEST_EXPECTATION: usize = 70;
const LONGEST_TOOL: usize = 64;

/// One thing that is wrong with arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as one would write it in a program: `passengers[0].age`.
    path: String,
    /// The schema's keyword or the setting that was broken.
    rule: Cow<'static, str>,
    expected: String,
}

impl Problem {
    /// A problem of the value at the JSON pointer `path`.
    pub fn new(path: &str, rule: impl Into<Cow<'static, str>>, expected: &str) -> Self {
        let expected = clipped(expected, LONGEST_EXPECTATION);
        Self { path: readable(path), rule: rule.into(), expected }
    }

    /// The arguments are not JSON.
    pub fn not_json(error: &serde_json::Error) -> Self {
        Self::new("", "JSON", &format!("one JSON object, found {error}"))
    }

    /// The arguments are JSON, but no object.
    pub fn not_an_object(found: &Value) -> Self {
        Self::new("", "type", &format!("one JSON object, found {}", kind_of(found)))
    }

    /// The arguments are JSON that programs interpret differently.
    pub fn ambiguous() -> Self {
        Self::new("", "JSON", "less depth, whole characters and numbers in range")
    }

    /// An object holds a forbidden key.
    pub fn unsafe_key(path: &str, key: &str) -> Self {
        Self::new(path, "unsafe_keys", &format!("no key {key}"))
    }

    /// The arguments do not fit, and finding out why would take too long.
    pub fn unexplained() -> Self {
        Self::new("", "schema", "what the tool's parameters declare")
    }

    /// The message for `error` against `schema`. `removed`: what values were, by path, that were taken for
    /// absent.
    pub fn of(
        error: &ValidationError<'_>,
        schema: &Value,
        removed: &HashMap<String, &'static str>,
    ) -> Vec<Self> {
        use ValidationErrorKind::{
            AdditionalProperties, AnyOf, OneOfNotValid, Required, UnevaluatedProperties,
        };
        let (kind, path) = (error.kind(), error.instance_path().as_str());
        let owner = schema_of(error, schema);
        let (path, expected) = match kind {
            AnyOf { context } | OneOfNotValid { context } => {
                if let Some(branch) = meant(context, path) {
                    return branch.iter().flat_map(|error| Self::of(error, schema, removed)).collect();
                }
                (path.to_owned(), union(context, error.instance()))
            }
            Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let path = join(path, name);
                let found = removed.get(&path).map_or_else(String::new, |found| format!(", found {found}"));
                let declared = declared_types(owner, name).unwrap_or_else(|| "a value".to_owned());
                (path, format!("{declared}{found}"))
            }
            AdditionalProperties { unexpected } | UnevaluatedProperties { unexpected } => {
                let first = unexpected.first().map_or("", String::as_str);
                (join(path, first), declared_names(owner))
            }
            kind => (path.to_owned(), expectation(kind, error.instance())),
        };
        vec![Self::new(&path, kind.keyword().to_owned(), &expected)]
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}, expected {}", self.path, self.rule, self.expected)
    }
}

/// The first of `problems`, each once, and how many more there are.
pub fn listed(problems: &[Problem]) -> String {
    let reported: Vec<String> = reported(problems).iter().map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(reported.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", reported.join("; "))
}

/// The same problems for programs.
pub fn issues(problems: &[Problem]) -> Vec<Issue> {
    let issue = |problem: &Problem| Issue {
        path: problem.path.clone(),
        message: format!("{}, expected {}", problem.rule, problem.expected),
    };
    reported(problems).into_iter().map(issue).collect()
}

fn reported(problems: &[Problem]) -> Vec<&Problem> {
    let mut reported: Vec<&Problem> = Vec::new();
    for problem in problems {
        if reported.len() < MOST_REPORTED && !reported.contains(&problem) {
            reported.push(problem);
        }
    }
    reported
}

/// A tool's name, shortened if it is long.
pub fn shown_tool(tool: &str) -> String {
    clipped(tool, LONGEST_TOOL)
}

/// The JSON pointer of the member `key` of the value at `path`.
pub fn join(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The JSON pointer of the parent of the value at `path`, and the value's key; `None` at the root.
pub fn parent(path: &str) -> Option<(&str, String)> {
    let (within, key) = path.rsplit_once('/')?;
    Some((within, key.replace("~1", "/").replace("~0", "~")))
}

/// The schema that holds the keyword which `error` names.
pub fn schema_of<'a>(error: &ValidationError<'_>, schema: &'a Value) -> Option<&'a Map<String, Value>> {
    let (within, _) = error.schema_path().as_str().rsplit_once('/')?;
    schema.pointer(within)?.as_object()
}

fn declared_names(owner: Option<&Map<String, Value>>) -> String {
    let declared = owner.and_then(|owner| owner.get("properties")?.as_object());
    match declared.filter(|declared| !declared.is_empty()) {
        Some(declared) => {
            format!("only {}", declared.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
        None => "no such member".to_owned(),
    }
}

/// The types that are declared for the member `name`.
fn declared_types(owner: Option<&Map<String, Value>>, name: &str) -> Option<String> {
    match owner?.get("properties")?.get(name)?.get("type")? {
        Value::String(single) => Some(single.clone()),
        Value::Array(types) => Some(types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")),
        _ => None,
    }
}

/// The only branch of a union that accepts values of this kind at all: its errors are the useful ones.
fn meant<'a, 'b>(branches: &'a [Vec<ValidationError<'b>>], path: &str) -> Option<&'a [ValidationError<'b>]> {
    use ValidationErrorKind::{Constant, Enum, Type};
    let is_of_kind = |error: &ValidationError<'_>| {
        matches!(error.kind(), Type { .. } | Enum { .. } | Constant { .. })
            && error.instance_path().as_str() == path
    };
    let mut branches = branches.iter().filter(|branch| !branch.is_empty() && !branch.iter().any(is_of_kind));
    let first = branches.next()?;
    branches.next().is_none().then_some(first)
}

fn union(branches: &[Vec<ValidationError<'_>>], found: &Value) -> String {
    let mut names: Vec<&str> = Vec::new();
    for error in branches.iter().flatten() {
        if let ValidationErrorKind::Type { kind } = error.kind() {
            names.extend(types_of(kind).iter().map(|one| one.as_str()));
        }
    }
    names.dedup();
    if names.is_empty() {
        return "a match of one of the declared forms".to_owned();
    }
    format!("{}, found {}", names.join(" or "), kind_of(found))
}

fn expectation(kind: &ValidationErrorKind, found: &Value) -> String {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::FalseSchema => "nothing here".to_owned(),
        Kind::Type { kind } => {
            let names: Vec<&str> = types_of(kind).iter().map(|one| one.as_str()).collect();
            format!("{}, found {}", names.join(" or "), kind_of(found))
        }
        Kind::Enum { options } => {
            let options = options.as_array().into_iter().flatten().map(Value::to_string);
            format!("one of {}", options.collect::<Vec<_>>().join(", "))
        }
        Kind::Constant { expected_value } => expected_value.to_string(),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {}", counted(*limit, "character")),
        Kind::MaxLength { limit } => format!("at most {}", counted(*limit, "character")),
        Kind::MinItems { limit } => format!("at least {}", counted(*limit, "item")),
        Kind::MaxItems { limit } => format!("at most {}", counted(*limit, "item")),
        Kind::MinProperties { limit } => format!("at least {}", counted(*limit, "member")),
        Kind::MaxProperties { limit } => format!("at most {}", counted(*limit, "member")),
        Kind::Pattern { pattern } => format!("a match of {pattern}"),
        Kind::Format { format } => format!("format {format}"),
        Kind::UniqueItems => "no item twice".to_owned(),
        Kind::OneOfMultipleValid { .. } => "a match of one of the declared forms alone".to_owned(),
        Kind::PropertyNames { .. } => "other names of members".to_owned(),
        _ => "what the tool's parameters declare".to_owned(),
    }
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
fn readable(path: &str) -> String {
    let mut out = String::new();
    for segment in path.split('/').skip(1) {
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
    if out.is_empty() { "arguments".to_owned() } else { clipped(&out, LONGEST_PATH) }
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
