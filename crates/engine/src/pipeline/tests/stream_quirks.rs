//! The recorded quirks of streams, each with a test case: two calls in the form that a provider writes, judged by
//! name and by arguments, with none, one or both of them blocked, whole and byte by byte.

use super::*;
use super::{
    DONE, LIMITS, client_view, delta, event, events, finish, judge, judging, role, run, streamed, whole,
};
use serde_json::json;

/// One call as the model meant it.
#[derive(Clone, Copy)]
struct Meant<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// How a provider writes two calls: its whole stream.
type Way = fn([Meant<'_>; 2]) -> String;

fn deltas(calls: &[Value]) -> String {
    calls.iter().map(|call| delta(&json!({ "tool_calls": [call] }))).collect()
}

/// A call whose deltas are `head`, given its `name`, and then one for each piece of the arguments.
fn pieces(call: Meant<'_>, head: impl Fn(&str) -> Value, rest: impl Fn(&str) -> Value) -> String {
    let (left, right) = call.arguments.split_at(call.arguments.len() / 2);
    deltas(&[head(call.name), rest(left), rest(right)])
}

/// As OpenAI writes them.
fn standard([one, two]: [Meant<'_>; 2]) -> String {
    let call = |call: Meant<'_>, index: usize, id: &str| {
        pieces(
            call,
            |name| json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}),
            |piece| json!({"index": index, "function": {"arguments": piece}}),
        )
    };
    call(one, 0, "a") + &call(two, 1, "b")
}

fn ended(calls: impl AsRef<str>) -> String {
    role() + calls.as_ref() + &finish("tool_calls") + DONE
}

/// Both calls, each complete in one delta that `write` makes from the call and its position.
fn whole_calls(calls: [Meant<'_>; 2], write: impl Fn(Meant<'_>, usize) -> Value) -> String {
    let calls: Vec<Value> = calls.into_iter().enumerate().map(|(at, call)| write(call, at)).collect();
    ended(deltas(&calls))
}

fn id(at: usize) -> &'static str {
    ["a", "b"][at]
}

fn parsed(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap()
}

