//! What one sees at a terminal: the dashboard's address with its token, one short line a request, and Ctrl-C that reaches
//! the command of `run` once.

use super::support::client::Request;
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Runs a program at a terminal of its own, types what its second argument says after the text that its first one says, a
/// character whenever something is printed, and copies what it prints.
const TERMINAL: &str = r#"
import os, pty, signal, sys, time
signal.alarm(60)
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[3], sys.argv[3:])
seen = b""
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    seen += data
    if sys.argv[2] and sys.argv[1].encode() in seen:
        time.sleep(0.05)
        os.write(terminal, sys.argv[2][0].encode())
        sys.argv[2] = sys.argv[2][1:]
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
"#;

/// A program at a terminal; it is killed if the test ends before it does.
pub(super) struct Terminal {
    child: Child,
    output: BufReader<ChildStdout>,
    seen: Vec<String>,
    /// Removed with it.
    _home: Option<TempDir>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn start(typed: &str, arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut terminal = Self::start_at(home.path(), ("ready", typed), arguments);
        terminal._home = Some(home);
        terminal
    }

    /// Starts the program in this folder, which is the home directory too. After the first text the second is typed.
    pub(super) fn start_at(folder: &Path, (after, typed): (&str, &str), arguments: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", TERMINAL, after, typed, env!("CARGO_BIN_EXE_toolrein")]).args(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
            command.env_remove(name);
        }
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME").env_remove("CODEX_HOME");
        command
            .env("HOME", folder)
            .env("TERM", "xterm")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output, seen: Vec::new(), _home: None }
    }

    /// The first line that contains `text`; lines of the log and others come in any order.
    pub(super) fn line(&mut self, text: &str) -> String {
        while !self.seen.iter().any(|line| line.contains(text)) {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "no line has {text:?}:\n{}", self.seen.join("\n"));
            self.seen.push(line.trim_end().to_owned());
        }
        self.seen.iter().find(|line| line.contains(text)).cloned().unwrap()
    }
}

#[test]
fn the_dashboards_address_with_a_token_is_shown_and_each_request_is_a_short_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "[policy.allow]\nexcept = [\"web_search\"]\n[policy.budget]\ntool_calls = 9\n")
        .unwrap();
    let file = file.to_str().unwrap();
    let arguments =
        ["serve", "--upstream", "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-c", file];
    let mut terminal = Terminal::start("", &arguments);
    let listening = terminal.line(" listening ");
    let proxy = listening.split(' ').find_map(|word| word.strip_prefix("proxy=")).unwrap();
    let changes = terminal.line("your file changes");
    assert!(
        changes.ends_with("your file changes 2 settings: policy.budget.tool_calls, policy.allow.except"),
        "{changes}"
    );
    let address = terminal.line("Dashboard: ");
    let (page, token) = address.strip_prefix("Dashboard: ").unwrap().split_once("#token=").unwrap();
    let ask = |token: &str| {
        let request = Request::new("GET", &format!("{page}api/conversations"), "");
        request.header("authorization", &format!("Bearer {token}")).send().status
    };
    assert_eq!((ask(token), ask("another-token-of-32-characters-xx")), (200, 401));
    let tool =
        json!({"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}});
    let body =
        json!({"model": "demo-stuck", "messages": [{"role": "user", "content": "Go."}], "tools": [tool]});
    Request::post(&format!("http://{proxy}/v1/chat/completions"), body.to_string()).send();
    let line = terminal.line("POST ");
    assert!(line.starts_with("POST chat demo-stuck 200 ") && line.contains(" ms  "), "{line}");
    assert!(line.contains("web_search BLOCKED by allow: web_search may not be called here"), "{line}");
}

#[test]
fn without_a_terminal_no_token_is_made_and_the_lines_are_json() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    command.args(["serve", "--upstream", "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut child = command.current_dir(std::env::temp_dir()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let listening = lines.by_ref().map_while(Result::ok).find(|line| line.contains("\"listening\"")).unwrap();
    let line: serde_json::Value = serde_json::from_str(&listening).unwrap();
    let page = format!("http://{}/api/conversations", line["admin"].as_str().unwrap());
    let status = Request::new("GET", &page, "").send().status;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(status, 404);
    assert!(lines.map_while(Result::ok).all(|line| !line.contains("token=")));
}

#[test]
fn an_interrupt_of_the_terminal_reaches_the_command_once_and_it_decides() {
    let script = "n=0; trap 'n=$((n+1))' INT; echo ready; i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; echo total $n";
    let mut terminal = Terminal::start("\u{3}", &["run", "--upstream", "demo", "--", "sh", "-c", script]);
    assert!(terminal.line("total ").ends_with("total 1"));
    assert!(terminal.line("toolrein: ").contains("no model request came"));
}

#[test]
fn after_three_interrupts_in_vain_a_line_says_how_to_end_the_command() {
    let script = "trap '' INT; echo ready; while :; do sleep 0.05; echo tick; done";
    let mut terminal =
        Terminal::start("\u{3}\u{3}\u{3}", &["run", "--upstream", "demo", "--", "sh", "-c", script]);
    let line = terminal.line("has not ended");
    let id = line.split("`kill -9 ").nth(1).and_then(|rest| rest.strip_suffix("` ends it"));
    let killed = Command::new("kill").args(["-9", id.expect(&line)]).status().unwrap();
    assert!(killed.success() && line.contains("toolrein: sh has not ended"), "{line}");
    assert!(terminal.line("no model request came").contains("toolrein: "));
}
