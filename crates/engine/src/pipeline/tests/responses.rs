//! Cases and laws of replies of the Responses API. The upstream's bytes are written here, so that what comes out can be
//! compared byte for byte.

use super::super::*;
use super::judging;
use dialects::RESPONSES;
use proptest::prelude::*;
use serde_json::{Value, json};

mod quirks;

const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 22 };

fn judge(by_arguments: bool) -> ReplyPipeline {
    pipeline(judging(by_arguments), Form::Streamed)
}

/// A pipeline of the Responses API.
fn pipeline(judging: Judging, form: Form) -> ReplyPipeline {
    ReplyPipeline::new(judging, RESPONSES, form, LIMITS, Options::default())
}

/// Everything that comes out for `chunks`, and how it ended.
fn run<'a>(judge: &mut ReplyPipeline, chunks: impl IntoIterator<Item = &'a [u8]>) -> (String, Ending) {
    let mut out = Vec::new();
    for chunk in chunks {
        judge.push(Bytes::copy_from_slice(chunk), 0, &mut out);
    }
    let ending = judge.finish(0, &mut out);
    (String::from_utf8(out.concat()).unwrap(), ending)
}

fn whole(judge: &mut ReplyPipeline, stream: &str) -> (String, Ending) {
    run(judge, [stream.as_bytes()])
}

/// A scripted reply: its items, and the events for them.
pub(super) struct Script {
    id: &'static str,
    events: Vec<Value>,
    output: Vec<Value>,
    first: u64,
}

impl Script {
    pub(super) fn new(id: &'static str) -> Self {
        let response =
            json!({"id": id, "object": "response", "status": "in_progress", "model": "m", "output": []});
        let events = ["response.created", "response.in_progress"]
            .map(|kind| json!({"type": kind, "response": response}));
        Self { id, events: events.into(), output: Vec::new(), first: 0 }
    }

    fn item(mut self, added: &Value, between: Vec<Value>, done: Value) -> Self {
        let at = self.output.len() as u64 + self.first;
        self.events.push(json!({"type": "response.output_item.added", "output_index": at, "item": added}));
        for mut event in between {
            event["output_index"] = at.into();
            self.events.push(event);
        }
        self.events.push(json!({"type": "response.output_item.done", "output_index": at, "item": done}));
        self.output.push(done);
        self
    }

    pub(super) fn call(self, id: &str, name: &str, arguments: &str) -> Self {
        let item = |arguments: &str, status: &str| {
            json!({"id": format!("fc_{id}"), "type": "function_call", "status": status, "call_id": format!("call_{id}"),
                "name": name, "arguments": arguments})
        };
        let (one, two) = arguments.split_at(arguments.len() / 2);
        let delta = |piece: &str| json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{id}"), "delta": piece});
        let end = json!({"type": "response.function_call_arguments.done", "item_id": format!("fc_{id}"), "arguments": arguments});
        self.item(&item("", "in_progress"), vec![delta(one), delta(two), end], item(arguments, "completed"))
    }

    fn reasoning(self, id: &str) -> Self {
        let item = json!({"id": id, "type": "reasoning", "summary": [], "encrypted_content": "gAAA"});
        self.item(&item.clone(), vec![], item)
    }

    pub(super) fn text(self, id: &str, text: &str) -> Self {
        let item = |content: &Value| json!({"id": id, "type": "message", "role": "assistant", "status": "completed", "content": content});
        let delta =
            json!({"type": "response.output_text.delta", "item_id": id, "content_index": 0, "delta": text});
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        self.item(&item(&json!([])), vec![delta], item(&content))
    }

    fn response(&self, status: &str) -> Value {
        json!({"id": self.id, "object": "response", "status": status, "model": "m", "output": self.output,
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 2}}})
    }

    fn data(mut self) -> Vec<Value> {
        let end = json!({"type": "response.completed", "response": self.response("completed")});
        self.events.push(end);
        for (at, event) in self.events.iter_mut().enumerate() {
            event["sequence_number"] = at.into();
        }
        self.events
    }

    pub(super) fn stream(self) -> String {
        framed(&self.data())
    }
}

