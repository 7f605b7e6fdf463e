//! The calls of a reply that wait, for a person's decision, for their time or for another model's answer, and what was
//! decided on earlier ones of the same client request. Holds data; waits for nothing and asks nobody.

use model::assembled::Assembled;
use model::identity::Hash;
use model::plan::approval::{ApprovalDecision, HeldCall};
use model::plan::{ModelQuestion, Reason};
use policies::set::longest_wait;

/// See the file's head.
#[derive(Default)]
pub(super) struct WaitingCalls {
    held: Vec<Waiting>,
    /// The calls that wait for another model's answer.
    asking: Vec<AskedCall>,
    /// The declined tools with their arguments and the person's words: these are not asked about twice.
    declined: Vec<(String, Hash, Option<String>)>,
    /// The person's words about the call of this number, before it is settled.
    words: Option<(u32, String)>,
    /// Why no person can be asked any more.
    silent: Option<ApprovalDecision>,
    /// No call waits for its time any more.
    hurries: bool,
    /// For how long the client has waited for calls whose time was to come, in ms, and until when it still does.
    waited_ms: u64,
    waits_until_ms: u64,
    /// The number of the next call that waits, for whatever reason.
    next: u32,
}

/// A call that waits for a person's decision, or for its time.
pub(super) struct Waiting {
    pub(super) call: HeldCall,
    pub(super) choice: u32,
    pub(super) arguments: Hash,
    /// The number of calls that limits had let through, this one included.
    pub(super) passed: usize,
    pub(super) objections: Vec<(&'static str, Reason)>,
    /// An earlier policy has corrected the arguments.
    pub(super) fixed: bool,
}

/// A call that waits for another model's answer.
pub(super) struct AskedCall {
    pub(super) id: u32,
    pub(super) choice: u32,
    pub(super) call: Assembled,
    /// The number of calls that limits had let through, this one included.
    pub(super) passed: usize,
    /// The policy that wants the answer.
    pub(super) policy: &'static str,
    pub(super) question: ModelQuestion,
    /// When it was judged first, and so is judged again.
    pub(super) now_ms: u64,
}

impl WaitingCalls {
    /// Adds the call that `waiting` makes of its number, and returns the number.
    pub(super) fn hold(&mut self, waiting: impl FnOnce(u32) -> Waiting) -> u32 {
        let id = self.number();
        self.held.push(waiting(id));
        id
    }

