//! The check of thinking blocks against the conversation before them: the text and everything before a block must be as they were
//! when the upstream made it, and the blocks in a request must be an unbroken run of those that it made.
//!
//! Source: platform.claude.com, "Preserved thinking"; public issue threads for the wordings.

use super::error::MessagesError;
use super::head::RequestHead;
use super::members::BLOCK_BINDING;
use super::merged::{MergedMessage, is_thinking, kind_of};
use super::prefix::{ConversationPrefix, hash};
use super::signature::{SignatureOrigin, ThinkingSigner};
use serde_json::{Value, json};

/// Whether signatures of other upstreams pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForeignSignatures {
    Accepted,
    Refused,
}

/// A thinking block that is not valid where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BindingFault {
    /// The path of the block, such as `messages.1.content.0`.
    path: String,
    kind: FaultKind,
    /// The type of the block.
    block: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    /// The signature is none of this upstream's, or not that of the text.
    WrongSignature,
    /// The conversation before the block differs, or a thinking block before it is missing or was put back.
    OtherConversation,
    /// The latest assistant message has a valid thinking block before this one, and differs after it.
    Modified,
}

/// All thinking blocks of a request, and the conversation up to its end.
pub(super) struct BoundThinking<'a> {
    prefix: ConversationPrefix<'a>,
    /// The tag of the last valid thinking block.
    last: Option<u64>,
    faults: Vec<BindingFault>,
}

impl<'a> BoundThinking<'a> {
    /// Reads the thinking blocks of the request `body`, whose messages are `messages`.
    pub(super) fn read(body: &'a Value, messages: &[MergedMessage<'_>], foreign: ForeignSignatures) -> Self {
        let mut bound = Self { prefix: ConversationPrefix::new(body), last: None, faults: Vec::new() };
        let latest = messages.iter().rposition(|message| message.role == "assistant");
        for (index, message) in messages.iter().enumerate() {
            let mut follows_valid = false;
            for (position, block) in message.blocks.iter().enumerate() {
                if !is_thinking(kind_of(block)) {
                    bound.push(message.role, block);
                    continue;
                }
                let fault = bound.check_block(block, foreign, latest == Some(index), follows_valid);
                follows_valid |= fault.is_none();
                bound.faults.extend(fault.map(|kind| {
                    let block = if block["type"] == "thinking" { "thinking" } else { "redacted_thinking" };
                    BindingFault { path: format!("messages.{index}.content.{position}"), kind, block }
                }));
            }
        }
        bound
    }

    /// Reads the next block that is no thinking. What is before a compaction no longer counts.
    fn push(&mut self, role: &str, block: &Value) {
        self.prefix.push(role, block);
        if kind_of(block) == "compaction" {
            self.faults.clear();
            self.last = None;
        }
    }

    /// Checks one thinking block; `follows_valid` says whether a valid one is before it in the same message.
    fn check_block(
        &mut self,
        block: &Value,
        foreign: ForeignSignatures,
        is_latest: bool,
        follows_valid: bool,
    ) -> Option<FaultKind> {
        let member = if block["type"] == "thinking" { "signature" } else { "data" };
        let signature = match SignatureOrigin::read(block[member].as_str().unwrap_or_default()) {
            SignatureOrigin::Own(signature) => signature,
            SignatureOrigin::Foreign if foreign == ForeignSignatures::Accepted => return None,
            SignatureOrigin::Foreign | SignatureOrigin::Altered => return Some(FaultKind::WrongSignature),
        };
        if signature.text != hash([block["thinking"].as_str().unwrap_or_default()]) {
            return Some(if is_latest { FaultKind::Modified } else { FaultKind::WrongSignature });
        }
        let is_next = self.last.is_none_or(|last| last == signature.previous);
        if signature.prefix == self.prefix.hash() && is_next {
            self.last = Some(signature.tag());
            return None;
        }
        let is_within = is_latest && follows_valid;
        Some(if is_within { FaultKind::Modified } else { FaultKind::OtherConversation })
    }

    /// The signer of a thinking block after the request, which is the beginning of the reply.
    pub(super) fn signer(&self) -> ThinkingSigner {
        ThinkingSigner { prefix: self.prefix.hash(), previous: self.last.unwrap_or(0) }
    }

    /// The blocks that were dropped, as the reply's member `input_transformations` lists them.
    pub(super) fn transformations(&self) -> Vec<Value> {
        let dropped = |fault: &BindingFault| json!({"type": "thinking_dropped", "path": fault.path, "reason": "prefix_binding_mismatch"});
        self.faults.iter().map(dropped).collect()
    }
}

/// Whether the request asks for blocks of another conversation to be dropped.
pub(super) fn drops_blocks(head: &RequestHead, body: &Value) -> bool {
    let asked = &body["thinking"]["block_binding"]["prefix_mismatch_behavior"];
    *asked == "drop_block" && head.has_beta(BLOCK_BINDING)
}

/// Refuses the first block that is not valid. Where the request asks for it, blocks of another conversation pass.
pub(super) fn check(
    head: &RequestHead,
    body: &Value,
    bound: &BoundThinking<'_>,
    found: &mut Vec<MessagesError>,
) {
    let may_drop = drops_blocks(head, body);
    let is_refused = |fault: &&BindingFault| !(may_drop && fault.kind == FaultKind::OtherConversation);
    if let Some(fault) = bound.faults.iter().find(is_refused) {
        found.push(MessagesError::invalid(fault.message(head)));
    }
}

impl BindingFault {
    fn message(&self, head: &RequestHead) -> String {
        let Self { path, kind, block } = self;
        let member = if *block == "thinking" { "signature" } else { "data" };
        let invalid = format!("{path}: Invalid `{member}` in `{block}` block");
        match kind {
            FaultKind::WrongSignature => invalid,
            FaultKind::Modified => format!(
                "{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These \
                 blocks must remain as they were in the original response."
            ),
            FaultKind::OtherConversation => {
                let setting = if head.has_beta(BLOCK_BINDING) {
                    ""
                } else {
                    " That setting requires the `anthropic-beta: thinking-binding-controls-2026-08-01` header."
                };
                format!(
                    "{invalid}. The block is bound to a different conversation. Remove the block, or set \
                     `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".{setting}"
                )
            }
        }
    }
}
