//! Irregular event framing: several events without a blank line between them, and data that is spread over lines.
//! Regroups bytes; does not interpret them.

use bytes::Bytes;
use memchr::{memmem, memrchr2};
use wire::sse::{Fields, data_lines, parse_fields};

/// The events of an engine that writes no blank line between them: each line is JSON on its own, and the whole is not.
/// Clients that go by lines see the calls in them. `reads`: whether data is a part of a reply.
pub fn single_events(raw: &Bytes, reads: impl Fn(&[u8]) -> bool) -> Option<Vec<Bytes>> {
    let events = data_lines(raw);
    let stands_alone = |event: &Bytes| {
        let data = parse_fields(event).data;
        data.starts_with(b"[DONE]") || is_empty_list(&data) || reads(&data)
    };
    (events.len() > 1 && events.iter().all(stands_alone)).then_some(events)
}

/// Whether the data of an event is an empty list, which some servers send as a keep-alive: it holds no call for any client.
pub fn is_empty_list(data: &[u8]) -> bool {
    let inside = data.trim_ascii().strip_prefix(b"[").and_then(|data| data.strip_suffix(b"]"));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}

/// Characters that some clients take for a line end and others do not: Python's `str.splitlines` splits there.
const ODD_LINE_ENDS: [&str; 8] =
    ["\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}"];
const BYTE_ORDER_MARK: &str = "\u{feff}";
const SPACES: [&str; 2] = [" ", "\t"];
/// Characters that some clients strip from the start of a line; some are not ASCII white space.
const ODD_SPACES: [&str; 5] = ["\u{a0}", "\u{3000}", BYTE_ORDER_MARK, " ", "\t"];

/// Whether some clients find other data in an event than toolrein: after an odd line end, after odd spaces at the start
/// of a line, or in one of several data lines that mean something else together. `reads`: whether data is a part of a
/// reply; `holds_calls`: whether a call may be in it.
pub fn hides_lines(
    raw: &[u8],
    fields: &Fields<'_>,
    reads: impl Fn(&[u8]) -> bool,
    holds_calls: impl Fn(&[u8]) -> bool,
) -> bool {
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
    let is_spread = fields.place.is_none() && reads(&fields.data);
    is_spread && fields.data.split(|byte| *byte == b'\n').any(holds_calls)
}

/// `text` without the `signs` at its end.
fn trimmed<'a>(mut text: &'a [u8], signs: &[&str]) -> &'a [u8] {
    while let Some(rest) = signs.iter().find_map(|sign| text.strip_suffix(sign.as_bytes())) {
        text = rest;
    }
    text
}

/// Data from several lines, in one. Positions in it stay the same.
pub fn one_line(data: &[u8]) -> Bytes {
    data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// An event with other data.
pub fn framed(raw: &Bytes, data: &[u8]) -> Bytes {
    let fields = parse_fields(raw);
    match fields.place {
        Some(place) => [&raw[..place.range().start], data, &raw[place.range().end..]].concat().into(),
        None => {
            let data = one_line(data);
            let name = fields.name.map(|name| [b"event: ", name, b"\n"].concat()).unwrap_or_default();
            [&name[..], b"data: ", &data, b"\n\n"].concat().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_one_however_it_is_spaced() {
        for data in ["[]", " [ ]\t", "[\n]"] {
            assert!(is_empty_list(data.as_bytes()), "{data:?}");
        }
        for data in ["", "[", "]", "[0]", "[[]]", "[{}]", "{}", "[DONE]", "[]{}", "[],[]"] {
            assert!(!is_empty_list(data.as_bytes()), "{data:?}");
        }
    }
}
