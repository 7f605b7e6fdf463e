//! The request handler. It relays everything but requests to governed endpoints as it is; it reads those, identifies
//! their caller, and hands them to an exchange, which decides on the rest.

use super::body::{ReplyBody, UpBody};
use super::coding::{self, NotDecoded};
use super::conversation_lock::ConversationLock;
use super::credential::Credentials;
use super::driver::Driver;
use super::error::ProxyError;
use super::head::{CodedBody, Head};
use super::headers::{self, is_upgrade};
use super::memory::BodyMemory;
use super::read::{Patience, ReadError, Unread, read_within};
use super::record::{Record, wants_report, write_head};
use super::recording::{Keepers, Recording};
use super::request_id::REQUEST_ID;
use super::respond::error_response;
use super::spelling::Governed;
use super::stored_response::StoredKind;
use super::summaries::Summariser;
use super::upstream::Upstream;
use super::webhooks::Webhooks;
use super::{
    ResponseFuture, Service, caller, clock, count_tokens, profile, relay, request_id, stored_response,
    ungoverned,
};
use crate::config::{Config, Mode, Profile, Threads, Unjudged, WebSocket};
use crate::store::equal_requests::EqualRequests;
use crate::store::held::HeldCalls;
use crate::telemetry::Telemetry;
use arc_swap::ArcSwap;
use bytes::Bytes;
use dialects::error::ErrorShape;
use dialects::messages::threads::{Thread, thread_of};
use dialects::prefix::read_request;
use dialects::{AnyDialect, CHAT, MESSAGES, RESPONSES};
use engine::{Arrived, Exchange, Now, Shared};
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::http::{HeaderMap, HeaderName, Response};
use model::identity::{HashKey, Identity};
use model::memo::Memo;
use model::record::{CallerName, Endpoint, On, Route};
use model::request::Request;
use model::uses::request_key;
use state::StateStore;
use std::future::ready;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The state that all requests share.
pub struct AppState {
    pub config: Arc<Config>,
    pub upstream: Arc<Upstream>,
    pub store: Arc<dyn StateStore>,
    pub memo: Arc<dyn Memo>,
    /// The bound on the memory of all bodies.
    pub memory: BodyMemory,
    pub telemetry: Arc<Telemetry>,
    pub keepers: Keepers,
    pub key: HashKey,
    /// Calls that wait for a person's approval.
    pub held: Arc<HeldCalls>,
    /// Sends the requests of one conversation one at a time, where that is configured.
    pub conversation_lock: Arc<ConversationLock>,
    pub summaries: Summariser,
    /// Notifies people of calls that wait.
    pub webhooks: Webhooks,
    /// How often equal requests came.
    pub equal_requests: Arc<EqualRequests>,
    /// What exchanges share.
    pub shared: Arc<Shared>,
}

/// The state that the accept loop uses. A request keeps the state with which it began to its end, also across a reload.
pub struct Handler(pub ArcSwap<AppState>);

impl Service for Handler {
    fn call(self: Arc<Self>, mut request: hyper::http::Request<Incoming>) -> ResponseFuture {
        let id = request_id::assign(&mut request);
        let app = self.0.load_full();
        let endpoint = app.governed(&request);
        let shape = error_shape(endpoint, request.headers());
        let answering = app.answer(request, endpoint);
        Box::pin(async move {
            let mut response = answering.await;
            response.headers_mut().insert(&REQUEST_ID, id);
            if response.extensions().get::<ProxyError>().is_some() {
                response.extensions_mut().insert(shape);
            }
            response
        })
    }
}

/// The header that clients of Anthropic's API send with each request, whatever its endpoint.
static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The shape in which the client expects errors.
fn error_shape(endpoint: Option<Governed>, headers: &HeaderMap) -> ErrorShape {
    match endpoint {
        Some(Governed::Messages | Governed::CountTokens) => ErrorShape::Anthropic,
        Some(Governed::ChatCompletions | Governed::Responses) => ErrorShape::OpenAi,
        None if headers.contains_key(&ANTHROPIC_VERSION) => ErrorShape::Anthropic,
        None => ErrorShape::OpenAi,
    }
}

