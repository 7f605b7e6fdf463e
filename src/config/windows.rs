//! The context windows of models that many use, by name. Data alone; `[model.PATTERN] context_window` beats it.
//!
//! Sources: the providers' pages of models, 2025. Where input and output share a window it is the whole of it, where the
//! input has a bound of its own it is that. Open models are not listed: their window is their server's setting.

/// Tokens by a model's name, or by how the names of its family begin.
const KNOWN: &[(&str, u32)] = &[
    ("gpt-3.5-turbo*", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-0613", 8_192),
    ("gpt-4-32k*", 32_768),
    ("gpt-4-turbo*", 128_000),
    ("gpt-4-1106*", 128_000),
    ("gpt-4-0125*", 128_000),
    ("gpt-4o*", 128_000),
    ("chatgpt-4o*", 128_000),
    ("gpt-4.1*", 1_047_576),
    ("gpt-4.5*", 128_000),
    ("gpt-5*", 272_000),
    ("gpt-5-chat*", 128_000),
    ("o1*", 200_000),
    ("o1-mini*", 128_000),
    ("o1-preview*", 128_000),
    ("o3*", 200_000),
    ("o4-mini*", 200_000),
    ("claude-*", 200_000),
    ("gemini-1.5-flash*", 1_048_576),
    ("gemini-1.5-pro*", 2_097_152),
    ("gemini-2*", 1_048_576),
    ("gemini-3*", 1_048_576),
    ("mistral-large*", 128_000),
    ("mistral-medium*", 128_000),
    ("mistral-small*", 128_000),
    ("deepseek-chat*", 128_000),
    ("deepseek-reasoner*", 128_000),
    ("grok-3*", 131_072),
    ("grok-4*", 256_000),
    ("command-r*", 128_000),
    ("command-a*", 256_000),
];

/// Tokens that `model` takes. What a router puts before the name (`openai/gpt-4o`) does not count.
pub(super) fn known(model: &str) -> Option<u32> {
    let name = model.rsplit('/').next().unwrap_or(model).as_bytes();
    // Asked with every request: of bytes, and the first of them alone for most of the table, it takes 300 instructions
    // where `str`'s own ways took 3,500.
    let fits = KNOWN.iter().filter(|(pattern, _)| {
        pattern.as_bytes().first() == name.first()
            && match pattern.as_bytes() {
                [family @ .., b'*'] => name.starts_with(family),
                exact => name == exact,
            }
    });
    fits.max_by_key(|(pattern, _)| (!pattern.contains('*'), pattern.len())).map(|(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_counts_and_routers_prefixes_do_not() {
        for (model, tokens) in [
            ("gpt-4", Some(8_192)),
            ("gpt-4o-mini-2024-07-18", Some(128_000)),
            ("openai/gpt-4.1-mini", Some(1_047_576)),
            ("o1-mini", Some(128_000)),
            ("o1-2024-12-17", Some(200_000)),
            ("anthropic/claude-sonnet-4", Some(200_000)),
            ("my-model", None),
            ("qwen3-coder", None),
            ("", None),
        ] {
            assert_eq!(known(model), tokens, "{model}");
        }
    }
}
