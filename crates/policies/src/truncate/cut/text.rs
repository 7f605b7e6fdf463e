//! The text form of a cut: whole lines from the head and the tail, and from between them what looks like errors. For
//! plain text, logs, and the text inside a long JSON string. What an error looks like is decided in `trouble`, how
//! far its report goes in `trace`; JSON and tables have forms of their own.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};

use super::announce::{Loss, LossRange, Mark, Unit};
use super::trouble::{Picks, Rank, Signs};
use super::{Cut, count, trace};

/// One part in five is head, the rest tail: of the ratios measured on coding agents' large results, 20/80 at 16,000
/// characters lost least of what the agents later used (4% of lines; head only 11%, half and half 17%).
const HEAD_PART: usize = 5;
/// At most one part in five of the space goes to lines that look like errors.
const ERROR_PART: usize = 5;
/// A report of several lines is kept whole up to half of that space and to so many characters; two of 1,600 fit at
/// the default limit. Of a longer report the lines are kept that are signs themselves.
const REPORT_PART: usize = 2;
const REPORT_CHARS: usize = 4_000;
/// Below this limit there is only space for head and tail.
const MIN_CHARS_FOR_ERRORS: usize = 1_000;
/// The most characters kept of one such line, and how far before its sign the piece of a longer line begins.
const LINE_CHARS: usize = 400;
const LEAD_BYTES: usize = 100;
const ELLIPSIS: &str = "…";

/// Shortens `text`, which has `total` characters and more than `max_chars`, to at most `max_chars`.
pub(super) fn shorten(text: &str, total: usize, max_chars: usize, mark: Mark<'_>) -> Cut {
    let newline = newline_of(text);
    let line_count = lines_through(text, text.len());
    let with_errors = max_chars >= MIN_CHARS_FOR_ERRORS;
    let place = |first: usize, last: usize| {
        (line_count > 1).then_some(LossRange { unit: Unit::Lines, first, last, count: line_count })
    };
    let longest_place = place(line_count, line_count);
    let longest = Loss { gone: total, total, place: longest_place, errors_kept: with_errors }.at_the_end();
    let longest = longest.iter().map(|loss| mark.sentence(loss).chars().count()).max().unwrap_or_default();
    let room = max_chars.saturating_sub(longest + 2 * newline.len());

    let error_room = if with_errors { room / ERROR_PART } else { 0 };
    let ends = Ends::of(text, room - error_room);
    let mut errors = error_lines(text, ends.gap(), error_room, newline);
    let ends = Ends::of(text, room - errors.iter().map(|piece| piece.cost).sum::<usize>());
    // The ends may have grown over some of the pieces, or over a part of a report.
    errors.retain_mut(|piece| piece.is_left_between(text, &ends));

    let kept = count(&text[..ends.head])
        + count(&text[ends.tail..])
        + errors.iter().map(|piece| count(&text[piece.span.clone()])).sum::<usize>()
        + seams(text, &ends, &errors).flatten().map(count).sum::<usize>();
    let place = place(lines_through(text, ends.head + 1), lines_through(text, ends.tail));
    let loss = Loss { gone: total - kept, total, place, errors_kept: !errors.is_empty() };
    let marker = mark.sentence(&loss);
    if room == 0 {
        return Cut { text: marker.chars().take(max_chars).collect(), gone_chars: total };
    }
    Cut { text: join(text, &ends, &errors, &marker), gone_chars: loss.gone }
}

/// Where the head ends and the tail begins, in bytes.
struct Ends {
    head: usize,
    tail: usize,
}

impl Ends {
    /// Head and tail of `room` characters together; `text` has more.
    fn of(text: &str, room: usize) -> Self {
        let head = head_end(text, room / HEAD_PART);
        let rest = room - count(&text[..head]);
        Self { head, tail: head + tail_start(&text[head..], rest) }
    }

    fn gap(&self) -> Range<usize> {
        self.head..self.tail
    }
}

/// A piece of the gap that is kept.
#[derive(Clone)]
struct Piece {
    span: Range<usize>,
    /// Characters it takes, its line ends and ellipses included.
    cost: usize,
    /// Whether the line goes on before or after the piece.
    clipped: (bool, bool),
}

