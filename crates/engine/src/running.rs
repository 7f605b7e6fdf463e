//! A request in flight: it is sent in one form after the other, its replies are judged, and the upstream is asked again where
//! calls were blocked. Holds the parts that do this together; each decides on its own.

use super::answer::Replies;
use super::call_effects::CallEffects;
use super::error::ProxyError;
use super::hidden_values::hide_in;
use super::plan::{Approved, Planned};
use super::quota_uses::QuotaUses;
use super::reply_reports::ReplyReports;
use super::request_forms::{Accepts, FirstForm, RequestForms};
use super::{Core, Input, Now, Output, unexpected};
use crate::judging::{AnswerTools, Judging};
use crate::pipeline::ClientChoice;
use crate::reasks::Reasks;
use crate::repeats::BlockedCalls;
use crate::settings::Unjudged;
use bytes::Bytes;
use dialects::Handed;
use dialects::reply::{Form, Options};
use model::adaptation::Adaptation;
use model::identity::Hash;
use model::plan::decision::Next;
use model::record::Retry;
use policies::set::Judge;
use std::time::Instant;

/// A request to the upstream, in whatever form and however often it is sent, and its replies.
pub(super) struct Running {
    pub(super) forms: RequestForms,
    pub(super) reports: ReplyReports,
    pub(super) call_effects: CallEffects,
    /// The blocked calls that the model may repeat.
    blocked: BlockedCalls,
    pub(super) reasks: Reasks,
    replying: Replying,
}

/// The state of the replies.
enum Replying {
    /// No reply for the client has come.
    Nothing(Box<Judging>),
    Judged(Box<Replies>),
    Over,
}

impl Running {
    /// The state of a planned request before it is sent, with the judge of its replies.
    pub(super) fn new(core: &mut Core, planned: Planned) -> Self {
        let Planned {
            spent,
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
            sent,
            beginning,
            open_account,
            ..
        } = planned;
        let named = &core.shared.settings.reask.answer_tools;
        let answers = AnswerTools::of(&core.planned_request(&core.plan, &[]), named);
        let (model_name, answering) = (&*model_name, &answers);
        let first = FirstForm {
            transcript,
            restored,
            length,
            refusals,
            beginning,
            model_name,
            answers: answering,
            asks_usage,
        };
        let forms = RequestForms::new(core, first);
        let judging = judging_of(core, judge, answers, token, forms.restored());
        let is_restored = !forms.restored().is_empty();
        let blocked = forms.transcript().map(|known| BlockedCalls::new(known, is_restored, &judging));
        core.account_is_open();
        let quotas = QuotaUses::new(spent);
        Self {
            forms,
            reports: ReplyReports::new((context, context_without_ids), sent, open_account, quotas),
            call_effects: CallEffects::default(),
            blocked: blocked.unwrap_or_default(),
            reasks: Reasks::default(),
            replying: Replying::Nothing(Box::new(judging)),
        }
    }

    /// Handles an input.
    pub(super) fn on(&mut self, core: &mut Core, mut input: Input, now: Now) {
        match &mut input {
            Input::NotSent(error) if !error.is_sent() => {
                core.record.upstream_requests = core.record.upstream_requests.saturating_sub(1);
            }
            Input::Resent => return core.record.fallbacks.push(Retry::Stale),
            Input::UpstreamId(id) => return core.record.upstream_request_ids.push(std::mem::take(id)),
            _ => {}
        }
        self.replying = match std::mem::replace(&mut self.replying, Replying::Over) {
            Replying::Judged(mut replies) => {
                replies.on(self, core, input, now);
                Replying::Judged(replies)
            }
            replying => self.first_reply(core, replying, input, now),
        };
    }

    /// Handles an input while no reply is judged.
    fn first_reply(&mut self, core: &mut Core, replying: Replying, input: Input, now: Now) -> Replying {
        match (replying, input) {
            (Replying::Nothing(judging), Input::StreamBegins { ends_by_closing }) => {
                Replying::Judged(Replies::begin_stream(self, core, judging, ends_by_closing))
            }
            (Replying::Nothing(judging), Input::Reply(reply)) => {
                Replying::Judged(Replies::begin_whole(self, core, judging, reply, now))
            }
            (Replying::Nothing(_), Input::NotSent(error) | Input::Cut(error, _)) => self.fail(core, error),
            (replying, input) => {
                unexpected(&input);
                replying
            }
        }
    }

    fn fail(&mut self, core: &mut Core, error: ProxyError) -> Replying {
        if !error.is_sent() {
            self.reports.not_billed(core, &[]);
        }
        core.answer_error(error);
        Replying::Over
    }

