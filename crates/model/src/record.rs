//! The request record: plain data about one client request, filled in while the request runs and recorded once at its
//! end. Neither counts nor writes anything.

mod approval;
mod endpoint;
mod refusal;
mod retry;

pub use approval::{ApprovalRecord, Consent, WebhookResult};
pub use endpoint::{Endpoint, shown};
pub use refusal::{RefusalNote, RefusalScope};
pub use retry::Retry;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// Everything that is reported about one client request, however it ended. Re-asks and fallbacks belong to the request
/// that they serve. Contains no body and no credential, and of arguments only those that policies wrote anew.
#[derive(Clone, Debug, Default)]
pub struct RequestRecord {
    pub request_id: String,
    /// The conversation's id, as the client gave it or as it was derived.
    pub conversation: Option<String>,
    /// The client gave that id.
    pub names_conversation: bool,
    pub model: Option<String>,
    /// The model that the upstream names in its last reply with a usage. Only where a trace is kept.
    pub response_model: Option<String>,
    /// The name of the request's profile.
    pub profile: Option<Arc<str>>,
    /// A keyed hash of the caller's credential.
    pub caller: Option<String>,
    /// The caller's name, where callers are named; `None` where they are known by their credentials. For metrics and the
    /// admin server alone.
    pub caller_name: Option<CallerName>,
    /// The request's method and path, without its query.
    pub method: String,
    pub path: String,
    pub endpoint: Endpoint,
    pub route: Route,
    /// `enforce`, `observe` or `off`.
    pub mode: &'static str,
    /// The HTTP status that the client got; 0 if it left before there was one.
    pub status: u16,
    /// The code of an error of toolrein's own.
    pub error: Option<&'static str>,
    /// What exactly failed, such as what the operating system said of the connection.
    pub error_detail: Option<String>,
    /// The client left before the end.
    pub client_gone: bool,
    pub streamed: bool,
    /// Why a governed request was relayed unread: `not_json`, `no_messages`, `lone_surrogate`, ...
    pub ungoverned: Option<&'static str>,
    /// Why some of its messages were left as they are, while the rest was governed.
    pub partly_ungoverned: Option<&'static str>,
    /// What policies did that they had not done to an earlier request.
    pub actions: Vec<Action>,
    /// The calls that the model made in this reply.
    pub judged: Vec<JudgedCall>,
    /// Texts of arguments that policies wrote anew, where the operator wants them recorded. For the audit log alone.
    pub new_texts: Vec<NewText>,
    /// The results since the last assistant message of the request.
    pub results: Vec<NewResult>,
    /// Cut results that the model requested again.
    pub re_requests: Vec<ReRequest>,
    /// Calls that needed a person's decision, and the decisions.
    pub confirmations: Vec<Consent>,
    /// Approvals call by call, with who decided. For the log and the audit log.
    pub approvals: Vec<ApprovalRecord>,
    pub tokens: Tokens,
    /// What each policy did to the number of tokens.
    pub policy_tokens: Vec<PolicyTokens>,
    /// The names of the tools that the request declares.
    pub declared_tools: Arc<[String]>,
    /// The estimated tokens of the tools that the request declares.
    pub definition_tokens: u64,
    /// The estimated tokens of the system messages, of the first request of a conversation.
    pub system_tokens: Option<u64>,
    /// What the billed tokens cost in billionths of a dollar; `None` where the model's price is not known.
    pub cost: Option<u64>,
    /// The model's context window in tokens, where it is known.
    pub context_window: Option<u32>,
    /// The upstream's usage had implausible numbers; they are left out of [`Self::tokens`], and a policy that
    /// counts tokens or money takes an estimate in their place.
    pub implausible_usage: bool,
    pub context: Context,
    /// Requests that were sent to the upstream for this one.
    pub upstream_requests: u32,
    /// The upstream's ids for them, in order.
    pub upstream_request_ids: Vec<String>,
    pub fallbacks: Vec<Retry>,
    /// The model's refusals that the request met or avoided.
    pub refusals: Vec<RefusalNote>,
    pub prefix_breaks: Vec<PrefixBreak>,
    /// The kind of each item of the replies that no client runs: hosted tools, reasoning.
    pub carried: Vec<&'static str>,
    /// Why replies, or parts of them, passed without being judged: `event_too_long`, `held_too_much`, ...
    pub unjudged: Vec<&'static str>,
    /// The state store did not answer for the request; the value says whether the request was refused for that.
    pub without_store: Option<bool>,
    /// The state of summaries that were decided before.
    pub summaries: Vec<SummaryResult>,
    /// Hidden exchanges that should have been restored and could not be.
    pub lost_hidden_exchanges: u32,
    pub reasks: u32,
    /// Results of effects that came after the effect was cancelled. They count for nothing.
    pub late_results: u32,
    /// It was shortened at once, since an earlier request of the conversation was refused for its length.
    pub overflow_remembered: bool,
    /// The identical body was seen before: what is derived from the request is not counted again.
    pub repeated: bool,
    /// How much of each limit the conversation has used. For the log alone.
    pub usage_of_limits: Vec<LimitUse>,
    pub times: Times,
    /// Size of the request's body, without its content coding.
    pub request_bytes: u64,
    /// Size of the reply's body as the client got it.
    pub reply_bytes: u64,
    /// The client's W3C `traceparent`.
    pub traceparent: Option<String>,
    /// A trace of it is kept.
    pub is_traced: bool,
    /// How much of it the stream of events has shown.
    pub published: Published,
}

