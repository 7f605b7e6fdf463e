//! What a call of the reply may wait for, as plain data: questions to another model, tools that toolrein runs, and the
//! results that are known. Asks nobody and runs nothing.

use super::{ModelEndpoint, Reservation, ReservationResult};
use std::sync::Arc;
use std::time::Duration;

/// A question about a call. The call is held until the answer is known; equal questions have one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelQuestion {
    pub terms: Arc<ModelTerms>,
    /// The instructions.
    pub system: Arc<str>,
    /// What they are about: data, whoever wrote it.
    pub text: String,
}

/// A tool that toolrein runs for a call, within this time. The call has the tool's name and the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolRun {
    pub timeout: Duration,
}

/// Who is asked, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTerms {
    pub model: String,
    /// The longest answer, in tokens.
    pub max_tokens: u32,
    /// How long the call waits for it.
    pub timeout: Duration,
    pub endpoint: ModelEndpoint,
}

/// The results of the effects that calls of one request have waited for. What failed has no text.
#[derive(Clone, Debug, Default)]
pub struct CallResults {
    answers: Vec<(ModelQuestion, Option<Arc<str>>)>,
    executed: Option<Option<Arc<str>>>,
    reserved: Vec<(Reservation, ReservationResult)>,
}

impl CallResults {
    /// What another model has answered to `question`; `None`: it was not asked yet.
    pub fn answer(&self, question: &ModelQuestion) -> Option<Option<&str>> {
        let (_, answer) = self.answers.iter().find(|(known, _)| known == question)?;
        Some(answer.as_deref())
    }

    /// What the tool gave that toolrein ran for the call which is judged; `None`: it was not run yet.
    pub fn executed(&self) -> Option<Option<&str>> {
        Some(self.executed.as_ref()?.as_deref())
    }

    /// What became of this reservation of the call that is judged; `None`: nothing yet.
    pub fn reserved(&self, reservation: &Reservation) -> Option<&ReservationResult> {
        let known = self.reserved.iter().find(|(known, _)| known == reservation);
        known.map(|(_, reserved)| reserved)
    }

    /// Takes the answer to `question`; the first one stays.
    pub fn learn(&mut self, question: ModelQuestion, answer: Option<Arc<str>>) {
        if self.answer(&question).is_none() {
            self.answers.push((question, answer));
        }
    }

    /// Sets what the tool gave for the call that is judged next.
    pub fn set_executed(&mut self, executed: Option<Option<Arc<str>>>) {
        self.executed = executed;
    }

    /// Sets what became of the reservations of the call that is judged next.
    pub fn set_reserved(&mut self, reserved: Vec<(Reservation, ReservationResult)>) {
        self.reserved = reserved;
    }
}
