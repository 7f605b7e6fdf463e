//! The account of a conversation: what its turns, the conversation and its caller's day have used and were billed, as
//! far as a request cannot show it. Plain data with its arithmetic: the state store keeps it, policies read it.

mod body;

use super::identity::Hash;
use super::uses::Use;
use std::sync::Arc;

/// The kinds of amounts.
pub const KINDS: usize = 6;
/// The periods that amounts are summed over.
pub const SCOPES: usize = 3;
/// The most notices that are kept of one conversation: all of them are sent again with every request.
pub const MOST_PINS: usize = 64;

/// A kind of amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tool calls that were handed out.
    Calls,
    /// Requests to the upstream, re-asks included.
    Requests,
    /// Tokens as billed, in both directions.
    Tokens,
    /// Money, in billionths of a dollar.
    Nanodollars,
    /// Time in ms.
    Millis,
    /// Tokens of the conversation as it is. Known from the request alone, so never summed.
    Context,
}

/// What amounts are summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Turn,
    Conversation,
    /// A caller's day, by UTC.
    Day,
}

/// All of them.
pub const ALL_SCOPES: [Scope; SCOPES] = [Scope::Turn, Scope::Conversation, Scope::Day];

/// An amount of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums(pub [u64; KINDS]);

/// The highest threshold of each kind that the model was informed about; 0: none. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub [u32; KINDS]);

/// A notice that was placed when the amounts were known, and stays where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// How many messages are before it.
    pub messages: usize,
    /// The digest of these.
    pub history: Hash,
    /// The policy that placed it.
    pub by: Arc<str>,
    /// Empty: no notice, but the last of these messages is an approval, which does not begin a turn of its own.
    pub text: Arc<str>,
}

/// The account as of one reply. It is kept under the reply's key, so that the next request continues from it: a
/// conversation without an id carries its sums from reply to reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub turn: Sums,
    pub conversation: Sums,
    /// When the reply ended, in ms since the epoch.
    pub at_ms: u64,
    /// The day, since the epoch, of the marks of the day.
    pub day: u64,
    /// By scope.
    pub marks: [Marks; SCOPES],
    /// Extensions that were approved, by scope.
    pub bought: [u32; SCOPES],
    /// The part of the sums that a retry of the same request must not add again.
    pub once: Once,
    /// The turn has had its final answer, since a limit of the conversation or the day was used up.
    pub final_answer: bool,
    /// Oldest first.
    pub pins: Vec<Pin>,
    /// What the model was last shown is left of each counted thing, by its name.
    pub left: Vec<(Arc<str>, u64)>,
}

/// A notice that was placed in an earlier request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedNotice {
    /// The index of the message that it follows.
    pub message: usize,
    /// The policy that placed it.
    pub by: Arc<str>,
    pub text: Arc<str>,
}

/// What one request has added, counted once however often the request is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Once {
    pub calls: u64,
    pub bought: [u32; SCOPES],
    /// How often it was tried.
    pub tries: u32,
}

/// A sum that several processes add to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// What was counted, also in advance: a request is counted by an estimate when it is sent.
    pub sums: Sums,
    /// What was counted in advance and then not used. Apart from the sums, since each of the two only grows.
    pub refunded: Sums,
    pub marks: Marks,
    pub bought: u32,
    /// The last day since the epoch on which a turn of the conversation got its final answer; 0: none did.
    pub final_answer_day: u64,
}

/// The account as policies receive it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What was used, by scope.
    pub used: [Sums; SCOPES],
    pub marks: [Marks; SCOPES],
    pub bought: [u32; SCOPES],
    /// The notices that are placed again.
    pub pins: Vec<PlacedNotice>,
    /// See [`Carried::left`].
    pub left: Vec<(Arc<str>, u64)>,
    /// The messages of the user that are approvals.
    pub approvals: Vec<usize>,
    /// Whether there is room for one more.
    pub may_pin: bool,
    /// When the request came, in ms since the epoch.
    pub now_ms: u64,
    /// The time, in ms since the epoch, after which elapsed time is not in the sums yet.
    pub since_ms: u64,
    /// The model's prices are known.
    pub is_priced: bool,
    /// By scope: whether other requests may add to the same sums at the same time.
    pub shared: [bool; SCOPES],
    /// The calls that earlier tries of the request were handed out, and that are in these sums already.
    pub handed_out: Vec<Use>,
    /// By scope: whether the running turn may still have its final answer where a limit of that scope is used up. A turn
    /// that this account does not know may not.
    pub may_answer: [bool; SCOPES],
}

impl Sums {
    /// One call.
    pub const ONE_CALL: Self = {
        let mut sums = [0; KINDS];
        sums[Kind::Calls as usize] = 1;
        Self(sums)
    };

    /// The amount of `kind`.
    pub fn get(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// A copy with another amount of `kind`.
    #[must_use]
    pub fn with(mut self, kind: Kind, amount: u64) -> Self {
        self.0[kind as usize] = amount;
        self
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// The difference to `other`, at least 0 for each kind.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// The greater amount of each kind.
    #[must_use]
    pub fn most(&self, other: &Self) -> Self {
        self.each(other, u64::max)
    }

    fn each(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|kind| join(self.0[kind], other.0[kind])))
    }
}

