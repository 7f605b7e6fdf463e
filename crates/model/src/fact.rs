//! Facts: records that the state store keeps under keyed hashes. A type is one kind of fact; a [`Batch`] asks for facts of
//! any types in one trip, each [`Ticket`] finds its answer in the [`Answers`], and [`Writes`] add facts. Plain data: the
//! stores keep it, the engine and the policies decide what it means.

mod batch;
pub mod body;
mod writes;

pub use batch::{Answers, Batch, FactQueries, FactQuery, Ticket};
pub use writes::{FactWrites, NewFacts, Writes};

use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// The records of one fact, oldest first. Most facts are one record.
pub type RecordList<F> = SmallVec<[F; 1]>;

/// The same, shared by all that have looked them up.
pub type Records<F> = Arc<RecordList<F>>;

/// [`Records`] of a type that only its fact knows.
pub type AnyRecords = Arc<dyn Any + Send + Sync>;

/// What a record of the state store is: a part of its key. A fact of a policy's own takes a variant and a letter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Release,
    HiddenExchange,
    Evidence,
    Question,
    Approved,
    Claimed,
    Repeated,
    History,
    Request,
    Overflow,
    Quota,
    Stops,
    Pins,
    UpstreamHistory,
    Account,
    Beginning,
    Sum,
}

impl RecordKind {
    /// How many there are.
    pub const COUNT: usize = Self::Sum as usize + 1;

    /// As in keys of the shared state store.
    pub fn letter(self) -> u8 {
        match self {
            Self::Release => b't',
            Self::HiddenExchange => b'r',
            Self::Evidence => b'v',
            Self::Question => b'a',
            Self::Approved => b'p',
            Self::Claimed => b'c',
            Self::Repeated => b'e',
            Self::History => b'h',
            Self::Request => b'n',
            Self::Overflow => b'o',
            Self::Quota => b'q',
            Self::Stops => b's',
            Self::Pins => b'i',
            Self::UpstreamHistory => b'u',
            Self::Account => b'b',
            Self::Beginning => b'g',
            Self::Sum => b'd',
        }
    }
}

/// A record as bytes, before a shared state store encrypts it.
pub trait Record: Sized {
    /// The body; `None` where it cannot be written. Equal records have equal bodies.
    fn to_body(&self) -> Option<Vec<u8>>;

    /// The record of a body; `None` if it is invalid.
    fn from_body(body: &[u8]) -> Option<Self>;
}

/// A kind of fact.
pub trait Fact: Record + Clone + PartialEq + Debug + Send + Sync + 'static {
    const KIND: RecordKind;
    const RETENTION: Retention;
    const ROOM: Room;
    const LIFETIME: Lifetime = Lifetime::Facts;
    /// Whether a process keeps what others have written, for the time when the shared state store is away: only records
    /// whose order does not depend on when they were added.
    const IS_REPLICATED: bool = false;

    /// The size of a record in bytes.
    fn size(&self) -> usize {
        size_of::<Self>()
    }

    /// Adds a record to those that are known.
    fn add_to(self, known: &mut RecordList<Self>) {
        match Self::RETENTION {
            Retention::Value => *known = SmallVec::from([self]),
            Retention::Once if known.is_empty() => known.push(self),
            Retention::First(most) if known.len() < most && !known.contains(&self) => known.push(self),
            Retention::Once | Retention::First(_) => {}
            Retention::Last(most) => {
                known.retain(|other| *other != self);
                known.push(self);
                let surplus = known.len().saturating_sub(most);
                known.drain(..surplus);
            }
        }
    }

    /// Whether this process's record counts, where the shared state store has another one and only one is kept.
    fn prevails_over(&self, _shared: &Self) -> bool {
        false
    }
}

/// Which records of a fact are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The last one.
    Value,
    /// The first one.
    Once,
    /// The last so many different ones.
    Last(usize),
    /// The first so many different ones.
    First(usize),
}

impl Retention {
    /// Whether at most one record is kept under a key.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Value | Self::Once)
    }
}

/// What bounds how much of a fact one process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// As many as calls are kept.
    Calls,
    /// As many as conversations are kept.
    Conversations,
    /// A few for each model.
    Models,
    /// So many bytes.
    Bytes,
}

/// How long a fact is kept after it was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// `store.ttl`.
    Facts,
    /// `upstream.remember`; 0: not at all.
    Refusals,
}

/// The constants of a [`Fact`], as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FactRules {
    pub kind: RecordKind,
    pub retention: Retention,
    pub room: Room,
    pub lifetime: Lifetime,
}

impl FactRules {
    fn new<F: Fact>() -> Self {
        Self { kind: F::KIND, retention: F::RETENTION, room: F::ROOM, lifetime: F::LIFETIME }
    }
}

/// The records that `known` holds.
fn records<F: Fact>(known: AnyRecords) -> Option<Records<F>> {
    known.downcast().ok()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A fact of tests: its last two records are kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Score(pub u8);

    impl Record for Score {
        fn to_body(&self) -> Option<Vec<u8>> {
            Some(vec![self.0])
        }

        fn from_body(body: &[u8]) -> Option<Self> {
            match body {
                [score] => Some(Self(*score)),
                _ => None,
            }
        }
    }

    impl Fact for Score {
        const IS_REPLICATED: bool = true;
        const KIND: RecordKind = RecordKind::Overflow;
        const RETENTION: Retention = Retention::Last(2);
        const ROOM: Room = Room::Calls;
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Score;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_last_different_records_are_kept_and_an_equal_one_moves_to_the_end() {
        let mut known = RecordList::new();
        for score in [1, 2, 1, 3, 3] {
            Score(score).add_to(&mut known);
        }
        assert_eq!(known[..], [Score(1), Score(3)]);
    }

    #[test]
    fn no_two_kinds_have_one_letter() {
        let kinds = [
            RecordKind::Release,
            RecordKind::HiddenExchange,
            RecordKind::Evidence,
            RecordKind::Question,
            RecordKind::Approved,
            RecordKind::Claimed,
            RecordKind::Repeated,
            RecordKind::History,
            RecordKind::Request,
            RecordKind::Overflow,
            RecordKind::Quota,
            RecordKind::Stops,
            RecordKind::Pins,
            RecordKind::UpstreamHistory,
            RecordKind::Account,
            RecordKind::Beginning,
            RecordKind::Sum,
        ];
        assert_eq!(kinds.map(|kind| kind as usize).to_vec(), (0..RecordKind::COUNT).collect::<Vec<_>>());
        let letters: BTreeSet<u8> = kinds.map(RecordKind::letter).into();
        assert_eq!(letters.len(), RecordKind::COUNT);
    }
}
