//! The line of one request: `id`, `toolrein` (what was done, for the most part a projection of the request record), `request` and
//! `response`. Redacts each once, and leaves out what is not to be kept or cannot be written as JSON.

use super::Taken;
use super::credentials::without_credentials;
use super::history::Histories;
use crate::telemetry::projection::Inclusion::{Always, IfAny, IfKnown};
use crate::telemetry::projection::MemberValue::{Flag, Number, Text};
use crate::telemetry::projection::{
    Column, Projection, Redactable, TextBounds, calls_of, whole_millis, word,
};
use bytes::Bytes;
use model::identity::HashKey;
use model::record::{JudgedCall, RequestRecord};
use policies::redact::{LEAST_NUMBER, Redactor};
use serde::Serialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

/// How lines are made.
pub(super) struct Lines {
    pub redactor: Redactor,
    pub key: HashKey,
    /// Requests, replies and texts are written.
    pub bodies: bool,
    /// The longest line with bodies, in bytes.
    pub longest: u64,
    pub histories: Histories,
}

/// What is not known.
const NULL: &[u8] = b"null";

/// What was done to the request.
#[derive(Serialize)]
struct Done<'a> {
    /// When the request came.
    time: String,
    #[serde(flatten)]
    treated: Projection<'a, RequestRecord>,
    /// Calls that the client did not see, with the results that the model read: items of the history.
    hidden: Vec<Hidden>,
    notices: Vec<Notice<'a>>,
    refusal: Option<Refused<'a>>,
    #[serde(flatten)]
    counted: Projection<'a, RequestRecord>,
    tokens: Projection<'a, RequestRecord>,
    tokens_saved: u64,
    /// What should be here and is not: `request`, `response`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<&'static str>,
}

/// What of [`Done`] may hold values that are to be redacted: what is not of toolrein's own.
#[derive(Serialize)]
struct FromOutside<'d, 'a> {
    #[serde(flatten)]
    treated: Redactable<'d, 'a, RequestRecord>,
    hidden: &'d [Hidden],
    notices: &'d [Notice<'a>],
    refusal: Option<&'d Refused<'a>>,
    #[serde(flatten)]
    counted: Redactable<'d, 'a, RequestRecord>,
    /// Under a key that does not look like the name of a secret.
    #[serde(rename = "numbers")]
    tokens: Redactable<'d, 'a, RequestRecord>,
}

/// Without bodies, no text is written that may quote them.
const WITHOUT_QUOTES: TextBounds = TextBounds { has_quotes: false, ..TextBounds::WHOLE };

/// What became of the request and of its calls.
const TREATED: &[Column<RequestRecord>] = &[
    ("ms", |record, _| Number(whole_millis(record.times.total)), Always),
    ("request_id", |record, bounds| Text(bounds.text(&record.request_id)), Always),
    ("conversation", |record, bounds| bounds.optional(record.conversation.as_deref()), Always),
    ("model", |record, bounds| bounds.optional(record.model.as_deref()), Always),
    ("profile", |record, bounds| bounds.optional(record.profile.as_deref()), Always),
    ("mode", |record, _| word(record.mode), Always),
    ("path", |record, bounds| Text(bounds.text(&record.path)), Always),
    ("endpoint", |record, _| word(record.endpoint.as_str()), Always),
    ("status", |record, _| Number(record.status.into()), Always),
    ("error", |record, _| word(record.error), Always),
    ("streamed", |record, _| Flag(record.streamed), Always),
    ("client_gone", |record, _| Flag(record.client_gone), Always),
    ("repeated", |record, _| Flag(record.repeated), Always),
    ("actions", |record, bounds| bounds.actions(record.actions.iter()), Always),
    ("calls", |record, bounds| bounds.calls(calls_of(record), CALL), Always),
];

/// What was used and sent for the request.
const COUNTED: &[Column<RequestRecord>] = &[
    ("limits", |record, bounds| bounds.limits(record), Always),
    ("approvals", |record, bounds| bounds.approvals(record), Always),
    ("reasks", |record, _| Number(record.reasks.into()), Always),
    ("upstream_requests", |record, _| Number(record.upstream_requests.into()), Always),
    (
        "fallbacks",
        |record, bounds| bounds.texts(record.fallbacks.iter().map(|retry| retry.as_str().into())),
        Always,
    ),
];

/// The tokens that were billed.
const TOKENS: &[Column<RequestRecord>] = &[
    ("input", |record, _| Number(record.tokens.prompt), Always),
    ("cached", |record, _| Number(record.tokens.cached), Always),
    ("output", |record, _| Number(record.tokens.completion), Always),
    ("reasoning", |record, _| Number(record.tokens.reasoning), Always),
];

