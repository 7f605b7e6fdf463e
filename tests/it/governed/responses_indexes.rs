//! Streams of the Responses API without an `output_index` that can be used: llama.cpp's server sends none, and OGX begins
//! parallel calls under one. Each call is judged once, and the client gets each that is allowed, whole and once.

use crate::governed::talk::budget;
use crate::support::client::post;
use crate::support::program::Toolrein;
use crate::support::reply::Reply;
use crate::support::responses::{Output, SERVERS, Server, events};
use crate::support::responses_kit::{Talk, error_type, input, may_call, tool, url};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

fn reply(server: Server, output: &Output, request: &Recorded) -> Reply {
    Reply::stream([output.stream_of(server, &request.json())])
}

/// An upstream that makes the first reply to a request of a client that may call, and then answers in words.
fn upstream(server: Server, first: &Output) -> Scripted {
    let first = first.clone();
    Scripted::start(move |nth, request| match nth {
        0 => reply(server, &first, request),
        _ => reply(server, &Output::text(nth, "Then without."), request),
    })
}

fn talk() -> Talk {
    Talk::new(true).with_tools(json!([tool("f"), tool("g")]))
}

/// What a client reads: the calls that end, those in the last event, and the text.
struct Client {
    stream: String,
    done: Vec<Value>,
    output: Vec<Value>,
    text: String,
}

impl Client {
    fn ask(toolrein: &Toolrein, talk: &Talk) -> Self {
        let response = post(&url(toolrein), talk.body.to_string());
        assert_eq!(response.status, 200, "{}", response.text());
        let stream = response.text();
        let events = events(&stream);
        let kind = |event: &Value, kind: &str| event["type"] == format!("response.{kind}");
        let done = events.iter().filter(|event| kind(event, "output_item.done"));
        let is_call = |item: &Value| item["type"] == "function_call";
        let done = done.map(|event| event["item"].clone()).filter(is_call).collect();
        let last = events.iter().rfind(|event| kind(event, "completed")).expect("a last event");
        let output = last["response"]["output"].as_array().unwrap().clone();
        let texts = output.iter().filter_map(|item| item["content"][0]["text"].as_str());
        let text = texts.collect();
        let output = output.iter().filter(|item| is_call(item)).cloned().collect();
        Self { stream, done, output, text }
    }

    /// The calls, which every place must agree on: id and arguments.
    fn calls(&self) -> Vec<(String, String)> {
        let read = |items: &[Value]| -> Vec<(String, String)> {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            items.iter().map(|item| (text(&item["call_id"]), text(&item["arguments"]))).collect()
        };
        assert_eq!(read(&self.done), read(&self.output), "{}", self.stream);
        read(&self.done)
    }

    /// The arguments that the pieces of each call make, for a client that goes by ids.
    fn assembled(&self, id: &str) -> String {
        let events = events(&self.stream);
        let names = |event: &&Value| {
            event["item_id"] == format!("fc_{id}") || event["item_id"] == format!("call_{id}")
        };
        events.iter().filter(names).filter_map(|event| event["delta"].as_str()).collect()
    }
}

fn pair(id: &str, arguments: &str) -> (String, String) {
    (format!("call_{id}"), arguments.to_owned())
}

/// Policies of which none has a cause to act on two calls: by name alone, by arguments, by results, by a person.
const IDLE: [&str; 7] = [
    "base = \"shipped\"\n",
    "[policy.loops]\n",
    "[policy.allow]\nexcept = [\"h\"]\n",
    "[policy.duplicates]\ntools = [\"*\"]\n",
    "[policy.confirm]\ntools = [\"h\"]\n",
    "[policy.arguments]\nstrict = true\n",
    "[policy.rate_limit]\ndefault = { calls = 9, per = \"1h\" }\n[policy.taint]\ntools = [\"*\"]\n",
];

#[test]
fn parallel_calls_that_no_policy_objects_to_pass_as_they_came_and_count_once() {
    for server in SERVERS {
        for before in [Output::new(0), Output::new(0).thinks(), Output::new(0).says("I look.")] {
            let first =
                before.call("a", "f", "{\"x\":1}").call("b", "g", "{\"x\":2}").call("c", "f", "{\"x\":3}");
            for policies in IDLE {
                let upstream = upstream(server, &first);
                let toolrein = Toolrein::before(&upstream, policies);
                let client = Client::ask(&toolrein, &talk());
                let sent = first.stream_of(server, &upstream.request(0).json());
                assert_eq!(client.stream, sent, "{server:?} {policies}");
                assert_eq!(upstream.requests().len(), 1, "{server:?} {policies}");
                for (tool, calls) in [("f", 2.0), ("g", 1.0)] {
                    let metric = format!("toolrein_tool_calls_total{{tool=\"{tool}\",verdict=\"allow\"}}");
                    toolrein.wait_for_metric(&metric, calls);
                }
            }
        }
    }
}

