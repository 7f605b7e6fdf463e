//! The head of a client's request, for each upstream request made for it. Changes nothing in it.

use hyper::http::request::Parts;
use hyper::http::{HeaderValue, Uri};

/// See the module's documentation.
pub(crate) struct Head(Parts);

impl Head {
    /// The head `parts`.
    pub(crate) fn new(parts: Parts) -> Self {
        Self(parts)
    }

    /// The head as it came.
    pub(crate) fn came(&self) -> &Parts {
        &self.0
    }

    /// Copies slices of the buffer into which hyper read the request: a slice would keep all of it, 8 KB for as long as
    /// a stream lasts.
    pub(crate) fn shrink(&mut self) {
        self.0.uri = Uri::try_from(self.0.uri.to_string()).unwrap_or_else(|_| self.0.uri.clone());
        for value in self.0.headers.values_mut() {
            let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }

    /// The head for one more request.
    pub(crate) fn again(&self) -> Parts {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::http::request::Request;
    use hyper::http::{Method, Version};

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
            if sending == 1 {
                head.shrink();
            }
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
