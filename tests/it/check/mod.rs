//! The command line and the answers that need no proxy: `check`, `policies`, `completions`, the help.

mod found;

use clap::{CommandFactory as _, Parser as _};
use policies::REGISTRY;
use std::path::PathBuf;
use toolrein::cli::{Cli, Command, check_report, completions, policies_report};
use toolrein::config::{Overrides, Source};

fn parse(line: &str) -> Result<Command, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(Cli::into_command)
}

fn check(source: Source) -> (String, u8) {
    check_report(source, &Overrides::default(), REGISTRY)
}

fn text(text: &str) -> Source {
    Source::Text { name: "proxy.toml".to_owned(), text: text.to_owned() }
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn a_key_for_summaries_that_the_environment_does_not_hold_is_told() {
    let (told, code) =
        check(text("[policy.compact]\nstyle = \"summary\"\nsummary = { key_env = \"NO_SUCH_KEY_HERE\" }\n"));
    assert!(told.contains("NO_SUCH_KEY_HERE is not set here"), "{told}");
    assert_eq!(code, 0);
    let (told, _) = check(text("[policy.compact]\nsummary = { key_env = \"NO_SUCH_KEY_HERE\" }\n"));
    assert!(!told.contains("NO_SUCH_KEY_HERE is"), "nobody is asked: {told}");
}

#[test]
fn without_a_subcommand_the_proxy_is_run() {
    for line in [
        "toolrein --log-level debug --config a.toml --listen 127.0.0.1:1 --admin 127.0.0.1:2 --upstream demo: --mode off",
        "toolrein serve --config a.toml --listen 127.0.0.1:1 --admin 127.0.0.1:2 --upstream demo: --mode off --log-level debug",
        "toolrein -c a.toml --listen 127.0.0.1:1 --admin 127.0.0.1:2 --upstream demo: --mode off --log-level debug serve",
        "toolrein --config a.toml --upstream demo: --log-level info serve --listen 127.0.0.1:1 --admin 127.0.0.1:2 --mode off --log-level debug",
        "toolrein --mode observe --config b.toml --listen 127.0.0.1:1 --upstream demo: serve --admin 127.0.0.1:2 \
         --mode off --log-level debug -c a.toml",
    ] {
        let Command::Serve(args) = parse(line).unwrap() else { panic!("{line}") };
        assert_eq!(args.source(), Source::File(PathBuf::from("a.toml")));
        let given = |text: &str| Some(text.to_owned());
        assert_eq!(
            args.overrides(),
            Overrides {
                listen: given("127.0.0.1:1"),
                admin: given("127.0.0.1:2"),
                upstream: given("demo:"),
                mode: given("off"),
                log_level: given("debug"),
                ..Overrides::default()
            }
        );
    }
    let Command::Serve(args) = parse("toolrein").unwrap() else { panic!() };
    assert_eq!((args.source(), args.overrides()), (Source::Folder, Overrides::default()));
}

#[test]
fn each_subcommand_takes_its_own_options_and_no_other() {
    let Command::Check(args) = parse("toolrein check own.toml --mode off").unwrap() else { panic!() };
    assert_eq!(args.source(), Source::File(PathBuf::from("own.toml")));
    assert_eq!(args.overrides().mode.as_deref(), Some("off"));
    let Command::Demo(args) = parse("toolrein demo --once --listen 127.0.0.1:0").unwrap() else { panic!() };
    assert!(args.once);
    assert_eq!(args.overrides().upstream.as_deref(), Some("demo:"));
    assert_eq!(args.overrides().listen.as_deref(), Some("127.0.0.1:0"));
    assert_eq!(parse("toolrein policies").unwrap(), Command::Policies { name: None });
    for line in [
        "toolrein policies --mode off",
        "toolrein --mode off policies",
        "toolrein --upstream demo: demo",
        "toolrein --mode off replay a.jsonl",
        "toolrein --config a.toml completions bash",
        "toolrein replay",
        "toolrein completions",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn an_option_before_the_subcommand_equals_one_after_it() {
    for (before, behind) in [
        ("toolrein --mode off check", "toolrein check --mode off"),
        ("toolrein --config own.toml check", "toolrein check own.toml"),
        ("toolrein --config own.toml check other.toml", "toolrein check other.toml"),
        (
            "toolrein --listen 127.0.0.1:0 --admin 127.0.0.1:0 demo",
            "toolrein demo --listen 127.0.0.1:0 --admin 127.0.0.1:0",
        ),
        ("toolrein --config own.toml replay a.jsonl", "toolrein replay a.jsonl --config own.toml"),
        ("toolrein --config own.toml explain a.jsonl", "toolrein explain --config own.toml a.jsonl"),
    ] {
        assert_eq!(parse(before).unwrap(), parse(behind).unwrap(), "{before}");
    }
}

#[test]
fn the_configuration_file_of_a_command_is_named_alone_or_as_the_option_before_or_after_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "mode = \"observe\"\n").unwrap();
    let path = file.path().to_str().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"));
        let output = command.args(arguments).env_remove("TOOLREIN_CONFIG").output().unwrap();
        (String::from_utf8([output.stdout, output.stderr].concat()).unwrap(), output.status.code())
    };
    for arguments in [
        ["check", path].as_slice(),
        &["check", "-c", path],
        &["check", "--config", path],
        &["-c", path, "check"],
    ] {
        let (told, code) = run(arguments);
        assert!(told.contains("mode      observe") && code == Some(0), "{arguments:?}: {told}");
    }
    let (told, code) = run(&["check", path, "-c", path]);
    assert!(told.contains("check takes one configuration file") && code == Some(2), "{told}");
    // An upstream that nobody has, so that the doctor ends soon.
    std::fs::write(file.path(), "upstream.url = \"http://127.0.0.1:1/v1\"\n").unwrap();
    for arguments in [["doctor", path].as_slice(), &["doctor", "-c", path], &["-c", path, "doctor"]] {
        let (told, _) = run(arguments);
        assert!(told.contains("127.0.0.1:1"), "{arguments:?}: {told}");
    }
}

