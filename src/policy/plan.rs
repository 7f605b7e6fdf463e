//! Plans: what policies decide, as plain data: edits of events, verdicts on calls, a refusal of the request. Says
//! what shall be, never how bytes change.

mod facts;
mod summaries;
mod verdict;

pub use facts::{Gone, ResultFacts, TakenIn, TextFacts};
pub use summaries::{BatchSummaries, Place as SummaryPlace, SummaryBlank, SummaryTerms, SummaryWanted};
pub use verdict::{Proposed, Reason, ReasonKind, Verdict};

use crate::wire::spelled::Spelled;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Everything that the policies want done to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub edits: Vec<Edit>,
    /// Messages that go, oldest first.
    pub dropped: Vec<Dropped>,
    /// Tools that the model shall not be shown, with the policy that says so.
    pub hidden: Vec<(&'static str, String)>,
    /// Cut results that the model asked for once more, by another call.
    pub regrets: Vec<Regret>,
    /// Tools of ours that the model is shown behind the client's.
    pub declared: Vec<Declared>,
    /// The model shall make one call at a time.
    pub one_at_a_time: bool,
    /// The request shall not be sent, only answered with this.
    pub refusal: Option<Refusal>,
    /// Tools of ours that the model may call.
    own: Vec<OwnTool>,
    /// Calls of the reply that nobody can judge are not passed on.
    restricts_calls: bool,
    /// What is known of summaries in the place of cleared results.
    pub summaries: BatchSummaries,
    /// Texts of results that may hold instructions: the places of their messages, and their own.
    flagged: Vec<(usize, usize)>,
    /// Where the fold stands: set by the runner, so that a policy can edit only what it reads.
    at: Place,
}

/// Whole turns that go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub policy: &'static str,
    /// The places of their messages.
    pub messages: Range<usize>,
    /// The message at which it was decided.
    pub decided: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Place {
    message: usize,
    policy: &'static str,
}

/// A tool of ours, which the client never learns of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub policy: &'static str,
    /// An item of `tools`, as JSON.
    pub tool: Arc<str>,
}

/// A tool of ours that the model may call, also where it is not shown it: it may have read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnTool {
    policy: &'static str,
    name: &'static str,
    reads_results: bool,
}

/// A result that was cut, and that the model asked for once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regret {
    /// The place of the message that tells it.
    pub message: usize,
    /// The tool that gave the result.
    pub tool: Arc<str>,
}

/// One change to one message, signed by its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The message's place in the request.
    pub message: usize,
    /// The message at which it was decided: that message itself, but for what clears old results.
    pub decided: usize,
    pub policy: &'static str,
    pub change: Change,
}

/// What changes. Places `text` count the message's strings of text. Of several new texts for one place the highest in
/// this list counts: clear, withhold, point, shorten; what surrounds applies to whichever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An old text is cleared to make room.
    Clear { text: usize, by: Spelled, gone_chars: usize },
    /// The model shall not read the text.
    WithholdText { text: usize, by: Spelled, gone_chars: usize },
    /// The text stood in the message `original` before; not done where that one is cleared or dropped.
    Point { text: usize, by: Spelled, gone_chars: usize, original: usize },
    /// The text is shortened.
    Shorten { text: usize, by: Spelled, gone_chars: usize },
    /// Characters that hide text from people go, out of whatever the text becomes.
    Clean { text: usize, gone_chars: usize },
    /// Lines of ours stand before and behind it, whatever it becomes.
    Surround { text: usize, before: &'static str, after: &'static str },
    /// A text of ours that the model reads right after this message; `word` names it in headers and metrics.
    Notice { text: String, word: &'static str },
    /// Nothing changes; `word` is told in metrics and the log, with what it is said of where that is a name of the
    /// configuration's.
    Remark { word: &'static str, of: Option<Arc<str>> },
}

impl Change {
    /// Tokens that the model need not read, estimated.
    pub fn saved_tokens(&self) -> u64 {
        tokens_of(self.gone_chars())
    }

    /// The text of ours that it brings; empty where it brings none.
    pub fn text(&self) -> &str {
        match self {
            Self::Clear { by, .. }
            | Self::WithholdText { by, .. }
            | Self::Point { by, .. }
            | Self::Shorten { by, .. } => by,
            Self::Notice { text, .. } => text,
            Self::Clean { .. } | Self::Surround { .. } | Self::Remark { .. } => "",
        }
    }

    /// Characters that the model need not read.
    pub fn gone_chars(&self) -> usize {
        match self {
            Self::Clear { gone_chars, .. }
            | Self::WithholdText { gone_chars, .. }
            | Self::Point { gone_chars, .. }
            | Self::Shorten { gone_chars, .. }
            | Self::Clean { gone_chars, .. } => *gone_chars,
            Self::Surround { .. } | Self::Notice { .. } | Self::Remark { .. } => 0,
        }
    }

    /// Its word in headers, metrics and the log.
    pub fn word(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Clear { .. } => "cleared",
            Self::WithholdText { .. } => "text_withheld",
            Self::Point { .. } => "pointed",
            Self::Shorten { .. } => "shortened",
            Self::Clean { .. } => "stripped",
            Self::Surround { .. } => "annotated",
            Self::Remark { word, of: Some(of) } => return format!("{word}:{of}").into(),
            Self::Notice { word, .. } | Self::Remark { word, of: None } => word,
        })
    }
}

