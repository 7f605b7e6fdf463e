//! Content sniffing: whether a reply is a stream of events, by its first bytes, since some servers send events with the
//! content type of plain text or of JSON.

/// How the first line of a stream of events may begin; `error` as llama.cpp writes it.
const STARTS: [&[u8]; 6] = [b"data:", b"event:", b"id:", b"retry:", b"error:", b":"];

/// Whether a body that begins with `start` is a stream of events; `None` where that is too short to decide.
pub fn is_events(start: &[u8]) -> Option<bool> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let start = start.strip_prefix(MARK).unwrap_or(start).trim_ascii_start();
    if STARTS.iter().any(|known| start.starts_with(known)) {
        return Some(true);
    }
    // No JSON begins like any of them, so nothing waits for long.
    let may_become = |known: &&[u8]| known.starts_with(start) || MARK.starts_with(start);
    if STARTS.iter().any(may_become) { None } else { Some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_recognised_as_soon_as_possible() {
        for (start, expected) in [
            ("data: {}", Some(true)),
            ("data:{}\n\n", Some(true)),
            (": ping\n\n", Some(true)),
            ("\n\n event: x", Some(true)),
            ("\u{feff}id: 1", Some(true)),
            ("error: {}", Some(true)),
            ("", None),
            ("\r\n ", None),
            ("dat", None),
            ("\u{feff}", None),
            ("{\"data:\":1}", Some(false)),
            ("[", Some(false)),
            ("<html>", Some(false)),
            ("date", Some(false)),
            ("null", Some(false)),
        ] {
            assert_eq!(is_events(start.as_bytes()), expected, "{start:?}");
        }
        assert_eq!(is_events(b"\xef\xbb"), None);
        assert_eq!(is_events(b"\x1f\x8b"), Some(false));
    }
}
