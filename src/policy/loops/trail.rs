//! The calls of a turn with their results, and whether they go round in circles: the same step again and again,
//! two or three steps in turn, or a reply of more parallel calls made over and over. Finds; what is too much is
//! the policy's to say.

use crate::conversation::identity::Hash;
use crate::conversation::outcome::Answer;
use crate::plan::work::step;
use std::collections::{HashMap, HashSet};

/// The longest circle over single steps.
const LONGEST: usize = 3;

/// One call and its result.
#[derive(Clone, Debug)]
pub struct Step {
    pub tool: String,
    /// The hash of its canonical arguments.
    pub arguments: Hash,
    pub answer: Answer,
    pub kind: Kind,
}

/// What a result amounts to, as far as it matters for advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Useful,
    Empty,
    Failed,
}

/// Steps that were made over and over, the newest last, and nothing in between.
#[derive(Clone, Copy, Debug)]
pub struct Circle<'a> {
    /// The steps of one round.
    pub steps: &'a [Step],
    /// How often they were all made in a row.
    pub rounds: usize,
}

/// The end of a turn's steps. A step is compared by call and result; results by their bytes, in the request that
/// holds them all.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// At most [`LONGEST`], the newest last.
    recent: Vec<Step>,
    /// For circles of 1, 2 and 3 steps.
    streaks: [Streak; LONGEST],
    /// The steps of the last reply, if it made more calls than the longest circle over single steps has.
    reply: Vec<Step>,
    /// The tools of its calls by their arguments.
    calls: HashMap<Hash, HashSet<String>>,
    replies: Streak,
}

/// How long something has repeated itself.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    /// Steps (replies) in a row that are equal to the one a round before.
    matched: usize,
    /// The rounds that the model was told of.
    told: usize,
}

impl Step {
    fn is_call(&self, tool: &str, arguments: Hash) -> bool {
        step();
        self.arguments == arguments && self.tool == tool
    }

    fn equals(&self, other: &Self, body: &[u8]) -> bool {
        self.is_call(&other.tool, other.arguments) && self.answer.equals(&other.answer, body)
    }
}

impl Circle<'_> {
    /// Whether a call is one of the circle's.
    pub fn has_call(&self, tool: &str, arguments: Hash) -> bool {
        self.steps.iter().any(|step| step.is_call(tool, arguments))
    }

    /// Whether any call of the circle is one of `tool`.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.steps.iter().any(|step| step.tool == tool)
    }
}

impl Trail {
    /// Forgets everything: what comes stands behind something that changes the world.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a call was made a moment ago, so that it may be part of a circle.
    pub fn knows(&self, tool: &str, arguments: Hash) -> bool {
        self.recent.iter().any(|step| step.is_call(tool, arguments))
            || self.calls.get(&arguments).is_some_and(|tools| tools.contains(tool))
    }

    /// Adds the steps of one reply, in the order of its calls. `body` holds the request.
    pub fn add_reply(&mut self, steps: Vec<Step>, body: &[u8]) {
        if steps.len() <= LONGEST {
            (self.reply, self.replies) = (Vec::new(), Streak::default());
            self.calls.clear();
            steps.into_iter().for_each(|step| self.add(step, body));
            return;
        }
        steps.iter().for_each(|step| self.add(step.clone(), body));
        let equal = steps.len() == self.reply.len()
            && std::iter::zip(&steps, &self.reply).all(|(step, before)| step.equals(before, body));
        self.replies.go_on(equal);
        self.calls.clear();
        for step in &steps {
            self.calls.entry(step.arguments).or_default().insert(step.tool.clone());
        }
        self.reply = steps;
    }

    /// The circles that the trail ends in with as many rounds as `enough` says for their length, the shortest first.
    pub fn circles(&self, enough: impl Fn(usize) -> usize) -> impl Iterator<Item = Circle<'_>> {
        let circles = (0..=LONGEST).map(|at| self.circle(at));
        circles.filter(move |circle| circle.rounds >= enough(circle.steps.len()))
    }

    /// The shortest circle with as many rounds as `enough` says for its length, where it was not told of yet or is
    /// to be told of `again` by its rounds and those when it last was. It counts as told. A longer circle that goes
    /// round with it is the same one.
    pub fn tell(
        &mut self,
        enough: impl Fn(usize) -> usize,
        again: impl Fn(usize, usize) -> bool,
    ) -> Option<Circle<'_>> {
        let at = (0..=LONGEST).find(|at| {
            let circle = self.circle(*at);
            circle.rounds >= enough(circle.steps.len())
        })?;
        let (rounds, told) = (self.circle(at).rounds, self.streak(at).told);
        if rounds == told || (told > 0 && !again(rounds, told)) {
            return None;
        }
        match self.streaks.get_mut(at) {
            Some(streak) => streak.told = rounds,
            None => self.replies.told = rounds,
        }
        Some(self.circle(at))
    }

    fn add(&mut self, step: Step, body: &[u8]) {
        for (at, streak) in self.streaks.iter_mut().enumerate() {
            let round_before = self.recent.len().checked_sub(at + 1).map(|place| &self.recent[place]);
            streak.go_on(round_before.is_some_and(|before| before.equals(&step, body)));
        }
        if self.recent.len() == LONGEST {
            self.recent.remove(0);
        }
        self.recent.push(step);
    }

    fn streak(&self, at: usize) -> Streak {
        self.streaks.get(at).copied().unwrap_or(self.replies)
    }

    /// The circle of `at + 1` steps, or, behind those, that of whole replies.
    fn circle(&self, at: usize) -> Circle<'_> {
        if at == LONGEST {
            return Circle { steps: &self.reply, rounds: self.replies.matched + 1 };
        }
        let length = at + 1;
        match self.recent.len().checked_sub(length) {
            Some(start) => {
                Circle { steps: &self.recent[start..], rounds: self.streaks[at].matched / length + 1 }
            }
            None => Circle { steps: &[], rounds: 0 },
        }
    }
}

impl Streak {
    fn go_on(&mut self, equal: bool) {
        *self = if equal { Self { matched: self.matched + 1, ..*self } } else { Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::work::assert_linear;

    #[test]
    fn to_know_the_calls_of_one_large_reply_takes_no_pass_over_them_for_each() {
        assert_linear(500, |calls| {
            let made = |nth: usize| Step {
                tool: "search".to_owned(),
                arguments: Hash(nth as u128),
                answer: Answer::default(),
                kind: Kind::Useful,
            };
            let mut trail = Trail::default();
            trail.add_reply((0..calls).map(made).collect(), b"");
            assert!((0..calls).all(|nth| trail.knows("search", Hash(nth as u128))));
            assert!(!trail.knows("search", Hash(u128::MAX)) && !trail.knows("other", Hash(0)));
        });
    }
}