/// A stream of `calls` in which `edit` has changed the data of every event that is JSON.
fn each_event(calls: [Meant<'_>; 2], edit: impl Fn(&mut Value)) -> String {
    let stream = ended(standard(calls));
    let edited = stream.split_inclusive("\n\n").map(|raw| {
        let Ok(mut data) = serde_json::from_str::<Value>(raw.trim_start_matches("data: ").trim_end()) else {
            return raw.to_owned();
        };
        edit(&mut data);
        format!("data: {data}\n\n")
    });
    edited.collect()
}

fn each_delta(calls: [Meant<'_>; 2], key: &str, value: &Value) -> String {
    each_event(calls, |data| {
        data["choices"][0]["delta"][key] = value.clone();
    })
}

fn with_usage(choices: &Value) -> String {
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
    format!("data: {}\n\n", json!({"id": "chatcmpl-1", "choices": choices, "usage": usage}))
}

fn finished(reason: &str) -> Value {
    json!([{"index": 0, "delta": {}, "finish_reason": reason}])
}

const FRAMING: &[(&str, Way)] = &[
    ("comments before and between events (OpenRouter)", |calls| {
        let comment = ": OPENROUTER PROCESSING\n\n";
        comment.to_owned() + &ended(standard(calls)).replace("\n\n", &format!("\n\n{comment}"))
    }),
    ("a ping before all (Perplexity)", |calls| {
        ": ping - 2026-06-08 18:49:47.737080\n\n".to_owned() + &ended(standard(calls))
    }),
    ("empty data frames (gateways)", |calls| ended(standard(calls)).replace("\n\n", "\n\ndata:\n\n")),
    ("CRLF line ends (Perplexity)", |calls| ended(standard(calls)).replace('\n', "\r\n")),
    ("CR line ends", |calls| ended(standard(calls)).replace('\n', "\r")),
    ("no [DONE] (Perplexity)", |calls| ended(standard(calls)).replace(DONE, "")),
    ("no space after the colon", |calls| ended(standard(calls)).replace("data: ", "data:")),
    ("a name for every event, without a space", |calls| {
        ended(standard(calls)).replace("data: ", "event:message\ndata:")
    }),
    ("a further field", |calls| ended(standard(calls)).replace("data: ", "id: 1\nretry: 5\ndata: ")),
    ("one JSON over several data lines", |calls| ended(standard(calls)).replace(",\"", ",\ndata: \"")),
    ("no line end after the last event", |calls| ended(standard(calls)).trim_end().to_owned()),
    ("a byte order mark", |calls| "\u{feff}".to_owned() + &ended(standard(calls))),
    ("a space before the first event (a recording)", |calls| " ".to_owned() + &ended(standard(calls))),
    ("two events with one line end between them (llama.cpp)", |calls| {
        ended(standard(calls)).replace("\n\ndata: {", "\ndata: {")
    }),
    ("characters that some take for line ends", |calls| {
        role()
            + &delta(&json!({"content": "a\u{85}b\u{2028}c é 😀"}))
            + &standard(calls)
            + &finish("tool_calls")
            + DONE
    }),
];

const CHUNKS: &[(&str, Way)] = &[
    ("usage last, without choices (OpenAI)", |calls| {
        role() + &standard(calls) + &finish("tool_calls") + &with_usage(&json!([])) + DONE
    }),
    ("usage in the finish chunk (DeepSeek)", |calls| {
        role() + &standard(calls) + &with_usage(&finished("tool_calls")) + DONE
    }),
    ("usage twice (Groq)", |calls| {
        role() + &standard(calls) + &with_usage(&finished("tool_calls")) + &with_usage(&json!([])) + DONE
    }),
    ("usage in every chunk (Perplexity)", |calls| {
        each_event(calls, |data| data["usage"] = json!({"total_tokens": 7}))
    }),
    ("usage before the calls, without choices", |calls| {
        role() + &with_usage(&json!([])) + &standard(calls) + &finish("tool_calls") + DONE
    }),
    ("usage between the calls, without choices", |calls| {
        let calls = standard(calls);
        let half = calls.match_indices("\n\n").nth(2).unwrap().0 + 2;
        role() + &calls[..half] + &with_usage(&json!([])) + &calls[half..] + &finish("tool_calls") + DONE
    }),
    ("no choices and no usage at first (Azure)", |calls| {
        let first = json!({"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{}]});
        format!("data: {first}\n\n") + &ended(standard(calls))
    }),
    ("moderation without choices (OpenAI)", |calls| {
        role()
            + &standard(calls)
            + "data: {\"choices\":[],\"moderation\":{}}\n\n"
            + &finish("tool_calls")
            + DONE
    }),
    ("the finish reason twice, with usage (OpenRouter)", |calls| {
        role() + &standard(calls) + &finish("tool_calls") + &with_usage(&finished("tool_calls")) + DONE
    }),
    ("no finish reason (Snowflake)", |calls| role() + &standard(calls) + DONE),
    ("no finish reason and no [DONE]", |calls| role() + &standard(calls)),
    ("an empty finish reason (Snowflake)", |calls| role() + &standard(calls) + &finish("") + DONE),
    ("finished by stop (Gemini)", |calls| role() + &standard(calls) + &finish("stop") + DONE),
    ("finished by length", |calls| role() + &standard(calls) + &finish("length") + DONE),
    ("the finish reason beside the last call (Mistral)", |calls| {
        let [one, two] = calls;
        let call = |call: Meant<'_>, at: usize| json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}});
        role()
            + &event(
                &json!([{"index": 0, "delta": {"tool_calls": [call(one, 0), call(two, 1)]}, "finish_reason": "tool_calls"}]),
            )
            + DONE
    }),
    ("the role in every delta (OpenRouter)", |calls| each_delta(calls, "role", &json!("assistant"))),
    ("an empty role (Azure DeepSeek)", |calls| each_delta(calls, "role", &json!(""))),
    ("a null role", |calls| each_delta(calls, "role", &Value::Null)),
    ("null content in every delta", |calls| each_delta(calls, "content", &Value::Null)),
    ("empty content in every delta", |calls| each_delta(calls, "content", &json!(""))),
    ("a null function call in every delta (old gateways)", |calls| {
        each_delta(calls, "function_call", &Value::Null)
    }),
    ("an index of the delta's own (Mistral)", |calls| each_delta(calls, "index", &json!(0))),
    ("null calls in deltas of text (Snowflake)", |calls| {
        role()
            + &delta(&json!({"content": "", "tool_calls": null}))
            + &standard(calls)
            + &finish("tool_calls")
            + DONE
    }),
    ("empty calls in deltas of text (vLLM)", |calls| {
        role()
            + &delta(&json!({"content": "", "tool_calls": []}))
            + &standard(calls)
            + &finish("tool_calls")
            + DONE
    }),
    ("the whole message beside the delta (Perplexity)", |calls| {
        each_event(calls, |data| {
            data["choices"][0]["message"] = json!({"role": "assistant", "content": ""});
        })
    }),
    ("text beside the delta (Together)", |calls| {
        each_event(calls, |data| data["choices"][0]["text"] = json!(""))
    }),
    ("padding and provider members (OpenAI, OpenRouter)", |calls| {
        each_event(calls, |data| {
            data["obfuscation"] = json!("x7");
            data["provider"] = json!("P");
            data["choices"][0]["native_finish_reason"] = Value::Null;
            data["choices"][0]["content_filter_results"] = json!({});
        })
    }),
    ("null usage in every chunk (OpenAI)", |calls| each_event(calls, |data| data["usage"] = Value::Null)),
];

const CALLS: &[(&str, Way)] = &[
    ("the standard", |calls| ended(standard(calls))),
    ("whole calls in one delta (Groq)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("arguments that begin in the first delta (llama.cpp)", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            let (left, right) = call.arguments.split_at(1);
            out += &deltas(&[
                json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": left}}),
                json!({"index": at, "function": {"arguments": right}}),
            ]);
        }
        ended(out)
    }),
    ("several calls in one delta (Mistral)", |calls| {
        let calls: Vec<Value> = calls.iter().enumerate().map(|(at, call)| json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}})).collect();
        ended(delta(&json!({ "tool_calls": calls })))
    }),
    ("several calls in one delta without index (Gemini)", |calls| {
        let calls: Vec<Value> = calls.iter().enumerate().map(|(at, call)| json!({"id": id(at), "function": {"name": call.name, "arguments": call.arguments}})).collect();
        ended(delta(&json!({ "tool_calls": calls })))
    }),
    ("no index (Gemini)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"id": id(at), "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("a null index (relays)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"index": null, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("index 0 for every call (Ollama)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"index": 0, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("index 0 for every call, in pieces", |[one, two]| {
        let call = |call: Meant<'_>, id: &str| {
            pieces(
                call,
                |name| json!({"index": 0, "id": id, "function": {"name": name, "arguments": ""}}),
                |piece| json!({"index": 0, "function": {"arguments": piece}}),
            )
        };
        ended(call(one, "a") + &call(two, "b"))
    }),
    ("one index and one id for all calls (through OpenRouter)", |calls| {
        whole_calls(
            calls,
            |call, _| json!({"index": 0, "id": "s", "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("a sparse index (Anthropic)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"index": at * 3 + 1, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("an empty id in later deltas (Qwen)", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            out += &pieces(
                call,
                |name| json!({"index": at, "id": id(at), "type": "function", "function": {"name": name, "arguments": ""}}),
                |piece| json!({"index": at, "id": "", "type": "function", "function": {"name": "", "arguments": piece}}),
            );
        }
        ended(out)
    }),
    ("a null id in later deltas, arguments absent at first (Fireworks)", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            out += &pieces(
                call,
                |name| json!({"index": at, "id": id(at), "type": "function", "function": {"name": name}}),
                |piece| json!({"index": at, "id": null, "type": "function", "function": {"name": null, "arguments": piece}}),
            );
        }
        ended(out)
    }),
    ("id and name in every delta (Novita)", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            let each = |piece: &str| json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": piece}});
            out += &pieces(call, |_| each(""), each);
        }
        ended(out)
    }),
    ("no ids (Gemini)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"index": at, "id": "", "function": {"name": call.name, "arguments": call.arguments}}),
        )
    }),
    ("neither ids nor indexes (Gemini)", |calls| {
        whole_calls(calls, |call, _| json!({"function": {"name": call.name, "arguments": call.arguments}}))
    }),
    ("later deltas with arguments alone (OCI)", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            out += &pieces(
                call,
                |name| json!({"id": id(at), "function": {"name": name, "arguments": ""}}),
                |piece| json!({"function": {"arguments": piece}}),
            );
        }
        ended(out)
    }),
    ("null arguments first", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            out += &pieces(
                call,
                |name| json!({"index": at, "id": id(at), "function": {"name": name, "arguments": null}}),
                |piece| json!({"index": at, "function": {"arguments": piece}}),
            );
        }
        ended(out)
    }),
    ("arguments as an object (llama.cpp)", |calls| {
        whole_calls(
            calls,
            |call, at| json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": parsed(call.arguments)}}),
        )
    }),
    ("arguments before the name (SGLang)", |calls| {
        let mut out = String::new();
        for (at, call) in calls.into_iter().enumerate() {
            let (left, right) = call.arguments.split_at(1);
            out += &deltas(&[
                json!({"index": at, "id": id(at), "function": {"arguments": left}}),
                json!({"index": at, "function": {"name": call.name, "arguments": right}}),
            ]);
        }
        ended(out)
    }),
    ("interleaved", |[one, two]| {
        let head = |at: usize, name: &str| json!({"index": at, "id": id(at), "function": {"name": name, "arguments": ""}});
        let rest = |at: usize, piece: &str| json!({"index": at, "function": {"arguments": piece}});
        let (left, right) = (one.arguments.split_at(2), two.arguments.split_at(2));
        ended(deltas(&[
            head(0, one.name),
            rest(0, left.0),
            head(1, two.name),
            rest(1, right.0),
            rest(0, left.1),
            rest(1, right.1),
        ]))
    }),
    ("an extra member in the call (Gemini, Snowflake)", |calls| {
        whole_calls(calls, |call, at| {
            json!({"index": at, "id": id(at), "custom": null, "extra_content": {"google": {"thought_signature": "s"}},
            "function": {"name": call.name, "arguments": call.arguments}})
        })
    }),
    ("calls after the finish", |[one, two]| {
        let call = |call: Meant<'_>, at: usize| {
            deltas(&[
                json!({"index": at, "id": id(at), "function": {"name": call.name, "arguments": call.arguments}}),
            ])
        };
        role() + &call(one, 0) + &finish("tool_calls") + &call(two, 1) + DONE
    }),
];

