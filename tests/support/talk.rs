//! A client that keeps a conversation: sends it whole with each request, reads the reply in either form, and
//! puts it back into the history the way the SDKs do.

use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Recorded;
use serde_json::{Value, json};

/// Whether replies are asked for as streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Whole,
    Streamed,
}

/// Runs a case in both forms.
pub fn in_both_forms(case: impl Fn(Form)) {
    case(Form::Whole);
    case(Form::Streamed);
}

/// One conversation.
pub struct Talk {
    pub form: Form,
    /// Members of the request beside messages and stream.
    pub members: Value,
    pub messages: Vec<Value>,
}

/// What the client made of a reply.
#[derive(Debug)]
pub struct Said {
    pub response: Response,
    pub text: String,
    /// Id, name and arguments of each call.
    pub calls: Vec<(String, String, String)>,
    pub finishes: Vec<String>,
    pub usage: Value,
}

impl Talk {
    /// A conversation with a tool `search` that opens with a question.
    pub fn new(form: Form) -> Self {
        let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
        Self {
            form,
            members: json!({"model": "gpt-4o", "tools": [tool("search"), tool("fetch")]}),
            messages: vec![json!({"role": "user", "content": "What is new?"})],
        }
    }

    /// The request's body as it would be sent now.
    pub fn body(&self) -> Value {
        let mut body = self.members.clone();
        body["messages"] = json!(self.messages);
        if self.form == Form::Streamed {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    /// Sends the conversation; the reply is not added to it.
    pub fn ask(&self, program: &Toolrein) -> Said {
        let request = Request::post(&program.chat_url(), self.body().to_string());
        Said::read(request.send(), self.form)
    }

    /// Adds a reply to the history, and a result for each of its calls.
    pub fn add(&mut self, said: &Said) {
        let calls: Vec<Value> = said
            .calls
            .iter()
            .map(|(id, name, arguments)| {
                // Respelled, as several clients do.
                let arguments: Value = serde_json::from_str(arguments).unwrap();
                let spaced = arguments.to_string().replace(':', ": ");
                json!({"type": "function", "id": id, "function": {"arguments": spaced, "name": name}})
            })
            .collect();
        let text = (!said.text.is_empty() || calls.is_empty()).then_some(&said.text);
        let mut message = json!({"role": "assistant", "content": text});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        self.messages.push(message);
        for (id, name, _) in &said.calls {
            self.messages
                .push(json!({"role": "tool", "tool_call_id": id, "content": format!("{name} says so")}));
        }
    }

    /// The user says something more.
    pub fn say(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
    }
}

impl Said {
    /// Reads a reply in the form that was asked for.
    pub fn read(response: Response, form: Form) -> Self {
        match form {
            Form::Whole => Self::whole(response),
            Form::Streamed => Self::streamed(response),
        }
    }

    fn whole(response: Response) -> Self {
        let body = response.json();
        let message = &body["choices"][0]["message"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let function = |call: &Value| {
            (text(&call["id"]), text(&call["function"]["name"]), text(&call["function"]["arguments"]))
        };
        Self {
            text: text(&message["content"]),
            calls: calls.iter().map(function).collect(),
            finishes: body["choices"][0]["finish_reason"].as_str().map(str::to_owned).into_iter().collect(),
            usage: body["usage"].clone(),
            response,
        }
    }

    fn streamed(response: Response) -> Self {
        let chunks = response.chunks();
        let mut said = Self {
            text: response.streamed_text(),
            calls: vec![],
            finishes: vec![],
            usage: Value::Null,
            response,
        };
        for chunk in &chunks {
            said.finishes.extend(chunk["choices"][0]["finish_reason"].as_str().map(str::to_owned));
            for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().unwrap_or(&vec![]) {
                let at = call["index"].as_u64().unwrap() as usize;
                assert!(at <= said.calls.len(), "calls are numbered densely");
                said.calls.resize(said.calls.len().max(at + 1), Default::default());
                said.calls[at].0 += call["id"].as_str().unwrap_or_default();
                said.calls[at].1 += call["function"]["name"].as_str().unwrap_or_default();
                said.calls[at].2 += call["function"]["arguments"].as_str().unwrap_or_default();
            }
            if chunk["usage"].is_object() {
                assert!(said.usage.is_null(), "usage is reported once");
                said.usage = chunk["usage"].clone();
            }
        }
        said
    }

    /// Asserts that the stream, if it is one, is one: one id, one role, one end.
    pub fn assert_coherent(&self, form: Form) {
        assert_eq!(self.response.status, 200, "{}", self.response.text());
        assert_eq!(self.finishes.len(), 1, "{}", self.response.text());
        assert!(!self.response.cut);
        if form == Form::Streamed {
            let chunks = self.response.chunks();
            let roles =
                chunks.iter().filter(|chunk| chunk["choices"][0]["delta"]["role"].is_string()).count();
            assert_eq!(roles, 1, "{}", self.response.text());
            assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]), "one id");
            assert_eq!(self.response.data().iter().filter(|data| *data == "[DONE]").count(), 1);
        }
    }
}

/// The model calls `search` once more.
pub fn search(nth: usize, request: &Recorded) -> Reply {
    let (id, arguments) = (format!("call_{nth}"), format!("{{\"q\":{nth}}}"));
    Reply::speech(request, &Speech::calls(&[(&id, "search", &arguments)]))
}

/// The model says `text`.
pub fn text(text: &str, request: &Recorded) -> Reply {
    Reply::speech(request, &Speech::text(text))
}
