//! Targets of the Responses API. A request's bytes, parsed, folded through policies and written in every form; a reply's
//! bytes, whole or as a stream in any chunks, in which no client reads a forbidden call, wherever it looks; and a hidden
//! exchange from the state store, put back into a request.

use crate::world::{NOW_MS, SETS, choices, identity, is_json, judging_by, lossy, policies};
use bytes::Bytes;
use dialects::RESPONSES;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::responses::rounds::{read, write};
use dialects::variant::{Asking, Placement, PlannedRequest, Variant};
use engine::pipeline::ReplyPipeline;
use model::Transcript;
use model::adaptation::Adaptation;
use model::memo::NoMemo;
use serde_json::Value;
use std::sync::Arc;
use wire::sse::{Piece, Splitter, parse_fields};

/// A hidden exchange of an earlier reply.
const ROUND: &str = r#"{"reply":"resp_1"},{"shown":{"type":"reasoning","id":"rs_1","summary":[]}},{"hidden":{"type":"function_call","call_id":"w1","name":"look","arguments":"{}"}},{"result":{"type":"function_call_output","call_id":"w1","output":"no"}}"#;
/// The tools that may not be called.
const FORBIDDEN: [&str; 2] = ["pay_bill", "send_mail"];
const TABLES: [&str; 3] = [
    "[policy.allow]\nexcept = [\"pay_bill\", \"send_mail\"]\nundeclared = \"pass\"\n",
    "[policy.confirm]\ntools = [\"pay_bill\", \"send_mail\"]\n",
    "[policy.allow]\nexcept = [\"pay_bill\", \"send_mail\"]\n[policy.arguments]\n[policy.serial]\ntools = [\"*\"]\n",
];
/// How often the model is asked again before the final-answer request.
const PATIENCE: usize = 3;
const MOST_ROUNDS: usize = 200;

pub fn request(input: &[u8]) -> bool {
    let (set, input) = choices(input);
    let (form, body) = choices(input);
    let body = Bytes::copy_from_slice(body);
    let Ok(request) = RESPONSES.read(&body) else { return false };
    let identity = identity(1);
    let mut transcript = Transcript::read(request.clone(), body.to_vec(), identity.clone(), Arc::new(NoMemo));
    transcript.now_ms = NOW_MS;
    let (mut plan, _) = policies(usize::from(set) % SETS).read(&transcript);
    if request.odd {
        plan.change_nothing();
    }
    if plan.refusal.is_some() {
        return true;
    }
    let is_plan_empty = plan.edits.is_empty()
        && plan.dropped.is_empty()
        && plan.hidden.is_empty()
        && plan.declared.is_empty()
        && !plan.one_at_a_time;
    let source = PlannedRequest::new(&body, &request, &plan);
    for placement in [Placement::System, Placement::Suffix, Placement::Leading] {
        let out = RESPONSES.write(&source, &Variant::plain(placement)).join();
        if is_plan_empty && !request.own_ids {
            assert_eq!(out, body, "touched without a reason");
        }
        let variant = variant_of(form, placement);
        let out = RESPONSES.write(&source, &variant).join();
        let context = || format!("{variant:?}\n{plan:?}\n{}\nbecame\n{}", lossy(&body), lossy(&out));
        let fault = RESPONSES.read(&out).err();
        assert!(fault.is_none(), "not read again ({fault:?}): {}", context());
        assert!(!is_json(&body) || is_json(&out), "no JSON: {}", context());
    }
    true
}

/// The form of sending that a byte names.
fn variant_of(form: u8, placement: Placement) -> Variant {
    let tools = [None, Some(Adaptation::ToolChoice), Some(Adaptation::Tools)][usize::from(form % 3)];
    let history = (form / 9 % 2 == 1).then_some(Adaptation::Flattened);
    let adapted = tools.into_iter().chain(history).collect();
    let asking = match form / 3 % 3 {
        0 => None,
        land => Some(Asking { rounds: vec![Bytes::from_static(ROUND.as_bytes())], land: land == 2 }),
    };
    Variant { adapted, asking, ..Variant::plain(placement) }
}

