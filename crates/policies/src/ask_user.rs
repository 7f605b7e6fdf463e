//! Stuck detection: a model that gets nowhere is advised to ask the user, and may get a tool with which it does.
//!
//! # What it does
//! After a group of results the model reads one notice if the turn goes nowhere: `poor` search results in a row without
//! a good one, `same_topic` searches for the same words or with the same first three, `diminishing` results that share most of
//! their lines or items with earlier ones, `errors` failed results in a row or equal errors, or less than `budget_left` of a
//! budget. It says why, with numbers, and what to ask. Searches, errors and the budget are each reported once a turn at most.
//!
//! With `tool = true` a tool of toolrein's own is declared after the client's, `ask_for_clarification(question,
//! context)`. When the model calls it, the client gets the question as an ordinary final message of the assistant, and
//! the turn ends. If other calls of the same reply run, these go first and the question is put off; the model reads so.
//! Without a user's message since the last question, or since the last text without calls, a question is blocked: the
//! model is to go on with what it has. The same holds for an empty question and for one of more than `max_chars`.
//!
//! # Why
//! A search that fails three times does not get better by a fourth with the same words; the user often knows the missing
//! name. Models rarely ask by themselves, and a notice costs less than the searches that follow.
//!
//! # State
//! The results of the turn, from the conversation. Whether a question waits for its answer: from the hidden exchange,
//! where the state store still has it, and from the texts of the conversation.
//!
//! # Example
//! Three searches for a colleague find nobody: `[toolrein] 3 search results in a row brought nothing for their queries;
//! ask which source, name or term to look for. Answer with what you have, or end your turn with one short question.`

mod ask;
mod search;
mod stop_words;
mod turn;
mod units;
mod words;

use super::about::{About, NO_LIMITS, list_tools};
use super::path::Path;
use super::pattern::{Pattern, any_concerns, problem_of};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use ask::Asking;
use model::outcome::Following;
use model::plan::{Finding, Plan, Proposed, Verdict};
use model::{Event, ToolResult};
use search::{Quality, query_of};
use serde::Deserialize;
use std::fmt::Display;
use std::sync::Arc;
use turn::{Search, Turn};
use words::Words;

/// See the module.
pub struct AskUser {
    config: Config,
    quality: Quality,
    texts: Texts,
    /// The result of a call whose question was put.
    asked: String,
    /// The declaration of its tool.
    declaration: Arc<str>,
}

/// `[policy.ask_user]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools that search, by name or pattern.
    searches: Vec<Pattern>,
    /// The arguments that hold a search's query; the first that a call has counts.
    query: Vec<String>,
    quality: QualityConfig,
    /// The share of the query's words that a good result has, 0 to 1; 0: any.
    overlap: f64,
    /// Search results in a row without a good one after which a notice comes; 0: never.
    poor: usize,
    /// Searches of one tool for the same words, or with the same first three content words, in a turn after which it comes; 0:
    /// never.
    same_topic: usize,
    /// Search results in a row that bring little new after which it comes; 0: never.
    diminishing: usize,
    /// From this share of known lines or items on a result brings little new, 0 to 1.
    shared: f64,
    /// Failed results in a row, or equal errors in a turn, after which it comes; 0: never.
    errors: usize,
    /// Below this share of a budget it comes; 0: never.
    budget_left: f64,
    /// Declare the tool.
    tool: bool,
    /// The longest question with its context, in characters.
    max_chars: usize,
    texts: OwnTexts,
}

/// Where a result says how good it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QualityConfig {
    /// A path such as `quality.level`; empty: none says so.
    path: String,
    /// The values that are good.
    good: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            searches: ["*search*", "*lookup*", "*look_up*", "*retriev*", "*query*"]
                .map(Pattern::new)
                .to_vec(),
            query: owned(&[
                "query",
                "q",
                "search_query",
                "searchQuery",
                "search_term",
                "searchTerm",
                "search",
                "keywords",
                "keyword",
                "terms",
                "term",
                "queries",
                "question",
                "text",
                "topic",
                "input",
            ]),
            quality: QualityConfig::default(),
            overlap: 0.25,
            poor: 3,
            same_topic: 3,
            diminishing: 2,
            shared: 0.7,
            errors: 3,
            budget_left: 0.3,
            tool: false,
            max_chars: 2_000,
            texts: OwnTexts::default(),
        }
    }
}

