//! Tests of an exchange as its driver sees it: the effects that it starts, and what becomes of them.

use super::*;
use crate::core::testing::{arrived, settings};
use crate::judging::holding_tests::{policies, rules};
use dialects::{CHAT, RESPONSES};
use model::account::{Kind as Amount, Sums, Tally};
use model::fact::{Answers, RecordList, Writes};
use model::identity::Hash;
use model::plan::approval::{ApprovalDecision, Confirmation};
use model::plan::{CallEffect, Proposed, ReservationResult, ToolRun};
use model::record::{Consent, Verdict};
use model::released::Release;
use model::store::CallReservationResult;
use model::uses::Use;
use policies::about::{About, EngineService};
use policies::set::{PolicySet, RuleOf};
use policies::{ConfigError, Policy};

const AT_MS: u64 = 1_000_000;

/// Two calls of `pay`, which a person is asked about, one of `search`, which another model is asked about, and two of
/// `wait`, the second of which waits for its time.
const CALLS: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
    {"id":"a","type":"function","function":{"name":"pay","arguments":"{\"n\":1}"}},
    {"id":"b","type":"function","function":{"name":"pay","arguments":"{\"n\":2}"}},
    {"id":"c","type":"function","function":{"name":"search","arguments":"{\"query\":\"how a washing machine gets clean\"}"}},
    {"id":"d","type":"function","function":{"name":"wait","arguments":"{}"}},
    {"id":"e","type":"function","function":{"name":"wait","arguments":"{\"n\":2}"}}
]},"finish_reason":"tool_calls"}]}"#;

/// Policies that let calls of [`CALLS`] wait.
const WAITING: &str = r#"
[confirm]
tools = ["pay"]
form = "held"
[rewrite_query]
model.model = "small"
[rate_limit]
tools = { wait = { calls = 1, per = "2s" } }
wait = "5s"
"#;

/// A driver that keeps what the exchange wants.
struct Driver {
    exchange: Exchange,
    started: Vec<(EffectId, Effect)>,
    cancelled: Vec<EffectId>,
    /// The updates for the state store.
    stored: Vec<Writes>,
    /// The bodies of the requests to the upstream.
    sent: Vec<String>,
    answers: Vec<Answer>,
    /// The upstream's newest reply.
    replied: &'static str,
}

/// Which effect it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Admit,
    LookUp,
    Claim,
    Reserve,
    Approve,
    Sleep,
    AskModel,
    CallTool,
}

fn kind(effect: &Effect) -> Kind {
    match effect {
        Effect::Admit { .. } => Kind::Admit,
        Effect::LookUp(_) => Kind::LookUp,
        Effect::Claim { .. } => Kind::Claim,
        Effect::Reserve(_) => Kind::Reserve,
        Effect::Approve(_) => Kind::Approve,
        Effect::Sleep { .. } => Kind::Sleep,
        Effect::AskModel(_) => Kind::AskModel,
        Effect::CallTool { .. } => Kind::CallTool,
        Effect::Summarise { .. } => unreachable!("no policy here wants a summary"),
    }
}

fn now() -> Now {
    Now { at: Instant::now(), ms: AT_MS }
}

