//! One tool's schema, compiled when a call first needs it, and what it finds wrong with arguments. Bounds the
//! work on both sides: what is too much is not judged.

use super::checker::{Checker, Error};
use super::lenient::{Mend, excuse};
use super::problem::Problem;
use super::schema;
use super::weight::Weight;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::OnceLock;

/// The longest schema that is compiled, in bytes: the longest in the corpus of real tools has 9 KB.
const LONGEST: usize = 64 * 1024;

/// The most looks that a validation may take; one takes some tens of nanoseconds.
const MOST_LOOKS: u64 = 1_000_000;

/// The same where errors are collected, each of which is kept in memory.
const MOST_LOOKS_FOR_ERRORS: u64 = 100_000;

/// How often arguments are mended and looked at again: once for each string within a string.
const ROUNDS: usize = 4;

/// A schema as declared, compiled at most once. Most tools that a request declares are never called.
pub struct Deferred {
    written: Box<[u8]>,
    strict: bool,
    // The value is a function of the other two, so who computes it first does not matter.
    compiled: OnceLock<Option<Validator>>,
}

/// A compiled schema.
pub struct Validator {
    checker: Checker,
    weight: Weight,
    strict: bool,
    /// The names that the schema gives to parameters, at any depth.
    names: Vec<String>,
}

impl Deferred {
    /// The schema `written`, to be held to its letter if `strict`.
    pub fn new(written: &[u8], strict: bool) -> Self {
        let written = if written.len() > LONGEST { Box::default() } else { written.into() };
        Self { written, strict, compiled: OnceLock::new() }
    }

    /// The schema compiled; `None` where it cannot be judged by.
    pub fn validator(&self) -> Option<&Validator> {
        self.compiled.get_or_init(|| Validator::compile(&self.written, self.strict)).as_ref()
    }
}

impl Validator {
    fn compile(written: &[u8], strict: bool) -> Option<Self> {
        let schema = schema::read(&serde_json::from_slice(written).ok()?)?;
        let weight = Weight::of(&schema)?;
        let checker = Checker::compile(&schema, strict)?;
        let mut names = Vec::new();
        collect_names(&schema, &mut names);
        Some(Self { checker, weight, strict, names })
    }

    /// Whether `key` is the name of a parameter rather than an attempt on an object's prototype.
    pub fn expects_key(&self, key: &str) -> bool {
        key != "__proto__" && self.names.iter().any(|name| name == key)
    }

    /// What is wrong with `value`. The lenient form mends what it passes, so that `value` becomes what the tool will
    /// make of it.
    pub fn problems(&self, value: &mut Value) -> Vec<Problem> {
        // Values of parameters that the lenient form takes for absent, to be told apart from those that are.
        let mut nulls = HashSet::new();
        let mut problems = Vec::new();
        for _ in 0..ROUNDS {
            let Some(looks) = self.weight.of_value(value).filter(|looks| *looks <= MOST_LOOKS) else {
                return Vec::new();
            };
            if self.checker.is_valid(value) {
                return Vec::new();
            }
            let errors = (looks <= MOST_LOOKS_FOR_ERRORS).then(|| self.checker.errors(value)).flatten();
            let Some(errors) = errors else {
                return if self.strict { vec![Problem::untold()] } else { Vec::new() };
            };
            problems.clear();
            let mends = self.judge(&errors, value, &nulls, &mut problems);
            drop(errors);
            if mends.is_empty() {
                break;
            }
            for mend in mends {
                if mend.removes() {
                    nulls.insert(mend.place.clone());
                }
                mend.apply(value);
            }
        }
        problems
    }

    /// Collects what is wrong with `value`; what can be passed is returned to be mended, or is nothing.
    fn judge(
        &self,
        errors: &[Error<'_>],
        value: &Value,
        nulls: &HashSet<String>,
        problems: &mut Vec<Problem>,
    ) -> Vec<Mend> {
        let mut mends = Vec::new();
        for error in errors {
            match if self.strict { None } else { excuse(error, value) } {
                Some(more) => mends.extend(more),
                None => problems.extend(Problem::of(error, nulls)),
            }
        }
        mends
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
