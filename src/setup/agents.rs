//! The agents that `setup` knows: by which program they are found, where their configuration is and in which form it
//! names the upstream, as their published documentation describes it (docs/clients.md).

use super::insert::Form;
use std::ffi::OsString;
use std::path::PathBuf;

/// An agent.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    pub name: &'static str,
    /// The program on the path.
    pub program: &'static str,
    pub way: Way,
}

/// How toolrein is put in front of an agent.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// By its configuration file. `files`: below the folder, the first that is there, else the first; `stronger`: what
    /// counts before it.
    File { folder: Folder, files: &'static [&'static str], form: Form, stronger: Stronger },
    /// By hand, or not at all: the sentence that says so.
    Other(&'static str),
}

/// Places that count before the configuration file of an agent, the strongest first.
#[derive(Clone, Copy, Debug)]
pub struct Stronger {
    /// A variable that holds a text in the form of the file.
    pub text: Option<&'static str>,
    /// A variable that holds the value alone.
    pub value: Option<&'static str>,
    /// Files of a project, in the current folder and those above it as far as its repository goes.
    pub files: &'static [&'static str],
    /// A variable that holds the path of a file.
    pub path: Option<&'static str>,
}

/// Nothing counts before the file.
const NOTHING: Stronger = Stronger { text: None, value: None, files: &[], path: None };

/// Where an agent keeps its configuration.
#[derive(Clone, Copy, Debug)]
pub enum Folder {
    /// In the home directory, or where a variable says.
    Home { below: &'static str, variable: Option<&'static str> },
    /// In the directory of configurations of the XDG specification.
    Config(&'static str),
}

/// All of them, in the order of `setup --list`.
pub const AGENTS: [Agent; 7] = [
    Agent {
        name: "codex",
        program: "codex",
        way: Way::File {
            folder: Folder::Home { below: ".codex", variable: Some("CODEX_HOME") },
            files: &["config.toml"],
            form: Form::Toml { key: "openai_base_url", provider: "model_provider" },
            stronger: NOTHING,
        },
    },
    Agent {
        name: "opencode",
        program: "opencode",
        way: Way::File {
            folder: Folder::Config("opencode"),
            files: &["opencode.json", "opencode.jsonc", "config.json"],
            form: Form::Json { path: &["provider", "openai", "options", "baseURL"], with_path: true },
            stronger: Stronger {
                text: Some("OPENCODE_CONFIG_CONTENT"),
                files: &[
                    ".opencode/opencode.json",
                    ".opencode/opencode.jsonc",
                    "opencode.json",
                    "opencode.jsonc",
                ],
                path: Some("OPENCODE_CONFIG"),
                ..NOTHING
            },
        },
    },
    Agent {
        name: "goose",
        program: "goose",
        way: Way::File {
            folder: Folder::Config("goose"),
            files: &["config.yaml"],
            form: Form::Yaml { key: "OPENAI_HOST", with_path: false, provider: Some("GOOSE_PROVIDER") },
            stronger: Stronger { value: Some("OPENAI_HOST"), ..NOTHING },
        },
    },
    Agent {
        name: "aider",
        program: "aider",
        way: Way::File {
            folder: Folder::Home { below: "", variable: None },
            files: &[".aider.conf.yml"],
            form: Form::Yaml { key: "openai-api-base", with_path: true, provider: None },
            stronger: Stronger {
                value: Some("AIDER_OPENAI_API_BASE"),
                files: &[".aider.conf.yml"],
                ..NOTHING
            },
        },
    },
    Agent {
        name: "continue",
        program: "cn",
        way: Way::File {
            folder: Folder::Home { below: ".continue", variable: Some("CONTINUE_GLOBAL_DIR") },
            files: &["config.yaml"],
            form: Form::Models { list: "models", provider: "openai", key: "apiBase" },
            stronger: NOTHING,
        },
    },
    Agent {
        name: "cline",
        program: "cline",
        way: Way::Other(
            "Cline keeps its settings inside the editor: choose the provider \"OpenAI Compatible\" there, and as its base URL",
        ),
    },
    Agent {
        name: "claude",
        program: "claude",
        way: Way::File {
            folder: Folder::Home { below: ".claude", variable: Some("CLAUDE_CONFIG_DIR") },
            files: &["settings.json"],
            form: Form::Json { path: &["env", "ANTHROPIC_BASE_URL"], with_path: false },
            stronger: Stronger {
                files: &[".claude/settings.local.json", ".claude/settings.json"],
                ..NOTHING
            },
        },
    },
];

/// The agent of this name.
///
/// # Errors
/// There is none; lists the known ones.
pub fn named(name: &str) -> Result<&'static Agent, String> {
    let found = AGENTS.iter().find(|agent| agent.name == name.to_ascii_lowercase());
    found.ok_or_else(|| {
        let known: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
        format!("{name}: there is no agent of that name here; known: {}", known.join(", "))
    })
}

