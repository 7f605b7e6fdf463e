//! The request record's entries: what is new in the plan, the outcome of calls, what was billed. Writes plain data that
//! no decision here uses.

use super::Core;
use crate::judging::{Judged, Judging, RewordedCall};
use crate::price::cost_of;
use dialects::reply::Unjudged;
use dialects::usage::Usage as Billed;
use model::message::Role;
use model::outcome::{NothingElse, has_failed, is_empty};
use model::plan::decision::Decision;
use model::plan::texts::{added_tokens, removed_tokens};
use model::plan::{CALLS_OF_DAY, Change, Edit, Finding, OF_DAY, Plan, Usage};
use model::record::{
    Action, JudgedCall, LimitUse, NewResult, NewText, On, PolicyDecision, PrefixBreak, ReRequest,
    ResultOutcome, Verdict,
};
use model::tokens::{Estimate, MESSAGE_OVERHEAD};
use model::{ToolResult, Transcript, View};
use std::sync::Arc;
use std::time::Duration;

/// The policy's name under which fallbacks are recorded.
pub(super) const TOOLS_UNSUPPORTED: &str = "tools_unsupported";
/// The policy's name under which repaired histories are recorded.
pub(super) const BROKEN_HISTORY: &str = "broken_history";

/// Why the model was asked again.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReaskCause {
    /// The policy that decided on the last call before it.
    pub(super) policy: &'static str,
    /// The tokens that had been billed before it.
    pub(super) billed_before: u64,
}

impl ReaskCause {
    /// The cause of asking again after what was judged so far, for which `billed` tokens were billed.
    pub(super) fn of(judging: &Judging, billed: u64) -> Option<Self> {
        let policy = judging.record.iter().rev().find_map(|judged| match &judged.decision {
            Decision::Block { policy, .. } => Some(*policy),
            Decision::Answer { .. } | Decision::Clarify { .. } => {
                judged.acts.first().map(|(policy, _)| *policy)
            }
            _ => None,
        })?;
        Some(Self { policy, billed_before: billed })
    }
}

/// A judged call as it is recorded.
pub(super) fn noted(judged: &Judged) -> JudgedCall {
    JudgedCall {
        tool: judged.tool.clone(),
        id: judged.id.clone(),
        verdict: verdict_of(&judged.decision),
        unjudged: judged.unjudged,
        decisions: decisions_on(judged),
        is_spoken: judged.decision.is_hidden(),
        new_arguments: match &judged.decision {
            Decision::Rewrite { arguments } => Some(arguments.clone()),
            _ => None,
        },
    }
}

/// The verdict that a decision is recorded as.
fn verdict_of(decision: &Decision) -> Verdict {
    match decision {
        Decision::Release => Verdict::Allow,
        Decision::Rewrite { .. } => Verdict::Modify,
        Decision::Answer { .. } | Decision::Clarify { .. } => Verdict::Answer,
        Decision::Block { .. } | Decision::Drop => Verdict::Block,
        Decision::Ask { .. } | Decision::Hold { .. } => Verdict::Ask,
    }
}

/// The estimated tokens of the system messages.
fn system_tokens(transcript: &Transcript) -> u64 {
    let system = transcript.views().filter(|view| view.message.role == Role::System);
    // Most conversations of a program begin with the same text, whose count is kept in the memo.
    let tokens =
        |view: View<'_>| view.message.content.texts().map(|text| view.tokens_of(text)).sum::<Estimate>();
    system.map(|view| MESSAGE_OVERHEAD + tokens(view)).sum::<Estimate>().tokens()
}

fn new_text(reworded: &RewordedCall) -> NewText {
    let RewordedCall { tool, policy, before, after } = reworded.clone();
    NewText { policy, tool, before, after }
}

fn new_result(result: &ToolResult<'_>) -> NewResult {
    NewResult {
        tool: result.tool().to_owned(),
        bytes: result.view.text_bytes() as u64,
        tokens: result.view.about_tokens().tokens(),
        took: result.took_ms.map(Duration::from_millis),
        outcome: outcome_of(&result.view),
    }
}

