//! Replies that the upstream stores: whatever way a client reads one, no call comes back that a policy forbids, and what it
//! was shown once it is shown again.

use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::{Output, event};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

const FORBIDS_PAY: &str = "[policy.allow]\nexcept = [\"pay\"]\n";

fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object"}})
}

/// A request that the upstream answers later.
fn queue(toolrein: &Toolrein) {
    let body = json!({"model": "m", "input": "q", "background": true, "tools": [tool("look"), tool("pay")]});
    let queued = Request::post(&format!("{}/responses", toolrein.base_url()), body.to_string()).send();
    assert_eq!(queued.json()["status"], "queued", "{}", queued.text());
}

fn get(toolrein: &Toolrein, path: &str) -> Response {
    send(toolrein, "GET", path)
}

fn send(toolrein: &Toolrein, method: &str, path: &str) -> Response {
    let url = format!("{}{path}", toolrein.base_url());
    Request::new(method, &url, "").header("authorization", "Bearer sk-test").send()
}

/// An upstream that queues every response and has then made these calls: (id, tool).
fn in_the_background(calls: &'static [(&'static str, &'static str)]) -> Scripted {
    let calls: Vec<_> = calls.iter().map(|(id, tool)| (*id, *tool, "{}")).collect();
    let done = Output::calls("late", &calls);
    Scripted::start(move |_, request| match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/v1/responses") if request.json()["background"] == true => Reply::json(
            200,
            &json!({"id": "resp_late", "object": "response", "status": "queued", "output": []}),
        ),
        ("POST", "/v1/responses") => Output::text("next", "Done.").reply(request),
        (_, path) if path.contains("stream=true") => {
            Reply::stream(done.events(&json!({"model": "m"})).iter().map(event))
        }
        (_, path) if path.contains("items") => {
            Reply::json(200, &json!({"object": "list", "data": done.items()}))
        }
        _ => Reply::json(200, &done.whole(&json!({"model": "m", "tools": [tool("look"), tool("pay")]}))),
    })
}

