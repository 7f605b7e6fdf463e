//! The judge of calls, as the readers of replies need it: they say which call has come as far as what, and are told what
//! becomes of it. The exchange implements it with the policies.

use crate::conversation::assembled::Assembled;
use crate::plan::approval::{ApprovalDecision, HeldCall, Question, Unaskable};
use crate::plan::decision::{Decision, Known};

/// See the file's head. `choice` is the number of the choice that a call belongs to.
pub trait CallJudge: Send {
    /// Whether nothing may reach the client unjudged.
    fn is_strict(&self) -> bool;

    /// Whether everything is decided and nothing done.
    fn observes(&self) -> bool;

    /// Whether the model was asked for its final answer.
    fn is_landing(&self) -> bool;

    /// Whether nothing can follow the name of `call` as it is now: the request declares such a tool, and none whose name
    /// goes on from it.
    fn is_complete_name(&self, call: &Assembled) -> bool;

    /// Whether the name of `call`, which nobody objected to, is all that must be known of it.
    fn needs_name_alone(&mut self, choice: u32, call: &Assembled) -> bool;

    /// Blocks `call` if a policy objects to it by its name alone.
    fn block_by_name(&mut self, choice: u32, call: &Assembled, now_ms: u64) -> Option<Decision>;

    /// Whether a policy objects to a name under which a client may run `call`, which the client has seen in part;
    /// `renamed`: its own name is not the one that was judged.
    fn objects_to_new_name(&mut self, of: (u32, bool), call: &Assembled, now_ms: u64) -> bool;

    /// Decides on `call`, of which so much is known.
    fn decide(&mut self, choice: u32, call: &Assembled, known: Known, now_ms: u64) -> Decision;

    /// Lets a call through of which nobody can tell whether it may pass, but for want of an approval.
    fn release_unjudged(&mut self, choice: u32, call: &Assembled) -> Decision;

    /// The question for a person about `calls`.
    ///
    /// # Errors
    /// Why nobody can be asked.
    fn question(&self, calls: &[Assembled]) -> Result<Question, Unaskable>;

    /// What policies did to calls so far, by whom and in a word, in order.
    fn acts(&self) -> Vec<(&'static str, &'static str)>;

    /// The calls that wait for a person's decision.
    fn held(&self) -> Vec<&HeldCall>;

    /// Takes a person's decision on the call of this number: what becomes of it, `None` if it does not wait.
    fn settle(&mut self, id: u32, decision: ApprovalDecision) -> Option<Decision>;
}
