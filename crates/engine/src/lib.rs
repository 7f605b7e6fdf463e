//! One client request from its first byte to its last, as a state machine without I/O (sans-IO): inputs say what
//! happened, outputs say what to do. The proxy, `replay` and the simulation drive the same object, so that each
//! decision exists once.
//!
//! The phases, by their names in logs and metrics: read, identify, look up, plan, rewrite, send, judge, answer, record.
//! Reading the request's bytes and naming its caller come before [`Exchange::begin`]; recording is the driver's.

mod account;
pub mod adaptation;
mod answer;
mod approvals;
mod beginning;
mod call_effects;
pub mod confirm;
mod core;
mod effects;
pub mod error;
mod exchange_form;
mod hidden_values;
pub mod judging;
mod length;
mod look_up;
mod notes;
pub mod offline;
pub mod pipeline;
mod plan;
pub mod price;
mod quota_uses;
pub mod reasks;
mod refusals;
mod repeats;
mod reply_reports;
mod request_forms;
pub mod restore;
mod room;
mod running;
pub mod sent;
pub mod settings;
mod steps;
pub mod store;
#[cfg(test)]
mod tests;
pub mod text_agents;
pub mod treatment;
mod upstream_history;

pub use self::effects::{Admission, ApprovalRequest, AskedModel, Effect, EffectId, EffectResult};
pub use self::request_forms::{Accepts, Outgoing};
pub use model::Now;

pub use self::steps::{Answer, Break, Input, Output, WholeReply};

use self::core::Core;
use self::error::ProxyError;
use self::look_up::PendingLookUp;
use self::plan::{Planned, Summarising, plan_request, take_claim, take_summary};
use self::running::Running;
use self::upstream_history::{HistoryTicket, find_history, take_history};
use crate::judging::Judging;
use crate::settings::{InFlight, Settings};
use bytes::Bytes;
use dialects::AnyDialect;
use model::fact::Writes;
use model::identity::{HashKey, Identity};
use model::memo::Memo;
use model::plan::Plan;
use model::record::{JudgedCall, On, RequestRecord};
use model::request::Request;
use model::summaries::Summaries;
use pipeline::ClientChoice;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all exchanges share under one configuration.
pub struct Shared {
    pub settings: Arc<Settings>,
    pub memo: Arc<dyn Memo>,
    pub key: HashKey,
    /// The secret from which approval tokens are derived. Known to no other process, and never stored.
    pub secret: HashKey,
    /// The upstream's name. A model at another upstream is another model.
    pub upstream: String,
    pub summaries: Arc<dyn Summaries>,
}

/// A parsed request, with its caller.
pub struct Arrived {
    /// The wire protocol that it is written in.
    pub dialect: AnyDialect,
    pub body: Bytes,
    pub request: Request,
    pub identity: Identity,
    /// The name of its profile.
    pub profile: Option<Arc<str>>,
    /// The tier of the caller, as the operator named it.
    pub tier: Option<Arc<str>>,
    /// The client wants to read at the end of a stream what acted on the reply.
    pub reports: bool,
    /// The path of its target: some providers put the model there (Azure's deployments).
    pub path: String,
}

/// The name under which concurrent requests of one conversation are recorded.
const IN_FLIGHT: &str = "in_flight";

/// See the file's head.
pub struct Exchange {
    core: Core,
    phase: Phase,
}

enum Phase {
    /// Waits for other requests of the conversation.
    Admission,
    /// Waits for what is known of the conversation that the upstream keeps.
    History(HistoryTicket),
    LookUp(Box<PendingLookUp>),
    Summary(Box<Summarising>),
    Claim(Box<Planned>),
    /// The request is sent and replies are judged.
    Running(Box<Running>),
    /// As `Running`, but the client's reply is complete.
    Ended(Box<Running>),
    Over,
}

impl Phase {
    fn of(running: Box<Running>) -> Self {
        if running.is_over() { Self::Ended(running) } else { Self::Running(running) }
    }

    /// The client's reply is complete.
    fn end(&mut self) {
        *self = match std::mem::replace(self, Self::Over) {
            Self::Running(running) => Self::Ended(running),
            other => other,
        };
    }
}

impl Exchange {
    /// Begins the exchange of a parsed request; `record` holds what is known of it so far.
    pub fn begin(shared: Arc<Shared>, arrived: Arrived, record: Box<RequestRecord>, now: Now) -> Self {
        let mut core = Core::new(shared, arrived, record);
        let phase = match wanted_admission(&core) {
            Some(admit) => {
                core.start(admit);
                Phase::Admission
            }
            None => find_history(&mut core, now),
        };
        Self { core, phase }
    }

