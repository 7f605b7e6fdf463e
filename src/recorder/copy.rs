//! A copy of a reply on its way to the client, bounded by itself and together with all others. A reply beyond the bounds
//! goes on to the client and is left out of the recording.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest copy.
const MOST_BYTES: usize = 8 << 20;
/// All copies together.
const MOST_IN_ALL: usize = 64 << 20;

/// See the file's head.
pub struct ReplyCopy {
    bytes: Vec<u8>,
    /// Something is missing.
    is_cut: bool,
    in_all: Arc<AtomicUsize>,
}

impl ReplyCopy {
    pub(super) fn new(in_all: Arc<AtomicUsize>) -> Self {
        Self { bytes: Vec::new(), is_cut: false, in_all }
    }

    /// Adds the next bytes of the reply.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.is_cut {
            return;
        }
        let in_all = self.in_all.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        if in_all > MOST_IN_ALL || self.bytes.len() + bytes.len() > MOST_BYTES {
            self.in_all.fetch_sub(bytes.len(), Ordering::Relaxed);
            return self.leave_out();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Leaves the reply out: not all of it is known.
    pub fn leave_out(&mut self) {
        self.is_cut = true;
        self.in_all.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        self.bytes = Vec::new();
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The reply; `None` where something of it is missing.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        (!self.is_cut).then_some(&self.bytes)
    }
}

impl Drop for ReplyCopy {
    fn drop(&mut self) {
        self.in_all.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_beyond_the_bounds_is_left_out_and_what_it_took_is_free_again() {
        let in_all = Arc::<AtomicUsize>::default();
        let mut copy = ReplyCopy::new(Arc::clone(&in_all));
        copy.add(b"one ");
        copy.add(b"two");
        assert_eq!((copy.whole(), in_all.load(Ordering::Relaxed)), (Some(&b"one two"[..]), 7));
        copy.add(&vec![b'x'; MOST_BYTES]);
        copy.add(b"more");
        assert_eq!((copy.whole(), in_all.load(Ordering::Relaxed)), (None, 0));
        let mut other = ReplyCopy::new(Arc::clone(&in_all));
        other.add(b"kept");
        drop((copy, other));
        assert_eq!(in_all.load(Ordering::Relaxed), 0);
    }
}
