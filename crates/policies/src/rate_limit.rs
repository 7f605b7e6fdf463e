//! Rate limiter: calls per tool and conversation within a sliding window.
//!
//! # What it does
//! A tool may be called `calls` times within any window of `per`. A call over the limit is blocked; the model reads
//! how many calls were used, how many are allowed and how long to wait. Limits are given by tool name, by pattern,
//! and by default; each tool has its own window. Parallel calls of one reply are judged in order. With `wait` a call
//! whose window opens soon enough is held until then, and released; all calls of one client request together wait no
//! longer than that.
//!
//! # Why
//! Agents in a loop call the same tool in bursts. A limit over time stops the burst and does not affect long, steady
//! work. The calls in the request's own history that were handed out within the window are counted, so a client's
//! retry or a resent history never counts twice, and a call that the client dropped does not count.
//!
//! # State
//! For each tool the times at which its calls were handed out. A call that the state store does not know counts as
//! old.
//!
//! # Example
//! With `weather = { calls = 3, per = "60s" }` the fourth call within a minute is blocked with
//! `RATE_LIMIT`, `used = 3`, `limit = 3`, `window_ms = 60000` and the wait in `retry_after_ms`.

use super::about::{About, EngineService, NO_LIMITS, list_keys};
use super::pattern::{Pattern, all_concerns};
use super::period::Period;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use model::names::dispatch_form;
use model::plan::{CallEffect, Plan, Proposed, Reason, ReasonKind, Usage, Verdict};
use model::{Event, EventKind, EventKinds};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// See the module.
pub struct RateLimit {
    default: Option<Limit>,
    tools: Vec<(Pattern, Limit)>,
    wait_ms: u64,
    texts: Texts,
}

/// `[policy.rate_limit]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The limit of tools without one of their own.
    default: Option<Limit>,
    /// Limits by tool name or pattern.
    tools: BTreeMap<String, Limit>,
    /// How long the calls of a client request may be held until their windows open; 0: they are blocked at once.
    wait: Wait,
    texts: OwnTexts,
}

/// The time of [`Config::wait`].
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Wait(Period);

impl Default for Wait {
    fn default() -> Self {
        Self(Period(Duration::ZERO))
    }
}

/// A number of calls in a window.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// 0: no limit.
    calls: usize,
    per: Period,
}

impl Limit {
    /// Whether it allows fewer calls in the same time.
    fn is_tighter(self, other: Self) -> bool {
        let calls_in = |calls: usize, per: Period| calls as u128 * u128::from(per.millis());
        calls_in(self.calls, other.per) < calls_in(other.calls, self.per)
    }
}

/// When each tool's calls were handed out, in ms since the epoch, in the order of the calls; by the tool's name as programs
/// look it up, with the name that was called first.
#[derive(Clone, Default)]
pub struct Released(BTreeMap<String, (String, Vec<u64>)>);

impl Policy for RateLimit {
    const NAME: &'static str = "rate_limit";
    const SUMMARY: &'static str = "limits how often each tool is called within a sliding window";
    const TEXTS: &'static [Text] = &[BLOCKED];
    type Config = Config;
    type State = Released;

