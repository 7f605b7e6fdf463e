//! Calls of a stream that wait for a person's word: what the word lets go, and what becomes of them where nobody can be
//! asked any more. Whose word it is and how long it may take is the shell's affair.

use super::StreamJudge;
use crate::rewrite::choice::ChoiceState;
use crate::rewrite::confirm::held::Word;
use bytes::Bytes;

impl StreamJudge {
    /// Learns the word on a call that waited for one, and gives out what waited for it.
    pub fn settle(&mut self, id: u32, word: Word, out: &mut Vec<Bytes>) {
        self.settle_one(id, word);
        self.drain(out);
    }

    /// Whether calls wait for a person's word.
    pub fn is_waiting(&self) -> bool {
        self.choices.iter().any(ChoiceState::is_waiting)
    }

    /// Nobody can be asked about what waits.
    pub(super) fn settle_all(&mut self) {
        let ids: Vec<u32> = self.judging.held().map(|call| call.id).collect();
        ids.into_iter().for_each(|id| self.settle_one(id, Word::Unasked));
    }

    fn settle_one(&mut self, id: u32, word: Word) {
        if let Some(decision) = self.judging.settle(id, word) {
            self.choices.iter_mut().for_each(|state| state.settle(id, &decision));
        }
    }
}

#[cfg(test)]
mod tests;
