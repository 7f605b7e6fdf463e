//! The profiles of `deploy/profiles`: each file starts alone, all of them fit into one, and each keeps the limits
//! that it names.

use crate::profiles::ask;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, text};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const SYSTEMS: [&str; 8] =
    ["artifacts", "chat", "design", "public", "research", "text", "tutor", "voice"];

fn path(system: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/profiles").join(format!("{system}.toml"))
}

/// The file of `system`.
pub fn file(system: &str) -> String {
    std::fs::read_to_string(path(system)).unwrap()
}

/// The program with the file of `system` alone, in front of `upstream`.
pub fn program(system: &str, upstream: &Scripted) -> Toolrein {
    Toolrein::before(upstream, &file(system))
}

/// A conversation with these tools, which take anything.
pub fn talk(form: Form, tools: &[&str]) -> Talk {
    let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let mut talk = Talk::new(form);
    talk.members["tools"] = tools.iter().map(tool).collect();
    talk
}

/// A model that makes the n-th of these calls, each in a reply of its own, and speaks when it is asked to or has
/// made all. A call that was blocked counts as made.
pub fn caller(tools: &'static [&'static str]) -> Scripted {
    Scripted::start(move |nth, request| match tools.get(nth) {
        Some(tool) if request.json()["tool_choice"] != "none" => {
            let (id, arguments) = (format!("call_{nth}"), json!({"page": nth}).to_string());
            Reply::speech(request, &Speech::calls(&[(&id, tool, &arguments)]))
        }
        _ => text("This is what I found.", request),
    })
}

/// Runs the tools until the model answers in text; the names of the tools that were run.
pub fn run(talk: &mut Talk, program: &Toolrein, headers: &[(&str, &str)]) -> (Vec<String>, Said) {
    let mut ran = Vec::new();
    loop {
        let said = ask(talk, program, headers);
        said.assert_coherent(talk.form);
        talk.add(&said);
        if said.calls.is_empty() {
            return (ran, said);
        }
        ran.extend(said.calls.iter().map(|(_, name, _)| name.clone()));
    }
}

/// The errors in the explanations that the model read in `request`.
pub fn errors(request: &Recorded) -> Vec<Value> {
    let body = request.json();
    let messages = body["messages"].as_array().unwrap().iter();
    let contents = messages.filter(|message| message["role"] == "tool").map(|message| &message["content"]);
    let envelopes = contents.filter_map(|text| serde_json::from_str::<Value>(text.as_str()?).ok());
    envelopes.filter(|envelope| envelope["ok"] == false).map(|envelope| envelope["error"].clone()).collect()
}