#[test]
fn a_call_made_in_the_background_is_judged_when_it_is_first_read_and_stays_as_it_was_judged() {
    let upstream = in_the_background(&[("a", "look"), ("b", "pay")]);
    let toolrein = Toolrein::before(&upstream, FORBIDS_PAY);
    queue(&toolrein);
    let first = get(&toolrein, "/responses/resp_late");
    let calls: Vec<_> =
        first.json()["output"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(calls, ["look"], "{}", first.text());
    for _ in 0..2 {
        assert_eq!(get(&toolrein, "/responses/resp_late").text(), first.text());
    }
    assert_eq!(send(&toolrein, "POST", "/responses/resp_late/cancel").text(), first.text());
    toolrein.wait_for_metric("toolrein_unjudged_total{why=\"stored_response\"}", 0.0);
    // Who goes on from it gives the upstream the result of the blocked call too.
    let body = json!({"model": "m", "previous_response_id": "resp_late",
        "input": [{"type": "function_call_output", "call_id": "call_a", "output": "r"}]});
    let url = format!("{}/responses", toolrein.base_url());
    let next = Request::post(&url, body.to_string()).send();
    assert_eq!(next.status, 200, "{}", next.text());
    let sent = upstream.requests().last().unwrap().json();
    let ids: Vec<_> = sent["input"].as_array().unwrap().iter().map(|item| item["call_id"].clone()).collect();
    assert!(ids.contains(&json!("call_b")) && ids.contains(&json!("call_a")), "{sent}");
}

#[test]
fn a_response_whose_calls_are_all_blocked_says_so_each_time_it_is_read() {
    let upstream = in_the_background(&[("b", "pay")]);
    let toolrein = Toolrein::before(&upstream, FORBIDS_PAY);
    queue(&toolrein);
    let first = get(&toolrein, "/responses/resp_late");
    let shown = first.json();
    assert_eq!(shown["output"].as_array().unwrap().len(), 1, "{}", first.text());
    assert_eq!(shown["output"][0]["type"], "message");
    assert_eq!(get(&toolrein, "/responses/resp_late").text(), first.text());
}

#[test]
fn a_call_made_in_the_background_counts_for_the_limits_of_its_conversation() {
    let upstream = in_the_background(&[("a", "look"), ("b", "look"), ("c", "look")]);
    let toolrein = Toolrein::before(&upstream, "[policy.turn_limits]\ncalls = 2\n");
    queue(&toolrein);
    let first = get(&toolrein, "/responses/resp_late").json();
    assert_eq!(first["output"].as_array().unwrap().len(), 2, "{first}");
    assert_eq!(get(&toolrein, "/responses/resp_late").json(), first);
}

#[test]
fn no_way_of_reading_a_stored_response_shows_a_forbidden_call() {
    let upstream = in_the_background(&[("a", "look"), ("b", "pay")]);
    let toolrein = Toolrein::before(&upstream, FORBIDS_PAY);
    queue(&toolrein);
    for path in [
        "/responses/resp_late",
        "/responses/resp_late/",
        "/Responses/resp_late",
        "/responses//resp_late",
        "/%72esponses/resp_late",
        "/response%2573/resp_late",
        "/responses%2Fresp_late",
        "/responses;a=b/resp_late",
        "/x/../responses/resp_late",
        "/responses/resp_late?include=a",
        "/responses/resp_late?stream=true&starting_after=1",
        "/responses/resp_late?Stream=1&stream=true",
        "/responses/resp_late/input_items",
        "/conversations/conv_1/items",
        "/responses/resp_late/cancel",
    ] {
        for method in ["GET", "POST", "PATCH"] {
            let reply = send(&toolrein, method, path);
            assert!(!reply.text().contains("call_b"), "{method} {path}: {} {}", reply.status, reply.text());
        }
        let upgrade = Request::new("GET", &format!("{}{path}", toolrein.base_url()), "");
        let upgrade = upgrade.header("upgrade", "websocket").header("connection", "upgrade").send();
        assert!(!upgrade.text().contains("call_b"), "{path}: {}", upgrade.text());
    }
    // Where calls may pass unjudged, they do, and are counted.
    let passing = Toolrein::before(&upstream, &format!("upstream.unjudged = \"pass\"\n{FORBIDS_PAY}"));
    let items = get(&passing, "/responses/resp_late/input_items");
    assert!(items.text().contains("call_b"), "{}", items.text());
    passing.wait_for_metric("toolrein_unjudged_total{why=\"stored_response\"}", 1.0);
}

#[test]
fn lists_without_calls_and_those_whose_calls_were_handed_out_pass_as_they_are() {
    let output = Output::calls("first", &[("a", "look", "{}")]);
    let (said, list) = (output.clone(), json!({"object": "list", "data": output.items()}).to_string());
    let listed = list.clone();
    let upstream = Scripted::start(move |_, request| match request.path.as_str() {
        "/v1/responses" => said.reply(request),
        "/v1/conversations/conv_0/items" => Reply::bytes(200, "application/json", r#"{ "data" : [ ] }"#),
        _ => Reply::bytes(200, "application/json", listed.clone()),
    });
    let toolrein = Toolrein::before(&upstream, FORBIDS_PAY);
    let body = json!({"model": "m", "input": "q", "tools": [tool("look"), tool("pay")]});
    let url = format!("{}/responses", toolrein.base_url());
    Request::post(&url, body.to_string()).send();
    assert_eq!(get(&toolrein, "/conversations/conv_0/items").text(), r#"{ "data" : [ ] }"#);
    assert_eq!(get(&toolrein, "/conversations/conv_1/items").text(), list);
    // Of another caller's list nothing is known.
    let other = Request::new("GET", &format!("{}/conversations/conv_1/items", toolrein.base_url()), "");
    assert_eq!(other.header("authorization", "Bearer sk-other").send().status, 502);
}

#[test]
fn a_stored_chat_completion_has_no_forbidden_call() {
    for (calls, left) in
        [(&[("a", "look", "{}"), ("b", "pay", "{}")][..], Some("look")), (&[("b", "pay", "{}")][..], None)]
    {
        let stored = Speech::calls(calls).whole();
        let upstream = Scripted::start(move |_, _| Reply::json(200, &stored));
        let toolrein = Toolrein::before(&upstream, FORBIDS_PAY);
        for (method, path) in
            [("GET", "/chat/completions/chatcmpl_1"), ("POST", "/chat/completions/chatcmpl_1")]
        {
            let reply = send(&toolrein, method, path);
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert!(!reply.text().contains("pay\""), "{}", reply.text());
            let message = reply.json()["choices"][0]["message"].clone();
            assert_eq!(message["tool_calls"][0]["function"]["name"].as_str(), left, "{message}");
            assert!(left.is_some() || message["content"].as_str().is_some_and(|text| !text.is_empty()));
        }
        let list = get(&toolrein, "/chat/completions");
        assert!(!list.text().contains("pay\""), "{}", list.text());
    }
}

#[test]
fn a_response_that_toolrein_made_is_read_again_from_here_and_not_from_the_upstream() {
    for stream in [false, true] {
        let upstream = Scripted::start(|_, request| match request.method.as_str() {
            "POST" => Output::calls("paid", &[("p", "pay", "{\"amount\":7}")]).reply(request),
            _ => Reply::error(404, "invalid_request_error", "not_found", "Response not found"),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"pay\"]\n");
        let ask = |body: Value| {
            let url = format!("{}/responses", toolrein.base_url());
            let reply =
                Request::post(&url, body.to_string()).header("authorization", "Bearer sk-test").send();
            assert_eq!(reply.status, 200, "{}", reply.text());
            match body["stream"] == true {
                true => crate::support::responses::events(&reply.text()).pop().unwrap()["response"].clone(),
                false => reply.json(),
            }
        };
        let body =
            |input: &str| json!({"model": "m", "input": input, "stream": stream, "tools": [tool("pay")]});
        let asked = ask(body("Pay 7."));
        let mut approval = body("yes");
        approval["previous_response_id"] = asked["id"].clone();
        let own = ask(approval);
        assert_eq!(own["output"][0]["name"], "pay", "{own}");
        let before = upstream.requests().len();
        let path = format!("/responses/{}", own["id"].as_str().unwrap());
        let read = get(&toolrein, &path);
        assert_eq!(read.status, 200, "{}", read.text());
        for member in ["id", "object", "model", "status", "output"] {
            assert_eq!(read.json()[member], own[member], "{member}: {}", read.text());
        }
        let events =
            crate::support::responses::events(&get(&toolrein, &format!("{path}?stream=true")).text());
        assert_eq!(events.last().unwrap()["response"]["output"], own["output"]);
        assert_eq!(upstream.requests().len(), before, "nothing went upstream");
        let other = Request::new("GET", &format!("{}{path}", toolrein.base_url()), "");
        assert_eq!(other.header("authorization", "Bearer sk-other").send().status, 404, "another caller's");
    }
}
