//! Calls that the model makes again although they were just not run: it has read why, so the next request is the one for
//! its final answer. Compares by tool and canonical arguments; sends nothing.

use crate::judging::Judging;
use crate::pipeline::{ClientChoice, next_of};
use model::Transcript;
use model::identity::Hash;
use model::plan::decision::{Decision, Next};

/// A call as it is recognised: the tool that it means, and its canonical arguments.
type CallName = (String, Hash);

/// The calls whose results of toolrein's the model knows: blocked ones, and those beside them that wait for a person's
/// approval or were answered.
#[derive(Debug, Default)]
pub(super) struct BlockedCalls {
    /// In this client request, with the number of the choice.
    here: Vec<(u32, CallName)>,
    /// Directly before the newest reply of the history.
    before: Vec<CallName>,
}

impl BlockedCalls {
    /// Those of the hidden exchange before the newest reply of the conversation, if the turn goes on after that reply.
    /// `is_restored`: hidden exchanges are put back.
    pub(super) fn new(transcript: &Transcript, is_restored: bool, judging: &Judging) -> Self {
        let last = transcript.last_assistant().filter(|_| is_restored);
        let last = last.filter(|last| !transcript.message(*last).calls.is_empty());
        let hidden = last.into_iter().flat_map(|last| transcript.hidden_before(last));
        let calls = hidden.flat_map(|view| view.message.calls.iter().map(move |call| (call, view.body)));
        let before = calls.map(|(call, body)| {
            judging.call_name(&call.full_name(body).unwrap_or_default(), &call.arguments.text(body))
        });
        Self { here: Vec::new(), before: before.collect() }
    }

    /// The next step for `choice`, whose calls were all hidden from the client.
    pub(super) fn next_step(&mut self, shown: &[ClientChoice<'_>], choice: u32, judging: &Judging) -> Next {
        let next = next_of(shown, choice);
        let of_choice = shown.iter().find(|shown| shown.index() == choice);
        let repeats = of_choice.is_some_and(|choice| self.are_repeated_by(choice, judging));
        if repeats && next == Next::OtherCalls { Next::FinalAnswer } else { next }
    }

    /// Whether every call of `choice` was hidden, not all were answered, and each repeats a hidden call; they count as known
    /// from now on. A call of the history may be made again where its result says so.
    fn are_repeated_by(&mut self, choice: &ClientChoice<'_>, judging: &Judging) -> bool {
        let (hidden, index) = (choice.hidden_calls(), choice.index());
        let is_refused = hidden.iter().any(|(_, decision)| !matches!(decision, Decision::Answer { .. }));
        let named = hidden.iter().map(|(call, decision)| {
            (judging.call_name(&call.name(), &call.arguments()), may_be_made_again(decision))
        });
        let named: Vec<(CallName, bool)> = named.collect();
        let is_known = |(name, again): &(CallName, bool)| {
            self.here.iter().any(|(of, known)| *of == index && known == name)
                || (!again && self.before.contains(name))
        };
        let repeats = is_refused && named.len() == choice.calls() && named.iter().all(is_known);
        self.here.extend(named.into_iter().map(|(name, _)| (index, name)));
        repeats
    }
}

/// Whether the model may make a hidden call again in a later reply: one that was put off because of another call of its
/// reply, or whose reason expires.
fn may_be_made_again(decision: &Decision) -> bool {
    decision.block_reason().is_none_or(|reason| reason.retryable)
}
