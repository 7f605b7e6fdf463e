//! Two texts beside each other: what both have, what is gone and what is ours, in one run after the other. Compares
//! whole lines and the items of lists; knows nothing of policies or of pages.

use std::collections::HashMap;

/// Whose a run of text is.
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

/// Pieces shorter than this stand everywhere, and are looked for at their own place alone.
const SHORT: usize = 4;
/// Bytes in which two pieces must agree at an end before that is told.
const AGREEING: usize = 8;

/// Both texts as runs: without `Ours` they spell `before`, without `Gone` they spell `after`.
pub(super) fn compare<'a>(before: &'a str, after: &'a str) -> Vec<Run<'a>> {
    // A notice behind it, or lines around it.
    if let Some(at) = after.find(before).filter(|_| !before.is_empty()) {
        let (head, tail) = (&after[..at], &after[at + before.len()..]);
        let runs = [(Mark::Ours, head), (Mark::Same, before), (Mark::Ours, tail)];
        return runs.into_iter().filter(|(_, text)| !text.is_empty()).collect();
    }
    let (old, new) = (pieces(before), pieces(after));
    let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old_rest[..old_rest.len() - tail], &new_rest[..new_rest.len() - tail]);
    let mut runs: Vec<Run<'a>> = old[..head].iter().map(|piece| (Mark::Same, *piece)).collect();
    walk(old_rest, new_rest, &mut runs);
    runs.extend(old[old.len() - tail..].iter().map(|piece| (Mark::Same, *piece)));
    narrowed(&joined(&runs, before, after))
}

/// Lines, and what commas divide in them.
fn pieces(text: &str) -> Vec<&str> {
    text.split_inclusive(['\n', ',']).collect()
}

/// Finds every new piece at the next place where the old text has it; what is passed over is gone.
fn walk<'a>(old: &[&'a str], new: &[&'a str], runs: &mut Vec<Run<'a>>) {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, piece) in old.iter().enumerate() {
        places.entry(piece).or_default().push(at);
    }
    let mut at = 0;
    for piece in new {
        let known = places.get(piece).map_or(&[][..], Vec::as_slice);
        let next = known.get(known.partition_point(|place| *place < at)).copied();
        match next.filter(|next| *next == at || piece.trim().len() >= SHORT) {
            Some(next) => {
                runs.extend(old[at..next].iter().map(|piece| (Mark::Gone, *piece)));
                runs.push((Mark::Same, piece));
                at = next + 1;
            }
            None => runs.push((Mark::Ours, piece)),
        }
    }
    runs.extend(old[at..].iter().map(|piece| (Mark::Gone, *piece)));
}

/// Neighbours of one mark as one run; between what both have, what is gone stands before what is ours.
fn joined<'a>(runs: &[Run<'a>], before: &'a str, after: &'a str) -> Vec<Run<'a>> {
    let (mut joined, mut old, mut new) = (Vec::new(), 0, 0);
    for group in runs.chunk_by(|one, other| (one.0 == Mark::Same) == (other.0 == Mark::Same)) {
        let length = |mark| group.iter().filter(|run| run.0 == mark).map(|run| run.1.len()).sum::<usize>();
        let (same, gone, ours) = (length(Mark::Same), length(Mark::Gone), length(Mark::Ours));
        let all = [
            (Mark::Same, &before[old..old + same]),
            (Mark::Gone, &before[old + same..old + same + gone]),
            (Mark::Ours, &after[new + same..new + same + ours]),
        ];
        joined.extend(all.into_iter().filter(|(_, text)| !text.is_empty()));
        (old, new) = (old + same + gone, new + same + ours);
    }
    joined
}

/// Where something of ours takes the place of something gone, what both begin and end with is the same.
fn narrowed<'a>(runs: &[Run<'a>]) -> Vec<Run<'a>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < runs.len() {
        let pair = runs.get(at).zip(runs.get(at + 1));
        if let Some(((Mark::Gone, gone), (Mark::Ours, ours))) = pair {
            let head = agreeing(gone.char_indices(), ours.char_indices());
            let tail = agreeing(gone[head..].char_indices().rev(), ours[head..].char_indices().rev());
            let (gone_end, ours_end) = (gone.len() - tail, ours.len() - tail);
            out.push((Mark::Same, &gone[..head]));
            out.push((Mark::Gone, &gone[head..gone_end]));
            out.push((Mark::Ours, &ours[head..ours_end]));
            out.push((Mark::Same, &gone[gone_end..]));
            at += 2;
        } else {
            out.push(runs[at]);
            at += 1;
        }
    }
    out.retain(|(_, text)| !text.is_empty());
    out
}

/// In how many bytes both agree, if that is worth telling.
fn agreeing(one: impl Iterator<Item = (usize, char)>, other: impl Iterator<Item = (usize, char)>) -> usize {
    let both = one.zip(other).take_while(|((_, one), (_, other))| one == other);
    let bytes = both.map(|((_, letter), _)| letter.len_utf8()).sum();
    if bytes >= AGREEING { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelled(runs: &[Run<'_>], without: Mark) -> String {
        runs.iter().filter(|(mark, _)| *mark != without).map(|(_, text)| *text).collect()
    }

    #[test]
    fn what_is_cut_out_of_the_middle_is_gone_and_the_marker_ours() {
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
    fn equal_lines_are_gone_where_the_marker_stands() {
        let before = "line\n".repeat(9);
        let after = format!("{}[cut]\n{}", "line\n".repeat(2), "line\n".repeat(3));
        let runs = compare(&before, &after);
        let marks: Vec<_> = runs.iter().map(|(mark, text)| (*mark, text.lines().count())).collect();
        assert_eq!(marks, [(Mark::Same, 2), (Mark::Gone, 4), (Mark::Ours, 1), (Mark::Same, 3)]);
    }

    #[test]
    fn a_notice_behind_a_text_is_ours_alone_and_lines_around_it_too() {
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
    fn a_string_cut_inside_of_json_is_told_inside_of_it() {
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
        fn the_runs_spell_both_texts(before in "[ab,\né]{0,60}", after in "[ab,\né]{0,60}") {
            let runs = compare(&before, &after);
            prop_assert_eq!(spelled(&runs, Mark::Ours), &*before);
            prop_assert_eq!(spelled(&runs, Mark::Gone), &*after);
        }
    }
}
