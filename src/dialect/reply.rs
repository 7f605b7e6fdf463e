//! The reply interface of a dialect: the upstream's bytes go in, the client's come out, and every call is judged on the
//! way.

use crate::dialect::error::UpstreamError;
use crate::dialect::usage::Usage;
use crate::dialect::usage_sum::Usages;
use bytes::Bytes;
use model::assembled::Assembled;
use model::plan::approval::{ApprovalDecision, Question};
use model::plan::decision::{Decision, Next};
use model::request::Request;
use std::sync::Arc;

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
    /// The id of the client's request, for errors of toolrein's own.
    pub request_id: String,
}

impl Options {
    /// Whether the present reply took all the tokens that its request allows. It was cut, whatever it says:
    /// llama.cpp's server says `completed`, vLLM `tool_calls`.
    pub fn is_used_up(&self, usages: &Usages) -> bool {
        self.output_limit.is_some_and(|limit| {
            let written = usages.last().map_or(0, |usage| Usage::read(&usage).completion);
            (1..=written).contains(&limit)
        })
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

/// The reader, the judge and the writer of one client request's replies: untouched parts go out as they came, byte for
/// byte, and the client gets one coherent reply. Sends no request by itself.
pub trait Reply<J>: Send {
    /// The judge of its calls.
    fn judging(&self) -> &J;

    /// As [`Self::judging`], mutable.
    fn judging_mut(&mut self) -> &mut J;

    /// Changes what toolrein added for the client, with the variant of the request.
    fn set_options(&mut self, options: Options);

    /// Sets the form and the HTTP status of the next reply.
    fn begin(&mut self, form: Form, status: u16);

    /// The next reply is toolrein's own, in the model's place: no request can continue from it at the upstream.
    fn expect_own(&mut self) {}

    /// Changes the form of the client's reply. Only before anything was judged.
    fn turn_to(&mut self, form: Form);

    /// Takes the next bytes of the upstream and appends the client's bytes to `out`: those of a stream at once, those
    /// of a whole reply when it is complete.
    fn push(&mut self, bytes: Bytes, now_ms: u64, out: &mut Vec<Bytes>);

    /// Called when the upstream's reply has ended as it should, or all its held calls are settled.
    fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending;

    /// Goes on with a further reply to the same client request, for the choice that is asked again.
    fn continue_with(&mut self, choice: u32);

    /// The upstream's error, if the present reply is one.
    fn refusal(&self) -> Option<&Refusal>;

    /// Gives the upstream's error out, and whatever came after it.
    fn let_refusal_stand(&mut self, now_ms: u64, out: &mut Vec<Bytes>);

    /// The event that reports an upstream's refusal, of this status and with this body, in the client's stream.
    fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes;

    /// The event that reports toolrein's own error in the client's stream.
    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes;

    /// The heartbeat that keeps the client of a stream waiting.
    fn heartbeat(&mut self) -> Bytes;

    /// Takes a person's decision on a held call, and gives out what waited for it.
    fn settle(&mut self, id: u32, decision: ApprovalDecision, out: &mut Vec<Bytes>);

    /// Takes the answer of another model that a held call waits for, and gives out what waited for it.
    fn answer(&mut self, id: u32, answer: Option<Arc<str>>, out: &mut Vec<Bytes>);

    /// The choices in the client's view.
    fn shown(&self) -> Vec<&dyn ShownChoice>;

    /// The name under which the client may continue from this reply, and what is known of the conversation then, for
    /// [`Dialect::with_history`](super::Dialect::with_history); `None` where the client sends its history itself.
    fn history(&self, _request: &Request, _body: &[u8]) -> Option<(String, Bytes)> {
        None
    }

    /// The ids of items with which the conversation may be known to end where a later request only refers to them.
    fn last_items(&self) -> Vec<String> {
        Vec::new()
    }

    /// The kinds of items that it carried unjudged, since no client runs them: one for each item, of
    /// [`CARRIED`](super::CARRIED).
    fn carried(&self) -> &[&'static str] {
        &[]
    }

    /// The usage of each reply that reported one.
    fn usages(&self) -> Vec<Usage>;

    /// The model that the last reply with a usage names.
    fn model(&self) -> Option<String>;

    /// Bytes in memory: what is held back or incomplete, and what is known of the choices.
    fn kept_bytes(&self) -> usize;

    /// Whether calls wait for a person's decision.
    fn is_waiting(&self) -> bool;

    /// Whether part of this reply does not reach the client, for now or for good.
    fn is_hiding(&self) -> bool;

    /// Whether nothing has come of the present reply that says anything.
    fn is_at_head(&self) -> bool;

    /// Whether toolrein may write an event of its own now.
    fn at_boundary(&self) -> bool;

    /// Whether the upstream has marked the reply as ended.
    fn is_done(&self) -> bool;

    /// Whether the client has, or is about to get, all that it needs of a stream that only the end of its connection
    /// ends.
    fn is_whole(&self) -> bool;

    /// Whether the client gets other bytes than the upstream's.
    fn is_changed(&self) -> bool;

    /// Why something passed unjudged or was broken off, each reason once.
    fn unjudged(&self) -> &[Unjudged];

    /// Why the client must not get any more of the reply, if that is so.
    fn broken_off(&self) -> Option<Unjudged>;
}

/// One choice of a reply in the client's view.
pub trait ShownChoice {
    /// Its number.
    fn index(&self) -> u32;

    /// Whether the client has its finish.
    fn is_finished(&self) -> bool;

    /// Whether a further reply of the upstream goes on with it.
    fn is_continued(&self) -> bool;

    /// Whether calls of it wait for a person's decision.
    fn is_waiting(&self) -> bool;

    /// How many calls the model made.
    fn calls(&self) -> usize;

    /// The calls that the client has.
    fn released(&self) -> Vec<&Assembled>;

    /// The text that the client has.
    fn text(&self) -> String;

    /// What a person was asked in it, and about which calls.
    fn asked(&self) -> Option<(&Question, &[Assembled])>;

    /// Whether all its calls were blocked.
    fn is_wholly_blocked(&self) -> bool;

    /// The calls of the present reply that the client does not see, and whose results the model reads.
    fn hidden_calls(&self) -> Vec<(&Assembled, &Decision)>;

    /// The blocked calls with their results, as items of the history; `None` where there are none.
    fn hidden_exchange(&self) -> Option<Bytes>;

    /// The next step, if all its calls were blocked.
    fn next(&self) -> Next;
}

/// The next step for the choice of this number.
pub fn next_of(choices: &[&dyn ShownChoice], index: u32) -> Next {
    let choice = choices.iter().find(|choice| choice.index() == index);
    choice.map_or(Next::OtherCalls, |choice| choice.next())
}
