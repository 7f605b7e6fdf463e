//! Stale references: arguments whose values are no longer current.
//!
//! # What it does
//! A rule ties an `argument` of a `tool` to the values at a `path` in the results of the tool `from`: the argument
//! must be the newest value, or one of the newest values, else the call is blocked and the model reads the current
//! one. With `max_calls` or `max_age` the value must also not be older than so many calls or so long; a call with a value
//! that is older than `late` runs, and is counted and logged. A source called in the same reply has no result yet, so the
//! call has to wait for it. If no result has given a value yet, the reason asks the model to call the source first
//! (`unknown = "block"`), or the call passes (`"pass"`), or it passes with a value that the system messages name
//! (`"named"`). A call without the argument passes: whether the argument is required is for the schema to say.
//!
//! # Why
//! Models copy ids from wherever they last read one, or make them up. The award then goes to a card that is no longer
//! on the table. Results are more reliable than the model's memory.
//!
//! # State
//! For each rule the newest values, and how many calls have been made since; with `"named"` the text of the system
//! messages, and of no others: users can name what they like. Results that failed or give no value change nothing;
//! the results of one reply count together. The age of a value is measured from when its call was handed out; where
//! that is not known, the value is old.
//!
//! # Example
//! With `{ tool = "award_points", argument = "card_id", from = "show_next_card", path = "card.id" }` a call with
//! `card_id = "c1"` after card c2 was shown is blocked with `STALE_REFERENCE`: "show_next_card last gave \"c2\"".

mod rule;
mod words;

use super::about::{About, list_tools};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use model::outcome::has_failed;
use model::plan::{Plan, Proposed, Verdict};
use model::{Event, ToolResult};
use rule::{Rule, Written};
use serde::Deserialize;
use std::collections::HashSet;

/// See the module.
pub struct Fresh {
    rules: Vec<Rule>,
    unknown: Unknown,
    texts: Texts,
}

/// `[policy.fresh]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    rules: Vec<Written>,
    /// What happens to a call before any result has given a value.
    unknown: Unknown,
    texts: OwnTexts,
}

/// What happens to a call before any result has given a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unknown {
    #[default]
    Block,
    Pass,
    /// It passes with a value that the system messages name.
    Named,
}

/// What the results have given so far.
#[derive(Clone, Default)]
pub struct State {
    /// The calls so far.
    calls: u64,
    /// The calls before the last reply.
    before_reply: u64,
    /// What each rule's source gave, in the order of the rules.
    given: Vec<Given>,
    /// The texts of the system messages, where values may be named by them.
    instructions: Vec<String>,
}

/// What one source gave.
#[derive(Clone, Default)]
struct Given {
    newest: Option<Newest>,
    /// The source is called in the reply that is being judged.
    coming: bool,
}

/// The newest values.
#[derive(Clone)]
struct Newest {
    values: Vec<String>,
    /// The reply that called for them.
    reply: usize,
    /// The calls up to and with that of the source.
    calls: u64,
    released_ms: Option<u64>,
    /// The reason may quote the values.
    may_quote: bool,
}

/// What is wrong with a call under one rule.
enum Problem<'a> {
    /// No result has given a value yet.
    Unknown,
    /// No result has given a value, and the system messages do not name this one.
    Unnamed { given: &'a str },
    /// The newest values are in a result that has not come yet.
    Coming,
    /// The argument is none of the newest values.
    Stale { given: &'a str, newest: &'a Newest },
    /// More calls than allowed were made since; their number.
    TooManyCalls { calls_since: u64 },
    /// The value is too old; its age, where that is known.
    TooOld { age_ms: Option<u64> },
}

impl Policy for Fresh {
    const NAME: &'static str = "fresh";
    const SUMMARY: &'static str = "requires arguments to be the newest value in another tool's result";
    const TEXTS: &'static [Text] = words::TEXTS;
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let checked = config.rules.into_iter().enumerate().map(|(at, written)| written.check(at));
        let (rules, problems): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
        let mut problems: Vec<ConfigError> = problems.into_iter().filter_map(Result::err).flatten().collect();
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self { rules: rules.into_iter().flatten().collect(), unknown: config.unknown, texts })
    }

    fn about(&self) -> About {
        let tools =
            |rule: &Rule| [list_tools("rules.tool", [&rule.tool]), list_tools("rules.from", [&rule.from])];
        let named_tools = self.rules.iter().flat_map(tools).flatten().collect();
        let idle = self.rules.is_empty().then_some("it has no rules");
        About { named_tools, restricts_calls: true, idle, ..About::default() }
    }

    fn read(&self, event: &Event<'_>, known: &mut State, plan: &mut Plan) {
        match event {
            Event::System(view) if self.unknown == Unknown::Named => {
                known.instructions.extend(view.texts().map(std::borrow::Cow::into_owned));
            }
            Event::Assistant(_) => known.before_reply = known.calls,
            Event::Call(_) => known.calls += 1,
            Event::Result(result) => {
                if self.is_late(result, known) {
                    plan.remark("late");
                }
                self.learn(result, known, plan);
            }
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, known: &State) -> Verdict {
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.tool.concerns(call.name));
        for (at, rule) in rules {
            let Some(arguments) = call.arguments else { return Verdict::NeedsArguments };
            let values = rule.argument.values(arguments);
            if let Some(problem) = self.problem((at, rule), &values, known, call.now_ms) {
                return Verdict::Block(words::reason(&self.texts, call.name, rule, &problem));
            }
        }
        Verdict::Allow
    }

    fn release(&self, call: &Proposed<'_>, known: &mut State) {
        known.calls += 1;
        for (at, _) in self.rules.iter().enumerate().filter(|(_, rule)| rule.from.matches(call.name)) {
            known.given_by(at).coming = true;
        }
    }
}

