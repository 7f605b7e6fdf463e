//! One client request from its first byte to its last, as a state machine without I/O: it is given what happened and says
//! what is to be done. The proxy, `replay` and the simulation drive the same object, so that each decision exists once.
//!
//! The phases, by their names in logs and metrics: read, identify, look up, plan, rewrite, send, judge, answer, record.
//! Reading the request's bytes and naming its caller come before [`Exchange::begin`]; recording is the driver's.

mod answer;
pub mod confirm;
pub mod error;
pub mod fallback;
pub mod judging;
mod notes;
mod plan;
pub mod reasks;
pub mod restore;
mod running;
mod send;
pub mod sent;
pub mod store;

pub use self::send::Outgoing;

use self::error::ProxyError;
use self::plan::{Planned, Sought, Summarising};
use self::running::Running;
use self::store::{Ask, Facts, News};
use crate::config::{Config, InFlight, Mode};
use crate::conversation::identity::{Hash, HashKey, Identity};
use crate::conversation::memo::Memo;
use crate::conversation::request::Request;
use crate::conversation::summaries::Summaries;
use crate::dialect::Dialect;
use crate::dialect::chat::Chat;
use crate::dialect::reply::ShownChoice;
use crate::exchange::judging::Judging;
use crate::plan::approval::{ApprovalDecision, HeldCall};
use crate::plan::{Plan, SummaryWanted};
use crate::policy::set::PolicySet;
use crate::telemetry::outcome::{On, Outcome};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all exchanges share under one configuration.
pub struct Shared {
    pub config: Arc<Config>,
    pub memo: Arc<dyn Memo>,
    pub key: HashKey,
    /// Tokens for approvals are drawn by it. Known to nobody else, and never stored.
    pub secret: HashKey,
    /// The upstream's name. A model at another upstream is another model.
    pub upstream: String,
    pub summaries: Arc<dyn Summaries>,
}

impl Shared {
    /// The policies of the named profile, or those outside of profiles.
    fn policies(&self, profile: Option<&str>) -> &PolicySet {
        let profile = profile.and_then(|name| self.config.profiles.named(name).ok());
        self.config.policies_of(profile)
    }
}

/// A wire protocol, read with the judge of the exchange.
pub type AnyDialect = &'static dyn Dialect<Judging>;

/// Chat completions.
pub const CHAT: AnyDialect = &Chat;

/// A request that was read, with its caller.
pub struct Arrived {
    /// The wire protocol that it is written in.
    pub dialect: AnyDialect,
    pub body: Bytes,
    pub request: Request,
    pub identity: Identity,
    /// The name of the profile that it takes.
    pub profile: Option<Arc<str>>,
    /// The tier of the caller, as the operator named it.
    pub tier: Option<Arc<str>>,
    /// The path of its target: some providers name the model there (Azure's deployments).
    pub path: String,
}

/// The time of an input.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By a clock that nobody sets.
    pub at: Instant,
    /// In ms since the epoch.
    pub ms: u64,
}

/// What happened.
pub enum Input {
    /// The request may go on beside others of its conversation, or must not.
    Admitted(Admission),
    /// What the state store knows.
    Facts(Box<Facts>),
    /// Whether the approved calls are for this request to hand out.
    Claimed(bool),
    /// It is decided whether the batch has a summary, and what it is.
    Summarised(Option<Arc<str>>),
    /// The request was sent on a new connection, since the kept one was stale.
    Resent,
    /// No reply came.
    NotSent(ProxyError),
    /// A stream of events begins. `ends_by_closing`: nothing but the end of the connection ends it.
    StreamBegins { ends_by_closing: bool },
    /// Bytes of the stream.
    Bytes(Bytes),
    /// The stream has ended.
    End,
    /// The stream broke off, for a reason that the client reads.
    Cut(ProxyError, Break),
    /// A whole reply came.
    Reply(WholeReply),
    /// A decision on the call that waits under this number.
    Decided(u32, ApprovalDecision),
    /// Nothing was sent to the client for as long as a connection is kept silent.
    Silence,
    /// There is no memory for what is held back.
    NoMemory,
}

/// A reply that was read to its end, or as far as it was read.
pub struct WholeReply {
    /// The driver's number of it, under which it is named in an [`Answer`].
    pub id: u32,
    pub status: u16,
    /// Its bytes, decoded; or why they cannot be had: `reply_too_long`, `unreadable_coding`.
    pub body: Result<Bytes, &'static str>,
}

/// Whether a request may go on beside others of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No other one was there.
    Free,
    /// It has waited for others.
    Waited,
    /// Others are still there.
    Busy,
}

/// How a stream to the client breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    Upstream,
    Idle,
}

