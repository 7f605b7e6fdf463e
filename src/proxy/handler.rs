//! The one path of a request. Everything but governed chat completions is relayed as it is; those are read,
//! looked up, folded through the policies, rewritten, sent, judged, answered and recorded, in this order. The
//! only module that names both the core's steps and the shell's.

mod reading;

pub(crate) use self::reading::Length;

use self::reading::Reading;
use super::body::{ReplyBody, UpBody};
use super::credential::Credentials;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::fallback::{Fallbacks, Subject, placement};
use super::head::Head;
use super::headers::{self, is_upgrade};
use super::held::Waiting;
use super::memory::BodyMemory;
use super::read::{Patience, ReadError, Unread, read_within};
use super::record::Record;
use super::respond::error_response;
use super::summaries::Summariser;
use super::swap::Swap;
use super::turnstile::{Entry, Passage, Turnstile};
use super::upstream::Upstream;
use super::{Answering, Service, caller, clock, coding, profile, relay, stream};
use crate::config::{Config, InFlight, Mode, Profile, Tell, Unjudged};
use crate::ledger::Ledger;
use crate::ledger::held::HeldCalls;
use crate::policy::plan::Plan;
use crate::rewrite::judging::{AnswerTools, Judging};
use crate::rewrite::pass::{Pass, Tools};
use crate::rewrite::reasks::Reasks;
use crate::telemetry::Telemetry;
use crate::telemetry::outcome::{On, Route};
use crate::transcript::identity::{HashKey, Identity};
use crate::transcript::memo::Memo;
use crate::transcript::resumed::read_request;
use crate::wire::body::Fault;
use crate::wire::others::may_read;
use crate::wire::request::{Choice, Request};
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::http::Response;
use hyper::http::request::Parts;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Everything that all requests share.
pub struct Gateway {
    pub config: Arc<Config>,
    pub upstream: Arc<Upstream>,
    pub ledger: Arc<dyn Ledger>,
    pub memo: Arc<dyn Memo>,
    /// What bodies may take together.
    pub memory: BodyMemory,
    pub telemetry: Telemetry,
    pub key: HashKey,
    /// Calls that wait for a person's word.
    pub held: Arc<HeldCalls>,
    /// For conversations whose requests go one at a time.
    pub turnstile: Arc<Turnstile>,
    pub summaries: Summariser,
}

/// The gateway as the accept loop calls it. A request keeps the one that it began with to its end.
pub struct Handler(pub Swap<Gateway>);

impl Service for Handler {
    fn call(self: Arc<Self>, request: hyper::http::Request<Incoming>) -> Answering {
        let gateway = self.0.now();
        if gateway.config.mode != Mode::Off && gateway.governs(&request) {
            Box::pin(gateway.govern(request))
        } else {
            gateway.relay(request)
        }
    }
}

/// The name under which it is told that requests of one conversation met.
const IN_FLIGHT: &str = "in_flight";

impl Gateway {
    /// Whether the request asks for a chat completion. An upgrade is none (only a GET can be one), and so no `Upgrade`
    /// header exempts a request.
    fn governs<B>(&self, request: &hyper::http::Request<B>) -> bool {
        headers::is_post(request) && self.upstream.takes_for_chat(request.uri())
    }