/// The JSON of a stream's events, as read by a client that accepts every quirk of framing.
fn data_of(stream: &str) -> Vec<Value> {
    let lines = stream.replace("\r\n", "\n").replace('\r', "\n").replace(",\ndata: \"", ",\"");
    let data = lines.lines().filter_map(|line| {
        let line = line.trim_start_matches('\u{feff}').trim_start();
        serde_json::from_str(line.strip_prefix("data:")?.trim()).ok()
    });
    data.collect()
}

/// The names and the joined arguments of the calls in a stream in which at most one is left: names that are repeated
/// count once.
fn only_call(stream: &str) -> (Vec<String>, String) {
    let (mut names, mut arguments) = (Vec::<String>::new(), String::new());
    for data in data_of(stream) {
        for call in data["choices"][0]["delta"]["tool_calls"].as_array().unwrap_or(&vec![]) {
            let name = call["function"]["name"].as_str().unwrap_or_default().to_owned();
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
            arguments += &match &call["function"]["arguments"] {
                object @ Value::Object(_) => object.to_string(),
                text => text.as_str().unwrap_or_default().to_owned(),
            };
        }
    }
    (names, arguments)
}

fn finishes(stream: &str) -> Vec<String> {
    let reasons = data_of(stream);
    let reasons = reasons.iter().filter_map(|data| data["choices"][0]["finish_reason"].as_str());
    reasons.filter(|reason| !reason.is_empty()).map(str::to_owned).collect()
}

