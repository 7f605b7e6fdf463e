//! Names of tools and models as an operator writes them: exact, or with `*` for any run of characters.
//! Matching only; what a match means is the policy's own.

use super::ConfigError;
use serde::Deserialize;

/// A name or a pattern such as `search*`. Case counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Pattern {
    text: String,
    /// Where the first `*` stands: looked for once, since every request is held against some dozen patterns.
    star: Option<usize>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self { star: text.find('*'), text }
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

    /// Whether it has no `*` and so names one thing alone.
    pub fn is_exact(&self) -> bool {
        self.star.is_none()
    }

    /// Whether `name` fits, in time linear in the name for each star.
    pub fn matches(&self, name: &str) -> bool {
        // Most names are told by their first letter.
        let first = self.text.as_bytes().first();
        if first != name.as_bytes().first() && first != Some(&b'*') {
            return false;
        }
        let Some(star) = self.star else { return self.text == name };
        let (head, rest) = (&self.text[..star], &self.text[star + 1..]);
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
    fn stars_stand_for_any_run_of_characters() {
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
    fn the_exact_name_wins_over_the_longest_pattern() {
        let entries =
            [(Pattern::new("search*"), 1), (Pattern::new("searchA*"), 2), (Pattern::new("searchAll"), 3)];
        assert_eq!(best_match(&entries, "searchAll"), Some(&3));
        assert_eq!(best_match(&entries, "searchAny"), Some(&2));
        assert_eq!(best_match(&entries, "searchNotes"), Some(&1));
        assert_eq!(best_match(&entries, "fetch"), None);
    }
}
