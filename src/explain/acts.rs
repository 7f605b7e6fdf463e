//! The actions of policies on one message, in words: each edit with its reason, whether it applies, and what it saves.
//! Reads the plan; `plan::texts` decides which change of a text applies.

use super::facts::Act;
use dialects::variant::Placement;
use model::View;
use model::plan::texts::settle;
use model::plan::{Change, Dropped, Edit, Plan};
use model::tokens::{Estimate, MESSAGE_OVERHEAD, estimate_text};
use wire::plural::{counted, is_one};

/// A recorded message, whose texts are counted.
pub(super) struct Text<'a> {
    pub view: View<'a>,
    /// What estimates are multiplied by, in percent.
    pub factor: u32,
}

/// What was done to the message, except for dropping it.
pub(super) fn acts_of(plan: &Plan, placement: Option<Placement>, text: &Text<'_>) -> Vec<Act> {
    let item = text.view.id;
    let settled = settle(plan);
    let newest = plan
        .edits
        .iter()
        .rfind(|edit| matches!(edit.change, Change::Notice { .. }) && !plan.drops(edit.item));
    let mut acts = Vec::new();
    for edit in plan.effective_edits().filter(|edit| edit.item == item) {
        let applies = match &edit.change {
            Change::Clear { text, by, .. }
            | Change::Hide { text, by, .. }
            | Change::BlockText { text, by, .. }
            | Change::Point { text, by, .. }
            | Change::Shorten { text, by, .. } => {
                settled.get(&(item, *text)).is_some_and(|change| change.by() == Some(by))
            }
            Change::Surround { text, .. } => {
                settled.get(&(item, *text)).is_some_and(|change| !change.around.is_empty())
            }
            Change::RedactCall { .. } | Change::RedactValue { .. } => !plan.drops(item),
            Change::Clean { text, .. } | Change::Redact { text, .. } => settled.contains_key(&(item, *text)),
            Change::Notice { .. } if placement == Some(Placement::Leading) => {
                newest.is_some_and(|newest| newest.item == edit.item)
            }
            Change::Notice { .. } => true,
            Change::Remark { .. } => false,
        };
        let saved_tokens = if applies { text.saved_by(&edit.change, placement) } else { 0 };
        let (policy, action) = (edit.policy, edit.change.word().into_owned());
        let is_notice = matches!(edit.change, Change::Notice { .. });
        acts.push(Act { policy, action, why: why(edit, applies), saved_tokens, applies, is_notice });
    }
    acts
}

/// The act that dropped the message with its turn.
pub(super) fn dropped(plan: &Plan, message: usize, tokens: u64) -> Vec<Act> {
    let by = plan.dropped.iter().find(|dropped| dropped.messages.contains(&message));
    let act = by.map(|Dropped { policy, messages, decided }| Act {
        policy,
        action: "dropped".to_owned(),
        why: format!(
            "old turns are dropped, as decided at message {decided}: messages {} to {} are not sent",
            messages.start,
            messages.end.saturating_sub(1)
        ),
        saved_tokens: tokens as i64,
        applies: true,
        is_notice: false,
    });
    act.into_iter().collect()
}

impl Text<'_> {
    /// Estimated tokens that the change saves; less than 0 where it adds some.
    fn saved_by(&self, change: &Change, placement: Option<Placement>) -> i64 {
        let original = |index: usize| {
            let text = self.view.texts().nth(index);
            text.map_or(Estimate::ZERO, |text| estimate_text(&text))
        };
        let (before, after) = match change {
            Change::Clear { text, by, .. }
            | Change::Hide { text, by, .. }
            | Change::BlockText { text, by, .. }
            | Change::Point { text, by, .. }
            | Change::Shorten { text, by, .. }
            | Change::Redact { text, by, .. } => (original(*text), estimate_text(by)),
            Change::RedactCall { .. } | Change::RedactValue { .. } => return 0,
            Change::Surround { frame, .. } => {
                (Estimate::ZERO, estimate_text(&frame.before) + estimate_text(&frame.after))
            }
            Change::Notice { text, .. } if placement == Some(Placement::System) => {
                (Estimate::ZERO, estimate_text(text) + MESSAGE_OVERHEAD)
            }
            Change::Notice { text, .. } => (Estimate::ZERO, estimate_text(text)),
            Change::Clean { .. } => return change.saved_tokens() as i64,
            Change::Remark { .. } => return 0,
        };
        let tokens = |estimate: Estimate| estimate.scaled(self.factor).tokens() as i64;
        tokens(before) - tokens(after)
    }
}

/// Why the model is shown something else, in a few words.
fn why(edit: &Edit, applies: bool) -> String {
    let gone = {
        let gone = edit.change.gone_chars();
        format!("{} {} not sent", counted(gone, "character"), if is_one(gone) { "is" } else { "are" })
    };
    let why = match &edit.change {
        Change::Clear { .. } => {
            format!("an old text is cleared, as decided at message {}: {gone}", edit.decided)
        }
        Change::Hide { .. } => format!("it was shown once: {gone}"),
        Change::BlockText { .. } => format!("the model must not see it: {gone}"),
        Change::Point { original, .. } => {
            format!("equal to message {}, which is still sent: {gone}", original.index)
        }
        Change::Shorten { .. } => format!("too long: {gone}"),
        Change::Redact { ranges, .. } | Change::RedactValue { ranges, .. } => {
            let are = if is_one(ranges.len()) { "is" } else { "are" };
            format!("{} {are} hidden from the model", counted(ranges.len(), "value"))
        }
        Change::RedactCall { .. } => "values in a call's arguments are hidden from the model".to_owned(),
        Change::Clean { .. } => format!("invisible characters are removed: {gone}"),
        Change::Surround { .. } => "a line of toolrein is added before and after it".to_owned(),
        Change::Notice { .. } => "a text of toolrein follows".to_owned(),
        Change::Remark { .. } => return "only counted and logged".to_owned(),
    };
    if applies { why } else { format!("{why} (overridden by another change)") }
}
