//! Reservations, as plain data: a limit over several conversations counts a call before it is handed out, so that however
//! many requests run at once, at whichever replica, no more calls are handed out than it allows. Counts nothing itself.

use crate::account::Scope;
use crate::identity::Hash;
use crate::uses::Use;

/// A call that a limit is to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// By a quota of the caller.
    Quota {
        /// The index of the quota among those that the policies count.
        quota: usize,
        /// How many calls the caller has within the quota's window.
        most: usize,
        /// See [`use_key`](crate::uses::use_key).
        call: Hash,
        /// See [`request_key`](crate::uses::request_key).
        request: Hash,
        /// The use of an earlier try of the request, which hands out the call once more without counting it again.
        again: Option<Use>,
    },
    /// By none, if an earlier try of the request was handed out the call, and that counts.
    Again {
        /// See [`request_key`](crate::uses::request_key).
        request: Hash,
        /// The use of the earlier try, which hands out the call once more.
        again: Use,
    },
    /// By the budget of the caller's day, or of a named conversation.
    Budget {
        scope: Scope,
        /// How many calls it allows, extensions included.
        most: u64,
    },
}

/// What became of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationResult {
    /// The call counts from now on.
    Granted {
        /// The shared state store did not answer: the call counts in this process alone.
        alone: bool,
    },
    /// No call is left.
    UsedUp {
        /// How many calls count.
        used: u64,
        /// When those of a quota were handed out, in ms since the epoch, oldest first.
        times: Vec<u64>,
    },
}
