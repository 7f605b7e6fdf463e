//! `toolrein setup` and `toolrein undo`: put the line that a coding agent needs into its configuration file, and take it
//! out again to the byte. Never touches a key that is there already.

mod agents;
mod file;
mod insert;
mod record;
mod upstream;
mod yaml;

pub use self::agents::{AGENTS, Agent, named};
pub use self::upstream::{NamedUpstream, own_upstream};

use self::file::ConfigFile;
use self::insert::{Form, Insertion, UpstreamSetting, insert_all, remove_all};
use self::record::{KeptRecord, Record, Records};
use self::upstream::{before_file, check_provider, is_same, leads_to, shipped};
use crate::config::without_secrets;
use similar::TextDiff;
use std::ffi::OsString;
use std::fs::remove_file;
use std::path::PathBuf;

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
    let shown = path.display();
    let kept: Vec<KeptRecord> = kept.into_iter().filter(|kept| kept.record.is_of(&file.path)).collect();
    let own = kept.last().map(|kept| &kept.record);
    let wanted = form.value(base_url);
    let change = change(form, base_url, &file, own).map_err(|problem| format!("{shown}: {problem}"))?;
    let elsewhere = before_file(agent, Some(&path), &current_folder(), &variable)?;
    let elsewhere = elsewhere.filter(|found| !is_wanted(&found.value, &wanted)).map(|found| {
        let (place, value) = (found.place, without_secrets(&found.value));
        format!("{place} counts before it here, and names {value:?}: it has to name {wanted}")
    });
    let Some(Change { before, insertions, folders }) = change else {
        let line = match own {
            Some(_) => format!("{name} is set up already, in {shown}; toolrein undo {name} takes it back"),
            None => format!("{name} was set up by hand already, in {shown}; nothing was changed"),
        };
        return Ok([line].into_iter().chain(elsewhere).collect());
    };
    file.check_writable()?;
    let record = Record { path: file.path.clone(), before, insertions, folders };
    let new = records.keep(name, record)?;
    let record = &new.record;
    let changed =
        ConfigFile::create_folders(&file.missing_folders()).and_then(|()| file.replace(&record.after()));
    if let Err(problem) = changed {
        records.forget(&new)?;
        return Err(problem);
    }
    // What they put into the file is not there any more.
    kept.iter().try_for_each(|kept| records.forget(kept))?;
    let mut lines = match elsewhere {
        None => vec![format!("{name}: its requests now go to {base_url}, by {shown}")],
        Some(elsewhere) => vec![format!("{name}: {shown} now names {wanted}"), elsewhere],
    };
    lines.extend(record.insertions.first().map(|insertion| format!("  {}", insertion.text.trim())));
    lines.push(format!("toolrein undo {name} takes it back"));
    if !agent.is_installed(&variable) {
        lines.push(format!("{} is not on the path here", agent.program));
    }
    Ok(lines)
}

/// What is to be done to a file.
struct Change {
    /// The file without toolrein's line.
    before: Option<String>,
    insertions: Vec<Insertion>,
    /// The folders that are or were made for it.
    folders: Vec<PathBuf>,
}

/// What is to be done to the file so that it names the proxy at `base_url`. `None`: it does already. `own`: what `setup` did
/// to it before.
///
/// # Errors
/// Why it cannot be changed.
fn change(
    form: Form,
    base_url: &str,
    file: &ConfigFile,
    own: Option<&Record>,
) -> Result<Option<Change>, String> {
    let wanted = form.value(base_url);
    let refused = |problem: String| format!("{problem}; nothing was changed. It has to name {wanted}");
    let text = file.text.as_deref().unwrap_or_default();
    check_provider(form, text, &variable).map_err(refused)?;
    let value = match form.find(text, base_url).map_err(refused)? {
        UpstreamSetting::Missing(insertions) => {
            let (before, folders) = (file.text.clone(), file.missing_folders());
            return Ok(Some(Change { before, insertions, folders }));
        }
        UpstreamSetting::Named(value) if is_wanted(&value, &wanted) => return Ok(None),
        UpstreamSetting::Named(value) => value,
    };
    let own = own.filter(|own| own.has(&value));
    if let Some((own, without)) = own.and_then(|own| Some((own, remove_all(text, &own.insertions)?)))
        && let UpstreamSetting::Missing(insertions) = form.find(&without, base_url).map_err(refused)?
    {
        // toolrein's own line, with another address of the proxy.
        let is_as_before = own.before.as_deref().unwrap_or_default() == without;
        let before = if is_as_before { own.before.clone() } else { Some(without) };
        return Ok(Some(Change { before, insertions, folders: own.folders.clone() }));
    }
    let is_toolrein = own.is_some() || leads_to(&value, base_url) || leads_to(&value, &shipped());
    let value = without_secrets(&value);
    Err(match is_toolrein {
        true => format!(
            "names {value:?}, a toolrein, already; nothing was changed. Write {wanted} there yourself"
        ),
        false => format!(
            "names {value:?} as its upstream already; nothing was changed. Start toolrein with --upstream and that address, \
             and write {wanted} there yourself"
        ),
    })
}

fn is_wanted(value: &str, wanted: &str) -> bool {
    value.trim_end_matches('/') == wanted || is_same(value, wanted)
}

fn current_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
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

/// The agent's configuration with its requests on the way to the proxy at `base_url`, also where it names another upstream;
/// its file stays as it is. `None`: it cannot be read, or has no place for an address.
pub fn changed_configuration(agent: &Agent, base_url: &str) -> Option<String> {
    let (path, form) = agent.file(base_url, &variable).ok()?;
    let text = ConfigFile::read(&path).ok()?.text?;
    match form.find(&text, base_url).ok()? {
        UpstreamSetting::Missing(insertions) => Some(insert_all(&text, &insertions)),
        // The copy is for one run: its address is replaced.
        UpstreamSetting::Named(named) => {
            Some(text.replace(&named, base_url)).filter(|changed| *changed != text)
        }
    }
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
            let text = file.text.unwrap_or_default();
            check_provider(form, &text, &variable)
                .map_err(|problem| format!("{problem}, {}", path.display()))?;
            let found = form.find(&text, base_url);
            Ok(format!("{}, {}", state(found, &form.value(base_url), is_ours), path.display()))
        });
        let state = state.unwrap_or_else(|sentence| sentence);
        lines.push(format!("{:<9} {installed:<10} {state}", agent.name));
    }
    Ok(lines)
}

fn state(found: Result<UpstreamSetting, String>, value: &str, is_ours: bool) -> String {
    match found {
        Ok(UpstreamSetting::Named(named)) if is_wanted(&named, value) && is_ours => "set up".to_owned(),
        Ok(UpstreamSetting::Named(named)) if is_wanted(&named, value) => "set up by hand".to_owned(),
        Ok(UpstreamSetting::Named(named)) => format!("has another upstream ({})", without_secrets(&named)),
        Ok(UpstreamSetting::Missing(_)) => "not set up".to_owned(),
        Err(problem) => problem,
    }
}
