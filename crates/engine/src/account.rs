//! The account of a request's conversation: the keys under which the state store keeps it, what follows from it, and
//! what the replies add. A conversation with an id has one sum that all its requests add to; one without an id
//! carries its sums from reply to reply. All keys are known before the look-up, so one round trip is enough.

mod spending;

pub(super) use spending::Bill;

use crate::pipeline::ClientChoice;
use crate::price::Price;
use crate::restore::{FirstKey, HiddenPosition, RequestContext, first_keys, text_key_of};
use model::Transcript;
use model::account::{
    ALL_SCOPES, Account, Carried, Kind, MOST_PINS, Marks, Once, Pin, PlacedNotice, SCOPES, Scope, Sums, Tally,
};
use model::fact::{Answers, Batch, Ticket, Writes};
use model::histories::beginnings;
use model::identity::{Hash, Identity};
use model::plan::{Announced, Finding, Plan};
use policies::about::Accounting;
use std::sync::Arc;

/// How many of the newest replies are tried: clients that split a reply over messages, and replies that broke off,
/// leave the last one unknown.
const MOST_REPLIES: usize = 4;
const DAY_MS: u64 = 86_400_000;
/// An equal request within this time is a retry by a client that lost the answer, and so many tries count once: as for
/// quotas.
const AGAIN_WITHIN_MS: u64 = 15 * 60_000;
const MOST_TRIES: u32 = 3;
const CONVERSATION: usize = Scope::Conversation as usize;
const DAY: usize = Scope::Day as usize;

/// What the state store is asked about the account of a request.
pub(super) struct AccountKeys {
    /// The key of the request itself, for what its earlier tries have added.
    own: Hash,
    /// The keys of the newest replies in the request, the newest first, each with the index of its message.
    replies: Vec<(usize, Hash)>,
    /// The key of the sum of a conversation with an id.
    named: Option<Hash>,
    /// The key of the caller's day, where that is limited.
    day: Option<Hash>,
    /// The accounts as of the request and of these replies.
    carried: Ticket<Arc<Carried>>,
}

/// What is known of the account, and what the exchange adds to it.
pub(super) struct OpenAccount {
    keys: AccountKeys,
    /// The sums as of the newest reply, with what earlier tries of the request were billed.
    carried: Carried,
    /// What earlier tries of the request have added.
    before: Once,
    /// What was put into the sums so far, without the reservations of calls.
    reported: Spent,
    /// The reservations of calls that are in the sums, and not in `reported`.
    reserved: Vec<ReservedCall>,
    /// The last report, with the number of its keys, so that an equal report is not stored again.
    last: Option<(Spent, usize)>,
    /// What the replies so far have used, without the request in flight.
    settled: Spent,
    /// How many usages are in it.
    settled_usages: usize,
    /// How many replies have ended after which the upstream was asked again.
    replied: u64,
    /// The upstream was asked, and has not refused: its reply is coming, or has come.
    in_flight: bool,
    marks: Option<Marks>,
    /// The newest reply of the request that is known, with the account as of it.
    continued: Option<(Hash, Arc<Carried>)>,
    /// When the account was last updated, in ms since the epoch.
    now_ms: u64,
    /// The estimate of the prompt, for a request in flight and for replies without usage.
    pub(super) prompt: u64,
    pub(super) price: Option<Price>,
}

/// A call that was added to a sum before it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReservedCall {
    /// The number of the call that waited for it.
    number: u32,
    scope: Scope,
    /// The call was handed out.
    is_settled: bool,
}

/// What an exchange has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    sums: Sums,
    /// The extensions that were approved, by scope.
    bought: [u32; SCOPES],
}

impl AccountKeys {
    /// Asks for the account of the request in `transcript`, which came at `now_ms`.
    pub(super) fn ask(
        transcript: &Transcript,
        positions: &[HiddenPosition],
        accounting: Accounting,
        now_ms: u64,
        batch: &mut Batch,
    ) -> Self {
        let identity = &transcript.identity;
        let newest = positions.iter().rev().take(MOST_REPLIES);
        let replies = newest.flat_map(|position| {
            keys_at(transcript, *position).into_iter().map(|key| (position.message, key))
        });
        let replies: Vec<(usize, Hash)> = replies.collect();
        let own = identity.account(transcript.request_key(), None);
        let named = identity.explicit.is_some().then(|| identity.account(transcript.conversation(), None));
        let day = accounting.day.then(|| identity.day_account(now_ms / DAY_MS));
        let carried = batch.ask(std::iter::once(own).chain(replies.iter().map(|(_, key)| *key)));
        let keys = Self { own, replies, named, day, carried };
        batch.sums = keys.sums();
        keys
    }

