//! One client request on its way: its bytes, what policies want of it, the form it is sent in, and what was
//! tried. Writes requests to the upstream and news to the ledger; its callers decide when.

use super::body::UpBody;
use super::clock::ms_at;
use super::error::ProxyError;
use super::fallback::{Fallbacks, lands_bare, learned};
use super::handler::{Gateway, Length};
use super::head::Head;
use super::held::Waiting;
use super::record::{Record, TOOLS_UNSUPPORTED, word};
use super::turnstile::Passage;
use crate::ledger::{Answered, News, Overflow, SentRounds, Spent};
use crate::policy::plan::Plan;
use crate::rewrite::choice::ChoiceState;
use crate::rewrite::judging::Judging;
use crate::rewrite::judging::wrapper::made_of;
use crate::rewrite::pass::{Pass, Source, Tools};
use crate::rewrite::reasks::Reasks;
use crate::rewrite::restore::Asked;
use crate::rewrite::texts::saved_tokens;
use crate::telemetry::outcome::{Fallback, On, PrefixBreak};
use crate::transcript::identity::{Hash, Identity};
use crate::wire::assemble::Assembled;
use crate::wire::error::UpstreamError;
use crate::wire::refusal::overflows;
use crate::wire::request::Request;
use crate::wire::usage::Usage;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::Response;
use std::sync::{Arc, OnceLock};

/// See the file's head.
pub(crate) struct Exchange {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) head: Head,
    pub(crate) body: Bytes,
    pub(crate) request: Box<Request>,
    pub(crate) identity: Identity,
    /// What policies want; empty while observing.
    pub(crate) plan: Box<Plan>,
    pub(crate) restored: Vec<(usize, Bytes)>,
    /// The digest of all that the model sees of the conversation.
    pub(crate) context: Hash,
    /// The model at its upstream.
    pub(crate) model: Hash,
    pub(crate) pass: Pass,
    pub(crate) fallbacks: Fallbacks,
    pub(crate) tried: Vec<Fallback>,
    pub(crate) reasks: Reasks,
    /// The tools were taken away for the final answer alone.
    pub(crate) bare: bool,
    /// The client must or may be answered by a call, so that tools stay open to the end.
    pub(crate) keeps_tools: bool,
    pub(crate) record: Record,
    /// What the first reply is going to cost; `None` once that is told.
    pub(crate) sent: Option<SentRounds>,
    /// Keeps other requests of the conversation waiting, where the operator wants one at a time.
    pub(crate) passage: Option<Passage>,
    /// The calls that wait for a person's word.
    pub(crate) waiting: Waiting,
    pub(crate) length: Length,
    /// The name of the whole request, made once: a stream of many choices asks for it at every finish.
    pub(crate) name: OnceLock<Hash>,
}

/// A body below this is copied rather than kept with the buffer that it was read into, which is about as large.
const COPIED_BYTES: usize = 8 * 1024;

impl Exchange {
    /// Copies what is kept for asking again: a slice of the buffer that hyper read the request into keeps all of it,
    /// 8 KB for as long as a stream lasts.
    pub(crate) fn let_go(&mut self) {
        self.head.let_go();
        if self.body.len() < COPIED_BYTES {
            self.body = Bytes::copy_from_slice(&self.body);
        }
    }

    /// The request in its present form.
    pub(crate) fn request(&mut self) -> hyper::http::Request<UpBody> {
        self.record.outcome.billed_requests += 1;
        self.writing().1()
    }

    /// Sends the request in its present form.
    pub(crate) async fn send_request(&mut self) -> Result<Response<Incoming>, ProxyError> {
        self.record.outcome.billed_requests += 1;
        let started = self.record.lap().into();
        let (gateway, write) = self.writing();
        // In a box, or every future around it would have room for it, and be as long to move.
        Box::pin(gateway.upstream.send_made(write, started)).await
    }

