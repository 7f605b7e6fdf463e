//! A recorded conversation, parsed from one line: the body of its last request, without the recorder's additions, and
//! the recorder's labels. Keeps the conversation's own bytes unchanged.

use super::live::Live;
use super::tally::ToolUse;
use super::times::parse_ms;
use bytes::Bytes;
use dialects::AnyDialect;
use model::Transcript;
use model::call::ToolCall;
use model::identity::Identity;
use model::memo::NoMemo;
use model::message::{Message, Role};
use model::names::DeclaredNames;
use model::request::Request;
use model::tokens::{TOOL_SCHEMA, estimate_json};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use wire::body::{Fault, Scanner, Span, Str};
use wire::json::decode;
use wire::members::{Member, members_of};
use wire::splice::Splices;

/// Members that a recorder adds to a line; no request has them.
pub(super) const LABELS: [&str; 5] = ["source", "id", "ref", "reward", "usage"];
/// Members that a recorder adds to a message: when it was said.
const TIMES: [&str; 2] = ["timestamp", "created_at"];
/// From this reward on a task counts as solved; slightly less may be a rounded 1.
const SOLVED: f64 = 1.0 - 1e-6;

/// A recorded conversation.
pub(crate) struct Recording {
    /// A request with every message of the conversation.
    pub body: Bytes,
    /// The wire protocol that it is written in.
    pub dialect: AnyDialect,
    pub request: Request,
    pub labels: Labels,
    /// When each message was said, in ms since the epoch.
    pub times_ms: Vec<Option<u64>>,
    /// What toolrein's own recording shows of its live requests, oldest first.
    pub live: Vec<Live>,
}

/// The recorder's labels of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    pub id: Option<String>,
    pub source: Option<String>,
    pub model: Option<String>,
    /// Whether the task was solved.
    pub solved: Option<bool>,
}

/// A request of the conversation and the reply to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// How many messages the request had.
    pub history: usize,
    /// The assistant's messages after it; empty where the recording ends with the request.
    pub reply: Range<usize>,
}

impl Recording {
    /// Reads a line that is written in this dialect.
    ///
    /// # Errors
    /// A [`Fault`] where it is not a request that toolrein can read.
    pub(super) fn read(line: &Bytes, dialect: AnyDialect) -> Result<Self, Fault> {
        let request = dialect.read(line)?;
        let labels = Labels::read(&request, line);
        let mut splices = Splices::default();
        splices.remove_members(&request.members, |member| LABELS.contains(&&*decode(member.key, line)));
        let times_ms =
            request.messages.iter().map(|message| take_time(message, line, &mut splices)).collect();
        if splices.is_empty() {
            return Ok(Self { body: line.clone(), dialect, request, labels, times_ms, live: Vec::new() });
        }
        let body = splices.apply(line).join();
        let request = dialect.read(&body)?;
        Ok(Self { body, dialect, request, labels, times_ms, live: Vec::new() })
    }

    /// Adds what is known of the live requests: when each reply had come, where its message has no time of its own.
    pub(super) fn with_live(mut self, live: Vec<Live>) -> Self {
        for one in &live {
            let came = parse_ms(&Value::String(one.time.clone())).map(|ms| ms.saturating_add(one.ms));
            if let Some(time) = self.times_ms.get_mut(one.history) {
                *time = time.or(came);
            }
        }
        self.live = live;
        self
    }

    /// The requests, oldest first: each ends where the assistant speaks, the last one with the recording.
    pub(super) fn steps(&self) -> Vec<Step> {
        let messages = &self.request.messages;
        let is_reply = |at: usize| messages.get(at).is_some_and(|message| message.role == Role::Assistant);
        let mut steps = Vec::new();
        for history in 1..=messages.len() {
            if is_reply(history - 1) || !(is_reply(history) || history == messages.len()) {
                continue;
            }
            // An agent's greeting was written by the program and does not answer a request.
            if messages[..history].iter().all(|message| message.role == Role::System) {
                continue;
            }
            let end = (history..messages.len()).find(|at| !is_reply(*at)).unwrap_or(messages.len());
            steps.push(Step { history, reply: history..end });
        }
        steps
    }

    /// The body of the request with the first `history` messages.
    pub(super) fn body_of(&self, history: usize) -> Bytes {
        let messages = &self.request.messages;
        if history == messages.len() {
            return self.body.clone();
        }
        let all = self.request.messages_span;
        // An item may be a part of a message, which ends before the comma before the next one.
        let before = self.body[..messages[history].span.start as usize].trim_ascii_end();
        let before = before.strip_suffix(b",").unwrap_or(before).trim_ascii_end();
        let start = (before.len() as u32).max(all.start + 1);
        let mut splices = Splices::default();
        splices.replace(Span { start, end: all.end - 1 }, Bytes::new());
        splices.apply(&self.body).join()
    }
}