    /// A default that is tighter than a shipped pattern holds for the tools of that pattern too: who writes that every tool may
    /// be called five times a minute does not mean thirty.
    fn overruled(own: &Value, shipped: &Value) -> Vec<[String; 2]> {
        let shipped_default = shipped.pointer("/default/per");
        let of = |limit: &Value, per: Option<&Value>| {
            let per = Period::deserialize(limit.get("per").or(per)?).ok()?;
            Some(Limit { calls: usize::deserialize(limit.get("calls")?).ok()?, per })
        };
        let default = own.get("default").and_then(|default| of(default, shipped_default));
        let Some(default) = default.filter(|default| default.calls > 0) else { return Vec::new() };
        let patterns = shipped.get("tools").and_then(Value::as_object).into_iter().flatten();
        let laxer =
            patterns.filter(|(_, limit)| of(limit, None).is_some_and(|limit| default.is_tighter(limit)));
        laxer.map(|(pattern, _)| ["tools".to_owned(), pattern.clone()]).collect()
    }

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let all = config.default.iter().map(|limit| ("default.per".to_owned(), limit));
        let named = config.tools.iter().map(|(tool, limit)| (format!("tools.{tool}.per"), limit));
        let zero = all.chain(named).filter(|(_, limit)| limit.per.millis() == 0);
        let mut problems: Vec<ConfigError> =
            zero.map(|(key, _)| ConfigError::new(key, "expected a window longer than 0")).collect();
        let wait_ms = config.wait.0.millis();
        if wait_ms > LONGEST_WAIT_MS {
            problems.push(ConfigError::new("wait", "expected at most \"10m\", since clients wait no longer"));
        }
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let tools = config.tools.into_iter().map(|(tool, limit)| (Pattern::new(tool), limit)).collect();
        Ok(Self { default: config.default, tools, wait_ms, texts })
    }

    fn about(&self) -> About {
        let mut limits = self.default.iter().chain(self.tools.iter().map(|(_, limit)| limit));
        let idle = (!limits.any(|limit| limit.calls > 0)).then_some(NO_LIMITS);
        let default = self.default.iter().map(|limit| ("default.per".to_owned(), limit));
        let named = self.tools.iter().map(|(tool, limit)| (format!("tools.{}.per", tool.as_str()), limit));
        let windows = default.chain(named).map(|(key, limit)| (key, limit.per.millis())).collect();
        About {
            named_tools: list_keys("tools", &self.tools),
            ignored_events: EventKinds::all() - EventKind::Call,
            idle,
            engine: (self.wait_ms > 0)
                .then_some(EngineService::HoldCalls { most_ms: self.wait_ms })
                .into_iter()
                .collect(),
            windows,
            resumes: true,
            ..About::default()
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut Released, _plan: &mut Plan) {
        if let Event::Call(call) = event
            && let Some(released_ms) = call.released_ms
        {
            self.add(&call.name, released_ms, state);
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &Released) -> Verdict {
        let full = self.limits(call.name).into_iter().filter_map(|(counts_as, limit)| {
            let inside = state.within(&counts_as, limit, call.now_ms);
            // The wait ends when so many calls have left the window that one more fits.
            let leaves =
                inside.get(inside.len().checked_sub(limit.calls)?)?.saturating_add(limit.per.millis());
            Some((leaves.saturating_sub(call.now_ms), limit, inside.len()))
        });
        let Some((retry_after_ms, limit, used)) = full.max_by_key(|(wait, ..)| *wait) else {
            return Verdict::Allow;
        };
        let reason = self.reason(limit, call.name, used, retry_after_ms);
        let waits = self.wait_ms > 0 && retry_after_ms <= self.wait_ms;
        if waits {
            Verdict::Pending(CallEffect::Sleep(retry_after_ms, reason))
        } else {
            Verdict::Block(reason)
        }
    }

    fn release(&self, call: &Proposed<'_>, state: &mut Released) {
        self.add(call.name, call.now_ms, state);
    }

    fn usage(&self, state: &Released, now_ms: u64) -> Vec<Usage> {
        let tools = state.0.iter().filter_map(|(counts_as, (tool, _))| {
            let limit = self.limits(tool).into_iter().find(|(name, _)| name == counts_as)?.1;
            let used = state.within(counts_as, limit, now_ms).len() as u64;
            Some(Usage { tool: tool.clone(), used, limit: limit.calls as u64 })
        });
        tools.collect()
    }
}

/// The openai packages wait ten minutes for a reply.
const LONGEST_WAIT_MS: u64 = 600_000;

const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {tool} was called {used} {used:time/times} within {window}, {limit} {limit:is/are} \
              allowed. It can be called again in {seconds} s. Go on with what you have, use another tool, or tell the user what is \
              missing.",
    placeholders: &["tool", "used", "limit", "window", "seconds"],
};

