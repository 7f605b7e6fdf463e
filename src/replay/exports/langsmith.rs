//! Runs of LangSmith by its run data format: those of the type `llm` are requests with their replies.

use super::langchain;
use super::openai::completion;
use serde_json::Value;
use serde_json::value::RawValue;

/// The line of a run; `None` where it is not one of a chat model.
pub(super) fn conversation(run: &RawValue) -> Option<String> {
    let run: Value = serde_json::from_str(run.get()).ok()?;
    if run["run_type"] != "llm" {
        return None;
    }
    let (inputs, outputs) = (&run["inputs"], &run["outputs"]);
    let messages = langchain::messages(&inputs["messages"])?;
    let extra = &run["extra"];
    let parameters = &extra["invocation_params"];
    let known = |name: &str| {
        let places = [&inputs[name], &parameters[name]];
        places.into_iter().find(|value| !value.is_null()).cloned()
    };
    let model = known("model")
        .or_else(|| known("model_name"))
        .or_else(|| Some(extra["metadata"]["ls_model_name"].clone()).filter(|name| !name.is_null()));
    let id = run["trace_id"].as_str().or_else(|| run["id"].as_str());
    Some(completion(messages, model, known("tools"), reply(outputs), id))
}

/// The message of a run's outputs: of a wrapped client's, of LangChain's, or the message itself.
fn reply(outputs: &Value) -> Option<Value> {
    let places = [
        &outputs["choices"][0]["message"],
        &outputs["generations"][0][0]["message"],
        &outputs["generations"][0]["message"],
        &outputs["message"],
        &outputs["output"],
        outputs,
    ];
    let last = outputs["messages"].as_array().and_then(|messages| messages.last());
    places.into_iter().chain(last).find_map(langchain::message)
}
