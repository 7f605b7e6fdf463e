//! One conversation replayed: request after request read through the policies and rewritten as the proxy would,
//! each recorded call judged, everything counted. Calls the same steps of the core as the path of a request;
//! opens no connection and keeps nothing between conversations but what was derived from equal bytes.

use super::Options;
use super::input::Place;
use super::one::{Nobody, Sight, Witness};
use super::recording::{Recording, Step};
use super::tally::{Acts, Conversation, Event, Figures, Use};
use super::times::Clock;
use crate::config::{Config, Profile};
use crate::exchange::fallback::placement;
use crate::ledger::memory::MemoCache;
use crate::ledger::{MOST_LOOKED_UP, ModelFacts};
use crate::policy::plan::{Change, Edit, Plan, Refusal};
use crate::policy::set::Judge;
use crate::rewrite::judging::{AnswerTools, Decision, Judging, Known};
use crate::rewrite::pass::{Pass, Source};
use crate::rewrite::splice::Rope;
use crate::rewrite::texts::saved_tokens;
use crate::secret::random_key;
use crate::transcript::Transcript;
use crate::transcript::identity::{Hash, Identity};
use crate::wire::assemble::Assembler;
use crate::wire::call::ToolCall;
use crate::wire::request::Request;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes compared at once where it is looked for how far two texts agree.
const STRIDE: usize = 4096;

/// What all conversations share.
pub(super) struct Replayer<'a> {
    config: &'a Config,
    /// Taken whatever the model.
    profile: Option<&'a Profile>,
    memo: MemoCache,
    identity: Identity,
    pace: Duration,
    /// Remember what was done, one by one.
    verbose: bool,
}

impl<'a> Replayer<'a> {
    /// Replays by `config`.
    pub(super) fn new(config: &'a Config, options: &Options) -> Self {
        let identity = Identity { key: random_key(), principal: Hash::default(), explicit: None };
        let profile = options.profile.as_ref().and_then(|name| config.profiles.named(name).ok());
        let (pace, verbose) = (options.pace, options.verbose);
        Self { config, profile, memo: MemoCache::new(config.ledger.memo_bytes), identity, pace, verbose }
    }

    /// Replays one conversation.
    pub(super) fn replay(&self, place: Place, recording: &Recording) -> Conversation {
        self.replay_before(&mut Nobody, place, recording)
    }

    /// Replays one conversation while `witness` looks on.
    pub(super) fn replay_before(
        &self,
        witness: &mut dyn Witness,
        place: Place,
        recording: &Recording,
    ) -> Conversation {
        let mut course = Course {
            replayer: self,
            recording,
            witness,
            clock: Clock::new(self.pace),
            released_ms: Vec::new(),
            before: None,
            figures: Figures::default(),
            acts: BTreeMap::new(),
            limits: BTreeMap::new(),
            events: Vec::new(),
        };
        for step in recording.steps() {
            course.take(&step);
        }
        let Course { figures, acts, limits, events, .. } = course;
        Conversation { place, labels: recording.labels.clone(), figures, acts, limits, events }
    }
}

/// A conversation on its way.
struct Course<'a> {
    replayer: &'a Replayer<'a>,
    recording: &'a Recording,
    witness: &'a mut dyn Witness,
    clock: Clock,
    /// When each call so far was let through; `None`: withheld, or made before the first request.
    released_ms: Vec<Option<u64>>,
    /// The messages of the request before, as they would have gone out, without the brackets.
    before: Option<Bytes>,
    figures: Figures,
    acts: BTreeMap<&'static str, Acts>,
    limits: BTreeMap<(&'static str, String), Use>,
    events: Vec<Event>,
}

