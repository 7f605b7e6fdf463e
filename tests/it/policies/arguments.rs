//! `arguments`: calls that fit arrive as they were made, calls that do not are explained to the model, which
//! fixes them, and the client sees the fixed call alone.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::Talk as Responses;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};

const ON: &str = "[policy.arguments]\n";

fn weather(form: Form) -> Talk {
    let mut talk = Talk::new(form);
    talk.members["tools"] = json!([{"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"type": "string", "enum": ["C", "F"]}},
        "required": ["city"],
        "additionalProperties": false,
    }}}]);
    talk
}

fn call(id: &str, arguments: &str, request: &Recorded) -> Reply {
    Reply::speech(request, &Speech::calls(&[(id, "weather", arguments)]))
}

#[test]
fn a_call_that_fits_arrives_byte_for_byte() {
    in_both_forms(|form| {
        for arguments in [r#"{"city": "Paris", "days": 3}"#, r#"{"city":"Paris","days":null,"unit":"K"}"#] {
            let upstream = Scripted::start(move |_, request| call("a", arguments, request));
            let talk = weather(form);
            let through = Toolrein::before(&upstream, ON);
            let without = Toolrein::before(&upstream, "mode = \"off\"\n");
            let said = talk.ask(&through);
            said.assert_coherent(form);
            assert_eq!(said.calls, [("a".into(), "weather".into(), arguments.into())]);
            assert_eq!(said.response.text(), talk.ask(&without).response.text());
            assert_eq!(upstream.request(0).body, talk.body().to_string().into_bytes());
        }
    });
}

