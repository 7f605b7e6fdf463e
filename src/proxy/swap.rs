//! One value that many read and that is replaced whole: who has taken it goes on with what he took. Holds it; who
//! replaces it, and when, is its owner's affair.

use std::sync::{Arc, PoisonError, RwLock};

/// See the file's head. A std lock: held for a copy of the pointer, never across an await.
#[derive(Debug)]
pub struct Swap<T>(RwLock<Arc<T>>);

impl<T> Swap<T> {
    /// The first value.
    pub fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// The value as it is now.
    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value for all who take it from now on.
    pub fn put(&self, value: T) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, Arc::new(value));
        drop(place);
        // Not while others wait: with it may end whole pools of connections.
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_took_a_value_keeps_it_and_the_next_gets_the_new_one() {
        let swap = Swap::new(1);
        let taken = swap.now();
        swap.put(2);
        assert_eq!((*taken, *swap.now()), (1, 2));
    }
}