    /// Sends the request for the first time.
    pub(super) fn send_first(&mut self, core: &mut Core) {
        let is_stream = core.request.stream;
        self.send(core, if is_stream { Accepts::Streams } else { Accepts::UnannouncedStreams });
    }

    /// Sends the request in its present form.
    pub(super) fn send(&mut self, core: &mut Core, accepts: Accepts) {
        self.reports.count_sent(core);
        core.output(Output::Send(self.forms.write(core, accepts)));
    }

    /// Makes the request that was not sent yet the final-answer request, where a policy knows that no call may run.
    pub(super) fn land_at_once(&mut self, core: &mut Core) {
        if let Replying::Nothing(judging) = &mut self.replying {
            self.forms.land_at_once(core, judging);
        }
    }

    /// The next step for `choice`, whose calls were all hidden from the client.
    pub(super) fn next_step(&mut self, shown: &[ClientChoice<'_>], choice: u32, judging: &Judging) -> Next {
        self.blocked.next_step(shown, choice, judging)
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
        self.forms.accept(core);
        // An approval is for one reply.
        judging.approve(None);
        let hidden = self.forms.written_exchange(core, hidden);
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
        self.forms.ask_again(core, asking);
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
        self.reports.hand_out();
        let is_stream = core.request.stream;
        let form = if is_stream { Form::Streamed } else { Form::Whole };
        let body = core.dialect.approved(form, confirmation, &handed);
        self.replying = Replying::Judged(Replies::own_reply(self, core, judging, &body, now));
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
        self.replying = Replying::Judged(Replies::own_reply(self, core, judging, &body, now));
    }

    /// How the replies are written.
    pub(super) fn options(&self, core: &Core) -> Options {
        let variant = self.forms.variant();
        let is_unasked =
            variant.has(Adaptation::Streaming) && core.request.stream && !core.request.include_usage;
        Options {
            cut_usage: variant.ask_usage || is_unasked,
            preface: self.forms.preface(core),
            friendly: core.is_friendly(),
            output_limit: core.request.output_limit,
            narrows_choice: self.forms.narrows_choice(core, !self.is_reask()),
            request_id: core.record.request_id.clone(),
            reports: core.reports,
        }
    }

    /// Notes the outcome of calls, also of an incomplete reply.
    pub(super) fn close(&mut self, core: &mut Core, now: Now) {
        if let Replying::Judged(mut replies) = std::mem::replace(&mut self.replying, Replying::Over) {
            replies.close(self, core, now);
            // After those that were judged, so that the entries before them keep their places.
            self.call_effects.close(core, replies.pipeline.judging());
            self.reports.close(core, &replies.pipeline.shown());
            self.replying = Replying::Judged(replies);
        } else {
            self.reports.close(core, &[]);
        }
        self.reports.note_counted_cost(core);
    }

    /// All hidden exchanges of this request: those after which the model was asked again, and those beside calls that
    /// the client has.
    pub(super) fn hidden(&self) -> Vec<(u32, Bytes)> {
        let mut hidden = self.reasks.hidden().to_vec();
        for choice in self.choices().into_iter().filter(|choice| !choice.is_wholly_blocked()) {
            hidden.extend(choice.hidden_exchange().map(|items| (choice.index(), items)));
        }
        hidden
    }

    pub(super) fn is_over(&self) -> bool {
        match &self.replying {
            Replying::Nothing(_) => false,
            Replying::Judged(replies) => replies.is_over(),
            Replying::Over => true,
        }
    }

    /// When something is due without an input.
    pub(super) fn deadline(&self, core: &Core) -> Option<Instant> {
        self.replies()?.deadline(core, self.is_reask())
    }

    /// Whether the upstream was asked again after its reply. The final-answer request may be the first one.
    pub(super) fn is_reask(&self) -> bool {
        self.reasks.count() > 0
    }

    pub(super) fn is_done(&self) -> bool {
        self.replies().is_some_and(|replies| replies.is_stream() && replies.pipeline.is_done())
    }

    pub(super) fn judging(&self) -> Option<&Judging> {
        match &self.replying {
            Replying::Nothing(judging) => Some(judging),
            Replying::Judged(replies) => Some(replies.pipeline.judging()),
            Replying::Over => None,
        }
    }

    pub(super) fn choices(&self) -> Vec<ClientChoice<'_>> {
        self.replies().map(|replies| replies.pipeline.shown()).unwrap_or_default()
    }

    fn replies(&self) -> Option<&Replies> {
        if let Replying::Judged(replies) = &self.replying { Some(replies) } else { None }
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
