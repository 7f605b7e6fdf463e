//! The audit log over sockets: it contains what policies decided, and a full disk stops no request.

use crate::governed::talk::{BOTH, after, budget, calling, chat, log_line, question};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::support::until;
use serde_json::{Value, json};
use std::path::Path;

fn lines_of(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The `nth` line, waited for.
fn line(path: &Path, nth: usize) -> Value {
    until("a line of the audit record", || lines_of(path).get(nth).cloned())
}

/// Two policies that object to a second call.
fn strict(file: &Path, mode: &str) -> String {
    let limits = "[policy.turn_limits]\ncalls = 2\n";
    format!("mode = \"{mode}\"\naudit.file = {file:?}\n{}{limits}", budget(2))
}

#[test]
fn a_decision_is_recorded_with_every_policy_that_objected() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, verdict) in [("enforce", "block"), ("observe", "allow")] {
        let file = folder.path().join(mode);
        let upstream = Scripted::start(calling(2));
        let toolrein = Toolrein::before(&upstream, &strict(&file, mode));
        for (nth, stream) in BOTH.into_iter().enumerate() {
            chat(&toolrein, after(&["r"], stream));
            let line = line(&file, nth);
            assert_eq!((&line["mode"], &line["model"]), (&json!(mode), &json!("m")));
            let decision = |call: usize, verdict: &str, policy: Value, reason: Value, spoke: bool| {
                json!({"call": call, "tool": "f",
                    "verdict": verdict, "policy": policy, "reason": reason, "spoke": spoke})
            };
            let reason = json!("BUDGET_EXCEEDED");
            let expected = json!([
                decision(0, "allow", Value::Null, Value::Null, false),
                decision(1, verdict, json!("budget"), reason.clone(), mode == "enforce"),
                decision(1, verdict, json!("turn_limits"), reason, false),
            ]);
            assert_eq!(line["decisions"], expected, "{mode}, streamed {stream}");
            let blocked = |policy| json!({"policy": policy, "action": "blocked", "count": 1});
            let actions = line["actions"].as_array().unwrap();
            assert!(actions.contains(&blocked("budget")) && actions.contains(&blocked("turn_limits")));
            let told = log_line(&toolrein, nth);
            assert_eq!(line["request_id"], told["request_id"], "the log names the same request");
            let call = &told["tool_calls"][1];
            let expected = (&json!(verdict), &json!("budget"), &json!("BUDGET_EXCEEDED"));
            assert_eq!((&call["verdict"], &call["policy"], &call["reason"]), expected, "{told}");
            assert_eq!(call["also"], json!([{"policy": "turn_limits", "reason": "BUDGET_EXCEEDED"}]));
        }
    }
}

#[test]
fn the_record_holds_nothing_of_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit");
    let upstream = Scripted::start(|_, request| {
        Reply::speech(request, &Speech::calls(&[("c", "f", "{\"a\":\"s3cr3t\"}"), ("d", "f", "s3cr3t")]))
    });
    let toolrein = Toolrein::before(&upstream, &strict(&file, "enforce"));
    for stream in BOTH {
        chat(&toolrein, after(&["s3cr3t"], stream));
    }
    line(&file, 1);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("s3cr3t"), "{text}");
}

#[test]
fn a_request_without_a_decision_leaves_no_line_and_the_last_ones_are_written_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit");
    let upstream = Scripted::queue([
        Reply::events(&Speech::text("ok").chunks(false)),
        Reply::events(&Speech::calls(&[("c", "f", "{}")]).chunks(false)),
    ]);
    let toolrein = Toolrein::before(&upstream, &strict(&file, "enforce"));
    chat(&toolrein, question(true));
    chat(&toolrein, question(true));
    toolrein.stop();
    assert_eq!(lines_of(&file).len(), 1, "what was only said is no decision");
}

#[test]
fn a_full_disk_stops_no_request_and_is_counted() {
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &strict(Path::new("/dev/full"), "enforce"));
    let mut sent = 0;
    until("a lost line", || {
        sent += 1;
        assert_eq!(chat(&toolrein, after(&["r"], sent % 2 == 0)).status, 200);
        (toolrein.metric("toolrein_audit_lines_lost_total") > 0.5).then_some(())
    });
    assert_eq!(chat(&toolrein, after(&["r"], false)).status, 200);
}
