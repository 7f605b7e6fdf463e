//! `toolrein setup` and `toolrein undo`: files of coding agents in a home directory of their own, changed by a line and put
//! back to the byte.

use super::support::program::Toolrein;
use super::support::reply::Reply;
use super::support::scripted::Scripted;
use super::terminal::Terminal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A user with an empty home directory.
struct User(tempfile::TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn home(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(&[], arguments)
    }

    fn run_with(&self, variables: &[(&str, &Path)], arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home()).current_dir(self.home());
        command.envs(variables.iter().copied()).args(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// See [`said`].
    fn says(&self, arguments: &[&str], code: i32) -> String {
        said(&self.run(arguments), code)
    }
}

/// Asserts the exit code, and returns everything that was printed.
fn said(output: &Output, code: i32) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

const URL: &str = "http://127.0.0.1:4242/v1";

#[test]
fn each_agent_is_set_up_by_its_line_alone_and_undone_to_the_byte() {
    for (agent, file, text, line) in [
        (
            "codex",
            ".codex/config.toml",
            "# mine\nmodel   = 'o4' # why\n\n[mcp_servers.a]\ncommand = \"x\"\r\n",
            "openai_base_url = \"http://127.0.0.1:4242/v1\"",
        ),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "{\n  // mine\n  \"model\": \"openai/gpt-5\",\n}",
            r#""provider": {"openai": {"options": {"baseURL": "http://127.0.0.1:4242/v1"}}}"#,
        ),
        ("opencode", ".config/opencode/opencode.jsonc", "{}\n", r#""baseURL": "http://127.0.0.1:4242/v1""#),
        (
            "goose",
            ".config/goose/config.yaml",
            "# mine\nGOOSE_MODE: auto\n",
            "OPENAI_HOST: http://127.0.0.1:4242\n",
        ),
        ("aider", ".aider.conf.yml", "model: gpt-5 # mine", "openai-api-base: http://127.0.0.1:4242/v1"),
        (
            "continue",
            ".continue/config.yaml",
            "name: a\nmodels:\n  - name: m\n    provider: openai\n",
            "    apiBase: http://127.0.0.1:4242/v1\n",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{\n  \"env\": {\n    \"A\": \"1\"\n  },\n  \"permissions\": {}\n}\n",
            "\"ANTHROPIC_BASE_URL\": \"http://127.0.0.1:4242\",\n    \"A\"",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{}\n",
            r#"{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:4242"}}"#,
        ),
    ] {
        let user = User::new();
        let path = user.file(file, text);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let said = user.says(&["setup", agent], 0);
        assert!(said.contains(&format!("{agent}: its requests now go to {URL}")), "{said}");
        assert!(said.contains("warning: nothing answers at 127.0.0.1:4243"), "{said}");
        let changed = fs::read_to_string(&path).unwrap();
        assert!(changed.contains(line) && changed.len() < text.len() + 90, "{agent}: {changed}");
        assert!(
            text.lines().filter(|line| *line != "{}").all(|kept| changed.contains(kept)),
            "{agent}: {changed}"
        );
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(user.says(&["setup", agent], 0).contains("is set up already"), "{agent}");
        assert_eq!(fs::read_to_string(&path).unwrap(), changed);
        let kept = user.home().join(".local/state/toolrein/setup").join(format!("{agent}.json"));
        assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        user.says(&["undo", agent], 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{agent}");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(user.says(&["undo", agent], 1).contains("was not set up by toolrein"), "{agent}");
    }
}

#[test]
fn a_file_and_folders_that_were_not_there_are_gone_again() {
    for (agent, file) in [("codex", ".codex/config.toml"), ("opencode", ".config/opencode/opencode.json")] {
        let user = User::new();
        user.says(&["setup", agent], 0);
        assert!(fs::read_to_string(user.home().join(file)).unwrap().contains(URL));
        assert!(user.says(&["setup", "--list"], 0).contains("set up, "), "{agent}");
        user.says(&["undo", agent], 0);
        let folder = file.split('/').next().unwrap();
        assert!(!user.home().join(folder).exists(), "{agent}");
    }
    // What has come into the folder since stays.
    let user = User::new();
    user.says(&["setup", "codex"], 0);
    let other = user.file(".codex/auth.json", "{}");
    user.says(&["undo", "codex"], 0);
    assert!(other.exists() && !user.home().join(".codex/config.toml").exists());
}

#[test]
fn what_was_set_up_by_hand_is_left_alone() {
    let user = User::new();
    let path = user.file(".codex/config.toml", "openai_base_url = \"https://me:s3cret@gate.example/v1\"\n");
    let before = fs::read_to_string(&path).unwrap();
    let said = user.says(&["setup", "codex"], 1);
    assert!(
        said.contains("as its upstream already; nothing was changed") && !said.contains("s3cret"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    fs::write(&path, format!("openai_base_url = \"{URL}\"\n")).unwrap();
    assert!(user.says(&["setup", "codex"], 0).contains("was set up by hand already"));
    assert!(user.says(&["undo", "codex"], 1).contains("was not set up by toolrein"));
}

#[test]
fn a_file_that_was_changed_since_is_shown_with_its_difference_and_only_changed_by_force() {
    let user = User::new();
    let path = user.file(".codex/config.toml", "model = \"a\"\n");
    user.says(&["setup", "codex"], 0);
    let mine = fs::read_to_string(&path).unwrap().replace("model = \"a\"", "model = \"b\"");
    fs::write(&path, &mine).unwrap();
    let said = user.says(&["undo", "codex"], 1);
    assert!(said.contains("-model = \"a\"\n+model = \"b\"") && said.contains("--force does it"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), mine, "nothing is lost");
    let said = user.says(&["undo", "codex", "--force"], 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"b\"\n", "the user's change stays");
    let kept = said.lines().find_map(|line| line.strip_prefix("The file as you had it is kept in ")).unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), mine);
    // Where the line itself is another one, the copy comes back.
    user.says(&["setup", "codex"], 0);
    fs::write(&path, "openai_base_url = \"http://127.0.0.1:9/v1\"\nmodel = \"c\"\n").unwrap();
    assert!(user.says(&["undo", "codex"], 1).contains("Put back the copy from before setup?"));
    user.says(&["undo", "codex", "--force"], 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"b\"\n");
}

#[test]
fn at_a_terminal_undo_shows_the_difference_and_asks_and_no_is_the_default() {
    let user = User::new();
    let path = user.file(".codex/config.toml", "model = \"a\"\n");
    user.says(&["setup", "codex"], 0);
    let mine = fs::read_to_string(&path).unwrap().replace("model = \"a\"", "model = \"b\"");
    fs::write(&path, &mine).unwrap();
    let undo = |answer: &str, expected: &str| {
        let mut terminal = Terminal::start_at(user.home(), ("[y/N] ", answer), &["undo", "codex"]);
        let difference = terminal.line("+model = \"b\"");
        assert!(!difference.contains('\u{1b}'), "{difference:?}");
        let question = terminal.line("[y/N]");
        assert!(
            question.starts_with("Take out toolrein's line alone, and keep your changes? [y/N]"),
            "{question}"
        );
        terminal.line(expected);
    };
    // The end of the input is no answer either.
    for answer in ["n\n", "\n", "what?\n", "\u{4}"] {
        undo(answer, "nothing was changed");
        assert_eq!(fs::read_to_string(&path).unwrap(), mine, "{answer:?}");
    }
    undo("y\n", "toolrein's line is gone from");
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"b\"\n");
    assert!(user.says(&["undo", "codex"], 1).contains("was not set up by toolrein"));
    // Where the line itself is another one, yes brings the copy back.
    user.says(&["setup", "codex"], 0);
    fs::write(&path, "openai_base_url = \"http://127.0.0.1:9/v1\"\nmodel = \"c\"\n").unwrap();
    let mut terminal = Terminal::start_at(user.home(), ("[y/N] ", "Yes\n"), &["undo", "codex"]);
    terminal.line("Put back the copy from before setup?");
    terminal.line("the copy from before setup is back in");
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"b\"\n");
}

#[test]
fn links_are_followed_and_read_only_and_unreadable_files_are_left_alone() {
    let user = User::new();
    let real = user.file("dotfiles/codex.toml", "model = \"a\"\n");
    fs::create_dir(user.home().join(".codex")).unwrap();
    let link = user.home().join(".codex/config.toml");
    symlink(&real, &link).unwrap();
    user.says(&["setup", "codex"], 0);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains(URL));
    user.says(&["undo", "codex"], 0);
    assert_eq!(fs::read_to_string(&real).unwrap(), "model = \"a\"\n");
    fs::set_permissions(&real, Permissions::from_mode(0o440)).unwrap();
    assert!(user.says(&["setup", "codex"], 1).contains("is read-only, so it is not changed"));
    fs::remove_file(&real).unwrap();
    assert!(user.says(&["setup", "codex"], 1).contains("is a symbolic link to a file that is not there"));
    user.file(".aider.conf.yml", "- just\n- a list\n");
    let said = user.says(&["setup", "aider"], 1);
    assert!(said.contains("nothing was changed. It has to name http://127.0.0.1:4242/v1"), "{said}");
    user.file(".config/opencode/opencode.json", "{");
    assert!(user.says(&["setup", "opencode"], 1).contains("is not JSON"));
    assert!(user.says(&["setup", "--list"], 0).contains("is not JSON"));
}

