//! Pretty-printed arguments for approvals: every value in full, one per line, nothing invisible. Writes text to read;
//! the call that runs is never parsed from it.

use model::assembled::Assembled;
use unicode_normalization::char::is_combining_mark;
use wire::body::Scanner;
use wire::json::{quote, unescape};

/// Spaces per level.
const INDENT: usize = 2;

/// Whether a tool's name can be shown as it is.
pub(super) fn is_plain_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_-.:/".contains(char);
    !name.is_empty() && name.chars().all(is_plain)
}

/// `text`, which holds no line of backticks alone, as a block of code.
pub(super) fn fenced(text: &str) -> String {
    format!("```json\n{text}\n```")
}

/// The arguments of a call, in order and with every member, also duplicates; `None` if they are not JSON. Free text is
/// shown as one JSON string.
pub(super) fn pretty(call: &Assembled) -> Option<String> {
    pretty_text(&call.arguments(), call.custom)
}

/// As [`pretty`], for the arguments' text; `custom`: they are free text.
pub(super) fn pretty_text(text: &str, custom: bool) -> Option<String> {
    if custom {
        return Some(visible(&quote(text)));
    }
    let text = if text.trim().is_empty() { "{}" } else { text };
    let mut scanner = Scanner::new(text.as_bytes());
    if scanner.odd() || scanner.skip().is_err() || scanner.end().is_err() {
        return None;
    }
    Some(laid_out(text))
}

/// JSON with a line for each value.
fn laid_out(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth: usize = 0;
    let mut rest = json;
    while let Some(char) = rest.chars().next() {
        let length = if char == '"' { string_length(rest) } else { char.len_utf8() };
        let (token, after) = rest.split_at(length);
        rest = after;
        match char {
            '"' => out.push_str(&visible(&quote(&unescape(&token.as_bytes()[1..token.len() - 1])))),
            '{' | '[' => {
                out.push(char);
                rest = rest.trim_start();
                if !rest.starts_with(['}', ']']) {
                    depth += 1;
                    break_line(&mut out, depth);
                } else if let Some(end) = rest.chars().next() {
                    out.push(end);
                    rest = &rest[1..];
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(char);
            }
            ',' => {
                out.push(',');
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            white if white.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', depth * INDENT));
}

/// How long the string is that `text` begins with, with its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().enumerate().skip(1).find(|(_, byte)| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// A JSON string in which characters that a person would not see, or would see elsewhere, are written as escapes.
fn visible(string: &str) -> String {
    let mut out = String::with_capacity(string.len());
    let (mut base, mut marks) = (' ', 0);
    for char in string.chars() {
        let is_mark = is_combining_mark(char);
        marks = if is_mark { marks + 1 } else { 0 };
        if is_unseen(char) || (is_mark && !is_plain_mark(char, base, marks)) {
            let mut units = [0; 2];
            char.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(char);
        }
        if !is_mark {
            base = char;
        }
    }
    out
}

/// Most marks on one letter in scripts that are written with marks: Hebrew has a point, a vowel and an accent.
const MOST_MARKS: usize = 3;

/// Whether a mark, the `nth` after the character `base`, belongs to a letter as people write it. Stacked marks cover
/// the lines above, and strokes through a letter or around it hide it.
fn is_plain_mark(mark: char, base: char, nth: usize) -> bool {
    // Marks for any script, such as accents.
    let is_common = matches!(
        mark,
        '\u{300}'..='\u{36f}'
            | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}'
            | '\u{fe20}'..='\u{fe2f}'
    );
    let is_stroke = matches!(mark, '\u{334}'..='\u{338}' | '\u{20d0}'..='\u{20ff}' | '\u{1abe}');
    let most = if is_common { 1 } else { MOST_MARKS };
    base.is_alphanumeric() && !is_stroke && nth <= most
}

/// Controls, spaces other than the plain one, marks of direction, joiners, selectors, tags, fillers, and what has no
/// form of its own: Unicode's `Default_Ignorable_Code_Point`, `Cf`, `Co` and `Zs`.
fn is_unseen(char: char) -> bool {
    let is_ignorable = matches!(
        char,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffc}'
            | '\u{890}'
            | '\u{891}'
            | '\u{8e2}'
            | '\u{e000}'..='\u{f8ff}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1345f}'
            | '\u{16fe4}'
            | '\u{1d159}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
            | '\u{f0000}'..='\u{10ffff}'
    );
    // The last two of each plane are no characters.
    let is_none = u32::from(char) & 0xfffe == 0xfffe || matches!(char, '\u{fdd0}'..='\u{fdef}');
    is_ignorable || is_none || char.is_control() || (char.is_whitespace() && char != ' ')
}

/// The most characters of a person's words that the model reads.
const MOST_WORDS: usize = 500;

/// A person's words for the model, on one line and without quotation marks, so that nothing in them passes for
/// toolrein's own; `None` where there are none.
pub fn plain_words(text: &str) -> Option<String> {
    let plain = |char: char| match char {
        '"' | '\u{201c}' | '\u{201d}' => '\'',
        char if is_unseen(char) => ' ',
        char => char,
    };
    let plain: String = text.chars().map(plain).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = words.char_indices().nth(MOST_WORDS) else {
        return (!words.is_empty()).then_some(words);
    };
    Some(format!("{}...", words[..end].trim_end()))
}
