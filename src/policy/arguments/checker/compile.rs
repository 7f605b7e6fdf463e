//! Schemas of JSON into nodes. Reads what [`super::super::schema::read`] leaves; a reference may lead into what that
//! has not read, such as an example, so whatever has not the shape that is asked for gives up the whole schema.

use super::super::format::Format;
use super::super::schema::{MOST_PATTERNS, count};
use super::super::{ecma, weight};
use super::assertion::Options;
use super::{Assertion, Bound, Count, Id, Items, Members, Node, Of, Rule, Type, Types};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The keywords that look at a value alone, in the order in which they are told.
const ASSERTIONS: [&str; 17] = [
    "type",
    "const",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "format",
    "uniqueItems",
];

/// The nodes of `schema`, the root first; `None` where it is no schema.
pub fn compile(schema: &Value, are_formats_held: bool) -> Option<Vec<Node>> {
    let mut compiler =
        Compiler { root: schema, are_formats_held, patterns: 0, known: HashMap::new(), open: Vec::new() };
    compiler.id(schema);
    let mut nodes: Vec<Node> = Vec::new();
    // Each that is opened stands behind those that are done.
    while let Some(schema) = compiler.open.get(nodes.len()).copied() {
        let node = compiler.node(schema)?;
        nodes.push(node);
    }
    Some(nodes)
}

struct Compiler<'a> {
    root: &'a Value,
    are_formats_held: bool,
    patterns: usize,
    /// Each schema's place in memory, which names it, and its node.
    known: HashMap<usize, Id>,
    /// All schemas that were named, in the order of their nodes.
    open: Vec<&'a Value>,
}

type Schema<'a> = &'a Map<String, Value>;

impl<'a> Compiler<'a> {
    fn id(&mut self, schema: &'a Value) -> Id {
        let place = std::ptr::from_ref(schema).addr();
        let next = self.open.len();
        let id = *self.known.entry(place).or_insert(next);
        if id == next {
            self.open.push(schema);
        }
        id
    }

    fn node(&mut self, schema: &'a Value) -> Option<Node> {
        let schema = match schema {
            Value::Bool(true) => return Some(Node::default()),
            Value::Bool(false) => {
                return Some(Node { rules: vec![Rule::Assertion(Assertion::Nothing)], sees_rest: false });
            }
            other => other.as_object()?,
        };
        let mut rules = Vec::new();
        for keyword in ASSERTIONS {
            if let Some(value) = schema.get(keyword) {
                rules.extend(self.assertion(keyword, value)?.map(Rule::Assertion));
            }
        }
        rules.extend(self.members(schema)?.map(Rule::Members));
        rules.extend(each(schema, "required", names)?.map(Rule::Required));
        rules.extend(each(schema, "dependentRequired", named_names)?.map(Rule::DependentRequired));
        rules.extend(self.one(schema, "propertyNames").map(Rule::Names));
        rules.extend(self.items(schema)?.map(Rule::Items));
        rules.extend(self.contains(schema)?);
        rules.extend(self.named(schema, "dependentSchemas")?.map(Rule::DependentSchemas));
        rules.extend(self.list(schema, "allOf")?.map(Rule::All));
        rules.extend(self.list(schema, "anyOf")?.map(Rule::Any));
        rules.extend(self.list(schema, "oneOf")?.map(Rule::One));
        rules.extend(self.one(schema, "not").map(Rule::Not));
        if let Some(test) = self.one(schema, "if") {
            let (then, otherwise) = (self.one(schema, "then"), self.one(schema, "else"));
            rules.push(Rule::If { test, then, otherwise });
        }
        rules.extend(self.reference(schema)?);
        // Last: they see what all others have left.
        let before = rules.len();
        for (keyword, of) in [("unevaluatedProperties", Of::Members), ("unevaluatedItems", Of::Items)] {
            rules.extend(self.one(schema, keyword).map(|id| Rule::Unevaluated { of, id }));
        }
        let sees_rest = rules.len() > before;
        Some(Node { rules, sees_rest })
    }

