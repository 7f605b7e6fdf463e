//! Pretty-printed arguments for approvals: every value in full, one per line, nothing invisible. Writes text to read;
//! the call that runs is never parsed from it.

use crate::conversation::assembled::Assembled;
use crate::wire::body::Scanner;
use crate::wire::json::{quote, unescape};

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
    for char in string.chars() {
        if is_unseen(char) {
            let mut units = [0; 2];
            char.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(char);
        }
    }
    out
}

/// Controls, spaces other than the plain one, marks of direction, joiners, selectors, tags: Unicode's
/// `Default_Ignorable_Code_Point`, `Cf` and `Zs`.
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
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    is_ignorable || char.is_control() || (char.is_whitespace() && char != ' ')
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