impl Piece {
    /// Removes what the ends show already; returns whether anything is left.
    fn is_left_between(&mut self, text: &str, ends: &Ends) -> bool {
        let bytes = text.as_bytes();
        let span = &mut self.span;
        if span.start < ends.head && span.end > ends.head {
            let is_line = bytes[..ends.head].ends_with(b"\n");
            let line = memchr(b'\n', &bytes[ends.head..span.end]).map_or(span.end, |at| ends.head + at + 1);
            span.start = if is_line { ends.head } else { line };
        }
        if span.end > ends.tail {
            let last = bytes.get(span.start..ends.tail).and_then(|kept| memrchr(b'\n', kept));
            span.end = last.map_or(span.start, |at| span.start + at);
        }
        span.start >= ends.head && span.start < span.end
    }
}

/// The end of the last whole line within `room` characters, or of the last character if lines waste half the room.
fn head_end(text: &str, room: usize) -> usize {
    let is_near_ascii = text.as_bytes().get(..room).is_some_and(<[u8]>::is_ascii);
    let limit =
        if is_near_ascii { room } else { text.char_indices().nth(room).map_or(text.len(), |(at, _)| at) };
    let whole = memrchr(b'\n', &text.as_bytes()[..limit]).map_or(0, |at| at + 1);
    if count(&text[..whole]) * 2 >= room { whole } else { limit }
}

/// The start of the first whole line within the last `room` characters, or of the first character likewise.
fn tail_start(text: &str, room: usize) -> usize {
    let Some(back) = room.checked_sub(1) else { return text.len() };
    let bytes = text.as_bytes();
    let ascii = text.len().checked_sub(room).filter(|start| bytes[*start..].is_ascii());
    let limit = ascii.unwrap_or_else(|| text.char_indices().rev().nth(back).map_or(0, |(at, _)| at));
    if limit == 0 || bytes[limit - 1] == b'\n' {
        return limit;
    }
    let whole = memchr(b'\n', &bytes[limit..]).map_or(text.len(), |at| limit + at + 1);
    if count(&text[whole..]) * 2 >= room { whole } else { limit }
}

/// The lines of the gap that look like errors, in order: certain ones before likely ones, first and last ones before
/// those between, and no more than `room` characters.
fn error_lines(text: &str, gap: Range<usize>, room: usize, newline: &str) -> Vec<Piece> {
    if room == 0 {
        return Vec::new();
    }
    let bytes = text.as_bytes();
    let mut picks = Picks::new(room);
    let mut reports =
        Reports { text, gap: &gap, newline, most: (room / REPORT_PART).min(REPORT_CHARS), tried: 0 };
    // Offers the line, or the report that begins with it, and returns where that ends.
    let mut offer = |line: &Range<usize>, at: usize, rank: Rank| {
        let report = if rank == Rank::Certain { reports.begun_by(line) } else { None };
        let piece = report.unwrap_or_else(|| clip(text, line, at, newline));
        let (cost, end) = (piece.cost, piece.span.end.max(line.end));
        picks.offer(rank, piece, cost);
        end
    };
    let mut line = gap.start..gap.start;
    let mut best: Option<(usize, Rank)> = None;
    for sign in Signs::within(bytes, gap.clone()) {
        if sign.at >= line.end
            && let Some((at, rank)) = best.take()
        {
            line.end = offer(&line, at, rank);
        }
        if sign.at < line.end {
            best = best.map(|(at, rank)| if sign.rank > rank { (sign.at, sign.rank) } else { (at, rank) });
            continue;
        }
        let start = memrchr(b'\n', &bytes[line.end..sign.at]).map_or(line.end, |at| line.end + at + 1);
        let end = memchr(b'\n', &bytes[sign.at..gap.end]).map_or(gap.end, |at| sign.at + at);
        line = start..end;
        best = Some((sign.at, sign.rank));
    }
    if let Some((at, rank)) = best {
        offer(&line, at, rank);
    }
    let mut pieces = picks.into_chosen();
    pieces.sort_unstable_by_key(|piece| piece.span.start);
    pieces
}

