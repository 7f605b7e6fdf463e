//! Conversion between streamed and whole replies, since some servers answer a re-ask in the form that they prefer.
//! Judges nothing.

use crate::chat::assemble::{Assembler, assembled};
use crate::chat::completion::{Choice, Delta, Form, Reply};
use crate::error::{own_error_body, parse, parse_event, parse_in_200};
use crate::reply_choice::ReplyChoice;
use bytes::Bytes;
use model::assembled::Assembled;
use serde_json::{Value, json};
use wire::body::BYTE_ORDER_MARK;
use wire::json::decode_bytes;
use wire::members::{Member, members_of};
use wire::splice::Splices;
use wire::sse::{Piece, Splitter, parse_fields, write_event};

/// The members of a delta that are collected one by one.
const READ: [&[u8]; 4] = [b"role", b"content", b"tool_calls", b"function_call"];
/// Most other members of a message that are kept.
const MOST_OTHERS: usize = 32;

/// The collected parts of a stream's first choice.
#[derive(Default)]
struct Gathered {
    /// `id`, `created` and `model` as members, each with a comma after it.
    head: Vec<u8>,
    /// Escapes as written.
    text: Vec<u8>,
    assembler: Assembler,
    calls: ReplyChoice,
    /// Other members of the message, such as `reasoning_content`, as written: strings are joined, of other values the
    /// last one counts.
    others: Vec<(Vec<u8>, Vec<u8>)>,
    finish: Option<Vec<u8>>,
    usage: Option<Vec<u8>>,
    is_begun: bool,
}

/// Converts a stream to a whole reply with its first choice only; an error in the stream becomes the reply. `None` if
/// it has neither.
pub fn whole_of(stream: &Bytes) -> Option<Bytes> {
    let (mut splitter, mut rest) = (Splitter::new(stream.len().max(1)), stream.clone());
    let mut gathered = Gathered { calls: ReplyChoice::new(0, true), ..Gathered::default() };
    loop {
        let piece = splitter.next(&mut rest);
        let is_end = piece.is_none();
        let Some(Piece::Event(event)) = piece.or_else(|| splitter.finish()) else { break };
        let fields = parse_fields(&event);
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        if parse_event(name, fields.field, &fields.data).is_some() {
            return Some(fields.data.into_owned().into());
        }
        if let Ok(reply) = Reply::parse(&fields.data) {
            gathered.add(&reply, &fields.data);
        }
        if is_end {
            break;
        }
    }
    gathered.is_begun.then(|| gathered.write())
}

impl Gathered {
    fn add(&mut self, reply: &Reply, data: &[u8]) {
        if let Some(usage) = reply.reported_usage() {
            self.usage = Some(usage.of(data).to_vec());
        }
        let Some(choice) = reply.choices.first() else { return };
        if !std::mem::replace(&mut self.is_begun, true) {
            for name in ["id", "created", "model"] {
                if let Some(member) = reply.member(data, name.as_bytes()) {
                    self.head.extend_from_slice(format!("\"{name}\":").as_bytes());
                    self.head.extend_from_slice(member.value.of(data));
                    self.head.push(b',');
                }
            }
        }
        self.assembler.next_event();
        for text in choice.delta.content.texts() {
            self.text.extend_from_slice(text.raw(data));
        }
        for call in &choice.delta.calls {
            if !self.assembler.is_placeholder(&self.calls, call, data) {
                self.assembler.add(&mut self.calls, call, data);
            }
        }
        self.add_others(&choice.delta, data);
        if let Some(finish) = choice.finish {
            self.finish = Some(decode_bytes(finish, data).into_owned());
        }
    }

    fn add_others(&mut self, delta: &Delta, data: &[u8]) {
        for member in &delta.members {
            let (key, value) = (member.key.raw(data), member.value.of(data));
            if READ.contains(&&*decode_bytes(member.key, data)) || value == b"null" {
                continue;
            }
            let Some(at) = self.others.iter().position(|(known, _)| known == key) else {
                if self.others.len() < MOST_OTHERS {
                    self.others.push((key.to_vec(), value.to_vec()));
                }
                continue;
            };
            let known = &mut self.others[at].1;
            if known.ends_with(b"\"") && value.starts_with(b"\"") {
                known.pop();
                known.extend_from_slice(&value[1..]);
            } else {
                *known = value.to_vec();
            }
        }
    }

