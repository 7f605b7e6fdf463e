//! The credentials of a request, normalised: everything that an upstream could take for an API key, wherever it is and
//! however it is written. Two forms that an upstream may accept as the same key give the same bytes. It decides nothing
//! and keeps nothing; `caller` decides who the caller is.

use super::spelling::decoded;
use crate::secret::KEY_HEADERS;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hyper::http::header::AUTHORIZATION;
use hyper::http::uri::PathAndQuery;
use hyper::http::{HeaderMap, HeaderName, Uri};
use memchr::memmem::find;
use std::borrow::Cow;

/// Query parameters that carry one, besides those with the headers' names; `_` and `-` are equal.
const PARAMETERS: [&str; 4] = ["key", "access-token", "token", "subscription-key"];
/// The shortest credential that is searched for within other texts, in bytes: shorter ones are no secrets.
const LEAST_SECRET: usize = 8;
/// A scheme that servers remove wherever a key is, some of them more than once.
const BEARER: &[u8] = b"bearer";
const BASIC: &[u8] = b"basic";

/// The most different credentials that are kept of one request.
const MOST: usize = 8;

/// As lenient servers decode base64: with or without padding, any bits after the last byte.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The different credentials of one request, `authorization` first. Never shown: there is no `Debug`.
pub(crate) struct Credentials<'a>(Vec<Cow<'a, [u8]>>);

impl<'a> Credentials<'a> {
    /// All credentials in the headers and in the query.
    pub(crate) fn of(headers: &'a HeaderMap, uri: &'a Uri) -> Self {
        let mut all = Self(Vec::new());
        for value in headers.get_all(AUTHORIZATION) {
            all.add(value.as_bytes(), true);
        }
        for (name, value) in headers {
            if *name != AUTHORIZATION && carries(name.as_str().as_bytes()) {
                all.add(value.as_bytes(), false);
            }
        }
        // Some servers end a parameter at a semicolon too.
        for parameter in uri.query().into_iter().flat_map(|query| query.split(['&', ';'])) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if is_parameter(&decoded(name.as_bytes())) {
                all.add_owned(&decoded(value.replace('+', " ").as_bytes()));
            }
        }
        all
    }

    /// Those in the header `name` alone.
    pub(crate) fn in_header(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut all = Self(Vec::new());
        for value in headers.get_all(name) {
            all.add(value.as_bytes(), *name == AUTHORIZATION);
        }
        all
    }

    /// Whether a `value` shows one of them: as a header would have it, with a scheme or without, or as a part of another text.
    pub(crate) fn are_shown_by(&self, value: &[u8]) -> bool {
        let mut read = Credentials(Vec::new());
        read.add(value, true);
        read.add(value, false);
        let is_within =
            |credential: &[u8]| credential.len() >= LEAST_SECRET && find(value, credential).is_some();
        self.iter().any(|credential| is_within(credential) || read.iter().any(|one| one == credential))
    }

    /// Each of them once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|credential| &**credential)
    }

    /// The first one; empty if there is none.
    pub(crate) fn first(&self) -> &[u8] {
        self.0.first().map_or(b"", |credential| credential)
    }

    /// Whether there are several that differ.
    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Adds the credentials in a header's value. Proxies join values of one name by commas.
    fn add(&mut self, value: &'a [u8], has_scheme: bool) {
        for part in value.split(|byte| *byte == b',') {
            let mut words = part.split(|byte| is_separator(*byte)).filter(|word| !word.is_empty()).peekable();
            let (mut may_be_scheme, mut is_basic, mut is_taken) = (has_scheme, false, false);
            while let Some(word) = words.next() {
                let is_scheme = std::mem::take(&mut may_be_scheme) && words.peek().is_some();
                if word.eq_ignore_ascii_case(BEARER) {
                    is_taken = false;
                    continue;
                }
                // No key contains a space. Servers take the first word, or everything after the scheme, which then is
                // not a key of theirs.
                if is_taken {
                    continue;
                }
                if is_scheme {
                    is_basic = word.eq_ignore_ascii_case(BASIC);
                    continue;
                }
                self.put(if is_basic { basic(word) } else { canonical(word) });
                is_taken = true;
            }
        }
    }

    /// As [`Self::add`], for a temporary value.
    fn add_owned(&mut self, value: &[u8]) {
        let mut found = Credentials(Vec::new());
        found.add(value, false);
        for credential in found.0 {
            self.put(Cow::Owned(credential.into_owned()));
        }
    }

    /// A request with more than a few is refused whatever they are, so no more are compared.
    fn put(&mut self, credential: Cow<'a, [u8]>) {
        if self.0.len() < MOST && !credential.is_empty() && !self.0.contains(&credential) {
            self.0.push(credential);
        }
    }
}

