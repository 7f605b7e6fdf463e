//! Tests of the order of decisions in a stream, of decisions by name, of what is held, of incomplete ends, and of the
//! cost of all this.

use super::*;
use super::{DONE, LIMITS, delta, finish, role, streamed, whole};
use crate::judging::holding_tests::judging;
use dialects::chat::hidden_exchange::work::bytes_written;
use serde_json::json;

fn judge(tables: &str) -> ReplyPipeline {
    streamed(judging(tables), LIMITS)
}

fn begin(index: usize, name: &str) -> String {
    let id = format!("call_{index}");
    delta(
        &json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]}),
    )
}

fn piece(index: usize, arguments: &str) -> String {
    delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
}

fn call(index: usize, name: &str, arguments: &str) -> String {
    begin(index, name) + &piece(index, arguments)
}

/// The indexes and names as seen by a client that identifies calls by their index.
fn seen(out: &str) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    for data in out.lines().filter_map(|line| line.strip_prefix("data: {")) {
        let chunk: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                seen.push((call["index"].as_u64().unwrap(), name.to_owned()));
            }
        }
    }
    seen
}

#[test]
fn the_serial_policy_releases_the_first_call_even_if_its_arguments_arrive_last() {
    let tables = "[serial]\ntools = [\"*\"]\n[arguments]\ntools = { first = { q = { max_chars = 9 } } }\n";
    let calls = begin(0, "first") + &call(1, "second", "{}") + &piece(0, "{\"q\":1}");
    let (out, _) = whole(&mut judge(tables), &(role() + &calls + &finish("tool_calls") + DONE));
    assert_eq!(seen(&out), [(0, "first".to_owned())], "{out}");
}

#[test]
fn a_call_that_its_name_forbids_is_blocked_at_once_and_holds_nothing_back() {
    let tables = "[allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n[arguments]\ntools = { evil = { q = { max_chars = 99 } } }\n";
    let limits = Limits { held: 4_000, ..LIMITS };
    let mut judge = streamed(judging(tables), limits);
    let deltas: String = (0..5_000).map(|_| piece(0, "x")).collect();
    let (out, ending) = whole(&mut judge, &(role() + &begin(0, "evil") + &deltas + &finish("tool_calls")));
    assert_eq!((judge.unjudged(), judge.broken_off()), ([].as_slice(), None));
    assert!(matches!(ending, Ending::Reask { .. }) && !out.contains("evil"), "{out}");
}

#[test]
fn the_held_limit_counts_argument_bytes_and_not_event_framing() {
    let tables = "[arguments]\ntools = { f = { q = { max_chars = 99999 } } }\n";
    let limits = Limits { held: 4_000, ..LIMITS };
    let said = |bytes: usize| {
        let mut judge = streamed(judging(tables), limits);
        let deltas: String = (0..bytes).map(|_| piece(0, "x")).collect();
        whole(&mut judge, &(role() + &begin(0, "f") + &deltas));
        judge.unjudged().to_vec()
    };
    assert_eq!(said(3_900), []);
    assert_eq!(said(4_100), [Unjudged::HeldTooMuch]);
}

#[test]
fn released_calls_are_numbered_consecutively_from_the_upstreams_first_index() {
    let tables = "[allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n";
    for (indexes, expected) in [
        ([0, 1, 2], [0, 1]),
        ([1, 2, 3], [1, 2]),
        ([0, 5, 9], [0, 1]),
        ([7, 8, 9], [7, 8]),
        ([0, 0, 0], [0, 1]),
    ] {
        let calls =
            call(indexes[0], "a", "{}") + &call(indexes[1], "evil", "{}") + &call(indexes[2], "b", "{}");
        // Calls under one index are distinguished by their ids.
        let calls = if indexes == [0, 0, 0] {
            calls.replacen("call_0", "x", 1).replacen("call_0", "y", 1)
        } else {
            calls
        };
        let (out, _) = whole(&mut judge(tables), &(role() + &calls + &finish("tool_calls") + DONE));
        let found: Vec<u64> = seen(&out).into_iter().map(|(index, _)| index).collect();
        assert_eq!(found, expected, "{indexes:?}: {out}");
    }
}