impl Fresh {
    /// Whether the call of this result was handed out later after its value than a rule expects.
    fn is_late(&self, result: &ToolResult<'_>, known: &State) -> bool {
        let Some((call, at_ms)) = result.call.and_then(|call| Some((call, call.released_ms?))) else {
            return false;
        };
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.late_ms > 0);
        let mut concerned = rules.filter(|(_, rule)| rule.tool.concerns(&call.name));
        concerned.any(|(at, rule)| {
            let newest = known.given.get(at).and_then(|given| given.newest.as_ref());
            let given_ms = newest.filter(|newest| newest.reply < call.message).and_then(|it| it.released_ms);
            let is_late = given_ms.is_some_and(|given_ms| at_ms.saturating_sub(given_ms) > rule.late_ms);
            is_late && !rule.argument.values(&call.arguments_text()).is_empty()
        })
    }

    /// Stores the values in a source's result.
    fn learn(&self, result: &ToolResult<'_>, known: &mut State, plan: &Plan) {
        let Some(call) = result.call else { return };
        let mut failed = None;
        for (at, rule) in self.rules.iter().enumerate().filter(|(_, rule)| rule.from.matches(&call.name)) {
            if *failed.get_or_insert_with(|| has_failed(&result.view)) {
                return;
            }
            let values: Vec<String> = result.view.texts().flat_map(|text| rule.path.values(&text)).collect();
            if values.is_empty() {
                continue;
            }
            let calls = known.before_reply + call.position as u64 + 1;
            let newest = Newest {
                values,
                reply: call.message,
                calls,
                // Where the times are ambiguous, the stricter one.
                released_ms: call.earliest_ms.or(call.released_ms),
                may_quote: !plan.changes_text_here(),
            };
            known.given_by(at).take(newest);
        }
    }

    fn problem<'a>(
        &self,
        (at, rule): (usize, &Rule),
        values: &'a [String],
        known: &'a State,
        now_ms: u64,
    ) -> Option<Problem<'a>> {
        if values.is_empty() {
            return None;
        }
        let given = known.given.get(at);
        if given.is_some_and(|given| given.coming) {
            return Some(Problem::Coming);
        }
        let Some(newest) = given.and_then(|given| given.newest.as_ref()) else {
            return match self.unknown {
                Unknown::Block => Some(Problem::Unknown),
                Unknown::Pass => None,
                Unknown::Named => self.unnamed(rule, values, known),
            };
        };
        let known_values: HashSet<&String> = newest.values.iter().collect();
        if let Some(stale) = values.iter().find(|value| !known_values.contains(value)) {
            return Some(Problem::Stale { given: stale, newest });
        }
        let calls_since = known.calls.saturating_sub(newest.calls);
        if rule.max_calls > 0 && calls_since > rule.max_calls {
            return Some(Problem::TooManyCalls { calls_since });
        }
        let age_ms = newest.released_ms.map(|at_ms| now_ms.saturating_sub(at_ms));
        let too_old = rule.max_age_ms > 0 && age_ms.is_none_or(|age_ms| age_ms > rule.max_age_ms);
        too_old.then_some(Problem::TooOld { age_ms })
    }
}

impl Fresh {
    /// As long as no result has given a value for the argument: the system messages do not name the value either.
    fn unnamed<'a>(&self, rule: &Rule, values: &'a [String], known: &State) -> Option<Problem<'a>> {
        let same =
            |other: &Rule| other.tool == rule.tool && other.argument.as_str() == rule.argument.as_str();
        let given = |at: usize| known.given.get(at).is_some_and(|given| given.newest.is_some());
        // Several rules may name one source in several forms: the form under which its results are counted.
        if self.rules.iter().enumerate().any(|(at, other)| same(other) && given(at)) {
            return None;
        }
        let is_named = |value: &&String| known.instructions.iter().any(|text| names(text, value));
        values.iter().find(|value| !is_named(value)).map(|given| Problem::Unnamed { given })
    }
}

/// Whether `value` is in `text` as a separate word.
fn names(text: &str, value: &str) -> bool {
    let is_part = |char: char| char.is_alphanumeric() || char == '_' || char == '-';
    let stands_alone = |at: usize| {
        let (before, after) = (&text[..at], &text[at + value.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    };
    !value.is_empty() && text.match_indices(value).any(|(at, _)| stands_alone(at))
}

impl State {
    fn given_by(&mut self, rule: usize) -> &mut Given {
        if self.given.len() <= rule {
            self.given.resize(rule + 1, Given::default());
        }
        &mut self.given[rule]
    }
}

impl Given {
    /// Newer values replace older ones; those of one reply are kept together, as old as the newest of them.
    fn take(&mut self, mut newer: Newest) {
        if let Some(known) = self.newest.take().filter(|known| known.reply == newer.reply) {
            newer.values.extend(known.values);
            newer.calls = newer.calls.max(known.calls);
            newer.released_ms = newer.released_ms.max(known.released_ms);
            newer.may_quote &= known.may_quote;
        }
        self.newest = Some(newer);
    }
}

#[cfg(test)]
mod tests;
