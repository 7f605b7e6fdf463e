//! The connection to the shared ledger: made and kept by a task of its own, given up after a few failures, so that a
//! ledger that is away or slow never keeps requests waiting for long. Knows nothing of what is asked.

use crate::telemetry::ledger::LedgerOp;
use crate::telemetry::metrics::Metrics;
use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, Value, pipe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Failures in a row after which nobody asks any more until it answers again: what slowness may cost requests.
const MOST_FAILURES: u32 = 3;
/// How often an idle connection is tried, so that a ledger that is gone is known before it is needed.
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// The pause before it is tried again: doubled up to the longest, and short again once it was steady for a while.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const STEADY: Duration = Duration::from_secs(10);
/// How long connecting may take: nobody waits for it.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Refusals of any write: memory is full, no disk takes the data, this is no longer the server to write to, the user may
/// not write, too few replicas follow. Another error concerns one record.
pub(super) const REFUSING: [&str; 5] = ["OOM", "MISCONF", "READONLY", "NOPERM", "NOREPLICAS"];
/// Where a user may write some kinds of records and not others, a write that is taken says little: only after this long
/// without a refusal.
const PERMITTED_AFTER: Duration = Duration::from_secs(5);

/// It did not answer, or is not asked now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Away {
    TooSlow,
    Gone,
}

/// See the file's head.
pub(super) struct Link {
    client: Client,
    /// How long an answer may take.
    within: Duration,
    // A std mutex: held for assignments alone.
    state: Mutex<State>,
    /// Whether it is asked at present; unknown until it was tried once.
    is_up: watch::Sender<Option<bool>>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Which connection it is, so that one is not given up for what an earlier one did.
    nth: u64,
    /// In a row.
    failures: u32,
    /// Why writes are refused, and since when the last one was. Stays over connections.
    refused: Option<(String, Instant)>,
}

impl Link {
    /// No connection yet: [`Self::keep`] makes it.
    pub(super) fn new(client: Client, within: Duration, metrics: Arc<Metrics>) -> Self {
        metrics.ledger_answers(false);
        Self { client, within, state: Mutex::default(), is_up: watch::Sender::new(None), metrics }
    }

    /// The answers to `commands`, one each. A command that the ledger refuses has its error as answer.
    pub(super) async fn ask(&self, commands: &Pipeline, op: LedgerOp) -> Result<Vec<Value>, Away> {
        self.ask_within(commands, op, self.within).await
    }

    /// The same with another patience.
    pub(super) async fn ask_within(
        &self,
        commands: &Pipeline,
        op: LedgerOp,
        within: Duration,
    ) -> Result<Vec<Value>, Away> {
        let (mut connection, nth) = self.connection().ok_or(Away::Gone)?;
        let answer = timeout(within, connection.req_packed_commands(commands, 0, commands.len())).await;
        match answer {
            Ok(Ok(values)) if values.len() == commands.len() => {
                self.lock().failures = 0;
                Ok(values)
            }
            Ok(Ok(_)) => self.failed(nth, op, Away::Gone, "an answer is missing"),
            Ok(Err(error)) => self.failed(nth, op, Away::Gone, &reason(&error)),
            Err(_) => self.failed(nth, op, Away::TooSlow, "too slow"),
        }
    }

    /// Counts what went wrong.
    pub(super) fn count(&self, op: LedgerOp, count: u64) {
        self.metrics.count_ledger_errors(op, count);
    }

    /// Learns that a write was refused with this code, or taken; whether writes are refused. The first refusal is logged,
    /// and that they are taken again.
    pub(super) fn heard_of_writes(&self, refused: Option<&str>) -> bool {
        let refused = refused.filter(|code| REFUSING.contains(code));
        let mut state = self.lock();
        let was = state.refused.take();
        match (refused, was) {
            (None, None) => false,
            (None, Some((cause, last))) if cause == "NOPERM" && last.elapsed() < PERMITTED_AFTER => {
                state.refused = Some((cause, last));
                false
            }
            (None, Some(_)) => {
                self.metrics.ledger_answers(state.connection.is_some());
                drop(state);
                tracing::info!("the shared ledger takes writes again");
                false
            }
            (Some(cause), was) => {
                state.refused = Some((cause.to_owned(), Instant::now()));
                self.metrics.ledger_answers(false);
                drop(state);
                if was.is_none() {
                    tracing::warn!(
                        cause,
                        "the shared ledger refuses writes; other replicas do not learn of calls"
                    );
                }
                true
            }
        }
    }

