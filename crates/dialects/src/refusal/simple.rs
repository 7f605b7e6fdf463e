//! A simple form of an error's text for rules by structure: lower-case words without quotation marks, joined words taken
//! apart (`tool_use_id`, `ContextWindowExceeded`), paths (`messages[2].content`) kept as one word. Knows no meanings.

use super::words::{cut, without_quotes};

/// The words of an error's text.
#[derive(Debug, Default)]
pub(super) struct SimpleText {
    /// Every word with a blank before and after it.
    text: String,
}

impl SimpleText {
    /// Reads the front of `text`; sentences that it quotes are left out.
    pub(super) fn new(text: &str) -> Self {
        let kept = without_quotes(cut(text));
        let mut spaced = String::with_capacity(kept.len() + 32);
        let mut before = ' ';
        for c in kept.chars() {
            match c {
                '\'' | '"' | '`' | '‘' | '’' | '“' | '”' | '\\' => {}
                '<' | '>' => spaced.extend([' ', c, ' ']),
                '.' | '[' | ']' | ',' | '/' | '-' => spaced.push(c),
                c if c.is_alphanumeric() => {
                    if c.is_uppercase() && before.is_lowercase() {
                        spaced.push(' ');
                    }
                    spaced.extend(c.to_lowercase());
                }
                _ => spaced.push(' '),
            }
            before = c;
        }
        let mut text = String::with_capacity(spaced.len() + 2);
        for word in spaced.split_whitespace() {
            // A name or a date with its digits stays one word, a number and its unit do not.
            let is_whole = word.contains(|c: char| c.is_ascii_digit()) && !is_number_with_unit(word);
            let parts = word.split(|c| matches!(c, '-' | '/') && !is_whole);
            for part in parts.map(without_edges).filter(|part| !part.is_empty()) {
                text.push(' ');
                text.push_str(part);
            }
        }
        text.push(' ');
        Self { text }
    }

    /// Whether one of `phrases`, which `|` separates, occurs in whole words. A phrase that ends in `*` is the beginning of
    /// its last word.
    pub(super) fn says(&self, phrases: &str) -> bool {
        phrases.split('|').any(|phrase| {
            let (phrase, is_beginning) =
                phrase.strip_suffix('*').map_or((phrase, false), |start| (start, true));
            self.text.match_indices(phrase).any(|(at, found)| {
                let ends = is_beginning || self.text[at + found.len()..].starts_with(' ');
                ends && self.text[..at].ends_with(' ')
            })
        })
    }

    /// Whether one of `parts`, which `|` separates, occurs, be it within a word or a path.
    pub(super) fn contains(&self, parts: &str) -> bool {
        parts.split('|').any(|part| self.text.contains(part))
    }

    /// The words, in order.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace()
    }

    /// The numbers that stand alone: `131,072`, `131.072`, `128k`, but no part of a name.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.words().flat_map(|word| word.split('/')).filter_map(|word| {
            let (digits, unit) = match word.strip_suffix('k') {
                Some(digits) => (digits, 1_000),
                None => word.strip_suffix('m').map_or((word, 1), |digits| (digits, 1_000_000)),
            };
            let is_number = digits.starts_with(|c: char| c.is_ascii_digit());
            without_separators(digits).parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit)
        })
    }
}

/// The digits of a number without commas, and without dots where they divide it into thousands.
fn without_separators(digits: &str) -> String {
    let mut groups = digits.split('.');
    let is_first = groups.next().is_some_and(|first| (1..=3).contains(&first.len()) && first != "0");
    let is_divided = is_first && groups.all(|group| group.len() == 3);
    if is_divided { digits.replace(['.', ','], "") } else { digits.replace(',', "") }
}

/// Whether the word is a number and its unit: `131072-token`.
fn is_number_with_unit(word: &str) -> bool {
    let parts = word.split_once('-');
    parts.is_some_and(|(number, unit)| {
        number.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
            && unit.bytes().all(|byte| byte.is_ascii_lowercase())
    })
}

/// A word without the marks around it; a path keeps its brackets.
fn without_edges(word: &str) -> &str {
    let word =
        word.trim_start_matches(['.', ',', '/', '[', ']', '-']).trim_end_matches(['.', ',', '/', '[', '-']);
    if word.contains('[') { word } else { word.trim_end_matches(']') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_and_paths_are_kept() {
        for (text, words) in [
            (
                "`tool_use` ids doesn't ContextWindowExceeded.",
                " tool use ids doesnt context window exceeded ",
            ),
            ("Invalid 'messages[2].content': [1, 30720]", " invalid messages[2].content 1 30720 "),
            ("a > b, c<=4", " a > b c < 4 "),
        ] {
            assert_eq!(SimpleText::new(text).text, words);
        }
    }

    #[test]
    fn phrases_are_found_in_whole_words() {
        let text = SimpleText::new("The tool_calls exceeded 131,072 or 128k of gpt-4o-128k at v1.5");
        assert!(text.says("tool calls") && text.says("exceed*"));
        assert!(!text.says("tool call") && !text.says("exceed") && !text.says("ool calls"));
        assert_eq!(text.numbers().collect::<Vec<_>>(), [131_072, 128_000]);
        let text = SimpleText::new("got 140.321 of 1.310.720 in 0.125 and 3.5");
        assert_eq!(text.numbers().collect::<Vec<_>>(), [140_321, 1_310_720]);
    }
}
