//! Serial calls: one call at a time.
//!
//! # What it does
//! Of the calls of one reply that go to `tools`, the first passes and the others are blocked: the model should call
//! again when it has the result. Calls of other tools pass. Where every tool that the request declares is such a
//! tool, the request asks the model for one call at a time (`parallel_tool_calls: false`).
//!
//! # Why
//! Tools that share a state (a form, a game, an account) cannot do two steps at once: the second was chosen before
//! the result of the first was known. Concurrent requests of one conversation are handled elsewhere: see
//! `[conversation] in_flight`.
//!
//! # State
//! Whether such a call of this reply has been let through.
//!
//! # Example
//! The model calls `show_next_card` and `award_points` at once. The card is shown; `award_points` is blocked
//! with `TURN_LOCKED` and "call it again when you have the result".

use super::about::{About, NO_TOOLS, list_tools};
use super::pattern::{Pattern, any_concerns, problem_of};
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy, RequestView};
use model::EventKinds;
use model::plan::{Plan, Proposed, Reason, ReasonKind, ToolsEdit, Verdict};
use serde::Deserialize;

/// See the module.
pub struct Serial {
    tools: Vec<Pattern>,
    texts: Texts,
}

/// `[policy.serial]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tools that are called one at a time, by name or pattern.
    tools: Vec<Pattern>,
    texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self { tools: vec![Pattern::new("*")], texts: OwnTexts::default() }
    }
}

/// The tool whose call of this reply was let through.
#[derive(Clone, Default)]
pub struct Running(Option<String>);

impl Policy for Serial {
    const NAME: &'static str = "serial";
    const SUMMARY: &'static str =
        "lets tools be called one at a time: of parallel calls only the first passes";
    const TEXTS: &'static [Text] = &[BLOCKED];
    type Config = Config;
    type State = Running;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems: Vec<ConfigError> = problem_of("tools", &config.tools).into_iter().collect();
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if problems.is_empty() { Ok(Self { tools: config.tools, texts }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let idle = self.tools.is_empty().then_some(NO_TOOLS);
        About {
            named_tools: list_tools("tools", &self.tools),
            restricts_calls: true,
            ignored_events: EventKinds::all(),
            idle,
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, _running: &mut Running, plan: &mut Plan) {
        let mut declared = request.tools.iter();
        if !request.tools.is_empty() && declared.all(|tool| any_concerns(&self.tools, &tool.name)) {
            plan.edit_tools(ToolsEdit::OneCallAtATime);
        }
    }

    fn judge(&self, call: &Proposed<'_>, running: &Running) -> Verdict {
        match &running.0 {
            Some(first) if any_concerns(&self.tools, call.name) => {
                Verdict::Block(self.reason(call.name, first))
            }
            _ => Verdict::Allow,
        }
    }

    fn release(&self, call: &Proposed<'_>, running: &mut Running) {
        if running.0.is_none() && any_concerns(&self.tools, call.name) {
            running.0 = Some(call.name.to_owned());
        }
    }
}

const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {tool} is called one at a time, and your call of {first} comes before it in the same \
              reply. Call it again when you have the result.",
    placeholders: &["tool", "first"],
};

impl Serial {
    fn reason(&self, tool: &str, first: &str) -> Reason {
        let message = self.texts.fill(&BLOCKED, &[("tool", &tool), ("first", &first)]);
        Reason::new(ReasonKind::TurnLocked, message).retryable()
    }
}

#[cfg(test)]
mod tests;
