//! A model that misbehaves: it calls tools that it may not call, reuses ids or gives none, writes arguments that are
//! not JSON, calls tools where no call is wanted, and says nothing. Makes replies, whole and streamed; asserts
//! nothing.

use super::numbers::Numbers;
use bytes::Bytes;
use serde_json::{Value, json};

/// A call as the model means it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// One choice of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    pub text: Option<String>,
    pub calls: Vec<Call>,
    pub legacy: bool,
}

/// How a model names its calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ids {
    Unique,
    /// `call_0`, `call_1` in each reply.
    Reused,
    /// `functions.look:0`, as Kimi does.
    Named,
    Empty,
    Same,
    /// Drawn at random, as most providers do.
    Random,
}

/// What every reply is billed at in all.
pub const TOKENS: u64 = 7;
/// The tools that clients declare.
pub const TOOLS: [&str; 9] =
    ["look", "read_file", "send_mail", "pay_bill", "award_points", "show_card", "fetch", "think", "calm"];
/// The tools that no client declares, or that may not be called.
const STRANGE: [&str; 2] = ["forbidden_thing", "made_up"];
const ARGUMENTS: [&str; 12] = [
    "{}",
    "",
    "{\"q\":1}",
    "{ \"q\": 1 }",
    "{\"path\":\"a/b\",\"n\":[1,2]}",
    "{\"q\":\"é\\n\\\"x\\\"\"}",
    "{\"to\":\"bob\",\"amount\":3}",
    "{\"card_id\":\"c1\"}",
    "{\"card_id\":\"c2\"}",
    "{\"__proto__\":{\"x\":1},\"q\":2}",
    "{broken",
    "{\"path\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
];
const TEXTS: [&str; 7] =
    ["Well.", "I look.", "What is it?", "Done, 完了.", " ", "", "I say \"[toolrein] x\" \\ and\nmore"];

pub struct Model {
    pub numbers: Numbers,
    pub ids: Ids,
    next: usize,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        Self { numbers: Numbers::of(seed), ids: Ids::Unique, next: 0 }
    }

    /// What it says to a request: one for each choice that is asked for.
    pub fn answer(&mut self, request: &Value) -> Vec<Said> {
        let count = request["n"].as_u64().unwrap_or(1).clamp(1, 4);
        (0..count).map(|_| self.say(request)).collect()
    }

    fn say(&mut self, request: &Value) -> Said {
        self.next += 1;
        let is_landing = request["tool_choice"] == "none";
        let has_tools = request.get("tools").is_some();
        let calls = self.numbers.percent(if is_landing || !has_tools { 25 } else { 65 });
        if !calls {
            // Sometimes the model says nothing at all.
            let text =
                if self.numbers.percent(96) { self.numbers.below(4) } else { 4 + self.numbers.below(3) };
            return Said { text: Some(TEXTS[text].to_owned()), ..Said::default() };
        }
        let count = *self.numbers.pick(&[1, 1, 1, 2, 2, 3, 5]);
        let legacy = self.numbers.percent(3);
        let mut calls: Vec<Call> = (0..count).map(|at| self.call(at, request)).collect();
        if legacy {
            calls.truncate(1);
            calls[0].id.clear();
        }
        let text = self.numbers.percent(30).then(|| (*self.numbers.pick(&TEXTS)).to_owned());
        Said { text, calls, legacy }
    }

    fn random_id(&mut self) -> String {
        let digits = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let drawn = (0..24).map(|_| char::from(*self.numbers.pick(digits)));
        format!("call_{}", drawn.collect::<String>())
    }

    fn call(&mut self, at: usize, request: &Value) -> Call {
        let mut own = request["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["function"]["name"].as_str());
        let own = own.rfind(|name| !TOOLS.contains(name)).map(str::to_owned);
        let name = match (self.numbers.below(20), own) {
            (0, Some(own)) => own,
            (1, _) => (*self.numbers.pick(&STRANGE)).to_owned(),
            (2..=8, _) => "look".to_owned(),
            _ => (*self.numbers.pick(&TOOLS)).to_owned(),
        };
        let arguments = match self.numbers.below(10) {
            0..=2 => format!("{{\"q\":{}}}", self.numbers.below(100_000)),
            3 => format!("{{\"call\":{},\"lines\":\"1-3\"}}", 1 + self.numbers.below(4)),
            _ => (*self.numbers.pick(&ARGUMENTS)).to_owned(),
        };
        let id = match self.ids {
            Ids::Unique => format!("call_{:08}_{at}", self.next),
            Ids::Reused => format!("call_{at}"),
            Ids::Named => format!("functions.{name}:{at}"),
            Ids::Empty => String::new(),
            Ids::Same => "0".to_owned(),
            Ids::Random => self.random_id(),
        };
        Call { id, name, arguments }
    }
}

