//! Resolution of the changes to each text of a request: if policies want several changes of one text, a fixed order
//! decides which applies, so that the order of the policies does not matter. Writes no bytes.

use crate::plan::placeholders::Redaction;
use crate::plan::{Change, Frame, Plan, tokens_of};
use crate::source::ItemId;
use std::collections::{BTreeMap, BTreeSet};
use wire::body::Span;
use wire::escaped_text::EscapedText;

/// A text: its item, and its index among the item's strings of text.
pub type TextPosition = (ItemId, usize);

/// The resolved change of one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextChange<'a> {
    by: Option<NewText<'a>>,
    /// Where values in its own text are hidden.
    redacted: Option<&'a [Redaction]>,
    /// Characters that hide text from people are removed from it.
    pub is_cleaned: bool,
    /// Lines that are put before and after it.
    pub around: Vec<&'a Frame>,
}

/// The text that replaces another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewText<'a> {
    rank: Rank,
    text: &'a EscapedText,
    gone_chars: usize,
    policy: &'static str,
}

/// Which new text applies where there are several: the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Redact,
    Shorten,
    Point,
    Block,
    Clear,
    Hide,
}

impl TextChange<'_> {
    /// The text that replaces it; `None`: its own.
    pub fn by(&self) -> Option<&EscapedText> {
        self.by.as_ref().map(|by| by.text)
    }

    /// The ranges of its own text that are replaced, where that is all that happens to its words.
    pub fn redactions(&self) -> Option<&[Redaction]> {
        self.redacted.filter(|_| self.by.as_ref().is_some_and(|by| by.rank == Rank::Redact))
    }

    /// The values to hide in its own text, whatever else happens to it.
    pub fn hidden_values(&self) -> Option<&[Redaction]> {
        self.redacted
    }

    /// Characters of the original that the model does not read.
    pub fn gone_chars(&self) -> usize {
        self.by.as_ref().map_or(0, |by| by.gone_chars)
    }
}

/// All changes of texts by `plan`, by position. Texts of dropped messages are left out.
pub fn settle(plan: &Plan) -> BTreeMap<TextPosition, TextChange<'_>> {
    let mut texts: BTreeMap<TextPosition, TextChange<'_>> = BTreeMap::new();
    if plan.edits.is_empty() {
        return texts;
    }
    let is_gone = |item: ItemId| plan.drops(item);
    let cleared: BTreeSet<ItemId> = plan.cleared().map(|edit| edit.item).collect();
    for edit in plan.edits.iter().filter(|edit| !is_gone(edit.item)) {
        let (rank, text, by, gone) = match &edit.change {
            Change::Clear { text, by, gone_chars } => (Rank::Clear, text, by, gone_chars),
            Change::Hide { text, by, gone_chars } => (Rank::Hide, text, by, gone_chars),
            Change::BlockText { text, by, gone_chars } => (Rank::Block, text, by, gone_chars),
            Change::Point { text, by, gone_chars, original }
                if !is_gone(*original) && !cleared.contains(original) =>
            {
                (Rank::Point, text, by, gone_chars)
            }
            Change::Shorten { text, by, gone_chars } => (Rank::Shorten, text, by, gone_chars),
            Change::Redact { text, by, ranges } => {
                texts.entry((edit.item, *text)).or_default().redacted = Some(ranges);
                (Rank::Redact, text, by, &0)
            }
            Change::Clean { text, .. } => {
                texts.entry((edit.item, *text)).or_default().is_cleaned = true;
                continue;
            }
            Change::Surround { text, frame } => {
                texts.entry((edit.item, *text)).or_default().around.push(frame);
                continue;
            }
            Change::Point { .. } | Change::Notice { .. } | Change::Remark { .. } => continue,
            Change::RedactCall { .. } | Change::RedactValue { .. } => continue,
        };
        let change = texts.entry((edit.item, *text)).or_default();
        if change.by.as_ref().is_none_or(|known| known.rank < rank) {
            change.by = Some(NewText { rank, text: by, gone_chars: *gone, policy: edit.policy });
        }
    }
    for change in texts.values_mut().filter(|change| change.is_blocked()) {
        change.around.clear();
    }
    texts
}

/// The new arguments of calls, by item and by the call's number in it. Calls of dropped items are left out.
pub fn settled_calls(plan: &Plan) -> impl Iterator<Item = (ItemId, usize, &EscapedText)> {
    let edits = plan.edits.iter().filter(|edit| !plan.drops(edit.item));
    edits.filter_map(|edit| match &edit.change {
        Change::RedactCall { call, by } => Some((edit.item, *call, by)),
        _ => None,
    })
}

/// Where values are hidden in JSON values that are no texts, by item. Those of dropped items are left out.
pub fn settled_values(plan: &Plan) -> impl Iterator<Item = (ItemId, Span, &[Redaction])> {
    let edits = plan.edits.iter().filter(|edit| !plan.drops(edit.item));
    edits.filter_map(|edit| match &edit.change {
        Change::RedactValue { span, ranges } => Some((edit.item, *span, &**ranges)),
        _ => None,
    })
}