#[test]
fn an_option_before_the_subcommand_beats_its_variable() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"))
        .args(["--mode", "off", "check"])
        .env("TOOLREIN_MODE", "observe")
        .env_remove("TOOLREIN_CONFIG")
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("mode      off"), "{told}");
}

#[test]
fn empty_option_values_count_as_absent() {
    let args = ["toolrein", "--config", "", "--upstream", "", "--mode="];
    let Command::Serve(args) = Cli::try_parse_from(args).unwrap().into_command() else { panic!() };
    assert_eq!((args.source(), args.overrides()), (Source::Folder, Overrides::default()));
}

#[test]
fn every_option_has_its_variable_and_secrets_stay_out_of_the_help() {
    let command = Cli::command();
    for (option, variable) in [
        ("config", "TOOLREIN_CONFIG"),
        ("listen", "TOOLREIN_LISTEN"),
        ("admin", "TOOLREIN_ADMIN"),
        ("upstream", "TOOLREIN_UPSTREAM"),
        ("mode", "TOOLREIN_MODE"),
    ] {
        let argument = command.get_arguments().find(|argument| argument.get_id() == option).unwrap();
        assert_eq!(argument.get_env().unwrap(), variable);
        assert!(argument.is_hide_env_values_set() || option != "upstream");
    }
}

