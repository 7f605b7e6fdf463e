//! What is known of the running turn: the calls of the last reply, the cycles and the empty results before it. What the
//! client sends after the results of a reply belongs to them: the reply is then added once more, with it.

use super::near::Worded;
use super::trail::{Kind, Step, Trail};
use model::View;
use model::identity::Hash;
use model::outcome::{Answer, Following};
pub use model::plan::work::step;
use model::source::SourceBytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The part of a turn that was read.
#[derive(Clone, Default)]
pub struct Turn {
    /// The calls of the last reply whose results are coming.
    pub reply: Vec<Made>,
    pub progress: Progress,
    last: Option<AnsweredReply>,
    /// What the client sent among the results that are coming.
    among: Following,
    /// How often each call was made; counted where the policy is strict.
    equal: HashMap<(String, Hash), usize>,
    /// Whether a tool acts, by its name: see [`Step::acts`].
    acting: HashMap<String, bool>,
}

/// The replies of a turn that are answered.
#[derive(Clone, Default)]
pub struct Progress {
    pub trail: Trail,
    pub empty: EmptyRun,
    /// What followed the last one.
    following: Arc<Following>,
}

/// The last reply that is answered.
#[derive(Clone)]
struct AnsweredReply {
    made: Vec<Made>,
    following: Following,
    /// The progress before it.
    before: Progress,
}

/// A call of a reply.
#[derive(Clone)]
pub struct Made {
    pub tool: String,
    pub arguments: Hash,
    /// Its arguments as they are written.
    pub text: Option<Arc<Worded>>,
    pub released_ms: Option<u64>,
    /// See [`Step::acts`].
    pub acts: bool,
    /// It has no step.
    pub is_exempt: bool,
    pub answer: Option<(Answer, Kind)>,
}

/// Empty results in a row.
#[derive(Clone, Default)]
pub struct EmptyRun {
    pub results: usize,
    /// The number of results at the last notice.
    pub noticed: usize,
    /// The tools that gave them, each once, in their order; and the same to look them up.
    pub tools: Vec<String>,
    pub known: HashSet<String>,
}

impl Turn {
    /// Whether the tool acts, as `decide` says once for all its calls.
    pub fn acts(&mut self, tool: &str, decide: impl FnOnce() -> bool) -> bool {
        if let Some(acts) = self.acting.get(tool) {
            return *acts;
        }
        *self.acting.entry(tool.to_owned()).or_insert_with(decide)
    }

    /// A reply begins. If the one before it was never answered in full, it breaks every cycle.
    pub fn begin_reply(&mut self) {
        self.last = None;
        self.among = Following::default();
        if !self.reply.is_empty() {
            self.reply.clear();
            self.progress = Progress::default();
        }
    }

    /// The last reply is answered. True if that is all that the model sees before it goes on; where the client sent
    /// something after the results before, it will do so again.
    pub fn complete_reply(&mut self, sources: SourceBytes<'_>) -> bool {
        let made = std::mem::take(&mut self.reply);
        let before = self.progress.clone();
        let is_all = *before.following == Following::default();
        let following = std::mem::take(&mut self.among);
        self.progress.add_reply(&made, &following, sources);
        self.last = Some(AnsweredReply { made, following, before });
        is_all
    }

    /// Adds a message that the client sent after the results of a reply; false where these have not all come.
    pub fn add_following(&mut self, view: &View<'_>) -> bool {
        let Some(last) = &mut self.last else {
            if !self.reply.is_empty() {
                self.among.add(view);
            }
            return false;
        };
        last.following.add(view);
        let before = std::mem::replace(&mut self.progress, last.before.clone());
        self.progress.add_reply(&last.made, &last.following, view.sources());
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
    fn add_reply(&mut self, made: &[Made], following: &Following, sources: SourceBytes<'_>) {
        let following = Arc::new(following.clone());
        let shows = following.shows_something() || following.says_something_else(&self.following, sources);
        let mut steps = Vec::with_capacity(made.len());
        for made in made {
            let Some((answer, kind)) = made.answer.clone().filter(|_| !made.is_exempt) else {
                self.trail.clear();
                self.empty = EmptyRun::default();
                steps.clear();
                continue;
            };
            let kind = if kind == Kind::Empty && shows { Kind::Useful } else { kind };
            self.empty.add(&made.tool, kind);
            steps.push(Step {
                tool: made.tool.clone(),
                arguments: made.arguments,
                text: made.text.clone(),
                answer,
                following: Arc::clone(&following),
                kind,
                acts: made.acts,
                released_ms: made.released_ms,
            });
        }
        self.trail.add_reply(steps, sources);
        self.following = following;
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
    fn add(&mut self, tool: &str, kind: Kind) {
        if kind != Kind::Empty {
            *self = Self::default();
            return;
        }
        self.results += 1;
        step();
        if !self.known.contains(tool) {
            self.known.insert(tool.to_owned());
            self.tools.push(tool.to_owned());
        }
    }
}
