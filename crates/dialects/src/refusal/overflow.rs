//! Context overflow errors: how upstreams refuse a request that is longer than the model's context.
//!
//! Recognises them by their wording, as data with an example each, and in other words by their structure (`length`).
//! Deliberately ignores what a shorter history does not
//! avoid, or avoids only by accident: too many output tokens asked for, tokens per minute, a body of too many bytes, a
//! single text or list that is too long.

use super::super::error::UpstreamError;
use super::length::{compares_lengths, says_too_long};
use super::words::{cut, without_quotes};

/// Whether the error says that the request is longer than the model's context. `status`: the HTTP status that it came
/// with, 200 inside a stream.
#[must_use]
pub fn overflows(status: u16, error: &UpstreamError) -> bool {
    if matches!(status, 401 | 402 | 403 | 407 | 408 | 429) {
        return false;
    }
    let names = error.code.as_deref().into_iter().chain(error.kind.as_deref());
    let mut texts = error.messages.iter().map(String::as_str).take(super::MESSAGES).chain(names);
    texts.any(|text| {
        let written = without_quotes(cut(text));
        let text = written.to_lowercase();
        let says = |words: &[&str]| words.iter().all(|word| text.contains(word));
        let is_known = || WORDINGS.iter().any(|wording| says(wording.says));
        // Only these statuses are about the request itself, whatever the words.
        let is_compared = || matches!(status, 400 | 413 | 422) && compares_lengths(&written);
        !PACE.iter().any(|word| text.contains(word))
            && (is_known() || says_too_long(&written) || is_compared())
    })
}

/// One wording.
pub(super) struct Wording {
    /// Phrases that all occur in the text, in lower case.
    pub(super) says: &'static [&'static str],
    /// Its source and an example: from documentation or from users' reports.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests, and by people"))]
    pub(super) example: (&'static str, &'static str),
}

const fn wording(says: &'static [&'static str], by: &'static str, example: &'static str) -> Wording {
    Wording { says, example: (by, example) }
}

/// Phrases of texts about a rate or credit; such a text is no overflow, whatever else it contains.
const PACE: &[&str] = &["per minute", "per min ", "(tpm)", "rate limit", "rate_limit", "quota"];

pub(super) const WORDINGS: &[Wording] = &[
    wording(&["context_length_exceeded"], "OpenAI, Groq, DeepSeek: code", "context_length_exceeded"),
    wording(
        &["maximum context length"],
        "OpenAI, vLLM, DeepSeek, OpenRouter, Mistral",
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the \
         messages, 10000 in the completion). Please reduce the length of the messages or completion.",
    ),
    wording(
        &["reduce the length of the messages"],
        "Groq, Cerebras",
        "Please reduce the length of the messages or completion. Current length is 9001 while limit is 8192",
    ),
    wording(
        &["exceed", "context window"],
        "OpenAI's newer models, MiniMax",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    wording(&["context_window_exceeded"], "Zhipu", "model_context_window_exceeded"),
    wording(
        &["contextwindowexceedederror"],
        "LiteLLM",
        "litellm.ContextWindowExceededError: litellm.BadRequestError: the prompt does not fit",
    ),
    wording(&["prompt is too long"], "Anthropic", "prompt is too long: 200251 tokens > 200000 maximum"),
    wording(
        &["exceed context limit"],
        "Anthropic",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or \
         `max_tokens` and try again",
    ),
    wording(&["input is too long"], "Amazon Bedrock", "Input is too long for requested model."),
    wording(
        &["exceeds the available context size"],
        "llama.cpp",
        "request (5120 tokens) exceeds the available context size (4096 tokens), try increasing it",
    ),
    wording(&["context size has been exceeded"], "LM Studio", "Context size has been exceeded."),
    wording(
        &["greater than the context length"],
        "LM Studio",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
    ),
    wording(
        &["context length of only"],
        "LM Studio",
        "Trying to keep the first 5030 tokens when context the overflows. However, the model is loaded with context \
         length of only 4096 tokens, which is not enough.",
    ),
    wording(&["prompt too long"], "Ollama", "prompt too long; exceeded max context length by 1119046 tokens"),
    wording(
        &["input length exceeds", "context length"],
        "Ollama",
        "the input length exceeds the context length",
    ),
    wording(
        &["input token count", "exceeds the maximum"],
        "Gemini",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    ),
    wording(
        &["prompt token count", "exceeds the limit"],
        "GitHub Copilot",
        "prompt token count of 131500 exceeds the limit of 128000",
    ),
    wording(
        &["maximum prompt length"],
        "xAI",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    ),
    wording(
        &["longer than the model's context length"],
        "SGLang, Together",
        "The input (40120 tokens) is longer than the model's context length (32768 tokens).",
    ),
    wording(
        &["longer than the maximum model length"],
        "vLLM",
        "The decoder prompt (length 40120) is longer than the maximum model length of 32768.",
    ),
    wording(
        &["exceeds", "maximum allowed input length"],
        "OpenRouter",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens",
    ),
    wording(
        &["`inputs`", "must be <="],
        "Hugging Face, Together",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and \
         512 `max_new_tokens`",
    ),
    wording(
        &["tokens in the prompt exceeds the limit"],
        "Cohere",
        "too many tokens: total number of tokens in the prompt exceeds the limit of 128000. Try using a shorter prompt",
    ),
    wording(
        &["exceeded model token limit"],
        "Moonshot",
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140310)",
    ),
    wording(
        &["range of input length should be"],
        "DashScope",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    ),
    wording(&["prompt 超长"], "Zhipu", "Prompt 超长"),
    wording(&["输入长度超过"], "gateways in Chinese", "输入长度超过模型上限"),
    wording(&["上下文长度", "超"], "gateways in Chinese", "请求的上下文长度超出模型限制"),
];
