//! Tests of `toolrein explain`: one recorded conversation as the model would see it, for a terminal, as a page and as
//! JSON; which conversation is chosen, and that its contents reach the terminal and the page only as text.
//!
//! `tests/data/explain` holds the expected output; it changes with the policies' texts.

use policies::REGISTRY;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use toolrein::config::{Config, Overrides, Source};
use toolrein::explain::{Form, Options, Which, run};
use toolrein::replay::Enforced;

/// Runs a command of `toolrein` in the folder of replay's data, with `input` on standard input.
fn toolrein(command: &str, args: &[&str], input: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
        program.env_remove(name);
    }
    program.current_dir(data("replay")).arg(command).args(args);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    // A program that ends before it has read all its input has already reported why.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn explain(args: &[&str], input: &str) -> Output {
    toolrein("explain", args, input)
}

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder)
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn facts(args: &[&str], input: &str) -> Value {
    serde_json::from_str(&text(&explain(&[&["--json"], args].concat(), input))).unwrap()
}

const OURS: [&str; 3] = ["--config", "policies.toml", "conversations.jsonl"];

#[test]
fn explain_says_that_no_model_is_asked_for_summaries() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[policy.compact]\nstyle = \"summary\"\n").unwrap();
    let talk = r#"{"messages":[{"role":"user","content":"q"}]}"#;
    let output = explain(&["--config", file.path().to_str().unwrap(), "-"], talk);
    text(&output);
    assert!(said(&output).contains("no model is asked for summaries here"), "{}", said(&output));
}

#[test]
fn a_terminal_reads_what_was_cut_added_and_blocked() {
    for (line, golden) in [("2", "cut.txt"), ("3", "burst.txt")] {
        let output = explain(&[&["--line", line], &OURS[..]].concat(), "");
        assert_eq!(said(&output), "");
        let shown = text(&output);
        assert_eq!(shown, std::fs::read_to_string(data("explain").join(golden)).unwrap(), "{golden}");
        assert!(!shown.contains('\x1b'), "a pipe takes no colours");
    }
}

#[test]
fn the_json_names_message_policy_and_reason() {
    let burst = facts(&[&["--line", "3"], &OURS[..]].concat(), "");
    assert_eq!((&burst["id"], &burst["placement"]), (&json!("burst"), &json!("system")));
    let messages = burst["messages"].as_array().unwrap();
    let blocked: Vec<_> =
        messages.iter().filter(|message| message["calls"][0]["ruling"] == "blocked").collect();
    let places: Vec<_> = blocked.iter().map(|message| &message["message"]).collect();
    assert_eq!(places, [8, 10]);
    let call = &blocked[0]["calls"][0];
    assert_eq!((&call["by"], &call["tool"]), (&json!("rate_limit"), &json!("weather")));
    assert_eq!(call["objections"][0]["reason"], "RATE_LIMIT");
    let result = messages.iter().find(|message| message["message"] == 9).unwrap();
    assert_eq!(result["instead"], call["result"]);
    assert_eq!((&burst["totals"]["calls"], &burst["totals"]["blocked"]), (&json!(5), &json!(2)));
    assert!(
        burst["limits"]
            .as_array()
            .unwrap()
            .contains(&json!({"policy": "rate_limit", "tool": "weather", "used": 3, "limit": 3}))
    );
    let cut = facts(&[&["--line", "2"], &OURS[..]].concat(), "");
    let result = &cut["messages"][3];
    assert_eq!((&result["tool"], &result["fate"]), (&json!("build"), &json!("changed")));
    assert_eq!(
        (&result["acts"][0]["policy"], &result["acts"][0]["action"]),
        (&json!("truncate"), &json!("shortened"))
    );
    let (before, after) = (&result["before"]["tokens"], &result["after"]["tokens"]);
    let saved = before.as_i64().unwrap() - after.as_i64().unwrap();
    assert!((saved - result["acts"][0]["saved_tokens"].as_i64().unwrap()).abs() <= 1);
}

