//! A request in flight, in whatever variant and however often it is sent: its state, and the calls of its replies that
//! wait for a person's decision.

use super::account::OpenAccount;
use super::answer::Replies;
use super::error::ProxyError;
use super::fallback::Fallbacks;
use super::notes::ReaskCause;
use super::plan::{Approved, Length};
use super::quota_uses::QuotaUses;
use super::refusals::ModelRefusals;
use super::refused_reask::ExchangeForm;
use super::store::{News, SentExchanges};
use super::{ApprovalRequest, AskedModel, Core, Input, Now, Output};
use crate::confirm::plain_words;
use crate::judging::Judging;
use crate::pipeline::{ClientChoice, ReplyPipeline};
use crate::reasks::Reasks;
use crate::repeats::BlockedCalls;
use crate::settings::Tell;
use bytes::Bytes;
use dialects::Handed;
use dialects::question::written;
use dialects::reply::Form;
use dialects::variant::{Tools, Variant};
use model::Transcript;
use model::calls::arguments_hash;
use model::identity::{Domain, Hash};
use model::plan::ModelQuestion;
use model::plan::approval::{ApprovalDecision, Decided, HeldCall};
use model::record::{ApprovalRecord, Consent, Fallback, JudgedCall, On, Said, Verdict};
use policies::about::Confirming;
use policies::pattern::any_concerns;
use std::sync::Arc;

/// The line to the person where a model does not support tools.
const NO_TOOLS: &str = "(This model does not support tools. It answered without them.)";

/// A request to the upstream, in whatever variant and however often it is sent, and its replies.
pub(super) struct Running {
    /// The conversation, until the upstream has accepted the request: a request that is too long is planned again.
    pub(super) transcript: Option<Box<Transcript>>,
    /// Hidden exchanges that are put back, each with the position of the message that follows it.
    pub(super) restored: Vec<(usize, Bytes)>,
    /// The digest of all that the model sees of the conversation.
    pub(super) context: Hash,
    /// The same without the ids of calls and results.
    pub(super) context_without_ids: Hash,
    /// What the model is known to refuse.
    pub(super) refusals: ModelRefusals,
    pub(super) length: Length,
    pub(super) variant: Variant,
    pub(super) fallbacks: Fallbacks,
    pub(super) tried: Vec<Fallback>,
    /// The upstream refused the request in every variant: its reply shows nothing that the model accepts.
    pub(super) is_refused: bool,
    /// The blocked calls that the model may repeat.
    pub(super) blocked: BlockedCalls,
    pub(super) reasks: Reasks,
    /// The form in which hidden exchanges are written.
    pub(super) exchange_form: ExchangeForm,
    /// The variant before the tools were removed for a final answer.
    pub(super) before_bare: Option<Box<Variant>>,
    /// The upstream has refused a final-answer request with tools.
    pub(super) refuses_landing: bool,
    /// The client needs or accepts a call as its answer, so tools stay available to the end.
    pub(super) keeps_tools: bool,
    /// The tool that a final-answer request forces, where the answer is a call.
    pub(super) answer: Option<String>,
    /// With which hidden exchanges the history is sent; `None` after that was reported.
    pub(super) sent: Option<SentExchanges>,
    /// Where a policy limits the account.
    pub(super) open_account: Option<OpenAccount>,
    /// What is used of quotas.
    pub(super) quotas: QuotaUses,
    /// How many judged calls are in the record.
    pub(super) noted: usize,
    /// Why the model was asked again, each time.
    pub(super) reask_causes: Vec<ReaskCause>,
    /// The calls that wait, for the record if the client leaves.
    pub(super) held: Vec<(u32, JudgedCall)>,
    /// The calls that wait for another model's answer, each with the policy that asks.
    pub(super) asking: Vec<(u32, &'static str)>,
    /// Its reply is calls that a person has approved.
    pub(super) hands_out: bool,
    pub(super) replying: Replying,
}

/// The state of the replies.
pub(super) enum Replying {
    /// No reply for the client has come.
    Nothing(Box<Judging>),
    Judged(Box<Replies>),
    Over,
}

impl Running {
    /// Handles an input.
    pub(super) fn on(&mut self, core: &mut Core, input: Input, now: Now) {
        self.replying = match (std::mem::replace(&mut self.replying, Replying::Over), input) {
            (replying, Input::Resent) => {
                core.record.fallbacks.push(Fallback::Stale);
                replying
            }
            (Replying::Nothing(judging), Input::StreamBegins { ends_by_closing }) => {
                self.begin_stream(core, *judging, ends_by_closing)
            }
            (Replying::Nothing(judging), Input::Reply(reply)) => self.begin_whole(core, *judging, reply, now),
            (Replying::Nothing(_), Input::NotSent(error) | Input::Cut(error, _)) => self.fail(core, error),
            (Replying::Judged(mut replies), input) => {
                self.on_replies(core, &mut replies, input, now);
                Replying::Judged(replies)
            }
            (replying, _) => replying,
        };
    }

