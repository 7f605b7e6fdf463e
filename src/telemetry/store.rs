//! Metrics of the shared state store: whether it answers, its errors, and the requests that went without it. The state
//! store decides what counts as an error.

use super::families::{Counters, Maker};
use model::store_health::{Circuit, StoreOp};
use prometheus::{Error, IntGauge, IntGaugeVec};

/// The results of requests without the shared store: continued, refused.
const WITHOUT: [&str; 2] = ["local", "refused"];

/// See the module's documentation.
pub(super) struct StoreMetrics {
    up: IntGauge,
    breaker: IntGaugeVec,
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
            breaker: make.gauges(
                "toolrein_store_breaker",
                "The circuit breaker before the store that replicas share: 1 for its state. closed: look-ups are made; \
                 open: they are skipped; half_open: one probe is made.",
                &["state"],
            )?,
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

    pub(super) fn breaks(&self, circuit: Circuit) {
        for state in Circuit::ALL {
            self.breaker.with_label_values(&[state.as_str()]).set((state == circuit).into());
        }
    }

    pub(super) fn fail(&self, op: StoreOp, count: u64) {
        self.errors.add(op.as_str(), count);
    }

    pub(super) fn miss(&self, refused: bool) {
        self.without.add(WITHOUT[usize::from(refused)], 1);
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.get() == 1
    }

    /// Errors of all operations.
    pub(super) fn errors(&self) -> u64 {
        self.errors.sum()
    }

    pub(super) fn answers(&self, answers: bool) {
        self.up.set(answers.into());
    }
}
