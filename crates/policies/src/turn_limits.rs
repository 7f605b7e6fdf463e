//! Limits on the calls of one turn: in all, by tool, by category of tool, and at once.
//!
//! # What it does
//! At most `calls` calls run in a turn, at most `parallel` of one reply, of each tool that `tools` names at most its
//! own number in a turn, and of each category of tools together at most its own; further calls are blocked. When a limit
//! is reached, one notice after the results says so. A tool belongs to the category that names it, else to that of the
//! longest pattern that fits. A category may have a latency bound, `slow`: results that take longer are counted and
//! logged, nothing else.
//!
//! # Why
//! Some tools are cheap and some are not: a limit on retrieval alone leaves the agent its other tools. Many calls at
//! once can overload a small backend. The latency bound is soft because a late result is still a result.
//!
//! # State
//! The calls of the running turn, in all and by category, and those of the reply being judged that were let through.
//! Blocked calls do not count. The duration of a call is from its release to the request that brings its result, as
//! the state store knows it.
//!
//! # Example
//! With `categories = { retrieval = { tools = ["search*"], calls = 3 } }` the fourth search of a turn is blocked
//! with `BUDGET_EXCEEDED`, `used = 3`, `limit = 3`; other tools go on. With `tools = { "*search*" = 20 }`
//! each tool that fits may be called 20 times.

use super::about::{About, NO_LIMITS, list_keys, list_tools};
use super::pattern::{Pattern, all_concerns, best_concern};
use super::period::Period;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use model::plan::{Plan, Proposed, Reason, ReasonKind, Usage, Verdict};
use model::{Event, ToolResult};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use wire::plural::noun_after;

/// See the module.
pub struct TurnLimits {
    calls: u64,
    parallel: u64,
    categories: Vec<Category>,
    /// Names and patterns of tools, each with the index of its category.
    members: Vec<(Pattern, usize)>,
    /// Names and patterns of tools, each with the calls of one tool.
    tools: Vec<(Pattern, u64)>,
    texts: Texts,
}

/// `[policy.turn_limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Calls in one turn; 0: no limit.
    calls: u64,
    /// Calls of one reply; 0: no limit.
    parallel: u64,
    /// Calls of one tool in one turn, by its name or a pattern; 0: no limit.
    tools: BTreeMap<String, u64>,
    /// By name.
    categories: BTreeMap<String, CategoryConfig>,
    texts: OwnTexts,
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
    /// How long a call may take without being reported; 0: for ever.
    #[serde(default = "no_bound")]
    slow: Period,
}

struct Category {
    name: Arc<str>,
    calls: u64,
    slow_ms: u64,
}

/// What the running turn has used.
#[derive(Clone, Default)]
pub struct Used {
    all: Count,
    /// By the index of the category; shorter where the rest was not called.
    categories: Vec<Count>,
    /// Of tools with a limit of their own, by the name as programs look it up, with the name that was called first.
    tools: BTreeMap<String, (String, Count)>,
    /// Calls of the reply being judged that were let through.
    in_reply: u64,
}

#[derive(Clone, Copy, Default)]
struct Count {
    calls: u64,
    /// The model has read that no more are left.
    was_announced: bool,
}

