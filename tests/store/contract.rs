//! The contract of every state store, tested on memory, on a Redis, and on the state stores of two programs that
//! share one Redis.

use crate::faults::delay;
use crate::server::{SECRET, Server};
use bytes::Bytes;
use dialects::hidden_exchange::is_hidden_exchange;
use engine::Now;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use model::Stopped;
use model::account::{Carried, KINDS, Kind, Marks, Pin, Sums, Tally};
use model::adaptation::{Adaptation, Adaptations};
use model::assembled::Assembled;
use model::fact::{Answers, Batch, Fact, RecordKind, Ticket, Writes};
use model::identity::{Hash, HashKey};
use model::pins::{MOST_PINS, Pinned};
use model::plan::ReservationResult;
use model::plan::approval::Confirmation;
use model::released::{NOTHING_HIDDEN, Release};
use model::store::{
    ApprovedCall, CallReservation, CallReservationResult, Claim, Evidence, HiddenExchange, LengthRefusal,
    MOST_EVIDENCE, Quota, QuotaCall, SentExchanges, Stop, UpstreamRecord, return_reservations,
};
use model::uses::Use;
use state::StateStore;
use state::memory::{Bounds, Memory};
use state::observer::Observer;
use state::redis::records::{Seals, StoreKeys};
use state::redis::{Redis, Settings};
use state::stops::{Listed, MOST_STOPS, StopError};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolrein::telemetry::metrics::Metrics;
use toolrein::telemetry::tools::OwnSeries;

/// A state store that facts are recorded in, and one that is asked: the same one, or two that share a Redis.
struct Pair {
    told: Arc<dyn StateStore>,
    asked: Arc<dyn StateStore>,
}

/// The three kinds, each empty. The server has to outlive them.
async fn pairs() -> (Server, [Pair; 3]) {
    let server = Server::start();
    let memory: Arc<dyn StateStore> = Arc::new(Memory::new(&bounds()));
    let [alone, one, other] =
        [open(&server, "alone:").await, open(&server, "both:").await, open(&server, "both:").await];
    let same = |store: &Arc<dyn StateStore>| Pair { told: Arc::clone(store), asked: Arc::clone(store) };
    let pairs = [same(&memory), same(&alone), Pair { told: one, asked: other }];
    (server, pairs)
}

fn bounds() -> Bounds {
    let hour = Duration::from_secs(3600);
    Bounds {
        calls: 10_000,
        hidden_exchange_bytes: 10_000_000,
        conversations: 1_000,
        lifetime: hour,
        refusals: hour,
    }
}

fn evidence(caller: u128) -> Evidence {
    let refused = Adaptation::Tools.into();
    Evidence { caller: Hash(caller), refused, accepted: Adaptations::empty(), at_ms: 5 }
}

async fn open(server: &Server, prefix: &str) -> Arc<dyn StateStore> {
    open_at(server.port(), prefix).await.0
}

fn keys() -> StoreKeys {
    let records: [u8; 32] = SECRET.as_bytes().try_into().unwrap();
    StoreKeys { names: HashKey::of(records), records }
}

/// The state store, with the metrics that it updates.
async fn open_at(port: u16, prefix: &str) -> (Arc<dyn StateStore>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(OwnSeries::none()).unwrap());
    let keys = keys();
    let url = format!("redis://:pass-of-the-tests@127.0.0.1:{port}");
    let (prefix, timeout) = (prefix.to_owned(), Duration::from_secs(10));
    let settings = Settings { url, keys, prefix, timeout, bounds: bounds(), is_hidden_exchange };
    let store = Redis::open(settings, Arc::clone(&metrics) as Arc<dyn Observer>).unwrap();
    wait_for("the state store to answer", async || metrics.render().contains("\ntoolrein_store_up 1\n"))
        .await;
    (Arc::new(store), metrics)
}

async fn wait_for(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited for {what}");
}

fn batch() -> Batch {
    Batch::new(at(1_000))
}

/// A batch that asks for facts under these keys, with the ticket.
fn asking<F: Fact, const N: usize>(keys: [u128; N]) -> (Batch, Ticket<F>) {
    let mut batch = batch();
    let ticket = batch.ask(keys.map(Hash));
    (batch, ticket)
}

/// What the state store knows under these keys.
async fn known<F: Fact, const N: usize>(store: &Arc<dyn StateStore>, keys: [u128; N]) -> Vec<Vec<F>> {
    let (batch, ticket) = asking(keys);
    store.look_up(batch).await.lists(&ticket)
}

/// So many ms after the epoch.
fn at(ms: u64) -> Now {
    Now { at: Instant::now(), ms }
}

impl Pair {
    /// Records `writes`, and waits until a look-up gives the expected answers.
    async fn tells(
        &self,
        writes: impl IntoIterator<Item = Writes>,
        batch: Batch,
        is_so: impl Fn(&Answers) -> bool,
    ) {
        writes.into_iter().for_each(|writes| self.told.record(writes));
        let is_known = async || is_so(&self.asked.look_up(batch.clone()).await);
        wait_for("what was told to be known", is_known).await;
        assert!(is_so(&self.told.look_up(batch).await), "who told it knows it too");
    }

    /// Records facts, and waits until a look-up gives these under the keys.
    async fn knows<F: Fact, const N: usize>(
        &self,
        writes: impl IntoIterator<Item = Writes>,
        keys: [u128; N],
        expected: [Vec<F>; N],
    ) {
        let (batch, ticket) = asking::<F, N>(keys);
        self.tells(writes, batch, |answers| answers.lists(&ticket) == expected && !answers.away).await;
    }
}

