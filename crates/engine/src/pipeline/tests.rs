//! Cases and laws of a streamed reply. The upstream's bytes are written here, so that what comes out can be
//! compared byte for byte.

use super::*;
use crate::effects::EffectResult;
use crate::judging::{AnswerTools, Judging};
use dialects::CHAT;
use dialects::codec::MOST_CALLS;
use dialects::edit::NO_ANSWER;
use model::Transcript;
use model::assembled::Assembled;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use model::plan::approval::ApprovalDecision;
use model::plan::{Proposed, Reason, ReasonKind, Verdict};
use model::record::{Action, On};
use model::request::Request;
use policies::set::{PolicySet, Rule, RuleOf};
use policies::{ConfigError, Policy};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

/// A judge that blocks calls by name (`deny*`) or by what their arguments hold (`bad`), replaces the arguments of
/// calls of `fix` that are spoilt, and answers calls of `known`.
struct Picky {
    by_arguments: bool,
}

impl Policy for Picky {
    const NAME: &'static str = "picky";
    const SUMMARY: &'static str = "for tests";
    type Config = ();
    type State = ();

    fn new(_: ()) -> Result<Self, Vec<ConfigError>> {
        Ok(Self { by_arguments: false })
    }

    fn judge(&self, call: &Proposed<'_>, _state: &()) -> Verdict {
        if self.by_arguments && call.arguments.is_none() {
            return Verdict::NeedsArguments;
        }
        match call.name {
            "fix" if call.arguments.is_some_and(|text| text.contains("spoilt")) => {
                return Verdict::Modify(r#"{"say":"\"fixed\""}"#.to_owned());
            }
            "known" => return Verdict::Answer { content: "It is \"known\".".to_owned(), re_requests: None },
            _ => {}
        }
        let denied = match self.by_arguments {
            true => call.arguments.unwrap_or("").contains("bad"),
            false => call.name.starts_with("deny"),
        };
        if !denied {
            return Verdict::Allow;
        }
        let message = "no".to_owned();
        Verdict::Block(Reason::new(ReasonKind::RateLimit, message))
    }
}

pub(super) const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };

pub(crate) fn judging(by_arguments: bool) -> Judging {
    judging_as(by_arguments, false)
}

fn judging_as(by_arguments: bool, observe: bool) -> Judging {
    let tools = ["ok", "fine", "deny", "f", "g", "fix", "known"];
    let tools = tools.map(|name| json!({"type": "function", "function": {"name": name}}));
    let body = json!({"messages": [], "tools": tools}).to_string();
    let body = body.as_bytes();
    let request = dialects::chat::parse(body).unwrap();
    // As in a request of the Responses API that declares no shell: the tests of its replies use this judge too.
    let request = Request { hosts_shell: true, ..request };
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
    let rule: Arc<dyn Rule> = Arc::new(RuleOf::new(Picky { by_arguments }));
    Judging::new(PolicySet::new(vec![rule]).read(&transcript).1, AnswerTools::default(), observe)
}

/// A pipeline of chat completions.
pub(super) fn pipeline(judging: Judging, form: Form, limits: Limits, options: Options) -> ReplyPipeline {
    ReplyPipeline::new(judging, CHAT, form, limits, options)
}

pub(super) fn streamed(judging: Judging, limits: Limits) -> ReplyPipeline {
    pipeline(judging, Form::Streamed, limits, Options::default())
}

pub(super) fn judge(by_arguments: bool) -> ReplyPipeline {
    streamed(judging(by_arguments), LIMITS)
}

/// Everything that comes out for `chunks`, and how it ended.
pub(super) fn run<'a>(
    judge: &mut ReplyPipeline,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (String, Ending) {
    let mut out = Vec::new();
    for chunk in chunks {
        judge.push(Bytes::copy_from_slice(chunk), 0, &mut out);
    }
    let ending = judge.finish(0, &mut out);
    (String::from_utf8(out.concat()).unwrap(), ending)
}

pub(super) fn whole(judge: &mut ReplyPipeline, stream: &str) -> (String, Ending) {
    run(judge, [stream.as_bytes()])
}

/// Gives a person's decision on the call of this number.
pub(super) fn settle(judge: &mut ReplyPipeline, call: u32, decision: ApprovalDecision, out: &mut Vec<Bytes>) {
    judge.finish_effect(call, &EffectResult::Decided(decision.into()), out);
}

