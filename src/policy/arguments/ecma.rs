//! Patterns as JSON Schema writes them, in ECMA-262's words, put into the words of an engine whose time is linear
//! in the text. Look-around and back references are beyond it: patterns that hold them are none that we can match.

use regex::{Regex, RegexBuilder};
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// The largest compiled pattern, in bytes.
const PATTERN_BYTES: usize = 128 * 1024;

/// The longest `{least,most}` that is read, in characters: larger numbers are beyond the engine.
const LONGEST_REPETITION: usize = 24;

/// White space and ends of lines, for use within a class.
const SPACE: &str =
    r"\t-\r\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
const WORD: &str = "0-9A-Za-z_";
const DIGIT: &str = "0-9";

/// What `pattern` matches anywhere in a text; `None` where it is none, or beyond us.
pub fn compile(pattern: &str) -> Option<Regex> {
    let translated = Translator { rest: pattern.chars().peekable(), out: String::new(), dot_is_all: false };
    RegexBuilder::new(&translated.whole()?)
        .size_limit(PATTERN_BYTES)
        .dfa_size_limit(PATTERN_BYTES)
        .build()
        .ok()
}

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// A flag of the pattern's own makes the dot match the ends of lines too.
    dot_is_all: bool,
}

/// One part of a class, or what an escape stands for.
enum Atom {
    Character(char),
    /// What a class in the engine's words holds, and whether it is what it does not hold.
    Class(&'static str, bool),
    /// In the engine's own words, as it is.
    Verbatim(String),
}

impl Translator<'_> {
    fn whole(mut self) -> Option<String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' if self.rest.next_if_eq(&'b').is_some() => self.out.push_str(r"(?-u:\b)"),
                '\\' if self.rest.next_if_eq(&'B').is_some() => self.out.push_str(r"(?-u:\B)"),
                '\\' => {
                    let atom = self.escape()?;
                    self.put(&atom);
                }
                '[' => self.class()?,
                '.' if !self.dot_is_all => self.out.push_str(r"[^\n\r\x{2028}\x{2029}]"),
                '{' if !self.is_repetition() => self.out.push_str(r"\{"),
                '(' => self.group(),
                c => self.out.push(c),
            }
        }
        Some(self.out)
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Option<Atom> {
        let c = self.rest.next()?;
        Some(match c {
            'd' | 'D' => Atom::Class(DIGIT, c == 'D'),
            'w' | 'W' => Atom::Class(WORD, c == 'W'),
            's' | 'S' => Atom::Class(SPACE, c == 'S'),
            't' => Atom::Character('\t'),
            'n' => Atom::Character('\n'),
            'r' => Atom::Character('\r'),
            'v' => Atom::Character('\u{b}'),
            'f' => Atom::Character('\u{c}'),
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => Atom::Character('\0'),
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic)?;
                Atom::Character(char::from(letter as u8 % 32))
            }
            'x' | 'u' if self.rest.peek() == Some(&'{') => Atom::Verbatim(format!("\\{c}{}", self.braced()?)),
            'x' => Atom::Character(char::from_u32(self.hex(2)?)?),
            'u' => Atom::Character(self.unit()?),
            'p' | 'P' if self.rest.peek() == Some(&'{') => Atom::Verbatim(format!("\\{c}{}", self.braced()?)),
            'p' | 'P' => Atom::Verbatim(format!("\\{c}{}", self.rest.next()?)),
            // Not of ECMA-262, but what operators may write.
            'A' | 'z' => Atom::Verbatim(format!("\\{c}")),
            c if c.is_ascii_alphanumeric() => return None,
            c => Atom::Character(c),
        })
    }

    /// From a brace to the one that closes it.
    fn braced(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            let c = self.rest.next()?;
            text.push(c);
            if c == '}' {
                return Some(text);
            }
        }
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        (0..digits).try_fold(0, |sum, _| Some(sum * 16 + self.rest.next()?.to_digit(16)?))
    }

    /// The character that one or two UTF-16 units spell, of which the first `\u` has been read.
    fn unit(&mut self) -> Option<char> {
        let first = self.hex(4)?;
        if let Some(character) = char::from_u32(first) {
            return Some(character);
        }
        let second = (self.rest.next()? == '\\' && self.rest.next()? == 'u').then(|| self.hex(4))??;
        char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second).ok()?]).next()?.ok()
    }

    /// Writes an atom that stands by itself or in a class.
    fn put(&mut self, atom: &Atom) {
        // Writing to a `String` cannot fail.
        let _ = match atom {
            Atom::Character(c) if c.is_alphanumeric() => write!(self.out, "{c}"),
            Atom::Character(c) => write!(self.out, "\\x{{{:x}}}", u32::from(*c)),
            Atom::Class(class, is_negated) => {
                write!(self.out, "[{}{class}]", if *is_negated { "^" } else { "" })
            }
            Atom::Verbatim(text) => write!(self.out, "{text}"),
        };
    }

    /// A class, whose bracket has been read. Nothing but `]`, `\`, `^` in front and `-` between characters means
    /// anything in it.
    fn class(&mut self) -> Option<()> {
        let is_negated = self.rest.next_if_eq(&'^').is_some();
        if self.rest.next_if_eq(&']').is_some() {
            self.out.push_str(if is_negated { "(?s:.)" } else { r"[^\x{0}-\x{10ffff}]" });
            return Some(());
        }
        self.out.push_str(if is_negated { "[^" } else { "[" });
        while self.rest.next_if_eq(&']').is_none() {
            let first = self.class_atom()?;
            self.put(&first);
            let mut ahead = self.rest.clone();
            let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|next| next != ']');
            if !is_range {
                continue;
            }
            self.rest.next();
            let last = self.class_atom()?;
            // Beside a class the hyphen stands for itself.
            let joins = [&first, &last].iter().all(|atom| matches!(atom, Atom::Character(_)));
            self.out.push_str(if joins { "-" } else { r"\-" });
            self.put(&last);
        }
        self.out.push(']');
        Some(())
    }

    fn class_atom(&mut self) -> Option<Atom> {
        match self.rest.next()? {
            '\\' if self.rest.next_if_eq(&'b').is_some() => Some(Atom::Character('\u{8}')),
            '\\' => self.escape(),
            c => Some(Atom::Character(c)),
        }
    }

    /// A group, whose parenthesis has been read: whether its flags change what the dot means.
    fn group(&mut self) {
        self.out.push('(');
        let mut ahead = self.rest.clone();
        if ahead.next() == Some('?') {
            let flags = ahead.take_while(char::is_ascii_alphabetic);
            self.dot_is_all |= flags.into_iter().any(|flag| flag == 's');
        }
    }

    /// Whether a brace that has been read opens a number of repetitions; else it stands for itself. `{,2}` counts as
    /// one, which the engine refuses: ECMA-262 and others read it differently.
    fn is_repetition(&self) -> bool {
        let ahead: String = self.rest.clone().take(LONGEST_REPETITION).collect();
        let Some((inner, _)) = ahead.split_once('}') else { return false };
        let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        !inner.is_empty() && inner != "," && is_number(least) && is_number(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap_or_else(|| panic!("{pattern}")).is_match(text)
    }

    #[test]
    fn patterns_mean_what_they_mean_in_ecmascript() {
        for (pattern, matching, other) in [
            (r"^\d+$", "12", "١"),
            (r"^\D$", "١", "1"),
            (r"^\w$", "_", "é"),
            (r"^[\w-]+$", "a-b", "a.b"),
            (r"^[\w-z]+$", "-z", "."),
            (r"^[a-\d]+$", "a-7", "b"),
            (r"^\s$", "\u{feff}", "\u{85}"),
            (r"^\S$", "\u{85}", "\u{a0}"),
            (r"^[^\s]$", "x", "\u{2003}"),
            (r"\bcat\b", "écat", "cats"),
            (r"^[\b]$", "\u{8}", "b"),
            (r"^a\/b\-c\_d\@$", "a/b-c_d@", "a\\/b"),
            (r"^\<a\>$", "<a>", "a"),
            (r"^\cJ\x41\u0042\u{43}\0$", "\nABC\0", "JABC0"),
            (r"^\uD83D\uDE00$", "😀", "D83D"),
            (r"^[[a]+$", "[a", "]"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[a~~b-]+$", "~-", "c"),
            (r"^[\w--z]+$", "-z", "."),
            (r"^[+--]+$", "+,-", "."),
            (r"^[.*^$|(){}]+$", "^.*$|(){}", "a"),
            (r"^[^]$", "\n", ""),
            (r"^(a[]|b)$", "b", "a"),
            (r"^{.*}$", "{a}", "a"),
            (r"^a{2,3}$", "aaa", "a"),
            (r"^a{2}c{1,}$", "aacc", "aa"),
            (r"^a.b$", "a b", "a\rb"),
            (r"(?s)^a.b$", "a\nb", "ab"),
            (r"(?i)^abc$", "ABC", "AB"),
            (r"^(?<year>\d{4})-(?:0|1)$", "2026-1", "26-1"),
            (r"^\p{L}+\P{L}\p{Script=Greek}\pN$", "é α1", "1"),
            (r"\Aab\z", "ab", "ab\n"),
            ("^ab$", "ab", "ab\n"),
            ("b", "abc", "ac"),
            ("^é/$", "é/", "e/"),
            ("]}", "a]}", "]"),
        ] {
            assert!(matches(pattern, matching), "{pattern} {matching:?}");
            assert!(!matches(pattern, other), "{pattern} {other:?}");
        }
    }

    #[test]
    fn what_the_engine_cannot_do_is_no_pattern() {
        for pattern in [
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            r"(a)\1",
            r"(?<n>a)\k<n>",
            "(",
            "a)",
            "[a",
            "[z-a]",
            "*",
            r"\",
            r"\c1",
            "a{,2}",
            r"\uD83D",
            r"\uDE00",
            r"\u12",
            r"\xg0",
            r"\a",
            r"\Z",
            r"\p{Nothing}",
            "((a{1000}){1000}){1000}",
            "[\\",
            r"\x{",
        ] {
            assert!(compile(pattern).is_none(), "{pattern}");
        }
    }
}
