//! Secrets: random keys and tokens from the operating system, and those that the environment holds, with the forms that
//! they must have. Keeps none of them.

use hyper::http::HeaderValue;
pub use state::random::{random_bytes, random_key};
use std::collections::BTreeSet;

/// A shorter bearer token could be guessed.
const LEAST_TOKEN_CHARS: usize = 16;
/// Of tokens of 16 random digits, one in two million has fewer kinds of digits.
const LEAST_KINDS: usize = 4;
/// The longest piece that a token must not consist of.
const MOST_REPEATED: usize = 8;

/// Headers that carry a key, in lower case: OpenAI's form, Azure's, Anthropic's, Google's, Azure API Management's, Kong's,
/// LiteLLM's.
pub const KEY_HEADERS: [&str; 7] = [
    "authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "apikey",
    "x-litellm-api-key",
];

/// What is wrong with a variable that is not there.
pub const UNSET: &str = "is not set";

/// The secret in the environment variable `name`, without the white space around it.
///
/// # Errors
/// What is wrong with the variable, without its value.
pub fn of_variable(name: &str) -> Result<String, &'static str> {
    let secret = std::env::var(name).map_err(|_| UNSET)?;
    match secret.trim() {
        "" => Err("is empty"),
        secret => Ok(secret.to_owned()),
    }
}

/// A header's value; marked sensitive, so that it is kept out of logs.
///
/// # Errors
/// It contains characters that a header cannot hold.
pub fn header_value(text: &str) -> Result<HeaderValue, &'static str> {
    let value = HeaderValue::from_str(text.trim());
    let mut value = value.map_err(|_| "contains characters that a header cannot hold")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Checks that `token` can be the admin server's bearer token.
///
/// # Errors
/// What is wrong with it, without quoting any of it.
pub fn check_token(token: &str) -> Result<(), String> {
    if token.chars().count() < LEAST_TOKEN_CHARS {
        return Err(format!("expected a token of at least {LEAST_TOKEN_CHARS} characters"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("expected a token of visible ASCII characters without spaces".to_owned());
    }
    if repeats(token.as_bytes()) {
        return Err("expected a token of random characters, not of a few again and again".to_owned());
    }
    Ok(())
}

/// Whether `token` is a few characters again and again, or consists of fewer kinds of them than chance would give.
fn repeats(token: &[u8]) -> bool {
    let kinds = token.iter().collect::<BTreeSet<_>>().len();
    let is_of = |length: usize| token.iter().zip(&token[length..]).all(|(one, other)| one == other);
    kinds < LEAST_KINDS || (1..=MOST_REPEATED).any(is_of)
}

/// A fresh token of 32 hexadecimal digits, as [`random_bytes`].
pub fn random_token() -> String {
    format!("{:032x}", u128::from_le_bytes(random_bytes()))
}
