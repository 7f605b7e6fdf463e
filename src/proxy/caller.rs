//! Caller and conversation identification, from a request's headers, query and body. The caller is a keyed hash of its
//! credential, which is not kept; nothing is stored.

use super::credential::{Credentials, carries};
use super::error::ProxyError;
use super::jwt;
use crate::config::{Caller, Config, Conversation, Mode};
use crate::telemetry::callers::caller_name;
use hyper::http::header::{COOKIE, PROXY_AUTHORIZATION};
use hyper::http::{HeaderMap, HeaderName};
use model::identity::{Domain, Hash, HashKey, Identity};
use model::record::CallerName;
use model::request::Request;
use std::borrow::Cow;
use wire::body::{Scanner, Span};
use wire::json::{decode, decode_bytes, is_named};
use wire::members::members_of;

/// The header with the client's own id for its conversation; also sent back in replies.
pub(crate) static CONVERSATION: HeaderName = HeaderName::from_static("x-toolrein-conversation");
/// The longest conversation id that logs and replies show. In place of a longer one they show its hash.
const MAX_ID_BYTES: usize = 256;

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestCaller {
    /// A keyed hash of what identifies it.
    pub(crate) hash: Hash,
    /// Its name, where the operator says what names callers.
    pub(crate) name: Option<CallerName>,
}

/// The caller: a keyed hash of the one credential, header or member of the body that `config` names. A known caller is
/// identified by its name, so it stays the same when its key changes. `request`: the request and its body, where it has
/// one that was read; without it no member of a body names anybody.
///
/// # Errors
/// The request carries several credentials that differ, or the caller's header in several lines, or the member of its
/// body more than once or with a value that is no name. It is not known which of them the upstream uses, so a caller
/// could give itself any number of identities. In observe mode nothing is refused: there the first one counts.
pub(crate) fn caller_of(
    key: &HashKey,
    headers: &HeaderMap,
    all: &Credentials<'_>,
    request: Option<(&Request, &[u8])>,
    config: &Config,
) -> Result<RequestCaller, ProxyError> {
    let refused = || ProxyError::AmbiguousCredentials { caller: config.conversation.caller.to_string() };
    let sure = |is_ambiguous: bool| match is_ambiguous && config.mode != Mode::Observe {
        true => Err(refused()),
        false => Ok(()),
    };
    let by_credential = |credentials: &Credentials<'_>| {
        sure(credentials.are_several())?;
        Ok(RequestCaller { hash: key.hash(Domain::Caller, &[credentials.first()]), name: None })
    };
    match &config.conversation.caller {
        Caller::Credential | Caller::Jwt if !config.callers.is_empty() => {
            let own = by_credential(all)?;
            let known = config.callers.named_by(all.iter());
            Ok(known.map_or(own, |name| RequestCaller {
                hash: key.hash(Domain::Caller, &[b"caller", name.as_bytes()]),
                name: Some(caller_name(name.as_bytes())),
            }))
        }
        Caller::Credential => by_credential(all),
        Caller::Jwt => {
            let own = by_credential(all)?;
            let subject = jwt::subject(all.first());
            let hash = subject.map_or(own.hash, |subject| key.hash(Domain::Caller, &subject.parts()));
            Ok(RequestCaller { hash, ..own })
        }
        Caller::Header(name) if carries(name.as_str().as_bytes()) => {
            by_credential(&Credentials::in_header(headers, name))
        }
        Caller::Header(name) => {
            let mut lines = headers.get_all(name).iter();
            let line = lines.next().map_or(&b""[..], |value| value.as_bytes());
            sure(lines.next().is_some())?;
            let caller = caller_named(key, line, all);
            Ok(if SECRET.contains(name) { RequestCaller { name: None, ..caller } } else { caller })
        }
        Caller::Body(path) => {
            let member = request.map(|(request, body)| named_in_body(request, body, path));
            let member = member.unwrap_or_default();
            sure(member.is_ambiguous)?;
            Ok(caller_named(key, &member.name, all))
        }
    }
}

/// Headers whose values are secret, besides those with credentials: they may name a caller, but are not shown.
static SECRET: [HeaderName; 2] = [COOKIE, PROXY_AUTHORIZATION];

/// The caller with this name, as a header or a member of the body gives it; an empty one is that of all who give none.
/// A name that shows one of the request's credentials is not shown.
pub(crate) fn caller_named(key: &HashKey, name: &[u8], all: &Credentials<'_>) -> RequestCaller {
    let name = name.trim_ascii();
    let shown = if all.are_shown_by(name) { CallerName::Unshown } else { caller_name(name) };
    RequestCaller { hash: key.hash(Domain::Caller, &[name]), name: Some(shown) }
}

