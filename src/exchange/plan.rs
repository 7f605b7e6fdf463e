//! The phases look up and plan: what the state store is asked, and the policies run once over the conversation with what
//! it knows. Changes and sends nothing.

use super::error::ProxyError;
use super::running::Running;
use super::store::{CallNames, Facts, MOST_LOOKED_UP, ModelFacts, Quota, SentRounds};
use super::{Core, Now, Output, Phase, Shared, StoreQuery};
use crate::config::AskUsage;
use crate::policy::about::Counted;
use crate::policy::plan::{BatchSummaries, Plan};
use crate::policy::set::Judge;
use crate::rewrite::confirm::{Answer, Confirmation, answer, token};
use crate::rewrite::restore::{Place, names, places, restored};
use crate::rewrite::sent::Sent;
use crate::rewrite::summary::question;
use crate::telemetry::outcome::{Consent, Context, On, PrefixBreak, SummaryResult};
use crate::transcript::Known as KnownConversation;
use crate::transcript::Transcript;
use crate::transcript::histories::Histories;
use crate::transcript::identity::{Domain, Hash};
use bytes::Bytes;
use std::sync::Arc;

/// The name under which it is recorded what the user answers to a question.
const CONFIRM: &str = "confirm";

/// What was read of the conversation before the store was asked.
pub(super) struct Sought {
    kept: KnownConversation,
    model_name: String,
    /// The model at its upstream.
    model: Hash,
    conversation: Hash,
    /// The request's own name.
    request: Hash,
    histories: Histories,
    places: Vec<Place>,
    calls: CallNames,
    /// What the user may have said to a question of ours.
    answer: Option<Answer>,
}

/// A request that is planned but for a summary.
pub(super) struct Summarising {
    sought: Sought,
    known: Known,
    plan: Plan,
    judge: Judge,
}

/// What the store knows of a request, and what of it is put back.
struct Known {
    facts: Facts,
    restored: Vec<(usize, Bytes)>,
    /// Hidden exchanges that should have been put back and could not.
    lost: u32,
}

/// What is known once the policies have read the request, beside their plan.
pub(super) struct Planned {
    pub(super) facts: Facts,
    pub(super) judge: Judge,
    pub(super) restored: Vec<(usize, Bytes)>,
    /// The digest of all that the model sees of the conversation.
    pub(super) context: Hash,
    /// The model at its upstream.
    pub(super) model: Hash,
    pub(super) model_name: String,
    pub(super) length: Length,
    /// Under which the user may be asked about calls of the reply.
    pub(super) token: Option<String>,
    /// The stream is to be asked for its usage.
    pub(super) asks_usage: bool,
    pub(super) sent: SentRounds,
    answer: Option<Answer>,
}

/// What is known of the request's length, and where more is to be remembered.
pub(super) struct Length {
    pub(super) conversation: Hash,
    /// The name of the request's messages.
    pub(super) history: Hash,
    /// See [`Transcript::overflows`].
    pub(super) overflows: Vec<usize>,
}

/// The calls that a person has approved, with the name of the text that asked.
pub(super) type Approved = (Hash, Arc<Confirmation>);

impl Core {
    /// Reads the conversation and asks for what the store knows of it.
    pub(super) fn look_up(&mut self, now: Now) -> Phase {
        let model_name = self.request.model_name(&self.body).into_owned();
        let parts = [self.shared.upstream.as_bytes(), self.path.as_bytes(), model_name.as_bytes()];
        let model = self.shared.key.hash(Domain::Model, &parts);
        let transcript = Transcript::read(&self.request, &self.body, &self.identity, &*self.shared.memo);
        let transcript = self.shared.describe(transcript, &model_name);
        let places = places(&transcript, MOST_LOOKED_UP);
        let may_answer = self.asks_approval() && !self.request.odd;
        let answer = may_answer.then(|| answer(&transcript, &places)).flatten();
        let calls = CallNames::newest(&transcript);
        let histories = Histories::read(&transcript, model);
        let conversation = self.identity.conversation(&self.request, &self.body);
        let identity = &self.identity;
        let quota =
            |it: &Counted| Quota { name: identity.quota(&it.name), calls: it.calls, window_ms: it.window_ms };
        let quotas: Vec<Quota> = self.policies().counted().iter().map(quota).collect();
        let request = request_name(&transcript);
        let query = StoreQuery {
            calls: calls.keys().to_vec(),
            places: names(&places),
            histories: histories.earlier.iter().map(|(_, name)| *name).collect(),
            bytes: if quotas.is_empty() { Hash::default() } else { self.name_of_bytes() },
            quotas,
            model,
            request,
            conversation,
            answered: answer.as_ref().map(|answer| answer.anchor),
            now,
        };
        let kept = transcript.keep();
        self.outputs.push_back(Output::LookUp(query));
        let sought =
            Sought { kept, model_name, model, conversation, request, histories, places, calls, answer };
        Phase::LookUp(Box::new(sought))
    }

