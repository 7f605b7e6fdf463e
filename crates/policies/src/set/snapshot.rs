//! Snapshots of the fold: the states and the plan of all policies after the messages of a checkpoint. The next request of the
//! conversation, which begins with the same messages, is read from there on. Compares what the states depend on beside the
//! messages; what one policy's state depends on is stated by [`About::resumes`](crate::about::About::resumes).

use super::{Fold, PolicySet};
use crate::RequestView;
use memchr::memchr_iter;
use memchr::memmem::find;
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
    /// See [`Snapshots::weight_of_calls`].
    weight_of_calls: usize,
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
        SNAPSHOT_BYTES + entries * BYTES_OF_ENTRY + NAME_COPIES * names + texts + self.weight_of_calls
    }
}

/// So many of the newest replies with calls may be in a state with the arguments of their calls.
const NEWEST_REPLIES: usize = 8;
/// A state may hold arguments of a call as values in so many forms, if they have at most so many bytes as they are written:
/// 2,000, each as an escape of six.
const FORMS: usize = 6;
const LONGEST_READ: usize = 6 * 2_000;
/// The most that a JSON value takes, and a JSON object in addition, which has room for eleven members.
const BYTES_OF_VALUE: usize = 80;
const BYTES_OF_OBJECT: usize = 560;
/// The most that values take for each byte of a text with escapes: an object of 22 bytes.
const BYTES_OF_ESCAPED: usize = 32;

/// An upper bound of what states hold of the arguments of a call that is `written` so, in bytes.
fn weight_of_arguments(written: &[u8]) -> usize {
    if written.len() > LONGEST_READ {
        return written.len();
    }
    let values = match find(written, b"\\u") {
        Some(_) => written.len() * BYTES_OF_ESCAPED,
        None => {
            let count = |byte| memchr_iter(byte, written).count();
            let objects = count(b'{');
            (objects + count(b'[') + count(b',') + count(b':')) * BYTES_OF_VALUE + objects * BYTES_OF_OBJECT
        }
    };
    FORMS * (written.len() + values)
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

    /// What the states may hold of the calls in the first `messages`, in bytes: the names of their tools, and the arguments of
    /// the newest.
    fn weight_of_calls(&self, messages: usize) -> usize {
        let calls = self.transcript.calls.calls.iter().take_while(|call| call.message < messages);
        let names: usize = calls.flat_map(Call::as_made).map(|call| call.name.len()).sum();
        let replies = (0..messages).rev().map(|index| self.transcript.message(index));
        let newest = replies.filter(|message| !message.calls.is_empty()).take(NEWEST_REPLIES);
        let written =
            newest.flat_map(|message| &message.calls).map(|call| call.span.of(&self.transcript.body));
        NAME_COPIES * names + written.map(weight_of_arguments).sum::<usize>()
    }

    /// Whether the request would come to this snapshot by reading its messages, as far as that is known before its policies are
    /// opened.
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
            weight_of_calls: snapshots.weight_of_calls(messages),
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
    use crate::cases::somebody;
    use model::account::Account;
    use model::fact::{Answers, Batch};
    use model::memo::{DerivedValue, Memo};
    use model::plan::{Proposed, Usage, Verdict};
    use model::testing::{KeepAll, SampleItem, SampleRequest, answered_calls, assistant, call, reply, user};
    use model::{Event, EventKind};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// Adds up what is kept.
    #[derive(Default)]
    struct Weights(AtomicUsize);

    impl Memo for Weights {
        fn find(&self, _key: Hash) -> Option<DerivedValue> {
            None
        }

        fn keep(&self, _key: Hash, _value: DerivedValue, weight: usize) {
            self.0.fetch_add(weight, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_snapshot_weighs_what_states_may_hold_of_its_calls() {
        let weight = |tool: &str, arguments: &str| {
            let items = [user("q"), reply([call("a", tool, arguments)]), user("one")];
            let request = SampleRequest::new(&items).with_checkpoint(2, Hash(20));
            let memo = Arc::new(Weights::default());
            let mut transcript = request.transcript(&somebody());
            transcript.memo = Arc::clone(&memo) as Arc<dyn Memo>;
            resuming().0.read(&transcript);
            memo.0.load(Ordering::Relaxed)
        };
        let plain = weight("f", "{}");
        assert!(plain < 16_000, "{plain}");
        for (tool, arguments, least) in [
            ("f".repeat(10_000), "{}".to_owned(), 40_000),
            ("f".to_owned(), format!("[{}1]", "1,".repeat(900)), 6 * 900 * 80),
            ("f".to_owned(), format!("[{}1]", "1\\u002c".repeat(900)), 6 * 900 * 80),
            ("f".to_owned(), "x".repeat(1_000_000), 1_000_000),
        ] {
            let weight = weight(&tool, &arguments);
            assert!(weight >= least, "{weight} for {} bytes", arguments.len());
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