    /// As [`Self::hold`], for a call that waits for another model's answer.
    pub(super) fn ask(&mut self, asked: impl FnOnce(u32) -> AskedCall) -> u32 {
        let id = self.number();
        self.asking.push(asked(id));
        id
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// Removes the call of this number that waits for a decision or its time, if it does.
    pub(super) fn take(&mut self, id: u32) -> Option<Waiting> {
        let at = self.held.iter().position(|waiting| waiting.call.id == id)?;
        Some(self.held.remove(at))
    }

    /// Removes the call of this number that waits for another model's answer, if it does.
    pub(super) fn take_asked(&mut self, id: u32) -> Option<AskedCall> {
        let at = self.asking.iter().position(|asked| asked.id == id)?;
        Some(self.asking.remove(at))
    }

    /// The calls that wait for a person's decision or their time, in order.
    pub(super) fn held(&self) -> impl Iterator<Item = &HeldCall> {
        self.held.iter().map(|waiting| &waiting.call)
    }

    /// The calls that wait for another model's answer, in order.
    pub(super) fn asking(&self) -> &[AskedCall] {
        &self.asking
    }

    /// For how many ms a call may be held at `now_ms` until none of its `objections` holds any more. All calls of a client
    /// request together wait for `longest_ms` at most.
    pub(super) fn wait_for(
        &self,
        objections: &[(&'static str, Reason)],
        longest_ms: u64,
        now_ms: u64,
    ) -> Option<u64> {
        if longest_ms == 0 || self.hurries {
            return None;
        }
        let wait_ms = longest_wait(objections)?;
        let begins_ms = self.waits_until_ms.max(now_ms);
        let more_ms = now_ms.saturating_add(wait_ms).saturating_sub(begins_ms);
        (self.waited_ms.saturating_add(more_ms) <= longest_ms).then_some(wait_ms)
    }

    /// Counts that the client waits for so many ms from now on. Times that overlap count once.
    pub(super) fn count_wait(&mut self, wait_ms: u64, now_ms: u64) {
        let (begins_ms, at_ms) = (self.waits_until_ms.max(now_ms), now_ms.saturating_add(wait_ms));
        self.waited_ms += at_ms.saturating_sub(begins_ms);
        self.waits_until_ms = at_ms.max(begins_ms);
    }

    /// No call is to wait for its time any more: one could not wait so long.
    pub(super) fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Notes a person's words about the call of this number, which is settled next.
    pub(super) fn hear(&mut self, id: u32, words: Option<String>) {
        self.words = words.map(|words| (id, words));
    }

    /// Removes the words about the call of this number. Words about another call are lost.
    pub(super) fn take_words(&mut self, id: u32) -> Option<String> {
        self.words.take().filter(|(about, _)| *about == id).map(|(_, words)| words)
    }

    /// Notes that a person has declined a call.
    pub(super) fn decline(&mut self, tool: &str, arguments: Hash, words: Option<String>) {
        self.declined.push((tool.to_owned(), arguments, words));
    }

    /// Notes that no person can be asked any more.
    pub(super) fn silence(&mut self, why: ApprovalDecision) {
        self.silent = Some(why);
    }

    /// Why no person is asked about a call, with the words that were said: an equal one was declined, or nobody answers.
    pub(super) fn refused_before(
        &self,
        tool: &str,
        arguments: Hash,
    ) -> Option<(ApprovalDecision, Option<&str>)> {
        let declined = self.declined.iter().find(|(name, seen, _)| name == tool && *seen == arguments);
        let declined = declined.map(|(_, _, words)| (ApprovalDecision::Declined, words.as_deref()));
        declined.or(self.silent.map(|silent| (silent, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::ReasonKind;

    fn objection(wait_ms: u64) -> Vec<(&'static str, Reason)> {
        let reason = Reason::new(ReasonKind::RateLimit, "wait");
        vec![("rate_limit", Reason { wait_ms: Some(wait_ms), ..reason })]
    }

    #[test]
    fn calls_of_one_request_wait_together_no_longer_than_one_may_and_overlapping_times_count_once() {
        let mut waiting = WaitingCalls::default();
        assert_eq!(waiting.wait_for(&objection(600), 1_000, 0), Some(600));
        waiting.count_wait(600, 0);
        assert_eq!(waiting.wait_for(&objection(900), 1_000, 100), Some(900), "until 1,000, as the first 600");
        waiting.count_wait(900, 100);
        assert_eq!(waiting.wait_for(&objection(1), 1_000, 1_000), None, "all is used up");
        assert_eq!(WaitingCalls::default().wait_for(&objection(1), 0, 0), None, "none may wait");
    }

    #[test]
    fn once_a_call_could_not_wait_none_does() {
        let mut waiting = WaitingCalls::default();
        waiting.hurry();
        assert_eq!(waiting.wait_for(&objection(1), 1_000, 0), None);
    }

    #[test]
    fn a_declined_call_is_refused_with_the_words_and_others_only_where_nobody_answers() {
        let mut waiting = WaitingCalls::default();
        waiting.hear(3, Some("not today".to_owned()));
        assert_eq!(waiting.take_words(2), None, "they are about another call");
        waiting.hear(3, Some("not today".to_owned()));
        let words = waiting.take_words(3);
        waiting.decline("pay", Hash(1), words);
        assert_eq!(
            waiting.refused_before("pay", Hash(1)),
            Some((ApprovalDecision::Declined, Some("not today")))
        );
        assert_eq!(waiting.refused_before("pay", Hash(2)), None);
        waiting.silence(ApprovalDecision::Expired);
        assert_eq!(waiting.refused_before("pay", Hash(2)), Some((ApprovalDecision::Expired, None)));
    }
}
