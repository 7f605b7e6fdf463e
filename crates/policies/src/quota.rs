//! Quotas: limits on a caller's calls over all of its conversations.
//!
//! # What it does
//! The tools of a quota may be called `calls` times within any window of `per` by one caller, all of them together and
//! whatever the conversation; callers of a tier that `tiers` names have its number instead. A call over the quota is
//! blocked; the model reads how many calls were used, how many are allowed and when the next one is. Parallel calls of
//! one reply are judged in order. With `exhausted = "reject"` a turn is refused that could call nothing but what is used
//! up. With `notify` the model is shown how many calls are left: once when there are no more than that, and once when
//! there are none. It is shown after the results of a call that counts, as of the request that brings them.
//!
//! # Why
//! What costs money or storage is budgeted for a customer, not for a conversation: a new conversation must not begin
//! a new quota. Calls are counted before they are handed out. A client that sends a request again because its answer
//! was lost is not charged twice for the same call (tool and arguments), up to the three tries of the usual clients within a
//! quarter of an hour. Any other call that the model makes then counts.
//!
//! # State
//! When calls of each quota were handed out to this caller: facts of the state store, since a conversation knows
//! nothing of the others. All requests with the same credentials are one caller; all without credentials are one too.
//! A state store in memory counts for its process alone and starts from zero with it. A call is reserved there before it is
//! handed out, so that requests at the same time do not exceed the quota together. While a shared one is away, each process
//! counts for itself, or with `store_away = "block"` nothing of a quota may be called. A replay knows one
//! conversation, and counts the calls of each reply alone. A notice stays where it was placed, whatever becomes of the
//! quota: the store keeps it with the account of the conversation, for `store.ttl` after each reply.
//!
//! # Example
//! With `limits = { images = { tools = ["*image*"], calls = 20, per = "5h" } }` the 21st image within five hours is
//! blocked with `RATE_LIMIT`, `used = 20`, `limit = 20`, `remaining = 0`, `window_ms = 18000000`, the wait in
//! `retry_after_ms` and its end in `reset_at`. With `tiers = { guest = 3 }` so is the fourth of callers without a key.

mod settings;
mod spent;
#[cfg(test)]
mod tests;
mod texts;

pub use self::settings::Config;
use self::settings::{Exhausted, Limit, StoreAway};
use self::spent::{QuotaUse, Spent};
use self::texts::{AWAY, BLOCKED, CLOSED, NOTICE, REFUSED};
use super::about::{About, Accounting, Counted, EngineService, NO_LIMITS, list_tools};
use super::pattern::{Pattern, best_concern};
use super::texts::{Text, Texts};
use super::{ConfigError, FactKeys, Policy, RequestView};
use model::Event;
use model::fact::{Answers, Batch};
use model::identity::Hash;
use model::plan::{
    CallEffect, Finding, Plan, Proposed, Reason, ReasonKind, RequestEnd, Reservation, ReservationResult,
    Usage, Verdict, rfc3339,
};
use std::fmt::Display;
use std::sync::Arc;

/// When a call is worth another try while the state store is away, in ms: its connection is tried again sooner.
const AWAY_RETRY_MS: u64 = 5_000;

/// See the module.
pub struct Quota {
    limits: Vec<Limit>,
    /// Names and patterns of tools, each with the index of its quota.
    tools: Vec<(Pattern, usize)>,
    exhausted: Exhausted,
    store_away: StoreAway,
    notify: usize,
    texts: Texts,
}

