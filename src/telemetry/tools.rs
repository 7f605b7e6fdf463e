//! Metrics by tool, with a cap on the number of tools that get their own series, whatever names models and clients use.
//! The metrics module decides what is counted.

use super::bounded;
use super::families::Maker;
use super::request_record::{JudgedCall, NewResult, Verdict};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use prometheus::{Error, Histogram, HistogramVec, IntCounter, IntCounterVec};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The most tools with their own series, besides the configured ones.
const MAX_UNKNOWN: usize = 100;
/// The series of all further tools.
const OTHER: &str = "other";

/// Buckets from a word to 16 MiB, in factors of four.
const BYTES: [f64; 9] =
    [64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0];
/// The same at four bytes a token.
const TOKENS: [f64; 9] = [16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 4_194_304.0];
/// Buckets from a look-up in memory to a person's answer.
const SECONDS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_800.0];

/// The metrics of all tools.
pub(super) struct Tools {
    families: Families,
    /// A std lock: read when a tool is first seen, written when a configuration is read.
    configured: RwLock<BTreeSet<String>>,
    /// By name. Read for every call, written when a tool is first seen.
    seen: DashMap<String, Arc<Tool>>,
    /// How many of them are not configured.
    unknown: AtomicUsize,
}

struct Families {
    calls: IntCounterVec,
    re_requests: IntCounterVec,
    bytes: HistogramVec,
    tokens: HistogramVec,
    seconds: HistogramVec,
}

/// The labels of calls.
const VERDICTS: [&str; 4] = ["allowed", "blocked", "answered", "unjudged"];

/// The resolved metrics of one tool.
pub(super) struct Tool {
    calls: [IntCounter; VERDICTS.len()],
    re_requests: IntCounter,
    bytes: Histogram,
    tokens: Histogram,
    seconds: Histogram,
}

impl Tools {
    /// Registers the families. The `configured` tools always get their own series, once they are seen.
    pub(super) fn new(make: &Maker<'_>, configured: &[String]) -> Result<Self, Error> {
        let families = Families {
            calls: make.counters(
                "toolrein_tool_calls_total",
                "Tool calls that models made, by tool and verdict; each is counted once, in its reply.",
                &["tool", "verdict"],
            )?,
            re_requests: make.counters(
                "toolrein_truncation_re_requests_total",
                "Cut results that the model requested again (by read_more, or by nearly the same call right after), \
                 by the tool that gave them.",
                &["tool"],
            )?,
            bytes: make.tool_histograms(
                "toolrein_tool_result_bytes",
                "Sizes of tool results as clients send them, in bytes; each counts once, when it is new.",
                &BYTES,
            )?,
            tokens: make.tool_histograms(
                "toolrein_tool_result_tokens",
                "Sizes of tool results as clients send them, in estimated tokens; each counts once, when it is new.",
                &TOKENS,
            )?,
            seconds: make.tool_histograms(
                "toolrein_tool_seconds",
                "Time from a call's release to its result, in seconds; counted once, where the release is known.",
                &SECONDS,
            )?,
        };
        let tools = Self {
            families,
            configured: RwLock::default(),
            seen: DashMap::new(),
            unknown: AtomicUsize::new(0),
        };
        tools.configure(configured);
        Ok(tools)
    }

    /// Replaces the `configured` tools; existing series stay.
    pub(super) fn configure(&self, configured: &[String]) {
        let names = configured.iter().map(|tool| bounded::name(tool).into_owned()).collect();
        *self.configured.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The metrics of the tool with this name, or those of all others if there are too many.
    pub(super) fn tool(&self, raw: &str) -> Arc<Tool> {
        let name = bounded::name(raw);
        if let Some(tool) = self.seen.get(name.as_ref()) {
            return Arc::clone(&tool);
        }
        // Beyond the cap no unknown name is kept, however many there are.
        let is_full = self.unknown.load(Ordering::Relaxed) >= MAX_UNKNOWN;
        if is_full && !self.is_configured(&name) {
            return self.meet(OTHER);
        }
        self.meet(&name)
    }

    /// Resolves the metrics of a tool that is seen for the first time.
    fn meet(&self, name: &str) -> Arc<Tool> {
        let tool = match self.seen.entry(name.to_owned()) {
            Entry::Occupied(known) => return Arc::clone(known.get()),
            Entry::Vacant(vacant) => {
                let is_unknown = name != OTHER && !self.is_configured(name);
                // Counted while the entry is locked, so that two at once cannot exceed the cap together.
                let fits = !is_unknown || self.unknown.fetch_add(1, Ordering::Relaxed) < MAX_UNKNOWN;
                fits.then(|| Arc::clone(&vacant.insert(Arc::new(self.families.tool(name)))))
            }
        };
        tool.unwrap_or_else(|| self.meet(OTHER))
    }

    fn is_configured(&self, name: &str) -> bool {
        self.configured.read().unwrap_or_else(PoisonError::into_inner).contains(name)
    }
}

impl Families {
    fn tool(&self, name: &str) -> Tool {
        Tool {
            calls: VERDICTS.map(|verdict| self.calls.with_label_values(&[name, verdict])),
            re_requests: self.re_requests.with_label_values(&[name]),
            bytes: self.bytes.with_label_values(&[name]),
            tokens: self.tokens.with_label_values(&[name]),
            seconds: self.seconds.with_label_values(&[name]),
        }
    }
}

/// Which of [`VERDICTS`] a call has.
fn label(call: &JudgedCall) -> usize {
    match call.verdict {
        _ if call.unjudged => 3,
        Verdict::Allow | Verdict::Modify => 0,
        Verdict::Block | Verdict::Ask => 1,
        Verdict::Answer => 2,
    }
}

impl Tool {
    /// Counts one call.
    pub(super) fn call(&self, call: &JudgedCall) {
        self.calls[label(call)].inc();
    }

