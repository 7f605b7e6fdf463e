//! How much work a schema makes of a value: what it refers to, and how often each part of a value is looked at,
//! at most. A schema whose references go in a circle without going deeper has no such bound, and one that refers
//! to something outside cannot be judged by. Looks at schemas; validates nothing.

use super::schema::{Applies, KEYWORDS, Shape};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The most schemas that may be reachable from one tool's declaration.
const MOST_NODES: usize = 4096;

/// The longest chain of schemas that apply to one value. With [`DEEPEST`] it bounds the stack of a validation.
const LONGEST_CHAIN: usize = 16;

/// The deepest arguments that are judged.
const DEEPEST: usize = 64;

/// How many bytes of text a pattern reads in the time of one look, or of ten where it is hard.
const TEXT_A_LOOK: usize = 512;

/// How many numbers or names a value is held against in the time of one look. The texts of an enum are found at once.
const OPTIONS_A_LOOK: u64 = 8;

/// How often a value is looked at, by its depth within the arguments.
#[derive(Debug)]
pub struct Weight(Vec<u64>);

impl Weight {
    /// The weight of a schema as [`super::schema::read`] leaves it; `None` where it has no bound or leads elsewhere.
    pub fn of(schema: &Value) -> Option<Self> {
        let graph = Graph::read(schema)?;
        let order = graph.order()?;
        let mut levels = Vec::with_capacity(DEEPEST);
        let mut above = vec![0_u64; graph.nodes.len()];
        for depth in 0..DEEPEST {
            let mut level = vec![0; graph.nodes.len()];
            for node in &order {
                let Node { here, named, below, reads } = &graph.nodes[*node];
                level[*node] = reads.at(depth);
                let one = named.iter().map(|child| above[*child]).max().unwrap_or(0);
                let each = below.iter().map(|child| above[*child]);
                let sum = here.iter().map(|child| level[*child]).chain(each).chain([one]);
                level[*node] = sum.fold(level[*node], u64::saturating_add);
            }
            levels.push(level[0]);
            above = level;
        }
        Some(Self(levels))
    }

    /// How many looks `value` takes at most; `None` where it is too deep to judge.
    pub fn of_value(&self, value: &Value) -> Option<u64> {
        let mut total = 0_u64;
        let mut open = vec![(value, 0, 0)];
        while let Some((value, depth, key)) = open.pop() {
            let text = value.as_str().map_or(0, str::len).saturating_add(key);
            let looks = 1 + (text / TEXT_A_LOOK) as u64;
            total = total.saturating_add(self.0.get(depth)?.saturating_mul(looks));
            match value {
                Value::Object(members) => {
                    open.extend(members.iter().map(|(key, value)| (value, depth + 1, key.len())));
                }
                Value::Array(items) => open.extend(items.iter().map(|value| (value, depth + 1, 0))),
                _ => {}
            }
        }
        Some(total)
    }
}

/// One schema's parts, by where they apply.
#[derive(Default)]
struct Node {
    here: Vec<usize>,
    named: Vec<usize>,
    below: Vec<usize>,
    reads: Reads,
}

/// What one schema looks at by itself.
#[derive(Default)]
struct Reads {
    /// The value.
    here: u64,
    /// Each of its members or items.
    parts: u64,
    /// Everything within it.
    below: u64,
}

impl Reads {
    /// What `schema` takes; more where it is one of those that keep what they have seen of a value.
    fn of(schema: &Value, keeps_seen: bool) -> Self {
        let options = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let options = options.chain(schema.get("const")).filter(|option| !option.is_string());
        let (plain, whole): (Vec<_>, Vec<_>) =
            options.partition(|option| !option.is_array() && !option.is_object());
        let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let names = schema.get("dependentRequired").and_then(Value::as_object).map_or(0, Map::len);
        Self {
            here: 1 + (plain.len() + names) as u64 / OPTIONS_A_LOOK,
            parts: u64::from(keeps_seen),
            below: whole.len() as u64 + u64::from(is_unique),
        }
    }

