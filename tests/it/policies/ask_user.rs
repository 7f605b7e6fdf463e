//! `ask_user`: the model's question reaches the user as the assistant's own words, in either protocol and form, and the
//! upstream reads how it came about.

use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

const SETTINGS: &str = "[policy.ask_user]\ntool = true\n";
const ASK: &str = "ask_for_clarification";
const WHICH: &str = r#"{"question":"Which Anna do you mean?","context":"There are two."}"#;
const SHOWN: &str = "There are two.\n\nWhich Anna do you mean?";

/// The upstream says `text` and makes these calls: (id, tool, arguments).
fn says(request: &Recorded, text: &str, calls: &[(&str, &str, &str)]) -> Reply {
    Reply::speech(request, &Speech { text: text.into(), ..Speech::calls(calls) })
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

fn roles(request: &Recorded) -> Vec<String> {
    messages(request).iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect()
}

/// The error that the model reads in a synthetic result.
fn error(message: &Value) -> Value {
    let envelope: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
    envelope["error"].clone()
}

#[test]
fn the_question_ends_the_turn_and_the_answer_goes_on_as_usual() {
    in_both_forms(|form| {
        for said_before in ["", "I looked her up."] {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => says(request, said_before, &[("q1", ASK, WHICH)]),
                _ => text("She is in room 4.", request),
            });
            let program = Toolrein::before(&upstream, SETTINGS);
            let mut talk = Talk::new(form);
            let said = talk.ask(&program);
            said.assert_coherent(form);
            let blank = if said_before.is_empty() { "" } else { "\n\n" };
            assert_eq!(said.text, format!("{said_before}{blank}{SHOWN}"), "{}", said.response.text());
            assert_eq!((said.calls.len(), said.finishes.as_slice()), (0, ["stop".to_owned()].as_slice()));
            assert!(said.usage["total_tokens"].as_u64() > Some(0), "{}", said.usage);
            assert!(!said.response.text().contains(ASK), "{}", said.response.text());
            assert_eq!(upstream.requests().len(), 1);
            program.wait_for_metric("toolrein_actions_total{policy=\"ask_user\",action=\"asked\"}", 1.0);

            talk.add(&said);
            talk.say("The one in Kyoto.");
            let answer = talk.ask(&program);
            answer.assert_coherent(form);
            assert_eq!(answer.text, "She is in room 4.");
            let sent = upstream.request(1);
            assert_eq!(roles(&sent), ["user", "assistant", "tool", "assistant", "user"]);
            let sent = messages(&sent);
            assert_eq!(sent[1]["tool_calls"][0]["function"]["name"], ASK);
            assert_eq!(
                sent[2]["content"],
                "[toolrein: the user is asked; their answer is the next user message]"
            );
            assert_eq!(
                (&sent[3]["content"], &sent[4]["content"]),
                (&json!(said.text), &json!("The one in Kyoto."))
            );
            let tools = |nth: usize| upstream.request(nth).json()["tools"].clone();
            assert_eq!((tools(0).as_array().unwrap().len(), tools(0)), (3, tools(1)));
            upstream.assert_clean();
        }
    });
}

#[test]
fn other_calls_of_the_reply_run_first_and_the_model_reads_why() {
    in_both_forms(|form| {
        for calls in
            [[("q1", ASK, WHICH), ("s1", "search", "{}")], [("s1", "search", "{}"), ("q1", ASK, WHICH)]]
        {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => says(request, "", &calls),
                1 => says(request, "", &[("q2", ASK, WHICH)]),
                _ => text("Fine.", request),
            });
            let program = Toolrein::before(&upstream, SETTINGS);
            let mut talk = Talk::new(form);
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!((said.text.as_str(), said.calls.len(), said.calls[0].1.as_str()), ("", 1, "search"));
            assert_eq!(said.finishes, ["tool_calls"]);
            talk.add(&said);
            let said = talk.ask(&program);
            said.assert_coherent(form);
            assert_eq!((said.text.as_str(), said.calls.len()), (SHOWN, 0), "it asks again, and alone");
            let sent = messages(&upstream.request(1));
            assert_eq!(sent[1]["tool_calls"][0]["function"]["name"], ASK);
            assert_eq!(error(&sent[2])["type"], "CLARIFICATION");
            assert!(
                error(&sent[2])["message"]
                    .as_str()
                    .unwrap()
                    .contains("other calls of the same reply run first")
            );
            upstream.assert_clean();
        }
    });
}