impl Course<'_> {
    /// One request and its reply.
    fn take(&mut self, step: &Step) {
        let body = self.recording.body_of(step.history);
        let Ok(request) = Request::parse(&body) else { return };
        let config = self.replayer.config;
        let mut transcript = Transcript::read(&request, &body, &self.replayer.identity, &self.replayer.memo);
        let model = request.model_name(&body);
        transcript.token_factor = config.token_factor(&model);
        transcript.context_window = config.context_window(&model);
        // Calls of messages that answered no request, such as a greeting, were never judged.
        self.released_ms.resize(transcript.calls.calls.len(), None);
        let newest: Vec<_> = self.released_ms.iter().rev().take(MOST_LOOKED_UP).copied().collect();
        let recorded_ms = self.recording.times_ms.get(step.reply.start).copied().flatten();
        transcript.learn_times(&newest, recorded_ms.unwrap_or(self.clock.now_ms));
        let profile = self.replayer.profile.or_else(|| config.profiles.of_model(&model));
        let (plan, judge) = config.policies_of(profile).read(&transcript);
        self.figures.requests += 1;
        let (choice, listed) = (config.notices.placement, &config.notices.system_models);
        let placement = placement(choice, listed, &model, ModelFacts::default());
        if let Some(refusal) = &plan.refusal {
            self.witness.request(&Sight { history: step.history, plan: &plan, placement, sent: None });
            return self.refuse(refusal, step);
        }
        self.planned(&plan, &transcript);
        let pass = Pass::plain(placement);
        let out = self.send(Source { body: &body, request: &request, plan: &plan, restored: &[] }, &pass);
        self.witness.request(&Sight { history: step.history, plan: &plan, placement, sent: Some(&out) });
        let answers = AnswerTools::of(&request, &body, &config.reask.answer_tools);
        self.judge(judge, answers, step);
    }

    /// The request would not have gone out, and so its calls would never have been made.
    fn refuse(&mut self, refusal: &Refusal, step: &Step) {
        let calls: usize = step.reply.clone().map(|at| self.recording.request.messages[at].calls.len()).sum();
        self.figures.rejected += 1;
        self.figures.calls += calls as u64;
        self.figures.withheld += calls as u64;
        let acts = self.acts.entry(refusal.policy).or_default();
        acts.rejected += 1;
        acts.withheld += calls as u64;
        acts.acted += 1;
        self.tell(step.history - 1, refusal.policy, "rejected", (None, Some(refusal.code)));
    }

    /// Counts what is new in the plan, and what all of it saves.
    fn planned(&mut self, plan: &Plan, transcript: &Transcript<'_>) {
        let new_from = transcript.last_assistant().map_or(0, |last| last + 1);
        if self.figures.requests == 1 {
            for (policy, tool) in &plan.hidden {
                self.acts.entry(policy).or_default().acted += 1;
                self.tell(0, policy, "hidden", (Some(tool), None));
            }
        }
        self.figures.tokens_saved += saved_tokens(plan);
        for Edit { message, decided, policy, change } in plan.told() {
            let acts = self.acts.entry(policy).or_default();
            acts.tokens_saved += change.saved_tokens();
            if *decided < new_from {
                continue;
            }
            let of_text = change.gone_chars() > 0 || matches!(change, Change::Surround { .. });
            let tool = transcript.calls.answered_by(*message).filter(|_| of_text).map(|call| &*call.name);
            let word = change.word();
            acts.acted += u64::from(!matches!(change, Change::Remark { .. }));
            acts.notices += u64::from(matches!(change, Change::Notice { .. }));
            self.tell(*message, policy, word, (tool, None));
        }
    }

    /// Compares what would have gone out with what was recorded and with the request before.
    fn send(&mut self, source: Source<'_>, pass: &Pass) -> Rope {
        let out = source.write(pass);
        self.figures.bytes_before += source.body.len() as u64;
        self.figures.bytes_after += out.len() as u64;
        for (policy, written) in parts(&source, pass, &out) {
            let saved = source.body.len() as i64 - written as i64;
            self.acts.entry(policy).or_default().bytes_saved += saved;
        }
        let Some(messages) = messages_in(&out, &source) else { return out };
        if let Some(before) = self.before.replace(messages.clone()) {
            let kept = agreeing(&before, &messages);
            self.figures.prefix_bytes += before.len() as u64;
            self.figures.prefix_kept += kept as u64;
            self.figures.prefix_breaks += u64::from(kept < before.len());
        }
        out
    }

    /// Judges the recorded calls in order.
    fn judge(&mut self, judge: Judge, answers: AnswerTools, step: &Step) {
        let mut judging = Judging::new(judge, answers, false);
        let recording = self.recording;
        for at in step.reply.clone() {
            for (position, call) in recording.request.messages[at].calls.iter().enumerate() {
                let now_ms = self.clock.call(recording.times_ms[at]);
                let decision = decide(&mut judging, call, &recording.body, now_ms);
                self.figures.calls += 1;
                let withheld = matches!(decision, Decision::Withhold { .. } | Decision::Drop);
                self.released_ms.push((!withheld).then_some(now_ms));
                if let Some(judged) = judging.record.last() {
                    self.witness.judged(at, position, judged);
                }
                if withheld {
                    self.withheld(&judging, at);
                } else {
                    self.done(&judging, at);
                }
            }
        }
        for (policy, usage) in judging.usage(self.clock.now_ms) {
            let found = Use { used: usage.used, limit: usage.limit };
            self.limits.entry((policy, usage.tool)).or_default().raise(found);
        }
    }

    /// The call judged last was withheld: every policy that objected is told.
    fn withheld(&mut self, judging: &Judging, at: usize) {
        self.figures.withheld += 1;
        let Some(judged) = judging.record.last() else { return };
        for (policy, reason) in &judged.objections {
            let acts = self.acts.entry(policy).or_default();
            acts.acted += 1;
            acts.withheld += 1;
            self.tell(at, policy, "withheld", (Some(&judged.tool), Some(reason.kind.as_str())));
        }
    }

    /// What was done to the call judged last beside objecting to it.
    fn done(&mut self, judging: &Judging, at: usize) {
        let Some(judged) = judging.record.last() else { return };
        for (policy, word) in &judged.acts {
            self.acts.entry(policy).or_default().acted += 1;
            self.tell(at, policy, *word, (Some(&judged.tool), None));
        }
    }

    fn tell(
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

fn decide(judging: &mut Judging, call: &ToolCall, body: &[u8], now_ms: u64) -> Decision {
    let mut assembler = Assembler::default();
    let at = assembler.begin(call, body);
    judging.decide(0, &assembler.calls()[at.call], Known::Whole, now_ms)
}

/// How long the request would be if each policy that changes it were alone.
fn parts(source: &Source<'_>, pass: &Pass, out: &Rope) -> Vec<(&'static str, usize)> {
    let edits = source.plan.edits.iter().map(|edit| edit.policy);
    let dropped = source.plan.dropped.iter().map(|dropped| dropped.policy);
    let hidden = source.plan.hidden.iter().map(|(policy, _)| *policy);
    let declared = source.plan.declared.iter().map(|declared| declared.policy);
    let mut policies: Vec<&'static str> = edits.chain(dropped).chain(hidden).chain(declared).collect();
    policies.sort_unstable();
    policies.dedup();
    if let [only] = policies.as_slice() {
        return vec![(*only, out.len())];
    }
    let alone = |policy: &'static str| {
        let mut plan = Plan::default();
        plan.edits = source.plan.edits.iter().filter(|edit| edit.policy == policy).cloned().collect();
        plan.dropped =
            source.plan.dropped.iter().filter(|dropped| dropped.policy == policy).cloned().collect();
        plan.hidden = source.plan.hidden.iter().filter(|(by, _)| *by == policy).cloned().collect();
        plan.declared =
            source.plan.declared.iter().filter(|declared| declared.policy == policy).cloned().collect();
        (policy, Source { plan: &plan, ..*source }.write(pass).len())
    };
    policies.into_iter().map(alone).collect()
}

/// The messages of a request as it would have gone out, without the brackets.
fn messages_in(out: &Rope, source: &Source<'_>) -> Option<Bytes> {
    let body = out.join();
    let span = match out.pieces() {
        [_] if out.len() == source.body.len() => source.request.messages_span,
        _ => Request::parse(&body).ok()?.messages_span,
    };
    Some(body.slice(span.range().start + 1..span.range().end - 1))
}

/// With how many bytes both begin.
fn agreeing(one: &[u8], other: &[u8]) -> usize {
    let strides = one.chunks(STRIDE).zip(other.chunks(STRIDE));
    let whole = strides.take_while(|(one, other)| one == other).map(|(one, _)| one.len()).sum::<usize>();
    let rest = one[whole..].iter().zip(&other[whole..]);
    whole + rest.take_while(|(one, other)| one == other).count()
}
