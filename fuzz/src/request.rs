//! Target: a request's bytes, parsed, read as a conversation, folded through policies, written in every form. What no
//! policy touched is unchanged; what a strict provider accepts it still accepts; JSON stays JSON; nothing grows without
//! bound; and the same request gives the same bytes, whatever is cached of it.

use crate::world::{NOW_MS, SETS, choices, config, identity, is_json, lossy, policies};
use bytes::Bytes;
use dialects::prefix::read_request;
use dialects::variant::{Asking, Placement, PlannedRequest, Variant};
use mock::strict::violations;
use model::Transcript;
use model::adaptation::Adaptation;
use model::identity::Hash;
use model::memo::{DerivedValue, Memo, NoMemo};
use model::plan::Plan;
use model::request::Request;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

/// A hidden exchange of an earlier reply, restored before the messages that the input chooses.
const ROUND: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"w1","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"w1","content":"{\"ok\":false}"}"#;
/// Most that is added to a body independent of its size: a declared tool, a last message.
const ADDED: usize = 8_000;
/// Most that is added to a message: notices, lines around, a cut text written in escapes.
const ADDED_TO_MESSAGE: usize = 4_000;

pub fn run(input: &[u8]) -> bool {
    let (set, input) = choices(input);
    let (form, body) = choices(input);
    let body = Bytes::copy_from_slice(body);
    let Ok(request) = dialects::chat::parse(&body) else { return false };
    let set = usize::from(set) % SETS;
    let memo: Arc<dyn Memo> = Arc::new(KeepAll::default());
    let plan = read(&request, &body, set, &(Arc::new(NoMemo) as Arc<dyn Memo>));
    // Twice with a memory: the second time everything is remembered, of the reading too.
    for _ in 0..2 {
        let remembered = read_request(dialects::CHAT, &body, &identity(1).key, &*memo).unwrap();
        assert_eq!((&remembered.members, &remembered.tools), (&request.members, &request.tools));
        assert_eq!(read(&remembered, &body, set, &memo), plan);
    }
    if plan.refusal.is_some() {
        return true;
    }
    for placement in [Placement::System, Placement::Suffix, Placement::Leading] {
        let out = write(&request, &body, &plan, &Variant::plain(placement));
        if changes_nothing(&plan) {
            assert_eq!(out, body, "touched without a reason");
        }
        let variant = variant_of(form, placement);
        let out = write(&request, &body, &plan, &variant);
        check(&request, &body, (&out, &plan), &variant);
        assert_eq!(write(&request, &body, &plan, &variant), out);
    }
    true
}

fn changes_nothing(plan: &Plan) -> bool {
    plan.edits.is_empty()
        && plan.dropped.is_empty()
        && plan.hidden.is_empty()
        && plan.declared.is_empty()
        && !plan.one_at_a_time
}

fn check(request: &Request, body: &Bytes, (out, plan): (&Bytes, &Plan), variant: &Variant) {
    let context = || format!("{variant:?}\n{plan:?}\n{}\nbecame\n{}", lossy(body), lossy(out));
    let fault = dialects::chat::parse(out).err();
    assert!(fault.is_none(), "not read again ({fault:?}): {}", context());
    if is_json(body) {
        assert!(is_json(out), "no JSON: {}", context());
        if violations(body).is_empty() {
            let found = violations(out);
            assert!(found.is_empty(), "{found:?}: {}", context());
        }
    }
    let most = body.len() * 7 + ADDED + (request.messages.len() + 1) * ADDED_TO_MESSAGE;
    assert!(out.len() <= most, "{} bytes became {}", body.len(), out.len());
}

fn read(request: &Request, body: &Bytes, set: usize, memo: &Arc<dyn Memo>) -> Plan {
    let identity = identity(1);
    let model = request.model_name(body);
    let mut transcript = Transcript::read(request.clone(), body.clone(), identity, Arc::clone(memo));
    transcript.token_factor = config(set).token_factor(&model);
    transcript.context_window = config(set).context_window(&model);
    transcript.now_ms = NOW_MS;
    transcript.calls.calls.iter_mut().for_each(|call| call.released_ms = Some(NOW_MS - 1000));
    let (mut plan, _) = policies(set).read(&transcript);
    if request.odd {
        plan.change_nothing();
    }
    plan
}

fn write(request: &Request, body: &Bytes, plan: &Plan, variant: &Variant) -> Bytes {
    dialects::chat::write(&PlannedRequest::new(body, request, plan), variant).join()
}

/// The form of sending that a byte names.
fn variant_of(form: u8, placement: Placement) -> Variant {
    let tools = [None, Some(Adaptation::ToolChoice), Some(Adaptation::Tools)][usize::from(form % 3)];
    let history = (form / 9 % 2 == 1).then_some(Adaptation::Flattened);
    let adapted = tools.into_iter().chain(history).collect();
    let rounds = || vec![Bytes::from_static(ROUND.as_bytes())];
    let asking = match form / 3 % 3 {
        0 => None,
        land => Some(Asking { rounds: rounds(), land: land == 2 }),
    };
    Variant { adapted, asking, ..Variant::plain(placement) }
}

/// Remembers everything, as the program's cache does.
#[derive(Default)]
struct KeepAll(Mutex<BTreeMap<Hash, DerivedValue>>);

impl Memo for KeepAll {
    fn find(&self, key: Hash) -> Option<DerivedValue> {
        self.0.lock().unwrap().get(&key).cloned()
    }

    fn keep(&self, key: Hash, value: DerivedValue, _weight: usize) {
        self.0.lock().unwrap().insert(key, value);
    }
}
