//! The requested part of a result: at most so many characters, after one line that says what it is and what is left
//! out. A pure function of the result's text and of the request; `search` does the searching.

use super::super::texts::{Text, Texts};
use super::read_request::{Part, ReadRequest};
use super::search;
use std::fmt::Display;
use wire::plural::{counted, range};

/// Space for the line that says what follows.
const HEAD_CHARS: usize = 400;
/// The longest name of a tool in it.
const MOST_NAME_CHARS: usize = 64;
/// The longest template of it that the operator may write: it leaves room for the name, the numbers and the part.
pub(super) const MOST_RESULT_CHARS: usize = 120;

/// The first line of an answer; `{part}` names the characters, lines or values, in English.
pub(super) const RESULT: Text = Text {
    key: "result",
    default: "[toolrein: the result of call {call} ({tool}): {part}]",
    placeholders: &["call", "tool", "part"],
};
/// What the model reads: the requested part of the `text` of the result of the `call`-th call, in at most `max_chars`
/// characters.
pub(super) fn answer(
    text: &str,
    asked: &ReadRequest,
    call: usize,
    tool: &str,
    max_chars: usize,
    texts: &Texts,
) -> String {
    let tool: String = tool.chars().take(MOST_NAME_CHARS).collect();
    let room = max_chars.saturating_sub(HEAD_CHARS);
    let piece = match &asked.part {
        Part::Characters { first, last } => characters(text, *first, *last, room),
        Part::Lines { first, last } => lines(text, *first, *last, room),
        Part::Search(needle) => search::answer(text, needle, room),
        Part::Path(path) => values(&path.values(text), room),
    };
    let values: [(&str, &dyn Display); 3] = [("call", &call), ("tool", &tool), ("part", &piece.what)];
    format!("{}\n{}", texts.fill(&RESULT, &values), piece.text)
}

/// A part of a result, and what it is.
pub(super) struct Piece {
    pub(super) what: String,
    pub(super) text: String,
}

fn characters(text: &str, first: usize, last: usize, room: usize) -> Piece {
    let total = text.chars().count();
    if first > total {
        return Piece {
            what: format!("it has {}, none from {first} on", counted(total, "character")),
            text: String::new(),
        };
    }
    let last = last.min(total);
    let shown = (last - first + 1).min(room);
    let end = first + shown - 1;
    let mut what = format!("{} of {total}", range(first, end, "character"));
    if end < last {
        what.push_str(&format!("; more does not fit, go on with from = {}", end + 1));
    }
    Piece { what, text: text.chars().skip(first - 1).take(shown).collect() }
}

fn lines(text: &str, first: usize, last: usize, room: usize) -> Piece {
    let total = text.lines().count();
    if first > total {
        return Piece {
            what: format!("it has {}, none from {first} on", counted(total, "line")),
            text: String::new(),
        };
    }
    let last = last.min(total);
    let mut out = String::new();
    let mut left = room;
    let mut next = first;
    // Without an end of its own each line is one character longer.
    for line in text.lines().skip(first - 1).take(last - first + 1) {
        let Some(rest) = left.checked_sub(line.chars().count() + 1) else { break };
        left = rest;
        next += 1;
        out.push_str(line);
        out.push('\n');
    }
    if next == first {
        let start =
            text.split_inclusive('\n').take(first - 1).map(|line| line.chars().count()).sum::<usize>() + 1;
        let piece = characters(text, start, usize::MAX, room);
        let what = format!("line {first} of {total} is too long to be shown whole; {}", piece.what);
        return Piece { what, text: piece.text };
    }
    let mut what = format!("{} of {total}", range(first, next - 1, "line"));
    if next <= last {
        what.push_str(&format!("; more does not fit, go on with lines = {next}-{last}"));
    }
    Piece { what, text: out }
}

