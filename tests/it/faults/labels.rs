//! Names from outside in metrics and logs: hostile tools, models, paths and ids neither break a format nor move a
//! terminal's cursor, and make no more series than are allowed.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};

/// Names that break formats, terminals and readers.
fn hostile() -> Vec<String> {
    let names = [
        "a\"} 1\ntoolrein_evil_total{x=\"y",
        "a\\",
        "a\\\"",
        "a\nb",
        "a\r\nb",
        "{\"level\":\"error\",\"message\":\"forged\"}",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "\u{202e}txt.exe",
        "\u{0}",
        "\u{feff}\u{200b}",
        "\u{2028}\u{2029}\u{85}",
        "",
        " ",
        "__name__",
        "other",
        "f=allowed by=nobody",
        "ünïcödé",
    ];
    names.iter().map(|name| (*name).to_owned()).chain(["x".repeat(100_000)]).collect()
}

/// Sends one request with this name in every place where a name may occur.
fn ask(toolrein: &Toolrein, name: &str, stream: bool) {
    let call = json!({"id": name, "type": "function", "function": {"name": name, "arguments": name}});
    let body = json!({"model": name, "stream": stream, "prompt_cache_key": name, "messages": [
        {"role": "user", "content": "q", "name": name},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": "r".repeat(2000)},
    ], "tools": [{"type": "function", "function": {"name": name}}]});
    let printable: String = name.chars().filter(|c| (' '..='~').contains(c)).take(100).collect();
    let path: String = name.bytes().take(100).map(|byte| format!("%{byte:02X}")).collect();
    let url = format!("{}/v1/{path}/chat/completions?{path}", toolrein.origin());
    let request = Request::post(&url, body.to_string()).header("x-request-id", &printable);
    let request = request.header("traceparent", &printable).header("x-toolrein-profile", &printable);
    request.header("user-agent", &printable).send();
}

fn run(settings: &str) -> (String, Vec<String>) {
    let names = hostile();
    let said = names.clone();
    let upstream = Scripted::start(move |nth, request| {
        let name = said[nth / 2 % said.len()].as_str();
        Reply::speech(request, &Speech::calls(&[(name, name, name), (name, name, name)]))
    });
    let policies = "[policy.budget]\ntool_calls = 2\n[policy.truncate]\nmax_chars = 300\n[policy.allow]\n";
    let settings = format!("{settings}conversation.profile_header = false\n{policies}");
    let toolrein = Toolrein::before(&upstream, &settings);
    for name in &names {
        ask(&toolrein, name, false);
        ask(&toolrein, name, true);
    }
    let metrics = toolrein.metrics();
    (metrics, toolrein.stop())
}

/// Reads one label of `name="value",...` and gives what follows it.
fn label(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once("=\"")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(fits) {
        return None;
    }
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '"' if !escaped => return Some(&rest[at + 1..]),
            '\\' => escaped = !escaped,
            _ if escaped && !['n', '"'].contains(&c) => return None,
            _ => escaped = false,
        }
    }
    None
}

/// Whether a line is a sample of the text format, or a comment.
fn is_sample(line: &str) -> bool {
    if line.starts_with("# HELP ") || line.starts_with("# TYPE ") {
        return true;
    }
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(0);
    let Some(mut rest) = line[end..].strip_prefix('{') else {
        return line[end..].trim().parse::<f64>().is_ok();
    };
    loop {
        let Some(after) = label(rest) else { return false };
        match after.split_at_checked(1) {
            Some((",", more)) => rest = more,
            Some(("}", value)) => return end > 0 && value.trim().parse::<f64>().is_ok(),
            _ => return false,
        }
    }
}

#[test]
fn metrics_stay_readable_whatever_tools_are_called() {
    let (metrics, _) = run("");
    for line in metrics.lines() {
        assert!(is_sample(line), "{line:?}");
        assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
        assert!(line.len() < 600, "{} bytes in one line", line.len());
    }
    assert!(!metrics.contains("\ntoolrein_evil_total"), "{metrics}");
    assert!(metrics.contains("tool=\"unnamed\"") && metrics.contains("ünïcödé"));
}

#[test]
fn ten_thousand_names_of_tools_make_no_more_series_than_are_allowed() {
    let upstream = Scripted::start(|nth, request| {
        let names: Vec<String> = (0..100).map(|at| format!("tool_{nth}_{at}")).collect();
        let calls: Vec<(&str, &str, &str)> = names.iter().map(|name| ("c", name.as_str(), "{}")).collect();
        Reply::speech(request, &Speech::calls(&calls))
    });
    let toolrein = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 1000000\n");
    for _ in 0..100 {
        Request::post(&toolrein.chat_url(), crate::faults::hand::question(false)).send();
    }
    let metrics = toolrein.metrics();
    let series = metrics.lines().filter(|line| line.starts_with("toolrein_tool_calls_total{")).count();
    assert!(series <= 110 * 4, "{series} series");
    toolrein.wait_for_metric("toolrein_tool_calls_total", 10_000.0);
}

#[test]
fn every_line_of_a_json_log_is_one_object_whatever_was_asked() {
    let (_, lines) = run("log.format = \"json\"\n");
    assert!(lines.len() > 2 * hostile().len());
    for line in &lines {
        let read: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(read["message"] != "forged", "{line}");
        assert!(line.len() < 8000 && line.chars().all(|c| !c.is_control()), "{line:?}");
    }
}

#[test]
fn no_line_of_a_text_log_is_forged_or_moves_the_cursor() {
    let (_, lines) = run("log.format = \"text\"\n");
    for line in &lines {
        // A note begins with its time, the line of a request with the method.
        let is_note = line.starts_with("20") && line.contains("Z ");
        assert!(is_note || line.starts_with("POST "), "{line:?}");
        let hidden = |c: char| {
            c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}')
        };
        assert!(!line.chars().any(hidden), "{line:?}");
    }
}
