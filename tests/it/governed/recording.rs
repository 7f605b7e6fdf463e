//! The recorder over sockets: each governed request is on disk with what was done to it, in the form that `replay` and
//! `explain` read, and no disk stops a request.

use crate::governed::talk::{BOTH, after, budget, calling, chat, question};
use crate::support::client::{Request, Response};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk, may_call};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::until;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn files_of(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn text_of(dir: &Path) -> String {
    files_of(dir).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// The lines of the recording, once there are so many.
pub(crate) fn lines(dir: &Path, count: usize) -> Vec<Value> {
    until("the recording", || {
        let text = text_of(dir);
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines: Vec<Value> = whole.map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

pub(crate) fn recording(dir: &Path, more: &str, policies: &str) -> String {
    format!("record = {{ dir = {dir:?}, {more} }}\n{policies}")
}

/// What a command of the program writes about the directory.
pub(crate) fn toolrein(command: &str, dir: &Path, more: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    program.arg(command).arg(dir).args(more);
    let output = program.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A request with the key `sk-test`, and a query that nobody records.
fn with_key(toolrein: &Toolrein, path: &str, body: &str) -> Response {
    let url = format!("{}{path}?user=s3cr3t-key", toolrein.origin());
    Request::post(&url, body).send()
}

/// The items of the only hidden exchange: the blocked call with its arguments, and the result that the model read.
fn hidden(line: &Value) -> (String, Value) {
    let items = line["toolrein"]["hidden"][0]["items"].as_array().unwrap();
    let text = serde_json::to_string(items).unwrap();
    let is_result =
        |item: &&Value| item.get("tool_call_id").is_some() || item["type"] == "function_call_output";
    let result = items.iter().find(is_result).unwrap_or_else(|| panic!("no result in {text}"));
    let result = result.get("content").or_else(|| result.get("output")).unwrap();
    (text, serde_json::from_str(result.as_str().unwrap()).unwrap())
}

#[test]
fn a_blocked_call_is_recorded_with_its_arguments_its_rule_and_what_the_model_read() {
    for stream in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Scripted::start(calling(2));
        let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", &budget(2)));
        let body = after(&["r"], stream);
        let reply = with_key(&toolrein, "/v1/chat/completions", &body);
        assert_eq!(reply.status, 200);
        let line = &lines(dir.path(), 1)[0];
        assert_eq!(line["request"], serde_json::from_str::<Value>(&body).unwrap());
        let shown = &line["response"]["choices"][0]["message"]["tool_calls"];
        assert_eq!((shown.as_array().unwrap().len(), &shown[0]["id"]), (1, &json!("call_0_0")), "{line}");
        let done = &line["toolrein"];
        assert_eq!(
            (&done["status"], &done["model"], &done["streamed"]),
            (&json!(200), &json!("m"), &json!(stream))
        );
        assert!(
            done["time"].as_str().unwrap().ends_with('Z') && line["id"] == done["conversation"],
            "{line}"
        );
        let calls = done["calls"].as_array().unwrap();
        assert_eq!((&calls[0]["verdict"], &calls[1]["verdict"]), (&json!("allow"), &json!("block")));
        let objection = &calls[1]["objections"][0];
        assert_eq!(
            (&objection["policy"], &objection["reason"]),
            (&json!("budget"), &json!("BUDGET_EXCEEDED"))
        );
        let limits = done["limits"].as_array().unwrap();
        assert!(limits.contains(&json!({"policy": "budget", "tool": "*", "used": 2, "limit": 2})), "{line}");
        let (items, read) = hidden(line);
        assert!(items.contains("call_0_1") && items.contains(r#"{\"a\":2}"#), "{items}");
        assert_eq!(read["error"]["message"], objection["message"]);
        let written = text_of(dir.path());
        assert!(!written.contains("s3cr3t-key") && !written.contains("sk-test"), "no credential is recorded");
    }
}

#[test]
fn a_re_ask_is_recorded_as_a_hidden_exchange_before_the_reply_that_the_client_got() {
    for stream in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Scripted::start(calling(1));
        let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", &budget(1)));
        chat(&toolrein, after(&["r"], stream));
        let line = &lines(dir.path(), 1)[0];
        assert_eq!(
            (&line["toolrein"]["reasks"], &line["toolrein"]["upstream_requests"]),
            (&json!(1), &json!(2))
        );
        assert_eq!(line["response"]["choices"][0]["message"]["content"], "Done without.", "{line}");
        assert_eq!(hidden(line).1["error"]["type"], "BUDGET_EXCEEDED");
    }
}

#[test]
fn the_responses_api_is_recorded_in_its_own_form() {
    let answer = |nth: usize, request: &Recorded| {
        let output = Output::new(nth).thinks();
        let output = if may_call(request) {
            output.call("new", "f", "{\"a\":2}")
        } else {
            output.says("Done without.")
        };
        output.reply(request)
    };
    for stream in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Scripted::start(answer);
        let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", &budget(1)));
        let mut talk = Talk::new(stream);
        talk.called("old", "{}", &json!("r"));
        let reply = with_key(&toolrein, "/v1/responses", &talk.body.to_string());
        assert_eq!(reply.status, 200);
        let line = &lines(dir.path(), 1)[0];
        assert_eq!(line["request"], talk.body);
        let output = line["response"]["output"].as_array().unwrap();
        assert!(output.last().unwrap().to_string().contains("Done without."), "{line}");
        let (items, result) = hidden(line);
        assert!(items.contains("\"type\":\"function_call\""), "{items}");
        assert_eq!(result["error"]["type"], "BUDGET_EXCEEDED");
        let explained: Value =
            serde_json::from_str(&self::toolrein("explain", dir.path(), &["--json"])).unwrap();
        let block = &explained["live"][0];
        assert_eq!(block["arguments"], "{\"a\":2}", "{explained}");
        assert_eq!(block["read"], result["error"]["message"]);
        assert_eq!(block["next"], "answered: Done without.");
        let report: Value = serde_json::from_str(&self::toolrein("replay", dir.path(), &["--json"])).unwrap();
        assert_eq!((&report["conversations"], &report["broken"]), (&json!(1), &json!(0)), "{report}");
    }
}

#[test]
fn replay_and_explain_read_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "file_bytes = \"1KiB\"", &budget(2)));
    for results in [&["r"][..], &["r", "s"], &["r", "s", "t"]] {
        chat(&toolrein, after(results, false));
    }
    lines(dir.path(), 3);
    assert!(files_of(dir.path()).len() > 1, "the files are rotated");
    let report: Value = serde_json::from_str(&self::toolrein("replay", dir.path(), &["--json"])).unwrap();
    let numbers = [&report["conversations"], &report["continued"], &report["broken"]];
    assert_eq!(numbers, [&json!(1), &json!(2), &json!(0)], "{report}");
    let explained: Value = serde_json::from_str(&self::toolrein("explain", dir.path(), &["--json"])).unwrap();
    assert_eq!(explained["model"], "m");
}

#[test]
fn no_disk_stops_a_request_and_what_is_lost_is_counted_and_named_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, &recording(&file.path().join("below"), "", ""));
    for stream in BOTH {
        assert_eq!(chat(&toolrein, question(stream)).status, 200);
    }
    toolrein.wait_for_metric("toolrein_recordings_lost_total", 2.0);
    let logs = toolrein.stop();
    let named: Vec<_> = logs.iter().filter(|line| line.contains("requests are not recorded")).collect();
    assert_eq!(named.len(), 1, "{logs:?}");
}

