//! The upstream's streams and the agent's reader held against recorded streams of OpenAI.

use super::super::super::endpoint::Endpoint;
use super::validator::{events, validate};
use super::*;

/// The body of a recorded request, and the stream that answered it.
fn recording(name: &str) -> (Value, String) {
    let read = |end: &str| {
        let path = format!("{}/../../tests/data/responses/{name}.00.{end}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    (serde_json::from_str(&read("request.json")).unwrap(), read("sse"))
}

const RECORDINGS: [&str; 4] = ["openai-text", "openai-call", "openai-parallel", "openai-reasoning-call"];

#[tokio::test]
async fn a_recorded_request_is_accepted_and_its_stream_has_the_shape_of_the_recorded_one() {
    let served = Served::start().await;
    for name in RECORDINGS {
        let (mut request, recorded) = recording(name);
        request["model"] = json!("demo-chat");
        // The simulated model calls what the user names.
        let wanted: Vec<String> = names_of(&validate(&recorded).unwrap().last);
        request["input"].as_array_mut().unwrap().push(user(&wanted.join(" ")));
        let mut expected = validate(&recorded).unwrap().shape;
        if name == "openai-reasoning-call" {
            // The simulated models do not reason: the first item is missing.
            let first = expected.iter().position(|kind| kind == "response.output_item.added").unwrap();
            assert_eq!(expected.drain(first..first + 2).count(), 2);
        }
        let streamed = validate(&served.create_streamed(request).await).unwrap();
        assert_eq!(streamed.shape, expected, "{name}");
        assert_eq!(names_of(&streamed.last), wanted, "{name}");
    }
}

#[tokio::test]
async fn each_event_and_item_has_the_members_of_a_recorded_one() {
    let served = Served::start().await;
    let members = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> =
            value.as_object().into_iter().flat_map(|map| map.keys()).cloned().collect();
        keys.sort();
        keys
    };
    for (name, question) in [("openai-text", "Hello"), ("openai-parallel", "add multiply")] {
        let (mut request, recorded) = recording(name);
        request["model"] = json!("demo-chat");
        request["input"] = json!(question);
        let ours = events(&served.create_streamed(request).await).unwrap();
        for event in &ours {
            let recorded = events(&recorded).unwrap();
            let same = recorded.iter().find(|other| other["type"] == event["type"]).unwrap();
            assert_eq!(members(event), members(same), "{name}");
            for key in ["item", "part"] {
                assert_eq!(members(&event[key]), members(&same[key]), "{name}");
            }
            // Newer members of the recorded object are left out; no others are added.
            let known = members(&same["response"]);
            assert!(members(&event["response"]).iter().all(|key| known.contains(key)), "{event}");
        }
    }
}

#[test]
fn the_agent_reads_recorded_streams() {
    for (name, calls, speaks, items) in [
        ("openai-text", vec![], true, 1),
        ("openai-call", vec!["weather"], false, 1),
        ("openai-parallel", vec!["add", "multiply"], false, 2),
        ("openai-reasoning-call", vec!["get_weather"], false, 2),
    ] {
        let answer = Endpoint::Responses.read(recording(name).1.as_bytes()).unwrap();
        let names: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!((names, answer.speaks, answer.items.len()), (calls, speaks, items), "{name}");
        for call in &answer.calls {
            assert!(call.id.starts_with("call_"), "{call:?}");
            assert!(serde_json::from_str::<Value>(&call.arguments).unwrap().is_object(), "{call:?}");
        }
    }
}

#[test]
fn the_agent_does_not_act_on_a_stream_that_broke_or_failed() {
    let (_, recorded) = recording("openai-call");
    let end = recorded.find("event: response.completed").unwrap();
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{}}\n\n";
    for (text, why) in [
        (recorded[..end].to_owned(), "reply broken off"),
        (recorded[..end].to_owned() + failed, "reply failed"),
        ("data: {\n\n".to_owned(), "event not JSON"),
    ] {
        assert_eq!(Endpoint::Responses.read(text.as_bytes()), Err(why));
    }
}
