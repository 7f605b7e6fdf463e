//! The executor of an exchange's effects: runs all of them at once, and gives each result as it comes. What an effect
//! means is decided by the exchange.

use super::conversation_lock::{ConversationGuard, Entry};
use super::driver::Driver;
use super::handler::AppState;
use engine::{Admission, Effect, EffectId, EffectResult, Input};
use model::store::{CallReservation, CallReservationResult, Claim, return_reservations};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A day: a time that no clock reaches is later than any client stays.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The effects of one client request that have not ended, in the order in which they were started.
#[derive(Default)]
pub(super) struct RunningEffects {
    running: Vec<(EffectId, RunningEffect)>,
    /// When the wait for persons ends for all calls: set by the first one.
    approvals_end: Option<Instant>,
}

type RunningEffect = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// How an effect has ended.
pub(super) struct Outcome {
    result: EffectResult,
    /// The lock on the conversation, where the effect was to get it.
    guard: Option<ConversationGuard>,
}

impl From<EffectResult> for Outcome {
    fn from(result: EffectResult) -> Self {
        Self { result, guard: None }
    }
}

impl From<Entry> for Outcome {
    fn from(entry: Entry) -> Self {
        let (admission, guard) = match entry {
            Entry::Free(guard) => (Admission::Free, Some(guard)),
            Entry::Waited(guard) => (Admission::Waited, Some(guard)),
            Entry::Busy => (Admission::Busy, None),
        };
        Self { result: EffectResult::Admitted(admission), guard }
    }
}

impl RunningEffects {
    fn add(&mut self, id: EffectId, effect: impl Future<Output = Outcome> + Send + 'static) {
        self.running.push((id, Box::pin(effect)));
    }

    /// Ends an effect whose result is not needed any more.
    pub(super) fn cancel(&mut self, id: EffectId) {
        self.running.retain(|(running, _)| *running != id);
    }

