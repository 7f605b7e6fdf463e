//! Plain queries: words and nothing else. Whatever has a meaning of its own to a search engine or a person (addresses,
//! code, quotes, operators, identifiers) makes a query one that is left alone.

use super::super::scripts;

/// The longest query that is tidied, in characters; a longer one is a text.
const MOST_CHARS: usize = 300;
/// Operators that are words.
const OPERATORS: [&str; 4] = ["AND", "OR", "NOT", "NEAR"];

/// Whether `query` is words alone, in one line.
pub(super) fn is_plain(query: &str) -> bool {
    let letters: Vec<char> = query.chars().take(MOST_CHARS + 1).collect();
    let neighbour = |at: usize| letters.get(at).copied();
    let all_fit = letters.iter().enumerate().all(|(at, letter)| {
        let before = at.checked_sub(1).and_then(neighbour);
        is_of_words(before, *letter, neighbour(at + 1))
    });
    let mut words = query.split(' ');
    letters.len() <= MOST_CHARS
        && all_fit
        && !words.any(|word| OPERATORS.contains(&word) || is_identifier(word))
}

/// Whether `letter` is part of a word, or a mark that prose has at such a place.
fn is_of_words(before: Option<char>, letter: char, after: Option<char>) -> bool {
    let is_letter = |other: Option<char>| other.is_some_and(char::is_alphanumeric);
    let is_digit = |other: Option<char>| other.is_some_and(|other| other.is_ascii_digit());
    let ends = after.is_none_or(|after| after == ' ');
    let between_digits = is_digit(before) && is_digit(after);
    match letter {
        ' ' => true,
        '\'' | '\u{2019}' | '-' => is_letter(before) && is_letter(after),
        '.' | ',' => between_digits || (is_letter(before) && ends),
        // French writes a space before it.
        '?' | '!' => (is_letter(before) || before == Some(' ')) && ends,
        '¿' | '¡' => before.is_none_or(|before| before == ' ') && is_letter(after),
        '%' => is_digit(before) && ends,
        '$' | '€' | '£' => before.is_none_or(|before| before == ' ') && is_digit(after),
        _ => letter.is_alphanumeric(),
    }
}

/// Whether `word` looks like a name in a program: `innerHTML`, `NullPointerException`. Brands such as iPhone and YouTube
/// do not.
fn is_identifier(word: &str) -> bool {
    let letters: Vec<char> = word.chars().collect();
    let humps = letters.windows(2).filter(|pair| pair[0].is_lowercase() && pair[1].is_uppercase()).count();
    let begins_lower = letters.iter().take(2).filter(|letter| letter.is_lowercase()).count() == 2;
    humps > 1 || (humps == 1 && begins_lower)
}

/// How many words `query` has. Chinese, Japanese and Thai have no spaces: two characters count as a word.
pub(super) fn words_in(query: &str) -> usize {
    scripts::words_in(query, scripts::is_unspaced, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_are_distinguished_from_queries_with_operators_or_syntax() {
        for query in [
            "latest news about Rust",
            "what's new in the iPhone, and why?",
            "état-major de l'armée française",
            "prices from $1,000 to 20% less.",
            "¿qué hay de nuevo en Madrid?",
            "quoi de neuf à Paris ?",
            "Python 3.12 on YouTube",
            "最新新闻 東京",
            "",
        ] {
            assert!(is_plain(query), "{query}");
        }
        let long = "word ".repeat(80);
        for query in [
            "site:example.com latest news",
            "latest news at example.com",
            "https://example.com is latest",
            "mail ann@example.com please",
            "\"exact words\" in quotes",
            "«exact words» in quotes",
            "'exact words' in quotes",
            "rust -game latest news",
            "rust +crab latest news",
            "cats AND dogs and mice",
            "cats OR dogs and mice",
            "lates* news about rust",
            "latest news (about rust)",
            "src/main.rs does not compile",
            "C:\\windows is not found",
            "snake_case names in rust",
            "getUserName is not defined",
            "NullPointerException in my program",
            "x = y in python code",
            "std::vec of the latest",
            "#latest news about rust",
            "two\nlines of the query",
            "a\ttab in the query",
            "hidden\u{200b} text in the query",
            "turned \u{202e}text in the query",
            "a|b in the query",
            "a & b in the query",
            &long,
        ] {
            assert!(!is_plain(query), "{query}");
        }
    }

    #[test]
    fn words_are_counted_where_there_are_no_spaces_too() {
        for (query, words) in [("", 0), (" a  b ", 2), ("最新新闻", 2), ("最新AI", 2), ("- , a", 1)] {
            assert_eq!(words_in(query), words, "{query}");
        }
    }
}
