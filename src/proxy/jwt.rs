//! JSON web tokens (RFC 7519): reads the issuer and the subject, so that a caller with a renewed token can stay the
//! same caller. Verifies nothing: the result is what the sender claims about itself.

use super::credential::lenient;
use serde::Deserialize;

/// The longest claims that are read, in bytes: more than any server accepts in a header.
const MOST_BYTES: usize = 64 * 1024;

/// Whom a token is about.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Subject {
    /// Empty where the token names no issuer.
    #[serde(default)]
    iss: String,
    sub: String,
}

impl Subject {
    /// The parts of its name, distinct from those of any other credential.
    pub(super) fn parts(&self) -> [&[u8]; 3] {
        [b"jwt", self.iss.as_bytes(), self.sub.as_bytes()]
    }
}

/// The subject of `credential`, if that is a signed JSON web token that names one. Claims that could be read in two ways
/// name none.
pub(super) fn subject(credential: &[u8]) -> Option<Subject> {
    let mut parts = credential.split(|byte| *byte == b'.');
    let (header, claims, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !header.starts_with(b"eyJ") || claims.len() > MOST_BYTES {
        return None;
    }
    let subject: Subject = serde_json::from_slice(&lenient(claims)?).ok()?;
    (!subject.sub.is_empty()).then_some(subject)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    /// A token with these claims.
    pub(in crate::proxy) fn token(claims: &str, signature: &str) -> String {
        let [header, claims] = [r#"{"alg":"RS256"}"#, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!("{header}.{claims}.{signature}")
    }

    #[test]
    fn the_subject_is_read_with_its_issuer_and_nothing_else_has_one() {
        let of = |claims: &str| subject(token(claims, "AAAA").as_bytes());
        let named = |iss: &str, sub: &str| Some(Subject { iss: iss.to_owned(), sub: sub.to_owned() });
        assert_eq!(of(r#"{"iss":"https://i","sub":"ann","aud":["a"],"exp":1}"#), named("https://i", "ann"));
        assert_eq!(of(r#"{"sub":"\u0061nn"}"#), named("", "ann"));
        for claims in [
            r#"{"sub":""}"#,
            r#"{"sub":7}"#,
            r#"{"iss":7,"sub":"ann"}"#,
            r#"{"iss":"i"}"#,
            r#"{"sub":"ann","sub":"bob"}"#,
            r#"["sub"]"#,
            "",
        ] {
            assert_eq!(of(claims), None, "{claims}");
        }
        let long = format!(r#"{{"sub":"{}"}}"#, "x".repeat(MOST_BYTES));
        assert_eq!(of(&long), None);
        for other in ["", "sk-a", "eyJ.eyJ", "a.b.c", "eyJh.e30.AA.BB.CC", "eyJh.***.AA"] {
            assert_eq!(subject(other.as_bytes()), None, "{other}");
        }
    }
}
