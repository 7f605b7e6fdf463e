//! The newest request body of each of the newest conversations: a cache bounded in bytes, from which the oldest body
//! falls out first. Does not interpret them.

use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A buffer has room for this part more than the body that it was made for.
const SPARE: usize = 8;

/// See the module's documentation.
pub(super) struct Bodies {
    most_bytes: usize,
    /// The sum of the buffers' capacities.
    bytes: usize,
    next: u64,
    newest: HashMap<Arc<str>, Body>,
    /// The same in the order in which they came.
    order: BTreeMap<u64, Arc<str>>,
}

struct Body {
    nth: u64,
    /// Kept for the conversation's next body, which is mostly a little longer and fits in too.
    buffer: Vec<u8>,
}

impl Bodies {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { most_bytes, bytes: 0, next: 0, newest: HashMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn bound(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
        self.shrink();
    }

    pub(super) fn keeps_any(&self) -> bool {
        self.most_bytes > 0
    }

    pub(super) fn keep(&mut self, conversation: &str, body: &[u8]) {
        if body.is_empty() || body.len() > self.most_bytes {
            self.remove(conversation);
            return;
        }
        let (id, mut buffer) = match self.newest.remove_entry(conversation) {
            Some((id, kept)) => {
                self.order.remove(&kept.nth);
                self.bytes -= kept.buffer.capacity();
                (id, kept.buffer)
            }
            None => (conversation.into(), Vec::new()),
        };
        buffer.clear();
        // A short body does not keep the room of a long one.
        if buffer.capacity() < body.len() || buffer.capacity() / 2 > body.len() {
            let spare = (body.len() / SPARE).min(self.most_bytes - body.len());
            buffer = Vec::with_capacity(body.len() + spare);
        }
        buffer.extend_from_slice(body);
        self.bytes += buffer.capacity();
        self.order.insert(self.next, Arc::clone(&id));
        self.newest.insert(id, Body { nth: self.next, buffer });
        self.next += 1;
        self.shrink();
    }

    pub(super) fn of(&self, conversation: &str) -> Option<Bytes> {
        self.newest.get(conversation).map(|body| Bytes::copy_from_slice(&body.buffer))
    }

    fn shrink(&mut self) {
        while self.bytes > self.most_bytes
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            let oldest = Arc::clone(oldest);
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, conversation: &str) {
        if let Some(body) = self.newest.remove(conversation) {
            self.order.remove(&body.nth);
            self.bytes -= body.buffer.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_body_takes_the_room_of_the_one_before_and_a_much_shorter_one_gives_it_back() {
        let mut bodies = Bodies::new(1_000);
        let mut kept = |length: usize| {
            bodies.keep("a", &vec![b'x'; length]);
            (bodies.of("a").unwrap().len(), bodies.bytes)
        };
        assert_eq!([kept(80), kept(90), kept(91), kept(40)], [(80, 90), (90, 90), (91, 102), (40, 45)]);
        assert_eq!([kept(1_000), kept(990)], [(1_000, 1_000), (990, 1_000)], "no more than all may take");
    }

    #[test]
    fn the_newest_bodies_are_kept_within_the_bound() {
        let mut bodies = Bodies::new(10);
        for (id, length) in [("a", 4), ("b", 4), ("a", 5), ("c", 4), ("d", 11)] {
            bodies.keep(id, &vec![b'x'; length]);
        }
        let lengths = ["a", "b", "c", "d"].map(|id| bodies.of(id).map(|body| body.len()));
        assert_eq!((lengths, bodies.bytes), ([Some(5), None, Some(4), None], 9));
        bodies.bound(0);
        assert_eq!((bodies.bytes, bodies.newest.len(), bodies.order.len()), (0, 0, 0));
    }
}
