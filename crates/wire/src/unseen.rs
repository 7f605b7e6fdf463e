//! Characters that a terminal shows nothing of, or that change what it shows elsewhere: controls, marks and overrides of
//! direction, spaces without width, tags. Decides on single characters; [`super::hidden_unicode`] reads whole texts.

/// Whether `letter` is a control character, changes the direction of text, or is invisible. Joiners (U+200C, U+200D) are
/// not: scripts and emoji need them.
pub fn is_unseen(letter: char) -> bool {
    let is_invisible = matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    letter.is_control() || is_invisible
}

/// Appends `letter` as an escape that JSON and people read.
pub fn push_escape(letter: char, out: &mut String) {
    for unit in letter.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}
