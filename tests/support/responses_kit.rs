//! What the tests of the governed Responses API share: a client's conversation, sent whole with every request, and the
//! reply as its client has it.

use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::responses::{Output, events, flaws};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

/// The URL of the endpoint.
pub(crate) fn url(toolrein: &Toolrein) -> String {
    format!("{}/v1/responses", toolrein.origin())
}

/// A tool of this name without parameters.
pub(crate) fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object"}, "strict": false})
}

/// A conversation as a stateless client keeps it.
pub(crate) struct Talk {
    pub(crate) body: Value,
}

impl Talk {
    /// A question of a client with one tool, `f`.
    pub(crate) fn new(stream: bool) -> Self {
        let input = json!([{"role": "user", "content": "q"}]);
        Self { body: json!({"model": "gpt-5", "stream": stream, "input": input, "tools": [tool("f")]}) }
    }

    /// With other tools.
    pub(crate) fn with_tools(mut self, tools: Value) -> Self {
        self.body["tools"] = tools;
        self
    }

    /// With another model.
    pub(crate) fn with_model(mut self, model: &str) -> Self {
        self.body["model"] = model.into();
        self
    }

    /// Adds an item.
    pub(crate) fn add(&mut self, item: Value) -> &mut Self {
        self.body["input"].as_array_mut().unwrap().push(item);
        self
    }

    /// Adds a call of `f` and its output.
    pub(crate) fn called(&mut self, id: &str, arguments: &str, output: &Value) -> &mut Self {
        let output =
            json!({"type": "function_call_output", "call_id": format!("call_{id}"), "output": output});
        self.add(Output::calls("x", &[(id, "f", arguments)]).items()[0].clone()).add(output)
    }

    /// The user speaks.
    pub(crate) fn say(&mut self, text: &str) -> &mut Self {
        self.add(json!({"role": "user", "content": text}))
    }

    /// Asks, and checks that the reply is coherent.
    pub(crate) fn ask(&self, toolrein: &Toolrein) -> Answer {
        let answer = Answer::of(Request::post(&url(toolrein), self.body.to_string()).send());
        assert_eq!(answer.response.status, 200, "{}", answer.text());
        if self.body["stream"] == true {
            assert_eq!(flaws(&answer.text()), Vec::<String>::new(), "{}", answer.text());
        }
        answer
    }

    /// Goes on after `answer`: its items, and "r" as the output of each call.
    pub(crate) fn go_on(&mut self, answer: &Answer) -> &mut Self {
        for item in answer.items() {
            self.add(item.clone());
        }
        for call in answer.items().iter().filter(|item| item["type"] == "function_call") {
            self.add(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "r"}));
        }
        self
    }
}

/// A reply as the client has it.
pub(crate) struct Answer {
    pub(crate) response: Response,
    /// The whole response, or that of the last event.
    pub(crate) end: Value,
}

impl Answer {
    fn of(response: Response) -> Self {
        let is_stream = response.header("content-type").is_some_and(|kind| kind.starts_with("text/event"));
        let end = match is_stream {
            true => events(&response.text()).last().map_or(Value::Null, |event| event["response"].clone()),
            false => response.json(),
        };
        Self { response, end }
    }

    /// Everything that the client got.
    pub(crate) fn text(&self) -> String {
        self.response.text()
    }

    /// The items.
    pub(crate) fn items(&self) -> &[Value] {
        self.end["output"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// What the items are: the type of each, and the tool of a call.
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.items().iter().map(name).collect()
    }

    /// The text of the messages.
    pub(crate) fn said(&self) -> String {
        let parts = self.items().iter().filter_map(|item| item["content"].as_array()).flatten();
        parts.filter_map(|part| part["text"].as_str()).collect()
    }
}

/// The name of an item in a test: of a call its id, else its role or type.
pub(crate) fn name(item: &Value) -> String {
    let kind = item["type"].as_str().unwrap_or("message");
    let short = kind.trim_end_matches("_call_output").trim_end_matches("_call");
    match (kind, item["call_id"].as_str().or(item["id"].as_str())) {
        ("message", _) => item["role"].as_str().unwrap_or_default().to_owned(),
        (_, Some(id)) if kind.ends_with("_output") => format!("={}", id.trim_start_matches("call_")),
        (_, Some(id)) => format!("{short}:{}", id.trim_start_matches("call_")),
        _ => short.to_owned(),
    }
}

/// The names of the items of the `nth` request that the upstream got.
pub(crate) fn sent(upstream: &Scripted, nth: usize) -> Vec<String> {
    input(&upstream.request(nth)).iter().map(name).collect()
}

/// The items of a request.
pub(crate) fn input(request: &Recorded) -> Vec<Value> {
    request.json()["input"].as_array().cloned().unwrap_or_default()
}

/// Whether the model may call.
pub(crate) fn may_call(request: &Recorded) -> bool {
    let body = request.json();
    body["tool_choice"] != "none" && !body["tools"].is_null()
}

/// The type of the error in a synthetic output.
pub(crate) fn error_type(output: &Value) -> String {
    let text = output["output"].as_str().unwrap_or_default();
    let envelope: Value = serde_json::from_str(text).unwrap_or_default();
    envelope["error"]["type"].as_str().unwrap_or_default().to_owned()
}
