//! Recorded conversations, replayed: what the policies would have done to each request and each call, told in
//! total, per policy and per source, without any network. Responsible for the course of the whole; the reading
//! of policies is the core's, and printing what goes to a terminal is the caller's.
//!
//! A conversation goes on as it was recorded: what the model would have done after a withheld call is not known.

mod course;
mod crew;
mod growth;
mod input;
pub(crate) mod one;
mod progress;
mod recording;
mod report;
mod table;
mod tally;
mod times;

use crate::config::{Config, Mode};
use crew::Crew;
use progress::Progress;
use report::Report;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How to replay, and what to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// From one call to the next, where no times are recorded.
    pub pace: Duration,
    /// Tells of each conversation too.
    pub verbose: bool,
    /// Writes JSON, one value a line.
    pub json: bool,
    /// Conversations replayed at once; 0: one on each core.
    pub threads: usize,
    /// The profile that all of them take; without one, that of the model.
    pub profile: Option<String>,
}

/// A configuration as a replay takes it: enforced, whatever its mode, and with no conversation held out.
pub struct Enforced(Arc<Config>);

impl Enforced {
    /// The same of `config`.
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

/// What is to be said before anything that a replay of `config` tells, if something is.
pub fn caveat(config: &Config) -> Option<&'static str> {
    let summarises = config.summary_places().next().is_some();
    summarises.then_some("no model is asked for summaries here: what would have one is told as cleared")
}

/// Replays the conversations in `files` (`-` is standard input) through the policies of `config` and writes to
/// `out` what they would have done. `bar`: where progress is drawn, if anywhere.
/// Says whether any conversation could be read.
///
/// # Errors
/// Those of `out`. What is wrong with a file or a line is told in the report.
pub fn run(
    config: &Enforced,
    files: &[PathBuf],
    options: &Options,
    out: &mut dyn Write,
    bar: Option<&mut dyn Write>,
) -> io::Result<bool> {
    let crew = Crew::new(config, files, options);
    let mut progress = Progress::new(bar, input::total_bytes(files));
    let mut report = Report::new(config.policy_names());
    crew.replay(|replayed, bytes_read| {
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
