//! A chat completions request, parsed and validated for the simulated models. Reads the members that affect a reply and
//! ignores the others, as OpenAI does with members that it knows.

use super::ids::Ids;
use super::model::Model;
use super::refusal::Refusal;
use super::{check, order};
use hyper::http::StatusCode;
use serde_json::{Value, json};

/// A checked request.
#[derive(Debug)]
pub(super) struct Chat {
    /// The model that is asked.
    pub model: Model,
    /// The conversation, in an order that OpenAI accepts; never empty.
    pub messages: Vec<Value>,
    /// The function tools that may be called: those offered and, of them, those that `tool_choice` allows.
    pub tools: Vec<Tool>,
    /// Whether any tools, of whatever kind, were offered.
    pub offers_tools: bool,
    /// What `tool_choice` says.
    pub choice: Choice,
    /// Whether one reply may hold several calls.
    pub parallel: bool,
    /// What the answer must look like.
    pub format: Format,
    /// Whether the reply is a stream.
    pub stream: bool,
    /// Whether a stream ends with a chunk of usage.
    pub include_usage: bool,
    /// How many choices are wanted.
    pub n: u64,
    /// The most tokens that an answer may have.
    pub max_tokens: Option<u64>,
    /// The size of the body, in bytes.
    pub bytes: usize,
    /// The ids for the reply.
    pub ids: Ids,
}

/// A function that the model may call.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub name: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// What `tool_choice` says about calling tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The model decides.
    Auto,
    /// It must not call.
    None,
    /// It must call.
    Required,
    /// It must call this function.
    Named(String),
}

/// What `response_format` says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Format {
    /// Text as it comes.
    Text,
    /// Any JSON object.
    Json,
    /// JSON that fits the schema.
    Schema(Value),
}

impl Chat {
    /// Reads the request from the JSON of its body and the body's bytes.
    pub(super) fn read(mut body: Value, model: Model, bytes: &[u8]) -> Result<Self, Refusal> {
        order::check(check::messages(&body)?)?;
        let offered = check::tools(&body)?;
        let stream = check::flag(&body, "stream")?;
        let (choice, allowed) = read_choice(&body["tool_choice"], offered)?;
        let mut tools: Vec<Tool> = offered.iter().filter_map(Tool::read).collect();
        tools.retain(|tool| allowed.as_ref().is_none_or(|names| names.contains(&tool.name)));
        let offers_tools =
            !offered.is_empty() || body["functions"].as_array().is_some_and(|all| !all.is_empty());
        let mut chat = Self {
            model,
            messages: Vec::new(),
            tools,
            offers_tools,
            choice,
            parallel: body["parallel_tool_calls"] != json!(false),
            format: read_format(&body)?,
            stream,
            include_usage: read_include_usage(&body, stream)?,
            n: check::integer(&body, "n", 1, 128)?.unwrap_or(1),
            max_tokens: read_max_tokens(&body)?,
            bytes: bytes.len(),
            ids: Ids::of(bytes),
        };
        if let Value::Array(messages) = body["messages"].take() {
            chat.messages = messages;
        }
        model.accepts(&chat)?;
        Ok(chat)
    }
}

impl Tool {
    fn read(tool: &Value) -> Option<Self> {
        let function = tool.get("function")?;
        Some(Self { name: function["name"].as_str()?.to_owned(), parameters: function["parameters"].clone() })
    }
}

impl Choice {
    /// The choice that a word of the member `param` makes.
    pub(super) fn of_word(param: &str, word: &str) -> Result<Self, Refusal> {
        match word {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            "required" => Ok(Self::Required),
            other => Err(Refusal::unknown_value(param, other, "'none', 'auto', and 'required'")),
        }
    }
}

