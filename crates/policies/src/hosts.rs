//! Hosts that URLs may lead to, by name or pattern. URLs are parsed strictly, since programs interpret unusual ones
//! differently; where a server redirects to is not seen.

use super::pattern::Pattern;

/// Names and patterns of hosts, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<Pattern>);

impl Hosts {
    /// The hosts as written.
    ///
    /// # Errors
    /// What was expected.
    pub fn new(written: &[Pattern]) -> Result<Self, String> {
        let is_none = |host: &Pattern| host.as_str().contains(['/', ':', '@']) || host.as_str().is_empty();
        if written.iter().any(is_none) {
            return Err("expected names of hosts such as \"*.example.org\"".to_owned());
        }
        Ok(Self(written.iter().map(|host| Pattern::new(host.as_str().to_ascii_lowercase())).collect()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As written, but for case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Pattern::as_str)
    }

    /// Whether `url` leads to one of them; `None` where that is in doubt: see [`host_of`].
    pub fn include(&self, url: &str) -> Option<bool> {
        let host = host_of(url)?;
        Some(self.0.iter().any(|known| known.matches(&host)))
    }
}

/// The host of an `http` or `https` URL in lower case; `None` where programs may disagree on it: credentials,
/// backslashes, white space, escapes or letters beyond ASCII in it.
pub fn host_of(url: &str) -> Option<String> {
    if url.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\') {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let is_plain = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match inner {
            Some(address) => {
                address.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
            }
            None => {
                host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
            }
        }
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let fits = !host.is_empty() && is_plain(host) && port.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_a_host_where_every_program_agrees_on_it() {
        let hosts = Hosts::new(&[Pattern::new("*.Example.org"), Pattern::new("a.b")]).unwrap();
        for (url, expected) in [
            ("https://x.example.org/y", Some(true)),
            ("https://A.B:8443", Some(true)),
            ("https://example.org", Some(false)),
            ("https://evil.net#@a.b/", Some(false)),
            ("https://a.b@evil.net/", None),
            ("https://evil.net\\@a.b/", None),
            ("a.b", None),
        ] {
            assert_eq!(hosts.include(url), expected, "{url}");
        }
        assert_eq!(host_of("http://[::1]:80/").as_deref(), Some("[::1]"));
        assert!(Hosts::new(&[Pattern::new("https://a.b")]).is_err());
    }
}
