//! Tests of `toolrein replay`: recorded conversations run through the policies, the table and the JSON output, the
//! messages about broken lines, and what is never printed.
//!
//! `tests/data/replay/table.txt` and `report.json` are the expected output; where a policy's texts change, its byte
//! counts change too. Facts that do not depend on the texts are asserted here.

use policies::REGISTRY;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use toolrein::config::{Config, Overrides, Source};
use toolrein::replay::{Enforced, Options, run};

/// Runs `toolrein replay` in the folder of the test's data, with `input` on standard input.
fn replay(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
        command.env_remove(name);
    }
    command.current_dir(data()).arg("replay").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that ends before it has read all its input has already reported why.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/replay")
}

fn text(output: &Output) -> String {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nothing but the report, and no bar");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The report as JSON on `input`, with this configuration.
fn report(config: &str, input: &str) -> Value {
    let file = written(config);
    let output = replay(&["--json", "--config", file.path().to_str().unwrap(), "-"], input);
    serde_json::from_str(&text(&output)).unwrap()
}

fn written(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// A line: one question, then `calls` calls of `weather`, each with its result, then an answer.
fn talk(calls: usize, more: &str) -> String {
    let mut messages = r#"{"role":"user","content":"q"}"#.to_owned();
    for at in 0..calls {
        let call = format!(r#"{{"id":"c{at}","function":{{"name":"weather","arguments":"{{}}"}}}}"#);
        write!(messages, r#",{{"role":"assistant","tool_calls":[{call}]}}"#).unwrap();
        write!(messages, r#",{{"role":"tool","tool_call_id":"c{at}","content":"sunny"}}"#).unwrap();
    }
    format!("{{\"messages\":[{messages},{{\"role\":\"assistant\",\"content\":\"a\"}}]{more}}}\n")
}

const OURS: [&str; 3] = ["--config", "policies.toml", "conversations.jsonl"];

#[test]
fn replay_says_that_no_model_is_asked_for_summaries() {
    let file = written("[policy.compact]\nstyle = \"summary\"\n");
    let output = replay(&["--json", "--config", file.path().to_str().unwrap(), "-"], &talk(1, ""));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "toolrein: no model is asked for summaries here: results that would get one are shown as cleared\n"
    );
    assert!(output.status.success());
}

#[test]
fn the_table_shows_per_policy_and_source_what_would_have_been_done() {
    let output = replay(&OURS, "");
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output);
    assert_eq!(table, std::fs::read_to_string(data().join("table.txt")).unwrap());
    assert!(table.lines().all(|line| line.chars().count() <= 110), "{table}");
}

#[test]
fn the_json_says_the_same() {
    let written = text(&replay(&[&["--json"], &OURS[..]].concat(), ""));
    assert_eq!(written.lines().count(), 1);
    let report: Value = serde_json::from_str(&written).unwrap();
    let expected = std::fs::read_to_string(data().join("report.json")).unwrap();
    assert_eq!(report, serde_json::from_str::<Value>(&expected).unwrap());
    let policy = |name: &str| {
        let policies = report["policies"].as_array().unwrap();
        policies.iter().find(|policy| policy["policy"] == name).unwrap().clone()
    };
    // The seventh call of the loop; the fourth and fifth of the burst, but not of the slow one; the long result.
    assert_eq!(policy("budget")["blocked"], 1);
    assert_eq!(policy("rate_limit")["blocked"], 2);
    assert_eq!(policy("rate_limit")["solved_blocked"], 1);
    assert_eq!(policy("truncate")["actions"], json!({"shortened": 1}));
    assert!(policy("truncate")["bytes_saved"].as_i64().unwrap() > 2 * 3000);
    assert_eq!((&report["conversations"], &report["solved"]), (&json!(5), &json!(2)));
    assert_eq!((&report["requests"], &report["calls"]), (&json!(26), &json!(20)));
    assert_eq!((&report["prefix_kept_share"], &report["prefix_breaks"]), (&json!(1.0), &json!(0)));
    assert_eq!((&report["broken"], &report["continued"]), (&json!(2), &json!(1)));
}

#[test]
fn each_conversation_is_reported_where_that_is_asked_for() {
    let table = text(&replay(&[&["--verbose"], &OURS[..]].concat(), ""));
    let expected = "conversations.jsonl:3  bursts  burst: 6 requests, 5 calls, solved\n    \
                message 7: budget notice\n    message 8: rate_limit blocked weather (RATE_LIMIT)\n";
    assert!(table.contains(expected), "{table}");
    assert!(table.contains("\n    message 3: truncate shortened build\n"), "{table}");
    let lines = text(&replay(&[&["--verbose", "--json"], &OURS[..]].concat(), ""));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5 + 2 + 1);
    assert_eq!(
        lines[2]["actions"][1],
        json!({"message": 8, "policy": "rate_limit", "action": "blocked", "tool": "weather", "reason": "RATE_LIMIT"})
    );
    assert_eq!((&lines[4]["line"], &lines[4]["broken"]), (&json!(5), &json!("the line is not JSON")));
}

#[test]
fn the_shipped_policies_block_nothing_from_the_solved_conversations_of_the_sample() {
    let output = replay(&["--json", "../transcripts/sample.jsonl"], "");
    let report: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!((&report["conversations"], &report["solved"]), (&json!(17), &json!(11)));
    assert_eq!((&report["solved_blocked"], &report["prefix_breaks"]), (&json!(0), &json!(0)));
    assert!(report["sources"].as_array().unwrap().len() > 2);
}

#[test]
fn the_report_is_the_same_on_any_number_of_threads() {
    let (config, lines) = (std::fs::read_to_string(data().join("policies.toml")).unwrap(), sample());
    let source = Source::Text { name: "policies.toml".to_owned(), text: config };
    let config = Enforced::new(Config::load(source, &Overrides::default(), REGISTRY).unwrap());
    let file = written(&lines);
    let report = |threads, json| {
        let options = Options { pace: Duration::from_secs(2), verbose: true, json, threads, profile: None };
        let mut out = Vec::new();
        assert!(run(&config, &[file.path().to_owned()], &options, &mut out, None).unwrap());
        String::from_utf8(out).unwrap()
    };
    for json in [true, false] {
        let alone = report(1, json);
        for threads in [0, 2, 7] {
            assert_eq!(report(threads, json), alone);
        }
    }
}

/// Long and short conversations in turn, so that threads overtake each other.
fn sample() -> String {
    let recorded = std::fs::read_to_string(data().join("../transcripts/sample.jsonl")).unwrap();
    let short: String = (0..40).map(|at| talk(at % 5, &format!(",\"id\":{at}"))).collect();
    [recorded.as_str(), &short, "broken\n", &recorded].concat()
}

#[test]
fn the_pace_decides_where_no_times_are_recorded() {
    for (pace, blocked) in [("2s", 2), ("20s", 0), ("0s", 2)] {
        let args = ["--json", "--pace", pace, "--config", "policies.toml", "-"];
        let report: Value = serde_json::from_str(&text(&replay(&args, &talk(5, "")))).unwrap();
        assert_eq!(report["blocked"], blocked, "{pace}");
    }
}

#[test]
fn a_profile_is_taken_by_model_or_by_name() {
    let settings = "base = \"none\"\n[profile.few]\nmodels = [\"small*\"]\npolicy.budget.tool_calls = 2\n[profile.none]\npolicy.budget.tool_calls = 1";
    let config = written(settings);
    let path = config.path().to_str().unwrap();
    let blocked = |args: &[&str], model: &str| {
        let args = [&["--json", "--config", path], args, &["-"]].concat();
        let report = text(&replay(&args, &talk(5, &format!(",\"model\":\"{model}\""))));
        serde_json::from_str::<Value>(&report).unwrap()["blocked"].clone()
    };
    assert_eq!(blocked(&[], "small-1"), 3);
    assert_eq!(blocked(&[], "large-1"), 0);
    assert_eq!(blocked(&["--profile", "none"], "small-1"), 4);
    let output = replay(&["--config", path, "--profile", "no", "-"], &talk(5, ""));
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "toolrein: There is no profile of that name. Known here: few, none.\n");
}

#[test]
fn an_empty_file_and_one_that_is_not_there_are_no_success() {
    let empty = written("");
    let output = replay(&[empty.path().to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output), "Nothing to replay: no line holds a conversation.\n");
    let output = replay(&["none.jsonl"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("none.jsonl: cannot be read: "));
    let output = replay(&["none.jsonl", "-"], &talk(1, ""));
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).contains("\n1 conversation, 2 requests, 1 call;"));
}

