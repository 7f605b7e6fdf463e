//! Events whose lines do not stand as they should: several without a blank line between them, and one whose data is
//! spread over lines. Regroups bytes; knows nothing of what they say.

use crate::wire::reply::Reply;
use crate::wire::sse::{Fields, data_lines, parse_fields};
use bytes::Bytes;
use memchr::{memmem, memrchr2};

/// The events of an engine that put no blank line between them: each of their lines is JSON on its own, as the whole
/// is not. Clients that go by lines see the calls in them.
pub(super) fn single_events(raw: &Bytes) -> Option<Vec<Bytes>> {
    let events = data_lines(raw);
    let stands_alone = |event: &Bytes| {
        let data = parse_fields(event).data;
        data.starts_with(b"[DONE]") || Reply::parse(&data).is_ok()
    };
    (events.len() > 1 && events.iter().all(stands_alone)).then_some(events)
}

/// What some clients take for the end of a line and others for part of it: Python's `str.splitlines` splits there.
const ODD_LINE_ENDS: [&str; 8] =
    ["\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}"];
const BYTE_ORDER_MARK: &str = "\u{feff}";
const SPACES: [&str; 2] = [" ", "\t"];
/// What some clients strip from the start of a line, some of it no white space in ASCII.
const ODD_SPACES: [&str; 5] = ["\u{a0}", "\u{3000}", BYTE_ORDER_MARK, " ", "\t"];

/// Whether some clients find data in an event that are none to us: after an odd line end, after odd spaces that begin a
/// line, or in one of several data lines, which together say something else.
pub(super) fn hides_lines(raw: &[u8], fields: &Fields<'_>) -> bool {
    let is_hidden = |at: usize| {
        let start = memrchr2(b'\n', b'\r', &raw[..at]).map_or(0, |end| end + 1);
        let before = &raw[start..at];
        // A byte order mark may begin a stream.
        let begins_stream = start == 0 && before == BYTE_ORDER_MARK.as_bytes();
        match trimmed(before, &SPACES) {
            [] => false,
            rest if trimmed(rest, &ODD_LINE_ENDS).len() < rest.len() => true,
            rest => !begins_stream && trimmed(rest, &ODD_SPACES).is_empty(),
        }
    };
    let hides = |name: &str| memmem::find_iter(raw, name).any(is_hidden);
    if hides("data:") || hides("error:") {
        return true;
    }
    let is_spread = fields.place.is_none() && Reply::parse(&fields.data).is_ok();
    let holds_calls = |line: &[u8]| Reply::parse(line).is_ok_and(|reply| reply.may_hold_calls());
    is_spread && fields.data.split(|byte| *byte == b'\n').any(holds_calls)
}

/// `text` without the `signs` that end it.
fn trimmed<'a>(mut text: &'a [u8], signs: &[&str]) -> &'a [u8] {
    while let Some(rest) = signs.iter().find_map(|sign| text.strip_suffix(sign.as_bytes())) {
        text = rest;
    }
    text
}

/// Data that stood in several lines, in one. Places in it stay.
pub(super) fn one_line(data: &Bytes) -> Bytes {
    data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}
