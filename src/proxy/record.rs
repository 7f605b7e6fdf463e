//! The record of one client request while it runs: filled in on the way, told once at the end, also where the
//! client leaves before the end. Decides nothing.

use super::error::ProxyError;
use crate::policy::plan::Plan;
use crate::rewrite::judging::{Decision, Judged, Judging};
use crate::rewrite::stream::Unjudged;
use crate::rewrite::texts::saved_tokens;
use crate::telemetry::Telemetry;
use crate::telemetry::endpoint::{Endpoint, shown};
use crate::telemetry::outcome::{
    Consent, Fallback, JudgedCall, LimitUse, NewResult, On, Outcome, PrefixBreak, Regret, Route, Said,
    Verdict, actions_header,
};
use crate::transcript::ToolResult;
use crate::wire::usage::Usage;
use hyper::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The policy's name under which fallbacks are told.
pub(crate) const TOOLS_UNSUPPORTED: &str = "tools_unsupported";
/// Headers by which clients name a request. Names that are parsed already: a third of the cost of a look-up.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Under which upstreams name a request, beside [`REQUEST_ID`]: Anthropic's.
static OTHER_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// What acted, for the client.
const ACTIONS: &str = "x-toolrein-actions";
/// Longest value of a client's header that is kept for the log.
const MAX_HEADER_BYTES: usize = 128;

/// An outcome that is recorded when it is dropped: nothing that ends a request can lose it.
pub(crate) struct Record {
    /// In a box, since it is large and goes from hand to hand.
    pub(crate) outcome: Box<Outcome>,
    telemetry: Telemetry,
    started: Instant,
    /// When the part of the path that is under way began.
    lap: Instant,
    ended: bool,
    /// The calls that wait for a person's word, by their numbers.
    held: Vec<(u32, JudgedCall)>,
}

impl Record {
    /// The record of the request with these `headers`.
    pub(crate) fn begin(
        telemetry: &Telemetry,
        route: Route,
        headers: &HeaderMap,
        mode: &'static str,
    ) -> Self {
        let mut outcome = Box::new(Outcome::new(route));
        outcome.mode = mode;
        outcome.request_id = text(headers, &REQUEST_ID).unwrap_or_else(next_id);
        outcome.traceparent = text(headers, &TRACEPARENT);
        let started = Instant::now();
        Self { outcome, telemetry: telemetry.clone(), started, lap: started, ended: false, held: Vec::new() }
    }

    /// What the request asks for.
    pub(crate) fn asks_for(&mut self, method: &Method, uri: &Uri) {
        self.outcome.method = method.as_str().to_owned();
        self.outcome.path = shown(uri.path()).into_owned();
        self.outcome.endpoint = match self.outcome.route {
            // However its path is spelled.
            Route::Chat => Endpoint::ChatCompletions,
            Route::Relay | Route::Upgrade => Endpoint::of(uri.path()),
        };
    }

    /// The upstream is sent a request.
    pub(crate) fn sends(&mut self) {
        self.outcome.upstream_requests += 1;
    }

    /// What came of it: the head of a response, or an error before which it may not have been sent.
    pub(crate) fn sent(&mut self, came: Result<&HeaderMap, &ProxyError>) {
        match came {
            Ok(headers) => {
                let id = text(headers, &REQUEST_ID).or_else(|| text(headers, &OTHER_REQUEST_ID));
                self.outcome.upstream_request_id = id.or(self.outcome.upstream_request_id.take());
            }
            Err(error) if !error.is_sent() => self.outcome.upstream_requests -= 1,
            Err(_) => {}
        }
    }

    /// A part of the path has ended that was our own work.
    pub(crate) fn own_time(&mut self) {
        let passed = self.lapped();
        self.outcome.times.overhead += passed;
    }

    /// Our own work has ended, and the reply goes out whole.
    pub(crate) fn answers(&mut self) {
        self.own_time();
        let passed = self.lap.saturating_duration_since(self.started);
        self.outcome.times.first_byte.get_or_insert(passed);
        self.outcome.times.total = passed;
    }

