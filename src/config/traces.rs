//! `[telemetry.traces]`: where traces are sent, and how many. Checks the address; reads no environment variables, since
//! a check may run without the secrets.

use super::units::{share, span};
use hyper::http::{HeaderName, Uri};
use policies::endpoint::is_variable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The path of OTLP over HTTP, for an address without a path.
const PATH: &str = "/v1/traces";
/// The bounds of the queue: the spans of one request fit, and what waits stays below about 100 MB.
const QUEUE: std::ops::RangeInclusive<usize> = 512..=100_000;
/// The bounds of the time for a batch.
const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// The longest name of the service, in characters.
const MOST_NAME: usize = 100;
/// Headers that the protocol itself needs.
const RESERVED: [&str; 6] =
    ["content-type", "content-length", "content-encoding", "transfer-encoding", "host", "connection"];

/// `[telemetry.traces]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traces {
    /// The collector's address; empty: no traces.
    pub endpoint: String,
    /// Headers for the collector, each with the environment variable that holds its value.
    pub headers: BTreeMap<String, String>,
    /// The name under which the collector shows this program.
    pub service_name: String,
    /// The share of traces that are kept, in ten-thousandths, where the caller has not decided.
    #[serde(with = "share")]
    pub sample: u32,
    /// Whether the upstream gets the span's own `traceparent` instead of the caller's.
    pub propagate: bool,
    /// Whether spans carry what was said, redacted as in recordings.
    pub contents: bool,
    /// The most spans, events and KiB of contents that wait to be sent.
    pub queue: usize,
    /// For a batch, with its retries.
    #[serde(with = "span")]
    pub timeout: Duration,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            headers: BTreeMap::new(),
            service_name: "toolrein".to_owned(),
            sample: 10_000,
            propagate: false,
            contents: false,
            queue: 4096,
            timeout: Duration::from_secs(10),
        }
    }
}

impl Traces {
    /// The whole address of the collector; `None` where there is none, or the address is wrong.
    pub fn address(&self) -> Option<Uri> {
        let uri: Uri = self.endpoint.parse().ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let has_host = !authority.host().is_empty() && authority.port_u16() != Some(0);
        let is_plain = !authority.as_str().contains('@') && uri.query().is_none();
        let is_address = ["http", "https"].contains(&scheme) && has_host && is_plain;
        let has_port = authority.as_str() == authority.host() || authority.port_u16().is_some();
        if !is_address || !has_port || self.endpoint.contains('#') {
            return None;
        }
        if uri.path() == "/" { format!("{scheme}://{authority}{PATH}").parse().ok() } else { Some(uri) }
    }
}

/// The problems of `traces`, each with its key. The values themselves are not shown: they may contain a password.
pub(super) fn problems(traces: &Traces) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    let mut require = |key, holds: bool, text: String| {
        if !holds {
            problems.push((key, text));
        }
    };
    let text = "expected the http:// or https:// URL of a collector for OTLP over HTTP, without credentials, query or \
                fragment, such as \"http://localhost:4318/v1/traces\""
        .to_owned();
    require("telemetry.traces.endpoint", traces.endpoint.is_empty() || traces.address().is_some(), text);
    for (name, variable) in &traces.headers {
        let header: Option<HeaderName> = name.parse().ok();
        let text = format!("{name:?} is no header's name, or one that is always set");
        let is_free = header.is_some_and(|header| !RESERVED.contains(&header.as_str()));
        require("telemetry.traces.headers", is_free, text);
        let text = format!("{name}: expected the name of an environment variable, not the value itself");
        require("telemetry.traces.headers", is_variable(variable) && !variable.is_empty(), text);
    }
    let name = &traces.service_name;
    let is_name = (1..=MOST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    let text = format!("expected a name of 1 to {MOST_NAME} characters");
    require("telemetry.traces.service_name", is_name, text);
    let text = format!("expected {} to {} spans, found {}", QUEUE.start(), QUEUE.end(), traces.queue);
    require("telemetry.traces.queue", QUEUE.contains(&traces.queue), text);
    let text = "expected a duration from 1ms to 1m".to_owned();
    require("telemetry.traces.timeout", TIMEOUT.contains(&traces.timeout), text);
    problems
}

