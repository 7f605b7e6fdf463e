//! Dialects: one wire protocol each, from bytes to a conversation and back. What they share is here: the variants of a
//! request, errors and refusals of upstreams, `usage`, calls that models write as text. Decides nothing, and names no
//! policy.
//!
//! To add one: a folder with a type that implements [`Dialect`], a constant like [`CHAT`], and a line in
//! `proxy/handler.rs` that chooses it.

pub mod accepted;
pub mod chat;
pub mod codec;
pub mod content;
mod dialect_of;
pub mod edit;
pub mod error;
pub mod hidden_exchange;
pub mod lines;
pub mod markup;
pub mod messages;
pub mod names_by_id;
pub mod other_readers;
pub mod prefix;
pub mod question;
pub mod refusal;
pub mod repair;
pub mod reply;
pub mod reply_choice;
mod reply_input;
mod request_body;
pub mod responses;
pub mod short;
pub mod stored;
pub mod stray;
pub mod summary;
mod text_frame;
pub mod upstream_history;
pub mod usage;
pub mod usage_sum;
pub mod variant;

pub use self::dialect_of::dialect_of;

use self::chat::Chat;
use self::messages::Messages;
use self::reply::{Form, Limits};
use self::responses::Responses;
use self::upstream_history::UpstreamHistory;
use self::variant::{PlannedRequest, Variant};
use bytes::Bytes;
use codec::ReplyCodec;
use model::adaptation::Adaptations;
use model::checkpoint::Checkpoint;
use model::identity::{Domain, Hash, HashKey};
use model::message::Message;
use model::plan::approval::Confirmation;
use model::request::Request;
use model::source::Source;
use std::sync::Arc;
use wire::body::Fault;
use wire::splice::Rope;

/// The kinds of items that the model or its provider made and that no client runs.
pub const CARRIED: [&str; 11] = [
    "reasoning",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "tool_search_call",
    "compaction",
    "program",
    "other",
];

/// One of the dialects, where any may be meant.
pub type AnyDialect = &'static dyn Dialect;

/// Chat completions.
pub const CHAT: AnyDialect = &Chat;

/// The Responses API.
pub const RESPONSES: AnyDialect = &Responses;

/// Anthropic's Messages API.
pub const MESSAGES: AnyDialect = &Messages;

/// The dialect of requests to the endpoint that is recorded under this name; `None` for those that are not governed.
pub fn dialect_named(endpoint: &str) -> Option<AnyDialect> {
    Some(match endpoint {
        "chat_completions" => CHAT,
        "responses" => RESPONSES,
        "messages" => MESSAGES,
        _ => return None,
    })
}

/// One wire protocol.
pub trait Dialect: Send + Sync {
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

    /// As [`Dialect::parse`], without a checkpoint.
    ///
    /// # Errors
    /// As for [`Dialect::parse`].
    fn read(&self, body: &[u8]) -> Result<Request, Fault> {
        self.parse(body, None, &mut |_| 0)
    }

    /// Whether another parser may find a request in `body`, which toolrein cannot read for this `fault`.
    fn may_be_request(&self, body: &[u8], fault: Fault) -> bool;

    /// What the `record` of a conversation that the upstream keeps says of the items that the request continues from or
    /// refers to; `None` where it cannot be used. Whether tools may be declared elsewhere, and whose shells are
    /// called, is then said of the request with these items.
    fn upstream_history(
        &self,
        _request: &mut Request,
        _body: &Bytes,
        _record: &Bytes,
    ) -> Option<UpstreamHistory> {
        None
    }

    /// The request as it would be if the client sent the items that the upstream keeps: for people who read it.
    fn whole_request(&self, planned: &PlannedRequest<'_>) -> Bytes {
        planned.body.clone()
    }

