//! The keys of the shared state store and their time to live: a prefix, a letter for the kind, and a keyed hash. No key
//! reveals a caller, a conversation or a tool.

use super::records::{Kind, Seals};
use crate::conversation::identity::{Hash, HashKey};
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
    pub(super) refusals_ms: u64,
}

impl Names {
    /// The lifetimes are those of facts, of sums and of refusals.
    pub(super) fn new(
        prefix: String,
        key: HashKey,
        (lifetime, of_sums, refusals): (Duration, Duration, Duration),
    ) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (ttl_ms, tally_ttl_ms, refusals_ms) = (millis(lifetime), millis(of_sums), millis(refusals));
        Self { prefix, seals: Seals::new(key), ttl_ms, tally_ttl_ms, refusals_ms }
    }

    pub(super) fn key(&self, (kind, name): (Kind, Hash)) -> String {
        format!("{}{}:{name}", self.prefix, char::from(kind as u8))
    }
}
