//! `toolrein setup` and `toolrein undo`: put the line that a coding agent needs into its configuration file, and take it
//! out again to the byte. Never touches a key that is there already.

mod agents;
mod file;
mod insert;
mod record;
mod yaml;

pub use self::agents::{AGENTS, Agent, named};

use self::file::ConfigFile;
use self::insert::{UpstreamSetting, insert_all, remove_all};
use self::record::{KeptRecord, Record, Records};
use crate::config::without_secrets;
use similar::TextDiff;
use std::ffi::OsString;
use std::fs::remove_file;

/// The question before a file is changed that its user has changed. Returns the answer; `None`: nobody can be asked.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> Option<bool>;

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Puts the agent's requests on the way to the proxy at `base_url`. Returns what was done, in lines.
///
/// # Errors
/// Why nothing was changed, as a sentence.
pub fn setup(agent: &Agent, base_url: &str) -> Result<Vec<String>, String> {
    let (path, form) = agent.file(base_url, &variable)?;
    let name = agent.name;
    let records = Records::open()?;
    let kept: Vec<KeptRecord> = records.of(name)?.into_iter().collect::<Result<_, _>>()?;
    let file = ConfigFile::read(&path)?;
    let mut kept = kept.into_iter().filter(|kept| kept.record.is_of(&file.path)).peekable();
    let shown = path.display();
    let text = file.text.clone().unwrap_or_default();
    let found = form.find(&text, base_url).map_err(|problem| {
        format!("{shown}: {problem}; nothing was changed. It has to name {}", form.value(base_url))
    })?;
    let insertions = match found {
        UpstreamSetting::Named(value) if value.trim_end_matches('/') == form.value(base_url) => {
            let line = match kept.peek() {
                Some(_) => {
                    format!("{name} is set up already, in {shown}; toolrein undo {name} takes it back")
                }
                None => format!("{name} was set up by hand already, in {shown}; nothing was changed"),
            };
            return Ok(vec![line]);
        }
        UpstreamSetting::Named(value) => {
            let value = without_secrets(&value);
            return Err(format!(
                "{shown}: names {value:?} as its upstream already; nothing was changed. Start toolrein with --upstream and \
                 that address, and write {} there yourself",
                form.value(base_url)
            ));
        }
        UpstreamSetting::Missing(insertions) => insertions,
    };
    file.check_writable()?;
    // Its line is gone from the file, so there is nothing that it could undo.
    kept.try_for_each(|kept| records.forget(&kept))?;
    let folders = file.missing_folders();
    let record = Record { path: file.path.clone(), before: file.text.clone(), insertions, folders };
    let kept = records.keep(name, record)?;
    let record = &kept.record;
    let changed = ConfigFile::create_folders(&record.folders)
        .and_then(|()| file.replace(&insert_all(&text, &record.insertions)));
    if let Err(problem) = changed {
        records.forget(&kept)?;
        return Err(problem);
    }
    let mut lines = vec![format!("{name}: its requests now go to {base_url}, by {shown}")];
    lines.extend(record.insertions.first().map(|insertion| format!("  {}", insertion.text.trim())));
    lines.push(format!("toolrein undo {name} takes it back"));
    if !agent.is_installed(&variable) {
        lines.push(format!("{} is not on the path here", agent.program));
    }
    Ok(lines)
}

/// Takes back what [`setup`] did to each file of the agent, and returns it in lines. A file that its user has changed since
/// is changed only where `is_forced`, or where the answer to the question is yes.
///
/// # Errors
/// What was not taken back and why, as sentences, after what was.
pub fn undo(agent: &Agent, is_forced: bool, ask: Ask<'_>) -> Result<Vec<String>, String> {
    let name = agent.name;
    let records = Records::open()?;
    let found = records.of(name)?;
    if found.is_empty() {
        return Err(format!("{name} was not set up by toolrein, so there is nothing to take back"));
    }
    let (mut lines, mut problems) = (Vec::new(), Vec::new());
    for kept in found {
        match kept.and_then(|kept| undo_one(name, &records, &kept, is_forced, ask)) {
            Ok(done) => lines.extend(done),
            Err(problem) => problems.push(problem),
        }
    }
    match problems.is_empty() {
        true => Ok(lines),
        false => Err([lines, problems].concat().join("\n")),
    }
}

