//! The calls of a turn with their results, and the cycles in them: the same step again and again, two or three steps
//! in turn, or a reply of more parallel calls made over and over. Finds cycles; what is too much is for the policy to
//! decide.

use super::near::{Nearness, Worded, Words};
use crate::pattern::{Pattern, any_near};
use model::View;
use model::identity::Hash;
use model::outcome::{Answer, Following, Likeness, likeness_of_results, result_says_running};
pub use model::plan::work::step;
use model::source::SourceBytes;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// The longest cycle over single steps.
pub const LONGEST: usize = 3;

/// One call and its result, with what followed.
#[derive(Clone, Debug)]
pub struct Step {
    pub call: Arc<ComparedCall>,
    /// What the client sent after the results of its reply.
    pub following: Arc<Following>,
    /// See [`Self::kind`].
    found: Kind,
}

/// One call and its result.
#[derive(Clone, Debug)]
pub struct ComparedCall {
    pub tool: Arc<str>,
    /// The hash of its canonical arguments.
    pub arguments: Hash,
    /// Its arguments as they are written, to be compared by their words.
    pub text: Worded,
    /// When the call was handed out, in ms since the epoch, where that is known.
    pub released_ms: Option<u64>,
    pub answer: Answer,
    /// The position of the result.
    pub message: usize,
    /// The kind of its result, but for [`Kind::Running`].
    pub kind: Kind,
    /// What it reports on still runs; found out where that matters.
    pub runs: OnceLock<bool>,
}

/// What is found out only of steps that repeat.
pub struct Details<'a> {
    /// An item of the conversation, to find the others by.
    pub view: View<'a>,
    pub tools: ActingTools<'a>,
}

/// Tools that act, so that equal results for other arguments may each be something done.
pub struct ActingTools<'a> {
    /// Names and patterns of them.
    pub patterns: &'a [Pattern],
    /// The answers so far: there are many patterns.
    pub known: &'a mut HashMap<Arc<str>, bool>,
}

impl ActingTools<'_> {
    /// Whether the tool acts.
    pub fn contains(&mut self, tool: &Arc<str>) -> bool {
        if let Some(acts) = self.known.get(tool) {
            return *acts;
        }
        let acts = any_near(self.patterns, tool);
        self.known.insert(Arc::clone(tool), acts);
        acts
    }
}

impl<'a> Details<'a> {
    fn sources(&self) -> SourceBytes<'a> {
        self.view.sources()
    }

    fn likeness(&self, call: &ComparedCall, earlier: &ComparedCall) -> Likeness {
        likeness_of_results(&self.view, (call.message, &call.answer), (earlier.message, &earlier.answer))
    }

    fn runs(&self, call: &ComparedCall) -> bool {
        *call.runs.get_or_init(|| result_says_running(&self.view, call.message))
    }
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
    /// The same, however near.
    Near(Nearness),
    Other,
}

/// How steps repeat: what is least equal of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    pub arguments: Arguments,
    pub results: Likeness,
    /// A result says that what it reports on still runs.
    pub waits: Option<Pace>,
}

/// How fast a model asks about what still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// With time between the calls.
    Slow,
    /// At once, or nobody knows.
    Quick,
}

/// What one repetition counts, in twentieths.
const WHOLE: usize = 20;
/// Repetitions that may be progress.
const HALF: usize = 10;
/// Random ids, which may be real ones.
const FIFTH: usize = 4;
/// Questions about what still runs, made at once.
const WAIT: usize = 1;
/// The least time between two questions about what runs that are no hurry, in ms. An agent that does not wait calls every
/// two to five seconds.
const PACE_MS: u64 = 10_000;

impl Default for Manner {
    fn default() -> Self {
        Self { arguments: Arguments::Equal, results: Likeness::Equal, waits: None }
    }
}

impl Manner {
    /// What a repetition of this kind counts, in twentieths.
    fn weight(self) -> usize {
        match (self.waits, self.arguments, self.results) {
            (Some(Pace::Slow), ..) => 0,
            (Some(Pace::Quick), ..) => WAIT,
            (None, Arguments::Near(Nearness::Id), _) => FIFTH,
            (None, Arguments::Other | Arguments::Near(Nearness::Count), _)
            | (None, _, Likeness::ButForNumbers) => HALF,
            (None, ..) => WHOLE,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            arguments: self.arguments.max(other.arguments),
            results: self.results.min(other.results),
            waits: self.waits.max(other.waits),
        }
    }
}

