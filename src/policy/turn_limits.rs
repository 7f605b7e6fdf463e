//! Limits on one turn's calls: in all, by category of tool, and at once.
//!
//! # What it does
//! At most `calls` calls run in a turn, at most `parallel` out of one reply, and of each category of tools at most
//! its own number in a turn; the calls beyond are withheld. When a limit is reached the model is told once, behind
//! the results. A tool belongs to the category that names it, else to that of the longest pattern that fits. A
//! category may have a latency bound, `slow`: results that take longer are counted and logged, nothing else.
//!
//! # Why
//! Some tools are cheap and some are not: a ceiling on retrieval alone leaves the agent its hands for the work.
//! Many calls at once are what overruns a small backend. The latency bound is soft because a late result is
//! still a result.
//!
//! # State
//! The calls of the running turn, in all and by category, and those already let through out of the reply being
//! judged. Withheld calls do not count. How long a call took is from its release to the request that brings its
//! result, as the ledger knows it.
//!
//! # Example
//! With `categories = { retrieval = { tools = ["search*"], calls = 3 } }` the fourth search of a turn is withheld
//! with `BUDGET_EXCEEDED`, `calls_used = 3`, `calls_limit = 3`; other tools go on.

use super::pattern::{Pattern, best_match, exact_names};
use super::period::Period;
use super::plan::{Plan, Proposed, Reason, ReasonKind, Usage, Verdict};
use super::{ConfigError, Evidence, Policy};
use crate::transcript::{Event, ToolResult};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// See the file's head.
pub struct TurnLimits {
    calls: u64,
    parallel: u64,
    categories: Vec<Category>,
    /// Names and patterns of tools, each with the place of its category.
    tools: Vec<(Pattern, usize)>,
}

/// `[policy.turn_limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Calls in one turn; 0: no limit.
    calls: u64,
    /// Calls out of one reply; 0: no limit.
    parallel: u64,
    /// By name.
    categories: BTreeMap<String, CategoryConfig>,
}

/// One category as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CategoryConfig {
    /// Its tools, by name or pattern.
    tools: Vec<Pattern>,
    /// Its calls in one turn; 0: no limit.
    #[serde(default)]
    calls: u64,
    /// How long a call may take unnoticed; 0: for ever.
    #[serde(default = "no_bound")]
    slow: Period,
}

struct Category {
    name: String,
    calls: u64,
    slow_ms: u64,
}

/// What the running turn has used.
#[derive(Clone, Default)]
pub struct Used {
    all: Count,
    /// By the place of the category; shorter where the rest was not called.
    categories: Vec<Count>,
    /// Let through out of the reply being judged.
    in_reply: u64,
}

#[derive(Clone, Copy, Default)]
struct Count {
    calls: u64,
    /// The model knows that no more are left.
    told: bool,
}

impl Policy for TurnLimits {
    const NAME: &'static str = "turn_limits";
    const SUMMARY: &'static str = "limits the calls of a turn, in all, at once and by category of tool";
    type Config = Config;
    type State = Used;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut limits =
            Self { calls: config.calls, parallel: config.parallel, categories: Vec::new(), tools: Vec::new() };
        for (at, (name, category)) in config.categories.into_iter().enumerate() {
            let slow_ms = category.slow.millis();
            for tool in category.tools {
                if let Some((_, other)) = limits.tools.iter().find(|(known, _)| *known == tool) {
                    let other = limits.categories.get(*other).map_or(&name, |other| &other.name);
                    let problem = format!("{} is named in {other} already", tool.as_str());
                    problems.push(ConfigError::new(format!("categories.{name}.tools"), problem));
                } else {
                    limits.tools.push((tool, at));
                }
            }
            limits.categories.push(Category { name, calls: category.calls, slow_ms });
        }
        if problems.is_empty() { Ok(limits) } else { Err(problems) }
    }

    fn named_tools(&self) -> Vec<String> {
        exact_names(&self.tools)
    }

    fn read(&self, event: &Event<'_>, used: &mut Used, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => {
                if used.all.told || used.categories.iter().any(|count| count.told) {
                    plan.notice("fresh", "[toolrein] New turn: the limits on tool calls begin anew.".to_owned());
                }
                *used = Used::default();
            }
            Event::Call(call) => self.count(&call.name, used),
            Event::Result(result) if self.is_slow(result) => plan.remark("slow"),
            Event::ResultsComplete(_) => self.tell(used, plan),
            _ => {}
        }
    }

    fn evidence(&self, name: &str, _used: &Used) -> Evidence {
        let limited = self.calls > 0 || self.parallel > 0 || self.category(name).is_some_and(|(_, it)| it.calls > 0);
        if limited { Evidence::Name } else { Evidence::Nothing }
    }

    fn judge(&self, call: &Proposed<'_>, used: &Used) -> Verdict {
        if self.calls > 0 && used.all.calls >= self.calls {
            let what = format!("all {} tool calls of this turn are used", self.calls);
            return Verdict::Withhold(used_up(&what, ANSWER, (used.all.calls, self.calls)));
        }
        if let Some((at, category)) = self.category(call.name).filter(|(_, category)| category.calls > 0) {
            let calls = used.category(at).calls;
            if calls >= category.calls {
                let what = format!("all {} calls of {} tools in this turn are used", category.calls, category.name);
                return Verdict::Withhold(used_up(&what, OTHER_TOOLS, (calls, category.calls)));
            }
        }
        if self.parallel > 0 && used.in_reply >= self.parallel {
            return Verdict::Withhold(self.too_many_at_once(used.in_reply));
        }
        Verdict::Allow
    }

    fn release(&self, call: &Proposed<'_>, used: &mut Used) {
        self.count(call.name, used);
        used.in_reply += 1;
    }

    fn usage(&self, used: &Used, _now_ms: u64) -> Vec<Usage> {
        let all = (self.calls > 0).then(|| Usage { tool: "*".to_owned(), used: used.all.calls, limit: self.calls });
        let categories = self.categories.iter().enumerate().filter(|(_, category)| category.calls > 0);
        let categories = categories.map(|(at, category)| Usage {
            tool: format!("category:{}", category.name),
            used: used.category(at).calls,
            limit: category.calls,
        });
        all.into_iter().chain(categories).collect()
    }
}