#[test]
fn without_bodies_nothing_of_what_was_said_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(|_, request: &Recorded| {
        Reply::speech(
            request,
            &Speech::calls(&[("c", "f", "{\"a\":\"s3cr3t\"}"), ("d", "f", "{\"a\":\"s3cr3t\"}")]),
        )
    });
    let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "bodies = false", &budget(2)));
    for stream in BOTH {
        chat(&toolrein, after(&["s3cr3t"], stream));
    }
    let lines = lines(dir.path(), 2);
    assert_eq!(lines[0]["toolrein"]["calls"][1]["objections"][0]["reason"], "BUDGET_EXCEEDED");
    assert!(lines[0].get("request").is_none() && !text_of(dir.path()).contains("s3cr3t"), "{lines:?}");
}

#[test]
fn secrets_and_addresses_are_redacted_also_where_a_stream_cuts_them_into_pieces() {
    for stream in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Scripted::start(|_, request: &Recorded| {
            Reply::speech(request, &Speech::text("Write to anna.example@example.org, not to the others."))
        });
        let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", ""));
        let reply = chat(&toolrein, question(stream).replace("\"q\"", "\"I am bob@example.org\""));
        assert_eq!(reply.status, 200);
        let line = &lines(dir.path(), 1)[0];
        let said = line["response"]["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(said.starts_with("Write to [EMAIL_") && said.ends_with("], not to the others."), "{said}");
        assert!(!text_of(dir.path()).contains("example.org"), "{line}");
    }
}

