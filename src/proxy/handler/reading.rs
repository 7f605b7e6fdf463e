//! A request read through the policies: what the ledger knows of it is looked up, in one trip, and its transcript is
//! folded. The handler's steps 3 and 4; changes and sends nothing.

use super::Gateway;
use crate::config::AskUsage;
use crate::ledger::{Ask, CallNames, Facts, MOST_LOOKED_UP, ModelFacts, Quota, SentRounds};
use crate::policy::plan::{BatchSummaries, Counted, Plan};
use crate::policy::set::{Judge, PolicySet};
use crate::proxy::clock::ms_at;
use crate::proxy::exchange::Exchange;
use crate::proxy::record::Record;
use crate::rewrite::confirm::{Answer, answer, token};
use crate::rewrite::restore::{Place, names, places, restored};
use crate::rewrite::sent::Sent;
use crate::rewrite::summary::question;
use crate::telemetry::outcome::{Context, Outcome, PrefixBreak, SummaryResult};
use crate::transcript::Transcript;
use crate::transcript::histories::Histories;
use crate::transcript::identity::{Domain, Hash, HashKey, Identity};
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
    /// The digest of all that the model sees of the conversation.
    pub(super) context: Hash,
    /// What the user says to a question of ours.
    pub(super) answer: Option<Answer>,
    /// Under which the user may be asked about calls of the reply.
    pub(super) token: Option<String>,
    pub(super) sent: SentRounds,
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

