//! Final answers of the Responses API in which the model writes calls as text, or that must be a call.

use crate::governed::talk::{BOTH, budget};
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, event, events};
use crate::support::responses_kit::{Talk, may_call, tool};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

/// Calls of `f` as models write them.
const CALLS_AS_TEXT: [&str; 12] = [
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
    "[TOOL_CALLS]f[ARGS]{\"q\": 1}",
    "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}<|eom_id|>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
    "<tool_call>\n<function=f>\n<parameter=q>\nx\n</parameter>\n</function>\n</tool_call>",
    "```json\n[{\"name\": \"f\", \"arguments\": {\"q\": \"x\"}}]\n```",
    "```tool_code\nf(q=\"x\")\n```",
    ">>>f\n{\"q\": \"x\"}",
    "<tool_use>\n<name>f</name>\n<arguments>{}</arguments>\n</tool_use>",
    "{\"name\": \"f\", \"parameters\": {}}",
    "Action: f\nAction Input: {}",
];

/// A reply that streams its first text in pieces of so many characters.
fn in_pieces(output: &Output, request: &Recorded, size: usize) -> Reply {
    let body = request.json();
    if body["stream"] != true {
        return output.reply(request);
    }
    let mut all: Vec<Value> = Vec::new();
    for one in output.events(&body) {
        match one["delta"].as_str().filter(|_| one["type"] == "response.output_text.delta") {
            Some(delta) => {
                let letters: Vec<char> = delta.chars().collect();
                all.extend(letters.chunks(size).map(|piece| {
                    let mut part = one.clone();
                    part["delta"] = piece.iter().collect::<String>().into();
                    part
                }));
            }
            None => all.push(one),
        }
    }
    for (at, one) in all.iter_mut().enumerate() {
        one["sequence_number"] = at.into();
    }
    Reply::stream(all.iter().map(event))
}

/// Calls `f`, and says `answer` where no call is asked for.
fn answering(
    answer: &'static str,
    size: usize,
) -> impl Fn(usize, &Recorded) -> Reply + Send + Sync + 'static {
    move |nth, request| match may_call(request) {
        true => Output::new(nth).call(&nth.to_string(), "f", "{}").reply(request),
        false => in_pieces(&Output::text(nth, answer), request, size),
    }
}

/// A conversation that has used its budget.
fn spent(stream: bool) -> Talk {
    let mut talk = Talk::new(stream);
    talk.called("old", "{}", &json!("r"));
    talk
}

/// Every text that a client may show: of deltas, their ends, parts, items and the last event.
fn shown(bytes: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut deltas = String::new();
    for one in events(bytes) {
        deltas += one["delta"].as_str().unwrap_or_default();
        texts.extend(
            [&one["text"], &one["part"]["text"]].map(|text| text.as_str().unwrap_or_default().to_owned()),
        );
    }
    texts.push(deltas);
    texts
}

#[test]
fn calls_that_a_final_answer_holds_as_text_reach_no_client_of_the_responses_api() {
    for stream in BOTH {
        for (answer, size) in CALLS_AS_TEXT.iter().zip([1, 5, 1_000].iter().cycle()) {
            let upstream = Scripted::start(answering(answer, *size));
            let toolrein = Toolrein::before(&upstream, &budget(1));
            let mut talk = spent(stream);
            let said = talk.ask(&toolrein);
            assert!(said.said().starts_with("I could not finish this"), "{answer}: {}", said.text());
            assert_eq!(said.kinds(), ["assistant"], "nothing but the sentence: {}", said.text());
            let id = said.items()[0]["id"].as_str().unwrap().to_owned();
            if stream {
                for text in shown(&said.text()) {
                    assert!(
                        text.is_empty() || text.starts_with("I could not finish this"),
                        "{answer}: {text}"
                    );
                }
                let begun: Vec<Value> = events(&said.text())
                    .into_iter()
                    .filter(|one| one["type"] == "response.output_item.added")
                    .collect();
                assert_eq!(begun.len(), 1, "{answer}");
                assert_eq!(begun[0]["item"]["id"], *id);
            }
            // The client goes on.
            talk.go_on(&said).say("And?").ask(&toolrein);
            upstream.assert_clean();
        }
    }
}

