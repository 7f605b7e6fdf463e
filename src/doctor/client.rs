//! Whether programs started here would use the proxy, and the line that each framework needs.

use super::proxy::reachable;
use super::{Environment, Finding};
use crate::config::{Config, ENDPOINTS, without_secrets};
use std::net::SocketAddr;

/// The page that has each framework's line, in its first table.
const CLIENTS: &str = include_str!("../../docs/clients.md");
/// The proxy's address on that page.
const WRITTEN: &str = "http://127.0.0.1:4242";

/// Looks at `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL`: a program needs one of them.
pub(super) fn examine(config: &Config, environment: &Environment) -> Vec<Finding> {
    let anthropic = environment.anthropic_base_url.as_deref().map(|url| of_anthropic(config, url));
    let openai = environment.base_url.is_some() || anthropic.is_none();
    let openai = openai.then(|| of_openai(config, environment));
    openai.into_iter().chain(anthropic).collect()
}

/// Looks at `ANTHROPIC_BASE_URL`, to which clients add `/v1/messages`.
fn of_anthropic(config: &Config, url: &str) -> Finding {
    let (url, wanted) = (url.trim_end_matches('/'), origin(config));
    let trouble = match is_here(url, scheme(config), config.listen.proxy) {
        false => Some("which is not the proxy"),
        true => {
            let path = url.parse::<hyper::Uri>().map(|url| url.path().trim_end_matches('/').to_owned());
            path.is_ok_and(|path| !path.is_empty()).then_some("to which clients add /v1/messages")
        }
    };
    match trouble {
        None => Finding::good("client", format!("ANTHROPIC_BASE_URL is {}, the proxy", shown(url))),
        Some(trouble) => Finding::warning(
            "client",
            format!("ANTHROPIC_BASE_URL is {}, {trouble}: export ANTHROPIC_BASE_URL={wanted}", shown(url)),
        ),
    }
}

/// Looks at `OPENAI_BASE_URL`.
fn of_openai(config: &Config, environment: &Environment) -> Finding {
    let wanted = base_url(config);
    match environment.base_url.as_deref().map(|url| url.trim_end_matches('/')) {
        Some(url) if is_here(url, scheme(config), config.listen.proxy) => match path_trouble(url) {
            None => Finding::good("client", format!("OPENAI_BASE_URL is {}, the proxy", shown(url))),
            Some(trouble) => Finding::warning(
                "client",
                format!("OPENAI_BASE_URL is {}, {trouble}: export OPENAI_BASE_URL={wanted}", shown(url)),
            ),
        },
        Some(url) => Finding::warning(
            "client",
            format!(
                "OPENAI_BASE_URL is {}, which is not the proxy: export OPENAI_BASE_URL={wanted}",
                shown(url)
            ),
        ),
        None => Finding::warning(
            "client",
            format!(
                "OPENAI_BASE_URL is not set here: export OPENAI_BASE_URL={wanted} where your program starts, or \
                 ANTHROPIC_BASE_URL={} for programs that call Anthropic's API",
                origin(config)
            ),
        ),
    }
}

/// What is wrong with the path of a base URL that leads to the proxy: clients add `/chat/completions` and the like.
fn path_trouble(url: &str) -> Option<&'static str> {
    let url: hyper::Uri = url.parse().ok()?;
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/v1/v1") {
        Some("whose /v1 is doubled")
    } else if ENDPOINTS.iter().any(|endpoint| path.ends_with(endpoint)) {
        Some("which is the address of an endpoint, not a base")
    } else if path.is_empty() {
        Some("which lacks /v1")
    } else {
        None
    }
}

/// `url` without what may be a secret. What is no URL is not shown: it may be a key in the wrong variable.
fn shown(url: &str) -> String {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("http" | "https") => without_secrets(url),
        _ => "no URL of http or https".to_owned(),
    }
}

/// A line for each framework: its name and what it needs.
pub(super) fn frameworks(config: &Config) -> String {
    let rows = CLIENTS.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let lines = rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let (name, line) = (cells.next()?, cells.next()?);
        Some(format!(
            "  {}: {}\n",
            name.replace('`', ""),
            line.replace('`', "").replace(WRITTEN, &origin(config))
        ))
    });
    lines.collect()
}

pub(super) fn base_url(config: &Config) -> String {
    format!("{}/v1", origin(config))
}

/// The proxy's address without a path.
fn origin(config: &Config) -> String {
    format!("{}://{}", scheme(config), reachable(config.listen.proxy))
}

fn scheme(config: &Config) -> &'static str {
    if config.listen.tls.is_on() { "https" } else { "http" }
}

