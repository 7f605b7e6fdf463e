//! Endpoints of other models as an operator writes them: the checks of their addresses and of the environment variables
//! that hold their keys. Connects to nothing.

use super::ConfigError;
use model::plan::ModelEndpoint;

/// The endpoint at `url`, asked with the key in `key_env`; an empty one is none.
pub(super) fn endpoint(url: &str, key_env: &str) -> ModelEndpoint {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ModelEndpoint { url: given(url), key_env: given(key_env) }
}

/// What is wrong with the keys `url` and `key_env` of `table`.
pub(super) fn problems(table: &str, url: &str, key_env: &str) -> Vec<ConfigError> {
    let checks = [
        (
            url.is_empty() || is_address(url),
            "url",
            r#"expected a URL without credentials, such as "https://api.openai.com/v1""#,
        ),
        (
            is_variable(key_env),
            "key_env",
            "expected the name of an environment variable that holds the key, not the key itself",
        ),
    ];
    let wrong = checks.into_iter().filter(|(right, ..)| !right);
    wrong.map(|(_, key, problem)| ConfigError::new(format!("{table}.{key}"), problem)).collect()
}

/// Whether it looks like an address that `upstream.url` accepts.
fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':']));
    has_host && url.chars().all(|letter| letter.is_ascii_graphic() && !"@?#".contains(letter))
}

/// Whether it is empty, or can be a variable's name. Keys of providers contain dashes.
pub fn is_variable(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
}
