//! Pieces of a chunk, joined again where they stood beside each other. Copies nothing.

use bytes::Bytes;

/// Joins pieces that stand next to each other in `chunk`, so that what nobody touched goes out as it came.
pub(super) fn rejoined(chunk: &Bytes, pieces: Vec<Bytes>) -> Vec<Bytes> {
    if pieces.len() == 1 {
        return pieces;
    }
    let start = chunk.as_ptr() as usize;
    let place = |piece: &Bytes| {
        (piece.as_ptr() as usize).checked_sub(start).filter(|at| at + piece.len() <= chunk.len())
    };
    let mut joined: Vec<Bytes> = Vec::with_capacity(1);
    let mut open: Option<std::ops::Range<usize>> = None;
    for piece in pieces {
        match (place(&piece), &mut open) {
            (Some(at), Some(run)) if run.end == at => run.end += piece.len(),
            (Some(at), _) => {
                joined.extend(open.take().map(|run| chunk.slice(run)));
                open = Some(at..at + piece.len());
            }
            (None, _) => {
                joined.extend(open.take().map(|run| chunk.slice(run)));
                joined.push(piece);
            }
        }
    }
    joined.extend(open.map(|run| chunk.slice(run)));
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_chunk_are_joined_without_a_copy_and_others_keep_their_place() {
        let chunk = Bytes::from_static(b"one two three");
        let pieces = vec![chunk.slice(..4), chunk.slice(4..8), Bytes::from_static(b"!"), chunk.slice(8..)];
        let joined = rejoined(&chunk, pieces);
        assert_eq!(joined, ["one two ", "!", "three"]);
        assert_eq!(joined[0].as_ptr(), chunk.as_ptr());
        assert_eq!(rejoined(&chunk, vec![chunk.slice(4..), chunk.slice(..4)]), ["two three", "one "]);
    }
}