pub(super) fn framed(events: &[Value]) -> String {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// What is wrong with a stream, by the rules that validators of this API hold.
fn flaws(stream: &str) -> Vec<String> {
    let (mut flaws, mut next, mut open, mut ids) = (Vec::new(), 0, None, std::collections::BTreeSet::new());
    let events = events(stream);
    for (at, event) in events.iter().enumerate() {
        if event["sequence_number"] != json!(at) {
            flaws.push(format!("sequence {} at {at}", event["sequence_number"]));
        }
        ids.extend(event["response"]["id"].as_str().map(str::to_owned));
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                if open.is_some() || event["output_index"] != json!(next) {
                    flaws.push(format!("added {event}"));
                }
                open = Some(event["output_index"].clone());
            }
            "response.output_item.done" => {
                if open.take() != Some(event["output_index"].clone()) {
                    flaws.push(format!("done {event}"));
                }
                next += 1;
            }
            "response.completed" if at + 1 != events.len() => flaws.push("not last".to_owned()),
            "response.completed" if event["response"]["output"].as_array().map(Vec::len) != Some(next) => {
                flaws.push(format!("output {}", event["response"]["output"]));
            }
            _ => {}
        }
    }
    if ids.len() != 1 {
        flaws.push(format!("{ids:?}"));
    }
    flaws
}

#[test]
fn a_reply_in_which_nothing_acts_goes_out_as_it_came() {
    let stream =
        Script::new("resp_1").reasoning("rs_1").text("msg_1", "Hi").call("1", "ok", r#"{"a":"é"}"#).stream();
    for by_arguments in [false, true] {
        let mut judge = judge(by_arguments);
        assert_eq!(whole(&mut judge, &stream), (stream.clone(), Ending::Complete));
        assert!(!judge.is_changed());
        assert_eq!(judge.carried(), ["reasoning"]);
        assert_eq!(judge.shown()[0].released().len(), 1);
        assert_eq!(judge.shown()[0].text(), "Hi");
        assert_eq!((judge.usages()[0].prompt, judge.usages()[0].cached), (10, 2));
    }
}

#[test]
fn a_usage_beside_the_response_is_billed() {
    let mut data = Script::new("resp_1").text("msg_1", "Hi").data();
    let last = data.last_mut().unwrap();
    last["usage"] = last["response"].as_object_mut().unwrap().remove("usage").unwrap();
    let stream = framed(&data);
    let mut judge = judge(false);
    assert_eq!(whole(&mut judge, &stream), (stream.clone(), Ending::Complete));
    assert_eq!((judge.usages()[0].prompt, judge.usages()[0].completion), (10, 5));
}

#[test]
fn what_some_servers_add_to_a_stream_goes_out_as_it_came() {
    let mut data = Script::new("resp_1").call("1", "ok", "{}").data();
    data.insert(1, json!({"type": "response.queued", "response": data[0]["response"]}));
    let ended = framed(&data) + "data: [DONE]\n\n";

    let item = |status: &str| json!({"type": "shell_call", "status": status, "environment": {"type": "container_reference"}});
    let commands = ["added", "delta", "done"]
        .map(|step| json!({"type": format!("response.shell_call_command.{step}"), "command": "ls"}));
    let hosted =
        Script::new("resp_1").item(&item("in_progress"), commands.into(), item("completed")).stream();

    let other_id = Script::new("resp_1").call("1", "ok", "{}").stream().replacen("call_1", "call_0", 1);
    for stream in [ended, hosted, other_id] {
        let mut judge = judge(true);
        assert_eq!(whole(&mut judge, &stream), (stream.clone(), Ending::Complete));
        assert!(!judge.is_changed());
    }
}

#[test]
fn a_failed_response_event_is_forwarded_after_its_error_event() {
    let error = json!({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "Slow down."}});
    let response =
        json!({"id": "resp_1", "status": "failed", "error": {"code": "x", "message": "Slow down."}});
    let stream = framed(&[error, json!({"type": "response.failed", "response": response})]);
    let mut judge = judge(false);
    let (out, ending) = whole(&mut judge, &stream);
    assert_eq!((&*out, ending), ("", Ending::Refused));
    let mut out = Vec::new();
    judge.let_refusal_stand(0, &mut out);
    assert_eq!(judge.finish(0, &mut out), Ending::Complete);
    assert_eq!(out.concat(), stream.as_bytes());
}

#[test]
fn a_call_that_its_name_allows_goes_out_before_its_arguments_are_complete() {
    let stream = Script::new("resp_1").call("1", "ok", "{}").stream();
    let at = stream.find("event: response.function_call_arguments.done").unwrap();
    let (mut judge, mut out) = (judge(false), Vec::new());
    judge.push(Bytes::copy_from_slice(&stream.as_bytes()[..at]), 0, &mut out);
    assert_eq!(out.concat(), stream.as_bytes()[..at]);
}

