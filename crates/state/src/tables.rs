//! The facts in this process's memory: a bounded table for each kind, whatever its type. Finds and adds records.

use crate::cache::{Cache, ENTRY_BYTES, update, weighed};
use crate::memory::{Bounds, millis};
use crate::recent::Recent;
use model::fact::{AnyRecords, Batch, FactRules, Lifetime, RecordKind, Room, Writes};
use model::identity::Hash;
use std::sync::OnceLock;

/// The most lists of evidence about models: one for each model, and one for each of its callers.
const MOST_EVIDENCE_LISTS: u64 = 10_000;

/// See the module's documentation.
pub(super) struct Tables {
    bounds: Bounds,
    tables: [OnceLock<Table>; RecordKind::COUNT],
}

enum Table {
    /// Small records, about as many under each key.
    Counted(Recent<AnyRecords>),
    /// Records of any size, with their size in bytes.
    Weighed(Cache<(AnyRecords, usize)>),
}

impl Table {
    fn new(rules: FactRules, bounds: &Bounds) -> Self {
        let lifetime = match rules.lifetime {
            Lifetime::Facts => bounds.lifetime,
            Lifetime::Refusals => bounds.refusals,
        };
        let counted = |most| Self::Counted(Recent::new(most, millis(lifetime)));
        match rules.room {
            Room::Calls => counted(bounds.calls),
            Room::Conversations => counted(bounds.conversations),
            Room::Models => counted(MOST_EVIDENCE_LISTS),
            Room::Bytes => Self::Weighed(weighed(
                bounds.hidden_exchange_bytes,
                lifetime,
                |(_, size): &(AnyRecords, usize)| size + ENTRY_BYTES,
            )),
        }
    }

    fn find(&self, key: &Hash, now_ms: u64) -> Option<AnyRecords> {
        match self {
            Self::Counted(table) => table.find(key, now_ms),
            // Most keys are unknown, and moka makes a note of every look-up that finds nothing.
            Self::Weighed(table) => {
                let known = table.contains_key(key).then(|| table.get(key)).flatten();
                known.map(|(records, _)| records)
            }
        }
    }

    /// Replaces the records under `key` by the result of `next`, which gives their size too, atomically.
    fn update(&self, key: Hash, now_ms: u64, next: impl FnOnce(Option<AnyRecords>) -> (AnyRecords, usize)) {
        match self {
            Self::Counted(table) => table.update(key, now_ms, |known| next(known).0),
            Self::Weighed(table) => update(table, key, |known| next(known.map(|(records, _)| records))),
        }
    }
}

impl Tables {
    /// Empty tables.
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self { bounds: *bounds, tables: [const { OnceLock::new() }; RecordKind::COUNT] }
    }

    /// Answers what is asked, at `now_ms` of the store's clock.
    pub(super) fn answer(&self, batch: &mut Batch, now_ms: u64) {
        for query in batch.facts_mut() {
            let Some(table) = self.tables[query.rules().kind as usize].get() else { continue };
            query.answer(&mut |key| table.find(key, now_ms));
        }
    }

    /// Adds records.
    pub(super) fn write(&self, writes: &Writes, now_ms: u64) {
        for facts in writes.facts() {
            let table = self.table(facts.rules());
            for index in 0..facts.count() {
                table.update(facts.key(index), now_ms, |known| facts.add_to(index, known));
            }
        }
    }

    fn table(&self, rules: FactRules) -> &Table {
        self.tables[rules.kind as usize].get_or_init(|| Table::new(rules, &self.bounds))
    }
}