    /// Counts one cut result that was requested again.
    pub(super) fn re_request(&self) {
        self.re_requests.inc();
    }

    /// Counts one result.
    pub(super) fn result(&self, result: &NewResult) {
        self.bytes.observe(result.bytes as f64);
        self.tokens.observe(result.tokens as f64);
        if let Some(took) = result.took {
            self.seconds.observe(took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::rich;
    use super::*;

    fn passed() -> JudgedCall {
        rich().judged[0].clone()
    }

    use prometheus::Registry;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn tools(registry: &Registry, configured: &[&str]) -> Tools {
        let configured: Vec<String> = configured.iter().map(|name| (*name).to_owned()).collect();
        Tools::new(&Maker(registry), &configured).unwrap()
    }

    /// Every tool with series, and its allowed calls.
    fn allowed(registry: &Registry) -> BTreeMap<String, u64> {
        let families = registry.gather();
        let calls = families.iter().find(|family| family.name() == "toolrein_tool_calls_total").unwrap();
        let label = |metric: &prometheus::proto::Metric, at: usize| metric.get_label()[at].value().to_owned();
        let allowed = calls.get_metric().iter().filter(|metric| label(metric, 1) == "allowed");
        allowed.map(|metric| (label(metric, 0), metric.get_counter().get_value() as u64)).collect()
    }

    #[test]
    fn a_hundred_unknown_tools_and_all_configured_ones_have_series_and_the_rest_share_one() {
        let registry = Registry::new();
        let tools = tools(&registry, &["search"]);
        tools.tool("search").call(&passed());
        for _ in 0..2 {
            for n in 0..1_000 {
                tools.tool(&format!("invented_{n}")).call(&passed());
            }
        }
        tools.configure(&["late".to_owned()]);
        tools.tool("late").call(&passed());
        tools.tool("search").call(&passed());
        let allowed = allowed(&registry);
        assert_eq!(allowed.len(), 103);
        for (tool, count) in
            [("search", 2), ("late", 1), ("invented_0", 2), ("invented_99", 2), (OTHER, 2 * 900)]
        {
            assert_eq!(allowed.get(tool), Some(&count), "{tool}");
        }
    }

    #[test]
    fn a_tool_that_is_called_other_takes_no_place_and_is_no_harm() {
        let registry = Registry::new();
        let tools = tools(&registry, &[]);
        tools.tool(OTHER).call(&passed());
        for n in 0..101 {
            tools.tool(&n.to_string()).call(&passed());
        }
        let allowed = allowed(&registry);
        assert_eq!((allowed.len(), allowed[OTHER], allowed["99"]), (101, 2, 1));
    }

    #[test]
    fn hostile_names_become_short_visible_labels() {
        let registry = Registry::new();
        let tools = tools(&registry, &[]);
        for name in ["a\nb", "a\u{1b}b", "\"} 1\n# HELP", &"long".repeat(100_000), ""] {
            tools.tool(name).call(&passed());
        }
        let names: Vec<String> = allowed(&registry).into_keys().collect();
        let long = format!("{}lon…", "long".repeat(15));
        assert_eq!(names, ["\"}_1_#_HELP", "a_b", &long, "unnamed"]);
    }

    #[test]
    fn verdicts_and_results_are_counted_by_tool() {
        let registry = Registry::new();
        let tools = tools(&registry, &[]);
        let tool = tools.tool("search");
        let call = |verdict, unjudged| JudgedCall { verdict, unjudged, ..passed() };
        for (call, verdict, times) in [
            (passed(), "allowed", 3),
            (call(Verdict::Block, false), "blocked", 2),
            (call(Verdict::Allow, true), "unjudged", 1),
        ] {
            (0..times).for_each(|_| tool.call(&call));
            assert_eq!(tools.families.calls.with_label_values(&["search", verdict]).get(), times);
        }
        let result = |took| NewResult { tool: "search".to_owned(), bytes: 5_000, tokens: 1_250, took };
        tool.result(&result(None));
        tool.result(&result(Some(Duration::from_millis(500))));
        assert_eq!((tool.bytes.get_sample_sum(), tool.tokens.get_sample_sum()), (10_000.0, 2_500.0));
        assert_eq!((tool.seconds.get_sample_count(), tool.seconds.get_sample_sum()), (1, 0.5));
    }
}