/// What is to be done.
#[derive(Debug)]
pub enum Output {
    /// Wait at most so long until no other request of the conversation is in flight, then give [`Input::Admitted`].
    Admit { conversation: Hash, patience: Duration },
    /// Another request of the conversation may come in from now on.
    Dismiss,
    /// Ask the state store and give [`Input::Facts`].
    LookUp(StoreQuery),
    /// Ask the state store and give [`Input::Claimed`].
    Claim { anchor: Hash, request: Hash },
    /// Have the question asked and give [`Input::Summarised`] when that is decided.
    Summarise { wanted: SummaryWanted, question: Bytes },
    /// These batches of results had a decision that is lost: they count as cleared from now on.
    SummariesLost(Vec<Hash>),
    /// Send this to the upstream.
    Send(Outgoing),
    /// Report to the state store.
    Store(News),
    /// Ask a person about a call, for at most so many ms, and give [`Input::Decided`].
    AskApproval(HeldCall, u64),
    /// Nobody need decide on the call of this number any more.
    WithdrawApproval(u32),
    /// The reply to the client, whole.
    Answer(Answer),
    /// The reply to the client is a stream: the head of the upstream's goes out, or one of ours.
    BeginStream { own: bool },
    /// The next bytes of the stream to the client.
    Emit(Bytes),
    /// The stream to the client breaks off.
    BreakOff(Break),
    /// The stream to the client has ended.
    Done,
}

/// A whole reply to the client.
#[derive(Debug)]
pub enum Answer {
    /// The upstream's reply of this number, as it came.
    AsItCame(u32),
    /// That reply with another body, in pieces.
    Edited(u32, Vec<Bytes>),
    /// A reply of ours, in pieces.
    Own(Vec<Bytes>),
    Error(ProxyError),
}

/// What the state store is asked, in one trip.
#[derive(Clone, Debug)]
pub struct StoreQuery {
    pub(crate) calls: Vec<Hash>,
    pub(crate) places: Vec<Hash>,
    pub(crate) histories: Vec<Hash>,
    pub(crate) quotas: Vec<store::Quota>,
    pub(crate) stops: Vec<store::Stop>,
    pub(crate) model: Hash,
    pub(crate) request: Hash,
    pub(crate) conversation: Hash,
    pub(crate) answered: Option<Hash>,
    pub(crate) bytes: Hash,
    pub(crate) now: Now,
}

impl StoreQuery {
    /// The same as the store takes it.
    pub fn ask(&self) -> Ask<'_> {
        Ask {
            calls: &self.calls,
            places: &self.places,
            model: self.model,
            request: self.request,
            conversation: self.conversation,
            histories: &self.histories,
            answered: self.answered,
            quotas: &self.quotas,
            stops: &self.stops,
            bytes: self.bytes,
            now_ms: self.now.ms,
            now: self.now.at,
        }
    }
}

/// The name under which it is recorded that requests of one conversation met.
const IN_FLIGHT: &str = "in_flight";

/// See the file's head.
pub struct Exchange {
    core: Core,
    phase: Phase,
}

/// What is known of the request from the beginning, and what is to be done.
struct Core {
    shared: Arc<Shared>,
    dialect: AnyDialect,
    record: Box<Outcome>,
    body: Bytes,
    request: Arc<Request>,
    identity: Arc<Identity>,
    profile: Option<Arc<str>>,
    tier: Option<Arc<str>>,
    path: String,
    /// What the policies want; empty until it is known, and without effect while observing.
    plan: Box<Plan>,
    outputs: VecDeque<Output>,
}

enum Phase {
    /// Other requests of the conversation are waited for.
    Admission,
    LookUp(Box<Sought>),
    Summary(Box<Summarising>),
    Claim(Box<Planned>),
    /// The request is sent, and replies are judged.
    Running(Box<Running>),
    /// The same where the client's reply is complete.
    Ended(Box<Running>),
    Over,
}

impl Phase {
    fn of(running: Box<Running>) -> Self {
        if running.is_over() { Self::Ended(running) } else { Self::Running(running) }
    }
}

/// A body below this is copied rather than kept with the buffer that it was read into, which is about as large.
const COPIED_BYTES: usize = 8 * 1024;

impl Exchange {
    /// The exchange of a request that was read; `record` goes on with what is known of it.
    pub fn begin(shared: Arc<Shared>, arrived: Arrived, record: Box<Outcome>, now: Now) -> Self {
        let Arrived { dialect, body, request, identity, profile, tier, path } = arrived;
        let (request, identity) = (Arc::new(request), Arc::new(identity));
        let (plan, outputs) = (Box::default(), VecDeque::new());
        let mut core =
            Core { shared, dialect, record, body, request, identity, profile, tier, path, plan, outputs };
        core.record.profile.clone_from(&core.profile);
        let phase = match core.admission() {
            Some(admit) => {
                core.outputs.push_back(admit);
                Phase::Admission
            }
            None => core.look_up(now),
        };
        Self { core, phase }
    }

    /// Takes what happened. What is to be done now is given by [`next_output`](Self::next_output).
    pub fn on(&mut self, input: Input, now: Now) {
        let core = &mut self.core;
        self.phase = match (std::mem::replace(&mut self.phase, Phase::Over), input) {
            (Phase::Admission, Input::Admitted(admission)) => core.admitted(admission, now),
            (Phase::LookUp(sought), Input::Facts(facts)) => core.planned(*sought, *facts, now),
            (Phase::Summary(summarising), Input::Summarised(summary)) => {
                core.summarised(*summarising, summary.as_deref(), now)
            }
            (Phase::Claim(planned), Input::Claimed(claimed)) => core.claimed(*planned, claimed, now),
            (Phase::Running(mut running), input) => {
                running.on(core, input, now);
                Phase::of(running)
            }
            // Nothing else is asked for in these phases, so nothing else is an answer.
            (phase, _) => phase,
        };
    }