    /// The bytes of a request in this variant; slices of the original wherever nothing changes.
    fn write(&self, planned: &PlannedRequest<'_>, variant: &Variant) -> Rope;

    /// What strict upstreams refuse in the history of the request, as far as `of` asks.
    fn broken(&self, planned: &PlannedRequest<'_>, of: Adaptations) -> Adaptations;

    /// Whether a hidden exchange can be put back before the item at `position` of the request, or into it.
    fn may_restore(&self, _request: &Request, _body: &[u8], _position: usize, _exchange: &Bytes) -> bool {
        true
    }

    /// The codec of the replies to a request that the client gets in this form.
    fn codec(&self, form: Form, limits: Limits) -> Box<dyn ReplyCodec>;

    /// A reply with approved calls, in the model's place.
    fn approved(&self, form: Form, confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes;

    /// A reply that is this text alone, in the model's place.
    fn says(&self, form: Form, text: &str, handed: &Handed<'_>) -> Bytes;

    /// The reply that made these messages of the request `body`, whole, with the recorded bytes of its calls: for replays.
    fn recorded_reply(&self, body: &[u8], messages: &[&Message]) -> Bytes;

    /// A whole reply that makes one call, with `arguments` as JSON: for the validation of a call.
    fn reply_with_call(&self, name: &str, arguments: &str) -> Bytes;

    /// What a recorded reply, whole or a stream, adds to the conversation: for replays.
    fn reply_items(&self, reply: &Bytes) -> RecordedReply;

    /// The whole reply that adds this to the conversation: for recordings.
    fn whole_reply(&self, reply: &RecordedReply) -> Bytes;

    /// The items of a hidden exchange as a history has them, separated by commas: for recordings.
    fn hidden_items(&self, exchange: &Bytes) -> Bytes;

    /// A hidden exchange with its calls and results as plain text, for an upstream that refuses them.
    fn plain_exchange(&self, exchange: &Bytes) -> Bytes;

    /// A hidden exchange with short arguments and results, for a request that would be too long otherwise.
    fn short_exchange(&self, exchange: &Bytes) -> Bytes;

    /// An error that toolrein has written for people, in the shape that clients of this API read.
    fn error_for_people(&self, _status: u16, error: Bytes) -> Bytes {
        error
    }

    /// The items of a hidden exchange; `None` if they cannot be read.
    fn source(&self, exchange: &Bytes) -> Option<Source>;
}

/// See [`Dialect::reply_items`].
#[derive(Debug, Default)]
pub struct RecordedReply {
    /// The id by which a later request continues from it, if the upstream keeps the history.
    pub id: Option<String>,
    /// As a later request holds them; none where the reply is an error.
    pub items: Vec<Bytes>,
    /// Why it ended: `stop`, `length`, `tool_call`, `content_filter`, or a word of the upstream's own; `None` where it
    /// does not say.
    pub finish: Option<String>,
}

/// What toolrein's own reply contains besides approved calls or a text.
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

/// Last characters of a call's id that are new.
const NEW_CHARS: usize = 6;
/// The shortest id whose tail is taken for random.
const SHORTEST_ID: usize = 9;
/// Counting ids count on from here, beyond what any conversation reaches.
const LEAST_COUNT: u32 = 10_000;
/// Bytes of an old id that are kept before a new suffix: OpenAI accepts 40 characters.
const LONGEST_STEM: usize = 32;

impl Handed<'_> {
    /// The id of the call at `at`: different from the `old` one, which the model's history has with the blocked call, but
    /// as similar as possible: random ids keep their length and their beginning, counting ones their words. A call
    /// without an id gets none.
    pub fn new_id(&self, old: &str, at: usize) -> String {
        let stem = old.len().saturating_sub(NEW_CHARS);
        let tail = old.as_bytes().get(stem..).unwrap_or_default();
        let question = self.question.0.to_le_bytes();
        let new = self.key.hash(Domain::Confirmation, &[&question, &at.to_le_bytes()]);
        let words = old.trim_end_matches(|char: char| char.is_ascii_digit());
        let counted = || format!("{}{}", LEAST_COUNT + new.0 as u32 % LEAST_COUNT, at);
        match old.len() {
            0 => String::new(),
            SHORTEST_ID.. if tail.iter().all(u8::is_ascii_alphanumeric) => {
                let mut new = new.to_string();
                new.truncate(NEW_CHARS);
                // One in 16 million.
                let is_other = new.as_bytes() != tail;
                format!("{}{}", &old[..stem], if is_other { &*new } else { "000000" })
            }
            length if words.len() < length => format!("{words}{}", counted()),
            _ => format!("{}_{}", &old[..old.floor_char_boundary(LONGEST_STEM)], counted()),
        }
    }
}