fn meant(at: usize, denied: bool) -> Meant<'static> {
    match (denied, at) {
        (false, 0) => Meant { name: "ok", arguments: r#"{"x":1}"# },
        (false, _) => Meant { name: "fine", arguments: r#"{"y":[2,"}"]}"# },
        (true, 0) => Meant { name: "deny", arguments: r#"{"bad":1}"# },
        (true, _) => Meant { name: "denyToo", arguments: r#"{"bad":{"e":"\\"}}"# },
    }
}

fn assert_way(name: &str, way: Way, by_arguments: bool, denied: [bool; 2]) {
    let why = format!("{name}, by arguments {by_arguments}, denied {denied:?}");
    let stream = way([meant(0, denied[0]), meant(1, denied[1])]);
    let (mut judge, mut slow) = (judge(by_arguments), judge(by_arguments));
    let (out, ending) = whole(&mut judge, &stream);
    let byte_by_byte = run(&mut slow, stream.as_bytes().chunks(1));
    assert_eq!((&byte_by_byte.0, &byte_by_byte.1), (&out, &ending), "{why}, byte by byte");
    let judged = judge.judging.record.iter().map(|call| (call.tool.as_str(), call.decision.is_released()));
    let expected = [0, 1].map(|at| (meant(at, denied[at]).name, !denied[at]));
    assert_eq!(judged.collect::<Vec<_>>(), expected, "{why}\n{stream}");
    assert_eq!(judge.unjudged(), [], "{why}");
    match denied {
        [false, false] if name.starts_with("index 0 for") || name.starts_with("one index") => {
            // The second call has an index of its own.
            assert!(out.contains("\"index\":1"), "{why}\n{out}");
            let as_it_came = out.replace("\"index\":1", "\"index\":0");
            assert_eq!((as_it_came, ending), (stream, Ending::Complete), "{why}");
        }
        [false, false] => assert_eq!((out, ending), (stream, Ending::Complete), "{why}"),
        [true, true] => {
            assert!(matches!(ending, Ending::Reask { choice: 0, .. }), "{why}: {ending:?}");
            assert_eq!(only_call(&out), (vec![], String::new()), "{why}\n{out}");
            assert_eq!(finishes(&out), [""; 0], "{why}\n{out}");
            assert!(!out.contains("[DONE]") && !out.contains("bad"), "{why}\n{out}");
        }
        [first, _] => {
            assert_eq!(ending, Ending::Complete, "{why}");
            assert_one_left(&why, &stream, &out, usize::from(first));
        }
    }
}

/// Asserts that `out` contains, of the calls in `stream`, only the one at the index `at`, as the client's first call.
fn assert_one_left(why: &str, stream: &str, out: &str, at: usize) {
    let Meant { name, arguments } = meant(at, false);
    assert_eq!(only_call(out), (vec![name.to_owned()], arguments.to_owned()), "{why}\n{out}");
    assert_eq!(finishes(out), finishes(stream), "{why}\n{out}");
    assert!(!out.contains("deny") && !out.contains("bad"), "{why}\n{out}");
    let mut indexes = data_of(out)
        .into_iter()
        .filter_map(|data| data["choices"][0]["delta"]["tool_calls"][0]["index"].as_u64());
    assert!(at == 0 || indexes.all(|index| index == 0), "{why}\n{out}");
}

fn assert_all(ways: &[(&str, Way)]) {
    for (name, way) in ways {
        for by_arguments in [false, true] {
            for denied in [[false, false], [true, false], [false, true], [true, true]] {
                assert_way(name, *way, by_arguments, denied);
            }
        }
    }
}

#[test]
fn every_framing_quirk_is_handled() {
    assert_all(FRAMING);
}

#[test]
fn every_chunk_quirk_is_handled() {
    assert_all(CHUNKS);
}

#[test]
fn every_call_delta_quirk_is_handled() {
    assert_all(CALLS);
}

#[test]
fn a_call_without_arguments_is_judged_in_each_of_its_forms() {
    let forms = [
        json!({"arguments": ""}),
        json!({"arguments": null}),
        json!({}),
        json!({"arguments": "{}"}),
        json!({"arguments": {}}),
        json!({"arguments": "2"}),
        json!({"arguments": 2}),
    ];
    for form in forms {
        for (name, by_arguments) in [("ok", false), ("ok", true), ("deny", false)] {
            let mut function = form.clone();
            function["name"] = json!(name);
            let stream = ended(deltas(&[json!({"index": 0, "id": "a", "function": function})]));
            let mut judge = judge(by_arguments);
            let (out, ending) = whole(&mut judge, &stream);
            match name {
                "ok" => assert_eq!((out, ending), (stream, Ending::Complete), "{form}"),
                _ => {
                    let Ending::Reask { hidden: round, .. } = ending else { panic!("{form}: {ending:?}") };
                    let round: Vec<Value> =
                        serde_json::from_str(&format!("[{}]", String::from_utf8_lossy(&round))).unwrap();
                    let sent_back = &round[0]["tool_calls"][0]["function"]["arguments"];
                    let parsed = serde_json::from_str::<Value>(sent_back.as_str().unwrap());
                    assert!(parsed.is_ok_and(|value| value.is_object()), "{form}: {sent_back}");
                    assert!(!out.contains("tool_calls\":["), "{out}");
                }
            }
            assert_eq!(judge.judging.record.len(), 1, "{form}");
        }
    }
}

#[test]
fn the_deprecated_function_call_is_judged_like_any_other() {
    for (name, arguments, by_arguments, shown) in [
        ("ok", "{}", false, true),
        ("ok", "{}", true, true),
        ("deny", "{}", false, false),
        ("ok", "{\"bad\":1}", true, false),
    ] {
        let stream = role()
            + &delta(&json!({"function_call": {"name": name, "arguments": ""}}))
            + &delta(&json!({"function_call": {"arguments": arguments}}))
            + &finish("function_call")
            + DONE;
        let (out, ending) = whole(&mut judge(by_arguments), &stream);
        match shown {
            true => assert_eq!((out, ending), (stream, Ending::Complete)),
            false => {
                assert!(matches!(ending, Ending::Reask { .. }) && !out.contains("function_call"), "{out}");
            }
        }
    }
}

#[test]
fn stream_quirks_without_calls_are_forwarded_unchanged() {
    let thinking = json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "So"}]});
    for (quirk, piece) in [
        ("finished by tool_calls without a call", finish("tool_calls")),
        ("finished by error", finish("error")),
        ("content in parts", delta(&thinking)),
        (
            "reasoning in three spellings",
            delta(&json!({"reasoning_content": "a", "reasoning": "a", "reasoning_details": [{"text": "a"}]})),
        ),
        ("a refusal", delta(&json!({"refusal": "no"}))),
        (
            "annotations",
            delta(&json!({"annotations": [], "executed_tools": [{"name": "deny"}], "provider_metadata": {}})),
        ),
        (
            "a call that leaked into the text",
            delta(&json!({"content": "<tool_call>{\"name\":\"deny\"}</tool_call>"})),
        ),
        ("a call that is no object", delta(&json!({"tool_calls": ["deny"]}))),
        ("no delta", "data: {\"choices\":[{\"index\":0}]}\n\n".to_owned()),
    ] {
        let stream = role() + &piece + &with_usage(&json!([])) + DONE;
        for by_arguments in [false, true] {
            let bytes = run(&mut judge(by_arguments), stream.as_bytes().chunks(1));
            assert_eq!(bytes, (stream.clone(), Ending::Complete), "{quirk}");
        }
    }
}