impl Policy for Quota {
    const NAME: &'static str = "quota";
    const SUMMARY: &'static str =
        "limits how often a caller may call certain tools, over all its conversations";
    const TEXTS: &'static [Text] = &[BLOCKED, CLOSED, AWAY, NOTICE, REFUSED];
    type Config = Config;
    type State = Spent;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        config.check()
    }

    fn about(&self) -> About {
        let tools = |quota: usize| {
            let tools = self.tools.iter().filter(move |(_, of)| *of == quota);
            tools.map(|(tool, _)| tool.clone()).collect()
        };
        let named_tools = self.tools.iter().flat_map(|(tool, quota)| {
            let name = self.limits.get(*quota).map_or("", |limit| &*limit.name);
            list_tools(format!("limits.{name}.tools"), [tool])
        });
        let named_tools = named_tools.collect();
        let counted = self.limits.iter().enumerate().map(|(at, limit)| Counted {
            name: Arc::clone(&limit.name),
            tools: tools(at),
            calls: limit.most_calls(),
            window_ms: limit.per.millis(),
            tiers: limit.tiers.keys().cloned().collect(),
        });
        let idle = self.limits.is_empty().then_some(NO_LIMITS);
        let reserves = idle.is_none().then_some(EngineService::ReserveCalls);
        // The store keeps its notices there.
        let account =
            (self.notify > 0 && idle.is_none()).then(|| EngineService::KeepAccount(Accounting::default()));
        let counted = counted.map(EngineService::CountCalls);
        About {
            named_tools,
            engine: counted.chain(reserves).chain(account).collect(),
            idle,
            ..About::default()
        }
    }

    /// The quotas themselves are in the batch, since the engine counts their calls.
    fn ask(&self, _request: &FactKeys<'_>, _batch: &mut Batch) -> Option<Spent> {
        (!self.limits.is_empty()).then(Spent::default)
    }

    fn receive(&self, answers: &Answers, spent: &mut Spent) {
        spent.known.clone_from(&answers.spent);
        spent.is_away = (answers.away || answers.unwritten) && self.store_away == StoreAway::Block;
    }

    fn open(&self, request: &RequestView<'_>, spent: &mut Spent, _plan: &mut Plan) {
        let key = if self.limits.is_empty() { Hash::default() } else { request.transcript.request_key() };
        let known = std::mem::take(&mut spent.known);
        let uses = self.limits.iter().enumerate().map(|(at, limit)| {
            let uses = known.get(at).map_or(&[][..], Vec::as_slice);
            QuotaUse::new(
                limit.of_tier(request.transcript.tier.as_deref()),
                uses,
                key,
                request.transcript.now_ms,
            )
        });
        spent.uses = uses.collect();
        (spent.key, spent.request) = (Some(request.transcript.identity.key.clone()), key);
        (spent.messages, spent.now_ms) = (request.transcript.len(), request.transcript.now_ms);
        spent.account = request.transcript.account.clone().filter(|_| self.notify > 0);
        if self.exhausted == Exhausted::Reject && !request.transcript.request.declares_elsewhere {
            let tools =
                request.tools.iter().map(|tool| self.used_up(&tool.name, spent, request.transcript.now_ms));
            // The first tool's reason, if there is one for each of them.
            spent.refusal = tools.reduce(|first, other| other.and(first)).flatten();
        }
    }

    fn read(&self, event: &Event<'_>, spent: &mut Spent, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => spent.has_called = false,
            Event::Call(call) => {
                spent.has_called = true;
                let of = best_concern(&self.tools, &call.name).and_then(|at| spent.uses.get_mut(*at));
                if let Some(of) = of {
                    of.is_called = true;
                }
            }
            Event::Assistant(_) => spent.uses.iter_mut().for_each(|of| of.is_called = false),
            Event::User(view) | Event::ResultsComplete(view) => self.announce(view.index, spent, plan),
            _ => {}
        }
    }

    fn close(&self, spent: &Spent, plan: &mut Plan) {
        // A turn that runs ends in an answer.
        if let Some(reason) = spent.refusal.as_ref().filter(|_| !spent.has_called) {
            let (message, reason) = (reason.message.clone(), Some(reason.clone()));
            plan.end(RequestEnd::Refusal { code: "quota_exhausted", message, reason });
        }
    }

    fn judge(&self, call: &Proposed<'_>, spent: &Spent) -> Verdict {
        let Some((quota, limit, of)) = self.of(call.name, spent) else { return Verdict::Allow };
        let Some(most) = of.allowed else { return Verdict::Allow };
        let key = spent.key_of(call);
        let again = key.and_then(|key| of.again(key));
        if most > 0 && spent.is_away && again.is_none() && !(key.is_none() && of.has_again()) {
            return Verdict::Block(self.uncounted(call.name));
        }
        let over = if again.is_some() { None } else { self.over(call.name, spent, call.now_ms) };
        let Some(call_key) = key else {
            // Whether it counts depends on its arguments.
            let is_over = over.filter(|_| most == 0 || !of.has_again());
            return is_over.map_or(Verdict::NeedsArguments, Verdict::Block);
        };
        if let Some(reason) = over {
            return Verdict::Block(reason);
        }
        if spent.is_away && again.is_some() {
            return Verdict::Allow;
        }
        let reservation = Reservation::Quota { quota, most, call: call_key, request: spent.request, again };
        match call.results.reserved(&reservation) {
            None => Verdict::Pending(CallEffect::Reserve(reservation)),
            Some(ReservationResult::Granted { alone: true })
                if self.store_away == StoreAway::Block && again.is_none() =>
            {
                Verdict::Block(self.uncounted(call.name))
            }
            Some(ReservationResult::Granted { .. }) => Verdict::Allow,
            Some(ReservationResult::UsedUp { times, .. }) => {
                Verdict::Block(self.full(limit, call.name, most, times, call.now_ms))
            }
        }
    }

    fn release(&self, call: &Proposed<'_>, spent: &mut Spent) {
        let key = spent.key_of(call);
        let of = best_concern(&self.tools, call.name).and_then(|at| spent.uses.get_mut(*at));
        if let Some(of) = of {
            of.hand_out(key, call.now_ms);
        }
    }

    fn usage(&self, spent: &Spent, now_ms: u64) -> Vec<Usage> {
        let rows = self.limits.iter().zip(&spent.uses).filter_map(|(limit, of)| {
            let (used, most) = (limit.per.inside(&of.all_times(), now_ms).len() as u64, of.allowed?);
            (used > 0).then(|| Usage { tool: limit.name.to_string(), used, limit: most as u64 })
        });
        rows.collect()
    }
}