impl Default for QualityConfig {
    fn default() -> Self {
        let good = ["good", "high", "medium"].map(str::to_owned).to_vec();
        Self { path: "quality.level".to_owned(), good }
    }
}

/// What is known of one conversation.
#[derive(Clone, Default)]
pub struct State {
    asking: Asking,
    turn: Turn,
}

impl Policy for AskUser {
    const NAME: &'static str = "ask_user";
    const SUMMARY: &'static str =
        "advises a model that gets nowhere to ask the user, and lets it ask by a tool";
    const TEXTS: &'static [Text] = &[
        NOTICE,
        POOR,
        TOPIC,
        DIMINISHING,
        FAILED,
        SAME_ERROR,
        BUDGET,
        ADVICE,
        ADVICE_TOOL,
        ask::DECLARED,
        ask::QUESTION,
        ask::WITH_CONTEXT,
        ask::ASKED,
        ask::PUT_OFF,
        ask::INVALID,
        ask::TWICE,
        ask::ANOTHER,
    ];
    type Config = Config;
    type State = State;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems: Vec<ConfigError> = problem_of("searches", &config.searches).into_iter().collect();
        for (key, share) in
            [("overlap", config.overlap), ("shared", config.shared), ("budget_left", config.budget_left)]
        {
            if !(0.0..=1.0).contains(&share) {
                problems.push(ConfigError::new(key, format!("expected a share from 0 to 1, found {share}")));
            }
        }
        if config.max_chars == 0 {
            problems.push(ConfigError::new("max_chars", "expected at least 1"));
        }
        let said = config.quality.read(&mut problems);
        let mut config = config;
        let texts = std::mem::take(&mut config.texts).check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let quality = Quality { said, overlap: config.overlap };
        let (asked, declaration) = (ask::asked(&texts), ask::declaration(&texts));
        Ok(Self { config, quality, texts, asked, declaration })
    }

    fn about(&self) -> About {
        let Config { poor, same_topic, diminishing, errors, budget_left, tool, .. } = &self.config;
        let counts = poor + same_topic + diminishing + errors;
        let idle = (counts == 0 && *budget_left == 0.0 && !tool).then_some(NO_LIMITS);
        About { named_tools: list_tools("searches", &self.config.searches), idle, ..About::default() }
    }

    fn open(&self, request: &RequestView<'_>, state: &mut State, plan: &mut Plan) {
        if self.config.tool {
            state.asking.open(request, &self.declaration, plan);
        }
    }

    fn read(&self, event: &Event<'_>, state: &mut State, plan: &mut Plan) {
        state.asking.read(event, &self.asked);
        match event {
            Event::TurnBegins(_) => state.turn = Turn::default(),
            Event::Result(result) => self.add(result, &mut state.turn),
            Event::ResultsComplete(_) => self.tell(state, plan),
            // Clients send there the pictures that a tool message cannot hold: the searches have brought something.
            Event::User(view) | Event::System(view) => {
                let mut following = Following::default();
                following.add(view);
                state.turn.poor = if following.shows_something() { 0 } else { state.turn.poor };
            }
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, state: &State) -> Verdict {
        state.asking.judge(call, &self.texts, self.config.max_chars)
    }

    fn release(&self, call: &Proposed<'_>, state: &mut State) {
        state.asking.release(call);
    }
}

const NOTICE: Text =
    Text { key: "notice", default: "[toolrein] {reasons} {advice}", placeholders: &["reasons", "advice"] };
const POOR: Text = Text {
    key: "poor",
    default: "{results} search {results:result/results} in a row brought nothing for {results:its query/their queries}; ask which source, name or term to \
              look for.",
    placeholders: &["results"],
};
const TOPIC: Text = Text {
    key: "same_topic",
    default: "The same topic was searched {searches} {searches:time/times} in this turn; ask what exactly is wanted.",
    placeholders: &["searches"],
};
const DIMINISHING: Text = Text {
    key: "diminishing",
    default: "{percent}% of the last result was in earlier results of this turn; ask whether what was found is enough.",
    placeholders: &["percent", "results"],
};
const FAILED: Text = Text {
    key: "failed",
    default: "{errors} {errors:call/calls} in a row failed; ask how to get past that, or what to do instead.",
    placeholders: &["errors"],
};
const SAME_ERROR: Text = Text {
    key: "same_error",
    default: "The same error came {errors} {errors:time/times} in this turn; ask how to get past it, or what to do instead.",
    placeholders: &["errors"],
};
const BUDGET: Text = Text {
    key: "budget",
    default: "{percent}% of the budget is left; ask what matters most if it is not enough.",
    placeholders: &["percent"],
};
const ADVICE: Text = Text {
    key: "advice",
    default: "Answer with what you have, or end your turn with one short question to the user.",
    placeholders: &[],
};
const ADVICE_TOOL: Text = Text {
    key: "advice_tool",
    default: "Answer with what you have, or call {tool} with one short question.",
    placeholders: &["tool"],
};

