//! Replies in which a tolerant client may find a call that the protocol does not have there: in lines of another field, in
//! an envelope, in events that name no item, in items of no known type, in JSON within a string. Where a policy forbids the
//! tool, no such call reaches the client; what holds no call passes byte for byte.

use crate::governed::talk::{BOTH, GENEROUS, chat, question};
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, tool, url};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

const FORBIDS_G: &str = "[policy.allow]\nexcept = [\"g\"]\n";
const SECRET: &str = "{\"to\":\"secret\"}";

/// A chunk, or a whole reply, with a call of this tool.
fn chunk(holder: &str, name: &str) -> Value {
    let call =
        json!({"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": SECRET}});
    let choice = json!({"index": 0, holder: {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"});
    json!({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
}

fn text_chunk() -> String {
    let choice = json!({"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": null});
    format!("data: {}\n\n", json!({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}))
}

const DONE: &str = "data: [DONE]\n\n";

/// What the client of chat completions gets for this reply of the upstream, and of every later one.
fn chat_with(settings: &str, reply: &Reply, stream: bool) -> (String, Toolrein) {
    let reply = reply.clone();
    let upstream = Scripted::start(move |nth, _| if nth == 0 { reply.clone() } else { Reply::text("fine") });
    let toolrein = Toolrein::before(&upstream, settings);
    let text = chat(&toolrein, question(stream)).text();
    (text, toolrein)
}

#[test]
fn a_streamed_call_outside_of_the_data_of_chat_completions_is_refused_where_its_tool_is_forbidden() {
    let call = chunk("delta", "g").to_string();
    for line in [
        format!("Data: {call}"),
        format!("DATA:{call}"),
        format!("data : {call}"),
        format!("id: {call}"),
        format!(": {call}"),
        format!("[{call}]"),
        call.clone(),
        format!("Data: {}", call.replace("tool_calls\":", "t\\u006fol_calls\":")),
        format!("data: {{\"data\":{call}}}"),
        format!("data: {{\"code\":0,\"result\":{{\"reply\":{call}}}}}"),
        format!("data: {{\"choices\":[],\"response\":{call}}}"),
    ] {
        for before in [String::new(), text_chunk()] {
            let sent = format!("{before}{line}\n\n{DONE}");
            let (text, _) = chat_with(FORBIDS_G, &Reply::stream([sent]), true);
            assert!(!text.contains("secret"), "{line}: {text}");
            assert!(text.contains("reply_unjudged"), "{line}: {text}");
        }
    }
}

#[test]
fn what_some_client_may_read_as_a_call_passes_and_is_counted_where_no_policy_restricts_calls() {
    let call = chunk("delta", "g").to_string();
    for line in [format!("Data: {call}"), format!("data: {{\"data\":{call}}}")] {
        let sent = format!("{}{line}\n\n{DONE}", text_chunk());
        for settings in [GENEROUS, &format!("upstream.unjudged = \"pass\"\n{FORBIDS_G}")] {
            let (text, toolrein) = chat_with(settings, &Reply::stream([sent.as_str()]), true);
            assert_eq!(text, sent, "{settings}");
            toolrein.wait_for_metric("toolrein_unjudged_total{why=\"ambiguous\"}", 1.0);
        }
    }
}

#[test]
fn a_whole_reply_in_an_envelope_or_with_json_in_strings_hands_out_no_forbidden_call() {
    let whole = chunk("message", "g");
    let function = json!({"name": "g", "arguments": SECRET});
    let with = |message: Value| {
        let mut whole = whole.clone();
        whole["choices"][0]["message"] = message;
        whole
    };
    let calls = whole["choices"][0]["message"]["tool_calls"].to_string();
    for body in [
        json!({"data": whole}),
        json!({"code": 0, "message": "ok", "data": whole}),
        json!({"result": whole}),
        json!({"response": [whole]}),
        with(json!({"role": "assistant", "tool_calls": calls})),
        with(json!({"role": "assistant", "function_call": function.to_string()})),
        with(json!({"role": "assistant", "toolCalls": whole["choices"][0]["message"]["tool_calls"]})),
        with(json!({"role": "assistant", "functionCall": function})),
        with(
            json!({"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function.to_string()}]}),
        ),
    ] {
        let (text, _) = chat_with(FORBIDS_G, &Reply::json(200, &body), false);
        assert!(!text.contains("secret") && text.contains("reply_unjudged"), "{body}: {text}");
        let (text, _) = chat_with(GENEROUS, &Reply::json(200, &body), false);
        assert_eq!(text, body.to_string());
    }
}

/// A chunk with a piece of one call.
fn piece(name: &str, arguments: &str) -> String {
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}});
    let choice = json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null});
    format!("data: {}\n", json!({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}))
}

/// Clients that read events as the standard says see nothing of one with two chunks in it, and those that go by lines see both.
#[test]
fn a_call_with_pieces_in_events_that_clients_read_differently_is_refused_where_its_tool_is_forbidden() {
    let settings = format!("{FORBIDS_G}undeclared = \"pass\"\n");
    let finish = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n";
    let (x, g) = (piece("x", ""), piece("g", SECRET));
    for sent in [
        format!("data: [DONE]\n{x}\n{g}\n{finish}\n{DONE}"),
        format!("{finish}{x}\n{g}\n{finish}\n{DONE}"),
        format!("{g}\n{x}{finish}\n{DONE}"),
        format!("{x}{x}\n{g}{finish}\n{DONE}"),
    ] {
        let (text, _) = chat_with(&settings, &Reply::stream([sent.as_str()]), true);
        assert!(!text.contains("secret"), "{sent}: {text}");
    }
    let by_line = format!("{}{}{finish}data: [DONE]\n", piece("f", ""), piece("", "{}"));
    let (text, _) = chat_with(&settings, &Reply::stream([by_line.as_str()]), true);
    assert_eq!(text, by_line, "an engine that writes no blank lines");
}

#[test]
fn an_empty_list_in_a_stream_is_a_heartbeat() {
    for list in ["[]", "[ ]"] {
        let beat = format!("data: {list}\n\n");
        let sent = format!("{beat}{}{beat}{}{DONE}", text_chunk(), framed(&[chunk("delta", "f")]));
        let (text, _) = chat_with(FORBIDS_G, &Reply::stream([sent.as_str()]), true);
        assert_eq!(text, sent);
        let talk = talk(true);
        let events: Vec<String> =
            Output::calls(0, &[("a", "f", "{}")]).events(&talk).iter().map(event).collect();
        let sent = beat.clone() + &events.join(&beat) + &beat;
        let (text, _) = responses_with(FORBIDS_G, &Reply::stream([sent.as_str()]), &talk);
        assert_eq!(text, sent);
    }
}

fn framed(data: &[Value]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn talk(stream: bool) -> Value {
    Talk::new(stream).with_tools(json!([tool("f"), tool("g")])).body
}

/// What the client of the Responses API gets for this reply of the upstream; later ones are texts.
fn responses_with(settings: &str, reply: &Reply, request: &Value) -> (String, Vec<Value>) {
    let (reply, body) = (reply.clone(), request.clone());
    let upstream = Scripted::start(move |nth, _| match (nth, body["stream"] == true) {
        (0, _) => reply.clone(),
        (_, true) => Reply::stream(Output::text(1, "fine").events(&body).iter().map(event)),
        (_, false) => Reply::json(200, &Output::text(1, "fine").whole(&body)),
    });
    let toolrein = Toolrein::before(&upstream, settings);
    let text = post(&url(&toolrein), request.to_string()).text();
    (text, upstream.requests().iter().map(Recorded::json).collect())
}

/// The events of a reply with one call of `name`, whose argument events `change` may change.
fn events_with(name: &str, change: &dyn Fn(&mut Value)) -> Vec<Value> {
    let mut events = Output::calls(0, &[("c9", name, SECRET)]).events(&talk(true));
    let pieces =
        events.iter_mut().filter(|event| event["delta"].is_string() || event["arguments"].is_string());
    pieces.for_each(change);
    events
}

fn without(event: &mut Value, members: &[&str]) {
    for member in members {
        event.as_object_mut().unwrap().remove(*member);
    }
}

type Change = fn(&mut Value);

const CHANGES: [(&str, Change); 8] = [
    ("another id and no index", |event| {
        event["item_id"] = "zz".into();
        without(event, &["output_index"]);
    }),
    ("ids that change and no index", |event| {
        event["item_id"] = event["sequence_number"].to_string().into();
        without(event, &["output_index"]);
    }),
    ("another index and another id", |event| {
        event["item_id"] = "zz".into();
        event["output_index"] = 7.into();
    }),
    ("the id of the call alone", |event| {
        event["call_id"] = "call_c9".into();
        without(event, &["item_id", "output_index"]);
    }),
    ("the name and no sign", |event| {
        event["name"] = "g".into();
        without(event, &["item_id", "output_index"]);
    }),
    ("no sign", |event| without(event, &["item_id", "output_index"])),
    ("of a custom tool", |event| {
        let kind = if event["delta"].is_string() { "delta" } else { "done" };
        event["type"] = format!("response.custom_tool_call_input.{kind}").into();
        event["item_id"] = "zz".into();
        event["output_index"] = 7.into();
    }),
    ("of a tool of an MCP server", |event| {
        let kind = if event["delta"].is_string() { "delta" } else { "done" };
        event["type"] = format!("response.mcp_call_arguments.{kind}").into();
        event["item_id"] = "zz".into();
        event["output_index"] = 7.into();
    }),
];

#[test]
fn events_with_arguments_that_fit_no_item_go_to_no_client_beside_a_call_that_is_blocked() {
    for (what, change) in CHANGES {
        let events = events_with("g", &change);
        let last = events.len() - 1;
        for (order, events) in [
            ("in order", events.clone()),
            ("after the item", {
                let (mut late, mut rest): (Vec<Value>, Vec<Value>) = events[..last]
                    .iter()
                    .cloned()
                    .partition(|event| event["delta"].is_string() || event["arguments"].is_string());
                rest.append(&mut late);
                rest.push(events[last].clone());
                rest
            }),
        ] {
            let sent: String = events.iter().map(event).collect();
            let (text, requests) = responses_with(FORBIDS_G, &Reply::stream([sent]), &talk(true));
            assert!(!text.contains("secret"), "{what}, {order}: {text}");
            assert!(text.contains("fine") || text.contains("reply_unjudged"), "{what}, {order}: {text}");
            assert!(requests.len() < 3, "{what}, {order}");
        }
    }
}

#[test]
fn an_event_that_names_a_forbidden_tool_is_a_call_of_it_without_any_item() {
    let message = Output::text(0, "Hi.").events(&talk(true));
    let item_id = message[2]["item"]["id"].clone();
    for (id, index) in [(json!("fc_c9"), json!(4)), (item_id, json!(0)), (Value::Null, Value::Null)] {
        let end = json!({"type": "response.function_call_arguments.done", "item_id": id, "output_index": index,
            "name": "g", "arguments": SECRET, "sequence_number": 3});
        let mut events = message.clone();
        events.insert(3, end);
        let sent: String = events.iter().map(event).collect();
        let (text, _) = responses_with(FORBIDS_G, &Reply::stream([sent]), &talk(true));
        assert!(!text.contains("secret"), "{id} {index}: {text}");
    }
}

#[test]
fn a_call_whose_events_have_other_signs_than_its_item_passes_as_it_came_if_its_tool_is_allowed() {
    for (what, change) in CHANGES.iter().filter(|(what, _)| *what != "the name and no sign") {
        let events = events_with("f", change);
        let sent: String = events.iter().map(event).collect();
        for settings in [FORBIDS_G, GENEROUS] {
            let (text, _) = responses_with(settings, &Reply::stream([sent.as_str()]), &talk(true));
            assert_eq!(text, sent, "{what} {settings}");
        }
    }
}

#[test]
fn arguments_of_a_tool_that_the_server_runs_pass_beside_an_open_call_and_without_one() {
    let kind = |end: &str| format!("response.mcp_call_arguments.{end}");
    let of_server = [
        json!({"type": kind("delta"), "item_id": "mcp_1", "output_index": 1, "delta": "{\"q\":"}),
        json!({"type": kind("delta"), "item_id": "mcp_1", "output_index": 1, "delta": "1}"}),
        json!({"type": kind("done"), "item_id": "mcp_1", "output_index": 1, "arguments": "{\"q\":1}"}),
    ];
    let calls = Output::calls(0, &[("c9", "f", SECRET)]).events(&talk(true));
    let text = Output::text(0, "Hi.").events(&talk(true));
    for events in [calls, text] {
        // After the item's beginning, before its end.
        let events = [&events[..3], &of_server, &events[3..]].concat();
        let sent: String = events.iter().map(event).collect();
        for settings in [FORBIDS_G, GENEROUS] {
            let (got, _) = responses_with(settings, &Reply::stream([sent.as_str()]), &talk(true));
            assert_eq!(got, sent, "{settings}");
        }
    }
}

#[test]
fn an_item_of_no_known_type_that_has_a_name_and_arguments_is_a_call() {
    let call = |name: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name, "arguments": SECRET, "status": "completed"});
    let changes: [Change; 4] = [
        |item| without(item, &["type"]),
        |item| item["type"] = "tool_call".into(),
        |item| item["type"] = "Function_Call".into(),
        |item| item["type"] = "acme:tool_call".into(),
    ];
    for change in changes {
        for stream in BOTH {
            let reply = |name: &str| {
                let mut item = call(name);
                change(&mut item);
                let request = talk(stream);
                let mut whole = Output::text(0, "Hi.").whole(&request);
                whole["output"] = json!([item]);
                if !stream {
                    return (Reply::json(200, &whole), whole.to_string());
                }
                let first = Output::text(0, "Hi.").events(&request)[0].clone();
                let events = [
                    first,
                    json!({"type": "response.output_item.done", "output_index": 0, "item": item, "sequence_number": 1}),
                    json!({"type": "response.completed", "response": whole, "sequence_number": 2}),
                ];
                let sent: String = events.iter().map(event).collect();
                (Reply::stream([sent.as_str()]), sent)
            };
            let (forbidden, sent) = reply("g");
            let (text, requests) = responses_with(FORBIDS_G, &forbidden, &talk(stream));
            assert!(!text.contains("secret") && text.contains("fine"), "{sent}: {text}");
            assert_eq!(requests.len(), 2, "{sent}");
            let again = requests[1]["input"].as_array().unwrap();
            let is_call = |item: &&Value| item["type"] == "function_call" && item["call_id"] == "c1";
            assert_eq!(
                again.iter().filter(is_call).count(),
                1,
                "the model reads a call of a known type: {again:?}"
            );
            let (allowed, sent) = reply("f");
            let (text, _) = responses_with(FORBIDS_G, &allowed, &talk(stream));
            assert_eq!(text, sent);
        }
    }
}
