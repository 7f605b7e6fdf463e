//! A request for a message, validated and translated for the simulated models. Members that do not affect a reply are ignored
//! where Anthropic knows them and refused where it does not.

use super::binding::{BoundThinking, ForeignSignatures};
use super::error::MessagesError;
use super::head::RequestHead;
use super::merged::merge;
use super::prompt_cache::CachedPrompt;
use super::signature::ThinkingSigner;
use super::threads::Threads;
use super::validator::rule_errors;
use super::{binding, conversation, tools};
use crate::ids::Ids;
use crate::model::Model;
use crate::request::{Chat, Format};
use serde_json::{Value, json};

/// A checked request.
pub(super) struct MessageRequest {
    /// The request in the form over which the models have their rules.
    pub chat: Chat,
    /// The request with the whole conversation, also if it continues a thread.
    pub body: Value,
    /// The id of the reply that it continues, if it continues a thread.
    pub continues: Option<String>,
    /// Whether the reply can be continued.
    pub keeps_thread: bool,
    /// The prompt for the cache.
    pub prompt: CachedPrompt,
    /// The thinking blocks that were dropped because they are of another conversation.
    pub transformations: Vec<Value>,
    /// Signs the thinking block of the reply.
    pub signer: ThinkingSigner,
}

/// The model that a request names; `None` if it names none in a text.
pub(super) fn read_model(body: &Value) -> Result<Option<Model>, MessagesError> {
    let Some(name) = body["model"].as_str() else { return Ok(None) };
    let found = Model::find(name);
    found.map(Some).ok_or_else(|| MessagesError::not_found(format!("model: {name}. {}", Model::list())))
}

impl MessageRequest {
    /// Checks the request `body`, whose bytes are `bytes`. `needs_max_tokens` is false for a request that only counts.
    pub(super) fn read(
        head: &RequestHead,
        body: Value,
        model: Model,
        bytes: &[u8],
        threads: &Threads,
        needs_max_tokens: bool,
    ) -> Result<Self, MessagesError> {
        let keeps_thread = !body["thread"].is_null();
        let continues = body["thread"]["previous_message_id"].as_str().map(str::to_owned);
        let body = match &continues {
            None => body,
            Some(id) => {
                first(rule_errors(head, &body, &merge(&body["messages"]), needs_max_tokens))?;
                threads.conversation(id, body)?
            }
        };
        let messages = merge(&body["messages"]);
        let bound = BoundThinking::read(&body, &messages, ForeignSignatures::Refused);
        let mut errors = rule_errors(head, &body, &messages, needs_max_tokens);
        binding::check(head, &body, &bound, &mut errors);
        first(errors)?;
        let declared = tools::declared(&body, &messages);
        let chat = Chat {
            model,
            messages: conversation::messages(&body["system"], &messages),
            tools: conversation::callable(&declared, &messages),
            offers_tools: !declared.is_empty(),
            choice: conversation::choice(&body["tool_choice"]),
            parallel: body["tool_choice"]["disable_parallel_tool_use"] != json!(true),
            format: read_format(&body),
            stream: body["stream"] == json!(true),
            include_usage: true,
            n: 1,
            max_tokens: body["max_tokens"].as_u64(),
            bytes: if continues.is_some() { body.to_string().len() } else { bytes.len() },
            ids: Ids::of(bytes),
        };
        model.accepts(&chat).map_err(MessagesError::from_refusal)?;
        let (transformations, signer) = (bound.transformations(), bound.signer());
        let prompt = CachedPrompt::new(&body, &messages);
        drop(messages);
        Ok(Self { chat, continues, keeps_thread, prompt, transformations, signer, body })
    }
}

/// The first of the errors, if there is one.
fn first(errors: Vec<MessagesError>) -> Result<(), MessagesError> {
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// What the answer must look like: `output_config.format`, formerly `output_format`.
fn read_format(body: &Value) -> Format {
    let formats = [&body["output_config"]["format"], &body["output_format"]];
    let schema = formats.into_iter().find(|format| format["type"] == "json_schema");
    schema.map_or(Format::Text, |format| Format::Schema(format["schema"].clone()))
}
