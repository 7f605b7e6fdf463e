//! Plans: the decisions of the policies, as plain data: edits of events, verdicts on calls, a refusal of the request.
//! They say what should change, never how bytes change.

mod announced;
pub mod approval;
pub mod decision;
mod envelope;
mod facts;
mod finding;
mod frame;
pub mod placeholders;
mod question;
mod redaction;
mod reservation;
mod summaries;
pub mod texts;
mod tools;
mod verdict;
pub mod work;

pub use announced::Announced;
pub use envelope::{details, envelope, enveloped, rfc3339};
pub use facts::{Gone, ResultFacts, TakenIn, TextFacts};
pub use finding::Finding;
pub use frame::Frame;
pub use question::{CallResults, ModelQuestion, ModelTerms, ToolRun};
pub use reservation::{Reservation, ReservationResult};
pub use summaries::{BatchSummaries, BatchSummary, ModelEndpoint, SummaryBlank, SummaryTerms, SummaryWanted};
pub use tools::ToolsEdit;
pub use verdict::{
    CallEffect, Clarification, Extends, Issue, OpenTools, Proposed, Reason, ReasonKind, Reworded, Verdict,
};

use self::placeholders::{Placeholders, Redaction};
use crate::fact::Writes;
use crate::source::{ItemId, Order};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use wire::body::Span;
use wire::escaped_text::EscapedText;

/// Everything that the policies want done to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub edits: Vec<Edit>,
    /// The turns to drop, oldest first.
    pub dropped: Vec<Dropped>,
    /// Tools that are hidden from the model, with the policy that hides them.
    pub hidden: Vec<(&'static str, String)>,
    /// Tools of ours that are declared after the client's.
    pub declared: Vec<Declared>,
    /// The estimated tokens of the tools that the request declares.
    pub definition_tokens: u64,
    /// Ask the model for one call at a time.
    pub one_at_a_time: bool,
    /// Do not send the request; answer it with this.
    pub refusal: Option<Refusal>,
    /// The request is sent for the final answer of its turn, for this policy: a limit is used up after which requests are
    /// refused.
    pub final_answer: Option<&'static str>,
    /// Tools of ours that the model may call.
    own: Vec<OwnTool>,
    /// Calls of the reply that cannot be judged are not passed on.
    restricts_calls: bool,
    /// What is known of summaries of cleared results.
    pub summaries: BatchSummaries,
    /// Notices that stay where they are placed now, since they are no functions of the history: at most one of a policy.
    pub announced: Vec<Announced>,
    /// What policies have found, each with the position of the message at which it was found.
    findings: Vec<(usize, Finding)>,
    /// What policies add to the state store.
    pub writes: Writes,
    /// Texts of ours before the descriptions of tools, by the tool's index.
    annotated: Vec<(&'static str, usize, String)>,
    /// The values that are hidden from the model, with the policy that hides them.
    hidden_values: Option<(&'static str, Arc<Placeholders>)>,
    /// The fold's current position: set by the runner, so that a policy can edit only the event that it reads.
    at: Cursor,
    /// The order of the conversation's items: policies name items by position, edits by id.
    pub order: Order,
}

/// Whole turns that are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub policy: &'static str,
    /// The positions of their items.
    pub messages: Range<usize>,
    /// The position of the item at which it was decided.
    pub decided: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cursor {
    message: usize,
    policy: &'static str,
}

/// A tool of ours, hidden from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub policy: &'static str,
    /// An item of `tools`, as JSON.
    pub tool: Arc<str>,
}

/// A tool of ours that the model may call, even if it is not declared: the model may know of it from earlier
/// messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnTool {
    policy: &'static str,
    name: &'static str,
    reads_results: bool,
}

/// One change to one item, signed by its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub item: ItemId,
    /// The position of the item at which it was decided: that item itself, except where old results are cleared.
    pub decided: usize,
    pub policy: &'static str,
    pub change: Change,
}

