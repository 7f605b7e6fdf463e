//! The inputs and outputs of an exchange, as plain data: what happened, and what the driver is to do.

use super::error::ProxyError;
use super::request_forms::Outgoing;
use super::store::{Facts, News, StoreQuery};
use bytes::Bytes;
use model::identity::Hash;
use model::plan::approval::{Decided, HeldCall};
use model::plan::{ModelTerms, SummaryWanted};
use policies::approvals::Webhook;
use std::sync::Arc;
use std::time::Duration;

/// What happened.
pub enum Input {
    /// Whether the request may go on beside others of its conversation.
    Admitted(Admission),
    /// What is known of the conversation that the upstream keeps.
    History(Option<Bytes>),
    /// What the state store knows.
    Facts(Box<Facts>),
    /// Whether this request is the one that hands out the approved calls.
    Claimed(bool),
    /// The batch's summary, or the decision that it has none.
    Summarised(Option<Arc<str>>),
    /// The request was sent again on a new connection, since the pooled one was stale.
    Resent,
    /// No reply came.
    NotSent(ProxyError),
    /// A stream of events begins. `ends_by_closing`: nothing but the end of the connection ends it.
    StreamBegins { ends_by_closing: bool },
    /// Bytes of the stream.
    Bytes(Bytes),
    /// The stream has ended.
    End,
    /// The stream broke off, with the error for the client.
    Cut(ProxyError, Break),
    /// A whole reply came.
    Reply(WholeReply),
    /// A decision on the call that waits under this number; for one that waits for time alone, whether it has passed.
    Decided(u32, Decided),
    /// The answer of the model that was asked about the call of this number; `None`: there is none.
    Answered(u32, Option<Arc<str>>),
    /// Nothing was sent to the client for the heartbeat interval.
    Silence,
    /// The head of the stream has waited long enough for its first event.
    HeadDue,
    /// There is no memory left for what is held back.
    NoMemory,
}

/// A reply that was read to its end, or as far as possible.
pub struct WholeReply {
    /// The driver's number for it, to which an [`Answer`] refers.
    pub id: u32,
    pub status: u16,
    /// Its decoded bytes; or why they could not be read: `reply_too_long`, `unreadable_coding`.
    pub body: Result<Bytes, &'static str>,
}

/// Whether a request may go on beside others of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No other one was in flight.
    Free,
    /// It waited for others.
    Waited,
    /// Others are still in flight.
    Busy,
}

/// How a stream to the client breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    Upstream,
    Idle,
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Output {
    /// Wait at most so long until no other request of the conversation is in flight, then give [`Input::Admitted`].
    Admit { conversation: Hash, patience: Duration },
    /// Another request of the conversation may come in from now on.
    Dismiss,
    /// Ask the state store what is known of a conversation that the upstream keeps, and give [`Input::History`].
    FindHistory(Hash),
    /// Ask the state store and give [`Input::Facts`].
    LookUp(StoreQuery),
    /// Ask the state store and give [`Input::Claimed`].
    Claim { question: Hash, request: Hash },
    /// Have the summary model asked and give [`Input::Summarised`] with the result.
    Summarise { wanted: SummaryWanted, question: Bytes },
    /// The decisions about these batches of results are lost: they count as cleared from now on.
    SummariesLost(Vec<Hash>),
    /// Send this to the upstream.
    Send(Outgoing),
    /// Report to the state store.
    Store(News),
    /// Ask a person about a call and give [`Input::Decided`].
    AskApproval(Box<ApprovalRequest>),
    /// Hold the call of this number for so many ms, and give [`Input::Decided`] then.
    Wait { id: u32, ms: u64 },
    /// The call of this number no longer needs a decision, or its time.
    WithdrawApproval(u32),
    /// Ask another model about a call, and give [`Input::Answered`] with the call's number.
    AskModel(AskedModel),
    /// The reply to the client, whole.
    Answer(Answer),
    /// The reply to the client is a stream: the upstream's head goes out, or (`own`) toolrein's.
    BeginStream { own: bool },
    /// The reply to the client is a stream: the head of the upstream's whole reply of this number goes out.
    BeginStreamOf(u32),
    /// The next bytes of the stream to the client.
    Emit(Bytes),
    /// The stream to the client breaks off.
    BreakOff(Break),
    /// The stream to the client has ended.
    Done,
}

/// A question to another model about a call that waits for the answer.
#[derive(Debug)]
pub struct AskedModel {
    /// The call's number.
    pub id: u32,
    /// Equal for equal questions of one caller.
    pub key: Hash,
    pub terms: Arc<ModelTerms>,
    /// The body of the request.
    pub question: Bytes,
}

/// A call that a person is to be asked about.
#[derive(Debug)]
pub struct ApprovalRequest {
    pub call: HeldCall,
    /// How long the reply waits at most, in ms.
    pub hold_ms: u64,
    /// Who is notified of it.
    pub webhook: Option<Arc<Webhook>>,
}

/// A whole reply to the client.
#[derive(Debug)]
pub enum Answer {
    /// The upstream's reply of this number, as it came.
    AsItCame(u32),
    /// That reply with another body, in pieces.
    Edited(u32, Vec<Bytes>),
    /// The upstream's error with another status or body. `id`: the number of its reply, or none for a stream whose head
    /// was not sent.
    Restated {
        id: Option<u32>,
        status: u16,
        body: Bytes,
    },
    /// toolrein's own reply, in pieces.
    Own(Vec<Bytes>),
    Error(ProxyError),
}