/// The system messages that the model read behind the opening ones in `request`.
pub fn notices(request: &Recorded) -> Vec<String> {
    let body = request.json();
    let messages = body["messages"].as_array().unwrap().iter();
    let system = messages.filter(|message| message["role"] == "system");
    system.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn declared(request: &Recorded) -> Vec<String> {
    let tools = request.json()["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

fn checked(path: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_toolrein")).arg("check").arg(path).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn each_file_is_good_alone_and_holds_the_profile_that_it_is_called_after() {
    let folder = path("chat").parent().unwrap().to_owned();
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<String> =
        entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    found.sort();
    assert_eq!(found, SYSTEMS);
    for system in SYSTEMS {
        let said = checked(&path(system));
        assert!(!said.contains("warning"), "{said}");
        assert!(said.contains(&format!("\nProfile {system}, by model *, header:\n")), "{said}");
        assert!(file(system).lines().all(|line| line.chars().count() <= 120), "{system}");
    }
}

#[test]
fn design_limits_each_of_its_tools_and_any_other_to_five_calls_a_minute() {
    for (tool, limit) in
        [("searchAll", 5), ("urlReader", 3), ("codeExecution", 2), ("weather", 3), ("web_search", 5)]
    {
        let tools: &'static [&'static str] = Vec::leak(vec![tool; 9]);
        let upstream = caller(tools);
        let program = program("design", &upstream);
        let (ran, _) = run(&mut talk(Form::Whole, &[tool]), &program, &[]);
        assert_eq!(ran.len(), limit, "{tool}");
        let blocked = errors(upstream.requests().last().unwrap()).first().map(|error| error["type"].clone());
        assert_eq!(blocked.unwrap(), "RATE_LIMIT", "{tool}");
    }
}

#[test]
fn all_shipped_profiles_fit_into_one_file_and_clients_choose_one() {
    let all: String = SYSTEMS.map(file).concat().replace("models = [\"*\"]\n", "");
    let upstream = caller(&["search", "search", "search", "search", "search", "search", "search"]);
    let config = format!("{all}\n[policy.loops]\n");
    let program = Toolrein::before(&upstream, &config);
    let (ran, _) = run(&mut talk(Form::Whole, &["search"]), &program, &[("x-toolrein-profile", "voice")]);
    assert_eq!(ran.len(), 2);
    assert_eq!(errors(upstream.requests().last().unwrap())[0]["type"], "BUDGET_EXCEEDED");
    let unknown = ask(&talk(Form::Whole, &[]), &program, &[("x-toolrein-profile", "speech")]);
    let told = unknown.response.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        told.ends_with("artifacts, chat, design, public, research, text, tutor, voice, voice-answer, voice-act, voice-listen."),
        "{told}"
    );
}

#[test]
fn chat_the_sixth_call_of_a_turn_is_blocked_and_the_model_answers() {
    in_both_forms(|form| {
        const CALLS: [&str; 12] = [
            "search", "fetch", "search", "fetch", "search", "fetch", "search", "fetch", "search", "fetch",
            "x", "x",
        ];
        let upstream = caller(&CALLS);
        let program = program("chat", &upstream);
        let mut talk = talk(form, &["search", "fetch", "x"]);
        let (ran, said) = run(&mut talk, &program, &[]);
        assert_eq!(
            (ran, said.text.as_str()),
            (CALLS[..5].iter().map(|&tool| tool.to_owned()).collect(), "This is what I found.")
        );
        let requests = upstream.requests();
        assert!(notices(&requests[2]).is_empty(), "two of five are less than half");
        let told = notices(&requests[4]);
        assert!(told[0].contains("3 of 5 tool calls"), "{told:?}");
        assert!(
            told[1].contains("4 of 5 tool calls of this turn used, ~")
                && told[1].contains(" of 1000000 tokens used, ~20% left")
                && told[1].contains("ask the user"),
            "{told:?}"
        );
        let last = requests.last().unwrap();
        assert_eq!(last.json()["tool_choice"], "none", "the model lands");
        assert_eq!(declared(last), ["search", "fetch", "x"], "with its tools still declared");
        assert!(errors(last).iter().all(|error| error["type"] == "BUDGET_EXCEEDED"), "{:?}", errors(last));
        upstream.assert_clean();
    });
}

/// What `request` says, message by message.
fn contents(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

#[test]
fn chat_from_four_fifths_of_the_context_on_old_results_are_summarised_by_gpt_4o_mini() {
    in_both_forms(|form| {
        let is_question = |request: &Recorded| request.json()["model"] == "gpt-4o-mini";
        let upstream = Scripted::start(move |_, request| match is_question(request) {
            true => Reply::text("Six pages were read."),
            false => text("This is what I found.", request),
        });
        let program = program("chat", &upstream);
        let mut talk = talk(form, &["fetch"]);
        // Its context takes 8,192 tokens: four fifths are 6,554.
        talk.members["model"] = json!("gpt-4");
        let read = |talk: &mut Talk, at: usize| {
            let call = json!({"name": "fetch", "arguments": json!({"n": at}).to_string()});
            talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": format!("c{at}"), "type": "function", "function": call}]}));
            let page = format!("page {at} {}", "word ".repeat(1_000));
            talk.messages.push(json!({"role": "tool", "tool_call_id": format!("c{at}"), "content": page}));
            ask(talk, &program, &[])
        };
        for at in 0..8 {
            let said = read(&mut talk, at);
            said.assert_coherent(form);
            talk.add(&said);
            talk.say("And the next?");
        }
        let (questions, requests): (Vec<_>, Vec<_>) = upstream.requests().into_iter().partition(is_question);
        assert_eq!((questions.len(), requests.len()), (1, 8));
        assert_eq!(questions[0].header("authorization"), Some("Bearer sk-test"));
        let summary = |request: &Recorded| request.json().to_string().matches("Six pages were read.").count();
        let cleared =
            |request: &Recorded| request.json().to_string().matches("this old result of fetch was").count();
        let told: Vec<(usize, usize)> =
            requests.iter().map(|request| (cleared(request), summary(request))).collect();
        assert_eq!(told[..6], [(0, 0); 6]);
        // At the seventh page it is full; four thousand tokens are free when five may go.
        assert_eq!(told[6..], [(5, 1); 2]);
        for pair in [&requests[4..6], &requests[6..8]] {
            let (shorter, longer) = (contents(&pair[0]), contents(&pair[1]));
            assert_eq!(shorter, longer[..shorter.len()]);
        }
        upstream.assert_clean();
    });
}

#[test]
fn artifacts_a_fourth_tool_for_one_request_is_blocked_also_among_parallel_ones() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let image = r#"{"prompt":"a fox","size":"1024x1024"}"#;
                let calls = [
                    ("a", "search_web", r#"{"query":"foxes"}"#),
                    ("b", "create_artifact", r#"{"title":"Foxes","type":"text/html","content":"<p>"}"#),
                    ("c", "generateImage", image),
                    ("d", "generateImage", image),
                ];
                Reply::speech(request, &Speech::calls(&calls))
            }
            _ => text("Here it is.", request),
        });
        let program = program("artifacts", &upstream);
        let (ran, _) =
            run(&mut talk(form, &["search_web", "create_artifact", "generateImage"]), &program, &[]);
        assert_eq!(ran, ["search_web", "create_artifact", "generateImage"]);
        let told = upstream.request(1);
        assert_eq!(errors(&told)[0]["type"], "BUDGET_EXCEEDED");
        assert!(notices(&told)[0].contains("3 of 3 tool calls"), "{:?}", notices(&told));
        upstream.assert_clean();
    });
}

