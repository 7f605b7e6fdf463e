//! The replay of one conversation: each recorded request is an exchange, driven without a network up to its first
//! upstream request and its decisions on the recorded calls; everything is counted. Decides nothing, and keeps nothing
//! between conversations except facts derived from equal bytes.

use super::input::InputPosition;
use super::live::LiveCounts;
use super::one::{NoObserver, ObservedRequest, Observer};
use super::recording::{Recording, Step};
use super::tally::{Acts, Conversation, Event, Figures, Use};
use super::times::Clock;
use super::{Enforced, Options};
use crate::config::Config;
use crate::secret::random_key;
use bytes::Bytes;
use dialects::AnyDialect;
use dialects::prefix::read_request;
use dialects::variant::PlannedRequest;
use engine::judging::Judged;
use engine::offline::{OfflineStore, Pending, advance};
use engine::store::MOST_LOOKED_UP;
use engine::{Answer, Arrived, Effect, EffectResult, Exchange, Input, Now, Outgoing, Shared, WholeReply};
use model::account::Carried;
use model::fact::{Answers, Batch, RecordList, Writes};
use model::identity::{Hash, HashKey, Identity};
use model::pins::Pinned;
use model::plan::decision::Decision;
use model::plan::texts::removed_tokens;
use model::plan::{Change, Edit, Plan, Refusal};
use model::released::{NOTHING_HIDDEN, Release};
use model::store::SentBeginning;
use model::summaries::NoSummaries;
use state::memo::MemoCache;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes compared at once to find the common prefix of two texts.
const STRIDE: usize = 4096;
/// The path of all requests, which is part of a model's name.
const PATH: &str = "/v1/chat/completions";

/// What all conversations share.
pub(super) struct Replayer {
    config: Arc<Config>,
    shared: Arc<Shared>,
    /// Used for every model.
    profile: Option<Arc<str>>,
    key: HashKey,
    started: Instant,
    pace: Duration,
    /// Record each action.
    verbose: bool,
}

impl Replayer {
    /// A replayer with the policies of `config`.
    pub(super) fn new(config: &Enforced, options: &Options) -> Self {
        let key = random_key();
        let shared = Shared {
            settings: Arc::new(config.0.engine_settings()),
            memo: Arc::new(MemoCache::new(config.0.store.memo_bytes)),
            key: key.clone(),
            secret: random_key(),
            upstream: String::new(),
            summaries: Arc::new(NoSummaries),
        };
        let profile = options.profile.as_ref().and_then(|name| config.0.profiles.named(name).ok());
        Self {
            config: Arc::clone(&config.0),
            shared: Arc::new(shared),
            profile: profile.map(|profile| Arc::clone(&profile.name)),
            key,
            started: Instant::now(),
            pace: options.pace,
            verbose: options.verbose,
        }
    }

    /// Replays one conversation.
    pub(super) fn replay(&self, position: InputPosition, recording: &Recording) -> Conversation {
        self.replay_observed(&mut NoObserver, position, recording)
    }

    /// Replays one conversation and reports each step to `observer`.
    pub(super) fn replay_observed(
        &self,
        observer: &mut dyn Observer,
        position: InputPosition,
        recording: &Recording,
    ) -> Conversation {
        let tools = if self.verbose { recording.answered_tools(&self.identity()) } else { Vec::new() };
        let mut replay = ReplayInProgress {
            replayer: self,
            recording,
            tools,
            observer,
            clock: Clock::new(self.pace),
            released_ms: Vec::new(),
            before: None,
            figures: Figures::default(),
            acts: BTreeMap::new(),
            limits: BTreeMap::new(),
            carried: HashMap::new(),
            follows_texts: false,
            events: Vec::new(),
            pinned: Vec::new(),
            sent: HashMap::new(),
        };
        for step in recording.steps() {
            let (is_after, before) = (replay.figures.is_stopped(), replay.figures.clone());
            replay.take(&step);
            if is_after {
                replay.figures.count_after(&before);
            }
        }
        let ReplayInProgress { figures, acts, limits, events, .. } = replay;
        let tools = recording.tools(figures.requests);
        let (labels, live_counts) = (recording.labels.clone(), LiveCounts::of(&recording.live));
        Conversation { position, labels, figures, acts, limits, tools, events, live_counts }
    }

