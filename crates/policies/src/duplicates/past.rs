//! The calls of a conversation so far, and how each ended. Records and compares; what follows from it is for the
//! policy to decide.

use model::identity::Hash;
pub use model::plan::work::step;
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Default)]
pub struct Past {
    /// The running turn's number.
    pub turn: usize,
    /// Shared until a reply adds to them: all its choices begin with those of the history.
    deeds: Arc<Deeds>,
    /// Where the last reply's calls begin among them.
    reply: usize,
    found: Vec<Found>,
    /// The last reply calls other tools beside those that retrieve.
    mixed: bool,
    /// The tools that the request declares.
    pub declared: Arc<[String]>,
    answered: Answered,
}

/// The calls of action tools, and which of them are equal.
#[derive(Clone, Default)]
struct Deeds {
    all: Vec<Deed>,
    /// The indexes of equal ones, oldest first, by tool, as programs look it up, and key.
    equal: HashMap<String, HashMap<Same, Vec<usize>>>,
}

/// A call of an action tool.
#[derive(Clone)]
pub struct Deed {
    /// Its assistant message and its position in it; none where it is in the reply being judged.
    place: Option<(usize, usize)>,
    pub turn: usize,
    /// When it was handed out, in ms since the epoch, where that is known.
    pub released_ms: Option<u64>,
    pub end: End,
}

/// The key by which calls of a tool are compared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Same {
    /// The hash of all arguments.
    Whole(Hash),
    /// The values of each key argument.
    Keys(Vec<Vec<String>>),
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq)]
pub enum End {
    /// Its result is still to come.
    Open,
    /// It failed, or was never answered.
    Failed,
    /// The beginning of its result, where that may be quoted.
    Succeeded(Option<Arc<str>>),
    /// It may have been done or not.
    Unknown(Since),
}

/// A point in the conversation: only what was answered later shows what was unknown then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since(usize);

/// The tools that were called and answered without failing since a call was first unknown.
#[derive(Clone, Default)]
struct Answered {
    /// When each was last, by its name.
    last: HashMap<String, Since>,
    now: Since,
    /// It is unknown of some call whether it was done.
    any_unknown: bool,
}

/// The result of a call of a retrieval tool.
#[derive(Clone)]
pub struct Found {
    pub tool: String,
    pub arguments: Hash,
    pub text: Arc<str>,
    pub released_ms: Option<u64>,
}

impl Past {
    /// A user's message begins a turn.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        self.found.clear();
    }

    /// What the last reply left unanswered counts as unanswered from now on.
    pub fn give_up(&mut self) {
        let reply = self.reply;
        let deeds = Arc::make_mut(&mut self.deeds).all.iter_mut().skip(reply);
        for deed in deeds.filter(|deed| deed.end == End::Open) {
            deed.end = End::Failed;
        }
        self.reply = self.deeds.all.len();
    }

    /// The assistant speaks.
    pub fn begin_reply(&mut self) {
        self.give_up();
        self.mixed = false;
    }

    /// A tool was called that may have changed anything: earlier retrievals, and those of the same reply, are no
    /// longer valid.
    pub fn forget_found(&mut self) {
        self.found.clear();
        self.mixed = true;
    }

    /// An action tool was called; without `same` the call is equal to no other.
    pub fn add(
        &mut self,
        tool: &str,
        same: Option<Same>,
        place: Option<(usize, usize)>,
        released_ms: Option<u64>,
    ) {
        let deeds = Arc::make_mut(&mut self.deeds);
        if let Some(same) = same {
            let of_tool = match deeds.equal.get_mut(tool) {
                Some(of_tool) => of_tool,
                None => deeds.equal.entry(tool.to_owned()).or_default(),
            };
            of_tool.entry(same).or_default().push(deeds.all.len());
        }
        deeds.all.push(Deed { place, turn: self.turn, released_ms, end: End::Open });
    }

    /// The call at `place` ended.
    pub fn end(&mut self, place: (usize, usize), end: End) {
        self.answered.any_unknown |= matches!(end, End::Unknown(_));
        let deeds = &mut Arc::make_mut(&mut self.deeds).all;
        // Those of the conversation come in order, and before those of the reply being judged.
        let at = deeds.partition_point(|deed| {
            step();
            deed.place.is_some_and(|known| known < place)
        });
        if let Some(deed) = deeds.get_mut(at).filter(|deed| deed.place == Some(place)) {
            deed.end = end;
        }
    }

    /// The point in the conversation that is read.
    pub fn now(&self) -> Since {
        self.answered.now
    }

    /// Whether it was ever unknown of a call whether it was done.
    pub fn has_unknown(&self) -> bool {
        self.answered.any_unknown
    }

    /// `tool` was called and answered without failing.
    pub fn add_answered(&mut self, tool: &str) {
        let Answered { last, now, .. } = &mut self.answered;
        now.0 += 1;
        match last.get_mut(tool) {
            Some(known) => *known = *now,
            None => {
                last.insert(tool.to_owned(), *now);
            }
        }
    }

    /// When a tool for which `shows` is true was last called and answered without failing.
    pub fn last_answered(&self, shows: impl Fn(&str) -> bool) -> Option<Since> {
        let shown = self.answered.last.iter().filter(|(tool, _)| {
            step();
            shows(tool)
        });
        shown.map(|(_, at)| *at).max()
    }

    /// A retrieval tool answered, with a usable result or without.
    pub fn add_found(&mut self, found: Option<Found>) {
        if !self.mixed {
            self.found.extend(found);
        }
    }

    /// The calls of `tool` that equal this one, newest first.
    pub fn equal(&self, tool: &str, same: &Same) -> impl Iterator<Item = &Deed> {
        let equal = self.deeds.equal.get(tool).and_then(|of_tool| of_tool.get(same));
        equal.into_iter().flatten().rev().filter_map(|at| {
            step();
            self.deeds.all.get(*at)
        })
    }

    /// The last result of an equal call.
    pub fn found(&self, tool: &str, arguments: Hash) -> Option<&Found> {
        self.found.iter().rev().find(|found| found.arguments == arguments && found.tool == tool)
    }

    /// Whether a call of `turn`, handed out at `released_ms`, is within the window that ends now.
    pub fn is_recent(&self, released_ms: Option<u64>, turn: usize, window_ms: u64, now_ms: u64) -> bool {
        let inside = |at_ms| now_ms.saturating_sub(at_ms) < window_ms;
        window_ms == 0 || released_ms.map_or(turn == self.turn, inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::plan::work::assert_linear;

    #[test]
    fn recording_the_ends_of_many_calls_takes_linear_time() {
        assert_linear(1_000, |calls| {
            let mut past = Past::default();
            past.begin_reply();
            (0..calls).for_each(|at| past.add("pay", None, Some((1, at)), None));
            (0..calls).for_each(|at| past.end((1, at), End::Succeeded(None)));
            assert!(past.deeds.all.iter().all(|deed| deed.end != End::Open));
        });
    }
}
