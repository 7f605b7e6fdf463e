//! The settings of quotas as written, and their checks.

use super::Quota;
use crate::about::MOST_COUNTED;
use crate::pattern::{Pattern, problem_of};
use crate::period::Period;
use crate::texts::OwnTexts;
use crate::{ConfigError, Policy as _};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `[policy.quota]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// By name.
    limits: BTreeMap<String, Written>,
    exhausted: Exhausted,
    store_away: StoreAway,
    /// From so many calls left on the model is shown how many; 0: never.
    notify: usize,
    texts: OwnTexts,
}

/// What happens where a quota is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Exhausted {
    /// Its calls are blocked.
    #[default]
    Block,
    /// The same; and a turn is refused that could call nothing else.
    Reject,
}

/// What happens while the state store that replicas share does not answer, or takes no writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoreAway {
    /// Each process counts what it knows.
    #[default]
    CountLocally,
    /// Calls that a quota counts are blocked.
    Block,
}

/// One quota as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Its tools, by name or pattern.
    tools: Vec<Pattern>,
    /// For all of them together; without it, only callers of `tiers` have a limit.
    calls: Option<usize>,
    per: Period,
    /// The same for callers of a tier, by its name; 0: they may not call them.
    #[serde(default)]
    tiers: BTreeMap<String, usize>,
}

/// One quota.
pub(super) struct Limit {
    pub(super) name: Arc<str>,
    calls: Option<usize>,
    pub(super) per: Period,
    pub(super) tiers: BTreeMap<String, usize>,
}

impl Limit {
    /// How many calls a caller of this tier may make; `None`: as many as it likes.
    pub(super) fn of_tier(&self, tier: Option<&str>) -> Option<usize> {
        tier.and_then(|tier| self.tiers.get(tier)).copied().or(self.calls)
    }

    /// How many uses have to be known to decide for any caller.
    pub(super) fn most_calls(&self) -> usize {
        self.calls.into_iter().chain(self.tiers.values().copied()).max().unwrap_or(0).max(1)
    }
}

impl Config {
    /// The policy with these settings.
    ///
    /// # Errors
    /// Every problem found.
    pub(super) fn check(self) -> Result<Quota, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut quota = Quota {
            limits: Vec::new(),
            tools: Vec::new(),
            exhausted: self.exhausted,
            store_away: self.store_away,
            notify: self.notify,
            texts: self.texts.check(Quota::TEXTS, &mut problems),
        };
        for (at, (name, written)) in self.limits.into_iter().enumerate() {
            let mut problem = |key: &str, text: String| {
                problems.push(ConfigError::new(format!("limits.{name}.{key}"), text));
            };
            written.problems(&mut problem);
            for tool in written.tools {
                match quota.tools.iter().find(|(known, _)| *known == tool) {
                    Some(_) => problem("tools", format!("{} is named twice", tool.as_str())),
                    None => quota.tools.push((tool, at)),
                }
            }
            let Written { calls, per, tiers, .. } = written;
            quota.limits.push(Limit { name: name.into(), calls, per, tiers });
        }
        if problems.is_empty() { Ok(quota) } else { Err(problems) }
    }
}

impl Written {
    fn problems(&self, problem: &mut impl FnMut(&str, String)) {
        if let Some(wrong) = problem_of("tools", &self.tools) {
            problem("tools", wrong.problem);
        }
        match self.calls {
            None if self.tiers.is_empty() => {
                problem("calls", format!("expected 1 to {MOST_COUNTED}, or tiers with numbers of their own"));
            }
            Some(calls) if calls == 0 || calls > MOST_COUNTED => {
                problem("calls", format!("expected 1 to {MOST_COUNTED}, found {calls}"));
            }
            _ => {}
        }
        for (tier, calls) in self.tiers.iter().filter(|(_, calls)| **calls > MOST_COUNTED) {
            problem(&format!("tiers.{tier}"), format!("expected 0 to {MOST_COUNTED}, found {calls}"));
        }
        if self.per.millis() == 0 {
            problem("per", "expected a window longer than 0".to_owned());
        }
    }
}
