//! What every ledger promises, held over memory, over a Redis, and over two programs' ledgers in one Redis.

use crate::faults::delay;
use crate::server::{SECRET, Server};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolrein::ledger::memory::{Bounds, Memory};
use toolrein::ledger::redis::{Redis, Settings};
use toolrein::ledger::{Ask, Claim, Facts, Ledger, ModelFacts, News, Overflow, Quota, SentRounds, Spent};
use toolrein::rewrite::confirm::Confirmation;
use toolrein::rewrite::rounds::Round;
use toolrein::telemetry::metrics::Metrics;
use toolrein::transcript::identity::{Hash, HashKey};
use toolrein::transcript::released::{NOTHING_HIDDEN, Release};
use toolrein::wire::assemble::Assembled;

/// A ledger that is told, and one that is asked: the same, or two that share.
struct Pair {
    told: Arc<dyn Ledger>,
    asked: Arc<dyn Ledger>,
}

/// The three kinds, each empty. The server has to outlive them.
async fn pairs() -> (Server, [Pair; 3]) {
    let server = Server::start();
    let memory: Arc<dyn Ledger> = Arc::new(Memory::new(&bounds()));
    let [alone, one, other] =
        [open(&server, "alone:").await, open(&server, "both:").await, open(&server, "both:").await];
    let same = |ledger: &Arc<dyn Ledger>| Pair { told: Arc::clone(ledger), asked: Arc::clone(ledger) };
    let pairs = [same(&memory), same(&alone), Pair { told: one, asked: other }];
    (server, pairs)
}

fn bounds() -> Bounds {
    let hour = Duration::from_secs(3600);
    Bounds { calls: 10_000, rounds_bytes: 10_000_000, conversations: 1_000, lifetime: hour, refusals: hour }
}

async fn open(server: &Server, prefix: &str) -> Arc<dyn Ledger> {
    open_at(server.port(), prefix).await.0
}

/// With what it counts.
async fn open_at(port: u16, prefix: &str) -> (Arc<dyn Ledger>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(&[]).unwrap());
    let key = HashKey::of(SECRET.as_bytes().try_into().unwrap());
    let url = format!("redis://:pass-of-the-tests@127.0.0.1:{port}");
    let (prefix, timeout) = (prefix.to_owned(), Duration::from_secs(10));
    let settings = Settings { url, key, prefix, timeout, bounds: bounds() };
    let ledger = Redis::open(settings, Arc::clone(&metrics)).unwrap();
    wait_for("the ledger to answer", async || metrics.render().contains("\ntoolrein_ledger_up 1\n")).await;
    (Arc::new(ledger), metrics)
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

fn ask<'a>() -> Ask<'a> {
    let nobody = Hash(u128::MAX);
    Ask {
        calls: &[],
        places: &[],
        model: nobody,
        request: nobody,
        conversation: nobody,
        histories: &[],
        answered: None,
        quotas: &[],
        bytes: nobody,
        now_ms: 1_000,
        now: Instant::now(),
    }
}

impl Pair {
    /// Tells `news`, and waits until what is asked for is as it should be.
    async fn tells(
        &self,
        news: impl IntoIterator<Item = News>,
        ask: Ask<'_>,
        is_so: impl Fn(&Facts) -> bool,
    ) {
        news.into_iter().for_each(|news| self.told.record(news));
        wait_for("what was told to be known", async || is_so(&self.asked.look_up(ask).await)).await;
        assert!(is_so(&self.told.look_up(ask).await), "who told it knows it too");
    }
}

fn round(anchor: u128, text: &str) -> Round {
    let messages = format!("{{\"role\":\"assistant\",\"content\":\"{text}\"}}");
    Round { anchor: Hash(anchor), messages: Bytes::from(messages) }
}

fn hidden(place: u128, round: Round) -> News {
    News { rounds: vec![(Hash(place), round)], ..News::default() }
}

#[tokio::test]
async fn what_is_told_twice_since_no_answer_came_is_there_once() {
    let server = Server::start();
    let (ledger, metrics) = open_at(server.port(), "").await;
    server.freeze();
    ledger.record(hidden(1, round(7, "x")));
    let is_late = || metrics.render().contains("toolrein_ledger_errors_total{op=\"record\"} 1\n");
    wait_for("no answer to come", async || is_late()).await;
    ledger.record(hidden(2, round(7, "x")));
    server.thaw();
    wait_for("both to be told", async || server.keys().len() == 2).await;
    for key in server.keys() {
        assert_eq!(server.ask::<usize>(&["LLEN", &key]), 1);
    }
}

