//! How the beginning of a conversation was sent, where the upstream binds what the model thought to it: a changed beginning
//! would be refused. What toolrein changes is a function of the history and of the state store, so it is the same in every
//! later request; where it is not (after a lost record, a reload, a cleared result), all thinking leaves the request, and stays
//! out.

use bytes::Bytes;
use model::Transcript;
use model::adaptation::{Adaptation, Adaptations};
use model::fact::{Answers, Batch, Ticket};
use model::identity::{Domain, Hash, HashKey, Identity, RunningHash};
use model::message::Role;
use model::plan::Plan;
use model::store::SentBeginning;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

/// The policy's name under which thinking is recorded that was left out.
pub(crate) const THINKING: &str = "thinking";

/// How many earlier replies are tried: clients that split a reply over messages leave the last one unknown.
const MOST_EARLIER: usize = 3;

/// How earlier beginnings of a conversation were sent, as it is looked up.
pub(crate) struct BeginningLookUp {
    /// The positions of the last replies, the newest first.
    replies: Vec<usize>,
    ticket: Ticket<SentBeginning>,
}

impl BeginningLookUp {
    /// Asks how the requests were sent that the last replies answered; `None` where no reply depends on that.
    pub fn ask(transcript: &Transcript, batch: &mut Batch) -> Option<Self> {
        if !transcript.request.binds_reasoning {
            return None;
        }
        let is_reply = |at: &usize| transcript.message(*at).role == Role::Assistant;
        let replies: Vec<usize> = (0..transcript.len()).rev().filter(is_reply).take(MOST_EARLIER).collect();
        let names = replies.iter().map(|at| transcript.calls.context_before(*at));
        Some(Self { ticket: batch.ask(names), replies })
    }

    /// What is known of the newest beginning. `is_lost`: a hidden exchange before the newest reply is lost.
    pub fn known(&self, transcript: &Transcript, answers: &Answers, is_lost: bool) -> ConversationBeginning {
        let sent = answers.values(&self.ticket);
        let known = self.replies.iter().zip(sent).find_map(|(at, sent)| Some((*at, sent?)));
        let (identity, items) = (Arc::clone(&transcript.identity), transcript.len());
        let last = transcript.last_assistant();
        let (name, is_refused) = (transcript.calls.context, false);
        ConversationBeginning { name, identity, items, known, is_lost, is_refused, last }
    }
}

/// The beginning of a request's conversation, and how it was sent.
pub(crate) struct ConversationBeginning {
    /// The key under which is stored how the whole request is sent.
    name: Hash,
    identity: Arc<Identity>,
    /// How many items the conversation has.
    items: usize,
    /// The position of the newest reply to a known request, and how that request was sent.
    known: Option<(usize, SentBeginning)>,
    is_lost: bool,
    /// The upstream has refused what the model thought.
    is_refused: bool,
    /// The position of the newest reply.
    last: Option<usize>,
}

/// What toolrein changes in a request.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a> {
    pub plan: &'a Plan,
    /// Hidden exchanges that are put back, each with the position of the message that follows it.
    pub restored: &'a [(usize, Bytes)],
    pub adapted: Adaptations,
}

/// Of how many first items thinking is left out, and why where it was in the request before.
pub(crate) struct LeftOut {
    pub items: usize,
    pub cause: Option<&'static str>,
}

impl ConversationBeginning {
    /// Notes that the upstream has refused what the model thought; true if that may be for a change of toolrein's that the state
    /// store has forgotten. Where the beginning is known, the client has changed its history, and some clients react to
    /// that refusal.
    pub fn note_refusal(&mut self) -> bool {
        let is_new = self.known.is_none() && self.last.is_some() && !self.is_refused;
        self.is_refused |= is_new;
        is_new
    }

    /// Of how many first items thinking is left out of the request that is sent with these changes.
    pub fn leave_out(&self, transcript: &Transcript, changes: Changes<'_>) -> LeftOut {
        let Some(last) = self.last else { return LeftOut { items: 0, cause: None } };
        let (end, sent) = self.known.unwrap_or((0, SentBeginning::default()));
        // Between the newest known request and the newest reply toolrein saw nothing, so it changed nothing.
        let is_same = self.digest_of_all(changes, 0..end) == sent.changes
            && changes.edits(end..last, &self.identity.key).is_empty();
        let thinks = |from: usize| (from..self.items).any(|at| transcript.message(at).reasons);
        if is_same && !self.is_lost && !self.is_refused {
            // A client that has dropped all thinking gets none back with hidden exchanges.
            let is_dropped = !changes.restored.is_empty() && !thinks(0);
            let items = if is_dropped { self.items } else { sent.without_thinking };
            return LeftOut { items, cause: None };
        }
        let cause = match self.known {
            _ if self.is_refused => "left_out_refused",
            _ if self.is_lost => "left_out_lost",
            None => "left_out_unknown",
            Some(_) => "left_out_changed",
        };
        LeftOut { items: self.items, cause: thinks(sent.without_thinking).then_some(cause) }
    }

