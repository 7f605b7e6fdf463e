//! Profiles: named sets of policies, each built whole at the start, and which callers and models take which.
//! Reads `[profile.NAME]` and checks it against the tiers; what a policy's keys mean is the policy's own, and
//! what a request says of itself is the proxy's to read.

use super::document::{Entry, MOST_PROBLEMS, in_order, read_as};
use super::error::{Problem, suggestion};
use super::file::{File, is_table, not_a_table};
use super::policies::{Builder, Layer};
use super::setting_lines;
use super::tiers::KeyHash;
use super::units::patterns;
use crate::policy::pattern::{Pattern, best_match};
use crate::policy::set::PolicySet;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// The longest name: it travels in a header.
const MAX_NAME_BYTES: usize = 64;
/// The most names that are told to somebody who named none of them.
const TOLD: usize = 20;

/// A named set of policies.
pub struct Profile {
    pub name: Arc<str>,
    pub policies: PolicySet,
    /// Who takes it and what it is laid over, as written.
    pub chosen: Chosen,
    settings: Map<String, Value>,
}

impl Profile {
    /// The policies that its tables, or those of the profile it extends, set: each with its settings, one
    /// `key = value` each.
    pub fn policy_settings(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.settings.iter().map(|(name, settings)| (name.as_str(), setting_lines(settings)))
    }

    /// Its name and its table.
    pub(super) fn as_written(&self) -> (String, Value) {
        // Strings and lists alone: nothing that JSON could refuse.
        let mut table = match serde_json::to_value(&self.chosen) {
            Ok(Value::Object(table)) => table,
            _ => Map::new(),
        };
        table.insert("policy".to_owned(), Value::Object(self.settings.clone()));
        (self.name.as_ref().to_owned(), Value::Object(table))
    }
}

/// `[profile.NAME]` but for its policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Chosen {
    /// Models whose requests take it.
    #[serde(with = "patterns")]
    pub models: Vec<Pattern>,
    /// Tiers whose callers take it.
    pub tiers: Vec<String>,
    /// The profile that it is laid over; without one, the policies outside of profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Policies that are off in it.
    pub off: Vec<String>,
    /// Built from its own tables.
    #[serde(skip_serializing)]
    policy: IgnoredAny,
}

/// All profiles, and who takes which.
#[derive(Default)]
pub struct Profiles {
    /// In the file's order.
    all: Vec<Profile>,
    by_model: Vec<(Pattern, usize)>,
    by_key: HashMap<KeyHash, usize>,
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
    /// That there is none, and which there are.
    pub fn named(&self, name: &str) -> Result<&Profile, String> {
        self.all.iter().find(|profile| *profile.name == *name).ok_or_else(|| {
            let known: Vec<&str> = self.all.iter().take(TOLD).map(|profile| &*profile.name).collect();
            let more = self.all.len().saturating_sub(TOLD);
            match (known.is_empty(), more) {
                (true, _) => "There is no profile of that name; none is configured.".to_owned(),
                (_, 0) => format!("There is no profile of that name. Known here: {}.", known.join(", ")),
                _ => format!(
                    "There is no profile of that name. Known here: {}, and {more} more.",
                    known.join(", ")
                ),
            }
        })
    }

    /// Whether any depends on the caller's key.
    pub fn ask_for_keys(&self) -> bool {
        !self.by_key.is_empty()
    }

    /// The profile of the tier of the caller with `key`.
    pub fn of_key(&self, key: &[u8]) -> Option<&Profile> {
        self.all.get(*self.by_key.get(&KeyHash::of(key)?)?)
    }

    /// The profile of `model`: by its exact name, else by the longest pattern that fits.
    pub fn of_model(&self, model: &str) -> Option<&Profile> {
        self.all.get(*best_match(&self.by_model, model)?)
    }
}

/// What came of reading the profiles.
#[derive(Default)]
pub(super) struct Built {
    pub profiles: Profiles,
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
}

/// Reads the profiles over `base`, the policies outside of them.
pub(super) fn build<'a>(builder: &Builder<'a>, base: &Layer<'a>, file: &File) -> Built {
    let tiers = builder.document.tables("tier").unwrap_or_default();
    let tiers = tiers.into_iter().map(|tier| tier.name).collect();
    let mut reader = Reader { builder, tiers, drafts: Vec::new(), problems: Vec::new() };
    reader.read_drafts();
    for at in 0..reader.drafts.len() {
        if reader.problems.len() < MOST_PROBLEMS {
            reader.check(at);
        }
    }
    let profiles = reader.profiles(base, file);
    let warnings = reader.warnings(file);
    Built { profiles, problems: reader.problems, warnings }
}