pub(super) fn event(choices: &Value) -> String {
    format!("data: {}\n\n", json!({"id": "chatcmpl-1", "model": "m", "created": 1, "choices": choices}))
}

pub(super) fn delta(delta: &Value) -> String {
    event(&json!([{"index": 0, "delta": delta, "finish_reason": null}]))
}

pub(super) fn finish(reason: &str) -> String {
    event(&json!([{"index": 0, "delta": {}, "finish_reason": reason}]))
}

pub(super) fn call(index: usize, id: &str, name: &str, arguments: &[&str]) -> String {
    let mut out = delta(&json!({"tool_calls": [{"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": ""}}]}));
    for piece in arguments {
        out += &delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
    }
    out
}

pub(super) const DONE: &str = "data: [DONE]\n\n";

pub(super) fn role() -> String {
    delta(&json!({"role": "assistant", "content": null}))
}

/// The data of every event, `[DONE]` and comments left out.
pub(super) fn events(stream: &str) -> Vec<Value> {
    let data =
        stream.split("\n\n").filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The text, the calls (index, name, arguments) and the finish reasons that a client assembles.
pub(super) fn client_view(stream: &str) -> (String, Vec<(String, String)>, Vec<String>) {
    let (mut text, mut calls, mut finishes) = (String::new(), Vec::<(String, String)>::new(), Vec::new());
    for event in events(stream) {
        for choice in event["choices"].as_array().unwrap() {
            text += choice["delta"]["content"].as_str().unwrap_or("");
            for call in choice["delta"]["tool_calls"].as_array().unwrap_or(&vec![]) {
                let index = call["index"].as_u64().unwrap() as usize;
                assert!(index <= calls.len(), "indexes are dense");
                if index == calls.len() {
                    calls.push((String::new(), String::new()));
                }
                calls[index].0 += call["function"]["name"].as_str().unwrap_or("");
                calls[index].1 += call["function"]["arguments"].as_str().unwrap_or("");
            }
            finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
        }
    }
    (text, calls, finishes)
}

#[test]
fn text_goes_through_at_once_and_as_it_came() {
    let mut judge = judge(true);
    let mut out = Vec::new();
    for piece in
        [role(), delta(&json!({"content": "a"})), ": ping\r\n\r\n".to_owned(), finish("stop"), DONE.into()]
    {
        out.clear();
        judge.push(Bytes::from(piece.clone()), 0, &mut out);
        assert_eq!(out.concat(), piece.as_bytes());
    }
}

#[test]
fn calls_judged_by_name_stream_through_live() {
    let mut judge = judge(false);
    let stream = call(0, "a", "ok", &["{\"x\"", ":1}"]);
    let mut out = Vec::new();
    for piece in stream.split_inclusive("\n\n") {
        out.clear();
        judge.push(Bytes::copy_from_slice(piece.as_bytes()), 0, &mut out);
        assert_eq!(out.concat(), piece.as_bytes());
        assert!(!judge.is_holding());
    }
}

#[test]
fn calls_judged_by_arguments_are_held_until_they_are_whole_and_come_out_as_they_came() {
    let mut judge = judge(true);
    let first = call(0, "a", "ok", &["{\"x\"", ":1}"]);
    let mut out = Vec::new();
    judge.push(Bytes::from(first.clone()), 0, &mut out);
    assert!(out.is_empty() && judge.is_holding());
    let second = call(1, "b", "ok", &["{}"]);
    judge.push(Bytes::from(second.clone()), 0, &mut out);
    assert_eq!(out.concat(), first.as_bytes(), "the next call ends the first");
    out.clear();
    judge.push(Bytes::from(finish("tool_calls") + DONE), 0, &mut out);
    assert_eq!(out.concat(), (second + &finish("tool_calls") + DONE).as_bytes());
}

#[test]
fn a_client_that_wants_it_reads_what_acted_in_the_member_of_a_chunk_of_its_own() {
    let blocked = role() + &call(0, "a", "ok", &["{}"]) + &call(1, "b", "deny", &["{}"]);
    let plain = delta(&json!({"role": "assistant", "content": "Hello"}));
    for (observe, stream, actions) in [
        (false, blocked.clone() + &finish("tool_calls"), Some(json!(["picky=blocked"]))),
        (false, plain + &finish("stop"), Some(json!([]))),
        (true, blocked + &finish("tool_calls"), None),
    ] {
        let options = Options { reports: true, request_id: "req_1".to_owned(), ..Options::default() };
        let mut judge = pipeline(judging_as(false, observe), Form::Streamed, LIMITS, options);
        let (out, ending) = whole(&mut judge, &(stream + DONE));
        assert_eq!(ending, Ending::Complete);
        assert!(!out.contains(": toolrein") && out.ends_with(DONE), "{out}");
        let events = events(&out);
        let last = events.last().unwrap();
        let Some(actions) = actions else {
            assert!(!out.contains("toolrein"), "observe mode changes nothing: {out}");
            continue;
        };
        assert_eq!(last["toolrein"], json!({"actions": actions, "request_id": "req_1"}));
        assert_eq!([&last["id"], &last["choices"]], [&json!("chatcmpl-1"), &json!([])]);
        assert_eq!(out.matches("\"toolrein\"").count(), 1, "{out}");
    }
}

#[test]
fn an_action_whose_name_has_a_comma_is_one_action_of_the_report() {
    let options = Options { reports: true, ..Options::default() };
    let mut judge = pipeline(judging(false), Form::Streamed, LIMITS, options);
    let (policy, action) = ("states", "entered:open, closed".into());
    judge.judging_mut().set_late_actions(&[Action { policy, action, count: 1, on: On::Request }]);
    let stream = delta(&json!({"role": "assistant", "content": "Hello"})) + &finish("stop") + DONE;
    let out = whole(&mut judge, &stream).0;
    assert_eq!(events(&out).last().unwrap()["toolrein"]["actions"], json!(["states=entered:open, closed"]));
}

#[test]
fn a_blocked_call_is_removed_and_the_other_calls_are_renumbered_without_gaps() {
    for by_arguments in [false, true] {
        let stream = role()
            + &call(0, "a", "ok", &["{}"])
            + &call(1, "b", "deny", &["{\"bad\":1}"])
            + &call(2, "c", "ok2", &["{\"x\":", "1}"])
            + &finish("tool_calls")
            + DONE;
        let mut judge = judge(by_arguments);
        let (out, ending) = whole(&mut judge, &stream);
        assert_eq!(ending, Ending::Complete);
        let (_, calls, finishes) = client_view(&out);
        assert_eq!(calls, [("ok".into(), "{}".into()), ("ok2".into(), "{\"x\":1}".into())]);
        assert_eq!(finishes, ["tool_calls"]);
        assert!(out.ends_with(": toolrein picky=blocked\ndata: [DONE]\n\n"), "{out}");
        let round = judge.shown()[0].hidden_exchange().unwrap();
        assert!(String::from_utf8_lossy(&round).contains(r#""name":"deny""#));
    }
}

#[test]
fn replaced_arguments_are_sent_in_the_calls_first_delta() {
    let piece = |arguments: &Value| {
        delta(&json!({"tool_calls": [{"index": 1, "function": {"arguments": arguments}}]}))
    };
    let head = |function: &Value| {
        delta(&json!({"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": function}]}))
    };
    let ways = [
        call(1, "b", "fix", &["{\"spo", "ilt\":", "1}"]),
        head(&json!({"name": "fix", "arguments": "{\"spoilt\":1}"})),
        head(&json!({"name": "fix"})) + &piece(&json!("{\"spoilt\":")) + &piece(&json!("1}")),
        head(&json!({"name": "fix", "arguments": null})) + &piece(&json!("{\"spoilt\":1}")),
    ];
    for way in ways {
        let stream = role() + &call(0, "a", "ok", &["{}"]) + &way + &finish("tool_calls") + DONE;
        let mut judge = judge(true);
        let (out, ending) = whole(&mut judge, &stream);
        assert_eq!(ending, Ending::Complete);
        let (_, calls, finishes) = client_view(&out);
        let fixed = r#"{"say":"\"fixed\""}"#;
        assert_eq!(calls, [("ok".into(), "{}".into()), ("fix".into(), fixed.into())], "{way}");
        assert_eq!(finishes, ["tool_calls"]);
        assert!(out.contains(": toolrein picky=rewritten"), "{out}");
        let kept: Vec<String> = judge.shown()[0].released().into_iter().map(Assembled::arguments).collect();
        assert_eq!(kept, ["{}", fixed], "what the client sends back is what is remembered");
    }
    let object = head(&json!({"name": "fix", "arguments": {"spoilt": 1}}));
    let (out, _) = whole(&mut judge(true), &(role() + &object + &finish("tool_calls") + DONE));
    let function = &events(&out)[1]["choices"][0]["delta"]["tool_calls"][0]["function"];
    assert_eq!(function["arguments"], json!({"say": "\"fixed\""}), "an object stays one");
}

#[test]
fn a_call_whose_arguments_need_no_change_is_forwarded_unchanged() {
    let stream = role() + &call(0, "a", "fix", &["{\"x\":", "1}"]) + &finish("tool_calls") + DONE;
    assert_eq!(whole(&mut judge(true), &stream), (stream, Ending::Complete));
}

#[test]
fn a_name_that_comes_in_pieces_is_judged_when_it_is_whole() {
    let name =
        |piece: &str| delta(&json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": piece}}]}));
    let arguments = delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}));
    for (pieces, shown) in [(["de", "ny"], 0), (["deny", "_not"], 0), (["o", "k"], 1)] {
        let stream = role() + &name(pieces[0]) + &name(pieces[1]) + &arguments + &finish("tool_calls") + DONE;
        assert_eq!(client_view(&whole(&mut judge(false), &stream).0).1.len(), shown, "{pieces:?}");
    }
}

