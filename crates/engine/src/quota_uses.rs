//! The use of quotas by the calls of a request's replies: which of them count, and what the state store learns of them. A call
//! that was handed out before, to a client that has sent its request again, counts no more.

use super::Core;
use super::store::Spent;
use crate::judging::wrapper::expanded_calls;
use crate::pipeline::ClientChoice;
use model::assembled::Assembled;
use model::calls::canonical_hash;
use model::identity::Hash;
use model::uses::{Use, free_calls, use_key};
use std::collections::BTreeMap;

/// What is used of the quotas that count calls of one request.
pub(super) struct QuotaUses {
    /// The calls of each quota that were handed out before the request.
    known: Vec<Vec<Use>>,
    /// The key of the request, computed once: a stream of many choices needs it at every finish.
    request: Option<Hash>,
    /// How many calls of its replies were reported to the store, by the index of their quota and by their key.
    reported: BTreeMap<(usize, Hash), u32>,
}

impl QuotaUses {
    /// Those of a request before which calls were handed out as is `known` of each quota.
    pub(super) fn new(known: Vec<Vec<Use>>) -> Self {
        Self { known, request: None, reported: BTreeMap::new() }
    }

    /// The use by the calls that the client was handed, as far as it was not reported before.
    pub(super) fn news(&mut self, core: &Core, choices: &[ClientChoice<'_>], at_ms: u64) -> Vec<Spent> {
        let counted = core.policies().counted();
        if counted.is_empty() {
            return Vec::new();
        }
        let request = *self.request.get_or_insert_with(|| core.request_key());
        let mut news = Vec::new();
        for ((quota, call), calls) in released(core, choices, request) {
            let Some(counted) = counted.get(quota) else { continue };
            let known = self.known.get(quota).map_or(&[][..], Vec::as_slice);
            let free = free_calls(known, (request, call), at_ms);
            let before = self.reported.insert((quota, call), calls).unwrap_or(0);
            let last = known.iter().filter(|known| known.call == call).max_by_key(|known| known.nth).copied();
            let (quota, window_ms) = (core.identity.quota(&counted.name), counted.window_ms);
            let again = Spent { quota, call, request, last, is_again: true, calls: 0, at_ms, window_ms };
            news.extend((before == 0 && free > 0).then_some(again));
            let counting = calls.saturating_sub(free.max(before));
            news.extend((counting > 0).then_some(Spent { is_again: false, calls: counting, ..again }));
        }
        news
    }
}

/// How many calls of each key the client was handed, by the index of their quota. A wrapper call is the calls within it.
fn released(core: &Core, choices: &[ClientChoice<'_>], request: Hash) -> BTreeMap<(usize, Hash), u32> {
    let named = |call: &Assembled| match expanded_calls(call) {
        made if made.is_empty() => vec![(call.name(), call.arguments())],
        made => made.into_iter().map(|made| (made.name, made.arguments)).collect(),
    };
    let settled = choices.iter().filter(|choice| !choice.is_waiting());
    let mut released: BTreeMap<(usize, Hash), u32> = BTreeMap::new();
    for (name, arguments) in settled.flat_map(|choice| choice.released()).flat_map(named) {
        if let Some(quota) = core.policies().counts_for(&name) {
            let arguments = canonical_hash(&arguments, &core.identity.key);
            let call = use_key(&core.identity.key, request, &name, arguments);
            *released.entry((quota, call)).or_default() += 1;
        }
    }
    released
}