#[test]
fn help_and_version_are_answers_with_an_example() {
    let help = parse("toolrein --help").unwrap_err();
    assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
    let help = help.to_string();
    for said in ["OPENAI_BASE_URL=http://127.0.0.1:4242/v1", "toolrein check proxy.toml", "TOOLREIN_MODE"] {
        assert!(help.contains(said), "{help}");
    }
    let version = parse("toolrein --version").unwrap_err().to_string();
    assert_eq!(version, format!("toolrein {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn check_tells_what_is_in_effect() {
    let (report, code) = check(Source::Shipped);
    assert_eq!(code, 0, "{report}");
    for line in [
        "built-in defaults: good",
        "mode      enforce",
        "proxy     127.0.0.1:4242",
        "upstream  https://api.openai.com/v1",
        "  budget: shows the model its budget of tool calls, tokens, money and time, and blocks calls when it is used up",
        "    tool_calls = 50",
        "    exhausted = \"auto\"",
        "    -> 50 tool calls in a turn: when it is used up, calls are blocked and the model answers; text still passes",
        "    default = { calls = 60, per = \"60s\" }",
        "    max_chars = 16000",
        "    acts on: requests that hold the whole history: not with previous_response_id or a conversation upstream, \
         and never across a compaction, a program or an MCP item",
    ] {
        assert!(report.lines().any(|reported| reported == line), "{line:?} is not in\n{report}");
    }
    let on = ["kill", "budget", "rate_limit", "loops", "allow", "arguments", "truncate", "compact"];
    let names = REGISTRY.iter().map(|entry| entry.name);
    let off = format!("Off: {}", names.filter(|name| !on.contains(name)).collect::<Vec<_>>().join(", "));
    assert!(report.lines().any(|reported| reported == off), "{off:?} is not in\n{report}");
    assert!(!report.contains("warning"), "{report}");
}

#[test]
fn check_says_what_happens_when_a_limit_of_the_budget_is_used_up() {
    let refused = |until: &str| {
        format!("the running turn gets one final answer, then requests are refused with 400 {until}")
    };
    for (budget, lines) in [
        (
            "spend_usd = 2.0\nday = { spend_usd = 20.0 }",
            vec![
                "50 tool calls in a turn: when it is used up, calls are blocked and the model answers; text still passes".to_owned(),
                format!("$2.00 in a conversation: when it is used up, {}", refused("until a new conversation begins")),
                format!("$20.00 in a caller's day: when it is used up, {}", refused("until midnight UTC")),
            ],
        ),
        (
            "tool_calls = 0\nturn = { spend_usd = 0.5 }\nconversation = { requests = 9, time = \"1h\" }",
            vec![
                "$0.50 in a turn: when it is used up, calls are blocked and the model answers; text still passes".to_owned(),
                format!("9 model requests in a conversation: when it is used up, {}", refused("until a new conversation begins")),
                "1h in a conversation: when it is used up, calls are blocked and the model answers; text still passes".to_owned(),
            ],
        ),
        (
            "tool_calls = 0\nbilled_tokens = 100\nexhausted = \"answer\"",
            vec!["100 billed tokens in a conversation: when it is used up, calls are blocked and the model answers; text still passes".to_owned()],
        ),
        (
            "tool_calls = 0\nday = { requests = 5 }\nexhausted = \"reject\"",
            vec!["5 model requests in a caller's day: when it is used up, requests are refused with 400 until midnight UTC, without a final answer".to_owned()],
        ),
    ] {
        for table in ["policy.budget", "profile.x.policy.budget"] {
            let (table, budget) = match table {
                "policy.budget" => ("[policy.budget]\n".to_owned(), budget.to_owned()),
                _ => ("[profile.x.policy.budget]\n".to_owned(), format!("tool_calls = 50\n{}", budget.replace("tool_calls = 0\n", ""))),
            };
            let (report, code) = check(text(&format!("base = \"none\"\n{table}{budget}")));
            assert_eq!(code, 0, "{report}");
            let found: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("    -> ")).collect();
            assert!(lines.iter().all(|line| found.contains(&line.as_str())), "{found:?}");
        }
    }
}

#[test]
fn check_tells_what_each_profile_holds_and_who_takes_it() {
    let (report, code) = check(text(
        "base = \"none\"\n[policy.loops]\n[tier.free]\n[profile.a]\nmodels = [\"m*\"]\ntiers = [\"free\"]\npolicy.budget.tool_calls = 7\n\
         [profile.b]\nextends = \"a\"\noff = [\"loops\"]",
    ));
    assert_eq!(code, 0, "{report}");
    let (_, profiles) = report.split_once("\nProfile a").unwrap();
    assert!(report.contains("\nPolicies that are on outside of profiles:\n\n  loops: "), "{report}");
    assert!(
        profiles.starts_with(", by model m*, tier free, header:\n\n  budget\n    tool_calls = 7\n"),
        "{report}"
    );
    assert!(
        profiles.contains("\n  All that are on: budget, loops\n\nProfile b, by header, over profile a:\n"),
        "{report}"
    );
    assert!(profiles.contains("\n  All that are on: budget\n"), "{report}");
}

#[test]
fn check_warns_and_names_what_is_off() {
    let (report, code) =
        check(text("base = \"none\"\n[listen]\nadmin = \"0.0.0.0:4243\"\n[policy.budget]\ntool_calls = 7"));
    assert_eq!(code, 0);
    assert!(report.contains("    tool_calls = 7\n"), "{report}");
    let off: Vec<&str> = REGISTRY.iter().map(|entry| entry.name).filter(|name| *name != "budget").collect();
    assert!(report.contains(&format!("\nOff: {}\n", off.join(", "))), "{report}");
    assert!(report.contains("\nwarning: listen.admin: 0.0.0.0:4243 can be reached"), "{report}");
    assert!(check(text("base = \"none\"")).0.contains("Policies that are on:\n\n  none\n"));
}

#[test]
fn check_draws_the_machine_of_states_and_refuses_one_that_cannot_be_meant() {
    let tutor = include_str!("../../data/states/tutor.toml");
    let (report, code) = check(text(tutor));
    assert_eq!(code, 0, "{report}");
    for line in [
        "    stateDiagram-v2",
        "        [*] --> start",
        "        start --> observing: assistant question",
        "        award --> awarding: award_points called",
        "        note right of award : award_points",
    ] {
        assert!(report.lines().any(|reported| reported == line), "{line:?} is not in\n{report}");
    }
    let (report, code) = check(text(&tutor.replace("to = \"judging\"", "to = \"award\"")));
    let said = "policy.states.state.judging: never entered: no transitions lead to it from `start`";
    assert!(code == 2 && report.starts_with("proxy.toml:") && report.trim_end().ends_with(said), "{report}");
    let (report, code) = check(text(&tutor.replace("user_message", "user_mesage")));
    assert!(code == 2 && report.contains("policy.states.state.observing.on"), "{report}");
}

#[test]
fn check_tells_every_problem_and_exits_with_2() {
    let (report, code) = check(text("mode = \"of\"\n\n[policy.budget]\ntool_cals = 7\nnotify_at = [7.0]"));
    assert_eq!(code, 2);
    assert_eq!(
        report,
        "proxy.toml:1: mode: expected \"enforce\" or \"observe\" or \"off\", found \"of\"\n\
         proxy.toml:4: policy.budget.tool_cals: unknown key; did you mean `tool_calls`?\n\
         proxy.toml:5: policy.budget.notify_at: expected shares above 0, up to 1, found 7\n"
    );
}

#[test]
fn check_tells_plainly_that_a_file_is_missing_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("own.toml");
    for (path, said) in
        [(missing, "there is no such file"), (folder.path().to_owned(), "is a directory, not a file")]
    {
        let (report, code) = check(Source::File(path.clone()));
        assert_eq!((report, code), (format!("{}: {said}\n", path.display()), 2));
    }
}

