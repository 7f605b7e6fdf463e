//! The dialect of each recorded request is found by its body alone, where anything in it says so.

use crate::recordings::{Kind, corpus, of_corpus, of_responses, own};
use dialects::dialect_of;
use serde_json::Value;
use std::fs;

/// The least requests of the corpus whose bodies have something that only the Messages API has: 505 of 581, when counted by
/// another reader. The others hold texts and no more than a model, a length and a temperature.
const OF_MESSAGES: usize = 505;

/// The dialect's name, by what it makes of a call.
fn dialect(body: &[u8]) -> &'static str {
    let reply = dialect_of(body).reply_with_call("t", "{}");
    match &*String::from_utf8_lossy(&reply) {
        reply if reply.contains("tool_calls") => "chat",
        reply if reply.contains("function_call") => "responses",
        _ => "messages",
    }
}

#[test]
fn the_bodies_of_other_apis_are_what_they_were() {
    let chat = own().into_iter().chain(of_corpus()).filter(|one| one.kind == Kind::Request);
    let responses = of_responses().into_iter().filter(|one| one.kind == Kind::Request);
    let mut found = 0;
    for recording in chat.chain(responses) {
        let Ok(body) = serde_json::from_slice::<Value>(&recording.bytes) else { continue };
        let expected = match (body.get("messages"), body.get("input")) {
            (Some(_), _) => "chat",
            (None, Some(_)) => "responses",
            (None, None) => continue,
        };
        assert_eq!(dialect(&recording.bytes), expected, "{}", recording.name);
        found += 1;
    }
    assert!(found > 20, "{found}");
}

#[test]
fn the_bodies_of_messages_are_found() {
    let Some(folder) = corpus() else { return };
    let (mut found, mut all) = (0, 0);
    for entry in fs::read_dir(folder.join("messages")).unwrap().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for body in lines.filter_map(|line| Some(line.get("request")?.as_str()?.to_owned())) {
            all += 1;
            found += usize::from(dialect(body.as_bytes()) == "messages");
        }
    }
    println!("requests of the Messages API that are known by their bodies: {found} of {all}");
    assert!(found >= OF_MESSAGES && all > found, "{found} of {all}");
}
