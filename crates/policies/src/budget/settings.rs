//! The settings of the budget as written, and the limits that they amount to.

use super::super::period::Period;
use super::super::texts::OwnTexts;
use crate::ConfigError;
use model::account::{KINDS, Kind, SCOPES, Scope, Sums};
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::time::Duration;

/// The most thresholds.
const MOST_SHARES: usize = 20;
/// The highest limit of money, in dollars.
const MOST_DOLLARS: f64 = 1e9;

/// `[policy.budget]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Tool calls in one turn; 0: no limit.
    tool_calls: u64,
    /// Requests to the model in one turn; 0: no limit.
    requests: u64,
    /// How long a turn may take; 0: no limit.
    time: Period,
    /// Estimated tokens of the conversation in the model's context; 0: no limit.
    pub(super) context_tokens: u64,
    /// Tokens billed to the conversation; 0: no limit.
    billed_tokens: u64,
    /// What these cost; 0: no limit.
    spend_usd: Dollars,
    /// The same limits in one turn, in the conversation and for a caller's day. Where they are set, they take the place
    /// of those above.
    turn: Limits,
    conversation: Limits,
    day: Limits,
    /// At which used shares of a budget the model gets a notice.
    pub(super) notify_at: Shares,
    pub(super) notify: Notify,
    pub(super) exhausted: Exhausted,
    /// What an approval adds.
    pub(super) extension: Extension,
    pub(super) texts: OwnTexts,
}

/// Limits of one scope; 0: none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Limits {
    tool_calls: u64,
    requests: u64,
    billed_tokens: u64,
    spend_usd: Dollars,
    time: Period,
}

/// When the model gets notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Notify {
    /// Once for each threshold.
    Thresholds,
    /// After each group of results, from the first threshold on.
    EveryResult,
}

/// What happens when a budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Exhausted {
    /// As [`Self::Answer`]; but where money, tokens or requests of the conversation or the day are used up, requests are
    /// refused after the final answer of the turn.
    Auto,
    /// Calls are blocked until the model answers.
    Answer,
    /// The model gets notices, and nothing else happens.
    Inform,
    /// The request is refused.
    Reject,
    /// A person is asked to extend it.
    Ask,
}

/// What an approval adds to a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Extension {
    /// So many calls or requests.
    Calls(u64),
    /// This share of the limit.
    Share(f64),
}

/// Money in billionths of a dollar, written in dollars.
#[derive(Clone, Copy, Debug, Default)]
struct Dollars(u64);

/// Shares of a budget, ascending.
#[derive(Clone, Debug)]
pub(super) struct Shares(pub Vec<f64>);

impl Default for Config {
    fn default() -> Self {
        Self {
            tool_calls: 50,
            requests: 0,
            time: Period(Duration::ZERO),
            context_tokens: 0,
            billed_tokens: 0,
            spend_usd: Dollars(0),
            turn: Limits::default(),
            conversation: Limits::default(),
            day: Limits::default(),
            notify_at: Shares(vec![0.5, 0.7, 0.9]),
            notify: Notify::Thresholds,
            exhausted: Exhausted::Auto,
            extension: Extension::Share(0.4),
            texts: OwnTexts::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let time = Period(Duration::ZERO);
        Self { tool_calls: 0, requests: 0, billed_tokens: 0, spend_usd: Dollars(0), time }
    }
}

impl Config {
    /// The limits by scope; 0: none.
    pub(super) fn limits(&self) -> [Sums; SCOPES] {
        let mut limits = [self.turn.sums(), self.conversation.sums(), self.day.sums()];
        for (scope, kind, above) in [
            (Scope::Turn, Kind::Calls, self.tool_calls),
            (Scope::Turn, Kind::Requests, self.requests),
            (Scope::Turn, Kind::Millis, self.time.millis()),
            (Scope::Conversation, Kind::Tokens, self.billed_tokens),
            (Scope::Conversation, Kind::Nanodollars, self.spend_usd.0),
            (Scope::Conversation, Kind::Context, self.context_tokens),
        ] {
            let limits = &mut limits[scope as usize];
            if limits.get(kind) == 0 {
                *limits = limits.with(kind, above);
            }
        }
        limits
    }