/// The caller's name, where the operator says what names callers: a header, a member of the body, or `[caller.NAME]`. A
/// credential is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerName {
    /// It names nobody.
    Nobody,
    /// A name that cannot be shown: it is too long, has characters that are invisible, or equals a label of several callers.
    Unshown,
    Shown(Arc<str>),
}

/// How a request was treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Chat completions, through the policies.
    Chat,
    /// The Responses API, through the policies.
    Responses,
    /// Anthropic's Messages API, through the policies.
    Messages,
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
    /// One of [`EDITS`], or the name of a notice or verdict: `notice`, `blocked`, ...
    pub action: Cow<'static, str>,
    pub count: u64,
    pub on: On,
}

/// The actions that change an existing text: reported by their number instead of their name.
pub const EDITS: [&str; 7] =
    ["cleared", "shown_once", "text_blocked", "pointed", SHORTENED, "annotated", "turns_dropped"];
/// A text was shortened.
pub const SHORTENED: &str = "shortened";

/// What is counted and is no action: nothing was done to the request, since what came before it is not known.
pub const UNKNOWN: &str = "unknown";

/// What is counted and is no action: one request came again and again.
pub const STORM: &str = "storm";

/// A policy refused a request, or would have in observe mode.
pub const REJECTED: &str = "rejected";

/// The target of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Request,
    Reply,
}

/// A cut result that the model requested again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReRequest {
    /// The tool that gave it.
    pub tool: String,
    /// Where it shows: in the request with the second result, or in the reply that calls toolrein's own tool.
    pub on: On,
}

/// A call of the reply, and the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedCall {
    pub tool: String,
    /// As the upstream gave it; empty where it gave none.
    pub id: String,
    pub verdict: Verdict,
    /// It was allowed because it could not be judged.
    pub unjudged: bool,
    /// The decisions of policies: every objection in registry order, also in observe mode, then what else was done.
    pub decisions: Vec<PolicyDecision>,
    /// The model gets the text of the first of them.
    pub is_spoken: bool,
    /// The arguments that the client got instead of the model's. For the recorder alone.
    pub new_arguments: Option<String>,
}

impl JudgedCall {
    /// The text of the first objection.
    pub fn message(&self) -> Option<&str> {
        self.decisions.first()?.message.as_deref()
    }

    /// The text of the first objection, or else the reason of the first decision.
    pub fn explanation(&self) -> Option<&str> {
        self.message().or(self.decisions.first().map(|decision| decision.reason))
    }
}

/// A text among a call's arguments, before and after a policy wrote it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewText {
    pub policy: &'static str,
    pub tool: String,
    pub before: String,
    pub after: String,
}