    /// How often a value `depth` levels down is looked at.
    fn at(&self, depth: usize) -> u64 {
        match depth {
            0 => self.here,
            1 => self.parts.saturating_add(self.below),
            _ => self.below,
        }
    }
}

/// The schemas that can be reached; the root is the first.
#[derive(Default)]
struct Graph<'a> {
    nodes: Vec<Node>,
    /// Each schema's place in memory, which names it, and its node.
    known: HashMap<usize, usize>,
    open: Vec<(usize, &'a Value)>,
}

impl<'a> Graph<'a> {
    fn read(root: &'a Value) -> Option<Self> {
        let mut graph = Self::default();
        graph.node(root)?;
        let keeps_seen = says(root, "unevaluatedProperties") || says(root, "unevaluatedItems");
        while let Some((node, schema)) = graph.open.pop() {
            graph.nodes[node].reads = Reads::of(schema, keeps_seen);
            for (applies, part) in parts(schema) {
                let part = graph.node(part)?;
                graph.nodes[node].add(applies, part);
            }
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                let target = graph.node(resolve(root, reference)?)?;
                graph.nodes[node].here.push(target);
            }
        }
        Some(graph)
    }

    fn node(&mut self, schema: &'a Value) -> Option<usize> {
        let place = std::ptr::from_ref(schema).addr();
        if let Some(known) = self.known.get(&place) {
            return Some(*known);
        }
        let node = self.nodes.len();
        self.nodes.push(Node::default());
        self.known.insert(place, node);
        self.open.push((node, schema));
        (self.nodes.len() <= MOST_NODES).then_some(node)
    }

    /// The nodes so that each follows what applies to the same value; `None` if that goes in a circle or is long.
    fn order(&self) -> Option<Vec<usize>> {
        let mut chains = vec![0; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for node in 0..self.nodes.len() {
            self.visit(node, 1, &mut chains, &mut order)?;
        }
        Some(order)
    }

    /// The length of the longest chain from `node` on. A circle ends at the bound too.
    fn visit(
        &self,
        node: usize,
        length: usize,
        chains: &mut [usize],
        order: &mut Vec<usize>,
    ) -> Option<usize> {
        if length > LONGEST_CHAIN {
            return None;
        }
        if chains[node] == 0 {
            let mut longest = 0;
            for child in &self.nodes[node].here {
                longest = longest.max(self.visit(*child, length + 1, chains, order)?);
            }
            chains[node] = longest + 1;
            order.push(node);
        }
        (chains[node] <= LONGEST_CHAIN).then_some(chains[node])
    }
}

impl Node {
    fn add(&mut self, applies: Applies, part: usize) {
        match applies {
            Applies::Here => self.here.push(part),
            Applies::Named => self.named.push(part),
            Applies::Below => self.below.push(part),
            Applies::Apart => {}
        }
    }
}

/// Whether `keyword` stands anywhere in `schema`.
fn says(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(members) => {
            members.contains_key(keyword) || members.values().any(|value| says(value, keyword))
        }
        Value::Array(items) => items.iter().any(|item| says(item, keyword)),
        _ => false,
    }
}

/// The schemas within `schema` that apply to something by themselves.
fn parts(schema: &Value) -> Vec<(Applies, &Value)> {
    let mut parts = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let shape = KEYWORDS.iter().find(|(known, _)| known == keyword).map(|(_, shape)| *shape);
        match (shape, value) {
            (Some(Shape::Schema(applies)), schema) => parts.push((applies, schema)),
            (Some(Shape::List(applies)), Value::Array(schemas)) => {
                parts.extend(schemas.iter().map(|schema| (applies, schema)));
            }
            (Some(Shape::Map(applies)), Value::Object(schemas)) if applies != Applies::Apart => {
                parts.extend(schemas.values().map(|schema| (applies, schema)));
            }
            _ => {}
        }
    }
    parts
}

