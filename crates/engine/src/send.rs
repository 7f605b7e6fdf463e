//! The phase send: the request in its present variant, the next variant after a refusal, and the re-ask after blocked
//! calls. Decides when the final-answer request is sent.

use super::account::{Bill, OpenAccount};
use super::fallback::{Fallbacks, Subject, learned, placement};
use super::hidden_values::hide_in;
use super::notes::{BROKEN_HISTORY, TOOLS_UNSUPPORTED, action};
use super::plan::{Length, Planned};
use super::quota_uses::QuotaUses;
use super::refusals::ModelRefusals;
use super::refused_reask::ExchangeForm;
use super::running::{Replying, Running};
use super::store::{News, Overflow, RefusalEntry, ReplyContext};
use super::{Core, Output};
use crate::judging::{AnswerTools, Judging};
use crate::pipeline::{ClientChoice, ReplyPipeline};
use crate::reasks::Reasks;
use crate::repeats::BlockedCalls;
use crate::restore::RequestContext;
use crate::settings::Unjudged;
use bytes::Bytes;
use dialects::error::UpstreamError;
use dialects::refusal::overflows;
use dialects::usage::Usage;
use dialects::variant::{Added, PlannedRequest, Repairs, Tools, Variant};
use model::plan::decision::Next;
use model::plan::{Plan, tokens_of};
use model::record::{Fallback, On, PrefixBreak, RefusalNote};
use model::request::Choice;
use policies::set::Judge;

impl Core {
    /// Notes what is left out from the start, because the model is known to refuse it.
    fn note_left_out(&mut self, variant: &Variant) {
        let known = [
            (variant.tools == Tools::Dropped, Fallback::Tools),
            (variant.tools == Tools::WithoutChoice, Fallback::ToolChoice),
            (variant.flat, Fallback::Flattened),
            (variant.whole, Fallback::Streaming),
        ];
        for (_, fallback) in known.iter().filter(|(is_known, _)| *is_known) {
            self.record.act(On::Request, TOOLS_UNSUPPORTED, action(*fallback), 1);
        }
        if variant.repairs.any() {
            self.record.act(On::Request, BROKEN_HISTORY, "repaired", 1);
        }
    }
}

impl Core {
    /// Notes which known refusals the request avoids.
    fn note_known_refusals(&mut self, refusals: &ModelRefusals, avoided: &[Fallback]) {
        let is_avoided = |entry: &&'static RefusalEntry| avoided.contains(&entry.fallback);
        for entry in refusals.known().entries().filter(is_avoided) {
            let (kind, scope) = (entry.fallback, refusals.scope(entry));
            self.record.refusals.push(RefusalNote { kind, scope, is_new: false });
        }
    }

    /// What strict upstreams refuse in the history with the hidden exchanges, as far as `of` asks: a call of the client's may
    /// have the id of one of those. The calls are examined as calls also where they are sent as text, since they are repaired
    /// before they become text.
    fn broken_with_hidden(&self, restored: &[(usize, Bytes)], variant: &Variant, of: Repairs) -> Repairs {
        let planned = self.planned_request(&self.plan, restored);
        if !of.any() || restored.is_empty() {
            return self.dialect.broken(&planned, of);
        }
        let with_calls = Variant { flat: false, ..variant.clone() };
        let sent = self.dialect.write(&planned, &with_calls).join();
        match self.dialect.read(&sent) {
            Ok(read) => self.dialect.broken(&PlannedRequest::new(&sent, &read, &self.plan), of),
            Err(_) => self.dialect.broken(&planned, of),
        }
    }
}

/// A request to the upstream.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its body, in pieces.
    pub pieces: Vec<Bytes>,
    /// Its variant.
    pub variant: Variant,
}

/// What of a request fallbacks depend on. `restored`: hidden exchanges are put back into it.
fn subject_of(core: &Core, keeps_tools: bool, restored: bool) -> Subject {
    let upstream = &core.shared.settings.upstream;
    Subject {
        mode: upstream.tools_unsupported,
        overflow: upstream.overflow,
        broken_history: upstream.broken_history,
        forced: keeps_tools,
        notices: core.plan.has_notices() && !core.is_observing(),
        restored,
    }
}

