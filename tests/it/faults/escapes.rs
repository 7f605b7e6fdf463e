//! Calls that once escaped the judge, each by its name, streamed and whole, before a program that forbids the call and
//! before one that asks a person for it. Whatever the client gets, the tolerant reader of `tests/support` finds no such
//! call in it; and nothing that was refused is silent.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::{Recorded, Scripted};
use mock::tolerant::{calls_in_reply, calls_in_stream};
use serde_json::{Value, json};

/// The tool that must not be called.
const EVIL: &str = "wipe_disk";

const CALL: &str =
    r#"{"index":0,"id":"c1","type":"function","function":{"name":"wipe_disk","arguments":"{}"}}"#;

/// Whole replies, with the call written in the place of `CALL`.
const WHOLE: &[(&str, &str)] = &[
    (
        "beside an error",
        r#"{"error":{"message":"x","code":500},"choices":[{"message":{"tool_calls":[CALL]}}]}"#,
    ),
    (
        "beside an error that says nothing",
        r#"{"choices":[{"message":{"tool_calls":[CALL]}}],"error":{"code":0,"message":""}}"#,
    ),
    (
        "in an object that calls itself an error",
        r#"{"object":"error","choices":[{"message":{"tool_calls":[CALL]}}]}"#,
    ),
    (
        "beside a failed base_resp",
        r#"{"base_resp":{"status_code":1004},"choices":[{"message":{"tool_calls":[CALL]}}]}"#,
    ),
    (
        "in a message after a delta",
        r#"{"choices":[{"delta":{"content":"x"},"message":{"tool_calls":[CALL]}}]}"#,
    ),
    (
        "in a message before a delta",
        r#"{"choices":[{"message":{"tool_calls":[CALL]},"delta":{"content":"x"}}]}"#,
    ),
    (
        "in a delta beside a message",
        r#"{"choices":[{"message":{"content":"x"},"delta":{"tool_calls":[CALL]}}]}"#,
    ),
    (
        "in the second of two messages",
        r#"{"choices":[{"message":{"content":"x"},"message":{"tool_calls":[CALL]}}]}"#,
    ),
    (
        "in the first of two messages",
        r#"{"choices":[{"message":{"tool_calls":[CALL]},"message":{"content":"x"}}]}"#,
    ),
    ("under an escaped tool_calls", r#"{"choices":[{"message":{"tool\u005fcalls":[CALL]}}]}"#),
    ("under an escaped choices", r#"{"\u0063hoices":[{"message":{"tool_calls":[CALL]}}]}"#),
    ("under an escaped message", r#"{"choices":[{"\u006dessage":{"tool_calls":[CALL]}}]}"#),
    ("under tool_calls in capitals, as Go reads it", r#"{"choices":[{"message":{"Tool_Calls":[CALL]}}]}"#),
    (
        "in the second of two functions",
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"say","arguments":"{}"},"functi\u006fn":{"name":"wipe_disk","arguments":"{}"}}]}}]}"#,
    ),
    (
        "with its name after another",
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"say","name":"wipe_disk","arguments":"{}"}}]}}]}"#,
    ),
    ("behind a byte order mark", "\u{feff}{\"choices\":[{\"message\":{\"tool_calls\":[CALL]}}]}"),
    ("beside NaN", r#"{"x":NaN,"choices":[{"message":{"tool_calls":[CALL]}}]}"#),
    ("beside -Infinity", r#"{"x":-Infinity,"choices":[{"message":{"tool_calls":[CALL]}}]}"#),
    ("behind null among the choices", r#"{"choices":[null,{"message":{"tool_calls":[CALL]}}]}"#),
    (
        "as function_call",
        r#"{"choices":[{"message":{"function_call":{"name":"wipe_disk","arguments":"{}"}}}]}"#,
    ),
    (
        "in a copy beside the message in which another reader sees another call",
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"say","arguments":"{}"}}]},"delta":{"tool_calls":[{"function":{"name":"say","arguments":"{}"},"Function":{"name":"wipe_disk","arguments":"{}"}}]}}]}"#,
    ),
    (
        "within a call that stands for several",
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"multi_tool_use.parallel","arguments":"{\"tool_uses\":[{\"recipient_name\":\"functions.say\",\"parameters\":{}},{\"recipient_name\":\"functions.wipe_disk\",\"parameters\":{}}]}"}}]}}]}"#,
    ),
    (
        "within a call that stands for several, by its other name",
        r#"{"choices":[{"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"parallel","arguments":"{\"tool_uses\":[{\"recipient_name\":\"wipe_disk\",\"parameters\":{}}]}"}}]}}]}"#,
    ),
];