#[test]
fn blocked_calls_leave_no_trace_and_indexes_stay_consecutive() {
    let stream = Script::new("resp_1")
        .reasoning("rs_1")
        .call("1", "deny", r#"{"q":"secret"}"#)
        .text("msg_1", "Hi")
        .call("2", "ok", "{}")
        .stream();
    let (out, ending) = whole(&mut judge(false), &stream);
    assert_eq!(ending, Ending::Complete);
    assert_eq!(flaws(&out), Vec::<String>::new(), "{out}");
    for trace in ["deny", "secret", "call_1", "fc_1"] {
        assert!(!out.contains(trace), "{trace}: {out}");
    }
    assert!(out.contains("call_2") && out.contains("rs_1"));
}

#[test]
fn a_reply_whose_calls_were_all_blocked_is_continued_by_the_next_one_as_one_stream() {
    let mut judge = judge(false);
    let (first, ending) =
        whole(&mut judge, &Script::new("resp_1").reasoning("rs_1").call("1", "deny", "{}").stream());
    let Ending::Reask { choice: 0, hidden } = ending else { panic!("{ending:?}") };
    let elements = dialects::responses::rounds::read(&hidden);
    use dialects::responses::rounds::Element;
    assert!(matches!(
        &elements[..],
        [Element::Reply(id), Element::Shown(_), Element::Hidden(_), Element::Result(_)] if id == "resp_1"
    ));
    judge.continue_with(0);
    let (second, ending) = whole(&mut judge, &Script::new("resp_2").text("msg_2", "Done").stream());
    assert_eq!(ending, Ending::Complete);
    let out = first + &second;
    assert_eq!(flaws(&out), Vec::<String>::new(), "{out}");
    let last = events(&out).pop().unwrap();
    assert_eq!(last["response"]["id"], "resp_1");
    let ids: Vec<&str> = last["response"]["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["rs_1", "msg_2"]);
    assert_eq!(last["response"]["usage"]["total_tokens"], 30);
    assert_eq!(last["response"]["usage"]["input_tokens_details"]["cached_tokens"], 4);
    assert_eq!(judge.shown()[0].text(), "Done");
}

#[test]
fn the_usage_of_a_blocked_reply_is_not_lost_where_the_last_response_reports_none() {
    let usage = ",\"usage\":{\"input_tokens\":10,\"output_tokens\":5,\"total_tokens\":15,\"input_tokens_details\":{\"cached_tokens\":2}}";
    let blocked = || Script::new("resp_1").call("1", "deny", "{}");
    let answer = || Script::new("resp_2").text("msg_2", "Done");
    for form in [Form::Streamed, Form::Whole] {
        let [first, last] = match form {
            Form::Streamed => [blocked().stream(), answer().stream()],
            Form::Whole => {
                [blocked().response("completed"), answer().response("completed")].map(|body| body.to_string())
            }
        };
        let bare = last.replace(usage, "");
        assert_ne!(bare, last);
        for last in [bare, last.replace(usage, ",\"usage\":null")] {
            let mut judge = pipeline(judging(false), form);
            let (mut out, ending) = whole(&mut judge, &first);
            assert!(matches!(ending, Ending::Reask { .. }), "{ending:?}");
            judge.continue_with(0);
            out.push_str(&whole(&mut judge, &last).0);
            let response: Value = match form {
                Form::Streamed => events(&out).pop().unwrap()["response"].take(),
                Form::Whole => serde_json::from_str(&out).unwrap(),
            };
            assert_eq!(response["usage"]["total_tokens"], 15, "{out}");
        }
    }
}

#[test]
fn a_whole_reply_loses_its_blocked_calls_and_a_later_one_continues_it() {
    let script = Script::new("resp_1").reasoning("rs_1").call("1", "deny", "{}").call("2", "ok", "{}");
    let body = script.response("completed").to_string();
    let mut judge = pipeline(judging(false), Form::Whole);
    let (out, ending) = whole(&mut judge, &body);
    assert_eq!(ending, Ending::Complete);
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["output"].as_array().unwrap().len(), 2);
    assert_eq!(out["output"][1]["call_id"], "call_2");

    let mut judge = pipeline(judging(false), Form::Whole);
    let blocked =
        Script::new("resp_1").reasoning("rs_1").call("1", "deny", "{}").response("completed").to_string();
    let (out, ending) = whole(&mut judge, &blocked);
    assert!(matches!(ending, Ending::Reask { .. }) && out.is_empty());
    judge.continue_with(0);
    let (out, _) =
        whole(&mut judge, &Script::new("resp_2").text("msg_2", "Done").response("completed").to_string());
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&out["id"], out["output"].as_array().unwrap().len()), (&json!("resp_1"), 2));
    assert_eq!(out["usage"]["output_tokens"], 10);
}

