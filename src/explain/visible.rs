//! Sanitising of outside text for display: control and invisible characters as signs, long texts as head and tail,
//! numbers with thousands separators. Its output cannot move a cursor or change the direction of a line.

use std::borrow::Cow;
use std::fmt::Write as _;
pub(super) use wire::plural::grouped;
use wire::plural::noun_after;
use wire::unseen::is_unseen;

/// Characters of an abridged run that are shown at its head and at its tail.
const HEAD: usize = 700;
const TAIL: usize = 300;
/// How far from there, in bytes, the end of a line is searched.
const NEAR: usize = 150;
/// A run that is at most this much longer than both is shown whole: the note about the gap takes room too.
const SPARE: usize = 100;

/// A text of several lines, with every other control character as a sign.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    shown(text, |letter| letter == '\n' || letter == '\t')
}

/// A text as one line.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    shown(text, |_| false)
}

/// The head of a text, how many characters are left out, and its tail; a short text is all head. Cut at the ends of
/// lines where these are near.
pub(super) fn abridged(text: &str, full: bool) -> (&str, usize, &str) {
    let chars = text.chars().count();
    if full || chars <= HEAD + TAIL + SPARE {
        return (text, 0, "");
    }
    let place = |nth: usize| text.char_indices().nth(nth).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (&text[..place(HEAD)], &text[place(chars - TAIL)..]);
    let head_end = head.rfind('\n').filter(|at| head.len() - at <= NEAR).map_or(head.len(), |at| at + 1);
    let tail_start = tail.find('\n').filter(|at| *at < NEAR).map_or(0, |at| at + 1);
    let (head, tail) = (&head[..head_end], &tail[tail_start..]);
    (head, chars - head.chars().count() - tail.chars().count(), tail)
}

/// A signed number with commas, as [`grouped`] writes it.
pub(super) fn grouped_signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(number.unsigned_abs()))
}

/// A number with its noun.
pub(super) fn grouped_noun(number: u64, noun: &str) -> String {
    format!("{} {}", grouped(number), noun_after(number, noun))
}

/// So many tokens saved, in words; less than 0 were added.
pub(super) fn saved_in_words(saved: i64) -> String {
    let word = if saved < 0 { "added" } else { "saved" };
    format!("{} {word}", grouped_noun(saved.unsigned_abs(), "token"))
}

fn shown(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let hides = |letter: char| is_unseen(letter) && !stays(letter);
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            _ if !hides(letter) => out.push(letter),
            // Unicode's signs for control characters are in the same order.
            '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(letter))),
            '\x7f' => out.push('\u{2421}'),
            _ => {
                let _ = write!(out, "<U+{:04X}>", u32::from(letter));
            }
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_and_nothing_invisible_is_left() {
        let text = "a\x1b[31mred\x07\r\n\tb\u{9b}2J\x7f\u{202e}txt.exe\u{e0041}\u{200b}";
        assert_eq!(visible(text), "a␛[31mred␇␍\n\tb<U+009B>2J␡<U+202E>txt.exe<U+E0041><U+200B>");
        assert_eq!(one_line("a\n\tb"), "a␊␉b");
        assert!(matches!(visible("plain é 再来 👩\u{200d}🚀"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_long_text_is_its_head_and_its_tail() {
        let text = "é".repeat(2000);
        let (head, gone, tail) = abridged(&text, false);
        assert_eq!((head.chars().count(), gone, tail.chars().count()), (HEAD, 1000, TAIL));
        assert_eq!(abridged(&text, true), (&*text, 0, ""));
        let text = "é".repeat(HEAD + TAIL + SPARE);
        assert_eq!(abridged(&text, false).1, 0);
        let text = "123456789\n".repeat(200);
        let (head, gone, tail) = abridged(&text, false);
        assert_eq!((head.len(), gone, tail.len()), (700, 1010, 290));
    }

    #[test]
    fn thousands_are_separated() {
        let numbers = [0, 999, 1_000, 12_345_678].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(grouped_signed(-1_234), "-1,234");
    }
}