    /// The next thing to be done, in this order.
    pub fn next_output(&mut self) -> Option<Output> {
        self.core.outputs.pop_front()
    }

    /// Ends the exchange where it stands: the client has left, or nothing more is to be done. What is to be stored is among
    /// the outputs.
    pub fn close(&mut self, now: Now) {
        if let Phase::Running(running) | Phase::Ended(running) = &mut self.phase {
            running.close(&mut self.core, now);
        }
    }

    /// Whether the client has, or is about to get, all that there is.
    pub fn has_ended(&self) -> bool {
        match &self.phase {
            Phase::Running(running) => running.is_done(),
            Phase::Ended(_) | Phase::Over => true,
            _ => false,
        }
    }

    /// What is known of the request, for the log and the metrics. The driver adds times, sizes and the status.
    pub fn record(&mut self) -> &mut Outcome {
        &mut self.core.record
    }

    /// The client's own name for the conversation.
    pub fn explicit_conversation(&self) -> Option<&str> {
        self.core.identity.explicit.as_deref()
    }

    /// Whether the next reply is to be taken as a stream, if it is one by its head.
    pub fn takes_stream(&self) -> bool {
        match &self.phase {
            Phase::Running(running) => running.takes_stream(&self.core),
            _ => false,
        }
    }

    /// Whether nothing of a reply has come that the client gets, so that the next one may still turn out to be a stream.
    pub fn awaits_first_reply(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.awaits_first_reply())
    }

    /// Whether something of the reply does not reach the client for now, so that it may have to be kept waiting.
    pub fn is_hiding(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) if running.is_hiding())
    }

    /// Whether the upstream has said that nothing more comes in its stream.
    pub fn is_done(&self) -> bool {
        matches!(&self.phase, Phase::Running(running) | Phase::Ended(running) if running.is_done())
    }

    /// Bytes that are kept of the stream.
    pub fn kept_bytes(&self) -> usize {
        if let Phase::Running(running) = &self.phase { running.kept_bytes() } else { 0 }
    }

    /// Takes no more room than it must: it is kept for as long as a stream lasts.
    pub fn shrink(&mut self) {
        if self.core.body.len() < COPIED_BYTES {
            self.core.body = Bytes::copy_from_slice(&self.core.body);
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

    /// The choices of the replies as far as they have come.
    pub fn choices(&self) -> Vec<&dyn ShownChoice> {
        match &self.phase {
            Phase::Running(running) | Phase::Ended(running) => running.choices(),
            _ => Vec::new(),
        }
    }

    /// The hidden exchanges that are put back, each with the place of the message that it is put before.
    pub fn restored(&self) -> &[(usize, Bytes)] {
        match &self.phase {
            Phase::Running(running) | Phase::Ended(running) => &running.restored,
            _ => &[],
        }
    }
}

impl Core {
    /// Whether everything is decided and nothing changed.
    fn is_observing(&self) -> bool {
        self.shared.config.mode == Mode::Observe
    }

    fn policies(&self) -> &PolicySet {
        self.shared.policies(self.profile.as_deref())
    }

    /// Waiting for other requests of the conversation, where the operator wants one at a time.
    fn admission(&self) -> Option<Output> {
        let settings = &self.shared.config.conversation;
        let patience = match settings.in_flight {
            InFlight::Wait => settings.in_flight_wait,
            InFlight::Refuse => Duration::ZERO,
            InFlight::Pass => return None,
        };
        let is_named = self.identity.explicit.is_some() && !self.is_observing();
        let conversation = || self.identity.conversation(&self.request, &self.body);
        is_named.then(|| Output::Admit { conversation: conversation(), patience })
    }

    fn admitted(&mut self, admission: Admission, now: Now) -> Phase {
        match admission {
            Admission::Free => {}
            Admission::Waited => self.record.act(On::Request, IN_FLIGHT, "waited", 1),
            Admission::Busy => {
                self.record.act(On::Request, IN_FLIGHT, "rejected", 1);
                self.record.conversation.clone_from(&self.identity.explicit);
                let settings = &self.shared.config.conversation;
                let waits = settings.in_flight == InFlight::Wait;
                let waited = if waits { settings.in_flight_wait } else { Duration::ZERO };
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                return self.fail(ProxyError::ConversationBusy { waited_ms });
            }
        }
        self.look_up(now)
    }

    /// Answers with an error of ours.
    fn fail(&mut self, error: ProxyError) -> Phase {
        self.answer_error(error);
        Phase::Over
    }

    fn answer_error(&mut self, error: ProxyError) {
        self.record.error = Some(error.code());
        self.answer(Answer::Error(error));
    }

    fn answer(&mut self, answer: Answer) {
        self.outputs.push_back(Output::Answer(answer));
    }
}
