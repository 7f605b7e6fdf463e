//! The contents of traces: messages, arguments and results of a request, in the form of OpenTelemetry's semantic
//! conventions. Each text is first redacted whole by the recorder's rules and then shortened, so that no part of a
//! value is left. How much of one request is redacted and kept is bounded.

use super::{ReplyCopy, Taken};
use crate::config::Record;
use crate::telemetry::spans::{CallContents, Contents, ResultContents};
use bytes::Bytes;
use dialects::RecordedReply;
use model::call::ToolCall;
use model::identity::HashKey;
use model::message::{Content, Message, Role};
use model::record::{JudgedCall, RequestRecord};
use model::request::Request;
use policies::redact::Redactor;
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use wire::json::decode;

/// The longest text, in characters.
const MOST_CHARS: usize = 4_000;
/// The longest list of messages, and the longest arguments and results of all calls together, in bytes.
const MOST_BYTES: usize = 32 << 10;
/// What is redacted of one request, in bytes: a few milliseconds' work.
const MOST_READ: usize = 256 << 10;

/// Makes the contents of traces. Cheap to clone.
#[derive(Clone)]
pub struct TraceContents(Arc<Rules>);

struct Rules {
    redactor: Redactor,
    key: HashKey,
    /// Bytes in copies of replies that are still coming.
    copied_bytes: Arc<AtomicUsize>,
}

impl TraceContents {
    /// Contents that are redacted as `settings` says. Placeholders depend on `key`. `None`: the settings are wrong, which
    /// a checked configuration is not.
    pub fn new(settings: &Record, key: &HashKey) -> Option<Self> {
        let redactor = Redactor::new(&settings.redact, &settings.patterns).ok()?;
        Some(Self(Arc::new(Rules { redactor, key: key.clone(), copied_bytes: Arc::default() })))
    }

    /// An empty copy of a reply to the request of this `record`; `None` where that has no trace.
    pub fn copy(&self, record: &RequestRecord) -> Option<ReplyCopy> {
        record.is_traced.then(|| ReplyCopy::new(Arc::clone(&self.0.copied_bytes)))
    }

    /// The contents of a request that has ended, whose calls were `judged` so.
    pub fn of(&self, taken: &Taken, judged: &[JudgedCall]) -> Contents {
        let Ok(request) = taken.dialect.read(&taken.body) else { return Contents::default() };
        let whole = taken.reply.as_ref().and_then(ReplyCopy::whole).map(Bytes::copy_from_slice);
        let reply = whole.map_or_else(RecordedReply::default, |whole| taken.dialect.reply_items(&whole));
        let part = Part { taken, request: &request, body: &taken.body };
        let hidden = taken.treatment.hidden.iter();
        let hidden = hidden.filter_map(|(_, exchange)| part.of(&taken.dialect.hidden_items(exchange)));
        let mut said: Vec<Read> = hidden.collect();
        let answer = part.of(&reply.items.join(&b","[..]));
        let mut text = Texts { rules: &self.0, left: MOST_READ };
        let output = answer.as_ref().and_then(|answer| text.answer(answer, reply.finish.as_deref()));
        said.extend(answer);
        let results = text.new_results(&request, &taken.body);
        let calls = text.calls(&said, judged);
        let instructions: Vec<_> =
            request.instructions.iter().map(|place| decode(*place, &taken.body)).collect();
        let instructions = (!instructions.is_empty()).then(|| text.instructions(&instructions.join("\n\n")));
        let (input, input_left_out) = text.newest(&request, &taken.body);
        Contents { instructions, input, input_left_out, output, calls, results }
    }
}

/// Messages with the bytes that they are in.
struct Read {
    request: Request,
    body: Bytes,
}

/// Where items are read: in place of the messages of a request.
struct Part<'a> {
    taken: &'a Taken,
    request: &'a Request,
    body: &'a Bytes,
}

