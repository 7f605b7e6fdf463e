//! The phase send: the request written in the form that it takes now, the next form after a refusal, and asking again
//! behind blocked calls. Decides when the model is asked for its final answer.

use super::fallback::{Fallbacks, Subject, lands_bare, learned, placement};
use super::notes::{TOOLS_UNSUPPORTED, word};
use super::plan::Planned;
use super::running::{Replying, Running};
use super::store::{Answered, News, Overflow, Spent};
use super::{Core, Output};
use crate::config::Unjudged;
use crate::policy::plan::Plan;
use crate::rewrite::choice::ChoiceState;
use crate::rewrite::judging::wrapper::made_of;
use crate::rewrite::judging::{AnswerTools, Judging};
use crate::rewrite::pass::{Pass, Source, Tools};
use crate::rewrite::reasks::{Next, Reasks};
use crate::rewrite::restore::Asked;
use crate::rewrite::texts::saved_tokens;
use crate::telemetry::outcome::{Fallback, On, PrefixBreak};
use crate::transcript::identity::Hash;
use crate::wire::assemble::Assembled;
use crate::wire::error::UpstreamError;
use crate::wire::refusal::overflows;
use crate::wire::request::Choice;
use crate::wire::usage::Usage;
use bytes::Bytes;

impl Core {
    /// What is left out at once, because the model is known to refuse it.
    fn note_left_out(&mut self, pass: &Pass) {
        let known = [
            (pass.tools == Tools::Dropped, Fallback::Tools),
            (pass.tools == Tools::WithoutChoice, Fallback::ToolChoice),
            (pass.flat, Fallback::Flattened),
        ];
        for (_, fallback) in known.iter().filter(|(is_known, _)| *is_known) {
            self.record.act(On::Request, TOOLS_UNSUPPORTED, word(*fallback), 1);
        }
    }
}

/// A request as it goes up.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its body, in pieces.
    pub pieces: Vec<Bytes>,
    /// The form that it takes.
    pub pass: Pass,
}

impl Running {
    /// What goes up for the planned request, and the judge of the replies.
    pub(super) fn new(core: &mut Core, planned: Planned) -> Self {
        let Planned {
            facts,
            judge,
            mut restored,
            context,
            model,
            model_name,
            length,
            token,
            asks_usage,
            sent,
            ..
        } = planned;
        let observes = core.is_observing();
        let config = &core.shared.config;
        let answers = AnswerTools::of(&core.request, &core.body, &config.reask.answer_tools);
        let keeps_tools = core.request.choice == Choice::Forced || !answers.declared.is_empty();
        let subject = Subject {
            mode: config.upstream.tools_unsupported,
            overflow: config.upstream.overflow,
            forced: keeps_tools,
            notices: core.plan.has_notices() && !observes,
            restored: !restored.is_empty(),
        };
        let fallbacks = Fallbacks::new(&core.request, subject);
        let settings = &config.notices;
        let placed = placement(settings.placement, &settings.system_models, &model_name, facts.model);
        let mut pass = fallbacks.first(&core.request, placed, facts.model);
        if observes {
            pass = Pass::plain(placed);
            *core.plan = Plan::default();
            restored.clear();
        }
        pass.ask_usage = asks_usage;
        let judging = Judging::new(judge, answers, observes)
            .asking(token)
            .passing_unjudged(config.upstream.unjudged == Unjudged::Pass);
        core.note_left_out(&pass);
        Self {
            restored,
            context,
            model,
            length,
            pass,
            fallbacks,
            tried: Vec::new(),
            reasks: Reasks::default(),
            bare: false,
            keeps_tools,
            sent: Some(sent),
            name: None,
            noted: 0,
            held: Vec::new(),
            replying: Replying::Nothing(Box::new(judging)),
        }
    }

    /// Sends the request in its present form.
    pub(super) fn send(&mut self, core: &mut Core) {
        core.record.upstream_requests += 1;
        let Core { body, request, plan, .. } = core;
        let pieces = Source { body, request, plan, restored: &self.restored }.write(&self.pass).into_pieces();
        core.outputs.push_back(Output::Send(Outgoing { pieces, pass: self.pass.clone() }));
    }

    /// After an upstream's error: true if another form of the request is worth a try.
    pub(super) fn falls_back(&mut self, core: &mut Core, status: u16, error: &UpstreamError) -> bool {
        if overflows(status, error) {
            return self.makes_room(core);
        }
        let Some((pass, fallback)) = self.fallbacks.after(status, error, &self.pass) else { return false };
        self.try_next(core, &[fallback]);
        match fallback {
            Fallback::Placement => core.record.prefix_breaks.push(PrefixBreak::Placement),
            // Of no concern to the client, nor to the model.
            Fallback::StreamOptions => {}
            other => core.record.act(On::Request, TOOLS_UNSUPPORTED, word(other), 1),
        }
        if core.is_observing() {
            return false;
        }
        self.pass = pass;
        true
    }