/// A call of the quota 1 with the key `call`.
fn used(call: u128, at_ms: u64) -> QuotaCall {
    let quota = Quota { name: Hash(1), calls: 9, window_ms: 3_600_000 };
    QuotaCall { quota, call: Hash(call), request: Hash(7), again: None, at_ms }
}

fn round(key: u128, text: &str) -> HiddenExchange {
    let messages = format!("{{\"role\":\"assistant\",\"content\":\"{text}\"}}");
    HiddenExchange { message_key: Hash(key), messages: Bytes::from(messages) }
}

fn hidden(place: u128, round: HiddenExchange) -> Writes {
    Writes::from_fact(Hash(place), round)
}

/// A process that left older states of its part would push out the parts of other processes.
#[tokio::test]
async fn a_process_has_one_part_of_a_sum_however_many_requests_end_at_once() {
    let server = Server::start();
    let (store, reader) = (open(&server, "parts:").await, open(&server, "parts:").await);
    let one = Tally { sums: Sums::default().with(Kind::Calls, 1), ..Tally::default() };
    let requests = [(); 8].map(|()| {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for _ in 0..200 {
                store.record(Writes { tallied: vec![(Hash(1), one)], ..Writes::default() });
            }
        })
    });
    requests.into_iter().for_each(|request| request.join().unwrap());
    let batch = Batch { sums: vec![Hash(1)], ..batch() };
    let all = [Tally { sums: Sums::default().with(Kind::Calls, 1_600), ..Tally::default() }];
    wait_for("all of the sum", async || reader.look_up(batch.clone()).await.sums == all).await;
    // The store keeps other records of its own under the prefix.
    let is_sum = |key: &String| server.ask::<String>(&["TYPE", key]) == "zset";
    let key = server.keys().into_iter().find(is_sum).unwrap();
    wait_for("one part", async || server.ask::<usize>(&["ZCARD", &key]) == 1).await;
}

#[tokio::test]
async fn definitions_are_kept_in_the_order_in_which_they_were_seen_first() {
    let pin = |tool: u128, definition: u128| Pinned { tool: Hash(tool), definition: Hash(definition) };
    let seen = |key: u128, pins: &[Pinned], at_ms: u64| {
        let mut writes = Writes { seen_ms: at_ms, ..Writes::default() };
        writes.extend(pins.iter().map(|pin| (Hash(key), *pin)));
        writes
    };
    let (_server, pairs) = pairs().await;
    for pair in pairs {
        pair.knows([seen(1, &[pin(7, 1)], 10)], [1], [vec![pin(7, 1)]]).await;
        // A definition that was seen before keeps its position, whichever process reports it again.
        let later =
            [seen(1, &[pin(7, 2), pin(8, 1)], 20), seen(1, &[pin(7, 1)], 30), seen(2, &[pin(7, 3)], 40)];
        let all = [pin(7, 1), pin(7, 2), pin(8, 1)];
        let (batch, ticket) = asking([1]);
        let is_so = |answers: &Answers| {
            let pins = answers.records(&ticket);
            pins.first() == all.first() && same(&pins, &all)
        };
        pair.tells(later, batch.clone(), is_so).await;
        pair.knows([], [2], [vec![pin(7, 3)]]).await;
        let many: Vec<Pinned> = (0..=MOST_PINS as u128).map(|at| pin(at, 9)).collect();
        let is_full = |answers: &Answers| answers.records(&ticket).len() == MOST_PINS;
        pair.tells([seen(1, &many, 50)], batch, is_full).await;
        assert_eq!(known::<Pinned, 1>(&pair.asked, [1]).await[0][0], pin(7, 1), "the first ones stay");
    }
}

/// Whether both hold the same; those of one moment have no order.
fn same(one: &[Pinned], other: &[Pinned]) -> bool {
    one.len() == other.len() && one.iter().all(|pin| other.contains(pin))
}

#[tokio::test]
async fn a_record_sent_again_after_a_timeout_is_stored_once() {
    let server = Server::start();
    let (store, metrics) = open_at(server.port(), "").await;
    server.freeze();
    store.record(hidden(1, round(7, "x")));
    let is_late = || metrics.render().contains("toolrein_store_errors_total{op=\"record\"} 1\n");
    wait_for("no answer to come", async || is_late()).await;
    store.record(hidden(2, round(7, "x")));
    server.thaw();
    wait_for("both to be told", async || server.keys().len() == 2).await;
    for key in server.keys() {
        assert_eq!(server.ask::<usize>(&["LLEN", &key]), 1);
    }
}

#[tokio::test]
async fn a_large_backlog_is_written_to_the_store_in_parts() {
    let server = Server::start();
    // Some 400 KB in a second.
    let port = delay(server.port(), Duration::from_millis(10));
    let (store, _) = open_at(port, "").await;
    let long = "x".repeat(20_000);
    (0..64).for_each(|place| store.record(hidden(place, round(7, &long))));
    // The next update is recorded once it is known that these were written.
    let release = Release { context: Hash(7), hidden: NOTHING_HIDDEN, at_ms: 5 };
    store.record(Writes::from_fact(Hash(1), release));
    let is_behind = || server.keys().iter().any(|key| key.starts_with("t:"));
    wait_for("all to be told", async || is_behind()).await;
    assert_eq!(server.keys().len(), 65);
}

