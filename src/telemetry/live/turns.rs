//! Who meets which limit: blocked calls by policy and tool, and how far the turns of conversations came towards each
//! policy's limit.

use super::conversations::Met;
use crate::telemetry::bounded;
use model::record::{RequestRecord, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most pairs of a policy and a tool that are kept apart.
const MOST_PAIRS: usize = 1_000;
/// All further tools.
const OTHER: &str = "other";
/// The shares of a limit whose reaching is counted.
const SHARES: [f64; 3] = [0.5, 0.8, 1.0];

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Turns {
    blocked: BTreeMap<(&'static str, String), u64>,
    by_policy: BTreeMap<&'static str, TurnTotals>,
}

/// Calls that one policy blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockedBy {
    pub policy: &'static str,
    pub tool: String,
    pub blocked: u64,
}

/// How far turns came towards the scarcest limit of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TurnTotals {
    pub policy: &'static str,
    pub turns: u64,
    pub reached_50: u64,
    pub reached_80: u64,
    pub reached_100: u64,
}

impl Turns {
    pub(super) fn record(&mut self, record: &RequestRecord, met: &Met) {
        for call in record.judged.iter().filter(|call| call.verdict == Verdict::Block) {
            let Some(first) = call.decisions.first() else { continue };
            let tool = bounded::name(&call.tool).into_owned();
            let key = (first.policy, tool);
            let is_kept = self.blocked.contains_key(&key) || self.blocked.len() < MOST_PAIRS;
            *self.blocked.entry(if is_kept { key } else { (first.policy, OTHER.to_owned()) }).or_default() +=
                1;
        }
        for (policy, before, now) in &met.shares {
            let totals = self.by_policy.entry(policy).or_insert_with(|| TurnTotals::of(policy));
            totals.turns += u64::from(before.is_none());
            let reached = SHARES.map(|share| u64::from(*now >= share && before.is_none_or(|it| it < share)));
            totals.reached_50 += reached[0];
            totals.reached_80 += reached[1];
            totals.reached_100 += reached[2];
        }
    }

    pub(super) fn summaries(&self) -> (Vec<BlockedBy>, Vec<TurnTotals>) {
        let mut blocked: Vec<BlockedBy> = self
            .blocked
            .iter()
            .map(|((policy, tool), blocked)| BlockedBy { policy, tool: tool.clone(), blocked: *blocked })
            .collect();
        blocked.sort_by_key(|by| std::cmp::Reverse(by.blocked));
        (blocked, self.by_policy.values().cloned().collect())
    }
}

impl TurnTotals {
    fn of(policy: &'static str) -> Self {
        Self { policy, ..Self::default() }
    }
}
