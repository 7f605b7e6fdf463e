//! `toolrein run`: the proxy in front of one command, for as long as that runs, and at its end a few lines about what was
//! stopped. Counts nothing itself: its numbers are those of the live view.

mod agent;
mod child;
mod codex;
mod explanation;
mod folder;
mod summary;

pub use self::agent::{detour, named_upstream, program_of};

use self::child::Signals;
use self::folder::Folder;
use crate::config::{Config, OPENAI_HOST, OwnToken, Target};
use crate::secret::random_token;
use crate::serve::{Running, StartError, log_settings};
use crate::setup;
use crate::telemetry::log::Log;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How long requests of processes that outlive the command may take to end.
const MOST_DRAIN: Duration = Duration::from_secs(2);

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The configuration file, which an explanation needs too.
    pub config_file: Option<PathBuf>,
    /// The log goes to standard error.
    pub logs_here: bool,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The exit code.
    pub code: u8,
    /// What to say about it, a line each.
    pub lines: Vec<String>,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot write the recording and the log of this run: {0}")]
    Folder(io::Error),
    #[error("cannot wait for the command: {0}")]
    Signals(#[from] io::Error),
}

/// Runs the command with its model requests governed by `config`, and waits for its end.
///
/// # Errors
/// Why the command was not started, or why its end is not known.
pub async fn run(config: Config, order: &Order) -> Result<Ending, RunError> {
    let mut signals = Signals::listen()?;
    let folder = Folder::create().map_err(RunError::Folder)?;
    let config = of_one_command(config, &folder);
    let log = match order.logs_here {
        true => Log::start(log_settings(&config.log)),
        false => Log::to_writer(folder.log().map_err(RunError::Folder)?),
    };
    let running = Running::start_with_log(config, log).await?;
    let (config, live) = (running.config(), running.live());
    let base_url = format!("http://{}/v1", running.address());
    let needs_key = config.upstream.api_key_env.is_empty() && config.upstream.url != Target::Demo;
    let set = |name: &str| std::env::var_os(name);
    // Its requests are sent with the first, and with the second it could approve its own calls.
    let secrets = [config.upstream.api_key_env.as_str(), config.admin.token_env.as_str()];
    let secrets: Vec<&str> = secrets.into_iter().filter(|name| !name.is_empty()).collect();
    let name =
        order.command.first().map_or_else(String::new, |program| program.to_string_lossy().into_owned());
    let configuration = |agent: &str| {
        let text = setup::changed_configuration(setup::named(agent).ok()?, &base_url)?;
        folder.write_configuration(&text).ok()
    };
    let is_openai = config.upstream.url.is_host(OPENAI_HOST);
    let start = agent::start(&order.command, &base_url, is_openai, needs_key, &secrets, set, configuration);
    let ended = match child::spawn(&start) {
        Ok(mut child) => Ok(child::wait(&mut child, &mut signals, &name).await),
        Err(refused) => Err(refused),
    };
    running.stop().await;
    let status = match ended {
        Ok(status) => status?,
        Err((sentence, code)) => return Ok(Ending { code, lines: vec![sentence] }),
    };
    let explanation = explanation::command(config.record.path(), order.config_file.as_deref());
    let lines = summary::lines(&config, &live, &explanation);
    Ok(Ending { code: child::exit_code(status), lines })
}

/// The configuration for a proxy that one command on this machine uses: without TLS and a port for probes, with a
/// recording.
fn of_one_command(mut config: Config, folder: &Folder) -> Config {
    config.certificates = None;
    config.listen.tls = Default::default();
    config.listen.probes = None;
    config.limits.drain_timeout = config.limits.drain_timeout.min(MOST_DRAIN);
    if config.record.path().is_none() {
        config.record.dir = folder.recording();
    }
    if !config.admin.has_token() {
        // Decisions with their sentences are kept for the holder of a token alone.
        config.admin.own_token = Some(OwnToken(random_token()));
    }
    config
}
