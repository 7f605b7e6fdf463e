//! The HTTP client of the traces' collector: requests of the OTLP exporter, sent over a connection pool of toolrein's
//! own, so with its TLS and its time limits. The operator's headers are added here, so that no library sees them.

use super::body::UpBody;
use super::read::{Patience, read_body};
use super::upstream::{Upstream, UpstreamSettings, UpstreamSetupError};
use crate::config::{Traces, without_secrets};
use crate::secret::UNSET;
use async_trait::async_trait;
use bytes::Bytes;
use hyper::http::uri::PathAndQuery;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use opentelemetry_http::{HttpClient, HttpError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The longest answer that is read: one of OTLP's has some hundred bytes.
const MOST_BYTES: u64 = 64 * 1024;

/// Why there can be no collector.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    #[error("telemetry.traces.headers: the environment variable {name} {problem}")]
    Header { name: String, problem: &'static str },
    #[error("telemetry.traces.endpoint: {0}")]
    Url(UpstreamSetupError),
}

/// See the module's documentation.
pub struct CollectorClient {
    upstream: Arc<Upstream>,
    path: Uri,
    headers: HeaderMap,
    /// For one request with its answer.
    within: Duration,
    /// Where requests run: the exporter's thread belongs to no runtime.
    runtime: Handle,
}

/// The exporter requires it. No header is shown.
impl fmt::Debug for CollectorClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CollectorClient").finish_non_exhaustive()
    }
}

impl CollectorClient {
    /// The client for the collector at `address`. Reads the values of headers from the environment; connects to nothing
    /// yet. `like`: the connection settings of the upstream. Call within the runtime.
    ///
    /// # Errors
    /// A variable is not set or cannot be a header's value, or the roots of trust cannot be read.
    pub fn new(traces: &Traces, address: &Uri, like: &UpstreamSettings) -> Result<Self, CollectorError> {
        let wrong = || {
            let (url, problem) = (without_secrets(&address.to_string()), "is not a URL");
            CollectorError::Url(UpstreamSetupError::Url { url, problem })
        };
        // An upstream maps `/v1` to its own path, which is empty here.
        let path = format!("/v1{}", address.path()).parse().map_err(|_| wrong())?;
        let mut parts = address.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        let base = Uri::from_parts(parts).map_err(|_| wrong())?;
        let settings = UpstreamSettings { first_byte: traces.timeout, ..like.for_other_server(base) };
        let upstream = Arc::new(Upstream::new(settings).map_err(CollectorError::Url)?);
        let headers = headers(traces)?;
        Ok(Self { upstream, path, headers, within: traces.timeout, runtime: Handle::current() })
    }
}

/// The headers with their values from the environment, marked sensitive, so that they are kept out of logs.
fn headers(traces: &Traces) -> Result<HeaderMap, CollectorError> {
    let mut headers = HeaderMap::new();
    for (name, variable) in &traces.headers {
        let wrong = |problem| CollectorError::Header { name: variable.clone(), problem };
        let value = std::env::var(variable).map_err(|_| wrong(UNSET))?;
        let value = HeaderValue::from_str(value.trim());
        let mut value = value.map_err(|_| wrong("contains characters that a header cannot hold"))?;
        value.set_sensitive(true);
        let name: HeaderName = name.parse().map_err(|_| wrong("is for no header"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (mut parts, body) = request.into_parts();
        parts.uri = self.path.clone();
        parts.headers.extend(self.headers.clone());
        let request = Request::from_parts(parts, UpBody::rope(vec![body]));
        let (upstream, within) = (Arc::clone(&self.upstream), self.within);
        let sent =
            self.runtime.spawn(async move { timeout(within, answer(&upstream, within, request)).await });
        sent.await??
    }
}

/// The whole answer to `request`, whatever its status.
async fn answer(
    upstream: &Upstream,
    within: Duration,
    request: Request<UpBody>,
) -> Result<Response<Bytes>, HttpError> {
    let (head, mut body) = upstream.send(request).await?.into_parts();
    let patience = Patience { pause: within, whole: within };
    let body = read_body(&mut body, None, MOST_BYTES, patience).await?;
    Ok(Response::from_parts(head, body))
}