#[tokio::test]
async fn what_is_too_much_to_be_told_at_once_is_told_in_parts() {
    let server = Server::start();
    // Some 400 KB in a second.
    let port = delay(server.port(), Duration::from_millis(10));
    let (ledger, _) = open_at(port, "").await;
    let long = "x".repeat(20_000);
    (0..64).for_each(|place| ledger.record(hidden(place, round(7, &long))));
    // What comes behind is told once it is known that these were.
    let release = Release { context: Hash(7), hidden: NOTHING_HIDDEN, at_ms: 5 };
    ledger.record(News { released: vec![(Hash(1), release)], ..News::default() });
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
        let spent = Spent { quota: Hash(1), request: Hash(at_ms.into()), calls: 1, at_ms, window_ms };
        one.record(News { spent: vec![spent], ..News::default() });
    }
    wait_for("all uses to be told", async || {
        let keys = server.keys();
        keys.iter().any(|key| server.ask::<usize>(&["ZCARD", key]) == 300)
    })
    .await;
    let quotas = [Quota { name: Hash(1), calls: 9, window_ms }];
    let read = other.look_up(Ask { quotas: &quotas, ..ask() }).await.spent;
    assert_eq!(read, [(271..=300).collect::<Vec<u64>>()], "enough for nine, tried thrice each");
}

#[tokio::test]
async fn however_much_somebody_put_into_a_key_a_bounded_part_is_read() {
    let server = Server::start();
    let ledger = open(&server, "").await;
    let overflow = Overflow { messages: 1, history: Hash(1) };
    let facts = ModelFacts { no_tools: true, ..ModelFacts::default() };
    let (model, overflow) = (Some((Hash(3), facts)), Some((Hash(2), overflow)));
    ledger.record(News { model, overflow, ..hidden(1, round(7, "x")) });
    wait_for("all to be told", async || server.keys().len() == 3).await;
    let junk: Vec<String> = (0..1_000).map(|nth| nth.to_string()).collect();
    for key in server.keys() {
        let put = if key.starts_with("m:") { "SADD" } else { "RPUSH" };
        let words = [put, &key].into_iter().chain(junk.iter().map(String::as_str));
        server.ask::<()>(&words.collect::<Vec<_>>());
    }
    let ask = Ask { places: &[Hash(1)], model: Hash(3), conversation: Hash(2), ..ask() };
    let (other, counted) = open_at(server.port(), "").await;
    let facts_found = other.look_up(ask).await;
    assert_eq!((facts_found.model, facts_found.away), (facts, false));
    let unreadable = format!("toolrein_ledger_errors_total{{op=\"unreadable\"}} {}\n", 64 + 32);
    assert!(counted.render().contains(&unreadable), "{}", counted.render());
}