    /// Now, in ms since the epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        clock::now_ms()
    }

    /// Whether everything is decided and nothing changed.
    pub(crate) fn is_observing(&self) -> bool {
        self.config.mode == Mode::Observe
    }

    /// Whether the answer opens with a line to the person.
    pub(crate) fn tells_person(&self, request: &Request, pass: &Pass) -> bool {
        let wanted = self.config.upstream.tools_unsupported_tell == Tell::Text;
        wanted && pass.tools == Tools::Dropped && !request.structured && !self.is_observing()
    }

    /// The upstream was silent for too long.
    pub(crate) fn timed_out(&self, waited: Duration) -> ProxyError {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        ProxyError::UpstreamTimeout { host: self.upstream.name().to_owned(), waited_ms }
    }

    /// The upstream broke off.
    pub(crate) fn cut(&self, detail: &dyn std::fmt::Display) -> ProxyError {
        ProxyError::UpstreamCut { host: self.upstream.name().to_owned(), detail: detail.to_string() }
    }

    /// The upstream answered what cannot be read.
    pub(crate) fn unreadable(&self) -> ProxyError {
        self.cut(&"its answer is no chat completion")
    }

    fn relay(self: Arc<Self>, request: hyper::http::Request<Incoming>) -> Answering {
        let route = if is_upgrade(&request) { Route::Upgrade } else { Route::Relay };
        let record = Record::begin(&self.telemetry, route, request.headers(), self.config.mode.as_str());
        // Shared with the body, which outlives this call. A std mutex: held for assignments alone.
        let record = Arc::new(Mutex::new(record));
        let idle = self.config.upstream.idle_timeout;
        let response = relay::relay(request, &self.upstream, idle, Arc::clone(&record));
        Box::pin(async move {
            let response = response.await;
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            record.upstream_time();
            record.outcome.status = response.status().as_u16();
            record.end();
            drop(record);
            response
        })
    }

    /// Steps 1 to 4 and 6 of the path; the rest is [`Self::exchange`].
    async fn govern(self: Arc<Self>, request: hyper::http::Request<Incoming>) -> Response<ReplyBody> {
        let (mut parts, body) = request.into_parts();
        let mut record =
            Record::begin(&self.telemetry, Route::Chat, &parts.headers, self.config.mode.as_str());
        let body = match self.read(&parts, body, &mut record).await {
            Ok(body) => body,
            Err(Unread::Refused(error)) => return refused(record, &error),
            Err(Unread::Relayed(body, why)) => {
                record.outcome.ungoverned = Some(why);
                return Box::pin(self.relay_read(parts, body, None, record)).await;
            }
        };
        record.outcome.request_bytes = body.len() as u64;
        let request = match read_request(&body, &self.key, &*self.memo) {
            Ok(request) => request,
            Err(fault) => return Box::pin(self.govern_unread(parts, body, fault, record)).await,
        };
        let (profile, identity) = match self.identify(&parts, (&request, &body)) {
            Ok(found) => found,
            Err(error) => return refused(record, &error),
        };
        record.outcome.profile = profile.map(|profile| Arc::clone(&profile.name));
        let policies = self.config.policies_of(profile);
        // Before anything is looked up: what the other request brings is to be known by then.
        let passage = match self.admit(&identity, (&request, &body), &mut record).await {
            Ok(passage) => passage,
            Err(error) => return refused(record, &error),
        };
        let reading = self.look((policies, identity), &parts, (&request, &body), &mut record).await;
        record.leave_out(reading.waited);
        if let Some(error) = self.refusal(&reading, &mut record) {
            return refused(record, &error);
        }
        if !self.is_observing() {
            coding::accept_decodable(&mut parts.headers);
        }
        let approved = match reading.answer.as_ref().zip(reading.facts.asked.as_ref()) {
            Some(asked) => Box::pin(self.approved(asked, &body, &mut record)).await,
            None => None,
        };
        let (mut exchange, judging) = self.prepare(parts, (body, request), reading, record);
        exchange.passage = passage;
        exchange.record.own_time();
        match approved {
            Some((anchor, confirmation)) => Box::pin(exchange.hand_out(anchor, &confirmation, judging)).await,
            None => exchange.run(judging).await,
        }
    }

    /// What becomes of a request that cannot be read. Where policies restrict calls, it goes no further if another reader
    /// may take it for a chat request; and if it goes up, no answer to it is passed on but a refusal.
    async fn govern_unread(
        &self,
        parts: Parts,
        body: Bytes,
        fault: Fault,
        mut record: Record,
    ) -> Response<ReplyBody> {
        let why = fault.label();
        record.outcome.ungoverned = Some(why);
        let credentials = Credentials::of(&parts.headers, &parts.uri);
        let is_refused = self.config.upstream.unjudged == Unjudged::Refuse
            && !self.is_observing()
            && profile::may_restrict_calls(&self.config, &parts.headers, &credentials);
        if is_refused && (coding::is_coded(&parts.headers) || may_read(&body, fault)) {
            return refused(record, &ProxyError::RequestUnreadable { why, answered: false });
        }
        self.relay_read(parts, UpBody::rope(vec![body]), is_refused.then_some(why), record).await
    }

    /// The profile that the request takes, and whose conversation it carries.
    fn identify(
        &self,
        parts: &Parts,
        (request, body): (&Request, &Bytes),
    ) -> Result<(Option<&Profile>, Identity), ProxyError> {
        let credentials = Credentials::of(&parts.headers, &parts.uri);
        let sent = (&parts.headers, &credentials);
        let principal = caller::principal(&self.key, sent, &self.config)?;
        let profile = profile::choose(&self.config, sent, (request, body))?;
        let settings = &self.config.conversation;
        let identity = caller::identify((&self.key, principal), &parts.headers, (request, body), settings);
        Ok((profile, identity))
    }

    /// Why the request goes no further, if it does not: the shared ledger is away, or a policy wants none of it.
    fn refusal(&self, reading: &Reading, record: &mut Record) -> Option<ProxyError> {
        let observes = self.is_observing();
        let strict = self.config.ledger.strict && !observes;
        if reading.facts.away || (reading.facts.unwritten && strict) {
            let is_refused = strict;
            self.telemetry.metrics.count_without_ledger(is_refused);
            if is_refused {
                return Some(ProxyError::LedgerAway);
            }
        }
        let refusal = reading.plan.refusal.as_ref()?;
        record.outcome.act(On::Request, refusal.policy, "rejected", 1);
        let error = ProxyError::Refused { code: refusal.code, message: refusal.message.clone() };
        (!observes).then_some(error)
    }

    async fn read(&self, parts: &Parts, mut body: Incoming, record: &mut Record) -> Result<Bytes, Unread> {
        let limits = &self.config.limits;
        let declared = parts.headers.get(hyper::http::header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        let patience = Patience { pause: limits.body_timeout, whole: limits.upload_timeout };
        let lengths = (declared, limits.request_bytes);
        let wait = if self.is_observing() { Duration::ZERO } else { patience.pause };
        let memory = Some((&self.memory.requests, wait));
        let read = {
            let mut reading = pin!(read_within(&mut body, lengths, patience, memory));
            match reading.as_mut().now_or_never() {
                Some(read) => read,
                None => {
                    let read = reading.await;
                    record.rested();
                    read
                }
            }
        };
        read.map_err(|error| match error {
            ReadError::TooLong(read) if self.is_observing() => {
                let idle = self.config.upstream.idle_timeout;
                Unread::Relayed(UpBody::continued(read, body, idle), "too_large")
            }
            ReadError::NoMemory(read) if self.is_observing() => {
                let idle = self.config.upstream.idle_timeout;
                Unread::Relayed(UpBody::continued(read, body, idle), "no_memory")
            }
            ReadError::NoMemory(_) => ProxyError::NoMemory.into(),
            ReadError::TooLong(_) => ProxyError::RequestTooLong { limit: limits.request_bytes }.into(),
            ReadError::Timeout => ProxyError::ClientTimeout.into(),
            ReadError::Cut => ProxyError::ClientCut.into(),
        })
    }

    /// Lets the request in beside others of its conversation, or after them, as the operator wants it.
    async fn admit(
        &self,
        identity: &Identity,
        (request, body): (&Request, &Bytes),
        record: &mut Record,
    ) -> Result<Option<Passage>, ProxyError> {
        let settings = &self.config.conversation;
        let patience = match settings.in_flight {
            InFlight::Wait => settings.in_flight_wait,
            InFlight::Refuse => Duration::ZERO,
            InFlight::Pass => return Ok(None),
        };
        let Some(explicit) = identity.explicit.as_ref().filter(|_| !self.is_observing()) else {
            return Ok(None);
        };
        let entry = self.turnstile.enter(identity.conversation(request, body), patience).await;
        record.rested();
        match entry {
            Entry::Free(passage) => Ok(Some(passage)),
            Entry::Waited(passage) => {
                record.outcome.act(On::Request, IN_FLIGHT, "waited", 1);
                Ok(Some(passage))
            }
            Entry::Busy => {
                record.outcome.act(On::Request, IN_FLIGHT, "rejected", 1);
                record.outcome.conversation = Some(explicit.clone());
                let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
                Err(ProxyError::ConversationBusy { waited_ms })
            }
        }
    }

    /// The exchange with the upstream and the judge of its replies.
    fn prepare(
        self: Arc<Self>,
        parts: Parts,
        (body, request): (Bytes, Request),
        reading: Reading,
        record: Record,
    ) -> (Box<Exchange>, Judging) {
        let Reading {
            identity,
            facts,
            plan,
            judge,
            restored,
            context,
            model,
            meter,
            asks_usage,
            token,
            length,
            ..
        } = reading;
        let observe = self.is_observing();
        let answers = AnswerTools::of(&request, &body, &self.config.reask.answer_tools);
        let keeps_tools = request.choice == Choice::Forced || !answers.declared.is_empty();
        let notices = plan.has_notices() && !observe;
        let upstream = &self.config.upstream;
        let (mode, overflow) = (upstream.tools_unsupported, upstream.overflow);
        let put_back = !restored.is_empty();
        let subject = Subject { mode, overflow, forced: keeps_tools, notices, restored: put_back };
        let fallbacks = Fallbacks::new(&request, subject);
        let settings = &self.config.notices;
        let model_name = request.model_name(&body);
        let placed = placement(settings.placement, &settings.system_models, &model_name, facts.model);
        let mut pass = fallbacks.first(&request, placed, facts.model);
        if observe {
            pass = Pass::plain(placed);
        }
        pass.ask_usage = asks_usage;
        let judging = Judging::new(judge, answers, observe)
            .asking(token)
            .passing_unjudged(self.config.upstream.unjudged == Unjudged::Pass);
        let (plan, restored) = if observe { (Plan::default(), Vec::new()) } else { (plan, restored) };
        // It goes through many hands.
        let mut exchange = Box::new(Exchange {
            gateway: self,
            head: Head::new(parts),
            body,
            request: Box::new(request),
            identity,
            plan: Box::new(plan),
            restored,
            context,
            model,
            pass,
            fallbacks,
            tried: Vec::new(),
            reasks: Reasks::default(),
            bare: false,
            keeps_tools,
            record,
            meter: Some(meter),
            passage: None,
            waiting: Waiting::default(),
            length,
            name: OnceLock::new(),
        });
        exchange.tell_known();
        (exchange, judging)
    }

    /// Sends on as it came what toolrein cannot read. `refusing`: an upstream that can read it is not to be heard, and
    /// the label of why we cannot.
    async fn relay_read(
        &self,
        parts: Parts,
        body: UpBody,
        refusing: Option<&'static str>,
        mut record: Record,
    ) -> Response<ReplyBody> {
        let request = hyper::http::Request::from_parts(parts, body);
        record.rested();
        let sent = self.upstream.send(request).await;
        record.upstream_time();
        match sent {
            Ok(response) => {
                let (head, body) = response.into_parts();
                if let Some(why) = refusing.filter(|_| head.status.is_success()) {
                    return refused(record, &ProxyError::RequestUnreadable { why, answered: true });
                }
                record.outcome.status = head.status.as_u16();
                let idle = self.config.upstream.idle_timeout;
                Response::from_parts(head, ReplyBody::relay_told(body, idle, record, Record::passes))
            }
            Err(error) => refused(record, &error),
        }
    }
}

