//! `truncate`: what the model reads of long, repeated and encoded results, and that it stays the same.

use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, text};
use serde_json::{Value, json};

/// What the model read as results in `request`.
fn results(request: &Recorded) -> Vec<String> {
    let body = request.json();
    let messages = body["messages"].as_array().unwrap().iter();
    let results = messages.filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// A conversation in which `search` brings these results, one a request; what the model read at its end.
fn read_by_model(form: Form, settings: &str, brought: &[String]) -> (Vec<String>, Option<String>) {
    let calls = brought.len();
    let upstream = Scripted::start(move |nth, request| {
        if nth == calls {
            return text("Done.", request);
        }
        let id = format!("c{nth}");
        Reply::speech(request, &Speech::calls(&[(&id, "search", &format!("{{\"q\":{nth}}}"))]))
    });
    let program = Toolrein::before(&upstream, settings);
    let mut talk = Talk::new(form);
    let mut actions = None;
    for result in brought.iter().map(Some).chain([None]) {
        let said = talk.ask(&program);
        said.assert_coherent(form);
        actions = said.response.header("x-toolrein-actions").map(str::to_owned);
        talk.add(&said);
        if let Some(result) = result {
            talk.messages.last_mut().unwrap()["content"] = json!(result);
        }
    }
    let read: Vec<Vec<String>> = (0..=calls).map(|nth| results(&upstream.request(nth))).collect();
    for pair in read.windows(2) {
        assert_eq!(pair[0], pair[1][..pair[0].len()], "what was read once stays as it is");
    }
    upstream.assert_clean();
    (read[calls].clone(), actions)
}

#[test]
fn a_table_is_cut_by_rows_and_its_repetition_points_to_it() {
    in_both_forms(|form| {
        let rows: String = (0..900).map(|n| format!("{n},item {n},open\n")).collect();
        let table = format!("id,name,state\n{rows}");
        let (read, actions) = read_by_model(
            form,
            "[policy.truncate]\nmax_chars = 2000\n",
            &[table.clone(), "short".to_owned(), table],
        );
        assert!(read[0].starts_with("id,name,state\n0,item 0,open\n") && read[0].chars().count() <= 2_000);
        assert!(read[0].contains("\n\"[toolrein: cut ") && read[0].ends_with("\n899,item 899,open\n"));
        assert_eq!(read[1], "short");
        assert!(
            read[2].contains("as the result of call 1 of this conversation (number 1 of search)"),
            "{}",
            read[2]
        );
        assert_eq!(actions.map(|acts| acts.starts_with("truncate=")), Some(true));
    });
}

#[test]
fn a_picture_becomes_a_note_and_json_around_it_stays_json() {
    in_both_forms(|form| {
        let picture = "iVBORw0KGgoAAAANSUhEUgAA+bCdEfGhIjKlMnOpQrStUvWxYz0123456789Z/zX".repeat(100);
        let result = json!({ "name": "a", "url": format!("data:image/png;base64,{picture}") }).to_string();
        let (read, _) = read_by_model(form, "[policy.truncate]\n", std::slice::from_ref(&result));
        let value: Value = serde_json::from_str(&read[0]).unwrap();
        assert_eq!(
            value,
            json!({ "name": "a", "url": "[toolrein: image/png, 4800 bytes, base64, left out]" })
        );
        let off = "[policy.truncate]\nblob_chars = 0\nduplicates = false\n";
        assert_eq!(read_by_model(form, off, &[result.clone(), result.clone()]).0, [result.clone(), result]);
    });
}

#[test]
fn a_result_larger_than_the_known_context_window_is_cut_although_its_tool_has_no_limit() {
    in_both_forms(|form| {
        let settings = "[policy.truncate]\nmax_chars = 0\nduplicates = false\n[model.\"gpt-4o\"]\ncontext_window = 4096\n";
        let huge = "one line of many words\n".repeat(4_000);
        let large = "one line of many words\n".repeat(400);
        let (read, _) = read_by_model(form, settings, &[huge, large.clone(), "short".to_owned()]);
        assert!(read[0].chars().count() <= 4_096, "{}", read[0].chars().count());
        assert!(read[0].contains("[toolrein: cut "), "{}", read[0]);
        assert_eq!(read[1..], [large, "short".to_owned()], "what has room stays");
    });
}

#[test]
fn an_unread_result_with_which_a_request_was_too_long_is_cut_and_stays_so() {
    in_both_forms(|form| {
        let message = "This model's maximum context length is 50000 tokens. However, your messages resulted in 80000 tokens.";
        let upstream = Scripted::start(move |nth, request| match (nth, request.body.len() > 200_000) {
            (_, true) => Reply::error(400, "invalid_request_error", "context_length_exceeded", message),
            (0, _) => Reply::speech(request, &Speech::calls(&[("c0", "search", "{}")])),
            _ => text("Done.", request),
        });
        let program = Toolrein::before(&upstream, "[policy.truncate]\nmax_chars = 0\n");
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        talk.add(&said);
        talk.messages.last_mut().unwrap()["content"] = json!("one line of many words\n".repeat(16_000));
        let said = talk.ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "Done.");
        let read = results(&upstream.request(2));
        assert!(read[0].contains("[toolrein: cut "), "{}", &read[0][..200]);
        talk.add(&said);
        talk.say("And?");
        assert_eq!(talk.ask(&program).text, "Done.");
        assert_eq!(results(&upstream.request(3)), read, "known from now on: nothing is refused again");
        upstream.assert_clean();
    });
}

