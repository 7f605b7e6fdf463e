//! A budget of tool calls per turn, and of tokens per conversation.
//!
//! # What it does
//! Counts the tool calls of the running turn (`tool_calls`) and, where `tokens` is set, estimates the size of the
//! conversation. When the share `notify_at` of the scarcest budget is used, a notice after each group of tool results
//! says how much is left; from `critical_at` on it says to answer now or to ask the user. When a budget is exhausted,
//! further calls are blocked and the model is asked for its final answer (`exhausted = "answer"`), it is only informed
//! (`"inform"`), or the request is refused (`"reject"`). If a turn had notices, the next turn opens with a line that
//! the budget is fresh.
//!
//! # Why
//! Models do not know how much they have used. If they read absolute numbers after each step, they spend calls
//! deliberately; the hard limit is what saves cost (BATS, arXiv 2511.17006: the same budget gives better answers with
//! the status shown; prompting alone does not keep a budget). Stale warnings make models reluctant to use tools in
//! later turns, hence the fresh line. Of solved conversations in recorded traffic none has a turn above 50 calls.
//!
//! # State
//! Calls of the turn, tokens so far, and whether this turn saw a notice: all from the transcript.
//!
//! # Example
//! With `tool_calls = 50`, after the 36th call: `[toolrein] Tool budget of this turn: 36 of 50 calls used, 14
//! left (28%). Answer now with what you have, or ask the user.`

use super::{ConfigError, Policy};
use crate::conversation::tokens::Estimate;
use crate::conversation::{Event, View};
use crate::plan::{Plan, Proposed, Reason, ReasonKind, Usage, Verdict};
use serde::Deserialize;

/// See the module.
pub struct Budget {
    config: Config,
}

/// `[policy.budget]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Tool calls per turn; 0: no limit.
    tool_calls: u64,
    /// Estimated tokens of the conversation in the model's context; 0: no limit.
    tokens: u64,
    /// Share of the scarcest budget from which on the model gets notices, 0 to 1.
    notify_at: f64,
    /// Share from which on the notices say to come to an end.
    critical_at: f64,
    exhausted: Exhausted,
}

/// What happens when a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exhausted {
    /// Calls are blocked until the model answers.
    Answer,
    /// The model gets notices, and nothing else happens.
    Inform,
    /// The request is refused.
    Reject,
}

impl Default for Config {
    fn default() -> Self {
        Self { tool_calls: 50, tokens: 0, notify_at: 0.5, critical_at: 0.7, exhausted: Exhausted::Answer }
    }
}

/// What one conversation has used.
#[derive(Clone, Default)]
pub struct Used {
    calls: u64,
    tokens: Estimate,
    /// This turn had a notice.
    had_notice: bool,
}

impl Policy for Budget {
    const NAME: &'static str = "budget";
    const SUMMARY: &'static str =
        "shows the model its budget of tool calls and blocks calls when it is used up";
    type Config = Config;
    type State = Used;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        for (key, share) in [("notify_at", config.notify_at), ("critical_at", config.critical_at)] {
            if !(0.0..=1.0).contains(&share) {
                problems.push(ConfigError::new(key, format!("expected a share from 0 to 1, found {share}")));
            }
        }
        if problems.is_empty() && config.notify_at > config.critical_at {
            problems.push(ConfigError::new("notify_at", "expected no more than critical_at"));
        }
        if problems.is_empty() { Ok(Self { config }) } else { Err(problems) }
    }

    fn read(&self, event: &Event<'_>, used: &mut Used, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => {
                if used.had_notice && self.config.tool_calls > 0 && !self.tokens_exhausted(used) {
                    plan.notice("fresh", self.fresh_line());
                }
                (used.calls, used.had_notice) = (0, false);
            }
            Event::Call(_) => used.calls += 1,
            Event::System(view) | Event::User(view) | Event::Assistant(view) => self.count(view, used),
            Event::Result(result) => self.count(&result.view, used),
            Event::Hidden { .. } => {}
            Event::ResultsComplete(_) => {
                let share = self.share(used);
                plan.report_budget_left((1.0 - share).max(0.0));
                if share >= self.config.notify_at && share > 0.0 {
                    used.had_notice = true;
                    let word = if share >= self.config.critical_at { "critical" } else { "notice" };
                    plan.notice(word, self.status(used, share));
                }
            }
        }
    }

    fn close(&self, used: &Used, plan: &mut Plan) {
        if self.config.exhausted == Exhausted::Reject && self.is_exhausted(used) {
            plan.refuse(
                "budget_exceeded",
                format!("The budget of this conversation is used up: {}.", self.facts(used)),
            );
        }
    }

    fn judge(&self, _call: &Proposed<'_>, used: &Used) -> Verdict {
        if self.config.exhausted != Exhausted::Answer || !self.is_exhausted(used) {
            return Verdict::Allow;
        }
        Verdict::Block(Reason::new(ReasonKind::BudgetExceeded, format!(
                "The call was not run: {}. No tool calls left. Give your final answer now with what you have, or \
                 ask the user how to go on.",
                self.facts(used)
            )).for_the_turn().with(self.numbers(used)))
    }

    fn release(&self, _call: &Proposed<'_>, used: &mut Used) {
        used.calls += 1;
    }

    fn usage(&self, used: &Used, _now_ms: u64) -> Vec<Usage> {
        let limit = self.config.tool_calls;
        if limit == 0 || used.calls == 0 {
            return Vec::new();
        }
        vec![Usage { tool: "*".to_owned(), used: used.calls, limit }]
    }
}

