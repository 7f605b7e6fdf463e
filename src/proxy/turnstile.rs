//! One request at a time for each conversation that has a name, where the operator asks for it. Counts who is inside
//! and lets the others wait or go; what becomes of those is the handler's.

use crate::transcript::identity::Hash;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Conversations with requests in flight that are told apart; beyond, requests pass. Far more than the connections
/// that one process serves.
const MOST_CONVERSATIONS: usize = 100_000;
/// Requests of one conversation, the one inside included; more do not wait. A client that sends so many is broken.
const MOST_PRESENT: usize = 64;

/// See the file's head.
#[derive(Default)]
pub struct Turnstile {
    /// Only of conversations with requests here. A std mutex: held for look-ups alone.
    gates: Mutex<HashMap<Hash, Gate>>,
}

struct Gate {
    /// One permit: for the request inside.
    seat: Arc<Semaphore>,
    /// How many are inside or waiting.
    present: usize,
}

/// What a request finds.
pub(crate) enum Entry {
    /// It may go on; others wait until this is dropped.
    Free(Passage),
    /// The same, after a wait.
    Waited(Passage),
    /// Another request is still inside.
    Busy,
}

/// A request's stay inside, to the moment it is dropped.
pub(crate) struct Passage {
    // Dropped first, so that whoever waits finds the gate where it was.
    _permit: OwnedSemaphorePermit,
    _presence: Option<Presence>,
}

/// One that is inside or waits.
struct Presence {
    turnstile: Arc<Turnstile>,
    conversation: Hash,
}

impl Turnstile {
    /// Goes in, if need be after a wait of at most `patience`. Those who wait go in as they came.
    pub(crate) async fn enter(self: &Arc<Self>, conversation: Hash, patience: Duration) -> Entry {
        let Some((seat, presence)) = self.come(conversation) else { return Entry::Busy };
        let passage = |permit| Passage { _permit: permit, _presence: presence };
        if let Ok(permit) = Arc::clone(&seat).try_acquire_owned() {
            return Entry::Free(passage(permit));
        }
        if patience.is_zero() {
            return Entry::Busy;
        }
        match timeout(patience, seat.acquire_owned()).await {
            Ok(Ok(permit)) => Entry::Waited(passage(permit)),
            // The seat is never closed; were it, nobody could go in.
            Ok(Err(_)) | Err(_) => Entry::Busy,
        }
    }

    /// The seat of `conversation`; `None` if too many are there.
    fn come(self: &Arc<Self>, conversation: Hash) -> Option<(Arc<Semaphore>, Option<Presence>)> {
        let mut gates = self.gates();
        if gates.len() >= MOST_CONVERSATIONS && !gates.contains_key(&conversation) {
            return Some((Arc::new(Semaphore::new(1)), None));
        }
        let gate = gates
            .entry(conversation)
            .or_insert_with(|| Gate { seat: Arc::new(Semaphore::new(1)), present: 0 });
        if gate.present >= MOST_PRESENT {
            return None;
        }
        gate.present += 1;
        let presence = Presence { turnstile: Arc::clone(self), conversation };
        Some((Arc::clone(&gate.seat), Some(presence)))
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<Hash, Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut gates = self.turnstile.gates();
        if let Some(gate) = gates.get_mut(&self.conversation) {
            gate.present -= 1;
            if gate.present == 0 {
                gates.remove(&self.conversation);
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

    fn inside(entry: Entry) -> Passage {
        match entry {
            Entry::Free(passage) | Entry::Waited(passage) => passage,
            Entry::Busy => panic!("it is busy"),
        }
    }

    async fn present(turnstile: &Arc<Turnstile>, expected: usize) {
        while turnstile.gates().get(&ONE).map_or(0, |gate| gate.present) != expected {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_is_inside_and_others_are_refused_or_of_other_conversations() {
        let turnstile = Arc::<Turnstile>::default();
        let first = turnstile.enter(ONE, Duration::ZERO).await;
        assert!(matches!(turnstile.enter(ONE, Duration::ZERO).await, Entry::Busy));
        assert!(matches!(turnstile.enter(Hash(2), Duration::ZERO).await, Entry::Free(_)));
        drop(first);
        assert!(matches!(turnstile.enter(ONE, Duration::ZERO).await, Entry::Free(_)));
        assert!(turnstile.gates().is_empty(), "nothing is kept of those who left");
    }

    #[tokio::test]
    async fn those_who_wait_go_in_as_they_came() {
        let turnstile = Arc::<Turnstile>::default();
        let first = inside(turnstile.enter(ONE, LONG).await);
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for nth in 0..3 {
            let (turnstile, told) = (Arc::clone(&turnstile), told.clone());
            let waiting = Arc::clone(&turnstile);
            tokio::spawn(async move {
                let entry = turnstile.enter(ONE, LONG).await;
                told.send((nth, matches!(entry, Entry::Waited(_)))).unwrap();
            });
            present(&waiting, nth + 2).await;
        }
        drop(first);
        for nth in 0..3 {
            assert_eq!(order.recv().await, Some((nth, true)));
        }
        present(&turnstile, 0).await;
    }

    #[tokio::test]
    async fn who_waits_too_long_or_leaves_is_gone_without_a_trace() {
        let turnstile = Arc::<Turnstile>::default();
        let first = inside(turnstile.enter(ONE, LONG).await);
        assert!(matches!(turnstile.enter(ONE, Duration::from_millis(5)).await, Entry::Busy));
        let left = tokio::spawn({
            let turnstile = Arc::clone(&turnstile);
            async move { drop(turnstile.enter(ONE, LONG).await) }
        });
        present(&turnstile, 2).await;
        left.abort();
        present(&turnstile, 1).await;
        drop(first);
        assert!(turnstile.gates().is_empty());
    }

    #[tokio::test]
    async fn too_many_of_one_conversation_do_not_wait() {
        let turnstile = Arc::<Turnstile>::default();
        let _inside = inside(turnstile.enter(ONE, LONG).await);
        turnstile.gates().get_mut(&ONE).unwrap().present = MOST_PRESENT;
        assert!(matches!(turnstile.enter(ONE, LONG).await, Entry::Busy));
        turnstile.gates().get_mut(&ONE).unwrap().present = 1;
    }

    #[tokio::test]
    async fn more_conversations_than_are_told_apart_pass() {
        let turnstile = Arc::<Turnstile>::default();
        let full = (0..MOST_CONVERSATIONS as u128)
            .map(|nth| (Hash(nth), Gate { seat: Arc::new(Semaphore::new(1)), present: 1 }));
        turnstile.gates().extend(full);
        let another = Hash(u128::MAX);
        let _inside = inside(turnstile.enter(another, Duration::ZERO).await);
        assert!(matches!(turnstile.enter(another, Duration::ZERO).await, Entry::Free(_)));
    }
}
