//! The forms in which one client request is sent, one after the other: as the client wrote it and the policies want it, without
//! what the model refuses, shorter, as a re-ask, as the request for the final answer. Chooses the next form after a refusal,
//! and learns from the one that was accepted.

use super::Core;
use super::adaptation::{AdaptationTries, Subject, learned, placement};
use super::beginning::{Changes, ConversationBeginning, THINKING};
use super::exchange_form::{ExchangeForm, is_refusal, is_too_long};
use super::length::{Length, plan_shorter};
use super::notes::{BROKEN_HISTORY, TOOLS_UNSUPPORTED, note_sizes};
use super::refusals::ModelRefusals;
use super::room::{CutSizes, MOST_CUTS, Room};
use crate::judging::{AnswerTools, Judging};
use crate::reasks::Reasks;
use crate::settings::Tell;
use bytes::Bytes;
use dialects::error::UpstreamError;
use dialects::refusal::{named_lengths, open_call, overflows, refuses_signed_thinking};
use dialects::variant::{Added, Asking, PlannedRequest, Tools, Variant};
use model::Transcript;
use model::adaptation::{Adaptation, Adaptations};
use model::fact::Writes;
use model::message::Role;
use model::plan::{Change, Plan};
use model::record::{On, PrefixBreak, RefusalNote, Retry};
use model::request::Choice;
use model::source::ItemId;
use std::sync::Arc;
use wire::json::{decode, quote};

/// The line to the person where a model does not support tools.
const NO_TOOLS: &str = "(This model does not support tools. It answered without them.)";

/// A request to the upstream.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its body, in pieces.
    pub pieces: Vec<Bytes>,
    /// Its variant.
    pub variant: Box<Variant>,
    /// Which replies to it are streams.
    pub accepts: Accepts,
}

/// Which replies begin a stream, instead of being read to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// One that is a stream by its head, or turns out to be one.
    Streams,
    /// One that turns out to be a stream: the client has asked for a whole reply.
    UnannouncedStreams,
    /// None.
    WholeReplies,
}

/// See the module.
pub(super) struct RequestForms {
    variant: Variant,
    /// Hidden exchanges that are put back, each with the position of the message that follows it.
    restored: Vec<(usize, Bytes)>,
    /// The conversation, until the upstream has accepted the request: a request that is too long is planned again.
    transcript: Option<Box<Transcript>>,
    length: Length,
    /// What the model is known to refuse.
    refusals: ModelRefusals,
    /// How the conversation's beginning was sent, where what the model thinks is bound to that; until it is stored how this
    /// request was sent.
    beginning: Option<ConversationBeginning>,
    tries: AdaptationTries,
    tried: Vec<Adaptation>,
    /// The upstream refused the request in every form: its reply shows nothing that the model accepts.
    is_refused: bool,
    /// The form in which hidden exchanges are written.
    exchange_form: ExchangeForm,
    /// The variant before the tools were removed for a final answer.
    before_bare: Option<Box<Variant>>,
    /// The upstream has refused a final-answer request with tools.
    refuses_landing: bool,
    /// The client needs or accepts a call as its answer, so tools stay available to the end.
    keeps_tools: bool,
    /// The tool that a final-answer request forces, where the answer is a call.
    answer: Option<String>,
}

/// What the first form of a request depends on.
pub(super) struct FirstForm<'a> {
    pub(super) transcript: Box<Transcript>,
    /// See [`RequestForms`].
    pub(super) restored: Vec<(usize, Bytes)>,
    pub(super) length: Length,
    pub(super) refusals: ModelRefusals,
    pub(super) beginning: Option<ConversationBeginning>,
    pub(super) model_name: &'a str,
    pub(super) answers: &'a AnswerTools,
    /// Usage is to be requested for the stream.
    pub(super) asks_usage: bool,
}

/// The next step after a refused re-ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterRefusal {
    /// The upstream is asked once more, in another form.
    AskAgain,
    /// toolrein answers by a sentence of its own.
    SayNoAnswer,
    /// The client gets the error.
    GiveError,
}

