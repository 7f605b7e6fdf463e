//! `states`: a lesson with cards, in which no step is skipped or taken twice, also after a restart.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};

const TUTOR: &str = include_str!("../../data/states/tutor.toml");
const AWARD: (&str, &str, &str) = ("a", "award_points", "{\"points\":2}");
const NEXT: (&str, &str, &str) = ("n", "show_next_card", "{}");

/// What the scripted model does next.
enum Turn {
    Says(&'static str),
    Calls(Vec<(&'static str, &'static str, &'static str)>),
}
use Turn::{Calls, Says};

fn scripted(turns: Vec<Turn>) -> Scripted {
    Scripted::start(move |nth, request| match &turns[nth] {
        Says(said) => text(said, request),
        Calls(calls) => Reply::speech(request, &Speech::calls(calls)),
    })
}

/// A student who says hello to a tutor with two tools.
fn student(form: Form) -> Talk {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let mut talk = Talk::new(form);
    talk.members["tools"] = json!([tool("award_points"), tool("show_next_card")]);
    talk.messages = vec![json!({"role": "user", "content": "Hello!"})];
    talk
}

/// Asks, and goes on with whatever came.
fn ask(talk: &mut Talk, program: &Toolrein) -> Said {
    let said = talk.ask(program);
    said.assert_coherent(talk.form);
    talk.add(&said);
    said
}

fn names(said: &Said) -> Vec<&str> {
    said.calls.iter().map(|(_, name, _)| name.as_str()).collect()
}

/// The envelopes that the model read for the calls in `request`'s last round.
fn refused(request: &Recorded) -> Vec<String> {
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let results = messages.iter().rev().take_while(|message| message["role"] == "tool");
    let envelopes = results.map(|result| {
        let envelope: Value = serde_json::from_str(result["content"].as_str().unwrap()).unwrap();
        assert_eq!(envelope["error"]["type"], "STATE_RESTRICTED", "{envelope}");
        envelope["error"]["message"].as_str().unwrap().to_owned()
    });
    envelopes.collect()
}

/// The states that the model has read of in `request`, in order.
fn shown(request: &Recorded) -> Vec<String> {
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    let states = texts.filter_map(|text| text.split("[toolrein] State: ").nth(1)?.split('.').next());
    states.map(str::to_owned).collect()
}

#[test]
fn a_lesson_goes_on_by_itself_with_a_notice_after_each_turn() {
    in_both_forms(|form| {
        let upstream = scripted(vec![
            Says("Look at this card. What do you see?"),
            Says("And what does it do?"),
            Says("Both are right."),
            Calls(vec![AWARD]),
            Calls(vec![NEXT]),
            Says("Here is another one. And this?"),
            Says("Are you sure?"),
        ]);
        let program = Toolrein::before(&upstream, TUTOR);
        let mut talk = student(form);
        ask(&mut talk, &program);
        for answer in ["A cat.", "It sleeps.", "Thank you!"] {
            talk.say(answer);
            ask(&mut talk, &program);
        }
        assert_eq!(names(&ask(&mut talk, &program)), ["show_next_card"]);
        ask(&mut talk, &program);
        talk.say("A dog.");
        ask(&mut talk, &program);
        let all = ["start", "probing", "judging", "award", "next_card", "observing", "probing"];
        for nth in 0..all.len() {
            assert_eq!(shown(&upstream.request(nth)), all[..=nth], "request {nth}");
        }
        upstream.assert_clean();
    });
}

#[test]
fn a_card_cannot_be_skipped_after_one_exchange() {
    in_both_forms(|form| {
        let upstream =
            scripted(vec![Says("What do you see?"), Calls(vec![NEXT]), Says("What does the cat do?")]);
        let program = Toolrein::before(&upstream, TUTOR);
        let mut talk = student(form);
        ask(&mut talk, &program);
        talk.say("A cat.");
        let said = ask(&mut talk, &program);
        assert_eq!((said.calls.len(), said.text.as_str()), (0, "What does the cat do?"));
        let message = &refused(&upstream.request(2))[0];
        assert!(message.contains("show_next_card may not be called in the state probing."), "{message}");
        assert!(message.contains("the user writes a message (state judging)"), "{message}");
        program.wait_for_metric("toolrein_actions_total{policy=\"states\",action=\"blocked\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn points_are_awarded_neither_without_a_conversation_nor_twice() {
    in_both_forms(|form| {
        let again = ("b", "award_points", "{\"points\":9}");
        let upstream = scripted(vec![
            Calls(vec![AWARD]),
            Says("What do you see?"),
            Says("And what does it do?"),
            Says("Both are right."),
            // Twice at once, with the next card after them: the first alone runs.
            Calls(vec![AWARD, again, ("n", "show_next_card", "{}")]),
            // And once more in succession.
            Calls(vec![again]),
            Calls(vec![NEXT, ("m", "show_next_card", "{}")]),
            Calls(vec![("o", "show_next_card", "{}")]),
            Says("And this?"),
        ]);
        let program = Toolrein::before(&upstream, TUTOR);
        let mut talk = student(form);
        assert_eq!(ask(&mut talk, &program).text, "What do you see?");
        assert!(refused(&upstream.request(1))[0].contains("in the state start. No tool may be called now."));
        for answer in ["A cat.", "It sleeps."] {
            talk.say(answer);
            ask(&mut talk, &program);
        }
        talk.say("Great!");
        let said = ask(&mut talk, &program);
        assert_eq!(said.calls, [("a".into(), "award_points".into(), AWARD.2.into())]);
        assert_eq!(ask(&mut talk, &program).calls, [("n".into(), "show_next_card".into(), "{}".into())]);
        assert!(refused(&upstream.request(6)).concat().contains("You may call now: show_next_card."));
        assert_eq!(ask(&mut talk, &program).text, "And this?");
        upstream.assert_clean();
    });
}

#[test]
fn a_restart_in_mid_conversation_changes_nothing() {
    in_both_forms(|form| {
        let upstream = scripted(vec![
            Says("What do you see?"),
            Says("And what does it do?"),
            Says("Both are right."),
            Calls(vec![AWARD]),
            Calls(vec![AWARD]),
            Calls(vec![NEXT]),
        ]);
        let mut talk = student(form);
        for answer in ["A cat.", "It sleeps.", "Great!"] {
            // Each turn is sent to another process, which has seen none of the earlier turns.
            let program = Toolrein::before(&upstream, TUTOR);
            ask(&mut talk, &program);
            talk.say(answer);
            program.stop();
        }
        let program = Toolrein::before(&upstream, TUTOR);
        assert_eq!(names(&ask(&mut talk, &program)), ["award_points"]);
        program.stop();
        let program = Toolrein::before(&upstream, TUTOR);
        assert_eq!(names(&ask(&mut talk, &program)), ["show_next_card"]);
        assert!(refused(&upstream.request(5))[0].contains("in the state next_card"));
        upstream.assert_clean();
    });
}
