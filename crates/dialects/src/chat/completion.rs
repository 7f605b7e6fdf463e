//! The parser of chat-completions replies to spans: a whole `chat.completion` or one chunk of a stream, which differ
//! only in `message` and `delta`. Knows the positions under every recorded quirk; assembles nothing over several
//! chunks.

use super::call::{parse_call, parse_index, parse_legacy_call};
use super::message::parse_part;
use crate::codec::{MOST_CALLS, MOST_CHOICES};
use crate::content::parse_content;
use crate::stray::CallSigns;
use memchr::memmem;
use model::call::{Arguments, ToolCall};
use model::message::Content;
use serde_json::{Map, Value, json};
use wire::body::{Fault, Kind, Scanner, Span, Str};
use wire::json::{decode_bytes, in_one_case};
use wire::members::{
    Member, SeenMembers, differs_in_case, may_be_read_as, may_be_text_of, members_of, string_or_skip,
};

/// The signs of calls of chat completions outside of the list of choices: a reply that holds some within another.
pub const CALLS: CallSigns =
    CallSigns { words: &["tool_calls\"", "function_call\""], is_call: is_reply_with_calls };

/// The number of members that an object of a reply has at most providers.
const MEMBERS: usize = 10;
/// Most members, content parts and calls that are read of one reply: this bounds its memory.
const MOST_PIECES: usize = 32 * 1024;

/// Whether a reply came whole or as one chunk of a stream. This decides which one counts where a choice has both a
/// `message` and a `delta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Whole,
    Chunk,
}

/// A reply, or one chunk of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Every member of the top object, in order.
    pub members: Vec<Member>,
    pub choices: Vec<Choice>,
    /// `usage`, where it is an object.
    pub usage: Option<Member>,
    /// The usage within `x_groq`, where Groq reports it without being asked.
    pub usage_within: Option<Span>,
    /// Two JSON parsers may find different calls in it, besides those that are ambiguous themselves (see
    /// [`ToolCall::ambiguous`]).
    pub ambiguous: bool,
}

/// One choice of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The object with its braces.
    pub span: Span,
    pub members: Vec<Member>,
    /// Its index; 0 where it is missing.
    pub index: u32,
    /// The `message` of a whole reply, the `delta` of a chunk; the other one where that is all there is.
    pub delta: Delta,
    /// Every further `message` or `delta` that holds calls.
    pub beside: Vec<Delta>,
    /// `finish_reason`, where it is a string that is not empty.
    pub finish: Option<Str>,
    /// The usage within it, where Moonshot reports it, or within its `message` or `delta`.
    pub usage: Option<Span>,
}

/// A `delta` or `message` of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// The object with its braces; empty where there is none.
    pub span: Span,
    pub members: Vec<Member>,
    pub role: Option<Str>,
    pub content: Content,
    pub calls: Vec<ToolCall>,
}

impl Default for Delta {
    fn default() -> Self {
        Self {
            span: Span::default(),
            members: Vec::new(),
            role: None,
            content: Content::Absent,
            calls: Vec::new(),
        }
    }
}

