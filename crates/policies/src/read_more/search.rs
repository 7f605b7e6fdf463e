//! Search in a result: the lines that hold a text, with the lines around them. Case counts, unless nothing is found
//! that way. Long lines are shown as the piece around the hit, so that JSON of one line can be searched as well.

use super::found::Piece;
use std::ops::Range;
use wire::plural::{counted, is_one};

/// Lines shown before and after a hit.
const AROUND: usize = 2;
/// A longer line is shown as a piece of so many characters.
const LINE_CHARS: usize = 400;
/// How much of it is shown before the hit, in characters.
const LEAD_CHARS: usize = 150;
/// Hits that are shown within one long line.
const HITS_IN_LINE: usize = 20;
/// How much of the searched text is quoted, in characters.
const QUOTED_CHARS: usize = 70;
const ELLIPSIS: &str = "…";

/// The lines of `text` that hold `needle`, as far as `room` characters allow.
pub(super) fn answer(text: &str, needle: &str, room: usize) -> Piece {
    let lines: Vec<&str> = text.lines().collect();
    let mut hits = hits(&lines, |line| places(line, needle));
    let mut how = "";
    if hits.is_empty() {
        let lower = needle.to_lowercase();
        hits = self::hits(&lines, |line| places_in_any_case(line, &lower));
        how = " in any case";
    }
    // Escapes make it longer.
    let quoted: String = format!("{needle:?}").chars().take(QUOTED_CHARS).collect();
    if hits.is_empty() {
        let what = format!("nothing found of {quoted} in its {}", counted(lines.len(), "line"));
        return Piece { what, text: String::new() };
    }
    let (out, shown) = write(&lines, &hits, room);
    let hold = if is_one(hits.len()) { "holds" } else { "hold" };
    let mut what = format!("{} of {} {hold} {quoted}{how}", hits.len(), counted(lines.len(), "line"));
    if let Some((next, _)) = hits.get(shown) {
        let rest = hits.len() - shown;
        let do_not = if is_one(rest) { "does not" } else { "do not" };
        what.push_str(&format!(
            "; {rest} {do_not} fit, from line {} on: search for more, or ask for lines",
            next + 1
        ));
    }
    Piece { what, text: out }
}

/// The lines with a hit, each with the positions in it, in bytes.
type Hits = Vec<(usize, Vec<Range<usize>>)>;

fn hits(lines: &[&str], places: impl Fn(&str) -> Vec<Range<usize>>) -> Hits {
    let found = lines.iter().enumerate().map(|(at, line)| (at, places(line)));
    found.filter(|(_, places)| !places.is_empty()).collect()
}

fn places(line: &str, needle: &str) -> Vec<Range<usize>> {
    let found = memchr::memmem::find_iter(line.as_bytes(), needle.as_bytes());
    found.take(HITS_IN_LINE).map(|at| at..at + needle.len()).collect()
}

/// The same, whatever the case. Where small letters take other bytes than capital ones the position is near enough.
fn places_in_any_case(line: &str, lower: &str) -> Vec<Range<usize>> {
    let found = places(&line.to_lowercase(), lower);
    let end = line.len();
    found.into_iter().map(|place| place.start.min(end)..place.end.min(end)).collect()
}

/// The hits with the lines around them, and how many of them fit.
fn write(lines: &[&str], hits: &Hits, room: usize) -> (String, usize) {
    let mut out = String::new();
    let mut left = room;
    // The first line that is not written yet.
    let mut next = 0;
    for (nth, (at, places)) in hits.iter().enumerate() {
        // The lines before it, unless they were shown already.
        let start = at.saturating_sub(AROUND).max(next);
        let mut block = String::new();
        if start > next {
            block.push_str("…\n");
        }
        for (number, line) in lines.iter().enumerate().take(*at).skip(start) {
            block.push_str(&written(number, line, &[]));
        }
        if *at >= next {
            block.push_str(&written(*at, lines[*at], places));
        }
        let until_next = hits.get(nth + 1).map_or(usize::MAX, |(next, _)| *next);
        let end = (at + AROUND + 1).min(until_next).min(lines.len());
        for (number, line) in lines.iter().enumerate().take(end).skip(at + 1) {
            block.push_str(&written(number, line, &[]));
        }
        let Some(rest) = left.checked_sub(block.chars().count()) else {
            if nth > 0 {
                return (out, nth);
            }
            return (block.chars().take(room).collect(), 1);
        };
        left = rest;
        out.push_str(&block);
        next = end;
    }
    (out, hits.len())
}

