//! Content codings of governed replies: what may be asked for, and a bounded decoded copy to judge. The bytes
//! that came are forwarded as they are unless something acts.

use bytes::Bytes;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use hyper::http::{HeaderMap, HeaderValue};
use std::io::Read;

/// Codings that can be read in a whole reply; the last one in a stream too.
const READABLE: [&[u8]; 4] = [b"gzip", b"x-gzip", b"deflate", b"identity"];

/// Takes codings that cannot be read out of `accept-encoding`; of a stream none can. A request without the
/// header, or with readable codings only, stays as it is.
pub(crate) fn accept_readable(headers: &mut HeaderMap, stream: bool) {
    let readable = |coding: &[u8]| -> bool {
        let end = coding.iter().position(|byte| *byte == b';').unwrap_or(coding.len());
        let name = coding[..end].trim_ascii_end();
        let known = if stream { &READABLE[READABLE.len() - 1..] } else { &READABLE };
        known.iter().any(|readable| name.eq_ignore_ascii_case(readable))
    };
    let given = || {
        let values = headers.get_all(ACCEPT_ENCODING).iter();
        let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty())
    };
    if given().all(readable) {
        return;
    }
    let kept: Vec<&[u8]> = given().filter(|coding| readable(coding)).collect();
    let value = if kept.is_empty() { b"identity".to_vec() } else { kept.join(&b", "[..]) };
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        headers.insert(ACCEPT_ENCODING, value);
    }
}

/// Whether a body under these headers is coded.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// The body decoded; `None` where its coding is unknown or broken, or more than `limit` bytes come out.
pub(crate) fn decode(headers: &HeaderMap, body: &Bytes, limit: usize) -> Option<Bytes> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let Some(coding) = codings.next() else { return Some(body.clone()) };
    if codings.next().is_some() {
        return None;
    }
    match coding.to_str().ok()?.trim().to_ascii_lowercase().as_str() {
        "identity" => Some(body.clone()),
        "gzip" | "x-gzip" => read(MultiGzDecoder::new(body.as_ref()), limit),
        // Some servers send raw deflate where the RFC asks for zlib.
        "deflate" => read(ZlibDecoder::new(body.as_ref()), limit)
            .or_else(|| read(DeflateDecoder::new(body.as_ref()), limit)),
        _ => None,
    }
}

fn read(decoder: impl Read, limit: usize) -> Option<Bytes> {
    let mut out = Vec::new();
    let read = decoder.take(limit as u64 + 1).read_to_end(&mut out).ok()?;
    (read <= limit).then(|| out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use std::io::Write as _;

    #[test]
    fn only_codings_that_can_be_read_are_asked_for() {
        for (given, stream, expected) in [
            (&["gzip, deflate"][..], false, "gzip, deflate"),
            (&["gzip, deflate, br, zstd"], false, "gzip, deflate"),
            (&["zstd"], false, "identity"),
            (&["*"], false, "identity"),
            (&["GZIP;q=0.5, zstd;q=1"], false, "GZIP;q=0.5"),
            (&["gzip", "zstd"], false, "gzip"),
            (&["gzip, deflate"], true, "identity"),
            (&["identity"], true, "identity"),
        ] {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            accept_readable(&mut headers, stream);
            let got: Vec<&str> =
                headers.get_all(ACCEPT_ENCODING).iter().map(|v| v.to_str().unwrap()).collect();
            assert_eq!(got, [expected], "{given:?}");
        }
        let mut none = HeaderMap::new();
        accept_readable(&mut none, true);
        assert!(none.is_empty());
    }

    fn coded(coding: &'static str, body: Vec<u8>, limit: usize) -> Option<Bytes> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
        decode(&headers, &body.into(), limit)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn known_codings_are_decoded_and_unknown_or_broken_ones_are_not() {
        let text = b"{\"choices\":[]}";
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(text).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
        raw.write_all(text).unwrap();
        for (coding, body) in [
            ("gzip", gzip(text)),
            ("X-GZIP", gzip(text)),
            ("deflate", zlib.finish().unwrap()),
            ("deflate", raw.finish().unwrap()),
            ("identity", text.to_vec()),
        ] {
            assert_eq!(coded(coding, body, 100).as_deref(), Some(text.as_slice()), "{coding}");
        }
        assert_eq!(coded("zstd", text.to_vec(), 100), None);
        assert_eq!(coded("gzip", text.to_vec(), 100), None);
        assert_eq!(coded("gzip, br", gzip(text), 100), None);
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        assert_eq!(coded("gzip", gzip(&vec![0; 1 << 20]), 1000), None);
    }
}
