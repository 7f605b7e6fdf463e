//! `[caller.NAME]`: the callers that may use the proxy, recognised by the SHA-256 of their keys, so that no file contains a
//! key. Finds a caller; the proxy refuses the others.

use super::error::suggestion;
use super::file::File;
use super::profiles::is_name;
use super::tiers::{KeyHash, hashes};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// The most keys of all callers: each request's key is compared with all of them.
const MOST_KEYS: usize = 1000;

/// `[caller.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KnownCaller {
    /// Its keys: several while one replaces another.
    #[serde(deserialize_with = "hashes")]
    pub keys: Vec<KeyHash>,
}

/// All callers, by their keys.
#[derive(Clone, Default)]
pub struct Callers(Vec<(KeyHash, Arc<str>)>);

impl Callers {
    /// Those of the file.
    pub(super) fn of(file: &File) -> Self {
        let all = file.caller.iter().flat_map(|(name, caller)| {
            let name: Arc<str> = name.as_str().into();
            caller.keys.iter().map(move |key| (*key, Arc::clone(&name)))
        });
        Self(all.collect())
    }

    /// Whether there are none, so that everybody may use the proxy.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the caller whose key is one of `keys`. Each is compared with every hash to its end, so that the time
    /// says nothing about any of them.
    pub fn named_by<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Option<&Arc<str>> {
        let mut found = None;
        for key in keys.filter_map(KeyHash::of) {
            for (known, name) in &self.0 {
                if bool::from(known.bytes().ct_eq(&key.bytes())) {
                    found = found.or(Some(name));
                }
            }
        }
        found
    }
}

/// What is wrong with the callers of the file, and with the tiers that name them: the dotted key of each problem, and its
/// text.
pub(super) fn problems(file: &File) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut owners: HashMap<KeyHash, &str> = HashMap::new();
    for (name, caller) in &file.caller {
        let at = format!("caller.{name}");
        if !is_name(name) {
            found.push((at.clone(), "expected a name of letters, digits, `-`, `_` and `.`".to_owned()));
        }
        let at = format!("{at}.keys");
        if caller.keys.is_empty() {
            found.push((
                at.clone(),
                "expected the hash of a key, since nobody is this caller without one".to_owned(),
            ));
        }
        for key in &caller.keys {
            if let Some(other) = owners.insert(*key, name) {
                found.push((at.clone(), format!("{key} is a key of caller {other} as well")));
            }
        }
    }
    if owners.len() > MOST_KEYS {
        let text = format!("expected at most {MOST_KEYS} keys of all callers, found {}", owners.len());
        found.push(("caller".to_owned(), text));
    }
    let known: Vec<&str> = file.caller.keys().map(String::as_str).collect();
    for (name, tier) in &file.tier {
        for caller in tier.callers.iter().filter(|caller| !known.contains(&caller.as_str())) {
            let text = format!("there is no [caller.{caller}]; {}", suggestion(caller, &known));
            found.push((format!("tier.{name}.callers"), text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides, Source};
    use policies::REGISTRY;

    fn load(text: &str) -> Result<Config, String> {
        let source = Source::Text { name: "proxy.toml".to_owned(), text: text.to_owned() };
        Config::load(source, &Overrides::default(), REGISTRY).map_err(|problems| problems.to_string())
    }

    fn hash(key: &str) -> KeyHash {
        KeyHash::of(key.as_bytes()).unwrap()
    }

    #[test]
    fn a_caller_is_identified_by_any_of_its_keys_and_by_no_other_key() {
        let (a, b, c) = (hash("a"), hash("b"), hash("c"));
        let text = format!("[caller.ann]\nkeys = [\"{a}\", \"{b}\"]\n[caller.bob]\nkeys = [\"{c}\"]\n");
        let callers = load(&text).unwrap().callers;
        let name = |keys: &[&str]| {
            callers.named_by(keys.iter().map(|key| key.as_bytes())).map(|name| name.to_string())
        };
        for (keys, expected) in [
            (&["a"][..], Some("ann")),
            (&["b"], Some("ann")),
            (&["c"], Some("bob")),
            (&["x", "c", "a"], Some("bob")),
            (&["x"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(name(keys).as_deref(), expected, "{keys:?}");
        }
        assert!(load("").unwrap().callers.is_empty());
    }

    #[test]
    fn callers_without_keys_with_shared_keys_or_with_unknown_settings_are_refused() {
        let a = hash("a");
        for (text, expected) in [
            ("[caller.ann]".to_owned(), "caller.ann"),
            (
                format!("[caller.ann]\nkeys = [\"{a}\"]\n[caller.bob]\nkeys = [\"{a}\"]"),
                "is a key of caller ann as well",
            ),
            (format!("[caller.\"a b\"]\nkeys = [\"{a}\"]"), "expected a name"),
            (format!("[caller.ann]\nkeys = [\"{a}\"]\n[tier.free]\ncallers = [\"anne\"]"), "did you mean"),
            ("[caller.ann]\nkeys = [\"sk-a-real-key\"]".to_owned(), "64 hexadecimal digits"),
            ("caller = 1".to_owned(), "expected a table"),
        ] {
            let said = load(&text).map(|_| ()).unwrap_err();
            assert!(said.contains(expected) && !said.contains("sk-a-real-key"), "{said}");
        }
    }

    #[test]
    fn a_tier_has_the_keys_of_the_callers_that_it_names() {
        let text = format!("[caller.ann]\nkeys = [\"{}\"]\n[tier.free]\ncallers = [\"ann\"]\n", hash("a"));
        let profiles = load(&text).unwrap().profiles;
        assert_eq!(&**profiles.tier_of([&b"a"[..]].into_iter()).0, "free");
        assert_eq!(&**profiles.tier_of([&b"b"[..]].into_iter()).0, "auth");
    }
}
