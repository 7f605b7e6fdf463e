//! Translation of a tool's declared schema into the one that is compiled: only the keywords that constrain a value,
//! each in the form of JSON Schema 2020-12. Older drafts, OpenAPI's `nullable` and the type names of programming
//! languages are translated; what is not understood is left out, so that it refuses nothing.

use crate::compile::compile_pattern;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The deepest nesting of schemas that is read: real tools have less than ten levels.
const DEEPEST: usize = 32;

/// The most regular expressions in one schema, of up to 128 KiB; further ones are left out.
const MOST_PATTERNS: usize = 32;

/// The most work of compiling them: for each its bytes times one more than its backslashes, since the library parses
/// a pattern again for each class such as `\d`.
const MOST_PATTERN_WORK: usize = 64 * 1024;

/// Characters that a reference may hold and a URI may not.
const NOT_IN_A_URI: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The formats that are checked. The library has more, whose checks cost more than one pass over the text.
const FORMATS: [&str; 12] = [
    "date",
    "time",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "uuid",
    "json-pointer",
];

/// Where the schemas of a keyword apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// To the value itself.
    Here,
    /// To a member or an item of the value.
    Below,
    /// To one member of the value each.
    Named,
    /// To the members or items that no other schema has evaluated.
    Rest,
    /// Nowhere, until something refers to them.
    Apart,
}

/// What the value of a keyword must be.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Schema(Applies),
    List(Applies),
    Map(Applies),
    Count,
    Number,
    Positive,
    Flag,
    Pattern,
    Reference,
    Format,
    Names,
    NamesByName,
    Type,
    Options,
    Anything,
}

/// The keywords that are kept.
const KEYWORDS: &[(&str, Shape)] = &[
    ("$ref", Shape::Reference),
    ("$defs", Shape::Map(Applies::Apart)),
    ("definitions", Shape::Map(Applies::Apart)),
    ("type", Shape::Type),
    ("enum", Shape::Options),
    ("const", Shape::Anything),
    ("properties", Shape::Map(Applies::Named)),
    ("patternProperties", Shape::Map(Applies::Below)),
    ("additionalProperties", Shape::Schema(Applies::Below)),
    ("unevaluatedProperties", Shape::Schema(Applies::Rest)),
    ("propertyNames", Shape::Schema(Applies::Below)),
    ("required", Shape::Names),
    ("dependentRequired", Shape::NamesByName),
    ("dependentSchemas", Shape::Map(Applies::Here)),
    ("minProperties", Shape::Count),
    ("maxProperties", Shape::Count),
    ("prefixItems", Shape::List(Applies::Below)),
    ("items", Shape::Schema(Applies::Below)),
    ("unevaluatedItems", Shape::Schema(Applies::Rest)),
    ("contains", Shape::Schema(Applies::Below)),
    ("minContains", Shape::Count),
    ("maxContains", Shape::Count),
    ("minItems", Shape::Count),
    ("maxItems", Shape::Count),
    ("uniqueItems", Shape::Flag),
    ("allOf", Shape::List(Applies::Here)),
    ("anyOf", Shape::List(Applies::Here)),
    ("oneOf", Shape::List(Applies::Here)),
    ("not", Shape::Schema(Applies::Here)),
    ("if", Shape::Schema(Applies::Here)),
    ("then", Shape::Schema(Applies::Here)),
    ("else", Shape::Schema(Applies::Here)),
    ("minLength", Shape::Count),
    ("maxLength", Shape::Count),
    ("pattern", Shape::Pattern),
    ("format", Shape::Format),
    ("minimum", Shape::Number),
    ("maximum", Shape::Number),
    ("exclusiveMinimum", Shape::Number),
    ("exclusiveMaximum", Shape::Number),
    ("multipleOf", Shape::Positive),
];

/// What the value of `keyword` must be; `None` where it is not kept.
pub fn shape_of(keyword: &str) -> Option<Shape> {
    KEYWORDS.iter().find(|(known, _)| *known == keyword).map(|(_, shape)| *shape)
}

/// The schema that arguments are validated against; `None` where it is too deep. Whether arguments are
/// an object is checked elsewhere, so the root accepts every type.
pub fn read(written: &Value) -> Option<Value> {
    let mut reader = Reader { patterns: 0, work: 0 };
    let mut schema = reader.schema(written, 0)?;
    if let Some(members) = schema.as_object_mut() {
        members.remove("type");
    }
    Some(schema)
}

/// A count, which may be written as `3.0`.
fn count(value: &Value) -> Option<u64> {
    let is_count = |number: &f64| (0.0..=f64::from(u32::MAX)).contains(number) && number.fract() == 0.0;
    value.as_u64().or_else(|| value.as_f64().filter(is_count).map(|number| number as u64))
}

/// The state of the translation.
struct Reader {
    patterns: usize,
    work: usize,
}

