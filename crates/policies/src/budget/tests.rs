//! The cases of the budget.

use super::super::cases::{Conversation, plan_of, policy, read_knowing, turn};
use super::super::scenario::problem;
use super::*;
use crate::set::PolicySet;
use model::account::PlacedNotice;
use model::plan::Change;
use model::testing::{SampleItem, SampleRequest, answered_calls, assistant, call, reply, result, user};

/// A request of a turn of `calls` calls, and more messages after it.
fn turn_and(calls: usize, more: &[SampleItem]) -> SampleRequest {
    SampleRequest::new(answered_calls("f", calls).iter().chain(more))
}

/// The answer that ends a turn, and the beginning of the next one.
fn next_turn() -> [SampleItem; 2] {
    [assistant("done"), user("more")]
}

/// Each notice: the index of its message, its name, its text.
fn notices(table: &str, request: &SampleRequest) -> Vec<(usize, &'static str, String)> {
    let plan = plan_of(&policy::<Budget>(table), request);
    let notices = plan.edits.into_iter().map(|edit| match edit.change {
        Change::Notice { text, word } => (edit.item.index, word, text),
        other => panic!("{other:?}"),
    });
    notices.collect()
}

#[test]
fn no_notice_is_given_before_half_of_the_budget_is_used() {
    assert_eq!(notices("tool_calls = 10", &turn("f", 4)), []);
}

/// The words of notices, with the index of each message.
fn words(table: &str, request: &SampleRequest) -> Vec<(usize, &'static str)> {
    notices(table, request).iter().map(|(message, word, _)| (*message, *word)).collect()
}

#[test]
fn each_threshold_is_announced_once_with_numbers_and_advice() {
    let notices = notices("tool_calls = 10", &turn("f", 10));
    let words: Vec<(usize, &str)> = notices.iter().map(|(message, word, _)| (*message, *word)).collect();
    assert_eq!(words, [(10, "notice"), (14, "critical"), (18, "critical")]);
    assert_eq!(
        notices[0].2,
        "[toolrein] Budget: 5 of 10 tool calls of this turn used, ~50% left. Use the calls that are left for \
         what matters most."
    );
    assert!(notices[1].2.ends_with("~30% left. Answer now with what you have, or ask the user."));
    assert!(notices[2].2.contains("9 of 10") && notices[2].2.contains("~10% left"));
}

#[test]
fn several_thresholds_reached_at_once_are_announced_together() {
    for (table, calls, expected) in [
        ("tool_calls = 2", 2, vec![(2, "notice"), (4, "critical")]),
        ("tool_calls = 1", 1, vec![(2, "critical")]),
        ("tool_calls = 10\nnotify_at = [1.0]", 10, vec![(20, "critical")]),
        ("tool_calls = 10\nnotify_at = []", 10, vec![]),
        ("tool_calls = 0", 10, vec![]),
    ] {
        assert_eq!(words(table, &turn("f", calls)), expected, "{table}");
    }
    let used_up = notices("tool_calls = 1", &turn("f", 1));
    assert!(used_up[0].2.contains("No tool calls left: answer now"));
}

#[test]
fn with_every_result_each_group_from_the_first_threshold_on_is_followed_by_what_is_left() {
    assert_eq!(
        words("tool_calls = 10\nnotify = \"every_result\"", &turn("f", 10)),
        [
            (10, "notice"),
            (12, "notice"),
            (14, "critical"),
            (16, "critical"),
            (18, "critical"),
            (20, "critical")
        ]
    );
}

#[test]
fn a_group_of_parallel_calls_gets_one_notice_after_its_last_result() {
    let first = [user("q"), reply([call("a", "f", ""), call("b", "f", "")]), result("b", "")];
    let and = |last: SampleItem| SampleRequest::new(first.iter().chain([&last]));
    let places: Vec<usize> =
        notices("tool_calls = 4", &and(result("a", ""))).iter().map(|notice| notice.0).collect();
    assert_eq!(places, [3]);
    assert_eq!(notices("tool_calls = 2", &and(user("stop"))), []);
}

