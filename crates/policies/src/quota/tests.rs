//! Cases of quotas: what counts, what each tier may use, what the model reads of it, and what is refused.

use super::*;
use crate::cases::{declaring, policy, read_answered, read_spent, somebody, turn};
use crate::scenario::problem;
use crate::set::Judge;
use crate::set::PolicySet;
use model::account::{Account, PlacedNotice};
use model::calls::canonical_hash;
use model::plan::{Finding, Refusal};
use model::testing::{SampleRequest, assistant, call, reply, result, user};
use model::uses::{Use, request_key, use_key, uses_at};

const HOUR: u64 = 3_600_000;
const IMAGES: &str = r#"limits = { images = { tools = ["*image*", "*Image*"], calls = 3, per = "5h" } }"#;

/// A judge of a caller whose calls were handed out at these times.
fn judge(table: &str, spent: &[Vec<u64>]) -> Judge {
    read_spent(&policy::<Quota>(table), spent)
}

fn blocked(judge: &mut Judge, tool: &str, now_ms: u64) -> Option<Reason> {
    judge.rule(0, tool, None, now_ms).objections.pop().map(|(_, reason)| reason)
}

#[test]
fn calls_of_other_conversations_count_until_they_leave_the_window() {
    for (spent, now, expected) in [
        (vec![], HOUR, None),
        (vec![HOUR, HOUR + 1], 2 * HOUR, None),
        (vec![HOUR, HOUR + 1, HOUR + 2], 2 * HOUR, Some((3, 4 * HOUR))),
        (vec![HOUR, HOUR + 1, HOUR + 2], 6 * HOUR, None),
        (vec![HOUR, 2 * HOUR, 2 * HOUR, 2 * HOUR], 3 * HOUR, Some((4, 4 * HOUR))),
    ] {
        let reason = blocked(&mut judge(IMAGES, std::slice::from_ref(&spent)), "make_image", now);
        let reset_at = expected.map(|(_, wait)| vec![("reset_at", now + wait)]);
        assert_eq!(reason.as_ref().map(|reason| reason.times.clone()), reset_at, "{spent:?}");
        let numbers = expected.map(|(used, wait)| {
            vec![
                ("used", used),
                ("limit", 3),
                ("remaining", 0),
                ("window_ms", 5 * HOUR),
                ("retry_after_ms", wait),
            ]
        });
        assert_eq!(reason.map(|reason| reason.numbers), numbers, "{spent:?}");
    }
}

#[test]
fn all_tools_of_a_quota_share_it_and_others_have_their_own() {
    let table = format!(
        "{}, pages = {{ tools = [\"*page*\"], calls = 1, per = \"1h\" }} }}",
        &IMAGES[..IMAGES.len() - 2]
    );
    let mut judge = judge(&table, &[vec![HOUR], vec![]]);
    for (tool, allowed) in [
        ("make_image", true),
        ("generateImage", true),
        ("make_image", false),
        ("generateImage", false),
        ("make_page", true),
        ("make_page", false),
        ("search", true),
    ] {
        assert_eq!(blocked(&mut judge, tool, HOUR + 5).is_none(), allowed, "{tool}");
    }
    let found = blocked(&mut judge, "generateImage", HOUR + 5).unwrap();
    assert!(
        found.message.contains("\"images\" of 3 calls within 5h")
            && found.message.contains("in 300 min, at 1970-01-01T06:00:00Z"),
        "{}",
        found.message
    );
    let usage = judge.usage(HOUR + 5);
    let found: Vec<_> = usage.iter().map(|(_, it)| (it.tool.as_str(), it.used, it.limit)).collect();
    assert_eq!(found, [("images", 3, 3), ("pages", 1, 1)]);
}

#[test]
fn the_same_call_of_the_same_request_is_handed_out_again_without_counting_and_no_other_is() {
    let (request, identity) = (turn("f", 0), somebody());
    // Two of three are used, by an earlier try of this very request: two calls of one key.
    for (tries, is_same, expected) in [
        (1, true, [true, true, true, false, false]),
        (2, true, [true, true, true, false, false]),
        (3, true, [true, false, false, false, false]),
        (1, false, [true, false, false, false, false]),
    ] {
        let own = request_key(&identity.key, identity.caller, identity.key.digest(request.body()), []);
        let call =
            use_key(&identity.key, own, "make_image", canonical_hash("{\"of\":\"a cat\"}", &identity.key));
        let brought_by = if is_same { own } else { Hash(1) };
        let spent = Use { call, request: brought_by, nth: 0, at_ms: HOUR, tries, calls: 2 };
        let mut transcript = request.transcript(&somebody());
        transcript.now_ms = HOUR + 1;
        let answer = |_| Answers { spent: vec![vec![spent]], ..Answers::default() };
        let mut judge = read_answered(&[policy::<Quota>(IMAGES)], &transcript, answer).1;
        assert!(judge.needs_arguments(0, "make_image"), "a call is reserved with its arguments");
        // In other words of the same JSON.
        let mut allowed =
            |arguments: &str| judge.rule(0, "make_image", Some(arguments), HOUR + 2).is_allowed();
        let cat = "{ \"of\": \"a cat\" }";
        let found = [allowed(cat), allowed(cat), allowed("{\"of\":\"a dog\"}"), allowed(cat), allowed("{}")];
        assert_eq!(found, expected, "{tries} {is_same}");
    }
}

