//! A simple model of the same conversations, kept as lists of what was said: when each call was handed out, how many
//! calls are in a window and in a turn, and which hidden exchanges belong before which message. Uses no hashes and no
//! state store.

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
/// The bounds of what the state store keeps under one key: hidden exchanges, and release times of one call.
const ROUNDS_AT_ONE_PLACE: usize = 64;
const TIMES_OF_ONE_CALL: usize = 8;
/// Letters and digits of an id that was drawn at random, with `call_`.
const RANDOM_ID: usize = 29;

/// What is known of all conversations.
#[derive(Default)]
pub struct Reference {
    released: BTreeMap<Plain, Vec<Released>>,
    rounds: BTreeMap<Place, Vec<(Anchor, Bytes)>>,
    /// What users said where they were asked to approve calls.
    answers: BTreeSet<String>,
    /// What models were seen to refuse before they took a request.
    refused: BTreeSet<(&'static str, Dislike)>,
}

/// One time that a call was handed out.
#[derive(Clone, Debug, PartialEq)]
struct Released {
    /// What the model saw before it.
    seen: Vec<String>,
    /// The hidden exchanges before it, joined; empty if there were none.
    hidden: Bytes,
    at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// After these messages.
    Behind(Vec<String>),
    /// Before this call, wherever it is.
    Before(Plain),
}

#[derive(Clone, Debug, PartialEq)]
enum Anchor {
    Call(Plain),
    Text(String),
}

/// The calls of one turn and in each tool's window, as they are before one reply; the reply's calls are added to
/// them.
#[derive(Clone)]
pub struct Counts {
    now_ms: u64,
    times: BTreeMap<String, Vec<u64>>,
    pub turn: u64,
    acting: u64,
    in_reply: u64,
}

impl Reference {
    /// The process was restarted.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The user's last message answers a question about calls.
    pub fn learn_answer(&mut self, history: &[Value]) {
        self.answers.extend(history.last().map(|message| message["content"].to_string()));
    }

    /// The calls in the windows and in the running turn of a history. An approval continues the turn as long as the
    /// question is known, so there is one possible count more than the history has answers to questions.
    pub fn count(&mut self, history: &[Value], now_ms: u64) -> Vec<Counts> {
        self.adopt(history);
        let answers = history.iter().filter(|message| self.may_approve(message)).count();
        (0..=answers).map(|begin| self.count_turn(history, now_ms, begin)).collect()
    }

    fn may_approve(&self, message: &Value) -> bool {
        message["role"] == "user" && self.answers.contains(&message["content"].to_string())
    }

    /// One of these counts: the oldest `begin` answers begin a turn, and the others continue one.
    fn count_turn(&self, history: &[Value], now_ms: u64, begin: usize) -> Counts {
        let mut counts = Counts { now_ms, times: BTreeMap::new(), turn: 0, acting: 0, in_reply: 0 };
        let (mut begun, mut answered, mut answers) = (false, false, 0);
        for (at, message) in history.iter().enumerate() {
            match message["role"].as_str() {
                Some("user") => {
                    let may_approve = self.may_approve(message);
                    answers += usize::from(may_approve);
                    let goes_on = may_approve && answers > begin;
                    if (!begun || answered) && !goes_on {
                        (counts.turn, counts.acting) = (0, 0);
                    }
                    (begun, answered) = (true, false);
                }
                Some("assistant") => {
                    let calls = calls_of(message);
                    answered = calls.is_empty() && message.get("content").is_some();
                    begun = true;
                    for call in calls {
                        counts.add(&call.1, self.latest(&call, &seen(&history[..at])));
                    }
                }
                _ => {}
            }
        }
        counts
    }

    /// When a call was handed out after what the model saw; if that is not known, the latest possible time.
    fn latest(&self, call: &Plain, seen: &[String]) -> Option<u64> {
        let known = self.released.get(call)?;
        let own = known.iter().filter(|one| one.seen == seen).map(|one| one.at_ms).max();
        own.or_else(|| known.iter().map(|one| one.at_ms).max())
    }

    /// The newest calls may have been handed out without ids, and the client has invented the ids that they have now.
    fn adopt(&mut self, history: &[Value]) {
        let Some(last) = history.iter().rposition(|message| !calls_of(message).is_empty()) else { return };
        let seen = seen(&history[..last]);
        for (id, name, arguments) in calls_of(&history[last]) {
            let nameless = self.released.get(&(String::new(), name.clone(), arguments.clone()));
            let (Some(nameless), None) =
                (nameless, self.released.get(&(id.clone(), name.clone(), arguments.clone())))
            else {
                continue;
            };
            let mut own: Vec<Released> = nameless.iter().filter(|one| one.seen == seen).cloned().collect();
            if own.is_empty() {
                let at_ms = nameless.iter().map(|one| one.at_ms).max();
                own.extend(at_ms.map(|at_ms| Released { seen: seen.clone(), hidden: Bytes::new(), at_ms }));
            }
            self.released.insert((id, name, arguments), own);
        }
    }

    /// A model took a request after it had refused this.
    pub fn learn_refusal(&mut self, model: &'static str, dislike: Dislike) {
        self.refused.insert((model, dislike));
    }

    /// Whether that refusal is known.
    pub fn knows_refusal(&self, model: &'static str, dislike: Dislike) -> bool {
        self.refused.contains(&(model, dislike))
    }