impl RateLimit {
    fn reason(&self, limit: Limit, tool: &str, used: usize, retry_after_ms: u64) -> Reason {
        let window = humantime::format_duration(limit.per.0);
        let message = self.texts.fill(
            &BLOCKED,
            &[
                ("tool", &tool),
                ("used", &used),
                ("limit", &limit.calls),
                ("window", &window),
                ("seconds", &retry_after_ms.div_ceil(1000)),
            ],
        );
        let numbers = vec![
            ("used", used as u64),
            ("limit", limit.calls as u64),
            ("window_ms", limit.per.millis()),
            ("retry_after_ms", retry_after_ms),
        ];
        Reason::new(ReasonKind::RateLimit, message).retryable().with(numbers)
    }

    /// The limits of `tool`, each with the name that its calls count for. The default applies where no limit names the
    /// tool with its namespace.
    fn limits(&self, tool: &str) -> Vec<(String, Limit)> {
        let concerns = all_concerns(&self.tools, tool);
        let named = concerns.named.map(|named| (named.counts_as, *named.value));
        let named = named.or_else(|| Some((dispatch_form(tool).into_owned(), self.default?)));
        let bare = concerns.bare.map(|bare| (bare.counts_as, *bare.value));
        named.into_iter().chain(bare).filter(|(_, limit)| limit.calls > 0).collect()
    }

    fn add(&self, tool: &str, at_ms: u64, state: &mut Released) {
        for (counts_as, _) in self.limits(tool) {
            let (_, times) = state.0.entry(counts_as).or_insert_with(|| (tool.to_owned(), Vec::new()));
            times.push(at_ms);
        }
    }
}

