//! The calls of a turn with their results, and the cycles in them: the same step again and again, two or three steps
//! in turn, or a reply of more parallel calls made over and over. Finds cycles; what is too much is for the policy to
//! decide.

use super::near::{Worded, Words};
use crate::conversation::identity::Hash;
use crate::conversation::outcome::{Answer, Likeness};
use crate::plan::work::step;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The longest cycle over single steps.
const LONGEST: usize = 3;

/// One call and its result.
#[derive(Clone, Debug)]
pub struct Step {
    pub tool: String,
    /// The hash of its canonical arguments.
    pub arguments: Hash,
    /// Its arguments as they are written, to be compared by their words.
    pub text: Option<Arc<Worded>>,
    pub answer: Answer,
    pub kind: Kind,
}

/// A call that is compared with those of a cycle.
#[derive(Debug)]
pub struct Next<'a> {
    pub tool: &'a str,
    pub arguments: Option<Hash>,
    text: Option<&'a str>,
    words: OnceCell<Option<Words>>,
}

impl<'a> Next<'a> {
    /// A call of `tool`; `arguments` and `text`: the hash of its arguments and their text, where they are known.
    pub fn new(tool: &'a str, arguments: Option<Hash>, text: Option<&'a str>) -> Self {
        Self { tool, arguments, text, words: OnceCell::new() }
    }

    fn words(&self) -> Option<&Words> {
        self.words.get_or_init(|| self.text.and_then(Words::of)).as_ref()
    }
}

/// How equal the arguments of repeated calls are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arguments {
    #[default]
    Equal,
    /// The same words and numbers, in another order, case or punctuation.
    Near,
    Other,
}

/// How steps repeat: what is least equal of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    pub arguments: Arguments,
    pub results: Likeness,
}

impl Default for Manner {
    fn default() -> Self {
        Self { arguments: Arguments::Equal, results: Likeness::Equal }
    }
}

impl Manner {
    /// What a repetition of this kind counts, in halves.
    fn halves(self) -> usize {
        let is_weak = self.arguments == Arguments::Other || self.results == Likeness::ButForNumbers;
        if is_weak { 1 } else { 2 }
    }

    fn or(self, other: Self) -> Self {
        Self { arguments: self.arguments.max(other.arguments), results: self.results.min(other.results) }
    }
}

/// The shortest result, in bytes, that makes calls with nearly equal arguments equal: a shorter one may only confirm.
const CONFIRMATION: usize = 24;
/// The same for calls with other arguments: many actions and errors have one text of a line.
const SUBSTANCE: usize = 200;

/// The kind of a result, as far as it matters for advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Useful,
    Empty,
    Failed,
}

/// Steps that were repeated, the newest last, with nothing in between.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The steps of one round.
    pub steps: &'a [Step],
    /// How often all of them were made in a row, where weak repetitions count half.
    pub rounds: usize,
    /// The same, each counted once.
    pub made: usize,
    pub manner: Manner,
}

/// The end of a turn's steps. A step is compared by call and result; results by their bytes, in the request that
/// holds them all.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// At most [`LONGEST`], the newest last.
    recent: Vec<Step>,
    /// For cycles of 1, 2 and 3 steps.
    streaks: [Streak; LONGEST],
    /// The steps of the last reply, if it made more calls than the longest cycle over single steps has.
    reply: Vec<Step>,
    /// The tools of its calls by their arguments.
    calls: HashMap<Hash, HashSet<String>>,
    replies: Streak,
}

/// How long something has repeated.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    /// Steps (replies) in a row that are equal to the one a round before.
    matched: usize,
    /// What they count, in halves.
    halves: usize,
    manner: Manner,
    /// The rounds at the last notice.
    noticed: usize,
}

impl Step {
    fn is_call(&self, tool: &str, arguments: Hash) -> bool {
        step();
        self.arguments == arguments && self.tool == tool
    }

    fn is_near(&self, other: Option<&Words>) -> bool {
        self.text.as_ref().is_some_and(|text| text.is_near(other))
    }

    /// How this step repeats the step `before`, if it does.
    fn repeats(&self, before: &Self, body: &[u8]) -> Option<Manner> {
        step();
        if self.tool != before.tool {
            return None;
        }
        let results = self.answer.likeness(&before.answer, body);
        let arguments = match results {
            Likeness::None => return None,
            _ if self.arguments == before.arguments => Arguments::Equal,
            Likeness::ButForNumbers => return None,
            _ if self.answer.bytes() >= CONFIRMATION
                && self.is_near(before.text.as_deref().and_then(Worded::words)) =>
            {
                Arguments::Near
            }
            Likeness::Equal if self.answer.bytes() >= SUBSTANCE => Arguments::Other,
            _ => return None,
        };
        Some(Manner { arguments, results })
    }
}

