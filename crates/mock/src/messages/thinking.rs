//! Rules for the positions of thinking blocks within a request. `binding` checks their signatures.
//!
//! Source: public issue threads.

use super::error::MessagesError;
use super::merged::{MergedMessage, is_server_block, is_thinking, kind_of};
use serde_json::Value;

/// Checks where thinking blocks are and where one is missing.
pub(super) fn check(body: &Value, messages: &[MergedMessage<'_>], found: &mut Vec<MessagesError>) {
    check_first(messages, found);
    let is_off = matches!(body["thinking"]["type"].as_str(), None | Some("disabled"));
    let last = messages.last().filter(|last| last.role == "assistant");
    if let Some(last) = last
        && is_off
        && !last.has_server_part()
        && let Some(kind) = last.blocks.iter().map(|block| kind_of(block)).find(|kind| is_thinking(kind))
    {
        found.push(MessagesError::invalid(format!(
            "When thinking is disabled, an `assistant` message in the final position cannot contain `{kind}`"
        )));
    }
    if body["thinking"]["type"] == "enabled" {
        check_open_loop(messages, found);
    }
}

/// A message with thinking begins with it. Blocks of the server's tools, of its compaction or of a fallback may come before.
fn check_first(messages: &[MergedMessage<'_>], found: &mut Vec<MessagesError>) {
    for message in messages.iter().filter(|message| message.role == "assistant") {
        let mut kinds = message.blocks.iter().map(|block| kind_of(block));
        let first = kinds.find(|kind| !is_server_block(kind) && *kind != "fallback").unwrap_or_default();
        if !is_thinking(first) && kinds.any(is_thinking) {
            found.push(MessagesError::invalid(format!(
                "If an assistant message contains any thinking blocks, the first block must be `thinking` or \
                 `redacted_thinking`. Found `{first}`"
            )));
        }
    }
}

/// With a thinking budget, the assistant message whose results end the request begins with thinking.
fn check_open_loop(messages: &[MergedMessage<'_>], found: &mut Vec<MessagesError>) {
    let Some(index) = messages.iter().rposition(|message| message.role == "assistant") else { return };
    let has_results = messages[index + 1..].iter().any(|next| next.blocks_of("tool_result").next().is_some());
    let first = messages[index].blocks.first().map(|block| kind_of(block)).unwrap_or_default();
    if has_results && !is_thinking(first) {
        found.push(MessagesError::invalid(format!(
            "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When \
             `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost \
             set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To \
             avoid this requirement, disable `thinking`."
        )));
    }
}
