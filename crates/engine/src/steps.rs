//! The inputs and outputs of an exchange, as plain data: what happened, and what the driver is to do.

use super::effects::{Effect, EffectId, EffectResult};
use super::error::ProxyError;
use super::request_forms::Outgoing;
use bytes::Bytes;
use model::fact::Writes;
use model::identity::Hash;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The result of an effect that was started.
    Finished(EffectId, EffectResult),
    /// The request was sent again on a new connection, since the pooled one was stale.
    Resent,
    /// The upstream's id of the request that was sent last, by the head of its reply.
    UpstreamId(String),
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
    /// Bytes of the stream cannot be decoded, and go to the client as they came.
    Undecodable,
    /// The time of [`Exchange::deadline`](crate::Exchange::deadline) has come.
    Tick,
    /// There is no memory left for what is held back.
    NoMemory,
}

impl Input {
    /// Whether a driver may give it although the reply has ended meanwhile: it was on its way.
    pub(crate) fn may_come_late(&self) -> bool {
        matches!(
            self,
            Self::Bytes(_) | Self::End | Self::Cut(..) | Self::Tick | Self::NoMemory | Self::Undecodable
        )
    }
}

/// A reply that was read to its end, or as far as possible.
#[derive(Debug)]
pub struct WholeReply {
    /// The driver's number for it, to which an [`Answer`] refers.
    pub id: u32,
    pub status: u16,
    /// Its decoded bytes; or why they could not be read: `reply_too_long`, `unreadable_coding`.
    pub body: Result<Bytes, &'static str>,
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
    /// Do this, and give [`Input::Finished`] with its number and its result.
    Start(EffectId, Effect),
    /// The result of the effect of this number is not needed any more.
    Cancel(EffectId),
    /// Another request of the conversation may come in from now on.
    Dismiss,
    /// The decisions about these batches of results are lost: they count as cleared from now on.
    SummariesLost(Vec<Hash>),
    /// Send this to the upstream.
    Send(Outgoing),
    /// Report to the state store.
    Store(Box<Writes>),
    /// The reply to the client, whole.
    Answer(Answer),
    /// The reply to the client is a stream: the upstream's head goes out, or (`own`) toolrein's.
    BeginStream { own: bool },
    /// The reply to the client is a stream: the head of the upstream's whole reply of this number goes out.
    BeginStreamOf(u32),
    /// The next bytes of the stream to the client.
    Emit(Bytes),
    /// So many bytes of the stream are in memory.
    Held(usize),
    /// The stream to the client breaks off.
    BreakOff(Break),
    /// The stream to the client has ended.
    Done,
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