/// The shortest result, in bytes, that makes calls with nearly equal arguments equal: a shorter one may only confirm.
const CONFIRMATION: usize = 24;
/// The same for calls with other arguments: many actions and errors have one text of a line.
const SUBSTANCE: usize = 200;

/// By how many bytes results may differ in length that repeat the counts of their arguments: each count may get a digit.
const LONGEST_COUNT: usize = 4;

/// The kind of a result, as far as it matters for advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Useful,
    Empty,
    Failed,
    /// What it reports on still runs.
    Running,
}

/// Steps that were repeated, the newest last, with nothing in between.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The steps of one round.
    pub steps: &'a [Step],
    /// How often all of them were made in a row, where weak repetitions count less.
    pub rounds: usize,
    /// The same, each counted once.
    pub made: usize,
    pub manner: Manner,
}

/// The end of a turn's steps. A step is compared by call and result; results by their bytes.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// At most [`LONGEST`], the newest last.
    recent: SmallVec<[Step; LONGEST]>,
    /// For cycles of 1, 2 and 3 steps.
    streaks: [Streak; LONGEST],
    /// The last reply, if it made more calls than the longest cycle over single steps has.
    reply: Option<Arc<LongReply>>,
    replies: Streak,
}

/// A reply of many calls.
#[derive(Debug, Default)]
struct LongReply {
    steps: SmallVec<[Step; 1]>,
    /// The tools of its calls by their arguments.
    calls: HashMap<Hash, HashSet<Arc<str>>>,
    /// The tools of its calls.
    tools: HashSet<Arc<str>>,
}

impl LongReply {
    fn new(steps: SmallVec<[Step; 1]>) -> Self {
        let tools = steps.iter().map(|step| Arc::clone(&step.call.tool)).collect();
        let mut calls: HashMap<Hash, HashSet<Arc<str>>> = HashMap::new();
        for step in &steps {
            calls.entry(step.call.arguments).or_default().insert(Arc::clone(&step.call.tool));
        }
        Self { steps, calls, tools }
    }
}

/// How long something has repeated.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    /// Steps (replies) in a row that are equal to the one a round before.
    matched: usize,
    /// What they count, in twentieths.
    weight: usize,
    /// Those of them whose results say that something still runs, and what these count.
    waits: usize,
    waits_weight: usize,
    manner: Manner,
    /// The rounds at the last notice.
    noticed: usize,
}

impl ComparedCall {
    fn is_call(&self, tool: &str, arguments: Hash) -> bool {
        step();
        self.arguments == arguments && *self.tool == *tool
    }

    /// How fast it asks again about what the call `before` asked about.
    fn pace(&self, before: &Self) -> Pace {
        let times = self.released_ms.zip(before.released_ms);
        let is_slow = times.is_some_and(|(at_ms, before_ms)| at_ms.saturating_sub(before_ms) >= PACE_MS);
        if is_slow { Pace::Slow } else { Pace::Quick }
    }

    /// Whether the results differ in the counts of the arguments alone, which they repeat.
    fn echoes(&self, before: &Self, sources: SourceBytes<'_>) -> bool {
        let (longer, shorter) = (self.answer.bytes(), before.answer.bytes());
        if self.arguments == before.arguments
            || longer > SUBSTANCE
            || longer.abs_diff(shorter) > LONGEST_COUNT
        {
            return false;
        }
        let (Some(own), Some(other)) = (self.text.words(), before.text.words()) else { return false };
        let counts: Vec<(i64, i64)> = own.counts_beside(other).collect();
        !counts.is_empty() && self.answer.is_equal_but_for(&before.answer, &counts, sources)
    }

    /// How this call with other arguments than those of the call `before`, but an equal result, repeats it.
    fn other_arguments(
        &self,
        before: &Self,
        results: Likeness,
        tools: &mut ActingTools<'_>,
    ) -> Option<Arguments> {
        let is_substantial = results == Likeness::Equal && self.answer.bytes() >= SUBSTANCE;
        let nearness = self.text.nearness(before.text.words());
        let is_near = match nearness {
            None => false,
            Some(Nearness::Form) => self.answer.bytes() >= CONFIRMATION,
            Some(Nearness::Noise) => true,
            Some(Nearness::Count) => !tools.contains(&self.tool),
            Some(Nearness::Id) => {
                results == Likeness::Equal && !is_substantial && !tools.contains(&self.tool)
            }
        };
        match nearness.filter(|_| is_near) {
            Some(nearness) => Some(Arguments::Near(nearness)),
            None => is_substantial.then_some(Arguments::Other),
        }
    }
}

