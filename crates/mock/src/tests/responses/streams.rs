//! Streamed responses: their order of events, and that they say what whole responses say.

use super::validator::{events, framed, validate};
use super::*;

#[tokio::test]
async fn every_model_streams_what_it_says_whole() {
    let served = Served::start().await;
    for (model, tools) in [
        ("demo-chat", false),
        ("demo-chat", true),
        ("demo-runaway", false),
        ("demo-runaway", true),
        ("demo-polite", true),
        ("demo-stuck", true),
        ("demo-no-tools", false),
        ("demo-strict", true),
    ] {
        let items = [user("use searchAll and urlReader on größe")];
        let body = if tools {
            with_functions(model, &items, &["searchAll", "urlReader"])
        } else {
            input(model, &items)
        };
        let whole = served.create(body.clone()).await;
        let streamed = validate(&served.create_streamed(body).await).unwrap().last;
        let said = |response: &Value| -> Vec<[Value; 3]> {
            let items = response["output"].as_array().unwrap().iter();
            items.map(|item| ["name", "arguments", "content"].map(|key| item[key].clone())).collect()
        };
        assert_eq!(said(&streamed), said(&whole), "{model}");
        assert_eq!(calls_of(&streamed).is_empty(), !tools, "{model}");
    }
}

#[tokio::test]
async fn deltas_are_small_and_padded_unless_padding_is_refused() {
    let served = Served::start().await;
    let mut body = with_functions("demo-runaway", &[user("find bicycles")], &["searchAll"]);
    for padded in [true, false] {
        let events = events(&served.create_streamed(body.clone()).await).unwrap();
        let deltas: Vec<&Value> = events.iter().filter(|event| event.get("delta").is_some()).collect();
        assert!(deltas.len() > 4, "{events:?}");
        assert!(deltas.iter().all(|event| event["obfuscation"].is_string() == padded), "{events:?}");
        body["stream_options"] = json!({"include_obfuscation": false});
    }
}

#[tokio::test]
async fn a_cut_answer_ends_incomplete() {
    let served = Served::start().await;
    let mut body = input("demo-chat", &[user("one two three four five six seven eight nine ten")]);
    body["max_output_tokens"] = json!(16);
    let response = validate(&served.create_streamed(body.clone()).await).unwrap();
    assert_eq!(response.shape.last().unwrap(), "response.incomplete");
    for response in [response.last, served.create(body).await] {
        assert_eq!(
            [&response["status"], &response["incomplete_details"]],
            [&json!("incomplete"), &json!({"reason": "max_output_tokens"})]
        );
        assert_eq!(response["output"][0]["status"], "incomplete");
        assert_eq!(text(&response).split(' ').count(), 16);
    }
}

#[tokio::test]
async fn the_validator_finds_every_breach() {
    let served = Served::start().await;
    let two = ["searchAll", "urlReader"];
    let body = with_functions("demo-chat", &[user("use searchAll and urlReader")], &two);
    let valid = events(&served.create_streamed(body).await).unwrap();
    assert!(validate(&framed(&valid)).is_ok());
    let renumber = |mut events: Vec<Value>| {
        events.iter_mut().enumerate().for_each(|(at, event)| event["sequence_number"] = json!(at));
        events
    };
    let at = |kind: &str| valid.iter().position(|event| event["type"] == kind).unwrap();
    let (opened, delta) = (at("response.output_item.added"), at("response.function_call_arguments.delta"));
    let (closed, done) = (at("response.output_item.done"), at("response.function_call_arguments.done"));
    for dropped in [0, 1, opened, delta, done, closed, valid.len() - 1] {
        let mut events = valid.clone();
        events.remove(dropped);
        assert!(validate(&framed(&events)).is_err(), "a gap at {dropped}");
        assert!(validate(&framed(&renumber(events))).is_err(), "event {dropped} is missing");
    }
    for (swapped, with) in [(0, 1), (opened, delta), (done, closed), (closed, closed + 1)] {
        let mut events = valid.clone();
        events.swap(swapped, with);
        assert!(validate(&framed(&renumber(events))).is_err(), "{swapped} after {with}");
    }
    for (changed, pointer, value) in [
        (opened, "/item/arguments", json!("{")),
        (opened, "/item/call_id", json!(null)),
        (delta, "/output_index", json!(1)),
        (delta, "/item_id", json!("fc_other")),
        (delta, "/delta", json!("other")),
        (done, "/arguments", json!("{}")),
        (closed, "/item/id", json!("fc_other")),
        (closed, "/item/arguments", json!("{}")),
        (valid.len() - 1, "/response/output", json!([])),
        (valid.len() - 1, "/response/id", json!("resp_other")),
        (valid.len() - 1, "/response/usage/total_tokens", json!(1)),
        (valid.len() - 1, "/response/status", json!("in_progress")),
    ] {
        let mut events = valid.clone();
        *events[changed].pointer_mut(pointer).unwrap() = value;
        assert!(validate(&framed(&events)).is_err(), "{pointer} of event {changed}");
    }
    let text = framed(&valid);
    for text in [text.clone() + "data: [DONE]\n\n", text.replace("event: ", ": "), text.trim_end().to_owned()]
    {
        assert!(validate(&text).is_err(), "{text}");
    }
}