    /// The keys of the sums.
    pub(super) fn sums(&self) -> Vec<Hash> {
        self.named.into_iter().chain(self.day).collect()
    }

    /// The accounts that are known, as of the request and of the newest replies.
    pub(super) fn carried(&self, answers: &Answers) -> Vec<Option<Arc<Carried>>> {
        answers.values(&self.carried)
    }

    /// The key of the sum of `scope` that other requests may add to at the same time, where there is one.
    fn shared(&self, scope: Scope) -> Option<Hash> {
        match scope {
            Scope::Turn => None,
            Scope::Conversation => self.named,
            Scope::Day => self.day,
        }
    }
}

/// The keys of the reply at `position`. A client that needs ids of calls invents one where the upstream gave none.
fn keys_at(transcript: &Transcript, position: HiddenPosition) -> Vec<Hash> {
    let identity = &transcript.identity;
    match transcript.calls.made_by(position.message).first() {
        None => vec![identity.account(text_key_of(transcript, position), None)],
        Some(call) => {
            let context = (!call.has_random_id).then_some(position.name);
            let nameless = transcript.calls.nameless_key(call, identity);
            vec![identity.account(call.key, context), identity.account(nameless, Some(position.name))]
        }
    }
}

/// The keys of a choice as the client was shown it, as [`keys_at`] has them.
fn keys_of(request: &RequestContext<'_>, identity: &Identity, choice: &ClientChoice<'_>) -> Vec<Hash> {
    let first = first_keys(request, identity, choice);
    if first.is_empty() {
        return vec![identity.account(identity.text_key(request.context, &choice.text()), None)];
    }
    let account =
        |first: FirstKey| identity.account(first.key, (!first.is_random).then_some(request.context));
    first.into_iter().map(account).collect()
}

/// The account from which a request goes on.
struct Resumed {
    /// The sums as of the newest reply that is known, with what earlier tries of the request were billed.
    carried: Carried,
    /// That reply, with the account as of it.
    continued: Option<(Hash, Arc<Carried>)>,
    /// What earlier tries of the request have added.
    before: Once,
    /// The messages of the user that are approvals.
    approvals: Vec<usize>,
    pins: Vec<PlacedNotice>,
    /// That reply belongs to the running turn.
    runs_on: bool,
}

impl Resumed {
    fn new(
        keys: &AccountKeys,
        transcript: &Transcript,
        known: &[Option<Arc<Carried>>],
        now_ms: u64,
        approves: bool,
    ) -> Self {
        let mut known = known.iter();
        let is_retry = |tried: &Arc<Carried>| {
            tried.once.tries < MOST_TRIES && now_ms.saturating_sub(tried.at_ms) < AGAIN_WITHIN_MS
        };
        let tried = known.next().cloned().flatten();
        let mut found = keys.replies.iter().zip(known);
        let found = found.find_map(|((at, key), known)| Some((*at, *key, known.clone()?)));
        let (at, continued) = found.map_or((None, None), |(at, key, found)| (Some(at), Some((key, found))));
        let mut carried = continued.as_ref().map(|(_, found)| (**found).clone()).unwrap_or_default();
        if approves {
            carried.pins.extend(approval(transcript));
        }
        let (approvals, mut pins) = placed(transcript, &carried.pins);
        let runs_on = at.is_some() && transcript.turn_start(&approvals) <= at;
        if !runs_on {
            carried.begin_turn();
        }
        let retried = tried.as_ref().filter(|tried| is_retry(tried));
        let before = retried.map_or_else(Once::default, |tried| tried.once);
        if let Some(tried) = tried {
            // Different conversations may begin with equal requests.
            let is_same = !keys.replies.is_empty() || keys.named.is_some();
            carried.take_in(&tried, is_same, before != Once::default());
            pins = placed(transcript, &carried.pins).1;
        }
        Self { carried, continued, before, approvals, pins, runs_on }
    }
}