impl RequestForms {
    /// The first form of a planned request. Observing, the request goes out as it came.
    pub(super) fn new(core: &mut Core, first: FirstForm<'_>) -> Self {
        let FirstForm { transcript, mut restored, length, refusals, beginning, .. } = first;
        let FirstForm { model_name, answers, asks_usage, .. } = first;
        let keeps_tools = core.request.choice == Choice::Forced || !answers.declared.is_empty();
        let tries = AdaptationTries::new(&core.request, subject_of(core, keeps_tools, !restored.is_empty()));
        let (settings, known) = (&core.shared.settings.notices, refusals.known());
        let placed = placement(settings.placement, &settings.system_models, model_name, known);
        let mut variant = tries.first(placed, known);
        variant.adapted |= broken_with_hidden(core, &restored, &variant, tries.first_repairs(known));
        if core.is_observing() {
            variant = Variant::plain(placed);
            *core.plan = Plan::default();
            restored.clear();
        }
        variant.ask_usage = asks_usage;
        note_left_out(core, &variant);
        note_known_refusals(core, &refusals, tries.avoided(&variant));
        let mut forms = Self {
            variant,
            restored,
            transcript: Some(transcript),
            length,
            refusals,
            beginning,
            tries,
            tried: Vec::new(),
            is_refused: false,
            exchange_form: ExchangeForm::default(),
            before_bare: None,
            refuses_landing: false,
            keeps_tools,
            answer: answers.last().map(str::to_owned),
        };
        forms.leave_out_thinking(core);
        forms
    }

    /// Leaves out what the model thought where the request no longer begins as it did then.
    fn leave_out_thinking(&mut self, core: &mut Core) {
        let (Some(beginning), Some(transcript)) = (&self.beginning, &self.transcript) else { return };
        if core.is_observing() {
            return;
        }
        let left_out = beginning.leave_out(transcript, self.changes(core));
        self.variant.without_thinking = left_out.items;
        if let Some(cause) = left_out.cause {
            core.record.act(On::Request, THINKING, cause, 1);
        }
    }

    fn changes<'a>(&'a self, core: &'a Core) -> Changes<'a> {
        Changes { plan: &core.plan, restored: &self.restored, adapted: self.variant.adapted }
    }

    pub(super) fn variant(&self) -> &Variant {
        &self.variant
    }

    /// Hidden exchanges that are put back, each with the position of the message that follows it.
    pub(super) fn restored(&self) -> &[(usize, Bytes)] {
        &self.restored
    }

    /// The conversation, until the upstream has accepted the request.
    pub(super) fn transcript(&self) -> Option<&Transcript> {
        self.transcript.as_deref()
    }

    /// The upstream has started to reply, so that the request is not planned again.
    pub(super) fn forget_transcript(&mut self) {
        self.transcript = None;
    }

    /// The request in its present form.
    pub(super) fn write(&self, core: &Core, accepts: Accepts) -> Outgoing {
        let planned = core.planned_request(&core.plan, &self.restored);
        let pieces = core.dialect.write(&planned, &self.variant).into_pieces();
        Outgoing { pieces, variant: Box::new(self.variant.clone()), accepts }
    }

    /// The line to the person, where the answer comes without the tools that the client offered.
    pub(super) fn preface(&self, core: &Core) -> Option<String> {
        let wanted = core.shared.settings.upstream.tools_unsupported_tell == Tell::Text;
        let is_without = self.variant.has(Adaptation::Tools) && !core.request.structured;
        (wanted && is_without && self.before_bare.is_none() && !core.is_observing())
            .then(|| NO_TOOLS.to_owned())
    }

    /// Whether the request narrows the choice of tools, in a way that the client did not ask for. `is_first`: the upstream
    /// was not asked again.
    pub(super) fn narrows_choice(&self, core: &Core, is_first: bool) -> bool {
        !core.plan.hidden.is_empty()
            && !self.variant.has(Adaptation::HiddenTools)
            && is_first
            && self.added(core).choice
    }

