//! `conversation.caller`: what identifies the caller of a request. Parses and writes the setting; the proxy determines
//! a request's caller.

use hyper::http::HeaderName;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// The prefix of a header's name.
const HEADER: &str = "header:";

/// The value for a token's issuer and subject.
const JWT: &str = "jwt";

/// What identifies the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Caller {
    /// The one credential of the request, wherever it is.
    #[default]
    Credential,
    /// The issuer and the subject of the JSON web token that is the credential, unverified. For any other credential,
    /// the credential itself.
    Jwt,
    /// Only this header, which a trusted gateway sets.
    Header(HeaderName),
}

impl fmt::Display for Caller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credential => out.write_str("credential"),
            Self::Jwt => out.write_str(JWT),
            Self::Header(name) => write!(out, "{HEADER}{name}"),
        }
    }
}

impl Serialize for Caller {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Caller {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let header = || text.strip_prefix(HEADER)?.parse().ok();
        match text.as_str() {
            "credential" => Ok(Self::Credential),
            JWT => Ok(Self::Jwt),
            _ => header().map(Self::Header).ok_or_else(|| {
                de::Error::custom(format!(
                    r#"expected "credential", "jwt" or the name of a header, such as "header:x-user", found {text:?}"#
                ))
            }),
        }
    }
}
