//! A checkpoint of the scanner: the members and first messages of a request that was read before, so that the next
//! request of the conversation, which begins with the same bytes, is read from there on. Responsible for going on
//! as if all of it had been read; whether the bytes are the same is its caller's to know.

use super::body::{Fault, Scanner};
use super::call::ToolCall;
use super::message::{Message, Seen};
use super::request::{Member, Request, Tool};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A request as far as the end of one of its messages.
#[derive(Debug)]
pub struct Checkpoint {
    /// What stands before its messages.
    head: Request,
    seen: Seen,
    list: List,
    messages: Vec<Message>,
    /// The end of the last of them.
    end: usize,
    /// What was derived from each message, for who reads it again.
    pub notes: Vec<Note>,
}

/// What was derived from the bytes of one message.
#[derive(Debug, Default)]
pub struct Note {
    /// Its size by some count, and 1 more; 0 where nobody counted yet.
    pub counted: AtomicU64,
    /// No count is larger, and 1 more; 0 where nobody asked yet.
    pub most: AtomicU64,
    /// A hash of its only string of text.
    pub text: OnceLock<u128>,
    /// A hash of what it says to the model.
    pub content: OnceLock<u128>,
    /// The hashes of its calls' arguments.
    pub arguments: OnceLock<Box<[u128]>>,
}

/// The member `messages`.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// Its key, and where its value starts.
    pub(super) key: super::body::Str,
    pub(super) start: usize,
}

/// What stood before the messages when they were come to.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) request: Request,
    pub(super) seen: Seen,
    pub(super) list: List,
}

impl Checkpoint {
    /// Bytes of the body that it knows.
    pub fn bytes(&self) -> usize {
        self.end
    }

    /// Memory that it takes, about. Everything counts of which a few bytes make one more.
    pub fn weight(&self) -> usize {
        let pieces: usize = self.messages.iter().map(Message::pieces).sum();
        let messages = self.messages.len() * (size_of::<Message>() + size_of::<Note>());
        let members =
            self.head.members.len() * size_of::<Member>() + self.head.tools.len() * size_of::<Tool>();
        size_of::<Self>() + messages + pieces * (size_of::<ToolCall>() + size_of::<u128>()) + members
    }

    /// The first messages of `request`, as many as end within `bytes`; `None` where there are none.
    pub(super) fn of(head: Head, request: &Request, bytes: usize) -> Option<Self> {
        let count = request.messages.partition_point(|message| message.span.end as usize <= bytes);
        let messages = request.messages[..count].to_vec();
        let end = messages.last()?.span.end as usize;
        let known = request.checkpoint.as_ref().map_or(&[][..], |known| &known.notes);
        let mut notes: Vec<Note> = known.iter().take(count).map(Note::copy).collect();
        notes.resize_with(count, Note::default);
        let Head { request: head, seen, list } = head;
        Some(Self { head, seen, list, messages, end, notes })
    }

    /// A request that stands behind its last known message, and the scanner that goes on there.
    pub(super) fn resume<'a>(self: &Arc<Self>, body: &'a [u8]) -> (Scanner<'a>, Request, Head) {
        let mut request = self.head.clone();
        request.messages.reserve(self.messages.len() + MORE);
        request.messages.extend_from_slice(&self.messages);
        request.checkpoint = Some(Arc::clone(self));
        let odd = self.head.odd || self.messages.iter().any(|message| message.odd);
        let scanner = Scanner::in_array(body, self.end, odd);
        (scanner, request, Head { request: self.head.clone(), seen: self.seen, list: self.list })
    }
}

/// Most requests add fewer messages to those that are known.
const MORE: usize = 32;

impl Note {
    fn copy(&self) -> Self {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
        Self {
            counted: copy(&self.counted),
            most: copy(&self.most),

            text: self.text.clone(),
            content: self.content.clone(),
            arguments: self.arguments.clone(),
        }
    }
}

impl Request {
    /// As [`parse`](Request::parse), for a body whose first [`Checkpoint::bytes`] are those that `known` was read from. A
    /// checkpoint of as many first bytes as `keep` wants of the request is then in [`Request::checkpoint`].
    ///
    /// # Errors
    /// See [`parse`](Request::parse).
    pub fn resume(
        body: &[u8],
        known: Option<&Arc<Checkpoint>>,
        keep: impl FnOnce(&Self) -> usize,
    ) -> Result<Self, Fault> {
        let (mut request, head) = match known {
            Some(known) => Self::go_on(body, known)?,
            None => {
                let mut head = None;
                (Self::read(body, Some(&mut head))?, head)
            }
        };
        let keep = keep(&request);
        if known.is_none_or(|known| known.bytes() < keep)
            && let Some(head) = head
            && let Some(checkpoint) = Checkpoint::of(head, &request, keep)
        {
            request.checkpoint = Some(Arc::new(checkpoint));
        }
        Ok(request)
    }

