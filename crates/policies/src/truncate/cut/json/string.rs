//! The cut inside one JSON string. The string stays valid: no escape is split, and no pair of surrogates. A string
//! that holds JSON (the text of MCP content) is cut like a document and stays one; a string that holds lines (the output
//! of a command, a page) like a text; any other by characters. Finding the strings is not its task.

use memchr::{memchr, memmem};

use super::super::announce::{INSIDE_STRING, Loss, Mark};
use super::super::{Cut, text};

/// What is left of a string, without its quotes.
pub(super) struct Piece {
    pub(super) text: String,
    /// Characters of it that come from the original string.
    pub(super) kept: usize,
    /// Characters that the original took more for the same content, with needless escapes.
    pub(super) respelled: usize,
}

/// Below this room a string is cut by characters even if it has lines.
const MIN_CHARS_FOR_LINES: usize = 400;
/// Below this room a string is cut by characters even if it is JSON.
const MIN_CHARS_FOR_JSON: usize = 100;
/// Below this room a placeholder does not say how much is gone.
const MIN_CHARS_FOR_COUNT: usize = 120;

/// Shortens a string, given with its quotes, to `room` characters without them. It has more.
pub(super) fn shorten(quoted: &str, room: usize, mark: Mark<'_>) -> Piece {
    let raw = &quoted[1..quoted.len() - 1];
    let chars = raw.chars().count();
    let by_json = || by_json(quoted, chars, room, mark);
    let by_lines = || if room >= MIN_CHARS_FOR_LINES { by_lines(quoted, chars, room, mark) } else { None };
    by_json().or_else(by_lines).unwrap_or_else(|| by_characters(raw, chars, room, mark))
}

/// Cuts the JSON document that the string holds, so that it stays one. `None` if it holds none, or as [`by_text`].
fn by_json(quoted: &str, chars: usize, room: usize, mark: Mark<'_>) -> Option<Piece> {
    let blanks = ["\\n", "\\r", "\\t", " "];
    let mut start = &quoted[1..];
    while let Some(rest) = blanks.iter().find_map(|blank| start.strip_prefix(blank)) {
        start = rest;
    }
    if room < MIN_CHARS_FOR_JSON || !start.starts_with(['{', '[']) {
        return None;
    }
    by_text(quoted, chars, room, mark, &|document, total, limit| match mark {
        Mark::Full(wording) => super::shorten(document, total, limit, wording),
        Mark::Quiet(texts) => super::shorten_inner(document, total, limit, texts),
    })
}

/// Cuts the lines that the string holds. `None` if it has no lines, or as [`by_text`].
fn by_lines(quoted: &str, chars: usize, room: usize, mark: Mark<'_>) -> Option<Piece> {
    memmem::find(quoted.as_bytes(), b"\\n")?;
    by_text(quoted, chars, room, mark, &|lines, total, limit| {
        (limit >= MIN_CHARS_FOR_LINES / 2).then(|| text::shorten(lines, total, limit, mark))
    })
}

/// A cut of a text with so many characters to a limit.
type TextCut<'a> = &'a dyn Fn(&str, usize, usize) -> Option<Cut>;

/// Decodes the string, has its text `cut` and encodes it again. `None` if it cannot be decoded (a lone surrogate), or if
/// its escapes are so uneven that the result would not fit.
fn by_text(quoted: &str, chars: usize, room: usize, mark: Mark<'_>, cut: TextCut<'_>) -> Option<Piece> {
    let decoded: String = serde_json::from_str(quoted).ok()?;
    let decoded_chars = decoded.chars().count();
    let encoded = encode(&decoded)?;
    let mut encoded_chars = encoded.chars().count();
    if encoded_chars <= room && matches!(mark, Mark::Quiet(_)) {
        // It was written with more escapes than it needs.
        return Some(Piece {
            text: encoded,
            kept: encoded_chars,
            respelled: chars.saturating_sub(encoded_chars),
        });
    }
    let whole_chars = encoded_chars;
    let mut limit = decoded_chars;
    for _ in 0..3 {
        limit = limit * room / encoded_chars;
        // A little less, since escapes are spread unevenly.
        limit -= limit / 40;
        if limit >= decoded_chars {
            return None;
        }
        let cut = cut(&decoded, decoded_chars, limit)?;
        let encoded = encode(&cut.text)?;
        encoded_chars = encoded.chars().count();
        if encoded_chars <= room {
            // Of the part that is kept, what it took and takes when escapes are spread evenly.
            let part = |whole: usize| whole * (decoded_chars - cut.gone_chars) / decoded_chars;
            let kept = part(whole_chars).min(encoded_chars);
            return Some(Piece { text: encoded, kept, respelled: part(chars).saturating_sub(kept) });
        }
    }
    None
}

/// The text between the quotes of a JSON string.
fn encode(text: &str) -> Option<String> {
    let mut encoded = serde_json::to_string(text).ok()?;
    encoded.pop();
    encoded.remove(0);
    Some(encoded)
}

/// Head and tail, three to two, around the mark.
fn by_characters(raw: &str, chars: usize, room: usize, mark: Mark<'_>) -> Piece {
    let sentence = |gone: usize| match mark {
        Mark::Full(_) => mark.sentence(&Loss { gone, total: chars, place: None, errors_kept: false }),
        Mark::Quiet(_) if room < MIN_CHARS_FOR_COUNT => "…".to_owned(),
        Mark::Quiet(texts) => texts.fill(&INSIDE_STRING, &[("gone", &gone)]),
    };
    let ends = room.saturating_sub(sentence(chars).chars().count());
    let head = head_end(raw, ends - ends * 2 / 5);
    let tail = tail_start(raw, head, ends * 2 / 5);
    let kept = raw[..head].chars().count() + raw[tail..].chars().count();
    let text = format!("{}{}{}", &raw[..head], sentence(chars - kept), &raw[tail..]);
    Piece { text, kept, respelled: 0 }
}

/// The end of the last whole unit within the first `room` characters.
fn head_end(raw: &str, room: usize) -> usize {
    let limit = raw.char_indices().nth(room).map_or(raw.len(), |(at, _)| at);
    let mut from = 0;
    while let Some(found) = memchr(b'\\', &raw.as_bytes()[from..limit]) {
        let escape = from + found;
        from = escape + escape_length(&raw.as_bytes()[escape..]);
        if from > limit {
            return escape;
        }
    }
    limit
}

/// The start of the first whole unit within the last `room` characters, at or after the boundary `from`.
fn tail_start(raw: &str, mut from: usize, room: usize) -> usize {
    let Some(back) = room.checked_sub(1) else { return raw.len() };
    let limit = raw.char_indices().rev().nth(back).map_or(0, |(at, _)| at).max(from);
    while let Some(found) = memchr(b'\\', &raw.as_bytes()[from..limit]) {
        from += found;
        from += escape_length(&raw.as_bytes()[from..]);
        if from >= limit {
            return from;
        }
    }
    limit
}

/// The bytes of the escape with which `rest` begins; a pair of surrogates counts as one.
fn escape_length(rest: &[u8]) -> usize {
    let is_high = matches!(rest, [_, b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'b' | b'A'..=b'B', ..]);
    let is_low_next =
        matches!(rest.get(6..), Some([b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..]));
    let length = match rest.get(1) {
        Some(b'u') if is_high && is_low_next => 12,
        Some(b'u') => 6,
        _ => 2,
    };
    length.min(rest.len())
}
