//! What all phases of one client request share: the request with its caller, what is known of its conversation, the request
//! record, the policies' plan, and the outputs, which only this file holds. Answers questions about them; decides nothing.

use crate::account::AccountKeys;
use crate::answer::is_success;
use crate::confirm::token;
use crate::effects::{Effect, EffectId, PendingEffects};
use crate::error::ProxyError;
use crate::hidden_values::hide_in;
use crate::settings::{AskUsage, ErrorIn200, Errors, Mode};
use crate::{Answer, Arrived, Now, Output, Shared};
use bytes::Bytes;
use dialects::AnyDialect;
use dialects::error::UpstreamError;
use dialects::error::friendly::{friendly_body, status_of};
use dialects::upstream_history::UpstreamHistory;
use dialects::variant::PlannedRequest;
use model::Transcript;
use model::account::{Sums, Tally};
use model::adaptation::{Adaptation, Adaptations};
use model::fact::Writes;
use model::identity::{Domain, Hash, Identity};
use model::plan::{ModelQuestion, Plan};
use model::record::RequestRecord;
use model::request::Request;
use model::store::{ModelKeys, Quota};
use model::uses::request_key;
use policies::set::{AskingPolicies, PolicySet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A body below this size is copied for a stream.
const COPIED_BYTES: usize = 8 * 1024;

/// See the module.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dialect: AnyDialect,
    pub(crate) record: Box<RequestRecord>,
    pub(crate) body: Bytes,
    pub(crate) request: Arc<Request>,
    /// What is known of the items that the upstream keeps, where the request continues from them or refers to them.
    pub(crate) upstream: Option<Box<UpstreamHistory>>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) tier: Option<Arc<str>>,
    pub(crate) reports: bool,
    pub(crate) path: String,
    /// The position of the first item after the last reply; 0 before the request is planned.
    pub(crate) new_from: usize,
    /// What the policies want; empty until they were asked, and without effect in observe mode.
    pub(crate) plan: Box<Plan>,
    outputs: VecDeque<Output>,
    /// When the client's stream began, or got bytes last.
    pub(crate) shown_at: Option<Instant>,
    /// The input that is handled now begins it or gives it bytes.
    is_shown: bool,
    effects: PendingEffects,
    /// The policies that have asked the state store about the request.
    pub(crate) asking: AskingPolicies,
    /// The calls that the request was handed out: see [`handed_out_quota`](super::quota_uses::handed_out_quota).
    pub(crate) handed_out: Option<Quota>,
    /// What the look-up has added to sums, by their keys, while no account takes care of it.
    counted_ahead: Vec<(Hash, Sums)>,
}

impl Core {
    /// The core of a request that has arrived; `record` holds what is known of it so far.
    pub(crate) fn new(shared: Arc<Shared>, arrived: Arrived, mut record: Box<RequestRecord>) -> Self {
        let Arrived { dialect, body, request, identity, profile, tier, reports, path } = arrived;
        record.profile.clone_from(&profile);
        record.conversation.clone_from(&identity.explicit);
        record.names_conversation = identity.explicit.is_some();
        Self {
            shared,
            dialect,
            record,
            body,
            request: Arc::new(request),
            upstream: None,
            identity: Arc::new(identity),
            profile,
            tier,
            reports,
            path,
            new_from: 0,
            plan: Box::default(),
            outputs: VecDeque::new(),
            shown_at: None,
            is_shown: false,
            effects: PendingEffects::default(),
            asking: AskingPolicies::default(),
            handed_out: None,
            counted_ahead: Vec::new(),
        }
    }

    /// Has the driver do something after what it was given so far.
    pub(crate) fn output(&mut self, output: Output) {
        self.is_shown |= matches!(output, Output::Emit(_));
        self.outputs.push_back(output);
    }

    /// The body, copied where it is small: else the read buffer, which is about as large, would be kept with it for as long
    /// as a stream lasts.
    pub(crate) fn copied_body(&mut self) -> &Bytes {
        if self.body.len() < COPIED_BYTES {
            self.body = Bytes::copy_from_slice(&self.body);
        }
        &self.body
    }

    /// The client's stream begins, or is given another chance to get bytes: its next heartbeat is due later.
    pub(crate) fn note_shown(&mut self) {
        self.is_shown = true;
    }

