//! The tables `[profile.NAME]` as written, and the profiles built from them, each over the one it extends. `checks`
//! checks the rules between them.

use super::checks::is_name;
use super::laxness::allowed_beyond;
use super::{Chosen, Profile, Profiles};
use crate::config::document::{Entry, MOST_PROBLEMS, in_order, read_as};
use crate::config::error::Problem;
use crate::config::file::{File, is_table, not_a_table};
use crate::config::policy_tables::{Builder, Layer};
use crate::config::tiers::{AUTH, GUEST};
use std::collections::HashMap;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// The result of reading the profiles.
#[derive(Default)]
pub(crate) struct Built {
    pub profiles: Profiles,
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
}

/// Reads the profiles over `base`, the policies outside of them.
pub(crate) fn build<'a>(builder: &Builder<'a>, base: &Layer<'a>, file: &File) -> Built {
    let tiers = builder.document.tables("tier").unwrap_or_default();
    let mut tiers: Vec<String> = tiers.into_iter().map(|tier| tier.name).collect();
    let built_in = [GUEST, AUTH].into_iter().filter(|name| !tiers.iter().any(|tier| tier == name));
    tiers.extend(built_in.map(str::to_owned).collect::<Vec<_>>());
    let mut reader = Reader { builder, tiers, drafts: Vec::new(), laxer: Vec::new(), problems: Vec::new() };
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
pub(super) struct Draft<'a> {
    pub(super) name: String,
    pub(super) chosen: Chosen,
    pub(super) tables: Vec<Entry<'a>>,
}

/// Reads drafts, checks them and builds them.
pub(super) struct Reader<'b, 'a> {
    pub(super) builder: &'b Builder<'a>,
    /// The names of all tiers, also of those with problems, and those that there always are.
    pub(super) tiers: Vec<String>,
    pub(super) drafts: Vec<Draft<'a>>,
    /// The profiles that allow more than the policies outside of profiles, each with what it allows.
    pub(super) laxer: Vec<(String, Vec<String>)>,
    pub(super) problems: Vec<Problem>,
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

    fn profiles(&mut self, base: &Layer<'a>, file: &File) -> Profiles {
        let mut layers: HashMap<&str, Layer<'a>> = HashMap::new();
        let (mut problems, mut laxer) = (Vec::new(), Vec::new());
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
            let allowed = allowed_beyond(base, &layer);
            // A profile that every request takes is no choice.
            let is_for_all = draft.chosen.models.iter().any(|model| model.as_str() == "*");
            if !allowed.is_empty() && !is_for_all {
                laxer.push((draft.name.clone(), allowed));
            }
            layers.insert(&draft.name, layer);
        }
        let mut profiles = Profiles::default();
        for (name, tier) in &file.tier {
            let name: Arc<str> = name.as_str().into();
            profiles.by_key.extend(file.keys_of(tier).map(|key| (*key, (Arc::clone(&name), None))));
        }
        for draft in &self.drafts {
            let Some(layer) = layers.get(draft.name.as_str()) else { continue };
            let at = profiles.all.len();
            profiles.all.push(self.profile(draft, layer));
            profiles.by_model.extend(draft.chosen.models.iter().map(|model| (model.clone(), at)));
            for built_in in [&mut profiles.guest, &mut profiles.auth] {
                if draft.chosen.tiers.iter().any(|tier| **tier == *built_in.name) {
                    built_in.profile = Some(at);
                }
            }
            let tiers = draft.chosen.tiers.iter().filter_map(|tier| file.tier.get(tier));
            for key in tiers.flat_map(|tier| file.keys_of(tier)) {
                profiles.by_key.entry(*key).and_modify(|(_, profile)| *profile = Some(at));
            }
        }
        self.problems.extend(problems);
        self.laxer = laxer;
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
            settings: layer.settings_of(|policy| tables().any(|table| table.name == policy)),
        }
    }

    pub(super) fn problem(&mut self, profile: &str, key: &str, text: String) {
        let key = format!("profile.{profile}.{key}");
        self.problems.push(self.builder.document.problem_within(key.trim_end_matches('.'), text));
    }
}
