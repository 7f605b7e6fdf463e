//! Minimum conversation length before certain tools may be called.
//!
//! # What it does
//! A tool may require that enough was said before it is called: `min_exchanges` (the user said something and the
//! assistant answered in text), `min_user_messages`, `min_user_words`. Until then its calls are blocked; the model
//! reads what is missing. A requirement of 0 is none.
//!
//! # Why
//! Models hurry: they award before they have asked, and close before anyone has answered. A call that must be based
//! on a conversation can be held back until there was one. A word is a run of characters between white space; of
//! Chinese and Japanese each character is a word. A user message after tool results, before the model has answered,
//! was written by the client itself and does not count; otherwise a framework could satisfy the requirement.
//!
//! # State
//! The exchanges so far, the user's messages and their words, from the whole conversation.
//!
//! # Example
//! With `award_points = { min_exchanges = 2 }` a call after the first question and its answer is blocked with
//! `CONVERSATION_TOO_SHORT`, `exchanges = 1`, `min_exchanges = 2`.

use super::about::{About, NO_TOOLS, list_keys};
use super::pattern::{Pattern, all_concerns};
use super::scripts;
use super::texts::{OwnTexts, Text, Texts};
use super::{ConfigError, Policy};
use model::message::Content;
use model::plan::{Plan, Proposed, Reason, ReasonKind, Verdict};
use model::{Event, View};
use serde::Deserialize;
use std::collections::BTreeMap;
use wire::plural::counted;

/// See the module.
pub struct MinConversation {
    tools: Vec<(Pattern, Demand)>,
    texts: Texts,
}

/// `[policy.min_conversation]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What each tool requires, by name or pattern.
    tools: BTreeMap<String, Demand>,
    texts: OwnTexts,
}

/// What must have been said.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    min_exchanges: u64,
    min_user_messages: u64,
    min_user_words: u64,
}

/// What has been said.
#[derive(Clone, Default)]
pub struct Said {
    exchanges: u64,
    user_messages: u64,
    user_words: u64,
    /// The user said something that the assistant has not answered yet.
    waiting: bool,
    /// The model's last input was tool results.
    behind_results: bool,
}

impl Policy for MinConversation {
    const NAME: &'static str = "min_conversation";
    const SUMMARY: &'static str = "blocks tools until enough was said in the conversation";
    const TEXTS: &'static [Text] = &[BLOCKED];
    type Config = Config;
    type State = Said;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let idle = config.tools.iter().filter(|(_, demand)| demand.is_none());
        let mut problems: Vec<ConfigError> = idle
            .map(|(tool, _)| {
                let expected = "expected min_exchanges, min_user_messages or min_user_words above 0";
                ConfigError::new(format!("tools.{tool}"), expected)
            })
            .collect();
        let texts = config.texts.check(Self::TEXTS, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let tools = config.tools.into_iter().map(|(tool, demand)| (Pattern::new(tool), demand)).collect();
        Ok(Self { tools, texts })
    }

    fn about(&self) -> About {
        let idle = self.tools.is_empty().then_some(NO_TOOLS);
        About { named_tools: list_keys("tools", &self.tools), idle, ..About::default() }
    }

    fn read(&self, event: &Event<'_>, said: &mut Said, _plan: &mut Plan) {
        match event {
            Event::User(view) if !said.behind_results => said.add_user(view),
            Event::Assistant(view) => said.add_assistant(view),
            Event::Result(_) => said.behind_results = true,
            _ => {}
        }
    }

    fn judge(&self, call: &Proposed<'_>, said: &Said) -> Verdict {
        let demands = all_concerns(&self.tools, call.name).into_iter().map(|concern| concern.value);
        let missing: Vec<Missing> = demands.flat_map(|demand| demand.missing(said)).collect();
        if missing.is_empty() {
            return Verdict::Allow;
        }
        Verdict::Block(self.reason(call.name, &missing))
    }
}

/// One requirement that is not met.
struct Missing {
    /// The names of its numbers: the count so far and the required one.
    names: [&'static str; 2],
    has: u64,
    needs: u64,
    /// What is counted, in the singular.
    noun: &'static str,
    of: &'static str,
}

impl Demand {
    fn is_none(&self) -> bool {
        self.min_exchanges == 0 && self.min_user_messages == 0 && self.min_user_words == 0
    }

    fn missing(&self, said: &Said) -> impl Iterator<Item = Missing> + use<> {
        let demands = [
            (["exchanges", "min_exchanges"], said.exchanges, self.min_exchanges, "exchange", "with the user"),
            (
                ["user_messages", "min_user_messages"],
                said.user_messages,
                self.min_user_messages,
                "message",
                "of the user",
            ),
            (["user_words", "min_user_words"], said.user_words, self.min_user_words, "word", "of the user"),
        ];
        let all =
            demands.into_iter().map(|(names, has, needs, noun, of)| Missing { names, has, needs, noun, of });
        all.filter(|demand| demand.has < demand.needs)
    }
}

impl Said {
    fn add_user(&mut self, view: &View<'_>) {
        let words: u64 = view.texts().map(|text| words_in(&text)).sum();
        if words == 0 && !shows_something(view) {
            return;
        }
        self.user_messages += 1;
        self.user_words += words;
        self.waiting = true;
    }

    fn add_assistant(&mut self, view: &View<'_>) {
        self.behind_results = false;
        let answers = view.message.calls.is_empty() && view.texts().any(|text| !text.trim().is_empty());
        if answers && self.waiting {
            self.exchanges += 1;
            self.waiting = false;
        }
    }
}

/// Whether the message holds something beside text, such as a picture.
fn shows_something(view: &View<'_>) -> bool {
    match &view.message.content {
        Content::Parts { parts, .. } => parts.iter().any(|part| part.text.is_none()),
        _ => false,
    }
}

/// The words of a text: see the file's head.
fn words_in(text: &str) -> u64 {
    scripts::words_in(text, scripts::is_kana_or_han, 1) as u64
}

const BLOCKED: Text = Text {
    key: "blocked",
    default: "The call was not run: {tool} needs a longer conversation first; so far there were {missing}. Answer the user \
              in text and continue the conversation; call it when the user has said more.",
    placeholders: &["tool", "missing"],
};

impl MinConversation {
    fn reason(&self, tool: &str, missing: &[Missing]) -> Reason {
        let list: Vec<String> = missing
            .iter()
            .map(|Missing { has, needs, noun, of, .. }| format!("{has} of {} {of}", counted(*needs, noun)))
            .collect();
        let numbers =
            missing.iter().flat_map(|it| [(it.names[0], it.has), (it.names[1], it.needs)]).collect();
        let message = self.texts.fill(&BLOCKED, &[("tool", &tool), ("missing", &list.join(", "))]);
        Reason::new(ReasonKind::ConversationTooShort, message).retryable().with(numbers)
    }
}

#[cfg(test)]
mod tests;
