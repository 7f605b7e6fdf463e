//! The generated conversations as clients of Anthropic's Messages API write them: all results of a reply in one user message,
//! thinking before calls, marks of the cache, text after results. Asserts nothing.

use super::generate::{ABSENT, Conversation, Step, any_steps, orderly_steps, spelled};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A conversation whose results answer their calls.
pub fn orderly() -> impl Strategy<Value = Conversation> {
    conversation(orderly_steps())
}

/// Any conversation, also such as Anthropic refuses.
pub fn any_order() -> impl Strategy<Value = Conversation> {
    conversation(any_steps())
}

fn conversation(steps: BoxedStrategy<Vec<Step>>) -> impl Strategy<Value = Conversation> {
    (steps, any::<u16>(), 0..MEMBERS.len(), spelled()).prop_map(|(mut steps, extras, members, spelled)| {
        let system = match steps.first() {
            Some(Step::System(_)) => match steps.remove(0) {
                Step::System(content) => Some(content_of(&content).to_string()),
                _ => None,
            },
            _ => None,
        };
        let numbered = steps.iter().enumerate();
        let messages =
            numbered.flat_map(|(at, step)| messages_of(step, at, Extras(extras.rotate_left(at as u32))));
        let members = MEMBERS[members].iter().map(|(name, value)| (*name, (*value).to_owned()));
        let members: Vec<_> = members.chain(system.map(|system| ("system", system))).collect();
        spelled.request(&messages.collect::<Vec<_>>(), members)
    })
}

/// Whether a conversation was generated here.
pub fn wrote(talk: &Conversation) -> bool {
    talk.after.contains("\"stop_sequences\"")
}

/// Members beside the messages. The first one shows which API the body is for.
const MEMBERS: [&[(&str, &str)]; 4] = [
    &[("stop_sequences", "[ ]"), ("max_tokens", "1024")],
    &[
        ("stop_sequences", "[]"),
        ("tools", TOOLS),
        ("tool_choice", "{\"type\": \"auto\"}"),
        ("max_tokens", "1024"),
    ],
    &[
        ("stop_sequences", "[\"END\"]"),
        ("stream", "true"),
        ("tools", TOOLS),
        ("thinking", "{\"type\":\"adaptive\"}"),
    ],
    &[
        ("stop_sequences", "[]"),
        ("tools", TOOLS),
        ("tool_choice", "{\"type\":\"any\"}"),
        ("metadata", "{\"user_id\":\"\\/\"}"),
    ],
];

const TOOLS: &str =
    r#"[{"name":"look","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}]"#;

/// What the messages of a step have beside the step, a bit each.
#[derive(Clone, Copy)]
struct Extras(u16);

impl Extras {
    fn thinks(self) -> bool {
        self.0 & 1 != 0
    }

    fn searches(self) -> bool {
        self.0 & 2 != 0
    }

    fn says_more(self) -> bool {
        self.0 & 12 == 12
    }

    fn marks(self) -> bool {
        self.0 & 16 != 0
    }

    fn fails(self) -> bool {
        self.0 & 96 == 96
    }
}

fn messages_of(step: &Step, at: usize, extras: Extras) -> Vec<Value> {
    match step {
        Step::System(content) => vec![json!({"role": "system", "content": content_of(content)})],
        Step::User(content) => {
            vec![json!({"role": "user", "content": marked(content_of(content), extras)})]
        }
        Step::Text(content) => {
            let blocks = [before_calls(at, extras), blocks_of(content)].concat();
            let content = if extras.thinks() { Value::Array(blocks) } else { content_of(content) };
            vec![json!({"role": "assistant", "content": content})]
        }
        Step::Calls { content, calls, results, reversed } => {
            let calls: Vec<(&str, &Value)> =
                calls.iter().map(|(name, arguments)| (*name, arguments)).collect();
            exchange(at, content, &calls, results, *reversed, extras)
        }
        Step::Legacy(arguments, result) => {
            exchange(at, &Value::Null, &[("look", arguments)], std::slice::from_ref(result), false, extras)
        }
    }
}

/// A reply with calls, and the user message that answers it.
fn exchange(
    at: usize,
    content: &Value,
    calls: &[(&str, &Value)],
    results: &[Value],
    reversed: bool,
    extras: Extras,
) -> Vec<Value> {
    let id = |call: usize| format!("toolu_{at}_{call}");
    let mut blocks = [before_calls(at, extras), blocks_of(content)].concat();
    blocks.extend(calls.iter().enumerate().map(|(call, (name, arguments))| {
        let input: Option<Value> = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
        let input = input.unwrap_or_else(|| json!({}));
        json!({"type": "tool_use", "id": id(call), "name": name, "input": input})
    }));
    let answered = results.iter().enumerate().map(|(call, content)| {
        let mut result = json!({"type": "tool_result", "tool_use_id": id(call)});
        if !content.is_null() && *content != ABSENT {
            result["content"] = content_of(content);
        }
        if extras.fails() {
            result["is_error"] = true.into();
        }
        result
    });
    let mut answers: Vec<Value> = answered.collect();
    if reversed {
        answers.reverse();
    }
    let mut messages = vec![json!({"role": "assistant", "content": blocks})];
    if !answers.is_empty() {
        if extras.says_more() {
            answers.push(json!({"type": "text", "text": "<system-reminder>Go on.</system-reminder>"}));
        }
        messages.push(json!({"role": "user", "content": marked(Value::Array(answers), extras)}));
    }
    messages
}

/// What a reply has before its text and its calls.
fn before_calls(at: usize, extras: Extras) -> Vec<Value> {
    let mut blocks = Vec::new();
    if extras.thinks() {
        blocks.push(json!({"type": "thinking", "thinking": "", "signature": format!("sig+/{at}==")}));
    }
    if extras.searches() {
        let id = format!("srvtoolu_{at}");
        blocks.push(
            json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "q"}}),
        );
        blocks.push(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}));
    }
    blocks
}

/// A generated content in the form of this API.
fn content_of(content: &Value) -> Value {
    match content {
        Value::String(text) if text == ABSENT => "".into(),
        Value::Array(parts) => parts.iter().map(block_of).collect(),
        Value::Null => Value::Array(vec![]),
        other => other.clone(),
    }
}

fn block_of(part: &Value) -> Value {
    if part["type"] == "text" {
        return part.clone();
    }
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}})
}

/// The same as blocks; none for a text that is empty.
fn blocks_of(content: &Value) -> Vec<Value> {
    match content_of(content) {
        Value::Array(blocks) => blocks,
        Value::String(text) if text.is_empty() => Vec::new(),
        text => vec![json!({"type": "text", "text": text})],
    }
}

/// The content with a mark of the cache on its last block.
fn marked(mut content: Value, extras: Extras) -> Value {
    if extras.marks()
        && let Some(last) = content.as_array_mut().and_then(|blocks| blocks.last_mut())
    {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
    content
}
