//! The tools: which there are, and what each did: calls, results, and the distributions of their sizes and times; and what the first requests of
//! conversations hold before anything was said.

use super::sketch::{Percentiles, Sketch};
use crate::telemetry::bounded;
use model::record::{RequestRecord, ResultOutcome, Verdict};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most tools that are kept apart.
const MOST_TOOLS: usize = 200;
/// All further tools.
const OTHER: &str = "other";
/// The most names of tools that are kept: some programs offer hundreds.
const MOST_NAMES: usize = 2_000;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Tools {
    by_name: BTreeMap<String, Tool>,
    /// The tools that programs have declared, or whose results they have sent.
    names: BTreeSet<String>,
    system_tokens: Sketch,
    definition_tokens: Sketch,
}

#[derive(Default)]
struct Tool {
    calls: u64,
    blocked: u64,
    results: u64,
    empty: u64,
    errors: u64,
    bytes: Sketch,
    tokens: Sketch,
    seconds: Sketch,
}

/// What one tool did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSummary {
    pub tool: String,
    pub calls: u64,
    pub blocked: u64,
    pub results: u64,
    pub empty: u64,
    pub errors: u64,
    /// Sizes of results as the client sent them.
    pub bytes: Percentiles,
    /// The same, as estimated tokens.
    pub tokens: Percentiles,
    /// From a call's release to its result.
    pub seconds: Percentiles,
}

/// What the first requests of conversations hold, in estimated tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Start {
    pub system_tokens: Percentiles,
    pub definition_tokens: Percentiles,
}

impl Tools {
    pub(super) fn record(&mut self, record: &RequestRecord) {
        let declared = record.declared_tools.iter();
        for name in declared.chain(record.results.iter().map(|result| &result.tool)) {
            if !name.is_empty()
                && self.names.len() < MOST_NAMES
                && !self.names.contains(&*bounded::name(name))
            {
                self.names.insert(bounded::name(name).into_owned());
            }
        }
        for call in &record.judged {
            let tool = self.tool(&call.tool);
            tool.calls += 1;
            tool.blocked += u64::from(call.verdict == Verdict::Block);
        }
        if record.repeated {
            return;
        }
        for result in &record.results {
            let tool = self.tool(&result.tool);
            tool.results += 1;
            tool.empty += u64::from(result.outcome == ResultOutcome::Empty);
            tool.errors += u64::from(result.outcome == ResultOutcome::Failed);
            tool.bytes.add(result.bytes as f64);
            tool.tokens.add(result.tokens as f64);
            result.took.into_iter().for_each(|took| tool.seconds.add(took.as_secs_f64()));
        }
        if let Some(tokens) = record.system_tokens {
            self.system_tokens.add(tokens as f64);
            self.definition_tokens.add(record.definition_tokens as f64);
        }
    }

    pub(super) fn summaries(&self) -> Vec<ToolSummary> {
        let mut all: Vec<ToolSummary> = self
            .by_name
            .iter()
            .map(|(name, tool)| ToolSummary {
                tool: name.clone(),
                calls: tool.calls,
                blocked: tool.blocked,
                results: tool.results,
                empty: tool.empty,
                errors: tool.errors,
                bytes: tool.bytes.percentiles(),
                tokens: tool.tokens.percentiles(),
                seconds: tool.seconds.percentiles(),
            })
            .collect();
        all.sort_by_key(|tool| std::cmp::Reverse(tool.calls));
        all
    }

    /// The names of the tools that there are; `None` where there are too many to keep.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        (self.names.len() < MOST_NAMES).then(|| self.names.iter().cloned().collect())
    }

    pub(super) fn start(&self) -> Start {
        Start {
            system_tokens: self.system_tokens.percentiles(),
            definition_tokens: self.definition_tokens.percentiles(),
        }
    }

    fn tool(&mut self, raw: &str) -> &mut Tool {
        let name = bounded::name(raw);
        let is_kept = self.by_name.contains_key(&*name) || self.by_name.len() < MOST_TOOLS;
        self.by_name.entry(if is_kept { name.into_owned() } else { OTHER.to_owned() }).or_default()
    }
}
