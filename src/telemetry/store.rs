//! Metrics of the shared state store: whether it answers, its errors, and the requests that went without it. The state
//! store decides what counts as an error.

use super::families::{Counters, Maker};
use prometheus::{Error, IntGauge};

/// The operation of the shared state store that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOp {
    Connect,
    LookUp,
    /// An update that was not written, or not at once.
    Record,
    Claim,
    /// A record that is not ours, or broken: it counts as lost.
    Unreadable,
}

impl StoreOp {
    /// As in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::LookUp => "look_up",
            Self::Record => "record",
            Self::Claim => "claim",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The results of requests without the shared store: continued, refused.
const WITHOUT: [&str; 2] = ["local", "refused"];

/// See the module's documentation.
pub(super) struct StoreMetrics {
    up: IntGauge,
    errors: Counters,
    without: Counters,
}

impl StoreMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let up = make.gauge(
            "toolrein_store_up",
            "1: the store answers and accepts writes, as this process's memory always does; 0: the one that \
             replicas share is away, or refuses writes.",
        )?;
        up.set(1);
        Ok(Self {
            up,
            errors: make.words(
                "toolrein_store_errors_total",
                "Errors of the store that replicas share, by operation; unreadable: records that are not ours.",
                "op",
            )?,
            without: make.words(
                "toolrein_store_away_total",
                "Requests for which the shared store did not answer: local continued with what this process knows, \
                 refused were refused (store.strict).",
                "result",
            )?,
        })
    }

    pub(super) fn fail(&self, op: StoreOp, count: u64) {
        self.errors.add(op.as_str(), count);
    }

    pub(super) fn miss(&self, refused: bool) {
        self.without.add(WITHOUT[usize::from(refused)], 1);
    }

    pub(super) fn answers(&self, answers: bool) {
        self.up.set(answers.into());
    }
}
