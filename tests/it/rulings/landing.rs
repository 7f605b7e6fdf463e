//! Rulings 4 and 5: from blocked calls to a real answer, in one coherent reply, within a bounded number of
//! upstream requests.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, search, text};
use serde_json::{Value, json};

const NONE_LEFT: &str = "reask.max = 2\n[policy.budget]\ncontext_tokens = 1\ntool_calls = 0\n";
/// The tool is closed, but the model may call another one.
const CLOSED: &str = "reask.max = 2\n[policy.allow]\nexcept = [\"search\"]\n";

fn wants_no_calls(request: &Recorded) -> bool {
    let body = request.json();
    body["tool_choice"] == "none" || body.get("tools").is_none()
}

/// A model that calls until it may not.
fn obedient(nth: usize, request: &Recorded) -> Reply {
    if wants_no_calls(request) { text("This is what I know.", request) } else { search(nth, request) }
}

#[test]
fn after_the_re_asks_the_model_is_asked_for_an_answer_with_its_tools_still_declared() {
    in_both_forms(|form| {
        let upstream = Scripted::start(obedient);
        let program = Toolrein::before(&upstream, CLOSED);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.finishes[0].as_str()), ("This is what I know.", "stop"));
        assert!(said.calls.is_empty());
        let requests = upstream.requests();
        assert_eq!(requests.len(), 4, "one, two re-asks, one landing");
        let last = requests[3].json();
        assert_eq!((&last["tool_choice"], last["tools"].as_array().unwrap().len()), (&json!("none"), 2));
        assert_eq!(last["messages"].as_array().unwrap().len(), 1 + 3 * 2, "each round with its explanation");
        assert_eq!(said.usage["total_tokens"], 25 * 4, "all of them were billed");
        upstream.assert_clean();
    });
}

#[test]
fn where_no_call_of_the_turn_would_run_the_first_re_ask_is_the_final_answer_request() {
    let limits = [
        NONE_LEFT,
        "[policy.turn_limits]\ncalls = 1\n",
        "[policy.budget]\ntool_calls = 1\n",
        // Every tool is closed, by one policy or by several.
        "[policy.allow]\nonly = [\"other\"]\n",
        "[policy.allow]\nexcept = [\"search\"]\n[policy.turn_limits]\ncategories = { x = { tools = [\"fetch\"], calls = 1 } }\n\
         [policy.states]\nstart = \"a\"\nstate.a = { tools = [], final = true }\n",
    ];
    for policies in limits {
        in_both_forms(|form| {
            let upstream = Scripted::start(obedient);
            let program = Toolrein::before(&upstream, policies);
            let mut talk = Talk::new(form);
            let mut said = talk.ask(&program);
            let released = said.calls.len();
            if released > 0 {
                talk.add(&said);
                said = talk.ask(&program);
            }
            said.assert_coherent(form);
            assert_eq!(said.text, "This is what I know.");
            let requests = upstream.requests();
            assert_eq!(requests.len(), released + 2, "{policies}");
            assert_eq!(requests[released + 1].json()["tool_choice"], "none");
            upstream.assert_clean();
        });
    }
}

#[test]
fn a_tool_that_may_be_called_again_later_in_the_turn_leaves_the_re_asks() {
    let policies =
        format!("{CLOSED}[policy.rate_limit]\ntools = {{ fetch = {{ calls = 1, per = \"1h\" }} }}\n");
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("call_f", "fetch", "{}")])),
            _ => obedient(nth, request),
        });
        let program = Toolrein::before(&upstream, &policies);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        assert_eq!(said.calls.len(), 1);
        talk.add(&said);
        assert_eq!(talk.ask(&program).text, "This is what I know.");
        assert_eq!(upstream.requests().len(), 1 + 4, "one, two re-asks, one landing");
    });
}

