//! Facts about a message's text: whether it ends in a question, and how many words it has, in any script. Looks at
//! characters only.

/// Question marks: Latin, full width, Arabic, Greek, Armenian, Ethiopic, small, Coptic, Vai, Bamum, and doubled ones.
const QUESTION_MARKS: [char; 14] = [
    '?', '\u{ff1f}', '\u{61f}', '\u{37e}', '\u{55e}', '\u{1367}', '\u{fe56}', '\u{2cfa}', '\u{a60f}',
    '\u{a6f7}', '\u{2047}', '\u{2048}', '\u{2049}', '\u{203d}',
];
/// Marks that end a sentence as something else. An exclamation mark is none: "What?!" asks.
const OTHER_ENDS: [char; 12] = [
    '.', ',', ':', ';', '\u{2026}', '\u{3002}', '\u{3001}', '\u{ff0e}', '\u{61b}', '\u{6d4}', '\u{964}',
    '\u{589}',
];

/// Whether the last sentence of `text` ends with a question mark. Quotes, brackets, marks of Markdown and emoji after
/// it are ignored.
pub fn is_question(text: &str) -> bool {
    let decides =
        |char: &char| char.is_alphanumeric() || QUESTION_MARKS.contains(char) || OTHER_ENDS.contains(char);
    text.chars().rev().find(decides).is_some_and(|last| QUESTION_MARKS.contains(&last))
}

/// The words of `text`: runs of letters and digits between white space. In scripts that set no spaces two letters
/// count as a word: about right for Chinese, a rough guess for Japanese and Thai.
pub fn count_words(text: &str) -> usize {
    text.split_whitespace().map(words_of_run).sum()
}

fn words_of_run(run: &str) -> usize {
    let (mut spaceless, mut other) = (0_usize, false);
    for char in run.chars().filter(|char| char.is_alphanumeric()) {
        if is_spaceless(char) {
            spaceless += 1;
        } else {
            other = true;
        }
    }
    spaceless.div_ceil(2) + usize::from(other)
}

/// Thai to Myanmar, Khmer, kana and Han with their extensions.
fn is_spaceless(char: char) -> bool {
    matches!(u32::from(char), 0xe00..=0xeff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3040..=0x30ff
        | 0x3400..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_end_with_a_question_mark_of_any_script() {
        for text in [
            "What do you see?",
            "Was sehen Sie? \n",
            "¿Qué ves?",
            "你看到了什么？",
            "ماذا ترى؟",
            "Τι βλέπεις\u{37e}",
            "Ի՞նչ ես տեսնում՞",
            "ምን ታያለህ፧",
            "**What is it?**",
            "He asked: \"Who is it?\"",
            "「何が見えますか？」",
            "Ready? 😊",
            "What?!",
            "Really?)",
        ] {
            assert!(is_question(text), "{text}");
        }
        for text in [
            "",
            "Yes.",
            "What? Take your time.",
            "Why? I ask you: think",
            "是的。",
            "?x",
            "Let us go…",
            "Wow!",
        ] {
            assert!(!is_question(text), "{text}");
        }
    }

    #[test]
    fn words_are_counted_with_and_without_spaces() {
        for (text, words) in [
            ("", 0),
            ("  \n", 0),
            ("one", 1),
            ("it's well-known, I think", 4),
            ("- ... -", 0),
            ("Das sind 3 Wörter!", 4),
            ("我看到一只猫", 3),
            ("เห็นแมว", 3),
            ("GPT说了", 2),
            ("고양이가 보여요", 2),
        ] {
            assert_eq!(count_words(text), words, "{text}");
        }
    }
}
