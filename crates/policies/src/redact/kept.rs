//! Redaction of JSON that is kept instead of sent: the same rules, and placeholders that nobody can restore.

use super::detect::{Detector, Ending, Found, What};
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

/// What is replaced in a text.
pub struct Replacements {
    /// In order, without overlaps.
    pub ranges: Vec<Redaction>,
    /// A value that begins in the text may go on in the one after it: the end of a private key is missing, or the line
    /// after a heading of secrets.
    pub goes_on: bool,
    /// Nothing in the text may call what comes after it a secret.
    pub is_closed: bool,
}

impl Redactor {
    /// A redactor of these `kinds` of values and of what the operator's `patterns` match, as in `[policy.redact]`.
    ///
    /// # Errors
    /// What is wrong, under the keys `redact` and `patterns`.
    pub fn new(kinds: &[String], patterns: &BTreeMap<String, String>) -> Result<Self, Vec<ConfigError>> {
        let detector = detector(kinds, patterns)?;
        rules::compile();
        Ok(Self { detector })
    }

    /// What is wrong with these settings. Compiles no rule, since the rules take some MB and a configuration may redact
    /// nothing.
    pub fn problems(kinds: &[String], patterns: &BTreeMap<String, String>) -> Vec<ConfigError> {
        detector(kinds, patterns).err().unwrap_or_default()
    }

    /// Whether a text without [`Replacements::goes_on`] is redacted the same whatever comes before and after it. A pattern
    /// of the operator may look at more than one text.
    pub fn is_local(&self) -> bool {
        self.detector.own.is_empty()
    }

    /// `text`, JSON or free text, with placeholders in its strings; `None` where there is nothing to replace. Equal values
    /// get equal placeholders under one `key`.
    pub fn redact(&self, text: &str, key: &HashKey) -> Option<String> {
        let found = self.replacements(text, key).ranges;
        (!found.is_empty()).then(|| replaced(text, &found))
    }

    /// What [`Self::redact`] replaces.
    pub fn replacements(&self, text: &str, key: &HashKey) -> Replacements {
        if self.detector.is_empty() {
            return Replacements { ranges: Vec::new(), goes_on: false, is_closed: true };
        }
        let text_as_read = Decoded::new(text);
        let redaction = |found: Found| {
            let written = text_as_read.text_of(found.layer, found.range.clone());
            let by = text_as_read.written_at(&found.range, &self.placeholder(written, found.what, key));
            Redaction { range: found.range, by: by.into() }
        };
        let (found, Ending { goes_on, has_words }) = self.detector.find_with_ending(&text_as_read);
        let ranges = found.into_iter().map(redaction).collect();
        Replacements { ranges, goes_on, is_closed: !goes_on && !has_words }
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

fn detector(kinds: &[String], patterns: &BTreeMap<String, String>) -> Result<Detector, Vec<ConfigError>> {
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
    Ok(Detector::without_limit(known, own))
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
    fn a_text_after_which_a_value_may_go_on_says_so() {
        for (text, goes_on) in [
            ("-----BEGIN PRIVATE KEY-----\nMIIEvQ", true),
            ("-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n", false),
            ("-----BEGIN CERTIFICATE-----\nMIIEvQ", false),
            ("db:\n  password: |\n    one", true),
            ("db:\n  password: |\n    one\nuser: x", false),
            ("user,password\nanna,none", true),
            ("user,password\nanna,none\n\nand more", false),
            ("<password>Xq7Zp2Lm9Rt4Vw8K<b>", true),
            ("<password>Xq7Zp2Lm9Rt4Vw8K", true),
            ("<password>", true),
            (r#"{"content":"<db><password>"}"#, true),
            ("<password>Xq7Zp2Lm9Rt4Vw8K</password>", false),
            ("fn of(tokens: Vec<Token>) {", false),
            ("anna@example.org", false),
        ] {
            assert_eq!(redactor().replacements(text, &HashKey::fixed(7)).goes_on, goes_on, "{text}");
        }
    }

    #[test]
    fn unknown_kinds_and_bad_patterns_are_reported() {
        let patterns = BTreeMap::from([("p".to_owned(), "(".to_owned())]);
        let problems = Redactor::problems(&["names".to_owned()], &patterns);
        let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["redact", "patterns.p"]);
    }
}
