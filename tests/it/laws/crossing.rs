//! Isolation of conversations: what was hidden in one conversation is put back in no other that differs from it in
//! anything the model saw, however often ids of calls repeat; and it is put back in its own, however clients write,
//! edit and trim that conversation. Release times of calls that cannot be distinguished never make a call older than
//! it is.

use super::world::{Facts, NOW_MS, Reading, identity, read, shipped};
use bytes::Bytes;
use engine::restore::{hidden_positions, text_key_of};
use model::Transcript;
use model::fact::Fact as _;
use model::memo::NoMemo;
use model::released::{Release, hidden_digest};
use model::store::HiddenExchange;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the client was not shown.
const HIDDEN: &str = r#"{"role":"assistant","content":"","tool_calls":[{"id":"h","type":"function","function":{"name":"pay","arguments":"{\"secret\":1}"}}]},{"role":"tool","tool_call_id":"h","content":"no"}"#;
const OTHER: &str = r#"{"role":"assistant","content":"","tool_calls":[{"id":"h","type":"function","function":{"name":"pay","arguments":"{\"secret\":2}"}}]},{"role":"tool","tool_call_id":"h","content":"no"}"#;
const RANDOM: &str = "call_Ae2Y4fDJmxZkQhWq8LbTzR1c";

/// How the reply ends after which something was hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    Text,
    /// A call with this id.
    Call(&'static str),
}

const REPLIES: [Reply; 5] =
    [Reply::Text, Reply::Call(""), Reply::Call("functions.look:1"), Reply::Call("0"), Reply::Call(RANDOM)];

/// A conversation in which the reply at [`REPLY`] came after something hidden.
fn conversation(reply: Reply) -> Vec<Value> {
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}});
    let call = |id: &str, arguments: &str| json!([{"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}]);
    let said = match reply {
        Reply::Text => json!({"role": "assistant", "content": "Here it is."}),
        Reply::Call(id) => {
            json!({"role": "assistant", "content": null, "tool_calls": call(id, "{\"q\":{\"a\":1,\"b\":2.0}}")})
        }
    };
    let mut messages = vec![
        json!({"role": "system", "content": "You help."}),
        json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}),
        json!({"role": "assistant", "content": "A cat."}),
        json!({"role": "user", "content": "Look."}),
        json!({"role": "assistant", "content": null, "tool_calls": call("functions.look:0", "{\"q\":1}")}),
        json!({"role": "tool", "tool_call_id": "functions.look:0", "content": "earlier result"}),
        said,
    ];
    match reply {
        Reply::Text => messages.push(json!({"role": "user", "content": "Thanks."})),
        Reply::Call(id) => messages.push(json!({"role": "tool", "tool_call_id": id, "content": "found"})),
    }
    messages
}

const REPLY: usize = 6;