#[test]
fn a_new_turn_starts_with_a_fresh_budget_and_says_so_where_the_last_one_had_notices() {
    for (calls, said) in [(3, false), (6, true)] {
        let request = turn_and(calls, &next_turn());
        let fresh: Vec<_> =
            notices("tool_calls = 10", &request).into_iter().filter(|notice| notice.1 == "fresh").collect();
        assert_eq!(fresh.len(), usize::from(said), "{calls} calls");
        if said {
            assert_eq!(fresh[0].0, calls * 2 + 2);
            assert_eq!(fresh[0].2, "[toolrein] New turn: the tool budget is fresh, 10 tool calls.");
        }
    }
}

#[test]
fn a_user_message_right_after_results_belongs_to_the_running_turn() {
    let request = turn_and(6, &[user("go on")]);
    assert!(notices("tool_calls = 10", &request).iter().all(|notice| notice.1 != "fresh"));
}

#[test]
fn calls_beyond_the_budget_are_blocked_in_order() {
    for (used, verdicts) in [(8, [true, true, false, false]), (10, [false; 4])] {
        let mut talk = Conversation::with_calls(&policy::<Budget>("tool_calls = 10"), "f", &vec![None; used]);
        for allowed in verdicts {
            let ruling = talk.judge("f", "{}", 0);
            assert_eq!(ruling.is_allowed(), allowed, "{used} used");
            if let Some((_, reason)) = ruling.objections.first() {
                assert_eq!((reason.kind, reason.retryable), (ReasonKind::BudgetExceeded, false));
                assert!(
                    reason.message.contains("10 of 10 tool calls")
                        && reason.message.contains("final answer now")
                );
            }
        }
    }
}

#[test]
fn informing_blocks_nothing_and_rejecting_refuses_the_request() {
    let mut talk =
        Conversation::with_calls(&policy::<Budget>("tool_calls = 1\nexhausted = \"inform\""), "f", &[None]);
    assert!(talk.judge("f", "{}", 0).is_allowed());
    let reject = policy::<Budget>("tool_calls = 2\nexhausted = \"reject\"");
    assert_eq!(plan_of(&reject, &turn("f", 1)).refusal, None);
    let refusal = plan_of(&reject, &turn("f", 2)).refusal.unwrap();
    assert_eq!(refusal.code, "budget_exceeded");
    assert!(refusal.message.contains("2 of 2 tool calls"));
}

#[test]
fn tokens_are_counted_only_where_they_are_limited_and_shown_only_there() {
    let request = turn("f", 3);
    assert!(notices("tool_calls = 4", &request).iter().all(|notice| !notice.2.contains("tokens")));
    let notices_of = notices("tool_calls = 0\ncontext_tokens = 50", &request);
    let next = turn_and(3, &next_turn());
    assert!(notices("tool_calls = 0\ncontext_tokens = 80", &next).iter().all(|notice| notice.1 != "fresh"));
    assert!(notices_of.last().unwrap().2.contains("of 50 tokens used"), "{notices_of:?}");
    let mut talk =
        Conversation::with_calls(&policy::<Budget>("tool_calls = 0\ncontext_tokens = 20"), "f", &[None; 3]);
    assert!(!talk.judge("f", "{}", 0).is_allowed());
}

#[test]
fn an_exhausted_conversation_budget_is_never_called_fresh() {
    let request = turn_and(6, &next_turn());
    assert!(
        notices("tool_calls = 10\ncontext_tokens = 20", &request).iter().all(|notice| notice.1 != "fresh")
    );
}

#[test]
fn settings_that_contradict_themselves_are_refused() {
    for (table, expected) in [
        ("notify_at = [1.5]", "notify_at: expected shares above 0, up to 1, found 1.5"),
        ("notify_at = [0.0, 0.5]", "notify_at: expected shares above 0, up to 1, found 0"),
        ("notify_at = [0.5, nan]", "notify_at: expected shares above 0, up to 1, found NaN"),
        ("notify_at = [0.5, 0.5]", "notify_at: expected shares that ascend"),
    ] {
        assert_eq!(problem::<Budget>(table), expected, "{table}");
    }
}