/// The decision of one policy on a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDecision {
    pub policy: &'static str,
    /// The reason of an objection, as the model gets it (`RATE_LIMIT`, ...), or what else was done: `answered`,
    /// `rewritten`.
    pub reason: &'static str,
    pub is_objection: bool,
    /// The text of an objection for the model. For the recorder, the log's short line and the admin server alone.
    pub message: Option<String>,
    /// The numbers of an objection, with units in their names. For the recorder alone.
    pub numbers: Vec<(&'static str, u64)>,
}

/// What happened to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client got it as it was.
    Allow,
    /// The client did not get it.
    Block,
    /// The client got it with other arguments.
    Modify,
    /// A policy answered it instead of the client.
    Answer,
    /// A person was asked about it.
    Ask,
}

/// A tool's result that the client sent for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewResult {
    pub tool: String,
    /// Length of its text as the client sent it.
    pub bytes: u64,
    /// The length of its text in estimated tokens.
    pub tokens: u64,
    /// From the call's release to the request with the result; `None` if the release is not known.
    pub took: Option<Duration>,
    pub outcome: ResultOutcome,
}

/// What a tool gave, by its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultOutcome {
    #[default]
    Useful,
    Empty,
    Failed,
}

impl ResultOutcome {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Useful, Self::Empty, Self::Failed];

    /// As in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Useful => "ok",
            Self::Empty => "empty",
            Self::Failed => "failed",
        }
    }
}

/// What one policy did to the number of tokens of a client request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyTokens {
    pub policy: &'static str,
    /// Tokens that are not sent, estimated; earlier cuts included.
    pub removed: u64,
    /// Tokens that are sent in addition, estimated: notices and declarations, earlier ones included.
    pub added: u64,
    /// Tokens that were billed for asking the model again after the policy's decision.
    pub reasked: u64,
}

/// Tokens as the upstream billed them, summed over all its replies; `saved` is toolrein's own estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub prompt: u64,
    /// The part of the prompt that was read from the provider's cache.
    pub cached: u64,
    /// The part of the prompt that was written to the provider's cache.
    pub cache_written: u64,
    pub completion: u64,
    /// The part of the completion that was spent on reasoning.
    pub reasoning: u64,
    /// Not sent in this request because texts were shortened, its old messages included.
    pub saved: u64,
}

/// What context policies did to the conversation, its old messages included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// They changed something; in held-out conversations: they would have.
    pub touched: bool,
    /// The conversation is left unchanged, as a control group.
    pub held_out: bool,
}

/// The result of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryResult {
    /// The summary came in time.
    Made,
    /// The summary came too late; it may be used in the next batch.
    Late,
    Failed,
    /// A request got a summary that was made before.
    Pinned,
    /// A batch of an earlier request whose decision is not known any more: it counts as cleared.
    Lost,
}

impl SummaryResult {
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

/// Why the rewritten history does not start with the previous one, so that the provider's prefix cache misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixBreak {
    Compact,
    History,
    Overflow,
    Placement,
    StateStore,
    /// A result that was to be shown once was hidden.
    ShownOnce,
}

/// How much of a limit is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    pub policy: Option<&'static str>,
    /// The tool; `*` for all together.
    pub tool: String,
    pub used: u64,
    pub limit: u64,
    /// The request counts for it. Only of a limit on calls over several conversations: a call of the request counts.
    pub is_used: bool,
    /// It limits a caller over all its conversations.
    pub of_caller: bool,
}

/// The timing of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the request's head to the reply's end.
    pub total: Duration,
    /// Waiting for the upstream; zero if it was not asked.
    pub upstream: Duration,
    /// From the request's head to the first byte of the reply's body.
    pub first_byte: Option<Duration>,
    /// toolrein's own overhead.
    pub overhead: Duration,
}

/// How many entries of a request record the stream of events has shown while the request was in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    pub results: usize,
    pub actions: usize,
    pub calls: usize,
    pub reasks: usize,
    pub fallbacks: usize,
    pub approvals: usize,
}

impl RequestRecord {
    /// The record of a request on `route`, otherwise empty.
    pub fn new(route: Route) -> Self {
        Self { route, ..Self::default() }
    }