    /// What contradicts itself.
    pub(super) fn problems(&self) -> Vec<ConfigError> {
        let mut problems = Vec::new();
        let shares = &self.notify_at.0;
        if let Some(share) = shares.iter().find(|share| !(**share > 0.0 && **share <= 1.0)) {
            let problem = format!("expected shares above 0, up to 1, found {share}");
            problems.push(ConfigError::new("notify_at", problem));
        } else if !shares.is_sorted_by(|one, next| one < next) {
            problems.push(ConfigError::new("notify_at", "expected shares that ascend"));
        }
        if shares.len() > MOST_SHARES {
            problems.push(ConfigError::new("notify_at", format!("expected at most {MOST_SHARES} shares")));
        }
        let limits = self.limits();
        let others = |sums: &Sums| (0..KINDS).any(|kind| kind > Kind::Requests as usize && sums.0[kind] > 0);
        let is_number = matches!(self.extension, Extension::Calls(_));
        if self.exhausted == Exhausted::Ask && is_number && limits.iter().any(others) {
            problems.push(ConfigError::new(
                "extension",
                "a number extends only limits of tool calls and requests; expected a share such as 0.4, since tokens, \
                 money or time are limited too",
            ));
        }
        problems
    }
}

impl Limits {
    fn sums(&self) -> Sums {
        Sums::default()
            .with(Kind::Calls, self.tool_calls)
            .with(Kind::Requests, self.requests)
            .with(Kind::Tokens, self.billed_tokens)
            .with(Kind::Nanodollars, self.spend_usd.0)
            .with(Kind::Millis, self.time.millis())
    }
}

impl Exhausted {
    /// Whether requests are refused where a limit of `kind` in `scope` is used up and the turn has had its final answer.
    pub(super) fn refuses_after_answer(self, scope: Scope, kind: Kind) -> bool {
        let costs = matches!(kind, Kind::Requests | Kind::Tokens | Kind::Nanodollars);
        self == Self::Auto && scope != Scope::Turn && costs
    }
}

impl Extension {
    /// What it adds to a limit.
    pub(super) fn of(self, limit: u64) -> u64 {
        match self {
            Self::Calls(calls) => calls,
            // At least one, or an approval would lead to the next question at once.
            Self::Share(share) => ((limit as f64 * share).round() as u64).max(1),
        }
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(from)?;
        if !(0.0..=MOST_DOLLARS).contains(&dollars) {
            return Err(de::Error::custom(format!("expected dollars, 0 or more, found {dollars}")));
        }
        Ok(Self((dollars * 1e9).round() as u64))
    }
}

impl<'de> Deserialize<'de> for Extension {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WrittenExtension)
    }
}

struct WrittenExtension;

impl de::Visitor<'_> for WrittenExtension {
    type Value = Extension;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number of calls such as 20, or a share such as 0.4")
    }

    fn visit_i64<E: de::Error>(self, calls: i64) -> Result<Extension, E> {
        let calls = u64::try_from(calls).ok().filter(|calls| *calls > 0);
        calls.map(Extension::Calls).ok_or_else(|| E::custom("expected at least 1 call"))
    }

    fn visit_u64<E: de::Error>(self, calls: u64) -> Result<Extension, E> {
        i64::try_from(calls).map_err(E::custom).and_then(|calls| self.visit_i64(calls))
    }

    fn visit_f64<E: de::Error>(self, share: f64) -> Result<Extension, E> {
        if share > 0.0 && share <= 10.0 {
            return Ok(Extension::Share(share));
        }
        Err(E::custom(format!("expected a share above 0, up to 10, found {share}")))
    }
}

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WrittenShares).map(Self)
    }
}

struct WrittenShares;

impl<'de> de::Visitor<'de> for WrittenShares {
    type Value = Vec<f64>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of shares such as [0.5, 0.7, 0.9]")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<f64>, A::Error> {
        let mut shares = Vec::new();
        while let Some(share) = list.next_element()? {
            shares.push(share);
        }
        Ok(shares)
    }
}
