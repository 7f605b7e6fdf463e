//! Lines that hold a request and the reply to it, `{"request": {...}, "response": ...}`: each is joined to one request
//! with the conversation so far, the reply at its end. Where the upstream kept the history, the lines before are joined
//! to it by the ids of their replies. Other lines pass as they are.

use super::input::{Flaw, Line};
use super::live::Live;
use super::recording::LABELS;
use bytes::Bytes;
use dialects::{AnyDialect, RecordedReply, dialect_named, dialect_of};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};
use wire::body::Fault;
use wire::json::quote;
use wire::splice::Splices;

/// Bytes of conversations that are known by the id of their last reply; beyond, the oldest are forgotten.
const MOST_BYTES: usize = 256 << 20;
/// Members that name a history upstream.
pub(super) const UPSTREAM: [&str; 2] = ["previous_response_id", "conversation"];

/// The members of a line with a request and its reply. Of its other members, only the labels of a recording are read.
const REQUEST: &str = "request";
/// The body of the reply: an object, or of a stream its text or the list of its events.
const RESPONSE: &str = "response";
/// What toolrein's recorder adds: what was done to the request.
const DONE: &str = "toolrein";

/// A line with both.
struct Exchange {
    request: Box<RawValue>,
    response: Box<RawValue>,
    labels: BTreeMap<String, Box<RawValue>>,
}

impl Exchange {
    /// `None`: the line holds something else.
    fn read(line: &[u8]) -> Option<Result<Self, Flaw>> {
        let mut labels: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(line).ok()?;
        let both = labels.remove(REQUEST).zip(labels.remove(RESPONSE));
        match both {
            Some((request, response)) => Some(Ok(Self { request, response, labels })),
            None => labels.contains_key(DONE).then_some(Err(Flaw::NoBodies)),
        }
    }

    /// The dialect of the endpoint that toolrein's recorder has noted.
    fn dialect(&self) -> Option<AnyDialect> {
        #[derive(Deserialize)]
        struct Done {
            endpoint: String,
        }
        let done: Done = serde_json::from_str(self.labels.get(DONE)?.get()).ok()?;
        dialect_named(&done.endpoint)
    }
}

/// A request with the whole conversation.
struct Joined {
    body: Bytes,
    dialect: AnyDialect,
    /// The end of the messages that the request had.
    end: usize,
    live: Option<Live>,
}

/// The conversations so far, by the name under which a later line goes on with them.
#[derive(Default)]
pub(super) struct ExchangeLines {
    /// Their items, separated by commas.
    known: BTreeMap<String, String>,
    /// The names, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl ExchangeLines {
    /// The line, as a request where it holds an exchange.
    pub(super) fn join(&mut self, line: Line) -> Line {
        let exchange = line.content.as_ref().ok().and_then(|content| Exchange::read(content));
        let exchange = match exchange {
            None => return line,
            Some(Err(flaw)) => return Line::new(line.position, Err(flaw)),
            Some(Ok(exchange)) => exchange,
        };
        match self.joined(&exchange) {
            Ok(Joined { body, dialect, end, live }) => Line {
                position: line.position,
                content: Ok(body),
                request_end: Some(end),
                live: live.into_iter().collect(),
                dialect: Some(dialect),
            },
            Err(fault) => Line::new(line.position, Err(fault.into())),
        }
    }

    fn joined(&mut self, exchange: &Exchange) -> Result<Joined, Fault> {
        let body = Bytes::copy_from_slice(exchange.request.get().as_bytes());
        let dialect = exchange.dialect().unwrap_or_else(|| dialect_of(&body));
        let request = dialect.read(&body)?;
        let RecordedReply { id, items, .. } = dialect.reply_items(&reply_of(&exchange.response));
        let before = request.continues.as_ref().and_then(|name| self.known.get(name));
        let mut all = before.cloned().unwrap_or_default();
        add(&mut all, &asked(request.messages_span.of(&body)));
        let asked_bytes = all.len();
        items.iter().for_each(|item| add(&mut all, &String::from_utf8_lossy(item)));
        let mut splices = Splices::default();
        splices.remove_members(&request.members, |member| {
            UPSTREAM.iter().any(|name| member.key.raw(&body) == name.as_bytes())
        });
        if request.messages_span.is_empty() {
            return Err(Fault::NoMessages);
        }
        let is_new = |name: &&str| request.value(&body, name).is_none();
        let labels = LABELS.into_iter().filter(is_new).filter_map(|name| {
            let value = exchange.labels.get(name)?;
            Some(format!(",{}:{}", quote(name), value.get()))
        });
        let labels: String = labels.collect();
        splices.replace(request.messages_span, format!("[{all}]"));
        splices.insert(request.span.end - 1, labels);
        let joined = splices.apply(&body).join();
        let whole = dialect.read(&joined)?;
        let end = whole.messages_span.start as usize + 1 + asked_bytes;
        let history = whole.messages.iter().filter(|message| message.span.range().end <= end).count();
        let live = exchange.labels.get(DONE).and_then(|done| {
            let reply: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(item)).collect();
            Live::read(done, dialect, &body, &request, &reply.join(","), history)
        });
        // A conversation keeps its name; otherwise a later request continues from a reply by that reply's id.
        let conversation = request.continues.clone().filter(|_| request.value(&body, UPSTREAM[1]).is_some());
        if let Some(name) = conversation.or(id) {
            self.remember(name, all);
        }
        Ok(Joined { body: joined, dialect, end, live })
    }

    fn remember(&mut self, name: String, items: String) {
        self.bytes += items.len();
        if let Some(earlier) = self.known.insert(name.clone(), items) {
            self.bytes -= earlier.len();
        } else {
            self.order.push_back(name);
        }
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.known.remove(&oldest).map_or(0, |items| items.len());
        }
    }
}

/// The items of an `input` or `messages`, separated by commas; a string is what the user says.
fn asked(list: &[u8]) -> String {
    let list = String::from_utf8_lossy(list);
    match list.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        Some(items) => items.trim().to_owned(),
        None if list.starts_with('"') => format!(r#"{{"role":"user","content":{list}}}"#),
        None => String::new(),
    }
}

fn add(all: &mut String, items: &str) {
    if !all.is_empty() && !items.is_empty() {
        all.push(',');
    }
    all.push_str(items);
}

/// The reply as it came: a body, or a stream's text.
fn reply_of(response: &RawValue) -> Bytes {
    if let Ok(text) = serde_json::from_str::<String>(response.get()) {
        return text.into();
    }
    match serde_json::from_str::<Vec<Box<RawValue>>>(response.get()) {
        Ok(events) => {
            events.iter().map(|event| format!("data: {}\n\n", event.get())).collect::<String>().into()
        }
        Err(_) => response.get().to_owned().into(),
    }
}