#[test]
fn a_call_cut_off_by_the_finish_reason_is_forwarded_unless_blocked_or_held() {
    for reason in ["length", "content_filter", "MAX_TOKENS"] {
        let tables = "[arguments]\ntools = { f = { q = { max_chars = 9 } } }\n";
        let stream = role() + &begin(0, "f") + &piece(0, "{\"q\":\"ab") + &finish(reason) + DONE;
        assert_eq!(whole(&mut judge(tables), &stream), (stream, Ending::Complete), "{reason}");
    }
    let tables = "[allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n";
    let stream = role() + &begin(0, "evil") + &piece(0, "{\"q") + &finish("length") + DONE;
    let (out, _) = whole(&mut judge(tables), &stream);
    assert!(!out.contains("evil"), "a name that is forbidden stays so: {out}");
    let held = "[confirm]\ntools = [\"pay\"]\n";
    let (out, _) =
        whole(&mut judge(held), &(role() + &begin(0, "pay") + &piece(0, "{\"q") + &finish("length") + DONE));
    assert!(!out.contains("pay") && out.contains("\"length\""), "nobody is asked about half a call: {out}");
}

#[test]
fn the_work_for_a_blocked_call_is_linear_in_its_deltas() {
    let tables = "[allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n[arguments]\ntools = { f = { q = { max_chars = 99999 } } }\n";
    for name in ["evil", "f"] {
        let work = |deltas: usize| {
            let (mut judge, before) = (judge(tables), bytes_written());
            let stream =
                role() + &begin(0, name) + &(0..deltas).map(|_| piece(0, "xxxx")).collect::<String>();
            whole(&mut judge, &(stream + &finish("tool_calls") + DONE));
            bytes_written() - before
        };
        let (few, many) = (work(50), work(500));
        assert!(many <= few * 10 + 1_000, "{name}: {few} bytes written for 50 deltas, {many} for 500");
    }
}

#[test]
fn repeated_ids_and_names_in_deltas_count_as_one_call_against_every_limit() {
    for tables in [
        "[turn_limits]\ncalls = 1\n",
        "[turn_limits]\nparallel = 1\n",
        "[serial]\ntools = [\"*\"]\n",
        "[budget]\ntool_calls = 1\n",
        "[rate_limit]\ndefault = { calls = 1, per = \"60s\" }\n[allow]\nundeclared = \"pass\"\n",
    ] {
        let each = |piece: &str| {
            delta(
                &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": piece}}]}),
            )
        };
        let stream = role() + &each("") + &each("{\"q\"") + &each(":1}") + &finish("tool_calls") + DONE;
        assert_eq!(whole(&mut judge(tables), &stream), (stream, Ending::Complete), "{tables}");
    }
}

#[test]
fn keepalive_and_usage_events_in_the_middle_of_a_call_are_forwarded() {
    let tables =
        "[allow]\nundeclared = \"pass\"\n[arguments]\ntools = { look = { q = { max_chars = 9 } } }\n";
    let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n";
    for between in ["data: ping\n\n", "data: null\n\n", "data: 2024\n\n", usage] {
        let stream = role()
            + &begin(0, "look")
            + &piece(0, "{\"q\"")
            + between
            + &piece(0, ":1}")
            + &finish("tool_calls")
            + DONE;
        assert_eq!(whole(&mut judge(tables), &stream), (stream, Ending::Complete), "{between}");
    }
}

#[test]
fn a_call_that_is_written_in_both_forms_is_one_call() {
    // A call as llama-cpp-python writes it, in both forms, with a colon after one of the names.
    let both = |name: &str, piece: &str| {
        let call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": name, "arguments": piece}});
        delta(
            &json!({"tool_calls": [call], "function_call": {"name": format!("{name}:"), "arguments": piece}}),
        )
    };
    let stream =
        |name: &str| role() + &both(name, "{\"q\"") + &both(name, ":1}") + &finish("tool_calls") + DONE;
    for tables in ["[turn_limits]\ncalls = 1\n", "[serial]\ntools = [\"*\"]\n"] {
        let mut judge = judge(tables);
        assert_eq!(whole(&mut judge, &stream("look")), (stream("look"), Ending::Complete), "{tables}");
        assert_eq!(judge.judging.record.len(), 1);
    }
    let (out, _) = whole(&mut judge("[confirm]\ntools = [\"pay\"]\n"), &stream("pay"));
    assert!(!out.contains("function_call") && !out.contains("tool_calls\":["), "{out}");
}

