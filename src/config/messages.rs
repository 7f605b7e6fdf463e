//! `[messages]`: settings of Anthropic's Messages API.

use serde::{Deserialize, Serialize};

/// `[messages]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Messages {
    /// What happens to a request with a `thread`. Only in enforce mode: else it is always relayed.
    pub threads: Threads,
}

/// What happens to a request by which the upstream is to keep, or to continue, the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// The upstream keeps nothing, so that the client sends the whole conversation, which is governed.
    #[default]
    Stateless,
    /// The request is relayed without being governed.
    Relay,
}
