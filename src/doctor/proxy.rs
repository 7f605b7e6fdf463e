//! Whether a toolrein runs at the configured addresses, and what has arrived there: by its admin port.

use super::{Finding, connection, get};
use crate::config::{Config, UnfittedRule};
use crate::proxy::upstream::UpstreamSettings;
use hyper::http::{StatusCode, Uri};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use wire::plural::counted;

/// How long a toolrein on this machine may take to answer.
const SOON: Duration = Duration::from_secs(1);

/// The counter of requests by endpoint.
const REQUESTS: &str = "toolrein_requests_total{";

/// The beginning of the counter of requests whose calls and results are text.
const CALLS_AS_TEXT: &str = "toolrein_unjudged_total{why=\"calls_as_text\"} ";

/// Asks the program at `listen.admin`.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let admin = reachable(config.listen.admin);
    let Some(base) = base(admin) else { return Vec::new() };
    let status = match get(connection(base.clone()), "/v1/readyz", &[]).await {
        Ok((status, _)) => status,
        Err(_) => {
            let text = format!(
                "nothing answers at {admin} (listen.admin): start toolrein, or name its address with --admin"
            );
            return vec![Finding::warning("proxy", text)];
        }
    };
    let mut findings = vec![match status {
        StatusCode::OK => Finding::good("proxy", format!("a toolrein is ready at {admin} (admin port)")),
        StatusCode::SERVICE_UNAVAILABLE => {
            Finding::warning("proxy", format!("the toolrein at {admin} is shutting down"))
        }
        other => {
            let text = format!(
                "what answers at {admin} is not a toolrein ({} for /readyz): another program has the port",
                other.as_u16()
            );
            return vec![Finding::problem("proxy", text)];
        }
    }];
    if let Ok((StatusCode::OK, metrics)) = get(connection(base.clone()), "/v1/metrics", &[]).await {
        let metrics = String::from_utf8_lossy(&metrics);
        findings.extend(super::store::errors(&metrics));
        findings.extend(traffic(&metrics));
    }
    if let Ok((StatusCode::OK, health)) = get(connection(base), "/v1/api/health", &[]).await {
        findings.extend(rules(&health));
    }
    findings
}

/// What of the page of health is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    rules: Rules,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Rules {
    tools: Option<u64>,
    unfitted: Vec<UnfittedRule>,
}

/// The rules that fit no tool that programs have declared or used.
fn rules(health: &[u8]) -> Vec<Finding> {
    let Health { rules } = serde_json::from_slice(health).unwrap_or_default();
    let tools = counted(rules.tools.unwrap_or_default(), "tool");
    let finding = |UnfittedRule { key, pattern, near }: UnfittedRule| {
        let near = near.map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        let text =
            format!("{key}: {pattern:?} fits none of the {tools} declared or used since the start{near}");
        Finding::warning("rules", text)
    };
    rules.unfitted.into_iter().map(finding).collect()
}

/// Whether a toolrein answers at this address of an admin port.
pub(super) async fn runs_at(admin: SocketAddr) -> bool {
    let Some(base) = base(reachable(admin)) else { return false };
    let settings = UpstreamSettings { connect: SOON, first_byte: SOON, idle: SOON, ..connection(base) };
    match get(settings, "/v1/api/health", &[]).await {
        Ok((StatusCode::OK, health)) => serde_json::from_slice::<RunningHealth>(&health).is_ok(),
        _ => false,
    }
}

/// What a toolrein's page of health has, and hardly another program's.
#[derive(Deserialize)]
struct RunningHealth {
    #[serde(rename = "config")]
    _config: IgnoredAny,
    #[serde(rename = "recorder")]
    _recorder: IgnoredAny,
}