#[tokio::test]
async fn no_more_is_read_of_a_quota_than_it_needs() {
    let server = Server::start();
    let [one, other] = [open(&server, "").await, open(&server, "").await];
    let window_ms = 3_600_000;
    for at_ms in 1..=300u64 {
        one.record(Writes { spent: vec![used(at_ms.into(), at_ms)], ..Writes::default() });
    }
    wait_for("all uses to be told", async || {
        let keys = server.keys();
        keys.iter().any(|key| server.ask::<usize>(&["ZCARD", key]) == 300)
    })
    .await;
    let quotas = [Quota { name: Hash(1), calls: 9, window_ms }];
    let read = other.look_up(Batch { quotas: quotas.to_vec(), ..batch() }).await.spent;
    let times: Vec<u64> = read[0].iter().map(|known| known.at_ms).collect();
    assert_eq!(times, (271..=300).collect::<Vec<u64>>(), "enough for nine, tried thrice each");
}

#[tokio::test]
async fn only_a_bounded_part_of_an_oversized_key_is_read() {
    let server = Server::start();
    let store = open(&server, "").await;
    let overflow = LengthRefusal { messages: 1, history: Hash(1), most_chars: None };
    let mut writes = hidden(1, round(7, "x"));
    writes.add(Hash(3), evidence(7));
    writes.add(Hash(2), overflow);
    store.record(writes);
    wait_for("all to be told", async || server.keys().len() == 3).await;
    let junk: Vec<String> = (0..1_000).map(|nth| nth.to_string()).collect();
    for key in server.keys() {
        let words = ["RPUSH", &key].into_iter().chain(junk.iter().map(String::as_str));
        server.ask::<()>(&words.collect::<Vec<_>>());
    }
    let (mut batch, exchanges) = asking::<HiddenExchange, 1>([1]);
    let evidence = batch.ask::<Evidence>([Hash(3), Hash(4)]);
    batch.ask::<LengthRefusal>([Hash(2)]);
    let (other, counted) = open_at(server.port(), "").await;
    let answers = other.look_up(batch).await;
    assert_eq!(
        (answers.records(&exchanges), answers.records(&evidence), answers.away),
        (vec![], vec![], false)
    );
    let unreadable = format!("toolrein_store_errors_total{{op=\"unreadable\"}} {}\n", 64 + 32 + 32);
    assert!(counted.render().contains(&unreadable), "{}", counted.render());
}

/// Runs a case over every kind of state store.
macro_rules! over_every_store {
    ($($name:ident)*) => {$(
        #[tokio::test]
        async fn $name() {
            let (_server, pairs) = pairs().await;
            for pair in pairs {
                cases::$name(&pair).await;
            }
        }
    )*};
}

over_every_store! {
    the_latest_release_of_a_call_is_kept_per_conversation
    a_call_that_two_replicas_hand_out_has_both_times
    hidden_exchanges_are_found_at_their_place_without_duplicates
    the_number_of_hidden_exchanges_at_one_place_is_bounded
    evidence_about_a_model_is_kept_for_all_callers_and_for_each
    the_first_question_is_kept_and_only_one_request_can_claim_it
    a_remembered_approval_is_known_to_every_replica
    a_lost_reply_may_be_fetched_once_more_from_another_replica
    a_lost_reply_may_not_be_fetched_after_a_minute
    an_expired_or_unknown_question_cannot_be_claimed
    the_hidden_exchanges_last_sent_with_a_history_are_remembered
    the_newest_overflows_of_a_conversation_are_known_each_once
    uses_of_a_quota_add_up_and_the_same_call_handed_out_again_counts_once
    as_many_calls_are_reserved_as_a_limit_allows_and_what_is_given_back_can_be_had_again
    an_earlier_use_hands_a_call_out_twice_more_however_many_ask_at_once
    of_look_ups_at_once_each_reads_what_those_before_it_have_added
    a_look_up_that_nobody_waits_for_is_done_at_once_or_taken_back
    a_request_is_repeated_when_it_comes_again
    the_account_as_of_a_reply_is_the_last_one_recorded
    what_is_added_to_a_sum_adds_up_among_replicas
    as_many_calls_as_a_request_may_ask_for_are_found
    a_stop_applies_to_every_replica_until_any_replica_ends_it
    a_stop_ends_by_itself_and_is_prolonged_when_it_is_set_again
    more_stops_than_are_kept_are_refused
}

/// So many rounds of a hundred reservations at once, at two processes, of six calls each. `between` is done after each.
async fn rounds(pair: &Pair, rounds: u128, between: impl AsyncFn(u128)) {
    for round in 0..rounds {
        let reserve = async |store: &Arc<dyn StateStore>, nth: u128| {
            let quota = Quota { name: Hash(1_000 + round), calls: 6, window_ms: 3_600_000 };
            let call = CallReservation::Quota { call: QuotaCall { quota, ..used(nth, 10) }, most: 6 };
            let sum = CallReservation::Sum { key: Hash(1_000 + round), most: 6 };
            store.reserve(&[call, sum]).await
        };
        let all = (0..100).map(|nth| reserve(if nth % 2 == 0 { &pair.told } else { &pair.asked }, nth));
        let all = join_all(all).await;
        for nth in [0, 1] {
            let is_granted = |reserved: &&Vec<CallReservationResult>| {
                matches!(reserved[nth].reserved, ReservationResult::Granted { .. })
            };
            let alone = ReservationResult::Granted { alone: true };
            let is_away = all.iter().any(|reserved| reserved[nth].reserved == alone);
            let granted = all.iter().filter(is_granted).count();
            // While the state store is away, each of the two counts for itself.
            assert!(granted == 6 || (is_away && granted <= 12), "{granted} of {nth} in round {round}");
        }
        between(round).await;
    }
}

