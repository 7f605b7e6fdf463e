//! Refusals of signed thinking: Anthropic binds a block of it to the bytes before it. No other form of the request avoids
//! one, and Claude Code acts on its words, so it goes to the client as it came.

use super::super::error::UpstreamError;
use super::MESSAGES;
use super::simple::SimpleText;

/// Whether the error says that thinking was changed, is out of its place, or is not what its signature belongs to.
#[must_use]
pub fn refuses_signed_thinking(error: &UpstreamError) -> bool {
    error.messages.iter().take(MESSAGES).map(|text| SimpleText::new(text)).any(|text| {
        text.contains("thinking")
            && text.contains(
                "signature|bound to|cannot be modified|must remain|cannot be changed|first block must be",
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::{
        alternative, breaks, classify, may_be_about_the_form, objects_to_choice, objects_to_member,
        open_call, overflows, refuses_streamed_tools, suspects,
    };

    fn error(message: &str) -> UpstreamError {
        UpstreamError { messages: vec![message.to_owned()], ..UpstreamError::default() }
    }

    #[test]
    fn a_refusal_of_signed_thinking_asks_for_no_other_form() {
        for message in [
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. \
             Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". Tools `a` and `b` were \
             added after the block was created.",
            "messages.1.content.0: Invalid `data` in `redacted_thinking` block. The block is bound to a different conversation.",
            "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. \
             These blocks must remain as they were in the original response.",
            "messages.1.content.0.thinking.signature: Field required",
            "If an assistant message contains any thinking blocks, the first block must be `thinking` or `redacted_thinking`. \
             Found `text`",
            "litellm.BadRequestError: AnthropicException - messages.1.content.0: Invalid `signature` in `thinking` block",
        ] {
            let error = error(message);
            assert!(refuses_signed_thinking(&error), "{message}");
            for status in [200, 400, 422, 500] {
                assert_eq!(
                    (classify(status, &error), alternative(status, &error)),
                    (None, None),
                    "{message}"
                );
                assert_eq!((breaks(status, &error), open_call(status, &error)), (None, None), "{message}");
                assert!(suspects(status, &error).is_empty(), "{message}");
                assert!(!may_be_about_the_form(status, &error), "{message}");
                assert!(!objects_to_choice(status, &error), "{message}");
                assert!(!objects_to_member(status, &error, "tool|block"), "{message}");
                assert!(!overflows(status, &error) && !refuses_streamed_tools(status, &error), "{message}");
            }
        }
    }

    #[test]
    fn other_errors_about_thinking_are_none() {
        for message in [
            "Thinking may not be enabled when tool_choice forces tool use.",
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is \
             enabled, a final `assistant` message must start with a thinking block",
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "Function call is missing a thought_signature in functionCall parts.",
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ] {
            assert!(!refuses_signed_thinking(&error(message)), "{message}");
        }
    }
}
