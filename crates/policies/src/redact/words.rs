//! Words without which no pattern of names and phrases finds anything: most texts have none of them. All are looked for in
//! one pass. Finds no value itself.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use std::sync::LazyLock;

/// What a pattern needs a word for.
#[derive(Clone, Copy)]
enum Use {
    Name,
    Phrase,
    Cookie,
}

/// What every name of a secret has; what a phrase has that announces a secret and holds no such name; how the header of
/// cookies is called.
const WORDS: [(&str, Use); 14] = [
    ("key", Use::Name),
    ("secret", Use::Name),
    ("token", Use::Name),
    ("pass", Use::Name),
    ("pwd", Use::Name),
    ("authorization", Use::Phrase),
    ("identified", Use::Phrase),
    ("kennwort", Use::Phrase),
    ("contrasena", Use::Phrase),
    ("senha", Use::Phrase),
    ("wachtwoord", Use::Phrase),
    ("salasana", Use::Phrase),
    ("heslo", Use::Phrase),
    ("cookie", Use::Cookie),
];

/// Words that do not compile are in every text; a test holds that they do.
pub(super) static SEARCH: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    // Words so short would be suspected at every other place.
    builder.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).prefilter(false);
    builder.build(WORDS.map(|(word, _)| word)).ok()
});

/// What of the words is in a text, in any case.
pub(super) struct Words {
    /// A name of a secret may be in it.
    pub(super) has_name: bool,
    /// One may be in it whose `k` or `s` is in another case than those of ASCII.
    pub(super) has_other_name: bool,
    /// A phrase may be in it that announces a secret.
    pub(super) has_phrase: bool,
    /// The header of a cookie may be in it.
    pub(super) has_cookie: bool,
}

impl Words {
    pub(super) fn of(text: &str) -> Self {
        // A phrase in another language, or a word with another form of a letter.
        let is_other = !text.is_ascii();
        let has_other_name = is_other && ['\u{212a}', '\u{17f}'].iter().any(|letter| text.contains(*letter));
        let mut words = Self { has_name: false, has_other_name, has_phrase: is_other, has_cookie: is_other };
        let Some(search) = &*SEARCH else {
            return Self { has_name: true, has_phrase: true, has_cookie: true, ..words };
        };
        // Quicker than the search for all of them.
        if !search.is_match(text) {
            return words;
        }
        for found in search.find_overlapping_iter(text) {
            match WORDS[found.pattern().as_usize()].1 {
                Use::Name => (words.has_name, words.has_phrase) = (true, true),
                Use::Phrase => words.has_phrase = true,
                Use::Cookie => words.has_cookie = true,
            }
        }
        words
    }

    pub(super) fn has_any(&self) -> bool {
        self.has_name || self.has_other_name || self.has_phrase || self.has_cookie
    }
}

#[cfg(test)]
mod tests {
    use super::super::named::PATTERN;
    use super::super::phrases::{COOKIES, PHRASES};
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    /// Words of the patterns, with what makes them match, and parts of them.
    const PIECES: &[&str] = &[
        "key",
        "secret",
        "token",
        "pass",
        "pwd",
        "api_",
        "word",
        "passwd",
        "to\u{212a}en",
        "\u{17f}ecret",
        "=",
        ": ",
        "\"",
        " is ",
        " Xq7Zp2Lm9Rt4Vw8K",
        "authorization",
        "proxy-",
        "identified by",
        "user a ",
        "kennwort",
        "contrasena",
        "contrase\u{f1}a",
        "senha",
        "wachtwoord",
        "has\u{142}o",
        "salasana",
        "jelsz\u{f3}",
        "heslo",
        "l\u{f6}senord",
        "\u{5bc6}\u{7801}",
        " ist ",
        "set-",
        "cookie",
        "coo\u{212a}ie",
        "\n",
        "env ",
        "name='",
        "pass",
        "s",
        "e",
        "k",
        "h",
        " ",
        "{",
        "with ",
        "login x password y",
    ];

    #[test]
    fn the_words_compile() {
        assert!(SEARCH.is_some());
    }

    proptest! {
        #[test]
        fn where_no_word_is_found_no_pattern_matches(
            pieces in prop::collection::vec((prop::sample::select(PIECES), 0..3_u8), 0..8)
        ) {
            let written = |(piece, case): &(&str, u8)| match case {
                0 => (*piece).to_owned(),
                1 => piece.to_ascii_uppercase(),
                _ => piece.chars().enumerate().map(|(at, letter)| {
                    if at % 2 == 0 { letter.to_ascii_uppercase() } else { letter }
                }).collect(),
            };
            let text: String = pieces.iter().map(written).collect();
            let names = Regex::new("(?i-u)key|secret|token|pass|pwd").unwrap();
            let words = Words::of(&text);
            prop_assert_eq!(words.has_name, names.is_match(&text));
            let matches = |pattern: &Option<Regex>| pattern.as_ref().unwrap().is_match(&text);
            prop_assert!(words.has_phrase || !matches(&PHRASES));
            prop_assert!(words.has_name || words.has_other_name || !matches(&PATTERN));
            prop_assert!(words.has_cookie || !matches(&COOKIES));
        }
    }
}
