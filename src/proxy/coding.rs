//! Content codings in headers: which a request may accept, which a body is in, and which headers no longer hold for a
//! body that was decoded or edited. The streaming decoder handles the bytes.

use super::decoder::{CodingError, Decoder, is_known};
use super::headers::retain;
use super::memory::{Pool, Reserved};
use bytes::{Bytes, BytesMut};
use hyper::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use hyper::http::{HeaderMap, HeaderValue};
use tokio::task::coop::consume_budget;

/// Headers that describe the upstream's bytes: they are wrong for a body that was decoded or edited.
const OF_THE_BYTES: [&str; 7] =
    ["content-length", "content-encoding", "etag", "content-md5", "digest", "content-digest", "repr-digest"];

/// The most that may come out between two codings where only the first bytes are wanted.
const START_BYTES: usize = 64 * 1024;
/// The most codings of a request. Clients use one.
const MOST_OF_A_REQUEST: usize = 2;

/// Why a body was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotDecoded {
    /// Its coding is unknown or broken.
    Unreadable,
    /// More comes out than the limit allows.
    TooLong,
    /// All memory for bodies is taken.
    NoMemory,
}

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
    let Some(decoder) = decoder(headers, limit).ok()? else { return Some(body.clone()) };
    decode_all(decoder, body, limit, |_| true).await.ok()
}

/// The body of a request decoded: at most `limit` bytes, which hold a reservation of `memory`; `None` where it is not
/// coded, whatever its headers say. It never waits for memory, since the coded body holds some.
pub(crate) async fn decode_request(
    headers: &HeaderMap,
    body: &Bytes,
    limit: usize,
    memory: &Pool,
) -> Result<Option<Bytes>, NotDecoded> {
    let mut reserved = Reserved::default();
    let decoded = match decoder(headers, limit) {
        Ok(None) => return Ok(None),
        Ok(Some(decoder)) if decoder.codings() <= MOST_OF_A_REQUEST => {
            decode_all(decoder, body, limit, |bytes| memory.reach(&mut reserved, bytes)).await
        }
        _ => Err(NotDecoded::Unreadable),
    };
    match (decoded, is_object(body)) {
        (Ok(decoded), false) => {
            reserved.shrink(decoded.len());
            Ok(Some(reserved.keep(decoded)))
        }
        (Err(NotDecoded::Unreadable), true) => Ok(None),
        // An attacker can make bytes that are valid JSON both as they are and when decoded.
        (Ok(_), true) => Err(NotDecoded::Unreadable),
        (Err(error), _) => Err(error),
    }
}

/// Whether a server that ignores the coding may read the body as it is.
fn is_object(body: &[u8]) -> bool {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start().starts_with(b"{")
}

/// Decodes a body as long as what is in memory for it, in bytes, `fits`.
async fn decode_all(
    mut decoder: Decoder,
    body: &Bytes,
    limit: usize,
    mut fits: impl FnMut(usize) -> bool,
) -> Result<Bytes, NotDecoded> {
    decoder.push(body.clone());
    decoder.end();
    let mut decoded = BytesMut::new();
    while let Some(piece) = decoder.decode() {
        let piece = piece.map_err(|_| NotDecoded::Unreadable)?;
        let length = decoded.len() + piece.len();
        if length > limit {
            return Err(NotDecoded::TooLong);
        }
        if !fits(length + decoder.kept_bytes()) {
            return Err(NotDecoded::NoMemory);
        }
        decoded.extend_from_slice(&piece);
        // A little compressed data decodes to a lot: yield to other tasks.
        consume_budget().await;
    }
    Ok(decoded.freeze())
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
    use crate::proxy::decoder::coded::{CODINGS, encode};
    use crate::proxy::memory::BodyMemory;

    async fn request(coding: &str, body: Vec<u8>, memory: &BodyMemory) -> Result<Option<Bytes>, NotDecoded> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
        decode_request(&headers, &body.into(), 100_000, &memory.requests).await
    }

    #[tokio::test]
    async fn a_request_is_decoded_from_one_or_two_codings_within_its_limit() {
        let memory = BodyMemory::new(64 << 20);
        let text = b"{\"messages\":[]} ".repeat(1000);
        for coding in CODINGS {
            let decoded = request(coding.0, encode(coding, &text), &memory).await.unwrap().unwrap();
            assert!(decoded == text, "{coding:?}");
            let bomb = encode(coding, &vec![b' '; 100_001]);
            assert_eq!(request(coding.0, bomb, &memory).await, Err(NotDecoded::TooLong), "{coding:?}");
        }
        let [gzip, zstd] = [("gzip", false), ("zstd", false)];
        let twice = encode(zstd, &encode(gzip, &text));
        assert_eq!(request("gzip, zstd", twice.clone(), &memory).await.unwrap().unwrap(), text);
        assert_eq!(request("identity", text.clone(), &memory).await, Ok(None));
        for (coding, body) in [
            ("gzip, gzip, zstd", encode(zstd, &encode(gzip, &encode(gzip, &text)))),
            ("gzip", twice),
            ("gzip", encode(gzip, &text)[..100].to_vec()),
            ("compress", vec![0x1f, 0x9d, 0x90]),
        ] {
            assert_eq!(request(coding, body, &memory).await, Err(NotDecoded::Unreadable), "{coding}");
        }
        for coding in ["gzip", "deflate", "br", "zstd", "utf-8", "gzip, gzip, gzip"] {
            assert_eq!(request(coding, text.clone(), &memory).await, Ok(None), "{coding}");
        }
    }

    #[tokio::test]
    async fn a_decoded_request_is_counted_as_long_as_it_is_held() {
        let text = vec![b' '; 50_000];
        let coded = || encode(("gzip", false), &text);
        let memory = BodyMemory::new(1 << 20);
        let decoded = request("gzip", coded(), &memory).await.unwrap();
        assert_eq!(memory.held(), 49 * 1024);
        drop(decoded);
        assert_eq!(memory.held(), 0);
        let little = BodyMemory::new(64 << 10);
        assert_eq!(request("gzip", coded(), &little).await, Err(NotDecoded::NoMemory));
        assert_eq!(little.held(), 0);
    }

    #[tokio::test]
    async fn a_body_that_is_both_json_and_valid_compressed_data_is_unreadable() {
        // A stored block of raw deflate may begin with white space.
        let stored = |text: &[u8]| {
            let length = u16::try_from(text.len()).unwrap();
            [&[0x20][..], &length.to_le_bytes(), &(!length).to_le_bytes(), text, &[1, 0, 0, 255, 255]]
                .concat()
        };
        let memory = BodyMemory::new(1 << 20);
        let text = vec![b'x'; 0x227b];
        let both = stored(&text);
        assert!(both.starts_with(b" {\""));
        assert_eq!(request("deflate", both, &memory).await, Err(NotDecoded::Unreadable));
        assert!(request("deflate", stored(b"{}"), &memory).await.is_ok());
    }

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
    fn headers_that_describe_the_body_bytes_are_removed_and_the_rest_keeps_its_order() {
        let mut headers = HeaderMap::new();
        for name in ["vary", "content-encoding", "x-a", "etag", "content-length", "x-b"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        describe_no_bytes(&mut headers);
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["vary", "x-a", "x-b"]);
    }
}
