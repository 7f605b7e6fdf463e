//! Tests of the live view: what request records become.

use super::conversations::Conversation;
use super::events::Kind;
use super::*;
use crate::telemetry::cases::rich;
use model::record::{JudgedCall, LimitUse, PolicyDecision, Route, Verdict};
use tokio::sync::broadcast::error::TryRecvError;

const BOUNDS: Bounds = Bounds { conversations: 3, callers: 0, with_decisions: true, body_bytes: 100 };

fn record(conversation: &str) -> RequestRecord {
    let mut record = RequestRecord::new(Route::Chat);
    record.conversation = Some(conversation.to_owned());
    record.status = 200;
    record
}

fn blocked(policy: &'static str) -> JudgedCall {
    JudgedCall {
        tool: "search".to_owned(),
        id: String::new(),
        verdict: Verdict::Block,
        unjudged: false,
        decisions: vec![PolicyDecision {
            policy,
            reason: "LOOP_DETECTED",
            is_objection: true,
            message: Some("The same call again.".to_owned()),
            ..PolicyDecision::default()
        }],
        is_spoken: true,
        new_arguments: None,
    }
}

fn ids(live: &Live, fits: impl Fn(&Conversation) -> bool) -> Vec<String> {
    live.conversations(fits, 0, 10).1.iter().map(|one| one.id.to_string()).collect()
}

#[test]
fn a_record_becomes_totals_tools_and_a_conversation() {
    let live = Live::new(BOUNDS);
    let rich = rich();
    live.record(&rich);
    let totals = live.totals();
    assert_eq!((totals.requests, totals.calls), (1, [3, 1, 0, 0, 0]));
    let policy = totals.policies.iter().find(|policy| policy.policy == "rate_limit").unwrap();
    assert_eq!(policy.block, 1);
    let removed: u64 = rich.policy_tokens.iter().map(|tokens| tokens.removed).sum();
    assert_eq!((totals.minutes.len(), totals.minutes[0].removed), (1, removed));
    let tools = live.tools();
    let weather = tools.iter().find(|tool| tool.tool == "weather").unwrap();
    assert_eq!((weather.calls, weather.blocked, weather.results, weather.errors), (2, 1, 1, 1));
    let (blocked, turns) = live.limits();
    assert_eq!((blocked[0].policy, &*blocked[0].tool, blocked[0].blocked), ("rate_limit", "weather", 1));
    assert_eq!((turns[0].turns, turns[0].reached_100), (1, 1));
    let id = rich.conversation.unwrap();
    let conversation = live.conversation(&id).unwrap();
    let decision = &conversation.decisions[0];
    assert_eq!((decision.policy, decision.used, decision.limit), (Some("rate_limit"), Some(3), Some(3)));
}

#[test]
fn without_a_token_no_decision_is_kept_and_what_was_kept_is_forgotten() {
    let decisions = |live: &Live| {
        let conversation = live.conversation(&rich().conversation.unwrap()).unwrap();
        (conversation.decisions.len(), conversation.limits.len(), conversation.blocked)
    };
    let without = Bounds { with_decisions: false, ..BOUNDS };
    let live = Live::new(without);
    live.record(&rich());
    assert_eq!(decisions(&live), (0, 0, 1), "it is counted all the same");
    let live = Live::new(BOUNDS);
    live.record(&rich());
    assert!(decisions(&live).0 > 0 && decisions(&live).1 > 0);
    let (_, listed) = live.conversations(|_| true, 0, 10);
    assert_eq!((listed[0].decisions.len(), listed[0].blocked), (0, 1), "a list needs none");
    live.configure(without);
    assert_eq!(decisions(&live), (0, 0, 1));
}