#[test]
fn a_call_answered_by_toolrein_is_hidden_and_the_model_gets_its_answer() {
    let stream = role() + &call(0, "a", "known", &["{}"]) + &finish("tool_calls") + DONE;
    for by_arguments in [false, true] {
        let mut judge = judge(by_arguments);
        let (out, ending) = whole(&mut judge, &stream);
        let Ending::Reask { choice: 0, hidden: round } = ending else { panic!("{ending:?}") };
        let round: Vec<Value> =
            serde_json::from_str(&format!("[{}]", String::from_utf8_lossy(&round))).unwrap();
        assert_eq!(round[1]["content"], "It is \"known\".");
        assert_eq!(client_view(&out).1, []);
        assert_eq!(judge.judging.record[0].acts, [("picky", "answered")]);
    }
}

#[test]
fn a_stream_with_all_calls_blocked_leads_to_a_re_ask_and_keeps_back_its_end() {
    for by_arguments in [false, true] {
        let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n";
        let stream = role()
            + &delta(&json!({"content": "I look."}))
            + &call(0, "a", "deny", &["{\"bad\":1}"])
            + &finish("tool_calls")
            + usage
            + DONE;
        let mut judge = judge(by_arguments);
        let (out, ending) = whole(&mut judge, &stream);
        let Ending::Reask { choice: 0, hidden: round } = ending else { panic!("{ending:?}") };
        assert!(!String::from_utf8_lossy(&round).contains("I look."), "the client was shown it");
        let (text, calls, finishes) = client_view(&out);
        assert_eq!((text.as_str(), calls.len(), finishes.len()), ("I look.", 0, 0));
        assert!(!out.contains("usage") && !out.contains("DONE"), "{out}");
    }
}

