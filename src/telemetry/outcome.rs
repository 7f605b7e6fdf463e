//! The record of one client request as plain data, filled in while the request runs and recorded once at its
//! end. Knows no type of the rest of the program, neither counts nor writes anything.

use super::endpoint::Endpoint;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Everything worth telling about one client request, whatever became of it. Re-asks and fallbacks belong to
/// the request that they serve. Holds no body, no arguments and no credential.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub request_id: String,
    /// The conversation's id, as the client gave it or as it was derived.
    pub conversation: Option<String>,
    pub model: Option<String>,
    /// The name of the profile that the request took.
    pub profile: Option<Arc<str>>,
    /// A keyed hash of the caller's credential.
    pub caller: Option<String>,
    /// The request's method and the path that it asks for, without its query.
    pub method: String,
    pub path: String,
    pub endpoint: Endpoint,
    pub route: Route,
    /// `enforce`, `observe` or `off`.
    pub mode: &'static str,
    /// The HTTP status that the client got; 0 if it left before there was one.
    pub status: u16,
    /// The code of an error of ours.
    pub error: Option<&'static str>,
    /// The client left before the end.
    pub client_gone: bool,
    pub streamed: bool,
    /// Why a chat request was relayed unread: `not_json`, `no_messages`, `lone_surrogate`, ...
    pub ungoverned: Option<&'static str>,
    /// What policies did that they had not done to an earlier request.
    pub actions: Vec<Action>,
    /// The calls that the model made in this reply.
    pub judged: Vec<JudgedCall>,
    /// The results since the last assistant message of the request.
    pub results: Vec<NewResult>,
    /// Cut results that the model asked for once more.
    pub regrets: Vec<Regret>,
    /// Calls on which a person's word was wanted, and what came of it.
    pub confirmations: Vec<Consent>,
    pub tokens: Tokens,
    /// The upstream's usage told numbers that cannot be; they are left out of [`Self::tokens`].
    pub implausible_usage: bool,
    pub context: Context,
    /// Requests that the upstream was sent for this one.
    pub upstream_requests: u32,
    /// The upstream's own name for the last of them.
    pub upstream_request_id: Option<String>,
    pub fallbacks: Vec<Fallback>,
    pub prefix_breaks: Vec<PrefixBreak>,
    /// Why replies, or parts of them, passed without being judged: `event_too_long`, `held_too_much`, ...
    pub unjudged: Vec<&'static str>,
    /// The state store told nothing of it; whether it was refused for that.
    pub without_store: Option<bool>,
    /// What was found of summaries that were decided on before.
    pub summaries: Vec<SummaryResult>,
    /// Hidden rounds that should have been put back and could not.
    pub lost_rounds: u32,
    pub reasks: u32,
    /// It was shortened at once, since a request that it goes on from was refused for its length.
    pub overflow_remembered: bool,
    /// The identical body was seen before: what is derived from the request is not counted again.
    pub repeated: bool,
    /// How much of each limit the conversation has used. For the log alone.
    pub usage_of_limits: Vec<LimitUse>,
    pub times: Times,
    /// Size of the request's body as the client sent it.
    pub request_bytes: u64,
    /// Size of the reply's body as the client got it.
    pub reply_bytes: u64,
    /// The client's W3C `traceparent`.
    pub traceparent: Option<String>,
}

/// How a request was treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Chat completions, through the policies.
    Chat,
    /// Anything else, as it is.
    #[default]
    Relay,
    /// A connection handed over to another protocol, such as WebSocket.
    Upgrade,
}

/// What one policy did, `count` times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub policy: &'static str,
    /// One of [`EDITS`], or the word of a notice or verdict: `notice`, `withheld`, ...
    pub action: Cow<'static, str>,
    pub count: u64,
    pub on: On,
}

/// The actions that change a text which is there already: told by their number, not by a word.
pub const EDITS: [&str; 6] = ["cleared", "text_withheld", "pointed", SHORTENED, "annotated", "turns_dropped"];
/// A text was shortened.
pub const SHORTENED: &str = "shortened";

/// What an action acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Request,
    Reply,
}

/// A cut result that the model asked for once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regret {
    /// The tool that gave it.
    pub tool: String,
    /// What tells it: the request that brings the second result, or the reply that asks a tool of ours.
    pub on: On,
}

/// A call of the reply, and what was ruled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedCall {
    pub tool: String,
    /// As the upstream gave it; empty where it gave none.
    pub id: String,
    pub verdict: Verdict,
    /// It was allowed because nobody could rule on it.
    pub unjudged: bool,
    /// What policies said of it, in registry order; every objection, also where it is only observed.
    pub said: Vec<Said>,
    /// The model reads the words of the first of them.
    pub is_spoken: bool,
}