    /// Has the policies read the conversation with what the store knows.
    pub(super) fn planned(&mut self, mut sought: Sought, mut facts: Facts, now: Now) -> Phase {
        let (request, body, identity) =
            (Arc::clone(&self.request), self.body.clone(), Arc::clone(&self.identity));
        let shared = Arc::clone(&self.shared);
        let kept = std::mem::take(&mut sought.kept);
        let mut transcript = kept.of((&request, &body), &identity, &*shared.memo);
        let news = sought.calls.adopt(&mut facts, &transcript);
        if !news.is_empty() {
            self.outputs.push_back(Output::Store(news));
        }
        let (restored, lost) = restored(&transcript, &sought.places, &facts.rounds, &facts.released);
        transcript.learn_releases(&facts.released, now.ms);
        transcript.hidden_rounds.clone_from(&restored);
        transcript.shared_body = Some(body.clone());
        transcript.tier.clone_from(&self.tier);
        transcript.spent.clone_from(&facts.spent);
        transcript.overflows = facts.known_overflows(&transcript, sought.model);
        let (plan, judge) = self.policies().read(&transcript);
        let known = Known { facts, restored, lost };
        if let Some(question) = self.summarise_first(&plan, &transcript) {
            self.outputs.push_back(question);
            sought.kept = transcript.keep();
            return Phase::Summary(Box::new(Summarising { sought, known, plan, judge }));
        }
        self.made(&transcript, (sought, known), (plan, judge), now)
    }

    /// It is decided whether the batch of results has a summary.
    pub(super) fn summarised(&mut self, summarising: Summarising, summary: Option<&str>, now: Now) -> Phase {
        let Summarising { mut sought, known, mut plan, judge } = summarising;
        let (request, body, identity) =
            (Arc::clone(&self.request), self.body.clone(), Arc::clone(&self.identity));
        let shared = Arc::clone(&self.shared);
        let transcript = std::mem::take(&mut sought.kept).of((&request, &body), &identity, &*shared.memo);
        plan.fulfil_summary(summary);
        self.made(&transcript, (sought, known), (plan, judge), now)
    }

    /// Records the plan and goes on to send the request, or to refuse it.
    fn made(
        &mut self,
        transcript: &Transcript<'_>,
        (sought, known): (Sought, Known),
        (mut plan, judge): (Plan, Judge),
        now: Now,
    ) -> Phase {
        let Known { facts, mut restored, lost } = known;
        let Sought { model_name, model, conversation, histories, answer, .. } = sought;
        if self.request.odd {
            // Parsers differ on what its strings say, so it goes up as it is; the reply is judged all the same,
            // or any page on the web could switch that off.
            self.record.ungoverned = Some("odd_text");
            plan.change_nothing();
            restored.clear();
        }
        self.record.context = self.hold_out(&mut plan);
        self.record.overflow_remembered = !transcript.overflows.is_empty() && !self.is_observing();
        self.record.model = Some(model_name.clone());
        let (sent, keeps_rounds) = self.sent_rounds((transcript, &histories), &facts, &restored);
        let explicit = self.identity.explicit.clone();
        self.record.conversation = Some(explicit.unwrap_or_else(|| conversation.spelled()));
        self.note_known(facts.repeated, (lost, keeps_rounds));
        self.note_new(transcript, &plan);
        let token = self.asks_approval().then(|| self.token(sought.request, now));
        let asks_usage = self.asks_usage(facts.model);
        let length =
            Length { conversation, history: histories.whole, overflows: transcript.overflows.clone() };
        let context = transcript.calls.context;
        *self.plan = plan;
        if let Some(error) = self.refusal(&facts) {
            return self.fail(error);
        }
        let planned = Planned {
            facts,
            judge,
            restored,
            context,
            model,
            model_name,
            length,
            token,
            asks_usage,
            sent,
            answer,
        };
        self.approval(planned)
    }