/// What of a request the ledger is asked about.
struct Sought {
    model: Hash,
    conversation: Hash,
    /// The request's own name.
    request: Hash,
    places: Vec<Place>,
    histories: Histories,
    answer: Option<Answer>,
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
        let mut transcript = self.transcript((request, body), &model_name, &identity);
        let is_asking = policies.confirming().is_some() && !self.is_observing();
        let sought = self.seek(&transcript, model, is_asking);
        let now = record.lap();
        let now_ms = ms_at(now);
        let facts = self.look_up(policies, &transcript, &sought, (now, now_ms)).await;
        let (mut restored, lost) = restored(&transcript, &sought.places, &facts.rounds, &facts.released);
        let overflows = facts.known_overflows(&transcript, model);
        transcript.learn_releases(&facts.released, now_ms);
        transcript.hidden_rounds.clone_from(&restored);
        transcript.shared_body = Some(body.clone());
        transcript.spent.clone_from(&facts.spent);
        transcript.overflows.clone_from(&overflows);
        let (mut plan, mut judge) = policies.read(&transcript);
        let asked = self.summarise_first(&plan, &transcript, parts, record).await;
        if asked.is_some() {
            (plan, judge) = policies.read(&transcript);
        }
        let waited = asked.unwrap_or_default();
        let outcome = &mut record.outcome;
        if request.odd {
            // Parsers differ on what its strings say, so it goes up as it is; the reply is judged all the same,
            // or any page on the web could switch that off.
            outcome.ungoverned = Some("odd_text");
            plan.change_nothing();
            restored.clear();
        }
        outcome.context = self.hold_out(policies, &transcript, &mut plan);
        outcome.times.upstream += waited;
        outcome.overflow_remembered = !overflows.is_empty() && !self.is_observing();
        outcome.model = Some(model_name.into_owned());
        let (sent, keeps_rounds) = self.sent_rounds((&transcript, &restored), &sought, &facts);
        let Sought { conversation, request: request_name, histories, answer, .. } = sought;
        outcome.conversation = Some(identity.explicit.clone().unwrap_or_else(|| conversation.spelled()));
        tell_known(outcome, facts.repeated, (lost, keeps_rounds));
        tell_new(&transcript, &plan, record);
        let context = transcript.calls.context;
        drop(transcript);
        let token = is_asking.then(|| new_token(request_name));
        let asks_usage = self.asks_usage(policies, request, facts.model);
        let length = Length { conversation, history: histories.whole, overflows };
        Reading {
            identity,
            facts,
            plan,
            judge,
            restored,
            context,
            model,
            sent,
            asks_usage,
            answer,
            token,
            length,
            waited,
        }
    }

    /// What the ledger is to be asked about; of answers to questions only where there may have been any.
    fn seek(&self, transcript: &Transcript<'_>, model: Hash, is_asking: bool) -> Sought {
        let places = places(transcript, MOST_LOOKED_UP);
        let is_asking = is_asking && !transcript.request.odd;
        Sought {
            model,
            conversation: transcript.identity.conversation(transcript.request, transcript.body),
            request: self.name(transcript),
            histories: Histories::read(transcript, model),
            answer: is_asking.then(|| answer(transcript, &places)).flatten(),
            places,
        }
    }

    /// What the ledger knows, in one trip.
    async fn look_up(
        &self,
        policies: &PolicySet,
        transcript: &Transcript<'_>,
        sought: &Sought,
        (now, now_ms): (Instant, u64),
    ) -> Facts {
        let identity = transcript.identity;
        let calls = CallNames::newest(transcript);
        let names = names(&sought.places);
        let earlier: Vec<Hash> = sought.histories.earlier.iter().map(|(_, name)| *name).collect();
        let quota =
            |it: &Counted| Quota { name: identity.quota(&it.name), calls: it.calls, window_ms: it.window_ms };
        let quotas: Vec<Quota> = policies.counted().iter().map(quota).collect();
        let ask = Ask {
            calls: calls.keys(),
            places: &names,
            model: sought.model,
            request: sought.request,
            conversation: sought.conversation,
            histories: &earlier,
            answered: sought.answer.as_ref().map(|answer| answer.anchor),
            quotas: &quotas,
            bytes: if quotas.is_empty() {
                Hash::default()
            } else {
                self.name_of_bytes(identity, transcript.body)
            },
            now_ms,
            now,
        };
        let mut facts = self.ledger.look_up(ask).await;
        let news = calls.adopt(&mut facts, transcript);
        if !news.is_empty() {
            self.ledger.record(news);
        }
        facts
    }

    /// With which rounds the history is sent, and whether its known beginning was sent with the same ones.
    fn sent_rounds(
        &self,
        (transcript, restored): (&Transcript<'_>, &[(usize, Bytes)]),
        sought: &Sought,
        facts: &Facts,
    ) -> (SentRounds, bool) {
        let sent = Sent { transcript, restored: if self.is_observing() { &[] } else { restored } };
        let rounds = sent.rounds_before(transcript.request.messages.len());
        let histories = &sought.histories;
        (SentRounds { history: histories.whole, rounds }, sent.keeps_rounds(histories, &facts.sent_rounds))
    }

    /// Whether `plan` says something of summaries that may be acted on.
    fn has_summaries(&self, plan: &Plan, transcript: &Transcript<'_>) -> bool {
        let changes = plan.refusal.is_none() && !transcript.request.odd && !self.is_observing();
        plan.summaries != BatchSummaries::default() && changes && !self.is_held_out(transcript)
    }

    /// Tells what became of the plan's summaries, and asks for the one that it wants. Says how long that took: `None` where
    /// it wants none, else the policies are to read once more. They do so at the caller's: what a future returns is
    /// copied more than once.
    async fn summarise_first(
        self: &Arc<Self>,
        plan: &Plan,
        transcript: &Transcript<'_>,
        parts: &Parts,
        record: &mut Record,
    ) -> Option<Duration> {
        if !self.has_summaries(plan, transcript) {
            return None;
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
        let wanted = plan.summaries.wanted.as_ref()?;
        let began = Instant::now();
        self.summarise(wanted, parts, question(transcript, wanted)).await;
        Some(began.elapsed())
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
            plan.regrets.clear();
            return Context { touched, held_out: true };
        }
        let held_out = self.is_held_out(transcript);
        if held_out {
            policies.leave_context(plan);
            // Nothing was cut.
            plan.regrets.clear();
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
        let mut transcript = self.transcript((request, body), &request.model_name(body), identity);
        transcript.overflowed = true;
        transcript.overflows.clone_from(&length.overflows);
        transcript.hidden_rounds.clone_from(restored);
        let policies = self.config.policies_of(profile);
        let mut plan = policies.read(&transcript).0;
        if self.is_held_out(&transcript) {
            policies.leave_context(&mut plan);
        }
        plan
    }

    /// What `body`, a request to `model`, tells of its conversation.
    fn transcript<'a>(
        &'a self,
        (request, body): (&'a Request, &'a Bytes),
        model: &str,
        identity: &'a Identity,
    ) -> Transcript<'a> {
        let mut transcript = Transcript::read(request, body, identity, &*self.memo);
        transcript.token_factor = self.config.token_factor(model);
        transcript.context_window = self.config.context_window(model);
        transcript.summaries = Some(Arc::clone(&self.summaries.pins) as _);
        transcript
    }

    /// A request's name, equal for equal bytes of one caller alone.
    pub(crate) fn name_of_bytes(&self, identity: &Identity, body: &[u8]) -> Hash {
        self.key.hash(Domain::Request, &[b"bytes", &identity.principal.0.to_le_bytes(), body])
    }

    /// The request's own name: what the model sees of it, and every byte behind its last reply.
    fn name(&self, transcript: &Transcript<'_>) -> Hash {
        let (request, body) = (transcript.request, transcript.body);
        let new_from = transcript.last_assistant().map_or(0, |last| request.messages[last].span.end as usize);
        let context = transcript.calls.context.0.to_le_bytes();
        let count = request.messages.len().to_le_bytes();
        self.key.hash(Domain::Request, &[&context, &count, &body[new_from..]])
    }
}

/// A token that nobody can know beforehand: it comes from a secret of its own.
fn new_token(request: Hash) -> String {
    token(HashKey::random().hash(Domain::Confirmation, &[&request.0.to_le_bytes()]))
}

/// Records what the ledger knows: the request came before, what should have been put back and could not, and whether
/// what was put back earlier is.
fn tell_known(outcome: &mut Outcome, repeated: bool, (lost, keeps_rounds): (u32, bool)) {
    outcome.repeated = repeated;
    outcome.lost_rounds = lost;
    // A lost summary has told it already.
    let is_told = outcome.prefix_breaks.contains(&PrefixBreak::Ledger);
    let is_broken = lost > 0 || !keeps_rounds;
    outcome.prefix_breaks.extend((is_broken && !is_told).then_some(PrefixBreak::Ledger));
}

/// Records what is new since the last reply.
fn tell_new(transcript: &Transcript<'_>, plan: &Plan, record: &mut Record) {
    let new_from = transcript.last_assistant().map_or(0, |last| last + 1);
    record.planned(plan, new_from);
    record.breaks(plan, new_from);
    record.regrets(plan, new_from);
    transcript.results_from(new_from).for_each(|result| record.result(&result));
}