#[test]
fn a_refused_landing_is_tried_once_more_without_tools_and_with_the_history_as_text() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            if request.json()["tool_choice"] == "none" {
                return Reply::error(
                    400,
                    "invalid_request_error",
                    "x",
                    "tool_choice none is not for this model",
                );
            }
            obedient(nth, request)
        });
        let program = Toolrein::before(&upstream, NONE_LEFT);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "This is what I know.");
        let last = upstream.requests().last().unwrap().json();
        assert!(last.get("tools").is_none() && last.get("tool_choice").is_none());
        let messages = last["messages"].as_array().unwrap();
        assert!(
            messages.iter().all(|message| message["role"] != "tool" && message.get("tool_calls").is_none())
        );
        upstream.assert_clean();
    });
}

#[test]
fn a_model_that_calls_to_the_end_gets_its_calls_dropped_and_an_honest_sentence_is_said() {
    in_both_forms(|form| {
        let upstream = Scripted::start(search);
        let program = Toolrein::before(&upstream, CLOSED);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert!(said.text.starts_with("I could not finish this"), "{}", said.text);
        assert_eq!((said.finishes[0].as_str(), said.calls.len()), ("stop", 0));
        assert_eq!(upstream.requests().len(), 4);
    });
}

#[test]
fn texts_of_several_replies_are_separated_by_a_blank_line() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let calls = Speech::calls(&[("a", "search", "{}")]);
                Reply::speech(request, &Speech { text: "Let me look.".into(), ..calls })
            }
            _ => text("No need.", request),
        });
        let program = Toolrein::before(&upstream, NONE_LEFT);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Let me look.\n\nNo need.");
    });
}

#[test]
fn a_re_ask_may_bring_calls_that_are_allowed() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => Reply::speech(request, &Speech::calls(&[("a", "search", "{}"), ("b", "search", "{}")])),
            _ => Reply::speech(request, &Speech::calls(&[("c", "fetch", "{\"u\":1}")])),
        });
        let settings = "[policy.rate_limit]\ntools = { search = { calls = 1, per = \"1h\" } }\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        assert_eq!(first.calls.len(), 1);
        talk.add(&first);
        let settings_again = talk.ask(&program);
        settings_again.assert_coherent(form);
        assert_eq!(settings_again.calls[0].0, "c");
        assert_eq!(settings_again.finishes, ["tool_calls"]);
    });
}

#[test]
fn a_re_ask_that_fails_upstream_is_reported_as_the_upstream_reported_it() {
    let fail = |nth: usize, request: &Recorded| match nth {
        0 => search(0, request),
        _ => {
            Reply::error(429, "rate_limit_error", "slow_down", "Too many requests").header("retry-after", "7")
        }
    };
    let upstream = Scripted::start(fail);
    let program = Toolrein::before(&upstream, NONE_LEFT);
    let whole = crate::support::client::post(&program.chat_url(), Talk::new(Form::Whole).body().to_string());
    assert_eq!((whole.status, whole.header("retry-after")), (429, Some("7")));
    assert_eq!(whole.json()["error"]["code"], "slow_down");
    let upstream = Scripted::start(fail);
    let program = Toolrein::before(&upstream, NONE_LEFT);
    let streamed =
        crate::support::client::post(&program.chat_url(), Talk::new(Form::Streamed).body().to_string());
    assert_eq!(streamed.status, 200, "the head was sent long before");
    let last = streamed.data().last().cloned().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["error"]["code"], "slow_down");
    assert!(streamed.cut, "and the stream does not end as if it were whole");
}

#[test]
fn clients_that_need_a_call_for_an_answer_keep_their_tools_and_get_it() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => search(nth, request),
            _ => Reply::speech(request, &Speech::calls(&[("z", "final_answer", "{\"a\":1}")])),
        });
        let program = Toolrein::before(&upstream, NONE_LEFT);
        let mut talk = Talk::new(form);
        talk.members["tools"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "function", "function": {"name": "final_answer"}}));
        talk.members["tool_choice"] = json!("required");
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.calls, [("z".into(), "final_answer".into(), "{\"a\":1}".into())]);
        assert_eq!(upstream.request(0).json()["tool_choice"], "required", "a forced choice stays");
        let by_name = json!({"type": "function", "function": {"name": "final_answer"}});
        assert_eq!(upstream.request(1).json()["tool_choice"], by_name, "and the answer is forced at the end");
        let shown = upstream.request(1).json()["messages"][2]["content"].to_string();
        assert!(shown.contains("To answer, call final_answer."), "{shown}");
    });
}