fn nested() -> String {
    format!(
        r#"{{"x":{}{},"choices":[{{"message":{{"tool_calls":[CALL]}}}}]}}"#,
        "[".repeat(300),
        "]".repeat(300)
    )
}

/// Events of streams, without their framing; a line that begins with `!` is an event as it is.
const STREAMED: &[(&str, &[&str])] = &[
    (
        "beside an error in the first chunk",
        &[r#"{"error":{"message":"x"},"choices":[{"index":0,"delta":{"tool_calls":[CALL]}}]}"#],
    ),
    (
        "beside an error in a later chunk",
        &[
            r#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#,
            r#"{"error":{"code":0,"message":""},"choices":[{"index":0,"delta":{"tool_calls":[CALL]}}]}"#,
        ],
    ),
    (
        "in an event named error",
        &["!event: error\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[CALL]}}]}\n\n"],
    ),
    (
        "in an object that calls itself an error",
        &[r#"{"object":"error","choices":[{"index":0,"delta":{"tool_calls":[CALL]}}]}"#],
    ),
    (
        "in a message beside the delta",
        &[r#"{"choices":[{"index":0,"delta":{"content":"x"},"message":{"tool_calls":[CALL]}}]}"#],
    ),
    ("under escaped names", &[r#"{"choices":[{"index":0,"d\u0065lta":{"tool\u005fcalls":[CALL]}}]}"#]),
    (
        "with its name in pieces behind empty arguments",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"wipe_","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"disk","arguments":"{}"}}]}}]}"#,
        ],
    ),
    (
        "with its name replaced",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"say","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"wipe_disk","arguments":"{}"}}]}}]}"#,
        ],
    ),
    (
        "with its name growing after the arguments",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"wipe_","arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"disk","arguments":"}"}}]}}]}"#,
        ],
    ),
    (
        "with its name after the finish",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"wipe_disk"}}]}}]}"#,
        ],
    ),
    (
        "with its name after the end",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"say","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            "!data: [DONE]\n\n",
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"wipe_disk"}}]}}]}"#,
        ],
    ),
    (
        "under an index as text",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":"0","id":"a","function":{"name":"wipe_","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":"0","delta":{"tool_calls":[{"index":0.0,"function":{"name":"disk","arguments":"{}"}}]}}]}"#,
        ],
    ),
    (
        "under an index of 2^32",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":4294967296,"id":"a","function":{"name":"wipe_","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"say","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":4294967296,"function":{"name":"disk","arguments":"{}"}}]}}]}"#,
        ],
    ),
    (
        "in one of several data lines that say something harmless together",
        &[
            "!data: {\"x\":\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[CALL]}}]}\ndata: }\n\n",
        ],
    ),
    (
        "behind a line end that only some clients know",
        &["!: x\u{2028}data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[CALL]}}]}\n\n"],
    ),
    (
        "behind a space that only some clients know",
        &["!\u{a0}data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[CALL]}}]}\n\n"],
    ),
    (
        "in an error that is no JSON, in capitals",
        &["!event: error\ndata: {\"CHOICES\":[{\"index\":0,\"delta\":{\"tool_calls\":[CALL]}}]} x\n\n"],
    ),
    (
        "in pieces of which the later ones have no index",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"wipe_","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"b","function":{"name":"say","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"disk","arguments":"{}"}}]}}]}"#,
        ],
    ),
    (
        "in a call that stands for several, by the last piece of its name",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"x"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"parallel","arguments":"{\"tool_uses\":[{\"recipient_name\":\"functions.wipe_disk\",\"parameters\":{}}]}"}}]}}]}"#,
        ],
    ),
    (
        "in pieces around a call beside them",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"wipe_"}}]},"message":{"tool_calls":[{"id":"z","function":{"name":"say","arguments":"{}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"disk","arguments":"{}"}}]}}]}"#,
        ],
    ),
    (
        "in a line without a field",
        &["!event: message\n{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[CALL]}}]}\n\n"],
    ),
    (
        "within a call that stands for several",
        &[
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"multi_tool_use.parallel","arguments":""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"tool_uses\":[{\"recipient_name\":\"functions.wipe_disk\",\"parameters\":{}}]}"}}]}}]}"#,
        ],
    ),
];

