//! The cost of prompts: usage is requested, read in every form, and counted by what policies did. The client's own
//! `usage` stays as it came.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::{Recorded, Scripted};
use crate::talk::{BOTH, GENEROUS, after, bytes_of, chat, long_text, question};
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

#[test]
fn nothing_is_asked_where_no_policy_needs_it_nor_while_observing() {
    for settings in [
        GENEROUS.to_owned(),
        format!("upstream.ask_usage = \"auto\"\n{GENEROUS}"),
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