impl AskUser {
    /// Adds a result to the turn.
    fn add(&self, result: &ToolResult<'_>, turn: &mut Turn) {
        turn.add_outcome(&result.view);
        let Some(call) = result.call.filter(|call| any_concerns(&self.config.searches, &call.name)) else {
            return;
        };
        let query = query_of(call, &self.config.query).map(|text| Words::of(&text));
        let has_failed = turn.failed > 0;
        let is_good = self.quality.is_good(result, has_failed, query.as_ref());
        turn.add_search(Search { call, query, is_good }, result, self.config.shared);
    }

    /// Gives a notice of what is new.
    fn tell(&self, state: &mut State, plan: &mut Plan) {
        let mut reasons = Vec::new();
        let one = |text: &Text, name: &str, number: usize| {
            self.texts.fill(text, &[(name, &number as &dyn Display)])
        };
        let turn = &mut state.turn;
        if !turn.searches_reported {
            let Config { poor, same_topic, diminishing, .. } = self.config;
            let reached = |number: usize, limit: usize| limit > 0 && number >= limit;
            reasons.extend(reached(turn.poor, poor).then(|| one(&POOR, "results", turn.poor)));
            let searches = turn.most_of_a_topic();
            reasons.extend(reached(searches, same_topic).then(|| one(&TOPIC, "searches", searches)));
            if reached(turn.stale, diminishing) {
                let numbers: [(&str, &dyn Display); 2] =
                    [("percent", &turn.percent), ("results", &turn.stale)];
                reasons.push(self.texts.fill(&DIMINISHING, &numbers));
            }
            turn.searches_reported = !reasons.is_empty();
        }
        let errors = self.config.errors;
        if errors > 0 && !turn.errors_reported && turn.failed.max(turn.equal_errors) >= errors {
            turn.errors_reported = true;
            reasons.push(match turn.failed >= errors {
                true => one(&FAILED, "errors", turn.failed),
                false => one(&SAME_ERROR, "errors", turn.equal_errors),
            });
        }
        let left = plan.findings_here().filter_map(|finding| match finding {
            Finding::BudgetLeft(share) => Some(*share),
            _ => None,
        });
        let scarce = left.reduce(f64::min).filter(|left| *left < self.config.budget_left);
        if let Some(left) = scarce.filter(|_| !turn.budget_reported) {
            turn.budget_reported = true;
            // What is left of 4 of 5 comes out a hair under 20%.
            reasons.push(one(&BUDGET, "percent", (left * 100.0 + 1e-6) as usize));
        }
        if reasons.is_empty() {
            return;
        }
        let advice = match state.asking.is_on() {
            true => self.texts.fill(&ADVICE_TOOL, &[("tool", &ask::TOOL)]),
            false => self.texts.fill(&ADVICE, &[]),
        };
        let reasons = reasons.join(" ");
        plan.notice("notice", self.texts.fill(&NOTICE, &[("reasons", &reasons), ("advice", &advice)]));
    }
}

impl QualityConfig {
    /// The path, and the values in lower case.
    fn read(&self, problems: &mut Vec<ConfigError>) -> Option<(Path, Vec<String>)> {
        if self.path.is_empty() {
            return None;
        }
        let good: Vec<String> = self.good.iter().map(|value| value.trim().to_lowercase()).collect();
        if good.is_empty() {
            problems.push(ConfigError::new("quality.good", "expected the values that are good, found none"));
        }
        match Path::parse(&self.path) {
            Ok(path) => Some((path, good)),
            Err(problem) => {
                problems.push(ConfigError::new("quality.path", problem));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