    pub(super) fn fail(&mut self, core: &mut Core, error: ProxyError) -> Replying {
        if !error.is_sent() {
            self.not_billed(core, &[]);
        }
        core.answer_error(error);
        Replying::Over
    }

    /// Hands out the calls that a person has approved; limits apply to them as to the model's own calls.
    pub(super) fn hand_out(&mut self, core: &mut Core, (question, confirmation): &Approved, now: Now) {
        let Replying::Nothing(mut judging) = std::mem::replace(&mut self.replying, Replying::Over) else {
            return;
        };
        let model = core.request.model_name(&core.body).into_owned();
        let (key, created, usage) = (&core.identity.key, now.ms / 1000, core.request.include_usage);
        let handed = Handed { question: *question, key, model: &model, created, usage };
        judging.approve(Some(confirmation.extends));
        self.hands_out = true;
        let is_stream = core.request.stream;
        let form = if is_stream { Form::Streamed } else { Form::Whole };
        let body = core.dialect.approved(form, confirmation, &handed);
        self.replying = self.own_reply(core, *judging, &body, now);
    }

    /// The line to the person, where the answer comes without the tools that the client offered.
    pub(super) fn preface(&self, core: &Core) -> Option<String> {
        let wanted = core.shared.settings.upstream.tools_unsupported_tell == Tell::Text;
        let is_without = self.variant.tools == Tools::Dropped && !core.request.structured;
        (wanted && is_without && self.before_bare.is_none() && !core.is_observing())
            .then(|| NO_TOOLS.to_owned())
    }

    /// Asks people about newly held calls, or has their time awaited, and withdraws what concerns calls that the judge no
    /// longer holds.
    pub(super) fn ask_approvals(&mut self, core: &mut Core, judging: &Judging) {
        if self.held.is_empty() && judging.held().is_empty() {
            return;
        }
        let is_held = |id: u32| judging.held().iter().any(|call| call.id == id);
        for (id, call) in self.held.extract_if(.., |(id, _)| !is_held(*id)) {
            core.record.confirmations.extend(consent(&call, Consent::Unasked));
            core.outputs.push_back(Output::WithdrawApproval(id));
        }
        for call in judging.held() {
            if self.held.iter().any(|(id, _)| *id == call.id) {
                continue;
            }
            // Without a decision, one that waits for its time is not made.
            let verdict = if call.wait_ms.is_some() { Verdict::Block } else { Verdict::Ask };
            let (tool, id) = (call.tool.clone(), call.call_id.clone());
            let said = call.objection.map(|(policy, reason)| Said { policy, reason: reason.as_str() });
            let (said, unjudged, is_spoken) = (said.into_iter().collect(), false, false);
            self.held
                .push((call.id, JudgedCall { tool, id, verdict, unjudged, said, is_spoken, message: None }));
            core.outputs.push_back(match call.wait_ms {
                Some(ms) => Output::Wait { id: call.id, ms },
                None => {
                    let confirming = core.policies().confirming();
                    let webhook = confirming.and_then(|confirming| confirming.webhook.clone());
                    let (call, hold_ms) = (call.clone(), judging.hold_ms());
                    Output::AskApproval(Box::new(ApprovalRequest { call, hold_ms, webhook }))
                }
            });
        }
    }

