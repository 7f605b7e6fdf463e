//! Redaction of JSON that is kept instead of sent: the same rules, and placeholders that nobody can restore.

use super::detect::{Detector, Found, What};
use super::own_patterns;
use super::rules::{self, Kind};
use super::value::{REST, SHORT, placeholder, restored_value};
use crate::ConfigError;
use model::identity::{Hash, HashKey};
use model::plan::placeholders::{Redaction, SHORTEST, replaced};
use std::collections::BTreeMap;
use wire::decoded::Decoded;

/// Replaces values in texts, also in the strings of JSON.
pub struct Redactor {
    detector: Detector,
}

impl Redactor {
    /// A redactor of these `kinds` of values and of what the operator's `patterns` match, as in `[policy.redact]`.
    ///
    /// # Errors
    /// What is wrong, under the keys `redact` and `patterns`.
    pub fn new(kinds: &[String], patterns: &BTreeMap<String, String>) -> Result<Self, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut known = Vec::new();
        for word in kinds {
            match Kind::ALL.into_iter().find(|kind| kind.word() == word) {
                Some(kind) => known.push(kind),
                None => {
                    let words = Kind::ALL.map(Kind::word).join(", ");
                    problems.push(ConfigError::new("redact", format!("expected {words}, found {word:?}")));
                }
            }
        }
        let own = own_patterns(patterns, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        rules::compile();
        Ok(Self { detector: Detector::without_limit(known, own) })
    }

    /// `text`, JSON or free text, with placeholders in its strings; `None` where there is nothing to replace. Equal values
    /// get equal placeholders under one `key`.
    pub fn redact(&self, text: &str, key: &HashKey) -> Option<String> {
        if self.detector.is_empty() {
            return None;
        }
        let text_as_read = Decoded::new(text);
        let redaction = |found: Found| {
            let written = text_as_read.text_of(found.layer, found.range.clone());
            let by = text_as_read.written_at(&found.range, &self.placeholder(written, found.what, key));
            Redaction { range: found.range, by: by.into() }
        };
        let found: Vec<Redaction> = self.detector.find(&text_as_read).into_iter().map(redaction).collect();
        (!found.is_empty()).then(|| replaced(text, &found))
    }

    fn placeholder(&self, written: &str, what: What, key: &HashKey) -> String {
        let label = match what {
            What::Kind(kind) => kind.word(),
            What::Own(at) => self.detector.own.get(at).map_or("value", |(name, _)| name),
            What::Rest => return REST.to_owned(),
            What::Other => "value",
        };
        if written.len() < SHORTEST {
            return SHORT.to_owned();
        }
        let value = restored_value(written);
        placeholder(key, Hash::default(), (label, &value), 0).unwrap_or_else(|| SHORT.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::identity::HashKey;

    fn redactor() -> Redactor {
        let patterns = BTreeMap::from([("order".to_owned(), "ORD-[0-9]{8}".to_owned())]);
        Redactor::new(&["email".to_owned(), "secret".to_owned()], &patterns).unwrap()
    }

    #[test]
    fn values_in_strings_get_placeholders_and_the_json_stays_whole() {
        let key = HashKey::fixed(7);
        let json =
            r#"{"a":"write to anna@example.org","b":["{\"m\":\"anna@example.org\"}", 7],"c":"ORD-12345678"}"#;
        let redacted = redactor().redact(json, &key).unwrap();
        let value: serde_json::Value = serde_json::from_str(&redacted).unwrap();
        let mail = value["a"].as_str().unwrap().strip_prefix("write to ").unwrap();
        assert!(mail.starts_with("[EMAIL_") && mail.ends_with(']'), "{redacted}");
        assert_eq!(value["b"][0], format!("{{\"m\":\"{mail}\"}}"), "equal values have equal placeholders");
        assert!(value["c"].as_str().unwrap().starts_with("[ORDER_"), "{redacted}");
        assert_eq!(redactor().redact(r#"{"a":"nothing"}"#, &key), None);
    }

    #[test]
    fn unknown_kinds_and_bad_patterns_are_reported() {
        let patterns = BTreeMap::from([("p".to_owned(), "(".to_owned())]);
        let problems = Redactor::new(&["names".to_owned()], &patterns).err().unwrap();
        let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["redact", "patterns.p"]);
    }
}
