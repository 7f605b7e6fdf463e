//! The upstream: sends requests over pooled connections and returns the heads of their responses.
//!
//! It handles the address, hop-by-hop headers, time limits, and one retry of a request on a connection that the
//! upstream had just closed. It does not read response bodies, and does not judge statuses: a 500 of the upstream's is
//! a response like any other.

use super::body::{BodyError, UpBody};
use super::client::{self, FirstByte, Keep, SendError, UpstreamClient};
use super::connect::{ConnectTimeout, Connector, Note, Offer};
use super::error::{ProxyError, TlsFailure};
use super::forward_proxy::ForwardProxy;
use super::headers;
use super::hints::MOST_HINTS;
use super::redirects;
use super::spelling::{self, Governed};
use super::target::Base;
use super::tls::{self, CaFileError};
use super::upstream_key::UpstreamKey;
use crate::config::without_secrets;
use hyper::body::Body;
use hyper::body::Incoming;
use hyper::http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use hyper::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Error as ClientError;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// A connection that was closed while it idled fails within a round trip. On one that breaks later the upstream had
/// started to work, and a retry could be paid for twice.
const STALE_WITHIN: Duration = Duration::from_secs(1);
/// The address and the time limits of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// `upstream.url`: scheme, host and the path that takes the place of `/v1`.
    pub base: Uri,
    /// For name lookup, TCP and TLS together.
    pub connect: Duration,
    /// From the request's last byte read from the client (from the start where it is in memory) to the
    /// head of the response.
    pub first_byte: Duration,
    /// Silence allowed inside a response's body.
    pub idle: Duration,
    /// Roots of trust in PEM, besides the platform's.
    pub ca_file: Option<PathBuf>,
    /// Speak HTTP/2 to an `http` upstream without asking. With `https` it is negotiated anyway.
    pub http2: bool,
    /// The operator's API key, in place of the client's.
    pub key: Option<UpstreamKey>,
    /// The forward proxy on the way.
    pub proxy: ForwardProxy,
}

impl UpstreamSettings {
    /// The settings for another server, at `base`: the key and prior knowledge of HTTP/2 concern the upstream alone, and
    /// so does a proxy that was chosen for it.
    pub(super) fn for_other_server(&self, base: Uri) -> Self {
        Self { base, http2: false, key: None, proxy: self.proxy.for_other_servers(), ..self.clone() }
    }
}