#[test]
fn artifacts_arguments_are_held_to_the_schema_and_to_the_limits() {
    let schema = json!({"type": "object", "required": ["type"], "properties": {
        "type": {"enum": ["text/html", "image/svg+xml"]}, "title": {"type": "string"},
    }});
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let long = json!({"type": "text/html", "title": "x".repeat(121)}).to_string();
            let wrong =
                [r#"{"title":"a page"}"#, r#"{"type":"text/plain"}"#, &long, r#"{"type":"text/html"}"#];
            Reply::speech(request, &Speech::calls(&[("a", "create_artifact", wrong[nth.min(3)])]))
        });
        let program = program("artifacts", &upstream);
        let mut talk = talk(form, &["create_artifact"]);
        talk.members["tools"][0]["function"]["parameters"] = schema.clone();
        let said = ask(&talk, &program, &[]);
        said.assert_coherent(form);
        assert_eq!(said.calls, [("a".into(), "create_artifact".into(), r#"{"type":"text/html"}"#.into())]);
        let last = upstream.request(3);
        let types: Vec<Value> = errors(&last).iter().map(|error| error["type"].clone()).collect();
        assert_eq!(types, ["VALIDATION", "VALIDATION", "VALIDATION"]);
        assert!(errors(&last)[2].to_string().contains("max_chars"), "{:?}", errors(&last));
        upstream.assert_clean();
    });
}

