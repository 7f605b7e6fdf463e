//! Errors for people: one plain sentence on what to do, beside a sanitised copy of the upstream's own error. What programs
//! decide by stays: `type`, `code` and `param` in OpenAI's shape; in that of the Messages API `type`, `details`, `request_id`
//! and the upstream's own words, before the sentence.

use super::sanitised::{sanitised, sanitised_text};
use super::{UpstreamError, parse};
use crate::refusal::{classify, overflows};
use bytes::Bytes;
use model::adaptation::Adaptation;
use serde_json::{Map, Value, json};
use wire::sse::{parse_fields, write_event};

/// The kinds of errors that a person can do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    Key,
    Credit,
    NotFound,
    /// Something that the request refers to does not exist: an earlier reply, an item, a file.
    Lost,
    TooLong,
    Rate,
    Provider,
    NoTools,
}

impl Trouble {
    /// What kind of trouble an error of this status is; `None` for one that is for programmers.
    pub fn of(status: u16, error: &UpstreamError) -> Option<Self> {
        if classify(status, error) == Some(Adaptation::Tools) {
            return Some(Self::NoTools);
        }
        if overflows(status, error) {
            return Some(Self::TooLong);
        }
        if is_lost(status, error) {
            return Some(Self::Lost);
        }
        if error.kind.as_deref() == Some("insufficient_quota") || lacks_credit(error) {
            return Some(Self::Credit);
        }
        match (error.code.as_deref().unwrap_or_default(), status) {
            ("insufficient_quota" | "billing_hard_limit_reached", _) | (_, 402) => Some(Self::Credit),
            ("invalid_api_key", _) | (_, 401) => Some(Self::Key),
            ("model_not_found", _) | (_, 404) => Some(Self::NotFound),
            (_, 413) => Some(Self::TooLong),
            ("rate_limit_exceeded", _) | (_, 429) => Some(Self::Rate),
            (_, 500..=599) => Some(Self::Provider),
            _ => None,
        }
    }

    /// What to do, in one sentence.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Key => {
                "The provider does not accept the API key: check that it is complete, still valid, and from this \
                 provider."
            }
            Self::Credit => {
                "The account at the provider has no credit left or has reached its spending limit: add credit or raise \
                 the limit, then try again."
            }
            Self::NotFound => {
                "The provider does not know this model or address: check the model's name, whether your account may use \
                 it, and the base URL."
            }
            Self::Lost => {
                "The provider does not have what the request refers to, such as an earlier reply, an item or a file: \
                 start a new conversation, or send again what it needs."
            }
            Self::TooLong => {
                "The request is too long for the model or its provider: start a new conversation, send less, or choose a \
                 model with a larger context."
            }
            Self::Rate => {
                "Too much was asked of the provider in a short time: wait a little, then try again, or ask for a higher \
                 rate limit."
            }
            Self::Provider => {
                "The provider has a fault of its own and could not answer: try again in a minute, and check its status \
                 page if it persists."
            }
            Self::NoTools => {
                "This model cannot use tools: choose a model that can, or send the request without them."
            }
        }
    }
}

/// Things that the Responses API keeps for later requests, as its errors name them.
const KEPT: [&str; 8] = [
    "item with id",
    "conversation with id",
    "response with id",
    "vector store with id",
    "file with id",
    "container with id",
    "no such file object",
    "no file found",
];

/// Whether the account has no credit left. Anthropic says it with status 400 and the type of an invalid request.
fn lacks_credit(error: &UpstreamError) -> bool {
    error.messages.iter().any(|message| message.to_lowercase().contains("credit balance is too low"))
}

/// Whether the upstream lacks something that the request refers to. An unknown model or address does not count.
fn is_lost(status: u16, error: &UpstreamError) -> bool {
    let names_it = |message: &String| {
        let message = message.to_lowercase();
        KEPT.iter().any(|thing| message.contains(thing))
    };
    match error.code.as_deref() {
        Some("previous_response_not_found" | "thread_not_found") => true,
        Some("model_not_found") => false,
        _ => status == 404 && error.messages.iter().any(names_it),
    }
}

/// The status that an error inside a successful reply means: the one that it names, or one by its code, or by its type,
/// or 502.
pub fn status_of(error: &UpstreamError) -> u16 {
    let by_word = |word: &Option<String>| word.as_deref().and_then(status_of_word);
    error.status.or_else(|| by_word(&error.code)).or_else(|| by_word(&error.kind)).unwrap_or(502)
}

