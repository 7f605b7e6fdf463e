//! The cut of one tool result: a pure function of its text and a number of characters.
//!
//! Responsible for the choice between the JSON form and the text form, and for the one sentence that announces
//! the cut to the model. Deliberately not for which results are cut, at what limit, or where the text comes
//! from: the policy around it decides that.
//!
//! The same text and limit always give the same bytes, so a provider's prompt cache keeps hitting. A result that
//! fits is left alone; that includes our own output, which always fits the limit it was made for. A marker alone
//! exempts nothing: otherwise any web page could switch the limit off by quoting one.

use std::fmt::Write as _;

mod json;
mod text;
mod trouble;

/// A shortened result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// What the model is shown: at most the limit, the announcement included.
    pub text: String,
    /// Characters of the original that are not in it.
    pub gone_chars: usize,
}

/// The smallest limit, in characters, at which the announcement and a useful rest both fit.
///
/// Below it [`cut`] still keeps the bound, but no longer promises valid JSON.
pub const MIN_CHARS: usize = 200;

/// Shortens `text` to at most `max_chars` characters (Unicode scalar values), the announcement included.
///
/// `None` means leave it alone, because it fits. Valid JSON (an object, an array or a string) stays valid JSON
/// down to [`MIN_CHARS`], unless it is nested deeper than 100 levels or has more than 500,000 values; everything
/// else is cut by lines.
pub fn cut(text: &str, max_chars: usize) -> Option<Cut> {
    if !exceeds(text, max_chars) {
        return None;
    }
    let total = text.chars().count();
    let cut = json::shorten(text, total, max_chars);
    Some(cut.unwrap_or_else(|| text::shorten(text, total, max_chars, Mark::Full)))
}

/// Whether `text` has more than `max_chars` characters; counts only where the byte length leaves it open.
pub fn exceeds(text: &str, max_chars: usize) -> bool {
    // A character takes one to four bytes.
    text.len() > max_chars
        && (text.len() / 4 >= max_chars.saturating_add(1) || text.chars().count() > max_chars)
}

/// How a cut is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// The one full announcement: how much is gone, of how much, and how to get it.
    Full,
    /// A placeholder inside a value of a JSON document, whose announcement stands elsewhere.
    Quiet,
}

/// What one announcement tells.
#[derive(Debug, Clone, Copy)]
struct Loss {
    gone: usize,
    total: usize,
    /// First and last line cut, and the number of lines; `None` for a text of one line.
    lines: Option<(usize, usize, usize)>,
    /// Whether lines that look like errors were kept out of the part that was cut.
    errors_kept: bool,
}

const HOW_TO_GET_IT: &str = "to see more, ask the tool for a narrower range or filter";

impl Mark {
    /// The marker in a text. Free of quotes and backslashes, so that it needs no escape in JSON.
    fn sentence(self, loss: &Loss) -> String {
        let Loss { gone, total, .. } = loss;
        if self == Mark::Quiet {
            return format!("[… {gone} of {total} characters cut …]");
        }
        let mut marker = format!("[toolrein: cut {gone} of {total} characters here");
        // Writing to a String cannot fail.
        if let Some((first, last, count)) = loss.lines {
            let _ = write!(marker, " (lines {first} to {last} of this result's {count})");
        }
        if loss.errors_kept {
            marker.push_str(", except what looks like errors");
        }
        let _ = write!(marker, "; {HOW_TO_GET_IT}]");
        marker
    }
}

/// The marker of a JSON document: `layout` are the characters of its indentation and of needless escapes, which go
/// first and take no information with them.
fn json_sentence(gone: usize, total: usize, layout: usize) -> String {
    let lead = format!("[toolrein: cut {gone} of {total} characters of this JSON");
    match layout {
        0 => format!("{lead}, at each …; {HOW_TO_GET_IT}]"),
        all if all >= gone => format!("{lead}, all of them layout]"),
        some => format!("{lead}, at each … ({some} of them layout); {HOW_TO_GET_IT}]"),
    }
}

#[cfg(test)]
mod tests;
