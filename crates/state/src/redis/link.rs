//! The connection to the shared state store, with a circuit breaker: made and kept by its own task, given up after a
//! few failures, so that a state store that is away or slow never delays requests for long. While the circuit is open,
//! nothing is asked; after a cool-down its task, and no request, makes one probe. Knows nothing of the commands.

use super::breaker::Breaker;
use crate::observer::Observer;
use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::{Arg, AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, Value, pipe};
use model::store_health::{Circuit, StoreOp};
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

/// Refusals of a Redis Cluster: a key lies on another of its servers, or two keys of one command on different ones.
const CLUSTER: [&str; 4] = ["MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN"];
/// A key that holds something else: that record is lost, and the others are read.
const OTHER_TYPE: &str = "WRONGTYPE";
/// The commands that read. Others in a look-up are writes, whose refusals are noted apart.
const READS: [&[u8]; 8] =
    [b"GET", b"MGET", b"LRANGE", b"ZRANGE", b"ZREVRANGE", b"ZSCORE", b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE"];

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// It would answer, and share nothing.
    #[error(
        "a Redis Cluster spreads keys over servers, and toolrein reads and writes those of a request together: it needs \
         a single Redis, with cluster mode off (replicas and failover are fine)"
    )]
    Cluster,
    /// The server's error code, or what the connection failed with, without credentials.
    #[error("{0}")]
    Other(String),
}

/// The state store did not answer, or the link is not in use now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Away {
    TooSlow,
    Gone,
}

/// See the module's documentation.
pub(super) struct Link {
    client: Client,
    /// Two keys of toolrein's that lie on different servers of a cluster, where there is one.
    probes: [String; 2],
    /// The timeout of an answer.
    within: Duration,
    // A std mutex: held for assignments alone.
    state: Mutex<State>,
    /// Whether it is in use; unknown until the first attempt.
    is_up: watch::Sender<Option<bool>>,
    observer: Arc<dyn Observer>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of the connection, so that one is not given up for a failure of an earlier one.
    nth: u64,
    breaker: Breaker,
    /// Why writes are refused, and when the last one was. Kept across connections.
    refused: Option<(String, Instant)>,
    /// The command of look-ups that is refused. Kept across connections.
    unread: Option<Vec<u8>>,
    is_cluster: bool,
    /// It was said that transactions are refused.
    is_apart_told: bool,
}

impl Link {
    /// No connection yet: [`Self::keep`] makes it.
    pub(super) fn new(client: Client, prefix: &str, within: Duration, observer: Arc<dyn Observer>) -> Self {
        observer.store_answers(false);
        observer.store_breaker(Circuit::Open);
        let probes = probes(prefix);
        Self { client, probes, within, state: Mutex::default(), is_up: watch::Sender::new(None), observer }
    }