impl Driver {
    /// Begins the exchange of a request that continues a conversation which the upstream keeps, or of a chat that answers
    /// a question, one at a time in its conversation.
    fn begin(continues: bool) -> Self {
        let form = if continues { WAITING.to_owned() } else { WAITING.replace("held", "chat") };
        let mut settings = settings(policies(&form));
        settings.conversation.in_flight = InFlight::Wait;
        let (dialect, body) = match continues {
            true => (RESPONSES, r#"{"model":"m","previous_response_id":"r","input":"q"}"#),
            false => (
                CHAT,
                r#"{"model":"m","messages":[{"role":"user","content":"Pay."},{"role":"assistant","content":"Shall I?"},{"role":"user","content":"K7PQ3M"}]}"#,
            ),
        };
        let (shared, mut arrived) = arrived(dialect, body, settings);
        arrived.identity.explicit = Some("conversation".to_owned());
        Self::of(Exchange::begin(shared, arrived, Box::default(), now()))
    }

    /// The exchange of a chat whose reply is [`CALLS`].
    fn with_calls() -> Self {
        Self::with_reply(policies(WAITING), CALLS)
    }

    /// The exchange of a chat with this reply.
    fn with_reply(policies: PolicySet, reply: &'static str) -> Self {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;
        let (shared, arrived) = arrived(CHAT, body, settings(policies));
        let mut driver = Self::of(Exchange::begin(shared, arrived, Box::default(), now()));
        driver.finish(0, EffectResult::LookedUp(Box::default()));
        driver.reply(reply);
        driver
    }

    /// The upstream's whole reply.
    fn reply(&mut self, body: &'static str) {
        self.replied = body;
        let (id, body) = (self.sent.len() as u32 - 1, Bytes::from_static(body.as_bytes()));
        self.give(Input::Reply(WholeReply { id, status: 200, body: Ok(body) }));
    }

    fn of(exchange: Exchange) -> Self {
        let (started, cancelled, answers) = (Vec::new(), Vec::new(), Vec::new());
        let (stored, sent) = (Vec::new(), Vec::new());
        let mut driver = Self { exchange, started, cancelled, stored, sent, answers, replied: "" };
        driver.take_outputs();
        driver
    }

    fn give(&mut self, input: Input) {
        self.exchange.handle(input, now());
        self.take_outputs();
    }

    fn take_outputs(&mut self) {
        while let Some(output) = self.exchange.poll() {
            match output {
                Output::Start(id, effect) => self.started.push((id, effect)),
                Output::Cancel(id) => self.cancelled.push(id),
                Output::Send(outgoing) => {
                    self.sent.push(String::from_utf8(outgoing.pieces.concat()).unwrap());
                }
                Output::Answer(answer) => self.answers.push(answer),
                Output::Store(news) => self.stored.push(*news),
                _ => {}
            }
        }
    }

    /// Gives this result to the effect that is `nth` among those that have not ended.
    fn finish(&mut self, nth: usize, result: EffectResult) -> EffectId {
        let (id, _) = self.started.remove(nth);
        self.give(Input::Finished(id, result));
        id
    }

    fn kinds(&self) -> Vec<Kind> {
        self.started.iter().map(|(_, effect)| kind(effect)).collect()
    }

    /// The result of an effect that goes well. The store knows that a person was asked, and what was asked.
    fn success(effect: &Effect) -> EffectResult {
        match effect {
            Effect::Admit { .. } => EffectResult::Admitted(Admission::Free),
            Effect::LookUp(batch) => {
                let mut batch = batch.clone();
                batch.answer(|_, _| {
                    let token = "K7PQ3M".to_owned();
                    let asked = Confirmation { token, expires_ms: u64::MAX, ..Confirmation::default() };
                    Some(Arc::new(RecordList::from([Arc::new(asked)])))
                });
                EffectResult::LookedUp(Box::new(Answers { facts: batch.facts, ..Answers::default() }))
            }
            Effect::Claim { .. } => EffectResult::Claimed(true),
            other => other.failure(),
        }
    }

    /// The tools of the calls that the client gets, with their arguments.
    fn calls(&self) -> Vec<(String, String)> {
        let body = match &self.answers[..] {
            [Answer::Edited(_, pieces)] => pieces.concat(),
            [Answer::AsItCame(_)] => self.replied.as_bytes().to_vec(),
            other => panic!("{other:?}"),
        };
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let calls = body["choices"][0]["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        calls.iter().map(|call| (text(&call["id"]), text(&call["function"]["arguments"]))).collect()
    }
}

/// A policy for whose tool toolrein runs the calls, for tests.
struct Executes;

impl Policy for Executes {
    const NAME: &'static str = "executes";
    const SUMMARY: &'static str = "for tests";
    type Config = ();
    type State = ();

    fn new((): ()) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }

    fn about(&self) -> About {
        About { engine: vec![EngineService::RunTools], ..About::default() }
    }

    fn judge(&self, call: &Proposed<'_>, _state: &()) -> model::plan::Verdict {
        use model::plan::Verdict;
        if call.name != "time" {
            return Verdict::Allow;
        }
        if call.arguments.is_none() {
            return Verdict::NeedsArguments;
        }
        match call.results.executed() {
            None => Verdict::Pending(CallEffect::CallTool(ToolRun { timeout: Duration::from_secs(5) })),
            Some(text) => {
                let content = text.unwrap_or("The tool has failed.").to_owned();
                Verdict::Answer { content, re_requests: None }
            }
        }
    }
}

/// [`Executes`] after the policies of `tables`.
fn executing(tables: &str) -> PolicySet {
    let mut all = rules(tables);
    all.push(Arc::new(RuleOf::new(Executes)));
    PolicySet::new(all)
}

/// Two calls of a tool that toolrein runs.
const EXECUTED: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
    {"id":"a","type":"function","function":{"name":"time","arguments":"{\"in\":\"Rome\"}"}},
    {"id":"b","type":"function","function":{"name":"time","arguments":"{\"in\":\"Oslo\"}"}}
]},"finish_reason":"tool_calls"}]}"#;

