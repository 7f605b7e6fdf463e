//! The envelope of a call that toolrein answers in place of the client: the JSON that the model reads as its result, with
//! the reason, whether to try again, and whether anything may have been done.

use super::{Issue, Reason};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// The last second that RFC 3339 can write, at the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// The version of the envelope's form.
const VERSION: &str = "1.0.0";

/// The synthetic result of a blocked call.
pub fn envelope(policy: &str, reason: &Reason) -> String {
    let mut error = error(reason.kind.as_str(), &reason.message, reason.retryable);
    for (name, value) in details(reason) {
        error[name] = value;
    }
    enveloped(policy, &error)
}

/// The `error` of a call that was not run.
pub fn error(kind: &str, message: &str, retryable: bool) -> Value {
    // It was not run, so nothing was done.
    json!({"type": kind, "message": message, "retryable": retryable, "partialSideEffects": false})
}

/// The synthetic result with this `error`, by `policy`.
pub fn enveloped(policy: &str, error: &Value) -> String {
    let meta = json!({"by": "toolrein", "policy": policy});
    json!({"ok": false, "version": VERSION, "error": error, "meta": meta}).to_string()
}

/// The numbers, times and issues of a reason, as programs read them.
pub fn details(reason: &Reason) -> impl Iterator<Item = (&'static str, Value)> + '_ {
    let numbers = reason.numbers.iter().map(|(name, number)| (*name, json!(number)));
    let times = reason.times.iter().map(|(name, ms)| (*name, json!(rfc3339(*ms))));
    let issue = |issue: &Issue| json!({"path": issue.path, "message": issue.message});
    let issues = (!reason.issues.is_empty())
        .then(|| ("issues", reason.issues.iter().map(issue).collect::<Vec<_>>().into()));
    numbers.chain(times).chain(issues)
}

/// A point in time, given in ms since the epoch, as RFC 3339 in UTC. A part of a second counts as whole, so that what is
/// promised for a time holds then.
pub fn rfc3339(ms: u64) -> String {
    let seconds = ms.div_ceil(1000).min(LAST_SECOND);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ReasonKind;

    #[test]
    fn times_are_rfc_3339_in_utc_and_none_is_too_late_to_be_written() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_782_044_700_000, "2026-06-21T12:25:00Z"),
            (1_782_044_700_001, "2026-06-21T12:25:01Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(ms), expected);
        }
        let reason = Reason::new(ReasonKind::RateLimit, "No.").with(vec![("remaining", 0)]).at("reset_at", 0);
        let envelope: serde_json::Value = serde_json::from_str(&envelope("quota", &reason)).unwrap();
        assert_eq!(envelope["error"]["remaining"], 0);
        assert_eq!(envelope["error"]["reset_at"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn the_envelope_has_a_version_and_says_that_nothing_was_done_and_what_is_wrong_where() {
        let issue = Issue { path: "code".to_owned(), message: "required".to_owned() };
        let reason = Reason::new(ReasonKind::Validation, "No.").retryable().about(vec![issue]);
        assert_eq!(
            serde_json::from_str::<Value>(&envelope("arguments", &reason)).unwrap(),
            json!({"ok": false, "version": "1.0.0", "error": {"type": "VALIDATION", "message": "No.",
                "retryable": true, "partialSideEffects": false,
                "issues": [{"path": "code", "message": "required"}]},
                "meta": {"by": "toolrein", "policy": "arguments"}})
        );
        let plain = envelope("allow", &Reason::new(ReasonKind::NotFound, "No."));
        assert!(plain.contains("\"NOT_FOUND\"") && !plain.contains("issues"), "{plain}");
    }
}
