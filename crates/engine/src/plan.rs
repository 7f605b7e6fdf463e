//! The phase plan: one run of the policies over the conversation, with the state store's facts. Changes and sends nothing.

use super::account::{AccountKeys, OpenAccount};
use super::error::ProxyError;
use super::hidden_values::hide_in;
use super::look_up::Sought;
use super::refusals::ModelRefusals;
use super::running::Running;
use super::store::{Facts, ModelFacts, NewPins, News, Overflow, SentExchanges};
use super::text_agents::{CALLS_AS_TEXT, has_calls_as_text};
use super::{Core, Now, Output, Phase};
use crate::confirm::{Answer, token};
use crate::restore::restored;
use crate::sent::Sent;
use crate::settings::AskUsage;
use bytes::Bytes;
use dialects::summary::question;
use model::account::Account;
use model::assembled::Assembled;
use model::histories::Histories;
use model::identity::{Domain, Hash};
use model::pins::Pinned;
use model::plan::approval::Confirmation;
use model::plan::{BatchSummaries, Plan, Refusal};
use model::record::{ApprovalRecord, Consent, Context, On, PrefixBreak, REJECTED, SummaryResult};
use model::tokens::Estimate;
use model::{LengthCut, Transcript};
use policies::set::Judge;
use std::sync::Arc;

/// The name under which the user's answer to a question is recorded.
const CONFIRM: &str = "confirm";

/// A planned request that waits for a summary.
pub(super) struct Summarising {
    sought: Box<Sought>,
    known: KnownFacts,
    plan: Box<Plan>,
    judge: Judge,
}

/// What the store knows of a request, and the hidden exchanges that are put back.
struct KnownFacts {
    facts: Box<Facts>,
    restored: Vec<(usize, Bytes)>,
    /// How many hidden exchanges should have been put back and are lost.
    lost: u32,
    open_account: Option<OpenAccount>,
}

/// What is known after the policies' run, besides their plan.
pub(super) struct Planned {
    pub(super) facts: Box<Facts>,
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
    pub(super) open_account: Option<OpenAccount>,
    answer: Option<Answer>,
}

/// What is known of the request's length, and the keys under which an overflow is stored.
pub(super) struct Length {
    pub(super) conversation: Hash,
    /// The digest of the request's messages.
    pub(super) history: Hash,
    /// See [`Transcript::length_cuts`].
    pub(super) cuts: Vec<LengthCut>,
    /// How many characters are left of each result of this request, where its length needs that.
    pub(super) most_chars: Option<usize>,
    /// How many messages the conversation has.
    pub(super) messages: usize,
    /// See [`Transcript::account`].
    account: Option<Arc<Account>>,
}

/// The calls that a person has approved, with the key of the question's text.
pub(super) type Approved = (Hash, Arc<Confirmation>);

/// Why a request, or a message of it, is left as it is: parsers read its strings differently.
const ODD_TEXT: &str = "odd_text";

impl Core {
    /// Runs the policies over the conversation with the store's facts.
    pub(super) fn planned(&mut self, mut sought: Box<Sought>, mut facts: Box<Facts>, now: Now) -> Phase {
        let account = sought.account.take();
        let Sought { transcript, model_name, model, positions, calls, answer, approvals, .. } = &mut *sought;
        let first_sent = transcript.first_sent();
        let news = calls.adopt(&mut facts, transcript);
        if !news.is_empty() {
            self.outputs.push_back(Output::Store(news));
        }
        let (mut restored, lost) = restored(transcript, positions, &facts.rounds, &facts.released);
        // The upstream has the messages that it keeps in full, so nothing is put back into them.
        restored.retain(|(message, _)| *message >= first_sent);
        transcript.learn_releases(&facts.released, now.ms);
        for (at, approved) in approvals.iter().zip(&facts.approved) {
            transcript.calls.calls[*at].approved = *approved;
        }
        for (message, exchange) in &restored {
            let items = self.dialect.source(exchange);
            items.into_iter().for_each(|items| transcript.add_hidden(*message, items));
        }
        transcript.tier.clone_from(&self.tier);
        transcript.spent.clone_from(&facts.spent);
        transcript.store_away = facts.away || facts.unwritten;
        transcript.stopped = facts.stopped;
        transcript.pinned = std::mem::take(&mut facts.pinned);
        let overflows = facts.known_overflows(transcript, model.all);
        transcript.overflows = overflows.iter().map(|overflow| overflow.messages).collect();
        transcript.length_cuts = overflows.iter().filter_map(Overflow::cut).collect();
        let asked = answer.as_ref().zip(facts.asked.as_ref());
        let approves = asked.is_some_and(|(answer, asked)| asked.is_approved_by(&answer.text));
        let open_account = self.open_account(account, model_name, transcript, &facts, now.ms, approves);
        let (plan, judge) = self.policies().read(transcript);
        let mut plan = Box::new(plan);
        plan.change_only_from(first_sent);
        let known = KnownFacts { facts, restored, lost, open_account };
        if let Some(question) = self.summarise_first(&plan, transcript) {
            self.outputs.push_back(question);
            return Phase::Summary(Box::new(Summarising { sought, known, plan, judge }));
        }
        self.made(sought, known, plan, judge, now)
    }

