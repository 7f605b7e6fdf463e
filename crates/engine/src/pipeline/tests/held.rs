//! Tests of streams with held calls: what goes out before, in what order the rest, and how the stream ends.

use super::{Ending, Limits, ReplyPipeline};
use super::{LIMITS, call, delta, event, finish, run, streamed, whole};
use crate::judging::holding_tests::judging;
use bytes::Bytes;
use model::plan::approval::ApprovalDecision;
use serde_json::json;

const HELD: &str = "[confirm]\ntools = [\"pay\"]\nform = \"held\"\n";

fn judge() -> ReplyPipeline {
    streamed(judging(HELD), LIMITS)
}

fn settle(judge: &mut ReplyPipeline, id: u32, word: ApprovalDecision) -> (String, Option<Ending>) {
    let mut out = Vec::new();
    super::settle(judge, id, word, &mut out);
    let ending = (!judge.is_waiting()).then(|| judge.finish(0, &mut out));
    (String::from_utf8(out.concat()).unwrap(), ending)
}

fn text(text: &str) -> String {
    delta(&json!({"role": "assistant", "content": text}))
}

fn usage() -> String {
    "data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n".to_owned()
}

#[test]
fn text_is_forwarded_while_the_held_call_and_everything_after_it_wait() {
    let mut judge = judge();
    let call = call(0, "call_1", "pay", &["{\"to\":", "\"a\"}"]);
    let rest = [call, finish("tool_calls"), usage(), "data: [DONE]\n\n".to_owned()].concat();
    let (out, ending) = whole(&mut judge, &format!("{}{rest}", text("I pay.")));
    assert_eq!((out, ending), (text("I pay."), Ending::Waits));
    let (out, ending) = settle(&mut judge, 0, ApprovalDecision::Approved);
    assert_eq!(ending, Some(Ending::Complete));
    let function = json!({"name": "pay", "arguments": "{\"to\":\"a\"}"});
    let written = json!([{"index": 0, "id": "call_1", "type": "function", "function": function}]);
    let written = delta(&json!({"tool_calls": written}));
    let done = ": toolrein confirm=approved\ndata: [DONE]\n\n".to_owned();
    assert_eq!(out, [written, finish("tool_calls"), usage(), done].concat(), "in one piece, as it was shown");
}

