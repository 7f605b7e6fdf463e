//! Leaks on the Responses API: no client finds a call that was not judged, however a server numbers and names the parts of
//! its stream. Checked with a second reader, which goes by indexes and by every id.

use super::world::{Facts, NOW_MS, lossy, read, set_of};
use bytes::Bytes;
use dialects::RESPONSES;
use dialects::reply::{Ending, Form, Limits, Options};
use engine::pipeline::ReplyPipeline;
use mock::tolerant::{Call, calls_in_response, calls_in_response_stream};
use policies::set::PolicySet;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Tools whose calls must never be seen: by name, by a person's approval, and beside policies that need arguments. The
/// last set forbids arguments.
const SETS: [&str; 4] = [
    "[policy.allow]\nexcept = [\"evil*\"]\nundeclared = \"pass\"",
    "[policy.confirm]\ntools = [\"evil*\"]",
    "[policy.allow]\nexcept = [\"evil*\"]\n[policy.arguments]\n[policy.loops]\n[policy.serial]\ntools = [\"*\"]\n",
    "[policy.allow]\nexcept = [\"evil*\"]\n[policy.arguments]\nstrict = true\n",
];

const TOOLS: [&str; 4] = ["ok", "evil", "evil_two", "say"];
const LIMITS: Limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };

/// How a server names the parts of a stream.
#[derive(Clone, Copy, Debug)]
enum Numbering {
    /// An index for each item.
    OpenAi,
    /// No index, and the call's id for the item's.
    LlamaCpp,
    /// One index for all.
    Ogx,
    /// Another item id in each event.
    Copilot,
}

const NUMBERINGS: [Numbering; 4] =
    [Numbering::OpenAi, Numbering::LlamaCpp, Numbering::Ogx, Numbering::Copilot];

fn judge(set: &PolicySet, form: Form) -> ReplyPipeline {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let tool = |name: &str| json!({"type": "function", "name": name, "parameters": schema});
    let tools: Vec<Value> = TOOLS.map(tool).to_vec();
    let body = json!({"model": "m", "input": "q", "tools": tools}).to_string();
    let judging = read(&Bytes::from(body), set, &Facts::default()).judging();
    ReplyPipeline::new(judging, RESPONSES, form, LIMITS, Options::default())
}

fn streamed(set: &PolicySet, stream: &[u8], sizes: &[usize]) -> (Vec<u8>, Vec<String>) {
    let mut judge = judge(set, Form::Streamed);
    let (mut out, mut rest, mut sizes) = (Vec::new(), stream, sizes.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at((*sizes.next().unwrap_or(&64)).clamp(1, rest.len()));
        judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
        judge.let_refusal_stand(NOW_MS, &mut out);
        rest = after;
    }
    while judge.finish(NOW_MS, &mut out) == Ending::Refused {
        judge.let_refusal_stand(NOW_MS, &mut out);
    }
    let judged = judge.judging().record.iter().map(|judged| judged.id.clone()).collect();
    (out.concat(), judged)
}

