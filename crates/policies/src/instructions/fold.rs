//! Normalisation of a text for the search: characters that look equal become equal, invisible ones are removed.
//! Letters become small, and Latin where they look Latin; full width and mathematical ones become plain; accents and
//! zero-width characters are dropped. Only the rules read the copy; it is never sent.

use super::lookalikes::latin;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// `text` folded.
pub(super) fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (plain, others) = rest.split_at(ascii_len(rest.as_bytes()));
        out.push_str(plain);
        let mut characters = others.chars();
        while let Some(character) = characters.clone().next().filter(|character| !character.is_ascii()) {
            fold_one(character, &mut out);
            characters.next();
        }
        rest = characters.as_str();
    }
    out.make_ascii_lowercase();
    out
}

/// The number of ASCII bytes at the start, found a block at a time.
fn ascii_len(bytes: &[u8]) -> usize {
    const BLOCK: usize = 64;
    let plain = bytes.chunks(BLOCK).take_while(|block| block.is_ascii()).count() * BLOCK;
    let plain = plain.min(bytes.len());
    plain + bytes[plain..].iter().take_while(|byte| byte.is_ascii()).count()
}

fn fold_one(character: char, out: &mut String) {
    match character {
        _ if is_unseen(character) => {}
        '\u{2018}'..='\u{201b}' | '\u{2032}' => out.push('\''),
        '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => out.push('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => out.push('-'),
        '\u{2028}' | '\u{2029}' => out.push('\n'),
        '\u{2800}' | '\u{3000}' => out.push(' '),
        '\u{2223}' | '\u{23ae}' | '\u{2502}' => out.push('|'),
        '\u{2039}' => out.push('<'),
        '\u{203a}' => out.push('>'),
        '\u{142}' | '\u{141}' => out.push('l'),
        '\u{111}' | '\u{110}' => out.push('d'),
        '\u{f8}' | '\u{d8}' => out.push('o'),
        // Chinese, Japanese and Korean characters resemble no others.
        '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' => out.push(character),
        _ => decompose_compatible(character, |part| fold_part(part, out)),
    }
}

fn fold_part(part: char, out: &mut String) {
    if part.is_ascii() {
        out.push(part.to_ascii_lowercase());
    } else if let Some(latin) = latin(part) {
        out.push(latin);
    } else if !is_combining_mark(part) {
        out.extend(part.to_lowercase());
    }
}

/// Characters without width, soft hyphens, fillers, marks and embeddings of direction, selectors and tags.
fn is_unseen(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_looking_characters_are_folded_to_one_form() {
        for (text, folded) in [
            ("Plain, as it is.\n", "plain, as it is.\n"),
            ("\u{399}gn\u{43e}r\u{435} \u{430}ll", "ignore all"),
            ("\u{ff29}\u{ff47}nore \u{1d422}\u{1d420}\u{1d427}\u{1d428}\u{1d42b}\u{1d41e}", "ignore ignore"),
            ("i\u{200b}g\u{ad}n\u{2060}o\u{fe0f}re", "ignore"),
            ("pr\u{e9}c\u{e9}dentes, pre\u{301}ce", "precedentes, prece"),
            ("\u{ff5c}User\u{ff5c}\u{a0}\u{201c}x\u{201d}", "|user| \"x\""),
            ("\u{5ffd}\u{7565}\u{4e4b}\u{524d}\u{7684}", "\u{5ffd}\u{7565}\u{4e4b}\u{524d}\u{7684}"),
        ] {
            assert_eq!(fold(text), folded, "{text}");
        }
    }
}
