//! Results that a conversation has already: what is exactly equal to an earlier one is replaced by a pointer to it.
//!
//! Responsible for which earlier result that is and for the words of the pointer. Deliberately not for what becomes of
//! a pointer whose original is cleared later: the plan names the original's message, and whoever applies it decides.

use crate::transcript::ToolResult;
use crate::transcript::calls::Call;
use crate::transcript::identity::{Domain, Hash};
use crate::wire::body::Str;
use std::collections::HashMap;

/// A result of fewer bytes is no longer than the pointer by much, and easier to read.
const MIN_BYTES: usize = 400;

/// What was seen of one conversation.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Calls so far, in all and by tool.
    calls: usize,
    calls_of: HashMap<String, usize>,
    /// The calls of the last reply: the ordinal among all, and among those of the tool.
    reply: Vec<(usize, usize)>,
    reply_message: usize,
    results: HashMap<Hash, Original>,
}

/// A result that the model is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Original {
    /// The place of its message.
    pub(super) message: usize,
    /// The longest text that is shown of it, in characters.
    limit: usize,
    tool: String,
    ordinal: usize,
    ordinal_of_tool: usize,
}

impl Seen {
    /// A call was made.
    pub(super) fn call(&mut self, call: &Call<'_>) {
        if call.message != self.reply_message {
            self.reply.clear();
            self.reply_message = call.message;
        }
        self.calls += 1;
        let of_tool = self.calls_of.entry(call.name.to_string()).or_default();
        *of_tool += 1;
        self.reply.push((self.calls, *of_tool));
    }

    /// The earlier result that is equal to this `text` of `result` and of which no less is shown; else this one is
    /// remembered. `limit`: what may be shown of it, in characters.
    pub(super) fn original(&mut self, result: &ToolResult<'_>, text: Str, limit: usize) -> Option<&Original> {
        let view = &result.view;
        let raw = text.raw(view.body);
        // An answer to nothing has no name to point to.
        let call = result.call.filter(|_| raw.len() > MIN_BYTES)?;
        let key = view.identity.key.hash(Domain::Text, &[raw]);
        // Nothing is cut of a text of fewer bytes.
        let limit = if raw.len() <= limit { usize::MAX } else { limit };
        let is_known = self.results.get(&key).is_some_and(|known| known.message < view.index && known.limit >= limit);
        if !is_known {
            let (ordinal, ordinal_of_tool) = self.reply.get(call.position).copied()?;
            let tool = call.name.to_string();
            let own = Original { message: view.index, limit, tool, ordinal, ordinal_of_tool };
            self.results.insert(key, own);
            return None;
        }
        self.results.get(&key)
    }
}

impl Original {
    /// The pointer, in the form of the text that it replaces: a JSON object or array stays one.
    pub(super) fn pointer(&self, text: &str) -> String {
        let Self { tool, ordinal, ordinal_of_tool, .. } = self;
        let chars = text.chars().count();
        let sentence = format!(
            "[toolrein: the same {chars} characters as the result of call {ordinal} of this conversation (number \
             {ordinal_of_tool} of {tool}); see there]"
        );
        match text.trim_ascii_start().as_bytes().first() {
            Some(b'{') => serde_json::json!({ "toolrein": sentence }).to_string(),
            Some(b'[') => serde_json::json!([sentence]).to_string(),
            _ => sentence,
        }
    }
}