impl Step {
    /// A step of a reply that `following` came after. An empty result is useful where that `shows` something.
    pub fn new(call: &Arc<ComparedCall>, following: &Arc<Following>, shows: bool) -> Self {
        let found = if call.kind == Kind::Empty && shows { Kind::Useful } else { call.kind };
        Self { call: Arc::clone(call), following: Arc::clone(following), found }
    }

    /// The kind of its result. Whether something runs is looked for in steps that repeat, and where a notice or a count
    /// needs it at once.
    pub fn kind(&self) -> Kind {
        if self.call.runs.get() == Some(&true) { Kind::Running } else { self.found }
    }

    /// How this step repeats the step `before`, if it does.
    fn repeats(&self, before: &Self, details: &mut Details<'_>) -> Option<Manner> {
        step();
        let (call, earlier, sources) = (&*self.call, &*before.call, details.sources());
        if call.tool != earlier.tool {
            return None;
        }
        let alike = match details.likeness(call, earlier) {
            Likeness::None | Likeness::ButForNumbers if call.echoes(earlier, sources) => {
                Likeness::ButForMarks
            }
            alike => alike,
        };
        let results = match alike {
            Likeness::None => return None,
            alike => alike.min(self.following.likeness(&before.following, sources)),
        };
        let arguments = match results {
            Likeness::None => return None,
            _ if call.arguments == earlier.arguments => Arguments::Equal,
            Likeness::ButForNumbers => return None,
            _ => call.other_arguments(earlier, results, &mut details.tools)?,
        };
        let waits = details.runs(call).then(|| call.pace(earlier));
        Some(Manner { arguments, results, waits })
    }
}

impl Cycle<'_> {
    /// Whether a call goes on with the cycle. Arguments that are not known are no arguments of it.
    pub fn goes_on(&self, next: &Next<'_>) -> bool {
        let mut calls = self.steps.iter().map(|step| &*step.call).filter(|call| *call.tool == *next.tool);
        calls.any(|call| match self.manner.arguments {
            Arguments::Other => true,
            _ if next.arguments.is_some_and(|arguments| call.is_call(next.tool, arguments)) => true,
            Arguments::Near(most) => call.text.nearness(next.words()).is_some_and(|near| near <= most),
            Arguments::Equal => false,
        })
    }

    /// Whether any call of the cycle is one of `tool`.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.steps.iter().any(|step| *step.call.tool == *tool)
    }
}

impl Trail {
    /// Forgets everything: what comes is after something that changes the world.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a call was made recently, so that it may be part of a cycle.
    pub fn knows(&self, tool: &str, arguments: Hash) -> bool {
        let in_reply = |reply: &LongReply| reply.calls.get(&arguments).is_some_and(|it| it.contains(tool));
        self.recent.iter().any(|step| step.call.is_call(tool, arguments))
            || self.reply.as_deref().is_some_and(in_reply)
    }

    /// Whether a call of the tool was made recently.
    pub fn knows_tool(&self, tool: &str) -> bool {
        self.recent.iter().rev().any(|step| *step.call.tool == *tool)
            || self.reply.as_deref().is_some_and(|reply| reply.tools.contains(tool))
    }

    /// Takes over from `other` which cycles had a notice, where they have as many rounds here.
    pub fn keep_noticed(&mut self, other: &Self) {
        for at in 0..=LONGEST {
            if self.cycle(at).rounds == other.cycle(at).rounds {
                let noticed = other.streak(at).noticed;
                self.streak_mut(at).noticed = noticed;
            }
        }
    }

    /// Adds the steps of one reply, in the order of its calls.
    pub fn add_reply(&mut self, steps: SmallVec<[Step; 1]>, details: &mut Details<'_>) {
        if steps.len() <= LONGEST {
            (self.reply, self.replies) = (None, Streak::default());
            steps.into_iter().for_each(|step| self.add(step, details));
            return;
        }
        steps.iter().for_each(|step| self.add(step.clone(), details));
        let before = self.reply.take().unwrap_or_default();
        let pairs = std::iter::zip(&steps, &before.steps);
        let manners = pairs.map(|(step, before)| step.repeats(before, details));
        let manner = manners.reduce(|all, one| Some(all?.or(one?))).flatten();
        self.replies.go_on(manner.filter(|_| steps.len() == before.steps.len()));
        self.reply = Some(Arc::new(LongReply::new(steps)));
    }

