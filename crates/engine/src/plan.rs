//! The phase plan: one run of the policies over the conversation, with the state store's facts. Changes and sends nothing.

use super::account::{AccountKeys, OpenAccount};
use super::beginning::ConversationBeginning;
use super::error::ProxyError;
use super::hidden_values::hide_in;
use super::length::Length;
use super::look_up::{PendingLookUp, prompt_tokens};
use super::notes::{note_known, note_new, note_unjudged};
use super::refusals::ModelRefusals;
use super::running::Running;
use super::text_agents::{CALLS_AS_TEXT, has_calls_as_text};
use super::{Core, Effect, Now, Output, Phase, fail};
use crate::confirm::Answer;
use crate::sent::Sent;
use bytes::Bytes;
use dialects::summary::question;
use model::Transcript;
use model::account::Sums;
use model::assembled::Assembled;
use model::fact::{Answers, Writes};
use model::identity::{Domain, Hash};
use model::plan::approval::Confirmation;
use model::plan::{BatchSummaries, Finding, Plan, Refusal};
use model::record::{ApprovalRecord, Consent, Context, On, PrefixBreak, REJECTED, SummaryResult};
use model::store::SentExchanges;
use model::uses::Use;
use policies::set::Judge;
use std::sync::Arc;

/// The name under which the user's answer to a question is recorded.
const CONFIRM: &str = "confirm";

/// A planned request that waits for a summary.
pub(super) struct Summarising {
    pending: Box<PendingLookUp>,
    known: KnownFacts,
    plan: Box<Plan>,
    judge: Judge,
}

/// What the store knows of a request, and the hidden exchanges that are put back.
struct KnownFacts {
    answers: Box<Answers>,
    /// What the user may have answered.
    asked: Option<Arc<Confirmation>>,
    restored: Vec<(usize, Bytes)>,
    /// How many hidden exchanges should have been put back and are lost.
    lost: u32,
    open_account: Option<Box<OpenAccount>>,
}

/// What is known after the policies' run, besides their plan.
pub(super) struct Planned {
    /// The uses of each quota before the request.
    pub(super) spent: Vec<Vec<Use>>,
    /// An equal request came before.
    is_repeated: bool,
    /// What the user may have answered.
    asked: Option<Arc<Confirmation>>,
    pub(super) judge: Judge,
    pub(super) transcript: Box<Transcript>,
    pub(super) restored: Vec<(usize, Bytes)>,
    /// The digest of all that the model sees of the conversation.
    pub(super) context: Hash,
    /// The same without the ids of calls and results.
    pub(super) context_without_ids: Hash,
    /// What the model is known to refuse.
    pub(super) refusals: ModelRefusals,
    pub(super) model_name: String,
    pub(super) length: Length,
    /// The token for questions about calls of the reply.
    pub(super) token: Option<String>,
    /// Usage is to be requested for the stream.
    pub(super) asks_usage: bool,
    pub(super) sent: SentExchanges,
    pub(super) beginning: Option<ConversationBeginning>,
    pub(super) open_account: Option<Box<OpenAccount>>,
    answer: Option<Answer>,
}

/// The calls that a person has approved, with the key of the question's text.
pub(super) type Approved = (Hash, Arc<Confirmation>);

/// Why a request, or a message of it, is left as it is: parsers read its strings differently.
const ODD_TEXT: &str = "odd_text";

/// The tools that a question is about.
fn tools_of(question: &Confirmation) -> Vec<String> {
    question.calls.iter().map(Assembled::name).collect()
}