impl Quota {
    /// The quota of a tool with its index, and what is used of it.
    fn of<'a>(&'a self, tool: &str, spent: &'a Spent) -> Option<(usize, &'a Limit, &'a QuotaUse)> {
        let at = *best_concern(&self.tools, tool)?;
        Some((at, self.limits.get(at)?, spent.uses.get(at)?))
    }

    /// Why a call of `tool` at `now_ms` is over its quota, if it is.
    fn over(&self, tool: &str, spent: &Spent, now_ms: u64) -> Option<Reason> {
        let (_, limit, of) = self.of(tool, spent)?;
        let most = of.allowed?;
        let times = of.all_times();
        let is_full = most == 0 || limit.per.inside(&times, now_ms).len() >= most;
        is_full.then(|| self.full(limit, tool, most, &times, now_ms))
    }

    /// Why no call of `tool` is left at `now_ms`, where calls were handed out at these times, oldest first.
    fn full(&self, limit: &Limit, tool: &str, most: usize, times: &[u64], now_ms: u64) -> Reason {
        if most == 0 {
            let message = self.texts.fill(&CLOSED, &[("name", &limit.name), ("tool", &tool)]);
            return Reason::new(ReasonKind::RateLimit, message).with(vec![
                ("used", 0),
                ("limit", 0),
                ("remaining", 0),
            ]);
        }
        let inside = limit.per.inside(times, now_ms);
        let used = inside.len();
        // The wait ends when so many calls have left the window that one more fits.
        let first = inside.get(used.saturating_sub(most)).copied().unwrap_or(now_ms);
        let reset_ms = first.saturating_add(limit.per.millis());
        self.reason(&BLOCKED, limit, tool, (used, most), (now_ms, reset_ms))
    }

    /// The same as the reason to refuse a request.
    fn used_up(&self, tool: &str, spent: &Spent, now_ms: u64) -> Option<Reason> {
        let reason = self.over(tool, spent, now_ms)?;
        let Some((_, reset_ms)) = reason.times.first() else { return Some(reason) };
        let (_, limit, of) = self.of(tool, spent)?;
        if of.has_again() {
            // A client that lost the answer may have the same calls again.
            return None;
        }
        let used = limit.per.inside(&of.all_times(), now_ms).len();
        Some(self.reason(&REFUSED, limit, tool, (used, of.allowed?), (now_ms, *reset_ms)))
    }

    fn reason(
        &self,
        text: &Text,
        limit: &Limit,
        tool: &str,
        (used, most): (usize, usize),
        (now_ms, reset_ms): (u64, u64),
    ) -> Reason {
        let retry_after_ms = reset_ms.saturating_sub(now_ms);
        let (window, reset_at) = (humantime::format_duration(limit.per.0), rfc3339(reset_ms));
        let minutes = retry_after_ms.div_ceil(60_000);
        let values: [(&str, &dyn Display); 7] = [
            ("name", &limit.name),
            ("tool", &tool),
            ("used", &used),
            ("limit", &most),
            ("window", &window),
            ("minutes", &minutes),
            ("reset_at", &reset_at),
        ];
        let numbers = vec![
            ("used", used as u64),
            ("limit", most as u64),
            ("remaining", 0),
            ("window_ms", limit.per.millis()),
            ("retry_after_ms", retry_after_ms),
        ];
        let message = self.texts.fill(text, &values);
        Reason::new(ReasonKind::RateLimit, message).retryable().with(numbers).at("reset_at", reset_ms)
    }

    /// Why a call is blocked whose quota cannot be known.
    fn uncounted(&self, tool: &str) -> Reason {
        let message = self.texts.fill(&AWAY, &[("tool", &tool), ("seconds", &(AWAY_RETRY_MS / 1000))]);
        Reason::new(ReasonKind::RateLimit, message).retryable().with(vec![("retry_after_ms", AWAY_RETRY_MS)])
    }

    /// Repeats the notice that was placed after this message. After the request's last one, shows the model how many calls
    /// are left of what the newest reply has called, where that is few and news.
    fn announce(&self, message: usize, spent: &Spent, plan: &mut Plan) {
        let Some(account) = &spent.account else { return };
        if let Some(text) = account.placed_by(Self::NAME, message) {
            return plan.notice("notice", text.to_owned());
        }
        if message + 1 != spent.messages || !account.may_pin {
            return;
        }
        let (mut lines, mut shown) = (Vec::new(), account.left.clone());
        for (limit, of) in self.limits.iter().zip(&spent.uses).filter(|(_, of)| of.is_called) {
            let inside = limit.per.inside(of.times_of_others(), spent.now_ms);
            let Some((most, first)) = of.allowed.zip(inside.first()) else { continue };
            let left = most.saturating_sub(inside.len());
            let before = shown.iter().find(|(name, _)| *name == limit.name).map(|(_, left)| *left);
            if left <= self.notify && before.is_some_and(|before| left > 0 || before == 0) {
                continue;
            }
            shown.retain(|(name, _)| *name != limit.name);
            if left > self.notify {
                continue;
            }
            shown.push((Arc::clone(&limit.name), left as u64));
            let window = humantime::format_duration(limit.per.0);
            let values: [(&str, &dyn Display); 5] = [
                ("name", &limit.name),
                ("remaining", &left),
                ("limit", &most),
                ("window", &window),
                ("reset_at", &rfc3339(first.saturating_add(limit.per.millis()))),
            ];
            lines.push(self.texts.fill(&NOTICE, &values));
        }
        if shown != account.left {
            plan.report(Finding::AmountsLeft(shown));
        }
        if !lines.is_empty() {
            plan.announce("notice", lines.join("\n"), None);
        }
    }
}
