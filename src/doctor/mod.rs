//! `toolrein doctor`: checks a set-up from configuration to traffic, and says what to do about each problem. Reads and asks;
//! changes nothing, and sends the API key to no address but the configured upstream's.

mod client;
mod proxy;
mod store;
mod upstream;

use crate::config::{Config, Target};
use crate::proxy::forward_proxy::{ForwardProxy, unusable_proxy};
use crate::proxy::read::{Patience, read_body};
use crate::proxy::upstream::{Upstream, UpstreamSettings, UpstreamSetupError};
use bytes::Bytes;
use hyper::http::{Request, StatusCode, Uri};
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// How long each question may take: long enough for a slow network, short enough for somebody who waits.
const WITHIN: Duration = Duration::from_secs(10);

/// The longest answer that is read: a page of metrics with all its series.
const MOST_BYTES: u64 = 8 << 20;

/// What is needed of the process's environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The variable of the API key, and its value where it is set.
    pub key_env: String,
    pub key: Option<String>,
    /// The key is toolrein's (`upstream.api_key_env`), not the client's.
    pub is_own: bool,
    /// `OPENAI_BASE_URL`, where it is set.
    pub base_url: Option<String>,
    /// `ANTHROPIC_BASE_URL`, where it is set.
    pub anthropic_base_url: Option<String>,
}

/// How one check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Good,
    /// It may be meant so.
    Warning,
    Problem,
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub outcome: Outcome,
    /// What was looked at, in one word.
    pub subject: &'static str,
    /// What was found, and what to do.
    pub text: String,
}

impl Finding {
    fn good(subject: &'static str, text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Good, subject, text: text.into() }
    }

    fn warning(subject: &'static str, text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Warning, subject, text: text.into() }
    }

    fn problem(subject: &'static str, text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Problem, subject, text: text.into() }
    }
}

/// Checks `config` and what can be reached with it.
pub async fn examine(config: &Config, environment: &Environment) -> Vec<Finding> {
    let mut findings = vec![settings(config)];
    findings.extend(config.warnings.iter().map(|warning| Finding::warning("settings", warning)));
    let unusable = unusable_proxy(&config.upstream);
    findings.extend(unusable.map(|sentence| Finding::warning("upstream", sentence)));
    findings.extend(upstream::examine(config, environment).await);
    findings.extend(store::examine(config).await);
    findings.extend(proxy::examine(config).await);
    findings.extend(client::examine(config, environment));
    findings
}

/// Whether a toolrein answers at this address of an admin port.
pub async fn runs_at(admin: SocketAddr) -> bool {
    proxy::runs_at(admin).await
}

/// Checks only whether a toolrein runs at the configured addresses, and what has arrived there.
pub async fn examine_proxy(config: &Config) -> Vec<Finding> {
    proxy::examine(config).await
}

/// The base URL of the proxy for programs on this machine.
pub fn base_url(config: &Config) -> String {
    client::base_url(config)
}

/// The report for a terminal, and whether it holds a problem.
pub fn report(config: &Config, findings: &[Finding]) -> (String, bool) {
    let mut text = String::new();
    for Finding { outcome, subject, text: found } in findings {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{outcome:8} {subject:10} {found}");
    }
    let _ = write!(text, "\nThe line that each framework needs:\n\n{}", client::frameworks(config));
    (text, findings.iter().any(|finding| finding.outcome == Outcome::Problem))
}

/// The configuration, which has been loaded.
fn settings(config: &Config) -> Finding {
    let on: Vec<&str> = config.policies.names().collect();
    let on = if on.is_empty() { "no policies".to_owned() } else { on.join(", ") };
    Finding::good("settings", format!("{}: mode {}, on: {on}", config.source, config.mode.as_str()))
}

/// The connection settings for the server at `base`: of toolrein's own, or of the upstream with changes.
fn connection(base: Uri) -> UpstreamSettings {
    UpstreamSettings {
        base,
        connect: WITHIN,
        first_byte: WITHIN,
        idle: WITHIN,
        ca_file: None,
        http2: false,
        key: None,
        proxy: ForwardProxy::default(),
    }
}

/// A header's name and value.
type Header = (&'static str, &'static str);

/// Gets `path` of a server, with these headers.
///
/// # Errors
/// Why there is no answer, for people.
async fn get(
    settings: UpstreamSettings,
    path: &str,
    headers: &[Header],
) -> Result<(StatusCode, Bytes), String> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(crate::proxy::body::UpBody::Empty).map_err(|error| error.to_string())?;
    let server = Upstream::new(settings).map_err(|error: UpstreamSetupError| error.to_string())?;
    let response = server.send(request).await.map_err(|error| error.message())?;
    let (head, mut body) = response.into_parts();
    let patience = Patience { pause: WITHIN, whole: WITHIN };
    let body = read_body(&mut body, None, MOST_BYTES, patience).await.map_err(|error| error.to_string())?;
    Ok((head.status, body))
}

/// The upstream's address; `None` for the simulated model.
fn base_of(config: &Config) -> Option<&Uri> {
    match &config.upstream.url {
        Target::Url(base) => Some(base),
        Target::Demo => None,
    }
}
