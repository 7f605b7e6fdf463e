//! Adjacent pieces of a chunk joined again, without copying.

use bytes::Bytes;
use std::ops::Range;

/// Gives `pieces` out and joins those that are adjacent in `chunk`, so that unchanged bytes go out as they came.
pub(super) fn rejoined(chunk: &Bytes, pieces: &mut Vec<Bytes>, mut give: impl FnMut(Bytes)) {
    if pieces.len() == 1 {
        return pieces.pop().into_iter().for_each(give);
    }
    let start = chunk.as_ptr() as usize;
    let place = |piece: &Bytes| {
        (piece.as_ptr() as usize).checked_sub(start).filter(|at| at + piece.len() <= chunk.len())
    };
    let mut open: Option<Range<usize>> = None;
    for piece in pieces.drain(..) {
        match (place(&piece), &mut open) {
            (Some(at), Some(run)) if run.end == at => run.end += piece.len(),
            (Some(at), _) => {
                open.take().map(|run| chunk.slice(run)).into_iter().for_each(&mut give);
                open = Some(at..at + piece.len());
            }
            (None, _) => {
                open.take().map(|run| chunk.slice(run)).into_iter().for_each(&mut give);
                give(piece);
            }
        }
    }
    open.map(|run| chunk.slice(run)).into_iter().for_each(give);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_chunk_are_joined_without_a_copy_and_others_keep_their_place() {
        let chunk = Bytes::from_static(b"one two three");
        let pieces = vec![chunk.slice(..4), chunk.slice(4..8), Bytes::from_static(b"!"), chunk.slice(8..)];
        let joined = |mut pieces: Vec<Bytes>| {
            let mut out = Vec::new();
            rejoined(&chunk, &mut pieces, |piece| out.push(piece));
            assert!(pieces.is_empty());
            out
        };
        let whole = joined(pieces);
        assert_eq!(whole, ["one two ", "!", "three"]);
        assert_eq!(whole[0].as_ptr(), chunk.as_ptr());
        assert_eq!(joined(vec![chunk.slice(4..), chunk.slice(..4)]), ["two three", "one "]);
        assert_eq!(joined(vec![chunk.slice(4..)]), ["two three"]);
        assert_eq!(joined(vec![]), [""; 0]);
    }
}