/// Runs the policies over the conversation with the store's facts.
pub(super) fn plan_request(
    core: &mut Core,
    mut pending: Box<PendingLookUp>,
    answers: Box<Answers>,
    now: Now,
) -> Phase {
    let (account, ahead) = (pending.account.take(), pending.ahead);
    core.count_ahead(account.as_deref(), ahead);
    let PendingLookUp { transcript, model_name, hidden, calls, approvals, lengths, .. } = &mut *pending;
    let first_sent = transcript.first_sent();
    let mut released = calls.released(&answers);
    core.store(calls.adopt(&mut released, transcript));
    let (mut restored, lost) = hidden.restored(transcript, &answers, &released);
    // The upstream has the messages that it keeps in full, so nothing is put back into them.
    restored.retain(|(message, _)| *message >= first_sent);
    let fits =
        |(at, exchange): &(usize, Bytes)| core.dialect.may_restore(&core.request, &core.body, *at, exchange);
    let newest = restored.iter().rfind(|(at, _)| Some(*at) == transcript.last_assistant());
    // Those that did not fit into earlier replies were counted when these were the newest.
    let lost = lost + u32::from(newest.is_some_and(|newest| !fits(newest)));
    restored.retain(fits);
    transcript.learn_releases(&released, now.ms);
    approvals.mark_approved(transcript, &answers);
    for (message, exchange) in &restored {
        let items = core.dialect.source(exchange);
        items.into_iter().for_each(|items| transcript.add_hidden(*message, items));
    }
    transcript.tier.clone_from(&core.tier);
    lengths.learn(transcript, &answers);
    let (answer, asked) = (&approvals.answer, approvals.asked(&answers));
    let approves =
        answer.as_ref().zip(asked.as_ref()).is_some_and(|(answer, asked)| asked.is_approved_by(&answer.text));
    let open_account =
        open_account(core, account, model_name, transcript, &answers, (now.ms, approves), ahead);
    core.asking.receive(&answers);
    let (plan, judge) = core.policies().read_with(transcript, &core.asking);
    let mut plan = Box::new(plan);
    plan.change_only_from(first_sent);
    let known = KnownFacts { answers, asked, restored, lost, open_account };
    if let Some(question) = summarise_first(core, &plan, transcript) {
        core.start(question);
        return Phase::Summary(Box::new(Summarising { pending, known, plan, judge }));
    }
    finish_plan(core, pending, known, plan, judge, now)
}

/// Goes on with the summary of the batch of results, or without one.
pub(super) fn take_summary(
    core: &mut Core,
    summarising: Summarising,
    summary: Option<&str>,
    now: Now,
) -> Phase {
    let Summarising { pending, known, mut plan, judge } = summarising;
    plan.fulfil_summary(summary);
    finish_plan(core, pending, known, plan, judge, now)
}

/// Hides values in what toolrein adds to the request.
fn hide_values(core: &mut Core, plan: &Plan, restored: &mut [(usize, Bytes)]) {
    let Some((_, values)) = plan.hidden_values() else { return };
    for (message, exchange) in restored {
        *exchange = hide_in(exchange, values, *message);
    }
    // Items that the upstream has not seen, such as a question of toolrein's own, are sent with this request.
    if let Some(upstream) = core.upstream.as_mut().filter(|upstream| !upstream.owed.is_empty()) {
        upstream.owed = hide_in(&upstream.owed, values, usize::MAX);
    }
}

