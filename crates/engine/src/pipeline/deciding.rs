//! When each call of a choice is decided on, and whether a client may read another call than the one that was judged. The
//! judge decides which calls are allowed.

use crate::judging::Judging;
use dialects::accepted::AcceptedForm;
use dialects::codec::CallPiece;
use dialects::reply_choice::{ReplyCall, ReplyChoice};
use model::assembled::forget_unseen;
use model::plan::approval::{Question, Unasked};
use model::plan::decision::{Decision, KnownPart};

/// What a client may read after a part of a call that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reading {
    /// The calls that were judged.
    AsJudged,
    /// A call that was not judged.
    Unjudged,
    /// A call to which a policy objects.
    Forbidden,
}

/// The decisions on the calls of one choice.
pub(super) struct ChoiceJudge<'a> {
    pub(super) choice: &'a mut ReplyChoice,
    pub(super) judging: &'a mut Judging,
    pub(super) now_ms: u64,
}

impl ChoiceJudge<'_> {
    /// Takes a part of a call, and returns what a client may read then. [`Self::advance`] follows when all parts of a frame
    /// were taken.
    pub(super) fn take_piece(&mut self, piece: &CallPiece) -> Reading {
        let at = piece.call as usize;
        let is_strict = self.judging.is_strict();
        if piece.is_whole {
            if piece.is_ambiguous && is_strict && piece.begins {
                self.choice.write_call(at);
            }
            return if piece.is_ambiguous && !is_strict { Reading::Unjudged } else { Reading::AsJudged };
        }
        let call = &self.choice.calls()[at];
        let is_named_alone = call.has_whole_name && !call.is_complete;
        if piece.begins && is_named_alone && self.choice.first_undecided() == at {
            self.block_by_name(at, false);
        }
        if self.choice.decision(at).is_none() && self.choice.is_asking() {
            // The call came after the finish, and the person was asked only about the calls before it.
            self.choice.decide(at, Decision::Drop);
        }
        if self.choice.decision(at).is_some() {
            if piece.names {
                // What was a placeholder, which no client runs, is a call now.
                self.choice.recount();
            }
            self.reading_after(piece)
        } else if piece.is_ambiguous && !is_strict {
            Reading::Unjudged
        } else {
            if piece.is_ambiguous {
                self.choice.write_call(at);
            }
            self.choice.call_mut(at).name_passes &= !piece.names;
            Reading::AsJudged
        }
    }

    /// What a client may read after this was added to a call that is decided on.
    fn reading_after(&mut self, piece: &CallPiece) -> Reading {
        let at = piece.call as usize;
        if !self.is_seen(at) {
            return Reading::AsJudged;
        }
        let (call, index) = (&self.choice.calls()[at], self.choice.index);
        let goes_on = piece.argues && call.with_arguments && call.replaced_arguments().is_none();
        let objects = piece.respells
            && self.judging.objects_to_new_name(index, piece.names, &call.assembled, self.now_ms);
        if objects || (goes_on && piece.is_late) {
            Reading::Forbidden
        } else if goes_on || piece.is_ambiguous {
            Reading::Unjudged
        } else {
            Reading::AsJudged
        }
    }

    /// Whether the client sees the call `at`, which is decided on.
    fn is_seen(&self, at: usize) -> bool {
        !self.judging.observes() && self.choice.calls()[at].is_released()
    }

    fn undecided(&self) -> impl Iterator<Item = usize> + use<> {
        let open: Vec<usize> = (self.choice.first_undecided()..self.choice.calls().len())
            .filter(|at| self.choice.decision(*at).is_none())
            .collect();
        open.into_iter()
    }

    /// Blocks the call `at` if its name is enough for that.
    fn block_by_name(&mut self, at: usize, is_followed: bool) {
        let ReplyCall { assembled: call, name_passes, has_whole_name, .. } = &self.choice.calls()[at];
        if *name_passes || call.name.is_empty() {
            return;
        }
        let is_known = *has_whole_name || is_followed || !call.is_blank();
        if !is_known && !self.judging.is_complete_name(call) {
            return;
        }
        match self.judging.block_by_name(self.choice.index, call, self.now_ms) {
            Some(decision) => self.choice.decide(at, decision),
            None => self.choice.call_mut(at).name_passes = true,
        }
    }

    /// Decides on calls in the order in which they began, as far as possible now, so that a stream is judged as a whole reply
    /// is: the turn of a call comes when each call before it is decided on or waits for a person. Its name decides as soon as
    /// it is complete, if it can; else the call is decided on when it is whole and another one follows.
    pub(super) fn advance(&mut self) {
        for at in self.choice.first_undecided()..self.choice.calls().len() {
            let is_followed = at + 1 < self.choice.calls().len();
            if self.choice.decision(at).is_none() && !self.choice.calls()[at].is_complete {
                self.block_by_name(at, is_followed);
            }
            if self.choice.decision(at).is_some() {
                continue;
            }
            let call = &self.choice.calls()[at];
            let is_placeholder = call.is_placeholder();
            if call.is_complete && is_placeholder && !call.differs {
                // What comes later with a name is another call than this one.
                self.choice.call_mut(at).with_arguments = true;
                self.choice.decide(at, Decision::Release);
                continue;
            }
            // Of calls whose end is not marked, the next one tells it.
            let is_whole = is_followed && call.is_open.is_none() && call.assembled.is_whole();
            if call.is_complete || (is_whole && !is_placeholder) {
                self.decide(at, KnownPart::Whole);
            } else if call.name_passes
                && !call.is_written
                && self.judging.needs_name_alone(self.choice.index, &call.assembled, self.now_ms)
            {
                self.decide(at, KnownPart::Name);
            } else {
                return;
            }
        }
    }

    /// This reply has ended: decides on every remaining call.
    pub(super) fn finish_calls(&mut self) {
        let open = self.undecided();
        for at in open {
            let call = &self.choice.calls()[at];
            if call.has_whole_name && !call.is_complete {
                self.block_by_name(at, true);
            }
            let call = &self.choice.calls()[at];
            if call.decision.is_none() && !call.is_placeholder() {
                let is_cut = self.is_cut_within(at) || call.is_cut_off;
                self.decide(at, if is_cut { KnownPart::Cut } else { KnownPart::Whole });
            }
        }
        self.settle_placeholders();
        if let Some(last) = self.choice.calls().len().checked_sub(1)
            && self.choice.decision(last).is_some_and(Decision::is_hidden)
            && self.is_cut_within(last)
        {
            // No person is asked about an incomplete call, and a re-ask would be cut again.
            self.choice.decide(last, Decision::Drop);
        }
        if self.choice.question.is_none() {
            self.choice.question = self.question();
            if self.choice.asks_approval() {
                self.choice.hide_new_texts();
            }
        }
        self.accept_forms();
    }

    /// The question to a person in which the choice ends, or why nobody can be asked.
    fn question(&self) -> Option<Result<Question, Unasked>> {
        let calls = self.choice.calls().iter().filter(|call| !call.is_placeholder());
        let decisions: Vec<_> = calls.clone().map(|call| call.decision.clone()).collect();
        let streamed = self.choice.is_streamed();
        Question::of(&decisions, || {
            let calls: Vec<_> = calls.map(|call| call.assembled.clone()).collect();
            let before = if streamed { self.choice.shown_text() } else { String::new() };
            let question = self.judging.question(&calls, &before)?;
            // Programs show a text by its pieces, or as it is when it is complete: the question that fewer words answer.
            let pieces = self.choice.pieces();
            let by_pieces =
                if pieces.is_empty() { None } else { Some(self.judging.question(&calls, pieces)?) };
            Ok(by_pieces.filter(|by| by.words.len() < question.words.len()).unwrap_or(question))
        })
    }

    /// Chooses the names and the ids under which calls go into the history that the client does not see, or may not see.
    fn accept_forms(&mut self) {
        if self.judging.observes() {
            return;
        }
        for at in 0..self.choice.calls().len() {
            if self.choice.calls()[at].is_released() {
                continue;
            }
            let calls = self.choice.calls().iter().map(|call| (&call.assembled, call.is_released()));
            let is_declared = self.judging.declares(&self.choice.calls()[at].assembled.name());
            let calls: Vec<_> = calls.collect();
            let form = AcceptedForm::new(&calls, at, is_declared, self.judging.known_ids());
            self.choice.call_mut(at).accepted = form;
        }
    }

    /// What never became a call goes out as it came, but not where the calls beside it are hidden: a client would be left
    /// with it alone.
    fn settle_placeholders(&mut self) {
        for at in self.undecided() {
            let is_left_alone = self.choice.has_blocked();
            // What comes later with a name is another call than this one.
            self.choice.call_mut(at).with_arguments = true;
            self.choice.decide(at, if is_left_alone { Decision::Drop } else { Decision::Release });
        }
    }

    /// Whether the reply was cut in the middle of the call `at`.
    fn is_cut_within(&self, at: usize) -> bool {
        self.choice.is_cut && at + 1 == self.choice.calls().len() && self.choice.calls()[at].may_be_cut()
    }

    /// Blocks undecided calls whose names are enough for that.
    pub(super) fn block_rest_by_name(&mut self) {
        for at in self.undecided() {
            self.block_by_name(at, true);
        }
    }

    /// Lets every undecided call through.
    pub(super) fn release_rest(&mut self) {
        for at in self.undecided() {
            if !self.choice.calls()[at].is_placeholder() {
                let decision =
                    self.judging.release_unjudged(self.choice.index, &self.choice.calls()[at].assembled);
                self.choice.decide(at, decision);
            }
        }
        self.settle_placeholders();
    }

    fn decide(&mut self, at: usize, known: KnownPart) {
        if !self.choice.calls()[at].assembled.before.is_empty() {
            let calls: Vec<_> =
                self.choice.calls()[..at].iter().map(|call| (&call.assembled, call.is_released())).collect();
            if let Some(joined) = forget_unseen(&calls, &self.choice.calls()[at].assembled) {
                self.choice.change_call(at, |call| (call.before, call.argued_before) = joined);
            }
        }
        let call = &self.choice.calls()[at].assembled;
        let decision = self.judging.decide(self.choice.index, call, known, self.now_ms);
        self.choice.call_mut(at).with_arguments = known != KnownPart::Name;
        self.choice.decide(at, decision);
    }
}

/// Whether part of a call of the choice may still be missing.
pub(super) fn has_open_call(choice: &ReplyChoice) -> bool {
    let mut open = choice.calls().iter().filter(|call| call.decision.is_none());
    open.any(|call| !call.assembled.is_whole() && !call.assembled.is_blank())
}

/// Whether a call is hidden for which no result can be written.
pub(super) fn has_unanswerable_call(choice: &ReplyChoice) -> bool {
    let is_hidden = |call: &ReplyCall| call.decision.as_ref().is_some_and(Decision::is_hidden);
    choice.calls().iter().any(|call| call.is_unanswerable && is_hidden(call))
}
