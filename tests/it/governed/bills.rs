//! The cost of prompts: usage is requested, read in every form, and counted by what policies did. The client's own
//! `usage` stays as it came.

use crate::governed::talk::{BOTH, GENEROUS, after, bytes_of, chat, long_text, question};
use crate::support::client::Request;
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::responses::{Output, event};
use crate::support::scripted::{Recorded, Scripted};
use serde_json::{Value, json};

const ASK: &str = "upstream.ask_usage = true\n[policy.truncate]\n";
const CHAT: &str = "toolrein_requests_total{endpoint=\"chat_completions\"}";

fn asks(request: &Recorded) -> bool {
    request.json()["stream_options"]["include_usage"] == true
}

/// A whole reply with this usage.
fn billed(usage: &Value) -> Reply {
    let mut body = Speech::text("ok").whole();
    body["usage"] = usage.clone();
    Reply::json(200, &body)
}

#[test]
fn usage_that_the_client_did_not_order_is_asked_for_counted_and_cut_out() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, ASK);
    let reply = chat(&toolrein, question(true));
    assert!(asks(&upstream.request(0)));
    assert!(!reply.text().contains("usage"), "{}", reply.text());
    toolrein.wait_for_metric(CHAT, 1.0);
    assert!(toolrein.metric("toolrein_tokens_total{type=\"input\"}") > 0.0);
    let mut ordered: Value = serde_json::from_str(&question(true)).unwrap();
    ordered["stream_options"] = json!({"include_usage": true});
    assert!(chat(&toolrein, ordered.to_string()).text().contains("prompt_tokens"), "what it ordered it gets");
    chat(&toolrein, question(false));
    assert!(!asks(&upstream.request(2)), "a whole reply has it anyway");
}

#[test]
fn usage_in_a_chunk_that_says_nothing_else_is_cut_out_with_the_chunk() {
    let choice = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    let chunk = |choices: Value| json!({"id": "c", "object": "chat.completion.chunk", "choices": choices});
    let billed = |choices: Value| {
        let mut chunk = chunk(choices);
        chunk["usage"] = json!({"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25});
        chunk
    };
    let filtered = || {
        let mut choices = choice(json!({}), Value::Null);
        choices[0]["content_filter_results"] = json!({"hate": {"filtered": false}});
        choices
    };
    let text = || chunk(choice(json!({"role": "assistant", "content": "ok"}), Value::Null));
    let end = || choice(json!({}), json!("stop"));
    for (sent, expected) in [
        // The usage comes apart: nothing of its chunk is left.
        (vec![text(), chunk(end()), billed(json!([]))], vec![text(), chunk(end())]),
        (vec![text(), chunk(end()), billed(choice(json!({}), Value::Null))], vec![text(), chunk(end())]),
        (
            vec![
                text(),
                chunk(end()),
                billed(choice(json!({"role": "assistant", "content": ""}), Value::Null)),
            ],
            vec![text(), chunk(end())],
        ),
        // Beside the finish many upstreams send it unasked: it stays.
        (vec![text(), billed(end())], vec![text(), billed(end())]),
        // Its chunk carries something else, which stays.
        (vec![text(), chunk(end()), billed(filtered())], vec![text(), chunk(end()), chunk(filtered())]),
    ] {
        let (reply, expected) = (Reply::events(&sent), bytes_of(&Reply::events(&expected)));
        let upstream = Scripted::start(move |_, _| reply.clone());
        let toolrein = Toolrein::before(&upstream, ASK);
        let got = chat(&toolrein, question(true));
        assert_eq!(got.text(), String::from_utf8_lossy(&expected));
        toolrein.wait_for_metric("toolrein_tokens_total{type=\"input\"}", 20.0);
        let mut ordered: Value = serde_json::from_str(&question(true)).unwrap();
        ordered["stream_options"] = json!({"include_usage": true});
        let got = chat(&toolrein, ordered.to_string()).text();
        assert_eq!(got, String::from_utf8_lossy(&bytes_of(&Reply::events(&sent))), "what it ordered it gets");
    }
}

#[test]
fn an_upstream_that_refuses_to_be_asked_is_asked_no_more_and_the_client_notices_nothing() {
    let refusal = |at_head: bool| match at_head {
        true => Reply::stream([
            r#"data: {"error":{"message":"Unknown parameter: 'stream_options'.","param":"stream_options"}}"#
                .to_owned()
                + "\n\n",
        ]),
        false => Reply::json(
            422,
            &json!({"object": "error", "message": {"detail": [{"type": "extra_forbidden",
                "loc": ["body", "stream_options", "include_usage"], "msg": "Extra inputs are not permitted"}]}}),
        ),
    };
    for at_head in BOTH {
        let upstream = Scripted::start(move |_, request| match asks(request) {
            true => refusal(at_head),
            false => Reply::speech(request, &Speech::text("ok")),
        });
        let toolrein = Toolrein::before(&upstream, ASK);
        for _ in 0..2 {
            let reply = chat(&toolrein, question(true));
            assert_eq!((reply.status, reply.header("x-toolrein-actions")), (200, None));
            assert!(reply.text().contains("ok") && !reply.text().contains("error"), "{}", reply.text());
        }
        let asked: Vec<bool> = upstream.requests().iter().map(asks).collect();
        assert_eq!(asked, [true, false, false], "remembered");
        assert_eq!(upstream.request(1).body, question(true).into_bytes());
        toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"stream_options\"}", 1.0);
    }
}

#[test]
fn a_client_that_ordered_usage_itself_gets_the_refusal() {
    let upstream =
        Scripted::start(|_, _| Reply::error(400, "bad", "bad", "Unknown parameter: 'stream_options'."));
    let toolrein = Toolrein::before(&upstream, ASK);
    let mut ordered: Value = serde_json::from_str(&question(true)).unwrap();
    ordered["stream_options"] = json!({"include_usage": true});
    assert_eq!(chat(&toolrein, ordered.to_string()).status, 400);
    assert_eq!(upstream.requests().len(), 1);
}

const MONEY: &str = "[policy.budget]\nspend_usd = 2.0\n";

#[test]
fn a_stream_is_asked_for_its_usage_where_money_is_limited() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, MONEY);
    chat(&toolrein, question(true));
    let sent: Value = serde_json::from_slice(&upstream.request(0).body).expect("the request is JSON");
    assert_eq!(sent["stream_options"], json!({"include_usage": true}));
}

