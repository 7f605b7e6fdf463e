//! Scripted replies of the Responses API: reasoning, texts, calls and any other items of a model, as one body or as the
//! events that OpenAI sends; and a check of the streams that clients get.

use super::reply::Reply;
use super::scripted::Recorded;
use serde_json::{Value, json};

/// A reply of a model.
#[derive(Clone, Debug)]
pub struct Output {
    /// The name that makes its ids unique: the response is `resp_NAME`.
    name: String,
    items: Vec<Value>,
}

#[allow(clippy::needless_pass_by_value, reason = "a name is a number or a word, written in place")]
impl Output {
    /// An empty reply.
    pub fn new(name: impl ToString) -> Self {
        Self { name: name.to_string(), items: Vec::new() }
    }

    /// Text alone.
    pub fn text(name: impl ToString, text: &str) -> Self {
        Self::new(name).says(text)
    }

    /// Calls alone: (id, name, arguments) each. The call's ids are `call_ID` and `fc_ID`.
    pub fn calls(name: impl ToString, calls: &[(&str, &str, &str)]) -> Self {
        calls.iter().fold(Self::new(name), |output, (id, tool, arguments)| output.call(id, tool, arguments))
    }

    /// Adds a message.
    #[must_use]
    pub fn says(self, text: &str) -> Self {
        let id = format!("msg_{}_{}", self.name, self.items.len());
        let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]);
        self.item(json!({"id": id, "type": "message", "status": "completed", "role": "assistant", "content": content}))
    }

    /// Adds reasoning.
    #[must_use]
    pub fn thinks(self) -> Self {
        let id = format!("rs_{}_{}", self.name, self.items.len());
        let encrypted = format!("gAAA{id}");
        self.item(json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": encrypted}))
    }

    /// Adds a call of a function.
    #[must_use]
    pub fn call(self, id: &str, tool: &str, arguments: &str) -> Self {
        self.item(json!({"id": format!("fc_{id}"), "type": "function_call", "status": "completed",
            "call_id": format!("call_{id}"), "name": tool, "arguments": arguments}))
    }

    /// Adds any item, as it is when it is complete.
    #[must_use]
    pub fn item(mut self, item: Value) -> Self {
        self.items.push(item);
        self
    }

    /// Its items.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// The reply to this request, streamed if it asks for that.
    pub fn reply(&self, request: &Recorded) -> Reply {
        let body = request.json();
        if body["stream"] != true {
            return Reply::json(200, &self.whole(&body));
        }
        Reply::stream(self.events(&body).iter().map(event))
    }

    /// The response to this request, whole.
    pub fn whole(&self, request: &Value) -> Value {
        self.response(request, "completed")
    }

    /// The events of its stream, in OpenAI's order.
    pub fn events(&self, request: &Value) -> Vec<Value> {
        let mut events: Vec<Value> = ["response.created", "response.in_progress"]
            .map(|kind| json!({"type": kind, "response": self.response(request, "in_progress")}))
            .into();
        for (at, item) in self.items.iter().enumerate() {
            let mut begun = item.clone();
            let pieces = begin(&mut begun);
            let added = json!({"type": "response.output_item.added", "item": begun});
            let done = json!({"type": "response.output_item.done", "item": item});
            for mut event in [added].into_iter().chain(pieces).chain([done]) {
                event["output_index"] = at.into();
                if event["item"].is_null() {
                    event["item_id"] = item["id"].clone();
                }
                events.push(event);
            }
        }
        events.push(json!({"type": "response.completed", "response": self.whole(request)}));
        for (at, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = at.into();
        }
        events
    }

    /// The stream of its items as this server sends it.
    pub fn stream_of(&self, server: Server, request: &Value) -> String {
        match server {
            Server::LlamaCpp => {
                self.parallel_events(request, &of_llama_cpp).iter().map(event).collect::<String>()
                    + "data: [DONE]\n\n"
            }
            Server::Ogx => {
                self.written(request, &|events: &mut Vec<Value>, items: &[Value]| of_ogx(events, items))
            }
            Server::Negative => self.written(request, &with_indexes(|_| json!(-1))),
            Server::Beyond => self.written(request, &with_indexes(|index| json!((1_u64 << 53) + 2 * index))),
            Server::Labels => self.written(request, &with_indexes(|index| json!(format!("item {index}")))),
        }
    }

    fn written(&self, request: &Value, finish: &dyn Fn(&mut Vec<Value>, &[Value])) -> String {
        self.parallel_events(request, finish).iter().map(event).collect()
    }

    /// The events of its stream, of which those that end calls come after all others.
    pub fn parallel(&self, request: &Value) -> Vec<Value> {
        self.parallel_events(request, &|events, _| {
            events.iter_mut().enumerate().for_each(|(at, event)| event["sequence_number"] = at.into());
        })
    }

    /// The events, of which those that end calls come after all others; `finish` makes them the server's.
    fn parallel_events(&self, request: &Value, finish: &dyn Fn(&mut Vec<Value>, &[Value])) -> Vec<Value> {
        let mut events = self.events(request);
        let mut last = events.pop().into_iter().collect::<Vec<_>>();
        let ends_call = |event: &Value| {
            event["type"] == "response.output_item.done" && event["item"]["type"] == "function_call"
        };
        let (ends, mut all): (Vec<Value>, Vec<Value>) = events.into_iter().partition(ends_call);
        all.extend(ends);
        all.append(&mut last);
        finish(&mut all, &self.items);
        all
    }

    fn response(&self, request: &Value, status: &str) -> Value {
        let is_done = status == "completed";
        let or = |name: &str, default: Value| request.get(name).cloned().unwrap_or(default);
        let usage = json!({"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 25});
        json!({"id": format!("resp_{}", self.name), "object": "response", "created_at": 1_790_000_000, "status": status,
            "error": null, "incomplete_details": null, "instructions": or("instructions", Value::Null),
            "max_output_tokens": null, "model": "gpt-scripted",
            "output": if is_done { json!(self.items) } else { json!([]) },
            "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
            "previous_response_id": or("previous_response_id", Value::Null), "reasoning": {"effort": null, "summary": null},
            "store": or("store", json!(true)), "temperature": 1.0, "text": or("text", json!({"format": {"type": "text"}})),
            "tool_choice": or("tool_choice", json!("auto")), "tools": or("tools", json!([])), "top_p": 1.0,
            "truncation": "disabled", "usage": if is_done { usage } else { Value::Null }, "user": null, "metadata": {}})
    }
}

/// Servers whose streams have no `output_index` that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// llama.cpp's server: no index, no sequence numbers and no ids of calls beside `call_id`, by which their pieces
    /// name them; no event ends the arguments.
    LlamaCpp,
    /// OGX: calls that are made at once begin under one index.
    Ogx,
    /// Every item has the index -1.
    Negative,
    /// Indexes that JavaScript cannot tell from their neighbours.
    Beyond,
    /// Indexes that are no numbers.
    Labels,
}

/// All of them.
pub const SERVERS: [Server; 5] =
    [Server::LlamaCpp, Server::Ogx, Server::Negative, Server::Beyond, Server::Labels];

/// Gives items these indexes.
fn with_indexes(index: fn(u64) -> Value) -> impl Fn(&mut Vec<Value>, &[Value]) {
    move |events, _| {
        for (at, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = at.into();
            if let Some(number) = event["output_index"].as_u64() {
                event["output_index"] = index(number);
            }
        }
    }
}

fn of_llama_cpp(events: &mut Vec<Value>, items: &[Value]) {
    let without_id = |item: &mut Value| {
        if item["type"] == "function_call" {
            item.as_object_mut().unwrap().remove("id");
        }
    };
    events.retain(|event| event["type"] != "response.function_call_arguments.done");
    for event in events {
        for name in ["output_index", "content_index", "sequence_number", "logprobs"] {
            event.as_object_mut().unwrap().remove(name);
        }
        if let Some(call) =
            items.iter().find(|item| item["id"] == event["item_id"] && item["call_id"] != Value::Null)
        {
            event["item_id"] = call["call_id"].clone();
        }
        let kept = match event["response"]["status"].as_str() {
            Some("in_progress") => &["id", "object", "status"][..],
            _ => &["id", "object", "created_at", "status", "model", "output", "usage"],
        };
        if let Some(response) = event.get_mut("response") {
            response.as_object_mut().unwrap().retain(|name, _| kept.contains(&name.as_str()));
            response["output"].as_array_mut().into_iter().flatten().for_each(without_id);
            if response["output"].is_null() {
                response.as_object_mut().unwrap().remove("output");
            }
        }
        if let Some(item) = event.get_mut("item") {
            without_id(item);
        }
    }
}

fn of_ogx(events: &mut [Value], items: &[Value]) {
    let first = items.iter().position(|item| item["type"] == "function_call").unwrap_or(items.len());
    for (at, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = at.into();
        let ends_item = event["type"] == "response.output_item.done";
        if event["output_index"].as_u64().is_some_and(|index| index > first as u64) && !ends_item {
            event["output_index"] = first.into();
        }
    }
}

/// Turns a complete item into one that begins; the events until it is complete, without their positions.
fn begin(item: &mut Value) -> Vec<Value> {
    if item.get("status").is_some() {
        item["status"] = "in_progress".into();
    }
    let halves = |text: &str| -> [String; 2] {
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        [text[..middle].to_owned(), text[middle..].to_owned()]
    };
    let pieces_of = |event: &str, member: &str, text: &str| -> Vec<Value> {
        let delta = |piece| json!({"type": format!("response.{event}.delta"), "delta": piece});
        let mut end = json!({"type": format!("response.{event}.done")});
        end[member] = text.into();
        halves(text).map(delta).into_iter().chain([end]).collect()
    };
    let kind = item["type"].as_str().unwrap_or_default().to_owned();
    let mut blank = |member: &str| match std::mem::replace(&mut item[member], "".into()) {
        Value::String(text) => text,
        _ => String::new(),
    };
    match &*kind {
        "function_call" => pieces_of("function_call_arguments", "arguments", &blank("arguments")),
        "custom_tool_call" => pieces_of("custom_tool_call_input", "input", &blank("input")),
        "message" => {
            let content = std::mem::replace(&mut item["content"], json!([]));
            content.as_array().into_iter().flatten().enumerate().flat_map(part).collect()
        }
        _ => Vec::new(),
    }
}

fn part((at, part): (usize, &Value)) -> Vec<Value> {
    let text = part["text"].as_str().unwrap_or_default();
    let of = |kind: &str, member: &str, value: Value| {
        let mut event = json!({"type": kind, "content_index": at, "logprobs": []});
        if kind.contains("part") {
            event = json!({"type": kind, "content_index": at});
        }
        event[member] = value;
        event
    };
    let mut empty = part.clone();
    empty["text"] = "".into();
    let deltas = text.split_inclusive(' ').map(|word| of("response.output_text.delta", "delta", word.into()));
    let begun = of("response.content_part.added", "part", empty);
    let end = [
        of("response.output_text.done", "text", text.into()),
        of("response.content_part.done", "part", part.clone()),
    ];
    [begun].into_iter().chain(deltas).chain(end).collect()
}

/// An event as it is sent.
pub fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// The events of a stream.
pub fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).expect("an event is JSON")).collect()
}

