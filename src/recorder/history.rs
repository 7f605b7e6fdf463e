//! The redacted body of a request whose history grows. What the previous request of its conversation had is not redacted
//! again: the beginning that both share is compared byte by byte. Each message is redacted by itself, and so is what is
//! around them. A body whose values may go on from one message to the next is not divided.

use super::Layout;
use super::credentials::without_credentials;
use super::line::{is_json, on_one_line};
use bytes::Bytes;
use model::identity::{Domain, HashKey};
use model::memo::{Derived, Memo};
use model::plan::placeholders::{Redaction, replaced};
use policies::redact::{Redactor, Replacements};
use state::memo::MemoCache;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use wire::body::{Kind, Scanner};

/// What is kept of the newest requests of all conversations, in bytes.
const MOST_BYTES: u64 = 32 << 20;
/// How many bytes are compared at once.
const BLOCK: usize = 512;
/// A message in the text that is around all of them.
const STAND_IN: &str = "{}";

/// The newest request of each conversation.
pub(super) struct Histories {
    memo: MemoCache,
}

/// A request whose body was redacted.
struct History {
    body: Bytes,
    /// Where the first message begins, after the bracket.
    start: usize,
    messages: Vec<Message>,
    /// What is around the messages. `None` where the body is not divided.
    frame: Option<Arc<Frame>>,
}

/// A message, with the comma before it.
#[derive(Clone)]
struct Message {
    /// Its end in the body.
    end: usize,
    /// `None`: as in the body.
    redacted: Option<Arc<str>>,
    /// A value may go on in the next message.
    goes_on: bool,
}

/// What is before and after the messages.
struct Frame {
    before: String,
    after: String,
}

impl Derived for History {
    fn weight(&self) -> usize {
        let redacted = self.messages.iter().filter_map(|message| message.redacted.as_deref()).map(str::len);
        let frame = self.frame.as_ref().map_or(0, |frame| frame.before.len() + frame.after.len());
        self.body.len() + redacted.sum::<usize>() + self.messages.len() * size_of::<Message>() + frame
    }
}

impl Histories {
    pub(super) fn new() -> Self {
        Self { memo: MemoCache::new(MOST_BYTES) }
    }

    /// `body` in one line, redacted; `None` where it cannot be divided. `layout` says where its parts are, and
    /// `conversation` where it belongs.
    pub(super) fn redacted(
        &self,
        (redactor, key): (&Redactor, &HashKey),
        body: &Bytes,
        layout: &Layout,
        conversation: Option<&str>,
    ) -> Option<Vec<u8>> {
        if !redactor.is_local() || body.get(layout.messages.range().start) != Some(&b'[') {
            return None;
        }
        let memo: &dyn Memo = &self.memo;
        let name = key.hash(Domain::Conversation, &[b"history", conversation?.as_bytes()]);
        let known = memo.known::<History>(name);
        let division = Division { redactor, key, body, layout };
        let history = division.read(known.as_deref())?;
        let redacted = history.redacted();
        memo.remember(name, &Arc::new(history));
        redacted
    }
}

impl History {
    /// The whole body.
    fn redacted(&self) -> Option<Vec<u8>> {
        let Frame { before, after } = &**self.frame.as_ref()?;
        let mut written = Vec::with_capacity(self.body.len() + BLOCK);
        written.extend_from_slice(before.as_bytes());
        let (mut done, mut at) = (self.start, self.start);
        for message in &self.messages {
            if let Some(redacted) = &message.redacted {
                written.extend_from_slice(&self.body[done..at]);
                written.extend_from_slice(redacted.as_bytes());
                done = message.end;
            }
            at = message.end;
        }
        written.extend_from_slice(&self.body[done..at]);
        written.extend_from_slice(after.as_bytes());
        Some(written)
    }

    /// The end of the last message.
    fn end(&self) -> usize {
        self.messages.last().map_or(self.start, |message| message.end)
    }
}

/// A body to be divided.
struct Division<'a> {
    redactor: &'a Redactor,
    key: &'a HashKey,
    body: &'a Bytes,
    layout: &'a Layout,
}

