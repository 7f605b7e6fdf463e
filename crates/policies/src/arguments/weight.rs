//! The cost bound of a schema: what it refers to, how often the library checks each part of a value at most, and how
//! much memory its errors take. A schema whose references form a cycle without going deeper has no such bound, and
//! one that refers to another document cannot be used. Analyses schemas; validates nothing.

use super::schema::{Applies, Shape, shape_of};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The most schemas that may be reachable from one tool's declaration.
const MOST_NODES: usize = 4096;

/// The longest chain of schemas that apply to one value. With [`DEEPEST`] it bounds the stack of a validation.
const LONGEST_CHAIN: usize = 16;

/// The deepest arguments that are judged.
const DEEPEST: usize = 64;

/// How many bytes of text a pattern matches in the time of one check, or of ten where it is slow.
const TEXT_A_LOOK: usize = 512;

/// How many options or names a value is compared with in the time of one check. An enum of strings only is a hash
/// set.
const OPTIONS_A_LOOK: u64 = 8;

/// How many checks for a verdict take the time of one for errors.
const VERDICT_LOOKS_A_REPORT: u64 = 10;

/// The keywords for which the library takes a verdict before it collects errors.
const TRYING: [&str; 5] = ["anyOf", "oneOf", "if", "not", "contains"];

/// How often a value is checked, by its depth within the arguments.
#[derive(Debug)]
pub struct Weight {
    verdict: Vec<u64>,
    report: Vec<u64>,
}

/// How many checks a validation takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// For the verdict alone.
    pub verdict: u64,
    /// For all errors; in memory, each takes some hundreds of bytes.
    pub report: u64,
}

impl Weight {
    /// The weight of a schema as [`super::schema::read`] returns it; `None` where it has no bound or refers to
    /// another document.
    pub fn of(schema: &Value) -> Option<Self> {
        let graph = Graph::read(schema)?;
        let order = graph.order()?;
        let mut weight = Self { verdict: Vec::with_capacity(DEEPEST), report: Vec::with_capacity(DEEPEST) };
        let mut above = vec![Counts::default(); graph.nodes.len()];
        for depth in 0..DEEPEST {
            let mut level = vec![Counts::default(); graph.nodes.len()];
            for node in &order {
                level[*node] = graph.nodes[*node].counts(depth, &level, &above);
            }
            weight.verdict.push(level[0].verdict);
            weight.report.push(level[0].report);
            above = level;
        }
        Some(weight)
    }

    /// How many checks `value` takes at most; `None` where it is too deep to judge.
    pub fn of_value(&self, value: &Value) -> Option<Looks> {
        let mut looks = Looks { verdict: 0, report: 0 };
        let mut open = vec![(value, 0, 0, 0)];
        while let Some((value, depth, key, path)) = open.pop() {
            let text = 1 + (value.as_str().map_or(0, str::len).saturating_add(key) / TEXT_A_LOOK) as u64;
            // Each error holds its path.
            let path = path + key;
            let reported = text.saturating_add((path / TEXT_A_LOOK) as u64);
            looks.verdict = looks.verdict.saturating_add(self.verdict.get(depth)?.saturating_mul(text));
            looks.report = looks.report.saturating_add(self.report.get(depth)?.saturating_mul(reported));
            match value {
                Value::Object(members) => {
                    open.extend(members.iter().map(|(key, value)| (value, depth + 1, key.len(), path)));
                }
                Value::Array(items) => open.extend(items.iter().map(|value| (value, depth + 1, 0, path))),
                _ => {}
            }
        }
        Some(looks)
    }
}

/// How often one schema makes the library check a value some levels down.
#[derive(Clone, Copy, Default)]
struct Counts {
    verdict: u64,
    /// To find what the schema has evaluated, for an `unevaluated` keyword above it.
    evaluated: u64,
    report: u64,
}

/// One schema's parts, by where they apply.
#[derive(Default)]
struct Node {
    here: Vec<usize>,
    named: Vec<usize>,
    below: Vec<usize>,
    /// The schemas of what nothing else has evaluated.
    rest: Vec<usize>,
    /// What it looks at by itself.
    verdict: Reads,
    report: Reads,
    /// Whether the library takes a verdict before it collects errors.
    tries_first: bool,
}

