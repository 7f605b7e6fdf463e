//! What is recorded about approvals, as plain data: people's decisions on calls, and the notifications to them.

/// The result of asking a person about a call, or about all calls of one question.
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
    /// As in metrics.
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

/// A decision on one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRecord {
    pub tool: String,
    pub outcome: Consent,
    /// The person or system that decided, as reported with the decision; `None` where the user decided in the
    /// conversation.
    pub approver: Option<String>,
    /// Why, in the person's words.
    pub reason: Option<String>,
}

/// The outcome of a notification about a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookResult {
    Delivered,
    /// The receiver refused it: it is not sent again.
    Refused,
    /// The receiver did not take it, however often it was sent.
    Failed,
    /// Too many notifications were being sent.
    Dropped,
}

impl WebhookResult {
    /// As in the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}
