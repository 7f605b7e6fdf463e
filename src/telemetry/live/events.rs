//! The stream of events in the life of tool calls, as they happen: a bounded broadcast to the readers that are connected.
//! Without a reader nothing is made; a reader that is too slow misses the oldest events and is given their number.

use super::{BOUNDS, MOST_CHARS};
use crate::telemetry::json_object::JsonObject;
use model::record::{JudgedCall, On, Published, RequestRecord, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{Receiver, Sender, channel};

/// Events that wait for the slowest reader at most.
const MOST_WAITING: usize = 1_024;
/// Readers at once. Each is a connection that stays open.
const MOST_READERS: usize = 32;
/// The length of most events, in bytes.
const USUAL_BYTES: usize = 256;
/// Events of one kind for one request: a client may send thousands of results.
const MOST_OF_A_KIND: usize = 64;

/// See the module's documentation.
pub struct Events {
    sender: Sender<Arc<Event>>,
    /// Counted here: the channel's own number takes a lock, and it is wanted for each piece of a stream.
    readers: Arc<AtomicUsize>,
}

/// One reader of the events.
pub struct Reader {
    receiver: Receiver<Arc<Event>>,
    readers: Arc<AtomicUsize>,
}

impl Reader {
    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// This reader was too slow and has missed some, or there are no more.
    pub async fn next(&mut self) -> Result<Arc<Event>, RecvError> {
        self.receiver.recv().await
    }

    /// The next event, if it is there.
    ///
    /// # Errors
    /// The same, or there is none yet.
    pub fn try_next(&mut self) -> Result<Arc<Event>, TryRecvError> {
        self.receiver.try_recv()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The client got a call, or a policy answered it.
    ToolCallStart,
    ToolCallBlocked,
    /// The client sent a tool's result for the first time.
    ToolResult,
    /// The model was shown a notice.
    Notice,
    /// The model was asked again.
    ReAsk,
    /// The request was sent again in another form.
    Fallback,
    /// A person is asked about a call, or has decided.
    Approval,
    /// The request has ended.
    Done,
}

/// One event.
#[derive(Debug)]
pub struct Event {
    pub kind: Kind,
    /// Its members as JSON, on one line.
    pub data: String,
}

impl Kind {
    /// As in the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolCallStart => "tool_call_start",
            Self::ToolCallBlocked => "tool_call_blocked",
            Self::ToolResult => "tool_result",
            Self::Notice => "notice",
            Self::ReAsk => "re_ask",
            Self::Fallback => "fallback",
            Self::Approval => "approval",
            Self::Done => "done",
        }
    }
}

impl Events {
    pub(super) fn new() -> Self {
        Self { sender: channel(MOST_WAITING).0, readers: Arc::default() }
    }

    /// Begins to read from now on; `None`: there are too many readers.
    pub fn subscribe(&self) -> Option<Reader> {
        // Counted before the check, so that no two take the last place.
        self.readers.fetch_add(1, Ordering::Relaxed);
        let reader = Reader { receiver: self.sender.subscribe(), readers: Arc::clone(&self.readers) };
        (self.readers.load(Ordering::Relaxed) <= MOST_READERS).then_some(reader)
    }

    /// A call of `tool` begins to wait for a person's decision.
    pub(super) fn approval_asked(&self, record: &RequestRecord, tool: &str, now_ms: u64) {
        if self.has_readers() {
            let event = About { record, now_ms };
            self.send(event.event(Kind::Approval, Some(tool), None, Some("asked")));
        }
    }

    /// Whether anybody reads.
    pub fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// What is new in the record of a request in flight; `calls`: those judged since.
    pub(super) fn happened(
        &self,
        record: &RequestRecord,
        published: &mut Published,
        calls: &[JudgedCall],
        now_ms: u64,
    ) {
        let all = Published {
            results: record.results.len(),
            actions: record.actions.len(),
            calls: published.calls + calls.len(),
            reasks: record.reasks as usize,
            fallbacks: record.fallbacks.len(),
            approvals: record.approvals.len(),
        };
        if *published == all {
            return;
        }
        let about = About { record, now_ms };
        about.news(*published, calls).into_iter().for_each(|event| self.send(event));
        *published = all;
    }

