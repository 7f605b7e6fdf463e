//! Pending approvals of calls whose replies wait for a person's decision, each under a token of 128 random bits: an
//! answer concerns one call with its exact arguments in one conversation, once, while its client is connected. Only
//! keeps and delivers answers; who may answer, and what follows, is decided elsewhere. Lives in the process that holds
//! the clients' connections.

use crate::secret::random_key;
use model::identity::Domain;
use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// The most calls that wait at once: each is a client's connection, and an entry that somebody has to read. A caller
/// gets a place only while it has fewer than are free, so one caller alone has at most half of them, and another one
/// always finds some.
const MOST_WAITING: usize = 2000;
/// For how many ended calls the result is kept, for late answers.
const MOST_ENDED: usize = 1000;
/// The longest arguments that are kept with a result.
const MOST_KEPT_CHARS: usize = 2000;

/// What a person is shown of a call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub tool: String,
    /// The exact arguments that the client would get.
    pub arguments: String,
    /// The arguments in readable form: a line for each value, with invisible characters made visible.
    pub readable: String,
    /// What else an approval does, where it does more than release the call.
    pub why: Option<String>,
    pub conversation: String,
    pub since: SystemTime,
    pub expires: SystemTime,
}

/// An answer to a call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spoken {
    pub approve: bool,
    /// The person or system that decided, as given with the answer.
    pub approver: Option<Arc<str>>,
    /// Why, in the person's words.
    pub reason: Option<Arc<str>>,
}

impl From<bool> for Spoken {
    fn from(approve: bool) -> Self {
        Self { approve, approver: None, reason: None }
    }
}

/// What is known of a call that waits no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub end: End,
    pub tool: String,
    pub at: SystemTime,
    /// Who decided, where that is known.
    pub approver: Option<Arc<str>>,
    /// Why, in the person's words.
    pub reason: Option<Arc<str>>,
    /// The arguments in readable form, cut to a bounded length.
    pub arguments: Arc<str>,
}

/// How the wait for a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Approved,
    Declined,
    /// Nobody answered in time.
    Expired,
    /// Its client left.
    Left,
    /// The process is shutting down.
    Stopped,
    /// Too many waited already, of this caller or in all.
    Refused,
}

/// All calls that wait in this process.
#[derive(Default)]
pub struct HeldCalls {
    // A std mutex: held for a look-up or a list, never across an await.
    inner: Mutex<Inner>,
    /// The process is shutting down.
    stopping: watch::Sender<bool>,
}

#[derive(Default)]
struct Inner {
    waiting: HashMap<String, Waiting>,
    ended: VecDeque<(String, Ended)>,
    /// How many calls have waited, to list them in order.
    count: u64,
    stopped: bool,
}

struct Waiting {
    nth: u64,
    /// The caller whose call it is, as logs name it.
    caller: String,
    shown: Shown,
    answer: oneshot::Sender<Spoken>,
}

/// A call that waits. Dropping it means that the client has left.
pub struct Ticket {
    calls: Arc<HeldCalls>,
    token: String,
    answer: oneshot::Receiver<Spoken>,
    until: Instant,
    end: Option<End>,
    spoken: Option<Spoken>,
}

/// A call that waits for a point in time, and for no decision.
pub struct Pause {
    until: Instant,
    stopping: watch::Receiver<bool>,
}

impl Pause {
    /// Whether its time has come; otherwise the process is shutting down. Cancel-safe.
    pub async fn is_over(&mut self) -> bool {
        let stopped = self.stopping.wait_for(|stopping| *stopping);
        // If the sender is gone, no shutdown can be signalled, and the call still waits its full time.
        let stopped = async {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        };
        timeout_at(self.until, stopped).await.is_err()
    }
}

impl HeldCalls {
    /// Holds a call until `until`, without waiting for a decision.
    pub fn pause(&self, until: Instant) -> Pause {
        Pause { until, stopping: self.stopping.subscribe() }
    }

    /// Lets a call of `caller` wait until `until`.
    pub fn hold(self: &Arc<Self>, caller: &str, shown: Shown, until: Instant) -> Ticket {
        let token = random_key().hash(Domain::Confirmation, &[]).to_string();
        let (sender, answer) = oneshot::channel();
        let mut inner = self.lock();
        let end = match (inner.stopped, inner.has_place_for(caller)) {
            (true, _) => Some(End::Stopped),
            (false, false) => Some(End::Refused),
            (false, true) => None,
        };
        if end.is_none() {
            inner.count += 1;
            let waiting = Waiting { nth: inner.count, caller: caller.to_owned(), shown, answer: sender };
            inner.waiting.insert(token.clone(), waiting);
        }
        drop(inner);
        Ticket { calls: Arc::clone(self), token, answer, until, end, spoken: None }
    }

