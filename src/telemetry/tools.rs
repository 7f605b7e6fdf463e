//! Metrics by tool, with a cap on the number of tools that get their own series, whatever names models and clients use.
//! The metrics module decides what is counted.

use super::bounded;
use super::families::Maker;
use arc_swap::ArcSwap;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use model::record::{JudgedCall, NewResult, ResultOutcome, Verdict};
use prometheus::{Error, Histogram, HistogramVec, IntCounter, IntCounterVec};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The most tools with their own series, besides those that are configured by their exact names.
const MAX_UNKNOWN: usize = 100;
/// The series of all further tools.
const OTHER: &str = "other";

/// Buckets from a word to 16 MiB, in factors of four, and 1,500, from which on an alert of ours calls results long.
const BYTES: [f64; 10] =
    [64.0, 256.0, 1_024.0, 1_500.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0];
/// The same sizes in tokens, at four bytes a token.
const TOKENS: [f64; 9] = [16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 4_194_304.0];
/// Buckets from a look-up in memory to a person's answer; from 30 seconds on an alert of ours calls a tool slow.
const SECONDS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0, 60.0, 300.0, 1_800.0];

/// Which tools have series of their own.
#[derive(Clone)]
pub struct OwnSeries {
    /// Every tool, as long as there are not too many.
    all: bool,
    /// The tools whose names fit a configured pattern, as long as there are not too many: models and clients invent
    /// names.
    fits: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The labels of those that are configured by their exact names, in any case.
    named: Arc<BTreeSet<String>>,
}

impl OwnSeries {
    /// No tool has series of its own.
    pub fn none() -> Self {
        Self::new(false, |_| false)
    }

    /// `all` of them, or those whose names fit.
    pub fn new(all: bool, fits: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { all, fits: Arc::new(fits), named: Arc::default() }
    }

    /// These tools in addition, by their exact names.
    #[must_use]
    pub fn with_named<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let labels = names.into_iter().map(|name| bounded::name(name).into_owned());
        let named = self.named.iter().cloned().chain(labels).collect();
        Self { named: Arc::new(named), ..self }
    }
}

/// The metrics of all tools.
pub(super) struct Tools {
    families: Families,
    /// Read for tools without series of their own, replaced when a configuration is read.
    own: ArcSwap<OwnSeries>,
    /// The tools with series of their own, by label. Read for every call, written when a tool is first seen.
    seen: DashMap<String, Arc<Tool>>,
    /// How many of them are not configured by their exact names.
    unknown: AtomicUsize,
    /// All further tools, once there is one.
    other: OnceLock<Arc<Tool>>,
}

struct Families {
    calls: IntCounterVec,
    results: IntCounterVec,
    re_requests: IntCounterVec,
    bytes: HistogramVec,
    tokens: HistogramVec,
    seconds: HistogramVec,
}

/// The resolved metrics of one tool.
pub(super) struct Tool {
    name: String,
    /// For calls with any other verdict.
    calls: IntCounterVec,
    allowed: IntCounter,
    results: [IntCounter; ResultOutcome::ALL.len()],
    re_requests: IntCounterVec,
    /// Only of tools with series of their own.
    sizes: Option<Sizes>,
}

/// The distributions of one tool's results.
struct Sizes {
    bytes: Histogram,
    tokens: Histogram,
    seconds: Histogram,
}

impl Tools {
    /// Registers the families; a tool gets series of its own once it is seen.
    pub(super) fn new(make: &Maker<'_>, own: OwnSeries) -> Result<Self, Error> {
        let families = Families {
            calls: make.counters(
                "toolrein_tool_calls_total",
                "Tool calls that models made, by tool, verdict (allow, block, modify, answer, ask, unjudged) and the \
                 policy that decided; each is counted once, in its reply.",
                &["tool", "verdict", "policy"],
            )?,
            results: make.counters(
                "toolrein_tool_results_total",
                "Tool results by tool and outcome, read from their texts: ok, empty, failed; each counts once, when it \
                 is new.",
                &["tool", "outcome"],
            )?,
            re_requests: make.counters(
                "toolrein_truncation_re_requests_total",
                "Cut results that the model requested again (by read_more, or by nearly the same call right after), \
                 by the tool that gave them.",
                &["tool"],
            )?,
            bytes: make.histograms(
                "toolrein_tool_result_bytes",
                "Sizes of tool results as clients send them, in bytes; each counts once, when it is new.",
                &["tool"],
                &BYTES,
            )?,
            tokens: make.histograms(
                "toolrein_tool_result_tokens",
                "Sizes of tool results as clients send them, in estimated tokens; each counts once, when it is new.",
                &["tool"],
                &TOKENS,
            )?,
            seconds: make.histograms(
                "toolrein_tool_seconds",
                "Time from a call's release to its result, in seconds; counted once, where the release is known.",
                &["tool"],
                &SECONDS,
            )?,
        };
        Ok(Self {
            families,
            own: ArcSwap::from_pointee(own),
            seen: DashMap::new(),
            unknown: AtomicUsize::new(0),
            other: OnceLock::new(),
        })
    }

