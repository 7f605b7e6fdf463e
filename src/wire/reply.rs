//! A reply of the chat-completions API as spans: a whole `chat.completion` or one chunk of a stream, which
//! differ only in `message` and `delta`. Responsible for where things stand under every recorded quirk;
//! assembles nothing over several chunks.

use super::body::{Fault, Kind, Scanner, Span, Str};
use super::message::{Content, ToolCall, parse_call, parse_content, parse_legacy_call, string_or_skip};
use super::request::Member;
use super::usage::Usage;

/// As many members as an object of a reply has at most providers.
const MEMBERS: usize = 10;

/// A reply, or one chunk of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Every member of the top object, in order.
    pub members: Vec<Member>,
    pub choices: Vec<Choice>,
    /// `usage`, where it is an object.
    pub usage: Option<Member>,
    /// The numbers in it.
    pub tokens: Usage,
    /// The same within `x_groq`, where Groq tells it unasked.
    pub usage_within: Option<Span>,
}

/// One choice of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The object with its braces.
    pub span: Span,
    pub members: Vec<Member>,
    /// Its index; 0 where it is missing.
    pub index: u32,
    pub delta: Delta,
    /// `finish_reason`, where it is a string that is not empty.
    pub finish: Option<Str>,
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
    /// Reads a reply or a chunk.
    ///
    /// # Errors
    /// A [`Fault`] where it is no JSON object or lies outside the API's types.
    pub fn parse(text: &[u8]) -> Result<Self, Fault> {
        if text.len() > u32::MAX as usize {
            return Err(Fault::Size);
        }
        let mut scanner = Scanner::new(text);
        if scanner.peek()? != Kind::Object {
            return Err(Fault::Type);
        }
        let mut reply = Self { members: Vec::with_capacity(MEMBERS), ..Self::default() };
        scanner.object()?;
        while let Some(key) = scanner.member()? {
            let kind = scanner.peek()?;
            let start = scanner.at();
            match key.raw(text) {
                b"choices" if kind == Kind::Array => {
                    scanner.array()?;
                    while scanner.element()? {
                        reply.choices.push(parse_choice(&mut scanner)?);
                    }
                }
                b"usage" if kind == Kind::Object => {
                    reply.tokens = Usage::pass(&mut scanner)?;
                    reply.usage = Some(Member { key, value: Span::new(start, scanner.at()) });
                }
                b"x_groq" if kind == Kind::Object => {
                    reply.usage_within = parse_usage_within(&mut scanner)?;
                }
                _ => {
                    scanner.skip_kind(kind)?;
                }
            }
            reply.members.push(Member { key, value: Span::new(start, scanner.at()) });
        }
        scanner.end()?;
        Ok(reply)
    }

    /// The member `name` of the top object.
    pub fn member(&self, text: &[u8], name: &[u8]) -> Option<&Member> {
        find(&self.members, text, name)
    }

    /// The usage that it tells, wherever.
    pub fn told_usage(&self) -> Option<Span> {
        self.usage.map(|usage| usage.value).or(self.usage_within)
    }
}

impl Choice {
    /// The member `name` of the choice.
    pub fn member(&self, text: &[u8], name: &[u8]) -> Option<&Member> {
        find(&self.members, text, name)
    }
}

impl Delta {
    /// The member `name` of the delta.
    pub fn member(&self, text: &[u8], name: &[u8]) -> Option<&Member> {
        find(&self.members, text, name)
    }
}

fn find<'a>(members: &'a [Member], text: &[u8], name: &[u8]) -> Option<&'a Member> {
    members.iter().find(|member| member.key.raw(text) == name)
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

