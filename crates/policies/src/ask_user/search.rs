//! Searches: the query of a call, and whether its result is good. By what the tool itself says of it, where that is
//! configured; else a result is poor that is empty, has failed, or has too few words of the query.

use super::words::Words;
use crate::path::Path;
use model::calls::Call;
use model::outcome::{Emptiness, is_empty};
use model::{ToolResult, View};
use serde_json::{Map, Value};

/// Longer arguments are no search query, in bytes.
const MOST_ARGUMENTS: usize = 16 << 10;
/// The most characters of a result whose words are compared.
const MOST_RESULT: usize = 32_000;

/// How results are judged.
pub(super) struct Quality {
    /// Where a result says how good it is, and the values that are good, in lower case.
    pub(super) said: Option<(Path, Vec<String>)>,
    /// The share of the query's words that a good result has.
    pub(super) overlap: f64,
}

impl Quality {
    /// Whether the result of the search for `query` is good. `None`: it does not say so itself, and the search has no
    /// query. Then it looks a record or a route up, and that there is none is an answer.
    pub(super) fn is_good(
        &self,
        result: &ToolResult<'_>,
        has_failed: bool,
        query: Option<&Words>,
    ) -> Option<bool> {
        let view = &result.view;
        if let Some((path, good)) = &self.said {
            let mut said = view.texts().flat_map(|text| path.values(&text)).peekable();
            if said.peek().is_some() {
                return Some(said.any(|value| good.contains(&value.trim().to_lowercase())));
            }
        }
        let query = query?;
        if has_failed || is_empty(view, &Nothing) {
            return Some(false);
        }
        // What holds no text cannot be compared, nor can a text beside a picture.
        let content = &view.message.content;
        let is_text = content.texts().next().is_some() && !content.has_other_parts();
        let compares = self.overlap > 0.0 && is_text && !query.is_empty();
        Some(!compares || query.share_in(&Words::of(&text_of(view, MOST_RESULT))) >= self.overlap)
    }
}

/// The beginning of the texts of a result.
pub(super) fn text_of(view: &View<'_>, most: usize) -> String {
    let mut joined = String::new();
    for text in view.texts() {
        joined.push_str(&text[..text.floor_char_boundary(most.saturating_sub(joined.len()))]);
        joined.push('\n');
    }
    joined
}

/// The query of a call: the first of the arguments `keys` that it has, else its only argument. `None`: it has none.
pub(super) fn query_of(call: &Call, keys: &[String]) -> Option<String> {
    let text = call.arguments_text();
    if text.len() > MOST_ARGUMENTS {
        return None;
    }
    let arguments: Map<String, Value> = serde_json::from_str(&text).ok()?;
    let only = || arguments.values().next().filter(|_| arguments.len() == 1);
    match keys.iter().find_map(|key| arguments.get(key)).or_else(only)? {
        Value::String(query) => Some(query.clone()),
        Value::Array(items) => {
            let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            (!texts.is_empty()).then(|| texts.join(" "))
        }
        _ => None,
    }
}

/// What says in words that nothing was found.
struct Nothing;

impl Emptiness for Nothing {
    fn says_nothing(&self, text: &str) -> bool {
        const BEGINNINGS: [&str; 7] =
            ["no result", "no match", "no document", "no hits", "nothing found", "0 results", "not found"];
        let text = text.to_lowercase();
        text == "none" || BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
    }

    fn holds_results(&self, key: &str) -> bool {
        const KEYS: [&str; 10] =
            ["results", "result", "items", "data", "hits", "matches", "documents", "rows", "content", "text"];
        KEYS.contains(&key)
    }
}
