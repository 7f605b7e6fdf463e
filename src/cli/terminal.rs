//! Text for a terminal: whatever a command prints, characters from outside cannot move the cursor, turn the direction of
//! text or hide in it. They are written as escapes, which JSON reads as the same characters.

use std::borrow::Cow;
use std::io::{self, Write};
use wire::unseen::{is_unseen, push_escape};

/// `text` of several lines with every other unseen character as an escape.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// A writer of text that may hold line ends and the escape sequences of colours, which the program writes itself, and
/// escapes all other unseen characters.
pub struct Terminal<W>(W);

impl<W: Write> Terminal<W> {
    /// A writer to `sink`.
    pub fn new(sink: W) -> Self {
        Self(sink)
    }
}

impl<W: Write> Write for Terminal<W> {
    /// Takes whole characters: what [`Write::write_fmt`] gives. Other bytes pass as they are.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                let text = escaped(text, |letter| matches!(letter, '\n' | '\r' | '\t' | '\u{1b}'));
                self.0.write_all(text.as_bytes())?;
            }
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let hides = |letter: char| is_unseen(letter) && !stays(letter);
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if hides(letter) { push_escape(letter, &mut out) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{202e}b\u{2066}c\u{200f}\u{1b}[2J\u{9b}x\u{7}\n\t\u{e0041}\u{feff}";

    #[test]
    fn what_could_change_the_terminal_is_written_as_escapes() {
        let shown =
            r"a\u202eb\u2066c\u200f\u001b[2J\u009bx\u0007".to_owned() + "\n\t" + r"\udb40\udc41\ufeff";
        assert_eq!(for_terminal(HOSTILE), shown);
        assert!(matches!(for_terminal("plain \u{e9} \u{1f469}\u{200d}\u{1f680}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_writer_keeps_colours_and_escapes_the_rest_so_that_json_reads_the_same() {
        let mut out = Vec::new();
        let hostile = "a\u{202e}\u{e0041}b";
        write!(Terminal::new(&mut out), "\u{1b}[1m{hostile}").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\u{1b}[1ma\\u202e\\udb40\\udc41b");
        let read: String = serde_json::from_str(r#""a\u202e\udb40\udc41b""#).unwrap();
        assert_eq!(read, "a\u{202e}\u{e0041}b");
    }
}
