//! Asking the upstream again within one client request: the rounds that the client does not see, how often it was
//! asked, and when the model is asked for its final answer. Counts and keeps; sends nothing.

use super::choice::ChoiceState;
use super::pass::Asking;
use bytes::Bytes;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Reasks {
    /// The hidden rounds of each choice, oldest first.
    rounds: Vec<(u32, Bytes)>,
    /// Of these, those for which tools of ours gave all the answers.
    served: u32,
}

impl Reasks {
    /// How often the upstream was asked again.
    pub fn count(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX)
    }

    /// Asks again for `choice`, all of whose calls were withheld in `round`; where that was done `most` times, for a
    /// final answer. Where tools of ours gave all the answers (`served`), the model may go on: these keep bounds of
    /// their own.
    pub fn again(&mut self, (choice, served): (u32, bool), round: Bytes, most: u32) -> Asking {
        let land = !served && self.count() - self.served >= most;
        self.rounds.push((choice, round));
        self.served += u32::from(served);
        Asking { rounds: self.of(choice), land }
    }

    /// All rounds that the client is not shown before what it is shown of `choice`, oldest first.
    pub fn hidden_behind(&self, choice: &ChoiceState) -> Vec<Bytes> {
        let mut rounds = self.of(choice.index);
        if !choice.is_wholly_withheld() {
            rounds.extend(choice.round());
        }
        rounds
    }

    fn of(&self, choice: u32) -> Vec<Bytes> {
        self.rounds.iter().filter(|(of, _)| *of == choice).map(|(_, round)| round.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_answer_is_asked_for_after_so_many_times_and_what_we_served_counts_for_none() {
        let mut reasks = Reasks::default();
        let mut lands = |served| reasks.again((0, served), Bytes::new(), 2).land;
        assert_eq!([false, true, false, true, false].map(&mut lands), [false, false, false, false, true]);
        assert_eq!(reasks.count(), 5);
    }

    #[test]
    fn each_choice_is_asked_again_with_its_own_rounds() {
        let mut reasks = Reasks::default();
        reasks.again((0, false), "a".into(), 3);
        reasks.again((1, false), "b".into(), 3);
        assert_eq!(reasks.again((0, false), "c".into(), 3).rounds, ["a", "c"]);
    }
}