#[test]
fn it_blocks_and_edits_exactly_what_replay_does() {
    let sample = "../transcripts/sample.jsonl";
    for args in [vec!["--config", "policies.toml", sample], OURS.to_vec()] {
        let replayed = text(&toolrein("replay", &[&["--json", "--verbose"], &args[..]].concat(), ""));
        let replayed: Vec<Value> = replayed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let conversations = replayed.iter().filter(|shown| shown["actions"].is_array());
        for shown in conversations {
            let line = shown["line"].to_string();
            let explained = facts(&[&["--line", &line], &args[..]].concat(), "");
            let blocked =
                shown["actions"].as_array().unwrap().iter().filter(|act| act["action"] == "blocked");
            let expected: Vec<Value> = blocked
                .map(|act| json!([act["message"], act["policy"], act["tool"], act["reason"]]))
                .collect();
            let mut found = Vec::new();
            for message in explained["messages"].as_array().unwrap() {
                for call in message["calls"].as_array().unwrap() {
                    let objections = call["objections"].as_array().unwrap().iter();
                    found.extend(objections.map(|objection| {
                        json!([message["message"], objection["policy"], call["tool"], objection["reason"]])
                    }));
                }
            }
            assert_eq!(found, expected, "line {line}");
        }
    }
}

#[test]
fn a_conversation_is_chosen_by_its_line_or_its_id_and_else_the_first() {
    let id = |output: &Output| text(output).lines().next().unwrap().to_owned();
    let first = explain(&OURS, "");
    assert!(id(&first).contains("id loop"), "{}", id(&first));
    let several =
        "toolrein: conversations.jsonl holds 5 conversations; this is line 1 (--line N or --id ID chooses)\n";
    assert!(said(&first).starts_with(several), "{}", said(&first));
    let second = explain(&[&["--id", "slow burst"], &OURS[..]].concat(), "");
    assert!(
        id(&second).starts_with("conversations.jsonl:4  source bursts  id slow burst"),
        "{}",
        id(&second)
    );
    assert_eq!(said(&second), "");
    // Of request bodies that go on with each other the last one is the conversation.
    let talk = |more: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}{more}]}}"#);
    let grown = format!(
        "{}\n{}\n",
        talk(""),
        talk(r#",{"role":"assistant","content":"a"},{"role":"user","content":"q"}"#)
    );
    let last = explain(&["-"], &grown);
    assert!(id(&last).starts_with("-:2  model m"), "{}", id(&last));
    assert_eq!(said(&last), "");
}

