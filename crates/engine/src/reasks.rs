//! Re-asks within one client request: the hidden exchanges, how often the upstream was asked again, and when the
//! final-answer request is due. Counts and keeps; sends nothing.

use crate::pipeline::ClientChoice;
use bytes::Bytes;
use dialects::variant::Asking;
use model::plan::decision::Next;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Reasks {
    /// The hidden exchanges of each choice, oldest first.
    rounds: Vec<(u32, Bytes)>,
    /// How many of these toolrein's own tools answered completely.
    served: u32,
}

impl Reasks {
    /// How often the upstream was asked again.
    pub fn count(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX)
    }

    /// The bytes of what was hidden.
    pub fn bytes(&self) -> usize {
        self.rounds.iter().map(|(_, round)| round.len()).sum()
    }

    /// Asks again for `choice`, whose calls were all blocked in the hidden exchange `round`, for what is `next`; after
    /// `most` times, for a final answer.
    pub fn again(&mut self, choice: u32, next: Next, round: Bytes, most: u32) -> Asking {
        let land = match next {
            Next::OtherCalls => self.count() - self.served >= most,
            Next::Served => false,
            Next::FinalAnswer => true,
        };
        self.rounds.push((choice, round));
        self.served += u32::from(next == Next::Served);
        Asking { rounds: self.of(choice), land }
    }

    /// Writes every hidden exchange anew.
    pub fn rewrite(&mut self, write: impl Fn(&Bytes) -> Bytes) {
        for (_, round) in &mut self.rounds {
            *round = write(round);
        }
    }

    /// All hidden exchanges before what the client is shown of `choice`, oldest first.
    pub fn hidden_before(&self, choice: &ClientChoice<'_>) -> Vec<Bytes> {
        let mut rounds = self.of(choice.index());
        if !choice.is_wholly_blocked() {
            rounds.extend(choice.hidden_exchange());
        }
        rounds
    }

    /// The hidden exchanges, each with the number of its choice, oldest first.
    pub fn hidden(&self) -> &[(u32, Bytes)] {
        &self.rounds
    }

    fn of(&self, choice: u32) -> Vec<Bytes> {
        self.rounds.iter().filter(|(of, _)| *of == choice).map(|(_, round)| round.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_answer_is_requested_after_the_re_ask_limit_not_counting_served_calls() {
        let mut reasks = Reasks::default();
        let mut lands = |next| reasks.again(0, next, Bytes::new(), 2).land;
        let (calls, served) = (Next::OtherCalls, Next::Served);
        let nexts = [calls, served, calls, served, calls];
        assert_eq!(nexts.map(&mut lands), [false, false, false, false, true]);
        assert_eq!(reasks.count(), 5);
    }

    #[test]
    fn a_final_answer_is_asked_for_at_once_where_no_call_of_the_turn_would_run() {
        assert!(Reasks::default().again(0, Next::FinalAnswer, Bytes::new(), 2).land);
    }

    #[test]
    fn each_choice_is_asked_again_with_its_own_rounds() {
        let mut reasks = Reasks::default();
        reasks.again(0, Next::OtherCalls, "a".into(), 3);
        reasks.again(1, Next::OtherCalls, "b".into(), 3);
        assert_eq!(reasks.again(0, Next::OtherCalls, "c".into(), 3).rounds, ["a", "c"]);
    }
}
