//! The circuit breaker of the connection to the shared state store: after this many failures no request is sent to it
//! until a probe is answered. Counts answers and failures; connects to nothing and reads no clock.

use std::time::Duration;
use tokio::time::Instant;

/// Failures in a row that open the circuit: a state store that is away delays no more requests than this.
const MOST_IN_A_ROW: u32 = 3;
/// Failures within [`WINDOW`] that open the circuit although answers came between them, if they are at least one in
/// [`SHARE`] of all requests.
const MANY: u32 = 5;
const SHARE: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Breaker {
    in_a_row: u32,
    /// Since the window began.
    failed: u32,
    asked: u32,
    began: Option<Instant>,
}

impl Breaker {
    /// Notes that an answer came.
    pub(super) fn answered(&mut self, now: Instant) {
        self.count(now);
        self.in_a_row = 0;
    }

    /// Notes that no answer came in time. Returns whether that opens the circuit.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.count(now);
        self.in_a_row += 1;
        self.failed += 1;
        let are_many = self.failed >= MANY && self.failed.saturating_mul(SHARE) >= self.asked;
        self.in_a_row >= MOST_IN_A_ROW || are_many
    }

    fn count(&mut self, now: Instant) {
        let is_new = self.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW);
        if is_new {
            (self.began, self.asked, self.failed) = (Some(now), 0, 0);
        }
        self.asked = self.asked.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_after_consecutive_or_frequent_failures_and_not_after_rare_ones() {
        let rare = format!("{}{}", "+".repeat(40), "-++++++".repeat(20));
        for (heard, pause_ms, opens_at) in [
            ("---", 1, Some(2)),
            ("--+--+--", 1, Some(6)),
            ("-+-+-+-+-+", 1, Some(8)),
            // One failure in three requests: the window begins anew at the tenth second.
            ("++-++-++-++-++-++-", 1_000, None),
            ("++-++-++-++-++-++-", 500, Some(14)),
            // Fewer than one in five.
            (&rare, 1, None),
            ("--+--+", 6_000, None),
            ("---", 20_000, Some(2)),
        ] {
            let (begun, mut breaker) = (Instant::now(), Breaker::default());
            let opened = heard.chars().enumerate().position(|(nth, heard)| {
                let now = begun + Duration::from_millis(pause_ms) * u32::try_from(nth).unwrap();
                match heard {
                    '-' => breaker.failed(now),
                    _ => {
                        breaker.answered(now);
                        false
                    }
                }
            });
            assert_eq!(opened, opens_at, "{heard} every {pause_ms} ms");
        }
    }
}