#[test]
fn setups_at_the_same_time_change_a_file_once() {
    let user = User::new();
    let path = user.file(".codex/config.toml", "model = \"a\"\n");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| user.run(&["setup", "codex"]));
        }
    });
    let line = format!("openai_base_url = \"{URL}\"\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{line}model = \"a\"\n"));
    user.says(&["undo", "codex"], 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"a\"\n");
}

#[test]
fn the_proxy_that_runs_is_asked_and_its_address_is_written() {
    let upstream = Scripted::start(|_, _| Reply::text("hello"));
    let program = Toolrein::before(&upstream, "");
    let (proxy, admin) =
        (program.origin().trim_start_matches("http://"), program.admin_url().trim_start_matches("http://"));
    let user = User::new();
    let said = user.says(&["setup", "codex", "--listen", proxy, "--admin", admin], 0);
    assert!(said.contains("ok: a toolrein is ready at"), "{said}");
    let text = fs::read_to_string(user.home().join(".codex/config.toml")).unwrap();
    assert_eq!(text, format!("openai_base_url = \"http://{proxy}/v1\"\n"));
}

#[test]
fn users_of_agents_in_editors_are_told_what_to_do() {
    let user = User::new();
    assert!(user.says(&["setup", "cline"], 1).contains(&format!("as its base URL {URL}")));
    assert!(user.says(&["setup", "emacs"], 1).contains("there is no agent of that name here; known: codex"));
    let listed = user.says(&["setup", "--list"], 0);
    assert!(listed.lines().count() == 7 && listed.contains("not set up, "), "{listed}");
    assert!(fs::read_dir(user.home()).unwrap().all(|entry| entry.unwrap().file_name() == ".local"));
    assert_eq!(user.home().join(".local/state/toolrein").metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_file_in_yaml_means_the_same_afterwards_and_one_that_is_no_yaml_is_left_alone() {
    for (agent, file, text, changed) in [
        (
            "goose",
            ".config/goose/config.yaml",
            "  a: 1\n  b: 2\n",
            "  OPENAI_HOST: http://127.0.0.1:4242\n  a: 1\n  b: 2\n",
        ),
        (
            "aider",
            ".aider.conf.yml",
            "\u{feff}---\n# mine\nmodel: gpt-5\n",
            "\u{feff}---\n# mine\nopenai-api-base: http://127.0.0.1:4242/v1\nmodel: gpt-5\n",
        ),
    ] {
        let user = User::new();
        let path = user.file(file, text);
        user.says(&["setup", agent], 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), changed);
        user.says(&["undo", agent], 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        for broken in ["a: [1\n", "a:\n\t- 1\n", "{a: 1}\n", "a: 1\n---\nb: 2\n"] {
            fs::write(&path, broken).unwrap();
            let said = user.says(&["setup", agent], 1);
            assert!(said.contains("nothing was changed. It has to name http://127.0.0.1:4242"), "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
    }
}

#[test]
fn a_file_of_another_user_stays_that_users() {
    let user = User::new();
    let path = user.file(".codex/config.toml", "model = \"a\"\n");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    if let Err(refused) = chown(&path, Some(65_534), Some(65_533)) {
        // Only root can give a file away.
        assert_ne!(user.home().metadata().unwrap().uid(), 0, "{refused}");
        return;
    }
    for command in ["setup", "undo"] {
        user.says(&[command, "codex"], 0);
        let found = path.metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (65_534, 65_533, 0o640), "{command}");
    }
}

#[test]
fn files_of_one_agent_in_two_homes_are_undone_both() {
    let user = User::new();
    let first = user.file(".codex/config.toml", "model = \"a\"\n");
    let second = user.file("b/config.toml", "model = \"b\"\n");
    let other = user.home().join("b");
    user.says(&["setup", "codex"], 0);
    said(&user.run_with(&[("CODEX_HOME", &other)], &["setup", "codex"]), 0);
    assert!(user.says(&["setup", "codex"], 0).contains("is set up already"));
    let said = user.says(&["undo", "codex"], 0);
    for (path, text) in [(&first, "model = \"a\"\n"), (&second, "model = \"b\"\n")] {
        assert_eq!(fs::read_to_string(path).unwrap(), text);
        assert!(said.contains(&format!("{} is as it was before setup", path.display())), "{said}");
    }
    assert!(user.says(&["undo", "codex"], 1).contains("was not set up by toolrein"));
}

#[test]
fn a_file_that_is_gone_with_its_folder_comes_back_by_force() {
    let user = User::new();
    let path = user.file(".codex/config.toml", "model = \"a\"\n");
    user.says(&["setup", "codex"], 0);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let said = user.says(&["undo", "codex"], 1);
    assert!(said.contains("is not there any more. Put back the copy from before setup?"), "{said}");
    assert!(!path.parent().unwrap().exists());
    user.says(&["undo", "--force", "codex"], 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"a\"\n");
    let state = fs::read_dir(user.home().join(".local/state/toolrein/setup")).unwrap();
    let names: Vec<_> = state.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lock"], "nothing is left");
}

#[test]
fn a_damaged_record_concerns_its_agent_alone_and_is_named() {
    let damaged = r#"{"path":"/nowhere","before":"a","insertions":[{"at":9,"text":"b"}],"folders":[]}"#;
    for record in ["", "{", damaged] {
        let user = User::new();
        let path = user.file(".local/state/toolrein/setup/codex.json", record);
        for command in ["setup", "undo"] {
            let said = user.says(&[command, "codex"], 1);
            let sentence =
                format!("{}: this record of what setup did to codex cannot be read", path.display());
            assert!(said.contains(&sentence), "{said}");
        }
        let listed = user.says(&["setup", "--list"], 0);
        assert!(listed.contains("cannot be read") && listed.lines().count() == 7, "{listed}");
        user.says(&["setup", "opencode"], 0);
        user.says(&["undo", "opencode"], 0);
        assert!(path.exists());
    }
}

#[test]
fn toolreins_own_line_is_written_anew_and_a_toolrein_is_never_named_as_an_upstream() {
    let user = User::new();
    let text = "model = \"a\"\n";
    let path = user.file(".codex/config.toml", text);
    user.says(&["setup", "codex"], 0);
    user.says(&["setup", "codex", "--listen", "127.0.0.1:5555"], 0);
    let changed = format!("openai_base_url = \"http://127.0.0.1:5555/v1\"\n{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
    fs::write(&path, changed.replace("\"a\"", "\"b\"")).unwrap();
    user.says(&["setup", "codex"], 0);
    user.says(&["undo", "codex"], 0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "model = \"b\"\n", "the user's change stays");
    assert!(user.says(&["undo", "codex"], 1).contains("was not set up by toolrein"));

    for (url, options, code, sentence) in [
        ("http://localhost:4242/v1", vec![], 0, "was set up by hand already"),
        ("http://localhost:4242/v1", vec!["--listen", "127.0.0.1:5555"], 1, "a toolrein, already"),
        ("http://127.0.0.1:4242", vec![], 1, "a toolrein, already"),
        ("http://127.0.0.1:11434/v1", vec![], 1, "Start toolrein with --upstream and that address"),
    ] {
        fs::write(&path, format!("openai_base_url = \"{url}\"\n")).unwrap();
        let said = user.says(&[vec!["setup", "codex"], options].concat(), code);
        assert!(said.contains(sentence), "{url}: {said}");
        assert_eq!(said.contains("--upstream"), url.contains("11434"), "{url}: {said}");
    }
}

#[test]
fn a_value_that_is_empty_is_given_and_taken_back() {
    for (agent, file, text, changed) in [
        ("codex", ".codex/config.toml", "openai_base_url = \"\"\n", format!("openai_base_url = \"{URL}\"\n")),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "{\"provider\": {\"openai\": {\"options\": {\"baseURL\": \"\"}}}}",
            format!("{{\"provider\": {{\"openai\": {{\"options\": {{\"baseURL\": \"{URL}\"}}}}}}}}"),
        ),
        (
            "goose",
            ".config/goose/config.yaml",
            "OPENAI_HOST:\nGOOSE_PROVIDER: openai\n",
            "OPENAI_HOST: http://127.0.0.1:4242\nGOOSE_PROVIDER: openai\n".to_owned(),
        ),
    ] {
        let user = User::new();
        let path = user.file(file, text);
        user.says(&["setup", agent], 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), changed, "{agent}");
        user.says(&["undo", agent], 0);
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{agent}");
    }
}

#[test]
fn what_else_decides_where_requests_go_is_said() {
    for (agent, file, text, sentence) in [
        ("codex", ".codex/config.toml", "model_provider = \"azure\"\n", "model_provider is \"azure\""),
        (
            "goose",
            ".config/goose/config.yaml",
            "GOOSE_PROVIDER: anthropic\n",
            "GOOSE_PROVIDER is \"anthropic\"",
        ),
    ] {
        let user = User::new();
        let path = user.file(file, text);
        let said = user.says(&["setup", agent], 1);
        assert!(said.contains(sentence) && said.contains("nothing was changed"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(user.says(&["setup", "--list"], 0).contains(sentence));
    }
    let user = User::new();
    let project = user.home().join("project");
    user.file("project/.aider.conf.yml", "openai-api-base: https://gate.example/v1\n");
    user.file(".aider.conf.yml", "model: gpt-5\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolrein"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", user.home()).current_dir(&project);
    let text = said(&command.args(["setup", "aider"]).output().unwrap(), 0);
    assert!(!text.contains("its requests now go to"), "{text}");
    assert!(text.contains("counts before it here, and names \"https://gate.example/v1\""), "{text}");
    assert!(user.says(&["setup", "aider"], 0).contains("is set up already"));
}