/// Calls by name and number, as the events of a stream: in a row, or all begun before one of them ends.
fn events_of(calls: &[(String, u32)], numbering: Numbering, in_a_row: bool) -> Vec<Value> {
    let begun = json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}});
    let (mut events, mut ends, mut output) = (vec![begun], Vec::new(), Vec::new());
    for (at, (name, number)) in calls.iter().enumerate() {
        let arguments = if *number > 7 { "{\"n\":\"x\"}".to_owned() } else { format!("{{\"n\":{number}}}") };
        let item = |text: &str| {
            let mut item = json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": format!("call_{at}"), "name": name, "arguments": text});
            if matches!(numbering, Numbering::LlamaCpp) {
                item.as_object_mut().unwrap().remove("id");
            }
            item
        };
        let id = if matches!(numbering, Numbering::LlamaCpp) { "call" } else { "fc" };
        let (one, two) = arguments.split_at(3);
        let piece = |kind: &str, member: &str, text: &str| {
            let mut event = json!({"type": format!("response.function_call_arguments.{kind}"), "item_id": format!("{id}_{at}"), "output_index": at});
            event[member] = text.into();
            event
        };
        let done = json!({"type": "response.output_item.done", "output_index": at, "item": item(&arguments)});
        output.push(item(&arguments));
        let all = [
            json!({"type": "response.output_item.added", "output_index": at, "item": item("")}),
            piece("delta", "delta", one),
            piece("delta", "delta", two),
            piece("done", "arguments", &arguments),
        ];
        events.extend(all);
        if in_a_row { events.push(done) } else { ends.push(done) }
    }
    events.append(&mut ends);
    events.push(json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}}));
    for (at, event) in events.iter_mut().enumerate() {
        let is_end = event["type"] == "response.output_item.done";
        match numbering {
            Numbering::OpenAi => {}
            Numbering::LlamaCpp => drop(event.as_object_mut().unwrap().remove("output_index")),
            Numbering::Ogx if event["output_index"].is_u64() && !is_end => event["output_index"] = 0.into(),
            Numbering::Ogx => {}
            Numbering::Copilot => {
                let id = format!("x{at}");
                match event["item_id"].is_string() {
                    true => event["item_id"] = id.into(),
                    false if event["item"].is_object() => event["item"]["id"] = id.into(),
                    false => {}
                }
            }
        }
    }
    events
}

/// Changes that a gateway, or one that wants to get past the judge, may make to the events.
fn bend(events: &mut Vec<Value>, bends: &[(usize, usize, usize)]) {
    for (kind, at, other) in bends {
        let (at, other) = (at % events.len(), other % events.len());
        let number = other % 3;
        let event = &mut events[at];
        let Some(members) = event.as_object_mut() else { continue };
        match kind % 13 {
            0 => drop(members.remove("output_index")),
            1 => drop(members.insert("output_index".to_owned(), number.into())),
            2 => drop(members.remove("item_id")),
            3 => drop(members.insert("item_id".to_owned(), format!("fc_{number}").into())),
            4 => drop(members.insert("item_id".to_owned(), format!("call_{number}").into())),
            5 if event["item"].is_object() => event["item"]["call_id"] = format!("call_{number}").into(),
            6 if event["item"].is_object() => event["item"]["id"] = format!("fc_{number}").into(),
            7 if event["item"].is_object() => event["item"]["name"] = TOOLS[other % TOOLS.len()].into(),
            8 if event["item"].is_object() => event["item"]["status"] = "incomplete".into(),
            9 => drop(events.remove(at)),
            10 => {
                let again = events[at].clone();
                events.insert(other, again);
            }
            11 => events.swap(at, other),
            12 if event["response"]["output"].is_array() => event["response"]["output"] = json!([]),
            _ => {}
        }
        if events.is_empty() {
            return;
        }
    }
}