impl Recording {
    /// How many calls the first `history` messages hold.
    pub(super) fn calls_before(&self, history: usize) -> usize {
        let messages = self.request.messages[..history].iter();
        messages.filter(|message| message.role == Role::Assistant).map(|message| message.calls.len()).sum()
    }

    /// The first new message in a request with the first `history` messages: the one after the last reply.
    pub(super) fn new_from(&self, history: usize) -> usize {
        let is_reply = |message: &Message| message.role == Role::Assistant;
        self.request.messages[..history].iter().rposition(is_reply).map_or(0, |last| last + 1)
    }

    /// The id and the name of a call, empty where it has none.
    pub(super) fn named(&self, call: &ToolCall) -> (Cow<'_, str>, Cow<'_, str>) {
        let text = |text: Option<Str>| text.map_or("".into(), |text| decode(text, &self.body));
        (text(call.id), text(call.name))
    }

    /// How the declared tools were used in so many `requests`, which all declare the same.
    pub(super) fn tools(&self, requests: u64) -> BTreeMap<String, ToolUse> {
        let mut tools: BTreeMap<String, ToolUse> = BTreeMap::new();
        for tool in &self.request.tools {
            let Some(name) = tool.full_name(&self.body) else { continue };
            let tokens = (TOOL_SCHEMA + estimate_json(tool.span.of(&self.body))).tokens();
            tools.entry(name.into_owned()).or_default().add(ToolUse {
                requests,
                calls: 0,
                tokens: tokens * requests,
            });
        }
        let declared = DeclaredNames::new(tools.keys().cloned().collect::<Vec<_>>());
        let calls = self.request.messages.iter().flat_map(|message| &message.calls);
        for name in calls.filter_map(|call| call.full_name(&self.body)) {
            // Counted under the declared tool that programs run for this name.
            if let Some(used) = declared.meant(&name).and_then(|name| tools.get_mut(name)) {
                used.calls += 1;
            }
        }
        tools
    }

    /// For each message that answers a call, the tool that was called.
    pub(super) fn answered_tools(&self, identity: &Identity) -> Vec<Option<String>> {
        let transcript =
            Transcript::read(self.request.clone(), self.body.clone(), identity.clone(), Arc::new(NoMemo));
        let tool = |at| transcript.calls.answered_by(at).map(|call| call.name.to_string());
        (0..self.request.messages.len()).map(tool).collect()
    }

    /// The reply to a request as an upstream would have sent it, whole, with the recorded bytes of its calls.
    pub(super) fn reply_of(&self, step: &Step) -> Bytes {
        let messages = &self.request.messages[step.reply.clone()];
        let with_calls: Vec<&Message> = messages.iter().filter(|message| !message.calls.is_empty()).collect();
        self.dialect.recorded_reply(&self.body, &with_calls)
    }
}

impl Labels {
    /// The labels of the line in `body`.
    pub(super) fn read(request: &Request, body: &[u8]) -> Self {
        let value = |name| value_of(request.value(body, name)?, body);
        let text = |name| match value(name)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let reward = value("reward").and_then(|reward| reward.as_f64());
        let model = request.model_name(body);
        Self {
            id: text("id"),
            source: text("source"),
            model: Some(model.into_owned()).filter(|model| !model.is_empty()),
            solved: reward.map(|reward| reward >= SOLVED),
        }
    }
}

/// The time recorded in a message, whose member is removed.
fn take_time(message: &Message, body: &[u8], splices: &mut Splices) -> Option<u64> {
    let is_time = |member: &Member| TIMES.contains(&&*decode(member.key, body));
    let mut found = None;
    for object in objects_in(message.span, body) {
        let members = members_of(body, object);
        let time = members.iter().find(|member| is_time(member)).map(|member| member.value);
        splices.remove_members(&members, is_time);
        found = found.or(time);
    }
    parse_ms(&value_of(found?, body)?)
}

/// The objects of a message: in the Responses API several items may be one.
fn objects_in(span: Span, body: &[u8]) -> Vec<Span> {
    let (mut objects, mut rest) = (Vec::new(), span);
    while let Ok(object) = Scanner::within(body, rest).skip() {
        objects.push(object);
        let after = Span { start: object.end, end: span.end };
        let comma = after.of(body).iter().position(|byte| *byte == b',');
        let Some(comma) = comma else { break };
        rest = Span::new(after.range().start + comma + 1, span.range().end);
    }
    objects
}