    /// Whether none runs.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The next effect that ends; `None` if none runs. Cancel-safe.
    async fn next(&mut self) -> Option<(EffectId, Outcome)> {
        if self.is_empty() {
            return None;
        }
        poll_fn(|context| {
            for (position, (_, effect)) in self.running.iter_mut().enumerate() {
                if let Poll::Ready(outcome) = effect.as_mut().poll(context) {
                    return Poll::Ready(Some((self.running.remove(position).0, outcome)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Calls that were counted. They are given back when this is dropped and nobody has taken them.
struct ReservationGuard {
    app: Arc<AppState>,
    reservations: Vec<CallReservation>,
    reserved: Option<Vec<CallReservationResult>>,
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.app.store.record(return_reservations(&self.reservations, &reserved));
        }
    }
}

impl Driver {
    /// Starts an effect.
    pub(super) fn start(&mut self, id: EffectId, effect: Effect) {
        let app = Arc::clone(&self.app);
        match effect {
            Effect::Admit { conversation, patience } => {
                let entry = async move { app.conversation_lock.enter(conversation, patience).await.into() };
                self.effects.add(id, entry);
            }
            Effect::LookUp(batch) => self.effects.add(id, async move {
                EffectResult::LookedUp(Box::new(app.store.look_up(*batch).await)).into()
            }),
            Effect::Claim { question, request } => {
                let claim = Claim { question, request, now_ms: app.now_ms() };
                let claimed = async move { EffectResult::Claimed(app.store.claim(claim).await).into() };
                self.effects.add(id, claimed);
            }
            Effect::Reserve(reservations) => {
                let reserved = self.reserve(reservations);
                self.effects.add(id, async move { EffectResult::Reserved(reserved.await).into() });
            }
            Effect::Summarise { wanted, question } => {
                self.record.own_time();
                let summary = app.summarise(*wanted, self.head().came(), question);
                self.effects.add(id, async move { EffectResult::Summarised(summary.await).into() });
            }
            Effect::Approve(request) => {
                let ends = Instant::now() + Duration::from_millis(request.hold_ms);
                let until = *self.effects.approvals_end.get_or_insert(ends);
                let decided = self.ask_person(*request, until);
                self.effects.add(id, async move { EffectResult::Decided(decided.await).into() });
            }
            Effect::Sleep { ms } => {
                let now = Instant::from(self.record.split());
                let until = now.checked_add(Duration::from_millis(ms)).unwrap_or(now + LONGEST);
                let mut pause = app.held.pause(until);
                self.effects.add(id, async move { EffectResult::Slept(pause.is_over().await).into() });
            }
            // The operator can offer no tool, so that this effect fails.
            Effect::CallTool { .. } => {
                let failure = effect.failure();
                self.effects.add(id, async move { failure.into() });
            }
            Effect::AskModel(asked) => {
                let answer = app.ask_model(&asked, self.head().came());
                // The answer is there at once where the question could not be asked.
                let answer = async move { EffectResult::Answered(answer.await.unwrap_or_default()).into() };
                self.effects.add(id, answer);
            }
        }
    }

    /// Counts calls before they are handed out. The trip is made to its end also where the client leaves meanwhile, and then
    /// what it has counted is given back.
    fn reserve(
        &self,
        reservations: Vec<CallReservation>,
    ) -> impl Future<Output = Vec<CallReservationResult>> + use<> {
        let app = Arc::clone(&self.app);
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let reserved = Some(app.store.reserve(&reservations).await);
            // Where nobody takes it, it is dropped here.
            let _ = sender.send(ReservationGuard { app: Arc::clone(&app), reservations, reserved });
        });
        async move { receiver.await.ok().and_then(|mut calls| calls.reserved.take()).unwrap_or_default() }
    }

    /// The result of the next effect that ends; `None` if none runs. Cancel-safe.
    pub(super) async fn next_result(&mut self) -> Option<Input> {
        let (id, Outcome { result, guard }) = self.effects.next().await?;
        match &result {
            EffectResult::LookedUp(_) | EffectResult::Claimed(_) | EffectResult::Reserved(_) => {}
            EffectResult::Summarised(_) => self.record.upstream_time(),
            EffectResult::Admitted(_)
            | EffectResult::Decided(_)
            | EffectResult::Slept(_)
            | EffectResult::Answered(_)
            | EffectResult::Executed(_) => self.record.mark_idle(),
        }
        if guard.is_some() {
            self.guard = guard;
        }
        Some(Input::Finished(id, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    /// The numbers of so many effects, as an exchange gives them.
    fn ids(count: usize) -> Vec<EffectId> {
        (0..count as u32).map(EffectId::from_number).collect()
    }

    /// Starts an effect that ends when its sender says whether it has slept.
    fn start(effects: &mut RunningEffects, id: EffectId) -> oneshot::Sender<bool> {
        let (sender, receiver) = oneshot::channel();
        effects.add(id, async move { EffectResult::Slept(receiver.await.unwrap_or_default()).into() });
        sender
    }

    fn ended(outcome: Option<(EffectId, Outcome)>) -> Option<(EffectId, bool)> {
        let (id, Outcome { result: EffectResult::Slept(slept), .. }) = outcome? else { panic!("slept") };
        Some((id, slept))
    }

    #[tokio::test]
    async fn results_come_in_the_order_in_which_effects_end_not_in_that_of_their_start() {
        let (mut effects, ids) = (RunningEffects::default(), ids(3));
        let senders: Vec<_> = ids.iter().map(|id| start(&mut effects, *id)).collect();
        assert!(effects.next().now_or_never().is_none(), "none has ended");
        for (sender, expected) in senders.into_iter().zip(&ids).rev() {
            sender.send(true).unwrap();
            assert_eq!(ended(effects.next().await), Some((*expected, true)));
        }
        assert_eq!(ended(effects.next().await), None, "none runs");
    }

    #[tokio::test]
    async fn a_cancelled_effect_is_dropped_at_once_and_gives_no_result() {
        let (mut effects, ids) = (RunningEffects::default(), ids(2));
        let senders: Vec<_> = ids.iter().map(|id| start(&mut effects, *id)).collect();
        effects.cancel(ids[0]);
        assert!(senders[0].is_closed() && !senders[1].is_closed());
        drop(senders);
        assert_eq!(ended(effects.next().await), Some((ids[1], false)), "an effect that fails ends too");
        assert!(effects.is_empty());
    }
}