impl AppState {
    /// Answers a request; `endpoint`: the governed one that it is for.
    fn answer(
        self: Arc<Self>,
        request: hyper::http::Request<Incoming>,
        endpoint: Option<Governed>,
    ) -> ResponseFuture {
        if !self.knows_caller(&request) {
            return Box::pin(ready(self.refuse(endpoint, &request, &ProxyError::UnknownCaller)));
        }
        let Some(endpoint) = endpoint else { return self.relay(request, None) };
        if self.refuses_upgrade(endpoint, &request) {
            let refused = self.refuse(Some(endpoint), &request, &ProxyError::WebSocketNotGoverned);
            return Box::pin(ready(refused));
        }
        if headers::is_post(&request) {
            Box::pin(self.govern(request, endpoint, dialect_of(endpoint)))
        } else {
            self.relay(request, Some(endpoint))
        }
    }
}

/// The wire protocol of an endpoint.
fn dialect_of(endpoint: Governed) -> AnyDialect {
    match endpoint {
        Governed::ChatCompletions => CHAT,
        Governed::Responses => RESPONSES,
        Governed::Messages | Governed::CountTokens => MESSAGES,
    }
}

fn route_of(endpoint: Governed) -> Route {
    match endpoint {
        Governed::ChatCompletions => Route::Chat,
        Governed::Responses => Route::Responses,
        Governed::Messages => Route::Messages,
        // No model replies to it.
        Governed::CountTokens => Route::Relay,
    }
}

/// The sender of a request, and which policies are on for it.
pub(super) struct Sender<'a> {
    /// The profile that the request takes.
    pub(super) profile: Option<&'a Profile>,
    pub(super) tier: Option<Arc<str>>,
    /// The caller and the conversation.
    pub(super) identity: Identity,
    /// The caller's name, where callers are named.
    pub(super) name: Option<CallerName>,
}

impl AppState {
    /// The governed endpoint that a POST or an upgrade is for. Only a GET can be an upgrade, so no `Upgrade` header
    /// exempts a POST.
    fn governed<B>(&self, request: &hyper::http::Request<B>) -> Option<Governed> {
        let may_be = self.config.mode != Mode::Off && (headers::is_post(request) || is_upgrade(request));
        may_be.then(|| self.upstream.governed(request.uri())).flatten()
    }

    /// Whether the request carries the key of a caller, where only known ones are served. Holds in every mode: it is no
    /// policy.
    fn knows_caller<B>(&self, request: &hyper::http::Request<B>) -> bool {
        let callers = &self.config.callers;
        let credentials = || Credentials::of(request.headers(), request.uri());
        callers.is_empty() || callers.named_by(credentials().iter()).is_some()
    }

    /// Whether the request opens a WebSocket through which calls would bypass the policies that govern them over
    /// HTTP.
    fn refuses_upgrade<B>(&self, endpoint: Governed, request: &hyper::http::Request<B>) -> bool {
        endpoint == Governed::Responses
            && self.config.responses.websocket == WebSocket::Http
            && !self.is_observing()
            && is_upgrade(request)
    }