    /// The tokens of `policy`.
    pub fn tokens_of(&mut self, policy: &'static str) -> &mut PolicyTokens {
        let at = self.policy_tokens.iter().position(|known| known.policy == policy).unwrap_or_else(|| {
            self.policy_tokens.push(PolicyTokens { policy, ..PolicyTokens::default() });
            self.policy_tokens.len() - 1
        });
        &mut self.policy_tokens[at]
    }

    /// Notes that `policy` did `action` on the request or on the reply, `count` more times.
    pub fn act(&mut self, on: On, policy: &'static str, action: impl Into<Cow<'static, str>>, count: u64) {
        let action = action.into();
        let same = |known: &&mut Action| (known.on, known.policy, &known.action) == (on, policy, &action);
        match self.actions.iter_mut().find(same) {
            Some(known) => known.count += count,
            None => self.actions.push(Action { policy, action, count, on }),
        }
    }
}

/// The value of `x-toolrein-actions`: `truncate=2, budget=notice, tokens_saved=512`. First come the [`shown_actions`],
/// last the estimated tokens of the request that were not sent to the model: clients measure by the bill, which does not
/// contain them. `None` where nothing acted.
pub fn actions_header<'a>(actions: impl IntoIterator<Item = &'a Action>, saved: u64) -> Option<String> {
    let mut parts = shown_actions(actions);
    parts.extend((saved > 0).then(|| format!("tokens_saved={saved}")));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What acted: edits with their number, `truncate=2`, then the other actions by name, `budget=notice`. Each kind is sorted
/// and without repetition, so that the order of the actions makes no difference.
pub fn shown_actions<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Vec<String> {
    let is_done = |action: &&Action| action.count > 0 && ![UNKNOWN, STORM].contains(&&*action.action);
    let mut actions = actions.into_iter().filter(is_done).peekable();
    // The usual case.
    if actions.peek().is_none() {
        return Vec::new();
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
    counted.chain(named.iter().map(|(policy, word)| format!("{policy}={word}"))).collect()
}

impl Route {
    /// Whether the request goes through the policies.
    pub fn is_governed(self) -> bool {
        matches!(self, Self::Chat | Self::Responses | Self::Messages)
    }

    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
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

impl PrefixBreak {
    /// As in labels and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::History => "history",
            Self::Overflow => "overflow",
            Self::Placement => "placement",
            Self::StateStore => "store",
            Self::ShownOnce => "shown_once",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(acts: &[(On, &'static str, &'static str, u64)]) -> Option<String> {
        let mut record = RequestRecord::new(Route::Chat);
        for (on, policy, action, count) in acts.iter().copied() {
            record.act(on, policy, action, count);
        }
        actions_header(&record.actions, 0)
    }

    #[test]
    fn the_actions_header_gives_edits_as_counts_and_the_rest_as_words() {
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
                    (On::Reply, "loops", "blocked", 1),
                    (On::Request, "loops", "notice", 1),
                    (On::Request, "loops", "blocked", 1),
                    (On::Request, "budget", "blocked", 1),
                ],
                Some("budget=blocked, loops=blocked, loops=notice"),
            ),
        ] {
            assert_eq!(header(&acts).as_deref(), expected, "{acts:?}");
            let reversed: Vec<_> = acts.into_iter().rev().collect();
            assert_eq!(header(&reversed).as_deref(), expected, "{reversed:?}");
        }
    }

    #[test]
    fn equal_actions_merge_and_those_on_the_reply_stay_apart() {
        let mut record = RequestRecord::new(Route::Chat);
        record.act(On::Request, "loops", "notice", 1);
        record.act(On::Reply, "loops", "blocked", 1);
        record.act(On::Request, "loops", "notice", 2);
        let recorded: Vec<_> = record.actions.iter().map(|act| (act.on, &*act.action, act.count)).collect();
        assert_eq!(recorded, [(On::Request, "notice", 3), (On::Reply, "blocked", 1)]);
        let reply = record.actions.iter().filter(|act| act.on == On::Reply);
        assert_eq!(actions_header(reply, 512).as_deref(), Some("loops=blocked, tokens_saved=512"));
    }
}