    /// Has other models asked about calls that were held since.
    pub(super) fn ask_models(&mut self, core: &mut Core, judging: &Judging) {
        for (id, (policy, question)) in judging.questions() {
            if self.asking.iter().any(|(known, _)| *known == id) {
                continue;
            }
            self.asking.push((id, policy));
            core.record.act(On::Reply, policy, "asked_model", 1);
            let key = core.question_key(question);
            // Values that were put back into the call are kept from this model too.
            let values = core.plan.hidden_values();
            let hidden = values.and_then(|(_, values)| values.hide_in(&question.text, usize::MAX));
            let asked = hidden.map(|text| ModelQuestion { text, ..question.clone() });
            let (terms, question) =
                (Arc::clone(&question.terms), written(asked.as_ref().unwrap_or(question)));
            core.outputs.push_back(Output::AskModel(AskedModel { id, key, terms, question }));
        }
    }

    /// Notes that a question was answered, or not.
    pub(super) fn heard(&mut self, core: &mut Core, id: u32, is_answered: bool) {
        for (_, policy) in self.asking.extract_if(.., |(known, _)| *known == id) {
            if !is_answered {
                core.record.act(On::Reply, policy, "unanswered", 1);
            }
        }
    }

    /// Notes a decision; false if no call waits for it.
    pub(super) fn decided(
        &mut self,
        core: &mut Core,
        reply: &mut ReplyPipeline,
        id: u32,
        decided: &Decided,
    ) -> bool {
        let Some(at) = self.held.iter().position(|(held, _)| *held == id) else { return false };
        let (_, call) = self.held.remove(at);
        let outcome = match decided.decision {
            ApprovalDecision::Approved => Consent::Approved,
            ApprovalDecision::Declined => Consent::Declined,
            ApprovalDecision::Expired => Consent::Expired,
            ApprovalDecision::Stopped => Consent::Stopped,
            ApprovalDecision::Unasked => Consent::Unasked,
        };
        if let Some(outcome) = consent(&call, outcome) {
            core.record.confirmations.push(outcome);
            let words = |text: &Option<Arc<str>>| text.as_deref().and_then(plain_words);
            let (approver, reason) = (words(&decided.approver), words(&decided.reason));
            core.record.approvals.push(ApprovalRecord { tool: call.tool, outcome, approver, reason });
            self.note_decision(core, reply, id, decided);
        }
        true
    }

    /// Keeps what a decision means to later calls, and the person's words for the model.
    fn note_decision(&self, core: &mut Core, reply: &mut ReplyPipeline, id: u32, decided: &Decided) {
        if decided.decision == ApprovalDecision::Approved {
            let held = reply.judging().held().into_iter().find(|call| call.id == id).cloned();
            held.iter().for_each(|call| self.remember_approval(core, call));
        } else if let Some(words) = &decided.reason {
            reply.judging_mut().hear(id, words);
        }
    }

    /// Stores that a person has approved this call, where that holds for the rest of the conversation.
    fn remember_approval(&self, core: &mut Core, call: &HeldCall) {
        let is_remembered = |confirming: &Confirming| any_concerns(&confirming.remembered, &call.tool);
        if !core.policies().confirming().is_some_and(|confirming| is_remembered(confirming)) {
            return;
        }
        let (identity, memo) = (&core.identity, &*core.shared.memo);
        let arguments = arguments_hash(&call.arguments, identity, memo);
        let key = identity.call_key(identity.root(), call.call_id.as_bytes(), &call.tool, arguments);
        let approved = vec![identity.approval(key, self.context)];
        core.outputs.push_back(Output::Store(News { approved, ..News::default() }));
    }

    /// Answers with the text alone, in the model's place: the approval of `question` came too late.
    pub(super) fn lapse(&mut self, core: &mut Core, question: Hash, now: Now) {
        let Replying::Nothing(judging) = std::mem::replace(&mut self.replying, Replying::Over) else {
            return;
        };
        let text = core.policies().confirming().map(|confirming| confirming.lapsed()).unwrap_or_default();
        let model = core.request.model_name(&core.body).into_owned();
        let (key, created, usage) = (&core.identity.key, now.ms / 1000, core.request.include_usage);
        let handed = Handed { question, key, model: &model, created, usage };
        let form = if core.request.stream { Form::Streamed } else { Form::Whole };
        let body = core.dialect.says(form, &text, &handed);
        self.replying = self.own_reply(core, *judging, &body, now);
    }

