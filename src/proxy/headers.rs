//! Headers that belong to one hop, and toolrein's own: taken out before a message goes on.
//!
//! Responsible for RFC 9110, section 7.6.1, in both directions. Everything else keeps its order and
//! its duplicates; nothing is added here.

use hyper::http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, UPGRADE,
};
use hyper::http::{Method, Request, Version};

/// Request headers addressed to toolrein begin so.
const OWN_PREFIX: &str = "x-toolrein-";

/// Takes out what belongs to the connection it came on: `connection` and all that it names,
/// `keep-alive`, `proxy-*`, `transfer-encoding`, `upgrade`, and `te` but for `trailers`.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    strip(headers, |name, value| !is_hop_by_hop(name, value));
}

/// As [`strip_hop_by_hop`], and takes out `x-toolrein-*` and `expect`: the server side has answered
/// the expectation, so it must not reach the upstream. `is_http1`: the next hop speaks HTTP/1.1 too, where
/// `connection: keep-alive` is as true as on this one. Almost every client sends it, and taking it out means
/// building the whole map anew.
pub fn strip_request(headers: &mut HeaderMap, is_http1: bool) {
    strip(headers, |name, value| match name {
        // Half of what clients of OpenAI send; no other rule concerns it.
        _ if name.starts_with("x-") => !name.starts_with(OWN_PREFIX),
        "connection" => is_http1 && value.as_bytes().eq_ignore_ascii_case(b"keep-alive"),
        "expect" => false,
        _ => !is_hop_by_hop(name, value),
    });
}

/// Keeps what `keep` keeps, but for what `connection` names. Nearly every message is looked at once and left alone.
fn strip(headers: &mut HeaderMap, keep: impl Fn(&str, &HeaderValue) -> bool) {
    if headers.iter().all(|(name, value)| keep(name.as_str(), value)) {
        return;
    }
    let named = named_by_connection(headers);
    retain(headers, |name, value| keep(name.as_str(), value) && !is_named(&named, name));
}

/// Whether the client asks to leave HTTP on this connection (WebSocket). An offer of HTTP/2 or TLS by
/// upgrade is no such wish: it may be ignored, and curl makes it on ordinary requests.
pub fn is_upgrade<B>(request: &Request<B>) -> bool {
    let protocols = request.headers().get_all(UPGRADE).iter().flat_map(tokens);
    let wanted = |token: &[u8]| {
        !token.eq_ignore_ascii_case(b"h2c") && !token.to_ascii_lowercase().starts_with(b"tls/")
    };
    // First what almost no request has.
    request.headers().contains_key(UPGRADE)
        && request.version() == Version::HTTP_11
        && request.method() != Method::CONNECT
        && has_token(request.headers(), &CONNECTION, b"upgrade")
        && protocols.into_iter().any(wanted)
}

/// By its name as text, since half of the names that clients send are none that the library knows by number.
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

/// Host and length frame the message itself. Naming them in `connection` is an attack, not a wish.
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

/// Keeps some headers, in order. `HeaderMap::remove` would move the last header to the gap.
pub(super) fn retain(headers: &mut HeaderMap, keep: impl Fn(&HeaderName, &HeaderValue) -> bool) {
    if headers.iter().all(|(name, value)| keep(name, value)) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.keys_len());
    let mut current = None;
    for (name, value) in std::mem::take(headers) {
        // Only the first of several values comes with its name.
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
        strip_hop_by_hop(&mut headers);
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
        strip_hop_by_hop(&mut headers);
        assert_eq!(lines(&headers), lines(&map(&[("te", "trailers")])));
        let mut headers = map(&[("te", "deflate")]);
        strip_hop_by_hop(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn host_and_length_stay_though_connection_names_them() {
        let mut headers =
            map(&[("host", "h"), ("content-length", "3"), ("connection", "host, content-length")]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers.len(), 2);
    }

    #[test]
    fn toolreins_own_headers_and_expect_stay_with_us() {
        let mut headers =
            map(&[("x-toolrein-profile", "p"), ("expect", "100-continue"), ("x-session-id", "s")]);
        strip_request(&mut headers, false);
        assert_eq!(lines(&headers), lines(&map(&[("x-session-id", "s")])));
    }

    #[test]
    fn only_a_wish_for_another_protocol_is_an_upgrade() {
        let ask = |upgrade: &str, connection: &str| {
            let request = Request::builder().header("upgrade", upgrade).header("connection", connection);
            is_upgrade(&request.body(()).unwrap())
        };
        assert!(ask("websocket", "keep-alive, Upgrade"));
        assert!(!ask("websocket", "keep-alive"));
        assert!(!ask("h2c", "Upgrade, HTTP2-Settings"));
        assert!(!ask("TLS/1.2", "Upgrade"));
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
            strip_hop_by_hop(&mut headers);
            let after: Vec<_> = lines(&headers).into_iter().filter(|(name, _)| name != "te").collect();
            prop_assert_eq!(before, after);
        }
    }
}
