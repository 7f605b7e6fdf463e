//! What waits in a stream, what passes it, and what it takes in memory.

use super::responses::Script;
use super::*;
use super::{DONE, LIMITS, delta, event, finish, role, streamed};
use crate::judging::holding_tests::judging as judging_of;
use dialects::{CHAT, RESPONSES};
use serde_json::json;

const HELD: &str = "[confirm]\ntools = [\"pay\"]\nform = \"held\"\n";
const BY_ARGUMENTS: &str = "[arguments]\ntools = { f = { q = { max_chars = 999999 } } }\n";

fn push(judge: &mut ReplyPipeline, text: &str) -> String {
    let mut out = Vec::new();
    judge.push(Bytes::copy_from_slice(text.as_bytes()), 0, &mut out);
    String::from_utf8(out.concat()).unwrap()
}

fn responses(tables: &str) -> ReplyPipeline {
    ReplyPipeline::new(judging_of(tables), RESPONSES, Form::Streamed, WIDE, Options::default())
}

const WIDE: Limits = Limits { reply: 1 << 24, ..LIMITS };

fn begin(choice: u32, name: &str, arguments: &str) -> String {
    let call = json!({"index": 0, "id": format!("c{choice}"), "type": "function",
        "function": {"name": name, "arguments": arguments}});
    event(&json!([{"index": choice, "delta": {"tool_calls": [call]}, "finish_reason": null}]))
}

fn says(choice: u32, text: &str) -> String {
    event(&json!([{"index": choice, "delta": {"content": text}, "finish_reason": null}]))
}

#[test]
fn a_text_of_another_choice_passes_a_call_that_waits() {
    for (tables, name) in [(HELD, "pay"), (BY_ARGUMENTS, "f")] {
        let mut judge = streamed(judging_of(tables), LIMITS);
        assert_eq!(push(&mut judge, &begin(0, name, "{")), "", "it waits");
        assert_eq!(push(&mut judge, &says(1, "b")), says(1, "b"));
        assert_eq!(push(&mut judge, &says(0, "a")), "", "text after the call, in its own choice");
        let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n";
        assert_eq!(push(&mut judge, usage), "", "what is about all choices waits for each");
    }
}

#[test]
fn bytes_are_texts_alone_only_where_nothing_but_texts_that_pass_is_in_them() {
    let [one, two] = ["one", "two"].map(|text| says(0, text));
    let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n";
    let error = "data: {\"error\":{\"message\":\"m\",\"type\":\"server_error\"}}\n\n";
    for (bytes, are_texts) in [
        (one.clone(), true),
        (one.clone() + &two, true),
        (one[..one.len() - 9].to_owned(), false),
        (one.clone() + &two[..9], false),
        (one.clone() + &says(1, "another choice"), false),
        (one.clone() + &begin(0, "f", "{}"), false),
        (begin(0, "f", "{}") + &one, false),
        (one.clone() + &finish("stop"), false),
        (one.clone() + usage, false),
        (one.clone() + error, false),
        (one + DONE, false),
    ] {
        let mut judge = streamed(judging_of(""), LIMITS);
        push(&mut judge, &says(0, "the first one is read as an event"));
        let passed = judge.push(Bytes::copy_from_slice(bytes.as_bytes()), 0, &mut Vec::new());
        assert_eq!(passed, are_texts, "{bytes}");
    }
}

#[test]
fn a_comment_passes_a_call_that_waits_for_a_person_and_no_other_call() {
    let comment = ": still here\n\n";
    let mut judge = streamed(judging_of(BY_ARGUMENTS), LIMITS);
    push(&mut judge, &begin(0, "f", "{"));
    assert_eq!(push(&mut judge, comment), "", "where nothing acts the stream stays as it came");
    let mut judge = streamed(judging_of(HELD), LIMITS);
    push(&mut judge, &(begin(0, "pay", "{}") + &finish("tool_calls")));
    assert!(judge.is_waiting());
    assert_eq!(push(&mut judge, comment), comment);
}