    /// The upstream's error goes to the client: its refusal says nothing of the forms that were tried.
    pub(super) fn give_up(&mut self) {
        self.is_refused = true;
        self.tried.clear();
    }

    /// Makes the next form the re-ask `asking`: with or without tools, and with the answer forced where it is a call.
    pub(super) fn ask_again(&mut self, core: &mut Core, mut asking: Asking) {
        // Where the answer is a call, that call is forced.
        self.variant.answer = self.answer.clone().filter(|_| asking.land);
        asking.land &= !self.keeps_tools || self.variant.answer.is_some();
        if let Some(before) = self.before_bare.take_if(|_| !asking.land) {
            self.variant = *before;
        }
        let refuses = self.refuses_landing || self.variant.tools() == Tools::WithoutChoice;
        if asking.land && refuses && self.before_bare.is_none() {
            // The model is known to refuse the `tool_choice` of a final-answer request.
            self.go_bare(core);
        }
        // It is unknown whether a model that was given no tools accepts the calls that it made nevertheless.
        if self.variant.has(Adaptation::Tools) {
            self.variant.adapted |= Adaptation::Flattened;
        }
        self.variant.asking = Some(asking);
    }

    /// The variant in which the history is repaired of what the error refuses, and the repairs.
    fn repaired(
        &mut self,
        core: &Core,
        status: u16,
        error: &UpstreamError,
    ) -> Option<(Variant, Adaptations)> {
        let broken = |of| broken_with_hidden(core, &self.restored, &self.variant, of);
        if let Some(repaired) = self.tries.after_broken(status, error, &self.variant, broken) {
            return Some(repaired);
        }
        let call = open_call(status, error).filter(|_| core.request.continues.is_some())?;
        // One that is in the request, with or without its result, is not one that the upstream keeps.
        let sent =
            core.dialect.write(&core.planned_request(&core.plan, &self.restored), &self.variant).join();
        let is_sent = memchr::memmem::find(&sent, quote(&call.id).as_bytes()).is_some();
        if is_sent { None } else { self.tries.after_open_call(call, &self.variant) }
    }

    /// A hidden exchange in the form that the upstream accepts.
    pub(super) fn written_exchange(&self, core: &Core, exchange: &Bytes) -> Bytes {
        self.exchange_form.write(core, exchange)
    }

    /// Chooses the next variant after an upstream's error; true if there is one to try.
    pub(super) fn falls_back(&mut self, core: &mut Core, status: u16, error: &UpstreamError) -> bool {
        let falls_back = self.chooses_next(core, status, error);
        if falls_back {
            self.leave_out_thinking(core);
        }
        falls_back
    }

    fn chooses_next(&mut self, core: &mut Core, status: u16, error: &UpstreamError) -> bool {
        if refuses_signed_thinking(error) {
            return self.forgets_thinking(core);
        }
        if overflows(status, error) {
            return self.makes_room(core, error);
        }
        if let Some((variant, repaired)) = self.repaired(core, status, error) {
            self.try_next(core, repaired);
            core.record.act(On::Request, BROKEN_HISTORY, "repaired", 1);
            if core.is_observing() {
                return false;
            }
            self.variant = variant;
            return true;
        }
        let added = self.added(core);
        let next = self.tries.after(status, error, &self.variant, added);
        let Some((variant, fallback)) = next else {
            return self.answers_without_tools(core, status, error);
        };
        self.try_next(core, fallback.into());
        match fallback {
            Adaptation::Placement => core.record.prefix_breaks.push(PrefixBreak::Placement),
            // Neither the client nor the model notices it.
            Adaptation::StreamOptions
            | Adaptation::ParallelMember
            | Adaptation::HiddenTools
            | Adaptation::OwnTools => {}
            other => core.record.act(On::Request, TOOLS_UNSUPPORTED, other.action(), 1),
        }
        if core.is_observing() {
            return false;
        }
        self.variant = variant;
        if self.variant.tools() == Tools::WithoutChoice {
            // Without a choice, tools alone ask for no final answer.
            self.answers_without_tools(core, status, error);
        }
        true
    }