    fn identity(&self) -> Identity {
        Identity { key: self.key.clone(), caller: Hash::default(), explicit: None }
    }

    /// The exchange of a request; `None` where it cannot be read.
    fn begin(&self, dialect: AnyDialect, body: &Bytes, now: Now) -> Option<Exchange> {
        let request = read_request(dialect, body, &self.key, &*self.shared.memo).ok()?;
        let of_model = || self.config.profiles.of_model(&request.model_name(body));
        let profile = self.profile.clone();
        let profile = profile.or_else(|| of_model().map(|profile| Arc::clone(&profile.name)));
        let (body, identity, path) = (body.clone(), self.identity(), PATH.to_owned());
        let arrived = Arrived { dialect, body, request, identity, profile, tier: None, reports: false, path };
        Some(Exchange::begin(Arc::clone(&self.shared), arrived, Box::default(), now))
    }

    fn at(&self, ms: u64) -> Now {
        Now { at: self.started, ms }
    }
}

/// A replay in progress.
struct ReplayInProgress<'a> {
    replayer: &'a Replayer,
    recording: &'a Recording,
    /// See [`Recording::answered_tools`]; empty unless actions are recorded.
    tools: Vec<Option<String>>,
    observer: &'a mut dyn Observer,
    clock: Clock,
    /// When each call so far was released; `None`: blocked, or made before the first request.
    released_ms: Vec<Option<u64>>,
    /// The messages of the previous request, as they would have been sent, without the brackets.
    before: Option<Bytes>,
    figures: Figures,
    acts: BTreeMap<&'static str, Acts>,
    limits: BTreeMap<(&'static str, String), Use>,
    /// The account as a state store would know it.
    carried: HashMap<Hash, Arc<Carried>>,
    /// Later requests depend on replies without calls too: on what they cost, or that they came.
    follows_texts: bool,
    events: Vec<Event>,
    /// The definitions of tools that a policy has remembered.
    pinned: Vec<Pinned>,
    /// How earlier requests were sent, where what the model thinks is bound to that.
    sent: HashMap<Hash, SentBeginning>,
}

