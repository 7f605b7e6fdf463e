//! A bounded sketch of a distribution (DDSketch), which gives its percentiles within 2%.

use serde::Serialize;
use sketches_ddsketch::{Config, DDSketch};

/// The greatest relative error of a percentile.
const ERROR: f64 = 0.02;
/// Bins, each of 8 bytes: from the least value to a thousand million times as much.
const BINS: u32 = 512;
/// Values below count as zero.
const LEAST: f64 = 1e-6;

/// See the module's documentation.
pub(super) struct Sketch(DDSketch);

/// Percentiles; null where nothing was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self(DDSketch::new(Config::new(ERROR, BINS, LEAST)))
    }
}

impl Sketch {
    pub(super) fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let at = |share| self.0.quantile(share).ok().flatten().map(three_digits);
        Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
    }
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
