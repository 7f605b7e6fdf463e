//! The checker beside the crate `jsonschema`, over random schemas of all keywords and values that touch them: one
//! verdict, and the same keywords broken at the same places. Left out by name: `format`, since ours are outlines.

use super::*;
use jsonschema::Draft;
use proptest::prelude::*;
use std::collections::BTreeSet;

const NAMES: [&str; 5] = ["a", "b", "ab", "c", "x1"];
const TEXTS: [&str; 9] = ["", "a", "b", "ab", "abc", "é1", "7", "x1", "A b"];
const PATTERNS: [&str; 8] = ["^a", "b$", "^[a-c]+$", r"\d", r"^\w*$", "^.$", r"[^\s]{2}", "^(a|x)1?$"];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];
const REFERENCES: [&str; 6] =
    ["#/$defs/a", "#/$defs/b", "#", "#/properties/a", "#/definitions/c", "#/allOf/0"];

/// What a run of random numbers chooses.
struct Dice<'a>(std::slice::Iter<'a, u16>);

impl Dice<'_> {
    /// A number below `sides`; the first once the run is over.
    fn roll(&mut self, sides: usize) -> usize {
        self.0.next().map_or(0, |roll| usize::from(*roll) % sides)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }

    fn number(&mut self) -> Value {
        self.pick(&[
            json!(0),
            json!(1),
            json!(1.0),
            json!(2),
            json!(3),
            json!(-1),
            json!(0.5),
            json!(1.5),
            json!(0.07),
            json!(1e3),
            json!(2.5),
            json!(-0.0),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992.0),
        ])
    }

    fn names(&mut self) -> Value {
        (0..1 + self.roll(2)).map(|_| self.pick(&NAMES)).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.roll(if depth == 0 { 5 } else { 9 }) {
            0 => json!(null),
            1 => json!(self.roll(2) == 0),
            2 => self.number(),
            3 | 4 => json!(self.pick(&TEXTS)),
            5 | 6 => (0..self.roll(4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.object(depth, Self::value),
        }
    }

    fn object(&mut self, depth: usize, mut of: impl FnMut(&mut Self, usize) -> Value) -> Value {
        let members = (0..self.roll(4)).map(|_| (self.pick(&NAMES).to_owned(), of(self, depth - 1)));
        Value::Object(members.collect())
    }

    fn schema(&mut self, depth: usize) -> Value {
        match self.roll(12) {
            0 => return json!(true),
            1 => return json!(false),
            _ => {}
        }
        let keywords = 1 + self.roll(3);
        let members = (0..keywords).map(|_| {
            let (keyword, shape) = self.pick(schema::KEYWORDS);
            (keyword.to_owned(), self.keyword(keyword, shape, depth))
        });
        Value::Object(members.collect())
    }

    fn keyword(&mut self, keyword: &str, shape: schema::Shape, depth: usize) -> Value {
        use schema::Shape;
        let depth = depth.saturating_sub(1);
        let part = |dice: &mut Self, _| if depth == 0 { dice.leaf() } else { dice.schema(depth) };
        match shape {
            Shape::Schema(_) => part(self, 0),
            Shape::List(_) => (0..1 + self.roll(3)).map(|_| part(self, 0)).collect(),
            Shape::Map(_) if keyword == "patternProperties" => {
                json!({ self.pick(&PATTERNS): part(self, 0), self.pick(&PATTERNS): part(self, 0) })
            }
            Shape::Map(_) => self.object(1, part),
            Shape::Count => self.pick(&[json!(1), json!(0), json!(2), json!(2.0), json!(3)]),
            Shape::Number => self.number(),
            Shape::Positive => {
                self.pick(&[json!(1), json!(2), json!(0.5), json!(0.01), json!(1.5), json!(3.0)])
            }
            Shape::Flag => json!(self.roll(3) > 0),
            Shape::Pattern => json!(self.pick(&PATTERNS)),
            Shape::Text if keyword == "$ref" => json!(self.pick(&REFERENCES)),
            Shape::Text => json!("date"),
            Shape::Names => self.names(),
            Shape::NamesByName => json!({ self.pick(&NAMES): self.names() }),
            Shape::Type if self.roll(2) == 0 => json!([self.pick(&TYPES), self.pick(&TYPES)]),
            Shape::Type => json!(self.pick(&TYPES)),
            Shape::Options => (0..1 + self.roll(4)).map(|_| self.value(1)).collect(),
            Shape::Anything => self.value(2),
        }
    }

    fn leaf(&mut self) -> Value {
        match self.roll(4) {
            0 => json!({ "type": self.pick(&TYPES) }),
            1 => json!({ "$ref": self.pick(&REFERENCES) }),
            2 => json!({ "minimum": self.number(), "minLength": 1, "required": self.names() }),
            _ => json!({ "const": self.value(1) }),
        }
    }

    fn root(&mut self) -> Value {
        let mut root = self.schema(4);
        if let Some(root) = root.as_object_mut() {
            root.insert("$defs".to_owned(), json!({"a": self.schema(3), "b": self.schema(2)}));
            root.insert("definitions".to_owned(), json!({"c": self.leaf()}));
        }
        root
    }

    /// A value that is likely to reach what `schema` says.
    fn reaching(&mut self, schema: &Value, depth: usize) -> Value {
        let Some(schema) = schema.as_object().filter(|schema| depth > 0 && !schema.is_empty()) else {
            return self.value(depth);
        };
        let keywords: Vec<&String> = schema.keys().collect();
        let keyword = self.pick(&keywords);
        let value = &schema[keyword.as_str()];
        match (keyword.as_str(), value) {
            ("const", value) => value.clone(),
            ("enum", Value::Array(options)) => self.pick(options),
            ("items" | "contains" | "unevaluatedItems", inner) => {
                (0..1 + self.roll(3)).map(|_| self.reaching(inner, depth - 1)).collect()
            }
            ("prefixItems", Value::Array(first)) => {
                let more = self.roll(2);
                let first: Vec<Value> = first.iter().map(|inner| self.reaching(inner, depth - 1)).collect();
                first.into_iter().chain((0..more).map(|_| self.value(depth - 1))).collect()
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) if !branches.is_empty() => {
                let branch = self.pick(branches);
                self.reaching(&branch, depth)
            }
            ("not" | "if" | "then" | "else", inner) => self.reaching(inner, depth),
            ("uniqueItems" | "minItems" | "maxItems" | "minContains" | "maxContains", _) => {
                (0..self.roll(4)).map(|_| self.value(1)).collect()
            }
            ("pattern" | "minLength" | "maxLength", _) => json!(self.pick(&TEXTS)),
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", _) => {
                self.number()
            }
            ("type", _) => self.value(depth),
            _ => self.members(schema, depth),
        }
    }

    /// An object with the members that `schema` names.
    fn members(&mut self, schema: &serde_json::Map<String, Value>, depth: usize) -> Value {
        let Value::Object(mut members) = self.object(depth, Self::value) else { return json!({}) };
        let named = schema.get("properties").and_then(Value::as_object);
        for (name, inner) in named.into_iter().flatten().filter(|_| self.roll(4) > 0).collect::<Vec<_>>() {
            members.insert(name.clone(), self.reaching(inner, depth - 1));
        }
        let inner =
            ["additionalProperties", "unevaluatedProperties"].iter().find_map(|name| schema.get(*name));
        if let Some(inner) = inner {
            members.insert("x1".to_owned(), self.reaching(inner, depth - 1));
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|_| self.roll(4) > 0).collect::<Vec<_>>() {
            members.entry(name).or_insert(json!(1));
        }
        Value::Object(members)
    }
}

