//! The machine as an operator writes it. Keys and their types only; their meaning together is checked elsewhere.

use crate::pattern::Pattern;
use crate::texts::OwnTexts;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[policy.states]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The state in which a conversation begins.
    pub start: String,
    /// Tools that may be called in every state.
    pub always: Vec<Pattern>,
    /// By name.
    pub state: BTreeMap<String, StateConfig>,
    pub texts: OwnTexts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            start: "start".to_owned(),
            always: Vec::new(),
            state: BTreeMap::new(),
            texts: OwnTexts::default(),
        }
    }
}

/// `[policy.states.state.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// The tools that may be called, by name or pattern; absent: all.
    pub tools: Option<Vec<Pattern>>,
    /// What the model reads when the state is entered.
    pub text: Option<String>,
    /// No transition leads out of it.
    pub r#final: bool,
    /// Transitions; the first that fits is taken.
    pub on: Vec<TransitionConfig>,
}

/// One transition: `{ event = "user_message", count = 2, to = "judging" }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransitionConfig {
    pub event: Trigger,
    /// The state that is entered.
    pub to: String,
    /// Of events of tools: the tool, by name or pattern; absent: any.
    pub tool: Option<Pattern>,
    /// Of messages: a regular expression that the text matches somewhere.
    pub pattern: Option<String>,
    /// Of user messages: the fewest words of one that counts.
    pub words: Option<usize>,
    /// How often it must come since the state was entered.
    #[serde(default = "once")]
    pub count: u32,
}

/// What can cause a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A message of the user's.
    UserMessage,
    /// The assistant answers: a text without calls.
    AssistantMessage,
    /// The same, and the text ends with a question mark.
    AssistantQuestion,
    /// A call was let through.
    ToolCalled,
    /// A result that is neither a failure nor empty.
    ToolSucceeded,
    /// A result that reports a failure.
    ToolFailed,
    /// A result without content.
    ToolEmpty,
}

impl Trigger {
    /// Whether it is an event of a tool, else of a message.
    pub fn is_of_tool(self) -> bool {
        match self {
            Self::UserMessage | Self::AssistantMessage | Self::AssistantQuestion => false,
            Self::ToolCalled | Self::ToolSucceeded | Self::ToolFailed | Self::ToolEmpty => true,
        }
    }

    /// Whether every event of `other` is one of these too.
    pub fn includes(self, other: Self) -> bool {
        self == other || (self == Self::AssistantMessage && other == Self::AssistantQuestion)
    }
}

fn once() -> u32 {
    1
}
