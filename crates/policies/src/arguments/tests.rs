//! Cases of single calls: what each form refuses and passes, in which words, and what is not judged at all.

use super::super::cases::{Conversation, declaring, policy};
use super::*;
use crate::Entry;
use model::plan::Issue;
use serde_json::json;

/// What the policy with the settings `table` objects to in a call of `f`, which declares `schema`.
fn objection(table: &str, schema: &Value, arguments: &str) -> Option<Reason> {
    let mut talk = Conversation::over(&policy::<Arguments>(table), &declaring(&[("f", &schema.to_string())]));
    talk.judge("f", arguments, 0).objections.pop().map(|(_, reason)| reason)
}

/// The problems that the model is shown.
fn reported(table: &str, schema: &Value, arguments: &str) -> String {
    let message = objection(table, schema, arguments).map_or(String::new(), |reason| reason.message);
    let start = "The call was not run: its arguments do not fit f. ";
    let problems = message.strip_prefix(start).unwrap_or_default();
    problems.strip_suffix(". Correct them and call again.").unwrap_or(problems).to_owned()
}

fn weather() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "days": {"type": "integer", "minimum": 1},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "alerts": {"type": "boolean"},
            "hours": {"type": "array", "items": {"type": "integer"}},
            "place": {"$ref": "#/$defs/Place"},
            "until": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": false,
        "$defs": {"Place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
    })
}

#[test]
fn arguments_that_fit_pass_in_both_forms() {
    for arguments in [
        r#"{"city":"Paris"}"#,
        r#" { "city" : "Paris" , "days" : 3.0 } "#,
        r#"{"city":"","unit":"C","alerts":false,"hours":[],"until":null,"tags":["a"]}"#,
        r#"{"city":"Paris","place":{"lat":1,"more":{}}}"#,
    ] {
        for table in ["", "strict = true"] {
            assert_eq!(objection(table, &weather(), arguments), None, "{table} {arguments}");
        }
    }
}

