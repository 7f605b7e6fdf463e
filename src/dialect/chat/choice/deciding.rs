//! Call decisions of a choice: when each streamed call is decided on, and whether a client may read another call than
//! the one that was judged. The judge decides which calls are allowed.

use super::{ChoiceState, is_released};
use crate::dialect::accepted::AcceptedForm;
use crate::dialect::chat::assemble::Added;
use crate::dialect::judge::CallJudge;
use model::assembled::Assembled;
use model::call::ToolCall;
use model::plan::approval::Question;
use model::plan::decision::{Decision, Known};
use wire::json::{decode, unescape};

/// The finish reasons of replies that the model has finished, without their separators. By any other (`length`, `sensitive`,
/// `network_error`, `abort`) it was cut; there are too many for a list, and new ones come.
const FINISHED_REASONS: [&str; 13] = [
    "",
    "stop",
    "stopsequence",
    "toolcalls",
    "toolcall",
    "tooluse",
    "functioncall",
    "endturn",
    "eos",
    "eostoken",
    "complete",
    "completed",
    "malformedfunctioncall",
];

/// The effect of a delta of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedCall {
    /// The call that it belongs to.
    pub call: usize,
    /// It is the call's first delta with arguments.
    pub carries: bool,
    /// It is the call's first delta.
    pub begins: bool,
    /// With it, the client may read a call that was not judged.
    pub escapes: bool,
}

/// How a call was decided on.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// By its arguments too.
    pub(super) with_arguments: bool,
    /// No policy objects to its name.
    pub(super) name_passes: bool,
    /// The index that the client sees, where calls before it are not released.
    pub(super) shifted: Option<u64>,
    /// The name and the id of a call that the client does not see, for the history.
    pub(super) accepted: AcceptedForm,
}

/// A call that a stream contains in both forms, as `tool_calls` and as `function_call`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeats {
    call: usize,
    /// How many of its deltas were repeated.
    deltas: usize,
}

/// The calls by decision.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) released: usize,
    pub(super) hidden: usize,
    pub(super) waiting: usize,
    /// Calls that are not released unchanged.
    pub(super) edited: usize,
    /// Released calls that the client gets under other indexes than the upstream's.
    pub(super) shifted: usize,
}

impl AddedCall {
    /// A whole call from a second message or delta; `begins`: it is not one of the calls that count.
    pub fn beside((call, begins): (usize, bool), escapes: bool) -> Self {
        Self { call, carries: true, begins, escapes }
    }
}

impl ChoiceState {
    /// Adds a delta of a call. Calls are decided on in the order in which they began, so that a stream is judged as a whole
    /// reply is: the turn of a call comes when each call before it is decided on or waits for a person. Its name decides
    /// as soon as it is complete, if it can; else the call is decided on when it is whole and another one follows.
    pub fn add_call(
        &mut self,
        delta: &ToolCall,
        text: &[u8],
        judging: &mut dyn CallJudge,
        now_ms: u64,
    ) -> AddedCall {
        let added = self.assembler.add(delta, text);
        let at = added.call;
        let carries = self.assembler.carries(at, delta);
        if added.begins {
            self.begin_call();
        }
        if self.decisions[at].is_none() && self.is_asking() {
            // The call came after the finish, and the person was asked only about the calls before it.
            self.set(at, Decision::Drop);
        }
        let is_ambiguous = delta.ambiguous || added.ambiguous;
        let escapes = if self.decisions[at].is_some() {
            self.escapes(&added, judging, now_ms) || (is_ambiguous && self.is_seen(at, judging))
        } else if is_ambiguous && !judging.is_strict() {
            true
        } else {
            if is_ambiguous && !self.is_written(at) {
                self.written.push(at);
            }
            self.marks[at].name_passes &= !added.names;
            false
        };
        self.advance(judging, now_ms);
        AddedCall { call: at, carries, begins: added.begins, escapes }
    }

    /// The call of a whole reply that a `function_call` repeats. llama-cpp-python writes both forms, and puts a colon
    /// after the name of one. `beside` are the calls of the same message.
    pub fn repeated(&self, call: &ToolCall, beside: &[(usize, &ToolCall)], text: &[u8]) -> Option<usize> {
        let is_same = |(_, other): &&(usize, &ToolCall)| !other.legacy && says_the_same(call, other, text);
        let found = beside.iter().find(is_same).filter(|_| call.legacy && !call.ambiguous);
        found.map(|(at, _)| *at)
    }

    /// As [`Self::repeated`], for a stream: a call whose every delta so far came with a `function_call` that repeats
    /// it. Otherwise the `function_call` is a call of its own, because a client that reads only this form would join
    /// other pieces than those that were judged.
    pub fn repeated_delta(
        &mut self,
        call: &ToolCall,
        beside: &[(usize, &ToolCall)],
        text: &[u8],
    ) -> Option<usize> {
        let at = self.repeated(call, beside, text)?;
        let calls = self.assembler.calls();
        let has_form_of_its_own = calls.iter().any(|call| call.legacy);
        let before = match self.repeats {
            Some(repeats) if repeats.call == at => repeats.deltas,
            None => 0,
            Some(_) => return None,
        };
        let deltas = before + 1;
        if has_form_of_its_own || calls[at].deltas() != deltas {
            return None;
        }
        self.repeats = Some(Repeats { call: at, deltas });
        Some(at)
    }

