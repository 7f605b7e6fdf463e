//! Where the policies stood behind the beginning of a conversation: what they decide of it depends on nothing behind it,
//! so that the next request, which begins with the same bytes, is read from there on. Responsible for what must be the
//! same beside the bytes; what a policy's own state depends on is for the policy to say.

use super::{Fold, Folds, PolicySet};
use crate::policy::plan::Plan;
use crate::transcript::Transcript;
use crate::transcript::beginnings::Beginnings;
use crate::transcript::identity::Hash;
use crate::wire::begun::Beginning;
use crate::wire::request::Choice;
use bytes::Bytes;
use std::sync::Arc;

/// The policies behind the last message of a beginning.
struct Stand {
    /// The set that it is of.
    set: Arc<()>,
    asked: Asked,
    /// When its calls were handed out.
    released_ms: Vec<Times>,
    hidden_rounds: Vec<(usize, Bytes)>,
    /// The plan before the first event.
    opened: Plan,
    plan: Plan,
    folds: Folds,
}

/// What a request says beside its messages, and what is known of it, as far as policies that go on depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    tools: Hash,
    takes_tools: bool,
    forced: bool,
    token_factor: u32,
    context_window: Option<u32>,
    overflowed: bool,
    overflows: Vec<usize>,
}

/// What a state takes beside what is counted, about, and for each message, call, part and edit.
const STAND_BYTES: usize = 2048;
const BYTES_A_MESSAGE: usize = 192;
/// In how many places the name of a tool is kept, about.
const COPIES: usize = 4;

/// The stands that one request may go on from, and where it may leave one.
pub(super) struct Stands<'a> {
    transcript: &'a Transcript<'a>,
    set: &'a PolicySet,
    /// `None` where the policies, or the request, allow of none.
    known: Option<Beginnings<'a>>,
}

/// A stand that is to be kept as soon as the folds are there.
pub(super) struct Keeping {
    at: Beginning,
    asked: Asked,
    opened: Plan,
}

impl Keeping {
    /// Whether the folds are there before the events of `message`.
    pub(super) fn is_at(&self, message: usize) -> bool {
        message >= self.at.messages
    }
}

impl<'a> Stands<'a> {
    pub(super) fn of(set: &'a PolicySet, transcript: &'a Transcript<'a>) -> Self {
        let may = set.resumes && transcript.request.beginnings[0].is_some();
        let known = may.then(|| transcript.beginnings("policies", transcript.calls.root));
        Self { transcript, set, known }
    }

    /// Brings the folds and the plan from before the first event to where they begin to read, which is the message told,
    /// with what is to be kept on the way. `open`: both as they are before the first event.
    pub(super) fn begin(
        &self,
        (folds, plan): (&mut Folds, &mut Plan),
        open: impl Fn() -> (Folds, Plan),
    ) -> (usize, Option<Box<Keeping>>) {
        let Some(known) = &self.known else { return (0, None) };
        let asked = Asked::of(self.transcript);
        let found = known.find::<Stand>();
        let found = found.filter(|(at, stand)| self.agrees(stand, *at, &asked) && stand.opened == *plan);
        let keeping = |found, opened| known.news(found).map(|at| Box::new(Keeping { at, asked, opened }));
        let Some((at, stand)) = found else { return (0, keeping(None, plan.clone())) };
        let resumed = folds.iter_mut().zip(&stand.folds).all(|(fold, known)| fold.resume(&**known));
        if resumed {
            let opened = std::mem::replace(plan, stand.plan.clone());
            return (at.messages, keeping(Some(at), opened));
        }
        // Some of the states are gone.
        (*folds, *plan) = open();
        (0, keeping(None, plan.clone()))
    }

    /// Keeps what was reached.
    pub(super) fn keep(&self, keeping: Keeping, folds: &[Box<dyn Fold>], plan: &Plan) {
        let Keeping { at, asked, opened } = keeping;
        let stand = Stand {
            set: Arc::clone(&self.set.this),
            asked,
            released_ms: self.released_ms(at).collect(),
            hidden_rounds: self.hidden_rounds(at).to_vec(),
            opened,
            plan: plan.clone(),
            folds: folds.iter().map(|fold| fold.rest()).collect(),
        };
        if let Some(known) = &self.known {
            known.keep(at, stand, self.weight(at, plan));
        }
    }

    /// What a stand at `at` takes, about, with the texts that `plan` alone may still hold.
    fn weight(&self, at: Beginning, plan: &Plan) -> usize {
        let messages = &self.transcript.request.messages[..at.messages];
        let pieces: usize = messages.iter().map(|message| 1 + message.pieces()).sum();
        let names = messages.iter().flat_map(|message| &message.calls).filter_map(|call| call.name);
        let names: usize = names.map(|name| name.span.len()).sum();
        let hidden: usize = plan.hidden.iter().map(|(_, name)| name.len() + BYTES_A_MESSAGE).sum();
        let texts: usize = plan.edits.iter().map(|edit| edit.change.text().len()).sum();
        let rounds: usize = self.hidden_rounds(at).iter().map(|(_, round)| round.len()).sum();
        let each = (pieces + plan.edits.len()) * BYTES_A_MESSAGE;
        STAND_BYTES + each + COPIES * (names + hidden) + texts + rounds
    }

    /// Whether a request that asks for `asked` would come to `stand` again at `at`.
    fn agrees(&self, stand: &Stand, at: Beginning, asked: &Asked) -> bool {
        Arc::ptr_eq(&stand.set, &self.set.this)
            && stand.asked == *asked
            && self.released_ms(at).eq(stand.released_ms.iter().copied())
            && *self.hidden_rounds(at) == *stand.hidden_rounds
    }

    fn released_ms(&self, at: Beginning) -> impl Iterator<Item = Times> {
        let calls = self.transcript.calls.calls.iter();
        calls
            .take_while(move |call| call.message < at.messages)
            .map(|call| (call.earliest_ms, call.released_ms))
    }

    fn hidden_rounds(&self, at: Beginning) -> &[(usize, Bytes)] {
        let rounds = &self.transcript.hidden_rounds;
        &rounds[..rounds.partition_point(|(message, _)| *message < at.messages)]
    }
}

/// Between which a call was handed out, in ms since the epoch.
type Times = (Option<u64>, Option<u64>);

impl Asked {
    fn of(transcript: &Transcript<'_>) -> Self {
        Self {
            tools: transcript.declared_name(),
            takes_tools: super::facts::takes_tools(transcript),
            forced: transcript.request.choice == Choice::Forced,
            token_factor: transcript.token_factor,
            context_window: transcript.context_window,
            overflowed: transcript.overflowed,
            overflows: transcript.overflows.clone(),
        }
    }
}
