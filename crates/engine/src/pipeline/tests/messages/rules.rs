//! Rules for replies of the Messages API, each with its case: what of a reply goes back to the model, how several replies become
//! one message, markup in final answers, the forms of replies, bounds.

use super::*;

/// The elements of a hidden exchange.
fn hidden_of(ending: Ending) -> Vec<Value> {
    let Ending::Reask { hidden, .. } = ending else { panic!("{ending:?}") };
    read_exchange(&hidden)
}

fn read_exchange(exchange: &Bytes) -> Vec<Value> {
    assert!(!exchange.contains(&b'\n'), "{exchange:?}");
    serde_json::from_str(&format!("[{}]", std::str::from_utf8(exchange).unwrap())).unwrap()
}

fn reply(content: &Value, reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5}})
}

fn city(id: &str, city: &str) -> Value {
    tool_use(id, "get_weather", &json!({ "city": city }))
}

/// A stream that says what the whole reply says.
fn streamed(whole_reply: &Value) -> String {
    let mut to_stream = pipeline(judging(None, false), Form::Streamed, Options::default());
    to_stream.begin(Form::Whole, 200);
    whole(&mut to_stream, &whole_reply.to_string()).0
}

#[test]
fn a_partly_blocked_reply_goes_back_whole_with_what_the_client_was_shown_and_the_results_of_the_blocked_calls()
 {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": "c2ln"});
    let text =
        json!({"type": "text", "text": "I look.", "citations": [{"type": "page", "cited_text": "x \" y"}]});
    let hosted =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "é"}});
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]});
    let content = json!([thinking, text, hosted, found, {"type": "text", "text": ""}, city("toolu_p", "paris"), city("toolu_b", "berlin")]);
    let reply = reply(&content, "tool_use");
    for (form, text) in [(Form::Whole, reply.to_string()), (Form::Streamed, streamed(&reply))] {
        for chunks in splits(&text) {
            let mut judge = pipeline(judging(Some(PARIS), false), form, Options::default());
            assert_eq!(run(&mut judge, chunks).1, Ending::Complete);
            let exchange = read_exchange(&judge.shown()[0].hidden_exchange().unwrap());
            let mut sent = content.as_array().unwrap().clone();
            sent.remove(4);
            assert_eq!(exchange[0]["content"], Value::from(sent), "{text}");
            assert_eq!(exchange[0]["shown"], json!([0, 1, 2, 3, 5]));
            let results = exchange[1]["content"].as_array().unwrap();
            assert_eq!((results.len(), &results[0]["tool_use_id"]), (1, &json!("toolu_p")));
            assert_eq!(results[0]["is_error"], true);
            assert!(results[0]["content"].as_str().unwrap().contains("RATE_LIMIT"), "{results:?}");
        }
    }
}