/// A call of the model, with every decision on it.
const CALL: &[Column<JudgedCall>] = &[
    ("tool", |call, bounds| Text(bounds.name(&call.judged.tool)), Always),
    ("id", |call, bounds| Text(bounds.id(&call.judged.id)), Always),
    ("verdict", |call, _| word(call.judged.verdict.as_str()), Always),
    ("unjudged", |call, _| Flag(call.judged.unjudged), IfAny),
    ("objections", |call, bounds| bounds.objections(call), Always),
    ("acts", |call, bounds| bounds.acts(call), Always),
    (
        "new_arguments",
        |call, bounds| bounds.optional(bounds.quoted(call.judged.new_arguments.as_deref())),
        IfKnown,
    ),
];

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

impl<'a> Done<'a> {
    fn redactable(&self) -> FromOutside<'_, 'a> {
        let Self { treated, hidden, notices, refusal, counted, tokens, .. } = self;
        let redactable = |projection| Redactable { projection, least_number: LEAST_NUMBER };
        let (treated, counted, tokens) = (redactable(treated), redactable(counted), redactable(tokens));
        FromOutside { treated, hidden, notices, refusal: refusal.as_ref(), counted, tokens }
    }
}

impl Lines {
    /// The line of one request, its end included. Its keys are stable; new ones may be added.
    pub(super) fn line(&self, taken: &Taken, record: &RequestRecord) -> Vec<u8> {
        let (mut request, mut response, mut left_out) = (None, None, Vec::new());
        if self.bodies {
            request = self.request(taken, record);
            response = self.reply(taken);
            let size = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, |part| part.len() as u64);
            if size(&request) + size(&response) > self.longest {
                (request, response) = (None, None);
            }
            let parts = [("request", request.is_none()), ("response", response.is_none())];
            left_out.extend(parts.into_iter().filter_map(|(part, is_out)| is_out.then_some(part)));
            // A request without its reply is read too: it is not known.
            response = response.or_else(|| request.is_some().then(|| NULL.to_vec()));
        }
        let done = self.treatment(&self.done(taken, record, left_out)).unwrap_or_else(|| NULL.to_vec());
        let id = record.conversation.as_deref().and_then(|id| serde_json::to_vec(id).ok());
        let parts = [("id", id), ("toolrein", Some(done)), ("request", request), ("response", response)];
        let parts = parts.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let length: usize = parts.clone().map(|(key, value)| key.len() + value.len() + 4).sum();
        let mut line = Vec::with_capacity(length + 2);
        for (key, value) in parts {
            line.extend_from_slice(if line.is_empty() { b"{\"" } else { b",\"" });
            line.extend_from_slice(key.as_bytes());
            line.extend_from_slice(b"\":");
            line.extend_from_slice(value);
        }
        line.extend_from_slice(b"}\n");
        line
    }

    /// The body of the request.
    fn request(&self, taken: &Taken, record: &RequestRecord) -> Option<Vec<u8>> {
        let Taken { body, layout, .. } = taken;
        let redaction = (&self.redactor, &self.key);
        let known = self.histories.redacted(redaction, body, layout, record.conversation.as_deref());
        known.or_else(|| self.kept(&without_credentials(body, &layout.tools, 0..body.len())))
    }

    /// The reply in one piece: a stream splits values, and no rule would find the parts.
    fn reply(&self, taken: &Taken) -> Option<Vec<u8>> {
        let whole = Bytes::copy_from_slice(taken.reply.as_ref()?.whole()?);
        let reply = taken.dialect.reply_items(&whole);
        if reply.items.is_empty() {
            return self.kept(&whole);
        }
        self.kept(&taken.dialect.whole_reply(&reply))
    }

    /// What was done, redacted. Nothing is where nothing from outside is a value, or calls what follows one.
    fn treatment(&self, done: &Done<'_>) -> Option<Vec<u8>> {
        let written = serde_json::to_string(done).ok()?;
        let is_clean = || {
            let from_outside = serde_json::to_string(&done.redactable()).ok()?;
            let found = self.redactor.replacements(&from_outside, &self.key);
            Some(found.ranges.is_empty() && found.is_closed)
        };
        // A pattern of the operator may look at anything.
        match self.redactor.is_local() && is_clean() == Some(true) {
            true => Some(written.into_bytes()),
            false => self.redacted(&written),
        }
    }

    /// A JSON text on one line, redacted; `None` where it is no JSON.
    fn kept(&self, json: &[u8]) -> Option<Vec<u8>> {
        let line = on_one_line(json);
        let line = str::from_utf8(&line).ok()?.trim();
        // Free text would be redacted as one string.
        is_json(line).then(|| self.redacted(line)).flatten()
    }

    /// `json`, redacted; `None` where that is no JSON any more.
    fn redacted(&self, json: &str) -> Option<Vec<u8>> {
        match self.redactor.redact(json, &self.key) {
            Some(redacted) => is_json(&redacted).then(|| redacted.into_bytes()),
            None => Some(json.as_bytes().to_vec()),
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
        let bounds = if self.bodies { &TextBounds::WHOLE } else { &WITHOUT_QUOTES };
        let project = |columns| Projection::<RequestRecord>::new(record, columns, bounds);
        Done {
            time: time(taken.arrived_ms),
            treated: project(TREATED),
            hidden: hidden.collect(),
            notices: notices.map(|(policy, text)| Notice { policy, text }).collect(),
            refusal,
            counted: project(COUNTED),
            tokens: project(TOKENS),
            tokens_saved: record.tokens.saved,
            left_out,
        }
    }

    /// A text that may quote what was said.
    fn text<'a>(&self, text: &'a str) -> Option<&'a str> {
        Some(text).filter(|_| self.bodies)
    }
}