#[test]
fn held_events_take_at_most_twice_their_bytes_and_twice_their_arguments() {
    const PIECES: usize = 12_500;
    let chat = {
        let piece = delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "abcd"}}]}));
        let begin = delta(&json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function",
            "function": {"name": "f", "arguments": "{\"q\":\""}}]}));
        role() + &begin + &piece.repeat(PIECES)
    };
    let responses_stream = {
        let added = json!({"type": "response.output_item.added", "output_index": 0, "item": {"id": "fc_1",
            "type": "function_call", "status": "in_progress", "call_id": "call_1", "name": "f", "arguments": ""}});
        let piece = json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1",
            "output_index": 0, "sequence_number": 7, "delta": "abcd"});
        super::responses::framed(&[added]) + &super::responses::framed(&[piece]).repeat(PIECES)
    };
    for (mut judge, stream) in
        [(streamed(judging_of(BY_ARGUMENTS), WIDE), chat), (responses(BY_ARGUMENTS), responses_stream)]
    {
        let mut out = Vec::new();
        for chunk in stream.as_bytes().chunks(8 << 10) {
            judge.push(Bytes::copy_from_slice(chunk), 0, &mut out);
        }
        assert!(judge.is_holding() && judge.unjudged().is_empty());
        let most = 2 * stream.len() + 2 * 4 * PIECES + (16 << 10);
        assert!(judge.kept_bytes() <= most, "{} bytes for {}", judge.kept_bytes(), stream.len());
        assert!(judge.kept_bytes() >= stream.len(), "all of it is counted");
    }
}

#[test]
fn what_follows_the_end_of_a_reply_that_is_asked_again_is_left_out() {
    let stream = Script::new("r").call("1", "evil", "{}").stream();
    let mut judge = responses("[allow]\nexcept = [\"evil\"]\n");
    let out = push(&mut judge, &(stream + DONE));
    assert!(!out.contains("[DONE]") && !out.contains("response.completed"), "{out}");
    assert!(matches!(judge.finish(0, &mut Vec::new()), Ending::Reask { .. }));
}

#[test]
fn a_held_call_that_is_declined_goes_back_as_the_model_made_it() {
    let stream = Script::new("r").call("1", "pay", "{ \"to\" : \"a\" }").stream();
    let mut judge = responses(HELD);
    push(&mut judge, &stream);
    let mut out = Vec::new();
    assert_eq!(judge.finish(0, &mut out), Ending::Waits);
    settle(&mut judge, 0, ApprovalDecision::Declined, &mut out);
    let Ending::Reask { hidden, .. } = judge.finish(0, &mut out) else { panic!("asked again") };
    let made = r#""name":"pay","arguments":"{ \"to\" : \"a\" }""#;
    assert!(String::from_utf8_lossy(&hidden).contains(made), "{hidden:?}");
}

#[test]
fn a_reply_that_is_an_error_alone_has_no_choice_and_is_over() {
    let error = r#"{"type":"error","code":"server_error","message":"x","sequence_number":0}"#;
    let mut judge = responses(HELD);
    let out = push(&mut judge, &format!("event: error\ndata: {error}\n\n"));
    assert!(out.is_empty() && judge.refusal().is_some(), "the exchange decides first");
    let mut out = Vec::new();
    judge.let_refusal_stand(0, &mut out);
    assert!(judge.shown().is_empty() && judge.is_whole(), "no further error follows where the stream closes");
}

#[test]
fn what_follows_an_event_that_is_too_long_is_judged() {
    let long = format!("event: x\ndata: {{\"type\":\"x\",\"y\":\"{}\"}}\n\n", "z".repeat(5_000));
    let stream = long.clone() + &Script::new("r").call("1", "deny", "{}").text("m", "Fine.").stream();
    let limits = Limits { event: 4_000, ..LIMITS };
    let mut judge =
        ReplyPipeline::new(super::judging(false), RESPONSES, Form::Streamed, limits, Options::default());
    let out = push(&mut judge, &stream);
    assert!(out.starts_with(&long) && !out.contains("deny") && out.contains("Fine."), "{out}");
    assert_eq!(judge.unjudged(), [Unjudged::EventTooLong]);
}

