//! The use of quotas by the calls of a request's replies: which calls are counted, by reservations and by reports to the state
//! store. A call that was handed out before, to a client that has sent its request again, counts no more.

use super::Core;
use crate::judging::wrapper::expanded_calls;
use crate::pipeline::ClientChoice;
use model::assembled::Assembled;
use model::calls::canonical_hash;
use model::fact::Writes;
use model::identity::Hash;
use model::plan::ReservationResult;
use model::store::{CallReservation, CallReservationResult, Quota, QuotaCall, return_reservations};
use model::uses::{AGAIN_WITHIN_MS, Use, use_key};

/// The most calls of one request that are known to an equal request. More than any provider's parallel calls.
const MOST_HANDED_OUT: usize = 256;

/// What is used of the quotas that count calls of one request.
pub(super) struct QuotaUses {
    /// The uses of each quota before the request; without those by which calls were handed out again.
    known: Vec<Vec<Use>>,
    /// The key of the request, computed once: a stream of many choices needs it at every finish.
    request: Option<Hash>,
    /// The calls of its replies that are counted.
    counted: Vec<CountedCall>,
}

/// A call that is counted.
#[derive(Clone, Copy)]
struct CountedCall {
    /// The key of its quota.
    quota: Hash,
    /// See [`use_key`].
    call: Hash,
    reservation: Option<QuotaReservation>,
}

/// How a call was counted before it was handed out.
#[derive(Clone, Copy)]
struct QuotaReservation {
    /// The number of the call that waited for it.
    number: u32,
    reservation: CallReservation,
    counted: Use,
}

impl QuotaUses {
    /// Those of a request before which calls were handed out as is `known` of each quota.
    pub(super) fn new(known: Vec<Vec<Use>>) -> Self {
        Self { known, request: None, counted: Vec::new() }
    }

    /// Takes what became of the `reservation` of the waiting call of this number.
    pub(super) fn take_reserved(
        &mut self,
        number: u32,
        reservation: CallReservation,
        reserved: &CallReservationResult,
    ) {
        let CallReservation::Quota { call, .. } = reservation else { return };
        let Some(counted) = reserved.counted else { return };
        call.again.iter().for_each(|again| self.take_again(again));
        let reservation = Some(QuotaReservation { number, reservation, counted });
        self.counted.push(CountedCall { quota: call.quota.name, call: call.call, reservation });
    }

    /// The update where the waiting call of this number is not handed out.
    pub(super) fn give_back(&mut self, number: u32) -> Writes {
        let is_of = |counted: &mut CountedCall| counted.reservation.is_some_and(|it| it.number == number);
        return_counted(self.counted.extract_if(.., is_of))
    }

