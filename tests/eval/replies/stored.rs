//! What a state store would have learned, whatever the order and repetition of the updates: each fact once, the last account
//! under each key, and sums added up. How often a report comes depends on how the stream was cut; what it comes to must not.

use model::account::{Carried, Tally};
use model::fact::Writes;
use model::pins::Pinned;
use model::plan::approval::Confirmation;
use model::released::Release;
use model::store::{ApprovedCall, Evidence, HiddenExchange, LengthRefusal, SentExchanges, UpstreamRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

/// See the file's head.
#[derive(Default)]
pub struct Stored {
    facts: BTreeSet<String>,
    /// The last ones, by key.
    accounts: BTreeMap<String, String>,
    sums: BTreeMap<String, Tally>,
}

impl Stored {
    /// Takes an update.
    pub fn learn(&mut self, mut writes: Writes) {
        self.add("released", writes.take::<Release>());
        self.add("hidden exchange", writes.take::<HiddenExchange>());
        self.add("model", writes.take::<Evidence>());
        let asked = writes.take::<Arc<Confirmation>>();
        self.add("asked", asked.iter().map(|(key, asked)| (key, &**asked)));
        self.add("approved", writes.take::<ApprovedCall>().into_iter().map(|(key, _)| key));
        self.add("sent", writes.take::<SentExchanges>().into_iter().map(|(_, sent)| sent));
        self.add("overflow", writes.take::<LengthRefusal>());
        for (key, pin) in writes.take::<Pinned>() {
            self.facts.insert(format!("pinned: {key:?} {:?} {}", [pin], writes.seen_ms));
        }
        self.add("history", writes.take::<UpstreamRecord>().into_iter().map(|(key, known)| (key, known.0)));
        for (key, account) in writes.take::<Arc<Carried>>() {
            self.accounts.insert(key.to_hex(), format!("{account:?}"));
        }
        self.add("spent", writes.spent);
        self.add("returned", writes.returned);
        for (key, tally) in writes.tallied {
            let sum = self.sums.entry(key.to_hex()).or_default();
            *sum = sum.plus(&tally);
        }
    }

    fn add<T: Debug>(&mut self, kind: &str, facts: impl IntoIterator<Item = T>) {
        self.facts.extend(facts.into_iter().map(|fact| format!("{kind}: {fact:?}")));
    }
}

impl Display for Stored {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for fact in &self.facts {
            writeln!(out, "{fact}")?;
        }
        for (key, account) in &self.accounts {
            writeln!(out, "account {key}: {account}")?;
        }
        for (key, sum) in &self.sums {
            writeln!(out, "sum {key}: {sum:?}")?;
        }
        Ok(())
    }
}
