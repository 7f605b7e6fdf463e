//! The command line: its options, and the texts of commands that need no proxy. Parses and formats; prints nothing,
//! exits nowhere and starts nothing.

mod config_file;
mod man;
mod recorded;
mod report;
mod run;
mod setup;
mod terminal;

pub use man::man_report;
pub use recorded::{ExplainArgs, ReplayArgs};
pub use report::{check_report, policies_report, tried_report};
pub use run::RunArgs;
pub use setup::{SetupArgs, UndoArgs};
pub use terminal::{Terminal, for_terminal};

use self::config_file::{ConfigArgs, file, source};
use crate::config::{ANTHROPIC_HOST, Config, Overrides, Source};
use crate::doctor::Environment;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use recorded::{EXPLAIN_HELP, REPLAY_HELP};
use run::RUN_HELP;
use setup::SETUP_HELP;
use std::path::PathBuf;

/// The exit code for a refused configuration, as for a wrong command line.
pub const EXIT_REFUSED: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  toolrein                                       in front of api.openai.com
  toolrein --upstream http://127.0.0.1:11434/v1  in front of a local server
  toolrein --config proxy.toml --mode observe    count what would be done, change nothing
  toolrein check proxy.toml                      all problems, or the settings in effect
  toolrein doctor                                what is wrong with a set-up, and what to do
  toolrein run -- python agent.py                in front of one program, and away with it
  toolrein setup codex                           in front of a coding agent; undo takes it back
  toolrein demo                                  a simulated model that loops; no key needed
  toolrein replay conversations.jsonl            what the policies would have done
  toolrein explain conversations.jsonl           one of them, message by message

Then point a client at it:
  export OPENAI_BASE_URL=http://127.0.0.1:4242/v1

Every option can also be set by a variable; an option takes precedence over its variable, and
both over the file. Any key of the file can be set by a variable too:
TOOLREIN__POLICY__BUDGET__TOOL_CALLS=20.

docs/glossary.md has the twelve words of logs, headers and metrics, docs/why.md why a call was
blocked.";

const DOCTOR_HELP: &str = "\
Asks the upstream for its list of models, which costs nothing, and the admin port of a running
toolrein for what has arrived. Changes nothing; the key goes to the upstream alone.

Exits with 0 if no problem was found, with 1 if one was, with 2 if the configuration has problems.

Example: toolrein doctor --config proxy.toml";

/// The command line. The options of `serve` may also come before a subcommand that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cli(Command);