/// A profile as written.
struct Draft<'a> {
    name: String,
    chosen: Chosen,
    tables: Vec<Entry<'a>>,
}

struct Reader<'b, 'a> {
    builder: &'b Builder<'a>,
    /// The names of all tiers, also of those with problems.
    tiers: Vec<String>,
    drafts: Vec<Draft<'a>>,
    problems: Vec<Problem>,
}

impl<'a> Reader<'_, 'a> {
    fn read_drafts(&mut self) {
        let document = self.builder.document;
        for Entry { name, value } in document.tables("profile").unwrap_or_default() {
            if self.problems.len() >= MOST_PROBLEMS {
                return;
            }
            if !is_table(&value) {
                self.problems.push(not_a_table(document, &format!("profile.{name}")));
                continue;
            }
            if !is_name(&name) {
                let text =
                    "expected a name of letters, digits, `-`, `_` and `.`, since it travels in a header";
                self.problem(&name, "", text.to_owned());
            }
            let tables = self.tables(&name, &value);
            let reading = document.read(&["profile", &name], value, read_as::<Chosen>);
            self.problems.extend(reading.problems);
            self.drafts.push(Draft { name, chosen: reading.value.unwrap_or_default(), tables });
        }
    }

    /// The tables of a profile's policies.
    fn tables(&mut self, name: &str, profile: &Spanned<DeValue<'a>>) -> Vec<Entry<'a>> {
        let DeValue::Table(profile) = profile.get_ref() else { return Vec::new() };
        match profile.get("policy").map(Spanned::get_ref) {
            None => Vec::new(),
            Some(DeValue::Table(tables)) => in_order(tables),
            Some(_) => {
                let key = format!("profile.{name}.policy");
                self.problems.push(not_a_table(self.builder.document, &key));
                Vec::new()
            }
        }
    }

    /// Checks the draft at `at` against the tiers and the drafts before it.
    fn check(&mut self, at: usize) {
        let (earlier, rest) = self.drafts.split_at(at);
        let Some(Draft { name, chosen, tables }) = rest.first() else { return };
        let mut found: Vec<(&str, String)> = Vec::new();
        for tier in &chosen.tiers {
            if !self.tiers.contains(tier) {
                let tiers: Vec<&str> = self.tiers.iter().map(String::as_str).collect();
                found.push(("tiers", format!("there is no [tier.{tier}]; {}", suggestion(tier, &tiers))));
            } else if let Some(other) = earlier.iter().find(|other| other.chosen.tiers.contains(tier)) {
                found.push(("tiers", format!("tier {tier} takes profile {} already", other.name)));
            }
        }
        for model in &chosen.models {
            if let Some(other) = earlier.iter().find(|other| other.chosen.models.contains(model)) {
                found.push(("models", format!("{} takes profile {} already", model.as_str(), other.name)));
            }
        }
        let known = self.builder.known();
        for off in &chosen.off {
            if !known.contains(&off.as_str()) {
                found.push(("off", format!("there is no policy {off}; {}", suggestion(off, &known))));
            } else if tables.iter().any(|table| table.name == *off) {
                found.push(("off", format!("{off} has a table in this profile; leave out one of the two")));
            }
        }
        found.extend(chosen.extends.as_ref().and_then(|extends| self.extension(name, extends)));
        let name = name.clone();
        for (key, text) in found {
            self.problem(&name, key, text);
        }
    }

    /// What is wrong with profile `name` extending `extends`. One step alone, so that a profile is read in two
    /// places at most, and nobody goes in circles.
    fn extension(&self, name: &str, extends: &str) -> Option<(&'static str, String)> {
        let others = self.drafts.iter().filter(|draft| draft.name != name && draft.chosen.extends.is_none());
        let others: Vec<&str> = others.map(|draft| draft.name.as_str()).collect();
        let exists = self.drafts.iter().any(|draft| draft.name == extends);
        (!others.contains(&extends)).then(|| {
            let text = if exists {
                "expected a profile that extends none itself".to_owned()
            } else {
                format!("there is no [profile.{extends}]; {}", suggestion(extends, &others))
            };
            ("extends", text)
        })
    }

    fn profiles(&mut self, base: &Layer<'a>, file: &File) -> Profiles {
        let mut layers: HashMap<&str, Layer<'a>> = HashMap::new();
        let mut problems = Vec::new();
        let (roots, others): (Vec<_>, Vec<_>) =
            self.drafts.iter().partition(|draft| draft.chosen.extends.is_none());
        for draft in roots.into_iter().chain(others) {
            if self.problems.len() + problems.len() >= MOST_PROBLEMS {
                break;
            }
            let under = draft.chosen.extends.as_ref().and_then(|extends| layers.get(extends.as_str()));
            let path = ["profile", &draft.name, "policy"];
            let (layer, found) =
                self.builder.build(&path, &draft.tables, under.unwrap_or(base), &draft.chosen.off);
            problems.extend(found);
            layers.insert(&draft.name, layer);
        }
        let mut profiles = Profiles::default();
        for draft in &self.drafts {
            let Some(layer) = layers.get(draft.name.as_str()) else { continue };
            let at = profiles.all.len();
            profiles.all.push(self.profile(draft, layer));
            profiles.by_model.extend(draft.chosen.models.iter().map(|model| (model.clone(), at)));
            let tiers = draft.chosen.tiers.iter().filter_map(|tier| file.tier.get(tier));
            profiles.by_key.extend(tiers.flat_map(|tier| &tier.keys).map(|key| (*key, at)));
        }
        self.problems.extend(problems);
        profiles
    }

    fn profile(&self, draft: &Draft<'_>, layer: &Layer<'_>) -> Profile {
        let extended = draft.chosen.extends.as_ref();
        let extended = self.drafts.iter().find(|other| extended == Some(&other.name));
        let tables = || draft.tables.iter().chain(extended.iter().flat_map(|extended| &extended.tables));
        Profile {
            name: draft.name.as_str().into(),
            policies: layer.set(),
            chosen: draft.chosen.clone(),
            settings: layer.settings(|policy| tables().any(|table| table.name == policy)),
        }
    }

    fn warnings(&self, file: &File) -> Vec<String> {
        let mut warnings = Vec::new();
        let by_header = file.conversation.profile_header;
        if by_header && self.drafts.iter().any(|draft| !draft.chosen.tiers.is_empty()) {
            warnings.push(
                "conversation.profile_header: callers may choose another profile than their tier's by \
                 x-toolrein-profile; false holds them to it"
                    .to_owned(),
            );
        }
        for (name, tier) in &file.tier {
            let is_taken = self.drafts.iter().any(|draft| draft.chosen.tiers.contains(name));
            if tier.keys.is_empty() {
                warnings.push(format!("tier.{name}: has no keys, so nobody is of it"));
            } else if !is_taken {
                warnings.push(format!("tier.{name}: no profile names it, so it changes nothing"));
            }
        }
        for Draft { name, chosen, .. } in self.drafts.iter().filter(|_| !by_header) {
            let is_extended = || self.drafts.iter().any(|other| other.chosen.extends.as_ref() == Some(name));
            if chosen.models.is_empty() && chosen.tiers.is_empty() && !is_extended() {
                warnings.push(format!("profile.{name}: nothing chooses it: no model, no tier, no header"));
            }
        }
        warnings
    }

    fn problem(&mut self, profile: &str, key: &str, text: String) {
        let key = format!("profile.{profile}.{key}");
        self.problems.push(self.builder.document.problem_within(key.trim_end_matches('.'), text));
    }
}

/// The keys that stand in two tiers: whose they are would be chance.
pub(super) fn shared_keys(builder: &Builder<'_>, file: &File) -> Vec<Problem> {
    let mut owners: HashMap<KeyHash, &str> = HashMap::new();
    let mut problems = Vec::new();
    for (name, tier) in &file.tier {
        for key in &tier.keys {
            if let Some(other) = owners.insert(*key, name).filter(|_| problems.len() < MOST_PROBLEMS) {
                let text = format!("{key} stands in tier {other} as well");
                problems.push(builder.document.problem_within(&format!("tier.{name}.keys"), text));
            }
        }
    }
    problems
}

fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_fit)
}
