//! The operator's own limits on single arguments: length, pattern, and the hosts that a URL may lead to.

use super::problem::{Problem, join};
use crate::compile::compile_pattern;
use crate::hosts::Hosts;
use crate::pattern::Pattern;
use jsonschema::Validator;
use serde::Deserialize;
use serde_json::Value;
use wire::plural::counted;

/// The most hosts that the message lists.
const MOST_REPORTED: usize = 3;

/// A limit as written: `{ max_chars = 400, pattern = "^[a-z]+$", hosts = ["*.example.org"] }`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Written {
    /// The longest text, in characters.
    max_chars: Option<usize>,
    /// A regular expression that the text matches somewhere, as in JSON Schema.
    pattern: Option<String>,
    /// Hosts by name or pattern; the argument is a URL of one of them. None: any text.
    hosts: Vec<Pattern>,
}

/// A limit of one argument, checked.
pub struct Limit {
    /// The argument, and the members that lead to the text within it.
    steps: Vec<String>,
    max_chars: Option<usize>,
    pattern: Option<(String, Validator)>,
    hosts: Hosts,
}

impl Limit {
    /// The limit of `argument`, dotted where it lies within another: `options.url`.
    ///
    /// # Errors
    /// The key that is wrong and what would be right.
    pub fn new(argument: &str, written: Written) -> Result<Self, (&'static str, String)> {
        let pattern = match written.pattern {
            Some(text) => match compile_pattern(&text) {
                Some(compiled) => Some((text, compiled)),
                None => {
                    let text = "expected a regular expression without look-around and back-references";
                    return Err(("pattern", text.to_owned()));
                }
            },
            None => None,
        };
        let hosts = Hosts::new(&written.hosts).map_err(|problem| ("hosts", problem))?;
        let steps = argument.split('.').map(str::to_owned).collect();
        Ok(Self { steps, max_chars: written.max_chars, pattern, hosts })
    }

    /// Where `arguments` exceed the limit.
    pub fn problems(&self, arguments: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.search(arguments, "", &self.steps, &mut problems);
        problems
    }

    /// Finds the limited texts in `value` at `path`: every item of an array is checked.
    fn search(&self, value: &Value, path: &str, steps: &[String], problems: &mut Vec<Problem>) {
        match (value, steps) {
            (Value::Array(items), _) => {
                for (at, item) in items.iter().enumerate() {
                    self.search(item, &join(path, &at.to_string()), steps, problems);
                }
            }
            (Value::Object(members), [key, rest @ ..]) => {
                if let Some(member) = members.get(key) {
                    self.search(member, &join(path, key), rest, problems);
                }
            }
            (value, []) => problems.extend(self.judge(value, path)),
            // JSON within a string: some tools parse it.
            (Value::String(text), _) => {
                if let Ok(parsed @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text) {
                    self.search(&parsed, path, steps, problems);
                }
            }
            _ => {}
        }
    }

    fn judge(&self, value: &Value, path: &str) -> Option<Problem> {
        let text = match value {
            Value::Null => return None,
            Value::String(text) => text,
            // A host or a pattern can be checked in text only.
            _ if !self.hosts.is_empty() || self.pattern.is_some() => {
                return Some(Problem::new(path, "type", "string"));
            }
            _ => return None,
        };
        if let Some(most) = self.max_chars.filter(|most| text.chars().nth(*most).is_some()) {
            return Some(Problem::new(path, "max_chars", &format!("at most {}", counted(most, "character"))));
        }
        if let Some((pattern, compiled)) = &self.pattern
            && !compiled.is_valid(value)
        {
            return Some(Problem::new(path, "pattern", &format!("a match of {pattern}")));
        }
        let leads_elsewhere = !self.hosts.is_empty() && self.hosts.include(text) != Some(true);
        leads_elsewhere.then(|| Problem::new(path, "hosts", &self.reported_hosts()))
    }