#[test]
fn the_usage_of_a_reply_that_is_asked_again_is_not_lost_where_the_last_reply_reports_none() {
    let usage = |total| format!("data: {{\"choices\":[],\"usage\":{{\"total_tokens\":{total}}}}}\n\n");
    let blocked = role() + &call(0, "a", "deny", &["{}"]) + &finish("tool_calls") + &usage(7) + DONE;
    let answer = role() + &delta(&json!({"content": "No."})) + &finish("stop");
    for (cut_usage, last, expected) in [
        (false, answer.clone() + DONE, vec![7]),
        (false, answer.clone(), vec![7]),
        (false, answer.clone() + &usage(5) + DONE, vec![12]),
        (true, answer + DONE, vec![]),
    ] {
        let options = Options { cut_usage, ..Options::default() };
        let mut judge = pipeline(judging(false), Form::Streamed, LIMITS, options);
        let (mut out, ending) = whole(&mut judge, &blocked);
        assert!(matches!(ending, Ending::Reask { .. }), "{ending:?}");
        judge.continue_with(0);
        judge.begin(Form::Streamed, 200);
        let (more, ending) = whole(&mut judge, &last);
        out.push_str(&more);
        assert_eq!(ending, Ending::Complete);
        let reported: Vec<u64> =
            events(&out).iter().filter_map(|event| event["usage"]["total_tokens"].as_u64()).collect();
        assert_eq!(reported, expected, "{out}");
    }
}