/// The tokens of that many characters that are gone, estimated. 3.6 characters a token: between prose (4.2) and JSON
/// (3.3), as measured on recorded results.
pub fn tokens_of(gone_chars: usize) -> u64 {
    gone_chars as u64 * 10 / 36
}

/// A request that a policy will not send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub policy: &'static str,
    /// A stable code for programs.
    pub code: &'static str,
    pub message: String,
}

impl Plan {
    /// Moves the fold to `message` and `policy`. The runner's; policies have no need of it.
    pub(super) fn stand_at(&mut self, message: usize, policy: &'static str) {
        self.at = Place { message, policy };
    }

    /// Replaces the `text`-th string of text of the event being read.
    pub fn shorten(&mut self, text: usize, by: Spelled, gone_chars: usize) {
        self.edit(Change::Shorten { text, by, gone_chars });
    }

    /// Lets the `text`-th string of text of the event being read point to an equal one in the message `original`.
    pub fn point(&mut self, text: usize, by: Spelled, gone_chars: usize, original: usize) {
        self.edit(Change::Point { text, by, gone_chars, original });
    }

    /// Keeps the `text`-th string of text of the event being read from the model, which reads `by` in its place.
    pub fn withhold_text(&mut self, text: usize, by: Spelled, gone_chars: usize) {
        self.edit(Change::WithholdText { text, by, gone_chars });
    }

    /// Takes characters that hide text from people out of the `text`-th string of text of the event being read,
    /// whatever it becomes; `gone_chars` of them as it is now.
    pub fn clean(&mut self, text: usize, gone_chars: usize) {
        self.edit(Change::Clean { text, gone_chars });
    }

    /// Puts lines of ours around the `text`-th string of text of the event being read.
    pub fn surround(&mut self, text: usize, before: &'static str, after: &'static str) {
        self.edit(Change::Surround { text, before, after });
    }

    /// Clears the `text`-th string of text of the earlier `message`. The one edit of what was read before: to be
    /// decided by replay alone, in batches, since it costs the prompt's cache.
    pub fn clear(&mut self, message: usize, text: usize, by: Spelled, gone_chars: usize) {
        let Place { message: decided, policy } = self.at;
        self.edits.push(Edit { message, decided, policy, change: Change::Clear { text, by, gone_chars } });
    }

    /// Drops whole turns: the earlier `messages`. The same rules as for [`clear`](Self::clear).
    pub fn drop_turns(&mut self, messages: Range<usize>) {
        let Place { message: decided, policy } = self.at;
        self.dropped.push(Dropped { policy, messages, decided });
    }

    /// Lets the model read behind the earlier `message` that turns before it are gone: `text`, in place of what was
    /// said of earlier ones. The same rules as for [`clear`](Self::clear).
    pub fn tell_dropped(&mut self, message: usize, text: String) {
        let Place { message: decided, policy } = self.at;
        let change = Change::Notice { text, word: "notice" };
        self.edits.push(Edit { message, decided, policy, change });
    }

    /// The edits that clear old texts.
    pub fn cleared(&self) -> impl Iterator<Item = &Edit> {
        self.edits.iter().filter(|edit| matches!(edit.change, Change::Clear { .. }))
    }

    /// Whether the model reads texts of ours behind messages.
    pub fn has_notices(&self) -> bool {
        self.edits.iter().any(|edit| matches!(edit.change, Change::Notice { .. }))
    }

    /// Whether the message goes with its turn.
    pub fn drops(&self, message: usize) -> bool {
        self.dropped.iter().any(|dropped| dropped.messages.contains(&message))
    }

    /// Whether it drops or clears more of the conversation than `other` does. What is cleared in a turn that is dropped
    /// makes nothing shorter.
    pub fn leaves_out_more_than(&self, other: &Self) -> bool {
        let left_out = |plan: &Self| {
            let cleared = plan.cleared().filter(|edit| !plan.drops(edit.message));
            (plan.dropped.len(), cleared.count())
        };
        left_out(self) > left_out(other)
    }

    /// The edits as they are counted and told: without a cut that stands in reserve for the pointer planned behind it.
    pub fn told(&self) -> impl Iterator<Item = &Edit> {
        let is_reserve =
            |edit: &Edit, next: Option<&Edit>| match (&edit.change, next.map(|next| &next.change)) {
                (Change::Shorten { text, .. }, Some(Change::Point { text: pointed, .. })) => {
                    text == pointed && next.is_some_and(|next| next.message == edit.message)
                }
                _ => false,
            };
        let edits = self.edits.iter().enumerate();
        edits.filter(move |(at, edit)| !is_reserve(edit, self.edits.get(at + 1))).map(|(_, edit)| edit)
    }

