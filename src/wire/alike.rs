//! Chunks of a stream that differ from the one before in a piece of text alone, as almost all do: such a chunk is known
//! by its bytes, without being read. Responsible for being sure of it; what a chunk means is not its affair.

use super::body::{Span, Str};
use super::message::Content;
use super::reply::Reply;
use bytes::Bytes;
use std::ops::Range;

/// A chunk that was read, with what stands around its text.
#[derive(Debug)]
pub struct Alike {
    /// A copy: a slice would keep the whole buffer that the stream was read into.
    raw: Box<[u8]>,
    /// Where the data stand in `raw`, and how many bytes are behind them.
    data: usize,
    behind: usize,
    /// The text, in `raw`.
    text: Span,
    reply: Reply,
    /// Its delta tells a role at most beside the text.
    pub says_text_alone: bool,
}

impl Alike {
    /// Remembers the event `raw`, which was read as `reply` from its `data`. `None` where it is not such a chunk: one
    /// choice with a plain text and neither calls nor an end nor usage, its data in one piece.
    pub fn of(raw: &Bytes, data: &[u8], reply: &Reply) -> Option<Self> {
        let [choice] = reply.choices.as_slice() else { return None };
        let Content::Text(text) = choice.delta.content else { return None };
        let is_plain = choice.delta.calls.is_empty() && choice.finish.is_none() && !text.escaped;
        if !is_plain || reply.told_usage().is_some() {
            return None;
        }
        // Mostly nothing but the field's name stands before them; where more does, the event is read anew each time.
        let start = memchr::memchr(*data.first()?, raw).filter(|at| raw[*at..].starts_with(data))?;
        let range = text.span.range();
        let text = Span::new(start + range.start, start + range.end);
        let behind = raw.len() - start - data.len();
        let mut members = choice.delta.members.iter().map(|member| member.key.raw(data));
        let says_text_alone = members.all(|key| matches!(key, b"content" | b"role"));
        let reply = reply.clone();
        Some(Self { raw: raw[..].into(), data: start, behind, text, reply, says_text_alone })
    }

    /// Where the text stands in the event `raw`, if all of it but the text is the same.
    pub fn text_in(&self, raw: &Bytes) -> Option<Range<usize>> {
        let (before, after) = (&self.raw[..self.text.range().start], &self.raw[self.text.range().end..]);
        let text = raw.strip_prefix(before)?.strip_suffix(after)?;
        // One such byte, and the text might end sooner or be spelled in another way.
        let is_plain = !text.iter().any(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'));
        is_plain.then(|| before.len()..before.len() + text.len())
    }

    /// What the event `raw`, whose text stands at `text`, would be read as, with its data.
    pub fn read<'a>(&self, raw: &'a Bytes, text: Range<usize>) -> (Reply, &'a [u8]) {
        let end = self.text.end as usize - self.data;
        let reply = self.reply.grown(end, text.len(), self.text.len());
        (reply, &raw[self.data..raw.len() - self.behind])
    }

    /// The index of its one choice.
    pub fn index(&self) -> u32 {
        self.reply.choices.first().map_or(0, |choice| choice.index)
    }

    /// Whether its delta tells a role.
    pub fn has_role(&self) -> bool {
        self.reply.choices.first().is_some_and(|choice| choice.delta.role.is_some())
    }
}

impl Reply {
    /// The same reply where the text that ended at `end` has `now` bytes and not `before`.
    fn grown(&self, end: usize, now: usize, before: usize) -> Self {
        let mut reply = self.clone();
        let moved = |place: u32| match place as usize {
            place if place >= end => (place + now - before) as u32,
            _ => place,
        };
        let shift = |span: &mut Span| *span = Span { start: moved(span.start), end: moved(span.end) };
        // An empty text starts where it ends: its start stays.
        let shift_text = |text: &mut Str| text.span.end = moved(text.span.end);
        let members = |members: &mut Vec<super::request::Member>| {
            for member in members {
                shift(&mut member.key.span);
                shift(&mut member.value);
            }
        };
        members(&mut reply.members);
        for choice in &mut reply.choices {
            shift(&mut choice.span);
            members(&mut choice.members);
            shift(&mut choice.delta.span);
            members(&mut choice.delta.members);
            choice.delta.role.iter_mut().for_each(|role| shift(&mut role.span));
            if let Content::Text(text) = &mut choice.delta.content {
                shift_text(text);
            }
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sse::parse_fields;

    fn read(event: &str) -> (Bytes, Vec<u8>, Reply) {
        let raw = Bytes::copy_from_slice(event.as_bytes());
        let data = parse_fields(&raw).data.to_vec();
        let reply = Reply::parse(&data).unwrap();
        (raw, data, reply)
    }

    const FORMS: [(&str, &str); 5] = [
        (
            r#"data: {"id":"x","choices":[{"index":0,"delta":{"content":""#,
            "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
        ),
        (
            r#"data: {"choices":[{"delta":{"role":"assistant","content":""#,
            "\",\"role\":\"assistant\"},\"index\":3}],\"obfuscation\":\"\"}\r\n\r\n",
        ),
        (r#"data:{"choices":[{"finish_reason":null,"delta":{"content" : ""#, "\" } } ] } \n\n"),
        (r#"data: {"choices":[{"delta":{"content":""#, "\"}}],\"usage\":null}\n\n"),
        ("event: message\ndata: {\"choices\":[{\"delta\":{\"content\":\"", "\"}}]}\nid: 5\n\n"),
    ];

    #[test]
    fn a_chunk_like_the_one_before_is_read_without_reading_it() {
        let texts = ["", "a", " word", "error", "é ü", "a longer text than all of the others", "{}[],:"];
        for (before, after) in FORMS {
            for first in texts {
                let (raw, data, reply) = read(&format!("{before}{first}{after}"));
                let alike = Alike::of(&raw, &data, &reply).unwrap();
                for next in texts {
                    let (raw, data, reply) = read(&format!("{before}{next}{after}"));
                    let text = alike.text_in(&raw).unwrap();
                    let (guessed, guessed_data) = alike.read(&raw, text);
                    assert_eq!(guessed, reply, "{first} {next}");
                    assert_eq!(guessed_data, data);
                }
            }
        }
    }

    #[test]
    fn any_other_difference_has_it_read() {
        let (before, after) = FORMS[0];
        let (raw, data, reply) = read(&format!("{before}word{after}"));
        let alike = Alike::of(&raw, &data, &reply).unwrap();
        for other in [
            format!("{before}a\\n{after}"),
            format!("{before}a\",\"x\":\"{after}"),
            format!("{before}a\n{after}"),
            format!("{}word{after}", before.replace("\"x\"", "\"y\"")),
            format!("{before}word{}", after.replacen("null}", "\"stop\"}", 1)),
            before.to_owned(),
        ] {
            assert!(alike.text_in(&Bytes::from(other.clone())).is_none(), "{other}");
        }
    }

    #[test]
    fn calls_ends_and_usage_are_never_taken_for_text() {
        for event in [
            r#"data: {"choices":[{"delta":{"content":"a","tool_calls":[{"index":0,"id":"x"}]}}]}"#,
            r#"data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}"#,
            r#"data: {"choices":[{"delta":{"content":"a\n"}}]}"#,
            r#"data: {"choices":[{"delta":{"content":null}}]}"#,
            r#"data: {"choices":[]}"#,
        ] {
            let (raw, data, reply) = read(&format!("{event}\n\n"));
            assert!(Alike::of(&raw, &data, &reply).is_none(), "{event}");
        }
    }
}
