//! A request read through the policies: what the ledger knows of it is looked up, in one trip, and its transcript is
//! folded. The handler's steps 3 and 4; changes and sends nothing.

use super::Gateway;
use crate::config::AskUsage;
use crate::ledger::{Ask, Facts, MOST_LOOKED_UP, ModelFacts, Overflow};
use crate::policy::plan::{BatchSummaries, Plan};
use crate::policy::set::{Judge, PolicySet};
use crate::proxy::exchange::Exchange;
use crate::proxy::meter::Meter;
use crate::proxy::record::Record;
use crate::rewrite::confirm::{Answer, answer, token};
use crate::rewrite::restore::{places, restored};
use crate::rewrite::sent::Sent;
use crate::rewrite::summary::question;
use crate::telemetry::outcome::{Context, PrefixBreak, SummaryResult};
use crate::transcript::Transcript;
use crate::transcript::identity::{CallKey, Domain, Hash, HashKey, Identity};
use crate::transcript::prompt::{Histories, history};
use crate::transcript::summaries::Pin;
use crate::wire::request::Request;
use bytes::Bytes;
use hyper::http::request::Parts;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is known once the policies have read a request.
pub(super) struct Reading {
    pub(super) identity: Identity,
    /// The model at its upstream.
    pub(super) model: Hash,
    pub(super) facts: Facts,
    pub(super) plan: Plan,
    pub(super) judge: Judge,
    pub(super) restored: Vec<(usize, Bytes)>,
    pub(super) chain: Hash,
    /// What the user says to a question of ours.
    pub(super) answer: Option<Answer>,
    /// Under which the user may be asked about calls of the reply.
    pub(super) token: Option<String>,
    pub(super) meter: Meter,
    /// The stream is to be asked for its usage.
    pub(super) asks_usage: bool,
    pub(super) length: Length,
    /// How long a summary was waited for.
    pub(super) waited: Duration,
}

/// What is known of the request's length, and where more is to be remembered.
pub(crate) struct Length {
    pub(crate) conversation: Hash,
    /// The name of the request's messages.
    pub(crate) history: Hash,
    /// See [`Transcript::overflows`].
    overflows: Vec<usize>,
}

impl Gateway {
    /// Looks up what the ledger knows and reads the transcript through the policies.
    pub(super) async fn look(
        self: &Arc<Self>,
        (policies, identity): (&PolicySet, Identity),
        parts: &Parts,
        (request, body): (&Request, &Bytes),
        record: &mut Record,
    ) -> Reading {
        let model_name = request.model_name(body);
        // The path too: some providers name the model there (Azure's deployments).
        let place = [self.upstream.name().as_bytes(), parts.uri.path().as_bytes(), model_name.as_bytes()];
        let model = self.key.hash(Domain::Model, &place);
        let conversation = identity.conversation(request, body);
        let mut transcript = self.transcript((request, body), &identity);
        let calls: Vec<CallKey> = transcript.newest_calls(MOST_LOOKED_UP).map(|call| call.key).collect();
        let places = places(&transcript, MOST_LOOKED_UP);
        let names: Vec<Hash> = places.iter().map(|place| place.name).collect();
        let request_name = self.name(&transcript);
        let is_asking = policies.confirming().is_some() && !self.is_observing();
        let answer = is_asking.then(|| answer(&transcript, &places)).flatten().filter(|_| !request.odd);
        let histories = Histories::read(&transcript, model);
        let earlier: Vec<Hash> = histories.earlier.iter().map(|(_, name)| *name).collect();
        let ask = Ask {
            calls: &calls,
            places: &names,
            model,
            request: request_name,
            conversation,
            histories: &earlier,
            answered: answer.as_ref().map(|answer| answer.anchor),
        };
        let facts = self.ledger.look_up(ask).await;
        transcript.learn_times(&facts.released_ms, self.now_ms());
        let (mut restored, lost) = restored(&transcript, &places, &facts.rounds);
        transcript.hidden_rounds.clone_from(&restored);
        transcript.shared_body = Some(body.clone());
        let is_known =
            |overflow: &&Overflow| history(&transcript, model, overflow.messages) == Some(overflow.history);
        let mut overflows: Vec<usize> =
            facts.overflows.iter().filter(is_known).map(|it| it.messages).collect();
        overflows.sort_unstable();
        transcript.overflows.clone_from(&overflows);
        let (mut plan, judge, waited) = self.decide(policies, &transcript, parts, record).await;
        let outcome = &mut record.outcome;
        if request.odd {
            // Parsers differ on what its strings say, so it goes up as it is; the reply is judged all the same,
            // or any page on the web could switch that off.
            outcome.ungoverned = Some("odd_text");
            plan.change_nothing();
            restored.clear();
        }
        outcome.context = self.hold_out(policies, &transcript, &mut plan);
        if outcome.context.held_out {
            // Nothing was cut.
            plan.regrets.clear();
        }
        let (plain, none) = (Plan::default(), Vec::new());
        let (seen, rounds) = if self.is_observing() { (&plain, &none) } else { (&plan, &restored) };
        let sent = Sent { transcript: &transcript, plan: seen, restored: rounds };
        let meter = Meter::read(sent, &histories, &facts, (model, conversation));
        outcome.times.upstream += waited;
        outcome.overflow_remembered = !overflows.is_empty() && !self.is_observing();
        outcome.foretold = Some(meter.foretold());
        outcome.conversation = Some(identity.explicit.clone().unwrap_or_else(|| conversation.to_string()));
        outcome.model = Some(model_name.into_owned());
        outcome.repeated = facts.repeated;
        outcome.lost_rounds = lost;
        outcome.prefix_breaks.extend((lost > 0).then_some(PrefixBreak::Ledger));
        tell_new(&transcript, &plan, record);
        let chain = transcript.calls.chain(&identity);
        drop(transcript);
        // Nobody can know it beforehand: it comes from a secret of its own.
        let random = || HashKey::random().hash(Domain::Confirmation, &[&request_name.0.to_le_bytes()]);
        let token = is_asking.then(|| token(random()));
        let asks_usage = self.asks_usage(policies, request, facts.model);
        let length = Length { conversation, history: histories.whole, overflows };
        Reading {
            identity,
            facts,
            plan,
            judge,
            restored,
            chain,
            model,
            meter,
            asks_usage,
            answer,
            token,
            length,
            waited,
        }
    }

