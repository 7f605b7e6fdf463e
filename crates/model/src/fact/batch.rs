//! A batch: everything that one request asks the state store, in one trip.

use super::{AnyRecords, Fact, FactRules, Kept, RecordList, Records, Writes, records};
use crate::account::Tally;
use crate::identity::Hash;
use crate::store::{Quota, Stop};
use crate::uses::Use;
use crate::{Now, Stopped};
use std::any::Any;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// See the file's head.
#[derive(Debug)]
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
pub struct FactQueries(Vec<Box<dyn FactQuery>>);

/// The place of an answer to a [`Batch`]: of the keys that were asked with it, in their order.
#[derive(Debug)]
pub struct Ticket<F> {
    /// The indexes of the keys among all of this type.
    indexes: Vec<u32>,
    fact: PhantomData<fn() -> F>,
}

impl<F> Default for Ticket<F> {
    fn default() -> Self {
        Self { indexes: Vec::new(), fact: PhantomData }
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

    fn keys(&self) -> &[Hash];

    /// Takes what this process knows under the key of this index.
    fn put(&mut self, index: usize, known: AnyRecords);

    /// Adds the records of these bodies, which the shared state store has under the key of this index. Where both know a
    /// different record and one counts, it is the shared state store's, so that all replicas use the same. `news` gets what
    /// this process is to keep of them. Returns how many bodies are invalid.
    fn merge(&mut self, index: usize, bodies: &[Vec<u8>], news: &mut Writes) -> u64;

    fn boxed(&self) -> Box<dyn FactQuery>;
}

#[derive(Clone, Debug)]
struct Query<F> {
    keys: Vec<Hash>,
    found: Vec<Option<Records<F>>>,
}

impl<F: Fact> FactQuery for Query<F> {
    fn rules(&self) -> FactRules {
        FactRules::of::<F>()
    }

    fn keys(&self) -> &[Hash] {
        &self.keys
    }

    fn put(&mut self, index: usize, known: AnyRecords) {
        self.found[index] = records(known);
    }

    fn merge(&mut self, index: usize, bodies: &[Vec<u8>], news: &mut Writes) -> u64 {
        let own = self.found[index].clone().unwrap_or_default();
        let is_list = matches!(F::KEPT, Kept::Last(_) | Kept::First(_));
        let mut all = RecordList::new();
        let mut unreadable = 0;
        for body in bodies {
            let Some(record) = F::from_body(body) else {
                unreadable += 1;
                continue;
            };
            if F::IS_REPLICATED && !own.contains(&record) {
                news.add(self.keys[index], record.clone());
            }
            record.add_to(&mut all);
        }
        if all.is_empty() {
            return unreadable;
        }
        for record in own.iter() {
            let counts = match is_list {
                true => !all.contains(record),
                false => record.prevails_over(&all[0]),
            };
            if counts {
                record.clone().add_to(&mut all);
            }
        }
        self.found[index] = Some(Arc::new(all));
        unreadable
    }

    fn boxed(&self) -> Box<dyn FactQuery> {
        Box::new(self.clone())
    }
}

/// Those of this type, if any was asked for.
fn query<F: Fact>(facts: &FactQueries) -> Option<&Query<F>> {
    facts.0.iter().find_map(|query| (&**query as &dyn Any).downcast_ref())
}

impl Clone for Batch {
    fn clone(&self) -> Self {
        Self {
            quotas: self.quotas.clone(),
            sums: self.sums.clone(),
            stops: self.stops.clone(),
            facts: FactQueries(self.facts.0.iter().map(|query| query.boxed()).collect()),
            ..*self
        }
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
            facts.push(Box::new(Query::<F> { keys: Vec::new(), found: Vec::new() }));
            facts.len() - 1
        });
        let query = (&mut *facts[position] as &mut dyn Any).downcast_mut::<Query<F>>();
        let Some(query) = query else { return Ticket::default() };
        let before = query.keys.len();
        let indexes = keys.map(|key| {
            let known = query.keys[..before].iter().position(|known| *known == key);
            let index = known.unwrap_or(query.keys.len());
            if known.is_none() {
                query.keys.push(key);
            }
            index as u32
        });
        let indexes = indexes.collect();
        query.found.resize(query.keys.len(), None);
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
            for (index, (key, found)) in query.keys.iter().zip(&mut query.found).enumerate() {
                *found = find(index, *key);
            }
        }
    }
}

impl Answers {
    /// What is known under each of the keys that were asked with `ticket`.
    pub fn find<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<Option<Records<F>>> {
        let query = query::<F>(&self.facts);
        let found = |index: &u32| query.and_then(|query| query.found.get(*index as usize)?.clone());
        ticket.indexes.iter().map(found).collect()
    }

    /// The records under each key of `ticket`.
    pub fn lists<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<Vec<F>> {
        self.find(ticket)
            .iter()
            .map(|found| found.as_ref().map_or_else(Vec::new, |found| found.to_vec()))
            .collect()
    }

    /// All records under the keys of `ticket`.
    pub fn records<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<F> {
        self.find(ticket).iter().flatten().flat_map(|found| found.iter().cloned()).collect()
    }

    /// The first record under each key of `ticket`.
    pub fn values<F: Fact>(&self, ticket: &Ticket<F>) -> Vec<Option<F>> {
        self.find(ticket).into_iter().map(|found| found?.first().cloned()).collect()
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
        assert_eq!(batch.facts().map(|query| query.keys().len()).collect::<Vec<_>>(), [3]);
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