const FINAL: &str =
    r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Noon."},"finish_reason":"stop"}]}"#;

#[test]
fn calls_that_toolrein_runs_run_at_once_and_their_results_go_to_the_model_in_the_order_of_the_calls() {
    let mut driver = Driver::with_reply(executing(""), EXECUTED);
    let arguments: Vec<&str> = driver
        .started
        .iter()
        .map(|(_, effect)| match effect {
            Effect::CallTool { tool, arguments, .. } if tool == "time" => arguments.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(arguments, [r#"{"in":"Rome"}"#, r#"{"in":"Oslo"}"#]);
    driver.finish(1, EffectResult::Executed(None));
    assert_eq!(driver.sent.len(), 1, "the other one still runs");
    driver.finish(0, EffectResult::Executed(Some("noon".into())));
    let asked: serde_json::Value = serde_json::from_str(&driver.sent[1]).unwrap();
    let contents: Vec<_> =
        asked["messages"].as_array().unwrap()[2..].iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, ["noon", "The tool has failed."]);
    driver.reply(FINAL);
    let [Answer::Edited(_, pieces)] = &driver.answers[..] else { panic!("{:?}", driver.answers) };
    let reply = String::from_utf8(pieces.concat()).unwrap();
    assert!(reply.contains("Noon.") && !reply.contains("tool_calls\":["), "{reply}");
}

#[test]
fn a_call_that_toolrein_runs_counts_against_limits_and_needs_what_others_need() {
    let mut driver = Driver::with_reply(executing("[turn_limits]\ncalls = 1\n"), EXECUTED);
    assert_eq!(driver.kinds(), [Kind::CallTool], "the second one is over the limit");
    driver.finish(0, EffectResult::Executed(Some("noon".into())));
    assert!(
        driver.sent[1].contains("noon") && driver.sent[1].contains("BUDGET_EXCEEDED"),
        "{}",
        driver.sent[1]
    );
    driver.reply(EXECUTED);
    assert!(driver.started.is_empty(), "the limit is used up");

    let mut driver =
        Driver::with_reply(executing("[confirm]\ntools = [\"time\"]\nform = \"held\"\n"), EXECUTED);
    assert_eq!(driver.kinds(), [Kind::Approve, Kind::Approve], "before a tool runs");
    driver.finish(0, EffectResult::Decided(ApprovalDecision::Declined.into()));
    driver.finish(0, EffectResult::Decided(ApprovalDecision::Approved.into()));
    assert_eq!(driver.kinds(), [Kind::CallTool]);
    let Effect::CallTool { arguments, .. } = &driver.started[0].1 else { panic!("a tool") };
    assert_eq!(arguments, r#"{"in":"Oslo"}"#);
}

#[test]
fn calls_of_one_reply_wait_at_once_each_for_its_own_effect_and_end_in_any_order() {
    let decided = |decision: ApprovalDecision| EffectResult::Decided(decision.into());
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let mut driver = Driver::with_calls();
        assert_eq!(driver.kinds(), [Kind::Approve, Kind::Approve, Kind::AskModel, Kind::Sleep]);
        let ids: Vec<EffectId> = driver.started.drain(..).map(|(id, _)| id).collect();
        for nth in order {
            assert!(driver.answers.is_empty(), "a call still waits");
            let result = match nth {
                0 => decided(ApprovalDecision::Declined),
                1 => decided(ApprovalDecision::Approved),
                2 => EffectResult::Answered(Some("washing machine".into())),
                _ => EffectResult::Slept(true),
            };
            driver.give(Input::Finished(ids[nth], result));
        }
        let calls = driver.calls();
        let ids: Vec<&str> = calls.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["b", "c", "d", "e"], "{order:?}");
        assert_eq!(calls[1].1, r#"{"query":"washing machine"}"#);
        let mut consents = driver.exchange.record().confirmations.clone();
        consents.sort_by_key(|consent| consent.as_str());
        assert_eq!(consents, [Consent::Approved, Consent::Declined]);
    }
}

#[test]
fn every_effect_of_a_call_that_fails_ends_and_so_does_the_request() {
    let mut driver = Driver::with_calls();
    while let Some((_, effect)) = driver.started.first() {
        let failure = effect.failure();
        driver.finish(0, failure);
    }
    let ids: Vec<String> = driver.calls().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["c", "d"], "what nobody approved or waited for is not made");
}

#[test]
fn every_effect_before_the_request_is_sent_may_fail() {
    for continues in [false, true] {
        for failing in [Kind::Admit, Kind::LookUp, Kind::Claim] {
            let mut driver = Driver::begin(continues);
            while driver.sent.is_empty() && driver.answers.is_empty() {
                let effect = &driver.started[0].1;
                let result = if kind(effect) == failing { effect.failure() } else { Driver::success(effect) };
                driver.finish(0, result);
            }
            let is_refused =
                matches!(driver.answers[..], [Answer::Error(ProxyError::ConversationBusy { .. })]);
            assert_eq!(is_refused, failing == Kind::Admit, "{failing:?}");
        }
    }
}

#[test]
fn a_client_may_leave_during_any_effect() {
    let mut seen = Vec::new();
    for continues in [false, true] {
        // Leaves after so many effects.
        for effects in 0.. {
            let mut driver = Driver::begin(continues);
            for _ in 0..effects {
                if driver.sent.is_empty() && driver.answers.is_empty() {
                    let result = Driver::success(&driver.started[0].1);
                    driver.finish(0, result);
                }
            }
            if !driver.sent.is_empty() || !driver.answers.is_empty() {
                break;
            }
            seen.extend(driver.kinds());
            let closed = driver.exchange.close(now());
            assert!(!closed.is_complete && closed.record.judged.is_empty());
            assert!(closed.writes.is_empty(), "nothing was used: {:?}", closed.writes);
            assert!(driver.exchange.poll().is_none());
        }
    }
    for kind in [Kind::Admit, Kind::LookUp, Kind::Claim] {
        assert!(seen.contains(&kind), "{kind:?} in {seen:?}");
    }
}

#[test]
fn a_client_that_leaves_while_calls_wait_has_none_of_them_and_the_record_says_what_waited() {
    let mut driver = Driver::with_calls();
    let closed = driver.exchange.close(now());
    let judged: Vec<_> = closed.record.judged.iter().map(|call| (call.id.as_str(), call.verdict)).collect();
    assert_eq!(
        judged,
        [("d", Verdict::Allow), ("a", Verdict::Ask), ("b", Verdict::Ask), ("e", Verdict::Block)]
    );
    assert_eq!(closed.record.confirmations, [Consent::Left, Consent::Left]);
    assert!(closed.writes.iter().all(|writes| writes.get::<Release>().is_empty()), "{:?}", closed.writes);
}

#[test]
fn a_result_that_comes_after_its_effect_was_cancelled_or_has_ended_counts_for_nothing() {
    let mut driver = Driver::with_calls();
    let (id, _) = driver.started.remove(0);
    driver.give(Input::Finished(id, EffectResult::Decided(ApprovalDecision::Declined.into())));
    driver.give(Input::Finished(id, EffectResult::Decided(ApprovalDecision::Approved.into())));
    assert_eq!(driver.exchange.record().late_results, 1);
    while let Some((_, effect)) = driver.started.first() {
        let failure = effect.failure();
        driver.finish(0, failure);
    }
    assert!(driver.calls().iter().all(|(id, _)| id != "a"), "it stays declined");
}

/// Quotas of two calls of `pay` and three of `wait`.
const QUOTAS: &str = r#"
[quota.limits]
payments = { tools = ["pay"], calls = 2, per = "1h" }
waits = { tools = ["wait"], calls = 3, per = "1h" }
"#;

/// The use of a quota by the `nth` call.
fn counted(nth: u32) -> Use {
    Use { call: Hash(1), request: Hash(2), nth, at_ms: AT_MS, tries: 1, calls: 1 }
}

/// What becomes of a reservation: the `nth` use, or none.
fn reserved(nth: Option<u32>) -> CallReservationResult {
    let granted = nth.map(|_| ReservationResult::Granted { alone: false });
    let used_up = || ReservationResult::UsedUp { used: 2, times: vec![AT_MS - 2, AT_MS - 1] };
    CallReservationResult { reserved: granted.unwrap_or_else(used_up), counted: nth.map(counted) }
}

/// The uses that were given back.
fn returned(stored: &[Writes]) -> Vec<u32> {
    stored.iter().flat_map(|writes| &writes.returned).map(|(_, returned)| returned.nth).collect()
}

#[test]
fn calls_that_wait_together_for_reservations_make_one_trip_and_each_has_its_own_result() {
    let mut driver = Driver::with_reply(policies(QUOTAS), CALLS);
    assert_eq!(driver.kinds(), [Kind::Reserve]);
    let Effect::Reserve(reservations) = &driver.started[0].1 else { panic!("reservations") };
    assert_eq!(reservations.len(), 4, "the search has no quota");
    let results = [Some(1), None, Some(3), Some(4)].map(reserved);
    driver.finish(0, EffectResult::Reserved(results.to_vec()));
    let ids: Vec<String> = driver.calls().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["a", "c", "d", "e"]);
    driver.stored.extend(driver.exchange.close(now()).writes);
    assert_eq!(returned(&driver.stored), Vec::<u32>::new());
    assert!(driver.stored.iter().all(|writes| writes.spent.is_empty()), "they are counted already");
}

#[test]
fn what_is_not_handed_out_after_its_reservation_is_given_back() {
    // Each call in the wrapper has its own reservation, and one that finds no room blocks all.
    const WRAPPER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
        {"id":"a","type":"function","function":{"name":"multi_tool_use.parallel","arguments":
        "{\"tool_uses\":[{\"recipient_name\":\"functions.pay\",\"parameters\":{}},{\"recipient_name\":\"functions.wait\",\"parameters\":{}}]}"}}
    ]},"finish_reason":"tool_calls"}]}"#;
    for (results, given_back) in
        [([Some(1), None], vec![1]), ([None, Some(2)], vec![2]), ([Some(1), Some(2)], vec![])]
    {
        let mut driver = Driver::with_reply(policies(QUOTAS), WRAPPER);
        assert_eq!(driver.kinds(), [Kind::Reserve]);
        driver.finish(0, EffectResult::Reserved(results.map(reserved).to_vec()));
        assert_eq!(returned(&driver.stored), given_back, "{results:?}");
        assert_eq!(
            driver.sent.len(),
            1 + usize::from(!given_back.is_empty()),
            "a blocked call is asked about"
        );
    }
}

