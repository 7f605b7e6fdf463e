//! The upstream URL of a request: the client's path on the upstream's address.
//!
//! It replaces `/v1` by the path of `upstream.url` and keeps every other byte of path and query: nothing is decoded or
//! normalised; `//`, `%2F` and `*` stay.

use super::error::ProxyError;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::http::{HeaderValue, Uri};

/// The prefix of clients' paths, since `OPENAI_BASE_URL` ends with it.
const PREFIX: &str = "/v1";

/// `upstream.url`, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Base {
    scheme: Scheme,
    authority: Authority,
    /// The authority in the URLs of requests.
    written: Authority,
    /// Without a trailing slash; empty for the root.
    path: String,
    host: HeaderValue,
}

impl Base {
    /// Parses `upstream.url`; the error says what is wrong with it.
    pub(super) fn new(url: &Uri) -> Result<Self, &'static str> {
        let scheme = match url.scheme_str() {
            Some("http") => Scheme::HTTP,
            Some("https") => Scheme::HTTPS,
            Some(_) => return Err("its scheme is neither http nor https"),
            None => return Err("it has no scheme, expected one like https://api.openai.com/v1"),
        };
        let authority = url.authority().cloned().ok_or("it names no host")?;
        if authority.as_str().contains('@') {
            return Err("it holds a user name or password; send credentials as a header");
        }
        if url.query().is_some() {
            return Err("it has a query, which would be lost");
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| "its host is no valid header")?;
        let path = url.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, written: authority.clone(), authority, path, host })
    }

    /// Writes one letter for the authority into the URLs of requests: for a client that knows the address, hashes and
    /// compares the authority with every request, and sends it to nobody.
    pub(super) fn with_short_urls(self) -> Self {
        Self { written: Authority::from_static("u"), ..self }
    }

    pub(super) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Host and port, as in the URL.
    pub(super) fn name(&self) -> &str {
        self.authority.as_str()
    }

    /// The value of the `host` header.
    pub(super) fn host(&self) -> HeaderValue {
        self.host.clone()
    }

    /// The URL of a path at the upstream, for a request.
    pub(super) fn url(&self, path: PathAndQuery) -> Uri {
        let mut parts = hyper::http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.written.clone());
        parts.path_and_query = Some(path);
        // All three parts are there, so this does not fail.
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The client's path and query at the upstream.
    pub(super) fn target(&self, asked: &PathAndQuery) -> Result<PathAndQuery, ProxyError> {
        let bad = || ProxyError::BadTarget { target: asked.as_str().to_owned() };
        self.map(asked).ok_or_else(bad)
    }

    /// The path and query at which a client of toolrein reaches `uri`; `None` where that is not at the upstream, or no
    /// path of toolrein leads there.
    pub(super) fn own_path(&self, uri: &Uri) -> Option<String> {
        let port =
            |authority: &Authority| authority.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 });
        let (scheme, authority) = (uri.scheme()?, uri.authority()?);
        let is_same = *scheme == self.scheme
            && !authority.as_str().contains('@')
            && authority.host().eq_ignore_ascii_case(self.authority.host())
            && port(authority) == port(&self.authority);
        let path = uri.path_and_query().filter(|_| is_same).map_or("/", PathAndQuery::as_str);
        let begins = |text: &str, prefix: &str| {
            text.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        };
        let own = match path {
            _ if !is_same || path.starts_with("//") => return None,
            path if !self.path.is_empty() && begins(path, &self.path) => {
                format!("{PREFIX}{}", &path[self.path.len()..])
            }
            path => path.to_owned(),
        };
        // What toolrein would map to another address has none here.
        let target = self.map(&own.parse().ok()?)?;
        (target.as_str() == path).then_some(own)
    }

    fn map(&self, asked: &PathAndQuery) -> Option<PathAndQuery> {
        let rest = asked
            .as_str()
            .strip_prefix(PREFIX)
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        match rest {
            None => Some(asked.clone()),
            Some(_) if self.path == PREFIX => Some(asked.clone()),
            Some(rest) => {
                let root = if self.path.is_empty() && !rest.starts_with('/') { "/" } else { "" };
                PathAndQuery::try_from(format!("{root}{}{rest}", self.path)).ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(base: &str, asked: &str) -> String {
        let base = Base::new(&base.parse().unwrap()).unwrap();
        base.url(base.target(&asked.parse().unwrap()).unwrap()).to_string()
    }

    #[test]
    fn the_upstreams_path_takes_the_place_of_v1() {
        for (base, asked, expected) in [
            ("https://h/v1", "/v1/chat/completions", "https://h/v1/chat/completions"),
            ("https://h/v1/", "/v1/models?a=%2F&b=", "https://h/v1/models?a=%2F&b="),
            ("https://h/api/v1", "/v1/chat/completions", "https://h/api/v1/chat/completions"),
            ("https://h/openai", "/v1/chat/completions", "https://h/openai/chat/completions"),
            ("http://h:8080", "/v1/models", "http://h:8080/models"),
            ("http://h:8080", "/v1?x", "http://h:8080/?x"),
            ("https://h/api/v1", "/v1", "https://h/api/v1"),
            ("https://h/api/v1", "/v1/", "https://h/api/v1/"),
        ] {
            assert_eq!(target(base, asked), expected, "{base} {asked}");
        }
    }

    #[test]
    fn any_other_path_goes_to_the_origin_unchanged() {
        for asked in ["/", "/health?x=1", "/v1beta/models", "/v10", "//v1/x", "/%761/x", "/a//b/%2F/../c;d"] {
            assert_eq!(target("https://h/api/v1", asked), format!("https://h{asked}"));
        }
        let base = Base::new(&"http://h/v1".parse().unwrap()).unwrap();
        assert_eq!(base.target(&"*".parse().unwrap()).unwrap(), "*");
    }

    #[test]
    fn short_urls_change_neither_the_path_nor_the_name() {
        let base = Base::new(&"http://h:8080/api".parse().unwrap()).unwrap().with_short_urls();
        let url = base.url(base.target(&"/v1/models?a=b".parse().unwrap()).unwrap());
        assert_eq!((url.to_string().as_str(), base.name()), ("http://u/api/models?a=b", "h:8080"));
        assert_eq!(base.host(), "h:8080");
    }

    #[test]
    fn a_url_that_cannot_be_an_upstream_is_refused() {
        for url in ["ftp://h/v1", "/v1", "h:80", "https://user:key@h/v1", "https://h/v1?api-version=1"] {
            assert!(Base::new(&url.parse().unwrap()).is_err(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn path_and_query_behind_v1_are_kept_byte_for_byte(rest in "(/[!$-;=?-Z_a-z~]{0,12}){0,4}") {
            let asked = format!("/v1{rest}");
            prop_assert_eq!(target("http://h/api", &asked), format!("http://h/api{}", rest));
            let other = format!("/v2{rest}");
            prop_assert_eq!(target("http://h/api", &other), format!("http://h{}", other));
        }
    }
}
