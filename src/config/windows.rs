//! The context windows of widely used models, by name. Only data; `[model.PATTERN] context_window` takes precedence.
//!
//! Sources: the providers' pages of models, 2025. Where input and output share a window, it is the whole window; where
//! the input has its own limit, it is that limit. Open models are not listed: their window is a setting of their
//! server.

/// Tokens by a model's name, or by the prefix of its family's names.
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

/// The context window of `model`. A router's prefix of the name (`openai/gpt-4o`) is ignored.
pub(super) fn known(model: &str) -> Option<u32> {
    let name = model.as_bytes();
    let name = &name[memchr::memrchr(b'/', name).map_or(0, |at| at + 1)..];
    let head = head_of(name);
    let mut best: Option<(&str, u32)> = None;
    // Called for every request: comparing the names' first bytes as numbers takes 300 instructions, where comparing
    // names took 1,300 and `str`'s own methods 3,500.
    for (at, (known, mask)) in HEADS.iter().enumerate() {
        if head & mask != *known {
            continue;
        }
        let (pattern, tokens) = KNOWN[at];
        let is_closer = best.is_none_or(|(other, _)| rank(other) < rank(pattern));
        if is_closer && fits(pattern, name) {
            best = Some((pattern, tokens));
        }
    }
    best.map(|(_, tokens)| tokens)
}

/// The exact name takes precedence over the longest prefix.
fn rank(pattern: &str) -> (bool, usize) {
    (!pattern.ends_with('*'), pattern.len())
}

fn fits(pattern: &str, name: &[u8]) -> bool {
    match pattern.as_bytes() {
        [family @ .., b'*'] => name.starts_with(family),
        exact => name == exact,
    }
}

/// The first bytes of each name of [`KNOWN`] as a number, and which bytes of it count.
static HEADS: [(u64, u64); KNOWN.len()] = {
    let (mut heads, mut at) = ([(0, 0); KNOWN.len()], 0);
    while at < heads.len() {
        let pattern = KNOWN[at].0.as_bytes();
        let head = if let [family @ .., b'*'] = pattern { family } else { pattern };
        let mask = if head.len() < 8 { (1 << (8 * head.len())) - 1 } else { u64::MAX };
        heads[at] = (head_of(head), mask);
        at += 1;
    }
    heads
};

/// The first eight bytes of a name as a number; a shorter one is padded with zeros.
const fn head_of(name: &[u8]) -> u64 {
    let (mut head, mut at) = (0, 0);
    while at < name.len() && at < size_of::<u64>() {
        head |= (name[at] as u64) << (8 * at);
        at += 1;
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_matching_model_name_gives_the_window_and_router_prefixes_are_ignored() {
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
