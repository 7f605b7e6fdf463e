//! The dialect of OpenAI's Responses API: the only code that knows its wire format.

mod approval_requests;
pub mod approved;
mod flatten;
mod history;
pub mod item;
mod notice;
mod references;
mod repair;
pub mod reply;
mod request;
mod restore;
pub mod rounds;
mod stored;
mod write;

pub use history::{own_reply, upstream_id};
pub use reply::convert::stream_of_response;
pub use request::parse;
pub use stored::{StoredReply, is_ended, read_stored, record_blocked, request_of};
pub use write::write;

use super::codec::ReplyCodec;
use super::other_readers::may_read;
use super::reply::{Form, Limits};
use super::upstream_history::UpstreamHistory;
use super::variant::{PlannedRequest, Variant};
use super::{Dialect, Handed, RecordedReply};
use bytes::Bytes;
use model::adaptation::Adaptations;
use model::checkpoint::Checkpoint;
use model::message::Message;
use model::plan::approval::Confirmation;
use model::request::Request;
use model::source::Source;
use std::sync::Arc;
use wire::body::Fault;
use wire::splice::Rope;

/// How the ids of messages begin that toolrein writes. The upstream does not know them, so they are removed again.
const OWN_ID: &str = "msg_toolrein";

/// See the file's head.
#[derive(Debug)]
pub struct Responses;

impl Dialect for Responses {
    fn parse(
        &self,
        body: &[u8],
        known: Option<&Arc<Checkpoint>>,
        keep: &mut dyn FnMut(&Request) -> usize,
    ) -> Result<Request, Fault> {
        request::resume(body, known, keep)
    }

    fn may_be_request(&self, body: &[u8], fault: Fault) -> bool {
        may_read(body, fault, b"input", |text| parse(text).is_ok())
    }

    fn upstream_history(
        &self,
        request: &mut Request,
        body: &Bytes,
        record: &Bytes,
    ) -> Option<UpstreamHistory> {
        history::upstream_history(request, body, record)
    }

    fn whole_request(&self, planned: &PlannedRequest<'_>) -> Bytes {
        history::whole_request(planned)
    }

    fn write(&self, planned: &PlannedRequest<'_>, variant: &Variant) -> Rope {
        write(planned, variant)
    }

    fn broken(&self, planned: &PlannedRequest<'_>, of: Adaptations) -> Adaptations {
        repair::broken(planned, of)
    }

    fn codec(&self, form: Form, limits: Limits) -> Box<dyn ReplyCodec> {
        Box::new(reply::ResponsesReplies::new(form, limits))
    }

    fn approved(&self, form: Form, confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes {
        approved::approved(form, confirmation, handed)
    }

    fn says(&self, form: Form, text: &str, handed: &Handed<'_>) -> Bytes {
        approved::says(form, text, handed)
    }

    fn recorded_reply(&self, body: &[u8], messages: &[&Message]) -> Bytes {
        approved::recorded_reply(body, messages)
    }

    fn reply_with_call(&self, name: &str, arguments: &str) -> Bytes {
        approved::reply_with_call(name, arguments)
    }

    fn reply_items(&self, reply: &Bytes) -> RecordedReply {
        stored::reply_items(reply)
    }

    fn whole_reply(&self, reply: &RecordedReply) -> Bytes {
        stored::whole_reply(reply)
    }

    fn hidden_items(&self, exchange: &Bytes) -> Bytes {
        rounds::joined_items(exchange)
    }

    fn plain_exchange(&self, exchange: &Bytes) -> Bytes {
        rounds::plain_exchange(exchange)
    }

    fn short_exchange(&self, exchange: &Bytes) -> Bytes {
        rounds::short_exchange(exchange)
    }

    fn source(&self, exchange: &Bytes) -> Option<Source> {
        rounds::source(exchange)
    }
}

/// Whether the request belongs to a conversation that the upstream keeps under one name.
fn in_conversation(request: &Request, body: &[u8]) -> bool {
    request.value(body, "conversation").is_some_and(|value| value.of(body) != b"null")
}
