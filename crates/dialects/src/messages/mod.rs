//! The dialect of Anthropic's Messages API: the only code that knows its wire format.

mod block;
mod flatten;
mod hidden_exchange;
mod message;
mod notice;
mod own_reply;
mod repair;
pub mod reply;
mod request;
mod restore;
mod thinking;
pub mod threads;
mod write;

pub use request::parse;
pub use write::write;

use super::codec::ReplyCodec;
use super::other_readers::may_read;
use super::reply::{Form, Limits};
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

/// See the file's head.
#[derive(Debug)]
pub struct Messages;

impl Dialect for Messages {
    fn parse(
        &self,
        body: &[u8],
        known: Option<&Arc<Checkpoint>>,
        keep: &mut dyn FnMut(&Request) -> usize,
    ) -> Result<Request, Fault> {
        request::resume(body, known, keep)
    }

    fn may_be_request(&self, body: &[u8], fault: Fault) -> bool {
        may_read(body, fault, b"messages", |text| parse(text).is_ok())
    }

    fn write(&self, planned: &PlannedRequest<'_>, variant: &Variant) -> Rope {
        write(planned, variant)
    }

    fn broken(&self, planned: &PlannedRequest<'_>, of: Adaptations) -> Adaptations {
        repair::broken(planned, of)
    }

    fn may_restore(&self, request: &Request, body: &[u8], position: usize, exchange: &Bytes) -> bool {
        write::may_restore(request, body, position, exchange)
    }

    fn codec(&self, form: Form, limits: Limits) -> Box<dyn ReplyCodec> {
        Box::new(reply::MessagesReplies::new(form, limits))
    }

    fn approved(&self, form: Form, confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes {
        own_reply::approved(form, confirmation, handed)
    }

    fn says(&self, form: Form, text: &str, handed: &Handed<'_>) -> Bytes {
        own_reply::says(form, text, handed)
    }

    fn recorded_reply(&self, body: &[u8], messages: &[&Message]) -> Bytes {
        own_reply::recorded_reply(body, messages)
    }

    fn reply_with_call(&self, name: &str, arguments: &str) -> Bytes {
        own_reply::reply_with_call(name, arguments)
    }

    fn reply_items(&self, reply: &Bytes) -> RecordedReply {
        own_reply::reply_items(reply)
    }

    fn whole_reply(&self, reply: &RecordedReply) -> Bytes {
        own_reply::whole_reply(reply)
    }

    fn hidden_items(&self, exchange: &Bytes) -> Bytes {
        hidden_exchange::messages_of(exchange)
    }

    fn plain_exchange(&self, exchange: &Bytes) -> Bytes {
        hidden_exchange::plain_exchange(exchange)
    }

    fn short_exchange(&self, exchange: &Bytes) -> Bytes {
        hidden_exchange::short_exchange(exchange)
    }

    fn source(&self, exchange: &Bytes) -> Option<Source> {
        hidden_exchange::source(exchange)
    }
}

#[cfg(test)]
mod tests;
