//! Replies in the model's place, whole or as a stream: with approved calls, or a text. The calls are exactly those that were
//! shown; their ids are new, since the model's history has the blocked call under the old id and some providers refuse
//! an id that occurs twice.

use crate::Handed;
use crate::reply::Form;
use bytes::Bytes;
use model::assembled::Assembled;
use model::plan::approval::Confirmation;
use wire::json::{quote, unescape};
use wire::sse::write_event;

/// The usage of a reply that was not billed.
const NO_USAGE: &str = r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#;

/// A whole reply.
pub fn reply(confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes {
    let calls = handed.calls(confirmation, false);
    whole(&format!(r#""role":"assistant","content":null,{calls}"#), finish(confirmation), handed)
}

/// As [`reply`], as a stream.
pub fn events(confirmation: &Confirmation, handed: &Handed<'_>) -> Bytes {
    let calls = handed.calls(confirmation, true);
    streamed(&format!(r#""role":"assistant","content":null,{calls}"#), finish(confirmation), handed)
}

/// A reply that contains only this text.
pub fn says(form: Form, text: &str, handed: &Handed<'_>) -> Bytes {
    let message = format!(r#""role":"assistant","content":{}"#, quote(text));
    match form {
        Form::Whole => whole(&message, "stop", handed),
        Form::Streamed => streamed(&message, "stop", handed),
    }
}

fn whole(message: &str, finish: &str, handed: &Handed<'_>) -> Bytes {
    let head = handed.head("chat.completion");
    format!(
        r#"{{{head},"choices":[{{"index":0,"message":{{{message}}},"logprobs":null,"finish_reason":"{finish}"}}],"usage":{NO_USAGE}}}"#
    )
    .into()
}

fn streamed(message: &str, finish: &str, handed: &Handed<'_>) -> Bytes {
    let head = handed.head("chat.completion.chunk");
    let usage = if handed.usage { r#","usage":null"# } else { "" };
    let chunk = |delta: &str, finish: &str| {
        let choice = format!(r#"{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish}}}"#);
        write_event(format!(r#"{{{head},"choices":[{choice}]{usage}}}"#).as_bytes())
    };
    let mut out = vec![chunk(message, "null"), chunk("", &format!("\"{finish}\""))];
    if handed.usage {
        out.push(write_event(format!(r#"{{{head},"choices":[],"usage":{NO_USAGE}}}"#).as_bytes()));
    }
    out.push(Bytes::from_static(b"data: [DONE]\n\n"));
    out.concat().into()
}

fn finish(confirmation: &Confirmation) -> &'static str {
    if is_legacy(&confirmation.calls) { "function_call" } else { "tool_calls" }
}

fn is_legacy(calls: &[Assembled]) -> bool {
    calls.first().is_some_and(|call| call.legacy)
}

impl Handed<'_> {
    fn head(&self, object: &str) -> String {
        let (id, created, model) = (self.question, self.created, quote(self.model));
        format!(r#""id":"chatcmpl-{id}","object":"{object}","created":{created},"model":{model}"#)
    }

    /// The member of the message that holds the calls.
    fn calls(&self, confirmation: &Confirmation, numbered: bool) -> String {
        if let [call, ..] = confirmation.calls.as_slice()
            && call.legacy
        {
            return format!(r#""function_call":{}"#, written(call, "", None));
        }
        let calls = confirmation.calls.iter().enumerate();
        let calls = calls
            .map(|(at, call)| written(call, &self.new_id(&call.id(), at), numbered.then_some(at as u64)));
        let calls: Vec<String> = calls.collect();
        format!(r#""tool_calls":[{}]"#, calls.join(","))
    }
}

/// A call under this id, written only from what the person was shown, so that no member of the upstream's call that
/// is repeated or written with escapes can come with it. In the deprecated form it has no id.
pub fn written(call: &Assembled, id: &str, index: Option<u64>) -> String {
    if call.legacy {
        return format!("{{{}}}", function(call));
    }
    let index = index.map(|index| format!(r#""index":{index},"#)).unwrap_or_default();
    let (id, kind) = (quote(id), if call.custom { "custom" } else { "function" });
    let extra: String = call.extra.iter().map(|(key, value)| member(key, value)).collect();
    format!(r#"{{{index}"id":{id},"type":"{kind}","{kind}":{{{}}}{extra}}}"#, function(call))
}

/// The name and the arguments, as the model wrote them or as a policy corrected them.
fn function(call: &Assembled) -> String {
    let arguments = if call.custom { "input" } else { "arguments" };
    format!(r#""name":{},"{arguments}":{}"#, quote(&call.name()), quote(&unescape(&call.arguments)))
}

fn member(key: &[u8], value: &[u8]) -> String {
    format!(r#","{}":{}"#, String::from_utf8_lossy(key), String::from_utf8_lossy(value))
}