#[tokio::test]
async fn in_a_thousand_rounds_of_a_hundred_at_once_each_limit_is_handed_out_exactly() {
    let (_server, pairs) = pairs().await;
    for (pair, count) in pairs.iter().zip([1_000, 20, 1_000]) {
        rounds(pair, count, async |_| {}).await;
    }
}

/// A quota of so many calls an hour, asked about by a look-up.
fn asking_of(calls: usize) -> Batch {
    let quota = Quota { name: Hash(1), calls, window_ms: 3_600_000 };
    Batch { quotas: vec![quota], ..batch() }
}

#[tokio::test]
async fn calls_that_a_store_has_lost_are_stored_again_and_those_beyond_what_is_read_are_not() {
    let server = Server::start();
    let store = open(&server, "").await;
    let stored = || -> usize { server.ask(&["ZCARD", &format!("q:{}", Hash(1))]) };
    for nth in 1..=20 {
        store.record(Writes { spent: vec![used(nth, nth as u64)], ..Writes::default() });
    }
    wait_for("all uses", async || stored() == 20).await;
    server.ask::<()>(&["FLUSHALL"]);
    store.look_up(asking_of(20)).await;
    wait_for("the lost uses", async || stored() == 20).await;
    // Nine are read of a quota of two, and the others are no loss.
    let calls = || -> String { server.ask(&["INFO", "commandstats"]) };
    let added = || calls().lines().find(|line| line.starts_with("cmdstat_zadd")).map(str::to_owned);
    let before = added();
    for _ in 0..3 {
        store.look_up(asking_of(2)).await;
    }
    // What is queued is written in order.
    store.record(Writes::from_fact(Hash(9), ApprovedCall));
    wait_for("what comes after them", async || {
        known::<ApprovedCall, 1>(&store, [9]).await == [vec![ApprovedCall]]
    })
    .await;
    assert_eq!(added(), before);
}

#[tokio::test]
async fn no_limit_is_overrun_by_a_store_that_is_flushed_paused_or_killed_meanwhile() {
    let server = RefCell::new(Server::start());
    let port = server.borrow().port();
    let pair = Pair { told: open_at(port, "both:").await.0, asked: open_at(port, "both:").await.0 };
    rounds(&pair, 30, async |round| match round % 6 {
        1 => server.borrow().ask::<()>(&["FLUSHALL"]),
        3 => {
            server.borrow().freeze();
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.borrow().thaw();
        }
        5 => {
            server.borrow_mut().stop();
            server.borrow_mut().start_again();
        }
        _ => {}
    })
    .await;
}

/// A conversation and its caller, as a request asks about them.
fn stops() -> [Stop; 2] {
    let (conversation, caller) = ("talk 1".to_owned(), "0123456789abcdef0123456789abcdef".to_owned());
    [Stop { what: Stopped::Conversation, id: conversation }, Stop { what: Stopped::Caller, id: caller }]
}

async fn stopped(store: &Arc<dyn StateStore>, now_ms: u64) -> Option<Stopped> {
    store.look_up(Batch { stops: stops().to_vec(), now: at(now_ms), ..batch() }).await.stopped
}

/// Every value of the Redis, one after the other.
fn contents(server: &Server) -> Vec<u8> {
    let mut all = Vec::new();
    for key in server.keys() {
        let values: Vec<Vec<u8>> = match server.ask::<String>(&["TYPE", &key]).as_str() {
            "string" => vec![server.ask(&["GET", &key])],
            "list" => server.ask(&["LRANGE", &key, "0", "-1"]),
            "zset" => server.ask(&["ZRANGE", &key, "0", "-1"]),
            other => panic!("{key} is a {other}"),
        };
        all.extend(values.concat());
    }
    all
}

#[tokio::test]
async fn nothing_of_a_conversation_is_in_the_redis_in_the_clear() {
    let server = Server::start();
    let store = open(&server, "").await;
    let call = Assembled {
        name: b"pay".to_vec(),
        arguments: b"{\"to\":\"Plaintext\"}".to_vec(),
        ..Assembled::default()
    };
    let token = "Plaintext".to_owned();
    let question = Confirmation { token, calls: vec![call], expires_ms: u64::MAX, ..Confirmation::default() };
    let mut writes = hidden(1, round(2, "Plaintext"));
    writes.add(Hash(3), Arc::new(question));
    let history = UpstreamRecord(Bytes::from_static(b"{\"items\":[\"Plaintext\"]}"));
    writes.add(Hash(4), history.clone());
    store.record(writes);
    store.stop(Stop { what: Stopped::Conversation, id: "Plaintext".to_owned() }, 1_000).await.unwrap();
    wait_for("four records", async || server.keys().len() == 4).await;
    let contents = contents(&server);
    assert!(contents.len() > 200, "{contents:?}");
    let found = |text: &str| contents.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(
        !found("Plaintext") && !found("role") && !found("items"),
        "{}",
        String::from_utf8_lossy(&contents)
    );
    assert_eq!(known::<UpstreamRecord, 1>(&store, [4]).await, [vec![history]]);
}

