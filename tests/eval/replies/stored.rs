//! What a state store would have learned, whatever the order and repetition of the updates: each fact once, the last account
//! under each key, and sums added up. How often a report comes depends on how the stream was cut; what it comes to must not.

use model::account::Tally;
use model::store::News;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display, Formatter};

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
    pub fn learn(&mut self, news: News) {
        let News {
            released,
            rounds,
            model,
            asked,
            approved,
            sent,
            spent,
            returned,
            carried,
            tallied,
            overflow,
            pinned,
            history,
        } = news;
        self.add("released", released);
        self.add("hidden exchange", rounds);
        self.add("model", model);
        self.add("asked", asked);
        self.add("approved", approved);
        self.add("sent", sent);
        self.add("spent", spent);
        self.add("returned", returned);
        self.add("overflow", overflow);
        self.add("pinned", pinned.map(|new| format!("{:?} {:?} {}", new.key, new.pins, new.at_ms)));
        self.add("history", history);
        for (key, account) in carried {
            self.accounts.insert(key.to_hex(), format!("{account:?}"));
        }
        for (key, tally) in tallied {
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