impl Reply {
    /// Reads one chunk of a stream.
    ///
    /// # Errors
    /// A [`Fault`] where it is no JSON object, lies outside the API's types, or has more pieces than are read.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        Self::read(text, Form::Chunk)
    }

    /// Reads a reply of this form.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn read(text: &[u8], form: Form) -> Result<Self, Fault> {
        if text.len() > u32::MAX as usize {
            return Err(Fault::Size);
        }
        let mut scanner = Scanner::tolerant(text);
        if scanner.peek()? != Kind::Object {
            return Err(Fault::Type);
        }
        let mut reader = Reader { form, ambiguous: false, pieces: 0 };
        let mut reply = Self { members: Vec::with_capacity(MEMBERS), ..Self::default() };
        let mut has_choices = false;
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let kind = scanner.peek()?;
            let start = scanner.at();
            match &*decode_bytes(key, text) {
                b"choices" if kind == Kind::Array => {
                    reader.ambiguous |= std::mem::replace(&mut has_choices, true);
                    reader.choices(&mut scanner, &mut reply.choices)?;
                }
                b"usage" if kind == Kind::Object => {
                    scanner.skip()?;
                    reply.usage = Some(Member { key, value: Span::new(start, scanner.at()) });
                }
                b"x_groq" if kind == Kind::Object => {
                    reply.usage_within = parse_usage_within(&mut scanner)?;
                }
                other => {
                    let value = scanner.skip_kind(kind)?.of(text);
                    reader.ambiguous |= may_be_read_as(other, value, &[b"choices"]);
                    // An envelope: some clients and gateways take the reply out of it.
                    reader.ambiguous |= matches!(kind, Kind::Object | Kind::Array) && CALLS.are_in(value);
                }
            }
            reader.add(&mut reply.members, Member { key, value: Span::new(start, scanner.at()) })?;
        }
        scanner.end()?;
        reply.ambiguous = reader.ambiguous;
        Ok(reply)
    }

    /// The member `name` of the top object.
    pub fn member(&self, text: &[u8], name: &[u8]) -> Option<&Member> {
        find(&self.members, text, name)
    }

    /// The usage that it reports, wherever.
    pub fn reported_usage(&self) -> Option<Span> {
        self.reported_usages().last()
    }

    /// Every usage that it reports, the one that counts last.
    pub fn reported_usages(&self) -> impl Iterator<Item = Span> + '_ {
        let in_choices = self.choices.iter().filter_map(|choice| choice.usage);
        in_choices.chain(self.usage_within).chain(self.usage.map(|usage| usage.value))
    }

    /// Whether two JSON parsers may see different calls in it, in any way.
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous || self.choices.iter().any(|choice| choice.calls().any(|call| call.ambiguous))
    }

    /// Whether some client could find a call in it.
    pub fn may_hold_calls(&self) -> bool {
        self.ambiguous || self.choices.iter().any(|choice| choice.calls().any(|call| !call.is_empty()))
    }
}

impl Choice {
    /// The member `name` of the choice.
    pub fn member(&self, text: &[u8], name: &[u8]) -> Option<&Member> {
        find(&self.members, text, name)
    }

    /// Its messages or deltas, which may hold calls, the one that counts first.
    pub fn holders(&self) -> impl Iterator<Item = &Delta> {
        std::iter::once(&self.delta).chain(&self.beside)
    }

    /// Its calls with their positions, those of the deprecated form last.
    pub fn calls_by_form(&self) -> impl Iterator<Item = (usize, &ToolCall)> {
        let of = |legacy: bool| self.calls().enumerate().filter(move |(_, call)| call.legacy == legacy);
        of(false).chain(of(true))
    }

    /// Every call, those of the message or delta that counts first.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.holders().flat_map(|holder| &holder.calls)
    }
}

impl Delta {
    /// The member `name` of the delta.
    pub fn member(&self, text: &[u8], name: &[u8]) -> Option<&Member> {
        find(&self.members, text, name)
    }
}

/// Whether `text`, which cannot be read, might be a reply with choices for a more tolerant parser.
pub fn may_be_reply(text: &[u8]) -> bool {
    // Every text in UTF-16 contains a byte 0.
    let folded = in_one_case(text);
    ["choices", "\\u", "\0"].iter().any(|sign| memmem::find(&folded, sign.as_bytes()).is_some())
}

/// Whether an object with these members is a reply, or a chunk of one, that holds calls.
fn is_reply_with_calls(members: &Map<String, Value>) -> bool {
    let lists = members.iter().filter(|(key, _)| *in_one_case(key.as_bytes()) == *b"choices");
    let mut replies = lists.map(|(_, choices)| json!({ "choices": choices }).to_string());
    replies.any(|reply| Reply::parse(reply.as_bytes()).map_or(true, |reply| reply.may_hold_calls()))
}

fn find<'a>(members: &'a [Member], text: &[u8], name: &[u8]) -> Option<&'a Member> {
    members.iter().find(|member| is_named(member.key, text, name))
}

/// Whether the name `key`, read from `text`, is `name`, with or without escapes.
pub fn is_named(key: Str, text: &[u8], name: &[u8]) -> bool {
    if key.escaped { *decode_bytes(key, text) == *name } else { key.raw(text) == name }
}

