//! Whether the upstream can be reached, and whether it accepts the API key: by one request for its list of models, which
//! costs nothing.

use super::{Environment, Finding, base_of, get};
use crate::config::Config;
use hyper::http::StatusCode;

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
    match get(base.clone(), "/v1/models", environment.key.as_deref(), config).await {
        Err(error) => vec![Finding::problem("upstream", format!("{shown}: {error}"))],
        Ok((status, _)) => {
            let reached =
                Finding::good("upstream", format!("{shown} answers (GET models: {})", status.as_u16()));
            vec![reached, key(status, environment)]
        }
    }
}

/// What the answer says about the key.
fn key(status: StatusCode, environment: &Environment) -> Finding {
    let name = &environment.key_env;
    let is_set = environment.key.is_some();
    match status {
        StatusCode::OK if is_set => Finding::good("key", format!("the upstream accepts the key in {name}")),
        StatusCode::OK => Finding::good("key", "the upstream lists its models without a key"),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_set => Finding::problem(
            "key",
            format!(
                "the upstream refuses the key in {name} ({}): check that it is whole, not revoked, and a key of this \
                 upstream",
                status.as_u16()
            ),
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if environment.is_own => Finding::problem(
            "key",
            format!("{name} (upstream.api_key_env) is not set here, and without it toolrein does not start"),
        ),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Finding::warning(
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
        for (status, is_set, outcome, expected) in [
            (200, &with, Outcome::Good, "accepts the key in KEY"),
            (200, &without, Outcome::Good, "without a key"),
            (401, &with, Outcome::Problem, "refuses the key in KEY (401)"),
            (403, &without, Outcome::Warning, "KEY is not set here: set it"),
            (404, &with, Outcome::Warning, "was not checked"),
            (429, &with, Outcome::Warning, "no credit left"),
            (503, &with, Outcome::Problem, "try again later"),
        ] {
            let environment =
                Environment { key_env: "KEY".to_owned(), key: is_set.clone(), ..Environment::default() };
            let found = key(StatusCode::from_u16(status).unwrap(), &environment);
            assert_eq!(found.outcome, outcome, "{status}");
            assert!(found.text.contains(expected), "{status}: {}", found.text);
        }
        let own = Environment { key_env: "KEY".to_owned(), is_own: true, ..Environment::default() };
        let found = key(StatusCode::UNAUTHORIZED, &own);
        assert!(found.outcome == Outcome::Problem && found.text.contains("does not start"), "{}", found.text);
    }
}
