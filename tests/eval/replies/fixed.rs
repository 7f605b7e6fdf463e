//! What the scripted upstream says beside the recorded reply: the answer to every re-ask, a call that is always blocked, and
//! refusals of a request's form.

use super::material::{Api, UpstreamReply};
use crate::support::reply::Speech;
use crate::support::responses::{Output, event};
use bytes::Bytes;
use serde_json::{Value, json};

/// The tool of the call that is always blocked.
pub const BLOCKED: &str = "blocked_tool";

/// What the upstream says before the recorded reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Nothing.
    Nothing,
    /// A call of [`BLOCKED`], after which it is asked again.
    Call,
    /// It refuses tools in a stream.
    RefusesStream,
    /// It refuses tools.
    RefusesTools,
}

impl Opening {
    /// What it says to the request `body`.
    pub fn said(self, api: Api, streams: bool, body: &[u8]) -> Option<UpstreamReply> {
        match self {
            Self::Nothing => None,
            Self::Call => Some(call(api, streams, body)),
            Self::RefusesStream => Some(refusal("This model doesn't support tool use in streaming mode.")),
            Self::RefusesTools => {
                Some(refusal("registry.ollama.ai/library/gemma3:4b does not support tools"))
            }
        }
    }

    /// How many re-asks precede the recorded reply.
    pub fn reasks(self) -> u32 {
        u32::from(self == Self::Call)
    }
}

/// The answer to a re-ask.
pub fn answer(api: Api, streams: bool, body: &[u8]) -> UpstreamReply {
    written(api, streams, body, &Speech::text("So it is."), &Output::text("answer", "So it is."))
}

fn call(api: Api, streams: bool, body: &[u8]) -> UpstreamReply {
    let arguments = "{\"a\":1}";
    let (speech, output) = (
        Speech::calls(&[("call_blocked", BLOCKED, arguments)]),
        Output::calls("call", &[("blocked", BLOCKED, arguments)]),
    );
    written(api, streams, body, &speech, &output)
}

fn written(api: Api, streams: bool, body: &[u8], speech: &Speech, output: &Output) -> UpstreamReply {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = match (api, streams) {
        (Api::Chat, false) => speech.whole().to_string(),
        (Api::Chat, true) => {
            let chunks = speech.chunks(request["stream_options"]["include_usage"] == true);
            let data = chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
            data.map(|data| format!("data: {data}\n\n")).collect()
        }
        (Api::Responses, false) => output.whole(&request).to_string(),
        (Api::Responses, true) => output.events(&request).iter().map(event).collect(),
    };
    UpstreamReply { streams, status: 200, bytes: text.into() }
}

fn refusal(message: &str) -> UpstreamReply {
    let body =
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}});
    UpstreamReply { streams: false, status: 400, bytes: Bytes::from(body.to_string()) }
}
