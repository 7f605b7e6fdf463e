//! The validator of one tool: its schema, compiled when a call first needs it, and the problems that it finds. Bounds
//! the work on both sides: where it would be too much, nothing is judged.

use super::lenient::{Fix, excuse};
use super::problem::Problem;
use super::schema;
use super::weight::Weight;
use crate::compile::compile;
use jsonschema::ValidationError;
use model::memo::Derived;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::OnceLock;

/// The longest schema that is compiled, in bytes: the longest in the corpus of real tools has 9 KB.
const LONGEST: usize = 64 * 1024;

/// The most checks that a verdict may take; one takes some tens of nanoseconds, a division by a fraction a
/// microsecond.
const MOST_LOOKS: u64 = 1_000_000;

/// The same where errors are collected: each takes some 500 bytes, so all of them take at most some 50 MB.
const MOST_LOOKS_FOR_ERRORS: u64 = 100_000;

/// About what a compiled schema takes: some hundred nodes.
const COMPILED_BYTES: usize = 32 * 1024;
/// How often arguments are corrected and validated again: once for each string within a string.
const ROUNDS: usize = 4;

/// A schema as declared, compiled at most once. Most tools that a request declares are never called.
pub struct Deferred {
    written: Box<[u8]>,
    strict: bool,
    // The value is a function of the other two, so it does not matter which thread computes it first.
    compiled: OnceLock<Option<Validator>>,
}

impl Derived for Deferred {
    fn weight(&self) -> usize {
        self.written.len() + COMPILED_BYTES
    }
}

/// A compiled schema.
pub struct Validator {
    /// As [`schema::read`] returns it.
    schema: Value,
    compiled: jsonschema::Validator,
    weight: Weight,
    strict: bool,
    /// The names that the schema gives to parameters, at any depth.
    names: Vec<String>,
}

impl Deferred {
    /// The schema `written`, without leniency if `strict`.
    pub fn new(written: &[u8], strict: bool) -> Self {
        let written = if written.len() > LONGEST { Box::default() } else { written.into() };
        Self { written, strict, compiled: OnceLock::new() }
    }

    /// The schema compiled; `None` where it cannot be used.
    pub fn validator(&self) -> Option<&Validator> {
        self.compiled.get_or_init(|| Validator::compile(&self.written, self.strict)).as_ref()
    }
}

impl Validator {
    fn compile(written: &[u8], strict: bool) -> Option<Self> {
        let schema = schema::read(&serde_json::from_slice(written).ok()?)?;
        let weight = Weight::of(&schema)?;
        let compiled = compile(&schema, strict)?;
        let mut names = Vec::new();
        collect_names(&schema, &mut names);
        Some(Self { schema, compiled, weight, strict, names })
    }

    /// Whether `key` is the name of a parameter and not an attack on an object's prototype.
    pub fn expects_key(&self, key: &str) -> bool {
        key != "__proto__" && self.names.iter().any(|name| name == key)
    }

    /// The problems of `value`. The lenient form corrects what it accepts, so that `value` becomes what the tool will
    /// make of it.
    pub fn problems(&self, value: &mut Value) -> Vec<Problem> {
        // Values that the lenient form takes for absent, to be distinguished from absent ones: what they were, by path.
        let mut removed = HashMap::new();
        let mut problems = Vec::new();
        for _ in 0..ROUNDS {
            let Some(looks) = self.weight.of_value(value).filter(|looks| looks.verdict <= MOST_LOOKS) else {
                return Vec::new();
            };
            if self.compiled.is_valid(value) {
                return Vec::new();
            }
            if looks.report > MOST_LOOKS_FOR_ERRORS {
                return if self.strict { vec![Problem::unexplained()] } else { Vec::new() };
            }
            let errors: Vec<_> = self.compiled.iter_errors(value).collect();
            problems.clear();
            let fixes = self.judge(&errors, value, &removed, &mut problems);
            drop(errors);
            if fixes.is_empty() {
                break;
            }
            for fix in fixes {
                if let Some(found) = fix.removed() {
                    removed.insert(fix.path.clone(), found);
                }
                fix.apply(value);
            }
        }
        problems
    }

    /// Collects the problems of `value`; returns corrections of what can be accepted.
    fn judge(
        &self,
        errors: &[ValidationError<'_>],
        value: &Value,
        removed: &HashMap<String, &'static str>,
        problems: &mut Vec<Problem>,
    ) -> Vec<Fix> {
        let mut fixes = Vec::new();
        for error in errors {
            match if self.strict { None } else { excuse(error, &self.schema, value) } {
                Some(more) => fixes.extend(more),
                None => problems.extend(Problem::of(error, &self.schema, removed)),
            }
        }
        fixes
    }
}

fn collect_names(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            let properties = members.get("properties").and_then(Value::as_object);
            names.extend(properties.into_iter().flat_map(Map::keys).cloned());
            members.values().for_each(|value| collect_names(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The stack of a worker is 2 MiB; of that, a validation may take three quarters.
    #[test]
    fn the_deepest_validation_fits_the_stack() {
        let chains = [
            json!({"allOf": [7]}),
            json!({"anyOf": [{"type": "null"}, 7]}),
            json!({"oneOf": [7]}),
            json!({"not": 7}),
            json!({"if": 7, "then": true, "else": false}),
            json!({"dependentSchemas": {"c": 7}, "unevaluatedProperties": false}),
        ];
        let below = [
            json!({"properties": {"c": {"$ref": "#"}}}),
            json!({"additionalProperties": {"$ref": "#"}, "unevaluatedProperties": false}),
            json!({"unevaluatedProperties": {"$ref": "#"}}),
        ];
        let nested = (0..63).fold(json!(7), |inner, _| json!({ "c": inner }));
        for (chain, below) in chains.iter().flat_map(|chain| below.iter().map(move |below| (chain, below))) {
            let link = |inner: &Value| chain.to_string().replace('7', &inner.to_string());
            let schema = (0..14).fold(below.clone(), |inner, _| serde_json::from_str(&link(&inner)).unwrap());
            let weight = Weight::of(&schema).unwrap();
            let looks = weight.of_value(&nested).unwrap();
            let nested = nested.clone();
            let validate = move || {
                let compiled = compile(&schema, false).unwrap();
                if looks.verdict <= MOST_LOOKS {
                    let _ = compiled.is_valid(&nested);
                }
                if looks.report <= MOST_LOOKS_FOR_ERRORS {
                    drop(compiled.iter_errors(&nested).collect::<Vec<_>>());
                }
            };
            std::thread::Builder::new().stack_size(3 << 19).spawn(validate).unwrap().join().unwrap();
        }
    }
}