/// The model that a request names.
pub(super) fn read_model(body: &Value) -> Result<Model, Refusal> {
    let name = match &body["model"] {
        Value::Null => {
            return Err(Refusal::plain(StatusCode::BAD_REQUEST, "you must provide a model parameter"));
        }
        Value::String(name) => name,
        other => return Err(Refusal::wrong_type("model", "a string", other)),
    };
    Model::find(name).ok_or_else(|| {
        let text =
            format!("The model `{name}` does not exist or you do not have access to it. {}", Model::list());
        Refusal::plain(StatusCode::NOT_FOUND, text).coded("model_not_found")
    })
}

/// The choice, and the names to which it limits the tools.
fn read_choice(choice: &Value, offered: &[Value]) -> Result<(Choice, Option<Vec<String>>), Refusal> {
    match choice {
        Value::Null => return Ok((Choice::Auto, None)),
        Value::String(word) => return Ok((Choice::of_word("tool_choice", word)?, None)),
        Value::Object(_) => {}
        other => return Err(Refusal::wrong_type("tool_choice", "one of a string or an object", other)),
    }
    match check::text(choice, "tool_choice", "type")? {
        "allowed_tools" => {
            let allowed = &choice["allowed_tools"];
            let names = allowed["tools"].as_array().into_iter().flatten();
            let names =
                names.filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect();
            let mode = allowed["mode"].as_str().unwrap_or("auto");
            Ok((Choice::of_word("tool_choice.allowed_tools.mode", mode)?, Some(names)))
        }
        kind @ ("function" | "custom") => {
            let inner = choice.get(kind).ok_or_else(|| Refusal::missing(&format!("tool_choice.{kind}")))?;
            let name = check::text(inner, &format!("tool_choice.{kind}"), "name")?;
            if offered.iter().any(|tool| tool[kind]["name"] == name) {
                return Ok((Choice::Named(name.to_owned()), None));
            }
            let text = format!("Tool choice '{name}' not found in 'tools' parameter.");
            Err(Refusal::invalid(text, "tool_choice"))
        }
        other => {
            let supported = "'function', 'custom', and 'allowed_tools'";
            Err(Refusal::unknown_value("tool_choice.type", other, supported))
        }
    }
}

fn read_format(body: &Value) -> Result<Format, Refusal> {
    let format = &body["response_format"];
    match format {
        Value::Null => return Ok(Format::Text),
        Value::Object(_) => {}
        other => return Err(Refusal::wrong_type("response_format", "an object", other)),
    }
    match check::text(format, "response_format", "type")? {
        "text" => Ok(Format::Text),
        "json_schema" => {
            let path = "response_format.json_schema";
            let outer = format.get("json_schema").ok_or_else(|| Refusal::missing(path))?;
            check::text(outer, path, "name")?;
            let schema = outer.get("schema").ok_or_else(|| Refusal::missing(&format!("{path}.schema")))?;
            Ok(Format::Schema(schema.clone()))
        }
        "json_object" if !speaks_of_json(body["messages"].as_array().map_or(&[], Vec::as_slice)) => {
            Err(Refusal::invalid(
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type \
             'json_object'.",
                "messages",
            ))
        }
        "json_object" => Ok(Format::Json),
        other => {
            let supported = "'json_object', 'json_schema', and 'text'";
            Err(Refusal::unknown_value("response_format.type", other, supported))
        }
    }
}

/// Whether a message has the word JSON, which a free JSON answer requires.
pub(super) fn speaks_of_json(messages: &[Value]) -> bool {
    messages.iter().map(text_of).any(|text| text.to_ascii_lowercase().contains("json"))
}

fn read_include_usage(body: &Value, stream: bool) -> Result<bool, Refusal> {
    let options = &body["stream_options"];
    if !options.is_null() && !stream {
        let text = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(Refusal::invalid(text, "stream_options"));
    }
    check::flag(options, "include_usage")
}

fn read_max_tokens(body: &Value) -> Result<Option<u64>, Refusal> {
    let new = check::integer(body, "max_completion_tokens", 1, u64::MAX)?;
    Ok(new.or(check::integer(body, "max_tokens", 1, u64::MAX)?))
}

/// A message's text, its parts joined.
pub(super) fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
