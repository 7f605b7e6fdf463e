//! Whether a profile allows more than the policies outside of profiles. Clients may choose profiles by a header, so an
//! operator is warned of a laxer one.

use crate::config::policies::Layer;
use serde_json::Value;

/// What `profile` allows beyond `base`: policies that are off in it, and settings with a higher number, no number or
/// other names. Policies that only change texts are left out. In the order of the registry.
pub(super) fn allowed_beyond(base: &Layer<'_>, profile: &Layer<'_>) -> Vec<String> {
    let own = profile.settings();
    let mut found = Vec::new();
    for configured in base.on() {
        let (name, about) = (configured.rule.name(), configured.rule.about());
        let only_changes_texts = about.edits_context || about.cuts_results;
        if only_changes_texts || about.idle.is_some() {
            continue;
        }
        match own.get(name) {
            None => found.push(format!("policy.{name} is off")),
            Some(settings) => compare(&format!("policy.{name}"), &configured.settings, settings, &mut found),
        }
    }
    found
}

/// Adds the settings below `key` in which `own` allows more than `base`.
fn compare(key: &str, base: &Value, own: &Value, found: &mut Vec<String>) {
    match (base, own) {
        (Value::Object(base), Value::Object(own)) => {
            for (name, base) in base {
                compare(&format!("{key}.{name}"), base, own.get(name).unwrap_or(&Value::Null), found);
            }
        }
        (Value::Number(number), Value::Number(other)) => {
            let (base, own) = (number.as_f64().unwrap_or_default(), other.as_f64().unwrap_or_default());
            // Zero is no limit.
            if base != 0.0 && (own > base || own == 0.0) {
                found.push(format!("{key} is {other} instead of {number}"));
            }
        }
        (Value::Array(base), Value::Array(own))
            if base.iter().any(|name| name.is_string() && !own.contains(name)) =>
        {
            found.push(format!("{key} lacks names"));
        }
        (Value::Object(_) | Value::Number(_), Value::Null) => found.push(format!("{key} is missing")),
        _ => {}
    }
}