#[test]
fn the_reply_to_a_re_ask_continues_the_same_stream() {
    let usage = |total| {
        format!("data: {{\"id\":\"other\",\"choices\":[],\"usage\":{{\"total_tokens\":{total}}}}}\n\n")
    };
    let first = role()
        + &delta(&json!({"content": "I look."}))
        + &call(0, "a", "deny", &["{}"])
        + &finish("tool_calls")
        + &usage(7)
        + DONE;
    let mut judge = judge(false);
    let (mut out, ending) = whole(&mut judge, &first);
    assert!(matches!(ending, Ending::Reask { .. }));
    judge.continue_with(0);
    let second = (role()
        + &delta(&json!({"content": "So"}))
        + &delta(&json!({"content": " it is."}))
        + &finish("stop"))
        .replace("chatcmpl-1", "chatcmpl-2")
        + &usage(5)
        + DONE;
    let (more, ending) = whole(&mut judge, &second);
    out += &more;
    assert_eq!(ending, Ending::Complete);
    let (text, _, finishes) = client_view(&out);
    assert_eq!(text, "I look.\n\nSo it is.");
    assert_eq!(finishes, ["stop"]);
    let events = events(&out);
    let roles = events.iter().filter(|event| event["choices"][0]["delta"]["role"] == "assistant").count();
    assert_eq!(roles, 1, "one role");
    let ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
    assert!(ids.iter().all(|id| **id == "chatcmpl-1"), "{ids:?}");
    assert_eq!(events.last().unwrap()["usage"]["total_tokens"], 12);
    assert_eq!(out.matches("[DONE]").count(), 1);
    assert_eq!(judge.shown()[0].text(), "I look.\n\nSo it is.");
}

#[test]
fn calls_in_the_final_answer_are_dropped_and_replaced_by_a_fixed_sentence() {
    let mut judge = judge(false);
    let first = role() + &call(0, "a", "deny", &["{}"]) + &finish("tool_calls") + DONE;
    let (mut out, _) = whole(&mut judge, &first);
    judge.judging.land();
    judge.continue_with(0);
    let (more, ending) =
        whole(&mut judge, &(role() + &call(0, "b", "ok", &["{}"]) + &finish("tool_calls") + DONE));
    out += &more;
    assert_eq!(ending, Ending::Complete);
    let (text, calls, finishes) = client_view(&out);
    assert_eq!((text.as_str(), calls.len()), (NO_ANSWER, 0));
    assert_eq!(finishes, ["stop"]);
    assert!(out.ends_with(DONE));
}

#[test]
fn a_final_answer_without_a_finish_reason_gets_one() {
    let mut judge = judge(false);
    let (mut out, _) = whole(&mut judge, &(role() + &call(0, "a", "deny", &["{}"]) + &finish("tool_calls")));
    judge.judging.land();
    judge.continue_with(0);
    let (more, _) = whole(&mut judge, &role());
    out += &more;
    let (text, _, finishes) = client_view(&out);
    assert_eq!((text.as_str(), finishes), (NO_ANSWER, vec!["stop".to_owned()]));
}

#[test]
fn each_choice_is_judged_for_itself() {
    let two = |delta: &Value, finish: &Value| {
        event(&json!([{"index": 1, "delta": delta, "finish_reason": finish}]))
    };
    let stream = role()
        + &delta(&json!({"content": "fine"}))
        + &two(
            &json!({"role": "assistant", "tool_calls": [{"index": 0, "id": "a", "function": {"name": "deny", "arguments": "{}"}}]}),
            &Value::Null,
        )
        + &finish("stop")
        + &two(&json!({}), &json!("tool_calls"))
        + DONE;
    let mut judge = judge(false);
    let (mut out, ending) = whole(&mut judge, &stream);
    assert!(matches!(ending, Ending::Reask { choice: 1, .. }), "{ending:?}");
    judge.continue_with(1);
    let (more, ending) =
        whole(&mut judge, &(role() + &delta(&json!({"content": "two"})) + &finish("stop") + DONE));
    out += &more;
    assert_eq!(ending, Ending::Complete);
    let text_of = |index: u64| -> String {
        let choices: Vec<Value> =
            events(&out).iter().flat_map(|event| event["choices"].as_array().unwrap().clone()).collect();
        let mine = choices.iter().filter(|choice| choice["index"] == index);
        mine.filter_map(|choice| choice["delta"]["content"].as_str()).collect()
    };
    assert_eq!((text_of(0).as_str(), text_of(1).as_str()), ("fine", "two"));
}

