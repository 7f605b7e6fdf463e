//! The evidence that requests of callers give of what models refuse. Plain data: which evidence counts for whom is decided
//! in [`crate::refusals`].

use model::adaptation::Adaptations;
use model::identity::Hash;

/// What one request showed of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Whose request it was.
    pub caller: Hash,
    /// With these, the model accepted the request; without, it refused it.
    pub refused: Adaptations,
    /// Without these, the model accepted the request.
    pub accepted: Adaptations,
    /// When the request came, in ms since the epoch.
    pub at_ms: u64,
}

/// The most evidence in one list, the newest: of each refusal, two callers and one request that was accepted are enough.
pub const MOST_EVIDENCE: usize = 32;

/// Adds `evidence` to a list, which keeps its newest entries.
pub fn add_evidence(known: &mut Vec<Evidence>, evidence: Evidence) {
    known.retain(|other| *other != evidence);
    known.push(evidence);
    let surplus = known.len().saturating_sub(MOST_EVIDENCE);
    known.drain(..surplus);
}

/// The keys of the lists of evidence about a model at its upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelKeys {
    /// Of all callers.
    pub all: Hash,
    /// Of the request's caller.
    pub own: Hash,
}

/// The evidence about a model, in the order in which it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownEvidence {
    /// Of all callers.
    pub all: Vec<Evidence>,
    /// Of the request's caller.
    pub own: Vec<Evidence>,
}