impl Exchange {
    /// Steps 7 to 9 of the path: sends, falls back, judges and answers.
    async fn run(mut self: Box<Self>, judging: Judging) -> Response<ReplyBody> {
        loop {
            let response = match self.send().await {
                Ok(response) => response,
                Err(error) => return self.fail(&error),
            };
            if stream::begins(self.request.stream, &response) {
                return stream::answer(self, judging, response);
            }
            let mut read = match self.read(response).await {
                Ok(read) => read,
                Err(error) => return self.fail(&error),
            };
            if let Some(begun) = read.take_stream() {
                return stream::answer_begun(self, judging, begun);
            }
            let error = read.error();
            if judging.is_strict() && read.may_be_another_readers() {
                self.record.unjudged("not_json");
                return self.fail(&ProxyError::ReplyUnjudged { why: "not_json" });
            }
            if let Some((status, error)) = error {
                if self.falls_back(status, &error) {
                    continue;
                }
                return self.pass_on(read);
            }
            if !read.is_success() && !read.may_hold_calls() {
                return self.pass_on(read);
            }
            self.taken();
            return self.judge_whole(read, judging).await;
        }
    }
}

/// An error of ours, recorded.
fn refused(mut record: Record, error: &ProxyError) -> Response<ReplyBody> {
    let mut response = error_response(error);
    record.outcome.status = error.status().as_u16();
    record.outcome.error = Some(error.code());
    record.write_head(response.headers_mut(), None);
    if *error != ProxyError::ClientCut {
        record.end();
    }
    response
}