#[test]
fn nothing_is_asked_where_no_policy_needs_it_nor_while_observing() {
    for settings in [
        GENEROUS.to_owned(),
        format!("upstream.ask_usage = false\n{MONEY}"),
        format!("mode = \"observe\"\n{MONEY}"),
        format!("mode = \"observe\"\n{ASK}"),
    ] {
        let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
        let toolrein = Toolrein::before(&upstream, &settings);
        chat(&toolrein, question(true));
        assert_eq!(upstream.request(0).body, question(true).into_bytes(), "{settings}");
    }
}

#[test]
fn prompts_that_nobody_bills_are_counted_as_estimated() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    chat(&toolrein, question(true));
    toolrein.wait_for_metric(CHAT, 1.0);
    assert!(toolrein.metric("toolrein_unbilled_tokens_total") > 5.0);
    assert!(toolrein.metric("toolrein_tokens_total{type=\"input\"}") < 1.0);
}

#[test]
fn cached_tokens_are_counted_under_each_providers_name_and_usage_passes_as_it_came() {
    let deepseek =
        json!({"prompt_tokens": 400, "prompt_cache_hit_tokens": 384, "prompt_cache_miss_tokens": 16});
    let mistral = json!({"prompt_tokens": 400, "num_cached_tokens": 43, "prompt_audio_seconds": null});
    let hugging_face = json!({"prompt_tokens": 400, "cached_tokens": 2});
    for (usage, cached) in [(deepseek, 384.0), (mistral, 43.0), (hugging_face, 2.0)] {
        let reply = billed(&usage);
        let (sent, expected) = (reply.clone(), bytes_of(&reply));
        let upstream = Scripted::start(move |_, _| sent.clone());
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        assert_eq!(chat(&toolrein, question(false)).body, expected);
        toolrein.wait_for_metric("toolrein_cached_tokens_total", cached);
        toolrein
            .wait_for_metric("toolrein_context_cached_tokens_total{touched=\"no\",held_out=\"no\"}", cached);
    }
}

#[test]
fn implausible_usage_does_not_distort_the_counts_and_is_counted_once_a_reply() {
    // Later, plausible usage is counted as usual, also where it is added to an implausible one.
    let usages = [
        json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX, "total_tokens": -1}),
        json!({"prompt_tokens": 1e300, "completion_tokens": -5, "prompt_tokens_details": {"cached_tokens": u64::MAX}}),
        json!({"prompt_tokens": 20, "completion_tokens": 3}),
    ];
    for stream in BOTH {
        let usages = usages.clone();
        let upstream = Scripted::start(move |nth, _| match stream {
            false => billed(&usages[nth]),
            true => {
                let mut chunks = Speech::text("ok").chunks(false);
                chunks.push(json!({"id": "x", "choices": [], "usage": usages[nth]}));
                Reply::events(&chunks)
            }
        });
        let toolrein =
            Toolrein::before(&upstream, "[policy.budget]\ncontext_tokens = 100000\n[policy.truncate]\n");
        for nth in 0..3 {
            assert_eq!(chat(&toolrein, question(stream)).status, 200, "{nth}");
        }
        toolrein.wait_for_metric("toolrein_implausible_usage_total", 2.0);
        toolrein.wait_for_metric("toolrein_tokens_total{type=\"input\"}", 20.0);
        toolrein.wait_for_metric("toolrein_tokens_total{type=\"output\"}", 3.0);
        toolrein.wait_for_metric("toolrein_cached_tokens_total", 0.0);
    }
}

