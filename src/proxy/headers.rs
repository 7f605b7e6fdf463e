//! Hop-by-hop headers and toolrein's own headers: removed before a message goes on.
//!
//! Implements RFC 9110, section 7.6.1, in both directions. Everything else keeps its order and its duplicates; nothing
//! is added here.

use hyper::http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::{Method, Request, Version};

/// The prefix of toolrein's own headers, in requests and in responses.
const OWN_PREFIX: &str = "x-toolrein-";

/// Removes from an upstream's response what belongs to the connection: `connection` and all that it names,
/// `keep-alive`, `proxy-*`, `transfer-encoding`, `upgrade`, and `te` except `trailers`. Removes `x-toolrein-*` too: a
/// client trusts these headers, so only toolrein may set them.
pub fn strip_response(headers: &mut HeaderMap) {
    strip(headers, |name, value| !name.starts_with(OWN_PREFIX) && !is_hop_by_hop(name, value));
}

/// Removes `x-toolrein-*` from the trailers of a response: only toolrein sets these.
pub(super) fn strip_own(trailers: &mut HeaderMap) {
    retain(trailers, |name, _| !name.as_str().starts_with(OWN_PREFIX));
}

/// Removes from a client's request what belongs to the connection, `x-toolrein-*`, and `expect`: the server side has
/// answered the expectation, so it must not reach the upstream. `is_http1`: the next hop speaks HTTP/1.1 too, so
/// `connection: keep-alive` stays true. Almost every client sends it, and removing it means building the whole map anew.
pub fn strip_request(headers: &mut HeaderMap, is_http1: bool) {
    strip(headers, |name, value| match name {
        // Half of what clients of OpenAI send; no other rule concerns it.
        _ if name.starts_with("x-") => !name.starts_with(OWN_PREFIX),
        // HTTP/2 has it in `:authority`; otherwise hyper-util writes it.
        "host" => is_http1,
        "connection" => is_http1 && value.as_bytes().eq_ignore_ascii_case(b"keep-alive"),
        "expect" => false,
        _ => !is_hop_by_hop(name, value),
    });
}

/// Keeps what `keep` accepts, except what `connection` names. Nearly every message is only looked at and left
/// unchanged.
fn strip(headers: &mut HeaderMap, keep: impl Fn(&str, &HeaderValue) -> bool) {
    if headers.iter().all(|(name, value)| keep(name.as_str(), value)) {
        return;
    }
    let named = named_by_connection(headers);
    retain(headers, |name, value| keep(name.as_str(), value) && !is_named(&named, name));
}

/// Whether a server may treat the request as a POST: some compare the method without regard to case, and some let a
/// header override the method of the request line (Rack, Express).
pub fn is_post<B>(request: &Request<B>) -> bool {
    let says_post = |text: &[u8]| text.trim_ascii().eq_ignore_ascii_case(b"post");
    let says_so = |name| request.headers().get_all(name).iter().any(|value| says_post(value.as_bytes()));
    says_post(request.method().as_str().as_bytes()) || METHOD_HEADERS.into_iter().any(says_so)
}

/// Headers that override the request's method at some servers.
const METHOD_HEADERS: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// Whether the client asks to leave HTTP on this connection (WebSocket). Only a GET without a body can: any other
/// request is answered as if it had not asked, which RFC 9110, section 7.8, allows. An offer of another version of HTTP
/// does not count: curl makes it on ordinary requests.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    // Checked first, since almost no request has it.
    request.headers().contains_key(UPGRADE)
        && request.version() == Version::HTTP_11
        && *request.method() == Method::GET
        && !has_body(request.headers())
        && has_token(request.headers(), &CONNECTION, b"upgrade")
        && offered(request.headers()).is_some()
}

/// The protocols that the client offers to change to, except those that are still HTTP: through a tunnel, requests
/// would pass unread. `None` where no other is left.
pub fn offered(headers: &HeaderMap) -> Option<HeaderValue> {
    let all = headers.get_all(UPGRADE).iter().flat_map(tokens);
    let kept: Vec<&[u8]> = all.filter(|protocol| !is_http(protocol)).collect();
    let list = HeaderValue::from_bytes(&kept.join(&b", "[..])).ok();
    list.filter(|_| !kept.is_empty())
}

