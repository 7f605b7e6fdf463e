//! One conversation is counted once: the dashboard, its explanation, the log, the metrics, the recording, and what
//! `explain` and `replay` say of it name the same calls and the same blocked ones.

use crate::governed::recording::{lines, recording, toolrein};
use crate::governed::talk::BOTH;
use crate::support::client::{Request, get};
use crate::support::program::{ADMIN_TOKEN, Toolrein};
use crate::support::reply::{Reply, Speech};
use crate::support::responses::Output;
use crate::support::scripted::{Recorded, Scripted};
use crate::support::until;
use serde_json::{Value, json};

/// The requests whose reply makes two calls, one of which is blocked.
const ROUNDS: usize = 4;
const HEADLINE: &str = "4 of its 8 calls were blocked, the first by allow";

/// What differs between the two APIs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Api {
    Chat,
    Responses,
}

impl Api {
    fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
        }
    }

    /// The client's request after so many rounds; it never saw a blocked call.
    fn request(self, rounds: usize, stream: bool) -> Value {
        let (mut said, parameters) =
            (vec![json!({"role": "user", "content": "q"})], json!({"type": "object"}));
        for round in 0..rounds {
            let (id, arguments) = (format!("call_{round}_0"), format!("{{\"n\":{round}}}"));
            let result = format!("result {round}");
            match self {
                Self::Chat => {
                    let call = json!({"id": id, "type": "function", "function": {"name": "search", "arguments": arguments}});
                    said.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
                    said.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
                }
                Self::Responses => {
                    said.push(json!({"type": "function_call", "call_id": id, "name": "search", "arguments": arguments}));
                    said.push(json!({"type": "function_call_output", "call_id": id, "output": result}));
                }
            }
        }
        let tool = |name: &str| match self {
            Self::Chat => json!({"type": "function", "function": {"name": name, "parameters": parameters}}),
            Self::Responses => {
                json!({"type": "function", "name": name, "parameters": parameters, "strict": false})
            }
        };
        let list = if self == Self::Chat { "messages" } else { "input" };
        json!({"model": "m", "stream": stream, list: said, "tools": [tool("search"), tool("delete_all")]})
    }

    fn reply(self, request: &Recorded, nth: usize) -> Reply {
        let (ids, arguments) =
            ([format!("call_{nth}_0"), format!("call_{nth}_1")], format!("{{\"n\":{nth}}}"));
        let calls = [(&*ids[0], "search", &*arguments), (&*ids[1], "delete_all", "{}")];
        match (self, nth < ROUNDS) {
            (Self::Chat, true) => Reply::speech(request, &Speech::calls(&calls)),
            (Self::Chat, false) => Reply::speech(request, &Speech::text("Done.")),
            (Self::Responses, true) => {
                let calls =
                    calls.map(|(id, name, arguments)| (id.trim_start_matches("call_"), name, arguments));
                Output::calls(format!("r{nth}"), &calls).reply(request)
            }
            (Self::Responses, false) => Output::text("last", "Done.").reply(request),
        }
    }
}

/// Calls, and the blocked ones among them.
fn verdicts<'a>(calls: impl Iterator<Item = &'a Value>) -> (usize, usize) {
    calls.fold((0, 0), |(all, blocked), call| (all + 1, blocked + usize::from(call["verdict"] == "block")))
}

fn shown(program: &Toolrein, path: &str) -> String {
    let request = Request::new("GET", &format!("{}{path}", program.admin_url()), "");
    let response = request.header("authorization", &format!("Bearer {ADMIN_TOKEN}")).send();
    assert_eq!(response.status, 200, "{path}: {}", response.text());
    response.text()
}

/// Compares what the admin port shows.
fn compare_pages(program: &Toolrein, about: &str) {
    let conversation: Value = until("the last request", || {
        let page: Value = serde_json::from_str(&shown(program, "/api/conversations/talk")).unwrap();
        (page["requests"] == ROUNDS + 1).then_some(page)
    });
    assert_eq!((&conversation["calls"], &conversation["blocked"]), (&json!(8), &json!(4)), "{about}");
    let timed = conversation["tool_calls"].as_array().unwrap();
    assert_eq!(verdicts(timed.iter()), (8, 4), "{about}");
    let overview = get(&format!("{}/api/overview", program.admin_url())).json();
    let totals = &overview["tool_calls"];
    assert_eq!((&totals["allow"], &totals["block"]), (&json!(4), &json!(4)), "{about}");
    let page = shown(program, "/api/conversations/talk/explain");
    assert!(page.contains(HEADLINE) && !page.contains("would have run"), "{about}: {page}");
}

