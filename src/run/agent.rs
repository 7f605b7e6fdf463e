//! What a command needs so that its model requests come to the proxy: variables for its own environment, and for some
//! agents an option. Each line is one that the agent documents (docs/clients.md).

use super::codex;
use serde_json::{Map, Value, json};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The starters of packages, whose first word that is no option names the program.
const STARTERS: [&str; 6] = ["npx", "bunx", "pnpx", "uvx", "env", "command"];

/// Variables of an upstream's key that a program may require, and its place where toolrein or the simulated model needs
/// none from it.
const KEYS: [&str; 3] = ["OPENAI_API_KEY", "CODEX_API_KEY", ANTHROPIC_KEY];
const NO_KEY: &str = "held-by-toolrein";

/// The variable of Anthropic's address, which has no `/v1`, and those of its key and of a token in place of one: a program
/// that has both sends both.
const ANTHROPIC_URL: &str = "ANTHROPIC_BASE_URL";
const ANTHROPIC_KEY: &str = "ANTHROPIC_API_KEY";
const ANTHROPIC_TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";

/// The two spellings of the list of hosts to which no proxy leads.
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A configuration in JSON that opencode lays over its files.
const OPENCODE: &str = "OPENCODE_CONFIG_CONTENT";

/// Continue's option of a configuration file.
const CONFIG: &str = "--config";

/// Claude Code's option of settings, which count before those of its files.
const SETTINGS: &str = "--settings";

/// A command as it is to be started.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    pub command: Vec<OsString>,
    pub variables: Vec<(&'static str, OsString)>,
    /// Variables of this process that it does not get.
    pub removed: Vec<String>,
}

/// The command with what it needs for the proxy at `base_url`; `is_openai`: the upstream is OpenAI's own, which has no
/// Messages API, so that requests of that API go where they went before. `needs_key`: it sends the upstream's key itself.
/// `secrets` are variables that are toolrein's alone, `set` gives a variable of the environment, `configuration` a file like
/// the one of this agent, with `base_url` in it.
pub fn start(
    command: &[OsString],
    base_url: &str,
    is_openai: bool,
    needs_key: bool,
    secrets: &[&str],
    set: impl Fn(&str) -> Option<OsString>,
    configuration: impl FnOnce(&str) -> Option<PathBuf>,
) -> Start {
    let removed = secrets.iter().map(|&name| name.to_owned()).collect();
    let mut start = Start { command: command.to_vec(), variables: Vec::new(), removed };
    for name in ["OPENAI_BASE_URL", "OPENAI_API_BASE"] {
        start.variables.push((name, base_url.into()));
    }
    let origin = base_url.trim_end_matches("/v1");
    if !is_openai {
        start.variables.push((ANTHROPIC_URL, origin.into()));
    }
    let proxies = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    if proxies.iter().any(|name| set(name).is_some_and(|value| !value.is_empty())) {
        let hosts = hosts_without_proxy(NO_PROXY.map(&set));
        start.variables.extend(NO_PROXY.map(|name| (name, hosts.clone())));
    }
    let has = |name: &str| !secrets.contains(&name) && set(name).is_some_and(|value| !value.is_empty());
    let is_set = |name: &str| has(name) || (name == ANTHROPIC_KEY && has(ANTHROPIC_TOKEN));
    let unset = |name: &&str| !is_set(name);
    if !needs_key {
        start.variables.extend(KEYS.into_iter().filter(unset).map(|name| (name, NO_KEY.into())));
    }
    let Some((at, name)) = program(command) else { return start };
    match name.as_str() {
        "codex" => {
            let arguments = codex::with_base_url(&command[at + 1..], base_url);
            start.command.splice(at + 1.., arguments);
        }
        "opencode" => {
            start.variables.extend(opencode(base_url, set(OPENCODE)).map(|value| (OPENCODE, value)));
        }
        // Reads its file alone.
        "cn" if !command.iter().any(|word| word.to_string_lossy().starts_with(CONFIG)) => {
            let option = configuration("continue").map(|path| [CONFIG.into(), path.into()]);
            start.command.splice(at + 1..at + 1, option.into_iter().flatten());
        }
        "goose" => start.variables.push(("OPENAI_HOST", origin.into())),
        // Its files count before the variable.
        "claude"
            if !is_openai && !command.iter().any(|word| word.to_string_lossy().starts_with(SETTINGS)) =>
        {
            let settings = json!({"env": {ANTHROPIC_URL: origin}}).to_string();
            start.command.splice(at + 1..at + 1, [SETTINGS.into(), settings.into()]);
        }
        "aider" => start.variables.push(("AIDER_OPENAI_API_BASE", base_url.into())),
        _ => {}
    }
    start
}

