//! Attempts to open a protected page with a wrong token: each is counted, one line a minute is logged, and their answers
//! come slowly, one after the other, so that a token cannot be searched for. A right token never waits.

use crate::telemetry::log::{Level, Log};
use crate::telemetry::metrics::Metrics;
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The time between two answers, as the program has it.
pub const BETWEEN_ANSWERS: Duration = Duration::from_millis(200);
/// The longest time for which an answer is held, so that attempts do not keep the port's connections for long.
const LONGEST: Duration = Duration::from_secs(5);
/// The time between two log lines.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// See the module's documentation.
pub struct Attempts {
    log: Log,
    metrics: Arc<Metrics>,
    between: Duration,
    answers: Mutex<AnswerTimes>,
}

/// When attempts are answered and logged.
#[derive(Default)]
struct AnswerTimes {
    /// When the next answer may be given.
    next_answer: Option<Instant>,
    logged: Option<Instant>,
    /// Attempts since the last line.
    unlogged: u64,
}

impl Attempts {
    /// None so far; their answers come with the time `between` them.
    pub fn new(log: Log, metrics: Arc<Metrics>, between: Duration) -> Self {
        Self { log, metrics, between, answers: Mutex::default() }
    }

    /// Notes one attempt, and returns when its answer is due.
    pub(super) async fn note(&self) {
        self.metrics.count_wrong_token();
        let now = Instant::now();
        let (answer, count) = self.added(now);
        if let Some(count) = count {
            let fields = json!({"attempts": count});
            self.log.note(Level::Warn, "a wrong token was sent to the admin port", fields);
        }
        if answer > now {
            sleep_until(answer).await;
        }
    }

    fn added(&self, now: Instant) -> (Instant, Option<u64>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).add(now, self.between)
    }
}

impl AnswerTimes {
    /// When an attempt at `now` is answered, and the number of attempts to be logged, if it is time for a line.
    fn add(&mut self, now: Instant, between: Duration) -> (Instant, Option<u64>) {
        let answer = self.next_answer.map_or(now, |next| next.max(now)).min(now + LONGEST);
        self.next_answer = Some(answer + between);
        self.unlogged += 1;
        let is_due = self.logged.is_none_or(|logged| now >= logged + BETWEEN_LINES);
        let count = is_due.then(|| std::mem::take(&mut self.unlogged));
        self.logged = if is_due { Some(now) } else { self.logged };
        (answer, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_answered_one_after_the_other_and_logged_once_a_minute() {
        let (mut times, start) = (AnswerTimes::default(), Instant::now());
        let ms = Duration::from_millis;
        let mut add = |after: u64| {
            let (answer, count) = times.add(start + ms(after), BETWEEN_ANSWERS);
            (u64::try_from((answer - start).as_millis()).unwrap(), count)
        };
        assert_eq!([0, 0, 10, 1_000].map(&mut add), [(0, Some(1)), (200, None), (400, None), (1_000, None)]);
        let last = (0..100).map(|_| add(1_000)).last();
        assert_eq!(last, Some((6_000, None)), "no answer is held for longer than five seconds");
        assert_eq!(add(60_000), (60_000, Some(104)));
    }
}