/// The judge of the replies to the request, which knows the ids in the conversation.
fn judging_of(
    core: &Core,
    judge: Judge,
    answers: AnswerTools,
    token: Option<String>,
    restored: &[(usize, Bytes)],
) -> Judging {
    let (observes, unjudged) = (core.is_observing(), core.shared.settings.upstream.unjudged);
    let judging = Judging::new(judge, answers, observes).with_token(token);
    let mut judging = judging.passing_unjudged(unjudged == Unjudged::Pass);
    if core.request.continues.is_none() && !observes {
        judging.set_body(core.body.clone());
        let referenced = core.upstream.iter().flat_map(|upstream| &upstream.sources);
        referenced.for_each(|source| judging.add_hidden(source.bytes.clone()));
        restored.iter().for_each(|(_, exchange)| judging.add_hidden(exchange.clone()));
    }
    judging
}

/// Has the state store updated, if there is anything new.
fn store(core: &mut Core, news: News) {
    if !news.is_empty() {
        core.outputs.push_back(Output::Store(news));
    }
}

impl Running {
    /// The state of a planned request before it is sent, with the judge of its replies.
    pub(super) fn new(core: &mut Core, planned: Planned) -> Self {
        let Planned {
            facts,
            judge,
            transcript,
            mut restored,
            context,
            context_without_ids,
            refusals,
            model_name,
            length,
            token,
            asks_usage,
            sent,
            open_account,
            ..
        } = planned;
        let answers =
            AnswerTools::of(&core.planned_request(&core.plan, &[]), &core.shared.settings.reask.answer_tools);
        let keeps_tools = core.request.choice == Choice::Forced || !answers.declared.is_empty();
        let answer = answers.last().map(str::to_owned);
        let fallbacks = Fallbacks::new(&core.request, subject_of(core, keeps_tools, !restored.is_empty()));
        let (settings, known) = (&core.shared.settings.notices, refusals.known());
        let placed = placement(settings.placement, &settings.system_models, &model_name, known);
        let mut variant = fallbacks.first(&core.request, placed, known);
        variant.repairs = core.broken_with_hidden(&restored, &variant, fallbacks.first_repairs(known));
        if core.is_observing() {
            variant = Variant::plain(placed);
            *core.plan = Plan::default();
            restored.clear();
        }
        variant.ask_usage = asks_usage;
        let judging = judging_of(core, judge, answers, token, &restored);
        core.note_left_out(&variant);
        core.note_known_refusals(&refusals, &fallbacks.avoided(&variant));
        let blocked = BlockedCalls::new(&transcript, !restored.is_empty(), &judging);
        Self {
            blocked,
            transcript: Some(transcript),
            restored,
            context,
            context_without_ids,
            refusals,
            length,
            variant,
            fallbacks,
            tried: Vec::new(),
            is_refused: false,
            reasks: Reasks::default(),
            exchange_form: ExchangeForm::default(),
            before_bare: None,
            refuses_landing: false,
            keeps_tools,
            answer,
            sent: Some(sent),
            open_account,
            noted: 0,
            reask_causes: Vec::new(),
            held: Vec::new(),
            asking: Vec::new(),
            quotas: QuotaUses::new(facts.spent),
            hands_out: false,
            replying: Replying::Nothing(Box::new(judging)),
        }
    }

    /// Sends the request in its present variant.
    pub(super) fn send(&mut self, core: &mut Core) {
        core.record.upstream_requests += 1;
        if let Some(open_account) = &mut self.open_account {
            let counted = open_account.count_sent(core.record.upstream_requests.into());
            store(core, counted);
        }
        let planned = core.planned_request(&core.plan, &self.restored);
        let pieces = core.dialect.write(&planned, &self.variant).into_pieces();
        core.outputs.push_back(Output::Send(Outgoing { pieces, variant: self.variant.clone() }));
    }

    /// Chooses the next variant after an upstream's error; true if there is one to try.
    pub(super) fn falls_back(&mut self, core: &mut Core, status: u16, error: &UpstreamError) -> bool {
        if overflows(status, error) {
            return self.makes_room(core, error);
        }
        let broken = |of| core.broken_with_hidden(&self.restored, &self.variant, of);
        if let Some((variant, repaired)) = self.fallbacks.after_broken(status, error, &self.variant, broken) {
            self.try_next(core, &repaired);
            core.record.act(On::Request, BROKEN_HISTORY, "repaired", 1);
            if core.is_observing() {
                return false;
            }
            self.variant = variant;
            return true;
        }
        let added = self.added(core);
        let next = self.fallbacks.after(status, error, &self.variant, added);
        let Some((variant, fallback)) = next else {
            return self.answers_without_tools(core, status, error);
        };
        self.try_next(core, &[fallback]);
        match fallback {
            Fallback::Placement => core.record.prefix_breaks.push(PrefixBreak::Placement),
            // Neither the client nor the model notices it.
            Fallback::StreamOptions
            | Fallback::ParallelMember
            | Fallback::HiddenTools
            | Fallback::OwnTools => {}
            other => core.record.act(On::Request, TOOLS_UNSUPPORTED, action(other), 1),
        }
        if core.is_observing() {
            return false;
        }
        self.variant = variant;
        if self.variant.tools == Tools::WithoutChoice {
            // Without a choice, tools alone ask for no final answer.
            self.answers_without_tools(core, status, error);
        }
        true
    }

