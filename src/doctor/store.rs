//! Whether the state store that replicas share can be used, and what a running toolrein says of it: by its address and
//! by the page of metrics.

use super::{Finding, WITHIN};
use crate::config::Config;
use state::redis::Redis;

/// The gauge of the state store.
const UP: &str = "toolrein_store_up ";
/// The counter of its errors, by operation.
const ERRORS: &str = "toolrein_store_errors_total{op=\"";

/// Tries the configured state store; nothing where the configuration names none.
pub(super) async fn examine(config: &Config) -> Option<Finding> {
    let settings = &config.store;
    if !settings.is_shared() {
        return None;
    }
    let (key, url) = match settings.url.as_str() {
        "" => match std::env::var(&settings.url_env) {
            Ok(url) => (format!("store.url_env ({})", settings.url_env), url.trim().to_owned()),
            Err(_) => {
                let text =
                    format!("the environment variable {} is not set here (store.url_env)", settings.url_env);
                return Some(Finding::warning("store", text));
            }
        },
        url => ("store.url".to_owned(), url.to_owned()),
    };
    Some(match Redis::probe(url, &settings.prefix, WITHIN).await {
        Ok(()) => Finding::good("store", format!("the Redis of {key} answers")),
        Err(error) => Finding::problem("store", format!("the Redis of {key} cannot be used: {error}")),
    })
}

/// What the running toolrein says of its shared state store, by the page of metrics.
pub(super) fn errors(metrics: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if metrics.lines().find_map(|line| line.strip_prefix(UP)) == Some("0") {
        let text = "the running toolrein has no shared state store: it does not answer, or refuses look-ups or writes \
                    (toolrein_store_up); its log says why. Replicas count each for itself";
        findings.push(Finding::problem("store", text));
    }
    let errors = metrics.lines().filter_map(|line| line.strip_prefix(ERRORS)?.split_once("\"} "));
    let errors: Vec<String> =
        errors.filter(|(_, count)| *count != "0").map(|(op, count)| format!("{op} {count}")).collect();
    if !errors.is_empty() {
        let text = format!(
            "errors of the shared state store since the start: {} (toolrein_store_errors_total): what replicas share is \
             incomplete",
            errors.join(", ")
        );
        findings.push(Finding::warning("store", text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Outcome;

    #[test]
    fn a_store_that_is_away_is_a_problem_and_its_errors_are_named() {
        for (metrics, expected) in [
            ("toolrein_store_up 1\n", &[][..]),
            ("toolrein_store_up 1\ntoolrein_store_errors_total{op=\"record\"} 0\n", &[]),
            (
                "toolrein_store_up 0\ntoolrein_store_errors_total{op=\"connect\"} 2\ntoolrein_store_errors_total{op=\"look_up\"} 7\n",
                &[
                    (Outcome::Problem, "the running toolrein has no shared state store"),
                    (Outcome::Warning, "since the start: connect 2, look_up 7"),
                ],
            ),
        ] {
            let found = errors(metrics);
            assert_eq!(found.len(), expected.len(), "{metrics}");
            for (found, (outcome, text)) in found.iter().zip(expected) {
                assert!(found.outcome == *outcome && found.text.contains(text), "{found:?}");
            }
        }
    }
}
