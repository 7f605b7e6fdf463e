//! Sanitising of external text for labels and log lines: bounded length, without characters that move a cursor or are
//! invisible. Escaping is left to the format.

use std::borrow::Cow;

/// The longest name of a tool, in characters. OpenAI allows 64.
const NAME_CHARS: usize = 64;

/// The name of a tool: at most 64 characters, without spaces.
pub(super) fn name(raw: &str) -> Cow<'_, str> {
    if raw.is_empty() {
        return Cow::Borrowed("unnamed");
    }
    if raw.len() <= NAME_CHARS && raw.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Cow::Borrowed(raw);
    }
    let shown = |c: char| if is_hidden(c) || c.is_whitespace() { '_' } else { c };
    Cow::Owned(cut(raw, NAME_CHARS).map(shown).collect())
}

/// Any other text: at most `max` characters.
pub(super) fn text(raw: &str, max: usize) -> Cow<'_, str> {
    if raw.len() <= max && is_plain(raw) {
        return Cow::Borrowed(raw);
    }
    Cow::Owned(cut(raw, max).map(|c| if is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c }).collect())
}

/// Whether a text has only visible characters of ASCII and spaces. Reads it to its end, since a loop without a way out
/// compiles to vector instructions.
fn is_plain(raw: &str) -> bool {
    raw.bytes().fold(true, |is_plain, byte| is_plain & matches!(byte, b' '..=b'~'))
}

/// Whether it is [plain](is_plain) and has nothing that JSON escapes.
pub(super) fn is_plain_in_json(raw: &str) -> bool {
    is_plain(raw) && memchr::memchr2(b'"', b'\\', raw.as_bytes()).is_none()
}

/// Whether a text has at most `max` characters, all of them visible, so that it is shown as it is.
pub(super) fn is_shown_whole(raw: &str, max: usize) -> bool {
    raw.chars().nth(max).is_none() && !raw.chars().any(is_hidden)
}

/// The first `max` characters, the last of them an ellipsis where there are more.
fn cut(raw: &str, max: usize) -> impl Iterator<Item = char> + '_ {
    let is_longer = raw.chars().nth(max).is_some();
    let kept = if is_longer { max.saturating_sub(1) } else { max };
    raw.chars().take(kept).chain(is_longer.then_some('…'))
}

/// Control characters (a terminal may obey C1 ones as well), and characters that are invisible or change the direction
/// of text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_visible_word_of_bounded_length() {
        let long = "é".repeat(64);
        for (raw, expected) in [
            ("get_weather", "get_weather"),
            ("", "unnamed"),
            ("a b\tc\nd", "a_b_c_d"),
            ("\u{1b}[31mred\u{9b}0m", "_[31mred_0m"),
            ("evil\u{202e}txt\u{200b}", "evil_txt_"),
            ("wetter_größe", "wetter_größe"),
            (long.as_str(), long.as_str()),
        ] {
            assert_eq!(name(raw), expected, "{raw:?}");
        }
        for raw in ["x".repeat(65), "é".repeat(5_000)] {
            let name = name(&raw);
            assert_eq!(name.chars().count(), 64);
            assert!(name.ends_with('…'));
        }
    }

    #[test]
    fn texts_keep_their_words_and_lose_what_is_hidden() {
        assert_eq!(text("a plain id", 20), "a plain id");
        assert_eq!(text("two\r\nlines \u{1b}[2J", 20), "two\u{fffd}\u{fffd}lines \u{fffd}[2J");
        assert_eq!(text("abcdef", 4), "abc…");
        assert_eq!(text("ééé", 3), "ééé");
    }
}
