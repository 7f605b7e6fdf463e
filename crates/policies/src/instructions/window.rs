//! Normalisation of a piece of text so that rules can be short: small letters, escapes of white space and punctuation
//! resolved, white space as one character, emphasis removed. For pieces, not for whole texts.

use super::escapes::{Escaped, escape};

/// `piece` normalised. White space becomes a blank line, a line's end or one space, whichever is the most.
pub(super) fn settle(piece: &[u8]) -> Vec<u8> {
    let mut out = Settled { bytes: Vec::with_capacity(piece.len()), lines: 0, spaced: false };
    let mut at = 0;
    while at < piece.len() {
        at += settle_one(&piece[at..], &mut out);
    }
    out.bytes
}

struct Settled {
    bytes: Vec<u8>,
    /// Ends of lines since the last character.
    lines: usize,
    spaced: bool,
}

impl Settled {
    fn push(&mut self, byte: u8) {
        match byte {
            b'\n' | 0x0b | 0x0c => self.lines += 1,
            b' ' | b'\t' | b'\r' => self.spaced = true,
            b'*' | b'`' => {}
            _ => {
                self.space();
                self.bytes.push(byte.to_ascii_lowercase());
            }
        }
    }

    fn space(&mut self) {
        match self.lines {
            0 if self.spaced => self.bytes.push(b' '),
            0 => {}
            1 => self.bytes.push(b'\n'),
            _ => self.bytes.extend_from_slice(b"\n\n"),
        }
        self.lines = 0;
        self.spaced = false;
    }
}

/// Takes the first unit of `rest`; returns its length.
fn settle_one(rest: &[u8], out: &mut Settled) -> usize {
    match rest[0] {
        b'\\' => backslash(rest, out),
        b'%' | b'&' => match escape(rest).map(|(len, escaped)| (len, ascii(escaped))).or_else(|| named(rest))
        {
            Some((len, Some(byte))) => {
                out.push(byte);
                len
            }
            _ => {
                out.push(rest[0]);
                1
            }
        },
        byte => {
            out.push(byte);
            1
        }
    }
}

/// An escape as in JSON, YAML and source code, with its usual meaning.
fn backslash(rest: &[u8], out: &mut Settled) -> usize {
    if let Some((len, escaped)) = escape(rest) {
        if let Some(byte) = ascii(escaped) {
            out.push(byte);
        }
        return len;
    }
    let slashes = rest.iter().take_while(|byte| **byte == b'\\').count();
    match rest.get(slashes) {
        Some(b'n' | b'r') => out.push(b'\n'),
        // A continued line, in YAML and in a shell.
        Some(b't' | b'\n') => out.push(b' '),
        _ => return slashes,
    }
    slashes + 1
}

fn ascii(escaped: Escaped) -> Option<u8> {
    match escaped {
        Escaped::Byte(byte) => byte.is_ascii().then_some(byte),
        Escaped::Character(character) => u8::try_from(character).ok().filter(u8::is_ascii),
        Escaped::Half(_) => None,
    }
}

/// The entities of HTML for punctuation.
fn named(rest: &[u8]) -> Option<(usize, Option<u8>)> {
    const NAMED: [(&[u8], u8); 6] = [
        (b"&lt;", b'<'),
        (b"&gt;", b'>'),
        (b"&amp;", b'&'),
        (b"&quot;", b'"'),
        (b"&apos;", b'\''),
        (b"&nbsp;", b' '),
    ];
    let (name, byte) = NAMED.iter().find(|(name, _)| rest.starts_with(name))?;
    Some((name.len(), Some(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_escapes_and_case_are_normalised_for_the_scan() {
        for (piece, settled) in [
            ("Ignore  ALL\tof it", "ignore all of it"),
            (r"x.\n\nIgnore\tall", "x.\n\nignore all"),
            ("a\n   b \r\n\r\n c", "a\nb\n\nc"),
            ("please do\\\n    \\ the following", "please do the following"),
            (r#"<span style=\"display:none\">"#, r#"<span style="display:none">"#),
            ("&lt;|im_start|&gt;", "<|im_start|>"),
            (r"\u003c|im_start|\u003e", "<|im_start|>"),
            ("ignore%20all%20of", "ignore all of"),
            ("**Ignore** `all`", "ignore all"),
            ("100% & more \\", "100% & more "),
        ] {
            let found = String::from_utf8(settle(piece.as_bytes())).unwrap();
            assert_eq!(found.trim_end(), settled.trim_end(), "{piece}");
        }
    }
}