/// The settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamSetupError {
    /// The URL cannot be used; what is wrong with it.
    #[error("upstream.url {url}: {problem}")]
    Url { url: String, problem: &'static str },
    /// The file with roots of trust cannot be used.
    #[error(transparent)]
    CaFile(#[from] CaFileError),
}

/// In a response's extensions: the request met a stale connection and was retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retried;

/// In a response's extensions: neither a length nor chunks mark the end of its body, but only the end of the
/// connection. A body that was cut then looks complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndsByClosing;

/// One upstream with its pool of connections.
pub struct Upstream {
    base: Base,
    pooled: UpstreamClient,
    /// For retries on a stale connection: an upstream that closed one idle connection may have closed them all.
    fresh: UpstreamClient,
    /// Upgrades leave HTTP/1.1, so they must not be negotiated to HTTP/2, and never return to a pool.
    upgrades: UpstreamClient,
    first_byte: Duration,
    idle: Duration,
    /// Connections are known to speak HTTP/1.1 before they are made.
    is_http1: bool,
    key: Option<UpstreamKey>,
    /// The address of the forward proxy on the way, without credentials.
    proxy: Option<String>,
}

impl Upstream {
    /// Reads the roots of trust; connects to nothing yet.
    pub fn new(settings: UpstreamSettings) -> Result<Self, UpstreamSetupError> {
        let UpstreamSettings { base: url, connect, first_byte, idle, ca_file, http2, key, proxy } = settings;
        let base = Base::new(&url)
            .map_err(|problem| UpstreamSetupError::Url { url: without_secrets(&url.to_string()), problem })?;
        let (proxy, proxy_address) = (proxy.choose_for(&url), proxy.address_for(&url));
        let needs_roots =
            base.is_https() || proxy.as_ref().is_some_and(|proxy| proxy.uri().scheme_str() == Some("https"));
        let tls = if needs_roots { tls::client_config(ca_file.as_deref())? } else { tls::no_trust() };
        let base_is_https = base.is_https();
        let prior_knowledge = http2 && !base_is_https;
        let is_http1 = !http2 && !base_is_https;
        let connector = |tls, offer| Connector::new(url.clone(), tls, offer, connect, proxy.as_ref());
        let (either, http1) = (connector(tls.clone(), Offer::Http1And2), connector(tls, Offer::Http1));
        // A forward proxy and a server of HTTP/2 read the authority.
        let base = if is_http1 && proxy.is_none() { base.with_short_urls() } else { base };
        Ok(Self {
            pooled: client::client(either.clone(), prior_knowledge, is_http1, Keep::All),
            fresh: client::client(either, prior_knowledge, is_http1, Keep::None),
            upgrades: client::client(http1, false, is_http1, Keep::None),
            base,
            first_byte,
            idle,
            is_http1,
            key,
            proxy: proxy_address,
        })
    }

    /// Host and port of the upstream, for messages and labels.
    pub fn name(&self) -> &str {
        self.base.name()
    }

    /// The governed endpoint for which the upstream may take a request to `asked`: by the client's path, or by the path
    /// that is sent to the upstream (`upstream.url` may end in a part of it).
    pub(super) fn governed(&self, asked: &Uri) -> Option<Governed> {
        let own = spelling::governed(asked.path());
        let sent = asked.path_and_query().and_then(|asked| self.base.target(asked).ok());
        let sent = sent.filter(|sent| sent.path() != asked.path());
        own.into_iter().chain(sent.and_then(|sent| spelling::governed(sent.path()))).min()
    }

    /// Keeps a client from leaving toolrein by the headers of `response`; see [`redirects::keep_here`].
    pub(super) fn keep_here<B>(
        &self,
        response: &mut Response<B>,
        refuses: impl FnOnce() -> bool,
    ) -> Result<(), ProxyError> {
        redirects::keep_here(response, &self.base, refuses)
    }

    /// Silence allowed inside a response's body.
    pub fn idle(&self) -> Duration {
        self.idle
    }

    /// Sends a request, whose URI is still the client's, and waits for the head of the response. Hop-by-hop headers are
    /// removed both ways, as are `x-toolrein-*`; `host` and `content-length` are set, and the operator's key where there is
    /// one. Dropping the future closes or
    /// resets what it has opened, at once.
    pub async fn send(&self, request: Request<UpBody>) -> Result<Response<Incoming>, ProxyError> {
        self.send_prepared(self.prepare(request)).await
    }

    /// Sends what [`prepare`](Self::prepare) made of a request.
    pub(super) async fn send_prepared(
        &self,
        prepared: Result<Request<UpBody>, ProxyError>,
    ) -> Result<Response<Incoming>, ProxyError> {
        let response = self.exchange(&self.pooled, prepared?).await?;
        self.still_http(response)
    }

    /// As [`send`](Self::send), with a request that the caller makes, again for a retry: cheaper than a copy of every
    /// request for the few that need one. It began to be sent when it `started`.
    pub async fn send_made(
        &self,
        mut make: impl FnMut() -> Request<UpBody> + Send,
        started: Instant,
    ) -> Result<Response<Incoming>, ProxyError> {
        let mut sent = self.attempt(&self.pooled, self.prepare(make())?, started).await;
        if let Err(failure) = &sent
            && failure.stale
            && started.elapsed() < STALE_WITHIN
        {
            // In a box, as it is rare, so that no request reserves room for it.
            sent = Box::pin(self.attempt_again(self.prepare(make())?)).await;
        }
        self.still_http(sent.map_err(|failure| failure.error)?)
    }

    /// The response to a request that asked for no other protocol, without hop-by-hop headers.
    fn still_http(&self, mut response: Response<Incoming>) -> Result<Response<Incoming>, ProxyError> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let detail = "it switched protocols without being asked".into();
            return Err(ProxyError::UpstreamCut { host: self.name().to_owned(), detail });
        }
        headers::strip_response(response.headers_mut());
        Ok(response)
    }

    /// Sends an upgrade request. The response is as the upstream gave it, so that one with status 101 still has its
    /// `upgrade`.
    pub(super) async fn send_upgrade(
        &self,
        request: Request<UpBody>,
        protocol: HeaderValue,
    ) -> Result<Response<Incoming>, ProxyError> {
        let mut request = self.prepare(request)?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol);
        self.exchange(&self.upgrades, request).await
    }

    /// The request for the upstream.
    pub(super) fn prepare(&self, request: Request<UpBody>) -> Result<Request<UpBody>, ProxyError> {
        let (mut parts, body) = request.into_parts();
        headers::strip_request(&mut parts.headers, self.is_http1);
        // Not before: the client's `connection` may name the header that holds the key.
        if let Some(key) = &self.key {
            key.put(&mut parts);
        }
        let Some(path) = parts.uri.path_and_query() else {
            return Err(ProxyError::BadTarget { target: parts.uri.to_string() });
        };
        parts.uri = self.base.url(self.base.target(path)?);
        parts.version = Version::HTTP_11;
        parts.extensions.remove::<OnUpgrade>();
        if self.is_http1 {
            parts.headers.insert(HOST, self.base.host());
        }
        frame(&mut parts.headers, &parts.method, &body);
        Ok(Request::from_parts(parts, body))
    }

    async fn exchange(
        &self,
        client: &UpstreamClient,
        request: Request<UpBody>,
    ) -> Result<Response<Incoming>, ProxyError> {
        let again = copy(&request).map(Box::new);
        let started = Instant::now();
        let failure = match self.attempt(client, request, started).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        match again {
            Some(again) if failure.stale && started.elapsed() < STALE_WITHIN => {
                // In a box, as it is rare, so that no request reserves room for it.
                Box::pin(self.attempt_again(*again)).await.map_err(|failure| failure.error)
            }
            _ => Err(failure.error),
        }
    }

    async fn attempt_again(&self, request: Request<UpBody>) -> Result<Response<Incoming>, Failure> {
        tracing::debug!(upstream = self.name(), "the connection was stale; sending once more");
        let mut response = self.attempt(&self.fresh, request, Instant::now()).await?;
        response.extensions_mut().insert(Retried);
        Ok(response)
    }

    async fn attempt(
        &self,
        client: &UpstreamClient,
        request: Request<UpBody>,
        began: Instant,
    ) -> Result<Response<Incoming>, Failure> {
        let first_byte = FirstByte { began, within: self.first_byte, upload: request.body().upload_clock() };
        // In a box, or each future around it would reserve room for it and be moved with it.
        let sent = Box::pin(client::send(client, request, first_byte)).await;
        let mut response = sent.map_err(|error| self.failure(&error))?;
        Note::taken_from(response.extensions_mut()).mark_served();
        let is_framed = |name| response.headers().contains_key(name);
        if response.version() < Version::HTTP_2 && !is_framed(CONTENT_LENGTH) && !is_framed(TRANSFER_ENCODING)
        {
            response.extensions_mut().insert(EndsByClosing);
        }
        // To the client the version is the client's, whatever the upstream spoke.
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    fn timeout(&self) -> Failure {
        let waited_ms = u64::try_from(self.first_byte.as_millis()).unwrap_or(u64::MAX);
        Failure { error: ProxyError::UpstreamTimeout { host: self.name().into(), waited_ms }, stale: false }
    }

    fn failure(&self, error: &SendError) -> Failure {
        let host = self.name().to_owned();
        let error = match error {
            SendError::Client(error) => error,
            SendError::Left => {
                let detail = "it closed the connection".to_owned();
                return Failure { error: ProxyError::UpstreamCut { host, detail }, stale: true };
            }
            SendError::Timeout => return self.timeout(),
            SendError::Hints => {
                let error = ProxyError::UpstreamHints { host, count: MOST_HINTS };
                return Failure { error, stale: false };
            }
        };
        let (is_connect, stale) = (error.is_connect(), is_stale(error));
        let detail = deepest(error);
        let error = if let Some(cause) = find::<BodyError>(error) {
            match cause {
                BodyError::IdleTimeout => ProxyError::ClientTimeout,
                BodyError::ClientCut | BodyError::UpstreamCut => ProxyError::ClientCut,
            }
        } else if let Some(cause) = find::<rustls::Error>(error) {
            let detail = if presents_authority(cause) { AUTHORITY_AS_SERVER.to_owned() } else { detail };
            ProxyError::UpstreamTls { host, detail, failure: tls_failure(cause) }
        } else if is_connect && self.base.is_https() && broke_off(error) {
            ProxyError::UpstreamTls { host, detail, failure: TlsFailure::BrokenOff }
        } else if is_connect {
            let detail = find::<ConnectTimeout>(error).map_or(detail, ToString::to_string);
            let by = self.proxy.as_ref().map_or_else(String::new, |proxy| {
                format!("through the proxy {proxy} (it has to run and to let toolrein reach that host): ")
            });
            ProxyError::UpstreamConnect { host, detail: by + &detail }
        } else if find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
            let detail = format!(
                "its answer is no HTTP/1.1 ({detail}); if it speaks TLS on this port, write https:// in upstream.url, \
                 and if it speaks HTTP/2 alone, set upstream.http2 = true"
            );
            ProxyError::UpstreamCut { host, detail }
        } else if !self.base.is_https()
            && find::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message)
        {
            let detail = format!("{detail}; if it speaks TLS on this port, write https:// in upstream.url");
            ProxyError::UpstreamCut { host, detail }
        } else {
            ProxyError::UpstreamCut { host, detail }
        };
        Failure { error, stale }
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upstream").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The failure of one attempt.
struct Failure {
    error: ProxyError,
    /// A kept connection had been closed already; see [`is_stale`].
    stale: bool,
}