fn undo_one(
    name: &str,
    records: &Records,
    kept: &KeptRecord,
    is_forced: bool,
    ask: Ask<'_>,
) -> Result<Vec<String>, String> {
    let record = &kept.record;
    let file = ConfigFile::read(&record.path)?;
    let shown = record.path.display();
    if file.text.as_deref() == Some(&*record.after()) {
        file.check_writable()?;
        put_back(&file, record)?;
        records.forget(kept)?;
        return Ok(vec![format!("{name}: {shown} is as it was before setup")]);
    }
    if file.text == record.before {
        records.forget(kept)?;
        return Ok(vec![format!("{name}: {shown} is as it was before setup already")]);
    }
    let without = file.text.as_deref().and_then(|present| remove_all(present, &record.insertions));
    let question = question(record, file.text.as_deref(), without.is_some());
    match if is_forced { Some(true) } else { ask(&question) } {
        Some(true) => {}
        Some(false) => return Err("nothing was changed".to_owned()),
        None => return Err(format!("{question}\nNothing was changed; --force does it")),
    }
    file.check_writable()?;
    let copy = file.text.as_deref().map(|present| records.keep_changed(name, present)).transpose()?;
    let changed = match &without {
        Some(without) => file.replace(without),
        None => put_back(&file, record),
    };
    if let Err(problem) = changed {
        // The file itself is unchanged.
        copy.iter().for_each(|copy| drop(remove_file(copy)));
        return Err(problem);
    }
    records.forget(kept)?;
    let what = if without.is_some() {
        "toolrein's line is gone from"
    } else {
        "the copy from before setup is back in"
    };
    let mut lines = vec![format!("{name}: {what} {shown}")];
    lines.extend(copy.map(|copy| format!("The file as you had it is kept in {}", copy.display())));
    Ok(lines)
}

/// Puts back what was there before setup.
fn put_back(file: &ConfigFile, record: &Record) -> Result<(), String> {
    match &record.before {
        Some(before) => {
            // The folder may be gone with the file.
            ConfigFile::create_folders(&file.missing_folders())?;
            file.replace(before)
        }
        None => file.remove(&record.folders),
    }
}

/// The question about a file that was changed since setup, with the difference.
fn question(record: &Record, present: Option<&str>, can_take_out: bool) -> String {
    let shown = record.path.display();
    let Some(present) = present else {
        return format!("{shown} is not there any more. Put back the copy from before setup?");
    };
    let after = record.after();
    let difference = TextDiff::from_lines(after.as_str(), present);
    let difference =
        difference.unified_diff().context_radius(2).header("as setup left it", "as it is now").to_string();
    let what = match can_take_out {
        true => "Take out toolrein's line alone, and keep your changes?",
        false => {
            "toolrein's line is not there as it was written. Put back the copy from before setup? The file as it is now is kept"
        }
    };
    format!("{shown} has changed since setup:\n{difference}{what}")
}

/// A line for each agent: whether it is here, and whether its requests go to the proxy at `base_url`.
///
/// # Errors
/// The records cannot be read.
pub fn list(base_url: &str) -> Result<Vec<String>, String> {
    let records = Records::open()?;
    let mut lines = Vec::new();
    for agent in &AGENTS {
        let installed = if agent.is_installed(&variable) { "found" } else { "not found" };
        let found = agent.file(base_url, &variable);
        let state = found.and_then(|(path, form)| {
            let file = ConfigFile::read(&path)?;
            let kept: Vec<KeptRecord> = records.of(agent.name)?.into_iter().collect::<Result<_, _>>()?;
            let is_ours = kept.iter().any(|kept| kept.record.is_of(&file.path));
            let found = form.find(&file.text.unwrap_or_default(), base_url);
            Ok(format!("{}, {}", state(found, &form.value(base_url), is_ours), path.display()))
        });
        let state = state.unwrap_or_else(|sentence| sentence);
        lines.push(format!("{:<9} {installed:<10} {state}", agent.name));
    }
    Ok(lines)
}

fn state(found: Result<UpstreamSetting, String>, value: &str, is_ours: bool) -> String {
    match found {
        Ok(UpstreamSetting::Named(named)) if named.trim_end_matches('/') == value && is_ours => {
            "set up".to_owned()
        }
        Ok(UpstreamSetting::Named(named)) if named.trim_end_matches('/') == value => {
            "set up by hand".to_owned()
        }
        Ok(UpstreamSetting::Named(named)) => format!("has another upstream ({})", without_secrets(&named)),
        Ok(UpstreamSetting::Missing(_)) => "not set up".to_owned(),
        Err(problem) => problem,
    }
}
