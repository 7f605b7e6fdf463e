//! What each named caller has used since the start, and what its limits have left. Bounded by the setting, as metrics
//! are: further callers share one row, whose limits are nobody's.

use crate::telemetry::callers::{OTHER, is_special, label_of};
use model::record::{LimitUse, RequestRecord};
use serde::Serialize;
use std::collections::BTreeMap;

const DAY_MS: u64 = 86_400_000;
/// How the names of limits of a caller's day begin.
const OF_DAY: &str = "day:";

/// See the module's documentation.
pub(super) struct Callers {
    /// The most callers with rows of their own; 0: none is kept.
    most: usize,
    by_label: BTreeMap<String, CallerTotals>,
    /// How many of them count against the bound.
    count: usize,
}

/// What one caller has used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CallerTotals {
    /// Its name; `other`: all without a row of their own; `none`: requests that name nobody.
    pub caller: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// In US dollars; null where no price is known.
    pub cost_usd: Option<f64>,
    /// The end of its newest request, in ms since the epoch.
    pub last_ms: u64,
    /// Its limits over all its conversations, as of its newest request.
    pub budgets: Vec<CallerBudget>,
}

/// A limit of one caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallerBudget {
    pub policy: Option<&'static str>,
    /// As in the log: `day:spend_microusd`, or the name of a quota.
    pub name: String,
    pub used: u64,
    pub limit: u64,
    pub left: u64,
}

impl Callers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, by_label: BTreeMap::new(), count: 0 }
    }

    /// Keeps at most so many callers apart; those that are kept stay, unless it is none.
    pub(super) fn bound(&mut self, most: usize) {
        self.most = most;
        if most == 0 {
            *self = Self::new(0);
        }
    }

    /// Takes in a request whose caller is named.
    pub(super) fn record(&mut self, record: &RequestRecord, now_ms: u64) {
        let Some(name) = record.caller_name.as_ref().filter(|_| self.most > 0) else { return };
        let caller = self.caller(label_of(name));
        caller.requests += 1;
        caller.input_tokens += record.tokens.prompt;
        caller.output_tokens += record.tokens.completion;
        if let Some(nanodollars) = record.cost {
            *caller.cost_usd.get_or_insert_default() += nanodollars as f64 / 1e9;
        }
        caller.last_ms = now_ms;
        let limits = record.usage_of_limits.iter().filter(|limit| limit.of_caller);
        let budgets: Vec<CallerBudget> = limits.map(|limit| CallerBudget::after(limit, record)).collect();
        // A request that was refused says nothing of them.
        if !budgets.is_empty() && caller.caller != OTHER {
            caller.budgets = budgets;
        }
    }

    /// All of them, the one that cost most first.
    pub(super) fn totals(&self, now_ms: u64) -> Vec<CallerTotals> {
        let mut all: Vec<CallerTotals> = self.by_label.values().map(|caller| caller.at(now_ms)).collect();
        let tokens = |caller: &CallerTotals| caller.input_tokens + caller.output_tokens;
        all.sort_by(|one, next| {
            let by_cost = next.cost_usd.unwrap_or_default().total_cmp(&one.cost_usd.unwrap_or_default());
            by_cost.then(tokens(next).cmp(&tokens(one)))
        });
        all
    }

    fn caller(&mut self, label: &str) -> &mut CallerTotals {
        let is_known = self.by_label.contains_key(label);
        let fits = is_known || is_special(label) || self.count < self.most;
        let label = if fits { label } else { OTHER };
        self.count += usize::from(fits && !is_known && !is_special(label));
        let new = || CallerTotals { caller: label.to_owned(), ..CallerTotals::default() };
        self.by_label.entry(label.to_owned()).or_insert_with(new)
    }
}

impl CallerTotals {
    /// As it is now: a budget of a day that is over is whole again.
    fn at(&self, now_ms: u64) -> Self {
        let mut now = self.clone();
        if now_ms / DAY_MS != self.last_ms / DAY_MS {
            let of_day = now.budgets.iter_mut().filter(|budget| budget.name.starts_with(OF_DAY));
            of_day.for_each(|budget| (budget.used, budget.left) = (0, budget.limit));
        }
        now
    }
}

