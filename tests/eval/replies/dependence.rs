//! What of a trace depends today on how the network cut a stream, and when a decision comes: known flaws, each with its
//! cause. Chunkings are compared without it; the golden file holds what it is.

/// A part of traces that depends on chunks.
struct Dependence {
    settings: &'static [&'static str],
    /// Parts of the names of the replies; none: all of them.
    replies: &'static [&'static str],
    /// How the lines begin that are left out.
    lines: &'static [&'static str],
    /// How the lines begin whose order does not count.
    unordered: &'static [&'static str],
}

const DEPENDENT: [Dependence; 3] = [
    // Calls are recorded in the order of the decisions on them, and a decision comes between two chunks.
    Dependence { settings: &["modified"], replies: &[], lines: &[], unordered: &["call: "] },
    // A stream that is refused in the middle of an event that is too long ends without an error event, and with one where
    // the end of that event has come.
    Dependence {
        settings: &["bounded", "bounded_strict"],
        replies: &[],
        lines: &[
            "event: error",
            "data: {\"type\":\"error\",\"code\":\"reply_unjudged\"",
            "data: {\"error\":{\"message\":\"toolrein refused",
            "event: response.failed",
            "data: {\"type\":\"response.failed\"",
            "\n",
        ],
        unordered: &[],
    },
    // Whether a request counts whose reply failed within its stream.
    Dependence {
        settings: &["asked", "final", "counted"],
        replies: &["rate-limited", "stream-unknown-error-responses", "openai-error"],
        lines: &["account "],
        unordered: &[],
    },
];

/// The lines of a trace that may not depend on chunks.
pub fn compared(reply: &str, setting: &str, text: &[u8]) -> Vec<u8> {
    let is_of = |replies: &[&str]| replies.is_empty() || replies.iter().any(|part| reply.contains(part));
    let dependent = || DEPENDENT.iter().filter(|one| one.settings.contains(&setting) && is_of(one.replies));
    let begins = |line: &[u8], starts: &[&str]| starts.iter().any(|start| line.starts_with(start.as_bytes()));
    let (mut kept, mut unordered) = (Vec::new(), Vec::new());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if dependent().any(|one| begins(line, one.lines)) {
            continue;
        }
        let is_unordered = dependent().any(|one| begins(line, one.unordered));
        (if is_unordered { &mut unordered } else { &mut kept }).push(line);
    }
    unordered.sort_unstable();
    kept.extend(unordered);
    kept.concat()
}
