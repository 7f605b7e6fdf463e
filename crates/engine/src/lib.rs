//! One client request from its first byte to its last, as a state machine without I/O (sans-IO): inputs say what
//! happened, outputs say what to do. The proxy, `replay` and the simulation drive the same object, so that each
//! decision exists once.
//!
//! The phases, by their names in logs and metrics: read, identify, look up, plan, rewrite, send, judge, answer, record.
//! Reading the request's bytes and naming its caller come before [`Exchange::begin`]; recording is the driver's.

mod account;
mod answer;
pub mod confirm;
pub mod error;
pub mod fallback;
mod hidden_values;
pub mod judging;
mod look_up;
mod notes;
pub mod offline;
pub mod pipeline;
mod plan;
pub mod price;
mod quota_uses;
pub mod reasks;
mod refusals;
mod refused_reask;
mod repeats;
pub mod restore;
mod room;
mod running;
mod send;
pub mod sent;
pub mod settings;
mod steps;
pub mod store;
pub mod text_agents;
pub mod treatment;

pub use self::send::Outgoing;
pub use self::steps::{Admission, Answer, ApprovalRequest, AskedModel, Break, Input, Output, WholeReply};
pub use self::store::StoreQuery;

use self::error::ProxyError;
use self::look_up::Sought;
use self::plan::{Planned, Summarising};
use self::running::Running;
use crate::judging::Judging;
use crate::settings::{InFlight, Mode, Settings};
use bytes::Bytes;
use dialects::AnyDialect;
use dialects::upstream_history::UpstreamHistory;
use dialects::variant::PlannedRequest;
use model::identity::{HashKey, Identity};
use model::memo::Memo;
use model::plan::Plan;
use model::record::{JudgedCall, On, RequestRecord};
use model::request::Request;
use model::summaries::Summaries;
use pipeline::ClientChoice;
use policies::set::PolicySet;
use std::collections::VecDeque;
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

/// The time of an input.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By a monotonic clock.
    pub at: Instant,
    /// In ms since the epoch.
    pub ms: u64,
}

/// The name under which concurrent requests of one conversation are recorded.
const IN_FLIGHT: &str = "in_flight";

/// See the file's head.
pub struct Exchange {
    core: Core,
    phase: Phase,
}

/// What all phases share: the request, its record, and the outputs.
struct Core {
    shared: Arc<Shared>,
    dialect: AnyDialect,
    record: Box<RequestRecord>,
    body: Bytes,
    request: Arc<Request>,
    /// What is known of the items that the upstream keeps, where the request continues from them or refers to them.
    upstream: Option<Box<UpstreamHistory>>,
    identity: Arc<Identity>,
    profile: Option<Arc<str>>,
    tier: Option<Arc<str>>,
    reports: bool,
    path: String,
    /// The position of the first item after the last reply; 0 before the request is planned.
    new_from: usize,
    /// What the policies want; empty until they were asked, and without effect in observe mode.
    plan: Box<Plan>,
    outputs: VecDeque<Output>,
}

enum Phase {
    /// Waits for other requests of the conversation.
    Admission,
    /// Waits for what is known of the conversation that the upstream keeps.
    History,
    LookUp(Box<Sought>),
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
}

/// A body below this size is copied: otherwise the read buffer, which is about as large, would be kept with it.
const COPIED_BYTES: usize = 8 * 1024;

impl Exchange {
    /// Begins the exchange of a parsed request; `record` holds what is known of it so far.
    pub fn begin(shared: Arc<Shared>, arrived: Arrived, record: Box<RequestRecord>, now: Now) -> Self {
        let Arrived { dialect, body, request, identity, profile, tier, reports, path } = arrived;
        let (request, identity) = (Arc::new(request), Arc::new(identity));
        let (plan, outputs) = (Box::default(), VecDeque::new());
        let mut core = Core {
            shared,
            dialect,
            record,
            body,
            request,
            upstream: None,
            identity,
            profile,
            tier,
            reports,
            path,
            new_from: 0,
            plan,
            outputs,
        };
        core.record.profile.clone_from(&core.profile);
        let phase = match core.admission() {
            Some(admit) => {
                core.outputs.push_back(admit);
                Phase::Admission
            }
            None => core.find_history(now),
        };
        Self { core, phase }
    }

