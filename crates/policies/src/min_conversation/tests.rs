//! Cases of `min_conversation`, and the same verdicts as a plain reference.

use super::super::cases::{Conversation, policy};
use super::super::scenario::{Step, calls, items, passes, problem, random, says, user, verdicts};
use super::*;
use model::plan::ReasonKind;
use model::testing::{SampleItem, SampleRequest};
use proptest::prelude::*;

const AWARD: [(&str, &str); 1] = [("award", "{}")];

fn card() -> Step {
    calls(&[("show_card", "{}", "c1")])
}

fn may_award(demand: &str, scenario: &[Step]) -> bool {
    passes::<MinConversation>(&format!("tools.award = {{ {demand} }}"), scenario, &AWARD)[0]
}

#[test]
fn an_exchange_is_a_user_message_and_the_text_that_answers_it() {
    for (scenario, exchanges) in [
        (vec![], 0),
        (vec![user("hi")], 0),
        (vec![user("hi"), says("What is it?")], 1),
        (vec![user("hi"), says("What is it?"), user("a cat")], 1),
        (vec![user("hi"), card(), says("What is it?"), user("a cat"), says("Why?"), user("fur")], 2),
        (vec![says("Welcome!"), user("hi")], 0),
        (vec![user("hi"), says("Well."), says("What is it?"), user("a cat")], 1),
        (vec![user("hi"), says(" "), user("hello?")], 0),
        (vec![user("hi"), user("there"), says("Hi."), user("so")], 1),
    ] {
        let holds = |least: u32| may_award(&format!("min_exchanges = {least}"), &scenario);
        assert!(exchanges == 0 || holds(exchanges), "{scenario:?}");
        assert!(!holds(exchanges + 1), "{scenario:?}");
    }
}

#[test]
fn messages_and_words_of_the_user_count_and_those_of_a_framework_after_results_do_not() {
    for (scenario, messages, words) in [
        (vec![user("hi")], 1, 1),
        (vec![user("hi, it's me - again"), user("so?")], 2, 5),
        (vec![user("hi"), card(), user("go on with the next step"), says("So?"), user("a cat")], 2, 3),
        (vec![user("hi"), user(""), user("  \n")], 1, 1),
        (vec![user("...")], 0, 0),
        (vec![user("再来 ok")], 1, 3),
        (vec![user("ねこです")], 1, 4),
        (vec![user("고양이 입니다")], 1, 2),
    ] {
        let holds = |key: &str, least: u32| may_award(&format!("{key} = {least}"), &scenario);
        for (key, has) in [("min_user_messages", messages), ("min_user_words", words)] {
            assert!(has == 0 || holds(key, has), "{key} {scenario:?}");
            assert!(!holds(key, has + 1), "{key} {scenario:?}");
        }
    }
}

#[test]
fn a_picture_is_a_message_without_words() {
    let request = SampleRequest::new(&[SampleItem::user_parts().other("\"a picture\"")]);
    for (demand, allowed) in [("min_user_messages = 1", true), ("min_user_words = 1", false)] {
        let rule = policy::<MinConversation>(&format!("tools.award = {{ {demand} }}"));
        assert_eq!(
            Conversation::over(&rule, &request).judge("award", "{}", 0).is_allowed(),
            allowed,
            "{demand}"
        );
    }
}

#[test]
fn the_model_reads_every_unmet_minimum_and_no_other() {
    let table = "tools.award = { min_exchanges = 2, min_user_messages = 1, min_user_words = 9 }";
    let scenario = [user("a cat"), says("Why?"), user("it has fur")];
    let reason = verdicts::<MinConversation>(table, &scenario, &AWARD).remove(0).unwrap();
    assert_eq!((reason.kind, reason.retryable), (ReasonKind::ConversationTooShort, true));
    assert_eq!(
        reason.numbers,
        [("exchanges", 1), ("min_exchanges", 2), ("user_words", 5), ("min_user_words", 9)]
    );
    let expected = "so far there were 1 of 2 exchanges with the user, 5 of 9 words of the user.";
    assert!(reason.message.contains(expected), "{}", reason.message);
}

#[test]
fn tools_without_a_minimum_or_with_a_met_one_are_allowed() {
    let rule = policy::<MinConversation>("tools.\"award*\" = { min_user_words = 2 }");
    for (scenario, tool, is_allowed) in [
        ([user("hi")], "award_points", false),
        ([user("hi")], "search", true),
        ([user("hi there")], "award_points", true),
    ] {
        let mut talk = Conversation::over(&rule, &SampleRequest::new(&items(&scenario)));
        assert!(!talk.needs_arguments(tool));
        assert_eq!(talk.judge(tool, "{}", 0).is_allowed(), is_allowed, "{scenario:?}");
    }
    assert_eq!(
        problem::<MinConversation>("tools.award = { min_exchanges = 0 }"),
        "tools.award: expected min_exchanges, min_user_messages or min_user_words above 0"
    );
}

/// The same counts, read from the scenario backwards and forwards at leisure.
fn reference(scenario: &[Step]) -> (u64, u64, u64) {
    let has_words = |text: &str| text.chars().any(char::is_alphanumeric);
    let counts = |at: usize| match &scenario[at] {
        Step::User(text) if has_words(text) => {
            // Back to the model's last word: were there results since?
            let before = scenario[..at].iter().rev().find(|step| !matches!(step, Step::User(_)));
            !matches!(before, Some(Step::Calls(made)) if made.iter().any(|call| call.result.is_some()))
        }
        _ => false,
    };
    let counted: Vec<usize> = (0..scenario.len()).filter(|at| counts(*at)).collect();
    let words = counted.iter().map(|at| match &scenario[*at] {
        Step::User(text) if text == "再来" => 2,
        Step::User(text) => text.split(' ').count() as u64,
        _ => 0,
    });
    let answers = |step: &Step| matches!(step, Step::Says(text) if !text.trim().is_empty());
    let answered = (0..scenario.len()).filter(|at| answers(&scenario[*at])).filter(|at| {
        let since = scenario[..*at].iter().rposition(answers).map_or(0, |last| last + 1);
        counted.iter().any(|user| (since..*at).contains(user))
    });
    (answered.count() as u64, counted.len() as u64, words.sum())
}

proptest! {
    #[test]
    fn random_conversations_are_counted_as_by_hand(
        scenario in random(&["award", "search"], &["{}"], &["ok", ""]),
        demand in (0..4u64, 0..5u64, 0..12u64),
    ) {
        let (exchanges, messages, words) = reference(&scenario);
        let table = format!(
            "tools.award = {{ min_exchanges = {}, min_user_messages = {}, min_user_words = {} }}",
            demand.0, demand.1, demand.2 + 1,
        );
        let expected = exchanges >= demand.0 && messages >= demand.1 && words > demand.2;
        prop_assert_eq!(passes::<MinConversation>(&table, &scenario, &AWARD), [expected], "{:?}", scenario);
    }
}