/// What a member of the body says of the caller.
#[derive(Default)]
struct BodyName<'a> {
    /// Empty where the member is absent or null.
    name: Cow<'a, [u8]>,
    /// Another reader of the body could find another name.
    is_ambiguous: bool,
}

/// The name at `path` in the body: a string's characters, or a number as it is written.
fn named_in_body<'a>(request: &Request, body: &'a [u8], path: &[String]) -> BodyName<'a> {
    let mut is_ambiguous = false;
    let mut members = Cow::Borrowed(request.members.as_slice());
    let mut steps = path.iter().peekable();
    while let Some(step) = steps.next() {
        let mut fitting = members.iter().filter(|member| is_named(member.key, body, step));
        let Some(value) = fitting.next().map(|member| member.value) else { break };
        is_ambiguous |= fitting.next().is_some();
        match (value.of(body).first(), steps.peek()) {
            (Some(b'n'), _) => break,
            (Some(b'{'), Some(_)) => members = Cow::Owned(members_of(body, value)),
            (Some(b'"'), None) => match Scanner::within(body, value).string() {
                // A reader that cannot take half of a surrogate pair finds another name, or none.
                Ok(string) => {
                    let name = decode_bytes(string, body);
                    is_ambiguous |= string.odd && name.windows(REPLACED.len()).any(|part| part == REPLACED);
                    return BodyName { name, is_ambiguous };
                }
                Err(_) => is_ambiguous = true,
            },
            (Some(b'-' | b'0'..=b'9'), None) => {
                return BodyName { name: Cow::Borrowed(value.of(body)), is_ambiguous };
            }
            _ => {
                is_ambiguous = true;
                break;
            }
        }
    }
    BodyName { name: Cow::default(), is_ambiguous }
}

/// U+FFFD in UTF-8, by which half of a surrogate pair is replaced.
const REPLACED: &[u8] = "\u{fffd}".as_bytes();

/// The conversation of `request`, whose caller is `caller`.
pub(crate) fn identify(
    key: &HashKey,
    caller: Hash,
    headers: &HeaderMap,
    request: &Request,
    body: &[u8],
    settings: &Conversation,
) -> Identity {
    let by_header = || {
        let names = std::iter::once(&CONVERSATION).chain(&settings.headers);
        names.filter_map(|name| headers.get(name)).find_map(|value| id(&header_text(value.as_bytes())))
    };
    let by_body = || settings.body.iter().find_map(|path| id(&text_at(request, body, path)?));
    Identity { key: key.clone(), caller, explicit: by_header().or_else(by_body) }
}

/// A client's conversation id without surrounding white space; `None` if nothing is left. An id that is too long to
/// show, or that holds control characters, is replaced by its hash, which is the same in every process.
fn id(text: &str) -> Option<String> {
    let text = text.trim();
    let is_shown = text.len() <= MAX_ID_BYTES && !text.chars().any(breaks_a_line);
    let shown = || match is_shown {
        true => text.to_owned(),
        false => HashKey::fixed(0).hash(Domain::Conversation, &[text.as_bytes()]).to_hex(),
    };
    (!text.is_empty()).then(shown)
}