/// What one policy said of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub policy: &'static str,
    /// The reason of an objection, as the model reads it (`RATE_LIMIT`, ...), or what else was done: `answered`,
    /// `rewritten`.
    pub reason: &'static str,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client got it as it was.
    Allow,
    /// The client did not get it.
    Block,
    /// The client got it with other arguments.
    Modify,
    /// A policy answered it in the client's place.
    Answer,
    /// A person was asked about it.
    Ask,
}

/// What came of asking a person about a call, or about all those of one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    Approved,
    Declined,
    /// Nobody answered in time, or too late.
    Expired,
    /// The client left before an answer came.
    Left,
    /// toolrein was stopped before an answer came.
    Stopped,
    /// Nobody could be asked: too many calls waited, or the reply could not be kept.
    Unasked,
}

impl Consent {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Approved, Self::Declined, Self::Expired, Self::Left, Self::Stopped, Self::Unasked];

    /// In metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Expired => "expired",
            Self::Left => "left",
            Self::Stopped => "stopped",
            Self::Unasked => "unasked",
        }
    }
}

/// A tool's result that the client sent for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewResult {
    pub tool: String,
    /// Length of its text as the client sent it.
    pub bytes: u64,
    /// The same, as estimated tokens.
    pub tokens: u64,
    /// From the call's release to the request that brought the result; `None` if the release is not known.
    pub took: Option<Duration>,
}

/// Tokens as the upstream billed them, summed over all its replies; `saved` is our own estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub prompt: u64,
    /// Of the prompt, those read from the provider's cache.
    pub cached: u64,
    /// Of the prompt, those written to the provider's cache.
    pub cache_written: u64,
    pub completion: u64,
    /// Of the completion, those spent on reasoning.
    pub reasoning: u64,
    /// Not sent because texts were shortened, in this request, its old messages included.
    pub saved: u64,
}

/// What policies of the context did to the conversation, its old messages included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// They changed something; of conversations held out: they would have.
    pub touched: bool,
    /// It is left alone, for comparison.
    pub held_out: bool,
}

/// What came of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryResult {
    /// In time.
    Made,
    /// Not in time; it may be told with the next batch.
    Late,
    Failed,
    /// A request was told one that was made before.
    Pinned,
    /// A batch of an earlier request of which no decision is remembered: it is told as cleared.
    Lost,
}

impl SummaryResult {
    /// Every result.
    pub const ALL: [Self; 5] = [Self::Made, Self::Late, Self::Failed, Self::Pinned, Self::Lost];

    /// As in the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Pinned => "pinned",
            Self::Lost => "lost",
        }
    }
}

/// A second try that the upstream's refusal made necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Without tools.
    Tools,
    /// Without `tool_choice`.
    ToolChoice,
    /// With the tool history as plain text.
    Flattened,
    /// With notices at another place.
    Placement,
    /// With old results cleared, the request was too long.
    Overflow,
    /// Without asking for the usage of the stream.
    StreamOptions,
    /// On a new connection, the old one was stale.
    Stale,
}

/// Why the rewritten history is not a prefix of the next one's, so that a provider's cache misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixBreak {
    Compact,
    History,
    Overflow,
    Placement,
    Ledger,
}

/// How much of a limit is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub policy: Option<&'static str>,
    /// The tool; `*` for all together.
    pub tool: String,
    pub used: u64,
    pub limit: u64,
}

/// Where the time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the request's head to the reply's end.
    pub total: Duration,
    /// Waiting for the upstream; zero if it was not asked.
    pub upstream: Duration,
    /// From the request's head to the first byte of the reply's body.
    pub first_byte: Option<Duration>,
    /// Our own share.
    pub overhead: Duration,
}

impl Outcome {
    /// The outcome of a request on `route` of which nothing is known yet.
    pub fn new(route: Route) -> Self {
        Self { route, ..Self::default() }
    }

    /// Notes that `policy` did `action` on the request or on the reply, `count` times more.
    pub fn act(&mut self, on: On, policy: &'static str, action: impl Into<Cow<'static, str>>, count: u64) {
        let action = action.into();
        let same = |known: &&mut Action| (known.on, known.policy, &known.action) == (on, policy, &action);
        match self.actions.iter_mut().find(same) {
            Some(known) => known.count += count,
            None => self.actions.push(Action { policy, action, count, on }),
        }
    }
}

