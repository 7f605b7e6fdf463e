//! What the lenient form passes of what a schema forbids, since the tools behind it take it: null for an
//! absent parameter, values outside an enum, values whose text or whose parsed text has the right type.

use super::problem::parent;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, JsonTypeSet, ValidationError};
use serde_json::Value;

/// A change to arguments that makes them what the tool will take them for.
pub struct Mend {
    /// The JSON pointer of the value.
    pub place: String,
    /// What the value becomes; `None`: it is absent.
    value: Option<Value>,
}

impl Mend {
    /// Whether it takes a value away.
    pub fn removes(&self) -> bool {
        self.value.is_none()
    }

    /// Changes `arguments`.
    pub fn apply(self, arguments: &mut Value) {
        match self.value {
            Some(value) => {
                if let Some(place) = arguments.pointer_mut(&self.place) {
                    *place = value;
                }
            }
            None => {
                if let Some((within, key)) = parent(&self.place)
                    && let Some(Value::Object(members)) = arguments.pointer_mut(within)
                {
                    members.shift_remove(&key);
                }
            }
        }
    }
}

/// What is to be mended where `error` is passed, be it nothing; `None` where it is not passed. `schema` is what
/// was compiled, `arguments` what was validated.
pub fn excuse(error: &ValidationError<'_>, schema: &Value, arguments: &Value) -> Option<Vec<Mend>> {
    let found = error.instance();
    let place = error.instance_path().as_str();
    let judges_value = matches!(
        error.kind(),
        Kind::Type { .. }
            | Kind::Enum { .. }
            | Kind::Constant { .. }
            | Kind::AnyOf { .. }
            | Kind::OneOfNotValid { .. }
    );
    // Whether the parameter is optional shows when it is gone: `required` objects then.
    if judges_value && found.is_null() && is_member(place, arguments) {
        return Some(vec![Mend { place: place.to_owned(), value: None }]);
    }
    match error.kind() {
        Kind::Type { kind } => {
            let value = Some(coerced(found, kind)?);
            Some(vec![Mend { place: place.to_owned(), value }])
        }
        Kind::Enum { options } => is_advice(found, options.as_array()?, error, schema).then(Vec::new),
        Kind::Constant { expected_value } => {
            is_advice(found, std::slice::from_ref(&**expected_value), error, schema).then(Vec::new)
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            context.iter().find_map(|branch| excuse_all(branch, schema, arguments))
        }
        // Written where `anyOf` was meant; or beyond what the engine of patterns can do.
        Kind::OneOfMultipleValid { .. }
        | Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. } => Some(Vec::new()),
        _ => None,
    }
}

fn excuse_all(errors: &[ValidationError<'_>], schema: &Value, arguments: &Value) -> Option<Vec<Mend>> {
    let mut mends = Vec::new();
    for error in errors {
        mends.extend(excuse(error, schema, arguments)?);
    }
    Some(mends)
}

fn is_member(place: &str, arguments: &Value) -> bool {
    parent(place).and_then(|(within, _)| arguments.pointer(within)).is_some_and(Value::is_object)
}

/// Whether `found` is of the kind of the options, though none of them: enums leave out what the description
/// names, so they advise. Where a type stands beside the enum, that has spoken already.
fn is_advice(found: &Value, options: &[Value], error: &ValidationError<'_>, schema: &Value) -> bool {
    let beside = parent(error.schema_path().as_str()).and_then(|(beside, _)| schema.pointer(beside));
    let is_simple = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    beside.is_some_and(|beside| beside.get("type").is_some())
        || options.iter().any(|option| {
            (is_simple(option) && is_simple(found))
                || (option.is_array() && found.is_array())
                || (option.is_object() && found.is_object())
        })
}

/// `found` as a value of an expected type: the value that a string spells, or the text of a number or truth
/// value.
fn coerced(found: &Value, kind: &TypeKind) -> Option<Value> {
    let expected = match kind {
        TypeKind::Single(single) => JsonTypeSet::empty().insert(*single),
        TypeKind::Multiple(several) => *several,
    };
    match found {
        Value::String(text) => spelled(text).filter(|value| is_of(value, expected)),
        Value::Number(_) | Value::Bool(_) if expected.contains(JsonType::String) => {
            Some(Value::String(found.to_string()))
        }
        _ => None,
    }
}

fn spelled(text: &str) -> Option<Value> {
    let text = text.trim();
    // Python's spelling of the truth.
    for (word, value) in [("true", true), ("false", false)] {
        if text.eq_ignore_ascii_case(word) {
            return Some(Value::Bool(value));
        }
    }
    serde_json::from_str(text).ok()
}

fn is_of(value: &Value, expected: JsonTypeSet) -> bool {
    match value {
        Value::Null => expected.contains(JsonType::Null),
        Value::Bool(_) => expected.contains(JsonType::Boolean),
        Value::String(_) => expected.contains(JsonType::String),
        Value::Array(_) => expected.contains(JsonType::Array),
        Value::Object(_) => expected.contains(JsonType::Object),
        Value::Number(number) => {
            let is_whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
            expected.contains(JsonType::Number) || (is_whole && expected.contains(JsonType::Integer))
        }
    }
}
