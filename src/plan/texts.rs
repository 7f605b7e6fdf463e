//! Resolution of the changes to each text of a request: of all that policies want done to one text, which applies, in
//! one fixed order, so that their own order does not matter. Writes no bytes.

use crate::plan::{Change, Plan, tokens_of};
use crate::wire::escaped_text::EscapedText;
use std::collections::{BTreeMap, BTreeSet};

/// The position of a text: its message, and its index among the message's strings of text.
pub type TextPosition = (usize, usize);

/// The resolved change of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextChange<'a> {
    /// The text that replaces it, with the number of removed characters and the rank of the change.
    by: Option<(Rank, &'a EscapedText, usize)>,
    /// Characters that hide text from people are removed from it.
    pub is_cleaned: bool,
    /// Lines that are put before and after it.
    pub around: Vec<(&'static str, &'static str)>,
}

/// Which new text applies where there are several: the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Shorten,
    Point,
    Block,
    Clear,
}

impl TextChange<'_> {
    /// The text that replaces it; `None`: its own.
    pub fn by(&self) -> Option<&EscapedText> {
        self.by.as_ref().map(|(_, by, _)| *by)
    }

    /// Characters of the original that the model does not read.
    pub fn gone_chars(&self) -> usize {
        self.by.as_ref().map_or(0, |(_, _, gone)| *gone)
    }
}

/// All changes of texts by `plan`, by position. Texts of dropped messages are left out.
pub fn settle(plan: &Plan) -> BTreeMap<TextPosition, TextChange<'_>> {
    let mut texts: BTreeMap<TextPosition, TextChange<'_>> = BTreeMap::new();
    if plan.edits.is_empty() {
        return texts;
    }
    let is_gone = |message: usize| plan.drops(message);
    let cleared = plan.edits.iter().filter(|edit| matches!(edit.change, Change::Clear { .. }));
    let cleared: BTreeSet<usize> = cleared.map(|edit| edit.message).collect();
    for edit in plan.edits.iter().filter(|edit| !is_gone(edit.message)) {
        let (rank, text, by, gone) = match &edit.change {
            Change::Clear { text, by, gone_chars } => (Rank::Clear, text, by, gone_chars),
            Change::BlockText { text, by, gone_chars } => (Rank::Block, text, by, gone_chars),
            Change::Point { text, by, gone_chars, original }
                if !is_gone(*original) && !cleared.contains(original) =>
            {
                (Rank::Point, text, by, gone_chars)
            }
            Change::Shorten { text, by, gone_chars } => (Rank::Shorten, text, by, gone_chars),
            Change::Clean { text, .. } => {
                texts.entry((edit.message, *text)).or_default().is_cleaned = true;
                continue;
            }
            Change::Surround { text, before, after } => {
                texts.entry((edit.message, *text)).or_default().around.push((before, after));
                continue;
            }
            Change::Point { .. } | Change::Notice { .. } | Change::Remark { .. } => continue,
        };
        let change = texts.entry((edit.message, *text)).or_default();
        if change.by.as_ref().is_none_or(|(known, _, _)| *known < rank) {
            change.by = Some((rank, by, *gone));
        }
    }
    for change in texts.values_mut().filter(|change| change.is_blocked()) {
        change.around.clear();
    }
    texts
}

/// Tokens that the model is spared by `plan`, estimated.
pub fn saved_tokens(plan: &Plan) -> u64 {
    settle(plan).values().map(|change| tokens_of(change.gone_chars())).sum()
}

impl TextChange<'_> {
    fn is_blocked(&self) -> bool {
        matches!(self.by, Some((Rank::Block, _, _)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Dropped, Edit};

    fn planned(changes: Vec<(usize, Change)>) -> Plan {
        let edits = changes.into_iter().map(|(message, change)| Edit {
            message,
            decided: message,
            policy: "p",
            change,
        });
        Plan { edits: edits.collect(), ..Plan::default() }
    }

    fn by(text: &str) -> (usize, EscapedText, usize) {
        (0, text.into(), text.len())
    }

    fn shorten(with: &str) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::Shorten { text, by, gone_chars }
    }

    fn clear(with: &str) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::Clear { text, by, gone_chars }
    }

    fn block(with: &str) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::BlockText { text, by, gone_chars }
    }

    fn point(with: &str, original: usize) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::Point { text, by, gone_chars, original }
    }

    #[test]
    fn the_strongest_new_text_counts_whatever_the_order() {
        let strengths = [shorten("s"), point("po", 9), block("wit"), clear("clea")];
        for (at, weaker) in strengths.iter().enumerate() {
            for stronger in &strengths[at + 1..] {
                for pair in [[weaker, stronger], [stronger, weaker]] {
                    let plan = planned(pair.into_iter().map(|change| (1, change.clone())).collect());
                    let texts = settle(&plan);
                    assert_eq!(texts[&(1, 0)].gone_chars(), stronger.gone_chars(), "{pair:?}");
                }
            }
        }
    }

    #[test]
    fn a_pointer_to_what_is_cleared_or_dropped_gives_way() {
        let mut plan = planned(vec![(1, clear("c")), (4, shorten("s")), (4, point("p", 1))]);
        assert_eq!(settle(&plan)[&(4, 0)].by().map(|by| &**by), Some("s"));
        plan = planned(vec![(4, point("p", 1))]);
        assert_eq!(settle(&plan)[&(4, 0)].by().map(|by| &**by), Some("p"));
        plan.dropped = vec![Dropped { policy: "history", messages: 0..3, decided: 5 }];
        assert!(settle(&plan).is_empty());
        assert_eq!(saved_tokens(&plan), 0);
    }

    #[test]
    fn a_text_is_cleaned_whatever_it_becomes() {
        let clean = Change::Clean { text: 0, gone_chars: 3 };
        for plan in [planned(vec![(1, clean.clone())]), planned(vec![(1, clean), (1, shorten("s"))])] {
            assert!(settle(&plan)[&(1, 0)].is_cleaned);
        }
    }

    #[test]
    fn lines_are_put_around_every_text_but_one_that_is_blocked() {
        let surround = Change::Surround { text: 0, before: "<", after: ">" };
        for (change, around) in [(shorten("s"), 1), (clear("c"), 1), (block("w"), 0)] {
            let plan = planned(vec![(1, surround.clone()), (1, change)]);
            let texts = settle(&plan);
            assert_eq!(texts[&(1, 0)].around.len(), around);
        }
        let plan = planned(vec![(1, surround)]);
        let texts = settle(&plan);
        assert_eq!((texts[&(1, 0)].by(), texts[&(1, 0)].gone_chars()), (None, 0));
    }
}
