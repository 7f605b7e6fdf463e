//! The JSON form of a cut: a document that stays valid, with its structure, its numbers and its format. Recognises
//! JSON, decides what goes first (indentation, then the middle of long strings and arrays, object members last), and
//! adds the one announcement: the last member `"toolrein"` of an object, the last element of an array, or inside a
//! top-level string. It writes no numbers or values of its own: everything kept is copied from the original's bytes.
//! JSON lines are rows.

use std::borrow::Cow;

use memchr::memchr;
use serde_json::value::RawValue;

use super::Cut;
use super::announce::{Mark, Wording};
use crate::texts::Texts;

mod scan;
pub(super) mod share;
mod string;
mod write;

/// Shortens `text`, which has `total` characters and more than `max_chars`, if it is a JSON object, array or string.
///
/// `None` if it is not, or if it is one that has to be cut as text.
pub(super) fn shorten(text: &str, total: usize, max_chars: usize, wording: Wording<'_>) -> Option<Cut> {
    let trimmed = text.trim_matches([' ', '\t', '\r', '\n']);
    if !trimmed.starts_with(['{', '[', '"']) {
        return None;
    }
    // This checks validity; from here on only structure is parsed.
    serde_json::from_str::<&RawValue>(trimmed).ok()?;
    if trimmed.starts_with('"') {
        let room = max_chars.checked_sub(2)?;
        let piece = string::shorten(trimmed, room, Mark::Full(wording));
        return fits(format!("\"{}\"", piece.text), total, piece.kept, max_chars);
    }
    let document = without_indentation(trimmed);
    let chars = document.chars().count();
    let indentation = total - chars;
    let longest = wording.longest_json_sentence(total);
    let end = document.len() - 1;
    let (body, close) = (&document[..end], &document[end..]);
    let lead = announcement_lead(&document);
    let room = max_chars.checked_sub(longest + lead.chars().count() + 1)?;

    let (mut out, kept, respelled) = if chars <= room {
        (body.to_owned(), chars, 0)
    } else {
        let mut cut = write::shorten(&scan::read(&document)?, room, wording.texts)?;
        cut.text.pop();
        (cut.text, cut.kept, cut.respelled)
    };
    let gone = total.saturating_sub(kept);
    if out.trim_end().len() == 1 {
        // Nothing before it, so no comma.
        out.push_str(&lead[1..]);
    } else {
        out.push_str(&lead);
    }
    out.push_str(&wording.json_sentence(gone, total, indentation + respelled));
    out.push('"');
    out.push_str(close);
    fits(out, total, kept, max_chars)
}

/// Shortens the JSON object or array `text`, which has `total` characters, to `max_chars` without an announcement: it is a
/// string of another document, which has one. `None` as [`shorten`].
fn shorten_inner(text: &str, total: usize, max_chars: usize, texts: &Texts) -> Option<Cut> {
    let trimmed = text.trim_matches([' ', '\t', '\r', '\n']);
    serde_json::from_str::<&RawValue>(trimmed).ok()?;
    let document = without_indentation(trimmed);
    let chars = document.chars().count();
    if chars <= max_chars {
        return fits(document.into_owned(), total, chars, max_chars);
    }
    let cut = write::shorten(&scan::read(&document)?, max_chars, texts)?;
    fits(cut.text, total, cut.kept, max_chars)
}

/// The bound is kept by construction; this guards it against any error in the arithmetic.
fn fits(text: String, total: usize, kept: usize, max_chars: usize) -> Option<Cut> {
    let gone_chars = total.saturating_sub(kept);
    (!super::exceeds(&text, max_chars)).then_some(Cut { text, gone_chars })
}

/// A valid document without its line breaks and the blanks around them. A JSON string holds no raw line break, so
/// whatever surrounds one is layout.
fn without_indentation(document: &str) -> Cow<'_, str> {
    if memchr(b'\n', document.as_bytes()).is_none() {
        return Cow::Borrowed(document);
    }
    let mut compact = String::with_capacity(document.len());
    for line in document.split('\n') {
        compact.push_str(line.trim_matches([' ', '\t', '\r']));
    }
    Cow::Owned(compact)
}

/// The text before the announcement's sentence, with the quote that opens it: a name that is still free in an object.
fn announcement_lead(document: &str) -> Cow<'static, str> {
    const NAMES: [&str; 3] = ["toolrein", "toolrein_cut", "toolrein_cut_again"];
    if document.starts_with('[') {
        return Cow::Borrowed(",\"");
    }
    let taken =
        |name: &str| memchr::memmem::find(document.as_bytes(), format!("\"{name}\"").as_bytes()).is_some();
    let name = NAMES.into_iter().find(|name| !taken(name)).unwrap_or("toolrein_cut_once_more");
    Cow::Owned(format!(",\"{name}\":\""))
}
