//! The head of a client's request, for the requests that go up: as it came for the first of them, and out of memory
//! of its own for all others. Changes nothing of it.
//!
//! It is written down rather than cloned: that is one copy instead of a table of shared slices, and what is kept must be
//! no slice of the buffer that hyper read the request into, since it would keep all of that for as long as a stream lasts.

use hyper::http::request::{Parts, Request};
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

/// Most heads are shorter; to add up what they take costs more than to have room for it.
const HEAD_BYTES: usize = 1024;

/// See the file's head.
pub(crate) struct Head {
    /// Until it is sent.
    came: Option<Parts>,
    written: Written,
}

/// A head in memory of its own.
#[derive(Default)]
struct Written {
    method: Method,
    version: Version,
    /// The target, and behind it the name and the value of each header.
    text: Vec<u8>,
    /// How much of that is the target.
    target: usize,
    lines: Vec<Line>,
}

/// How long the name and the value of one header are.
struct Line {
    name: usize,
    value: usize,
    sensitive: bool,
}

impl Head {
    /// The head `parts`.
    pub(crate) fn new(parts: Parts) -> Self {
        Self { came: Some(parts), written: Written::default() }
    }

    /// The head as it came, until it is sent.
    pub(crate) fn came(&self) -> Option<&Parts> {
        self.came.as_ref()
    }

    /// Takes no more room than it needs, since it is kept for as long as a stream lasts.
    pub(crate) fn let_go(&mut self) {
        self.written.text.shrink_to_fit();
    }

    /// The head for one more request; the first one is what came.
    pub(crate) fn again(&mut self) -> Parts {
        match self.came.take() {
            Some(parts) => {
                self.written = Written::of(&parts);
                parts
            }
            None => self.written.read(),
        }
    }
}

impl Written {
    fn of(parts: &Parts) -> Self {
        let Parts { method, uri, version, headers, .. } = parts;
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).as_bytes();
        let mut text = Vec::with_capacity(HEAD_BYTES);
        text.extend_from_slice(target);
        let mut lines = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(value.as_bytes());
            let (name, sensitive) = (name.as_str().len(), value.is_sensitive());
            lines.push(Line { name, value: value.len(), sensitive });
        }
        Self { method: method.clone(), version: *version, text, target: target.len(), lines }
    }

    fn read(&self) -> Parts {
        let (target, mut rest) = self.text.split_at(self.target);
        let mut headers = HeaderMap::with_capacity(self.lines.len());
        for line in &self.lines {
            let (name, behind) = rest.split_at(line.name);
            let (value, behind) = behind.split_at(line.value);
            rest = behind;
            // Both were a header's before.
            if let Some((name, mut value)) =
                HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(value).ok())
            {
                value.set_sensitive(line.sensitive);
                headers.append(name, value);
            }
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.version, parts.headers) = (self.method.clone(), self.version, headers);
        parts.uri = Uri::try_from(target).unwrap_or_default();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_the_same_again_with_order_doubles_and_what_is_secret() {
        let mut secret = HeaderValue::from_static("s");
        secret.set_sensitive(true);
        let request = Request::post("/v1/chat/completions?a=%20b")
            .version(Version::HTTP_11)
            .header("b", "1")
            .header("x-own", "2")
            .header("b", HeaderValue::from_bytes(b"\xfe").unwrap())
            .header("empty", "")
            .header("authorization", secret);
        let (came, ()) = request.body(()).unwrap().into_parts();
        let (uri, headers) = (came.uri.clone(), came.headers.clone());
        let mut head = Head::new(came);
        for sending in 0..3 {
            let parts = head.again();
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
}
