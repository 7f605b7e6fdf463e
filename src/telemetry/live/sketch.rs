//! A bounded sketch of a distribution: its percentiles are exact while it has few values, and then within 2% (DDSketch).

use serde::Serialize;
use sketches_ddsketch::{Config, DDSketch};

/// The greatest relative error of a percentile.
const ERROR: f64 = 0.02;
/// Bins, each of 8 bytes: from the least value to a thousand million times as much.
const BINS: u32 = 512;
/// Values below count as zero.
const LEAST: f64 = 1e-6;

/// The most values whose percentiles are exact: with more of them P99 is a value among others.
const MOST_EXACT: usize = 200;

/// See the module's documentation.
pub(super) struct Sketch {
    /// All values so far, while they are few.
    few: Vec<f64>,
    all: DDSketch,
}

/// Percentiles; null where nothing was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { few: Vec::new(), all: DDSketch::new(Config::new(ERROR, BINS, LEAST)) }
    }
}

impl Sketch {
    pub(super) fn add(&mut self, value: f64) {
        self.all.add(value);
        if self.all.count() <= MOST_EXACT {
            self.few.push(value);
        } else {
            self.few = Vec::new();
        }
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let mut few = self.few.clone();
        few.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| match few.is_empty() {
            // The least value that so large a share of all values does not exceed.
            false => {
                few.get(((few.len() as f64 * share).ceil() as usize).max(1) - 1).copied().map(to_millionths)
            }
            true => self.all.quantile(share).ok().flatten().map(three_digits),
        };
        Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    }
}

/// Without the digits that only the arithmetic of floating-point numbers adds.
fn to_millionths(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// More digits would be of no value.
fn three_digits(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(2 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_few_values_are_values_that_occurred() {
        let of = |values: &[f64]| {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value));
            let Percentiles { p50, p95, p99 } = sketch.percentiles();
            [p50, p95, p99].map(Option::unwrap)
        };
        for (values, expected) in [
            (&[400.0, 900.0, 1_500.0][..], [900.0, 1_500.0, 1_500.0]),
            (&[1_500.0, 400.0, 900.0], [900.0, 1_500.0, 1_500.0]),
            (&[7.0], [7.0, 7.0, 7.0]),
            (&[0.0, 0.0], [0.0, 0.0, 0.0]),
            (&[1_234.0, 5_678_901.0], [1_234.0, 5_678_901.0, 5_678_901.0]),
            (&[0.1 + 0.2], [0.3, 0.3, 0.3]),
        ] {
            assert_eq!(of(values), expected, "{values:?}");
        }
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(of(&hundred), [50.0, 95.0, 99.0]);
    }

    #[test]
    fn percentiles_are_within_a_few_percent_and_null_without_values() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.percentiles(), Percentiles::default());
        (1..=1_000).for_each(|value| sketch.add(f64::from(value)));
        let Percentiles { p50, p95, p99 } = sketch.percentiles();
        for (found, expected) in [(p50, 500.0), (p95, 950.0), (p99, 990.0)] {
            assert!((found.unwrap() / expected - 1.0).abs() < 0.03, "{found:?} {expected}");
        }
        assert_eq!([0.0, 0.012_345, 1_234.5].map(three_digits), [0.0, 0.012_3, 1_230.0]);
    }
}
