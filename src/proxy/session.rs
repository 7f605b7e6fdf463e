//! The session of a request that comes without headers: its caller and its conversation as somebody names them. They are
//! identified as those of a request on the wire are; nothing is stored.

use super::caller::{CONVERSATION, caller_named, caller_of, identify};
use super::credential::Credentials;
use super::profile;
use crate::config::{Caller, Config};
use hyper::http::header::AUTHORIZATION;
use hyper::http::{HeaderMap, HeaderValue, Uri};
use model::identity::{Hash, HashKey, Identity};
use model::request::Request;
use std::sync::Arc;

/// The digits of a caller's hash, as logs show it.
const HASH_DIGITS: usize = 32;

/// A caller and a conversation as they are named.
#[derive(Clone, Copy, Default)]
pub struct SessionNames<'a> {
    /// What the caller sends (its API key, or the value of the header or of the member of the body that identifies
    /// callers), or its hash from the log.
    pub caller: Option<&'a str>,
    /// The conversation's id.
    pub conversation: Option<&'a str>,
}

/// See the file's head.
pub struct Session {
    pub identity: Identity,
    /// The caller's tier; not known by a hash alone.
    pub tier: Option<Arc<str>>,
    /// The name of the profile that the request takes.
    pub profile: Option<Arc<str>>,
}

impl SessionNames<'_> {
    /// Whether nothing is named, so that nothing is known of the session.
    pub fn is_empty(&self) -> bool {
        self.caller.is_none() && self.conversation.is_none()
    }

    /// The session of `request`, whose bytes are `body`.
    ///
    /// # Errors
    /// No request can carry these names; the text says why.
    pub fn session(
        &self,
        key: &HashKey,
        config: &Config,
        request: &Request,
        body: &[u8],
    ) -> Result<Session, String> {
        let headers = self.headers(config)?;
        let uri = Uri::default();
        let credentials = Credentials::of(&headers, &uri);
        let hash = self.caller.and_then(hash_of);
        let caller = match (hash, self.caller, &config.conversation.caller) {
            (Some(hash), ..) => hash,
            (None, Some(name), Caller::Body(_)) => caller_named(key, name.as_bytes(), &credentials).hash,
            (None, Some(_), _) => {
                let caller = caller_of(key, &headers, &credentials, None, config);
                caller.map_err(|error| error.to_string())?.hash
            }
            (None, None, _) => Hash::default(),
        };
        let of_model = || config.profiles.of_model(&request.model_name(body));
        let is_known = hash.is_none() && self.caller.is_some();
        let profile = match is_known {
            true => profile::choose(config, &headers, &credentials, request, body),
            false => Ok(of_model()),
        };
        let profile = profile.map_err(|error| error.to_string())?.map(|profile| Arc::clone(&profile.name));
        let tier = is_known.then(|| profile::tier(&config.profiles, &credentials));
        let identity = identify(key, caller, &headers, request, body, &config.conversation);
        Ok(Session { identity, tier, profile })
    }

    /// The headers of a request of this session.
    fn headers(&self, config: &Config) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let value = |text: &str, what: &str| {
            HeaderValue::from_str(text).map_err(|_| format!("The {what} has characters that no header has."))
        };
        if let Some(conversation) = self.conversation {
            headers.insert(CONVERSATION.clone(), value(conversation, "conversation")?);
        }
        if let Some(caller) = self.caller.filter(|caller| hash_of(caller).is_none()) {
            match &config.conversation.caller {
                Caller::Header(name) if *name != AUTHORIZATION => {
                    headers.insert(name.clone(), value(caller, "caller")?);
                }
                Caller::Body(_) => {}
                _ => {
                    headers.insert(AUTHORIZATION, value(&format!("Bearer {caller}"), "caller")?);
                }
            }
        }
        Ok(headers)
    }
}

/// The hash that `text` writes, if it is one.
fn hash_of(text: &str) -> Option<Hash> {
    let is_hash = text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| u128::from_str_radix(text, 16).ok().map(Hash)).flatten()
}