    /// An input was handled at `now`.
    pub(crate) fn end_input(&mut self, now: Now) {
        if std::mem::take(&mut self.is_shown) {
            self.shown_at = Some(now.at);
        }
    }

    /// Whether no effect is awaited.
    pub(crate) fn awaits_no_effect(&self) -> bool {
        self.effects.is_empty()
    }

    /// Has the driver start an effect, and awaits its result.
    pub(crate) fn start(&mut self, effect: Effect) -> EffectId {
        let id = self.effects.start();
        self.output(Output::Start(id, effect));
        id
    }

    /// The result of this effect is not awaited any more.
    pub(crate) fn cancel(&mut self, id: EffectId) {
        if self.effects.end(id) {
            self.output(Output::Cancel(id));
        }
    }

    /// An effect has ended; false if its result is not awaited.
    pub(crate) fn end_effect(&mut self, id: EffectId) -> bool {
        self.effects.end(id)
    }

    /// The same for several outputs.
    pub(crate) fn output_all(&mut self, outputs: impl IntoIterator<Item = Output>) {
        outputs.into_iter().for_each(|output| self.output(output));
    }

    /// Takes back what the driver has not taken yet.
    pub(crate) fn take_outputs(&mut self) -> VecDeque<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// The next thing for the driver to do.
    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The look-up has added `ahead` to the sums of `account`.
    pub(crate) fn count_ahead(&mut self, account: Option<&AccountKeys>, ahead: Sums) {
        let keys = account.filter(|_| ahead != Sums::default()).map_or_else(Vec::new, AccountKeys::sums);
        self.counted_ahead = keys.into_iter().map(|key| (key, ahead)).collect();
    }

    /// The account of the request takes care of what the look-up has added from now on.
    pub(crate) fn account_is_open(&mut self) {
        self.counted_ahead.clear();
    }

    /// The request is not sent: what the look-up has added is taken back.
    pub(crate) fn take_back_ahead(&mut self) {
        let ahead = std::mem::take(&mut self.counted_ahead).into_iter();
        let tallied = ahead.map(|(key, sums)| (key, Tally::refund(sums))).collect();
        self.store(Writes { tallied, ..Writes::default() });
    }

    /// Has the state store updated, if there is anything new.
    pub(crate) fn store(&mut self, writes: Writes) {
        if !writes.is_empty() {
            self.output(Output::Store(Box::new(writes)));
        }
    }

