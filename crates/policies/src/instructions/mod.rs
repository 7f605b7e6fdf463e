//! The rules for instructions to a model in texts that do not come from its user: a scanner of one text, with a score and
//! the kinds of findings. Shared by policies; decides nothing.

mod candidates;
mod escapes;
mod fold;
mod languages;
mod lookalikes;
mod phrases;
mod rules;
mod scan;
mod structures;
mod window;

pub use rules::Kind;
pub use scan::{Findings, scan};

/// The score from which on a text is taken for one with instructions: one clear sign.
pub const SCORE: u32 = 3;