/// Compares the metrics, and what is made of the recording in `dir`.
fn compare_files(program: &Toolrein, dir: &std::path::Path, about: &str) {
    let metric =
        |verdict: &str| program.metric(&format!("toolrein_tool_calls_total{{verdict=\"{verdict}\"}}"));
    assert_eq!((metric("allow"), metric("block")), (4.0, 4.0), "{about}");
    let recorded = lines(dir, ROUNDS + 1);
    let calls = recorded.iter().flat_map(|line| line["toolrein"]["calls"].as_array().unwrap());
    assert_eq!(verdicts(calls), (8, 4), "{about}");
    let config = program.config_file().to_str().unwrap().to_owned();
    for form in [&["--config", &config][..], &["--config", &config, "--html"]] {
        let explained = toolrein("explain", dir, form);
        assert!(explained.contains(HEADLINE), "{about}: {explained}");
        assert!(!explained.contains("would have run"), "{about}: {explained}");
    }
    let explained = toolrein("explain", dir, &["--config", &config]);
    assert!(explained.contains("  calls               8, 4 blocked\n"), "{about}: {explained}");
    let explained: Value =
        serde_json::from_str(&toolrein("explain", dir, &["--config", &config, "--json"])).unwrap();
    let live_counts = json!({"requests": 5, "refused": 0, "calls": 8, "blocked": 4, "first_by": "allow"});
    assert_eq!(explained["live_counts"], live_counts, "{about}");
    let replayed = toolrein("replay", dir, &["--config", &config]);
    let line = "When recorded: 1 conversation, 5 requests, 8 calls; 4 calls blocked.";
    assert!(replayed.contains(line), "{about}: {replayed}");
    let replayed: Value =
        serde_json::from_str(&toolrein("replay", dir, &["--config", &config, "--json"])).unwrap();
    let live_counts = json!({"conversations": 1, "requests": 5, "refused": 0, "calls": 8, "blocked": 4});
    assert_eq!(replayed["live_counts"], live_counts, "{about}");
}

#[test]
fn every_view_of_a_conversation_gives_the_same_counts() {
    for (api, stream) in
        [Api::Chat, Api::Responses].into_iter().flat_map(|api| BOTH.map(|stream| (api, stream)))
    {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Scripted::start(move |nth, request| api.reply(request, nth));
        let policies =
            "admin.token_env = \"TOKEN_OF_THE_TESTS\"\n[policy.allow]\nexcept = [\"delete_all\"]\n";
        let program = Toolrein::before(&upstream, &recording(dir.path(), "", policies));
        for rounds in 0..=ROUNDS {
            let url = format!("{}{}", program.origin(), api.path());
            let request = Request::post(&url, api.request(rounds, stream).to_string());
            let reply = request.header("x-toolrein-conversation", "talk").send();
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert!(!reply.text().contains(&format!("call_{rounds}_1")), "{}", reply.text());
        }
        let about = format!("{api:?}, streamed: {stream}");
        compare_pages(&program, &about);
        compare_files(&program, dir.path(), &about);
        let log: Vec<Value> =
            program.stop().iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect();
        let requests = log.iter().filter(|line| line["message"] == "request");
        let calls = requests.flat_map(|line| line["tool_calls"].as_array().into_iter().flatten());
        assert_eq!(verdicts(calls), (8, 4), "{about}");
    }
}

#[test]
fn what_was_only_observed_is_told_apart_from_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Scripted::start(|nth, request| Api::Chat.reply(request, nth));
    let policies = "mode = \"observe\"\n[policy.allow]\nexcept = [\"delete_all\"]\n";
    let program = Toolrein::before(&upstream, &recording(dir.path(), "", policies));
    Request::post(&program.chat_url(), Api::Chat.request(0, false).to_string()).send();
    lines(dir.path(), 1);
    let config = program.config_file().to_str().unwrap().to_owned();
    let explained = toolrein("explain", dir.path(), &["--config", &config]);
    assert!(explained.contains("None of its 2 calls was blocked"), "{explained}");
    assert!(
        explained.contains("Of the 2 calls that are shown, 1 would be blocked in this replay."),
        "{explained}"
    );
}
