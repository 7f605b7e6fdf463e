//! What stands in the place of a cleared result: its words, and what must be known for them of a result that was read
//! long before. Decides on nothing.

use crate::transcript::ToolResult;
use crate::transcript::identity::Domain;
use crate::transcript::memo::Derived;
use crate::wire::body::{Span, Str};
use crate::wire::json::decode;
use std::borrow::Cow;
use std::sync::Arc;

/// How much of a cleared result its marker quotes, in characters.
const QUOTED: usize = 200;
/// The longest name of a tool that is told, in characters.
const NAMED: usize = 64;

/// A text that may be cleared.
#[derive(Clone, Debug)]
pub(super) struct Old {
    /// Its place among the texts of results.
    pub(super) at: usize,
    pub(super) message: usize,
    pub(super) text: usize,
    tool: Box<str>,
    /// The tool of ours by which the model reads it, with the number of its call.
    reader: Option<(&'static str, usize)>,
    /// Its first characters as the model reads them.
    start: Arc<str>,
    /// Its size as the tool gave it, in characters.
    chars: usize,
}

impl Old {
    /// The `text`-th text of `result`, the model reading `instead` where that is something else. `None` where it is
    /// not to be edited. `reader`: the tool of ours by which the model reads it.
    pub(super) fn read(
        result: &ToolResult<'_>,
        (at, text): (usize, usize),
        (instead, reader): (Option<&str>, Option<&'static str>),
    ) -> Option<Self> {
        let view = &result.view;
        let written = view.message.content.texts().nth(text)?;
        let name = view.text_name(written).0.to_le_bytes();
        let key = view.identity.key.hash(Domain::Clear, &[&name, instead.unwrap_or("").as_bytes()]);
        let read = || {
            let start = instead.map_or_else(|| beginning(written, view.body), Cow::Borrowed);
            let start: String = start.chars().take(QUOTED).collect();
            (Arc::from(start), chars(written, view.body))
        };
        let derived = view.memo.derive(key, &mut || Derived::Cut(Some(read())));
        let (start, chars) = if let Derived::Cut(Some(known)) = derived { known } else { read() };
        let tool = result.tool().chars().take(NAMED).collect::<String>().into();
        let reader = reader.zip(result.call.map(|call| call.ordinal));
        Some(Self { at, message: view.index, text, tool, reader, start, chars })
    }

    /// What the model reads in its place.
    pub(super) fn marker(&self) -> String {
        let Self { tool, start, chars, .. } = self;
        let (of, again) = match &**tool {
            "" => (String::new(), "Ask for it again".to_owned()),
            tool => (format!(" of {tool}"), format!("Call {tool} again")),
        };
        if let Some((reader, call)) = self.reader {
            return format!(
                "[toolrein: this old result{of} was cleared to make room ({chars} characters). Use {reader} with call \
                 {call} if you need it. It began:]\n{start}"
            );
        }
        format!(
            "[toolrein: this old result{of} was cleared to make room ({chars} characters). {again} if you need it and \
             that does no harm. It began:]\n{start}"
        )
    }

    /// Characters that the model does not read.
    pub(super) fn gone_chars(&self) -> usize {
        self.chars.saturating_sub(self.start.chars().count())
    }
}

/// The beginning of a text, decoded: the characters that are quoted, and no more bytes than these take.
fn beginning(text: Str, body: &[u8]) -> Cow<'_, str> {
    let raw = text.raw(body);
    let mut end = 0;
    for _ in 0..QUOTED {
        end += raw.get(end..).map_or(0, character_bytes);
    }
    let start = text.span.range().start;
    decode(Str { span: Span::new(start, start + end.min(raw.len())), ..text }, body)
}

/// How many bytes the first character of a string takes, escapes as written.
fn character_bytes(raw: &[u8]) -> usize {
    match raw {
        [] => 0,
        // Half of a pair, whose other half follows.
        [b'\\', b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B', ..] => 12,
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        [first, ..] => first.leading_ones().max(1) as usize,
    }
}

/// How many characters a text has.
fn chars(text: Str, body: &[u8]) -> usize {
    let raw = text.raw(body);
    // Every byte but those that go on with a character.
    let written = raw.iter().filter(|byte| *byte & 0xc0 != 0x80).count();
    let (mut spelled, mut at) = (0, 0);
    // Escapes lie so close in code and JSON that a search for each would cost more than a look at every byte.
    while let Some(byte) = raw.get(at) {
        let bytes = if *byte == b'\\' { character_bytes(&raw[at..]) } else { 1 };
        // All bytes of an escape but one.
        spelled += bytes - 1;
        at += bytes;
    }
    written - spelled
}