#[test]
fn text_goes_through_while_a_call_is_held_until_it_is_whole() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = Scripted::start(move |_, request| {
        let speech = Speech {
            text: "Let me see.".into(),
            ..Speech::calls(&[("a", "weather", r#"{"city":"Paris"}"#)])
        };
        // The role, three words, the call's head and the first part of its arguments.
        Reply::speech(request, &speech).held_after(6, &held)
    });
    let program = Toolrein::before(&upstream, ON);
    let mut stream = Request::post(&program.chat_url(), weather(Form::Streamed).body().to_string()).open();
    let early = stream.until("see.");
    assert!(!early.contains("weather"), "{early}");
    gate.open();
    let said = Said::read(stream.rest(), Form::Streamed);
    said.assert_coherent(Form::Streamed);
    assert_eq!(said.calls, [("a".into(), "weather".into(), r#"{"city":"Paris"}"#.into())]);
}

#[test]
fn an_invalid_call_is_blocked_and_the_client_sees_only_the_corrected_one() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => call("bad", r#"{"town":"Paris","days":"many"}"#, request),
            _ => call("good", r#"{"city":"Paris","days":2}"#, request),
        });
        let program = Toolrein::before(&upstream, ON);
        let said = weather(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls, [("good".into(), "weather".into(), r#"{"city":"Paris","days":2}"#.into())]);
        assert!(!said.response.text().contains("many"), "{}", said.response.text());
        let messages = upstream.request(1).json()["messages"].clone();
        let shown: Value = serde_json::from_str(messages[2]["content"].as_str().unwrap()).unwrap();
        assert_eq!(
            messages[1]["tool_calls"][0]["function"]["arguments"],
            r#"{"town":"Paris","days":"many"}"#
        );
        assert_eq!(
            (&shown["error"]["type"], &shown["error"]["retryable"], &shown["error"]["problems"]),
            (&json!("VALIDATION"), &json!(true), &json!(3))
        );
        let message = shown["error"]["message"].as_str().unwrap();
        for problem in [
            "city: required, expected string",
            "days: type, expected integer, found string",
            "town: additionalProperties, expected only city, days, unit",
        ] {
            assert!(message.contains(problem), "{message}");
        }
        upstream.assert_clean();
        program.wait_for_metric("toolrein_actions_total{policy=\"arguments\",action=\"blocked\"}", 1.0);
    });
}

#[test]
fn arguments_are_checked_against_the_right_schema_when_a_tool_list_comes_again() {
    // Two lists that differ in what `weather` wants alone, and are long enough to be known again.
    let list = |wanted: &str| {
        let padding = "what a tool is for, at some length. ".repeat(20);
        let other = json!({"type": "function", "function": {"name": "other", "description": padding}});
        let parameters =
            json!({"type": "object", "properties": {wanted: {"type": "string"}}, "required": [wanted]});
        json!([other, {"type": "function", "function": {"name": "weather", "parameters": parameters}}])
    };
    in_both_forms(|form| {
        // The first call of each request is for a town, the second for a city.
        let upstream = Scripted::start(|nth, request| {
            call("c", if nth % 2 == 0 { r#"{"town":"Paris"}"# } else { r#"{"city":"Paris"}"# }, request)
        });
        let program = Toolrein::before(&upstream, ON);
        for _ in 0..3 {
            let mut talk = weather(form);
            talk.members["tools"] = list("city");
            let said = talk.ask(&program);
            assert_eq!(said.calls, [("c".into(), "weather".into(), r#"{"city":"Paris"}"#.into())]);
        }
        let mut talk = weather(form);
        talk.members["tools"] = list("town");
        let said = talk.ask(&program);
        assert_eq!(said.calls, [("c".into(), "weather".into(), r#"{"town":"Paris"}"#.into())]);
        assert_eq!(upstream.requests().len(), 7);
    });
}

#[test]
fn broken_json_is_blocked_and_never_sent_back_upstream_as_it_was() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => call("bad", r#"{"city":"Par"#, request),
            _ => text("It is sunny.", request),
        });
        let program = Toolrein::before(&upstream, ON);
        let said = weather(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("It is sunny.", 0));
        let arguments =
            upstream.request(1).json()["messages"][1]["tool_calls"][0]["function"]["arguments"].clone();
        assert!(serde_json::from_str::<Value>(arguments.as_str().unwrap()).is_ok(), "{arguments}");
        upstream.assert_clean();
    });
}

#[test]
fn good_calls_of_a_reply_arrive_in_order_beside_a_bad_one() {
    in_both_forms(|form| {
        let calls = [
            ("a", "weather", r#"{"city":"Paris"}"#),
            ("b", "weather", r#"{"days":1}"#),
            ("c", "weather", r#"{"city":"Rome","days":1}"#),
        ];
        let upstream = Scripted::start(move |_, request| Reply::speech(request, &Speech::calls(&calls)));
        let program = Toolrein::before(&upstream, ON);
        let said = weather(form).ask(&program);
        said.assert_coherent(form);
        let seen: Vec<(&str, &str)> =
            said.calls.iter().map(|(id, _, text)| (id.as_str(), text.as_str())).collect();
        assert_eq!(seen, [("a", calls[0].2), ("c", calls[2].2)]);
    });
}

#[test]
fn the_strict_setting_refuses_values_outside_an_enum() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => call("a", r#"{"city":"Paris","unit":"K"}"#, request),
            _ => call("b", r#"{"city":"Paris","unit":"C"}"#, request),
        });
        let program = Toolrein::before(&upstream, "[policy.arguments]\nstrict = true\n");
        let said = weather(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls[0].0, "b");
    });
}

#[test]
fn unsafe_keys_are_stripped_where_the_operator_asked_for_it_and_the_next_request_is_the_same_conversation() {
    in_both_forms(|form| {
        let spoilt = r#"{"city": "Paris", "__proto__": {"admin": true}, "days": 3}"#;
        let upstream = Scripted::start(move |at, request| match at {
            0 => call("a", spoilt, request),
            _ => Reply::speech(request, &Speech::text("Fine.")),
        });
        let program = Toolrein::before(&upstream, "[policy.arguments]\nunsafe_keys = \"strip\"\n");
        let mut talk = weather(form);
        // Every other member may come too: the tool itself is to be called without the one that harms.
        talk.members["tools"][0]["function"]["parameters"]["additionalProperties"] = json!(true);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls, [("a".into(), "weather".into(), r#"{"city":"Paris","days":3}"#.into())]);
        assert_eq!(upstream.requests().len(), 1);
        program.wait_for_metric("toolrein_actions_total{policy=\"arguments\",action=\"rewritten\"}", 1.0);
        program.wait_for_metric("toolrein_tool_calls_total{tool=\"weather\",verdict=\"modify\"}", 1.0);
    });
}

/// A tool whose optional parameters have no place for an empty text.
fn optional_parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "days": {"type": "integer"},
            "since": {"type": "string", "format": "date", "pattern": "^[0-9]{4}"},
            "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"anyOf": [{"type": "object"}, {"type": "number"}]},
            "more": {"type": "object", "properties": {"hour": {"type": "integer"}}},
        },
        "required": ["city"],
        "additionalProperties": false,
    })
}

#[test]
fn an_empty_text_for_an_optional_parameter_counts_as_absent_and_arrives_as_it_came() {
    let passing =
        r#"{"city":"Paris","days":"","since":"","unit":"","tags":"", "place":" ","more":{"hour":""}}"#;
    let blocked =
        [r#"{"city":"","days":1}"#, r#"{"city":"Paris","other":""}"#, r#"{"city":"Paris","days":"many"}"#];
    for streamed in [false, true] {
        for (arguments, passes) in std::iter::once((passing, true)).chain(blocked.map(|it| (it, false))) {
            let form = if streamed { Form::Streamed } else { Form::Whole };
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => call("a", arguments, request),
                _ => text("As you like.", request),
            });
            let mut talk = weather(form);
            talk.members["tools"][0]["function"]["parameters"] = optional_parameters();
            let said = talk.ask(&Toolrein::before(&upstream, ON));
            said.assert_coherent(form);
            let calls: Vec<&str> = said.calls.iter().map(|(.., arguments)| arguments.as_str()).collect();
            assert_eq!(calls, Vec::from_iter(passes.then_some(arguments)), "{arguments}");

            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Output::calls(nth, &[("0", "weather", arguments)]).reply(request),
                _ => Output::text(nth, "As you like.").reply(request),
            });
            let tool = json!({"type": "function", "name": "weather", "parameters": optional_parameters()});
            let talk = Responses::new(streamed).with_tools(json!([tool]));
            let answer = talk.ask(&Toolrein::before(&upstream, ON));
            let calls: Vec<&str> =
                answer.items().iter().filter_map(|item| item["arguments"].as_str()).collect();
            assert_eq!(calls, Vec::from_iter(passes.then_some(arguments)), "{arguments}");
        }
    }
}

#[test]
fn an_empty_text_is_no_way_round_the_operator_s_limits_or_the_strict_form() {
    let limited = "[policy.arguments]\ntools = { weather = { since = { pattern = \"^2\" } } }\n";
    for (settings, passes) in [(ON, true), (limited, false), ("[policy.arguments]\nstrict = true\n", false)] {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => call("a", r#"{"city":"Paris","since":""}"#, request),
            _ => text("As you like.", request),
        });
        let mut talk = weather(Form::Whole);
        talk.members["tools"][0]["function"]["parameters"] = optional_parameters();
        assert_eq!(!talk.ask(&Toolrein::before(&upstream, settings)).calls.is_empty(), passes, "{settings}");
    }
}
