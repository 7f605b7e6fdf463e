//! Patterns for names of tools and models, as an operator writes them: exact, or with `*` for any run of characters.
//! Matching only; what a match means is for the policy to decide.
//!
//! Where something is allowed or exempt, a name must match as it is written ([`Pattern::matches`]). A restriction concerns
//! every name that programs may take for a matching one, in any namespace ([`Pattern::concerns`]); of several entries
//! with values, [`all_concerns`] finds those that apply.

use super::ConfigError;
use memchr::memmem::find;
use model::names::{RestrictedNames, dispatch_form, qualified_form};
use serde::Deserialize;

/// A name or a pattern such as `search*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Pattern {
    text: Glob,
    /// The same as programs look tools up, where that is another text.
    near: Option<Glob>,
    /// The same with one dot between namespaces, where that is another text.
    qualified: Option<Glob>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        let differing = |form: std::borrow::Cow<'_, str>| (*form != *text).then(|| Glob::new(&form));
        let (near, qualified) = (differing(dispatch_form(&text)), differing(qualified_form(&text)));
        Self { text: Glob::new(&text), near, qualified }
    }
}

/// A text in which `*` fits any run of characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Glob {
    text: Box<str>,
    /// The positions of the first and the last `*`: computed once, since every request is matched against some dozen
    /// patterns.
    stars: Option<(usize, usize)>,
}

impl Glob {
    fn new(text: &str) -> Self {
        Self { stars: text.find('*').zip(text.rfind('*')), text: text.into() }
    }

    /// Whether `name` fits, in time linear in the name for each star.
    fn fits(&self, name: &str) -> bool {
        let (text, name) = (self.text.as_bytes(), name.as_bytes());
        let Some((first, last)) = self.stars else { return text == name };
        let (head, tail) = (&text[..first], &text[last + 1..]);
        let Some(rest) = name.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail)) else {
            return false;
        };
        let mut pieces = text[first..last].split(|byte| *byte == b'*').filter(|piece| !piece.is_empty());
        pieces.try_fold(rest, |rest, piece| Some(&rest[find(rest, piece)? + piece.len()..])).is_some()
    }
}

impl Pattern {
    /// A pattern as written.
    pub fn new(text: impl Into<String>) -> Self {
        text.into().into()
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text.text
    }

    /// Whether it has no `*` and so names exactly one thing.
    pub fn is_exact(&self) -> bool {
        self.text.stars.is_none()
    }

    /// Whether `name` fits, in time linear in the name for each star.
    pub fn matches(&self, name: &str) -> bool {
        self.text.fits(name)
    }

    /// Whether it restricts the tool `name`: that fits, or would as programs look tools up (without white space and
    /// capitals), or without its namespaces.
    pub fn concerns(&self, name: &str) -> bool {
        self.matches_or_is_near(name, &dispatch_form(name)) || self.fits_bare(&RestrictedNames::new(name))
    }

    /// Whether one of a tool's `names` fits.
    fn fits_bare(&self, names: &RestrictedNames<'_>) -> bool {
        self.bare_fit(names).is_some()
    }

    /// The first of a tool's `names` that fits.
    fn bare_fit<'a>(&self, names: &'a RestrictedNames<'_>) -> Option<&'a str> {
        let glob = self.qualified.as_ref().unwrap_or(&self.text);
        names.iter().find(|name| glob.fits(name)).filter(|_| !glob.text.is_empty())
    }

    /// Whether `form`, a name as programs look it up, fits in that form.
    fn is_near(&self, form: &str) -> bool {
        self.near.as_ref().unwrap_or(&self.text).fits(form)
    }

    /// Whether `name` fits as it is, or as programs look it up: `form`.
    fn matches_or_is_near(&self, name: &str, form: &str) -> bool {
        self.matches(name) || ((self.near.is_some() || form != name) && self.is_near(form))
    }
}

/// Whether one of `patterns` concerns `name`: see [`Pattern::concerns`].
pub fn any_concerns(patterns: &[Pattern], name: &str) -> bool {
    let (form, names) = (dispatch_form(name), RestrictedNames::new(name));
    patterns.iter().any(|pattern| pattern.matches_or_is_near(name, &form) || pattern.fits_bare(&names))
}

