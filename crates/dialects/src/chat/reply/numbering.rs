//! The calls of a choice as the client has them: dense indexes, and calls that toolrein writes.

use crate::chat::approved::written;
use crate::reply_choice::{ReplyCall, ReplyChoice};

/// What the client has of one choice.
#[derive(Debug, Default)]
pub(super) struct ShownCalls {
    pub(super) index: u32,
    /// It has the role.
    pub(super) has_role: bool,
    /// For each call so far, its index at the client where that is not the upstream's.
    indexes: Vec<Option<u64>>,
    /// The index of the next call.
    next: u64,
    /// The client's indexes are no longer the upstream's.
    is_shifted: bool,
}

impl ShownCalls {
    pub(super) fn new(index: u32) -> Self {
        Self { index, ..Self::default() }
    }

    /// Another reply follows.
    pub(super) fn begin_next_reply(&mut self) {
        (self.indexes, self.next, self.is_shifted) = (Vec::new(), 0, false);
    }

    /// Gives the calls before `end` their indexes. From the first call on that the client does not see, or that has the
    /// index of one before it, each call gets the index after the one before it: dense where the upstream's are dense, and
    /// never one in use.
    pub(super) fn number_calls(&mut self, choice: &ReplyChoice, end: usize) {
        let calls = choice.calls();
        for (at, call) in calls.iter().enumerate().take(end).skip(self.indexes.len()) {
            self.indexes.push(None);
            if call.decision.is_none() {
                continue;
            }
            if !call.is_released() {
                self.is_shifted = true;
                continue;
            }
            let is_shared = |earlier: &ReplyCall| {
                earlier.is_released() && earlier.assembled.shares_index(&call.assembled)
            };
            self.is_shifted |= choice.is_streamed() && calls[..at].iter().any(is_shared);
            if self.is_shifted {
                self.indexes[at] = Some(self.next);
                self.next += 1;
            } else {
                self.next = self.next.max(call.assembled.index().unwrap_or(self.next) + 1);
            }
        }
    }

    /// The index that the client sees for the released call `at`, where that is not the upstream's.
    pub(super) fn index_of(&self, at: usize) -> Option<u64> {
        self.indexes.get(at).copied().flatten()
    }

    /// Whether any call goes out under another index than the upstream's.
    pub(super) fn renumbers(&self) -> bool {
        self.is_shifted
    }

    /// The call `at` as it was judged, or shown to a person, under its own id; `index` is the upstream's, if it gave
    /// one.
    pub(super) fn written_call(&self, choice: &ReplyChoice, at: usize, index: Option<u64>) -> String {
        let mut call = choice.calls()[at].assembled.clone();
        if let Some(signature) = signature_for(choice, at)
            && call.extra.iter().all(|(key, _)| key != b"extra_content")
        {
            call.extra.push((b"extra_content".to_vec(), signature.to_vec()));
        }
        let shifted = self.index_of(at).filter(|_| choice.is_streamed() || index.is_some());
        written(&call, &call.id(), shifted.or(index))
    }
}

/// The signature in the first call (Gemini signs the first call of each reply), if that is blocked and `at` is the
/// first one released: the upstream expects it there again.
pub(super) fn signature_for(choice: &ReplyChoice, at: usize) -> Option<&[u8]> {
    let calls = choice.calls();
    let is_first = at > 0 && !calls[..at].iter().any(ReplyCall::is_released);
    let first = calls.first().filter(|_| is_first)?;
    first.assembled.extra.iter().find(|(key, _)| key == b"extra_content").map(|(_, value)| value.as_slice())
}
