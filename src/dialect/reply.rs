//! Replies as the exchange sees them, whatever their wire protocol: bytes go in, and the client's come out, with every call
//! judged on the way.

use crate::conversation::assembled::Assembled;
use crate::dialect::error::UpstreamError;
use crate::plan::approval::{ApprovalDecision, Question};
use crate::plan::decision::Next;
use bytes::Bytes;
use serde_json::Value;

/// How the client gets its reply, and how one reply of the upstream comes.
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

/// What the caller asked for in the client's place. May change with the form of the request, until a reply is taken.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The stream's usage was asked for by us alone: the client gets none.
    pub cut_usage: bool,
    /// A line to the person who reads the answer, put before it.
    pub preface: Option<String>,
}

/// Why something passed unjudged, or was broken off because it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudged {
    EventTooLong,
    HeldTooMuch,
    ReplyTooLong,
    NotJson,
    /// Two readers may see different calls in it.
    Ambiguous,
}

/// How a reply of the upstream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything is with the client.
    Complete,
    /// Every call of this choice was blocked: the model is to be asked again with the hidden exchange appended.
    Reask { choice: u32, hidden: Bytes },
    /// Calls wait for a person's decision: to be finished again once all are settled.
    Waits,
    /// The reply is the upstream's error, which waits for the caller's decision: see [`ReplyJudge::refusal`].
    Refused,
    /// The rest must not reach the client unjudged.
    BrokenOff(Unjudged),
}

/// A reply that is the upstream's error.
#[derive(Debug)]
pub struct Refusal {
    pub error: UpstreamError,
    /// Its bytes, as the client gets them if it stands.
    pub raw: Bytes,
}

/// The reader, the judge and the writer of one client request's replies: what nothing acts on goes out as it came, byte for
/// byte, and the client gets one coherent reply. Asks nobody again by itself.
pub trait Reply<J>: Send {
    /// The judge of its calls.
    fn judging(&self) -> &J;

    /// The same, to be told what follows.
    fn judging_mut(&mut self) -> &mut J;

    /// Changes what the caller asked for in the client's place, with the form of the request.
    fn set_options(&mut self, options: Options);

    /// Says how the next reply comes, and with which HTTP status.
    fn begin(&mut self, form: Form, status: u16);

    /// The client gets its reply in this form after all. To be said before anything was judged.
    fn turn_to(&mut self, form: Form);

    /// Takes the next bytes of the upstream; what the client shall get is appended to `out`: of a stream at once, of a
    /// whole reply when it is complete.
    fn push(&mut self, bytes: Bytes, now_ms: u64, out: &mut Vec<Bytes>);

    /// The upstream's reply has ended as it should, or all its calls that waited are settled.
    fn finish(&mut self, now_ms: u64, out: &mut Vec<Bytes>) -> Ending;

    /// Goes on with a further reply to the same request, for the choice that is asked again.
    fn continue_with(&mut self, choice: u32);

    /// The upstream's error that the present reply is.
    fn refusal(&self) -> Option<&Refusal>;

    /// Gives the upstream's error out, and whatever came behind it.
    fn let_refusal_stand(&mut self, now_ms: u64, out: &mut Vec<Bytes>);

    /// Takes a person's decision on a call that waited for one, and gives out what waited for it.
    fn settle(&mut self, id: u32, decision: ApprovalDecision, out: &mut Vec<Bytes>);

    /// The choices as the client has them.
    fn shown(&self) -> Vec<&dyn ShownChoice>;

    /// How many choices the client has the finish of.
    fn finished(&self) -> usize;

    /// Whether there are choices, and the client has the finish of each.
    fn is_finished(&self) -> bool;

    /// The usage of all replies together.
    fn total_usage(&self) -> Option<Value>;

    /// Bytes that are kept: what is held back or not whole yet, and what is known of the choices.
    fn kept_bytes(&self) -> usize;

    /// Whether calls wait for a person's decision.
    fn is_waiting(&self) -> bool;

    /// Whether something of this reply does not reach the client, for now or for good.
    fn is_hiding(&self) -> bool;

    /// Whether an event of ours may be written now.
    fn at_boundary(&self) -> bool;

    /// Whether the upstream has said that nothing more comes.
    fn is_done(&self) -> bool;

    /// Whether the client has got, or gets, all that is needed of a stream which nothing but its connection ends.
    fn is_whole(&self) -> bool;

    /// Whether the client gets other bytes than came.
    fn is_changed(&self) -> bool;

    /// Why something passed unjudged or was broken off, each reason once.
    fn unjudged(&self) -> &[Unjudged];

    /// Why the client must get nothing more of the reply, if so.
    fn broken_off(&self) -> Option<Unjudged>;
}

/// One choice of a reply as the client has it.
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
    fn is_wholly_withheld(&self) -> bool;

    /// The blocked calls with their results, as items of the history; `None` where there are none.
    fn round(&self) -> Option<Bytes>;

    /// What is next where all its calls were blocked.
    fn next(&self) -> Next;
}

/// What is next for the choice of this number.
pub fn next_of(choices: &[&dyn ShownChoice], index: u32) -> Next {
    let choice = choices.iter().find(|choice| choice.index() == index);
    choice.map_or(Next::OtherCalls, |choice| choice.next())
}
