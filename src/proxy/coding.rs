//! Content codings in headers: which a request may accept, which a body is in, and which headers no longer hold for a
//! body that was decoded or edited. The streaming decoder handles the bytes.

use super::decoder::{CodingError, Decoder, is_known};
use super::headers::retain;
use bytes::{Bytes, BytesMut};
use hyper::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use hyper::http::{HeaderMap, HeaderValue};
use tokio::task::coop::consume_budget;

/// Headers that hold for the upstream's bytes alone.
const OF_THE_BYTES: [&str; 7] =
    ["content-length", "content-encoding", "etag", "content-md5", "digest", "content-digest", "repr-digest"];

/// The most that may come out between two codings where only the first bytes are wanted.
const START_BYTES: usize = 64 * 1024;

/// Removes codings that cannot be decoded from `accept-encoding`. A header without any stays as it is.
pub(crate) fn accept_decodable(headers: &mut HeaderMap) {
    let given = || {
        let values = headers.get_all(ACCEPT_ENCODING).iter();
        let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty())
    };
    if given().all(is_acceptable) {
        return;
    }
    let kept: Vec<&[u8]> = given().filter(|coding| is_acceptable(coding)).collect();
    let value = if kept.is_empty() { b"identity".to_vec() } else { kept.join(&b", "[..]) };
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        headers.insert(ACCEPT_ENCODING, value);
    }
}

/// Whether an element of `accept-encoding` names a coding that can be decoded, any coding, or one that is not wanted.
fn is_acceptable(element: &[u8]) -> bool {
    let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let is_zero = |weight: &[u8]| {
        let digits = weight.strip_prefix(b"q=").or_else(|| weight.strip_prefix(b"Q="));
        digits.is_some_and(|digits| digits.iter().all(|byte| matches!(byte, b'0' | b'.')))
    };
    name == b"*" || is_known(name) || parts.any(is_zero)
}

/// Whether a body under these headers is coded.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The decoder of a body under these headers, `None` where it is not coded. At most `limit` bytes may come out between
/// two codings.
pub(crate) fn decoder(headers: &HeaderMap, limit: usize) -> Result<Option<Decoder>, CodingError> {
    Decoder::new(headers.get_all(CONTENT_ENCODING).iter().map(HeaderValue::as_bytes), limit)
}

/// The body decoded; `None` where its coding is unknown or broken, or more than `limit` bytes come out.
pub(crate) async fn decode(headers: &HeaderMap, body: &Bytes, limit: usize) -> Option<Bytes> {
    let Some(mut decoder) = decoder(headers, limit).ok()? else { return Some(body.clone()) };
    decoder.push(body.clone());
    decoder.end();
    let mut decoded = BytesMut::new();
    while let Some(piece) = decoder.decode() {
        let piece = piece.ok()?;
        if decoded.len() + piece.len() > limit {
            return None;
        }
        decoded.extend_from_slice(&piece);
        // A little compressed data decodes to a lot: yield to other tasks.
        consume_budget().await;
    }
    Some(decoded.freeze())
}

/// The first bytes of a body, decoded from its `start`; `None` where they cannot be.
pub(crate) fn decoded_start(headers: &HeaderMap, start: Bytes) -> Option<Bytes> {
    let Some(mut decoder) = decoder(headers, START_BYTES).ok()? else { return Some(start) };
    decoder.push(start);
    decoder.decode().unwrap_or(Ok(Bytes::new())).ok()
}

/// Removes headers that do not hold for a body that was decoded or edited. The other headers keep their order.
pub(crate) fn describe_no_bytes(headers: &mut HeaderMap) {
    retain(headers, |name, _| !OF_THE_BYTES.contains(&name.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codings_that_cannot_be_decoded_are_taken_out() {
        for (given, expected) in [
            (&["gzip, deflate ,br;q=0.9,zstd"][..], &["gzip, deflate ,br;q=0.9,zstd"][..]),
            (&["*"], &["*"]),
            (&["identity;q=0, *"], &["identity;q=0, *"]),
            (&["compress;q=0.0, *"], &["compress;q=0.0, *"]),
            (&["gzip, compress, br"], &["gzip, br"]),
            (&["dcb", "dcz, ZSTD;q=0.5"], &["ZSTD;q=0.5"]),
            (&["compress;q=1"], &["identity"]),
            (&["gzip", "br"], &["gzip", "br"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            accept_decodable(&mut headers);
            let got: Vec<&str> =
                headers.get_all(ACCEPT_ENCODING).iter().map(|v| v.to_str().unwrap()).collect();
            assert_eq!(got, expected, "{given:?}");
        }
        let mut none = HeaderMap::new();
        accept_decodable(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn what_a_body_says_of_its_bytes_is_removed_and_the_rest_keeps_its_order() {
        let mut headers = HeaderMap::new();
        for name in ["vary", "content-encoding", "x-a", "etag", "content-length", "x-b"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        describe_no_bytes(&mut headers);
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["vary", "x-a", "x-b"]);
    }
}
