//! Who sends a request and in which conversation, read from its headers and body. Credentials are hashed and
//! forgotten; nothing is stored.

use crate::config::Conversation;
use crate::transcript::identity::{Domain, HashKey, Identity};
use crate::wire::body::{Scanner, Span};
use crate::wire::json::decode;
use crate::wire::request::Request;
use hyper::http::header::AUTHORIZATION;
use hyper::http::{HeaderMap, HeaderName, HeaderValue};

/// The client's own name for its conversation; sent back in replies too.
pub(crate) static CONVERSATION: HeaderName = HeaderName::from_static("x-toolrein-conversation");
/// Headers that carry a credential, OpenAI's form, Azure's, Anthropic's. All of them count: which one an upstream
/// goes by is its own affair.
pub(super) static CREDENTIALS: [HeaderName; 3] =
    [AUTHORIZATION, HeaderName::from_static("api-key"), HeaderName::from_static("x-api-key")];
/// The longest conversation id that is taken; a longer one is no name.
const MAX_ID_BYTES: usize = 256;

/// The identity of the caller of `request`.
pub(crate) fn identify(
    key: &HashKey,
    headers: &HeaderMap,
    (request, body): (&Request, &[u8]),
    settings: &Conversation,
) -> Identity {
    let mut credentials: Vec<&[u8]> = Vec::new();
    for name in &CREDENTIALS {
        credentials.extend(headers.get_all(name).iter().map(HeaderValue::as_bytes));
    }
    let principal = key.hash(Domain::Principal, &credentials);
    let by_header = || {
        let names = std::iter::once(&CONVERSATION).chain(&settings.headers);
        names.filter_map(|name| headers.get(name)?.to_str().ok()).find_map(id)
    };
    let by_body = || settings.body.iter().find_map(|path| id(&text_at(request, body, path)?));
    Identity { key: key.clone(), principal, explicit: by_header().or_else(by_body) }
}

fn id(text: &str) -> Option<String> {
    let text = text.trim();
    let fits =
        (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    fits.then(|| text.to_owned())
}

/// The string at `path` in the body.
fn text_at(request: &Request, body: &[u8], path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let mut span = request.value(body, first)?;
    for name in rest {
        span = member(body, span, name)?;
    }
    let mut scanner = Scanner::within(body, span);
    Some(decode(scanner.string().ok()?, body).into_owned())
}

fn member(body: &[u8], object: Span, name: &str) -> Option<Span> {
    let mut scanner = Scanner::within(body, object);
    scanner.object().ok()?;
    while let Some(key) = scanner.member().ok()? {
        let value = scanner.skip().ok()?;
        if decode(key, body) == name {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Conversation {
        Conversation {
            holdout: 0,
            headers: vec![HeaderName::from_static("x-session-id")],
            body: vec![
                vec!["prompt_cache_key".to_owned()],
                vec!["metadata".to_owned(), "session_id".to_owned()],
            ],
            ..Conversation::default()
        }
    }

    fn explicit(headers: &[(&'static str, &'static str)], members: &str) -> Option<String> {
        let body = format!(r#"{{"messages":[]{members}}}"#);
        let request = Request::parse(body.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        identify(&HashKey::fixed(1), &map, (&request, body.as_bytes()), &settings()).explicit
    }

    #[test]
    fn the_conversation_is_named_by_the_first_place_that_names_it() {
        let metadata = r#","metadata":{"session_id":"in metadata"}"#;
        let key = r#","prompt_cache_key":"key","metadata":{"session_id":"in metadata"}"#;
        for (headers, members, expected) in [
            (&[("x-toolrein-conversation", "ours"), ("x-session-id", "theirs")][..], key, Some("ours")),
            (&[("x-session-id", "theirs")], key, Some("theirs")),
            (&[("x-session-id", "  ")], key, Some("key")),
            (&[], metadata, Some("in metadata")),
            (&[], r#","metadata":{"session_id":7},"prompt_cache_key":null"#, None),
            (&[], r#","metadata":"session_id""#, None),
            (&[], "", None),
        ] {
            assert_eq!(explicit(headers, members).as_deref(), expected, "{members}");
        }
        let long = format!(r#","prompt_cache_key":"{}""#, "x".repeat(300));
        assert_eq!(explicit(&[], &long), None);
    }

    #[test]
    fn principals_differ_by_credential_and_by_process() {
        let of = |seed, credential: &'static str| {
            let mut map = HeaderMap::new();
            map.insert("authorization", HeaderValue::from_static(credential));
            let body = br#"{"messages":[]}"#;
            let request = Request::parse(body).unwrap();
            identify(&HashKey::fixed(seed), &map, (&request, body), &settings()).principal
        };
        assert_eq!(of(1, "Bearer a"), of(1, "Bearer a"));
        assert_ne!(of(1, "Bearer a"), of(1, "Bearer b"));
        assert_ne!(of(1, "Bearer a"), of(2, "Bearer a"));
    }
}
