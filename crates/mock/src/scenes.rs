//! The demonstration: one agent and four problems, each run directly and through toolrein, on all endpoints. Runs the
//! scenes and measures at the upstream; `table` formats the figures.

use super::agent::{Agent, Journey};
use super::endpoint::Endpoint;
use super::model::Model;
use super::table::{self, Row};
use super::{Stats, Upstream};
use std::io::{self, Write};
use std::net::SocketAddr;

/// Where the agent finds the model.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The simulated model itself.
    pub direct: SocketAddr,
    /// The proxy in front of it.
    pub proxied: SocketAddr,
}

/// One problem.
struct Scene {
    name: &'static str,
    model: Model,
    question: &'static str,
}

const SCENES: [Scene; 4] = [
    Scene {
        name: "one search again",
        model: Model::Stuck,
        question: "Who built the first bicycle with pedals?",
    },
    Scene {
        name: "new searches",
        model: Model::Runaway,
        question: "Find out everything about the history of the bicycle.",
    },
    Scene {
        name: "a 200 KB page",
        model: Model::Chat,
        question: "Read https://example.com/page with read_url and tell me what it says.",
    },
    Scene { name: "no tool support", model: Model::NoTools, question: "Who built the first bicycle?" },
];

/// The figures of one pass through a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// What reached the model, including the proxy's own requests.
    pub asked: Stats,
    /// The agent's result.
    pub journey: Journey,
}

/// Runs every scene against both addresses and writes the table of results, then a line for each scene over each of the
/// other APIs. The figures are those of `upstream`, which both addresses must lead to, and of the agent.
///
/// # Errors
/// Only those of writing to `out`: a scene that fails is a line of the table.
pub async fn run(addresses: Addresses, upstream: &Upstream, out: &mut impl Write) -> io::Result<()> {
    table::write_head(out)?;
    let rows = play_all(addresses, Endpoint::Chat, upstream, |row| table::write_row(row, out)).await?;
    table::write_sum(&rows, out)?;
    run_again(addresses, Endpoint::Responses, "Responses", upstream, out).await?;
    run_again(addresses, Endpoint::Messages, "Messages", upstream, out).await
}

/// Runs every scene with the agent that uses another `endpoint`, the API of this `name`, and writes a line for each.
async fn run_again(
    addresses: Addresses,
    endpoint: Endpoint,
    name: &str,
    upstream: &Upstream,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\nThe same agent over the {name} API, directly -> through toolrein:\n")?;
    play_all(addresses, endpoint, upstream, |row| table::write_change(row, out)).await.map(drop)
}

/// A shell command that asks the simulated model through the proxy.
pub fn curl_line(proxy: SocketAddr) -> String {
    let body = r#"{"model":"demo-chat","stream":true,"messages":[{"role":"user","content":"Hello"}]}"#;
    format!("curl -N http://{proxy}/v1/chat/completions -H 'content-type: application/json' -d '{body}'")
}

/// Plays all scenes; `show` is given each as soon as it has been played.
async fn play_all(
    addresses: Addresses,
    endpoint: Endpoint,
    upstream: &Upstream,
    mut show: impl FnMut(&Row) -> io::Result<()>,
) -> io::Result<Vec<Row>> {
    let direct = Agent::new(addresses.direct, endpoint);
    let through = Agent::new(addresses.proxied, endpoint);
    let mut rows = Vec::new();
    for scene in &SCENES {
        let before = play(scene, &direct, upstream).await;
        let after = play(scene, &through, upstream).await;
        let row = Row { scene: scene.name, before, after };
        show(&row)?;
        rows.push(row);
    }
    Ok(rows)
}

async fn play(scene: &Scene, agent: &Agent, upstream: &Upstream) -> Pass {
    let asked = || upstream.stats().get(scene.model.name()).copied().unwrap_or_default();
    let earlier = asked();
    let journey = agent.work(scene.model.name(), scene.question).await;
    Pass { asked: asked() - earlier, journey }
}
