//! Replay of recorded conversations: what the policies would have done to each request and each call, reported in
//! total, per policy and per source, without any network. Responsible for the overall sequence; the exchange decides,
//! and the caller prints to the terminal.
//!
//! A conversation continues as it was recorded: what the model would have done after a blocked call is not known.

mod document;
mod exchange_lines;
mod exports;
mod growth;
mod input;
pub mod live;
pub(crate) mod one;
mod progress;
mod recording;
mod replayer;
mod report;
mod table;
mod tally;
mod times;
mod workers;

use crate::config::{Config, Mode};
use bytes::Bytes;
use one::Chosen;
use progress::Progress;
use replayer::Replayer;
use report::Report;
use serde_json::Value;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use workers::{Replayed, Workers};

/// The time from one call to the next in a live conversation, whose requests hold no times.
pub(crate) const LIVE_PACE: Duration = Duration::from_secs(5);

/// How to replay, and what to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The time from one call to the next, where no times are recorded.
    pub pace: Duration,
    /// Reports each conversation too.
    pub verbose: bool,
    /// Writes JSON, one value a line.
    pub json: bool,
    /// Conversations replayed at once; 0: one on each core.
    pub threads: usize,
    /// The profile that all of them take; without one, that of the model.
    pub profile: Option<String>,
}

/// A configuration for a replay: enforced, whatever its mode, and with no conversation held out.
pub struct Enforced(Arc<Config>);

impl Enforced {
    /// `config` for a replay.
    pub fn new(mut config: Config) -> Self {
        config.mode = Mode::Enforce;
        config.conversation.holdout = 0;
        Self(Arc::new(config))
    }
}

impl Deref for Enforced {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}

/// A warning to print before the results of a replay with `config`, if there is one.
pub fn caveat(config: &Config) -> Option<&'static str> {
    let summarises = config.summary_endpoints().next().is_some();
    if summarises {
        return Some("no model is asked for summaries here: results that would get one are shown as cleared");
    }
    let asks = config.model_endpoints().next().is_some();
    asks.then_some("no model is asked about calls here: they are shown as they run where it does not answer")
}

/// Replays the conversations in `files` (`-` is standard input) through the policies of `config` and writes to
/// `out` what they would have done. `bar`: where progress is drawn, if anywhere.
/// Returns whether any conversation could be read.
///
/// # Errors
/// Those of `out`. Problems of a file or a line are part of the report.
pub fn run(
    config: &Enforced,
    files: &[PathBuf],
    options: &Options,
    out: &mut dyn Write,
    bar: Option<&mut dyn Write>,
) -> io::Result<bool> {
    let workers = Workers::new(config, files, options);
    let mut progress = Progress::new(bar, input::total_bytes(files));
    let mut report = Report::new(config.policy_names());
    workers.replay(|replayed, bytes_read| {
        progress.advance(bytes_read);
        if options.verbose {
            report::write_one(&replayed, options.json, out)?;
        }
        report.add(replayed);
        Ok(())
    })?;
    progress.clear();
    if options.json {
        report.write_json(out)?;
    } else {
        table::write(&report, out)?;
    }
    out.flush()?;
    Ok(report.total.conversations > 0)
}

/// The report on the replay of the conversation in `body`, named `name`, as [`run`] writes it in JSON.
///
/// # Errors
/// Why the conversation cannot be read.
pub fn report_of(config: &Enforced, body: &Bytes, name: &str) -> Result<Value, String> {
    let chosen = Chosen::of_body(body, name).map_err(|error| error.to_string())?;
    let options = Options { pace: LIVE_PACE, verbose: false, json: true, threads: 1, profile: None };
    let replayed = Replayer::new(config, &options).replay(chosen.position, &chosen.recording);
    let mut report = Report::new(config.policy_names());
    report.add(Replayed::Conversation(Box::new(replayed)));
    let mut out = Vec::new();
    report.write_json(&mut out).map_err(|error| error.to_string())?;
    serde_json::from_slice(&out).map_err(|error| error.to_string())
}
