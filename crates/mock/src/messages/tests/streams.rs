//! Replies as streams: the order of events, and that they join to the whole reply.

use super::*;

/// The `event:` line and the data of each event.
fn read(events: &[Bytes]) -> Vec<(String, Value)> {
    let text = joined(events);
    let events = text.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data).unwrap())
    });
    events.collect()
}

/// A request whose reply has thinking, a text and two calls.
fn rich() -> Value {
    let body =
        demo("demo-chat", &[user(&json!("Use urlReader, then searchAll."))], &["searchAll", "urlReader"]);
    with(body, "thinking", json!({"type": "adaptive"}))
}

/// The name, the index and the kind of delta of each event, repetitions left out.
fn order(events: &[(String, Value)]) -> Vec<String> {
    let entry = |(name, data): &(String, Value)| {
        let index = data["index"].as_u64().map(|index| format!(" {index}")).unwrap_or_default();
        let delta = data["delta"]["type"].as_str().map(|kind| format!(" {kind}")).unwrap_or_default();
        format!("{name}{index}{delta}")
    };
    let mut order: Vec<String> = events.iter().map(entry).collect();
    order.dedup();
    order
}

#[test]
fn the_events_follow_the_grammar_of_recorded_streams() {
    let expected = [
        "message_start",
        "content_block_start 0",
        "ping",
        "content_block_delta 0 thinking_delta",
        "content_block_delta 0 signature_delta",
        "content_block_stop 0",
        "content_block_start 1",
        "content_block_delta 1 text_delta",
        "content_block_stop 1",
        "content_block_start 2",
        "content_block_delta 2 input_json_delta",
        "content_block_stop 2",
        "content_block_start 3",
        "content_block_delta 3 input_json_delta",
        "content_block_stop 3",
        "message_delta",
        "message_stop",
    ];
    let events = Simulated::new().events(&rich());
    let padded = events.iter().filter(|event| joined(&[(*event).clone()]).contains(" }\n")).count();
    assert!(padded > 10, "data is padded within the object: {padded}");
    let events = read(&events);
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
    assert_eq!(order(&events), expected);
}

#[test]
fn starts_are_empty_and_the_end_has_the_reason_and_the_usage() {
    let events = read(&Simulated::new().events(&rich()));
    let start = &events[0].1["message"];
    assert_eq!((&start["content"], &start["stop_reason"]), (&json!([]), &Value::Null));
    let starts = events.iter().filter(|(name, _)| name == "content_block_start");
    let opened: Vec<&Value> = starts.map(|(_, data)| &data["content_block"]).collect();
    assert_eq!(opened[0], &json!({"type": "thinking", "thinking": "", "signature": ""}));
    assert_eq!(opened[1], &json!({"type": "text", "text": ""}));
    assert_eq!((&opened[2]["input"], &opened[2]["name"]), (&json!({}), &json!("searchAll")));
    let pieces: Vec<&str> =
        events.iter().filter_map(|(_, data)| data["delta"]["partial_json"].as_str()).collect();
    assert!(pieces[0].is_empty() && pieces.len() > 6, "{pieces:?}");
    let end = &events[events.len() - 2].1;
    assert_eq!(end["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    assert!(end["usage"]["output_tokens"].as_u64().unwrap() > 10, "{end}");
    assert_eq!(end["usage"]["input_tokens"], start["usage"]["input_tokens"]);
}

#[test]
fn empty_parts_have_the_deltas_that_recorded_streams_have() {
    let simulated = Simulated::new();
    let mut body = demo("demo-stuck", &[user(&json!("q"))], &["searchAll"]);
    body["tools"][0]["input_schema"] = json!({"type": "object"});
    body["thinking"] = json!({"type": "adaptive", "display": "omitted"});
    let events = read(&simulated.events(&body));
    let deltas = |index: u64| -> Vec<&Value> {
        let deltas = events.iter().filter(|(_, data)| data["index"] == index);
        deltas.map(|(_, data)| &data["delta"]).filter(|delta| !delta.is_null()).collect()
    };
    assert_eq!(deltas(0).len(), 1, "no thinking_delta");
    assert_eq!(deltas(2), [&json!({"type": "input_json_delta", "partial_json": ""})]);
}

/// The reply without what the request's bytes determine: ids differ, since `stream` is one of the members.
pub(super) fn without_ids(mut message: Value) -> Value {
    message["id"] = Value::Null;
    message["usage"]["input_tokens"] = Value::Null;
    for block in message["content"].as_array_mut().unwrap() {
        block.as_object_mut().unwrap().remove("id");
    }
    message
}

#[test]
fn every_model_says_the_same_streamed_and_whole() {
    for model in ["demo-chat", "demo-runaway", "demo-polite", "demo-stuck", "demo-no-tools", "demo-strict"] {
        for (tools, thinking) in [(true, false), (false, true), (true, true), (false, false)] {
            let names: &[&str] =
                if tools && model != "demo-no-tools" { &["searchAll", "urlReader"] } else { &[] };
            let mut body = demo(model, &[user(&json!("use searchAll and urlReader on größe"))], names);
            if thinking {
                body["thinking"] = json!({"type": "adaptive"});
            }
            let whole = Simulated::new().ask(&body);
            let streamed = Simulated::new().ask(&with(body, "stream", json!(true)));
            assert_eq!(without_ids(whole), without_ids(streamed), "{model}");
        }
    }
}

#[test]
fn a_stream_that_breaks_off_is_no_message() {
    let events = Simulated::new().events(&demo("demo-chat", &[user(&json!("q"))], &[]));
    let text = joined(&events);
    for end in 0..events.len() - 1 {
        assert!(join(&joined(&events[..end])).is_err());
    }
    assert!(join(&text).is_ok());
    assert_eq!(join("event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"), Err("reply failed"));
}
