//! Short forms of the texts of a hidden exchange, for a request that would be too long for the model otherwise: what a call
//! was and that it was not run stays, the rest goes.

use model::plan::enveloped;
use serde_json::{Value, json};
use wire::json::quote;
use wire::plural::counted;

/// The most characters of a text that are kept.
const MOST_CHARS: usize = 200;

/// The arguments of a call, which are JSON.
pub fn short_arguments(arguments: &str) -> String {
    if arguments.chars().nth(MOST_CHARS).is_none() {
        return arguments.to_owned();
    }
    format!("{{\"shortened_arguments\":{}}}", quote(&short_text(arguments)))
}

/// The beginning of a text, with how long it was.
pub fn short_text(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(MOST_CHARS) else { return text.to_owned() };
    format!("{} [shortened: {} in all]", &text[..end], counted(text.chars().count(), "character"))
}

/// The result of a blocked call: an envelope keeps its type and the policy's name.
pub fn short_result(result: &str) -> String {
    let envelope: Option<Value> = serde_json::from_str(result).ok();
    let Some(envelope) = envelope.filter(|envelope| envelope["meta"]["by"] == "toolrein") else {
        return short_text(result);
    };
    let kept = |name: &str| envelope["error"].get(name).cloned().unwrap_or_default();
    let error = json!({"type": kept("type"), "message": "The call was not run.", "retryable": kept("retryable"),
        "partialSideEffects": false});
    enveloped(envelope["meta"]["policy"].as_str().unwrap_or_default(), &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_beginning_and_say_how_long_they_were() {
        let long = "x".repeat(1_000);
        assert_eq!(short_text("short"), "short");
        assert!(
            short_text(&long).ends_with("x [shortened: 1000 characters in all]"),
            "{}",
            short_text(&long)
        );
        assert_eq!(short_arguments("{\"a\":1}"), "{\"a\":1}");
        let shortened: Value =
            serde_json::from_str(&short_arguments(&json!({ "text": long }).to_string())).unwrap();
        assert!(shortened["shortened_arguments"].as_str().unwrap().starts_with("{\"text\":\"xxx"));
    }

    #[test]
    fn an_envelope_keeps_its_type_and_its_policy() {
        let envelope = json!({"ok": false, "error": {"type": "RATE_LIMIT", "message": "w".repeat(500), "retryable": true,
            "used": 3}, "meta": {"by": "toolrein", "policy": "rate_limit"}});
        let short: Value = serde_json::from_str(&short_result(&envelope.to_string())).unwrap();
        assert_eq!(
            (&short["error"]["type"], &short["meta"]),
            (&envelope["error"]["type"], &envelope["meta"])
        );
        assert_eq!(short["error"]["message"], "The call was not run.");
    }
}