impl Policy for TurnLimits {
    const NAME: &'static str = "turn_limits";
    const SUMMARY: &'static str =
        "limits the calls of a turn, in all, at once, by tool and by category of tool";
    const TEXTS: &'static [Text] = &[BLOCKED, AT_ONCE, NOTICE, FRESH];
    type Config = Config;
    type State = Used;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut limits = Self {
            calls: config.calls,
            parallel: config.parallel,
            categories: Vec::new(),
            members: Vec::new(),
            tools: config.tools.into_iter().map(|(tool, calls)| (Pattern::new(tool), calls)).collect(),
            texts: config.texts.check(Self::TEXTS, &mut problems),
        };
        for (at, (name, category)) in config.categories.into_iter().enumerate() {
            let name: Arc<str> = name.into();
            let slow_ms = category.slow.millis();
            for tool in category.tools {
                if let Some((_, other)) = limits.members.iter().find(|(known, _)| *known == tool) {
                    let other = limits.categories.get(*other).map_or(&name, |other| &other.name);
                    let problem = format!("{} is named in {other} already", tool.as_str());
                    problems.push(ConfigError::new(format!("categories.{name}.tools"), problem));
                } else {
                    limits.members.push((tool, at));
                }
            }
            limits.categories.push(Category { name, calls: category.calls, slow_ms });
        }
        if problems.is_empty() { Ok(limits) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let limits_none = self.calls == 0 && self.parallel == 0 && self.categories.is_empty();
        let idle = (limits_none && self.tools.iter().all(|(_, calls)| *calls == 0)).then_some(NO_LIMITS);
        let members = self.members.iter().flat_map(|(tool, category)| {
            let name = self.categories.get(*category).map_or("", |category| &*category.name);
            list_tools(format!("categories.{name}.tools"), [tool])
        });
        let named_tools = members.chain(list_keys("tools", &self.tools)).collect();
        About { named_tools, restricts_calls: true, idle, ..About::default() }
    }

    fn read(&self, event: &Event<'_>, used: &mut Used, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => {
                if used.all.was_announced || used.limited().any(|count| count.was_announced) {
                    plan.notice("fresh", self.texts.fill(&FRESH, &[]));
                }
                *used = Used::default();
            }
            Event::Call(call) => self.count(&call.name, used),
            Event::Result(result) => {
                if let Some(category) = self.slow_category(result) {
                    plan.remark_of("slow", category);
                }
            }
            Event::ResultsComplete(_) => self.announce(used, plan),
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, used: &Used) -> Verdict {
        let all = (used.all.calls, self.calls);
        if self.calls > 0 && used.all.calls >= self.calls {
            return Verdict::Block(
                self.used_up(all, &noun_after(self.calls, "tool call"), ANSWER).for_the_turn(),
            );
        }
        if let Some((at, category)) = self.category(call.name).filter(|(_, category)| category.calls > 0) {
            let calls = used.category(at).calls;
            if calls >= category.calls {
                let what = format!("{} of {} tools", noun_after(category.calls, "call"), category.name);
                return Verdict::Block(self.used_up((calls, category.calls), &what, OTHER_TOOLS));
            }
        }
        for (counts_as, limit) in self.limits_of(call.name) {
            let calls = used.tools.get(&counts_as).map_or(0, |(_, count)| count.calls);
            if calls >= limit {
                let what = format!("{} of {}", noun_after(limit, "call"), call.name);
                return Verdict::Block(self.used_up((calls, limit), &what, OTHER_TOOLS));
            }
        }
        if self.parallel > 0 && used.in_reply >= self.parallel {
            return Verdict::Block(self.too_many_at_once(used.in_reply));
        }
        Verdict::Allow
    }

    fn release(&self, call: &Proposed<'_>, used: &mut Used) {
        self.count(call.name, used);
        used.in_reply += 1;
    }

    fn usage(&self, used: &Used, _now_ms: u64) -> Vec<Usage> {
        let all =
            (self.calls > 0).then(|| Usage { tool: "*".to_owned(), used: used.all.calls, limit: self.calls });
        let categories = self.categories.iter().enumerate().filter(|(_, category)| category.calls > 0);
        let categories = categories.map(|(at, category)| Usage {
            tool: format!("category:{}", category.name),
            used: used.category(at).calls,
            limit: category.calls,
        });
        let tools = used.tools.iter().filter_map(|(counts_as, (tool, count))| {
            let limit = self.limit_of(tool, counts_as)?;
            Some(Usage { tool: tool.clone(), used: count.calls, limit })
        });
        all.into_iter().chain(categories).chain(tools).collect()
    }
}