#[test]
fn voice_a_third_retrieval_is_blocked_another_tool_runs_and_a_fourth_call_does_not() {
    in_both_forms(|form| {
        let upstream = caller(&["search_web", "getForecast", "read_page", "set_timer", "set_timer"]);
        let program = program("voice", &upstream);
        let tools = ["search_web", "getForecast", "read_page", "set_timer"];
        let (ran, said) = run(&mut talk(form, &tools), &program, &[]);
        assert_eq!(ran, ["search_web", "getForecast", "set_timer"]);
        assert_eq!(said.text, "This is what I found.");
        let errors = errors(upstream.requests().last().unwrap());
        assert_eq!(errors[0]["limit"], 2, "of retrieval");
        assert_eq!(errors[1]["limit"], 3, "of all");
        upstream.assert_clean();
    });
}

#[test]
fn voice_each_mode_has_its_own_tools() {
    const TOOLS: [&str; 4] = ["search_web", "set_timer", "delete_note", "weather"];
    in_both_forms(|form| {
        for (mode, shown) in [
            ("voice", &TOOLS[..]),
            ("voice-answer", &["search_web", "weather"]),
            ("voice-act", &["search_web", "set_timer", "weather"]),
            ("voice-listen", &[]),
        ] {
            let upstream = caller(&["delete_note"]);
            let program = program("voice", &upstream);
            let (ran, _) = run(&mut talk(form, &TOOLS), &program, &[("x-toolrein-profile", mode)]);
            assert_eq!(declared(&upstream.request(0)), shown, "{mode}");
            assert_eq!(ran.len(), usize::from(mode == "voice"), "{mode}");
            upstream.assert_clean();
        }
    });
}

/// In the profile `system` results that take this long, and one that takes next to no time: those that were counted.
fn slow_results(system: &str, takes: Duration) -> f64 {
    let upstream = caller(&["search_web", "compose", "search_web"]);
    let program = program(system, &upstream);
    let counted = |category: &str| {
        program
            .metric(&format!("toolrein_actions_total{{policy=\"turn_limits\",action=\"slow:{category}\"}}"))
    };
    let mut talk = talk(Form::Streamed, &["search_web", "compose"]);
    let mut said = ask(&talk, &program, &[]);
    for expected in [1.0, 2.0] {
        talk.add(&said);
        // From the call's release, which was before the client had it, to the request that brings the result.
        std::thread::sleep(takes);
        said = ask(&talk, &program, &[]);
        program.wait_for_metric(
            "toolrein_requests_total{endpoint=\"chat_completions\",status=\"200\"}",
            1.0 + expected,
        );
    }
    let told = said.response.header("x-toolrein-actions").unwrap_or_default().to_owned();
    let logged = program.logs().concat();
    let slow = counted("retrieval") + counted("other");
    assert_eq!(told.contains("turn_limits=slow:other"), slow > 0.0, "{told}");
    assert_eq!(logged.contains("\"action\":\"slow:retrieval\""), slow > 0.0, "{logged}");
    assert_eq!(said.calls.len(), 1, "a late result is still a result");
    upstream.assert_clean();
    slow
}

#[test]
fn voice_results_slower_than_800_ms_are_counted_and_logged_and_nothing_else() {
    assert!(slow_results("voice", Duration::from_millis(801)) > 1.5, "one of each category");
}

#[test]
fn text_results_slower_than_2_s_are_counted_and_logged_and_nothing_else() {
    assert!(slow_results("text", Duration::from_millis(2001)) > 1.5, "one of each category");
}

#[test]
fn artifacts_the_quota_is_the_callers_whatever_the_conversation() {
    let upstream = caller(&["generateImage"; 200]);
    let program = program("artifacts", &upstream);
    let image = |nth: usize| {
        let mut talk = talk(Form::Whole, &["generateImage"]);
        talk.messages[0]["content"] = json!(format!("Image {nth}"));
        ask(&talk, &program, &[]).calls.len()
    };
    let images: Vec<usize> = (0..101).map(image).collect();
    assert_eq!(images.iter().sum::<usize>(), 100, "{images:?}");
    let errors = errors(upstream.requests().last().unwrap());
    let numbers = (&errors[0]["type"], &errors[0]["limit"], &errors[0]["window_ms"]);
    assert_eq!(numbers, (&json!("RATE_LIMIT"), &json!(100), &json!(18_000_000)));
}