impl Reader {
    /// `None` gives up on the whole schema.
    fn schema(&mut self, written: &Value, depth: usize) -> Option<Value> {
        let Value::Object(written) = written else {
            return Some(Value::Bool(written != &Value::Bool(false)));
        };
        if depth > DEEPEST {
            return None;
        }
        let mut schema = Map::new();
        for (keyword, value) in &translated(written) {
            let Some(shape) = shape_of(keyword) else { continue };
            if let Some(value) = self.keyword(shape, keyword, value, depth)? {
                schema.insert(keyword.clone(), value);
            }
        }
        Some(if written.get("nullable") == Some(&Value::Bool(true)) {
            or_null(schema)
        } else {
            Value::Object(schema)
        })
    }

    /// The outer `None` gives up on the whole schema, the inner leaves the keyword out.
    fn keyword(&mut self, shape: Shape, name: &str, value: &Value, depth: usize) -> Option<Option<Value>> {
        let fits = match shape {
            Shape::Schema(_) => match value {
                Value::Object(_) | Value::Bool(_) => return self.schema(value, depth + 1).map(Some),
                _ => false,
            },
            Shape::List(_) => return self.list(value, depth),
            Shape::Map(_) => return self.map(name, value, depth),
            Shape::Pattern => value.as_str().is_some_and(|pattern| self.takes_pattern(pattern)),
            Shape::Type => return Some(read_type(value)),
            Shape::Count => return Some(count(value).map(Value::from)),
            Shape::Reference => return Some(value.as_str().map(reference)),
            Shape::Names => return Some(names(value)),
            Shape::NamesByName => return Some(names_by_name(value)),
            Shape::Number => value.is_number(),
            Shape::Positive => value.as_f64().is_some_and(|number| number > 0.0),
            Shape::Flag => value.is_boolean(),
            Shape::Format => value.as_str().is_some_and(|name| FORMATS.contains(&name)),
            Shape::Options => value.as_array().is_some_and(|options| !options.is_empty()),
            Shape::Anything => true,
        };
        Some(fits.then(|| value.clone()))
    }

    fn list(&mut self, value: &Value, depth: usize) -> Option<Option<Value>> {
        let Some(items) = value.as_array().filter(|items| !items.is_empty()) else { return Some(None) };
        let schemas: Option<Vec<Value>> = items.iter().map(|item| self.schema(item, depth + 1)).collect();
        schemas.map(|schemas| Some(Value::Array(schemas)))
    }

    fn map(&mut self, name: &str, value: &Value, depth: usize) -> Option<Option<Value>> {
        let Some(members) = value.as_object() else { return Some(None) };
        let mut schemas = Map::new();
        for (key, schema) in members {
            if name != "patternProperties" || self.takes_pattern(key) {
                schemas.insert(key.clone(), self.schema(schema, depth + 1)?);
            }
        }
        Some(Some(Value::Object(schemas)))
    }

    /// Whether `pattern` is one that the engine can match, and within the bounds.
    fn takes_pattern(&mut self, pattern: &str) -> bool {
        let work = pattern.len().saturating_mul(1 + pattern.matches('\\').count());
        self.patterns += 1;
        self.work = self.work.saturating_add(work);
        self.patterns <= MOST_PATTERNS && self.work <= MOST_PATTERN_WORK && compile_pattern(pattern).is_some()
    }
}

/// The members of a schema with the forms of older drafts translated.
fn translated(written: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = written.clone();
    if schema.get("items").is_some_and(Value::is_array) {
        let rest = schema.remove("additionalItems");
        if let Some(first) = schema.remove("items") {
            schema.insert("prefixItems".to_owned(), first);
        }
        if let Some(rest) = rest {
            schema.insert("items".to_owned(), rest);
        }
    }
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if schema.get(exclusive) == Some(&Value::Bool(true))
            && let Some(value) = schema.remove(bound)
        {
            schema.insert(exclusive.to_owned(), value);
        }
    }
    schema
}

fn or_null(mut schema: Map<String, Value>) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(types)) if types.contains(&json!("null")) => {}
        Some(Value::Array(types)) => types.push(json!("null")),
        Some(single) if single == "null" => {}
        Some(single) => *single = json!([single, "null"]),
        None => return json!({ "anyOf": [schema, { "type": "null" }] }),
    }
    if let Some(Value::Array(options)) = schema.get_mut("enum") {
        options.push(Value::Null);
    }
    Value::Object(schema)
}

/// A reference as a URI.
fn reference(written: &str) -> Value {
    Value::from(utf8_percent_encode(written, NOT_IN_A_URI).to_string())
}

/// Names, each once.
fn names(written: &Value) -> Option<Value> {
    let names: Option<BTreeSet<&str>> = written.as_array()?.iter().map(Value::as_str).collect();
    let mut left = names?;
    let once = written.as_array()?.iter().filter(|name| name.as_str().is_some_and(|name| left.remove(name)));
    Some(once.cloned().collect())
}

