//! The settings that an exchange reads: a part of the checked configuration, which fills them in.

use crate::price::Price;
use policies::pattern::Pattern;
use policies::set::PolicySet;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// See the file's head.
pub struct Settings {
    pub mode: Mode,
    /// The policies of requests without a profile.
    pub policies: PolicySet,
    /// The policies of each profile, by its name.
    pub profiles: HashMap<Arc<str>, PolicySet>,
    pub limits: dialects::reply::Limits,
    pub upstream: UpstreamSettings,
    /// Requests are refused while the shared state store is away.
    pub strict_store: bool,
    pub conversation: ConversationSettings,
    pub notices: NoticeSettings,
    pub reask: ReaskSettings,
    pub waits: WaitSettings,
    pub models: Arc<dyn Models>,
}

/// What is done about what the upstream refuses, reports or leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    pub tools_unsupported: ToolsUnsupported,
    pub tools_unsupported_tell: Tell,
    pub overflow: Overflow,
    pub broken_history: BrokenHistory,
    pub errors: Errors,
    pub error_in_200: ErrorIn200,
    pub unjudged: Unjudged,
    /// How long what a model refuses is remembered; 0: not at all.
    pub remember: Duration,
    pub ask_usage: AskUsage,
}

/// What holds for requests of one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationSettings {
    /// The share of conversations that no context policy changes, in ten-thousandths.
    pub holdout: u32,
    pub in_flight: InFlight,
    /// The longest wait for the other request.
    pub in_flight_wait: Duration,
}

/// Where notices go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeSettings {
    pub placement: PlacementChoice,
    /// Models that accept a system message late in a conversation, for placement `auto`.
    pub system_models: Vec<Pattern>,
}

/// How long the client of a stream waits for bytes, and toolrein for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSettings {
    /// After so long without bytes the client gets a heartbeat, where what comes is held back.
    pub heartbeat: Duration,
    /// How long the upstream's stream may stay open after the event that ends it.
    pub after_end: Duration,
}

/// Asking the model again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaskSettings {
    /// The most re-asks within one client request after all calls were blocked.
    pub max: u32,
    /// Tools that are the answer itself: never blocked for a budget, since the client waits for them.
    pub answer_tools: Arc<[Pattern]>,
}

/// What is configured or known of models, by their names.
pub trait Models: Send + Sync {
    /// The factor for the token estimate of `model`, in percent.
    fn token_factor(&self, model: &str) -> u32;

    /// The context window of `model` in tokens, where it is configured or known.
    fn context_window(&self, model: &str) -> Option<u32>;

    /// What `model` costs, where that is configured or known.
    fn price(&self, model: &str) -> Option<&Price>;
}

impl Settings {
    /// The policies of the named profile, or those outside of profiles.
    pub fn policies_of(&self, profile: Option<&str>) -> &PolicySet {
        profile.and_then(|name| self.profiles.get(name)).unwrap_or(&self.policies)
    }
}

impl ConversationSettings {
    /// Whether the conversation named `name` is held out. The name must be the same in every process.
    pub fn holds_out(&self, name: u128) -> bool {
        name % 10_000 < u128::from(self.holdout)
    }
}

/// The mode: what happens with the decisions of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Policies act.
    #[default]
    Enforce,
    /// Policies decide and are counted; nothing changes.
    Observe,
    /// Everything passes through.
    Off,
}

impl Mode {
    /// As written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }
}

/// The place of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementChoice {
    /// `System` for the models listed, else `Suffix`.
    Auto,
    /// A system message after the results.
    System,
    /// At the end of the text of the last tool or user message.
    Suffix,
    /// In the first system message. Breaks the prompt cache with every notice.
    Leading,
}

/// What happens to a request while another of the same conversation is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InFlight {
    /// Both go on.
    Pass,
    /// It waits, up to a limit.
    Wait,
    /// It is refused at once.
    Refuse,
}

/// What happens when a model refuses tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolsUnsupported {
    /// The request is sent again without them.
    Retry,
    /// The refusal is passed on.
    Pass,
}

/// What happens when a request is longer than the model's context window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overflow {
    /// The request is sent again with old results cleared, and turns dropped, where the policies can.
    Retry,
    /// The error is passed on.
    Pass,
}

/// What happens when a broken history is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BrokenHistory {
    /// It is repaired and sent again.
    Repair,
    /// The refusal is passed on.
    Pass,
}

/// What of the upstream's errors people read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Errors {
    /// The upstream's own text, unchanged.
    Plain,
    /// One sentence on what to do, and a sanitised copy of the upstream's error beside it.
    Friendly,
}

/// What status an error has that comes inside a successful reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorIn200 {
    /// The upstream's, unchanged.
    Pass,
    /// The one that the error names, or 502, as long as nothing was sent to the client.
    Status,
}

/// What happens to a request or a reply that cannot be judged, where a policy that restricts calls is on: see
/// [`Policy::RESTRICTS_CALLS`](policies::Policy::RESTRICTS_CALLS). Without such a policy it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unjudged {
    /// The client gets an error of toolrein's own instead.
    Refuse,
    /// It is passed on and counted.
    Pass,
}

/// How the user is informed that tools were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tell {
    /// Only by `x-toolrein-actions`.
    Header,
    /// Also by one line before the answer.
    Text,
}

/// When streams are asked for `usage` that the client did not request. Never in observe mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskUsage {
    /// `false`.
    Never,
    /// `"auto"`: where a policy needs it.
    Auto,
    /// `true`.
    Always,
}
