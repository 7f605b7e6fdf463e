//! The names and patterns of tools that an operator's own settings hold: those that no tool can have, and those that
//! fitted no tool that programs have used. The policies define what a match means; the shipped patterns are guesses at
//! other people's tools and are not examined.

use super::Config;
use super::error::nearest;
use super::file::File;
use super::policy_tables::{Layer, ShippedTool};
use super::profiles::Profiles;
use super::tables::Reask;
use model::names::RestrictedNames;
use policies::about::NamedTool;
use policies::pattern::Pattern;
use policies::set::PolicySet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The shortest word of a name that makes another name similar, in characters: shorter ones (`to`, `all`) are in many.
const SHORTEST_WORD: usize = 3;

/// A name or pattern of tools in the operator's own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRule {
    /// The whole key: `policy.confirm.tools`.
    pub key: String,
    pub pattern: Pattern,
}

/// A rule that fits none of the tools that programs have used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfittedRule {
    pub key: String,
    pub pattern: String,
    /// The tool that it was probably meant for.
    pub near: Option<String>,
}

/// The operator's own rules: those of the policies outside of profiles, of each profile where it has others, and those
/// outside of policies.
pub(super) fn own_rules(
    base: &Layer<'_>,
    profiles: &Profiles,
    file: &File,
    shipped: &[ShippedTool],
) -> Vec<ToolRule> {
    let is_own = |policy: &str, tool: &NamedTool| {
        !shipped.iter().any(|known| known.policy == policy && known.tool.pattern == tool.pattern)
    };
    let of = |set: &PolicySet, path: &str| {
        let own = set.named_tools().filter(|(policy, tool)| is_own(policy, tool));
        own.map(|(policy, tool)| ToolRule {
            key: format!("{path}policy.{policy}.{}", tool.key),
            pattern: tool.pattern.clone(),
        })
        .collect::<Vec<_>>()
    };
    let outside = of(&base.set(), "");
    let mut rules = outside.clone();
    for profile in profiles.iter() {
        let path = format!("profile.{}.", profile.name);
        let is_inherited = |rule: &ToolRule| {
            let key = rule.key.strip_prefix(&path).unwrap_or_default();
            outside.iter().any(|known| known.key == key && known.pattern == rule.pattern)
        };
        rules.extend(of(&profile.policies, &path).into_iter().filter(|rule| !is_inherited(rule)));
    }
    let by_default = Reask::default().answer_tools;
    let answers = file.reask.answer_tools.iter().filter(|tool| !by_default.contains(tool));
    let lists = [
        ("reask.answer_tools", answers.collect::<Vec<_>>()),
        ("telemetry.tools", file.telemetry.tools.iter().collect()),
    ];
    for (key, patterns) in lists {
        rules.extend(
            patterns.into_iter().map(|pattern| ToolRule { key: key.to_owned(), pattern: pattern.clone() }),
        );
    }
    rules
}

/// The rules with characters that no tool's name has, one sentence each: those of other pattern languages.
pub(super) fn impossible(rules: &[ToolRule]) -> Vec<String> {
    let warning = |rule: &ToolRule| {
        let text = rule.pattern.as_str();
        let odd: BTreeSet<char> = text.chars().filter(|char| !is_of_names(*char)).collect();
        let odd: Vec<String> = odd.into_iter().map(|char| format!("`{}`", char.escape_debug())).collect();
        (!odd.is_empty()).then(|| {
            format!(
                "{}: {text:?} has {}, which no tool's name has; a pattern is the whole name, where * means any run of \
                 characters",
                rule.key,
                odd.join(" ")
            )
        })
    };
    rules.iter().filter_map(warning).collect()
}

/// Whether a tool's name, or a pattern for one, may have this character. Providers take letters, digits, `_` and `-`;
/// the others stand between a namespace and a name.
fn is_of_names(char: char) -> bool {
    char.is_alphanumeric() || "_-.:/*".contains(char)
}

