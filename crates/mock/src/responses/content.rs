//! Validation of what is inside a message or an output: roles, parts and their members.

use super::super::check;
use super::super::refusal::Refusal;
use super::items::only_known;
use serde_json::Value;

const ROLES: [&str; 4] = ["assistant", "system", "developer", "user"];
/// The kinds of part that each side may use.
const OF_MODEL: [&str; 2] = ["output_text", "refusal"];
const OF_OTHERS: [&str; 4] = ["input_text", "input_image", "input_file", "input_audio"];

/// Checks a message's role and content.
pub(super) fn check_message(path: &str, message: &Value) -> Result<(), Refusal> {
    let role = check::text(message, path, "role")?;
    if !ROLES.contains(&role) {
        let supported = "'assistant', 'system', 'developer', and 'user'";
        return Err(Refusal::unknown_value(&format!("{path}.role"), role, supported));
    }
    let kinds: &[&str] = if role == "assistant" { &OF_MODEL } else { &OF_OTHERS };
    check_parts(path, message, "content", kinds)
}

/// Checks a call's output: a text, or parts of input.
pub(super) fn check_output(path: &str, item: &Value) -> Result<(), Refusal> {
    check_parts(path, item, "output", &OF_OTHERS)
}

fn check_parts(path: &str, item: &Value, key: &str, kinds: &[&str]) -> Result<(), Refusal> {
    let path = format!("{path}.{key}");
    let parts = match item.get(key) {
        None => return Err(Refusal::missing(&path)),
        Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            return Err(Refusal::wrong_type(&path, "one of an array of objects or string", other));
        }
    };
    parts
        .iter()
        .enumerate()
        .try_for_each(|(index, part)| check_part(&format!("{path}[{index}]"), part, kinds))
}

fn check_part(path: &str, part: &Value, kinds: &[&str]) -> Result<(), Refusal> {
    if !part.is_object() {
        return Err(Refusal::wrong_type(path, "an object", part));
    }
    let kind = check::text(part, path, "type")?;
    if !kinds.contains(&kind) {
        let supported = if kinds == OF_MODEL {
            "'output_text' and 'refusal'"
        } else {
            "'input_text', 'input_image', 'input_file', and 'input_audio'"
        };
        return Err(Refusal::unknown_value(&format!("{path}.type"), kind, supported));
    }
    let (text, others): (&str, &[&str]) = match kind {
        "input_text" => ("text", &["prompt_cache_breakpoint"]),
        "output_text" => ("text", &["annotations", "logprobs"]),
        "refusal" => ("refusal", &[]),
        _ => return Ok(()),
    };
    only_known(part, path, &[&["type", text], others])?;
    check::text(part, path, text).map(|_| ())
}
