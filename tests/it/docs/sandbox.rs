//! Where commands of the documentation run: a folder with the files that they name, the built program on the path, and
//! one toolrein in front of the simulated model, whose addresses take the place of the documented ones.

use super::pages::root;
use super::support::client::{self, Request};
use super::support::program::{ADMIN_TOKEN, Toolrein};
use super::support::until;
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The shipped configuration but for the addresses; calls of `pay` wait for the admin port.
const CONFIG: &str = r#"
listen = { proxy = "127.0.0.1:0", admin = "127.0.0.1:0" }
upstream.url = "demo:"
admin.token_env = "TOKEN_OF_THE_TESTS"
[policy.confirm]
tools = ["pay"]
form = "held"
"#;

/// A wrapper in place of the program: a command that would serve for ever runs until it listens, on free ports.
const SHIM: &str = r#"#!/bin/bash
for word in "$@"; do
    case "$word" in
        check|run|replay|explain|policies|completions|--help|--version) exec "$BUILT" "$@" ;;
        demo) exec "$BUILT" "$@" --listen 127.0.0.1:0 --admin 127.0.0.1:0 ;;
        doctor) exec "$BUILT" "$@" --listen "$PROXY" --admin "$ADMIN" --upstream demo: ;;
    esac
done
log="$(mktemp -p .)"
"$BUILT" "$@" --listen 127.0.0.1:0 --admin 127.0.0.1:0 2>"$log" &
until grep -q '"listening"' "$log"; do
    kill -0 $! || { cat "$log"; exit 1; }
    sleep 0.02
done
kill $!
wait $!
"#;

/// In place of kubectl, since there is no cluster: what it would apply is rendered by the real one, and nothing is sent.
const KUBECTL: &str = r#"#!/bin/bash
set -e
case "$1 $2" in
    "apply -k") exec "$TOOLS/kubectl" kustomize "$3" ;;
    "create secret") exec "$TOOLS/kubectl" "$@" --dry-run=client -o yaml ;;
    "port-forward deploy/agent") exit 0 ;;
esac
echo "no stand-in for kubectl $*" >&2
exit 1
"#;

/// In place of helm: the real one renders what it would install.
const HELM: &str = r#"#!/bin/bash
if [ "$1 $2" = "upgrade --install" ]; then
    exec "$TOOLS/helm" template "${@:3}"
fi
exec "$TOOLS/helm" "$@"
"#;

/// How the pages write a token of an approval.
const TOKEN: &str = "6f1c...";

pub struct Sandbox {
    pub program: Toolrein,
    folder: tempfile::TempDir,
    token: Option<String>,
}

impl Sandbox {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (file, from) in [
            ("conversations.jsonl", "tests/data/replay/conversations.jsonl"),
            ("policies.toml", "tests/data/replay/policies.toml"),
            ("proxy.toml", "proxy.toml"),
        ] {
            std::fs::copy(root().join(from), folder.path().join(file)).unwrap();
        }
        symlink(root().join("deploy"), folder.path().join("deploy")).unwrap();
        let program = Toolrein::start(CONFIG);
        executable(&folder.path().join("bin/toolrein"), SHIM);
        executable(&folder.path().join("bin/kubectl"), KUBECTL);
        executable(&folder.path().join("bin/helm"), HELM);
        // `pidof toolrein` would find the processes of other tests.
        executable(&folder.path().join("bin/pidof"), &format!("#!/bin/bash\necho {}\n", program.pid()));
        Self { program, folder, token: None }
    }

    /// One chat completion that offers `tool`.
    pub fn chat(&self, model: &str, text: &str, tool: &str) -> Value {
        chat(&self.program.chat_url(), model, text, tool)
    }

    /// Has a call of `pay` wait for a person, while `run` runs.
    pub fn with_a_call_that_waits(&mut self, run: impl FnOnce(&Self)) {
        let url = self.program.chat_url();
        let asked = std::thread::spawn(move || chat(&url, "demo-chat", "Please pay ann 12.", "pay"));
        let pending = format!("{}/api/confirmations", self.program.admin_url());
        let token = until("a call that waits", || {
            let request = Request::new("GET", &pending, "");
            let listed = request.header("authorization", &format!("Bearer {ADMIN_TOKEN}")).send().json();
            listed["data"][0]["token"].as_str().map(str::to_owned)
        });
        self.token = Some(token);
        run(self);
        self.token = None;
        let reply = asked.join().unwrap();
        assert_eq!(reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "pay", "{reply}");
    }

    /// A documented text with the addresses of this sandbox, and a model that is here.
    pub fn here(&self, text: &str) -> String {
        let text = text.replace("127.0.0.1:4242", self.proxy()).replace("127.0.0.1:4243", self.admin());
        let text = text.replace("gpt-4o", "demo-chat");
        self.token.as_ref().map_or_else(|| text.clone(), |token| text.replace(TOKEN, token))
    }

    /// An output as the pages write it.
    pub fn documented(&self, output: &str) -> String {
        let output = output.replace(self.proxy(), "127.0.0.1:4242").replace(self.admin(), "127.0.0.1:4243");
        self.token.as_ref().map_or_else(|| output.clone(), |token| output.replace(token, TOKEN))
    }

    /// Runs a script of bash in the folder.
    pub fn run(&self, script: &str) -> Output {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &self.here(script)]).current_dir(self.folder.path());
        self.equip(&mut command);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The variables of a documented command or program.
    pub fn equip(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOOLREIN_")) {
            command.env_remove(name);
        }
        command
            .env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()))
            .env("BUILT", env!("CARGO_BIN_EXE_toolrein"))
            .env("TOOLS", root().join(".venv/bin"))
            .env("PROXY", self.proxy())
            .env("ADMIN", self.admin())
            .env("HOME", self.folder.path())
            .env("NO_PROXY", "127.0.0.1")
            .env("OPENAI_API_KEY", "sk-test")
            .env("ANTHROPIC_API_KEY", "sk-test")
            .env("OPENAI_BASE_URL", self.program.base_url())
            .env("TOOLREIN_ADMIN_TOKEN", ADMIN_TOKEN);
    }

    fn proxy(&self) -> &str {
        self.program.origin().trim_start_matches("http://")
    }

    fn admin(&self) -> &str {
        self.program.admin_url().trim_start_matches("http://")
    }
}

fn chat(url: &str, model: &str, text: &str, tool: &str) -> Value {
    let string = json!({ "type": "string" });
    let parameters = json!({ "type": "object", "properties": { "query": string } });
    let function = json!({ "name": tool, "parameters": parameters });
    let body = json!({
        "model": model,
        "messages": [{ "role": "user", "content": text }],
        "tools": [{ "type": "function", "function": function }],
    });
    client::post(url, body.to_string()).json()
}

fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
