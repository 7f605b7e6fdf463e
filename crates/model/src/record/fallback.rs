//! The retries in another form that are recorded of a request, with their names in labels and fields. Decides nothing.

/// A retry in another form that the upstream's refusal made necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Without tools.
    Tools,
    /// Without `tool_choice`.
    ToolChoice,
    /// Without a `tool_choice` that forces a call.
    ForcedChoice,
    /// Without `parallel_tool_calls`, which toolrein had written.
    ParallelMember,
    /// With hidden tools out of the declarations, since the choice that toolrein had written was refused.
    HiddenTools,
    /// Without the tools that toolrein had declared beside the client's.
    OwnTools,
    /// With the tool history as plain text.
    Flattened,
    /// With notices at another position.
    Placement,
    /// With old results cleared, since the request was too long.
    Overflow,
    /// Without requesting the usage of the stream.
    StreamOptions,
    /// With missing results and results without a call repaired.
    Pairs,
    /// With broken arguments of calls wrapped.
    Arguments,
    /// With names of calls that every provider accepts.
    Names,
    /// With ids of their own for calls that had the id of an earlier one.
    RepeatedIds,
    /// With ids of calls that every provider accepts.
    IdForms,
    /// With the pictures of results in a user's message.
    Pictures,
    /// With notes in place of the pictures of results.
    NoPictures,
    /// Without streaming.
    Streaming,
    /// On a new connection, since the old one was stale.
    Stale,
}

impl Fallback {
    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::ToolChoice | Self::ForcedChoice => "tool_choice",
            Self::ParallelMember => "parallel_tool_calls",
            Self::HiddenTools => "hidden_tools",
            Self::OwnTools => "own_tools",
            Self::Flattened => "flattened",
            Self::Placement => "placement",
            Self::Overflow => "overflow",
            Self::StreamOptions => "stream_options",
            Self::Pairs => "repaired_pairs",
            Self::Arguments => "repaired_arguments",
            Self::Names => "repaired_names",
            Self::RepeatedIds => "repaired_ids",
            Self::IdForms => "repaired_id_forms",
            Self::Pictures => "moved_pictures",
            Self::NoPictures => "dropped_pictures",
            Self::Streaming => "streaming",
            Self::Stale => "stale",
        }
    }
}