impl OpenAccount {
    /// The open account of a request that came at `now_ms`, and its account for the policies. `approves`: its last message
    /// is an approval. `carried` and `sums`: what is known under its keys. `ahead`: what the look-up has added to the sums.
    pub(super) fn open(
        keys: AccountKeys,
        transcript: &Transcript,
        (carried, sums): (&[Option<Arc<Carried>>], &[Tally]),
        (now_ms, approves): (u64, bool),
        (ahead, price): (Sums, Option<Price>),
    ) -> (Self, Account) {
        let Resumed { mut carried, continued, before, approvals, pins, runs_on } =
            Resumed::new(&keys, transcript, carried, now_ms, approves);
        let today = now_ms / DAY_MS;
        if carried.day != today {
            (carried.day, carried.marks[DAY]) = (today, Marks::default());
        }
        let mut tallies = sums.iter();
        let named = keys.named.and_then(|_| tallies.next()).copied();
        if let Some(named) = &named {
            let (sums, bought) = without(named, before, Scope::Conversation);
            carried.conversation = sums;
            carried.bought[CONVERSATION] = bought;
            carried.marks[CONVERSATION] = carried.marks[CONVERSATION].most(&named.marks);
        }
        // A client that trims its history leaves the reply unknown, and what it sends as a history may be anything: only a
        // conversation with an id is known all the same.
        let is_used = named.is_some_and(|named| named.used() != Sums::default());
        let shows_turn = || transcript.last_assistant() > transcript.turn_start(&approvals);
        let runs = runs_on || (is_used && shows_turn());
        let may_answer = may_answer(named.as_ref(), today).map(|may| may && runs && !carried.final_answer);
        let day = keys.day.and_then(|_| tallies.next()).copied().unwrap_or_default();
        let (day, day_bought) = without(&day, before, Scope::Day);
        let floor = Sums::default().with(Kind::Calls, transcript.calls.made() as u64);
        let is_running = carried.at_ms > 0 && continued.is_some() && carried.turn != Sums::default();
        let mut bought = carried.bought;
        bought[DAY] = day_bought;
        let account = Account {
            used: [carried.turn, carried.conversation.most(&floor), day],
            marks: carried.marks,
            bought,
            pins,
            left: carried.left.clone(),
            approvals,
            may_pin: carried.pins.len() < MOST_PINS,
            now_ms,
            // While a person was asked, no time of the turn passed.
            since_ms: if is_running && !approves { carried.at_ms.min(now_ms) } else { now_ms },
            is_priced: price.is_some(),
            shared: ALL_SCOPES.map(|scope| keys.shared(scope).is_some()),
            handed_out: Vec::new(),
            may_answer,
        };
        // The time since the last reply of the turn, in which tools ran, belongs to the turn.
        carried.at_ms = account.since_ms;
        let mut open = Self::new(keys, carried, continued, before, (now_ms, price));
        open.reported.sums = ahead;
        (open, account)
    }

    fn new(
        keys: AccountKeys,
        carried: Carried,
        continued: Option<(Hash, Arc<Carried>)>,
        before: Once,
        (now_ms, price): (u64, Option<Price>),
    ) -> Self {
        let (reported, settled) = (Spent::default(), Spent::default());
        Self {
            keys,
            carried,
            before,
            reported,
            reserved: Vec::new(),
            last: None,
            settled,
            settled_usages: 0,
            replied: 0,
            in_flight: false,
            marks: None,
            continued,
            now_ms,
            prompt: 0,
            price,
        }
    }

    /// Notes whether the request is sent for the final answer of its turn. Returns the update for the state store: what
    /// follows on the same reply, or is the same request, gets no answer.
    pub(super) fn note_final_answer(&mut self, is_final: bool) -> Writes {
        self.carried.final_answer = is_final;
        let tried = Carried { once: self.before, ..self.carried.clone() };
        let mut writes = Writes::from_fact(self.keys.own, Arc::new(tried));
        if let Some((key, known)) = &self.continued {
            writes.add(*key, Arc::new(Carried { final_answer: is_final, ..(**known).clone() }));
        }
        writes
    }

