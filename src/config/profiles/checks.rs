//! Consistency checks of profiles and tiers, and warnings about what is allowed but probably a mistake. Changes
//! nothing.

use super::draft::{Draft, Reader};
use crate::config::document::MOST_PROBLEMS;
use crate::config::error::{Problem, suggestion};
use crate::config::file::File;
use crate::config::policy_tables::Builder;
use crate::config::tiers::{KeyHash, is_built_in};
use std::collections::HashMap;

/// The most differences that a warning about a laxer profile names.
const MOST_NAMED: usize = 3;

/// The longest name: it travels in a header.
const MAX_NAME_BYTES: usize = 64;

impl Reader<'_, '_> {
    /// Checks the draft at `at` against the tiers and the drafts before it.
    pub(super) fn check(&mut self, at: usize) {
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

    /// The problem of profile `name` extending `extends`. Only one level is allowed, so that a profile is in two places
    /// at most and there are no cycles.
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

    pub(super) fn warnings(&self, file: &File) -> Vec<String> {
        let mut warnings = Vec::new();
        let by_header = file.conversation.profile_header;
        if by_header && self.drafts.iter().any(|draft| !draft.chosen.tiers.is_empty()) {
            warnings.push(
                "conversation.profile_header: callers may choose another profile than their tier's by \
                 x-toolrein-profile; false holds them to it"
                    .to_owned(),
            );
        }
        for (name, allowed) in self.laxer.iter().filter(|_| by_header) {
            let more = if allowed.len() > MOST_NAMED { ", ..." } else { "" };
            let allowed = allowed[..allowed.len().min(MOST_NAMED)].join(", ");
            warnings.push(format!(
                "conversation.profile_header: any client may choose profile.{name} by x-toolrein-profile, and it is \
                 laxer ({allowed}{more}); false lets only its models and tiers have it"
            ));
        }
        for (name, tier) in &file.tier {
            let is_taken = self.drafts.iter().any(|draft| draft.chosen.tiers.contains(name));
            if file.keys_of(tier).next().is_none() && !is_built_in(name) {
                warnings.push(format!("tier.{name}: has no keys, so no caller is in it"));
            } else if !is_taken {
                warnings
                    .push(format!("tier.{name}: no profile names it, so it concerns only policies that do"));
            }
        }
        for Draft { name, chosen, .. } in self.drafts.iter().filter(|_| !by_header) {
            let is_extended = || self.drafts.iter().any(|other| other.chosen.extends.as_ref() == Some(name));
            if chosen.models.is_empty() && chosen.tiers.is_empty() && !is_extended() {
                warnings
                    .push(format!("profile.{name}: it is never used: no model, tier or header selects it"));
            }
        }
        warnings
    }
}

/// The keys that are in two tiers: their tier would be undefined.
pub(crate) fn shared_keys(builder: &Builder<'_>, file: &File) -> Vec<Problem> {
    let mut owners: HashMap<KeyHash, &str> = HashMap::new();
    let mut problems = Vec::new();
    for (name, tier) in &file.tier {
        for key in file.keys_of(tier) {
            if let Some(other) = owners.insert(*key, name).filter(|_| problems.len() < MOST_PROBLEMS) {
                let text = format!("{key} is in tier {other} as well");
                problems.push(builder.document.problem_within(&format!("tier.{name}.keys"), text));
            }
        }
    }
    problems
}

pub(crate) fn is_name(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_fit)
}