    fn reported_hosts(&self) -> String {
        let hosts: Vec<&str> = self.hosts.names().take(MOST_REPORTED).collect();
        format!("a plain http(s) URL of {}", hosts.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(argument: &str, limit: &str, arguments: &Value) -> Vec<String> {
        let limit = Limit::new(argument, toml::from_str(limit).unwrap()).unwrap();
        limit.problems(arguments).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_url_leads_to_an_allowed_host_or_is_refused() {
        for (url, allowed) in [
            ("https://docs.example.com/a?b#c", true),
            ("HTTPS://Docs.Example.Com.:8443", true),
            ("http://a.b.example.org/x", true),
            ("https://example.org/", false),
            ("https://docs.example.com.evil.net/", false),
            ("https://evil.net/docs.example.com", false),
            ("https://evil.net?docs.example.com", false),
            ("https://docs.example.com@evil.net/", false),
            ("https://evil.net#@docs.example.com/", false),
            ("https://evil.net\\@docs.example.com/", false),
            ("https://docs.example.com:80@evil.net/", false),
            ("https://docs.example.com:8x/", false),
            ("https://docs.example.com\n.evil.net/", false),
            (" https://docs.example.com/", false),
            ("https:docs.example.com", false),
            ("//docs.example.com/", false),
            ("file://docs.example.com/etc/passwd", false),
            ("javascript://docs.example.com/%0aalert(1)", false),
            ("https://docs%2eexample.com/", false),
            ("https://dоcs.example.com/", false),
            ("https://[::1]/", false),
            ("https://2130706433/", false),
            ("https:///docs.example.com", false),
            ("docs.example.com", false),
            ("", false),
        ] {
            let found =
                problems("url", "hosts = [\"docs.example.com\", \"*.example.ORG\"]", &json!({ "url": url }));
            assert_eq!(found.is_empty(), allowed, "{url}");
        }
        assert_eq!(
            problems("url", "hosts = [\"a.b\"]", &json!({"url": "x"})),
            ["url: hosts, expected a plain http(s) URL of a.b"]
        );
    }

    #[test]
    fn length_and_pattern_hold_for_text() {
        for (limit, value, expected) in [
            ("max_chars = 3", json!("äöü"), None),
            ("max_chars = 3", json!("äöüß"), Some("q: max_chars, expected at most 3 characters")),
            ("max_chars = 3", json!(12345), None),
            ("max_chars = 0", json!("a"), Some("q: max_chars, expected at most 0 characters")),
            ("pattern = \"^[a-z]+$\"", json!("abc"), None),
            ("pattern = \"^[a-z]+$\"", json!("abc;rm"), Some("q: pattern, expected a match of ^[a-z]+$")),
            ("pattern = \"b\"", json!("abc"), None),
            ("pattern = \"b\"", json!(7), Some("q: type, expected string")),
            ("hosts = [\"a.b\"]", json!({"href": "https://evil.net"}), Some("q: type, expected string")),
            ("pattern = \"b\"", json!(null), None),
        ] {
            assert_eq!(
                problems("q", limit, &json!({ "q": value })),
                Vec::from_iter(expected),
                "{limit} {value}"
            );
        }
    }

    #[test]
    fn texts_within_objects_and_lists_are_found() {
        let limit = "max_chars = 1";
        let nested = json!({"pages": [{"url": "ab"}, {"url": "c"}, {"other": 1}], "url": "abc"});
        assert_eq!(
            problems("pages.url", limit, &nested),
            ["pages[0].url: max_chars, expected at most 1 character"]
        );
        assert_eq!(
            problems("a", limit, &json!({"a": ["b", ["cd"]]})),
            ["a[1][0]: max_chars, expected at most 1 character"]
        );
        let parsed = json!({"pages": "{\"url\":\"ab\"}"});
        assert_eq!(
            problems("pages.url", limit, &parsed),
            ["pages.url: max_chars, expected at most 1 character"]
        );
        assert_eq!(problems("absent", limit, &nested), Vec::<String>::new());
    }

    #[test]
    fn limits_that_cannot_be_held_are_refused() {
        for (limit, key) in [
            ("pattern = \"(?=a)\"", "pattern"),
            ("pattern = \"(\"", "pattern"),
            ("hosts = [\"https://example.org\"]", "hosts"),
            ("hosts = [\"\"]", "hosts"),
        ] {
            assert_eq!(Limit::new("a", toml::from_str(limit).unwrap()).err().unwrap().0, key, "{limit}");
        }
    }
}