#[test]
fn an_error_as_first_event_is_kept_back_and_a_later_one_is_forwarded() {
    let error = "data: {\"error\":{\"message\":\"no tools\"}}\n\n";
    let mut first = judge(false);
    let mut out = Vec::new();
    first.push(Bytes::from_static(error.as_bytes()), 0, &mut out);
    assert!(out.is_empty());
    assert_eq!(first.refusal().unwrap().error.messages, ["no tools"]);
    let mut later = judge(false);
    let stream = role() + error;
    assert_eq!(whole(&mut later, &stream), (stream, Ending::Complete));
}

#[test]
fn a_call_over_the_held_limit_is_released_unjudged_and_counted() {
    let limits = Limits { held: 600, ..LIMITS };
    let mut judge = streamed(judging(true), limits);
    let stream = call(0, "a", "ok", &["{\"bad\":\"", &"x".repeat(300), &"x".repeat(300), "\"}"])
        + &finish("tool_calls")
        + DONE;
    let (out, ending) = run(&mut judge, stream.split_inclusive("\n\n").map(str::as_bytes));
    assert_eq!((out, ending), (stream, Ending::Complete));
    assert_eq!(judge.unjudged(), [Unjudged::HeldTooMuch]);
}

#[test]
fn an_event_over_the_bound_passes_unjudged_and_is_counted() {
    let limits = Limits { event: 300, ..LIMITS };
    let mut judge = streamed(judging(false), limits);
    let stream = delta(&json!({"content": "x".repeat(1000)})) + DONE;
    let (out, _) = run(&mut judge, stream.as_bytes().chunks(100));
    assert_eq!(out, stream);
    assert_eq!(judge.unjudged(), [Unjudged::EventTooLong]);
}

#[test]
fn while_observing_everything_is_judged_and_nothing_is_changed() {
    let mut judge = streamed(judging_as(false, true), LIMITS);
    let stream = role() + &call(0, "a", "deny", &["{}"]) + &finish("tool_calls") + DONE;
    assert_eq!(whole(&mut judge, &stream), (stream, Ending::Complete));
    assert_eq!(judge.judging.record[0].objections.len(), 1);
}

#[test]
fn usage_that_only_toolrein_requested_is_removed_from_the_stream() {
    let chunk = |usage: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}}}}]{usage}}}\n\n")
    };
    let mut judge = judge(false);
    judge.set_options(Options { cut_usage: true, ..Options::default() });
    let stream =
        chunk(",\"usage\":null") + "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n" + DONE;
    assert_eq!(whole(&mut judge, &stream).0, chunk("") + DONE);
    assert_eq!(judge.usage().unwrap()["total_tokens"], 7);
}

#[test]
fn other_members_of_a_usage_chunk_are_kept_if_only_the_usage_is_removed() {
    let said = "data: {\"id\":\"r\",\"system_fingerprint\":\"f\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    let last = |more: &str, usage: &str| format!("data: {{\"id\":\"r\",\"choices\":[]{more}{usage}}}\n\n");
    let usage = ",\"usage\":{\"total_tokens\":7}";
    for (more, stays) in [
        (",\"timings\":{\"prompt_n\":3}", true),
        (",\"service\":\"x\"", true),
        (",\"timings\":null", false),
        // Every chunk had this member.
        (",\"system_fingerprint\":\"f\"", false),
        ("", false),
    ] {
        let mut judge = judge(false);
        judge.set_options(Options { cut_usage: true, ..Options::default() });
        let stream = said.to_owned() + &last(more, usage) + DONE;
        let rest = if stays { last(more, "") } else { String::new() };
        assert_eq!(whole(&mut judge, &stream).0, said.to_owned() + &rest + DONE, "{more}");
    }
}

#[test]
fn a_line_to_the_person_comes_before_the_answer() {
    let mut judge = judge(false);
    judge.set_options(Options { preface: Some("(No tools.)".to_owned()), ..Options::default() });
    let stream = role() + &delta(&json!({"content": "Hi"})) + &finish("stop") + DONE;
    let (out, _) = whole(&mut judge, &stream);
    assert_eq!(client_view(&out).0, "(No tools.)\n\nHi");
    assert_eq!(
        events(&out).iter().filter(|event| event["choices"][0]["delta"]["role"] == "assistant").count(),
        1
    );
}

#[test]
fn the_first_call_that_is_shown_carries_the_signature_of_a_blocked_first_one() {
    let signed = delta(
        &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "deny", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "s"}}}]}),
    );
    let stream = role()
        + &signed
        + &call(1, "b", "ok", &["{}"])
        + &call(2, "c", "ok", &["{}"])
        + &finish("tool_calls");
    let (out, _) = whole(&mut judge(false), &stream);
    assert_eq!(out.matches("thought_signature").count(), 1, "{out}");
    let events = events(&out);
    let first = events
        .iter()
        .map(|event| &event["choices"][0]["delta"]["tool_calls"][0])
        .find(|call| call["id"] == "b");
    assert_eq!(first.unwrap()["extra_content"]["google"]["thought_signature"], "s");
}

