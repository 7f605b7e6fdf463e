//! Scripted answers of an upstream: whole bodies, streams with chosen pieces and gates, errors, cuts and silence, and a
//! model's messages in OpenAI's shape. It sends nothing itself.

use super::scripted::Recorded;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A gate in an answer: everything after it is held back until the test opens it.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// A shut gate.
    pub fn shut() -> Self {
        Self::default()
    }

    /// Lets everything after it through, now and later.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// One step of sending a body.
#[derive(Clone, Debug)]
pub enum Piece {
    /// These bytes, in one write and, in a stream, one chunk.
    Data(Vec<u8>),
    /// Nothing until the gate opens or the client hangs up.
    Wait(Gate),
    /// The connection ends here, whatever the head declared.
    Cut,
    /// Echoes what the client sends, until it closes: after an upgrade.
    Echo,
}

/// An answer of the upstream.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Headers beside the framing's.
    pub headers: Vec<(String, String)>,
    /// Whether the body is chunked rather than of known length.
    pub streamed: bool,
    /// Held before the head.
    pub before: Option<Gate>,
    /// The body.
    pub pieces: Vec<Piece>,
}

impl Reply {
    /// A body of known length.
    pub fn bytes(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".into(), content_type.into())];
        Self { status, headers, streamed: false, before: None, pieces: vec![Piece::Data(body.into())] }
    }

    /// A JSON body.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, "application/json", body.to_string())
    }

    /// A refusal in OpenAI's shape.
    pub fn error(status: u16, kind: &str, code: &str, message: &str) -> Self {
        Self::json(status, &json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))
    }

    /// A stream of exactly these pieces of text.
    pub fn stream<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces = pieces.into_iter().map(|text| Piece::Data(text.as_ref().to_vec())).collect();
        Self { streamed: true, pieces, ..Self::bytes(200, "text/event-stream", "") }
    }

    /// A stream of server-sent events, one piece each, `[DONE]` at its end.
    pub fn events(chunks: &[Value]) -> Self {
        let data = chunks.iter().map(Value::to_string).chain(["[DONE]".into()]);
        Self::stream(data.map(|data| format!("data: {data}\n\n")))
    }

    /// The model says `speech`, streamed if the request asks for that.
    pub fn speech(request: &Recorded, speech: &Speech) -> Self {
        let body = request.json();
        if body["stream"] != true {
            return Self::json(200, &speech.whole());
        }
        Self::events(&speech.chunks(body["stream_options"]["include_usage"] == true))
    }

    /// A whole reply of several choices with one call each: its id and its name.
    pub fn choices(calls: &[(&str, &str)]) -> Self {
        let said = calls.iter().map(|(id, name)| Speech::calls(&[(id, name, "{}")]).whole());
        let choices = said.enumerate().map(|(index, mut body)| {
            body["choices"][0]["index"] = json!(index);
            body["choices"][0].take()
        });
        Self::json(200, &frame("chat.completion", &choices.collect()))
    }

    /// The model says this text, whole.
    pub fn text(text: &str) -> Self {
        Self::json(200, &Speech::text(text).whole())
    }

    /// No answer at all, until the client hangs up or the test ends.
    pub fn silence() -> Self {
        Self::text("").held(&Gate::shut())
    }

    /// Switches protocols and sends back whatever comes.
    pub fn upgrade(protocol: &str) -> Self {
        let headers = vec![("connection".into(), "upgrade".into()), ("upgrade".into(), protocol.into())];
        Self { status: 101, headers, streamed: false, before: None, pieces: vec![Piece::Echo] }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Holds even the head until `gate` opens.
    #[must_use]
    pub fn held(mut self, gate: &Gate) -> Self {
        self.before = Some(gate.clone());
        self
    }

    /// Holds everything after the first `pieces` pieces until `gate` opens.
    #[must_use]
    pub fn held_after(mut self, pieces: usize, gate: &Gate) -> Self {
        self.pieces.insert(pieces, Piece::Wait(gate.clone()));
        self
    }

    /// Cuts the connection after the first `pieces` pieces.
    #[must_use]
    pub fn cut_after(mut self, pieces: usize) -> Self {
        self.pieces.insert(pieces, Piece::Cut);
        self
    }

    /// The same bytes in pieces of `size` bytes, whatever they cut through. Before gates are set.
    #[must_use]
    pub fn in_pieces_of(mut self, size: usize) -> Self {
        let all: Vec<u8> = self.pieces.iter().filter_map(Piece::data).flatten().copied().collect();
        self.pieces = all.chunks(size).map(|part| Piece::Data(part.to_vec())).collect();
        self
    }
}