    /// The request with what is known and decided of it, and these hidden exchanges.
    pub(crate) fn planned_request<'a>(
        &'a self,
        plan: &'a Plan,
        restored: &'a [(usize, Bytes)],
    ) -> PlannedRequest<'a> {
        let (body, request, upstream) = (&self.body, &*self.request, self.upstream.as_deref());
        PlannedRequest { body, request, upstream, plan, restored }
    }

    /// Whether observe mode is on: everything is decided and nothing changed.
    pub(crate) fn is_observing(&self) -> bool {
        self.shared.settings.mode == Mode::Observe
    }

    pub(crate) fn policies(&self) -> &PolicySet {
        self.shared.settings.policies_of(self.profile.as_deref())
    }

    pub(crate) fn answer_error(&mut self, error: ProxyError) {
        error.note_in(&mut self.record);
        self.answer(Answer::Error(error));
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        self.output(Output::Answer(answer));
    }

    /// The conversation, with what the configuration says of the model.
    pub(crate) fn read_transcript(&self, model: &str) -> Transcript {
        let (request, identity) = (Arc::clone(&self.request), Arc::clone(&self.identity));
        let upstream = self.upstream.as_deref();
        let sources = upstream.map(|upstream| (upstream.sources.clone(), upstream.order.clone()));
        let request = (request, self.body.clone());
        self.shared.read_transcript(request, sources.unwrap_or_default(), identity, model)
    }

    /// The keys of what is known of the model at its upstream: a model at another upstream is another model.
    pub(crate) fn model_keys(&self, model_name: &str) -> ModelKeys {
        let model = [self.shared.upstream.as_bytes(), self.path.as_bytes(), model_name.as_bytes()];
        let all = self.shared.key.hash(Domain::Model, &model);
        ModelKeys { all, own: all.combined_with(self.identity.caller) }
    }

    /// See [`Transcript::request_key`].
    pub(crate) fn request_key(&self) -> Hash {
        let continued = self.upstream.iter().filter(|_| self.request.continues.is_some());
        let upstream = continued.map(|upstream| &*upstream.record);
        let (key, caller) = (&self.identity.key, self.identity.caller);
        request_key(key, caller, self.request.digest(&self.body, key), upstream)
    }

    /// Whether a person may be asked about calls.
    pub(crate) fn asks_approval(&self) -> bool {
        self.policies().confirming().is_some() && !self.is_observing()
    }

    /// Whether the conversation is in the holdout group, whose texts policies do not change.
    pub(crate) fn is_held_out(&self, transcript: &Transcript) -> bool {
        let settings = &self.shared.settings.conversation;
        settings.holdout > 0 && settings.holds_out(transcript.lasting_name().0)
    }

    /// An unpredictable token, since it is derived from a secret of its own.
    pub(crate) fn question_token(&self, request: Hash, now: Now) -> String {
        let parts = [&request.0.to_le_bytes()[..], &now.ms.to_le_bytes()];
        token(self.shared.secret.hash(Domain::Confirmation, &parts))
    }

    /// Whether to request usage for the stream although the client did not.
    pub(crate) fn asks_usage(&self, known: Adaptations) -> bool {
        let wanted = match self.shared.settings.upstream.ask_usage {
            AskUsage::Never => false,
            AskUsage::Auto => self.policies().needs_usage(),
            AskUsage::Always => true,
        };
        let comes = !self.request.stream || self.request.include_usage;
        wanted && !comes && !self.is_observing() && !known.contains(Adaptation::StreamOptions)
    }

    /// The exchange without the values that the model must not read: within text they would not be found later.
    pub(crate) fn without_hidden_values(&self, exchange: &Bytes) -> Bytes {
        match self.plan.hidden_values() {
            Some((_, values)) => hide_in(exchange, values, usize::MAX),
            None => exchange.clone(),
        }
    }

    /// The name of a question: equal for equal questions of the caller.
    pub(crate) fn question_key(&self, question: &ModelQuestion) -> Hash {
        let ModelQuestion { terms, system, text } = question;
        let place = [&terms.endpoint.url, &terms.endpoint.key_env].map(|at| at.as_deref().unwrap_or(""));
        let caller = self.identity.caller.0.to_le_bytes();
        let parts = [terms.model.as_bytes(), place[0].as_bytes(), place[1].as_bytes(), system.as_bytes()];
        let parts = [&caller[..], parts[0], parts[1], parts[2], parts[3], text.as_bytes()];
        self.shared.key.hash(Domain::Question, &parts)
    }

    /// The error for an upstream reply that cannot be read.
    pub(crate) fn unreadable(&self) -> ProxyError {
        self.cut("its reply cannot be read")
    }

    /// The error for an upstream that broke off.
    pub(crate) fn cut(&self, detail: &str) -> ProxyError {
        ProxyError::UpstreamCut { host: self.shared.upstream.clone(), detail: detail.to_owned() }
    }

    /// Whether people read texts of their own about the upstream's errors.
    pub(crate) fn is_friendly(&self) -> bool {
        self.shared.settings.upstream.errors == Errors::Friendly && !self.is_observing()
    }

    /// Whether errors inside of successful replies get a status of their own.
    pub(crate) fn gives_status(&self) -> bool {
        self.shared.settings.upstream.error_in_200 == ErrorIn200::Status && !self.is_observing()
    }

    /// The status and the body for an error that came whole; `None` where it stays as it came.
    pub(crate) fn restated(&self, status: u16, error: &UpstreamError, raw: &Bytes) -> Option<(u16, Bytes)> {
        let meant = if is_success(status) { status_of(error) } else { status };
        let friendly = self.friendly(meant, raw);
        let new = if is_success(status) && self.gives_status() { meant } else { status };
        let is_changed = friendly.is_some() || new != status;
        is_changed.then(|| (new, friendly.unwrap_or_else(|| raw.clone())))
    }

    /// The body of an error with this status in a stream.
    pub(crate) fn error_in_stream(&self, status: u16, body: &[u8]) -> Bytes {
        self.friendly(status, body).unwrap_or_else(|| Bytes::copy_from_slice(body))
    }

    /// The error with this status for people, where that is wanted and the error is not clear by itself.
    fn friendly(&self, status: u16, body: &[u8]) -> Option<Bytes> {
        let friendly = self.is_friendly().then(|| friendly_body(status, body)).flatten()?;
        Some(self.dialect.error_for_people(status, friendly))
    }
}

