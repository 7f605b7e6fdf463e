//! The address of an upstream: `https://host/v1`, or `demo:`. Parses it and shows it without secrets; connects to
//! nothing.

use super::address::{without_secrets, without_secrets_in};
use hyper::http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt;

/// The host of OpenAI's own API.
pub const OPENAI_HOST: &str = "api.openai.com";
/// The host of Anthropic's own API.
pub const ANTHROPIC_HOST: &str = "api.anthropic.com";

/// How the paths of endpoints end that clients add to a base URL.
pub const ENDPOINTS: [&str; 6] =
    ["/chat/completions", "/responses", "/messages", "/completions", "/embeddings", "/models"];

/// The destination of requests.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// The simulated model inside toolrein, written `demo:`.
    Demo,
    /// An `http` or `https` server. Without credentials or fragment; the path has no trailing slash unless it is `/`
    /// alone.
    Url(Uri),
}

impl Target {
    /// Parses an upstream.
    ///
    /// # Errors
    /// What is wrong with it, secrets hidden.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "demo:" {
            return Ok(Self::Demo);
        }
        match target_trouble(text) {
            None => url(text).map(Self::Url).ok_or_else(|| target_problem("expected a URL", text)),
            Some(trouble) => Err(target_problem(trouble, text)),
        }
    }

    /// Whether it is the server of this name.
    pub fn is_host(&self, name: &str) -> bool {
        match self {
            Self::Demo => false,
            Self::Url(url) => url.host().is_some_and(|host| host.eq_ignore_ascii_case(name)),
        }
    }
}

/// As written, secrets in path and query hidden.
impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demo => out.write_str("demo:"),
            Self::Url(uri) => {
                let text = uri.to_string();
                // An address without a path is written without the slash that the parser adds.
                let text = if uri.path() == "/" && uri.query().is_none() {
                    text.trim_end_matches('/')
                } else {
                    &text
                };
                out.write_str(&without_secrets_in(text))
            }
        }
    }
}

/// As displayed: a secret must not reach a log through `{:?}`.
impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The address of a forward proxy, `http://proxy:3128`; it may hold a user and a password, which are never shown.
/// Their characters are kept percent-encoded, whatever they are, so that every parser finds the same host in it.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl(String);

/// What is encoded of a user and a password: everything but the unreserved characters of RFC 3986, and the percent sign,
/// which [`encoded`] decides on.
const OF_CREDENTIALS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'%');

impl ProxyUrl {
    /// Parses the address of a forward proxy. Everything up to the last `@` is its user and password.
    ///
    /// # Errors
    /// What is wrong with it, secrets hidden.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = |what: &str| format!("expected {what}, found {:?}", without_secrets(text));
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(expected(r#""auto", "none" or an address such as "http://proxy:3128""#));
        };
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(expected("an http:// or https:// proxy (SOCKS is not spoken)"));
        }
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, rest),
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        let uri = format!("http://{host}").parse::<Uri>().ok();
        let is_host =
            uri.is_some_and(|uri| uri.host().is_some_and(|host| !host.is_empty()) && uri.path() == "/");
        if host.contains(['?', '#']) || !is_host {
            return Err(expected("a proxy's address with a host and no path"));
        }
        let credentials = credentials.map(|credentials| match credentials.split_once(':') {
            Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
            None => format!("{}@", encoded(credentials)),
        });
        Ok(Self(format!("{scheme}://{}{host}", credentials.unwrap_or_default())))
    }

    /// The address with its credentials, for the connection alone.
    pub fn with_credentials(&self) -> &str {
        &self.0
    }
}

/// Without credentials.
impl fmt::Display for ProxyUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&without_secrets(&self.0))
    }
}

/// As displayed.
impl fmt::Debug for ProxyUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A user or a password, percent-encoded. What is encoded already stays; a percent sign that begins no code is one of its
/// characters.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (nth, part) in text.split('%').enumerate() {
        if nth > 0 {
            let is_code = part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
            out.push_str(if is_code { "%" } else { "%25" });
        }
        out.extend(utf8_percent_encode(part, OF_CREDENTIALS));
    }
    out
}

/// The obvious problem of `text` as an upstream, the most helpful first.
fn target_trouble(text: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Some(r#"expected a URL with its scheme, such as "https://api.openai.com/v1", or "demo:""#);
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        Some("expected http:// or https://")
    } else if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        Some("expected a URL without spaces")
    } else if authority.contains('@') {
        Some("expected a URL without credentials (those of the client are passed on)")
    } else if text.contains('#') {
        Some("expected a URL without a fragment (#...)")
    } else if authority.is_empty() || authority.starts_with(':') {
        Some("expected a URL with a host")
    } else {
        None
    }
}

fn target_problem(trouble: &str, text: &str) -> String {
    format!("{trouble}, found {:?}", without_secrets(text))
}