    /// After the upstream refused the request for its length: true if there is a shorter form.
    fn makes_room(&mut self, core: &mut Core) -> bool {
        if !self.fallbacks.may_shorten() {
            return false;
        }
        let plan = core.shortened(&self.length, &self.restored);
        if !plan.leaves_out_more_than(&core.plan) {
            return false;
        }
        // What was decided for this request, and had not been decided before the error.
        let messages = core.request.messages.len();
        let known = (core.plan.cleared().count(), core.plan.dropped.len());
        for edit in plan.cleared().skip(known.0).filter(|edit| edit.decided == messages) {
            core.record.act(On::Request, edit.policy, edit.change.word(), 1);
        }
        for dropped in plan.dropped.iter().skip(known.1).filter(|dropped| dropped.decided == messages) {
            core.record.act(On::Request, dropped.policy, "turns_dropped", 1);
        }
        self.fallbacks.shorten(&plan);
        self.try_next(core, &[Fallback::Overflow]);
        if core.is_observing() {
            return false;
        }
        core.record.prefix_breaks.push(PrefixBreak::Overflow);
        core.record.tokens.saved = saved_tokens(&plan);
        *core.plan = plan;
        true
    }

    /// Recorded at once: the client may leave before the end.
    fn try_next(&mut self, core: &mut Core, fallbacks: &[Fallback]) {
        self.tried.extend(fallbacks);
        core.record.fallbacks.extend(fallbacks);
    }

    /// The upstream took the present form: what it had refused is remembered.
    pub(super) fn taken(&mut self, core: &mut Core) {
        if self.tried.is_empty() || core.is_observing() || self.pass.asking.is_some() {
            return;
        }
        let model = Some((self.model, learned(&self.tried)));
        let messages = core.request.messages.len();
        let overflow = self.tried.contains(&Fallback::Overflow);
        let overflow = overflow
            .then_some((self.length.conversation, Overflow { messages, history: self.length.history }));
        core.outputs.push_back(Output::Store(News { model, overflow, ..News::default() }));
    }

    /// Notes what the upstream billed, summed over all replies, and reports with which hidden exchanges the history was sent.
    pub(super) fn billed(&mut self, core: &mut Core, usage: Usage) {
        core.note_usage(usage);
        if let Some(sent) = self.sent.take() {
            core.outputs.push_back(Output::Store(News { sent: Some(sent), ..News::default() }));
        }
    }

    /// Prepares to ask again for `choice`, all of whose calls were blocked in `hidden`, for what is `next`; after too many
    /// times for a final answer.
    pub(super) fn ask_again(
        &mut self,
        core: &mut Core,
        (choice, next): (u32, Next),
        hidden: Bytes,
        judging: &mut Judging,
    ) {
        self.taken(core);
        // An approval is for one reply.
        judging.approve(false);
        let mut asking = self.reasks.again((choice, next), hidden, core.shared.config.reask.max);
        core.record.reasks = self.reasks.count();
        if asking.land {
            judging.land();
        }
        asking.land &= !self.keeps_tools;
        if asking.land && self.pass.tools == Tools::WithoutChoice {
            // The choice that would ask for an answer is refused, as is known.
            self.go_bare(core);
        }
        // Nobody knows whether a model that was given no tools takes the calls that it made nevertheless.
        self.pass.flat |= self.pass.tools == Tools::Dropped;
        self.pass.asking = Some(asking);
    }

    /// After the upstream refused to be asked for a final answer: true if it is to be asked once more without tools and with
    /// the history as text.
    pub(super) fn lands_bare(&mut self, core: &mut Core, status: u16) -> bool {
        let lands = lands_bare(status, &self.pass);
        if lands {
            self.go_bare(core);
        }
        lands
    }

    fn go_bare(&mut self, core: &mut Core) {
        (self.pass.tools, self.pass.flat, self.bare) = (Tools::Dropped, true, true);
        self.pass.placement = self.pass.placement.of_last_try();
        self.try_next(core, &[Fallback::Tools, Fallback::Flattened]);
    }

    /// Reports what the client was handed and what it was not shown.
    pub(super) fn remember(&mut self, core: &mut Core, choices: &[&ChoiceState], now_ms: u64) {
        // Where no call can be blocked, no text is taken for one before which something was hidden.
        if !core.request.declares_tools && choices.iter().all(|choice| choice.calls() == 0) {
            return;
        }
        let asked = Asked { root: core.identity.root(), context: self.context, memo: &*core.shared.memo };
        let (observe, identity, reasks) = (core.is_observing(), &*core.identity, &self.reasks);
        let mut news = News::of_choices(choices, &Answered { asked, identity, reasks, now_ms, observe });
        news.spent = self.spent(core, choices, now_ms);
        if !news.is_empty() {
            core.outputs.push_back(Output::Store(news));
        }
    }

    /// What the calls that the client was handed have used of its quotas.
    fn spent(&mut self, core: &Core, choices: &[&ChoiceState], at_ms: u64) -> Vec<Spent> {
        let policies = core.policies();
        if policies.counted().is_empty() {
            return Vec::new();
        }
        let request: Hash = *self.name.get_or_insert_with(|| core.name_of_bytes());
        // Those that a call stands for, in its place.
        let names = |call: &Assembled| match made_of(call) {
            made if made.is_empty() => vec![call.name()],
            made => made.into_iter().map(|made| made.name).collect(),
        };
        let settled = choices.iter().filter(|choice| !choice.is_waiting());
        let released: Vec<String> = settled.flat_map(|choice| choice.released()).flat_map(names).collect();
        let uses = policies.counted().iter().enumerate().map(|(at, counted)| Spent {
            quota: core.identity.quota(&counted.name),
            request,
            calls: released.iter().filter(|name| policies.counts_for(name) == Some(at)).count(),
            at_ms,
            window_ms: counted.window_ms,
        });
        uses.filter(|spent| spent.calls > 0).collect()
    }
}
