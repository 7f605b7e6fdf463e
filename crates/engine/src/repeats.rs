//! Calls that the model makes again although they were just not run: it has read why, so the next request is the one for
//! its final answer. Compares by tool and canonical arguments; sends nothing.

use super::Core;
use super::running::Running;
use crate::judging::Judging;
use crate::pipeline::{ClientChoice, next_of};
use bytes::Bytes;
use model::identity::Hash;
use model::message::Role;
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
    /// Those of the hidden exchange before the newest reply of the request, if the turn goes on after that reply.
    /// `restored`: the exchanges that are put back, with the messages before which they belong.
    pub(super) fn new(core: &Core, restored: &[(usize, Bytes)], judging: &Judging) -> Self {
        let messages = &core.request.messages;
        let last = messages.iter().rposition(|message| message.role == Role::Assistant);
        let goes_on = last.filter(|last| !messages[*last].calls.is_empty());
        let newest = restored.last().filter(|(message, _)| Some(*message) == goes_on);
        let calls = newest.map(|(_, exchange)| core.dialect.hidden_calls(exchange)).unwrap_or_default();
        let before = calls.iter().map(|(name, arguments)| judging.call_name(name, arguments)).collect();
        Self { here: Vec::new(), before }
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

impl Running {
    /// The next step for `choice`, whose calls were all hidden from the client.
    pub(super) fn next_step(&mut self, shown: &[ClientChoice<'_>], choice: u32, judging: &Judging) -> Next {
        let next = next_of(shown, choice);
        let of_choice = shown.iter().find(|shown| shown.index() == choice);
        let repeats = of_choice.is_some_and(|choice| self.blocked.are_repeated_by(choice, judging));
        if repeats && next == Next::OtherCalls { Next::FinalAnswer } else { next }
    }
}