/// Whether a header of this name carries a key. `_` equals `-`: CGI and WSGI do not distinguish them.
pub(super) fn carries(name: &[u8]) -> bool {
    KEY_HEADERS.iter().any(|known| is_alike(name, known))
}

fn is_parameter(name: &[u8]) -> bool {
    carries(name) || PARAMETERS.iter().any(|known| is_alike(name, known))
}

fn is_alike(name: &[u8], known: &str) -> bool {
    let is_equal =
        |(one, other): (&u8, &u8)| one.eq_ignore_ascii_case(other) || (*one == b'_' && *other == b'-');
    name.len() == known.len() && name.iter().zip(known.as_bytes()).all(is_equal)
}

/// The same path without the parameters of its query that carry a key; `None` where there are none. What is kept stays as
/// it is written.
pub(super) fn without_keys(path: &PathAndQuery) -> Option<PathAndQuery> {
    let query = path.query()?;
    let carries_key = |parameter: &&str| {
        let parameter = parameter.trim_end_matches(['&', ';']);
        let (name, _) = parameter.split_once('=').unwrap_or((parameter, ""));
        is_parameter(&decoded(name.as_bytes()))
    };
    let parameters = || query.split_inclusive(['&', ';']);
    if !parameters().any(|parameter| carries_key(&parameter)) {
        return None;
    }
    let kept: String = parameters().filter(|parameter| !carries_key(parameter)).collect();
    let kept = kept.trim_end_matches(['&', ';']);
    let mark = if kept.is_empty() { "" } else { "?" };
    // This does not fail: the text is a valid path with a shorter query.
    PathAndQuery::try_from(format!("{}{mark}{kept}", path.path())).ok()
}

/// Characters that no key contains and some server trims: white space of any alphabet, and quotes.
fn is_separator(byte: u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b'"' | b'\'')
}

/// The canonical form of a key, equal for all forms that a server may accept: without padding, and of a JWT without the
/// bits and characters of the signature that decoders ignore.
fn canonical(word: &[u8]) -> Cow<'_, [u8]> {
    let unpadded = word.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let word = &word[..unpadded];
    let signature = || {
        let dot = word.iter().rposition(|byte| *byte == b'.').filter(|_| word.starts_with(b"eyJ"))?;
        let decoded = lenient(&word[dot + 1..])?;
        Some([&word[..=dot], &*LENIENT.encode(decoded).into_bytes()].concat())
    };
    signature().map_or(Cow::Borrowed(word), Cow::Owned)
}

/// A user and a password; where one of them is empty, the other one alone, which then is an API key.
fn basic(word: &[u8]) -> Cow<'_, [u8]> {
    let Some(decoded) = lenient(word) else { return canonical(word) };
    let is_colon = |byte: &u8| *byte == b':';
    let colons = decoded.iter().filter(|byte| is_colon(byte)).count();
    let ends = decoded.first().is_some_and(is_colon) || decoded.last().is_some_and(is_colon);
    match colons == 1 && ends {
        true => Cow::Owned(decoded.into_iter().filter(|byte| !is_colon(byte)).collect()),
        false => Cow::Owned(decoded),
    }
}

