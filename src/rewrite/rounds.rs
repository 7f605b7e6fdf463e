//! Hidden rounds: an assistant message with the calls that were withheld and a synthetic result for each, as
//! the model reads them when it is asked again and in every later request. Writes JSON; decides nothing.

use crate::policy::plan::Reason;
use crate::transcript::identity::Hash;
use crate::wire::assemble::Assembled;
use crate::wire::body::{Kind, Scanner};
use crate::wire::json::{escape_into, quote};
use bytes::Bytes;
use serde_json::json;

/// Most rounds kept under one name: more are answers to one conversation that was held as often.
pub const MOST_AT_ONE_PLACE: usize = 64;

/// A hidden round, found again by what the client was shown behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The name of the assistant message that it stands before.
    pub anchor: Hash,
    /// Messages joined by commas; empty where the client was shown all.
    pub messages: Bytes,
}

/// A call that the client was not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    pub call: Assembled,
    /// What the model reads as its result.
    pub result: String,
}

/// Members that an assistant message has beside its calls, such as `reasoning_content`, and that some providers want
/// back: names and JSON values, as written.
pub type Carried = [(Vec<u8>, Vec<u8>)];

/// The round as messages joined by commas, without brackets. It has no text: the client was shown what the model said
/// beside its calls, and the visible answer that follows holds it. The empty text is what every chat template takes: some
/// refuse null, others want the member.
pub fn write_round(carried: &Carried, withheld: &[Withheld]) -> Bytes {
    let mut out = br#"{"role":"assistant","content":"""#.to_vec();
    for (key, value) in carried {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value);
    }
    if let [Withheld { call, .. }] = withheld
        && call.legacy
    {
        out.extend_from_slice(br#","function_call":"#);
        write_function(call, &mut out);
    } else {
        write_calls(withheld, &mut out);
    }
    out.push(b'}');
    for withheld in withheld {
        write_result(withheld, &mut out);
    }
    #[cfg(test)]
    work::add(out.len());
    out.into()
}

/// What tests of growth count as work.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    thread_local! {
        static WRITTEN: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add(bytes: usize) {
        WRITTEN.set(WRITTEN.get() + bytes);
    }

    /// Bytes of messages written on this thread for the model to read.
    pub(in crate::rewrite) fn bytes_written() -> usize {
        WRITTEN.get()
    }
}

/// The synthetic result that tells the model why its call was withheld.
pub fn envelope(policy: &str, reason: &Reason) -> String {
    let mut error = json!({
        "type": reason.kind.as_str(),
        "message": reason.message,
        "retryable": reason.retryable,
    });
    for (name, number) in &reason.numbers {
        error[*name] = json!(number);
    }
    json!({ "ok": false, "error": error, "meta": { "by": "toolrein", "policy": policy } }).to_string()
}

fn write_calls(withheld: &[Withheld], out: &mut Vec<u8>) {
    out.extend_from_slice(br#","tool_calls":["#);
    for (at, Withheld { call, .. }) in withheld.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(&call.id);
        let kind = if call.custom { "custom" } else { "function" };
        out.extend_from_slice(format!("\",\"type\":\"{kind}\",\"{kind}\":").as_bytes());
        write_function(call, out);
        for (key, value) in &call.extra {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(key);
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value);
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_function(call: &Assembled, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"name\":\"");
    out.extend_from_slice(&call.name);
    out.extend_from_slice(if call.custom { b"\",\"input\":\"" } else { b"\",\"arguments\":\"" });
    if call.custom || is_object(&call.arguments()) {
        out.extend_from_slice(&call.arguments);
    } else {
        escape_into(&harmless_arguments(&call.arguments()), out);
    }
    out.extend_from_slice(b"\"}");
}

/// Arguments that chat templates can parse, in the place of arguments that they could not: templates of
/// vLLM and others refuse the whole request where a call in the history holds broken JSON, or JSON that is no
/// object (Venice's `2`).
fn harmless_arguments(text: &str) -> String {
    if text.trim().is_empty() {
        "{}".to_owned()
    } else {
        format!("{{\"invalid_arguments\":{}}}", quote(text))
    }
}

fn is_object(text: &str) -> bool {
    let mut scanner = Scanner::new(text.as_bytes());
    let begins_one = matches!(scanner.peek(), Ok(Kind::Object));
    begins_one && !scanner.odd() && scanner.skip().is_ok() && scanner.end().is_ok()
}

fn write_result(withheld: &Withheld, out: &mut Vec<u8>) {
    let Withheld { call, result } = withheld;
    if call.legacy {
        out.extend_from_slice(br#",{"role":"function","name":""#);
        out.extend_from_slice(&call.name);
    } else {
        out.extend_from_slice(br#",{"role":"tool","tool_call_id":""#);
        out.extend_from_slice(&call.id);
    }
    out.extend_from_slice(br#"","content":""#);
    escape_into(result, out);
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::plan::ReasonKind;
    use serde_json::Value;

    fn withheld(arguments: &str) -> Withheld {
        let mut call = Assembled::default();
        (call.id, call.name) = (b"call_1".to_vec(), b"search".to_vec());
        call.arguments = arguments.as_bytes().to_vec();
        call.extra = vec![(b"extra_content".to_vec(), br#"{"s":"\u002b"}"#.to_vec())];
        let reason =
            Reason::new(ReasonKind::RateLimit, "wait").retryable().with(vec![("retry_after_ms", 41_000)]);
        Withheld { call, result: envelope("rate_limit", &reason) }
    }

    fn round(carried: &Carried, calls: &[Withheld]) -> Vec<Value> {
        let text = String::from_utf8(write_round(carried, calls).to_vec()).unwrap();
        serde_json::from_str(&format!("[{text}]")).unwrap()
    }

    #[test]
    fn a_round_is_the_calls_and_one_result_for_each() {
        let carried = [(b"reasoning_content".to_vec(), b"\"why\"".to_vec())];
        let messages = round(&carried, &[withheld(r#"{\"q\":1}"#), withheld("")]);
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[0]["content"], "");
        assert_eq!(messages[0]["reasoning_content"], "why");
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], r#"{"q":1}"#);
        assert_eq!(messages[0]["tool_calls"][0]["extra_content"]["s"], "+");
        assert_eq!(messages[0]["tool_calls"][1]["function"]["arguments"], "{}");
        let result: Value = serde_json::from_str(messages[1]["content"].as_str().unwrap()).unwrap();
        assert_eq!(
            result,
            serde_json::json!({"ok": false, "error": {"type": "RATE_LIMIT", "message": "wait", "retryable": true,
                "retry_after_ms": 41_000}, "meta": {"by": "toolrein", "policy": "rate_limit"}})
        );
        assert_eq!(messages[2]["tool_call_id"], "call_1");
    }

    #[test]
    fn broken_arguments_become_json_that_still_shows_them() {
        let messages = round(&[], &[withheld(r#"{\"q\":"#)]);
        let arguments = messages[0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(arguments).unwrap()["invalid_arguments"], r#"{"q":"#);
        assert_eq!(messages[0]["content"], "");
    }

    #[test]
    fn a_deprecated_call_is_answered_in_the_deprecated_form() {
        let mut old = withheld("{}");
        old.call.legacy = true;
        let messages = round(&[], &[old]);
        assert_eq!(messages[0]["function_call"]["name"], "search");
        assert_eq!((&messages[1]["role"], &messages[1]["name"]), (&"function".into(), &"search".into()));
    }
}
