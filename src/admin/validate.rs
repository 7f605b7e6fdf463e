//! Validation of a call: what the proxy would decide on a call that the model makes next in a conversation. The same
//! exchange decides as in the proxy; nothing is sent and nothing is stored. What the request does not show (windows,
//! quotas, sums, stops) is what the state store knows of the session that is named, and counts as unused where none is.

use super::Admin;
use super::answer::Answer;
use super::code::Code;
use super::pages::body_of;
use crate::proxy::session::{Session, SessionNames};
use crate::secret::random_key;
use crate::store::reader::StoreReader;
use crate::telemetry::projection::TextBounds;
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use dialects::{CHAT, MESSAGES, RESPONSES};
use engine::offline::{EmptyStore, OfflineStore, Pending, advance};
use engine::{Answer as Reply, Arrived, Effect, Exchange, Input, Now, Shared, WholeReply};
use model::memo::NoMemo;
use model::plan::Finding;
use model::record::{RequestRecord, Route, Verdict};
use model::summaries::NoSummaries;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;

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
    /// The conversation's id, as clients send it in `x-toolrein-conversation`.
    conversation: Option<String>,
    /// What the caller sends, or its hash: see [`SessionNames`].
    caller: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Endpoint {
    #[serde(rename = "chat.completions")]
    Chat,
    #[serde(rename = "responses")]
    Responses,
    #[serde(rename = "messages")]
    Messages,
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
                    "The body must be {{\"request\": {{...}}, \"endpoint\": \"chat.completions\", \"responses\" or \"messages\", \
                     \"call\": {{\"name\": ..., \"arguments\": ...}}, \"conversation\": ..., \"caller\": ...}}, the last two \
                     left out where nothing is to be known of the session: {error}."
                );
                return Answer::error(Code::BadRequest, &message);
            }
        };
        match self.judged(&asked) {
            Ok(judged) => Answer::json(&judged),
            Err(why) => Answer::error(Code::RequestUnreadable, &why),
        }
    }

    /// The decision on the call as the reply to the request.
    fn judged(&self, asked: &ValidateRequest<'_>) -> Result<Value, String> {
        let (dialect, route, path) = match asked.endpoint {
            None | Some(Endpoint::Chat) => (CHAT, Route::Chat, "/v1/chat/completions"),
            Some(Endpoint::Responses) => (RESPONSES, Route::Responses, "/v1/responses"),
            Some(Endpoint::Messages) => (MESSAGES, Route::Messages, "/v1/messages"),
        };
        let body = Bytes::copy_from_slice(asked.request.get().as_bytes());
        let request = dialect.read(&body).map_err(|fault| format!("The request cannot be read: {fault}."))?;
        let (caller, conversation) = (asked.caller.as_deref(), asked.conversation.as_deref());
        let names = SessionNames { caller, conversation };
        let Session { identity, tier, profile } =
            names.session(&self.key, &self.settings, &request, &body)?;
        let shared = Shared {
            settings: Arc::new(self.settings.engine_settings()),
            memo: Arc::new(NoMemo),
            key: self.key.clone(),
            secret: random_key(),
            upstream: self.upstream.to_string(),
            summaries: Arc::new(NoSummaries),
        };
        let arrived = Arrived {
            dialect,
            body,
            request,
            identity,
            profile,
            tier,
            reports: false,
            path: path.to_owned(),
        };
        let now = Now { at: Instant::now(), ms: super::stops::now_ms() };
        let record = Box::new(RequestRecord::new(route));
        let mut exchange = Exchange::begin(Arc::new(shared), arrived, record, now);
        let call = &asked.call;
        let arguments = match &call.arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let reply = dialect.reply_with_call(&call.name, &arguments);
        let end = match names.is_empty() {
            true => drive(&mut exchange, reply, &mut EmptyStore, now),
            false => drive(&mut exchange, reply, &mut StoreReader(&*self.store, Handle::current()), now),
        };
        let record = exchange.close(now).record;
        let state = exchange.inspect().plan().findings().rev().find_map(|(_, finding)| match finding {
            Finding::State(state) => Some(Arc::clone(state)),
            _ => None,
        });
        Ok(shown(&record, &end, call, state.as_deref()))
    }
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
fn drive(exchange: &mut Exchange, reply: Bytes, known: &mut dyn OfflineStore, now: Now) -> End {
    let (mut end, mut reply) = (End::default(), Some(reply));
    while let Some(pending) = advance(exchange, known, now) {
        match pending {
            Pending::Send(_) => match reply.take() {
                Some(body) => {
                    exchange.handle(Input::Reply(WholeReply { id: 0, status: 200, body: Ok(body) }), now);
                }
                // The model would be asked again.
                None => break,
            },
            Pending::Effect(_, Effect::Approve(_)) => end.asks = true,
            Pending::Effect(_, Effect::Sleep { ms }) => end.waits_ms = Some(ms),
            Pending::Effect(..) => end.asks_model = true,
            Pending::Answer(Reply::Error(error)) => end.refused = Some(error.to_string()),
            Pending::Answer(_) => {}
        }
    }
    end
}

fn shown(record: &RequestRecord, end: &End, call: &Proposed, state: Option<&str>) -> Value {
    let judged = record.judged.iter().rfind(|judged| judged.tool == call.name).or(record.judged.last());
    let policy = judged.and_then(|judged| judged.decisions.first()).map(|decision| decision.policy);
    let (verdict, reason) = match (judged, end) {
        (_, End { refused: Some(why), .. }) => (Verdict::Block, Some(why.clone())),
        (_, End { asks: true, .. }) => (Verdict::Ask, Some("A person is asked.".to_owned())),
        (_, End { waits_ms: Some(ms), .. }) => (Verdict::Ask, Some(format!("It waits for {ms} ms."))),
        (Some(judged), _) => (judged.verdict, judged.explanation().map(str::to_owned)),
        (None, End { asks_model: true, .. }) => (Verdict::Ask, Some("Another model is asked.".to_owned())),
        (None, _) => (Verdict::Allow, None),
    };
    json!({
        "verdict": verdict.as_str(),
        "policy": policy,
        "reason": reason,
        "usage": TextBounds::WHOLE.limits(record),
        "state": state,
    })
}