    /// Whether the `function_call` that repeated a call no longer does: a client that reads only this form has another
    /// call now.
    pub fn ceases_to_repeat(&self) -> bool {
        let calls = self.assembler.calls();
        self.repeats.is_some_and(|repeats| {
            calls[repeats.call].deltas() != repeats.deltas || calls.iter().any(|call| call.legacy)
        })
    }

    /// Adds a call of a whole reply; `strict`: one in which two parsers see different calls goes out as it was judged.
    pub fn add_whole_call(&mut self, call: &ToolCall, text: &[u8], strict: bool) -> usize {
        let at = self.assembler.begin_whole(call, text);
        self.begin_call();
        self.written.extend((strict && call.ambiguous).then_some(at));
        at
    }

    /// Adds a whole call from a second message or delta: mostly it repeats a known one. Returns which call it is, and
    /// whether it is new.
    pub fn add_call_beside(&mut self, call: &ToolCall, text: &[u8], strict: bool) -> (usize, bool) {
        let (name, arguments) = (call.name.map(|name| decode(name, text)), call.arguments.text(text));
        let is_same = |known: &Assembled| {
            name.as_deref() == Some(known.name().as_str()) && known.arguments() == arguments
        };
        // A copy in which another parser may see another call does not count as a copy.
        let known = self.assembler.calls().iter().position(is_same).filter(|_| !call.ambiguous);
        known.map_or_else(|| (self.add_whole_call(call, text, strict), true), |known| (known, false))
    }

    fn begin_call(&mut self) {
        self.decisions.push(None);
        self.marks.push(Mark::default());
    }

    /// Whether a client may run another call than was judged, after this was added to a call that is decided on.
    fn escapes(&self, added: &Added, judging: &mut dyn CallJudge, now_ms: u64) -> bool {
        let at = added.call;
        if !self.is_seen(at, judging) {
            return false;
        }
        let goes_on = added.argues && self.marks[at].with_arguments && self.rewritten(at).is_none();
        goes_on
            || (added.respells
                && judging.objects_to_new_name(self.index, added.names, &self.assembler.calls()[at], now_ms))
    }

    /// Whether the client sees the call `at`, which is decided on.
    fn is_seen(&self, at: usize, judging: &dyn CallJudge) -> bool {
        !judging.observes() && self.decision(at).is_some_and(Decision::is_released)
    }

    /// Blocks the call `at` if its name is enough for that.
    fn block_by_name(&mut self, at: usize, is_followed: bool, judging: &mut dyn CallJudge, now_ms: u64) {
        let call = &self.assembler.calls()[at];
        if self.marks[at].name_passes || call.name.is_empty() {
            return;
        }
        if !is_followed && call.is_blank() && !judging.is_complete_name(call) {
            return;
        }
        match judging.block_by_name(self.index, call, now_ms) {
            Some(decision) => self.set(at, decision),
            None => self.marks[at].name_passes = true,
        }
    }

    /// Decides on calls in their order, as far as possible now.
    fn advance(&mut self, judging: &mut dyn CallJudge, now_ms: u64) {
        while self.undecided < self.decisions.len() {
            let at = self.undecided;
            let is_followed = at + 1 < self.decisions.len();
            if self.decisions[at].is_none() {
                self.block_by_name(at, is_followed, judging, now_ms);
            }
            if self.decisions[at].is_none() {
                let call = &self.assembler.calls()[at];
                if is_followed && call.is_whole() && !call.is_placeholder() {
                    self.decide(at, Known::Whole, judging, now_ms);
                } else if self.marks[at].name_passes
                    && !self.written.contains(&at)
                    && judging.needs_name_alone(self.index, call, now_ms)
                {
                    self.decide(at, Known::Name, judging, now_ms);
                } else {
                    return;
                }
            }
            self.undecided += 1;
        }
    }

    /// Notes the finish reason.
    pub fn ends_by(&mut self, reason: &str) {
        let letters = reason.chars().filter(char::is_ascii_alphabetic);
        let reason: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
        self.cut |= !FINISHED_REASONS.contains(&&*reason);
    }