/// A hidden exchange, and the items among which it comes back, with a line break between them.
pub fn rounds(input: &[u8]) -> bool {
    let (at, input) = choices(input);
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let exchange = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let items = parts.next().unwrap_or_default();
    let elements = read(&exchange);
    assert_eq!(read(&write(&elements)), elements, "written and read again");
    let body = Bytes::from([b"{\"input\":[{\"role\":\"user\",\"content\":\"q\"},", items, b"]}"].concat());
    let Ok(request) = RESPONSES.read(&body) else { return false };
    let at = usize::from(at) % request.messages.len();
    let is_all_json = is_json(&body) && is_json(&[b"[", exchange.as_ref(), b"]"].concat());
    let restored = [(at, exchange)];
    let plan = model::plan::Plan::default();
    let source = PlannedRequest { restored: &restored, ..PlannedRequest::new(&body, &request, &plan) };
    for form in [0, 3, 9] {
        let out = RESPONSES.write(&source, &variant_of(form, Placement::System)).join();
        assert!(
            RESPONSES.read(&out).is_ok(),
            "{}\n{}\nbecame\n{}",
            lossy(&restored[0].1),
            lossy(&body),
            lossy(&out)
        );
        assert!(!is_all_json || is_json(&out), "{}\nbecame\n{}", lossy(&body), lossy(&out));
    }
    !elements.is_empty()
}

pub fn reply(input: &[u8]) -> bool {
    let (first, bytes) = choices(input);
    let form = if first % 2 == 0 { Form::Whole } else { Form::Streamed };
    let whole = judged(form, first, &[bytes]);
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(first) * 3 + 1).collect();
    let parts = judged(form, first, &pieces);
    // The LF of a first CR LF belongs to the next event where a chunk ends between the two; that event may be held.
    let is_same = whole.trim_ascii_end() == parts.trim_ascii_end();
    assert!(is_same, "whole\n{}\nin parts\n{}", lossy(&whole), lossy(&parts));
    let found = if form == Form::Whole { in_response(&json(&whole)) } else { in_stream(&whole) };
    let escaped: Vec<&String> = found.iter().filter(|name| FORBIDDEN.contains(&name.as_str())).collect();
    assert!(escaped.is_empty(), "{escaped:?} in\n{}\nof\n{}", lossy(&whole), lossy(bytes));
    !whole.is_empty()
}

/// What the client gets, where the model gives the same reply whenever it is asked again.
fn judged(form: Form, first: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let judging = judging_by(TABLES[usize::from(first) / 2 % TABLES.len()]);
    let mut judge: ReplyPipeline = ReplyPipeline::new(judging, RESPONSES, form, limits, Options::default());
    let (mut out, mut rounds) = (Vec::new(), 0);
    loop {
        for piece in pieces {
            judge.push(Bytes::copy_from_slice(piece), NOW_MS, &mut out);
            judge.let_refusal_stand(NOW_MS, &mut out);
        }
        let mut ending = judge.finish(NOW_MS, &mut out);
        while ending == Ending::Refused {
            judge.let_refusal_stand(NOW_MS, &mut out);
            ending = judge.finish(NOW_MS, &mut out);
        }
        let Ending::Reask { choice, hidden } = ending else { return out.concat() };
        let is_round = is_json(&[b"[", hidden.as_ref(), b"]"].concat());
        assert!(
            is_round || !is_json(&pieces.concat()) || form == Form::Streamed,
            "a round: {}",
            lossy(&hidden)
        );
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "no end");
        if rounds > PATIENCE {
            judge.judging_mut().land();
        }
        judge.continue_with(choice);
    }
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// The names of the calls that any client may read from a stream: from an event with an item, and from the list of items
/// of any response.
fn in_stream(stream: &[u8]) -> Vec<String> {
    let (mut splitter, mut names) = (Splitter::new(usize::MAX), Vec::new());
    let mut read = |piece: Piece| {
        let (Piece::Event(event) | Piece::Oversized(event)) = piece;
        let event = json(&parse_fields(&event).data);
        names.extend(name_of(&event["item"]));
        names.extend(in_response(&event["response"]));
    };
    splitter.push(Bytes::copy_from_slice(stream), &mut read);
    splitter.finish().into_iter().for_each(read);
    names
}

fn in_response(response: &Value) -> Vec<String> {
    response["output"].as_array().into_iter().flatten().filter_map(name_of).collect()
}

/// The name of the tool that a client runs for an item; those that the provider has run are no calls.
fn name_of(item: &Value) -> Option<String> {
    let kind = item["type"].as_str()?;
    let is_run = matches!(kind, "function_call" | "custom_tool_call");
    item["name"].as_str().filter(|_| is_run).map(str::to_owned)
}
