//! The explanation of one conversation as plain data: each message before and after, what was done to it, by whom and
//! why, and the totals. Neither collects nor formats them. Its JSON form is that of `--json`.

use crate::replay::live::LiveCounts;
use model::plan::ReasonKind;
use serde::Serialize;

/// One conversation, explained.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Explained {
    pub file: String,
    pub line: u64,
    pub id: Option<String>,
    pub source: Option<String>,
    pub model: Option<String>,
    /// The profile that it takes; `None`: the settings outside of profiles.
    pub profile: Option<String>,
    /// How notices are placed.
    pub placement: Option<&'static str>,
    pub tools: Vec<Declared>,
    pub messages: Vec<Shown>,
    pub refusals: Vec<Refused>,
    pub totals: Totals,
    /// Of the policies that are on, those that did anything.
    pub policies: Vec<PolicySum>,
    pub limits: Vec<Limit>,
    /// The first message whose call would be blocked, and was not when it was recorded: what follows is counterfactual.
    pub counterfactual_after: Option<usize>,
    /// What toolrein did when this was recorded, where it was recorded by it.
    pub live: Vec<LiveBlock>,
    /// What became of all calls when they were made; `None`: not known.
    pub live_counts: Option<LiveCounts>,
}

/// A call that was not simply released in a live request, or a request that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LiveBlock {
    pub time: String,
    pub request_id: String,
    /// The index of the reply, as in the last request.
    pub message: usize,
    /// `enforce`, or `observe`, where nothing was changed.
    pub mode: String,
    /// `None`: the request was refused.
    pub tool: Option<String>,
    pub verdict: String,
    /// `None`: not kept.
    pub arguments: Option<String>,
    pub rules: Vec<Rule>,
    /// The sentence that the model read.
    pub read: Option<String>,
    /// What the model did next.
    pub next: Option<String>,
}

/// A policy's objection, with what of its limit was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rule {
    pub policy: String,
    pub reason: String,
    pub message: Option<String>,
    pub used: Option<u64>,
    pub limit: Option<u64>,
}

/// A tool that the last request declares.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Declared {
    pub name: String,
    pub tokens: u64,
    /// The policy that hides it from the model.
    pub hidden_by: Option<&'static str>,
}

/// One message.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shown {
    /// Its index, from 0, as in the line's `messages`; of an added message the index of the one it follows.
    pub message: usize,
    pub role: &'static str,
    /// The tool whose result it is.
    pub tool: Option<String>,
    pub fate: Fate,
    /// As recorded; `None`: toolrein added it.
    pub before: Option<Size>,
    /// As sent; `None`: it is not.
    pub after: Option<Size>,
    pub pieces: Vec<Piece>,
    pub acts: Vec<Act>,
    pub calls: Vec<Made>,
    /// It is a result that reports a failure.
    #[serde(skip)]
    pub is_failed: bool,
    /// What the model would have been shown instead, since the call that it answers would have been blocked.
    pub instead: Option<String>,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fate {
    Same,
    Changed,
    Dropped,
    /// A message of toolrein.
    Added,
    /// The reply to the last request.
    Reply,
    /// Its request was refused.
    Unsent,
}

/// How long a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Size {
    /// Characters of text, calls left out.
    pub chars: usize,
    /// Estimated, calls included.
    pub tokens: u64,
}

/// A text of a message, or a part of it that is not text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Piece {
    pub kind: Kind,
    pub before: Option<String>,
    /// `None`: not sent. Equal to `before` where nothing changed.
    pub after: Option<String>,
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Text,
    /// JSON, such as the part of an image.
    Part,
}

/// What one policy did to one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Act {
    pub policy: &'static str,
    pub action: String,
    pub why: String,
    /// Estimated tokens that are not sent; less than 0 where tokens are added.
    pub saved_tokens: i64,
    /// Whether it applies: of several changes of one text only the strongest does.
    pub applies: bool,
    /// It adds a text of toolrein.
    #[serde(skip)]
    pub is_notice: bool,
}

/// A call that an assistant's message made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Made {
    pub tool: String,
    pub arguments: String,
    #[serde(flatten)]
    pub ruling: Ruled,
    /// Every objection: policy, reason and words.
    pub objections: Vec<Objection>,
}

/// What was decided on a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "ruling")]
pub(super) enum Ruled {
    Released,
    /// The client sees these arguments.
    Rewritten {
        by: &'static str,
        new_arguments: String,
    },
    /// The client does not see it; the model is shown this result.
    Blocked {
        by: &'static str,
        result: String,
    },
    /// The client does not run it; the model is shown this result.
    Answered {
        by: &'static str,
        result: String,
    },
    /// Its request was refused.
    Refused,
    /// It answered no request, such as one in a greeting.
    Unjudged,
}

impl Explained {
    /// What is said where no policy did anything.
    pub(super) fn idle_sentence(&self) -> &'static str {
        if self.live.is_empty() {
            return "No policy did anything.";
        }
        "No policy did anything in this replay of what the client sent; the live part shows what policies did then."
    }

    /// Whether calls are shown as blocked that may have run: recordings do not contain a person's answer to an approval
    /// question.
    pub(super) fn lacks_approvals(&self) -> bool {
        let mut objections =
            self.messages.iter().flat_map(|shown| &shown.calls).flat_map(|call| &call.objections);
        objections.any(|objection| objection.reason == ReasonKind::ConfirmationRequired.as_str())
    }
}

/// Why a policy would have a call blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Objection {
    pub policy: &'static str,
    pub reason: &'static str,
    pub message: String,
}

/// A request that a policy would not send.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Refused {
    /// Its last message.
    pub message: usize,
    pub policy: &'static str,
    pub code: &'static str,
    pub words: String,
}

/// The totals of the last request, and of all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Totals {
    /// Messages of the last request as recorded, and as sent.
    pub messages_before: usize,
    pub messages_after: usize,
    /// Estimated tokens of its messages, and of its tools' declarations.
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub tool_tokens_before: u64,
    pub tool_tokens_after: u64,
    /// Estimated tokens that policies remove from them, and add.
    pub tokens_removed: u64,
    pub tokens_added: u64,
    /// Notices in the last request.
    pub notices: usize,
    pub calls: usize,
    pub blocked: usize,
}

/// What one policy did to the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct PolicySum {
    pub policy: &'static str,
    pub summary: &'static str,
    /// Changes to the last request.
    pub changes: usize,
    /// Calls to which it objected.
    pub blocked: usize,
    /// Estimated, in the last request.
    pub saved_tokens: i64,
}

/// How far a limit was used at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Limit {
    pub policy: &'static str,
    /// `*`: all together.
    pub tool: String,
    pub used: u64,
    pub limit: u64,
}

impl Shown {
    /// Whether anything happened to it or to its calls.
    pub(super) fn is_touched(&self) -> bool {
        let fate = matches!(self.fate, Fate::Changed | Fate::Dropped | Fate::Added);
        let acts = self.acts.iter().any(|act| act.applies);
        fate || acts || self.instead.is_some() || self.calls.iter().any(Made::is_touched)
    }
}

impl Made {
    /// Whether it was not simply released.
    pub(super) fn is_touched(&self) -> bool {
        !matches!(self.ruling, Ruled::Released | Ruled::Unjudged) || !self.objections.is_empty()
    }
}