    /// Reads the transcript through the policies; once more where a summary is to be asked for first. Says how long that
    /// took.
    async fn decide(
        self: &Arc<Self>,
        policies: &PolicySet,
        transcript: &Transcript<'_>,
        parts: &Parts,
        record: &mut Record,
    ) -> (Plan, Judge, Duration) {
        let (plan, judge) = policies.read(transcript);
        let known = plan.summaries != BatchSummaries::default();
        let changes = plan.refusal.is_none() && !transcript.request.odd && !self.is_observing();
        if !(known && changes) || self.is_held_out(transcript) {
            return (plan, judge, Duration::ZERO);
        }
        let metrics = &self.telemetry.metrics;
        if plan.summaries.told > 0 {
            metrics.count_summary(SummaryResult::Pinned);
        }
        for lost in &plan.summaries.lost {
            // Told as cleared from now on, whatever it was before.
            self.summaries.pins.pin(*lost, Pin::Cleared);
            metrics.count_summary(SummaryResult::Lost);
        }
        record.outcome.prefix_breaks.extend((!plan.summaries.lost.is_empty()).then_some(PrefixBreak::Ledger));
        let Some(wanted) = &plan.summaries.wanted else { return (plan, judge, Duration::ZERO) };
        let began = Instant::now();
        self.summarise(wanted, parts, question(transcript, wanted)).await;
        let waited = began.elapsed();
        let (plan, judge) = policies.read(transcript);
        (plan, judge, waited)
    }

    /// Whether policies leave the conversation's texts alone.
    fn is_held_out(&self, transcript: &Transcript<'_>) -> bool {
        let settings = &self.config.conversation;
        let name = || transcript.identity.lasting_name(transcript.request, transcript.body);
        settings.holdout > 0 && settings.holds_out(name().0)
    }

    /// Leaves the texts of conversations alone that are held out; tells whether policies wanted to change any.
    fn hold_out(&self, policies: &PolicySet, transcript: &Transcript<'_>, plan: &mut Plan) -> Context {
        let touched = policies.touches_context(plan);
        if self.is_observing() {
            return Context { touched, held_out: true };
        }
        let held_out = self.is_held_out(transcript);
        if held_out {
            policies.leave_context(plan);
        }
        Context { touched, held_out }
    }

    /// Whether the stream is asked for the usage that the client did not order.
    fn asks_usage(&self, policies: &PolicySet, request: &Request, known: ModelFacts) -> bool {
        let wanted = match self.config.upstream.ask_usage {
            AskUsage::Never => false,
            AskUsage::Auto => policies.needs_usage(),
            AskUsage::Always => true,
        };
        let told = !request.stream || request.include_usage;
        wanted && !told && !self.is_observing() && !known.no_stream_options
    }

    /// What policies want of a request that the upstream refused for its length.
    pub(crate) fn shortened(&self, exchange: &Exchange) -> Plan {
        let Exchange { request, body, identity, restored, length, record, .. } = exchange;
        let profile = record.outcome.profile.as_deref();
        let profile = profile.and_then(|name| self.config.profiles.named(name).ok());
        let mut transcript = self.transcript((request, body), identity);
        transcript.overflowed = true;
        transcript.overflows.clone_from(&length.overflows);
        transcript.hidden_rounds.clone_from(restored);
        self.config.policies_of(profile).read(&transcript).0
    }

    /// What `body` tells of its conversation.
    fn transcript<'a>(
        &'a self,
        (request, body): (&'a Request, &'a Bytes),
        identity: &'a Identity,
    ) -> Transcript<'a> {
        let model = request.model_name(body);
        let mut transcript = Transcript::read(request, body, identity, &*self.memo);
        transcript.token_factor = self.config.token_factor(&model);
        transcript.context_window = self.config.context_window(&model);
        transcript.summaries = Some(Arc::clone(&self.summaries.pins) as _);
        transcript
    }

    /// The request's own name: its calls, the number of its messages, and every byte behind its last reply.
    fn name(&self, transcript: &Transcript<'_>) -> Hash {
        let (request, body) = (transcript.request, transcript.body);
        let new_from = transcript.last_assistant().map_or(0, |last| request.messages[last].span.end as usize);
        let chain = transcript.calls.chain(transcript.identity).0.to_le_bytes();
        let count = request.messages.len().to_le_bytes();
        self.key.hash(Domain::Request, &[&chain, &count, &body[new_from..]])
    }
}

/// Records what is new since the last reply.
fn tell_new(transcript: &Transcript<'_>, plan: &Plan, record: &mut Record) {
    let new_from = transcript.last_assistant().map_or(0, |last| last + 1);
    record.planned(plan, new_from);
    record.breaks(plan, new_from);
    record.regrets(plan, new_from);
    transcript.results_from(new_from).for_each(|result| record.result(&result));
}
