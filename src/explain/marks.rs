//! The diff of two texts: unchanged, removed and added runs in their order. Compares whole lines and the items of
//! lists; knows nothing of policies or of pages.

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use std::time::{Duration, Instant};

/// Which of the two texts contains a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Recorded and sent.
    Same,
    /// Recorded, not sent.
    Gone,
    /// Sent, not recorded.
    Ours,
}

/// A run of text of one mark.
pub(super) type Run<'a> = (Mark, &'a str);

/// After this time the comparison continues with a coarser one.
const WITHIN: Duration = Duration::from_secs(1);
/// The shortest common start or end of two pieces that is shown as unchanged, in bytes.
const AGREEING: usize = 8;

/// Both texts as runs: without `Ours` they join to `before`, without `Gone` to `after`.
pub(super) fn compare<'a>(before: &'a str, after: &'a str) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    if let Some(at) = after.find(before).filter(|_| !before.is_empty()) {
        // The text is unchanged, with a notice after it or lines around it.
        let (head, tail) = (&after[..at], &after[at + before.len()..]);
        runs.extend([(Mark::Ours, head), (Mark::Same, before), (Mark::Ours, tail)]);
    } else {
        let (old, new) = (pieces(before), pieces(after));
        let (mut before, mut after) = (before, after);
        for op in capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + WITHIN)) {
            let gone = take(&mut before, &old[op.old_range()]);
            let ours = take(&mut after, &new[op.new_range()]);
            match op.tag() {
                DiffTag::Equal => runs.push((Mark::Same, gone)),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => runs.extend(narrowed(gone, ours)),
            }
        }
    }
    runs.retain(|(_, text)| !text.is_empty());
    runs
}

/// Lines, split at commas.
fn pieces(text: &str) -> Vec<&str> {
    text.split_inclusive(['\n', ',']).collect()
}

/// Takes these pieces off the start of a text.
fn take<'a>(text: &mut &'a str, pieces: &[&str]) -> &'a str {
    let (taken, rest) = text.split_at(pieces.iter().map(|piece| piece.len()).sum());
    *text = rest;
    taken
}

/// Marks the common start and end of a removed text and its replacement as unchanged.
fn narrowed<'a>(gone: &'a str, ours: &'a str) -> [Run<'a>; 4] {
    let head = agreeing(gone.char_indices(), ours.char_indices());
    let (same, gone, ours) = (&gone[..head], &gone[head..], &ours[head..]);
    let tail = agreeing(gone.char_indices().rev(), ours.char_indices().rev());
    let (gone, same_tail) = gone.split_at(gone.len() - tail);
    [
        (Mark::Same, same),
        (Mark::Gone, gone),
        (Mark::Ours, &ours[..ours.len() - tail]),
        (Mark::Same, same_tail),
    ]
}

/// The length of the common start in bytes; 0 if it is too short to show.
fn agreeing(one: impl Iterator<Item = (usize, char)>, other: impl Iterator<Item = (usize, char)>) -> usize {
    let both = one.zip(other).take_while(|((_, one), (_, other))| one == other);
    let bytes = both.map(|((_, letter), _)| letter.len_utf8()).sum();
    if bytes >= AGREEING { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(runs: &[Run<'_>], without: Mark) -> String {
        runs.iter().filter(|(mark, _)| *mark != without).map(|(_, text)| *text).collect()
    }

    #[test]
    fn text_cut_from_the_middle_is_marked_gone_and_the_marker_ours() {
        let runs = compare("one 1\ntwo 2\nthree 3\nfour 4\n", "one 1\n[two lines are gone]\nfour 4\n");
        let expected = [
            (Mark::Same, "one 1\n"),
            (Mark::Gone, "two 2\nthree 3\n"),
            (Mark::Ours, "[two lines are gone]\n"),
            (Mark::Same, "four 4\n"),
        ];
        assert_eq!(runs, expected);
    }

    #[test]
    fn removed_lines_among_equal_lines_are_marked_at_the_marker() {
        let before = "line\n".repeat(9);
        let after = format!("{}[cut]\n{}", "line\n".repeat(2), "line\n".repeat(3));
        let runs = compare(&before, &after);
        let marks: Vec<_> = runs.iter().map(|(mark, text)| (*mark, text.lines().count())).collect();
        assert_eq!(marks, [(Mark::Same, 2), (Mark::Gone, 4), (Mark::Ours, 1), (Mark::Same, 3)]);
    }

    #[test]
    fn a_notice_after_a_text_and_lines_around_it_are_marked_ours() {
        assert_eq!(
            compare("result", "result\n\n[notice]"),
            [(Mark::Same, "result"), (Mark::Ours, "\n\n[notice]")]
        );
        assert_eq!(
            compare("some words", "<before>\nsome words\n<after>"),
            [(Mark::Ours, "<before>\n"), (Mark::Same, "some words"), (Mark::Ours, "\n<after>")]
        );
    }

    #[test]
    fn a_string_cut_inside_of_json_is_shown_inside_of_it() {
        let runs = compare(r#"{"text":"abcdefghijklmnop"}"#, r#"{"text":"abcd [12 more]"}"#);
        assert_eq!(
            runs,
            [
                (Mark::Same, r#"{"text":"abcd"#),
                (Mark::Gone, r#"efghijklmnop"}"#),
                (Mark::Ours, r#" [12 more]"}"#)
            ]
        );
    }

    proptest! {
        #[test]
        fn the_marked_runs_reproduce_both_texts(before in "[ab,\né]{0,60}", after in "[ab,\né]{0,60}") {
            let runs = compare(&before, &after);
            prop_assert_eq!(joined(&runs, Mark::Ours), &*before);
            prop_assert_eq!(joined(&runs, Mark::Gone), &*after);
        }
    }
}
