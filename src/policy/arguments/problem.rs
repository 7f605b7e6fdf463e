//! What is wrong with arguments in words that a model can act on: where, which rule, what was expected. Short,
//! and without the values that were found, which may be long or secret.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;
use std::borrow::Cow;

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
    pub fn of(error: &ValidationError<'_>, schema: &Value, nulls: &[String]) -> Vec<Self> {
        let place = error.instance_path().as_str();
        let (place, expected) = match error.kind() {
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                if let Some(branch) = meant(context, place) {
                    return branch.iter().flat_map(|error| Self::of(error, schema, nulls)).collect();
                }
                (place.to_owned(), union(context, error.instance()))
            }
            Kind::Required { property } => {
                let place = join(place, property.as_str().unwrap_or_default());
                let found = if nulls.contains(&place) { ", found null" } else { "" };
                let declared = owner(error, schema);
                let expected = format!("{}{found}", declared_type(declared, property.as_str()));
                (place, expected)
            }
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                let first = unexpected.first().map_or("", String::as_str);
                (join(place, first), declared_names(owner(error, schema)))
            }
            kind => (place.to_owned(), expectation(kind, error.instance())),
        };
        vec![Self::new(&place, error.kind().keyword().to_owned(), &expected)]
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

/// What stands in the schema around the keyword that objects.
fn owner<'a>(error: &ValidationError<'_>, schema: &'a Value) -> Option<&'a Value> {
    parent(error.schema_path().as_str()).and_then(|(owner, _)| schema.pointer(owner))
}

fn declared_type(owner: Option<&Value>, name: Option<&str>) -> String {
    let declared = owner.zip(name).and_then(|(owner, name)| owner.get("properties")?.get(name)?.get("type"));
    match declared {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => one_of(names.iter().filter_map(Value::as_str)),
        _ => "a value".to_owned(),
    }
}

fn declared_names(owner: Option<&Value>) -> String {
    match owner.and_then(|owner| owner.get("properties")).and_then(Value::as_object) {
        Some(properties) if !properties.is_empty() => {
            format!("only {}", properties.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
        _ => "no such member".to_owned(),
    }
}

/// The one branch of a union that takes values of this kind at all: its objections are the ones that help.
fn meant<'a>(
    context: &'a [Vec<ValidationError<'static>>],
    place: &str,
) -> Option<&'a [ValidationError<'static>]> {
    let takes_kind = |branch: &&Vec<ValidationError<'static>>| {
        !branch.is_empty()
            && branch.iter().all(|error| {
                let of_itself = error.instance_path().as_str() == place;
                let of_kind =
                    matches!(error.kind(), Kind::Type { .. } | Kind::Enum { .. } | Kind::Constant { .. });
                !(of_itself && of_kind)
            })
    };
    let mut branches = context.iter().filter(takes_kind);
    let first = branches.next()?;
    branches.next().is_none().then_some(first)
}

fn union(context: &[Vec<ValidationError<'static>>], found: &Value) -> String {
    let mut types: Vec<&str> = Vec::new();
    for error in context.iter().flatten() {
        if let Kind::Type { kind } = error.kind() {
            types.extend(type_names(kind));
        }
    }
    types.dedup();
    if types.is_empty() {
        return "a match of one of the declared forms".to_owned();
    }
    format!("{}, found {}", one_of(types.into_iter()), kind_of(found))
}

fn expectation(kind: &Kind, found: &Value) -> String {
    match kind {
        Kind::Type { kind } => format!("{}, found {}", one_of(type_names(kind).into_iter()), kind_of(found)),
        Kind::Enum { options } => {
            let options: Vec<String> =
                options.as_array().into_iter().flatten().map(Value::to_string).collect();
            format!("one of {}", options.join(", "))
        }
        Kind::Constant { expected_value } => expected_value.to_string(),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::AdditionalItems { limit } => format!("at most {limit} items"),
        Kind::MinProperties { limit } => format!("at least {limit} members"),
        Kind::MaxProperties { limit } => format!("at most {limit} members"),
        Kind::Pattern { pattern } => format!("a match of {pattern}"),
        Kind::Format { format } => format!("format {format}"),
        Kind::UniqueItems => "no item twice".to_owned(),
        Kind::OneOfMultipleValid { .. } => "a match of one of the declared forms alone".to_owned(),
        Kind::FalseSchema => "nothing here".to_owned(),
        Kind::PropertyNames { .. } => "other names of members".to_owned(),
        _ => "what the tool's parameters declare".to_owned(),
    }
}

fn type_names(kind: &TypeKind) -> Vec<&'static str> {
    match kind {
        TypeKind::Single(single) => vec![single.as_str()],
        TypeKind::Multiple(several) => several.iter().map(|one| one.as_str()).collect(),
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" or ")
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
