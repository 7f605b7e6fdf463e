//! The steps of a request for its trace: an output of the exchange begins a step, and the input that reports its
//! result ends it. Decides nothing.

use super::handler::AppState;
use crate::telemetry::spans::{Step, StepKind, Trace};
use engine::{Admission, Effect, EffectResult, Input, Output};
use hyper::http::HeaderValue;
use model::record::RequestRecord;

/// The attribute with the outcome of a step.
const OUTCOME: &str = "toolrein.outcome";
/// The attribute with what the state store is asked.
const OPERATION: &str = "db.operation.name";

/// Begins the step that `output` asks for.
pub(super) fn begin(trace: &mut Trace, record: &RequestRecord, output: &Output, app: &AppState) {
    // Within this process a look-up takes no time.
    let is_shared = app.config.store.is_shared();
    match output {
        Output::Start(id, effect) => start(trace, id.number(), effect, is_shared),
        Output::Cancel(id) => finish(trace.about(id.number()), "withdrawn"),
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
        _ => {}
    }
}

/// Begins the step of an effect. `is_shared`: the state store is in another process.
fn start(trace: &mut Trace, id: u32, effect: &Effect, is_shared: bool) {
    let (kind, attribute) = match effect {
        Effect::Admit { .. } => (StepKind::Admission, None),
        // Within this process a look-up takes no time.
        Effect::LookUp(_) | Effect::Claim { .. } | Effect::Reserve(_) if !is_shared => return,
        Effect::LookUp(_) => (StepKind::Store, Some((OPERATION, "look_up".to_owned()))),
        Effect::Claim { .. } => (StepKind::Store, Some((OPERATION, "claim".to_owned()))),
        Effect::Reserve(_) => (StepKind::Store, Some((OPERATION, "reserve".to_owned()))),
        Effect::Summarise { .. } => (StepKind::Summary, None),
        Effect::Approve(request) => {
            (StepKind::Approval, Some(("gen_ai.tool.name", request.call.tool.clone())))
        }
        Effect::AskModel(asked) => {
            (StepKind::Question, Some(("gen_ai.request.model", asked.terms.model.clone())))
        }
        Effect::Sleep { .. } => (StepKind::Wait, None),
        // No tool is run yet, so no time passes.
        Effect::CallTool { .. } => return,
    };
    if let Some((step, (key, value))) = trace.begin(kind, Some(id)).zip(attribute) {
        step.note(key, value);
    }
}

/// Ends the step for which `input` is the report.
pub(super) fn end(trace: &mut Trace, input: &Input) {
    let attempt = |trace: &'_ mut Trace, with: &dyn Fn(&mut Step)| {
        trace.running(StepKind::is_attempt).into_iter().for_each(with);
    };
    match input {
        Input::Finished(id, result) => finish_effect(trace.about(id.number()), result),
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
        Input::UpstreamId(_) | Input::Bytes(_) | Input::Undecodable | Input::Tick | Input::NoMemory => {}
    }
}

/// The `traceparent` of the newest upstream request, where it is to continue the trace.
pub(super) fn traceparent(trace: Option<&Trace>) -> Option<HeaderValue> {
    HeaderValue::from_str(&trace?.traceparent()?).ok()
}

/// Ends the step of an effect with this result.
fn finish_effect(step: Option<&mut Step>, result: &EffectResult) {
    let outcome = match result {
        EffectResult::Admitted(Admission::Free) => "free",
        EffectResult::Admitted(Admission::Waited) => "waited",
        EffectResult::Admitted(Admission::Busy) => "busy",
        EffectResult::LookedUp(_) | EffectResult::Claimed(_) | EffectResult::Reserved(_) => {
            return step.into_iter().for_each(Step::end);
        }
        EffectResult::Summarised(summary) => {
            if summary.is_some() {
                "made"
            } else {
                "none"
            }
        }
        EffectResult::Decided(decided) => decided.decision.as_str(),
        EffectResult::Slept(true) => "approved",
        EffectResult::Slept(false) => "stopped",
        EffectResult::Executed(_) => "executed",
        EffectResult::Answered(answer) => {
            if answer.is_some() {
                "answered"
            } else {
                "unanswered"
            }
        }
    };
    finish(step, outcome);
}

fn finish(step: Option<&mut Step>, outcome: &'static str) {
    if let Some(step) = step {
        step.note(OUTCOME, outcome).end();
    }
}
