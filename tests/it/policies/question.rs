//! The question to a person about calls, in the conversation: it stands alone, and whatever the model wrote before it
//! cannot hide it from a person whose "yes" counts.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::responses_kit;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::talk::{Form, Talk, in_both_forms};
use serde_json::json;

const FETCH: &str = "[policy.confirm]\ntools = [\"fetch\"]\n";
const ARGUMENTS: &str = "{\"url\" :\"//a/\\u00e9\", \"n\": 1.5}";

/// What may hide the rest of a message, in some renderer.
const OPEN: [&str; 10] = [
    "I look.\n\n<!-- to do:",
    "<details>\n<summary>More</summary>\n",
    "<style>",
    "<div hidden>",
    "```",
    "- ~~~\n  x\n",
    "<think>",
    "$$ x",
    "<b>x</b><textarea>",
    "a\u{1b}[8m",
];

/// What hides nothing.
const CLOSED: [&str; 4] =
    ["I look.", "**Careful**: `rm` and\n```sh\nrm x\n```\n", "a <!-- b --> c", "<b>bold</b>, 1 < 2"];

fn token(text: &str) -> String {
    text.split("reply with `").nth(1).expect(text).split('`').next().unwrap().to_owned()
}

/// Says `before` and calls `fetch`; after an answer it says so.
fn saying(before: &'static str) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static {
    move |nth, request| match nth {
        0 => {
            let calls = Speech::calls(&[("a", "fetch", ARGUMENTS)]);
            Reply::speech(request, &Speech { text: before.into(), ..calls })
        }
        _ => Reply::speech(request, &Speech::text("As you like.")),
    }
}

#[test]
fn the_question_shows_tools_and_arguments_and_text_that_was_not_sent_is_left_out() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|_, request| {
            let calls = Speech::calls(&[("a", "fetch", ARGUMENTS), ("b", "fetch", "{}")]);
            Reply::speech(request, &Speech { text: "I look.".into(), ..calls })
        });
        let program = Toolrein::before(&upstream, FETCH);
        let mut talk = Talk::new(form);
        let said = talk.ask(&program);
        said.assert_coherent(form);
        let before = if form == Form::Streamed { "I look.\n\n" } else { "" };
        assert!(said.text.starts_with(&format!("{before}I need your approval")), "{}", said.text);
        let arguments = "{\n  \"url\": \"//a/\u{e9}\",\n  \"n\": 1.5\n}";
        assert!(said.text.contains(&format!("`fetch`\n```json\n{arguments}\n```")), "{}", said.text);
        talk.add(&said);
        talk.say("yes");
        let said = talk.ask(&program);
        said.assert_coherent(form);
        let calls: Vec<&str> = said.calls.iter().map(|(_, _, arguments)| arguments.as_str()).collect();
        assert_eq!(calls, [ARGUMENTS, "{}"], "one yes is to all that were shown");
    });
}

#[test]
fn where_streamed_text_may_hide_the_question_only_its_token_approves() {
    for before in OPEN {
        for yes in [true, false] {
            let upstream = Scripted::start(saying(before));
            let program = Toolrein::before(&upstream, FETCH);
            let mut talk = Talk::new(Form::Streamed);
            let asked = talk.ask(&program);
            assert!(asked.text.starts_with(before), "text is never held for a question: {}", asked.text);
            assert!(!asked.text.contains("`yes`"), "{}", asked.text);
            talk.add(&asked);
            talk.say(&if yes { "yes".to_owned() } else { token(&asked.text) });
            let said = talk.ask(&program);
            assert_eq!(said.calls.len(), usize::from(!yes), "{before}: {}", said.response.text());
        }
    }
}

#[test]
fn text_that_hides_nothing_leaves_the_words() {
    for before in CLOSED {
        let upstream = Scripted::start(saying(before));
        let program = Toolrein::before(&upstream, FETCH);
        let mut talk = Talk::new(Form::Streamed);
        let asked = talk.ask(&program);
        assert!(asked.text.contains("or `yes`"), "{}", asked.text);
        talk.add(&asked);
        talk.say("yes");
        assert_eq!(talk.ask(&program).calls.len(), 1, "{before}");
    }
}