/// Finds reports of several lines that are short enough to be kept whole.
struct Reports<'a> {
    text: &'a str,
    gap: &'a Range<usize>,
    newline: &'a str,
    /// Characters of the longest.
    most: usize,
    /// A longer one reaches at least so far; what begins within it is not tried again.
    tried: usize,
}

impl Reports<'_> {
    /// The report that begins with `line`, if it has more than this line.
    fn begun_by(&mut self, line: &Range<usize>) -> Option<Piece> {
        if line.start < self.tried {
            return None;
        }
        // A character takes at most four bytes.
        let limit = self.gap.end.min(line.end + 4 * self.most);
        let end = trace::end(self.text.as_bytes(), line, limit);
        let whole = self.text.get(line.start..end)?.trim_end_matches('\r');
        let cost = count(whole) + 2 * self.newline.len() + 1;
        if cost > self.most {
            self.tried = end;
            return None;
        }
        let span = line.start..line.start + whole.len();
        (end > line.end).then_some(Piece { span, cost, clipped: (false, false) })
    }
}

/// The line, or the part of a long one around the sign.
fn clip(text: &str, line: &Range<usize>, at: usize, newline: &str) -> Piece {
    let far = at - line.start > 2 * LEAD_BYTES;
    let start = if far { text.floor_char_boundary(at - LEAD_BYTES).max(line.start) } else { line.start };
    let rest = text[start..line.end].trim_end_matches('\r');
    let length = rest.char_indices().nth(LINE_CHARS).map_or(rest.len(), |(end, _)| end);
    let span = start..start + length;
    // Its own line end, and an ellipsis line after it; ellipses at clipped ends.
    let cost = count(&text[span.clone()]) + 2 * newline.len() + 1 + 2;
    Piece { span, cost, clipped: (start > line.start, length < rest.len()) }
}

fn join(text: &str, ends: &Ends, errors: &[Piece], marker: &str) -> String {
    let newline = newline_of(text);
    let head = &text[..ends.head];
    let mut out = String::with_capacity(head.len() + text.len() - ends.tail + marker.len() + 256);
    out.push_str(head);
    if !head.is_empty() && !head.ends_with('\n') {
        out.push_str(newline);
    }
    out.push_str(marker);
    out.push_str(newline);
    for (piece, seam) in errors.iter().zip(seams(text, ends, errors)) {
        if piece.clipped.0 {
            out.push_str(ELLIPSIS);
        }
        out.push_str(&text[piece.span.clone()]);
        if piece.clipped.1 {
            out.push_str(ELLIPSIS);
        }
        match seam {
            Some(line_ends) => out.push_str(line_ends),
            None => out.extend([newline, ELLIPSIS, newline]),
        }
    }
    out.push_str(&text[ends.tail..]);
    out
}

/// The text after each piece, up to the next one or the tail: kept as it is if it is nothing but line ends and takes
/// no more space than the ellipsis line that it saves; `None` where that line has to report a loss.
fn seams<'a>(text: &'a str, ends: &Ends, errors: &[Piece]) -> impl Iterator<Item = Option<&'a str>> {
    let ellipsis = 2 * newline_of(text).len() + 1;
    errors.iter().enumerate().map(move |(index, piece)| {
        let next = errors.get(index + 1).map_or(ends.tail, |next| next.span.start);
        let between = &text[piece.span.end..next];
        let is_line_ends = between.bytes().all(|byte| matches!(byte, b'\r' | b'\n'));
        (is_line_ends && between.len() <= ellipsis).then_some(between)
    })
}

/// The line end that the text itself uses.
fn newline_of(text: &str) -> &'static str {
    match memchr(b'\n', text.as_bytes()) {
        Some(at) if at > 0 && text.as_bytes()[at - 1] == b'\r' => "\r\n",
        _ => "\n",
    }
}

/// How many lines begin before the byte `end`.
fn lines_through(text: &str, end: usize) -> usize {
    let before = &text.as_bytes()[..end.min(text.len())];
    memchr_iter(b'\n', before).count() + usize::from(before.last().is_some_and(|last| *last != b'\n'))
}
