//! The replay of one chosen conversation of a file, observed in full: the last request as it would have been sent, each
//! decision, each limit. Chooses and observes; decides nothing and formats nothing.

use super::exchange_lines::ExchangeLines;
use super::growth::Growth;
use super::input::{Flaw, InputPosition, Line, read_files};
use super::recording::Recording;
use super::replayer::{Replayer, joined};
use super::{Enforced, Options};
use bytes::Bytes;
use dialects::dialect_of;
use dialects::variant::Placement;
use engine::Outgoing;
use engine::judging::Judged;
use model::plan::{Plan, Refusal, Usage};
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
    pub position: InputPosition,
    pub recording: Recording,
    /// Conversations in the file that could be read, this one included; 1 where a line was named.
    pub readable: u64,
    /// Lines that could not be read.
    pub broken: u64,
}

impl Chosen {
    /// The conversation in `body`, which comes from no file.
    pub(crate) fn of_body(body: &Bytes, name: &str) -> Result<Self, NoneFound> {
        let position = InputPosition { file: name.into(), line: 0 };
        match Recording::read(body, dialect_of(body)) {
            Ok(recording) => Ok(Self { position, recording, readable: 1, broken: 0 }),
            Err(fault) => Err(NoneFound::Broken(position, Flaw::Fault(fault))),
        }
    }
}

/// Why there is no conversation to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoneFound {
    #[error("{0}: {1}")]
    Broken(InputPosition, Flaw),
    #[error("no line {0}, or nothing in it")]
    NoLine(u64),
    #[error("no conversation with the id {0}")]
    NoId(String),
    #[error("no conversation in it")]
    Empty,
}

/// What was observed of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    /// For the last request: how many messages it had, its plan, and where notices were placed.
    pub history: usize,
    pub plan: Plan,
    pub placement: Option<Placement>,
    /// The last request as it would have been sent; `None`: it was refused, or there was none.
    pub sent: Option<Bytes>,
    /// Refused requests, each with its last message.
    pub refusals: Vec<(usize, Refusal)>,
    /// Calls judged, each with its message and its position among that message's calls.
    pub calls: Vec<(usize, usize, Judged)>,
    /// How far each limit was used at most, by policy.
    pub limits: Vec<(&'static str, Usage)>,
}

/// One request, planned.
pub(super) struct ObservedRequest<'a> {
    pub history: usize,
    pub plan: &'a Plan,
    /// As it would have been sent; `None`: refused.
    pub sent: Option<&'a Outgoing>,
}

/// Receives each step of a replayed conversation.
pub(super) trait Observer {
    /// A request was planned.
    fn request(&mut self, request: &ObservedRequest<'_>);
    /// A call was judged: the `position`-th of the message `message`.
    fn judged(&mut self, message: usize, position: usize, judged: &Judged);
}

/// Ignores everything.
pub(super) struct NoObserver;

impl Observer for NoObserver {
    fn request(&mut self, _request: &ObservedRequest<'_>) {}
    fn judged(&mut self, _message: usize, _position: usize, _judged: &Judged) {}
}

impl Observer for Observations {
    fn request(&mut self, request: &ObservedRequest<'_>) {
        self.history = request.history;
        self.plan = request.plan.clone();
        self.placement = request.sent.map(|sent| sent.variant.placement).or(self.placement);
        self.sent = request.sent.map(joined);
        let refusal = request.plan.refusal.iter().cloned();
        self.refusals.extend(refusal.map(|refusal| (request.history.saturating_sub(1), refusal)));
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
    let (mut growth, mut exchanges) = (Growth::default(), ExchangeLines::default());
    read_files(&[path.to_owned()], limit, &mut |line, _| {
        let line = exchanges.join(line);
        if let Which::Line(wanted) = which {
            // A file that cannot be opened is reported as line 0.
            if line.position.line == *wanted || line.position.line == 0 {
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
pub(crate) fn replay(config: &Enforced, chosen: &Chosen, options: &Options) -> Observations {
    let mut seen = Observations::default();
    let replayer = Replayer::new(config, options);
    let replayed = replayer.replay_observed(&mut seen, chosen.position.clone(), &chosen.recording);
    let limits = replayed.limits.into_iter().map(|((policy, tool), most)| {
        let usage = Usage { tool, used: most.used, limit: most.limit };
        (policy, usage)
    });
    seen.limits = limits.collect();
    seen
}

/// A search through the lines, in progress.
struct Search<'a> {
    which: &'a Which,
    found: Option<(InputPosition, Recording)>,
    readable: u64,
    broken: u64,
    first_flaw: Option<(InputPosition, Flaw)>,
}

impl Search<'_> {
    fn look(&mut self, line: Line) {
        let (recording, Line { position, live, .. }) = (line.recording(), line);
        match recording.map(|recording| recording.with_live(live)) {
            Ok(recording) => {
                self.readable += 1;
                let wanted = match self.which {
                    Which::First | Which::Line(_) => true,
                    Which::Id(id) => recording.labels.id.as_ref() == Some(id),
                };
                if wanted && self.found.is_none() {
                    self.found = Some((position, recording));
                }
            }
            Err(flaw) => {
                self.broken += 1;
                self.first_flaw.get_or_insert((position, flaw));
            }
        }
    }

    fn end(self) -> Result<Chosen, NoneFound> {
        let Self { which, found, readable, broken, first_flaw } = self;
        if let Some((position, recording)) = found {
            return Ok(Chosen { position, recording, readable, broken });
        }
        Err(match (which, first_flaw) {
            (Which::Id(id), _) if readable > 0 => NoneFound::NoId(id.clone()),
            (_, Some((position, flaw))) => NoneFound::Broken(position, flaw),
            (Which::Line(line), None) => NoneFound::NoLine(*line),
            (Which::Id(id), None) => NoneFound::NoId(id.clone()),
            (Which::First, None) => NoneFound::Empty,
        })
    }
}