    /// Waits until the ledger is there.
    pub(super) async fn rises(&self) {
        self.comes_to(|is_up| is_up == Some(true)).await;
    }

    /// Waits until it was tried once.
    pub(super) async fn is_tried(&self) {
        self.comes_to(|is_up| is_up.is_some()).await;
    }

    async fn comes_to(&self, is_so: impl Fn(Option<bool>) -> bool) {
        // It is told as long as this is there.
        let _ = self.is_up.subscribe().wait_for(|is_up| is_so(*is_up)).await;
    }

    /// Connects, and again whenever the connection was given up. Never ends.
    pub(super) async fn keep(&self) {
        let mut pause = SHORTEST_PAUSE;
        let mut is_told = false;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    let since = Instant::now();
                    self.rise(connection);
                    self.watch_over().await;
                    is_told = true;
                    if since.elapsed() >= STEADY {
                        pause = SHORTEST_PAUSE;
                    }
                }
                Err(reason) => {
                    self.count(LedgerOp::Connect, 1);
                    self.is_up.send_replace(Some(false));
                    if !is_told {
                        tracing::warn!(reason, "the shared ledger does not answer; going on without it");
                    }
                    is_told = true;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A connection that answers as quickly as it must.
    async fn connect(&self) -> Result<MultiplexedConnection, String> {
        // Each question has a bound of its own.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = timeout(CONNECT_WITHIN, connecting).await.map_err(|_| "no connection".to_owned())?;
        let mut connection = connection.map_err(|error| reason(&error))?;
        let ping = ping();
        let answer = timeout(self.within, connection.req_packed_commands(&ping, 0, 1)).await;
        match answer.map_err(|_| "too slow".to_owned())?.map_err(|error| reason(&error))?.as_slice() {
            [Value::ServerError(error)] => Err(error.code().to_owned()),
            _ => Ok(connection),
        }
    }

    /// Waits until the connection is given up.
    async fn watch_over(&self) {
        let fallen = self.comes_to(|is_up| is_up == Some(false));
        tokio::pin!(fallen);
        while timeout(TRIED_EVERY, &mut fallen).await.is_err() {
            // What comes of it is told by the connection's state.
            let _ = self.ask(&ping(), LedgerOp::Connect).await;
        }
    }

    fn connection(&self) -> Option<(MultiplexedConnection, u64)> {
        let state = self.lock();
        state.connection.clone().map(|connection| (connection, state.nth))
    }

    fn rise(&self, connection: MultiplexedConnection) {
        let mut state = self.lock();
        (state.connection, state.nth, state.failures) = (Some(connection), state.nth + 1, 0);
        let takes_writes = state.refused.is_none();
        self.metrics.ledger_answers(takes_writes);
        drop(state);
        self.is_up.send_replace(Some(true));
        // Else this is the server that refuses writes, tried again.
        if takes_writes {
            tracing::info!("the shared ledger answers");
        }
    }

    /// Counts a failure of the `nth` connection and gives it up if it is gone, or has failed too often.
    fn failed<T>(&self, nth: u64, op: LedgerOp, away: Away, reason: &str) -> Result<T, Away> {
        self.count(op, 1);
        let mut state = self.lock();
        if state.nth != nth || state.connection.is_none() {
            return Err(away);
        }
        state.failures += 1;
        let is_over = matches!(away, Away::Gone) || state.failures >= MOST_FAILURES;
        drop(state);
        if is_over {
            self.give_up(reason);
        }
        Err(away)
    }

    /// Gives the connection up; another is made after a pause.
    pub(super) fn give_up(&self, reason: &str) {
        let mut state = self.lock();
        if state.connection.take().is_some() {
            self.metrics.ledger_answers(false);
            let is_told = state.refused.is_some();
            drop(state);
            self.is_up.send_replace(Some(false));
            if !is_told {
                tracing::warn!(reason, "the shared ledger does not answer; going on without it");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ping() -> Pipeline {
    let mut ping = pipe();
    ping.cmd("PING");
    ping
}

/// Why, in words that hold no credential and nothing of what was asked.
fn reason(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed, Some(code)) => {
            format!("{} ({code})", error.category())
        }
        _ => error.category().to_owned(),
    }
}
