//! The rules for values that the model must not read: well-known forms of keys, and personal numbers. As data; each is a
//! pattern that is matched in linear time, and a check of what it matched.

use super::checks::{iban, is_card, is_dialled_phone, is_foreign_phone, is_named_phone, is_random};
use super::expressions::is_variable;
use super::named;
use super::phrases;
use super::signs::{self, Signs};
use super::words;
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
    /// Whether a text may hold a value.
    pub(super) may_be_in: fn(&Signs<'_>) -> bool,
}

/// In the order in which they win where they overlap.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    // A pattern that does not compile is left out; a test holds that there is none.
    let rule = |(kind, pattern, check, may_be_in): &Written| {
        let regex = Regex::new(pattern).ok()?;
        Some(Rule { kind: *kind, regex, check: *check, may_be_in: *may_be_in })
    };
    WRITTEN.iter().filter_map(rule).collect()
});

/// Compiles the rules, where that was not done yet.
pub(super) fn compile() {
    LazyLock::force(&RULES);
    LazyLock::force(&named::PATTERN);
    LazyLock::force(&named::NAME);
    LazyLock::force(&phrases::PHRASES);
    LazyLock::force(&phrases::COOKIES);
    LazyLock::force(&signs::PREFIX);
    LazyLock::force(&words::SEARCH);
}

/// No rule finds a number with fewer digits, but where a name calls it a secret.
const LEAST_DIGITS: u32 = 7;
/// The least number that a rule finds.
pub const LEAST_NUMBER: u64 = 10_u64.pow(LEAST_DIGITS - 1);

type Written = (Kind, &'static str, fn(&str) -> Option<usize>, fn(&Signs<'_>) -> bool);

/// Each pattern looks at a bounded number of bytes, or has no two beginnings in what it looks at: so all its matches
/// are found in time linear in the text. None bounds a secret's length: the tail of a longer one would be shown.
const WRITTEN: &[Written] = &[
    // OpenAI, Anthropic and others.
    (
        Kind::Secret,
        r"\bsk-[A-Za-z0-9_-]{20,}",
        |text| when(text, is_random(text, 3.5)),
        |signs| signs.has(b"sk-"),
    ),
    // Amazon, GitHub, GitLab, Slack, Google, Stripe, npm, PyPI, SendGrid, Hugging Face, Groq, DigitalOcean, Vault,
    // Shopify, Telegram.
    (
        Kind::Secret,
        r"\b(?:(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}|AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{36,}|pypi-[A-Za-z0-9_-]{50,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|dop_v1_[a-f0-9]{64,}|hvs\.[A-Za-z0-9_-]{24,}|shpat_[a-f0-9]{32,}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33,})",
        whole,
        |signs| signs::has_prefix(signs.text),
    ),
    (Kind::Secret, r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", whole, |signs| {
        signs.has(b"eyJ")
    }),
    (
        Kind::Secret,
        r"(?i)\b(?:bearer|basic)[\s+]{1,4}([A-Za-z0-9._~+/=-]{16,})",
        |text| when(text, is_random(text, 3.0)),
        |signs| signs::has_scheme(signs.text),
    ),
    // A password in an address.
    (
        Kind::Secret,
        r"[a-z]://[^\s/:@\x22']*:([^\s/\x22']{3,})@",
        |text| when(text, !is_variable(text)),
        |signs| signs.has(b"@"),
    ),
    // A signature in an address is what lets its holder in.
    (
        Kind::Secret,
        r"(?i)[?&;](?:x-amz-signature|x-amz-security-token|x-goog-signature|signature|sig|hmac|auth|jwt)=([A-Za-z0-9%._~+/=-]{16,})",
        |text| when(text, is_random(text, 3.0)),
        |signs| signs::has_parameter(signs.text),
    ),
    (Kind::Iban, r"\b[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{1,4}){3,9}", iban, |signs| signs.has_account),
    // In lower case letters are those of the bank alone, since hashes hold others too.
    (
        Kind::Iban,
        r"\b[a-z]{2}[0-9]{2}(?:[ -]?[a-z]{4})?(?:[ -]?[0-9]{1,4}){3,9}",
        |text| iban(&text.to_ascii_uppercase()),
        |signs| signs.has_account,
    ),
    (Kind::Card, r"\b[2-6](?:[ .\u{a0}\u{202f}-]?[0-9]){12,18}\b", card, |signs| signs.most_digits >= 13),
    (
        Kind::Email,
        r"[A-Za-z0-9_%+'\p{L}](?:[A-Za-z0-9._%+'\p{L}-]*[A-Za-z0-9_%+'\p{L}-])?[@＠](?:[A-Za-z0-9\p{L}](?:[A-Za-z0-9\p{L}-]*[A-Za-z0-9\p{L}])?\.)+(?:xn--[A-Za-z0-9-]{2,}|\p{L}{2,24})\b",
        email,
        |signs| signs::has_at_sign(signs.text),
    ),
    (
        Kind::Phone,
        r"\+[1-9][0-9 ()./-]{6,24}[0-9]\b",
        |text| when(text, is_foreign_phone(text)),
        |signs| signs.most_digits >= 8 && signs.has(b"+"),
    ),
    (
        Kind::Phone,
        r"\b00[1-9][0-9]{0,2}[ /][0-9 ()./-]{6,22}[0-9]\b",
        |text| when(text, is_dialled_phone(text)),
        |signs| signs.most_digits >= 8 && signs.has(b"00"),
    ),
    // As written in North America.
    (
        Kind::Phone,
        r"(?:\b[2-9][0-9]{2}[ .-]|\([2-9][0-9]{2}\) ?)[2-9][0-9]{2}[.-][0-9]{4}\b",
        whole,
        |signs| signs.most_digits >= 10,
    ),
    (
        Kind::Phone,
        r"(?i)\b(?:tel|phone|mobile|cell|fax|telefon|telephone|handy|t[ée]l[ée]phone|tel[ée]fono|whatsapp)(?:[ _-]?(?:number|no|nr))?[.:=\x22' ]{1,6}([0-9(][0-9 ()/.-]{5,18}[0-9])\b",
        |text| when(text, is_named_phone(text)),
        |signs| signs.most_digits >= LEAST_DIGITS as usize,
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
    let ends = text.match_indices([' ', '-', '.', '\u{a0}', '\u{202f}']).map(|(at, _)| at).rev();
    std::iter::once(text.len()).chain(ends).find(|end| is_card(&text[..*end]))
}

/// An address, and none of a file (`logo@2x.png`) or of a remote in a repository's URL. Its length does not matter: the
/// text around one that is too long would hide it.
fn email(text: &str) -> Option<usize> {
    let (local, domain) = text.rsplit_once(['@', '＠'])?;
    let end = domain.rsplit_once('.')?.1.to_ascii_lowercase();
    // None of these is a domain of a country or another one.
    let is_file =
        ["png", "jpg", "jpeg", "gif", "svg", "webp", "js", "ts", "css", "json", "c"].contains(&&*end);
    when(text, !is_file && local != "git")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(RULES.len(), WRITTEN.len());
        assert!(named::PATTERN.is_some() && named::NAME.is_some() && named::NEXT_VALUE.is_some());
        assert!(signs::PREFIX.is_some());
        assert!(named::COMMAND.is_some() && named::ARGUMENT.is_some());
    }
}
