//! The checker beside the crate `jsonschema`, over random schemas of all keywords and values that touch them: one
//! verdict, and the same keywords broken at the same places. Patterns match the same texts, and of formats we refuse
//! no text that the other takes.

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

/// Parts of patterns that both read alike: the other's `\b` heeds letters beyond ASCII.
const PARTS: [&str; 39] = [
    "a", "b", "é", "^", "$", "|", "(", "(?:", ")", "*", "+", "?", "{2}", "{1,}", "{0,2}", r"\d", r"\D",
    r"\w", r"\W", r"\s", r"\S", r"\.", r"\/", r"\-", "[a-c]", "[^a-c]", r"[\d-]", r"[^\w]", r"[\s\S]",
    "[a&&b]", "[a~~]", "[[a]", r"[\]]", ".", "(?i)", r"\cJ", r"\x61", r"[a\-c]", "[/.{}]",
];

/// Texts of each format, to be changed in one place.
const FORMATS: [(&str, &str); 24] = [
    ("date", "2024-02-29"),
    ("date", "2026-12-31"),
    ("time", "23:59:60Z"),
    ("time", "12:30:59.25+01:00"),
    ("date-time", "2026-01-31T23:59:60-00:00"),
    ("duration", "P1Y2M3DT4H5M6S"),
    ("duration", "P10W"),
    ("duration", "PT1H2S"),
    ("email", "a.b@example.org"),
    ("email", "\"a b\"@c.d"),
    ("email", "a@[127.0.0.1]"),
    ("hostname", "a-b.example.org"),
    ("hostname", "x"),
    ("ipv4", "127.0.0.1"),
    ("ipv6", "2001:db8::1:2"),
    ("ipv6", "::ffff:1.2.3.4"),
    ("uri", "https://a@b.example:80/c/d?e=%20f#g"),
    ("uri", "urn:a:b"),
    ("uri", "http://[::1]/"),
    ("uri-reference", "../a/b?c#d"),
    ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
    ("regex", "^(?:a|[b-d]+)*x{2,3}$"),
    ("json-pointer", "/a~1b/0/~0"),
    ("color", "red"),
];

/// What stands there instead: none of `-./`, which the other takes for digits of a date.
const WITH: [&str; 15] = ["", "0", "9", "a", ":", "@", "%", "T", "Z", "P", "~", "(", "é", "1W", "+01:00"];

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
            ("uniqueItems", _) => {
                let alike =
                    [json!(1), json!(1.0), json!({"a": 1, "b": []}), json!({"b": [], "a": 1.0}), json!("1")];
                (0..self.roll(4)).map(|_| self.pick(&alike)).collect()
            }
            ("minItems" | "maxItems" | "minContains" | "maxContains", _) => {
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

/// What is random must reach what it is meant to try.
#[test]
fn random_values_break_every_keyword_and_often_fit() {
    let mut state = 1_u32;
    let mut rolls = |number: usize| -> Vec<u16> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as u16
        };
        (0..number).map(next).collect()
    };
    let (mut fitting, mut all, mut keywords) = (0, 0, BTreeSet::new());
    for _ in 0..6_000 {
        let (shape, value) = (rolls(150), rolls(60));
        let schema = schema::read(&Dice(shape.iter()).root()).filter(|schema| Weight::of(schema).is_some());
        let Some((schema, ours)) =
            schema.and_then(|schema| Some((schema.clone(), Checker::compile(&schema, false)?)))
        else {
            continue;
        };
        let value = Dice(value.iter()).reaching(&schema, 4);
        let errors = ours.errors(&value).unwrap();
        all += 1;
        fitting += usize::from(errors.is_empty());
        keywords.extend(errors.iter().map(|error| error.kind.keyword()));
    }
    println!("{fitting} of {all} fit");
    assert!(all > 3_000 && fitting * 5 > all && (all - fitting) * 5 > all, "{fitting} of {all}");
    let told = |keyword: &str| match keyword {
        "$ref" | "$defs" | "definitions" | "properties" | "patternProperties" | "dependentRequired" => false,
        "dependentSchemas" | "prefixItems" | "items" | "minContains" | "maxContains" | "allOf" => false,
        keyword => !matches!(keyword, "if" | "then" | "else" | "format"),
    };
    let missing = schema::KEYWORDS.iter().map(|(keyword, _)| *keyword).filter(|keyword| told(keyword));
    assert_eq!(missing.filter(|keyword| !keywords.contains(keyword)).collect::<Vec<_>>(), [""; 0]);
}

/// Errors as both tell them. The other calls a lone `additionalProperties` or `propertyNames` that is `false` the schema
/// `false`. Where a value is broken anyway, the two differ on what a schema that fails has looked at.
fn common<'a>(errors: impl Iterator<Item = (String, &'a str)>) -> BTreeSet<(String, &'a str)> {
    let names = errors.map(|(place, keyword)| match keyword {
        "additionalProperties" | "propertyNames" => (place, "falseSchema"),
        keyword => (place, keyword),
    });
    let (rest, others): (BTreeSet<_>, BTreeSet<_>) =
        names.partition(|(_, keyword)| keyword.starts_with("unevaluated"));
    let is_broken = |place: &str| others.iter().any(|(other, _)| other.starts_with(place));
    let rest: Vec<_> = rest.into_iter().filter(|(place, _)| !is_broken(place)).collect();
    others.into_iter().chain(rest).collect()
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
    #[test]
    fn patterns_match_the_same_texts(
        parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 1..6),
        texts in prop::collection::vec("[-a-d0-2A _/\\\\.{}\\[\\]é\u{a0}\u{feff}&~]{0,4}", 6),
    ) {
        let pattern = parts.concat();
        let theirs = second_opinion(&json!({ "pattern": pattern }));
        let Some((ours, theirs)) = super::super::super::ecma::compile(&pattern).zip(theirs) else {
            return Ok(());
        };
        for text in texts {
            prop_assert_eq!(ours.is_match(&text), theirs.is_valid(&json!(text)), "{} {}", pattern, text);
        }
    }

    #[test]
    fn no_format_refuses_what_the_other_takes(
        (name, text) in prop::sample::select(&FORMATS[..]),
        at in any::<prop::sample::Index>(),
        with in prop::sample::select(&WITH[..]),
    ) {
        let mut text: Vec<String> = text.chars().map(String::from).collect();
        let at = at.index(text.len());
        text[at] = with.to_owned();
        let text = text.concat();
        let theirs = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        let theirs = theirs.build(&json!({ "format": name })).unwrap();
        let ours = Checker::compile(&json!({ "format": name }), true).unwrap();
        prop_assert!(ours.is_valid(&json!(text)) || !theirs.is_valid(&json!(text)), "{} {}", name, text);
    }
}