const ANSWER: &str = "Give your final answer now with what you have, or ask the user how to go on.";
const OTHER_TOOLS: &str = "Go on with what you have or with other tools.";

impl TurnLimits {
    fn category(&self, tool: &str) -> Option<(usize, &Category)> {
        let at = *best_match(&self.tools, tool)?;
        Some((at, self.categories.get(at)?))
    }

    fn count(&self, tool: &str, used: &mut Used) {
        used.all.calls += 1;
        if let Some((at, _)) = self.category(tool) {
            used.category_mut(at).calls += 1;
        }
    }

    fn is_slow(&self, result: &ToolResult<'_>) -> bool {
        let bound_ms = self.category(result.tool()).map_or(0, |(_, category)| category.slow_ms);
        bound_ms > 0 && result.took_ms.is_some_and(|took_ms| took_ms > bound_ms)
    }

    /// Tells the model, once, which limits it has reached.
    fn tell(&self, used: &mut Used, plan: &mut Plan) {
        let mut lines = Vec::new();
        if used.all.is_news(self.calls) {
            lines.push(format!("[toolrein] All {} tool calls of this turn are used. {ANSWER}", self.calls));
        }
        // With no calls left at all, nothing more needs to be said.
        if !used.all.told {
            for (at, category) in self.categories.iter().enumerate() {
                if used.category_mut(at).is_news(category.calls) {
                    let Category { name, calls, .. } = category;
                    lines.push(format!(
                        "[toolrein] All {calls} calls of {name} tools in this turn are used. {OTHER_TOOLS}"
                    ));
                }
            }
        }
        if !lines.is_empty() {
            plan.notice("notice", lines.join("\n"));
        }
    }

    fn too_many_at_once(&self, in_reply: u64) -> Reason {
        Reason {
            kind: ReasonKind::BudgetExceeded,
            message: format!(
                "The call was not run: {} calls at once are allowed, and so many of your reply were run. Call fewer \
                 at once; this one can be made again in your next reply.",
                self.parallel
            ),
            retryable: true,
            numbers: vec![("calls_in_reply", in_reply), ("calls_limit", self.parallel)],
        }
    }
}

impl Used {
    fn category(&self, at: usize) -> Count {
        self.categories.get(at).copied().unwrap_or_default()
    }

    fn category_mut(&mut self, at: usize) -> &mut Count {
        if self.categories.len() <= at {
            self.categories.resize(at + 1, Count::default());
        }
        &mut self.categories[at]
    }
}

impl Count {
    /// Whether the limit is reached and the model does not know it yet; from now on it does.
    fn is_news(&mut self, limit: u64) -> bool {
        limit > 0 && self.calls >= limit && !std::mem::replace(&mut self.told, true)
    }
}

fn used_up(what: &str, advice: &str, (used, limit): (u64, u64)) -> Reason {
    Reason {
        kind: ReasonKind::BudgetExceeded,
        message: format!("The call was not run: {what}. {advice}"),
        retryable: false,
        numbers: vec![("calls_used", used), ("calls_limit", limit)],
    }
}

fn no_bound() -> Period {
    Period(Duration::ZERO)
}
