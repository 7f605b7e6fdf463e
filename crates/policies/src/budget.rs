//! Budgets of tool calls, requests, tokens, money and time: of a turn, of a conversation, and of a caller's day.
//!
//! # What it does
//! Counts the tool calls of the running turn (`tool_calls`) and, where they are limited, model requests, billed tokens,
//! what these cost, time, and the size of the conversation. When a share in `notify_at` of the scarcest budget is used,
//! one notice after the tool results says how much is left, or after each group of results from the first share on
//! (`notify = "every_result"`); with 30% or less left it says to answer now or to ask the user. When a budget is
//! used up, further calls are blocked and the model is asked for its final answer. Where money, tokens or requests of the
//! conversation or the day are used up, the next request is refused after that answer (`exhausted = "auto"`). Other
//! values force one way: text always passes (`"answer"`), the model is only informed (`"inform"`), requests are refused
//! without a final answer (`"reject"`), or a person is asked to extend it (`"ask"`).
//! If a turn had notices, the next turn opens with a line that the budget is fresh.
//!
//! # Why
//! Models do not know how much they have used. If they read absolute numbers, they spend calls deliberately; the hard
//! limit is what saves cost (BATS, arXiv 2511.17006: the same budget gives better answers with the status shown;
//! prompting alone does not keep a budget). Text costs money too: who names a price for a conversation wants no request
//! that exceeds it. Stale warnings make models reluctant to use tools in later turns, hence the
//! fresh line. Of solved conversations in recorded traffic none has a turn above 50 calls.
//!
//! # State
//! Calls of the turn and tokens of the context: from the transcript, and so are notices about these. The rest is the
//! account of the conversation, which the state store keeps: its sums survive a client that trims its history. Notices
//! about it are placed once, at the end of a request, and the state store keeps them where they are.
//!
//! # Example
//! With `tool_calls = 50`, after the 35th call: `[toolrein] Budget: 35 of 50 tool calls of this turn used, ~30%
//! left. Answer now with what you have, or ask the user.`

mod settings;
mod words;

use super::about::{About, Accounting, EngineService, Explanation, NO_LIMITS, Need};
use super::texts::{Text, Texts};
use super::{ConfigError, Policy, RequestView};
use model::account::{ALL_SCOPES, Account, KINDS, Kind, Marks, SCOPES, Scope, Sums};
use model::identity::{Hash, HashKey};
use model::plan::{
    CallEffect, Extends, Finding, Plan, Proposed, Reason, ReasonKind, RequestEnd, Reservation,
    ReservationResult, Usage, Verdict, rfc3339,
};
use model::tokens::Estimate;
use model::uses::{Use, use_key};
use model::{Event, EventKind, EventKinds, View};
pub use settings::Config;
use settings::{Exhausted, Extension, Notify};
use smallvec::SmallVec;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use words::{
    ADVICE, ADVICE_LOW, ADVICE_OUT, ANEW_CONVERSATION, ANEW_DAY, ANEW_TURN, BLOCKED, EXTENSION_CALLS,
    EXTENSION_SHARE, FRESH, NOTICE, QUESTION, REJECTED, UNASKED, effect, line_of, name_of, number,
    numbers_of, scope_name, written,
};

/// From this used share on the advice is to come to an end: 30% are left.
const LOW: f64 = 0.7;
const DAY_MS: u64 = 86_400_000;
/// The kinds, in the order in which they are named.
const ALL_KINDS: [Kind; KINDS] =
    [Kind::Calls, Kind::Requests, Kind::Tokens, Kind::Nanodollars, Kind::Millis, Kind::Context];

/// The kinds that a request uses before its reply.
const COUNTED_AHEAD: [Kind; 3] = [Kind::Requests, Kind::Tokens, Kind::Nanodollars];

/// See the module.
pub struct Budget {
    config: Config,
    /// By scope; 0: none.
    limits: [Sums; SCOPES],
    /// Those that are set, scope by scope.
    limited: Vec<(Scope, Kind, u64)>,
    texts: Texts,
}

/// What one conversation has used.
#[derive(Clone, Default)]
pub struct Used {
    /// Tool calls of the turn.
    calls: u64,
    /// All tool calls that the request shows.
    all_calls: u64,
    /// Those of the reply being judged.
    released: u64,
    context: Estimate,
    /// The thresholds of the turn's calls and of the context that the model has read about.
    said: (usize, usize),
    /// This turn had a notice.
    had_notice: bool,
    /// How many messages the request has.
    messages: usize,
    account: Option<Arc<Account>>,
    /// Where an earlier try of the request was handed out calls.
    retry: Option<Retry>,
}

