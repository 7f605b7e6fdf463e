//! The line of one request: `id`, `toolrein` (what was done), `request` and `response`. Redacts, and leaves out what is
//! not to be kept or cannot be written as JSON.

use super::Taken;
use super::credentials::without_credentials;
use bytes::Bytes;
use model::identity::HashKey;
use model::record::{Action, JudgedCall, LimitUse, PolicyDecision, RequestRecord, Tokens};
use policies::redact::Redactor;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// How lines are made.
pub(super) struct Lines {
    pub redactor: Redactor,
    pub key: HashKey,
    /// Requests, replies and texts are written.
    pub bodies: bool,
    /// The longest line with bodies, in bytes.
    pub longest: u64,
}

/// A line. Its keys are stable; new ones may be added.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    toolrein: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Box<RawValue>>,
    /// `null`: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Box<RawValue>>,
}

/// What was done to the request.
#[derive(Serialize)]
struct Done<'a> {
    /// When the request came, and how long it took until the reply had ended.
    time: String,
    ms: u64,
    request_id: &'a str,
    conversation: Option<&'a str>,
    model: Option<&'a str>,
    profile: Option<&'a str>,
    mode: &'a str,
    path: &'a str,
    status: u16,
    error: Option<&'a str>,
    streamed: bool,
    /// The client left before the end.
    client_gone: bool,
    /// The identical request came before.
    repeated: bool,
    actions: Vec<Acted<'a>>,
    calls: Vec<Call<'a>>,
    /// Calls that the client did not see, with the results that the model read: items of the history.
    hidden: Vec<Hidden>,
    notices: Vec<Notice<'a>>,
    refusal: Option<Refused<'a>>,
    limits: Vec<Limit<'a>>,
    approvals: Vec<Approval<'a>>,
    reasks: u32,
    upstream_requests: u32,
    fallbacks: Vec<&'static str>,
    tokens: Billed,
    tokens_saved: u64,
    /// What should be here and is not: `request`, `response`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<&'static str>,
}

#[derive(Serialize)]
struct Acted<'a> {
    policy: &'a str,
    action: &'a str,
    count: u64,
}

#[derive(Serialize)]
struct Call<'a> {
    tool: &'a str,
    id: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "is_false")]
    unjudged: bool,
    objections: Vec<Objected<'a>>,
    acts: Vec<Acted<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_arguments: Option<&'a str>,
}

#[derive(Serialize)]
struct Objected<'a> {
    policy: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    numbers: BTreeMap<&'a str, u64>,
}

#[derive(Serialize)]
struct Hidden {
    choice: u32,
    items: Box<RawValue>,
}

#[derive(Serialize)]
struct Notice<'a> {
    policy: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct Refused<'a> {
    policy: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct Limit<'a> {
    policy: Option<&'a str>,
    tool: &'a str,
    used: u64,
    limit: u64,
}

#[derive(Serialize)]
struct Approval<'a> {
    tool: &'a str,
    outcome: &'static str,
}

#[derive(Serialize)]
struct Billed {
    input: u64,
    cached: u64,
    output: u64,
    reasoning: u64,
}