/// Tokens that the model is spared by `plan`, estimated, by the policy whose change applies.
pub fn removed_tokens(plan: &Plan) -> BTreeMap<&'static str, u64> {
    let mut removed = BTreeMap::new();
    for by in settle(plan).values().filter_map(|change| change.by.as_ref()) {
        *removed.entry(by.policy).or_default() += tokens_of(by.gone_chars);
    }
    removed
}

/// Tokens of the texts that `plan` adds to the request, estimated, by policy: notices, lines before the descriptions of
/// tools, and tools of toolrein's own.
pub fn added_tokens(plan: &Plan) -> BTreeMap<&'static str, u64> {
    let mut added = BTreeMap::new();
    for edit in &plan.edits {
        if let Change::Notice { text, .. } = &edit.change {
            *added.entry(edit.policy).or_default() += tokens_of(text.chars().count());
        }
    }
    for (policy, _, text) in plan.annotated_tools() {
        *added.entry(policy).or_default() += tokens_of(text.chars().count());
    }
    for declared in &plan.declared {
        *added.entry(declared.policy).or_default() += tokens_of(declared.tool.chars().count());
    }
    added
}

impl TextChange<'_> {
    fn is_blocked(&self) -> bool {
        self.by.as_ref().is_some_and(|by| by.rank == Rank::Block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Dropped, Edit};

    fn planned(changes: Vec<(usize, Change)>) -> Plan {
        let edits = changes.into_iter().map(|(message, change)| Edit {
            item: ItemId::of_client(message),
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

    fn hide(with: &str) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::Hide { text, by, gone_chars }
    }

    fn block(with: &str) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::BlockText { text, by, gone_chars }
    }

    fn point(with: &str, original: usize) -> Change {
        let (text, by, gone_chars) = by(with);
        Change::Point { text, by, gone_chars, original: ItemId::of_client(original) }
    }

    #[test]
    fn the_strongest_change_of_a_text_applies_in_any_order() {
        let strengths = [shorten("s"), point("po", 9), block("wit"), clear("clea"), hide("hidde")];
        for (at, weaker) in strengths.iter().enumerate() {
            for stronger in &strengths[at + 1..] {
                for pair in [[weaker, stronger], [stronger, weaker]] {
                    let plan = planned(pair.into_iter().map(|change| (1, change.clone())).collect());
                    let texts = settle(&plan);
                    assert_eq!(
                        texts[&(ItemId::of_client(1), 0)].gone_chars(),
                        stronger.gone_chars(),
                        "{pair:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_pointer_to_a_cleared_or_dropped_result_is_not_used() {
        let mut plan = planned(vec![(1, clear("c")), (4, shorten("s")), (4, point("p", 1))]);
        assert_eq!(settle(&plan)[&(ItemId::of_client(4), 0)].by().map(|by| &**by), Some("s"));
        plan = planned(vec![(4, point("p", 1))]);
        assert_eq!(settle(&plan)[&(ItemId::of_client(4), 0)].by().map(|by| &**by), Some("p"));
        plan.dropped = vec![Dropped { policy: "history", messages: 0..3, decided: 5 }];
        assert!(settle(&plan).is_empty());
        assert!(removed_tokens(&plan).is_empty());
    }

    #[test]
    fn tokens_count_for_the_policy_whose_change_applies_and_notices_are_added() {
        let edit = |policy, change| Edit { item: ItemId::of_client(1), decided: 1, policy, change };
        let long = "x".repeat(36);
        let notice = |text: &str| Change::Notice { text: text.to_owned(), word: "notice" };
        let edits = vec![
            edit("truncate", shorten(&long)),
            edit("compact", clear(&long)),
            edit("budget", notice(&long)),
            edit("budget", notice(&long)),
        ];
        let plan = Plan { edits, ..Plan::default() };
        assert_eq!(removed_tokens(&plan), BTreeMap::from([("compact", 10)]));
        assert_eq!(added_tokens(&plan), BTreeMap::from([("budget", 20)]));
    }

    #[test]
    fn a_text_is_cleaned_in_addition_to_any_other_change() {
        let clean = Change::Clean { text: 0, gone_chars: 3 };
        for plan in [planned(vec![(1, clean.clone())]), planned(vec![(1, clean), (1, shorten("s"))])] {
            assert!(settle(&plan)[&(ItemId::of_client(1), 0)].is_cleaned);
        }
    }

    #[test]
    fn lines_surround_every_text_except_a_blocked_one() {
        let surround = Change::Surround { text: 0, frame: Frame::new("<", ">") };
        for (change, around) in [(shorten("s"), 1), (clear("c"), 1), (block("w"), 0)] {
            let plan = planned(vec![(1, surround.clone()), (1, change)]);
            let texts = settle(&plan);
            assert_eq!(texts[&(ItemId::of_client(1), 0)].around.len(), around);
        }
        let plan = planned(vec![(1, surround)]);
        let texts = settle(&plan);
        assert_eq!(
            (texts[&(ItemId::of_client(1), 0)].by(), texts[&(ItemId::of_client(1), 0)].gone_chars()),
            (None, 0)
        );
    }
}