    fn go_on(body: &[u8], known: &Arc<Checkpoint>) -> Result<(Self, Option<Head>), Fault> {
        if body.len() > u32::MAX as usize {
            return Err(Fault::Size);
        }
        // The known part ends behind a brace, so that no character is cut.
        if simdutf8::basic::from_utf8(&body[known.end..]).is_err() {
            return Err(Fault::Utf8);
        }
        let (mut scanner, mut request, head) = known.resume(body);
        let mut seen = head.seen;
        let value = request.rest_of_messages(&mut scanner, head.list.start)?;
        request.members.push(Member { key: head.list.key, value });
        request.rest(&mut scanner, &mut seen, None)?;
        Ok((request, Some(head)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(request: &Request) -> String {
        format!("{:?}", Request { checkpoint: None, ..request.clone() })
    }

    #[test]
    fn a_request_read_from_any_place_on_is_the_request_read_whole() {
        let body = r#" {"model":"m\u0000","stream":true, "messages" : [ {"role":"user","content":"q\n"} ,
            {"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"half \ud800"},{"role":"user","content":[{"type":"text","text":"é"}]}
            ], "tools":[{"function":{"name":"f"}}],"n":2, "x":"\u0000"} "#
            .as_bytes();
        let whole = Request::parse(body).unwrap();
        for keep in 0..=body.len() {
            let first = Request::resume(body, None, |_| keep).unwrap();
            assert_eq!(plain(&first), plain(&whole));
            let Some(known) = first.checkpoint else { continue };
            assert!(known.bytes() <= keep && known.bytes() > 0);
            let again = Request::resume(body, Some(&known), |_| body.len()).unwrap();
            assert_eq!(plain(&again), plain(&whole), "{keep}");
            assert_eq!(again.checkpoint.unwrap().notes.len(), 4);
        }
    }

    #[test]
    fn what_is_wrong_behind_the_known_part_is_found() {
        let body = |rest: &str| format!(r#"{{"model":"m","messages":[{{"role":"user"}}{rest}"#).into_bytes();
        let good = body("]}");
        let known = Request::resume(&good, None, |_| good.len()).unwrap().checkpoint.unwrap();
        for (rest, fault) in [
            (r#"],"model":"other"}"#, Fault::Duplicate),
            (r#"],"messages":[]}"#, Fault::Duplicate),
            (r#",1]}"#, Fault::Type),
            (r#",]}"#, Fault::Syntax),
            (r#"]}}"#, Fault::Syntax),
            (r#"}}"#, Fault::Syntax),
        ] {
            let body = body(rest);
            assert_eq!(Request::resume(&body, Some(&known), |_| 0).unwrap_err(), fault, "{rest}");
            assert_eq!(Request::parse(&body).unwrap_err(), fault, "{rest}");
        }
        let mut broken = good;
        broken.extend_from_slice(b"\xff");
        assert_eq!(Request::resume(&broken, Some(&known), |_| 0).unwrap_err(), Fault::Utf8);
    }

    #[test]
    fn notes_are_kept_for_the_messages_that_stay() {
        let body = br#"{"messages":[{"role":"user"},{"role":"user"}]}"#;
        let known = Request::resume(body, None, |_| 30).unwrap().checkpoint.unwrap();
        assert_eq!(known.notes.len(), 1);
        known.notes[0].counted.store(7, Ordering::Relaxed);
        let more = Request::resume(body, Some(&known), |_| body.len()).unwrap().checkpoint.unwrap();
        let counted: Vec<u64> = more.notes.iter().map(|note| note.counted.load(Ordering::Relaxed)).collect();
        assert_eq!(counted, [7, 0]);
    }

    #[test]
    fn everything_counts_that_a_request_may_have_any_number_of() {
        let many = |item: &str| vec![item; 1000].join(",");
        let weight = |head: &str, message: &str| {
            let body = format!(r#"{{{head}"messages":[{{"role":"user"{message}}}]}}"#);
            Request::resume(body.as_bytes(), None, |_| body.len()).unwrap().checkpoint.unwrap().weight()
        };
        let plain = weight("", "");
        for (head, message) in [
            (format!("{},", many("\"x\":1")), String::new()),
            (format!("\"tools\":[{}],", many("1")), String::new()),
            (String::new(), format!(",\"content\":[{}]", many("1"))),
            (String::new(), format!(",\"tool_calls\":[{}]", many("1"))),
        ] {
            assert!(weight(&head, &message) > plain + 16_000, "{head}{message}");
        }
    }
}
