//! Policies that contradict each other: settings of one that have no effect because of another. Each is allowed but
//! probably a mistake, so it is reported as a warning. Knows the settings' names; the policies define their meaning.

use super::policy_tables::{Layer, ShippedTool};
use super::profiles::{Profile, Profiles};
use super::tables::Reask;
use policies::about::exact_names;
use serde_json::{Map, Value};

/// The most names in a warning.
const MOST_NAMES: usize = 5;

/// The settings that have no effect because of another policy, one sentence each. `shipped`: tools that are named by
/// default, which nobody configured.
pub(super) fn contradictions(
    policies: &Layer<'_>,
    profiles: &Profiles,
    reask: &Reask,
    shipped: &[ShippedTool],
) -> Vec<String> {
    let is_shipped = |tool: &str| shipped.iter().any(|known| known.tool.pattern.as_str() == tool);
    let rules = || policies.on().map(|on| &on.rule);
    let mut warnings = Vec::new();
    for judge in rules() {
        for named in rules().filter(|named| named.name() != judge.name()) {
            let has_no_effect = |tool: &&str| !judge.about().callable.includes(tool) && !is_shipped(tool);
            let idle: Vec<String> =
                exact_names(&named.about().named_tools).filter(has_no_effect).map(str::to_owned).collect();
            if !idle.is_empty() {
                warnings.push(format!(
                    "policy.{}: its settings for {} have no effect, since policy.{} forbids these calls",
                    named.name(),
                    listed(&idle),
                    judge.name()
                ));
            }
        }
        let by_default = Reask::default().answer_tools;
        let answers = reask.answer_tools.iter().filter(|tool| tool.is_exact() && !by_default.contains(tool));
        let mut open: Vec<String> = answers.map(|tool| tool.as_str().to_owned()).collect();
        open.retain(|tool| !judge.about().callable.includes(tool));
        if !open.is_empty() {
            warnings.push(format!(
                "reask.answer_tools: {} may be called although policy.{} forbids it: answers are never blocked",
                listed(&open),
                judge.name()
            ));
        }
    }
    warnings.extend(unreached(&policies.settings()));
    warnings.extend(policies.set().idle());
    warnings.extend(idle_in_profiles(policies, profiles));
    warnings
}

/// The policies of each profile that never act, unless they do not act outside of profiles either.
fn idle_in_profiles(base: &Layer<'_>, profiles: &Profiles) -> Vec<String> {
    let outside = base.set().idle();
    let of = |profile: &Profile| {
        let idle = profile.policies.idle().into_iter().filter(|text| !outside.contains(text));
        idle.map(|text| format!("profile.{}.{text}", profile.name)).collect::<Vec<_>>()
    };
    profiles.iter().flat_map(of).collect()
}

/// Limits that a smaller one always precedes.
fn unreached(settings: &Map<String, Value>) -> Vec<String> {
    let number =
        |policy: &str, key: &str| settings.get(policy)?.get(key)?.as_u64().filter(|limit| *limit > 0);
    let mut limits: Vec<(String, u64)> = Vec::new();
    let mut add = |key: &str, limit: Option<u64>| limits.extend(limit.map(|limit| (key.to_owned(), limit)));
    let loops = number("loops", "block").zip(number("loops", "notice"));
    let early = loops.filter(|(block, notice)| block < notice).map(|(block, notice)| {
        format!("policy.loops.block: {block} is less than notice ({notice}), so calls are blocked before the model is warned")
    });
    let empty = number("loops", "empty_block").zip(number("loops", "empty"));
    let early_empty = empty.filter(|(block, notice)| block <= notice).map(|(block, notice)| {
        format!("policy.loops.empty_block: {block} is not more than empty ({notice}), so calls are blocked before the model is warned")
    });
    let exhausted = settings.get("budget").and_then(|budget| budget.get("exhausted")?.as_str());
    let blocks = matches!(exhausted, Some("auto" | "answer"));
    let budget = number("budget", "tool_calls").filter(|_| blocks);
    let in_turn = number("turn_limits", "calls");
    add("policy.turn_limits.calls", in_turn);
    add("policy.loops.block", number("loops", "block"));
    add("policy.turn_limits.parallel", number("turn_limits", "parallel"));
    let tools = settings.get("turn_limits").and_then(|it| it.get("tools")?.as_object());
    for (name, calls) in tools.into_iter().flatten() {
        add(&format!("policy.turn_limits.tools.{name}"), calls.as_u64().filter(|limit| *limit > 0));
    }
    let categories = settings.get("turn_limits").and_then(|it| it.get("categories")?.as_object());
    for (name, category) in categories.into_iter().flatten() {
        let limit = category.get("calls").and_then(Value::as_u64).filter(|limit| *limit > 0);
        add(&format!("policy.turn_limits.categories.{name}.calls"), limit);
    }
    let bounds = [("policy.budget.tool_calls", budget), ("policy.turn_limits.calls", in_turn)];
    let mut warnings: Vec<String> = early.into_iter().chain(early_empty).collect();
    for (bound_key, bound) in bounds.into_iter().filter_map(|(key, bound)| Some((key, bound?))) {
        for (key, limit) in limits.iter().filter(|(key, limit)| key != bound_key && *limit > bound) {
            warnings.push(format!("{key}: {limit} is never reached, since {bound_key} is {bound}"));
        }
    }
    warnings
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