#[test]
fn a_call_is_held_however_the_stream_is_chunked() {
    let stream = [
        text("I pay."),
        call(0, "call_1", "pay", &["{}"]),
        finish("tool_calls"),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    for size in 1..40 {
        let mut judge = judge();
        let (out, ending) = run(&mut judge, stream.as_bytes().chunks(size));
        assert_eq!((out, ending), (text("I pay."), Ending::Waits), "{size}");
    }
}

#[test]
fn declining_the_only_call_asks_the_model_again() {
    for (word, why) in
        [(ApprovalDecision::Declined, "declined"), (ApprovalDecision::Expired, "nobody answered in time")]
    {
        let mut judge = judge();
        whole(
            &mut judge,
            &format!("{}{}data: [DONE]\n\n", call(0, "a", "pay", &["{}"]), finish("tool_calls")),
        );
        let (out, ending) = settle(&mut judge, 0, word);
        assert!(!out.contains("tool_calls") && !out.contains("[DONE]"), "{out}");
        let Some(Ending::Reask { choice: 0, hidden: round }) = ending else { panic!("{ending:?}") };
        assert!(String::from_utf8_lossy(&round).contains(why));
        judge.continue_with(0);
        let (out, ending) =
            whole(&mut judge, &format!("{}{}data: [DONE]\n\n", text("Fine."), finish("stop")));
        assert!(
            out.contains("Fine.") && out.ends_with("data: [DONE]\n\n") && ending == Ending::Complete,
            "{out}"
        );
        assert_eq!(out.matches("[DONE]").count(), 1);
    }
}

#[test]
fn calls_before_a_held_call_are_forwarded_and_calls_after_it_wait() {
    let calls: String = ["search", "pay", "look"]
        .iter()
        .enumerate()
        .map(|(at, name)| call(at, name, name, &["{}"]))
        .collect();
    for (word, names) in
        [(ApprovalDecision::Approved, vec!["pay", "look"]), (ApprovalDecision::Declined, vec!["look"])]
    {
        let mut judge = judge();
        let (out, ending) = whole(&mut judge, &format!("{calls}{}data: [DONE]\n\n", finish("tool_calls")));
        assert_eq!((out, ending), (call(0, "search", "search", &["{}"]), Ending::Waits));
        let (out, ending) = settle(&mut judge, 0, word);
        assert_eq!(ending, Some(Ending::Complete));
        for name in ["pay", "look"] {
            assert_eq!(out.contains(&format!("\"name\":\"{name}\"")), names.contains(&name), "{out}");
        }
        let index = names.len();
        assert!(
            out.contains(&format!("\"index\":{index}")) && !out.contains(&format!("\"index\":{}", index + 1))
        );
        assert!(out.contains("\"finish_reason\":\"tool_calls\""));
    }
}

#[test]
fn two_calls_are_asked_about_together_and_released_in_their_order() {
    let mut judge = judge();
    let (first, second) = (call(0, "a", "pay", &["{\"n\":1}"]), call(1, "b", "pay", &["{\"n\":2}"]));
    whole(&mut judge, &format!("{first}{second}{}data: [DONE]\n\n", finish("tool_calls")));
    assert_eq!(judge.judging.waiting().len(), 2);
    assert_eq!(
        settle(&mut judge, 1, ApprovalDecision::Approved),
        (String::new(), None),
        "it waits for the first"
    );
    let (out, ending) = settle(&mut judge, 0, ApprovalDecision::Declined);
    assert_eq!(ending, Some(Ending::Complete));
    assert!(!out.contains("\"id\":\"a\"") && out.contains("\"id\":\"b\""), "{out}");
}

#[test]
fn each_choice_waits_for_its_own_decision() {
    let mut judge = judge();
    let choice = |index: usize, finish: Option<&str>| {
        let call =
            json!({"index": 0, "id": format!("c{index}"), "function": {"name": "pay", "arguments": "{}"}});
        event(&json!([{"index": index, "delta": {"tool_calls": [call]}, "finish_reason": finish}]))
    };
    let (zero, one) = (choice(0, Some("tool_calls")), choice(1, Some("tool_calls")));
    whole(&mut judge, &format!("{zero}{one}data: [DONE]\n\n"));
    let (out, _) = settle(&mut judge, 1, ApprovalDecision::Approved);
    assert!(out.contains("\"c1\""), "it does not wait for the other choice: {out}");
    let (out, ending) = settle(&mut judge, 0, ApprovalDecision::Declined);
    assert!(!out.contains("\"c0\""), "{out}");
    assert!(matches!(ending, Some(Ending::Reask { choice: 0, .. })), "{ending:?}");
}

#[test]
fn a_last_event_without_its_end_gets_one_where_something_of_toolreins_follows_it() {
    let stream = [text("I pay."), call(0, "a", "pay", &["{}"]), finish("tool_calls")].concat();
    let mut judge = judge();
    let (before, ending) = whole(&mut judge, stream.trim_end());
    assert_eq!(ending, Ending::Waits);
    let (after, ending) = settle(&mut judge, 0, ApprovalDecision::Approved);
    assert_eq!(ending, Some(Ending::Complete));
    assert!(!before.contains("\n\n\n"), "{before}");
    assert!(after.ends_with("}\n\n: toolrein confirm=approved\n"), "{after}");
}

#[test]
fn a_held_call_is_never_released_on_overflow_or_upstream_error() {
    let limits = Limits { held: 2048, ..LIMITS };
    let mut judge = streamed(judging(HELD), limits);
    let long = "x".repeat(3000);
    let stream =
        [call(0, "a", "pay", &["{}"]), call(1, "b", "search", &[&format!("{{\"q\":\"{long}\"}}")])].concat();
    let mut out = Vec::new();
    judge.push(Bytes::from(stream), 0, &mut out);
    assert!(!String::from_utf8_lossy(&out.concat()).contains("pay"));
    assert_eq!(judge.judging.waiting().len(), 0, "nobody is asked any more");

    let mut judge = self::judge();
    let error = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n";
    let (out, ending) = whole(&mut judge, &format!("{}{error}", call(0, "a", "pay", &["{}"])));
    assert!(!out.contains("pay") && out.contains("overloaded") && ending == Ending::Complete, "{out}");
}
