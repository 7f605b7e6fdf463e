//! The outputs of one request record with everything in it, compared byte for byte with those that are expected: their keys,
//! the order of these, what is `null` or left out, and the bounds of texts are contracts.

use super::audit::Audit;
use super::cases::{Sink, assert_expected, complete, without_time};
use super::live::{Bounds, Live};
use super::log::{Format, Level, Log, Settings};

/// The log with the line of the complete record.
fn logged(format: Format) -> String {
    let sink = Sink::default();
    let log = Log::open(Settings { format, level: Level::Info }, sink.clone());
    log.request(&complete());
    log.finish();
    sink.text()
}

#[test]
fn the_line_of_the_log_is_as_expected() {
    assert_expected("log.json", &without_time(&logged(Format::Json), "timestamp"));
    assert_expected("log.txt", &logged(Format::Text));
}

#[test]
fn the_line_of_the_audit_log_is_as_expected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::open(&path).unwrap();
    audit.request(&complete());
    audit.finish();
    let line = std::fs::read_to_string(&path).unwrap();
    assert_expected("audit.json", &without_time(&line, "timestamp"));
}

#[test]
fn the_events_and_the_conversation_of_the_live_view_are_as_expected() {
    let live = Live::new(Bounds { conversations: 1, callers: 0, with_decisions: true, body_bytes: 0 });
    let mut reader = live.events().subscribe().unwrap();
    let record = complete();
    live.record(&record);
    let events = std::iter::from_fn(|| reader.try_next().ok());
    let events = events.map(|event| format!("{} {}\n", event.kind.as_str(), event.data));
    assert_expected("events.txt", &without_time(&events.collect::<String>(), "at_ms"));
    let conversation = live.conversation(record.conversation.as_deref().unwrap()).unwrap();
    let decisions = serde_json::to_string(&conversation.decisions).unwrap();
    let calls = serde_json::to_string(&conversation.timed_calls).unwrap();
    assert_expected("conversation.json", &without_time(&format!("{decisions}\n{calls}\n"), "at_ms"));
}
