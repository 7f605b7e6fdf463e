//! The interface between the reply pipeline and a dialect: the codec turns the upstream's bytes into frames and calls, and
//! frames with decisions into the client's bytes. It decides nothing, holds nothing back and reads no clock.

use super::accepted::has_id;
use super::error::UpstreamError;
use super::markup::ToolNames;
use super::reply::{Form, Options, Unjudged};
use super::reply_choice::ReplyChoice;
use crate::variant::PlannedRequest;
use bytes::Bytes;
use serde_json::Value;
use smallvec::SmallVec;
use wire::body::Span;
use wire::json::unescaped;
use wire::sse::write_comment;

/// The member that holds the report at the end of a stream.
pub const REPORT: &str = "toolrein";

/// What the comment says that keeps the client of a stream waiting.
pub const WAITS: &str = "toolrein waits";

/// Most calls of a choice and most choices that are read: several times what any provider allows (128 each).
pub const MOST_CALLS: usize = 512;
pub const MOST_CHOICES: usize = 512;

/// The statements of a frame.
pub type ReplyEvents = SmallVec<[ReplyEvent; 3]>;

/// One complete piece of a reply: an event of a stream, or a whole reply.
#[derive(Debug)]
pub struct Frame {
    /// Its bytes in the client's form. They go out where nothing acts.
    pub raw: Bytes,
    pub payload: Payload,
    pub kind: FrameKind,
    /// Tokens used: read before the rest, since by it a finish may be a cut.
    pub usage: Option<Box<FrameUsage>>,
    /// What it says, in order.
    pub events: ReplyEvents,
    /// It is of a later reply than the first.
    pub is_later: bool,
    /// Two JSON readers may find different calls in it.
    pub is_ambiguous: bool,
    /// Its size for the limit on held bytes. For parts of calls only arguments and text count, since some models send one
    /// token per event, with hundreds of bytes around it.
    pub counted_bytes: u32,
    /// The reply ends with it: it goes out when nothing waits and nothing is asked again.
    pub ends: bool,
    /// Clients may read different calls in it, and it passes where no policy restricts calls.
    pub is_doubtful: bool,
    /// Its number among the frames of the client's reply.
    pub number: u32,
    /// A number for the codec alone: what of its own the frame belongs to.
    pub tag: Option<u16>,
}

/// Where the JSON of a frame is.
#[derive(Clone, Debug, Default)]
pub enum Payload {
    #[default]
    None,
    /// A part of the frame's bytes.
    Span(Span),
    /// Joined from several lines.
    Joined(Box<Bytes>),
}

/// What a frame is.
#[derive(Debug)]
pub enum FrameKind {
    /// A part of the reply.
    Part,
    /// It begins the reply and says nothing yet.
    Head,
    /// The upstream's error, in which no client finds a call; `may_be_reply`: a more tolerant client might.
    Error { error: Box<UpstreamError>, may_be_reply: bool },
    /// The upstream's mark that the reply has ended, outside of it.
    End,
    /// A comment, or another keep-alive.
    Idle,
    /// It is left out: the client has what it says, or must not have it.
    Dropped,
    /// It cannot be read, or clients may read it differently.
    Unread(Unjudged),
    /// As [`Self::Unread`], and it must not reach the client whatever the policies are.
    Forbidden(Unjudged),
}

/// The tokens that a frame reports.
#[derive(Debug, Default)]
pub struct FrameUsage {
    /// Each report as a span of the payload, the one that counts last.
    pub reports: SmallVec<[Span; 1]>,
    /// The model that the frame names, as a span of the payload.
    pub model: Option<Span>,
    /// The frame has no choice: everything else has come.
    pub is_alone: bool,
}

/// One statement of a frame.
#[derive(Clone, Copy, Debug)]
pub enum ReplyEvent {
    /// The frame has a part of this choice: what follows, up to the next such event, is about it.
    Choice(u32),
    /// The choice begins: its role.
    Begin,
    /// A part of the text with this number in the choice: the frame waits with it, and is left out with it.
    OfText(u32),
    /// Text that a person reads, as a span of the payload inside of a JSON string.
    Text(Span),
    /// A piece of a text that comes whole later, as a span of the payload inside of a JSON string.
    TextPiece(Span),
    /// Something that is neither text nor a call: a refusal, or audio.
    OtherContent,
    /// A part of a call.
    Call(CallPiece),
    /// A client may now read a call that another one ceased to repeat.
    Escape,
    /// The choice has ended; `is_cut`: before the model had ended it.
    Finish { is_cut: bool },
    /// Clients see an error beside the rest.
    Error,
    /// The calls of the frame cannot be left out of it.
    Fixed,
}

