//! Dialects: one wire protocol each, from bytes to a conversation and back. What they share is here: the variants of a
//! request, errors and refusals of upstreams, `usage`, calls that models write as text. Decides nothing, and names no
//! policy.
//!
//! To add one: a folder with a type that implements [`Dialect`], and a line in
//! `proxy/handler.rs` that chooses it.

pub mod chat;
pub mod error;
pub mod judge;
pub mod markup;
pub mod prefix;
pub mod refusal;
pub mod reply;
pub mod summary;
pub mod usage;
pub mod variant;

use self::reply::{Form, Limits, Options, Reply};
use self::variant::{Source, Variant};
use crate::conversation::checkpoint::Checkpoint;
use crate::conversation::identity::{Hash, HashKey};
use crate::conversation::message::Message;
use crate::conversation::request::Request;
use crate::plan::approval::Confirmation;
use crate::wire::body::Fault;
use crate::wire::splice::Rope;
use bytes::Bytes;
use std::sync::Arc;

/// One wire protocol. `J` is the judge of the calls in its replies.
pub trait Dialect<J>: Send + Sync {
    /// Reads a request body whose first [`Checkpoint::bytes`] are those that `known` was read from. A checkpoint of as
    /// many first bytes as `keep` wants of the request is then in [`Request::checkpoint`].
    ///
    /// # Errors
    /// A [`Fault`] if toolrein cannot read the body as a request; it is then left to the upstream.
    fn parse(
        &self,
        body: &[u8],
        known: Option<&Arc<Checkpoint>>,
        keep: &mut dyn FnMut(&Request) -> usize,
    ) -> Result<Request, Fault>;

    /// The same without a checkpoint.
    ///
    /// # Errors
    /// As for [`Dialect::parse`].
    fn read(&self, body: &[u8]) -> Result<Request, Fault> {
        self.parse(body, None, &mut |_| 0)
    }

    /// Whether another parser may find a request in `body`, which toolrein cannot read for this `fault`.
    fn may_be_request(&self, body: &[u8], fault: Fault) -> bool;

    /// The bytes of a request in this variant; slices of the original wherever nothing changes.
    fn write(&self, source: &Source<'_>, variant: &Variant) -> Rope;

    /// The reader, judge and writer of the replies to a request that the client gets in this form.
    fn replies(&self, judging: J, form: Form, limits: Limits, options: Options) -> Box<dyn Reply<J>>;

    /// A reply with approved calls, in the model's place.
    fn approved(&self, form: Form, confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes;

    /// The event that reports an upstream's refusal, of this status and with this body, in a stream that has started.
    fn error_event(&self, status: u16, body: &[u8]) -> Bytes;

    /// The event that reports toolrein's own error in a stream that has started.
    fn own_error_event(&self, message: &str, code: &str) -> Bytes;

    /// The heartbeat that keeps the client of a stream waiting.
    fn heartbeat(&self) -> Bytes;

    /// The reply that made these messages of the request `body`, whole, with the recorded bytes of its calls: for replays.
    fn recorded_reply(&self, body: &[u8], messages: &[&Message]) -> Bytes;
}

/// What toolrein's reply with approved calls contains besides the calls.
pub struct Handed<'a> {
    /// The key of the message that asked: the reply's id and the calls' ids are derived from it, so that a retry gets
    /// the same.
    pub question: Hash,
    pub key: &'a HashKey,
    pub model: &'a str,
    /// In seconds since the epoch.
    pub created: u64,
    /// The client asked for usage.
    pub usage: bool,
}
