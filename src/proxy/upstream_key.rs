//! The operator's API key for the upstream (`upstream.api_key_env`). It takes the place of every credential of the
//! client, so that agents hold none. Read from the environment once, kept out of logs, and sent to the upstream alone.

use super::credential::{carries, without_keys};
use super::headers::retain;
use crate::config::{KeyHeader, Upstream};
use crate::secret::{header_value, of_variable};
use hyper::http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

/// How browsers send a key with a WebSocket, for which they can set no header.
const IN_PROTOCOL: &[u8] = b"openai-insecure-api-key.";

/// See the module's documentation. Its value is marked sensitive, so that `{:?}` shows none of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamKey {
    header: HeaderName,
    value: HeaderValue,
}

/// In a request's extensions: it carries the operator's key for this one purpose, which stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepsItsKey;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[error("upstream.api_key_env: the environment variable {name} {problem}")]
pub struct UpstreamKeyError {
    name: String,
    problem: &'static str,
}

impl UpstreamKey {
    /// The key that `settings` name, from the environment; `None` where clients send their own.
    ///
    /// # Errors
    /// The variable is not set, is empty, or holds what no header can.
    pub fn of(settings: &Upstream) -> Result<Option<Self>, UpstreamKeyError> {
        let name = settings.api_key_env.as_str();
        if name.is_empty() {
            return Ok(None);
        }
        let refused = |problem| UpstreamKeyError { name: name.to_owned(), problem };
        let key = of_variable(name).map_err(refused)?;
        Self::new(settings.api_key_header, &key).map(Some).map_err(refused)
    }

    /// `key` as the upstream wants it in this header.
    ///
    /// # Errors
    /// It contains characters that a header cannot hold.
    pub fn new(header: KeyHeader, key: &str) -> Result<Self, &'static str> {
        Ok(match header {
            KeyHeader::Authorization => Self { header: AUTHORIZATION, value: bearer(key)? },
            other => Self { header: HeaderName::from_static(other.as_str()), value: header_value(key)? },
        })
    }

    /// Puts the key into the head of a request in place of the client's credentials, wherever these are. TRACE gets
    /// none, since its answer shows the headers that arrived.
    pub(super) fn put(&self, parts: &mut Parts) {
        if parts.extensions.remove::<KeepsItsKey>().is_some() {
            return;
        }
        if let Some(path) = parts.uri.path_and_query().and_then(without_keys) {
            parts.uri = with_path(&parts.uri, path);
        }
        let headers = &mut parts.headers;
        let is_clients = |name: &HeaderName| *name != self.header && carries(name.as_str().as_bytes());
        // Rarely needed, and the whole map is built anew.
        if headers.keys().any(is_clients) {
            retain(headers, |name, _| !is_clients(name));
        }
        remove_from_protocols(headers);
        if parts.method == Method::TRACE {
            headers.remove(&self.header);
        } else {
            headers.insert(self.header.clone(), self.value.clone());
        }
    }
}

/// The `authorization` value with this key; marked sensitive, so that it is kept out of logs.
///
/// # Errors
/// It contains characters that a header cannot hold.
pub(super) fn bearer(key: &str) -> Result<HeaderValue, &'static str> {
    header_value(&format!("Bearer {}", key.trim()))
}

fn with_path(uri: &Uri, path: PathAndQuery) -> Uri {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    // Only the query became shorter, so it is a URI still.
    Uri::from_parts(parts).unwrap_or_default()
}

/// Takes the client's key out of the protocols that it offers for a WebSocket.
fn remove_from_protocols(headers: &mut HeaderMap) {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_key = |protocol: &&[u8]| {
        protocol.get(..IN_PROTOCOL.len()).is_some_and(|start| start.eq_ignore_ascii_case(IN_PROTOCOL))
    };
    let (keys, others): (Vec<_>, Vec<_>) = offered.map(<[u8]>::trim_ascii).partition(is_key);
    if keys.is_empty() {
        return;
    }
    let others = HeaderValue::from_bytes(&others.join(&b", "[..])).ok().filter(|others| !others.is_empty());
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(others) = others {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::http::Request;

    fn sent(header: KeyHeader, method: &str, uri: &str, headers: &[(&str, &str)]) -> (String, Vec<String>) {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        UpstreamKey::new(header, "sk-own\n").unwrap().put(&mut parts);
        let lines = parts.headers.iter();
        let lines = lines.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        (parts.uri.to_string(), lines.collect())
    }

    #[test]
    fn every_credential_of_the_client_is_replaced_by_the_one_key() {
        let clients = [
            ("accept", "a"),
            ("authorization", "Bearer c1"),
            ("api-key", "c2"),
            ("x_api_key", "c3"),
            ("authorization", "Bearer c4"),
            ("x-goog-api-key", "c5"),
            ("cookie", "kept"),
        ];
        let (uri, lines) = sent(
            KeyHeader::Authorization,
            "POST",
            "/v1/chat/completions?a=1&api-key=c6;key=c7&b=%20&access_token=c8",
            &clients,
        );
        assert_eq!(uri, "/v1/chat/completions?a=1&b=%20");
        assert_eq!(lines, ["accept: a", "authorization: Bearer sk-own", "cookie: kept"]);
        let (uri, lines) = sent(KeyHeader::ApiKey, "POST", "/v1/x?key=c", &clients[..2]);
        assert_eq!(
            (uri.as_str(), lines),
            ("/v1/x", vec!["accept: a".to_owned(), "api-key: sk-own".to_owned()])
        );
        let (_, lines) = sent(KeyHeader::Authorization, "GET", "/v1/models", &[]);
        assert_eq!(lines, ["authorization: Bearer sk-own"]);
    }

    #[test]
    fn no_key_is_sent_with_trace_and_a_websocket_subprotocol_key_is_removed() {
        let (_, lines) = sent(KeyHeader::Authorization, "TRACE", "/v1/x", &[("authorization", "Bearer c")]);
        assert!(lines.is_empty(), "{lines:?}");
        let protocols = "realtime, OpenAI-insecure-api-key.c1, openai-beta.realtime-v1";
        let (_, lines) =
            sent(KeyHeader::XApiKey, "GET", "/v1/realtime", &[("sec-websocket-protocol", protocols)]);
        assert_eq!(lines, ["sec-websocket-protocol: realtime, openai-beta.realtime-v1", "x-api-key: sk-own"]);
        let only = [("sec-websocket-protocol", "openai-insecure-api-key.c1")];
        assert_eq!(sent(KeyHeader::XApiKey, "GET", "/v1/realtime", &only).1, ["x-api-key: sk-own"]);
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = UpstreamKey::new(KeyHeader::Authorization, "sk-own").unwrap();
        assert!(!format!("{key:?}").contains("sk-own"), "{key:?}");
        assert!(UpstreamKey::new(KeyHeader::ApiKey, "a\nb").is_err());
    }
}