    /// What toolrein wrote into the request that was refused, beside its messages.
    pub(super) fn added(&self, core: &Core) -> Added {
        let Core { dialect, body, request, plan, .. } = core;
        let sent = dialect.write(&core.planned_request(plan, &self.restored), &self.variant).join();
        let read = dialect.read(&sent);
        read.map_or_else(|_| Added::default(), |read| Added::of((request, body), (&read, &sent)))
    }

    /// Notes fallbacks at once, since the client may leave before the end.
    pub(super) fn try_next(&mut self, core: &mut Core, fallbacks: &[Fallback]) {
        self.tried.extend(fallbacks);
        core.record.fallbacks.extend(fallbacks);
    }

    /// The upstream accepted the present variant: stores what that shows of the model.
    pub(super) fn taken(&mut self, core: &mut Core) {
        self.transcript = None;
        let is_unsent = core.record.upstream_requests == 0;
        if core.is_observing() || self.variant.asking.is_some() || self.is_refused || is_unsent {
            return;
        }
        let refused = learned(&self.tried);
        let accepted = self.fallbacks.accepted(&core.request, &self.variant);
        let model = self.refusals.news(refused, accepted);
        for entry in refused.entries().filter(|_| !model.is_empty()) {
            let scope = self.refusals.scope_when_met(entry);
            let note = RefusalNote { kind: entry.fallback, scope, is_new: true };
            // It is learned again with each choice that finishes.
            if !core.record.refusals.contains(&note) {
                core.record.refusals.push(note);
            }
        }
        let overflow = self.tried.contains(&Fallback::Overflow);
        let Length { conversation, history, messages, most_chars, .. } = self.length;
        let overflow = overflow.then_some((conversation, Overflow { messages, history, most_chars }));
        let news = News { model, overflow, ..News::default() };
        if !news.is_empty() {
            core.outputs.push_back(Output::Store(news));
        }
    }

    /// The upstream refused the request in flight, or it was not sent: no more is billed for it than is reported in
    /// `usages`, those of all replies.
    pub(super) fn not_billed(&mut self, core: &mut Core, usages: &[Usage]) {
        if let Some(open_account) = &mut self.open_account {
            let taken_back = open_account.take_back(usages, core.record.upstream_requests.into());
            store(core, taken_back);
        }
    }

    /// Notes the billed tokens, summed over all replies.
    pub(super) fn billed(&mut self, core: &mut Core, usages: &[Usage]) {
        core.note_usage(usages);
        self.note_counted_cost(core);
        core.note_reasked(&self.reask_causes, usages.iter().map(Usage::billed).sum());
        self.remember_sent(core);
    }

    /// Stores, once, with which hidden exchanges the history was sent.
    pub(super) fn remember_sent(&mut self, core: &mut Core) {
        if let Some(sent) = self.sent.take() {
            core.outputs.push_back(Output::Store(News { sent: Some(sent), ..News::default() }));
        }
    }

    /// Records the cost as a policy counts it, where one does: also what is estimated.
    pub(super) fn note_counted_cost(&self, core: &mut Core) {
        let counts = core.policies().accounting().is_some_and(|accounting| accounting.spend);
        let cost = self.open_account.as_ref().filter(|_| counts).map(OpenAccount::counted_cost);
        if let Some(cost) = cost.filter(|cost| *cost > 0 || core.record.cost.is_some()) {
            core.record.cost = Some(cost);
        }
    }

