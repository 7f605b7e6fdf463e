//! Cases of `states`: conversations and their states, what may be called there, what the model reads, and machines
//! that are refused.

use super::super::cases::{Conversation, plan_of, policy, read};
use super::super::set::Rule;
use super::*;
use model::plan::{Change, ReasonKind};
use model::testing::{SampleItem, SampleRequest, assistant, call, reply, result, user};
use std::sync::Arc;

const TUTOR: &str = include_str!("../../../../tests/data/states/tutor.toml");

/// The table of `[policy.states]` in a file, as `[x]`.
fn tutor() -> Arc<dyn Rule> {
    let table = TUTOR.replace("[policy.states.state.", "[x.state.").replace("[policy.states]", "");
    policy::<States>(&table)
}

/// A step of a conversation.
#[derive(Clone, Copy, Debug)]
enum Step {
    User(&'static str),
    Says(&'static str),
    /// Calls made at once, each a tool and its result.
    Calls(&'static [(&'static str, &'static str)]),
}
use Step::{Calls, Says, User};

/// A conversation's request.
fn request(steps: &[Step]) -> SampleRequest {
    let mut messages = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        match step {
            User(text) => messages.push(user(text)),
            Says(text) => messages.push(assistant(text)),
            Calls(calls) => {
                let id = |nth: usize| format!("c{at}_{nth}");
                let made = calls.iter().enumerate().map(|(nth, (tool, _))| call(&id(nth), tool, "{}"));
                messages.push(assistant("So?").calling(made));
                messages.extend(calls.iter().enumerate().map(|(nth, (_, text))| result(&id(nth), text)));
            }
        }
    }
    let tools = ["show_next_card", "award_points", "look_up"];
    tools.iter().fold(SampleRequest::new(&messages), |request, tool| request.declaring(tool, "{}"))
}

/// The reason for a call of `tool` at the end of `steps`; `None` where it is let through.
fn objection(rule: &Arc<dyn Rule>, steps: &[Step], tool: &str) -> Option<Reason> {
    let ruling = Conversation::over(rule, &request(steps)).judge(tool, "{}", 0);
    ruling.objections.into_iter().next().map(|(_, reason)| reason)
}

/// The state at the end of `steps`, as the reason for a tool that is never allowed names it.
fn state(rule: &Arc<dyn Rule>, steps: &[Step]) -> String {
    let reason = objection(rule, steps, "no_such_tool").expect("no state allows it");
    let (_, rest) = reason.message.split_once("in the state ").unwrap();
    rest.split(". ").next().unwrap().to_owned()
}

/// Each notice: the index of its message, and the state that it names.
fn notices(rule: &Arc<dyn Rule>, steps: &[Step]) -> Vec<(usize, String)> {
    let notices = plan_of(rule, &request(steps)).edits.into_iter().map(|edit| match edit.change {
        Change::Notice { text, word: "state" } => {
            let state = text.strip_prefix("[toolrein] State: ").unwrap().split(". ").next().unwrap();
            (edit.item.index, state.to_owned())
        }
        other => panic!("{other:?}"),
    });
    notices.collect()
}

const OPENED: &[Step] = &[User("Hello"), Says("What do you see?")];
const AWARDED: &[Step] = &[
    User("Hello"),
    Says("What do you see?"),
    User("A cat."),
    Says("And what does it do?"),
    User("It sleeps."),
    Says("Both are right."),
    User("Great!"),
    Calls(&[("award_points", r#"{"points":2}"#)]),
];

fn with(steps: &[Step], more: &[Step]) -> Vec<Step> {
    [steps, more].concat()
}

#[test]
fn a_lesson_goes_through_its_states_by_itself() {
    let rule = tutor();
    let lesson = with(
        AWARDED,
        &[Calls(&[("show_next_card", r#"{"card":7}"#)]), Says("What is this?"), User("A dog.")],
    );
    let expected =
        ["start", "observing", "probing", "probing", "judging", "award", "award", "next_card", "observing"];
    for (steps, expected) in (1..).zip(expected) {
        assert_eq!(state(&rule, &lesson[..steps]), expected, "after {steps} steps");
    }
    assert_eq!(state(&rule, &lesson), "probing");
}

#[test]
fn no_step_of_a_lesson_can_be_skipped_or_taken_twice() {
    let rule = tutor();
    let lesson = with(
        AWARDED,
        &[Calls(&[("show_next_card", r#"{"card":7}"#)]), Says("What is this?"), User("A dog.")],
    );
    for steps in 0..=lesson.len() {
        for (tool, right) in [("award_points", "award"), ("show_next_card", "next_card")] {
            let said = objection(&rule, &lesson[..steps], tool);
            let state = state(&rule, &lesson[..steps]);
            assert_eq!(said.is_none(), state == right, "{tool} after {steps} steps, in {state}: {said:?}");
        }
    }
}

#[test]
fn the_first_of_two_equal_calls_at_once_moves_on_and_the_second_is_blocked() {
    let mut talk = Conversation::over(&tutor(), &request(&AWARDED[..7]));
    assert!(talk.judge("award_points", "{}", 0).is_allowed());
    for tool in ["award_points", "show_next_card"] {
        let ruling = talk.judge(tool, "{}", 0);
        assert_eq!(ruling.objections[0].1.kind, ReasonKind::StateRestricted);
        assert!(ruling.objections[0].1.message.contains("in the state awarding"), "{ruling:?}");
    }
}

#[test]
fn a_call_that_failed_may_be_made_again_and_one_that_answered_nothing_may_not() {
    let rule = tutor();
    for (result, expected) in [
        (r#"{"error":"no such student"}"#, "award"),
        ("Error: timeout", "award"),
        ("", "next_card"),
        ("null", "next_card"),
        ("{}", "next_card"),
        ("ok", "next_card"),
    ] {
        let result: &'static str = result;
        let calls: &'static [(&str, &str)] = Box::leak(Box::new([("award_points", result)]));
        assert_eq!(state(&rule, &with(&AWARDED[..7], &[Calls(calls)])), expected, "{result}");
    }
}

#[test]
fn the_model_reads_what_it_may_call_and_what_must_happen_first() {
    let rule = tutor();
    let said = objection(&rule, &with(OPENED, &[User("A cat.")]), "award_points").unwrap();
    assert_eq!((said.kind, said.retryable), (ReasonKind::StateRestricted, true));
    assert_eq!(
        said.message,
        "The call was not run: award_points may not be called in the state probing. No tool may be called now. It \
         may be called in the state award. What must happen first: the user writes a message (state judging); then \
         you give the user a reply (state award)."
    );
    let said = objection(&rule, AWARDED, "award_points").unwrap().message;
    assert!(
        said.contains("You may call now: show_next_card. It may be called in the state award."),
        "{said}"
    );
    assert!(said.ends_with("(state judging); then you give the user a reply (state award)."), "{said}");
    let said = objection(&rule, &AWARDED[..1], "show_next_card").unwrap().message;
    assert!(said.ends_with("then award_points is called (state awarding); and so on."), "{said}");
    let said = objection(&rule, OPENED, "look_up").unwrap();
    assert!(!said.retryable && said.message.ends_with("It may be called in no state of this conversation."));
}

#[test]
fn the_model_reads_the_remaining_count_of_a_transition() {
    let rule = policy::<States>(
        "[x.state.start]\ntools = []\non = [{ event = \"user_message\", words = 2, count = 4, to = \"end\" }]\n\
         [x.state.end]\nfinal = true\ntools = [\"look_up\"]",
    );
    let said = |steps: &[Step]| objection(&rule, steps, "look_up").map(|reason| reason.message);
    assert!(said(&[]).unwrap().contains("the user writes 4 messages of at least 2 words (state end)."));
    let two = [User("One two"), Says("Yes."), User("Ok"), User("three four")];
    assert!(said(&two).unwrap().contains("the user writes 2 more messages of at least 2 words"));
    let three = with(&two, &[User("five six seven")]);
    assert!(said(&three).unwrap().contains("the user writes one more message of at least 2 words"));
    assert_eq!(said(&with(&three, &[User("a b")])), None);
    let over = objection(&rule, &with(&three, &[User("a b")]), "award_points").unwrap();
    assert!(over.message.contains("You may call now: look_up. It may be called in no state"), "{over:?}");
}

#[test]
fn every_event_moves_the_machine_where_it_is_meant_to() {
    let found = &[("look_up", "found")];
    let both = &[("look_up", "found"), ("award_points", "Error: no")];
    for (transition, steps, moved) in [
        (r#"event = "user_message""#, &[User("x")][..], true),
        (r#"event = "user_message""#, &[Says("x")], false),
        (r#"event = "user_message", count = 2"#, &[User("x")], false),
        (r#"event = "user_message", count = 2"#, &[User("x"), Says("y"), User("z")], true),
        (r#"event = "user_message", words = 3"#, &[User("x y")], false),
        (r#"event = "user_message", words = 3"#, &[User("x y z")], true),
        (r#"event = "user_message", pattern = "(?i)\\bnext\\b""#, &[User("The NEXT one")], true),
        (r#"event = "user_message", pattern = "(?i)\\bnext\\b""#, &[User("nextly")], false),
        (r#"event = "assistant_message""#, &[User("x"), Says("y")], true),
        (r#"event = "assistant_message""#, &[User("x?")], false),
        (r#"event = "assistant_message""#, &[User("x"), Says(" ")], false),
        // Text beside calls is no answer.
        (r#"event = "assistant_message""#, &[User("x"), Calls(found)], false),
        (r#"event = "assistant_question""#, &[User("x"), Says("Why?")], true),
        (r#"event = "assistant_question""#, &[User("x?"), Says("So.")], false),
        (r#"event = "assistant_message", pattern = "^Well""#, &[Says("Well done.")], true),
        (r#"event = "tool_called""#, &[Calls(found)], true),
        (r#"event = "tool_called", tool = "look*""#, &[Calls(found)], true),
        (r#"event = "tool_called", tool = "award_points""#, &[Calls(found)], false),
        (r#"event = "tool_succeeded", tool = "look_up""#, &[Calls(both)], true),
        (r#"event = "tool_succeeded", tool = "award_points""#, &[Calls(both)], false),
        (r#"event = "tool_failed", tool = "award_points""#, &[Calls(both)], true),
        (r#"event = "tool_failed", tool = "look_up""#, &[Calls(both)], false),
        (r#"event = "tool_empty""#, &[Calls(&[("look_up", "[]")])], true),
        (r#"event = "tool_empty""#, &[Calls(both)], false),
        (r#"event = "tool_succeeded""#, &[Calls(&[("look_up", "[]")])], false),
        (r#"event = "tool_called", count = 2"#, &[Calls(both)], true),
    ] {
        let rule = policy::<States>(&format!(
            "[x.state.start]\ntools = [\"look_up\", \"award_points\"]\non = [{{ {transition}, to = \"moved\" }}]\n\
             [x.state.moved]\nfinal = true\ntools = []"
        ));
        assert_eq!(state(&rule, steps) == "moved", moved, "{transition}: {steps:?}");
    }
}

#[test]
fn the_first_transition_that_fits_is_taken_and_counts_begin_anew() {
    let rule = policy::<States>(
        "start = \"a\"\n[x.state.a]\ntools = []\non = [{ event = \"user_message\", pattern = \"stop\", to = \"c\" }, \
         { event = \"user_message\", count = 2, to = \"b\" }]\n[x.state.b]\ntools = []\n\
         on = [{ event = \"user_message\", to = \"a\" }]\n[x.state.c]\nfinal = true\ntools = []",
    );
    let says: Vec<Step> = ["1", "2", "3", "4", "stop"].map(User).to_vec();
    for (steps, expected) in ["a", "a", "b", "a", "a", "c"].iter().enumerate() {
        assert_eq!(state(&rule, &says[..steps]), *expected, "after {steps}");
    }
}

#[test]
fn a_state_is_announced_once_where_it_is_entered_and_only_where_a_notice_may_stand() {
    let rule = tutor();
    let lesson = with(
        AWARDED,
        &[Calls(&[("show_next_card", r#"{"card":7}"#)]), Says("What is this?"), User("A dog.")],
    );
    let expected =
        [(0, "start"), (2, "probing"), (4, "judging"), (6, "award"), (8, "next_card"), (10, "observing")];
    let expected = expected.iter().map(|(at, state)| (*at, (*state).to_owned()));
    assert_eq!(notices(&rule, &lesson), expected.chain([(12, "probing".to_owned())]).collect::<Vec<_>>());
}

#[test]
fn nothing_is_said_between_a_call_and_its_results() {
    let rule = policy::<States>(
        "[x.state.start]\non = [{ event = \"user_message\", count = 2, to = \"late\" }]\n\
         [x.state.late]\ntext = \"It is late.\"\nfinal = true",
    );
    let calls = reply([call("a", "f", ""), call("b", "f", "")]);
    let open = [user("q"), calls, result("a", "r"), user("q")];
    let places = |more: &[SampleItem]| -> Vec<usize> {
        let plan = plan_of(&rule, &SampleRequest::new(open.iter().chain(more)));
        plan.edits.iter().map(|edit| edit.item.index).collect()
    };
    assert_eq!(places(&[]), [0; 0]);
    assert_eq!(places(&[result("b", "r")]), [4]);
    assert_eq!(places(&[assistant("Well."), user("q")]), [5]);
}

#[test]
fn the_text_of_a_state_comes_with_the_tools_that_it_allows() {
    let rule = policy::<States>(
        "always = [\"look_up\"]\n[x.state.start]\ntools = [\"a*\", \"b\"]\ntext = \" Begin. \"\n\
         on = [{ event = \"user_message\", count = 2, to = \"all\" }]\n[x.state.all]\ntext = \"Go on.\"\nfinal = true",
    );
    let plan = plan_of(&rule, &request(&[User("x"), User("y")]));
    let texts = plan.edits.iter().map(|edit| match &edit.change {
        Change::Notice { text, .. } => text.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        texts.collect::<Vec<_>>(),
        [
            "[toolrein] State: start. Begin. You may call now: a*, b, look_up.",
            "[toolrein] State: all. Go on."
        ]
    );
}

#[test]
fn no_call_waits_for_its_arguments_and_what_no_state_lists_can_never_be_called() {
    let free = "[x.state.start]\non = [{ event = \"user_message\", to = \"start\" }]";
    for rule in [policy::<States>(free), tutor()] {
        assert!(!Conversation::new(&rule).needs_arguments("f"));
    }
    let tutor = tutor();
    let callable = &tutor.about().callable;
    assert!(!callable.includes("look_up") && callable.includes("award_points"));
}

#[test]
fn equal_histories_give_equal_plans() {
    let rule = tutor();
    for steps in 0..=AWARDED.len() {
        let (one, _) = read(&rule, &request(&AWARDED[..steps]), &[]);
        let (again, _) = read(&rule, &request(&AWARDED[..steps]), &[Some(5), None]);
        assert_eq!(one, again);
    }
}

/// The problems of a machine, each `key: problem`.
fn problems(table: &str) -> Vec<String> {
    let found = States::new(toml::from_str(table).unwrap()).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

/// A machine of two states, `a` with the transitions `on` and a final `b`.
fn from_a(on: &str) -> String {
    format!("start = \"a\"\n[state.a]\non = [{on}]\n[state.b]\nfinal = true\n")
}

const TO_B: &str = r#"{ event = "user_message", to = "b" }"#;

#[test]
fn invalid_states_are_refused_with_their_key() {
    for (table, expected) in [
        ("start = \"a\"".to_owned(), "state: expected at least one state"),
        (
            "start = \"strat\"\n[state.start]\nfinal = true".to_owned(),
            "start: there is no state `strat`; did you mean `start`?",
        ),
        (
            "[state.start]\n".to_owned(),
            "state.start: no transition leads out of it; if that is meant, mark it `final = true`",
        ),
        (
            format!("{}[state.c]\nfinal = true", from_a(TO_B)),
            "state.c: never entered: no transitions lead to it from `a`",
        ),
        (
            from_a(r#"{ event = "user_message", to = "bee" }"#),
            "state.a.on.1.to: there is no state `bee`; there are: a, b",
        ),
        (
            from_a(TO_B)
                .replace("final = true", "final = true\non = [{ event = \"user_message\", to = \"a\" }]"),
            "state.b.final: transitions lead out of it, so it is not final",
        ),
        (
            from_a(TO_B).replace("state.b", "state.\"b c\"").replace("\"b\"", "\"b c\""),
            "state.b c: expected a name of letters, digits, `_` and `-`",
        ),
    ] {
        assert_eq!(problems(&table), [expected], "{table}");
    }
}

#[test]
fn invalid_transitions_are_refused_with_their_key() {
    for (table, expected) in [
        (
            from_a(&format!(r#"{TO_B}, {{ event = "user_message", to = "a" }}"#)),
            "state.a.on.2: never taken: transition 1 of this state fits the very same events",
        ),
        (
            from_a(&format!(r#"{TO_B}, {{ event = "user_message", words = 3, to = "a" }}"#)),
            "state.a.on.2: never taken: transition 1 of this state fits all of its events, no later",
        ),
        (
            from_a(&format!(r#"{{ event = "user_message", count = 2, to = "a" }}, {TO_B}"#)),
            "state.a.on.1: never taken: transition 2 of this state fits all of its events, no later",
        ),
        (
            from_a(
                r#"{ event = "assistant_message", to = "b" }, { event = "assistant_question", to = "a" }"#,
            ),
            "state.a.on.2: never taken: transition 1 of this state fits all of its events, no later",
        ),
        (
            from_a(
                r#"{ event = "tool_called", tool = "f*", to = "b" }, { event = "tool_called", tool = "fetch", to = "a" }"#,
            ),
            "state.a.on.2: never taken: transition 1 of this state fits all of its events, no later",
        ),
        (
            from_a(r#"{ event = "user_message", tool = "f", to = "b" }"#),
            "state.a.on.1.tool: only events of tools have one",
        ),
        (
            from_a(r#"{ event = "tool_failed", pattern = "f", to = "b" }"#),
            "state.a.on.1.pattern: only messages have a text",
        ),
        (
            from_a(r#"{ event = "assistant_message", words = 1, to = "b" }"#),
            "state.a.on.1.words: only the words of user messages are counted",
        ),
        (
            from_a(r#"{ event = "user_message", count = 0, to = "b" }"#),
            "state.a.on.1.count: expected at least 1",
        ),
        (
            from_a(r#"{ event = "user_message", pattern = "(?=x)", to = "b" }"#),
            "state.a.on.1.pattern: expected a regular expression without look-around and back-references",
        ),
        (
            from_a(r#"{ event = "user_message", pattern = "(\\w{500}){500}", to = "b" }"#),
            "state.a.on.1.pattern: the regular expression is too large",
        ),
    ] {
        assert_eq!(problems(&table), [expected], "{table}");
    }
}

#[test]
fn tools_that_nothing_lets_be_called_or_that_look_misspelled_are_refused() {
    let machine = |first: &str, on: &str, second: &str| {
        format!(
            "[state.start]\ntools = [{first}]\non = [{{ {on}, to = \"b\" }}]\n[state.b]\ntools = [{second}]\nfinal = true"
        )
    };
    for (table, expected) in [
        (
            machine("\"award\"", "event = \"tool_succeeded\", tool = \"awrad\"", ""),
            Some("state.start.on.1.tool: no state lets `awrad` be called; did you mean `award`?"),
        ),
        (
            machine("\"award\"", "event = \"tool_called\", tool = \"show\"", "\"show\""),
            Some("state.start.on.1.tool: never happens: the state's `tools` do not let `show` be called"),
        ),
        (machine("\"award\"", "event = \"tool_succeeded\", tool = \"show\"", "\"show\""), None),
        (
            machine("\"award_point\"", "event = \"tool_called\", tool = \"award_point\"", "\"award_points\""),
            Some(
                "state.b.tools: `award_points` is one letter from `award_point` and named nowhere else; if both are meant, name them side by side in a list",
            ),
        ),
        (machine("\"get_file\", \"get_files\"", "event = \"user_message\"", ""), None),
        (machine("\"card1\"", "event = \"user_message\"", "\"card2\""), None),
        (machine("\"get\"", "event = \"user_message\"", "\"set\""), None),
        (machine("\"award\"", "event = \"user_message\"", "\"awards*\""), None),
    ] {
        let expected: Vec<String> = expected.map(str::to_owned).into_iter().collect();
        let said: Vec<String> = problems(&table);
        // The typo of a transition is reported there alone.
        assert_eq!(said.iter().take(1).cloned().collect::<Vec<_>>(), expected, "{table}: {said:?}");
    }
}

#[test]
fn the_example_of_the_shipped_file_is_a_good_one() {
    let shipped = include_str!("../../../../proxy.toml");
    let lines = shipped.lines().skip_while(|line| *line != "#   [policy.states]");
    let example = lines.map_while(|line| line.strip_prefix("#   ")).collect::<Vec<_>>().join("\n");
    assert!(!example.is_empty());
    let example = example.replace("[policy.states]\n", "").replace("policy.states.", "");
    assert_eq!(problems(&example), [""; 0]);
}

#[test]
fn every_problem_is_reported_at_once() {
    let table =
        "start = \"x\"\n[state.a]\non = [{ event = \"user_message\", tool = \"f\", count = 0, to = \"b\" }]";
    assert_eq!(
        problems(table),
        [
            "start: there is no state `x`; there are: a",
            "state.a.on.1.tool: only events of tools have one",
            "state.a.on.1.count: expected at least 1",
            "state.a.on.1.to: there is no state `b`; there are: a, x",
        ]
    );
}

#[test]
fn a_machine_is_drawn_in_the_order_in_which_it_is_run() {
    let rule = policy::<States>(
        "start = \"a\"\n[x.state.a]\ntools = []\non = [{ event = \"tool_succeeded\", tool = \"f*\", count = 2, to = \"next-card\" }, \
         { event = \"user_message\", words = 3, pattern = \"a:b\", to = \"end\" }]\n\
         [x.state.next-card]\ntools = [\"f1\"]\non = [{ event = \"assistant_question\", to = \"a\" }]\n\
         [x.state.end]\nfinal = true",
    );
    assert_eq!(
        rule.about().explanation.diagram.as_deref().unwrap(),
        "stateDiagram-v2\n    state \"next-card\" as state_1\n    state \"end\" as state_2\n    [*] --> a\n    \
         a --> state_1: f* succeeded, 2 times\n    \
         a --> state_2: user message, 3 words or more, matching a#58;b\n    \
         state_1 --> a: assistant question\n    state_2 --> [*]\n    note right of a : no tools\n    \
         note right of state_1 : f1\n"
    );
    assert!(
        tutor()
            .about()
            .explanation
            .diagram
            .as_deref()
            .unwrap()
            .contains("    awarding --> next_card: award_points succeeded\n")
    );
}
