//! `budget`: limits that the history does not show, and the notices about them.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Said, Talk, in_both_forms, search, text};
use serde_json::Value;
use std::time::Duration;

/// Each scripted reply is billed with so many tokens.
const BILLED: u64 = 25;

fn wants_no_calls(request: &Recorded) -> bool {
    let body = request.json();
    body["tool_choice"] == "none" || body.get("tools").is_none()
}

/// A model that calls a tool for as long as calls are allowed.
fn stubborn(nth: usize, request: &Recorded) -> Reply {
    if wants_no_calls(request) { text("This is what I know.", request) } else { search(nth, request) }
}

/// The same model, with random ids as providers give them.
fn with_random_ids(nth: usize, request: &Recorded) -> Reply {
    if wants_no_calls(request) {
        return text("This is what I know.", request);
    }
    let id = format!("call_Ae2Y4fDJmxZkQhWq8LbTz{nth:03}");
    Reply::speech(request, &Speech::calls(&[(&id, "search", "{\"q\":1}")]))
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

/// The notices of the budget in a request.
fn notices(request: &Recorded) -> Vec<String> {
    let texts = messages(request).into_iter().filter_map(|it| it["content"].as_str().map(str::to_owned));
    texts.filter(|text| text.contains("[toolrein] Budget")).collect()
}

/// Continues the conversation until the model answers in text; returns its last reply.
fn until_answered(talk: &mut Talk, program: &Toolrein) -> Said {
    for _ in 0..20 {
        let said = talk.ask(program);
        said.assert_coherent(talk.form);
        if said.calls.is_empty() {
            return said;
        }
        talk.add(&said);
    }
    panic!("the model never answers");
}

/// Asserts that each request begins with everything that the previous one sent.
fn assert_prefixes(upstream: &Scripted) {
    let sent: Vec<Vec<Value>> = upstream.requests().iter().map(messages).collect();
    for (nth, pair) in sent.windows(2).enumerate() {
        assert_eq!(pair[1][..pair[0].len()], pair[0], "request {}", nth + 1);
    }
}

#[test]
fn with_a_limit_of_six_a_stubborn_model_is_asked_eight_times() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let program = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 6\n");
        let said = until_answered(&mut Talk::new(form), &program);
        assert_eq!(said.text, "This is what I know.");
        assert_eq!(upstream.requests().len(), 8, "six calls, a blocked one, the final answer");
        assert_prefixes(&upstream);
        upstream.assert_clean();
    });
}

#[test]
fn billed_tokens_are_announced_once_a_threshold_and_end_in_the_final_answer() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let settings = format!("[policy.budget]\ntool_calls = 0\nbilled_tokens = {}\n", 4 * BILLED);
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(form);
        let said = until_answered(&mut talk, &program);
        assert_eq!(said.text, "This is what I know.");
        let requests = upstream.requests();
        assert_eq!(requests.len(), 5, "four calls, the final answer");
        let shown: Vec<usize> = requests.iter().map(|request| notices(request).len()).collect();
        assert_eq!(shown, [0, 0, 1, 2, 3]);
        let last = notices(&requests[4]);
        assert_eq!(
            last[0],
            "[toolrein] Budget: 50 of 100 billed tokens of this conversation used, ~50% left. Use the calls that are \
             left for what matters most."
        );
        assert!(
            last[1].contains("75 of 100")
                && last[1].ends_with("Answer now with what you have, or ask the user.")
        );
        assert!(last[2].contains("100 of 100"), "the model reads why it gets no calls: {}", last[2]);
        assert_eq!(requests[4].json()["tool_choice"], "none");
        assert_prefixes(&upstream);
        upstream.assert_clean();
    });
}

#[test]
fn every_result_is_followed_by_what_is_left_and_stays_where_it_is() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let settings = format!(
            "[policy.budget]\ntool_calls = 0\nbilled_tokens = {}\nnotify = \"every_result\"\nnotify_at = [0.3]\n",
            8 * BILLED
        );
        let program = Toolrein::before(&upstream, &settings);
        until_answered(&mut Talk::new(form), &program);
        let shown: Vec<usize> = upstream.requests().iter().map(|request| notices(request).len()).collect();
        assert_eq!(shown, [0, 0, 0, 1, 2, 3, 4, 5, 6], "from the third reply on");
        assert_prefixes(&upstream);
        upstream.assert_clean();
    });
}

/// Continues a conversation whose client keeps only the last call and its result.
fn trimmed(form: Form, model: fn(usize, &Recorded) -> Reply, id: Option<&str>) {
    let upstream = Scripted::start(model);
    let settings = format!("[policy.budget]\ntool_calls = 0\nbilled_tokens = {}\n", 4 * BILLED);
    let program = Toolrein::before(&upstream, &settings);
    let mut talk = Talk::new(form);
    for nth in 0..5 {
        let mut request = Request::post(&program.chat_url(), talk.body().to_string());
        if let Some(id) = id {
            request = request.header("x-toolrein-conversation", id);
        }
        let said = Said::read(request.send(), form);
        assert_eq!(said.calls.is_empty(), nth == 4, "request {nth} {id:?}: {}", said.text);
        talk.add(&said);
        talk.messages = talk.messages.split_off(talk.messages.len().saturating_sub(2));
    }
    upstream.assert_clean();
}