#[test]
fn a_function_call_that_contradicts_the_tool_call_breaks_the_stream_off() {
    let tables = "[allow]\nexcept = [\"evil\"]\nundeclared = \"pass\"\n";
    let both = |index: usize, name: &str, legacy: &str| {
        let call =
            json!({"index": index, "id": format!("c{index}"), "function": {"name": name, "arguments": "{}"}});
        delta(&json!({"tool_calls": [call], "function_call": {"name": legacy, "arguments": "{}"}}))
    };
    let alone = |index: usize, piece: &str| piece_of(index, piece);
    for stream in [
        // Each piece repeats another call, and joined they name a third tool.
        both(0, "ev", "ev") + &both(1, "il", "il"),
        // A colon that only one form has splits the name in two.
        both(0, "ev:", "ev") + &both(1, "il", "il"),
        // A copy that leaves pieces out is different.
        both(0, "a", "a") + &alone(0, " ") + &both(0, "a", "a"),
    ] {
        let mut judge = judge(tables);
        let (out, _) = whole(&mut judge, &(role() + &stream + &finish("tool_calls") + DONE));
        let pieces = out.matches("function_call").count();
        assert!(judge.broken_off().is_some() && pieces < 2, "{pieces} pieces: {out}");
    }
}

fn piece_of(index: usize, arguments: &str) -> String {
    piece(index, arguments)
}

#[test]
fn a_message_call_with_the_index_of_a_delta_call_does_not_count_its_bytes_twice() {
    let tables = "[allow]\nundeclared = \"pass\"\n";
    let beside = json!([{"index": 0, "id": "z", "function": {"name": "b", "arguments": "{}"}}]);
    let chunk = event_with(
        &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "long_name", "arguments": ""}}]}),
        &beside,
    );
    let mut judge = judge(tables);
    whole(&mut judge, &(role() + &chunk + &finish("tool_calls") + DONE));
    assert!(judge.kept_bytes() < 10_000 && judge.unjudged().is_empty(), "{} bytes", judge.kept_bytes());
}

fn event_with(delta: &Value, message_calls: &Value) -> String {
    super::event(
        &json!([{"index": 0, "delta": delta, "message": {"tool_calls": message_calls}, "finish_reason": null}]),
    )
}

#[test]
fn spaces_of_other_alphabets_hide_data_at_the_start_of_a_line_alone() {
    let tables = "[allow]\nundeclared = \"pass\"\n";
    for text in ["les\u{a0}data: ici", "\u{3000}data: x", "a\u{a0}"] {
        let stream = role() + &delta(&json!({ "content": text })) + &finish("stop") + DONE;
        assert_eq!(whole(&mut judge(tables), &stream), (stream, Ending::Complete), "{text:?}");
    }
    let comment = format!("{}: ping\u{a0}\n{}{DONE}", role(), finish("stop"));
    assert!(!{
        let mut judge = judge(tables);
        whole(&mut judge, &comment);
        judge.broken_off().is_some()
    });
}

#[test]
fn calls_of_one_event_that_share_an_index_get_indexes_of_their_own() {
    let call = |id: &str| json!({"index": 0, "id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let stream =
        delta(&json!({"tool_calls": [call("a1"), call("b1"), call("c1")]})) + &finish("tool_calls") + DONE;
    let (out, _) = whole(&mut judge("[truncate]\n"), &stream);
    let found: Vec<u64> = seen(&out).into_iter().map(|(index, _)| index).collect();
    assert_eq!(found, [0, 1, 2], "{out}");
}

#[test]
fn a_call_that_gets_its_name_after_the_finish_is_counted_as_unjudged() {
    let tables =
        "[allow]\nundeclared = \"pass\"\n[arguments]\ntools = { other = { q = { max_chars = 9 } } }\n";
    let named =
        delta(&json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "\"q\":"}}]}));
    let stream = role() + &piece(0, "{") + &finish("tool_calls") + &named + &piece(0, "1}") + DONE;
    let mut judge = judge(tables);
    assert_eq!(whole(&mut judge, &stream), (stream, Ending::Complete));
    assert_eq!(judge.unjudged(), [Unjudged::Ambiguous], "no policy restricts calls, and it is counted");
}
