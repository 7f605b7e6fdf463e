//! Events whose lines do not stand as they should: several without a blank line between them, and one whose data is
//! spread over lines. Regroups bytes; knows nothing of what they say.

use crate::wire::reply::Reply;
use crate::wire::sse::{Fields, data_lines, parse_fields};
use bytes::Bytes;
use memchr::memmem;

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

/// What some clients take for the end of a line or for white space before one, and others for part of it: the characters
/// at which Python's `str.splitlines` splits, spaces that are none in ASCII, and the byte order mark.
const ODD_SPACES: [&str; 11] = [
    "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{a0}", "\u{2028}", "\u{2029}", "\u{3000}",
    "\u{feff}",
];

/// Whether some clients find data in an event that are none to us: behind a character of [`ODD_SPACES`], or in one of
/// several data lines, which together say something else.
pub(super) fn hides_lines(raw: &[u8], fields: &Fields<'_>) -> bool {
    let is_behind_odd_space = |at: usize| {
        let before = raw[..at].trim_ascii_end();
        // A byte order mark may begin a stream.
        before != "\u{feff}".as_bytes() && ODD_SPACES.iter().any(|space| before.ends_with(space.as_bytes()))
    };
    let hides = |name: &str| memmem::find_iter(raw, name).any(is_behind_odd_space);
    if hides("data:") || hides("error:") {
        return true;
    }
    let is_spread = fields.place.is_none() && Reply::parse(&fields.data).is_ok();
    let holds_calls = |line: &[u8]| Reply::parse(line).is_ok_and(|reply| reply.may_hold_calls());
    is_spread && fields.data.split(|byte| *byte == b'\n').any(holds_calls)
}

/// The data of an event in one line, where edits count places from its start.
pub(super) fn one_line(raw: &Bytes) -> Bytes {
    let fields = parse_fields(raw);
    match fields.place {
        Some(place) => raw.slice(place.range()),
        None => fields.data.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect(),
    }
}
