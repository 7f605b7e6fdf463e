//! Frames: lines of toolrein's that are put before and after a text. Plain data.

use std::sync::Arc;

/// Lines of ours before and after a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub before: Arc<str>,
    pub after: Arc<str>,
}

impl Frame {
    /// The frame of these two, whose line ends are theirs.
    pub fn new(before: &str, after: &str) -> Self {
        Self { before: before.into(), after: after.into() }
    }
}
