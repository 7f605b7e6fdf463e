//! Notices about amounts that only the state store knows, and not the history. They keep the position at which they
//! were placed, so each is put into the plan with the data that must be stored for that. Stores nothing.

use super::{Cursor, Plan};
use crate::account::{Marks, SCOPES};

/// A notice about amounts that the history does not show: the state store keeps it for later requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    pub policy: &'static str,
    /// The index of the message that it follows: the request's last.
    pub message: usize,
    pub text: String,
    /// The thresholds that the model is informed about from then on, by scope, where it is about these.
    pub marks: Option<[Marks; SCOPES]>,
}

impl Plan {
    /// Adds the notice `text` after the event being read, which must be of the request's last message, and keeps it there:
    /// see [`Announced`].
    pub fn announce(&mut self, word: &'static str, text: String, marks: Option<[Marks; SCOPES]>) {
        let Cursor { message, policy } = self.at;
        self.announced.push(Announced { policy, message, text: text.clone(), marks });
        self.notice(word, text);
    }
}
