//! Repetition: the same request gives the same bytes in every process, and a history that a client writes in another
//! form counts as the same history.

use super::generate::{Conversation, orderly};
use super::spelling::Spelling;
use super::world::{Facts, SETS, STEADY, by_tokens, identity, low, policies, read, read_as, redacting};
use dialects::variant::Variant;
use model::Transcript;
use model::identity::Hash;
use model::memo::NoMemo;
use model::testing::KeepAll;
use proptest::prelude::*;
use serde_json::Value;
use std::sync::Arc;

proptest! {
    #![proptest_config(crate::laws::with_cases(120))]

    #[test]
    fn the_same_request_gives_the_same_bytes_in_every_process(talk in orderly(), set in 0..SETS) {
        let (body, facts, memo) = (talk.body(), Facts::default(), KeepAll::shared());
        let once = read(&body, policies(set), &facts);
        // Twice with a memory: the second time everything is remembered. Placeholders are made under a key, which
        // processes share where they shall be the same.
        let seeds = if std::ptr::eq(policies(set), redacting()) { [1, 1, 1] } else { [2, 3, 3] };
        for seed in seeds {
            let again = read_as(&body, policies(set), &facts, (&identity(seed), &memo)).unwrap();
            prop_assert_eq!(&again.plan.edits, &once.plan.edits);
            for placement in STEADY {
                prop_assert_eq!(again.write(&Variant::plain(placement)), once.write(&Variant::plain(placement)));
            }
        }
    }

    #[test]
    fn a_history_spelled_anew_gives_the_same_plan_and_the_same_calls(
        talk in orderly(),
        choices in prop::collection::vec(any::<u8>(), 1..16),
    ) {
        let Some(anew) = spelled_anew(&talk, &mut Spelling::new(choices.clone()), true) else { return Ok(()) };
        let none = Facts::default();
        prop_assert_eq!(
            read(&anew.body(), low(), &none).plan.edits, read(&talk.body(), low(), &none).plan.edits, "{:?}", anew);
        prop_assert_eq!(keys(&anew), keys(&talk), "{:?}", anew);
        // Tokens are counted over the arguments as written, which therefore stay here.
        let anew = spelled_anew(&talk, &mut Spelling::new(choices), false).unwrap();
        prop_assert_eq!(
            read(&anew.body(), by_tokens(), &none).plan.edits, read(&talk.body(), by_tokens(), &none).plan.edits, "{:?}", anew);
    }
}

/// The messages written in another spelling, as clients do that keep them as values; `None` where a value
/// cannot keep them.
fn spelled_anew(talk: &Conversation, spelling: &mut Spelling, arguments: bool) -> Option<Conversation> {
    let messages = talk.messages.iter().map(|message| {
        let mut message: Value = serde_json::from_str(message).ok()?;
        if arguments {
            for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                respell(&mut call["function"]["arguments"]);
            }
            if message["function_call"].is_object() {
                respell(&mut message["function_call"]["arguments"]);
            }
        }
        if message.get("tool_calls").is_some_and(Value::is_null) {
            message.as_object_mut()?.remove("tool_calls");
        }
        Some(spelling.write(&message))
    });
    Some(Conversation { messages: messages.collect::<Option<_>>()?, ..talk.clone() })
}

/// As Python's `json.dumps` writes what it has read.
pub fn respell(arguments: &mut Value) {
    let Some(text) = arguments.as_str() else { return };
    if text.is_empty() {
        // No arguments are an empty object to many clients.
        *arguments = "{}".into();
    } else if let Ok(value) = serde_json::from_str::<Value>(text) {
        *arguments = pythonic(&value).into();
    }
}

fn pythonic(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(pythonic).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| format!("{}: {}", pythonic(&key.as_str().into()), pythonic(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => {
            let mut out = String::from("\"");
            for character in text.chars() {
                if character.is_ascii() && !character.is_ascii_control() && !matches!(character, '"' | '\\') {
                    out.push(character);
                } else {
                    let mut units = [0; 2];
                    out.extend(
                        character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")),
                    );
                }
            }
            out + "\""
        }
        other => other.to_string(),
    }
}

fn keys(talk: &Conversation) -> Vec<Hash> {
    let (body, identity) = (talk.body(), identity(1));
    let request = dialects::chat::parse(&body).unwrap();
    let transcript = Transcript::read(request, body.to_vec(), identity, Arc::new(NoMemo));
    transcript.calls.calls.iter().map(|call| call.key).collect()
}
