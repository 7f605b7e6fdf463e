//! The interface of the tool call judge: reply readers report how much of a call has come, and receive the decision on
//! it. The exchange implements it with the policies.

use crate::dialect::markup::ToolNames;
use bytes::Bytes;
use model::assembled::Assembled;
use model::plan::approval::{ApprovalDecision, HeldCall, Question, Unasked};
use model::plan::decision::{Decision, Known};
use std::sync::Arc;
use wire::sse::write_comment;

/// What the comment says that keeps the client of a stream waiting.
pub const WAITS: &str = "toolrein waits";

/// See the file's head. `choice` is the number of the choice that a call belongs to.
pub trait CallJudge: Send {
    /// Whether nothing may reach the client unjudged.
    fn is_strict(&self) -> bool;

    /// Whether observe mode is on: everything is decided and nothing changed.
    fn observes(&self) -> bool;

    /// Whether the model was asked for its final answer.
    fn is_landing(&self) -> bool;

    /// Whether the request declares a tool of this name.
    fn declares(&self, name: &str) -> bool;

    /// Whether a call of the conversation before this reply has this id. `false` where the upstream keeps the conversation: it
    /// knows its calls by their own ids.
    fn has_call_id(&self, id: &str) -> bool;

    /// The tools whose calls the model may write: those that are declared, and those that it has called.
    fn known_tools(&self) -> ToolNames;

    /// Whether the request declares no shell that the client runs.
    fn hosts_shell(&self) -> bool;

    /// Whether nothing can follow the name of `call` as it is now: the request declares such a tool, and none whose
    /// name goes on from it.
    fn is_complete_name(&self, call: &Assembled) -> bool;

    /// Whether the name of `call`, to which no policy objected, is enough to decide on it.
    fn needs_name_alone(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> bool;

    /// Blocks `call` if a policy objects to it by its name alone.
    fn block_by_name(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> Option<Decision>;

    /// Whether a policy objects to a name under which a client may run `call`, which the client has seen in part;
    /// `renamed`: its own name is not the one that was judged.
    fn objects_to_new_name(&mut self, choice: u32, renamed: bool, call: &Assembled, now_ms: u64) -> bool;

    /// Decides on `call`; `known` says how much of it has come.
    fn decide(&mut self, choice: u32, call: &Assembled, known: Known, now_ms: u64) -> Decision;

    /// Lets a call through that could not be judged, unless it needs an approval.
    fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision;

    /// The question for a person about `calls`. `before`: the text before it in the same message, as the client has it.
    ///
    /// # Errors
    /// Why no person can be asked.
    fn question(&self, calls: &[Assembled], before: &str) -> Result<Question, Unasked>;

    /// What acted on the reply so far, in the spelling of the header `x-toolrein-actions`; `None` where nothing did.
    fn actions(&self) -> Option<String>;

    /// The calls that wait: for a person's decision, or until a limit allows them.
    fn held(&self) -> Vec<&HeldCall>;

    /// The numbers of the calls that wait for another model's answer.
    fn asking(&self) -> Vec<u32>;

    /// Takes the answer that the call of this number waits for, `None` where there is none, and returns what happens to
    /// it, which may be to wait again; `None` if it does not wait.
    fn answered(&mut self, id: u32, answer: Option<Arc<str>>) -> Option<Decision>;

    /// Takes the decision on the waiting call of this number and returns what happens to it; `None` if it does not wait.
    fn settle(&mut self, id: u32, decision: ApprovalDecision) -> Option<Decision>;
}

/// Settles all waiting calls, about which nobody can be asked: by their numbers, what happens to each, in order.
pub fn settle_all(judging: &mut impl CallJudge) -> Vec<(u32, Decision)> {
    let mut settled = Vec::new();
    for id in judging.asking() {
        settled.extend(judging.answered(id, None).map(|decision| (id, decision)));
    }
    // The calls that now wait for a person are included.
    let held: Vec<u32> = judging.held().iter().map(|call| call.id).collect();
    for id in held {
        settled.extend(judging.settle(id, ApprovalDecision::Unasked).map(|decision| (id, decision)));
    }
    settled
}

/// One comment of a stream that reports what acted on the reply; `None` where nothing did, or nothing may be changed.
pub fn remark(judging: &impl CallJudge) -> Option<Bytes> {
    let actions = judging.actions().filter(|_| !judging.observes())?;
    Some(write_comment(&format!("toolrein {actions}")))
}