impl Folder {
    /// Its path; `None`: the user has no home directory.
    fn path(self, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match self {
            Self::Home { below, variable: named } => {
                let named = named.and_then(absolute);
                named.or_else(|| Some(absolute("HOME")?.join(below)))
            }
            Self::Config(below) => {
                let config =
                    absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
                Some(config.join(below))
            }
        }
    }
}

impl Agent {
    /// The path and the form of its configuration file.
    ///
    /// # Errors
    /// What is to be done by hand, or that there is no home directory.
    pub fn file(
        &self,
        base_url: &str,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(PathBuf, Form), String> {
        match self.way {
            Way::Other(sentence) => Err(format!("{sentence} {base_url}")),
            Way::File { folder, files, form, .. } => {
                let folder =
                    folder.path(variable).ok_or("HOME is not set, so no configuration can be found")?;
                let mut paths = files.iter().map(|file| folder.join(file));
                let first = paths.next().unwrap_or_else(|| folder.clone());
                let is_there = |path: &PathBuf| path.symlink_metadata().is_ok();
                let path = if is_there(&first) { first } else { paths.find(is_there).unwrap_or(first) };
                Ok((path, form))
            }
        }
    }

    /// Whether its program is on the path.
    pub fn is_installed(&self, variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
        let path = variable("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(self.program).is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_the_agents_look_for_them() {
        let of = |name: &str, set: &[(&str, &str)]| {
            let variable =
                |name: &str| set.iter().find(|(it, _)| *it == name).map(|(_, value)| OsString::from(value));
            named(name).unwrap().file("http://x/v1", &variable).map(|(path, _)| path.display().to_string())
        };
        let home = ("HOME", "/nowhere/h");
        for (name, set, expected) in [
            ("codex", vec![home], "/nowhere/h/.codex/config.toml"),
            ("Codex", vec![home, ("CODEX_HOME", "/nowhere/c")], "/nowhere/c/config.toml"),
            ("opencode", vec![home], "/nowhere/h/.config/opencode/opencode.json"),
            ("opencode", vec![home, ("XDG_CONFIG_HOME", "/nowhere/x")], "/nowhere/x/opencode/opencode.json"),
            ("goose", vec![home], "/nowhere/h/.config/goose/config.yaml"),
            ("aider", vec![home], "/nowhere/h/.aider.conf.yml"),
            ("continue", vec![home], "/nowhere/h/.continue/config.yaml"),
            ("continue", vec![home, ("CONTINUE_GLOBAL_DIR", "/nowhere/g")], "/nowhere/g/config.yaml"),
            ("claude", vec![home], "/nowhere/h/.claude/settings.json"),
            ("claude", vec![home, ("CLAUDE_CONFIG_DIR", "/nowhere/a")], "/nowhere/a/settings.json"),
        ] {
            assert_eq!(of(name, &set).as_deref(), Ok(expected), "{name}");
        }
        assert!(of("codex", &[]).unwrap_err().contains("HOME is not set"));
        assert!(named("emacs").unwrap_err().contains("known: codex, opencode"));
    }
}
