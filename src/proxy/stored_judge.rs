//! Verdicts on the calls of stored replies that nothing is known of: made in the background, or stored before toolrein
//! knew them. The exchange that judges every reply judges this one too when it is first read, as the answer to the request
//! as far as that is known. The model is not asked again: a call that may not run is left out.

use super::clock;
use super::error::ProxyError;
use super::handler::{AppState, Sender};
use bytes::Bytes;
use dialects::AnyDialect;
use dialects::stored::{StoredCall, calls_in};
use engine::store::MOST_LOOKED_UP;
use engine::{Admission, Answer, Arrived, Effect, EffectResult, Exchange, Input, Now, Output, WholeReply};
use hyper::http::request::Parts;
use model::calls::arguments_hash;
use model::fact::{Batch, Writes};
use model::identity::{Hash, Identity};
use model::record::{JudgedCall, RequestRecord, Route};
use model::released::Release;
use model::store::UpstreamRecord;
use policies::conditions::is_certain;
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// A stored reply to be judged, and the request that it answers as far as that is known.
pub(super) struct StoredReply<'a> {
    pub parts: &'a Parts,
    pub dialect: AnyDialect,
    pub request: Bytes,
    pub reply: Bytes,
}

/// What the policies decided on the calls of a stored reply.
#[derive(Default)]
pub(super) struct Verdicts {
    pub judged: Vec<JudgedCall>,
    /// The reply as the client may see it; `None`: every call is blocked, and the model would be asked again.
    pub answer: Option<Answer>,
    /// What is known of the conversation after the reply.
    pub history: Option<Bytes>,
    /// What the state store learns of the reply.
    writes: Vec<Writes>,
}

impl Verdicts {
    /// What the model would read of the blocked call with this id.
    pub fn message(&self, id: &str) -> String {
        let call = self.judged.iter().find(|call| call.id == id);
        call.and_then(JudgedCall::message).unwrap_or(UNEXPLAINED).to_owned()
    }
}

/// What the model reads where no policy gave a text.
const UNEXPLAINED: &str = "The call was not run: it was not judged in time.";

impl AppState {
    /// Has the policies judge a stored reply.
    ///
    /// # Errors
    /// The request is refused for what its headers say.
    pub(super) async fn judge_stored(&self, stored: StoredReply<'_>) -> Result<Verdicts, ProxyError> {
        let StoredReply { parts, dialect, request: body, reply } = stored;
        let unread = |_| ProxyError::ReplyUnjudged { why: "stored_response" };
        let request = dialect.read(&body).map_err(unread)?;
        let Sender { profile, tier, identity, .. } = self.identify(parts, &request, &body)?;
        let profile = profile.map(|profile| Arc::clone(&profile.name));
        let path = parts.uri.path().to_owned();
        let arrived = Arrived { dialect, body, request, identity, profile, tier, reports: false, path };
        let record = Box::new(RequestRecord::new(Route::Relay));
        let at = Instant::now();
        let now = Now { at, ms: clock::ms_at(at) };
        let mut exchange = Exchange::begin(Arc::clone(&self.shared), arrived, record, now);
        let (mut verdicts, mut reply) = (Verdicts::default(), Some(reply));
        while let Some(output) = exchange.poll() {
            let input = match output {
                Output::Start(id, effect) => Input::Finished(id, self.result_for_stored(effect).await),
                Output::Send(_) => match reply.take() {
                    Some(body) => Input::Reply(WholeReply { id: 0, status: 200, body: Ok(body) }),
                    // The model would be asked again.
                    None => break,
                },
                Output::Store(writes) => {
                    verdicts.learn(*writes);
                    continue;
                }
                Output::Answer(answer) => {
                    verdicts.answer = Some(answer);
                    continue;
                }
                _ => continue,
            };
            exchange.handle(input, now);
        }
        verdicts.judged = exchange.inspect().judged_from(0);
        Ok(verdicts)
    }

    /// The result of an effect for a reply that is stored already: nobody is asked about its calls, and none waits.
    async fn result_for_stored(&self, effect: Effect) -> EffectResult {
        match effect {
            Effect::Admit { .. } => EffectResult::Admitted(Admission::Free),
            // What came before is in the request that the reply is judged with.
            Effect::LookUp(batch) if batch.request.is_none() => Effect::LookUp(batch).failure(),
            Effect::LookUp(batch) => EffectResult::LookedUp(Box::new(self.store.look_up(*batch).await)),
            other => other.failure(),
        }
    }

    /// What is known of the conversation that the upstream keeps under this key.
    pub(super) async fn history(&self, key: Hash) -> Option<Bytes> {
        let mut batch = Self::batch();
        let ticket = batch.ask::<UpstreamRecord>([key]);
        let known = self.store.look_up(batch).await.records(&ticket);
        known.into_iter().next().map(|UpstreamRecord(history)| history)
    }

    /// A batch that asks for nothing yet.
    fn batch() -> Batch {
        let at = Instant::now();
        Batch::new(Now { at, ms: clock::ms_at(at) })
    }

    /// Stores what a judged reply brought; `history`: what is known of the conversation, under the client's id of it.
    pub(super) fn keep_verdicts(&self, verdicts: Verdicts, history: Option<(Hash, Bytes)>) {
        verdicts.writes.into_iter().for_each(|writes| self.store.record(writes));
        if let Some((key, history)) = history {
            self.store.record(Writes::from_fact(key, UpstreamRecord(history)));
        }
    }

    /// Whether every call in this JSON was handed to the caller before, so that nothing in it is new. `None`: programs
    /// may find other calls in it.
    pub(super) async fn hands_out_nothing_new(&self, identity: &Identity, text: &[u8]) -> Option<bool> {
        let text = std::str::from_utf8(text).ok()?;
        let calls = match serde_json::from_str::<Value>(text).ok()? {
            value if is_certain(text) => calls_in(&value),
            _ => return None,
        };
        if calls.is_empty() {
            return Some(true);
        }
        if calls.len() > MOST_LOOKED_UP {
            return Some(false);
        }
        let root = identity.root();
        let key = |call: &StoredCall| {
            let arguments = arguments_hash(&call.arguments, identity, &*self.memo);
            identity.call_key(root, call.id.as_bytes(), &call.name, arguments)
        };
        let mut batch = Self::batch();
        let released = batch.ask::<Release>(calls.iter().map(key));
        let known = self.store.look_up(batch).await.values(&released);
        Some(known.iter().all(Option::is_some))
    }
}

impl Verdicts {
    fn learn(&mut self, mut writes: Writes) {
        if let Some((_, UpstreamRecord(history))) = writes.take().pop() {
            self.history = Some(history);
        }
        self.writes.push(writes);
    }
}