#[test]
fn the_reservation_of_a_client_that_leaves_is_cancelled_and_that_of_a_call_that_it_has_stays() {
    let driver = Driver::with_reply(policies(QUOTAS), CALLS);
    let mut exchange = driver.exchange;
    let closed = exchange.close(now());
    assert!(closed.writes.iter().all(|writes| writes.spent.is_empty() && writes.returned.is_empty()));
    let mut driver = Driver::with_reply(policies(QUOTAS), CALLS);
    // The store has taken none of them: they are counted when they are handed out.
    driver.finish(0, EffectResult::Reserved(Vec::new()));
    assert_eq!(driver.calls().len(), 5);
    driver.stored.extend(driver.exchange.close(now()).writes);
    assert_eq!(driver.stored.iter().map(|writes| writes.spent.len()).sum::<usize>(), 4);
}

/// How many requests the updates add to sums, and take back.
fn requests(stored: &[Writes]) -> (u64, u64) {
    let tallied = || stored.iter().flat_map(|writes| &writes.tallied).map(|(_, tally)| tally);
    let requests = |sums: fn(&Tally) -> &Sums| tallied().map(|tally| sums(tally).get(Amount::Requests)).sum();
    (requests(|tally| &tally.sums), requests(|tally| &tally.refunded))
}