#[test]
fn a_released_call_whose_index_was_null_gets_one() {
    let one = |id: &str, name: &str| {
        delta(
            &json!({"tool_calls": [{"index": null, "id": id, "function": {"name": name, "arguments": "{}"}}]}),
        )
    };
    let (out, _) =
        whole(&mut judge(false), &(role() + &one("a", "deny") + &one("b", "ok") + &finish("tool_calls")));
    assert!(!out.contains("\"index\":null"), "{out}");
    assert_eq!(client_view(&out).1, [("ok".into(), "{}".into())]);
}

#[test]
fn parts_too_long_to_be_read_do_not_follow_a_blocked_call() {
    let limits = Limits { event: 300, ..LIMITS };
    let mut judge = streamed(judging(false), limits);
    let long = delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "x".repeat(1000)}}]}));
    let (out, _) = whole(&mut judge, &(role() + &call(0, "a", "deny", &[]) + &long));
    assert!(judge.broken_off().is_some() && !out.contains("xxx"), "{out}");
}

#[test]
fn more_calls_than_are_judged_pass_as_they_came_and_are_counted() {
    let calls: Vec<Value> =
        (0..=MOST_CALLS).map(|at| json!({"index": at, "function": {"name": "deny"}})).collect();
    let stream = delta(&json!({ "tool_calls": calls })) + DONE;
    let mut judge = judge(false);
    assert_eq!(whole(&mut judge, &stream), (stream, Ending::Complete));
    assert_eq!(judge.unjudged(), [Unjudged::ReplyTooLong]);
}

#[test]
fn texts_count_against_the_limit_of_a_reply_whether_they_pass_or_are_read() {
    let limits = Limits { reply: 1000, ..LIMITS };
    let text = delta(&json!({"content": "x".repeat(30)}));
    // After a comment an event is not compared with the one before, but read.
    let passed = ["", ": a comment\n\n"].map(|before| {
        let (mut judge, mut out) = (streamed(judging(false), limits), Vec::new());
        let push = |_: &usize| {
            judge.push(format!("{before}{text}").into(), 0, &mut out);
            judge.unjudged().is_empty()
        };
        (0..100).take_while(push).count()
    });
    assert_eq!(passed[0], passed[1]);
    assert!((10..50).contains(&passed[0]), "{passed:?}");
}

#[test]
fn a_refusal_by_the_model_counts_as_its_answer_and_gets_no_added_sentence() {
    let mut judge = judge(false);
    whole(&mut judge, &(role() + &call(0, "a", "deny", &["{}"]) + &finish("tool_calls") + DONE));
    judge.continue_with(0);
    let (out, _) =
        whole(&mut judge, &(role() + &delta(&json!({"refusal": "I cannot"})) + &finish("stop") + DONE));
    assert!(out.contains("I cannot") && !out.contains(NO_ANSWER), "{out}");
}

/// How a provider writes its calls.
#[derive(Clone, Copy, Debug)]
enum Style {
    Pieces,
    WholeCalls,
    NoIndex,
    Index0,
}

fn arb_reply() -> impl Strategy<Value = (String, Vec<(String, String)>)> {
    let name = prop::sample::select(vec!["ok", "search", "deny", "denyAll"]);
    let arguments = prop::sample::select(vec![
        "{}",
        "{\"q\":\"é\"}",
        "{\"q\":\"bad\"}",
        "",
        "{\"q\":{\"bad\":[1,\"}\"]}}",
    ]);
    let style = prop::sample::select(vec![Style::Pieces, Style::WholeCalls, Style::NoIndex, Style::Index0]);
    let separator = prop::sample::select(vec!["\n\n", "\r\n\r\n"]);
    let texts = prop::collection::vec("[a-zé ]{0,6}", 0..4);
    (prop::collection::vec((name, arguments), 0..4), style, separator, texts, any::<bool>()).prop_map(
        |(calls, style, separator, texts, done)| {
            let mut out = role();
            for text in texts {
                out += &delta(&json!({ "content": text }));
            }
            for (at, (name, arguments)) in calls.iter().enumerate() {
                out += &written(at, name, arguments, style);
            }
            out += &finish(if calls.is_empty() { "stop" } else { "tool_calls" });
            out += if done { DONE } else { "" };
            let calls = calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()));
            (out.replace("\n\n", separator), calls.collect())
        },
    )
}