/// The value of `x-toolrein-actions`: `truncate=2, budget=notice, tokens_saved=512`. Edits by their number, before the
/// rest by word; each part sorted and without repetition, so that equal actions in any order give equal headers. Last
/// the estimated tokens of the request that the model was not shown, since the client's own gauge, the bill, does not
/// know of them. `None` where nothing acted.
pub fn actions_header<'a>(actions: impl IntoIterator<Item = &'a Action>, saved: u64) -> Option<String> {
    let mut actions = actions.into_iter().filter(|action| action.count > 0).peekable();
    // As with nearly every reply.
    if actions.peek().is_none() && saved == 0 {
        return None;
    }
    let (edits, words): (Vec<&Action>, Vec<&Action>) =
        actions.partition(|action| EDITS.contains(&&*action.action));
    let mut counted: Vec<(&str, u64)> = Vec::new();
    for edit in edits {
        match counted.iter_mut().find(|(policy, _)| *policy == edit.policy) {
            Some((_, count)) => *count += edit.count,
            None => counted.push((edit.policy, edit.count)),
        }
    }
    counted.sort_unstable();
    let mut named: Vec<(&str, &str)> = words.iter().map(|word| (word.policy, &*word.action)).collect();
    named.sort_unstable();
    named.dedup();
    let counted = counted.iter().map(|(policy, count)| format!("{policy}={count}"));
    let named = named.iter().map(|(policy, word)| format!("{policy}={word}"));
    let saved = (saved > 0).then(|| format!("tokens_saved={saved}"));
    let parts: Vec<String> = counted.chain(named).chain(saved).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

impl Route {
    pub(super) const ALL: [Self; 3] = [Self::Chat, Self::Relay, Self::Upgrade];

    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Relay => "relay",
            Self::Upgrade => "upgrade",
        }
    }
}

impl Verdict {
    /// As in fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Block => "block",
            Self::Modify => "modify",
            Self::Answer => "answer",
            Self::Ask => "ask",
        }
    }
}

impl Fallback {
    pub(super) const ALL: [Self; 7] = [
        Self::Tools,
        Self::ToolChoice,
        Self::Flattened,
        Self::Placement,
        Self::Overflow,
        Self::StreamOptions,
        Self::Stale,
    ];

    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::ToolChoice => "tool_choice",
            Self::Flattened => "flattened",
            Self::Placement => "placement",
            Self::Overflow => "overflow",
            Self::StreamOptions => "stream_options",
            Self::Stale => "stale",
        }
    }
}

impl PrefixBreak {
    pub(super) const ALL: [Self; 5] =
        [Self::Compact, Self::History, Self::Overflow, Self::Placement, Self::Ledger];

    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::History => "history",
            Self::Overflow => "overflow",
            Self::Placement => "placement",
            Self::Ledger => "ledger",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(acts: &[(On, &'static str, &'static str, u64)]) -> Option<String> {
        let mut outcome = Outcome::new(Route::Chat);
        for (on, policy, action, count) in acts.iter().copied() {
            outcome.act(on, policy, action, count);
        }
        actions_header(&outcome.actions, 0)
    }

    #[test]
    fn the_header_tells_edits_by_number_and_the_rest_by_word() {
        for (acts, expected) in [
            (vec![], None),
            (vec![(On::Request, "truncate", SHORTENED, 0)], None),
            (
                vec![(On::Request, "budget", "notice", 1), (On::Request, "truncate", SHORTENED, 2)],
                Some("truncate=2, budget=notice"),
            ),
            (vec![(On::Request, "budget", "notice", 3)], Some("budget=notice")),
            (
                vec![
                    (On::Reply, "truncate", SHORTENED, 1),
                    (On::Request, "compact", SHORTENED, 4),
                    (On::Request, "truncate", SHORTENED, 2),
                ],
                Some("compact=4, truncate=3"),
            ),
            (
                vec![
                    (On::Reply, "loops", "withheld", 1),
                    (On::Request, "loops", "notice", 1),
                    (On::Request, "loops", "withheld", 1),
                    (On::Request, "budget", "withheld", 1),
                ],
                Some("budget=withheld, loops=notice, loops=withheld"),
            ),
        ] {
            assert_eq!(header(&acts).as_deref(), expected, "{acts:?}");
            let reversed: Vec<_> = acts.into_iter().rev().collect();
            assert_eq!(header(&reversed).as_deref(), expected, "{reversed:?}");
        }
    }

    #[test]
    fn equal_actions_merge_and_those_on_the_reply_stay_apart() {
        let mut outcome = Outcome::new(Route::Chat);
        outcome.act(On::Request, "loops", "notice", 1);
        outcome.act(On::Reply, "loops", "withheld", 1);
        outcome.act(On::Request, "loops", "notice", 2);
        let told: Vec<_> = outcome.actions.iter().map(|act| (act.on, &*act.action, act.count)).collect();
        assert_eq!(told, [(On::Request, "notice", 3), (On::Reply, "withheld", 1)]);
        let reply = outcome.actions.iter().filter(|act| act.on == On::Reply);
        assert_eq!(actions_header(reply, 512).as_deref(), Some("loops=withheld, tokens_saved=512"));
    }
}
