//! Replies in which clients read different calls, before policies that restrict calls; events that come twice; and last
//! events that are known by another sign than their type.

use super::super::super::*;
use super::{Script, framed, pipeline, run};
use crate::judging::holding_tests::judging;
use serde_json::{Value, json};

const FORBIDS: &str = "[allow]\nexcept = [\"wipe_disk\"]\n";

const CALL: &str =
    r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"wipe_disk","arguments":"{}"}"#;

fn judge(form: Form, tables: &str) -> ReplyPipeline {
    pipeline(judging(tables), form)
}

fn ended(form: Form, reply: &str) -> (String, Ending) {
    run(&mut judge(form, FORBIDS), [reply.replace("CALL", CALL).as_bytes()])
}

#[test]
fn a_whole_reply_in_which_clients_read_different_items_is_refused() {
    let crowd = r#"{"type":"output_text","text":""},"#.repeat(8192);
    let crowded = format!(
        r#"{{"id":"r","output":[{{"type":"message","content":[{crowd}{{}}]}},CALL],"error":{{"message":"x"}}}}"#
    );
    for reply in [
        r#"{"id":"r","status":"completed","output":[CALL],"output":[]}"#,
        r#"{"id":"r","status":"completed","output":[],"output":[CALL]}"#,
        r#"{"id":"r","status":"completed","output":[CALL],"output":null}"#,
        r#"{"id":"r","status":"completed","output":[],"Output":[CALL]}"#,
        r#"{"id":"r","status":"completed","output":[[CALL]]}"#,
        r#"{"id":"r","status":"completed","output":{"0":CALL}}"#,
        r#"{"id":"r","status":"completed","\u006futput":[],"outpu\u0074":[CALL]}"#,
        r#"{"error":{"message":"x"},"output":[CALL],"output":[]}"#,
        r#"{"error":{"message":"x"},"output":{"0":CALL}}"#,
        &crowded,
    ] {
        let (out, ending) = ended(Form::Whole, reply);
        assert_eq!((&*out, ending), ("", Ending::BrokenOff(Unjudged::Ambiguous)), "{reply:.200}");
    }
}

#[test]
fn a_stream_in_which_clients_read_different_items_is_broken_off() {
    for event in [
        r#"{"type":"response.completed","response":{"id":"r","output":[CALL],"output":[]}}"#,
        r#"{"type":"response.completed","response":{"id":"r","output":[],"Output":[CALL]}}"#,
        r#"{"type":"response.completed","response":{"id":"r","output":[[CALL]]}}"#,
        r#"{"type":"response.completed","response":{"id":"r","output":{"0":CALL}}}"#,
        r#"{"type":"response.created","response":{"id":"r","output":{"0":CALL}}}"#,
        r#"{"type":"response.in_progress","response":{"id":"r","output":[],"OUTPUT":[CALL]}}"#,
        r#"{"type":"response.failed","response":{"id":"r","status":"failed","error":{"message":"x"},"output":{"0":CALL}}}"#,
        r#"{"type":"response.completed","response":[{"id":"r","output":[CALL]}]}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":[CALL]}"#,
        r#"{"type":"error","message":"x","item":[CALL]}"#,
    ] {
        let (out, ending) = ended(Form::Streamed, &format!("data: {event}\n\n"));
        assert_eq!(ending, Ending::BrokenOff(Unjudged::Ambiguous), "{event}");
        assert!(!out.contains("wipe_disk"), "{event}");
    }
}

#[test]
fn replies_in_which_no_client_reads_a_call_are_forwarded_unchanged() {
    for reply in [
        r#"{"id":"r","status":"completed","output":[]}"#,
        r#"{"id":"r","status":"completed","output":[null,"x",{"type":"message","content":null}]}"#,
    ] {
        assert_eq!(ended(Form::Whole, reply), (reply.to_owned(), Ending::Complete));
    }
    for event in [
        r#"{"type":"response.completed","response":{"id":"r","output":null}}"#,
        r#"{"type":"response.completed","response":{"id":"r"}}"#,
        r#"{"type":"response.completed","response":{"id":"r","output":[]},"item":null}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":null,"response":null}"#,
        r#"{"type":"keepalive","item":[],"response":"x"}"#,
    ] {
        let stream = format!("data: {event}\n\n");
        assert_eq!(ended(Form::Streamed, &stream), (stream.clone(), Ending::Complete));
    }
}

#[test]
fn an_ambiguous_reply_passes_and_is_counted_if_no_policy_restricts_calls() {
    let whole = r#"{"id":"r","output":[],"Output":[1]}"#;
    let stream = format!("data: {{\"type\":\"response.completed\",\"response\":{whole}}}\n\n");
    for (form, reply) in [(Form::Whole, whole), (Form::Streamed, &*stream)] {
        let mut judge = judge(form, "");
        assert_eq!(run(&mut judge, [reply.as_bytes()]), (reply.to_owned(), Ending::Complete));
        assert_eq!(judge.unjudged(), [Unjudged::Ambiguous]);
    }
}