    /// Why the request goes no further, if it does not: the shared store is away, or a policy refuses it.
    fn refusal(&mut self, facts: &Facts) -> Option<ProxyError> {
        let observes = self.is_observing();
        let strict = self.shared.config.ledger.strict && !observes;
        if facts.away || (facts.unwritten && strict) {
            self.record.without_store = Some(strict);
            if strict {
                return Some(ProxyError::LedgerAway);
            }
        }
        let refusal = self.plan.refusal.clone()?;
        self.record.act(On::Request, refusal.policy, "rejected", 1);
        let error = ProxyError::Refused { code: refusal.code, message: refusal.message };
        (!observes).then_some(error)
    }

    /// Takes the calls that the request approves, if it does, before it goes on.
    fn approval(&mut self, planned: Planned) -> Phase {
        let Some((answer, asked)) = planned.answer.as_ref().zip(planned.facts.asked.as_ref()) else {
            return self.send(planned, None);
        };
        if !asked.is_approved_by(&answer.text) {
            self.note_approval("declined", Consent::Declined, planned.facts.repeated);
            return self.send(planned, None);
        }
        let request = self.shared.key.hash(Domain::Request, &[b"approval", &self.body]);
        self.outputs.push_back(Output::Claim { anchor: answer.anchor, request });
        Phase::Claim(Box::new(planned))
    }

    /// Whether the approved calls are for this request to hand out is known.
    pub(super) fn claimed(&mut self, planned: Planned, is_taken: bool, now: Now) -> Phase {
        let (word, outcome) =
            if is_taken { ("approved", Consent::Approved) } else { ("lapsed", Consent::Expired) };
        self.note_approval(word, outcome, planned.facts.repeated);
        let asked = planned.answer.as_ref().zip(planned.facts.asked.as_ref());
        let approved = asked.filter(|_| is_taken).map(|(answer, asked)| (answer.anchor, Arc::clone(asked)));
        self.send(planned, approved.map(|approved| (approved, now)))
    }

    fn send(&mut self, planned: Planned, approved: Option<(Approved, Now)>) -> Phase {
        let mut running = Box::new(Running::new(self, planned));
        match approved {
            Some((approved, now)) => running.hand_out(self, &approved, now),
            None => running.send(self),
        }
        Phase::of(running)
    }

    fn note_approval(&mut self, word: &'static str, outcome: Consent, is_repeated: bool) {
        self.record.act(On::Request, CONFIRM, word, 1);
        // A question is answered once; who comes again to the byte has been counted.
        if !is_repeated {
            self.record.confirmations.push(outcome);
        }
    }