/// A part of a call in a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallPiece {
    /// The position of the call among the choice's calls.
    pub call: u16,
    /// The position of the choice in the frame.
    pub choice_at: u16,
    /// The position of the part among the choice's parts of calls in the frame.
    pub position: u16,
    /// It is the call's first part.
    pub begins: bool,
    /// It is the call's first part with arguments.
    pub carries: bool,
    /// It changed or gave the call's name.
    pub names: bool,
    /// It gave a piece of a name, so that some client may know the call by a new name.
    pub respells: bool,
    /// It gave arguments other than white space.
    pub argues: bool,
    /// It came after what the protocol marks as the end of the call.
    pub is_late: bool,
    /// Clients may read another call than toolrein.
    pub is_ambiguous: bool,
    /// It is a whole call: no other part belongs to it.
    pub is_whole: bool,
}

/// What the engine says of the upstream's next reply.
#[derive(Debug)]
pub struct NextReply {
    /// The form in which the upstream sends it.
    pub form: Form,
    /// Its HTTP status.
    pub status: u16,
    /// The choice that it goes on with, where it is not the first.
    pub continues: Option<u32>,
    /// Frames with lines that only some clients see are not read.
    pub is_strict: bool,
    /// Nothing is left out.
    pub observes: bool,
    /// In a final answer: the tools whose calls the model may write as text. Such calls are removed.
    pub markup: Option<ToolNames>,
    /// The tools whose calls the model may write, where a server may have stopped reading calls.
    pub tools: Option<ToolNames>,
    /// The request declares no shell that the client runs.
    pub hosts_shell: bool,
}

/// What the writing of a frame depends on, besides the calls.
#[derive(Debug, Default)]
pub struct WriteContext {
    /// Something is left out, added or written anew.
    pub acts: bool,
    /// Another reply is going to follow, so usage is not reported yet.
    pub hold_usage: bool,
    /// What to report instead of the reply's usage, also where it reports none.
    pub usage: Option<Value>,
}

/// The last event of a stream that may lack its end.
#[derive(Debug, Default)]
pub struct LastEvent {
    /// Nothing can come after it.
    pub ends: bool,
    /// The choices whose finish it reports.
    pub finished: Vec<u32>,
}

/// The codec of the replies to one client request.
pub trait ReplyCodec: Send {
    /// A reply of the upstream follows.
    fn begin(&mut self, reply: NextReply);

    /// Changes the form of the client's reply.
    fn turn_to(&mut self, form: Form);

    /// Takes the next bytes of the upstream.
    fn push(&mut self, bytes: Bytes);

    /// The next complete frame, whose calls are added to `choices`; `unjudged`: it need not be parsed.
    fn next(&mut self, choices: &mut Vec<ReplyChoice>, unjudged: bool) -> Option<Frame>;

    /// Gives the client the next event as it came, and adds its text to its choice, if it differs from the event before in that
    /// text alone; false if it is to be read as a frame. Only where nothing waits, nothing acts and no choice has a call.
    fn pass_text(&mut self, _choices: &mut [ReplyChoice], _out: &mut Vec<Bytes>) -> bool {
        false
    }

    /// Whether it is certain that nothing can be read before further bytes come, or the end.
    fn is_drained(&self) -> bool {
        false
    }

    /// The upstream's reply has ended: what is left is read next.
    fn end(&mut self);

    /// Whether the upstream left its last event open; false from then on.
    fn take_open(&mut self) -> bool;

    /// Whether toolrein could write an event of its own here.
    fn at_boundary(&self) -> bool;

    /// Whether the reply is a body and not a stream.
    fn is_body(&self) -> bool;

    /// The event that has not ended, where the reply is a stream, or that it is incomplete.
    fn last_event(&self) -> Option<Result<LastEvent, IncompleteEvent>>;

    /// Whether the upstream has ended its reply without what its protocol wants at the end: it is not asked again.
    fn is_cut(&self) -> bool {
        false
    }

    /// Bytes in memory that are not read yet.
    fn unread_bytes(&self) -> usize;

    /// Bytes in memory of what is known of the reply besides its choices.
    fn known_bytes(&self) -> usize;

    /// The calls of `choice` that the client does not see, each with its result, as items of the history; `None` where there
    /// are none.
    fn hidden_exchange(&self, choice: &ReplyChoice, known_ids: &KnownIds) -> Option<Bytes>;

