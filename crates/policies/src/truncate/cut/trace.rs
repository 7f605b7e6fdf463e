//! Stack traces and other reports of several lines: how many lines after the first belong to the report. Knows the
//! forms of Python, Java, JavaScript, Go, Rust and of compilers that indent what explains an error. What an error
//! looks like is decided in `trouble`.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

/// Lines that go on with a report though they are not indented.
const GO_ON: [&[u8]; 6] = [
    b"Caused by: ",
    b"stack backtrace:",
    b"note: run with `RUST_BACKTRACE",
    b"During handling of the above exception",
    b"The above exception was the direct cause",
    b"Traceback (most recent call last)",
];

/// The end of the last line, its line end excluded, of the report that begins with `line`; `line`'s own end if it is
/// the whole report. Looks no further than `limit`.
pub(super) fn end(bytes: &[u8], line: &Range<usize>, limit: usize) -> usize {
    let first = &bytes[line.clone()];
    // Python's report ends with a line that is not indented: what was raised.
    let mut is_open = is_traceback(first);
    // Rust's panic has its message in the next line.
    let mut message_follows = is_panic(first) && trimmed(first).ends_with(b":");
    let is_go = first.starts_with(b"panic: ") || first.starts_with(b"fatal error: ");
    let lead = indent(first);
    let (mut end, mut at) = (line.end, line.end);
    // Blank lines count only if something follows them.
    while let Some(next) = next_line(bytes, at, limit) {
        let text = &bytes[next.clone()];
        at = next.end;
        if trimmed(text).is_empty() {
            if !is_open && !is_go && !followed(bytes, at, limit) {
                break;
            }
            continue;
        }
        let is_frame = is_go && is_go_frame(text);
        if indent(text) > lead
            || is_frame
            || is_source(text)
            || GO_ON.iter().any(|start| text.starts_with(start))
        {
            is_open |= is_traceback(text);
        } else if is_open || message_follows {
            is_open = false;
        } else {
            break;
        }
        message_follows = false;
        end = next.end;
    }
    end
}

/// The line after the one that ends at `at`, if it ends before `limit`.
fn next_line(bytes: &[u8], at: usize, limit: usize) -> Option<Range<usize>> {
    let start = at + 1;
    if start >= limit {
        return None;
    }
    Some(start..memchr(b'\n', &bytes[start..limit]).map_or(limit, |length| start + length))
}

/// Whether the first line that is not blank goes on with a report.
fn followed(bytes: &[u8], mut at: usize, limit: usize) -> bool {
    while let Some(next) = next_line(bytes, at, limit) {
        let text = &bytes[next.clone()];
        if !trimmed(text).is_empty() {
            return GO_ON.iter().any(|start| text.starts_with(start));
        }
        at = next.end;
    }
    false
}

fn is_traceback(line: &[u8]) -> bool {
    static FORM: LazyLock<Finder<'static>> =
        LazyLock::new(|| Finder::new(b"Traceback (most recent call last)"));
    FORM.find(line).is_some()
}

fn is_panic(line: &[u8]) -> bool {
    static FORM: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b" panicked at "));
    FORM.find(line).is_some()
}

/// `goroutine 1 [running]:`, `main.f(0x1, 0x2)`.
fn is_go_frame(line: &[u8]) -> bool {
    let name = line.iter().take_while(|byte| !matches!(byte, b' ' | b'(')).count();
    line.starts_with(b"goroutine ") || (line.ends_with(b")") && line[name] == b'(')
}

/// `12 | let x = 1;`, as compilers quote the source.
fn is_source(line: &[u8]) -> bool {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && line[digits..].trim_ascii_start().starts_with(b"|")
}

fn indent(line: &[u8]) -> usize {
    line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_ends_where_the_log_goes_on() {
        for report in [
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    g()\nValueError: bad",
            "Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 1\n\nDuring handling of the above \
             exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"b.py\"\nOSError: 2",
            "java.lang.IllegalStateException: no\n\tat a.B.c(B.java:4)\n\tat a.D.e(D.java:9)\nCaused by: \
             java.io.IOException: disk\n\t... 12 more",
            "TypeError: x is not a function\n    at f (/app/a.js:3:1)\n    at node:internal/main:28:49",
            "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds\nnote: run with `RUST_BACKTRACE=1` \
             environment variable to display a backtrace",
            "thread 'main' panicked at src/main.rs:4:5:\nboom\nstack backtrace:\n   0: rust_begin_unwind\n             \
             at /rustc/library/std/src/panicking.rs:645:5",
            "panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()\n\t/tmp/a.go:7 +0x1d",
            "error[E0432]: unresolved import\n --> src/a.rs:1:5\n  |\n1 | use x;\n  |     ^",
            "ERROR alone",
        ] {
            let text = format!("{report}\n2024-05-01 12:00 INFO goes on\n2024-05-01 12:01 INFO and on\n");
            let first = text.find('\n').unwrap();
            let end = end(text.as_bytes(), &(0..first), text.len());
            assert_eq!(&text[..end], report);
        }
    }

    #[test]
    fn nothing_beyond_the_limit_is_looked_at() {
        let text = b"TypeError: x\n    at a\n    at b\n    at c\n";
        assert_eq!(end(text, &(0..12), 30), 30);
        assert_eq!(end(text, &(0..12), 12), 12);
    }
}
