//! The envelope of a blocked call: the JSON that the model reads as its result, with the reason and whether to try
//! again.

use super::Reason;
use serde_json::json;

/// The synthetic result of a blocked call.
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
