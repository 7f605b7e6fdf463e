//! The envelope of a blocked call: the JSON that the model reads as its result, with the reason and whether to try
//! again.

use super::Reason;
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// The last second that RFC 3339 can write, at the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// The synthetic result of a blocked call.
pub fn envelope(policy: &str, reason: &Reason) -> String {
    let mut error = json!({
        "type": reason.kind.as_str(),
        "message": reason.message,
        "retryable": reason.retryable,
    });
    for (name, value) in details(reason) {
        error[name] = value;
    }
    json!({ "ok": false, "error": error, "meta": { "by": "toolrein", "policy": policy } }).to_string()
}

/// The numbers and times of a reason, as programs read them.
pub fn details(reason: &Reason) -> impl Iterator<Item = (&'static str, Value)> + '_ {
    let numbers = reason.numbers.iter().map(|(name, number)| (*name, json!(number)));
    numbers.chain(reason.times.iter().map(|(name, ms)| (*name, json!(rfc3339(*ms)))))
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
}