    /// The outer `None` is for what is malformed, the inner for what asks nothing.
    fn assertion(&mut self, keyword: &str, value: &Value) -> Option<Option<Assertion>> {
        let bound = |bound| Some(Assertion::Bound(bound, value.as_number()?.clone()));
        let counted = |of, is_least| Some(Assertion::Count(Count { of, is_least, limit: count(value)? }));
        let assertion = match keyword {
            "type" => Assertion::Type(types(value)?),
            "const" => Assertion::Constant(value.clone()),
            "enum" => Assertion::Options(Options::new(value.as_array()?.clone())),
            "minimum" => bound(Bound::Minimum)?,
            "maximum" => bound(Bound::Maximum)?,
            "exclusiveMinimum" => bound(Bound::ExclusiveMinimum)?,
            "exclusiveMaximum" => bound(Bound::ExclusiveMaximum)?,
            "multipleOf" => {
                Assertion::MultipleOf(value.as_number().filter(|_| value.as_f64() > Some(0.0))?.clone())
            }
            "minLength" => counted(Of::Characters, true)?,
            "maxLength" => counted(Of::Characters, false)?,
            "minItems" => counted(Of::Items, true)?,
            "maxItems" => counted(Of::Items, false)?,
            "minProperties" => counted(Of::Members, true)?,
            "maxProperties" => counted(Of::Members, false)?,
            "pattern" => {
                let text = value.as_str()?;
                Assertion::Pattern(text.to_owned(), self.pattern(text)?)
            }
            "format" => {
                let format = Format::named(value.as_str()?).filter(|_| self.are_formats_held);
                return Some(format.map(Assertion::Format));
            }
            _ => return Some(value.as_bool()?.then_some(Assertion::Unique)),
        };
        Some(Some(assertion))
    }

    fn pattern(&mut self, text: &str) -> Option<Regex> {
        self.patterns += 1;
        if self.patterns > MOST_PATTERNS { None } else { ecma::compile(text) }
    }

    fn members(&mut self, schema: Schema<'a>) -> Option<Option<Members>> {
        let named = self.named(schema, "properties")?.unwrap_or_default();
        let mut patterns = Vec::new();
        for (text, id) in self.named(schema, "patternProperties")?.unwrap_or_default() {
            patterns.push((self.pattern(&text)?, id));
        }
        let rest = self.one(schema, "additionalProperties");
        let mut sorted: Vec<usize> = (0..named.len()).collect();
        sorted.sort_unstable_by_key(|at| named[*at].0.as_str());
        let asks = !named.is_empty() || !patterns.is_empty() || rest.is_some();
        Some(asks.then_some(Members { named, sorted, patterns, rest }))
    }

    fn items(&mut self, schema: Schema<'a>) -> Option<Option<Items>> {
        let first = self.list(schema, "prefixItems")?.unwrap_or_default();
        let rest = self.one(schema, "items");
        let asks = !first.is_empty() || rest.is_some();
        Some(asks.then_some(Items { first, rest }))
    }

    fn contains(&mut self, schema: Schema<'a>) -> Option<Option<Rule>> {
        let least = each(schema, "minContains", count)?.unwrap_or(1);
        let most = each(schema, "maxContains", count)?.unwrap_or(u64::MAX);
        Some(self.one(schema, "contains").map(|id| Rule::Contains { id, least, most }))
    }

    fn reference(&mut self, schema: Schema<'a>) -> Option<Option<Rule>> {
        let Some(reference) = schema.get("$ref") else { return Some(None) };
        let target = weight::resolve(self.root, reference.as_str()?)?;
        Some(Some(Rule::All(vec![self.id(target)])))
    }

    fn one(&mut self, schema: Schema<'a>, keyword: &str) -> Option<Id> {
        schema.get(keyword).map(|schema| self.id(schema))
    }

    fn list(&mut self, schema: Schema<'a>, keyword: &str) -> Option<Option<Vec<Id>>> {
        each(schema, keyword, |value| Some(value.as_array()?.iter().map(|schema| self.id(schema)).collect()))
    }

    fn named(&mut self, schema: Schema<'a>, keyword: &str) -> Option<Option<Vec<(String, Id)>>> {
        each(schema, keyword, |value| {
            let schemas = value.as_object()?.iter();
            Some(schemas.map(|(name, schema)| (name.clone(), self.id(schema))).collect())
        })
    }
}

/// What `read` makes of a keyword's value: `None` where it can make nothing of it, `Some(None)` where it is absent.
fn each<'a, T>(
    schema: Schema<'a>,
    keyword: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Option<Option<T>> {
    match schema.get(keyword) {
        Some(value) => read(value).map(Some),
        None => Some(None),
    }
}

fn types(value: &Value) -> Option<Types> {
    let names = match value {
        Value::Array(names) => names.as_slice(),
        single => std::slice::from_ref(single),
    };
    let types: Option<Vec<Type>> = names.iter().map(|name| Type::named(name.as_str()?)).collect();
    types.map(Types::new)
}

/// Names, each once.
fn names(value: &Value) -> Option<Vec<String>> {
    let mut known = HashSet::new();
    let names: Option<Vec<&str>> = value.as_array()?.iter().map(Value::as_str).collect();
    Some(names?.into_iter().filter(|name| known.insert(*name)).map(str::to_owned).collect())
}

fn named_names(value: &Value) -> Option<Vec<(String, Vec<String>)>> {
    value.as_object()?.iter().map(|(name, value)| Some((name.clone(), names(value)?))).collect()
}