impl Division<'_> {
    /// Redacts what is new since the request `before`; `None` where the body cannot be divided.
    fn read(&self, before: Option<&History>) -> Option<History> {
        let start = self.layout.messages.range().start + 1;
        let shared = before.map_or(0, |before| shared_length(&before.body, self.body));
        let before = before.filter(|before| before.start == start && start <= shared);
        let mut messages = before.map_or_else(Vec::new, |before| {
            let count = before.messages.partition_point(|message| message.end <= shared);
            before.messages[..count].to_vec()
        });
        let body = self.body.clone();
        if messages.iter().any(|message| message.goes_on) {
            return Some(History { body, start, messages, frame: None });
        }
        let mut scanner = match messages.last() {
            Some(last) => Scanner::in_array(self.body, last.end, false),
            None => {
                let mut scanner = Scanner::within(self.body, self.layout.messages);
                scanner.array().ok()?;
                scanner
            }
        };
        while scanner.element().ok()? {
            // A list of strings says more than its strings.
            if scanner.peek().ok()? != Kind::Object {
                return None;
            }
            let from = messages.last().map_or(start, |last| last.end);
            let message = self.message(from, scanner.skip().ok()?.range())?;
            let goes_on = message.goes_on;
            messages.push(message);
            if goes_on {
                return Some(History { body, start, messages, frame: None });
            }
        }
        let end = messages.last()?.end;
        let is_known = |before: &&History| before.body[before.end()..] == self.body[end..];
        let known = before.filter(is_known).and_then(|before| before.frame.clone());
        let frame = match known {
            Some(frame) => frame,
            None => Arc::new(self.frame(start, end)?),
        };
        Some(History { body, start, messages, frame: Some(frame) })
    }

    /// Redacts the message of this `range`, with what is before it from the byte `from` on.
    fn message(&self, from: usize, range: Range<usize>) -> Option<Message> {
        let text = self.text(range.clone())?;
        let Replacements { ranges, goes_on, .. } = self.replacements(&text)?;
        let between = &self.body[from..range.start];
        let is_same = matches!(text, Cow::Borrowed(_)) && ranges.is_empty();
        let redacted = (!is_same || matches!(on_one_line(between), Cow::Owned(_))).then(|| {
            let between = on_one_line(between);
            [&*String::from_utf8_lossy(&between), &*replaced(&text, &ranges)].concat().into()
        });
        Some(Message { end: range.end, redacted, goes_on })
    }

    /// Redacts what is around the messages, which are between these bytes.
    fn frame(&self, start: usize, end: usize) -> Option<Frame> {
        let (before, after) = (self.text(0..start)?, self.text(end..self.body.len())?);
        let (before, after) = (before.trim_start(), after.trim_end());
        let text = [before, STAND_IN, after].concat();
        let Replacements { ranges, goes_on, .. } = self.replacements(&text)?;
        if goes_on {
            return None;
        }
        let (middle, rest) = (before.len(), before.len() + STAND_IN.len());
        let count = ranges.partition_point(|one| one.range.end <= middle);
        let (first, last) = ranges.split_at(count);
        let moved = |one: &Redaction| {
            let (start, end) = (one.range.start.checked_sub(rest)?, one.range.end.checked_sub(rest)?);
            Some(Redaction { range: start..end, by: one.by.clone() })
        };
        let last: Vec<Redaction> = last.iter().map(moved).collect::<Option<_>>()?;
        Some(Frame { before: replaced(before, first), after: replaced(after, &last) })
    }

    /// What is in `range`, on one line and without credentials.
    fn text(&self, range: Range<usize>) -> Option<Cow<'_, str>> {
        let is_within = |tool: &Range<usize>| range.start <= tool.start && tool.end <= range.end;
        let has_tools = self.layout.tools.iter().any(|tool| is_within(&tool.range()));
        let bytes = match has_tools {
            true => Cow::Owned(without_credentials(self.body, &self.layout.tools, range)),
            false => Cow::Borrowed(&self.body[range]),
        };
        Some(match bytes {
            Cow::Borrowed(bytes) => match on_one_line(bytes) {
                Cow::Borrowed(line) => Cow::Borrowed(str::from_utf8(line).ok()?),
                Cow::Owned(line) => Cow::Owned(String::from_utf8(line).ok()?),
            },
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8(on_one_line(&bytes).into_owned()).ok()?),
        })
    }

    /// What is replaced in `text`; `None` where it is no JSON, before or after.
    fn replacements(&self, text: &str) -> Option<Replacements> {
        if !is_json(text) {
            return None;
        }
        let found = self.redactor.replacements(text, self.key);
        (found.ranges.is_empty() || is_json(&replaced(text, &found.ranges))).then_some(found)
    }
}

