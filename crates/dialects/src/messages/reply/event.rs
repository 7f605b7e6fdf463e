//! One event of a stream, read in one pass: what it is, and the members that matter as spans of its data. The data says what
//! an event is; its `event:` line counts where the data does not say it.

use crate::stray::CallSigns;
use serde_json::{Map, Value};
use smallvec::SmallVec;
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::decode_bytes;
use wire::members::{Member, differs_in_case, members_of};

/// The signs of calls that a client runs.
pub const CALLS: CallSigns = CallSigns { words: &["tool_use\""], is_call };

/// The members of an event that are read.
const MEMBERS: [&[u8]; 6] = [b"type", b"index", b"message", b"content_block", b"delta", b"usage"];
/// The members of a delta that are read.
const DELTA_MEMBERS: [&[u8]; 3] = [b"text", b"partial_json", b"stop_reason"];

/// What an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    MessageStart,
    BlockStart,
    BlockDelta,
    BlockStop,
    MessageDelta,
    MessageStop,
    Ping,
    #[default]
    Other,
}

impl EventKind {
    fn named(name: &[u8]) -> Self {
        match name {
            b"message_start" => Self::MessageStart,
            b"content_block_start" => Self::BlockStart,
            b"content_block_delta" => Self::BlockDelta,
            b"content_block_stop" => Self::BlockStop,
            b"message_delta" => Self::MessageDelta,
            b"message_stop" => Self::MessageStop,
            b"ping" => Self::Ping,
            _ => Self::Other,
        }
    }
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub struct Event {
    pub kind: EventKind,
    /// The value of `index`, and the number that it is.
    pub index: Option<(Span, Option<u64>)>,
    pub message: Option<Span>,
    /// The value of `content_block`.
    pub block: Option<Span>,
    pub delta: Option<Delta>,
    pub usage: Option<Span>,
    /// Readers of JSON may differ on a member that is read.
    pub is_ambiguous: bool,
    /// It has an object or a list that is not read.
    has_unread: bool,
}

/// The `delta` of an event.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    pub span: Span,
    /// All members but the type.
    pub members: SmallVec<[Member; 2]>,
    pub text: Option<Str>,
    pub partial_json: Option<Str>,
    pub stop_reason: Option<Str>,
}