#[test]
fn a_forced_named_function_is_an_answer_over_any_budget() {
    let upstream = Scripted::start(search);
    let program = Toolrein::before(&upstream, NONE_LEFT);
    let mut talk = Talk::new(Form::Whole);
    talk.members["tool_choice"] = json!({"type": "function", "function": {"name": "search"}});
    let said = talk.ask(&program);
    assert_eq!(said.calls.len(), 1);
    assert_eq!(said.response.header("x-toolrein-actions"), None, "nothing was done to it");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn an_agent_that_never_stops_by_itself_is_brought_to_an_answer() {
    in_both_forms(|form| {
        let upstream = Scripted::start(obedient);
        let program = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 5\n");
        let mut talk = Talk::new(form);
        let mut last: Option<Said> = None;
        for _ in 0..20 {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            talk.add(&said);
            let ended = said.calls.is_empty();
            last = Some(said);
            if ended {
                break;
            }
        }
        assert_eq!(last.unwrap().text, "This is what I know.");
        assert_eq!(
            upstream.requests().len(),
            6 + 1,
            "five calls, one that is blocked, and the final answer at once"
        );
        upstream.assert_clean();
    });
}

/// A model whose final answer is this text, in pieces of `size` characters where it is streamed.
fn answering(answer: &'static str, size: usize) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync {
    move |nth, request| {
        if !wants_no_calls(request) {
            return search(nth, request);
        }
        if request.json()["stream"] != true {
            return text(answer, request);
        }
        let letters: Vec<char> = answer.chars().collect();
        let pieces = letters.chunks(size).map(|piece| piece.iter().collect::<String>());
        let choice = |delta: Value, finish: Value| {
            json!({"id": "r9", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        };
        let mut chunks = vec![choice(json!({"role": "assistant"}), Value::Null)];
        chunks.extend(pieces.map(|piece| choice(json!({"content": piece}), Value::Null)));
        chunks.push(choice(json!({}), json!("stop")));
        Reply::events(&chunks)
    }
}

#[test]
fn calls_that_a_final_answer_holds_as_text_never_reach_the_client() {
    in_both_forms(|form| {
        for (answer, expected) in [
            (
                "I know this.\n\n<tool_call>\n{\"name\": \"search\", \"arguments\": {}}\n</tool_call>",
                "I know this.",
            ),
            ("[TOOL_CALLS]search[ARGS]{\"q\": 1}", "I could not finish this"),
            ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search", "I could not finish this"),
            ("The tag `<tool_call>` opens a call, <tool", "The tag `<tool_call>` opens a call, <tool"),
        ] {
            for size in [1, 3, 1_000] {
                let upstream = Scripted::start(answering(answer, size));
                let program = Toolrein::before(&upstream, CLOSED);
                let mut talk = Talk::new(form);
                let said = talk.ask(&program);
                said.assert_coherent(form);
                assert!(said.text.starts_with(expected), "{answer}: {}", said.text);
                assert!(!said.text.contains("search") && !said.text.contains('｜'), "{}", said.text);
                // What the client got is what it sends back, so the hidden exchanges are found again.
                talk.add(&said);
                talk.say("And?");
                talk.ask(&program);
                let sent = upstream.request(4).json()["messages"].as_array().unwrap().len();
                assert_eq!(sent, 1 + 3 * 2 + 2, "{answer}");
                upstream.assert_clean();
            }
        }
    });
}

/// Calls of the declared tools in forms of models and prompts that no engine parses where no call is asked for.
const CALLS_AS_TEXT: [&str; 12] = [
    "```json\n[{\"name\": \"search\", \"arguments\": {\"q\": \"news\"}}]\n```",
    "```tool_code\nprint(search(q=\"news\"))\n```",
    "```tool_call\n{'name': 'search', 'arguments': {}}\n```",
    ">>>search\n{\"q\": \"news\"}",
    "<tool_use>\n<name>search</name>\n<arguments>{}</arguments>\n</tool_use>",
    "<tool name=\"search\" q=\"news\"/>",
    "[TOOL_REQUEST]\n{\"name\": \"search\", \"arguments\": {}}\n[END_TOOL_REQUEST]",
    "Action: search\nAction Input: {\"q\": \"news\"}",
    "**Tool Call:**\n```json\n{\"name\": \"search\", \"arguments\": {}}\n```",
    "{\"arguments\": {\"q\": \"news\"}, \"name\": \"search\"}",
    "[search(q='it\\'s ]'), fetch()]",
    "<json>{\"name\": \"fetch\", \"arguments\": {}}</json>",
];

/// Answers that show code, JSON and calls of others.
const SHOWN: [&str; 6] = [
    "Send this:\n```json\n{\"name\": \"deploy\", \"arguments\": {\"to\": \"prod\"}}\n```\nThat is all.",
    "```python\nresult = search(q=\"news\")\nprint(result)\n```",
    "{\"name\": \"Ann\", \"arguments\": {\"age\": 7}}",
    "{\"name\": \"search\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}",
    "<ul>\n<li>search</li>\n</ul>",
    "- search: looks it up\n- `search(q=1)` is a call of it",
];

#[test]
fn a_call_of_a_declared_tool_is_taken_out_of_a_final_answer_in_whatever_form_it_is_written() {
    in_both_forms(|form| {
        for (answer, size) in CALLS_AS_TEXT.iter().zip([1, 4, 1_000].iter().cycle()) {
            let upstream = Scripted::start(answering(answer, *size));
            let program = Toolrein::before(&upstream, CLOSED);
            let said = Talk::new(form).ask(&program);
            said.assert_coherent(form);
            assert!(said.text.trim().starts_with("I could not finish this"), "{answer}: {}", said.text);
            let bytes = said.response.text();
            assert!(!bytes.contains("search") && !bytes.contains("fetch"), "{answer}: {bytes}");
        }
    });
}

/// Calls of `search`, which has the parameter `q`, as headers, elements and code.
const WITH_PARAMETERS: [&str; 7] = [
    "to=functions.search json\n{\"q\": \"news\"}",
    "commentary to=search code\n{\"q\": \"news\"}",
    "<search>\n<q>news</q>\n</search>",
    "<search>{\"q\": \"news\"}</search>",
    "```ts\nawait functions.search({q: \"news\"})\n```",
    "```python\nsearch(q=\"news\")\n```",
    "```xml\n<search>\n<q>news</q>\n</search>\n```",
];

/// Answers that declare or explain the tool.
const ABOUT_TOOLS: [&str; 5] = [
    "```xml\n<function name=\"search\"><doc>Looks it up</doc></function>\n```",
    "<function name=\"search\"><doc>Looks it up</doc></function>",
    "<search>\n<form>news</form>\n</search>",
    "```python\nsearch(q=\"news\")\n```\nThis line looks it up.",
    "The header is to=functions.search, and {\"q\": 1} follows.",
];

#[test]
fn a_call_that_names_parameters_of_a_declared_tool_is_taken_out_and_a_description_stays() {
    in_both_forms(|form| {
        let ask = |answer: &'static str, size: usize| {
            let upstream = Scripted::start(answering(answer, size));
            let program = Toolrein::before(&upstream, CLOSED);
            let mut talk = Talk::new(form);
            talk.members["tools"][0]["function"] = json!({"name": "search", "parameters":
                {"type": "object", "properties": {"q": {"type": "string"}}}});
            talk.ask(&program).text
        };
        for (answer, size) in WITH_PARAMETERS.iter().zip([1, 4, 1_000].iter().cycle()) {
            let said = ask(answer, *size);
            assert!(said.trim().starts_with("I could not finish this"), "{answer}: {said}");
        }
        for (answer, size) in ABOUT_TOOLS.iter().zip([1, 4, 1_000].iter().cycle()) {
            assert_eq!(ask(answer, *size), *answer);
        }
    });
}

#[test]
fn a_final_answer_that_shows_code_or_json_is_left_alone() {
    in_both_forms(|form| {
        for (answer, size) in SHOWN.iter().zip([1, 4, 1_000].iter().cycle()) {
            let upstream = Scripted::start(answering(answer, *size));
            let program = Toolrein::before(&upstream, CLOSED);
            assert_eq!(Talk::new(form).ask(&program).text, *answer);
        }
    });
}

/// A model that calls `search` unless a tool is forced by name, which an engine enforces.
fn stubborn(nth: usize, request: &Recorded) -> Reply {
    match request.json()["tool_choice"]["function"]["name"].as_str() {
        Some(name) => Reply::speech(request, &Speech::calls(&[("z", name, "{\"answer\":1}")])),
        None => search(nth, request),
    }
}

#[test]
fn a_stubborn_model_ends_in_the_call_that_is_the_answer_in_as_many_requests_as_others() {
    in_both_forms(|form| {
        for (answer, choice) in
            [("final_answer", json!("required")), ("submit", json!("auto")), ("final_result", Value::Null)]
        {
            let upstream = Scripted::start(stubborn);
            let program = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 3\n");
            let mut talk = Talk::new(form);
            let tool = json!({"type": "function", "function": {"name": answer}});
            talk.members["tools"].as_array_mut().unwrap().push(tool);
            if !choice.is_null() {
                talk.members["tool_choice"] = choice;
            }
            for nth in 0..25 {
                let said = talk.ask(&program);
                said.assert_coherent(form);
                if said.calls[0].1 == answer {
                    assert_eq!((nth, said.calls.len()), (3, 1));
                    break;
                }
                talk.add(&said);
            }
            assert_eq!(
                upstream.requests().len(),
                5,
                "three calls, one that is blocked, and the answer at once"
            );
            let last = upstream.request(4).json();
            assert_eq!(last["tool_choice"], json!({"type": "function", "function": {"name": answer}}));
            assert_eq!(last["tools"].as_array().unwrap().len(), 3);
            upstream.assert_clean();
        }
    });
}

#[test]
fn where_the_forced_answer_is_refused_the_final_answer_is_asked_for_without_tools() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let body = request.json();
            match (body["tool_choice"].is_object(), body.get("tools")) {
                (true, _) => {
                    Reply::error(400, "invalid_request_error", "x", "tool_choice by name is not supported")
                }
                (_, None) => text("This is what I know.", request),
                _ => search(nth, request),
            }
        });
        let program = Toolrein::before(&upstream, NONE_LEFT);
        let mut talk = Talk::new(form);
        let tool = json!({"type": "function", "function": {"name": "final_answer"}});
        talk.members["tools"].as_array_mut().unwrap().push(tool);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "This is what I know.");
        assert_eq!(upstream.requests().len(), 3);
    });
}

#[test]
fn a_re_ask_that_is_answered_in_the_other_form_is_read_all_the_same() {
    let other_form = |reply: &Speech, request: &Recorded| match request.json()["stream"] == true {
        true => Reply::json(200, &reply.whole()),
        false => Reply::events(&reply.chunks(true)),
    };
    in_both_forms(|form| {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => search(0, request),
            1 => other_form(&Speech::calls(&[("call_1", "search", "{\"q\":1}")]), request),
            _ => other_form(&Speech::text("This is what I know."), request),
        });
        let program = Toolrein::before(&upstream, CLOSED);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.finishes[0].as_str()), ("This is what I know.", "stop"));
        assert_eq!(said.usage["total_tokens"], 25 * 3, "all of them were billed");
        upstream.assert_clean();
    });
}
