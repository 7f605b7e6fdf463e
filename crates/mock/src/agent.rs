//! The demonstration's agent: it asks a model, runs the tools that the model calls, and asks again, as every
//! simple agent does. Its only protection is a maximum number of model calls. `endpoint` reads and writes the wire.

use super::endpoint::{Answer, Endpoint};
use super::world;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::http::{HeaderMap, Request, StatusCode, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use wire::plural::counted;

/// The model calls after which the agent gives up: between pydantic-ai's 50 and the Agents SDK's 10.
const PATIENCE: u64 = 25;
/// The reply's header in which the proxy says what its policies did.
const ACTIONS: &str = "x-toolrein-actions";
/// How long one model call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest reply that the agent reads, in bytes.
const MAX_REPLY: usize = 4 * 1024 * 1024;

/// An agent that talks to one endpoint of one address.
pub(super) struct Agent {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    endpoint: Endpoint,
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journey {
    /// Tool calls that the agent ran.
    pub tool_calls: u64,
    /// What the proxy's headers say that policies did, each once, such as `loops=blocked`.
    pub actions: BTreeSet<String>,
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
    /// An agent that sends its requests to `endpoint` at `address`.
    pub(super) fn new(address: SocketAddr, endpoint: Endpoint) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), address, endpoint }
    }

    /// Lets `model` work on `question` until it answers, fails, or reaches the limit of model calls.
    pub(super) async fn work(&self, model: &str, question: &str) -> Journey {
        let mut history = vec![Endpoint::question(question)];
        let (mut tool_calls, mut actions) = (0, BTreeSet::new());
        for _ in 0..PATIENCE {
            let answer = match self.ask(model, &history, &mut actions).await {
                Ok(answer) => answer,
                Err(outcome) => return Journey { tool_calls, actions, outcome },
            };
            if answer.calls.is_empty() {
                let outcome = if answer.speaks { Outcome::Answered } else { Outcome::Empty };
                return Journey { tool_calls, actions, outcome };
            }
            tool_calls += answer.calls.len() as u64;
            history.extend(answer.items);
            let run = answer.calls.iter().map(|call| (&*call.id, world::run(&call.name, &call.arguments)));
            history.extend(self.endpoint.results(run.collect()));
        }
        Journey { tool_calls, actions, outcome: Outcome::GaveUp(PATIENCE) }
    }

    /// One model call: the answer, or how the task ends without it. Adds what the reply's header says to `actions`.
    async fn ask(
        &self,
        model: &str,
        history: &[Value],
        actions: &mut BTreeSet<String>,
    ) -> Result<Answer, Outcome> {
        let body = self.endpoint.body(model, history).to_string();
        let mut request = Request::post(format!("http://{}{}", self.address, self.endpoint.path()))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, "Bearer toolrein-demo");
        if let Some(version) = self.endpoint.version() {
            request = request.header("anthropic-version", version);
        }
        let request =
            request.body(Full::new(Bytes::from(body))).map_err(|_| Outcome::Failed("no request"))?;
        let exchange = async {
            let response =
                self.client.request(request).await.map_err(|_| Outcome::Failed("no connection"))?;
            let status = response.status();
            actions.extend(acted(response.headers()));
            let body = Limited::new(response.into_body(), MAX_REPLY).collect().await;
            let body = body.map_err(|_| Outcome::Failed("reply broken off"))?.to_bytes();
            if status.is_success() { Ok(body) } else { Err(Outcome::Refused(status)) }
        };
        let body = tokio::time::timeout(CALL_TIMEOUT, exchange)
            .await
            .map_err(|_| Outcome::Failed("no reply in 60 s"))??;
        self.endpoint.read(&body).map_err(Outcome::Failed)
    }
}

/// The policies' actions that a reply's headers name, without their numbers; the estimate of saved tokens is none.
fn acted(headers: &HeaderMap) -> Vec<String> {
    let list = headers.get(ACTIONS).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let actions = list.split(", ").filter_map(|action| action.split_once('='));
    let policies = actions.filter(|(name, _)| *name != "tokens_saved");
    let is_number = |what: &str| what.bytes().all(|byte| byte.is_ascii_digit());
    let named =
        |(name, what): (&str, &str)| if is_number(what) { name.to_owned() } else { format!("{name}={what}") };
    policies.map(named).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered => write!(out, "answered"),
            Self::Empty => write!(out, "ended without an answer"),
            Self::GaveUp(calls) => write!(out, "gave up after {}", counted(*calls, "call")),
            Self::Refused(status) => write!(out, "refused (HTTP {})", status.as_u16()),
            Self::Failed(why) => write!(out, "{why}"),
        }
    }
}