    fn write(&self) -> Bytes {
        let calls: Vec<&Assembled> = assembled(&self.calls).collect();
        let mut out = b"{".to_vec();
        out.extend_from_slice(&self.head);
        out.extend_from_slice(
            br#""object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"#,
        );
        if self.text.is_empty() && !calls.is_empty() {
            out.extend_from_slice(b"null");
        } else {
            string(&self.text, &mut out);
        }
        if let [call] = *calls
            && call.legacy
        {
            out.extend_from_slice(br#","function_call":"#);
            function(call, &mut out);
        } else if !calls.is_empty() {
            out.extend_from_slice(br#","tool_calls":["#);
            for (at, call) in calls.iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                out.extend_from_slice(format!("{comma}{{\"id\":").as_bytes());
                string(&call.id, &mut out);
                let kind = if call.custom { "custom" } else { "function" };
                out.extend_from_slice(format!(",\"type\":\"{kind}\",\"{kind}\":").as_bytes());
                function(call, &mut out);
                for (key, value) in &call.extra {
                    out.push(b',');
                    string(key, &mut out);
                    out.push(b':');
                    out.extend_from_slice(value);
                }
                out.push(b'}');
            }
            out.push(b']');
        }
        for (key, value) in &self.others {
            out.push(b',');
            string(key, &mut out);
            out.push(b':');
            out.extend_from_slice(value);
        }
        let usual: &[u8] = if calls.is_empty() { b"stop" } else { b"tool_calls" };
        out.extend_from_slice(br#"},"finish_reason":"#);
        string(self.finish.as_deref().unwrap_or(usual), &mut out);
        out.extend_from_slice(b"}]");
        if let Some(usage) = &self.usage {
            out.extend_from_slice(b",\"usage\":");
            out.extend_from_slice(usage);
        }
        out.push(b'}');
        out.into()
    }
}

fn string(escaped: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(escaped);
    out.push(b'"');
}

fn function(call: &Assembled, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"name\":");
    string(&call.name, out);
    out.extend_from_slice(if call.custom { b",\"input\":" } else { b",\"arguments\":" });
    string(&call.arguments, out);
    out.push(b'}');
}

/// Converts a whole reply to a stream; `None` if it is an error, or cannot be read. Only the members that differ between
/// the two forms are edited, so that whatever else the upstream wrote stays.
pub fn stream_of(whole: &Bytes) -> Option<Bytes> {
    if parse_in_200(whole).is_some() {
        return None;
    }
    let text =
        whole.strip_prefix(BYTE_ORDER_MARK).map_or_else(|| whole.clone(), |text| whole.slice_ref(text));
    let reply = Reply::read(&text, Form::Whole).ok()?;
    let is_empty =
        reply.choices.is_empty() || reply.choices.iter().any(|choice| choice.delta.span.is_empty());
    let choices = reply.member(&text, b"choices").filter(|_| !is_empty)?.value;
    let is_usage = |member: &Member| Some(member) == reply.usage.as_ref();
    let mut chunk = Splices::default();
    reply.choices.iter().for_each(|choice| edit_choice(choice, &text, &mut chunk));
    name_chunk(&reply, &text, &mut chunk);
    chunk.remove_members(&reply.members, is_usage);
    let mut events = vec![event_of(chunk, &text)];
    if reply.usage.is_some() {
        let mut last = Splices::default();
        name_chunk(&reply, &text, &mut last);
        last.replace(choices, "[]");
        events.push(event_of(last, &text));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    Some(events.concat().into())
}

/// Turns the message of a whole reply's choice into a delta, whose calls have an index.
fn edit_choice(choice: &Choice, text: &[u8], splices: &mut Splices) {
    let message = choice.members.iter().find(|member| member.value == choice.delta.span);
    if let Some(message) = message.filter(|member| *decode_bytes(member.key, text) == *b"message") {
        splices.replace(message.key.quoted(), "\"delta\"");
    }
    for (at, call) in choice.delta.calls.iter().filter(|call| !call.legacy).enumerate() {
        match call.index {
            Some((span, _)) => splices.replace(span, at.to_string()),
            None => {
                let comma = if members_of(text, call.span).is_empty() { "" } else { "," };
                splices.insert(call.span.start + 1, format!("\"index\":{at}{comma}"));
            }
        }
    }
}

/// Gives `object` the value that it has in a stream.
fn name_chunk(reply: &Reply, text: &[u8], splices: &mut Splices) {
    if let Some(object) = reply.member(text, b"object") {
        splices.replace(object.value, "\"chat.completion.chunk\"");
    }
}

/// The edited text as an event of one line: JSON has line breaks between its parts only.
fn event_of(splices: Splices, text: &Bytes) -> Bytes {
    let mut data = splices.apply(text).join().to_vec();
    data.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    write_event(&data)
}

/// The error of a whole reply with this status, as the data of an event.
pub fn error_data(status: u16, body: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(body) {
        // Only the error: clients that do not check for errors would run calls beside it.
        Ok(value) if value["error"].is_object() => {
            json!({ "error": value["error"] }).to_string().into_bytes()
        }
        _ => {
            let said = parse(body).map(|error| error.messages.join("; ")).filter(|said| !said.is_empty());
            let said = said.map_or_else(String::new, |said| format!(": {said}"));
            let message = format!("The upstream refused to be asked again with status {status}{said}");
            own_error_body(&message, "reask_failed").into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstreams_error_object_is_reported_as_it_is_and_anything_else_in_our_shape() {
        let reported = |body: &str| String::from_utf8(error_data(429, body.as_bytes())).unwrap();
        assert_eq!(reported("{\"error\": {\"message\": \"slow\"}}"), r#"{"error":{"message":"slow"}}"#);
        let with_call = r#"{"error":{"message":"slow"},"choices":[{"delta":{"tool_calls":[{}]}}]}"#;
        assert_eq!(reported(with_call), r#"{"error":{"message":"slow"}}"#);
        assert!(reported("gone").contains("status 429: gone"));
    }

    const STREAM: &str = concat!(
        "data: {\"id\":\"r\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"A \\\"\"}}]}\n\n",
        ": comment\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"B\\\"\",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\ndata: [DONE]",
    );

    #[test]
    fn a_stream_is_converted_to_the_equivalent_whole_reply() {
        let stream = Bytes::from(STREAM.replace("A \\\"", "A ").replace("B\\\"", "B"));
        let whole: Value = serde_json::from_slice(&whole_of(&stream).unwrap()).unwrap();
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        let message = json!({"role": "assistant", "content": "A B", "tool_calls": [call]});
        assert_eq!(
            whole,
            json!({"id": "r", "model": "m", "object": "chat.completion", "usage": {"total_tokens": 7},
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
        );
        assert_eq!(whole_of(&Bytes::from_static(b": nothing\n\ndata: [DONE]\n\n")), None);
        let error = Bytes::from_static(b"data: {\"error\":{\"message\":\"x\"}}\n\n");
        assert_eq!(whole_of(&error).unwrap(), "{\"error\":{\"message\":\"x\"}}");
    }

    #[test]
    fn converting_a_whole_reply_to_a_stream_and_back_gives_the_same_reply() {
        let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let message = json!({"role": "assistant", "content": "A", "tool_calls": [call]});
        let whole = json!({"id": "r", "object": "chat.completion", "usage": {"total_tokens": 7},
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
        let stream = stream_of(&whole.to_string().into()).unwrap();
        let again: Value = serde_json::from_slice(&whole_of(&stream).unwrap()).unwrap();
        assert_eq!(again, whole);
        for none in
            ["", "{}", "[1]", r#"{"choices":[]}"#, r#"{"error":{"message":"x"},"choices":[{"message":{}}]}"#]
        {
            assert_eq!(stream_of(&Bytes::from(none)), None, "{none}");
        }
    }

    #[test]
    fn a_whole_reply_of_odd_shape_becomes_a_stream_of_the_same_bytes_or_none_at_all() {
        let streamed = |whole: &'static str| {
            stream_of(&Bytes::from(whole)).map(|it| String::from_utf8(it.to_vec()).unwrap())
        };
        for (whole, data) in [
            (
                "\u{feff}{\"choices\": [\n {\"message\": {\"content\": \"\\ud83d\"}, \"logprobs\": NaN}\n]}",
                "{\"choices\": [  {\"delta\": {\"content\": \"\\ud83d\"}, \"logprobs\": NaN} ]}",
            ),
            (r#"{"choices":[{"delta":{"content":"A"}}]}"#, r#"{"choices":[{"delta":{"content":"A"}}]}"#),
            (
                r#"{"choices":[{"message":{"tool_calls":[{},{"index":7,"id":"c"}]}}],"object":"chat.completion"}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0},{"index":1,"id":"c"}]}}],"object":"chat.completion.chunk"}"#,
            ),
        ] {
            assert_eq!(streamed(whole), Some(format!("data: {data}\n\ndata: [DONE]\n\n")), "{whole}");
        }
        for odd in ["\"Fine.\"", "5", "[1]", "null"] {
            let whole = format!("{{\"choices\":[{{\"message\":{odd}}}]}}");
            assert_eq!(stream_of(&whole.into()), None, "{odd}");
        }
    }

    #[test]
    fn other_members_of_a_streams_deltas_stay_in_the_whole_reply() {
        let event =
            |delta: Value| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
        let stream = [
            event(json!({"role": "assistant", "reasoning_content": "I \"th"})),
            event(json!({"reasoning_content": "ink\"", "refusal": null})),
            event(json!({"content": "A", "annotations": [1]})),
            event(json!({"annotations": [1, 2]})),
        ];
        let whole: Value = serde_json::from_slice(&whole_of(&stream.concat().into()).unwrap()).unwrap();
        assert_eq!(
            whole["choices"][0]["message"],
            json!({"role": "assistant", "content": "A", "reasoning_content": "I \"think\"", "annotations": [1, 2]})
        );
    }
}
