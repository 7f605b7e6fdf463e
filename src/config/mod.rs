//! The configuration: read once, checked whole, then immutable. Responsible for `proxy.toml`, its defaults
//! and its problems; what a policy's keys mean is the policy's own, and the command line stands in `cli`.
//!
//! Two stages: as written (`file`, over `document` and `units`), then checked (`check`), which gives
//! [`Config`].

mod check;
mod document;
mod effective;
mod error;
mod file;
mod policies;
pub mod shipped;
mod source;
mod tables;
mod target;
#[cfg(test)]
mod tests;
mod units;

pub use effective::Effective;
pub use error::{Problem, Problems};
pub use file::Overrides;
pub use source::Source;
pub use tables::{
    AskUsage, Conversation, Ledger, Limits, Listen, Log, LogFormat, Mode, Model, Notices, PlacementChoice,
    Reask, Tell, ToolsUnsupported, Upstream,
};
pub use target::Target;

use crate::policy;
use crate::policy::pattern::{Pattern, best_match};
use crate::policy::set::PolicySet;
use document::Document;
use file::{File, Overriding};
use serde_json::{Map, Value};
use std::fmt;

/// A whole configuration that has been checked.
pub struct Config {
    pub mode: Mode,
    pub listen: Listen,
    pub upstream: Upstream,
    pub limits: Limits,
    pub notices: Notices,
    pub conversation: Conversation,
    pub reask: Reask,
    pub ledger: Ledger,
    pub log: Log,
    /// Settings by model; the best match counts.
    pub models: Vec<(Pattern, Model)>,
    pub policies: PolicySet,
    /// All of the above as text.
    pub effective: Effective,
    /// The settings of each policy that is on, as TOML, one `key = value` each, in registry order.
    pub policy_settings: Vec<(&'static str, Vec<String>)>,
    /// What is allowed but probably a mistake, one sentence each.
    pub warnings: Vec<String>,
}

/// The effective settings: secrets must not reach a log by way of `{:?}`.
impl fmt::Debug for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.effective.as_toml())
    }
}

impl Config {
    /// Reads a configuration; `overrides` beat it, and `registry` names the policies there are.
    ///
    /// # Errors
    /// Everything that is wrong, at once. Where the text is no TOML, nothing beyond that is looked for.
    pub fn load(source: Source, overrides: &Overrides, registry: &[policy::Entry]) -> Result<Self, Problems> {
        let overriding = Overriding::read(overrides);
        let give_up = |mut problems: Vec<Problem>| {
            problems.extend(overriding.problems.iter().cloned());
            Problems::sorted(problems)
        };
        let name = source.name();
        let text = source.text().map_err(|problem| give_up(vec![problem]))?;
        let document = Document::parse(&name, &text).map_err(give_up)?;
        let mut written = file::read(&document);
        overriding.apply(&mut written.file);
        let built = policies::build(&document, registry);
        let mut checked = check::check(&document, &written, &overriding);
        let problems = [written.problems, built.problems, checked.problems].concat();
        if !(problems.is_empty() && overriding.problems.is_empty()) {
            return Err(give_up(problems));
        }
        checked.warnings.extend(check::idle_warning(written.file.mode, built.rules.len()));
        Ok(Self::new(written.file, PolicySet::new(built.rules), built.settings, checked.warnings))
    }

    /// What the class estimate of tokens is multiplied by for `model`, in percent.
    pub fn token_factor(&self, model: &str) -> u32 {
        best_match(&self.models, model).map_or(100, |model| model.token_factor)
    }

    fn new(file: File, policies: PolicySet, settings: Map<String, Value>, warnings: Vec<String>) -> Self {
        let policy_settings = policies.names().map(|name| (name, lines(settings.get(name)))).collect();
        // Numbers, strings and lists alone: nothing that JSON could refuse.
        let mut all = match serde_json::to_value(&file) {
            Ok(Value::Object(all)) => all,
            _ => Map::new(),
        };
        all.insert("policy".to_owned(), Value::Object(settings));
        Self {
            mode: file.mode,
            listen: file.listen,
            upstream: file.upstream,
            limits: file.limits,
            notices: file.notices,
            conversation: file.conversation,
            reask: file.reask,
            ledger: file.ledger,
            log: file.log,
            models: file.model.into_iter().map(|(name, model)| (Pattern::new(name), model)).collect(),
            policies,
            effective: Effective::new(&all),
            policy_settings,
            warnings,
        }
    }
}

/// A policy's settings, `key = value` each; of tables of tables, each entry on a line of its own.
fn lines(settings: Option<&Value>) -> Vec<String> {
    let Some(Value::Object(settings)) = settings else { return Vec::new() };
    let mut lines = Vec::new();
    for (key, value) in settings {
        match value {
            Value::Object(entries) if entries.values().any(Value::is_object) => {
                let entries = entries.iter();
                lines.extend(
                    entries.map(|(name, value)| format!("{key}.{}", effective::setting(name, value))),
                );
            }
            _ => lines.push(effective::setting(key, value)),
        }
    }
    lines
}
