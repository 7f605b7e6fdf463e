//! What models refuse, as requests of this process met or avoided it since its start: for whom it counts, and how many
//! requests were sent in another form for it.

use crate::telemetry::bounded;
use model::record::{RefusalNote, RefusalScope, RequestRecord};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most refusals that are shown; further ones are left out.
const MOST: usize = 200;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Refusals(BTreeMap<(String, &'static str, RefusalScope), RefusalTotals>);

/// One refusal of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalTotals {
    pub model: String,
    /// As in `toolrein_fallbacks_total`.
    pub kind: &'static str,
    /// For whom it counts: `one` caller at a time, `all`.
    pub callers: &'static str,
    /// What it costs, in words.
    pub cost: &'static str,
    /// Requests that met it.
    pub met: u64,
    /// Requests that were sent in another form at once.
    pub avoided: u64,
    /// When the first and the last of these requests ended, in ms since the epoch.
    pub first_ms: u64,
    pub last_ms: u64,
}

impl Refusals {
    pub(super) fn record(&mut self, record: &RequestRecord, now_ms: u64) {
        for RefusalNote { kind, scope, is_new } in &record.refusals {
            let model = bounded::name(record.model.as_deref().unwrap_or("none")).into_owned();
            let key = (model.clone(), kind.as_str(), *scope);
            if !self.0.contains_key(&key) && self.0.len() >= MOST {
                continue;
            }
            let totals = self.0.entry(key).or_insert_with(|| RefusalTotals {
                model,
                kind: kind.as_str(),
                callers: scope.as_str(),
                cost: kind.cost(),
                met: 0,
                avoided: 0,
                first_ms: now_ms,
                last_ms: now_ms,
            });
            let count = if *is_new { &mut totals.met } else { &mut totals.avoided };
            *count += 1;
            totals.last_ms = now_ms;
        }
    }

    /// The refusals, the one that the most requests met or avoided first.
    pub(super) fn totals(&self) -> Vec<RefusalTotals> {
        let mut all: Vec<RefusalTotals> = self.0.values().cloned().collect();
        all.sort_by_key(|totals| std::cmp::Reverse(totals.met + totals.avoided));
        all
    }
}
