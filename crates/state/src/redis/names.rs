//! The keys of the shared state store and their time to live: a prefix, a letter for the kind, and a keyed hash. No key
//! reveals a caller, a conversation or a tool.

use super::records::{Seals, StoreKeys};
use model::fact::{Lifetime, Record as _, RecordKind};
use model::identity::Hash;
use model::store::HiddenExchange;
use std::time::Duration;

/// See the module's documentation.
#[derive(Clone)]
pub(super) struct Names {
    prefix: String,
    pub(super) seals: Seals,
    /// How long a fact lives, in ms.
    pub(super) ttl_ms: u64,
    /// How long a sum lives, in ms.
    pub(super) tally_ttl_ms: u64,
    /// How long a model's refusals are kept, in ms; 0: not at all.
    refusals_ms: u64,
    /// See [`Settings::is_hidden_exchange`](super::Settings::is_hidden_exchange).
    is_hidden_exchange: fn(&[u8]) -> bool,
}

/// How long things are kept.
#[derive(Clone, Copy)]
pub(super) struct Lifetimes {
    pub(super) facts: Duration,
    pub(super) sums: Duration,
    /// What a model refuses; zero: not at all.
    pub(super) refusals: Duration,
}

impl Names {
    pub(super) fn new(
        prefix: String,
        keys: &StoreKeys,
        lifetimes: Lifetimes,
        is_hidden_exchange: fn(&[u8]) -> bool,
    ) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Lifetimes { facts, sums, refusals } = lifetimes;
        let seals = Seals::new(keys);
        Self {
            prefix,
            seals,
            ttl_ms: millis(facts),
            tally_ttl_ms: millis(sums),
            refusals_ms: millis(refusals),
            is_hidden_exchange,
        }
    }

    pub(super) fn key(&self, (kind, name): (RecordKind, Hash)) -> String {
        format!("{}{}:{name}", self.prefix, char::from(kind.letter()))
    }

    /// How long a fact of this lifetime lives, in ms; 0: it is not written.
    pub(super) fn lifetime_ms(&self, lifetime: Lifetime) -> u64 {
        match lifetime {
            Lifetime::Facts => self.ttl_ms,
            Lifetime::Refusals => self.refusals_ms,
        }
    }

    /// The body of a sealed record that may be used; `None`: it is not ours, or broken.
    pub(super) fn open_body(&self, about: (RecordKind, Hash), sealed: &[u8]) -> Option<Vec<u8>> {
        let body = self.seals.open_body(about, sealed)?;
        let is_usable = about.0 != RecordKind::HiddenExchange
            || HiddenExchange::from_body(&body).is_some_and(|it| (self.is_hidden_exchange)(&it.messages));
        is_usable.then_some(body)
    }
}