#[test]
fn a_finish_that_wants_calls_is_replaced_where_the_reply_to_a_re_ask_has_none() {
    let mut judge = super::judge(false);
    let blocked = role() + &begin(0, "deny", "{}") + &finish("tool_calls") + DONE;
    push(&mut judge, &blocked);
    assert!(matches!(judge.finish(0, &mut Vec::new()), Ending::Reask { .. }));
    judge.continue_with(0);
    let out = push(&mut judge, &(says(0, "Fine.") + &finish("tool_calls") + DONE));
    assert!(out.contains("Fine.") && out.contains("\"finish_reason\":\"stop\""), "{out}");
    assert!(!out.contains("\"finish_reason\":\"tool_calls\""), "{out}");
}

#[test]
fn nothing_after_the_end_of_a_reply_that_is_asked_again_keeps_it_from_that() {
    let blocked = role() + &begin(0, "deny", "{}") + &finish("tool_calls") + DONE;
    let error = "data: {\"error\":{\"message\":\"busy\"}}\n\n";
    for late in [begin(0, "ok", "{}"), error.to_owned(), "x".repeat(64 << 10)] {
        let mut judge = super::judge(false);
        let mut out = push(&mut judge, &(blocked.clone() + &late));
        let kept = judge.kept_bytes();
        out += &push(&mut judge, &late);
        assert!(!out.contains("\"ok\"") && !out.contains("busy"), "{out}");
        assert_eq!(judge.kept_bytes(), kept, "what is left out is not kept");
        assert!(matches!(judge.finish(0, &mut Vec::new()), Ending::Reask { choice: 0, .. }), "{late:.80}");
    }
}

#[test]
fn what_cannot_be_read_of_a_further_reply_never_becomes_part_of_another_choice() {
    let calls = says(0, "zero") + &finish("stop") + &begin(1, "deny", "{}");
    let end = event(&json!([{"index": 1, "delta": {}, "finish_reason": "tool_calls"}]));
    let ambiguous = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],\"choices\":[]}\n\n";
    let long = format!("data: {{\"choices\":[],\"x\":\"{}\"}}\n\n", "y".repeat(5_000));
    for unread in [ambiguous, &long] {
        let mut judge = streamed(super::judging(false), Limits { event: 4_000, ..LIMITS });
        push(&mut judge, &(role() + &calls + &end + DONE));
        assert!(matches!(judge.finish(0, &mut Vec::new()), Ending::Reask { choice: 1, .. }));
        judge.continue_with(1);
        let out = push(&mut judge, &(unread.to_owned() + &says(0, "late") + DONE));
        assert_eq!(out, "", "it would be read as text of choice 0");
        assert!(matches!(judge.finish(0, &mut Vec::new()), Ending::BrokenOff(_)), "{unread:.80}");
    }
}

#[test]
fn a_body_that_is_too_long_to_be_read_does_not_go_into_a_stream() {
    let body = json!({"choices": [{"message": {"content": "a".repeat(5_000)}}]}).to_string();
    for dialect in [CHAT, RESPONSES] {
        let limits = Limits { reply: 4_000, ..LIMITS };
        let mut judge =
            ReplyPipeline::new(super::judging(false), dialect, Form::Streamed, limits, Options::default());
        judge.begin(Form::Whole, 200);
        let mut out = Vec::new();
        for chunk in body.as_bytes().chunks(1_000) {
            judge.push(chunk.to_vec().into(), 0, &mut out);
        }
        assert_eq!(judge.finish(0, &mut out), Ending::BrokenOff(Unjudged::ReplyTooLong));
        assert!(out.is_empty(), "no client of a stream can read it");
    }
}

#[test]
fn a_line_of_toolreins_before_the_answer_is_no_answer() {
    let options = Options { preface: Some("Shortened.".to_owned()), ..Options::default() };
    let mut judge = pipeline(super::judging(false), Form::Streamed, LIMITS, options);
    let first = push(&mut judge, &(role() + &begin(0, "deny", "{}") + &finish("tool_calls") + DONE));
    assert!(matches!(judge.finish(0, &mut Vec::new()), Ending::Reask { .. }));
    judge.continue_with(0);
    let out = first + &push(&mut judge, &(role() + &finish("stop") + DONE));
    assert!(out.contains("Shortened.") && out.contains(NO_ANSWER), "{out}");
}
