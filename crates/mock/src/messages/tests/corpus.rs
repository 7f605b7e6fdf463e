//! Recorded requests that Anthropic answered: the validator accepts each. Cases of the project's own are in
//! `tests/data/messages`; the corpus is read where `TOOLREIN_CORPUS` names its folder.

use super::*;
use std::path::{Path, PathBuf};

/// Every beta that has rules: the sources of the recordings left the header out.
const BETAS: &str =
    "context-management-2025-06-27, mid-conversation-tool-changes-2026-07-01, inline-tools-2026-09-15";

/// Recordings whose ids their source replaced, so that results name other calls than the requests have.
const REPLACED_IDS: [&str; 2] = [
    "anthropic_completion_tools_call_with_tool_result_stream_helper",
    "messages_preserve_system_role_after_server_tool_result",
];

/// The requests of a file that were answered with 200, with their names.
fn accepted(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let recordings = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let has_own_ids = |unit: &str| !REPLACED_IDS.iter().any(|name| unit.ends_with(name));
    let is_governed = |recording: &Value| {
        let unit = recording["unit"].as_str().unwrap_or_default();
        recording["kind"] == "messages" && recording["status"] == 200 && has_own_ids(unit)
    };
    recordings
        .filter(is_governed)
        .filter_map(|recording| {
            let name = format!("{} {} {}", path.display(), recording["unit"], recording["n"]);
            Some((name, recording["request"].as_str()?.to_owned()))
        })
        .collect()
}

#[test]
fn every_recorded_request_that_was_answered_is_accepted() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/messages/requests.jsonl");
    let mut files = vec![own];
    let corpus = std::env::var_os("TOOLREIN_CORPUS").filter(|folder| !folder.is_empty());
    if let Some(folder) = corpus.map(|folder| PathBuf::from(folder).join("messages")) {
        files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let mut found = Vec::new();
    let mut requests = 0;
    for (name, request) in files.iter().flat_map(|path| accepted(path)) {
        requests += 1;
        let violations = violations(&head(BETAS), request.as_bytes());
        if !violations.is_empty() {
            found.push(format!("{name}: {violations:#?}"));
        }
    }
    assert!(requests > 10, "only {requests} requests");
    assert!(found.is_empty(), "{} of {requests} are refused:\n{}", found.len(), found.join("\n"));
}