#[test]
fn every_form_of_an_error_event_is_recognised_and_ends_the_judging() {
    for (quirk, error) in [
        ("an error member", "data: {\"error\":{\"message\":\"gone\"}}\n\n"),
        ("beside no choices (OpenRouter)", "data: {\"choices\":[],\"error\":{\"message\":\"gone\"}}\n\n"),
        (
            "beside a finish (OpenRouter)",
            "data: {\"error\":{\"message\":\"gone\"},\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"error\"}]}\n\n",
        ),
        ("an event named error (Groq)", "event: error\ndata: {\"message\":\"gone\"}\n\n"),
        ("the same without a space", "event:error\ndata:{\"message\":\"gone\"}\n\n"),
        ("a field named error (llama.cpp)", "error: {\"message\":\"gone\"}\n\n"),
        ("an object that is an error (vLLM)", "data: {\"object\":\"error\",\"message\":\"gone\"}\n\n"),
        ("a type that is error (Responses)", "data: {\"type\":\"error\",\"message\":\"gone\"}\n\n"),
        (
            "JSON without a field name (OpenAI, old)",
            "{\n  \"error\": {\n    \"message\": \"gone\"\n  }\n}\n\n",
        ),
    ] {
        let mut first = judge(false);
        assert_eq!(whole(&mut first, error).0, "", "{quirk}: kept for a decision");
        assert_eq!(first.refusal().expect(quirk).error.messages, ["gone"], "{quirk}");
        let denied = standard([meant(0, true), meant(1, true)]);
        for end in ["", DONE] {
            let mut later = judge(false);
            let (out, ending) = whole(&mut later, &(role() + &denied + error + end));
            assert_eq!(ending, Ending::Complete, "{quirk}: a reply that failed is not asked for again");
            assert!(out.contains(error) && out.ends_with(end) && !out.contains("deny"), "{quirk}: {out}");
        }
    }
}

