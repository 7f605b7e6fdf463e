//! `[reload]`: how a changed configuration is noticed.

use super::units::span;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[reload]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reload {
    /// How often the file is read, to load it when it has changed; zero: never.
    #[serde(with = "span")]
    pub watch: Duration,
}

impl Default for Reload {
    /// A mounted ConfigMap takes a minute to change; two seconds more are not felt.
    fn default() -> Self {
        Self { watch: Duration::from_secs(2) }
    }
}
