//! What the model saw of a tool call's result: the texts and the pictures of the result itself, and what the client sent
//! after it. Compares two of them within one request; decides nothing.

use super::likeness::{self, Likeness};
use crate::View;
use crate::context::is_same_part;
use crate::message::Content;
use crate::source::{SourceBytes, SourceSpan};
use std::iter;
use wire::body::{Kind, Scanner, Span};
use wire::json::decode_bytes;

/// Most messages after the results of one reply that are compared: more are taken for something new.
const MOST_FOLLOWING: usize = 16;
/// Members that hold a picture or a file in an object that is a result's whole content.
const MEDIA: [&[u8]; 4] = [b"image_url", b"file_id", b"data", b"source"];

/// Where a result's content is: its texts and its other parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Most have but one.
    first: Option<Piece>,
    others: Vec<Piece>,
}

/// One text or one other part, such as a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    at: SourceSpan,
    is_text: bool,
}

impl Answer {
    /// The content of the message in `view`.
    pub fn of(view: &View<'_>) -> Self {
        let piece = |span, is_text| Piece { at: SourceSpan::new(view.id, span), is_text };
        let text = |span| piece(span, true);
        match &view.message.content {
            Content::Absent | Content::Null(_) => Self::default(),
            Content::Text(content) => Self { first: Some(text(content.span)), others: Vec::new() },
            Content::Parts { parts, .. } => {
                let of_part = |part: &crate::message::Part| match part.text {
                    Some(content) => text(content.span),
                    None => piece(part.span, false),
                };
                let mut pieces = parts.iter().map(of_part);
                Self { first: pieces.next(), others: pieces.collect() }
            }
            Content::Other(span) => {
                Self { first: Some(piece(*span, !is_media(*span, view.body))), others: Vec::new() }
            }
        }
    }

    /// In what two results differ. A text is equal as one part or as a plain string, whatever a client notes
    /// beside it, such as a mark for the provider's cache. Two pictures are equal or they differ.
    pub fn likeness(&self, other: &Self, sources: SourceBytes<'_>) -> Likeness {
        let count = |answer: &Self| (answer.first.is_some(), answer.others.len());
        if count(self) != count(other) {
            return Likeness::None;
        }
        let mut least = Likeness::Equal;
        for (one, other) in iter::zip(self.pieces(), other.pieces()) {
            least = least.min(one.likeness(*other, sources));
            if least == Likeness::None {
                break;
            }
        }
        least
    }

    /// Whether two results are texts that differ in these numbers alone, each pair that of both results.
    pub fn is_equal_but_for(&self, other: &Self, numbers: &[(i64, i64)], sources: SourceBytes<'_>) -> bool {
        let is_equal = |one: &Piece, other: &Piece| {
            one.is_text
                && other.is_text
                && likeness::are_equal_but_for(one.at.of(sources), other.at.of(sources), numbers)
        };
        self.others.len() == other.others.len()
            && self.first.is_some() == other.first.is_some()
            && iter::zip(self.pieces(), other.pieces()).all(|(one, other)| is_equal(one, other))
    }

    /// How long it is, in bytes as written.
    pub fn bytes(&self) -> usize {
        self.pieces().map(|piece| piece.at.bytes()).sum()
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.first.iter().chain(&self.others)
    }
}

impl Piece {
    fn likeness(self, other: Self, sources: SourceBytes<'_>) -> Likeness {
        let (one, another) = (self.at.of(sources), other.at.of(sources));
        match (self.is_text, other.is_text) {
            (true, true) => likeness::of(one, another),
            (false, false) if is_same_part(one, another) => Likeness::Equal,
            _ => Likeness::None,
        }
    }
}

/// Whether the object at `span` is a picture or a file, such as a screenshot of a computer call.
fn is_media(span: Span, body: &[u8]) -> bool {
    let mut scanner = Scanner::within(body, span);
    if !matches!(scanner.peek(), Ok(Kind::Object)) || scanner.object().is_err() {
        return false;
    }
    let (mut has_type, mut has_media) = (false, false);
    while let Ok(Some(key)) = scanner.member() {
        let name = decode_bytes(key, body);
        has_type |= *name == *b"type";
        has_media |= MEDIA.contains(&&*name);
        if scanner.skip().is_err() {
            return false;
        }
    }
    has_type && has_media
}

/// What the client sent after the results of one reply, before the model's next one: clients send there the pictures that
/// a tool message cannot hold, or a word of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    messages: usize,
    texts: Vec<SourceSpan>,
    /// Pictures and other parts that are not text.
    parts: Vec<SourceSpan>,
}

impl Following {
    /// Adds the next message.
    pub fn add(&mut self, view: &View<'_>) {
        self.messages += 1;
        if self.messages > MOST_FOLLOWING {
            return;
        }
        for Piece { at, is_text } in Answer::of(view).pieces() {
            match is_text {
                true if at.of(view.sources()).trim_ascii().is_empty() => {}
                true => self.texts.push(*at),
                false => self.parts.push(*at),
            }
        }
    }

    /// Whether it holds a picture, or more messages than are compared.
    pub fn shows_something(&self) -> bool {
        !self.parts.is_empty() || self.messages > MOST_FOLLOWING
    }

    /// In what this and what followed `other` results differ. Text beside none is no difference: some clients
    /// move one instruction along, to the end of each request. Texts are compared like those of results, but for the
    /// client's own count of its turns.
    pub fn likeness(&self, other: &Self, sources: SourceBytes<'_>) -> Likeness {
        let is_crowded = self.messages.max(other.messages) > MOST_FOLLOWING;
        let same_parts = self.parts.len() == other.parts.len()
            && iter::zip(&self.parts, &other.parts)
                .all(|(one, other)| is_same_part(one.of(sources), other.of(sources)));
        if is_crowded || !same_parts {
            return Likeness::None;
        }
        self.likeness_of_texts(other, sources)
    }

    fn likeness_of_texts(&self, other: &Self, sources: SourceBytes<'_>) -> Likeness {
        if self.texts.is_empty() || other.texts.is_empty() {
            return Likeness::Equal;
        }
        if self.texts.len() != other.texts.len() {
            return Likeness::None;
        }
        let pairs = iter::zip(&self.texts, &other.texts);
        let pairs = pairs.map(|(one, other)| (one.of(sources), other.of(sources)));
        let alike = |(one, other): (&[u8], &[u8])| match likeness::of(one, other) {
            Likeness::None if likeness::differ_in_counts_of_turns(one, other) => Likeness::ButForNumbers,
            found => found,
        };
        pairs.map(alike).min().unwrap_or(Likeness::Equal)
    }

    /// Whether its text says something else than that of the reply before.
    pub fn says_something_else(&self, before: &Self, sources: SourceBytes<'_>) -> bool {
        self.likeness_of_texts(before, sources) == Likeness::None
    }
}
