//! Replies as data: their form, their limits, what the request allows, and how they end.

use crate::error::UpstreamError;
use crate::usage_sum::Usages;
use bytes::Bytes;

/// The form of the client's reply, or of one reply of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As server-sent events.
    Streamed,
    /// As one JSON body.
    Whole,
}

/// Bounds of one reply, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest event that is judged.
    pub event: usize,
    /// Most of a stream that is held back.
    pub held: usize,
    /// Most that is kept of one reply: of a stream its text and calls, of a whole reply its body.
    pub reply: usize,
}

/// What the request allows, and what toolrein added for the client. May change with the variant of the request, until a reply
/// is accepted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only toolrein asked for the stream's usage: the client gets none.
    pub cut_usage: bool,
    /// A line to the person, put before the answer.
    pub preface: Option<String>,
    /// People read texts of toolrein's about the upstream's errors in a stream.
    pub friendly: bool,
    /// The most tokens that the request allows for a reply.
    pub output_limit: Option<u64>,
    /// toolrein wrote a list of the tools that the model may call into the request.
    pub narrows_choice: bool,
    /// The id of the client's request, for errors of toolrein's own and for reports.
    pub request_id: String,
    /// The client wants to read in the stream itself what acted on the reply.
    pub reports: bool,
}

impl Options {
    /// Whether the present reply took all the tokens that its request allows. It was cut, whatever it says:
    /// llama.cpp's server says `completed`, vLLM `tool_calls`.
    pub fn is_used_up(&self, usages: &Usages) -> bool {
        self.output_limit.is_some_and(|limit| (1..=usages.written()).contains(&limit))
    }
}

/// Why something passed unjudged, or was broken off because it must not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudged {
    EventTooLong,
    HeldTooMuch,
    ReplyTooLong,
    NotJson,
    /// Two parsers may see different calls in it.
    Ambiguous,
    /// A blocked call in it is one that no text can answer.
    Unanswerable,
}

/// How a reply of the upstream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client has everything.
    Complete,
    /// Every call of this choice was blocked: the model is to be asked again with the hidden exchange appended.
    Reask { choice: u32, hidden: Bytes },
    /// Calls wait for a person's decision: call `finish` again when all are settled.
    Waits,
    /// The reply is the upstream's error, and the exchange decides what to do: see [`Reply::refusal`].
    Refused,
    /// The rest must not reach the client unjudged.
    BrokenOff(Unjudged),
}

/// A reply that is the upstream's error.
#[derive(Debug)]
pub struct Refusal {
    pub error: UpstreamError,
    /// Its bytes, as the client gets them if the error is final.
    pub raw: Bytes,
}
