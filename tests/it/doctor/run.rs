//! `toolrein run`: a real command in front of which the built program puts a proxy for as long as it runs.

use super::support::reply::{Reply, Speech};
use super::support::scripted::Scripted;
use super::support::until;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// An agent in plain Python, whose own limit is far: it calls its tool for as long as the model wants.
const AGENT: &str = r#"
import json, os, sys, urllib.request
def ask(messages):
    tool = {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}}
    body = {"model": sys.argv[1], "messages": messages, "tools": [tool]}
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
messages = [{"role": "user", "content": "Who built the first bicycle with pedals?"}]
while len(messages) < 60:
    message = ask(messages)
    messages.append(message)
    if not message.get("tool_calls"):
        print("answer:", message["content"])
        sys.exit(int(sys.argv[2]))
    for call in message["tool_calls"]:
        result = "Pedals: see bicycle. " * int((sys.argv + ["1"])[3])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
"#;

/// `toolrein run` in an empty folder that is the home directory too; no variable of this process but the path.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.path());
        command.current_dir(self.path()).args(arguments).stdin(Stdio::null());
        command
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A program of this name that asks the proxy for the models by a variable that every command gets.
    fn agent(&self, name: &str) {
        let script = "#!/bin/sh\nexec python3 -c \"import os, urllib.request; urllib.request.urlopen(os.environ['OPENAI_BASE_URL'] + '/models')\"\n";
        self.file(name, script);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path().join(name), mode).unwrap();
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = self.command(&[&["run"], arguments].concat());
        command.envs(variables.iter().copied()).output().unwrap()
    }

    /// Starts a shell script that says on its standard output when it is ready.
    fn start(&self, script: &str) -> Child {
        let mut command = self.command(&["run", "--upstream", "demo", "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        child
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn send(child: &Child, signal: &str) {
    let done = Command::new("sh").arg("-c").arg(format!("kill -{signal} {}", child.id())).status();
    assert!(done.unwrap().success());
}

fn ended(mut child: Child) -> (Option<i32>, String) {
    let status = until("the program to end", || child.try_wait().unwrap());
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (status.code(), text)
}

#[test]
fn a_runaway_agent_is_stopped_and_six_lines_say_so_with_the_command_that_explains_it() {
    let place = Place::new();
    std::fs::write(place.path().join("agent.py"), AGENT).unwrap();
    let output = place.run(&["--upstream", "demo", "--", "python3", "agent.py", "demo-stuck", "3"], &[]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(printed(&output).starts_with("answer:"), "{}", printed(&output));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() <= 6 && lines.iter().all(|line| line.starts_with("toolrein: ")), "{said}");
    assert!(lines[0].contains(" model requests, ") && lines[0].contains(" of them stopped"), "{said}");
    let reason = "loops stopped web_search 2 times: web_search was called 4 times in a row with the same arguments \
                  and gave the same result each time";
    assert!(lines[1].ends_with(reason), "{said}");
    assert!(lines[2].ends_with(" tokens added"), "nothing was shortened, so nothing is said of it: {said}");
    let explain = lines[3].strip_prefix("toolrein: call by call: toolrein ").unwrap();
    assert!(explain.starts_with("explain --line "), "{said}");
    let explained = place.command(&explain.split(' ').collect::<Vec<_>>()).output().unwrap();
    assert!(explained.status.success(), "{explained:?}");
    assert!(
        printed(&explained).contains("LOOP_DETECTED") || printed(&explained).contains("loops"),
        "{explained:?}"
    );
    // What was said is nobody else's.
    let runs = place.path().join(".local/state/toolrein/runs");
    assert_eq!(std::fs::metadata(&runs).unwrap().permissions().mode() & 0o777, 0o700);
    let run = std::fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let log = run.join("toolrein.log");
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(log).unwrap().contains("\"listening\""));
}

#[test]
fn tokens_that_were_not_sent_are_counted_where_results_were_shortened_and_left_out_otherwise() {
    let place = Place::new();
    std::fs::write(place.path().join("agent.py"), AGENT).unwrap();
    let agent = ["--", "python3", "agent.py"];
    for (options, model, size, expected) in [
        (vec![], "demo-stuck", "2000", Some(" tokens not sent, ")),
        (vec!["--mode", "observe"], "demo-stuck", "2000", Some(" tokens that would not have been sent")),
        (vec![], "demo-chat", "1", None),
    ] {
        let rest = [model, "0", size];
        let output = place.run(&[&["--upstream", "demo"], options.as_slice(), &agent, &rest].concat(), &[]);
        let said = said(&output);
        let line = said.lines().find(|line| line.contains(" tokens "));
        match expected {
            None => assert_eq!(line, None, "{said}"),
            Some(expected) => {
                let line = line.unwrap_or_else(|| panic!("{said}"));
                let (removed, _) = line.trim_start_matches("toolrein: ").split_once(expected).unwrap();
                let removed: u64 = removed.replace(',', "").parse().unwrap();
                assert!(removed > 5_000, "{said}");
            }
        }
    }
}

#[test]
fn the_address_in_the_environment_is_the_upstream_unless_an_option_or_a_file_names_one() {
    let model =
        || Scripted::start(|_, request| Reply::speech(request, &Speech::text("Kirkpatrick Macmillan.")));
    let (inherited, named) = (model(), model());
    let place = Place::new();
    std::fs::write(place.path().join("agent.py"), AGENT).unwrap();
    let file = format!("upstream.url = {:?}\n", named.base_url());
    std::fs::write(place.path().join("mine.toml"), file).unwrap();
    let url = inherited.base_url();
    let variables = [("OPENAI_BASE_URL", url.as_str()), ("OPENAI_API_KEY", "sk-mine")];
    let agent = ["--", "python3", "agent.py", "m", "0"];
    let named_url = named.base_url();
    for (options, requests) in [
        (vec![], [1, 0]),
        (vec!["-c", "mine.toml"], [1, 1]),
        (vec!["--upstream", named_url.as_str()], [1, 2]),
    ] {
        let output = place.run(&[options.as_slice(), &agent].concat(), &variables);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!([inherited.requests().len(), named.requests().len()], requests, "{options:?}");
    }
    assert_eq!(inherited.request(0).header("authorization"), Some("Bearer sk-mine"));
    let wrong = place.run(&agent, &[("OPENAI_BASE_URL", "api.example/v1")]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        said(&wrong).contains("OPENAI_BASE_URL: upstream.url: expected a URL with its scheme"),
        "{}",
        said(&wrong)
    );
}

#[test]
fn only_the_command_has_the_variables_and_nothing_else_is_printed() {
    let place = Place::new();
    let script = "echo $OPENAI_BASE_URL $OPENAI_API_BASE $ANTHROPIC_BASE_URL/v1";
    let output = place.run(&["--upstream", "demo", "--", "sh", "-c", script], &[]);
    let urls: Vec<String> = printed(&output).split_whitespace().map(str::to_owned).collect();
    assert_eq!([&urls[0], &urls[0]], [&urls[1], &urls[2]]);
    assert!(urls[0].starts_with("http://127.0.0.1:") && urls[0].ends_with("/v1"), "{urls:?}");
    assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
    assert!(said(&output).contains("no model request came"), "{}", said(&output));
    let asked = place.run(&["--upstream", "demo", "--log-level", "info", "--", "true"], &[]);
    assert!(said(&asked).contains("\"listening\""), "{}", said(&asked));
}

#[test]
fn codex_opencode_and_claude_get_what_they_read_in_place_of_the_variable() {
    let place = Place::new();
    let bin = place.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for (name, script) in
        [("codex", "echo \"$@\""), ("opencode", "echo $OPENCODE_CONFIG_CONTENT"), ("claude", "echo \"$2\"")]
    {
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |command: &[&str]| {
        printed(&place.run(&[&["--upstream", "demo", "--"], command].concat(), &[("PATH", &path)]))
    };
    let codex = run(&["codex", "exec", "hi"]);
    assert!(
        codex.starts_with("-c openai_base_url=\"http://127.0.0.1:") && codex.ends_with("/v1\" exec hi\n"),
        "{codex}"
    );
    let own = run(&["codex", "-c", "model=x", "exec", "--config=openai_base_url=https://a.example/v1", "hi"]);
    let addresses: Vec<&str> = own.split("openai_base_url=").skip(1).collect();
    assert!(addresses.len() == 2 && !own.contains("a.example"), "every address is the proxy's: {own}");
    let opencode: serde_json::Value = serde_json::from_str(&run(&["opencode", "run", "hi"])).unwrap();
    let url = opencode["provider"]["openai"]["options"]["baseURL"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{opencode}");
    let claude: serde_json::Value = serde_json::from_str(&run(&["claude", "-p", "hi"])).unwrap();
    let url = claude["env"]["ANTHROPIC_BASE_URL"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && !url.contains("/v1"), "{claude}");
}

#[test]
fn continue_gets_a_copy_of_its_file_with_the_proxys_address_and_the_file_stays_as_it_is() {
    let place = Place::new();
    let cn = place.path().join("cn");
    std::fs::write(&cn, "#!/bin/sh\necho \"$1\"; cat \"$2\"; echo \"$3\"\n").unwrap();
    std::fs::set_permissions(&cn, std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = place.path().join(".continue");
    std::fs::create_dir(&folder).unwrap();
    let mine = "models:\n  - name: m\n    provider: openai\n    model: gpt-5\n";
    std::fs::write(folder.join("config.yaml"), mine).unwrap();
    let output = place.run(&["--upstream", "demo", "--", cn.to_str().unwrap(), "hi"], &[]);
    let given = printed(&output);
    let given = given.strip_prefix("--config\n").and_then(|rest| rest.strip_suffix("hi\n")).unwrap();
    assert!(given.contains("\n    apiBase: http://127.0.0.1:") && given.contains("model: gpt-5"), "{given}");
    assert_eq!(std::fs::read_to_string(folder.join("config.yaml")).unwrap(), mine);
    // An address in the file is the upstream, and the copy has the proxy's in its place.
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("Hello.")));
    let named = format!("{mine}    apiBase: {}\n", upstream.base_url());
    std::fs::write(folder.join("config.yaml"), &named).unwrap();
    let given = printed(&place.run(&["--", cn.to_str().unwrap(), "hi"], &[]));
    assert!(given.starts_with("--config\n") && given.contains("apiBase: http://127.0.0.1:"), "{given}");
    assert!(!given.contains(&upstream.base_url()), "{given}");
}

#[test]
fn an_address_that_codex_is_given_is_the_upstream_and_another_provider_is_named_as_a_way_around() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("Hello.")));
    let place = Place::new();
    let codex = place.path().join("codex");
    let ask = "import json, sys, tomllib, urllib.request as r\n\
        base = tomllib.loads(sys.argv[2])['openai_base_url']\n\
        body = json.dumps({'model': 'm', 'messages': [{'role': 'user', 'content': 'hi'}]}).encode()\n\
        r.urlopen(r.Request(base + '/chat/completions', body, {'content-type': 'application/json'}))\n";
    std::fs::write(&codex, format!("#!/usr/bin/env python3\n{ask}")).unwrap();
    std::fs::set_permissions(&codex, std::fs::Permissions::from_mode(0o755)).unwrap();
    let codex = codex.to_str().unwrap();
    let own = format!("openai_base_url=\"{}\"", upstream.base_url());
    let output = place.run(&["--", codex, "exec", "-c", &own, "hi"], &[]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(upstream.requests().len(), 1);
    assert!(said(&output).contains("toolrein: 1 model request, "), "it went through: {}", said(&output));
    // What is named for toolrein itself comes first, as before a variable.
    let output = place.run(&["--upstream", "demo", "--", codex, "exec", "-c", &own, "hi"], &[]);
    assert_eq!(upstream.requests().len(), 1, "{}", said(&output));
    let wrong = place.run(&["--", codex, "-c", "openai_base_url=api.example/v1", "hi"], &[]);
    assert_eq!(wrong.status.code(), Some(2));
    let reason = "codex -c openai_base_url: upstream.url: expected a URL with its scheme";
    assert!(said(&wrong).contains(reason), "{}", said(&wrong));
    let around = place.run(&["--upstream", "demo", "--", codex, "-c", "model_provider=azure", "hi"], &[]);
    let first = said(&around).lines().next().unwrap_or_default().to_owned();
    assert!(first.starts_with("toolrein: codex -c model_provider=azure leads around toolrein"), "{first}");
}

#[test]
fn exit_codes_are_those_of_the_command_and_of_shells() {
    let place = Place::new();
    let text = place.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    for (command, code, expected) in [
        (vec!["sh", "-c", "exit 7"], 7, "no model request"),
        (vec!["sh", "-c", "kill -TERM $$"], 143, "no model request"),
        (vec!["no-such-program"], 127, "no-such-program: there is no such program"),
        (vec!["./text"], 126, "./text: permission denied"),
    ] {
        let output = place.run(&[&["--upstream", "demo", "--"], command.as_slice()].concat(), &[]);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn a_taken_port_that_was_asked_for_is_named_and_the_command_is_not_run() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = place.run(&["--upstream", "demo", "--listen", &address, "--", "touch", "ran"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains(&format!("cannot listen on {address} (listen.proxy)")),
        "{}",
        said(&output)
    );
    assert!(!place.path().join("ran").exists());
}

#[test]
fn signals_are_passed_on_and_the_command_decides() {
    let place = Place::new();
    for (signal, code) in [("INT", 10), ("TERM", 11), ("HUP", 12)] {
        let script = "trap 'exit 10' INT; trap 'exit 11' TERM; trap 'exit 12' HUP; echo ready; while :; do sleep 0.05; done";
        let child = place.start(script);
        send(&child, signal);
        assert_eq!(ended(child).0, Some(code), "{signal}");
    }
    let child = place.start("echo ready; exec sleep 600");
    send(&child, "TERM");
    assert_eq!(ended(child).0, Some(143));
}

#[test]
fn a_command_that_ignores_signals_is_killed_by_the_second_one_after_its_time() {
    let place = Place::new();
    let child = place.start("trap '' INT TERM; echo ready; while :; do sleep 0.05; done");
    send(&child, "TERM");
    send(&child, "INT");
    let (code, text) = ended(child);
    assert_eq!(code, Some(137), "{text}");
    assert!(text.contains("sh has not ended; it is killed in "), "{text}");
}

#[test]
fn a_command_that_was_started_with_signals_ignored_goes_on_ignoring_them() {
    let place = Place::new();
    let built = env!("CARGO_BIN_EXE_toolrein");
    let script = format!(
        "trap '' HUP; exec {built} run --upstream demo -- sh -c 'echo ready; kill -HUP $PPID; sleep 0.3; echo alive'"
    );
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", place.path());
    let output = command.current_dir(place.path()).arg("-c").arg(script).output().unwrap();
    assert_eq!(printed(&output), "ready\nalive\n", "{output:?}");
    assert!(output.status.success());
}

#[test]
fn the_users_list_of_hosts_without_a_proxy_reaches_the_command_in_both_spellings() {
    let place = Place::new();
    let script = "echo $NO_PROXY $no_proxy";
    let variables = [("http_proxy", "http://127.0.0.1:9"), ("NO_PROXY", ".corp")];
    let output = place.run(&["--upstream", "demo", "--", "sh", "-c", script], &variables);
    let hosts = "127.0.0.1,localhost,.corp";
    assert_eq!(printed(&output), format!("{hosts} {hosts}\n"), "{output:?}");
}

#[test]
fn the_command_does_not_get_the_secrets_that_are_toolreins_alone() {
    let place = Place::new();
    let file =
        "upstream.url = \"demo:\"\nupstream.api_key_env = \"OPENAI_API_KEY\"\nadmin.token_env = \"ADMIN\"\n";
    std::fs::write(place.path().join("mine.toml"), file).unwrap();
    let token = "a-token-of-more-than-32-characters-0";
    let variables = [("OPENAI_API_KEY", "sk-real"), ("ADMIN", token), ("OTHER", "stays")];
    let output = place.run(&["-c", "mine.toml", "--", "env"], &variables);
    let printed = printed(&output);
    assert!(printed.contains("OPENAI_API_KEY=held-by-toolrein\n"), "{output:?}");
    assert!(printed.contains("OTHER=stays\n") && !printed.contains("sk-real"), "{printed}");
    assert!(!printed.contains("ADMIN="), "{printed}");
}

#[test]
fn the_upstream_is_the_one_that_the_agent_is_set_up_for() {
    let private = Scripted::start(|_, _| Reply::text("hello"));
    let (url, origin) = (private.base_url(), private.base_url().trim_end_matches("/v1").to_owned());
    let json = format!("{{\"provider\": {{\"openai\": {{\"options\": {{\"baseURL\": \"{url}\"}}}}}}}}");
    let toml = format!("openai_base_url = \"{url}\"\n");
    let claude = format!("{{\"env\": {{\"ANTHROPIC_BASE_URL\": \"{origin}/\"}}}}");
    let (host, base) = (format!("OPENAI_HOST: {origin}\n"), format!("openai-api-base: {url}\n"));
    let mut requests = 0;
    for (agent, file, text, variables) in [
        ("codex", ".codex/config.toml", toml.as_str(), vec![]),
        ("opencode", ".config/opencode/opencode.json", json.as_str(), vec![]),
        ("opencode", "opencode.json", json.as_str(), vec![]),
        ("opencode", "none", "", vec![("OPENCODE_CONFIG_CONTENT", json.as_str())]),
        ("goose", ".config/goose/config.yaml", host.as_str(), vec![]),
        (
            "goose",
            ".config/goose/config.yaml",
            "OPENAI_HOST: http://x\n",
            vec![("OPENAI_HOST", origin.as_str())],
        ),
        ("aider", ".aider.conf.yml", base.as_str(), vec![]),
        ("claude", ".claude/settings.json", claude.as_str(), vec![]),
        ("claude", "none", "", vec![("ANTHROPIC_BASE_URL", origin.as_str())]),
    ] {
        let place = Place::new();
        place.agent(agent);
        place.file(file, text);
        // Which counts for no agent that is set up.
        let variables = [vec![("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")], variables].concat();
        let output = place.run(&["--", &format!("./{agent}")], &variables);
        requests += 1;
        assert_eq!(private.requests().len(), requests, "{agent}, {file}: {output:?}");
    }
}

#[test]
fn an_agent_whose_upstream_is_not_known_is_not_run_without_one_that_is_named() {
    for (agent, file, text, sentence) in [
        ("codex", ".codex/config.toml", "a = [", "is not TOML"),
        ("codex", ".codex/config.toml", "model_provider = \"azure\"\n", "model_provider is \"azure\""),
        (
            "codex",
            ".codex/config.toml",
            "openai_base_url = \"http://localhost:4242/v1\"\n",
            "toolrein is in front of codex already",
        ),
        ("opencode", "opencode.json", "{", "is not JSON"),
        (
            "opencode",
            "opencode.json",
            "{\"provider\": {\"openai\": {\"options\": {\"baseURL\": \"{env:CORP}\"}}}}",
            "expected a URL with its scheme",
        ),
        ("goose", ".config/goose/config.yaml", "a: [1\n", "is not YAML"),
    ] {
        let place = Place::new();
        place.agent(agent);
        place.file(file, text);
        let program = format!("./{agent}");
        let output = place.run(&["--", &program], &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = said(&output);
        assert!(
            said.contains(sentence) && said.contains("--upstream") && said.lines().count() == 1,
            "{said}"
        );
        let output = place.run(&["--upstream", "demo", "--", &program], &[]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn toolrein_is_not_put_in_front_of_an_agent_twice() {
    let place = Place::new();
    place.agent("codex");
    place.command(&["setup", "codex", "--listen", "127.0.0.1:5555"]).output().unwrap();
    let output = place.run(&["--", "./codex"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let sentence = "toolrein is in front of codex already, at http://127.0.0.1:5555/v1: start codex without toolrein run";
    assert!(said(&output).contains(sentence), "{output:?}");
}

#[test]
fn what_is_probably_a_mistake_in_the_settings_is_said_at_the_start() {
    let upstream = Scripted::start(|_, _| Reply::text("hello"));
    let place = Place::new();
    let url = upstream.base_url();
    for (url, sentence) in [
        (url.trim_end_matches("/v1").to_owned(), "has no path"),
        (format!("{url}/v1"), "/v1 is doubled"),
        (format!("{url}/chat/completions"), "ends in /chat/completions"),
    ] {
        let output = place.run(&["--upstream", &url, "--", "true"], &[]);
        let said = said(&output);
        let first = said.lines().next().unwrap();
        assert!(first.starts_with("toolrein: upstream.url: ") && first.contains(sentence), "{said}");
        assert_eq!(said.matches(sentence).count(), 1, "{said}");
    }
}
