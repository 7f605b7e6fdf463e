//! The live treatment of a request, from a recording of toolrein's own: the verdicts, the hidden exchanges with the
//! results that the model read, and what the model did next. Read leniently; nothing is decided again.

use crate::secret::random_key;
use bytes::Bytes;
use dialects::AnyDialect;
use model::Transcript;
use model::identity::{Hash, Identity};
use model::memo::NoMemo;
use model::message::Role;
use model::record::Verdict;
use model::request::Request;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use wire::json::decode;
use wire::splice::Splices;

/// Requests of one conversation whose live treatment is kept, the newest.
pub(super) const MOST_LIVE: usize = 1_000;
/// The longest text that is kept of one, in characters.
const MOST_CHARS: usize = 4_000;

/// One live request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Live {
    pub time: String,
    /// How long it took, in ms.
    pub ms: u64,
    pub request_id: String,
    pub mode: String,
    pub status: u16,
    pub reasks: usize,
    pub calls: Vec<LiveCall>,
    pub limits: Vec<LiveLimit>,
    pub refusal: Option<LiveRefusal>,
    hidden: Vec<Hidden>,
    /// How many messages the request had.
    #[serde(skip)]
    pub history: usize,
    /// The hidden exchanges, then the reply that the client got.
    #[serde(skip)]
    pub said: Vec<Said>,
}

/// A call of a live reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveCall {
    pub tool: String,
    pub id: String,
    pub verdict: String,
    pub objections: Vec<LiveObjection>,
}

/// Why a policy objected.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveObjection {
    pub policy: String,
    pub reason: String,
    pub message: Option<String>,
}

/// How much of a limit was used after the reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveLimit {
    pub policy: Option<String>,
    pub tool: String,
    pub used: u64,
    pub limit: u64,
}

/// Why a request was refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveRefusal {
    pub policy: String,
    pub code: String,
    pub message: Option<String>,
}

/// What toolrein did to the calls of a conversation when they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LiveCounts {
    pub requests: u64,
    /// Requests that a policy refused.
    pub refused: u64,
    pub calls: u64,
    /// Of these, the calls that the client did not get.
    pub blocked: u64,
    /// The policy that blocked the first of them.
    pub first_by: Option<String>,
}

impl LiveCounts {
    /// The sums of live requests; `None` where there are none.
    pub(crate) fn of(live: &[Live]) -> Option<Self> {
        let calls = || live.iter().flat_map(|one| &one.calls);
        let blocked = || calls().filter(|call| call.verdict == Verdict::Block.as_str());
        let first = blocked().find_map(|call| call.objections.first());
        (!live.is_empty()).then(|| Self {
            requests: live.len() as u64,
            refused: live.iter().filter(|one| one.is_refused()).count() as u64,
            calls: calls().count() as u64,
            blocked: blocked().count() as u64,
            first_by: first.map(|objection| objection.policy.clone()),
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Hidden {
    items: Box<RawValue>,
}

/// What the model said in one reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub text: String,
    pub calls: Vec<SaidCall>,
}

/// A call that it made, with the result that it read, where that was toolrein's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SaidCall {
    pub tool: String,
    pub id: String,
    pub arguments: String,
    pub result: Option<String>,
}

impl Live {
    /// Whether a policy refused the request. In observe mode none is refused.
    fn is_refused(&self) -> bool {
        self.refusal.is_some() && self.mode != "observe"
    }

    /// Reads the member of a line about a request of `history` messages, whose client got `reply`, items separated by
    /// commas; `body` and `request` are of the same protocol.
    pub(super) fn read(
        member: &RawValue,
        dialect: AnyDialect,
        body: &Bytes,
        request: &Request,
        reply: &str,
        history: usize,
    ) -> Option<Self> {
        let mut live: Self = serde_json::from_str(member.get()).ok()?;
        live.history = history;
        let lists = live.hidden.drain(..).map(|hidden| hidden.items.get().to_owned());
        let lists: Vec<String> = lists.chain([format!("[{reply}]")]).collect();
        live.said =
            lists.iter().map(|items| said(dialect, body, request, items).unwrap_or_default()).collect();
        Some(live)
    }
}

/// What is said in `items`, a list in the protocol of the request.
fn said(dialect: AnyDialect, body: &Bytes, request: &Request, items: &str) -> Option<Said> {
    let mut splices = Splices::default();
    splices.replace(request.messages_span, items.to_owned());
    let body = splices.apply(body).join();
    let request = dialect.read(&body).ok()?;
    let identity = Identity { key: random_key(), caller: Hash::default(), explicit: None };
    let transcript = Transcript::read(request.clone(), body.clone(), identity, Arc::new(NoMemo));
    let mut said = Said::default();
    for (at, message) in request.messages.iter().enumerate() {
        let texts =
            || transcript.view(at).texts().map(|text| text.into_owned()).collect::<Vec<_>>().join("\n");
        if message.role == Role::Assistant {
            let calls = message.calls.iter().map(|call| SaidCall {
                tool: call.full_name(&body).unwrap_or_default().into_owned(),
                id: call.id.map_or_else(String::new, |id| decode(id, &body).into_owned()),
                arguments: bounded(&call.arguments.text(&body)),
                result: None,
            });
            said.calls.extend(calls);
            said.text = bounded(&format!("{}{}", said.text, texts()));
        } else if let Some(call) = transcript.calls.answered_by(at) {
            let asked = request.messages[call.message].calls.get(call.index).and_then(|call| call.id);
            let id = asked.map(|id| decode(id, &body));
            let answered = said.calls.iter_mut().find(|said| id.as_ref().is_some_and(|id| said.id == *id));
            if let Some(answered) = answered {
                answered.result = Some(bounded(&texts()));
            }
        }
    }
    Some(said)
}

fn bounded(text: &str) -> String {
    text.chars().take(MOST_CHARS).collect()
}
