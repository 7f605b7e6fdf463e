//! The shipped profiles through the real `openai` packages of Python and Node, all of them in one file and chosen by
//! header: lessons with the tutor that no model can shorten, and the limit of each other profile. What else a profile
//! contains is tested without these clients.

use crate::profiles::shipped::{SYSTEMS, caller, errors, file};
use crate::support::agent::{Agent, NODE, PYTHON, Way};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

with_each_client!(
    a_lesson_goes_on_by_itself_and_the_model_is_told_after_each_turn,
    a_card_is_skipped_neither_after_one_exchange_nor_from_any_wrong_state,
    the_next_card_comes_once_however_often_it_is_called_for,
    points_are_awarded_neither_without_a_conversation_nor_from_a_wrong_state,
    points_are_awarded_once_and_for_the_card_on_the_table,
    the_first_award_is_for_the_card_that_the_program_has_named,
    awards_without_a_card_go_one_to_each_card,
    a_failed_award_may_be_made_again_and_then_never_more,
    a_lesson_goes_on_where_it_was_after_disconnects_and_restarts,
    each_other_profile_blocks_the_first_call_beyond_its_limit,
    design_limits_each_tool_and_the_model_is_shown_what_is_used,
    a_model_that_finds_nothing_asks_the_user_and_goes_on_with_the_answer,
    a_guest_has_a_smaller_quota_than_a_caller_with_a_key_and_is_told_when_more_is_free,
    chat_keeps_the_newest_two_results_whole_and_a_small_model_summarises_the_rest,
);

/// What a student says first: the profile wants ten words before points are awarded.
const HELLO: &str = "Hello! I am ready to look at the first card.";
const FIRST: &str = r#"{"card_id":"c1","points":2}"#;
const SECOND: &str = r#"{"card_id":"c2","points":3}"#;
const AWARD: Turn = Calls(&[("a", "award_points", FIRST)]);
const SHOW: Turn = Calls(&[("s", "show_next_card", "{}")]);

/// What the scripted model does next.
#[derive(Clone, Copy)]
enum Turn {
    Says(&'static str),
    Calls(&'static [(&'static str, &'static str, &'static str)]),
    /// The same as the next turn, but the client does not live to see its end.
    Unheard,
}
use Turn::{Calls, Says, Unheard};

fn scripted(turns: &'static [Turn]) -> Scripted {
    Scripted::start(move |nth, request| match turns[nth] {
        Unheard if request.json()["stream"] == true => {
            spoken(turns[nth + 1], request).held_after(3, &Gate::shut())
        }
        Unheard => Reply::silence(),
        turn => spoken(turn, request),
    })
}

fn spoken(turn: Turn, request: &Recorded) -> Reply {
    let speech = match turn {
        Says(text) => Speech::text(text),
        Calls(calls) => Speech::calls(calls),
        Unheard => panic!("two turns in a row are not heard"),
    };
    Reply::speech(request, &speech)
}

/// All shipped profiles in one file, in front of `upstream`.
fn program(upstream: &Scripted) -> Toolrein {
    Toolrein::before(upstream, &SYSTEMS.map(file).concat().replace("models = [\"*\"]\n", ""))
}

