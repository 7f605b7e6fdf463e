//! Chunking: what the client gets of a stream does not depend on how the network cut it, also where calls are
//! blocked.

use super::recordings::{Kind, own_of};
use super::world::{Facts, NOW_MS, lossy, low, read};
use bytes::Bytes;
use dialects::CHAT;
use dialects::reply::{Ending, Form, Limits, Options};
use engine::judging::Judging;
use engine::pipeline::ReplyPipeline;
use proptest::prelude::*;
use serde_json::json;

/// A judge whose budget has room for so many calls.
fn judging(room: usize) -> Judging {
    let calls: Vec<_> = (0..4 - room)
        .map(|at| json!({"id": format!("c{at}"), "type": "function", "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    if !calls.is_empty() {
        messages.push(json!({"role": "assistant", "tool_calls": calls}));
    }
    let body = Bytes::from(json!({"model": "m", "messages": messages}).to_string());
    read(&body, low(), &Facts::default()).judging()
}

fn judged<'a>(chunks: impl Iterator<Item = &'a [u8]>, room: usize) -> (Vec<u8>, Ending) {
    let limits = Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 };
    let mut judge = ReplyPipeline::new(judging(room), CHAT, Form::Streamed, limits, Options::default());
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
    let mut edited = 0;
    for recording in own_of(Kind::Stream) {
        let crlf = with_crlf(&recording.bytes);
        for (bytes, room) in [(&recording.bytes, 0), (&recording.bytes, 1), (&crlf, 0), (&crlf, 1)] {
            let whole = judged(std::iter::once(bytes.as_slice()), room);
            edited += usize::from(whole.0 != *bytes);
            for size in [1, 7, 64] {
                let cut = judged(bytes.chunks(size), room);
                assert_eq!(lossy(&cut.0), lossy(&whole.0), "{} by {size}, room for {room}", recording.name);
                assert_eq!(cut.1, whole.1, "{} by {size}, room for {room}", recording.name);
            }
        }
    }
    assert!(edited > 20, "only {edited} streams were edited");
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
        let mut streams = own_of(Kind::Stream);
        streams.retain(|stream| stream.bytes.len() < 12_000);
        let bytes = streams.swap_remove(at.index(streams.len())).bytes;
        let bytes = if crlf { with_crlf(&bytes) } else { bytes };
        prop_assert_eq!(judged(pieces(&bytes, &cuts), room), judged(std::iter::once(bytes.as_slice()), room));
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
