//! A strict validator of event streams of the Responses API: what every recorded stream of OpenAI keeps.

use super::*;

/// A valid stream.
pub(super) struct Valid {
    /// The types of its events; a row of deltas counts once.
    pub shape: Vec<String>,
    /// The response of its last event.
    pub last: Value,
}

/// How far an item's own events have come.
#[derive(Debug, PartialEq)]
enum Stage {
    Opened,
    InPart,
    TextDone,
    Complete,
}

/// The item that is open.
struct Open {
    item: Value,
    /// Its deltas so far.
    deltas: String,
    stage: Stage,
}

/// The events as types and data, if the framing is OpenAI's.
pub(super) fn events(text: &str) -> Result<Vec<Value>, String> {
    let rest = text.strip_suffix("\n\n").ok_or("the last event is not ended")?;
    let event = |frame: &str| -> Option<Value> {
        let (kind, data) = frame.split_once('\n')?;
        let data: Value = serde_json::from_str(data.strip_prefix("data: ")?).ok()?;
        (data["type"].as_str()? == kind.strip_prefix("event: ")?).then_some(data)
    };
    rest.split("\n\n").map(|frame| event(frame).ok_or_else(|| format!("no event: {frame}"))).collect()
}

/// The text of events.
pub(super) fn framed(events: &[Value]) -> String {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(frame).collect()
}

/// Checks the whole stream.
pub(super) fn validate(text: &str) -> Result<Valid, String> {
    let events = events(text)?;
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for (at, event) in events.iter().enumerate() {
        ensure(event["sequence_number"] == at, event)?;
    }
    let (head, [last]) = events.split_at(events.len() - 1) else { return Err("no events".to_owned()) };
    let [created, in_progress, body @ ..] = head else { return Err("no beginning".to_owned()) };
    for (event, kind) in [(created, "response.created"), (in_progress, "response.in_progress")] {
        let response = &event["response"];
        ensure(event["type"] == kind && response["status"] == "in_progress", event)?;
        ensure(response["output"] == json!([]) && response["usage"].is_null(), event)?;
        ensure(response["id"] == last["response"]["id"], event)?;
    }
    let mut items = Vec::new();
    let mut open: Option<Open> = None;
    for event in body {
        ensure(event["output_index"] == items.len(), event)?;
        if event["type"] == "response.output_item.added" {
            ensure(open.is_none(), event)?;
            open = Some(Open::new(&event["item"]).ok_or_else(|| format!("badly opened: {event}"))?);
        } else if event["type"] == "response.output_item.done" {
            let closed = open.take().ok_or_else(|| format!("not open: {event}"))?;
            ensure(closed.fits(&event["item"]), event)?;
            items.push(event["item"].clone());
        } else {
            let open = open.as_mut().ok_or_else(|| format!("not open: {event}"))?;
            ensure(open.grow(event).is_some(), event)?;
        }
    }
    ensure(open.is_none() && last["response"]["output"] == Value::Array(items), last)?;
    let status = last["type"].as_str().and_then(|kind| kind.strip_prefix("response."));
    ensure(matches!(status, Some("completed" | "incomplete")), last)?;
    ensure(last["response"]["status"] == *status.unwrap(), last)?;
    let usage = &last["response"]["usage"];
    let sum = usage["input_tokens"].as_u64().zip(usage["output_tokens"].as_u64()).map(|(a, b)| a + b);
    ensure(sum.is_some() && usage["total_tokens"].as_u64() == sum, last)?;
    let mut shape: Vec<String> = kinds.into_iter().map(str::to_owned).collect();
    shape.dedup_by(|next, kind| next == kind && kind.ends_with(".delta"));
    Ok(Valid { shape, last: last["response"].clone() })
}

fn ensure(holds: bool, event: &Value) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("not valid: {event}")) }
}

impl Open {
    fn new(item: &Value) -> Option<Self> {
        item["id"].as_str()?;
        let is_whole = match item["type"].as_str()? {
            "function_call" => {
                let named = item["name"].is_string() && item["call_id"].is_string();
                named && item["status"] == "in_progress" && item["arguments"] == ""
            }
            "message" => item["status"] == "in_progress" && item["content"] == json!([]),
            _ => true,
        };
        is_whole.then(|| Self { item: item.clone(), deltas: String::new(), stage: Stage::Opened })
    }

    /// One event of the item; `None` where it does not come at this stage.
    fn grow(&mut self, event: &Value) -> Option<()> {
        let is_same = |text: &Value| (text.as_str() == Some(self.deltas.as_str())).then_some(());
        (event["item_id"] == self.item["id"]).then_some(())?;
        self.stage = match (self.item["type"].as_str()?, event["type"].as_str()?, &self.stage) {
            ("function_call", "response.function_call_arguments.delta", Stage::Opened) => {
                self.deltas.push_str(event["delta"].as_str()?);
                return Some(());
            }
            ("function_call", "response.function_call_arguments.done", Stage::Opened) => {
                is_same(&event["arguments"])?;
                Stage::Complete
            }
            ("message", "response.content_part.added", Stage::Opened) => {
                is_same(&event["part"]["text"])?;
                Stage::InPart
            }
            ("message", "response.output_text.delta", Stage::InPart) => {
                (event["content_index"] == 0).then_some(())?;
                self.deltas.push_str(event["delta"].as_str()?);
                return Some(());
            }
            ("message", "response.output_text.done", Stage::InPart) => {
                is_same(&event["text"])?;
                Stage::TextDone
            }
            ("message", "response.content_part.done", Stage::TextDone) => {
                is_same(&event["part"]["text"])?;
                Stage::Complete
            }
            _ => return None,
        };
        Some(())
    }

    /// Whether `item` is what the events announced.
    fn fits(&self, item: &Value) -> bool {
        let same = ["id", "type", "name", "call_id", "role"].iter().all(|key| item[*key] == self.item[*key]);
        let (is_complete, text) = match self.item["type"].as_str() {
            Some("function_call") => (self.stage == Stage::Complete, &item["arguments"]),
            Some("message") => (self.stage == Stage::Complete, &item["content"][0]["text"]),
            _ => return same && self.stage == Stage::Opened,
        };
        same && is_complete && item["status"] != "in_progress" && *text == self.deltas
    }
}
