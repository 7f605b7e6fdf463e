//! Target: bytes as server-sent events. Any chunking gives the same events, no byte is lost, and an event's parts join
//! to the event.

use crate::world::{choices, lossy};
use bytes::Bytes;
use wire::sse::{Piece, Splitter, data_lines, parse_fields, write_event};

pub fn run(input: &[u8]) -> bool {
    let (bound, input) = choices(input);
    let (step, stream) = choices(input);
    let bound = if bound < 128 { 1 << 20 } else { usize::from(bound) - 100 };
    let whole = split(stream, stream.len().max(1), bound);
    let parts = split(stream, usize::from(step).max(1), bound);
    assert_eq!(joined(&whole), stream, "bytes lost");
    assert_eq!(joined(&parts), stream, "bytes lost");
    if bound == 1 << 20 {
        // Where line ends are mixed, the LF after a CR that came alone may be in either event.
        assert_eq!(said(&whole), said(&parts), "{}", lossy(stream));
    }
    for event in
        whole.iter().filter_map(|piece| if let Piece::Event(event) = piece { Some(event) } else { None })
    {
        let fields = parse_fields(event);
        if let Some(place) = fields.place {
            assert_eq!(place.of(event), fields.data.as_ref());
        }
        let lines = data_lines(event);
        assert!(lines.is_empty() || lines.concat() == event.as_ref(), "parts of {}", lossy(event));
        if !fields.data.contains(&b'\n') && !fields.data.contains(&b'\r') && fields.place.is_some() {
            let again = write_event(&fields.data);
            assert_eq!(parse_fields(&again).data, fields.data);
        }
    }
    true
}

/// The contents of the events, without empty ones.
fn said(pieces: &[Piece]) -> Vec<(Option<Vec<u8>>, Vec<u8>)> {
    let events =
        pieces.iter().filter_map(|piece| if let Piece::Event(event) = piece { Some(event) } else { None });
    let fields = events.map(|event| {
        let fields = parse_fields(event);
        (fields.name.map(<[u8]>::to_vec), fields.data.to_vec())
    });
    fields.filter(|(name, data)| name.is_some() || !data.is_empty()).collect()
}

fn split(stream: &[u8], step: usize, bound: usize) -> Vec<Piece> {
    let mut splitter = Splitter::new(bound);
    let mut pieces = Vec::new();
    for chunk in stream.chunks(step) {
        splitter.push(Bytes::copy_from_slice(chunk), |piece| pieces.push(piece));
    }
    pieces.extend(splitter.finish());
    pieces
}

fn joined(pieces: &[Piece]) -> Vec<u8> {
    let bytes = pieces.iter().flat_map(|piece| match piece {
        Piece::Event(bytes) | Piece::Oversized(bytes) => bytes.iter().copied(),
    });
    bytes.collect()
}
