//! A recorded reply written again as an upstream would have sent it, for replays.

use crate::conversation::message::Message;
use bytes::Bytes;

/// The reply that made these messages of the request `body`, whole, with the recorded bytes of its calls.
pub fn recorded_reply(body: &[u8], messages: &[&Message]) -> Bytes {
    let mut reply = br#"{"choices":[{"index":0,"message":"#.to_vec();
    if let [message] = messages {
        reply.extend_from_slice(message.span.of(body));
    } else {
        reply.extend_from_slice(br#"{"role":"assistant","tool_calls":["#);
        for (nth, call) in messages.iter().flat_map(|message| &message.calls).enumerate() {
            let (before, after): (&[u8], &[u8]) =
                if call.legacy { (br#"{"type":"function","function":"#, b"}") } else { (b"", b"") };
            let comma: &[u8] = if nth > 0 { b"," } else { b"" };
            reply.extend([comma, before, call.span.of(body), after].concat());
        }
        reply.extend_from_slice(b"]}");
    }
    reply.extend_from_slice(br#","finish_reason":"tool_calls"}]}"#);
    reply.into()
}