/// The upstream that the command's own arguments name, and the option that names it.
pub fn named_upstream(command: &[OsString]) -> Option<(&'static str, String)> {
    let url = codex::upstream(arguments_of_codex(command)?)?;
    Some(("codex -c openai_base_url", url))
}

/// What among the command's own arguments leads around the proxy, as a sentence.
pub fn detour(command: &[OsString]) -> Option<String> {
    codex::detour(arguments_of_codex(command)?)
}

fn arguments_of_codex(command: &[OsString]) -> Option<&[OsString]> {
    let (at, name) = program(command)?;
    (name == "codex").then(|| &command[at + 1..])
}

/// The hosts that no proxy of the network leads to: this machine, and the user's own list. Programs prefer one of its two
/// spellings to the other, so both have all of it.
fn hosts_without_proxy(lists: [Option<OsString>; 2]) -> OsString {
    let mut hosts = OsString::from("127.0.0.1,localhost");
    let lists: Vec<OsString> = lists.into_iter().flatten().filter(|list| !list.is_empty()).collect();
    for (at, list) in lists.iter().enumerate() {
        // Every host; some programs read it only where it is alone.
        if list == "*" {
            return list.clone();
        }
        if !lists[..at].contains(list) {
            hosts.push(OsString::from_iter([OsStr::new(","), list]));
        }
    }
    hosts
}

/// The name of the program that the command starts.
pub fn program_of(command: &[OsString]) -> Option<String> {
    program(command).map(|(_, name)| name)
}

/// The position and the name of the program: the command itself, or the package that a starter runs.
fn program(command: &[OsString]) -> Option<(usize, String)> {
    let name = |word: &OsString| {
        let name = Path::new(word).file_name()?.to_str()?;
        // A package may be written with its version: codex@0.169.0.
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        let name = name.trim_end_matches(".cmd").trim_end_matches(".exe");
        // The packages of these agents have names of their own.
        let name = match name {
            "opencode-ai" => "opencode",
            "claude-code" => "claude",
            name => name,
        };
        Some(name.to_owned())
    };
    let is_starter = name(command.first()?).is_some_and(|name| STARTERS.contains(&name.as_str()));
    let is_passed_over = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with('-') || word.contains('=')
    };
    let at = match is_starter {
        true => 1 + command[1..].iter().position(|word| !is_passed_over(word))?,
        false => 0,
    };
    Some((at, name(&command[at])?))
}