#[test]
fn a_key_has_its_scope_and_a_table_of_its_own_takes_precedence() {
    let config: Config = toml::from_str(
        "tool_calls = 5\nrequests = 6\ntime = \"7s\"\ncontext_tokens = 8\nbilled_tokens = 9\nspend_usd = 0.5\n\
         turn = { tool_calls = 3 }\nconversation = { billed_tokens = 4, requests = 2 }\nday = { spend_usd = 1, time = \"1h\" }",
    )
    .unwrap();
    let [turn, conversation, day] = config.limits().map(|sums| sums.0);
    assert_eq!(turn, [3, 6, 0, 0, 7_000, 0]);
    assert_eq!(conversation, [0, 2, 4, 500_000_000, 0, 8]);
    assert_eq!(day, [0, 0, 0, 1_000_000_000, 3_600_000, 0]);
}

#[test]
fn only_what_the_history_does_not_show_needs_an_account() {
    for (table, needs) in [
        ("", None),
        ("context_tokens = 5", None),
        ("turn = { tool_calls = 3 }", None),
        ("requests = 5", Some((false, false, false))),
        ("time = \"5s\"", Some((false, false, false))),
        ("billed_tokens = 5", Some((true, false, false))),
        ("spend_usd = 5", Some((true, true, false))),
        ("day = { tool_calls = 5 }", Some((false, false, true))),
        ("exhausted = \"ask\"", Some((false, false, false))),
    ] {
        let set = PolicySet::new(vec![policy::<Budget>(table)]);
        let found = set.accounting().map(|it| (it.tokens, it.spend, it.day));
        assert_eq!(found, needs, "{table}");
    }
}

/// A request of `calls` calls with this account, and a judge of its reply.
fn with_account(table: &str, calls: usize, account: Account) -> (Plan, crate::set::Judge) {
    let rules = [policy::<Budget>(table)];
    read_knowing(&rules, &turn("f", calls), |transcript| transcript.account = Some(Arc::new(account)))
}

fn account(scope: Scope, kind: Kind, used: u64) -> Account {
    let mut account = Account { may_pin: true, now_ms: 1_000, since_ms: 1_000, ..Account::default() };
    account.used[scope as usize] = Sums::default().with(kind, used);
    account
}

