//! Base64 detection: a note replaces a picture or a file that was put into a text, which a model cannot read. Finds
//! such runs in one pass, both in plain text and inside the strings of a JSON document, with their type and size.
//! `cut` decides from what length on a run is replaced.
//!
//! A run counts as base64 if a `data:` URL says so, or if its characters are mixed as encoded bytes are; hexadecimal
//! numbers, sequences of letters, paths and identifiers are not. Lines of one width are one run, also where the line
//! ends are escaped. The note has no quote and no backslash, so that JSON around it stays JSON.

use super::super::super::texts::Texts;
use super::Cut;
use super::announce::ENCODED;
use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Range;
use wire::plural::counted;

/// The shortest run that is examined: the width of a line of encoded bytes is 60 to 76.
const LINE_BYTES: usize = 60;
/// The longest line of encoded bytes that is followed by others.
const WIDEST_LINE_BYTES: usize = 128;
/// A run of so many characters holds a line and a half of those that [`may_occur`] looks at, even without its URL's
/// head.
const PROBED_CHARS: usize = 1_000;
/// How far before a run the `data:` of its URL may be.
const URL_HEAD_BYTES: usize = 200;

/// Whether `bytes`, in any encoding of JSON, may hold base64 of more than `longest` characters. Much faster than
/// [`leave_out`].
pub(crate) fn may_occur(bytes: &[u8], longest: usize) -> bool {
    // So long a run covers one of these positions, so only a few words of most texts are read.
    let is_of_one = |byte: &u8| is_base64(*byte) || matches!(byte, b'\\' | b'\n' | b'\r');
    let windows = (0..).step_by(longest / 2 + 1).map_while(|at| bytes.get(at..at + LINE_BYTES));
    let mut windows = windows.map(|window| window.iter().all(is_of_one));
    (longest < PROBED_CHARS || windows.any(|is_one| is_one)) && long_run(bytes, 0).is_some()
}

/// The text with a note for each run of base64 of more than `longest` characters; `None` if it has none.
pub(super) fn leave_out(text: &str, longest: usize, texts: &Texts) -> Option<Cut> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut copied, mut from, mut gone_chars) = (0, 0, 0);
    while let Some(run) = long_run(bytes, from) {
        let blob = whole(bytes, run, from);
        from = blob.end;
        let (start, kind) = match data_url(text, blob.start, copied) {
            Some((start, kind)) => (start, Cow::Borrowed(kind)),
            None if is_mixed(&bytes[blob.clone()]) => {
                (blob.start, Cow::Borrowed(sniff(&bytes[blob.clone()])))
            }
            None => continue,
        };
        if blob.end - start <= longest {
            continue;
        }
        out.push_str(&text[copied..start]);
        let encoded = bytes[blob.clone()].iter().filter(|byte| is_base64(**byte)).count();
        out.push_str(&note(&kind, encoded - escapes(&bytes[blob.clone()]), texts));
        copied = blob.end;
        gone_chars += blob.end - start;
    }
    if copied == 0 {
        return None;
    }
    out.push_str(&text[copied..]);
    Some(Cut { text: out, gone_chars })
}

/// `encoded`: characters of base64, four of them for three bytes.
fn note(kind: &str, encoded: usize, texts: &Texts) -> String {
    let size = match encoded / 4 * 3 + encoded % 4 * 3 / 4 {
        bytes @ ..10_240 => counted(bytes, "byte"),
        bytes @ ..10_485_760 => format!("{} KiB", bytes >> 10),
        bytes => format!("{} MiB", bytes >> 20),
    };
    texts.fill(&ENCODED, &[("kind", &kind as &dyn Display), ("size", &size)])
}

fn is_base64(byte: u8) -> bool {
    IS_BASE64[usize::from(byte)]
}

