//! Writes: what one request adds to the state store.

use super::{AnyRecords, Fact, FactRules, RecordList, records};
use crate::account::Tally;
use crate::identity::Hash;
use crate::store::QuotaCall;
use crate::uses::Use;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// See the file's head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    pub facts: NewFacts,
    /// When what [`Retention::First`](super::Retention::First) keeps was seen, in ms since the epoch.
    pub seen_ms: u64,
    /// Calls of quotas that were handed out and that no reservation has counted.
    pub spent: Vec<QuotaCall>,
    /// The uses of quotas by calls that were not handed out after all, by the key of their quota.
    pub returned: Vec<(Hash, Use)>,
    /// What is to be added to sums, by key.
    pub tallied: Vec<(Hash, Tally)>,
}

/// New facts, by type.
#[derive(Debug, Default)]
pub struct NewFacts(SmallVec<[Box<dyn FactWrites>; 1]>);

/// The new records of one type of fact.
pub trait FactWrites: Any + Debug + Send + Sync {
    fn rules(&self) -> FactRules;

    /// How many there are.
    fn count(&self) -> usize;

    /// The key of the record of this index.
    fn key(&self, index: usize) -> Hash;

    /// The `known` records under the key of this index with its record added, and their size in bytes.
    fn add_to(&self, index: usize, known: Option<AnyRecords>) -> (AnyRecords, usize);

    /// The body of the record of this index, where it can be written.
    fn body(&self, index: usize) -> Option<Vec<u8>>;

    /// The size of all in bytes.
    fn size(&self) -> usize;

    fn clone_boxed(&self) -> Box<dyn FactWrites>;

    /// Whether `other` holds the same records.
    fn equals(&self, other: &dyn FactWrites) -> bool;
}

impl PartialEq for NewFacts {
    fn eq(&self, other: &Self) -> bool {
        let mut both = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && both.all(|(one, other)| one.equals(&**other))
    }
}

impl Clone for NewFacts {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|facts| facts.clone_boxed()).collect())
    }
}

#[derive(Clone, Debug)]
struct NewRecords<F>(SmallVec<[(Hash, F); 1]>);

impl<F: Fact> FactWrites for NewRecords<F> {
    fn rules(&self) -> FactRules {
        FactRules::new::<F>()
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn key(&self, index: usize) -> Hash {
        self.0[index].0
    }

    fn add_to(&self, index: usize, known: Option<AnyRecords>) -> (AnyRecords, usize) {
        let known = known.and_then(records::<F>);
        let mut all = known.map_or_else(RecordList::new, Arc::unwrap_or_clone);
        self.0[index].1.clone().add_to(&mut all);
        let size = all.iter().map(F::size).sum();
        (Arc::new(all), size)
    }

    fn body(&self, index: usize) -> Option<Vec<u8>> {
        self.0[index].1.to_body()
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(_, record)| size_of::<Hash>() + record.size()).sum()
    }

    fn clone_boxed(&self) -> Box<dyn FactWrites> {
        Box::new(self.clone())
    }

    fn equals(&self, other: &dyn FactWrites) -> bool {
        let other = (other as &dyn Any).downcast_ref::<Self>();
        other.is_some_and(|other| self.0 == other.0)
    }
}

impl Writes {
    /// One fact.
    pub fn from_fact<F: Fact>(key: Hash, record: F) -> Self {
        let mut writes = Self::default();
        writes.add(key, record);
        writes
    }

    /// Adds a fact.
    pub fn add<F: Fact>(&mut self, key: Hash, record: F) {
        match self.records_mut::<F>() {
            Some(records) => records.push((key, record)),
            None => self.facts.0.push(Box::new(NewRecords(SmallVec::from_iter([(key, record)])))),
        }
    }

    /// Adds facts.
    pub fn extend<F: Fact>(&mut self, facts: impl IntoIterator<Item = (Hash, F)>) {
        facts.into_iter().for_each(|(key, record)| self.add(key, record));
    }

    /// The new facts of this type, by key.
    pub fn get<F: Fact>(&self) -> &[(Hash, F)] {
        let mut all = self.facts.0.iter().map(|facts| &**facts as &dyn Any);
        all.find_map(|facts| facts.downcast_ref::<NewRecords<F>>()).map_or(&[], |new| &new.0)
    }

    /// Removes the new facts of this type, and returns them.
    pub fn take<F: Fact>(&mut self) -> Vec<(Hash, F)> {
        let taken = self.records_mut::<F>().map_or_else(Vec::new, |records| records.drain(..).collect());
        self.facts.0.retain(|facts| facts.count() > 0);
        taken
    }

    /// The new facts, by type.
    pub fn facts(&self) -> impl Iterator<Item = &dyn FactWrites> {
        self.facts.0.iter().map(|facts| &**facts)
    }

    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        let is_empty = self.spent.is_empty() && self.returned.is_empty() && self.tallied.is_empty();
        is_empty && self.facts.0.iter().all(|facts| facts.count() == 0)
    }

    fn records_mut<F: Fact>(&mut self) -> Option<&mut SmallVec<[(Hash, F); 1]>> {
        let mut all = self.facts.0.iter_mut().map(|facts| &mut **facts as &mut dyn Any);
        all.find_map(|facts| facts.downcast_mut::<NewRecords<F>>()).map(|new| &mut new.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Score;
    use super::*;

    #[test]
    fn facts_are_kept_by_type_until_they_are_taken() {
        let mut writes = Writes::from_fact(Hash(1), Score(1));
        writes.extend([(Hash(2), Score(2))]);
        assert_eq!(writes.clone().get::<Score>(), [(Hash(1), Score(1)), (Hash(2), Score(2))]);
        let facts = writes.facts().next().unwrap();
        let (known, _) = facts.add_to(0, None);
        let (known, size) = facts.add_to(1, Some(known));
        assert_eq!((records::<Score>(known).unwrap()[..].to_vec(), size), (vec![Score(1), Score(2)], 2));
        assert_eq!(writes.take::<Score>().len(), 2);
        assert!(writes.is_empty());
    }
}