/// A student of the tutor's, with card c1 on the table.
fn lesson(way: Way) -> Agent {
    let (id, points) = (json!({"type": "string"}), json!({"type": "integer"}));
    let award =
        json!({"type": "object", "properties": {"card_id": id, "points": points}, "required": ["card_id"]});
    let mut agent = Agent::new(
        way,
        json!({
            "award_points": ["{\"total\":2}", "{\"total\":5}", "{\"total\":9}"],
            "show_next_card": [r#"{"card_id":"c2","front":"dog"}"#, r#"{"card_id":"c3","front":"cow"}"#],
        }),
    );
    agent.profile = "tutor";
    agent.tools[0]["function"]["parameters"] = award;
    agent.messages = json!([{"role": "system", "content": "Teach. Card c1 is on the table: cat."}]);
    agent
}

/// The ids of the cards that were awarded.
fn awarded(agent: &Agent) -> Vec<&Value> {
    let awards = agent.ran.iter().filter(|(name, _)| name == "award_points");
    awards.map(|(_, arguments)| &arguments["card_id"]).collect()
}

/// The states that the model has read of in `request`, in order.
fn told(request: &Recorded) -> Vec<String> {
    let messages = request.json()["messages"].as_array().unwrap().clone();
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    let states = texts.flat_map(|text| text.split("[toolrein] State: ").skip(1));
    states.map(|state| state.split('.').next().unwrap().to_owned()).collect()
}

/// What the model was refused in all the conversation: tool or argument, type, and the state where one is named.
fn refused(upstream: &Scripted) -> Vec<String> {
    let told = errors(upstream.requests().last().unwrap());
    let refusals = told.iter().map(|error| {
        let message = error["message"].as_str().unwrap();
        let tool = message.strip_prefix("The call was not run: ").unwrap();
        let tool = tool.trim_start_matches("a call of ").split([' ', ':']).next().unwrap();
        let state =
            message.split("in the state ").nth(1).map_or("", |state| state.split('.').next().unwrap());
        format!("{tool} {} {state}", error["type"].as_str().unwrap()).trim_end().to_owned()
    });
    refusals.collect()
}

fn a_lesson_goes_on_by_itself_and_the_model_is_told_after_each_turn(way: Way) {
    let upstream = scripted(&[
        Says("What do you see?"),
        Says("And what does it do?"),
        // Judged and awarded in one turn ...
        AWARD,
        SHOW,
        Says("Both are right. What is this?"),
        Says("Are you sure?"),
        // ... and in two.
        Says("Right again."),
        Calls(&[("b", "award_points", SECOND)]),
        Calls(&[("t", "show_next_card", "{}")]),
        Says("And this?"),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.say(&program, &[HELLO, "A cat.", "It sleeps.", "A dog.", "It barks.", "Thank you!"]);
    assert_eq!(talk.ran(), ["award_points", "show_next_card", "award_points", "show_next_card"]);
    let all = [
        "start",
        "probing",
        "judging",
        "next_card",
        "start",
        "probing",
        "judging",
        "award",
        "next_card",
        "start",
    ];
    for nth in 0..all.len() {
        assert_eq!(told(&upstream.request(nth)), all[..=nth], "request {nth}");
    }
    assert_eq!(refused(&upstream), [""; 0]);
    upstream.assert_clean();
}

fn a_card_is_skipped_neither_after_one_exchange_nor_from_any_wrong_state(way: Way) {
    let upstream = scripted(&[
        SHOW,
        Says("What do you see?"),
        SHOW,
        Says("What does the cat do?"),
        SHOW,
        Says("Both are right."),
        SHOW,
        AWARD,
        Says("You have two points."),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.say(&program, &["Show me cards!", "A cat.", "It sleeps.", "The next one!"]);
    assert_eq!(talk.ran(), ["award_points"]);
    assert_eq!(
        refused(&upstream),
        ["start", "probing", "judging", "award"]
            .map(|state| format!("show_next_card STATE_RESTRICTED {state}"))
    );
    program.wait_for_metric("toolrein_actions_total{policy=\"states\",action=\"blocked\"}", 4.0);
    upstream.assert_clean();
}

fn the_next_card_comes_once_however_often_it_is_called_for(way: Way) {
    let upstream = scripted(&[
        Says("What do you see?"),
        Says("And what does it do?"),
        AWARD,
        // Twice at once and once more in succession, and after the student has said something.
        Calls(&[("s", "show_next_card", "{}"), ("t", "show_next_card", "{}")]),
        SHOW,
        Says("What is this?"),
        SHOW,
        Says("Why?"),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.say(&program, &[HELLO, "A cat.", "It sleeps.", "A dog."]);
    assert_eq!(talk.ran(), ["award_points", "show_next_card"]);
    assert_eq!(
        refused(&upstream),
        ["showing", "start", "probing"].map(|state| format!("show_next_card STATE_RESTRICTED {state}"))
    );
    for request in upstream.requests() {
        assert_eq!(request.json()["parallel_tool_calls"], false, "one call at a time is asked for");
    }
    upstream.assert_clean();
}

fn points_are_awarded_neither_without_a_conversation_nor_from_a_wrong_state(way: Way) {
    let upstream = scripted(&[
        AWARD,
        Says("What do you see?"),
        AWARD,
        Says("What does the cat do?"),
        Says("Both are right."),
        AWARD,
        // With the points awarded the next card is due, then its opening question.
        AWARD,
        SHOW,
        Calls(&[("b", "award_points", SECOND)]),
        Says("And what is this?"),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.say(&program, &["Give me points!", "A cat.", "It sleeps.", "Great, what comes next?"]);
    assert_eq!(talk.ran(), ["award_points", "show_next_card"]);
    assert_eq!(
        refused(&upstream),
        ["start", "probing", "next_card", "start"]
            .map(|state| format!("award_points STATE_RESTRICTED {state}"))
    );
    upstream.assert_clean();
}

fn points_are_awarded_once_and_for_the_card_on_the_table(way: Way) {
    let upstream = scripted(&[
        Says("What do you see?"),
        Says("And what does it do?"),
        // Twice at once.
        Calls(&[("a", "award_points", FIRST), ("b", "award_points", r#"{"card_id":"c1","points":9}"#)]),
        SHOW,
        Says("And this?"),
        Says("Are you sure?"),
        // In the right state, but for the card before, and for one that nobody has seen.
        Calls(&[("c", "award_points", r#"{"card_id":"c1","points":9}"#)]),
        Calls(&[("d", "award_points", r#"{"card_id":"c9","points":9}"#)]),
        Calls(&[("e", "award_points", SECOND)]),
        Says("Five points."),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.say(&program, &[HELLO, "A cat.", "It sleeps.", "A dog.", "It barks."]);
    assert_eq!(talk.ran(), ["award_points", "show_next_card", "award_points"]);
    assert_eq!(awarded(&talk), ["c1", "c2"]);
    assert_eq!(
        refused(&upstream),
        ["award_points STATE_RESTRICTED awarding", "award_points DUPLICATE", "card_id STALE_REFERENCE"]
    );
    let told = errors(upstream.requests().last().unwrap())[2]["message"].as_str().unwrap().to_owned();
    assert!(told.contains("\"c2\""), "the model reads the current one: {told}");
    upstream.assert_clean();
}

fn the_first_award_is_for_the_card_that_the_program_has_named(way: Way) {
    let upstream = scripted(&[
        Says("What do you see?"),
        Says("And what does it do?"),
        Calls(&[("a", "award_points", r#"{"card_id":"c9","points":9}"#)]),
        AWARD,
        Says("Two points."),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.say(&program, &["Hello! Card c9 is on the table.", "A cat.", "It sleeps."]);
    assert_eq!(awarded(&talk), ["c1"]);
    assert_eq!(refused(&upstream), ["card_id STALE_REFERENCE"]);
    upstream.assert_clean();
}

fn awards_without_a_card_go_one_to_each_card(way: Way) {
    const POINTS: Turn = Calls(&[("a", "award_points", r#"{"points":2}"#)]);
    let upstream = scripted(&[
        Says("What do you see?"),
        Says("And what does it do?"),
        POINTS,
        POINTS,
        SHOW,
        Says("What is this?"),
        Says("Are you sure?"),
        POINTS,
        Says("Four points."),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.tools[0]["function"]["parameters"] = json!({"type": "object"});
    talk.say(&program, &[HELLO, "A cat.", "It sleeps.", "A dog.", "It barks."]);
    assert_eq!(talk.ran(), ["award_points", "show_next_card", "award_points"]);
    assert_eq!(refused(&upstream), ["award_points STATE_RESTRICTED next_card"]);
    upstream.assert_clean();
}

fn a_failed_award_may_be_made_again_and_then_never_more(way: Way) {
    let upstream = scripted(&[
        Says("What do you see?"),
        Says("And what does it do?"),
        AWARD,
        AWARD,
        AWARD,
        Says("Two points."),
        AWARD,
        Says("You have them already."),
    ]);
    let program = program(&upstream);
    let mut talk = lesson(way);
    talk.results["award_points"] = json!(["Error: the board is locked", ""]);
    talk.say(&program, &[HELLO, "A cat.", "It sleeps.", "More!"]);
    assert_eq!(talk.ran(), ["award_points", "award_points"], "the failed one and the good one");
    assert_eq!(told(upstream.requests().last().unwrap())[3..], ["award", "next_card"]);
    assert_eq!(refused(&upstream), ["award_points STATE_RESTRICTED next_card"; 2]);
    upstream.assert_clean();
}

fn a_lesson_goes_on_where_it_was_after_disconnects_and_restarts(way: Way) {
    let upstream = scripted(&[
        Says("What do you see?"),
        Unheard,
        Says("And what does the cat do?"),
        Unheard,
        AWARD,
        Says("Two points."),
        AWARD,
        SHOW,
        Says("What is this?"),
    ]);
    let mut talk = lesson(way);
    let before = program(&upstream);
    talk.say(&before, &[HELLO]);
    disconnect(&talk, &before, (&upstream, 1), "A cat.");
    before.stop();
    // Another process with the same settings, and another client that remembers what the first had heard.
    let before = program(&upstream);
    talk.say(&before, &["A cat."]);
    disconnect(&talk, &before, (&upstream, 3), "It sleeps.");
    before.stop();
    let before = program(&upstream);
    talk.say(&before, &["It sleeps."]);
    assert_eq!(talk.ran(), ["award_points"]);
    before.stop();
    let after = program(&upstream);
    talk.say(&after, &["Next!"]);
    assert_eq!(talk.ran(), ["award_points", "show_next_card"]);
    assert_eq!(refused(&upstream), ["award_points STATE_RESTRICTED next_card"]);
    for (unheard, again) in [(1, 2), (3, 4)] {
        let body = |nth: usize| String::from_utf8(upstream.request(nth).body).unwrap();
        assert_eq!(body(unheard), body(again), "the model reads the very same");
    }
    let last = told(upstream.requests().last().unwrap());
    assert_eq!(last, ["start", "probing", "judging", "next_card", "start"]);
    upstream.assert_clean();
}

/// A client says this and is killed while the n-th request is being answered.
fn disconnect(talk: &Agent, program: &Toolrein, (upstream, nth): (&Scripted, usize), says: &str) {
    let mut client = talk.start(program, &[says]);
    upstream.request(nth);
    assert!(client.is_running());
    drop(client);
    upstream.wait_for_hang_up(nth);
}

fn each_other_profile_blocks_the_first_call_beyond_its_limit(way: Way) {
    for (profile, calls, beyond) in [
        ("chat", &["search", "fetch", "search", "fetch", "search", "fetch"][..], 5),
        ("artifacts", &["search_web", "create_artifact", "generateImage", "search_web"], 3),
        ("voice", &["search_web", "get_forecast", "read_page"], 2),
        ("text", &["search_a", "fetch_b", "list_c", "get_d", "find_e", "search_f"], 5),
    ] {
        let upstream = caller(calls);
        let program = program(&upstream);
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
        let mut declared = calls.to_vec();
        declared.sort_unstable();
        declared.dedup();
        let mut talk = lesson(way);
        talk.profile = profile;
        talk.tools = declared.iter().map(tool).collect();
        talk.results = declared.iter().map(|name| ((*name).to_owned(), json!(["1", "2", "3"]))).collect();
        talk.say(&program, &["What is new?"]);
        assert_eq!(talk.ran(), calls[..beyond], "{profile}");
        assert_eq!(errors(upstream.requests().last().unwrap())[0]["type"], "BUDGET_EXCEEDED", "{profile}");
        let last = talk.messages.as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["content"], "This is what I found.", "{profile}");
        upstream.assert_clean();
    }
}

fn design_limits_each_tool_and_the_model_is_shown_what_is_used(way: Way) {
    let upstream = caller(&["codeExecution", "weather", "codeExecution", "codeExecution"]);
    let program = program(&upstream);
    let mut talk = Agent::new(way, json!({"codeExecution": ["1", "2", "3"], "weather": ["rain"]}));
    talk.profile = "design";
    talk.say(&program, &["What is new?"]);
    assert_eq!(talk.ran(), ["codeExecution", "weather", "codeExecution"]);
    let error = errors(upstream.requests().last().unwrap()).remove(0);
    let numbers = [&error["type"], &error["used"], &error["limit"], &error["window_ms"]];
    assert_eq!(numbers, [&json!("RATE_LIMIT"), &json!(2), &json!(2), &json!(60_000)]);
    assert_eq!(talk.last(), "This is what I found.");
    upstream.assert_clean();
}

fn a_model_that_finds_nothing_asks_the_user_and_goes_on_with_the_answer(way: Way) {
    const ASK: &str = r#"{"question":"Which Paris do you mean?","context":"There are two."}"#;
    let upstream = scripted(&[
        Calls(&[("a", "search_places", r#"{"query":"museums in Paris"}"#)]),
        Calls(&[("b", "search_places", r#"{"query":"opening hours of galleries"}"#)]),
        Calls(&[("c", "search_places", r#"{"query":"exhibitions this month"}"#)]),
        Calls(&[("q", "ask_for_clarification", ASK)]),
        Says("In Texas there is one."),
    ]);
    let program = program(&upstream);
    let mut talk = Agent::new(way, json!({"search_places": ["[]", "[]", "[]"]}));
    talk.profile = "research";
    talk.say(&program, &["Any museums?"]);
    assert_eq!(talk.ran(), ["search_places"; 3]);
    assert!(talk.last().contains("Which Paris do you mean?"), "{}", talk.last());
    let shown = upstream.request(3).json();
    let advised = shown["messages"].to_string();
    assert!(advised.contains("[toolrein]") && advised.contains("ask_for_clarification"), "{advised}");
    talk.say(&program, &["The one in Texas."]);
    assert_eq!(talk.last(), "In Texas there is one.");
    upstream.assert_clean();
}

fn a_guest_has_a_smaller_quota_than_a_caller_with_a_key_and_is_told_when_more_is_free(way: Way) {
    // The SHA-256 of the key that the clients of these tests send: with it they are guests.
    let guest = "[tier.guest]\nkeys = [\"sha256:f3abf2a6cc4f00987743db5f544ba345b4899ae31f326d8ee9c4816de153c9e0\"]\n";
    for (tier, runs) in [(guest, 1), ("", 2)] {
        let upstream = caller(&["make_image", "make_image"]);
        let all = SYSTEMS.map(file).concat().replace("models = [\"*\"]\n", "");
        let program = Toolrein::before(&upstream, &format!("{tier}{all}"));
        let mut talk = Agent::new(way, json!({"make_image": ["1", "2"]}));
        talk.profile = "public";
        talk.say(&program, &["Two pictures, please."]);
        assert_eq!(talk.ran().len(), runs, "{tier}");
        let errors = errors(upstream.requests().last().unwrap());
        assert_eq!(errors.len(), 2 - runs, "{tier}");
        for error in errors {
            assert_eq!(
                (&error["type"], &error["limit"], &error["remaining"]),
                (&json!("RATE_LIMIT"), &json!(1), &json!(0))
            );
            let reset = error["reset_at"].as_str().unwrap();
            assert!(reset.starts_with("20") && reset.ends_with('Z'), "{error}");
            assert!(error["message"].as_str().unwrap().contains("5h"), "{error}");
        }
        upstream.assert_clean();
    }
}

fn chat_keeps_the_newest_two_results_whole_and_a_small_model_summarises_the_rest(way: Way) {
    let is_question = |request: &Recorded| request.json()["model"] == "gpt-4o-mini";
    let upstream = Scripted::start(move |nth, request| {
        let body = request.json();
        let last = body["messages"].as_array().unwrap().iter().rfind(|message| message["role"] != "system");
        if is_question(request) {
            Reply::text("Six pages were read.")
        } else if last.unwrap()["role"] == "user" {
            Reply::speech(request, &Speech::calls(&[(&format!("c{nth}"), "fetch", "{}")]))
        } else {
            Reply::speech(request, &Speech::text("This is what I found."))
        }
    });
    let window = "[model.\"gpt-4o\"]\ncontext_window = 8192\n";
    let all = SYSTEMS.map(file).concat().replace("models = [\"*\"]\n", "");
    let program = Toolrein::before(&upstream, &format!("{window}{all}"));
    let pages: Vec<String> = (0..8).map(|at| format!("page {at} {}", "word ".repeat(1_000))).collect();
    // Four were read before: the profile allows five calls of a tool in a minute.
    let mut talk = Agent::new(way, json!({ "fetch": pages[4..] }));
    talk.profile = "chat";
    for (at, page) in pages[..4].iter().enumerate() {
        let call = json!({"id": format!("p{at}"), "type": "function", "function": {"name": "fetch", "arguments": "{}"}});
        talk.messages.as_array_mut().unwrap().extend([
            json!({"role": "user", "content": "Read on."}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": format!("p{at}"), "content": page}),
            json!({"role": "assistant", "content": "Read."}),
        ]);
    }
    talk.say(&program, &["Read on."; 4]);
    assert_eq!(talk.ran(), ["fetch"; 4]);
    assert_eq!(talk.last(), "This is what I found.");
    let (questions, requests): (Vec<_>, Vec<_>) = upstream.requests().into_iter().partition(is_question);
    assert_eq!(questions.len(), 1);
    let shown = requests.last().unwrap().json().to_string();
    assert_eq!(shown.matches("Six pages were read.").count(), 1);
    assert!(shown.contains("this old result of fetch was cleared"), "{shown}");
    for page in [6, 7] {
        assert!(shown.contains(&pages[page]), "page {page} is whole");
    }
    upstream.assert_clean();
}
