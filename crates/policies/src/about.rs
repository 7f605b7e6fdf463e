//! The static properties of a configured policy, as plain data: what the proxy, the configuration's checks and other
//! policies need to know before any request comes. Read once, when the policy set is built.

use super::pattern::{Pattern, any_concerns, any_fits};
use model::plan::ModelEndpoint;
pub use model::uses::MOST_COUNTED;
use std::borrow::Cow;
use std::sync::Arc;

pub use super::approvals::{ApprovalForm, Confirming};

/// See the module. The default is that of a policy that needs nothing.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The tools that the settings name, by name or pattern.
    pub named_tools: Vec<NamedTool>,
    /// The tools that a conversation may ever call while the policy is on.
    pub callable: Callable,
    /// It decides which tools may be called at all: a call that none of these policies has judged must not reach the
    /// client. Policies that only limit how often or how much (budgets, rates, loops) leave it off.
    pub restricts_calls: bool,
    /// It acts on what a person has stopped: only then is it looked up.
    pub heeds_stops: bool,
    /// It changes what the model is shown of the conversation, to make it smaller or safer: such policies leave the
    /// conversations alone that are held out for comparison.
    pub edits_context: bool,
    /// It may shorten or clear what tools have given.
    pub cuts_results: bool,
    /// It is of use only where streams report their usage: with `ask_usage = "auto"` they are asked for it.
    pub needs_usage: bool,
    /// How a person is asked about calls that need an approval, whichever policy wants it.
    pub approvals: Option<Confirming>,
    /// How long calls of one client request may be held, in ms, until they are allowed: see
    /// [`CallEffect::Sleep`](model::plan::CallEffect::Sleep).
    pub longest_wait_ms: u64,
    /// How long it needs the state store to keep a fact: each key with the time it says, in ms.
    pub windows: Vec<(String, u64)>,
    /// What is to be counted for it, for each caller over all conversations.
    pub quotas: Vec<Counted>,
    /// It has calls counted before they are handed out: see [`CallEffect::Reserve`](model::plan::CallEffect::Reserve).
    pub reserves_calls: bool,
    /// What must be known of the conversation's account, where anything must.
    pub accounting: Option<Accounting>,
    /// Where another model is asked for summaries.
    pub summaries: Option<ModelEndpoint>,
    /// Where another model is asked about calls.
    pub model: Option<ModelEndpoint>,
    /// toolrein runs tools for it: see [`CallEffect::CallTool`](model::plan::CallEffect::CallTool).
    pub runs_tools: bool,
    /// Why it never acts with these settings, where that is so: a clause.
    pub idle: Option<&'static str>,
    /// It flags results that seem to carry instructions for the model.
    pub flags_results: bool,
    /// It acts only after a result that was flagged.
    pub needs_flags: bool,
    /// It acts only where results are shortened or cleared.
    pub needs_cuts: bool,
    /// It wants a person asked about calls, and leaves the asking to another policy.
    pub wants_approvals: bool,
    /// The key whose value needs a person to be asked, where one does: without that it could not work.
    pub needs_approvals: Option<&'static str>,
    /// What the settings amount to as a drawing in Mermaid, where that is easier to see than to read.
    pub diagram: Option<String>,
    /// What the settings amount to, one sentence each, where the keys alone do not say it.
    pub effects: Vec<String>,
}

/// A name or pattern of tools in a policy's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTool {
    /// The key within the policy's table that holds it: `tools`, `rules.from`.
    pub key: Cow<'static, str>,
    pub pattern: Pattern,
}

/// The `patterns` that the settings hold under `key`.
pub fn list_tools<'a>(
    key: impl Into<Cow<'static, str>>,
    patterns: impl IntoIterator<Item = &'a Pattern>,
) -> Vec<NamedTool> {
    let key = key.into();
    let patterns = patterns.into_iter();
    patterns.map(|pattern| NamedTool { key: key.clone(), pattern: pattern.clone() }).collect()
}

/// The names and patterns of tools that are the keys of the table `entries` under `key`.
pub fn list_keys<T>(key: impl Into<Cow<'static, str>>, entries: &[(Pattern, T)]) -> Vec<NamedTool> {
    list_tools(key, entries.iter().map(|(pattern, _)| pattern))
}

/// The names in `tools` that are no patterns.
pub fn exact_names(tools: &[NamedTool]) -> impl Iterator<Item = &str> {
    tools.iter().map(|tool| &tool.pattern).filter(|pattern| pattern.is_exact()).map(Pattern::as_str)
}

/// [`About::idle`] of a policy that names no tool.
pub const NO_TOOLS: &str = "it names no tools";

/// [`About::idle`] of a policy whose limits are all 0, or that has none.
pub const NO_LIMITS: &str = "no limit is set";

/// Which tools may be called, by name.
#[derive(Clone, Debug, Default)]
pub struct Callable {
    /// Only these; `None`: all.
    pub only: Option<Vec<Pattern>>,
    /// None of these, although they fit `only`.
    pub except: Vec<Pattern>,
}

impl Callable {
    /// Whether the tool `name` may be called.
    pub fn includes(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| any_fits(only, name)) && !any_concerns(&self.except, name)
    }
}

/// What a policy needs of the account of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Tokens, or what they cost.
    pub tokens: bool,
    /// What they cost.
    pub spend: bool,
    /// The sums of the caller's day.
    pub day: bool,
    /// What requests that come at once use of the day, or of a named conversation: each is counted before it is sent.
    pub ahead: bool,
}

/// What a policy counts for a caller over all its conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The operator's name for it.
    pub name: Arc<str>,
    /// The tools whose calls count, by name or pattern.
    pub tools: Vec<Pattern>,
    /// How many are allowed within that time; no more than [`MOST_COUNTED`].
    pub calls: usize,
    /// How long a call counts, in ms.
    pub window_ms: u64,
    /// The tiers of callers that have a number of their own.
    pub tiers: Vec<String>,
}
