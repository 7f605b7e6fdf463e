//! The final-answer request that comes first, and what follows where the upstream refuses it, or refuses to be asked again: the hidden exchanges as text, a request for a final answer with
//! them shortened, and at last a sentence of toolrein's. A form that was accepted is the one that later requests hold.

use super::Core;
use super::hidden_values::hide_in;
use super::running::{Replying, Running};
use crate::judging::Judging;
use bytes::Bytes;
use dialects::error::UpstreamError;
use dialects::error::friendly::status_of;
use dialects::refusal::{may_be_about_the_form, overflows};
use dialects::variant::{Asking, Tools};
use model::record::{Fallback, On};

/// The form in which the hidden exchanges of one client request are written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExchangeForm {
    /// Calls and results as text.
    is_plain: bool,
    /// With short arguments and results.
    is_short: bool,
}

impl ExchangeForm {
    /// The exchange in this form.
    pub(super) fn write(self, core: &Core, exchange: &Bytes) -> Bytes {
        match (self.is_short, self.is_plain) {
            (false, false) => exchange.clone(),
            (true, false) => core.dialect.short_exchange(&core.without_hidden_values(exchange)),
            (false, true) => core.dialect.plain_exchange(&core.without_hidden_values(exchange)),
            (true, true) => {
                let short = core.dialect.short_exchange(&core.without_hidden_values(exchange));
                core.dialect.plain_exchange(&short)
            }
        }
    }
}

impl Core {
    /// The exchange without the values that the model must not read: within text they would not be found later.
    fn without_hidden_values(&self, exchange: &Bytes) -> Bytes {
        match self.plan.hidden_values() {
            Some((_, values)) => hide_in(exchange, values, usize::MAX),
            None => exchange.clone(),
        }
    }
}

/// The next step after a refused re-ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterRefusal {
    /// The upstream is asked once more, in another form.
    AskAgain,
    /// toolrein answers by a sentence of its own.
    SayNoAnswer,
    /// The client gets the error.
    GiveError,
}

impl Running {
    /// Decides what follows after the upstream refused, with this status and error, to be asked again.
    pub(super) fn after_refused_reask(
        &mut self,
        core: &mut Core,
        judging: &mut Judging,
        status: u16,
        error: &UpstreamError,
    ) -> AfterRefusal {
        let Some(lands) = self.variant.asking.as_ref().map(|asking| asking.land) else {
            return AfterRefusal::GiveError;
        };
        if is_too_long(status, error) {
            return self.after_overflow(core, judging);
        }
        if !is_refusal(status, error) {
            return AfterRefusal::GiveError;
        }
        if lands && self.variant.tools != Tools::Dropped {
            self.refuses_landing = true;
            self.go_bare(core);
        } else if !lands && !self.variant.flat && !self.exchange_form.is_plain {
            self.exchange_form.is_plain = true;
            let plain = ExchangeForm { is_plain: true, is_short: false };
            self.rewrite_exchanges(|exchange| plain.write(core, exchange));
            self.try_next(core, &[Fallback::Flattened]);
        } else if !lands && !self.keeps_tools {
            self.ask_for_answer(core, judging);
        } else {
            return AfterRefusal::SayNoAnswer;
        }
        AfterRefusal::AskAgain
    }

    /// Makes the request that was not sent yet the final-answer request, where a policy knows that no call may run.
    pub(super) fn land_at_once(&mut self, core: &mut Core) {
        let Some(policy) = core.plan.final_answer else { return };
        let Replying::Nothing(judging) = &mut self.replying else { return };
        let may_call = core.request.declares_tools || core.request.declares_elsewhere;
        if !may_call || (self.keeps_tools && self.answer.is_none()) {
            return;
        }
        judging.read_parameters(&core.planned_request(&core.plan, &[]));
        judging.land();
        self.variant.answer = self.answer.clone();
        self.variant.asking = Some(Asking { rounds: Vec::new(), land: true });
        core.record.act(On::Request, policy, "final_answer", 1);
        if self.variant.tools == Tools::WithoutChoice {
            self.go_bare(core);
        }
    }

    /// The upstream refused the final-answer request, which came first: true if it is to be sent without tools.
    pub(super) fn answers_without_tools(
        &mut self,
        core: &mut Core,
        status: u16,
        error: &UpstreamError,
    ) -> bool {
        let lands = self.variant.asking.as_ref().is_some_and(|asking| asking.land);
        if !lands || self.variant.tools == Tools::Dropped || !is_refusal(status, error) {
            return false;
        }
        self.go_bare(core);
        true
    }

    /// A re-ask was too long for the model: what was hidden is shortened once, and the model is to answer.
    fn after_overflow(&mut self, core: &mut Core, judging: &mut Judging) -> AfterRefusal {
        if self.exchange_form.is_short {
            return AfterRefusal::SayNoAnswer;
        }
        self.exchange_form.is_short = true;
        let short = ExchangeForm { is_plain: false, is_short: true };
        self.rewrite_exchanges(|exchange| short.write(core, exchange));
        self.try_next(core, &[Fallback::Overflow]);
        self.ask_for_answer(core, judging);
        AfterRefusal::AskAgain
    }

    /// Turns the re-ask into the final-answer request.
    fn ask_for_answer(&mut self, core: &mut Core, judging: &mut Judging) {
        judging.read_parameters(&core.planned_request(&core.plan, &[]));
        judging.land();
        let lands = !self.keeps_tools;
        if let Some(asking) = &mut self.variant.asking {
            asking.land = lands;
        }
        let refuses = self.refuses_landing || self.variant.tools == Tools::WithoutChoice;
        if lands && refuses && self.before_bare.is_none() {
            self.go_bare(core);
        }
    }

    /// Writes the hidden exchanges anew: those of the re-ask, and those that are stored for later requests.
    fn rewrite_exchanges(&mut self, write: impl Fn(&Bytes) -> Bytes) {
        self.reasks.rewrite(&write);
        if let Some(asking) = &mut self.variant.asking {
            asking.rounds.iter_mut().for_each(|round| *round = write(round));
        }
    }
}

fn is_too_long(status: u16, error: &UpstreamError) -> bool {
    status == 413 || overflows(status, error)
}

/// Whether the upstream refuses what it was asked, and not the caller's key, credit or rate, and is not overloaded.
fn is_refusal(status: u16, error: &UpstreamError) -> bool {
    let is_about_the_caller = |status| matches!(status, 401..=403 | 407 | 408 | 425 | 429);
    let meant = status_of(error);
    match status {
        400..=499 => !is_about_the_caller(status) && !is_about_the_caller(meant) && meant != 503,
        _ => may_be_about_the_form(status, error),
    }
}
