//! Validation of a call: what the proxy would decide on a call that the model makes next in a conversation. The same
//! exchange decides as in the proxy; nothing is sent and nothing is stored. The caller's windows and quotas, which the
//! conversation does not show, count as unused.

use super::Admin;
use super::answer::Answer;
use super::code::Code;
use super::pages::body_of;
use crate::config::Config;
use crate::conversation::identity::{Hash, Identity};
use crate::conversation::memo::NoMemo;
use crate::exchange::offline::{NoSummaries, NothingKnown, Pending, advance};
use crate::exchange::{Answer as Reply, Arrived, CHAT, Exchange, Input, Now, RESPONSES, Shared, WholeReply};
use crate::secret::random_key;
use crate::telemetry::request_record::{LimitUse, RequestRecord, Route, Verdict};
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The longest body, in bytes.
const BODY_BYTES: usize = 4 << 20;

/// The body of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ValidateRequest<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    endpoint: Option<Endpoint>,
    call: Proposed,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Endpoint {
    #[serde(rename = "chat.completions")]
    Chat,
    #[serde(rename = "responses")]
    Responses,
}

/// The call to judge.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proposed {
    name: String,
    /// JSON in a string, as models write it, or the object itself.
    arguments: Value,
}

/// The page.
pub(super) async fn validate(State(admin): State<Arc<Admin>>, body: Body) -> Answer {
    let body = match body_of(body, BODY_BYTES, admin.body_timeout).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let Ok(_permit) = admin.reviews.acquire().await else { return internal() };
    let judged = tokio::task::spawn_blocking({
        let admin = Arc::clone(&admin);
        move || admin.validated(&body)
    });
    judged.await.unwrap_or_else(|_| internal())
}

fn internal() -> Answer {
    let message = "The call cannot be judged: an error of toolrein's own.";
    Answer::error(Code::Internal, message)
}

impl Admin {
    fn validated(&self, body: &[u8]) -> Answer {
        let asked: ValidateRequest<'_> = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => {
                let message = format!(
                    "The body must be {{\"request\": {{...}}, \"endpoint\": \"chat.completions\" or \"responses\", \
                     \"call\": {{\"name\": ..., \"arguments\": ...}}}}: {error}."
                );
                return Answer::error(Code::BadRequest, &message);
            }
        };
        let request = Bytes::copy_from_slice(asked.request.get().as_bytes());
        let endpoint = asked.endpoint.unwrap_or(Endpoint::Chat);
        match judged(&self.settings, endpoint, request, &asked.call) {
            Ok(judged) => Answer::json(&judged),
            Err(why) => Answer::error(Code::RequestUnreadable, &why),
        }
    }
}

/// The decision on `call` as the reply to the request in `body`.
fn judged(config: &Arc<Config>, endpoint: Endpoint, body: Bytes, call: &Proposed) -> Result<Value, String> {
    let (dialect, route, path) = match endpoint {
        Endpoint::Chat => (CHAT, Route::Chat, "/v1/chat/completions"),
        Endpoint::Responses => (RESPONSES, Route::Responses, "/v1/responses"),
    };
    let request = dialect.read(&body).map_err(|fault| format!("The request cannot be read: {fault}."))?;
    let model = request.model_name(&body).into_owned();
    let profile = config.profiles.of_model(&model).map(|profile| Arc::clone(&profile.name));
    let key = random_key();
    let shared = Shared {
        config: Arc::clone(config),
        memo: Arc::new(NoMemo),
        key: key.clone(),
        secret: random_key(),
        upstream: String::new(),
        summaries: Arc::new(NoSummaries),
    };
    let identity = Identity { key, caller: Hash::default(), explicit: None };
    let arrived = Arrived { dialect, body, request, identity, profile, tier: None, path: path.to_owned() };
    let now = Now { at: Instant::now(), ms: super::stops::now_ms() };
    let record = Box::new(RequestRecord::new(route));
    let mut exchange = Exchange::begin(Arc::new(shared), arrived, record, now);
    let arguments = match &call.arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let end = drive(&mut exchange, dialect.reply_with_call(&call.name, &arguments), now);
    exchange.close(now);
    Ok(shown(exchange.record(), &end, call))
}

/// How the exchange ended.
#[derive(Default)]
struct End {
    /// The call waits for a person.
    asks: bool,
    /// The call waits for so many ms.
    waits_ms: Option<u64>,
    /// Another model would decide.
    asks_model: bool,
    /// The request, or the reply, was refused for this.
    refused: Option<String>,
}

/// Drives the exchange with `reply` as the upstream's, up to the decision on its call.
fn drive(exchange: &mut Exchange, reply: Bytes, now: Now) -> End {
    let (mut end, mut reply) = (End::default(), Some(reply));
    while let Some(pending) = advance(exchange, &mut NothingKnown, now) {
        match pending {
            Pending::Send(_) => match reply.take() {
                Some(body) => {
                    exchange.on(Input::Reply(WholeReply { id: 0, status: 200, body: Ok(body) }), now);
                }
                // The model would be asked again.
                None => break,
            },
            Pending::Approval(_) => end.asks = true,
            Pending::Model(_) => end.asks_model = true,
            Pending::Wait { ms, .. } => end.waits_ms = Some(ms),
            Pending::Answer(Reply::Error(error)) => end.refused = Some(error.to_string()),
            Pending::Answer(_) => {}
        }
    }
    end
}

fn shown(record: &RequestRecord, end: &End, call: &Proposed) -> Value {
    let judged = record.judged.iter().rfind(|judged| judged.tool == call.name).or(record.judged.last());
    let first = judged.and_then(|judged| judged.said.first());
    let message = judged.and_then(|judged| judged.message.clone());
    let (verdict, reason) = match (judged, end) {
        (_, End { refused: Some(why), .. }) => (Verdict::Block, Some(why.clone())),
        (_, End { asks: true, .. }) => (Verdict::Ask, Some("A person is asked.".to_owned())),
        (_, End { waits_ms: Some(ms), .. }) => (Verdict::Ask, Some(format!("It waits for {ms} ms."))),
        (Some(judged), _) => (judged.verdict, message.or(first.map(|said| said.reason.to_owned()))),
        (None, End { asks_model: true, .. }) => (Verdict::Ask, Some("Another model is asked.".to_owned())),
        (None, _) => (Verdict::Allow, None),
    };
    let usage = record.usage_of_limits.iter();
    let usage = usage.map(|LimitUse { policy, tool, used, limit, .. }| {
        json!({"policy": policy, "tool": tool, "used": used, "limit": limit})
    });
    json!({
        "verdict": verdict.as_str(),
        "policy": first.map(|said| said.policy),
        "reason": reason,
        "usage": usage.collect::<Vec<_>>(),
    })
}
