//! The options of `setup` and `undo`, which change the configuration files of coding agents.

use super::{Settings, file, source};
use crate::config::{Overrides, Source};
use clap::Args;
use std::path::PathBuf;

pub(super) const SETUP_HELP: &str = "\
Puts the line that the agent needs into its own configuration file, keeps a copy, and asks whether
a toolrein answers at the configured addresses. A key that is there already is not touched. The
agents are codex, opencode, goose, aider and continue; for cline and claude it says what to do.

Exits with 0 if the agent is set up, with 1 if not, with 2 if the configuration has problems.

Example: toolrein setup codex, and to take it back: toolrein undo codex";

/// Options of `setup`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct SetupArgs {
    /// The agent.
    #[arg(value_name = "AGENT", required_unless_present = "list")]
    pub agent: Option<String>,
    /// List the agents: which are found, and which are set up.
    #[arg(long, conflicts_with = "agent")]
    pub list: bool,
    /// The configuration file; without it the shipped one.
    #[arg(short, long, value_name = "FILE", env = "TOOLREIN_CONFIG", hide_env_values = true, value_parser = file())]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Options of `undo`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct UndoArgs {
    /// The agent.
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// Do it also where the file was changed since setup; the file as it is now is kept.
    #[arg(long)]
    pub force: bool,
}

impl SetupArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        source(self.config.as_ref())
    }

    /// The overrides of the configuration.
    pub fn overrides(&self) -> Overrides {
        self.settings.overrides()
    }
}