    /// What writes the request in its present form, as often as it is sent.
    fn writing(&mut self) -> (&Gateway, impl FnMut() -> hyper::http::Request<UpBody> + Send) {
        let Self { gateway, head, body, request, plan, restored, pass, .. } = self;
        let source = Source { body, request, plan, restored };
        let write = move || {
            let pieces = source.write(pass).into_pieces();
            let mut parts = head.again();
            // Not true of other bytes than the client's. Looked for first, since removing disturbs the order.
            for digest in ["content-md5", "digest", "content-digest"] {
                if pieces.len() > 1 && parts.headers.contains_key(digest) {
                    parts.headers.remove(digest);
                }
            }
            hyper::http::Request::from_parts(parts, UpBody::rope(pieces))
        };
        (gateway, write)
    }

    /// After an upstream's error: true if another form of the request is worth a try.
    pub(crate) fn falls_back(&mut self, status: u16, error: &UpstreamError) -> bool {
        if overflows(status, error) {
            return self.makes_room();
        }
        let Some((pass, fallback)) = self.fallbacks.after(status, error, &self.pass) else { return false };
        self.try_next(&[fallback]);
        match fallback {
            Fallback::Placement => self.record.outcome.prefix_breaks.push(PrefixBreak::Placement),
            // Of no concern to the client, nor to the model.
            Fallback::StreamOptions => {}
            other => self.record.outcome.act(On::Request, TOOLS_UNSUPPORTED, word(other), 1),
        }
        if self.is_observing() {
            return false;
        }
        self.pass = pass;
        true
    }

    /// After the upstream refused the request for its length: true if there is a shorter form.
    fn makes_room(&mut self) -> bool {
        if !self.fallbacks.may_shorten() {
            return false;
        }
        let plan = self.gateway.shortened(self);
        // What was decided for this request, and had not been decided before the error.
        let new = |decided: usize| decided == self.request.messages.len();
        if !plan.leaves_out_more_than(&self.plan) {
            return false;
        }
        let known = (self.plan.cleared().count(), self.plan.dropped.len());
        for edit in plan.cleared().skip(known.0).filter(|edit| new(edit.decided)) {
            self.record.outcome.act(On::Request, edit.policy, edit.change.word(), 1);
        }
        for dropped in plan.dropped.iter().skip(known.1).filter(|dropped| new(dropped.decided)) {
            self.record.outcome.act(On::Request, dropped.policy, "turns_dropped", 1);
        }
        self.fallbacks.shorten(&plan);
        self.try_next(&[Fallback::Overflow]);
        if self.is_observing() {
            return false;
        }
        self.record.outcome.prefix_breaks.push(PrefixBreak::Overflow);
        self.record.outcome.tokens.saved = saved_tokens(&plan);
        *self.plan = plan;
        true
    }

    /// Told at once: the client may leave before the end.
    fn try_next(&mut self, fallbacks: &[Fallback]) {
        self.tried.extend(fallbacks);
        self.record.outcome.fallbacks.extend(fallbacks);
    }

    /// Tells what was left out at once, because the model is known to refuse it.
    pub(crate) fn tell_known(&mut self) {
        let known = [
            (self.pass.tools == Tools::Dropped, Fallback::Tools),
            (self.pass.tools == Tools::WithoutChoice, Fallback::ToolChoice),
            (self.pass.flat, Fallback::Flattened),
        ];
        for (_, fallback) in known.iter().filter(|(is_known, _)| *is_known) {
            self.record.outcome.act(On::Request, TOOLS_UNSUPPORTED, word(*fallback), 1);
        }
    }

    /// The upstream took the present form: what it had refused is remembered.
    pub(crate) fn taken(&mut self) {
        if !self.tried.is_empty() && !self.is_observing() && self.pass.asking.is_none() {
            let model = Some((self.model, learned(&self.tried)));
            let is_shortened = self.tried.contains(&Fallback::Overflow);
            let overflow = is_shortened.then(|| {
                let overflow =
                    Overflow { messages: self.request.messages.len(), history: self.length.history };
                (self.length.conversation, overflow)
            });
            self.gateway.ledger.record(News { model, overflow, ..News::default() });
        }
    }