    /// Replaces which tools have series of their own; existing series stay.
    pub(super) fn configure(&self, own: OwnSeries) {
        self.own.store(Arc::new(own));
    }

    /// The metrics of the tool with this name, or those of all tools without series of their own.
    pub(super) fn tool(&self, raw: &str) -> Arc<Tool> {
        let name = bounded::name(raw);
        if let Some(tool) = self.seen.get(name.as_ref()) {
            return Arc::clone(&tool);
        }
        let own = self.own.load();
        let is_named = own.named.contains(name.as_ref());
        // Beyond the cap no unknown name is kept, however many there are.
        let has_room = || self.unknown.load(Ordering::Relaxed) < MAX_UNKNOWN;
        let has_own = name != OTHER && (is_named || (has_room() && (own.all || (own.fits)(raw))));
        let tool = if has_own { self.meet(&name, is_named) } else { None };
        tool.unwrap_or_else(|| self.other())
    }

    /// Resolves the metrics of a tool that is seen for the first time; `None` beyond the cap.
    fn meet(&self, name: &str, is_named: bool) -> Option<Arc<Tool>> {
        match self.seen.entry(name.to_owned()) {
            Entry::Occupied(known) => Some(Arc::clone(known.get())),
            Entry::Vacant(vacant) => {
                // Counted while the entry is locked, so that two at once cannot exceed the cap together.
                let is_in = is_named || self.unknown.fetch_add(1, Ordering::Relaxed) < MAX_UNKNOWN;
                is_in.then(|| Arc::clone(&vacant.insert(Arc::new(self.families.tool(name)))))
            }
        }
    }

    /// The metrics of all tools without series of their own.
    fn other(&self) -> Arc<Tool> {
        Arc::clone(self.other.get_or_init(|| Arc::new(self.families.tool(OTHER))))
    }
}

impl Families {
    fn tool(&self, name: &str) -> Tool {
        let sizes = || Sizes {
            bytes: self.bytes.with_label_values(&[name]),
            tokens: self.tokens.with_label_values(&[name]),
            seconds: self.seconds.with_label_values(&[name]),
        };
        Tool {
            name: name.to_owned(),
            calls: self.calls.clone(),
            allowed: self.calls.with_label_values(&[name, Verdict::Allow.as_str(), ""]),
            results: ResultOutcome::ALL
                .map(|outcome| self.results.with_label_values(&[name, outcome.as_str()])),
            re_requests: self.re_requests.clone(),
            sizes: (name != OTHER).then(sizes),
        }
    }
}

impl Tool {
    /// Counts one call.
    pub(super) fn call(&self, call: &JudgedCall) {
        match call.verdict {
            Verdict::Allow if !call.unjudged => self.allowed.inc(),
            verdict => {
                let verdict = if call.unjudged { "unjudged" } else { verdict.as_str() };
                let policy = call.decisions.first().map_or("", |decision| decision.policy);
                self.calls.with_label_values(&[self.name.as_str(), verdict, policy]).inc();
            }
        }
    }

    /// Counts one cut result that was requested again.
    pub(super) fn re_request(&self) {
        self.re_requests.with_label_values(&[self.name.as_str()]).inc();
    }

    /// Counts one result.
    pub(super) fn result(&self, result: &NewResult) {
        self.results[result.outcome as usize].inc();
        let Some(sizes) = &self.sizes else { return };
        sizes.bytes.observe(result.bytes as f64);
        sizes.tokens.observe(result.tokens as f64);
        if let Some(took) = result.took {
            sizes.seconds.observe(took.as_secs_f64());
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

    fn own(all: bool, named: &'static [&'static str]) -> OwnSeries {
        OwnSeries::new(all, |_| false).with_named(named.iter().copied())
    }

    fn tools(registry: &Registry, named: &'static [&'static str]) -> Tools {
        Tools::new(&Maker(registry), own(true, named)).unwrap()
    }