/// An event of one choice.
fn of_choice(index: u32, delta: &Value, finish: &Value) -> String {
    event(&json!([{"index": index, "delta": delta, "finish_reason": finish}]))
}

fn call_of(index: u32, at: usize, name: &str, arguments: &str) -> String {
    let call = json!({"index": at, "id": format!("c{index}{at}"), "function": {"name": name, "arguments": arguments}});
    of_choice(index, &json!({"tool_calls": [call]}), &Value::Null)
}

/// What a client gets of one choice: its text, the names of its calls with their indexes, its finish reasons.
fn choice_view(stream: &str, index: u32) -> (String, Vec<(u64, String)>, Vec<String>) {
    let (mut text, mut calls, mut ends) = (String::new(), Vec::new(), Vec::new());
    for event in events(stream) {
        for choice in event["choices"].as_array().unwrap().iter().filter(|choice| choice["index"] == index) {
            text += choice["delta"]["content"].as_str().unwrap_or("");
            for call in choice["delta"]["tool_calls"].as_array().unwrap_or(&vec![]) {
                calls.push((
                    call["index"].as_u64().unwrap(),
                    call["function"]["name"].as_str().unwrap().to_owned(),
                ));
            }
            ends.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }
    (text, calls, ends)
}

#[test]
fn three_choices_are_released_partly_released_and_blocked_independently() {
    let null = Value::Null;
    for by_arguments in [false, true] {
        // The first choice is released entirely, the second in part, the third not at all; their events are
        // interleaved.
        let stream = [
            of_choice(2, &json!({"role": "assistant"}), &null),
            of_choice(0, &json!({"role": "assistant"}), &null),
            of_choice(1, &json!({"role": "assistant", "content": "I look."}), &null),
            call_of(1, 0, "deny", "{\"bad\":1}"),
            call_of(0, 0, "ok", "{}"),
            call_of(2, 0, "deny", "{\"bad\":2}"),
            call_of(1, 1, "ok", "{}"),
            call_of(0, 1, "fine", "{}"),
            of_choice(2, &json!({}), &json!("tool_calls")),
            of_choice(1, &json!({}), &json!("tool_calls")),
            of_choice(0, &json!({}), &json!("tool_calls")),
            with_usage(&json!([])),
            DONE.to_owned(),
        ]
        .concat();
        let mut judge = judge(by_arguments);
        let (mut out, ending) = whole(&mut judge, &stream);
        assert!(matches!(ending, Ending::Reask { choice: 2, .. }), "{ending:?}");
        let called = |names: &[&str]| -> Vec<(u64, String)> {
            names.iter().enumerate().map(|(at, name)| (at as u64, (*name).to_owned())).collect()
        };
        assert_eq!(choice_view(&out, 0), (String::new(), called(&["ok", "fine"]), vec!["tool_calls".into()]));
        assert_eq!(choice_view(&out, 1), ("I look.".into(), called(&["ok"]), vec!["tool_calls".into()]));
        assert_eq!(choice_view(&out, 2), (String::new(), vec![], vec![]));
        judge.continue_with(2);
        let (more, ending) = whole(
            &mut judge,
            &(role()
                + &delta(&json!({"content": "three"}))
                + &finish("stop")
                + &with_usage(&json!([]))
                + DONE),
        );
        assert_eq!(ending, Ending::Complete);
        assert_eq!(choice_view(&more, 0), (String::new(), vec![], vec![]), "{more}");
        assert_eq!(choice_view(&more, 2), ("three".into(), vec![], vec!["stop".into()]), "{more}");
        out += &more;
        assert_eq!(events(&out).iter().filter(|event| event["usage"].is_object()).count(), 1);
        assert_eq!(out.matches("[DONE]").count(), 1);
    }
}

#[test]
fn several_choices_in_one_event_are_judged_each_for_itself() {
    let call = |name: &str, arguments: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": name, "arguments": arguments}}]});
    let choice =
        |index: u32, delta: Value| json!({"index": index, "delta": delta, "finish_reason": "tool_calls"});
    for by_arguments in [false, true] {
        let all = event(&json!([
            choice(0, call("deny", "{\"bad\":1}")),
            choice(1, call("ok", "{}")),
            choice(2, json!({"content": "text"})),
        ]));
        let mut judge = judge(by_arguments);
        let (out, ending) = whole(&mut judge, &(all + DONE));
        assert!(matches!(ending, Ending::Reask { choice: 0, .. }), "{ending:?}");
        assert_eq!(choice_view(&out, 0), (String::new(), vec![], vec![]), "{out}");
        assert_eq!(choice_view(&out, 1).1, [(0, "ok".to_owned())]);
        assert_eq!(choice_view(&out, 2).0, "text");
    }
}

#[test]
fn two_choices_without_a_released_call_are_asked_for_one_after_the_other() {
    let stream = call_of(0, 0, "deny", "{}") + &call_of(1, 0, "deny", "{}") + DONE;
    let mut judge = judge(false);
    let (mut out, ending) = whole(&mut judge, &stream);
    assert!(matches!(ending, Ending::Reask { choice: 0, .. }), "{ending:?}");
    let answer = |text: &str| role() + &delta(&json!({"content": text})) + &finish("stop") + DONE;
    for (choice, text, last) in [(0, "one", false), (1, "two", true)] {
        judge.continue_with(choice);
        let (more, ending) = whole(&mut judge, &answer(text));
        assert_eq!(matches!(ending, Ending::Complete), last, "{ending:?}");
        out += &more;
    }
    assert_eq!((choice_view(&out, 0).0, choice_view(&out, 1).0), ("one".to_owned(), "two".to_owned()));
    assert_eq!(out.matches("[DONE]").count(), 1);
}

#[test]
fn parallel_calls_stream_live_if_judged_by_name_and_whole_if_judged_by_arguments() {
    let pieces: Vec<String> = standard([meant(0, false), meant(1, false)])
        .split_inclusive("\n\n")
        .map(str::to_owned)
        .chain([finish("tool_calls"), DONE.to_owned()])
        .collect();
    // For each event of the upstream: how many events the client has after it.
    let live: Vec<usize> = (1..=8).collect();
    let whole_calls = vec![0, 0, 0, 3, 3, 3, 7, 8];
    for (by_arguments, expected) in [(false, live), (true, whole_calls)] {
        let mut judge = judge(by_arguments);
        let mut shown = Vec::new();
        let counts: Vec<usize> = pieces
            .iter()
            .map(|piece| {
                judge.push(Bytes::from(piece.clone()), 0, &mut shown);
                String::from_utf8(shown.concat()).unwrap().matches("\n\n").count()
            })
            .collect();
        assert_eq!(counts, expected, "by arguments: {by_arguments}");
        assert_eq!(shown.concat(), pieces.concat().into_bytes(), "the client sees no difference but in time");
        let (_, calls, _) = client_view(&String::from_utf8(shown.concat()).unwrap());
        assert_eq!(calls, [0, 1].map(|at| (meant(at, false).name.into(), meant(at, false).arguments.into())));
    }
}

#[test]
fn interleaved_calls_that_are_held_come_out_in_the_order_in_which_they_came() {
    let (_, interleaved) = CALLS.iter().find(|(name, _)| *name == "interleaved").unwrap();
    let stream = interleaved([meant(0, false), meant(1, false)]);
    let mut judge = streamed(judging(true), LIMITS);
    let mut shown = Vec::new();
    for piece in stream.split_inclusive("\n\n") {
        judge.push(Bytes::copy_from_slice(piece.as_bytes()), 0, &mut shown);
    }
    assert_eq!(String::from_utf8(shown.concat()).unwrap(), stream);
}

#[test]
fn a_call_after_a_finish_that_the_client_has_is_blocked_and_nothing_is_asked_for_again() {
    let stream = role()
        + &delta(&json!({"content": "Done."}))
        + &finish("stop")
        + &deltas(&[
            json!({"index": 0, "id": "a", "function": {"name": "deny", "arguments": "{\"bad\":1}"}}),
        ])
        + &with_usage(&json!([]))
        + DONE;
    for by_arguments in [false, true] {
        let (out, ending) = whole(&mut judge(by_arguments), &stream);
        assert_eq!(ending, Ending::Complete);
        assert_eq!((finishes(&out), only_call(&out).0), (vec!["stop".to_owned()], vec![]), "{out}");
        assert!(out.contains("usage") && out.ends_with(DONE), "{out}");
    }
}

#[test]
fn several_data_lines_form_one_event_whether_or_not_they_are_json() {
    for (event, unjudged) in [
        ("data: {\"choices\":\ndata: []}\n\n", vec![]),
        ("data: {\"choices\":[]}\ndata: oops\n\n", vec![Unjudged::NotJson]),
    ] {
        let mut judge = judge(false);
        assert_eq!(whole(&mut judge, event), (event.to_owned(), Ending::Complete));
        assert_eq!(judge.unjudged(), unjudged, "{event}");
    }
}

#[test]
fn a_reply_after_an_unterminated_event_is_not_merged_into_that_event() {
    let denied =
        delta(&json!({"role": "assistant", "tool_calls": [{"index": 0, "id": "a", "type": "function",
        "function": {"name": "deny", "arguments": "{}"}}]}));
    let ok = denied.replace("deny", "ok");
    // No blank line at the end of the stream, not even the end of its last line, or a CR alone.
    for cut in ["\n", "", "\r", "\r\n"] {
        let unended = |stream: &str| format!("{}{cut}", stream.trim_end());
        let mut judge = judge(false);
        let (first, ending) = whole(&mut judge, &unended(&denied));
        assert!(matches!(ending, Ending::Reask { .. }), "{cut:?}");
        judge.continue_with(0);
        // A reply without a finish: toolrein's follows it.
        let (second, ending) = whole(&mut judge, &unended(&delta(&json!({"content": "Well."}))));
        assert_eq!(ending, Ending::Complete);
        let (text, calls, finishes) =
            client_view(&(first + &second).replace("\r\n", "\n").replace('\r', "\n"));
        assert_eq!((text.as_str(), calls.len(), finishes), ("Well.", 0, vec!["stop".to_owned()]), "{cut:?}");
        // Untouched parts stay as they came.
        let untouched = unended(&ok);
        assert_eq!(whole(&mut super::judge(false), &untouched).0, untouched);
    }
}
