//! The newest request body of each of the newest conversations: a cache bounded in bytes, from which the oldest body
//! falls out first. Does not interpret them.

use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// See the module's documentation.
pub(super) struct Bodies {
    most_bytes: usize,
    bytes: usize,
    next: u64,
    newest: HashMap<Arc<str>, (u64, Bytes)>,
    /// The same in the order in which they came.
    order: BTreeMap<u64, Arc<str>>,
}

impl Bodies {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { most_bytes, bytes: 0, next: 0, newest: HashMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn bound(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
        self.shrink();
    }

    pub(super) fn keep(&mut self, conversation: &str, body: &Bytes) {
        self.remove(conversation);
        if body.is_empty() || body.len() > self.most_bytes {
            return;
        }
        let id: Arc<str> = conversation.into();
        self.order.insert(self.next, Arc::clone(&id));
        // Copied: a slice would keep the whole buffer that it was read into.
        self.newest.insert(id, (self.next, Bytes::copy_from_slice(body)));
        self.next += 1;
        self.bytes += body.len();
        self.shrink();
    }

    pub(super) fn of(&self, conversation: &str) -> Option<Bytes> {
        self.newest.get(conversation).map(|(_, body)| body.clone())
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
        if let Some((nth, body)) = self.newest.remove(conversation) {
            self.order.remove(&nth);
            self.bytes -= body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bodies_are_kept_within_the_bound() {
        let mut bodies = Bodies::new(10);
        for (id, length) in [("a", 4), ("b", 4), ("a", 5), ("c", 4), ("d", 11)] {
            bodies.keep(id, &Bytes::from(vec![b'x'; length]));
        }
        let lengths = ["a", "b", "c", "d"].map(|id| bodies.of(id).map(|body| body.len()));
        assert_eq!((lengths, bodies.bytes), ([Some(5), None, Some(4), None], 9));
        bodies.bound(0);
        assert_eq!((bodies.bytes, bodies.newest.len(), bodies.order.len()), (0, 0, 0));
    }
}