#[test]
fn groqs_usage_is_found_where_it_tells_it_unasked() {
    let upstream = Scripted::start(|_, _| {
        let mut chunks = Speech::text("ok").chunks(false);
        chunks.push(json!({"id": "x", "choices": [], "x_groq": {"id": "r", "usage": {"prompt_tokens": 77}}}));
        Reply::events(&chunks)
    });
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    chat(&toolrein, question(true));
    toolrein.wait_for_metric("toolrein_tokens_total{type=\"input\"}", 77.0);
}

#[test]
fn held_out_conversations_are_left_unchanged_and_counted_separately() {
    let usage = json!({"prompt_tokens": 1_000, "prompt_tokens_details": {"cached_tokens": 600}});
    for (holdout, held_out) in [("0.0", "no"), ("1.0", "yes")] {
        let usage = usage.clone();
        let upstream = Scripted::start(move |_, _| billed(&usage));
        let settings = format!("conversation.holdout = {holdout}\n[policy.truncate]\nmax_chars = 1000\n");
        let toolrein = Toolrein::before(&upstream, &settings);
        let body = after(&[&long_text(3_000)], false);
        let reply = chat(&toolrein, &body);
        let is_left = held_out == "yes";
        assert_eq!(upstream.request(0).body == body.as_bytes(), is_left);
        assert_eq!(reply.header("x-toolrein-actions").is_none(), is_left);
        chat(&toolrein, question(false));
        for (family, touched, count) in
            [("tokens", "yes", 1_000.0), ("cached_tokens", "yes", 600.0), ("tokens", "no", 1_000.0)]
        {
            let labels = format!("touched=\"{touched}\",held_out=\"{held_out}\"");
            toolrein.wait_for_metric(&format!("toolrein_context_{family}_total{{{labels}}}"), count);
        }
    }
}

#[test]
fn what_steers_prompt_caches_passes_and_tools_keep_their_order_and_bytes() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, "[policy.truncate]\nmax_chars = 1000\n");
    let tools = r#"[{"type":"function","function":{"name":"z","parameters":{"b":1,"a":2}}}, {"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral"}}]"#;
    let system =
        r#"{"role":"system","content":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]}"#;
    let part = format!(
        r#"[{{"type":"text","text":{},"prompt_cache_breakpoint":{{"mode":"explicit"}},"cache_control":{{"type":"ephemeral","ttl":"1h"}}}}]"#,
        json!(long_text(3_000))
    );
    let body = format!(
        r#"{{"prompt_cache_key":"k","prompt_cache_retention":"24h","tools":{tools},"messages":[{system},{{"role":"user","content":"q"}},{{"role":"assistant","tool_calls":[{{"id":"a","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"a","content":{part}}}],"prompt_cache_options":{{"ttl":"30m"}}}}"#
    );
    let reply = chat(&toolrein, &body);
    assert!(reply.header("x-toolrein-actions").unwrap().starts_with("truncate=1, tokens_saved="));
    let sent = String::from_utf8(upstream.request(0).body).unwrap();
    for member in [
        tools,
        system,
        r#""prompt_cache_key":"k","prompt_cache_retention":"24h""#,
        r#""prompt_cache_breakpoint":{"mode":"explicit"},"cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        r#""prompt_cache_options":{"ttl":"30m"}"#,
    ] {
        assert!(sent.contains(member), "{member} in {sent}");
    }
    assert!(sent.len() < body.len());
}

