//! The pages of numbers: overview, tools, limits, health. Open to all, as metrics are: they name models, tools,
//! policies and, where the operator says what names them, callers; and no conversation.

use super::Admin;
use super::answer::Answer;
use crate::config::Config;
use crate::telemetry::live::{Comparison, Interval, Snapshot, VERDICTS};
use axum::extract::State;
use dialects::usage::Usage;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Ten-thousandths, in which the share of a control group is kept.
const WHOLE: f64 = 10_000.0;

pub(super) async fn overview(State(admin): State<Arc<Admin>>) -> Answer {
    let totals = admin.live.totals();
    let calls = VERDICTS.iter().zip(totals.calls);
    let calls: Map<String, Value> =
        calls.map(|(verdict, count)| (verdict.as_str().into(), json!(count))).collect();
    let sum =
        |count: fn(&crate::telemetry::live::PolicyTotals) -> u64| totals.policies.iter().map(count).sum();
    let (removed, added): (u64, u64) = (sum(|it| it.removed), sum(|it| it.added));
    let reasked: u64 = sum(|it| it.reasked);
    let net: i64 = totals.policies.iter().map(|it| it.net).sum();
    let ungoverned = totals.ungoverned.iter();
    let ungoverned =
        ungoverned.map(|(endpoint, requests)| json!({"endpoint": endpoint, "requests": requests}));
    Answer::json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "mode": admin.settings.mode.as_str(),
        "started_ms": totals.started_ms,
        "now_ms": totals.now_ms,
        "requests": totals.requests,
        "turns": totals.turns,
        "tool_calls": calls,
        "runaways_stopped": totals.runaways,
        "tokens": {"removed": removed, "added": added, "reasked": reasked, "net": net},
        "money": admin.money(&totals),
        "hold_out": admin.hold_out(),
        "cost_of_guarding": {"overhead_p99_ms": totals.overhead_ms.p99, "added_tokens": added + reasked},
        "approvals_pending": admin.held.count(),
        "ungoverned": ungoverned.collect::<Vec<_>>(),
        "models": totals.models,
        "policies": totals.policies,
        "minutes": totals.minutes,
    }))
}

pub(super) async fn tools(State(admin): State<Arc<Admin>>) -> Answer {
    Answer::json(&json!({"tools": admin.live.tools(), "start": admin.live.start()}))
}

pub(super) async fn limits(State(admin): State<Arc<Admin>>) -> Answer {
    let (limits, turns) = admin.live.limits();
    Answer::json(&json!({"limits": limits, "turns": turns, "callers": admin.live.callers()}))
}

pub(super) async fn health(State(admin): State<Arc<Admin>>) -> Answer {
    let (totals, health, settings) = (admin.live.totals(), admin.metrics.health(), &admin.settings);
    let errors = totals.errors.iter().map(|(status, count)| json!({"status": status, "requests": count}));
    let kind = if settings.store.is_shared() { "redis" } else { "memory" };
    Answer::json(&json!({
        "requests": totals.requests,
        "errors": errors.collect::<Vec<_>>(),
        "overhead_ms": {"p50": totals.overhead_ms.p50, "p99": totals.overhead_ms.p99},
        "streams": health.streams,
        "store": {"kind": kind, "up": health.is_store_up, "errors": health.store_errors},
        "reloads": {"ok": health.reloads, "refused": health.refused_reloads, "last_ms": health.loaded_ms},
        "config": {"hash": settings.hash, "path": settings.file().map(|path| path.display().to_string())},
        "refusals": admin.live.refusals(),
        "recorder": {"on": settings.record.path().is_some(), "dropped": health.lost_recordings},
        "rules": admin.rules(),
    }))
}

impl Admin {
    /// How many tools programs have declared or used, and the operator's rules that fit none of them.
    fn rules(&self) -> Value {
        let tools = self.live.tool_names();
        let used = tools.as_ref().filter(|tools| !tools.is_empty());
        let unfitted = used.map(|tools| self.settings.unfitted_rules(tools)).unwrap_or_default();
        json!({"tools": tools.map(|tools| tools.len()), "unfitted": unfitted})
    }

    /// See [`saved_usd`].
    fn money(&self, totals: &Snapshot) -> Option<Value> {
        let [uncached, cached] = saved_usd(&self.settings, totals)?;
        Some(json!({"net_usd_uncached": uncached, "net_usd_cached": cached}))
    }

    /// The control group, if there is one.
    fn hold_out(&self) -> Option<Value> {
        let share = self.settings.conversation.holdout;
        let compared = self.live.hold_out();
        (share > 0).then(
            || json!({"share": f64::from(share) / WHOLE, "note": note(&compared), "compared": compared}),
        )
    }
}

/// What the saved tokens would have cost as input, not cached and cached, in US dollars; `None` where no model's price is
/// known.
pub fn saved_usd(settings: &Config, totals: &Snapshot) -> Option<[f64; 2]> {
    let mut sums: Option<[f64; 2]> = None;
    for model in &totals.models {
        let Some(price) = settings.price(&model.model) else { continue };
        let prompt = model.net_tokens.unsigned_abs();
        let usage = Usage { prompt, ..Usage::default() };
        let cached = Usage { prompt, cached: prompt, ..Usage::default() };
        let sign = if model.net_tokens < 0 { -1.0 } else { 1.0 };
        let sums = sums.get_or_insert_default();
        for (sum, usage) in sums.iter_mut().zip([usage, cached]) {
            *sum += sign * price.of(&usage) as f64 / 1e9;
        }
    }
    sums
}

/// The comparison as a sentence.
fn note(compared: &Comparison) -> String {
    let Some(Interval { share, low, high }) = compared.saved else {
        let Comparison { governed, held_out, .. } = compared;
        return format!("too few conversations to compare yet ({governed} governed, {held_out} held out).");
    };
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let change = if share < 0.0 { "more" } else { "less" };
    format!(
        "turns cost {} {change} where toolrein governs (saved, 95% interval: {} to {}).",
        percent(share.abs()),
        percent(low),
        percent(high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_with_the_control_group_is_shown_as_one_sentence() {
        let with = |saved| note(&Comparison { governed: 400, held_out: 20, saved });
        for (saved, expected) in [
            (None, "too few conversations to compare yet (400 governed, 20 held out)."),
            (
                Some(Interval { share: 0.312, low: 0.24, high: 0.371 }),
                "turns cost 31% less where toolrein governs (saved, 95% interval: 24% to 37%).",
            ),
            (
                Some(Interval { share: -0.05, low: -0.12, high: 0.02 }),
                "turns cost 5% more where toolrein governs (saved, 95% interval: -12% to 2%).",
            ),
        ] {
            assert_eq!(with(saved), expected);
        }
    }
}