impl Event {
    /// Reads the data of an event; `line`: the value of its `event:` line.
    ///
    /// # Errors
    /// A [`Fault`] where the data is no JSON object.
    pub fn parse(line: Option<&[u8]>, data: &[u8]) -> Result<Self, Fault> {
        let (mut event, mut scanner) = (Self::default(), Scanner::tolerant(data));
        let (mut kind, mut seen) = (None, [false; MEMBERS.len()]);
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let key = decode_bytes(key, data);
            let value = scanner.peek()?;
            let Some(member) = MEMBERS.iter().position(|name| **name == *key) else {
                event.is_ambiguous |= differs_in_case(&key, &MEMBERS);
                event.has_unread |= matches!(value, Kind::Object | Kind::Array);
                scanner.skip_kind(value)?;
                continue;
            };
            event.is_ambiguous |= std::mem::replace(&mut seen[member], true);
            match (MEMBERS[member], value) {
                (b"type", Kind::String) => kind = Some(scanner.string()?),
                (b"delta", Kind::Object) => event.read_delta(&mut scanner)?,
                (name, _) => {
                    let span = scanner.skip_kind(value)?;
                    event.take(name, span, value == Kind::Object, data);
                }
            }
        }
        scanner.end()?;
        event.kind = match kind {
            Some(kind) => EventKind::named(&decode_bytes(kind, data)),
            None => EventKind::named(line.unwrap_or_default()),
        };
        Ok(event)
    }

    fn take(&mut self, name: &[u8], span: Span, is_object: bool, data: &[u8]) {
        let object = Some(span).filter(|_| is_object);
        match name {
            b"index" => {
                let number = std::str::from_utf8(span.of(data)).ok().and_then(|number| number.parse().ok());
                self.is_ambiguous |= number.is_none();
                self.index = Some((span, number));
            }
            b"message" => self.message = object,
            b"content_block" => self.block = object,
            b"usage" => self.usage = object,
            _ => {}
        }
    }

    fn read_delta(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let (data, start, mut delta) = (scanner.text(), scanner.at(), Delta::default());
        let mut seen = [false; DELTA_MEMBERS.len()];
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let (kind, name) = (scanner.peek()?, decode_bytes(key, data));
            let known = DELTA_MEMBERS.iter().position(|known| **known == *name);
            let value = match known.zip(Some(kind)) {
                Some((known, Kind::String)) => {
                    let text = scanner.string()?;
                    *[&mut delta.text, &mut delta.partial_json, &mut delta.stop_reason][known] = Some(text);
                    text.quoted()
                }
                _ => scanner.skip_kind(kind)?,
            };
            match known {
                Some(known) => self.is_ambiguous |= std::mem::replace(&mut seen[known], true),
                None => {
                    self.is_ambiguous |= differs_in_case(&name, &DELTA_MEMBERS);
                    self.has_unread |= matches!(kind, Kind::Object | Kind::Array);
                }
            }
            if *name != *b"type" {
                delta.members.push(Member { key, value });
            }
        }
        delta.span = Span::new(start, scanner.at());
        self.delta = Some(delta);
        Ok(())
    }

    /// The index, where it is a number.
    pub fn number(&self) -> Option<u64> {
        self.index.and_then(|(_, number)| number)
    }

    /// Whether it is a delta that brings a piece of a text and nothing else.
    pub fn is_text_delta(&self, data: &[u8]) -> bool {
        let has_more = self.has_unread || self.block.is_some() || self.message.is_some();
        let is_text = |delta: &Delta| {
            delta.text.is_some() && matches!(&*delta.members, [text] if text.key.raw(data) == b"text")
        };
        self.kind == EventKind::BlockDelta && !has_more && self.delta.as_ref().is_some_and(is_text)
    }

    /// Whether a client may find a call in it where toolrein does not look.
    pub fn holds_stray_call(&self, data: &[u8]) -> bool {
        match self.kind {
            EventKind::MessageStart | EventKind::BlockStart => self.has_unread && self.has_call_beside(data),
            EventKind::BlockDelta | EventKind::MessageDelta => {
                (self.has_unread || self.block.is_some() || self.message.is_some()) && CALLS.are_in(data)
            }
            _ => CALLS.are_in(data),
        }
    }

    /// Whether a call is in a member that is not read.
    fn has_call_beside(&self, data: &[u8]) -> bool {
        members_of(data, Span::new(0, data.len())).iter().any(|member| {
            let is_read = MEMBERS.contains(&&*decode_bytes(member.key, data));
            !is_read && CALLS.are_in(member.value.of(data))
        })
    }
}

/// Whether an object with these members is a call that a client runs.
fn is_call(members: &Map<String, Value>) -> bool {
    members
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| BlockKind::named(kind.as_bytes()).may_run())
}

/// What a block is to the judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Text,
    /// A call that the client runs.
    Call,
    /// It may be a call that some client runs: its type ends like the one of calls.
    Unjudgeable,
    Other,
}

impl BlockKind {
    /// The kind of a block with this `type`.
    pub fn named(name: &[u8]) -> Self {
        let ends_like_call = || name.to_ascii_lowercase().ends_with(b"tool_use");
        match name {
            b"text" => Self::Text,
            b"tool_use" => Self::Call,
            b"server_tool_use" | b"mcp_tool_use" => Self::Other,
            _ if ends_like_call() => Self::Unjudgeable,
            _ => Self::Other,
        }
    }

    /// Whether some client may run it.
    pub fn may_run(self) -> bool {
        matches!(self, Self::Call | Self::Unjudgeable)
    }
}