/// A request of either API whose model has read `old` results and not these `new` ones.
fn with_results(responses: bool, stream: bool, old: &[String], new: &[String]) -> Value {
    let mut items = vec![json!({"role": "user", "content": "q"})];
    for (group, results) in [("o", old), ("n", new)] {
        let id = |at: usize| format!("call_{group}{at}");
        let calls = (0..results.len()).map(|at| match responses {
            true => json!({"type": "function_call", "call_id": id(at), "name": "search", "arguments": format!("{{\"q\":{at}}}")}),
            false => json!({"type": "function", "id": id(at), "function": {"name": "search", "arguments": format!("{{\"q\":{at}}}")}}),
        });
        let outputs = results.iter().enumerate().map(|(at, result)| match responses {
            true => json!({"type": "function_call_output", "call_id": id(at), "output": result}),
            false => json!({"role": "tool", "tool_call_id": id(at), "content": result}),
        });
        let calls: Vec<Value> = match responses {
            true => calls.collect(),
            false if results.is_empty() => Vec::new(),
            false => {
                vec![json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>()})]
            }
        };
        items.extend(calls.into_iter().chain(outputs));
    }
    let function = json!({"name": "search", "parameters": {"type": "object"}});
    let mut tool = json!({"type": "function", "function": function});
    if responses {
        tool = json!({"type": "function", "name": "search", "parameters": {"type": "object"}});
    }
    let input = if responses { "input" } else { "messages" };
    json!({"model": "m", "stream": stream, "tools": [tool], input: items})
}

/// What the model read as results, in either API.
fn outputs(request: &Recorded) -> Vec<String> {
    let body = request.json();
    let items = body["messages"].as_array().or(body["input"].as_array()).unwrap().iter();
    let texts = items.filter_map(|item| match item["role"] == "tool" {
        true => item["content"].as_str(),
        false => item["output"].as_str(),
    });
    texts.map(str::to_owned).collect()
}

/// A model that takes so many tokens, each four bytes of a request; `says`: what it says of others, whose size is added
/// for `{}`.
fn of_window(tokens: usize, says: &'static str) -> Scripted {
    Scripted::start(move |nth, request| {
        let sent = request.body.len() / 4;
        if sent > tokens {
            let says = says.replace("{}", &sent.to_string());
            return Reply::error(400, "invalid_request_error", "context_length_exceeded", &says);
        }
        match request.json()["input"].is_array() {
            true => Output::text(nth, "Done.").reply(request),
            false => text("Done.", request),
        }
    })
}

