//! The newest conversations: who has them, when their calls were made and what was decided on them, how much of each limit
//! they have used. No texts but the sentences that policies wrote to the model.

use super::BOUNDS;
use super::hold_out::{Comparison, Cost, comparison};
use crate::telemetry::projection::{CallWithDecision, calls_of};
use model::record::{LimitUse, On, REJECTED, RequestRecord, Verdict};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Calls that are kept of each conversation.
const MOST_CALLS: usize = 200;
/// Decisions that are kept of each conversation.
const MOST_DECISIONS: usize = 50;
/// Limits that are kept of each conversation.
const MOST_LIMITS: usize = 50;
/// Policies whose blocking ends an agent that does not stop by itself.
const ENDING: [&str; 3] = ["budget", "loops", "turn_limits"];

/// See the module's documentation.
pub(super) struct Conversations {
    most: usize,
    with_decisions: bool,
    next: u64,
    by_id: HashMap<Arc<str>, (u64, Conversation)>,
    /// Ids in the order of their newest requests.
    order: BTreeMap<u64, Arc<str>>,
}

/// One conversation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Conversation {
    pub id: String,
    pub model: Option<String>,
    pub profile: Option<String>,
    /// A keyed hash of the caller's credential.
    pub caller: Option<String>,
    pub requests: u64,
    /// Requests that a policy refused.
    pub refused: u64,
    /// User messages that began or continued it.
    pub turns: u64,
    pub calls: u64,
    pub blocked: u64,
    /// The policy that blocked the first of them.
    pub first_blocked_by: Option<&'static str>,
    pub tokens_removed: u64,
    /// Added by notices, or billed for asking again.
    pub tokens_added: u64,
    /// The beginning of its first request, in ms since the epoch.
    pub started_ms: u64,
    /// The end of its newest request, in ms since the epoch.
    pub last_ms: u64,
    /// From its beginning to the end of its newest request.
    pub duration_ms: u64,
    /// The policies that acted on it.
    pub policies: BTreeSet<&'static str>,
    /// Its newest calls, the oldest first.
    #[serde(skip)]
    pub timed_calls: VecDeque<TimedCall>,
    /// The newest decisions of policies on its calls, the oldest first.
    #[serde(skip)]
    pub decisions: VecDeque<CallDecision>,
    /// After its newest request.
    #[serde(skip)]
    pub limits: Vec<LimitUse>,
    #[serde(skip)]
    pub(super) cost: Cost,
    /// It belongs to the control group.
    #[serde(skip)]
    pub(super) is_held_out: bool,
    /// The greatest share of each policy's limits in this turn.
    #[serde(skip)]
    pub(super) shares: BTreeMap<&'static str, f64>,
    /// A policy has ended this turn.
    #[serde(skip)]
    pub(super) is_ended: bool,
}

/// When a call was made, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimedCall {
    /// The end of the reply that made it, in ms since the epoch.
    pub at_ms: u64,
    pub tool: String,
    pub verdict: &'static str,
    /// From its release to the request with its result.
    pub took_ms: Option<u64>,
    /// What its result was: `ok`, `empty` or `failed`; `None`: it has not come.
    pub outcome: Option<&'static str>,
}

/// What was decided on one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallDecision {
    pub at_ms: u64,
    pub tool: String,
    pub verdict: &'static str,
    pub policy: Option<&'static str>,
    pub used: Option<u64>,
    pub limit: Option<u64>,
    /// What the model was shown, or the reason's name.
    pub message: Option<String>,
}

/// What a request meant for its conversation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Met {
    /// The request follows no results: a user speaks.
    pub(super) is_new_turn: bool,
    /// A policy ended the turn, for the first time in it.
    pub(super) is_runaway: bool,
    /// Of each policy with a limit, the greatest share in this turn: before (`None` at its beginning), and now.
    pub(super) shares: Vec<(&'static str, Option<f64>, f64)>,
}