/// Usages as providers report them, with the tokens of the prompt (those of the cache included), of the cache, of the
/// completion (reasoning included), and the cost in dollars by gpt-4o's prices or the provider's own.
fn reported() -> Vec<(&'static str, Value, [f64; 3], f64)> {
    vec![
        (
            "the cache beside the prompt",
            json!({"prompt_tokens": 12, "completion_tokens": 300, "total_tokens": 40_812,
                "cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 500}),
            [40_512.0, 40_000.0, 300.0],
            (512.0 * 2.5 + 40_000.0 * 1.25 + 300.0 * 10.0) / 1e6,
        ),
        (
            "the cache within the prompt",
            json!({"prompt_tokens": 40_512, "completion_tokens": 300, "total_tokens": 40_812,
                "prompt_tokens_details": {"cached_tokens": 40_000}}),
            [40_512.0, 40_000.0, 300.0],
            (512.0 * 2.5 + 40_000.0 * 1.25 + 300.0 * 10.0) / 1e6,
        ),
        (
            "reasoning beside the completion",
            json!({"prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 200,
                "completion_tokens_details": {"reasoning_tokens": 40}}),
            [100.0, 0.0, 100.0],
            (100.0 * 2.5 + 100.0 * 10.0) / 1e6,
        ),
        (
            "the provider's own cost",
            json!({"prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 160, "cost": 0.25, "is_byok": false}),
            [100.0, 0.0, 60.0],
            0.25,
        ),
        (
            "the provider's own cost, as an object",
            json!({"prompt_tokens": 100, "completion_tokens": 60, "cost": {"request_cost": 0.5, "total_cost": 0.75}}),
            [100.0, 0.0, 60.0],
            0.75,
        ),
    ]
}

/// The same usage under the names of the Responses API.
fn for_responses(usage: &Value) -> Value {
    let mut renamed = usage.clone();
    let members = renamed.as_object_mut().unwrap();
    for (chat, responses) in [
        ("prompt_tokens", "input_tokens"),
        ("completion_tokens", "output_tokens"),
        ("prompt_tokens_details", "input_tokens_details"),
        ("completion_tokens_details", "output_tokens_details"),
    ] {
        if let Some(value) = members.remove(chat) {
            members.insert(responses.to_owned(), value);
        }
    }
    renamed
}

/// Asserts that the log and the metrics have this bill, and that a budget refuses with the same numbers.
fn assert_billed(toolrein: &Toolrein, refused: &Value, (name, tokens, cost): (&str, [f64; 3], f64)) {
    let [prompt, cached, completion] = tokens;
    toolrein.wait_for_metric("toolrein_tokens_total{type=\"input\"}", prompt);
    toolrein.wait_for_metric("toolrein_tokens_total{type=\"output\"}", completion);
    toolrein.wait_for_metric("toolrein_cached_tokens_total", cached);
    let metric = toolrein.metric("toolrein_cost_usd_total{model=\"gpt-4o\"}");
    assert!((metric - cost).abs() < 1e-6, "{name}: {metric} {cost}");
    let words = refused["error"]["message"].as_str().unwrap();
    let billed = format!("{} of 1 billed token ", prompt + completion);
    let dollars = if cost >= 1.0 || (cost * 100.0).fract() < 1e-9 {
        format!("${cost:.2}")
    } else {
        format!("${cost:.4}")
    };
    assert!(words.contains(&billed) && words.contains(&format!("{dollars} of $")), "{name}: {words}");
}

const ONE_TOKEN: &str =
    "upstream.ask_usage = true\n[policy.budget]\ntool_calls = 0\nbilled_tokens = 1\nspend_usd = 0.000001\n";

#[test]
fn every_convention_of_usage_is_billed_alike_by_log_metric_and_budget() {
    for (name, usage, tokens, cost) in reported() {
        for stream in BOTH {
            let reported = usage.clone();
            let upstream = Scripted::start(move |_, _| match stream {
                false => billed(&reported),
                true => {
                    let mut chunks = Speech::text("ok").chunks(false);
                    chunks.push(json!({"id": "x", "choices": [], "usage": reported}));
                    Reply::events(&chunks)
                }
            });
            let toolrein = Toolrein::before(&upstream, ONE_TOKEN);
            let ask = || {
                let mut body: Value = serde_json::from_str(&question(stream)).unwrap();
                body["model"] = json!("gpt-4o");
                Request::post(&toolrein.chat_url(), body.to_string())
                    .header("x-toolrein-conversation", "c")
                    .send()
            };
            assert_eq!(ask().status, 200, "{name}");
            assert_billed(&toolrein, &ask().json(), (name, tokens, cost));
            let reported = for_responses(&usage);
            let upstream = Scripted::start(move |nth, request| {
                let mut whole = Output::text(nth, "ok").whole(&request.json());
                whole["usage"] = reported.clone();
                match stream {
                    false => Reply::json(200, &whole),
                    true => {
                        let mut events = Output::text(nth, "ok").events(&request.json());
                        events.last_mut().unwrap()["response"] = whole;
                        Reply::stream(events.iter().map(event))
                    }
                }
            });
            let toolrein = Toolrein::before(&upstream, ONE_TOKEN);
            let ask = || {
                let body = json!({"model": "gpt-4o", "stream": stream, "input": "q"}).to_string();
                let url = format!("{}/v1/responses", toolrein.origin());
                Request::post(&url, body).header("x-toolrein-conversation", "c").send()
            };
            assert_eq!(ask().status, 200, "{name}");
            assert_billed(&toolrein, &ask().json(), (name, tokens, cost));
        }
    }
}

#[test]
fn usage_is_found_wherever_a_stream_has_it_and_zeros_do_not_undo_it() {
    let usage = || json!({"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25});
    let zeros = || json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    let chunk = |usage: Option<Value>, within: Option<Value>, finish: Value| {
        let mut chunk = json!({"id": "c", "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": "ok"}, "finish_reason": finish}]});
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        if let Some(usage) = within {
            chunk["choices"][0]["usage"] = usage;
        }
        chunk
    };
    let stop = || json!("stop");
    for (name, chunks) in [
        ("within the choice", vec![chunk(None, Some(usage()), stop())]),
        ("beside the choices", vec![chunk(Some(usage()), None, stop())]),
        (
            "zeros at the end",
            vec![chunk(Some(usage()), None, stop()), json!({"choices": [], "usage": zeros()})],
        ),
        (
            "zeros within the choice",
            vec![chunk(Some(usage()), None, Value::Null), chunk(Some(zeros()), Some(zeros()), stop())],
        ),
        (
            "the prompt first, the completion last",
            vec![
                chunk(Some(json!({"prompt_tokens": 20, "completion_tokens": 0})), None, Value::Null),
                chunk(Some(json!({"prompt_tokens": 0, "completion_tokens": 5})), None, stop()),
            ],
        ),
    ] {
        let reply = Reply::events(&chunks);
        let expected = bytes_of(&reply);
        let upstream = Scripted::start(move |_, _| reply.clone());
        let toolrein = Toolrein::before(
            &upstream,
            "upstream.ask_usage = false\n[policy.budget]\ntool_calls = 0\nbilled_tokens = 25\n",
        );
        let ask = || {
            Request::post(&toolrein.chat_url(), question(true)).header("x-toolrein-conversation", "c").send()
        };
        assert_eq!(ask().body, expected, "{name}: as it came");
        toolrein.wait_for_metric("toolrein_tokens_total{type=\"input\"}", 20.0);
        toolrein.wait_for_metric("toolrein_tokens_total{type=\"output\"}", 5.0);
        let refused = ask();
        assert!(refused.text().contains("25 of 25 billed tokens"), "{name}: {}", refused.text());
    }
}

#[test]
fn a_response_that_fails_is_billed_with_what_it_reports() {
    for (stream, in_the_middle) in [(false, false), (true, false), (true, true)] {
        let upstream = Scripted::start(move |nth, request| {
            let mut whole = Output::text(nth, "Half a").whole(&request.json());
            (whole["status"], whole["error"]) =
                (json!("failed"), json!({"code": "server_error", "message": "The model failed."}));
            whole["usage"] = json!({"input_tokens": 20, "output_tokens": 5, "total_tokens": 25});
            if !in_the_middle {
                whole["output"] = json!([]);
            }
            if !stream {
                return Reply::json(200, &whole);
            }
            let mut events = Output::text(nth, "Half a").events(&request.json());
            *events.last_mut().unwrap() = json!({"type": "response.failed", "response": whole});
            if !in_the_middle {
                events.retain(|event| {
                    event["type"]
                        .as_str()
                        .is_some_and(|kind| !kind.contains('_') || kind.contains("in_progress"))
                });
                events.retain(|event| event["item_id"].is_null() && event["item"].is_null());
            }
            for (at, event) in events.iter_mut().enumerate() {
                event["sequence_number"] = at.into();
            }
            Reply::stream(events.iter().map(event))
        });
        let toolrein = Toolrein::before(&upstream, "[policy.budget]\ntool_calls = 0\nbilled_tokens = 25\n");
        let ask = || {
            let body = json!({"model": "gpt-4o", "stream": stream, "input": "q"}).to_string();
            let url = format!("{}/v1/responses", toolrein.origin());
            Request::post(&url, body).header("x-toolrein-conversation", "c").send()
        };
        let failed = ask();
        assert!(failed.text().contains("The model failed."), "{}", failed.text());
        toolrein.wait_for_metric("toolrein_tokens_total{type=\"input\"}", 20.0);
        let refused = ask();
        assert!(
            refused.text().contains("25 of 25 billed tokens"),
            "{stream} {in_the_middle}: {}",
            refused.text()
        );
    }
}