#[test]
fn the_exit_code_says_whether_there_was_anything_to_show() {
    for (args, input, code, words) in [
        (
            &["--line", "5", "conversations.jsonl"][..],
            "",
            1,
            "toolrein: conversations.jsonl:5: the line is not JSON\n",
        ),
        (&["--line", "99", "conversations.jsonl"], "", 1, "no line 99, or nothing in it"),
        (&["--id", "x\u{1b}[2J", "conversations.jsonl"], "", 1, "no conversation with the id x␛[2J"),
        (&["none.jsonl"], "", 1, "none.jsonl: cannot be read"),
        (&["-"], "", 1, "no conversation in it"),
        (&["--config", "none.toml", "-"], "{}", 2, "none.toml"),
        (&["--profile", "none", "conversations.jsonl"], "", 2, "no profiles are configured"),
        (&["--line", "1", "--id", "x", "-"], "", 2, "cannot be used with"),
        (&["--html", "--json", "-"], "", 2, "cannot be used with"),
        (&[], "", 2, "FILE"),
    ] {
        let output = explain(args, input);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(said(&output).contains(words), "{args:?}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_request_of_the_responses_api_is_explained_message_by_message() {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    config.write_all(b"notices.placement = \"system\"\n[policy.budget]\ntool_calls = 4\nnotify_at = [0.2]\nnotify = \"every_result\"\n[policy.truncate]\nmax_chars = 200\n").unwrap();
    let config = config.path().to_str().unwrap();
    let call = |at: u8| {
        let id = format!("call_{at}");
        json!([
            {"type": "reasoning", "id": format!("rs_{at}"), "summary": []},
            {"type": "function_call", "call_id": id, "name": "build", "arguments": format!("{{\"n\":{at}}}")},
            {"type": "function_call_output", "call_id": id, "output": [{"type": "input_text", "text": "a line\n".repeat(90)}]},
        ])
    };
    let items = [
        json!([{"role": "developer", "content": "s"}, {"role": "user", "content": "q"}]),
        call(1),
        call(2),
        call(3),
        call(4),
        call(5),
    ];
    let input: Value = items.iter().flat_map(|items| items.as_array().unwrap().clone()).collect();
    let told = facts(&["--config", config, "-"], &json!({"model": "m", "input": input}).to_string());
    let messages = told["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles[..5], ["system", "user", "assistant", "tool", "system"], "{roles:?}");
    assert_eq!((&messages[3]["tool"], &messages[3]["fate"]), (&json!("build"), &json!("changed")));
    assert_eq!((&messages[4]["fate"], &messages[0]["fate"]), (&json!("added"), &json!("same")));
    assert_eq!((&told["totals"]["calls"], &told["totals"]["blocked"]), (&json!(5), &json!(1)));
    let text = facts(&["--config", config, "-"], r#"{"model":"m","input":"q"}"#);
    assert_eq!(text["messages"][0]["pieces"][0]["after"], "q");
}

#[test]
fn a_refused_request_is_told_where_it_would_have_gone_out() {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    config.write_all(b"[policy.budget]\ntool_calls = 1\nexhausted = \"reject\"\n").unwrap();
    let config = config.path().to_str().unwrap();
    let shown = text(&explain(&["--line", "3", "--config", config, "conversations.jsonl"], ""));
    assert!(shown.contains("budget refused the request that ends with this message"), "{shown}");
    assert!(shown.contains("never made: its request was refused"), "{shown}");
    let page = text(&explain(&["--html", "--line", "3", "--config", config, "conversations.jsonl"], ""));
    assert!(page.contains("request refused") && page.contains("not sent"), "{page}");
    balanced(&page);
}

/// A conversation with `hostile` in every field that can hold it, long enough to be cut.
fn hostile(hostile: &str) -> String {
    let long = format!("{hostile} and words enough to be cut\n").repeat(120);
    let call = json!({"id": hostile, "type": hostile, "function": {"name": hostile, "arguments": hostile}});
    let part = json!({"type": hostile, "image_url": hostile});
    let line = json!({
        "source": hostile, "id": hostile, "model": hostile, "user": hostile,
        "tools": [{"type": "function", "function": {"name": hostile, "description": hostile}}],
        "messages": [
            {"role": "system", "content": hostile, "name": hostile},
            {"role": hostile, "content": hostile},
            {"role": "user", "content": [{"type": "text", "text": hostile}, part], "name": hostile},
            {"role": "assistant", "content": hostile, "tool_calls": [call, call, call, call]},
            {"role": "tool", "tool_call_id": hostile, "name": hostile, "content": long},
            {"role": "function", "name": hostile, "content": long},
            {"role": "user", "content": {hostile: hostile}},
            {"role": "assistant", "content": hostile, "function_call": {"name": hostile, "arguments": hostile}},
            {"role": "function", "name": hostile, "content": hostile},
            {"role": "assistant", "content": hostile, hostile: hostile},
        ],
    });
    format!("{line}\n")
}

/// A configuration with a limit for this tool, under which calls are blocked.
fn strict(tool: &str) -> tempfile::NamedTempFile {
    let mut config = tempfile::NamedTempFile::new().unwrap();
    let name = json!(tool).to_string();
    write!(config, "[policy.truncate]\nmax_chars = 1000\n[policy.rate_limit]\ntools = {{ {name} = {{ calls = 1, per = \"60s\" }} }}\n")
        .unwrap();
    config
}

#[test]
fn nothing_in_a_conversation_is_more_than_text_on_the_page() {
    let script = r#"<script>alert("x")</script>'"><img src=x onerror=alert(1)>&lt;</pre></style><!--"#;
    let config = strict(script);
    for more in [&[][..], &["--full"]] {
        let args = [&["--html", "--config", config.path().to_str().unwrap(), "-"], more].concat();
        let page = text(&explain(&args, &hostile(script)));
        let lower = page.to_lowercase();
        for forbidden in
            ["<script", "<img", "onerror=alert(1)>", "<!--", "http:", "https:", "url(", "@import", "src=\""]
        {
            assert!(!lower.contains(forbidden), "the page holds {forbidden}");
        }
        assert_eq!(lower.matches("</style>").count(), 1);
        assert!(
            page.matches("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;'&quot;&gt;&lt;img").count() > 20
        );
        assert!(page.contains("blocked</em>"), "something happened to it");
        assert!(page.contains("default-src 'none'"), "and no script would run");
        balanced(&page);
    }
}

#[test]
fn no_escape_of_a_conversation_reaches_the_terminal() {
    let escapes = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{8}\u{9b}31m\u{202e}\u{200b}\u{7f}\u{e0041}";
    let config = strict("x");
    let config = Source::File(config.path().to_owned());
    let config = Enforced::new(Config::load(config, &Overrides::default(), REGISTRY).unwrap());
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(hostile(escapes).as_bytes()).unwrap();
    for (colour, full) in [(false, false), (true, false), (true, true)] {
        let which = Which::Id(escapes.to_owned());
        let form = Form::Text { colour };
        let options = Options { which, form, full, profile: None, pace: Duration::from_secs(2) };
        let (mut out, mut aside) = (Vec::new(), Vec::new());
        assert!(run(&config, file.path(), &options, &mut out, &mut aside).unwrap());
        let mut shown = String::from_utf8(out).unwrap();
        assert_eq!(shown.contains("\x1b["), colour);
        // Our own colours, and nothing else.
        for code in ["0", "1", "2", "31", "32", "33"] {
            shown = shown.replace(&format!("\x1b[{code}m"), "");
        }
        let bad = shown.chars().find(|letter| {
            letter.is_control() && *letter != '\n' || ['\u{202e}', '\u{200b}', '\u{e0041}'].contains(letter)
        });
        assert_eq!(bad, None, "{shown}");
        assert!(shown.contains("␛]0;title␇␛[2J"), "{shown}");
    }
}

#[test]
fn the_page_is_well_formed_and_stands_alone() {
    for line in ["1", "2", "3"] {
        let page = text(&explain(&[&["--html", "--line", line], &OURS[..]].concat(), ""));
        balanced(&page);
        assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        for needed in
            ["name=\"viewport\"", "prefers-color-scheme: dark", "max-width: 46rem", "<main>", "<h1>"]
        {
            assert!(page.contains(needed), "{needed}");
        }
        for outside in ["http:", "https:", "<script", "<link", "url(", " src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
    let page = text(&explain(&[&["--html", "--line", "2"], &OURS[..]].concat(), ""));
    assert!(page.contains("<del>line 007: all is well") && page.contains("<ins>[toolrein: cut"), "{page}");
    let full = text(&explain(&[&["--html", "--full", "--line", "2"], &OURS[..]].concat(), ""));
    assert!(page.contains("characters not shown here") && !full.contains("characters not shown here"));
}

#[test]
fn the_page_begins_with_the_verdict_and_its_bars_are_red_where_nothing_is_left() {
    let page = |line: &str| text(&explain(&[&["--html", "--line", line], &OURS[..]].concat(), ""));
    let burst = page("3");
    let verdict = burst.split_once("<p class=\"verdict\">").unwrap().1.split_once("</p>").unwrap().0;
    assert!(
        verdict.starts_with("2 of 5 calls would have been blocked, the first by rate_limit, and"),
        "{verdict}"
    );
    for figure in
        ["<dt>calls</dt><dd>5", "<dt>blocked</dt><dd>2", "<dt>notices</dt><dd>3", "<dt>removed</dt><dd>"]
    {
        assert!(burst.contains(figure), "{figure}: {burst}");
    }
    assert!(burst.contains("<div class=\"gauge over\"><i style=\"width:100%\">"), "{burst}");
    assert!(burst.contains("used up") && burst.contains("class=\"legend\""), "{burst}");
    let line = "A live run would have gone another way from here.";
    let (before, after) = burst.split_once(line).unwrap();
    assert!(
        before.contains("id=\"m8\"") && after.contains("id=\"m9\"") && !after.contains(line),
        "once, after the first"
    );
    let cut = page("2");
    assert!(cut.contains(" would have run, and the model would have read ") && !cut.contains(line), "{cut}");
    assert!(cut.contains("class=\"gauge\"") || !cut.contains("class=\"gauge over\""), "{cut}");
}

#[test]
fn a_call_that_was_blocked_live_changes_nothing_of_what_follows() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "pay", "arguments": "{}"}});
    let asked = json!([{"role": "user", "content": "Pay!"}]);
    let line = |mode: &str| {
        let objections = json!([{"policy": "kill", "reason": "CONVERSATION_STOPPED", "message": "Stopped.", "numbers": {}}]);
        let done = json!({"time": "2026-01-01T00:00:00.000Z", "ms": 1, "request_id": "r", "mode": mode, "status": 200,
            "reasks": 0, "hidden": [], "limits": [], "refusal": null,
            "calls": [{"tool": "pay", "id": "a", "verdict": "block", "objections": objections}]});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let reply = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
        json!({"id": "c", "toolrein": done, "request": {"model": "m", "messages": asked}, "response": reply})
            .to_string()
    };
    let mut config = tempfile::NamedTempFile::new().unwrap();
    config.write_all(b"[policy.allow]\nexcept = [\"pay\"]\n").unwrap();
    let config = config.path().to_str().unwrap();
    for (mode, expected) in [("enforce", Value::Null), ("observe", json!(1))] {
        let shown = facts(&["--config", config, "-"], &line(mode));
        assert_eq!(shown["messages"][1]["calls"][0]["ruling"], "blocked", "{shown}");
        assert_eq!(shown["counterfactual_after"], expected, "{mode}: {shown}");
    }
}

/// Every tag of the page is closed where it must be, in order.
fn balanced(page: &str) {
    let style = page.find("<style>").unwrap()..page.find("</style>").unwrap();
    let page = format!("{}{}", &page[..style.start + "<style>".len()], &page[style.end..]);
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "<{tag}>"),
            None if ["!DOCTYPE", "meta", "input"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?} never closed");
}

#[test]
fn where_a_call_needs_an_approval_the_page_says_that_it_is_unknown() {
    let mut config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    config.write_all(b"[policy.confirm]\ntools = [\"pay\"]\n").unwrap();
    let config = config.path().to_str().unwrap();
    let talk = |tool: &str| {
        json!({"messages": [
            {"role": "user", "content": "Pay!"},
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": tool, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "paid"},
        ]})
        .to_string()
    };
    for (tool, expected) in [("pay", true), ("look", false)] {
        for form in [&[][..], &["--html"]] {
            let shown = text(&explain(&[&["--config", config], form, &["-"]].concat(), &talk(tool)));
            assert_eq!(
                shown.contains("A recording does not show whether a person approved a call"),
                expected,
                "{tool} {form:?}"
            );
        }
    }
}