impl Budget {
    /// Counts tokens only where something depends on them.
    fn count(&self, message: &View<'_>, used: &mut Used) {
        if self.config.tokens > 0 {
            used.tokens += message.tokens();
        }
    }

    /// The used share of the scarcest budget.
    fn share(&self, used: &Used) -> f64 {
        let calls = share(used.calls, self.config.tool_calls);
        calls.max(share(used.tokens.tokens(), self.config.tokens))
    }

    fn is_exhausted(&self, used: &Used) -> bool {
        self.share(used) >= 1.0
    }

    fn tokens_exhausted(&self, used: &Used) -> bool {
        share(used.tokens.tokens(), self.config.tokens) >= 1.0
    }

    /// The notice after a group of results. A function of the history before it and of nothing else.
    fn status(&self, used: &Used, share: f64) -> String {
        // What is left of 4 of 5 comes out a hair under 20%.
        let left = ((1.0 - share).max(0.0) * 100.0 + 1e-6).floor();
        let advice = if share >= 1.0 {
            "No tool calls left: answer now with what you have, or ask the user."
        } else if share >= self.config.critical_at {
            "Answer now with what you have, or ask the user."
        } else {
            "Use the calls that are left for what matters most."
        };
        format!("[toolrein] Budget: {}, ~{left}% left. {advice}", self.facts(used))
    }

    fn facts(&self, used: &Used) -> String {
        let mut facts = Vec::new();
        if self.config.tool_calls > 0 {
            facts.push(format!("{} of {} tool calls of this turn used", used.calls, self.config.tool_calls));
        }
        if self.config.tokens > 0 {
            facts.push(format!("~{} of {} tokens used", used.tokens.tokens(), self.config.tokens));
        }
        facts.join(", ")
    }

    fn numbers(&self, used: &Used) -> Vec<(&'static str, u64)> {
        let calls = [("used", used.calls), ("limit", self.config.tool_calls)];
        let tokens = [("tokens_used", used.tokens.tokens()), ("tokens_limit", self.config.tokens)];
        let set =
            |numbers: [(&'static str, u64); 2]| if numbers[1].1 > 0 { numbers.to_vec() } else { Vec::new() };
        [set(calls), set(tokens)].concat()
    }

    fn fresh_line(&self) -> String {
        format!("[toolrein] New turn: the tool budget is fresh, {} tool calls.", self.config.tool_calls)
    }
}

/// `used` of `limit`, 0 where there is no limit.
fn share(used: u64, limit: u64) -> f64 {
    if limit == 0 { 0.0 } else { used as f64 / limit as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Conversation, plan_of, policy, turn};
    use super::*;
    use crate::plan::Change;

    /// Each notice: the index of its message, its name, its text.
    fn notices(table: &str, body: &str) -> Vec<(usize, &'static str, String)> {
        let plan = plan_of(&policy::<Budget>(table), body);
        let notices = plan.edits.into_iter().map(|edit| match edit.change {
            Change::Notice { text, word } => (edit.message, word, text),
            other => panic!("{other:?}"),
        });
        notices.collect()
    }

    #[test]
    fn nothing_is_said_before_half_of_the_budget_is_used() {
        assert_eq!(notices("tool_calls = 10", &turn("f", 4)), []);
    }

    #[test]
    fn from_half_on_every_group_is_followed_by_what_is_left() {
        let notices = notices("tool_calls = 10", &turn("f", 10));
        let words: Vec<(usize, &str)> = notices.iter().map(|(message, word, _)| (*message, *word)).collect();
        assert_eq!(
            words,
            [
                (10, "notice"),
                (12, "notice"),
                (14, "critical"),
                (16, "critical"),
                (18, "critical"),
                (20, "critical")
            ]
        );
        assert_eq!(
            notices[0].2,
            "[toolrein] Budget: 5 of 10 tool calls of this turn used, ~50% left. Use the calls that are left for \
             what matters most."
        );
        assert!(notices[2].2.ends_with("~30% left. Answer now with what you have, or ask the user."));
        assert!(notices[5].2.contains("No tool calls left: answer now"));
    }

    #[test]
    fn a_group_of_parallel_calls_gets_one_notice_after_its_last_result() {
        let body = r#"{"messages":[{"role":"user","content":"q"},
            {"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]},
            {"role":"tool","tool_call_id":"b","content":""},{"role":"tool","tool_call_id":"a","content":""}]}"#;
        let places: Vec<usize> = notices("tool_calls = 4", body).iter().map(|notice| notice.0).collect();
        assert_eq!(places, [3]);
        let open = r#"{"messages":[{"role":"user","content":"q"},
            {"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]},
            {"role":"tool","tool_call_id":"b","content":""},{"role":"user","content":"stop"}]}"#;
        assert_eq!(notices("tool_calls = 2", open), []);
    }