const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {used} of {limit} {what} in this turn {limit:is/are} used. {advice}",
    placeholders: &["used", "limit", "what", "advice"],
};
const AT_ONCE: Text = Text {
    key: "at_once",
    default: "The call was not run: at most {limit} {limit:call/calls} of one reply {limit:is/are} run at once. \
              Call fewer at once; this one can be made again in your next reply.",
    placeholders: &["limit"],
};
const NOTICE: Text = Text {
    key: "notice",
    default: "[toolrein] {used} of {limit} {what} in this turn {limit:is/are} used. {advice}",
    placeholders: &["used", "limit", "what", "advice"],
};
const FRESH: Text = Text {
    key: "fresh",
    default: "[toolrein] New turn: the limits on tool calls begin anew.",
    placeholders: &[],
};

const ANSWER: &str = "Give your final answer now with what you have, or ask the user how to go on.";
const OTHER_TOOLS: &str = "Go on with what you have or with other tools.";

impl TurnLimits {
    fn category(&self, tool: &str) -> Option<(usize, &Category)> {
        let at = *best_concern(&self.members, tool)?;
        Some((at, self.categories.get(at)?))
    }

    /// How often `tool` may be called in a turn, where it has limits of its own: each with the name that it counts
    /// for.
    fn limits_of(&self, tool: &str) -> impl Iterator<Item = (String, u64)> + use<> {
        let concerns = all_concerns(&self.tools, tool).into_iter();
        let limits: Vec<_> = concerns.map(|concern| (concern.counts_as, *concern.value)).collect();
        limits.into_iter().filter(|(_, calls)| *calls > 0)
    }

    /// The limit of `tool` for which its calls count as `counts_as`.
    fn limit_of(&self, tool: &str, counts_as: &str) -> Option<u64> {
        self.limits_of(tool).find(|(name, _)| name == counts_as).map(|(_, calls)| calls)
    }

    fn count(&self, tool: &str, used: &mut Used) {
        used.all.calls += 1;
        for (counts_as, _) in self.limits_of(tool) {
            let count = used.tools.entry(counts_as);
            count.or_insert_with(|| (tool.to_owned(), Count::default())).1.calls += 1;
        }
        if let Some((at, _)) = self.category(tool) {
            used.category_mut(at).calls += 1;
        }
    }

    /// The name of the result's category, where the call took longer than that allows.
    fn slow_category(&self, result: &ToolResult<'_>) -> Option<&Arc<str>> {
        let (_, category) = self.category(result.tool())?;
        let is_slow = category.slow_ms > 0 && result.took_ms? > category.slow_ms;
        is_slow.then_some(&category.name)
    }

    /// Adds one notice about the limits that were reached.
    fn announce(&self, used: &mut Used, plan: &mut Plan) {
        let mut lines = Vec::new();
        let line = |used: u64, limit: u64, what: &str, advice: &str| {
            let numbers = [("used", &used as &dyn Display), ("limit", &limit)];
            self.texts.fill(&NOTICE, &[numbers[0], numbers[1], ("what", &what), ("advice", &advice)])
        };
        if used.all.is_news(self.calls) {
            lines.push(line(used.all.calls, self.calls, &noun_after(self.calls, "tool call"), ANSWER));
        }
        // With no calls left at all, nothing more needs to be said.
        if !used.all.was_announced {
            for (at, Category { name, calls: limit, .. }) in self.categories.iter().enumerate() {
                if used.category_mut(at).is_news(*limit) {
                    let what = format!("{} of {name} tools", noun_after(*limit, "call"));
                    lines.push(line(used.category(at).calls, *limit, &what, OTHER_TOOLS));
                }
            }
            for (counts_as, (tool, count)) in &mut used.tools {
                let limit = self.limit_of(tool, counts_as);
                let Some(limit) = limit.filter(|limit| count.is_news(*limit)) else { continue };
                let what = format!("{} of {tool}", noun_after(limit, "call"));
                lines.push(line(count.calls, limit, &what, OTHER_TOOLS));
            }
        }
        if !lines.is_empty() {
            plan.notice("notice", lines.join("\n"));
        }
    }