    /// The record of how the request was sent, with its key.
    pub fn sent(&self, changes: Changes<'_>, without_thinking: usize) -> (Hash, SentBeginning) {
        let changes = self.digest_of_all(changes, 0..self.items);
        (self.name, SentBeginning { changes, without_thinking })
    }

    /// A digest of changes; 0 where there are none.
    fn digest(&self, changes: &[Hash]) -> u64 {
        if changes.is_empty() {
            return 0;
        }
        let changes: Vec<[u8; 16]> = changes.iter().map(|change| change.0.to_le_bytes()).collect();
        let parts = std::iter::once(&b"beginning"[..]).chain(changes.iter().map(|change| &change[..]));
        // Half of the digest is enough: it is compared with one other.
        (self.identity.key.hash_all(Domain::History, parts).0 as u64).max(1)
    }

    /// See [`Changes::all`].
    fn digest_of_all(&self, changes: Changes<'_>, items: Range<usize>) -> u64 {
        self.digest(&changes.all(items, &self.identity.key))
    }
}

impl Changes<'_> {
    /// What is changed before the end of `items` that later requests must repeat: a digest of each change.
    fn all(self, items: Range<usize>, key: &HashKey) -> Vec<Hash> {
        let Changes { plan, adapted, .. } = self;
        let forms = Adaptation::REPAIRS | Adaptation::Tools | Adaptation::Flattened | Adaptation::OwnTools;
        let forms = (adapted & forms).iter().map(|form| digest_of(("form", format!("{form:?}")), key));
        let declared = plan.declared.iter().map(|tool| digest_of(("declared", &tool.tool), key));
        let annotated = plan.annotated_tools().map(|annotated| digest_of(("annotated", annotated), key));
        forms.chain(declared).chain(annotated).chain(self.edits(items, key)).collect()
    }

    /// What is changed in these items: a digest of each change with its position, in order.
    fn edits(self, items: Range<usize>, key: &HashKey) -> Vec<Hash> {
        let Changes { plan, restored, .. } = self;
        let is_there = |at: &usize| items.contains(at);
        let edits = plan.effective_edits().filter_map(|edit| {
            let at = plan.order.position(edit.item).unwrap_or(0);
            is_there(&at).then(|| (at, digest_of((at, "edit", &edit.change), key)))
        });
        let put_back = restored.iter().filter(|(at, _)| is_there(at));
        let put_back = put_back.map(|(at, exchange)| (*at, digest_of((at, "put back", exchange), key)));
        let dropped = plan.dropped.iter().map(|dropped| &dropped.messages);
        let dropped = dropped.filter(|dropped| is_there(&dropped.start));
        let dropped = dropped.map(|dropped| (dropped.start, digest_of(("dropped", dropped), key)));
        let mut all: Vec<(usize, Hash)> = edits.chain(put_back).chain(dropped).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, digest)| digest).collect()
    }
}

/// A keyed digest of any value.
fn digest_of(value: impl std::hash::Hash, key: &HashKey) -> Hash {
    let mut hasher = KeyedHasher(key.running_hash(Domain::History));
    value.hash(&mut hasher);
    hasher.0.hash()
}

