//! The Responses API over real sockets, and what its tests share: requests, conversations and a validator of streams.

mod agent;
mod models;
mod recorded;
mod refusals;
mod refused_items;
mod replies;
mod state;
mod streams;
mod validator;

use super::*;

const PATH: &str = "/v1/responses";

impl Served {
    /// A whole response.
    async fn create(&self, body: Value) -> Value {
        let (status, kind, text) = self.send(Method::POST, PATH, body.to_string()).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "application/json"), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The text of a streamed response.
    async fn create_streamed(&self, mut body: Value) -> String {
        body["stream"] = json!(true);
        let (status, kind, text) = self.send(Method::POST, PATH, body.to_string()).await;
        assert_eq!((status, kind.as_str()), (StatusCode::OK, "text/event-stream; charset=utf-8"), "{text}");
        text
    }

    /// A refusal: its status and its error object.
    async fn create_refused(&self, body: Value) -> (u16, Value) {
        let (status, kind, text) = self.send(Method::POST, PATH, body.to_string()).await;
        assert_eq!(kind, "application/json");
        let mut body: Value = serde_json::from_str(&text).unwrap();
        (status.as_u16(), body["error"].take())
    }

    /// What another endpoint answers.
    async fn stored(&self, method: Method, path: &str) -> (u16, Value) {
        let (status, _, text) = self.send(method, &format!("{PATH}/{path}"), String::new()).await;
        (status.as_u16(), serde_json::from_str(&text).unwrap())
    }
}

fn input(model: &str, items: &[Value]) -> Value {
    json!({"model": model, "input": items})
}

fn with_functions(model: &str, items: &[Value], names: &[&str]) -> Value {
    let mut body = input(model, items);
    body["tools"] = names.iter().map(|name| function(name)).collect();
    body
}

fn function(name: &str) -> Value {
    let parameter = if name == "urlReader" { "url" } else { "query" };
    json!({"type": "function", "name": name, "strict": false, "parameters":
        {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}})
}

fn output(call: &Value, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call["call_id"], "output": text})
}

/// The response's calls.
fn calls_of(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().unwrap().iter();
    items.filter(|item| item["type"] == "function_call").cloned().collect()
}

/// The names of the response's calls.
fn names_of(response: &Value) -> Vec<String> {
    calls_of(response).iter().map(|call| call["name"].as_str().unwrap().to_owned()).collect()
}

/// An output for each call of the response.
fn outputs(response: &Value, text: &str) -> Vec<Value> {
    calls_of(response).iter().map(|call| output(call, text)).collect()
}

/// The items of the response and an output for each of its calls.
fn continued(response: &Value, text: &str) -> Vec<Value> {
    let items = response["output"].as_array().unwrap().clone();
    items.into_iter().chain(outputs(response, text)).collect()
}

fn text(response: &Value) -> &str {
    let message = &response["output"][0];
    message["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {response}"))
}

/// Sends each body and compares the refusal: (body, message, param, code), "" for null.
async fn refuses(cases: impl IntoIterator<Item = (Value, &str, &str, &str)>) {
    let served = Served::start().await;
    let or_null = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    for (body, message, param, code) in cases {
        let expected = json!({"message": message, "type": "invalid_request_error", "param": or_null(param),
            "code": or_null(code)});
        assert_eq!(served.create_refused(body.clone()).await, (400, expected), "{body}");
    }
}

fn with(key: &str, value: Value) -> Value {
    let mut body = with_functions("demo-chat", &[user("q")], &["f"]);
    body[key] = value;
    body
}

/// A conversation whose second item is `item`.
fn said(item: Value) -> Value {
    input("demo-chat", &[user("q"), item])
}
