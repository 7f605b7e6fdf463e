//! Requests and replies of the Responses API in which nothing acts: byte for byte, both ways.

use crate::governed::talk::{BOTH, GENEROUS, bytes_of};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, event};
use crate::support::responses_kit::{Talk, tool, url};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// Sends `body` through toolrein to an upstream that answers with `reply`; both must arrive as they were sent.
fn unchanged(settings: &str, body: &str, reply: Reply) {
    let expected = bytes_of(&reply);
    let upstream = Scripted::queue([reply]);
    let toolrein = Toolrein::before(&upstream, settings);
    let got = Request::post(&url(&toolrein), body).send();
    assert_eq!(got.text(), String::from_utf8_lossy(&expected), "for {body}");
    assert!(!got.cut, "cut for {body}");
    let seen = upstream.requests();
    assert_eq!(seen.len(), 1, "requests");
    assert_eq!(String::from_utf8_lossy(&seen[0].body), body);
    assert_eq!(seen[0].path, "/v1/responses");
    assert_eq!(got.header("x-toolrein-actions"), None, "for {body}");
}

fn output() -> Output {
    let hosted = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "é"}});
    Output::new("1")
        .thinks()
        .item(hosted)
        .item(json!({"type": "acme:search_result", "id": "x", "deep": [{"type": "function_call"}]}))
        .says("It is in Zürich.")
        .call("1", "f", "{\"a\" :\"\\u00e9\", \"n\": 1.50}")
        .call("2", "f", "{}")
        .item(json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA"}))
        .says("And after.")
}

fn body(stream: bool) -> Value {
    Talk::new(stream).body
}

fn stream(output: &Output) -> Vec<String> {
    output.events(&body(true)).iter().map(event).collect()
}

#[test]
fn requests_and_replies_pass_byte_for_byte_with_items_of_every_kind() {
    for stream in BOTH {
        let body = body(stream);
        let reply = match stream {
            true => Reply::stream(output().events(&body).iter().map(event)),
            false => Reply::json(200, &output().whole(&body)),
        };
        unchanged(GENEROUS, &body.to_string(), reply.clone());
        unchanged("", &body.to_string(), reply.clone());
        unchanged("mode = \"observe\"\n[policy.allow]\nexcept = [\"f\"]\n", &body.to_string(), reply);
    }
}

fn odd_reply() -> Reply {
    Reply::bytes(200, "application/json", " {\"id\" : \"resp_1\",\n\"output\":[ ] , \"odd\":1.0} ")
}

#[test]
fn odd_spacing_unknown_members_and_unknown_items_of_a_request_pass_as_they_came() {
    let rest = "\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]";
    for body in [
        format!("{{ \"model\" : \"m\" ,\r\n \"input\" :\t\"Where? \\ud83d\\ude00 \\u00e9\", {rest} }}"),
        format!(
            "{{\"input\":[ {{\"role\":\"user\",\"content\":\"q\"}} , {{\"type\":\"acme:x\",\"y\":[1,2.50,1e3]}} ],\"model\":\"m\",{rest}}}"
        ),
        format!(
            "{{\"model\":\"m\",\"input\":[],\"previous_response_id\":null,\"x_new\":{{\"input\":[]}},{rest}}}"
        ),
        format!("{{\"model\":\"m\",\"prompt\":{{\"id\":\"pmpt_1\"}},{rest}}}"),
    ] {
        unchanged(GENEROUS, &body, odd_reply());
    }
    let refers = format!(
        "{{\"model\":\"m\",\"input\":[{{\"id\":\"msg_1\"}},{{\"type\":\"item_reference\",\"id\":\"rs_1\"}},{{\"role\":\"user\",\"content\":[{{\"type\":\"input_image\",\"image_url\":\"data:,\"}}]}}],{rest}}}"
    );
    // No reply had this item: that is counted, and is no action.
    unchanged(GENEROUS, &refers, odd_reply());
}

#[test]
fn what_comes_after_the_last_event_of_a_stream_arrives() {
    for after in [
        "data: [DONE]\n\n",
        ": bye\n\n",
        "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":99}\n\n",
    ] {
        for together in BOTH {
            let mut pieces = stream(&output());
            match together {
                true => pieces.last_mut().unwrap().push_str(after),
                false => pieces.push(after.to_owned()),
            }
            unchanged(GENEROUS, &body(true).to_string(), Reply::stream(pieces));
        }
    }
}