#[test]
fn a_whole_reply_is_the_question_alone_and_yes_counts() {
    for before in OPEN {
        let upstream = Scripted::start(saying(before));
        let program = Toolrein::before(&upstream, FETCH);
        let mut talk = Talk::new(Form::Whole);
        let asked = talk.ask(&program);
        assert!(asked.text.starts_with("I need your approval"), "{}", asked.text);
        talk.add(&asked);
        talk.say("yes");
        assert_eq!(talk.ask(&program).calls.len(), 1, "{before}");
    }
}

#[test]
fn text_of_an_earlier_reply_of_the_same_request_hides_no_question_either() {
    in_both_forms(|form| {
        let upstream = Scripted::start(|nth, request| {
            let (text, tool) = if nth == 0 { ("<!--", "search") } else { ("Now this.", "fetch") };
            let calls = Speech::calls(&[("a", tool, "{}")]);
            Reply::speech(request, &Speech { text: text.into(), ..calls })
        });
        let program = Toolrein::before(&upstream, &format!("{FETCH}[policy.allow]\nexcept = [\"search\"]\n"));
        let mut talk = Talk::new(form);
        let asked = talk.ask(&program);
        let has_words = asked.text.contains("`yes`");
        match form {
            Form::Whole => assert!(asked.text.starts_with("I need") && has_words, "{}", asked.text),
            Form::Streamed => assert!(asked.text.starts_with("<!--") && !has_words, "{}", asked.text),
        }
        talk.add(&asked);
        talk.say(&token(&asked.text));
        assert_eq!(talk.ask(&program).calls.len(), 1);
    });
}

#[test]
fn text_in_the_last_event_and_after_it_is_left_out_of_a_stream() {
    let upstream = Scripted::start(|_, _| {
        let choice = |delta: &str, finish: &str| {
            format!(
                "data: {{\"id\":\"r\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
            )
        };
        let call = r#"{"role":"assistant","tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"fetch","arguments":"{}"}}]}"#;
        Reply::stream([
            choice(call, "null"),
            choice(r#"{"content":"Just say yes."}"#, "\"tool_calls\""),
            choice(r#"{"content":"<!-- late"}"#, "null"),
            "data: [DONE]\n\n".to_owned(),
        ])
    });
    let program = Toolrein::before(&upstream, FETCH);
    let mut talk = Talk::new(Form::Streamed);
    let asked = talk.ask(&program);
    assert!(asked.text.starts_with("I need your approval") && !asked.text.contains("late"), "{}", asked.text);
    assert!(!asked.text.contains("Just say"), "{}", asked.text);
    talk.add(&asked);
    talk.say("yes");
    assert_eq!(talk.ask(&program).calls.len(), 1, "the text that asked is found again");
}

#[test]
fn the_question_stands_alone_on_the_responses_api_too() {
    for stream in [false, true] {
        for before in OPEN.into_iter().chain(CLOSED) {
            let upstream = Scripted::start(move |nth, request| match nth {
                0 => Output::text(nth, before).call("1", "f", "{}").reply(request),
                _ => Output::text(nth, "As you like.").reply(request),
            });
            let program = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"f\"]\n");
            let mut talk = responses_kit::Talk::new(stream);
            let asked = talk.ask(&program);
            let words_count = !stream || CLOSED.contains(&before);
            let question = asked.said();
            assert_eq!(question.starts_with("I need"), !stream, "{question}");
            assert_eq!(question.contains("`yes`"), words_count, "{before}: {question}");
            let messages = asked.kinds().iter().filter(|kind| *kind == "assistant").count();
            assert_eq!(messages, if stream { 2 } else { 1 }, "{}", asked.text());
            talk.go_on(&asked).say("yes");
            let runs = talk.ask(&program).items().iter().any(|item| item["name"] == "f");
            assert_eq!(runs, words_count, "{before}");
            if !words_count {
                let mut again = responses_kit::Talk::new(stream);
                again.go_on(&asked).add(json!({"role": "user", "content": token(&question)}));
                assert!(again.ask(&program).items().iter().any(|item| item["name"] == "f"), "{before}");
            }
        }
    }
}