    /// Lets the model read `text` right after the event being read.
    pub fn notice(&mut self, word: &'static str, text: String) {
        self.edit(Change::Notice { text, word });
    }

    /// Tells the operator, and nobody else, of the event being read.
    pub fn remark(&mut self, word: &'static str) {
        self.edit(Change::Remark { word, of: None });
    }

    /// The same, said of something that the configuration names.
    pub fn remark_of(&mut self, word: &'static str, of: &Arc<str>) {
        self.edit(Change::Remark { word, of: Some(Arc::clone(of)) });
    }

    /// Keeps the tool `name` from the model. To be a function of the configuration and the declared tools alone,
    /// so that `tools` stays the same through a conversation and the prompt's cache with it.
    pub fn hide(&mut self, name: &str) {
        if !self.hidden.iter().any(|(_, hidden)| hidden == name) {
            self.hidden.push((self.at.policy, name.to_owned()));
        }
    }

    /// Makes `name` a tool of this policy's own: the policy alone judges its calls, and the client never sees them.
    /// `reads_results`: what is said in the place of a result may name it as the way to read that result. To be a
    /// function of the configuration and the declared tools alone.
    pub fn own(&mut self, name: &'static str, reads_results: bool) {
        self.own.push(OwnTool { policy: self.at.policy, name, reads_results });
    }

    /// Declares a tool of ours, `tool` as JSON, at the end of the client's. The same holds as for [`own`](Self::own).
    pub fn declare(&mut self, tool: Arc<str>) {
        self.declared.push(Declared { policy: self.at.policy, tool });
    }

    /// The tools of ours that the model may call, each with its policy.
    pub fn own_tools(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        self.own.iter().map(|own| (own.name, own.policy))
    }

    /// The tool of ours by which the model reads a result whole, by the number of its call, if there is one.
    pub fn reader(&self) -> Option<&'static str> {
        self.own.iter().find(|own| own.reads_results).map(|own| own.name)
    }

    /// Keeps calls of the reply from the client that nobody can judge, as where a policy decides which tools may be
    /// called at all.
    pub fn restrict_calls(&mut self) {
        self.restricts_calls = true;
    }

    /// See [`restrict_calls`](Self::restrict_calls).
    pub fn restricts_calls(&self) -> bool {
        self.restricts_calls
    }

    /// Tells the operator that a cut result of `tool` was asked for once more; it is new where the event being read is.
    pub fn regret(&mut self, tool: &str) {
        self.regrets.push(Regret { message: self.at.message, tool: tool.into() });
    }

    /// Asks the model for one call at a time. To be a function of the configuration and the declared tools alone.
    pub fn one_call_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Refuses the request; the first refusal counts.
    pub fn refuse(&mut self, code: &'static str, message: String) {
        let policy = self.at.policy;
        self.refusal.get_or_insert(Refusal { policy, code, message });
    }

    /// Takes back every change to the request.
    pub fn change_nothing(&mut self) {
        self.edits.clear();
        self.dropped.clear();
        self.hidden.clear();
        self.declared.clear();
        self.summaries = BatchSummaries::default();
        self.one_at_a_time = false;
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        let changes = self.edits.is_empty() && self.dropped.is_empty() && self.hidden.is_empty();
        let changes = changes && self.declared.is_empty();
        changes && !self.one_at_a_time && self.refusal.is_none()
    }

    fn edit(&mut self, change: Change) {
        let Place { message, policy } = self.at;
        self.edits.push(Edit { message, decided: message, policy, change });
    }
}

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
    fn a_plan_that_shall_change_nothing_changes_nothing() {
        let mut plan = Plan::default();
        plan.notice("notice", "so far".to_owned());
        plan.drop_turns(0..1);
        plan.hide("search");
        plan.declare("{}".into());
        plan.one_call_at_a_time();
        assert!(!plan.is_empty());
        plan.change_nothing();
        assert!(plan.is_empty());
    }

    #[test]
    fn what_is_cleared_in_a_dropped_turn_leaves_out_no_more() {
        // Turns of two messages.
        let plan = |dropped: usize, cleared: &[usize]| {
            let mut plan = Plan::default();
            (0..dropped).for_each(|turn| plan.drop_turns(2 * turn..2 * turn + 2));
            cleared.iter().for_each(|message| plan.clear(*message, 0, "".into(), 1));
            plan
        };
        for (now, before, is_more) in [
            (plan(0, &[1, 2]), plan(0, &[1]), true),
            (plan(1, &[1]), plan(1, &[]), false),
            (plan(1, &[1, 2]), plan(1, &[1]), true),
            (plan(2, &[]), plan(1, &[2]), true),
            (plan(0, &[1]), plan(0, &[1]), false),
        ] {
            assert_eq!(now.leaves_out_more_than(&before), is_more, "{now:?}");
        }
    }
}
