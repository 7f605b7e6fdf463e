//! Snapshots of the fold: the states and the plan of all policies after the messages of a checkpoint. The next request of the
//! conversation, which begins with the same messages, is read from there on. Compares what the states depend on beside the
//! messages; what one policy's state depends on is stated by [`About::resumes`](crate::about::About::resumes).

use super::{Fold, PolicySet};
use crate::RequestView;
use model::calls::Call;
use model::checkpoint::Checkpoint;
use model::identity::Hash;
use model::memo::Derived;
use model::message::{Message, Role};
use model::plan::{Edit, Plan};
use model::{EventPosition, Transcript};
use std::sync::Arc;

/// See the module.
pub(super) struct FoldSnapshot {
    /// The names of the policies. Each set has a list of its own, so that sets differ by its address.
    set: Arc<[&'static str]>,
    request: RequestFacts,
    /// The plan before the first event.
    pub(super) opened: Plan,
    /// How many messages were read, and how many calls and parts they have.
    messages: usize,
    pieces: usize,
    /// The author of the next one.
    next: Option<Role>,
    calls: Vec<CallTimes>,
    /// The folds that read events, in registry order.
    folds: Vec<Box<dyn Fold>>,
    pub(super) plan: Plan,
    pub(super) position: EventPosition,
}

/// What the states depend on of a request beside its items.
#[derive(Clone, PartialEq)]
struct RequestFacts {
    /// See [`Transcript::definitions_digest`].
    definitions: Option<Hash>,
    /// The names of the declared tools, which may have namespaces.
    names: Arc<[String]>,
    takes_tools: bool,
    forced: bool,
    token_factor: u32,
    context_window: Option<u32>,
    tier: Option<Arc<str>>,
}

/// What the state store knows of a call.
#[derive(Clone, Copy, PartialEq)]
struct CallTimes {
    released_ms: Option<u64>,
    earliest_ms: Option<u64>,
    is_approved: bool,
}

/// An estimate of what all states take beside their lists, in bytes, and of what they take for each message, for each of its
/// pieces and for each edit: a key of 24 bytes with a position of 80 in a table that is half empty.
const SNAPSHOT_BYTES: usize = 2048;
const BYTES_OF_ENTRY: usize = 192;
/// An estimate of the number of copies of a tool's name.
const NAME_COPIES: usize = 4;

impl Derived for FoldSnapshot {
    fn weight(&self) -> usize {
        let texts: usize = self.plan.edits.iter().map(|edit: &Edit| edit.change.text().len()).sum();
        let entries = self.messages + self.pieces + self.plan.edits.len();
        let names: usize = self.request.names.iter().map(String::len).sum();
        SNAPSHOT_BYTES + entries * BYTES_OF_ENTRY + NAME_COPIES * names + texts
    }
}

/// The snapshots that one request may use and keep.
pub(super) struct Snapshots<'a> {
    set: &'a PolicySet,
    transcript: &'a Transcript,
    checkpoint: &'a Checkpoint,
    request: RequestFacts,
}

/// A snapshot that is to be taken.
pub(super) struct NextSnapshot<'a> {
    snapshots: Snapshots<'a>,
    key: Hash,
    /// See [`FoldSnapshot::opened`].
    opened: Plan,
    /// The position of the item before whose events it is taken.
    pub(super) end: usize,
}

impl<'a> Snapshots<'a> {
    /// The snapshots of a request; `None` where all its items are read.
    pub(super) fn new(set: &'a PolicySet, request: &RequestView<'a>) -> Option<Self> {
        let transcript = request.transcript;
        let was_too_long = transcript.overflowed || !transcript.overflows.is_empty();
        let is_cut = !transcript.length_cuts.is_empty();
        if !set.resumes || transcript.account.is_some() || was_too_long || is_cut {
            return None;
        }
        let checkpoint = transcript.checkpoint()?;
        let facts = RequestFacts {
            definitions: request.definitions,
            names: Arc::clone(&request.names),
            takes_tools: request.takes_tools,
            forced: request.forced,
            token_factor: transcript.token_factor,
            context_window: transcript.context_window,
            tier: transcript.tier.clone(),
        };
        Some(Self { set, transcript, checkpoint, request: facts })
    }

    /// The longest snapshot that was taken of an equal request, as far as that is known before its policies are opened.
    pub(super) fn find(&self) -> Option<Arc<FoldSnapshot>> {
        self.checkpoint.keys().find_map(|checkpoint| {
            let known = self.transcript.memo.known::<FoldSnapshot>(self.key(checkpoint))?;
            self.fits(&known).then_some(known)
        })
    }