    /// Leaves out what the model thought, which the upstream has refused; true if toolrein may have caused that.
    fn forgets_thinking(&mut self, core: &mut Core) -> bool {
        let may_be_own =
            self.beginning.as_mut().is_some_and(ConversationBeginning::note_refusal) && !core.is_observing();
        core.record.fallbacks.extend(may_be_own.then_some(Retry::Thinking));
        may_be_own
    }

    /// What toolrein wrote into the request that was refused, beside its messages.
    fn added(&self, core: &Core) -> Added {
        let Core { dialect, body, request, plan, .. } = core;
        let sent = dialect.write(&core.planned_request(plan, &self.restored), &self.variant).join();
        let read = dialect.read(&sent);
        read.map_or_else(|_| Added::default(), |read| Added::of((request, body), (&read, &sent)))
    }

    /// Notes fallbacks at once, since the client may leave before the end.
    fn try_next(&mut self, core: &mut Core, adaptations: Adaptations) {
        self.tried.extend(adaptations);
        core.record.fallbacks.extend(adaptations.iter().map(Retry::Adapted));
    }

    /// The upstream accepted the present variant: stores what that shows of the model.
    pub(super) fn accept(&mut self, core: &mut Core) {
        self.transcript = None;
        let is_unsent = core.record.upstream_requests == 0;
        if !self.is_refused
            && !is_unsent
            && let Some(beginning) = self.beginning.take()
        {
            let sent = beginning.sent(self.changes(core), self.variant.without_thinking);
            core.store(Writes::from_fact(sent.0, sent.1));
        }
        if core.is_observing() || self.variant.asking.is_some() || self.is_refused || is_unsent {
            return;
        }
        let refused = learned(&self.tried);
        let accepted = self.tries.accepted(&core.request, &self.variant);
        let model = self.refusals.news(refused, accepted);
        for kind in refused.iter().filter(|_| !model.is_empty()) {
            let note = RefusalNote { kind, scope: self.refusals.scope_when_met(kind), is_new: true };
            // It is learned again with each choice that finishes.
            if !core.record.refusals.contains(&note) {
                core.record.refusals.push(note);
            }
        }
        let overflow = self.tried.contains(&Adaptation::Overflow);
        let mut writes = Writes::default();
        writes.extend(model);
        if overflow {
            self.length.remember(&mut writes);
        }
        core.store(writes);
    }

    /// Prepares to ask for a final answer without tools and with the history as text.
    fn go_bare(&mut self, core: &mut Core) {
        self.before_bare.get_or_insert_with(|| Box::new(self.variant.clone()));
        self.variant.adapted |= Adaptation::BARE;
        self.variant.placement = self.variant.placement.of_last_try();
        self.try_next(core, Adaptation::BARE);
    }

    /// Shortens the request after the upstream refused it for its length; true if that was possible.
    fn makes_room(&mut self, core: &mut Core, error: &UpstreamError) -> bool {
        if !self.tries.may_shorten() {
            return false;
        }
        let Some(plan) = self.shorter_plan(core, error) else { return false };
        note_shortened(core, &plan, self.length.messages);
        self.tries.shorten(&plan);
        self.try_next(core, Adaptation::Overflow.into());
        if core.is_observing() {
            return false;
        }
        core.record.prefix_breaks.push(PrefixBreak::Overflow);
        note_sizes(core, &plan);
        *core.plan = plan;
        true
    }

    /// The policies' plan for the shorter request, with its longest results cut where it is still too long; `None` where it
    /// would not be shorter.
    fn shorter_plan(&mut self, core: &Core, error: &UpstreamError) -> Option<Plan> {
        let mut transcript = self.transcript.take()?;
        let mut plan = plan_shorter(core, &self.length, &mut transcript);
        let refused = self.sizes(core, &core.plan).tokens;
        let window = core.record.context_window.map(u64::from);
        let room = Room::after(named_lengths(error), refused, window, core.request.output_limit);
        for nth in 0..MOST_CUTS {
            let sizes = self.sizes(core, &plan);
            let most = if nth == 0 { room.most } else { room.cut_to };
            if sizes.tokens <= most {
                break;
            }
            let Some(chars) = sizes.most_chars(room.cut_to) else { break };
            self.length.most_chars = Some(chars);
            plan = plan_shorter(core, &self.length, &mut transcript);
        }
        self.transcript = Some(transcript);
        (self.sizes(core, &plan).tokens < refused).then_some(plan)
    }