#[test]
fn a_client_that_trims_its_history_does_not_reset_the_sums() {
    in_both_forms(|form| {
        trimmed(form, stubborn, Some("mine"));
        trimmed(form, with_random_ids, None);
    });
}

#[test]
fn conversations_that_begin_alike_have_their_own_sums() {
    in_both_forms(|form| {
        let upstream = Scripted::start(with_random_ids);
        let settings = format!("[policy.budget]\ntool_calls = 0\nbilled_tokens = {}\n", 2 * BILLED);
        let program = Toolrein::before(&upstream, &settings);
        let mut talks = [Talk::new(form), Talk::new(form), Talk::new(form)];
        for nth in 0..3 {
            for talk in &mut talks {
                let said = talk.ask(&program);
                assert_eq!(said.calls.is_empty(), nth == 2, "request {nth}");
                talk.add(&said);
            }
        }
        upstream.assert_clean();
    });
}

#[test]
fn a_request_that_is_sent_again_is_billed_again() {
    in_both_forms(|form| {
        let upstream = Scripted::start(with_random_ids);
        let settings = format!("[policy.budget]\ntool_calls = 0\nbilled_tokens = {}\n", 4 * BILLED);
        let program = Toolrein::before(&upstream, &settings);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        talk.ask(&program);
        // The client lost the answer. Its second request is announced as the third one.
        let said = talk.ask(&program);
        let shown = notices(&upstream.request(2));
        assert!(shown[0].contains("50 of 100 billed tokens"), "{shown:?}");
        // Once more: the notice is at the same place, with the same numbers.
        talk.ask(&program);
        assert_eq!(messages(&upstream.request(3)), messages(&upstream.request(2)));
        talk.add(&said);
        talk.ask(&program);
        assert!(
            notices(&upstream.request(4))[1].contains("75 of 100"),
            "as of the reply that the client has"
        );
        upstream.assert_clean();
    });
}

#[test]
fn a_request_that_is_sent_again_gets_the_same_call_once_more_and_any_other_call_counts() {
    in_both_forms(|form| {
        for (differ, asked, expected) in [(true, 6, 2), (false, 3, 3)] {
            let upstream = Scripted::start(move |nth, request| {
                let body = request.json();
                if body["messages"].to_string().contains("BUDGET") || body["tool_choice"] == "none" {
                    return text("Enough.", request);
                }
                let arguments = format!("{{\"q\":{}}}", if differ { nth } else { 0 });
                Reply::speech(request, &Speech::calls(&[(&format!("call_{nth}"), "search", &arguments)]))
            });
            let settings = "[policy.budget]\ntool_calls = 0\nday = { tool_calls = 2 }\n";
            let program = Toolrein::before(&upstream, settings);
            let given: usize = (0..asked).map(|_| Talk::new(form).ask(&program).calls.len()).sum();
            assert_eq!(given, expected, "{differ}");
            let mut other = Talk::new(form);
            other.messages[0]["content"] = "Something else".into();
            assert_eq!(other.ask(&program).calls.len(), usize::from(!differ), "three tries count once");
        }
    });
}

#[test]
fn money_is_limited_by_known_prices_and_models_without_one_are_reported() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        // A reply of gpt-4o costs 20 times $2.50 and 5 times $10, a million each: $0.0001.
        let settings = "[policy.budget]\ntool_calls = 0\nspend_usd = 0.0003\n";
        let program = Toolrein::before(&upstream, settings);
        until_answered(&mut Talk::new(form), &program);
        let requests = upstream.requests();
        assert_eq!(requests.len(), 4, "three calls, the final answer");
        assert!(notices(&requests[2])[0].contains("$0.0002 of $0.0003 spent in this conversation"));
        program.wait_for_metric("toolrein_cost_usd_total{model=\"gpt-4o\"}", 0.0004);
        let mut talk = Talk::new(form);
        talk.members["model"] = "nobody-knows".into();
        for _ in 0..6 {
            let said = talk.ask(&program);
            assert_eq!(said.calls.len(), 1);
            talk.add(&said);
        }
        program.wait_for_metric("toolrein_actions_total{policy=\"budget\",action=\"unpriced\"}", 6.0);
        upstream.assert_clean();
    });
}

#[test]
fn a_price_of_ones_own_takes_precedence() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let settings = "[model.\"gpt-4*\"]\nprice = { input = 100.0, output = 200 }\n\
                        [policy.budget]\ntool_calls = 0\nspend_usd = 0.003\n";
        let program = Toolrein::before(&upstream, settings);
        until_answered(&mut Talk::new(form), &program);
        assert_eq!(upstream.requests().len(), 2, "the first reply used it up");
        upstream.assert_clean();
    });
}

