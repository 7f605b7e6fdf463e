//! The calls of a conversation so far, and how each ended. Records and compares; what follows from it is for the
//! policy to decide.

use crate::conversation::identity::Hash;
use crate::plan::work::step;
use std::sync::Arc;

/// See the module.
#[derive(Clone, Default)]
pub struct Past {
    /// The running turn's number.
    pub turn: usize,
    deeds: Vec<Deed>,
    /// Where the last reply's calls begin in `deeds`.
    reply: usize,
    found: Vec<Found>,
    /// The last reply calls other tools beside those that retrieve.
    mixed: bool,
    /// The tools that the request declares.
    pub declared: Arc<[String]>,
    /// How many calls are unknown and not checked.
    unknown: usize,
}

/// A call of an action tool.
#[derive(Clone)]
pub struct Deed {
    /// As programs look it up.
    pub tool: String,
    same: Same,
    /// Its assistant message and its position in it; none where it is in the reply being judged.
    place: Option<(usize, usize)>,
    pub turn: usize,
    /// When it was handed out, in ms since the epoch, where that is known.
    pub released_ms: Option<u64>,
    pub end: End,
}

/// The key by which calls of a tool are compared.
#[derive(Clone, PartialEq, Eq)]
pub enum Same {
    /// The hash of all arguments.
    Whole(Hash),
    /// The values of each key argument.
    Keys(Vec<Vec<String>>),
    /// It is equal to no other.
    Nothing,
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
    /// It may have been done or not; whether a check came since.
    Unknown { checked: bool },
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
        for deed in self.deeds.iter_mut().skip(self.reply).filter(|deed| deed.end == End::Open) {
            deed.end = End::Failed;
        }
    }

    /// The assistant speaks.
    pub fn begin_reply(&mut self) {
        self.give_up();
        self.reply = self.deeds.len();
        self.mixed = false;
    }

    /// A tool was called that may have changed anything: earlier retrievals, and those of the same reply, are no
    /// longer valid.
    pub fn forget_found(&mut self) {
        self.found.clear();
        self.mixed = true;
    }

    /// An action tool was called.
    pub fn add(&mut self, tool: &str, same: Same, place: Option<(usize, usize)>, released_ms: Option<u64>) {
        let (tool, turn) = (tool.to_owned(), self.turn);
        self.deeds.push(Deed { tool, same, place, turn, released_ms, end: End::Open });
    }

    /// The call at `place` ended.
    pub fn end(&mut self, place: (usize, usize), end: End) {
        // Those of the conversation come in order, and before those of the reply being judged.
        let at = self.deeds.partition_point(|deed| {
            step();
            deed.place.is_some_and(|known| known < place)
        });
        if let Some(deed) = self.deeds.get_mut(at).filter(|deed| deed.place == Some(place)) {
            self.unknown += usize::from(end == End::Unknown { checked: false });
            deed.end = end;
        }
    }

    /// A tool was called and answered that shows whether calls of tools for which `shows` is true were done.
    pub fn check(&mut self, shows: impl Fn(&str) -> bool) {
        for deed in self.deeds.iter_mut() {
            if deed.end == (End::Unknown { checked: false }) && shows(&deed.tool) {
                deed.end = End::Unknown { checked: true };
                self.unknown -= 1;
            }
        }
    }

    /// Whether it is unknown of any call whether it was done.
    pub fn has_unknown(&self) -> bool {
        self.unknown > 0
    }

    /// A retrieval tool answered, with a usable result or without.
    pub fn add_found(&mut self, found: Option<Found>) {
        if !self.mixed {
            self.found.extend(found);
        }
    }

    /// The equal calls of `tool` that did not fail, oldest first.
    pub fn equal<'a>(&'a self, tool: &'a str, same: &'a Same) -> impl Iterator<Item = &'a Deed> {
        self.deeds
            .iter()
            .filter(move |deed| deed.end != End::Failed && deed.tool == tool && deed.same == *same)
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
    use crate::plan::work::assert_linear;

    #[test]
    fn to_end_the_calls_of_one_large_reply_takes_no_pass_over_them_for_each() {
        assert_linear(1_000, |calls| {
            let mut past = Past::default();
            past.begin_reply();
            (0..calls).for_each(|at| past.add("pay", Same::Nothing, Some((1, at)), None));
            (0..calls).for_each(|at| past.end((1, at), End::Succeeded(None)));
            assert!(past.deeds.iter().all(|deed| deed.end != End::Open));
        });
    }
}
