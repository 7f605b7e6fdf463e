//! What a model is known to refuse, by the fallbacks that helped.

use crate::store::ModelFacts;
use model::record::Fallback;

/// What a model is known to refuse, after it accepted a request with the fallbacks `tried`.
pub fn learned(tried: &[Fallback]) -> ModelFacts {
    let facts = ModelFacts::select(|entry| tried.contains(&entry.fallback));
    // Where the tools were refused, their choice was too.
    let is_of_choice = !facts.no_tools;
    ModelFacts {
        no_tool_choice: facts.no_tool_choice && is_of_choice,
        no_forced_choice: facts.no_forced_choice && is_of_choice,
        ..facts
    }
}