/// What the tool gave, without what an operator's settings add to it.
fn outcome_of(view: &View<'_>) -> ResultOutcome {
    if has_failed(view) {
        return ResultOutcome::Failed;
    }
    if is_empty(view, &NothingElse) { ResultOutcome::Empty } else { ResultOutcome::Useful }
}

/// What policies did to a call: their objections, or other actions.
fn decisions_on(judged: &Judged) -> Vec<PolicyDecision> {
    let objections = judged.objections.iter().map(|(policy, reason)| PolicyDecision {
        policy,
        reason: reason.kind.as_str(),
        is_objection: true,
        message: Some(reason.message.clone()),
        numbers: reason.numbers.clone(),
    });
    let acts = judged.acts.iter();
    let acts = acts.map(|(policy, reason)| PolicyDecision { policy, reason, ..PolicyDecision::default() });
    objections.chain(acts).collect()
}

/// The metric's label.
pub(super) fn label(why: Unjudged) -> &'static str {
    match why {
        Unjudged::EventTooLong => "event_too_long",
        Unjudged::HeldTooMuch => "held_too_much",
        Unjudged::ReplyTooLong => "reply_too_long",
        Unjudged::NotJson => "not_json",
        Unjudged::Ambiguous => "ambiguous",
        Unjudged::Unanswerable => "unanswerable",
    }
}

/// Notes the store's facts: whether the request is a repetition, how many hidden exchanges are lost, and whether
/// those put back earlier are put back again.
pub(super) fn note_known(core: &mut Core, repeated: bool, lost: u32, keeps_exchanges: bool) {
    let record = &mut core.record;
    record.repeated = repeated;
    record.lost_hidden_exchanges = lost;
    // Noted already for a lost summary.
    let is_noted = record.prefix_breaks.contains(&PrefixBreak::StateStore);
    let is_broken = lost > 0 || !keeps_exchanges;
    record.prefix_breaks.extend((is_broken && !is_noted).then_some(PrefixBreak::StateStore));
}

/// Notes what is new since the last reply.
pub(super) fn note_new(core: &mut Core, transcript: &Transcript, plan: &Plan) {
    let new_from = core.new_from;
    note_plan(core, plan, new_from);
    let record = &mut core.record;
    let new_cleared = || plan.cleared().filter(|edit| edit.decided >= new_from);
    let is_hidden = |edit: &Edit| matches!(edit.change, Change::Hide { .. });
    let breaks = [
        (new_cleared().any(|edit| !is_hidden(edit)), PrefixBreak::Compact),
        (new_cleared().any(is_hidden), PrefixBreak::ShownOnce),
        (plan.dropped.iter().any(|dropped| dropped.decided >= new_from), PrefixBreak::History),
    ];
    record.prefix_breaks.extend(breaks.into_iter().filter_map(|(is_new, cause)| is_new.then_some(cause)));
    for (_, finding) in plan.findings().filter(|(message, _)| *message >= new_from) {
        if let Finding::ReRequest { tool } = finding {
            record.re_requests.push(ReRequest { tool: tool.to_string(), on: On::Request });
        }
    }
    record.declared_tools = Arc::clone(transcript.tool_names());
    record.system_tokens = transcript.last_assistant().is_none().then(|| system_tokens(transcript));
    record.results.extend(transcript.results_from(new_from).map(|result| new_result(&result)));
}

/// Notes the plan for the request; of the history only what is new, from the message `new_from` on.
fn note_plan(core: &mut Core, plan: &Plan, new_from: usize) {
    note_sizes(core, plan);
    let record = &mut core.record;
    for (policy, _) in &plan.hidden {
        record.act(On::Request, policy, "hidden", 1);
    }
    record.definition_tokens = plan.definition_tokens;
    for dropped in plan.dropped.iter().filter(|dropped| dropped.decided >= new_from) {
        record.act(On::Request, dropped.policy, "turns_dropped", 1);
    }
    for edit in plan.effective_edits().filter(|edit| edit.decided >= new_from) {
        record.act(On::Request, edit.policy, edit.change.word(), 1);
    }
}