fn parse_choice(scanner: &mut Scanner<'_>) -> Result<Choice, Fault> {
    if scanner.peek()? != Kind::Object {
        return Err(Fault::Type);
    }
    let mut choice = Choice { members: Vec::with_capacity(MEMBERS), ..Choice::default() };
    let start = scanner.at();
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let kind = scanner.peek()?;
        let value_start = scanner.at();
        match key.raw(scanner.text()) {
            b"index" => {
                let span = scanner.skip_kind(kind)?;
                choice.index = match span.of(scanner.text()) {
                    [digit @ b'0'..=b'9'] => u32::from(digit - b'0'),
                    digits => std::str::from_utf8(digits).ok().and_then(|n| n.parse().ok()).unwrap_or(0),
                };
            }
            b"delta" if kind == Kind::Object => choice.delta = parse_delta(scanner)?,
            // Perplexity sends the whole text so far as `message` beside each delta: the delta counts.
            b"message" if kind == Kind::Object && choice.delta.span.is_empty() => {
                choice.delta = parse_delta(scanner)?;
            }
            b"finish_reason" => {
                choice.finish = string_or_skip(scanner)?.filter(|reason| !reason.span.is_empty());
            }
            _ => {
                scanner.skip_kind(kind)?;
            }
        }
        choice.members.push(Member { key, value: Span::new(value_start, scanner.at()) });
    }
    choice.span = Span::new(start, scanner.at());
    Ok(choice)
}

fn parse_delta(scanner: &mut Scanner<'_>) -> Result<Delta, Fault> {
    let mut delta = Delta { members: Vec::with_capacity(MEMBERS), ..Delta::default() };
    let start = scanner.at();
    scanner.object()?;
    while let Some(key) = scanner.member()? {
        let kind = scanner.peek()?;
        let value_start = scanner.at();
        match key.raw(scanner.text()) {
            b"role" => delta.role = string_or_skip(scanner)?.filter(|role| !role.span.is_empty()),
            b"content" => delta.content = parse_content(scanner)?,
            b"tool_calls" if kind == Kind::Array => {
                scanner.array()?;
                while scanner.element()? {
                    delta.calls.push(parse_call(scanner)?);
                }
            }
            b"function_call" => delta.calls.extend(parse_legacy_call(scanner)?),
            _ => {
                scanner.skip_kind(kind)?;
            }
        }
        delta.members.push(Member { key, value: Span::new(value_start, scanner.at()) });
    }
    delta.span = Span::new(start, scanner.at());
    Ok(delta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_replies_and_chunks_are_read_alike() {
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
    fn usage_is_found_at_the_top_and_where_groq_tells_it_unasked() {
        for (body, usage) in [
            (r#"{"usage":{"a":1}}"#, Some(r#"{"a":1}"#)),
            (r#"{"x_groq":{"id":"r","usage":{"b":2}}}"#, Some(r#"{"b":2}"#)),
            (r#"{"x_groq":{"usage":{"b":2}},"usage":{"a":1}}"#, Some(r#"{"a":1}"#)),
            (r#"{"x_groq":{"id":"r","usage":null},"usage":null}"#, None),
            (r#"{"x_groq":null}"#, None),
        ] {
            let reply = Reply::parse(body.as_bytes()).unwrap();
            let told = reply.told_usage().map(|span| span.of(body.as_bytes()));
            assert_eq!(told, usage.map(str::as_bytes), "{body}");
        }
    }

    #[test]
    fn recorded_oddities_are_read_as_what_they_mean() {
        let body = br#"{"choices":[{"finish_reason":"","delta":{"role":"","content":[{"type":"text","text":"t"}],"tool_calls":null,"function_call":null}},{"index":1,"message":{"content":"all"},"delta":{"content":"now"}}],"usage":null}"#;
        let reply = Reply::parse(body).unwrap();
        assert_eq!(reply.usage, None);
        assert_eq!((reply.choices[0].finish, reply.choices[0].delta.role), (None, None));
        assert!(reply.choices[0].delta.calls.is_empty() && reply.choices[0].delta.content.has_text());
        let text = reply.choices[1].delta.content.texts().next().unwrap();
        assert_eq!(text.raw(body), b"now");
    }
}