#[test]
fn a_call_that_names_parameters_of_a_declared_tool_reaches_no_client_of_the_responses_api() {
    for stream in BOTH {
        for (answer, size) in [
            ("to=functions.f json\n{\"q\": \"news\"}", 1),
            ("<f>\n<q>news</q>\n</f>", 5),
            ("```ts\nawait functions.f({q: \"news\"})\n```", 1_000),
            ("```python\nf(q=\"news\")\n```", 4),
        ] {
            let upstream = Scripted::start(answering(answer, size));
            let toolrein = Toolrein::before(&upstream, &budget(1));
            let tools = json!([{"type": "function", "name": "f", "parameters":
                {"type": "object", "properties": {"q": {"type": "string"}}}}]);
            let said = spent(stream).with_tools(tools).ask(&toolrein);
            assert!(said.said().starts_with("I could not finish this"), "{answer}: {}", said.text());
        }
    }
}

#[test]
fn the_text_around_a_call_stays_and_all_events_say_the_same() {
    for stream in BOTH {
        for size in [1, 3, 1_000] {
            let answer = "I looked.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\nIt is <b>7</b>, <tool";
            let upstream = Scripted::start(answering(answer, size));
            let toolrein = Toolrein::before(&upstream, &budget(1));
            let said = spent(stream).ask(&toolrein);
            let expected = "I looked.\n\n\nIt is <b>7</b>, <tool";
            assert_eq!(said.said(), expected);
            if stream {
                for text in shown(&said.text()).iter().filter(|text| !text.is_empty()) {
                    assert_eq!(text, expected, "{}", said.text());
                }
            }
        }
    }
}

#[test]
fn a_final_answer_without_markup_stays_byte_for_byte() {
    for stream in BOTH {
        for answer in [
            "Send this:\n```json\n{\"name\": \"deploy\", \"arguments\": {}}\n```\nThat is all.",
            "```python\nf(q=1)\n```\nThis line calls it.",
            "{\"name\": \"Ann\", \"arguments\": {\"age\": 7}}",
            " \n",
        ] {
            let upstream = Scripted::start(answering(answer, 2));
            let toolrein = Toolrein::before(&upstream, &budget(1));
            let said = spent(stream).ask(&toolrein);
            assert!(said.said().starts_with(answer), "{}", said.text());
        }
    }
}

#[test]
fn a_stream_without_ends_of_texts_gives_out_what_was_held() {
    let upstream = Scripted::start(|nth, request| {
        if may_call(request) {
            return Output::new(nth).call("1", "f", "{}").reply(request);
        }
        let mut all = Output::text(nth, "It is 7 <tool").events(&request.json());
        let is_end = |one: &Value| {
            let kind = one["type"].as_str().unwrap();
            kind.contains("output_text.done") || kind.contains("content_part")
        };
        all.retain(|one| !is_end(one));
        // As llama.cpp's server sends them: without numbers.
        for one in &mut all {
            let members = one.as_object_mut().unwrap();
            members.retain(|name, _| name != "sequence_number" && name != "content_index");
        }
        Reply::stream(all.iter().map(event))
    });
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let talk = spent(true);
    let bytes = crate::support::client::Request::post(
        &crate::support::responses_kit::url(&toolrein),
        talk.body.to_string(),
    )
    .send()
    .text();
    let deltas: String =
        events(&bytes).iter().filter_map(|one| one["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(deltas, "It is 7 <tool", "{bytes}");
}

#[test]
fn a_stubborn_model_ends_in_the_call_that_is_the_answer_on_the_responses_api_too() {
    for stream in BOTH {
        let upstream = Scripted::start(|nth, request| {
            let choice = request.json()["tool_choice"].clone();
            let name = choice["name"].as_str().unwrap_or("f");
            Output::new(nth).call(&nth.to_string(), name, "{}").reply(request)
        });
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let mut talk = Talk::new(stream).with_tools(json!([tool("f"), tool("final_answer")]));
        talk.body["tool_choice"] = "required".into();
        talk.called("old", "{}", &json!("r"));
        let answer = talk.ask(&toolrein);
        let calls: Vec<&Value> = answer.items().iter().map(|item| &item["name"]).collect();
        assert_eq!(calls, ["final_answer"], "{}", answer.text());
        assert_eq!(upstream.requests().len(), 2, "one, and the answer at once");
        let last = upstream.request(1).json();
        assert_eq!(last["tool_choice"], json!({"type": "function", "name": "final_answer"}));
    }
}