/// The status of a code or type, of OpenAI's and Anthropic's lists; the names in capitals are vLLM's types.
fn status_of_word(word: &str) -> Option<u16> {
    Some(match word {
        "invalid_api_key" | "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "model_not_found" | "not_found_error" | "thread_not_found" | "NotFoundError" => 404,
        "request_too_large" => 413,
        "insufficient_quota" | "rate_limit_exceeded" | "rate_limit_error" => 429,
        "context_length_exceeded"
        | "invalid_request_error"
        | "content_filter"
        | "invalid_prompt"
        | "BadRequestError" => 400,
        // Images that cannot be fetched, read or accepted.
        word if word.starts_with("image_") || word.contains("_image") => 400,
        "server_error" | "api_error" => 500,
        "overloaded_error" => 529,
        "timeout_error" => 504,
        _ => return None,
    })
}

/// The body of an error response with this status, for people; `None` where it stays as it is.
pub fn friendly_body(status: u16, body: &[u8]) -> Option<Bytes> {
    let error = parse(body).unwrap_or_default();
    let advice = Trouble::of(status, &error)?.advice();
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    if is_of_messages_api(&value) {
        return Some(friendly_envelope(&value, advice).to_string().into());
    }
    let said = said(&value);
    let upstream = if value.is_null() { text_of(body) } else { sanitised(&value) };
    let mut new = Map::from_iter([("message".to_owned(), advice.into())]);
    for name in ["type", "param", "code"] {
        new.insert(name.to_owned(), said.and_then(|said| said.get(name)).cloned().unwrap_or_default());
    }
    new.insert("metadata".to_owned(), json!({ "upstream": upstream }));
    // A failed response of the Responses API is still a response.
    if value["object"] == "response" {
        let mut whole = value;
        whole["error"] = new.into();
        return Some(whole.to_string().into());
    }
    Some(json!({ "error": new }).to_string().into())
}

/// Whether this is an error in the shape of the Messages API: `{"type":"error","error":{"type":…,"message":…}}`.
fn is_of_messages_api(value: &Value) -> bool {
    value["type"] == "error" && value["error"].is_object()
}

/// An error of the Messages API, for people. Its own words stay, before the advice: Claude Code acts on some of them.
fn friendly_envelope(whole: &Value, advice: &str) -> Value {
    let error = &whole["error"];
    let words = error["message"].as_str().map(sanitised_text).unwrap_or_default();
    let words = words.trim_end_matches(['.', ' ']);
    let message = if words.is_empty() { advice.to_owned() } else { format!("{words}. {advice}") };
    let mut new =
        json!({"type": error["type"], "message": message, "metadata": {"upstream": sanitised(whole)}});
    if let Some(details) = error.get("details") {
        new["details"] = sanitised(details);
    }
    json!({"type": "error", "error": new, "request_id": sanitised(&whole["request_id"])})
}

/// The event of a stream with this error in it, for people; `None` where it stays as it is.
pub fn friendly_event(raw: &[u8], error: &UpstreamError) -> Option<Bytes> {
    let fields = parse_fields(raw);
    let advice = Trouble::of(status_of(error), error)?.advice();
    let Ok(mut value) = serde_json::from_slice::<Value>(&fields.data) else {
        let data = friendly_body(status_of(error), &fields.data)?;
        return Some(write_event(&data));
    };
    if is_of_messages_api(&value) {
        return Some(named(fields.name, friendly_envelope(&value, advice).to_string().as_bytes()));
    }
    let upstream = sanitised(&value);
    let is_typed = value["type"].is_string();
    let place = match () {
        () if value["error"].is_object() => value.get_mut("error"),
        () if value["response"]["error"].is_object() => value["response"].get_mut("error"),
        () if is_typed => Some(&mut value),
        () => None,
    };
    let Some(Value::Object(place)) = place else {
        return friendly_body(status_of(error), &fields.data).map(|data| write_event(&data));
    };
    // The members that programs decide by, and no others of the upstream's.
    place.retain(|name, _| ["type", "param", "code", "sequence_number"].contains(&name.as_str()));
    place.insert("message".to_owned(), advice.into());
    place.insert("metadata".to_owned(), json!({ "upstream": upstream }));
    if !is_typed {
        let only = json!({ "error": value["error"] });
        return Some(named(fields.name, only.to_string().as_bytes()));
    }
    Some(named(fields.name, value.to_string().as_bytes()))
}

