//! The string scanner of JSON: where a string ends, and what its escapes are. Strings without escapes are passed by one
//! call, those with escapes by blocks. Checks that escapes are whole; decodes nothing.

use super::{Fault, Scanner, Span, Str};
use crate::piece::{BLOCK, near_escape_or_end, positions_of};
use memchr::memchr2;

/// The escapes of a string. Several strings or blocks together have the greatest of theirs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Escapes {
    None,
    /// Only such as every JSON library writes in the same way.
    Usual,
    /// See [`Str::unusual`].
    Unusual,
    /// See [`Str::odd`].
    Odd,
}

impl Scanner<'_> {
    /// Reads a string value.
    #[inline]
    pub fn string(&mut self) -> Result<Str, Fault> {
        if self.after_space() != Some(b'"') {
            return Err(Fault::Syntax);
        }
        self.at += 1;
        let start = self.at;
        let rest = &self.text[start..];
        // Most strings are short.
        self.at += near_escape_or_end(rest).or_else(|| memchr2(b'"', b'\\', rest)).ok_or(Fault::Syntax)?;
        let escapes = if self.text[self.at] == b'"' {
            self.at += 1;
            Escapes::None
        } else {
            self.escaped_string()?
        };
        let odd = escapes == Escapes::Odd;
        self.odd |= odd;
        let (escaped, unusual) = (escapes > Escapes::None, escapes > Escapes::Usual);
        Ok(Str { span: Span::new(start, self.at - 1), escaped, unusual, odd })
    }

    /// Passes the rest of a string by blocks, from its first backslash on.
    fn escaped_string(&mut self) -> Result<Escapes, Fault> {
        let mut escapes = Escapes::Usual;
        // One where the next block begins after the backslash of an escape.
        let mut open = 0;
        while let Some(block) = self.text[self.at..].first_chunk() {
            let start = self.at;
            self.at += BLOCK;
            let (quotes, slashes) = (positions_of(b'"', block), positions_of(b'\\', block));
            let after_slash = after_backslash(slashes, &mut open);
            let ends = quotes & !after_slash;
            let inside = ends.wrapping_sub(1) & !ends;
            let letters = after_slash & inside & !(quotes | slashes);
            // Most escapes are line ends, which need no look at their letter.
            let letters = if letters == 0 { 0 } else { letters & !positions_of(b'n', block) };
            if letters != 0 {
                escapes = escapes.max(self.letter_escapes(block, letters)?);
                // An escape that reaches into the next block is passed whole.
                open = if self.at > start + BLOCK { 0 } else { open };
            }
            if ends != 0 {
                self.at = start + ends.trailing_zeros() as usize + 1;
                return Ok(escapes);
            }
        }
        if open != 0 {
            escapes = escapes.max(self.escape()?);
        }
        loop {
            let Some(found) = memchr2(b'"', b'\\', &self.text[self.at..]) else { return Err(Fault::Syntax) };
            self.at += found + 1;
            if self.text[self.at - 1] == b'"' {
                return Ok(escapes);
            }
            escapes = escapes.max(self.escape()?);
        }
    }

    /// Checks the escapes of the `block` just passed whose second bytes are at `places`. Moves on to the end of the
    /// last, if that is after the block's.
    #[inline(never)]
    fn letter_escapes(&mut self, block: &[u8; BLOCK], mut places: u64) -> Result<Escapes, Fault> {
        let (end, mut escapes) = (self.at, Escapes::Usual);
        while places != 0 {
            let place = places.trailing_zeros() as usize;
            places &= places - 1;
            if !IS_USUAL_ESCAPE[block[place] as usize] {
                self.at = end - BLOCK + place;
                escapes = escapes.max(self.escape()?);
                // The second half of a pair was read with the first.
                places &= u64::MAX.checked_shl((self.at + BLOCK - end) as u32).unwrap_or(0);
                self.at = self.at.max(end);
            }
        }
        Ok(escapes)
    }

    /// Passes the rest of an escape whose backslash was read.
    fn escape(&mut self) -> Result<Escapes, Fault> {
        let byte = *self.text.get(self.at).ok_or(Fault::Syntax)?;
        self.at += 1;
        match byte {
            byte if IS_USUAL_ESCAPE[byte as usize] => Ok(Escapes::Usual),
            b'/' | b'b' | b'f' => Ok(Escapes::Unusual),
            b'u' => {
                let unit = self.hex4()?;
                let is_odd = match unit {
                    0 | 0xDC00..=0xDFFF => true,
                    0xD800..=0xDBFF => self.low_half()?,
                    _ => false,
                };
                Ok(if is_odd { Escapes::Odd } else { Escapes::Unusual })
            }
            _ => Err(Fault::Syntax),
        }
    }

    /// After the first half of a surrogate pair: passes the second; true if it is missing.
    fn low_half(&mut self) -> Result<bool, Fault> {
        if !self.text[self.at..].starts_with(b"\\u") {
            return Ok(true);
        }
        let before = self.at;
        self.at += 2;
        if (0xDC00..=0xDFFF).contains(&self.hex4()?) {
            return Ok(false);
        }
        self.at = before;
        Ok(true)
    }

    fn hex4(&mut self) -> Result<u32, Fault> {
        let digits = self.text.get(self.at..self.at + 4).ok_or(Fault::Syntax)?;
        let mut unit = 0;
        for digit in digits {
            unit = unit << 4 | (*digit as char).to_digit(16).ok_or(Fault::Syntax)?;
        }
        self.at += 4;
        Ok(unit)
    }
}

/// The positions right after the backslash of an escape, all at once: of a run of backslashes every second one is
/// itself escaped. `open` carries an escape over from block to block (Langdale and Lemire, Parsing Gigabytes of JSON
/// per Second, section 3.1.1).
#[inline(always)]
fn after_backslash(slashes: u64, open: &mut u64) -> u64 {
    const EVEN: u64 = u64::MAX / 3;
    let slashes = slashes & !*open;
    let followers = slashes << 1 | *open;
    let (runs, overflow) = (slashes & !EVEN & !followers).overflowing_add(slashes);
    *open = u64::from(overflow);
    (EVEN ^ runs << 1) & followers
}

/// Whether a byte and the backslash before it are an escape that every JSON library writes in the same way.
static IS_USUAL_ESCAPE: [bool; 256] = {
    let mut usual = [false; 256];
    let mut at = 0;
    while at < USUAL_ESCAPES.len() {
        usual[USUAL_ESCAPES[at] as usize] = true;
        at += 1;
    }
    usual
};
const USUAL_ESCAPES: &[u8] = br#""\nrt"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_end_at_their_quote_with_and_without_escapes() {
        for length in 0..200 {
            for escape in [None, Some(0), Some(length / 2), Some(length)] {
                let mut string = "x".repeat(length);
                escape.iter().for_each(|at| string.insert_str(*at, r#"\""#));
                for after in ["", ", \"next\": 1}"] {
                    let text = format!(" \"{string}\"{after}");
                    let mut scanner = Scanner::new(text.as_bytes());
                    let read = scanner.string().unwrap();
                    assert_eq!(read.raw(text.as_bytes()), string.as_bytes());
                    assert_eq!((read.escaped, read.odd), (escape.is_some(), false), "{text}");
                    assert_eq!(&text[scanner.at()..], after);
                }
                let open = format!("\"{string}");
                assert_eq!(Scanner::new(open.as_bytes()).string(), Err(Fault::Syntax));
            }
        }
    }
}
