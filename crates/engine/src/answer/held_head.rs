//! The head of a stream that waits for its first event, so that an error in it can still get a status of its own. Nothing
//! is lost: what came before the event goes out with the head.

use bytes::Bytes;

/// Most bytes that wait with the head: comments, and events that say nothing yet.
const MOST_BYTES: usize = 64 * 1024;

/// See the file's head.
#[derive(Default)]
pub(super) struct HeldHead {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl HeldHead {
    /// Adds what goes out with the head; false if it must not wait any longer.
    pub(super) fn add(&mut self, pieces: impl IntoIterator<Item = Bytes>) -> bool {
        for piece in pieces {
            self.bytes += piece.len();
            self.pieces.push(piece);
        }
        self.bytes <= MOST_BYTES
    }

    /// What goes out with the head.
    pub(super) fn into_pieces(self) -> Vec<Bytes> {
        self.pieces
    }
}
