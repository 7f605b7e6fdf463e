//! Patterns for names of tools and models, as an operator writes them: exact, or with `*` for any run of characters.
//! Matching only; what a match means is for the policy to decide.

use super::ConfigError;
use crate::conversation::names::dispatch_form;
use serde::Deserialize;

/// A name or a pattern such as `search*`. Case counts where something is allowed or exempt ([`Pattern::matches`]); a
/// restriction applies to every name that programs may take for a matching one ([`Pattern::concerns`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Pattern {
    text: String,
    /// The position of the first `*`: computed once, since every request is matched against some dozen patterns.
    star: Option<usize>,
    /// The same as programs look tools up, where that is another text.
    near: Option<Box<str>>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        let near = dispatch_form(&text);
        let near = (*near != *text).then(|| near.into());
        Self { star: text.find('*'), near, text }
    }
}

impl Pattern {
    /// A pattern as written.
    pub fn new(text: impl Into<String>) -> Self {
        text.into().into()
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has no `*` and so names exactly one thing.
    pub fn is_exact(&self) -> bool {
        self.star.is_none()
    }

    /// Whether `name` fits, in time linear in the name for each star.
    pub fn matches(&self, name: &str) -> bool {
        fits(&self.text, self.star, name)
    }

    /// Whether `name` fits, or would as programs look tools up: without white space, a namespace and capitals.
    pub fn concerns(&self, name: &str) -> bool {
        self.matches(name) || self.is_near(&dispatch_form(name))
    }

    /// Whether `form`, a name as programs look it up, fits in that form.
    fn is_near(&self, form: &str) -> bool {
        match &self.near {
            None => self.matches(form),
            Some(near) => fits(near, near.find('*'), form),
        }
    }
}

/// Whether `name` fits `text`, whose first star is at `star`.
fn fits(text: &str, star: Option<usize>, name: &str) -> bool {
    // Most names differ in their first letter.
    let first = text.as_bytes().first();
    if first != name.as_bytes().first() && first != Some(&b'*') {
        return false;
    }
    let Some(star) = star else { return text == name };
    let (head, rest) = (&text[..star], &text[star + 1..]);
    let Some(mut name) = name.strip_prefix(head) else { return false };
    if rest.is_empty() {
        return true;
    }
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*').filter(|piece| !piece.is_empty()) {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(tail)
}

/// Whether one of `patterns` concerns `name`.
pub fn any_concerns(patterns: &[Pattern], name: &str) -> bool {
    let form = dispatch_form(name);
    patterns.iter().any(|pattern| pattern.matches(name) || pattern.is_near(&form))
}

/// The value for `name`: the exact entry, else one whose name is near, else that of the longest pattern that concerns
/// it.
pub fn best_concern<'a, T>(entries: &'a [(Pattern, T)], name: &str) -> Option<&'a T> {
    let form = dispatch_form(name);
    let fits = entries.iter().filter(|(pattern, _)| pattern.matches(name) || pattern.is_near(&form));
    let rank = |pattern: &Pattern| {
        let is_exact = pattern.is_exact();
        (is_exact && pattern.matches(name), is_exact, pattern.as_str().len(), pattern.matches(name))
    };
    fits.max_by_key(|(pattern, _)| rank(pattern)).map(|(_, value)| value)
}

/// The names among `entries` that are no patterns.
pub fn exact_names<T>(entries: &[(Pattern, T)]) -> Vec<String> {
    let exact = entries.iter().filter(|(pattern, _)| pattern.is_exact());
    exact.map(|(pattern, _)| pattern.as_str().to_owned()).collect()
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
    fn the_exact_name_wins_over_the_longest_pattern() {
        let entries =
            [(Pattern::new("search*"), 1), (Pattern::new("searchA*"), 2), (Pattern::new("searchAll"), 3)];
        assert_eq!(best_match(&entries, "searchAll"), Some(&3));
        assert_eq!(best_match(&entries, "searchAny"), Some(&2));
        assert_eq!(best_match(&entries, "searchNotes"), Some(&1));
        assert_eq!(best_match(&entries, "fetch"), None);
    }
}
