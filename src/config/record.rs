//! `[record]`: what is recorded of governed requests, where, and for how long.

use super::units::{share, size, span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// The directory of the recordings; empty: nothing is recorded. A relative path starts at the working directory.
    pub dir: PathBuf,
    /// The share of conversations that are recorded, in ten-thousandths; written as a share.
    #[serde(with = "share")]
    pub sample: u32,
    /// Requests, replies and arguments are recorded too.
    pub bodies: bool,
    /// The kinds of values that are replaced by placeholders, as in the policy `redact`.
    pub redact: Vec<String>,
    /// Further patterns of such values by name, as in the policy `redact`.
    pub patterns: BTreeMap<String, String>,
    /// A file that reaches this size is followed by another one.
    #[serde(with = "size")]
    pub file_bytes: u64,
    /// The size of all files together.
    #[serde(with = "size")]
    pub total_bytes: u64,
    /// Nothing is kept for longer; zero: no bound.
    #[serde(with = "span")]
    pub max_age: Duration,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            dir: PathBuf::new(),
            sample: 10_000,
            bodies: true,
            redact: ["secret", "card", "iban", "email", "phone"].map(str::to_owned).to_vec(),
            patterns: BTreeMap::new(),
            file_bytes: 64 << 20,
            total_bytes: 1 << 30,
            max_age: Duration::from_secs(7 * 24 * 3_600),
        }
    }
}

impl Record {
    /// The directory, where one is configured.
    pub fn path(&self) -> Option<&Path> {
        (!self.dir.as_os_str().is_empty()).then_some(&self.dir)
    }
}