impl Node {
    /// The counts `depth` levels down, from those of its parts: `level` at the same depth, `above` one less.
    fn counts(&self, depth: usize, level: &[Counts], above: &[Counts]) -> Counts {
        let sum = |parts: &[usize], of: &[Counts], count: fn(&Counts) -> u64| {
            parts.iter().map(|part| count(&of[*part])).fold(0, u64::saturating_add)
        };
        let parts = |count: fn(&Counts) -> u64| {
            let named = self.named.iter().map(|part| count(&above[*part])).max().unwrap_or(0);
            sum(&self.here, level, count).saturating_add(sum(&self.below, above, count)).saturating_add(named)
        };
        let (verdict, report) = (|counts: &Counts| counts.verdict, |counts: &Counts| counts.report);
        // The library validates each part that applies to the value once more, and asks what it has evaluated.
        let evaluated = sum(&self.here, level, |counts| counts.verdict.saturating_add(counts.evaluated))
            .saturating_add(sum(&self.rest, above, verdict));
        let again = if self.rest.is_empty() { 0 } else { evaluated };
        let verdicts = self.verdict.at(depth).saturating_add(parts(verdict)).saturating_add(again);
        let tries_first = self.tries_first || !self.rest.is_empty();
        let first = if tries_first { verdicts / VERDICT_LOOKS_A_REPORT } else { 0 };
        let reports = self.report.at(depth).saturating_add(parts(report)).saturating_add(first);
        Counts {
            verdict: verdicts,
            evaluated,
            report: reports.saturating_add(sum(&self.rest, above, report)),
        }
    }

    fn add(&mut self, applies: Applies, part: usize) {
        match applies {
            Applies::Here => self.here.push(part),
            Applies::Named => self.named.push(part),
            Applies::Below => self.below.push(part),
            Applies::Rest => self.rest.push(part),
            Applies::Apart => {}
        }
    }
}

/// What one schema checks by itself.
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
    /// For the verdict of `schema`; more where it is one of those that note what they have evaluated.
    fn for_verdict(schema: &Value, notes_evaluated: bool) -> Self {
        let options = schema.get("enum").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let options = if options.iter().all(Value::is_string) { &[][..] } else { options };
        let whole = options.iter().chain(schema.get("const"));
        let whole = whole.filter(|option| option.is_array() || option.is_object()).count();
        let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let names = schema.get("dependentRequired").and_then(Value::as_object).map_or(0, Map::len);
        Self {
            here: 1 + (options.len() + names + required(schema)) as u64 / OPTIONS_A_LOOK,
            parts: u64::from(notes_evaluated),
            below: whole as u64 + u64::from(is_unique),
        }
    }

    /// For the errors of `schema`: each missing name is one, and some hold a copy of what the schema says. In a schema
    /// with unions an error may hold a copy of the value.
    fn for_report(schema: &Value, verdict: &Self, has_unions: bool) -> Self {
        let named = schema.get("dependentRequired").and_then(Value::as_object).into_iter().flatten();
        let named = named.filter_map(|(_, names)| names.as_array()).map(Vec::len).sum::<usize>();
        let errors = verdict.here.max((required(schema) + named) as u64);
        Self {
            here: errors + (schema.to_string().len() / TEXT_A_LOOK) as u64,
            parts: verdict.parts,
            below: verdict.below + u64::from(has_unions),
        }
    }

    /// How often a value `depth` levels down is checked.
    fn at(&self, depth: usize) -> u64 {
        match depth {
            0 => self.here,
            1 => self.parts.saturating_add(self.below),
            _ => self.below,
        }
    }
}

/// How many members `schema` requires.
fn required(schema: &Value) -> usize {
    schema.get("required").and_then(Value::as_array).map_or(0, Vec::len)
}

/// The schemas that can be reached; the root is the first.
#[derive(Default)]
struct Graph<'a> {
    nodes: Vec<Node>,
    /// Each schema's address in memory, which identifies it, and its node.
    known: HashMap<usize, usize>,
    open: Vec<(usize, &'a Value)>,
}

