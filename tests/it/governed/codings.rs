//! Replies in a content coding. Whole ones are judged on a decoded copy and forwarded as they came unless something acts;
//! streams are decoded as they come.

use crate::governed::talk::{
    GENEROUS, after, budget, bytes_of, calling, chat, log_line, own_error, question,
};
use crate::support::client::Request;
use crate::support::coded::{CODINGS, Encoder, encode};
use crate::support::program::Toolrein;
use crate::support::reply::{Gate, Piece, Reply, Speech};
use crate::support::scripted::Scripted;

/// The name of the tool that a reply in this coding calls.
fn tool((name, raw): (&str, bool)) -> String {
    format!("{name}{}", if raw { "_raw" } else { "" })
}

/// A scripted reply in this coding: each piece of a stream flushed by itself.
fn coded(coding: (&str, bool), reply: Reply) -> Reply {
    let mut reply = reply.header("content-encoding", coding.0).header("vary", "accept-encoding");
    if !reply.streamed {
        let body = encode(coding, &bytes_of(&reply));
        return Reply { pieces: vec![Piece::Data(body)], ..reply };
    }
    let mut encoder = Encoder::new(coding);
    for piece in &mut reply.pieces {
        if let Piece::Data(bytes) = piece {
            *bytes = encoder.piece(bytes);
        }
    }
    reply.pieces.push(Piece::Data(encoder.finish()));
    reply
}

#[test]
fn a_whole_reply_in_any_known_coding_is_judged_and_forwarded_as_it_came() {
    let reply =
        |coding| coded(coding, Reply::json(200, &Speech::calls(&[("c", &tool(coding), "{}")]).whole()));
    let upstream = Scripted::start(move |nth, _| reply(CODINGS[nth]));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for coding in CODINGS {
        let got = chat(&toolrein, question(false));
        assert_eq!((got.status, got.header("content-encoding")), (200, Some(coding.0)));
        assert_eq!(got.header("vary"), Some("accept-encoding"));
        assert_eq!(got.body, bytes_of(&reply(coding)), "{coding:?}");
        let tool = tool(coding);
        let counted = format!("toolrein_tool_calls_total{{tool=\"{tool}\",verdict=\"allow\"}}");
        toolrein.wait_for_metric(&counted, 1.0);
    }
    assert!(toolrein.metric("toolrein_unjudged_total").abs() < 0.5);
}

#[test]
fn members_and_several_codings_of_a_whole_reply_are_decoded() {
    let body = Speech::calls(&[("c", "f", "{}")]).whole().to_string();
    let gzip = |text: &str| encode(("gzip", false), text.as_bytes());
    let (one, other) = body.split_at(50);
    let sent = [
        ("X-GZip", [gzip(one), gzip(other)].concat()),
        ("gzip, br", encode(("br", false), &gzip(&body))),
        ("identity", body.clone().into_bytes()),
    ];
    let replies = sent.clone();
    let reply = |(name, body): &(&str, Vec<u8>)| {
        Reply::bytes(200, "application/json", body.clone()).header("content-encoding", name)
    };
    let upstream = Scripted::start(move |nth, _| reply(&replies[nth]));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (nth, (name, body)) in sent.iter().enumerate() {
        assert!(&chat(&toolrein, question(false)).body == body, "{name}");
        let counted = "toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}";
        toolrein.wait_for_metric(counted, (nth + 1) as f64);
    }
}

#[test]
fn a_reply_in_a_coding_that_cannot_be_read_passes_unjudged_and_is_counted() {
    let body = Speech::calls(&[("c", "f", "{}")]).whole().to_string().into_bytes();
    let events = bytes_of(&Reply::events(&Speech::calls(&[("c", "f", "{}")]).chunks(false)));
    let streamed =
        |bytes: Vec<u8>| Reply { pieces: Reply::bytes(200, "", bytes).pieces, ..Reply::stream([""]) };
    let gzip = encode(("gzip", false), &body);
    let replies = [
        ("compress", Reply::bytes(200, "application/json", b"\x1f\x9d\x90".to_vec())),
        ("gzip", Reply::bytes(200, "application/json", b"no gzip".to_vec())),
        ("gzip", Reply::bytes(200, "application/json", gzip[..gzip.len() - 1].to_vec())),
        ("gzip, dcb", Reply::bytes(200, "application/json", gzip)),
        ("dcz", streamed(events)),
    ];
    let replies = replies.map(|(coding, reply)| reply.header("content-encoding", coding));
    let scripted = replies.clone();
    let upstream = Scripted::queue(scripted);
    // With no call left in the budget a judged reply would be blocked.
    let toolrein = Toolrein::before(&upstream, &budget(1));
    for (nth, sent) in replies.iter().enumerate() {
        let reply = chat(&toolrein, after(&["r"], sent.streamed));
        assert_eq!(reply.body, bytes_of(sent), "reply {nth}");
        assert_eq!(reply.header("content-encoding"), Some(sent.headers[1].1.as_str()));
        assert!(!reply.cut);
        toolrein.wait_for_metric("toolrein_unjudged_total{why=\"unreadable_coding\"}", (nth + 1) as f64);
    }
    toolrein.wait_for_metric("toolrein_streams_open", 0.0);
}