/// Warnings about settings that are probably a mistake.
pub(super) fn warnings(traces: &Traces) -> Vec<String> {
    let is_plain = traces.address().is_some_and(|uri| uri.scheme_str() == Some("http"));
    let is_sent = is_plain && !traces.headers.is_empty();
    let has_no_effect = traces.contents && traces.endpoint.is_empty();
    let warnings = [
        (is_sent, "telemetry.traces.headers: are sent unencrypted to an http:// endpoint"),
        (has_no_effect, "telemetry.traces.contents: has no effect without telemetry.traces.endpoint"),
    ];
    warnings.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_gets_the_otlp_path_and_any_other_is_kept() {
        for (endpoint, expected) in [
            ("http://localhost:4318", Some("http://localhost:4318/v1/traces")),
            ("http://localhost:4318/", Some("http://localhost:4318/v1/traces")),
            ("https://c.example/otlp/v1/traces", Some("https://c.example/otlp/v1/traces")),
            ("http://[::1]:4318", Some("http://[::1]:4318/v1/traces")),
            ("", None),
            ("localhost:4318", None),
            ("grpc://localhost:4317", None),
            ("http://", None),
            ("http://host:0", None),
            ("http://host:x", None),
            ("http://host:99999", None),
            ("http://me:hunter2@host", None),
            ("http://host/v1/traces?token=t", None),
            ("http://host/#part", None),
            ("http://a host", None),
        ] {
            let traces = Traces { endpoint: endpoint.to_owned(), ..Traces::default() };
            let address = traces.address().map(|uri| uri.to_string());
            assert_eq!(address.as_deref(), expected, "{endpoint}");
            assert_eq!(problems(&traces).is_empty(), expected.is_some() || endpoint.is_empty(), "{endpoint}");
        }
    }

    #[test]
    fn each_wrong_value_is_named_and_no_secret_is_shown() {
        let with = |change: fn(&mut Traces)| {
            let mut traces = Traces { endpoint: "https://c.example".to_owned(), ..Traces::default() };
            change(&mut traces);
            problems(&traces)
        };
        let header = |name: &str, variable: &str| (name.to_owned(), variable.to_owned());
        assert_eq!(with(|_| {}), []);
        assert_eq!(with(|it| it.headers = [("authorization".into(), "OTLP_AUTH".into())].into()), []);
        for (name, variable) in [
            header("a b", "V"),
            header("content-type", "V"),
            header("api-key", ""),
            header("api-key", "s3cr3t-key"),
        ] {
            let traces = Traces { headers: [(name, variable)].into(), ..Traces::default() };
            let found = problems(&traces);
            assert!(found.len() == 1 && !found[0].1.contains("s3cr3t"), "{found:?}");
        }
        let key = |change| with(change).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(key(|it| it.service_name.clear()), ["telemetry.traces.service_name"]);
        assert_eq!(key(|it| it.queue = 1), ["telemetry.traces.queue"]);
        assert_eq!(key(|it| it.timeout = Duration::from_secs(61)), ["telemetry.traces.timeout"]);
        let found = with(|it| it.endpoint = "http://me:hunter2@host".to_owned());
        assert!(found.len() == 1 && !found[0].1.contains("hunter2"), "{found:?}");
    }

    #[test]
    fn headers_that_go_out_unencrypted_are_warned_about() {
        let headers = [("api-key".to_owned(), "KEY".to_owned())].into();
        let traces = Traces { endpoint: "http://host:4318".to_owned(), headers, ..Traces::default() };
        assert_eq!(warnings(&traces).len(), 1);
        assert!(warnings(&Traces { endpoint: "https://host".to_owned(), ..traces }).is_empty());
        assert!(warnings(&Traces::default()).is_empty());
        let contents = warnings(&Traces { contents: true, ..Traces::default() });
        assert!(contents[0].contains("has no effect"), "{contents:?}");
    }
}