#[test]
fn a_callers_day_is_limited_over_all_conversations_and_others_have_their_own() {
    in_both_forms(|form| {
        let upstream = Scripted::start(with_random_ids);
        let program =
            Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 0\nday = { tool_calls = 3 }\n");
        let ask = |talk: &Talk, key: &str| {
            let request = Request::new("POST", &program.chat_url(), talk.body().to_string());
            let request = request.header("content-type", "application/json");
            Said::read(request.header("authorization", &format!("Bearer {key}")).send(), form)
        };
        for nth in 0..5 {
            let mut talk = Talk::new(form);
            talk.say(&format!("It is {nth} o'clock."));
            let said = ask(&talk, "sk-one");
            assert_eq!(said.calls.is_empty(), nth > 2, "conversation {nth}");
        }
        assert_eq!(ask(&Talk::new(form), "sk-other").calls.len(), 1);
        upstream.assert_clean();
    });
}

#[test]
fn a_used_up_budget_of_the_account_can_refuse_the_request() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let settings =
            "[policy.budget]\ntool_calls = 0\nexhausted = \"reject\"\nconversation = { requests = 2 }\n";
        let program = Toolrein::before(&upstream, settings);
        let mut talk = Talk::new(form);
        for _ in 0..2 {
            let said = talk.ask(&program);
            talk.add(&said);
        }
        let refused = talk.ask(&program).response;
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_str()),
            (400, Some("budget_exceeded"))
        );
        assert!(refused.text().contains("2 of 2 model requests of this conversation used"));
        assert_eq!(upstream.requests().len(), 2);
    });
}

const ASK: &str = "[policy.confirm]\n[policy.budget]\ntool_calls = 1\nexhausted = \"ask\"\nextension = 2\n";

#[test]
fn an_approval_buys_an_extension_once() {
    in_both_forms(|form| {
        let upstream = Scripted::start(with_random_ids);
        let program = Toolrein::before(&upstream, ASK);
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        assert_eq!(first.calls.len(), 1);
        talk.add(&first);
        for (used, limit) in [(1, "1 tool call"), (3, "3 tool calls")] {
            let asked = talk.ask(&program);
            asked.assert_coherent(form);
            assert!(asked.calls.is_empty());
            let line = format!(
                "The budget is used up: {used} of {limit} of this turn used. Your approval adds 2 more calls."
            );
            assert!(asked.text.starts_with(&line), "{}", asked.text);
            talk.add(&asked);
            talk.say("yes");
            // The call that was shown, and one more: the extension is of two.
            for nth in 0..2 {
                let said = talk.ask(&program);
                assert_eq!(said.calls.len(), 1, "call {nth} after {used}: {}", said.text);
                talk.add(&said);
            }
        }
        upstream.assert_clean();
    });
}

#[test]
fn without_an_approval_nothing_is_extended() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request: &Recorded| {
            let is_declined = messages(request).iter().any(|message| message["content"] == "no");
            if is_declined { text("Then not.", request) } else { with_random_ids(nth, request) }
        });
        let program = Toolrein::before(&upstream, ASK);
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        talk.add(&first);
        let asked = talk.ask(&program);
        talk.add(&asked);
        talk.say("no");
        let declined = talk.ask(&program);
        assert_eq!(declined.text, "Then not.");
        upstream.assert_clean();
    });
}

#[test]
fn a_turn_ends_when_its_time_is_used_up_and_the_next_one_has_its_own() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let program = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 0\ntime = \"700ms\"\n");
        let mut talk = Talk::new(form);
        let first = talk.ask(&program);
        assert_eq!(first.calls.len(), 1, "within the time");
        talk.add(&first);
        // The program's tool takes longer than the turn may.
        std::thread::sleep(Duration::from_millis(800));
        let late = talk.ask(&program);
        assert!(late.calls.is_empty() && !late.text.is_empty(), "{}", late.text);
        let notice = &notices(upstream.requests().last().unwrap())[0];
        assert!(notice.contains("s of 0.7s of this turn's time used"), "{notice}");
        talk.add(&late);
        talk.say("And now?");
        let next = talk.ask(&program);
        assert_eq!(next.calls.len(), 1, "the next turn: {}", next.text);
        upstream.assert_clean();
    });
}

#[test]
fn texts_of_the_operators_own_are_used() {
    in_both_forms(|form| {
        let upstream = Scripted::start(stubborn);
        let settings = "[policy.budget]\ntool_calls = 2\n[policy.budget.texts]\nnotice = \"Noch {left}%: {used}. {advice}\"\n\
                        turn_tool_calls = \"{used}/{limit} Aufrufe\"\nadvice = \"Weiter.\"\nblocked = \"Schluss: {used}.\"\n";
        let program = Toolrein::before(&upstream, settings);
        until_answered(&mut Talk::new(form), &program);
        let last = messages(&upstream.request(3)).iter().map(Value::to_string).collect::<String>();
        assert!(last.contains("Noch 50%: 1/2 Aufrufe. Weiter."), "{last}");
        assert!(last.contains("Schluss: 2/2 Aufrufe."), "{last}");
        upstream.assert_clean();
    });
}