/// What a reference within the same document points at.
pub fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(&percent_decoded(pointer)?).filter(|schema| schema.is_object() || schema.is_boolean())
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn weighs(schema: &Value, value: &Value) -> Option<u64> {
        Weight::of(schema)?.of_value(value)
    }

    #[test]
    fn each_part_of_a_value_counts_as_often_as_a_schema_may_look_at_it() {
        for (schema, value, expected) in [
            (json!({}), json!({"a": [1, 2]}), 1),
            (json!({"properties": {"a": {}, "b": {}}}), json!({"a": 1, "b": 2}), 3),
            (json!({"additionalProperties": {}, "patternProperties": {"^a": {}}}), json!({"a": 1}), 3),
            (json!({"anyOf": [{}, {"items": {}}]}), json!([1, 2, 3]), 6),
            (json!({"items": {"$ref": "#"}}), json!([[[]]]), 5),
            (json!({"items": {}}), json!(["x".repeat(5 * TEXT_A_LOOK)]), 7),
            (json!({"additionalProperties": {}}), json!({ "x".repeat(TEXT_A_LOOK): "x" }), 3),
            (json!({"uniqueItems": true}), json!([[1, 2], 3]), 5),
            (json!({"uniqueItems": false, "const": "a", "enum": ["a", "b"]}), json!([[1, 2], 3]), 1),
            (json!({"enum": [[1], [2], 7]}), json!([[1, 2], 3]), 9),
            (json!({"enum": Vec::from_iter(0..80)}), json!([1]), 11),
            (json!({"allOf": [{}, {"items": {}}], "unevaluatedItems": false}), json!([1, 2]), 13),
        ] {
            assert_eq!(weighs(&schema, &value), Some(expected), "{schema}");
        }
    }

    #[test]
    fn a_choice_that_doubles_at_every_level_is_seen() {
        let node = json!({"properties": {"child": {"$ref": "#/$defs/node"}}});
        let schema = json!({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [node, node]}}});
        let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "child": inner }));
        assert!(weighs(&schema, &nested(8)).unwrap() < 10_000);
        assert!(weighs(&schema, &nested(60)).unwrap() > 1 << 60);
        let doubling = |to: &str| json!({"allOf": [{"$ref": to}, {"$ref": to}]});
        let flat = json!({"$defs": {"a": doubling("#/$defs/b"), "b": doubling("#/$defs/c"), "c": {}}, "$ref": "#/$defs/a"});
        assert_eq!(weighs(&flat, &json!(1)), Some(1 + 3 + 6 + 4));
    }

    #[test]
    fn references_that_lead_nowhere_outside_or_in_a_circle_have_no_weight() {
        for reference in
            ["#/$defs/none", "https://example.com/x.json", "other.json#/a", "#anchor", "#/$defs/%zz"]
        {
            assert!(Weight::of(&json!({"$ref": reference, "$defs": {"a": {}}})).is_none(), "{reference}");
        }
        assert!(Weight::of(&json!({"$ref": "#"})).is_none());
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}});
        assert!(Weight::of(&circle).is_none());
        let chain = |length: usize| (0..length).fold(json!({}), |inner, _| json!({ "not": inner }));
        assert!(Weight::of(&chain(LONGEST_CHAIN - 1)).is_some());
        assert!(Weight::of(&chain(LONGEST_CHAIN)).is_none());
    }

    #[test]
    fn references_to_any_place_of_the_document_are_followed() {
        let schema = json!({
            "properties": {"a/b": {}, "c": {"$ref": "#/properties/a~1b"}, "d": {"$ref": "#/definitions/X%3CY%3E"}},
            "definitions": {"X<Y>": true},
        });
        assert!(Weight::of(&schema).is_some());
    }

    #[test]
    fn deep_values_and_schemas_of_many_parts_are_left_alone() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(weighs(&json!({}), &nested(DEEPEST)), None);
        assert_eq!(weighs(&json!({}), &nested(DEEPEST - 1)), Some(1));
        assert!(Weight::of(&json!({"prefixItems": vec![json!({}); MOST_NODES]})).is_none());
    }
}