    /// Handles an input. [`next_output`](Self::next_output) then gives what to do.
    pub fn on(&mut self, input: Input, now: Now) {
        let core = &mut self.core;
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Over), input) {
            (Phase::Admission, Input::Admitted(admission)) => core.admitted(admission, now),
            (Phase::History, Input::History(known)) => core.take_history(known, now),
            (Phase::LookUp(sought), Input::Facts(facts)) => core.planned(sought, facts, now),
            (Phase::Summary(summarising), Input::Summarised(summary)) => {
                core.summarised(*summarising, summary.as_deref(), now)
            }
            (Phase::Claim(planned), Input::Claimed(claimed)) => core.claimed(*planned, claimed, now),
            (Phase::Running(mut running), input) => {
                running.on(core, input, now);
                Phase::of(running)
            }
            // These phases ask for nothing else, so no other input is an answer.
            (phase, _) => phase,
        };
    }

    /// The next thing to do, in order.
    pub fn next_output(&mut self) -> Option<Output> {
        self.core.outputs.pop_front()
    }

    /// Ends the exchange in its present state: the client has left, or nothing more is to be done. Outputs may hold
    /// updates for the store.
    pub fn close(&mut self, now: Now) {
        if let Phase::Running(running) | Phase::Ended(running) = &mut self.phase {
            running.close(&mut self.core, now);
        }
    }

    /// Whether the client has, or is about to get, the complete reply.
    pub fn has_ended(&self) -> bool {
        match &self.phase {
            Phase::Running(running) => running.is_done(),
            Phase::Ended(_) | Phase::Over => true,
            _ => false,
        }
    }

    /// What is known of the request, for the log and the metrics. The driver adds times, sizes and the status.
    pub fn record(&mut self) -> &mut RequestRecord {
        &mut self.core.record
    }

    /// The client's request without its content coding, and with the items that the upstream keeps, as far as they are
    /// known.
    pub fn whole_request(&self) -> Bytes {
        self.core.dialect.whole_request(&self.core.planned_request(&self.core.plan, &[]))
    }

    /// The client's own name for the conversation.
    pub fn explicit_conversation(&self) -> Option<&str> {
        self.core.identity.explicit.as_deref()
    }

    /// Whether the next reply is accepted as a stream, if its head says that it is one.
    pub fn takes_stream(&self) -> bool {
        match &self.phase {
            Phase::Running(running) => running.takes_stream(&self.core),
            _ => false,
        }
    }

    /// Whether no part of a reply for the client has come yet, so that the next one may still be a stream.
    pub fn awaits_first_reply(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.awaits_first_reply())
    }

    /// Whether part of the reply is held back from the client, so that it may need heartbeats.
    pub fn is_hiding(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.is_hiding())
    }

    /// Whether the head of the stream to the client waits for its first event.
    pub fn holds_head(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.holds_head())
    }

    /// Whether the upstream has marked its stream as ended.
    pub fn is_done(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) | Phase::Ended(running) if running.is_done())
    }

    /// Bytes of the stream in memory.
    pub fn kept_bytes(&self) -> usize {
        if let Phase::Running(running) = &self.phase { running.kept_bytes() } else { 0 }
    }

    /// Frees spare memory, since the exchange is kept for as long as a stream lasts.
    pub fn shrink(&mut self) {
        if self.core.body.len() < COPIED_BYTES {
            self.core.body = Bytes::copy_from_slice(&self.core.body);
            if let Phase::Running(running) = &mut self.phase {
                running.replace_body(&self.core.body);
            }
        }
    }

    /// What the policies want of the request; nothing until it is planned.
    pub fn plan(&self) -> &Plan {
        &self.core.plan
    }

    /// The judge of the replies, once the request is planned.
    pub fn judging(&self) -> Option<&Judging> {
        match &self.phase {
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
    pub fn choices(&self) -> Vec<ClientChoice<'_>> {
        match &self.phase {
            Phase::Running(running) | Phase::Ended(running) => running.choices(),
            _ => Vec::new(),
        }
    }

    /// The hidden exchanges that are put back, each with the position of the message that follows it.
    pub fn restored(&self) -> &[(usize, Bytes)] {
        match &self.phase {
            Phase::Running(running) | Phase::Ended(running) => &running.restored,
            _ => &[],
        }
    }
}

impl Core {
    /// The request with what is known and decided of it, and these hidden exchanges.
    fn planned_request<'a>(&'a self, plan: &'a Plan, restored: &'a [(usize, Bytes)]) -> PlannedRequest<'a> {
        let (body, request, upstream) = (&self.body, &*self.request, self.upstream.as_deref());
        PlannedRequest { body, request, upstream, plan, restored }
    }

    /// Whether observe mode is on: everything is decided and nothing changed.
    fn is_observing(&self) -> bool {
        self.shared.settings.mode == Mode::Observe
    }

    fn policies(&self) -> &PolicySet {
        self.shared.settings.policies_of(self.profile.as_deref())
    }

    /// The wait for other requests of the conversation, where the operator allows one at a time.
    fn admission(&self) -> Option<Output> {
        let settings = &self.shared.settings.conversation;
        let patience = match settings.in_flight {
            InFlight::Wait => settings.in_flight_wait,
            InFlight::Refuse => Duration::ZERO,
            InFlight::Pass => return None,
        };
        let is_named = self.identity.explicit.is_some() && !self.is_observing();
        let conversation = || self.identity.conversation(std::iter::empty());
        is_named.then(|| Output::Admit { conversation: conversation(), patience })
    }

    fn admitted(&mut self, admission: Admission, now: Now) -> Phase {
        match admission {
            Admission::Free => {}
            Admission::Waited => self.record.act(On::Request, IN_FLIGHT, "waited", 1),
            Admission::Busy => {
                self.record.act(On::Request, IN_FLIGHT, "rejected", 1);
                self.record.conversation.clone_from(&self.identity.explicit);
                let settings = &self.shared.settings.conversation;
                let waits = settings.in_flight == InFlight::Wait;
                let waited = if waits { settings.in_flight_wait } else { Duration::ZERO };
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return self.fail(ProxyError::ConversationBusy { waited_ms });
            }
        }
        self.find_history(now)
    }

    /// Answers with toolrein's own error.
    fn fail(&mut self, error: ProxyError) -> Phase {
        self.answer_error(error);
        Phase::Over
    }

    fn answer_error(&mut self, error: ProxyError) {
        error.note_in(&mut self.record);
        self.answer(Answer::Error(error));
    }

    fn answer(&mut self, answer: Answer) {
        self.outputs.push_back(Output::Answer(answer));
    }
}
