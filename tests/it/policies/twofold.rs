//! Calls that JSON readers interpret differently: members that repeat, or that repeat once their escapes are
//! resolved. `confirm` shows one interpretation, and only that one may run.

use crate::support::reply::Reply;
use crate::support::scripted::Recorded;
use crate::support::talk::Said;

/// What is shown.
pub const ANN: &str = "{\"to\":\"ann\"}";

/// Members of a call of `fetch`. toolrein reads the last of equal ones, as most programs do; others read the first, or
/// know no escapes in names.
pub const CALLS: [&str; 4] = [
    r#""functi\u006fn":{"name":"fetch","arguments":"{\"to\":\"mallory\"}"},"id":"call_fetch0001","type":"function","function":{"name":"fetch","arguments":"{\"to\":\"ann\"}"},"extra_content":{"s":1}"#,
    r#""function":{"name":"fetch","arguments":"{\"to\":\"mallory\"}"},"id":"call_fetch0001","type":"function","function":{"name":"fetch","arguments":"{\"to\":\"ann\"}"},"extra_content":{"s":1}"#,
    r#""id":"call_fetch0001","type":"function","function":{"name":"fetch","argum\u0065nts":"{\"to\":\"mallory\"}","arguments":"{\"to\":\"ann\"}"},"extra_content":{"s":1}"#,
    r#""id":"call_fetch0001","type":"function","function":{"name":"fetch","arguments":"{\"to\":\"ann\"}"},"inp\u0075t":"mallory","name":"mallory","extra_content":{"s":1}"#,
];

/// A reply that makes this one call.
pub fn reply(request: &Recorded, call: &str) -> Reply {
    if request.json()["stream"] == true {
        let chunk = |delta: &str, finish: &str| {
            format!(
                "data: {{\"id\":\"r\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
            )
        };
        let calls = format!("{{\"role\":\"assistant\",\"tool_calls\":[{{\"index\":0,{call}}}]}}");
        return Reply::stream([
            chunk(&calls, "null"),
            chunk("{}", "\"tool_calls\""),
            "data: [DONE]\n\n".into(),
        ]);
    }
    let message = format!("{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{{call}}}]}}");
    let choice = format!("{{\"index\":0,\"message\":{message},\"finish_reason\":\"tool_calls\"}}");
    Reply::bytes(200, "application/json", format!("{{\"id\":\"r\",\"choices\":[{choice}]}}"))
}

/// The client got the call to ann, with its unknown members, and cannot read another call from it.
pub fn assert_only_ann(said: &Said, call: &str) {
    let got: Vec<(&str, &str)> =
        said.calls.iter().map(|(_, name, arguments)| (&**name, &**arguments)).collect();
    let bytes = said.response.text();
    assert_eq!(got, [("fetch", ANN)], "{call}\n{bytes}");
    assert!(!bytes.contains("mallory") && !bytes.contains("\\u006f"), "{call}\n{bytes}");
    assert!(bytes.contains("\"extra_content\":{\"s\":1}"), "{call}\n{bytes}");
    let written = bytes.matches("\"function\":{").count();
    assert_eq!(written, 1, "{call}\n{bytes}");
}