    /// Every tool with series, and its allowed calls.
    fn allowed(registry: &Registry) -> BTreeMap<String, u64> {
        let families = registry.gather();
        let calls = families.iter().find(|family| family.name() == "toolrein_tool_calls_total").unwrap();
        // In the order of their names: policy, tool, verdict.
        let label = |metric: &prometheus::proto::Metric, at: usize| metric.get_label()[at].value().to_owned();
        let allowed = calls.get_metric().iter().filter(|metric| label(metric, 2) == "allow");
        allowed.map(|metric| (label(metric, 1), metric.get_counter().get_value() as u64)).collect()
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
        tools.configure(own(true, &["late"]));
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
    fn tools_that_fit_a_pattern_count_under_the_cap_and_exact_names_do_not() {
        let registry = Registry::new();
        let own = OwnSeries::new(false, |name| name.starts_with("mcp__")).with_named(["mcp__pay"]);
        let tools = Tools::new(&Maker(&registry), own).unwrap();
        for n in 0..1_000 {
            tools.tool(&format!("mcp__{n}")).call(&passed());
            tools.tool(&format!("else_{n}")).call(&passed());
        }
        tools.tool("mcp__pay").call(&passed());
        let allowed = allowed(&registry);
        assert_eq!((allowed.len(), allowed["mcp__99"], allowed["mcp__pay"]), (102, 1, 1));
        assert_eq!((tools.seen.len(), allowed[OTHER]), (101, 900 + 1_000));
    }

    #[test]
    fn long_names_match_what_is_configured() {
        let (exact, fitting) = ("exact_".repeat(12), format!("{}_search", "x".repeat(70)));
        let own = OwnSeries::new(false, |name| name.ends_with("_search")).with_named([exact.as_str()]);
        let tools = Tools::new(&Maker(&Registry::new()), own).unwrap();
        for name in [&exact, &fitting] {
            assert_eq!(tools.tool(name).name, bounded::name(name));
        }
        assert_eq!(tools.unknown.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn tools_without_series_of_their_own_are_not_looked_up_again_and_make_none_before_the_first() {
        let registry = Registry::new();
        let tools = Tools::new(&Maker(&registry), own(false, &[])).unwrap();
        assert!(registry.gather().iter().all(|family| family.get_metric().is_empty()));
        assert!(Arc::ptr_eq(&tools.tool("one"), &tools.tool("two")));
        assert!(tools.seen.is_empty());
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
    fn without_series_for_all_tools_only_named_ones_have_their_own_and_sizes() {
        let registry = Registry::new();
        let tools = Tools::new(&Maker(&registry), own(false, &["search"])).unwrap();
        for name in ["search", "fetch", "pay"] {
            tools.tool(name).call(&passed());
            tools.tool(name).result(&rich().results[0]);
        }
        assert_eq!(allowed(&registry), BTreeMap::from([("search".to_owned(), 1), (OTHER.to_owned(), 2)]));
        assert!(tools.tool("search").sizes.is_some() && tools.tool("pay").sizes.is_none());
        tools.configure(own(true, &[]));
        tools.tool("pay").call(&passed());
        assert_eq!(allowed(&registry)["pay"], 1);
    }

    #[test]
    fn verdicts_and_results_are_counted_by_tool() {
        let registry = Registry::new();
        let tools = tools(&registry, &[]);
        let tool = tools.tool("weather");
        let call = |verdict, unjudged| JudgedCall { verdict, unjudged, ..passed() };
        for (call, labels, times) in [
            (passed(), ["allow", ""], 3),
            (rich().judged[2].clone(), ["block", "rate_limit"], 2),
            (call(Verdict::Allow, true), ["unjudged", ""], 1),
        ] {
            (0..times).for_each(|_| tool.call(&call));
            let [verdict, policy] = labels;
            assert_eq!(tools.families.calls.with_label_values(&["weather", verdict, policy]).get(), times);
        }
        let result = |took, outcome| NewResult { took, outcome, ..rich().results[0].clone() };
        tool.result(&result(None, ResultOutcome::Empty));
        tool.result(&result(Some(Duration::from_millis(500)), ResultOutcome::Failed));
        let sizes = tool.sizes.as_ref().unwrap();
        assert_eq!((sizes.bytes.get_sample_sum(), sizes.tokens.get_sample_sum()), (10_240.0, 2_560.0));
        assert_eq!((sizes.seconds.get_sample_count(), sizes.seconds.get_sample_sum()), (1, 0.5));
        assert_eq!(tool.results.each_ref().map(|counter| counter.get()), [0, 1, 1]);
    }
}
