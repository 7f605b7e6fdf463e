//! The settings of the webhook that is notified of calls that wait, as written and checked. Sends nothing.

use crate::ConfigError;
use crate::approvals::Webhook;
use crate::endpoint::is_variable;
use crate::hosts::host_of;
use crate::period::Period;
use serde::Deserialize;
use std::time::Duration;

/// `[policy.confirm.webhook]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookConfig {
    /// Where notifications are sent; empty: nowhere.
    url: String,
    /// The environment variable with the secret that signs them.
    secret_env: String,
    /// How long one try may take.
    timeout: Period,
    /// How often a failed one is sent again.
    retries: u32,
    /// The page for the person who decides, with `{token}` in it; empty: the admin port's.
    link: String,
}

/// The placeholder in a link.
const TOKEN: &str = "{token}";
/// A receiver that takes longer is to answer first and work later.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
const MOST_RETRIES: u32 = 10;

impl Default for WebhookConfig {
    fn default() -> Self {
        let timeout = Period(Duration::from_secs(5));
        Self { url: String::new(), secret_env: String::new(), timeout, retries: 3, link: String::new() }
    }
}

impl WebhookConfig {
    /// The webhook, if there is one. Adds what is wrong with it to `problems`.
    pub fn checked(self, problems: &mut Vec<ConfigError>) -> Option<Webhook> {
        if self.url.is_empty() {
            return None;
        }
        let mut refuse = |key: &str, problem: &str| {
            problems.push(ConfigError::new(format!("webhook.{key}"), problem));
        };
        if host_of(&self.url).is_none() || self.url.contains('#') {
            refuse("url", "expected the address of an HTTP server, without credentials and fragment");
        }
        if self.secret_env.is_empty() || !is_variable(&self.secret_env) {
            refuse(
                "secret_env",
                "expected the name of the environment variable with the secret that signs notifications, not the secret itself",
            );
        }
        if self.timeout.0.is_zero() || self.timeout.0 > LONGEST_TIMEOUT {
            refuse("timeout", "expected a time above 0, up to 60s");
        }
        if self.retries > MOST_RETRIES {
            refuse("retries", "expected at most 10");
        }
        let bare = self.link.replace(TOKEN, "t");
        let is_link = host_of(&bare).is_some() && bare != self.link && !bare.contains(['{', '}']);
        if !self.link.is_empty() && !is_link {
            refuse(
                "link",
                "expected an address with {token} in it, such as \"https://ops.example/approve/{token}\"",
            );
        }
        let link = Some(self.link).filter(|link| !link.is_empty());
        let (url, secret_env, timeout_ms, retries) =
            (self.url, self.secret_env, self.timeout.millis(), self.retries);
        Some(Webhook { url, secret_env, timeout_ms, retries, link })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(table: &str) -> (Option<Webhook>, Vec<String>) {
        let mut problems = Vec::new();
        let webhook = toml::from_str::<WebhookConfig>(table).unwrap().checked(&mut problems);
        (webhook, problems.iter().map(|problem| problem.key.clone()).collect())
    }

    #[test]
    fn a_webhook_that_cannot_work_is_refused_by_key() {
        let whole = "url = \"https://ops.example/hook?x=1\"\nsecret_env = \"S\"\n";
        assert_eq!(checked(""), (None, vec![]));
        let (webhook, problems) = checked(whole);
        assert_eq!((webhook.unwrap().retries, problems), (3, vec![]));
        assert_eq!(checked(&format!("{whole}link = \"https://ops.example/a/{{token}}\"")).1, [""; 0]);
        for (more, key) in [
            ("timeout = \"0s\"", "webhook.timeout"),
            ("timeout = \"2m\"", "webhook.timeout"),
            ("retries = 11", "webhook.retries"),
            ("link = \"https://ops.example/approve\"", "webhook.link"),
            ("link = \"/approve/{token}\"", "webhook.link"),
            ("link = \"https://ops.example/{token}/{user}\"", "webhook.link"),
            ("link = \"javascript:{token}\"", "webhook.link"),
        ] {
            assert_eq!(checked(&format!("{whole}{more}")).1, [key], "{more}");
        }
        for url in
            ["ops.example", "ftp://ops.example", "https://user:word@ops.example", "https://o.example/#a"]
        {
            assert_eq!(checked(&format!("url = \"{url}\"\nsecret_env = \"S\"")).1, ["webhook.url"], "{url}");
        }
        assert_eq!(checked("url = \"https://ops.example\"").1, ["webhook.secret_env"]);
    }
}