    /// Learns what the upstream billed, summed over all replies, and tells the ledger with which rounds the history was sent.
    pub(crate) fn billed(&mut self, usage: Usage) {
        self.record.usage(usage);
        if let Some(sent) = self.sent.take() {
            self.gateway.ledger.record(News { sent: Some(sent), ..News::default() });
        }
    }

    /// Prepares to ask again for `choice`, all of whose calls were withheld in `round`; after too many times
    /// the model is asked for a final answer instead. Where tools of ours gave all the answers (`served`), it may go
    /// on: these keep bounds of their own.
    pub(crate) fn ask_again(&mut self, (choice, served): (u32, bool), round: Bytes, judging: &mut Judging) {
        self.taken();
        // A yes is to one reply.
        judging.approve(false);
        let mut asking = self.reasks.again((choice, served), round, self.gateway.config.reask.max);
        self.record.outcome.reasks = self.reasks.count();
        if asking.land {
            judging.land();
        }
        asking.land &= !self.keeps_tools;
        if asking.land && self.pass.tools == Tools::WithoutChoice {
            // The choice that would ask for an answer is refused, as is known.
            self.go_bare();
        }
        // Nobody knows whether a model that was given no tools takes the calls that it made nevertheless.
        self.pass.flat |= self.pass.tools == Tools::Dropped;
        self.pass.asking = Some(asking);
    }

    /// After the upstream refused to be asked for a final answer: true if it is to be asked once more without
    /// tools and with the history as text.
    pub(crate) fn lands_bare(&mut self, status: u16) -> bool {
        let lands = lands_bare(status, &self.pass);
        if lands {
            self.go_bare();
        }
        lands
    }

    fn go_bare(&mut self) {
        (self.pass.tools, self.pass.flat, self.bare) = (Tools::Dropped, true, true);
        self.pass.placement = self.pass.placement.of_last_try();
        self.try_next(&[Fallback::Tools, Fallback::Flattened]);
    }

    /// Tells the ledger what the client was handed and what it was not shown.
    pub(crate) fn remember(&self, choices: &[ChoiceState]) {
        // Where no call can be blocked, no text is taken for one before which something was hidden.
        if !self.request.declares_tools && choices.iter().all(|choice| choice.calls() == 0) {
            return;
        }
        let root = self.identity.root();
        let asked = Asked { root, context: self.context, memo: &*self.gateway.memo };
        let (now_ms, observe) = (ms_at(self.record.lap()), self.is_observing());
        let (identity, reasks) = (&self.identity, &self.reasks);
        let mut news = News::of_choices(choices, &Answered { asked, identity, reasks, now_ms, observe });
        news.spent = self.spent(choices, now_ms);
        if !news.is_empty() {
            self.gateway.ledger.record(news);
        }
    }

    /// What the calls that the client was handed have used of its quotas.
    fn spent(&self, choices: &[ChoiceState], at_ms: u64) -> Vec<Spent> {
        let profile = self.record.outcome.profile.as_deref();
        let profile = profile.and_then(|name| self.gateway.config.profiles.named(name).ok());
        let policies = self.gateway.config.policies_of(profile);
        if policies.counted().is_empty() {
            return Vec::new();
        }
        let made = || self.gateway.name_of_bytes(&self.identity, &self.body);
        let request = *self.name.get_or_init(made);
        // Those that a call stands for, in its place.
        let names = |call: &Assembled| match made_of(call) {
            made if made.is_empty() => vec![call.name()],
            made => made.into_iter().map(|made| made.name).collect(),
        };
        let settled = choices.iter().filter(|choice| !choice.is_waiting());
        let released: Vec<String> = settled.flat_map(ChoiceState::released).flat_map(names).collect();
        let uses = policies.counted().iter().enumerate().map(|(at, counted)| Spent {
            quota: self.identity.quota(&counted.name),
            request,
            calls: released.iter().filter(|name| policies.counts_for(name) == Some(at)).count(),
            at_ms,
            window_ms: counted.window_ms,
        });
        uses.filter(|spent| spent.calls > 0).collect()
    }

    /// Whether nothing may be changed.
    pub(crate) fn is_observing(&self) -> bool {
        self.gateway.is_observing()
    }
}