    /// Now, in ms since the epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        clock::now_ms()
    }

    /// Whether policies decide but nothing is changed.
    pub(crate) fn is_observing(&self) -> bool {
        self.config.mode == Mode::Observe
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

    /// Answers with an error of toolrein's own, before anything of the body is read.
    fn refuse(
        &self,
        endpoint: Option<Governed>,
        request: &hyper::http::Request<Incoming>,
        error: &ProxyError,
    ) -> Response<ReplyBody> {
        let route = match endpoint {
            _ if is_upgrade(request) => Route::Upgrade,
            Some(endpoint) => route_of(endpoint),
            None => Route::Relay,
        };
        let mode = self.config.mode.as_str();
        let mut record = Record::begin(&self.telemetry, route, request.headers(), request.extensions(), mode);
        record.asks_for(request.method(), request.uri(), endpoint);
        refused(record, error)
    }

    /// Relays a request that is not governed.
    fn relay(
        self: Arc<Self>,
        request: hyper::http::Request<Incoming>,
        endpoint: Option<Governed>,
    ) -> ResponseFuture {
        let may_be_stored = self.config.mode == Mode::Enforce && endpoint.is_none();
        let kind =
            may_be_stored.then(|| stored_response::kind_of(request.method(), request.uri().path())).flatten();
        let Some(kind) = kind else { return self.relay_as_it_is(request, endpoint) };
        // Where it matters, no `Upgrade` header exempts a request that a server may answer with a stored reply.
        let restricts = self.restricts_stored(request.headers(), request.uri());
        let is_seen = restricts || (kind == StoredKind::Response && !is_upgrade(&request));
        if is_seen || (stored_response::id_in(request.uri().path()).is_some() && !is_upgrade(&request)) {
            return Box::pin(async move {
                let (request, stored) = self.with_upstream_id(request).await;
                if !is_seen {
                    return self.relay_as_it_is(request, endpoint).await;
                }
                let record = self.begin_relay(&request, endpoint);
                self.relay_stored(request, kind, stored, record).await
            });
        }
        self.relay_as_it_is(request, endpoint)
    }

    /// The record of a request that is relayed.
    fn begin_relay(&self, request: &hyper::http::Request<Incoming>, endpoint: Option<Governed>) -> Record {
        let route = if is_upgrade(request) { Route::Upgrade } else { Route::Relay };
        let mut record = Record::begin(
            &self.telemetry,
            route,
            request.headers(),
            request.extensions(),
            self.config.mode.as_str(),
        );
        record.asks_for(request.method(), request.uri(), endpoint);
        record.sends();
        record
    }

    fn relay_as_it_is(
        self: Arc<Self>,
        request: hyper::http::Request<Incoming>,
        endpoint: Option<Governed>,
    ) -> ResponseFuture {
        let record = self.begin_relay(&request, endpoint);
        // Only an upgrade or a POST request can make a model answer.
        let may_be_answered = headers::is_post(&request) || is_upgrade(&request);
        if may_be_answered && self.config.mode != Mode::Off {
            ungoverned::warn_once(record.data.endpoint, &record.data.path);
        }
        // Shared with the body, which outlives this call. A std mutex: held for assignments alone.
        let record = Arc::new(Mutex::new(record));
        Box::pin(async move {
            let idle = self.config.upstream.idle_timeout;
            let response = relay::relay(request, &self.upstream, idle, Arc::clone(&record)).await;
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            record.upstream_time();
            record.data.status = response.status().as_u16();
            let own = response.extensions().get::<ProxyError>();
            own.into_iter().for_each(|error| error.note_in(&mut record.data));
            record.sent(own.map_or_else(|| Ok(response.headers()), Err));
            record.end();
            drop(record);
            response
        })
    }

    /// Reads the request, identifies its caller and drives the exchange.
    async fn govern(
        self: Arc<Self>,
        request: hyper::http::Request<Incoming>,
        endpoint: Governed,
        dialect: AnyDialect,
    ) -> Response<ReplyBody> {
        let (mut parts, body) = request.into_parts();
        let mode = self.config.mode.as_str();
        let mut record =
            Record::begin(&self.telemetry, route_of(endpoint), &parts.headers, &parts.extensions, mode);
        record.asks_for(&parts.method, &parts.uri, Some(endpoint));
        let (body, coded) = match self.read(&parts, body, &mut record).await {
            Ok(read) => read,
            Err(Unread::Refused(error)) => return refused(record, &error),
            Err(Unread::Relayed(body, why)) => {
                record.data.ungoverned = Some(why);
                return Box::pin(self.relay_read(parts, body, None, record)).await;
            }
            Err(Unread::Coded(came)) => {
                return Box::pin(self.govern_unread(parts, came, "unreadable_coding", || true, record)).await;
            }
        };
        record.data.request_bytes = body.len() as u64;
        let request = match read_request(dialect, &body, &self.key, &*self.memo) {
            Ok(request) => request,
            Err(fault) => {
                let came = coded.map_or_else(|| body.clone(), |coded| coded.came);
                let may_be = || dialect.may_be_request(&body, fault);
                return Box::pin(self.govern_unread(parts, came, fault.label(), may_be, record)).await;
            }
        };
        if matches!(endpoint, Governed::Messages | Governed::CountTokens)
            && let Some(asked) = thread_of(&request, &body)
        {
            let is_relayed = self.relays_threads();
            ungoverned::warn_threads_once(is_relayed);
            if is_relayed {
                record.data.ungoverned = Some("thread");
                let came = coded.map_or(body, |coded| coded.came);
                return Box::pin(self.relay_read(parts, UpBody::rope(vec![came]), None, record)).await;
            }
            if let Some(error) = note_thread(asked, &mut record) {
                return refused(record, &error);
            }
        }
        let Sender { profile, tier, identity, name } = match self.identify(&parts, &request, &body) {
            Ok(found) => found,
            Err(error) => return refused(record, &error),
        };
        let profile = profile.map(|profile| Arc::clone(&profile.name));
        (record.data.caller, record.data.caller_name) = (Some(identity.caller.to_hex()), name);
        let at = record.split();
        if endpoint == Governed::CountTokens {
            let path = count_tokens::path_of_request(parts.uri.path()).to_owned();
            let arrived = Arrived { dialect, body, request, identity, profile, tier, reports: false, path };
            let now = Now { at, ms: clock::ms_at(at) };
            let (shared, store) = (Arc::clone(&self.shared), Arc::clone(&self.store));
            let came = arrived.body.clone();
            let changed = count_tokens::changed_body(shared, store, arrived, now).await;
            let pieces = changed.unwrap_or_else(|| vec![came]);
            let (parts, body) = Head::new(parts, coded).request(&pieces, None).into_parts();
            return Box::pin(self.relay_read(parts, body, None, record)).await;
        }
        let request_key = request_key(&self.key, identity.caller, request.digest(&body, &self.key), []);
        if let Err(error) = self.count_equal(request_key, clock::ms_at(at), &mut record.data) {
            return refused(record, &error);
        }
        if !self.is_observing() {
            coding::accept_decodable(&mut parts.headers);
        }
        let path = parts.uri.path().to_owned();
        let read = (&body, &request);
        let recording = Recording::begin(&self.keepers, &record.data, dialect, read, clock::ms_at(at));
        let reports = wants_report(&parts.headers);
        let arrived = Arrived { dialect, body, request, identity, profile, tier, reports, path };
        let data = record.data.lend();
        let now = Now { at, ms: clock::ms_at(at) };
        let exchange = Exchange::begin(Arc::clone(&self.shared), arrived, data, now);
        Driver::new(self, exchange, record, Head::new(parts, coded), request_key)
            .recorded_by(recording)
            .run()
            .await
    }

    /// Whether requests with a `thread` are relayed as they came.
    fn relays_threads(&self) -> bool {
        self.config.messages.threads == Threads::Relay || self.is_observing()
    }

    /// Handles a request that cannot be read; `body` is as it came, and `why` is the label used in metrics. Where
    /// policies restrict calls, the request is refused if another parser might read it (`may_be`). If it is sent on,
    /// its reply is passed on only if it is an error.
    async fn govern_unread(
        &self,
        parts: Parts,
        body: Bytes,
        why: &'static str,
        may_be: impl FnOnce() -> bool,
        mut record: Record,
    ) -> Response<ReplyBody> {
        record.data.ungoverned = Some(why);
        ungoverned::warn_unread_once(record.data.endpoint, why);
        let credentials = Credentials::of(&parts.headers, &parts.uri);
        let is_refused = self.config.upstream.unjudged == Unjudged::Refuse
            && !self.is_observing()
            // Nothing in a number of tokens could be judged.
            && record.data.endpoint != Endpoint::CountTokens
            && profile::may_restrict_calls(&self.config, &parts.headers, &credentials);
        if is_refused && may_be() {
            return refused(record, &ProxyError::RequestUnreadable { why, answered: false });
        }
        self.relay_read(parts, UpBody::rope(vec![body]), is_refused.then_some(why), record).await
    }

    /// Identifies the sender of the request.
    pub(super) fn identify(
        &self,
        parts: &Parts,
        request: &Request,
        body: &Bytes,
    ) -> Result<Sender<'_>, ProxyError> {
        let credentials = Credentials::of(&parts.headers, &parts.uri);
        let headers = &parts.headers;
        let read = Some((request, &body[..]));
        let caller = caller::caller_of(&self.key, headers, &credentials, read, &self.config)?;
        let profile = profile::choose(&self.config, headers, &credentials, request, body)?;
        let settings = &self.config.conversation;
        let identity = caller::identify(&self.key, caller.hash, headers, request, body, settings);
        let tier = Some(profile::tier(&self.config.profiles, &credentials));
        Ok(Sender { profile, tier, identity, name: caller.name })
    }

    /// The request's body, decoded; and, if it came in a content coding, the body as it came.
    async fn read(
        &self,
        parts: &Parts,
        body: Incoming,
        record: &mut Record,
    ) -> Result<(Bytes, Option<CodedBody>), Unread> {
        let came = self.receive(parts, body, record).await?;
        let limit = self.config.limits.request_bytes;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let decoded = coding::decode_request(&parts.headers, &came, most, &self.memory.requests).await;
        match decoded {
            Ok(None) => Ok((came, None)),
            Ok(Some(decoded)) => Ok((decoded.clone(), Some(CodedBody { came, decoded }))),
            Err(NotDecoded::Unreadable) => Err(Unread::Coded(came)),
            Err(NotDecoded::TooLong) if self.is_observing() => {
                Err(Unread::Relayed(UpBody::rope(vec![came]), "too_large"))
            }
            Err(NotDecoded::NoMemory) if self.is_observing() => {
                Err(Unread::Relayed(UpBody::rope(vec![came]), "no_memory"))
            }
            Err(NotDecoded::TooLong) => Err(ProxyError::RequestTooLong { limit }.into()),
            Err(NotDecoded::NoMemory) => Err(ProxyError::NoMemory.into()),
        }
    }

    /// The request's body as it comes.
    async fn receive(&self, parts: &Parts, mut body: Incoming, record: &mut Record) -> Result<Bytes, Unread> {
        let limits = &self.config.limits;
        let declared = parts.headers.get(hyper::http::header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        let patience = Patience { pause: limits.body_timeout, whole: limits.upload_timeout };
        let wait = if self.is_observing() { Duration::ZERO } else { patience.pause };
        let memory = Some((&self.memory.requests, wait));
        let read = {
            let mut reading = pin!(read_within(&mut body, declared, limits.request_bytes, patience, memory));
            match reading.as_mut().now_or_never() {
                Some(read) => read,
                None => {
                    let read = reading.await;
                    record.mark_idle();
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

    /// Sends a request on and passes its reply on without judging it. `refusing`: why toolrein cannot read the request,
    /// where the reply of an upstream that can read it must not be passed on.
    pub(super) async fn relay_read(
        &self,
        parts: Parts,
        body: UpBody,
        refusing: Option<&'static str>,
        mut record: Record,
    ) -> Response<ReplyBody> {
        let refuses = self.refuses_unjudged(&parts.headers, &parts.uri);
        let request = hyper::http::Request::from_parts(parts, body);
        record.mark_idle();
        record.sends();
        let here = |mut response| match self.config.mode {
            Mode::Enforce => self.upstream.keep_here(&mut response, || refuses).map(|()| response),
            _ => Ok(response),
        };
        let sent = self.upstream.send(request).await.and_then(here);
        record.sent(sent.as_ref().map(Response::headers));
        record.upstream_time();
        match sent {
            Ok(response) => {
                let (head, body) = response.into_parts();
                if let Some(why) = refusing.filter(|_| head.status.is_success()) {
                    return refused(record, &ProxyError::RequestUnreadable { why, answered: true });
                }
                record.data.status = head.status.as_u16();
                let idle = self.config.upstream.idle_timeout;
                Response::from_parts(head, ReplyBody::relay_observed(body, idle, record, Record::passes))
            }
            Err(error) => refused(record, &error),
        }
    }
}

/// Notes that the conversation of a request is not kept upstream, as its `thread` asks; returns the error by which the
/// client learns to send it whole, where it has not.
fn note_thread(asked: Thread, record: &mut Record) -> Option<ProxyError> {
    let (action, error) = match asked {
        Thread::Create => ("removed", None),
        Thread::Continue => ("refused", Some(ProxyError::ThreadNotFound)),
        Thread::Unknown => {
            let code = "thread_unsupported_request";
            let message =
                "toolrein does not know this kind of thread. Send the whole conversation without it.";
            ("refused", Some(ProxyError::Refused { code, message: message.to_owned() }))
        }
    };
    record.data.act(On::Request, "threads", action, 1);
    error
}

/// An error response of toolrein's own, recorded.
pub(super) fn refused(mut record: Record, error: &ProxyError) -> Response<ReplyBody> {
    let mut response = error_response(error);
    record.data.status = error.status();
    error.note_in(&mut record.data);
    write_head(&record.data, response.headers_mut());
    if *error != ProxyError::ClientCut {
        record.end();
    }
    response
}
