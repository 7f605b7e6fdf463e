//! The options of `replay` and `explain`, which read recorded conversations.

use super::{file, given, source};
use crate::config::{Overrides, Source};
use crate::explain::{self, Form, Which};
use crate::replay;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const REPLAY_HELP: &str = "\
FILE is a file, a directory of files that end in .jsonl, .json or .ndjson, such as the
recorder's, or - for standard input. It holds conversations one a line, or one JSON document: a
conversation, or a list of them. Logs of OpenAI's batches, runs of LangSmith, and traces and
observations of Langfuse are read too (see docs/recorder.md).

Each line is a JSON object: {\"messages\": [...], \"tools\": [...]} or a whole request body, of
chat completions or of the Responses API. It may also have a source, id, model and reward (1:
the task was solved); messages and items may have a timestamp (RFC 3339, or seconds). A line may
be {\"request\": {...}, \"response\": ...} as well. Of request bodies that continue each other
the last one is replayed; one with a previous_response_id counts by itself. A conversation
continues as it was recorded, also after a call that would be blocked: what follows is
counterfactual, and is counted apart.

Exits with 0 if a conversation was replayed, with 1 if none could be read, with 2 if the
configuration has problems.

Example: toolrein replay --config proxy.toml conversations.jsonl";

pub(super) const EXPLAIN_HELP: &str = "\
FILE has the format of toolrein replay. The conversation's last request is shown as it would
have been sent, beside what was recorded, and each call with its verdict. A conversation
continues as it was recorded, also after a call that would be blocked. Where toolrein recorded
it, what it did then is shown too, with what the model did next. Colours are used on terminals
only; NO_COLOR switches them off.

Exits with 0 if a conversation was shown, with 1 if there was none to show, with 2 if the
configuration has problems.

Example: toolrein explain --line 3 --html conversations.jsonl > page.html";

/// Options of `replay`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ReplayArgs {
    /// Recorded conversations: files, directories, or - for standard input.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The configuration file; without it the shipped one. Read as if its mode were enforce.
    #[arg(short, long, value_name = "FILE", env = "TOOLREIN_CONFIG", hide_env_values = true, value_parser = file())]
    pub(super) config: Option<PathBuf>,
    /// Time from one call to the next where no times are recorded.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    pace: Duration,
    /// The profile of every conversation; without it the profile of its model, if there is one.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Report each conversation too.
    #[arg(long)]
    pub verbose: bool,
    /// Write JSON: one object; with --verbose, also one for each line before it.
    #[arg(long)]
    json: bool,
}

/// Options of `explain`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ExplainArgs {
    /// Recorded conversations: a file, a directory, or - for standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The configuration file; without it the shipped one. Read as if its mode were enforce.
    #[arg(short, long, value_name = "FILE", env = "TOOLREIN_CONFIG", hide_env_values = true, value_parser = file())]
    pub(super) config: Option<PathBuf>,
    /// The conversation in this line, or of this number in a JSON document, from 1; without it and --id the first.
    #[arg(long, value_name = "N", conflicts_with = "id", value_parser = clap::value_parser!(u64).range(1..))]
    line: Option<u64>,
    /// The first conversation with this id.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Time from one call to the next where no times are recorded.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    pace: Duration,
    /// The profile of the conversation; without it the profile of its model, if there is one.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Write one self-contained HTML page.
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// Write JSON: one object.
    #[arg(long)]
    json: bool,
    /// Show texts in full, also long ones and unchanged ones.
    #[arg(long)]
    full: bool,
}

impl ReplayArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        source(self.config.as_ref())
    }

    /// The overrides of the configuration.
    pub fn overrides(&self) -> Overrides {
        Overrides { settings: Overrides::settings_of_environment(), ..Overrides::default() }
    }

    /// How to replay, and what to report.
    pub fn options(&self) -> replay::Options {
        let profile = given(&self.profile);
        replay::Options { pace: self.pace, verbose: self.verbose, json: self.json, threads: 0, profile }
    }
}

impl ExplainArgs {
    /// The source of the configuration.
    pub fn source(&self) -> Source {
        source(self.config.as_ref())
    }

    /// The overrides of the configuration.
    pub fn overrides(&self) -> Overrides {
        Overrides { settings: Overrides::settings_of_environment(), ..Overrides::default() }
    }

    /// What to explain, and how. `colour`: the output supports colours.
    pub fn options(&self, colour: bool) -> explain::Options {
        let which = match (self.line, &self.id) {
            (Some(line), _) => Which::Line(line),
            (None, Some(id)) => Which::Id(id.clone()),
            (None, None) => Which::First,
        };
        let form = match (self.html, self.json) {
            (true, _) => Form::Html,
            (false, true) => Form::Json,
            (false, false) => Form::Text { colour },
        };
        explain::Options { which, form, full: self.full, profile: given(&self.profile), pace: self.pace }
    }
}