#[tokio::test]
async fn what_the_version_before_has_written_is_read_and_removed() {
    let server = Server::start();
    let seals = Seals::new(&keys());
    let (stops_key, stop) = ((RecordKind::Stops, Hash(0)), stops()[0].clone());
    let [_, before] = seals.forms(stops_key, &stop).map(|form| String::from_utf8_lossy(&form).into_owned());
    let name = format!("s:{}", Hash(0));
    server.ask::<()>(&["ZADD", &name, "9000000000000", &before]);
    let history = (RecordKind::UpstreamHistory, Hash(4));
    let record = UpstreamRecord(Bytes::from_static(b"known"));
    let [_, form] = seals.forms(history, &record);
    server.ask::<()>(&["SET", &format!("u:{}", Hash(4)), std::str::from_utf8(&form).unwrap()]);
    let store = open(&server, "").await;
    assert_eq!(stopped(&store, 1_000).await, Some(stop.what));
    assert_eq!(known::<UpstreamRecord, 1>(&store, [4]).await, [vec![record]]);
    assert_eq!(store.resume(stop).await, Ok(true));
    assert_eq!(stopped(&store, 1_000).await, None);
    assert_eq!(server.ask::<u64>(&["EXISTS", &name]), 0);
}

#[tokio::test]
async fn a_stop_that_the_shared_store_did_not_accept_applies_locally_and_reports_that() {
    let server = Server::start();
    let [one, other] = [open(&server, "").await, open(&server, "").await];
    let [conversation, caller] = stops();
    server.freeze();
    assert_eq!(one.stop(conversation.clone(), 1_000).await, Err(StopError::Away));
    let listed = one.stops(1_000).await;
    assert_eq!((listed.stops.len(), listed.whole), (1, false));
    server.thaw();
    let late = async || other.stops(1_000).await.whole && one.stops(1_000).await.whole;
    wait_for("the state store to be back", late).await;
    assert_eq!(stopped(&one, 1_000).await, Some(Stopped::Conversation));
    // What was sent before the freeze ended may have arrived late, which stops it everywhere; sent again, it is sure to.
    assert!(one.stop(conversation, 1_000).await.is_ok());
    assert_eq!(stopped(&other, 1_000).await, Some(Stopped::Conversation));
    assert!(one.stop(caller, 1_000).await.is_ok());
    assert_eq!(other.stops(1_000).await.stops.len(), 2);
}

#[tokio::test]
async fn what_another_replica_has_stopped_stays_stopped_while_the_store_is_away() {
    let server = Server::start();
    let [one, other] = [open(&server, "").await, open(&server, "").await];
    let [conversation, _] = stops();
    assert!(one.stop(conversation, 1_000).await.is_ok());
    assert_eq!(stopped(&other, 1_000).await, Some(Stopped::Conversation));
    drop(server);
    let asked = async || {
        let answers = other.look_up(Batch { stops: stops().to_vec(), ..batch() }).await;
        assert_eq!(answers.stopped, Some(Stopped::Conversation));
        answers.away
    };
    wait_for("the state store to be away", asked).await;
}

mod cases {
    use super::*;

    fn release(context: u128, at_ms: u64) -> Release {
        Release { context: Hash(context), hidden: NOTHING_HIDDEN, at_ms }
    }

    fn released(call: u128, release: Release) -> Writes {
        Writes::from_fact(Hash(call), release)
    }

    pub async fn the_latest_release_of_a_call_is_kept_per_conversation(pair: &Pair) {
        let told = [(1, release(7, 5)), (1, release(8, 6)), (1, release(7, 9)), (3, release(7, 7))];
        let expected = [vec![release(8, 6), release(7, 9)], vec![], vec![release(7, 7)]];
        pair.knows(told.map(|(call, release)| released(call, release)), [1, 2, 3], expected).await;
    }

    pub async fn the_account_as_of_a_reply_is_the_last_one_recorded(pair: &Pair) {
        let account = |at_ms: u64| {
            let by = "budget".into();
            let pin = Pin { messages: 3, history: Hash(9), by, text: "[toolrein] \u{e9}\"\n".into() };
            let (turn, bought) = (Sums::default().with(Kind::Calls, at_ms), [1, 2, 3]);
            Arc::new(Carried { turn, at_ms, bought, pins: vec![pin], ..Carried::default() })
        };
        let writes = [5, 6].map(|at_ms| Writes::from_fact(Hash(2), account(at_ms)));
        pair.knows(writes, [1, 2], [vec![], vec![account(6)]]).await;
    }

    pub async fn what_is_added_to_a_sum_adds_up_among_replicas(pair: &Pair) {
        let adds = |calls: u64, mark: u32| {
            let sums = Sums::default().with(Kind::Calls, calls).with(Kind::Nanodollars, 7);
            let refunded = Sums::default().with(Kind::Tokens, 2);
            let marks = Marks([mark; KINDS]);
            let tally = Tally { sums, refunded, marks, bought: 1, final_answer_day: u64::from(mark) };
            Writes { tallied: vec![(Hash(1), tally)], ..Writes::default() }
        };
        let batch = Batch { sums: vec![Hash(1), Hash(2)], ..batch() };
        pair.asked.record(adds(100, 3));
        let sums = Sums::default().with(Kind::Calls, 111).with(Kind::Nanodollars, 21);
        let (refunded, marks) = (Sums::default().with(Kind::Tokens, 6), Marks([5; KINDS]));
        let expected = [Tally { sums, refunded, marks, bought: 3, final_answer_day: 5 }, Tally::default()];
        pair.tells([adds(1, 5), adds(10, 1)], batch, |answers| answers.sums == expected).await;
    }

