//! Durations as an operator writes them: "60s", "5h". And the sliding window: which times are within such a duration
//! before now.

use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::time::Duration;

/// A duration, written with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

impl Period {
    /// In ms.
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Those of `times` (ms) that are within the window of this length that ends now, oldest first.
    pub fn inside(self, times: &[u64], now_ms: u64) -> Vec<u64> {
        let is_inside = |at: &u64| now_ms.saturating_sub(*at) < self.millis();
        let mut inside: Vec<u64> = times.iter().copied().filter(is_inside).collect();
        inside.sort_unstable();
        inside
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written).map(Self)
    }
}

/// Reads a duration with its unit.
struct Written;

impl de::Visitor<'_> for Written {
    type Value = Duration;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(r#"a duration such as "30s""#)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|_| {
            E::custom(format!(
                r#"expected a duration with its unit, such as "60s", "10m" or "1h", found {text:?}"#
            ))
        })
    }
}
