//! Whether a text leaves markup open, so that what follows it in the same message may be hidden from a person: a
//! comment, a tag, a code block, a formula, a concealing escape. Renderers differ, so doubt counts as open.

/// Tags that change nothing but the face of the text within them, without attributes.
const PLAIN_TAGS: [&str; 28] = [
    "b",
    "strong",
    "i",
    "em",
    "u",
    "s",
    "del",
    "ins",
    "sub",
    "sup",
    "small",
    "mark",
    "kbd",
    "code",
    "pre",
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "ul",
    "ol",
    "li",
    "blockquote",
    "q",
    "cite",
];
/// Tags that have no end.
const EMPTY_TAGS: [&str; 2] = ["br", "hr"];
/// What opens a part of a text in some renderer, and what closes it: formulas, templates, comments, tokens of models.
const PAIRS: [(&str, &str); 8] = [
    (r"\[", r"\]"),
    (r"\(", r"\)"),
    (r"\begin{", r"\end{"),
    ("{{", "}}"),
    ("{%", "%}"),
    ("{#", "#}"),
    ("/*", "*/"),
    ("(*", "*)"),
];
/// What begins a tag of a model: `◁think▷`.
const TAG: char = '◁';
/// What opens a part and closes it.
const TOGGLES: [&str; 7] = ["$$", "%%", "||", "```", "~~~", "////", ":::"];
/// What opens the head of a document, which some renderers do not show.
const HEADS: [&str; 3] = ["---", "+++", ";;;"];

/// Whether something that `text` opens may hide what follows.
pub fn leaves_markup_open(text: &str) -> bool {
    let text = text.trim_start();
    HEADS.iter().any(|head| text.starts_with(head))
        || text.chars().any(|c| c == TAG || conceals(c))
        || PAIRS.iter().any(|(open, close)| text.matches(open).count() > text.matches(close).count())
        || TOGGLES.iter().any(|toggle| text.matches(toggle).count() % 2 == 1)
        || has_open_code(text)
        || has_open_tag(text)
        || has_bracketed_word(text)
}

/// Whether terminals or renderers take the character for an instruction.
fn conceals(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e0fff}')
        || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

/// Whether a code block, or code within a line, is open at the end.
fn has_open_code(text: &str) -> bool {
    let mut fence: Option<(char, usize)> = None;
    for line in text.lines() {
        // A block may begin within a list or a quotation.
        let line = line.trim_start_matches([' ', '\t', '>', '-', '*', '+', '.', ')']);
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ')' | ' '));
        let Some(mark) = line.chars().next().filter(|c| matches!(c, '`' | '~')) else { continue };
        let count = line.chars().take_while(|c| *c == mark).count();
        let rest = &line[count..];
        match fence {
            Some((open, least)) if open == mark && count >= least && rest.trim().is_empty() => fence = None,
            None if count >= 3 => fence = Some((mark, count)),
            _ => {}
        }
    }
    fence.is_some() || has_odd_run(text)
}

/// Whether one run of backticks has no other of its length.
fn has_odd_run(text: &str) -> bool {
    let (mut rest, mut lengths) = (text, Vec::new());
    while let Some(at) = rest.find('`') {
        rest = &rest[at..];
        let length = rest.bytes().take_while(|byte| *byte == b'`').count();
        rest = &rest[length..];
        lengths.push(length);
    }
    lengths.iter().any(|length| lengths.iter().filter(|other| *other == length).count() % 2 == 1)
}

/// Whether a tag, a comment or a declaration is open at the end, or a tag may hide what is outside it.
fn has_open_tag(text: &str) -> bool {
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            let Some(end) = comment.find("-->") else { return true };
            rest = &comment[end + 3..];
            continue;
        }
        let is_end = rest.starts_with('/');
        let name = rest.trim_start_matches('/');
        match name.chars().next() {
            // By HTML's rules an end tag without a name is a comment up to the next `>`.
            _ if is_end && !name.starts_with(char::is_alphabetic) => {}
            Some(c) if c.is_alphabetic() || matches!(c, '!' | '?' | '|' | '｜' | '_' | '%') => {}
            _ => continue,
        }
        let Some(end) = name.find('>') else { return true };
        let tag = name[..end].trim_end_matches(['/', ' ']).to_ascii_lowercase();
        rest = &name[end + 1..];
        if EMPTY_TAGS.contains(&&*tag) {
            continue;
        }
        if !PLAIN_TAGS.contains(&&*tag) {
            return true;
        }
        match (is_end, open.last().is_some_and(|last| *last == tag)) {
            (false, _) => open.push(tag),
            (true, true) => drop(open.pop()),
            // An end that no renderer has to understand closes nothing.
            (true, false) => {}
        }
    }
    !open.is_empty()
}

/// Whether a word in brackets may begin a part that a client does not show, such as `[THINK]` or `[details]`.
fn has_bracketed_word(text: &str) -> bool {
    let opens = |word: &str| {
        let is_word =
            !word.is_empty() && word.len() <= 40 && word.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        is_word && !text.contains(&format!("[/{word}]"))
    };
    let words = text.split('[').skip(1).filter_map(|rest| {
        let (word, after) = rest.split_once(']')?;
        // A link.
        (!after.starts_with(['(', '['])).then_some(word)
    });
    let mut words = words.map(|word| word.split(['=', ' ']).next().unwrap_or_default());
    words.any(opens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hide_the_rest_of_a_message_is_open() {
        for text in [
            "<!--",
            "Fine.\n<!-- to do",
            "<!-- a --> b <!-- c",
            "<details>",
            "<details>\n<summary>More</summary>\n\n",
            "<details></details><style>*{display:none}</style>",
            "<div style=\"position:fixed\">x</div>",
            "<style>",
            "<textarea>",
            "I look. </",
            "I look. </ ",
            ":::spoiler\n",
            "::: {.hidden}\n",
            "<think>I should",
            "<|channel|>analysis",
            "◁think▷",
            "◁think",
            "<<SYS>> so",
            "1 << 2 and <div>",
            "[THINK] so",
            "[details=More]",
            "<b>bold",
            "<b><i>x</b>",
            "<a title=\"",
            "<?php",
            "<![CDATA[",
            "a <b",
            "```",
            "```sh\nrm -r x\n",
            "- ```\n  x\n",
            "> ~~~\n> x",
            "````\n```\n",
            "``` a ``` b\n```\n``` x",
            "a ` b",
            "$$ x",
            r"\[ x",
            r"\begin{comment}",
            "%% x",
            "||x",
            "{% comment %}\n{% raw",
            "{# x",
            "/* x",
            "---\ntitle: x\n",
            "\u{1b}[8m",
            "a\u{202e}b",
        ] {
            assert!(leaves_markup_open(text), "{text}");
        }
    }

    #[test]
    fn ordinary_text_leaves_nothing_open() {
        for text in [
            "",
            "I will now delete `/tmp/a` for you.",
            "**Careful**: this _cannot_ be undone.\n\n- one\n- two\n",
            "See [the page](https://example.org) and [1].",
            "Like so:\n\n```sh\nrm -r x\n```\n\nShall I?",
            "<b>bold</b> and<br>more <!-- x -->",
            "a < b, 1 << 2, x > y, a <- b, <3",
            "It costs $5 (or 5%).",
            "x << y >> z, i<<1, cat <<< 1, a <= b => c",
            "| a | b |\n|---|---|\n| 1 | 2 |\n",
            "x = ``a b`` and `c`",
        ] {
            assert!(!leaves_markup_open(text), "{text}");
        }
    }
}
