//! The forms in which a request is sent: with its tools or without them, with the history as text, asking again behind
//! blocked calls. Data; the dialects write it.

use crate::conversation::request::Request;
use crate::plan::Plan;
use bytes::Bytes;

/// How notices are placed in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A message of its own behind the one it belongs to, `system` or, where the client instructs so, `developer`.
    System,
    /// Behind a blank line at the end of the text of that message.
    Suffix,
    /// In the leading system message; the newest notice alone, since it cannot stay where it was.
    Leading,
}

impl Placement {
    /// The placement of a request after which no other is tried: no template refuses a suffix.
    #[must_use]
    pub fn of_last_try(self) -> Self {
        if self == Self::System { Self::Suffix } else { self }
    }
}

/// What goes up whatever the form: the request and what is wanted of it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub body: &'a Bytes,
    pub request: &'a Request,
    pub plan: &'a Plan,
    /// Hidden rounds, each with the place of the message it is put back before.
    pub restored: &'a [(usize, Bytes)],
}

/// The form of one sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    pub placement: Placement,
    pub tools: Tools,
    /// Calls and results of the history as plain text.
    pub flat: bool,
    /// The stream shall end with usage, which the client did not ask for.
    pub ask_usage: bool,
    pub asking: Option<Asking>,
}

/// What is left of the request's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tools {
    Kept,
    WithoutChoice,
    Dropped,
}

/// Asking again for one choice of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asking {
    /// The rounds that the model has made since the client's request, oldest first.
    pub rounds: Vec<Bytes>,
    /// The model shall answer without calls.
    pub land: bool,
}

impl Pass {
    /// The request as the client sent it.
    pub fn plain(placement: Placement) -> Self {
        Self { placement, tools: Tools::Kept, flat: false, ask_usage: false, asking: None }
    }

    /// Whether anything about the tools differs from what the client sent.
    pub fn is_fallback(&self) -> bool {
        self.tools != Tools::Kept || self.flat
    }
}
