//! What a program is run with so that the compiler can be told what is hot: every size, seen before and not, streams, a
//! bare upstream and one behind TLS over both versions of HTTP, and policies that act. What is missing here is built for
//! size rather than speed, so all that is common belongs here. Measures nothing.

use super::bodies::conversation;
use super::load::Freshness::{Cold, Warm};
use super::load::{Load, Plan};
use super::subject::{SHIPPED, Subject, Way, bare};
use super::{CHUNKS, upstream};
use std::path::Path;

/// A size, its tool results, and how many requests of it are sent: so many of the small ones that what is done once for
/// each request counts as hot beside what is done for each byte.
const SIZES: [(usize, usize, u32); 4] =
    [(1 << 10, 0, 6000), (32 << 10, 10, 1500), (256 << 10, 60, 60), (1 << 20, 200, 12)];
const STREAMS: u32 = 48;
const CONNECTIONS: usize = 4;

/// Each result is cut and many are cleared.
const ACTING: &str = "
[policy.budget]
tool_calls = 4
[policy.rate_limit]
[policy.loops]
[policy.arguments]
[policy.injection]
[policy.truncate]
max_chars = 1000
[policy.compact]
context_window = 30000
";

/// Runs `program` with all of it; each run ends by itself, so that it writes down what it counted.
pub async fn trained(program: &str) {
    let folder = tempfile::tempdir().unwrap();
    let upstream = upstream::start().await;
    let secure = Subject::secure(folder.path(), upstream).await;
    let trusting = format!("ca_file = \"{}\"", secure.authority.display());
    let trusting = SHIPPED.replace("#ca_file = \"/etc/ssl/certs/own-ca.pem\"", &trusting);
    let urls = [bare(upstream), url(secure.http2), url(secure.http1)];
    let ways = [
        (0, "off", SHIPPED),
        (0, "enforce", SHIPPED),
        (0, "observe", SHIPPED),
        (0, "enforce", ACTING),
        (1, "enforce", &trusting),
        (2, "enforce", &trusting),
    ];
    for (at, mode, config) in ways {
        run(program, folder.path(), Way { url: &urls[at], mode, config }).await;
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}/v1")
}

async fn run(program: &str, folder: &Path, way: Way<'_>) {
    let subject = Subject::run(program, folder, way).await;
    for (bytes, results, requests) in SIZES {
        let body = conversation(bytes, results, false);
        let mut load = Load { port: subject.port, body, number: 1, stream: None, connections: CONNECTIONS };
        load.run(Plan { freshness: Warm, requests }).await;
        load.run(Plan { freshness: Cold, requests: requests / 4 }).await;
    }
    let body = conversation(1 << 10, 0, true);
    let mut load =
        Load { port: subject.port, body, number: 1, stream: Some(CHUNKS), connections: CONNECTIONS };
    load.run(Plan { freshness: Warm, requests: STREAMS }).await;
    subject.end();
}
