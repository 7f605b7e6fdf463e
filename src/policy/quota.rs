//! Quotas: limits on a caller's calls over all of its conversations.
//!
//! # What it does
//! The tools of a quota may be called `calls` times within any window of `per` by one caller, all of them together and
//! whatever the conversation. A call over the quota is blocked; the model reads how many calls were used, how many
//! are allowed and how long to wait. Parallel calls of one reply are judged in order.
//!
//! # Why
//! What costs money or storage is budgeted for a customer, not for a conversation: a new conversation must not begin
//! a new quota. Calls are counted when they are handed out. A client that sends a request again because its answer
//! was lost is not charged twice, up to the three tries of the usual clients within a quarter of an hour.
//!
//! # State
//! When calls of each quota were handed out to this caller: facts of the state store, since a conversation knows
//! nothing of the others. All requests with the same credentials are one caller; all without credentials are one too.
//! A state store in memory counts for its process alone and starts from zero with it; requests in flight at the same
//! time, and several choices of one reply, do not see each other's calls. A replay knows one conversation, and counts
//! the calls of each reply alone.
//!
//! # Example
//! With `limits = { images = { tools = ["*image*"], calls = 20, per = "5h" } }` the 21st image within five hours is
//! blocked with `RATE_LIMIT`, `used = 20`, `limit = 20`, `window_ms = 18000000` and the wait in `retry_after_ms`.

use super::about::{About, Counted, MOST_COUNTED, NO_LIMITS};
use super::pattern::{Pattern, best_concern, exact_names, problem_of};
use super::period::Period;
use super::{ConfigError, Policy, RequestFacts};
use crate::plan::{Plan, Proposed, Reason, ReasonKind, Usage, Verdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
pub struct Quota {
    limits: Vec<(Arc<str>, Limit)>,
    /// Names and patterns of tools, each with the index of its quota.
    tools: Vec<(Pattern, usize)>,
}

/// `[policy.quota]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// By name.
    limits: BTreeMap<String, Written>,
}

/// One quota as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// Its tools, by name or pattern.
    tools: Vec<Pattern>,
    /// For all of them together.
    calls: usize,
    per: Period,
}

#[derive(Clone, Copy)]
struct Limit {
    calls: usize,
    per: Period,
}

/// When the calls of each quota were handed out, in ms since the epoch.
#[derive(Clone, Default)]
pub struct Spent(Vec<Vec<u64>>);

impl Policy for Quota {
    const NAME: &'static str = "quota";
    const SUMMARY: &'static str =
        "limits how often a caller may call certain tools, over all its conversations";
    type Config = Config;
    type State = Spent;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut quota = Self { limits: Vec::new(), tools: Vec::new() };
        for (at, (name, written)) in config.limits.into_iter().enumerate() {
            let key = |key: &str| format!("limits.{name}.{key}");
            let mut problem = |name: &str, text: String| problems.push(ConfigError::new(key(name), text));
            if let Some(wrong) = problem_of("tools", &written.tools) {
                problem("tools", wrong.problem);
            }
            if written.calls == 0 || written.calls > MOST_COUNTED {
                problem("calls", format!("expected 1 to {MOST_COUNTED}, found {}", written.calls));
            }
            if written.per.millis() == 0 {
                problem("per", "expected a window longer than 0".to_owned());
            }
            for tool in written.tools {
                match quota.tools.iter().find(|(known, _)| *known == tool) {
                    Some(_) => problem("tools", format!("{} is named twice", tool.as_str())),
                    None => quota.tools.push((tool, at)),
                }
            }
            quota.limits.push((name.into(), Limit { calls: written.calls, per: written.per }));
        }
        if problems.is_empty() { Ok(quota) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let tools = |quota: usize| {
            let tools = self.tools.iter().filter(move |(_, of)| *of == quota);
            tools.map(|(tool, _)| tool.clone()).collect()
        };
        let counted = self.limits.iter().enumerate().map(|(at, (name, limit))| Counted {
            name: Arc::clone(name),
            tools: tools(at),
            calls: limit.calls,
            window_ms: limit.per.millis(),
        });
        let idle = self.limits.is_empty().then_some(NO_LIMITS);
        About { named_tools: exact_names(&self.tools), quotas: counted.collect(), idle, ..About::default() }
    }

    fn open(&self, request: &RequestFacts<'_>, spent: &mut Spent, _plan: &mut Plan) {
        spent.0 = request.spent.to_vec();
        spent.0.resize(self.limits.len(), Vec::new());
    }

    fn judge(&self, call: &Proposed<'_>, spent: &Spent) -> Verdict {
        let Some((name, limit, times)) = self.of(call.name, spent) else { return Verdict::Allow };
        let inside = limit.per.inside(times, call.now_ms);
        if inside.len() < limit.calls {
            return Verdict::Allow;
        }
        // The wait ends when so many calls have left the window that one more fits.
        let leaves = inside[inside.len() - limit.calls].saturating_add(limit.per.millis());
        let retry_after_ms = leaves.saturating_sub(call.now_ms);
        Verdict::Block(limit.reason((call.name, name), inside.len(), retry_after_ms))
    }

    fn release(&self, call: &Proposed<'_>, spent: &mut Spent) {
        let quota = best_concern(&self.tools, call.name).and_then(|at| spent.0.get_mut(*at));
        if let Some(times) = quota {
            times.push(call.now_ms);
        }
    }