impl Lines {
    /// The line of one request, its end included.
    pub(super) fn line(&self, taken: &Taken, record: &RequestRecord) -> Vec<u8> {
        let (mut request, mut response, mut left_out) = (None, None, Vec::new());
        if self.bodies {
            request = self.kept(&without_credentials(taken.dialect, &taken.body));
            response = self.reply(taken);
            let size = |part: &Option<Box<RawValue>>| part.as_ref().map_or(0, |part| part.get().len() as u64);
            if size(&request) + size(&response) > self.longest {
                (request, response) = (None, None);
            }
            let parts = [("request", request.is_none()), ("response", response.is_none())];
            left_out.extend(parts.into_iter().filter_map(|(part, is_out)| is_out.then_some(part)));
            // A request without its reply is read too.
            response = response.or_else(|| request.is_some().then(|| RawValue::NULL.to_owned()));
        }
        let done = serde_json::to_string(&self.done(taken, record, left_out)).unwrap_or_default();
        let toolrein = self.redacted(&done).unwrap_or_else(|| RawValue::NULL.to_owned());
        let line = Line { id: record.conversation.as_deref(), toolrein, request, response };
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// The reply in one piece: a stream splits values, and no rule would find the parts.
    fn reply(&self, taken: &Taken) -> Option<Box<RawValue>> {
        let whole = Bytes::copy_from_slice(taken.reply.as_ref()?.whole()?);
        let reply = taken.dialect.reply_items(&whole);
        if reply.items.is_empty() {
            return self.kept(&whole);
        }
        self.kept(&taken.dialect.whole_reply(&reply))
    }

    /// A JSON text on one line, redacted; `None` where it is no JSON.
    fn kept(&self, json: &[u8]) -> Option<Box<RawValue>> {
        // Ends of lines occur between tokens alone.
        let line: Vec<u8> =
            json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        self.redacted(std::str::from_utf8(&line).ok()?)
    }

    fn redacted(&self, json: &str) -> Option<Box<RawValue>> {
        // First checks whether it is JSON: free text would be redacted as one string.
        let whole = RawValue::from_string(json.trim().to_owned()).ok()?;
        match self.redactor.redact(whole.get(), &self.key) {
            Some(redacted) => RawValue::from_string(redacted).ok(),
            None => Some(whole),
        }
    }

    fn done<'a>(&self, taken: &'a Taken, record: &'a RequestRecord, left_out: Vec<&'static str>) -> Done<'a> {
        let treatment = &taken.treatment;
        let hidden = treatment.hidden.iter().filter(|_| self.bodies).filter_map(|(choice, exchange)| {
            let items = taken.dialect.hidden_items(exchange);
            let items = format!("[{}]", String::from_utf8_lossy(&items).replace(['\n', '\r'], " "));
            Some(Hidden { choice: *choice, items: RawValue::from_string(items).ok()? })
        });
        let notices = treatment.notices.iter().filter(|_| self.bodies);
        let refusal = treatment.refusal.as_ref().map(|refusal| Refused {
            policy: refusal.policy,
            code: refusal.code,
            message: self.text(&refusal.message),
        });
        Done {
            time: time(taken.arrived_ms),
            ms: u64::try_from(record.times.total.as_millis()).unwrap_or(u64::MAX),
            request_id: &record.request_id,
            conversation: record.conversation.as_deref(),
            model: record.model.as_deref(),
            profile: record.profile.as_deref(),
            mode: record.mode,
            path: &record.path,
            status: record.status,
            error: record.error,
            streamed: record.streamed,
            client_gone: record.client_gone,
            repeated: record.repeated,
            actions: record.actions.iter().map(acted).collect(),
            calls: record.judged.iter().map(|call| self.call(call)).collect(),
            hidden: hidden.collect(),
            notices: notices.map(|(policy, text)| Notice { policy, text }).collect(),
            refusal,
            limits: record.usage_of_limits.iter().map(limit).collect(),
            approvals: record
                .approvals
                .iter()
                .map(|approval| Approval { tool: &approval.tool, outcome: approval.outcome.as_str() })
                .collect(),
            reasks: record.reasks,
            upstream_requests: record.upstream_requests,
            fallbacks: record.fallbacks.iter().map(|fallback| fallback.as_str()).collect(),
            tokens: billed(&record.tokens),
            tokens_saved: record.tokens.saved,
            left_out,
        }
    }

    fn call<'a>(&self, call: &'a JudgedCall) -> Call<'a> {
        let objection = |objection: &'a PolicyDecision| Objected {
            policy: objection.policy,
            reason: objection.reason,
            message: objection.message.as_deref().and_then(|text| self.text(text)),
            numbers: objection.numbers.iter().copied().collect(),
        };
        let (objections, acts): (Vec<_>, Vec<_>) =
            call.decisions.iter().partition(|decision| decision.is_objection);
        let acts = acts.into_iter().map(|act| Acted { policy: act.policy, action: act.reason, count: 1 });
        Call {
            tool: &call.tool,
            id: &call.id,
            verdict: call.verdict.as_str(),
            unjudged: call.unjudged,
            objections: objections.into_iter().map(objection).collect(),
            acts: acts.collect(),
            new_arguments: call.new_arguments.as_deref().and_then(|text| self.text(text)),
        }
    }

    /// A text that may quote what was said.
    fn text<'a>(&self, text: &'a str) -> Option<&'a str> {
        Some(text).filter(|_| self.bodies)
    }
}

fn acted(action: &Action) -> Acted<'_> {
    Acted { policy: action.policy, action: &action.action, count: action.count }
}

fn limit(limit: &LimitUse) -> Limit<'_> {
    Limit { policy: limit.policy, tool: &limit.tool, used: limit.used, limit: limit.limit }
}

fn billed(tokens: &Tokens) -> Billed {
    let Tokens { prompt, cached, completion, reasoning, .. } = *tokens;
    Billed { input: prompt, cached, output: completion, reasoning }
}

fn time(ms: u64) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_millis(at).to_string()
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::super::ReplyCopy;
    use super::*;
    use crate::telemetry::cases::{assert_expected, complete};
    use dialects::CHAT;
    use engine::treatment::Treatment;
    use model::plan::Refusal;
    use std::sync::Arc;

    const SECRET: &str = "ann@example.org";

    fn lines(bodies: bool) -> Lines {
        let redactor = Redactor::new(&["email".to_owned()], &BTreeMap::default()).unwrap();
        Lines { redactor, key: HashKey::fixed(7), bodies, longest: 1 << 20 }
    }

    fn taken() -> Taken {
        let body = format!(
            "{{\"model\":\"gpt-4o\",\n\"messages\":[{{\"role\":\"user\",\"content\":\"Write to {SECRET}.\"}}]}}"
        );
        let mut reply = ReplyCopy::new(Arc::default());
        reply.add(format!("{{\"choices\":[],\"note\":\"{SECRET}\"}}").as_bytes());
        let hidden = format!("{{\"role\":\"tool\",\"tool_call_id\":\"c\",\n\"content\":\"{SECRET}\"}}");
        let treatment = Treatment {
            hidden: vec![(0, hidden.into())],
            notices: vec![("budget", format!("Half of it is used, {SECRET}."))],
            refusal: Some(Refusal {
                policy: "budget",
                code: "budget_exhausted",
                message: format!("No more for {SECRET}."),
                reason: None,
            }),
        };
        let reply = Some(reply);
        Taken { dialect: CHAT, body: body.into(), reply, treatment, arrived_ms: 1_700_000_000_123 }
    }

    #[test]
    fn the_line_of_a_record_with_everything_in_it_is_as_expected() {
        let mut record = complete();
        record.judged.retain(|call| call.decisions.len() < 2);
        let written = |bodies| String::from_utf8(lines(bodies).line(&taken(), &record)).unwrap();
        let line = written(true);
        assert!(!line.contains(SECRET) && line.matches("[EMAIL_").count() > 5, "{line}");
        assert_expected("recorder.json", &line);
        assert_expected("recorder_without_bodies.json", &written(false));
    }
}
