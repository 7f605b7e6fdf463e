//! Room in the model's context for a request that the upstream refused for its length. The policies clear old results
//! and drop old turns; where that is not enough, the longest results are cut, so that the whole fits. The limit is the
//! one that the refusal names, else the known window, else half of what was refused. Decides how much is left of each
//! result; the policies write the cuts.

use dialects::refusal::NamedLengths;

/// The share of the limit, in percent, that a request may fill by the upstream's own count.
const MOST_PERCENT: u64 = 95;
/// What it is cut to where it does not fit: estimates of parts are less certain, and the answer needs room.
const CUT_PERCENT: u64 = 75;
/// How often a cut is made smaller: announcements of cuts need room too.
pub(super) const MOST_CUTS: usize = 3;
/// By how much the estimate may be too small, in percent: beyond that, the upstream counts what is not seen here.
const MOST_FACTOR: u64 = 400;

/// The estimated sizes of a request as it is sent.
#[derive(Default)]
pub(super) struct CutSizes {
    pub(super) tokens: u64,
    /// The texts of its results: tokens, and characters.
    pub(super) results: Vec<(u64, usize)>,
}

/// The room for a request, in estimated tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// A request with no more is not cut.
    pub(super) most: u64,
    /// What others are cut to.
    pub(super) cut_to: u64,
}

impl Room {
    /// The room after a refusal that names these lengths; `refused`: the estimate of the request. `window`: where it is
    /// known, and `output` the tokens that the request asks for.
    pub(super) fn after(named: NamedLengths, refused: u64, window: Option<u64>, output: Option<u64>) -> Self {
        // An estimate that has proved too small says no more than that half of it is safe.
        let half = Self { most: refused / 2, cut_to: refused / 2 };
        let Some(limit) = named.limit.or(window) else { return half };
        let reserve = output.filter(|output| named.counts_output && *output < limit).unwrap_or(0);
        let sent = named.sent.map(|sent| sent.saturating_sub(reserve));
        let percent = sent.map_or(100, |sent| sent.saturating_mul(100) / refused.max(1));
        let factor = percent.clamp(100, MOST_FACTOR);
        // A conversation that the upstream keeps is not in the estimate.
        let unseen = sent.map_or(0, |sent| sent.saturating_sub(refused.saturating_mul(factor) / 100));
        let share = |percent: u64| {
            let room = ((limit - reserve).saturating_mul(percent) / 100).saturating_sub(unseen);
            room.saturating_mul(100) / factor
        };
        let cut_to = share(CUT_PERCENT);
        // The count of a whole request is exact where the upstream has named it.
        let most = if sent.is_some() { share(MOST_PERCENT) } else { cut_to };
        if most < refused { Self { most, cut_to } } else { half }
    }
}

impl CutSizes {
    /// How many characters may be left of each text of a result so that the request has at most `most` tokens: shorter
    /// texts stay whole. `None` where it has no more.
    pub(super) fn most_chars(&self, most: u64) -> Option<usize> {
        let in_results: u64 = self.results.iter().map(|(tokens, _)| tokens).sum();
        let mut left = most.saturating_sub(self.tokens.saturating_sub(in_results)) as f64;
        let mut texts: Vec<(f64, f64)> =
            self.results.iter().map(|(tokens, chars)| (*tokens as f64, (*chars).max(1) as f64)).collect();
        texts.sort_by(|one, other| one.1.total_cmp(&other.1));
        // Tokens of all texts that are not looked at yet, for each character that is left of them.
        let mut each: f64 = texts.iter().map(|(tokens, chars)| tokens / chars).sum();
        for (tokens, chars) in texts {
            if each * chars > left {
                return Some((left / each) as usize);
            }
            left -= tokens;
            each -= tokens / chars;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_results_are_cut_and_shorter_ones_stay_whole() {
        for (said, rest, results, most, chars) in [
            ("all fit", 100, &[(100, 400)][..], 200, None),
            ("one of one", 100, &[(1_000, 4_000)], 600, Some(2_000)),
            ("two of one size", 100, &[(1_000, 4_000), (1_000, 4_000)], 1_100, Some(2_000)),
            ("a short one stays", 100, &[(1_000, 4_000), (100, 400)], 700, Some(2_000)),
            ("the short one must go too", 100, &[(1_000, 4_000), (100, 400)], 150, Some(100)),
            ("nothing is left", 900, &[(1_000, 4_000)], 600, Some(0)),
            ("no results", 900, &[], 600, None),
        ] {
            let tokens = rest + results.iter().map(|(tokens, _)| tokens).sum::<u64>();
            let sizes = CutSizes { tokens, results: results.to_vec() };
            assert_eq!(sizes.most_chars(most), chars, "{said}");
        }
    }

    #[test]
    fn the_room_is_what_the_refusal_names_else_the_window_else_half_of_what_was_refused() {
        let named = |limit, sent| NamedLengths { limit, sent, counts_output: false };
        let room = |named, window| Room::after(named, 10_000, window, Some(1_000));
        assert_eq!(room(named(Some(8_000), None), None), Room { most: 6_000, cut_to: 6_000 });
        assert_eq!(room(named(Some(8_000), Some(10_000)), None), Room { most: 7_600, cut_to: 6_000 });
        assert_eq!(room(named(Some(8_000), Some(20_000)), None), Room { most: 3_800, cut_to: 3_000 });
        assert_eq!(room(named(None, None), Some(4_000)), Room { most: 3_000, cut_to: 3_000 });
        let half = Room { most: 5_000, cut_to: 5_000 };
        assert_eq!(room(named(None, None), None), half);
        assert_eq!(room(named(None, None), Some(128_000)), half, "a window in which it had room");
        let with_output = NamedLengths { counts_output: true, ..named(Some(9_000), Some(11_000)) };
        assert_eq!(room(with_output, None), Room { most: 7_600, cut_to: 6_000 });
        // 40,000 of the request are seen here as at most four times the estimate.
        assert_eq!(room(named(Some(64_000), Some(72_000)), None).cut_to, (48_000 - 32_000) / 4);
    }
}