/// Whether the connection was closed before it took the request, or most likely before the request arrived.
fn is_stale(error: &ClientError) -> bool {
    find::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled)
        || error.connect_info().is_some_and(|connection| Note::of(connection).looks_stale())
}

/// Sets the headers for the body's length. A relayed body keeps what the client declared.
fn frame(headers: &mut HeaderMap, method: &Method, body: &UpBody) {
    match body {
        UpBody::Empty if !headers.contains_key(CONTENT_LENGTH) => {}
        UpBody::Empty | UpBody::Rope(_) => {
            let length = body.size_hint().exact().unwrap_or_default();
            if !has_length(headers, length) {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        UpBody::Relay(_) if *method == Method::GET || *method == Method::HEAD => {
            // For these, hyper sends no body unless its framing is declared.
            if body.size_hint().exact().is_none() {
                headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        UpBody::Relay(_) | UpBody::Continued { .. } => {}
    }
}

/// Whether `headers` already have this length, once and in its plain form: an unchanged body's.
fn has_length(headers: &HeaderMap, length: u64) -> bool {
    let mut value = headers.get_all(CONTENT_LENGTH).iter();
    let only = value.next().filter(|_| value.next().is_none()).and_then(|value| value.to_str().ok());
    only.is_some_and(|value| !value.starts_with(['+', '0']) && value.parse() == Ok(length))
}

/// A copy of the request, if its body can be sent twice.
fn copy(request: &Request<UpBody>) -> Option<Request<UpBody>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// What a person reads in place of rustls's `Other(OtherError(CaUsedAsEndEntity))`.
const AUTHORITY_AS_SERVER: &str = "the upstream presents the certificate of an authority as its own";

/// Whether a server presents an authority's certificate as its own: rustls has no name for it, webpki has.
fn presents_authority(error: &rustls::Error) -> bool {
    use rustls::{CertificateError, Error};
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.to_string() == "CaUsedAsEndEntity",
        _ => false,
    }
}

/// What a failed handshake means for people.
fn tls_failure(error: &rustls::Error) -> TlsFailure {
    use rustls::{CertificateError, InvalidMessage};
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => TlsFailure::PlainText,
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => TlsFailure::OutOfTime,
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_),
        ) => TlsFailure::Untrusted,
        _ => TlsFailure::Refused,
    }
}