/// What is wrong with a stream, by the rules that validators of this API hold: one id, dense numbers, one open item at a
/// time, and one last event that repeats the items.
pub fn flaws(stream: &str) -> Vec<String> {
    let (mut flaws, mut done, mut open) = (Vec::new(), Vec::<Value>::new(), None);
    let (events, mut ids) = (events(stream), std::collections::BTreeSet::new());
    let mut refuse = |is_wrong: bool, what: &str, event: &Value| {
        flaws.extend(is_wrong.then(|| format!("{what}: {event}")));
    };
    let is_last =
        |kind: &str| matches!(kind, "response.completed" | "response.incomplete" | "response.failed");
    for (at, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default();
        refuse(event["sequence_number"] != at, "sequence_number", event);
        refuse((kind == "response.created") != (at == 0), "response.created", event);
        refuse(is_last(kind) != (at + 1 == events.len()), "the last event", event);
        ids.extend(event["response"]["id"].as_str().map(str::to_owned));
        match kind {
            "response.output_item.added" => {
                refuse(open.is_some(), "another item is open", event);
                refuse(event["output_index"] != done.len(), "output_index", event);
                open = Some(event["output_index"].clone());
            }
            "response.output_item.done" => {
                refuse(open.take().as_ref() != Some(&event["output_index"]), "its item is not open", event);
                done.push(event["item"].clone());
            }
            _ if is_last(kind) => {
                refuse(open.is_some(), "an item is open", event);
                refuse(event["response"]["output"] != json!(done), "output", event);
            }
            _ if !event["output_index"].is_null() => {
                refuse(open.as_ref() != Some(&event["output_index"]), "its item is not open", event);
            }
            _ => {}
        }
    }
    if ids.len() != 1 {
        flaws.push(format!("ids: {ids:?}"));
    }
    flaws
}