/// A JSON text with blanks in place of ends of lines, which occur between tokens alone.
pub(super) fn on_one_line(json: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'\n', b'\r', json).is_none() {
        return Cow::Borrowed(json);
    }
    json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

/// Whether a text is JSON.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

fn time(ms: u64) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{Layout, ReplyCopy};
    use super::*;
    use crate::telemetry::cases::{assert_expected, complete};
    use dialects::CHAT;
    use engine::treatment::Treatment;
    use model::plan::Refusal;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const SECRET: &str = "ann@example.org";

    fn lines(bodies: bool) -> Lines {
        let redactor = Redactor::new(&["email".to_owned()], &BTreeMap::default()).unwrap();
        Lines { redactor, key: HashKey::fixed(7), bodies, longest: 1 << 20, histories: Histories::new() }
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
        let layout = Layout::of(&CHAT.read(body.as_bytes()).unwrap());
        Taken { dialect: CHAT, body: body.into(), layout, reply, treatment, arrived_ms: 1_700_000_000_123 }
    }

    /// Values from outside in members that are far from each other, and with numbers that may be values.
    #[test]
    fn what_was_done_is_redacted_as_the_whole_of_it_would_be() {
        let kinds = ["secret", "card", "iban", "email", "phone"].map(str::to_owned);
        let redactor = Redactor::new(&kinds, &BTreeMap::default()).unwrap();
        let lines = Lines { redactor, ..lines(true) };
        let taken = Taken { treatment: Treatment::default(), ..taken() };
        let values = [
            "gpt-4o",
            SECRET,
            "sk-proj-aB3dE5gH7jK9mN1pQ2rS4tU6",
            "Xq7Zp2Lm9Rt4Vw8K",
            "password",
            "password = ",
            "token: Xq7Zp2Lm9Rt4Vw8K",
            "--password",
            "mysql -u a -p",
            "curl -u a:",
            "-----BEGIN PRIVATE KEY-----",
            "MIIEvQ\n-----END PRIVATE KEY-----",
            "<password>",
            "Cookie: session=Xq7Zp2Lm9Rt4Vw8K",
            "Das Kennwort lautet Xq7Zp2Lm9Rt4Vw8K",
            "+49 151 12345678",
            "phone",
            "4111 1111 1111 1111",
            "4111111111",
        ];
        let (mut clean, mut changed) = (0, 0);
        for model in values {
            for path in values {
                for input in [9, 111_111, 4_111_111_111_111_111] {
                    let mut record = RequestRecord { mode: "enforce", ..RequestRecord::default() };
                    record.conversation = Some("85c004d4e248e1f0422318db83026f89".to_owned());
                    (record.model, record.path) = (Some(model.to_owned()), path.to_owned());
                    record.tokens.prompt = input;
                    let done = lines.done(&taken, &record, Vec::new());
                    let written = serde_json::to_string(&done).unwrap();
                    let whole = lines.redacted(&written).unwrap();
                    assert_eq!(lines.treatment(&done).unwrap(), whole, "{written}");
                    *(if whole == written.as_bytes() { &mut clean } else { &mut changed }) += 1;
                }
            }
        }
        assert!(clean > 50 && changed > 500, "{clean} {changed}");
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