    /// Handles an input. [`poll`](Self::poll) then gives what to do.
    pub fn handle(&mut self, input: Input, now: Now) {
        let core = &mut self.core;
        if let Input::Finished(id, _) = &input
            && !core.end_effect(*id)
        {
            core.record.late_results += 1;
            return;
        }
        if let Phase::Running(running) = &mut self.phase {
            running.on(core, input, now);
            if running.is_over() {
                self.phase.end();
            }
            return self.core.end_input(now);
        }
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Over), input) {
            (Phase::Admission, Input::Finished(_, EffectResult::Admitted(admission))) => {
                take_admission(core, admission, now)
            }
            (Phase::History(ticket), Input::Finished(_, EffectResult::LookedUp(known))) => {
                take_history(core, &known, &ticket, now)
            }
            (Phase::LookUp(sought), Input::Finished(_, EffectResult::LookedUp(known))) => {
                plan_request(core, sought, known, now)
            }
            (Phase::Summary(summarising), Input::Finished(_, EffectResult::Summarised(summary))) => {
                take_summary(core, *summarising, summary.as_deref(), now)
            }
            (Phase::Claim(planned), Input::Finished(_, EffectResult::Claimed(claimed))) => {
                take_claim(core, *planned, claimed, now)
            }
            (phase, input) => {
                unexpected(&input);
                phase
            }
        };
        self.core.end_input(now);
    }

    /// The next thing to do, in order; `None`: the driver waits for the next input, or for the [`deadline`](Self::deadline).
    pub fn poll(&mut self) -> Option<Output> {
        self.core.next_output()
    }

    /// When [`Input::Tick`] is to be given, if nothing else happens before.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running(running) => running.deadline(&self.core),
            _ => None,
        }
    }

    /// What is known of the request, for the log and the metrics.
    pub fn record(&self) -> &RequestRecord {
        &self.core.record
    }

    /// Ends the exchange in its present state: the client has left, or nothing more is to be done. What was used is
    /// settled. No other input may follow; [`inspect`](Self::inspect) still answers.
    pub fn close(&mut self, now: Now) -> Closed {
        let is_complete = match &self.phase {
            // A call that still waits was never sent to the client, although the upstream's stream has ended.
            Phase::Running(running) | Phase::Ended(running) => {
                running.is_done() && self.core.awaits_no_effect()
            }
            _ => false,
        };
        if let Phase::Running(running) | Phase::Ended(running) = &mut self.phase {
            running.close(&mut self.core, now);
        }
        self.core.take_back_ahead();
        let outputs = self.core.take_outputs();
        let writes = outputs.into_iter().filter_map(|output| match output {
            Output::Store(news) => Some(*news),
            _ => None,
        });
        let (writes, record) = (writes.collect(), std::mem::take(&mut self.core.record));
        Closed { record, writes, is_complete }
    }

    /// What a recording, a replay or an explanation wants to know, which no driver needs.
    pub fn inspect(&self) -> Inspection<'_> {
        Inspection(self)
    }
}

/// What remains of an exchange.
pub struct Closed {
    pub record: Box<RequestRecord>,
    /// For the state store.
    pub writes: Vec<Writes>,
    /// The client has all of a stream, although nothing has marked its end.
    pub is_complete: bool,
}

/// An exchange looked at from outside: nothing here is needed to drive it.
pub struct Inspection<'a>(&'a Exchange);

impl<'a> Inspection<'a> {
    /// The client's request without its content coding, and with the items that the upstream keeps, as far as they are
    /// known.
    pub fn whole_request(&self) -> Bytes {
        let core = &self.0.core;
        core.dialect.whole_request(&core.planned_request(&core.plan, &[]))
    }

    /// What the policies want of the request; nothing until it is planned.
    pub fn plan(&self) -> &'a Plan {
        &self.0.core.plan
    }

    /// The judge of the replies, once the request is planned.
    pub fn judging(&self) -> Option<&'a Judging> {
        match &self.0.phase {
            Phase::Running(running) | Phase::Ended(running) => running.judging(),
            _ => None,
        }
    }

    /// The calls that are judged by now, as they are recorded, from the one at `first` on.
    pub fn judged_from(&self, first: usize) -> Vec<JudgedCall> {
        let judged = self.judging().and_then(|judging| judging.record.get(first..)).unwrap_or_default();
        judged.iter().map(notes::noted).collect()
    }

    /// The choices of the replies so far.
    pub fn choices(&self) -> Vec<ClientChoice<'a>> {
        match &self.0.phase {
            Phase::Running(running) | Phase::Ended(running) => running.choices(),
            _ => Vec::new(),
        }
    }

    /// The hidden exchanges that are put back, each with the position of the message that follows it.
    pub fn restored(&self) -> &'a [(usize, Bytes)] {
        match &self.0.phase {
            Phase::Running(running) | Phase::Ended(running) => running.forms.restored(),
            _ => &[],
        }
    }
}

/// The wait for other requests of the conversation, where the operator allows one at a time.
fn wanted_admission(core: &Core) -> Option<Effect> {
    let settings = &core.shared.settings.conversation;
    let patience = match settings.in_flight {
        InFlight::Wait => settings.in_flight_wait,
        InFlight::Refuse => Duration::ZERO,
        InFlight::Pass => return None,
    };
    let is_named = core.identity.explicit.is_some() && !core.is_observing();
    let conversation = || core.identity.conversation(std::iter::empty());
    is_named.then(|| Effect::Admit { conversation: conversation(), patience })
}

fn take_admission(core: &mut Core, admission: Admission, now: Now) -> Phase {
    match admission {
        Admission::Free => {}
        Admission::Waited => core.record.act(On::Request, IN_FLIGHT, "waited", 1),
        Admission::Busy => {
            core.record.act(On::Request, IN_FLIGHT, "rejected", 1);
            let settings = &core.shared.settings.conversation;
            let waits = settings.in_flight == InFlight::Wait;
            let waited = if waits { settings.in_flight_wait } else { Duration::ZERO };
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            return fail(core, ProxyError::ConversationBusy { waited_ms });
        }
    }
    find_history(core, now)
}

/// An input came that nothing awaits: a fault of the driver, which tests find and which changes nothing.
fn unexpected(input: &Input) {
    debug_assert!(input.may_come_late(), "no phase awaits {input:?}");
}

/// Answers with toolrein's own error.
fn fail(core: &mut Core, error: ProxyError) -> Phase {
    core.answer_error(error);
    Phase::Over
}
