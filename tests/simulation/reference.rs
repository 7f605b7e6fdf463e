//! A plain account of the same conversations, kept as lists of what was said: when each call was handed out, how many
//! stand in a window and in a turn, and which rounds belong before which message. Knows no hash and no ledger.

use super::upstream::Dislike;
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A call in a history: id, name, arguments with sorted keys.
type Plain = (String, String, String);

/// The numbers of `counting.toml` and `everything.toml`.
const BUDGET: u64 = 7;
const TURN: u64 = 9;
const PARALLEL: u64 = 3;
const ACTING: u64 = 2;
/// Rounds that the ledger keeps for one place.
const ROUNDS_AT_ONE_PLACE: usize = 64;

/// What is known of all conversations.
#[derive(Default)]
pub struct Reference {
    released_ms: BTreeMap<Vec<Plain>, u64>,
    rounds: BTreeMap<Place, Vec<(Anchor, Bytes)>>,
    /// What models were seen to refuse before they took a request.
    refused: BTreeSet<(&'static str, Dislike)>,
}

/// The calls so far and, for a text, the story so far.
type Place = (Vec<Plain>, Option<Vec<String>>);

#[derive(Clone, Debug, PartialEq)]
enum Anchor {
    Call(Plain),
    Text(String),
}

/// The calls of one turn and of each tool's window, as one reply finds them and goes on counting.
#[derive(Clone)]
pub struct Counts {
    now_ms: u64,
    times: BTreeMap<String, Vec<u64>>,
    pub turn: u64,
    acting: u64,
    in_reply: u64,
}

impl Reference {
    /// The process began anew.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// What stands in the windows and in the running turn of a history.
    pub fn count(&mut self, history: &[Value], now_ms: u64) -> Counts {
        self.adopt(history);
        let mut counts = Counts { now_ms, times: BTreeMap::new(), turn: 0, acting: 0, in_reply: 0 };
        let mut before = Vec::new();
        let (mut begun, mut answered) = (false, false);
        for message in history {
            match message["role"].as_str() {
                Some("user") => {
                    if !begun || answered {
                        (counts.turn, counts.acting) = (0, 0);
                    }
                    (begun, answered) = (true, false);
                }
                Some("assistant") => {
                    let calls = calls_of(message);
                    answered = calls.is_empty() && message.get("content").is_some();
                    begun = true;
                    for call in calls {
                        let name = call.1.clone();
                        before.push(call);
                        counts.add(&name, self.released_ms.get(&before).copied());
                    }
                }
                _ => {}
            }
        }
        counts
    }

    /// The newest calls were handed out, if not by their own ids, then by none: the client has invented these.
    fn adopt(&mut self, history: &[Value]) {
        let Some(last) = history.iter().rposition(|message| !calls_of(message).is_empty()) else { return };
        let mut named: Vec<Plain> = history[..last].iter().flat_map(calls_of).collect();
        let mut nameless = named.clone();
        for (id, name, arguments) in calls_of(&history[last]) {
            named.push((id, name.clone(), arguments.clone()));
            nameless.push((String::new(), name, arguments));
            if let Some(at) = self.released_ms.get(&nameless).copied() {
                self.released_ms.entry(named.clone()).or_insert(at);
            }
        }
    }

    /// A model took a request after it had refused this.
    pub fn learn_refusal(&mut self, model: &'static str, dislike: Dislike) {
        self.refused.insert((model, dislike));
    }

    /// Whether that is known.
    pub fn knows_refusal(&self, model: &'static str, dislike: Dislike) -> bool {
        self.refused.contains(&(model, dislike))
    }

    /// The rounds that belong before messages of a history, and how many are lost.
    pub fn restored(&self, history: &[Value]) -> (Vec<(usize, Bytes)>, u32) {
        let (mut found, mut lost) = (Vec::new(), 0);
        let last = history.iter().rposition(|message| message["role"] == "assistant");
        for (at, message) in history.iter().enumerate().filter(|(_, message)| message["role"] == "assistant")
        {
            let (place, anchor) = place_of(&history[..at], message);
            let Some(known) = self.rounds.get(&place) else { continue };
            // A client that needs ids invents one where the upstream gave none.
            let unnamed = match &anchor {
                Anchor::Call((_, name, arguments)) => {
                    Some(Anchor::Call((String::new(), name.clone(), arguments.clone())))
                }
                Anchor::Text(_) => None,
            };
            let by = |anchor: &Anchor| known.iter().find(|(known, _)| known == anchor);
            match by(&anchor).or_else(|| by(unnamed.as_ref()?)) {
                Some((_, round)) => found.push((at, round.clone())),
                None => lost += u32::from(Some(at) == last),
            }
        }
        (found, lost)
    }