    /// Goes on with the summary of the batch of results, or without one.
    pub(super) fn summarised(&mut self, summarising: Summarising, summary: Option<&str>, now: Now) -> Phase {
        let Summarising { sought, known, mut plan, judge } = summarising;
        plan.fulfil_summary(summary);
        self.made(sought, known, plan, judge, now)
    }

    /// Hides values in what toolrein adds to the request.
    fn hide_values(&mut self, plan: &Plan, restored: &mut [(usize, Bytes)]) {
        let Some((_, values)) = plan.hidden_values() else { return };
        for (message, exchange) in restored {
            *exchange = hide_in(exchange, values, *message);
        }
        // Items that the upstream has not seen, such as a question of toolrein's own, are sent with this request.
        if let Some(upstream) = self.upstream.as_mut().filter(|upstream| !upstream.owed.is_empty()) {
            upstream.owed = hide_in(&upstream.owed, values, usize::MAX);
        }
    }

    /// Records the plan and goes on to send the request, or to refuse it.
    fn made(
        &mut self,
        sought: Box<Sought>,
        known: KnownFacts,
        mut plan: Box<Plan>,
        judge: Judge,
        now: Now,
    ) -> Phase {
        let KnownFacts { mut facts, mut restored, lost, mut open_account } = known;
        let Sought {
            transcript,
            model_name,
            model,
            conversation,
            request: request_name,
            histories,
            answer,
            ..
        } = *sought;
        self.new_from = transcript.last_assistant().map_or(0, |last| last + 1);
        if self.request.odd {
            // Parsers read its structure differently, so it is sent unchanged; the reply is still judged, or any web page
            // in a result could switch that off.
            self.record.ungoverned = Some(ODD_TEXT);
            plan.change_nothing();
            restored.clear();
        } else if self.request.has_odd_text {
            self.record.partly_ungoverned = Some(ODD_TEXT);
        }
        if has_calls_as_text(&transcript) {
            self.note_unjudged(CALLS_AS_TEXT);
        }
        self.record.context = self.hold_out(&mut plan, &transcript);
        self.record.overflow_remembered = !transcript.overflows.is_empty() && !self.is_observing();
        self.record.model = Some(model_name.clone());
        self.record.context_window = transcript.context_window;
        let (sent, keeps_exchanges) = self.sent_exchanges(&transcript, &histories, &facts, &restored);
        self.record.conversation = self.identity.explicit.clone().or_else(|| Some(conversation.to_hex()));
        self.note_known(facts.repeated, lost, keeps_exchanges);
        self.note_new(&transcript, &plan);
        let token = self.asks_approval().then(|| self.token(request_name, now));
        let (caller, remember) = (self.identity.caller, self.shared.settings.upstream.remember);
        let refusals = ModelRefusals::new(model, caller, std::mem::take(&mut facts.model), remember, now.ms);
        let asks_usage = self.asks_usage(refusals.known());
        let mut length = Length {
            conversation,
            history: histories.whole,
            cuts: transcript.length_cuts.clone(),
            most_chars: None,
            messages: transcript.len(),
            account: transcript.account.clone(),
        };
        let (context, context_without_ids) = (transcript.calls.context, transcript.calls.context_without_ids);
        self.pin(&plan, conversation, now);
        self.hide_values(&plan, &mut restored);
        self.plan = plan;
        if let Some(error) = self.refusal(&facts) {
            return self.fail(error);
        }
        self.pin_notices(&transcript, &mut open_account, &mut length);
        if let Some(open_account) = open_account.as_mut().filter(|_| self.plan.final_answer.is_some()) {
            self.outputs.push_back(Output::Store(open_account.note_final_answer(true)));
        }
        let planned = Planned {
            facts,
            judge,
            transcript: Box::new(transcript),
            restored,
            context,
            context_without_ids,
            refusals,
            model_name,
            length,
            token,
            asks_usage,
            sent,
            open_account,
            answer,
        };
        self.approval(planned)
    }

