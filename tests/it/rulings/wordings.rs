//! Refusals in words that no list has: what they refuse is recognised by its structure, the request is sent once more in a
//! form that is accepted, and an error about anything else reaches the client as it came.

use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms, search, text};
use serde_json::{Value, json};

const CASES: &str = include_str!("../../data/refusals/structure.jsonl");

/// The cases of one kind; `None`: errors that no other form of the request avoids.
fn cases(kind: Option<&str>) -> Vec<Value> {
    let cases = CASES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    cases.filter(|case| case["expect"].as_str() == kind).collect()
}

fn refusal(case: &Value) -> Reply {
    Reply::json(u16::try_from(case["status"].as_u64().unwrap()).unwrap(), &case["body"])
}

/// An upstream that answers the model `mN` with the `N`th of `cases`, unless `accepts` the request.
fn refusing(cases: Vec<Value>, accepts: impl Fn(&Value, &Value) -> bool + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |_, request| {
        let body = request.json();
        let nth: usize = body["model"].as_str().unwrap()[1..].parse().unwrap();
        if accepts(&body, &cases[nth]) { text("Fine.", request) } else { refusal(&cases[nth]) }
    })
}

/// A conversation with the `nth` model, unlike that with any other.
fn talk_with(form: Form, nth: usize, messages: &[Value]) -> Talk {
    let mut talk = Talk::new(form);
    talk.members["model"] = json!(format!("m{nth}"));
    talk.messages = vec![json!({"role": "user", "content": format!("What is new in {nth}?")})];
    talk.messages.extend_from_slice(messages);
    talk
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]})
}

fn result(id: &str, content: &Value) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().unwrap().clone()
}

fn calls(body: &Value) -> Vec<Value> {
    let messages = body["messages"].as_array().unwrap();
    messages.iter().filter_map(|message| message["tool_calls"].as_array().cloned()).flatten().collect()
}

fn is_accepted_text(text: &str, longest: usize) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=longest).contains(&text.len()) && text.bytes().all(is_part)
}

/// Each case of `kind` is answered by the second request, and a later one of the conversation by the first; its history
/// begins with the one that was accepted.
fn repaired(
    kind: &str,
    history: &[Value],
    accepts: impl Fn(&Value, &Value) -> bool + Clone + Send + Sync + 'static,
) {
    in_both_forms(|form| {
        let cases = cases(Some(kind));
        assert!(cases.len() > 8, "{kind}");
        let upstream = refusing(cases.clone(), accepts.clone());
        let program = Toolrein::before(&upstream, "");
        for (nth, case) in cases.iter().enumerate() {
            let before = upstream.requests().len();
            let mut talk = talk_with(form, nth, history);
            let said = talk.ask(&program);
            assert_eq!((said.text.as_str(), said.response.status), ("Fine.", 200), "{case}");
            assert_eq!(upstream.requests().len(), before + 2, "{case}");
            let actions = said.response.header("x-toolrein-actions").unwrap_or_default();
            assert!(actions.contains("broken_history=repaired"), "{case}: {actions}");
            talk.add(&said);
            talk.say("And?");
            assert_eq!(talk.ask(&program).text, "Fine.");
            assert_eq!(upstream.requests().len(), before + 3, "remembered: {case}");
            let (first, next) =
                (messages(&upstream.request(before + 1)), messages(&upstream.request(before + 2)));
            assert_eq!(next[..first.len()], first, "the history is a prefix: {case}");
        }
    });
}

#[test]
fn a_request_that_is_too_long_in_any_words_is_shortened_and_sent_again() {
    in_both_forms(|form| {
        let cases = cases(Some("overflow"));
        let is_short = |body: &Value, _: &Value| body.to_string().len() < 20_000;
        let upstream = refusing(cases.clone(), is_short);
        let program = Toolrein::before(&upstream, "[policy.compact]\n");
        let page = json!(format!("page {}", "word ".repeat(1_000)));
        for (nth, case) in cases.iter().enumerate() {
            let ids: Vec<String> = (0..6).map(|at| format!("c{at}")).collect();
            let read: Vec<Value> = ids
                .iter()
                .enumerate()
                .flat_map(|(at, id)| [call(id, "fetch", &format!("{{\"n\":{at}}}")), result(id, &page)])
                .collect();
            let said = talk_with(form, nth, &read).ask(&program);
            assert_eq!((said.text.as_str(), said.response.status), ("Fine.", 200), "{case}");
            assert_eq!(upstream.requests().len(), 2 * (nth + 1), "{case}");
        }
    });
}

#[test]
fn calls_and_results_that_need_each_other_are_repaired_whatever_the_words() {
    let history = [
        call("a", "search", "{}"),
        json!({"role": "user", "content": "Go on."}),
        result("x", &json!("lost")),
        json!({"role": "user", "content": "Well?"}),
    ];
    repaired("pairs", &history, |body, _| {
        let sound = mock::strict::violations(body.to_string().as_bytes());
        sound.is_empty()
    });
}

