//! Adaptations: the changes of form by which a request avoids what a model or its server refuses. One set, with all that is
//! known of each. Which one follows a refusal, and for whom it is remembered, is decided in the engine.

use enumset::{EnumSet, EnumSetType, enum_set};

/// A change of a request's form that a refusal made necessary.
#[derive(Debug, PartialOrd, Ord, Hash, EnumSetType)]
pub enum Adaptation {
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
    /// Without streaming.
    Streaming,
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
    /// With a blank where the client did not send back what the model thought.
    Reasoning,
}

/// Several adaptations of one request.
pub type Adaptations = EnumSet<Adaptation>;

/// What is known of an adaptation.
struct About {
    /// In labels and fields.
    name: &'static str,
    /// What is refused, in the records of the state store; `None` where that is remembered for its conversation alone.
    refused: Option<&'static str>,
    /// What it costs that the refusal is remembered.
    cost: &'static str,
}

const CHOICE_COST: &str =
    "requests are sent without their choice of tool: the model may answer without a call";
const REPAIR_COST: &str = "broken parts of histories are repaired";

impl Adaptation {
    fn about(self) -> About {
        let (name, refused, cost) = match self {
            Self::Tools => {
                ("tools", "tools", "requests are sent without their tools: the model can call nothing")
            }
            Self::ToolChoice => ("tool_choice", "choice", CHOICE_COST),
            Self::ForcedChoice => ("tool_choice", "forced_choice", CHOICE_COST),
            Self::ParallelMember => (
                "parallel_tool_calls",
                "parallel_member",
                "the model is not asked for one call at a time; more are still blocked",
            ),
            Self::HiddenTools => (
                "hidden_tools",
                "narrow_choice",
                "hidden tools are taken out of the declarations, which breaks the prompt cache",
            ),
            Self::OwnTools => {
                ("own_tools", "own_tools", "the model is offered no tool of toolrein's (read_more, ask_user)")
            }
            Self::Flattened => {
                ("flattened", "tool_history", "calls and results in the history are sent as plain text")
            }
            Self::Placement => {
                ("placement", "late_system", "toolrein's notices are suffixes of other messages")
            }
            Self::StreamOptions => (
                "stream_options",
                "usage_in_streams",
                "the usage of streams is not known where the client does not ask for it",
            ),
            Self::Streaming => (
                "streaming",
                "tools_in_streams",
                "streams with tools are sent as whole replies: nothing is shown before the end",
            ),
            Self::Pairs => ("repaired_pairs", "broken_pairs", REPAIR_COST),
            Self::Arguments => ("repaired_arguments", "broken_arguments", REPAIR_COST),
            Self::Names => ("repaired_names", "broken_names", REPAIR_COST),
            Self::RepeatedIds => ("repaired_ids", "repeated_ids", REPAIR_COST),
            Self::IdForms => ("repaired_id_forms", "broken_ids", REPAIR_COST),
            Self::Pictures => {
                ("moved_pictures", "result_pictures", "pictures in results are moved to a user's message")
            }
            Self::NoPictures => ("dropped_pictures", "pictures", "pictures in results are replaced by notes"),
            Self::Reasoning => (
                "blank_reasoning",
                "missing_reasoning",
                "reasoning that clients do not send back is sent as a blank: the model does not know what it thought",
            ),
            Self::Overflow => {
                return About { name: "overflow", refused: None, cost: "nothing is remembered" };
            }
        };
        About { name, refused: Some(refused), cost }
    }

    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        self.about().name
    }

    /// As the name of an action.
    pub fn action(self) -> &'static str {
        match self {
            Self::Tools => "dropped",
            Self::ToolChoice | Self::ForcedChoice => "choice_dropped",
            other => other.as_str(),
        }
    }

    /// The refusal that it avoids, as it is written in the state store; `None` where a model's refusal is not remembered.
    pub fn refused(self) -> Option<&'static str> {
        self.about().refused
    }

    /// The adaptation that avoids the refusal of this name.
    pub fn of_refused(name: &[u8]) -> Option<Self> {
        Adaptations::all().iter().find(|it| it.refused().is_some_and(|refused| refused.as_bytes() == name))
    }

    /// What it costs that a model's refusal is remembered: a clause.
    pub fn cost(self) -> &'static str {
        self.about().cost
    }

    /// The repairs of a history that an upstream's error may ask for without naming them. What goes for good is only left
    /// out after it was refused in another place too, and a member that few upstreams know is only added where it is named.
    pub const SUSPECTED_REPAIRS: Adaptations = enum_set!(
        Self::Pairs | Self::Arguments | Self::Names | Self::RepeatedIds | Self::IdForms | Self::Pictures
    );

    /// Those of a request in which nothing is left of tools.
    pub const BARE: Adaptations = enum_set!(Self::Tools | Self::Flattened);

    /// Those that leave out the choice of tool.
    pub const CHOICES: Adaptations = enum_set!(Self::ToolChoice | Self::ForcedChoice);

    /// Those that leave out what toolrein writes into a request beside its notices.
    pub const OF_TOOLREIN: Adaptations = enum_set!(Self::ParallelMember | Self::HiddenTools | Self::OwnTools);

    /// All repairs of a history.
    pub const REPAIRS: Adaptations = enum_set!(Self::SUSPECTED_REPAIRS | Self::NoPictures | Self::Reasoning);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_that_is_remembered_has_a_name_of_its_own() {
        for adaptation in Adaptations::all() {
            let found = adaptation.refused().map(|name| Adaptation::of_refused(name.as_bytes()));
            assert_eq!(found.is_none(), adaptation == Adaptation::Overflow);
            assert!(found.is_none_or(|found| found == Some(adaptation)), "{adaptation:?}");
        }
        assert_eq!(Adaptation::of_refused(b"overflow"), None);
    }
}
