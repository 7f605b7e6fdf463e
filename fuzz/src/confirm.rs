//! Target: a call that needs an approval; what is shown is what is released. Arguments and name come from the input;
//! the question is one code block that nothing in it can close, and each reply to the approval is well formed.

use crate::world::{NOW_MS, TOKEN, choices, is_json, judging, lossy};
use bytes::Bytes;
use dialects::CHAT;
use dialects::Handed;
use dialects::chat::approved::{events, reply};
use dialects::reply::{Form, Limits, Options};
use engine::pipeline::ReplyPipeline;
use model::identity::{Hash, HashKey};
use model::plan::approval::Confirmation;
use serde_json::{Value, json};

/// Everything on, and a history in which `pay_bill` is declared and only the approval is missing.
const SETTING: u8 = 14;

pub fn run(input: &[u8]) -> bool {
    let (count, input) = choices(input);
    let (id, arguments) = choices(input);
    let arguments = lossy(arguments);
    let calls: Vec<Value> = (0..1 + count % 3).map(|at| call(at, id, &arguments)).collect();
    let body = json!({"id": "r", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "I pay.", "tool_calls": calls}}]});
    let body = Bytes::from(body.to_string());
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 26 };
    let mut judge = ReplyPipeline::new(judging(SETTING), CHAT, Form::Whole, limits, Options::default());
    let mut written = Vec::new();
    judge.push(body.clone(), NOW_MS, &mut written);
    judge.finish(NOW_MS, &mut written);
    let shown = judge.shown();
    let [choice] = &shown[..] else { panic!("one choice") };
    let Some((question, asked)) = choice.asked() else { return false };
    let out: Value = serde_json::from_slice(&written.concat()).unwrap();
    assert!(out["choices"][0]["message"].get("tool_calls").is_none(), "shown and asked about: {out}");
    shows_all(&question.text, asked.len());
    let confirmation = Confirmation::new(question, &asked, NOW_MS);
    assert!(confirmation.is_approved_by(TOKEN) && confirmation.is_approved_by(" Yes\n"));
    assert!(!confirmation.is_approved_by(&arguments) || arguments.trim().len() <= 7);
    assert!(confirmation.size() <= body.len() * 2 + 1_000);
    let key = HashKey::fixed(1);
    let handed = Handed { question: Hash(9), key: &key, model: "m", created: 1, usage: id % 2 == 0 };
    let whole: Value = serde_json::from_slice(&reply(&confirmation, &handed)).unwrap();
    let calls = whole["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), asked.len());
    for (handed, asked) in calls.iter().zip(asked) {
        assert_eq!(handed["function"]["arguments"], asked.arguments().as_str());
        assert_eq!(handed["function"]["name"], asked.name().as_str());
    }
    let events = events(&confirmation, &handed);
    let data = lossy(&events);
    let mut data = data.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    assert!(data.all(|data| data == "[DONE]" || is_json(data.as_bytes())), "{}", lossy(&events));
    true
}

fn call(at: u8, id: u8, arguments: &str) -> Value {
    let id = if id % 4 == 3 { "0".to_owned() } else { format!("call_abcdef{at}") };
    json!({"id": id, "type": "function", "function": {"name": "pay_bill", "arguments": arguments}})
}

/// Every block opens and closes once, and nothing invisible is in the text.
fn shows_all(text: &str, calls: usize) {
    let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
    assert_eq!(fences, 2 * calls, "{text}");
    let hidden = |char: char| {
        (char.is_control() && char != '\n')
            || ('\u{e0000}'..='\u{e007f}').contains(&char)
            || ('\u{200b}'..='\u{200f}').contains(&char)
            || ('\u{202a}'..='\u{202e}').contains(&char)
    };
    assert!(!text.contains(hidden), "{text:?}");
    assert!(text.ends_with("declines."), "{text}");
}