    pub async fn a_call_that_two_replicas_hand_out_has_both_times(pair: &Pair) {
        let hidden = Release { hidden: Hash(5), ..release(7, 4) };
        pair.asked.record(released(1, hidden));
        let expected = [vec![hidden, release(7, 9)]];
        pair.knows([released(1, release(7, 9))], [1], expected).await;
    }

    pub async fn hidden_exchanges_are_found_at_their_place_without_duplicates(pair: &Pair) {
        let shown_all = HiddenExchange { message_key: Hash(7), messages: Bytes::new() };
        let told = [round(7, "new \\u00e9"), round(7, "old"), round(8, "other"), round(7, "new \\u00e9")];
        let told = told.into_iter().chain([shown_all.clone()]).map(|round| hidden(1, round));
        let expected = vec![round(7, "old"), round(8, "other"), round(7, "new \\u00e9"), shown_all];
        pair.knows(told, [1, 2], [expected, vec![]]).await;
    }

    pub async fn the_number_of_hidden_exchanges_at_one_place_is_bounded(pair: &Pair) {
        let told = (0..200).map(|key| hidden(1, round(key, "x")));
        let expected = (136..200).map(|key| round(key, "x")).collect();
        pair.knows(told, [1], [expected]).await;
    }

    pub async fn evidence_about_a_model_is_kept_for_all_callers_and_for_each(pair: &Pair) {
        let [alice, bob] = [evidence(7), evidence(8)];
        let told = [(1, alice), (1, bob), (2, alice)].map(|(list, it)| Writes::from_fact(Hash(list), it));
        pair.knows(told, [1, 2], [vec![alice, bob], vec![alice]]).await;
        let told = (0..100).map(|caller| Writes::from_fact(Hash(1), evidence(caller)));
        let expected = (100 - MOST_EVIDENCE as u128..100).map(evidence).collect();
        pair.knows(told, [1], [expected]).await;
    }