fn names_by_name(written: &Value) -> Option<Value> {
    let members = written.as_object()?.iter().map(|(name, value)| Some((name.clone(), names(value)?)));
    members.collect::<Option<Map<_, _>>>().map(Value::Object)
}

/// One or several types with the names of JSON Schema; `None` where one of them is not known.
fn read_type(written: &Value) -> Option<Value> {
    match written {
        Value::String(name) => type_name(name).map(Value::from),
        Value::Array(names) => {
            let mut types: Vec<&str> = Vec::with_capacity(names.len());
            for name in names {
                let name = type_name(name.as_str()?)?;
                if !types.contains(&name) {
                    types.push(name);
                }
            }
            (!types.is_empty()).then(|| Value::from(types))
        }
        _ => None,
    }
}

fn type_name(written: &str) -> Option<&'static str> {
    Some(match written.to_ascii_lowercase().as_str() {
        "string" | "str" | "text" => "string",
        "integer" | "int" | "long" => "integer",
        "number" | "float" | "double" | "decimal" => "number",
        "boolean" | "bool" => "boolean",
        "object" | "dict" | "map" | "hashmap" => "object",
        "array" | "list" | "tuple" | "set" | "arraylist" => "array",
        "null" | "none" => "null",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_of_older_drafts_and_other_dialects_are_translated_to_the_current_draft() {
        for (written, expected) in [
            (json!({"title": "t", "description": "d", "default": 1, "$schema": "s", "$id": "i"}), json!({})),
            (
                json!({"properties": {"a": {"type": "STRING"}, "type": {"type": "dict"}}}),
                json!({"properties": {"a": {"type": "string"}, "type": {"type": "object"}}}),
            ),
            (json!({"not": {"type": "any"}}), json!({"not": {}})),
            (json!({"not": {"type": ["int", "date"]}}), json!({"not": {}})),
            (
                json!({"items": [{"type": "float"}], "additionalItems": false}),
                json!({"prefixItems": [{"type": "number"}], "items": false}),
            ),
            (json!({"minLength": 3.0, "maxLength": 2.5, "minItems": -1}), json!({"minLength": 3})),
            (json!({"minimum": 3, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 3})),
            (json!({"minimum": 3, "exclusiveMinimum": false}), json!({"minimum": 3})),
            (json!({"required": true, "enum": [], "anyOf": [], "minLength": "3", "items": 7}), json!({})),
            (
                json!({"pattern": "(?=a)", "patternProperties": {"(": {}, "^a": {}}}),
                json!({"patternProperties": {"^a": {}}}),
            ),
            (
                json!({"not": {"type": "string", "enum": ["a"], "nullable": true}}),
                json!({"not": {"type": ["string", "null"], "enum": ["a", null]}}),
            ),
            (
                json!({"not": {"type": ["string", "null"], "nullable": true}}),
                json!({"not": {"type": ["string", "null"]}}),
            ),
            (
                json!({"required": ["b", "a", "b"], "dependentRequired": {"a": ["c", "c"]}}),
                json!({"required": ["b", "a"], "dependentRequired": {"a": ["c"]}}),
            ),
            (json!({"format": "color", "not": {"format": "date"}}), json!({"not": {"format": "date"}})),
            (json!({"$ref": "#/$defs/List<A B>%20"}), json!({"$ref": "#/$defs/List%3CA%20B%3E%20"})),
            (
                json!({"not": {"$ref": "#/$defs/a", "nullable": true}}),
                json!({"not": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}),
            ),
        ] {
            assert_eq!(read(&written), Some(expected), "{written}");
        }
    }

    #[test]
    fn schemas_that_are_too_deep_are_not_checked() {
        let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "items": inner }));
        assert!(read(&nested(DEEPEST)).is_some());
        assert!(read(&nested(DEEPEST + 1)).is_none());
    }

    #[test]
    fn patterns_beyond_the_first_are_left_out() {
        let patterns = json!({ "allOf": vec![json!({ "pattern": "a" }); MOST_PATTERNS + 2] });
        assert_eq!(read(&patterns).unwrap().to_string().matches("pattern").count(), MOST_PATTERNS);
    }

    #[test]
    fn patterns_that_would_take_long_to_compile_are_left_out() {
        let long = json!({ "pattern": r"\d".repeat(300) });
        assert_eq!(read(&long), Some(json!({})));
        let usual = json!({ "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z$" });
        assert_eq!(read(&usual), Some(usual));
    }

    #[test]
    fn a_pattern_that_would_take_much_memory_is_left_out() {
        assert_eq!(read(&json!({"pattern": "((a{1000}){1000}){1000}"})), Some(json!({})));
    }
}
