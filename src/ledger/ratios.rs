//! What one model's provider bills for an estimated token, learned from `usage`: a rate for messages and one for
//! tools, each the median over the last conversations. Knows no model's name and keeps no text.

use crate::transcript::identity::Hash;
use crate::transcript::prompt::{Ratio, Size};
use std::collections::VecDeque;

/// Conversations that the medians are taken over. Each counts once, however long it is.
const MOST: usize = 32;
/// Smaller prompts are mostly constants of the provider's.
const SMALL_PROMPT: u64 = 200;
/// Estimated tokens by which a conversation must have grown to tell a rate, and tools must have.
const TELLING: f64 = 100.0;
/// No tokeniser bills less or more than this; what does is an image, a cut history, or a mistake.
const BELIEVED: (f64, f64) = (0.25, 4.0);

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub struct Ratios {
    /// The oldest first.
    conversations: VecDeque<Seen>,
    ratio: Option<Ratio>,
}

/// What one conversation told.
#[derive(Clone, Copy, Debug)]
struct Seen {
    conversation: Hash,
    tools: f64,
    /// See [`Size::sampled`].
    sampled: bool,
    /// Estimated messages and billed prompt of its first request and of its last.
    first: (f64, f64),
    last: (f64, f64),
}

impl Ratios {
    /// Learns that a request of `conversation` with a prompt of `size` was billed as `prompt` tokens.
    pub fn learn(&mut self, conversation: Hash, size: Size, prompt: u64) {
        if prompt < SMALL_PROMPT {
            return;
        }
        let tools = tokens(size.tools.hundredths());
        let now = (tokens(size.messages.hundredths()), prompt as f64);
        let known = self.conversations.iter().position(|seen| seen.conversation == conversation);
        let known = known.and_then(|at| self.conversations.remove(at));
        // Grown from where it was, with the tools that it had: else it begins anew.
        let alike = known.filter(|seen| seen.tools == tools && seen.sampled == size.sampled);
        let grown = alike.filter(|seen| seen.last.0 <= now.0 && seen.last.1 <= now.1);
        let first = grown.map_or(now, |seen| seen.first);
        self.conversations.push_back(Seen { conversation, tools, sampled: size.sampled, first, last: now });
        if self.conversations.len() > MOST {
            self.conversations.pop_front();
        }
        self.ratio = Some(self.medians());
    }

    /// The rates; `None` as long as nothing was learned.
    pub fn ratio(&self) -> Option<Ratio> {
        self.ratio
    }

    fn medians(&self) -> Ratio {
        let seen = self.conversations.iter();
        let grown = seen.clone().filter(|seen| seen.last.0 - seen.first.0 >= TELLING);
        let slopes = grown.map(|seen| (seen.last.1 - seen.first.1) / (seen.last.0 - seen.first.0));
        let Some(messages) = median(slopes) else {
            // No conversation has grown yet: one rate for everything.
            let whole = median(seen.map(|seen| seen.last.1 / (seen.tools + seen.last.0).max(1.0)));
            let whole = fixed(whole.unwrap_or(1.0).clamp(BELIEVED.0, BELIEVED.1));
            return Ratio { tools: whole, messages: whole };
        };
        let messages = messages.clamp(BELIEVED.0, BELIEVED.1);
        // What is off in a sample of the messages may well be as much as the tools.
        let with_tools = seen.filter(|seen| seen.tools >= TELLING && !seen.sampled);
        let tools = median(with_tools.map(|seen| (seen.last.1 - messages * seen.last.0) / seen.tools));
        Ratio { tools: fixed(tools.unwrap_or(messages).clamp(0.0, BELIEVED.1)), messages: fixed(messages) }
    }
}

fn tokens(hundredths: u64) -> f64 {
    hundredths as f64 / 100.0
}

/// In range, so the cast is exact.
fn fixed(rate: f64) -> u32 {
    (rate * f64::from(Ratio::WHOLE)).round() as u32
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::tokens::Estimate;

    fn learn(ratios: &mut Ratios, conversation: u128, (tools, messages): (u32, u32), prompt: u64) {
        let (tools, messages) = (Estimate::of_tokens(tools), Estimate::of_tokens(messages));
        ratios.learn(Hash(conversation), Size { tools, messages, sampled: false }, prompt);
    }

    fn rates(ratios: &Ratios) -> (u32, u32) {
        let ratio = ratios.ratio().unwrap();
        (ratio.tools, ratio.messages)
    }

    #[test]
    fn messages_and_tools_have_rates_of_their_own_once_conversations_grow() {
        let mut ratios = Ratios::default();
        assert_eq!(ratios.ratio(), None);
        // 0.6 for tools, 1.2 for messages.
        for conversation in 0..3 {
            learn(&mut ratios, conversation, (1_000, 1_000), 1_800);
        }
        assert_eq!(rates(&ratios), (9_000, 9_000), "nothing has grown yet");
        for conversation in 0..3 {
            learn(&mut ratios, conversation, (1_000, 3_000), 4_200);
        }
        assert_eq!(rates(&ratios), (6_000, 12_000));
    }

    #[test]
    fn a_sampled_conversation_tells_what_its_growth_costs_and_nothing_of_tools() {
        let mut ratios = Ratios::default();
        for (messages, prompt) in [(9_000, 11_000), (10_000, 12_200)] {
            let (tools, messages) = (Estimate::of_tokens(1_000), Estimate::of_tokens(messages));
            ratios.learn(Hash(1), Size { tools, messages, sampled: true }, prompt);
        }
        assert_eq!(rates(&ratios), (12_000, 12_000));
        learn(&mut ratios, 2, (1_000, 1_000), 1_800);
        assert_eq!(rates(&ratios), (6_000, 12_000));
    }

    #[test]
    fn one_odd_conversation_changes_little_however_long_it_is() {
        let mut ratios = Ratios::default();
        for conversation in 0..5 {
            learn(&mut ratios, conversation, (0, 1_000), 1_000);
            learn(&mut ratios, conversation, (0, 2_000), 2_000);
        }
        for step in 1..100 {
            learn(&mut ratios, 99, (0, 1_000 * step), 9_000 * u64::from(step));
        }
        assert_eq!(rates(&ratios), (10_000, 10_000));
    }

    #[test]
    fn tiny_prompts_and_shrunken_histories_tell_nothing_of_growth() {
        let mut ratios = Ratios::default();
        learn(&mut ratios, 1, (0, 10), 199);
        assert_eq!(ratios.ratio(), None);
        learn(&mut ratios, 1, (0, 8_000), 8_000);
        learn(&mut ratios, 1, (0, 2_000), 2_000);
        learn(&mut ratios, 1, (0, 4_000), 5_000);
        assert_eq!(rates(&ratios).1, 15_000, "measured from where it was cut");
    }

    #[test]
    fn rates_beyond_belief_are_bounded_and_old_conversations_forgotten() {
        let mut ratios = Ratios::default();
        for conversation in 0..100 {
            learn(&mut ratios, conversation, (0, 100), 100_000);
        }
        assert_eq!(rates(&ratios), (40_000, 40_000));
        assert_eq!(ratios.conversations.len(), MOST);
    }
}