#[test]
fn a_configuration_that_is_wrong_is_refused_before_anything_is_read() {
    let config = written("[policy.budget]\ntool_calls = -1\n");
    let output = replay(&["--config", config.path().to_str().unwrap(), "conversations.jsonl"], "");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tool_calls"));
}

#[test]
fn members_that_are_not_known_stay_in_the_request_and_what_the_recorder_added_does_not() {
    let bytes = |more: &str| report("[policy.truncate]", &talk(1, more))["bytes_before"].as_u64().unwrap();
    let plain = bytes("");
    assert_eq!(bytes(r#","annotations":{"of":[1,null]}"#), plain + 2 * 30);
    assert_eq!(bytes(r#","source":"s","reward":0.5,"usage":[{"upto":1,"prompt_tokens":9}]"#), plain);
}

#[test]
fn contents_are_never_shown_and_names_cannot_write_to_the_terminal() {
    let line = json!({
        "source": "one\u{1b}[2Jtwo", "id": "a\nb", "api_key": "secret",
        "messages": [
            {"role": "user", "content": "secret"},
            {"role": "assistant", "content": "secret", "tool_calls": [
                {"id": "secret", "function": {"name": "tool\u{7}", "arguments": "{\"secret\":\"secret\"}"}}]},
            {"role": "tool", "tool_call_id": "secret", "content": "secret"},
        ],
    });
    let config = written(
        "[policy.budget]\ntool_calls = 1\n[policy.rate_limit]\ntools = {}\ndefault = { calls = 1, per = \"60s\" }",
    );
    for form in [&["--verbose"][..], &["--verbose", "--json"]] {
        let args = [form, &["--config", config.path().to_str().unwrap(), "-"]].concat();
        let written = text(&replay(&args, &format!("{line}\n{{\"messages\":\"secret\"}}\n\"secret\n")));
        assert!(written.contains("budget") && !written.contains("secret"), "{written}");
        assert!(written.chars().all(|letter| letter == '\n' || !letter.is_control()), "{written:?}");
    }
}

#[test]
fn names_of_a_recording_cannot_turn_the_text_of_the_terminal() {
    let turning = "a\u{202e}b\u{2066}c\u{200f}d\u{61c}e";
    let line = json!({
        "source": turning, "id": turning,
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": turning, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "r"},
            {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": turning, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "2", "content": "r"},
        ],
    });
    let config = written("[policy.budget]\ntool_calls = 1\n");
    for form in [&["--verbose"][..], &["--verbose", "--json"]] {
        let args = [form, &["--config", config.path().to_str().unwrap(), "-"]].concat();
        let written = text(&replay(&args, &format!("{line}\n")));
        let turns = |letter: char| matches!(letter, '\u{200f}' | '\u{202e}' | '\u{2066}' | '\u{61c}');
        assert!(written.contains("budget") && !written.contains(turns), "{written:?}");
        // Programs read the same name all the same.
        let values = written.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let names = values.map(|value| value.to_string().contains(turning)).collect::<Vec<_>>();
        assert_eq!(names.contains(&true), form.len() == 2, "{written}");
    }
}

#[test]
fn broken_lines_are_named_up_to_five_and_all_are_counted() {
    let broken = "{\n".repeat(7);
    let output = replay(&["-", "--config", "policies.toml"], &format!("{broken}{}", talk(1, "")));
    let table = text(&output);
    assert!(table.contains("Not replayed: 7 lines\n  -:1: the line is not JSON\n"), "{table}");
    assert!(table.contains("  -:5: the line is not JSON\n  ... and 2 more\n"), "{table}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_line_longer_than_a_request_may_be_is_named_and_the_next_one_replayed() {
    let config = "limits.request_bytes = \"1KiB\"\n[policy.truncate]";
    let report = report(config, &[talk(50, ""), talk(1, "")].concat());
    assert_eq!((&report["conversations"], &report["broken"]), (&json!(1), &json!(1)));
    assert!(
        report["broken_lines"][0]["broken"].as_str().unwrap().contains("limits.request_bytes (1024 bytes)")
    );
}

#[test]
fn notices_that_do_not_stay_where_they_were_break_the_prefix() {
    let settings = "base = \"none\"\n[policy.budget]\ntool_calls = 10\nnotify = \"every_result\"\n";
    let kept = |placement: &str| {
        let report = report(&format!("notices.placement = \"{placement}\"\n{settings}"), &talk(8, ""));
        (report["prefix_breaks"].as_u64().unwrap(), report["prefix_kept_share"].as_f64().unwrap())
    };
    assert_eq!(kept("system"), (0, 1.0));
    assert_eq!(kept("suffix"), (0, 1.0));
    // From the fifth call on, each request's notice is at the top.
    let (breaks, share) = kept("leading");
    assert!(breaks == 4 && share < 0.6, "{breaks} {share}");
}

#[test]
fn requests_that_a_policy_refuses_stop_the_calls_after_them() {
    let report = report(
        "base = \"none\"\n[policy.budget]\ntool_calls = 2\nexhausted = \"reject\"\nnotify_at = [1]",
        &talk(4, ""),
    );
    assert_eq!((&report["requests"], &report["rejected"]), (&json!(5), &json!(3)));
    assert_eq!((&report["calls"], &report["blocked"]), (&json!(4), &json!(2)));
    assert_eq!(report["policies"][0]["actions"]["rejected"], 3);
    assert_eq!(report["conversations_blocked"], 1);
}

#[test]
fn the_mode_of_the_configuration_makes_no_difference() {
    let with =
        |mode: &str| report(&format!("mode = \"{mode}\"\n[policy.budget]\ntool_calls = 2\n"), &talk(4, ""));
    assert_eq!(with("off"), with("enforce"));
    assert_eq!(with("observe"), with("enforce"));
    assert_eq!(with("enforce")["blocked"], 2);
}

/// The same talk as [`talk`] as a request of the Responses API, each item with the time at which it was said.
fn items(calls: usize, more: &str) -> String {
    let mut input = r#"{"role":"user","content":"q"}"#.to_owned();
    for at in 0..calls {
        let time = format!(r#""timestamp":{}"#, 1_000_000_000 + at * 10);
        write!(input, r#",{{"type":"reasoning","id":"rs_{at}","summary":[],{time}}}"#).unwrap();
        write!(
            input,
            r#",{{"type":"function_call","call_id":"c{at}","name":"weather","arguments":"{{}}",{time}}}"#
        )
        .unwrap();
        write!(input, r#",{{"type":"function_call_output","call_id":"c{at}","output":"sunny"}}"#).unwrap();
    }
    let answer = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}"#;
    format!("{{\"input\":[{input},{answer}]{more}}}\n")
}

#[test]
fn requests_of_the_responses_api_are_replayed_beside_others() {
    let config = "[policy.budget]\ntool_calls = 4\nnotify_at = [0.5]\nnotify = \"every_result\"\n[policy.rate_limit]\ndefault = { calls = 3, per = \"60s\" }";
    let report = report(config, &[items(6, r#","id":"one""#), talk(6, "")].concat());
    assert_eq!((&report["conversations"], &report["broken"]), (&json!(2), &json!(0)));
    // Each: seven requests, six calls. By recorded times all calls lie within a minute, by the pace too.
    assert_eq!((&report["requests"], &report["calls"]), (&json!(14), &json!(12)));
    assert_eq!((&report["blocked"], &report["prefix_breaks"]), (&json!(6), &json!(0)));
    let stateful = r#"{"model":"m","previous_response_id":"resp_1","input":[{"type":"function_call_output","call_id":"c","output":"r"}]}"#;
    let text = r#"{"model":"m","input":"q"}"#;
    let lines = [
        stateful,
        stateful,
        text,
        r#"{"model":"m","previous_response_id":"resp_1"}"#,
        r#"{"model":"m","input":7}"#,
    ];
    let report = self::report(config, &lines.join("\n"));
    assert_eq!(
        (&report["conversations"], &report["continued"]),
        (&json!(4), &json!(0)),
        "equal results are no history"
    );
    assert_eq!((&report["requests"], &report["broken"]), (&json!(3), &json!(1)));
}

#[test]
fn bodies_of_the_responses_api_that_go_on_with_each_other_are_one_conversation() {
    let body = |items: usize| {
        let said = (0..items).map(
            |at| json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": format!("{at}")}),
        );
        format!("{}\n", json!({"model": "m", "input": said.collect::<Value>()}))
    };
    let report = report("[policy.budget]", &[1, 3, 3, 5].map(body).concat());
    assert_eq!((&report["conversations"], &report["continued"]), (&json!(1), &json!(3)));
}

#[test]
fn equal_conversations_count_each() {
    let report = report("[policy.budget]", &talk(2, "").repeat(3));
    assert_eq!((&report["conversations"], &report["continued"]), (&json!(3), &json!(0)));
}

#[test]
fn request_bodies_of_one_conversation_count_once_however_many_run_at_a_time() {
    let body = |talk: usize, messages: usize| {
        let said: Vec<Value> = (0..messages)
            .map(|at| json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": format!("{talk} {at}")}))
            .collect();
        format!("{}\n", json!({"model": "m", "messages": said}))
    };
    let lines: String =
        [1, 3, 3, 5].into_iter().flat_map(|most| (0..9).map(move |talk| body(talk, most))).collect();
    let report = report("[policy.budget]", &lines);
    assert_eq!((&report["conversations"], &report["continued"]), (&json!(9), &json!(27)));
    assert_eq!(report["requests"], 9 * 3);
}

/// A recorded exchange of the Responses API: what is new in the request, the upstream's id of the reply before, and the
/// reply, whole or as a stream.
fn exchange(nth: usize, before: Option<usize>, streamed: bool) -> String {
    let call = json!({"type": "function_call", "id": format!("fc_{nth}"), "call_id": format!("call_{nth}"),
        "name": "search", "arguments": "{}", "status": "completed"});
    let response =
        json!({"id": format!("resp_{nth}"), "object": "response", "status": "completed", "output": [call]});
    let event = json!({"type": "response.completed", "response": response});
    let reply =
        if streamed { json!(format!("event: response.completed\ndata: {event}\n\n")) } else { response };
    let input = match before {
        Some(before) => {
            json!([{"type": "function_call_output", "call_id": format!("call_{before}"), "output": format!("r{nth}")}])
        }
        None => json!("Find it."),
    };
    let tool = json!({"type": "function", "name": "search", "parameters": {}});
    let mut request = json!({"model": "m", "input": input, "tools": [tool]});
    if let Some(before) = before {
        request["previous_response_id"] = json!(format!("resp_{before}"));
    }
    format!(
        "{}\n",
        json!({"request": request, "response": reply, "source": "recorder", "model": "m", "took_ms": 7})
    )
}

#[test]
fn recorded_exchanges_whose_history_is_upstream_are_one_conversation() {
    for streamed in [false, true] {
        let lines = |count: usize| -> String {
            (0..count).map(|nth| exchange(nth, nth.checked_sub(1), streamed)).collect()
        };
        let report = report("[policy.budget]\ntool_calls = 4\n", &lines(6));
        assert_eq!((&report["conversations"], &report["calls"]), (&json!(1), &json!(6)), "{report:#}");
        assert_eq!(report["blocked"], 2, "{report:#}");
        assert_eq!(report["sources"][0]["source"], "recorder", "{report:#}");
        // Two ways on from the same reply are two conversations.
        let forked = format!("{}{}", lines(3), exchange(7, Some(1), streamed));
        assert_eq!(self::report("", &forked)["conversations"], 2);
    }
}

#[test]
fn exchanges_of_a_client_that_sends_the_history_itself_are_one_conversation() {
    let said = |text: &str| json!({"role": "user", "content": text});
    let reply = |text: &str| json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    let chunk =
        json!({"choices": [{"delta": {"role": "assistant", "content": "two"}, "finish_reason": "stop"}]});
    let streamed = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    let again = json!({"role": "assistant", "content": "one"});
    let lines = [
        json!({"request": {"model": "m", "messages": [said("a")]}, "response": reply("one")}),
        json!({"request": {"model": "m", "messages": [said("a"), again, said("b")]}, "response": streamed}),
    ];
    let report = report("", &format!("{}\n{}\n", lines[0], lines[1]));
    assert_eq!((&report["conversations"], &report["broken"]), (&json!(1), &json!(0)), "{report:#}");
}

#[test]
fn exchanges_that_cannot_be_read_are_named_and_an_error_adds_nothing_to_the_conversation() {
    let request = json!({"model": "m", "input": "q"});
    let lines = [
        json!({"request": request, "response": {"error": {"message": "no"}}}),
        json!({"request": request, "response": "data: broken"}),
        json!({"request": "text", "response": {}}),
        json!({"request": {"model": "m", "previous_response_id": "resp_1"}, "response": {}}),
    ];
    let report = report("", &lines.map(|line| format!("{line}\n")).concat());
    assert_eq!((&report["conversations"], &report["broken"]), (&json!(1), &json!(2)), "{report:#}");
}

#[test]
fn tools_that_no_conversation_calls_are_listed_with_what_their_definitions_cost() {
    let tool = |name: &str, description: &str| json!({"type": "function", "function": {"name": name, "description": description, "parameters": {}}});
    let line = |calls: usize, tools: Value| {
        let mut line: Value = serde_json::from_str(&talk(calls, "")).unwrap();
        line["tools"] = tools;
        format!("{line}\n")
    };
    let long = "Writes. ".repeat(100);
    let tools = json!([tool("weather", "Says."), tool("write", &long), tool("read", "Reads.")]);
    let input = line(1, tools) + &line(0, json!([tool("weather", "Says."), tool("read", "Reads.")]));
    let report = report("base = \"none\"\n", &input);
    let unused = report["unused_tools"].as_array().unwrap();
    let named: Vec<(&str, u64)> =
        unused.iter().map(|it| (it["tool"].as_str().unwrap(), it["requests"].as_u64().unwrap())).collect();
    assert_eq!(named, [("write", 2), ("read", 3)], "the costliest first, the called one not at all");
    assert!(unused[0]["tokens"].as_u64() > unused[1]["tokens"].as_u64(), "{unused:?}");
    let file = written("base = \"none\"\n");
    let table = text(&replay(&["--config", file.path().to_str().unwrap(), "-"], &input));
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = rows.iter().position(|row| row.starts_with(&["declared,", "never", "called"])).unwrap();
    assert_eq!((rows[head + 1][0], rows[head + 1][1], rows[head + 2][0]), ("write", "2", "read"), "{table}");
}

/// The report on files of exports.
fn report_on(files: &[&str]) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/exports");
    let mut program = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    let output = program.current_dir(folder).args(["replay", "--json"]).args(files).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn whole_documents_and_exports_of_other_programs_are_read() {
    for (files, conversations, continued, calls) in [
        (&["conversation.json"][..], 1, 0, 1),
        (&["conversations.json"], 2, 0, 1),
        (&["batch_input.jsonl", "batch_output.jsonl"], 2, 2, 2),
        (&["langsmith.json"], 1, 1, 1),
        (&["langchain.jsonl"], 1, 1, 1),
        (&["langfuse_trace.json"], 1, 1, 1),
        (&["langfuse_observations.json"], 1, 1, 1),
    ] {
        let report = report_on(files);
        let found =
            ["conversations", "continued", "calls", "broken"].map(|name| report[name].as_u64().unwrap());
        assert_eq!(found, [conversations, continued, calls, 0], "{files:?} {report}");
    }
}

#[test]
fn an_export_without_requests_says_what_is_missing() {
    for (file, expected) in [
        ("batch_output.jsonl", "give the batch's input file before it"),
        ("stored_completions.json", "export its messages too"),
    ] {
        let report = report_on(&[file]);
        let named = report["broken_lines"][0]["broken"].as_str().unwrap();
        assert!(report["conversations"] == 0 && named.contains(expected), "{report}");
    }
}

#[test]
fn replay_counts_what_follows_the_first_block_separately() {
    let config = "[policy.budget]\ntool_calls = 1\n";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, config.as_bytes()).unwrap();
    let call = |id: usize| {
        let function = serde_json::json!({"name": "f", "arguments": format!("{{\"n\":{id}}}")});
        let calls = serde_json::json!([{"id": format!("c{id}"), "type": "function", "function": function}]);
        let result = serde_json::json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": format!("r{id}")});
        [serde_json::json!({"role": "assistant", "content": null, "tool_calls": calls}), result]
    };
    let mut messages = vec![serde_json::json!({"role": "user", "content": "q"})];
    messages.extend((0..4).flat_map(call));
    let mut talk = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut talk, serde_json::json!({"messages": messages}).to_string().as_bytes())
        .unwrap();
    let paths = [file.path().to_str().unwrap(), talk.path().to_str().unwrap()];
    let run = |more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        program.args(["replay", "--config", paths[0], paths[1]]).args(more).output().unwrap().stdout
    };
    let report: Value = serde_json::from_slice(&run(&["--json"])).unwrap();
    assert_eq!(
        (&report["calls"], &report["blocked"]),
        (&serde_json::json!(4), &serde_json::json!(3)),
        "{report}"
    );
    let after = &report["after_first_block"];
    let counted = ["conversations", "requests", "calls", "estimated_calls_avoided"]
        .map(|name| after[name].as_u64().unwrap());
    assert_eq!(counted, [1, 3, 2, 2], "{report}");
    let text = String::from_utf8(run(&[])).unwrap();
    assert!(text.contains("counterfactual") && text.contains("an estimate of calls avoided"), "{text}");
}
