//! Equal requests: how often the same bytes of one caller came within a minute, and what they were billed. In the memory
//! of this process alone, bounded.

use model::identity::Hash;
use state::recent::Recent;

/// How long equal requests are counted together, from the first of them on. After a pause of this length between two of
/// them the next one begins a storm of its own.
const WINDOW_MS: u64 = 60_000;
/// The most requests that are known at once. One takes about 100 bytes.
const MOST: u64 = 65_536;

/// See the module's documentation.
pub struct EqualRequests(Recent<Repetition>);

/// One request, by its bytes and its caller.
#[derive(Clone, Copy, Default)]
struct Repetition {
    /// When the window began.
    began_ms: u64,
    /// When it came last.
    last_ms: u64,
    /// How often it came in the window.
    count: u32,
    /// It was reported.
    is_storm: bool,
    billed: Billed,
}

/// What the equal requests of a window were billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Billed {
    /// In both directions.
    pub tokens: u64,
    /// In billionths of a dollar; `None` where no price is known.
    pub nanodollars: Option<u64>,
}

/// How often a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    /// Within the window, this time included.
    pub count: u32,
    /// It is the first one of a storm that is to be reported.
    pub begins_storm: bool,
    /// It came more often than allowed.
    pub is_over: bool,
    /// What those before it were billed.
    pub billed: Billed,
}

impl Default for EqualRequests {
    fn default() -> Self {
        Self(Recent::new(MOST, WINDOW_MS))
    }
}

impl EqualRequests {
    /// Counts the `request` that came at `now_ms`; `allowed`: how many equal ones may come within the window, 0: any
    /// number. `storm`: from how many on they are one.
    pub fn count(&self, request: Hash, allowed: u32, storm: u32, now_ms: u64) -> RequestCount {
        let mut counted =
            RequestCount { count: 0, begins_storm: false, is_over: false, billed: Billed::default() };
        self.0.update(request, now_ms, |known| {
            let mut repetition = known.unwrap_or_default();
            let is_storm = repetition.is_storm && now_ms.saturating_sub(repetition.last_ms) < WINDOW_MS;
            if now_ms.saturating_sub(repetition.began_ms) >= WINDOW_MS {
                repetition = Repetition { began_ms: now_ms, ..Repetition::default() };
            }
            (repetition.is_storm, repetition.last_ms) = (is_storm, now_ms);
            repetition.count = repetition.count.saturating_add(1);
            let count = repetition.count;
            let is_over = allowed > 0 && count > allowed;
            let begins_storm = !repetition.is_storm && (count >= storm || is_over);
            repetition.is_storm |= begins_storm;
            counted = RequestCount { count, begins_storm, is_over, billed: repetition.billed };
            repetition
        });
        counted
    }

    /// Adds what the reply to the `request` was `billed`.
    pub fn bill(&self, request: Hash, billed: Billed, now_ms: u64) {
        if billed == Billed::default() {
            return;
        }
        self.0.update(request, now_ms, |known| {
            let mut repetition = known.unwrap_or_default();
            let sum = &mut repetition.billed;
            sum.tokens = sum.tokens.saturating_add(billed.tokens);
            if let Some(nanodollars) = billed.nanodollars {
                sum.nanodollars = Some(sum.nanodollars.unwrap_or_default().saturating_add(nanodollars));
            }
            repetition
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000;
    const STORM: u32 = 10;

    #[test]
    fn a_storm_is_reported_once_and_anew_after_a_pause() {
        let requests = EqualRequests::default();
        let reported = |from_ms: u64, times: u64, every_ms: u64| -> usize {
            let at = |nth| from_ms + nth * every_ms;
            (0..times).filter(|nth| requests.count(Hash(1), 0, STORM, at(*nth)).begins_storm).count()
        };
        assert_eq!(reported(START, 9, 10), 0, "what libraries and frameworks send again");
        assert_eq!(reported(START + 200_000, 500, 1_000), 1, "one storm of eight minutes");
        assert_eq!(reported(START + 800_000, 10, 1), 1);
        assert_eq!(reported(START + 900_000, 500, 7_000), 0, "every seven seconds");
    }

    #[test]
    fn so_many_as_are_allowed_pass_in_each_window_and_only_equal_ones_are_counted() {
        let requests = EqualRequests::default();
        for window in 0..3 {
            let start = START + window * WINDOW_MS;
            let over: Vec<bool> =
                (0..5).map(|at| requests.count(Hash(1), 3, STORM, start + at).is_over).collect();
            assert_eq!(over, [false, false, false, true, true], "{window}");
        }
        assert!((0..50).all(|nth| !requests.count(Hash(100 + nth), 1, STORM, START).is_over));
        assert!((0..50).all(|_| !requests.count(Hash(2), 0, STORM, START).is_over), "0 allows any number");
        let first = (0..3).map(|_| requests.count(Hash(3), 2, STORM, START));
        let storms: Vec<bool> = first.map(|counted| counted.begins_storm).collect();
        assert_eq!(storms, [false, false, true], "a storm that is stopped early is reported too");
    }

    #[test]
    fn what_equal_requests_cost_is_summed() {
        let requests = EqualRequests::default();
        let billed = |tokens, nanodollars| Billed { tokens, nanodollars };
        requests.count(Hash(1), 0, STORM, START);
        requests.bill(Hash(1), billed(25, None), START + 1);
        assert_eq!(requests.count(Hash(1), 0, STORM, START + 2).billed, billed(25, None));
        requests.bill(Hash(1), billed(25, Some(7)), START + 3);
        requests.bill(Hash(1), billed(25, Some(7)), START + 3);
        assert_eq!(requests.count(Hash(1), 0, STORM, START + 4).billed, billed(75, Some(14)));
        assert_eq!(requests.count(Hash(1), 0, STORM, START + 4 + WINDOW_MS).billed, Billed::default());
    }

    #[test]
    fn a_window_has_its_own_bill_and_a_late_reply_is_no_request() {
        let requests = EqualRequests::default();
        let billed = Billed { tokens: 25, nanodollars: None };
        // One every seven seconds, each billed: nine within a window.
        let most = (0..100).map(|nth| {
            let now = START + nth * 7_000;
            let before = requests.count(Hash(1), 0, STORM, now).billed.tokens;
            requests.bill(Hash(1), billed, now + 1);
            before
        });
        assert_eq!(most.max(), Some(8 * 25));
        for minute in 0..2 {
            let start = START + 2_000_000 + minute * 65_000;
            let storms = (0..10).filter(|nth| requests.count(Hash(2), 0, STORM, start + nth).begins_storm);
            assert_eq!(storms.count(), 1, "a storm of its own after a pause: {minute}");
            requests.bill(Hash(2), billed, start + 30_000);
        }
    }
}