/// Base64 of either alphabet, decoded as the most lenient server does: characters outside the alphabet are ignored.
pub(super) fn lenient(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    let digits = text.iter().filter_map(|byte| match byte {
        b'+' | b'-' => Some(b'-'),
        b'/' | b'_' => Some(b'_'),
        other => other.is_ascii_alphanumeric().then_some(*other),
    });
    LENIENT.decode(digits.collect::<Vec<u8>>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::http::HeaderValue;

    fn of(headers: &[(&'static str, &[u8])], query: &str) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let uri: Uri = format!("/v1/chat/completions{query}").parse().unwrap();
        let found = Credentials::of(&map, &uri);
        found.iter().map(|credential| String::from_utf8(credential.to_vec()).unwrap()).collect()
    }

    #[test]
    fn an_api_key_is_recognised_in_every_notation_of_headers_and_queries() {
        for spelling in [
            &b"Bearer k"[..],
            b"bEARER k",
            b"Bearer   k",
            b"\tBearer\t k \t",
            b"Bearer \"k\"",
            b"Bearer k\xa0",
            b"Bearer k\xc2\xa0",
            b"Bearer k,",
            b",Bearer k",
            b"Bearer k,Bearer k",
            b"Bearer bearer k",
            b"Bearer k==",
            b"Token k",
            b"k",
            b"Basic azo=",
            b"Basic azo",
            b"basic Oms",
            b"basic Oms=",
            b"basic O*m.s",
        ] {
            assert_eq!(of(&[("authorization", spelling)], ""), ["k"], "{}", spelling.escape_ascii());
        }
        for name in ["api-key", "x-api-key", "x_api_key", "x-goog-api-key", "apikey", "x-litellm-api-key"] {
            for spelling in [&b"k"[..], b" k\t", b"Bearer k", b"'k'"] {
                assert_eq!(of(&[(name, spelling)], ""), ["k"], "{name} {}", spelling.escape_ascii());
            }
        }
        for query in [
            "?key=k",
            "?a=b&api-key=k",
            "?a;API_KEY=%6b",
            "?access_token=+k",
            "?x-api-key=k&key=k",
            "?%6bey=k",
        ] {
            assert_eq!(of(&[], query), ["k"], "{query}");
        }
    }

    #[test]
    fn a_signature_is_the_same_whatever_bits_its_decoder_ignores() {
        // 0x00ff: the last of three characters has two unused bits.
        let canonical = of(&[("authorization", b"Bearer eyJh.eyJi.AP8")], "");
        for spelling in [&b"Bearer eyJh.eyJi.AP9"[..], b"Bearer eyJh.eyJi.AP8=", b"Bearer eyJh.eyJi.A*P-"] {
            assert_eq!(of(&[("authorization", spelling)], ""), canonical, "{}", spelling.escape_ascii());
        }
        for other in [&b"Bearer eyJh.eyJx.AP8"[..], b"Bearer eyJh.eyJi.AP4", b"Bearer eyJh.eyJi."] {
            assert_ne!(of(&[("authorization", other)], ""), canonical, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn a_head_full_of_credentials_is_read_in_one_pass() {
        let many: Vec<String> = (0..10_000).map(|nth| nth.to_string()).collect();
        assert_eq!(of(&[("x-api-key", many.join(",").as_bytes())], "").len(), MOST);
    }

    #[test]
    fn credentials_are_found_in_headers_and_queries_and_nothing_else_is() {
        for (headers, query, expected) in [
            (&[][..], "", &[][..]),
            (&[("authorization", &b"Bearer"[..]), ("x-api-key", b"")], "?key=&keys=x&monkey=y", &[]),
            (
                &[("cookie", b"k"), ("proxy-authorization", b"Bearer k"), ("helicone-auth", b"Bearer k")],
                "",
                &[],
            ),
            (&[("x-api-key", b"j"), ("authorization", b"Bearer k")], "", &["k", "j"]),
            (&[("authorization", b"Bearer k j")], "", &["k"]),
            (&[("authorization", b"Bearer My API Key")], "", &["My"]),
            (&[("authorization", b"Bearer k Bearer j")], "", &["k", "j"]),
            (&[("authorization", b"Bearer k, Basic dTpw")], "", &["k", "u:p"]),
            (&[("authorization", b"Bearer k")], "?key=j", &["k", "j"]),
            (&[("authorization", b"Digest a=\"b\", c=d")], "", &["a", "c=d"]),
        ] {
            assert_eq!(of(headers, query), expected, "{headers:?} {query}");
        }
    }
}
