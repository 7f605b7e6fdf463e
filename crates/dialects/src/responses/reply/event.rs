//! The parser of one event of a stream of the Responses API. Goes by the members of an event and not by its type alone:
//! a client may read a call from any event that holds one.

use super::last::ResponseMembers;
use crate::chat::call::parse_index;
use crate::content::parse_arguments;
use crate::error::may_be_in_200;
use crate::responses::item::{Item, parse_item};
use model::call::Arguments;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode, decode_bytes, in_one_case};
use wire::members::{Member, SeenMembers, may_be_read_as, members_of, string_or_skip};

/// The spans of one event, within its data.
#[derive(Clone, Debug, Default)]
pub struct Event {
    pub kind: Option<Str>,
    /// The value of its `event:` line, where it has no type.
    name: Option<String>,
    pub index: Option<(Span, Index)>,
    /// The id of the item that it is a piece of.
    pub item_id: Option<Str>,
    /// The id of the call that it is a piece of, at servers that write it.
    pub call_id: Option<Str>,
    /// The name of the tool, which the event has that ends the arguments.
    pub tool: Option<Str>,
    pub sequence: Option<(Span, u64)>,
    pub item: Option<Item>,
    /// The whole response, in the events of its life.
    pub response: Option<Span>,
    /// What was read of it where it is a member.
    pub members: Option<Box<ResponseMembers>>,
    pub delta: Option<Str>,
    /// The random text by which OpenAI gives all events of texts the same length.
    pub padding: Option<Str>,
    /// The complete arguments of a call, in the event that ends them.
    pub arguments: Arguments,
    /// Two parsers may see different things in it.
    pub ambiguous: bool,
    /// It may report an error as [`parse_in_200`](crate::error::parse_in_200) finds it.
    pub may_be_error: bool,
}

/// The `output_index` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    Number(u64),
    /// A hash of what no list has as an index: a negative number, one that JavaScript cannot tell from its neighbours,
    /// or no number at all. It may distinguish items; the client keeps it as it came.
    Label(u64),
}

impl Index {
    /// Its number, where it can be one of a list.
    pub fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }
}

/// The numbers of an event that the client may get changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventNumbers {
    pub sequence: Option<(Span, u64)>,
    pub index: Option<(Span, Index)>,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The response as a whole; `ended`: its last event.
    Life { ended: bool },
    /// An item begins.
    Added,
    /// An item is complete.
    Done,
    /// A piece of an item, or something else.
    Other,
}

/// The members that decide on what an event is.
const DECISIVE: [&[u8]; 13] = [
    b"type",
    b"output_index",
    b"item_id",
    b"call_id",
    b"name",
    b"sequence_number",
    b"item",
    b"response",
    b"delta",
    b"arguments",
    b"input",
    b"diff",
    b"command",
];

impl Event {
    /// Reads the data of an event.
    ///
    /// # Errors
    /// A [`Fault`] where it is no JSON object.
    pub fn parse(data: &[u8]) -> Result<Self, Fault> {
        let mut scanner = Scanner::tolerant(data);
        let (mut event, mut seen) = (Self::default(), SeenMembers::default());
        if scanner.peek()? != Kind::Object {
            return Err(Fault::Type);
        }
        let (start, mut has_output) = (scanner.at(), false);
        scanner.object()?;
        while let Some(name) = scanner.member()? {
            let (key, kind) = (decode_bytes(name, data), scanner.peek()?);
            let value = scanner.at();
            has_output |= *key == *b"output" && kind == Kind::Array;
            let folded = in_one_case(&key);
            if let Some(at) = DECISIVE.iter().position(|name| *name == &*folded) {
                event.ambiguous |= seen.once(at as u32).is_err() || !DECISIVE.contains(&&*key);
            }
            event.member(&key, kind, &mut scanner)?;
            let member = Member { key: name, value: Span::new(value, scanner.at()) };
            event.may_be_error |= may_be_in_200([&member], data);
        }
        // A whole response takes the place of its event.
        if has_output && event.response.is_none() && event.item.is_none() {
            event.response = Some(Span::new(start, scanner.at()));
        }
        scanner.end()?;
        Ok(event)
    }

