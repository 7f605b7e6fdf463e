//! The row form of a cut: a table keeps its header and whole rows, and the announcement is a row like them.
//!
//! For texts that are one table, with a few lines around it: CSV and TSV, tables drawn with bars (Markdown, psql, mysql),
//! aligned columns (`ls -l`, `ps`, `kubectl get`), JSON lines. A table in a page of prose and rows too long to be kept
//! whole are cut as text.
//!
//! As of a JSON array the first rows and half as many last ones are kept, and between them what looks like errors.

use std::ops::Range;

use super::Cut;
use super::announce::{Loss, LossRange, Mark, Unit, Wording};
use super::json::share::{Share, sample};
use super::trouble::{Rank, Signs};

mod aligned;
mod bars;
mod lines;
mod separated;

/// Fewer rows are no table worth its header.
const MIN_ROWS: usize = 10;
/// More rows are cut as text: a bound on memory (some 6 MB), reached at no less than 200 KB.
const MAX_ROWS: usize = 100_000;

/// A text that is a table.
struct Table {
    form: Form,
    /// Each with its line end, adjacent to each other. The text before the first (the header) and after the last is
    /// kept.
    rows: Vec<Range<usize>>,
}

/// How a row is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// So many fields between delimiters.
    Separated { delimiter: u8, fields: usize },
    /// So many cells between bars, with one at both ends or not.
    Bars { cells: usize, closed: bool },
    /// Columns of blanks: any line will do.
    Aligned,
    /// One JSON object a line.
    JsonLines,
}

/// Shortens `text`, which has `total` characters and more than `max_chars`, if it is a table.
///
/// `None` if it is none, or if header and foot leave less than half of the limit to its rows.
pub(super) fn shorten(text: &str, total: usize, max_chars: usize, wording: Wording<'_>) -> Option<Cut> {
    let table = lines::read(text)
        .or_else(|| bars::read(text))
        .or_else(|| separated::read(text))
        .or_else(|| aligned::read(text))?;
    let (first, last) = (table.rows.first()?, table.rows.last()?);
    if table.rows.len() < MIN_ROWS {
        return None;
    }
    let (head, foot) = (&text[..first.start], &text[last.end..]);
    let around = head.chars().count() + foot.chars().count();
    let newline = if text[..first.end].ends_with("\r\n") { "\r\n" } else { "\n" };
    let count = table.rows.len();
    let loss = |gone, first, last, errors_kept| Loss {
        gone,
        total,
        place: Some(LossRange { unit: Unit::Rows, first, last, count }),
        errors_kept,
    };
    let row = |sentence: &str| format!("{}{newline}", table.form.row(sentence));
    let longest = loss(total, count, count, true).at_the_end();
    let longest = longest.iter().map(|loss| row(&Mark::Full(wording).sentence(loss)).chars().count());
    let longest = longest.max().unwrap_or_default();
    let room = max_chars.checked_sub(around + longest).filter(|room| *room >= max_chars / 2)?;

    let gap = table.form.gap() + newline;
    let shares: Vec<Share> = table.rows.iter().enumerate().map(|row| share(text, row)).collect();
    let ranks = ranks(text, &table.rows);
    let kept = sample(&shares, room, gap.chars().count(), |share| ranks[share.ordinal]);
    if kept.len() < MIN_ROWS / 2 || kept.len() == count {
        return None;
    }
    let gone = total - around - kept.iter().map(|share| share.room).sum::<usize>();
    let first_gone = kept.iter().enumerate().find(|(at, share)| *at != share.ordinal);
    let first_gone = first_gone.map_or(kept.len(), |(at, _)| at) + 1;
    let tail =
        kept.iter().rev().enumerate().take_while(|(at, share)| share.ordinal + at + 1 == count).count();
    let errors_kept = first_gone - 1 + tail < kept.len();
    let marker = row(&Mark::Full(wording).sentence(&loss(gone, first_gone, count - tail, errors_kept)));

    let mut out = String::with_capacity(text.len().min(max_chars * 4));
    out.push_str(head);
    let (mut next, mut announced) = (0, false);
    for ordinal in kept.iter().map(|share| share.ordinal).chain([count]) {
        if ordinal > next {
            end_line(&mut out, newline);
            out.push_str(if announced { &gap } else { &marker });
            announced = true;
        }
        next = ordinal + 1;
        out.push_str(table.rows.get(ordinal).map_or("", |row| &text[row.clone()]));
    }
    out.push_str(foot);
    (!super::exceeds(&out, max_chars)).then_some(Cut { text: out, gone_chars: gone })
}

/// The header of a text without line end at its end has none.
fn end_line(out: &mut String, newline: &str) {
    if !out.is_empty() && !out.ends_with('\n') {
        out.push_str(newline);
    }
}

fn share(text: &str, (ordinal, row): (usize, &Range<usize>)) -> Share {
    let chars = text[row.clone()].chars().count();
    Share { ordinal, node: ordinal, fixed: 0, room: chars, full: chars }
}

/// The strongest sign of trouble in each row.
fn ranks(text: &str, rows: &[Range<usize>]) -> Vec<Option<Rank>> {
    let mut ranks = vec![None; rows.len()];
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return ranks };
    let mut at = 0;
    for sign in Signs::within(text.as_bytes(), first.start..last.end) {
        while rows[at].end <= sign.at {
            at += 1;
        }
        ranks[at] = ranks[at].max(Some(sign.rank));
    }
    ranks
}

impl Form {
    /// A row of one cell with `text`, which has no quote, bar or tab.
    fn row(self, text: &str) -> String {
        match self {
            Self::Separated { delimiter, fields } => {
                let quote = if delimiter == b'\t' { "" } else { "\"" };
                let rest = char::from(delimiter).to_string().repeat(fields - 1);
                format!("{quote}{text}{quote}{rest}")
            }
            Self::Bars { cells, closed: true } => format!("| {text} |{}", "  |".repeat(cells - 1)),
            Self::Bars { cells, closed: false } => format!(" {text} {}", "| ".repeat(cells - 1)),
            Self::Aligned => text.to_owned(),
            Self::JsonLines => format!("{{\"toolrein\":\"{text}\"}}"),
        }
    }

    /// A row that replaces others that were cut.
    fn gap(self) -> String {
        if self == Self::JsonLines { "{\"…\":\"…\"}".to_owned() } else { self.row("…") }
    }
}

/// The lines of a text from the byte `from` on, each with its line end.
fn lines_from(text: &str, from: usize) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut start = from;
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |length| start + length + 1);
        let line = start..end;
        start = end;
        (!line.is_empty()).then_some(line)
    })
}

#[cfg(test)]
mod tests;