/// As [`friendly_event`], for an event that is a text alone in a stream whose events have types.
pub fn friendly_text_event(raw: &[u8], error: &UpstreamError) -> Option<Bytes> {
    let body = friendly_body(status_of(error), &parse_fields(raw).data)?;
    let mut value: Value = serde_json::from_slice(&body).ok()?;
    let mut event = value["error"].take();
    event["type"] = "error".into();
    event["sequence_number"] = 0.into();
    Some(named(Some(b"error"), event.to_string().as_bytes()))
}

/// The data of an error event as the body of an error response: in OpenAI's shape, unless it has that of the Messages API.
pub fn body_of_event(raw: &[u8], error: &UpstreamError) -> Bytes {
    let data = parse_fields(raw).data.into_owned();
    let value: Value = serde_json::from_slice(&data).unwrap_or_default();
    if is_of_messages_api(&value) {
        return data.into();
    }
    let body = match said(&value) {
        Some(said) if said.contains_key("message") => {
            let mut said = said.clone();
            said.retain(|name, value| {
                name != "sequence_number"
                    && !(name == "type" && (value == "error" || value == "response.failed"))
            });
            for name in ["type", "param", "code"] {
                said.entry(name).or_insert(Value::Null);
            }
            json!({ "error": said })
        }
        _ => {
            let message = error.messages.join("; ");
            let message =
                if message.is_empty() { "The upstream reported an error.".to_owned() } else { message };
            json!({"error": {"message": message, "type": null, "param": error.param, "code": error.code}})
        }
    };
    body.to_string().into()
}

fn named(name: Option<&[u8]>, data: &[u8]) -> Bytes {
    let event = write_event(data);
    match name.and_then(|name| std::str::from_utf8(name).ok()) {
        Some(name) => [format!("event: {name}\n").as_bytes(), &event[..]].concat().into(),
        None => event,
    }
}

/// The object that says what is wrong.
fn said(value: &Value) -> Option<&Map<String, Value>> {
    let list = value.as_array().and_then(|list| list.first());
    let value = list.unwrap_or(value);
    let inner = [&value["error"], &value["response"]["error"]].into_iter().find_map(Value::as_object);
    inner.or_else(|| value.as_object())
}

