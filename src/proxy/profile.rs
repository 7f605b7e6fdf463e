//! Profile selection: a request takes the profile that it names, else that of its caller's tier, else that of its
//! model. Reads headers and the model's name; the configuration defines what a profile contains.

use super::credential::Credentials;
use super::error::ProxyError;
use crate::config::{Config, Mode, Profile, Profiles};
use hyper::http::{HeaderMap, HeaderName, HeaderValue};
use model::request::Request;
use std::sync::Arc;

/// The header in which the client names a profile.
static PROFILE: HeaderName = HeaderName::from_static("x-toolrein-profile");

/// The profile of `request`; `None`: the policies outside of profiles.
///
/// # Errors
/// The request names a profile that does not exist. Such a name is ignored where there are no profiles at all,
/// and in observe mode, since nothing may change.
pub(super) fn choose<'a>(
    config: &'a Config,
    headers: &HeaderMap,
    credentials: &Credentials<'_>,
    request: &Request,
    body: &[u8],
) -> Result<Option<&'a Profile>, ProxyError> {
    let profiles = &config.profiles;
    if profiles.is_empty() {
        return Ok(None);
    }
    if config.conversation.profile_header
        && let Some(name) = headers.get(&PROFILE).map(HeaderValue::as_bytes).filter(|name| !name.is_empty())
    {
        match profiles.named(&String::from_utf8_lossy(name)) {
            Ok(profile) => return Ok(Some(profile)),
            Err(_) if config.mode == Mode::Observe => {}
            Err(message) => return Err(ProxyError::Refused { code: "unknown_profile", message }),
        }
    }
    Ok(of_tier(profiles, credentials).or_else(|| profiles.of_model(&request.model_name(body))))
}

/// Whether policies that restrict calls are on for a request that cannot be read: in the profile that its headers
/// choose, or, since its model is unknown, in any that it might take.
pub(super) fn may_restrict_calls(
    config: &Config,
    headers: &HeaderMap,
    credentials: &Credentials<'_>,
) -> bool {
    let profiles = &config.profiles;
    let name = headers.get(&PROFILE).filter(|_| config.conversation.profile_header);
    let named = name.and_then(|name| profiles.named(&String::from_utf8_lossy(name.as_bytes())).ok());
    match named.or_else(|| of_tier(profiles, credentials)) {
        Some(profile) => profile.policies.restricts_calls(),
        None => {
            config.policies.restricts_calls() || profiles.iter().any(|one| one.policies.restricts_calls())
        }
    }
}

/// The profile of the caller's tier. Every key counts: the upstream may use any of them, and a caller must not leave its
/// tier by adding another key.
fn of_tier<'a>(profiles: &'a Profiles, credentials: &Credentials<'_>) -> Option<&'a Profile> {
    profiles.tier_of(credentials.iter()).1
}

/// The caller's tier.
pub(super) fn tier(profiles: &Profiles, credentials: &Credentials<'_>) -> Arc<str> {
    Arc::clone(profiles.tier_of(credentials.iter()).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyHash, Overrides, Source};
    use policies::REGISTRY;

    fn config(top: &str) -> Config {
        let key = KeyHash::of(b"sk-free").unwrap();
        let text = format!(
            "{top}\n[tier.free]\nkeys = [\"{key}\"]\n[profile.chat]\n[profile.small]\nmodels = [\"gpt-*-mini\", \"o4\"]\n\
             [profile.large]\nmodels = [\"gpt-*\"]\n[profile.free]\ntiers = [\"free\"]\n"
        );
        let source = Source::Text { name: "proxy.toml".to_owned(), text };
        Config::load(source, &Overrides::default(), REGISTRY).unwrap()
    }

    fn chosen(
        config: &Config,
        headers: &[(&'static str, &'static str)],
        model: &str,
    ) -> Result<String, String> {
        let body = format!(r#"{{"model":"{model}","messages":[]}}"#);
        let request = dialects::chat::parse(body.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let uri = hyper::http::Uri::from_static("/v1/chat/completions");
        match choose(config, &map, &Credentials::of(&map, &uri), &request, body.as_bytes()) {
            Ok(profile) => Ok(profile.map_or("", |profile| &profile.name).to_owned()),
            Err(error) => Err(error.message()),
        }
    }

    #[test]
    fn the_header_goes_before_the_tier_and_the_tier_before_the_model() {
        let config = config("");
        let (named, free) = (("x-toolrein-profile", "chat"), ("authorization", "Bearer sk-free"));
        for (headers, model, expected) in [
            (&[named, free][..], "gpt-4o", "chat"),
            (&[named], "claude", "chat"),
            (&[free], "gpt-4o", "free"),
            (&[free, ("x-toolrein-profile", "")], "gpt-4o", "free"),
            (&[], "gpt-4o", "large"),
            (&[], "gpt-4o-mini", "small"),
            (&[], "o4", "small"),
            (&[], "o4-mini", ""),
            (&[("x-toolrein-tier", "free")], "claude", ""),
        ] {
            assert_eq!(chosen(&config, headers, model).as_deref(), Ok(expected), "{headers:?} {model}");
        }
    }

    #[test]
    fn the_tier_is_found_by_the_key_in_every_header_notation() {
        let more = "[profile.guests]\ntiers = [\"guest\"]";
        let config = config(&format!("{more}\n[conversation]"));
        for (headers, expected) in [
            (&[("authorization", "Bearer sk-free")][..], "free"),
            (&[("authorization", "bearer   sk-free ")], "free"),
            (&[("authorization", "sk-free")], "free"),
            (&[("api-key", "sk-free")], "free"),
            (&[("x-api-key", "sk-free")], "free"),
            (&[("authorization", "Bearer other"), ("authorization", "Bearer sk-free")], "free"),
            (&[("authorization", "Bearer other"), ("x-api-key", "sk-free")], "free"),
            (&[("authorization", "Bearer sk-freer")], ""),
            (&[("authorization", "Bearersk-free")], ""),
            (&[("authorization", "Bearer")], "guests"),
            (&[("cookie", "sk-free")], "guests"),
            (&[], "guests"),
        ] {
            assert_eq!(chosen(&config, headers, "claude").as_deref(), Ok(expected), "{headers:?}");
        }
    }

    #[test]
    fn an_unknown_profile_name_is_refused_with_a_list_of_known_names() {
        let header = [("x-toolrein-profile", "chatt")];
        let said = "There is no profile of that name. Known here: chat, small, large, free.";
        assert_eq!(chosen(&config(""), &header, "gpt-4o"), Err(said.to_owned()));
        assert_eq!(chosen(&config("mode = \"observe\""), &header, "gpt-4o").as_deref(), Ok("large"));
        assert_eq!(
            chosen(&config("conversation.profile_header = false"), &header, "gpt-4o").as_deref(),
            Ok("large")
        );
    }
}
