//! A batch: everything that one request asks the state store, in one trip.

use super::{AnyRecords, Fact, FactRules, RecordList, Records, Writes, records};
use crate::account::Tally;
use crate::identity::Hash;
use crate::store::{Quota, Stop};
use crate::uses::Use;
use crate::{Now, Stopped};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// See the file's head.
#[derive(Clone, Debug)]
pub struct Batch {
    pub now: Now,
    /// The digest of the request, to recognise a repetition: it is marked as seen.
    pub request: Option<Hash>,
    /// The conversation that is counted.
    pub conversation: Option<Hash>,
    /// The quotas whose use by the caller is wanted.
    pub quotas: Vec<Quota>,
    /// The sums that are wanted: as they were before this request.
    pub sums: Vec<Hash>,
    /// What is added to each of them at once: the request, counted by an estimate before it is sent.
    pub ahead: Tally,
    /// The conversation and its caller, where a stop of one of them matters.
    pub stops: Vec<Stop>,
    pub facts: FactQueries,
}

/// The facts that are asked for, by type, and what is known of them.
#[derive(Debug, Default)]
pub struct FactQueries(SmallVec<[Box<dyn FactQuery>; 4]>);

/// The place of an answer to a [`Batch`]: of the keys that were asked with it, in their order.
#[derive(Debug)]
pub struct Ticket<F> {
    indexes: Indexes,
    fact: PhantomData<fn() -> F>,
}

/// The indexes of keys among all of their type.
#[derive(Clone, Debug)]
enum Indexes {
    Range(Range<u32>),
    /// Where a key was asked before by another ticket.
    List(Vec<u32>),
}

impl Indexes {
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (range, list) = match self {
            Self::Range(range) => (range.clone(), &[][..]),
            Self::List(list) => (0..0, list.as_slice()),
        };
        range.chain(list.iter().copied()).map(|index| index as usize)
    }
}

impl<F> Clone for Ticket<F> {
    fn clone(&self) -> Self {
        Self { indexes: self.indexes.clone(), fact: PhantomData }
    }
}

impl<F> Default for Ticket<F> {
    fn default() -> Self {
        Self { indexes: Indexes::Range(0..0), fact: PhantomData }
    }
}

/// What the state store knows.
#[derive(Debug, Default)]
pub struct Answers {
    pub facts: FactQueries,
    /// A request of the same digest came before.
    pub repeated: bool,
    /// The calls of each quota that were handed out within its window, oldest first.
    pub spent: Vec<Vec<Use>>,
    /// The sums.
    pub sums: Vec<Tally>,
    /// A person has stopped the conversation or its caller.
    pub stopped: Option<Stopped>,
    /// The shared state store did not answer: this is what this process alone knows.
    pub away: bool,
    /// It answered, but accepts no writes: processes do not learn what the others hand out.
    pub unwritten: bool,
}

/// The keys of one type of fact, and what is known under each.
pub trait FactQuery: Any + Debug + Send + Sync {
    fn rules(&self) -> FactRules;

    /// How many keys there are.
    fn count(&self) -> usize;

    /// The key of this index.
    fn key(&self, index: usize) -> Hash;

    /// Takes what this process knows under each key.
    fn answer(&mut self, find: &mut dyn FnMut(&Hash) -> Option<AnyRecords>);

    /// Adds the records of these bodies, which the shared state store has under the key of this index. Where both know a
    /// different record and one counts, it is the shared state store's, so that all replicas use the same. `replicated`
    /// gets what this process is to keep of them. Returns how many bodies are invalid.
    fn merge(&mut self, index: usize, bodies: &[Vec<u8>], replicated: &mut Writes) -> u64;

    fn clone_boxed(&self) -> Box<dyn FactQuery>;
}

#[derive(Clone, Debug)]
struct Query<F>(SmallVec<[(Hash, Option<Records<F>>); 2]>);

impl<F: Fact> FactQuery for Query<F> {
    fn rules(&self) -> FactRules {
        FactRules::new::<F>()
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn key(&self, index: usize) -> Hash {
        self.0[index].0
    }

    fn answer(&mut self, find: &mut dyn FnMut(&Hash) -> Option<AnyRecords>) {
        for (key, found) in &mut self.0 {
            *found = find(key).and_then(records);
        }
    }

    fn merge(&mut self, index: usize, bodies: &[Vec<u8>], replicated: &mut Writes) -> u64 {
        let (key, found) = &mut self.0[index];
        let own = found.clone().unwrap_or_default();
        let mut all = RecordList::new();
        let mut unreadable = 0;
        for body in bodies {
            let Some(record) = F::from_body(body) else {
                unreadable += 1;
                continue;
            };
            if F::IS_REPLICATED && !own.contains(&record) {
                replicated.add(*key, record.clone());
            }
            record.add_to(&mut all);
        }
        if all.is_empty() {
            return unreadable;
        }
        for record in own.iter() {
            let counts = match F::RETENTION.is_single() {
                true => record.prevails_over(&all[0]),
                false => !all.contains(record),
            };
            if counts {
                record.clone().add_to(&mut all);
            }
        }
        *found = Some(Arc::new(all));
        unreadable
    }

    fn clone_boxed(&self) -> Box<dyn FactQuery> {
        Box::new(self.clone())
    }
}

/// The query for facts of this type, if there is one.
fn query<F: Fact>(facts: &FactQueries) -> Option<&Query<F>> {
    facts.0.iter().find_map(|query| (&**query as &dyn Any).downcast_ref())
}

impl Clone for FactQueries {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|query| query.clone_boxed()).collect())
    }
}