#[test]
fn the_newest_conversations_are_kept_and_listed_first() {
    let live = Live::new(BOUNDS);
    for id in ["a", "b", "c", "a", "d"] {
        live.record(&record(id));
    }
    assert_eq!(ids(&live, |_| true), ["d", "a", "c"]);
    assert_eq!(ids(&live, |one| one.requests > 1), ["a"]);
    let (total, page) = live.conversations(|_| true, 1, 1);
    assert_eq!((total, page.len(), &*page[0].id), (3, 1, "a"));
    live.configure(Bounds { conversations: 1, ..BOUNDS });
    assert_eq!(ids(&live, |_| true), ["d"]);
}

#[test]
fn a_runaway_is_counted_once_a_turn_and_so_is_each_share_of_a_limit() {
    let live = Live::new(BOUNDS);
    let limit = |used| {
        vec![LimitUse {
            policy: Some("budget"),
            tool: "*".to_owned(),
            used,
            limit: 10,
            is_used: true,
            of_caller: false,
        }]
    };
    let mut within = record("a");
    within.results = rich().results;
    for (used, judged) in [(6, vec![]), (9, vec![blocked("loops")]), (10, vec![blocked("budget")])] {
        within.usage_of_limits = limit(used);
        within.judged = judged;
        live.record(&within);
    }
    assert_eq!(live.totals().runaways, 1);
    let mut next_turn = record("a");
    next_turn.usage_of_limits = limit(2);
    next_turn.judged = vec![blocked("rate_limit"), blocked("loops")];
    live.record(&next_turn);
    assert_eq!((live.totals().runaways, live.totals().turns), (2, 1));
    let (_, turns) = live.limits();
    let turns = &turns[0];
    let counts = (turns.turns, turns.reached_50, turns.reached_80, turns.reached_100);
    assert_eq!((turns.policy, counts), ("budget", (2, 1, 1, 1)));
}

#[test]
fn events_are_made_for_readers_and_a_slow_one_is_given_the_number_that_it_missed() {
    let live = Live::new(BOUNDS);
    live.record(&rich());
    let mut reader = live.events().subscribe().unwrap();
    assert!(matches!(reader.try_next(), Err(TryRecvError::Empty)), "nothing of before");
    live.record(&rich());
    let mut kinds = Vec::new();
    while let Ok(event) = reader.try_next() {
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        assert!(data["at_ms"].is_u64() && data["request_id"].is_string(), "{data}");
        kinds.push(event.kind);
    }
    for kind in [Kind::ToolResult, Kind::ToolCallStart, Kind::ToolCallBlocked, Kind::Fallback, Kind::ReAsk] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert_eq!(kinds.last(), Some(&Kind::Done));
    (0..1_000).for_each(|_| live.record(&rich()));
    assert!(matches!(reader.try_next(), Err(TryRecvError::Lagged(1_000..))));
}

#[test]
fn what_was_shown_while_a_request_was_in_flight_is_not_shown_again_at_its_end() {
    let live = Live::new(BOUNDS);
    let mut reader = live.events().subscribe().unwrap();
    let mut kinds = || {
        let events = std::iter::from_fn(|| reader.try_next().ok());
        events.map(|event| event.kind.as_str()).collect::<Vec<_>>()
    };
    live.record(&rich());
    let mut expected = kinds();
    let mut record = rich();
    let judged = std::mem::take(&mut record.judged);
    let mut published = Published::default();
    for calls in [&judged[..1], &judged[1..], &[]] {
        live.happened(&record, &mut published, calls);
    }
    record.published = published;
    record.judged = judged;
    let mut shown = kinds();
    assert!(!shown.contains(&"done"), "{shown:?}");
    live.record(&record);
    let last = kinds();
    assert_eq!(last, ["done"]);
    shown.extend(last);
    shown.sort_unstable();
    expected.sort_unstable();
    assert_eq!(shown, expected);
}

#[test]
fn readers_are_bounded() {
    let live = Live::new(BOUNDS);
    let readers: Vec<_> = std::iter::from_fn(|| live.events().subscribe()).take(1_000).collect();
    assert_eq!(readers.len(), 32);
    drop(readers);
    assert!(!live.events().has_readers());
    assert!(live.events().subscribe().is_some());
}
