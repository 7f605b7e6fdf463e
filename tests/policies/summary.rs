//! `compact` with style "summary": asked once, in the request that is cleared and in those behind it, or not at all.

use crate::compact::{cleared, having_read, messages};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Reply};
use crate::support::scripted::{Recorded, Scripted};
use crate::talk::{Form, Talk, in_both_forms, text};
use serde_json::Value;

const SUMMARY: &str =
    "[policy.compact]\nmin_gain = 0\nstyle = \"summary\"\n[model.\"gpt-4o\"]\ncontext_window = 8000\n";
const QUICK: &str = "[policy.compact]\nmin_gain = 0\nstyle = \"summary\"\nsummary = { wait = \"100ms\" }\n\
                     [model.\"gpt-4o\"]\ncontext_window = 8000\n";
const SAID: &str = "Pages of words.";

/// An upstream whose small model gives this answer to the question for a summary.
fn upstream(answer: impl Fn() -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(move |_, request| if is_question(request) { answer() } else { text("Read.", request) })
}

fn is_question(request: &Recorded) -> bool {
    request.json()["model"] == "gpt-4o-mini"
}

/// The questions for a summary, and the requests of the client.
fn apart(upstream: &Scripted) -> (Vec<Recorded>, Vec<Recorded>) {
    upstream.requests().into_iter().partition(is_question)
}

fn has_summary(request: &Recorded) -> bool {
    let told = |message: &Value| message["content"].as_str().is_some_and(|text| text.ends_with(SAID));
    messages(request).iter().filter(|message| told(message)).count() == 1
}

/// Asks twice, the second time with the answer in the history.
fn ask_twice(talk: &mut Talk, program: &Toolrein) -> String {
    let said = talk.ask(program);
    said.assert_coherent(talk.form);
    talk.add(&said);
    talk.say("And?");
    assert_eq!(talk.ask(program).response.header("x-toolrein-actions"), None, "nothing new");
    said.response.header("x-toolrein-actions").unwrap().to_owned()
}

fn assert_same_prefix(first: &Recorded, second: &Recorded) {
    let (first, second) = (messages(first), messages(second));
    assert_eq!(first, second[..first.len()]);
}

#[test]
fn a_summary_made_in_time_is_in_the_request_and_in_every_later_one() {
    in_both_forms(|form| {
        let upstream = upstream(|| Reply::text(SAID));
        let program = Toolrein::before(&upstream, SUMMARY);
        let acted = ask_twice(&mut having_read(form, 7), &program);
        assert!(acted.contains("compact=5") && acted.contains("compact=summarised"), "{acted}");
        let (questions, requests) = apart(&upstream);
        assert_eq!((questions.len(), requests.len(), cleared(&requests[0])), (1, 2, 5));
        assert!(has_summary(&requests[0]), "{:?}", messages(&requests[0]));
        assert_same_prefix(&requests[0], &requests[1]);
        program.wait_for_metric("toolrein_summaries_total{result=\"made\"}", 1.0);
        program.wait_for_metric("toolrein_actions_total{policy=\"compact\",action=\"summarised\"}", 1.0);
        upstream.assert_clean();
    });
}

#[test]
fn a_summary_that_is_late_or_fails_means_cleared_for_good() {
    let refusal = || Reply::error(500, "server_error", "x", "no");
    let blank = || Reply::text(" ");
    for (answer, result, settings) in [
        (Reply::silence as fn() -> Reply, "late", QUICK),
        (refusal, "failed", SUMMARY),
        (blank, "failed", SUMMARY),
    ] {
        let upstream = upstream(answer);
        let program = Toolrein::before(&upstream, settings);
        ask_twice(&mut having_read(Form::Whole, 7), &program);
        let (questions, requests) = apart(&upstream);
        assert_eq!((questions.len(), cleared(&requests[0])), (1, 5), "{result}");
        assert!(!has_summary(&requests[0]));
        assert_same_prefix(&requests[0], &requests[1]);
        program.wait_for_metric(&format!("toolrein_summaries_total{{result=\"{result}\"}}"), 1.0);
    }
}

#[test]
fn two_equal_requests_at_once_ask_once() {
    let gate = Gate::shut();
    let held = gate.clone();
    let upstream = upstream(move || Reply::text(SAID).held(&held));
    let program = Toolrein::before(&upstream, &SUMMARY.replace("[model", "summary.wait = \"30s\"\n[model"));
    let talk = having_read(Form::Whole, 7);
    std::thread::scope(|scope| {
        let asking = [0, 1].map(|_| scope.spawn(|| talk.ask(&program)));
        upstream.request(0);
        gate.open();
        for asking in asking {
            assert_eq!(asking.join().unwrap().text, "Read.");
        }
    });
    let (questions, requests) = apart(&upstream);
    assert_eq!((questions.len(), requests.len()), (1, 2));
    assert_eq!(requests[0].body, requests[1].body);
}

#[test]
fn the_question_goes_the_callers_way_with_the_key_and_no_other_header() {
    let upstream = upstream(|| Reply::text(SAID));
    let program = Toolrein::before(&upstream, SUMMARY);
    let url = format!("{}?version=2", program.chat_url());
    let request = Request::post(&url, having_read(Form::Streamed, 7).body().to_string());
    request.header("x-session-id", "s").send();
    let (questions, requests) = apart(&upstream);
    let (question, request) = (&questions[0], &requests[0]);
    assert_eq!((&question.path, question.header("authorization")), (&request.path, Some("Bearer sk-test")));
    assert_eq!((question.header("x-session-id"), request.header("x-session-id")), (None, Some("s")));
    let body = question.json();
    let data: Value = serde_json::from_str(body["messages"][1]["content"].as_str().unwrap()).unwrap();
    assert_eq!(data["results"].as_array().unwrap().len(), 5);
}

#[test]
fn nobody_is_asked_while_observing_for_held_out_conversations_and_with_style_clear() {
    for settings in [
        format!("mode = \"observe\"\n{SUMMARY}"),
        format!("conversation.holdout = 1.0\n{SUMMARY}"),
        SUMMARY.replace("\"summary\"", "\"clear\""),
    ] {
        let upstream = upstream(|| Reply::text(SAID));
        let program = Toolrein::before(&upstream, &settings);
        having_read(Form::Whole, 7).ask(&program);
        assert_eq!(apart(&upstream).0.len(), 0, "{settings}");
    }
}