impl Released {
    /// The times of what counts as `name`, inside the window that ends now, oldest first.
    fn within(&self, name: &str, limit: Limit, now_ms: u64) -> Vec<u64> {
        let times = self.0.get(name).map_or([].as_slice(), |(_, times)| times.as_slice());
        limit.per.inside(times, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Conversation, policy};
    use super::super::scenario::problem;
    use super::*;

    const MINUTE: u64 = 60_000;

    fn blocked(conversation: &mut Conversation, tool: &str, now_ms: u64) -> Option<Reason> {
        conversation.judge(tool, "{}", now_ms).objections.pop().map(|(_, reason)| reason)
    }

    #[test]
    fn a_tool_is_blocked_at_the_limit_and_allowed_after_the_window() {
        let policy = policy::<RateLimit>(r#"tools = { weather = { calls = 3, per = "60s" } }"#);
        let mut talk = Conversation::new(&policy);
        for now in [1_000, 2_000, 3_000] {
            assert_eq!(blocked(&mut talk, "weather", MINUTE + now), None);
        }
        let reason = blocked(&mut talk, "weather", MINUTE + 20_000).unwrap();
        assert_eq!(
            reason.numbers,
            [("used", 3), ("limit", 3), ("window_ms", MINUTE), ("retry_after_ms", 41_000)]
        );
        assert!(reason.retryable && reason.message.contains("in 41 s"));
        assert_eq!(
            blocked(&mut talk, "weather", 2 * MINUTE + 999).unwrap().numbers[3],
            ("retry_after_ms", 1)
        );
        assert_eq!(blocked(&mut talk, "weather", 2 * MINUTE + 1_000), None);
    }

    #[test]
    fn each_tool_has_a_window_of_its_own_under_the_best_fitting_limit() {
        let policy = policy::<RateLimit>(
            "default = { calls = 2, per = \"60s\" }\ntools.\"search*\" = { calls = 1, per = \"60s\" }\ntools.searchAll = { calls = 0, per = \"1s\" }",
        );
        let mut talk = Conversation::new(&policy);
        for (tool, allowed) in [
            ("searchNotes", true),
            ("searchNotes", false),
            ("searchFiles", true),
            ("searchAll", true),
            ("searchAll", true),
            ("other", true),
            ("other", true),
            ("other", false),
        ] {
            assert_eq!(blocked(&mut talk, tool, MINUTE).is_none(), allowed, "{tool}");
        }
    }

    #[test]
    fn history_counts_by_the_time_it_was_handed_out_and_unknown_calls_are_old() {
        let policy = policy::<RateLimit>(r#"default = { calls = 2, per = "60s" }"#);
        for (released, allowed) in [
            (vec![None, None, None], true),
            (vec![Some(0), Some(70_000), None], true),
            (vec![Some(70_000), Some(71_000), None], false),
            (vec![Some(71_000), Some(10_000)], true),
        ] {
            let mut talk = Conversation::with_calls(&policy, "f", &released);
            assert_eq!(blocked(&mut talk, "f", 80_000).is_none(), allowed, "{released:?}");
        }
    }

    #[test]
    fn a_blocked_call_does_not_lengthen_the_wait() {
        let policy = policy::<RateLimit>(r#"default = { calls = 1, per = "60s" }"#);
        let mut talk = Conversation::new(&policy);
        assert_eq!(blocked(&mut talk, "f", MINUTE), None);
        assert!(blocked(&mut talk, "f", MINUTE + 30_000).is_some());
        assert_eq!(blocked(&mut talk, "f", 2 * MINUTE), None);
    }

    #[test]
    fn a_clock_that_jumps_backwards_does_not_block_a_tool_forever() {
        let policy = policy::<RateLimit>(r#"default = { calls = 1, per = "60s" }"#);
        let mut talk = Conversation::with_calls(&policy, "f", &[Some(10 * MINUTE)]);
        let reason = blocked(&mut talk, "f", MINUTE).unwrap();
        assert_eq!(reason.numbers[0], ("used", 1));
        assert_eq!(blocked(&mut talk, "f", 11 * MINUTE), None);
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (table, found) in [
            ("default = { calls = 1, per = \"0s\" }", "default.per: expected a window longer than 0"),
            ("wait = \"601s\"", "wait: expected at most \"10m\", since clients wait no longer"),
            (
                "texts = { blocked = \"{calls}\" }",
                "texts.blocked: there is no placeholder {calls} in this text; expected {tool}, {used}, {limit}, \
                 {window}, {seconds}",
            ),
        ] {
            assert_eq!(problem::<RateLimit>(table), found);
        }
    }

    #[test]
    fn a_call_waits_where_its_window_opens_soon_enough_and_is_blocked_otherwise() {
        let table = "default = { calls = 2, per = \"60s\" }\nwait = \"10s\"";
        for (released, now, expected) in [
            (vec![], MINUTE, None),
            (vec![MINUTE, MINUTE + 1_000], MINUTE + 49_999, Some(None)),
            (vec![MINUTE, MINUTE + 1_000], MINUTE + 50_000, Some(Some(10_000))),
            (vec![MINUTE, MINUTE + 1_000], 2 * MINUTE - 1, Some(Some(1))),
            (vec![MINUTE, MINUTE + 1_000], 2 * MINUTE, None),
            // One was let through for a later time, for which it waits now.
            (vec![MINUTE, MINUTE + 1_000, 2 * MINUTE], 2 * MINUTE - 5_000, Some(Some(6_000))),
            (vec![MINUTE, 2 * MINUTE, 2 * MINUTE + 1_000], 2 * MINUTE - 5_000, Some(None)),
        ] {
            let released: Vec<Option<u64>> = released.into_iter().map(Some).collect();
            let mut talk = Conversation::with_calls(&policy::<RateLimit>(table), "f", &released);
            let reason = blocked(&mut talk, "f", now);
            assert_eq!(reason.map(|reason| reason.wait_ms), expected, "{released:?} {now}");
        }
    }

    #[test]
    fn the_text_is_the_operators_where_there_is_one() {
        let table = "default = { calls = 1, per = \"60s\" }\n\
                     texts = { blocked = \"{tool}: {used}/{limit} in {window}, {seconds} s\" }";
        let mut talk = Conversation::with_calls(&policy::<RateLimit>(table), "f", &[Some(MINUTE)]);
        assert_eq!(blocked(&mut talk, "f", MINUTE + 100).unwrap().message, "f: 1/1 in 1m, 60 s");
    }
}