#[test]
fn a_question_beside_calls_that_are_all_blocked_is_put() {
    in_both_forms(|form| {
        let calls = [
            ("s1", "search", "{}"),
            ("q1", ASK, WHICH),
            ("q2", ASK, "{\"question\":\"And?\",\"context\":\"\"}"),
        ];
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => says(request, "", &calls),
            _ => text("Fine.", request),
        });
        let program =
            Toolrein::before(&upstream, &format!("{SETTINGS}[policy.allow]\nexcept = [\"search\"]\n"));
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len(), upstream.requests().len()), (SHOWN, 0, 1));
        talk.add(&said);
        talk.say("The first.");
        talk.ask(&program).assert_coherent(form);
        let sent = messages(&upstream.request(1));
        assert_eq!(
            roles(&upstream.request(1)),
            ["user", "assistant", "tool", "tool", "tool", "assistant", "user"]
        );
        assert_eq!(error(&sent[2])["type"], "MODE_RESTRICTED");
        assert!(sent[3]["content"].as_str().unwrap().starts_with("[toolrein: the user is asked"));
        assert!(error(&sent[4])["message"].as_str().unwrap().contains("one question at a time"));
        upstream.assert_clean();
    });
}

#[test]
fn a_question_that_cannot_be_put_goes_back_to_the_model() {
    in_both_forms(|form| {
        for arguments in [
            "{}",
            "{\"question\":\"  \",\"context\":\"x\"}",
            "{\"question\":\"Which one?\"}",
            "{\"context\":\"There are two.\"}",
            "Which one?",
            "{\"question\":",
        ] {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => says(request, "", &[("q1", ASK, arguments)]),
                _ => says(request, "", &[("q2", ASK, WHICH)]),
            });
            let program = Toolrein::before(&upstream, SETTINGS);
            let said = Talk::new(form).ask(&program);
            said.assert_coherent(form);
            assert_eq!((said.text.as_str(), said.calls.len()), (SHOWN, 0), "{}", said.response.text());
            assert_eq!(upstream.requests().len(), 2);
            let sent = messages(&upstream.request(1));
            assert_eq!(error(&sent[2])["type"], "VALIDATION");
            upstream.assert_clean();
        }
    });
}

#[test]
fn a_question_cut_off_by_the_length_limit_is_hidden_and_the_finish_reason_shown() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let speech = Speech::calls(&[("q1", ASK, "{\"question\":\"Which An")]);
            let speech = Speech { text: "I looked.".into(), ..speech };
            if request.json()["stream"] != true {
                let mut whole = speech.whole();
                whole["choices"][0]["finish_reason"] = json!("length");
                return Reply::json(200, &whole);
            }
            let mut chunks = speech.chunks(true);
            let finish = chunks.len() - 2;
            chunks[finish]["choices"][0]["finish_reason"] = json!("length");
            Reply::events(&chunks)
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("I looked.", 0), "{}", said.response.text());
        assert_eq!((said.finishes, upstream.requests().len()), (vec!["length".to_owned()], 1));
    });
}

#[test]
fn a_second_question_waits_for_the_user() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match nth {
            0 | 1 | 3 => says(request, "", &[(&format!("q{nth}"), ASK, WHICH)]),
            _ => text("Both: rooms 4 and 5.", request),
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        // No user in between: some programs just go on.
        talk.messages.push(json!({"role": "system", "content": "Go on."}));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("Both: rooms 4 and 5.", 0));
        let sent = messages(&upstream.request(2));
        assert!(
            error(sent.last().unwrap())["message"].as_str().unwrap().contains("Go on with what you have")
        );
        talk.add(&said);
        talk.say("Why?");
        assert_eq!(talk.ask(&program).text, SHOWN, "the user has spoken");
        upstream.assert_clean();
    });
}