#[test]
fn a_whole_reply_in_which_nothing_acts_is_unchanged() {
    let body =
        Script::new("resp_1").text("msg_1", "Hi").call("1", "ok", "{}").response("completed").to_string();
    let mut judge = pipeline(judging(true), Form::Whole);
    assert_eq!(whole(&mut judge, &body), (body.clone(), Ending::Complete));
    assert!(!judge.is_changed());
}

#[test]
fn changed_arguments_appear_in_every_event_that_carries_them() {
    let stream = Script::new("resp_1").call("1", "fix", r#"{"say":"spoilt"}"#).stream();
    let (out, _) = whole(&mut judge(true), &stream);
    assert!(!out.contains("spoilt"), "{out}");
    assert_eq!(flaws(&out), Vec::<String>::new(), "{out}");
    let wanted = json!(r#"{"say":"\"fixed\""}"#);
    let events = events(&out);
    let of = |kind: &str| events.iter().find(|event| event["type"] == format!("response.{kind}")).unwrap();
    assert_eq!(of("function_call_arguments.delta")["delta"], wanted);
    assert_eq!(of("function_call_arguments.done")["arguments"], wanted);
    assert_eq!(of("output_item.done")["item"]["arguments"], wanted);
    assert_eq!(of("completed")["response"]["output"][0]["arguments"], wanted);
}

/// Every call that some client may read from a stream: see what clients were measured to do.
fn read_by_anyone(stream: &str) -> Vec<(String, String)> {
    let mut calls = Vec::new();
    let mut names: std::collections::BTreeMap<String, (String, String)> = std::collections::BTreeMap::new();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_call = |item: &Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call"));
    for event in events(stream) {
        let index = event["output_index"].to_string();
        if is_call(&event["item"]) {
            let call = (text(&event["item"]["name"]), text(&event["item"]["arguments"]));
            if event["type"] == "response.output_item.added" {
                names.insert(index.clone(), call.clone());
            }
            calls.push(call);
        }
        if let (Some(delta), Some((_, arguments))) = (event["delta"].as_str(), names.get_mut(&index)) {
            arguments.push_str(delta);
        }
        if let (Some(arguments), Some((name, _))) = (event["arguments"].as_str(), names.get(&index)) {
            calls.push((name.clone(), arguments.to_owned()));
        }
        let output = event["response"]["output"].as_array().cloned().unwrap_or_default();
        calls.extend(
            output
                .iter()
                .filter(|item| is_call(item))
                .map(|item| (text(&item["name"]), text(&item["arguments"]))),
        );
    }
    calls.extend(names.into_values());
    calls
}

/// One way in which an upstream may write a stream of one allowed and one denied call.
fn twist(events: &mut Vec<Value>, way: u8) {
    let has = |event: &Value, kind: &str| event["type"].as_str().is_some_and(|name| name.contains(kind));
    match way {
        0 => events.retain(|event| !has(event, "added")),
        1 => events.retain(|event| !has(event, "output_item.done")),
        2 => events.retain(|event| !has(event, "arguments")),
        3 => events.retain(|event| !has(event, "output_item") && !has(event, "arguments")),
        4 => events.iter_mut().for_each(|event| event["output_index"] = json!(0)),
        5 => events.retain(|event| !has(event, "completed")),
        6 => {
            for event in events.iter_mut().filter(|event| has(event, "output_item.done")) {
                event["item"]["arguments"] = r#"{"q":"bad"}"#.into();
            }
        }
        7 => {
            for event in events.iter_mut().filter(|event| has(event, "delta")) {
                event["delta"] = "bad".into();
            }
        }
        8 => {
            for event in events.iter_mut().filter(|event| has(event, "output_item.done")) {
                event["item"]["name"] = "deny".into();
            }
        }
        _ => twist_more(events, way),
    }
}

/// The other ways.
fn twist_more(events: &mut Vec<Value>, way: u8) {
    let has = |event: &Value, kind: &str| event["type"].as_str().is_some_and(|name| name.contains(kind));
    match way {
        9 => {
            let late: Vec<Value> =
                events.iter().filter(|event| event["item"]["name"] == "deny").cloned().collect();
            events.extend(late);
        }
        10 => events.iter_mut().for_each(|event| {
            if let Some(event) = event.as_object_mut() {
                event.remove("sequence_number");
            }
        }),
        11 => {
            for event in events.iter_mut().filter(|event| has(event, "output_item")) {
                event["type"] = "response.something.else".into();
            }
        }
        12 if events.len() > 6 => events.swap(3, 6),
        12 => {}
        13 => {
            if let Some(last) = events.last_mut() {
                last["response"]["output"] = json!([]);
            }
        }
        14 => {
            if let Some(last) = events.last_mut() {
                last["type"] = "response.failed".into();
                last["response"]["status"] = "failed".into();
                last["response"]["error"] = json!({"code": "server_error", "message": "x"});
            }
        }
        15 => {
            for event in events.iter_mut().filter(|event| event["item"].is_object()) {
                event["item"]["id"] = format!("id_{}", event["sequence_number"]).into();
            }
        }
        16 => {
            for event in events.iter_mut().filter(|event| has(event, "arguments.done")) {
                event["arguments"] = r#"{"q":"bad"}"#.into();
            }
        }
        17 => last_calls(events, "name", &"deny".into()),
        18 => last_calls(events, "arguments", &r#"{"q":"bad"}"#.into()),
        19 => last_calls(events, "call_id", &"call_other".into()),
        20 => {
            for event in events.iter_mut().filter(|event| has(event, "output_item.done")) {
                event["item"]["type"] = "function_cal".into();
            }
        }
        21 => {
            if let Some(event) = events.iter_mut().find(|event| event["item"]["name"].is_string()) {
                event["output_index"] = Value::Null;
            }
        }
        _ => complete_again(events),
    }
}

/// Completes every call once more, with other arguments.
fn complete_again(events: &mut Vec<Value>) {
    let is_done =
        |event: &&Value| event["type"] == "response.output_item.done" && event["item"]["name"].is_string();
    let mut again: Vec<Value> = events.iter().filter(is_done).cloned().collect();
    again.iter_mut().for_each(|event| event["item"]["arguments"] = r#"{"q":"bad"}"#.into());
    let end = events.len().saturating_sub(1);
    events.splice(end..end, again);
}

/// Gives every call of the last event another member.
fn last_calls(events: &mut [Value], member: &str, value: &Value) {
    let output = events.last_mut().and_then(|last| last["response"]["output"].as_array_mut());
    for item in output.into_iter().flatten().filter(|item| item["type"] == "function_call") {
        item[member] = value.clone();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_client_reads_a_blocked_call_however_the_upstream_writes_it(
        ways in prop::collection::vec(0_u8..23, 0..4),
        first_denied in any::<bool>(),
        by_arguments in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let (denied, fine) = if by_arguments { (("f", r#"{"q":"bad"}"#), ("g", r#"{"q":1}"#)) } else { (("deny", "{}"), ("ok", "{}")) };
        let script = Script::new("resp_1").reasoning("rs_1");
        let script = if first_denied {
            script.call("1", denied.0, denied.1).call("2", fine.0, fine.1)
        } else {
            script.call("1", fine.0, fine.1).call("2", denied.0, denied.1)
        };
        let mut events = script.data();
        ways.iter().for_each(|way| twist(&mut events, *way));
        let stream = framed(&events);
        let mut judge = judge(by_arguments);
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let chunks = at.windows(2).map(|two| &stream.as_bytes()[two[0]..two[1]]);
        let (out, _) = run(&mut judge, chunks);
        for (name, arguments) in read_by_anyone(&out) {
            prop_assert!(by_arguments || name != "deny", "{}", out);
            prop_assert!(!by_arguments || !arguments.contains("bad"), "{}\n{}", stream, out);
        }
        let (whole_out, _) = whole(&mut pipeline(judging(by_arguments), Form::Streamed), &stream);
        prop_assert_eq!(out, whole_out, "any chunking gives the same");
    }
}