    /// The snapshot to be taken at the request's checkpoint, where its plan is `opened` before the first event and it is read from
    /// `position` on; `None` where there is one.
    pub(super) fn prepare(self, opened: &Plan, position: EventPosition) -> Option<NextSnapshot<'a>> {
        let end = self.checkpoint.notes.len();
        let checkpoint = self.checkpoint.keys().next().filter(|_| position.item() < end)?;
        Some(NextSnapshot { key: self.key(checkpoint), opened: opened.clone(), end, snapshots: self })
    }

    /// The key of the snapshot at the checkpoint with this key. Calls have other keys in another conversation or of another
    /// caller.
    fn key(&self, checkpoint: Hash) -> Hash {
        checkpoint.combined_with(self.transcript.calls.root)
    }

    fn fits(&self, known: &FoldSnapshot) -> bool {
        Arc::ptr_eq(&known.set, &self.set.names)
            && known.request == self.request
            && known.next == self.author_of(known.messages)
            && self.calls_before(known.messages).eq(known.calls.iter().copied())
    }

    fn author_of(&self, index: usize) -> Option<Role> {
        (index < self.transcript.len()).then(|| self.transcript.message(index).role)
    }

    fn calls_before(&self, message: usize) -> impl Iterator<Item = CallTimes> {
        let calls = self.transcript.calls.calls.iter();
        calls.take_while(move |call| call.message < message).map(CallTimes::of)
    }
}

impl CallTimes {
    fn of(call: &Call) -> Self {
        Self { released_ms: call.released_ms, earliest_ms: call.earliest_ms, is_approved: call.approved }
    }
}

impl NextSnapshot<'_> {
    /// Keeps the states of the `folds` that read events, and their plan, at `position`.
    pub(super) fn keep<'f>(
        self,
        folds: impl Iterator<Item = &'f dyn Fold>,
        plan: &Plan,
        position: EventPosition,
    ) {
        let Self { snapshots, key, opened, .. } = self;
        let messages = position.item();
        let read = (0..messages).map(|index| snapshots.transcript.message(index));
        let snapshot = FoldSnapshot {
            set: Arc::clone(&snapshots.set.names),
            opened,
            messages,
            pieces: read.map(Message::pieces).sum(),
            next: snapshots.author_of(messages),
            calls: snapshots.calls_before(messages).collect(),
            folds: folds.map(Fold::fork).collect(),
            plan: plan.clone(),
            position,
            request: snapshots.request,
        };
        snapshots.transcript.memo.remember(key, &Arc::new(snapshot));
    }
}

impl FoldSnapshot {
    /// The folds that read events, in registry order, with copies of their states.
    pub(super) fn folds(&self) -> impl Iterator<Item = Box<dyn Fold>> {
        self.folds.iter().map(|fold| fold.fork())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rule;
    use super::*;
    use crate::FactKeys;
    use crate::about::About;
    use crate::cases::{KeepAll, somebody};
    use model::account::Account;
    use model::fact::{Answers, Batch};
    use model::memo::Memo;
    use model::plan::{Proposed, Usage, Verdict};
    use model::testing::{SampleItem, SampleRequest, answered_calls, assistant, user};
    use model::{Event, EventKind};
    use std::sync::Mutex;

    /// A policy that writes down the items whose first event it is given, with each request anew.
    struct Reader {
        about: About,
        seen: Arc<Mutex<Vec<usize>>>,
    }

    /// How many events it has read.
    struct ReaderFold {
        seen: Arc<Mutex<Vec<usize>>>,
        events: u64,
    }

    impl Rule for Reader {
        fn name(&self) -> &'static str {
            "reader"
        }

        fn about(&self) -> &About {
            &self.about
        }

        fn start(&self) -> Box<dyn Fold> {
            Box::new(ReaderFold { seen: Arc::clone(&self.seen), events: 0 })
        }

        fn ask(&self, _request: &FactKeys<'_>, _batch: &mut Batch) -> Option<Box<dyn Fold>> {
            None
        }
    }

    impl Fold for ReaderFold {
        fn name(&self) -> &'static str {
            "reader"
        }

        fn receive(&mut self, _answers: &Answers) {}