impl Cycle<'_> {
    /// Whether a call goes on with the cycle. Arguments that are not known are no arguments of it.
    pub fn goes_on(&self, next: &Next<'_>) -> bool {
        self.steps.iter().filter(|step| step.tool == next.tool).any(|step| match self.manner.arguments {
            Arguments::Other => true,
            _ if next.arguments.is_some_and(|arguments| step.is_call(next.tool, arguments)) => true,
            Arguments::Near => step.is_near(next.words()),
            Arguments::Equal => false,
        })
    }

    /// Whether any call of the cycle is one of `tool`.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.steps.iter().any(|step| step.tool == tool)
    }
}

impl Trail {
    /// Forgets everything: what comes is after something that changes the world.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a call was made recently, so that it may be part of a cycle.
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
        let manners = std::iter::zip(&steps, &self.reply).map(|(step, before)| step.repeats(before, body));
        let manner = manners.reduce(|all, one| Some(all?.or(one?))).flatten();
        self.replies.go_on(manner.filter(|_| steps.len() == self.reply.len()));
        self.calls.clear();
        for step in &steps {
            self.calls.entry(step.arguments).or_default().insert(step.tool.clone());
        }
        self.reply = steps;
    }

    /// The cycles at the end of the trail with as many rounds as `enough` says for their length, the shortest first.
    pub fn cycles(&self, enough: impl Fn(usize) -> usize) -> impl Iterator<Item = Cycle<'_>> {
        let cycles = (0..=LONGEST).map(|at| self.cycle(at));
        cycles.filter(move |cycle| cycle.rounds >= enough(cycle.steps.len()))
    }

    /// The shortest cycle with as many rounds as `enough` says for its length, if it had no notice yet or if `again`
    /// says so by its rounds and those at its last notice. It counts as noticed. A longer cycle over the same rounds
    /// is the same one.
    pub fn tell(
        &mut self,
        enough: impl Fn(usize) -> usize,
        again: impl Fn(usize, usize) -> bool,
    ) -> Option<Cycle<'_>> {
        let at = (0..=LONGEST).find(|at| {
            let cycle = self.cycle(*at);
            cycle.rounds >= enough(cycle.steps.len())
        })?;
        let (rounds, noticed) = (self.cycle(at).rounds, self.streak(at).noticed);
        if rounds == noticed || (noticed > 0 && !again(rounds, noticed)) {
            return None;
        }
        match self.streaks.get_mut(at) {
            Some(streak) => streak.noticed = rounds,
            None => self.replies.noticed = rounds,
        }
        Some(self.cycle(at))
    }

    fn add(&mut self, step: Step, body: &[u8]) {
        for (at, streak) in self.streaks.iter_mut().enumerate() {
            let round_before = self.recent.len().checked_sub(at + 1).map(|place| &self.recent[place]);
            streak.go_on(round_before.and_then(|before| step.repeats(before, body)));
        }
        if self.recent.len() == LONGEST {
            self.recent.remove(0);
        }
        self.recent.push(step);
    }

    fn streak(&self, at: usize) -> Streak {
        self.streaks.get(at).copied().unwrap_or(self.replies)
    }

    /// The cycle of `at + 1` steps, or, beyond those, that of whole replies.
    fn cycle(&self, at: usize) -> Cycle<'_> {
        if at == LONGEST {
            return self.replies.cycle(&self.reply, 1);
        }
        let length = at + 1;
        match self.recent.len().checked_sub(length) {
            Some(start) => self.streaks[at].cycle(&self.recent[start..], length),
            None => Cycle { steps: &[], rounds: 0, made: 0, manner: Manner::default() },
        }
    }
}

impl Streak {
    fn go_on(&mut self, manner: Option<Manner>) {
        let Some(manner) = manner else {
            *self = Self::default();
            return;
        };
        self.matched += 1;
        self.halves += manner.halves();
        self.manner = self.manner.or(manner);
    }

    /// The cycle over `steps`, whose round is as long as so many of what this counts.
    fn cycle(self, steps: &[Step], length: usize) -> Cycle<'_> {
        let (rounds, made) = (self.halves / 2 / length + 1, self.matched / length + 1);
        Cycle { steps, rounds, made, manner: self.manner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::work::assert_linear;

    #[test]
    fn looking_up_many_calls_of_one_reply_takes_linear_time() {
        assert_linear(500, |calls| {
            let made = |nth: usize| Step {
                tool: "search".to_owned(),
                arguments: Hash(nth as u128),
                text: None,
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
