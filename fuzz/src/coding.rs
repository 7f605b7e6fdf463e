//! Target: bytes in one or two content codings. Each step of the decoder produces a bounded amount, any chunking gives
//! the same bytes, and a whole body is bounded by its limit.

use crate::world::choices;
use bytes::Bytes;
use toolrein::proxy::decoder::{CodingError, Decoder};

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
    let (whole, whole_end) = decoded(coding, coded, coded.len());
    let (parts, parts_end) = decoded(coding, coded, usize::from(size));
    if whole.len() > LIMIT || parts.len() > LIMIT {
        assert!(whole.len() > LIMIT && parts.len() > LIMIT);
        return true;
    }
    assert_eq!(whole_end.is_ok(), parts_end.is_ok());
    assert!(whole == parts || whole_end.is_err());
    whole_end.is_ok()
}

/// What comes out of a body in pieces of `size`, as far as a bomb is followed, and how it ends.
fn decoded(coding: &str, coded: &[u8], size: usize) -> (Vec<u8>, Result<(), CodingError>) {
    let mut decoder = Decoder::new([coding.as_bytes()], LIMIT).unwrap().unwrap();
    let mut all = Vec::new();
    let parts = coded.chunks(size.max(1)).map(Some).chain([None]);
    for part in parts {
        match part {
            Some(part) => decoder.push(Bytes::copy_from_slice(part)),
            None => decoder.end(),
        }
        while let Some(piece) = decoder.decode() {
            match piece {
                Ok(piece) => {
                    assert!((1..=PIECE_BYTES).contains(&piece.len()));
                    all.extend_from_slice(&piece);
                }
                Err(error) => {
                    assert!(decoder.decode().is_none());
                    return (all, Err(error));
                }
            }
            if all.len() > LIMIT {
                return (all, Ok(()));
            }
        }
    }
    (all, Ok(()))
}