/// How many bytes both begin with.
fn shared_length(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.chunks_exact(BLOCK).zip(other.chunks_exact(BLOCK));
    let same = blocks.take_while(|(one, other)| one == other).count() * BLOCK;
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialects::{CHAT, MESSAGES, RESPONSES};
    use std::collections::BTreeMap;

    const SECRET: &str = "Xq7Zp2Lm9Rt4Vw8K";
    const TOOLS: &str = r#"[{"type":"mcp","server_label":"s","headers":{"x":"s3c"}}]"#;

    fn redactor() -> Redactor {
        Redactor::new(&["email".to_owned(), "secret".to_owned()], &BTreeMap::new()).unwrap()
    }

    /// The body in pieces, after what `histories` know, and as a whole.
    fn both(histories: &Histories, dialect: dialects::AnyDialect, body: &str) -> (Option<String>, String) {
        let (redactor, key, body) = (redactor(), HashKey::fixed(7), Bytes::from(body.to_owned()));
        let layout = Layout::of(&dialect.read(&body).unwrap());
        let divided = histories.redacted((&redactor, &key), &body, &layout, Some("c"));
        let whole = without_credentials(&body, &layout.tools, 0..body.len());
        let whole = String::from_utf8(on_one_line(&whole).into_owned()).unwrap();
        let whole = redactor.redact(whole.trim(), &key).unwrap_or_else(|| whole.trim().to_owned());
        (divided.map(|divided| String::from_utf8(divided).unwrap()), whole)
    }

    #[test]
    fn a_growing_history_is_redacted_in_pieces_as_it_is_as_a_whole() {
        let said = [
            r#"{"role":"user","content":"hi, I am ann@example.org"}"#.to_owned(),
            format!(r#"{{"role":"assistant","content":"password = {SECRET} é\nand more"}}"#),
            "{\n \"role\": \"user\",\r\n \"content\": \"plain\"}".to_owned(),
            format!(r#"{{"role":"user","content":[{{"type":"text","text":"{{\"token\":\"{SECRET}\"}}"}}]}}"#),
            r#"{"role":"user","content":"last"}"#.to_owned(),
        ];
        for (dialect, list) in [(CHAT, "messages"), (RESPONSES, "input"), (MESSAGES, "messages")] {
            let histories = Histories::new();
            for order in [[0, 1, 2, 3, 4], [0, 1, 2, 3, 0], [0, 2, 1, 4, 3], [4, 1, 2, 3, 3]] {
                for count in 1..=said.len() {
                    let messages: Vec<&str> = order[..count].iter().map(|at| &*said[*at]).collect();
                    for tools in ["", &format!(",\"tools\":{TOOLS}")] {
                        let body = format!(
                            "\n{{\"model\":\"m\",\"user\":\"b@c.de\",\"{list}\": [{}\n]{tools},\"max_tokens\":9}} ",
                            messages.join(" ,\n")
                        );
                        let (divided, whole) = both(&histories, dialect, &body);
                        assert_eq!(divided.as_deref(), Some(&*whole), "{body}");
                        assert!(!whole.contains(SECRET) && !whole.contains("b@c.de"));
                        assert!(list == "messages" || !whole.contains("s3c"));
                    }
                }
            }
        }
    }

    #[test]
    fn a_body_whose_values_may_go_on_between_messages_is_not_divided() {
        let histories = Histories::new();
        let key =
            r#"{"role":"tool","tool_call_id":"a","content":"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq"}"#;
        let rest =
            r#"{"role":"tool","tool_call_id":"b","content":"aB3dE5gH7jK9\n-----END PRIVATE KEY-----"}"#;
        for messages in [key.to_owned(), [key, rest].join(",")] {
            let (divided, whole) = both(&histories, CHAT, &format!(r#"{{"messages":[{messages}]}}"#));
            assert_eq!(divided, None);
            assert!(!whole.contains("aB3dE5gH7jK9") && !whole.contains("MIIEvQ"), "{whole}");
        }
        for open in ["<password>", &format!("<password>{SECRET}")] {
            let first = format!(r#"{{"role":"user","content":"{open}"}}"#);
            let messages = [&*first, r#"{"role":"user","content":"Zp2Lm9Rt4Vw8Kq7X</password>"}"#].join(",");
            assert_eq!(both(&histories, CHAT, &format!(r#"{{"messages":[{messages}]}}"#)).0, None, "{open}");
        }
        for odd in [r#"{"input":"a@b.de"}"#, r#"{"input":[]}"#] {
            assert_eq!(both(&histories, RESPONSES, odd).0, None, "{odd}");
        }
    }

    #[test]
    fn the_length_that_two_bodies_share_is_exact() {
        let body = vec![b'x'; 3 * BLOCK + 7];
        for at in [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 3, 3 * BLOCK + 6] {
            let mut other = body.clone();
            other[at] = b'y';
            assert_eq!(shared_length(&body, &other), at);
            assert_eq!(shared_length(&body, &body[..at]), at);
        }
        assert_eq!(shared_length(&body, &body), body.len());
    }
}
