//! Seats for client connections: at most so many are open at once. Who finds none is not accepted yet and waits in the
//! kernel's queue, where waiting costs this process nothing. Says once when it gets full; accepts nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once where nothing else is said: 10,000 idle streams are an aim, and some clients more.
const MOST_CONNECTIONS: usize = 16_384;

/// A bound on open connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Seats {
    free: Arc<Semaphore>,
    most: usize,
    /// Connections that sit on a seat; one more may be waited for.
    seated: Arc<AtomicUsize>,
    /// It was told that there is none left.
    told: Arc<AtomicBool>,
}

/// One seat, kept free for the next connection.
#[derive(Debug)]
pub(super) struct FreeSeat {
    permit: OwnedSemaphorePermit,
    seated: Arc<AtomicUsize>,
}

/// A seat with a connection on it, until the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    _shared: Arc<Seated>,
}

#[derive(Debug)]
struct Seated {
    /// Given back when dropped.
    _permit: OwnedSemaphorePermit,
    seated: Arc<AtomicUsize>,
}

impl Seats {
    /// Room for `most` connections, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, seated: Arc::default(), told: Arc::default() }
    }

    /// How many connections there are.
    pub fn taken(&self) -> usize {
        self.seated.load(Ordering::Relaxed)
    }

    /// A seat, waited for; `None` never comes while anybody holds the bound.
    pub(super) async fn take(&self) -> Option<FreeSeat> {
        if let Some(seat) = self.take_now() {
            return Some(seat);
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(limit = self.most, "limits.connections is reached; further clients have to wait");
        }
        let permit = self.free.clone().acquire_owned().await.ok()?;
        Some(FreeSeat { permit, seated: self.seated.clone() })
    }

    /// A seat, where one is free.
    pub(super) fn take_now(&self) -> Option<FreeSeat> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        // Told anew only after half of them were free: at the brink it would be told for every connection.
        if self.taken() < self.most / 2 {
            self.told.store(false, Ordering::Relaxed);
        }
        Some(FreeSeat { permit, seated: self.seated.clone() })
    }
}

impl Default for Seats {
    fn default() -> Self {
        Self::new(MOST_CONNECTIONS)
    }
}

impl FreeSeat {
    /// A connection takes it.
    pub(super) fn seat(self) -> Seat {
        self.seated.fetch_add(1, Ordering::Relaxed);
        Seat { _shared: Arc::new(Seated { _permit: self.permit, seated: self.seated }) }
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seated.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn a_place_is_free_again_when_its_last_clone_is_dropped() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take().await.unwrap().seat(), seats.take().await.unwrap());
        assert_eq!(seats.taken(), 1, "one is only kept free");
        let clone = first.clone();
        drop(first);
        assert!(seats.take().now_or_never().is_none() && seats.take_now().is_none());
        drop(clone);
        assert!(seats.take().now_or_never().is_some());
        drop(second);
        assert_eq!(seats.taken(), 0);
    }
}
