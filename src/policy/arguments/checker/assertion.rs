//! What a schema asks of a value alone, without looking at other schemas: types, bounds, lengths, patterns. Says
//! whether it holds; in which words it is told is for others.

use super::super::format::Format;
use super::equal::{are_equal, are_unique};
use super::number::{compare, is_integer, is_multiple};
use regex::Regex;
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// One keyword's demand. Each holds for values of kinds that it does not speak of.
pub enum Assertion {
    /// The schema `false`.
    Nothing,
    Type(Types),
    Constant(Value),
    Options(Options),
    Bound(Bound, Number),
    MultipleOf(Number),
    Count(Count),
    /// As written, and compiled.
    Pattern(String, Regex),
    Format(Format),
    Unique,
}

/// The types of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

/// `type`: one type or several, as written.
pub struct Types(Vec<Type>);

/// `enum`.
pub struct Options {
    /// As written.
    all: Vec<Value>,
    /// Sorted: long texts differ soon, and need not be read whole.
    texts: Vec<String>,
    /// All that are no text.
    others: Vec<Value>,
}

/// Which side of a number is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Minimum,
    Maximum,
    ExclusiveMinimum,
    ExclusiveMaximum,
}

/// How many there must be at least, or may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub of: Of,
    pub is_least: bool,
    pub limit: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Unicode's code points.
    Characters,
    Items,
    Members,
}

impl Assertion {
    /// Whether `value` does what is asked.
    pub fn holds(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Nothing, _) => false,
            (Self::Type(types), value) => types.take(value),
            (Self::Constant(constant), value) => are_equal(constant, value),
            (Self::Options(options), value) => options.take(value),
            (Self::Bound(bound, limit), Value::Number(number)) => bound.takes(compare(number, limit)),
            (Self::MultipleOf(divisor), Value::Number(number)) => is_multiple(number, divisor),
            (Self::Count(count), value) => count.takes(value),
            (Self::Pattern(_, pattern), Value::String(text)) => pattern.is_match(text),
            (Self::Format(format), Value::String(text)) => format.is_met(text),
            (Self::Unique, Value::Array(items)) => are_unique(items),
            _ => true,
        }
    }

    /// The keyword as written, or `falseSchema`.
    pub fn keyword(&self) -> &'static str {
        match self {
            Self::Nothing => "falseSchema",
            Self::Type(_) => "type",
            Self::Constant(_) => "const",
            Self::Options(_) => "enum",
            Self::Bound(Bound::Minimum, _) => "minimum",
            Self::Bound(Bound::Maximum, _) => "maximum",
            Self::Bound(Bound::ExclusiveMinimum, _) => "exclusiveMinimum",
            Self::Bound(Bound::ExclusiveMaximum, _) => "exclusiveMaximum",
            Self::MultipleOf(_) => "multipleOf",
            Self::Count(count) => count.keyword(),
            Self::Pattern(..) => "pattern",
            Self::Format(_) => "format",
            Self::Unique => "uniqueItems",
        }
    }
}

impl Type {
    /// The type with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Null, Self::Boolean, Self::Integer, Self::Number, Self::String, Self::Array, Self::Object]
            .into_iter()
            .find(|known| known.name() == name)
    }

    /// Its name in schemas.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Integer, Value::Number(number)) => is_integer(number),
            (Self::Null, Value::Null)
            | (Self::Boolean, Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::String, Value::String(_))
            | (Self::Array, Value::Array(_))
            | (Self::Object, Value::Object(_)) => true,
            _ => false,
        }
    }
}

impl Types {
    /// One of these.
    pub fn new(types: Vec<Type>) -> Self {
        Self(types)
    }

    /// Whether `value` is of one of them. `1.0` is an integer.
    pub fn take(&self, value: &Value) -> bool {
        self.0.iter().any(|one| one.takes(value))
    }

    /// Whether `one` is among them.
    pub fn contain(&self, one: Type) -> bool {
        self.0.contains(&one)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|one| one.name())
    }
}

impl Options {
    /// One of `all`.
    pub fn new(all: Vec<Value>) -> Self {
        let mut texts: Vec<String> = all.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        texts.sort_unstable();
        let others = all.iter().filter(|option| !option.is_string()).cloned().collect();
        Self { all, texts, others }
    }

    /// All of them, as written.
    pub fn all(&self) -> &[Value] {
        &self.all
    }

    fn take(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.texts.binary_search(text).is_ok(),
            other => self.others.iter().any(|option| are_equal(option, other)),
        }
    }
}

impl Bound {
    /// Whether a number may stand so to the limit.
    fn takes(self, ordering: Ordering) -> bool {
        match self {
            Self::Minimum => ordering.is_ge(),
            Self::Maximum => ordering.is_le(),
            Self::ExclusiveMinimum => ordering.is_gt(),
            Self::ExclusiveMaximum => ordering.is_lt(),
        }
    }
}

impl Count {
    fn takes(self, value: &Value) -> bool {
        match (self.of, value) {
            (Of::Items, Value::Array(items)) => self.takes_number(items.len()),
            (Of::Members, Value::Object(members)) => self.takes_number(members.len()),
            // A character has at most four bytes, so most texts need not be read.
            (Of::Characters, Value::String(text)) => match text.len() as u64 {
                bytes if bytes.div_ceil(4) >= self.limit && self.is_least => true,
                bytes if bytes <= self.limit && !self.is_least => true,
                _ => self.takes_number(text.chars().count()),
            },
            _ => true,
        }
    }

    fn takes_number(self, number: usize) -> bool {
        let number = number as u64;
        if self.is_least { number >= self.limit } else { number <= self.limit }
    }

    fn keyword(self) -> &'static str {
        match (self.of, self.is_least) {
            (Of::Characters, true) => "minLength",
            (Of::Characters, false) => "maxLength",
            (Of::Items, true) => "minItems",
            (Of::Items, false) => "maxItems",
            (Of::Members, true) => "minProperties",
            (Of::Members, false) => "maxProperties",
        }
    }
}
