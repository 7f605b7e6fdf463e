//! Explanation of one recorded conversation: each message as recorded and as the model would see it, what was done to
//! it, by which policy and why. Chooses the output form; `replay` runs the policies, the files here lay out what it
//! observed.

mod acts;
mod facts;
mod headline;
mod html;
mod items;
mod live;
mod marks;
mod read;
mod ruled;
mod text;
mod visible;

use self::facts::Explained;
pub use crate::replay::live::LiveCounts;
pub use crate::replay::one::Which;
use crate::replay::one::{Chosen, choose};
use crate::replay::{self, Enforced};
use bytes::Bytes;
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use wire::plural::counted;

/// What to explain, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub which: Which,
    pub form: Form,
    /// Texts are shown whole.
    pub full: bool,
    /// The profile that it takes; without one, that of its model.
    pub profile: Option<String>,
    /// The time from one call to the next, where no times are recorded.
    pub pace: Duration,
}

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text {
        colour: bool,
    },
    /// One self-contained page.
    Html,
    /// One object on one line.
    Json,
}

/// Explains a conversation of the file at `path` (`-` is standard input) to `out`, as the policies of `config` would
/// have acted with `mode = "enforce"`. Remarks go to `aside`, a line each. Returns whether there was one.
///
/// # Errors
/// Those of `out` and of `aside`.
pub fn run(
    config: &Enforced,
    path: &Path,
    options: &Options,
    out: &mut dyn Write,
    aside: &mut dyn Write,
) -> io::Result<bool> {
    let name = visible::one_line(&path.to_string_lossy()).into_owned();
    let chosen = match choose(path, &options.which, config.limits.request_bytes) {
        Ok(chosen) => chosen,
        Err(error) => {
            let error = visible::one_line(&error.to_string()).into_owned();
            // What is said of a line names its file itself.
            let about = if error.starts_with(&name) { String::new() } else { format!("{name}: ") };
            writeln!(aside, "toolrein: {about}{error}")?;
            return Ok(false);
        }
    };
    mention_others(&chosen, &options.which, &name, aside)?;
    if let Some(caveat) = replay::caveat(config) {
        writeln!(aside, "toolrein: {caveat}")?;
    }
    let explained = explained(config, &chosen, options.profile.as_deref(), options.pace);
    match options.form {
        Form::Text { colour } => text::write(&explained, colour, options.full, out)?,
        Form::Html => html::write(&explained, options.full, out)?,
        Form::Json => writeln!(out, "{}", serde_json::to_string(&explained).map_err(io::Error::other)?)?,
    }
    out.flush()?;
    Ok(true)
}

fn explained(config: &Enforced, chosen: &Chosen, profile: Option<&str>, pace: Duration) -> Explained {
    let how = replay::Options {
        pace,
        verbose: false,
        json: false,
        threads: 1,
        profile: profile.map(str::to_owned),
    };
    let seen = replay::one::replay(config, chosen, &how);
    let model = chosen.recording.labels.model.as_deref().unwrap_or_default();
    let of_model = || config.profiles.of_model(model).map(|profile| &*profile.name);
    read::explain(config, chosen, &seen, profile.or_else(of_model))
}

/// The explanation of the conversation in `body`, named `name`, as a self-contained HTML page; `live_counts`: what became of
/// its calls when they were made.
///
/// # Errors
/// Why the conversation cannot be read.
pub fn page_of(
    config: &Enforced,
    body: &Bytes,
    name: &str,
    live_counts: LiveCounts,
) -> Result<String, String> {
    let mut page = Vec::new();
    let explained = Explained { live_counts: Some(live_counts), ..of_body(config, body, name)? };
    html::write(&explained, true, &mut page).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// The items of the conversation in `body`: messages, calls, results, notices and blocked calls.
///
/// # Errors
/// Why the conversation cannot be read.
pub fn items_of(config: &Enforced, body: &Bytes, name: &str) -> Result<Value, String> {
    of_body(config, body, name).map(|explained| items::items(&explained))
}

fn of_body(config: &Enforced, body: &Bytes, name: &str) -> Result<Explained, String> {
    let chosen = Chosen::of_body(body, &visible::one_line(name)).map_err(|error| error.to_string())?;
    Ok(explained(config, &chosen, None, replay::LIVE_PACE))
}

/// Mentions the other conversations of the file, where none was chosen.
fn mention_others(chosen: &Chosen, asked: &Which, name: &str, aside: &mut dyn Write) -> io::Result<()> {
    if *asked != Which::First {
        return Ok(());
    }
    if chosen.readable > 1 {
        let (all, line) = (chosen.readable, chosen.position.line);
        writeln!(
            aside,
            "toolrein: {name} holds {}; this is line {line} (--line N or --id ID chooses)",
            counted(all, "conversation")
        )?;
    }
    if chosen.broken > 0 {
        writeln!(
            aside,
            "toolrein: {name}: {} cannot be read (toolrein replay names them)",
            counted(chosen.broken, "line")
        )?;
    }
    Ok(())
}
