//! The conversation lock: one request at a time for each conversation that has an id, where that is configured. Other
//! requests wait in order of arrival or are refused; the handler answers them.

use model::identity::Hash;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The most conversations with requests in flight that are tracked; beyond it, requests pass without a lock. Far more
/// than the connections that one process serves.
const MOST_CONVERSATIONS: usize = 100_000;
/// The most requests of one conversation, the running one included; further ones do not wait. A client that sends so
/// many is broken.
const MOST_PRESENT: usize = 64;

/// See the module's documentation.
#[derive(Default)]
pub struct ConversationLock {
    /// Only conversations with requests in flight. A std mutex: held for look-ups alone.
    queues: Mutex<HashMap<Hash, Queue>>,
}

struct Queue {
    /// One permit: for the request that holds the lock.
    semaphore: Arc<Semaphore>,
    /// How many hold the lock or wait.
    present: usize,
}

/// The result of entering.
pub(crate) enum Entry {
    /// The lock was free; other requests wait until this is dropped.
    Free(ConversationGuard),
    /// The lock was taken after a wait.
    Waited(ConversationGuard),
    /// Another request still holds the lock.
    Busy,
}

/// The lock, held until this is dropped.
pub(crate) struct ConversationGuard {
    // Dropped first, so that a request that waits finds the queue.
    _permit: OwnedSemaphorePermit,
    _presence: Option<Presence>,
}

/// A request that holds the lock or waits for it.
struct Presence {
    lock: Arc<ConversationLock>,
    conversation: Hash,
}

impl ConversationLock {
    /// Locks `conversation`, if need be after a wait of at most `patience`, in order of arrival.
    pub(crate) async fn enter(self: &Arc<Self>, conversation: Hash, patience: Duration) -> Entry {
        let Some((semaphore, presence)) = self.come(conversation) else { return Entry::Busy };
        let guard = |permit| ConversationGuard { _permit: permit, _presence: presence };
        if let Ok(permit) = Arc::clone(&semaphore).try_acquire_owned() {
            return Entry::Free(guard(permit));
        }
        if patience.is_zero() {
            return Entry::Busy;
        }
        match timeout(patience, semaphore.acquire_owned()).await {
            Ok(Ok(permit)) => Entry::Waited(guard(permit)),
            // The semaphore is never closed; if it were, nobody could lock.
            Ok(Err(_)) | Err(_) => Entry::Busy,
        }
    }

    /// The queue of `conversation`; `None` if too many requests are in it.
    fn come(self: &Arc<Self>, conversation: Hash) -> Option<(Arc<Semaphore>, Option<Presence>)> {
        let mut queues = self.queues();
        if queues.len() >= MOST_CONVERSATIONS && !queues.contains_key(&conversation) {
            return Some((Arc::new(Semaphore::new(1)), None));
        }
        let queue = queues
            .entry(conversation)
            .or_insert_with(|| Queue { semaphore: Arc::new(Semaphore::new(1)), present: 0 });
        if queue.present >= MOST_PRESENT {
            return None;
        }
        queue.present += 1;
        let presence = Presence { lock: Arc::clone(self), conversation };
        Some((Arc::clone(&queue.semaphore), Some(presence)))
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Hash, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut queues = self.lock.queues();
        if let Some(queue) = queues.get_mut(&self.conversation) {
            queue.present -= 1;
            if queue.present == 0 {
                queues.remove(&self.conversation);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::yield_now;

    const ONE: Hash = Hash(1);
    const LONG: Duration = Duration::from_secs(30);

    fn inside(entry: Entry) -> ConversationGuard {
        match entry {
            Entry::Free(guard) | Entry::Waited(guard) => guard,
            Entry::Busy => panic!("it is busy"),
        }
    }

    async fn present(lock: &Arc<ConversationLock>, expected: usize) {
        while lock.queues().get(&ONE).map_or(0, |queue| queue.present) != expected {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_lock_admits_one_request_per_conversation() {
        let lock = Arc::<ConversationLock>::default();
        let first = lock.enter(ONE, Duration::ZERO).await;
        assert!(matches!(lock.enter(ONE, Duration::ZERO).await, Entry::Busy));
        assert!(matches!(lock.enter(Hash(2), Duration::ZERO).await, Entry::Free(_)));
        drop(first);
        assert!(matches!(lock.enter(ONE, Duration::ZERO).await, Entry::Free(_)));
        assert!(lock.queues().is_empty(), "nothing is kept of those who left");
    }

    #[tokio::test]
    async fn waiting_requests_enter_in_order_of_arrival() {
        let lock = Arc::<ConversationLock>::default();
        let first = inside(lock.enter(ONE, LONG).await);
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for nth in 0..3 {
            let (lock, sender) = (Arc::clone(&lock), sender.clone());
            let waiting = Arc::clone(&lock);
            tokio::spawn(async move {
                let entry = lock.enter(ONE, LONG).await;
                sender.send((nth, matches!(entry, Entry::Waited(_)))).unwrap();
            });
            present(&waiting, nth + 2).await;
        }
        drop(first);
        for nth in 0..3 {
            assert_eq!(order.recv().await, Some((nth, true)));
        }
        present(&lock, 0).await;
    }

    #[tokio::test]
    async fn a_request_that_times_out_or_leaves_the_queue_leaves_no_state() {
        let lock = Arc::<ConversationLock>::default();
        let first = inside(lock.enter(ONE, LONG).await);
        assert!(matches!(lock.enter(ONE, Duration::from_millis(5)).await, Entry::Busy));
        let left = tokio::spawn({
            let lock = Arc::clone(&lock);
            async move { drop(lock.enter(ONE, LONG).await) }
        });
        present(&lock, 2).await;
        left.abort();
        present(&lock, 1).await;
        drop(first);
        assert!(lock.queues().is_empty());
    }

    #[tokio::test]
    async fn too_many_of_one_conversation_do_not_wait() {
        let lock = Arc::<ConversationLock>::default();
        let _inside = inside(lock.enter(ONE, LONG).await);
        lock.queues().get_mut(&ONE).unwrap().present = MOST_PRESENT;
        assert!(matches!(lock.enter(ONE, LONG).await, Entry::Busy));
        lock.queues().get_mut(&ONE).unwrap().present = 1;
    }

    #[tokio::test]
    async fn conversations_beyond_the_tracked_number_are_not_locked() {
        let lock = Arc::<ConversationLock>::default();
        let full = (0..MOST_CONVERSATIONS as u128)
            .map(|nth| (Hash(nth), Queue { semaphore: Arc::new(Semaphore::new(1)), present: 1 }));
        lock.queues().extend(full);
        let another = Hash(u128::MAX);
        let _inside = inside(lock.enter(another, Duration::ZERO).await);
        assert!(matches!(lock.enter(another, Duration::ZERO).await, Entry::Free(_)));
    }
}