#[test]
fn the_model_reads_the_path_the_rule_and_the_expected_value() {
    for (arguments, expected) in [
        (r#"{}"#, "city: required, expected string"),
        (r#"{"city":null}"#, "city: required, expected string, found null"),
        (r#"{"city":{"value":"Paris"}}"#, "city: type, expected string, found object"),
        (r#"{"city":["Paris"]}"#, "city: type, expected string, found array"),
        (r#"{"city":"Paris","days":"many"}"#, "days: type, expected integer, found string"),
        (r#"{"city":"Paris","days":2.5}"#, "days: type, expected integer, found number"),
        (r#"{"city":"Paris","days":0}"#, "days: minimum, expected at least 1"),
        (r#"{"city":"Paris","days":"0"}"#, "days: minimum, expected at least 1"),
        (r#"{"city":"Paris","hours":7}"#, "hours: type, expected array, found number"),
        (r#"{"city":"Paris","hours":[1,null]}"#, "hours[1]: type, expected integer, found null"),
        (r#"{"city":"Paris","hours":"[1,\"x\"]"}"#, "hours[1]: type, expected integer, found string"),
        (r#"{"city":"Paris","place":{}}"#, "place.lat: required, expected number"),
        (r#"{"city":"Paris","until":[]}"#, "until: anyOf, expected string or null, found array"),
        (r#"{"city":"Paris","tags":[[]]}"#, "tags[0]: type, expected string, found array"),
        (
            r#"{"town":"Paris"}"#,
            "town: additionalProperties, expected only city, days, unit, alerts, hours, place, until, tags; city: required, expected string",
        ),
    ] {
        assert_eq!(reported("", &weather(), arguments), expected, "{arguments}");
        assert!(objection("strict = true", &weather(), arguments).is_some(), "{arguments}");
    }
    let issue = Issue { path: "city".to_owned(), message: "required, expected string".to_owned() };
    assert_eq!(
        objection("", &weather(), "{}").unwrap(),
        Reason::new(ReasonKind::Validation, "The call was not run: its arguments do not fit f. city: required, expected string. Correct them and call again.").retryable().with(vec![("problems", 1)]).about(vec![issue])
    );
}

#[test]
fn the_lenient_form_passes_what_does_no_harm_and_strict_does_not() {
    for arguments in [
        r#"{"city":"Paris","days":null}"#,
        r#"{"city":"Paris","unit":null}"#,
        r#"{"city":"Paris","place":null}"#,
        r#"{"city":"Paris","unit":"K"}"#,
        r#"{"city":"Paris","days":"3"}"#,
        r#"{"city":"Paris","alerts":"true"}"#,
        r#"{"city":"Paris","alerts":"False"}"#,
        r#"{"city":"Paris","hours":"[1, 2]"}"#,
        r#"{"city":"Paris","hours":"[1, \"2\"]"}"#,
        r#"{"city":"Paris","place":"{\"lat\": \"48.8\"}"}"#,
        r#"{"city":"Paris","tags":"[\"a\"]"}"#,
        r#"{"city":75001}"#,
        r#"{"city":true}"#,
    ] {
        assert_eq!(objection("", &weather(), arguments), None, "{arguments}");
        assert!(objection("strict = true", &weather(), arguments).is_some(), "{arguments}");
    }
}

#[test]
fn values_outside_an_enum_pass_only_where_they_are_of_its_kind() {
    let only = |keyword: Value| json!({"properties": {"a": keyword}, "required": ["a"]});
    for (schema, arguments, passes) in [
        (only(json!({"enum": ["x"]})), r#"{"a":"y"}"#, true),
        (only(json!({"enum": ["x"]})), r#"{"a":7}"#, true),
        (only(json!({"enum": ["x"]})), r#"{"a":{"value":"x"}}"#, false),
        (only(json!({"enum": ["x"]})), r#"{"a":null}"#, false),
        (only(json!({"const": "x"})), r#"{"a":"y"}"#, true),
        (only(json!({"const": "x"})), r#"{"a":["x"]}"#, false),
        (only(json!({"type": "array", "enum": ["x", "y"]})), r#"{"a":["x"]}"#, true),
        (only(json!({"anyOf": [{"enum": ["x"]}, {"type": "null"}]})), r#"{"a":"y"}"#, true),
        (only(json!({"oneOf": [{"type": "number"}, {"type": "integer"}]})), r#"{"a":1}"#, true),
    ] {
        assert_eq!(objection("", &schema, arguments).is_none(), passes, "{schema} {arguments}");
        assert!(objection("strict = true", &schema, arguments).is_some(), "{schema} {arguments}");
    }
}

#[test]
fn no_arguments_are_right_where_the_tool_needs_none() {
    let free = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let single =
        json!({"type": ["object", "null"], "required": ["a"], "properties": {"a": {"type": "string"}}});
    for arguments in ["", "  ", "null", "{}"] {
        for table in ["", "strict = true"] {
            assert_eq!(objection(table, &free, arguments), None, "{arguments:?}");
            assert_eq!(reported(table, &single, arguments), "a: required, expected string", "{arguments:?}");
        }
    }
}

#[test]
fn what_is_no_json_object_is_refused_whatever_the_schema() {
    for (arguments, expected) in [
        ("[\"Paris\"]", "arguments: type, expected one JSON object, found array"),
        ("\"Paris\"", "arguments: type, expected one JSON object, found string"),
        (r#""{\"city\":\"Paris\"}""#, "arguments: type, expected one JSON object, found string"),
        ("7", "arguments: type, expected one JSON object, found number"),
        (
            r#"{"city":"Par"#,
            "arguments: JSON, expected one JSON object, found EOF while parsing a string at line 1 column 12",
        ),
        (
            r#"{"city":"Paris"}}"#,
            "arguments: JSON, expected one JSON object, found trailing characters at line 1 column 17",
        ),
        (
            "{'city':'Paris'}",
            "arguments: JSON, expected one JSON object, found key must be a string at line 1 column 2",
        ),
    ] {
        assert_eq!(reported("", &weather(), arguments), expected, "{arguments}");
        assert!(objection("", &json!({"$ref": "https://example.com/"}), arguments).is_some(), "{arguments}");
        assert!(objection("strict = true", &json!({}), arguments).is_some(), "{arguments}");
    }
}

#[test]
fn json_that_other_parsers_accept_is_refused_only_in_strict_mode_or_with_limits() {
    let deep = format!("{{\"city\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    for arguments in [r#"{"city":"\ud800"}"#, r#"{"city":1e999}"#, &deep] {
        assert_eq!(objection("", &weather(), arguments), None, "{arguments}");
        for table in ["strict = true", "tools.f.url = { hosts = [\"a.b\"] }"] {
            assert!(
                reported(table, &weather(), arguments).starts_with("arguments: JSON, expected"),
                "{arguments}"
            );
        }
    }
    assert!(objection("", &weather(), r#"{"city":"\ud800","\u005f_proto__":1}"#).is_some());
}

#[test]
fn keys_that_reach_prototypes_are_refused_unless_the_operator_says_so() {
    let open = json!({"type": "object", "properties": {"a": {}, "options": {"type": "object"}}});
    for arguments in [
        r#"{"__proto__":{"admin":true}}"#,
        r#"{"a":{"constructor":{"prototype":{}}}}"#,
        r#"{"a":[{"prototype":1}]}"#,
        r#"{"\u005f_proto__":1}"#,
        r#"{"options":"{\"__proto__\":{}}"}"#,
    ] {
        assert!(reported("", &open, arguments).contains("unsafe_keys, expected no key"), "{arguments}");
        assert_eq!(objection("unsafe_keys = \"off\"", &open, arguments), None, "{arguments}");
    }
    assert_eq!(
        reported("", &open, r#"{"a":[{"prototype":1}]}"#),
        "a[0]: unsafe_keys, expected no key prototype"
    );
    for arguments in [r#"{"a":"__proto__"}"#, r#"{"a":{"prototypes":1,"Constructor":2}}"#] {
        assert_eq!(objection("", &open, arguments), None, "{arguments}");
    }
    let racing = json!({"properties": {"constructor": {"type": "string"}, "__proto__": {}}});
    assert_eq!(objection("", &racing, r#"{"constructor":"Ferrari"}"#), None);
    assert!(objection("", &racing, r#"{"__proto__":{}}"#).is_some());
}

#[test]
fn formats_are_enforced_in_strict_mode_only() {
    let schema = json!({"properties": {"on": {"type": "string", "format": "date"}}});
    assert_eq!(objection("", &schema, r#"{"on":"tomorrow"}"#), None);
    assert_eq!(
        reported("strict = true", &schema, r#"{"on":"tomorrow"}"#),
        "on: format, expected format date"
    );
    assert_eq!(objection("strict = true", &schema, r#"{"on":"2026-01-31"}"#), None);
}

#[test]
fn a_schema_that_cannot_be_used_blocks_nothing() {
    let huge = json!({"properties": {"a": {"type": "string", "description": "x".repeat(70_000)}}});
    for schema in [
        huge,
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"$ref": "#"}),
        json!({"properties": {"a": {"$ref": "#/$defs/gone"}}}),
        json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"properties": "none", "required": true}),
        json!(null),
        json!(true),
        json!("string"),
    ] {
        for table in ["", "strict = true"] {
            assert_eq!(objection(table, &schema, r#"{"a":1}"#), None, "{:.200}", schema.to_string());
        }
    }
}

#[test]
fn tools_without_a_schema_are_not_held_back_and_others_until_they_are_whole() {
    let body = declaring(&[("f", "{}"), ("g", "null")]);
    let policy = policy::<Arguments>("[x.tools.h]\nurl = { max_chars = 3 }");
    let mut talk = Conversation::over(&policy, &body);
    for (tool, needed) in [("f", true), ("g", false), ("h", true), ("undeclared", false)] {
        assert_eq!(talk.needs_arguments(tool), needed, "{tool}");
    }
    assert!(talk.judge("g", "no json", 0).is_allowed());
    assert!(!talk.judge("h", "no json", 0).is_allowed());
}

#[test]
fn a_recursive_schema_is_judged_at_every_depth() {
    let schema = json!({
        "properties": {"tree": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
            "required": ["name"],
        }},
    });
    let leaf =
        |node: &str| format!(r#"{{"tree":{{"name":"a","children":[{{"name":"b","children":[{node}]}}]}}}}"#);
    assert_eq!(objection("", &schema, &leaf(r#"{"name":"c"}"#)), None);
    assert_eq!(
        reported("", &schema, &leaf(r#"{"title":"c"}"#)),
        "tree.children[0].children[0].name: required, expected string"
    );
}

#[test]
fn schemas_and_arguments_made_to_take_long_take_no_time() {
    let node = json!({"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}, "end": {"type": "integer"}}});
    let twice = json!({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": vec![node; 8]}}});
    let nested = |levels: usize| {
        (0..levels).fold(r#"{"end":"no"}"#.to_owned(), |inner, _| format!(r#"{{"child":{inner}}}"#))
    };
    for levels in [1, 5, 20, 60, 120] {
        objection("", &twice, &nested(levels));
        objection("strict = true", &twice, &nested(levels));
    }
    let slow = json!({"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}});
    assert!(objection("", &slow, &format!(r#"{{"a":"{}!"}}"#, "a".repeat(5_000))).is_some());
    let wide = format!(r#"{{"child":{{"end":"{}"}}}}"#, "x".repeat(1 << 20));
    objection("", &twice, &wide);
}

#[test]
fn long_texts_and_lists_that_are_read_often_take_no_time() {
    let often = |one: Value| {
        let reference = json!({"$ref": "#/$defs/one"});
        json!({"properties": {"a": {"anyOf": vec![reference; 2_000]}}, "$defs": {"one": one}})
    };
    let text = json!("a".repeat(1 << 20));
    let items = json!((0..50_000).collect::<Vec<_>>());
    let unseen = (0..13).fold(
        json!({"unevaluatedItems": false}),
        |inner, _| json!({"anyOf": [inner, {"items": {"type": "null"}}], "unevaluatedItems": false}),
    );
    for (one, value) in [
        (json!({"pattern": "^(a|b|ab)*(c|d){20,30}$"}), &text),
        (json!({"enum": [text.as_str().map(|text| &text[..1_000])]}), &text),
        (json!({"uniqueItems": true, "maxItems": 1}), &items),
        (json!({"const": vec![json!(0); 1_000]}), &items),
        (json!({"items": {"enum": Vec::from_iter(100_000..105_000)}}), &items),
        (json!({"unevaluatedItems": false}), &items),
        (
            json!({"dependentRequired": (0..3_000).map(|at| (format!("x{at}"), json!([]))).collect::<Value>()}),
            &items,
        ),
        (unseen, &items),
    ] {
        let arguments = json!({ "a": value }).to_string();
        objection("", &often(one.clone()), &arguments);
        let once = json!({"properties": {"a": one}});
        objection("strict = true", &once, &arguments);
    }
    let object = json!({"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]});
    let nulls = json!({ "a": vec![json!({"b": null}); 45_000] }).to_string();
    assert!(reported("", &json!({"properties": {"a": {"items": object}}}), &nulls).contains("found null"));
    let key = "k".repeat(1 << 20);
    let harmful = json!({ key.clone(): vec![json!({"__proto__": 1}); 50_000] }).to_string();
    assert!(objection("", &json!({}), &harmful).is_some());
    let harmless = json!({ key: vec![1; 500_000] }).to_string();
    assert_eq!(objection("", &json!({}), &harmless), None);
}

#[test]
fn schemas_made_to_take_long_to_compile_take_no_time() {
    let reference = |at: usize| json!({ "$ref": format!("#/$defs/d{at}") });
    let chain: Value = (0..900)
        .map(|at| (format!("d{at}"), json!({"properties": {"x": reference(at + 1), "y": reference(at + 1)}})))
        .chain([("d900".to_owned(), json!({}))])
        .collect();
    let unevaluated = (0..13).fold(
        json!({"unevaluatedProperties": false}),
        |inner, _| json!({"allOf": [inner, {"not": {}}], "unevaluatedProperties": false}),
    );
    for schema in [
        json!({"$ref": "#/$defs/d0"}),
        unevaluated,
        json!({"prefixItems": vec![json!({"type": "string"}); 2_000]}),
        json!({"pattern": "(".repeat(60_000)}),
        json!({"pattern": r"\s".repeat(20_000)}),
        json!({"pattern": r"\cA".repeat(20_000)}),
        json!({"pattern": r"\p{L}".repeat(10_000)}),
        json!({"allOf": vec![json!({"pattern": r"\s".repeat(40)}); 500]}),
        json!({"patternProperties": (0..500).map(|at| (format!("(a{{1000}}){{{at}}}"), json!({}))).collect::<Value>()}),
        json!({"enum": Vec::from_iter(0..10_000)}),
        json!({"const": "x".repeat(60_000)}),
        json!({"minLength": u64::MAX, "maxItems": u64::MAX, "multipleOf": 5e-324, "maximum": 1e308}),
    ] {
        let schema = json!({"properties": {"a": schema, "b": {"type": "integer"}}, "$defs": chain});
        objection("strict = true", &schema, r#"{"a":{"x":{"y":1}},"b":{}}"#);
    }
}

/// The stack of a test's thread is that of a worker's: 2 MiB.
#[test]
fn the_deepest_schema_and_arguments_fit_the_stack() {
    let chain =
        (0..14).fold(json!({"properties": {"c": {"$ref": "#"}}}), |inner, _| json!({"allOf": [inner]}));
    let nested = (0..63).fold("7".to_owned(), |inner, _| format!(r#"{{"c":{inner}}}"#));
    assert_eq!(objection("", &chain, &nested), None);
    let refusing = (0..13).fold(
        json!({"type": "object", "properties": {"c": {"$ref": "#"}}}),
        |inner, _| json!({"anyOf": [inner]}),
    );
    assert!(objection("", &json!({"allOf": [refusing]}), &nested).is_some());
}

#[test]
fn messages_are_short_and_repeat_no_long_value() {
    let many: serde_json::Map<String, Value> =
        (0..50).map(|at| (format!("{}{at}", "parameter_".repeat(30)), json!({"type": "integer"}))).collect();
    let names: Vec<&String> = many.keys().collect();
    let schema = json!({"properties": many, "required": names, "additionalProperties": false});
    let long = "secret".repeat(1_000);
    let arguments = json!({ names[0]: long, long.clone(): 1, "c": {"d": long} }).to_string();
    let name = "f".repeat(200);
    let body = declaring(&[(&name, &schema.to_string())]);
    let mut talk = Conversation::over(&policy::<Arguments>(""), &body);
    let reason = talk.judge(&name, &arguments, 0).objections.pop().unwrap().1;
    assert!(reason.message.chars().count() <= 600, "{}", reason.message);
    assert!(!reason.message.contains(&"secret".repeat(8)), "{}", reason.message);
    assert!(reason.message.contains(" more. Correct"), "{}", reason.message);
}

#[test]
fn the_operators_limits_hold_with_and_without_a_schema() {
    let table = "[x.tools.\"f*\"]\nurl = { hosts = [\"*.example.org\"] }\nq = { max_chars = 3 }";
    let schema = json!({"properties": {"url": {"type": "string"}}, "required": ["url"]});
    for schema in [schema, json!(null)] {
        for (arguments, expected) in [
            (r#"{"url":"https://a.example.org/"}"#, ""),
            (
                r#"{"url":"https://example.net/","q":"abcd"}"#,
                "q: max_chars, expected at most 3 characters; url: hosts, expected a plain http(s) URL of *.example.org",
            ),
        ] {
            assert_eq!(reported(table, &schema, arguments), expected, "{schema} {arguments}");
        }
    }
}

#[test]
fn limits_that_cannot_be_held_are_reported_with_their_key() {
    let table = "[tools.fetch]\nurl = { pattern = \"(\" }\nquery = { hosts = [\"http://a\"] }";
    let problems = Arguments::new(toml::from_str(table).unwrap()).err().unwrap();
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["tools.fetch.query.hosts", "tools.fetch.url.pattern"]);
}

#[test]
fn it_is_in_the_registry_after_allow_and_before_truncate() {
    let names: Vec<&str> = crate::REGISTRY.iter().map(|entry: &Entry| entry.name).collect();
    let position = |name: &str| names.iter().position(|known| *known == name).unwrap();
    assert!(position("allow") < position("arguments") && position("arguments") < position("truncate"));
}
