//! Caching: what was derived from earlier requests is not derived again, and this changes no result: the plan, the
//! keys and the verdicts are the same, whatever else has changed meanwhile.

use super::causality::hidden_exchanges;
use super::generate::{Conversation, any_order, orderly};
use super::generate_messages;
use super::world::{Facts, NOW_MS, Reading, SETS, identity, lossy, no_memo, policies, read_as, ruled};
use dialects::dialect_of;
use dialects::variant::{Placement, Variant};
use model::Transcript;
use model::fact::RecordList;
use model::memo::NoMemo;
use model::released::{NOTHING_HIDDEN, Release};
use model::testing::KeepAll;
use policies::set::PolicySet;
use proptest::prelude::*;
use std::sync::Arc;

proptest! {
    #![proptest_config(crate::laws::with_cases(150))]

    #[test]
    fn reading_with_a_cache_gives_the_same_result(
        talk in orderly(),
        set in prop::sample::select(vec![0, 1, 3, SETS]),
        hidden in any::<u16>(),
        bits in any::<u64>(),
    ) {
        agree(&talk, set, hidden, bits).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn reading_with_a_cache_gives_the_same_result_for_every_policy_and_message_order(
        talk in any_order(),
        set in 0..SETS,
        bits in any::<u64>(),
    ) {
        agree(&talk, set, 0, bits).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn reading_with_a_cache_gives_the_same_result_in_the_messages_api(
        talk in generate_messages::orderly(),
        set in 0..SETS,
        hidden in any::<u16>(),
        bits in any::<u64>(),
    ) {
        agree(&talk, set, hidden, bits).map_err(TestCaseError::fail)?;
    }
}

/// A context that has room left, and something that takes this room although the messages are the same. A request
/// that reuses cached messages must notice it too.
#[test]
fn cached_messages_do_not_hide_new_facts_about_the_conversation() {
    let talk = roomy();
    let count = talk.messages.len();
    let rounds = hidden_exchanges(&talk, u16::MAX);
    let refused = Facts { overflows: vec![count], ..Facts::default() };
    for (what, facts) in [("rounds put back", rounds), ("a refusal for its length", refused)] {
        let (caller, memo, body) = (identity(1), KeepAll::shared(), talk.body());
        let plain = read_as(&body, of(CLEARING), &Facts::default(), (&caller, &memo)).unwrap();
        let fresh = read_as(&body, of(CLEARING), &facts, (&caller, &no_memo())).unwrap();
        assert_ne!(fresh.plan, plain.plan, "{what}: nothing comes of it, so nothing is shown");
        let remembered = read_as(&body, of(CLEARING), &facts, (&caller, &memo)).unwrap();
        same(fresh, remembered).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// The number of the set that clears results.
const CLEARING: usize = 3;

/// Two turns of a call each, which nearly fill the context up to where room is made.
fn roomy() -> Conversation {
    let note = "n".repeat(1024);
    let turn = |at: usize| {
        let call =
            format!(r#"{{"id":"c{at}","type":"function","function":{{"name":"look","arguments":"{{}}"}}}}"#);
        let words = ["some ".repeat(340), "other ".repeat(180)][at].clone();
        [
            format!(r#"{{"role":"user","content":"Look {at}."}}"#),
            format!(r#"{{"role":"assistant","content":null,"note":"{note}","tool_calls":[{call}]}}"#),
            format!(r#"{{"role":"tool","tool_call_id":"c{at}","note":"{note}","content":"{words}"}}"#),
        ]
    };
    let messages = (0..2).flat_map(turn).collect();
    let [before, between, after] = [r#"{"messages":["#, ",", "]}"].map(str::to_owned);
    Conversation { before, messages, between, after }
}

fn of(set: usize) -> &'static PolicySet {
    if set == SETS { ruled() } else { policies(set) }
}

/// Sends the conversation as it grows; sometimes something that is not part of its bytes changes.
fn agree(talk: &Conversation, set: usize, hidden: u16, bits: u64) -> Result<(), String> {
    let memo = KeepAll::shared();
    let known = [Facts::default(), hidden_exchanges(talk, hidden), released(talk, bits)];
    for (at, count) in talk.cuts().into_iter().enumerate() {
        for again in 0..3 {
            let turn = if again == 1 { at * 3 % 64 } else { 0 };
            let odd = bits.rotate_right(turn as u32);
            let mut facts = known[if again == 1 { odd as usize % 3 } else { 2 }].clone();
            if odd & 0x30 == 0 {
                facts.overflows = vec![count / 2];
            }
            let set = if odd & 0xc0 == 0 { set + 1 } else { set };
            let caller = identity(if odd & 0x300 == 0 { 2 } else { 1 });
            let body = talk.first(count);
            let fresh = read_as(&body, of(set), &facts, (&caller, &no_memo()));
            let remembered = read_as(&body, of(set), &facts, (&caller, &memo));
            match (fresh, remembered) {
                (Some(fresh), Some(remembered)) => same(fresh, remembered)?,
                (None, None) => {}
                _ => return Err(format!("governed once: {}", lossy(&body))),
            }
        }
    }
    Ok(())
}

fn same(mut fresh: Reading, mut remembered: Reading) -> Result<(), String> {
    if fresh.plan != remembered.plan {
        return Err(format!("{:?}\n{:?}", fresh.plan, remembered.plan));
    }
    let variant = Variant::plain(Placement::Suffix);
    let bytes = |reading: &Reading| (reading.write(&variant), reading.restored.clone(), reading.context);
    if bytes(&fresh) != bytes(&remembered) || fresh.lost != remembered.lost {
        return Err(format!("{}\n{}", lossy(&bytes(&fresh).0), lossy(&bytes(&remembered).0)));
    }
    for tool in ["look", "readFile", "calm", "weather", "say", "other"] {
        for arguments in ["{}", r#"{"path":"a"}"#, r#"{"q":1}"#] {
            let (fresh, remembered) = (&mut fresh.judge, &mut remembered.judge);
            let needs = [&mut *fresh, &mut *remembered].map(|judge| judge.needs_arguments(0, tool));
            let ruling =
                [&mut *fresh, &mut *remembered].map(|judge| judge.rule(0, tool, Some(arguments), NOW_MS));
            if needs[0] != needs[1]
                || ruling[0] != ruling[1]
                || fresh.usage(NOW_MS) != remembered.usage(NOW_MS)
            {
                return Err(format!("{tool} {arguments}: {ruling:?}"));
            }
        }
    }
    Ok(())
}

/// A state store that knows when those calls were handed out whose bit is set.
fn released(talk: &Conversation, bits: u64) -> Facts {
    let (body, identity) = (talk.body(), identity(1));
    let Ok(request) = dialect_of(&body).read(&body) else { return Facts::default() };
    let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
    let calls = transcript.calls.calls.iter().enumerate().filter(|(at, _)| bits >> (at % 64) & 1 == 1);
    let released = calls.map(|(at, call)| {
        let at_ms = NOW_MS - 30_000 + at as u64;
        let release = Release { context: call.context, hidden: NOTHING_HIDDEN, at_ms };
        (call.key, Arc::new(RecordList::from([release])))
    });
    Facts { released: released.collect(), ..Facts::default() }
}
