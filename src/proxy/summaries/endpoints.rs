//! The addresses and keys for requests to other models, for summaries and about calls: the caller's upstream with the
//! caller's credentials, or an operator's address and key. A caller's credential never goes to an operator's address.

use crate::config::{Config, without_secrets};
use crate::proxy::body::UpBody;
use crate::proxy::credential::carries;
use crate::proxy::upstream::{Upstream, UpstreamSettings, UpstreamSetupError};
use crate::proxy::upstream_key::{KeepsItsKey, bearer};
use crate::secret::of_variable;
use bytes::Bytes;
use hyper::http::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::http::{HeaderName, HeaderValue, Method, Request, Uri};
use model::plan::ModelEndpoint;
use std::collections::HashMap;

/// Headers that name the account to bill, where the caller's credential may speak for several.
static PAYERS: [HeaderName; 2] =
    [HeaderName::from_static("openai-organization"), HeaderName::from_static("openai-project")];
/// The path for every address, as a client would write it.
const PATH: &str = "/v1/chat/completions";

/// Something that the settings name does not exist.
#[derive(Debug, thiserror::Error)]
pub enum ModelEndpointError {
    #[error("{table}.key_env: the environment variable {name} {problem}")]
    Key { table: String, name: String, problem: &'static str },
    #[error("{table}.url: {error}")]
    Url { table: String, error: UpstreamSetupError },
}

/// The endpoints that the settings of all profiles name.
pub struct ModelEndpoints(HashMap<ModelEndpoint, KnownEndpoint>);

struct KnownEndpoint {
    /// `None`: the caller's upstream.
    upstream: Option<Upstream>,
    key: Option<HeaderValue>,
}

impl ModelEndpoints {
    /// Reads the keys from the environment; connects to nothing. `like`: the connection settings for upstreams.
    pub(crate) fn of(config: &Config, like: &UpstreamSettings) -> Result<Self, ModelEndpointError> {
        let known = config.model_endpoints().map(|(table, endpoint)| {
            let known = KnownEndpoint::new(&table, &endpoint, like)?;
            Ok((endpoint, known))
        });
        known.collect::<Result<_, _>>().map(Self)
    }

    /// The question for `endpoint`: with the operator's key, or with the caller's to the caller's upstream; without other
    /// headers of the caller.
    pub(super) fn post(&self, endpoint: &ModelEndpoint, parts: &Parts, question: Bytes) -> Request<UpBody> {
        let mut request = Request::new(UpBody::rope(vec![question]));
        *request.method_mut() = Method::POST;
        *request.uri_mut() =
            if endpoint.url.is_some() { Uri::from_static(PATH) } else { of_chat(&parts.uri) };
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = self.0.get(endpoint).and_then(|known| known.key.clone()) {
            headers.insert(AUTHORIZATION, key);
            request.extensions_mut().insert(KeepsItsKey);
        } else if *endpoint == ModelEndpoint::default() {
            let pays = |name: &HeaderName| carries(name.as_str().as_bytes()) || PAYERS.contains(name);
            for (name, value) in parts.headers.iter().filter(|(name, _)| pays(name)) {
                headers.append(name, value.clone());
            }
        }
        request
    }

    /// The upstream at `endpoint`, where it is not the caller's.
    pub(super) fn upstream(&self, endpoint: &ModelEndpoint) -> Option<&Upstream> {
        self.0.get(endpoint)?.upstream.as_ref()
    }
}

/// The chat completions beside a governed endpoint: the question is one of these.
fn of_chat(uri: &Uri) -> Uri {
    let path = uri.path().trim_end_matches('/');
    let Some(base) = path.strip_suffix("/responses") else { return uri.clone() };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{base}/chat/completions{query}").parse().unwrap_or_else(|_| Uri::from_static(PATH))
}

impl KnownEndpoint {
    fn new(
        table: &str,
        endpoint: &ModelEndpoint,
        like: &UpstreamSettings,
    ) -> Result<Self, ModelEndpointError> {
        let of_url = |error| ModelEndpointError::Url { table: table.to_owned(), error };
        let upstream = |url: &String| {
            let base: Uri = url.trim_end_matches('/').parse().map_err(|_| {
                of_url(UpstreamSetupError::Url { url: without_secrets(url), problem: "is not a URL" })
            })?;
            Upstream::new(like.for_other_server(base)).map_err(of_url)
        };
        Ok(Self {
            upstream: endpoint.url.as_ref().map(upstream).transpose()?,
            key: endpoint.key_env.as_ref().map(|name| key(table, name)).transpose()?,
        })
    }
}

/// The `authorization` value with the key in the variable `name`; marked sensitive, so that it is kept out of logs.
fn key(table: &str, name: &str) -> Result<HeaderValue, ModelEndpointError> {
    let trouble =
        |problem| ModelEndpointError::Key { table: table.to_owned(), name: name.to_owned(), problem };
    bearer(&of_variable(name).map_err(trouble)?).map_err(trouble)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyHeader, Overrides, Source};
    use crate::proxy::forward_proxy::ForwardProxy;
    use crate::proxy::upstream_key::UpstreamKey;
    use hyper::http::header::HOST;
    use policies::REGISTRY;
    use std::time::Duration;

    #[test]
    fn the_key_of_the_upstream_goes_to_no_other_address() {
        let second = Duration::from_secs(1);
        let like = UpstreamSettings {
            base: Uri::from_static("http://upstream/v1"),
            connect: second,
            first_byte: second,
            idle: second,
            ca_file: None,
            http2: false,
            key: UpstreamKey::new(KeyHeader::Authorization, "sk-own").ok(),
            proxy: ForwardProxy::default(),
        };
        let (parts, ()) = Request::post(PATH).body(()).unwrap().into_parts();
        let sent_to = |url: &str| {
            let text = format!(
                "[policy.compact]\nstyle = \"summary\"\n[policy.compact.summary]\nmodel = \"m\"\nurl = {url:?}\n"
            );
            let source = Source::Text { name: "proxy.toml".to_owned(), text };
            let config = Config::load(source, &Overrides::default(), REGISTRY).unwrap();
            let endpoints = ModelEndpoints::of(&config, &like).unwrap();
            let endpoint = endpoints.0.keys().next().unwrap();
            let question = endpoints.post(endpoint, &parts, Bytes::new());
            let own = Upstream::new(like.clone()).unwrap();
            let sent = endpoints.upstream(endpoint).unwrap_or(&own).prepare(question).unwrap();
            let host = sent.headers()[HOST].to_str().unwrap().to_owned();
            (host, sent.headers().contains_key(AUTHORIZATION))
        };
        assert_eq!(sent_to("http://other/v1"), ("other".to_owned(), false));
        assert_eq!(sent_to(""), ("upstream".to_owned(), true));
    }
}