#[test]
fn what_a_look_up_counts_ahead_stays_where_the_request_is_sent_and_is_taken_back_where_it_is_not() {
    const DAY: &str = "[budget]\ntool_calls = 0\nday = { requests = 3 }\n";
    let body = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;
    let begin = || {
        let (shared, arrived) = arrived(CHAT, body, settings(policies(DAY)));
        Driver::of(Exchange::begin(shared, arrived, Box::default(), now()))
    };
    // With so many requests before it.
    let facts = |used: u64| {
        let sums = Sums::default().with(Amount::Requests, used);
        let sums = vec![Tally { sums, ..Tally::default() }];
        EffectResult::LookedUp(Box::new(Answers { sums, ..Answers::default() }))
    };
    let mut driver = begin();
    let Effect::LookUp(batch) = &driver.started[0].1 else { panic!("a look-up") };
    assert_eq!(batch.ahead.sums.get(Amount::Requests), 1);
    driver.finish(0, facts(2));
    driver.reply(FINAL);
    driver.stored.extend(driver.exchange.close(now()).writes);
    assert_eq!((driver.sent.len(), requests(&driver.stored)), (1, (0, 0)), "counted already");
    for (used, leaves, sent) in [(3, false, 0), (2, true, 1)] {
        let mut driver = begin();
        driver.finish(0, facts(used));
        assert_eq!(driver.sent.len(), sent);
        if !leaves {
            assert!(matches!(driver.answers[..], [Answer::Error(ProxyError::Refused { .. })]));
        }
        driver.stored.extend(driver.exchange.close(now()).writes);
        assert_eq!(requests(&driver.stored), (0, 1 - sent as u64), "a client that leaves early is not free");
    }
    // The upstream cannot be reached.
    let mut driver = begin();
    driver.finish(0, facts(0));
    driver.give(Input::NotSent(ProxyError::UpstreamConnect { host: "h".to_owned(), detail: "d".to_owned() }));
    driver.stored.extend(driver.exchange.close(now()).writes);
    assert_eq!(requests(&driver.stored), (0, 1));
}

