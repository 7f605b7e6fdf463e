//! Signs that a text may hold a value: what each match of a rule has, and most texts have not. Finds no value itself.

use super::checks::is_country;
use memchr::memmem;
use regex::Regex;
use std::sync::LazyLock;

/// How well-known keys begin, as in the rule for them. A pattern that does not compile is in every text; a test holds that
/// it does.
pub(super) static PREFIX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"AKIA|ASIA|ABIA|ACCA|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|xapp-|AIza|ya29\.|[sr]k_live_|[sr]k_test_|npm_|pypi-|SG\.|hf_|gsk_|dop_v1_|hvs\.|shpat_|:AA",
    )
    .ok()
});

/// The signs of one text.
pub(super) struct Signs<'t> {
    pub(super) text: &'t str,
    /// The most digits of one number, whatever separates them.
    pub(super) most_digits: usize,
    /// A country's code with two digits after it.
    pub(super) has_account: bool,
}

impl<'t> Signs<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let mut signs = Self { text, most_digits: 0, has_account: false };
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(digit) = first_digit(&bytes[at..]) {
            let (start, mut digits) = (at + digit, 0);
            at = start;
            while let Some(byte) = bytes.get(at).filter(|byte| is_of_number(**byte)) {
                if byte.is_ascii_digit() {
                    digits += 1;
                    signs.has_account |= begins_account(&bytes[..=at]);
                }
                at += 1;
            }
            signs.most_digits = signs.most_digits.max(digits);
        }
        signs
    }

    pub(super) fn has(&self, bytes: &[u8]) -> bool {
        match bytes {
            [byte] => memchr::memchr(*byte, self.text.as_bytes()).is_some(),
            _ => memmem::find(self.text.as_bytes(), bytes).is_some(),
        }
    }
}

/// Whether a well-known key may begin.
pub(super) fn has_prefix(text: &str) -> bool {
    PREFIX.as_ref().is_none_or(|prefix| prefix.is_match(text))
}

/// Whether there is an at sign, or the wide one.
pub(super) fn has_at_sign(text: &str) -> bool {
    memchr::memchr2(b'@', 0xef, text.as_bytes()).is_some()
}

/// Whether `bearer` or `basic` may begin, in any case; the long s is an `s` in another case.
pub(super) fn has_scheme(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr2_iter(b'b', b'B', bytes).any(|at| {
        matches!(bytes[at + 1..], [b'e' | b'E', b'a' | b'A', ..] | [b'a' | b'A', b's' | b'S' | 0xc5, ..])
    })
}

/// Whether a parameter of an address may begin whose name is that of a signature.
pub(super) fn has_parameter(text: &str) -> bool {
    let bytes = text.as_bytes();
    let begins = |at: usize| {
        let first = bytes.get(at + 1).map(u8::to_ascii_lowercase);
        matches!(first, Some(b'x' | b's' | b'h' | b'a' | b'j' | 0xc5))
    };
    memchr::memchr3_iter(b'?', b'&', b';', bytes).any(begins)
}

/// Where the first digit is. Pieces without one are looked at as a whole.
fn first_digit(bytes: &[u8]) -> Option<usize> {
    const PIECE: usize = 32;
    let has_digit = |piece: &[u8]| piece.iter().fold(false, |has, byte| has | byte.is_ascii_digit());
    let start = PIECE * bytes.chunks(PIECE).position(has_digit)?;
    bytes[start..].iter().position(u8::is_ascii_digit).map(|digit| start + digit)
}

/// Whether a byte may be in a number of a card or a phone: digits, and separators with the bytes of the two blanks that are
/// no ASCII.
fn is_of_number(byte: u8) -> bool {
    byte.is_ascii_digit() || b" ()./-+\xc2\xa0\xe2\x80\xaf".contains(&byte)
}

/// Whether `text` ends with the letters of a country and two digits.
fn begins_account(text: &[u8]) -> bool {
    match text {
        [.., one, other, tens, _] if tens.is_ascii_digit() && one.is_ascii_alphabetic() => {
            is_country([one.to_ascii_uppercase(), other.to_ascii_uppercase()])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted_across_separators_and_accounts_have_a_country() {
        for (text, digits, has_account) in [
            ("no digits", 0, false),
            ("4111 1111\u{a0}1111\u{202f}1111", 16, false),
            ("+49 (0)170 / 123-45.67", 13, false),
            ("12:34 567x8", 5, false),
            ("DE89", 2, true),
            ("de8 9, xde89", 2, true),
            ("ZZ89 D89 DE8", 2, false),
        ] {
            let signs = Signs::of(text);
            assert_eq!((signs.most_digits, signs.has_account), (digits, has_account), "{text}");
        }
    }
}
