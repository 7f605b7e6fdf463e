//! Warnings about refusals of models that are remembered, with what each costs: one log line per model, kind and callers.
//! Metrics and the dashboard count each request.

use model::record::{RefusalNote, RefusalScope, RequestRecord};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most refusals that are warned about, and the most characters of a model's name: clients choose these.
const MOST: usize = 1_000;
const MODEL_CHARS: usize = 64;

/// The refusals that were warned about. A std mutex: held for a look-up, once for each refusal that is learned.
static WARNED: Mutex<BTreeSet<(String, &str, RefusalScope)>> = Mutex::new(BTreeSet::new());

/// Warns about the refusals that the request met and that are remembered from now on.
pub(super) fn warn_once(record: &RequestRecord) {
    for RefusalNote { kind, scope, .. } in record.refusals.iter().filter(|note| note.is_new) {
        let model: String = record.model.iter().flat_map(|model| model.chars()).take(MODEL_CHARS).collect();
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() >= MOST || !warned.insert((model.clone(), kind.as_str(), *scope)) {
            continue;
        }
        drop(warned);
        let whom = match scope {
            RefusalScope::OneCaller => "the caller whose request met it",
            RefusalScope::AllCallers => "all callers, since two have met it",
        };
        tracing::warn!(
            model,
            refused = kind.as_str(),
            counts_for = whom,
            cost = kind.cost(),
            "an upstream refused the form of a request, and that is remembered (upstream.remember); reported once for \
             each model, kind and callers"
        );
    }
}