/// A sidecar proxy that governs the tool calls of LLM agents, in front of any OpenAI-compatible API.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "toolrein", version, after_help = EXAMPLES)]
struct Parsed {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

/// The options that may come before a subcommand, by their names.
const BEFORE: [&str; 6] = ["config", "listen", "admin", "upstream", "mode", "log_level"];

/// The requested command.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run the proxy (the default).
    #[command(after_help = "Example: toolrein serve --config proxy.toml --listen 0.0.0.0:4242")]
    Serve(ServeArgs),
    /// Run a command with its model requests governed, and say at its end what was stopped.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Put toolrein in front of a coding agent, by the agent's own configuration file.
    #[command(after_help = SETUP_HELP)]
    Setup(SetupArgs),
    /// Take back what setup did.
    #[command(after_help = "Example: toolrein undo codex")]
    Undo(UndoArgs),
    /// Check a configuration: report every problem with its line and key, or what is in effect.
    #[command(
        after_help = "Exits with 0 if the configuration is good, with 2 if it has problems.\n\nExample: toolrein check proxy.toml, or: toolrein check - < proxy.toml"
    )]
    Check(CheckArgs),
    /// Run the proxy in front of a simulated model and watch it stop a runaway agent.
    #[command(after_help = "Example: toolrein demo --once")]
    Demo(DemoArgs),
    /// Report what the policies would have done to recorded conversations. Needs no network.
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Show one recorded conversation as the model would see it, beside the original. Needs no network.
    #[command(after_help = EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// List the policies, or show one: what it does, its keys and their defaults.
    #[command(after_help = "Example: toolrein policies budget")]
    Policies {
        /// The policy to show.
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Check a set-up: settings, upstream, key, the running proxy and its traffic, and what your program needs.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Write the completion script of a shell.
    #[command(after_help = "Example: toolrein completions bash > /etc/bash_completion.d/toolrein")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual page of the program, or of one of its commands.
    #[command(after_help = "Example: toolrein man replay > /usr/local/share/man/man1/toolrein-replay.1")]
    Man {
        /// The command.
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

/// Options of `serve`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ServeArgs {
    /// The configuration file; without it the shipped one. SIGHUP reloads it.
    #[arg(short, long, value_name = "FILE", env = "TOOLREIN_CONFIG", hide_env_values = true, value_parser = file())]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

/// Options of `check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    settings: Settings,
}

/// Options of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The variable that holds the API key with which the upstream is asked for its models; upstream.api_key_env takes
    /// precedence. By default OPENAI_API_KEY, or ANTHROPIC_API_KEY where the upstream is Anthropic's.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

/// Settings that take precedence over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
struct Settings {
    /// Address for clients (listen.proxy), such as 127.0.0.1:4242; a port alone is one of 127.0.0.1.
    #[arg(long, value_name = "ADDR", env = "TOOLREIN_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Address of metrics and health (listen.admin), such as 127.0.0.1:4243.
    #[arg(long, value_name = "ADDR", env = "TOOLREIN_ADMIN", hide_env_values = true)]
    admin: Option<String>,
    /// URL of the upstream (upstream.url), such as https://api.openai.com/v1; demo: is a simulated model.
    #[arg(long, value_name = "URL", env = "TOOLREIN_UPSTREAM", hide_env_values = true)]
    upstream: Option<String>,
    /// Whether policies act (enforce), are only counted (observe) or are off (off).
    #[arg(long, value_name = "MODE", env = "TOOLREIN_MODE", hide_env_values = true)]
    mode: Option<String>,
    /// How much is logged (log.level): off, error, warn, info, debug, trace, or levels by module.
    #[arg(long, value_name = "LEVEL", env = "TOOLREIN_LOG_LEVEL", hide_env_values = true)]
    log_level: Option<String>,
}

/// Options of `demo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct DemoArgs {
    /// Address for clients, such as 127.0.0.1:4242.
    #[arg(long, value_name = "ADDR", env = "TOOLREIN_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Address of metrics and health, such as 127.0.0.1:4243.
    #[arg(long, value_name = "ADDR", env = "TOOLREIN_ADMIN", hide_env_values = true)]
    admin: Option<String>,
    /// Print the table and exit.
    #[arg(long)]
    pub once: bool,
}

impl Cli {
    /// The requested command; without a subcommand, `serve`.
    pub fn into_command(self) -> Command {
        self.0
    }
}

impl Parser for Cli {}

impl CommandFactory for Cli {
    fn command() -> clap::Command {
        Parsed::command()
    }

    fn command_for_update() -> clap::Command {
        Parsed::command_for_update()
    }
}

impl FromArgMatches for Cli {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Parsed { command, serve } = Parsed::from_arg_matches(matches)?;
        let Some((mut command, (name, subcommand))) = command.zip(matches.subcommand()) else {
            return Ok(Self(Command::Serve(serve)));
        };
        let is_written = |matches: &ArgMatches, option| {
            let is_known = matches.try_contains_id(option).is_ok();
            is_known && matches.value_source(option) == Some(ValueSource::CommandLine)
        };
        // Options after the subcommand take precedence over those before it, and both over a variable.
        for option in BEFORE.into_iter().filter(|option| is_written(matches, option)) {
            if !is_written(subcommand, option) && !command.take(option, &serve) {
                let message = format!("--{} is not an option of {name}\n", option.replace('_', "-"));
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
            }
        }
        if is_written(subcommand, "config_file") && is_written(subcommand, "config") {
            let message = format!("{name} takes one configuration file: FILE or --config\n");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        }
        if let Command::Check(CheckArgs { config, .. }) | Command::Doctor(DoctorArgs { config, .. }) =
            &mut command
        {
            config.settle();
        }
        Ok(Self(command))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Command {
    /// Takes an option that was written before the subcommand; returns whether it has such an option.
    fn take(&mut self, option: &str, before: &ServeArgs) -> bool {
        match self {
            Self::Serve(ServeArgs { config, .. })
            | Self::Check(CheckArgs { config: ConfigArgs { config, .. }, .. })
            | Self::Replay(ReplayArgs { config, .. })
            | Self::Explain(ExplainArgs { config, .. })
            | Self::Doctor(DoctorArgs { config: ConfigArgs { config, .. }, .. })
            | Self::Run(RunArgs { config, .. })
            | Self::Setup(SetupArgs { config, .. })
                if option == "config" =>
            {
                config.clone_from(&before.config);
                true
            }
            Self::Serve(ServeArgs { settings, .. })
            | Self::Check(CheckArgs { settings, .. })
            | Self::Doctor(DoctorArgs { settings, .. })
            | Self::Run(RunArgs { settings, .. })
            | Self::Setup(SetupArgs { settings, .. }) => settings.take(option, &before.settings),
            Self::Demo(DemoArgs { listen, .. }) if option == "listen" => {
                listen.clone_from(&before.settings.listen);
                true
            }
            Self::Demo(DemoArgs { admin, .. }) if option == "admin" => {
                admin.clone_from(&before.settings.admin);
                true
            }
            _ => false,
        }
    }
}

impl ServeArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        source(self.config.as_ref())
    }

    /// The overrides of the configuration.
    pub fn overrides(&self) -> Overrides {
        self.settings.overrides()
    }
}

