//! A request for a response, parsed and validated for the simulated models. Members that do not affect a reply are
//! ignored where OpenAI knows them and refused where it does not.

use super::super::check;
use super::super::ids::Ids;
use super::super::model::Model;
use super::super::refusal::Refusal;
use super::super::request::{Chat, Format, speaks_of_json};
use super::items::{kind_of, only_known, prefix_of};
use super::{Store, conversation, items, pairs, tools};
use bytes::Bytes;
use hyper::http::StatusCode;
use serde_json::{Value, json};

/// The members that OpenAI knows.
const MEMBERS: [&str; 36] = [
    "model",
    "input",
    "instructions",
    "previous_response_id",
    "conversation",
    "store",
    "background",
    "background_options",
    "stream",
    "stream_options",
    "include",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "max_output_tokens",
    "reasoning",
    "text",
    "truncation",
    "context_management",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "prompt",
    "metadata",
    "safety_identifier",
    "user",
    "service_tier",
    "temperature",
    "top_p",
    "top_logprobs",
    "moderation",
    "access_programs",
    "image",
    "generate",
    "client_metadata",
];
/// The longest conversation, stored history included, in bytes.
const MAX_CONVERSATION: usize = 32 * 1024 * 1024;
/// The least `max_output_tokens` that OpenAI accepts.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// A checked request.
pub(super) struct Create {
    /// What the models' rules see of it.
    pub chat: Chat,
    /// The conversation: the stored history, then the input.
    pub items: Vec<Value>,
    /// The request without its input: a reply repeats its members.
    pub request: Value,
    /// Whether the response is kept, to be continued and retrieved.
    pub store: bool,
    /// Whether deltas are padded.
    pub obfuscated: bool,
}

/// The model that a request names.
pub(super) fn read_model(body: &Value) -> Result<Model, Refusal> {
    let name = match &body["model"] {
        Value::Null => return Err(Refusal::missing("model")),
        Value::String(name) => name,
        other => return Err(Refusal::wrong_type("model", "a string", other)),
    };
    Model::find(name).ok_or_else(|| {
        let text = format!("The requested model '{name}' does not exist. {}", Model::list());
        Refusal::invalid(text, "model").coded("model_not_found")
    })
}

impl Create {
    /// Reads the request from the JSON of its body and the body's bytes. `history` is what it continues: a JSON array of
    /// items, or empty.
    pub(super) fn read(
        mut body: Value,
        model: Model,
        bytes: &[u8],
        history: Result<Bytes, Refusal>,
        store: &Store,
    ) -> Result<Self, Refusal> {
        check_members(&body)?;
        let history = history?;
        let bytes_of_all = history.len() + bytes.len();
        if bytes_of_all > MAX_CONVERSATION {
            return Err(too_long());
        }
        let mut ids = Ids::of(bytes);
        let input = body.get_mut("input").map(Value::take).unwrap_or_default();
        let continues = !body["previous_response_id"].is_null();
        let mut items: Vec<Value> = serde_json::from_slice(&history).unwrap_or_default();
        for item in items::read(input, continues)? {
            items.push(identified(resolved(item, store)?, &mut ids));
        }
        pairs::check(&items)?;
        let declared = tools::declared(&body, &items)?;
        let (choice, allowed) = tools::choice(&body["tool_choice"], &declared)?;
        let messages = conversation::messages(&body["instructions"], &items);
        let chat = Chat {
            model,
            tools: tools::functions(&declared, allowed.as_deref()),
            offers_tools: !declared.is_empty(),
            choice,
            parallel: body["parallel_tool_calls"] != json!(false),
            format: read_format(&body["text"]["format"], &messages)?,
            messages,
            stream: check::flag(&body, "stream")?,
            include_usage: false,
            n: 1,
            max_tokens: check::integer(&body, "max_output_tokens", MIN_OUTPUT_TOKENS, u64::MAX)?,
            bytes: bytes_of_all,
            ids,
        };
        model.accepts(&chat)?;
        let obfuscated = body["stream_options"]["include_obfuscation"] != json!(false);
        Ok(Self { chat, items, store: stores(&body)?, request: body, obfuscated })
    }
}

/// Refuses members that OpenAI does not know, contradictions, and what this upstream does not have.
fn check_members(body: &Value) -> Result<(), Refusal> {
    only_known(body, "", &[&MEMBERS])?;
    for key in ["parallel_tool_calls", "background"] {
        check::flag(body, key)?;
    }
    if !matches!(body["instructions"], Value::Null | Value::String(_)) {
        return Err(Refusal::wrong_type("instructions", "a string", &body["instructions"]));
    }
    if body["background"] == true {
        let text = "Unsupported parameter: 'background' is not supported with this model.";
        return Err(Refusal::invalid(text, "background"));
    }
    let named = |key: &str| body[key].as_str().or_else(|| body[key]["id"].as_str()).unwrap_or_default();
    let missing = |what: &str, key: &str| {
        Refusal::plain(StatusCode::NOT_FOUND, format!("{what} with id '{}' not found.", named(key)))
    };
    match [&body["conversation"], &body["previous_response_id"], &body["prompt"]] {
        [Value::Null, _, Value::Null] => Ok(()),
        [Value::Null, _, _] => Err(missing("Prompt", "prompt")),
        [_, Value::Null, _] => Err(missing("Conversation", "conversation")),
        _ => {
            let text = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.";
            Err(Refusal::plain(StatusCode::BAD_REQUEST, text).coded("mutually_exclusive_parameters"))
        }
    }
}

/// Whether the response is kept: the default is yes, unlike that of chat completions.
fn stores(body: &Value) -> Result<bool, Refusal> {
    Ok(body["store"].is_null() || check::flag(body, "store")?)
}

/// The item itself, where `item` refers to a stored one.
fn resolved(item: Value, store: &Store) -> Result<Value, Refusal> {
    if kind_of(&item) != "item_reference" {
        return Ok(item);
    }
    let id = item["id"].as_str().unwrap_or_default();
    store.item(id).ok_or_else(|| {
        let text = format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again \
             with `store` set to true, or remove this item from your input."
        );
        Refusal { param: Some("input".to_owned()), ..Refusal::plain(StatusCode::NOT_FOUND, text) }
    })
}

/// The item with an id, as it is stored.
fn identified(mut item: Value, ids: &mut Ids) -> Value {
    let prefix = prefix_of(&item);
    if item["id"].is_null() && !prefix.is_empty() {
        item["id"] = json!(ids.item(prefix));
    }
    item
}

fn read_format(format: &Value, messages: &[Value]) -> Result<Format, Refusal> {
    let path = "text.format";
    if format.is_null() {
        return Ok(Format::Text);
    }
    match check::text(format, path, "type")? {
        "text" => Ok(Format::Text),
        "json_schema" => {
            check::text(format, path, "name")?;
            let schema = format.get("schema");
            Ok(Format::Schema(schema.ok_or_else(|| Refusal::missing("text.format.schema"))?.clone()))
        }
        "json_object" if !speaks_of_json(messages) => Err(Refusal::invalid(
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type \
             'json_object'.",
            "input",
        )),
        "json_object" => Ok(Format::Json),
        other => {
            let supported = "'json_object', 'json_schema', and 'text'";
            Err(Refusal::unknown_value("text.format.type", other, supported))
        }
    }
}

fn too_long() -> Refusal {
    let text = "Your input exceeds the context window of this model. Please adjust your input and try again.";
    Refusal::invalid(text, "input").coded("context_length_exceeded")
}