    /// Prepares to ask again for `choice`, whose calls were all blocked in `hidden`, for what is `next`; after too many
    /// times, for a final answer.
    pub(super) fn ask_again(
        &mut self,
        core: &mut Core,
        choice: u32,
        next: Next,
        hidden: &Bytes,
        judging: &mut Judging,
    ) {
        self.taken(core);
        // An approval is for one reply.
        judging.approve(None);
        let hidden = self.exchange_form.write(core, hidden);
        if core.request.continues.is_none() {
            judging.add_hidden(hidden.clone());
        }
        let mut asking = self.reasks.again(choice, next, hidden, core.shared.settings.reask.max);
        if let Some((_, values)) = core.plan.hidden_values() {
            asking.rounds.iter_mut().for_each(|round| *round = hide_in(round, values, usize::MAX));
        }
        core.record.reasks = self.reasks.count();
        if asking.land {
            judging.read_parameters(&core.planned_request(&core.plan, &[]));
            judging.land();
        } else {
            judging.go_on();
        }
        // Where the answer is a call, that call is forced.
        self.variant.answer = self.answer.clone().filter(|_| asking.land);
        asking.land &= !self.keeps_tools || self.variant.answer.is_some();
        if let Some(before) = self.before_bare.take_if(|_| !asking.land) {
            self.variant = *before;
        }
        let refuses = self.refuses_landing || self.variant.tools == Tools::WithoutChoice;
        if asking.land && refuses && self.before_bare.is_none() {
            // The model is known to refuse the `tool_choice` of a final-answer request.
            self.go_bare(core);
        }
        // It is unknown whether a model that was given no tools accepts the calls that it made nevertheless.
        self.variant.flat |= self.variant.tools == Tools::Dropped;
        self.variant.asking = Some(asking);
    }

    /// Prepares to ask for a final answer without tools and with the history as text.
    pub(super) fn go_bare(&mut self, core: &mut Core) {
        self.before_bare.get_or_insert_with(|| Box::new(self.variant.clone()));
        (self.variant.tools, self.variant.flat) = (Tools::Dropped, true);
        self.variant.placement = self.variant.placement.of_last_try();
        self.try_next(core, &[Fallback::Tools, Fallback::Flattened]);
    }

    /// Stores what is known of a conversation that the upstream keeps, with its newest reply.
    pub(super) fn remember_history(core: &mut Core, reply: &ReplyPipeline) {
        let Some((name, known)) = reply.history(&core.planned_request(&core.plan, &[])) else { return };
        let key = core.identity.response_key(&name);
        let items = reply.last_items().into_iter().map(|id| core.identity.item_key(&id));
        for key in std::iter::once(key).chain(items).collect::<Vec<_>>() {
            let history = Some((key, known.clone()));
            core.outputs.push_back(Output::Store(News { history, ..News::default() }));
        }
    }

    /// The part of the request that the keys of its reply depend on.
    fn request_context<'a>(&self, core: &'a Core) -> RequestContext<'a> {
        RequestContext {
            root: core.identity.root(),
            context: self.context,
            context_without_ids: self.context_without_ids,
            memo: &*core.shared.memo,
        }
    }

    /// Stores what the client was handed and what was hidden from it.
    pub(super) fn remember(&mut self, core: &mut Core, choices: &[ClientChoice<'_>], now_ms: u64) {
        // Where no call can be blocked, nothing can be hidden before a text.
        if !core.request.declares_tools && choices.iter().all(|choice| choice.calls() == 0) {
            return;
        }
        let request = self.request_context(core);
        let (observe, identity, reasks) = (core.is_observing(), &*core.identity, &self.reasks);
        let remembers =
            core.policies().confirming().is_some_and(|confirming| !confirming.remembered.is_empty());
        let mut news =
            News::of_choices(choices, &ReplyContext { request, identity, reasks, now_ms, observe });
        news.spent = self.quotas.news(core, choices, now_ms);
        // After a re-ask the calls of the reply are the model's own, not the approved ones.
        if self.hands_out && self.reasks.count() == 0 && remembers {
            let identity = &core.identity;
            news.approved =
                news.released.iter().map(|(call, _)| identity.approval(*call, self.context)).collect();
        }
        if !news.is_empty() {
            core.outputs.push_back(Output::Store(news));
        }
    }

    /// Stores what the replies have cost and used so far, where a policy limits that.
    pub(super) fn account(
        &mut self,
        core: &mut Core,
        judging: &Judging,
        usages: &[Usage],
        choices: &[ClientChoice<'_>],
        now_ms: u64,
    ) {
        let request = self.request_context(core);
        let Some(open_account) = &mut self.open_account else { return };
        if choices.is_empty() {
            return;
        }
        let bill = Bill {
            usages,
            requests: core.record.upstream_requests.into(),
            choices,
            bought: judging.bought(),
            hidden: tokens_of(self.reasks.bytes()),
        };
        // A reply after which the model is asked again is not one that the client has.
        let is_shown = |choice: &&ClientChoice<'_>| {
            !choice.is_waiting() && (choice.is_finished() || !choice.is_wholly_blocked())
        };
        let shown: Vec<ClientChoice<'_>> = choices.iter().filter(is_shown).copied().collect();
        let news = open_account.report(&bill, &request, &core.identity, &shown, now_ms);
        store(core, news);
    }
}