impl CallerBudget {
    /// The limit after the request of this record: policies have seen it as it was before the reply was billed.
    fn after(limit: &LimitUse, record: &RequestRecord) -> Self {
        let own = match limit.tool.strip_prefix(OF_DAY) {
            Some("requests") => record.upstream_requests.into(),
            Some("billed_tokens") => record.tokens.prompt + record.tokens.completion,
            Some("spend_microusd") => record.cost.unwrap_or_default() / 1_000,
            _ => 0,
        };
        let used = limit.used + own;
        Self {
            policy: limit.policy,
            name: limit.tool.clone(),
            used,
            limit: limit.limit,
            left: limit.limit.saturating_sub(used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::callers::caller_name;
    use model::record::Route;

    fn record(name: &str, cost: Option<u64>, limits: &[(&str, u64, bool)]) -> RequestRecord {
        let mut record = RequestRecord::new(Route::Chat);
        record.caller_name = Some(caller_name(name.as_bytes()));
        (record.cost, record.tokens.prompt, record.upstream_requests) = (cost, 7, 1);
        let limit = |&(tool, used, of_caller): &(&str, u64, bool)| LimitUse {
            policy: Some("budget"),
            tool: tool.to_owned(),
            used,
            limit: 1_000,
            is_used: true,
            of_caller,
        };
        record.usage_of_limits = limits.iter().map(limit).collect();
        record
    }

    fn left(callers: &Callers, name: &str, now_ms: u64) -> Vec<(String, u64)> {
        let totals = callers.totals(now_ms);
        let caller = totals.iter().find(|caller| caller.caller == name).unwrap();
        caller.budgets.iter().map(|budget| (budget.name.clone(), budget.left)).collect()
    }

    #[test]
    fn what_is_left_counts_the_newest_reply_and_a_new_day_is_whole() {
        let mut callers = Callers::new(5);
        let limits = [
            ("day:spend_microusd", 100, true),
            ("day:requests", 3, true),
            ("day:billed_tokens", 0, true),
            ("searches", 2, true),
            ("turn:requests", 9, false),
        ];
        callers.record(&record("ann", Some(250_000), &limits), 10);
        let named = |left: [u64; 4]| -> Vec<(String, u64)> {
            limits[..4].iter().map(|(name, ..)| (*name).to_owned()).zip(left).collect()
        };
        assert_eq!(left(&callers, "ann", 20), named([650, 996, 993, 998]));
        callers.record(&record("ann", None, &[]), 30);
        assert_eq!(left(&callers, "ann", 40), named([650, 996, 993, 998]), "a refused request says nothing");
        assert_eq!(left(&callers, "ann", DAY_MS), named([1_000, 1_000, 1_000, 998]));
    }

    #[test]
    fn callers_are_bounded_and_summable_and_the_dearest_is_first() {
        let mut callers = Callers::new(2);
        for (name, cost) in [("ann", 1), ("bob", 5), ("eve", 9), ("", 3), ("zoe", 9), ("ann", 1)] {
            callers.record(&record(name, Some(cost * 1_000_000_000), &[("day:requests", 1, true)]), 10);
        }
        let rows: Vec<(String, u64, f64)> = callers
            .totals(10)
            .into_iter()
            .map(|row| (row.caller, row.requests, row.cost_usd.unwrap_or_default()))
            .collect();
        let expected = [("other", 2, 18.0), ("bob", 1, 5.0), ("none", 1, 3.0), ("ann", 2, 2.0)];
        assert_eq!(rows, expected.map(|(name, requests, cost)| (name.to_owned(), requests, cost)));
        assert_eq!(left(&callers, "other", 10), [], "limits of several callers are no one's");
        callers.bound(0);
        callers.record(&record("ann", None, &[]), 10);
        assert_eq!(callers.totals(10), []);
    }
}