#[test]
fn policies_are_listed_with_what_they_do() {
    let (listed, _) = policies_report(REGISTRY, None);
    assert_eq!(listed.lines().count(), REGISTRY.len());
    assert!(listed.contains("rate_limit        limits how often"), "{listed}");
}

#[test]
fn completions_are_a_script_that_knows_the_subcommands() {
    let script = completions(clap_complete::Shell::Bash);
    assert!(script.contains("_toolrein()") && script.contains("completions"), "{script}");
}

#[test]
fn each_policy_is_shown_with_its_keys_and_their_defaults() {
    for entry in REGISTRY {
        let (report, code) = policies_report(REGISTRY, Some(entry.name));
        assert_eq!(code, 0, "{report}");
        assert!(report.starts_with(&format!("{}: {}\n", entry.name, entry.summary)), "{report}");
        assert!(report.contains(&format!("[policy.{}", entry.name)), "{report}");
        let others = REGISTRY.iter().filter(|other| other.name != entry.name);
        for other in others {
            assert!(!report.contains(&format!("\n[policy.{}]", other.name)), "{report}");
        }
    }
    let (report, _) = policies_report(REGISTRY, Some("turn_limits"));
    assert!(report.contains("#parallel = 0") && report.contains("#retrieval = {"), "{report}");
    let (report, code) = policies_report(REGISTRY, Some("budgets"));
    assert_eq!((report.contains("there is no such policy"), code), (true, 2));
}

#[test]
fn a_configuration_is_read_from_standard_input() {
    use std::io::Write as _;
    for (text, said, code) in
        [("mode = \"observe\"\n", "standard input: good", 0), ("x = 1\n", "standard input:1: x: ", 2)]
    {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"));
        command.args(["check", "-"]).stdin(std::process::Stdio::piped());
        let mut child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let printed =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(said), "{printed}");
    }
}

