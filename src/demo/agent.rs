//! The demonstration's agent: it asks a model, runs the tools that the model calls, and asks again, as every
//! simple agent does. Its only protection is a maximum number of model calls.

use super::world;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::http::{Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The model calls after which the agent gives up: between pydantic-ai's 50 and the Agents SDK's 10.
const PATIENCE: u64 = 25;
/// How long one model call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest reply that the agent reads, in bytes.
const MAX_REPLY: usize = 4 * 1024 * 1024;

/// An agent that talks to one address.
pub(super) struct Agent {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journey {
    /// Tool calls that the agent ran.
    pub tool_calls: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With an answer.
    Answered,
    /// With an answer that says nothing.
    Empty,
    /// By reaching the limit of model calls.
    GaveUp(u64),
    /// With an error response.
    Refused(StatusCode),
    /// With no response that can be read.
    Failed(&'static str),
}

impl Agent {
    /// An agent that sends its requests to `address`.
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), address }
    }

    /// Lets `model` work on `question` until it answers, fails, or reaches the limit of model calls.
    pub(super) async fn work(&self, model: &str, question: &str) -> Journey {
        let mut messages = vec![json!({"role": "user", "content": question})];
        let mut tool_calls = 0;
        for _ in 0..PATIENCE {
            let message = match self.ask(model, &messages).await {
                Ok(message) => message,
                Err(outcome) => return Journey { tool_calls, outcome },
            };
            let results: Vec<Value> =
                message["tool_calls"].as_array().into_iter().flatten().map(run_tool).collect();
            if results.is_empty() {
                let spoke = message["content"].as_str().is_some_and(|text| !text.trim().is_empty());
                return Journey {
                    tool_calls,
                    outcome: if spoke { Outcome::Answered } else { Outcome::Empty },
                };
            }
            tool_calls += results.len() as u64;
            messages.push(message);
            messages.extend(results);
        }
        Journey { tool_calls, outcome: Outcome::GaveUp(PATIENCE) }
    }

    /// One model call: the assistant message of the reply, or how the task ends without it.
    async fn ask(&self, model: &str, messages: &[Value]) -> Result<Value, Outcome> {
        let body = json!({"model": model, "messages": messages, "tools": world::tools()}).to_string();
        let request = Request::post(format!("http://{}/v1/chat/completions", self.address))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, "Bearer toolrein-demo")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| Outcome::Failed("no request"))?;
        let exchange = async {
            let response =
                self.client.request(request).await.map_err(|_| Outcome::Failed("no connection"))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_REPLY).collect().await;
            let body = body.map_err(|_| Outcome::Failed("reply broken off"))?.to_bytes();
            if status.is_success() { Ok(body) } else { Err(Outcome::Refused(status)) }
        };
        let body = tokio::time::timeout(CALL_TIMEOUT, exchange)
            .await
            .map_err(|_| Outcome::Failed("no reply in 60 s"))??;
        let mut reply: Value =
            serde_json::from_slice(&body).map_err(|_| Outcome::Failed("reply not JSON"))?;
        match reply.pointer_mut("/choices/0/message").map(Value::take) {
            Some(message) if message.is_object() => Ok(message),
            _ => Err(Outcome::Failed("reply without choice")),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered => write!(out, "answered"),
            Self::Empty => write!(out, "ended without an answer"),
            Self::GaveUp(calls) => write!(out, "gave up after {calls} calls"),
            Self::Refused(status) => write!(out, "refused (HTTP {})", status.as_u16()),
            Self::Failed(why) => write!(out, "{why}"),
        }
    }
}

/// The tool message that answers `call`.
fn run_tool(call: &Value) -> Value {
    let function = &call["function"];
    let name = function["name"].as_str().unwrap_or_default();
    let result = world::run(name, function["arguments"].as_str().unwrap_or_default());
    json!({"role": "tool", "tool_call_id": call["id"], "content": result})
}