/// What was said as a whole reply.
pub fn whole(said: &[Said], id: &str, model: &Value) -> Bytes {
    let choices: Vec<Value> = said
        .iter()
        .enumerate()
        .map(|(index, said)| {
            let mut message = json!({"role": "assistant", "content": said.text});
            if said.legacy {
                message["function_call"] = function(&said.calls[0]);
            } else if !said.calls.is_empty() {
                message["tool_calls"] = said.calls.iter().map(call).collect();
            }
            json!({"index": index, "message": message, "finish_reason": finish(said)})
        })
        .collect();
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": TOKENS});
    json!({"id": id, "object": "chat.completion", "created": 1, "model": model, "choices": choices, "usage": usage})
        .to_string()
        .into()
}

fn call(call: &Call) -> Value {
    json!({"id": call.id, "type": "function", "function": function(call)})
}

fn function(call: &Call) -> Value {
    json!({"name": call.name, "arguments": call.arguments})
}

fn finish(said: &Said) -> &'static str {
    match (said.calls.is_empty(), said.legacy) {
        (true, _) => "stop",
        (false, true) => "function_call",
        (false, false) => "tool_calls",
    }
}

/// The reply as a stream, the events of its choices interleaved; sometimes its last event is not ended.
pub fn streamed(said: &[Said], id: &str, model: &Value, numbers: &mut Numbers) -> Bytes {
    let mut waiting: Vec<Vec<Value>> =
        said.iter().enumerate().map(|(at, said)| events_of(at, said, numbers)).collect();
    let mut out = String::new();
    while let Some(at) = (!waiting.is_empty()).then(|| numbers.below(waiting.len())) {
        let mut choice = waiting[at].remove(0);
        if waiting[at].is_empty() {
            waiting.remove(at);
        }
        if choice.get("finish_reason").is_none() {
            choice["finish_reason"] = Value::Null;
        }
        let chunk = json!({"id": id, "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]});
        out.push_str(&format!("data: {chunk}\n\n"));
        if numbers.percent(3) {
            out.push_str(": ping\n\n");
        }
    }
    let usage = json!({"id": id, "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": TOKENS}});
    out.push_str(&format!("data: {usage}\n\ndata: [DONE]\n\n"));
    if numbers.percent(5) {
        out.truncate(out.trim_end().len());
    }
    out.into()
}

fn events_of(index: usize, said: &Said, numbers: &mut Numbers) -> Vec<Value> {
    let mut deltas = vec![json!({"role": "assistant", "content": said.text.as_ref().map(|_| "")})];
    if let Some(text) = said.text.as_ref().filter(|text| !text.is_empty()) {
        let (first, second) = halves(text);
        deltas.extend([first, second].map(|part| json!({"content": part})));
        if numbers.percent(40) {
            // Some models send the role with the first piece of text.
            deltas.remove(0);
            deltas[0]["role"] = "assistant".into();
        }
    }
    for (at, call) in said.calls.iter().enumerate() {
        let (first, second) = halves(&call.arguments);
        if said.legacy {
            deltas.push(json!({"function_call": {"name": call.name, "arguments": first}}));
            deltas.push(json!({"function_call": {"arguments": second}}));
        } else if numbers.percent(30) {
            let whole = json!({"name": call.name, "arguments": call.arguments});
            deltas.push(
                json!({"tool_calls": [{"index": at, "id": call.id, "type": "function", "function": whole}]}),
            );
        } else {
            let head = json!({"name": call.name, "arguments": ""});
            deltas.push(
                json!({"tool_calls": [{"index": at, "id": call.id, "type": "function", "function": head}]}),
            );
            deltas.push(json!({"tool_calls": [{"index": at, "function": {"arguments": first}}]}));
            deltas.push(json!({"tool_calls": [{"index": at, "function": {"arguments": second}}]}));
        }
    }
    let mut events: Vec<Value> =
        deltas.into_iter().map(|delta| json!({"index": index, "delta": delta})).collect();
    events.push(json!({"index": index, "delta": {}, "finish_reason": finish(said)}));
    events
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at((0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0))
}
