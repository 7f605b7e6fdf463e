//! The memory limit for all bodies held at once (`limits.total_bytes`): a counting semaphore in KiB, one half for
//! requests and one for replies. It reads no body; the holders of bytes reserve them here.
//!
//! It cannot deadlock: only a request waits, and only while it has reserved nothing. The holder of a reservation never
//! waits for more; it gets more at once or not at all.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bodies up to this size are not counted: they are as large as the buffer of their connection, and
/// `limits.connections` bounds the number of those.
const FREE_BYTES: usize = 8 * 1024;
/// One permit.
const UNIT_BYTES: usize = 1024;
/// The smallest reservation of a body of unknown length, so that few of its pieces touch the semaphore.
const STEP_UNITS: usize = 64;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct BodyMemory {
    pub(super) requests: Pool,
    pub(super) replies: Pool,
}

/// The bytes that bodies of one direction may take together.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    free: Arc<Semaphore>,
    units: usize,
}

/// A reservation of bytes, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Option<OwnedSemaphorePermit>);

impl BodyMemory {
    /// A limit of `total_bytes`, half of it for requests and half for replies.
    pub fn new(total_bytes: u64) -> Self {
        let half = usize::try_from(total_bytes / 2).unwrap_or(usize::MAX) / UNIT_BYTES;
        let units = half.min(u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        let pool = || Pool { free: Arc::new(Semaphore::new(units)), units };
        Self { requests: pool(), replies: pool() }
    }

    /// Bytes that are reserved now.
    pub fn held(&self) -> u64 {
        let held = |pool: &Pool| (pool.units - pool.free.available_permits().min(pool.units)) * UNIT_BYTES;
        (held(&self.requests) + held(&self.replies)) as u64
    }
}

impl Pool {
    /// Reserves `bytes` for a holder of nothing, in the order of arrival; `None` if there is no room within `patience`.
    pub(super) async fn wait_for(&self, bytes: u64, patience: Duration) -> Option<Reserved> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut reserved = Reserved::default();
        if self.grow(&mut reserved, bytes, 0) {
            return Some(reserved);
        }
        let units =
            u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok().filter(|units| *units as usize <= self.units)?;
        let permit = timeout(patience, Arc::clone(&self.free).acquire_many_owned(units)).await.ok()?.ok()?;
        Some(Reserved(Some(permit)))
    }

    /// Raises the reservation to `bytes` in all, and some more for later pieces; false, at once, if there is no room.
    pub(super) fn reach(&self, reserved: &mut Reserved, bytes: usize) -> bool {
        let held = reserved.units() * UNIT_BYTES;
        bytes <= FREE_BYTES
            || bytes <= held
            || self.grow(reserved, bytes, (bytes / 4 / UNIT_BYTES).max(STEP_UNITS))
            || self.grow(reserved, bytes, 0)
    }

    fn grow(&self, reserved: &mut Reserved, bytes: usize, more: usize) -> bool {
        if bytes <= FREE_BYTES {
            return true;
        }
        let wanted = (bytes.div_ceil(UNIT_BYTES) + more).saturating_sub(reserved.units());
        let Ok(wanted) = u32::try_from(wanted) else { return false };
        match (Arc::clone(&self.free).try_acquire_many_owned(wanted), &mut reserved.0) {
            (Ok(permit), Some(held)) => held.merge(permit),
            (Ok(permit), none) => *none = Some(permit),
            (Err(_), _) => return false,
        }
        true
    }
}

impl Reserved {
    /// Gives back what is reserved beyond `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let units = if bytes <= FREE_BYTES { 0 } else { bytes.div_ceil(UNIT_BYTES) };
        let surplus = self.units().saturating_sub(units);
        if let Some(held) = &mut self.0
            && surplus > 0
        {
            drop(held.split(surplus));
        }
        if units == 0 {
            self.0 = None;
        }
    }

    /// Ties the reservation to `bytes`: it is released when the last slice of them is dropped.
    pub(crate) fn keep(self, bytes: Bytes) -> Bytes {
        match self.0 {
            None => bytes,
            Some(permit) => Bytes::from_owner(Kept { bytes, _permit: permit }),
        }
    }

    /// As [`Self::keep`], for a body in pieces that are released in order: the last piece holds the reservation.
    pub(crate) fn keep_all(self, pieces: &mut [Bytes]) {
        if let Some(last) = pieces.last_mut() {
            *last = self.keep(std::mem::take(last));
        }
    }

    fn units(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

struct Kept {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const KIB: usize = 1024;
    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn small_bodies_are_not_counted_and_large_ones_grow_in_steps() {
        let memory = BodyMemory::new(2 << 20);
        let mut reserved = Reserved::default();
        assert!(memory.replies.reach(&mut reserved, FREE_BYTES));
        assert_eq!(memory.held(), 0);
        let mut steps = 0;
        let mut seen = 0;
        for bytes in (FREE_BYTES..=512 * KIB).step_by(100) {
            assert!(memory.replies.reach(&mut reserved, bytes));
            assert!(memory.held() >= bytes as u64 || bytes <= FREE_BYTES);
            steps += usize::from(memory.held() != seen);
            seen = memory.held();
        }
        assert!(steps < 10, "{steps} of 5,000 pieces touched the semaphore");
        reserved.shrink(300 * KIB);
        assert_eq!(memory.held(), 300 * 1024);
        reserved.shrink(1);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn reservations_never_exceed_the_separate_budgets_of_requests_and_replies() {
        let memory = BodyMemory::new(200 * 1024);
        let [mut one, mut other, mut request] = [(); 3].map(|()| Reserved::default());
        assert!(memory.replies.reach(&mut one, 80 * KIB));
        assert!(!memory.replies.reach(&mut other, 21 * KIB));
        assert!(memory.replies.reach(&mut other, 20 * KIB), "exactly what is left");
        assert!(memory.requests.reach(&mut request, 100 * KIB));
        assert_eq!(memory.held(), 200 * 1024);
        drop((one, other, request));
        assert_eq!(memory.held(), 0);
    }

    #[tokio::test]
    async fn a_request_waits_until_there_is_room_and_no_longer_than_it_may() {
        let memory = BodyMemory::new(200 * 1024);
        let first = memory.requests.wait_for(90 << 10, LONG).await.unwrap();
        let mut second = Box::pin(memory.requests.wait_for(90 << 10, LONG));
        assert!((&mut second).now_or_never().is_none());
        assert!(memory.requests.wait_for(90 << 10, Duration::from_millis(1)).await.is_none(), "in vain");
        drop(first);
        assert!(second.await.is_some());
        assert!(memory.requests.wait_for(101 << 10, LONG).now_or_never().unwrap().is_none(), "never fits");
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn bytes_hold_their_reservation_until_their_last_part_is_let_go_of() {
        let memory = BodyMemory::new(200 * 1024);
        let mut reserved = Reserved::default();
        assert!(memory.requests.grow(&mut reserved, 50 * KIB, 0));
        let bytes = reserved.keep(Bytes::from(vec![7; 50 * KIB]));
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!((memory.held(), &part[..]), (50 * 1024, &[7; 10][..]));
        drop(part);
        assert_eq!(memory.held(), 0);
    }
}