#[test]
fn arguments_that_no_parser_reads_are_wrapped_whatever_the_words() {
    let history = [call("a", "search", "{\n\"q\": \"first\",\n\"text\": \"unfin"), result("a", &json!("no"))];
    repaired("arguments", &history, |body, _| {
        let is_object = |call: &Value| {
            let text = call["function"]["arguments"].as_str().unwrap();
            serde_json::from_str::<Value>(text).is_ok_and(|arguments| arguments.is_object())
        };
        calls(body).iter().all(is_object)
    });
}

#[test]
fn names_that_are_refused_are_replaced_and_their_results_stay_paired() {
    let history = [
        call("a", "", "{}"),
        result("a", &json!("one")),
        call("b", "browser.tabs.open", "{}"),
        result("b", &json!("two")),
        call("c", &"long".repeat(17), "{}"),
        result("c", &json!("three")),
    ];
    repaired("names", &history, |body, _| {
        let name = |call: &Value| call["function"]["name"].as_str().unwrap().to_owned();
        let are_accepted = calls(body).iter().all(|call| is_accepted_text(&name(call), 64));
        let violations = mock::strict::violations(body.to_string().as_bytes());
        assert!(!are_accepted || violations.is_empty(), "{violations:?}");
        are_accepted
    });
}

#[test]
fn repeated_and_refused_ids_are_replaced_and_the_first_of_a_kind_keeps_its_bytes() {
    let long = "functions.search:".repeat(5);
    let history = [
        call("call_0", "search", "{}"),
        result("call_0", &json!("one")),
        call("call_0", "search", "{}"),
        result("call_0", &json!("two")),
        call(&long, "search", "{}"),
        result(&long, &json!("three")),
    ];
    let first = history[..2].to_vec();
    repaired("ids", &history, move |body, case| {
        let messages = body["messages"].as_array().unwrap();
        assert_eq!(messages[1..3], first);
        for pair in [1, 3, 5] {
            assert_eq!(messages[pair]["tool_calls"][0]["id"], messages[pair + 1]["tool_call_id"]);
        }
        let mut ids: Vec<String> =
            calls(body).iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect();
        let text = case["body"].to_string().to_lowercase();
        let is_of_form = ["too long", "pattern", "length", "empty"].iter().any(|word| text.contains(word));
        if !is_of_form {
            ids.sort_unstable();
            ids.windows(2).all(|pair| pair[0] != pair[1])
        } else {
            ids.iter().all(|id| is_accepted_text(id, 40))
        }
    });
}

#[test]
fn pictures_that_are_refused_in_results_go_into_a_users_message() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}});
    let history = [
        call("a", "search", "{}"),
        result("a", &json!([{"type": "text", "text": "see"}, image])),
        json!({"role": "user", "content": "Well?"}),
    ];
    repaired("pictures", &history, move |body, _| {
        let messages = body["messages"].as_array().unwrap();
        let moved = messages[2]["content"].as_str().is_some();
        assert!(!moved || messages[3]["content"][1] == image, "the picture is there: {}", messages[3]);
        moved
    });
}

#[test]
fn where_a_model_takes_no_picture_at_all_a_note_takes_its_place() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| match request.json().to_string().contains("image_url") {
            true => {
                Reply::error(400, "invalid_request_error", "bad", "This model does not support image input")
            }
            false => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, "");
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}});
        let talk = talk_with(form, 0, &[call("a", "search", "{}"), result("a", &json!([image]))]);
        for requests in [3, 4] {
            assert_eq!(talk.ask(&program).text, "Fine.");
            assert_eq!(upstream.requests().len(), requests);
        }
        let content = messages(&upstream.request(3))[2]["content"].as_str().unwrap().to_owned();
        assert!(content.contains("an image was here"), "{content}");
    });
}

#[test]
fn a_lack_of_tools_in_any_words_is_answered_without_them() {
    in_both_forms(|form| {
        let cases = cases(Some("tools"));
        let upstream = refusing(cases.clone(), |body, _| body.get("tools").is_none());
        let program = Toolrein::before(&upstream, "");
        for (nth, case) in cases.iter().enumerate() {
            let said = talk_with(form, nth, &[]).ask(&program);
            assert_eq!((said.text.as_str(), upstream.requests().len()), ("Fine.", 2 * (nth + 1)), "{case}");
        }
    });
}