fn written(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

fn forbidden(calls: Vec<Call>, set: usize) -> Vec<Call> {
    let is_wrong = |call: &Call| set == 3 && call.name == "ok" && call.arguments == "{\"n\":\"x\"}";
    calls.into_iter().filter(|call| call.name.starts_with("evil") || is_wrong(call)).collect()
}

fn calls() -> impl Strategy<Value = Vec<(String, u32)>> {
    let name = prop::sample::select(TOOLS.to_vec()).prop_map(str::to_owned);
    prop::collection::vec((name, 0..9_u32), 1..4)
}

/// How many cases each law is tried with: a tenth in the fast loop (`make test-fast`).
fn cases() -> u32 {
    if std::env::var_os("FAST").is_some() { 300 } else { 3_000 }
}

proptest! {
    #![proptest_config(crate::laws::with_cases(cases()))]

    #[test]
    fn no_client_finds_a_forbidden_call_in_a_bent_stream_of_the_responses_api(
        calls in calls(),
        numbering in prop::sample::select(NUMBERINGS.to_vec()),
        in_a_row in any::<bool>(),
        bends in prop::collection::vec(any::<(usize, usize, usize)>(), 0..5),
        sizes in prop::collection::vec(1..400_usize, 1..4),
        at in 0..SETS.len(),
    ) {
        let mut events = events_of(&calls, numbering, in_a_row);
        bend(&mut events, &bends);
        let stream = written(&events);
        let (out, _) = streamed(&set_of(SETS[at]), stream.as_bytes(), &sizes);
        let found = forbidden(calls_in_response_stream(&out), at);
        prop_assert!(found.is_empty(), "{found:?}\nin\n{}\nof\n{stream}", lossy(&out));
    }

    #[test]
    fn each_call_of_a_stream_is_judged_once_and_the_allowed_ones_arrive_once(
        calls in calls(),
        numbering in prop::sample::select(NUMBERINGS.to_vec()),
        in_a_row in any::<bool>(),
        at in 0..3_usize,
    ) {
        let stream = written(&events_of(&calls, numbering, in_a_row));
        let set = "[policy.allow]\nexcept = [\"evil*\"]\n";
        let set = set_of([set, "[policy.allow]\nexcept = [\"evil*\"]\n[policy.duplicates]\ntools = [\"none\"]\n", "[policy.loops]\n"][at]);
        let (out, judged) = streamed(&set, stream.as_bytes(), &[70]);
        let ids: Vec<String> = (0..calls.len()).map(|at| format!("call_{at}")).collect();
        let mut sorted = judged;
        sorted.sort();
        prop_assert_eq!(&sorted, &ids, "{}", stream);
        let is_allowed = |at: &usize| at_of(&set, &calls[*at].0);
        let allowed: Vec<String> = (0..calls.len()).filter(is_allowed).map(|at| format!("call_{at}")).collect();
        if allowed.is_empty() {
            return Ok(());
        }
        let ended = lossy(&out);
        let ends = ended.lines().filter(|line| line.contains("output_item.done") && line.starts_with("data"));
        let shown: Vec<String> = ends
            .map(|line| serde_json::from_str::<Value>(line.trim_start_matches("data: ")).unwrap())
            .map(|event| event["item"]["call_id"].as_str().unwrap_or_default().to_owned())
            .collect();
        prop_assert_eq!(shown, allowed, "{}\nof\n{}", ended, stream);
    }
}

/// Whether the set allows the tool.
fn at_of(set: &PolicySet, name: &str) -> bool {
    !set.restricts_calls() || !name.starts_with("evil")
}

#[test]
fn what_is_allowed_passes_as_it_came_in_every_numbering() {
    let calls = [("ok".to_owned(), 1), ("say".to_owned(), 2)];
    for numbering in NUMBERINGS {
        for in_a_row in [false, true] {
            let stream = written(&events_of(&calls, numbering, in_a_row));
            for set in [SETS[0], SETS[1], SETS[3]] {
                let (out, _) = streamed(&set_of(set), stream.as_bytes(), &[50]);
                assert_eq!(lossy(&out), stream, "{numbering:?} {set}");
            }
        }
    }
}

#[test]
fn the_lenient_test_reader_finds_calls_of_the_responses_api_by_index_and_by_id() {
    let names = |calls: Vec<Call>| -> Vec<String> {
        calls.into_iter().map(|call| format!("{} {}", call.name, call.arguments)).collect()
    };
    let item = r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"pay","arguments":""}"#;
    let stream = format!(
        "data: {{\"output_index\":1,\"item\":{item}}}\n\ndata: {{\"output_index\":1,\"delta\":\"a\"}}\n\ndata: {{\"item_id\":\"c1\",\"delta\":\"b\"}}\n\n"
    );
    let found = names(calls_in_response_stream(stream.as_bytes()));
    for call in ["pay a", "pay b"] {
        assert!(found.iter().any(|found| found == call), "{found:?}");
    }
    let whole = format!(r#"{{"Output":[{item}]}}"#);
    assert_eq!(names(calls_in_response(whole.as_bytes())), ["pay "]);
}