    /// The update where the client gets no more than these `choices`.
    pub(super) fn close(&mut self, core: &Core, choices: &[ClientChoice<'_>]) -> Writes {
        if self.counted.iter().all(|counted| counted.reservation.is_none()) {
            return Writes::default();
        }
        let released = self.released(core, choices.iter());
        let (_, surplus) = self.compare(&released);
        self.counted.retain(|counted| counted.reservation.is_none());
        return_counted(surplus.into_iter())
    }

    /// The calls that the client was handed and that are not counted yet.
    pub(super) fn news(&mut self, core: &Core, choices: &[ClientChoice<'_>], at_ms: u64) -> Vec<QuotaCall> {
        if core.policies().counted().is_empty() && core.handed_out.is_none() {
            return Vec::new();
        }
        let released = self.released(core, choices.iter().filter(|choice| !choice.is_waiting()));
        let (uncounted, _) = self.compare(&released);
        let mut news = Vec::new();
        for (quota, call) in uncounted {
            let request = self.request_key(core);
            let is_again =
                |known: &&Use| known.call == call && known.request == request && known.is_open(at_ms);
            let again = self.known.iter().flatten().find(is_again).copied();
            again.iter().for_each(|again| self.take_again(again));
            self.counted.push(CountedCall { quota: quota.name, call, reservation: None });
            news.push(QuotaCall { quota, call, request, again, at_ms });
        }
        news
    }

    /// A call is handed out again by this use.
    fn take_again(&mut self, again: &Use) {
        for known in self.known.iter_mut().flatten().filter(|known| *known == again) {
            known.calls = known.calls.saturating_sub(1);
        }
        self.known.iter_mut().for_each(|known| known.retain(|known| known.calls > 0));
    }

    /// Of the calls that were `released`, those that are not counted; and the counted ones that were not released.
    fn compare(&self, released: &[(Quota, Hash)]) -> (Vec<(Quota, Hash)>, Vec<CountedCall>) {
        let mut counted = self.counted.clone();
        let mut uncounted = Vec::new();
        for (quota, call) in released {
            let is_same = |it: &CountedCall| it.quota == quota.name && it.call == *call;
            match counted.iter().position(is_same) {
                Some(position) => drop(counted.swap_remove(position)),
                None => uncounted.push((*quota, *call)),
            }
        }
        // Policies may have changed the arguments of a call, or its name may be another for the same tool.
        uncounted.retain(|(quota, _)| {
            let is_of = |it: &CountedCall| it.quota == quota.name && it.reservation.is_some();
            let position = counted.iter().position(is_of);
            position.map(|position| counted.swap_remove(position)).is_none()
        });
        (uncounted, counted)
    }

    fn request_key(&mut self, core: &Core) -> Hash {
        *self.request.get_or_insert_with(|| core.request_key())
    }

    /// The calls of quotas that the client was handed, each with its key. A wrapper call is the calls within it.
    fn released<'a, 'b: 'a>(
        &mut self,
        core: &Core,
        choices: impl Iterator<Item = &'a ClientChoice<'b>>,
    ) -> Vec<(Quota, Hash)> {
        let request = self.request_key(core);
        let named = |call: &Assembled| match expanded_calls(call) {
            made if made.is_empty() => vec![(call.name(), call.arguments())],
            made => made.into_iter().map(|made| (made.name, made.arguments)).collect(),
        };
        let mut released = Vec::new();
        for (name, arguments) in choices.flat_map(|choice| choice.released()).flat_map(named) {
            let quota = core.policies().counts_for(&name).and_then(|index| quota_of(core, index));
            if quota.is_none() && core.handed_out.is_none() {
                continue;
            }
            let arguments = canonical_hash(&arguments, &core.identity.key);
            let call = use_key(&core.identity.key, request, &name, arguments);
            released.extend(quota.into_iter().chain(core.handed_out).map(|quota| (quota, call)));
        }
        released
    }
}

/// The quota of this index, of the caller.
pub(super) fn quota_of(core: &Core, index: usize) -> Option<Quota> {
    let counted = core.policies().counted().get(index)?;
    let name = core.identity.quota(&counted.name);
    Some(Quota { name, calls: counted.calls, window_ms: counted.window_ms })
}

/// The calls that the request was handed out, as a quota of its own without a limit: a client that sends the request again
/// gets them again, and sums that requests share count each once. `None`: no such sum counts calls.
pub(super) fn handed_out_quota(core: &Core) -> Option<Quota> {
    let accounting = core.policies().accounting().filter(|accounting| accounting.calls)?;
    let is_shared = accounting.day || core.identity.explicit.is_some();
    let name = is_shared.then(|| core.identity.handed_out(core.request_key()))?;
    Some(Quota { name, calls: MOST_HANDED_OUT, window_ms: AGAIN_WITHIN_MS })
}

/// The writes that return what was reserved for these calls.
fn return_counted(calls: impl Iterator<Item = CountedCall>) -> Writes {
    let reserved = calls.filter_map(|counted| counted.reservation).map(|it| {
        let reserved = ReservationResult::Granted { alone: false };
        (it.reservation, CallReservationResult { reserved, counted: Some(it.counted) })
    });
    let (reservations, reserved): (Vec<_>, Vec<_>) = reserved.unzip();
    return_reservations(&reservations, &reserved)
}
