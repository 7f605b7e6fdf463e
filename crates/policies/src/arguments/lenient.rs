//! The lenient form of validation: what a schema forbids but the tools accept: null or an empty text for an absent
//! parameter, values outside an enum, values whose text or whose parsed text has the right type.

use super::problem::{parent, schema_of};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::json::SerdeJson;
use jsonschema::{JsonType, JsonTypeSet, ValidationError};
use serde_json::Value;

/// A correction of arguments to what the tool will take them for.
pub struct Fix {
    /// The JSON pointer of the value.
    pub path: String,
    correction: Correction,
}

/// What a value becomes.
enum Correction {
    Value(Value),
    /// It is absent; what it was is shown to the model where it is required.
    Absent(&'static str),
}

impl Fix {
    /// What is taken away, as a reader is shown it; `None`: nothing is.
    pub fn removed(&self) -> Option<&'static str> {
        match self.correction {
            Correction::Value(_) => None,
            Correction::Absent(found) => Some(found),
        }
    }

    /// Changes `arguments`.
    pub fn apply(self, arguments: &mut Value) {
        match self.correction {
            Correction::Value(value) => {
                if let Some(found) = arguments.pointer_mut(&self.path) {
                    *found = value;
                }
            }
            Correction::Absent(_) => {
                if let Some((within, key)) = parent(&self.path)
                    && let Some(Value::Object(members)) = arguments.pointer_mut(within)
                {
                    members.shift_remove(&key);
                }
            }
        }
    }
}

/// The correction where `error` against `schema` is accepted, which may be none; `None` where it is not accepted.
/// `arguments` are what was validated.
pub fn excuse(error: &ValidationError<'_>, schema: &Value, arguments: &Value) -> Option<Vec<Fix>> {
    use ValidationErrorKind::{AnyOf, Constant, Enum, OneOfNotValid, Type};
    let (found, path) = (error.instance().as_ref(), error.instance_path().as_str());
    let judges_value = matches!(
        error.kind(),
        Type { .. } | Enum { .. } | Constant { .. } | AnyOf { .. } | OneOfNotValid { .. }
    );
    // Whether the parameter is optional shows when it is removed: then `required` objects.
    let absent = |found| Some(vec![Fix { path: path.to_owned(), correction: Correction::Absent(found) }]);
    if judges_value && found.is_null() && is_member(path, arguments) {
        return absent("null");
    }
    let is_blank = || found.as_str().is_some_and(|text| text.trim().is_empty()) && is_member(path, arguments);
    // Models fill parameters that they leave out with an empty text, of whatever type these are.
    excuse_value(error, schema, arguments).or_else(|| is_blank().then(|| absent("an empty text")).flatten())
}

/// The same, for a value that is not taken for absent.
fn excuse_value(error: &ValidationError<'_>, schema: &Value, arguments: &Value) -> Option<Vec<Fix>> {
    use ValidationErrorKind::{
        AnyOf, Constant, Enum, OneOfMultipleValid, OneOfNotValid, RegexEngineFailure, Type,
    };
    match error.kind() {
        Type { kind } => {
            let value = coerced(error.instance().as_ref(), types_of(kind))?;
            let path = error.instance_path().as_str().to_owned();
            Some(vec![Fix { path, correction: Correction::Value(value) }])
        }
        Enum { options } => {
            let options = options.as_array().map_or(&[][..], Vec::as_slice);
            is_advice(error, schema, options).then(Vec::new)
        }
        Constant { expected_value } => {
            is_advice(error, schema, std::slice::from_ref(expected_value)).then(Vec::new)
        }
        AnyOf { context } | OneOfNotValid { context } => {
            context.iter().find_map(|branch| excuse_all(branch, schema, arguments))
        }
        // `oneOf` is often written where `anyOf` was meant. A pattern on which the engine fails proves nothing.
        OneOfMultipleValid { .. } | RegexEngineFailure { .. } => Some(Vec::new()),
        _ => None,
    }
}

fn excuse_all(errors: &[ValidationError<'_>], schema: &Value, arguments: &Value) -> Option<Vec<Fix>> {
    let mut fixes = Vec::new();
    for error in errors {
        fixes.extend(excuse(error, schema, arguments)?);
    }
    Some(fixes)
}

fn is_member(path: &str, arguments: &Value) -> bool {
    parent(path).and_then(|(within, _)| arguments.pointer(within)).is_some_and(Value::is_object)
}

/// Whether the value is of the kind of the options, though none of them: enums omit values that the description
/// names, so they are advice. If there is a type beside the enum, it has been checked already.
fn is_advice(error: &ValidationError<'_>, schema: &Value, options: &[Value]) -> bool {
    let found = error.instance().as_ref();
    let is_simple = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    schema_of(error, schema).is_some_and(|owner| owner.contains_key("type"))
        || options.iter().any(|option| {
            (is_simple(option) && is_simple(found))
                || (option.is_array() && found.is_array())
                || (option.is_object() && found.is_object())
        })
}

/// The types that an error names.
pub fn types_of(kind: &TypeKind) -> JsonTypeSet {
    match kind {
        TypeKind::Single(single) => JsonTypeSet::from(*single),
        TypeKind::Multiple(types) => *types,
    }
}

/// `found` as a value of an expected type: the value that a string contains, or the text of a number or boolean.
fn coerced(found: &Value, expected: JsonTypeSet) -> Option<Value> {
    match found {
        Value::String(text) => parsed(text).filter(|value| expected.contains_value_type::<SerdeJson>(&value)),
        Value::Number(_) | Value::Bool(_) if expected.contains(JsonType::String) => {
            Some(Value::String(found.to_string()))
        }
        _ => None,
    }
}

fn parsed(text: &str) -> Option<Value> {
    let text = text.trim();
    // Python's way to write booleans.
    for (word, value) in [("true", true), ("false", false)] {
        if text.eq_ignore_ascii_case(word) {
            return Some(Value::Bool(value));
        }
    }
    serde_json::from_str(text).ok()
}
