//! Scripts that are written without spaces, in which words can only be estimated by their characters.

/// Whether `letter` is kana or Han: Japanese and Chinese.
pub(super) fn is_kana_or_han(letter: char) -> bool {
    matches!(letter, '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{323AF}')
}

/// Whether `letter` is of a script that is written without spaces: kana, Han, Thai, Lao, Khmer, Burmese.
pub(super) fn is_unspaced(letter: char) -> bool {
    is_kana_or_han(letter)
        || matches!(letter, '\u{0E00}'..='\u{0EFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{17FF}')
}

/// How many words `text` has: those between spaces, and one for each `per_word` letters that `is_unspaced`.
pub(super) fn words_in(text: &str, is_unspaced: fn(char) -> bool, per_word: usize) -> usize {
    let words = text.split_whitespace().map(|piece| {
        let unspaced = piece.chars().filter(|letter| is_unspaced(*letter)).count();
        let has_others = piece.chars().any(|letter| letter.is_alphanumeric() && !is_unspaced(letter));
        unspaced.div_ceil(per_word) + usize::from(has_others)
    });
    words.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_by_spaces_or_by_letters() {
        for (text, of_han, of_all) in [
            ("two words, - ok", 3, 3),
            ("東京の天気", 5, 3),
            ("GPT東京", 3, 2),
            ("สวัสดี", 1, 3),
            ("안녕 하세요", 2, 2),
            ("", 0, 0),
        ] {
            assert_eq!(words_in(text, is_kana_or_han, 1), of_han, "{text}");
            assert_eq!(words_in(text, is_unspaced, 2), of_all, "{text}");
        }
    }
}