fn value_of(span: Span, body: &[u8]) -> Option<Value> {
    serde_json::from_slice(span.of(body)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialects::dialect_of;

    fn read(line: &str) -> Recording {
        Recording::read(&Bytes::copy_from_slice(line.as_bytes()), dialect_of(line.as_bytes())).unwrap()
    }

    fn roles(roles: &str) -> Recording {
        let role = |letter| match letter {
            's' => "system",
            'u' => "user",
            'a' => "assistant",
            _ => "tool",
        };
        let messages: Vec<String> =
            roles.chars().map(|letter| format!(r#"{{"role":"{}","content":"x"}}"#, role(letter))).collect();
        read(&format!(r#"{{"messages":[{}]}}"#, messages.join(",")))
    }

    #[test]
    fn the_body_of_each_request_ends_with_a_whole_message_also_where_results_are_parts_of_one() {
        let result = |id: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"r"}}"#);
        let call = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
        let first = r#"{"role":"user","content":"q"}"#;
        let second = format!(
            r#"{first} , {{"role":"assistant","content":[{},{}]}},{{"role":"user","content":[{},{} ]}}"#,
            call("a"),
            call("b"),
            result("a"),
            result("b")
        );
        let all = format!(r#"{second}, {{"role":"assistant","content":"done"}}"#);
        let body = |messages: &str| format!(r#"{{"system":"s","messages":[{messages}]}}"#);
        let recording = read(&body(&all));
        let steps: Vec<usize> = recording.steps().iter().map(|step| step.history).collect();
        assert_eq!(steps, [1, 4]);
        assert_eq!(recording.body_of(1), body(first));
        assert_eq!(recording.body_of(4), body(&second));
    }

    #[test]
    fn members_that_the_recorder_added_are_read_and_removed_from_the_body() {
        let recording = read(
            r#"{"source":"s","id":7,"model":"m","messages":[{"role":"user","content":"q","timestamp":2},{"created_at":"1970-01-01T00:00:03Z","role":"assistant"}], "own": 1,"reward":1.0,"usage":[],"ref":"r"}"#,
        );
        assert_eq!(
            recording.body,
            r#"{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant"}], "own": 1}"#
        );
        let labels = Labels {
            id: Some("7".to_owned()),
            source: Some("s".to_owned()),
            model: Some("m".to_owned()),
            solved: Some(true),
        };
        assert_eq!((recording.labels, recording.times_ms), (labels, vec![Some(2_000), Some(3_000)]));
    }

    #[test]
    fn a_request_s_own_body_is_left_as_it_is() {
        let line = r#" {"messages" : [ {"role":"user","content":"q"} ] , "x":[1] } "#;
        let recording = read(line);
        assert_eq!((&*recording.body, recording.labels), (line.as_bytes(), Labels::default()));
    }

    #[test]
    fn a_recording_is_split_into_requests_before_each_assistant_turn_and_at_the_end() {
        for (said, expected) in [
            ("ua", vec![(1, 1..2)]),
            ("suatau", vec![(2, 2..3), (4, 4..5), (6, 6..6)]),
            ("sauatt", vec![(3, 3..4), (6, 6..6)]),
            ("uaata", vec![(1, 1..3), (4, 4..5)]),
            ("a", vec![]),
            ("s", vec![]),
            ("", vec![]),
        ] {
            let steps: Vec<_> = roles(said).steps().into_iter().map(|s| (s.history, s.reply)).collect();
            assert_eq!(steps, expected, "{said}");
        }
    }

    #[test]
    fn requests_of_the_responses_api_are_cut_after_a_message_whatever_its_items() {
        let recording = read(
            r#"{"id":"c","input":[{"role":"user","content":"q","timestamp":1}, {"type":"reasoning","timestamp":2} ,{"type":"function_call","call_id":"c","name":"f","timestamp":3},{"type":"function_call_output","call_id":"c","output":"r"}]}"#,
        );
        let user = r#"{"role":"user","content":"q"}"#;
        let reply = r#"{"type":"reasoning"} ,{"type":"function_call","call_id":"c","name":"f"}"#;
        assert_eq!(recording.body_of(1), format!("{{\"input\":[{user}]}}"));
        assert_eq!(recording.body_of(2), format!("{{\"input\":[{user}, {reply}]}}"));
        assert_eq!(recording.times_ms, [Some(1_000), Some(2_000), None]);
        let steps = recording.steps();
        assert_eq!(steps, [Step { history: 1, reply: 1..2 }, Step { history: 3, reply: 3..3 }]);
        let expected = format!("{{\"object\":\"response\",\"status\":\"completed\",\"output\":[{reply}]}}");
        assert_eq!(recording.reply_of(&steps[0]), expected);
    }

    #[test]
    fn the_body_of_an_earlier_request_is_the_last_one_without_its_later_messages() {
        let recording = read(r#"{"messages":[{"role":"user"} , {"role":"tool"} ],"x":1}"#);
        assert_eq!(recording.body_of(0), r#"{"messages":[],"x":1}"#);
        assert_eq!(recording.body_of(1), r#"{"messages":[{"role":"user"}],"x":1}"#);
        assert_eq!(recording.body_of(2), recording.body);
    }
}
