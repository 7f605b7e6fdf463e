//! Refusals of what the model thought: its signature does not fit to what the request says before it.

use crate::error::UpstreamError;

/// Whether the upstream refuses a block of thinking as one of another conversation, or as altered. By Anthropic's wordings:
/// ``Invalid `signature` in `thinking` block. The block is bound to a different conversation.`` and ``blocks in the latest
/// assistant message cannot be modified``.
#[must_use]
pub fn refuses_thinking(status: u16, error: &UpstreamError) -> bool {
    // In a stream the error comes after a status of 200.
    let is_about_it = |message: &String| {
        let names_change = ["signature", "cannot be modified"].iter().any(|word| message.contains(word));
        message.contains("thinking") && names_change
    };
    matches!(status, 200 | 400) && error.messages.iter().take(super::MESSAGES).any(is_about_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::parse;

    #[test]
    fn a_refusal_of_thinking_is_about_its_signature_or_its_change() {
        for (message, refuses) in [
            (
                "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".",
                true,
            ),
            (
                "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
                true,
            ),
            ("Thinking may not be enabled when tool_choice forces tool use.", false),
            (
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
                false,
            ),
            ("prompt is too long: 3 tokens > 2 maximum", false),
        ] {
            let body = serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
            let error = parse(body.to_string().as_bytes()).unwrap();
            assert_eq!(refuses_thinking(400, &error), refuses, "{message}");
            assert!(!refuses_thinking(429, &error));
        }
    }
}