fn values(values: &[String], room: usize) -> Piece {
    let total = values.len();
    if total == 0 {
        let text = String::new();
        return Piece { what: "the path leads to nothing, or the result is no JSON".to_owned(), text };
    }
    let mut out = String::new();
    let mut left = room;
    let mut shown = 0;
    for value in values {
        let Some(rest) = left.checked_sub(value.chars().count() + 1) else { break };
        left = rest;
        shown += 1;
        out.push_str(value);
        out.push('\n');
    }
    if shown == 0 {
        let chars = values[0].chars().count();
        let what = format!(
            "the first {room} of {} of the first of {}; ask for a longer path",
            counted(chars, "character"),
            counted(total, "value")
        );
        return Piece { what, text: values[0].chars().take(room).collect() };
    }
    let mut what = format!("{shown} of {}", counted(total, "value"));
    if shown < total {
        what.push_str("; more does not fit, ask for single ones, such as items[7]");
    }
    Piece { what, text: out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::OwnTexts;
    use proptest::prelude::*;

    fn answered(text: &str, arguments: &str, max_chars: usize) -> (String, String) {
        let asked = ReadRequest::read(&format!("{{\"call\":7,{arguments}}}")).unwrap();
        let answer = answer(text, &asked, 7, "f", max_chars, &Texts::default());
        let (head, rest) = answer.split_once('\n').unwrap();
        let head = head.strip_prefix("[toolrein: the result of call 7 (f): ").unwrap();
        (head.strip_suffix(']').unwrap().to_owned(), rest.to_owned())
    }

    #[test]
    fn a_part_of_a_result_is_returned_with_its_position_and_size() {
        let log: String = (1..=900).map(|n| format!("line {n:03}\n")).collect();
        let json = r#"{"items":[{"id":"a","n":1},{"id":"b","n":[2]}]}"#;
        for (text, arguments, head, rest) in [
            (log.as_str(), r#""from":10,"to":17"#, "characters 10 to 17 of 8100", "line 002"),
            ("äöü", r#""from":2"#, "characters 2 to 3 of 3", "öü"),
            ("äöü", r#""from":4"#, "it has 3 characters, none from 4 on", ""),
            (&log, r#""lines":"899-950""#, "lines 899 to 900 of 900", "line 899\nline 900\n"),
            (&log, r#""lines":[901,902]"#, "it has 900 lines, none from 901 on", ""),
            (json, r#""path":"items[*].id""#, "2 of 2 values", "a\nb\n"),
            (json, r#""path":"items[1]""#, "1 of 1 value", "{\"id\":\"b\",\"n\":[2]}\n"),
            (json, r#""path":"none""#, "the path leads to nothing, or the result is no JSON", ""),
            (&log, r#""path":"a""#, "the path leads to nothing, or the result is no JSON", ""),
        ] {
            assert_eq!(answered(text, arguments, 1_100), (head.to_owned(), rest.to_owned()), "{arguments}");
        }
    }

    #[test]
    fn a_part_that_does_not_fit_says_how_to_continue() {
        let log: String = (1..=900).map(|n| format!("line {n:03}\n")).collect();
        let (head, rest) = answered(&log, r#""from":1"#, 1_100);
        assert_eq!(head, "characters 1 to 700 of 8100; more does not fit, go on with from = 701");
        assert_eq!(rest, &log[..700]);
        let (head, rest) = answered(&log, r#""lines":"101-300""#, 1_100);
        assert_eq!(head, "lines 101 to 177 of 900; more does not fit, go on with lines = 178-300");
        assert_eq!(rest, &log[900..900 + 77 * 9]);
        let (head, rest) = answered(&format!("short\n{}", "x".repeat(5_000)), r#""lines":2"#, 1_100);
        assert!(
            head.starts_with("line 2 of 2 is too long to be shown whole; characters 7 to 706 of 5006"),
            "{head}"
        );
        assert_eq!(rest.len(), 700);
        let items: Vec<String> = (0..500).map(|n| format!("{{\"id\":{n}}}")).collect();
        let (head, _) = answered(&format!("[{}]", items.join(",")), r#""path":"[*].id""#, 1_100);
        assert_eq!(head, "202 of 500 values; more does not fit, ask for single ones, such as items[7]");
    }

    proptest! {
        #[test]
        fn no_answer_is_longer_than_it_may_be(
            own in any::<bool>(),
            text in "(a|é|error|\n|\\{|\"){0,900}",
            first in 0_usize..1_000, length in 0_usize..1_000,
            needle in "(a|é|err|x)", kind in 0_usize..4, max_chars in 1_000_usize..1_700,
        ) {
            let last = first + length;
            let part = match kind {
                0 => format!("\"from\":{first},\"to\":{last}"),
                1 => format!("\"lines\":\"{first}-{last}\""),
                2 => format!("\"search\":\"{needle}\""),
                _ => "\"path\":\"a[*]\"".to_owned(),
            };
            let asked = ReadRequest::read(&format!("{{\"call\":1,{part}}}")).unwrap();
            let longest = format!("result = \"{{call}}{{tool}}{{part}}{}\"", "x".repeat(MOST_RESULT_CHARS - 18));
            let table = if own { longest.as_str() } else { "" };
            let texts = toml::from_str::<OwnTexts>(table).unwrap().check(&[RESULT], &mut Vec::new());
            let answer = answer(&text, &asked, 1, &"f".repeat(99), max_chars, &texts);
            prop_assert!(answer.chars().count() <= max_chars, "{} of {max_chars}: {answer}", answer.chars().count());
        }
    }
}
