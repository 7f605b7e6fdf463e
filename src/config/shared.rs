//! What must hold of the ledger that replicas share: an address, a secret, and neither of them in the file. Reads no
//! environment: a check may run where no secret is.

use super::tables::Ledger;
use hyper::http::Uri;

/// The longest beginning of keys, in characters.
const MOST_PREFIX: usize = 64;

/// The problems of `ledger`, each with its key.
pub(super) fn problems(ledger: &Ledger) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let mut require = |key, holds: bool, text: &str| {
        if !holds {
            problems.push((key, text.to_owned()));
        }
    };
    let address: Option<Uri> = ledger.url.parse().ok();
    let authority = address.as_ref().and_then(|uri| uri.authority());
    let scheme = address.as_ref().and_then(Uri::scheme_str);
    let is_redis = authority.is_some() && matches!(scheme, Some("redis" | "rediss"));
    // The text itself is never told: a password may have been written there.
    if ledger.url.contains('@') {
        let text = "expected no user and no password here: put the address into an environment variable, and name \
                    it with ledger.url_env";
        require("ledger.url", false, text);
    } else {
        let text =
            "expected the address of a Redis, such as \"redis://host:6379/0\" or \"rediss://host:6380\"";
        require("ledger.url", ledger.url.is_empty() || is_redis, text);
    }
    let text = "ledger.url and ledger.url_env both name the ledger; keep one of them";
    require("ledger.url_env", ledger.url.is_empty() || ledger.url_env.is_empty(), text);
    let text = "expected the name of an environment variable (letters, digits and _), not the value itself";
    require("ledger.url_env", is_variable(&ledger.url_env), text);
    require("ledger.secret_env", is_variable(&ledger.secret_env), text);
    let key = if ledger.url.is_empty() { "ledger.url_env" } else { "ledger.url" };
    let text = "a ledger that replicas share needs ledger.secret_env: the environment variable with the secret under \
                which all of them hash names";
    require(key, !ledger.is_shared() || !ledger.secret_env.is_empty(), text);
    let text = format!("expected at most {MOST_PREFIX} visible ASCII characters");
    let is_plain =
        ledger.prefix.len() <= MOST_PREFIX && ledger.prefix.bytes().all(|byte| byte.is_ascii_graphic());
    require("ledger.prefix", is_plain, &text);
    problems
}

/// What has no effect.
pub(super) fn warnings(ledger: &Ledger) -> Vec<String> {
    let idle = [("ledger.strict", ledger.strict), ("ledger.secret_env", !ledger.secret_env.is_empty())];
    let idle = idle.into_iter().filter(|(_, is_set)| *is_set && !ledger.is_shared());
    idle.map(|(key, _)| format!("{key}: has no effect without ledger.url or ledger.url_env")).collect()
}

/// Whether `name` can be that of an environment variable; empty: none is named.
pub(super) fn is_variable(name: &str) -> bool {
    let starts = !name.starts_with(|char: char| char.is_ascii_digit());
    starts && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_ledger_needs_an_address_and_a_secret_and_neither_in_the_file() {
        let secret = "LEDGER_SECRET".to_owned();
        let good = Ledger { url: "redis://host:6379/0".to_owned(), secret_env: secret, ..Ledger::default() };
        let with = |change: fn(&mut Ledger)| {
            let mut ledger = good.clone();
            change(&mut ledger);
            problems(&ledger).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let nothing: [&str; 0] = [];
        assert_eq!(problems(&Ledger::default()), []);
        assert_eq!(with(|_| {}), nothing);
        assert_eq!(with(|it| it.url = "rediss://[::1]:6380".to_owned()), nothing);
        assert_eq!(with(|it| (it.url, it.url_env) = (String::new(), "REDIS_URL".to_owned())), nothing);
        for wrong in ["host:6379", "http://host", "redis://", "redis:/host", "unix:///run/redis"] {
            let ledger = Ledger { url: wrong.to_owned(), ..good.clone() };
            assert_eq!(problems(&ledger).len(), 1, "{wrong}");
        }
        assert_eq!(with(|it| it.url_env = "REDIS_URL".to_owned()), ["ledger.url_env"], "two addresses");
        assert_eq!(with(|it| it.secret_env.clear()), ["ledger.url"]);
        assert_eq!(with(|it| it.secret_env = "s3cret-of-mine".to_owned()), ["ledger.secret_env"]);
        assert_eq!(with(|it| it.prefix = "a b".to_owned()), ["ledger.prefix"]);
        let told = problems(&Ledger { url: "redis://:hunter2@host".to_owned(), ..good.clone() });
        assert!(told.len() == 1 && !told[0].1.contains("hunter2"), "{told:?}");
        assert_eq!(warnings(&Ledger { strict: true, ..Ledger::default() }).len(), 1);
        assert!(warnings(&Ledger { strict: true, ..good }).is_empty());
    }
}