    /// The hidden exchanges that belong before messages of a history, and how many are lost.
    pub fn restored(&self, history: &[Value]) -> (Vec<(usize, Bytes)>, u32) {
        let (mut found, mut lost) = (Vec::new(), 0);
        let last = history.iter().rposition(|message| message["role"] == "assistant");
        for (at, message) in history.iter().enumerate().filter(|(_, message)| message["role"] == "assistant")
        {
            let seen = seen(&history[..at]);
            let here = self.rounds.get(&Place::Behind(seen.clone())).map_or(&[][..], Vec::as_slice);
            let hid = here.iter().any(|(_, round)| !round.is_empty());
            let before = match calls_of(message).into_iter().next() {
                Some(call) => self.before_call(&call, &seen, hid),
                None => before_text(&Anchor::Text(text_of(message).trim().to_owned()), here, hid),
            };
            match before {
                Ok(round) if round.is_empty() => {}
                Ok(round) => found.push((at, round)),
                Err(Lost) => lost += u32::from(Some(at) == last),
            }
        }
        (found, lost)
    }

    /// The exchange that was hidden when the call was handed out in this conversation, or in any if its id is random.
    fn before_call(&self, call: &Plain, seen: &[String], hid: bool) -> Result<Bytes, Lost> {
        let known = self.released.get(call).map_or(&[][..], Vec::as_slice);
        let mut of: Vec<&Released> = known.iter().filter(|one| one.seen == seen).collect();
        if of.is_empty() {
            let is_random = call.0.len() == RANDOM_ID && call.0.starts_with("call_");
            if !is_random || known.is_empty() {
                return if hid { Err(Lost) } else { Ok(Bytes::new()) };
            }
            if known.iter().any(|one| one.seen != known[0].seen) {
                return Err(Lost);
            }
            of.extend(known);
        }
        let hidden = &of[0].hidden;
        if of.iter().any(|one| one.hidden != *hidden) { Err(Lost) } else { self.kept(call, seen, hidden) }
    }

    /// The hidden exchange that is known to have been there, if it is still kept.
    fn kept(&self, call: &Plain, seen: &[String], round: &Bytes) -> Result<Bytes, Lost> {
        let nameless = (String::new(), call.1.clone(), call.2.clone());
        let anchors = [call.clone(), nameless].map(Anchor::Call);
        let places = [Place::Behind(seen.to_vec()), Place::Before(call.clone())];
        let mut kept = places.iter().filter_map(|place| self.rounds.get(place)).flatten();
        let is_kept = kept.any(|(anchor, kept)| anchors.contains(anchor) && kept == round);
        if round.is_empty() || is_kept { Ok(round.clone()) } else { Err(Lost) }
    }

    /// Learns what the client was shown as the reply to `history`, and which exchanges were hidden before it.
    pub fn learn(&mut self, history: &[Value], shown: &Value, rounds: &[Bytes], now_ms: u64) {
        let (seen, hidden) = (seen(history), Bytes::from(rounds.join(b",".as_slice())));
        let calls = calls_of(shown);
        for call in &calls {
            let known = self.released.entry(call.clone()).or_default();
            let same = known.iter().position(|one| one.seen == seen && one.hidden == hidden);
            let before = same.map_or(0, |same| known.remove(same).at_ms);
            known.push(Released { seen: seen.clone(), hidden: hidden.clone(), at_ms: now_ms.max(before) });
            known.sort_by_key(|one| one.at_ms);
            known.drain(..known.len().saturating_sub(TIMES_OF_ONE_CALL));
        }
        let behind = Place::Behind(seen);
        match calls.into_iter().next() {
            None => self.keep(behind, (Anchor::Text(text_of(shown).trim().to_owned()), hidden)),
            Some(_) if hidden.is_empty() => {}
            Some(first) => {
                let round = (Anchor::Call(first.clone()), hidden);
                self.keep(behind, round.clone());
                self.keep(Place::Before(first), round);
            }
        }
    }

    fn keep(&mut self, place: Place, round: (Anchor, Bytes)) {
        let known = self.rounds.entry(place).or_default();
        known.retain(|known| *known != round);
        known.push(round);
        known.drain(..known.len().saturating_sub(ROUNDS_AT_ONE_PLACE));
    }
}

/// Something was hidden, and its content is not known.
struct Lost;

/// The exchange that was hidden before this text, if only one is possible.
fn before_text(text: &Anchor, here: &[(Anchor, Bytes)], hid: bool) -> Result<Bytes, Lost> {
    let of_text: Vec<&Bytes> =
        here.iter().filter(|(anchor, _)| anchor == text).map(|(_, round)| round).collect();
    match of_text.as_slice() {
        [] if hid => Err(Lost),
        [] => Ok(Bytes::new()),
        [round] if round.is_empty() || here.len() < ROUNDS_AT_ONE_PLACE => Ok((*round).clone()),
        _ => Err(Lost),
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

/// What the model saw of a history, each message as it reads however a client spells it.
fn seen(history: &[Value]) -> Vec<String> {
    let read = |message: &Value| match message["role"].as_str() {
        Some("assistant") => format!("assistant {:?} {}", calls_of(message), text_of(message).trim()),
        Some(role @ ("system" | "user")) => format!("{role} {}", text_of(message).trim()),
        _ => format!("result {} {} {}", message["tool_call_id"], message["name"], message["content"]),
    };
    history.iter().map(read).collect()
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