/// Notes what the whole plan removes from the request and adds to it.
pub(super) fn note_sizes(core: &mut Core, plan: &Plan) {
    let record = &mut core.record;
    record.policy_tokens.clear();
    for (policy, tokens) in removed_tokens(plan) {
        record.tokens_of(policy).removed = tokens;
    }
    for (policy, tokens) in added_tokens(plan) {
        record.tokens_of(policy).added = tokens;
    }
    record.tokens.saved = record.policy_tokens.iter().map(|policy| policy.removed).sum();
}

/// Notes what asking again has cost so far: of the tokens billed in all, those after each of the `causes`.
pub(super) fn note_reasked(core: &mut Core, causes: &[ReaskCause], billed: u64) {
    for cause in causes {
        core.record.tokens_of(cause.policy).reasked = 0;
    }
    let ends = causes.iter().skip(1).map(|next| next.billed_before).chain([billed]);
    for (cause, end) in causes.iter().zip(ends) {
        core.record.tokens_of(cause.policy).reasked += end.saturating_sub(cause.billed_before);
    }
}

/// Notes the outcome of the reply's calls from the `noted`-th on, and the remaining limits.
pub(super) fn note_judged(core: &mut Core, judging: &Judging, noted: &mut usize, now_ms: u64) {
    for judged in &judging.record[*noted..] {
        note_call(core, judged);
    }
    *noted = judging.record.len();
    let known = core.record.new_texts.len();
    core.record.new_texts.extend(judging.reworded[known..].iter().map(new_text));
    let limits = judging.usage(now_ms).into_iter().map(|(policy, usage)| LimitUse {
        policy: Some(policy),
        is_used: is_used(core, &usage, &judging.record),
        of_caller: is_of_caller(core, &usage),
        tool: usage.tool,
        used: usage.used,
        limit: usage.limit,
    });
    core.record.usage_of_limits = limits.collect();
}

/// Whether the request counts for a limit. Other conversations of the caller may have used a quota, or its calls of a
/// day: these the request shares only if one of the calls `made` counts.
fn is_used(core: &Core, usage: &Usage, made: &[Judged]) -> bool {
    let policies = core.policies();
    if usage.tool == CALLS_OF_DAY {
        return !made.is_empty();
    }
    let Some(quota) = policies.counted().iter().position(|counted| *counted.name == usage.tool) else {
        return true;
    };
    made.iter().any(|judged| policies.counts_for(&judged.tool) == Some(quota))
}

/// Whether a limit is one of the caller, over all its conversations.
fn is_of_caller(core: &Core, usage: &Usage) -> bool {
    usage.tool.starts_with(OF_DAY)
        || core.policies().counted().iter().any(|counted| *counted.name == usage.tool)
}

fn note_call(core: &mut Core, judged: &Judged) {
    let record = &mut core.record;
    if let Some(tool) = judged.re_request.clone() {
        record.re_requests.push(ReRequest { tool, on: On::Reply });
    }
    for Action { on, policy, action, count } in judged.actions() {
        record.act(on, policy, action, count);
    }
    record.judged.push(noted(judged));
}

/// Notes the billed tokens of all replies, and what they cost.
pub(super) fn note_usage(core: &mut Core, usages: &[Billed]) {
    let usage = usages.iter().fold(Billed::default(), |sum, usage| sum.plus(usage));
    let price = core.record.model.as_ref().and_then(|model| core.shared.settings.models.price(model));
    core.record.cost = cost_of(usages, price).filter(|_| usage.billed() > 0 || usage.cost > 0);
    core.record.implausible_usage = usage.implausible;
    let tokens = &mut core.record.tokens;
    tokens.prompt = usage.prompt;
    tokens.cached = usage.cached;
    tokens.cache_written = usage.cache_written;
    tokens.completion = usage.completion;
    tokens.reasoning = usage.reasoning;
}

/// Notes that something passed unjudged.
pub(super) fn note_unjudged(core: &mut Core, why: &'static str) {
    if !core.record.unjudged.contains(&why) {
        core.record.unjudged.push(why);
    }
}