impl Batch {
    /// A batch that asks for nothing.
    pub fn new(now: Now) -> Self {
        Self {
            now,
            request: None,
            conversation: None,
            quotas: Vec::new(),
            sums: Vec::new(),
            ahead: Tally::default(),
            stops: Vec::new(),
            facts: FactQueries::default(),
        }
    }

    /// Asks for the facts under these keys. A key that was asked before costs nothing.
    pub fn ask<F: Fact>(&mut self, keys: impl IntoIterator<Item = Hash>) -> Ticket<F> {
        let mut keys = keys.into_iter().peekable();
        if keys.peek().is_none() {
            return Ticket::default();
        }
        let facts = &mut self.facts.0;
        let position = facts.iter().position(|query| (&**query as &dyn Any).is::<Query<F>>());
        let position = position.unwrap_or_else(|| {
            facts.push(Box::new(Query::<F>(SmallVec::new())));
            facts.len() - 1
        });
        let query = (&mut *facts[position] as &mut dyn Any).downcast_mut::<Query<F>>();
        let Some(Query(all)) = query else { return Ticket::default() };
        let before = all.len();
        let indexes = if before == 0 {
            all.extend(keys.map(|key| (key, None)));
            Indexes::Range(0..all.len() as u32)
        } else {
            let indexes = keys.map(|key| {
                let known = all[..before].iter().position(|(known, _)| *known == key);
                known.unwrap_or_else(|| {
                    all.push((key, None));
                    all.len() - 1
                }) as u32
            });
            Indexes::List(indexes.collect())
        };
        Ticket { indexes, fact: PhantomData }
    }

    /// What is asked, by type.
    pub fn facts(&self) -> impl Iterator<Item = &dyn FactQuery> {
        self.facts.0.iter().map(|query| &**query)
    }

    /// As [`Self::facts`], to be answered.
    pub fn facts_mut(&mut self) -> impl Iterator<Item = &mut (dyn FactQuery + 'static)> {
        self.facts.0.iter_mut().map(|query| &mut **query)
    }

    /// Answers a question for facts of this type by what `find` gives for each key.
    pub fn answer<F: Fact>(&mut self, mut find: impl FnMut(usize, Hash) -> Option<Records<F>>) {
        let queries = self.facts.0.iter_mut();
        let queries = queries.filter_map(|query| (&mut **query as &mut dyn Any).downcast_mut::<Query<F>>());
        for query in queries {
            for (index, (key, found)) in query.0.iter_mut().enumerate() {
                *found = find(index, *key);
            }
        }
    }
}

impl Answers {
    /// What is known under each of the keys that were asked with `ticket`.
    pub fn find<F: Fact>(&self, ticket: &Ticket<F>) -> impl Iterator<Item = Option<&Records<F>>> {
        let query = query::<F>(&self.facts);
        ticket.indexes.iter().map(move |index| query?.0.get(index)?.1.as_ref())
    }

    /// The records under each key of `ticket`.
    pub fn lists<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<Vec<F>> {
        self.find(ticket).map(|found| found.map_or_else(Vec::new, |found| found.to_vec())).collect()
    }

    /// All records under the keys of `ticket`.
    pub fn records<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<F> {
        self.find(ticket).flatten().flat_map(|found| found.iter().cloned()).collect()
    }

    /// The first record under each key of `ticket`.
    pub fn values<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<Option<F>> {
        self.find(ticket).map(|found| found?.first().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Score;
    use super::*;
    use smallvec::smallvec;
    use std::time::Instant;

    fn batch() -> Batch {
        Batch::new(Now { at: Instant::now(), ms: 0 })
    }

    #[test]
    fn each_ticket_finds_the_answers_to_its_own_keys_and_equal_keys_are_asked_once() {
        let mut batch = batch();
        let one = batch.ask::<Score>([Hash(1), Hash(2)]);
        let other = batch.ask::<Score>([Hash(2), Hash(3)]);
        assert_eq!(batch.facts().map(|query| query.count()).collect::<Vec<_>>(), [3]);
        batch.answer(|_, key| (key != Hash(1)).then(|| Arc::new(smallvec![Score(key.0 as u8)])));
        let answers = Answers { facts: batch.facts, ..Answers::default() };
        assert_eq!(answers.values(&one), [None, Some(Score(2))]);
        assert_eq!(answers.records(&other), [Score(2), Score(3)]);
        assert_eq!(Answers::default().values(&one), [None, None], "without an answer");
    }

    #[test]
    fn records_of_both_stores_are_merged_and_what_cannot_be_read_is_counted() {
        let mut batch = batch();
        let ticket = batch.ask::<Score>([Hash(1)]);
        batch.answer(|_, _| Some(Arc::new(smallvec![Score(1), Score(2)])));
        let (query, mut news) = (batch.facts_mut().next().unwrap(), Writes::default());
        assert_eq!(query.merge(0, &[vec![3], vec![2], b"??".to_vec()], &mut news), 1);
        assert_eq!(news.get::<Score>(), [(Hash(1), Score(3))]);
        assert_eq!(query.merge(0, &[vec![2], vec![1]], &mut Writes::default()), 0);
        let answers = Answers { facts: batch.facts, ..Answers::default() };
        assert_eq!(answers.records(&ticket), [Score(2), Score(1)]);
    }
}
