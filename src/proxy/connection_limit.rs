//! The limit on client connections: a semaphore with one permit for each. A client beyond the limit is not accepted yet
//! and waits in the kernel's queue, where waiting costs this process nothing. Logs one warning when it is reached;
//! accepts nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The default limit: 10,000 idle streams are an aim, and some clients more.
const MOST_CONNECTIONS: usize = 16_384;

/// A limit on open connections. Clones share it.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    free: Arc<Semaphore>,
    most: usize,
    /// Permits of connections; one more may be reserved for the next.
    in_use: Arc<AtomicUsize>,
    /// The warning was logged.
    warned: Arc<AtomicBool>,
}

/// A permit reserved for the next connection.
#[derive(Debug)]
pub(super) struct ReservedPermit {
    permit: OwnedSemaphorePermit,
    in_use: Arc<AtomicUsize>,
}

/// The permit of a connection, until the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPermit {
    _shared: Arc<InUse>,
}

#[derive(Debug)]
struct InUse {
    /// Given back when dropped.
    _permit: OwnedSemaphorePermit,
    in_use: Arc<AtomicUsize>,
}

impl ConnectionLimit {
    /// A limit of `most` connections, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, in_use: Arc::default(), warned: Arc::default() }
    }

    /// Another limit of as many connections.
    pub fn separate(&self) -> Self {
        Self::new(self.most)
    }

    /// How many connections there are.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// A permit, after a wait if need be; never `None` while the limit exists.
    pub(super) async fn acquire(&self) -> Option<ReservedPermit> {
        if let Some(permit) = self.try_acquire() {
            return Some(permit);
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(limit = self.most, "limits.connections is reached; further clients must wait");
        }
        let permit = self.free.clone().acquire_owned().await.ok()?;
        Some(ReservedPermit { permit, in_use: self.in_use.clone() })
    }

    /// A permit, where one is free.
    pub(super) fn try_acquire(&self) -> Option<ReservedPermit> {
        let permit = self.free.clone().try_acquire_owned().ok()?;
        // Warned again only after half of them were free: at the limit, every connection would log a warning.
        if self.in_use() < self.most / 2 {
            self.warned.store(false, Ordering::Relaxed);
        }
        Some(ReservedPermit { permit, in_use: self.in_use.clone() })
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(MOST_CONNECTIONS)
    }
}

impl ReservedPermit {
    /// Turns the reservation into a connection's permit.
    pub(super) fn into_use(self) -> ConnectionPermit {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit { _shared: Arc::new(InUse { _permit: self.permit, in_use: self.in_use }) }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn a_place_is_free_again_when_its_last_clone_is_dropped() {
        let limit = ConnectionLimit::new(2);
        let (first, second) = (limit.acquire().await.unwrap().into_use(), limit.acquire().await.unwrap());
        assert_eq!(limit.in_use(), 1, "one is only kept free");
        let clone = first.clone();
        drop(first);
        assert!(limit.acquire().now_or_never().is_none() && limit.try_acquire().is_none());
        drop(clone);
        assert!(limit.acquire().now_or_never().is_some());
        drop(second);
        assert_eq!(limit.in_use(), 0);
    }
}
