//! Cases and laws of replies of Anthropic's Messages API. What comes out is read by clients of its own.

mod client;
mod laws;
mod recorded;
mod rules;

use self::client::{calls, events, flaws, readings, reasons, texts};
use super::super::*;
use super::{LIMITS, run, settle, whole};
use crate::judging::{AnswerTools, holding_tests};
use dialects::MESSAGES;
use model::Transcript;
use model::identity::{Hash, HashKey, Identity};
use model::memo::NoMemo;
use model::plan::approval::ApprovalDecision;
use model::plan::{Proposed, Reason, ReasonKind, Verdict};
use policies::about::About;
use policies::set::{PolicySet, Rule, RuleOf};
use policies::{ConfigError, Policy};
use serde_json::json;
use std::sync::Arc;

/// The odd replies; their README says where they come from.
const VARIANTS: &str = include_str!("../../../../../tests/data/messages/variants.jsonl");

/// Blocks calls of a tool, and calls whose arguments hold a word, and corrects those for Rome. Nothing that it has not judged
/// may pass.
#[derive(Clone, Copy, Default)]
pub(super) struct Blocks {
    pub(super) tool: &'static str,
    pub(super) word: &'static str,
}

impl Policy for Blocks {
    const NAME: &'static str = "blocks";
    const SUMMARY: &'static str = "for tests";
    type Config = ();
    type State = ();

    fn new(_: ()) -> Result<Self, Vec<ConfigError>> {
        Ok(Self::default())
    }

    fn about(&self) -> About {
        About { restricts_calls: true, ..About::default() }
    }