    /// Reads the data of an event with this `event:` line.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn parse_named(name: Option<&[u8]>, data: &[u8]) -> Result<Self, Fault> {
        let mut event = Self::parse(data)?;
        if event.kind.is_none() {
            event.name = name.map(|name| String::from_utf8_lossy(name).into_owned());
        }
        Ok(event)
    }

    fn member(&mut self, key: &[u8], kind: Kind, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        match key {
            b"type" => self.kind = string_or_skip(scanner)?,
            b"output_index" => self.index = parse_output_index(scanner, kind)?,
            b"item_id" => self.item_id = string_or_skip(scanner)?,
            b"call_id" => self.call_id = string_or_skip(scanner)?,
            b"name" => self.tool = string_or_skip(scanner)?,
            b"sequence_number" => self.sequence = parse_index(scanner, kind, &mut false)?,
            b"item" if kind == Kind::Object => {
                let item = parse_item(scanner)?;
                self.ambiguous |= item.call.ambiguous;
                self.item = Some(item);
            }
            b"response" if kind == Kind::Object => {
                let (start, mut members) = (scanner.at(), Box::<ResponseMembers>::default());
                members.read_from(scanner)?;
                (self.response, self.members) = (Some(Span::new(start, scanner.at())), Some(members));
            }
            b"item" | b"response" => {
                let value = scanner.skip_kind(kind)?;
                self.ambiguous |= may_be_read_as(key, value.of(scanner.text()), &[b"item", b"response"]);
            }
            b"delta" => self.delta = string_or_skip(scanner)?,
            b"obfuscation" => self.padding = string_or_skip(scanner)?,
            b"arguments" | b"input" | b"diff" | b"command" => self.arguments = parse_arguments(scanner)?,
            _ => drop(scanner.skip()?),
        }
        Ok(())
    }

    /// Its numbers.
    pub fn numbers(&self) -> EventNumbers {
        EventNumbers { sequence: self.sequence, index: self.index }
    }

    /// Whether it may be a piece of a text: it holds no item and no response.
    pub fn is_of_text(&self) -> bool {
        self.delta.is_some() && self.item.is_none() && self.response.is_none()
    }

    /// Its `type`, or what its `event:` line says; empty where it has neither.
    pub fn type_of<'a>(&'a self, data: &'a [u8]) -> Cow<'a, str> {
        self.kind.map_or_else(|| self.name.as_deref().unwrap_or_default().into(), |kind| decode(kind, data))
    }

    /// What it is about.
    pub fn class(&self, data: &[u8]) -> Class {
        let kind = self.type_of(data);
        if let Some(response) = self.response {
            let ended = match &*kind {
                "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                    true
                }
                "response.created" | "response.in_progress" | "response.queued" => false,
                _ => has_ended(response, data),
            };
            return Class::Life { ended };
        }
        match (&self.item, kind.ends_with(".added")) {
            (Some(_), true) => Class::Added,
            (Some(_), false) => Class::Done,
            (None, _) => Class::Other,
        }
    }

    /// Whether it ends the arguments of a call. A call of a shell or of a patch may have several such events.
    pub fn ends_arguments(&self, data: &[u8]) -> bool {
        self.is_of_named_call(data) && self.delta.is_none() && self.arguments != Arguments::Absent
    }

    /// Whether it is a piece of a call that no client runs without a name; of the others, the kind is the name.
    pub fn is_of_named_call(&self, data: &[u8]) -> bool {
        let kind = self.type_of(data);
        kind.contains("function_call") || kind.contains("custom_tool_call")
    }

    /// Whether it is a piece of a call that the client runs, judged by its type alone.
    pub fn is_of_call(&self, data: &[u8]) -> bool {
        let kind = self.type_of(data);
        let names = [
            "function_call",
            "custom_tool_call",
            "local_shell_call",
            "shell_call_command",
            "apply_patch_call",
        ];
        // Most events are of text, and all these names have it.
        kind.contains("_call") && names.iter().any(|name| kind.contains(name))
    }

    /// Whether it carries arguments of a call that the provider runs, by its type, and names no tool.
    pub fn is_of_hosted_call(&self, data: &[u8]) -> bool {
        self.is_of_arguments(data)
            && !self.is_of_call(data)
            && self.tool.is_none_or(|tool| tool.span.is_empty())
    }

    /// Whether it carries arguments of a call, be it one that the provider runs: `response.mcp_call_arguments.done`.
    pub fn is_of_arguments(&self, data: &[u8]) -> bool {
        let kind = self.type_of(data);
        let names_arguments = |kind: &str| kind.contains("_call_arguments.") || kind.contains("_call_input.");
        // Most events are of text, and all these names have it.
        kind.contains("_call") && (names_arguments(&kind) || self.is_of_call(data))
    }
}

/// Reads an `output_index`. What JavaScript takes for one key of an object is one label.
fn parse_output_index(scanner: &mut Scanner<'_>, kind: Kind) -> Result<Option<(Span, Index)>, Fault> {
    let (start, mut is_unusable) = (scanner.at(), false);
    let number = parse_index(scanner, kind, &mut is_unusable)?;
    if let Some((span, number)) = number {
        return Ok(Some((span, Index::Number(number))));
    }
    if !is_unusable {
        return Ok(None);
    }
    let span = Span::new(start, scanner.at());
    let text = String::from_utf8_lossy(span.of(scanner.text())).into_owned();
    let key = match kind {
        Kind::Number => text.parse().map_or(text, |number: f64| number.to_string()),
        Kind::String => text.trim_matches('"').to_owned(),
        Kind::Object => "[object Object]".to_owned(),
        _ => text,
    };
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    Ok(Some((span, Index::Label(hasher.finish()))))
}

/// Whether the status of a response says that nothing follows.
fn has_ended(response: Span, data: &[u8]) -> bool {
    members_of(data, response).iter().filter(|member| *decode_bytes(member.key, data) == *b"status").any(
        |status| {
            let value = Scanner::within(data, status.value).string();
            value.is_ok_and(|value| {
                let ends: [&[u8]; 4] = [b"completed", b"incomplete", b"failed", b"cancelled"];
                ends.contains(&&*decode_bytes(value, data))
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::parse_in_200;

    #[test]
    fn errors_are_in_events_that_may_hold_one() {
        for (data, is_error) in [
            (r#"{"type":"error","code":"x","message":"m"}"#, true),
            (r#"{"type":"response.failed","response":{"error":{"message":"m"}}}"#, true),
            (r#"{"object":"error","message":"m"}"#, true),
            (r#"{"error":{"message":"m"}}"#, true),
            ("{\"\\u0065rror\":{\"message\":\"error\"},\"x\":{\"error\":1}}", true),
            (r#"{"base_resp":{"status_code":1,"status_msg":"m"}}"#, true),
            (r#"{"type":"response.completed","response":{"error":null,"output":[]}}"#, false),
            (r#"{"type":"response.output_text.delta","delta":"an error"}"#, false),
        ] {
            let event = Event::parse(data.as_bytes()).unwrap();
            assert_eq!(parse_in_200(data.as_bytes()).is_some(), is_error, "{data}");
            assert_eq!(event.may_be_error, is_error, "{data}");
        }
    }
}
