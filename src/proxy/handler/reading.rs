//! A request read through the policies: what the ledger knows of it is looked up, in one trip, and its transcript is
//! folded. The handler's steps 3 and 4; changes and sends nothing.

use super::Gateway;
use crate::config::AskUsage;
use crate::ledger::{Ask, Facts, MOST_LOOKED_UP, ModelFacts};
use crate::policy::plan::Plan;
use crate::policy::set::{Judge, PolicySet};
use crate::proxy::meter::Meter;
use crate::proxy::record::Record;
use crate::rewrite::confirm::{Answer, answer, token};
use crate::rewrite::restore::{places, restored};
use crate::rewrite::sent::Sent;
use crate::telemetry::outcome::{Context, PrefixBreak};
use crate::transcript::Transcript;
use crate::transcript::identity::{CallKey, Domain, Hash, HashKey, Identity};
use crate::transcript::prompt::Histories;
use crate::wire::request::Request;
use bytes::Bytes;
use hyper::http::request::Parts;

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
}

impl Gateway {
    /// Looks up what the ledger knows and reads the transcript through the policies.
    pub(super) async fn look(
        &self,
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
        let (mut plan, judge) = policies.read(&transcript);
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
        Reading { identity, facts, plan, judge, restored, chain, model, meter, asks_usage, answer, token }
    }

    /// Leaves the texts of conversations alone that are held out; tells whether policies wanted to change any.
    fn hold_out(&self, policies: &PolicySet, transcript: &Transcript<'_>, plan: &mut Plan) -> Context {
        let settings = &self.config.conversation;
        let touched = policies.touches_context(plan);
        if self.is_observing() {
            return Context { touched, held_out: true };
        }
        let name = || transcript.identity.lasting_name(transcript.request, transcript.body);
        let held_out = settings.holdout > 0 && settings.holds_out(name().0);
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
    pub(crate) fn shortened(
        &self,
        (request, body): (&Request, &Bytes),
        identity: &Identity,
        profile: Option<&str>,
    ) -> Plan {
        let profile = profile.and_then(|name| self.config.profiles.named(name).ok());
        let mut transcript = self.transcript((request, body), identity);
        transcript.overflowed = true;
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
