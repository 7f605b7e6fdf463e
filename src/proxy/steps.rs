//! The steps of a request for its trace: an output of the exchange begins a step, and the input that reports its
//! result ends it. Decides nothing.

use super::handler::AppState;
use crate::telemetry::spans::{Step, StepKind, Trace};
use engine::{Admission, Input, Output};
use hyper::http::HeaderValue;
use model::plan::approval::{ApprovalDecision, Decided};
use model::record::RequestRecord;

/// The attribute with the outcome of a step.
const OUTCOME: &str = "toolrein.outcome";

/// Begins the step that `output` asks for.
pub(super) fn begin(trace: &mut Trace, record: &RequestRecord, output: &Output, app: &AppState) {
    // Within this process a look-up takes no time.
    let is_shared = app.config.store.is_shared();
    match output {
        Output::Admit { .. } => {
            trace.begin(StepKind::Admission, None);
        }
        Output::FindHistory(_) => store(trace, is_shared, "history"),
        Output::LookUp(_) => store(trace, is_shared, "look_up"),
        Output::Claim { .. } => store(trace, is_shared, "claim"),
        Output::Summarise { .. } => {
            trace.begin(StepKind::Summary, None);
        }
        Output::Send(outgoing) => {
            let all = record.fallbacks.len();
            let new = &record.fallbacks[all - trace.new_fallbacks(all)..];
            let kind = match &outgoing.variant.asking {
                _ if !new.is_empty() => StepKind::Fallback,
                Some(asking) if asking.land => StepKind::FinalAnswer,
                Some(_) => StepKind::Reask,
                None => StepKind::Upstream,
            };
            let names: Vec<&str> = new.iter().map(|fallback| fallback.as_str()).collect();
            if let Some(step) = trace.begin(kind, None) {
                step.note("http.request.method", "POST")
                    .note("toolrein.upstream", app.upstream.name().to_owned());
                if !names.is_empty() {
                    step.note("toolrein.fallback", names.join(", "));
                }
            }
        }
        Output::AskApproval(request) => {
            let tool = request.call.tool.clone();
            call(trace, StepKind::Approval, request.call.id, "gen_ai.tool.name", tool);
        }
        Output::AskModel(asked) => {
            let model = asked.terms.model.clone();
            call(trace, StepKind::Question, asked.id, "gen_ai.request.model", model);
        }
        Output::Wait { id, .. } => {
            trace.begin(StepKind::Wait, Some(*id));
        }
        Output::WithdrawApproval(id) => finish(trace.about(*id), "withdrawn"),
        _ => {}
    }
}

fn store(trace: &mut Trace, is_shared: bool, operation: &'static str) {
    if is_shared && let Some(step) = trace.begin(StepKind::Store, None) {
        step.note("db.operation.name", operation);
    }
}

/// Begins a step about the call of this number.
fn call(trace: &mut Trace, kind: StepKind, id: u32, key: &'static str, value: impl Into<String>) {
    if let Some(step) = trace.begin(kind, Some(id)) {
        step.note(key, value.into());
    }
}

/// Ends the step for which `input` is the report.
pub(super) fn end(trace: &mut Trace, input: &Input) {
    let attempt = |trace: &'_ mut Trace, with: &dyn Fn(&mut Step)| {
        trace.running(StepKind::is_attempt).into_iter().for_each(with);
    };
    let running = |kind| move |other: StepKind| other == kind;
    match input {
        Input::Admitted(admission) => {
            let outcome = match admission {
                Admission::Free => "free",
                Admission::Waited => "waited",
                Admission::Busy => "busy",
            };
            finish(trace.running(running(StepKind::Admission)), outcome);
        }
        Input::History(_) | Input::Facts(_) | Input::Claimed(_) => {
            trace.running(running(StepKind::Store)).into_iter().for_each(Step::end);
        }
        Input::Summarised(summary) => {
            let outcome = if summary.is_some() { "made" } else { "none" };
            finish(trace.running(running(StepKind::Summary)), outcome);
        }
        Input::Resent => attempt(trace, &|step| {
            step.note("http.request.resend_count", 1);
        }),
        // Only a success is read as a stream.
        Input::StreamBegins { .. } => attempt(trace, &|step| {
            step.note("http.response.status_code", 200);
        }),
        Input::NotSent(error) | Input::Cut(error, _) => attempt(trace, &|step| step.fail(error.code())),
        Input::Reply(reply) => attempt(trace, &|step| {
            step.note("http.response.status_code", i64::from(reply.status));
            if reply.status >= 400 { step.fail(reply.status.to_string()) } else { step.end() }
        }),
        Input::End => attempt(trace, &Step::end),
        Input::Decided(id, decided) => finish(trace.about(*id), outcome(decided)),
        Input::Answered(id, answer) => {
            finish(trace.about(*id), if answer.is_some() { "answered" } else { "unanswered" });
        }
        Input::Bytes(_) | Input::Silence | Input::HeadDue | Input::NoMemory => {}
    }
}

/// The `traceparent` of the newest upstream request, where it is to continue the trace.
pub(super) fn traceparent(trace: Option<&Trace>) -> Option<HeaderValue> {
    HeaderValue::from_str(&trace?.traceparent()?).ok()
}

fn finish(step: Option<&mut Step>, outcome: &'static str) {
    if let Some(step) = step {
        step.note(OUTCOME, outcome).end();
    }
}

fn outcome(decided: &Decided) -> &'static str {
    match decided.decision {
        ApprovalDecision::Approved => "approved",
        ApprovalDecision::Declined => "declined",
        ApprovalDecision::Expired => "expired",
        ApprovalDecision::Stopped => "stopped",
        ApprovalDecision::Unasked => "unasked",
    }
}
