//! The cut of one tool result: a pure function of its text and its bounds.
//!
//! Applies the forms in order (base64 becomes a note; what is still too long is cut as JSON, as rows or as text) and
//! writes the one sentence that announces a cut to the model. The policy around it decides which results are cut, at
//! what limit, and where the text comes from.
//!
//! The same text and limit always give the same bytes, so a provider's prompt cache keeps hitting. A result that
//! fits is left alone; that includes our own output, which always fits the limit it was made for. A marker alone
//! exempts nothing: otherwise any web page could switch the limit off by quoting one.

use super::super::texts::Texts;
use announce::{Mark, Wording};

pub(super) mod announce;
pub(super) mod blob;
mod json;
mod rows;
mod text;
mod trace;
mod trouble;

/// A shortened result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// What the model reads: at most the limit, the announcement included.
    pub text: String,
    /// Characters of the original that are not in it.
    pub gone_chars: usize,
}

/// The smallest limit, in characters, at which the announcement and a useful rest both fit.
///
/// Below it [`cut`] still keeps the bound, but no longer promises valid JSON.
pub const MIN_CHARS: usize = 200;

/// In a result over its limit, base64 of more characters than this becomes a note: shorter ones may be keys or
/// signatures, which a model passes on.
const BLOB_CHARS_WHERE_LONG: usize = 1_000;

/// How much of a result may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds<'a> {
    /// The longest result, in characters (Unicode scalar values), the announcement included.
    pub max_chars: usize,
    /// The longest run of base64 in a result that fits, in characters.
    pub blob_chars: usize,
    /// How the model can get what was cut.
    pub how: How,
    /// What announces a cut.
    pub texts: &'a Texts,
}

/// How the model can get what was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// From the tool that gave it.
    Narrower,
    /// From `reader`, a tool of ours, by the number of the result's call.
    Read { reader: &'static str, call: usize },
}

/// Shortens `text` to its bounds.
///
/// `None` means leave it alone, because it fits. Valid JSON (an object, an array or a string) stays valid JSON
/// down to [`MIN_CHARS`], unless it is nested deeper than 100 levels or has more than 500,000 values; tables and JSON
/// lines are cut by rows, everything else by lines.
pub fn cut(text: &str, bounds: Bounds<'_>) -> Option<Cut> {
    let Bounds { max_chars, blob_chars, texts, .. } = bounds;
    if !exceeds(text, max_chars) {
        return blob::leave_out(text, blob_chars, texts);
    }
    let Some(mut noted) = blob::leave_out(text, BLOB_CHARS_WHERE_LONG.min(blob_chars), texts) else {
        return Some(shorten(text, bounds));
    };
    if exceeds(&noted.text, max_chars) {
        let cut = shorten(&noted.text, bounds);
        // Notes that are gone again were never characters of the result.
        let gone_chars = (noted.gone_chars + cut.gone_chars).min(count(text));
        noted = Cut { text: cut.text, gone_chars };
    }
    Some(noted)
}

fn shorten(text: &str, Bounds { max_chars, blob_chars, how, texts }: Bounds<'_>) -> Cut {
    let wording = Wording { texts, how };
    let total = count(text);
    let cut = json::shorten(text, total, max_chars, wording)
        .or_else(|| rows::shorten(text, total, max_chars, wording))
        .unwrap_or_else(|| text::shorten(text, total, max_chars, Mark::Full(wording)));
    // A piece of something that was not base64 as a whole may look like base64.
    match blob::leave_out(&cut.text, blob_chars, texts) {
        Some(noted) => Cut { text: noted.text, gone_chars: (cut.gone_chars + noted.gone_chars).min(total) },
        None => cut,
    }
}

/// Whether `text` has more than `max_chars` characters; counts only where the byte length leaves it open.
pub fn exceeds(text: &str, max_chars: usize) -> bool {
    // A character takes one to four bytes.
    text.len() > max_chars && (text.len() / 4 >= max_chars.saturating_add(1) || count(text) > max_chars)
}

/// The number of characters of `text`; quicker where all of them are ASCII, the usual case.
fn count(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

#[cfg(test)]
mod tests;