#[test]
fn a_share_of_the_conversations_is_recorded_each_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "sample = 0.5", ""));
    let conversation = |name: usize, turn: usize| {
        let body = after(&["r", "s"][..turn], false).replace("\"q\"", &format!("\"question {name}\""));
        assert_eq!(chat(&toolrein, body).status, 200);
    };
    (0..40).for_each(|name| (0..2).for_each(|turn| conversation(name, turn)));
    toolrein.stop();
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    for line in lines(dir.path(), 1) {
        *counts.entry(line["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!((1..40).contains(&counts.len()) && counts.values().all(|count| *count == 2), "{counts:?}");
}

#[test]
fn explain_shows_a_live_block_with_what_the_model_read_and_did_next() {
    for stream in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Scripted::start(calling(1));
        let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", &budget(1)));
        chat(&toolrein, after(&["r"], stream));
        lines(dir.path(), 1);
        let explained: Value =
            serde_json::from_str(&self::toolrein("explain", dir.path(), &["--json"])).unwrap();
        let block = &explained["live"][0];
        let seen = [&block["tool"], &block["verdict"], &block["arguments"], &block["next"]];
        assert_eq!(
            seen,
            [&json!("f"), &json!("block"), &json!("{\"a\":2}"), &json!("answered: Done without.")],
            "{block}"
        );
        let rule = &block["rules"][0];
        assert_eq!(
            [&rule["policy"], &rule["used"], &rule["limit"]],
            [&json!("budget"), &json!(1), &json!(1)],
            "{block}"
        );
        assert_eq!(block["read"], rule["message"], "the sentence that the model read");
        let text = self::toolrein("explain", dir.path(), &[]);
        for part in [
            "Live, when this was recorded",
            "budget objects, BUDGET_EXCEEDED, 1 of 1 used",
            "the model read: ",
            "then the model answered: Done without.",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(self::toolrein("explain", dir.path(), &["--html"]).contains("Live, when this was recorded"));
    }
}

#[test]
fn a_block_beside_other_calls_is_explained_with_what_the_model_did_in_the_next_request() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", &budget(2)));
    chat(&toolrein, after(&["r"], false));
    chat(&toolrein, after(&["r", "s"], false));
    lines(dir.path(), 2);
    let explained: Value = serde_json::from_str(&self::toolrein("explain", dir.path(), &["--json"])).unwrap();
    let live = explained["live"].as_array().unwrap();
    assert_eq!((&live[0]["message"], &live[0]["tool"]), (&json!(3), &json!("f")), "{explained}");
    assert!(live[0]["next"].as_str().unwrap().starts_with("called f("), "{live:?}");
}

/// Limits the size of every file that the program writes, in bytes, or `unlimited`. To the program, a limit looks
/// like a full disk.
fn bound_files(toolrein: &Toolrein, most: &str) {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &toolrein.pid().to_string(), &format!("--fsize={most}:unlimited")]);
    assert!(prlimit.status().expect("prlimit, of util-linux").success());
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_full_disk_the_traffic_goes_on_and_recordings_are_lost_until_there_is_room_again() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(calling(1));
    let toolrein = Toolrein::before(&upstream, &recording(dir.path(), "", "log.format = \"json\"\n"));
    assert_eq!(chat(&toolrein, question(false)).status, 200);
    lines(dir.path(), 1);
    let whole = text_of(dir.path());
    // Half of a line fits.
    bound_files(&toolrein, &(whole.len() + 200).to_string());
    for stream in [false, true, false, true, false] {
        assert_eq!(chat(&toolrein, question(stream)).status, 200);
    }
    toolrein.wait_for_metric("toolrein_recordings_lost_total", 5.0);
    assert_eq!(text_of(dir.path()), whole, "no half of a line stays");
    let named = || {
        let logs = toolrein.logs();
        let losses = logs.iter().filter(|line| line.contains("requests are not recorded"));
        losses.cloned().collect::<Vec<_>>()
    };
    let losses = until("the line of the log", || Some(named()).filter(|losses| !losses.is_empty()));
    assert!(losses.len() == 1 && losses[0].contains("File too large"), "{losses:?}");
    bound_files(&toolrein, "unlimited");
    assert_eq!(chat(&toolrein, question(false)).status, 200);
    let kept = lines(dir.path(), 2);
    assert_eq!((kept.len(), toolrein.metric("toolrein_recordings_lost_total")), (2, 5.0));
    assert_eq!(named().len(), 1, "one line a minute, not one a request");
}