impl CheckArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        self.config.source()
    }

    /// The overrides of the configuration.
    pub fn overrides(&self) -> Overrides {
        self.settings.overrides()
    }
}

impl DoctorArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        self.config.source()
    }

    /// The overrides of the configuration.
    pub fn overrides(&self) -> Overrides {
        self.settings.overrides()
    }

    /// What is needed of the environment: the key that toolrein sends, or else the one that clients send.
    pub fn environment(&self, config: &Config) -> Environment {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let own = Some(&config.upstream.api_key_env).filter(|name| !name.is_empty());
        let usual = match config.upstream.url.is_host(ANTHROPIC_HOST) {
            true => "ANTHROPIC_API_KEY",
            false => "OPENAI_API_KEY",
        };
        let key_env = own.or(self.key_env.as_ref()).cloned().unwrap_or_else(|| usual.to_owned());
        Environment {
            key: set(&key_env),
            key_env,
            is_own: own.is_some(),
            base_url: set("OPENAI_BASE_URL"),
            anthropic_base_url: set("ANTHROPIC_BASE_URL"),
        }
    }
}

impl Settings {
    /// Takes an option from those `before` it; returns whether there is such an option.
    fn take(&mut self, option: &str, before: &Self) -> bool {
        match option {
            "listen" => self.listen.clone_from(&before.listen),
            "admin" => self.admin.clone_from(&before.admin),
            "upstream" => self.upstream.clone_from(&before.upstream),
            "mode" => self.mode.clone_from(&before.mode),
            "log_level" => self.log_level.clone_from(&before.log_level),
            _ => return false,
        }
        true
    }

    fn overrides(&self) -> Overrides {
        Overrides {
            listen: given(&self.listen),
            admin: given(&self.admin),
            upstream: given(&self.upstream).map(of_simulation),
            mode: given(&self.mode),
            log_level: given(&self.log_level),
            settings: Overrides::settings_of_environment(),
            ..Overrides::default()
        }
    }
}

impl DemoArgs {
    /// The shipped configuration in front of the simulated model, at the addresses given.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            listen: given(&self.listen),
            admin: given(&self.admin),
            upstream: Some("demo:".to_owned()),
            // Its own table says what happens.
            log_level: Some("warn".to_owned()),
            ..Overrides::default()
        }
    }
}

/// A value that is not empty: compose files and shells unset variables by setting them to nothing.
fn given(value: &Option<String>) -> Option<String> {
    value.clone().filter(|value| !value.is_empty())
}

/// `demo`, which is no URL, is written for `demo:`.
fn of_simulation(upstream: String) -> String {
    if upstream == "demo" { "demo:".to_owned() } else { upstream }
}

/// The output of `toolrein completions SHELL`.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "toolrein", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FLAG_VARIABLES;

    #[test]
    fn every_variable_of_a_flag_is_known_where_misspelt_ones_are_looked_for() {
        let command = Parsed::command();
        let all = std::iter::once(&command).chain(command.get_subcommands());
        let mut variables: Vec<String> = all
            .flat_map(|command| command.get_arguments().filter_map(|argument| argument.get_env()))
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        variables.sort_unstable();
        variables.dedup();
        let mut known = FLAG_VARIABLES.to_vec();
        known.sort_unstable();
        assert_eq!(variables, known);
    }
}