    /// Whether the last attempt to connect found a Redis Cluster.
    pub(super) fn is_cluster(&self) -> bool {
        self.lock().is_cluster
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
                match refused_read(commands, &values) {
                    Some((code, command)) => self.refused_read(nth, op, code, command),
                    None => {
                        self.reads_again(commands);
                        Ok(values)
                    }
                }
            }
            Ok(Ok(_)) => self.failed(nth, op, Away::Gone, "an answer is missing"),
            Ok(Err(error)) => self.failed(nth, op, Away::Gone, &reason(&error)),
            Err(_) => self.failed(nth, op, Away::TooSlow, "too slow"),
        }
    }

    /// Notes that the state store answered, and refused to read: what replicas share is not known. Logs the first refusal.
    fn refused_read<T>(&self, nth: u64, op: StoreOp, code: &str, command: &[u8]) -> Result<T, Away> {
        if CLUSTER.contains(&code) {
            return self.failed(nth, op, Away::Gone, code);
        }
        self.count(op, 1);
        let was = self.lock().unread.replace(command.to_vec());
        self.observer.store_answers(false);
        if was.is_none() {
            tracing::warn!(
                cause = code,
                "the shared state store refuses look-ups; going on without what other replicas know"
            );
        }
        Err(Away::Gone)
    }

    /// Notes that `commands` were answered. Logs the first answer to the command that was refused.
    fn reads_again(&self, commands: &Pipeline) {
        let mut state = self.lock();
        let has = |refused: &mut Vec<u8>| {
            commands.cmd_iter().any(|command| name_of(command) == Some(refused.as_slice()))
        };
        if state.unread.take_if(has).is_some() {
            self.observer.store_answers(state.is_well());
            drop(state);
            tracing::info!("the shared state store takes look-ups again");
        }
    }

    /// Counts errors.
    pub(super) fn count(&self, op: StoreOp, count: u64) {
        self.observer.count_store_errors(op, count);
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
                self.observer.store_answers(state.is_well());
                drop(state);
                tracing::info!("the shared state store takes writes again");
                false
            }
            (Some(cause), was) => {
                state.refused = Some((cause.to_owned(), Instant::now()));
                self.observer.store_answers(false);
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

    /// Notes that commands that belong together ran each by itself. Logs the first time.
    pub(super) fn refused_transaction(&self, cause: &str) {
        self.count(StoreOp::Reserve, 1);
        if !std::mem::replace(&mut self.lock().is_apart_told, true) {
            tracing::warn!(
                cause,
                "the shared state store refuses transactions (MULTI, EXEC): limits may be exceeded by requests at the same time"
            );
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
            self.observer.store_breaker(Circuit::HalfOpen);
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
                Err(error) => {
                    self.count(StoreOp::Connect, 1);
                    self.observer.store_breaker(Circuit::Open);
                    let is_cluster = error == ConnectError::Cluster;
                    let is_new = is_cluster && !std::mem::replace(&mut self.lock().is_cluster, is_cluster);
                    self.is_up.send_replace(Some(false));
                    if is_new {
                        tracing::error!(%error, "the shared state store cannot be used; going on without it");
                    } else if !is_told {
                        tracing::warn!(reason = %error, "the shared state store does not answer; going on without it");
                    }
                    is_told = true;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A connection with timeouts, to a server that reads what toolrein reads.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, ConnectError> {
        let mut connection = self.open().await.map_err(ConnectError::Other)?;
        let mut commands = ping();
        commands.cmd("MGET").arg(&self.probes);
        // A user without the right to it gets an error instead.
        commands.cmd("INFO");
        let answer = timeout(self.within, connection.req_packed_commands(&commands, 0, commands.len())).await;
        let answer = answer.map_err(|_| ConnectError::Other("too slow".to_owned()))?;
        examine(&answer.map_err(|error| ConnectError::Other(reason(&error)))?)?;
        Ok(connection)
    }

    async fn open(&self) -> Result<MultiplexedConnection, String> {
        // Each command has its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = timeout(CONNECT_WITHIN, connecting).await.map_err(|_| "no connection".to_owned())?;
        connection.map_err(|error| reason(&error))
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
        self.observer.store_breaker(Circuit::Closed);
        state.is_cluster = false;
        let is_well = state.is_well();
        self.observer.store_answers(is_well);
        drop(state);
        self.is_up.send_replace(Some(true));
        // Otherwise this is a retry of the server that refuses writes or look-ups.
        if is_well {
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
            self.observer.store_breaker(Circuit::Open);
            self.observer.store_answers(false);
            let is_told = state.refused.is_some() || state.unread.is_some();
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

impl State {
    /// Whether there is a connection, and neither writes nor look-ups are refused.
    fn is_well(&self) -> bool {
        self.connection.is_some() && self.refused.is_none() && self.unread.is_none()
    }
}

/// The code with which the server refused to read, and the command, where it did.
fn refused_read<'a>(commands: &'a Pipeline, values: &'a [Value]) -> Option<(&'a str, &'a [u8])> {
    values.iter().zip(commands.cmd_iter()).find_map(|(value, command)| {
        let Value::ServerError(error) = value else { return None };
        let name = name_of(command)?;
        let is_read = READS.contains(&name) && error.code() != OTHER_TYPE;
        (is_read || CLUSTER.contains(&error.code())).then_some((error.code(), name))
    })
}

fn name_of(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().next() {
        Some(Arg::Simple(name)) => Some(name),
        _ => None,
    }
}

/// Two keys that lie on different servers of a cluster, unless the prefix holds a hash tag.
fn probes(prefix: &str) -> [String; 2] {
    [1, 2].map(|nth| format!("{prefix}probe:{nth}"))
}

/// Whether the answers to PING, MGET and INFO are those of a server that toolrein can use.
fn examine(answers: &[Value]) -> Result<(), ConnectError> {
    let code = |value: &Value| match value {
        Value::ServerError(error) => Some(error.code().to_owned()),
        _ => None,
    };
    let is_cluster = answers.iter().filter_map(code).any(|code| CLUSTER.contains(&code.as_str()));
    if is_cluster || answers.last().is_some_and(names_a_cluster) {
        return Err(ConnectError::Cluster);
    }
    let mut needed = answers.iter().take(2);
    needed.find_map(code).map_or(Ok(()), |code| Err(ConnectError::Other(code)))
}

/// Whether an answer to INFO says that cluster mode is on.
fn names_a_cluster(info: &Value) -> bool {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.into(),
        _ => return false,
    };
    text.lines().any(|line| ["redis_mode:cluster", "cluster_enabled:1"].contains(&line.trim_end()))
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
