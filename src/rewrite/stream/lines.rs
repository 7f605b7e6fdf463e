//! Events whose lines do not stand as they should: several without a blank line between them, and one whose data is
//! spread over lines. Regroups bytes; knows nothing of what they say.

use crate::wire::reply::Reply;
use crate::wire::sse::{data_lines, parse_fields};
use bytes::Bytes;

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

/// The data of an event in one line, where edits count places from its start.
pub(super) fn one_line(raw: &Bytes) -> Bytes {
    let fields = parse_fields(raw);
    match fields.place {
        Some(place) => raw.slice(place.range()),
        None => fields.data.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect(),
    }
}
