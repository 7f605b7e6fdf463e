//! The head of a client's request, for each upstream request made for it. A body that came in a content coding goes
//! with it: it is sent as it came, unless something in it was changed.

use super::body::UpBody;
use super::headers::retain;
use bytes::Bytes;
use hyper::http::header::CONTENT_ENCODING;
use hyper::http::request::Parts;
use hyper::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Uri};

/// Headers that are valid for the client's bytes only.
const DIGESTS: [&str; 4] = ["content-md5", "digest", "content-digest", "repr-digest"];

/// See the module's documentation.
pub(crate) struct Head {
    parts: Parts,
    /// The headers in one piece, in the place of those of `parts`: the fields of a header with what ends each.
    packed: Option<Box<[u8]>>,
    coded: Option<Box<CodedBody>>,
}

/// What ends the name of a header, and its value: neither may hold it. A value that is sensitive ends otherwise.
const NAME_END: u8 = b':';
const VALUE_END: u8 = b'\n';
const SENSITIVE_END: u8 = b'\r';

/// A body in a content coding, as it came and decoded.
pub(crate) struct CodedBody {
    pub(crate) came: Bytes,
    pub(crate) decoded: Bytes,
}

impl Head {
    /// The head `parts` of a request whose body came `coded`, if it did. Extensions are not kept: they are about the client's
    /// connection.
    pub(crate) fn new(mut parts: Parts, coded: Option<CodedBody>) -> Self {
        parts.extensions = Extensions::new();
        Self { parts, packed: None, coded: coded.map(Box::new) }
    }

    /// The head as it came.
    pub(crate) fn came(&mut self) -> &Parts {
        self.unpack();
        &self.parts
    }

    /// Keeps the headers in one piece until they are needed again, which for most streams they are not, and the target
    /// on its own. A map of headers takes several KB, and a slice of the buffer into which hyper read the request would
    /// keep all of it, for as long as a stream lasts.
    pub(crate) fn shrink(&mut self) {
        let parts = &mut self.parts;
        parts.uri = Uri::try_from(parts.uri.to_string()).unwrap_or_else(|_| parts.uri.clone());
        if self.packed.is_none() {
            drop(self.take_headers());
        }
    }

    /// Moves the headers out and keeps them in one piece: that takes less than a second map of headers.
    fn take_headers(&mut self) -> HeaderMap {
        self.unpack();
        let headers = std::mem::take(&mut self.parts.headers);
        let length = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 2).sum();
        let mut packed = Vec::with_capacity(length);
        for (name, value) in &headers {
            packed.extend_from_slice(name.as_str().as_bytes());
            packed.push(NAME_END);
            packed.extend_from_slice(value.as_bytes());
            packed.push(if value.is_sensitive() { SENSITIVE_END } else { VALUE_END });
        }
        self.packed = Some(packed.into_boxed_slice());
        headers
    }

    fn unpack(&mut self) {
        let Some(packed) = self.packed.take() else { return };
        let mut rest = &packed[..];
        while let Some(name_end) = memchr::memchr(NAME_END, rest) {
            let (name, value) = (&rest[..name_end], &rest[name_end + 1..]);
            let Some(value_end) = memchr::memchr2(VALUE_END, SENSITIVE_END, value) else { return };
            let header =
                HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(&value[..value_end]).ok());
            if let Some((name, mut copy)) = header {
                copy.set_sensitive(value[value_end] == SENSITIVE_END);
                self.parts.headers.append(name, copy);
            }
            rest = &value[value_end + 1..];
        }
    }

    /// One more request, with this body in pieces; `trace`: its `traceparent`, where that is not the client's. A changed
    /// body goes out without a content coding, and without the
    /// digests of the client's bytes.
    pub(crate) fn request(&mut self, pieces: &[Bytes], trace: Option<&HeaderValue>) -> Request<UpBody> {
        let headers = self.take_headers();
        let mut parts = self.parts.clone();
        parts.headers = headers;
        if let Some(trace) = trace {
            parts.headers.insert("traceparent", trace.clone());
        }
        let is_same = |coded: &&CodedBody| matches!(pieces, [only] if *only == coded.decoded);
        if let Some(coded) = self.coded.as_deref().filter(is_same) {
            return Request::from_parts(parts, UpBody::rope(vec![coded.came.clone()]));
        }
        let is_coded = self.coded.is_some();
        if is_coded || pieces.len() > 1 {
            retain(&mut parts.headers, |name, _| {
                !(DIGESTS.contains(&name.as_str()) || (is_coded && *name == CONTENT_ENCODING))
            });
        }
        Request::from_parts(parts, UpBody::rope(pieces.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use hyper::http::{Method, Version};

    fn parts(headers: &[(&'static str, HeaderValue)]) -> Parts {
        let mut request = Request::post("/v1/chat/completions?a=%20b").body(()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.clone());
        }
        request.into_parts().0
    }

    fn pieces(texts: &[&'static str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
    }

    #[test]
    fn a_copied_head_keeps_order_duplicates_and_sensitive_flags() {
        let mut secret = HeaderValue::from_static("s");
        secret.set_sensitive(true);
        let came = parts(&[
            ("b", HeaderValue::from_static("1")),
            ("x-own", HeaderValue::from_static("2")),
            ("b", HeaderValue::from_bytes(b"\xfe").unwrap()),
            ("empty", HeaderValue::from_static("")),
            ("authorization", secret),
        ]);
        let (uri, headers) = (came.uri.clone(), came.headers.clone());
        let mut head = Head::new(came, None);
        for sending in 0..3 {
            match sending {
                0 => {}
                1 => head.shrink(),
                _ => assert_eq!(head.came().headers, headers),
            }
            let (parts, _) = head.request(&pieces(&["x"]), None).into_parts();
            assert_eq!((&parts.method, parts.version), (&Method::POST, Version::HTTP_11), "{sending}");
            assert_eq!(parts.uri, uri);
            assert_eq!(
                parts.headers.iter().collect::<Vec<_>>(),
                headers.iter().collect::<Vec<_>>(),
                "{sending}"
            );
            assert!(parts.headers["authorization"].is_sensitive());
        }
    }

    #[tokio::test]
    async fn a_coded_body_goes_out_as_it_came_until_it_is_changed() {
        let value = HeaderValue::from_static;
        let headers = [
            ("content-encoding", value("gzip")),
            ("x-a", value("1")),
            ("content-digest", value("d")),
            ("repr-digest", value("d")),
            ("x-b", value("2")),
        ];
        let coded = CodedBody { came: "coded".into(), decoded: "plain".into() };
        let mut head = Head::new(parts(&headers), Some(coded));
        let names = ["content-encoding", "x-a", "content-digest", "repr-digest", "x-b"];
        for (sent, expected_names, expected) in [
            (pieces(&["plain"]), &names[..], "coded"),
            (pieces(&["plain", "er"]), &["x-a", "x-b"], "plainer"),
            (pieces(&["other"]), &["x-a", "x-b"], "other"),
        ] {
            let (parts, body) = head.request(&sent, None).into_parts();
            let found: Vec<&str> = parts.headers.keys().map(|name| name.as_str()).collect();
            assert_eq!(found, expected_names, "{sent:?}");
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
        }
        // `identity` means no coding, so this body came plain.
        let mut head =
            Head::new(parts(&[("content-encoding", value("identity")), ("digest", value("d"))]), None);
        for (sent, expected) in [(pieces(&["a"]), 2), (pieces(&["a", "b"]), 1)] {
            assert_eq!(head.request(&sent, None).headers().len(), expected, "{sent:?}");
        }
    }
}