    /// Learns what the client was shown to `history`, and which rounds were hidden behind it.
    pub fn learn(&mut self, history: &[Value], shown: &Value, rounds: &[Bytes], now_ms: u64) {
        let mut before: Vec<Plain> = history.iter().flat_map(calls_of).collect();
        for call in calls_of(shown) {
            before.push(call);
            self.released_ms.entry(before.clone()).or_insert(now_ms);
        }
        if rounds.is_empty() {
            return;
        }
        let (place, anchor) = place_of(history, shown);
        let known = self.rounds.entry(place).or_default();
        // What a conversation may have gone on from stays.
        if known.iter().all(|(known, _)| *known != anchor) {
            known.push((anchor, rounds.join(b",".as_slice()).into()));
        }
        known.drain(..known.len().saturating_sub(ROUNDS_AT_ONE_PLACE));
    }
}

impl Counts {
    /// Which of `rate_limit`, `budget` and `turn_limits` object to the next call of a tool.
    pub fn objections(&self, tool: &str) -> Vec<&'static str> {
        let rate = match tool {
            "look" => Some((3, 30_000)),
            _ if tool.starts_with("read") => None,
            _ => Some((4, 60_000)),
        };
        let inside = |window: u64| {
            let times = self.times.get(tool).map_or([].as_slice(), Vec::as_slice);
            times.iter().filter(|at| self.now_ms - **at < window).count()
        };
        let mut found = Vec::new();
        if self.turn >= BUDGET {
            found.push("budget");
        }
        if rate.is_some_and(|(limit, window)| inside(window) >= limit) {
            found.push("rate_limit");
        }
        if self.turn >= TURN || (is_acting(tool) && self.acting >= ACTING) || self.in_reply >= PARALLEL {
            found.push("turn_limits");
        }
        found
    }

    /// A call is handed to the client.
    pub fn release(&mut self, tool: &str) {
        self.add(tool, Some(self.now_ms));
        self.in_reply += 1;
    }

    fn add(&mut self, tool: &str, released_ms: Option<u64>) {
        self.turn += 1;
        self.acting += u64::from(is_acting(tool));
        if let Some(at) = released_ms {
            self.times.entry(tool.to_owned()).or_default().push(at);
        }
    }
}

fn is_acting(tool: &str) -> bool {
    tool.starts_with("send") || tool.starts_with("pay")
}

fn place_of(before: &[Value], message: &Value) -> (Place, Anchor) {
    let calls: Vec<Plain> = before.iter().flat_map(calls_of).collect();
    match calls_of(message).into_iter().next() {
        Some(first) => ((calls, None), Anchor::Call(first)),
        None => ((calls, Some(story(before))), Anchor::Text(text_of(message).trim().to_owned())),
    }
}

/// What the system and the users said, and where the assistant answered in text.
fn story(history: &[Value]) -> Vec<String> {
    let told = history.iter().filter_map(|message| match message["role"].as_str()? {
        "system" | "user" => Some(format!("said {}", text_of(message).trim())),
        "assistant" if calls_of(message).is_empty() => Some("answered".to_owned()),
        _ => None,
    });
    told.collect()
}

pub fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The calls of a message, in both forms.
pub fn calls_of(message: &Value) -> Vec<Plain> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let plain = |id: &Value, function: &Value| {
        (text(id), text(&function["name"]), canonical(function["arguments"].as_str().unwrap_or_default()))
    };
    let mut calls: Vec<Plain> = Vec::new();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        calls.push(plain(&call["id"], &call["function"]));
    }
    if message["function_call"].is_object() {
        calls.push(plain(&Value::Null, &message["function_call"]));
    }
    calls
}

/// Arguments with sorted keys; none are an empty object.
pub fn canonical(arguments: &str) -> String {
    if arguments.trim().is_empty() {
        return "{}".to_owned();
    }
    serde_json::from_str::<Value>(arguments).map_or_else(|_| arguments.to_owned(), |value| sorted(&value))
}

fn sorted(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, String> =
                members.iter().map(|(key, value)| (key, self::sorted(value))).collect();
            format!("{sorted:?}")
        }
        Value::Array(items) => format!("{:?}", items.iter().map(sorted).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}
