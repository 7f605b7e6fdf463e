//! Whether the upstream can be reached, and whether it accepts the API key: by requests for its list of models, which
//! cost nothing. Some upstreams list their models to anyone, and then the list says nothing about a key.

use super::{Environment, Finding, Header, base_of, connection, get};
use crate::config::{Config, KeyHeader};
use crate::proxy::forward_proxy::ForwardProxy;
use crate::proxy::upstream::UpstreamSettings;
use crate::proxy::upstream_key::UpstreamKey;
use hyper::http::StatusCode;
use serde::Deserialize;

/// Asks the upstream.
pub(super) async fn examine(config: &Config, environment: &Environment) -> Vec<Finding> {
    let Some(base) = base_of(config) else {
        return vec![Finding::good(
            "upstream",
            "demo: is the simulated model, which needs no network and no key",
        )];
    };
    let shown = config.upstream.url.to_string();
    // The client's path, as the proxy takes it: the upstream's own path takes the place of /v1.
    let keyed = |header| environment.key.as_deref().map(|key| UpstreamKey::new(header, key)).transpose();
    let mut own = match keyed(config.upstream.api_key_header) {
        Err(problem) => {
            return vec![Finding::problem("key", format!("the key in {} {problem}", environment.key_env))];
        }
        Ok(own) => own,
    };
    let proxy = ForwardProxy::new(&config.upstream);
    let by = proxy.address_for(base).map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
    let settings = |key| UpstreamSettings {
        ca_file: config.upstream.ca_file.clone(),
        http2: config.upstream.http2,
        key,
        proxy: proxy.clone(),
        ..connection(base.clone())
    };
    let mut headers: &[Header] = &[];
    let mut asked = get(settings(own.clone()), MODELS, headers).await;
    if matches!(&asked, Ok((status, body)) if is_anthropic(*status, body)) {
        // As clients of that API ask; a key of toolrein's own is sent as it is configured.
        headers = &ANTHROPIC_VERSION;
        own = if environment.is_own { own } else { keyed(KeyHeader::XApiKey).unwrap_or(own) };
        asked = get(settings(own), MODELS, headers).await;
    }
    let status = match asked {
        Err(error) => return vec![Finding::problem("upstream", format!("{shown}: {error}"))],
        Ok((status, _)) => status,
    };
    let reached = Finding::good("upstream", format!("{shown} answers{by} (GET models: {})", status.as_u16()));
    let is_public = status == StatusCode::OK
        && environment.key.is_some()
        && !matches!(get(settings(None), MODELS, headers).await, Ok((without, _)) if is_refused(without));
    vec![reached, key(status, is_public, environment)]
}

/// The list of models.
const MODELS: &str = "/v1/models";

/// The version of Anthropic's API that all clients of it understand, without which it answers nothing.
const ANTHROPIC_VERSION: [Header; 1] = [("anthropic-version", "2023-06-01")];

/// Whether an error has the shape of Anthropic's.
fn is_anthropic(status: StatusCode, body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Error {
        r#type: String,
    }
    let is_error = || serde_json::from_slice::<Error>(body).is_ok_and(|error| error.r#type == "error");
    status.is_client_error() && is_error()
}

fn is_refused(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// What the answer says about the key; `is_public`: the same request without a key is not refused.
fn key(status: StatusCode, is_public: bool, environment: &Environment) -> Finding {
    let name = &environment.key_env;
    let is_set = environment.key.is_some();
    match status {
        StatusCode::OK if is_public => Finding::warning(
            "key",
            format!(
                "the upstream does not refuse the same request without a key, so the key in {name} was not checked: the \
                 first request to a model will show whether it is accepted"
            ),
        ),
        StatusCode::OK if is_set => Finding::good(
            "key",
            format!("the upstream accepts the key in {name}: it lists its models with it, and not without"),
        ),
        StatusCode::OK => Finding::good("key", "the upstream lists its models without a key"),
        status if is_refused(status) && is_set => Finding::problem(
            "key",
            format!(
                "the upstream refuses the key in {name} ({}): check that it is whole, not revoked, and a key of this \
                 upstream",
                status.as_u16()
            ),
        ),
        status if is_refused(status) && environment.is_own => Finding::problem(
            "key",
            format!("{name} (upstream.api_key_env) is not set here, and without it toolrein does not start"),
        ),
        status if is_refused(status) => Finding::warning(
            "key",
            format!(
                "the upstream wants a key and {name} is not set here: set it, or name another variable with --key-env; \
                 toolrein itself needs none, it passes on your program's"
            ),
        ),
        StatusCode::TOO_MANY_REQUESTS => Finding::warning(
            "key",
            "the upstream answers 429: too many requests, or the account has no credit left".to_owned(),
        ),
        status if status.is_server_error() => {
            Finding::problem("key", format!("the upstream fails ({}): try again later", status.as_u16()))
        }
        status => Finding::warning(
            "key",
            format!(
                "this upstream does not list its models ({}), so the key was not checked",
                status.as_u16()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Outcome;

    #[test]
    fn each_answer_says_what_to_do_about_the_key() {
        let (with, without) = (Some("k".to_owned()), None);
        for (status, is_public, is_set, outcome, expected) in [
            (200, false, &with, Outcome::Good, "accepts the key in KEY"),
            (200, true, &with, Outcome::Warning, "the key in KEY was not checked"),
            (200, false, &without, Outcome::Good, "without a key"),
            (401, false, &with, Outcome::Problem, "refuses the key in KEY (401)"),
            (403, false, &without, Outcome::Warning, "KEY is not set here"),
            (404, false, &with, Outcome::Warning, "was not checked"),
            (429, false, &with, Outcome::Warning, "no credit left"),
            (503, false, &with, Outcome::Problem, "try again later"),
        ] {
            let environment =
                Environment { key_env: "KEY".to_owned(), key: is_set.clone(), ..Environment::default() };
            let found = key(StatusCode::from_u16(status).unwrap(), is_public, &environment);
            assert_eq!(found.outcome, outcome, "{status}");
            assert!(found.text.contains(expected), "{status}: {}", found.text);
        }
        let own = Environment { key_env: "KEY".to_owned(), is_own: true, ..Environment::default() };
        let found = key(StatusCode::UNAUTHORIZED, false, &own);
        assert!(found.outcome == Outcome::Problem && found.text.contains("does not start"), "{}", found.text);
    }
}