/// The calls that an earlier try of the request was handed out.
#[derive(Clone)]
struct Retry {
    /// What the keys of calls are made with.
    key: HashKey,
    /// The key of the request.
    request: Hash,
    /// Those that this reply has not been handed out again.
    open: Vec<Use>,
}

impl Retry {
    /// The use by which the call may be handed out again.
    fn earlier_use(&self, call: &Proposed<'_>) -> Option<Use> {
        let call_key = use_key(&self.key, self.request, call.name, call.arguments_hash?);
        self.open.iter().find(|earlier| earlier.call == call_key).copied()
    }
}

/// A limited amount.
#[derive(Clone, Copy)]
struct Amount {
    scope: Scope,
    kind: Kind,
    used: u64,
    /// Extensions included.
    limit: u64,
}

impl Policy for Budget {
    const NAME: &'static str = "budget";
    const SUMMARY: &'static str = "shows the model its budget of tool calls, tokens, money and time, and blocks calls when it is used up";
    const TEXTS: &'static [Text] = words::ALL;
    type Config = Config;
    type State = Used;

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let mut problems = config.problems();
        let texts = config.texts.clone().check(Self::TEXTS, &mut problems);
        let limits = config.limits();
        let all = ALL_SCOPES.into_iter().flat_map(|scope| {
            ALL_KINDS.into_iter().map(move |kind| (scope, kind, limits[scope as usize].get(kind)))
        });
        let limited = all.filter(|(.., limit)| *limit > 0).collect();
        if problems.is_empty() { Ok(Self { config, limits, limited, texts }) } else { Err(problems) }
    }

    fn about(&self) -> About {
        let asks = self.config.exhausted == Exhausted::Ask;
        let sum = |kind: Kind| self.limits.iter().any(|limits| limits.get(kind) > 0);
        let spend = sum(Kind::Nanodollars);
        let tokens = spend || sum(Kind::Tokens);
        let day = self.limits[Scope::Day as usize] != Sums::default();
        let reserves = self.limits[1..].iter().any(|limits| limits.get(Kind::Calls) > 0);
        let is_ahead = |limits: &Sums| COUNTED_AHEAD.iter().any(|kind| limits.get(*kind) > 0);
        let ahead = self.limits[1..].iter().any(is_ahead);
        let account = Accounting { tokens, spend, day, calls: reserves, ahead };
        let messages = EventKind::System | EventKind::Assistant | EventKind::Result;
        let ignored_messages = if self.config.context_tokens > 0 { EventKinds::empty() } else { messages };
        let account = self.keeps_account().then_some(EngineService::KeepAccount(account)).into_iter();
        About {
            ignored_events: EventKind::Hidden | ignored_messages,
            needs: asks.then_some(Need::Approvals { key: Some("exhausted") }).into_iter().collect(),
            engine: account.chain(reserves.then_some(EngineService::ReserveCalls)).collect(),
            idle: self.limits.iter().all(|limits| *limits == Sums::default()).then_some(NO_LIMITS),
            explanation: Explanation { sentences: self.effects(), diagram: None },
            resumes: true,
            ..About::default()
        }
    }

    fn open(&self, request: &RequestView<'_>, used: &mut Used, _plan: &mut Plan) {
        used.messages = request.transcript.len();
        // It may be kept for others: it counts the calls of all choices, and the history those of one.
        used.account = request.transcript.account.clone().filter(|_| self.keeps_account());
        let open = used.account.as_ref().map_or_else(Vec::new, |account| account.handed_out.clone());
        let (key, transcript) = (&request.transcript.identity.key, request.transcript);
        used.retry =
            (!open.is_empty()).then(|| Retry { key: key.clone(), request: transcript.request_key(), open });
    }

    fn read(&self, event: &Event<'_>, used: &mut Used, plan: &mut Plan) {
        match event {
            Event::TurnBegins(_) => {
                if used.had_notice && self.says_fresh(used) {
                    let limit = self.limits[Scope::Turn as usize].get(Kind::Calls);
                    plan.notice("fresh", self.texts.fill(&FRESH, &[("limit", &limit)]));
                }
                (used.calls, used.had_notice, used.said.0) = (0, false, 0);
            }
            Event::Call(_) => {
                used.calls += 1;
                used.all_calls += 1;
            }
            Event::User(view) => {
                self.count(view, used);
                self.announce(view.index, false, used, plan);
            }
            Event::System(view) | Event::Assistant(view) => self.count(view, used),
            Event::Result(result) => self.count(&result.view, used),
            Event::Hidden(_) => {}
            Event::ResultsComplete(view) => {
                self.inform(used, plan);
                self.announce(view.index, true, used, plan);
            }
        }
    }

    fn close(&self, used: &Used, plan: &mut Plan) {
        let exhausted = self.config.exhausted;
        let now_ms = used.account.as_ref().map_or(0, |account| account.now_ms);
        let refuses = |amount: &Amount| {
            let is_refused = exhausted.refuses_after_answer(amount.scope, amount.kind);
            amount.is_used_up() && (exhausted == Exhausted::Reject || is_refused)
        };
        let used_up: Vec<Amount> = self.amounts(used, now_ms).filter(refuses).collect();
        let may_answer = |amount: &Amount| {
            let account = used.account.as_ref();
            account.is_some_and(|account| account.may_answer[amount.scope as usize])
        };
        if used_up.is_empty() {
            return;
        }
        if exhausted == Exhausted::Auto && used_up.iter().all(may_answer) {
            plan.end(RequestEnd::FinalAnswer);
            return;
        }
        let message = self.refusal(&used_up, now_ms);
        plan.end(RequestEnd::Refusal { code: "budget_exceeded", message, reason: None });
    }

    fn judge(&self, call: &Proposed<'_>, used: &Used) -> Verdict {
        let asks = match self.config.exhausted {
            Exhausted::Auto | Exhausted::Answer => false,
            Exhausted::Ask => true,
            Exhausted::Inform | Exhausted::Reject => return Verdict::Allow,
        };
        let mut amounts: Vec<Amount> = self.amounts(used, call.now_ms).collect();
        if !amounts.iter().any(Amount::is_used_up) {
            match reserve(call, used, &mut amounts) {
                Some(pending) => return pending,
                None if !amounts.iter().any(Amount::is_used_up) => return Verdict::Allow,
                None => {}
            }
        }
        // The numbers of what the history shows are always given, of the rest those that matter.
        let is_named = |amount: &&Amount| amount.is_shown_by_history() || amount.is_used_up();
        let named: Vec<Amount> = amounts.iter().filter(is_named).copied().collect();
        let facts = self.facts(named.iter().copied());
        let text = if asks { &UNASKED } else { &BLOCKED };
        let message = self.texts.fill(text, &[("used", &facts)]);
        let reason = Reason::new(ReasonKind::BudgetExceeded, message).for_the_turn().with(numbers(&named));
        if !asks {
            return Verdict::Block(reason);
        }
        let mut extends = Extends::default();
        amounts
            .iter()
            .filter(|amount| amount.is_used_up())
            .for_each(|amount| extends[amount.scope as usize] = true);
        let line = self.texts.fill(&QUESTION, &[("used", &facts), ("extension", &self.extension())]);
        Verdict::Pending(CallEffect::Approve(reason.extending(line, extends)))
    }

    fn release(&self, call: &Proposed<'_>, used: &mut Used) {
        used.calls += 1;
        used.all_calls += 1;
        used.released += 1;
        if let Some(retry) = &mut used.retry
            && let Some(earlier) = retry.earlier_use(call)
            && let Some(index) = retry.open.iter().position(|open| *open == earlier)
        {
            retry.open.remove(index);
        }
    }

    fn usage(&self, used: &Used, now_ms: u64) -> Vec<Usage> {
        // What a caller's day has left is of interest from its first request on.
        let is_told = |amount: &Amount| amount.used > 0 || amount.scope == Scope::Day;
        let amounts = self.amounts(used, now_ms).filter(is_told);
        let usage = amounts.map(|Amount { scope, kind, used, limit }| Usage {
            tool: name_of(scope, kind).to_owned(),
            used: number(kind, used),
            limit: number(kind, limit),
        });
        usage.collect()
    }
}

