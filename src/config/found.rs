//! A configuration that was found and not named: `toolrein.toml` in the current folder. A cloned repository belongs to
//! the user too, so such a file is loaded only where it allows less than the shipped one in everything that it changes.

use super::differences::{Difference, Effect, of_policies};
use super::document::Document;
use super::error::{Problem, Problems};
use super::file::{self, Base, File};
use super::policy_tables::{Builder, Layer};
use super::shipped;
use super::source::Source;
use super::variables;
use serde_json::Value;
use std::fs::Metadata;
use std::io;
use std::path::Path;

/// Its name.
const NAME: &str = "toolrein.toml";
/// How it is named, so that it is loaded whatever it changes.
const NAMED: &str = "-c ./toolrein.toml";
/// The most differences that a warning names.
const MOST_NAMED: usize = 4;

/// The source of the configuration where none is named: the file in the current folder, else the shipped one, and a
/// warning about a file there that is not loaded. `settings`: what variables set (`TOOLREIN__...`), with and without it.
pub(super) fn find(registry: &[policies::Entry], settings: &[(String, String)]) -> (Source, Option<String>) {
    let found = match Path::new(NAME).metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_link = Path::new(NAME).is_symlink();
            let reason = "it is a symbolic link to a file that is not there";
            return (Source::Shipped, is_link.then(|| not_loaded(reason)));
        }
        Err(error) => return (Source::Shipped, Some(not_loaded(&format!("it cannot be read: {error}")))),
    };
    match read(&found, registry, settings) {
        Ok(text) => (Source::Found { name: format!("{NAME} in the current folder"), text }, None),
        Err(reason) => (Source::Shipped, Some(not_loaded(&reason))),
    }
}

/// The text of the file, where it may be loaded, else why not.
fn read(
    found: &Metadata,
    registry: &[policies::Entry],
    settings: &[(String, String)],
) -> Result<String, String> {
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    if !is_own(found) {
        return Err("it belongs to another user".to_owned());
    }
    let text = Source::File(NAME.into()).text(false).map_err(|problem| problem.text)?;
    // No variable is read for it.
    let differences =
        differences(&text, registry, settings, None).map_err(|problems| has_problems(problems.first()))?;
    let beyond: Vec<String> = differences
        .iter()
        .filter(|it| it.effect != Effect::Tighter)
        .map(|Difference { key, what, .. }| format!("{key} {what}"))
        .collect();
    match beyond.len() {
        0 => Ok(text),
        count => {
            let more = if count > MOST_NAMED { ", ..." } else { "" };
            let beyond = beyond[..count.min(MOST_NAMED)].join(", ");
            Err(format!("a file that was not named may only allow less ({beyond}{more})"))
        }
    }
}

/// Whether the file belongs to the user.
#[cfg(unix)]
fn is_own(found: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(found) == rustix::process::geteuid().as_raw()
}

/// Elsewhere the standard library does not say whose a file is, so none that was not named is loaded.
#[cfg(not(unix))]
fn is_own(_found: &Metadata) -> bool {
    false
}

/// The warning about a file whose settings do not fit each other.
pub(super) fn refused(problems: &Problems) -> String {
    not_loaded(&has_problems(problems.0.first()))
}

fn has_problems(first: Option<&Problem>) -> String {
    first.map_or_else(|| "it has problems".to_owned(), |first| format!("it has problems, such as {first}"))
}

fn not_loaded(reason: &str) -> String {
    format!(
        "{NAME}: there is such a file in the current folder, and it is not loaded, since {reason}; {NAMED} loads it"
    )
}

/// What the configuration `text` changes of the shipped one, where variables set `settings` in both: a limit that the user
/// set by a variable is not raised by a key of the file that takes its place. `value_of` as in
/// [`Document::apply_variables`].
///
/// # Errors
/// Its problems.
pub(super) fn differences(
    text: &str,
    registry: &[policies::Entry],
    settings: &[(String, String)],
    value_of: variables::ValueOf<'_>,
) -> Result<Vec<Difference>, Vec<Problem>> {
    let defaults = shipped::with_all_that_is_off();
    let values = variables::as_toml(settings, text.len());
    let (mut document, mut nothing) = (Document::parse(NAME, text)?, Document::parse(NAME, "")?);
    let misused = [
        document.apply_variables(settings, &values, value_of),
        nothing.apply_variables(settings, &values, value_of),
    ];
    let (written, before) = (file::read(&document), file::read(&nothing));
    let builder = Builder::new(&document, registry, &defaults);
    let shipped = builder.shipped();
    let none = Layer::default();
    let under = if written.file.base == Base::Shipped { &shipped } else { &none };
    let (own, refused) =
        builder.build(&["policy"], &document.tables("policy").unwrap_or_default(), under, &[]);
    let builder_before = Builder::new(&nothing, registry, &defaults);
    let tables_before = nothing.tables("policy").unwrap_or_default();
    let (base, refused_before) = builder_before.build(&["policy"], &tables_before, &shipped, &[]);
    let problems = [misused.concat(), written.problems, before.problems, refused, refused_before].concat();
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut found = of_file(&before.file, &written.file);
    let profiles = document.tables("profile").unwrap_or_default();
    found.extend(profiles.iter().map(|profile| other(&format!("profile.{}", profile.name), "is another")));
    found.extend(of_policies(&base, &builder.all_defaults(), &own));
    Ok(found)
}

/// The differences of all settings but those of policies.
fn of_file(base: &File, own: &File) -> Vec<Difference> {
    // Only numbers, strings and lists, which JSON can always represent.
    let as_json = |file: &File| serde_json::to_value(file).unwrap_or_default();
    let (base, own) = (as_json(base), as_json(own));
    let mut found = Vec::new();
    add_differing("", &base, &own, &mut found);
    found
}

fn add_differing(key: &str, base: &Value, own: &Value, found: &mut Vec<Difference>) {
    match (base, own) {
        _ if base == own => {}
        (Value::Object(base), Value::Object(own)) => {
            for (name, base) in base {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                add_differing(&key, base, own.get(name).unwrap_or(&Value::Null), found);
            }
            for name in own.keys().filter(|name| !base.contains_key(*name)) {
                found.push(other(&format!("{key}.{name}"), "is set"));
            }
        }
        (base, own) => match (key, base.as_f64(), own.as_f64()) {
            ("reask.max", Some(base), Some(own)) if own < base => {
                found.push(Difference {
                    key: key.to_owned(),
                    effect: Effect::Tighter,
                    what: "is lower".to_owned(),
                });
            }
            _ => found.push(other(key, "is another")),
        },
    }
}

fn other(key: &str, what: &str) -> Difference {
    Difference { key: key.to_owned(), effect: Effect::Other, what: what.to_owned() }
}