fn body(messages: &[Value]) -> Bytes {
    json!({"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "look"}}]})
        .to_string()
        .into()
}

/// What the program remembers once it has given `messages[REPLY]` after `hidden`.
fn remember(facts: &mut Facts, messages: &[Value], hidden: &'static str, at_ms: u64) {
    let (body, identity) = (body(messages), identity(1));
    let request = dialects::chat::parse(&body).unwrap();
    let transcript = Transcript::read(request, body.to_vec(), identity.clone(), Arc::new(NoMemo));
    let place = *hidden_positions(&transcript, 1024).iter().find(|place| place.message == REPLY).unwrap();
    let messages = Bytes::from_static(hidden.as_bytes());
    let Some(call) = transcript.calls.made_by(REPLY).first() else {
        let message_key = text_key_of(&transcript, place);
        return facts.rounds.entry(place.name).or_default().push(HiddenExchange { message_key, messages });
    };
    let hidden = hidden_digest(&messages, &identity.key);
    let known = facts.released.entry(call.key).or_default();
    Release { context: place.name, hidden, at_ms }.add_to(Arc::make_mut(known));
    if !messages.is_empty() {
        for name in [Some(place.name), place.own].into_iter().flatten() {
            facts
                .rounds
                .entry(name)
                .or_default()
                .push(HiddenExchange { message_key: call.key, messages: messages.clone() });
        }
    }
}

fn reading(messages: &[Value], facts: &Facts) -> Reading {
    read(&body(messages), shipped(), facts)
}

fn put_back(messages: &[Value], facts: &Facts) -> bool {
    let restored = reading(messages, facts).restored;
    assert!(restored.iter().all(|(_, round)| *round == HIDDEN.as_bytes()), "{restored:?}");
    !restored.is_empty()
}

/// What is done to a conversation, and how it is done.
type Change = (&'static str, fn(&mut Vec<Value>));

/// One thing that the model saw is replaced by another.
fn others() -> Vec<Change> {
    vec![
        ("the system's text", |all| all[0]["content"] = "You help somebody else.".into()),
        ("the user's text", |all| all[1]["content"][0]["text"] = "What is that?".into()),
        ("an image", |all| all[1]["content"][1]["image_url"]["url"] = "data:image/png;base64,AAAB".into()),
        ("how an image is looked at", |all| all[1]["content"][1]["image_url"]["detail"] = "high".into()),
        ("an image more", |all| {
            let image = all[1]["content"][1].clone();
            all[1]["content"].as_array_mut().unwrap().push(image);
        }),
        ("the order of parts", |all| all[1]["content"].as_array_mut().unwrap().reverse()),
        ("an assistant's text", |all| all[2]["content"] = "A dog.".into()),
        ("the last question", |all| all[3]["content"] = "Look again.".into()),
        ("who asks", |all| all[3]["role"] = "system".into()),
        ("the name of who asks", |all| all[3]["name"] = "bob".into()),
        ("an earlier call's arguments", |all| {
            all[4]["tool_calls"][0]["function"]["arguments"] = "{\"q\":2}".into();
        }),
        ("an earlier call's tool", |all| all[4]["tool_calls"][0]["function"]["name"] = "fetch".into()),
        ("an earlier result", |all| all[5]["content"] = "another result".into()),
        ("an earlier result of another kind", |all| {
            all[5]["content"] =
                json!([{"type": "text", "text": "earlier"}, {"type": "text", "text": " resul"}]);
        }),
        ("a message more", |all| all.insert(3, json!({"role": "user", "content": "Wait."}))),
        ("a message less", |all| drop(all.remove(2))),
    ]
}

/// What clients do to a conversation between two requests without making it another conversation.
fn same_ones() -> Vec<Change> {
    vec![
        ("nothing", |_| {}),
        ("arguments written anew", |all| {
            for message in all.iter_mut() {
                let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
                for call in calls.into_iter().flatten() {
                    let text = call["function"]["arguments"].as_str().unwrap();
                    let text = text.replace(':', ": ").replace("\"a\": 1,\"b\": 2.0", "\"b\": 2, \"a\": 1");
                    call["function"]["arguments"] = text.into();
                }
            }
        }),
        ("a name added to assistant messages", |all| {
            for message in all.iter_mut().filter(|message| message["role"] == "assistant") {
                message["name"] = "UnnamedAgent".into();
            }
        }),
        ("null for nothing", |all| said_as(all, Some(&Value::Null))),
        ("an empty text for nothing", |all| said_as(all, Some(&"".into()))),
        ("no content for nothing", |all| said_as(all, None)),
        ("texts as parts", |all| {
            for at in [0, 2, 3] {
                let text = all[at]["content"].take();
                all[at]["content"] = json!([{"type": "text", "text": text}]);
            }
        }),
        ("white space around the assistant's text", |all| all[2]["content"] = " A cat.\n".into()),
        ("other members of assistant messages", |all| {
            all[4]["audio"] = Value::Null;
            all[4]["refusal"] = Value::Null;
            all[4]["reasoning_content"] = "why".into();
        }),
        ("a mark of what is to be cached", |all| {
            all[1]["content"][1]["cache_control"] = json!({"type": "ephemeral"});
        }),
        ("members in another order", |all| {
            all[1]["content"][1] =
                json!({"image_url": all[1]["content"][1]["image_url"], "type": "image_url"});
        }),
    ]
}

fn said_as(all: &mut [Value], content: Option<&Value>) {
    let silent = all.iter_mut().filter(|message| message.get("tool_calls").is_some());
    for message in silent.filter_map(Value::as_object_mut) {
        message.remove("content");
        message.extend(content.into_iter().map(|content| ("content".to_owned(), content.clone())));
    }
}

/// Changes by clients that the model sees, so that only a random id still identifies the conversation.
fn edits() -> Vec<Change> {
    vec![
        ("an error added to the first user message", |all| {
            all[1]["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": "Error: no."}));
        }),
        ("a user message moved along", |all| {
            all.push(json!({"role": "user", "content": "Respond with the fields."}));
            all.insert(6, json!({"role": "user", "content": "Respond with the fields."}));
            all.remove(6);
            all.remove(3);
        }),
        ("old messages left out", |all| drop(all.drain(1..3))),
        ("an old result cut", |all| all[5]["content"] = "[cut]".into()),
    ]
}

#[test]
fn nothing_of_one_conversation_is_put_back_in_another_that_differs_in_one_thing() {
    for reply in REPLIES.into_iter().filter(|reply| *reply != Reply::Call(RANDOM)) {
        let mut facts = Facts::default();
        remember(&mut facts, &conversation(reply), HIDDEN, NOW_MS);
        assert!(put_back(&conversation(reply), &facts), "{reply:?}: its own is");
        for (what, differ) in others() {
            let mut other = conversation(reply);
            differ(&mut other);
            assert!(!put_back(&other, &facts), "{reply:?}: {what} is another");
        }
    }
}

#[test]
fn a_random_id_seen_in_two_conversations_no_longer_identifies_either() {
    let reply = Reply::Call(RANDOM);
    for (what, differ) in others() {
        let mut facts = Facts::default();
        let (own, mut other) = (conversation(reply), conversation(reply));
        differ(&mut other);
        let at = other.iter().rposition(|message| message["role"] == "assistant").unwrap();
        if at != REPLY {
            continue;
        }
        remember(&mut facts, &own, HIDDEN, NOW_MS);
        remember(&mut facts, &other, "", NOW_MS + 1);
        assert!(
            put_back(&own, &facts),
            "{what}: where it is known by its whole content, it is still put back"
        );
        assert!(!put_back(&other, &facts), "{what}");
        for (edit, edited) in edits() {
            let mut own = own.clone();
            edited(&mut own);
            assert!(!put_back(&own, &facts), "{what}, {edit}: nobody knows whose it is");
        }
    }
}

#[test]
fn where_two_conversations_cannot_be_distinguished_nothing_is_put_back() {
    for reply in REPLIES {
        for other in ["", OTHER] {
            let mut facts = Facts::default();
            remember(&mut facts, &conversation(reply), HIDDEN, NOW_MS);
            remember(&mut facts, &conversation(reply), other, NOW_MS + 1);
            let reading = reading(&conversation(reply), &facts);
            assert_eq!((reading.restored.len(), reading.lost), (0, 1), "{reply:?}");
        }
    }
}

#[test]
fn hidden_exchanges_are_restored_however_the_client_formats_its_conversation() {
    for reply in REPLIES {
        let mut facts = Facts::default();
        remember(&mut facts, &conversation(reply), HIDDEN, NOW_MS);
        for (what, spell) in same_ones() {
            let mut own = conversation(reply);
            spell(&mut own);
            assert!(put_back(&own, &facts), "{reply:?}: {what}");
            assert_eq!(
                reading(&own, &facts).times.last(),
                reading(&conversation(reply), &facts).times.last()
            );
        }
    }
}

#[test]
fn a_random_id_is_known_however_the_client_edits_what_is_before_it() {
    for (what, edit) in edits() {
        let mut facts = Facts::default();
        remember(&mut facts, &conversation(Reply::Call(RANDOM)), HIDDEN, NOW_MS);
        let mut own = conversation(Reply::Call(RANDOM));
        edit(&mut own);
        assert!(put_back(&own, &facts), "{what}");
        assert_eq!(reading(&own, &facts).times.last(), Some(&Some(NOW_MS)), "{what}");
    }
}

#[test]
fn a_call_counts_from_when_its_own_conversation_got_it_and_from_the_latest_time_where_that_is_not_known() {
    for id in ["", "functions.look:1", "0"] {
        let (own, mut other) = (conversation(Reply::Call(id)), conversation(Reply::Call(id)));
        other[0]["content"] = "Another.".into();
        let mut facts = Facts::default();
        remember(&mut facts, &other, "", NOW_MS - 500_000);
        let time =
            |messages: &[Value], facts: &Facts| reading(messages, facts).times.last().copied().flatten();
        remember(&mut facts, &own, "", NOW_MS);
        assert_eq!(time(&own, &facts), Some(NOW_MS), "not from when another conversation made it");
        assert_eq!(time(&other, &facts), Some(NOW_MS - 500_000));
        for (what, edit) in edits() {
            let mut other = other.clone();
            edit(&mut other);
            assert_eq!(time(&other, &facts), Some(NOW_MS), "{what}: never taken for older than it is");
        }
    }
}

proptest! {
    #![proptest_config(crate::laws::with_cases(120))]

    #[test]
    fn conversations_differ_by_what_the_model_saw_and_by_nothing_else(
        reply in 0..4_usize,
        forms in proptest::collection::vec(0..same_ones().len(), 0..4),
        differing in proptest::collection::vec(0..others().len() - 2, 0..3),
    ) {
        let reply = REPLIES[reply];
        let mut facts = Facts::default();
        remember(&mut facts, &conversation(reply), HIDDEN, NOW_MS);
        let mut other = conversation(reply);
        for at in forms {
            let (what, spell) = same_ones()[at];
            // Writing the content as parts a second time changes nothing.
            if what != "texts as parts" || other[0]["content"].is_string() {
                spell(&mut other);
            }
        }
        differing.iter().for_each(|at| others()[*at].1(&mut other));
        // Swapping two parts twice restores the first order.
        let is_same = differing.is_empty() || body(&other) == body(&conversation(reply)) || differing == [5, 5];
        prop_assert_eq!(put_back(&other, &facts), is_same);
    }
}