    /// Keeps the notices that `plan` places now where they are, and what it says is left. Returns them, and the update for
    /// the state store, at once: the same request may be tried again.
    pub(super) fn pin(&mut self, transcript: &Transcript, plan: &Plan) -> (Vec<PlacedNotice>, Writes) {
        let announced = &plan.announced;
        let left = plan.findings().rev().find_map(|(_, finding)| match finding {
            Finding::AmountsLeft(left) => Some(left),
            _ => None,
        });
        if announced.is_empty() && left.is_none() {
            return (Vec::new(), Writes::default());
        }
        if let Some(left) = left {
            self.carried.left.clone_from(left);
        }
        let mut placed = Vec::new();
        for Announced { policy, message, text, marks } in announced {
            let messages = message + 1;
            let history = beginnings(transcript, &[messages]).into_iter().next().flatten();
            let Some(history) = history.filter(|_| self.carried.pins.len() < MOST_PINS) else { continue };
            let (by, text): (Arc<str>, Arc<str>) = ((*policy).into(), text.as_str().into());
            placed.push(PlacedNotice { message: *message, by: Arc::clone(&by), text: Arc::clone(&text) });
            self.carried.pins.push(Pin { messages, history, by, text });
            if let Some(marks) = marks {
                self.carried.marks = *marks;
                self.marks = Some(marks[CONVERSATION]);
            }
        }
        // This does not count as a try yet: it only makes sure that the placed notices are found again.
        let tried = Carried { once: self.before, ..self.carried.clone() };
        (placed, Writes::from_fact(self.keys.own, Arc::new(tried)))
    }
}

/// By scope: whether a conversation with the sum `named` may have a final answer today, as far as that sum shows it.
fn may_answer(named: Option<&Tally>, today: u64) -> [bool; SCOPES] {
    let last = named.map_or(0, |named| named.final_answer_day);
    // In the order of the scopes.
    [true, last == 0, last != today || last == 0]
}

/// A sum without what earlier tries of the same request have added.
fn without(tally: &Tally, once: Once, scope: Scope) -> (Sums, u32) {
    let own = Sums::default().with(Kind::Calls, once.calls);
    (tally.used().less(&own), tally.bought.saturating_sub(once.bought[scope as usize]))
}

/// The approvals and the notices whose messages are as they were.
fn placed(transcript: &Transcript, pins: &[Pin]) -> (Vec<usize>, Vec<PlacedNotice>) {
    let counts: Vec<usize> = pins.iter().map(|pin| pin.messages).collect();
    let as_they_are = beginnings(transcript, &counts);
    let placed = pins.iter().zip(as_they_are).filter(|(pin, history)| *history == Some(pin.history));
    let placed = placed.map(|(pin, _)| PlacedNotice {
        message: pin.messages.saturating_sub(1),
        by: Arc::clone(&pin.by),
        text: Arc::clone(&pin.text),
    });
    let (approvals, notices): (Vec<_>, Vec<_>) = placed.partition(|placed| placed.text.is_empty());
    (approvals.into_iter().map(|approval| approval.message).collect(), notices)
}

/// The mark that the last message of the request is an approval.
fn approval(transcript: &Transcript) -> Option<Pin> {
    let messages = transcript.len();
    let history = beginnings(transcript, &[messages]).into_iter().next()??;
    Some(Pin { messages, history, by: "".into(), text: "".into() })
}

