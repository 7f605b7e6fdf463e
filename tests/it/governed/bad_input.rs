//! Input that toolrein cannot read is passed on for the upstream to judge; input that is too long or never ends is
//! refused.

use crate::governed::talk::{GENEROUS, budget, bytes_of, calling, chat, long_text, own_error, question};
use crate::support::client::{Connection, Request};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::{Value, json};
use std::io::Write as _;

/// Bodies that cannot be governed, and why.
fn unreadable() -> Vec<(Vec<u8>, &'static str)> {
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(20_000), close.repeat(20_000));
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"q"}}],"x":{open}1{close}}}"#)
    };
    let texts = [
        ("", "not_json"),
        ("   ", "not_json"),
        ("nonsense", "not_json"),
        (r#"{"model":"m","messages":["#, "not_json"),
        (r#"{"model":"m","messages":[]} trailing"#, "not_json"),
        (r#"{"Messages":[]}"#, "no_messages"),
        (r#"{'model':'m'}"#, "not_json"),
        ("[1,2]", "wrong_type"),
        ("null", "wrong_type"),
        (r#""messages""#, "wrong_type"),
        ("{}", "no_messages"),
        (r#"{"model":"m","prompt":"q"}"#, "no_messages"),
        (r#"{"messages":null}"#, "wrong_type"),
        (r#"{"messages":{"role":"user"}}"#, "wrong_type"),
        (r#"{"messages":["q"]}"#, "wrong_type"),
        (r#"{"messages":[{"role":7}]}"#, "wrong_type"),
        (r#"{"messages":[],"messages":[{"role":"user","content":"q"}]}"#, "duplicate_key"),
        (r#"{"model":"a","messages":[],"model":"b"}"#, "duplicate_key"),
        (r#"{"messages":[],"str\u0065am":true,"stream":false}"#, "duplicate_key"),
        (r#"{"messages":[{"role":"user","content":"a","content":"b"}]}"#, "duplicate_key"),
    ];
    let mut bodies: Vec<(Vec<u8>, &str)> = texts.map(|(text, why)| (text.as_bytes().to_vec(), why)).into();
    bodies.push((deep("[", "]").into_bytes(), "too_deep"));
    bodies.push((deep("{\"a\":", "}").into_bytes(), "too_deep"));
    let many = |one: &str| vec![one; 70_000].join(",");
    bodies
        .push((format!("{{\"messages\":[{}]}}", many("{\"role\":\"user\"}")).into_bytes(), "too_many_parts"));
    let parts = format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{}]}}]}}", many("{}"));
    bodies.push((parts.into_bytes(), "too_many_parts"));
    bodies.push((format!("{{\"tools\":[{}],\"messages\":[]}}", many("{}")).into_bytes(), "too_many_parts"));
    bodies.push((b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}".to_vec(), "not_utf8"));
    bodies.push((b"{\"messages\":[],\"x\":\"\xed\xa0\x80\"}".to_vec(), "not_utf8"));
    bodies.push((b"\x1f\x8b\x08\x00compressed".to_vec(), "not_utf8"));
    bodies
}

#[test]
fn a_body_that_cannot_be_read_is_relayed_untouched_both_ways_and_counted() {
    let replies = [
        Reply::bytes(400, "application/json", "{ \"error\" : {\"message\":\"what?\"} }\n")
            .header("x-odd", "1"),
        Reply::stream([
            "data: {\"choices\":[{\"delta\":{\"tool",
            "_calls\":[{}]}}]}\r\n\r\n: x\n\ndata: [DONE]",
        ]),
    ];
    let scripted = replies.clone();
    let upstream = Scripted::start(move |nth, _| scripted[nth % 2].clone());
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let mut reasons: std::collections::BTreeMap<&str, u32> = std::collections::BTreeMap::new();
    let mut sent = 0;
    for (body, why) in unreadable() {
        for expected in &replies {
            let request = Request::post(&toolrein.chat_url(), &body);
            let reply = request.header("accept-encoding", "zstd").send();
            let seen = upstream.request(sent);
            assert!(seen.body == body, "{why}: {}", String::from_utf8_lossy(&body));
            assert_eq!(
                seen.header("accept-encoding"),
                Some("zstd"),
                "what is not judged may come in any coding"
            );
            assert_eq!((reply.status, reply.cut), (expected.status, false));
            assert_eq!(reply.body, bytes_of(expected));
            assert_eq!(reply.header("x-odd").is_some(), expected.status == 400);
            sent += 1;
        }
        *reasons.entry(why).or_default() += 2;
    }
    for (why, count) in reasons {
        toolrein.wait_for_metric(&format!("toolrein_ungoverned_total{{why=\"{why}\"}}"), count.into());
    }
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\"}", sent as f64);
}

/// Requests that are not strictly JSON, or nested deeper than most parsers read, and that servers accept all the
/// same.
fn read_by_servers() -> [String; 5] {
    let rest = |more: &str| format!("{{{more}{}", &question(false)[1..]);
    let deep = format!("\"x\":{}1{},", "[".repeat(9_000), "]".repeat(9_000));
    [
        format!("\u{feff}{}", question(false)),
        rest("\"temperature\":NaN,"),
        rest("\"temperature\":Infinity,\"top_p\":[ -Infinity , NaN],"),
        rest(&deep),
        format!("\u{feff} {}", rest("\"top_p\":NaN,")),
    ]
}

#[test]
fn what_servers_read_beside_json_is_governed_and_goes_up_byte_for_byte() {
    let upstream = Scripted::start(|_, _| Reply::json(200, &Speech::calls(&[("c", "f", "{}")]).whole()));
    let settings = "reask.max = 0\n[policy.allow]\nexcept = [\"f\"]\n";
    let toolrein = Toolrein::before(&upstream, settings);
    for body in read_by_servers() {
        let reply = chat(&toolrein, &body);
        assert_eq!(
            (reply.status, reply.header("x-toolrein-actions")),
            (200, Some("allow=blocked")),
            "{body:.40}"
        );
        assert!(!reply.text().contains("\"id\":\"c\""));
        let sent = upstream.requests();
        assert!(sent.iter().any(|seen| seen.body == body.as_bytes()), "{body:.40}");
    }
}

#[test]
fn an_edit_leaves_what_is_no_json_by_the_letter_as_it_is() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, "[policy.truncate]\nmax_chars = 1000\n");
    let body = crate::governed::talk::after(&[&long_text(3000)], false);
    let body = format!("\u{feff}{{\"temperature\":NaN,{}", &body[1..]);
    let reply = chat(&toolrein, &body);
    assert!(reply.header("x-toolrein-actions").is_some_and(|acts| acts.starts_with("truncate=1")));
    let seen = String::from_utf8(upstream.request(0).body).unwrap();
    assert!(seen.starts_with("\u{feff}{\"temperature\":NaN,\"m") && seen.len() < body.len(), "{seen:.60}");
}

/// Requests that some reader takes for a chat request, and toolrein does not.
fn read_by_others() -> Vec<(Vec<u8>, &'static str)> {
    let utf16: Vec<u8> = question(false).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let deep = format!("{{\"x\":{}1{},{}", "[".repeat(20_000), "]".repeat(20_000), &question(false)[1..]);
    vec![
        (utf16, "not_json"),
        (deep.into_bytes(), "too_deep"),
        (format!("{} trailing", question(false)).into_bytes(), "not_json"),
        (format!("{{\"messages\":[],{}", &question(false)[1..]).into_bytes(), "duplicate_key"),
        (format!("{{\"Stream\":true,{}", &question(false)[1..]).into_bytes(), "duplicate_key"),
        (question(false).replace("messages", "Messages").into_bytes(), "no_messages"),
        (question(false).replace("\"q\"", "'q'").into_bytes(), "not_json"),
        ([question(false).replace("\"q\"", "\"").as_bytes(), b"\xff\"}]}"].concat(), "not_json"),
    ]
}

#[test]
fn where_calls_are_restricted_a_request_that_another_may_read_is_refused() {
    let call = Reply::json(200, &Speech::calls(&[("c", "f", "{}")]).whole());
    let (upstream, answer) = (Scripted::start(move |_, _| call.clone()), "\"id\":\"c\"");
    let settings = |more: &str| format!("{more}[policy.allow]\nexcept = [\"f\"]\n");
    let strict = Toolrein::before(&upstream, &settings(""));
    let bodies: Vec<_> = read_by_others().into_iter().take(7).collect();
    for (body, why) in &bodies {
        let reply = chat(&strict, body);
        assert_eq!(own_error(&reply, 400, "request_unreadable").as_deref(), Some("false"));
        assert!(reply.text().contains(why), "{}", reply.text());
    }
    let coded =
        Request::post(&strict.chat_url(), b"\x1f\x8b\x08\x00x").header("content-encoding", "gzip").send();
    own_error(&coded, 400, "request_unreadable");
    assert!(upstream.requests().is_empty());
    strict.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\",status=\"400\"}", 8.0);
    strict.wait_for_metric("toolrein_ungoverned_total{why=\"duplicate_key\"}", 2.0);
    // Where the operator wants it, where nothing may change, and where no policy restricts calls, it passes.
    let free = [settings("upstream.unjudged = \"pass\"\n"), settings("mode = \"observe\"\n"), budget(1)];
    for settings in free {
        let toolrein = Toolrein::before(&upstream, &settings);
        for (body, _) in &bodies {
            assert!(chat(&toolrein, body).text().contains(answer), "{settings}");
        }
    }
}

#[test]
fn where_calls_are_restricted_an_answer_to_a_request_that_nobody_can_read_is_passed_on_only_if_it_is_a_refusal()
 {
    let replies = [
        Reply::bytes(400, "application/json", "{\"error\":{\"message\":\"what?\"}}"),
        Reply::json(200, &Speech::calls(&[("c", "f", "{}")]).whole()),
        Reply::stream(["data: {\"choices\":[]}\n\n"]),
    ];
    let scripted = replies.clone();
    let upstream = Scripted::start(move |nth, _| scripted[nth % 3].clone());
    let toolrein = Toolrein::before(&upstream, "[policy.allow]\nexcept = [\"f\"]\n");
    for body in ["", "nonsense", "{\"messages\":[", "{}", "{\"messages\":null}", "[1]"] {
        let refused = chat(&toolrein, body);
        assert_eq!((refused.status, refused.body), (400, bytes_of(&replies[0])), "{body}");
        for _ in &replies[1..] {
            let answered = chat(&toolrein, body);
            own_error(&answered, 400, "request_unreadable");
            assert!(answered.text().contains("was not passed on"));
        }
    }
    assert_eq!(upstream.requests().len(), 18);
}

/// The text as it is between the quotes of a JSON string.
fn inner(text: &str) -> String {
    json!(text).to_string().trim_matches('"').to_owned()
}

/// A model that calls `f` twice in each reply.
fn calling_twice() -> Scripted {
    // The test's own parser rejects half of a surrogate pair.
    Scripted::start(|_, request| {
        let speech = Speech::calls(&[("call_0", "f", "{}"), ("call_1", "f", "{}")]);
        let stream = String::from_utf8_lossy(&request.body).contains("\"stream\":true");
        if stream { Reply::events(&speech.chunks(false)) } else { Reply::json(200, &speech.whole()) }
    })
}

#[test]
fn a_message_with_an_odd_string_goes_up_untouched_and_counted_and_the_rest_is_governed_all_the_same() {
    let upstream = calling_twice();
    let settings = format!("{}[policy.truncate]\nmax_chars = 1000\n", budget(4));
    let toolrein = Toolrein::before(&upstream, &settings);
    for (nth, odd) in [r"\u0000", r"\ud800", r"\udc00\ud800", r"\u0000\ud83d"].into_iter().enumerate() {
        for (turn, stream) in [false, true].into_iter().enumerate() {
            let long = long_text(3000);
            let body = crate::governed::talk::after(&["MARK", "result", &long], stream).replace("MARK", odd);
            let reply = chat(&toolrein, &body);
            let seen = String::from_utf8(upstream.request(2 * nth + turn).body).unwrap();
            let (before, after) = body.split_once(&inner(&long)).unwrap();
            assert!(seen.starts_with(before) && seen.ends_with(after), "{seen}");
            assert!(seen.contains("[toolrein: cut ") && seen.len() < body.len() - 1_500, "{seen}");
            assert!(!reply.text().contains("_1\""), "the second call is blocked");
        }
    }
    toolrein.wait_for_metric("toolrein_ungoverned_total{why=\"odd_text\"}", 8.0);
}

#[test]
fn half_a_surrogate_pair_anywhere_in_a_request_switches_nothing_off() {
    let upstream = calling_twice();
    let toolrein = Toolrein::before(&upstream, "[policy.truncate]\nmax_chars = 1000\n");
    let long = inner(&long_text(3000));
    let call = r#"{"id":"a","type":"function","function":{"name":"f","arguments":"ARGUMENTS"}}"#;
    let chat_body = format!(
        r#"{{"model":"m","user":"USER","messages":[{{"role":"system","content":"SYSTEM"}},{{"role":"user","content":"q"}},{{"role":"assistant","content":"ANSWER","tool_calls":[{call}]}},{{"role":"tool","tool_call_id":"a","content":"{long}"}}],"tools":[{{"type":"function","function":{{"name":"f","description":"TOOL","parameters":{{"type":"object"}}}}}}]}}"#
    );
    let responses_body = format!(
        r#"{{"model":"m","user":"USER","instructions":"SYSTEM","input":[{{"role":"user","content":"ANSWER"}},{{"type":"function_call","call_id":"a","name":"f","arguments":"ARGUMENTS"}},{{"type":"function_call_output","call_id":"a","output":"{long}"}}],"tools":[{{"type":"function","name":"f","description":"TOOL","parameters":{{"type":"object"}}}}]}}"#
    );
    let mut nth = 0;
    for (path, body) in [("/v1/chat/completions", chat_body), ("/v1/responses", responses_body)] {
        for mark in ["USER", "SYSTEM", "ANSWER", "ARGUMENTS", "TOOL"] {
            let body = body.replace(mark, r"half \ud83d");
            Request::post(&format!("{}{path}", toolrein.origin()), &body).send();
            let seen = String::from_utf8(upstream.request(nth).body).unwrap();
            let (before, after) = body.split_once(&long).unwrap();
            assert!(seen.starts_with(before) && seen.ends_with(after), "{path} {mark}: {seen}");
            assert!(seen.contains("[toolrein: cut "), "{path} {mark}: {seen}");
            nth += 1;
        }
    }
    // A name of a member that parsers read differently may be another one: such a body is left as it is.
    let odd_name = format!(
        r#"{{"messages\u0000":[],"model":"m","messages":[{{"role":"user","content":"q"}},{{"role":"assistant","tool_calls":[{call}]}},{{"role":"tool","tool_call_id":"a","content":"{long}"}}]}}"#
    );
    chat(&toolrein, &odd_name);
    assert_eq!(String::from_utf8(upstream.request(nth).body).unwrap(), odd_name);
}

#[test]
fn a_request_over_the_limit_is_refused_on_governed_routes_only() {
    let upstream = Scripted::start(|_, request| Reply::speech(request, &Speech::text("ok")));
    let toolrein = Toolrein::before(&upstream, &format!("limits.request_bytes = 2048\n{GENEROUS}"));
    let fits = format!("{:2048}", json!({"model": "m", "messages": []}).to_string());
    assert_eq!(chat(&toolrein, &fits).status, 200);
    let long = format!("{fits} ");
    let declared = chat(&toolrein, &long);
    assert_eq!(own_error(&declared, 413, "request_too_large").as_deref(), Some("false"));
    assert!(declared.text().contains("2048"), "it says how much is taken");
    // The body never ends: it is refused as soon as it is too long.
    let mut connection = Connection::open(&toolrein.chat_url());
    connection.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    connection.write(format!("{:x}\r\n{long}\r\n", long.len()).as_bytes());
    own_error(&connection.response().rest(), 413, "request_too_large");
    let elsewhere = Request::post(&format!("{}/embeddings", toolrein.base_url()), &long).send();
    assert_eq!(elsewhere.status, 200);
    assert_eq!(upstream.requests().len(), 2);
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\",status=\"413\"}", 2.0);
}

#[test]
fn a_client_that_writes_all_of_a_request_much_too_long_can_still_read_why_it_is_refused() {
    let upstream = Scripted::queue([]);
    let toolrein = Toolrein::before(&upstream, &format!("limits.request_bytes = 2048\n{GENEROUS}"));
    for declared in [true, false] {
        let mut connection = Connection::open(&toolrein.chat_url());
        let length = 4 << 20;
        let framing = if declared {
            format!("content-length: {length}\r\n\r\n")
        } else {
            format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n")
        };
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{framing}");
        connection.write(head.as_bytes());
        // As clients do: write everything, or until that fails, and then read.
        let _ = connection.reader.get_mut().write_all(&vec![b'x'; length]);
        own_error(&connection.response().rest(), 413, "request_too_large");
    }
}

#[test]
fn a_client_that_stops_in_the_middle_of_its_body_is_told_so_in_time() {
    let upstream = Scripted::queue([]);
    let toolrein = Toolrein::before(&upstream, &format!("limits.body_timeout = \"50ms\"\n{GENEROUS}"));
    for framing in ["content-length: 100\r\n\r\n{\"model\"", "transfer-encoding: chunked\r\n\r\n2\r\n{ \r\n"]
    {
        let mut connection = Connection::open(&toolrein.chat_url());
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{framing}");
        connection.write(head.as_bytes());
        own_error(&connection.response().rest(), 408, "request_timeout");
    }
    assert!(upstream.requests().is_empty());
    toolrein.wait_for_metric("toolrein_requests_total{endpoint=\"chat_completions\",status=\"408\"}", 2.0);
    assert!(toolrein.metric("toolrein_client_gone_total").abs() < 0.5, "they were all there");
}

#[test]
fn a_request_without_a_model_or_with_unknown_roles_is_governed() {
    let upstream = Scripted::start(calling(2));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let mut body: Value = serde_json::from_str(&question(false)).unwrap();
    body.as_object_mut().unwrap().remove("model");
    body["messages"][0]["role"] = json!("robot");
    let reply = chat(&toolrein, body.to_string());
    assert_eq!(reply.header("x-toolrein-actions"), Some("budget=blocked"));
}
