//! Checks of the shared state store's settings: there must be an address and a secret, and neither may be written in
//! the file. Reads no environment variables: a check may run without the secret.

use super::tables::StateStore;
use hyper::http::Uri;
use policies::endpoint::is_variable;

/// The longest prefix of keys, in characters.
const MOST_PREFIX: usize = 64;

/// The problems of `store`, each with its key.
pub(super) fn problems(store: &StateStore) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let mut require = |key, holds: bool, text: &str| {
        if !holds {
            problems.push((key, text.to_owned()));
        }
    };
    let address: Option<Uri> = store.url.parse().ok();
    let authority = address.as_ref().and_then(|uri| uri.authority());
    let scheme = address.as_ref().and_then(Uri::scheme_str);
    let is_redis = authority.is_some() && matches!(scheme, Some("redis" | "rediss"));
    // The text itself is never shown: it may contain a password.
    if store.url.contains('@') {
        let text = "expected no user and no password here: put the address into an environment variable, and name \
                    it with store.url_env";
        require("store.url", false, text);
    } else {
        let text =
            "expected the address of a Redis, such as \"redis://host:6379/0\" or \"rediss://host:6380\"";
        require("store.url", store.url.is_empty() || is_redis, text);
    }
    let text = "store.url and store.url_env both name the state store; keep one of them";
    require("store.url_env", store.url.is_empty() || store.url_env.is_empty(), text);
    let text = "expected the name of an environment variable (letters, digits and _), not the value itself";
    require("store.url_env", is_variable(&store.url_env), text);
    require("store.secret_env", is_variable(&store.secret_env), text);
    let key = if store.url.is_empty() { "store.url_env" } else { "store.url" };
    let text = "a store that replicas share needs store.secret_env: the environment variable with the secret under \
                which all of them hash names";
    require(key, !store.is_shared() || !store.secret_env.is_empty(), text);
    let text = format!("expected at most {MOST_PREFIX} visible ASCII characters");
    let is_plain =
        store.prefix.len() <= MOST_PREFIX && store.prefix.bytes().all(|byte| byte.is_ascii_graphic());
    require("store.prefix", is_plain, &text);
    problems
}

/// Warnings about settings without effect.
pub(super) fn warnings(store: &StateStore) -> Vec<String> {
    let idle = [("store.strict", store.strict), ("store.secret_env", !store.secret_env.is_empty())];
    let idle = idle.into_iter().filter(|(_, is_set)| *is_set && !store.is_shared());
    idle.map(|(key, _)| format!("{key}: has no effect without store.url or store.url_env")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_store_needs_an_address_and_a_secret_and_neither_in_the_file() {
        let secret = "STORE_SECRET".to_owned();
        let good =
            StateStore { url: "redis://host:6379/0".to_owned(), secret_env: secret, ..StateStore::default() };
        let with = |change: fn(&mut StateStore)| {
            let mut store = good.clone();
            change(&mut store);
            problems(&store).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let nothing: [&str; 0] = [];
        assert_eq!(problems(&StateStore::default()), []);
        assert_eq!(with(|_| {}), nothing);
        assert_eq!(with(|it| it.url = "rediss://[::1]:6380".to_owned()), nothing);
        assert_eq!(with(|it| (it.url, it.url_env) = (String::new(), "REDIS_URL".to_owned())), nothing);
        for wrong in ["host:6379", "http://host", "redis://", "redis:/host", "unix:///run/redis"] {
            let store = StateStore { url: wrong.to_owned(), ..good.clone() };
            assert_eq!(problems(&store).len(), 1, "{wrong}");
        }
        assert_eq!(with(|it| it.url_env = "REDIS_URL".to_owned()), ["store.url_env"], "two addresses");
        assert_eq!(with(|it| it.secret_env.clear()), ["store.url"]);
        assert_eq!(with(|it| it.secret_env = "s3cret-of-mine".to_owned()), ["store.secret_env"]);
        assert_eq!(with(|it| it.prefix = "a b".to_owned()), ["store.prefix"]);
        let found = problems(&StateStore { url: "redis://:hunter2@host".to_owned(), ..good.clone() });
        assert!(found.len() == 1 && !found[0].1.contains("hunter2"), "{found:?}");
        assert_eq!(warnings(&StateStore { strict: true, ..StateStore::default() }).len(), 1);
        assert!(warnings(&StateStore { strict: true, ..good }).is_empty());
    }
}