    /// Approves or declines the call that waits under `token`, and returns it.
    ///
    /// # Errors
    /// How its wait ended, if it waits no longer; `None` if no call is known under that token.
    pub fn answer(&self, token: &str, spoken: impl Into<Spoken>) -> Result<Shown, Option<Ended>> {
        let mut inner = self.lock();
        let Some(waiting) = inner.waiting.remove(token) else {
            let ended = inner.ended.iter().rev().find(|(ended, _)| ended == token);
            return Err(ended.map(|(_, ended)| ended.clone()));
        };
        let spoken = spoken.into();
        let (approve, approver, reason) = (spoken.approve, spoken.approver.clone(), spoken.reason.clone());
        let end = match (waiting.answer.send(spoken), approve) {
            (Err(_), _) => End::Left,
            (Ok(()), true) => End::Approved,
            (Ok(()), false) => End::Declined,
        };
        let ended = Ended { approver, reason, ..Ended::of(&waiting.shown, end) };
        inner.end(token, ended.clone());
        if end == End::Left { Err(Some(ended)) } else { Ok(waiting.shown) }
    }

    /// The calls that wait, the oldest first, each with its token.
    pub fn list(&self) -> Vec<(String, Shown)> {
        let inner = self.lock();
        let mut all: Vec<_> = inner.waiting.iter().collect();
        all.sort_unstable_by_key(|(_, waiting)| waiting.nth);
        all.into_iter().map(|(token, waiting)| (token.clone(), waiting.shown.clone())).collect()
    }

    /// The calls that waited, the newest end first.
    pub fn history(&self) -> Vec<Ended> {
        self.lock().ended.iter().rev().map(|(_, ended)| ended.clone()).collect()
    }

    /// Whether a call waits under `token`.
    pub fn is_waiting(&self, token: &str) -> bool {
        self.lock().waiting.contains_key(token)
    }

    /// How many wait.
    pub fn count(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// Ends every wait as stopped; later calls are not held.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        let mut inner = self.lock();
        inner.stopped = true;
        let all: Vec<(String, Waiting)> = inner.waiting.drain().collect();
        all.into_iter()
            .for_each(|(token, waiting)| inner.end(&token, Ended::of(&waiting.shown, End::Stopped)));
    }