/// Whether one of `patterns` fits `name` as programs look it up. Namespaces count: for lists that exempt.
pub fn any_near(patterns: &[Pattern], name: &str) -> bool {
    let form = dispatch_form(name);
    patterns.iter().any(|pattern| pattern.matches_or_is_near(name, &form))
}

/// The value for `name`: the exact entry, else one whose name is near, else one that names it in any namespace, else that
/// of the longest pattern that concerns it.
pub fn best_concern<'a, T>(entries: &'a [(Pattern, T)], name: &str) -> Option<&'a T> {
    let (form, names) = (dispatch_form(name), RestrictedNames::new(name));
    let rank = |pattern: &Pattern| {
        let (is_exact, fits, is_near) = (pattern.is_exact(), pattern.matches(name), pattern.is_near(&form));
        (is_exact && fits, is_exact && is_near, is_exact, pattern.as_str().len(), fits)
    };
    let concerns = |pattern: &Pattern| pattern.matches_or_is_near(name, &form) || pattern.fits_bare(&names);
    let found = entries.iter().filter(|(pattern, _)| concerns(pattern));
    found.max_by_key(|(pattern, _)| rank(pattern)).map(|(_, value)| value)
}

/// An entry of a restricting table that concerns a tool.
pub struct Concern<'a, T> {
    pub value: &'a T,
    /// The name under which calls count for it: a name that is listed counts in all namespaces together.
    pub counts_as: String,
}

/// The entries that concern the tool `name`. The best one for its whole name comes first: the exact entry, else the longest
/// pattern. Where none names it exactly, the best one for its name in any namespace applies too, so that a namespace
/// never leads from a strict entry to a lax one.
pub fn all_concerns<'a, T>(entries: &'a [(Pattern, T)], name: &str) -> Concerns<'a, T> {
    let (form, names) = (dispatch_form(name), RestrictedNames::new(name));
    let rank = |pattern: &Pattern| {
        let is_exact = pattern.is_exact();
        (is_exact && pattern.matches(name), is_exact, pattern.as_str().len(), pattern.matches(name))
    };
    let best = |concerns: &dyn Fn(&Pattern) -> bool| {
        let found = entries.iter().filter(|(pattern, _)| concerns(pattern));
        found.max_by_key(|(pattern, _)| rank(pattern))
    };
    let named = best(&|pattern| pattern.matches_or_is_near(name, &form));
    let bare = match named {
        Some((pattern, _)) if pattern.is_exact() => None,
        _ => best(&|pattern| pattern.fits_bare(&names)),
    };
    let bare = bare.filter(|bare| named.is_none_or(|named| !std::ptr::eq(*bare, named)));
    let counts_as = |pattern: &Pattern, fit: &str| match pattern.is_exact() {
        true => qualified_form(pattern.as_str()).into_owned(),
        false => fit.to_owned(),
    };
    Concerns {
        named: named.map(|(pattern, value)| Concern { value, counts_as: counts_as(pattern, &form) }),
        bare: bare.map(|(pattern, value)| {
            let fit = pattern.bare_fit(&names).unwrap_or(&form);
            Concern { value, counts_as: counts_as(pattern, fit) }
        }),
    }
}

/// The entries of a restricting table that concern a tool.
pub struct Concerns<'a, T> {
    /// By its whole name.
    pub named: Option<Concern<'a, T>>,
    /// By its name in any namespace. It only adds a restriction.
    pub bare: Option<Concern<'a, T>>,
}

impl<'a, T> IntoIterator for Concerns<'a, T> {
    type Item = Concern<'a, T>;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Concern<'a, T>>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        [self.named, self.bare].into_iter().flatten()
    }
}

/// The names in `patterns` that are no patterns.
pub fn exact_among(patterns: &[Pattern]) -> Vec<String> {
    let exact = patterns.iter().filter(|pattern| pattern.is_exact());
    exact.map(|pattern| pattern.as_str().to_owned()).collect()
}

