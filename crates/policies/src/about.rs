//! The static properties of a configured policy, as plain data: what the proxy, the configuration's checks and other
//! policies need to know before any request comes. Read once, when the policy set is built.

use super::pattern::{Pattern, any_concerns, any_fits};
use model::EventKinds;
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
    /// It changes what the model is shown of the conversation, to make it smaller or safer: such policies leave the
    /// conversations alone that are held out for comparison.
    pub edits_context: bool,
    /// The events that it has no use for, and is not given.
    pub ignored_events: EventKinds,
    /// After the first items of a conversation it may go on from a copy of its state of an earlier request that began with the
    /// same items. Then its state after an item depends on nothing but its settings, what [`Policy::open`](super::Policy::open)
    /// reads of the request, the declared tools, the items up to this one and the author of the next one, and when calls were
    /// handed out. It asks the state store for nothing. In such a copy `open` replaces what depends on the request, and nothing
    /// else. Where the conversation has an account, no policy goes on from a copy.
    pub resumes: bool,
    /// How long it needs the state store to keep a fact: each key with the time it says, in ms.
    pub windows: Vec<(String, u64)>,
    /// What it does that others depend on.
    pub services: Vec<Service>,
    /// What it needs another policy for.
    pub needs: Vec<Need>,
    /// What the engine does for it.
    pub engine: Vec<EngineService>,
    /// Why it never acts with these settings, where that is so: a clause.
    pub idle: Option<&'static str>,
    pub explanation: Explanation,
}

/// What a policy does that other policies, or people, depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// It may shorten or clear what tools have given.
    CutResults,
    /// It flags results that seem to carry instructions for the model.
    FlagResults,
    /// It has a person asked about calls that need an approval, whichever policy wants it, in this way.
    AskPeople(Arc<Confirming>),
    /// It acts on what a person has stopped.
    ObeyStops,
}

/// What a policy needs another policy for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It acts only where results are shortened or cleared.
    CutResults,
    /// It acts only after a result that was flagged.
    FlaggedResults,
    /// It wants a person asked about calls. `key`: the key whose value cannot work otherwise, if there is one.
    Approvals { key: Option<&'static str> },
}

impl Need {
    /// Why a policy with this need never acts if no policy gives the `services`; `None`: it acts.
    pub(super) fn idle<'a>(self, mut services: impl Iterator<Item = &'a Service>) -> Option<&'static str> {
        let (is_given, lacking) = match self {
            Self::CutResults => (
                services.any(|service| matches!(service, Service::CutResults)),
                "no policy that is on shortens or clears results",
            ),
            Self::FlaggedResults => (
                services.any(|service| matches!(service, Service::FlagResults)),
                "no policy that is on flags results; policy.injection does",
            ),
            // Without an approval it blocks.
            Self::Approvals { .. } => return None,
        };
        (!is_given).then_some(lacking)
    }
}

/// What the engine does for a policy, and is prepared for only where a policy wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineService {
    /// Calls of one client request are held at most so many ms in all, until they are allowed: see
    /// [`CallEffect::Sleep`](model::plan::CallEffect::Sleep).
    HoldCalls { most_ms: u64 },
    /// Calls are counted before they are handed out: see [`CallEffect::Reserve`](model::plan::CallEffect::Reserve).
    ReserveCalls,
    /// Calls are counted for each caller over all conversations.
    CountCalls(Counted),
    /// Tools are run: see [`CallEffect::CallTool`](model::plan::CallEffect::CallTool).
    RunTools,
    /// Another model is asked about calls.
    AskModel(ModelEndpoint),
    /// Another model is asked for summaries.
    Summarise(ModelEndpoint),
    /// The conversation's account is kept.
    KeepAccount(Accounting),
}

/// What the settings amount to, where the keys alone do not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    pub sentences: Vec<String>,
    /// A drawing in Mermaid, where that is easier to read.
    pub diagram: Option<String>,
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
    /// Tokens, or what they cost. Of use only where streams report their usage: with `ask_usage = "auto"` they are
    /// asked for it.
    pub tokens: bool,
    /// What they cost.
    pub spend: bool,
    /// The sums of the caller's day.
    pub day: bool,
    /// Calls in sums that requests share, each once, also where a request is sent again.
    pub calls: bool,
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
