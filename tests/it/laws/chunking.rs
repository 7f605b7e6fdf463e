//! Chunking: what the client gets of a stream does not depend on how the network cut it, also where calls are
//! blocked.

use super::recordings::{Kind, own_messages, own_of};
use super::world::{Facts, NOW_MS, lossy, low, read_in};
use bytes::Bytes;
use dialects::dialect_named;
use dialects::reply::{Ending, Form, Limits, Options};
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

/// A recorded stream.
struct Stream {
    name: String,
    endpoint: &'static str,
    bytes: Vec<u8>,
}

/// The recorded streams of chat completions and of the Messages API.
fn streams() -> Vec<Stream> {
    let of_messages = own_messages().into_iter().filter(|one| one.kind == Kind::Stream);
    let of_messages = of_messages.map(|one| ("messages", one));
    let all = own_of(Kind::Stream).into_iter().map(|one| ("chat_completions", one)).chain(of_messages);
    all.map(|(endpoint, one)| Stream { name: one.name, endpoint, bytes: one.bytes }).collect()
}

/// A judge whose budget has room for so many calls.
fn judging(endpoint: &str, room: usize) -> Judging {
    let ids = (0..4 - room).map(|at| format!("c{at}"));
    let reply = if endpoint == "messages" {
        let block = |id: String| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
        json!({"role": "assistant", "content": ids.map(block).collect::<Vec<_>>()})
    } else {
        let call =
            |id: String| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        json!({"role": "assistant", "tool_calls": ids.map(call).collect::<Vec<_>>()})
    };
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    if room < 4 {
        messages.push(reply);
    }
    let body = Bytes::from(json!({"model": "m", "messages": messages}).to_string());
    read_in(dialect_named(endpoint).unwrap(), &body, low(), &Facts::default()).judging()
}

fn judged<'a>(endpoint: &str, chunks: impl Iterator<Item = &'a [u8]>, room: usize) -> (Vec<u8>, Ending) {
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let (judging, dialect) = (judging(endpoint, room), dialect_named(endpoint).unwrap());
    let mut judge = ReplyPipeline::new(judging, dialect, Form::Streamed, limits, Options::default());
    let mut out = Vec::new();
    for chunk in chunks {
        judge.push(Bytes::copy_from_slice(chunk), NOW_MS, &mut out);
        judge.let_refusal_stand(NOW_MS, &mut out);
    }
    let ending = judge.finish(NOW_MS, &mut out);
    (out.concat(), ending)
}

#[test]
fn every_chunking_of_a_recorded_stream_gives_the_client_the_same() {
    let mut edited = BTreeMap::new();
    for recording in streams() {
        let endpoint = recording.endpoint;
        let crlf = with_crlf(&recording.bytes);
        for (bytes, room) in [(&recording.bytes, 0), (&recording.bytes, 1), (&crlf, 0), (&crlf, 1)] {
            let whole = judged(endpoint, std::iter::once(bytes.as_slice()), room);
            *edited.entry(endpoint).or_insert(0) += usize::from(whole.0 != *bytes);
            for size in [1, 7, 64] {
                let cut = judged(endpoint, bytes.chunks(size), room);
                assert_eq!(lossy(&cut.0), lossy(&whole.0), "{} by {size}, room for {room}", recording.name);
                assert_eq!(cut.1, whole.1, "{} by {size}, room for {room}", recording.name);
            }
        }
    }
    assert!(
        edited["chat_completions"] > 20 && edited["messages"] > 8,
        "so many streams were edited: {edited:?}"
    );
}

/// The same stream with the line ends that some providers write.
fn with_crlf(stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() * 2);
    for (at, byte) in stream.iter().enumerate() {
        if *byte == b'\n' && (at == 0 || stream[at - 1] != b'\r') {
            out.push(b'\r');
        }
        out.push(*byte);
    }
    out
}

proptest! {
    #![proptest_config(crate::laws::with_cases(60))]

    #[test]
    fn random_chunkings_of_a_recorded_stream_give_the_client_the_same(
        at in any::<prop::sample::Index>(),
        crlf in any::<bool>(),
        cuts in prop::collection::vec(1..600_usize, 1..8),
        room in 0..5_usize,
    ) {
        let mut streams = streams();
        streams.retain(|stream| stream.bytes.len() < 12_000);
        let Stream { endpoint, bytes, .. } = streams.swap_remove(at.index(streams.len()));
        let bytes = if crlf { with_crlf(&bytes) } else { bytes };
        let whole = judged(endpoint, std::iter::once(bytes.as_slice()), room);
        prop_assert_eq!(judged(endpoint, pieces(&bytes, &cuts), room), whole);
    }
}

/// `bytes` cut into pieces of these sizes, over and over.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut sizes = sizes.iter().cycle();
    std::iter::from_fn(move || {
        let (piece, rest) = bytes.split_at((*sizes.next()?).min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
