//! Profiles: named sets of policies, each built whole at the start, and which callers and models use which. A policy
//! defines the meaning of its own keys, and the proxy reads the requests.

mod checks;
mod draft;
mod laxness;
#[cfg(test)]
mod tests;

pub(super) use checks::{is_name, shared_keys};
pub(super) use draft::build;

use super::setting_lines;
use super::tiers::{AUTH, GUEST, KeyHash};
use super::units::patterns;
use policies::pattern::{Pattern, best_match};
use policies::set::PolicySet;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The most names in the answer to an unknown name.
const MOST_NAMES: usize = 20;

/// A named set of policies.
pub struct Profile {
    pub name: Arc<str>,
    pub policies: PolicySet,
    /// Its selection rules and its base, as written.
    pub chosen: Chosen,
    settings: Map<String, Value>,
}

impl Profile {
    /// The policies that its tables, or those of the profile it extends, set: each with its settings, one `key = value`
    /// each.
    pub fn policy_settings(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.settings.iter().map(|(name, settings)| (name.as_str(), setting_lines(settings)))
    }

    /// Its name and its table.
    pub(super) fn as_written(&self) -> (String, Value) {
        // Only strings and lists, which JSON can always represent.
        let mut table = match serde_json::to_value(&self.chosen) {
            Ok(Value::Object(table)) => table,
            _ => Map::new(),
        };
        table.insert("policy".to_owned(), Value::Object(self.settings.clone()));
        (self.name.as_ref().to_owned(), Value::Object(table))
    }
}

/// `[profile.NAME]` without its policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Chosen {
    /// Models whose requests use it.
    #[serde(with = "patterns")]
    pub models: Vec<Pattern>,
    /// Tiers whose callers use it.
    pub tiers: Vec<String>,
    /// The profile that it extends; without one, it extends the policies outside of profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Policies that are off in it.
    pub off: Vec<String>,
    /// Built from its own tables.
    #[serde(skip_serializing)]
    policy: IgnoredAny,
}

/// All profiles, and their selection rules.
pub struct Profiles {
    /// In the file's order.
    all: Vec<Profile>,
    by_model: Vec<(Pattern, usize)>,
    /// The tier of each key, and the tier's profile.
    by_key: HashMap<KeyHash, (Arc<str>, Option<usize>)>,
    /// The tiers of callers without a key of any tier.
    guest: BuiltIn,
    auth: BuiltIn,
}

/// A tier that there always is, and its profile.
struct BuiltIn {
    name: Arc<str>,
    profile: Option<usize>,
}

impl BuiltIn {
    fn new(name: &str) -> Self {
        Self { name: name.into(), profile: None }
    }
}

impl Default for Profiles {
    fn default() -> Self {
        let (guest, auth) = (BuiltIn::new(GUEST), BuiltIn::new(AUTH));
        Self { all: Vec::new(), by_model: Vec::new(), by_key: HashMap::new(), guest, auth }
    }
}

impl Profiles {
    /// In the file's order.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.all.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The profile called `name`.
    ///
    /// # Errors
    /// The name is unknown; lists the known ones.
    pub fn named(&self, name: &str) -> Result<&Profile, String> {
        self.all.iter().find(|profile| *profile.name == *name).ok_or_else(|| {
            let known: Vec<&str> = self.all.iter().take(MOST_NAMES).map(|profile| &*profile.name).collect();
            let more = self.all.len().saturating_sub(MOST_NAMES);
            match (known.is_empty(), more) {
                (true, _) => "There is no profile of that name; no profiles are configured.".to_owned(),
                (_, 0) => format!("There is no profile of that name. Known here: {}.", known.join(", ")),
                _ => format!(
                    "There is no profile of that name. Known here: {}, and {more} more.",
                    known.join(", ")
                ),
            }
        })
    }

    /// The tier of a caller with these keys, and the tier's profile: the tier of the first key that is in one. Without
    /// configured keys none is hashed.
    pub fn tier_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> (&Arc<str>, Option<&Profile>) {
        let mut keys = keys.peekable();
        let built_in = if keys.peek().is_none() { &self.guest } else { &self.auth };
        let named = match self.by_key.is_empty() {
            true => None,
            false => keys.find_map(|key| self.by_key.get(&KeyHash::of(key)?)),
        };
        let (tier, profile) =
            named.map_or((&built_in.name, built_in.profile), |(tier, profile)| (tier, *profile));
        (tier, profile.and_then(|at| self.all.get(at)))
    }

    /// The profile of `model`: by its exact name, else by the longest matching pattern.
    pub fn of_model(&self, model: &str) -> Option<&Profile> {
        self.all.get(*best_match(&self.by_model, model)?)
    }
}
