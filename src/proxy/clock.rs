//! A monotonic clock of the time of day for policies: read from the system once, and advanced from there. Setting the
//! system's clock, by hand or by a time server, therefore moves no rate-limit window and no pending question.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch, never less than before.
pub(super) fn now_ms() -> u64 {
    ms_at(Instant::now())
}

/// The time of an instant in the past, in milliseconds since the epoch.
pub(super) fn ms_at(at: Instant) -> u64 {
    static STARTED: OnceLock<(Instant, Duration)> = OnceLock::new();
    let (instant, wall) = STARTED
        .get_or_init(|| (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()));
    let passed = at.saturating_duration_since(*instant);
    u64::try_from((*wall + passed).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_starts_at_the_wall_clock_time_and_never_goes_backwards() {
        let times: Vec<u64> = (0..1000).map(|_| now_ms()).collect();
        assert!(times.is_sorted());
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(day.abs_diff(Duration::from_millis(times[999])) < Duration::from_secs(60));
    }
}