/// A core for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::price::Price;
    use crate::settings::{
        BrokenHistory, ConversationSettings, InFlight, Models, NoticeSettings, Overflow, PlacementChoice,
        ReaskSettings, Settings, Tell, ToolsUnsupported, Unjudged, UpstreamSettings, WaitSettings,
    };
    use dialects::CHAT;
    use dialects::reply::Limits;
    use model::identity::HashKey;
    use model::memo::NoMemo;
    use model::summaries::NoSummaries;
    use std::collections::HashMap;
    use std::time::Duration;

    struct NoModels;

    impl Models for NoModels {
        fn token_factor(&self, _model: &str) -> u32 {
            100
        }

        fn context_window(&self, _model: &str) -> Option<u32> {
            None
        }

        fn price(&self, _model: &str) -> Option<&Price> {
            None
        }
    }

    /// The core of the chat request `body`, under `policies` and settings that try every other form.
    pub(crate) fn core(body: &str, policies: PolicySet) -> Core {
        let (shared, arrived) = arrived(CHAT, body, settings(policies));
        Core::new(shared, arrived, Box::default())
    }

    /// Settings with these `policies` that try every other form.
    pub(crate) fn settings(policies: PolicySet) -> Settings {
        Settings {
            mode: Mode::Enforce,
            policies,
            profiles: HashMap::new(),
            limits: Limits { event: 1 << 20, held: 1 << 20, reply: 1 << 20 },
            upstream: UpstreamSettings {
                tools_unsupported: ToolsUnsupported::Retry,
                tools_unsupported_tell: Tell::Header,
                overflow: Overflow::Retry,
                broken_history: BrokenHistory::Repair,
                errors: Errors::Plain,
                error_in_200: ErrorIn200::Pass,
                unjudged: Unjudged::Refuse,
                remember: Duration::from_secs(3600),
                ask_usage: AskUsage::Never,
            },
            strict_store: false,
            conversation: ConversationSettings {
                holdout: 0,
                in_flight: InFlight::Pass,
                in_flight_wait: Duration::ZERO,
            },
            notices: NoticeSettings { placement: PlacementChoice::Auto, system_models: Vec::new() },
            reask: ReaskSettings { max: 3, answer_tools: Arc::new([]) },
            waits: WaitSettings { heartbeat: Duration::from_secs(15), after_end: Duration::from_secs(2) },
            models: Arc::new(NoModels),
        }
    }

    /// The request `body` under these settings.
    pub(crate) fn arrived(dialect: AnyDialect, body: &str, settings: Settings) -> (Arc<Shared>, Arrived) {
        let key = HashKey::fixed(1);
        let shared = Shared {
            settings: Arc::new(settings),
            memo: Arc::new(NoMemo),
            key: key.clone(),
            secret: HashKey::fixed(2),
            upstream: "upstream".to_owned(),
            summaries: Arc::new(NoSummaries),
        };
        let body = Bytes::copy_from_slice(body.as_bytes());
        let arrived = Arrived {
            dialect,
            request: dialect.read(&body).unwrap(),
            body,
            identity: Identity { key, caller: Hash(1), explicit: None },
            profile: None,
            tier: None,
            reports: false,
            path: "/v1/chat/completions".to_owned(),
        };
        (Arc::new(shared), arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_given_in_order_and_what_is_taken_back_follows_what_was_put_before_it() {
        let mut core = testing::core(r#"{"messages":[]}"#, PolicySet::default());
        core.output(Output::Dismiss);
        let given = core.take_outputs();
        core.store(Writes::default());
        core.output(Output::Done);
        core.output_all(given);
        assert!(matches!(core.next_output(), Some(Output::Done)), "nothing new is not stored");
        assert!(matches!(core.next_output(), Some(Output::Dismiss)));
        assert!(core.next_output().is_none());
    }
}