/// Whether every protocol in `agreed`, which the upstream has changed to, was `offered`.
pub fn is_offered(agreed: &HeaderValue, offered: &HeaderValue) -> bool {
    let is_among = |protocol: &[u8]| tokens(offered).any(|offer| offer.eq_ignore_ascii_case(protocol));
    tokens(agreed).next().is_some() && tokens(agreed).all(is_among)
}

/// Whether a protocol is HTTP, with or without TLS.
fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
    [&b"h2c"[..], b"h2", b"h3", b"http", b"https", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get_all(CONTENT_LENGTH).iter().any(|length| length.as_bytes() != b"0")
}

/// Compared as text, since half of the names that clients send are not known to the library by number.
fn is_hop_by_hop(name: &str, value: &HeaderValue) -> bool {
    match name {
        "connection"
        | "keep-alive"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "proxy-connection"
        | "transfer-encoding"
        | "upgrade" => true,
        // The one value with an end-to-end meaning. HTTP/2 allows no other.
        "te" => !value.as_bytes().eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// The header names that `connection` lists. Empty, and free, for almost every message.
fn named_by_connection(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let ordinary = |token: &&[u8]| {
        [&b"close"[..], b"keep-alive", b"upgrade", b"te"].iter().any(|word| token.eq_ignore_ascii_case(word))
    };
    let values = headers.get_all(CONNECTION).iter();
    values.flat_map(tokens).filter(|token| !ordinary(token)).map(<[u8]>::to_ascii_lowercase).collect()
}

/// Host and length frame the message itself. Naming them in `connection` is an attack.
fn is_named(named: &[Vec<u8>], name: &HeaderName) -> bool {
    !named.is_empty()
        && *name != HOST
        && *name != CONTENT_LENGTH
        && named.iter().any(|token| token == name.as_str().as_bytes())
}

fn has_token(headers: &HeaderMap, name: &HeaderName, word: &[u8]) -> bool {
    headers.get_all(name).iter().flat_map(tokens).any(|token| token.eq_ignore_ascii_case(word))
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Keeps some headers, in order. `HeaderMap::remove` would move the last header into the gap.
pub(super) fn retain(headers: &mut HeaderMap, keep: impl Fn(&HeaderName, &HeaderValue) -> bool) {
    if headers.iter().all(|(name, value)| keep(name, value)) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.keys_len());
    let mut current = None;
    for (name, value) in std::mem::take(headers) {
        // Of several values, only the first comes with its name.
        current = name.or(current);
        if let Some(name) = &current {
            if keep(name, &value) {
                kept.append(name, value);
            } else if *name == TE && tokens(&value).any(|token| token.eq_ignore_ascii_case(b"trailers")) {
                kept.insert(TE, HeaderValue::from_static("trailers"));
            }
        }
    }
    *headers = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<(String, String)> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        headers.iter().map(line).collect()
    }

    #[test]
    fn what_belongs_to_the_connection_is_taken_out_and_the_rest_keeps_its_order() {
        let mut headers = map(&[
            ("a", "1"),
            ("connection", "close, X-Hop"),
            ("set-cookie", "one"),
            ("set-cookie", "two"),
            ("x-hop", "gone"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("b", "2"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic x"),
            ("trailer", "checksum"),
            ("c", "3"),
        ]);
        strip_response(&mut headers);
        let expected = map(&[
            ("a", "1"),
            ("set-cookie", "one"),
            ("set-cookie", "two"),
            ("b", "2"),
            ("trailer", "checksum"),
            ("c", "3"),
        ]);
        assert_eq!(lines(&headers), lines(&expected));
    }

    #[test]
    fn te_keeps_trailers_and_nothing_else() {
        let mut headers = map(&[("te", "deflate;q=0.5, Trailers"), ("connection", "TE")]);
        strip_response(&mut headers);
        assert_eq!(lines(&headers), lines(&map(&[("te", "trailers")])));
        let mut headers = map(&[("te", "deflate")]);
        strip_response(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn host_and_length_stay_though_connection_names_them() {
        let mut headers =
            map(&[("host", "h"), ("content-length", "3"), ("connection", "host, content-length")]);
        strip_response(&mut headers);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn toolreins_own_headers_and_expect_are_not_forwarded() {
        let mut headers =
            map(&[("x-toolrein-profile", "p"), ("expect", "100-continue"), ("x-session-id", "s")]);
        strip_request(&mut headers, false);
        assert_eq!(lines(&headers), lines(&map(&[("x-session-id", "s")])));
    }

    #[test]
    fn only_a_get_without_a_body_that_wishes_for_another_protocol_is_an_upgrade() {
        let ask = |method: &str, lines: &[(&str, &str)]| {
            let mut request = Request::builder().method(method).body(()).unwrap();
            *request.headers_mut() = map(lines);
            is_upgrade(&request)
        };
        let wish = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let with = |line| [wish[0], wish[1], line];
        assert!(ask("GET", &wish) && ask("GET", &with(("content-length", "0"))));
        for method in ["POST", "HEAD", "PUT", "CONNECT", "get"] {
            assert!(!ask(method, &wish), "{method}");
        }
        assert!(!ask("GET", &with(("content-length", "3"))));
        assert!(!ask("GET", &with(("transfer-encoding", "chunked"))));
        assert!(!ask("GET", &[("connection", "keep-alive"), ("upgrade", "websocket")]));
        assert!(!ask("GET", &[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c")]));
        assert!(!ask(
            "GET",
            &[("connection", "Upgrade"), ("upgrade", "TLS/1.2, HTTP/2.0"), ("upgrade", "H2C")]
        ));
    }

    #[test]
    fn upgrades_to_other_http_versions_are_not_offered_and_only_offered_ones_are_accepted() {
        let offer = offered(&map(&[("upgrade", "h2c, WebSocket"), ("upgrade", "TLS/1.2,rtsp/2.0")])).unwrap();
        assert_eq!(offer, "WebSocket, rtsp/2.0");
        for (agreed, expected) in [
            ("websocket", true),
            ("rtsp/2.0, websocket", true),
            ("h2c", false),
            ("websocket, h2c", false),
            ("", false),
        ] {
            assert_eq!(is_offered(&HeaderValue::from_static(agreed), &offer), expected, "{agreed}");
        }
        assert_eq!(offered(&map(&[("upgrade", "h2c"), ("upgrade", ",")])), None);
    }

    #[test]
    fn requests_that_a_server_may_treat_as_post_count_as_post() {
        let ask = |method: &str, lines: &[(&str, &str)]| {
            let mut request = Request::builder().method(method).body(()).unwrap();
            *request.headers_mut() = map(lines);
            is_post(&request)
        };
        assert!(ask("POST", &[]) && ask("post", &[]));
        assert!(ask("PUT", &[("x-http-method-override", "Post")]));
        assert!(ask("POST", &[("x-http-method-override", "GET")]));
        assert!(!ask("GET", &[]) && !ask("GET", &[("x-http-method-override", "PATCH")]));
    }

    proptest! {
        #[test]
        fn stripping_keeps_every_end_to_end_line_in_order(
            picked in proptest::collection::vec((0_usize..12, "[ -~\u{e9}]{0,8}"), 0..24)
        ) {
            const NAMES: [&str; 12] = [
                "a", "b", "set-cookie", "x-hop", "connection", "te", "upgrade", "keep-alive", "host",
                "content-type", "transfer-encoding", "proxy-connection",
            ];
            let mut headers = HeaderMap::new();
            for (index, text) in &picked {
                let value = if NAMES[*index] == "connection" { "x-hop" } else { text.trim() };
                headers.append(NAMES[*index], HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let named = headers.contains_key("connection");
            let stays = |name: &str| match name {
                "a" | "b" | "set-cookie" | "host" | "content-type" => true,
                "x-hop" => !named,
                _ => false,
            };
            let before: Vec<_> = lines(&headers).into_iter().filter(|(name, _)| stays(name)).collect();
            strip_response(&mut headers);
            let after: Vec<_> = lines(&headers).into_iter().filter(|(name, _)| name != "te").collect();
            prop_assert_eq!(before, after);
        }
    }
}
