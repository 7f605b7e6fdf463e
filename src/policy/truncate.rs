//! Truncation of bloated tool results.
//!
//! # What it does
//! A tool result longer than `max_chars` characters (or the limit of its tool) is shortened: text by whole
//! lines, head and tail, with lines that look like errors kept; JSON stays valid JSON. One marker says how much
//! is gone. Text parts alone are touched; images and other parts stay.
//!
//! # Why
//! One bloated result is paid for again with every later request. Cut once, at first sight, as a pure function
//! of its bytes, a result never changes again, so the provider's prompt cache keeps hitting. Measured on
//! recorded coding agents: at 16,000 characters 96 % of the lines that are used later are still there.
//!
//! # State
//! None: each result is judged by itself.
//!
//! # Example
//! With `max_chars = 16000` a build log of 200,000 characters becomes its first 3,000, its errors and its last
//! 12,000 characters around `[toolrein: ...]`.

mod cut;

use super::pattern::{Pattern, best_match, exact_names};
use super::plan::Plan;
use super::{ConfigError, Policy};
use crate::transcript::identity::Domain;
use crate::transcript::memo::Derived;
use crate::transcript::{Event, ToolResult};
use crate::wire::body::Str;
use crate::wire::json::decode;
use cut::MIN_CHARS;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the file's head.
pub struct Truncate {
    max_chars: usize,
    tools: Vec<(Pattern, usize)>,
}

/// `[policy.truncate]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Longest result, in characters; 0: no limit.
    max_chars: usize,
    /// The same for tools by name or pattern.
    tools: BTreeMap<String, usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_chars: 16_000, tools: BTreeMap::new() }
    }
}

impl Policy for Truncate {
    const NAME: &'static str = "truncate";
    const SUMMARY: &'static str = "shortens bloated tool results, once, and says how much is gone";
    const EDITS_CONTEXT: bool = true;
    type Config = Config;
    type State = ();

    fn new(config: Config) -> Result<Self, Vec<ConfigError>> {
        let limits = std::iter::once(("max_chars".to_owned(), config.max_chars))
            .chain(config.tools.iter().map(|(tool, limit)| (format!("tools.{tool}"), *limit)));
        let problems: Vec<ConfigError> = limits
            .filter(|(_, limit)| (1..MIN_CHARS).contains(limit))
            .map(|(key, _)| ConfigError::new(key, format!("expected 0 or at least {MIN_CHARS} characters")))
            .collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let tools = config.tools.into_iter().map(|(tool, limit)| (Pattern::new(tool), limit)).collect();
        Ok(Self { max_chars: config.max_chars, tools })
    }

    fn named_tools(&self) -> Vec<String> {
        exact_names(&self.tools)
    }

    fn read(&self, event: &Event<'_>, _state: &mut (), plan: &mut Plan) {
        let Event::Result(result) = event else { return };
        let limit = best_match(&self.tools, result.tool()).copied().unwrap_or(self.max_chars);
        if limit == 0 || result.view.message.odd {
            return;
        }
        for (at, text) in result.view.message.content.texts().enumerate() {
            // Fewer bytes than the limit cannot be more characters.
            if text.span.len() > limit
                && let Some((by, gone_chars)) = shortened(result, text, limit)
            {
                plan.shorten(at, by, gone_chars);
            }
        }
    }
}

/// The text cut to `limit`, from memory where it was cut before.
fn shortened(result: &ToolResult<'_>, text: Str, limit: usize) -> Option<(Arc<str>, usize)> {
    let view = &result.view;
    let key = view.identity.key.hash(Domain::Cut, &[&limit.to_le_bytes(), text.raw(view.body)]);
    let derived = view.memo.derive(key, &mut || {
        let cut = cut::cut(&decode(text, view.body), limit);
        Derived::Cut(cut.map(|cut| (Arc::from(cut.text), cut.gone_chars)))
    });
    if let Derived::Cut(cut) = derived { cut } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{plan_of, policy};
    use super::*;
    use crate::policy::plan::Change;

    fn cuts(config: &str, content: &str, tool: &str) -> Vec<(usize, usize, usize)> {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"q"}},
            {{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"{tool}","arguments":"{{}}"}}}}]}},
            {{"role":"tool","tool_call_id":"a","content":{content}}}]}}"#
        );
        let plan = plan_of(&policy::<Truncate>(config), &body);
        let cuts = plan.edits.into_iter().map(|edit| match edit.change {
            Change::Shorten { text, by, gone_chars } => (text, by.chars().count(), gone_chars),
            other => panic!("{other:?}"),
        });
        cuts.collect()
    }

    #[test]
    fn results_are_cut_by_the_limit_of_their_tool() {
        let long = format!("\"{}\"", "word word word\\n".repeat(100));
        for (config, tool, cut) in [
            ("max_chars = 1000", "any", true),
            ("max_chars = 2000", "any", false),
            ("max_chars = 0", "any", false),
            ("max_chars = 2000\ntools = { \"read*\" = 500 }", "readFile", true),
            ("max_chars = 1000\ntools = { readFile = 0 }", "readFile", false),
        ] {
            let cuts = cuts(config, &long, tool);
            assert_eq!(!cuts.is_empty(), cut, "{config}");
            assert!(cuts.iter().all(|(_, chars, gone)| *chars <= 1000 && *gone > 0));
        }
    }

    #[test]
    fn text_parts_are_cut_and_other_parts_are_not() {
        let long = "x".repeat(3000);
        let content = format!(
            r#"[{{"type":"image_url","image_url":{{"url":"{long}"}}}},{{"type":"text","text":"s"}},{{"type":"text","text":"{long}"}}]"#
        );
        let cuts = cuts("max_chars = 1000", &content, "f");
        assert_eq!(cuts.len(), 1);
        assert_eq!(cuts[0].0, 1);
    }

    #[test]
    fn strings_that_many_parsers_cannot_read_are_left_alone() {
        let content = format!("\"{}\\ud800\"", "x".repeat(3000));
        assert_eq!(cuts("max_chars = 1000", &content, "f"), []);
    }

    #[test]
    fn limits_too_small_for_a_marker_are_refused() {
        let config = Config { max_chars: 50, tools: BTreeMap::from([("f".to_owned(), 10)]) };
        let keys: Vec<String> =
            Truncate::new(config).err().unwrap().into_iter().map(|error| error.key).collect();
        assert_eq!(keys, ["max_chars", "tools.f"]);
    }
}