/// A limit, the scope and kind of what it limits, what is used of it, how that is written, and its number for programs.
type Limited = (&'static str, Scope, Kind, u64, &'static str, (&'static str, u64));

const LIMITED: [Limited; 6] = [
    (
        "requests = 4",
        Scope::Turn,
        Kind::Requests,
        4,
        "4 of 4 model requests of this turn",
        ("requests_used", 4),
    ),
    (
        "time = \"9s\"",
        Scope::Turn,
        Kind::Millis,
        9_000,
        "9s of 9s of this turn's time",
        ("time_ms_used", 9_000),
    ),
    (
        "billed_tokens = 50",
        Scope::Conversation,
        Kind::Tokens,
        60,
        "60 of 50 billed tokens",
        ("billed_tokens_used", 60),
    ),
    (
        "spend_usd = 1.5",
        Scope::Conversation,
        Kind::Nanodollars,
        1_500_000_000,
        "$1.50 of $1.50 spent in this conversation",
        ("spend_microusd_used", 1_500_000),
    ),
    (
        "conversation = { tool_calls = 9 }",
        Scope::Conversation,
        Kind::Calls,
        9,
        "9 of 9 tool calls of this conversation",
        ("used", 9),
    ),
    (
        "day = { requests = 2 }",
        Scope::Day,
        Kind::Requests,
        2,
        "2 of 2 model requests of today",
        ("requests_used", 2),
    ),
];

#[test]
fn each_amount_of_the_account_is_limited_and_announced_in_its_own_words() {
    for (table, scope, kind, used, text, numbers) in LIMITED {
        let table = format!("tool_calls = 0\n{table}");
        let (plan, mut judge) = with_account(&table, 1, account(scope, kind, used));
        let announced = plan.announced.into_iter().next().unwrap();
        assert!(
            announced.text.contains(text) && announced.text.contains("No tool calls left"),
            "{}",
            announced.text
        );
        assert_eq!(
            (announced.message, announced.marks.unwrap()[scope as usize].0[kind as usize]),
            (2, 3),
            "{table}"
        );
        let reason = judge.rule(0, "f", Some("{}"), 1_000).objections.remove(0).1;
        assert!(reason.message.contains(text) && reason.is_final, "{}", reason.message);
        assert!(reason.numbers.contains(&numbers), "{:?}", reason.numbers);
        // One less is within the limit.
        let within = account(scope, kind, used / 10 * 4);
        assert!(with_account(&table, 1, within).1.rule(0, "f", Some("{}"), 1_000).is_allowed(), "{table}");
    }
}

#[test]
fn money_tokens_and_requests_of_more_than_a_turn_end_in_one_final_answer_and_then_in_a_refusal() {
    for (limit, scope, kind, refuses) in [
        ("requests = 4", Scope::Turn, Kind::Requests, false),
        ("turn = { spend_usd = 0.5 }", Scope::Turn, Kind::Nanodollars, false),
        ("conversation = { tool_calls = 9 }", Scope::Conversation, Kind::Calls, false),
        ("conversation = { time = \"9s\" }", Scope::Conversation, Kind::Millis, false),
        ("conversation = { requests = 9 }", Scope::Conversation, Kind::Requests, true),
        ("billed_tokens = 50", Scope::Conversation, Kind::Tokens, true),
        ("spend_usd = 1.5", Scope::Conversation, Kind::Nanodollars, true),
        ("day = { billed_tokens = 50 }", Scope::Day, Kind::Tokens, true),
    ] {
        let table = format!("tool_calls = 0\n{limit}");
        for may in [true, false] {
            let known = Account { may_answer: [may; SCOPES], ..account(scope, kind, 2_000_000_000) };
            let (plan, _) = with_account(&table, 1, known);
            assert_eq!(
                (plan.refusal.is_some(), plan.final_answer.is_some()),
                (refuses && !may, refuses && may),
                "{limit}"
            );
        }
        let within = account(scope, kind, 0);
        let (plan, _) = with_account(&table, 1, within);
        assert_eq!((plan.refusal, plan.final_answer), (None, None), "{limit}");
    }
}

#[test]
fn a_refusal_names_each_scope_that_is_used_up_and_when_it_begins_anew() {
    let mut known = account(Scope::Conversation, Kind::Nanodollars, 1_500_000_000);
    known.used[Scope::Day as usize] = Sums::default().with(Kind::Requests, 7).with(Kind::Tokens, 3);
    (known.now_ms, known.since_ms) = (DAY_MS + 90_000, DAY_MS + 90_000);
    let table = "tool_calls = 0\nspend_usd = 1.5\nday = { requests = 7, billed_tokens = 4 }";
    let refusal = with_account(table, 1, known).0.refusal.unwrap();
    assert_eq!(
        refusal.message,
        "The budget of this conversation and of this day is used up: $1.50 of $1.50 spent in this conversation, 7 of 7 \
         model requests of today used. A new conversation begins with a new budget. The budget of the day begins anew at \
         1970-01-03T00:00:00Z, in 23h 59m."
    );
}

#[test]
fn time_runs_on_while_the_model_answers_and_calls_of_the_reply_count() {
    let table = "tool_calls = 0\ntime = \"9s\"";
    let mut judge = with_account(table, 1, account(Scope::Turn, Kind::Millis, 5_000)).1;
    assert!(judge.rule(0, "f", Some("{}"), 4_999).is_allowed());
    assert!(!judge.rule(0, "f", Some("{}"), 5_000).is_allowed());
    let table = "tool_calls = 0\nday = { tool_calls = 3 }";
    let mut judge = with_account(table, 1, account(Scope::Day, Kind::Calls, 1)).1;
    let allowed = [(); 3].map(|()| judge.rule(0, "f", Some("{}"), 1_000).is_allowed());
    assert_eq!(allowed, [true, true, false]);
}

#[test]
fn an_announced_threshold_is_not_announced_again_but_its_placed_notice_is_repeated() {
    let table = "tool_calls = 0\nbilled_tokens = 100";
    let mut known = account(Scope::Conversation, Kind::Tokens, 60);
    known.marks[Scope::Conversation as usize].0[Kind::Tokens as usize] = 1;
    let placed = |by: &str| PlacedNotice { message: 2, by: by.into(), text: format!("by {by}").into() };
    known.pins = vec![placed("other"), placed("budget")];
    let (plan, _) = with_account(table, 2, known.clone());
    assert_eq!(plan.announced, []);
    let texts: Vec<(usize, &str)> =
        plan.edits.iter().map(|edit| (edit.item.index, edit.change.text())).collect();
    assert_eq!(texts, [(2, "by budget")]);
    known.used[Scope::Conversation as usize] = Sums::default().with(Kind::Tokens, 70);
    let (plan, _) = with_account(table, 2, known.clone());
    assert_eq!(plan.announced.first().map(|announced| announced.message), Some(4), "the next threshold");
    known.may_pin = false;
    assert_eq!(with_account(table, 2, known).0.announced, [], "no room");
}

#[test]
fn an_approval_is_asked_for_and_extends_the_scope_that_is_used_up() {
    let table = "tool_calls = 2\nexhausted = \"ask\"\nextension = 1";
    let asked = |bought: u32, calls: usize| {
        let mut known = account(Scope::Turn, Kind::Calls, 0);
        known.bought[Scope::Turn as usize] = bought;
        with_account(table, calls, known).1.rule(0, "f", Some("{}"), 1_000)
    };
    for (bought, calls, is_allowed) in
        [(0, 1, true), (0, 2, false), (1, 2, true), (1, 3, false), (2, 3, true)]
    {
        assert_eq!(asked(bought, calls).is_allowed(), is_allowed, "{bought} {calls}");
    }
    let reason = asked(1, 3).objections.remove(0).1;
    assert!(reason.needs_approval() && reason.is_final);
    let (line, extends) = reason.asks.unwrap();
    assert_eq!(
        line,
        "The budget is used up: 3 of 3 tool calls of this turn used. Your approval adds 1 more call."
    );
    assert_eq!(extends, [true, false, false]);
}

#[test]
fn an_extension_changes_no_notice_before_it() {
    let table = "tool_calls = 4\nexhausted = \"ask\"\nextension = 4";
    let edits = |bought: u32, calls: usize| {
        let mut known = account(Scope::Turn, Kind::Calls, 0);
        known.bought[Scope::Turn as usize] = bought;
        let plan = with_account(table, calls, known).0;
        let announced = plan.announced.first().cloned();
        let texts = plan.edits.into_iter().map(|edit| (edit.item.index, edit.change.text().to_owned()));
        (texts.collect::<Vec<_>>(), announced)
    };
    let (before, _) = edits(0, 4);
    let (after, announced) = edits(1, 5);
    assert_eq!(after[..before.len()], before[..]);
    // 5 of 8 are used: the first threshold of the extended limit.
    assert_eq!(after.len(), before.len() + 1);
    let announced = announced.unwrap();
    assert!(announced.text.contains("5 of 8 tool calls"), "{}", announced.text);
    assert_eq!(announced.marks.unwrap()[Scope::Turn as usize].0[Kind::Calls as usize], 101);
}

#[test]
fn a_budget_of_money_reports_models_without_a_price() {
    for (is_priced, expected) in [(true, 0), (false, 1)] {
        let known = Account { is_priced, ..account(Scope::Conversation, Kind::Nanodollars, 0) };
        let plan = with_account("tool_calls = 0\nspend_usd = 1.0", 1, known).0;
        let remarks = plan.edits.iter().filter(|edit| matches!(edit.change, Change::Remark { .. })).count();
        assert_eq!(remarks, expected);
    }
}
