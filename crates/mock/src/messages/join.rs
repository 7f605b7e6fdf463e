//! A client's reading of a streamed message: its events joined to the message that the whole reply would have been.
//!
//! Source: `accumulate_event` of anthropic-sdk-python 2.14.0. It reads what the simulated upstream sends and nothing odd.

use serde_json::{Value, json};

/// The message of a stream, or what the stream lacks. A stream without `message_stop` counts for nothing.
pub(crate) fn join(stream: &str) -> Result<Value, &'static str> {
    let mut message = Value::Null;
    let mut input = String::new();
    for data in stream.lines().filter_map(|line| line.strip_prefix("data:")) {
        let mut event: Value = serde_json::from_str(data).map_err(|_| "event not JSON")?;
        let block = message.pointer_mut(&format!("/content/{}", event["index"]));
        match event["type"].as_str() {
            Some("message_start") => message = event["message"].take(),
            Some("content_block_start") => {
                input.clear();
                if let Some(content) = message["content"].as_array_mut() {
                    content.push(event["content_block"].take());
                }
            }
            Some("content_block_delta") => {
                add_delta(block.ok_or("delta without block")?, &event["delta"], &mut input);
            }
            Some("content_block_stop") if !input.is_empty() => {
                let block = block.ok_or("stop without block")?;
                block["input"] = serde_json::from_str(&input).map_err(|_| "input not JSON")?;
            }
            Some("message_delta") => {
                for (name, value) in event["delta"].as_object().into_iter().flatten() {
                    message[name] = value.clone();
                }
                for (name, value) in event["usage"].as_object().into_iter().flatten() {
                    message["usage"][name] = value.clone();
                }
            }
            Some("message_stop") => return Ok(message),
            Some("error") => return Err("reply failed"),
            _ => {}
        }
    }
    Err("reply broken off")
}

fn add_delta(block: &mut Value, delta: &Value, input: &mut String) {
    for member in ["text", "thinking", "signature"] {
        if let Some(piece) = delta[member].as_str() {
            block[member] = json!(block[member].as_str().unwrap_or_default().to_owned() + piece);
        }
    }
    input.push_str(delta["partial_json"].as_str().unwrap_or_default());
}