/// Whether the function of a call is JSON in a string.
fn holds_call_in_text(call: &ToolCall, text: &[u8]) -> bool {
    let is_it = |member: &Member| {
        let key = decode_bytes(member.key, text);
        may_be_text_of(&key, member.value.of(text), &[b"function", b"custom"])
    };
    call.name.is_none()
        && call.arguments == Arguments::Absent
        && members_of(text, call.span).iter().any(is_it)
}

fn parse_usage_within(scanner: &mut Scanner<'_>) -> Result<Option<Span>, Fault> {
    let mut usage = None;
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let kind = scanner.peek()?;
        let value = scanner.skip()?;
        if key.raw(scanner.text()) == b"usage" && kind == Kind::Object {
            usage = Some(value);
        }
    }
    Ok(usage)
}

/// The parser's state.
struct Reader {
    form: Form,
    /// See [`Reply::ambiguous`].
    ambiguous: bool,
    /// Members, parts and calls read so far.
    pieces: usize,
}

impl Reader {
    fn add<T>(&mut self, list: &mut Vec<T>, item: T) -> Result<(), Fault> {
        self.pieces += 1;
        if self.pieces > MOST_PIECES {
            return Err(Fault::Crowded);
        }
        list.push(item);
        Ok(())
    }

    fn choices(&mut self, scanner: &mut Scanner<'_>, choices: &mut Vec<Choice>) -> Result<(), Fault> {
        scanner.array()?;
        while scanner.element()? {
            let kind = scanner.peek()?;
            if kind != Kind::Object {
                // A list where an object is expected; scalars hold no calls for any parser.
                self.ambiguous |= kind == Kind::Array;
                scanner.skip_kind(kind)?;
                continue;
            }
            let choice = self.choice(scanner)?;
            // Most replies have one. The last frame of a stream is kept.
            choices.reserve_exact(usize::from(choices.is_empty()));
            self.add(choices, choice)?;
            if choices.len() > MOST_CHOICES {
                return Err(Fault::Crowded);
            }
        }
        Ok(())
    }