#[test]
fn of_parallel_calls_the_allowed_ones_arrive_whole_and_the_blocked_ones_not_at_all() {
    let by_name = "[policy.allow]\nexcept = [\"g\"]\n";
    let by_arguments = "[policy.allow]\nexcept = [\"g\"]\n[policy.duplicates]\ntools = [\"f\"]\n";
    for server in SERVERS {
        for policies in [by_name, by_arguments] {
            for order in [["f", "g", "f"], ["g", "f", "g"], ["g", "g", "f"], ["f", "f", "g"]] {
                let add = |output: Output, at: usize| {
                    let arguments =
                        format!("{{\"{}\":{at}}}", if order[at] == "g" { "paris" } else { "berlin" });
                    output.call(&format!("{}{at}", order[at]), order[at], &arguments)
                };
                let upstream = upstream(server, &(0..3).fold(Output::new(0).says("Well."), add));
                let toolrein = Toolrein::before(&upstream, policies);
                let client = Client::ask(&toolrein, &talk());
                let allowed = (0..3).filter(|at| order[*at] == "f");
                let expected: Vec<_> = allowed
                    .clone()
                    .map(|at| pair(&format!("f{at}"), &format!("{{\"berlin\":{at}}}")))
                    .collect();
                assert_eq!(client.calls(), expected, "{server:?} {policies} {order:?}: {}", client.stream);
                for at in allowed {
                    assert_eq!(client.assembled(&format!("f{at}")), format!("{{\"berlin\":{at}}}"));
                }
                for trace in ["paris", "call_g", "fc_g"] {
                    assert!(!client.stream.contains(trace), "{server:?} {order:?}: {}", client.stream);
                }
                assert_eq!((client.text.as_str(), upstream.requests().len()), ("Well.", 1));
            }
        }
    }
}

#[test]
fn a_call_beyond_a_limit_is_blocked_and_the_one_before_it_runs() {
    for server in SERVERS {
        for (policies, kept) in [
            ("[policy.turn_limits]\ncalls = 1\n", 1),
            ("[policy.duplicates]\ntools = [\"f\"]\n", 1),
            ("[policy.rate_limit]\ndefault = { calls = 2, per = \"1h\" }\n", 2),
        ] {
            let same = |output: Output, id: &str| output.call(id, "f", "{\"x\":1}");
            let upstream = upstream(server, &["a", "b", "c"].into_iter().fold(Output::new(0), same));
            let toolrein = Toolrein::before(&upstream, policies);
            let client = Client::ask(&toolrein, &talk());
            let expected: Vec<_> = ["a", "b"][..kept].iter().map(|id| pair(id, "{\"x\":1}")).collect();
            assert_eq!(client.calls(), expected, "{server:?} {policies}: {}", client.stream);
            let metric = "toolrein_tool_calls_total{tool=\"f\",verdict=\"block\"}";
            toolrein.wait_for_metric(metric, (3 - kept) as f64);
        }
    }
}

#[test]
fn a_call_that_loops_is_not_handed_out() {
    for server in SERVERS {
        let upstream = Scripted::start(move |nth, request| match may_call(request) {
            true => reply(server, &Output::calls(nth, &[(&format!("{nth}"), "f", "{\"x\":1}")]), request),
            false => reply(server, &Output::text(nth, "I stop."), request),
        });
        let toolrein = Toolrein::before(&upstream, "[policy.loops]\n");
        let mut talk = talk();
        for nth in 0..5 {
            talk.called(&format!("old{nth}"), "{\"x\":1}", &json!("the same"));
        }
        let client = Client::ask(&toolrein, &talk);
        assert_eq!(client.calls(), [], "{server:?}: {}", client.stream);
        assert!(!client.stream.contains("function_call"), "{server:?}: {}", client.stream);
        assert_eq!(client.text, "I stop.", "{server:?}");
    }
}

#[test]
fn a_blocked_reply_is_asked_again_and_the_next_turn_has_it_back() {
    for server in SERVERS {
        let first = Output::new(0).thinks().call("a", "g", "{\"x\":1}").call("b", "g", "{\"x\":2}");
        let upstream = upstream(server, &first);
        let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"g\"]\n");
        let mut talk = talk();
        let client = Client::ask(&toolrein, &talk);
        assert_eq!((client.text.as_str(), client.calls().len()), ("Then without.", 0), "{}", client.stream);
        assert_eq!(client.stream.matches("event: response.created").count(), 1, "{}", client.stream);
        assert_eq!(client.stream.matches("event: response.completed").count(), 1, "{}", client.stream);
        let again = input(&upstream.request(1));
        let of = |kind: &str| again.iter().filter(|item| item["type"] == kind).cloned().collect::<Vec<_>>();
        let calls = of("function_call");
        let arguments: Vec<&Value> = calls.iter().map(|call| &call["arguments"]).collect();
        assert_eq!(arguments, ["{\"x\":1}", "{\"x\":2}"], "{server:?}");
        let results = of("function_call_output");
        assert_eq!(results.iter().map(error_type).collect::<Vec<_>>(), ["MODE_RESTRICTED"; 2], "{server:?}");
        let last =
            events(&client.stream).iter().rfind(|event| event["response"]["output"].is_array()).cloned();
        for item in last.unwrap()["response"]["output"].as_array().unwrap() {
            talk.add(item.clone());
        }
        talk.say("go on");
        Client::ask(&toolrein, &talk);
        assert_eq!(input(&upstream.request(2))[..again.len()], again, "{server:?}");
    }
}