    /// The last events of a request that has ended.
    pub(super) fn record(&self, record: &RequestRecord, now_ms: u64) {
        if !self.has_readers() || !record.route.is_governed() {
            return;
        }
        let mut published = record.published;
        let calls = record.judged.get(published.calls..).unwrap_or_default();
        self.happened(record, &mut published, calls, now_ms);
        self.send(About { record, now_ms }.done());
    }

    fn send(&self, event: Event) {
        // The last reader may have left meanwhile.
        let _ = self.sender.send(Arc::new(event));
    }
}

/// The entries from the one at `first` on, as far as there are events for them.
fn unseen<T>(all: &[T], first: usize) -> &[T] {
    all.get(first..all.len().min(MOST_OF_A_KIND)).unwrap_or_default()
}

/// What the events of one request have in common.
struct About<'a> {
    record: &'a RequestRecord,
    now_ms: u64,
}

impl About<'_> {
    fn event(&self, kind: Kind, tool: Option<&str>, policy: Option<&str>, message: Option<&str>) -> Event {
        let record = self.record;
        let mut data = JsonObject::new(USUAL_BYTES, MOST_CHARS);
        data.value("at_ms", &self.now_ms);
        data.text_or_null("conversation", record.conversation.as_deref());
        data.text_or_null("model", record.model.as_deref());
        data.text_or_null("tool", tool.map(|tool| BOUNDS.name(tool)).as_deref());
        data.text_or_null("policy", policy);
        data.text_or_null("message", message);
        data.text("request_id", &record.request_id);
        // What is written as JSON is always text.
        Event { kind, data: String::from_utf8(data.end()).unwrap_or_default() }
    }

    /// What readers have not `seen` yet; `calls`: those judged since.
    fn news(&self, seen: Published, calls: &[JudgedCall]) -> Vec<Event> {
        let record = self.record;
        let results =
            unseen(&record.results, seen.results).iter().filter(|_| !record.repeated).map(|result| {
                let message = format!("{}, estimated tokens: {}", result.outcome.as_str(), result.tokens);
                self.event(Kind::ToolResult, Some(&result.tool), None, Some(&message))
            });
        let is_notice = |on: On, action: &str| on == On::Request && action == "notice";
        let actions = record.actions.get(seen.actions..).unwrap_or_default().iter();
        let notices = actions.filter(|action| is_notice(action.on, &action.action));
        let notices = notices.map(|action| self.event(Kind::Notice, None, Some(action.policy), None));
        let calls = calls.iter().take(MOST_OF_A_KIND.saturating_sub(seen.calls)).map(|call| self.call(call));
        let re_asks = (record.reasks as usize > seen.reasks).then(|| {
            let message = format!("asked again: {}", record.reasks);
            self.event(Kind::ReAsk, None, None, Some(&message))
        });
        let fallbacks = unseen(&record.fallbacks, seen.fallbacks).iter();
        let fallbacks =
            fallbacks.map(|fallback| self.event(Kind::Fallback, None, None, Some(fallback.as_str())));
        let approvals = unseen(&record.approvals, seen.approvals).iter().map(|approval| {
            self.event(Kind::Approval, Some(&approval.tool), None, Some(approval.outcome.as_str()))
        });
        results.chain(notices).chain(calls).chain(re_asks).chain(fallbacks).chain(approvals).collect()
    }

    fn done(&self) -> Event {
        let record = self.record;
        let end = match record.error {
            Some(error) => format!("{} {error}", record.status),
            None => record.status.to_string(),
        };
        self.event(Kind::Done, None, None, Some(&end))
    }

    fn call(&self, call: &JudgedCall) -> Event {
        let first = call.decisions.first();
        let kind = match call.verdict {
            Verdict::Block => Kind::ToolCallBlocked,
            Verdict::Ask => Kind::Approval,
            Verdict::Allow | Verdict::Modify | Verdict::Answer => Kind::ToolCallStart,
        };
        let message = match call.verdict {
            Verdict::Allow => None,
            Verdict::Ask => Some("asked"),
            _ => call.explanation(),
        };
        self.event(kind, Some(&call.tool), first.map(|decision| decision.policy), message)
    }
}
