//! `turn_limits`: calls of a turn, at once and by category.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit::{Talk as Responses, tool};
use crate::support::scripted::Scripted;
use crate::support::talk::{Talk, in_both_forms, search, text};
use serde_json::{Value, json};

#[test]
fn of_many_calls_at_once_the_first_run_and_the_others_are_made_later() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 => {
                let calls =
                    [("a", "search", "{\"q\":1}"), ("b", "search", "{\"q\":2}"), ("c", "fetch", "{\"u\":1}")];
                Reply::speech(request, &Speech::calls(&calls))
            }
            1 => Reply::speech(request, &Speech::calls(&[("d", "fetch", "{\"u\":1}")])),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.turn_limits]\nparallel = 2\n");
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        first.assert_coherent(form);
        let ids: Vec<&str> = first.calls.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        talk.add(&first);
        let second = talk.ask(&program);
        second.assert_coherent(form);
        assert_eq!(second.calls[0].0, "d", "made later, it runs");
        let messages = upstream.request(1).json()["messages"].clone();
        let envelope: Value = serde_json::from_str(messages[2]["content"].as_str().unwrap()).unwrap();
        assert_eq!(envelope["error"]["type"], "BUDGET_EXCEEDED");
        assert_eq!((&envelope["error"]["retryable"], &envelope["error"]["limit"]), (&true.into(), &2.into()));
        upstream.assert_clean();
    });
}

#[test]
fn a_used_up_category_leaves_the_other_tools_open_and_a_new_turn_has_it_back() {
    used_up_and_back(
        "categories = { retrieval = { tools = [\"sea*\"], calls = 1 } }",
        "1 of 1 call of retrieval tools",
    );
}

#[test]
fn a_used_up_tool_leaves_the_others_open_and_a_new_turn_has_it_back() {
    used_up_and_back("tools = { \"sea*\" = 1 }", "1 of 1 call of search in this turn");
}

/// One search, a second one that is blocked, another tool, and a new turn with a search.
fn used_up_and_back(limit: &str, shown_as: &str) {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 1 | 4 => search(nth, request),
            2 => Reply::speech(request, &Speech::calls(&[("f", "fetch", "{}")])),
            _ => text("Here.", request),
        });
        let program = Toolrein::before(&upstream, &format!("[policy.turn_limits]\n{limit}\n"));
        let mut talk = Talk::new(form);
        for expected in ["call_0", "f", ""] {
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!(said.calls.first().map_or("", |(id, ..)| id), expected);
            talk.add(&said);
        }
        talk.say("And now?");
        assert_eq!(talk.ask(&program).calls[0].0, "call_4");
        let shown = upstream.request(1).json()["messages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(shown["role"], "system");
        assert!(shown["content"].as_str().unwrap().contains(shown_as), "{shown}");
        program.wait_for_metric("toolrein_actions_total{policy=\"turn_limits\",action=\"blocked\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn on_the_responses_api_a_used_up_tool_leaves_the_others_open() {
    for stream in [false, true] {
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 1 => Output::calls(nth, &[(&format!("c{nth}"), "search", "{}")]).reply(request),
            _ => Output::calls(nth, &[("f", "fetch", "{}")]).reply(request),
        });
        let program = Toolrein::before(&upstream, "[policy.turn_limits]\ntools = { \"sea*\" = 1 }\n");
        let mut talk = Responses::new(stream).with_tools(json!([tool("search"), tool("fetch")]));
        let first = talk.ask(&program);
        assert_eq!(first.kinds(), ["function:c0"]);
        assert_eq!(talk.go_on(&first).ask(&program).kinds(), ["function:f"]);
        let shown = upstream.requests().last().unwrap().json()["input"].to_string();
        assert!(shown.contains("1 of 1 call of search in this turn"), "{shown}");
        program.wait_for_metric("toolrein_actions_total{policy=\"turn_limits\",action=\"blocked\"}", 1.0);
    }
}
