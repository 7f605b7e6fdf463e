//! The quirks of whole replies, as recorded: two calls as such a provider writes them, with none, one or both of
//! them blocked, judged by name and by arguments.

use super::*;
use super::{LIMITS, judging};
use crate::judging::Judging;
use serde_json::json;

/// How a provider writes the call `name` with `arguments` at an index.
type Way = fn(&str, &str, usize) -> Value;

const WAYS: &[(&str, Way)] = &[
    (
        "the standard",
        |name, arguments, at| json!({"id": format!("c{at}"), "type": "function", "function": {"name": name, "arguments": arguments}}),
    ),
    (
        "no type (Mistral)",
        |name, arguments, at| json!({"id": format!("c{at}"), "function": {"name": name, "arguments": arguments}}),
    ),
    (
        "an index (Mistral, DeepSeek)",
        |name, arguments, at| json!({"index": at, "id": format!("c{at}"), "function": {"name": name, "arguments": arguments}}),
    ),
    (
        "index 0 for every call (Ollama)",
        |name, arguments, at| json!({"index": 0, "id": format!("c{at}"), "function": {"name": name, "arguments": arguments}}),
    ),
    (
        "an empty id (Gemini)",
        |name, arguments, _| json!({"id": "", "function": {"name": name, "arguments": arguments}}),
    ),
    ("no id", |name, arguments, _| json!({"function": {"name": name, "arguments": arguments}})),
    (
        "one id for all calls",
        |name, arguments, _| json!({"id": "0", "type": "function", "function": {"name": name, "arguments": arguments}}),
    ),
    ("arguments as an object (llama.cpp)", |name, arguments, at| {
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        json!({"id": format!("c{at}"), "function": {"name": name, "arguments": arguments}})
    }),
    ("further members (Gemini, Snowflake)", |name, arguments, at| {
        json!({"id": format!("c{at}"), "custom": null, "extra_content": {"google": {"thought_signature": "s"}},
            "function": {"name": name, "arguments": arguments}})
    }),
];

/// A reply of these choices.
fn reply(choices: &[Value]) -> Bytes {
    json!({"id": "x", "choices": choices, "usage": {"total_tokens": 3}}).to_string().into()
}

fn choice(index: usize, calls: &[Value], finish: &Value) -> Value {
    json!({"index": index, "message": {"role": "assistant", "content": null, "tool_calls": calls},
        "finish_reason": finish})
}

fn arguments(denied: bool) -> &'static str {
    if denied { r#"{"bad":1}"# } else { r#"{"x":"é"}"# }
}

fn judge(judging: Judging) -> ReplyPipeline {
    super::pipeline(judging, Form::Whole, LIMITS, Options::default())
}

/// What the client gets of `body`, and the reply's ending.
fn read(judge: &mut ReplyPipeline, body: &Bytes) -> (Bytes, Ending) {
    let mut out = Vec::new();
    judge.push(body.clone(), 0, &mut out);
    let ending = judge.finish(0, &mut out);
    (out.concat().into(), ending)
}

fn asked_again(ending: &Ending) -> Option<u32> {
    match ending {
        Ending::Reask { choice, .. } => Some(*choice),
        _ => None,
    }
}

/// The body that the client gets of `body`, and whether the model is to be asked again.
fn judged(body: &Bytes, by_arguments: bool) -> (Bytes, Option<u32>) {
    let (out, ending) = read(&mut judge(judging(by_arguments)), body);
    (out, asked_again(&ending))
}

fn assert_way(quirk: &str, way: Way, finish: &Value, by_arguments: bool) {
    for denied in [[false, false], [true, false], [false, true], [true, true]] {
        let name = |at: usize| if denied[at] { ["deny", "denyToo"][at] } else { ["ok", "fine"][at] };
        let calls = [0, 1].map(|at| way(name(at), arguments(denied[at]), at));
        let body = reply(&[choice(0, &calls, finish)]);
        let (out, again) = judged(&body, by_arguments);
        let why = format!("{quirk}, {denied:?}, {finish}: {}", String::from_utf8_lossy(&out));
        assert_eq!(again, (denied == [true, true]).then_some(0), "{why}");
        let shown: Value = serde_json::from_slice(&out).unwrap_or_default();
        let message = &shown["choices"][0]["message"];
        let left: Vec<usize> = (0..2).filter(|at| !denied[*at]).collect();
        match left[..] {
            [_, _] => assert_eq!(out, body, "{why}"),
            [at] => {
                let mut expected = calls[at].clone();
                if expected.get("index").is_some() {
                    expected["index"] = json!(0);
                }
                assert_eq!(message["tool_calls"], json!([expected]), "{why}");
                assert_eq!(&shown["choices"][0]["finish_reason"], finish, "{why}");
            }
            _ => assert!(out.is_empty(), "{why}"),
        }
    }
}

#[test]
fn every_form_of_a_call_is_judged_and_the_remaining_call_stays_unchanged() {
    for (quirk, way) in WAYS {
        for finish in [json!("tool_calls"), json!("stop"), json!(""), Value::Null] {
            for by_arguments in [false, true] {
                assert_way(quirk, *way, &finish, by_arguments);
            }
        }
    }
}

