//! Replies in which a tolerant client may find a call that the protocol does not have there: in lines of another field, in
//! an envelope, in events that name no item, in items of no known type, in JSON within a string. Where a policy forbids the
//! tool, no such call reaches the client; what holds no call passes byte for byte.

use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::Scripted;
use crate::talk::{GENEROUS, chat, question};
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
fn a_whole_reply_in_an_envelope_hands_out_no_forbidden_call() {
    let whole = chunk("message", "g");
    for body in [
        json!({"data": whole}),
        json!({"code": 0, "message": "ok", "data": whole}),
        json!({"result": whole}),
        json!({"response": [whole]}),
    ] {
        let (text, _) = chat_with(FORBIDS_G, &Reply::json(200, &body), false);
        assert!(!text.contains("secret") && text.contains("reply_unjudged"), "{body}: {text}");
        let (text, _) = chat_with(GENEROUS, &Reply::json(200, &body), false);
        assert_eq!(text, body.to_string());
    }
}

/// What the client of the Responses API gets for this reply of the upstream; later ones are texts.
/// The events of a reply with one call of `name`, whose argument events `change` may change.
