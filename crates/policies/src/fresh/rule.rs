//! A rule of `fresh` as an operator writes it, and the checked form. Parsing only.

use crate::ConfigError;
use crate::path::Path;
use crate::pattern::Pattern;
use crate::period::Period;
use serde::Deserialize;
use std::time::Duration;

/// A rule as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// The tool whose calls it restricts, by name or pattern.
    tool: Pattern,
    /// The path of the argument.
    argument: String,
    /// The tool whose results give the values, by name or pattern.
    from: Pattern,
    /// The path of the values in those results.
    path: String,
    /// The most calls, of any tool, that may come between; 0: any number.
    #[serde(default)]
    max_calls: u64,
    /// The oldest that the values may be; 0: any age.
    #[serde(default = "any_age")]
    max_age: Period,
    /// How old the values may be without being reported; 0: any age.
    #[serde(default = "any_age")]
    late: Period,
}

/// A rule, checked.
pub struct Rule {
    pub tool: Pattern,
    pub argument: Path,
    pub from: Pattern,
    pub path: Path,
    pub max_calls: u64,
    pub max_age_ms: u64,
    pub late_ms: u64,
}

impl Written {
    /// Checks the rule, the `at`-th in its list.
    ///
    /// # Errors
    /// Every problem found.
    pub fn check(self, at: usize) -> Result<Rule, Vec<ConfigError>> {
        let problem = |text: String| ConfigError::new("rules", format!("rule {}: {text}", at + 1));
        let mut problems = Vec::new();
        for (key, pattern) in [("tool", &self.tool), ("from", &self.from)] {
            if pattern.as_str().is_empty() {
                problems.push(problem(format!("{key}: expected a name or a pattern, found an empty one")));
            }
        }
        match (Path::parse(&self.argument), Path::parse(&self.path)) {
            (Ok(argument), Ok(path)) if problems.is_empty() => Ok(Rule {
                tool: self.tool,
                argument,
                from: self.from,
                path,
                max_calls: self.max_calls,
                max_age_ms: self.max_age.millis(),
                late_ms: self.late.millis(),
            }),
            (argument, path) => {
                let wrong = [("argument", argument.err()), ("path", path.err())];
                let wrong =
                    wrong.into_iter().filter_map(|(key, text)| Some(problem(format!("{key}: {}", text?))));
                problems.extend(wrong);
                Err(problems)
            }
        }
    }
}

fn any_age() -> Period {
    Period(Duration::ZERO)
}
