//! What the model reads as the result of a call that was not run: a JSON envelope that says why, and whether to try again.

use super::Reason;
use serde_json::json;

/// The synthetic result that tells the model why its call was withheld.
pub fn envelope(policy: &str, reason: &Reason) -> String {
    let mut error = json!({
        "type": reason.kind.as_str(),
        "message": reason.message,
        "retryable": reason.retryable,
    });
    for (name, number) in &reason.numbers {
        error[*name] = json!(number);
    }
    json!({ "ok": false, "error": error, "meta": { "by": "toolrein", "policy": policy } }).to_string()
}
