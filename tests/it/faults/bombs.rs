//! Bombs: bodies that unpack to far more than came, and JSON and schemas made to take long. Memory stays bounded by
//! the configured limits and time by the size of what came; what is too much to be judged passes unjudged, and counted.

use crate::faults::hand::{Hand, Wire, chat, code, peak, post, resident, still_answers};
use crate::support::client::{Request, Response};
use crate::support::coded::{Encoder, encode};
use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use serde_json::json;

/// Bombs of a quarter of a gigabyte in gzip and zstd, which may be put together of many parts, and less in the other
/// codings, which the test has to pack as a whole.
fn bombs() -> [(&'static str, Vec<u8>); 4] {
    let coded = |name, mib: usize| encode((name, false), &vec![b' '; mib << 20]);
    [
        ("gzip", coded("gzip", 1).repeat(256)),
        ("deflate", coded("deflate", 8)),
        ("br", coded("br", 8)),
        ("zstd", coded("zstd", 1).repeat(256)),
    ]
}

fn answer(status: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-encoding: {coding}\r\n");
    [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

#[test]
fn a_compression_bomb_from_the_upstream_is_forwarded_still_compressed_and_counted() {
    let (hand, toolrein) = Hand::behind("limits.reply_bytes = \"4MiB\"\nlimits.held_bytes = \"1MiB\"\n");
    let before = peak(&toolrein);
    for (coding, bomb) in bombs() {
        for status in ["200 OK", "400 Bad Request"] {
            let mut client = Wire::to(&toolrein);
            client.write(chat(false));
            let sent = answer(status, coding, &bomb);
            let mut upstream = hand.asked();
            let sending = std::thread::spawn(move || upstream.write(sent));
            let (head, body) = client.response();
            sending.join().unwrap();
            assert_eq!((head.word(1), head.header("content-encoding")), (&status[..3], Some(coding)));
            assert!(body.unwrap() == bomb);
        }
    }
    let grown = peak(&toolrein) - before;
    assert!(grown < 40 << 20, "{} MiB more", grown >> 20);
    toolrein.wait_for_metric("toolrein_unjudged_total{why=\"unreadable_coding\"}", 4.0);
    still_answers(&hand, &toolrein);
}

#[test]
fn a_compressed_bomb_does_not_slip_through_where_nothing_may_pass_unjudged() {
    let hand = Hand::open();
    let settings =
        "limits.reply_bytes = \"4MiB\"\nlimits.held_bytes = \"1MiB\"\n[policy.confirm]\ntools = [\"f\"]\n";
    let toolrein = crate::faults::hand::before(&hand.base_url(), settings);
    for (coding, bomb) in bombs() {
        let mut client = Wire::to(&toolrein);
        client.write(chat(false));
        hand.asked().write(answer("200 OK", coding, &bomb));
        let (head, body) = client.response();
        assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("502", "reply_unjudged"), "{coding}");
    }
}

#[test]
fn a_compressed_stream_is_unpacked_no_faster_than_its_client_takes_it() {
    let (hand, toolrein) = Hand::behind("");
    let before = peak(&toolrein);
    let event = format!(": {}\n\n", " ".repeat(1 << 20));
    for name in ["gzip", "deflate", "br", "zstd"] {
        let mut encoder = Encoder::new((name, false));
        let coded = (0..64).flat_map(|_| encoder.piece(event.as_bytes())).collect::<Vec<u8>>();
        let coded = [coded, encoder.finish()].concat();
        let mut client = Wire::to(&toolrein);
        client.write(chat(true));
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let head = format!("{head}content-encoding: {name}\r\ncontent-length: {}\r\n\r\n", coded.len());
        hand.asked().write([head.as_bytes(), &coded].concat());
        assert_eq!(client.head().word(1), "200");
        client.stall();
        let grown = peak(&toolrein) - before;
        assert!(grown < 40 << 20, "{name}: {} MiB more", grown >> 20);
    }
    still_answers(&hand, &toolrein);
}

#[test]
fn a_compressed_bomb_of_a_client_is_refused_and_takes_no_more_memory_than_a_request_may() {
    let (hand, toolrein) = Hand::behind("limits.request_bytes = \"2MiB\"\n");
    let before = peak(&toolrein);
    for (coding, bomb) in bombs() {
        let mut client = Wire::to(&toolrein);
        let framing = format!("content-encoding: {coding}\r\ncontent-length: {}", bomb.len());
        client.write(post("/v1/chat/completions", "").replace("content-length: 0", &framing));
        client.write(&bomb);
        let (head, body) = client.response();
        assert_eq!((head.word(1), code(&body.unwrap()).as_str()), ("413", "request_too_large"), "{coding}");
    }
    let grown = peak(&toolrein) - before;
    assert!(grown < 32 << 20, "{} MiB more", grown >> 20);
    toolrein.wait_for_metric("toolrein_body_bytes", 0.0);
    still_answers(&hand, &toolrein);
}

/// The program before an upstream that says one thing, and calls `f` with these arguments first if there are any.
fn calling(arguments: String, settings: &str) -> (Scripted, Toolrein) {
    let upstream = Scripted::start(move |nth, request| {
        let calls = [("call_1", "f", arguments.as_str())];
        let speech = if arguments.is_empty() || nth > 0 { Speech::text("ok") } else { Speech::calls(&calls) };
        Reply::speech(request, &speech)
    });
    let toolrein = Toolrein::before(&upstream, settings);
    (upstream, toolrein)
}

fn ask(toolrein: &Toolrein, body: &str) -> Response {
    Request::post(&toolrein.chat_url(), body).send()
}

#[test]
fn json_made_to_take_long_takes_no_longer_than_its_size_is_worth() {
    let message = r#"{"role":"user","content":"q"}"#;
    let members: String = (0..100_000).map(|nth| format!("\"k{nth}\":{nth},")).collect();
    let equal = "\"k\":1,".repeat(150_000);
    let digits = "9".repeat(1 << 20);
    let escapes = "\\u0041\\n\\\"".repeat(100_000);
    let calls: Vec<_> = (0..2000)
        .map(|nth| json!({"id": format!("c{nth}"), "type": "function", "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    let calls = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    for (name, body) in [
        ("many members", format!("{{{members}\"messages\":[{message}]}}")),
        ("many equal members", format!("{{{equal}\"messages\":[{message}]}}")),
        (
            "many equal members of a message",
            format!("{{\"messages\":[{{{equal}\"role\":\"user\",\"content\":\"q\"}}]}}"),
        ),
        ("a huge number", format!("{{\"seed\":{digits},\"messages\":[{message}]}}")),
        ("a huge exponent", format!("{{\"temperature\":1e{digits},\"messages\":[{message}]}}")),
        ("many escapes", format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{escapes}\"}}]}}")),
        ("many messages", format!("{{\"messages\":[{}]}}", vec![message; 20_000].join(","))),
        ("many calls", format!("{{\"messages\":[{message},{calls},{calls}]}}")),
        ("nested as deep as is taken", format!("{{\"messages\":[{message}],\"x\":{deep}}}")),
        (
            "many tools",
            format!(
                "{{\"messages\":[{message}],\"tools\":[{}]}}",
                vec![r#"{"type":"function","function":{"name":"f"}}"#; 20_000].join(",")
            ),
        ),
    ] {
        let (upstream, toolrein) = calling(String::new(), crate::faults::hand::GENEROUS);
        let before = resident(&toolrein);
        let started = std::time::Instant::now();
        let reply = ask(&toolrein, &body);
        eprintln!("{name}: {:?} {} MiB", started.elapsed(), (peak(&toolrein) - before) >> 20);
        assert_eq!(reply.status, 200, "{name}");
        assert!(upstream.request(0).body == body.as_bytes(), "{name}: untouched");
        assert!(peak(&toolrein) < before + 40 * body.len() + (16 << 20), "{name}");
    }
}

#[test]
fn what_is_remembered_of_requests_stays_within_its_bound_whatever_they_are_made_of() {
    let settings = format!("store.memo_bytes = \"8MiB\"\n{}", crate::faults::hand::GENEROUS);
    let (_upstream, toolrein) = calling(String::new(), &settings);
    // Two bytes each of the request, ten times that in memory.
    let parts = "1,".repeat(480_000);
    let behind = "word ".repeat(20_000);
    let ask_another = |nth: usize| {
        let messages =
            format!(r#"{{"role":"user","content":[{parts}1]}},{{"role":"user","content":"{behind}"}}"#);
        let body = format!("{{\"seed\":{nth},\"messages\":[{messages}]}}");
        assert_eq!(ask(&toolrein, &body).status, 200);
    };
    (0..4).for_each(ask_another);
    let at_first = resident(&toolrein);
    (4..12).for_each(ask_another);
    let grown = resident(&toolrein).saturating_sub(at_first);
    assert!(grown < 32 << 20, "{} MiB more", grown >> 20);
}

#[test]
fn schemas_designed_to_be_slow_are_handled_quickly() {
    let text = "a".repeat(20_000);
    let definitions = |count: usize| -> serde_json::Value {
        let one = |nth: usize| {
            let next = format!("#/$defs/d{}", nth + 1);
            (format!("d{nth}"), json!({"anyOf": [{"$ref": next}, {"$ref": next}], "allOf": [{"$ref": next}]}))
        };
        (0..count).map(one).chain([(format!("d{count}"), json!({"type": "string"}))]).collect()
    };
    for (name, schema, argument) in [
        ("backtracking", json!({"type": "string", "pattern": "^(a+)+$"}), format!("{text}!")),
        (
            "counted repetitions",
            json!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}),
            text.clone(),
        ),
        ("look-around", json!({"type": "string", "pattern": "(?=(a+))*b"}), text),
        (
            "a circle of references",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "x".into(),
        ),
        ("a reference to itself", json!({"$ref": "#"}), "x".into()),
        ("branches of branches", json!({"$ref": "#/$defs/d0", "$defs": definitions(40)}), "x".into()),
        ("a reference to elsewhere", json!({"$ref": "http://169.254.169.254/latest"}), "x".into()),
        ("a reference to a file", json!({"$ref": "file:///etc/hostname"}), "x".into()),
        ("a very long enum", json!({"enum": (0..50_000).collect::<Vec<_>>()}), "x".into()),
    ] {
        let schema = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": schema}}]);
        let body =
            json!({"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools}).to_string();
        let settings = "[policy.arguments]\nstrict = true\n";
        let (_upstream, toolrein) = calling(json!({"a": argument}).to_string(), settings);
        let started = std::time::Instant::now();
        let reply = ask(&toolrein, &body);
        eprintln!(
            "{name}: {:?} {}",
            started.elapsed(),
            toolrein.metric("toolrein_tool_calls_total{verdict=\"allow\"}")
        );
        assert_eq!(reply.status, 200, "{name}");
        assert!(peak(&toolrein) < 128 << 20, "{name}: {} MiB", peak(&toolrein) >> 20);
    }
}