    fn judge(&self, call: &Proposed<'_>, _state: &()) -> Verdict {
        let arguments = match call.arguments {
            _ if call.name == self.tool => {
                return Verdict::Block(Reason::new(ReasonKind::RateLimit, "no".to_owned()));
            }
            None if self.word.is_empty() => return Verdict::Allow,
            None => return Verdict::NeedsArguments,
            Some(arguments) => arguments,
        };
        if !self.word.is_empty() && arguments.contains(self.word) {
            return Verdict::Block(Reason::new(ReasonKind::RateLimit, "no".to_owned()));
        }
        let is_corrected = !self.word.is_empty() && arguments.contains("rome");
        if is_corrected { Verdict::Modify(r#"{"city":"bonn"}"#.to_owned()) } else { Verdict::Allow }
    }
}

/// Calls for Paris are blocked.
pub(super) const PARIS: Blocks = Blocks { tool: "", word: "paris" };
/// All calls of the only tool are blocked.
const WEATHER: Blocks = Blocks { tool: "get_weather", word: "" };

/// A judge by this policy, or by none.
pub(super) fn judging(policy: Option<Blocks>, observes: bool) -> Judging {
    let rules = policy.into_iter().map(|policy| Arc::new(RuleOf::new(policy)) as Arc<dyn Rule>);
    judging_of(rules.collect(), observes)
}

/// A judge by this policy.
fn judging_by(policy: impl Policy) -> Judging {
    judging_of(vec![Arc::new(RuleOf::new(policy))], false)
}

fn judging_of(rules: Vec<Arc<dyn Rule>>, observes: bool) -> Judging {
    let request = dialects::chat::parse(br#"{"messages":[]}"#).unwrap();
    let identity = Identity { key: HashKey::fixed(1), caller: Hash(1), explicit: None };
    let transcript = Transcript::read(request, Vec::new(), identity, Arc::new(NoMemo));
    let judge = PolicySet::new(rules).read(&transcript).1;
    Judging::new(judge, AnswerTools::default(), observes)
}

/// A pipeline of the Messages API.
pub(super) fn pipeline(judging: Judging, form: Form, options: Options) -> ReplyPipeline {
    ReplyPipeline::new(judging, MESSAGES, form, LIMITS, options)
}

pub(super) fn judge(policy: Blocks) -> ReplyPipeline {
    pipeline(judging(Some(policy), false), Form::Streamed, Options::default())
}

/// One odd reply.
struct Variant {
    name: String,
    form: Form,
    body: String,
}

fn variants() -> Vec<Variant> {
    let read = |line: &str| {
        let said: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| said[key].as_str().unwrap().to_owned();
        let form = if said["form"] == "json" { Form::Whole } else { Form::Streamed };
        Variant { name: text("variant"), form, body: text("body") }
    };
    let variants: Vec<Variant> = VARIANTS.lines().map(read).collect();
    assert_eq!(variants.len(), 68);
    variants
}

/// The body in one piece, byte by byte, and in five other ways.
fn splits(body: &str) -> Vec<Vec<&[u8]>> {
    let bytes = body.as_bytes();
    let thirds = bytes.len().div_ceil(3);
    let sizes = [bytes.len(), 1, 7, 64, 333, thirds];
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    sizes.iter().map(|size| bytes.chunks(*size).collect()).chain([lines]).collect()
}

/// What comes out for a variant, which is the same for each way to split it.
fn outcome(variant: &Variant, policy: Blocks) -> (String, Ending, ReplyPipeline) {
    let mut all = splits(&variant.body).into_iter().map(|chunks| {
        let mut judge = pipeline(judging(Some(policy), false), variant.form, Options::default());
        let (out, ending) = run(&mut judge, chunks);
        (out, ending, judge)
    });
    let first = all.next().unwrap();
    for (out, ending, judge) in all {
        assert_eq!((&out, &ending), (&first.0, &first.1), "{}", variant.name);
        assert_eq!(judge.judging.record, first.2.judging.record, "{}", variant.name);
    }
    first
}

#[test]
fn where_no_policy_acts_every_odd_reply_goes_out_as_it_came() {
    for variant in variants() {
        for (policy, observes) in [(None, false), (Some(PARIS), true), (Some(WEATHER), true)] {
            for chunks in splits(&variant.body) {
                let mut judge = pipeline(judging(policy, observes), variant.form, Options::default());
                let given = run(&mut judge, chunks);
                assert_eq!(given, (variant.body.clone(), Ending::Complete), "{}", variant.name);
                assert!(!judge.is_changed(), "{}", variant.name);
            }
        }
    }
}

#[test]
fn a_sound_reply_goes_out_as_it_came_where_a_policy_restricts_calls_and_objects_to_none() {
    let nowhere = Blocks { tool: "", word: "atlantis" };
    let sound = variants().into_iter().filter(|variant| flaws(&variant.body).is_empty());
    // Their calls are not where every client reads them, or no calls are.
    let others = [
        "leak_in_message_start",
        "input_in_start_other_deltas",
        "leak_deltas_to_text_block",
        "dup_key_name",
        "cut_mid_args",
    ];
    let sound: Vec<Variant> = sound.filter(|variant| !others.contains(&&*variant.name)).collect();
    assert!(sound.len() > 30, "{}", sound.len());
    for variant in sound {
        let (out, ending, _) = outcome(&variant, nowhere);
        assert_eq!((out, ending), (variant.body.clone(), Ending::Complete), "{}", variant.name);
    }
}

/// Streams that go on after their end: what comes there is judged and goes out there.
const BEYOND_THE_END: [&str; 3] = ["two_message_deltas", "two_whole_messages", "after_message_stop_blocks"];
/// Streams in which no call for Berlin is complete.
const WITHOUT_BERLIN: [&str; 2] = ["cut_mid_args", "no_block_start"];

#[test]
fn no_client_reads_a_call_whose_arguments_are_blocked_and_the_others_are_left() {
    for variant in variants() {
        let (out, ending, judge) = outcome(&variant, PARIS);
        let name = &variant.name;
        for reading in readings(&out) {
            assert!(!reading.contains("paris"), "{name}: {reading} in {out}");
        }
        let is_for_berlin = |(_, arguments): &(String, String)| arguments.contains("berlin");
        let is_there = calls(&variant.body).iter().any(is_for_berlin) && !WITHOUT_BERLIN.contains(&&**name);
        assert_eq!(
            calls(&out).iter().filter(|call| is_for_berlin(call)).count(),
            usize::from(is_there),
            "{name}: {out}"
        );
        let is_broken_off = name == "cut_mid_args";
        assert_eq!(judge.broken_off().is_some(), is_broken_off, "{name}");
        assert_eq!(ending == Ending::Complete, !is_broken_off, "{name}: {ending:?}");
        if variant.form == Form::Streamed {
            assert_sound(&variant, &out);
        }
    }
}

/// Asserts that a client's stream has no flaw that the upstream's end does not explain.
fn assert_sound(variant: &Variant, out: &str) {
    let mut found = flaws(out);
    if BEYOND_THE_END.contains(&&*variant.name) {
        found.retain(|flaw| !["a block outside of the message", "a second end"].contains(flaw));
    }
    if variant.name == "cut_before_block_stop" {
        found.retain(|flaw| *flaw != "a block that is not stopped");
    }
    if variant.name == "delta_without_usage" {
        found.retain(|flaw| *flaw != "an end without usage");
    }
    assert!(found.is_empty(), "{}: {found:?} in {out}", variant.name);
}

/// A reply that is this text alone.
pub(super) fn text_reply(text: &str) -> String {
    message("msg_later", &[text_block(0, &[text])], Some("end_turn"))
}

/// A stream with these blocks; without a reason it is cut.
pub(super) fn message(id: &str, blocks: &[String], reason: Option<&str>) -> String {
    let usage = json!({"input_tokens": 100, "output_tokens": 1});
    let head = json!({"id": id, "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    let head = event(&json!({"type": "message_start", "message": head}));
    let end = |reason: &str| {
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        let end = json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}});
        event(&end) + &event(&json!({"type": "message_stop"}))
    };
    head + &blocks.concat() + &reason.map_or_else(String::new, end)
}

pub(super) fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn block(index: u64, block: &Value, deltas: &[Value]) -> String {
    let start = event(&json!({"type": "content_block_start", "index": index, "content_block": block}));
    let delta = |delta| event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
    let deltas: String = deltas.iter().map(delta).collect();
    start + &deltas + &event(&json!({"type": "content_block_stop", "index": index}))
}

pub(super) fn text_block(index: u64, pieces: &[&str]) -> String {
    let deltas: Vec<Value> = pieces.iter().map(|text| json!({"type": "text_delta", "text": text})).collect();
    block(index, &json!({"type": "text", "text": ""}), &deltas)
}

pub(super) fn call_block(index: u64, name: &str, pieces: &[&str]) -> String {
    let delta = |piece: &&str| json!({"type": "input_json_delta", "partial_json": piece});
    let deltas: Vec<Value> = pieces.iter().map(delta).collect();
    block(index, &tool_use(&format!("toolu_{index}"), name, &json!({})), &deltas)
}

fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input, "caller": {"type": "direct"}})
}

