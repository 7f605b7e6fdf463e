//! The effective settings as text: every key, defaults filled in, secrets hidden. Writes them down for people
//! and programs; nothing reads them back.

use super::document::quoted_key;
use serde_json::{Map, Value};

/// The effective settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    toml: String,
    json: String,
}

impl Effective {
    /// Writes down `settings`.
    pub(super) fn new(settings: &Map<String, Value>) -> Self {
        let mut toml = String::new();
        write_table(settings, &mut Vec::new(), &mut toml);
        let json = format!("{:#}", Value::Object(settings.clone()));
        Self { toml, json }
    }

    /// As a TOML document that toolrein would take, but for hidden secrets.
    pub fn as_toml(&self) -> &str {
        &self.toml
    }

    /// As a JSON object.
    pub fn as_json(&self) -> &str {
        &self.json
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

/// Whether a value at `path` gets a header of its own: tables at the top, policies, those of profiles too, and
/// tables of tables within them.
fn has_header(value: &Value, path: &[String]) -> bool {
    let Value::Object(table) = value else { return false };
    let deepest = if path.first().is_some_and(|top| top == "profile") { 4 } else { 2 };
    path.len() < deepest || table.values().any(Value::is_object)
}