#[test]
fn unread_results_that_do_not_fit_are_cut_after_a_refusal_and_stay_so() {
    const MANY: &str =
        "This model's maximum context length is 32000 tokens. However, your messages resulted in {} tokens.";
    const OPENAI: &str = "This model's maximum context length is 8192 tokens. However, your messages resulted in {} tokens. \
         Please reduce the length of the messages.";
    const ANTHROPIC: &str = "prompt is too long: {} tokens > 3000 maximum";
    const NO_NUMBER: &str = "Your input exceeds the context window of this model.";
    let long = |nth: usize| (0..480).map(|at| format!("{nth} line {at} of many words\n")).collect::<String>();
    let rows: Vec<Value> = (0..300).map(|at| json!({"n": at, "name": "one name of many"})).collect();
    let rows = Value::from(rows).to_string();
    let four = || [long(1), rows.clone(), long(3), "short".to_owned(), long(4)].to_vec();
    for (window, says, old, new) in [
        (8_192, OPENAI, vec![], four()),
        (8_192, OPENAI, vec![long(0)], four()),
        (8_192, NO_NUMBER, vec![], four()),
        (3_000, ANTHROPIC, vec![], vec![long(1) + &long(2)[..3_000]]),
        (32_000, MANY, vec![], (0..40).map(long).collect()),
    ] {
        for (responses, stream) in [(false, false), (false, true), (true, false), (true, true)] {
            let said =
                format!("{window} {says}, {} results, responses {responses}, stream {stream}", new.len());
            let upstream = of_window(window, says);
            let settings = "[policy.truncate]\n[policy.compact]\n[policy.history]\n";
            let program = Toolrein::before(&upstream, settings);
            let url =
                if responses { crate::support::responses_kit::url(&program) } else { program.chat_url() };
            let mut body = with_results(responses, stream, &old, &new);
            let response = post(&url, body.to_string());
            assert!(
                response.status == 200 && response.text().contains("Done."),
                "{said}: {}",
                response.text()
            );
            assert!(
                response.header("x-toolrein-actions").is_some_and(|it| it.contains("truncate=")),
                "{said}"
            );
            assert_eq!(upstream.requests().len(), 2, "{said}");
            let read = outputs(&upstream.request(1));
            for (sent, read) in new.iter().zip(&read[old.len()..]) {
                assert_eq!(read.contains("[toolrein: cut "), sent != "short", "{said}: {read}");
                assert!(sent != "short" || read == sent, "{said}: {read}");
                assert!(*sent != rows || serde_json::from_str::<Value>(read).is_ok(), "{said}: {read}");
            }
            // What is known is cut at once, and in the same way.
            let items = body[if responses { "input" } else { "messages" }].as_array_mut().unwrap();
            items.push(json!({"role": "assistant", "content": "Done."}));
            items.push(json!({"role": "user", "content": "And?"}));
            assert_eq!(post(&url, body.to_string()).status, 200, "{said}");
            assert_eq!(upstream.requests().len(), 3, "{said}: nothing is refused again");
            assert_eq!(outputs(&upstream.request(2)), read, "{said}");
        }
    }
}

#[test]
fn results_that_fit_after_old_ones_are_cleared_stay_whole() {
    let says =
        "This model's maximum context length is 8192 tokens. However, your messages resulted in {} tokens.";
    let long = |nth: usize| (0..300).map(|at| format!("{nth} line {at} of many words\n")).collect::<String>();
    let upstream = of_window(8_192, says);
    let program = Toolrein::before(&upstream, "[policy.truncate]\n[policy.compact]\nkeep = 1\n");
    let old: Vec<String> = (0..6).map(long).collect();
    let new = [long(10), long(11)];
    let body = with_results(false, false, &old, &new);
    assert_eq!(post(&program.chat_url(), body.to_string()).status, 200);
    assert_eq!(outputs(&upstream.request(1))[6..], new);
}