/// Whether `url` has this scheme and the proxy's port, at an address of this machine where the proxy listens on one of those.
fn is_here(url: &str, scheme: &str, proxy: SocketAddr) -> bool {
    let Ok(url) = url.parse::<hyper::Uri>() else { return false };
    let own_port = if scheme == "https" { 443 } else { 80 };
    if url.scheme_str() != Some(scheme) || url.port_u16().unwrap_or(own_port) != proxy.port() {
        return false;
    }
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<std::net::IpAddr>() {
        Ok(ip) => ip == reachable(proxy).ip() || (ip.is_loopback() && proxy.ip().is_unspecified()),
        // With TLS it is a name that the certificate is for, which only that machine's resolver knows.
        Err(_) if scheme == "https" => true,
        Err(_) => host.eq_ignore_ascii_case("localhost") && reachable(proxy).ip().is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Source};
    use crate::doctor::Outcome;
    use policies::REGISTRY;

    /// What is found where `OPENAI_BASE_URL` is this.
    fn examine(config: &Config, environment: &Environment) -> Finding {
        let mut found = super::examine(config, environment);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn config(listen: &str) -> Config {
        let overrides = Overrides { listen: Some(listen.to_owned()), ..Overrides::default() };
        Config::load(Source::Shipped, &overrides, REGISTRY).unwrap()
    }

    #[test]
    fn the_variable_of_clients_is_compared_with_the_proxys_address() {
        for (listen, url, is_good) in [
            ("127.0.0.1:4242", Some("http://127.0.0.1:4242/v1"), true),
            ("127.0.0.1:4242", Some("http://localhost:4242/v1/"), true),
            ("0.0.0.0:80", Some("http://127.0.0.1:80/v1"), true),
            ("0.0.0.0:80", Some("http://127.0.0.1/v1"), true),
            ("127.0.0.1:80", Some("https://127.0.0.1/v1"), false),
            ("127.0.0.1:4242", Some("http://127.0.0.1/v1"), false),
            ("127.0.0.1:4242", Some("http://u:p@127.0.0.1:4242/v1"), true),
            ("127.0.0.1:4242", Some("http://127.0.0.1:4243/v1"), false),
            ("127.0.0.1:4242", Some("http://127.0.0.1:4242"), false),
            ("127.0.0.1:4242", Some("http://127.0.0.1:4242/v1/v1"), false),
            ("127.0.0.1:4242", Some("http://127.0.0.1:4242/v1/chat/completions"), false),
            ("127.0.0.1:4242", Some("https://api.example.com/v1"), false),
            ("127.0.0.1:4242", Some("https://127.0.0.1:4242/v1"), false),
            ("127.0.0.1:4242", Some("not a url"), false),
            ("127.0.0.1:4242", None, false),
        ] {
            let environment = Environment { base_url: url.map(str::to_owned), ..Environment::default() };
            let found = examine(&config(listen), &environment);
            assert_eq!(found.outcome == Outcome::Good, is_good, "{url:?}: {}", found.text);
        }
    }

    #[test]
    fn the_variable_of_anthropics_clients_has_no_path_and_is_enough_alone() {
        for (url, is_good, expected) in [
            ("http://127.0.0.1:4242", true, "the proxy"),
            ("http://localhost:4242/", true, "the proxy"),
            ("http://127.0.0.1:4242/v1", false, "to which clients add /v1/messages: export"),
            ("https://api.anthropic.com", false, "which is not the proxy"),
        ] {
            let environment =
                Environment { anthropic_base_url: Some(url.to_owned()), ..Environment::default() };
            let found = examine(&config("127.0.0.1:4242"), &environment);
            assert_eq!(found.outcome == Outcome::Good, is_good, "{url}: {}", found.text);
            assert!(found.text.contains(expected), "{url}: {}", found.text);
        }
        let url = Some("http://127.0.0.1:4242".to_owned());
        let both = Environment { base_url: url.clone(), anthropic_base_url: url, ..Environment::default() };
        let outcomes =
            super::examine(&config("127.0.0.1:4242"), &both).into_iter().map(|found| found.outcome);
        assert_eq!(outcomes.collect::<Vec<_>>(), [Outcome::Warning, Outcome::Good], "the first lacks /v1");
    }

    #[test]
    fn a_base_url_of_the_proxy_with_a_wrong_path_is_warned_about_by_what_is_wrong() {
        for (url, expected) in [
            ("http://127.0.0.1:4242", "which lacks /v1"),
            ("http://127.0.0.1:4242/v1/v1/", "whose /v1 is doubled"),
            ("http://127.0.0.1:4242/v1/responses", "the address of an endpoint"),
        ] {
            let environment = Environment { base_url: Some(url.to_owned()), ..Environment::default() };
            let found = examine(&config("127.0.0.1:4242"), &environment);
            assert!(found.text.contains(expected), "{}", found.text);
            assert!(
                found.text.ends_with("export OPENAI_BASE_URL=http://127.0.0.1:4242/v1"),
                "{}",
                found.text
            );
        }
    }

    #[test]
    fn secrets_in_the_variable_are_not_printed() {
        for url in [
            "http://me:s3cret@127.0.0.1:4242/v1",
            "https://s3cret@gate.example/v1",
            "https://gate.example/v1?api_key=s3cret",
            "https://gate.example/v1#s3cret",
            "https://me:s3cret/x@gate.example/v1",
            "sk-s3cret",
            "s3cret://x",
        ] {
            let environment = Environment { base_url: Some(url.to_owned()), ..Environment::default() };
            let found = examine(&config("127.0.0.1:4242"), &environment);
            assert!(!found.text.contains("s3cret"), "{url}: {}", found.text);
        }
    }

    #[test]
    fn with_tls_clients_need_https_and_any_name_of_the_certificate() {
        let proxy = "0.0.0.0:4242".parse().unwrap();
        for (url, is_good) in [
            ("https://agents.example:4242/v1", true),
            ("https://127.0.0.1:4242/v1", true),
            ("https://agents.example/v1", false),
            ("http://127.0.0.1:4242/v1", false),
        ] {
            assert_eq!(is_here(url, "https", proxy), is_good, "{url}");
        }
    }

    #[test]
    fn doctor_prints_a_line_with_the_real_address_for_every_framework() {
        let lines = frameworks(&config("127.0.0.1:9000"));
        assert!(lines.lines().count() >= 10, "{lines}");
        assert!(lines.lines().all(|line| line.contains("http://127.0.0.1:9000")), "{lines}");
        assert!(lines.contains("LangChain.js: new ChatOpenAI({ configuration: {"), "{lines}");
    }
}