impl ReplayInProgress<'_> {
    /// One request and its reply.
    fn take(&mut self, step: &Step) {
        let body = self.recording.body_of(step.history);
        let recorded_ms = self.recording.times_ms.get(step.reply.start).copied().flatten();
        let now = self.replayer.at(recorded_ms.unwrap_or(self.clock.now_ms));
        let Some(mut exchange) = self.replayer.begin(self.recording.dialect, &body, now) else { return };
        self.figures.requests += 1;
        let sent = self.drive(&mut exchange, step, now);
        let plan = exchange.inspect().plan();
        let Some(outgoing) = sent else {
            self.observer.request(&ObservedRequest { history: step.history, plan, sent: None });
            if let Some(refusal) = &plan.refusal {
                self.refuse(refusal, step);
            }
            return;
        };
        self.planned(plan, step.history);
        self.send((&body, plan), &outgoing);
        self.observer.request(&ObservedRequest { history: step.history, plan, sent: Some(&outgoing) });
        self.judge(&mut exchange, step);
    }

    /// What the exchange would send first; `None` where a policy refuses the request.
    fn drive(&mut self, exchange: &mut Exchange, step: &Step, now: Now) -> Option<Outgoing> {
        let mut before = Before { replay: self, history: step.history };
        while let Some(pending) = advance(exchange, &mut before, now) {
            if let Pending::Send(outgoing) = pending {
                return Some(outgoing);
            }
        }
        None
    }

    /// The facts that the store would give: when the newest calls were released, and the account.
    fn look_up(&mut self, history: usize, mut batch: Batch) -> Answers {
        // Calls of messages that answered no request, such as a greeting, were never judged.
        self.released_ms.resize(self.recording.calls_before(history), None);
        let newest: Vec<Option<u64>> = self.released_ms.iter().rev().take(MOST_LOOKED_UP).copied().collect();
        batch.answer(|index, _| {
            let at_ms = newest.get(index).copied().flatten()?;
            let release = Release { context: Hash::default(), hidden: NOTHING_HIDDEN, at_ms };
            Some(Arc::new(RecordList::from([release])))
        });
        self.follows_texts = false;
        batch.answer(|_, key| {
            self.follows_texts = true;
            self.carried.get(&key).map(|carried| Arc::new(RecordList::from([Arc::clone(carried)])))
        });
        batch.answer(|_, key| {
            self.follows_texts = true;
            self.sent.get(&key).map(|sent| Arc::new(RecordList::from([*sent])))
        });
        batch.answer(|_, _| Some(Arc::new(self.pinned.iter().copied().collect::<RecordList<Pinned>>())));
        Answers { facts: batch.facts, ..Answers::default() }
    }

    /// Counts a refused request: it would not have been sent, so its calls would never have been made.
    fn refuse(&mut self, refusal: &Refusal, step: &Step) {
        let calls: usize = step.reply.clone().map(|at| self.recording.request.messages[at].calls.len()).sum();
        self.figures.rejected += 1;
        self.figures.calls += calls as u64;
        self.figures.blocked += calls as u64;
        let acts = self.acts.entry(refusal.policy).or_default();
        acts.rejected += 1;
        acts.blocked += calls as u64;
        acts.acted += 1;
        self.record_action(step.history - 1, refusal.policy, "rejected", (None, Some(refusal.code)));
    }

    /// Counts what is new in the plan, and what all of it saves.
    fn planned(&mut self, plan: &Plan, history: usize) {
        let new_from = self.recording.new_from(history);
        if self.figures.requests == 1 {
            for (policy, tool) in &plan.hidden {
                self.acts.entry(policy).or_default().acted += 1;
                self.record_action(0, policy, "hidden", (Some(tool), None));
            }
        }
        self.figures.tokens_saved += removed_tokens(plan).values().sum::<u64>();
        for Edit { item, decided, policy, change } in plan.effective_edits() {
            let acts = self.acts.entry(policy).or_default();
            acts.tokens_saved += change.saved_tokens();
            if *decided < new_from {
                continue;
            }
            let of_text = change.gone_chars() > 0 || matches!(change, Change::Surround { .. });
            let tool = self.tools.get(item.index).filter(|_| of_text).cloned().flatten();
            let word = change.word();
            acts.acted += u64::from(!matches!(change, Change::Remark { .. }));
            acts.notices += u64::from(matches!(change, Change::Notice { .. }));
            self.record_action(item.index, policy, word, (tool.as_deref(), None));
        }
    }

    /// Compares what would have been sent with what was recorded and with the previous request.
    fn send(&mut self, (body, plan): (&Bytes, &Plan), outgoing: &Outgoing) {
        let length = length(outgoing);
        self.figures.bytes_before += body.len() as u64;
        self.figures.bytes_after += length as u64;
        for (policy, written) in parts(self.recording.dialect, (body, plan), outgoing) {
            self.acts.entry(policy).or_default().bytes_saved += body.len() as i64 - written as i64;
        }
        let Some(messages) = messages_in(self.recording.dialect, outgoing) else { return };
        if let Some(before) = self.before.replace(messages.clone()) {
            let kept = agreeing(&before, &messages);
            self.figures.prefix_bytes += before.len() as u64;
            self.figures.prefix_kept += kept as u64;
            self.figures.prefix_breaks += u64::from(kept < before.len());
        }
    }

    /// Judges the recorded calls as one reply, which is complete at the time of its last call.
    fn judge(&mut self, exchange: &mut Exchange, step: &Step) {
        let recording = self.recording;
        let mut times = Vec::new();
        for at in step.reply.clone() {
            let calls = recording.request.messages[at].calls.iter();
            times.extend(calls.map(|_| self.clock.call(recording.times_ms[at])));
        }
        // Text is not judged.
        let is_refused = (!times.is_empty() || self.follows_texts) && self.reply(exchange, step);
        let mut record = exchange.inspect().judging().map_or_else(Vec::new, |judging| judging.record.clone());
        let mut times = times.into_iter();
        for at in step.reply.clone() {
            for (position, call) in recording.request.messages[at].calls.iter().enumerate() {
                let judged = take_judged(&mut record, recording.named(call));
                let is_blocked = judged.as_ref().map_or(is_refused, |judged| is_blocked(&judged.decision));
                self.figures.calls += 1;
                self.figures.blocked += u64::from(is_blocked);
                self.released_ms.push(times.next().filter(|_| !is_blocked));
                if let Some(judged) = judged {
                    self.observer.judged(at, position, &judged);
                    self.acted(&judged, at, is_blocked);
                }
            }
        }
        for (policy, usage) in
            exchange.inspect().judging().map_or_else(Vec::new, |it| it.usage(self.clock.now_ms))
        {
            let found = Use { used: usage.used, limit: usage.limit };
            self.limits.entry((policy, usage.tool)).or_default().raise(found);
        }
    }

    /// Gives the exchange the recorded reply. Returns whether the client would get an error of ours instead.
    fn reply(&mut self, exchange: &mut Exchange, step: &Step) -> bool {
        let now = self.replayer.at(self.clock.now_ms);
        let body = Ok(self.recording.reply_of(step));
        exchange.handle(Input::Reply(WholeReply { id: 0, status: 200, body }), now);
        let (mut is_refused, mut longest_ms) = (false, 0);
        let started_ms = self.clock.now_ms;
        let mut before = Before { replay: self, history: step.history };
        while let Some(pending) = advance(exchange, &mut before, now) {
            match pending {
                // The time passes at once.
                Pending::Effect(id, Effect::Sleep { ms }) => {
                    longest_ms = longest_ms.max(ms);
                    let then = before.replay.replayer.at(started_ms.saturating_add(ms));
                    exchange.handle(Input::Finished(id, EffectResult::Slept(true)), then);
                }
                // In a replay nobody can be asked.
                Pending::Effect(id, effect) => exchange.handle(Input::Finished(id, effect.failure()), now),
                Pending::Answer(Answer::Error(_)) => is_refused = true,
                Pending::Answer(_) => {}
                // What the model would say if it were asked again is not known.
                Pending::Send(_) => break,
            }
        }
        self.clock.wait(longest_ms);
        is_refused
    }

    /// Records what policies did to a call: the objections where it was blocked, otherwise other actions.
    fn acted(&mut self, judged: &Judged, at: usize, is_blocked: bool) {
        if !is_blocked {
            for (policy, word) in &judged.acts {
                self.acts.entry(policy).or_default().acted += 1;
                self.record_action(at, policy, *word, (Some(&judged.tool), None));
            }
            return;
        }
        for (policy, reason) in &judged.objections {
            let acts = self.acts.entry(policy).or_default();
            acts.acted += 1;
            acts.blocked += 1;
            self.record_action(at, policy, "blocked", (Some(&judged.tool), Some(reason.kind.as_str())));
        }
    }

    fn record_action(
        &mut self,
        message: usize,
        policy: &'static str,
        action: impl Into<Cow<'static, str>>,
        (tool, reason): (Option<&str>, Option<&str>),
    ) {
        let action = action.into();
        *self.acts.entry(policy).or_default().actions.entry(action.clone()).or_default() += 1;
        if self.replayer.verbose {
            let (tool, reason) = (tool.map(str::to_owned), reason.map(str::to_owned));
            self.events.push(Event { message, policy, action, tool, reason });
        }
    }
}