#[test]
fn nothing_in_a_configuration_turns_the_text_of_the_terminal() {
    let turning = "pay\u{202e}lla\u{2066}";
    for (command, config, code) in [
        ("check", format!("[policy.turn_limits]\ntools = {{ \"{turning}\" = 3 }}\n"), 0),
        ("check", format!("[policy.\"{turning}\"]\nx = 1\n"), 2),
        ("serve", format!("[policy.\"{turning}\"]\nx = 1\n"), 2),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"))
            .args(if command == "check" { vec![command] } else { vec![command, "-c"] })
            .arg(file.path())
            .output()
            .unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.to_lowercase().contains("202e"), "it is named: {printed}");
        assert!(!printed.contains(['\u{202e}', '\u{2066}']), "{printed}");
    }
}

#[test]
fn check_hides_the_secrets_of_addresses() {
    let (told, code) = check(text(
        "upstream.url = \"https://h.example/v1?sig=s3cret\"\n[policy.confirm]\nform = \"held\"\n\
         [policy.confirm.webhook]\nurl = \"https://hooks.example/services/T0/s3cret?k=s3cret\"\n\
         secret_env = \"PATH\"\n[admin]\ntoken_env = \"NO_SUCH_TOKEN\"\n[profile.a]\n\
         policy.confirm.webhook = { url = \"https://hooks.example/s3cret\", secret_env = \"PATH\" }\n",
    ));
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("https://hooks.example/***") && !told.contains("s3cret"), "{told}");
}

#[test]
fn a_token_of_one_repeated_character_is_refused() {
    for (token, is_fine) in [
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ("abababababababababab", false),
        ("changemechangeme", false),
        ("9f86d081884c7d65", true),
    ] {
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(config.path(), "admin.token_env = \"TOKEN_OF_THIS_TEST\"\n").unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"))
            .arg("check")
            .arg(config.path())
            .env("TOKEN_OF_THIS_TEST", token)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(!printed.contains("expected a token of"), is_fine, "{printed}");
        assert!(!printed.contains(token), "{printed}");
    }
}

#[test]
fn check_says_who_chooses_the_caller_where_requests_name_it_and_refuses_what_names_nothing() {
    for (caller, expected) in [
        ("body:user", Some("whoever writes the body of a request")),
        ("body:metadata.customer", Some("\"body:metadata.customer\"")),
        ("jwt", Some("verifies no token")),
        ("header:x-customer", None),
        ("credential", None),
    ] {
        let (report, code) = check(text(&format!("conversation.caller = \"{caller}\"\n")));
        assert_eq!(code, 0, "{report}");
        let warning = report.lines().find(|line| line.starts_with("warning: conversation.caller"));
        match expected {
            Some(expected) => {
                assert!(warning.is_some_and(|line| line.contains(expected)), "{caller}: {report}");
            }
            None => assert_eq!(warning, None, "{caller}: {report}"),
        }
    }
    for caller in
        ["body:", "body: user", "body:metadata..customer", "body:.user", "user", "Body:user", "header:"]
    {
        let (report, code) = check(text(&format!("conversation.caller = \"{caller}\"\n")));
        assert!(code != 0 && report.contains("\"body:user\""), "{caller}: {report}");
    }
}

#[test]
fn check_warns_where_equal_requests_are_refused_before_libraries_give_up() {
    for (allowed, is_warned) in [(0, false), (3, true), (9, true), (10, false), (1000, false)] {
        let (report, code) = check(text(&format!("limits.equal_requests = {allowed}\n")));
        assert_eq!((code, report.contains("warning: limits.equal_requests")), (0, is_warned), "{report}");
    }
}

/// Every TOML block of the documentation is a file that `toolrein check` accepts.
#[test]
fn the_configurations_in_the_documentation_are_accepted() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md"), root.join("SECURITY.md")];
    for folder in ["docs", "docs/policies"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let (mut blocks, mut problems) = (0, Vec::new());
    for page in pages {
        let written = std::fs::read_to_string(&page).unwrap();
        for block in written.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            blocks += 1;
            let (report, code) = check(text(block));
            if code != 0 {
                problems.push(format!("{}\n{block}{report}", page.display()));
            }
        }
    }
    assert!(blocks >= 25, "{blocks}");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Runs the built program with a file of these settings, for at most twenty seconds.
