//! `[telemetry]`: which series the metrics have, and where traces go.

use super::traces::Traces;
use super::units::patterns;
use policies::pattern::{Pattern, any_fits};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `[telemetry]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Whether every tool has series of its own, up to a hundred tools.
    pub per_tool: bool,
    /// The tools that have series of their own in any case.
    #[serde(with = "patterns")]
    pub tools: Arc<[Pattern]>,
    /// The most callers with series and a row of their own, where callers are named; 0: they are not counted.
    pub callers: usize,
    /// Whether the metrics of the semantic conventions for generative AI are kept as well.
    pub gen_ai: bool,
    pub traces: Traces,
}

impl Default for Telemetry {
    /// As many callers as tools: four series each.
    fn default() -> Self {
        Self {
            per_tool: false,
            tools: Arc::default(),
            callers: 100,
            gen_ai: false,
            traces: Traces::default(),
        }
    }
}

impl Telemetry {
    /// Whether the tool `name` is one of those that have series of their own in any case.
    pub fn names(&self, name: &str) -> bool {
        any_fits(&self.tools, name)
    }
}