impl Amount {
    fn share(&self) -> f64 {
        if self.limit == 0 { 0.0 } else { self.used as f64 / self.limit as f64 }
    }

    fn is_used_up(&self) -> bool {
        self.used >= self.limit
    }

    /// Whether it follows from the request alone.
    fn is_shown_by_history(&self) -> bool {
        matches!((self.scope, self.kind), (Scope::Turn, Kind::Calls) | (_, Kind::Context))
    }
}

/// Has the limits of calls that other conversations or requests share count the call; `None`: each of them has, or has none
/// left, which `amounts` then says. Calls that an earlier try of the request was handed out are counted already.
fn reserve(call: &Proposed<'_>, used: &Used, amounts: &mut [Amount]) -> Option<Verdict> {
    let account = used.account.as_ref()?;
    let is_shared = |amount: &Amount| amount.kind == Kind::Calls && account.shared[amount.scope as usize];
    if !amounts.iter().any(is_shared) {
        return None;
    }
    if call.arguments.is_none() {
        return Some(Verdict::NeedsArguments);
    }
    let earlier = used.retry.as_ref().and_then(|retry| Some((retry.request, retry.earlier_use(call)?)));
    if let Some((request, again)) = earlier {
        let reservation = Reservation::Again { request, again };
        match call.results.reserved(&reservation) {
            None => return Some(Verdict::Pending(CallEffect::Reserve(reservation))),
            Some(ReservationResult::Granted { .. }) => return None,
            // Another request was handed it out meanwhile.
            Some(ReservationResult::UsedUp { .. }) => {}
        }
    }
    for amount in amounts.iter_mut().filter(|amount| is_shared(amount)) {
        let reservation = Reservation::Budget { scope: amount.scope, most: amount.limit };
        match call.results.reserved(&reservation) {
            None => return Some(Verdict::Pending(CallEffect::Reserve(reservation))),
            Some(ReservationResult::Granted { .. }) => {}
            Some(ReservationResult::UsedUp { used, .. }) => amount.used = (*used).max(amount.limit),
        }
    }
    None
}