/// A change. Indexes `text` count the message's strings of text. Of several new texts for one string the highest in
/// this list applies: hide, clear, block, point, shorten, redact; surrounding lines apply to whichever it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// An old text is cleared to make room.
    Clear { text: usize, by: EscapedText, gone_chars: usize },
    /// The text was shown to the model once, and is not shown again.
    Hide { text: usize, by: EscapedText, gone_chars: usize },
    /// The text is hidden from the model.
    BlockText { text: usize, by: EscapedText, gone_chars: usize },
    /// The text equals one in the item `original`; not done where that one is cleared or dropped.
    Point { text: usize, by: EscapedText, gone_chars: usize, original: ItemId },
    /// The text is shortened.
    Shorten { text: usize, by: EscapedText, gone_chars: usize },
    /// Values in the text are hidden from the model, which reads placeholders: `by` is the whole text with them. Other
    /// policies read it as the text's own.
    Redact { text: usize, by: EscapedText, ranges: Arc<[Redaction]> },
    /// The arguments of the `call`-th call of the message become these, as JSON text: values in them are hidden.
    RedactCall { call: usize, by: EscapedText },
    /// Values in a JSON value of the body that is no text are hidden from the model; `ranges` count from its first byte.
    RedactValue { span: Span, ranges: Arc<[Redaction]> },
    /// Characters that hide text from people are removed, whatever the text becomes.
    Clean { text: usize, gone_chars: usize },
    /// Lines of ours are put before and after it, whatever it becomes.
    Surround { text: usize, frame: Frame },
    /// A text of ours that the model reads right after this message; `word` names it in headers and metrics.
    Notice { text: String, word: &'static str },
    /// Nothing changes; `word` is reported in metrics and the log, with what it is about where that is a name from
    /// the configuration.
    Remark { word: &'static str, of: Option<Arc<str>> },
}

impl Change {
    /// The estimated tokens that the model does not get because of this change.
    pub fn saved_tokens(&self) -> u64 {
        tokens_of(self.gone_chars())
    }

    /// The text of ours that it adds; empty where it adds none.
    pub fn text(&self) -> &str {
        match self {
            Self::Clear { by, .. }
            | Self::Hide { by, .. }
            | Self::BlockText { by, .. }
            | Self::Point { by, .. }
            | Self::Shorten { by, .. } => by,
            // The text is still its own, except for the placeholders.
            Self::Redact { .. } | Self::RedactCall { .. } | Self::RedactValue { .. } => "",
            Self::Notice { text, .. } => text,
            Self::Clean { .. } | Self::Surround { .. } | Self::Remark { .. } => "",
        }
    }

    /// The characters that the model does not get because of this change.
    pub fn gone_chars(&self) -> usize {
        match self {
            Self::Clear { gone_chars, .. }
            | Self::Hide { gone_chars, .. }
            | Self::BlockText { gone_chars, .. }
            | Self::Point { gone_chars, .. }
            | Self::Shorten { gone_chars, .. }
            | Self::Clean { gone_chars, .. } => *gone_chars,
            Self::Surround { .. } | Self::Notice { .. } | Self::Remark { .. } => 0,
            Self::Redact { .. } | Self::RedactCall { .. } | Self::RedactValue { .. } => 0,
        }
    }

    /// The name of the change in headers, metrics and the log.
    pub fn word(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Clear { .. } => "cleared",
            Self::Hide { .. } => "shown_once",
            Self::BlockText { .. } => "text_blocked",
            Self::Point { .. } => "pointed",
            Self::Shorten { .. } => "shortened",
            Self::Redact { .. } | Self::RedactValue { .. } => "redacted",
            Self::RedactCall { .. } => "call_redacted",
            Self::Clean { .. } => "stripped",
            Self::Surround { .. } => "annotated",
            Self::Remark { word, of: Some(of) } => return format!("{word}:{of}").into(),
            Self::Notice { word, .. } | Self::Remark { word, of: None } => word,
        })
    }
}

/// The estimated tokens of so many removed characters. 3.6 characters a token: between prose (4.2) and JSON (3.3), as
/// measured on recorded results.
pub fn tokens_of(gone_chars: usize) -> u64 {
    gone_chars as u64 * 10 / 36
}

/// How a request ends that a policy does not let go on with calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It is sent for the final answer of its turn, the last before requests are refused.
    FinalAnswer,
    /// It is refused; see [`Refusal`].
    Refusal { code: &'static str, message: String, reason: Option<Reason> },
}

/// A refusal of the request by a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub policy: &'static str,
    /// A stable code for programs.
    pub code: &'static str,
    pub message: String,
    /// Why, with its numbers, where the request may be sent again later.
    pub reason: Option<Reason>,
}

impl Plan {
    /// Moves the fold to `message` and `policy`. For the runner; policies do not need it.
    #[inline]
    pub fn move_to(&mut self, message: usize, policy: &'static str) {
        self.at = Cursor { message, policy };
    }

    /// Changes the event being read.
    pub fn edit(&mut self, change: Change) {
        self.edit_earlier(self.at.message, change);
    }

    /// Changes the earlier `message`: decided only from the history, in batches, or at the first message that follows the
    /// model's reply, since it costs the prompt cache.
    pub fn edit_earlier(&mut self, message: usize, change: Change) {
        let Cursor { message: decided, policy } = self.at;
        self.edits.push(Edit { item: self.order.id(message), decided, policy, change });
    }

    /// Drops whole turns: the earlier `messages`. The same rules as for [`edit_earlier`](Self::edit_earlier).
    pub fn drop_turns(&mut self, messages: Range<usize>) {
        let Cursor { message: decided, policy } = self.at;
        self.dropped.push(Dropped { policy, messages, decided });
    }

    /// The edits that clear or hide old texts.
    pub fn cleared(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter().filter(|edit| matches!(edit.change, Change::Clear { .. } | Change::Hide { .. }))
    }