/// A stream of one call whose events of the type `kind` come again with these other arguments.
fn repeated(kind: &str, others: &[&str]) -> (String, Vec<Value>) {
    let mut data = Script::new("resp_1").call("1", "say", r#"{"n":0}"#).data();
    let at = data.iter().position(|event| event["type"] == format!("response.{kind}")).unwrap();
    let once = data.clone();
    for arguments in others.iter().rev() {
        let mut again = data[at].clone();
        let holder = if again["item"].is_object() { &mut again["item"] } else { &mut again };
        holder["arguments"] = (*arguments).into();
        data.insert(at + 1, again);
    }
    data.iter_mut().enumerate().for_each(|(at, event)| event["sequence_number"] = at.into());
    (framed(&data), once)
}

#[test]
fn a_call_that_was_counted_once_is_shown_once() {
    let rate_limit = "[rate_limit]\ndefault = { calls = 1, per = \"60s\" }\n";
    let others = [r#"{"n":1}"#, r#"{"n":0}"#, r#"{"n":2}"#, r#"{"n":2}"#];
    for tables in [FORBIDS, "[turn_limits]\ncalls = 1\n", rate_limit, ""] {
        for kind in ["output_item.done", "function_call_arguments.done"] {
            let (stream, once) = repeated(kind, &others);
            let mut judge = judge(Form::Streamed, tables);
            let (out, ending) = run(&mut judge, [stream.as_bytes()]);
            assert_eq!((out, ending), (framed(&once), Ending::Complete), "{tables} {kind}");
            assert_eq!(judge.shown()[0].released().len(), 1);
        }
    }
}

#[test]
fn a_late_arguments_event_does_not_change_a_complete_call() {
    let mut data = Script::new("resp_1").call("1", "say", r#"{"n":0}"#).data();
    let kinds = ["response.function_call_arguments.done", "response.output_item.done"];
    let at = kinds.map(|kind| data.iter().position(|event| event["type"] == kind).unwrap());
    data.swap(at[0], at[1]);
    data[at[1]]["arguments"] = r#"{"n":1}"#.into();
    let (out, ending) = ended(Form::Streamed, &framed(&data));
    assert_eq!(ending, Ending::Complete);
    assert!(out.contains("call_1") && !out.contains(r#"{\"n\":1}"#), "{out}");
}

#[test]
fn calls_without_any_id_are_counted_separately() {
    let call = json!({"type": "response.output_item.done", "item": {"type": "function_call", "name": "say", "arguments": "{}"}});
    let end =
        json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}});
    let stream = framed(&[call.clone(), call, end]);
    let mut judge = judge(Form::Streamed, "[turn_limits]\ncalls = 1\n");
    let (out, _) = run(&mut judge, [stream.as_bytes()]);
    assert_eq!(out.matches("function_call").count(), 1, "{out}");
}

#[test]
fn the_last_event_is_known_by_its_type_by_its_event_line_or_by_the_status_however_it_is_written() {
    let compact = |response: &Value| response.to_string();
    let spaced = |response: &Value| serde_json::to_string_pretty(response).unwrap().replace('\n', " ");
    let escaped = |response: &Value| response.to_string().replace("\"completed\"", "\"comple\\u0074ed\"");
    for write in [compact as fn(&Value) -> String, spaced, escaped] {
        for (name, kind) in
            [("response.completed", None), ("message", None), ("message", Some("response.done"))]
        {
            let mut data = Script::new("resp_1").call("1", "wipe_disk", "{}").data();
            let mut last = data.pop().unwrap();
            last.as_object_mut().unwrap().remove("type");
            if let Some(kind) = kind {
                last["type"] = kind.into();
            }
            let stream = format!("{}event: {name}\ndata: {}\n\n", framed(&data), write(&last));
            let (out, ending) = ended(Form::Streamed, &stream);
            assert!(matches!(ending, Ending::Reask { .. }), "{ending:?} {stream}");
            assert!(!out.contains("wipe_disk"), "{out}");
        }
    }
}

#[test]
fn a_status_within_an_item_does_not_end_a_reply() {
    let item = json!({"type": "message", "status": "completed", "content": []});
    let mut data = Script::new("resp_1").call("1", "wipe_disk", "{}").data();
    let begun = json!({"type": "response.progress", "response": {"id": "resp_1", "status": "in_progress", "output": [item]}});
    data.insert(1, begun);
    let (out, ending) = ended(Form::Streamed, &framed(&data));
    assert!(matches!(ending, Ending::Reask { .. }), "{ending:?}");
    assert!(!out.contains("wipe_disk"), "{out}");
}

#[test]
fn an_event_without_a_type_is_what_its_event_line_says() {
    let untyped = |mut event: Value| {
        let kind = event.as_object_mut().unwrap().remove("type").unwrap();
        format!("event: {}\ndata: {event}\n\n", kind.as_str().unwrap())
    };
    let stream = |name: &str| -> String {
        Script::new("resp_1").call("1", name, r#"{"n":0}"#).data().into_iter().map(untyped).collect()
    };
    assert_eq!(ended(Form::Streamed, &stream("say")), (stream("say"), Ending::Complete));
    let (out, ending) = ended(Form::Streamed, &stream("wipe_disk"));
    assert!(matches!(ending, Ending::Reask { .. }), "{ending:?}");
    assert!(!out.contains("wipe_disk"), "{out}");
}
