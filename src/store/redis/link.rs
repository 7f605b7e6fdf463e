//! The connection to the shared state store, with a circuit breaker: made and kept by its own task, given up after a
//! few failures, so that a state store that is away or slow never delays requests for long. While the circuit is open,
//! nothing is asked; after a cool-down its task, and no request, makes one probe. Knows nothing of the commands.

use super::breaker::Breaker;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::store::{Circuit, StoreOp};
use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, Value, pipe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// How often an idle connection is checked, so that the loss of the state store is noticed before a request needs it.
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// The cool-down before a probe: doubled up to the longest, and short again after a steady while.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const STEADY: Duration = Duration::from_secs(10);
/// The timeout of connecting: nobody waits for it.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Refusals of any write: memory is full, the disk cannot be written, this is no longer the primary, the user may not
/// write, too few replicas follow. Other errors concern one record.
pub(super) const REFUSING: [&str; 5] = ["OOM", "MISCONF", "READONLY", "NOPERM", "NOREPLICAS"];
/// Where a user may write only some kinds of records, one accepted write proves little: writes count as accepted only
/// after this long without a refusal.
const PERMITTED_AFTER: Duration = Duration::from_secs(5);

/// The state store did not answer, or the link is not in use now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Away {
    TooSlow,
    Gone,
}

/// See the module's documentation.
pub(super) struct Link {
    client: Client,
    /// The timeout of an answer.
    within: Duration,
    // A std mutex: held for assignments alone.
    state: Mutex<State>,
    /// Whether it is in use; unknown until the first attempt.
    is_up: watch::Sender<Option<bool>>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of the connection, so that one is not given up for a failure of an earlier one.
    nth: u64,
    breaker: Breaker,
    /// Why writes are refused, and when the last one was. Kept across connections.
    refused: Option<(String, Instant)>,
}

impl Link {
    /// No connection yet: [`Self::keep`] makes it.
    pub(super) fn new(client: Client, within: Duration, metrics: Arc<Metrics>) -> Self {
        metrics.store_answers(false);
        metrics.store_breaker(Circuit::Open);
        Self { client, within, state: Mutex::default(), is_up: watch::Sender::new(None), metrics }
    }

    /// The answers to `commands`, one each. For a command that the state store refuses, the answer is its error.
    pub(super) async fn ask(&self, commands: &Pipeline, op: StoreOp) -> Result<Vec<Value>, Away> {
        self.ask_within(commands, op, self.within).await
    }

    /// As [`Self::ask`], with another timeout.
    pub(super) async fn ask_within(
        &self,
        commands: &Pipeline,
        op: StoreOp,
        within: Duration,
    ) -> Result<Vec<Value>, Away> {
        let (mut connection, nth) = self.connection().ok_or(Away::Gone)?;
        let answer = timeout(within, connection.req_packed_commands(commands, 0, commands.len())).await;
        match answer {
            Ok(Ok(values)) if values.len() == commands.len() => {
                self.lock().breaker.answered(Instant::now());
                Ok(values)
            }
            Ok(Ok(_)) => self.failed(nth, op, Away::Gone, "an answer is missing"),
            Ok(Err(error)) => self.failed(nth, op, Away::Gone, &reason(&error)),
            Err(_) => self.failed(nth, op, Away::TooSlow, "too slow"),
        }
    }

    /// Counts errors.
    pub(super) fn count(&self, op: StoreOp, count: u64) {
        self.metrics.count_store_errors(op, count);
    }

    /// Notes that a write was refused with this code, or accepted; returns whether writes are refused. Logs the first
    /// refusal, and the first accepted write after it.
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
                self.metrics.store_answers(state.connection.is_some());
                drop(state);
                tracing::info!("the shared state store takes writes again");
                false
            }
            (Some(cause), was) => {
                state.refused = Some((cause.to_owned(), Instant::now()));
                self.metrics.store_answers(false);
                drop(state);
                if was.is_none() {
                    tracing::warn!(
                        cause,
                        "the shared state store refuses writes; other replicas do not learn of calls"
                    );
                }
                true
            }
        }
    }

    /// Waits until the state store is there.
    pub(super) async fn rises(&self) {
        self.comes_to(|is_up| is_up == Some(true)).await;
    }

    /// Waits until the first attempt has ended.
    pub(super) async fn is_tried(&self) {
        self.comes_to(|is_up| is_up.is_some()).await;
    }

    async fn comes_to(&self, is_so: impl Fn(Option<bool>) -> bool) {
        // The sender lives as long as this does.
        let _ = self.is_up.subscribe().wait_for(|is_up| is_so(*is_up)).await;
    }

    /// Connects, and reconnects whenever the connection was given up. Never ends.
    pub(super) async fn keep(&self) {
        let mut pause = SHORTEST_PAUSE;
        let mut is_told = false;
        loop {
            self.metrics.store_breaker(Circuit::HalfOpen);
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
                    self.count(StoreOp::Connect, 1);
                    self.metrics.store_breaker(Circuit::Open);
                    self.is_up.send_replace(Some(false));
                    if !is_told {
                        tracing::warn!(reason, "the shared state store does not answer; going on without it");
                    }
                    is_told = true;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A connection with timeouts.
    async fn connect(&self) -> Result<MultiplexedConnection, String> {
        // Each command has its own timeout.
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
            // The connection's state shows the result.
            let _ = self.ask(&ping(), StoreOp::Connect).await;
        }
    }

    fn connection(&self) -> Option<(MultiplexedConnection, u64)> {
        let state = self.lock();
        state.connection.clone().map(|connection| (connection, state.nth))
    }

    fn rise(&self, connection: MultiplexedConnection) {
        let mut state = self.lock();
        (state.connection, state.nth, state.breaker) = (Some(connection), state.nth + 1, Breaker::default());
        self.metrics.store_breaker(Circuit::Closed);
        let takes_writes = state.refused.is_none();
        self.metrics.store_answers(takes_writes);
        drop(state);
        self.is_up.send_replace(Some(true));
        // Otherwise this is a retry of the server that refuses writes.
        if takes_writes {
            tracing::info!("the shared state store answers");
        }
    }

    /// Counts a failure of the `nth` connection, and gives it up if it is gone or has failed too often.
    fn failed<T>(&self, nth: u64, op: StoreOp, away: Away, reason: &str) -> Result<T, Away> {
        self.count(op, 1);
        let mut state = self.lock();
        if state.nth != nth || state.connection.is_none() {
            return Err(away);
        }
        let opens = state.breaker.failed(Instant::now());
        let is_over = matches!(away, Away::Gone) || opens;
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
            self.metrics.store_breaker(Circuit::Open);
            self.metrics.store_answers(false);
            let is_told = state.refused.is_some();
            drop(state);
            self.is_up.send_replace(Some(false));
            if !is_told {
                tracing::warn!(reason, "the shared state store does not answer; going on without it");
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

/// The reason, without credentials or the content of commands.
fn reason(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed, Some(code)) => {
            format!("{} ({code})", error.category())
        }
        _ => error.category().to_owned(),
    }
}
