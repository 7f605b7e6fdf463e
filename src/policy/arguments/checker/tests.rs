//! Cases of single keywords, and the bounds that hold whatever the schema.

use super::super::schema;
use super::super::weight::Weight;
use super::*;
use serde_json::json;

mod differential;

fn checker(schema: &Value) -> Checker {
    Checker::compile(schema, false).unwrap_or_else(|| panic!("{schema}"))
}

/// Where `value` breaks `schema`, by which keyword.
fn broken(schema: &Value, value: &Value) -> Vec<(String, &'static str)> {
    let checker = checker(schema);
    let errors = checker.errors(value).unwrap();
    assert_eq!(errors.is_empty(), checker.is_valid(value), "{schema} {value}");
    errors.iter().map(|error| (error.place.clone(), error.kind.keyword())).collect()
}

fn assert_breaks(schema: &Value, cases: &[(Value, &[(&str, &str)])]) {
    for (value, expected) in cases {
        let expected: Vec<_> =
            expected.iter().map(|(place, keyword)| ((*place).to_owned(), *keyword)).collect();
        assert_eq!(broken(schema, value), expected, "{schema} {value}");
    }
}

#[test]
fn the_rest_is_what_no_fitting_schema_has_looked_at() {
    let schema = json!({
        "properties": {"kind": {"type": "string"}},
        "anyOf": [
            {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": true}, "required": ["b"]},
        ],
        "if": {"properties": {"kind": {"const": "c"}}, "required": ["kind"]},
        "then": {"$ref": "#/$defs/c"},
        "dependentSchemas": {"d": {"properties": {"d": true, "e": true}}},
        "unevaluatedProperties": false,
        "$defs": {"c": {"properties": {"c": true}}},
    });
    assert_breaks(
        &schema,
        &[
            (json!({"kind": "x", "a": 1, "b": 2}), &[]),
            (json!({"kind": "c", "a": 1, "c": 2}), &[]),
            (json!({"b": 1, "d": 1, "e": 2}), &[]),
            (json!({"kind": "x", "a": 1, "c": 2}), &[("", "unevaluatedProperties")]),
            (json!({"a": "no", "b": 2}), &[("", "unevaluatedProperties")]),
            (json!({"b": 2, "e": 2}), &[("", "unevaluatedProperties")]),
        ],
    );
    let schema = json!({
        "prefixItems": [{"type": "string"}],
        "contains": {"type": "integer"},
        "unevaluatedItems": {"type": "null"},
    });
    assert_breaks(
        &schema,
        &[
            (json!(["a", 1, null, 2]), &[]),
            (json!(["a", 1, true]), &[("", "unevaluatedItems")]),
            (json!(["a"]), &[("", "contains")]),
        ],
    );
}

/// So that what is excused of it does not come back by another name.
#[test]
fn what_must_fit_and_does_not_has_looked_all_the_same() {
    for keyword in [json!({"allOf": [7]}), json!({"$ref": "#/$defs/a"}), json!({"if": true, "then": 7})] {
        let inner = json!({"properties": {"unit": {"enum": ["C"]}}});
        let schema = keyword.to_string().replace('7', &inner.to_string());
        let mut schema: Value = serde_json::from_str(&schema).unwrap();
        schema["$defs"] = json!({ "a": inner });
        schema["unevaluatedProperties"] = json!(false);
        assert_breaks(&schema, &[(json!({"unit": "K"}), &[("/unit", "enum")])]);
    }
}

#[test]
fn counts_of_what_an_array_contains_have_two_sides() {
    let bounded = |least: Value, most: Value| json!({"contains": {"const": 1}, "minContains": least, "maxContains": most});
    for (schema, value, fits) in [
        (bounded(json!(0), json!(1)), json!([]), true),
        (bounded(json!(0), json!(1.0)), json!([1, 1]), false),
        (bounded(json!(2.0), json!(3)), json!([1]), false),
        (bounded(json!(2), json!(3)), json!([1, 0, 1.0]), true),
        (json!({"contains": {"const": 1}, "maxContains": 1}), json!([0]), false),
        (json!({"minContains": 1}), json!([]), true),
    ] {
        assert_eq!(checker(&schema).is_valid(&value), fits, "{schema} {value}");
    }
}

#[test]
fn lengths_are_those_of_characters() {
    for (schema, value, fits) in [
        (json!({"minLength": 2}), json!("é"), false),
        (json!({"minLength": 2}), json!("éé"), true),
        (json!({"minLength": 2, "maxLength": 2.0}), json!("😀😀"), true),
        (json!({"maxLength": 1}), json!("😀😀"), false),
        (json!({"minLength": 0}), json!(""), true),
        (json!({"minLength": u64::MAX}), json!("a"), false),
        (json!({"minLength": 3}), json!(1), true),
    ] {
        assert_eq!(checker(&schema).is_valid(&value), fits, "{schema} {value}");
    }
}

#[test]
fn what_stands_beside_a_reference_holds_too() {
    let schema = json!({"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"minimum": 1}}});
    assert_breaks(
        &schema,
        &[(json!(0), &[("", "minimum")]), (json!(4), &[("", "maximum")]), (json!(2), &[])],
    );
}

#[test]
fn places_are_those_of_the_value_and_errors_of_branches_hang_on_the_union() {
    let schema =
        json!({"properties": {"a/b": {"items": {"anyOf": [{"type": "null"}, {"required": ["x"]}]}}}});
    let value = json!({"a/b": [null, {}]});
    let checker = checker(&schema);
    let errors = checker.errors(&value).unwrap();
    let [Error { place, kind: Kind::Any(branches), .. }] = errors.as_slice() else { panic!() };
    assert_eq!(place, "/a~1b/1");
    let keywords: Vec<Vec<_>> =
        branches.iter().map(|branch| branch.iter().map(|error| error.kind.keyword()).collect()).collect();
    assert_eq!(keywords, [["type"], ["required"]]);
}

#[test]
fn a_reference_into_what_is_no_schema_gives_up_the_whole() {
    for pointed in [
        json!({"type": "nothing"}),
        json!({"type": []}),
        json!({"pattern": "("}),
        json!({"minLength": -1}),
        json!({"multipleOf": 0}),
        json!({"required": [1]}),
        json!({"enum": 1}),
        json!({"allOf": {}}),
        json!({"properties": []}),
        json!({"properties": {"a": 7}}),
        json!({"items": [{}]}),
        json!({"$ref": "elsewhere"}),
        json!({"allOf": vec![json!({"pattern": "a"}); schema::MOST_PATTERNS + 1]}),
    ] {
        let schema = json!({"properties": {"a": {"$ref": "#/properties/b/const"}, "b": {"const": pointed}}});
        assert!(
            Checker::compile(&schema, true).is_none() == !matches!(&pointed["type"], Value::Array(_)),
            "{schema}"
        );
    }
}

#[test]
fn errors_that_would_fill_the_memory_are_not_told() {
    let names: Vec<String> = (0..5_000).map(|at| format!("n{at}")).collect();
    let schema = json!({"items": {"required": names}});
    let checker = checker(&schema);
    assert!(checker.errors(&json!(vec![json!({}); 10])).is_some());
    assert!(checker.errors(&json!(vec![json!({}); 100_000])).is_none());
    let long = json!({ "k".repeat(1 << 20): vec![json!(1); 1_000] });
    let schema = json!({"additionalProperties": {"items": {"type": "string"}}});
    assert!(super::Checker::compile(&schema, false).unwrap().errors(&long).is_none());
}

/// The stack of a worker is 2 MiB; of that, a walk may take three quarters.
#[test]
fn the_deepest_walk_fits_the_stack() {
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
        assert!(Weight::of(&schema).is_some(), "{schema}");
        let nested = nested.clone();
        let walk = move || {
            let checker = checker(&schema);
            checker.is_valid(&nested);
            drop(checker.errors(&nested));
        };
        std::thread::Builder::new().stack_size(3 << 19).spawn(walk).unwrap().join().unwrap();
    }
}