impl Budget {
    /// Whether something is limited that the history does not show, or may be extended.
    fn keeps_account(&self) -> bool {
        let is_shown =
            |scope: Scope, kind: Kind| Amount { scope, kind, used: 0, limit: 0 }.is_shown_by_history();
        let is_kept = |scope: &Scope| {
            ALL_KINDS
                .iter()
                .any(|kind| self.limits[*scope as usize].get(*kind) > 0 && !is_shown(*scope, *kind))
        };
        self.config.exhausted == Exhausted::Ask || ALL_SCOPES.iter().any(is_kept)
    }

    /// What happens where each limit is used up.
    fn effects(&self) -> Vec<String> {
        let limits = self.limited.iter();
        limits.map(|(scope, kind, limit)| effect(*scope, *kind, *limit, self.config.exhausted)).collect()
    }

    /// Why the request is refused: what is used up, and when it begins anew.
    fn refusal(&self, used_up: &[Amount], now_ms: u64) -> String {
        let scopes: Vec<Scope> = ALL_SCOPES
            .into_iter()
            .filter(|scope| used_up.iter().any(|amount| amount.scope == *scope))
            .collect();
        let names: Vec<&str> = scopes.iter().map(|scope| scope_name(*scope)).collect();
        let anew: Vec<String> = scopes.iter().map(|scope| self.begins_anew(*scope, now_ms)).collect();
        let facts = self.facts(used_up.iter().copied());
        let values: [(&str, &dyn Display); 3] =
            [("scope", &names.join(" and of ")), ("used", &facts), ("anew", &anew.join(" "))];
        self.texts.fill(&REJECTED, &values)
    }

    /// When a used-up budget of `scope` begins anew, as a sentence.
    fn begins_anew(&self, scope: Scope, now_ms: u64) -> String {
        match scope {
            Scope::Turn => self.texts.fill(&ANEW_TURN, &[]),
            Scope::Conversation => self.texts.fill(&ANEW_CONVERSATION, &[]),
            Scope::Day => {
                let reset_ms = (now_ms / DAY_MS + 1) * DAY_MS;
                let wait = Duration::from_secs((reset_ms - now_ms).div_ceil(60_000) * 60);
                let (reset_at, wait) = (rfc3339(reset_ms), humantime::format_duration(wait));
                self.texts.fill(&ANEW_DAY, &[("reset_at", &reset_at), ("wait", &wait)])
            }
        }
    }