fn run(command: &str, settings: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    std::fs::write(&file, settings).unwrap();
    let mut program = std::process::Command::new("timeout");
    program.args(["20", env!("CARGO_BIN_EXE_toolrein"), command]);
    if command == "serve" {
        program.arg("--config");
    }
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
        program.env_remove(name);
    }
    let output = program.arg(&file).envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn check_refuses_whatever_stops_the_start_and_serve_says_the_same() {
    const FREE: &str = "listen = { proxy = \"127.0.0.1:0\", admin = \"127.0.0.1:0\" }\n";
    let folder = tempfile::tempdir().unwrap();
    let no_certificate = folder.path().join("ca.pem");
    std::fs::write(&no_certificate, "no certificate\n").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let store = "store = { url = \"redis://127.0.0.1:1\", secret_env = \"S\" }\n";
    let webhook = "admin.token_env = \"T\"\n[policy.confirm]\ntools = [\"pay\"]\nform = \"held\"\n\
                   webhook = { url = \"http://127.0.0.1:1/\", secret_env = \"S\" }\n";
    let token = ("T", "0123456789abcdef-0123456789abcdef");
    for (settings, variables, expected) in [
        (format!("listen = {{ proxy = \"{taken}\", admin = \"127.0.0.1:0\" }}\n"), vec![], "(listen.proxy)"),
        (format!("listen = {{ proxy = \"127.0.0.1:0\", admin = \"{taken}\" }}\n"), vec![], "(listen.admin)"),
        (
            "listen = { proxy = \"192.0.2.1:4242\", admin = \"127.0.0.1:0\" }\n".to_owned(),
            vec![],
            "192.0.2.1:4242 (listen.proxy)",
        ),
        (format!("{FREE}admin.token_env = \"T\"\n"), vec![("T", "short")], "admin.token_env"),
        (format!("{FREE}admin.token_env = \"T\"\n"), vec![("T", "")], "is empty"),
        (format!("{FREE}upstream.api_key_env = \"K\"\n"), vec![("K", "a\nb")], "upstream.api_key_env"),
        (format!("{FREE}upstream.ca_file = {no_certificate:?}\n"), vec![], "holds no certificate"),
        (format!("{FREE}{store}"), vec![("S", "too short")], "has fewer than 32 characters"),
        (
            format!("{FREE}store = {{ url_env = \"U\", secret_env = \"S\" }}\n"),
            vec![("U", "http://host"), ("S", "0123456789abcdef0123456789abcdef")],
            "store.url_env",
        ),
        (
            format!("{FREE}{webhook}"),
            vec![token, ("S", "whsec_no base64")],
            "policy.confirm.webhook.secret_env",
        ),
        (
            format!("{FREE}[policy.compact]\nstyle = \"summary\"\nsummary = {{ key_env = \"K\" }}\n"),
            vec![("K", "a\nb")],
            "policy.compact.summary.key_env",
        ),
        (
            format!(
                "{FREE}telemetry.traces = {{ endpoint = \"http://127.0.0.1:1\", headers = {{ api-key = \"K\" }} }}\n"
            ),
            vec![("K", "a\nb")],
            "telemetry.traces.headers",
        ),
        (
            format!("{FREE}audit.file = \"/proc/audit.jsonl\"\n"),
            vec![],
            "cannot write /proc/audit.jsonl (audit.file)",
        ),
    ] {
        for (command, code) in [("check", 2), ("serve", 1)] {
            let (ended, said) = run(command, &settings, &variables);
            assert!(said.contains(expected), "{command}, {settings}: {said}");
            assert_eq!(ended, Some(code), "{command}, {settings}: {said}");
            let secrets = variables.iter().filter(|(_, value)| !value.is_empty());
            assert!(secrets.clone().all(|(_, value)| !said.contains(value)), "{command}: {said}");
        }
    }
}

#[test]
fn an_audit_log_to_a_pipe_that_no_program_reads_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("audit.pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let settings =
        format!("listen = {{ proxy = \"127.0.0.1:0\", admin = \"127.0.0.1:0\" }}\naudit.file = {pipe:?}\n");
    for (command, code) in [("check", 2), ("serve", 1)] {
        let (ended, said) = run(command, &settings, &[]);
        assert!(said.contains("it is a pipe that no program reads"), "{command}: {said}");
        assert_eq!(ended, Some(code), "{command}: {said}");
    }
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let (ended, said) = run("check", &settings, &[]);
    assert_eq!(ended, Some(0), "{said}");
    drop(reader);
}

