//! The hash of a conversation up to a block: what the model saw before it. A thinking block is bound to this hash.
//!
//! Source of what counts: platform.claude.com, "Preserved thinking". `system`, `tools` and all earlier blocks count, apart from
//! thinking, breakpoints of the cache, deferred tools that nobody referred to, and what is before the newest compaction.

use super::canonical::{block_text, value_text};
use super::merged::{blocks, is_server_result, is_thinking, kind_of};
use highway::{HighwayHash, HighwayHasher, Key};
use serde_json::Value;
use std::collections::BTreeSet;

/// The key of all hashes. It is public: the upstream is simulated and keeps no secret.
const KEY: Key = Key([0x746f_6f6c, 0x7265_696e, 0x7468_696e, 0x6b69_6e67]);

/// A conversation, read from its beginning up to some block.
pub(super) struct ConversationPrefix<'a> {
    system: u64,
    tools: &'a [Value],
    /// The deferred tools that were referred to.
    referenced: BTreeSet<String>,
    history: u64,
}

impl<'a> ConversationPrefix<'a> {
    /// The prefix before the first message of a request.
    pub(super) fn new(body: &'a Value) -> Self {
        let system: Vec<String> = blocks(&body["system"]).map(|block| block_text(&block)).collect();
        Self {
            system: hash(system.iter().map(String::as_str)),
            tools: body["tools"].as_array().map(Vec::as_slice).unwrap_or_default(),
            referenced: BTreeSet::new(),
            history: 0,
        }
    }

    /// Reads the next block. Neighbours of one role are one message, so only the role counts.
    pub(super) fn push(&mut self, role: &str, block: &Value) {
        let kind = kind_of(block);
        if is_thinking(kind) {
            return;
        }
        self.referenced.extend(references(block));
        let before = if kind == "compaction" { 0 } else { self.history };
        self.history = hash([before.to_string().as_str(), role, &block_text(block)]);
    }

    /// The hash of everything up to here.
    pub(super) fn hash(&self) -> u64 {
        let is_shown = |tool: &&Value| {
            let name = tool["name"].as_str().unwrap_or_default();
            tool["defer_loading"] != true || self.referenced.contains(name)
        };
        let tools: Vec<String> = self.tools.iter().filter(is_shown).map(value_text).collect();
        let numbers = [self.system, self.history].map(|number| number.to_string());
        hash(numbers.iter().chain(&tools).map(String::as_str))
    }
}

/// The keyed hash of several texts, each with its length.
pub(super) fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hasher = HighwayHasher::new(KEY);
    for text in texts {
        hasher.append(&text.len().to_le_bytes());
        hasher.append(text.as_bytes());
    }
    hasher.finalize64()
}

/// The tools that a result or an addition refers to.
pub(super) fn references(block: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let kind = kind_of(block);
    if matches!(kind, "tool_result" | "tool_addition") || is_server_result(kind) {
        add_references(block, &mut names);
    }
    names
}

fn add_references(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            let name = match value["type"].as_str() {
                Some("tool_reference") => &value["tool_name"],
                Some("tool_addition") if value["tool"].is_object() => &value["tool"]["name"],
                Some("tool_addition") => &value["tool_definition"]["name"],
                _ => &Value::Null,
            };
            names.extend(name.as_str().map(str::to_owned));
            members.values().for_each(|member| add_references(member, names));
        }
        Value::Array(values) => values.iter().for_each(|value| add_references(value, names)),
        _ => {}
    }
}
