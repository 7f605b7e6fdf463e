//! Where summaries are asked for, and with whose key: the caller's way with the caller's credentials, or an address and a
//! key of the operator's. A caller's credential never goes to an address of the operator's.

use crate::config::Config;
use crate::plan::SummaryPlace;
use crate::proxy::body::UpBody;
use crate::proxy::credential::carries;
use crate::proxy::upstream::{Upstream, UpstreamSettings, UpstreamSetupError};
use bytes::Bytes;
use hyper::http::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::http::{HeaderName, HeaderValue, Method, Request, Uri};
use std::collections::HashMap;

/// Whom the caller's credential has to pay for it, where it may speak for several.
static PAYERS: [HeaderName; 2] =
    [HeaderName::from_static("openai-organization"), HeaderName::from_static("openai-project")];
/// The client's path that every address takes.
const PATH: &str = "/v1/chat/completions";

/// What the settings name and the process has not.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("policy.compact.summary.key_env: the environment variable {name} {problem}")]
    Key { name: String, problem: &'static str },
    #[error("policy.compact.summary.url: {0}")]
    Url(UpstreamSetupError),
}

/// The places that the settings of all profiles name.
pub struct Places(HashMap<SummaryPlace, Known>);

struct Known {
    /// `None`: the caller's.
    upstream: Option<Upstream>,
    key: Option<HeaderValue>,
}

impl Places {
    /// Reads the keys from the environment; connects to nothing. `like`: how upstreams are reached.
    pub(crate) fn of(config: &Config, like: &UpstreamSettings) -> Result<Self, PlaceError> {
        let known = config.summary_places().map(|place| {
            let known = Known::of(&place, like)?;
            Ok((place, known))
        });
        known.collect::<Result<_, _>>().map(Self)
    }

    /// The question as it goes to `place`: with the operator's key, or with the caller's to the caller's upstream; no
    /// other header of the caller's.
    pub(super) fn post(&self, place: &SummaryPlace, parts: &Parts, question: Bytes) -> Request<UpBody> {
        let mut request = Request::new(UpBody::rope(vec![question]));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = if place.url.is_some() { Uri::from_static(PATH) } else { parts.uri.clone() };
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = self.0.get(place).and_then(|known| known.key.clone()) {
            headers.insert(AUTHORIZATION, key);
        } else if *place == SummaryPlace::default() {
            let pays = |name: &HeaderName| carries(name.as_str().as_bytes()) || PAYERS.contains(name);
            for (name, value) in parts.headers.iter().filter(|(name, _)| pays(name)) {
                headers.append(name, value.clone());
            }
        }
        request
    }

    /// The upstream at `place`, where it is not the caller's.
    pub(super) fn upstream(&self, place: &SummaryPlace) -> Option<&Upstream> {
        self.0.get(place)?.upstream.as_ref()
    }
}

impl Known {
    fn of(place: &SummaryPlace, like: &UpstreamSettings) -> Result<Self, PlaceError> {
        let upstream = |url: &String| {
            let base: Uri = url.trim_end_matches('/').parse().map_err(|_| {
                PlaceError::Url(UpstreamSetupError::Url { url: url.clone(), problem: "is no URL" })
            })?;
            // Prior knowledge of HTTP/2 is of the caller's upstream alone.
            let settings = UpstreamSettings { base, http2: false, ..like.clone() };
            Upstream::new(settings).map_err(PlaceError::Url)
        };
        Ok(Self {
            upstream: place.url.as_ref().map(upstream).transpose()?,
            key: place.key_env.as_ref().map(|name| key(name)).transpose()?,
        })
    }
}

/// The key in the variable `name`, as a header has it; kept out of every log.
fn key(name: &str) -> Result<HeaderValue, PlaceError> {
    let trouble = |problem| PlaceError::Key { name: name.to_owned(), problem };
    let key = std::env::var(name).map_err(|_| trouble("is not set"))?;
    if key.trim().is_empty() {
        return Err(trouble("is empty"));
    }
    let value = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
    let mut value = value.map_err(|_| trouble("holds what no header can"))?;
    value.set_sensitive(true);
    Ok(value)
}
