//! The id of a client's request: on its reply, in the body of an error of toolrein's own, and in every line about it. A
//! client's own id is kept.

use crate::secret::random_bytes;
use hyper::http::{Extensions, HeaderName, HeaderValue, Request};
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The header that names a request, on requests and replies. Parsed names: a look-up costs a third.
pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-toolrein-request-id");
/// The header by which clients and upstreams commonly name a request.
pub(super) static COMMON_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Of a number of 64 bits.
const MOST_DIGITS: usize = 20;
/// The longest id of a client's that is kept.
const MAX_BYTES: usize = 128;
/// What the ids of this process begin with. A number in hexadecimal distinguishes them from those of others.
static PREFIX: LazyLock<String> = LazyLock::new(|| format!("tr-{:08x}-", u32::from_be_bytes(random_bytes())));

/// The id of a request, kept with it as an extension: among its headers it would have to be taken out again before they
/// are sent on, and that builds the whole map anew.
#[derive(Clone)]
pub(super) struct RequestId(HeaderValue);

/// Gives the request its id, the client's own or a new one, and returns it.
pub(super) fn assign<B>(request: &mut Request<B>) -> HeaderValue {
    let headers = request.headers();
    let sent = [&REQUEST_ID, &COMMON_REQUEST_ID]
        .into_iter()
        .find_map(|name| headers.get(name).filter(|id| is_kept(id)));
    let id = sent.cloned().unwrap_or_else(new_id);
    request.extensions_mut().insert(RequestId(id.clone()));
    id
}

/// The id of the request with these extensions; empty where it was given none.
pub(super) fn id_of(extensions: &Extensions) -> &str {
    extensions.get::<RequestId>().and_then(|RequestId(id)| id.to_str().ok()).unwrap_or_default()
}

/// Whether an id of a client's can stand in logs, headers and bodies: `[A-Za-z0-9._:-]{1,128}`.
fn is_kept(id: &HeaderValue) -> bool {
    let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    (1..=MAX_BYTES).contains(&id.len()) && id.as_bytes().iter().all(is_of_id)
}

/// An id for a request without one: the process, and the request's number in it.
fn new_id() -> HeaderValue {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = String::with_capacity(PREFIX.len() + MOST_DIGITS);
    id.push_str(&PREFIX);
    // Writing to memory does not fail.
    let _ = write!(id, "{}", NEXT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("tr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_own_id_is_kept_where_it_is_harmless() {
        let long = "x".repeat(128);
        for (sent, is_kept) in [
            ("req-1_x", true),
            ("req-1.x:2", true),
            (long.as_str(), true),
            (&format!("{long}x"), false),
            ("a b", false),
            ("", false),
            ("a\"b", false),
        ] {
            for name in [&REQUEST_ID, &COMMON_REQUEST_ID] {
                let mut request = Request::new(());
                request.headers_mut().insert(name, HeaderValue::from_str(sent).unwrap());
                let id = assign(&mut request);
                assert_eq!(id == sent, is_kept, "{sent:?}");
                assert_eq!(id_of(request.extensions()), id);
                // What is added to the headers would have to be taken out again.
                assert_eq!(request.headers().len(), 1);
            }
        }
        let ids: Vec<HeaderValue> = (0..2).map(|_| assign(&mut Request::new(()))).collect();
        assert!(ids[0] != ids[1] && ids[0].to_str().unwrap().starts_with("tr-"), "{ids:?}");
    }

    #[test]
    fn the_header_of_toolrein_prevails_over_the_common_one() {
        let mut request = Request::new(());
        request.headers_mut().insert(&COMMON_REQUEST_ID, HeaderValue::from_static("common"));
        request.headers_mut().insert(&REQUEST_ID, HeaderValue::from_static("own"));
        assert_eq!(assign(&mut request), "own");
    }
}