/// Whether the other side hung up; while connecting, that can only have been in the TLS handshake.
fn broke_off(error: &(dyn Error + 'static)) -> bool {
    chain(error)
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::UnexpectedEof)
}

fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    chain(error).find_map(|cause| cause.downcast_ref::<T>())
}

/// The text of the innermost cause: the outer ones only say that something failed.
fn deepest(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The error and its causes.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause: &&'a (dyn Error + 'static)| {
        // An `io::Error` that wraps another error returns that one's cause as its own, and so skips it.
        match cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => (*cause).source(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_becomes_a_governed_one_at_the_upstream_is_known() {
        let upstream = |url: &str| {
            let second = Duration::from_secs(1);
            let base = url.parse().unwrap();
            let settings = UpstreamSettings {
                base,
                connect: second,
                first_byte: second,
                idle: second,
                ca_file: None,
                http2: false,
                key: None,
                proxy: ForwardProxy::default(),
            };
            Upstream::new(settings).unwrap()
        };
        for (url, asked, expected) in [
            ("http://h/v1", "/v1/chat/completions?a", Some(Governed::ChatCompletions)),
            ("http://h/api/chat", "/v1/completions", Some(Governed::ChatCompletions)),
            ("http://h/chat/completions", "/v1?a=b", Some(Governed::ChatCompletions)),
            ("http://h/api/chat", "/v1/models", None),
            ("http://h/v1", "/v1/completions", None),
            ("http://h/v1", "/v1/responses?a", Some(Governed::Responses)),
            ("http://h/codex/responses", "/v1?a=b", Some(Governed::Responses)),
            ("http://h/responses", "/v1/resp_1", None),
            ("http://h/responses/chat", "/v1/completions", Some(Governed::ChatCompletions)),
        ] {
            assert_eq!(upstream(url).governed(&asked.parse().unwrap()), expected, "{url} {asked}");
        }
    }

    #[test]
    fn a_body_of_ours_is_sent_under_its_own_length_whatever_the_client_wrote() {
        for value in [&["3"][..], &["03"], &["+3"], &["4"], &["3", "3"], &["x"], &[]] {
            let mut headers = HeaderMap::new();
            value
                .iter()
                .for_each(|value| _ = headers.append(CONTENT_LENGTH, HeaderValue::from_static(value)));
            frame(&mut headers, &Method::POST, &UpBody::rope(vec!["abc".into()]));
            assert_eq!(headers.get_all(CONTENT_LENGTH).iter().collect::<Vec<_>>(), ["3"], "{value:?}");
        }
    }
}