/// What is known before a request of the replay.
struct Before<'a, 'b> {
    replay: &'a mut ReplayInProgress<'b>,
    /// How many messages the request has.
    history: usize,
}

impl OfflineStore for Before<'_, '_> {
    fn look_up(&mut self, batch: Batch) -> Answers {
        self.replay.look_up(self.history, batch)
    }

    fn learn(&mut self, mut writes: Writes) {
        self.replay.carried.extend(writes.take::<Arc<Carried>>());
        self.replay.sent.extend(writes.take::<SentBeginning>());
        self.replay.pinned.extend(writes.take::<Pinned>().into_iter().map(|(_, pin)| pin));
    }
}

/// Whether the client does not see the call, and toolrein did not answer it either.
fn is_blocked(decision: &Decision) -> bool {
    !decision.is_released() && !matches!(decision, Decision::Answer { .. } | Decision::Clarify { .. })
}

/// The decision on the call of this id and name. A call that contains others has an entry for each of these, with their
/// names and its own id: the last of them is the result for it.
fn take_judged(record: &mut Vec<Judged>, (id, name): (Cow<'_, str>, Cow<'_, str>)) -> Option<Judged> {
    let own = record.iter().position(|judged| judged.id == id && judged.tool == name);
    let at = own.or_else(|| record.iter().rposition(|judged| judged.id == id))?;
    Some(record.remove(at))
}