    /// Whether a new turn has a fresh budget: one of the conversation or the day is none.
    fn says_fresh(&self, used: &Used) -> bool {
        let [turn, conversation, day] = &self.limits;
        let lasting = conversation.with(Kind::Context, 0) != Sums::default() || *day != Sums::default();
        let context = share(used.context.tokens(), self.config.context_tokens);
        turn.get(Kind::Calls) > 0 && !lasting && context < 1.0
    }

    /// Counts tokens only where something depends on them.
    fn count(&self, message: &View<'_>, used: &mut Used) {
        if self.config.context_tokens > 0 {
            used.context += message.tokens();
        }
    }

    /// What is limited, as known at `now_ms`.
    fn amounts<'a>(&'a self, used: &'a Used, now_ms: u64) -> impl Iterator<Item = Amount> + 'a {
        self.limited.iter().map(move |&(scope, kind, limit)| {
            let account = used.account.as_ref();
            let sums = account.map_or_else(Sums::default, |account| account.used_at(scope, now_ms));
            let bought = account.map_or(0, |account| account.bought[scope as usize]);
            let calls = sums.get(Kind::Calls) + used.released;
            Amount {
                scope,
                kind,
                used: match (scope, kind) {
                    (Scope::Turn, Kind::Calls) => calls.max(used.calls),
                    (Scope::Conversation, Kind::Calls) => calls.max(used.all_calls),
                    (_, Kind::Calls) => calls,
                    (_, Kind::Context) => used.context.tokens(),
                    (_, kind) => sums.get(kind),
                },
                limit: self.extended(limit, bought),
            }
        })
    }

    /// `limit` with so many extensions.
    fn extended(&self, limit: u64, bought: u32) -> u64 {
        limit.saturating_add(u64::from(bought).saturating_mul(self.config.extension.of(limit)))
    }

    /// How many thresholds a share has reached.
    fn reached(&self, share: f64) -> usize {
        self.config.notify_at.0.iter().filter(|threshold| **threshold <= share).count()
    }

    /// Adds the notice about what the history shows, if one is due after this group of results: a function of the
    /// history before it and of nothing else, so extensions have no part in it.
    fn inform(&self, used: &mut Used, plan: &mut Plan) {
        let [turn, ..] = &self.limits;
        let calls =
            Amount { scope: Scope::Turn, kind: Kind::Calls, used: used.calls, limit: turn.get(Kind::Calls) };
        let context = Amount {
            scope: Scope::Conversation,
            kind: Kind::Context,
            used: used.context.tokens(),
            limit: self.config.context_tokens,
        };
        // What is beyond the limit was extended, or nothing new is to be said.
        let is_beyond =
            |amount: &Amount| self.config.exhausted == Exhausted::Ask && amount.used > amount.limit;
        let amounts = [calls, context].into_iter().filter(|amount| amount.limit > 0);
        let amounts: SmallVec<[Amount; 2]> = amounts.filter(|amount| !is_beyond(amount)).collect();
        let scarcest = amounts.iter().map(Amount::share).fold(0.0, f64::max);
        plan.report(Finding::BudgetLeft((1.0 - scarcest).max(0.0)));
        let reached = (self.reached(calls.share()), self.reached(context.share()));
        let is_news = reached.0 > used.said.0 || reached.1 > used.said.1;
        used.said = (used.said.0.max(reached.0), used.said.1.max(reached.1));
        let is_due = match self.config.notify {
            Notify::Thresholds => is_news,
            Notify::EveryResult => reached.0 > 0 || reached.1 > 0,
        };
        if is_due && !amounts.is_empty() {
            used.had_notice = true;
            let (word, text) = self.status(&amounts);
            plan.notice(word, text);
        }
    }