    /// The present reply has ended, and another one goes on with `choice`.
    fn end_reply(&mut self, _choice: &ReplyChoice) {}

    /// The next reply is toolrein's own, in the model's place: no request can continue from it at the upstream.
    fn expect_own(&mut self) {}

    /// The name under which the client may continue from this reply, and what is known of the conversation then, for
    /// [`Dialect::upstream_history`](super::Dialect::upstream_history); `None` where the client sends its history itself.
    fn history(&self, _planned: &PlannedRequest<'_>, _choices: &[ReplyChoice]) -> Option<(String, Bytes)> {
        None
    }

    /// The ids of items with which the conversation may be known to end where a later request only refers to them.
    fn last_items(&self, _choices: &[ReplyChoice]) -> Vec<String> {
        Vec::new()
    }

    /// The kinds of items that it carried unjudged, since no client runs them: one for each item, of
    /// [`CARRIED`](super::CARRIED).
    fn carried(&self) -> &[&'static str] {
        &[]
    }

    /// Gives the client a frame of a stream, without the calls that it does not see.
    fn forward(
        &mut self,
        frame: &Frame,
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    );

    /// Gives the client a whole reply: the first frame, with the choices of later ones in place of its own.
    fn forward_whole(
        &mut self,
        frames: &[Frame],
        choices: &[ReplyChoice],
        context: &WriteContext,
        out: &mut Vec<Bytes>,
    );

    /// Writes a text of toolrein's into a choice, `before` the model's or after it.
    fn write_text(&mut self, choice: u32, text: &str, before: bool, out: &mut Vec<Bytes>);

    /// The client's bytes of an error of the upstream.
    fn forward_error(&mut self, raw: Bytes) -> Bytes {
        raw
    }

    /// Ends a stream that the upstream has cut, where the client would not see that.
    fn write_cut(&mut self, _out: &mut Vec<Bytes>) {}

    /// Writes the missing finish of a choice of a stream; `has_calls`: the client is to run calls of it.
    fn write_finish(&mut self, choice: u32, has_calls: bool, out: &mut Vec<Bytes>);

    /// Gives the client the usage of all replies at the end of a stream whose last reply reports none, where an earlier one's
    /// was held back. The frame that ends the stream follows.
    fn write_usage(&mut self, _usage: &Value, _out: &mut Vec<Bytes>) {}

    /// Changes what toolrein added for the client.
    fn set_options(&mut self, options: &Options);

    /// Whether the client gets other bytes than the upstream's.
    fn is_changed(&self) -> bool;

    /// The event that reports an upstream's refusal, of this status and with this body, in the client's stream.
    fn error_event(&mut self, status: u16, body: &[u8]) -> Bytes;

    /// The event that reports toolrein's own error in the client's stream.
    fn own_error_event(&mut self, message: &str, code: &str) -> Bytes;

    /// Gives the client what toolrein `report`s at the end of a stream, a JSON object, as the member [`REPORT`] of the
    /// last event or of one of its own before the last. The frame that ends the stream follows.
    fn write_report(&mut self, report: &str, out: &mut Vec<Bytes>) {
        out.push(self.comment(&format!("{REPORT} {report}")));
    }

    /// A comment of a stream, which no client reads.
    fn comment(&mut self, text: &str) -> Bytes {
        write_comment(text)
    }

    /// The heartbeat that keeps the client of a stream waiting.
    fn heartbeat(&mut self) -> Bytes {
        self.comment(WAITS)
    }
}

/// Where the ids stand that the upstream knows: no call of toolrein's may have one of them.
#[derive(Debug, Default)]
pub struct KnownIds {
    /// The request's body; empty where the upstream keeps the conversation: it knows its calls by their own ids.
    pub body: Bytes,
    /// The hidden exchanges that the model sees with it.
    pub hidden: Vec<Bytes>,
}

impl KnownIds {
    /// Whether a call of the conversation has this id.
    pub fn has(&self, id: &str) -> bool {
        has_id(&self.body, id) || self.hidden.iter().any(|exchange| has_id(exchange, id))
    }
}

/// The last event of a stream is incomplete.
#[derive(Debug)]
pub struct IncompleteEvent;

impl Frame {
    /// A frame that says nothing.
    pub fn idle(raw: Bytes) -> Self {
        Self::new(raw, FrameKind::Idle)
    }

    /// A frame without events.
    pub fn new(raw: Bytes, kind: FrameKind) -> Self {
        let counted_bytes = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        let (payload, events) = (Payload::None, SmallVec::new());
        Self {
            raw,
            payload,
            kind,
            usage: None,
            events,
            is_later: false,
            is_ambiguous: false,
            counted_bytes,
            ends: false,
            is_doubtful: false,
            number: 0,
            tag: None,
        }
    }