#[test]
fn a_hidden_call_gets_an_id_that_the_upstream_accepts_where_its_own_is_known_or_odd() {
    let known = br#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"toolu_known","name":"f","input":{}}]}]}"#;
    for (id, stays) in [("toolu_new", true), ("toolu_known", false), ("functions.get:0", false), ("", false)]
    {
        let mut judging = judging(Some(PARIS), false);
        judging.set_body(Bytes::from_static(known));
        let mut judge = pipeline(judging, Form::Whole, Options::default());
        let ending = whole(&mut judge, &reply(&json!([city(id, "paris")]), "tool_use").to_string()).1;
        let exchange = hidden_of(ending);
        let call = exchange[0]["content"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(exchange[1]["content"][0]["tool_use_id"], call.as_str(), "{id}");
        assert_eq!(call == id, stays, "{id} {call}");
        let is_accepted = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
        assert!(!call.is_empty() && call.chars().all(is_accepted), "{call}");
    }
}

#[test]
fn a_whole_reply_keeps_every_byte_that_is_not_of_a_blocked_call() {
    let reply = |blocks: &str, reason: &str| {
        format!(
            "{{ \"id\":\"msg_1\",\n \"content\" : [{blocks}],\"x\":1.0, \"stop_reason\": \"{reason}\",\n\"usage\": {{}} }}\n"
        )
    };
    let text = r#"{"type":"text",  "text":"caf\u00e9"}"#;
    let (paris, berlin) = (city("a", "paris").to_string(), city("b", "berlin").to_string());
    let of = || pipeline(judging(Some(PARIS), false), Form::Whole, Options::default());
    for (blocks, shown) in [
        (format!("\n {text} , {paris},\n{berlin} "), format!("\n {text},\n{berlin} ")),
        (format!(" {paris} ,{berlin}, {text}"), format!(" {berlin}, {text}")),
        (format!("{berlin},{paris}"), berlin),
    ] {
        let (out, ending) = whole(&mut of(), &reply(&blocks, "tool_use"));
        assert_eq!((out, ending), (reply(&shown, "tool_use"), Ending::Complete));
    }
    let mut judge = of();
    assert!(matches!(
        whole(&mut judge, &reply(&format!("{text},{paris}"), "tool_use")).1,
        Ending::Reask { .. }
    ));
    judge.continue_with(0);
    let later = reply(r#"{"type":"text","text":"Done."}"#, "max_tokens");
    let (out, ending) = whole(&mut judge, &later);
    let expected = reply(&format!(r#"{text},{{"type":"text","text":"Done."}}"#), "max_tokens");
    assert_eq!((out, ending), (expected, Ending::Complete));
}

#[test]
fn the_end_of_a_message_is_that_of_the_last_reply_with_the_usage_of_all() {
    let end = |reason: &str, more: Value, usage: Value| {
        let mut delta = more;
        delta["stop_reason"] = reason.into();
        let end = json!({"type": "message_delta", "delta": delta, "usage": usage, "context_management": {"of": reason}});
        event(&end) + &event(&json!({"type": "message_stop"}))
    };
    let usage = |tokens: u64| {
        json!({"input_tokens": tokens, "cache_read_input_tokens": 100, "output_tokens": tokens,
            "server_tool_use": {"web_search_requests": 1}, "iterations": [{"type": "message", "output_tokens": tokens}]})
    };
    let blocked = call_block(0, "get_weather", &["{\"city\":\"paris\"}"]);
    let safe = json!({"safeguard_results": {"toolu_0": {"a": 1}}, "container": {"id": "c_1"}});
    let first = message("msg_1", &[blocked], None) + &end("tool_use", safe, usage(3));
    let blocks = [
        call_block(0, "get_weather", &["{\"city\":\"berlin\"}"]),
        call_block(1, "get_weather", &["{\"city\":\"paris\"}"]),
    ];
    let safe =
        json!({"safeguard_results": {"toolu_0": {"b": 2}, "toolu_1": {"c": 3}}, "container": {"id": "c_2"}});
    let second = message("msg_2", &blocks, None) + &end("tool_use", safe, usage(4));
    let mut judge = judge(PARIS);
    let (mut out, ending) = whole(&mut judge, &first);
    assert!(matches!(ending, Ending::Reask { .. }) && !out.contains("message_delta"), "{out}");
    judge.continue_with(0);
    let (more, ending) = whole(&mut judge, &second);
    out += &more;
    assert_eq!((ending, flaws(&out)), (Ending::Complete, vec![]), "{out}");
    let ends: Vec<Value> =
        events(&out).into_iter().filter(|event| event["type"] == "message_delta").collect();
    let [end] = &ends[..] else { panic!("{out}") };
    assert_eq!(end["delta"]["safeguard_results"], json!({"toolu_0": {"b": 2}}));
    assert_eq!(end["delta"]["container"]["id"], "c_2");
    assert_eq!(end["context_management"]["of"], "tool_use");
    assert_eq!(
        end["usage"],
        json!({"input_tokens": 7, "cache_read_input_tokens": 200, "output_tokens": 7,
            "server_tool_use": {"web_search_requests": 2},
            "iterations": [{"type": "message", "output_tokens": 3}, {"type": "message", "output_tokens": 4}]})
    );
}

#[test]
fn a_later_reply_that_fails_or_is_cut_stops_the_open_block_and_ends_in_an_error() {
    let text = text_block(0, &["It is "]);
    let begun = &text[..text.find("event: content_block_stop").unwrap()];
    let error =
        event(&json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
    for (end, kind) in [(error.as_str(), "overloaded_error"), ("", "api_error")] {
        let mut judge = judge(PARIS);
        let (mut out, _) = whole(
            &mut judge,
            &message(
                "msg_1",
                &[text_block(0, &["I look."]), call_block(1, "get_weather", &["{\"city\":\"paris\"}"])],
                Some("tool_use"),
            ),
        );
        judge.continue_with(0);
        out += &whole(&mut judge, &(message("msg_2", &[begun.to_owned()], None) + end)).0;
        assert_eq!(flaws(&out), [""; 0], "{out}");
        assert_eq!(texts(&out), ["I look.", "It is "], "{out}");
        let last = events(&out).pop().unwrap();
        assert_eq!(last["error"]["type"], kind, "{out}");
        assert!(!out.contains("message_stop"), "{out}");
    }
}

#[test]
fn a_dropped_call_beside_thinking_goes_back_with_a_result() {
    let thinking = json!({"type": "thinking", "thinking": "x", "signature": "c2ln"});
    for (content, goes_back) in
        [(json!([thinking, city("a", "berlin")]), true), (json!([city("a", "berlin")]), false)]
    {
        let mut judging = judging(None, false);
        judging.land();
        let mut judge = pipeline(judging, Form::Whole, Options::default());
        let (out, ending) = whole(&mut judge, &reply(&content, "tool_use").to_string());
        assert_eq!((ending, calls(&out)), (Ending::Complete, vec![]), "{out}");
        assert_eq!(reasons(&out), ["end_turn"]);
        assert!(!texts(&out).last().unwrap().is_empty(), "an honest sentence");
        let exchange = judge.shown()[0].hidden_exchange();
        assert_eq!(exchange.is_some(), goes_back);
        let result =
            exchange.map(|exchange| read_exchange(&exchange)[1]["content"][0]["tool_use_id"].clone());
        assert_eq!(result, goes_back.then(|| "a".into()));
    }
}

#[test]
fn calls_that_the_model_writes_as_text_are_removed_from_a_final_answer_in_any_chunks() {
    let markup = "<tool_call>{\"name\":\"get_weather\",\"arguments\":{}}</tool_call>";
    for (pieces, expected) in [
        (vec!["It is ", "sunny."], vec!["It is sunny."]),
        (vec!["So: <tool", "_call>{\"name\":\"x\"}</tool_call>"], vec!["So: "]),
        (vec!["a <to", "p> b"], vec!["a <top> b"]),
        (vec!["a <"], vec!["a <"]),
        (vec![markup], vec![]),
        (vec![], vec![""]),
    ] {
        let blocks = [text_block(0, &pieces), text_block(1, &["Bye."])];
        let stream = message("msg_1", &blocks, Some("end_turn"));
        let expected: Vec<&str> = expected.into_iter().chain(["Bye."]).collect();
        for chunks in splits(&stream) {
            let mut judging = judging(None, false);
            judging.land();
            let mut judge = pipeline(judging, Form::Streamed, Options::default());
            let (out, ending) = run(&mut judge, chunks);
            assert_eq!((ending, flaws(&out)), (Ending::Complete, vec![]), "{out}");
            assert_eq!(texts(&out), expected, "{out}");
            assert!(out == stream || pieces.concat().contains('<'), "{out}");
        }
        let content: Vec<Value> = [pieces.concat(), "Bye.".to_owned()]
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
        let mut judging = judging(None, false);
        judging.land();
        let mut judge = pipeline(judging, Form::Whole, Options::default());
        let (out, _) = whole(&mut judge, &reply(&content.into(), "end_turn").to_string());
        assert_eq!(texts(&out), expected, "{out}");
    }
}

#[test]
fn a_call_in_the_head_that_a_limit_blocks_is_left_out_and_texts_of_toolreins_follow_the_head() {
    let bad = tool_use("toolu_1", "g", &json!({"q": "bad"}));
    let good = tool_use("toolu_2", "g", &json!({"q": 1}));
    let options = || Options { preface: Some("(A line.)".to_owned()), ..Options::default() };
    let mut judge = pipeline(super::super::judging(true), Form::Streamed, options());
    let (out, ending) = whole(&mut judge, &head_alone(&json!([bad, good]), "tool_use"));
    assert_eq!((ending, flaws(&out)), (Ending::Complete, vec![]), "{out}");
    assert_eq!(calls(&out), [("g".to_owned(), r#"{"q":1}"#.to_owned())], "{out}");
    assert_eq!(texts(&out), ["(A line.)"], "{out}");
}

#[test]
fn blocks_whose_type_ends_like_that_of_a_call_pass_only_where_no_policy_restricts_calls() {
    for kind in ["browser_tool_use", "TOOL_USE"] {
        let odd = json!({"type": kind, "id": "a", "name": "get_weather", "input": {"city": "oslo"}});
        let stream = message("msg_1", &[block(0, &odd, &[])], Some("tool_use"));
        let (out, ending) = whole(&mut judge(PARIS), &stream);
        assert_eq!(ending, Ending::BrokenOff(Unjudged::Ambiguous), "{out}");
        assert!(!out.contains("oslo"), "{out}");
        let mut idle = pipeline(judging(None, false), Form::Streamed, Options::default());
        assert_eq!(whole(&mut idle, &stream), (stream, Ending::Complete));
        assert_eq!(idle.unjudged(), [Unjudged::Ambiguous]);
    }
}

#[test]
fn what_no_client_runs_is_carried_under_its_name() {
    let hosted = |kind: &str, name: &str| json!({"type": kind, "id": "a", "name": name, "input": {}});
    let content = json!([
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        hosted("server_tool_use", "web_fetch"),
        {"type": "web_fetch_tool_result", "tool_use_id": "a", "content": {}},
        hosted("server_tool_use", "bash_code_execution"),
        hosted("server_tool_use", "tool_search_tool_regex"),
        hosted("server_tool_use", "advisor"),
        hosted("mcp_tool_use", "get_weather"),
        {"type": "compaction", "content": "c"},
        {"type": "fallback", "from": {}},
    ]);
    let mut judge = pipeline(judging(Some(WEATHER), false), Form::Whole, Options::default());
    let reply = reply(&content, "end_turn").to_string();
    assert_eq!(whole(&mut judge, &reply), (reply, Ending::Complete));
    let expected = [
        "reasoning",
        "reasoning",
        "web_search_call",
        "code_interpreter_call",
        "tool_search_call",
        "other",
        "mcp_call",
        "compaction",
        "other",
    ];
    assert_eq!(judge.carried(), expected);
}

#[test]
fn the_last_event_has_the_report_that_the_client_wants() {
    let options = Options { reports: true, request_id: "r_1".to_owned(), ..Options::default() };
    let stream = text_reply("Hi");
    let (out, ending) = whole(&mut pipeline(judging(None, false), Form::Streamed, options), &stream);
    assert_eq!((ending, flaws(&out)), (Ending::Complete, vec![]));
    let last = events(&out).pop().unwrap();
    assert_eq!(last, json!({"type": "message_stop", "toolrein": {"actions": [], "request_id": "r_1"}}));
}

#[test]
fn four_hundred_thousand_blocks_are_read_up_to_a_bound_and_hide_no_blocked_call() {
    let stop = event(&json!({"type": "content_block_stop", "index": 0}));
    let empty = event(
        &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ) + &stop;
    let call = call_block(1, "get_weather", &["{\"city\":\"paris\"}"]);
    let stream = message("msg_1", &[empty.repeat(400_000), call], Some("tool_use"));
    let (out, ending) = whole(&mut judge(PARIS), &stream);
    assert_eq!(ending, Ending::BrokenOff(Unjudged::ReplyTooLong));
    assert!(!out.contains("paris"));
}