fn text_of(body: &[u8]) -> Value {
    sanitised_text(&String::from_utf8_lossy(body)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(status: u16, body: &str) -> Option<Value> {
        friendly_body(status, body.as_bytes()).map(|body| serde_json::from_slice(&body).unwrap())
    }

    /// Status, body, the trouble, and what of `code` and `type` is kept.
    const TROUBLES: [(u16, &str, Trouble, &str, &str); 10] = [
        (
            401,
            r#"{"error":{"message":"Incorrect API key provided: sk-abc***xyz.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            Trouble::Key,
            r#""invalid_api_key""#,
            r#""invalid_request_error""#,
        ),
        (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, Trouble::Credit, "402", "null"),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            Trouble::Credit,
            r#""insufficient_quota""#,
            r#""insufficient_quota""#,
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            Trouble::Rate,
            r#""rate_limit_exceeded""#,
            r#""tokens""#,
        ),
        (404, r#"{"detail":"Not Found"}"#, Trouble::NotFound, "null", "null"),
        (413, "<html><body>413 Request Entity Too Large</body></html>", Trouble::TooLong, "null", "null"),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            Trouble::TooLong,
            r#""context_length_exceeded""#,
            r#""invalid_request_error""#,
        ),
        (503, "upstream connect error or disconnect/reset before headers", Trouble::Provider, "null", "null"),
        (
            400,
            r#"{"error":{"message":"registry.ollama.ai/library/gemma3:4b does not support tools","type":"api_error","param":null,"code":null}}"#,
            Trouble::NoTools,
            "null",
            r#""api_error""#,
        ),
        (
            400,
            r#"{"object":"error","message":"maximum context length","type":"BadRequestError","param":null,"code":400}"#,
            Trouble::TooLong,
            "400",
            r#""BadRequestError""#,
        ),
    ];

    #[test]
    fn a_friendly_error_gives_one_sentence_of_advice_and_keeps_code_and_type() {
        for (status, text, trouble, code, kind) in TROUBLES {
            let said = body(status, text).unwrap();
            let error = &said["error"];
            assert_eq!(error["message"], trouble.advice(), "{text}");
            assert_eq!(
                (error["code"].to_string(), error["type"].to_string()),
                (code.to_owned(), kind.to_owned()),
                "{text}"
            );
            assert!(!error["metadata"]["upstream"].is_null(), "{text}");
            assert_eq!(said.as_object().unwrap().len(), 1);
            assert!(!trouble.advice().contains(". "), "one sentence");
        }
    }

    #[test]
    fn the_status_that_an_error_means_is_that_of_its_code_or_else_of_its_type() {
        for (body, status) in [
            (r#"{"error":{"message":"m","type":"authentication_error"}}"#, 401),
            (r#"{"type":"error","error":{"message":"m","type":"overloaded_error"}}"#, 529),
            (r#"{"type":"error","error":{"message":"m","type":"request_too_large"}}"#, 413),
            (r#"{"type":"error","error":{"message":"m","type":"timeout_error"}}"#, 504),
            (r#"{"type":"error","error":{"message":"m","type":"BadRequestError"}}"#, 400),
            (r#"{"error":{"message":"m","type":"rate_limit_error","code":null}}"#, 429),
            (r#"{"error":{"message":"m","type":"invalid_request_error","code":"model_not_found"}}"#, 404),
            (r#"{"error":{"message":"m","type":"invalid_request_error","code":"new_one"}}"#, 400),
            (r#"{"error":{"message":"m","type":"permission_error"}}"#, 403),
            (r#"{"error":{"message":"m","type":"rate_limit_error","code":503}}"#, 503),
            (
                r#"{"type":"response.failed","response":{"error":{"code":"invalid_prompt","message":"m"}}}"#,
                400,
            ),
            (r#"{"type":"error","code":"image_too_large","message":"m"}"#, 400),
            (r#"{"type":"error","code":"invalid_image_url","message":"m"}"#, 400),
            (r#"{"type":"error","code":"failed_to_download_image","message":"m"}"#, 400),
            (r#"{"error":{"message":"m","type":"unheard_of"}}"#, 502),
        ] {
            assert_eq!(status_of(&parse(body.as_bytes()).unwrap()), status, "{body}");
        }
        // A type alone is no error.
        assert_eq!(parse(br#"{"type":"response.created"}"#), None);
    }

    #[test]
    fn a_missing_item_at_the_provider_is_not_reported_as_a_wrong_model() {
        let said = |status: u16, message: &str, code: Value| {
            let error =
                json!({"message": message, "type": "invalid_request_error", "param": null, "code": code});
            body(status, &json!({ "error": error }).to_string()).unwrap()["error"]["message"].to_string()
        };
        for (status, message, code) in [
            (404, "Item with id 'rs_0a1b' not found.", Value::Null),
            (404, "Conversation with id 'conv_0a1b' not found.", Value::Null),
            (404, "Response with id 'resp_0a1b' not found.", Value::Null),
            (404, "Vector store with id [vs_1] not found.", Value::Null),
            (400, "Previous response with id 'resp_0a1b' not found.", json!("previous_response_not_found")),
        ] {
            let said = said(status, message, code);
            assert!(said.contains("new conversation") && !said.contains("model's name"), "{message}: {said}");
        }
        let model = said(404, "The model `gpt-9` does not exist", json!("model_not_found"));
        assert!(model.contains("model's name"), "{model}");
    }

    #[test]
    fn a_spent_quota_is_known_by_its_type_too() {
        let text = r#"{"error":{"message":"You exceeded it","type":"insufficient_quota","code":null}}"#;
        assert_eq!(body(429, text).unwrap()["error"]["message"], Trouble::Credit.advice());
    }

    #[test]
    fn a_friendly_error_of_the_messages_api_keeps_its_shape_its_words_and_what_programs_decide_by() {
        for (status, kind, message, details, trouble) in [
            (401, "authentication_error", "invalid x-api-key", None, Trouble::Key),
            (404, "not_found_error", "model: claude-sonet-4-5", None, Trouble::NotFound),
            (
                400,
                "invalid_request_error",
                "prompt is too long: 3333404 tokens > 200000 maximum",
                None,
                Trouble::TooLong,
            ),
            (413, "request_too_large", "Request exceeds the maximum size", None, Trouble::TooLong),
            (
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the API.",
                None,
                Trouble::Credit,
            ),
            (429, "rate_limit_error", "This request would exceed your rate limit", None, Trouble::Rate),
            (529, "overloaded_error", "Overloaded", None, Trouble::Provider),
            (
                404,
                "not_found_error",
                "Thread not found.",
                Some(json!({"error_code": "thread_not_found"})),
                Trouble::Lost,
            ),
        ] {
            let mut whole =
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"});
            if let Some(details) = &details {
                whole["error"]["details"] = details.clone();
            }
            let said = body(status, &whole.to_string()).unwrap();
            let text = said["error"]["message"].as_str().unwrap();
            assert!(text.starts_with(message) && text.ends_with(trouble.advice()), "{text}");
            assert_eq!((&said["type"], &said["request_id"]), (&json!("error"), &json!("req_1")));
            assert_eq!(
                (said["error"]["type"].as_str(), said["error"].get("details")),
                (Some(kind), details.as_ref())
            );
            assert_eq!(said["error"]["metadata"]["upstream"], whole);
            // The same in a stream.
            let raw = format!("event: error\ndata: {whole}\n\n");
            let error = parse(whole.to_string().as_bytes()).unwrap();
            assert_eq!(body_of_event(raw.as_bytes(), &error), whole.to_string());
            if Trouble::of(status_of(&error), &error) == Some(trouble) {
                let event = friendly_event(raw.as_bytes(), &error).unwrap();
                let fields = parse_fields(&event);
                assert_eq!(fields.name, Some(&b"error"[..]));
                assert_eq!(serde_json::from_slice::<Value>(&fields.data).unwrap(), said);
            }
        }
    }

    #[test]
    fn an_error_of_the_messages_api_tells_no_secret_to_people() {
        let text = r#"{"type":"error","error":{"type":"api_error","message":"no route to 10.0.0.7","details":{"host":"10.0.0.8"}},"request_id":"10.0.0.9"}"#;
        let said = body(500, text).unwrap().to_string();
        assert!(said.contains("no route to [address]") && !said.contains("10.0.0."), "{said}");
    }

    #[test]
    fn errors_for_programmers_stay_as_they_are() {
        for (status, text) in [
            (
                400,
                r#"{"error":{"message":"Invalid schema for function 'f'","type":"invalid_request_error","code":null}}"#,
            ),
            (403, r#"{"error":{"message":"Country not supported"}}"#),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."}}"#,
            ),
            (422, r#"{"detail":[{"loc":["body","n"],"msg":"bad"}]}"#),
            (400, ""),
        ] {
            assert_eq!(body(status, text), None, "{text}");
        }
    }

    #[test]
    fn an_event_keeps_its_kind_and_its_number() {
        for (raw, at) in [
            (
                "data: {\"error\":{\"message\":\"overloaded at 10.0.0.7\",\"type\":\"server_error\"}}\n\n",
                "/error",
            ),
            ("event: error\ndata: {\"error\":{\"message\":\"slow down\",\"code\":429}}\n\n", "/error"),
            (
                "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"down\",\"param\":null,\"sequence_number\":3}\n\n",
                "",
            ),
            (
                "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":4,\"response\":{\"id\":\"r\",\"error\":{\"code\":\"server_error\",\"message\":\"down\"}}}\n\n",
                "/response/error",
            ),
        ] {
            let error = crate::error::parse(&parse_fields(raw.as_bytes()).data).unwrap();
            let event = friendly_event(raw.as_bytes(), &error).unwrap();
            let (old, new) = (parse_fields(raw.as_bytes()), parse_fields(&event));
            assert_eq!(old.name, new.name);
            let old: Value = serde_json::from_slice(&old.data).unwrap();
            let new: Value = serde_json::from_slice(&new.data).unwrap();
            let place = new.pointer(at).unwrap();
            assert!(place["message"].as_str().unwrap().contains(':'), "{new}");
            assert!(!place["metadata"]["upstream"].is_null());
            assert_eq!((&old["type"], &old["sequence_number"]), (&new["type"], &new["sequence_number"]));
            assert!(!String::from_utf8_lossy(&event).contains("10.0.0.7"));
        }
    }

    #[test]
    fn an_error_event_becomes_the_body_of_an_error_response() {
        for (raw, message, code) in [
            ("data: {\"error\":{\"message\":\"a\",\"code\":400}}\n\n", "a", json!(400)),
            ("data: {\"object\":\"error\",\"message\":\"b\",\"code\":500}\n\n", "b", json!(500)),
            (
                "data: {\"type\":\"error\",\"code\":\"x\",\"message\":\"c\",\"sequence_number\":0}\n\n",
                "c",
                json!("x"),
            ),
            (
                "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"y\",\"message\":\"d\"}}}\n\n",
                "d",
                json!("y"),
            ),
            ("event: error\ndata: gone\n\n", "gone", Value::Null),
        ] {
            let error = crate::error::parse(&parse_fields(raw.as_bytes()).data).unwrap();
            let body: Value = serde_json::from_slice(&body_of_event(raw.as_bytes(), &error)).unwrap();
            assert_eq!(
                (&body["error"]["message"], &body["error"]["code"]),
                (&json!(message), &code),
                "{raw}"
            );
        }
    }
}