impl Conversations {
    pub(super) fn new(most: usize, with_decisions: bool) -> Self {
        Self { most, with_decisions, next: 0, by_id: HashMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn bound(&mut self, most: usize, with_decisions: bool) {
        (self.most, self.with_decisions) = (most, with_decisions);
        if !with_decisions {
            self.by_id.values_mut().for_each(|(_, conversation)| conversation.forget_decisions());
        }
        self.shrink();
    }

    /// Takes in a governed request.
    pub(super) fn record(&mut self, record: &RequestRecord, now_ms: u64) -> Met {
        let Some(id) = record.conversation.as_deref().filter(|_| record.route.is_governed()) else {
            return Met::default();
        };
        let nth = self.next;
        self.next += 1;
        let conversation = if let Some((known_nth, conversation)) = self.by_id.get_mut(id) {
            if let Some(id) = self.order.remove(known_nth) {
                self.order.insert(nth, id);
            }
            *known_nth = nth;
            conversation
        } else {
            let key: Arc<str> = id.into();
            self.order.insert(nth, Arc::clone(&key));
            let conversation = Conversation { id: id.to_owned(), ..Conversation::default() };
            &mut self.by_id.entry(key).insert_entry((nth, conversation)).into_mut().1
        };
        let met = conversation.record(record, now_ms);
        if self.with_decisions {
            conversation.keep_decisions(record, now_ms);
        }
        self.shrink();
        met
    }

    pub(super) fn of(&self, id: &str) -> Option<&Conversation> {
        self.by_id.get(id).map(|(_, conversation)| conversation)
    }

    pub(super) fn list(
        &self,
        fits: impl Fn(&Conversation) -> bool,
        offset: usize,
        most: usize,
    ) -> (usize, Vec<Conversation>) {
        let (mut total, mut listed) = (0, Vec::new());
        let newest = self.order.values().rev().filter_map(|id| self.of(id));
        for conversation in newest.filter(|conversation| fits(conversation)) {
            if total >= offset && listed.len() < most {
                listed.push(conversation.without_decisions());
            }
            total += 1;
        }
        (total, listed)
    }

    /// The control group beside the others.
    pub(super) fn hold_out(&self) -> Comparison {
        comparison(self.by_id.values().map(|(_, conversation)| conversation))
    }

    fn shrink(&mut self) {
        while self.by_id.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.by_id.remove(&oldest);
        }
    }
}

impl Conversation {
    fn record(&mut self, record: &RequestRecord, now_ms: u64) -> Met {
        let is_new_turn = record.results.is_empty() && !record.repeated;
        if is_new_turn {
            (self.shares, self.is_ended) = (BTreeMap::new(), false);
        }
        replace(&mut self.model, record.model.as_deref());
        replace(&mut self.profile, record.profile.as_deref());
        replace(&mut self.caller, record.caller.as_deref());
        self.requests += 1;
        if self.requests == 1 {
            self.started_ms = now_ms.saturating_sub(millis(record.times.total));
        }
        self.turns += u64::from(is_new_turn);
        let is_rejected = record.actions.iter().any(|act| act.on == On::Request && act.action == REJECTED);
        self.refused += u64::from(is_rejected && record.error.is_some());
        self.cost.turns += u64::from(is_new_turn);
        self.cost.tokens += record.tokens.prompt;
        self.is_held_out |= record.context.held_out;
        (self.last_ms, self.duration_ms) = (now_ms, now_ms.saturating_sub(self.started_ms));
        self.calls += record.judged.len() as u64;
        for tokens in &record.policy_tokens {
            self.tokens_removed += tokens.removed;
            self.tokens_added += tokens.added + tokens.reasked;
        }
        self.policies.extend(record.actions.iter().map(|action| action.policy));
        let mut is_runaway = false;
        for call in &record.judged {
            let is_blocked = call.verdict == Verdict::Block;
            self.blocked += u64::from(is_blocked);
            if is_blocked && self.first_blocked_by.is_none() {
                self.first_blocked_by = call.decisions.first().map(|decision| decision.policy);
            }
            if is_blocked
                && !self.is_ended
                && call.decisions.iter().any(|decision| ENDING.contains(&decision.policy))
            {
                (self.is_ended, is_runaway) = (true, true);
            }
        }
        Met { is_new_turn, is_runaway, shares: self.shares(&record.usage_of_limits) }
    }

