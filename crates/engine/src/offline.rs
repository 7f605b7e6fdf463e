//! An exchange without sockets, for replays and validations: the answers of the state store, of other requests and of
//! other models are fixed here or given by the caller. Sends nothing and waits for nothing.

use super::{Admission, Answer, Effect, EffectId, EffectResult, Exchange, Input, Now, Outgoing, Output};
use model::fact::{Answers, Batch, Writes};
use model::plan::ReservationResult;
use model::store::{CallReservation, CallReservationResult};

/// Takes the place of the state store.
pub trait OfflineStore {
    /// Answers a batch.
    fn look_up(&mut self, _batch: Batch) -> Answers {
        Answers::default()
    }

    /// Takes an update.
    fn learn(&mut self, _writes: Writes) {}
}

/// A state store that is empty and stays so.
pub struct EmptyStore;

impl OfflineStore for EmptyStore {}

/// What an exchange waits for, other than the state store.
pub enum Pending {
    /// The upstream's reply: give [`Input::Reply`].
    Send(Outgoing),
    /// An effect that a call waits for: give [`Input::Finished`].
    Effect(EffectId, Effect),
    /// Nothing: this is the reply to the client, where it is whole.
    Answer(Answer),
}

/// Goes on with `exchange` until it asks something of others; `None`: it asks for nothing more.
pub fn advance(exchange: &mut Exchange, known: &mut dyn OfflineStore, now: Now) -> Option<Pending> {
    while let Some(output) = exchange.poll() {
        match output {
            Output::Start(id, effect) => match answer(effect, known) {
                Ok(result) => exchange.handle(Input::Finished(id, result), now),
                Err(effect) => return Some(Pending::Effect(id, *effect)),
            },
            Output::Store(writes) => known.learn(*writes),
            Output::Send(outgoing) => return Some(Pending::Send(outgoing)),
            Output::Answer(answer) => return Some(Pending::Answer(answer)),
            Output::Cancel(_)
            | Output::SummariesLost(_)
            | Output::Dismiss
            | Output::BeginStream { .. }
            | Output::BeginStreamOf(_)
            | Output::Emit(_)
            | Output::Held(_)
            | Output::BreakOff(_)
            | Output::Done => {}
        }
    }
    None
}

/// The result of an effect, if it is known at once.
///
/// # Errors
/// A call waits for the effect, which is given back.
fn answer(effect: Effect, known: &mut dyn OfflineStore) -> Result<EffectResult, Box<Effect>> {
    Ok(match effect {
        Effect::Admit { .. } => EffectResult::Admitted(Admission::Free),
        Effect::LookUp(batch) => EffectResult::LookedUp(Box::new(known.look_up(*batch))),
        Effect::Reserve(reservations) => EffectResult::Reserved(granted(&reservations)),
        Effect::Claim { .. } | Effect::Summarise { .. } | Effect::CallTool { .. } => effect.failure(),
        Effect::Approve(_) | Effect::Sleep { .. } | Effect::AskModel(_) => return Err(Box::new(effect)),
    })
}

/// Every call counts: a replay knows one conversation.
pub fn granted(reservations: &[CallReservation]) -> Vec<CallReservationResult> {
    let granted =
        CallReservationResult { reserved: ReservationResult::Granted { alone: false }, counted: None };
    vec![granted; reservations.len()]
}