#[test]
fn the_question_about_a_call_that_needs_an_approval_appears_once() {
    for server in SERVERS {
        for others in [&[][..], &[("a", "f", "{\"x\":1}")]] {
            let output = Output::calls(0, others).call("p", "g", "{\"amount\":1}");
            let upstream = upstream(server, &output);
            let toolrein = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"g\"]\n");
            let client = Client::ask(&toolrein, &talk());
            assert!(!client.stream.contains("call_p"), "{server:?}: {}", client.stream);
            if others.is_empty() {
                assert!(client.text.contains("amount"), "{server:?}: {}", client.stream);
                assert_eq!(upstream.requests().len(), 1, "{server:?}");
            }
        }
    }
}

#[test]
fn a_used_up_budget_ends_in_the_models_answer() {
    for server in SERVERS {
        let upstream = Scripted::start(move |nth, request| match may_call(request) {
            true => reply(server, &Output::calls(nth, &[("a", "f", "{}"), ("b", "f", "{}")]), request),
            false => reply(server, &Output::text(nth, "Done without."), request),
        });
        let toolrein = Toolrein::before(&upstream, &budget(1));
        let mut talk = talk();
        talk.called("old", "{}", &json!("r"));
        let client = Client::ask(&toolrein, &talk);
        assert_eq!((client.text.as_str(), client.calls().len()), ("Done without.", 0), "{}", client.stream);
    }
}

#[test]
fn pieces_of_a_tool_that_the_upstream_runs_itself_are_no_call() {
    // OGX sends the arguments of its own tools as pieces of a function call that it never adds.
    let request = Talk::new(true).body;
    let all = Output::text(0, "Found.").events(&request);
    let search = json!({"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"]});
    for own_id in ["fs_1", "fc_other"] {
        let piece = json!({"type": "response.function_call_arguments.done", "output_index": 0, "item_id": own_id, "arguments": "{\"q\":1}"});
        let done = json!({"type": "response.output_item.done", "output_index": 0, "item": search});
        let mut with = all.clone();
        with.splice(2..2, [piece, done]);
        with.iter_mut().enumerate().for_each(|(at, event)| event["sequence_number"] = at.into());
        let stream: String = with.iter().map(crate::support::responses::event).collect();
        let sent = stream.clone();
        let upstream = Scripted::start(move |_, _| Reply::stream([sent.clone()]));
        for policies in IDLE {
            let toolrein = Toolrein::before(&upstream, policies);
            assert_eq!(post(&url(&toolrein), request.to_string()).text(), stream, "{policies}");
        }
    }
}

#[test]
fn one_event_that_names_two_calls_goes_to_no_client_where_a_policy_restricts_calls() {
    for policies in [
        "[policy.allow]\nexcept = [\"g\"]\n[policy.duplicates]\ntools = [\"f\"]\n",
        "[policy.confirm]\ntools = [\"g\"]\n",
    ] {
        for kind in ["response.function_call_arguments.delta", "response.function_call_arguments.done"] {
            for (owner, other) in [(0, "b"), (1, "a")] {
                let request = Talk::new(true).body;
                let mut all =
                    Output::calls(0, &[("a", "f", "{\"p\":\"berlin\"}"), ("b", "g", "{\"p\":\"paris\"}")])
                        .parallel(&request);
                let at = all.iter().position(|event| event["type"] == kind && event["output_index"] == owner);
                all[at.unwrap()]["item_id"] = format!("fc_{other}").into();
                let sent: String = all.iter().map(crate::support::responses::event).collect();
                let upstream = Scripted::start(move |_, _| Reply::stream([sent.clone()]));
                let toolrein = Toolrein::before(&upstream, policies);
                let talk = Talk::new(true).with_tools(json!([tool("f"), tool("g")]));
                let text = post(&url(&toolrein), talk.body.to_string()).text();
                assert!(
                    !text.contains("paris") && !text.contains("call_b"),
                    "{policies} {kind} {owner}: {text}"
                );
                assert!(text.contains("error"), "{policies} {kind} {owner}: {text}");
            }
        }
    }
}