    /// Notes the outcome of calls, also of an incomplete reply.
    pub(super) fn close(&mut self, core: &mut Core, now: Now) {
        if let Replying::Judged(mut replies) = std::mem::replace(&mut self.replying, Replying::Over) {
            self.close_replies(core, &mut replies, now);
            self.replying = Replying::Judged(replies);
        }
        self.note_counted_cost(core);
        // After those that were judged, so that the entries before them keep their places.
        for (_, call) in self.held.drain(..) {
            core.record.confirmations.extend(consent(&call, Consent::Left));
            core.record.judged.push(call);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match &self.replying {
            Replying::Nothing(_) => false,
            Replying::Judged(replies) => replies.is_over(),
            Replying::Over => true,
        }
    }

    pub(super) fn takes_stream(&self, core: &Core) -> bool {
        match &self.replying {
            Replying::Nothing(_) => core.request.stream,
            Replying::Judged(replies) => replies.is_stream(),
            Replying::Over => false,
        }
    }

    pub(super) fn awaits_first_reply(&self) -> bool {
        match &self.replying {
            Replying::Nothing(_) => true,
            Replying::Judged(replies) => !replies.is_stream() && !self.is_reask(),
            Replying::Over => false,
        }
    }

    /// Whether the upstream was asked again after its reply. The final-answer request may be the first one.
    pub(super) fn is_reask(&self) -> bool {
        self.reasks.count() > 0
    }

    pub(super) fn is_hiding(&self) -> bool {
        self.replies().is_some_and(|replies| replies.judge.is_hiding() || self.reasks.count() > 0)
    }

    pub(super) fn holds_head(&self) -> bool {
        self.replies().is_some_and(Replies::holds_head)
    }

    pub(super) fn is_done(&self) -> bool {
        self.replies().is_some_and(|replies| replies.is_stream() && replies.judge.is_done())
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.replies().map_or(0, |replies| replies.judge.kept_bytes())
    }

    pub(super) fn judging(&self) -> Option<&Judging> {
        match &self.replying {
            Replying::Nothing(judging) => Some(judging),
            Replying::Judged(replies) => Some(replies.judge.judging()),
            Replying::Over => None,
        }
    }

    /// See [`Judging::replace_body`].
    pub(super) fn replace_body(&mut self, body: &Bytes) {
        match &mut self.replying {
            Replying::Nothing(judging) => judging.replace_body(body),
            Replying::Judged(replies) => replies.judge.judging_mut().replace_body(body),
            Replying::Over => {}
        }
    }

    pub(super) fn choices(&self) -> Vec<ClientChoice<'_>> {
        self.replies().map(|replies| replies.judge.shown()).unwrap_or_default()
    }

    fn replies(&self) -> Option<&Replies> {
        if let Replying::Judged(replies) = &self.replying { Some(replies) } else { None }
    }
}

impl Core {
    /// The name of a question: equal for equal questions of the caller.
    fn question_key(&self, question: &ModelQuestion) -> Hash {
        let ModelQuestion { terms, system, text } = question;
        let place = [&terms.endpoint.url, &terms.endpoint.key_env].map(|at| at.as_deref().unwrap_or(""));
        let caller = self.identity.caller.0.to_le_bytes();
        let parts = [terms.model.as_bytes(), place[0].as_bytes(), place[1].as_bytes(), system.as_bytes()];
        let parts = [&caller[..], parts[0], parts[1], parts[2], parts[3], text.as_bytes()];
        self.shared.key.hash(Domain::Question, &parts)
    }
}

/// The `outcome` for the record, where a person was asked about the call.
fn consent(call: &JudgedCall, outcome: Consent) -> Option<Consent> {
    (call.verdict == Verdict::Ask).then_some(outcome)
}
