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
use super::error::anthropic_type;
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
use serde_json::{Value, json};
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

    fn error_for_people(&self, status: u16, error: Bytes) -> Bytes {
        enveloped(status, &error).unwrap_or(error)
    }

    fn source(&self, exchange: &Bytes) -> Option<Source> {
        hidden_exchange::source(exchange)
    }
}

/// An error in OpenAI's shape in this API's: gateways and web servers before it have errors of other shapes. `None` where it
/// is in this API's already.
fn enveloped(status: u16, error: &[u8]) -> Option<Bytes> {
    let mut error: Value = serde_json::from_slice(error).ok()?;
    if error["type"] == "error" {
        return None;
    }
    let mut said = error["error"].take();
    let code = said["code"].take();
    said["type"] = anthropic_type(status).into();
    if let Some(said) = said.as_object_mut() {
        said.retain(|name, _| !matches!(name.as_str(), "param" | "code"));
        if !code.is_null() {
            said.insert("details".to_owned(), json!({ "error_code": code }));
        }
    }
    Some(json!({"type": "error", "error": said}).to_string().into())
}

#[cfg(test)]
mod tests;
