//! Error bodies: a parser of upstream errors, and toolrein's own error shape.
//!
//! Reads the many shapes in which OpenAI-compatible upstreams report an error (error objects, bare text, lists of
//! validation errors, JSON wrapped as text in JSON) into plain messages, wherever it occurs: with an error status, in a
//! 200 body, in a stream event. `refusal` classifies the error; statuses and retries are decided elsewhere.

pub mod friendly;
mod sanitised;

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::LazyLock;
use wire::members::Member;

/// How much of an error body is read; real ones are a few hundred bytes, HTML pages some KiB.
const READ_BYTES: usize = 64 * 1024;
/// Messages kept of one error. Validation errors may come by the dozen with the same text.
const MAX_MESSAGES: usize = 16;
/// Bytes kept of one message.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;
/// How deep objects, lists and JSON-as-text may nest. OpenRouter's wrapping of a wrapped error needs six.
const MAX_DEPTH: usize = 10;

/// An upstream's error, whatever its shape was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamError {
    /// The texts, outermost first, without repetition; empty if the error has no text. A validation error is prefixed
    /// with the path it names: `body.tools: Extra inputs ...`.
    pub messages: Vec<String>,
    /// The outermost `code`, numbers as text; in an error of the Messages API the `error_code` of its `details`.
    pub code: Option<String>,
    /// The outermost `type` that names a kind of error, and not of an event. Alone it is no error.
    pub kind: Option<String>,
    /// The parameter that the upstream blames.
    pub param: Option<String>,
    /// The outermost HTTP error status that the body names. More precise than the status line where the error is in a
    /// 200.
    pub status: Option<u16>,
}

/// Reads the body of an error response; `None` if it has no error.
///
/// Only the first 64 KiB are read. Takes JSON of any known shape, a stream that holds an error
/// event, and plain text; the content type is no guide (DeepSeek sends JSON as
/// `application/octet-stream`).
pub fn parse(body: &[u8]) -> Option<UpstreamError> {
    let text = String::from_utf8_lossy(&body[..body.len().min(READ_BYTES)]);
    let text = text.trim_start_matches('\u{feff}').trim();
    let mut error = UpstreamError::default();
    if let Some(payloads) = event_payloads(text) {
        for payload in payloads {
            error.read_text(payload, 0);
        }
    } else {
        error.read_text(text, 0);
    }
    let says_nothing = UpstreamError { kind: error.kind.clone(), ..UpstreamError::default() };
    (error != says_nothing).then_some(error)
}

/// Reads the error inside a JSON body that came with status 200; `None` for an ordinary reply.
///
/// It is an error if a top-level `error` is set (also beside `choices`, as OpenRouter sends it), if
/// `object` is `"error"` (vLLM), if the body is a list whose first element is one of these (Gemini),
/// or if MiniMax's `base_resp` reports a failure.
pub fn parse_in_200(body: &[u8]) -> Option<UpstreamError> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    // Ordinary replies end here. Inside a JSON string the quotes would be escaped, so text about errors does not match.
    if SIGNS.iter().all(|sign| sign.find(body).is_none()) {
        return None;
    }
    let top = match body.trim_ascii_start().first()? {
        b'[' => serde_json::from_slice::<Vec<Top<'_>>>(body).ok()?.into_iter().next()?,
        _ => serde_json::from_slice::<Top<'_>>(body).ok()?,
    };
    top.is_error().then(|| top.read(body))
}

/// Whether [`parse_in_200`] may find an error in `body`, whose top-level `members` were read.
pub fn may_be_in_200<'a>(members: impl IntoIterator<Item = &'a Member>, body: &[u8]) -> bool {
    members.into_iter().any(|member| match member.key.raw(body) {
        b"error" | b"base_resp" => true,
        b"object" | b"type" => matches!(member.value.of(body), b"\"error\"" | b"\"response.failed\""),
        _ => member.key.escaped,
    })
}

/// Reads the error that one event of a stream carries; `None` for an ordinary event.
///
/// `event_name` is the value of the event's `event:` line, `field_name` the name of the field that
/// holds `data` (GPUStack writes `error: {...}` where others write `data: {...}`). It is an error if
/// either of them is `error`, if the data is what [`parse_in_200`] takes for an error, or if its `type`
/// is `error` or the Responses API's `response.failed`.
pub fn parse_event(event_name: Option<&str>, field_name: &str, data: &[u8]) -> Option<UpstreamError> {
    if event_name == Some("error") || field_name == "error" {
        return Some(parse(data).unwrap_or_default());
    }
    parse_in_200(data)
}

