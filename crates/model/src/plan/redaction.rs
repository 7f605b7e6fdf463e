//! What plans hide from the model: values in texts, in arguments of calls, in JSON values that are no texts, and in
//! whatever the model may read later.

use super::placeholders::Placeholders;
use super::{Change, Plan};
use crate::source::ItemId;
use std::sync::Arc;
use wire::escaped_text::EscapedText;

impl Plan {
    /// Keeps `values` from the model wherever it may read them later: in notices, in reasons and answers about calls.
    /// The policy puts them back into calls, also into those that are answers.
    pub fn hide_values(&mut self, values: Arc<Placeholders>) {
        self.hidden_values = Some((self.at.policy, values));
    }

    /// The values that are hidden, with the policy that hides them.
    pub fn hidden_values(&self) -> Option<&(&'static str, Arc<Placeholders>)> {
        self.hidden_values.as_ref()
    }

    /// The text that the model reads, where values in the `text`-th text of `item` are hidden from it.
    pub fn redacted(&self, item: ItemId, text: usize) -> Option<&EscapedText> {
        self.edits.iter().filter(|edit| edit.item == item).find_map(|edit| match &edit.change {
            Change::Redact { text: of, by, .. } if *of == text => Some(by),
            _ => None,
        })
    }

    /// Hides in each notice the values that were hidden before it.
    pub fn hide_in_notices(&mut self) {
        let Some((_, values)) = self.hidden_values.clone() else { return };
        for edit in &mut self.edits {
            if let Change::Notice { text, .. } = &mut edit.change {
                *text = values.hide_in(text, edit.decided).unwrap_or_else(|| std::mem::take(text));
            }
        }
    }
}