static IS_BASE64: [bool; 256] = {
    let (mut is, mut byte) = ([false; 256], 0_u8);
    while byte < 128 {
        is[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        byte += 1;
    }
    is
};

/// The next run of at least [`LINE_BYTES`]. Looks at few bytes of a text that has none: where the last byte of a
/// possible run is not of the alphabet, none begins before it.
fn long_run(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let mut start = from;
    while let Some(window) = bytes.get(start..start + LINE_BYTES) {
        match window.iter().rposition(|byte| !is_base64(*byte)) {
            Some(at) => start += at + 1,
            None => return Some(start..run_end(bytes, start + LINE_BYTES)),
        }
    }
    None
}

fn run_end(bytes: &[u8], from: usize) -> usize {
    from + bytes[from..].iter().take_while(|byte| is_base64(**byte)).count()
}

/// The run with everything that belongs to it: slashes written `\/`, further lines, padding. Not before `from`.
fn whole(bytes: &[u8], run: Range<usize>, from: usize) -> Range<usize> {
    let start = run_start(bytes, run.start, from);
    let mut end = through_slashes(bytes, run.end);
    let mut width = None;
    let first = end - start;
    while let Some(line) = next_line(bytes, end).filter(|_| first <= WIDEST_LINE_BYTES) {
        let line_end = through_slashes(bytes, line);
        let is_full = (LINE_BYTES..=WIDEST_LINE_BYTES).contains(&(line_end - line))
            && width.is_none_or(|width| width == line_end - line);
        let is_last =
            width.is_some_and(|width| (1..width).contains(&(line_end - line))) && ends(bytes, line_end);
        if is_full {
            width = Some(line_end - line);
            end = line_end;
        } else {
            end = if is_last { line_end } else { end };
            break;
        }
    }
    end += bytes[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
    start..end
}

/// The start of the run that was found at `at`: further back where a slash is written `\\/`, further on where its first
/// letter ends an escape.
fn run_start(bytes: &[u8], mut at: usize, from: usize) -> usize {
    loop {
        let backslashes = bytes[from..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 0 {
            return at;
        }
        match bytes[at] {
            b'/' => at -= 1,
            b'u' => return at + 5,
            _ => return at + 1,
        }
        at -= bytes[from..at].iter().rev().take_while(|byte| is_base64(**byte)).count();
    }
}

fn through_slashes(bytes: &[u8], from: usize) -> usize {
    let mut end = run_end(bytes, from);
    while bytes[end..].starts_with(b"\\/") {
        end = run_end(bytes, end + 2);
    }
    end
}

/// The start of the next line, if the line before it ends at `end`: a line end, raw or as JSON writes it.
fn next_line(bytes: &[u8], end: usize) -> Option<usize> {
    const LINE_ENDS: [&[u8]; 4] = [b"\n", b"\r\n", b"\\n", b"\\r\\n"];
    LINE_ENDS.iter().find(|line_end| bytes[end..].starts_with(line_end)).map(|line_end| end + line_end.len())
}

/// Whether the last, shorter line of a run may end at `end`: a word of the text after it goes on.
fn ends(bytes: &[u8], end: usize) -> bool {
    matches!(bytes.get(end), None | Some(b'\n' | b'\r' | b'"' | b'\'' | b'\\' | b'='))
}

/// Letters of the alphabet that belong to escapes: the `n` of `\n`.
fn escapes(bytes: &[u8]) -> usize {
    bytes.windows(2).filter(|pair| pair[0] == b'\\' && pair[1] != b'/').count()
}

/// The start of the `data:` URL whose encoded part is at `at`, and the type that it names.
fn data_url(text: &str, at: usize, from: usize) -> Option<(usize, &str)> {
    let head = &text[text.floor_char_boundary(at.saturating_sub(URL_HEAD_BYTES)).max(from)..at];
    let head = head.strip_suffix(";base64,")?;
    let (_, named) = head.rsplit_once("data:")?;
    let start = at - ";base64,".len() - named.len() - "data:".len();
    let kind = named.split(';').next().unwrap_or_default();
    let is_plain =
        !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+.-_".contains(&byte));
    Some((start, if is_plain { kind } else { "data" }))
}

/// Whether the characters are mixed as those of encoded bytes are: upper and lower case and digits, most of the
/// alphabet, and only one of its two variants.
fn is_mixed(blob: &[u8]) -> bool {
    let mut counts = [0_usize; 256];
    for byte in blob {
        counts[usize::from(*byte)] += 1;
    }
    let sum = |range: Range<u8>| range.map(|byte| counts[usize::from(byte)]).sum::<usize>();
    let (upper, lower, digits) = (sum(b'A'..b'Z' + 1), sum(b'a'..b'z' + 1), sum(b'0'..b'9' + 1));
    let of = |byte: u8| counts[usize::from(byte)];
    let distinct = (0..=127_u8).filter(|byte| is_base64(*byte) && of(*byte) > 0).count();
    let standard = of(b'+') + of(b'/');
    let one_spelling = standard == 0 || of(b'-') + of(b'_') == 0;
    let all = blob.len();
    one_spelling && distinct >= 40 && upper * 10 >= all && lower * 10 >= all && digits * 25 >= all
}

/// The type of encoded bytes, by how they begin.
fn sniff(blob: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 13] = [
        (b"\x89PNG", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"<svg", "image/svg+xml"),
        (b"%PDF", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b", "application/gzip"),
        (b"OggS", "audio/ogg"),
        (b"ID3", "audio/mpeg"),
        (b"fLaC", "audio/flac"),
        (b"\x7fELF", "application/x-elf"),
        (b"<?xml", "text/xml"),
        (b"<!DOCTYPE html", "text/html"),
    ];
    let start = decode_start(blob);
    if let Some((_, kind)) = KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        return kind;
    }
    match (start.get(..4), start.get(8..12)) {
        (Some(b"RIFF"), Some(b"WEBP")) => "image/webp",
        (Some(b"RIFF"), Some(b"WAVE")) => "audio/wav",
        _ if start.get(4..8) == Some(b"ftyp") => "video/mp4",
        _ if start.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')) => "text",
        _ => "data",
    }
}

/// The first bytes that are encoded.
fn decode_start(blob: &[u8]) -> Vec<u8> {
    let digits = blob.iter().filter_map(|byte| {
        Some(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        })
    });
    let digits: Vec<u32> = digits.map(u32::from).take(32).collect();
    let triples = digits.chunks_exact(4).map(|four| four.iter().fold(0, |bits, digit| bits << 6 | digit));
    triples.flat_map(|bits| [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encoded form of bytes that begin with `magic`.
    fn encoded(magic: &[u8], bytes: usize) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut seed = 7_u32;
        let noise = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        });
        let data: Vec<u8> = magic.iter().copied().chain(noise).take(bytes).collect();
        let digit = |bits: u32| char::from(ALPHABET[bits as usize & 63]);
        let mut out = String::new();
        for three in data.chunks(3) {
            let at = |index: usize| three.get(index).copied().map_or(0, u32::from);
            let bits = at(0) << 16 | at(1) << 8 | at(2);
            let four = [18, 12, 6, 0].map(|shift| digit(bits >> shift));
            out.extend(&four[..=three.len()]);
            out.extend(std::iter::repeat_n('=', 3 - three.len()));
        }
        out
    }

    fn wrapped(blob: &str, line_end: &str) -> String {
        let lines: Vec<&str> =
            blob.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join(line_end)
    }

    #[test]
    fn encoded_bytes_become_a_note_of_what_they_are_and_how_large() {
        let png = encoded(b"\x89PNG\r\n", 49_000);
        let pdf = encoded(b"%PDF-1.7", 1_501);
        for (text, left) in [
            (png.clone(), "[toolrein: image/png, 47 KiB, base64, left out]"),
            (format!("see {pdf}, it"), "see [toolrein: application/pdf, 1501 bytes, base64, left out], it"),
            (
                format!("![x](data:image/webp;base64,{png}) y"),
                "![x]([toolrein: image/webp, 47 KiB, base64, left out]) y",
            ),
            (
                format!("data:text/plain;charset=utf-8;base64,{pdf}"),
                "[toolrein: text/plain, 1501 bytes, base64, left out]",
            ),
            (
                format!("{{\"a\": \"{png}\", \"b\": 1}}"),
                "{\"a\": \"[toolrein: image/png, 47 KiB, base64, left out]\", \"b\": 1}",
            ),
            (
                format!("{{\"a\":\"{}\"}}", png.replace('/', "\\/")),
                "{\"a\":\"[toolrein: image/png, 47 KiB, base64, left out]\"}",
            ),
            (
                format!("BEGIN\n{}\nDone, it is.\n", wrapped(&png, "\n")),
                "BEGIN\n[toolrein: image/png, 47 KiB, base64, left out]\nDone, it is.\n",
            ),
            (
                format!("{{\"a\":\"{}\\n\"}}", wrapped(&png, "\\r\\n")),
                "{\"a\":\"[toolrein: image/png, 47 KiB, base64, left out]\\n\"}",
            ),
            (png.replace('+', "-").replace('/', "_"), "[toolrein: image/png, 47 KiB, base64, left out]"),
            (
                encoded(b"a long letter to all of you", 27) + &png,
                "[toolrein: text, 47 KiB, base64, left out]",
            ),
            (encoded(b"\x00\x01\x02", 10_600_000), "[toolrein: data, 10 MiB, base64, left out]"),
        ] {
            let cut = leave_out(&text, 1_000, &Texts::default()).expect("a blob");
            assert_eq!(cut.text, left);
            let notes = left.len() - left.find('[').unwrap_or(0);
            assert!(cut.gone_chars > notes && cut.gone_chars <= text.len());
        }
    }

    #[test]
    fn long_runs_that_are_not_encoded_bytes_are_left_unchanged() {
        let short = encoded(b"\x89PNG", 700);
        for text in [
            short.clone(),
            "0123456789abcdef".repeat(500),
            "ACGTTGCA".repeat(500),
            "some/path/to/aFile/".repeat(200),
            "averylongwordwithoutanyblank".repeat(100),
            "snake_case-and/slashes9Mixed".repeat(100),
            "-".repeat(5_000),
            format!("{}\n{}", &short[..70], "a sentence of prose ".repeat(300)),
        ] {
            assert_eq!(leave_out(&text, 1_000, &Texts::default()), None, "{text}");
        }
    }

    #[test]
    fn each_of_several_is_noted_and_the_text_between_them_stays() {
        let blob = encoded(b"GIF89a", 3_000);
        let cut = leave_out(&format!("[\"{blob}\",\"é {blob}\"]"), 1_000, &Texts::default()).expect("blobs");
        let note = "[toolrein: image/gif, 3000 bytes, base64, left out]";
        assert_eq!(cut.text, format!("[\"{note}\",\"é {note}\"]"));
        assert_eq!(cut.gone_chars, 8_000);
        assert_eq!(leave_out(&cut.text, 1_000, &Texts::default()), None);
    }

    #[test]
    fn a_text_without_long_runs_is_recognised_at_once() {
        for longest in [200, 4_000] {
            assert!(!may_occur("a line of words\n".repeat(999).as_bytes(), longest));
            assert!(may_occur(encoded(b"", 4_060).as_bytes(), longest));
        }
        assert!(may_occur(encoded(b"", 60).as_bytes(), 200));
    }

    #[test]
    fn the_quick_check_finds_a_blob_at_every_position() {
        for (bytes, lines) in [(760, "\n"), (760, "\\r\\n"), (800, "\\/"), (2_000, "")] {
            let blob = encoded(b"\x89PNG", bytes);
            let blob = if lines.is_empty() { blob } else { wrapped(&blob, lines) };
            for at in (0..1_500).step_by(7) {
                let text =
                    format!("{}data:image/png;base64,{blob}\" ,", "some words ".repeat(140).split_at(at).0);
                let raw = wire::json::quote(&text);
                let found = leave_out(&text, 1_000, &Texts::default()).is_some();
                assert!(
                    found && may_occur(text.as_bytes(), 1_000) && may_occur(raw.as_bytes(), 1_000),
                    "{text}"
                );
            }
        }
    }
}