    fn used_up(&self, (used, limit): (u64, u64), what: &str, advice: &str) -> Reason {
        let numbers = [("used", &used as &dyn Display), ("limit", &limit)];
        let message =
            self.texts.fill(&BLOCKED, &[numbers[0], numbers[1], ("what", &what), ("advice", &advice)]);
        Reason::new(ReasonKind::BudgetExceeded, message).with(vec![("used", used), ("limit", limit)])
    }

    fn too_many_at_once(&self, in_reply: u64) -> Reason {
        let message = self.texts.fill(&AT_ONCE, &[("limit", &self.parallel)]);
        let numbers = vec![("used", in_reply), ("limit", self.parallel)];
        Reason::new(ReasonKind::BudgetExceeded, message).retryable().with(numbers)
    }
}

impl Used {
    /// The counts of categories and tools.
    fn limited(&self) -> impl Iterator<Item = &Count> {
        self.categories.iter().chain(self.tools.values().map(|(_, count)| count))
    }

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
    /// Whether the limit is reached and the model has not read so yet; marks it as read.
    fn is_news(&mut self, limit: u64) -> bool {
        limit > 0 && self.calls >= limit && !std::mem::replace(&mut self.was_announced, true)
    }
}

fn no_bound() -> Period {
    Period(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::super::cases::{policy, read, read_knowing, set_times, turn};
    use super::*;
    use crate::set::Judge;
    use model::Transcript;
    use model::account::Account;
    use model::plan::Change;
    use model::testing::{SampleRequest, answered_calls, assistant, user};

    const SEARCHES: &str = "categories.retrieval = { tools = [\"search*\"], calls = 3 }\n";

    fn judge(table: &str, request: &SampleRequest) -> Judge {
        read(&policy::<TurnLimits>(table), request, &[]).1
    }

    /// Which of the calls of one reply are let through.
    fn allowed(judge: &mut Judge, tools: &[&str]) -> Vec<bool> {
        tools.iter().map(|tool| judge.rule(0, tool, None, 0).is_allowed()).collect()
    }

    fn reason(judge: &mut Judge, tool: &str) -> Reason {
        judge.rule(0, tool, None, 0).objections.remove(0).1
    }

    /// Each notice: the index of its message, its name, its text.
    fn notices(table: &str, request: &SampleRequest) -> Vec<(usize, &'static str, String)> {
        let plan = read(&policy::<TurnLimits>(table), request, &[]).0;
        let notices = plan.edits.into_iter().map(|edit| match edit.change {
            Change::Notice { text, word } => (edit.item.index, word, text),
            other => panic!("{other:?}"),
        });
        notices.collect()
    }

    /// A turn of calls that was answered, and a further question.
    fn next_turn(tool: &str, calls: usize) -> SampleRequest {
        let next = [assistant("done"), user("more")];
        SampleRequest::new(answered_calls(tool, calls).iter().chain(&next))
    }

    #[test]
    fn each_tool_that_is_named_has_its_own_limit_in_a_turn() {
        let table = "tools = { \"*search*\" = 3, web_search = 2, free_search = 0 }";
        for (tool, made, runs) in [
            ("web_search", 1, true),
            ("web_search", 2, false),
            ("searchAll", 2, true),
            ("searchAll", 3, false),
            ("free_search", 9, true),
            ("weather", 9, true),
        ] {
            assert_eq!(allowed(&mut judge(table, &turn(tool, made)), &[tool]), [runs], "{tool} {made}");
        }
        let mut used_up = judge(table, &turn("web_search", 2));
        assert_eq!(allowed(&mut used_up, &["searchAll"]), [true], "another tool of the same pattern");
        assert_eq!(allowed(&mut used_up, &["Web_Search"]), [false], "as programs look it up");
        let reason = reason(&mut used_up, "web_search");
        assert_eq!(reason.numbers, [("used", 2), ("limit", 2)]);
        assert!(reason.message.contains("2 of 2 calls of web_search in this turn"), "{}", reason.message);
        assert_eq!(allowed(&mut judge(table, &next_turn("web_search", 2)), &["web_search"]), [true]);
        let mut parallel = judge(table, &turn("f", 1));
        assert_eq!(allowed(&mut parallel, &["web_search", "web_search", "web_search"]), [true, true, false]);
    }

    #[test]
    fn the_model_reads_once_that_a_tool_has_no_calls_left() {
        let notices = notices("tools = { web_search = 2 }", &next_turn("web_search", 3));
        let words: Vec<&str> = notices.iter().map(|(_, word, _)| *word).collect();
        assert_eq!(words, ["notice", "fresh"]);
        assert!(notices[0].2.contains("2 of 2 calls of web_search in this turn are used"), "{notices:?}");
    }

    #[test]
    fn an_approval_goes_on_with_the_turn_in_which_it_was_asked_for() {
        let request = next_turn("f", 2);
        let approval = request.request.messages.len() - 1;
        for (approvals, runs) in [(vec![approval], [true, false]), (vec![], [true, true])] {
            let account = Account { approvals, ..Account::default() };
            let learn = |transcript: &mut Transcript| transcript.account = Some(Arc::new(account));
            let mut judge = read_knowing(&[policy::<TurnLimits>("calls = 3")], &request, learn).1;
            assert_eq!(allowed(&mut judge, &["f", "f"]), runs);
        }
    }

    #[test]
    fn calls_beyond_the_turns_limit_are_blocked_and_a_new_turn_begins_anew() {
        let mut second = judge("calls = 3", &turn("f", 2));
        assert_eq!(allowed(&mut second, &["f", "g", "f"]), [true, false, false]);
        let reason = reason(&mut second, "f");
        assert_eq!((reason.kind, reason.retryable), (ReasonKind::BudgetExceeded, false));
        assert_eq!(reason.numbers, [("used", 3), ("limit", 3)]);
        assert!(reason.message.contains("Give your final answer now"), "{}", reason.message);
        assert_eq!(allowed(&mut judge("calls = 3", &next_turn("f", 5)), &["f"]), [true]);
        assert_eq!(allowed(&mut judge("", &turn("f", 99)), &["f"]), [true], "0 switches off");
    }

    #[test]
    fn more_calls_at_once_than_allowed_are_blocked_and_may_be_made_later() {
        let mut judge = judge("parallel = 2", &turn("f", 9));
        assert_eq!(allowed(&mut judge, &["f", "g", "f"]), [true, true, false]);
        let reason = reason(&mut judge, "g");
        assert_eq!((reason.kind, reason.retryable), (ReasonKind::BudgetExceeded, true));
        assert_eq!(reason.numbers, [("used", 2), ("limit", 2)]);
        assert!(reason.message.contains("Call fewer at once"), "{}", reason.message);
        assert!(judge.rule(1, "f", None, 0).is_allowed(), "another choice has calls of its own");
    }

    #[test]
    fn each_category_has_its_own_limit_and_other_tools_go_on() {
        let mut judge = judge(SEARCHES, &turn("searchAll", 2));
        assert_eq!(
            allowed(&mut judge, &["searchNotes", "searchAll", "fetch", "searchNotes"]),
            [true, false, true, false]
        );
        let reason = reason(&mut judge, "searchAll");
        assert_eq!((reason.kind, reason.retryable), (ReasonKind::BudgetExceeded, false));
        assert_eq!(reason.numbers, [("used", 3), ("limit", 3)]);
        assert!(
            reason.message.contains("3 of 3 calls of retrieval tools in this turn are used"),
            "{}",
            reason.message
        );
    }

    #[test]
    fn a_tool_belongs_to_the_category_that_fits_it_best() {
        let table =
            format!("{SEARCHES}categories.mine = {{ tools = [\"searchN*\", \"searchAll\"], calls = 1 }}");
        let mut judge = judge(&table, &turn("searchAll", 1));
        assert_eq!(allowed(&mut judge, &["searchNotes", "searchAll", "searchFiles"]), [false, false, true]);
    }

    #[test]
    fn names_are_enough_and_tools_without_a_limit_are_not_looked_at() {
        for (table, tool, is_limited) in [
            ("calls = 1", "f", true),
            ("parallel = 1", "f", true),
            (SEARCHES, "searchAll", true),
            (SEARCHES, "f", false),
            ("categories.a = { tools = [\"f\"], slow = \"1s\" }", "f", false),
        ] {
            let mut judge = judge(table, &turn("f", 0));
            assert!(!judge.needs_arguments(0, tool), "{table} {tool}");
            let last = allowed(&mut judge, &[tool; 4])[3];
            assert_eq!(last, !is_limited, "{table} {tool}");
        }
    }

    #[test]
    fn the_model_reads_once_that_a_limit_is_reached_and_that_the_next_turn_is_free() {
        let found = notices(SEARCHES, &next_turn("searchAll", 5));
        let at: Vec<_> = found.iter().map(|(message, word, _)| (*message, *word)).collect();
        assert_eq!(at, [(6, "notice"), (12, "fresh")]);
        assert!(found[0].2.starts_with("[toolrein] 3 of 3 calls of retrieval tools in this turn are used."));
        let both = notices(&format!("calls = 3\n{SEARCHES}"), &turn("searchAll", 4));
        assert_eq!(both.len(), 1, "no calls left at all says it all");
        assert!(
            both[0]
                .2
                .starts_with("[toolrein] 3 of 3 tool calls in this turn are used. Give your final answer")
        );
        assert_eq!(notices(SEARCHES, &next_turn("searchAll", 2)), []);
    }

    #[test]
    fn a_late_result_is_counted_where_it_is_new_and_nothing_else_happens() {
        let table = "categories.a = { tools = [\"f\"], slow = \"5s\" }\ncategories.b = { tools = [\"g\"] }";
        for (tool, released_ms, remarks) in [
            (
                "f",
                vec![Some(0), Some(4_999)],
                vec![(4, Change::Remark { word: "slow", of: Some("a".into()) })],
            ),
            ("f", vec![Some(0), Some(5_000)], vec![]),
            ("f", vec![Some(0), None], vec![]),
            ("g", vec![Some(0), Some(0)], vec![]),
            ("h", vec![Some(0), Some(0)], vec![]),
        ] {
            let learn = |transcript: &mut Transcript| set_times(transcript, &released_ms, 10_000);
            let plan = read_knowing(&[policy::<TurnLimits>(table)], &turn(tool, 2), learn).0;
            let edits: Vec<_> = plan.edits.into_iter().map(|edit| (edit.item.index, edit.change)).collect();
            assert_eq!(edits, remarks, "{tool} {released_ms:?}");
        }
    }

    #[test]
    fn what_is_left_of_each_limit_is_reported_to_the_operator() {
        let judge = judge(
            &format!("calls = 9\n{SEARCHES}categories.free = {{ tools = [\"f\"] }}"),
            &turn("searchAll", 2),
        );
        let usage: Vec<_> = judge.usage(0).into_iter().map(|(_, it)| (it.tool, it.used, it.limit)).collect();
        assert_eq!(usage, [("*".to_owned(), 2, 9), ("category:retrieval".to_owned(), 2, 3)]);
    }

    #[test]
    fn a_tool_in_two_categories_is_refused() {
        let table = "categories = { a = { tools = [\"f\"] }, b = { tools = [\"g\", \"f\"] }, c = { tools = [\"h\", \"h\"] } }";
        let problems = TurnLimits::new(toml::from_str(table).unwrap()).err().unwrap();
        let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["categories.b.tools: f is named in a already", "categories.c.tools: h is named in c already"]
        );
    }
}
