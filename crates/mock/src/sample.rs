//! A generator of values that fit a JSON Schema: arguments for a tool's parameters, an answer for a `response_format`.
//! Supports the keywords that tools use; for other schemas only the type is right.

use serde_json::{Map, Value, json};

/// How deep a value may nest. Schemas may refer to themselves.
const MAX_DEPTH: usize = 8;

/// A value for `schema`, its texts drawn from `text`.
pub(super) fn sample(schema: &Value, text: &str) -> Value {
    Sampler { root: schema, text }.value(schema, MAX_DEPTH)
}

struct Sampler<'a> {
    root: &'a Value,
    text: &'a str,
}

impl Sampler<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Value {
        let Some(depth) = depth.checked_sub(1) else { return Value::Null };
        if let Some(fixed) = fixed(schema) {
            return fixed.clone();
        }
        if let Some(target) = self.target(schema) {
            return self.value(target, depth);
        }
        if let Some(first) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema[*key].get(0)) {
            return self.value(first, depth);
        }
        match type_of(schema) {
            "object" => self.object(schema, depth),
            "array" => self.array(schema, depth),
            "integer" | "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
            "boolean" => json!(true),
            "null" => Value::Null,
            _ => json!(self.text),
        }
    }

    /// What a local `$ref` points to.
    fn target(&self, schema: &Value) -> Option<&Value> {
        self.root.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
    }

    /// The required members, or all where none is.
    fn object(&self, schema: &Value, depth: usize) -> Value {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let Some(properties) = schema["properties"].as_object() else { return json!({}) };
        let wanted =
            properties.iter().filter(|(name, _)| required.is_empty() || required.contains(&name.as_str()));
        let members: Map<String, Value> =
            wanted.map(|(name, property)| (name.clone(), self.member(name, property, depth))).collect();
        Value::Object(members)
    }

    fn member(&self, name: &str, schema: &Value, depth: usize) -> Value {
        let is_address =
            matches!(name.to_ascii_lowercase().as_str(), "url" | "uri" | "link") || schema["format"] == "uri";
        if is_address && type_of(schema) == "string" {
            return json!("https://example.com/page");
        }
        self.value(schema, depth)
    }

    fn array(&self, schema: &Value, depth: usize) -> Value {
        match schema.get("items") {
            Some(items) if schema["maxItems"] != 0 => json!([self.value(items, depth)]),
            _ => json!([]),
        }
    }
}

/// The one value, or the first of a list of values, that the schema names itself.
fn fixed(schema: &Value) -> Option<&Value> {
    schema.get("const").or_else(|| schema["enum"].get(0)).or_else(|| schema.get("default"))
}

/// The schema's type; of several the first.
fn type_of(schema: &Value) -> &str {
    let named = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    named.unwrap_or(if schema.get("properties").is_some() { "object" } else { "string" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_value_fits_every_schema_keyword_that_tools_use() {
        let schema = json!({"type": "object", "$defs": {"kind": {"enum": ["a", "b"]}}, "properties": {
            "text": {"type": ["string", "null"]}, "url": {"type": "string"},
            "count": {"type": "integer", "minimum": 3},
            "kind": {"$ref": "#/$defs/kind"}, "tags": {"type": "array", "items": {"type": "string"}},
            "either": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}});
        assert_eq!(
            sample(&schema, "t"),
            json!({"text": "t", "url": "https://example.com/page", "count": 3, "kind": "a",
                "tags": ["t"], "either": true})
        );
    }

    #[test]
    fn only_required_members_are_given_where_some_are() {
        let schema = json!({"properties": {"a": {}, "b": {}}, "required": ["b"]});
        assert_eq!(sample(&schema, "t"), json!({"b": "t"}));
    }

    #[test]
    fn sampling_a_recursive_schema_terminates() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(sample(&schema, "t")["next"]["next"].is_object());
    }
}