    /// Removes a call whose decision is no longer awaited; false if it was answered before.
    fn forget(&self, token: &str, end: End) -> bool {
        let mut inner = self.lock();
        let waiting = inner.waiting.remove(token);
        let was_waiting = waiting.is_some();
        if let Some(waiting) = waiting {
            inner.end(token, Ended::of(&waiting.shown, end));
        }
        was_waiting
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ended {
    fn of(shown: &Shown, end: End) -> Self {
        let cut =
            shown.readable.char_indices().nth(MOST_KEPT_CHARS).map_or(shown.readable.len(), |(at, _)| at);
        let arguments = shown.readable[..cut].into();
        let (tool, at) = (shown.tool.clone(), SystemTime::now());
        Self { end, tool, at, approver: None, reason: None, arguments }
    }
}

impl Inner {
    /// See [`MOST_WAITING`].
    fn has_place_for(&self, caller: &str) -> bool {
        let own = self.waiting.values().filter(|waiting| waiting.caller == caller).count();
        own < MOST_WAITING.saturating_sub(self.waiting.len())
    }

    fn end(&mut self, token: &str, end: Ended) {
        if self.ended.len() >= MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((token.to_owned(), end));
    }
}

impl Ticket {
    /// Waits for the decision. Cancel-safe.
    pub async fn decision(&mut self) -> End {
        if let Some(end) = self.end {
            return end;
        }
        let spoken = match timeout_at(self.until, &mut self.answer).await {
            Ok(answer) => answer.ok(),
            Err(_) if self.calls.forget(&self.token, End::Expired) => return *self.end.insert(End::Expired),
            // It was answered in the very last moment.
            Err(_) => self.answer.try_recv().ok(),
        };
        self.spoken = spoken;
        let end_for = |answer: &Spoken| if answer.approve { End::Approved } else { End::Declined };
        *self.end.insert(self.spoken.as_ref().map_or(End::Stopped, end_for))
    }

    /// The answer, where there was one.
    pub fn spoken(&self) -> Option<&Spoken> {
        self.spoken.as_ref()
    }

    /// The token under which the call waits; `None` if it does not.
    pub fn token(&self) -> Option<&str> {
        self.end.is_none().then_some(&self.token)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.calls.forget(&self.token, End::Left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn shown(tool: &str) -> Shown {
        let now = SystemTime::UNIX_EPOCH;
        let (arguments, readable) = ("{}".to_owned(), "{}".to_owned());
        Shown {
            why: None,
            tool: tool.to_owned(),
            arguments,
            readable,
            conversation: "c".to_owned(),
            since: now,
            expires: now,
        }
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn held(calls: &Arc<HeldCalls>, tool: &str) -> (Ticket, String) {
        let ticket = calls.hold("ann", shown(tool), later());
        let token = ticket.token.clone();
        (ticket, token)
    }

    /// Why an answer came too late.
    fn why(answer: Result<Shown, Option<Ended>>) -> Option<End> {
        answer.expect_err("it was too late").map(|ended| ended.end)
    }

    #[tokio::test]
    async fn the_answer_says_who_decided_and_why() {
        let calls = Arc::<HeldCalls>::default();
        let (mut ticket, token) = held(&calls, "pay");
        assert_eq!(ticket.token(), Some(token.as_str()));
        let spoken = Spoken { approve: false, approver: Some("ann".into()), reason: Some("too much".into()) };
        calls.answer(&token, spoken.clone()).unwrap();
        assert_eq!((ticket.decision().await, ticket.spoken()), (End::Declined, Some(&spoken)));
        let ended = calls.answer(&token, true).unwrap_err().unwrap();
        assert_eq!(
            (ended.end, ended.tool.as_str(), ended.approver.as_deref()),
            (End::Declined, "pay", Some("ann"))
        );
        assert_eq!(ticket.token(), None);
    }

    #[tokio::test]
    async fn each_held_call_gets_its_own_decision_exactly_once() {
        let calls = Arc::<HeldCalls>::default();
        let (mut pay, pay_token) = held(&calls, "pay");
        let (mut delete, delete_token) = held(&calls, "delete");
        let names: Vec<String> = calls.list().into_iter().map(|(_, shown)| shown.tool).collect();
        assert_eq!(names, ["pay", "delete"], "the oldest first");
        assert_eq!(calls.answer(&delete_token, false).unwrap().tool, "delete");
        assert_eq!(calls.answer(&pay_token, true).unwrap().tool, "pay");
        assert_eq!((pay.decision().await, delete.decision().await), (End::Approved, End::Declined));
        assert_eq!(why(calls.answer(&delete_token, true)), Some(End::Declined), "a word is said once");
        assert_eq!(why(calls.answer(&"0".repeat(32), true)), None);
        assert_eq!((calls.count(), pay.decision().await), (0, End::Approved));
    }

    #[test]
    fn tokens_are_128_random_bits() {
        let calls = Arc::<HeldCalls>::default();
        let tokens: Vec<String> = (0..100).map(|_| held(&calls, "pay").1).collect();
        let mut distinct = tokens.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), tokens.len());
        assert!(
            tokens
                .iter()
                .all(|token| token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()))
        );
    }

    #[tokio::test]
    async fn nobody_answers_a_call_whose_time_is_over_or_whose_client_left() {
        let calls = Arc::<HeldCalls>::default();
        let mut brief = calls.hold("ann", shown("pay"), Instant::now() + Duration::from_millis(5));
        let token = brief.token.clone();
        assert_eq!(brief.decision().await, End::Expired);
        assert_eq!(why(calls.answer(&token, true)), Some(End::Expired));
        let (gone, token) = held(&calls, "pay");
        drop(gone);
        assert_eq!(why(calls.answer(&token, true)), Some(End::Left));
        assert_eq!(calls.count(), 0);
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_and_taken_up_again_loses_no_word() {
        let calls = Arc::<HeldCalls>::default();
        let (mut ticket, token) = held(&calls, "pay");
        let moment = Instant::now() + Duration::from_millis(1);
        assert!(timeout_at(moment, ticket.decision()).await.is_err());
        calls.answer(&token, true).unwrap();
        assert_eq!(ticket.decision().await, End::Approved);
    }

    #[tokio::test]
    async fn a_pause_ends_when_its_time_has_come_or_at_a_stop() {
        let calls = Arc::<HeldCalls>::default();
        let until = Instant::now() + Duration::from_millis(5);
        assert!(calls.pause(until).is_over().await && Instant::now() >= until);
        let mut cut = calls.pause(later());
        let moment = Instant::now() + Duration::from_millis(1);
        assert!(timeout_at(moment, cut.is_over()).await.is_err(), "given up, and taken up again");
        calls.stop();
        assert!(!cut.is_over().await && !calls.pause(later()).is_over().await);
        assert_eq!(calls.list().len(), 0, "nobody is asked");
    }

    #[tokio::test]
    async fn one_caller_cannot_take_the_places_of_all_others() {
        let calls = Arc::<HeldCalls>::default();
        let _anns: Vec<Ticket> = (0..MOST_WAITING).map(|_| held(&calls, "pay").0).collect();
        assert_eq!(calls.count(), MOST_WAITING as u64 / 2);
        let mut bobs = calls.hold("bob", shown("pay"), later());
        let token = bobs.token.clone();
        calls.answer(&token, true).unwrap();
        assert_eq!(bobs.decision().await, End::Approved);
        let crowd = (0..MOST_WAITING).map(|nth| calls.hold(&format!("caller {nth}"), shown("pay"), later()));
        let crowd: Vec<Ticket> = crowd.collect();
        assert_eq!((calls.count(), crowd.len()), (MOST_WAITING as u64, MOST_WAITING));
    }

    #[tokio::test]
    async fn a_stop_ends_every_wait_and_too_many_do_not_wait() {
        let calls = Arc::<HeldCalls>::default();
        let mut tickets: Vec<Ticket> = (0..MOST_WAITING / 2).map(|_| held(&calls, "pay").0).collect();
        assert_eq!(held(&calls, "pay").0.decision().await, End::Refused);
        calls.stop();
        assert_eq!(tickets[0].decision().await, End::Stopped);
        assert_eq!(held(&calls, "pay").0.decision().await, End::Stopped);
        assert_eq!(calls.count(), 0);
    }
}