    /// The sizes of the request as it is sent with this plan.
    fn sizes(&self, core: &Core, plan: &Plan) -> CutSizes {
        let Core { dialect, body, request, shared, identity, .. } = core;
        let planned = core.planned_request(plan, &self.restored);
        let sent = dialect.write(&planned, &self.variant).join();
        let Ok(read) = dialect.read(&sent) else { return CutSizes::default() };
        let (read, model) = ((Arc::new(read), sent), request.model_name(body));
        let transcript = shared.read_transcript(read, <(Vec<_>, _)>::default(), Arc::clone(identity), &model);
        let mut sum = transcript.definition_tokens() + transcript.instructions_tokens();
        let mut results = Vec::new();
        for view in transcript.views() {
            sum += view.tokens();
            let texts = view.message.content.texts().filter(|_| view.message.role == Role::Tool);
            let size = |text| (view.tokens_of(text).tokens(), decode(text, view.body).chars().count());
            results.extend(texts.map(size));
        }
        CutSizes { tokens: sum.tokens(), results }
    }

    /// Decides what follows after the upstream refused, with this status and error, to be asked again.
    pub(super) fn after_refused_reask(
        &mut self,
        core: &mut Core,
        (judging, reasks): (&mut Judging, &mut Reasks),
        status: u16,
        error: &UpstreamError,
    ) -> AfterRefusal {
        let Some(lands) = self.variant.asking.as_ref().map(|asking| asking.land) else {
            return AfterRefusal::GiveError;
        };
        if is_too_long(status, error) {
            return self.after_overflow(core, judging, reasks);
        }
        if !is_refusal(status, error) {
            return AfterRefusal::GiveError;
        }
        if lands && !self.variant.has(Adaptation::Tools) {
            self.refuses_landing = true;
            self.go_bare(core);
        } else if !lands && !self.variant.has(Adaptation::Flattened) && !self.exchange_form.is_plain {
            self.exchange_form.is_plain = true;
            let plain = ExchangeForm { is_plain: true, is_short: false };
            self.rewrite_exchanges(reasks, |exchange| plain.write(core, exchange));
            self.try_next(core, Adaptation::Flattened.into());
        } else if !lands && !self.keeps_tools {
            self.ask_for_answer(core, judging);
        } else {
            return AfterRefusal::SayNoAnswer;
        }
        AfterRefusal::AskAgain
    }

    /// Makes the request that was not sent yet the final-answer request, where a policy knows that no call may run.
    pub(super) fn land_at_once(&mut self, core: &mut Core, judging: &mut Judging) {
        let Some(policy) = core.plan.final_answer else { return };
        let may_call = core.planned_request(&core.plan, &[]).may_call();
        if !may_call || (self.keeps_tools && self.answer.is_none()) {
            return;
        }
        judging.read_parameters(&core.planned_request(&core.plan, &[]));
        judging.land();
        self.variant.answer = self.answer.clone();
        self.variant.asking = Some(Asking { rounds: Vec::new(), land: true });
        core.record.act(On::Request, policy, "final_answer", 1);
        if self.variant.tools() == Tools::WithoutChoice {
            self.go_bare(core);
        }
    }

    /// The upstream refused the final-answer request, which came first: true if it is to be sent without tools.
    fn answers_without_tools(&mut self, core: &mut Core, status: u16, error: &UpstreamError) -> bool {
        let lands = self.variant.asking.as_ref().is_some_and(|asking| asking.land);
        if !lands || self.variant.has(Adaptation::Tools) || !is_refusal(status, error) {
            return false;
        }
        self.go_bare(core);
        true
    }