#[test]
fn a_call_is_reserved_last_after_all_else_that_it_waits_for() {
    let tables = format!("{WAITING}\n{QUOTAS}");
    let mut driver = Driver::with_reply(policies(&tables), CALLS);
    assert_eq!(driver.kinds(), [Kind::Approve, Kind::Approve, Kind::AskModel, Kind::Sleep, Kind::Reserve]);
    let count = |driver: &Driver| match &driver.started.last().unwrap().1 {
        Effect::Reserve(reservations) => reservations.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(count(&driver), 1, "the first call of `wait`, which waits for nothing else");
    driver.finish(4, EffectResult::Reserved(vec![reserved(Some(1))]));
    driver.finish(0, EffectResult::Decided(ApprovalDecision::Approved.into()));
    assert_eq!((driver.kinds().last(), count(&driver)), (Some(&Kind::Reserve), 1), "once it is approved");
    driver.finish(3, EffectResult::Reserved(vec![reserved(Some(2))]));
    driver.finish(0, EffectResult::Decided(ApprovalDecision::Declined.into()));
    assert_eq!(driver.kinds(), [Kind::AskModel, Kind::Sleep], "what nobody approved is not reserved");
    driver.finish(1, EffectResult::Slept(true));
    assert_eq!(driver.kinds(), [Kind::AskModel, Kind::Reserve], "once its time has come");
    driver.finish(1, EffectResult::Reserved(vec![reserved(None)]));
    driver.finish(0, EffectResult::Answered(None));
    let ids: Vec<String> = driver.calls().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["a", "c", "d"]);
    assert_eq!(returned(&driver.stored), Vec::<u32>::new());
}

#[test]
fn a_request_makes_one_trip_to_the_store_two_where_the_upstream_keeps_its_history_and_one_where_calls_wait() {
    let is_trip = |kind: &Kind| matches!(kind, Kind::LookUp | Kind::Claim | Kind::Reserve);
    for (continues, expected) in
        [(false, vec![Kind::LookUp, Kind::Claim]), (true, vec![Kind::LookUp, Kind::LookUp])]
    {
        let (mut driver, mut trips) = (Driver::begin(continues), Vec::new());
        while driver.sent.is_empty() && driver.answers.is_empty() {
            trips.extend(driver.kinds().into_iter().filter(is_trip));
            let result = Driver::success(&driver.started[0].1);
            driver.finish(0, result);
        }
        assert_eq!(trips, expected);
    }
    let body = r#"{"model":"m","messages":[{"role":"user","content":"q"}]}"#;
    let (shared, arrived) = arrived(CHAT, body, settings(policies(QUOTAS)));
    let mut driver = Driver::of(Exchange::begin(shared, arrived, Box::default(), now()));
    assert_eq!(driver.kinds(), [Kind::LookUp]);
    driver.finish(0, EffectResult::LookedUp(Box::default()));
    driver.reply(FINAL);
    assert!(driver.started.is_empty() && driver.answers.len() == 1, "text waits for no trip");
}
