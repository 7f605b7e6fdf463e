//! The clock of a replay: it follows recorded times or, without them, a fixed pace; and the parser of recorded times.
//! Does not read the system clock.

use serde_json::Value;
use std::time::{Duration, UNIX_EPOCH};

/// Numbers below are seconds since the epoch (until the year 5138), others milliseconds.
const SECONDS_BELOW: f64 = 1e11;

/// The time of a replay, in ms since the epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub now_ms: u64,
    pace_ms: u64,
    /// By how much everything is later than recorded, since calls were held.
    late_ms: u64,
}

impl Clock {
    /// A clock that takes one `pace` for each call.
    pub(super) fn new(pace: Duration) -> Self {
        Self { now_ms: 0, pace_ms: u64::try_from(pace.as_millis()).unwrap_or(u64::MAX), late_ms: 0 }
    }

    /// The time of the next call, in a message with this recorded time, if there is one.
    pub(super) fn call(&mut self, recorded_ms: Option<u64>) -> u64 {
        let recorded_ms = recorded_ms.map(|ms| ms.saturating_add(self.late_ms));
        self.now_ms = recorded_ms.unwrap_or_else(|| self.now_ms.saturating_add(self.pace_ms));
        self.now_ms
    }

    /// Calls were held for so long: whatever follows comes as much later.
    pub(super) fn wait(&mut self, ms: u64) {
        self.now_ms = self.now_ms.saturating_add(ms);
        self.late_ms = self.late_ms.saturating_add(ms);
    }
}

/// A recorded time in ms since the epoch: RFC 3339 with any offset or none (UTC then), or a number of seconds or
/// milliseconds.
pub(super) fn parse_ms(time: &Value) -> Option<u64> {
    match time {
        Value::Number(number) => {
            let number = number.as_f64().filter(|number| *number >= 0.0)?;
            let ms = if number < SECONDS_BELOW { number * 1000.0 } else { number };
            Some(ms.round() as u64)
        }
        Value::String(text) => parse_text(text.trim()),
        _ => None,
    }
}

fn parse_text(text: &str) -> Option<u64> {
    let (local, offset_minutes) = split_offset(text)?;
    let since = humantime::parse_rfc3339_weak(local).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let ms = i64::try_from(since.as_millis()).ok()?;
    u64::try_from(ms - offset_minutes * 60_000).ok()
}

/// The time without its offset, and the offset in minutes.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    // After the date, which contains dashes too.
    let Some(at) = text.rfind(['+', '-']).filter(|at| *at > "2000-01-01".len()) else {
        return Some((text, 0));
    };
    let (local, offset) = text.split_at(at);
    let digits: String = offset[1..].chars().filter(|letter| *letter != ':').collect();
    let number: i64 = digits.parse().ok().filter(|_| digits.len() == 4)?;
    let minutes = number / 100 * 60 + number % 100;
    Some((local, if offset.starts_with('-') { -minutes } else { minutes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_read_in_every_spelling() {
        for (time, expected) in [
            (json!("1970-01-01T00:01:00Z"), Some(60_000)),
            (json!("1970-01-01T00:01:00.250"), Some(60_250)),
            (json!("1970-01-01 00:01:00.250123"), Some(60_250)),
            (json!("1970-01-01T02:01:00+02:00"), Some(60_000)),
            (json!("1970-01-01T02:01:00.5+0200"), Some(60_500)),
            (json!("1969-12-31T23:01:00-01:00"), None),
            (json!("1970-01-01T00:01:00-01:30"), Some(60_000 + 90 * 60_000)),
            (json!(1_750_000_000), Some(1_750_000_000_000)),
            (json!(1_750_000_000.5), Some(1_750_000_000_500)),
            (json!(1_750_000_000_123_i64), Some(1_750_000_000_123)),
            (json!(-1), None),
            (json!("yesterday"), None),
            (json!("é-"), None),
            (json!(null), None),
        ] {
            assert_eq!(parse_ms(&time), expected, "{time}");
        }
    }

    #[test]
    fn calls_without_a_time_follow_each_other_at_the_pace() {
        let mut clock = Clock::new(Duration::from_secs(2));
        let times: Vec<u64> =
            [None, None, Some(90_000), None].into_iter().map(|time| clock.call(time)).collect();
        assert_eq!(times, [2_000, 4_000, 90_000, 92_000]);
    }

    #[test]
    fn a_wait_shifts_all_later_times() {
        let mut clock = Clock::new(Duration::from_secs(2));
        assert_eq!([clock.call(None), clock.call(Some(90_000))], [2_000, 90_000]);
        clock.wait(7_000);
        assert_eq!([clock.call(Some(91_000)), clock.call(None)], [98_000, 100_000]);
    }
}
