//! `conversation.caller`: what identifies the caller of a request. Parses and writes the setting; the proxy determines
//! a request's caller.

use super::units::paths;
use hyper::http::HeaderName;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// The prefix of a header's name.
const HEADER: &str = "header:";

/// The prefix of the path of a member of the body.
const BODY: &str = "body:";

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
    /// Only the member of the body at this path, which the operator's own program writes.
    Body(Vec<String>),
}

impl fmt::Display for Caller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credential => out.write_str("credential"),
            Self::Jwt => out.write_str(JWT),
            Self::Header(name) => write!(out, "{HEADER}{name}"),
            Self::Body(path) => write!(out, "{BODY}{}", path.join(".")),
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
        let header = || text.strip_prefix(HEADER)?.parse().ok().map(Self::Header);
        let member = || text.strip_prefix(BODY).and_then(paths::parse).map(Self::Body);
        match text.as_str() {
            "credential" => Ok(Self::Credential),
            JWT => Ok(Self::Jwt),
            _ => header().or_else(member).ok_or_else(|| {
                de::Error::custom(format!(
                    r#"expected "credential", "jwt", a header such as "header:x-user" or a member of the body such as "body:user" or "body:metadata.user_id", found {text:?}"#
                ))
            }),
        }
    }
}