#[test]
fn each_of_several_choices_asks_its_own_question() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let speeches = [
                Speech {
                    text: "Hm.".into(),
                    ..Speech::calls(&[("q1", ASK, r#"{"question":"One?","context":""}"#)])
                },
                Speech::calls(&[("q2", ASK, r#"{"question":"Two?","context":""}"#)]),
            ];
            if request.json()["stream"] == true {
                let mut chunks: Vec<Value> = Vec::new();
                for (index, speech) in speeches.iter().enumerate() {
                    chunks.extend(speech.chunks(false).into_iter().map(|mut chunk| {
                        chunk["choices"][0]["index"] = json!(index);
                        chunk
                    }));
                }
                return Reply::events(&chunks);
            }
            let mut whole = speeches[0].whole();
            let mut second = speeches[1].whole()["choices"][0].clone();
            second["index"] = json!(1);
            whole["choices"].as_array_mut().unwrap().push(second);
            Reply::json(200, &whole)
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let mut talk = Talk::new(form);
        talk.members["n"] = json!(2);
        let response = Request::post(&program.chat_url(), talk.body().to_string()).send();
        assert_eq!(response.status, 200);
        let (mut texts, mut finishes) = (vec![String::new(); 2], vec![Vec::new(); 2]);
        let replies = if form == Form::Streamed { response.chunks() } else { vec![response.json()] };
        for choice in replies.iter().filter_map(|reply| reply["choices"].as_array()).flatten() {
            let at = choice["index"].as_u64().unwrap() as usize;
            let said = if form == Form::Streamed { &choice["delta"] } else { &choice["message"] };
            assert!(said["tool_calls"].is_null(), "{}", response.text());
            texts[at] += said["content"].as_str().unwrap_or_default();
            finishes[at].extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
        assert_eq!((texts[0].as_str(), texts[1].as_str()), ("Hm.\n\nOne?", "Two?"));
        assert_eq!(finishes, [["stop"], ["stop"]]);
        assert_eq!(upstream.requests().len(), 1);
        upstream.assert_clean();
    });
}

#[test]
fn a_client_with_a_tool_of_that_name_keeps_it() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| says(request, "", &[("q1", ASK, WHICH)]));
        let program = Toolrein::before(&upstream, SETTINGS);
        let mut talk = Talk::new(form);
        talk.members["tools"][0]["function"]["name"] = json!(ASK);
        let said = talk.ask(&program);
        assert_eq!(said.calls, [("q1".to_owned(), ASK.to_owned(), WHICH.to_owned())]);
        assert_eq!(upstream.request(0).json()["tools"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn a_model_that_searches_in_vain_is_advised_and_asks() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let advised = request.json()["messages"].to_string().contains("search results in a row");
            match advised {
                true => says(request, "", &[("q1", ASK, WHICH)]),
                false => says(request, "", &[("s1", "search", "{\"query\":\"Anna\"}")]),
            }
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let mut talk = Talk::new(form);
        for nth in 0..3 {
            let said = talk.ask(&program);
            assert_eq!(said.calls.len(), 1, "{nth}: {}", said.text);
            talk.add(&said);
            talk.messages.last_mut().unwrap()["content"] = json!("[]");
        }
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, SHOWN);
        let sent = messages(&upstream.request(3));
        let notices = sent.iter().filter(|message| message["role"] == "system").count();
        assert_eq!(notices, 1);
        assert!(
            sent.last().unwrap()["content"]
                .as_str()
                .unwrap()
                .contains("or call ask_for_clarification with one")
        );
        upstream.assert_clean();
    });
}

#[test]
fn observing_declares_nothing() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| text("Hello.", request));
        let program = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{SETTINGS}"));
        Talk::new(form).ask(&program).assert_coherent(form);
        assert!(!String::from_utf8_lossy(&upstream.request(0).body).contains(ASK));
    });
}

