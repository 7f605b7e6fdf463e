//! Where notices go when an upstream refuses them: a request that is refused with a notice of ours as a message of
//! its own is sent once more with the notice as a suffix, whatever the refusal says.

use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms};
use serde_json::{Value, json};

/// The first call of a turn brings a notice.
const NOTICE: &str = "[policy.budget]\ntool_calls = 1\n";

/// A conversation with a notice of the budget at its end. The model's name is one that accepts late system messages.
fn noticed(form: Form) -> Talk {
    let mut talk = Talk::new(form);
    talk.messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}));
    talk.messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "found"}));
    talk
}

fn messages(request: &Recorded) -> Vec<Value> {
    request.json()["messages"].as_array().cloned().unwrap_or_default()
}

/// Whether a system message follows the first message, as notices of ours do.
fn is_late(request: &Recorded) -> bool {
    messages(request).iter().skip(1).any(|message| message["role"] == "system")
}

/// An upstream that answers late system messages with `refusal`.
fn refusing(refusal: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |_, request| match is_late(request) {
        true => refusal(request),
        false => Reply::speech(request, &Speech::text("Seen.")),
    })
}

fn error(status: u16, message: &str) -> Reply {
    Reply::error(status, "BadRequestError", "x", message)
}

/// The refusal as the first event of a stream, or in a whole reply with status 200.
fn error_in_200(request: &Recorded, message: &str, code: &Value) -> Reply {
    let body = json!({"error": {"message": message, "code": code}});
    match request.json()["stream"] == true {
        true => Reply::stream([format!("data: {body}\n\n")]),
        false => Reply::json(200, &body),
    }
}

/// The conversation is answered after one refusal, and at once the next time.
fn assert_placed_and_remembered(upstream: &Scripted, form: Form, what: &str) {
    let program = Toolrein::before(upstream, NOTICE);
    assert_eq!(noticed(form).ask(&program).text, "Seen.", "{what}");
    let second = messages(&upstream.request(1));
    assert!(second[2]["content"].as_str().unwrap().starts_with("found\n\n[toolrein] Budget"), "{second:?}");
    assert_eq!(noticed(form).ask(&program).text, "Seen.", "{what}");
    assert_eq!(upstream.requests().len(), 3, "not remembered: {what}");
}

#[test]
fn a_refused_notice_is_sent_as_a_suffix_whatever_the_refusal_says() {
    in_both_forms(|form| {
        for (status, message) in [
            (
                400,
                "Only user and assistant roles are supported, with the exception of an initial optional system message!",
            ),
            (400, "Only user, assistant and tool roles are supported, got system."),
            (500, "Only user and assistant and tool_results and tool and function roles are supported"),
            (400, "Invalid message role"),
            (500, "Jinja Exception: Unexpected combination of role and message content"),
            (400, "Wording that nobody has seen before"),
            (422, "{}"),
        ] {
            let upstream = refusing(move |_| error(status, message));
            assert_placed_and_remembered(&upstream, form, message);
        }
        let upstream = refusing(|_| Reply::bytes(400, "text/plain", ""));
        assert_placed_and_remembered(&upstream, form, "a refusal without a body");
    });
}

#[test]
fn a_notice_that_is_refused_inside_a_200_is_sent_as_a_suffix_too() {
    in_both_forms(|form| {
        for (message, code) in [
            ("Wording that nobody has seen before", json!(400)),
            ("Error rendering prompt: Invalid message role", json!(null)),
            ("chat template: turn out of place", json!(null)),
        ] {
            let upstream = refusing(move |request| error_in_200(request, message, &code));
            assert_placed_and_remembered(&upstream, form, message);
        }
    });
}

#[test]
fn a_request_that_is_refused_in_both_forms_gives_the_second_refusal_and_nothing_is_remembered() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| match is_late(request) {
            true => error(400, "Wording one"),
            false => error(400, "Wording two"),
        });
        let program = Toolrein::before(&upstream, NOTICE);
        for _ in 0..2 {
            let response = post(&program.chat_url(), noticed(form).body().to_string());
            assert_eq!((response.status, &response.json()["error"]["message"]), (400, &json!("Wording two")));
        }
        let late: Vec<bool> = upstream.requests().iter().map(is_late).collect();
        assert_eq!(late, [true, false, true, false]);
    });
}

#[test]
fn an_error_that_is_no_refusal_of_the_form_is_passed_on() {
    in_both_forms(|form| {
        for (status, message) in [
            (401, "Invalid API key"),
            (402, "Insufficient balance"),
            (403, "Forbidden"),
            (404, "The model does not exist"),
            (408, "Too slow"),
            (413, "Too large"),
            (429, "Too many requests"),
            (500, "The server had an error while processing your request. Sorry about that!"),
            (500, "Invalid state: the engine is overloaded, please try again"),
            (503, "Invalid role of this replica"),
            (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy."),
        ] {
            let upstream = Scripted::start(move |_, _| error(status, message));
            let program = Toolrein::before(&upstream, NOTICE);
            let response = post(&program.chat_url(), noticed(form).body().to_string());
            assert_eq!((response.status, upstream.requests().len()), (status, 1), "{message}");
        }
    });
}

#[test]
fn a_request_without_a_notice_of_ours_is_never_sent_again_for_an_unknown_refusal() {
    in_both_forms(|form| {
        for mode in ["", "mode = \"observe\"\n"] {
            let upstream = Scripted::start(|_, _| error(400, "Wording that nobody has seen before"));
            let settings = if mode.is_empty() { String::new() } else { format!("{mode}{NOTICE}") };
            let program = Toolrein::before(&upstream, &settings);
            let talk = if mode.is_empty() { Talk::new(form) } else { noticed(form) };
            assert_eq!(post(&program.chat_url(), talk.body().to_string()).status, 400);
            assert_eq!(upstream.requests().len(), 1);
        }
    });
}

#[test]
fn a_notice_has_the_role_developer_where_the_client_instructs_so() {
    for (own, expected) in [("developer", "developer"), ("system", "system")] {
        let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("Seen.")));
        let program = Toolrein::before(&upstream, NOTICE);
        let mut talk = noticed(Form::Whole);
        talk.messages.insert(0, json!({"content": "Be brief.", "role": own}));
        talk.ask(&program);
        let sent = messages(&upstream.request(0));
        assert_eq!((sent.len(), &sent[4]["role"]), (5, &json!(expected)), "{sent:?}");
        upstream.assert_clean();
    }
}

#[test]
fn a_final_answer_without_tools_places_what_is_said_of_them_where_any_template_takes_it() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let body = request.json();
            if is_late(request) {
                return error(400, "Invalid message role");
            }
            match (body["tool_choice"] == "none", body.get("tools")) {
                (true, _) => error(400, "tool_choice none is not for this model"),
                (false, Some(_)) => crate::support::talk::search(nth, request),
                (false, None) => Reply::speech(request, &Speech::text("So be it.")),
            }
        });
        let settings = "reask.max = 0\n[policy.budget]\ncontext_tokens = 1\ntool_calls = 0\n";
        let program = Toolrein::before(&upstream, settings);
        let said = Talk::new(form).ask(&program);
        said.assert_coherent(form);
        assert_eq!(said.text, "So be it.");
    });
}
