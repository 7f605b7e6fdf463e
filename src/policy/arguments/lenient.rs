//! What the lenient form passes of what a schema forbids, since the tools behind it take it: null for an
//! absent parameter, values outside an enum, values whose text or whose parsed text has the right type.

use super::checker::{Assertion, Error, Kind, Type, Types};
use super::problem::parent;
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

/// What is to be mended where `error` is passed, be it nothing; `None` where it is not passed. `arguments` are
/// what was validated.
pub fn excuse(error: &Error<'_>, arguments: &Value) -> Option<Vec<Mend>> {
    let judges_value = matches!(
        error.kind,
        Kind::Assertion(Assertion::Type(_) | Assertion::Options(_) | Assertion::Constant(_))
            | Kind::Any(_)
            | Kind::One(_)
    );
    // Whether the parameter is optional shows when it is gone: `required` objects then.
    if judges_value && error.found.is_null() && is_member(&error.place, arguments) {
        return Some(vec![Mend { place: error.place.clone(), value: None }]);
    }
    match &error.kind {
        Kind::Assertion(Assertion::Type(types)) => {
            let value = Some(coerced(error.found, types)?);
            Some(vec![Mend { place: error.place.clone(), value }])
        }
        Kind::Assertion(Assertion::Options(options)) => is_advice(error, options.all()).then(Vec::new),
        Kind::Assertion(Assertion::Constant(constant)) => {
            is_advice(error, std::slice::from_ref(constant)).then(Vec::new)
        }
        Kind::Any(branches) | Kind::One(branches) => {
            branches.iter().find_map(|branch| excuse_all(branch, arguments))
        }
        // Written where `anyOf` was meant.
        Kind::SeveralOfOne => Some(Vec::new()),
        _ => None,
    }
}

fn excuse_all(errors: &[Error<'_>], arguments: &Value) -> Option<Vec<Mend>> {
    let mut mends = Vec::new();
    for error in errors {
        mends.extend(excuse(error, arguments)?);
    }
    Some(mends)
}

fn is_member(place: &str, arguments: &Value) -> bool {
    parent(place).and_then(|(within, _)| arguments.pointer(within)).is_some_and(Value::is_object)
}

/// Whether what was found is of the kind of the options, though none of them: enums leave out what the description
/// names, so they advise. Where a type stands beside the enum, that has spoken already.
fn is_advice(error: &Error<'_>, options: &[Value]) -> bool {
    let found = error.found;
    let is_simple = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    error.is_beside_type()
        || options.iter().any(|option| {
            (is_simple(option) && is_simple(found))
                || (option.is_array() && found.is_array())
                || (option.is_object() && found.is_object())
        })
}

/// `found` as a value of an expected type: the value that a string spells, or the text of a number or truth
/// value.
fn coerced(found: &Value, expected: &Types) -> Option<Value> {
    match found {
        Value::String(text) => spelled(text).filter(|value| expected.take(value)),
        Value::Number(_) | Value::Bool(_) if expected.contain(Type::String) => {
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
