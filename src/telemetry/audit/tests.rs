//! Tests of the audit log: what a line contains, what no line contains, and a disk that fails.

use super::super::cases::rich;
use super::*;
use model::record::{On, PolicyDecision, Route, Verdict};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

fn line_of(record: &RequestRecord) -> Option<Value> {
    let line = String::from_utf8(line(record, SystemTime::UNIX_EPOCH)?).unwrap();
    assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
    Some(serde_json::from_str(&line).unwrap())
}

fn lines_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_audit_line_names_every_policy_involved_and_marks_the_one_that_decided() {
    let decision = |call: usize, tool: &str, verdict: &str| {
        json!({"call": call, "tool": tool, "verdict": verdict,
            "policy": null, "reason": null, "spoke": false})
    };
    let expected = json!({
        "timestamp": "1970-01-01T00:00:00.000000Z", "request_id": "req-1", "conversation": "talk-1",
        "model": "gpt-4o", "profile": "chat", "mode": "enforce",
        "decisions": [
            decision(0, "search", "allow"),
            decision(1, "search", "allow"),
            {"call": 2, "tool": "weather", "verdict": "block", "policy": "rate_limit", "reason": "RATE_LIMIT",
                "spoke": true},
            {"call": 2, "tool": "weather", "verdict": "block", "policy": "loops", "reason": "LOOP_DETECTED",
                "spoke": false},
            {"call": 3, "tool": "weather", "verdict": "allow", "unjudged": true, "policy": null, "reason": null,
                "spoke": false},
        ],
        "actions": [
            {"policy": "truncate", "action": "shortened", "count": 2},
            {"policy": "budget", "action": "notice", "count": 1},
            {"policy": "rate_limit", "action": "blocked", "count": 1},
        ],
    });
    assert_eq!(line_of(&rich()), Some(expected));
}

#[test]
fn in_observe_mode_no_policy_is_marked_as_deciding() {
    let decision = PolicyDecision { policy: "loops", reason: "LOOP_DETECTED", ..PolicyDecision::default() };
    let decisions = vec![decision];
    let call =
        JudgedCall { verdict: Verdict::Allow, decisions, is_spoken: false, ..rich().judged[0].clone() };
    let record = RequestRecord { mode: "observe", judged: vec![call], ..RequestRecord::new(Route::Chat) };
    let decision = line_of(&record).unwrap()["decisions"][0].clone();
    assert_eq!(
        (&decision["policy"], &decision["verdict"], &decision["spoke"]),
        (&json!("loops"), &json!("allow"), &json!(false))
    );
}

#[test]
fn a_request_in_which_nothing_was_decided_has_no_line() {
    assert_eq!(line_of(&RequestRecord::new(Route::Relay)), None);
    let mut silent = RequestRecord { judged: vec![], repeated: true, ..rich() };
    silent.actions.retain(|action| action.on == On::Request);
    assert_eq!(line_of(&silent), None, "a resent request reports nothing again");
    assert!(line_of(&RequestRecord { repeated: false, ..silent }).is_some());
}

#[test]
fn a_resent_request_tells_of_its_reply_alone() {
    let line = line_of(&RequestRecord { repeated: true, ..rich() }).unwrap();
    assert_eq!(line["actions"], json!([{"policy": "rate_limit", "action": "blocked", "count": 1}]));
    assert_eq!(line["decisions"].as_array().unwrap().len(), 5);
}

#[test]
fn hostile_names_stay_bounded_and_inside_their_fields() {
    let hostile = format!("a\",\"mode\":\"off\"}}\r\n{{\u{2028}\u{202e}{}", "\u{1b}[31mx \\".repeat(10_000));
    let mut record = rich();
    record.request_id.clone_from(&hostile);
    record.conversation = Some(hostile.clone());
    record.model = Some(hostile.clone());
    let call = JudgedCall { tool: hostile.clone(), ..record.judged[2].clone() };
    record.judged = vec![call; 5_000];
    record.act(On::Reply, "loops", hostile, 1);
    let text = line(&record, SystemTime::UNIX_EPOCH).unwrap();
    assert!(text.len() < 60_000, "{}", text.len());
    let is_hidden = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
    assert!(!String::from_utf8_lossy(&text).trim_end().chars().any(is_hidden));
    let line = line_of(&record).unwrap();
    assert_eq!(line["mode"], "enforce");
    assert_eq!(line["model"].as_str().unwrap().chars().count(), 200);
    assert_eq!(line["decisions"][0]["tool"].as_str().unwrap().chars().count(), 64);
    assert_eq!(line["left_out"], 10_000 - 200, "what is not listed is only counted");
}

#[test]
fn the_file_is_for_its_owner_alone_and_is_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    for times in 1..=2 {
        let audit = Audit::open(&path).unwrap();
        audit.request(&rich());
        audit.request(&RequestRecord::new(Route::Relay));
        audit.finish();
        assert_eq!(lines_of(&path).len(), times);
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_moved_or_truncated_audit_file_is_reopened_at_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
    let mut file = Appended { path: path.clone(), file: private_file::append(&path).unwrap(), torn: false };
    let mut tell = || assert_eq!(file.write_lines(b"{}\n"), 3);
    tell();
    std::fs::rename(&path, &old).unwrap();
    tell();
    assert_eq!((lines_of(&old).len(), lines_of(&path).len()), (1, 1));
    // As `copytruncate` does.
    File::options().write(true).truncate(true).open(&path).unwrap();
    tell();
    assert_eq!(lines_of(&path).len(), 1, "no hole is left where the old lines were");
}

#[test]
fn what_cannot_be_written_is_counted_and_a_line_that_was_cut_does_not_spoil_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::open(&path).unwrap();
    std::fs::remove_dir_all(folder.path()).unwrap();
    audit.request(&rich());
    audit.finish();
    assert_eq!(audit.take_lost(), 1);
    std::fs::create_dir(folder.path()).unwrap();
    std::fs::write(&path, "{\"cut\":").unwrap();
    let mut file = Appended { path: path.clone(), file: private_file::append(&path).unwrap(), torn: true };
    assert_eq!(file.write_lines(b"{}\n"), 3);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"cut\":\n{}\n");
    let mut full = Appended {
        path: "/dev/full".into(),
        file: private_file::append("/dev/full".as_ref()).unwrap(),
        torn: false,
    };
    assert_eq!(full.write_lines(b"{}\n"), 0);
}
