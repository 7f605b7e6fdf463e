//! Calls of one reply that wait for a person's word: which they are, what they are shown as, and what each word makes of
//! them. Says what waits as data; who is asked, how and for how long is the shell's affair.

use super::Unaskable;
use super::shown::{is_plain_name, pretty_text};
use crate::policy::about::Confirming;
use crate::policy::plan::Reason;

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCall {
    /// Its number among all that have waited in this client request.
    pub id: u32,
    /// As the upstream gave it; empty where it gave none.
    pub call_id: String,
    pub tool: String,
    /// As the program would get them, to the byte.
    pub arguments: String,
    /// The same to be read: a line for each value, nothing invisible.
    pub shown: String,
}

/// What became of a call that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Approved,
    Declined,
    /// Nobody answered in time.
    Expired,
    /// toolrein is being stopped.
    Stopped,
    /// Nobody could be asked: too many wait, or the reply cannot be kept.
    Unasked,
}

impl Word {
    /// In metrics and the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Expired => "expired",
            Self::Stopped => "stopped",
            Self::Unasked => "unasked",
        }
    }

    /// What the model reads where it is no yes.
    pub(in crate::rewrite) fn refusal(self, reason: &Reason) -> Reason {
        let why = match self {
            Self::Approved | Self::Declined => {
                "the user declined it. Do not make it again unless the user asks for it."
            }
            Self::Expired => {
                "it needs the user's yes, and nobody answered in time. Do not make it again now; tell the user what is \
                 left to do."
            }
            Self::Stopped | Self::Unasked => {
                "it needs the user's yes, and nobody can be asked now. Tell the user what is left to do."
            }
        };
        Reason { message: format!("The call was not run: {why}"), retryable: false, ..reason.clone() }
    }
}

/// What a call would be held as.
///
/// # Errors
/// Why nobody can be asked about it.
pub(in crate::rewrite) fn shown(
    tool: &str,
    (arguments, custom): (&str, bool),
    confirming: &Confirming,
) -> Result<String, Unaskable> {
    if !is_plain_name(tool) {
        return Err(Unaskable::Unreadable);
    }
    let shown = pretty_text(arguments, custom).ok_or(Unaskable::Unreadable)?;
    if shown.chars().count() > confirming.max_chars {
        return Err(Unaskable::TooLong { most: confirming.max_chars });
    }
    Ok(shown)
}