    #[test]
    fn a_new_turn_starts_with_a_fresh_budget_and_says_so_where_the_last_one_had_notices() {
        let next = r#",{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}"#;
        for (calls, said) in [(3, false), (6, true)] {
            let body = format!("{}{next}", turn("f", calls).strip_suffix("]}").unwrap());
            let fresh: Vec<_> =
                notices("tool_calls = 10", &body).into_iter().filter(|notice| notice.1 == "fresh").collect();
            assert_eq!(fresh.len(), usize::from(said), "{calls} calls");
            if said {
                assert_eq!(fresh[0].0, calls * 2 + 2);
                assert_eq!(fresh[0].2, "[toolrein] New turn: the tool budget is fresh, 10 tool calls.");
            }
        }
    }

    #[test]
    fn a_user_message_right_after_results_belongs_to_the_running_turn() {
        let body = turn("f", 6);
        let body =
            format!("{},{{\"role\":\"user\",\"content\":\"go on\"}}]}}", body.strip_suffix("]}").unwrap());
        assert!(notices("tool_calls = 10", &body).iter().all(|notice| notice.1 != "fresh"));
    }

    #[test]
    fn calls_beyond_the_budget_are_blocked_in_order() {
        for (used, verdicts) in [(8, [true, true, false, false]), (10, [false; 4])] {
            let mut talk =
                Conversation::with_calls(&policy::<Budget>("tool_calls = 10"), "f", &vec![None; used]);
            for allowed in verdicts {
                let ruling = talk.judge("f", "{}", 0);
                assert_eq!(ruling.is_allowed(), allowed, "{used} used");
                if let Some((_, reason)) = ruling.objections.first() {
                    assert_eq!((reason.kind, reason.retryable), (ReasonKind::BudgetExceeded, false));
                    assert!(
                        reason.message.contains("10 of 10 tool calls")
                            && reason.message.contains("final answer now")
                    );
                }
            }
        }
    }

    #[test]
    fn informing_blocks_nothing_and_rejecting_refuses_the_request() {
        let mut talk = Conversation::with_calls(
            &policy::<Budget>("tool_calls = 1\nexhausted = \"inform\""),
            "f",
            &[None],
        );
        assert!(talk.judge("f", "{}", 0).is_allowed());
        let reject = policy::<Budget>("tool_calls = 2\nexhausted = \"reject\"");
        assert_eq!(plan_of(&reject, &turn("f", 1)).refusal, None);
        let refusal = plan_of(&reject, &turn("f", 2)).refusal.unwrap();
        assert_eq!(refusal.code, "budget_exceeded");
        assert!(refusal.message.contains("2 of 2 tool calls"));
    }

    #[test]
    fn tokens_are_counted_only_where_they_are_limited_and_shown_only_there() {
        let body = turn("f", 3);
        assert!(notices("tool_calls = 4", &body).iter().all(|notice| !notice.2.contains("tokens")));
        let notices_of = notices("tool_calls = 0\ntokens = 50", &body);
        let next = r#",{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}"#;
        let body = format!("{}{next}", body.strip_suffix("]}").unwrap());
        assert!(notices("tool_calls = 0\ntokens = 80", &body).iter().all(|notice| notice.1 != "fresh"));
        assert!(notices_of.last().unwrap().2.contains("of 50 tokens used"), "{notices_of:?}");
        let mut talk =
            Conversation::with_calls(&policy::<Budget>("tool_calls = 0\ntokens = 20"), "f", &[None; 3]);
        assert!(!talk.judge("f", "{}", 0).is_allowed());
    }

    #[test]
    fn an_exhausted_conversation_budget_is_never_called_fresh() {
        let next = r#",{"role":"assistant","content":"done"},{"role":"user","content":"more"}]}"#;
        let body = format!("{}{next}", turn("f", 6).strip_suffix("]}").unwrap());
        assert!(notices("tool_calls = 10\ntokens = 20", &body).iter().all(|notice| notice.1 != "fresh"));
    }

    #[test]
    fn shares_outside_their_range_are_refused() {
        for (table, key) in [
            ("notify_at = 1.5", "notify_at"),
            ("critical_at = -0.1", "critical_at"),
            ("notify_at = 0.9\ncritical_at = 0.5", "notify_at"),
        ] {
            let config: Config = toml::from_str(table).unwrap();
            assert_eq!(Budget::new(config).err().unwrap()[0].key, key);
        }
    }
}
