//! The options of `run`, which puts toolrein in front of one command.

use super::{Settings, file, given, source};
use crate::config::{Config, InheritedUpstream, Overrides, Source};
use crate::run::{Order, detour, named_upstream, program_of};
use crate::setup::{NamedUpstream, own_upstream};
use clap::Args;
use clap::builder::ValueParser;
use std::ffi::OsString;
use std::path::PathBuf;

/// Any free port of this machine.
const ANY_PORT: &str = "127.0.0.1:0";

/// The variables in which programs keep the address of their upstream, the common one first.
const BASE_URLS: [&str; 2] = ["OPENAI_BASE_URL", "OPENAI_API_BASE"];

/// The variable in which programs keep the address of Anthropic's API, without `/v1`, and the address without it.
const ANTHROPIC_URL: &str = "ANTHROPIC_BASE_URL";
const ANTHROPIC: &str = "https://api.anthropic.com";

/// The program that calls Anthropic's API wherever it is.
const CLAUDE: &str = "claude";

pub(super) const RUN_HELP: &str = "\
The command gets OPENAI_BASE_URL and ANTHROPIC_BASE_URL, and what it needs beside them, in its own
environment alone; the proxy takes a free port and ends with the command. The upstream is the one
that the agent's own arguments and configuration name (codex, opencode, goose, aider, claude), else
OPENAI_BASE_URL or ANTHROPIC_BASE_URL, unless --upstream or a file names one.

The exit code is that of the command, 128 and the signal's number where a signal ended it. At the
end at most six lines on standard error say what was stopped, and how toolrein explains it. The
log goes to a file beside the recording; with --log-level it goes to standard error.

Examples:
  toolrein run -- python agent.py
  toolrein run --upstream demo -- python agent.py    a simulated model; no key needed
  toolrein run -c proxy.toml -- codex exec \"Fix the test\"
  toolrein run -- claude -p \"Fix the test\"";

/// Options of `run`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct RunArgs {
    /// The configuration file; without it the shipped one.
    #[arg(short, long, value_name = "FILE", env = "TOOLREIN_CONFIG", hide_env_values = true, value_parser = file())]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: Settings,
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, value_parser = ValueParser::os_string())]
    command: Vec<OsString>,
}

/// The upstream that a variable names.
fn set(name: &str) -> Option<InheritedUpstream> {
    let url = std::env::var(name).ok().filter(|url| !url.trim().is_empty())?;
    Some(InheritedUpstream { source: name.to_owned(), url: Ok(url) })
}

/// The upstream that the variable of Anthropic's address names.
fn anthropic() -> Option<InheritedUpstream> {
    let InheritedUpstream { source, url } = set(ANTHROPIC_URL)?;
    Some(InheritedUpstream { source, url: url.map(|url| with_v1(&url)) })
}

/// The base URL to which clients add `/messages`, of an address to which they add `/v1/messages`.
fn with_v1(origin: &str) -> String {
    format!("{}/v1", origin.trim().trim_end_matches('/'))
}

impl RunArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        source(self.config.as_ref())
    }

    /// The overrides of the configuration: free ports, where the command line names none, and the command's own
    /// upstream, where nothing else names one.
    pub fn overrides(&self) -> Overrides {
        let overrides = self.settings.overrides();
        Overrides {
            listen: overrides.listen.or_else(|| Some(ANY_PORT.to_owned())),
            admin: overrides.admin.or_else(|| Some(ANY_PORT.to_owned())),
            inherited: self.inherited(),
            ..overrides
        }
    }

    /// What among the command's arguments leads around the proxy, as a sentence.
    pub fn detour(&self) -> Option<String> {
        detour(&self.command)
    }

    /// The upstream that the command has without toolrein: by its own arguments, by the
    /// configuration of the agent that it is, else by a variable.
    fn inherited(&self) -> Option<InheritedUpstream> {
        if let Some((option, url)) = named_upstream(&self.command) {
            return Some(InheritedUpstream { source: option.to_owned(), url: Ok(url) });
        }
        let program = program_of(&self.command).unwrap_or_default();
        match own_upstream(&program) {
            Some(Ok(NamedUpstream { place, value })) => {
                Some(InheritedUpstream { source: place, url: Ok(value) })
            }
            Some(Err(sentence)) => Some(InheritedUpstream { source: program, url: Err(sentence) }),
            None if program == CLAUDE => Some(
                anthropic()
                    .unwrap_or_else(|| InheritedUpstream { source: program, url: Ok(with_v1(ANTHROPIC)) }),
            ),
            None => BASE_URLS.iter().find_map(|name| set(name)).or_else(anthropic),
        }
    }

    /// What to run with `config`.
    pub fn order(&self, config: &Config) -> Order {
        Order {
            command: self.command.clone(),
            config_file: config.file().map(std::path::Path::to_owned),
            logs_here: given(&self.settings.log_level).is_some(),
        }
    }
}