/// Runs a case over every kind of ledger.
macro_rules! over_every_ledger {
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

over_every_ledger! {
    of_a_call_each_conversation_s_latest_time_is_kept
    a_call_that_two_replicas_hand_out_has_both_times
    rounds_are_found_at_their_place_equal_ones_once
    one_place_keeps_a_bounded_number_of_rounds
    what_a_model_refuses_adds_up
    a_question_is_kept_as_it_was_put_first_and_taken_by_one_request
    an_answer_that_was_lost_may_be_had_again_at_another_replica
    an_answer_that_was_lost_is_not_given_after_a_minute
    a_question_lapses_and_one_that_was_never_put_gives_nothing
    it_is_known_with_which_rounds_a_history_was_sent_last
    the_newest_overflows_of_a_conversation_are_known_each_once
    uses_of_a_quota_add_up_and_tries_of_one_request_count_once
    a_request_is_repeated_when_it_comes_again
    as_many_calls_as_a_request_may_ask_for_are_found
}

mod cases {
    use super::*;

    fn release(context: u128, at_ms: u64) -> Release {
        Release { context: Hash(context), hidden: NOTHING_HIDDEN, at_ms }
    }

    fn released(call: u128, release: Release) -> News {
        News { released: vec![(Hash(call), release)], ..News::default() }
    }

    fn known(facts: &Facts) -> Vec<Vec<Release>> {
        facts.released.iter().map(|known| known.as_deref().unwrap_or_default().to_vec()).collect()
    }

    pub async fn of_a_call_each_conversation_s_latest_time_is_kept(pair: &Pair) {
        let calls = [Hash(1), Hash(2), Hash(3)];
        let ask = Ask { calls: &calls, ..ask() };
        let told = [(1, release(7, 5)), (1, release(8, 6)), (1, release(7, 9)), (3, release(7, 7))];
        let expected = [vec![release(8, 6), release(7, 9)], vec![], vec![release(7, 7)]];
        let news = told.map(|(call, release)| released(call, release));
        pair.tells(news, ask, |facts| known(facts) == expected && !facts.away).await;
    }

    pub async fn a_call_that_two_replicas_hand_out_has_both_times(pair: &Pair) {
        let hidden = Release { hidden: Hash(5), ..release(7, 4) };
        pair.asked.record(released(1, hidden));
        let expected = [vec![hidden, release(7, 9)]];
        let ask = Ask { calls: &[Hash(1)], ..ask() };
        pair.tells([released(1, release(7, 9))], ask, |facts| known(facts) == expected).await;
    }

    pub async fn rounds_are_found_at_their_place_equal_ones_once(pair: &Pair) {
        let places = [Hash(1), Hash(2)];
        let shown_all = Round { anchor: Hash(7), messages: Bytes::new() };
        let news = [round(7, "new \\u00e9"), round(7, "old"), round(8, "other"), round(7, "new \\u00e9")];
        let news = news.into_iter().chain([shown_all.clone()]).map(|round| hidden(1, round));
        let expected = [round(7, "old"), round(8, "other"), round(7, "new \\u00e9"), shown_all];
        let expected = [expected.to_vec(), vec![]];
        pair.tells(news, Ask { places: &places, ..ask() }, |facts| facts.rounds == expected).await;
    }

    pub async fn one_place_keeps_a_bounded_number_of_rounds(pair: &Pair) {
        let news = (0..200).map(|anchor| hidden(1, round(anchor, "x")));
        let is_so = |facts: &Facts| {
            let anchors: Vec<u128> = facts.rounds[0].iter().map(|round| round.anchor.0).collect();
            anchors == (136..200).collect::<Vec<u128>>()
        };
        pair.tells(news, Ask { places: &[Hash(1)], ..ask() }, is_so).await;
    }

    pub async fn what_a_model_refuses_adds_up(pair: &Pair) {
        let no_tools = ModelFacts { no_tools: true, ..ModelFacts::default() };
        let rest = ModelFacts { no_late_system: true, no_stream_options: true, ..ModelFacts::default() };
        let news = [no_tools, rest].map(|facts| News { model: Some((Hash(1), facts)), ..News::default() });
        let ask = Ask { model: Hash(1), ..ask() };
        pair.tells(news, ask, |facts| facts.model == no_tools.and(rest)).await;
    }

    fn question(name: &str) -> Confirmation {
        let mut call = Assembled::default();
        (call.name, call.arguments) = (name.into(), br#"{\"n\": 1.50}"#.to_vec());
        Confirmation::kept(("TOKEN3".to_owned(), vec!["yes".to_owned()]), vec![call], 100_000)
    }

    fn put(name: &str) -> News {
        News { asked: vec![(Hash(1), question(name))], ..News::default() }
    }

    pub async fn a_question_is_kept_as_it_was_put_first_and_taken_by_one_request(pair: &Pair) {
        let ask = Ask { answered: Some(Hash(1)), ..ask() };
        let is_so = |facts: &Facts| facts.asked.as_deref() == Some(&question("pay"));
        pair.tells([put("pay"), put("delete")], ask, is_so).await;
        let claim = |request, now_ms| Claim { anchor: Hash(1), request: Hash(request), now_ms };
        // At once, from both sides: one of them alone.
        let (one, other) = tokio::join!(pair.asked.claim(claim(1, 1_000)), pair.told.claim(claim(2, 1_000)));
        assert!(one ^ other);
        let (taker, late) = if one { (1, 2) } else { (2, 1) };
        for ledger in [&pair.told, &pair.asked] {
            assert!(!ledger.claim(claim(late, 2_000)).await, "another yes");
            assert!(!ledger.claim(claim(taker, 1_100)).await, "sent twice at once");
        }
        let first = if one { &pair.asked } else { &pair.told };
        assert!(first.claim(claim(taker, 2_000)).await, "its answer was lost on the way");
    }

    pub async fn an_answer_that_was_lost_may_be_had_again_at_another_replica(pair: &Pair) {
        let ask = Ask { answered: Some(Hash(1)), ..ask() };
        pair.tells([put("pay")], ask, |facts| facts.asked.is_some()).await;
        let claim = |now_ms| Claim { anchor: Hash(1), request: Hash(1), now_ms };
        assert!(pair.told.claim(claim(1_000)).await);
        assert!(pair.asked.claim(claim(2_000)).await, "lost");
        for ledger in [&pair.asked, &pair.told] {
            for now_ms in [2_000, 3_000, 62_000] {
                assert!(!ledger.claim(claim(now_ms)).await, "an approval is used up");
            }
        }
    }

    pub async fn an_answer_that_was_lost_is_not_given_after_a_minute(pair: &Pair) {
        let ask = Ask { answered: Some(Hash(1)), ..ask() };
        pair.tells([put("pay")], ask, |facts| facts.asked.is_some()).await;
        let claim = |now_ms| Claim { anchor: Hash(1), request: Hash(1), now_ms };
        assert!(pair.told.claim(claim(1_000)).await);
        for ledger in [&pair.asked, &pair.told] {
            assert!(!ledger.claim(claim(61_000)).await, "too late");
        }
    }

    pub async fn a_question_lapses_and_one_that_was_never_put_gives_nothing(pair: &Pair) {
        let ask = Ask { answered: Some(Hash(1)), ..ask() };
        pair.tells([put("pay")], ask, |facts| facts.asked.is_some()).await;
        let claim = |anchor, now_ms| Claim { anchor: Hash(anchor), request: Hash(9), now_ms };
        assert!(!pair.asked.claim(claim(1, 100_000)).await);
        assert!(!pair.asked.claim(claim(2, 1_000)).await);
    }

    pub async fn it_is_known_with_which_rounds_a_history_was_sent_last(pair: &Pair) {
        let sent = |history, rounds| {
            let sent = SentRounds { history: Hash(history), rounds };
            News { sent: Some(sent), ..News::default() }
        };
        let histories = [Hash(5), Hash(6), Hash(7)];
        let is_so = |facts: &Facts| facts.sent_rounds == [Some(1), Some(3), None];
        pair.tells([sent(5, 1), sent(6, 2), sent(6, 3)], Ask { histories: &histories, ..ask() }, is_so).await;
    }

    pub async fn the_newest_overflows_of_a_conversation_are_known_each_once(pair: &Pair) {
        let overflow = |messages: usize| Overflow { messages, history: Hash(messages as u128) };
        let news = (0..100).chain([99, 80]);
        let news =
            news.map(|messages| News { overflow: Some((Hash(3), overflow(messages))), ..News::default() });
        let expected: Vec<Overflow> =
            (68..100).filter(|messages| *messages != 80).chain([80]).map(overflow).collect();
        let ask = Ask { conversation: Hash(3), ..ask() };
        pair.tells(news, ask, |facts| facts.overflows == expected).await;
    }

    pub async fn uses_of_a_quota_add_up_and_tries_of_one_request_count_once(pair: &Pair) {
        let spent = |request, calls, at_ms| {
            let (quota, window_ms) = (Hash(1), 3_600_000);
            let spent = Spent { quota, request: Hash(request), calls, at_ms, window_ms };
            News { spent: vec![spent], ..News::default() }
        };
        let quotas = [Hash(1), Hash(2)].map(|name| Quota { name, calls: 9, window_ms: 3_600_000 });
        let by = |request, now_ms| Ask { quotas: &quotas, bytes: Hash(request), now_ms, ..ask() };
        let of = |times: &[u64]| {
            let times = times.to_vec();
            move |facts: &Facts| facts.spent == [times.clone(), vec![]]
        };
        pair.tells([spent(1, 2, 10), spent(2, 1, 20)], by(3, 30), of(&[10, 10, 20])).await;
        pair.tells([spent(1, 1, 40), spent(1, 3, 50)], by(4, 60), of(&[10, 10, 10, 20])).await;
        // A third try, at the other one, is not charged; a fourth is.
        let tries = [pair.asked.look_up(by(2, 70)).await, pair.told.look_up(by(2, 71)).await];
        assert!(tries.iter().all(of(&[10, 10, 10])), "{tries:?}");
        wait_for("the tries to be known", async || {
            of(&[10, 10, 10, 20])(&pair.asked.look_up(by(2, 80)).await)
        })
        .await;
    }

    pub async fn a_request_is_repeated_when_it_comes_again(pair: &Pair) {
        let look_up = async |ledger: &Arc<dyn Ledger>, request| {
            ledger.look_up(Ask { request: Hash(request), ..ask() }).await.repeated
        };
        let seen = [
            look_up(&pair.told, 1).await,
            look_up(&pair.asked, 2).await,
            look_up(&pair.asked, 1).await,
            look_up(&pair.told, 2).await,
        ];
        assert_eq!(seen, [false, false, true, true]);
    }

    pub async fn as_many_calls_as_a_request_may_ask_for_are_found(pair: &Pair) {
        let calls: Vec<Hash> = (0..2 * toolrein::ledger::MOST_LOOKED_UP as u128).map(Hash).collect();
        let places = calls[..toolrein::ledger::MOST_LOOKED_UP].to_vec();
        let news = calls.iter().map(|call| released(call.0, release(7, 5)));
        let ask = Ask { calls: &calls, places: &places, ..ask() };
        pair.tells(news, ask, |facts| known(facts).iter().all(|known| *known == [release(7, 5)])).await;
    }
}