/// Whether a character is a control character, or ends a line or a paragraph.
fn breaks_a_line(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

/// A header's value as text: UTF-8, or ISO 8859-1 where it is no UTF-8 (RFC 9110, section 5.5).
fn header_text(value: &[u8]) -> Cow<'_, str> {
    let latin = || value.iter().copied().map(char::from).collect::<String>().into();
    std::str::from_utf8(value).map_or_else(|_| latin(), Cow::Borrowed)
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
    use crate::config::{Overrides, Source};
    use hyper::http::HeaderValue;
    use policies::REGISTRY;

    fn settings() -> Conversation {
        Conversation {
            holdout: 0,
            headers: vec![HeaderName::from_static("x-session-id")],
            body: vec![vec!["session_key".to_owned()], vec!["metadata".to_owned(), "session_id".to_owned()]],
            ..Conversation::default()
        }
    }

    fn explicit(headers: &[(&'static str, &'static str)], members: &str) -> Option<String> {
        let body = format!(r#"{{"messages":[]{members}}}"#);
        let request = dialects::chat::parse(body.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        identify(&HashKey::fixed(1), Hash::default(), &map, &request, body.as_bytes(), &settings()).explicit
    }

    #[test]
    fn the_conversation_is_named_by_the_first_place_that_names_it() {
        let metadata = r#","metadata":{"session_id":"in metadata"}"#;
        let key = r#","session_key":"key","metadata":{"session_id":"in metadata"}"#;
        for (headers, members, expected) in [
            (&[("x-toolrein-conversation", "ours"), ("x-session-id", "theirs")][..], key, Some("ours")),
            (&[("x-session-id", "theirs")], key, Some("theirs")),
            (&[("x-session-id", "  ")], key, Some("key")),
            (&[], metadata, Some("in metadata")),
            (&[], r#","metadata":{"session_id":7},"session_key":null"#, None),
            (&[], r#","metadata":"session_id""#, None),
            (&[], "", None),
        ] {
            assert_eq!(explicit(headers, members).as_deref(), expected, "{members}");
        }
    }

    #[test]
    fn conversation_ids_of_any_alphabet_and_length_are_distinguished() {
        let body = |id: &str| explicit(&[], &format!(r#","session_key":{}"#, serde_json::json!(id)));
        let header = |id: &[u8]| {
            let request = dialects::chat::parse(br#"{"messages":[]}"#).unwrap();
            let mut map = HeaderMap::new();
            map.insert("x-session-id", HeaderValue::from_bytes(id).unwrap());
            identify(&HashKey::fixed(1), Hash::default(), &map, &request, b"{}", &settings()).explicit
        };
        for id in ["Gespräch", "会话-1", "a b", "🙂"] {
            assert_eq!((body(id).as_deref(), header(id.as_bytes()).as_deref()), (Some(id), Some(id)));
        }
        assert_eq!(header(b"Gespr\xe4ch").as_deref(), Some("Gespräch"), "ISO 8859-1");
        let [long, longer] = [300, 301].map(|length| body(&"x".repeat(length)).unwrap());
        assert!(long != longer && long.len() == 32 && longer.len() == 32, "{long} {longer}");
        let odd = body("a\u{7}b").unwrap();
        assert!(odd.len() == 32 && body("a\u{8}b").unwrap() != odd, "{odd}");
        assert_eq!(body(" \u{3000} "), None);
    }

    fn loaded(text: &str) -> Config {
        let source = Source::Text { name: "proxy.toml".to_owned(), text: text.to_owned() };
        Config::load(source, &Overrides::default(), REGISTRY).unwrap()
    }

    fn of(seed: u64, headers: &[(&'static str, &'static str)], config: &Config) -> Result<Hash, ProxyError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let uri = hyper::http::Uri::from_static("/v1/chat/completions");
        let caller = caller_of(&HashKey::fixed(seed), &map, &Credentials::of(&map, &uri), None, config);
        caller.map(|caller| caller.hash)
    }

    #[test]
    fn callers_differ_by_credential_and_by_process() {
        let config = loaded("");
        let of = |seed, credential| of(seed, &[("authorization", credential)], &config).unwrap();
        assert_eq!(of(1, "Bearer a"), of(1, "bearer  a"));
        assert_ne!(of(1, "Bearer a"), of(1, "Bearer b"));
        assert_ne!(of(1, "Bearer a"), of(2, "Bearer a"));
    }

    #[test]
    fn several_credentials_are_refused_and_while_observing_the_first_one_counts() {
        let both = [("x-api-key", "b"), ("authorization", "Bearer a")];
        let refused = ProxyError::AmbiguousCredentials { caller: "credential".to_owned() };
        assert_eq!(of(1, &both, &loaded("")), Err(refused));
        let observing = loaded("mode = \"observe\"");
        assert_eq!(of(1, &both, &observing), of(1, &both[1..], &observing));
    }

    #[test]
    fn the_caller_can_be_one_header_alone_and_who_does_not_send_it_shares_one_name() {
        let config = loaded("conversation.caller = \"header:x-user\"");
        let name = |headers: &[_]| of(1, headers, &config).unwrap();
        let (user, a, b) = (("x-user", "u"), ("authorization", "a"), ("x-api-key", "b"));
        assert_eq!(name(&[user, a, b]), name(&[user]));
        assert_ne!(name(&[user]), name(&[("x-user", "v")]));
        assert_eq!(name(&[a]), name(&[b]));
        for second in ["v", "u"] {
            assert!(of(1, &[user, ("x-user", second)], &config).is_err(), "two lines");
        }
        let observing = loaded("mode = \"observe\"\nconversation.caller = \"header:x-user\"");
        assert_eq!(of(1, &[user, ("x-user", "v")], &observing), of(1, &[user], &observing));
    }

    #[test]
    fn callers_have_names_where_the_operator_says_what_names_them_and_credentials_are_none() {
        let key = crate::config::KeyHash::of(b"key-of-ann").unwrap();
        let known = format!("[caller.ann]\nkeys = [\"{key}\"]");
        let shown = |name: &str| Some(CallerName::Shown(name.into()));
        for (settings, header, expected) in [
            ("conversation.caller = \"header:x-user\"", ("x-user", " Ann "), shown("Ann")),
            ("conversation.caller = \"header:x-user\"", ("x-user", "sk-a"), Some(CallerName::Unshown)),
            ("conversation.caller = \"header:x-user\"", ("x-other", "Ann"), Some(CallerName::Nobody)),
            ("conversation.caller = \"header:cookie\"", ("cookie", "session=1"), None),
            ("conversation.caller = \"header:authorization\"", ("x-user", "Ann"), None),
            ("", ("x-user", "Ann"), None),
            (known.as_str(), ("api-key", "key-of-ann"), shown("ann")),
        ] {
            let mut map = HeaderMap::new();
            map.insert(header.0, HeaderValue::from_static(header.1));
            if header.0 != "api-key" {
                map.insert("authorization", HeaderValue::from_static("Bearer sk-a"));
            }
            let uri = hyper::http::Uri::from_static("/v1/chat/completions");
            let all = Credentials::of(&map, &uri);
            let caller = caller_of(&HashKey::fixed(1), &map, &all, None, &loaded(settings)).unwrap();
            assert_eq!(caller.name, expected, "{settings} {header:?}");
        }
    }

    #[test]
    fn a_header_that_names_the_caller_is_compared_whole() {
        let config = loaded("conversation.caller = \"header:x-user\"");
        let name = |value: &[u8]| {
            let mut map = HeaderMap::new();
            map.insert("x-user", HeaderValue::from_bytes(value).unwrap());
            let uri = hyper::http::Uri::from_static("/v1/chat/completions");
            caller_of(&HashKey::fixed(1), &map, &Credentials::of(&map, &uri), None, &config).unwrap().hash
        };
        let users: [&[u8]; 11] = [
            b"Anna Smith",
            b"Anna Jones",
            b"Anna",
            b"anna",
            b"Doe, John",
            b"Doe, Jane",
            "王伟".as_bytes(),
            "李娜".as_bytes(),
            "Ольга".as_bytes(),
            b"J\xf6rg",
            b"Bearer Anna",
        ];
        for (nth, one) in users.iter().enumerate() {
            for other in &users[..nth] {
                assert_ne!(name(one), name(other), "{} {}", one.escape_ascii(), other.escape_ascii());
            }
            assert_eq!(name(one), name(&[b"\t ", *one, b" "].concat()), "{}", one.escape_ascii());
        }
        let config = loaded("conversation.caller = \"header:authorization\"");
        let key = |value| of(1, &[("authorization", value)], &config).unwrap();
        assert_eq!(key("Bearer a"), key("bearer  a"), "a header with a credential is compared as one");
    }

    #[test]
    fn a_renewed_token_is_the_same_caller_and_other_subjects_and_issuers_are_not() {
        let config = loaded("conversation.caller = \"jwt\"");
        let name = |token: &str| {
            let mut map = HeaderMap::new();
            map.insert("authorization", HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
            let uri = hyper::http::Uri::from_static("/v1/chat/completions");
            caller_of(&HashKey::fixed(1), &map, &Credentials::of(&map, &uri), None, &config).unwrap().hash
        };
        let token = |claims: &str, signature: &str| jwt::tests::token(claims, signature);
        let ann = name(&token(r#"{"iss":"i","sub":"ann","exp":1}"#, "AAAA"));
        assert_eq!(name(&token(r#"{"exp":2,"sub":"ann","iss":"i","jti":"x"}"#, "BBBB")), ann);
        for other in [
            token(r#"{"iss":"i","sub":"bob"}"#, "AAAA"),
            token(r#"{"iss":"j","sub":"ann"}"#, "AAAA"),
            token(r#"{"sub":"ann"}"#, "AAAA"),
            "ann".to_owned(),
        ] {
            assert_ne!(name(&other), ann, "{other}");
        }
        let nobodys = [token(r#"{"iss":"i"}"#, "AAAA"), token(r#"{"iss":"i"}"#, "BBBB")];
        assert_ne!(
            name(&nobodys[0]),
            name(&nobodys[1]),
            "without a subject it is the credential that counts"
        );
        let both = [("x-api-key", "b"), ("authorization", "Bearer a")];
        assert!(of(1, &both, &config).is_err(), "two credentials");
    }
}
