//! Requests, replies and policies that the tests share.

use crate::support::client::{Request, Response};
use crate::support::program::{Toolrein, before};
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Recorded;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Policies that look at everything and have no cause to act.
pub(crate) const GENEROUS: &str =
    "[policy.budget]\n[policy.rate_limit]\ndefault = { calls = 60, per = \"60s\" }\n[policy.truncate]\n";

/// Whole and streamed.
pub(crate) const BOTH: [bool; 2] = [false, true];

/// A budget of `calls` a turn, with a notice only when it is used up.
pub(crate) fn budget(calls: u32) -> String {
    format!("[policy.budget]\ntool_calls = {calls}\nnotify_at = [1.0]\n")
}

/// A question of a client with one tool, `f`.
pub(crate) fn question(stream: bool) -> String {
    after(&[], stream)
}

/// The same after one call of `f` for each of these results, one after the other.
pub(crate) fn after(results: &[&str], stream: bool) -> String {
    let groups: Vec<&[&str]> = results.chunks(1).collect();
    after_groups(&groups, stream)
}

/// The same where each group of results answers calls made at once.
pub(crate) fn after_groups(groups: &[&[&str]], stream: bool) -> String {
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    let mut made = 0;
    for group in groups {
        let ids: Vec<String> = (made..made + group.len()).map(|nth| format!("old_{nth}")).collect();
        made += group.len();
        let call =
            |id| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        let calls: Vec<Value> = ids.iter().map(call).collect();
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
        let result = |(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text});
        messages.extend(ids.iter().zip(*group).map(result));
    }
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    json!({"model": "m", "stream": stream, "messages": messages, "tools": tools}).to_string()
}

/// Sends a body for a chat completion.
pub(crate) fn chat(toolrein: &Toolrein, body: impl AsRef<[u8]>) -> Response {
    Request::post(&toolrein.chat_url(), body).send()
}

/// The model calls `f` this often at once, if it may call.
pub(crate) fn calling(calls: usize) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static {
    move |nth, request| {
        let body = request.json();
        if body["tool_choice"] == "none" || body["tools"] == Value::Null {
            return Reply::speech(request, &Speech::text("Done without."));
        }
        let ids: Vec<String> = (0..calls).map(|call| format!("call_{nth}_{call}")).collect();
        let calls: Vec<(&str, &str, &str)> = ids.iter().map(|id| (id.as_str(), "f", "{\"a\":2}")).collect();
        Reply::speech(request, &Speech::calls(&calls))
    }
}

/// A text of about this many characters, in lines.
pub(crate) fn long_text(chars: usize) -> String {
    "one line of many words\n".repeat(chars / 23 + 1)
}

/// The bytes that a scripted reply's body consists of.
pub(crate) fn bytes_of(reply: &Reply) -> Vec<u8> {
    reply.pieces.iter().filter_map(|piece| piece.data()).flatten().copied().collect()
}

/// Headers by name in the order of first occurrence, the values of each in their order. Lines of one name may be
/// brought together on the way, which the standard allows; nothing else may move.
pub(crate) fn grouped(headers: &[(String, String)], without: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in headers.iter().filter(|(name, _)| !without.contains(&name.as_str())) {
        match groups.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value.clone()),
            None => groups.push((name.clone(), vec![value.clone()])),
        }
    }
    groups
}

/// Asserts that `response` is an error of toolrein's own, and returns its `x-should-retry`.
pub(crate) fn own_error(response: &Response, status: u16, code: &str) -> Option<String> {
    let error = &response.json()["error"];
    assert_eq!((response.status, error["code"].as_str()), (status, Some(code)), "{}", response.text());
    assert_eq!((&error["type"], &error["param"]), (&json!("toolrein_error"), &Value::Null));
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 20), "{error}");
    response.header("x-should-retry").map(str::to_owned)
}

/// The log line of the `nth` request that was logged, waited for.
pub(crate) fn log_line(toolrein: &Toolrein, nth: usize) -> Value {
    crate::support::until("the log line", || request_lines(toolrein).get(nth).cloned())
}

/// The log's lines about requests.
pub(crate) fn request_lines(toolrein: &Toolrein) -> Vec<Value> {
    let lines = toolrein.logs().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    lines.filter(|line| line["message"] == "request").collect()
}

/// An upstream that sends these very bytes to each request and closes: for what the scripted one cannot say.
pub(crate) fn raw_upstream(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                read_request(&mut stream);
                let _ = stream.write_all(answer);
            });
        }
    });
    format!("http://{address}/v1")
}

/// The program before the upstream at `url`.
pub(crate) fn toolrein_before(url: &str, settings: &str) -> Toolrein {
    Toolrein::start(&before(url, settings))
}

fn read_request(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&seen).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            if seen.len() >= end + 4 + length {
                return;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
        }
    }
}
