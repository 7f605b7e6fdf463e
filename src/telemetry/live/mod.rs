//! The live view of what this process has done since its start: totals, tools, limits, the newest conversations and the
//! stream of events, kept in memory for the admin server. Fed by request records; everything in it is bounded.

mod bodies;
mod callers;
pub mod conversations;
pub mod events;
mod hold_out;
mod refusals;
mod sketch;
mod tools;
mod totals;
mod turns;

use self::bodies::Bodies;
use self::callers::Callers;
pub use self::callers::{CallerBudget, CallerTotals};
use self::conversations::{Conversation, Conversations};
use self::events::Events;
pub use self::hold_out::{Comparison, Interval};
pub use self::refusals::RefusalTotals;
use self::refusals::Refusals;
pub use self::sketch::Percentiles;
use self::tools::Tools;
pub use self::tools::{Start, ToolSummary};
use self::totals::Totals;
pub use self::totals::{Minute, ModelTotals, PolicyTotals, Snapshot, VERDICTS};
use self::turns::Turns;
pub use self::turns::{BlockedBy, TurnTotals};
use super::projection::TextBounds;
use bytes::Bytes;
use model::record::{JudgedCall, Published, RequestRecord};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest id or sentence, in characters.
const MOST_CHARS: usize = 500;
/// The bounds of ids, names and sentences, which are in no list.
const BOUNDS: TextBounds = TextBounds::new(MOST_CHARS, 0);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Conversations.
    pub conversations: usize,
    /// Callers that are named; 0: none.
    pub callers: usize,
    /// Whether their decisions and limits, which hold texts, are kept too.
    pub with_decisions: bool,
    /// Bytes of the newest request bodies of conversations; 0: none is kept.
    pub body_bytes: usize,
}

/// See the module's documentation.
pub struct Live {
    // Std mutexes: held for one record or one page, never across an await.
    state: Mutex<State>,
    bodies: Mutex<Bodies>,
    events: Events,
}

struct State {
    totals: Totals,
    tools: Tools,
    turns: Turns,
    refusals: Refusals,
    callers: Callers,
    conversations: Conversations,
}

impl Live {
    /// An empty view.
    pub fn new(bounds: Bounds) -> Self {
        let state = State {
            totals: Totals::starting(now_ms()),
            tools: Tools::default(),
            turns: Turns::default(),
            refusals: Refusals::default(),
            callers: Callers::new(bounds.callers),
            conversations: Conversations::new(bounds.conversations, bounds.with_decisions),
        };
        Self {
            state: Mutex::new(state),
            bodies: Mutex::new(Bodies::new(bounds.body_bytes)),
            events: Events::new(),
        }
    }

    /// Keeps so much from now on. What is too much is dropped, but for callers, which go only where none is kept.
    pub fn configure(&self, bounds: Bounds) {
        let mut state = self.state();
        state.conversations.bound(bounds.conversations, bounds.with_decisions);
        state.callers.bound(bounds.callers);
        drop(state);
        self.bodies().bound(bounds.body_bytes);
    }

    /// Takes in one request.
    pub(super) fn record(&self, record: &RequestRecord) {
        let now_ms = now_ms();
        self.events.record(record, now_ms);
        let mut state = self.state();
        let State { totals, tools, turns, refusals, callers, conversations } = &mut *state;
        let met = conversations.record(record, now_ms);
        totals.record(record, now_ms, &met);
        tools.record(record);
        turns.record(record, &met);
        refusals.record(record, now_ms);
        callers.record(record, now_ms);
    }

    /// A call of `tool` begins to wait for a person's decision.
    pub fn approval_asked(&self, record: &RequestRecord, tool: &str) {
        self.events.approval_asked(record, tool, now_ms());
    }

    /// Shows the readers of events what is new in the `record` of a request in flight, and the calls that were judged
    /// since it was shown last.
    pub fn happened(&self, record: &RequestRecord, published: &mut Published, calls: &[JudgedCall]) {
        self.events.happened(record, published, calls, now_ms());
    }

    /// Keeps the `body` of the newest request of a conversation, where bodies are kept.
    pub fn keep_body(&self, conversation: &str, body: impl FnOnce() -> Bytes) {
        if self.bodies().keeps_any() {
            let body = body();
            self.bodies().keep(conversation, &body);
        }
    }

    /// The body of the newest request of a conversation, where it is kept.
    pub fn body(&self, conversation: &str) -> Option<Bytes> {
        self.bodies().of(conversation)
    }

    /// The stream of events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// The totals since the start.
    pub fn totals(&self) -> Snapshot {
        self.state().totals.snapshot(now_ms())
    }

    /// What each tool did, the most called one first.
    pub fn tools(&self) -> Vec<ToolSummary> {
        self.state().tools.summaries()
    }

    /// The tools that programs have declared, or whose results they have sent; `None` where there are too many to keep.
    pub fn tool_names(&self) -> Option<Vec<String>> {
        self.state().tools.names()
    }

    /// The control group beside the other conversations that are kept.
    pub fn hold_out(&self) -> Comparison {
        self.state().conversations.hold_out()
    }

    /// What the first requests of conversations hold.
    pub fn start(&self) -> Start {
        self.state().tools.start()
    }

    /// Blocked calls by policy and tool, the most first; and how far turns came, by policy.
    pub fn limits(&self) -> (Vec<BlockedBy>, Vec<TurnTotals>) {
        self.state().turns.summaries()
    }

    /// What each named caller has used, the one that cost most first.
    pub fn callers(&self) -> Vec<CallerTotals> {
        self.state().callers.totals(now_ms())
    }

    /// What models refuse, the refusal that most requests met first.
    pub fn refusals(&self) -> Vec<RefusalTotals> {
        self.state().refusals.totals()
    }

    /// The conversations that `fits` selects, the newest first: how many, and those from `offset` on, at most `most`;
    /// without their decisions and limits.
    pub fn conversations(
        &self,
        fits: impl Fn(&Conversation) -> bool,
        offset: usize,
        most: usize,
    ) -> (usize, Vec<Conversation>) {
        self.state().conversations.list(fits, offset, most)
    }

    /// The conversation with this id.
    pub fn conversation(&self, id: &str) -> Option<Conversation> {
        self.state().conversations.of(id).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time in ms since the epoch.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