fn second_opinion(schema: &Value) -> Option<jsonschema::Validator> {
    let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(false);
    options.with_pattern_options(jsonschema::PatternOptions::regex()).offline().build(schema).ok()
}

/// Errors as both tell them. The other calls a lone `additionalProperties` or `propertyNames` that is `false` the schema
/// `false`; and where `oneOf` fits twice, we still count as looked at what its branches have looked at.
fn common<'a>(errors: impl Iterator<Item = (String, &'a str)>) -> BTreeSet<(String, &'a str)> {
    let names = errors.map(|(place, keyword)| match keyword {
        "additionalProperties" | "propertyNames" => (place, "falseSchema"),
        keyword => (place, keyword),
    });
    let all: BTreeSet<_> = names.collect();
    let is_told = |(place, keyword): &(String, &str)| {
        !keyword.starts_with("unevaluated") || !all.contains(&(place.clone(), "oneOf"))
    };
    all.iter().filter(|error| is_told(error)).cloned().collect()
}

/// Whether numbers are to be divided that the other rounds to a float before: 2^64-1 is a multiple of 1.5.
fn is_beyond_the_other(schema: &Value, value: &Value) -> bool {
    let (schema, value) = (schema.to_string(), value.to_string());
    schema.contains("multipleOf")
        && ["18446744073709551615", "9223372036854775808", "900719925474099"]
            .iter()
            .any(|number| value.contains(number))
}

proptest! {
    #[test]
    fn another_validator_says_the_same(
        shape in prop::collection::vec(any::<u16>(), 1..150),
        values in prop::collection::vec(prop::collection::vec(any::<u16>(), 1..60), 4),
    ) {
        let written = Dice(shape.iter()).root();
        let Some(schema) = schema::read(&written).filter(|schema| Weight::of(schema).is_some()) else {
            return Ok(());
        };
        let ours = Checker::compile(&schema, false);
        let theirs = second_opinion(&schema);
        // The other gives up schemas that name something twice in `required`.
        prop_assert!(ours.is_some() || theirs.is_none(), "{}", schema);
        let Some((ours, theirs)) = ours.zip(theirs) else { return Ok(()) };
        for rolls in values {
            let mut dice = Dice(rolls.iter());
            let value = if dice.roll(4) == 0 { dice.value(3) } else { dice.reaching(&schema, 4) };
            if is_beyond_the_other(&schema, &value) {
                continue;
            }
            let fits = ours.is_valid(&value);
            prop_assert_eq!(fits, theirs.is_valid(&value), "{} {}", schema, value);
            let errors = ours.errors(&value).unwrap();
            prop_assert_eq!(fits, errors.is_empty(), "{} {}", schema, value);
            let ours = errors.iter().map(|error| (error.place.clone(), error.kind.keyword()));
            let found: Vec<_> = theirs.iter_errors(&value).collect();
            let theirs =
                found.iter().map(|error| (error.instance_path().as_str().to_owned(), error.kind().keyword()));
            let (ours, theirs) = (common(ours), common(theirs));
            prop_assert_eq!(ours, theirs, "{} {}", schema, value);
        }
    }
}