#[test]
fn in_the_responses_api_the_question_is_a_message_of_its_own() {
    for stream in [false, true] {
        for said_before in [None, Some("I looked her up.")] {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => {
                    let output = Output::new(nth).thinks();
                    let output = said_before.into_iter().fold(output, Output::says);
                    output.call("q1", ASK, WHICH).reply(request)
                }
                _ => Output::text(nth, "She is in room 4.").reply(request),
            });
            let toolrein = Toolrein::before(&upstream, SETTINGS);
            let mut talk = responses_kit::Talk::new(stream);
            let answer = talk.ask(&toolrein);
            let before = said_before.unwrap_or_default();
            assert_eq!(answer.said(), format!("{before}{SHOWN}"), "{}", answer.text());
            let messages = if said_before.is_some() { 2 } else { 1 };
            let kinds = ["reasoning:rs_0_0", "assistant", "assistant"];
            assert_eq!(answer.kinds(), kinds[..=messages]);
            assert_eq!(answer.end["status"], "completed");
            assert!(answer.end["usage"]["total_tokens"].as_u64() > Some(0));
            assert!(!answer.end["output"].to_string().contains(ASK), "{}", answer.text());
            assert_eq!(upstream.requests().len(), 1);

            talk.go_on(&answer).say("The one in Kyoto.");
            assert_eq!(talk.ask(&toolrein).said(), "She is in room 4.");
            let sent = responses_kit::sent(&upstream, 1);
            let place = |item: &str| sent.iter().position(|name| name == item);
            let (call, result) = (place("function:q1"), place("=q1").unwrap_or_default());
            assert!(call.is_some_and(|call| call < result) && result + 2 < sent.len(), "{sent:?}");
            assert_eq!(sent[sent.len() - 2..], ["assistant", "user"], "{sent:?}");
            let output = responses_kit::input(&upstream.request(1))[result]["output"].clone();
            assert_eq!(output, "[toolrein: the user is asked; their answer is the next user message]");
            upstream.assert_clean();
        }
    }
}

#[test]
fn in_the_responses_api_a_question_beside_a_call_waits_and_a_bad_one_goes_back() {
    for stream in [false, true] {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Output::new(nth).call("q1", ASK, WHICH).call("f1", "f", "{}").reply(request),
            1 => Output::calls(nth, &[("bad", ASK, "{}")]).reply(request),
            _ => Output::calls(nth, &[(&format!("q{nth}"), ASK, WHICH)]).reply(request),
        });
        let toolrein = Toolrein::before(&upstream, SETTINGS);
        let mut talk = responses_kit::Talk::new(stream);
        let answer = talk.ask(&toolrein);
        assert_eq!(answer.kinds(), ["function:f1"]);
        let asked = talk.go_on(&answer).ask(&toolrein);
        assert_eq!((asked.said().as_str(), asked.kinds().len()), (SHOWN, 1), "{}", asked.text());
        let types: Vec<String> =
            responses_kit::input(&upstream.request(2)).iter().map(responses_kit::error_type).collect();
        let types: Vec<&str> = types.iter().map(String::as_str).filter(|kind| !kind.is_empty()).collect();
        assert_eq!(types, ["CLARIFICATION", "VALIDATION"]);
        // Nobody has spoken since.
        let again = talk.go_on(&asked).ask(&toolrein);
        assert!(!again.said().contains("Which Anna"), "{}", again.text());
        upstream.assert_clean();
    }
}

#[test]
fn where_the_upstream_keeps_the_history_the_call_gets_its_result_before_the_answer() {
    for stream in [false, true] {
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => Output::calls(nth, &[("q1", ASK, WHICH)]).reply(request),
            _ => Output::text(nth, "She is in room 4.").reply(request),
        });
        let toolrein = Toolrein::before(&upstream, SETTINGS);
        let answer = responses_kit::Talk::new(stream).ask(&toolrein);
        assert_eq!(answer.said(), SHOWN, "{}", answer.text());
        let mut next = responses_kit::Talk::new(stream);
        next.body["input"] = json!([{"role": "user", "content": "The one in Kyoto."}]);
        next.body["previous_response_id"] = answer.end["id"].clone();
        assert_eq!(next.ask(&toolrein).said(), "She is in room 4.");
        assert_eq!(responses_kit::sent(&upstream, 1), ["=q1", "user"]);
    }
}

#[test]
fn within_a_wrapper_a_question_is_put_off() {
    in_both_forms(|form| {
        let arguments = format!(
            r#"{{"tool_uses":[{{"recipient_name":"functions.{ASK}","parameters":{WHICH}}},{{"recipient_name":"functions.search","parameters":{{}}}}]}}"#
        );
        let upstream = Scripted::start(move |nth, request| match nth {
            0 => says(request, "", &[("w1", "parallel", &arguments)]),
            _ => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, SETTINGS);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!((said.text.as_str(), said.calls.len()), ("Fine.", 0));
        let sent = messages(&upstream.request(1));
        assert_eq!(error(&sent[2])["type"], "CLARIFICATION");
        upstream.assert_clean();
    });
}