#[test]
fn every_event_that_shows_the_response_before_its_end_arrives() {
    let all = output().events(&body(true));
    let mut queued = all[1].clone();
    (queued["type"], queued["response"]["status"]) = ("response.queued".into(), "queued".into());
    for begin in [
        vec![&all[0], &queued, &all[1]],
        vec![&all[0], &all[1], &all[1], &all[1]],
        vec![&all[0]],
        vec![&all[1]],
        vec![],
    ] {
        let events = begin.into_iter().chain(&all[2..]).map(event);
        unchanged(GENEROUS, &body(true).to_string(), Reply::stream(events));
    }
}

#[test]
fn odd_streams_of_other_servers_pass_as_they_came() {
    let all = output().events(&body(true));
    let framed = |spell: &dyn Fn(&Value) -> String| Reply::stream(all.iter().map(spell));
    let without = |member: &'static str| {
        move |data: &Value| {
            let mut data = data.clone();
            data.as_object_mut().unwrap().remove(member);
            event(&data)
        }
    };
    let nameless = |data: &Value| format!("data: {data}\n\n");
    let crlf = |data: &Value| event(data).replace('\n', "\r\n");
    let silent = |data: &Value| format!(": ping\n\n{}", event(data));
    let empty = |data: &Value| {
        let mut data = data.clone();
        if data["type"] == "response.completed" {
            data["response"]["output"] = json!([]);
        }
        event(&data)
    };
    for reply in [
        framed(&nameless),
        framed(&crlf),
        framed(&silent),
        framed(&empty),
        framed(&without("sequence_number")),
        framed(&event).in_pieces_of(7),
        framed(&event).in_pieces_of(1000),
        framed(&|data| event(data).replace("\"type\":", " \"type\" :  ")),
    ] {
        unchanged(GENEROUS, &body(true).to_string(), reply);
    }
}

#[test]
fn a_stream_whose_ids_change_with_every_event_passes_as_it_came() {
    let mut all = output().events(&body(true));
    for (at, event) in all.iter_mut().enumerate() {
        for id in ["/item_id", "/item/id", "/response/id"] {
            if let Some(id) = event.pointer_mut(id) {
                *id = format!("opaque_{at}").into();
            }
        }
    }
    unchanged(GENEROUS, &body(true).to_string(), Reply::stream(all.iter().map(event)));
}

#[test]
fn an_upstreams_errors_arrive_as_they_came_whole_and_in_a_stream() {
    let all = output().events(&body(true));
    let inner = json!({"type": "tokens", "code": "rate_limit_exceeded", "message": "Request too large", "param": null});
    let nested = json!({"type": "error", "sequence_number": 2, "error": inner});
    let flat = json!({"type": "error", "code": "server_error", "message": "down", "param": null, "sequence_number": 2});
    let mut failed = all[1].clone();
    failed["type"] = "response.failed".into();
    (failed["sequence_number"], failed["response"]["status"]) = (3.into(), "failed".into());
    failed["response"]["error"] = json!({"code": "rate_limit_exceeded", "message": "Request too large"});
    for begin in [&all[..0], &all[..2], &all[..4], &all[..all.len() - 1]] {
        for end in [vec![&nested], vec![&flat], vec![&nested, &failed], vec![&failed]] {
            for size in [1, 64, 1 << 20] {
                let events = begin.iter().chain(end.clone()).map(event);
                unchanged(GENEROUS, &body(true).to_string(), Reply::stream(events).in_pieces_of(size));
            }
        }
    }
    for status in [400, 401, 404, 429, 500] {
        let refusal = Reply::error(status, "invalid_request_error", "x", "No.");
        let body = Talk::new(false).with_tools(json!([tool("f")])).body.to_string();
        let expected = bytes_of(&refusal);
        let upstream = Scripted::start(move |_, _| refusal.clone());
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        let got = Request::post(&url(&toolrein), body).send();
        assert_eq!((got.status, got.body), (status, expected));
    }
}

#[test]
fn observing_changes_nothing_even_of_replies_that_would_be_refused() {
    let mode = "mode = \"observe\"\n[policy.allow]\nexcept = [\"f\", \"computer\"]\n[policy.budget]\ntool_calls = 1\n";
    let computer = json!({"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed",
        "action": {"type": "click"}, "pending_safety_checks": []});
    let all = output().item(computer).events(&body(true));
    let twice = all.iter().chain(all.last()).map(event);
    unchanged(mode, &body(true).to_string(), Reply::stream(twice));
    let renamed = all.iter().map(|data| match data["type"].as_str() {
        Some("response.output_item.done") => event(data).replace("\"name\":\"f\"", "\"name\":\"g\""),
        _ => event(data),
    });
    unchanged(mode, &body(true).to_string(), Reply::stream(renamed));
}