#[test]
fn what_is_counted_is_reported_with_its_tools_and_window() {
    let set = PolicySet::new(vec![policy::<Quota>(IMAGES)]);
    let counted = set.counted();
    assert_eq!(
        (&*counted[0].name, counted[0].tools.len(), counted[0].calls, counted[0].window_ms),
        ("images", 2, 3, 5 * HOUR)
    );
}

#[test]
fn settings_that_cannot_work_are_reported() {
    for (quota, found) in [
        (r#"tools = ["a"], calls = 0, per = "5h""#, "limits.x.calls: expected 1 to 10000, found 0"),
        (r#"tools = ["a"], calls = 10001, per = "5h""#, "limits.x.calls: expected 1 to 10000, found 10001"),
        (r#"tools = ["a"], calls = 1, per = "0s""#, "limits.x.per: expected a window longer than 0"),
        (
            r#"tools = ["a"], per = "1h""#,
            "limits.x.calls: expected 1 to 10000, or tiers with numbers of their own",
        ),
        (
            r#"tools = ["a"], per = "1h", tiers = { guest = 10001 }"#,
            "limits.x.tiers.guest: expected 0 to 10000, found 10001",
        ),
        (r#"tools = ["a", "a"], calls = 1, per = "1s""#, "limits.x.tools: a is named twice"),
        (
            r#"tools = [""], calls = 1, per = "1s""#,
            "limits.x.tools: expected names or patterns, found an empty one",
        ),
    ] {
        assert_eq!(problem::<Quota>(&format!("limits = {{ x = {{ {quota} }} }}")), found);
    }
}

/// What the policy makes of `request` of a caller of this tier, whose calls were handed out at these times.
fn read(table: &str, request: &SampleRequest, (tier, away): (&str, bool), spent: &[u64]) -> (Plan, Judge) {
    let mut transcript = request.transcript(&somebody());
    (transcript.now_ms, transcript.tier) = (10 * HOUR, Some(tier.into()));
    let answer = |_| Answers { spent: vec![uses_at(spent)], away, ..Answers::default() };
    read_answered(&[policy::<Quota>(table)], &transcript, answer)
}

const TIERS: &str = r#"limits = { images = { tools = ["image"], calls = 3, per = "5h", tiers = { guest = 1, staff = 5, free = 0 } } }"#;

#[test]
fn each_tier_has_its_own_number_and_all_others_have_the_general_one() {
    let now = 10 * HOUR;
    for (table, tier, used, allowed) in [
        (TIERS, "guest", 0, true),
        (TIERS, "guest", 1, false),
        (TIERS, "auth", 2, true),
        (TIERS, "auth", 3, false),
        (TIERS, "staff", 4, true),
        (TIERS, "staff", 5, false),
        (TIERS, "free", 0, false),
        (r#"limits = { x = { tools = ["image"], per = "5h", tiers = { guest = 1 } } }"#, "auth", 9, true),
        (r#"limits = { x = { tools = ["image"], per = "5h", tiers = { guest = 1 } } }"#, "guest", 9, false),
    ] {
        let spent = vec![now - 1; used];
        let mut judge = read(table, &turn("f", 0), (tier, false), &spent).1;
        let reason = blocked(&mut judge, "image", now);
        assert_eq!(reason.is_none(), allowed, "{tier} {used}");
        assert!(blocked(&mut judge, "other", now).is_none());
        if let Some(reason) = reason.filter(|_| tier == "free") {
            assert!(!reason.retryable && reason.message.contains("not available to this user"));
        }
    }
    let usage = read(TIERS, &turn("f", 0), ("guest", false), &[now]).1.usage(now);
    assert_eq!(usage.iter().map(|(_, it)| (it.used, it.limit)).collect::<Vec<_>>(), [(1, 1)]);
}

#[test]
fn calls_under_a_quota_are_blocked_while_the_store_is_away_if_so_configured() {
    let closed = format!("{TIERS}\nstore_away = \"block\"");
    for (table, away, tool, allowed) in [
        (closed.as_str(), true, "image", false),
        (&closed, true, "other", true),
        (&closed, false, "image", true),
        (TIERS, true, "image", true),
    ] {
        let mut judge = read(table, &turn("f", 0), ("auth", away), &[]).1;
        let reason = blocked(&mut judge, tool, HOUR);
        assert_eq!(reason.is_none(), allowed, "{tool} {away}");
        if let Some(reason) = reason {
            assert!(reason.retryable && reason.message.contains("cannot be checked at the moment"));
            assert_eq!(reason.numbers, [("retry_after_ms", 5_000)]);
        }
    }
    let unlimited = r#"limits = { x = { tools = ["image"], per = "5h", tiers = { guest = 1 } } }
        store_away = "block""#;
    let mut judge = read(unlimited, &turn("f", 0), ("auth", true), &[]).1;
    assert!(blocked(&mut judge, "image", HOUR).is_none(), "there is nothing to count");
}

#[test]
fn a_new_turn_with_only_used_up_tools_is_rejected_if_so_configured() {
    let reject = format!("{TIERS}\nexhausted = \"reject\"");
    let (image, both) = (declaring(&[("image", "{}")]), declaring(&[("image", "{}"), ("search", "{}")]));
    let called = [user("q"), reply([call("a", "image", "{}")]), result("a", "r")];
    let calling = SampleRequest::new(&called).declaring("image", "{}");
    let next =
        SampleRequest::new(called.iter().chain(&[assistant("ok"), user("q")])).declaring("image", "{}");
    let now = 10 * HOUR;
    for (table, request, used, refused) in [
        (reject.as_str(), &image, 3, true),
        (&reject, &image, 2, false),
        (&reject, &both, 3, false),
        (&reject, &calling, 3, false),
        (&reject, &next, 3, true),
        (&reject, &turn("image", 0), 3, false),
        (TIERS, &image, 3, false),
    ] {
        let plan = read(table, request, ("auth", false), &vec![now - HOUR; used]).0;
        assert_eq!(plan.refusal.is_some(), refused, "{used} {request:?}");
        let Some(Refusal { code, message, reason, .. }) = plan.refusal else { continue };
        assert_eq!(code, "quota_exhausted");
        assert!(
            message.contains("\"images\" of 3 calls within 5h is used up") && message.contains("T14:00:00Z")
        );
        assert_eq!(reason.unwrap().times, [("reset_at", now + 4 * HOUR)]);
    }
}

const NOTIFY: &str = r#"limits = { images = { tools = ["image"], calls = 4, per = "5h" } }
    texts = { notice = "{remaining} of {limit} until {reset_at}" }
    notify = 2"#;

/// What is planned for `request`, whose conversation has this account, at the tenth hour.
fn plan_with(table: &str, request: &SampleRequest, spent: &[u64], account: Account) -> Plan {
    let mut transcript = request.transcript(&somebody());
    (transcript.now_ms, transcript.account) = (10 * HOUR, Some(Arc::new(account)));
    let answer = |_| Answers { spent: vec![uses_at(spent)], ..Answers::default() };
    read_answered(&[policy::<Quota>(table)], &transcript, answer).0
}

/// Each notice: the index of its message, and its text.
fn notices(plan: &Plan) -> Vec<(usize, &str)> {
    plan.edits.iter().map(|edit| (edit.item.index, edit.change.text())).collect()
}

#[test]
fn the_model_is_shown_once_that_little_is_left_and_once_that_nothing_is() {
    let images = || Arc::<str>::from("images");
    for (before, used, shown, after) in [
        (None, 1, None, None),
        (None, 2, Some("2 of 4 until 1970-01-01T13:00:00Z"), Some(vec![(images(), 2)])),
        (Some(2), 3, None, None),
        (Some(2), 4, Some("0 of 4 until 1970-01-01T13:00:00Z"), Some(vec![(images(), 0)])),
        (Some(0), 4, None, None),
        (Some(0), 3, None, None),
        (Some(0), 1, None, Some(vec![])),
    ] {
        let left = before.map(|left| (images(), left)).into_iter().collect();
        let account = Account { may_pin: true, left, ..Account::default() };
        let spent = vec![8 * HOUR; used];
        let plan = plan_with(NOTIFY, &turn("image", 2), &spent, account.clone());
        let expected: Vec<_> = shown.map(|text| (4, text)).into_iter().collect();
        let left = plan.findings().find_map(|(_, finding)| match finding {
            Finding::AmountsLeft(left) => Some(left.clone()),
            _ => None,
        });
        assert_eq!((notices(&plan), left), (expected, after), "{before:?} {used}");
        assert_eq!(plan.announced.len(), usize::from(shown.is_some()));
        for (table, request) in
            [(NOTIFY, turn("other", 2)), (&NOTIFY.replace("notify = 2", ""), turn("image", 2))]
        {
            assert_eq!(notices(&plan_with(table, &request, &spent, account.clone())), []);
        }
        let full = Account { may_pin: false, ..account };
        assert_eq!(notices(&plan_with(NOTIFY, &turn("image", 2), &spent, full)), [], "there is no room");
    }
}

#[test]
fn a_quota_repeats_its_own_placed_notices_and_not_those_of_other_policies() {
    let placed = |message: usize, by: &str| PlacedNotice { message, by: by.into(), text: by.into() };
    let pins = vec![placed(2, "quota"), placed(4, "budget"), placed(6, "quota")];
    let account = Account { may_pin: true, pins, ..Account::default() };
    let plan = plan_with(NOTIFY, &turn("image", 3), &[], account);
    assert_eq!((notices(&plan), plan.announced.len()), (vec![(2, "quota"), (6, "quota")], 0));
}