#[test]
fn a_reply_whose_calls_are_all_blocked_by_name_is_continued_by_the_next_one_as_one_message() {
    let mut asked_again = 0;
    for variant in variants().into_iter().filter(|variant| variant.form == Form::Streamed) {
        let (mut out, ending, mut judge) = outcome(&variant, WEATHER);
        let name = &variant.name;
        if let Ending::Reask { choice: 0, hidden } = &ending {
            assert!(reasons(&out).is_empty() && !out.contains("message_stop"), "{name}: {out}");
            let hidden = format!("[{}]", std::str::from_utf8(hidden).unwrap());
            let hidden: Value = serde_json::from_str(&hidden).unwrap();
            let blocked =
                hidden[0]["content"].as_array().unwrap().iter().filter(|block| block["type"] == "tool_use");
            let results = hidden[1]["content"].as_array().unwrap();
            assert_eq!(blocked.count(), results.len(), "{name}");
            judge.continue_with(0);
            let (more, ending) = whole(&mut judge, &text_reply("It is sunny."));
            assert_eq!(ending, Ending::Complete, "{name}");
            out += &more;
            assert_eq!(
                (texts(&out).last().unwrap().as_str(), reasons(&out)),
                ("It is sunny.", vec!["end_turn".into()]),
                "{name}"
            );
            assert!(out.trim_end().ends_with(r#"{"type":"message_stop"}"#), "{name}: {out}");
            let mut ends = events(&out).into_iter().filter(|event| event["type"] == "message_delta");
            let usage = ends.next_back().unwrap()["usage"].clone();
            let sums = [usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64()];
            let reported = events(&variant.body)
                .iter()
                .any(|event| event["type"] == "message_delta" && event["usage"].is_object());
            assert_eq!(sums, [Some(200), Some(if reported { 57 } else { 8 })], "{name}");
            asked_again += 1;
        }
        assert!(calls(&out).iter().all(|(tool, _)| tool != "get_weather"), "{name}: {out}");
        assert!(readings(&out).iter().all(|read| !read.contains("berlin")), "{name}: {out}");
        assert_sound(&variant, &out);
    }
    assert!(asked_again > 45, "{asked_again}");
}

#[test]
fn a_whole_reply_loses_its_blocked_calls_and_a_later_one_continues_it() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let reply = |id: &str, content: &Value, reason: &str| {
        json!({"id": id, "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason,
            "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5}})
        .to_string()
    };
    let city = |name: &str| tool_use(name, "get_weather", &json!({"city": name}));
    let of = |policy| pipeline(judging(Some(policy), false), Form::Whole, Options::default());
    let both = reply("msg_1", &json!([text("I look."), city("paris"), city("berlin")]), "tool_use");
    let (out, ending) = whole(&mut of(PARIS), &both);
    assert_eq!(ending, Ending::Complete);
    assert_eq!(out, reply("msg_1", &json!([text("I look."), city("berlin")]), "tool_use"));
    let only = reply("msg_1", &json!([text("I look."), city("paris")]), "tool_use");
    let mut judge = of(PARIS);
    let (out, ending) = whole(&mut judge, &only);
    assert!(out.is_empty() && matches!(ending, Ending::Reask { choice: 0, .. }), "{out} {ending:?}");
    judge.continue_with(0);
    let (out, ending) = whole(&mut judge, &reply("msg_2", &json!([text("Sunny.")]), "end_turn"));
    assert_eq!(ending, Ending::Complete);
    let expected = reply("msg_1", &json!([text("I look."), text("Sunny.")]), "end_turn");
    let expected = expected
        .replace("\"input_tokens\":10", "\"input_tokens\":20")
        .replace("\"output_tokens\":5", "\"output_tokens\":10");
    assert_eq!(out, expected);
}

#[test]
fn a_policy_that_only_limits_calls_removes_them_from_sound_streams_too() {
    let parts = [
        text_block(0, &["I look."]),
        call_block(1, "g", &["{\"q\":", "\"bad\"}"]),
        call_block(2, "g", &["{\"q\":", "1}"]),
        text_block(3, &["Done."]),
    ];
    let stream = message("msg_1", &parts, Some("tool_use"));
    for chunks in splits(&stream) {
        let mut judge = pipeline(super::judging(true), Form::Streamed, Options::default());
        let (out, ending) = run(&mut judge, chunks);
        assert_eq!((ending, flaws(&out)), (Ending::Complete, vec![]), "{out}");
        assert_eq!(calls(&out), [("g".to_owned(), r#"{"q":1}"#.to_owned())]);
        assert_eq!(
            (texts(&out), reasons(&out)),
            (vec!["I look.".into(), "Done.".into()], vec!["tool_use".into()])
        );
    }
}

#[test]
fn a_changed_call_goes_out_once_with_one_delta_right_after_its_start() {
    let before = text_block(0, &["I look."]);
    let changed = call_block(1, "get_weather", &["{\"city\":", "\"rome\"}"]);
    let (out, _) = whole(&mut judge(PARIS), &message("msg_1", &[before.clone(), changed], Some("tool_use")));
    let call = events(&out)[4..7].to_vec();
    let kinds: Vec<&str> = call.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["content_block_start", "content_block_delta", "content_block_stop"], "{out}");
    assert_eq!(
        call[0]["content_block"],
        tool_use("toolu_1", "get_weather", &json!({})),
        "other members stay"
    );
    assert_eq!(call[1]["delta"], json!({"type": "input_json_delta", "partial_json": "{\"city\":\"bonn\"}"}));
    assert!(!out.contains("rome") && flaws(&out).is_empty(), "{out}");
    // Not all clients read arguments in a start, but of a program's call they stand nowhere else.
    for (caller, in_start, next) in [
        ("direct", json!({}), "content_block_delta"),
        ("code_execution_20260120", json!({"city": "bonn"}), "content_block_stop"),
    ] {
        let mut call = tool_use("toolu_1", "get_weather", &json!({"city": "rome"}));
        call["caller"]["type"] = caller.into();
        let blocks = [before.clone(), block(1, &call, &[])];
        let (out, _) = whole(&mut judge(PARIS), &message("msg_1", &blocks, Some("tool_use")));
        assert_eq!(events(&out)[4]["content_block"]["input"], in_start, "{out}");
        assert_eq!(events(&out)[5]["type"], next, "{out}");
        assert_eq!(calls(&out), [("get_weather".to_owned(), "{\"city\":\"bonn\"}".to_owned())], "{out}");
    }
}

/// A stream whose head holds the whole message, as programmatic tool calling sends it.
fn head_alone(content: &Value, reason: &str) -> String {
    let head = json!({"id": "msg_9", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 30, "output_tokens": 9}});
    event(&json!({"type": "message_start", "message": head})) + &event(&json!({"type": "message_stop"}))
}

#[test]
fn the_calls_in_the_head_of_a_stream_are_judged_and_the_others_are_left() {
    let call = |city: &str| tool_use(city, "get_weather", &json!({ "city": city }));
    let both = head_alone(&json!([call("paris"), call("berlin")]), "tool_use");
    for chunks in splits(&both) {
        let (out, ending) = run(&mut judge(PARIS), chunks);
        assert_eq!(ending, Ending::Complete);
        assert_eq!(calls(&out), [("get_weather".to_owned(), r#"{"city":"berlin"}"#.to_owned())], "{out}");
        assert!(readings(&out).iter().all(|reading| !reading.contains("paris")), "{out}");
        assert_eq!((flaws(&out), reasons(&out)), (vec![], vec!["tool_use".to_owned()]), "{out}");
    }
    // Without a policy that restricts calls nothing is written anew.
    let mut idle = pipeline(judging(None, false), Form::Streamed, Options::default());
    assert_eq!(whole(&mut idle, &both), (both.clone(), Ending::Complete));
    let calls: Vec<String> = idle.shown()[0].released().iter().map(|call| call.arguments()).collect();
    assert_eq!(calls, [r#"{"city":"paris"}"#, r#"{"city":"berlin"}"#], "it is read all the same");
}

#[test]
fn a_later_reply_whose_head_holds_everything_goes_on_in_the_message_of_the_first() {
    let first = message(
        "msg_1",
        &[text_block(0, &["I look."]), call_block(1, "get_weather", &["{\"city\":\"paris\"}"])],
        Some("tool_use"),
    );
    let mut judge = judge(PARIS);
    let (mut out, ending) = whole(&mut judge, &first);
    assert!(matches!(ending, Ending::Reask { .. }), "{ending:?}");
    judge.continue_with(0);
    let content = json!([{"type": "text", "text": "So Berlin."}, tool_use("toolu_b", "get_weather", &json!({"city": "berlin"}))]);
    let (more, ending) = whole(&mut judge, &head_alone(&content, "tool_use"));
    out += &more;
    assert_eq!((ending, flaws(&out)), (Ending::Complete, vec![]), "{out}");
    assert_eq!(texts(&out), ["I look.", "So Berlin."]);
    assert_eq!(calls(&out), [("get_weather".to_owned(), r#"{"city":"berlin"}"#.to_owned())]);
    assert_eq!(out.matches("\"msg_1\"").count() + out.matches("\"msg_9\"").count(), 1, "one head: {out}");
}

#[test]
fn an_error_of_toolreins_own_comes_after_the_end_of_the_open_block() {
    let begun = text_block(0, &["I am abou"]);
    let begun = &begun[..begun.find("event: content_block_stop").unwrap()];
    let mut judge = judge(PARIS);
    let mut out = Vec::new();
    judge.push(Bytes::from(message("msg_1", &[begun.to_owned()], None)), 0, &mut out);
    out.push(judge.own_error_event("The upstream is gone.", "upstream_gone"));
    let out = String::from_utf8(out.concat()).unwrap();
    assert_eq!(flaws(&out), [""; 0], "{out}");
    let last = events(&out).pop().unwrap();
    assert_eq!(last["error"], json!({"type": "api_error", "message": "The upstream is gone."}));
}

#[test]
fn a_call_that_waits_for_a_person_keeps_what_is_after_it_and_goes_out_in_one_piece() {
    let tables = "[confirm]\ntools = [\"pay\"]\nform = \"held\"\n";
    let judge = || pipeline(holding_tests::judging(tables), Form::Streamed, Options::default());
    let parts = [
        text_block(0, &["I pay."]),
        call_block(1, "pay", &["{\"to\":", "\"a\"}"]),
        text_block(2, &["Done."]),
    ];
    let stream = message("msg_1", &parts, Some("tool_use"));
    let until = stream
        .find("event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1")
        .unwrap();
    for chunks in splits(&stream) {
        let mut judge = judge();
        let (mut out, ending) = run(&mut judge, chunks);
        assert_eq!((out.as_str(), ending), (&stream[..until], Ending::Waits));
        let mut rest = Vec::new();
        settle(&mut judge, 0, ApprovalDecision::Approved, &mut rest);
        assert_eq!(judge.finish(0, &mut rest), Ending::Complete);
        out += std::str::from_utf8(&rest.concat()).unwrap();
        assert_eq!(calls(&out), [("pay".to_owned(), r#"{"to":"a"}"#.to_owned())]);
        assert_eq!(
            (texts(&out), flaws(&out)),
            (vec!["I pay.".to_owned(), "Done.".to_owned()], vec![]),
            "{out}"
        );
    }
    let mut declined = judge();
    whole(&mut declined, &stream);
    let mut rest = Vec::new();
    settle(&mut declined, 0, ApprovalDecision::Declined, &mut rest);
    assert!(matches!(declined.finish(0, &mut rest), Ending::Reask { choice: 0, .. }));
}

#[test]
fn a_line_to_the_person_is_a_block_of_its_own_before_the_others() {
    let options = Options { preface: Some("(No tools.)".to_owned()), ..Options::default() };
    let stream =
        message("msg_1", &[text_block(0, &["Hi"]), call_block(1, "get_weather", &["{}"])], Some("tool_use"));
    let (out, _) = whole(&mut pipeline(judging(None, false), Form::Streamed, options), &stream);
    assert_eq!(
        (texts(&out), flaws(&out)),
        (vec!["(No tools.)".to_owned(), "Hi".to_owned()], vec![]),
        "{out}"
    );
    assert_eq!(calls(&out).len(), 1);
}

#[test]
fn thinking_goes_back_to_the_model_whole_and_arguments_that_are_no_object_within_one() {
    let thinking = block(
        0,
        &json!({"type": "thinking", "thinking": "", "signature": ""}),
        &[
            json!({"type": "thinking_delta", "thinking": "one "}),
            json!({"type": "thinking_delta", "thinking": "two"}),
            json!({"type": "signature_delta", "signature": "c2ln"}),
        ],
    );
    let call = call_block(1, "get_weather", &["\"paris"]);
    let mut judge = judge(PARIS);
    let (_, ending) = whole(&mut judge, &message("msg_1", &[thinking, call], Some("tool_use")));
    let Ending::Reask { hidden, .. } = ending else { panic!("{ending:?}") };
    let hidden: Value =
        serde_json::from_str(&format!("[{}]", std::str::from_utf8(&hidden).unwrap())).unwrap();
    assert_eq!(
        hidden[0]["content"][0],
        json!({"type": "thinking", "thinking": "one two", "signature": "c2ln"})
    );
    let call = tool_use("toolu_1", "get_weather", &json!({"invalid_arguments": "\"paris"}));
    assert_eq!(hidden[0]["content"][1], call);
    assert_eq!(hidden[0]["shown"], json!([0]));
    assert_eq!(hidden[1]["content"][0]["is_error"], true);
    assert_eq!(hidden[1]["content"][0]["tool_use_id"], "toolu_1");
}