    fn usage(&self, spent: &Spent, now_ms: u64) -> Vec<Usage> {
        let used = self.limits.iter().zip(&spent.0).map(|((name, limit), times)| Usage {
            tool: name.to_string(),
            used: limit.per.inside(times, now_ms).len() as u64,
            limit: limit.calls as u64,
        });
        used.filter(|usage| usage.used > 0).collect()
    }
}

impl Quota {
    fn of<'a>(&'a self, tool: &str, spent: &'a Spent) -> Option<(&'a str, Limit, &'a [u64])> {
        let at = *best_concern(&self.tools, tool)?;
        let (name, limit) = self.limits.get(at)?;
        Some((name, *limit, spent.0.get(at).map_or(&[], Vec::as_slice)))
    }
}

impl Limit {
    fn reason(self, (tool, name): (&str, &str), used: usize, retry_after_ms: u64) -> Reason {
        let minutes = retry_after_ms.div_ceil(60_000);
        Reason::new(ReasonKind::RateLimit, format!(
                "The call was not run: the user's quota \"{name}\" of {} calls within {} is used up. {tool} can be \
                 called again in {minutes} min. Go on without it, or tell the user what is missing.",
                self.calls,
                humantime::format_duration(self.per.0),
            )).retryable().with(vec![
                ("used", used as u64),
                ("limit", self.calls as u64),
                ("window_ms", self.per.millis()),
                ("retry_after_ms", retry_after_ms),
            ])
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{policy, read_spent};
    use super::super::scenario::problem;
    use super::super::set::Judge;
    use super::*;

    const HOUR: u64 = 3_600_000;
    const IMAGES: &str = r#"limits = { images = { tools = ["*image*", "*Image*"], calls = 3, per = "5h" } }"#;

    /// A judge of a caller whose calls were handed out at these times.
    fn judge(table: &str, spent: &[Vec<u64>]) -> Judge {
        read_spent(&policy::<Quota>(table), spent)
    }

    fn blocked(judge: &mut Judge, tool: &str, now_ms: u64) -> Option<Reason> {
        judge.rule(0, tool, None, now_ms).objections.pop().map(|(_, reason)| reason)
    }

    #[test]
    fn the_calls_of_other_conversations_count_and_age() {
        for (spent, now, expected) in [
            (vec![], HOUR, None),
            (vec![HOUR, HOUR + 1], 2 * HOUR, None),
            (vec![HOUR, HOUR + 1, HOUR + 2], 2 * HOUR, Some((3, 4 * HOUR))),
            (vec![HOUR, HOUR + 1, HOUR + 2], 6 * HOUR, None),
            (vec![HOUR, 2 * HOUR, 2 * HOUR, 2 * HOUR], 3 * HOUR, Some((4, 4 * HOUR))),
        ] {
            let reason = blocked(&mut judge(IMAGES, std::slice::from_ref(&spent)), "make_image", now);
            let numbers = expected.map(|(used, wait)| {
                vec![("used", used), ("limit", 3), ("window_ms", 5 * HOUR), ("retry_after_ms", wait)]
            });
            assert_eq!(reason.map(|reason| reason.numbers), numbers, "{spent:?}");
        }
    }

    #[test]
    fn all_tools_of_a_quota_share_it_and_others_have_their_own() {
        let table = format!(
            "{}, pages = {{ tools = [\"*page*\"], calls = 1, per = \"1h\" }} }}",
            &IMAGES[..IMAGES.len() - 2]
        );
        let mut judge = judge(&table, &[vec![HOUR], vec![]]);
        for (tool, allowed) in [
            ("make_image", true),
            ("generateImage", true),
            ("make_image", false),
            ("generateImage", false),
            ("make_page", true),
            ("make_page", false),
            ("search", true),
        ] {
            assert_eq!(blocked(&mut judge, tool, HOUR + 5).is_none(), allowed, "{tool}");
        }
        let found = blocked(&mut judge, "generateImage", HOUR + 5).unwrap();
        assert!(
            found.message.contains("\"images\" of 3 calls within 5h") && found.message.contains("in 300 min")
        );
        let usage = judge.usage(HOUR + 5);
        let found: Vec<_> = usage.iter().map(|(_, it)| (it.tool.as_str(), it.used, it.limit)).collect();
        assert_eq!(found, [("images", 3, 3), ("pages", 1, 1)]);
    }

    #[test]
    fn what_is_counted_is_reported_with_its_tools_and_window() {
        let counted = policy::<Quota>(IMAGES).about().quotas.clone();
        assert_eq!(
            (&*counted[0].name, counted[0].tools.len(), counted[0].calls, counted[0].window_ms),
            ("images", 2, 3, 5 * HOUR)
        );
    }

    #[test]
    fn settings_that_cannot_work_are_reported() {
        for (quota, found) in [
            (r#"tools = ["a"], calls = 0, per = "5h""#, "limits.x.calls: expected 1 to 10000, found 0"),
            (
                r#"tools = ["a"], calls = 10001, per = "5h""#,
                "limits.x.calls: expected 1 to 10000, found 10001",
            ),
            (r#"tools = ["a"], calls = 1, per = "0s""#, "limits.x.per: expected a window longer than 0"),
            (r#"tools = ["a", "a"], calls = 1, per = "1s""#, "limits.x.tools: a is named twice"),
            (
                r#"tools = [""], calls = 1, per = "1s""#,
                "limits.x.tools: expected names or patterns, found an empty one",
            ),
        ] {
            assert_eq!(problem::<Quota>(&format!("limits = {{ x = {{ {quota} }} }}")), found);
        }
    }
}
