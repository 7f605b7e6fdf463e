//! Content words of a text, for comparing the topics of searches: folded (compatibility forms, case, Latin diacritics,
//! a plural s), without stop words, whatever their order, and the first of them in order; scripts without spaces by bigrams
//! of their characters.

use super::super::scripts;
use super::stop_words::is_stop_word;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use unicode_normalization::UnicodeNormalization;

/// The most characters of a text that are read.
const MOST_CHARS: usize = 32_000;
/// The most words of a text that are kept.
const MOST_WORDS: usize = 4_000;

/// The words with which a query names its topic.
const OPENING: usize = 3;

/// Content words, by their hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    all: HashSet<u64>,
    /// The first of them in order, up to [`OPENING`]; none after a script without spaces.
    opening: Vec<u64>,
}

impl Words {
    /// The content words of `text`, up to a bound.
    pub(super) fn of(text: &str) -> Self {
        let mut words = Reader::default();
        let folded = text.chars().take(MOST_CHARS).nfkd().filter(|char| !is_diacritic(*char)).nfc();
        for char in folded.flat_map(char::to_lowercase) {
            if words.found.len() >= MOST_WORDS {
                break;
            }
            words.read(char);
        }
        words.end_word();
        words.end_run();
        Self { all: words.found, opening: words.opening }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether both begin with the same three content words.
    pub(super) fn opens_like(&self, other: &Self) -> bool {
        self.opening.len() == OPENING && self.opening == other.opening
    }

    /// The share of these words that `other` has too, 0 to 1.
    pub(super) fn share_in(&self, other: &Self) -> f64 {
        ratio(self.common(other), self.all.len())
    }

    /// The words in common of all words of the two, 0 to 1.
    pub(super) fn likeness(&self, other: &Self) -> f64 {
        let common = self.common(other);
        ratio(common, self.all.len() + other.all.len() - common)
    }

    fn common(&self, other: &Self) -> usize {
        let (few, many) = if self.all.len() <= other.all.len() { (self, other) } else { (other, self) };
        few.all.iter().filter(|word| many.all.contains(word)).count()
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The hash of something, the same in every process.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Reads characters that are folded.
#[derive(Default)]
struct Reader {
    found: HashSet<u64>,
    opening: Vec<u64>,
    word: String,
    /// A script without spaces was read, in which words have no first ones.
    is_unspaced: bool,
    /// The last character of a run without spaces, and whether the run has given a bigram.
    run: Option<(char, bool)>,
}

impl Reader {
    fn read(&mut self, char: char) {
        // The sigma at the end of a word.
        let char = if char == 'ς' { 'σ' } else { char };
        if is_unspaced(char) {
            self.end_word();
            self.is_unspaced = true;
            if let Some((before, _)) = self.run {
                self.found.insert(hash_of([before, char]));
            }
            self.run = Some((char, self.run.is_some()));
            return;
        }
        self.end_run();
        if char.is_alphanumeric() || unicode_normalization::char::is_combining_mark(char) {
            self.word.push(char);
        } else {
            self.end_word();
        }
    }

    fn end_word(&mut self) {
        let word = singular(&self.word);
        // A letter alone says nothing; a digit does.
        let is_letter = word.chars().nth(1).is_none() && !word.starts_with(|char: char| char.is_numeric());
        if !is_letter && !is_stop_word(&self.word) && !is_stop_word(word) {
            let word = hash_of(word);
            self.found.insert(word);
            if self.opening.len() < OPENING && !self.is_unspaced {
                self.opening.push(word);
            }
        }
        self.word.clear();
    }

    fn end_run(&mut self) {
        if let Some((char, false)) = self.run.take() {
            self.found.insert(hash_of([char]));
        }
    }
}

/// A word without a plural s: most of the languages at hand have one.
fn singular(word: &str) -> &str {
    let stem = word.strip_suffix('s').unwrap_or(word);
    if stem.len() >= 3 && !stem.ends_with('s') { stem } else { word }
}

/// Marks that Latin, Greek and Cyrillic letters carry. Others are part of the letter, as in Japanese or Hindi.
fn is_diacritic(char: char) -> bool {
    matches!(char, '\u{300}'..='\u{36f}')
}

/// Whether words of the character's script are written without spaces, or, as in Korean, with endings that a space does
/// not part.
fn is_unspaced(char: char) -> bool {
    scripts::is_unspaced(char) || matches!(char, '\u{ac00}'..='\u{d7af}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_topics_have_equal_words_whatever_the_order_form_and_language() {
        for (one, other) in [
            ("best pizza in Rome", "Rome: the best pizzas?"),
            ("Wie wird das Wetter in München", "Wetter München"),
            ("prix de l'électricité en France", "France, prix électricite\u{301}"),
            ("cuál es la población de España", "poblacion Espana"),
            ("quali sono gli orari dei treni per Milano", "orari treni Milano"),
            ("qual é a previsão do tempo em Lisboa", "previsao tempo Lisboa"),
            ("wat is de hoofdstad van Nederland", "hoofdstad Nederland"),
            ("ＧＰＴ－４　price", "price gpt 4"),
            ("東京の天気", "東京の天気？"),
            ("ΑΘΗΝΑ καιρός", "καιροσ αθηνα"),
        ] {
            assert_eq!(Words::of(one).likeness(&Words::of(other)), 1.0, "{one} / {other}");
        }
    }

    #[test]
    fn different_topics_differ() {
        for (one, other, most) in [
            ("weather in Rome", "weather in Paris", 0.4),
            ("東京の天気", "大阪の天気", 0.5),
            ("iphone 15 price", "iphone 16 price", 0.6),
            ("서울 날씨", "부산 날씨", 0.6),
            ("the of and", "pizza", 0.0),
        ] {
            let likeness = Words::of(one).likeness(&Words::of(other));
            assert!(likeness <= most, "{one} / {other}: {likeness}");
        }
        assert!(Words::of("Wo ist das? Where is the?").is_empty());
        assert!(Words::of("").is_empty() && !Words::of("水").is_empty() && !Words::of("7").is_empty());
    }

    #[test]
    fn queries_open_alike_with_the_same_three_content_words_in_order() {
        for (one, other, alike) in [
            ("react hooks tutorial", "the React hooks tutorials for beginners with examples", true),
            ("What are the best Rust web frameworks", "best Rust web servers in production use", true),
            ("react hooks tutorial", "hooks react tutorial", false),
            ("react hooks", "react hooks", false),
            ("react hooks tutorial", "react hooks guide", false),
            ("東京の天気予報", "東京の天気予報 明日", false),
            ("weather 東京 tomorrow morning", "weather 東京 tomorrow morning", false),
        ] {
            assert_eq!(Words::of(one).opens_like(&Words::of(other)), alike, "{one} / {other}");
        }
    }

    #[test]
    fn a_result_is_compared_by_the_share_of_the_query_that_it_has() {
        let query = Words::of("population of Lyon 2024");
        assert_eq!(query.share_in(&Words::of("In 2024 Lyon had a population of 520,774.")), 1.0);
        assert_eq!(query.share_in(&Words::of("Cheap flights")), 0.0);
        assert_eq!(Words::default().share_in(&query), 0.0);
    }

    proptest! {
        #[test]
        fn likeness_is_symmetric_and_ignores_word_order(words in prop::collection::vec("[\\PC]{0,9}", 0..9)) {
            let text = words.join(" ");
            let turned: Vec<&str> = words.iter().rev().map(String::as_str).collect();
            let (one, other) = (Words::of(&text), Words::of(&turned.join(" ")));
            prop_assert_eq!(&one.all, &other.all);
            let third = Words::of("pizza Rome 東京");
            prop_assert_eq!(one.likeness(&third), third.likeness(&one));
            prop_assert!((0.0..=1.0).contains(&one.share_in(&third)));
        }
    }
}
