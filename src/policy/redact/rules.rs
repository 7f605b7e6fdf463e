//! The rules for values that the model must not read: well-known forms of keys, and personal numbers. As data; each is a
//! pattern that is matched in linear time, and a check of what it matched.

use super::checks::{iban, is_card, is_foreign_phone, is_named_phone, is_random};
use regex::Regex;
use serde::Deserialize;
use std::sync::LazyLock;

/// What a rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// API keys, tokens, passwords and private keys.
    Secret,
    Card,
    Iban,
    Email,
    Phone,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Secret, Self::Card, Self::Iban, Self::Email, Self::Phone];

    /// As the settings and metrics name it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Email => "email",
            Self::Phone => "phone",
        }
    }
}

/// One pattern.
pub(super) struct Rule {
    pub(super) kind: Kind,
    /// Where it has a group, that is the value.
    pub(super) regex: Regex,
    /// How much of the value counts, in bytes; `None`: it is none.
    pub(super) check: fn(&str) -> Option<usize>,
    /// A text without any of these bytes holds no value.
    pub(super) needs: &'static [u8],
}

/// In the order in which they win where they overlap.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // A pattern that does not compile is left out; a test holds that there is none.
    let rule = |(kind, pattern, check, needs): &Written| {
        let regex = Regex::new(pattern).ok()?;
        Some(Rule { kind: *kind, regex, check: *check, needs })
    };
    WRITTEN.iter().filter_map(rule).collect()
});

/// Compiles the rules, where that was not done yet.
pub(super) fn compile() {
    LazyLock::force(&RULES);
}

type Written = (Kind, &'static str, fn(&str) -> Option<usize>, &'static [u8]);

/// Each pattern looks at a bounded number of bytes, or has no two beginnings in what it looks at: so all its matches
/// are found in time linear in the text.
const WRITTEN: &[Written] = &[
    // OpenAI, Anthropic and others.
    (Kind::Secret, r"\bsk-[A-Za-z0-9_-]{20,250}", |text| when(text, is_random(text, 3.5)), b"-"),
    // Amazon, GitHub, GitLab, Slack, Google, Stripe, npm, PyPI, SendGrid, Hugging Face, Groq, DigitalOcean, Vault,
    // Shopify, Telegram.
    (
        Kind::Secret,
        r"\b(?:(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{36,250}|github_pat_[A-Za-z0-9_]{22,250}|glpat-[A-Za-z0-9_-]{20,64}|xox[abeoprs]-[A-Za-z0-9-]{10,250}|xapp-[0-9]-[A-Za-z0-9-]{20,250}|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,250}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,250}|npm_[A-Za-z0-9]{36}\b|pypi-[A-Za-z0-9_-]{50,250}|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}|hf_[A-Za-z0-9]{30,50}\b|gsk_[A-Za-z0-9]{40,60}\b|dop_v1_[a-f0-9]{64}\b|hvs\.[A-Za-z0-9_-]{24,250}|shpat_[a-f0-9]{32}\b|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b)",
        whole,
        b"",
    ),
    (Kind::Secret, r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", whole, b"."),
    (
        Kind::Secret,
        r"(?i)\b(?:bearer|basic)\s{1,4}([A-Za-z0-9._~+/=-]{16,})",
        |text| when(text, is_random(text, 3.0)),
        b"",
    ),
    // A password in an address.
    (
        Kind::Secret,
        r"[a-z]://[^\s/:@\x22']{1,64}:([^\s/@\x22']{3,128})@",
        |text| when(text, !is_variable(text)),
        b"@",
    ),
    (
        Kind::Secret,
        r#"(?i)(?:api[_-]?key|secret[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|encryption[_-]?key|client[_-]?secret|(?:auth|access|refresh|session|bot|api)[_-]?token|secret|password|passwd|passphrase|pwd|token)[\x22'\\]{0,3}\s{0,4}(?::=|=>|=|:)\s{0,4}[\x22'\\]{0,3}([A-Za-z0-9_+/=.~!@#$%^&*-]{8,200})"#,
        |text| when(text, is_random(text, 3.0) && !is_code(text)),
        b"=:",
    ),
    (Kind::Iban, r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{1,4}){3,9}", iban, b"0123456789"),
    (Kind::Card, r"\b[2-6](?:[ -]?[0-9]){12,18}\b", card, b"23456"),
    (
        Kind::Email,
        r"[A-Za-z0-9_%+'\p{L}](?:[A-Za-z0-9._%+'\p{L}-]*[A-Za-z0-9_%+'\p{L}-])?@(?:[A-Za-z0-9\p{L}](?:[A-Za-z0-9\p{L}-]*[A-Za-z0-9\p{L}])?\.)+(?:xn--[A-Za-z0-9-]{2,}|\p{L}{2,24})\b",
        email,
        b"@",
    ),
    (Kind::Phone, r"\+[1-9][0-9 ()./-]{6,20}[0-9]\b", |text| when(text, is_foreign_phone(text)), b"+"),
    // As written in North America.
    (Kind::Phone, r"(?:\b[2-9][0-9]{2}[ .-]|\([2-9][0-9]{2}\) ?)[2-9][0-9]{2}[.-][0-9]{4}\b", whole, b"-."),
    (
        Kind::Phone,
        r"(?i)\b(?:tel|phone|mobile|cell|fax|telefon|telephone|handy|t[ée]l[ée]phone|tel[ée]fono|whatsapp)(?:[ _-]?(?:number|no|nr))?[.:=\x22' ]{1,6}([0-9(][0-9 ()/.-]{5,18}[0-9])\b",
        |text| when(text, is_named_phone(text)),
        b"0123456789",
    ),
];

fn whole(text: &str) -> Option<usize> {
    Some(text.len())
}

fn when(text: &str, holds: bool) -> Option<usize> {
    holds.then_some(text.len())
}

/// A card's number, or one that is followed by other digits, such as when it expires.
fn card(text: &str) -> Option<usize> {
    let ends = text.match_indices([' ', '-']).map(|(at, _)| at).rev();
    std::iter::once(text.len()).chain(ends).find(|end| is_card(&text[..*end]))
}

/// An address of at most 254 bytes (RFC 5321), and none of a file (`logo@2x.png`) or of a remote in a repository's URL.
fn email(text: &str) -> Option<usize> {
    let (local, domain) = text.rsplit_once('@')?;
    let end = domain.rsplit_once('.')?.1.to_ascii_lowercase();
    let is_file = ["png", "jpg", "jpeg", "gif", "svg", "webp", "js", "ts", "py", "css", "json", "so", "c"]
        .contains(&&*end);
    let is_remote = local == "git" || local.len() > 64 || local.contains("..");
    when(text, text.len() <= 254 && !is_file && !is_remote)
}

/// Whether a value is the name of another, as in a template.
fn is_variable(text: &str) -> bool {
    text.starts_with(['$', '{', '<', '%', '*']) || text.chars().all(|char| char == 'x')
}

/// Whether a value is an expression of a program: a path of names, a call's beginning.
fn is_code(text: &str) -> bool {
    let is_name = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|char| char.is_ascii_alphabetic() || char == '_')
            && chars.all(|char| char.is_ascii_alphanumeric() || char == '_')
    };
    let parts = text.trim_end_matches('.').split('.');
    let is_path = text.contains('.') && parts.clone().count() > 1 && parts.clone().all(is_name);
    is_variable(text) || is_path || text.starts_with("--") || text.contains("==") && !text.ends_with('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(RULES.len(), WRITTEN.len());
    }
}