impl<'a> Graph<'a> {
    fn read(root: &'a Value) -> Option<Self> {
        let mut graph = Self::default();
        graph.node(root)?;
        let notes_evaluated = says(root, "unevaluatedProperties") || says(root, "unevaluatedItems");
        let has_unions = says(root, "anyOf") || says(root, "oneOf");
        while let Some((node, schema)) = graph.open.pop() {
            let verdict = Reads::for_verdict(schema, notes_evaluated);
            let tries_first = TRYING.iter().any(|keyword| schema.get(keyword).is_some());
            let report = Reads::for_report(schema, &verdict, has_unions);
            graph.nodes[node] = Node { verdict, report, tries_first, ..Node::default() };
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
        let address = std::ptr::from_ref(schema).addr();
        if let Some(known) = self.known.get(&address) {
            return Some(*known);
        }
        let node = self.nodes.len();
        self.nodes.push(Node::default());
        self.known.insert(address, node);
        self.open.push((node, schema));
        (self.nodes.len() <= MOST_NODES).then_some(node)
    }

    /// The nodes, each after those that apply to the same value; `None` if these form a cycle or a long chain.
    fn order(&self) -> Option<Vec<usize>> {
        let mut chains = vec![0; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for node in 0..self.nodes.len() {
            self.visit(node, 1, &mut chains, &mut order)?;
        }
        Some(order)
    }

    /// The length of the longest chain from `node` on. A cycle ends at the bound too.
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

/// Whether `keyword` is anywhere in `schema`.
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
        match (shape_of(keyword), value) {
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

/// The schema that a reference within the same document points at; `None` for anything else, such as an example, which
/// has not been through [`super::schema::read`].
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    if pointer.is_empty() {
        return Some(root);
    }
    let mut segments = pointer.strip_prefix('/')?.split('/');
    let mut schema = root;
    while let Some(keyword) = segments.next() {
        let value = schema.get(keyword)?;
        schema = match shape_of(keyword)? {
            Shape::Schema(_) => value,
            Shape::List(_) | Shape::Map(_) => value.pointer(&format!("/{}", segments.next()?))?,
            _ => return None,
        };
    }
    Some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn weighs(schema: &Value, value: &Value) -> Option<u64> {
        Weight::of(schema)?.of_value(value).map(|looks| looks.verdict)
    }

    #[test]
    fn the_weight_of_a_value_counts_every_visit_by_the_schema() {
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
            (json!({"allOf": [{}, {"items": {}}], "unevaluatedItems": false}), json!([1, 2]), 21),
        ] {
            assert_eq!(weighs(&schema, &value), Some(expected), "{schema}");
        }
    }

    #[test]
    fn the_weight_of_an_error_report_includes_its_contents() {
        let reports =
            |schema: &Value, value: &Value| Weight::of(schema).unwrap().of_value(value).unwrap().report;
        let names: Vec<String> = (0..5_000).map(|at| format!("n{at}")).collect();
        let copied = |member: Value| json!({"properties": {"a": member}});
        let long = json!({"a": {"b": "x".repeat(1 << 20)}});
        for (schema, value, least) in [
            (json!({"items": {"required": names}}), json!(vec![json!({}); 20]), 100_000),
            (
                json!({"additionalProperties": {"items": {}}}),
                json!({ "k".repeat(1 << 20): vec![1; 50] }),
                100_000,
            ),
            (copied(json!({"anyOf": vec![json!({"type": "null"}); 50]})), long, 100_000),
            (json!({"items": {"not": {"const": "x".repeat(60_000)}}}), json!(vec![1; 1_000]), 100_000),
            (json!({"items": {"pattern": "b".repeat(60_000)}}), json!(vec!["a"; 1_000]), 100_000),
        ] {
            assert!(reports(&schema, &value) >= least, "{:.100}", schema.to_string());
        }
        assert_eq!(reports(&json!({"items": {"required": ["a"]}}), &json!([{}, {}])), 3);
    }

    #[test]
    fn nested_unevaluated_items_multiply_the_weight() {
        let nested = |levels: usize| {
            (0..levels).fold(
                json!({"unevaluatedItems": false}),
                |inner, _| json!({"allOf": [inner], "unevaluatedItems": false}),
            )
        };
        assert!(weighs(&nested(3), &json!([1])).unwrap() < 200);
        assert!(weighs(&nested(14), &json!([1])).unwrap() > 1 << 14);
    }

    #[test]
    fn alternatives_that_double_at_every_level_are_weighed() {
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
    fn dangling_external_and_cyclic_references_have_no_weight() {
        for reference in [
            "#/$defs/none",
            "https://example.com/x.json",
            "other.json#/a",
            "#name",
            "#/$defs/%zz",
            "#/$defs",
            "#/const/a",
        ] {
            let schema = json!({"$ref": reference, "$defs": {"a": {}}, "const": {"a": {}}});
            assert!(Weight::of(&schema).is_none(), "{reference}");
        }
        assert!(Weight::of(&json!({"$ref": "#"})).is_none());
        let cycle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}});
        assert!(Weight::of(&cycle).is_none());
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