/// The sums after a request that used `spent`.
fn add_spent(carried: &Carried, spent: &Spent, now_ms: u64) -> Carried {
    Carried {
        turn: carried.turn.plus(&spent.sums),
        conversation: carried.conversation.plus(&spent.sums),
        at_ms: now_ms,
        bought: std::array::from_fn(|scope| carried.bought[scope].saturating_add(spent.bought[scope])),
        once: Once::default(),
        ..carried.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Instant, Now};
    use model::fact::{Answers, Batch};
    use model::identity::HashKey;
    use model::memo::NoMemo;
    use model::testing::{SampleRequest, answered_calls};
    use model::uses::uses_at;
    use policies::set::PolicySet;
    use policies::{FactKeys, REGISTRY};
    use proptest::prelude::*;

    const MINUTE: u64 = 60_000;
    const WINDOW_MS: u64 = 120 * MINUTE;
    const QUOTA: &str =
        "{ limits = { images = { tools = [\"image\"], calls = 4, per = \"2h\" } }, notify = 2 }";

    /// What the store has of a request as it came, and of its newest reply.
    type CarriedAccounts = [Option<Arc<Carried>>; 2];

    /// The notices of the `nth` request, each with the index of its message, and what the store has then: of the request as
    /// it came, and of its reply.
    fn asked(
        nth: usize,
        now_ms: u64,
        spent: &[u64],
        known: &CarriedAccounts,
    ) -> (Vec<(usize, String)>, CarriedAccounts) {
        let entry = REGISTRY.iter().find(|entry| entry.name == "quota").unwrap();
        let table = toml::de::ValueDeserializer::parse(QUOTA).unwrap();
        let policies = PolicySet::new(vec![(entry.build)(table).unwrap()]);
        let sample = SampleRequest::new(&answered_calls("image", nth));
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let mut transcript = sample.transcript(&identity);
        let reply = nth.checked_sub(1).map(|before| (2 * before + 1, Hash(2)));
        let keys = AccountKeys {
            own: Hash(1),
            replies: reply.into_iter().collect(),
            named: None,
            day: None,
            carried: Ticket::default(),
        };
        let (mut open, account) =
            OpenAccount::open(keys, &transcript, (known, &[]), (now_ms, false), (Sums::default(), None));
        transcript.account = Some(Arc::new(account));
        transcript.now_ms = now_ms;
        let conversation = transcript.conversation();
        let keys = FactKeys { identity: &identity, conversation, conversation_id: "" };
        let mut batch = Batch::new(Now { at: Instant::now(), ms: now_ms });
        let mut asked = policies.ask(&keys, &mut batch);
        asked.receive(&Answers { spent: vec![uses_at(spent)], ..Answers::default() });
        let plan = policies.read_with(&transcript, &asked).0;
        let (_, pinned) = open.pin(&transcript, &plan);
        let context = RequestContext {
            root: identity.root(),
            context: Hash(0),
            context_without_ids: Hash(0),
            memo: &NoMemo,
        };
        let bill = Bill { usages: &[], requests: 0, choices: &[], bought: [0; SCOPES], hidden: 0 };
        let writes = open.report(&bill, &context, &identity, &[], now_ms);
        let own = |mut writes: Writes| writes.take::<Arc<Carried>>().pop().map(|(_, carried)| carried);
        let after = own(writes).map(|after| Arc::new(Carried { once: Once::default(), ..(*after).clone() }));
        let notices = plan.edits.iter().map(|edit| (edit.item.index, edit.change.text().to_owned()));
        (notices.collect(), [own(pinned).or_else(|| known[0].clone()), after])
    }

    proptest! {
        #[test]
        fn a_notice_of_a_quota_stays_where_it_was_placed_whatever_time_and_other_conversations_do(
            steps in prop::collection::vec((1..90u64, 0..3usize), 1..14),
        ) {
            let (mut now_ms, mut spent) = (1_000 * MINUTE, Vec::new());
            let (mut before, mut known): (Vec<(usize, String)>, _) = (Vec::new(), None);
            for (nth, (minutes, elsewhere)) in steps.into_iter().enumerate() {
                now_ms += minutes * MINUTE;
                // The state store forgets uses in the same way.
                spent.retain(|at_ms| now_ms - at_ms < WINDOW_MS);
                let (notices, [tried, after]) = asked(nth, now_ms, &spent, &[None, known.clone()]);
                let old = notices.iter().filter(|(message, _)| *message < 2 * nth).cloned();
                prop_assert_eq!(old.collect::<Vec<_>>(), before);
                // A client that sends the request again a minute later gets the same.
                let later = now_ms + MINUTE;
                let (again, _) = asked(nth, later, &[&spent[..], &[now_ms]].concat(), &[tried, known]);
                prop_assert!(again.starts_with(&notices));
                (before, known) = (notices, after);
                spent.extend(vec![now_ms; 1 + elsewhere]);
            }
        }
    }

    #[test]
    fn the_time_spent_waiting_for_an_approval_does_not_count_for_the_turn() {
        let body = br#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"May I?"},
            {"role":"user","content":"yes"}]}"#;
        let request = dialects::chat::parse(body).unwrap();
        let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
        let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
        let now_ms = 1_000_000;
        let carried = Carried {
            turn: Sums::default().with(Kind::Millis, 5_000),
            at_ms: now_ms - 120_000,
            day: now_ms / DAY_MS,
            ..Carried::default()
        };
        let known = [None, Some(Arc::new(carried))];
        let keys = AccountKeys {
            own: Hash(1),
            replies: vec![(1, Hash(2))],
            named: None,
            day: None,
            carried: Ticket::default(),
        };
        let (_, account) =
            OpenAccount::open(keys, &transcript, (&known, &[]), (now_ms, true), (Sums::default(), None));
        assert_eq!(account.used_at(Scope::Turn, now_ms).get(Kind::Millis), 5_000);
    }
}