    /// Bytes in memory while it waits.
    pub fn size(&self) -> usize {
        let joined = if let Payload::Joined(joined) = &self.payload { joined.len() } else { 0 };
        let spilled = if self.events.spilled() { self.events.len() * size_of::<ReplyEvent>() } else { 0 };
        size_of::<Self>() + self.raw.len() + joined + spilled
    }

    /// Its JSON; empty where it has none.
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::None => &[],
            Payload::Span(span) => span.of(&self.raw),
            Payload::Joined(joined) => joined,
        }
    }

    /// Whether it ends the reply as failed.
    pub fn reports_failure(&self) -> bool {
        self.ends && self.events.iter().any(|event| matches!(event, ReplyEvent::Error))
    }

    /// What it says, if that is the text of one choice alone.
    pub fn text_alone(&self) -> Option<FramePart<'_>> {
        let is_part = matches!(self.kind, FrameKind::Part);
        let says_more =
            self.usage.is_some() || self.is_ambiguous || self.is_doubtful || self.ends || !is_part;
        let (first, events) = self.events.split_first().filter(|_| !says_more)?;
        let is_of_text = |event: &ReplyEvent| {
            use ReplyEvent::{Begin, OfText, Text, TextPiece};
            matches!(event, Begin | OfText(_) | Text(_) | TextPiece(_))
        };
        match *first {
            ReplyEvent::Choice(choice) if events.iter().all(is_of_text) => Some(FramePart { choice, events }),
            _ => None,
        }
    }

    /// What it says of each choice.
    pub fn parts(&self) -> impl Iterator<Item = FramePart<'_>> {
        let begins = |event: &ReplyEvent| matches!(event, ReplyEvent::Choice(_));
        let starts = self.events.iter().enumerate().filter(move |(_, event)| begins(event));
        starts.map(move |(at, event)| {
            let rest = &self.events[at + 1..];
            let end = rest.iter().position(begins).unwrap_or(rest.len());
            let ReplyEvent::Choice(choice) = *event else { return FramePart { choice: 0, events: &[] } };
            FramePart { choice, events: &rest[..end] }
        })
    }

    /// The calls that it has parts of, each with its choice.
    pub fn calls(&self) -> impl Iterator<Item = (u32, &CallPiece)> {
        self.parts().flat_map(|part| part.calls().map(move |call| (part.choice, call)))
    }
}

/// What a frame says of one choice.
#[derive(Clone, Copy)]
pub struct FramePart<'a> {
    pub choice: u32,
    pub events: &'a [ReplyEvent],
}

impl<'a> FramePart<'a> {
    /// The parts of calls.
    pub fn calls(&self) -> impl Iterator<Item = &'a CallPiece> + use<'a> {
        self.events
            .iter()
            .filter_map(|event| if let ReplyEvent::Call(piece) = event { Some(piece) } else { None })
    }

    /// The texts.
    pub fn texts(&self) -> impl Iterator<Item = Span> + use<'a> {
        self.events
            .iter()
            .filter_map(|event| if let ReplyEvent::Text(text) = event { Some(*text) } else { None })
    }

    /// Bytes of text, escapes as written.
    pub fn text_bytes(&self) -> usize {
        self.texts().map(|text| text.len()).sum()
    }

    /// The numbers of the texts that it has parts of.
    pub fn parts_of_texts(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.events.iter().filter_map(|event| {
            if let ReplyEvent::OfText(text) = event { Some(*text as usize) } else { None }
        })
    }

    /// Notes in its choice that the client was given it; `text_at` gives the bytes of a text.
    pub fn note_given<'t>(&self, choice: &mut ReplyChoice, text_at: impl Fn(Span) -> &'t [u8]) {
        let (mut text_bytes, mut finishes) = (0, false);
        for event in self.events {
            match event {
                ReplyEvent::Text(text) => text_bytes += text_at(*text).len(),
                ReplyEvent::OfText(text) => choice.note_given(*text as usize),
                ReplyEvent::TextPiece(piece) => choice.note_piece(&unescaped(text_at(*piece))),
                ReplyEvent::Finish { .. } => finishes = true,
                _ => {}
            }
        }
        choice.note_shown(text_bytes, finishes);
    }

    /// Whether it ends the choice.
    pub fn finishes(&self) -> bool {
        self.events.iter().any(|event| matches!(event, ReplyEvent::Finish { .. }))
    }
}