    /// Adds the notice about the account that is placed after this message; or, after the request's last one, a new one
    /// if it is due.
    fn announce(&self, message: usize, is_result: bool, used: &Used, plan: &mut Plan) {
        let Some(account) = &used.account else { return };
        if let Some(text) = account.placed_by(Self::NAME, message) {
            return plan.notice("notice", text.to_owned());
        }
        if message + 1 != used.messages {
            return;
        }
        if self.about_spend() && !account.is_priced {
            plan.remark("unpriced");
        }
        let mut marks = account.marks;
        let (mut is_news, mut amounts) = (false, Vec::new());
        for amount in self.amounts(used, account.now_ms).filter(|amount| self.is_of_account(amount)) {
            let reached = self.reached(amount.share());
            if reached == 0 {
                continue;
            }
            amounts.push(amount);
            let bought = account.bought[amount.scope as usize];
            let mark = mark(bought, reached);
            let known: &mut Marks = &mut marks[amount.scope as usize];
            let known = &mut known.0[amount.kind as usize];
            is_news |= mark > *known;
            *known = mark.max(*known);
        }
        let is_due = is_news || (self.config.notify == Notify::EveryResult && is_result);
        if is_due && !amounts.is_empty() && account.may_pin {
            let (word, text) = self.status(&amounts);
            plan.announce(word, text, Some(marks));
        }
    }

    /// Whether notices about it are not derived from the history: it is not shown there, or the limit was extended.
    fn is_of_account(&self, amount: &Amount) -> bool {
        let limit = self.limits[amount.scope as usize].get(amount.kind);
        let is_extended = self.config.exhausted == Exhausted::Ask && amount.used > limit;
        !amount.is_shown_by_history() || is_extended
    }

    fn about_spend(&self) -> bool {
        self.limits.iter().any(|limits| limits.get(Kind::Nanodollars) > 0)
    }

    /// The notice, and the word for it in the log.
    fn status(&self, amounts: &[Amount]) -> (&'static str, String) {
        let share = amounts.iter().map(Amount::share).fold(0.0, f64::max);
        // What is left of 4 of 5 comes out a hair under 20%.
        let left = ((1.0 - share).max(0.0) * 100.0 + 1e-6).floor();
        let (word, advice) = match share {
            _ if share >= 1.0 => ("critical", &ADVICE_OUT),
            _ if share >= LOW => ("critical", &ADVICE_LOW),
            _ => ("notice", &ADVICE),
        };
        let (facts, advice) = (self.facts(amounts.iter().copied()), self.texts.fill(advice, &[]));
        let text = self.texts.fill(&NOTICE, &[("used", &facts), ("left", &left), ("advice", &advice)]);
        (word, text)
    }

    fn facts(&self, amounts: impl Iterator<Item = Amount>) -> String {
        let lines = amounts.map(|Amount { scope, kind, used, limit }| {
            let (used, limit) = (written(kind, used), written(kind, limit));
            self.texts.fill(line_of(scope, kind), &[("used", &used), ("limit", &limit)])
        });
        lines.collect::<Vec<_>>().join(", ")
    }

    /// What an approval adds, in words.
    fn extension(&self) -> String {
        match self.config.extension {
            Extension::Calls(calls) => self.texts.fill(&EXTENSION_CALLS, &[("calls", &calls)]),
            Extension::Share(share) => {
                let percent = (share * 100.0).round();
                self.texts.fill(&EXTENSION_SHARE, &[("percent", &percent)])
            }
        }
    }
}

/// The mark of so many thresholds of a limit with so many extensions: after an extension the thresholds begin anew.
fn mark(bought: u32, reached: usize) -> u32 {
    bought.saturating_mul(100).saturating_add(u32::try_from(reached).unwrap_or(u32::MAX))
}

/// The numbers in the envelope of a blocked call, each name once: `used` and `limit` of the limit that blocks, and those of
/// other units or limits under names that say what they are.
fn numbers(amounts: &[Amount]) -> Vec<(&'static str, u64)> {
    let mut numbers: Vec<(&'static str, u64)> = Vec::new();
    let blocking = amounts.iter().position(Amount::is_used_up);
    if let Some(amount) = blocking.and_then(|at| amounts.get(at)) {
        numbers.push(("used", number(amount.kind, amount.used)));
        numbers.push(("limit", number(amount.kind, amount.limit)));
    }
    for (at, amount) in amounts.iter().enumerate() {
        if blocking == Some(at) && amount.kind == Kind::Calls {
            continue;
        }
        let [used, limit] = numbers_of(amount.kind);
        if !numbers.iter().any(|(name, _)| *name == used) {
            numbers.push((used, number(amount.kind, amount.used)));
            numbers.push((limit, number(amount.kind, amount.limit)));
        }
    }
    numbers
}

/// `used` of `limit`, 0 where there is no limit.
fn share(used: u64, limit: u64) -> f64 {
    if limit == 0 { 0.0 } else { used as f64 / limit as f64 }
}

#[cfg(test)]
mod tests;