    /// A re-ask was too long for the model: what was hidden is shortened once, and the model is to answer.
    fn after_overflow(
        &mut self,
        core: &mut Core,
        judging: &mut Judging,
        reasks: &mut Reasks,
    ) -> AfterRefusal {
        if self.exchange_form.is_short {
            return AfterRefusal::SayNoAnswer;
        }
        self.exchange_form.is_short = true;
        let short = ExchangeForm { is_plain: false, is_short: true };
        self.rewrite_exchanges(reasks, |exchange| short.write(core, exchange));
        self.try_next(core, Adaptation::Overflow.into());
        self.ask_for_answer(core, judging);
        AfterRefusal::AskAgain
    }

    /// Turns the re-ask into the final-answer request.
    fn ask_for_answer(&mut self, core: &mut Core, judging: &mut Judging) {
        judging.read_parameters(&core.planned_request(&core.plan, &[]));
        judging.land();
        let lands = !self.keeps_tools;
        if let Some(asking) = &mut self.variant.asking {
            asking.land = lands;
        }
        let refuses = self.refuses_landing || self.variant.tools() == Tools::WithoutChoice;
        if lands && refuses && self.before_bare.is_none() {
            self.go_bare(core);
        }
    }

    /// Writes the hidden exchanges anew: those of the re-ask, and those that are stored for later requests.
    fn rewrite_exchanges(&mut self, reasks: &mut Reasks, write: impl Fn(&Bytes) -> Bytes) {
        reasks.rewrite(&write);
        if let Some(asking) = &mut self.variant.asking {
            asking.rounds.iter_mut().for_each(|round| *round = write(round));
        }
    }
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

/// Notes what is left out from the start, because the model is known to refuse it.
fn note_left_out(core: &mut Core, variant: &Variant) {
    let of_tools = Adaptation::Tools | Adaptation::Flattened | Adaptation::Streaming;
    let left_out = Adaptation::CHOICES | of_tools;
    for adaptation in variant.adapted & left_out {
        core.record.act(On::Request, TOOLS_UNSUPPORTED, adaptation.action(), 1);
    }
    if !variant.repairs().is_empty() {
        core.record.act(On::Request, BROKEN_HISTORY, "repaired", 1);
    }
}

/// Notes which known refusals the request avoids.
fn note_known_refusals(core: &mut Core, refusals: &ModelRefusals, avoided: Adaptations) {
    for kind in refusals.known() & avoided {
        let note = RefusalNote { kind, scope: refusals.scope(kind), is_new: false };
        core.record.refusals.push(note);
    }
}

/// What strict upstreams refuse in the history with the hidden exchanges, as far as `of` asks: a call of the client's may
/// have the id of one of those. The calls are examined as calls also where they are sent as text, since they are repaired
/// before they become text.
fn broken_with_hidden(
    core: &Core,
    restored: &[(usize, Bytes)],
    variant: &Variant,
    of: Adaptations,
) -> Adaptations {
    let planned = core.planned_request(&core.plan, restored);
    if of.is_empty() || restored.is_empty() {
        return core.dialect.broken(&planned, of);
    }
    let with_calls = Variant { adapted: variant.adapted - Adaptation::Flattened, ..variant.clone() };
    let sent = core.dialect.write(&planned, &with_calls).join();
    match core.dialect.read(&sent) {
        Ok(read) => core.dialect.broken(&PlannedRequest::new(&sent, &read, &core.plan), of),
        Err(_) => core.dialect.broken(&planned, of),
    }
}

/// Notes the changes to this request that were not decided before the refusal. `messages`: how many it has.
fn note_shortened(core: &mut Core, plan: &Plan, messages: usize) {
    let (cleared, dropped) = (core.plan.cleared().count(), core.plan.dropped.len());
    for edit in plan.cleared().skip(cleared).filter(|edit| edit.decided == messages) {
        core.record.act(On::Request, edit.policy, edit.change.word(), 1);
    }
    for dropped in plan.dropped.iter().skip(dropped).filter(|dropped| dropped.decided == messages) {
        core.record.act(On::Request, dropped.policy, "turns_dropped", 1);
    }
    let is_gone = |item: ItemId| plan.drops(item) || plan.cleared().any(|edit| edit.item == item);
    let cuts = plan.effective_edits().filter(|edit| matches!(edit.change, Change::Shorten { .. }));
    for edit in cuts.filter(|edit| !is_gone(edit.item) && !core.plan.edits.contains(edit)) {
        core.record.act(On::Request, edit.policy, edit.change.word(), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;
    use crate::core::testing::core;
    use dialects::error::parse;
    use model::identity::Hash;
    use model::memo::NoMemo;
    use model::store::{Evidence, KnownEvidence, ModelKeys};
    use policies::set::PolicySet;
    use serde_json::{Value, json};
    use std::time::Duration;

    const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#;

    fn forms(core: &mut Core) -> RequestForms {
        let transcript = Transcript::read(
            Arc::clone(&core.request),
            core.body.clone(),
            Arc::clone(&core.identity),
            Arc::new(NoMemo),
        );
        let keys = ModelKeys { all: Hash(1), own: Hash(2) };
        let remember = Duration::from_secs(3600);
        let first = FirstForm {
            transcript: Box::new(transcript),
            restored: Vec::new(),
            length: Length::default(),
            refusals: ModelRefusals::new(keys, Hash(1), KnownEvidence::default(), remember, 1_000),
            beginning: None,
            model_name: "m",
            answers: &AnswerTools::default(),
            asks_usage: false,
        };
        RequestForms::new(core, first)
    }

    fn sent(forms: &RequestForms, core: &Core) -> Value {
        serde_json::from_slice(&forms.write(core, Accepts::Streams).pieces.concat()).unwrap()
    }

    fn refusal(message: &str) -> UpstreamError {
        parse(json!({"error": {"message": message}}).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_first_form_is_the_request_as_it_came() {
        let mut core = core(BODY, PolicySet::default());
        let forms = forms(&mut core);
        assert_eq!(forms.write(&core, Accepts::Streams).pieces.concat(), BODY.as_bytes());
    }

    #[test]
    fn the_form_after_a_refusal_of_tools_has_none_and_what_was_refused_is_learned_when_it_is_accepted() {
        let mut core = core(BODY, PolicySet::default());
        let mut forms = forms(&mut core);
        core.record.upstream_requests = 2;
        assert!(forms.falls_back(&mut core, 400, &refusal("registry.ollama.ai/m does not support tools")));
        assert_eq!(sent(&forms, &core)["tools"], Value::Null);
        assert_eq!(core.record.fallbacks, [Retry::Adapted(Adaptation::Tools)]);
        forms.accept(&mut core);
        let Some(Output::Store(writes)) = core.next_output() else { panic!("nothing was learned") };
        assert!(!writes.get::<Evidence>().is_empty());
        assert!(forms.transcript().is_none(), "an accepted request is not planned again");
    }

    #[test]
    fn nothing_is_learned_where_the_upstream_refused_every_form() {
        let mut core = core(BODY, PolicySet::default());
        let mut forms = forms(&mut core);
        core.record.upstream_requests = 2;
        assert!(forms.falls_back(&mut core, 400, &refusal("registry.ollama.ai/m does not support tools")));
        assert!(!forms.falls_back(&mut core, 400, &refusal("the model is on holiday")));
        forms.give_up();
        forms.accept(&mut core);
        assert!(core.next_output().is_none());
    }

    #[test]
    fn a_re_ask_for_the_final_answer_forbids_calls_and_keeps_the_tools() {
        let mut core = core(BODY, PolicySet::default());
        let mut forms = forms(&mut core);
        let rounds = vec![Bytes::from_static(br#"{"role":"assistant","content":"x"}"#)];
        forms.ask_again(&mut core, Asking { rounds, land: true });
        let sent = sent(&forms, &core);
        assert_eq!((&sent["tool_choice"], sent["tools"].as_array().map(Vec::len)), (&json!("none"), Some(1)));
        assert_eq!(sent["messages"][1]["content"], "x");
    }
}