        fn open(&mut self, _request: &RequestView<'_>, _plan: &mut Plan) {}

        fn read(&mut self, event: &Event<'_>, plan: &mut Plan) {
            self.events += 1;
            self.seen.lock().unwrap().push(event.message());
            plan.remark("read");
        }

        fn close(&self, _plan: &mut Plan) {}

        fn judge(&self, _call: &Proposed<'_>) -> Verdict {
            Verdict::Allow
        }

        fn release(&mut self, _call: &Proposed<'_>) {}

        fn usage(&self, _now_ms: u64) -> Vec<Usage> {
            vec![Usage { tool: "*".to_owned(), used: self.events, limit: u64::MAX }]
        }

        fn fork(&self) -> Box<dyn Fold> {
            Box::new(Self { seen: Arc::clone(&self.seen), events: self.events })
        }
    }

    /// A set of one policy, and the items that the policy was given.
    fn set_with(about: About) -> (PolicySet, Arc<Mutex<Vec<usize>>>) {
        let seen = Arc::default();
        (PolicySet::new(vec![Arc::new(Reader { about, seen: Arc::clone(&seen) })]), seen)
    }

    fn resuming() -> (PolicySet, Arc<Mutex<Vec<usize>>>) {
        set_with(About { resumes: true, ..About::default() })
    }

    /// A conversation of four items, and `more`. The first four were read before.
    fn conversation(more: &[SampleItem]) -> SampleRequest {
        let items = [&answered_calls("f", 2)[..4], more].concat();
        SampleRequest::new(&items).declaring("f", "{}").with_checkpoint(4, Hash(40))
    }

    /// The first item that the policy of `set` reads of the conversation, with what `memo` knows of earlier requests.
    /// Whatever is known, the plan and the state are those of a request that is read as a whole.
    fn first_read(
        (set, seen): &(PolicySet, Arc<Mutex<Vec<usize>>>),
        request: &SampleRequest,
        memo: &Arc<KeepAll>,
        learn: impl Fn(&mut Transcript),
    ) -> usize {
        let read = |memo: Arc<dyn Memo>| {
            let mut transcript = request.transcript(&somebody());
            transcript.memo = memo;
            learn(&mut transcript);
            seen.lock().unwrap().clear();
            let (plan, judge) = set.read(&transcript);
            (plan, judge.usage(0), seen.lock().unwrap()[0])
        };
        let (plan, usage, first) = read(Arc::clone(memo) as Arc<dyn Memo>);
        let whole = read(Arc::new(KeepAll::default()));
        assert_eq!((plan, usage), (whole.0, whole.1));
        first
    }

    /// What else is known of a conversation.
    type Change<'a> = &'a dyn Fn(&mut Transcript);

    fn nothing(_transcript: &mut Transcript) {}

    #[test]
    fn a_conversation_that_grows_is_read_on_from_its_last_checkpoint() {
        let (set, memo) = (resuming(), Arc::default());
        assert_eq!(first_read(&set, &conversation(&[user("one")]), &memo, nothing), 0);
        assert_eq!(first_read(&set, &conversation(&[user("two")]), &memo, nothing), 4);
        let longer = conversation(&[user("two"), assistant("three"), user("four")]);
        let longer = longer.with_checkpoint(6, Hash(60));
        assert_eq!(first_read(&set, &longer, &memo, nothing), 4, "from the checkpoint before");
        assert_eq!(first_read(&set, &longer, &memo, nothing), 6);
    }

    #[test]
    fn whatever_else_the_states_depend_on_has_all_items_read() {
        let released = |transcript: &mut Transcript| transcript.calls.calls[0].released_ms = Some(1);
        let approved = |transcript: &mut Transcript| transcript.calls.calls[0].approved = true;
        let changes: [(&str, Change<'_>); 8] = [
            ("when a call was handed out", &released),
            ("a person's approval", &approved),
            ("the window", &|transcript| transcript.context_window = Some(1000)),
            ("the model's factor", &|transcript| transcript.token_factor = 120),
            ("the tier", &|transcript| transcript.tier = Some("gold".into())),
            ("the account", &|transcript| transcript.account = Some(Arc::new(Account::default()))),
            ("an overflow", &|transcript| transcript.overflows = vec![2]),
            ("a refusal", &|transcript| transcript.overflowed = true),
        ];
        let request = conversation(&[user("one")]);
        for (what, change) in changes {
            let (set, memo) = (resuming(), Arc::default());
            assert_eq!(first_read(&set, &request, &memo, nothing), 0);
            assert_eq!(first_read(&set, &request, &memo, change), 0, "{what}");
        }
        let requests = [
            ("the author of the next item", conversation(&[assistant("one")])),
            ("the tools", conversation(&[user("one")]).declaring("g", "{}")),
        ];
        for (what, other) in requests {
            let (set, memo) = (resuming(), Arc::default());
            assert_eq!(first_read(&set, &request, &memo, nothing), 0);
            assert_eq!(first_read(&set, &other, &memo, nothing), 0, "{what}");
        }
    }

    #[test]
    fn a_snapshot_is_of_one_set_and_of_policies_that_resume() {
        let (memo, request) = (Arc::default(), conversation(&[user("one")]));
        assert_eq!(first_read(&resuming(), &request, &memo, nothing), 0);
        assert_eq!(first_read(&resuming(), &request, &memo, nothing), 0, "another set");
        let (set, memo) = (set_with(About::default()), Arc::default());
        assert_eq!(first_read(&set, &request, &memo, nothing), 0);
        assert_eq!(first_read(&set, &request, &memo, nothing), 0, "it does not say that it resumes");
        let ignored = About { ignored_events: !(EventKind::User | EventKind::Result), ..About::default() };
        let set = set_with(About { resumes: true, ..ignored });
        assert_eq!(first_read(&set, &request, &memo, nothing), 0);
        assert_eq!(first_read(&set, &request, &memo, nothing), 4);
    }
}