/// Whether `name` fits one of `patterns`.
pub fn any_fits(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// What is wrong with the list `patterns` under `key`: none of them may be empty.
pub fn problem_of(key: &str, patterns: &[Pattern]) -> Option<ConfigError> {
    let empty = patterns.iter().any(|pattern| pattern.as_str().is_empty());
    empty.then(|| ConfigError::new(key, "expected names or patterns, found an empty one"))
}

/// The value for `name`: the exact entry, else that of the longest pattern that fits.
pub fn best_match<'a, T>(entries: &'a [(Pattern, T)], name: &str) -> Option<&'a T> {
    let fits = entries.iter().filter(|(pattern, _)| pattern.matches(name));
    fits.max_by_key(|(pattern, _)| (pattern.is_exact(), pattern.as_str().len())).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_run_of_characters() {
        for (pattern, name, fits) in [
            ("search", "search", true),
            ("search", "searchAll", false),
            ("search*", "searchAll", true),
            ("search*", "search", true),
            ("search*", "research", false),
            ("*search", "research", true),
            ("*", "", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*x*", "axb", true),
            ("a**b", "ab", true),
            ("ab*ab", "ab", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn what_restricts_calls_concerns_every_name_that_programs_take_for_a_matching_one() {
        for (pattern, name, concerns) in [
            ("pay", "pay", true),
            ("pay", "Pay", true),
            ("pay", "functions.pay", true),
            ("pay", "pay ", true),
            ("pay", "payment", false),
            ("Pay", "pay", true),
            ("functions.pay", "pay", true),
            ("delete*", "functions.Delete_file", true),
            ("Delete*", "delete_file", true),
            ("*_all", "READ_ALL", true),
            ("*_all", "read_all_of", false),
            ("functions.*", "functions.x", true),
            ("pay", "shop.pay", true),
            ("pay", "mcp__shop__pay", true),
            ("pay", "shop.payment", false),
            ("delete*", "mcp__fs__delete_file", true),
            ("delete*", "fs.undelete", false),
            ("mcp__shop__*", "shop.pay", true),
            ("mcp__shop__*", "crm.pay", false),
            ("*search*", "web.search_all", true),
            ("*search*", "web.fetch", false),
            ("*", "web.fetch", true),
        ] {
            assert_eq!(Pattern::new(pattern).concerns(name), concerns, "{pattern} {name}");
            assert_eq!(any_concerns(&[Pattern::new("other"), Pattern::new(pattern)], name), concerns);
        }
    }

    #[test]
    fn a_near_name_takes_precedence_over_a_matching_pattern() {
        let entries = [("*", 0), ("Pay", 1), ("pay", 2), ("del*", 3), ("delete*", 4)];
        let entries = entries.map(|(pattern, value)| (Pattern::new(pattern), value));
        for (name, value) in
            [("pay", 2), ("Pay", 1), ("functions.delete_x", 4), ("Deliver", 3), ("other", 0), ("Other", 0)]
        {
            assert_eq!(best_concern(&entries, name), Some(&value), "{name}");
        }
        assert!(best_concern(&entries, "PAY").is_some_and(|value| [1, 2].contains(value)));
    }

    #[test]
    fn a_namespace_adds_the_restriction_of_the_bare_name_and_takes_none_away() {
        let entries = [("*", 50), ("pay", 1), ("shop.pay", 5), ("think", 0), ("del*", 3)];
        let entries = entries.map(|(pattern, value)| (Pattern::new(pattern), value));
        for (name, concerns) in [
            ("pay", vec![(1, "pay")]),
            ("Pay", vec![(1, "pay")]),
            ("crm.pay", vec![(50, "crm.pay"), (1, "pay")]),
            ("shop.pay", vec![(5, "shop.pay")]),
            ("mcp__shop__pay", vec![(50, "mcp__shop__pay"), (5, "shop.pay")]),
            ("x.think", vec![(50, "x.think"), (0, "think")]),
            ("x.delete", vec![(50, "x.delete"), (3, "delete")]),
            ("delete", vec![(3, "delete")]),
            ("x.other", vec![(50, "x.other")]),
        ] {
            let found: Vec<_> =
                all_concerns(&entries, name).into_iter().map(|it| (*it.value, it.counts_as)).collect();
            let concerns: Vec<_> = concerns.into_iter().map(|(value, key)| (value, key.to_owned())).collect();
            assert_eq!(found, concerns, "{name}");
        }
    }

    #[test]
    fn the_exact_name_wins_over_the_longest_pattern() {
        let entries =
            [(Pattern::new("search*"), 1), (Pattern::new("searchA*"), 2), (Pattern::new("searchAll"), 3)];
        assert_eq!(best_match(&entries, "searchAll"), Some(&3));
        assert_eq!(best_match(&entries, "searchAny"), Some(&2));
        assert_eq!(best_match(&entries, "searchNotes"), Some(&1));
        assert_eq!(best_match(&entries, "fetch"), None);
    }
}
