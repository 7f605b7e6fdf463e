//! Targets of the Messages API. A request's bytes, parsed, folded through policies and written in every form; a reply's
//! bytes, whole or as a stream in any chunks, in which no client finds a forbidden call; and a hidden exchange from the state
//! store, put back into a request.

use crate::world::{NOW_MS, SETS, choices, identity, is_json, judging_by, lossy, policies};
use bytes::Bytes;
use dialects::MESSAGES;
use dialects::reply::{Ending, Form, Limits, Options};
use dialects::variant::{Asking, Placement, PlannedRequest, Variant};
use engine::pipeline::ReplyPipeline;
use mock::tolerant::{Call, calls_in_message, calls_in_message_stream};
use model::Transcript;
use model::adaptation::Adaptation;
use model::memo::NoMemo;
use std::sync::Arc;

/// A hidden exchange of an earlier reply.
const EXCHANGE: &str = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"see"},{"type":"tool_use","id":"w1","name":"look","input":{}}],"shown":[0,1]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"w1","is_error":true,"content":"no"}]}"#;
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
    let Ok(request) = MESSAGES.read(&body) else { return false };
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
    let has_thread = request.value(&body, "thread").is_some();
    let source = PlannedRequest::new(&body, &request, &plan);
    let plain = Variant::plain(Placement::Suffix);
    if is_plan_empty && !has_thread && !request.odd {
        assert_eq!(MESSAGES.write(&source, &plain).join(), body, "touched without a reason");
    }
    let variant = variant_of(form);
    let out = MESSAGES.write(&source, &variant).join();
    let context = || format!("{variant:?}\n{plan:?}\n{}\nbecame\n{}", lossy(&body), lossy(&out));
    let fault = MESSAGES.read(&out).err();
    assert!(fault.is_none(), "not read again ({fault:?}): {}", context());
    assert!(!is_json(&body) || is_json(&out), "no JSON: {}", context());
    true
}

/// The form of sending that a byte names.
fn variant_of(form: u8) -> Variant {
    let tools = [None, Some(Adaptation::ToolChoice), Some(Adaptation::Tools)][usize::from(form % 3)];
    let history = (form / 9 % 2 == 1).then_some(Adaptation::Flattened);
    let pairs = (form / 18 % 2 == 1).then_some(Adaptation::Pairs);
    let adapted = tools.into_iter().chain(history).chain(pairs).collect();
    let asking = match form / 3 % 3 {
        0 => None,
        land => Some(Asking { rounds: vec![Bytes::from_static(EXCHANGE.as_bytes())], land: land == 2 }),
    };
    let without_thinking = usize::from(form / 36 % 4);
    Variant { adapted, asking, without_thinking, ..Variant::plain(Placement::Suffix) }
}

/// A hidden exchange, and the messages among which it comes back, with a line break between them.
pub fn exchanges(input: &[u8]) -> bool {
    let (at, input) = choices(input);
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let exchange = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let messages = parts.next().unwrap_or_default();
    let body = [b"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},", messages, b"]}"].concat();
    let body = Bytes::from(body);
    let Ok(request) = MESSAGES.read(&body) else { return false };
    let at = usize::from(at) % request.messages.len();
    let is_all_json = is_json(&body) && is_json(&[b"[", exchange.as_ref(), b"]"].concat());
    let fits = MESSAGES.may_restore(&request, &body, at, &exchange);
    let restored = [(at, exchange)];
    let plan = model::plan::Plan::default();
    let source = PlannedRequest { restored: &restored, ..PlannedRequest::new(&body, &request, &plan) };
    for form in [0, 3, 9] {
        let out = MESSAGES.write(&source, &variant_of(form)).join();
        let context = || format!("{}\n{}\nbecame\n{}", lossy(&restored[0].1), lossy(&body), lossy(&out));
        assert!(MESSAGES.read(&out).is_ok(), "not read again: {}", context());
        assert!(!is_all_json || is_json(&out), "no JSON: {}", context());
    }
    for other in [MESSAGES.plain_exchange(&restored[0].1), MESSAGES.short_exchange(&restored[0].1)] {
        assert!(is_json(&[b"[", other.as_ref(), b"]"].concat()), "{}", lossy(&other));
    }
    fits
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
    let found = if form == Form::Whole { calls_in_message(&whole) } else { calls_in_message_stream(&whole) };
    let is_forbidden = |call: &&Call| FORBIDDEN.contains(&call.name.as_str());
    let escaped: Vec<&Call> = found.iter().filter(is_forbidden).collect();
    assert!(escaped.is_empty(), "{escaped:?} in\n{}\nof\n{}", lossy(&whole), lossy(bytes));
    !whole.is_empty()
}

/// What the client gets, where the model gives the same reply whenever it is asked again.
fn judged(form: Form, first: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let judging = judging_by(TABLES[usize::from(first) / 2 % TABLES.len()]);
    let mut judge = ReplyPipeline::new(judging, MESSAGES, form, limits, Options::default());
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
        let Ending::Reask { choice, .. } = ending else { return out.concat() };
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "no end");
        if rounds > PATIENCE {
            judge.judging_mut().land();
        }
        judge.continue_with(choice);
    }
}
