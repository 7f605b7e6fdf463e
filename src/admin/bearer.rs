//! The bearer token of the admin server: its required form, and whether a request carries it. The configuration
//! supplies it, and the routes decide what it protects.

use crate::secret::{check_token, random_key};
use hyper::http::Request;
use hyper::http::header::AUTHORIZATION;
use model::identity::{Domain, HashKey};

const SCHEME: &str = "bearer ";

/// See the module's documentation. Kept as a hash under its own key, so that comparing takes the same time for any
/// input, and no plain copy stays in memory.
#[derive(Clone)]
pub struct Bearer {
    key: HashKey,
    hash: u128,
}

impl Bearer {
    /// A token as the operator gave it.
    ///
    /// # Errors
    /// What is wrong with it, without quoting any of it.
    pub fn new(token: &str) -> Result<Self, String> {
        check_token(token)?;
        let key = random_key();
        let hash = hash(&key, token.as_bytes());
        Ok(Self { key, hash })
    }

    /// Whether the request carries it, in its one `authorization` header.
    pub(super) fn opens<B>(&self, request: &Request<B>) -> bool {
        let mut named = request.headers().get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (named.next(), named.next()) else { return false };
        let value = value.as_bytes();
        let (scheme, token) = value.split_at(value.len().min(SCHEME.len()));
        let is_same = (hash(&self.key, token) ^ self.hash) == 0;
        scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) & is_same
    }
}

fn hash(key: &HashKey, token: &[u8]) -> u128 {
    key.hash(Domain::Caller, &[b"admin", token]).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "correct-horse-battery";

    fn opens(values: &[&str]) -> bool {
        let request =
            values.iter().fold(Request::get("/"), |request, value| request.header(AUTHORIZATION, *value));
        Bearer::new(TOKEN).unwrap().opens(&request.body(()).unwrap())
    }

    #[test]
    fn only_a_single_bearer_token_that_matches_exactly_is_accepted() {
        assert!(opens(&[&format!("Bearer {TOKEN}")]) && opens(&[&format!("bearer {TOKEN}")]));
        let twice = format!("Bearer {TOKEN}");
        for values in [
            &[][..],
            &[""],
            &["Bearer "],
            &["Bearer"],
            &[TOKEN],
            &["Basic correct-horse-battery"],
            &["Bearer correct-horse-batterx"],
            &["Bearer correct-horse-battery "],
            &["Bearer correct-horse"],
            &[&twice, &twice],
        ] {
            assert!(!opens(values), "{values:?}");
        }
    }

    #[test]
    fn a_token_that_could_be_guessed_or_not_be_sent_is_refused_without_being_shown() {
        for token in [
            "",
            "fifteen-letters",
            "a token with spaces in it",
            "sixteen-lätters!",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "0000000000000000",
            "abababababababab",
            "12341234123412341",
            "changemechangeme",
            "1122211212121212",
        ] {
            let problem = Bearer::new(token).err().unwrap();
            assert!(
                problem.starts_with("expected a token of ") && (token.is_empty() || !problem.contains(token))
            );
        }
    }
}
