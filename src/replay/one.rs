//! One conversation of a file: chosen among its lines, replayed as every other is, and seen in full: the last request
//! as it would have gone out, each ruling, each limit. Chooses and looks on; decides nothing and words nothing.

use super::course::{Replayer, joined};
use super::growth::Growth;
use super::input::{Flaw, Line, Place, read_files};
use super::recording::Recording;
use super::{Enforced, Options};
use crate::dialect::variant::Placement;
use crate::exchange::Outgoing;
use crate::exchange::judging::Judged;
use crate::plan::{Plan, Refusal, Usage};
use bytes::Bytes;
use std::path::Path;

/// Which conversation of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first that can be read.
    First,
    /// The one in this line, from 1.
    Line(u64),
    /// The first with this `id`.
    Id(String),
}

/// The conversation chosen.
pub(crate) struct Chosen {
    pub place: Place,
    pub recording: Recording,
    /// Conversations in the file that could be read, this one included; 1 where a line was named.
    pub readable: u64,
    /// Lines that could not be read.
    pub broken: u64,
}

/// Why there is no conversation to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoneFound {
    #[error("{0}: {1}")]
    Broken(Place, Flaw),
    #[error("no line {0}, or nothing in it")]
    NoLine(u64),
    #[error("no conversation with the id {0}")]
    NoId(String),
    #[error("no conversation in it")]
    Empty,
}

/// What was seen of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Of the last request: how many messages it had, what was planned, where notices went.
    pub history: usize,
    pub plan: Plan,
    pub placement: Option<Placement>,
    /// The last request as it would have gone out; `None`: it was refused, or there was none.
    pub sent: Option<Bytes>,
    /// Refused requests, each with its last message.
    pub refusals: Vec<(usize, Refusal)>,
    /// Calls judged, each with its message and its place among that message's calls.
    pub calls: Vec<(usize, usize, Judged)>,
    /// How far each limit was used at most, by policy.
    pub limits: Vec<(&'static str, Usage)>,
}

/// One request, read.
pub(super) struct Sight<'a> {
    pub history: usize,
    pub plan: &'a Plan,
    /// As it would have gone out; `None`: refused.
    pub sent: Option<&'a Outgoing>,
}

/// Who looks on while a conversation is replayed.
pub(super) trait Witness {
    /// A request was read.
    fn request(&mut self, sight: &Sight<'_>);
    /// A call was judged: the `position`-th of the message `message`.
    fn judged(&mut self, message: usize, position: usize, judged: &Judged);
}

/// Sees nothing.
pub(super) struct Nobody;

impl Witness for Nobody {
    fn request(&mut self, _sight: &Sight<'_>) {}
    fn judged(&mut self, _message: usize, _position: usize, _judged: &Judged) {}
}

impl Witness for Seen {
    fn request(&mut self, sight: &Sight<'_>) {
        self.history = sight.history;
        self.plan = sight.plan.clone();
        self.placement = sight.sent.map(|sent| sent.pass.placement).or(self.placement);
        self.sent = sight.sent.map(joined);
        let refusal = sight.plan.refusal.iter().cloned();
        self.refusals.extend(refusal.map(|refusal| (sight.history.saturating_sub(1), refusal)));
    }

    fn judged(&mut self, message: usize, position: usize, judged: &Judged) {
        self.calls.push((message, position, judged.clone()));
    }
}

/// Chooses a conversation of the file at `path` (`-` is standard input). `limit`: the longest line, in bytes.
///
/// # Errors
/// [`NoneFound`] where there is no such conversation.
pub(crate) fn choose(path: &Path, which: &Which, limit: u64) -> Result<Chosen, NoneFound> {
    let mut search = Search { which, found: None, readable: 0, broken: 0, first_flaw: None };
    let mut growth = Growth::default();
    read_files(&[path.to_owned()], limit, &mut |line, _| {
        if let Which::Line(wanted) = which {
            // A file that cannot be opened is told as line 0.
            if line.place.line == *wanted || line.place.line == 0 {
                search.look(line);
                return false;
            }
            return true;
        }
        growth.take(line);
        std::iter::from_fn(|| growth.next(false)).for_each(|line| search.look(line));
        true
    });
    std::iter::from_fn(|| growth.next(true)).for_each(|line| search.look(line));
    search.end()
}

/// Replays it through the policies of `config`.
pub(crate) fn replay(config: &Enforced, chosen: &Chosen, options: &Options) -> Seen {
    let mut seen = Seen::default();
    let replayer = Replayer::new(config, options);
    let told = replayer.replay_before(&mut seen, chosen.place.clone(), &chosen.recording);
    let limits = told.limits.into_iter().map(|((policy, tool), most)| {
        let usage = Usage { tool, used: most.used, limit: most.limit };
        (policy, usage)
    });
    seen.limits = limits.collect();
    seen
}

/// A search on its way through the lines.
struct Search<'a> {
    which: &'a Which,
    found: Option<(Place, Recording)>,
    readable: u64,
    broken: u64,
    first_flaw: Option<(Place, Flaw)>,
}

impl Search<'_> {
    fn look(&mut self, line: Line) {
        let Line { place, content } = line;
        match content.and_then(|content| Recording::read(&content).map_err(Flaw::Fault)) {
            Ok(recording) => {
                self.readable += 1;
                let wanted = match self.which {
                    Which::First | Which::Line(_) => true,
                    Which::Id(id) => recording.labels.id.as_ref() == Some(id),
                };
                if wanted && self.found.is_none() {
                    self.found = Some((place, recording));
                }
            }
            Err(flaw) => {
                self.broken += 1;
                self.first_flaw.get_or_insert((place, flaw));
            }
        }
    }

    fn end(self) -> Result<Chosen, NoneFound> {
        let Self { which, found, readable, broken, first_flaw } = self;
        if let Some((place, recording)) = found {
            return Ok(Chosen { place, recording, readable, broken });
        }
        Err(match (which, first_flaw) {
            (Which::Id(id), _) if readable > 0 => NoneFound::NoId(id.clone()),
            (_, Some((place, flaw))) => NoneFound::Broken(place, flaw),
            (Which::Line(line), None) => NoneFound::NoLine(*line),
            (Which::Id(id), None) => NoneFound::NoId(id.clone()),
            (Which::First, None) => NoneFound::Empty,
        })
    }
}