    /// Why the request is refused, if it is: the shared store is unavailable, or a policy refuses it.
    fn refusal(&mut self, facts: &Facts) -> Option<ProxyError> {
        let observes = self.is_observing();
        let strict = self.shared.settings.strict_store && !observes;
        if facts.away || (facts.unwritten && strict) {
            self.record.without_store = Some(strict);
            if strict {
                return Some(ProxyError::StoreAway);
            }
        }
        let refusal = self.plan.refusal.clone()?;
        self.record.act(On::Request, refusal.policy, REJECTED, 1);
        let Refusal { code, message, reason, .. } = refusal;
        let error = match reason {
            Some(reason) => ProxyError::Exhausted { code, reason: Box::new(reason) },
            None => ProxyError::Refused { code, message },
        };
        (!observes).then_some(error)
    }

    /// Claims the calls that the request approves, if any, before it goes on.
    fn approval(&mut self, planned: Planned) -> Phase {
        let Some((answer, asked)) = planned.answer.as_ref().zip(planned.facts.asked.as_ref()) else {
            return self.send(planned, None);
        };
        if !asked.is_approved_by(&answer.text) {
            self.note_approval("declined", Consent::Declined, tools_of(asked), planned.facts.repeated);
            return self.send(planned, None);
        }
        let request = self.shared.key.hash(Domain::Request, &[b"approval", &self.body]);
        self.outputs.push_back(Output::Claim { question: answer.question, request });
        Phase::Claim(Box::new(planned))
    }

    /// Goes on with whether this request is the one that hands out the approved calls.
    pub(super) fn claimed(&mut self, planned: Planned, is_taken: bool, now: Now) -> Phase {
        let (action, outcome) =
            if is_taken { ("approved", Consent::Approved) } else { ("lapsed", Consent::Expired) };
        let tools = planned.facts.asked.as_deref().map(tools_of).unwrap_or_default();
        self.note_approval(action, outcome, tools, planned.facts.repeated);
        let asked = planned.answer.as_ref().zip(planned.facts.asked.as_ref());
        let late = asked.filter(|(_, asked)| !is_taken && asked.expires_ms <= now.ms);
        if let Some(question) = late.map(|(answer, _)| answer.question) {
            let mut running = Box::new(Running::new(self, planned));
            running.lapse(self, question, now);
            return Phase::of(running);
        }
        let approved = asked.filter(|_| is_taken).map(|(answer, asked)| (answer.question, Arc::clone(asked)));
        self.send(planned, approved.map(|approved| (approved, now)))
    }

    fn send(&mut self, planned: Planned, approved: Option<(Approved, Now)>) -> Phase {
        let mut running = Box::new(Running::new(self, planned));
        match approved {
            Some((approved, now)) => running.hand_out(self, &approved, now),
            None => {
                running.land_at_once(self);
                running.send(self);
            }
        }
        Phase::of(running)
    }

    fn note_approval(
        &mut self,
        action: &'static str,
        outcome: Consent,
        tools: Vec<String>,
        is_repeated: bool,
    ) {
        self.record.act(On::Request, CONFIRM, action, 1);
        // A question is answered once; a byte-identical retry was counted already.
        if !is_repeated {
            self.record.confirmations.push(outcome);
            let record = |tool| ApprovalRecord { tool, outcome, approver: None, reason: None };
            self.record.approvals.extend(tools.into_iter().map(record));
        }
    }

    /// With which hidden exchanges the history is sent, and whether its known prefix was sent with the same ones.
    fn sent_exchanges(
        &self,
        transcript: &Transcript,
        histories: &Histories,
        facts: &Facts,
        restored: &[(usize, Bytes)],
    ) -> (SentExchanges, bool) {
        let sent = Sent { transcript, restored: if self.is_observing() { &[] } else { restored } };
        let rounds = sent.exchanges_before(transcript.len());
        (
            SentExchanges { history: histories.whole, rounds },
            sent.keeps_exchanges(histories, &facts.sent_exchanges),
        )
    }

    /// The question for a summary that the plan needs first, if it does. Records the outcome of earlier summaries.
    fn summarise_first(&mut self, plan: &Plan, transcript: &Transcript) -> Option<Output> {
        let changes = plan.refusal.is_none() && !self.request.odd && !self.is_observing();
        if plan.summaries == BatchSummaries::default() || !changes || self.is_held_out(transcript) {
            return None;
        }
        self.record.summaries.extend((plan.summaries.pinned > 0).then_some(SummaryResult::Pinned));
        let lost = &plan.summaries.lost;
        if !lost.is_empty() {
            self.record.summaries.extend(lost.iter().map(|_| SummaryResult::Lost));
            self.record.prefix_breaks.push(PrefixBreak::StateStore);
            self.outputs.push_back(Output::SummariesLost(lost.clone()));
        }
        let wanted = plan.summaries.wanted.clone()?;
        let question = question(transcript, plan, &wanted);
        Some(Output::Summarise { wanted, question })
    }