    /// This reply has ended: decides on every remaining call.
    pub fn finish_calls(&mut self, judging: &mut dyn CallJudge, now_ms: u64) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() && !self.assembler.calls()[at].is_placeholder() {
                let known = if self.is_cut_within(at) { Known::Cut } else { Known::Whole };
                self.decide(at, known, judging, now_ms);
            }
        }
        self.settle_placeholders();
        self.undecided = self.decisions.len();
        if let Some(last) = self.undecided.checked_sub(1)
            && self.decisions[last].as_ref().is_some_and(Decision::is_hidden)
            && self.is_cut_within(last)
        {
            // No person is asked about an incomplete call, and a re-ask would be cut again.
            self.set(last, Decision::Drop);
        }
        if self.question.is_none() {
            let before = if self.streamed { unescape(&self.joined_text()) } else { String::new() };
            let calls = self.assembler.calls();
            self.question = Question::of(&self.decisions, || judging.question(calls, &before));
        }
        self.accept_forms(judging);
    }

    /// Chooses the names and the ids under which calls go into the history that the client does not see, or may not see.
    fn accept_forms(&mut self, judging: &dyn CallJudge) {
        let decided = self.assembler.calls().iter().zip(&self.decisions);
        let calls: Vec<_> = decided.map(|(call, decision)| (call, is_released(decision))).collect();
        for at in 0..calls.len() {
            if !judging.observes() && !calls[at].1 {
                self.marks[at].accepted = AcceptedForm::new(&calls, at, judging);
            }
        }
    }

    /// What never became a call goes out as it came, but not where the calls beside it are hidden: a client would be left
    /// with it alone.
    fn settle_placeholders(&mut self) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() {
                let is_left_alone = self.counts.hidden > 0;
                self.set(at, if is_left_alone { Decision::Drop } else { Decision::Release });
            }
        }
    }

    /// Whether part of a call may still be missing.
    pub fn has_open_call(&self) -> bool {
        let mut open =
            self.assembler.calls().iter().zip(&self.decisions).filter(|(_, decision)| decision.is_none());
        open.any(|(call, _)| !call.is_whole() && !call.is_blank())
    }

    /// Whether the reply was cut in the middle of the call `at`.
    fn is_cut_within(&self, at: usize) -> bool {
        let call = &self.assembler.calls()[at];
        self.cut && at + 1 == self.decisions.len() && !call.custom && !call.is_whole()
    }

    /// Blocks undecided calls whose names are enough for that.
    pub fn block_rest_by_name(&mut self, judging: &mut dyn CallJudge, now_ms: u64) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() {
                self.block_by_name(at, true, judging, now_ms);
            }
        }
    }

    /// Lets every undecided call through.
    pub fn release_rest(&mut self, judging: &mut dyn CallJudge) {
        for at in self.undecided..self.decisions.len() {
            if self.decisions[at].is_none() && !self.assembler.calls()[at].is_placeholder() {
                let decision = judging.release_unjudged(self.index, &self.assembler.calls()[at]);
                self.set(at, decision);
            }
        }
        self.settle_placeholders();
    }

    fn decide(&mut self, at: usize, known: Known, judging: &mut dyn CallJudge, now_ms: u64) {
        self.assembler.forget_unseen(at, |earlier| is_released(&self.decisions[earlier]));
        let decision = judging.decide(self.index, &self.assembler.calls()[at], known, now_ms);
        self.marks[at].with_arguments = known != Known::Name;
        self.set(at, decision);
    }

    /// Notes the decision on the call `at`.
    pub(super) fn set(&mut self, at: usize, decision: Decision) {
        if let Decision::Rewrite { arguments }
        | Decision::Ask { arguments: Some(arguments), .. }
        | Decision::Hold { arguments: Some(arguments), .. } = &decision
        {
            self.assembler.rewrite(at, arguments);
        }
        self.decisions[at] = Some(decision);
        self.recount();
    }

    /// Counts the decisions again, and assigns indexes. From the first call on that the client does not see, or that has the
    /// index of one before it, each call gets the index after the one before it: dense where the upstream's are dense,
    /// and never one in use.
    pub(super) fn recount(&mut self) {
        self.counts = Counts::default();
        let (mut next, mut is_shifted) = (0, false);
        let (calls, streamed) = (self.assembler.calls(), self.streamed);
        for (at, call) in calls.iter().enumerate() {
            self.marks[at].shifted = None;
            let Some(decision) = &self.decisions[at] else { continue };
            self.counts.hidden += usize::from(decision.is_hidden());
            self.counts.waiting += usize::from(matches!(decision, Decision::Hold { .. }));
            self.counts.edited += usize::from(*decision != Decision::Release);
            if !decision.is_released() {
                is_shifted = true;
                continue;
            }
            self.counts.released += usize::from(!call.is_placeholder());
            let is_seen = |earlier: usize| is_released(&self.decisions[earlier]);
            let is_shared = |earlier: usize| is_seen(earlier) && calls[earlier].shares_index(call);
            is_shifted = is_shifted || (streamed && (0..at).any(is_shared));
            if is_shifted {
                self.marks[at].shifted = Some(next);
                self.counts.shifted += 1;
                next += 1;
            } else {
                next = next.max(call.index().unwrap_or(next) + 1);
            }
        }
    }
}

/// Whether two forms of a call, or of a piece of one, are equal.
fn says_the_same(call: &ToolCall, other: &ToolCall, text: &[u8]) -> bool {
    let name = |call: &ToolCall| call.name.map(|name| decode(name, text)).unwrap_or_default();
    let (one, two) = (name(call), name(other));
    let is_same_name =
        one == two || one.strip_suffix(':') == Some(&*two) || two.strip_suffix(':') == Some(&*one);
    is_same_name && call.arguments.text(text) == other.arguments.text(text)
}