impl Marks {
    /// The greater mark of each kind.
    #[must_use]
    pub fn most(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind].max(other.0[kind])))
    }
}

impl Tally {
    /// What was counted.
    pub fn counted(sums: Sums) -> Self {
        Self { sums, ..Self::default() }
    }

    /// What was counted in advance and is not used.
    pub fn refund(refunded: Sums) -> Self {
        Self { refunded, ..Self::default() }
    }

    /// What was used.
    pub fn used(&self) -> Sums {
        self.sums.less(&self.refunded)
    }

    /// What both have added together; of the marks, the greater.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sums: self.sums.plus(&other.sums),
            refunded: self.refunded.plus(&other.refunded),
            marks: self.marks.most(&other.marks),
            bought: self.bought.saturating_add(other.bought),
            final_answer_day: self.final_answer_day.max(other.final_answer_day),
        }
    }

    /// The later one of two states of the same adder.
    #[must_use]
    pub fn later(&self, other: &Self) -> Self {
        Self {
            sums: self.sums.most(&other.sums),
            refunded: self.refunded.most(&other.refunded),
            marks: self.marks.most(&other.marks),
            bought: self.bought.max(other.bought),
            final_answer_day: self.final_answer_day.max(other.final_answer_day),
        }
    }
}

impl Carried {
    /// Begins the sums of a turn anew.
    pub fn begin_turn(&mut self) {
        let turn = Scope::Turn as usize;
        self.turn = Sums::default();
        (self.marks[turn], self.bought[turn]) = (Marks::default(), 0);
        self.final_answer = false;
    }

    /// Takes over what earlier tries of the same request were billed and have placed. The calls of a retry count once.
    pub fn take_in(&mut self, tried: &Self, is_same: bool, is_retry: bool) {
        (self.marks, self.day) = (tried.marks, tried.day);
        self.pins.clone_from(&tried.pins);
        self.left.clone_from(&tried.left);
        if !is_same {
            return;
        }
        let calls =
            |own: &Sums, tried: &Sums| if is_retry { own.get(Kind::Calls) } else { tried.get(Kind::Calls) };
        self.turn = tried.turn.with(Kind::Calls, calls(&self.turn, &tried.turn));
        self.conversation =
            tried.conversation.with(Kind::Calls, calls(&self.conversation, &tried.conversation));
        self.at_ms = tried.at_ms.max(self.at_ms);
        self.final_answer |= tried.final_answer;
    }

    /// About its size in bytes.
    pub fn size(&self) -> usize {
        let pins = self.pins.iter().map(|pin| size_of::<Pin>() + pin.text.len()).sum::<usize>();
        let left = self.left.iter().map(|(name, _)| size_of::<(Arc<str>, u64)>() + name.len());
        size_of::<Self>() + pins + left.sum::<usize>()
    }
}

impl Account {
    /// What was used in `scope` at `now_ms`, including the time that has passed since the sums were updated.
    pub fn used_at(&self, scope: Scope, now_ms: u64) -> Sums {
        let passed = now_ms.saturating_sub(self.since_ms);
        self.used[scope as usize].plus(&Sums::default().with(Kind::Millis, passed))
    }

    /// The notice that `policy` has placed after the message with index `message`.
    pub fn placed_by(&self, policy: &str, message: usize) -> Option<&str> {
        let placed = self.pins.iter().find(|placed| placed.message == message && &*placed.by == policy);
        placed.map(|placed| &*placed.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tally(of: u64) -> Tally {
        Tally {
            sums: Sums([of; KINDS]),
            refunded: Sums([of / 2; KINDS]),
            marks: Marks([of as u32; KINDS]),
            bought: of as u32,
            final_answer_day: of,
        }
    }

    proptest! {
        #[test]
        fn the_latest_tally_is_found_whatever_the_order_and_repetition_of_its_states(states in prop::collection::vec(0..9_u64, 1..9)) {
            let latest = states.iter().fold(Tally::default(), |known, state| known.later(&tally(*state)));
            prop_assert_eq!(latest, tally(states.iter().copied().max().unwrap()));
        }
    }

    #[test]
    fn adding_tallies_sums_counters_keeps_the_highest_marks_and_saturates() {
        let both = tally(2).plus(&tally(3));
        let refunded = Sums([2; KINDS]);
        let marks = Marks([3; KINDS]);
        let expected = Tally { sums: Sums([5; KINDS]), refunded, marks, bought: 5, final_answer_day: 3 };
        assert_eq!((both, both.used()), (expected, Sums([3; KINDS])));
        assert_eq!(Sums([1; KINDS]).less(&Sums([2; KINDS])), Sums::default());
        assert_eq!(Sums([u64::MAX; KINDS]).plus(&Sums([2; KINDS])), Sums([u64::MAX; KINDS]));
    }

    #[test]
    fn time_goes_on_while_the_request_runs() {
        let account = Account { since_ms: 100, ..Account::default() };
        assert_eq!(account.used_at(Scope::Turn, 350).get(Kind::Millis), 250);
        assert_eq!(account.used_at(Scope::Turn, 50).get(Kind::Millis), 0, "a clock that goes back");
    }
}