#[test]
fn text_a_sixth_retrieval_is_blocked_and_other_tools_run() {
    in_both_forms(|form| {
        let upstream = caller(&[
            "search_a",
            "fetch_b",
            "list_c",
            "get_d",
            "find_e",
            "search_f",
            "calculator",
            "compose",
        ]);
        let program = program("text", &upstream);
        let tools = ["search_a", "fetch_b", "list_c", "get_d", "find_e", "search_f", "calculator", "compose"];
        let (ran, _) = run(&mut talk(form, &tools), &program, &[]);
        assert_eq!(ran, ["search_a", "fetch_b", "list_c", "get_d", "find_e", "calculator", "compose"]);
        assert_eq!(errors(upstream.requests().last().unwrap())[0]["limit"], 5);
        upstream.assert_clean();
    });
}

#[test]
fn tutor_is_drawn_by_check_with_every_step_of_a_lesson() {
    let said = checked(&path("tutor"));
    for arrow in [
        "[*] --> start",
        "start --> observing: assistant question",
        "observing --> probing: user message",
        "listening --> judging: user message",
        "judging --> awarding: award_points called",
        "awarding --> next_card: award_points succeeded",
        "showing --> start: show_next_card succeeded",
    ] {
        assert!(said.contains(arrow), "{arrow} is not in\n{said}");
    }
}

#[test]
fn voice_act_the_same_action_runs_once_a_minute_and_one_at_a_time() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let reply = |calls: &[(&str, &str, &str)]| Reply::speech(request, &Speech::calls(calls));
            match nth {
                0 => reply(&[("a", "send_note", r#"{"n":1}"#), ("b", "send_note", r#"{"n":2}"#)]),
                1 => reply(&[("c", "send_note", r#"{"n":1}"#)]),
                _ => text("It is sent.", request),
            }
        });
        let program = program("voice", &upstream);
        let (ran, _) = run(&mut talk(form, &["send_note"]), &program, &[("x-toolrein-profile", "voice-act")]);
        assert_eq!(ran, ["send_note"]);
        let types: Vec<Value> =
            errors(upstream.requests().last().unwrap()).iter().map(|error| error["type"].clone()).collect();
        assert_eq!(types, ["TURN_LOCKED", "DUPLICATE"]);
        upstream.assert_clean();
    });
}

#[test]
fn artifacts_what_is_made_twice_in_a_row_is_made_once_and_changes_come_one_by_one() {
    in_both_forms(|form| {
        let page = r#"{"title":"Foxes","type":"text/html","content":"<p>"}"#;
        let upstream = Scripted::start(move |nth, request| {
            let reply = |calls: &[(&str, &str, &str)]| Reply::speech(request, &Speech::calls(calls));
            match nth {
                0 => reply(&[("a", "create_artifact", page), ("b", "update_artifact", page)]),
                1 => reply(&[("c", "create_artifact", page)]),
                2 => reply(&[("d", "update_artifact", page)]),
                _ => text("Here it is.", request),
            }
        });
        let program = program("artifacts", &upstream);
        let (ran, _) = run(&mut talk(form, &["create_artifact", "update_artifact"]), &program, &[]);
        assert_eq!(ran, ["create_artifact", "update_artifact"]);
        let types: Vec<Value> =
            errors(upstream.requests().last().unwrap()).iter().map(|error| error["type"].clone()).collect();
        assert_eq!(types, ["TURN_LOCKED", "DUPLICATE"]);
        upstream.assert_clean();
    });
}