impl Config {
    /// The operator's rules that fit none of the tools `used`.
    pub fn unfitted_rules(&self, used: &[String]) -> Vec<UnfittedRule> {
        let unfitted = |rule: &&ToolRule| !used.iter().any(|tool| rule.pattern.concerns(tool));
        let rules = self.tool_rules.iter().filter(unfitted);
        rules
            .map(|rule| UnfittedRule {
                key: rule.key.clone(),
                pattern: rule.pattern.as_str().to_owned(),
                near: near(rule.pattern.as_str(), used),
            })
            .collect()
    }
}

/// The one of the tools `used` that a rule was probably meant for: the name with the fewest other letters, else the one
/// that shares the most words.
fn near(pattern: &str, used: &[String]) -> Option<String> {
    let wanted = pattern.replace('*', "");
    let names: Vec<(RestrictedNames<'_>, &String)> =
        used.iter().map(|tool| (RestrictedNames::new(tool), tool)).collect();
    let forms = || names.iter().flat_map(|(forms, tool)| forms.iter().map(move |form| (form, *tool)));
    if let Some(form) = nearest(&wanted, forms().map(|(form, _)| form)) {
        return forms().find(|(known, _)| *known == form).map(|(_, tool)| tool.clone());
    }
    let wanted = words(&wanted);
    let is_alike = |one: &str, other: &str| one.starts_with(other) || other.starts_with(one);
    let shared = |tool: &String| {
        let words = words(tool);
        wanted.iter().filter(|wanted| words.iter().any(|word| is_alike(word, wanted))).count()
    };
    let best = used.iter().map(|tool| (shared(tool), tool)).filter(|(shared, _)| *shared > 0);
    // Of several the first.
    best.rev().max_by_key(|(shared, _)| *shared).map(|(_, tool)| tool.clone())
}

/// The words of a name in lower case: `refundOrders` has `refund` and `orders`.
fn words(name: &str) -> BTreeSet<String> {
    let mut split = String::new();
    let mut was_small = false;
    for char in name.chars() {
        if !char.is_alphanumeric() || (char.is_uppercase() && was_small) {
            split.push(' ');
        }
        split.extend(char.to_lowercase().filter(|char| char.is_alphanumeric()));
        was_small = char.is_lowercase() || char.is_numeric();
    }
    let words = split.split(' ').filter(|word| word.chars().count() >= SHORTEST_WORD);
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str) -> ToolRule {
        ToolRule { key: "policy.confirm.tools".to_owned(), pattern: Pattern::new(pattern) }
    }

    #[test]
    fn a_character_of_another_pattern_language_is_named() {
        for (pattern, odd) in [
            ("delete_?", "`?`"),
            ("{a,b}", "`,` `{` `}`"),
            ("^drop.*", "`^`"),
            ("drop$", "`$`"),
            ("(a|b)", "`(` `)` `|`"),
            ("[a-z]+", "`+` `[` `]`"),
            ("a\\b", "`\\\\`"),
            ("!pay", "`!`"),
            ("pay, refund", "` ` `,`"),
            ("delete%", "`%`"),
            ("~pay", "`~`"),
        ] {
            let warnings = impossible(&[rule(pattern)]);
            assert_eq!(warnings.len(), 1, "{pattern}");
            assert!(
                warnings[0].contains(&format!(" has {odd}, which no tool's name has")),
                "{}",
                warnings[0]
            );
        }
        for pattern in ["pay", "*search*", "shop.pay", "mcp__shop__*", "ns:pay", "a/b-c", "büro_suche", "*"]
        {
            assert!(impossible(&[rule(pattern)]).is_empty(), "{pattern}");
        }
    }

    #[test]
    fn the_near_name_is_the_one_that_was_probably_meant() {
        let used = ["search", "refund", "mcp__shop__create_order", "mailSend", "list_orders"];
        let used = used.map(str::to_owned);
        for (pattern, expected) in [
            ("refunds", Some("refund")),
            ("refund_*", Some("refund")),
            ("serach", Some("search")),
            ("createOrder", Some("mcp__shop__create_order")),
            ("send_mail", Some("mailSend")),
            ("order", Some("mcp__shop__create_order")),
            ("listing", Some("list_orders")),
            ("deploy", None),
            ("to_*", None),
            ("*", None),
        ] {
            assert_eq!(near(pattern, &used).as_deref(), expected, "{pattern}");
        }
    }
}