    /// The cycles at the end of the trail with as many rounds as `enough` says for their length, the shortest first.
    pub fn cycles(&self, enough: impl Fn(usize) -> usize) -> impl Iterator<Item = Cycle<'_>> {
        let cycles = (0..=LONGEST).map(|at| self.cycle(at));
        cycles.filter(move |cycle| cycle.rounds >= enough(cycle.steps.len()))
    }

    /// The shortest cycle of several rounds, as many as `enough` says for its length, if it had no notice yet or if `again`
    /// says so by its rounds and those at its last notice. It counts as noticed. A longer cycle over the same rounds
    /// is the same one.
    pub fn tell(
        &mut self,
        enough: impl Fn(usize) -> usize,
        again: impl Fn(usize, usize) -> bool,
    ) -> Option<Cycle<'_>> {
        let mut repeated = (0..=LONGEST).filter(|at| self.streak(*at).matched > 0);
        let at = repeated.find(|at| {
            let cycle = self.cycle(*at);
            cycle.rounds >= enough(cycle.steps.len())
        })?;
        let (rounds, noticed) = (self.cycle(at).rounds, self.streak(at).noticed);
        if rounds == noticed || (noticed > 0 && !again(rounds, noticed)) {
            return None;
        }
        self.streak_mut(at).noticed = rounds;
        Some(self.cycle(at))
    }

    fn add(&mut self, step: Step, details: &mut Details<'_>) {
        for (at, streak) in self.streaks.iter_mut().enumerate() {
            let round_before = self.recent.len().checked_sub(at + 1).map(|place| &self.recent[place]);
            streak.go_on(round_before.and_then(|before| step.repeats(before, details)));
        }
        if self.recent.len() == LONGEST {
            self.recent.remove(0);
        }
        self.recent.push(step);
    }

    fn streak(&self, at: usize) -> &Streak {
        self.streaks.get(at).unwrap_or(&self.replies)
    }

    fn streak_mut(&mut self, at: usize) -> &mut Streak {
        self.streaks.get_mut(at).unwrap_or(&mut self.replies)
    }

    /// The cycle of `at + 1` steps, or, beyond those, that of whole replies.
    fn cycle(&self, at: usize) -> Cycle<'_> {
        if at == LONGEST {
            let steps = self.reply.as_deref().map_or(&[][..], |reply| &reply.steps);
            return self.replies.cycle(steps, 1);
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
        self.weight += manner.weight();
        if manner.waits.is_some() {
            self.waits += 1;
            self.waits_weight += manner.weight();
        }
        self.manner = self.manner.or(manner);
    }

    /// The cycle over `steps`, whose round is as long as so many of what this counts.
    fn cycle<'a>(&self, steps: &'a [Step], length: usize) -> Cycle<'a> {
        let made = self.matched / length + 1;
        // A round that asks about what still runs counts as that, whatever else is called in it, such as a pause.
        let matched = self.matched.max(1);
        let asked = ((2 * self.waits * length + matched) / (2 * matched)).max(1);
        let rounds = match self.waits {
            0 => self.weight / WHOLE / length + 1,
            _ => self.waits_weight / WHOLE / asked + 1,
        };
        Cycle { steps, rounds, made, manner: self.manner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::call::WrittenArguments;
    use model::identity::{HashKey, Identity};
    use model::plan::work::assert_linear;
    use model::testing::{SampleRequest, user};

    #[test]
    fn looking_up_many_calls_of_one_reply_takes_linear_time() {
        let request = SampleRequest::new(&[user("q")]);
        let identity = Identity { key: HashKey::fixed(7), caller: Hash(1), explicit: None };
        let transcript = request.transcript(&identity);
        assert_linear(500, |calls| {
            let made = |nth: usize| ComparedCall {
                tool: "search".into(),
                arguments: Hash(nth as u128),
                text: Worded::new(Arc::new(WrittenArguments::from_text(""))),
                released_ms: None,
                answer: Answer::default(),
                message: 0,
                kind: Kind::Useful,
                runs: OnceLock::new(),
            };
            let steps = (0..calls).map(|nth| Step::new(&Arc::new(made(nth)), &Arc::default(), false));
            let mut known = HashMap::new();
            let tools = ActingTools { patterns: &[], known: &mut known };
            let mut trail = Trail::default();
            trail.add_reply(steps.collect(), &mut Details { view: transcript.view(0), tools });
            assert!((0..calls).all(|nth| trail.knows("search", Hash(nth as u128))));
            assert!(!trail.knows("search", Hash(u128::MAX)) && !trail.knows("other", Hash(0)));
        });
    }
}