    fn choice(&mut self, scanner: &mut Scanner<'_>) -> Result<Choice, Fault> {
        let mut choice = Choice { members: Vec::with_capacity(MEMBERS), ..Choice::default() };
        let (mut message, mut delta) = (None, None);
        let mut seen = SeenMembers::default();
        let start = scanner.at();
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let kind = scanner.peek()?;
            let value_start = scanner.at();
            match &*decode_bytes(key, scanner.text()) {
                b"index" => {
                    self.ambiguous |= seen.once(0).is_err();
                    let index =
                        parse_index(scanner, kind, &mut self.ambiguous)?.map_or(0, |(_, index)| index);
                    choice.index = index.try_into().unwrap_or(u32::MAX);
                    self.ambiguous |= choice.index == u32::MAX;
                }
                // JSON parsers take the last of two.
                b"delta" if kind == Kind::Object => {
                    self.ambiguous |= seen.once(1).is_err();
                    choice.beside.extend(delta.replace(self.delta(scanner)?));
                }
                b"message" if kind == Kind::Object => {
                    self.ambiguous |= seen.once(2).is_err();
                    choice.beside.extend(message.replace(self.delta(scanner)?));
                }
                b"finish_reason" => {
                    choice.finish = string_or_skip(scanner)?.filter(|reason| !reason.span.is_empty());
                }
                b"usage" if kind == Kind::Object => choice.usage = Some(scanner.skip()?),
                other => {
                    let value = scanner.skip_kind(kind)?.of(scanner.text());
                    self.ambiguous |= may_be_read_as(other, value, &[b"message", b"delta"]);
                    self.ambiguous |= differs_in_case(other, &[b"index"]);
                }
            }
            self.add(&mut choice.members, Member { key, value: Span::new(value_start, scanner.at()) })?;
        }
        let (first, second) = match self.form {
            Form::Whole => (message, delta),
            // Perplexity sends the whole text so far as `message` beside each delta.
            Form::Chunk => (delta, message),
        };
        match (first, second) {
            (Some(first), second) => {
                choice.delta = first;
                choice.beside.extend(second);
            }
            (None, second) => choice.delta = second.unwrap_or_default(),
        }
        let within = std::iter::once(&choice.delta).chain(&choice.beside);
        let mut within = within.filter_map(|delta| find(&delta.members, scanner.text(), b"usage"));
        let within = within.find(|usage| usage.value.of(scanner.text()).starts_with(b"{"));
        choice.usage = choice.usage.or(within.map(|usage| usage.value));
        choice.beside.retain(|beside| !beside.calls.is_empty());
        choice.span = Span::new(start, scanner.at());
        Ok(choice)
    }

    fn delta(&mut self, scanner: &mut Scanner<'_>) -> Result<Delta, Fault> {
        let mut delta = Delta { members: Vec::with_capacity(MEMBERS), ..Delta::default() };
        let mut seen = SeenMembers::default();
        let start = scanner.at();
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let kind = scanner.peek()?;
            let value_start = scanner.at();
            match &*decode_bytes(key, scanner.text()) {
                b"role" => delta.role = string_or_skip(scanner)?.filter(|role| !role.span.is_empty()),
                b"content" if kind == Kind::Array => delta.content = self.parts(scanner)?,
                b"content" => delta.content = parse_content(scanner, &parse_part)?,
                b"tool_calls" if kind == Kind::Array => {
                    self.ambiguous |= seen.once(0).is_err();
                    self.calls(scanner, &mut delta.calls)?;
                }
                b"function_call" if !matches!(kind, Kind::Array | Kind::String) => {
                    self.ambiguous |= seen.once(1).is_err();
                    delta.calls.extend(parse_legacy_call(scanner)?);
                }
                other => {
                    let value = scanner.skip_kind(kind)?.of(scanner.text());
                    let names: [&[u8]; 2] = [b"tool_calls", b"function_call"];
                    self.ambiguous |= may_be_read_as(other, value, &names);
                    self.ambiguous |= may_be_text_of(other, value, &names);
                }
            }
            self.add(&mut delta.members, Member { key, value: Span::new(value_start, scanner.at()) })?;
        }
        delta.span = Span::new(start, scanner.at());
        Ok(delta)
    }

    fn calls(&mut self, scanner: &mut Scanner<'_>, calls: &mut Vec<ToolCall>) -> Result<(), Fault> {
        scanner.array()?;
        while scanner.element()? {
            let call = parse_call(scanner)?;
            self.ambiguous |= holds_call_in_text(&call, scanner.text());
            self.add(calls, call)?;
            if calls.len() > MOST_CALLS {
                return Err(Fault::Crowded);
            }
        }
        Ok(())
    }

    fn parts(&mut self, scanner: &mut Scanner<'_>) -> Result<Content, Fault> {
        let start = scanner.at();
        let mut parts = Vec::new();
        scanner.array()?;
        while scanner.element()? {
            let part = parse_part(scanner)?;
            self.add(&mut parts, part)?;
        }
        Ok(Content::Parts { span: Span::new(start, scanner.at()), parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_replies_and_stream_chunks_are_parsed_the_same_way() {
        for (body, name) in [
            (
                r#"{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1}}"#,
                "message",
            ),
            (
                r#"{"id":"x","choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]},"finish_reason":"tool_calls","index":0}],"usage":{"prompt_tokens":1}}"#,
                "delta",
            ),
        ] {
            let reply = Reply::parse(body.as_bytes()).unwrap();
            let choice = &reply.choices[0];
            assert_eq!(choice.delta.calls.len(), 1, "{name}");
            assert_eq!(choice.finish.unwrap().raw(body.as_bytes()), b"tool_calls");
            assert!(reply.usage.is_some() && choice.member(body.as_bytes(), name.as_bytes()).is_some());
        }
    }

    #[test]
    fn a_reply_with_calls_within_another_object_may_hold_calls() {
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f"}}]}}]}"#;
        for body in [
            format!(r#"{{"data":{call}}}"#),
            format!(r#"{{"code":0,"result":{{"reply":[{call}]}}}}"#),
            format!(r#"{{"choices":[],"response":{call}}}"#),
            format!(r#"{{"data":{}}}"#, call.replace("choices", "Choices")),
            format!(
                r#"{{"data":{}}}"#,
                call.replace("choices", "ch\\u006fices").replace("tool_", "t\\u006fol_")
            ),
        ] {
            assert!(Reply::parse(body.as_bytes()).unwrap().may_hold_calls(), "{body}");
        }
        for body in [
            r#"{"data":{"choices":[{"delta":{"content":"t","tool_calls":[]}}]}}"#,
            r#"{"request":{"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]},"choices":[]}"#,
            r#"{"choices":[{"delta":{"content":"t"}}],"meta":{"choices":3,"note":"\"tool_calls\""}}"#,
        ] {
            assert!(!Reply::parse(body.as_bytes()).unwrap().may_hold_calls(), "{body}");
        }
    }

    #[test]
    fn calls_that_are_json_in_a_string_may_be_calls() {
        let delta = |members: &str| format!(r#"{{"choices":[{{"delta":{{{members}}}}}]}}"#);
        for members in [
            r#""tool_calls":"[{\"id\":\"a\",\"function\":{\"name\":\"f\"}}]""#,
            r#""function_call":" {\"name\":\"f\"}""#,
            r#""tool_calls":[{"id":"a","function":"{\"name\":\"f\"}"}]"#,
            r#""Tool_Calls":"[{\u0022id\u0022:\u0022a\u0022}]""#,
        ] {
            assert!(Reply::parse(delta(members).as_bytes()).unwrap().may_hold_calls(), "{members}");
        }
        for members in [
            r#""tool_calls":"[]","function_call":"""#,
            r#""content":"[{\"name\":\"f\"}]""#,
            r#""tool_calls":"none""#,
            r#""tool_calls":[{"index":0}]"#,
        ] {
            assert!(!Reply::parse(delta(members).as_bytes()).unwrap().may_hold_calls(), "{members}");
        }
    }

    #[test]
    fn usage_is_read_from_the_top_level_or_from_x_groq_or_from_a_choice() {
        for (body, usage) in [
            (r#"{"usage":{"a":1}}"#, Some(r#"{"a":1}"#)),
            (r#"{"x_groq":{"id":"r","usage":{"b":2}}}"#, Some(r#"{"b":2}"#)),
            (r#"{"x_groq":{"usage":{"b":2}},"usage":{"a":1}}"#, Some(r#"{"a":1}"#)),
            (r#"{"x_groq":{"id":"r","usage":null},"usage":null}"#, None),
            (r#"{"choices":[{"index":0,"usage":{"c":3}}],"usage":null}"#, Some(r#"{"c":3}"#)),
            (r#"{"choices":[{"index":0,"delta":{"content":"","usage":{"d":4}}}]}"#, Some(r#"{"d":4}"#)),
            (r#"{"choices":[{"index":0,"message":{"usage":{"d":4}}}],"usage":null}"#, Some(r#"{"d":4}"#)),
            (r#"{"choices":[{"index":0,"usage":{"c":3}}],"usage":{"a":1}}"#, Some(r#"{"a":1}"#)),
            (r#"{"x_groq":null}"#, None),
        ] {
            let reply = Reply::parse(body.as_bytes()).unwrap();
            let usage_text = reply.reported_usage().map(|span| span.of(body.as_bytes()));
            assert_eq!(usage_text, usage.map(str::as_bytes), "{body}");
        }
    }

    #[test]
    fn empty_and_null_members_of_recorded_replies_are_read_as_absent() {
        let body = br#"{"choices":[{"finish_reason":"","delta":{"role":"","content":[{"type":"text","text":"t"}],"tool_calls":null,"function_call":null}},{"index":1,"message":{"content":"all"},"delta":{"content":"now"}}],"usage":null}"#;
        let reply = Reply::parse(body).unwrap();
        assert_eq!(reply.usage, None);
        assert_eq!((reply.choices[0].finish, reply.choices[0].delta.role), (None, None));
        assert!(reply.choices[0].delta.calls.is_empty() && reply.choices[0].delta.content.has_text());
        let text = reply.choices[1].delta.content.texts().next().unwrap();
        assert_eq!(text.raw(body), b"now");
    }
}