    /// Whether the model reads notices.
    pub fn has_notices(&self) -> bool {
        self.edits.iter().any(|edit| matches!(edit.change, Change::Notice { .. }))
    }

    /// Whether the item is dropped with its turn.
    pub fn drops(&self, item: ItemId) -> bool {
        !self.dropped.is_empty() && self.order.position(item).is_some_and(|position| self.drops_at(position))
    }

    /// Whether the item at this position is dropped with its turn.
    pub fn drops_at(&self, position: usize) -> bool {
        self.dropped.iter().any(|dropped| dropped.messages.contains(&position))
    }

    /// The edits that count: without a cut that is in reserve for the pointer planned after it.
    pub fn effective_edits(&self) -> impl Iterator<Item = &Edit> {
        let is_reserve =
            |edit: &Edit, next: Option<&Edit>| match (&edit.change, next.map(|next| &next.change)) {
                (Change::Shorten { text, .. }, Some(Change::Point { text: pointed, .. })) => {
                    text == pointed && next.is_some_and(|next| next.item == edit.item)
                }
                _ => false,
            };
        let edits = self.edits.iter().enumerate();
        edits.filter(move |(at, edit)| !is_reserve(edit, self.edits.get(at + 1))).map(|(_, edit)| edit)
    }

    /// Adds the notice `text` right after the event being read.
    pub fn notice(&mut self, word: &'static str, text: String) {
        self.edit(Change::Notice { text, word });
    }

    /// Reports the event being read to the operator, and to nobody else.
    pub fn remark(&mut self, word: &'static str) {
        self.edit(Change::Remark { word, of: None });
    }

    /// As [`Self::remark`], about something that the configuration names.
    pub fn remark_of(&mut self, word: &'static str, of: &Arc<str>) {
        self.edit(Change::Remark { word, of: Some(Arc::clone(of)) });
    }

    /// Keeps calls of the reply that cannot be judged from the client, as where a policy decides which tools may be
    /// called at all.
    pub fn restrict_calls(&mut self) {
        self.restricts_calls = true;
    }

    /// See [`restrict_calls`](Self::restrict_calls).
    pub fn restricts_calls(&self) -> bool {
        self.restricts_calls
    }

    /// Ends the request without a call; the first refusal counts.
    pub fn end(&mut self, end: RequestEnd) {
        let policy = self.at.policy;
        match end {
            RequestEnd::FinalAnswer => {
                self.final_answer.get_or_insert(policy);
            }
            RequestEnd::Refusal { code, message, reason } => {
                self.refusal.get_or_insert(Refusal { policy, code, message, reason });
            }
        }
    }

    /// Takes back every change to the request, but keeps values hidden that the model must not read.
    pub fn change_nothing(&mut self) {
        let hides = |change: &Change| {
            matches!(change, Change::Redact { .. } | Change::RedactCall { .. } | Change::RedactValue { .. })
        };
        self.edits.retain(|edit| hides(&edit.change));
        self.dropped.clear();
        self.hidden.clear();
        self.declared.clear();
        self.annotated.clear();
        self.summaries = BatchSummaries::default();
        self.announced.clear();
        self.forget_findings(|finding| matches!(finding, Finding::AmountsLeft(_)));
        self.one_at_a_time = false;
    }

    /// Takes back every change of an item before the position `first`: the upstream has those.
    pub fn change_only_from(&mut self, first: usize) {
        if first == 0 {
            return;
        }
        let order = &self.order;
        self.edits.retain(|edit| order.position(edit.item).is_some_and(|position| position >= first));
        self.dropped.retain(|dropped| dropped.messages.start >= first);
        self.summaries = BatchSummaries::default();
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        let changes = self.edits.is_empty() && self.dropped.is_empty() && self.hidden.is_empty();
        let changes = changes && self.declared.is_empty() && self.annotated.is_empty();
        changes && !self.one_at_a_time && self.refusal.is_none()
    }
}

/// How [`Usage::tool`] of each limit on a caller's day begins.
pub const OF_DAY: &str = "day:";
/// [`Usage::tool`] of the limit on a caller's calls of a day.
pub const CALLS_OF_DAY: &str = "day:tool_calls";

/// How much of one limit a conversation has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The tool; `*` for all together.
    pub tool: String,
    pub used: u64,
    pub limit: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_nothing_empties_the_plan() {
        let mut plan = Plan::default();
        plan.notice("notice", "so far".to_owned());
        plan.drop_turns(0..1);
        plan.edit_tools(ToolsEdit::Hide("search".to_owned()));
        plan.edit_tools(ToolsEdit::Declare("{}".into()));
        plan.edit_tools(ToolsEdit::OneCallAtATime);
        assert!(!plan.is_empty());
        plan.change_nothing();
        assert!(plan.is_empty());
    }
}
