//! Replies in a content coding: judged on a decoded copy, forwarded as they came unless something acts.

use crate::support::program::Toolrein;
use crate::support::reply::{Reply, Speech};
use crate::support::scripted::Scripted;
use crate::talk::{GENEROUS, budget, bytes_of, calling, chat, question};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use std::io::Write as _;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Brotli without compression: a window of 16 bits, one stored block of at most 64 KiB, an empty last block.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len() - 1).unwrap();
    // From the lowest bit: window, not last, length in four nibbles, the length less one, stored.
    let head = (length << 4) | (1 << 20);
    [&head.to_le_bytes()[..3], bytes, &[3]].concat()
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

type Coder = fn(&[u8]) -> Vec<u8>;

/// The name of the coding, how it is made, and the name of the tool that the reply calls.
const CODINGS: [(&str, Coder, &str); 5] = [
    ("gzip", gzip, "gzip"),
    ("X-GZip", gzip, "x_gzip"),
    ("deflate", zlib, "zlib"),
    ("deflate", raw_deflate, "deflate"),
    ("identity", plain, "identity"),
];

#[test]
fn a_whole_reply_in_a_known_coding_is_judged_and_forwarded_as_it_came() {
    let coded = |nth: usize| {
        let (coding, code, tool) = CODINGS[nth];
        let body = Speech::calls(&[("c", tool, "{}")]).whole().to_string();
        Reply::bytes(200, "application/json", code(body.as_bytes())).header("content-encoding", coding)
    };
    let upstream = Scripted::start(move |nth, _| coded(nth));
    let toolrein = Toolrein::before(&upstream, GENEROUS);
    for (nth, (coding, _, tool)) in CODINGS.into_iter().enumerate() {
        let reply = chat(&toolrein, question(false));
        assert_eq!((reply.status, reply.header("content-encoding")), (200, Some(coding)));
        assert_eq!(reply.body, bytes_of(&coded(nth)), "{tool}");
        toolrein.wait_for_metric(
            &format!("toolrein_tool_calls_total{{tool=\"{tool}\",verdict=\"allowed\"}}"),
            1.0,
        );
    }
    assert!(toolrein.metric("toolrein_unjudged_total").abs() < 0.5);
}

#[test]
fn a_reply_in_a_coding_that_cannot_be_read_passes_unjudged_and_is_counted() {
    let body = Speech::calls(&[("c", "f", "{}")]).whole().to_string().into_bytes();
    let events = bytes_of(&Reply::events(&Speech::calls(&[("c", "f", "{}")]).chunks(false)));
    let streamed =
        |bytes: Vec<u8>| Reply { pieces: Reply::bytes(200, "", bytes).pieces, ..Reply::stream([""]) };
    let replies = [
        ("zstd", Reply::bytes(200, "application/json", b"\x28\xb5\x2f\xfd\x00".to_vec())),
        ("br", Reply::bytes(200, "application/json", brotli(&body))),
        ("gzip", Reply::bytes(200, "application/json", b"no gzip".to_vec())),
        ("gzip, br", Reply::bytes(200, "application/json", gzip(&body))),
        ("gzip", streamed(gzip(&events))),
        ("zstd", streamed(b"\x28\xb5\x2f\xfd\x00".to_vec())),
    ];
    let replies = replies.map(|(coding, reply)| reply.header("content-encoding", coding));
    let scripted = replies.clone();
    let upstream = Scripted::queue(scripted);
    // With no call left in the budget a judged reply would be withheld.
    let toolrein = Toolrein::before(&upstream, &budget(1));
    for (nth, sent) in replies.iter().enumerate() {
        let reply = chat(&toolrein, crate::talk::after(&["r"], sent.streamed));
        assert_eq!(reply.body, bytes_of(sent), "reply {nth}");
        assert_eq!(reply.header("content-encoding"), Some(sent.headers[1].1.as_str()));
        assert!(!reply.cut);
        toolrein.wait_for_metric("toolrein_unjudged_total{why=\"unreadable_coding\"}", (nth + 1) as f64);
    }
    toolrein.wait_for_metric("toolrein_streams_open", 0.0);
}

#[test]
fn a_compressed_reply_on_which_something_acts_comes_plain() {
    let upstream = Scripted::start(|nth, request| {
        let plain = bytes_of(&calling(2)(nth, request));
        let (coding, code, _) = CODINGS[nth % 4];
        Reply::bytes(200, "application/json", code(&plain)).header("content-encoding", coding)
    });
    let toolrein = Toolrein::before(&upstream, &budget(1));
    for (coding, _, _) in &CODINGS[..4] {
        let reply = chat(&toolrein, question(false));
        assert_eq!(reply.header("content-encoding"), None, "{coding}");
        assert_eq!(reply.json()["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
        assert_eq!(reply.header("x-toolrein-actions"), Some("budget=withheld"));
    }
}

#[test]
fn a_compressed_refusal_of_tools_is_understood() {
    let upstream = Scripted::start(|_, request| {
        if request.json()["tools"].is_null() {
            return Reply::speech(request, &Speech::text("Without."));
        }
        let refusal = br#"{"error":{"message":"m does not support tools","type":"api_error"}}"#;
        Reply::bytes(400, "application/json", gzip(refusal)).header("content-encoding", "gzip")
    });
    for stream in [false, true] {
        let toolrein = Toolrein::before(&upstream, GENEROUS);
        assert!(chat(&toolrein, question(stream)).text().contains("Without."));
        toolrein.wait_for_metric("toolrein_fallbacks_total{kind=\"tools\"}", 1.0);
    }
}