    fn question(name: &str) -> Arc<Confirmation> {
        let mut call = Assembled::default();
        (call.name, call.arguments) = (name.into(), br#"{\"n\": 1.50}"#.to_vec());
        let (token, words) = ("TOKEN3".to_owned(), vec!["yes".to_owned()]);
        let (calls, expires_ms) = (vec![call], 100_000);
        Arc::new(Confirmation { token, words, calls, expires_ms, ..Confirmation::default() })
    }

    fn put(name: &str) -> Writes {
        Writes::from_fact(Hash(1), question(name))
    }

    pub async fn the_first_question_is_kept_and_only_one_request_can_claim_it(pair: &Pair) {
        pair.knows([put("pay"), put("delete")], [1], [vec![question("pay")]]).await;
        let claim = |request, now_ms| Claim { question: Hash(1), request: Hash(request), now_ms };
        // Both sides claim at the same time, and only one succeeds.
        let (one, other) = tokio::join!(pair.asked.claim(claim(1, 1_000)), pair.told.claim(claim(2, 1_000)));
        assert!(one ^ other);
        let (taker, late) = if one { (1, 2) } else { (2, 1) };
        for store in [&pair.told, &pair.asked] {
            assert!(!store.claim(claim(late, 2_000)).await, "another yes");
            assert!(!store.claim(claim(taker, 1_100)).await, "sent twice at once");
        }
        let first = if one { &pair.asked } else { &pair.told };
        assert!(first.claim(claim(taker, 2_000)).await, "its answer was lost on the way");
    }

    pub async fn a_remembered_approval_is_known_to_every_replica(pair: &Pair) {
        assert_eq!(known::<ApprovedCall, 3>(&pair.asked, [1, 2, 3]).await, [vec![], vec![], vec![]]);
        let approved = Writes::from_fact(Hash(2), ApprovedCall);
        pair.knows([approved], [1, 2, 3], [vec![], vec![ApprovedCall], vec![]]).await;
    }

    pub async fn a_lost_reply_may_be_fetched_once_more_from_another_replica(pair: &Pair) {
        pair.knows([put("pay")], [1], [vec![question("pay")]]).await;
        let claim = |now_ms| Claim { question: Hash(1), request: Hash(1), now_ms };
        assert!(pair.told.claim(claim(1_000)).await);
        assert!(pair.asked.claim(claim(2_000)).await, "lost");
        for store in [&pair.asked, &pair.told] {
            for now_ms in [2_000, 3_000, 62_000] {
                assert!(!store.claim(claim(now_ms)).await, "an approval is used up");
            }
        }
    }

    pub async fn a_lost_reply_may_not_be_fetched_after_a_minute(pair: &Pair) {
        pair.knows([put("pay")], [1], [vec![question("pay")]]).await;
        let claim = |now_ms| Claim { question: Hash(1), request: Hash(1), now_ms };
        assert!(pair.told.claim(claim(1_000)).await);
        for store in [&pair.asked, &pair.told] {
            assert!(!store.claim(claim(61_000)).await, "too late");
        }
    }

    pub async fn an_expired_or_unknown_question_cannot_be_claimed(pair: &Pair) {
        pair.knows([put("pay")], [1], [vec![question("pay")]]).await;
        let claim = |question, now_ms| Claim { question: Hash(question), request: Hash(9), now_ms };
        assert!(!pair.asked.claim(claim(1, 100_000)).await);
        assert!(!pair.asked.claim(claim(2, 1_000)).await);
    }

    pub async fn the_hidden_exchanges_last_sent_with_a_history_are_remembered(pair: &Pair) {
        let sent = |history, rounds| SentExchanges { history: Hash(history), rounds };
        let told = [sent(5, 1), sent(6, 2), sent(6, 3)].map(|sent| Writes::from_fact(sent.history, sent));
        pair.knows(told, [5, 6, 7], [vec![sent(5, 1)], vec![sent(6, 3)], vec![]]).await;
    }

    pub async fn the_newest_overflows_of_a_conversation_are_known_each_once(pair: &Pair) {
        let overflow =
            |messages: usize| LengthRefusal { messages, history: Hash(messages as u128), most_chars: None };
        let told = (0..100).chain([99, 80]).map(|messages| Writes::from_fact(Hash(3), overflow(messages)));
        let expected = (68..100).filter(|messages| *messages != 80).chain([80]).map(overflow).collect();
        pair.knows(told, [3], [expected]).await;
    }

    pub async fn uses_of_a_quota_add_up_and_the_same_call_handed_out_again_counts_once(pair: &Pair) {
        let news = |spent| Writes { spent: vec![spent], ..Writes::default() };
        let quotas = [Hash(1), Hash(2)].map(|name| Quota { name, calls: 9, window_ms: 3_600_000 });
        let asking = |now_ms| Batch { quotas: quotas.to_vec(), now: at(now_ms), ..batch() };
        // When each use was counted, how many calls it has, and how often they were handed out.
        let of = |uses: &[(u64, u32, u32)]| {
            let uses = uses.to_vec();
            move |answers: &Answers| {
                let found = answers.spent[0].iter().map(|known| (known.at_ms, known.calls, known.tries));
                found.collect::<Vec<_>>() == uses && answers.spent[1].is_empty()
            }
        };
        let new = [news(used(1, 10)), news(used(1, 11)), news(used(2, 20))];
        pair.tells(new, asking(30), of(&[(10, 1, 1), (11, 1, 1), (20, 1, 1)])).await;
        // The other one hands the call out again, and what it does not know itself counts no more for that.
        let last =
            pair.asked.look_up(asking(35)).await.spent[0].iter().find(|known| known.call == Hash(2)).copied();
        for at_ms in [40, 45] {
            pair.asked.record(news(QuotaCall { again: last, ..used(2, at_ms) }));
        }
        let both = of(&[(10, 1, 1), (11, 1, 1), (20, 1, 3)]);
        wait_for("the third time to be known", async || both(&pair.told.look_up(asking(50)).await)).await;
        let anew = QuotaCall { again: last.map(|last| Use { tries: 3, ..last }), ..used(2, 60) };
        pair.tells([news(anew)], asking(70), of(&[(10, 1, 1), (11, 1, 1), (20, 1, 3), (60, 1, 1)])).await;
    }

    pub async fn as_many_calls_are_reserved_as_a_limit_allows_and_what_is_given_back_can_be_had_again(
        pair: &Pair,
    ) {
        let reserve = async |store: &Arc<dyn StateStore>, nth: u128| {
            let both = [
                CallReservation::Quota { call: used(100 + nth, 10), most: 6 },
                CallReservation::Sum { key: Hash(5), most: 8 },
            ];
            let reserved = store.reserve(&both).await;
            (both, reserved)
        };
        let all = (0..100).map(|nth| reserve(if nth % 2 == 0 { &pair.told } else { &pair.asked }, nth));
        let all = join_all(all).await;
        let is_granted =
            |it: &CallReservationResult| it.reserved == ReservationResult::Granted { alone: false };
        let granted = |nth: usize| all.iter().filter(|(_, reserved)| is_granted(&reserved[nth])).count();
        assert_eq!([granted(0), granted(1)], [6, 8]);
        let of_quota = all.iter().position(|(_, reserved)| is_granted(&reserved[0])).unwrap();
        // By the process that has it.
        let store = if of_quota % 2 == 0 { &pair.told } else { &pair.asked };
        let (reservations, reserved) = &all[of_quota];
        store.record(return_reservations(&reservations[..1], &reserved[..1]));
        let of_sum = all.iter().find(|(_, reserved)| is_granted(&reserved[1])).unwrap();
        pair.told.record(return_reservations(&of_sum.0[1..], &of_sum.1[1..]));
        let mut had = [false; 2];
        wait_for("what was given back", async || {
            let (_, reserved) = reserve(&pair.asked, 200).await;
            had = [0, 1].map(|nth| had[nth] || is_granted(&reserved[nth]));
            had == [true, true]
        })
        .await;
    }

    /// The requests of the sum 5 before a look-up that adds one.
    async fn look_up_ahead(store: &Arc<dyn StateStore>) -> u64 {
        let ahead = Tally { sums: Sums::default().with(Kind::Requests, 1), ..Tally::default() };
        store.look_up(Batch { sums: vec![Hash(5)], ahead, ..batch() }).await.sums[0]
            .used()
            .get(Kind::Requests)
    }

    pub async fn of_look_ups_at_once_each_reads_what_those_before_it_have_added(pair: &Pair) {
        let all = (0..100).map(|nth| look_up_ahead(if nth % 2 == 0 { &pair.told } else { &pair.asked }));
        let mut before = join_all(all).await;
        before.sort_unstable();
        assert_eq!(before, (0..100).collect::<Vec<u64>>());
    }

    pub async fn a_look_up_that_nobody_waits_for_is_done_at_once_or_taken_back(pair: &Pair) {
        for _ in 0..20 {
            // Polled once, at most.
            let _ = look_up_ahead(&pair.told).now_or_never();
        }
        let started = look_up_ahead(&pair.told).await;
        let memory = 20;
        assert!(started == 0 || started == memory, "{started}: taken back, or done at the first poll");
    }

    pub async fn an_earlier_use_hands_a_call_out_twice_more_however_many_ask_at_once(pair: &Pair) {
        let first = [CallReservation::Quota { call: used(1, 10), most: 2 }];
        let counted = pair.told.reserve(&first).await[0].counted;
        let retry = [CallReservation::Quota { call: QuotaCall { again: counted, ..used(1, 20) }, most: 2 }];
        let stores = [&pair.told, &pair.asked, &pair.told, &pair.asked, &pair.told];
        let retries = join_all(stores.map(|store| store.reserve(&retry))).await;
        let times = retries.iter().filter_map(|reserved| Some(reserved[0].counted?.at_ms));
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        // One of the two further tries may count, where all have asked for the first.
        assert!([&[10, 10, 20][..], &[10, 20]].contains(&times.as_slice()), "{times:?}");
    }

    pub async fn a_request_is_repeated_when_it_comes_again(pair: &Pair) {
        let look_up = async |store: &Arc<dyn StateStore>, request| {
            store.look_up(Batch { request: Some(Hash(request)), ..batch() }).await.repeated
        };
        let seen = [
            look_up(&pair.told, 1).await,
            look_up(&pair.asked, 2).await,
            look_up(&pair.asked, 1).await,
            look_up(&pair.told, 2).await,
        ];
        assert_eq!(seen, [false, false, true, true]);
    }

    /// What both state stores say.
    async fn both(pair: &Pair, now_ms: u64) -> [(Option<Stopped>, Vec<(Stop, u64)>); 2] {
        let of = async |store: &Arc<dyn StateStore>| {
            let Listed { stops, whole } = store.stops(now_ms).await;
            assert!(whole);
            (stopped(store, now_ms).await, stops)
        };
        [of(&pair.told).await, of(&pair.asked).await]
    }

    pub async fn a_stop_applies_to_every_replica_until_any_replica_ends_it(pair: &Pair) {
        for stop in stops() {
            let until_ms = pair.told.stop(stop.clone(), 1_000).await.unwrap();
            assert_eq!(until_ms, 1_000 + 3_600_000, "a lifetime");
            let one = (Some(stop.what), vec![(stop.clone(), until_ms)]);
            assert_eq!(both(pair, 1_000).await, [one.clone(), one]);
            let others = [Stop { id: format!("{} ", stop.id), ..stop.clone() }];
            assert_eq!(pair.asked.look_up(Batch { stops: others.to_vec(), ..batch() }).await.stopped, None);
            assert_eq!(pair.asked.resume(stop.clone()).await, Ok(true));
            assert_eq!(both(pair, 1_000).await, [(None, vec![]), (None, vec![])]);
            assert_eq!(pair.told.resume(stop.clone()).await, Ok(false), "there is none");
        }
    }

    pub async fn a_stop_ends_by_itself_and_is_prolonged_when_it_is_set_again(pair: &Pair) {
        let [stop, _] = stops();
        let first = pair.told.stop(stop.clone(), 1_000).await.unwrap();
        let second = pair.asked.stop(stop.clone(), 2_000).await.unwrap();
        assert_eq!(second, first + 1_000);
        for store in [&pair.told, &pair.asked] {
            assert_eq!(stopped(store, first).await, Some(Stopped::Conversation));
            assert_eq!(stopped(store, second).await, None);
            assert_eq!(store.stops(second).await.stops, []);
        }
    }

    pub async fn more_stops_than_are_kept_are_refused(pair: &Pair) {
        let stop = |nth: usize| Stop { what: Stopped::Conversation, id: format!("talk {nth}") };
        let set = async |store: &Arc<dyn StateStore>, nth, now_ms| store.stop(stop(nth), now_ms).await.err();
        for nth in 0..MOST_STOPS {
            set([&pair.told, &pair.asked][nth % 2], nth, 1_000).await;
        }
        let more = [set(&pair.told, MOST_STOPS, 1_000).await, set(&pair.asked, MOST_STOPS, 1_000).await];
        assert_eq!(more, [Some(StopError::Full); 2]);
        let counts = both(pair, 1_000).await.map(|(_, stops)| stops.len());
        assert_eq!(counts, [MOST_STOPS; 2], "none was forgotten for it");
        assert_eq!(set(&pair.told, 1, 1_000).await, None, "there already");
        assert_eq!(pair.asked.resume(stop(7)).await, Ok(true));
        let (again, later) = (set(&pair.asked, MOST_STOPS, 1_000), set(&pair.told, 0, 1_000 + 3_600_000));
        assert_eq!((again.await, later.await), (None, None), "what has ended takes no room");
    }

    pub async fn as_many_calls_as_a_request_may_ask_for_are_found(pair: &Pair) {
        let calls = 0..2 * engine::store::MOST_LOOKED_UP as u128;
        let told = calls.clone().map(|call| released(call, release(7, 5)));
        let mut batch = batch();
        let ticket = batch.ask::<Release>(calls.clone().map(Hash));
        batch.ask::<HiddenExchange>(calls.take(engine::store::MOST_LOOKED_UP).map(Hash));
        let is_so = |answers: &Answers| answers.lists(&ticket).iter().all(|known| *known == [release(7, 5)]);
        pair.tells(told, batch, is_so).await;
    }
}