fn length(outgoing: &Outgoing) -> usize {
    outgoing.pieces.iter().map(Bytes::len).sum()
}

/// How long the request would be if only one policy changed it, for each policy.
fn parts(
    dialect: AnyDialect,
    (body, plan): (&Bytes, &Plan),
    outgoing: &Outgoing,
) -> Vec<(&'static str, usize)> {
    let edits = plan.edits.iter().map(|edit| edit.policy);
    let dropped = plan.dropped.iter().map(|dropped| dropped.policy);
    let hidden = plan.hidden.iter().map(|(policy, _)| *policy);
    let declared = plan.declared.iter().map(|declared| declared.policy);
    let mut policies: Vec<&'static str> = edits.chain(dropped).chain(hidden).chain(declared).collect();
    policies.sort_unstable();
    policies.dedup();
    if let [only] = policies.as_slice() {
        return vec![(*only, length(outgoing))];
    }
    let request = if policies.is_empty() { None } else { dialect.read(body).ok() };
    let Some(request) = &request else { return Vec::new() };
    let alone = |policy: &'static str| {
        let mut alone = Plan::default();
        alone.edits = plan.edits.iter().filter(|edit| edit.policy == policy).cloned().collect();
        alone.dropped = plan.dropped.iter().filter(|dropped| dropped.policy == policy).cloned().collect();
        alone.hidden = plan.hidden.iter().filter(|(by, _)| *by == policy).cloned().collect();
        alone.declared = plan.declared.iter().filter(|declared| declared.policy == policy).cloned().collect();
        let source = PlannedRequest::new(body, request, &alone);
        (policy, dialect.write(&source, &outgoing.variant).len())
    };
    policies.into_iter().map(alone).collect()
}

/// The messages of a request as it would have been sent, without the brackets.
fn messages_in(dialect: AnyDialect, outgoing: &Outgoing) -> Option<Bytes> {
    let body = joined(outgoing);
    let span = dialect.read(&body).ok()?.messages_span;
    (span.len() > 1).then(|| body.slice(span.range().start + 1..span.range().end - 1))
}

/// A request as it would have been sent, in one piece.
pub(super) fn joined(outgoing: &Outgoing) -> Bytes {
    match outgoing.pieces.as_slice() {
        [whole] => whole.clone(),
        pieces => pieces.concat().into(),
    }
}

/// The length of the common prefix, in bytes.
fn agreeing(one: &[u8], other: &[u8]) -> usize {
    let strides = one.chunks(STRIDE).zip(other.chunks(STRIDE));
    let whole = strides.take_while(|(one, other)| one == other).map(|(one, _)| one.len()).sum::<usize>();
    let rest = one[whole..].iter().zip(&other[whole..]);
    whole + rest.take_while(|(one, other)| one == other).count()
}