/// opencode's configuration with the base URL of its provider `openai`, over what the variable holds already. `None`: that
/// is no JSON object, and is left alone.
fn opencode(base_url: &str, held: Option<OsString>) -> Option<OsString> {
    let held = held.filter(|held| !held.is_empty());
    let mut config = match held {
        Some(held) => serde_json::from_str::<Map<String, Value>>(held.to_str()?).ok()?,
        None => Map::new(),
    };
    let mut table = &mut config;
    for key in ["provider", "openai", "options"] {
        table = table.entry(key).or_insert_with(|| json!({})).as_object_mut()?;
    }
    table.insert("baseURL".to_owned(), base_url.into());
    Some(Value::Object(config).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "http://127.0.0.1:9/v1";

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn started(command: &str, variables: &[(&str, &str)], needs_key: bool) -> Start {
        let set = |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into());
        start(&words(command), BASE, false, needs_key, &[], set, |agent| {
            Some(format!("/run/{agent}.yaml").into())
        })
    }

    fn variable(start: &Start, name: &str) -> Option<String> {
        let found = start.variables.iter().find(|(set, _)| *set == name)?;
        Some(found.1.to_string_lossy().into_owned())
    }

    #[test]
    fn every_command_gets_the_base_url_and_codex_an_option_since_it_reads_no_variable() {
        let option = "-c openai_base_url=\"http://127.0.0.1:9/v1\"";
        for (command, expected) in [
            ("python agent.py", "python agent.py".to_owned()),
            ("codex exec -m x hello", format!("codex {option} exec -m x hello")),
            ("/usr/bin/codex", format!("/usr/bin/codex {option}")),
            (
                "npx -y @openai/codex@0.169.0 exec hi",
                format!("npx -y @openai/codex@0.169.0 {option} exec hi"),
            ),
            ("env A=1 codex exec", format!("env A=1 codex {option} exec")),
            ("npx -y", "npx -y".to_owned()),
            ("cn -p hi", "cn --config /run/continue.yaml -p hi".to_owned()),
            ("cn --config mine.yaml", "cn --config mine.yaml".to_owned()),
            ("./codex.py", "./codex.py".to_owned()),
        ] {
            let start = started(command, &[], true);
            assert_eq!(start.command, words(&expected), "{command}");
            assert_eq!(variable(&start, "OPENAI_BASE_URL").as_deref(), Some(BASE));
            assert_eq!(variable(&start, ANTHROPIC_URL).as_deref(), Some("http://127.0.0.1:9"));
            assert_eq!(variable(&start, "OPENAI_API_KEY"), None);
        }
    }

    #[test]
    fn opencode_gets_its_own_configuration_over_the_one_that_the_user_has_in_the_variable() {
        let of = |held: &[(&str, &str)]| variable(&started("opencode run hi", held, true), OPENCODE);
        let own = r#"{"provider":{"openai":{"options":{"baseURL":"http://127.0.0.1:9/v1"}}}}"#;
        assert_eq!(of(&[]).as_deref(), Some(own));
        let held = r#"{"model":"m","provider":{"openai":{"options":{"timeout":1}}}}"#;
        let both = r#"{"model":"m","provider":{"openai":{"options":{"timeout":1,"baseURL":"http://127.0.0.1:9/v1"}}}}"#;
        assert_eq!(of(&[(OPENCODE, held)]).as_deref(), Some(both));
        for not_ours in ["{ // comment\n}", "[]", r#"{"provider":3}"#] {
            assert_eq!(of(&[(OPENCODE, not_ours)]), None, "{not_ours}");
        }
        assert_eq!(
            variable(&started("goose run", &[], true), "OPENAI_HOST").as_deref(),
            Some("http://127.0.0.1:9")
        );
    }

    #[test]
    fn a_program_that_needs_no_key_of_its_own_gets_one_in_name_unless_it_has_one() {
        let start = started("python a.py", &[("OPENAI_API_KEY", "sk-mine")], false);
        assert_eq!(variable(&start, "OPENAI_API_KEY"), None);
        assert_eq!(variable(&start, "CODEX_API_KEY").as_deref(), Some(NO_KEY));
    }

    #[test]
    fn the_variable_that_toolrein_takes_its_key_from_is_not_the_commands() {
        let set = |_: &str| Some(OsString::from("sk-real"));
        for (secret, expected) in [("CORP_KEY", None), ("OPENAI_API_KEY", Some(NO_KEY))] {
            let start = start(&words("python a.py"), BASE, false, false, &[secret], set, |_| None);
            assert_eq!(start.removed, [secret]);
            assert_eq!(variable(&start, "OPENAI_API_KEY").as_deref(), expected, "{secret}");
        }
    }

    #[test]
    fn requests_to_the_proxy_do_not_go_to_a_proxy_of_the_network() {
        for (lists, expected) in [
            (vec![], "127.0.0.1,localhost"),
            (vec![("NO_PROXY", ".corp")], "127.0.0.1,localhost,.corp"),
            (vec![("no_proxy", ".corp,10.0.0.1")], "127.0.0.1,localhost,.corp,10.0.0.1"),
            (vec![("NO_PROXY", ".corp"), ("no_proxy", ".corp")], "127.0.0.1,localhost,.corp"),
            (vec![("NO_PROXY", ".corp"), ("no_proxy", ".lan")], "127.0.0.1,localhost,.corp,.lan"),
            (vec![("NO_PROXY", "*"), ("no_proxy", "")], "*"),
        ] {
            let variables = [vec![("HTTP_PROXY", "http://proxy:3128")], lists].concat();
            let start = started("python a.py", &variables, true);
            for name in ["NO_PROXY", "no_proxy"] {
                assert_eq!(variable(&start, name).as_deref(), Some(expected), "{variables:?}");
            }
        }
        assert_eq!(variable(&started("python a.py", &[], true), "NO_PROXY"), None);
    }

    #[test]
    fn claude_gets_settings_that_count_before_its_files_unless_the_upstream_is_openai() {
        let settings = "--settings {\"env\":{\"ANTHROPIC_BASE_URL\":\"http://127.0.0.1:9\"}}";
        for (command, expected) in [
            ("claude -p hi", format!("claude {settings} -p hi")),
            (
                "npx -y @anthropic-ai/claude-code@2 -p",
                format!("npx -y @anthropic-ai/claude-code@2 {settings} -p"),
            ),
            ("claude --settings mine.json", "claude --settings mine.json".to_owned()),
        ] {
            assert_eq!(started(command, &[], true).command, words(&expected), "{command}");
        }
        let start = start(&words("claude -p"), BASE, true, true, &[], |_| None, |_| None);
        assert_eq!((variable(&start, ANTHROPIC_URL), start.command), (None, words("claude -p")));
    }

    #[test]
    fn a_program_with_a_token_of_anthropic_gets_no_key_beside_it() {
        for (set, expected) in
            [(&[][..], Some(NO_KEY)), (&[(ANTHROPIC_TOKEN, "t")], None), (&[(ANTHROPIC_KEY, "k")], None)]
        {
            let start = started("claude -p hi", set, false);
            assert_eq!(variable(&start, ANTHROPIC_KEY).as_deref(), expected, "{set:?}");
        }
    }
}
