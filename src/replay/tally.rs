//! The counts of one replayed conversation, and their sums over many. Counts and adds; neither judges nor formats.

use super::input::InputPosition;
use super::live::LiveCounts;
use super::recording::Labels;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A conversation, replayed.
#[derive(Debug)]
pub(super) struct Conversation {
    pub position: InputPosition,
    pub labels: Labels,
    pub figures: Figures,
    /// By policy.
    pub acts: BTreeMap<&'static str, Acts>,
    /// How far each limit was used at most, by policy and tool.
    pub limits: BTreeMap<(&'static str, String), Use>,
    /// The tools that its requests declare, by name.
    pub tools: BTreeMap<String, ToolUse>,
    /// What was done, in order.
    pub events: Vec<Event>,
    /// What became of its calls when toolrein recorded it.
    pub live_counts: Option<LiveCounts>,
}

/// Numbers that add up over requests and over conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub requests: u64,
    /// Requests that a policy refused.
    pub rejected: u64,
    pub calls: u64,
    /// Calls blocked, by whichever policies, and calls after requests that were refused.
    pub blocked: u64,
    /// Bytes of all requests as recorded, and as they would have been sent.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Estimated, over all requests: a shortened result saves tokens in each of them.
    pub tokens_saved: u64,
    /// Bytes of the messages of all requests but the last of each conversation, as they would have been sent.
    pub prefix_bytes: u64,
    /// Of those, the bytes that the next request would have repeated.
    pub prefix_kept: u64,
    /// Requests that would not have repeated all of the previous one.
    pub prefix_breaks: u64,
    /// Of all these, what came after the first blocked call of its conversation.
    pub after: After,
}

/// What came after the first blocked call or refused request of a conversation: counterfactual, since the model would
/// have gone on differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct After {
    pub conversations: u64,
    pub requests: u64,
    pub calls: u64,
    /// Calls avoided, as an estimate.
    pub blocked: u64,
    pub tokens_saved: u64,
}

/// What one policy did. Everything except the savings is counted once, when it is new in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Acts {
    /// Everything that it did: notices, blocked calls, edits, requests refused.
    pub acted: u64,
    pub blocked: u64,
    pub notices: u64,
    pub rejected: u64,
    /// Over all requests; less than 0 where its notices are longer than what it cut.
    pub bytes_saved: i64,
    pub tokens_saved: u64,
    /// By the name of the action; includes remarks, which change nothing.
    pub actions: BTreeMap<Cow<'static, str>, u64>,
}

/// How much of a limit was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub used: u64,
    pub limit: u64,
}

/// How a tool was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolUse {
    /// Requests that declared it.
    pub requests: u64,
    pub calls: u64,
    /// The estimated tokens of its definition, over all these requests.
    pub tokens: u64,
}

impl ToolUse {
    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.calls += other.calls;
        self.tokens += other.tokens;
    }
}

/// One thing that a policy did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The position of the message, from 0, as in the line's `messages`.
    pub message: usize,
    pub policy: &'static str,
    pub action: Cow<'static, str>,
    pub tool: Option<String>,
    /// Why a call was blocked, or the code of a refusal.
    pub reason: Option<String>,
}

/// The sums over many conversations.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub conversations: u64,
    /// Conversations in which any policy did anything.
    pub touched: u64,
    /// Conversations that saw a blocked call or a refused request.
    pub stopped: u64,
    pub solved: u64,
    pub solved_stopped: u64,
    pub figures: Figures,
    pub policies: BTreeMap<&'static str, PolicySum>,
}

/// What one policy did to many conversations.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicySum {
    pub acts: Acts,
    pub touched: u64,
    pub stopped: u64,
    pub solved_stopped: u64,
}

impl Figures {
    /// Whether anything of the conversation was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.blocked + self.rejected > 0
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.rejected += other.rejected;
        self.calls += other.calls;
        self.blocked += other.blocked;
        self.bytes_before += other.bytes_before;
        self.bytes_after += other.bytes_after;
        self.tokens_saved += other.tokens_saved;
        self.prefix_bytes += other.prefix_bytes;
        self.prefix_kept += other.prefix_kept;
        self.prefix_breaks += other.prefix_breaks;
        self.after.add(other.after);
    }

    /// Notes as counterfactual what was counted since `before`.
    pub(super) fn count_after(&mut self, before: &Self) {
        self.after.add(After {
            conversations: u64::from(self.after.requests == 0),
            requests: self.requests - before.requests,
            calls: self.calls - before.calls,
            blocked: self.blocked - before.blocked,
            tokens_saved: self.tokens_saved - before.tokens_saved,
        });
    }
}

impl After {
    fn add(&mut self, other: Self) {
        self.conversations += other.conversations;
        self.requests += other.requests;
        self.calls += other.calls;
        self.blocked += other.blocked;
        self.tokens_saved += other.tokens_saved;
    }
}

impl Acts {
    fn add(&mut self, other: &Self) {
        self.acted += other.acted;
        self.blocked += other.blocked;
        self.notices += other.notices;
        self.rejected += other.rejected;
        self.bytes_saved += other.bytes_saved;
        self.tokens_saved += other.tokens_saved;
        for (action, count) in &other.actions {
            *self.actions.entry(action.clone()).or_default() += count;
        }
    }
}

impl Use {
    /// Keeps the fuller of the two.
    pub(super) fn raise(&mut self, other: Self) {
        if (other.used, other.limit) > (self.used, self.limit) {
            *self = other;
        }
    }
}

impl Group {
    /// A group without conversations, of all `policies`.
    pub(super) fn new(policies: &[&'static str]) -> Self {
        let policies = policies.iter().map(|name| (*name, PolicySum::default())).collect();
        Self { policies, ..Self::default() }
    }

    /// Adds a conversation.
    pub(super) fn add(&mut self, conversation: &Conversation) {
        let (figures, solved) = (&conversation.figures, conversation.labels.solved == Some(true));
        self.conversations += 1;
        self.touched += u64::from(conversation.acts.values().any(|acts| acts.acted > 0));
        self.stopped += u64::from(figures.is_stopped());
        self.solved += u64::from(solved);
        self.solved_stopped += u64::from(solved && figures.is_stopped());
        self.figures.add(figures);
        for (policy, acts) in &conversation.acts {
            let sum = self.policies.entry(policy).or_default();
            let stopped = acts.blocked + acts.rejected > 0;
            sum.acts.add(acts);
            sum.touched += u64::from(acts.acted > 0);
            sum.stopped += u64::from(stopped);
            sum.solved_stopped += u64::from(solved && stopped);
        }
    }
}

/// `part` of `whole`, 0 to 1, to six decimal places; `None` where `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 1e6).round() / 1e6)
}