/// The URL without trailing slashes in its path; `None` where it or its port is invalid.
fn url(text: &str) -> Option<Uri> {
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let path = path.trim_end_matches('/');
    let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let uri: Uri = text.parse().ok()?;
    let authority = uri.authority()?;
    let host_only = authority.as_str() == authority.host();
    (host_only || authority.port_u16().is_some_and(|port| port > 0)).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_keeps_its_path_and_query_and_loses_trailing_slashes() {
        for (text, path, shown) in [
            ("https://api.openai.com/v1", "/v1", "https://api.openai.com/v1"),
            ("https://api.openai.com/v1/", "/v1", "https://api.openai.com/v1"),
            ("http://127.0.0.1:11434", "/", "http://127.0.0.1:11434"),
            ("http://[::1]:8000/", "/", "http://[::1]:8000"),
            ("https://h/@cf/v1", "/@cf/v1", "https://h/@cf/v1"),
            ("https://h/v1/?api-version=1&api_key=s3cret", "/v1", "https://h/v1?api-version=1&api_key=***"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.to_string(), format!("{target:?}")), (shown.to_owned(), shown.to_owned()));
            let Target::Url(uri) = target else { panic!("{text}") };
            assert_eq!(uri.path(), path);
        }
        assert_eq!(Target::parse("demo:").unwrap(), Target::Demo);
    }

    #[test]
    fn the_address_of_a_proxy_is_shown_without_its_credentials() {
        for (text, expected) in [
            ("http://proxy:3128", Ok("http://proxy:3128")),
            ("https://ann:s3cret@proxy.example/", Ok("https://***@proxy.example")),
            ("proxy:3128", Err("expected \"auto\", \"none\" or an address")),
            ("socks5://proxy:1080", Err("SOCKS is not spoken")),
            ("http://", Err("with a host")),
            ("http://ann:s3cret@proxy:3128/path", Err("no path, found \"http://***@proxy:3128/path\"")),
            ("http://pro xy", Err("with a host")),
        ] {
            match (ProxyUrl::parse(text).map(|url| format!("{url} {url:?}")), expected) {
                (Ok(shown), Ok(expected)) => assert_eq!(shown, format!("{expected} {expected}")),
                (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{problem}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_invalid_upstream_url_is_refused_without_showing_its_secrets() {
        for (text, said) in [
            ("api.openai.com/v1", "expected a URL with its scheme"),
            ("localhost:8000", "expected a URL with its scheme"),
            ("demo", "expected a URL with its scheme"),
            ("", "expected a URL with its scheme"),
            ("ftp://host/v1", "expected http:// or https://"),
            ("https://host/v1 ", "expected a URL without spaces"),
            (
                "https://user:s3cret@host/v1",
                r#"without credentials (those of the client are passed on), found "https://***@host/v1""#,
            ),
            ("https://user:s3/cret@host/v1", "expected a URL, found \"https://***@host/v1\""),
            ("ftp://host/v1?access_token=s3cret", "access_token=***"),
            ("https://host/v1#x", "without a fragment"),
            ("https:///v1", "with a host"),
            ("https://:80/v1", "with a host"),
            ("https://host:99999/v1", "expected a URL, found"),
            ("https://host:0/v1", "expected a URL, found"),
            ("https://höst/v1", "expected a URL, found"),
        ] {
            let problem = Target::parse(text).unwrap_err();
            assert!(problem.contains(said), "{text:?}: {problem}");
            assert!(!problem.contains("s3"), "{problem}");
        }
    }

    #[test]
    fn a_proxys_password_may_have_any_character_and_names_no_host() {
        for (written, kept) in [
            ("http://ann:s3cret@p:3128", "http://ann:s3cret@p:3128"),
            ("http://ann:s3/cr#t?x@p:3128/", "http://ann:s3%2Fcr%23t%3Fx@p:3128"),
            ("http://ann:p@ss@p:3128", "http://ann:p%40ss@p:3128"),
            ("http://ann:päss wort@p:3128", "http://ann:p%C3%A4ss%20wort@p:3128"),
            ("http://ann:a%2Fb%zz%@p:3128", "http://ann:a%2Fb%25zz%25@p:3128"),
            ("https://ann@p", "https://ann@p"),
            ("http://[fd00::1]:3128", "http://[fd00::1]:3128"),
        ] {
            let parsed = ProxyUrl::parse(written).unwrap();
            assert_eq!(parsed.with_credentials(), kept);
            assert!(kept.parse::<Uri>().is_ok(), "{kept}");
            assert!(!parsed.to_string().contains("ann") || !written.contains('@'), "{parsed}");
        }
        for wrong in
            ["http://", "http://ann:x@", "http://ann:s@p/path", "http://p:3128?x", "http://a b:1", "p:3128"]
        {
            assert!(ProxyUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