impl Part<'_> {
    /// Reads `items` of a history, separated by commas; `None` where there are none, or they cannot be read.
    fn of(&self, items: &[u8]) -> Option<Read> {
        let all = self.request.messages_span;
        let list = self.request.members.iter().find(|member| member.value == all)?;
        let name = list.key.quoted().of(self.body);
        let body: Bytes = [b"{", name, b":[", items, b"]}"].concat().into();
        let request = self.taken.dialect.read(&body).ok()?;
        (!request.messages.is_empty()).then_some(Read { request, body })
    }
}

#[derive(Serialize)]
struct Spoken<'a> {
    role: &'static str,
    parts: Vec<Piece>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a str>,
}

/// A part of a message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    Text {
        content: String,
    },
    ToolCall {
        id: Option<String>,
        name: String,
        arguments: Box<RawValue>,
    },
    ToolCallResponse {
        id: Option<String>,
        response: String,
    },
    /// An image, a file or something else without text.
    Other,
}

/// Redacts and shortens the texts of one request.
struct Texts<'a> {
    rules: &'a Rules,
    /// Bytes that may still be redacted.
    left: usize,
}

impl Texts<'_> {
    fn text(&mut self, text: &str) -> String {
        if text.len() > self.left {
            return format!("[{} bytes left out]", text.len());
        }
        self.left -= text.len();
        let redacted = self.rules.redactor.redact(text, &self.rules.key);
        shortened(redacted.as_deref().unwrap_or(text))
    }

    /// The messages of the reply that the client got; the last one says why it ended.
    fn answer(&mut self, read: &Read, finish: Option<&str>) -> Option<String> {
        let has_calls = read.request.messages.iter().any(|message| !message.calls.is_empty());
        let finish = finish.unwrap_or(if has_calls { "tool_call" } else { "stop" });
        let messages = &read.request.messages;
        let last = messages.len() - 1;
        let spoken = messages.iter().enumerate();
        let spoken = spoken.map(|(at, message)| {
            let finish_reason = (at == last).then_some(finish);
            Spoken { finish_reason, ..self.spoken(message, &read.body) }
        });
        let spoken: Vec<Spoken<'_>> = spoken.collect();
        // Half of a list is no JSON.
        serde_json::to_string(&spoken).ok().filter(|list| list.len() <= MOST_BYTES)
    }

    fn instructions(&mut self, text: &str) -> String {
        let piece = Piece::Text { content: self.text(text) };
        serde_json::to_string(&[piece]).unwrap_or_default()
    }

    /// The newest messages of the request, as many as fit, and how many do not.
    fn newest(&mut self, request: &Request, body: &[u8]) -> (Option<String>, u64) {
        let (mut kept, mut bytes) = (Vec::new(), 2);
        for message in request.messages.iter().rev() {
            let spoken = serde_json::to_string(&self.spoken(message, body)).unwrap_or_default();
            bytes += spoken.len() + 1;
            if bytes > MOST_BYTES {
                break;
            }
            kept.push(spoken);
        }
        let left_out = (request.messages.len() - kept.len()) as u64;
        kept.reverse();
        ((!request.messages.is_empty()).then(|| format!("[{}]", kept.join(","))), left_out)
    }

    fn spoken<'a>(&mut self, message: &Message, body: &[u8]) -> Spoken<'a> {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Other => "other",
        };
        let mut parts = if message.role == Role::Tool {
            let id = message.tool_call_id.map(|id| decode(id, body).into_owned());
            vec![Piece::ToolCallResponse { id, response: self.text(&text_of(message, body)) }]
        } else {
            self.pieces(message, body)
        };
        parts.extend(message.calls.iter().map(|call| self.call(call, body)));
        Spoken { role, parts, finish_reason: None }
    }

    fn pieces(&mut self, message: &Message, body: &[u8]) -> Vec<Piece> {
        let mut piece = |text| match text {
            Some(place) => Piece::Text { content: self.text(&decode(place, body)) },
            None => Piece::Other,
        };
        match &message.content {
            Content::Text(text) => vec![piece(Some(*text))],
            Content::Parts { parts, .. } => parts.iter().map(|part| piece(part.text)).collect(),
            Content::Other(_) => vec![Piece::Other],
            Content::Absent | Content::Null(_) => Vec::new(),
        }
    }

    fn call(&mut self, call: &ToolCall, body: &[u8]) -> Piece {
        let arguments = self.text(&call.arguments.text(body));
        let quoted = || serde_json::value::to_raw_value(&arguments).unwrap_or_default();
        let arguments = RawValue::from_string(arguments.clone()).unwrap_or_else(|_| quoted());
        Piece::ToolCall { id: id_of(call, body), name: name_of(call, body), arguments }
    }

    /// The results after the last reply.
    fn new_results(&mut self, request: &Request, body: &[u8]) -> Vec<ResultContents> {
        let last = request.messages.iter().rposition(|message| message.role == Role::Assistant);
        let Some(last) = last else { return Vec::new() };
        let calls = &request.messages[last].calls;
        let results = request.messages[last + 1..].iter().filter(|message| message.role == Role::Tool);
        let mut bytes = 0;
        let results = results.map(|message| {
            let id = message.tool_call_id.map(|id| decode(id, body).into_owned()).unwrap_or_default();
            let call = calls.iter().find(|call| id_of(call, body).is_some_and(|other| other == id));
            let name = message.name.map(|name| decode(name, body).into_owned());
            let tool = call.map(|call| name_of(call, body)).or(name).unwrap_or_default();
            ResultContents { tool, id, text: self.text(&text_of(message, body)) }
        });
        let fits = |result: &ResultContents| {
            bytes += result.text.len();
            bytes <= MOST_BYTES
        };
        results.take_while(fits).collect()
    }

    /// What the `judged` calls say, found in what was `said` by their ids and tools.
    fn calls(&mut self, said: &[Read], judged: &[JudgedCall]) -> Vec<CallContents> {
        let mut found: Vec<(&Read, &ToolCall)> = Vec::new();
        for read in said {
            found.extend(
                read.request.messages.iter().flat_map(|message| &message.calls).map(|call| (read, call)),
            );
        }
        let mut bytes = 0;
        let contents = judged.iter().map(|judged| {
            let is_it = |(read, call): &(&Read, &ToolCall)| {
                let is_named = || !judged.id.is_empty() || name_of(call, &read.body) == judged.tool;
                id_of(call, &read.body).unwrap_or_default() == judged.id && is_named()
            };
            let Some(at) = found.iter().position(is_it) else { return CallContents::default() };
            let (read, call) = found.remove(at);
            let made = CallContents {
                arguments: Some(self.text(&call.arguments.text(&read.body))),
                result: read.result(&judged.id).map(|message| self.text(&text_of(message, &read.body))),
            };
            let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            bytes += of(&made.arguments) + of(&made.result);
            if bytes > MOST_BYTES { CallContents::default() } else { made }
        });
        contents.collect()
    }
}

impl Read {
    /// The message that answers the call of this id.
    fn result(&self, id: &str) -> Option<&Message> {
        let answers = |message: &&Message| {
            message.role == Role::Tool && message.tool_call_id.is_some_and(|of| decode(of, &self.body) == id)
        };
        self.request.messages.iter().find(answers)
    }
}

fn id_of(call: &ToolCall, body: &[u8]) -> Option<String> {
    call.id.map(|id| decode(id, body).into_owned())
}

fn name_of(call: &ToolCall, body: &[u8]) -> String {
    call.full_name(body).unwrap_or_default().into_owned()
}

fn text_of(message: &Message, body: &[u8]) -> String {
    let texts: Vec<_> = message.content.texts().map(|place| decode(place, body)).collect();
    texts.join("\n")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}… [{} bytes left out]", &text[..end], text.len() - end),
        None => text.to_owned(),
    }
}