    /// Keeps the calls of the reply, and what came of those before.
    fn keep_calls(&mut self, record: &RequestRecord, now_ms: u64) {
        for result in record.results.iter().filter(|_| !record.repeated) {
            // The results of a request answer the calls of the reply before it, mostly in their order.
            let is_open =
                |call: &&mut TimedCall| call.outcome.is_none() && call.verdict != Verdict::Block.as_str();
            let name = BOUNDS.name(&result.tool);
            let call = self.timed_calls.iter_mut().filter(is_open).find(|call| call.tool == *name);
            if let Some(call) = call {
                (call.took_ms, call.outcome) = (result.took.map(millis), Some(result.outcome.as_str()));
            }
        }
        for call in &record.judged {
            if self.timed_calls.len() >= MOST_CALLS {
                self.timed_calls.pop_front();
            }
            let (tool, verdict) = (BOUNDS.name(&call.tool).into_owned(), call.verdict.as_str());
            self.timed_calls.push_back(TimedCall {
                at_ms: now_ms,
                tool,
                verdict,
                took_ms: None,
                outcome: None,
            });
        }
    }

    fn keep_decisions(&mut self, record: &RequestRecord, now_ms: u64) {
        self.keep_calls(record, now_ms);
        let is_kept =
            |call: &CallWithDecision<'_>| call.judged.verdict != Verdict::Allow || call.policy().is_some();
        for call in calls_of(record).filter(is_kept) {
            if self.decisions.len() >= MOST_DECISIONS {
                self.decisions.pop_front();
            }
            self.decisions.push_back(CallDecision::new(call, now_ms));
        }
        if !record.usage_of_limits.is_empty() {
            self.limits = record.usage_of_limits.iter().take(MOST_LIMITS).cloned().collect();
        }
    }

    fn forget_decisions(&mut self) {
        (self.timed_calls, self.decisions, self.limits) = (VecDeque::new(), VecDeque::new(), Vec::new());
    }

    /// What a list shows of it.
    fn without_decisions(&self) -> Self {
        Self {
            id: self.id.clone(),
            model: self.model.clone(),
            profile: self.profile.clone(),
            caller: self.caller.clone(),
            policies: self.policies.clone(),
            timed_calls: VecDeque::new(),
            decisions: VecDeque::new(),
            limits: Vec::new(),
            shares: BTreeMap::new(),
            ..*self
        }
    }

    /// Takes in how much of each limit is used now.
    fn shares(&mut self, limits: &[LimitUse]) -> Vec<(&'static str, Option<f64>, f64)> {
        let mut now: BTreeMap<&'static str, f64> = BTreeMap::new();
        for limit in limits {
            let share = limit.used as f64 / limit.limit.max(1) as f64;
            let greatest = limit.policy.map(|policy| now.entry(policy).or_default());
            greatest.into_iter().for_each(|greatest| *greatest = greatest.max(share));
        }
        now.into_iter()
            .map(|(policy, share)| {
                let before = self.shares.get(policy).copied();
                self.shares.insert(policy, before.unwrap_or_default().max(share));
                (policy, before, share)
            })
            .collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Keeps the `newest` text, where there is one.
fn replace(kept: &mut Option<String>, newest: Option<&str>) {
    if kept.as_deref() == newest {
        return;
    }
    let newest = newest.map(|text| BOUNDS.text(text));
    if newest.is_some() && kept.as_deref() != newest.as_deref() {
        *kept = newest.map(Cow::into_owned);
    }
}

impl CallDecision {
    fn new(call: CallWithDecision<'_>, at_ms: u64) -> Self {
        let (judged, limit) = (call.judged, call.limit());
        Self {
            at_ms,
            tool: BOUNDS.name(&judged.tool).into_owned(),
            verdict: judged.verdict.as_str(),
            policy: call.policy(),
            used: limit.map(|limit| limit.used),
            limit: limit.map(|limit| limit.limit),
            message: judged.explanation().map(|message| BOUNDS.text(message).into_owned()),
        }
    }
}
