//! What is known of the running turn: the calls of the last reply, the cycles and the empty results before it. What the
//! client sends after the results of a reply belongs to them: the reply is then added once more, with it.

use super::trail::{ActingTools, ComparedCall, Details, Kind, Step, Trail};
use crate::pattern::Pattern;
use model::View;
use model::identity::Hash;
use model::outcome::Following;
pub use model::plan::work::step;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The part of a turn that was read.
#[derive(Clone, Default)]
pub struct Turn {
    /// The calls of the last reply whose results are coming.
    pub reply: Vec<Made>,
    pub progress: Progress,
    /// The last reply, where the client sends something after its results.
    last: Option<Box<AnsweredReply>>,
    /// What the client sent among the results that are coming.
    among: Following,
    /// How often each call was made; counted where the policy is strict.
    equal: HashMap<(String, Hash), usize>,
    /// Whether a tool acts, by its name.
    pub acting: HashMap<Arc<str>, bool>,
}

/// The replies of a turn that are answered.
#[derive(Clone, Default)]
pub struct Progress {
    pub trail: Trail,
    pub empty: EmptyRun,
    /// What followed the last one.
    following: Arc<Following>,
}

/// The calls of a reply that is answered; `None` for each that has no step, because its tool is exempt or it has no result.
type AnsweredCalls = SmallVec<[Option<Arc<ComparedCall>>; 1]>;

/// The last reply that is answered.
#[derive(Clone)]
struct AnsweredReply {
    calls: AnsweredCalls,
    following: Following,
    /// The progress before it.
    before: Progress,
}

/// A call of a reply.
#[derive(Clone)]
pub struct Made {
    pub call: Arc<ComparedCall>,
    /// It has no step.
    pub is_exempt: bool,
    pub is_answered: bool,
}

/// Empty results in a row.
#[derive(Clone, Default)]
pub struct EmptyRun {
    pub results: usize,
    /// The number of results at the last notice.
    pub noticed: usize,
    /// The tools that gave them, each once, in their order; and the same to look them up.
    pub tools: Vec<Arc<str>>,
    pub known: HashSet<Arc<str>>,
}

impl Turn {
    /// A reply begins. If the one before it was never answered in full, it breaks every cycle.
    pub fn begin_reply(&mut self) {
        self.last = None;
        self.among = Following::default();
        if !self.reply.is_empty() {
            self.reply.clear();
            self.progress = Progress::default();
        }
    }

    /// The last reply is answered by the result in `view`. True if that is all that the model sees before it goes on; where
    /// the client sent something after the results before, it will do so again.
    pub fn complete_reply(&mut self, view: &View<'_>, quiet: &[Pattern]) -> bool {
        let compared = |made: Made| (made.is_answered && !made.is_exempt).then_some(made.call);
        let calls: AnsweredCalls = self.reply.drain(..).map(compared).collect();
        let is_all = *self.progress.following == Following::default();
        let following = std::mem::take(&mut self.among);
        let before = view.is_followed_by_input().then(|| self.progress.clone());
        let tools = ActingTools { patterns: quiet, known: &mut self.acting };
        self.progress.add_reply(&calls, &following, &mut Details { view: *view, tools });
        self.last = before.map(|before| Box::new(AnsweredReply { calls, following, before }));
        is_all
    }

    /// Adds a message that the client sent after the results of a reply; false where these have not all come.
    pub fn add_following(&mut self, view: &View<'_>, quiet: &[Pattern]) -> bool {
        let Some(last) = &mut self.last else {
            if !self.reply.is_empty() {
                self.among.add(view);
            }
            return false;
        };
        last.following.add(view);
        let before = std::mem::replace(&mut self.progress, last.before.clone());
        let tools = ActingTools { patterns: quiet, known: &mut self.acting };
        self.progress.add_reply(&last.calls, &last.following, &mut Details { view: *view, tools });
        self.progress.keep_noticed(&before);
        true
    }

    /// Counts a call.
    pub fn count(&mut self, tool: &str, arguments: Hash) {
        *self.equal.entry((tool.to_owned(), arguments)).or_default() += 1;
    }

    /// How often the call was made.
    pub fn count_of(&self, tool: &str, arguments: Hash) -> usize {
        self.equal.get(&(tool.to_owned(), arguments)).copied().unwrap_or_default()
    }
}

impl Progress {
    /// Adds the steps of a reply to the trail, in the order of its calls.
    fn add_reply(&mut self, calls: &AnsweredCalls, following: &Following, details: &mut Details<'_>) {
        let shows = following.shows_something()
            || following.says_something_else(&self.following, details.view.sources());
        if *self.following != *following {
            self.following = Arc::new(following.clone());
        }
        let mut steps = SmallVec::with_capacity(calls.len());
        for call in calls {
            let Some(call) = call else {
                self.trail.clear();
                self.empty = EmptyRun::default();
                steps.clear();
                continue;
            };
            let step = Step::new(call, &self.following, shows);
            self.empty.add(&call.tool, step.kind());
            steps.push(step);
        }
        self.trail.add_reply(steps, details);
    }

    /// Takes over from `before`, the same replies without the last message, which notices the model has.
    fn keep_noticed(&mut self, before: &Self) {
        self.trail.keep_noticed(&before.trail);
        if self.empty.results == before.empty.results {
            self.empty.noticed = before.empty.noticed;
        }
    }
}

impl EmptyRun {
    fn add(&mut self, tool: &Arc<str>, kind: Kind) {
        if kind != Kind::Empty {
            if self.results > 0 {
                *self = Self::default();
            }
            return;
        }
        self.results += 1;
        step();
        if self.known.insert(Arc::clone(tool)) {
            self.tools.push(Arc::clone(tool));
        }
    }
}