/// Records the plan and goes on to send the request, or to refuse it.
fn finish_plan(
    core: &mut Core,
    pending: Box<PendingLookUp>,
    known: KnownFacts,
    mut plan: Box<Plan>,
    judge: Judge,
    now: Now,
) -> Phase {
    let KnownFacts { answers, asked, mut restored, lost, mut open_account } = known;
    let PendingLookUp {
        transcript,
        model_name,
        evidence,
        conversation,
        conversation_id,
        request: request_name,
        sent,
        beginning,
        approvals,
        ..
    } = *pending;
    core.new_from = transcript.last_assistant().map_or(0, |last| last + 1);
    if core.request.odd {
        // Parsers read its structure differently, so it is sent unchanged; the reply is still judged, or any web page
        // in a result could switch that off.
        core.record.ungoverned = Some(ODD_TEXT);
        plan.change_nothing();
        restored.clear();
    } else if core.request.has_odd_text {
        core.record.partly_ungoverned = Some(ODD_TEXT);
    }
    if has_calls_as_text(&transcript) {
        note_unjudged(core, CALLS_AS_TEXT);
    }
    core.record.context = hold_out(core, &mut plan, &transcript);
    core.record.overflow_remembered = !transcript.overflows.is_empty() && !core.is_observing();
    core.record.model = Some(model_name.clone());
    core.record.context_window = transcript.context_window;
    let put_back = if core.is_observing() { &[][..] } else { &restored };
    let now_sent = Sent { transcript: &transcript, restored: put_back };
    let (sent_exchanges, keeps_exchanges) = sent.compare(&answers, now_sent);
    let beginning = beginning.map(|beginning| beginning.known(&transcript, &answers, lost > 0));
    core.record.conversation = Some(conversation_id);
    note_known(core, answers.repeated, lost, keeps_exchanges);
    note_new(core, &transcript, &plan);
    let token = core.asks_approval().then(|| core.question_token(request_name, now));
    let (caller, remember) = (core.identity.caller, core.shared.settings.upstream.remember);
    let refusals = evidence.refusals(&answers, caller, remember, now.ms);
    let asks_usage = core.asks_usage(refusals.known());
    let mut length = Length::new(&transcript, conversation, sent.histories.whole);
    let (context, context_without_ids) = (transcript.calls.context, transcript.calls.context_without_ids);
    core.store(Writes { seen_ms: now.ms, ..std::mem::take(&mut plan.writes) });
    hide_values(core, &plan, &mut restored);
    core.plan = plan;
    if let Some(error) = refusal_of(core, &answers) {
        return fail(core, error);
    }
    pin_notices(core, &transcript, &mut open_account, &mut length);
    if let Some(open_account) = open_account.as_mut().filter(|_| core.plan.final_answer.is_some()) {
        core.store(open_account.note_final_answer(true));
    }
    let planned = Planned {
        spent: answers.spent,
        is_repeated: answers.repeated,
        asked,
        judge,
        transcript,
        restored,
        context,
        context_without_ids,
        refusals,
        model_name,
        length,
        token,
        asks_usage,
        sent: sent_exchanges,
        beginning,
        open_account,
        answer: approvals.answer,
    };
    claim_approval(core, planned)
}

/// Why the request is refused, if it is: the shared store is unavailable, or a policy refuses it.
fn refusal_of(core: &mut Core, answers: &Answers) -> Option<ProxyError> {
    let observes = core.is_observing();
    let strict = core.shared.settings.strict_store && !observes;
    if answers.away || (answers.unwritten && strict) {
        core.record.without_store = Some(strict);
        if strict {
            return Some(ProxyError::StoreAway);
        }
    }
    let refusal = core.plan.refusal.clone()?;
    core.record.act(On::Request, refusal.policy, REJECTED, 1);
    let Refusal { code, message, reason, .. } = refusal;
    let error = match reason {
        Some(reason) => ProxyError::Exhausted { code, reason: Box::new(reason) },
        None => ProxyError::Refused { code, message },
    };
    (!observes).then_some(error)
}

/// Claims the calls that the request approves, if any, before it goes on.
fn claim_approval(core: &mut Core, planned: Planned) -> Phase {
    let Some((answer, asked)) = planned.answer.as_ref().zip(planned.asked.as_ref()) else {
        return begin_running(core, planned, None);
    };
    if !asked.is_approved_by(&answer.text) {
        note_approval(core, "declined", Consent::Declined, tools_of(asked), planned.is_repeated);
        return begin_running(core, planned, None);
    }
    let request = core.shared.key.hash(Domain::Request, &[b"approval", &core.body]);
    core.start(Effect::Claim { question: answer.question, request });
    Phase::Claim(Box::new(planned))
}

/// Goes on with whether this request is the one that hands out the approved calls.
pub(super) fn take_claim(core: &mut Core, planned: Planned, is_taken: bool, now: Now) -> Phase {
    let (action, outcome) =
        if is_taken { ("approved", Consent::Approved) } else { ("lapsed", Consent::Expired) };
    let tools = planned.asked.as_deref().map(tools_of).unwrap_or_default();
    note_approval(core, action, outcome, tools, planned.is_repeated);
    let asked = planned.answer.as_ref().zip(planned.asked.as_ref());
    let late = asked.filter(|(_, asked)| !is_taken && asked.expires_ms <= now.ms);
    if let Some(question) = late.map(|(answer, _)| answer.question) {
        let mut running = Box::new(Running::new(core, planned));
        running.lapse(core, question, now);
        return Phase::of(running);
    }
    let approved = asked.filter(|_| is_taken).map(|(answer, asked)| (answer.question, Arc::clone(asked)));
    begin_running(core, planned, approved.map(|approved| (approved, now)))
}