/// The keyed hash in the form that values write themselves to.
struct KeyedHasher(RunningHash);

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.add(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.hash().0 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::identity::HashKey;
    use model::memo::NoMemo;
    use model::plan::{Change, Edit};
    use model::source::ItemId;
    use model::testing::{SampleRequest, call, reply, result, user};

    /// A conversation whose second item is a reply that the model thought about.
    fn conversation() -> Transcript {
        let sample = SampleRequest::new(&[user("q"), reply([call("a", "f", "{}")]), result("a", "r")]);
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let mut request = sample.request.clone();
        request.binds_reasoning = true;
        request.messages[1].reasons = true;
        let body = Bytes::from(sample.body().to_vec());
        Transcript::read(Arc::new(request), body, Arc::new(identity), Arc::new(NoMemo))
    }

    fn beginning(transcript: &Transcript, known: Option<SentBeginning>) -> ConversationBeginning {
        let known = known.map(|sent| (1, sent));
        let (name, identity) = (Hash(1), Arc::clone(&transcript.identity));
        let (is_lost, is_refused, last) = (false, false, transcript.last_assistant());
        ConversationBeginning { name, identity, items: transcript.len(), known, is_lost, is_refused, last }
    }

    fn plan_with(changes: &[(usize, &str)]) -> Plan {
        let notice = |(at, text): &(usize, &str)| Edit {
            item: ItemId::of_client(*at),
            decided: *at,
            policy: "p",
            change: Change::Notice { text: (*text).to_owned(), word: "notice" },
        };
        let mut plan = Plan::default();
        plan.edits = changes.iter().map(notice).collect();
        plan
    }

    fn left_out(
        beginning: &ConversationBeginning,
        transcript: &Transcript,
        plan: &Plan,
    ) -> (usize, Option<&'static str>) {
        let changes = Changes { plan, restored: &[], adapted: Adaptations::empty() };
        let left_out = beginning.leave_out(transcript, changes);
        (left_out.items, left_out.cause)
    }

    #[test]
    fn thinking_stays_while_the_beginning_is_sent_as_before_and_leaves_where_it_is_not() {
        let transcript = conversation();
        let noticed = plan_with(&[(0, "one")]);
        let changes = Changes { plan: &noticed, restored: &[], adapted: Adaptations::empty() };
        let sent = SentBeginning {
            changes: beginning(&transcript, None).digest_of_all(changes, 0..1),
            without_thinking: 0,
        };
        let unchanged = SentBeginning::default();
        for (known, changes, expected) in [
            (Some(unchanged), vec![], (0, None)),
            (Some(unchanged), vec![(2, "new")], (0, None)),
            (Some(unchanged), vec![(0, "one")], (3, Some("left_out_changed"))),
            (Some(sent), vec![(0, "one")], (0, None)),
            (Some(sent), vec![(0, "one"), (2, "new")], (0, None)),
            (Some(sent), vec![(0, "two")], (3, Some("left_out_changed"))),
            (Some(sent), vec![], (3, Some("left_out_changed"))),
            (Some(SentBeginning { without_thinking: 1, ..sent }), vec![(0, "one")], (1, None)),
            (Some(SentBeginning { without_thinking: 2, ..unchanged }), vec![(0, "one")], (3, None)),
            (None, vec![], (0, None)),
            (None, vec![(2, "new")], (0, None)),
            (None, vec![(0, "one")], (3, Some("left_out_unknown"))),
        ] {
            let (beginning, plan) = (beginning(&transcript, known), plan_with(&changes));
            assert_eq!(left_out(&beginning, &transcript, &plan), expected, "{known:?} {changes:?}");
        }
    }

    #[test]
    fn a_lost_exchange_and_a_refusal_without_a_known_beginning_take_all_thinking_out() {
        let transcript = conversation();
        let known = Some(SentBeginning::default());
        let lost = ConversationBeginning { is_lost: true, ..beginning(&transcript, known) };
        assert_eq!(left_out(&lost, &transcript, &Plan::default()), (3, Some("left_out_lost")));
        let mut unknown = beginning(&transcript, None);
        assert!(unknown.note_refusal() && !unknown.note_refusal(), "it is tried once");
        assert_eq!(left_out(&unknown, &transcript, &Plan::default()), (3, Some("left_out_refused")));
        assert!(!beginning(&transcript, known).note_refusal(), "the client has changed its history");
    }

    #[test]
    fn the_record_of_a_request_is_that_which_the_next_one_compares_with() {
        let transcript = conversation();
        let plan = plan_with(&[(0, "one"), (2, "new")]);
        let changes = Changes { plan: &plan, restored: &[], adapted: Adaptations::empty() };
        let known = beginning(&transcript, None);
        let (name, sent) = known.sent(changes, 2);
        assert_eq!((name, sent.without_thinking), (Hash(1), 2));
        assert_eq!(sent.changes, known.digest_of_all(changes, 0..3));
        assert_eq!(known.sent(Changes { plan: &Plan::default(), ..changes }, 0).1, SentBeginning::default());
    }
}
