//! The totals of this process since its start: requests, calls by verdict, tokens and money by model and policy, errors,
//! what was relayed without being governed, and the last 60 minutes.

use super::conversations::Met;
use super::sketch::{Percentiles, Sketch};
use crate::telemetry::bounded;
use model::record::{Endpoint, RequestRecord, Route, Verdict};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The most models that are kept apart.
const MOST_MODELS: usize = 50;
/// All further models.
const OTHER: &str = "other";
const MINUTES: usize = 60;
const MINUTE_MS: u64 = 60_000;

/// See the module's documentation.
pub(super) struct Totals {
    started_ms: u64,
    requests: u64,
    turns: u64,
    runaways: u64,
    calls: [u64; 5],
    models: BTreeMap<String, ModelTotals>,
    policies: BTreeMap<&'static str, PolicyTotals>,
    ungoverned: BTreeMap<&'static str, u64>,
    errors: BTreeMap<u16, u64>,
    overhead_ms: Sketch,
    /// The oldest first; minutes without requests are left out.
    minutes: VecDeque<Minute>,
}

/// The totals at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub started_ms: u64,
    pub now_ms: u64,
    pub requests: u64,
    pub turns: u64,
    pub runaways: u64,
    /// In the order of [`VERDICTS`].
    pub calls: [u64; 5],
    pub models: Vec<ModelTotals>,
    pub policies: Vec<PolicyTotals>,
    /// Requests to LLM endpoints that were relayed without being governed.
    pub ungoverned: Vec<(&'static str, u64)>,
    /// By the status that the client got; 0: it left before there was one.
    pub errors: Vec<(u16, u64)>,
    pub overhead_ms: Percentiles,
    /// The last 60 minutes, the oldest first.
    pub minutes: Vec<Minute>,
}

/// The order of calls by verdict.
pub const VERDICTS: [Verdict; 5] =
    [Verdict::Allow, Verdict::Block, Verdict::Modify, Verdict::Answer, Verdict::Ask];

/// What one model did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelTotals {
    pub model: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// In US dollars; null where the model's price is not known.
    pub cost_usd: Option<f64>,
    /// Tokens removed from its requests, minus those added and those billed for asking again.
    #[serde(skip)]
    pub net_tokens: i64,
}

/// What one policy did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyTotals {
    pub policy: &'static str,
    /// Calls that it blocked.
    pub block: u64,
    /// Tokens, as in [`model::record::PolicyTokens`].
    pub removed: u64,
    pub added: u64,
    pub reasked: u64,
    /// Removed, minus added, minus reasked.
    pub net: i64,
}

/// What happened in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Minute {
    /// Its beginning, in ms since the epoch.
    pub at_ms: u64,
    pub requests: u64,
    pub blocked: u64,
    pub removed: u64,
    pub added: u64,
}

impl Totals {
    pub(super) fn starting(now_ms: u64) -> Self {
        Self {
            started_ms: now_ms,
            requests: 0,
            turns: 0,
            runaways: 0,
            calls: [0; 5],
            models: BTreeMap::new(),
            policies: BTreeMap::new(),
            ungoverned: BTreeMap::new(),
            errors: BTreeMap::new(),
            overhead_ms: Sketch::default(),
            minutes: VecDeque::new(),
        }
    }