fn cases(form: &str) -> Vec<(String, Vec<u8>)> {
    if form == "whole" {
        let nested = [("under 300 lists".to_owned(), nested())];
        let all = WHOLE.iter().map(|(name, body)| ((*name).to_owned(), (*body).to_owned())).chain(nested);
        let mut all: Vec<_> =
            all.map(|(name, body)| (name, body.replace("CALL", CALL).into_bytes())).collect();
        let utf16 = format!(r#"{{"choices":[{{"message":{{"tool_calls":[{CALL}]}}}}]}}"#);
        all.push(("in UTF-16".to_owned(), utf16.encode_utf16().flat_map(u16::to_le_bytes).collect()));
        return all;
    }
    let framed = |events: &[&str]| -> String {
        let framed = events.iter().map(|event| match event.strip_prefix('!') {
            Some(raw) => raw.to_owned(),
            None => format!("data: {event}\n\n"),
        });
        let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
        framed.collect::<String>() + end
    };
    STREAMED
        .iter()
        .map(|(name, events)| ((*name).to_owned(), framed(events).replace("CALL", CALL).into_bytes()))
        .collect()
}

/// An upstream that answers with the case that the request names, and with a text once it is asked again.
fn upstream(again: bool) -> Scripted {
    Scripted::start(move |_, request: &Recorded| {
        let body = request.json();
        let streamed = body["stream"] == true;
        let form = if streamed { "streamed" } else { "whole" };
        let was_asked = body["messages"].as_array().is_some_and(|messages| messages.len() > 1);
        if was_asked != again {
            let first =
                json!([{"role": "assistant", "tool_calls": [serde_json::from_str::<Value>(CALL).unwrap()]}]);
            return match (again, streamed) {
                (false, true) => Reply::events(&[
                    json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"}]}),
                ]),
                (false, false) => Reply::text("Fine."),
                (true, true) => Reply::events(&[
                    json!({"choices": [{"index": 0, "delta": first[0], "finish_reason": "tool_calls"}]}),
                ]),
                (true, false) => Reply::json(
                    200,
                    &json!({"choices": [{"index": 0, "message": first[0], "finish_reason": "tool_calls"}]}),
                ),
            };
        }
        let nth = body["seed"].as_u64().unwrap() as usize;
        let body = cases(form)[nth].1.clone();
        if streamed { Reply::stream([body]) } else { Reply::bytes(200, "application/json", body) }
    })
}

fn ask(program: &Toolrein, nth: usize, stream: bool) -> Vec<u8> {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let body = json!({
        "model": "m", "seed": nth, "stream": stream,
        "messages": [{"role": "user", "content": "go on"}],
        "tools": [tool("say"), tool(EVIL)],
    });
    let response = Request::post(&program.chat_url(), body.to_string()).send();
    response.body
}

const FORBIDS: [&str; 2] =
    ["[policy.allow]\nexcept = [\"wipe*\"]\n", "[policy.confirm]\ntools = [\"wipe*\"]\n"];

fn no_case_escapes(again: bool) {
    let upstream = upstream(again);
    for policies in FORBIDS {
        let program = Toolrein::before(&upstream, policies);
        for (form, stream) in [("whole", false), ("streamed", true)] {
            for (nth, (name, _)) in cases(form).iter().enumerate() {
                let body = ask(&program, nth, stream);
                let text = String::from_utf8_lossy(&body);
                let found = if stream { calls_in_stream(&body) } else { calls_in_reply(&body) };
                assert!(!found.iter().any(|call| call.name == EVIL), "{form} {name}: {found:?} in {text}");
                // An upstream's error beside the call reaches the client without it.
                let is_answered = ["\"content\":\"", "\"error\":", "\"say\""];
                assert!(is_answered.iter().any(|word| text.contains(word)), "{form} {name}: {text}");
            }
        }
    }
}

#[test]
fn no_oddly_formatted_call_escapes_the_policies() {
    no_case_escapes(false);
}

#[test]
fn no_oddly_formatted_call_in_the_reply_to_a_re_ask_escapes_the_policies() {
    no_case_escapes(true);
}

#[test]
fn a_reply_with_an_error_status_cannot_carry_a_forbidden_call() {
    let body = format!("{{\"choices\":[{{\"message\":{{\"tool_calls\":[{CALL}]}}}}]}}");
    let events = format!("data: {}\n\n", body.replace("message", "delta"));
    let bodies = [body.clone(), format!("{body} x"), events];
    let replies = [300, 400, 503]
        .into_iter()
        .flat_map(|status| bodies.clone().map(|body| Reply::bytes(status, "application/json", body)));
    let upstream = Scripted::queue(replies);
    let program = Toolrein::before(
        &upstream,
        "reask.max = 0\nupstream.unjudged = \"refuse\"\n[policy.allow]\nexcept = [\"wipe*\"]\n",
    );
    for nth in 0..9 {
        let body = ask(&program, 0, false);
        let text = String::from_utf8_lossy(&body);
        assert!(!text.contains(EVIL), "{nth}: {text}");
    }
}

#[test]
fn a_forced_choice_opens_no_tool_that_is_closed() {
    let upstream = upstream(true);
    for (policies, choice) in [
        (FORBIDS[0], json!("required")),
        (FORBIDS[0], json!({"type": "function", "function": {"name": "say"}})),
        (FORBIDS[1], json!("required")),
    ] {
        let program = Toolrein::before(&upstream, policies);
        for stream in [false, true] {
            let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
            let body = json!({
                "model": "m", "seed": 0, "stream": stream, "tool_choice": choice,
                "messages": [{"role": "user", "content": "go on"}], "tools": [tool("say"), tool(EVIL)],
            });
            let body = Request::post(&program.chat_url(), body.to_string()).send().body;
            let found = if stream { calls_in_stream(&body) } else { calls_in_reply(&body) };
            assert!(!found.iter().any(|call| call.name == EVIL), "{policies} {choice}: {found:?}");
        }
    }
}

#[test]
fn what_cannot_be_judged_passes_and_is_counted_where_no_policy_restricts_calls_or_the_operator_says_so() {
    let upstream = upstream(false);
    for settings in
        ["[policy.budget]\n", "upstream.unjudged = \"pass\"\n[policy.allow]\nexcept = [\"nothing\"]\n"]
    {
        let program = Toolrein::before(&upstream, settings);
        let at = WHOLE.iter().position(|(name, _)| *name == "in the second of two functions").unwrap();
        let body = ask(&program, at, false);
        assert_eq!(body, cases("whole")[at].1, "{settings}");
        program.wait_for_metric("toolrein_unjudged_total{why=\"ambiguous\"}", 1.0);
    }
}

/// Replies of the Responses API from which a client may read a call, with the call written in the place of `ITEM` and
/// that of a shell in the place of `SHELL`.
const RESPONSES: &[(&str, &str)] = &[
    ("in the first of two outputs", r#"{"id":"r","status":"completed","output":[ITEM],"output":[]}"#),
    ("in the second of two outputs", r#"{"id":"r","status":"completed","output":[],"output":[ITEM]}"#),
    ("in an output before null", r#"{"id":"r","status":"completed","output":[ITEM],"output":null}"#),
    ("under Output, as Go reads it", r#"{"id":"r","status":"completed","output":[],"Output":[ITEM]}"#),
    ("in a list among the items", r#"{"id":"r","status":"completed","output":[[ITEM]]}"#),
    ("in an object for a list", r#"{"id":"r","status":"completed","output":{"0":ITEM}}"#),
    ("in an object beside an error", r#"{"id":"r","error":{"message":"x"},"output":{"0":ITEM}}"#),
    ("in two outputs beside an error", r#"{"id":"r","error":{"message":"x"},"output":[ITEM],"output":[]}"#),
    (
        "to a local shell with a container in its skills",
        r#"{"id":"r","status":"completed","output":[SHELL,"environment":{"type":"local","skills":[{"name":"container-tools"}]}}]}"#,
    ),
    (
        "to a shell in two environments",
        r#"{"id":"r","status":"completed","output":[SHELL,"environment":{"type":"local"},"environment":{"type":"container_reference"}}]}"#,
    ),
];

/// Events of such replies.
const RESPONSE_EVENTS: &[(&str, &[&str])] = &[
    ("in a list for an item", &[r#"{"type":"response.output_item.done","output_index":0,"item":[ITEM]}"#]),
    (
        "in a list for a response",
        &[r#"{"type":"response.completed","response":[{"id":"r","output":[ITEM]}]}"#],
    ),
    (
        "in an object for the items so far",
        &[r#"{"type":"response.created","response":{"id":"r","status":"in_progress","output":{"0":ITEM}}}"#],
    ),
    (
        "in the items of a failure",
        &[
            r#"{"type":"response.failed","response":{"id":"r","status":"failed","error":{"message":"x"},"output":{"0":ITEM}}}"#,
        ],
    ),
    (
        "beside a last event without a type",
        &[
            r#"{"type":"response.output_item.done","output_index":0,"item":ITEM}"#,
            "!event: response.completed\ndata: {\"response\": {\"id\": \"r\", \"status\": \"completed\", \"output\": [ITEM]}}\n\n",
        ],
    ),
    (
        "to a local shell with a container in its skills",
        &[
            r#"{"type":"response.output_item.done","output_index":0,"item":SHELL,"environment":{"type":"local","skills":[{"name":"container-tools"}]}}}"#,
        ],
    ),
];

fn response_cases(streamed: bool) -> Vec<(String, String)> {
    let item = r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"wipe_disk","arguments":"{}","status":"completed"}"#;
    let shell = r#"{"type":"shell_call","id":"sh_1","call_id":"c1","action":{"commands":["wipe_disk"]}"#;
    let written = |text: &str| text.replace("ITEM", item).replace("SHELL", shell);
    if !streamed {
        return RESPONSES.iter().map(|(name, body)| ((*name).to_owned(), written(body))).collect();
    }
    let event = |data: &str| match data.strip_prefix('!') {
        Some(raw) => raw.to_owned(),
        None => format!("data: {data}\n\n"),
    };
    let last = |body: &str| event(&format!(r#"{{"type":"response.completed","response":{body}}}"#));
    let of_whole = RESPONSES.iter().map(|(name, body)| (format!("{name}, in the last event"), last(body)));
    let events = |all: &[&str]| all.iter().map(|data| event(data)).collect::<String>();
    let of_events = RESPONSE_EVENTS.iter().map(|(name, all)| ((*name).to_owned(), events(all)));
    of_whole.chain(of_events).map(|(name, text)| (name, written(&text))).collect()
}

#[test]
fn no_oddly_formatted_call_of_the_responses_api_escapes_the_policies() {
    let upstream = Scripted::start(|_, request: &Recorded| {
        let body = request.json();
        let streamed = body["stream"] == true;
        let nth = body["metadata"]["nth"].as_u64().unwrap() as usize;
        let from_stream = body["metadata"]["from_stream"] == true;
        let text = match body["input"].as_array().unwrap().len() {
            1 => response_cases(from_stream)[nth].1.clone(),
            _ => {
                let message = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Fine."}]});
                let whole = json!({"id": "r2", "status": "completed", "output": [message]});
                let event = json!({"type": "response.completed", "response": whole});
                if streamed { format!("data: {event}\n\n") } else { whole.to_string() }
            }
        };
        let is_stream = text.starts_with("data:") || text.starts_with("event:");
        if is_stream {
            Reply::stream([text.into_bytes()])
        } else {
            Reply::bytes(200, "application/json", text.into_bytes())
        }
    });
    for policies in [
        "[policy.allow]\nexcept = [\"wipe*\", \"shell\"]\n",
        "[policy.confirm]\ntools = [\"wipe*\", \"shell\"]\n",
    ] {
        let program = Toolrein::before(&upstream, policies);
        for (stream, from_stream) in [(false, false), (true, true), (true, false), (false, true)] {
            for (nth, (name, _)) in response_cases(from_stream).iter().enumerate() {
                let tool = |name: &str| json!({"type": "function", "name": name, "parameters": {}});
                let body = json!({
                    "model": "m", "stream": stream, "metadata": {"nth": nth, "from_stream": from_stream},
                    "input": [{"role": "user", "content": "go on"}],
                    "tools": [tool("say"), tool(EVIL), {"type": "shell"}],
                });
                let url = program.chat_url().replace("chat/completions", "responses");
                let body = Request::post(&url, body.to_string()).send().body;
                let text = String::from_utf8_lossy(&body);
                // A question to a person says the name too, but not alone in a string.
                let said = format!("{policies} {name} {stream} {from_stream}: {text}");
                assert!(!text.contains("\"wipe_disk\""), "{said}");
                assert!(["\"text\":\"", "error"].iter().any(|word| text.contains(word)), "{said}");
            }
        }
    }
}