    /// A part has ended in which the upstream was waited for.
    pub(crate) fn upstream_time(&mut self) {
        let passed = self.lapped();
        self.outcome.times.upstream += passed;
    }

    /// A part has ended in which the client or a person was waited for.
    pub(crate) fn rested(&mut self) {
        self.lap = Instant::now();
    }

    /// So much of the part under way is told elsewhere.
    pub(crate) fn leave_out(&mut self, waited: Duration) {
        self.lap += waited;
    }

    /// When the part under way began: as good as now where no part before it was waited for.
    pub(crate) fn lap(&self) -> Instant {
        self.lap
    }

    fn lapped(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut self.lap, now))
    }

    /// The first byte of the reply's body goes out.
    pub(crate) fn first_byte(&mut self) {
        let started = self.started;
        self.outcome.times.first_byte.get_or_insert_with(|| started.elapsed());
    }

    /// A piece of a body of this length goes out; `None`: the body has ended.
    pub(crate) fn passes(&mut self, length: Option<usize>) {
        match length {
            Some(length) => {
                self.first_byte();
                self.outcome.reply_bytes += length as u64;
            }
            None => self.end(),
        }
    }

    /// The request has come to its end.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// What acted and in which conversation, told in the reply's head.
    pub(crate) fn write_head(&self, headers: &mut HeaderMap, explicit: Option<&str>) {
        let acted = actions_header(&self.outcome.actions, self.outcome.tokens.saved);
        if let Some(value) = acted.as_deref().and_then(|acted| HeaderValue::from_str(acted).ok()) {
            headers.insert(ACTIONS, value);
        }
        let conversation = explicit.or(self.outcome.conversation.as_deref().filter(|_| acted.is_some()));
        if let Some(value) = conversation.and_then(|name| HeaderValue::from_str(name).ok()) {
            headers.insert(&super::caller::CONVERSATION, value);
        }
    }

    /// What was planned for the request; of the history only what is new, from the message `new_from` on.
    pub(crate) fn planned(&mut self, plan: &Plan, new_from: usize) {
        for (policy, _) in &plan.hidden {
            self.outcome.act(On::Request, policy, "hidden", 1);
        }
        self.outcome.tokens.saved += saved_tokens(plan);
        for dropped in plan.dropped.iter().filter(|dropped| dropped.decided >= new_from) {
            self.outcome.act(On::Request, dropped.policy, "turns_dropped", 1);
        }
        for edit in plan.told() {
            if edit.decided >= new_from {
                self.outcome.act(On::Request, edit.policy, edit.change.word(), 1);
            }
        }
    }

    /// What is new in the plan, from the message `new_from` on, and makes the history another than the one before.
    pub(crate) fn breaks(&mut self, plan: &Plan, new_from: usize) {
        let causes = [
            (plan.cleared().any(|edit| edit.decided >= new_from), PrefixBreak::Compact),
            (plan.dropped.iter().any(|dropped| dropped.decided >= new_from), PrefixBreak::History),
        ];
        let breaks = causes.into_iter().filter_map(|(happened, cause)| happened.then_some(cause));
        self.outcome.prefix_breaks.extend(breaks);
    }

    /// Cut results that were asked for once more, by calls whose results are new in the request.
    pub(crate) fn regrets(&mut self, plan: &Plan, new_from: usize) {
        for regret in plan.regrets.iter().filter(|regret| regret.message >= new_from) {
            self.outcome.regrets.push(Regret { tool: regret.tool.to_string(), on: On::Request });
        }
    }

    /// A result that is new in the request.
    pub(crate) fn result(&mut self, result: &ToolResult<'_>) {
        self.outcome.results.push(NewResult {
            tool: result.tool().to_owned(),
            bytes: result.view.text_bytes() as u64,
            tokens: result.view.about_tokens().tokens(),
            took: result.took_ms.map(Duration::from_millis),
        });
    }

    /// What became of the reply's calls since this was told last, and what is left of the limits.
    pub(crate) fn judged(&mut self, judging: &mut Judging, now_ms: u64) {
        for judged in judging.record.drain(..) {
            let verdict = match &judged.decision {
                Decision::Release => Verdict::Allow,
                Decision::Rewrite { .. } => Verdict::Modify,
                Decision::Answer { .. } => Verdict::Answer,
                Decision::Withhold { .. } | Decision::Drop => Verdict::Block,
                Decision::Ask { .. } | Decision::Hold { .. } => Verdict::Ask,
            };
            if let Some(tool) = judged.regret.clone() {
                self.outcome.regrets.push(Regret { tool, on: On::Reply });
            }
            for (policy, word) in &judged.acts {
                self.outcome.act(On::Reply, policy, *word, 1);
            }
            // Every objection is told, also where the call is only observed.
            for (policy, _) in &judged.objections {
                self.outcome.act(On::Reply, policy, "withheld", 1);
            }
            self.outcome.judged.push(JudgedCall {
                tool: judged.tool.clone(),
                id: judged.id.clone(),
                verdict,
                unjudged: judged.unjudged,
                said: said_of(&judged),
                is_spoken: judged.decision.is_hidden(),
            });
        }
        let limits = judging.usage(now_ms).into_iter();
        self.outcome.usage_of_limits = limits
            .map(|(policy, usage)| LimitUse {
                policy: Some(policy),
                tool: usage.tool,
                used: usage.used,
                limit: usage.limit,
            })
            .collect();
    }

    /// A call waits for a person's word under the number `id`; if the client leaves before it comes, it was `call`.
    pub(crate) fn held(&mut self, id: u32, call: JudgedCall) {
        self.held.push((id, call));
    }

    /// It waits no longer.
    pub(crate) fn held_ended(&mut self, id: u32, how: Consent) {
        self.held.retain(|(held, _)| *held != id);
        self.outcome.confirmations.push(how);
    }

    /// Tokens as billed, summed over all replies.
    pub(crate) fn usage(&mut self, usage: Usage) {
        self.outcome.implausible_usage = usage.implausible;
        let tokens = &mut self.outcome.tokens;
        tokens.prompt = usage.prompt;
        tokens.cached = usage.cached;
        tokens.cache_written = usage.cache_written;
        tokens.completion = usage.completion;
        tokens.reasoning = usage.reasoning;
    }

    /// Something passed unjudged.
    pub(crate) fn unjudged(&mut self, why: &'static str) {
        if !self.outcome.unjudged.contains(&why) {
            self.outcome.unjudged.push(why);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.outcome.client_gone = !self.ended;
        for (_, call) in self.held.drain(..) {
            self.outcome.confirmations.push(Consent::Left);
            self.outcome.judged.push(call);
        }
        if self.outcome.times.total.is_zero() {
            self.outcome.times.total = self.started.elapsed();
        }
        self.telemetry.record(&self.outcome);
    }
}

/// What policies said of a call: their objections, or what else was done to it.
fn said_of(judged: &Judged) -> Vec<Said> {
    let objections = judged.objections.iter();
    let objections = objections.map(|(policy, reason)| Said { policy, reason: reason.kind.as_str() });
    let acts = judged.acts.iter().map(|(policy, word)| Said { policy, reason: word });
    objections.chain(acts).collect()
}

/// What a fallback is called among actions.
pub(crate) fn word(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Tools => "dropped",
        Fallback::ToolChoice => "choice_dropped",
        other => other.as_str(),
    }
}

/// As in the metric's label.
pub(crate) fn label(why: Unjudged) -> &'static str {
    match why {
        Unjudged::EventTooLong => "event_too_long",
        Unjudged::HeldTooMuch => "held_too_much",
        Unjudged::ReplyTooLong => "reply_too_long",
        Unjudged::NotJson => "not_json",
        Unjudged::Ambiguous => "ambiguous",
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (value.len() <= MAX_HEADER_BYTES).then(|| value.to_owned())
}

/// A name for a request that came without one, unique in this process.
fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("tr-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