/// A line with its number; a long one as the pieces around `places`, or as its beginning.
fn written(number: usize, line: &str, places: &[Range<usize>]) -> String {
    let number = number + 1;
    if line.len() <= LINE_CHARS {
        return format!("{number}: {line}\n");
    }
    if places.is_empty() {
        let start: String = line.chars().take(LEAD_CHARS).collect();
        return format!("{number}: {start}{ELLIPSIS}\n");
    }
    let mut out = String::new();
    let mut shown = 0;
    for place in places.iter().filter(|place| line.is_char_boundary(place.start)) {
        let at = line[..place.start].chars().count();
        if at < shown {
            continue;
        }
        let first = at.saturating_sub(LEAD_CHARS).max(shown);
        let piece: String = line.chars().skip(first).take(LINE_CHARS).collect();
        shown = first + piece.chars().count();
        out.push_str(&format!("{number} (characters {} to {shown}): {piece}{ELLIPSIS}\n", first + 1));
    }
    if out.is_empty() { written(number - 1, line, &[]) } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> String {
        (1..=500)
            .map(|n| if n % 200 == 0 { format!("line {n} Failed\n") } else { format!("line {n}\n") })
            .collect()
    }

    #[test]
    fn hits_are_shown_with_two_lines_around_them_and_their_numbers() {
        let piece = answer(&log(), "Failed", 1_000);
        assert_eq!(piece.what, "2 of 500 lines hold \"Failed\"");
        assert_eq!(
            piece.text,
            "…\n198: line 198\n199: line 199\n200: line 200 Failed\n201: line 201\n202: line 202\n\
             …\n398: line 398\n399: line 399\n400: line 400 Failed\n401: line 401\n402: line 402\n"
        );
    }

    #[test]
    fn nearby_hits_share_their_context_lines() {
        let piece = answer("a\nhit\nb\nhit\nc\nd\ne\nf", "hit", 1_000);
        assert_eq!(piece.text, "1: a\n2: hit\n3: b\n4: hit\n5: c\n6: d\n");
    }

    #[test]
    fn the_search_ignores_case_if_nothing_matches_exactly() {
        let piece = answer(&log(), "failed", 1_000);
        assert_eq!(piece.what, "2 of 500 lines hold \"failed\" in any case");
        let piece = answer(&log(), "absent", 1_000);
        assert_eq!(
            (piece.what.as_str(), piece.text.as_str()),
            ("nothing found of \"absent\" in its 500 lines", "")
        );
    }

    #[test]
    fn hits_that_do_not_fit_are_reported_with_their_first_line() {
        let piece = answer(&log(), "line", 200);
        assert!(piece.what.starts_with("500 of 500 lines hold \"line\"; "), "{}", piece.what);
        assert!(piece.what.contains("do not fit, from line "), "{}", piece.what);
        assert!(piece.text.chars().count() <= 200);
    }

    #[test]
    fn a_long_line_is_shown_around_its_hits() {
        let line = format!("{}needle{}needle{}", "x".repeat(1_000), "y".repeat(1_000), "z".repeat(1_000));
        let piece = answer(&line, "needle", 2_000);
        let rows: Vec<&str> = piece.text.lines().collect();
        assert_eq!(rows.len(), 2);
        assert!(
            rows[0].starts_with("1 (characters 851 to 1250): xxx") && rows[0].contains("needleyyy"),
            "{}",
            rows[0]
        );
        assert!(rows[1].starts_with("1 (characters 1857 to 2256): yyy"), "{}", rows[1]);
    }
}