    pub(super) fn record(&mut self, record: &RequestRecord, now_ms: u64, met: &Met) {
        self.requests += 1;
        self.turns += u64::from(met.is_new_turn);
        self.runaways += u64::from(met.is_runaway);
        if record.status >= 400 || record.status == 0 {
            *self.errors.entry(record.status).or_default() += 1;
        }
        self.overhead_ms.add(record.times.overhead.as_secs_f64() * 1e3);
        if let Some(endpoint) = ungoverned(record) {
            *self.ungoverned.entry(endpoint.as_str()).or_default() += 1;
        }
        let mut minute = Minute { requests: 1, ..Minute::default() };
        for call in &record.judged {
            let at = VERDICTS.iter().position(|verdict| *verdict == call.verdict).unwrap_or_default();
            self.calls[at] += 1;
            if call.verdict == Verdict::Block {
                minute.blocked += 1;
                call.decisions.first().into_iter().for_each(|first| self.policy(first.policy).block += 1);
            }
        }
        for tokens in &record.policy_tokens {
            minute.removed += tokens.removed;
            minute.added += tokens.added + tokens.reasked;
            let totals = self.policy(tokens.policy);
            totals.removed += tokens.removed;
            totals.added += tokens.added;
            totals.reasked += tokens.reasked;
            totals.net += signed(tokens.removed) - signed(tokens.added) - signed(tokens.reasked);
        }
        if record.route.is_governed() && record.ungoverned.is_none() {
            self.model(record, signed(minute.removed) - signed(minute.added));
        }
        self.pass(minute, now_ms);
    }

    pub(super) fn snapshot(&self, now_ms: u64) -> Snapshot {
        let oldest = minute_of(now_ms).saturating_sub(MINUTE_MS * (MINUTES as u64 - 1));
        Snapshot {
            started_ms: self.started_ms,
            now_ms,
            requests: self.requests,
            turns: self.turns,
            runaways: self.runaways,
            calls: self.calls,
            models: self.models.values().cloned().collect(),
            policies: self.policies.values().cloned().collect(),
            ungoverned: self.ungoverned.iter().map(|(endpoint, count)| (*endpoint, *count)).collect(),
            errors: self.errors.iter().map(|(status, count)| (*status, *count)).collect(),
            overhead_ms: self.overhead_ms.percentiles(),
            minutes: self.minutes.iter().filter(|minute| minute.at_ms >= oldest).copied().collect(),
        }
    }

    fn policy(&mut self, policy: &'static str) -> &mut PolicyTotals {
        self.policies.entry(policy).or_insert_with(|| PolicyTotals { policy, ..PolicyTotals::default() })
    }

    fn model(&mut self, record: &RequestRecord, net_tokens: i64) {
        let name = bounded::name(record.model.as_deref().unwrap_or("none"));
        let is_kept = self.models.contains_key(&*name) || self.models.len() < MOST_MODELS;
        let name = if is_kept { name.into_owned() } else { OTHER.to_owned() };
        let model = self.models.entry(name.clone()).or_default();
        model.model = name;
        model.requests += 1;
        model.input_tokens += record.tokens.prompt;
        model.output_tokens += record.tokens.completion;
        if let Some(nanodollars) = record.cost {
            *model.cost_usd.get_or_insert_default() += nanodollars as f64 / 1e9;
        }
        model.net_tokens += net_tokens;
    }

    /// Adds to the present minute.
    fn pass(&mut self, passed: Minute, now_ms: u64) {
        let at_ms = minute_of(now_ms);
        // A clock that was set back adds to the newest minute.
        if self.minutes.back().is_none_or(|newest| newest.at_ms < at_ms) {
            self.minutes.push_back(Minute { at_ms, ..Minute::default() });
        }
        while self.minutes.len() > MINUTES {
            self.minutes.pop_front();
        }
        if let Some(newest) = self.minutes.back_mut() {
            newest.requests += passed.requests;
            newest.blocked += passed.blocked;
            newest.removed += passed.removed;
            newest.added += passed.added;
        }
    }
}

/// The LLM endpoint whose request was relayed without being governed.
fn ungoverned(record: &RequestRecord) -> Option<Endpoint> {
    let is_llm = matches!(
        record.endpoint,
        Endpoint::ChatCompletions
            | Endpoint::Responses
            | Endpoint::Completions
            | Endpoint::Messages
            | Endpoint::Bedrock
            | Endpoint::Realtime
    );
    let is_relayed = matches!(record.route, Route::Relay | Route::Upgrade) || record.ungoverned.is_some();
    // What toolrein refused, such as a WebSocket, was not passed on.
    (is_llm && is_relayed && record.error.is_none()).then_some(record.endpoint)
}

fn minute_of(ms: u64) -> u64 {
    ms - ms % MINUTE_MS
}

fn signed(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}