#[test]
fn check_names_all_that_stops_the_start_at_once_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap();
    let settings = format!(
        "listen = {{ proxy = \"127.0.0.1:0\", admin = \"{admin}\" }}\nadmin.token_env = \"T\"\naudit.file = {audit:?}\n"
    );
    let (code, said) = run("check", &settings, &[("T", "short")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("listen.admin") && said.contains("admin.token_env"), "{said}");
    drop(taken);
    let (code, said) = run("check", &settings, &[("T", "0123456789abcdef-0123456789abcdef")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!audit.exists(), "a check keeps no file");
    std::fs::write(&audit, "{}\n").unwrap();
    run("check", &settings, &[("T", "0123456789abcdef-0123456789abcdef")]);
    assert_eq!(std::fs::read_to_string(&audit).unwrap(), "{}\n");
}

#[test]
fn a_rule_with_characters_that_no_tool_has_is_named() {
    for (settings, key) in [
        ("[policy.confirm]\ntools = [\"delete_?\"]\n", "policy.confirm.tools: \"delete_?\" has `?`"),
        (
            "[policy.confirm]\nwhen = { \"{a,b}\" = [{ argument = \"x\", above = 1 }] }\n",
            "policy.confirm.when: \"{a,b}\" has `,` `{` `}`",
        ),
        ("[policy.allow]\nexcept = [\"^drop.*\"]\n", "policy.allow.except: \"^drop.*\" has `^`"),
        (
            "[policy.rate_limit]\ntools = { \"(get|set)\" = { calls = 1, per = \"1s\" } }\n",
            "policy.rate_limit.tools: \"(get|set)\" has",
        ),
        (
            "[policy.quota]\nlimits = { x = { tools = [\"[ab]\"], calls = 1, per = \"1h\" } }\n",
            "policy.quota.limits.x.tools: \"[ab]\" has",
        ),
        (
            "[policy.turn_limits]\ncategories = { c = { tools = [\"a|b\"], calls = 2 } }\n",
            "policy.turn_limits.categories.c.tools: \"a|b\" has `|`",
        ),
        ("[policy.taint]\ntools = [\"!send\"]\n", "policy.taint.tools: \"!send\" has `!`"),
        ("[policy.loops]\nexempt = [\"poll$\"]\n", "policy.loops.exempt: \"poll$\" has `$`"),
        (
            "[profile.p.policy.confirm]\ntools = [\"pay?\"]\n",
            "profile.p.policy.confirm.tools: \"pay?\" has `?`",
        ),
        ("reask.answer_tools = [\"final?\"]\n", "reask.answer_tools: \"final?\" has `?`"),
    ] {
        let (report, code) = check(text(settings));
        assert!(code == 0 && report.contains(&format!("warning: {key}")), "{settings}: {report}");
    }
    let (report, _) = check(text("[policy.confirm]\ntools = [\"delete*\", \"shop.pay\", \"mcp__x__*\"]\n"));
    assert!(!report.contains("no tool's name has"), "{report}");
}

#[test]
fn a_file_in_the_current_folder_that_is_not_loaded_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let check = |file: &str, args: &[&str]| {
        std::fs::write(folder.path().join("proxy.toml"), file).unwrap();
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
            program.env_remove(name);
        }
        let output = program.current_dir(folder.path()).arg("check").args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let named = "it is not loaded: --config proxy.toml loads it";
    let said = check("mode = \"observe\"\n", &[]);
    assert!(said.contains("built-in defaults: good") && said.contains(named), "{said}");
    assert!(!check("mode = \"observe\"\n", &["proxy.toml"]).contains(named));
    let shipped = include_str!("../../../proxy.toml");
    assert!(!check(shipped, &[]).contains(named), "a copy of the defaults says nothing else");
}

#[test]
fn the_start_line_names_the_built_in_defaults_and_a_warning_the_file_that_is_not_loaded() {
    use std::io::BufRead as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("proxy.toml"), "mode = \"off\"\n").unwrap();
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_toolrein"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
        program.env_remove(name);
    }
    program.current_dir(folder.path()).args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut child = program.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    for line in lines.map_while(Result::ok) {
        let is_last = line.contains("\"listening\"");
        said.push(line);
        if is_last {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let said = said.join("\n");
    assert!(
        said.contains("\"config\":\"built-in defaults\"") && said.contains("\"mode\":\"enforce\""),
        "{said}"
    );
    assert!(
        said.contains("proxy.toml: there is such a file in the current folder, and it is not loaded"),
        "{said}"
    );
}