#[test]
fn a_forced_choice_that_is_refused_goes_and_the_client_gets_its_call() {
    in_both_forms(|form| {
        let named = json!({"type": "function", "function": {"name": "search"}});
        for case in cases(Some("tool_choice")) {
            let refused = case.clone();
            let upstream = Scripted::start(move |nth, request| {
                let choice = request.json()["tool_choice"].clone();
                let is_forced = choice.is_object() || choice == "required";
                if is_forced { refusal(&refused) } else { search(nth, request) }
            });
            let program = Toolrein::before(&upstream, "");
            for (choice, requests) in [(json!("required"), 2), (named.clone(), 3)] {
                let mut talk = Talk::new(form);
                talk.members["tool_choice"] = choice;
                let said = talk.ask(&program);
                assert_eq!((said.calls.len(), upstream.requests().len()), (1, requests), "{case}");
                let sent = upstream.request(requests - 1).json();
                assert!(sent.get("tool_choice").is_none() && sent["tools"] == talk.members["tools"]);
            }
            // What is not forced was never refused.
            let mut talk = Talk::new(form);
            talk.members["tool_choice"] = json!("none");
            talk.ask(&program);
            assert_eq!(upstream.request(3).body, talk.body().to_string().as_bytes());
        }
    });
}

#[test]
fn a_refused_member_that_toolrein_wrote_is_taken_back_and_that_of_a_client_is_not() {
    const REFUSAL: &str = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.";
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| match request.json().get("parallel_tool_calls") {
            Some(_) => Reply::error(400, "invalid_request_error", "unsupported_parameter", REFUSAL),
            None => search(nth, request),
        });
        let program = Toolrein::before(&upstream, "[policy.serial]\n");
        for requests in [2, 3] {
            let said = Talk::new(form).ask(&program);
            assert_eq!((said.calls.len(), upstream.requests().len()), (1, requests), "remembered");
        }
        program.wait_for_metric("toolrein_fallbacks_total{kind=\"parallel_tool_calls\"}", 1.0);
        let program = Toolrein::before(&upstream, "");
        let mut talk = Talk::new(form);
        talk.members["parallel_tool_calls"] = json!(false);
        let response = post(&program.chat_url(), talk.body().to_string());
        assert_eq!((response.status, response.json()["error"]["message"].as_str()), (400, Some(REFUSAL)));
        assert_eq!(upstream.requests().len(), 4);
    });
}

#[test]
fn a_choice_of_no_tool_that_toolrein_wrote_is_taken_back() {
    const REFUSAL: &str =
        "tool_choice: Input tag 'none' found using 'type' does not match any of the expected tags: 'auto'";
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| match request.json().get("tool_choice") {
            Some(_) => Reply::error(400, "invalid_request_error", "bad", REFUSAL),
            None => text("Fine.", request),
        });
        let program =
            Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"search\", \"fetch\"]\nhide = true\n");
        let talk = talk_with(form, 0, &[call("a", "search", "{}"), result("a", &json!("found"))]);
        for requests in [2, 3] {
            assert_eq!(talk.ask(&program).text, "Fine.");
            assert_eq!(upstream.requests().len(), requests, "remembered");
        }
    });
}

#[test]
fn a_question_for_usage_that_toolrein_added_is_taken_back_in_any_words() {
    for refusal in ["stream options are not supported", "body.streamOptions: unexpected", "Bad Request"] {
        let upstream = Scripted::start(move |_, request| match request.json().get("stream_options") {
            Some(_) => Reply::error(400, "invalid_request_error", "bad", refusal),
            None => text("Fine.", request),
        });
        let program = Toolrein::before(&upstream, "upstream.ask_usage = true\n");
        let mut body = talk_with(Form::Streamed, 0, &[]).body();
        body.as_object_mut().unwrap().remove("stream_options");
        for requests in [2, 3] {
            let response = post(&program.chat_url(), body.to_string());
            assert_eq!((response.status, response.streamed_text()), (200, "Fine.".to_owned()), "{refusal}");
            assert_eq!(upstream.requests().len(), requests, "remembered: {refusal}");
        }
    }
}

#[test]
fn errors_that_no_other_form_avoids_reach_the_client_as_they_came_and_are_asked_once() {
    let cases = cases(None);
    assert!(cases.len() > 25);
    let upstream = refusing(cases.clone(), |_, _| false);
    let program = Toolrein::before(&upstream, "[policy.compact]\n");
    let page = json!(format!("page {}", "word ".repeat(1_000)));
    for (nth, case) in cases.iter().enumerate() {
        // Whatever might be repaired or shortened is there.
        let ids: Vec<String> = (0..6).map(|at| format!("c{at}")).collect();
        let mut history: Vec<Value> =
            ids.iter().flat_map(|id| [call(id, "fetch", "{}"), result(id, &page)]).collect();
        history.extend([call("c0", "a.b", "{\"q\":"), json!({"role": "user", "content": "Well?"})]);
        let mut talk = talk_with(Form::Whole, nth, &history);
        talk.members["tool_choice"] = json!("required");
        let response = post(&program.chat_url(), talk.body().to_string());
        assert_eq!(upstream.requests().len(), nth + 1, "{case}");
        assert_eq!(i64::from(response.status), case["status"].as_i64().unwrap());
        assert_eq!(response.json(), case["body"]);
    }
}
