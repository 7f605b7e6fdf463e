//! Headers of the upstream's that lead a client elsewhere: `location`, `content-location`, `refresh`, `alt-svc`. A client
//! that follows one past toolrein is not governed any more, so an address of the upstream's becomes the same one at
//! toolrein, and a redirect to any other place is refused where a policy restricts calls. toolrein itself follows none.

use super::error::ProxyError;
use super::target::Base;
use hyper::http::header::{ALT_SVC, CONTENT_LOCATION, LOCATION, REFRESH};
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Response, Uri};

/// The reason why a redirect is refused.
const REDIRECT: &str = "redirect";

/// Where an address in a header leads.
#[derive(Debug, PartialEq, Eq)]
enum Leads {
    /// To toolrein, as it is written.
    Back,
    /// To toolrein, in these words.
    BackAs(String),
    Elsewhere,
}

/// Keeps a client from leaving toolrein by the headers of `response`. `refuses`: whether a policy restricts calls, and what
/// cannot be judged is refused.
///
/// # Errors
/// The response redirects elsewhere, and that is refused.
pub(super) fn keep_here<B>(
    response: &mut Response<B>,
    base: &Base,
    refuses: impl FnOnce() -> bool,
) -> Result<(), ProxyError> {
    let is_redirect = response.status().is_redirection();
    let headers = response.headers_mut();
    if ![LOCATION, CONTENT_LOCATION, ALT_SVC, REFRESH].iter().any(|name| headers.contains_key(name)) {
        return Ok(());
    }
    let refuses = refuses();
    for name in [LOCATION, CONTENT_LOCATION] {
        for value in values_of(headers, &name) {
            match leads(&value, base) {
                Leads::Back => {}
                Leads::BackAs(text) => {
                    drop(HeaderValue::from_str(&text).map(|own| headers.insert(&name, own)));
                }
                Leads::Elsewhere if is_redirect && refuses => {
                    return Err(ProxyError::ReplyUnjudged { why: REDIRECT });
                }
                Leads::Elsewhere if refuses => drop(headers.remove(&name)),
                Leads::Elsewhere => {}
            }
        }
    }
    if refuses {
        // Each names another address for the same request.
        headers.remove(ALT_SVC);
        headers.remove(REFRESH);
    }
    Ok(())
}

fn values_of(headers: &HeaderMap, name: &HeaderName) -> Vec<HeaderValue> {
    headers.get_all(name).iter().cloned().collect()
}

/// Where `value` leads a client that got it from toolrein. Only what every client reads in one way leads back.
fn leads(value: &HeaderValue, base: &Base) -> Leads {
    // Clients drop tabs and controls, and browsers take a backslash for a slash.
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let Some(text) = value.to_str().ok().map(str::trim) else { return Leads::Elsewhere };
    if !text.bytes().all(is_plain) {
        return Leads::Elsewhere;
    }
    let path = text.split(['?', '#']).next().unwrap_or_default();
    match text.split_once("://") {
        _ if text.starts_with("//") => Leads::Elsewhere,
        _ if text.starts_with('/') => Leads::Back,
        // A relative path; a colon in its first segment would make that a scheme.
        _ if !path.split('/').next().unwrap_or_default().contains(':') => Leads::Back,
        Some(_) => {
            text.parse().ok().and_then(|uri: Uri| base.own_path(&uri)).map_or(Leads::Elsewhere, |path| {
                let fragment = text.find('#').map_or("", |at| &text[at..]);
                Leads::BackAs(format!("{path}{fragment}"))
            })
        }
        None => Leads::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_upstream_lead_back_and_all_others_elsewhere() {
        let back = |path: &str| Leads::BackAs(path.to_owned());
        let base = Base::new(&"https://h.example/api/v1".parse().unwrap()).unwrap();
        for (value, expected) in [
            ("https://h.example/api/v1/chat/completions?x=1", back("/v1/chat/completions?x=1")),
            ("HTTPS://H.example:443/api/v1/responses#a", back("/v1/responses#a")),
            ("https://h.example/api/v1", back("/v1")),
            ("https://h.example/other", back("/other")),
            ("https://h.example/v1/chat/completions", Leads::Elsewhere),
            ("http://h.example/api/v1/chat/completions", Leads::Elsewhere),
            ("https://h.example:8443/api/v1/x", Leads::Elsewhere),
            ("https://user@h.example/api/v1/x", Leads::Elsewhere),
            ("https://evil.example/api/v1/x", Leads::Elsewhere),
            ("//evil.example/x", Leads::Elsewhere),
            ("/\\evil.example/x", Leads::Elsewhere),
            ("\\\\evil.example/x", Leads::Elsewhere),
            ("/\t/evil.example/x", Leads::Elsewhere),
            ("https:evil.example", Leads::Elsewhere),
            ("javascript:x", Leads::Elsewhere),
            ("/v1/chat/completions", Leads::Back),
            ("completions/", Leads::Back),
            ("?a=https://x", Leads::Back),
        ] {
            assert_eq!(leads(&HeaderValue::from_str(value).unwrap(), &base), expected, "{value}");
        }
    }
}
