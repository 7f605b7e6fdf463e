//! `truncate`: what the model reads of long, repeated and encoded results, and that it stays the same.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::talk::{Form, Talk, in_both_forms, text};
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