impl Piece {
    /// The bytes it sends, if it sends any.
    pub fn data(&self) -> Option<&[u8]> {
        if let Self::Data(bytes) = self { Some(bytes) } else { None }
    }
}

/// What a model says in one reply: text, calls, or both.
#[derive(Clone, Debug, Default)]
pub struct Speech {
    /// The text, empty for none.
    pub text: String,
    /// The calls: id, name, arguments.
    pub calls: Vec<(String, String, String)>,
}

impl Speech {
    /// Text alone.
    pub fn text(text: &str) -> Self {
        Self { text: text.into(), calls: Vec::new() }
    }

    /// Calls alone: (id, name, arguments) each.
    pub fn calls(calls: &[(&str, &str, &str)]) -> Self {
        let owned = |&(id, name, arguments): &(&str, &str, &str)| (id.into(), name.into(), arguments.into());
        Self { text: String::new(), calls: calls.iter().map(owned).collect() }
    }

    /// A whole chat completion with this content.
    pub fn whole(&self) -> Value {
        let calls: Vec<Value> = self.calls.iter().map(|call| call_json(call, None)).collect();
        let content = if self.text.is_empty() && !calls.is_empty() { Value::Null } else { json!(self.text) };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let choice =
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish()});
        let mut body = frame("chat.completion", &json!([choice]));
        body["usage"] = usage();
        body
    }

    /// The chunks of a stream with this content: the role, the text by words, each call's head and then its arguments
    /// in two parts, the finish, and the usage if asked for.
    pub fn chunks(&self, with_usage: bool) -> Vec<Value> {
        let mut deltas = vec![json!({"role": "assistant", "content": "", "refusal": null})];
        deltas.extend(self.text.split_inclusive(' ').map(|word| json!({"content": word})));
        for (index, call) in self.calls.iter().enumerate() {
            let (id, name, arguments) = call;
            let head = (id.clone(), name.clone(), String::new());
            deltas.push(json!({"tool_calls": [call_json(&head, Some(index))]}));
            let middle =
                (0..=arguments.len() / 2).rev().find(|at| arguments.is_char_boundary(*at)).unwrap_or(0);
            for part in [&arguments[..middle], &arguments[middle..]] {
                deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": part}}]}));
            }
        }
        let mut chunks: Vec<Value> = deltas.iter().map(|delta| chunk(delta, None)).collect();
        chunks.push(chunk(&json!({}), Some(self.finish())));
        if with_usage {
            chunks.iter_mut().for_each(|chunk| chunk["usage"] = Value::Null);
            let mut last = frame("chat.completion.chunk", &json!([]));
            last["usage"] = usage();
            chunks.push(last);
        }
        chunks
    }

    fn finish(&self) -> &'static str {
        if self.calls.is_empty() { "stop" } else { "tool_calls" }
    }
}

fn call_json((id, name, arguments): &(String, String, String), index: Option<usize>) -> Value {
    let mut call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    call
}

fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
    frame("chat.completion.chunk", &json!([choice]))
}

fn frame(object: &str, choices: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": object, "created": 1_790_000_000, "model": "gpt-scripted", "choices": choices})
}

fn usage() -> Value {
    json!({"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25})
}
