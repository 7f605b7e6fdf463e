//! The control group: what a turn costs in conversations that policies leave unchanged, beside all others, with the
//! interval within which the difference lies. Only of the conversations that are kept.

use super::conversations::Conversation;
use serde::Serialize;

/// Fewer conversations in a group say nothing.
const LEAST: usize = 10;
/// Standard deviations to each side of a normal distribution's mean that hold 95% of it.
const OF_95_PERCENT: f64 = 1.96;

/// The difference between the groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Conversations in each group.
    pub governed: usize,
    pub held_out: usize,
    /// The share of input tokens of a turn that governing saves, at most 1, negative where it costs; and its 95% interval.
    /// `None` where a group is too small.
    pub saved: Option<Interval>,
}

/// A share and its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub share: f64,
    pub low: f64,
    pub high: f64,
}

/// What one conversation has cost: its turns and the input tokens that were billed for them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) turns: u64,
    pub(super) tokens: u64,
}

/// Compares these conversations.
pub(super) fn comparison<'a>(conversations: impl Iterator<Item = &'a Conversation>) -> Comparison {
    let billed = conversations.filter(|one| one.cost.turns > 0 && one.cost.tokens > 0);
    let (held_out, governed): (Vec<_>, Vec<_>) = billed.partition(|one| one.is_held_out);
    let saved = if governed.len().min(held_out.len()) < LEAST { None } else { saved(&governed, &held_out) };
    Comparison { governed: governed.len(), held_out: held_out.len(), saved }
}

/// The delta method on the logarithm of the groups' ratio, which keeps the interval below 1.
fn saved(governed: &[&Conversation], held_out: &[&Conversation]) -> Option<Interval> {
    let (governed, held_out) = (PerTurn::of(governed), PerTurn::of(held_out));
    let ratio = governed.mean / held_out.mean;
    let half = OF_95_PERCENT * (governed.relative_variance + held_out.relative_variance).sqrt();
    let found =
        Interval { share: 1.0 - ratio, low: 1.0 - ratio * half.exp(), high: 1.0 - ratio * (-half).exp() };
    [found.share, found.low, found.high].iter().all(|share| share.is_finite()).then_some(found)
}

/// Tokens per turn in a group.
struct PerTurn {
    mean: f64,
    /// The variance of the mean, divided by its square.
    relative_variance: f64,
}

impl PerTurn {
    /// A ratio estimator: whole conversations are what is drawn into a group, so their turns are not independent.
    fn of(group: &[&Conversation]) -> Self {
        let sum = |count: fn(&Cost) -> u64| group.iter().map(|one| count(&one.cost) as f64).sum::<f64>();
        let (tokens, turns, size) = (sum(|cost| cost.tokens), sum(|cost| cost.turns), group.len() as f64);
        let mean = tokens / turns;
        let squares = group.iter().map(|one| (one.cost.tokens as f64 - mean * one.cost.turns as f64).powi(2));
        let variance = squares.sum::<f64>() * size / (size - 1.0) / turns.powi(2);
        Self { mean, relative_variance: variance / mean.powi(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conversations of three turns, whose tokens scatter by a tenth.
    fn group(size: u64, tokens_of_a_turn: u64, is_held_out: bool) -> Vec<Conversation> {
        let scattered = (0..size).map(|nth| tokens_of_a_turn * (95 + 10 * (nth % 2)) / 100);
        scattered
            .map(|tokens| Conversation {
                cost: Cost { turns: 3, tokens: 3 * tokens },
                is_held_out,
                ..Conversation::default()
            })
            .collect()
    }

    #[test]
    fn the_groups_are_compared_by_tokens_of_a_turn_with_an_interval_that_narrows() {
        let of = |size| {
            let all = [group(size, 700, false), group(size, 1_000, true)].concat();
            comparison(all.iter()).saved.unwrap()
        };
        let (few, many) = (of(10), of(1_000));
        for found in [few, many] {
            assert!((found.share - 0.3).abs() < 0.01, "{found:?}");
            assert!(found.low < found.share && found.share < found.high && found.high < 1.0, "{found:?}");
        }
        assert!(many.high - many.low < (few.high - few.low) / 5.0, "{few:?} {many:?}");
    }

    #[test]
    fn a_group_that_is_too_small_and_conversations_without_a_bill_say_nothing() {
        let all = [group(1_000, 700, false), group(9, 1_000, true), group(50, 0, true)].concat();
        assert_eq!(comparison(all.iter()), Comparison { governed: 1_000, held_out: 9, saved: None });
        assert_eq!(comparison([].iter()), Comparison::default());
    }

    #[test]
    fn governing_that_costs_more_is_a_negative_share() {
        let all = [group(20, 1_100, false), group(20, 1_000, true)].concat();
        let found = comparison(all.iter()).saved.unwrap();
        assert!(found.share < -0.05 && found.low < found.share, "{found:?}");
    }
}