fn written(at: usize, name: &str, arguments: &str, style: Style) -> String {
    let id = format!("id{at}");
    let whole = json!({"id": id, "function": {"name": name, "arguments": arguments}});
    match style {
        Style::Pieces => {
            let middle = arguments.floor_char_boundary(arguments.len() / 2);
            call(at, &id, name, &[&arguments[..middle], &arguments[middle..]])
        }
        Style::NoIndex => delta(&json!({ "tool_calls": [whole] })),
        Style::WholeCalls | Style::Index0 => {
            let mut whole = whole;
            whole["index"] = json!(if matches!(style, Style::Index0) { 0 } else { at });
            delta(&json!({ "tool_calls": [whole] }))
        }
    }
}

/// `bytes` cut at `places`.
fn chunks<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_bytes_and_the_same_verdicts(
        (stream, calls) in arb_reply(),
        by_arguments in any::<bool>(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let (mut one, mut many) = (judge(by_arguments), judge(by_arguments));
        let expected = whole(&mut one, &stream);
        let given = run(&mut many, chunks(stream.as_bytes(), &places));
        prop_assert_eq!(&given, &expected);
        prop_assert_eq!(&many.judging.record, &one.judging.record);
        let denied = |(name, arguments): &&(String, String)| {
            if by_arguments { arguments.contains("bad") } else { name.starts_with("deny") }
        };
        let left = calls.iter().filter(|call| !denied(call)).count();
        match given {
            (out, Ending::Complete) if left == calls.len() => {
                // Calls that share the index 0 get indexes of their own.
                let share = !stream.contains("\"index\":1");
                let shared = |out: String, index: &str| out.replace(&format!("\"index\":{index}"), "\"index\":0");
                let out = if share { ["1", "2"].into_iter().fold(out, shared) } else { out };
                prop_assert_eq!(out, stream);
            }
            (out, Ending::Complete) => {
                prop_assert!(left > 0);
                prop_assert_eq!(out.matches("\"name\"").count(), left);
            }
            (_, ending @ (Ending::Waits | Ending::Refused | Ending::BrokenOff(_))) => {
                prop_assert!(false, "{:?}", ending);
            }
            (out, Ending::Reask { .. }) => {
                prop_assert!(left == 0);
                prop_assert!(!out.contains("tool_calls") && !out.contains("[DONE]"), "{}", out);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_forwarded_unchanged_without_a_panic(
        bytes in prop::collection::vec(prop::sample::select(b"data: {}[]\"\\:,\n\rtool_calsx0\xff".to_vec()), 0..200),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut judge = streamed(judging(true), LIMITS);
        let mut out = Vec::new();
        for chunk in chunks(&bytes, &places) {
            judge.push(Bytes::copy_from_slice(chunk), 0, &mut out);
        }
        judge.finish(0, &mut out);
        prop_assert_eq!(out.concat(), bytes);
    }
}

#[test]
fn the_fast_path_for_text_chunks_behaves_like_the_full_parser() {
    let texts = ["", "one", " two", "", " \u{e9}", " three and more"];
    // The members beside the text in the second stream keep its chunks from being recognised as text only.
    let stream = |beside: Option<&str>| {
        let chunks = texts.iter().map(|text| {
            let mut said = json!({"content": text});
            if let Some(member) = beside {
                said[member] = Value::Null;
            }
            delta(&said)
        });
        chunks.collect::<Vec<_>>()
    };
    for reply in [8, 1 << 20] {
        let view = |beside| {
            let mut judge = streamed(judging(true), Limits { reply, ..LIMITS });
            let chunks = stream(beside);
            let (out, ending) = run(&mut judge, chunks.iter().map(String::as_bytes));
            assert_eq!(out, chunks.concat(), "as it came");
            let choice = &judge.choices()[0];
            (choice.shown_text(), choice.is_silent(), judge.unjudged().to_vec(), judge.is_hiding(), ending)
        };
        assert_eq!(view(None), view(Some("refusal")), "{reply}");
    }
}

mod held;
mod laws;
mod lines;
mod messages;
mod order;
mod responses;
mod rules;
mod stream_quirks;
mod waiting;
mod whole_quirks;
