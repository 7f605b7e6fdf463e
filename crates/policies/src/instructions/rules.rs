//! The rule engine: rules are compiled once and matched with pieces of text. The rules are in `phrases`, `structures`
//! and `languages`; `candidates` finds where they might match; `fold` and `window` prepare the text.

use super::candidates::CANDIDATE_PATTERNS;
use super::fold::fold;
use super::languages::LANGUAGES;
use super::phrases::{ADDRESSES, OVERRIDES};
use super::structures::STRUCTURES;
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::sync::LazyLock;

/// What a rule has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Characters that are invisible.
    Invisible,
    /// Instructions to set others aside.
    Override,
    /// Marks of chat templates, of roles and of tool calls.
    Template,
    /// Text that addresses an assistant rather than a reader.
    Addressed,
    /// Text that a browser would not show.
    Hidden,
    /// An image whose address carries data away.
    Exfiltration,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Invisible, Self::Override, Self::Template, Self::Addressed, Self::Hidden, Self::Exfiltration];

    /// Its name in metrics and the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Invisible => "invisible",
            Self::Override => "override",
            Self::Template => "template",
            Self::Addressed => "addressed",
            Self::Hidden => "hidden_markup",
            Self::Exfiltration => "exfiltration",
        }
    }
}

/// The weights and kinds of the rules that match `settled`.
pub(super) fn matches(settled: &[u8]) -> impl Iterator<Item = (Kind, u32)> {
    let fitting = SETS.iter().enumerate().flat_map(move |(set, regexes)| {
        regexes.matches(settled).into_iter().map(move |rule| RULES[set][rule])
    });
    fitting.map(|(kind, weight, _)| (kind, weight))
}

/// The end of the first position in `text`, from `from` on, where a rule might match.
pub(super) fn next_anchor(text: &[u8], from: usize) -> Option<usize> {
    CANDIDATES.as_ref()?.shortest_match_at(text, from)
}

/// A kind, a weight and a pattern.
pub(super) type Rule = (Kind, u32, &'static str);

static SETS: LazyLock<Vec<RegexSet>> =
    LazyLock::new(|| RULES.iter().filter_map(|rules| compiled(rules)).collect());

/// A test checks that all of them compile.
fn compiled(rules: &[Rule]) -> Option<RegexSet> {
    let patterns = rules.iter().map(|(_, _, pattern)| expanded(pattern));
    RegexSetBuilder::new(patterns).unicode(false).size_limit(1 << 25).dfa_size_limit(1 << 23).build().ok()
}

static CANDIDATES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns: Vec<String> = CANDIDATE_PATTERNS.iter().map(|pattern| expanded(pattern)).collect();
    let all = patterns.join("|");
    RegexBuilder::new(&all).unicode(false).case_insensitive(true).dfa_size_limit(1 << 23).build().ok()
});

/// A pattern with its abbreviations expanded, folded like the text that it is matched with.
fn expanded(pattern: &str) -> String {
    let mut pattern = fold(pattern).replace(' ', GAP);
    for (name, meaning) in ABBREVIATIONS {
        pattern = pattern.replace(name, &meaning.replace(' ', GAP));
    }
    if pattern.is_ascii() { pattern } else { format!("(?u:{pattern})") }
}

/// What may be between two words: white space, marks of comments and quotes.
const GAP: &str = r##"(?:[\s#/>|_,"'-]+)"##;

/// Those that contain others come first.
const ABBREVIATIONS: &[(&str, &str)] = &[
    (
        "@ignore",
        "(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|overrid(?:e|ing)|overrule|bypass|neglect|dismiss|discard|abandon|@refuse follow(?:ing)?|@refuse obey(?:ing)?|@refuse listen(?:ing)? to|pay no attention to|set aside)",
    ),
    ("@refuse", "(?:do not|don't|stop|no longer|never)"),
    (
        "@any",
        "(?:(?:all|any|every|each|the|your|my|our|these|those|this|that|of|and|or|other|such|existing|current|given|system|user|safety|security|developer|previously|stated|said|mentioned) )",
    ),
    (
        "@former",
        "(?:previous|prior|above|preceding|earlier|existing|initial|original|foregoing|past|former|old|your|system|all other|you (?:were|have been|are) given|(?:given|told|received) (?:before|so far|above|earlier))",
    ),
    ("@orders", "(?:[a-z]{0,3}nstr[a-z]{2,6}ons|prompts?|guidelines|system messages?)"),
    (
        "@weak",
        "(?:[a-z]{0,3}nstr[a-z]{2,6}on|directives?|directions|commands?|orders|rules|context|messages?|text|conversation|content|tasks?|requests?|programming|training|constraints|restrictions|safeguards|safety)",
    ),
    (
        "@model",
        r"(?:(?:ai|a\.i\.|artificial intelligence|virtual|llm|digital) (?:language )?(?:assistant|agent|model|system|chatbot|bot|crawler)s?|(?:large )?language models?|ai|llms?|chatgpt|gpt ?[0-9][a-z0-9. ]*|gpt|claude|gemini|copilot|llama|mistral|deepseek|qwen|grok|chatbots?)",
    ),
    ("@reader", "(?:@model|assistants?|agents?|models?|bots?)"),
    (
        "@hide",
        r"(?:display ?: ?none|visibility ?: ?hidden|font-size ?: ?0|opacity ?: ?0|color ?: ?(?:white|#fff(?:fff)?|transparent)\b|(?:left|top|text-indent) ?: ?-[0-9]{3}|(?:max-)?(?:height|width) ?: ?0|aria-hidden|\bhidden)",
    ),
    (
        "@data",
        "(?:conversation|chat|secret|history|private|message|summary|context|token|password|api.?key|credential|data|email|answer|base64|prompt|user|session|cookie)",
    ),
    ("@first", r"(?:^|\n|[>\x22'.!(\[\]-]) ?"),
];

const RULES: &[&[Rule]] = &[OVERRIDES, STRUCTURES, ADDRESSES, LANGUAGES];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(SETS.len(), RULES.len());
        assert!(CANDIDATES.is_some());
    }
}