/// The API whose shape an error of toolrein's own has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorShape {
    #[default]
    OpenAi,
    Anthropic,
}

/// The body of an error of toolrein's own, in OpenAI's shape:
/// `{"error":{"message":…,"type":"toolrein_error","param":null,"code":…}}`.
pub fn own_error_body(message: &str, code: &str) -> String {
    own_error(message, code, "", [])
}

/// The same with the request's id, where it has one, and `more` members after the code.
pub fn own_error(
    message: &str,
    code: &str,
    request_id: &str,
    more: impl IntoIterator<Item = (&'static str, Value)>,
) -> String {
    let (message, code) = (Value::from(message), Value::from(code));
    let id = (!request_id.is_empty()).then(|| ("request_id", Value::from(request_id)));
    let more = members(id.into_iter().chain(more));
    format!(r#"{{"error":{{"message":{message},"type":"toolrein_error","param":null,"code":{code}{more}}}}}"#)
}

/// The body of an error of toolrein's own that has this HTTP `status`, in Anthropic's shape; `more` members stand after
/// the code: `{"type":"error","error":{"type":…,"message":…,"details":{"error_code":…}},"request_id":…}`.
pub fn own_anthropic_error(
    status: u16,
    message: &str,
    code: &str,
    request_id: &str,
    more: impl IntoIterator<Item = (&'static str, Value)>,
) -> String {
    let (kind, message, code) = (anthropic_type(status), Value::from(message), Value::from(code));
    let id = members((!request_id.is_empty()).then(|| ("request_id", Value::from(request_id))));
    let more = members(more);
    format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":{message},"details":{{"error_code":{code}{more}}}}}{id}}}"#
    )
}

/// The type that Anthropic's errors of this HTTP status have.
pub fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

/// The members of an object that follow others.
fn members(members: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    members.into_iter().map(|(name, value)| format!(",{}:{value}", Value::from(name))).collect()
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Every reply or event that reports an error contains one of these.
static SIGNS: LazyLock<[memmem::Finder<'static>; 3]> =
    LazyLock::new(|| ["\"error\"", "\"response.failed\"", "\"base_resp\""].map(memmem::Finder::new));

/// The members of a top-level object that distinguish an error from a reply, unparsed.
#[derive(Deserialize)]
struct Top<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    base_resp: Option<&'a RawValue>,
}

impl Top<'_> {
    fn is_error(&self) -> bool {
        let says = |member: Option<&RawValue>, word: &str| member.is_some_and(|raw| raw.get() == word);
        self.error.is_some_and(is_set)
            || says(self.object, "\"error\"")
            || says(self.kind, "\"error\"")
            || says(self.kind, "\"response.failed\"")
            || self.base_resp.is_some_and(failed_base_resp)
    }

    fn read(&self, whole: &[u8]) -> UpstreamError {
        // For a long reply with an error beside its choices, only the error is read.
        let part = if whole.len() > READ_BYTES { self.error.map(|raw| raw.get().as_bytes()) } else { None };
        parse(part.unwrap_or(whole)).unwrap_or_default()
    }
}

/// Whether the value of an `error` member is an error; falsy values of Python are none, as in OpenAI's own client.
fn is_set(raw: &RawValue) -> bool {
    let mut rest = raw.get().bytes().filter(|byte| !byte.is_ascii_whitespace());
    let start: [u8; 2] = [rest.next().unwrap_or_default(), rest.next().unwrap_or_default()];
    !matches!(raw.get(), "null" | "false" | "0" | "\"\"") && !matches!(&start, b"{}" | b"[]")
}

/// MiniMax answers 200 to everything and reports success by `status_code` 0.
fn failed_base_resp(raw: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct BaseResp {
        status_code: i64,
    }
    serde_json::from_str::<BaseResp>(raw.get()).is_ok_and(|base| base.status_code != 0)
}

/// Members that hold an error's text, or an object or a list with it, in reading order.
const TEXT_MEMBERS: [&str; 16] = [
    "message",
    "error",
    "detail",
    "msg",
    "errors",
    "error_message",
    "errorMessage",
    "error_msg",
    "error_description",
    "description",
    "status_msg",
    "base_resp",
    "response",
    "metadata",
    "raw",
    "title",
];

impl UpstreamError {
    fn read_text(&mut self, text: &str, depth: usize) {
        let text = text.trim();
        if depth >= MAX_DEPTH || self.messages.len() >= MAX_MESSAGES || text.is_empty() {
            return;
        }
        match parse_json(text) {
            Some(value) if value.is_object() || value.is_array() || value.is_string() => {
                self.read_value(&value, depth + 1);
            }
            Some(Value::Null) => {}
            _ => self.push(text),
        }
    }

    fn read_value(&mut self, value: &Value, depth: usize) {
        if depth >= MAX_DEPTH || self.messages.len() >= MAX_MESSAGES {
            return;
        }
        match value {
            Value::String(text) => self.read_text(text, depth),
            Value::Array(items) => {
                for item in items.iter().take(MAX_MESSAGES) {
                    self.read_value(item, depth + 1);
                }
            }
            Value::Object(members) => self.read_object(members, depth),
            _ => {}
        }
    }

    fn read_object(&mut self, members: &serde_json::Map<String, Value>, depth: usize) {
        self.read_facts(members);
        if let (Some(Value::Array(place)), Some(Value::String(text))) =
            (members.get("loc"), members.get("msg"))
        {
            self.push_validation(place, text);
            return;
        }
        let found = self.messages.len();
        for name in TEXT_MEMBERS {
            // A title is a headline ("Not Found"), read only where there is no other text.
            if name == "title" && self.messages.len() > found {
                continue;
            }
            if let Some(value) = members.get(name) {
                self.read_value(value, depth + 1);
            }
        }
    }

    /// Takes code, kind, status and parameter, unless an outer object had them already.
    fn read_facts(&mut self, members: &serde_json::Map<String, Value>) {
        let as_text = |name: &str| match members.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(cut(text).to_owned()),
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let detailed = members.get("details").and_then(|details| details.get("error_code")?.as_str());
        let detailed = || detailed.filter(|code| !code.is_empty()).map(|code| cut(code).to_owned());
        self.code = self.code.take().or_else(|| as_text("code")).or_else(detailed);
        let is_event = |kind: &String| matches!(&**kind, "error" | "response.failed");
        self.kind = self.kind.take().or_else(|| as_text("type").filter(|kind| !is_event(kind)));
        self.param = self.param.take().or_else(|| as_text("param"));
        if self.status.is_none() {
            self.status = ["code", "status", "status_code", "statusCode", "http_code"]
                .iter()
                .filter_map(|name| as_text(name)?.parse::<u16>().ok())
                .find(|status| (400..600).contains(status));
        }
    }

    /// Adds a validation error of FastAPI, Mistral or Anthropic: the path, then the problem.
    fn push_validation(&mut self, place: &[Value], text: &str) {
        let steps = place.iter().take(MAX_DEPTH).map(|step| match step {
            Value::String(name) => name.clone(),
            other => other.to_string(),
        });
        let steps: Vec<String> = steps.collect();
        if self.param.is_none() {
            self.param = steps.last().filter(|step| step.parse::<u64>().is_err()).cloned();
        }
        self.push(&format!("{}: {text}", steps.join(".")));
    }

    fn push(&mut self, text: &str) {
        let text = cut(text.trim());
        if !text.is_empty() && !self.messages.iter().any(|known| known == text) {
            self.messages.push(text.to_owned());
        }
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

/// JSON, or JSON that carries bare line breaks inside its strings, as some gateways print it.
fn parse_json(text: &str) -> Option<Value> {
    if !text.starts_with(['{', '[', '"']) && text != "null" {
        return None;
    }
    serde_json::from_str(text).ok().or_else(|| {
        let one_line = text.replace(|c: char| c.is_ascii_control(), " ");
        serde_json::from_str(&one_line).ok()
    })
}

/// The payloads of a body that is a stream of events; `None` for any other body.
fn event_payloads(text: &str) -> Option<impl Iterator<Item = &str>> {
    const FIELDS: [&str; 3] = ["data:", "error:", "event:"];
    let is_payload = |line: &&str| !line.trim().starts_with("[DONE]");
    let first = FIELDS.iter().find(|field| text.starts_with(**field))?;
    // "error: something went wrong" is a sentence, not a stream.
    if *first == "error:" && !text[first.len()..].trim_start().starts_with('{') {
        return None;
    }
    let payload = |line| str::strip_prefix(line, "data:").or_else(|| str::strip_prefix(line, "error:"));
    Some(text.lines().filter_map(payload).filter(is_payload))
}

#[cfg(test)]
mod tests;