#[test]
fn calls_without_arguments_and_replies_without_calls_pass_as_they_came() {
    let call = |function: Value| json!([{"id": "a", "type": "function", "function": function}]);
    for calls in [
        call(json!({"name": "ok", "arguments": ""})),
        call(json!({"name": "ok", "arguments": null})),
        call(json!({"name": "ok"})),
        call(json!({"name": "ok", "arguments": "2"})),
        Value::Null,
        json!([]),
    ] {
        let message =
            json!({"role": "assistant", "content": "text", "tool_calls": calls, "function_call": null});
        let body = reply(&[json!({"index": 0, "message": message, "finish_reason": "tool_calls"})]);
        for by_arguments in [false, true] {
            assert_eq!(judged(&body, by_arguments), (body.clone(), None), "{calls}");
        }
    }
}

#[test]
fn three_choices_are_released_partly_released_and_blocked_independently() {
    let (_, way) = WAYS[2];
    let call = |name: &str, at: usize| way(name, arguments(name == "deny"), at);
    let finish = json!("tool_calls");
    let body = reply(&[
        choice(0, &[call("ok", 0), call("fine", 1)], &finish),
        choice(1, &[call("deny", 0), call("ok", 1)], &finish),
        choice(2, &[call("deny", 0)], &finish),
    ]);
    for by_arguments in [false, true] {
        let mut judge = judge(judging(by_arguments));
        assert_eq!(asked_again(&read(&mut judge, &body).1), Some(2));
        let answer = json!({"id": "y", "choices": [{"index": 0, "message": {"role": "assistant", "content": "three"},
            "finish_reason": "stop"}], "usage": {"total_tokens": 4}});
        judge.continue_with(2);
        let (out, ending) = read(&mut judge, &answer.to_string().into());
        assert_eq!(ending, Ending::Complete);
        let out: Value = serde_json::from_slice(&out).unwrap();
        let message = |at: usize| &out["choices"][at]["message"];
        assert_eq!(message(0)["tool_calls"], json!([call("ok", 0), call("fine", 1)]));
        assert_eq!(message(1)["tool_calls"][0]["function"]["name"], "ok");
        assert_eq!(
            (&message(1)["tool_calls"][0]["index"], message(1)["tool_calls"].get(1)),
            (&json!(0), None)
        );
        assert_eq!((&message(2)["content"], &out["choices"][2]["index"]), (&json!("three"), &json!(2)));
        assert_eq!(out["usage"]["total_tokens"], 7);
    }
}

#[test]
fn choices_with_equal_indexes_are_each_re_asked_once() {
    let (_, way) = WAYS[2];
    let finish = json!("tool_calls");
    let denied = choice(0, &[way("deny", arguments(true), 0)], &finish);
    let body = reply(&[denied.clone(), denied, choice(1, &[way("ok", arguments(false), 0)], &finish)]);
    let answer = |text: &str| {
        json!({"id": "y", "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
            "finish_reason": "stop"}]})
    };
    let mut judge = judge(judging(false));
    let (mut out, mut ending) = read(&mut judge, &body);
    for text in ["one", "two"] {
        judge.continue_with(asked_again(&ending).unwrap());
        (out, ending) = read(&mut judge, &answer(text).to_string().into());
    }
    assert_eq!(ending, Ending::Complete);
    let shown: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(shown["choices"][0]["message"]["content"], "one");
    assert_eq!(shown["choices"][1]["message"]["content"], "two");
    let indexes: Vec<u64> = (0..3).map(|at| shown["choices"][at]["index"].as_u64().unwrap()).collect();
    assert_eq!(indexes, [0, 2, 1]);
}

#[test]
fn a_message_that_was_nothing_but_blocked_calls_still_reads_as_json() {
    let (_, way) = WAYS[0];
    let denied = way("deny", arguments(true), 0);
    for message in [
        json!({"tool_calls": [denied]}),
        json!({"function_call": denied["function"]}),
        json!({"tool_calls": [denied], "function_call": denied["function"]}),
        json!({"tool_calls": [denied], "refusal": null}),
    ] {
        let body = reply(&[json!({"index": 0, "message": message, "finish_reason": "tool_calls"})]);
        let mut judge = judge(judging(false));
        judge.judging.land();
        let (out, ending) = read(&mut judge, &body);
        assert_eq!(ending, Ending::Complete);
        let shown: Value = serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {message}"));
        assert_eq!(shown["choices"][0]["message"]["content"], NO_ANSWER);
    }
}

#[test]
fn a_long_name_is_judged_to_its_end() {
    use crate::judging::holding_tests::judging;
    let name = format!("{}evil", "a".repeat(2_000));
    let call = json!({"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}});
    let body =
        json!({"choices": [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
    let tables = "[allow]\nexcept = [\"*evil\"]\nundeclared = \"pass\"\n";
    let (_, ending) = read(&mut judge(judging(tables)), &Bytes::from(body.to_string()));
    assert_eq!(asked_again(&ending), Some(0));
}
