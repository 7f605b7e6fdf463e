//! The effective settings as text: every key, defaults filled in, secrets hidden. Written for people and programs;
//! never parsed again.

use super::address::{without_path, without_secrets_in};
use super::document::quoted_key;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The effective settings.
#[derive(Clone)]
pub struct Effective {
    toml: String,
    json: String,
    /// The hash of each value of which something is hidden, so that a change of it is noticed. Never shown.
    hidden: BTreeMap<String, u64>,
}

/// Whether they show the same.
impl PartialEq for Effective {
    fn eq(&self, other: &Self) -> bool {
        self.toml == other.toml && self.json == other.json
    }
}

impl fmt::Debug for Effective {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.toml)
    }
}

/// A changed key with both values; `None` where it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Dotted.
    pub key: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

impl Effective {
    /// Formats `settings`.
    pub(super) fn new(settings: &Map<String, Value>) -> Self {
        let (mut settings, mut hidden) = (settings.clone(), BTreeMap::new());
        hide_secrets(&mut settings, "", &mut hidden);
        let mut toml = String::new();
        write_table(&settings, &mut Vec::new(), &mut toml);
        let json = format!("{:#}", Value::Object(settings));
        Self { toml, json, hidden }
    }

    /// As a TOML document that toolrein would accept, except for hidden secrets.
    pub fn as_toml(&self) -> &str {
        &self.toml
    }

    /// As a JSON object.
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// The differences to the settings `new`, by key.
    pub fn changes(&self, new: &Self) -> Vec<Change> {
        let is_hidden_change = |key: &str| self.hidden.get(key) != new.hidden.get(key);
        let (old, new) = (self.by_key(), new.by_key());
        let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let changes = keys.map(|key| Change {
            key: key.clone(),
            old: old.get(key).cloned(),
            new: new.get(key).cloned(),
        });
        let is_change = |change: &Change| change.old != change.new || is_hidden_change(&change.key);
        let mut changes: Vec<Change> = changes.filter(is_change).collect();
        changes.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        changes
    }

    /// Each setting by its dotted key, as TOML.
    fn by_key(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        // Written by `new`, so it can be parsed.
        if let Ok(Value::Object(table)) = serde_json::from_str(&self.json) {
            flatten(&table, "", &mut settings);
        }
        settings
    }
}

/// Hides the secrets in all addresses of a table whose key begins with `above`. The hash of each whole value goes into
/// `hidden`, by its dotted key.
pub(super) fn hide_secrets(table: &mut Map<String, Value>, above: &str, hidden: &mut BTreeMap<String, u64>) {
    for (key, value) in table.iter_mut() {
        let dotted = format!("{above}{}", quoted_key(key));
        let is_of_webhook = above.ends_with("webhook.") && key == "url";
        match value {
            Value::Object(inner) => hide_secrets(inner, &format!("{dotted}."), hidden),
            Value::Array(items) => items.iter_mut().for_each(|item| hide_in(item, false, &dotted, hidden)),
            value => hide_in(value, is_of_webhook, &dotted, hidden),
        }
    }
}

fn hide_in(value: &mut Value, is_of_webhook: bool, key: &str, hidden: &mut BTreeMap<String, u64>) {
    match value {
        Value::Object(table) => hide_secrets(table, &format!("{key}."), hidden),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in(item, is_of_webhook, key, hidden)),
        Value::String(text) if text.contains("://") => {
            // Whoever knows the path of a webhook can send to it.
            let shown = if is_of_webhook { without_path(text) } else { without_secrets_in(text) };
            if shown != *text {
                let mut hasher = DefaultHasher::new();
                (hidden.get(key), &*text).hash(&mut hasher);
                hidden.insert(key.to_owned(), hasher.finish());
                *text = shown;
            }
        }
        _ => {}
    }
}

fn flatten(table: &Map<String, Value>, above: &str, settings: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = format!("{above}{}", quoted_key(key));
        match value {
            Value::Object(inner) if !inner.is_empty() => flatten(inner, &format!("{key}."), settings),
            value => drop(settings.insert(key, inline(value))),
        }
    }
}

/// One setting as a line of TOML.
pub(super) fn setting(key: &str, value: &Value) -> String {
    format!("{} = {}", quoted_key(key), inline(value))
}

fn inline(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".to_owned(),
        Value::String(text) => toml::Value::from(text.as_str()).to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let entries = table.iter().map(|(key, value)| setting(key, value));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn write_table(table: &Map<String, Value>, path: &mut Vec<String>, out: &mut String) {
    let (headed, plain): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| has_header(value, path));
    if !path.is_empty() && (!plain.is_empty() || headed.is_empty()) {
        out.push_str(&format!("\n[{}]\n", path.join(".")));
    }
    for (key, value) in plain {
        out.push_str(&setting(key, value));
        out.push('\n');
    }
    for (key, value) in headed {
        if let Value::Object(inner) = value {
            path.push(quoted_key(key));
            write_table(inner, path, out);
            path.pop();
        }
    }
}

/// Whether a value at `path` gets its own header: tables at the top, policies, those of profiles too, and tables of
/// tables within them.
fn has_header(value: &Value, path: &[String]) -> bool {
    let Value::Object(table) = value else { return false };
    let deepest = if path.first().is_some_and(|top| top == "profile") { 4 } else { 2 };
    path.len() < deepest || table.values().any(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn effective(settings: &Value) -> Effective {
        Effective::new(settings.as_object().unwrap())
    }

    #[test]
    fn secrets_in_addresses_are_hidden_and_their_changes_are_noticed() {
        let with = |token: &str| {
            effective(
                &json!({"policy": {"confirm": {"webhook": {"url": format!("https://h.example/hooks/{token}?k={token}")},
                "texts": {"a": format!("see https://u:{token}@h.example/a?code={token} {token}")}}},
                "list": [format!("https://h.example/bot1:{token}/x")]}),
            )
        };
        let (one, other) = (with("s3cretT0kenOfMine"), with("an0therT0kenOfMine"));
        let shown = one.as_toml();
        assert!(shown.contains("url = \"https://h.example/***\""), "{shown}");
        assert!(shown.contains("see https://***@h.example/a?code=*** s3cretT0kenOfMine\""), "{shown}");
        assert!(shown.contains("[\"https://h.example/bot1:***/x\"]"), "{shown}");
        let keys: Vec<String> = one.changes(&other).into_iter().map(|change| change.key).collect();
        assert_eq!(keys, ["list", "policy.confirm.texts.a", "policy.confirm.webhook.url"]);
        assert!(one.changes(&with("s3cretT0kenOfMine")).is_empty());
    }

    #[test]
    fn changes_are_named_by_key_with_the_old_value_and_the_new_one() {
        let old = effective(
            &json!({"mode": "enforce", "policy": {"budget": {"tool_calls": 50}, "loops": {"notice": 3}},
            "conversation": {"headers": ["a"]}}),
        );
        let new =
            effective(&json!({"mode": "enforce", "policy": {"budget": {"tool_calls": 20}, "fresh": {}},
            "conversation": {"headers": ["a", "b"]}}));
        let change = |key: &str, old: Option<&str>, new: Option<&str>| Change {
            key: key.to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        };
        let expected = [
            change("conversation.headers", Some("[\"a\"]"), Some("[\"a\", \"b\"]")),
            change("policy.budget.tool_calls", Some("50"), Some("20")),
            change("policy.fresh", None, Some("{}")),
            change("policy.loops.notice", Some("3"), None),
        ];
        assert_eq!(old.changes(&new), expected);
        assert!(old.changes(&old).is_empty());
    }
}