    /// Whether the conversation is in the holdout group, whose texts policies do not change.
    fn is_held_out(&self, transcript: &Transcript) -> bool {
        let settings = &self.shared.settings.conversation;
        settings.holdout > 0 && settings.holds_out(transcript.lasting_name().0)
    }

    /// Drops changes to texts of conversations in the holdout group; returns whether policies wanted any.
    fn hold_out(&self, plan: &mut Plan, transcript: &Transcript) -> Context {
        let policies = self.policies();
        let touched = policies.touches_context(plan);
        if self.is_observing() {
            plan.re_requests.clear();
            return Context { touched, held_out: true };
        }
        let held_out = self.is_held_out(transcript);
        if held_out {
            policies.leave_context(plan);
            // No result was shortened.
            plan.re_requests.clear();
        }
        Context { touched, held_out }
    }

    /// An unpredictable token, since it is derived from a secret of its own.
    fn token(&self, request: Hash, now: Now) -> String {
        let parts = [&request.0.to_le_bytes()[..], &now.ms.to_le_bytes()];
        token(self.shared.secret.hash(Domain::Confirmation, &parts))
    }

    /// Whether to request usage for the stream although the client did not.
    fn asks_usage(&self, known: ModelFacts) -> bool {
        let wanted = match self.shared.settings.upstream.ask_usage {
            AskUsage::Never => false,
            AskUsage::Auto => self.policies().needs_usage(),
            AskUsage::Always => true,
        };
        let comes = !self.request.stream || self.request.include_usage;
        wanted && !comes && !self.is_observing() && !known.no_stream_options
    }

    /// The policies' plan for a request that the upstream refused for its length.
    pub(super) fn shortened(&self, length: &Length, transcript: &mut Transcript) -> Plan {
        transcript.overflowed = true;
        transcript.length_cuts.clone_from(&length.cuts);
        let cut = |most_chars| LengthCut { messages: length.messages, most_chars };
        transcript.length_cuts.extend(length.most_chars.map(cut));
        transcript.account.clone_from(&length.account);
        let mut plan = self.policies().read(transcript).0;
        plan.change_only_from(transcript.first_sent());
        if self.is_held_out(transcript) {
            self.policies().leave_context(&mut plan);
        }
        plan
    }

    /// Remembers the notices that are placed now. A plan that is made anew, for a shorter request, finds them placed.
    fn pin_notices(
        &mut self,
        transcript: &Transcript,
        open_account: &mut Option<OpenAccount>,
        length: &mut Length,
    ) {
        let Some(open_account) = open_account.as_mut().filter(|_| !self.is_observing()) else { return };
        let (placed, news) = open_account.pin(transcript, &self.plan);
        if !news.is_empty() {
            self.outputs.push_back(Output::Store(news));
        }
        if let Some(account) = length.account.as_mut().filter(|_| !placed.is_empty()) {
            Arc::make_mut(account).pins.extend(placed);
        }
    }

    /// Remembers the definitions of tools that were seen for the first time.
    fn pin(&mut self, plan: &Plan, conversation: Hash, now: Now) {
        let pins: Vec<Pinned> = plan.pins().collect();
        let Some(key) = self.pins_key(conversation).filter(|_| !pins.is_empty()) else { return };
        let pinned = Some(NewPins { key, pins, at_ms: now.ms });
        self.outputs.push_back(Output::Store(News { pinned, ..News::default() }));
    }

    /// The open account of the request, where a policy limits its account; the policies find that in the transcript.
    fn open_account(
        &self,
        account: Option<AccountKeys>,
        model_name: &str,
        transcript: &mut Transcript,
        facts: &Facts,
        now_ms: u64,
        approves: bool,
    ) -> Option<OpenAccount> {
        let (keys, accounting) = account.zip(self.policies().accounting())?;
        let price = self.shared.settings.models.price(model_name).cloned();
        let (mut open_account, account) = OpenAccount::open(keys, transcript, facts, now_ms, approves, price);
        if accounting.tokens {
            let tokens: Estimate = transcript.views().map(|view| view.tokens()).sum();
            let declared = transcript.definition_tokens() + transcript.instructions_tokens();
            open_account.prompt = (declared + tokens).tokens();
        }
        transcript.account = Some(Arc::new(account));
        Some(open_account)
    }
}

/// The tools that a question is about.
fn tools_of(question: &Confirmation) -> Vec<String> {
    question.calls.iter().map(Assembled::name).collect()
}
