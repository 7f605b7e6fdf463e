//! What models refuse: the set of refusals, and the evidence of them that requests of callers give. Plain data: which
//! evidence counts for whom is decided in [`crate::refusals`].

use model::identity::Hash;
use model::record::Fallback;

/// What a model at an upstream is known to refuse, or to accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    pub no_tools: bool,
    pub no_tool_choice: bool,
    /// Calls and results in the history.
    pub no_tool_history: bool,
    /// A system message that is not the first message.
    pub no_late_system: bool,
    /// Requests for the usage of a stream.
    pub no_stream_options: bool,
    /// Calls without results, and results without calls.
    pub no_broken_pairs: bool,
    /// Calls whose arguments are no JSON object.
    pub no_broken_arguments: bool,
    /// Tools in a stream.
    pub no_streamed_tools: bool,
    /// A choice of tool that forces a call.
    pub no_forced_choice: bool,
    /// `parallel_tool_calls`, with which toolrein asks for one call at a time.
    pub no_parallel_member: bool,
    /// A choice of tool with which toolrein keeps hidden tools from the model.
    pub no_narrow_choice: bool,
    /// Tools that toolrein declares beside the client's.
    pub no_own_tools: bool,
    /// Calls whose names are not of letters, digits, `_` and `-`, or are too long.
    pub no_broken_names: bool,
    /// Calls with the id of an earlier call.
    pub no_repeated_ids: bool,
    /// Calls with ids of such a form.
    pub no_broken_ids: bool,
    /// Results that hold more than text.
    pub no_result_pictures: bool,
    /// Pictures of results in a user's message.
    pub no_pictures: bool,
}

/// One refusal: the fallback that avoids it, its word in stored records, and its field.
#[derive(Clone, Copy, Debug)]
pub struct RefusalEntry {
    pub fallback: Fallback,
    pub word: &'static str,
    field: fn(&mut ModelFacts) -> &mut bool,
}

impl RefusalEntry {
    const fn new(fallback: Fallback, word: &'static str, field: fn(&mut ModelFacts) -> &mut bool) -> Self {
        Self { fallback, word, field }
    }

    /// Whether it is one of `facts`.
    pub fn is_in(&self, mut facts: ModelFacts) -> bool {
        *(self.field)(&mut facts)
    }

    /// Adds it to `facts`.
    pub fn add_to(&self, facts: &mut ModelFacts) {
        *(self.field)(facts) = true;
    }
}

/// All refusals.
pub static REFUSALS: [RefusalEntry; 17] = [
    RefusalEntry::new(Fallback::Tools, "tools", |facts| &mut facts.no_tools),
    RefusalEntry::new(Fallback::ToolChoice, "choice", |facts| &mut facts.no_tool_choice),
    RefusalEntry::new(Fallback::Flattened, "tool_history", |facts| &mut facts.no_tool_history),
    RefusalEntry::new(Fallback::Placement, "late_system", |facts| &mut facts.no_late_system),
    RefusalEntry::new(Fallback::StreamOptions, "usage_in_streams", |facts| &mut facts.no_stream_options),
    RefusalEntry::new(Fallback::Pairs, "broken_pairs", |facts| &mut facts.no_broken_pairs),
    RefusalEntry::new(Fallback::Arguments, "broken_arguments", |facts| &mut facts.no_broken_arguments),
    RefusalEntry::new(Fallback::Streaming, "tools_in_streams", |facts| &mut facts.no_streamed_tools),
    RefusalEntry::new(Fallback::ForcedChoice, "forced_choice", |facts| &mut facts.no_forced_choice),
    RefusalEntry::new(Fallback::ParallelMember, "parallel_member", |facts| &mut facts.no_parallel_member),
    RefusalEntry::new(Fallback::HiddenTools, "narrow_choice", |facts| &mut facts.no_narrow_choice),
    RefusalEntry::new(Fallback::OwnTools, "own_tools", |facts| &mut facts.no_own_tools),
    RefusalEntry::new(Fallback::Names, "broken_names", |facts| &mut facts.no_broken_names),
    RefusalEntry::new(Fallback::RepeatedIds, "repeated_ids", |facts| &mut facts.no_repeated_ids),
    RefusalEntry::new(Fallback::IdForms, "broken_ids", |facts| &mut facts.no_broken_ids),
    RefusalEntry::new(Fallback::Pictures, "result_pictures", |facts| &mut facts.no_result_pictures),
    RefusalEntry::new(Fallback::NoPictures, "pictures", |facts| &mut facts.no_pictures),
];

impl ModelFacts {
    /// The set of the refusals that `is_member` selects.
    pub fn select(is_member: impl Fn(&RefusalEntry) -> bool) -> Self {
        let mut facts = Self::default();
        REFUSALS.iter().filter(|entry| is_member(entry)).for_each(|entry| entry.add_to(&mut facts));
        facts
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Its refusals.
    pub fn entries(self) -> impl Iterator<Item = &'static RefusalEntry> {
        REFUSALS.iter().filter(move |entry| entry.is_in(self))
    }
}

/// What one request showed of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Whose request it was.
    pub caller: Hash,
    /// The model refused this, and accepted the request without it.
    pub refused: ModelFacts,
    /// The model accepted a request with this.
    pub accepted: ModelFacts,
    /// When the request came, in ms since the epoch.
    pub at_ms: u64,
}

/// The most evidence in one list, the newest: of each refusal, two callers and one request that was accepted are enough.
pub const MOST_EVIDENCE: usize = 32;

/// Adds `evidence` to a list, which keeps its newest entries.
pub fn add_evidence(known: &mut Vec<Evidence>, evidence: Evidence) {
    known.retain(|other| *other != evidence);
    known.push(evidence);
    let surplus = known.len().saturating_sub(MOST_EVIDENCE);
    known.drain(..surplus);
}

/// The keys of the lists of evidence about a model at its upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelKeys {
    /// Of all callers.
    pub all: Hash,
    /// Of the request's caller.
    pub own: Hash,
}

/// The evidence about a model, in the order in which it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownEvidence {
    /// Of all callers.
    pub all: Vec<Evidence>,
    /// Of the request's caller.
    pub own: Vec<Evidence>,
}