fn begin_running(core: &mut Core, planned: Planned, approved: Option<(Approved, Now)>) -> Phase {
    let mut running = Box::new(Running::new(core, planned));
    match approved {
        Some((approved, now)) => running.hand_out(core, &approved, now),
        None => {
            running.land_at_once(core);
            running.send_first(core);
        }
    }
    Phase::of(running)
}

fn note_approval(
    core: &mut Core,
    action: &'static str,
    outcome: Consent,
    tools: Vec<String>,
    is_repeated: bool,
) {
    core.record.act(On::Request, CONFIRM, action, 1);
    // A question is answered once; a byte-identical retry was counted already.
    if !is_repeated {
        core.record.confirmations.push(outcome);
        let record = |tool| ApprovalRecord { tool, outcome, approver: None, reason: None };
        core.record.approvals.extend(tools.into_iter().map(record));
    }
}

/// The question for a summary that the plan needs first, if it does. Records the outcome of earlier summaries.
fn summarise_first(core: &mut Core, plan: &Plan, transcript: &Transcript) -> Option<Effect> {
    let changes = plan.refusal.is_none() && !core.request.odd && !core.is_observing();
    if plan.summaries == BatchSummaries::default() || !changes || core.is_held_out(transcript) {
        return None;
    }
    core.record.summaries.extend((plan.summaries.pinned > 0).then_some(SummaryResult::Pinned));
    let lost = &plan.summaries.lost;
    if !lost.is_empty() {
        core.record.summaries.extend(lost.iter().map(|_| SummaryResult::Lost));
        core.record.prefix_breaks.push(PrefixBreak::StateStore);
        core.output(Output::SummariesLost(lost.clone()));
    }
    let wanted = plan.summaries.wanted.clone()?;
    let question = question(transcript, plan, &wanted);
    Some(Effect::Summarise { wanted: Box::new(wanted), question })
}

/// Drops changes to texts of conversations in the holdout group; returns whether policies wanted any.
fn hold_out(core: &Core, plan: &mut Plan, transcript: &Transcript) -> Context {
    let policies = core.policies();
    let touched = policies.touches_context(plan);
    let observes = core.is_observing();
    let held_out = observes || core.is_held_out(transcript);
    if held_out {
        // No result was shortened.
        plan.forget_findings(|finding| matches!(finding, Finding::ReRequest { .. }));
    }
    if held_out && !observes {
        policies.leave_context(plan);
    }
    Context { touched, held_out }
}

/// Remembers the notices that are placed now. A plan that is made anew, for a shorter request, finds them placed.
fn pin_notices(
    core: &mut Core,
    transcript: &Transcript,
    open_account: &mut Option<Box<OpenAccount>>,
    length: &mut Length,
) {
    let Some(open_account) = open_account.as_mut().filter(|_| !core.is_observing()) else { return };
    let (placed, writes) = open_account.pin(transcript, &core.plan);
    core.store(writes);
    if let Some(account) = length.account.as_mut().filter(|_| !placed.is_empty()) {
        Arc::make_mut(account).pins.extend(placed);
    }
}

/// The open account of the request, where a policy limits its account; the policies find that in the transcript.
fn open_account(
    core: &Core,
    account: Option<Box<AccountKeys>>,
    model_name: &str,
    transcript: &mut Transcript,
    answers: &Answers,
    (now_ms, approves): (u64, bool),
    ahead: Sums,
) -> Option<Box<OpenAccount>> {
    let (keys, accounting) = account.zip(core.policies().accounting())?;
    let price = core.shared.settings.models.price(model_name).cloned();
    let carried = keys.carried(answers);
    let known = (carried.as_slice(), answers.sums.as_slice());
    let (mut open_account, mut account) =
        OpenAccount::open(*keys, transcript, known, (now_ms, approves), (ahead, price));
    if core.handed_out.is_some() {
        // The look-up asks for them after the quotas of the policies.
        let uses = answers.spent.get(core.policies().counted().len()).into_iter().flatten();
        account.handed_out = uses.filter(|known| known.is_open(now_ms)).copied().collect();
    }
    if accounting.tokens {
        open_account.prompt = prompt_tokens(transcript);
    }
    transcript.account = Some(Arc::new(account));
    Some(Box::new(open_account))
}