#[test]
fn a_reply_in_an_unknown_coding_is_refused_where_a_policy_restricts_calls() {
    let upstream = Scripted::start(|_, request| {
        Reply::speech(request, &Speech::calls(&[("c", "f", "{}")])).header("content-encoding", "compress")
    });
    let toolrein = Toolrein::before(&upstream, "[policy.confirm]\ntools = [\"f\"]\n");
    for stream in [false, true] {
        own_error(&chat(&toolrein, question(stream)), 502, "reply_unjudged");
    }
}

#[test]
fn a_compressed_reply_on_which_something_acts_comes_plain() {
    let upstream = Scripted::start(|nth, request| coded(CODINGS[nth], calling(2)(nth, request)));
    let toolrein = Toolrein::before(&upstream, &budget(1));
    for coding in CODINGS {
        let reply = chat(&toolrein, question(false));
        assert_eq!((reply.header("content-encoding"), reply.cut), (None, false), "{coding:?}");
        assert_eq!(reply.json()["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
        assert_eq!(reply.header("x-toolrein-actions"), Some("budget=blocked"));
    }
}

#[test]
fn a_compressed_stream_comes_decoded_and_each_event_as_soon_as_it_was_sent() {
    let gates = CODINGS.map(|_| Gate::shut());
    let (events, opened) = (Reply::events(&Speech::text("one two").chunks(false)), gates.clone());
    let plain = bytes_of(&events);
    // The test waits for the first word before the upstream goes on to the second.
    let upstream =
        Scripted::start(move |nth, _| coded(CODINGS[nth], events.clone()).held_after(2, &gates[nth]));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (coding, gate) in CODINGS.iter().zip(opened) {
        let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
        let so_far = stream.until("one ");
        assert!(!so_far.contains("two"), "{coding:?}");
        gate.open();
        let reply = stream.rest();
        assert!([so_far.as_bytes(), &reply.body].concat().ends_with(&plain[plain.len() - 30..]));
        assert_eq!((reply.header("content-encoding"), reply.cut), (None, false), "{coding:?}");
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
    }
}

#[test]
fn a_compressed_stream_is_byte_for_byte_the_plain_one_however_its_bytes_are_cut() {
    for size in [1, 100, 100_000] {
        let events = Reply::events(&Speech::calls(&[("c", "f", "{\"a\":1}")]).chunks(true));
        let plain = bytes_of(&events);
        let reply = move |nth: usize| coded(CODINGS[nth], events.clone()).in_pieces_of(size);
        let upstream = Scripted::start(move |nth, _| reply(nth));
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        for coding in CODINGS {
            let reply = chat(&toolrein, question(true));
            assert!(reply.body == plain && !reply.cut, "{coding:?} {size}: {}", reply.text());
        }
        toolrein.wait_for_metric("toolrein_tool_calls_total{tool=\"f\",verdict=\"allow\"}", 5.0);
    }
}

#[test]
fn a_blocked_call_in_a_compressed_stream_never_reaches_the_client() {
    // Also where the stream has another content type, and only its first bytes show what it is.
    for kind in ["text/event-stream", "text/plain"] {
        let upstream = Scripted::start(move |nth, request| {
            let mut reply = calling(1)(nth, request);
            reply.headers[0].1 = kind.to_owned();
            coded(CODINGS[nth % 5], reply)
        });
        let toolrein = Toolrein::before(&upstream, &budget(1));
        for nth in 0..5 {
            let reply = chat(&toolrein, after(&["r"], true));
            assert!(!reply.text().contains("call_"), "{nth}: {}", reply.text());
            assert!(reply.text().contains("Done") && !reply.cut, "{nth}: {}", reply.text());
            assert_eq!(upstream.requests().len(), 2 * nth + 2, "asked once more, for the final answer");
        }
    }
}

#[test]
fn a_compressed_stream_that_is_cut_never_ends_as_if_it_were_whole() {
    let whole = Reply::events(&Speech::text("one two three").chunks(false));
    for coding in CODINGS {
        let sent = coded(coding, whole.clone());
        // Three faults: the connection breaks; the HTTP body ends properly, but in the middle of its coding; the bytes
        // that follow are not of the coding.
        let cut = sent.clone().cut_after(3);
        let mut short = sent.clone();
        short.pieces.truncate(3);
        let mut damaged = short.clone();
        damaged.pieces.push(Piece::Data(vec![0xff; 100]));
        let upstream = Scripted::queue([cut, short, damaged]);
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        for nth in 0..3 {
            let reply = chat(&toolrein, question(true));
            assert!(reply.cut && reply.text().contains("one"), "{coding:?} {nth}: {}", reply.text());
            assert!(!reply.text().contains("[DONE]"), "{coding:?} {nth}");
        }
        (0..3).for_each(|nth| assert_eq!(log_line(&toolrein, nth)["error"], "upstream_cut"));
    }
}

#[test]
fn a_stream_in_several_codings_is_judged_and_each_event_comes_as_soon_as_it_was_sent() {
    let gate = Gate::shut();
    let both = |reply: Reply| {
        let [inner, outer] = [("gzip", false), ("br", false)];
        let mut twice = coded(outer, coded(inner, reply));
        twice.headers.retain(|(name, _)| name != "content-encoding");
        twice.header("content-encoding", "gzip").header("content-encoding", "br")
    };
    let text = both(Reply::events(&Speech::text("one two").chunks(false))).held_after(2, &gate);
    let call = both(Reply::events(&Speech::calls(&[("call_1", "f", "{}")]).chunks(false)));
    let upstream = Scripted::queue([text, call, Reply::events(&Speech::text("Done").chunks(false))]);
    let toolrein = Toolrein::before(&upstream, &budget(1));
    let mut stream = Request::post(&toolrein.chat_url(), question(true)).open();
    assert!(!stream.until("one ").contains("two"));
    gate.open();
    let rest = stream.rest();
    assert!(rest.text().ends_with("[DONE]\n\n") && !rest.cut);
    let reply = chat(&toolrein, after(&["r"], true));
    assert!(reply.text().contains("Done") && !reply.text().contains("call_1") && !reply.cut);
}

#[test]
fn a_stream_under_the_name_of_another_coding_is_broken_and_nothing_of_it_passes() {
    let events = Reply::events(&Speech::calls(&[("call_1", "f", "{}")]).chunks(false));
    let names = CODINGS.map(|(name, _)| name);
    for name in names {
        let others = CODINGS.into_iter().filter(|(other, _)| *other != name);
        let mut sent: Vec<Reply> = others.map(|coding| coded(coding, events.clone())).collect();
        sent.push(events.clone().header("content-encoding", name));
        for reply in &mut sent {
            reply.headers.retain(|(header, _)| header != "content-encoding");
            reply.headers.push(("content-encoding".to_owned(), name.to_owned()));
        }
        let (upstream, count) = (Scripted::queue(sent.clone()), sent.len());
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        for nth in 0..count {
            let reply = chat(&toolrein, question(true));
            assert!(reply.cut && !reply.text().contains("call_1"), "{name} {nth}: {}", reply.text());
        }
    }
}

#[test]
fn a_compressed_stream_is_complete_after_its_done_event_even_without_a_trailer() {
    let mut sent = coded(CODINGS[0], Reply::events(&Speech::text("all").chunks(false)));
    sent.pieces.pop();
    let left_open = sent.clone().held_after(sent.pieces.len(), &Gate::shut());
    let upstream = Scripted::queue([sent, left_open]);
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for _ in 0..2 {
        let reply = chat(&toolrein, question(true));
        assert!(reply.text().ends_with("[DONE]\n\n") && !reply.cut);
    }
}

#[test]
fn observing_passes_a_compressed_stream_as_it_came_and_judges_it() {
    let reply =
        |nth: usize| coded(CODINGS[nth], Reply::events(&Speech::calls(&[("c", "f", "{}")]).chunks(false)));
    let upstream = Scripted::start(move |nth, _| match CODINGS.get(nth) {
        Some(_) => reply(nth),
        None => Reply::stream(["no gzip"]).header("content-encoding", "gzip"),
    });
    let toolrein = Toolrein::before(&upstream, &format!("mode = \"observe\"\n{}", budget(1)));
    for (nth, coding) in CODINGS.into_iter().enumerate() {
        let got = chat(&toolrein, after(&[&format!("r{nth}")], true));
        assert_eq!((got.header("content-encoding"), got.cut), (Some(coding.0), false));
        assert!(got.body == bytes_of(&reply(nth)), "{coding:?}");
        let actions = &log_line(&toolrein, nth)["actions"];
        assert!(actions.to_string().contains("blocked"), "{coding:?}: {actions}");
    }
    let got = chat(&toolrein, question(true));
    assert_eq!((got.text().as_str(), got.cut), ("no gzip", false));
    toolrein.wait_for_metric("toolrein_unjudged_total{why=\"unreadable_coding\"}", 1.0);
}

#[test]
fn a_compressed_refusal_of_tools_is_understood() {
    for coding in CODINGS {
        let upstream = Scripted::start(move |_, request| {
            if request.json()["tools"].is_null() {
                return Reply::speech(request, &Speech::text("Without."));
            }
            let refusal = br#"{"error":{"message":"m does not support tools","type":"api_error"}}"#;
            coded(coding, Reply::bytes(400, "application/json", refusal))
        });
        for stream in [false, true] {
            let toolrein = Toolrein::before(&upstream, GENEROUS);
            assert!(chat(&toolrein, question(stream)).text().contains("Without."), "{coding:?}");
            toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"tools\"}", 1.0);
        }
    }
}
