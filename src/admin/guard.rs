//! The guards before every page of the admin server: the host of the request (DNS rebinding), the site it comes from
//! (cross-site requests), the bearer token; and the security headers of every response.

use super::answer::Answer;
use super::code::Code;
use super::{Admin, host};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::uri::{Authority, Uri};
use hyper::http::{HeaderName, HeaderValue, Method};
use std::sync::Arc;

/// How the browser relates the page that sends a request to this server.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Whether the browser opens the address itself, and not for a page.
static FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Scripts, styles and data of this server alone; nothing inline, no form, and no frame around it or in it.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Refuses requests of foreign pages, and writes the security headers of every response.
pub(super) async fn every_page(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let refusal = host_refusal(&admin, &request).or_else(|| site_refusal(&request));
    guarded(refusal, request, next).await
}

/// The same for the port of the probes, which shows nothing that a page of another site could misuse by its own name.
pub(super) async fn every_probe(request: Request, next: Next) -> Response {
    guarded(site_refusal(&request), request, next).await
}

async fn guarded(refusal: Option<Answer>, request: Request, next: Next) -> Response {
    let mut response = match refusal {
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(&RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    // The page of an explanation has its own.
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(CONTENT_POLICY));
    response
}

/// Requires the token; without a configured one there are no such pages.
pub(super) async fn with_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match &admin.bearer {
        None => Answer::not_found("There is nothing at this path, because admin.token_env is not set.")
            .into_response(),
        Some(bearer) if !bearer.opens(&request) => {
            // A request without any token is none that guesses one.
            if request.headers().contains_key(AUTHORIZATION) {
                admin.attempts.note().await;
            }
            let message = "This path requires the token of admin.token_env: authorization: Bearer TOKEN.";
            Answer::error(Code::Unauthorized, message).into_response()
        }
        Some(_) => next.run(request).await,
    }
}

fn host_refusal<B>(admin: &Admin, request: &hyper::http::Request<B>) -> Option<Answer> {
    let message = "This server is bound to a loopback address: use its IP address or localhost as the host.";
    let refused = admin.loopback && !host::is_local(request);
    refused.then(|| Answer::error(Code::HostRefused, message))
}

fn site_refusal<B>(request: &hyper::http::Request<B>) -> Option<Answer> {
    let message = "This server answers no requests of pages of other sites.";
    let refused = !is_own_site(request);
    refused.then(|| Answer::error(Code::CrossSiteRefused, message))
}

/// Whether the request comes from no page, from a page of this server, or opens an address by a link. Browsers write
/// these headers, and no script can change them; older ones write `origin` alone.
fn is_own_site<B>(request: &hyper::http::Request<B>) -> bool {
    let headers = request.headers();
    let all = |name: &HeaderName, fits: &dyn Fn(&[u8]) -> bool| {
        headers.get_all(name).iter().all(|value| fits(value.as_bytes()))
    };
    if headers.contains_key(&FETCH_SITE) {
        let is_opened = matches!(*request.method(), Method::GET | Method::HEAD)
            && headers.contains_key(&FETCH_MODE)
            && all(&FETCH_MODE, &|mode| mode == b"navigate");
        return is_opened || all(&FETCH_SITE, &|site| matches!(site, b"same-origin" | b"none"));
    }
    let own = request.uri().authority().cloned().or_else(|| {
        let host = headers.get(HOST)?;
        Authority::try_from(host.as_bytes()).ok()
    });
    all(&ORIGIN, &|origin| {
        let origin = Uri::try_from(origin).ok();
        let named = origin.as_ref().and_then(|origin| Some((origin.authority()?, default_port(origin)?)));
        named.zip(own.as_ref()).is_some_and(|((named, default), own)| {
            named.host().eq_ignore_ascii_case(own.host())
                && named.port_u16().unwrap_or(default) == own.port_u16().unwrap_or(default)
        })
    })
}

fn default_port(origin: &Uri) -> Option<u16> {
    match origin.scheme_str()? {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::http::Request;

    fn is_own(method: &str, headers: &[(&str, &str)]) -> bool {
        let request = Request::builder().method(method).uri("/api/overview").header("host", "127.0.0.1:4243");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        is_own_site(&request.body(()).unwrap())
    }

    #[test]
    fn requests_of_other_sites_are_refused_and_all_others_pass() {
        let (site, mode, origin) = ("sec-fetch-site", "sec-fetch-mode", "origin");
        for (method, headers, expected) in [
            ("GET", &[][..], true),
            ("POST", &[], true),
            ("GET", &[(site, "same-origin")], true),
            ("GET", &[(site, "none")], true),
            ("GET", &[(site, "cross-site")], false),
            ("GET", &[(site, "same-site")], false),
            ("GET", &[(site, "cross-site"), (mode, "navigate")], true),
            ("GET", &[(site, "cross-site"), (mode, "no-cors")], false),
            ("POST", &[(site, "cross-site"), (mode, "navigate")], false),
            ("POST", &[(site, "same-origin"), (site, "cross-site")], false),
            ("POST", &[(site, "same-origin"), (origin, "https://proxied.example")], true),
            ("POST", &[(origin, "http://127.0.0.1:4243")], true),
            ("POST", &[(origin, "http://127.0.0.1")], false),
            ("POST", &[(origin, "http://evil.example")], false),
            ("POST", &[(origin, "null")], false),
            ("POST", &[(origin, "http://127.0.0.1:4243"), (origin, "http://evil.example")], false),
        ] {
            assert_eq!(is_own(method, headers), expected, "{method} {headers:?}");
        }
    }

    #[test]
    fn an_origin_without_a_port_is_that_of_its_scheme() {
        for (host, origin, expected) in [
            ("admin.example", "https://admin.example", true),
            ("admin.example", "http://admin.example", true),
            ("ADMIN.example:443", "https://admin.example", true),
            ("admin.example:80", "https://admin.example", false),
            ("admin.example", "ftp://admin.example", false),
        ] {
            let request = Request::post("/").header("host", host).header("origin", origin).body(()).unwrap();
            assert_eq!(is_own_site(&request), expected, "{host} {origin}");
        }
    }
}
