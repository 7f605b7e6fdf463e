//! Bytes in a content coding, or in two: whatever they are, each step of the decoder gives out little, any chunking gives the
//! same bytes, and a whole body is bounded by its limit.

use crate::world::choices;
use bytes::Bytes;
use toolrein::wire::coding::Decoder;

/// What `content-encoding` says.
const CODINGS: [&str; 6] = ["gzip", "deflate", "deflate", "br", "zstd", "gzip, br"];
/// Most that comes out of a step.
const PIECE_BYTES: usize = 8 * 1024;
/// How far a bomb is followed.
const LIMIT: usize = 1 << 20;

pub fn run(input: &[u8]) -> bool {
    let (coding, input) = choices(input);
    let (size, coded) = choices(input);
    let coding = CODINGS[usize::from(coding) % CODINGS.len()];
    let whole = decoder(coding).decode(Bytes::copy_from_slice(coded), LIMIT).ok();
    assert!(whole.as_ref().is_none_or(|whole| whole.len() <= LIMIT));
    let mut decoder = decoder(coding);
    let mut parts = Vec::new();
    for part in coded.chunks(usize::from(size).max(1)) {
        decoder.push(Bytes::copy_from_slice(part));
        while let Some(step) = decoder.step() {
            let Ok(piece) = step else {
                assert!(decoder.step().is_none() && decoder.finish().is_err() && whole.is_none());
                return false;
            };
            assert!(piece.len() <= PIECE_BYTES);
            parts.extend_from_slice(&piece);
            if parts.len() > LIMIT {
                assert!(whole.is_none());
                return true;
            }
        }
    }
    match whole {
        Some(whole) => assert!(parts == whole && decoder.finish().is_ok()),
        // Between two codings there may be more than comes out.
        None => assert!(decoder.finish().is_err() || coding.contains(',')),
    }
    true
}

fn decoder(coding: &str) -> Decoder {
    Decoder::new([coding.as_bytes()]).unwrap().unwrap()
}
