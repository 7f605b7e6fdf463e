//! What a model is known to refuse, by the fallbacks that helped.

use crate::exchange::store::ModelFacts;
use crate::telemetry::request_record::Fallback;

/// What a model is known to refuse, after it accepted a request with the fallbacks `tried`.
pub fn learned(tried: &[Fallback]) -> ModelFacts {
    let has = |fallback| tried.contains(&fallback);
    ModelFacts {
        no_tools: has(Fallback::Tools),
        no_tool_choice: has(Fallback::ToolChoice) && !has(Fallback::Tools),
        no_forced_choice: has(Fallback::ForcedChoice) && !has(Fallback::Tools),
        no_tool_history: has(Fallback::Flattened),
        no_late_system: has(Fallback::Placement),
        no_stream_options: has(Fallback::StreamOptions),
        no_parallel_member: has(Fallback::ParallelMember),
        no_narrow_choice: has(Fallback::HiddenTools),
        no_own_tools: has(Fallback::OwnTools),
        no_broken_pairs: has(Fallback::Pairs),
        no_broken_arguments: has(Fallback::Arguments),
        no_broken_names: has(Fallback::Names),
        no_repeated_ids: has(Fallback::RepeatedIds),
        no_broken_ids: has(Fallback::IdForms),
        no_result_pictures: has(Fallback::Pictures),
        no_pictures: has(Fallback::NoPictures),
        no_streamed_tools: has(Fallback::Streaming),
    }
}
