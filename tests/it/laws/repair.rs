//! Laws of repaired histories: whatever a client sends, the repaired request passes the strictest validators, a healthy
//! one keeps its bytes, and what was repaired stays as it was when the conversation goes on.

use bytes::Bytes;
use dialects::variant::{Placement, PlannedRequest, Variant};
use dialects::{chat, responses};
use mock::{strict, strict_responses};
use model::adaptation::Adaptation;
use model::plan::Plan;
use proptest::prelude::*;
use serde_json::{Value, json};

/// One message of a history, whatever its form.
#[derive(Clone, Debug)]
enum Said {
    User,
    Text,
    Calls(Vec<(u8, &'static str)>),
    Result(u8),
}

fn histories() -> impl Strategy<Value = Vec<Said>> {
    let arguments = prop::sample::select(vec!["{}", "{\"q\":1}", "{\"q\":", "2", "", "\"text\""]);
    let call = (0_u8..4, arguments);
    let calls = prop::collection::vec(call, 1..4).prop_map(|mut calls| {
        calls.sort_unstable();
        calls.dedup_by_key(|call| call.0);
        Said::Calls(calls)
    });
    let said = prop_oneof![Just(Said::User), Just(Said::Text), calls, (0_u8..4).prop_map(Said::Result)];
    prop::collection::vec(said, 1..14)
}

fn as_chat(history: &[Said]) -> Bytes {
    let message = |said: &Said| match said {
        Said::User => json!({"role": "user", "content": "q"}),
        Said::Text => json!({"role": "assistant", "content": "a"}),
        Said::Calls(calls) => {
            let call = |(id, arguments): &(u8, &str)| json!({"id": format!("call_{id}"), "type": "function", "function": {"name": "f", "arguments": arguments}});
            json!({"role": "assistant", "content": null, "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
        }
        Said::Result(id) => json!({"role": "tool", "tool_call_id": format!("call_{id}"), "content": "r"}),
    };
    json!({"model": "m", "messages": history.iter().map(message).collect::<Vec<_>>()}).to_string().into()
}

fn as_responses(history: &[Said]) -> Bytes {
    let items = |(at, said): (usize, &Said)| match said {
        Said::User => vec![json!({"role": "user", "content": "q"})],
        Said::Text => vec![json!({"role": "assistant", "content": "a"})],
        Said::Calls(calls) => {
            let call = |(id, arguments): &(u8, &str)| json!({"type": "function_call", "id": format!("fc_{at}_{id}"), "call_id": format!("call_{id}"), "name": "f", "arguments": arguments});
            calls.iter().map(call).collect()
        }
        Said::Result(id) => {
            vec![json!({"type": "function_call_output", "call_id": format!("call_{id}"), "output": "r"})]
        }
    };
    json!({"model": "m", "input": history.iter().enumerate().flat_map(items).collect::<Vec<_>>()})
        .to_string()
        .into()
}

fn variant() -> Variant {
    Variant::plain(Placement::Suffix).with(Adaptation::SUSPECTED_REPAIRS)
}

/// The repaired request, and its messages or items.
fn repaired(body: &Bytes, is_chat: bool) -> (Bytes, Vec<Value>) {
    let plan = Plan::default();
    let request = if is_chat { chat::parse(body) } else { responses::parse(body) }.unwrap();
    let source = PlannedRequest::new(body, &request, &plan);
    let out =
        if is_chat { chat::write(&source, &variant()) } else { responses::write(&source, &variant()) }.join();
    let mut value: Value = serde_json::from_slice(&out).unwrap();
    let list = value[if is_chat { "messages" } else { "input" }].take();
    (out, list.as_array().unwrap().clone())
}

fn is_sound(arguments: &Value) -> bool {
    let text = arguments.as_str().unwrap();
    serde_json::from_str::<Value>(text).is_ok_and(|arguments| arguments.is_object())
}

proptest! {
    #[test]
    fn a_repaired_history_passes_the_strictest_validators(history in histories()) {
        let (out, messages) = repaired(&as_chat(&history), true);
        prop_assert_eq!(strict::violations(&out), Vec::<String>::new());
        let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
        prop_assert!(calls.into_iter().all(|call| is_sound(&call["function"]["arguments"])));
        let (out, items) = repaired(&as_responses(&history), false);
        prop_assert_eq!(strict_responses::violations(&out), Vec::<String>::new());
        prop_assert!(items.iter().filter(|item| item["type"] == "function_call").all(|call| is_sound(&call["arguments"])));
    }

    #[test]
    fn repairing_once_is_enough_and_a_healthy_history_keeps_its_bytes(history in histories()) {
        for is_chat in [true, false] {
            let body = if is_chat { as_chat(&history) } else { as_responses(&history) };
            let (once, _) = repaired(&body, is_chat);
            let (twice, _) = repaired(&once, is_chat);
            prop_assert_eq!(&twice, &once);
        }
    }

    #[test]
    fn what_was_repaired_stays_when_the_conversation_goes_on(history in histories()) {
        // Results that are still coming may complete the last group.
        let cuts = (1..history.len()).filter(|cut| !matches!(history[*cut], Said::Result(_)));
        for cut in cuts {
            // In the Responses API what the model makes in a row is one message.
            let goes_on = matches!(history[cut], Said::Calls(_) | Said::Text);
            for is_chat in [true, false] {
                let of = |history: &[Said]| {
                    repaired(&if is_chat { as_chat(history) } else { as_responses(history) }, is_chat).1
                };
                let is_of_model = matches!(history[cut - 1], Said::Calls(_) | Said::Text);
                if !is_chat && goes_on && is_of_model {
                    continue;
                }
                let (shorter, longer) = (of(&history[..cut]), of(&history));
                prop_assert_eq!(&longer[..shorter.len()], &shorter[..], "cut at {}", cut);
            }
        }
    }
}
