//! Metrics of the ledger that replicas share: whether it answers, what went wrong, and which requests did without.
//! What counts as an error is the ledger's affair.

use super::families::{Counters, Maker};
use prometheus::{Error, IntGauge};

/// What the shared ledger was wanted for when something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerOp {
    Connect,
    LookUp,
    /// What was told and did not arrive, or not at once.
    Record,
    Claim,
    /// A record that is none of ours, or broken: it counts as lost.
    Unreadable,
}

impl LedgerOp {
    const ALL: [Self; 5] = [Self::Connect, Self::LookUp, Self::Record, Self::Claim, Self::Unreadable];

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

/// What came of requests that the ledger told nothing of: gone on, refused.
const WITHOUT: [&str; 2] = ["local", "refused"];

/// See the file's head.
pub(super) struct SharedLedger {
    up: IntGauge,
    errors: Counters,
    without: Counters,
}

impl SharedLedger {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let up = make.gauge(
            "toolrein_ledger_up",
            "1: the ledger answers and takes what it is told, as this process's memory always does; 0: the one that \
             replicas share is away, or refuses writes.",
        )?;
        up.set(1);
        let ops = LedgerOp::ALL.map(LedgerOp::as_str);
        Ok(Self {
            up,
            errors: make.words(
                "toolrein_ledger_errors_total",
                "What went wrong with the ledger that replicas share, by what it was wanted for; unreadable: records \
                 that are none of ours.",
                "op",
                &ops,
            )?,
            without: make.words(
                "toolrein_ledger_away_total",
                "Requests that the shared ledger told nothing of: local went on with what this process knows, refused \
                 were refused (ledger.strict).",
                "result",
                &WITHOUT,
            )?,
        })
    }

    pub(super) fn fail(&self, op: LedgerOp, count: u64) {
        self.errors.add(op.as_str(), count);
    }

    pub(super) fn miss(&self, refused: bool) {
        self.without.add(WITHOUT[usize::from(refused)], 1);
    }

    pub(super) fn answers(&self, answers: bool) {
        self.up.set(answers.into());
    }
}