    /// With which hidden exchanges the history is sent, and whether its known beginning was sent with the same ones.
    fn sent_rounds(
        &self,
        (transcript, histories): (&Transcript<'_>, &Histories),
        facts: &Facts,
        restored: &[(usize, Bytes)],
    ) -> (SentRounds, bool) {
        let sent = Sent { transcript, restored: if self.is_observing() { &[] } else { restored } };
        let rounds = sent.rounds_before(transcript.request.messages.len());
        (SentRounds { history: histories.whole, rounds }, sent.keeps_rounds(histories, &facts.sent_rounds))
    }

    /// The question for a summary that the plan wants before it is followed. Records what became of earlier ones.
    fn summarise_first(&mut self, plan: &Plan, transcript: &Transcript<'_>) -> Option<Output> {
        let changes = plan.refusal.is_none() && !self.request.odd && !self.is_observing();
        if plan.summaries == BatchSummaries::default() || !changes || self.is_held_out() {
            return None;
        }
        self.record.summaries.extend((plan.summaries.told > 0).then_some(SummaryResult::Pinned));
        let lost = &plan.summaries.lost;
        if !lost.is_empty() {
            self.record.summaries.extend(lost.iter().map(|_| SummaryResult::Lost));
            self.record.prefix_breaks.push(PrefixBreak::Ledger);
            self.outputs.push_back(Output::SummariesLost(lost.clone()));
        }
        let wanted = plan.summaries.wanted.clone()?;
        let question = question(transcript, &wanted);
        Some(Output::Summarise { wanted, question })
    }

    /// Whether policies leave the conversation's texts alone, for comparison.
    pub(super) fn is_held_out(&self) -> bool {
        let settings = &self.shared.config.conversation;
        settings.holdout > 0 && settings.holds_out(self.identity.lasting_name(&self.request, &self.body).0)
    }

    /// Leaves the texts of conversations alone that are held out; says whether policies wanted to change any.
    fn hold_out(&self, plan: &mut Plan) -> Context {
        let policies = self.policies();
        let touched = policies.touches_context(plan);
        if self.is_observing() {
            plan.regrets.clear();
            return Context { touched, held_out: true };
        }
        let held_out = self.is_held_out();
        if held_out {
            policies.leave_context(plan);
            // Nothing was cut.
            plan.regrets.clear();
        }
        Context { touched, held_out }
    }

    /// Whether a person may be asked about calls.
    fn asks_approval(&self) -> bool {
        self.policies().confirming().is_some() && !self.is_observing()
    }

    /// A token that nobody can know beforehand, since it comes from a secret of its own.
    fn token(&self, request: Hash, now: Now) -> String {
        let parts = [&request.0.to_le_bytes()[..], &now.ms.to_le_bytes()];
        token(self.shared.secret.hash(Domain::Confirmation, &parts))
    }

    /// Whether the stream is asked for the usage that the client did not order.
    fn asks_usage(&self, known: ModelFacts) -> bool {
        let wanted = match self.shared.config.upstream.ask_usage {
            AskUsage::Never => false,
            AskUsage::Auto => self.policies().needs_usage(),
            AskUsage::Always => true,
        };
        let comes = !self.request.stream || self.request.include_usage;
        wanted && !comes && !self.is_observing() && !known.no_stream_options
    }

    /// What policies want of a request that the upstream refused for its length.
    pub(super) fn shortened(&self, length: &Length, restored: &[(usize, Bytes)]) -> Plan {
        let model = self.request.model_name(&self.body);
        let transcript = Transcript::read(&self.request, &self.body, &self.identity, &*self.shared.memo);
        let mut transcript = self.shared.describe(transcript, &model);
        transcript.tier.clone_from(&self.tier);
        transcript.overflowed = true;
        transcript.overflows.clone_from(&length.overflows);
        transcript.hidden_rounds = restored.to_vec();
        let mut plan = self.policies().read(&transcript).0;
        if self.is_held_out() {
            self.policies().leave_context(&mut plan);
        }
        plan
    }

    /// A request's name, equal for equal bytes of one caller alone.
    pub(super) fn name_of_bytes(&self) -> Hash {
        let principal = self.identity.principal.0.to_le_bytes();
        self.shared.key.hash(Domain::Request, &[b"bytes", &principal, &self.body])
    }
}

impl Shared {
    /// The transcript with what the configuration and other models know of it.
    fn describe<'a>(&self, mut transcript: Transcript<'a>, model: &str) -> Transcript<'a> {
        transcript.token_factor = self.config.token_factor(model);
        transcript.context_window = self.config.context_window(model);
        transcript.summaries = Some(Arc::clone(&self.summaries));
        transcript
    }
}

/// The request's own name: what the model sees of it, and every byte after its last reply.
fn request_name(transcript: &Transcript<'_>) -> Hash {
    let (request, body) = (transcript.request, transcript.body);
    let new_from = transcript.last_assistant().map_or(0, |last| request.messages[last].span.end as usize);
    let context = transcript.calls.context.0.to_le_bytes();
    let count = request.messages.len().to_le_bytes();
    transcript.identity.key.hash(Domain::Request, &[&context, &count, &body[new_from..]])
}
