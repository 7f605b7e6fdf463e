//! The tools that may be called, for policies that name other tools to the model. Asks every policy; says nothing of
//! limits, which open again.

use super::Folds;
use model::plan::{CallResults, OpenTools, Proposed, Verdict};

/// Whether no policy closes the tool `name`, whatever its arguments are.
pub(super) fn is_open(folds: &Folds, name: &str, now_ms: u64) -> bool {
    let (results, open) = (&CallResults::default(), OpenTools::all());
    let call = Proposed { name, arguments: None, arguments_hash: None, now_ms, results, open };
    !folds.iter().any(|fold| matches!(fold.judge(&call), Verdict::Block(reason) if reason.closes_tool()))
}
