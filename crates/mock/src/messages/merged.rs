//! The messages of a request as the API counts them: neighbours of one role are one message, and a string is one text
//! block. Indexes in error texts are indexes of these.
//!
//! Source: recorded refusals, whose indexes count merged messages.

use serde_json::{Value, json};
use std::borrow::Cow;

/// Neighbours of one role.
#[derive(Debug, PartialEq)]
pub(super) struct MergedMessage<'a> {
    pub role: &'a str,
    pub blocks: Vec<Cow<'a, Value>>,
}

impl MergedMessage<'_> {
    /// The blocks of the type `kind` with their indexes.
    pub(super) fn blocks_of<'b>(&'b self, kind: &'b str) -> impl Iterator<Item = (usize, &'b Value)> {
        let blocks = self.blocks.iter().enumerate().map(|(index, block)| (index, block.as_ref()));
        blocks.filter(move |(_, block)| block["type"] == kind)
    }

    /// Whether the message has a block of the server's own tools or of its compaction. At the end of a request such a message is a
    /// reply that paused (`stop_reason: pause_turn`), and no prefill.
    pub(super) fn has_server_part(&self) -> bool {
        self.blocks.iter().any(|block| is_server_block(kind_of(block)))
    }
}

/// The type of a block.
pub(super) fn kind_of(block: &Value) -> &str {
    block["type"].as_str().unwrap_or_default()
}

/// Whether a block of this type is made by the server's own tools or by compaction.
pub(super) fn is_server_block(kind: &str) -> bool {
    matches!(kind, "server_tool_use" | "mcp_tool_use" | "compaction") || is_server_result(kind)
}

/// Whether a block of this type is the result of a server's call.
pub(super) fn is_server_result(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// Whether a block of this type is the model's reasoning.
pub(super) fn is_thinking(kind: &str) -> bool {
    matches!(kind, "thinking" | "redacted_thinking")
}

/// The merged messages of `messages`.
pub(super) fn merge(messages: &Value) -> Vec<MergedMessage<'_>> {
    let mut merged: Vec<MergedMessage<'_>> = Vec::new();
    for message in messages.as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        if merged.last().is_none_or(|last| last.role != role) {
            merged.push(MergedMessage { role, blocks: Vec::new() });
        }
        if let Some(last) = merged.last_mut() {
            last.blocks.extend(blocks(&message["content"]));
        }
    }
    merged
}

/// The blocks of a content, which may be a string.
pub(super) fn blocks(content: &Value) -> impl Iterator<Item = Cow<'_, Value>> {
    let text = content.as_str().map(|text| Cow::Owned(json!({"type": "text", "text": text})));
    text.into_iter().chain(content.as_array().into_iter().flatten().map(Cow::Borrowed))
}
