//! Clients of the Messages API for tests, by serde_json alone: every call that some client may read in a reply, and what is
//! wrong with a stream.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The data of every event.
pub(in super::super) fn events(stream: &str) -> Vec<Value> {
    let stream = stream.replace("\r\n", "\n");
    let data = |event: &str| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        serde_json::from_str(&lines.collect::<Vec<_>>().join("\n")).ok()
    };
    stream.split("\n\n").filter_map(data).collect()
}

/// The arguments of every call in every reading: of each block as a whole, of deltas joined by index, by position in the
/// content, and by order alone. Tools that the provider runs are left out.
pub(in super::super) fn readings(reply: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(whole) = serde_json::from_str::<Value>(reply) {
        inputs(&whole, &mut found);
        return found;
    }
    let (mut by_index, mut by_turn): (BTreeMap<u64, String>, BTreeMap<u64, String>) = Default::default();
    let (mut content, mut in_order, mut hosted) = (Vec::<String>::new(), String::new(), BTreeSet::new());
    for event in events(reply) {
        inputs(&event, &mut found);
        let index = event["index"].as_u64().unwrap_or_default();
        if event["type"] == "message_start" {
            content.clear();
            hosted.clear();
        }
        if event["type"] == "content_block_start" {
            let kind = event["content_block"]["type"].as_str().unwrap_or_default();
            let is_hosted = kind.ends_with("tool_use") && kind != "tool_use";
            if is_hosted {
                hosted.insert(index)
            } else {
                hosted.remove(&index)
            };
            found.extend(by_turn.remove(&index));
            found.push(std::mem::take(&mut in_order));
            content.push(String::new());
        }
        if let Some(piece) = event["delta"]["partial_json"].as_str().filter(|_| !hosted.contains(&index)) {
            by_index.entry(index).or_default().push_str(piece);
            by_turn.entry(index).or_default().push_str(piece);
            in_order.push_str(piece);
            if let Some(block) = content.get_mut(index as usize) {
                block.push_str(piece);
            }
        }
        found.extend(content.iter().cloned());
    }
    found.extend(by_index.into_values().chain(by_turn.into_values()).chain([in_order]));
    found
}

/// The inputs of all blocks that are calls, wherever they are.
fn inputs(value: &Value, found: &mut Vec<String>) {
    if value["type"] == "tool_use" {
        let input = &value["input"];
        found.push(input.as_str().map_or_else(|| input.to_string(), str::to_owned));
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| inputs(item, found)),
        Value::Object(members) => members.values().for_each(|member| inputs(member, found)),
        _ => {}
    }
}

/// What a client makes of a reply that goes by the protocol: each block joined, with the arguments of a call as text.
pub(in super::super) fn blocks(reply: &str) -> Vec<Value> {
    let whole = serde_json::from_str::<Value>(reply).ok();
    let mut content: Vec<Value> =
        whole.iter().flat_map(|reply| reply["content"].as_array()).flatten().cloned().collect();
    let mut at = BTreeMap::new();
    for event in events(reply) {
        let delta = &event["delta"];
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                content.extend(event["message"]["content"].as_array().into_iter().flatten().cloned());
            }
            "content_block_start" => {
                at.insert(event["index"].as_u64(), content.len());
                content.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let Some(block) = at.get(&event["index"].as_u64()).map(|at| &mut content[*at]) else {
                    continue;
                };
                for member in ["text", "thinking", "signature", "partial_json"] {
                    let Some(piece) = delta[member].as_str() else { continue };
                    let known = block[member].as_str().unwrap_or_default();
                    block[member] = format!("{known}{piece}").into();
                }
            }
            _ => {}
        }
    }
    for block in content.iter_mut().filter(|block| block["type"] == "tool_use") {
        let joined = block["partial_json"].as_str().filter(|joined| !joined.is_empty());
        let text = |input: &Value| input.as_str().map_or_else(|| input.to_string(), str::to_owned);
        block["arguments"] = joined.map_or_else(|| text(&block["input"]), str::to_owned).into();
    }
    content
}

/// The calls that such a client runs: the tool and its arguments.
pub(in super::super) fn calls(reply: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let calls = blocks(reply).into_iter().filter(|block| block["type"] == "tool_use");
    calls.map(|call| (text(&call["name"]), text(&call["arguments"]))).collect()
}

/// All of its text, block by block.
pub(in super::super) fn texts(reply: &str) -> Vec<String> {
    let texts = blocks(reply).into_iter().filter(|block| block["type"] == "text");
    texts.map(|block| block["text"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The reasons for which a reply says that it ends.
pub(in super::super) fn reasons(reply: &str) -> Vec<String> {
    let whole = serde_json::from_str::<Value>(reply).ok();
    let events = events(reply);
    let ends =
        events.iter().flat_map(|event| [&event["delta"]["stop_reason"], &event["message"]["stop_reason"]]);
    let all = whole.iter().map(|reply| &reply["stop_reason"]).chain(ends);
    all.filter_map(|reason| reason.as_str().map(str::to_owned)).collect()
}

/// What a strict client does not accept of a stream.
pub(in super::super) fn flaws(stream: &str) -> Vec<&'static str> {
    let (mut flaws, mut open, mut started) = (Vec::new(), BTreeSet::new(), 0);
    let (mut heads, mut ends, mut is_over, mut has_calls) = (0, 0, false, false);
    for event in events(stream) {
        let index = event["index"].as_u64().unwrap_or(u64::MAX);
        let kind = event["type"].as_str().unwrap_or_default();
        let mut check = |holds: bool, flaw| {
            if !holds {
                flaws.push(flaw);
            }
        };
        match kind {
            "message_start" => {
                heads += 1;
                check(heads == 1, "a second head");
                has_calls |= event["message"].to_string().contains("\"tool_use\"");
                started += event["message"]["content"].as_array().map_or(0, Vec::len) as u64;
            }
            "content_block_start" => {
                check(heads > 0 && !is_over && ends == 0, "a block outside of the message");
                check(index == started, "an index out of order");
                started += 1;
                open.insert(index);
                has_calls |= event["content_block"]["type"] == "tool_use";
            }
            "content_block_delta" => check(open.contains(&index), "a delta of no open block"),
            "content_block_stop" => check(open.remove(&index), "a stop of no open block"),
            "message_delta" if event["delta"]["stop_reason"].is_string() => {
                ends += 1;
                check(ends == 1, "a second end");
                check(open.is_empty(), "a block that is not stopped");
                check(event["delta"]["stop_reason"] != "tool_use" || has_calls, "a reason without a call");
                check(event["usage"].is_object(), "an end without usage");
            }
            "message_stop" => {
                check(!is_over, "a second end");
                check(open.is_empty(), "a block that is not stopped");
                is_over = true;
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        flaws.push("a block that is not stopped");
    }
    flaws.dedup();
    flaws
}
