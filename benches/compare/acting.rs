//! Configurations under which the shipped policies cut a result of 60 KB and add a notice, or under which limits are so
//! wide that nothing acts; and the bodies for it.

use super::bodies::{self, Api, Body};
use super::subject::{SHIPPED, Subject, Way, bare};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

const RESULT_BYTES: usize = 60_000;
const ACTIONS: &str = "toolrein_actions_total";

/// Calls of a turn, and characters of a result.
pub type Limits = [&'static str; 2];
/// As shipped.
pub const LIMITS: Limits = ["tool_calls = 50", "max_chars = 16000"];
/// The bodies have eleven calls or twelve: with the eleventh half of 22 are used.
pub const TIGHT: Limits = ["tool_calls = 22", LIMITS[1]];
pub const WIDE: Limits = ["tool_calls = 1000", "max_chars = 1000000"];

/// A request with the long result, followed by `then` short ones.
pub fn body(api: Api, then: usize) -> Body {
    bodies::with_long_result(api, RESULT_BYTES, then)
}

/// The shipped configuration under other limits.
pub fn limited(limits: Limits) -> String {
    assert!(LIMITS.iter().all(|limit| SHIPPED.contains(limit)), "what is shipped has other limits");
    SHIPPED.replace(LIMITS[0], limits[0]).replace(LIMITS[1], limits[1])
}

/// toolrein under these limits.
pub async fn started(program: &str, folder: &Path, upstream: SocketAddr, limits: Limits) -> Subject {
    fs::create_dir(folder).unwrap();
    let way = Way { url: &bare(upstream), mode: "enforce", config: &limited(limits) };
    Subject::pinned(program, folder, way).await
}

/// Fails unless both policies acted in the one and not in the other.
pub async fn check(quiet: &Subject, acts: &Subject) {
    for policy in ["budget", "truncate"] {
        let label = format!("policy=\"{policy}\"");
        let [quiet, acts] = [quiet.metric(ACTIONS, &label), acts.metric(ACTIONS, &label)];
        assert!(quiet.await == 0.0 && acts.await > 0.0, "{policy} does not act as it should");
    }
}
