//! The cost of acting: a result of 60 KB is cut and a notice added, compared with the same bodies under limits so wide
//! that nothing acts. Otherwise both run the shipped policies.

use super::bodies::{self, Api, Body};
use super::load::Freshness::{Cold, Warm};
use super::subject::{SHIPPED, Subject, Way, bare};
use super::table::requests;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

const RESULT_BYTES: usize = 60_000;
const REQUESTS: u32 = 1000;
const ACTIONS: &str = "toolrein_actions_total";

/// Calls of a turn, and characters of a result.
pub type Limits = [&'static str; 2];
/// As shipped.
pub const LIMITS: Limits = ["tool_calls = 50", "max_chars = 16000"];
/// The bodies have eleven calls or twelve: with the eleventh half of 22 are used.
pub const TIGHT: Limits = ["tool_calls = 22", LIMITS[1]];
pub const WIDE: Limits = ["tool_calls = 1000", "max_chars = 1000000"];

/// The CPU times as Markdown.
pub async fn measured(program: &str, folder: &Path, upstream: SocketAddr, number: &mut u32) -> String {
    let subjects = [
        started(program, &folder.join("wide"), upstream, WIDE).await,
        started(program, &folder.join("tight"), upstream, TIGHT).await,
    ];
    let mut rows = String::new();
    for (name, then, freshness) in
        [("the result is new", 0, Warm), ("it was seen before", 1, Warm), ("first sight", 1, Cold)]
    {
        let body = body(then);
        let rounds = requests(&subjects, REQUESTS, (&body, freshness), number).await;
        let (quiet, acts) = (rounds[0].0, rounds[1].0);
        let _ = writeln!(rows, "| {name} | {quiet:.1} | **{:.2}x** {acts:.1} |", acts / quiet);
    }
    for policy in ["budget", "truncate"] {
        let label = format!("policy=\"{policy}\"");
        let [quiet, acts] = [&subjects[0], &subjects[1]].map(|subject| subject.metric(ACTIONS, &label));
        assert!(quiet.await == 0.0 && acts.await > 0.0, "{policy} does not act as it should");
    }
    format!(
        "CPU time in us of 85 KB whose one result of 60 KB is cut and to which a notice is added, compared with the \
         same bodies under limits so wide that nothing acts:\n\n| | nothing acts | cut, notice added |\n\
         |---|--:|--:|\n{rows}\n"
    )
}

/// A request with the long result, followed by `then` short ones.
pub fn body(then: usize) -> Body {
    bodies::with_long_result(Api::Chat, RESULT_BYTES, then)
}

/// The shipped configuration under other limits.
pub fn limited(limits: Limits) -> String {
    assert!(LIMITS.iter().all(|limit| SHIPPED.contains(limit)), "what is shipped has other limits");
    SHIPPED.replace(LIMITS[0], limits[0]).replace(LIMITS[1], limits[1])
}

async fn started(program: &str, folder: &Path, upstream: SocketAddr, limits: Limits) -> Subject {
    fs::create_dir(folder).unwrap();
    let way = Way { url: &bare(upstream), mode: "enforce", config: &limited(limits) };
    Subject::pinned(program, folder, way).await
}