/// What has arrived, by the page of metrics.
fn traffic(metrics: &str) -> Vec<Finding> {
    let mut arrived: BTreeMap<&str, f64> = BTreeMap::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix(REQUESTS)) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let endpoint = labels.split_once("endpoint=\"").and_then(|(_, rest)| rest.split_once('"'));
        if let (Some((endpoint, _)), Ok(count)) = (endpoint, count.parse::<f64>()) {
            *arrived.entry(endpoint).or_default() += count;
        }
    }
    arrived.retain(|_, count| *count > 0.0);
    if arrived.is_empty() {
        let text = "no request has arrived since the start: point your program at the proxy, see below";
        return vec![Finding::warning("traffic", text)];
    }
    let is_governed = |endpoint: &str| ["chat_completions", "responses", "messages"].contains(&endpoint);
    let list = |governed: bool| {
        let of_kind = arrived.iter().filter(|(endpoint, _)| is_governed(endpoint) == governed);
        of_kind.map(|(endpoint, count)| format!("{endpoint} {count}")).collect::<Vec<_>>().join(", ")
    };
    let (governed, relayed) = (list(true), list(false));
    let mut findings = Vec::new();
    if governed.is_empty() {
        let text = format!("only requests that toolrein relays without governing have arrived: {relayed}");
        findings.push(Finding::warning("traffic", text));
    } else {
        let others = if relayed.is_empty() { String::new() } else { format!("; relayed: {relayed}") };
        findings
            .push(Finding::good("traffic", format!("governed requests since the start: {governed}{others}")));
    }
    findings.extend(text_agents(metrics));
    findings
}

/// Whether agents have come that write their calls as text.
fn text_agents(metrics: &str) -> Option<Finding> {
    let count = metrics.lines().find_map(|line| line.strip_prefix(CALLS_AS_TEXT))?;
    let text = format!(
        "{count} requests came from agents that write tool calls and results as text (smolagents, ReAct prompts): \
         policies that read the history do not see these calls (docs/clients.md)"
    );
    (count != "0").then(|| Finding::warning("traffic", text))
}

/// An address to reach a server that listens at `address`.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()))
    } else {
        address
    }
}

fn base(address: SocketAddr) -> Option<Uri> {
    Uri::builder().scheme("http").authority(address.to_string()).path_and_query("/").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Outcome;

    #[test]
    fn traffic_is_summed_by_endpoint_and_what_is_relayed_alone_is_a_warning() {
        let line = |endpoint: &str, status: u32, count: u32| {
            format!(
                "toolrein_requests_total{{endpoint=\"{endpoint}\",error=\"\",model=\"m\",status=\"{status}\"}} {count}\n"
            )
        };
        for (metrics, outcome, expected) in [
            (String::new(), Outcome::Warning, "no request has arrived since the start"),
            (line("chat_completions", 200, 0), Outcome::Warning, "no request has arrived"),
            (
                line("chat_completions", 200, 3)
                    + &line("chat_completions", 400, 1)
                    + &line("messages", 200, 1)
                    + &line("embeddings", 200, 2),
                Outcome::Good,
                "governed requests since the start: chat_completions 4, messages 1; relayed: embeddings 2",
            ),
            (line("bedrock", 200, 2), Outcome::Warning, "relays without governing have arrived: bedrock 2"),
        ] {
            let found = traffic(&metrics);
            assert_eq!((found.len(), found[0].outcome), (1, outcome), "{metrics}");
            assert!(found[0].text.contains(expected), "{}", found[0].text);
        }
    }

    #[test]
    fn agents_that_write_calls_as_text_are_named() {
        let requests = "toolrein_requests_total{endpoint=\"chat_completions\",status=\"200\"} 3\n";
        let of_text =
            |count: u32| format!("{requests}toolrein_unjudged_total{{why=\"calls_as_text\"}} {count}\n");
        assert_eq!(traffic(&of_text(0)).len(), 1);
        let found = traffic(&of_text(2));
        assert_eq!((found.len(), found[1].outcome), (2, Outcome::Warning));
        assert!(
            found[1].text.starts_with("2 requests came from agents that write tool calls"),
            "{}",
            found[1].text
        );
    }

    #[test]
    fn a_server_on_all_addresses_is_asked_on_this_machine() {
        for (listens, asked) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "127.0.0.1:2"), ("10.0.0.1:3", "10.0.0.1:3")]
        {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }
}
