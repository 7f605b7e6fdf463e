//! Callers by name: what of a name is shown, and metrics of requests, tokens and money by caller. Names come from
//! requests, so only the first ones get series of their own; the setting says how many.

use super::bounded::is_shown_whole;
use super::families::Maker;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use model::record::{CallerName, RequestRecord, Tokens};
use prometheus::core::{AtomicF64, GenericCounter};
use prometheus::{CounterVec, Error, IntCounter, IntCounterVec};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest name that is shown, in characters. An e-mail address has up to 254.
const NAME_CHARS: usize = 256;
/// The label of all callers without one of their own.
pub(super) const OTHER: &str = "other";
/// The label of requests that name nobody.
const NONE: &str = "none";

/// The caller's name in these bytes.
pub fn caller_name(name: &[u8]) -> CallerName {
    match std::str::from_utf8(name) {
        Ok("") => CallerName::Nobody,
        Ok(name) if is_shown_whole(name, NAME_CHARS) && !is_special(name) => CallerName::Shown(name.into()),
        _ => CallerName::Unshown,
    }
}

/// As in labels and on pages. Two names have one label only where they share the label of all others.
pub(super) fn label_of(name: &CallerName) -> &str {
    match name {
        CallerName::Nobody => NONE,
        CallerName::Unshown => OTHER,
        CallerName::Shown(name) => name,
    }
}

/// Whether the label takes no place among those that are bounded.
pub(super) fn is_special(label: &str) -> bool {
    [NONE, OTHER].contains(&label)
}

/// The metrics of all callers.
pub(super) struct Callers {
    requests: IntCounterVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    /// The most callers with series of their own; 0: no caller is counted.
    most: AtomicUsize,
    /// By label. Read for every request, written when a caller is first seen.
    seen: DashMap<String, Arc<Caller>>,
    /// How many of them count against the bound.
    count: AtomicUsize,
}

/// The resolved metrics of one caller.
struct Caller {
    requests: IntCounter,
    input: IntCounter,
    output: IntCounter,
    cost: GenericCounter<AtomicF64>,
}

impl Callers {
    /// Registers the families; no caller is counted before [`Self::bound`].
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            requests: make.counters(
                "toolrein_caller_requests_total",
                "Governed requests by caller, where a header, a member of the body or the configuration names callers: \
                 the first telemetry.callers of them, then other; none: no name.",
                &["caller"],
            )?,
            tokens: make.counters(
                "toolrein_caller_tokens_total",
                "Tokens as upstreams billed them, by caller and type: input, output.",
                &["caller", "type"],
            )?,
            cost: make.amounts(
                "toolrein_caller_cost_usd_total",
                "Cost of billed tokens in US dollars by caller, as in toolrein_cost_usd_total.",
                "caller",
            )?,
            most: AtomicUsize::new(0),
            seen: DashMap::new(),
            count: AtomicUsize::new(0),
        })
    }

    /// Gives at most so many callers series of their own. Existing series stay, unless it is none.
    pub(super) fn bound(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        if most == 0 {
            self.seen.clear();
            self.count.store(0, Ordering::Relaxed);
            self.requests.reset();
            self.tokens.reset();
            self.cost.reset();
        }
    }

    /// Counts one request whose caller is named.
    pub(super) fn record(&self, record: &RequestRecord) {
        let Some(name) = record.caller_name.as_ref().filter(|_| self.most.load(Ordering::Relaxed) > 0) else {
            return;
        };
        let caller = self.caller(label_of(name));
        caller.requests.inc();
        let Tokens { prompt, completion, .. } = record.tokens;
        caller.input.inc_by(prompt);
        caller.output.inc_by(completion);
        if let Some(nanodollars) = record.cost {
            caller.cost.inc_by(nanodollars as f64 / 1e9);
        }
    }

    /// The metrics of the caller with this label, or those of all others if there are too many.
    fn caller(&self, label: &str) -> Arc<Caller> {
        if let Some(caller) = self.seen.get(label) {
            return Arc::clone(&caller);
        }
        let most = self.most.load(Ordering::Relaxed);
        // Beyond the bound no name is kept, however many there are.
        let may_fit = is_special(label) || self.count.load(Ordering::Relaxed) < most;
        let caller = if may_fit { self.meet(label, most) } else { None };
        caller.unwrap_or_else(|| self.caller(OTHER))
    }

    /// Resolves the metrics of a caller that is seen for the first time; `None` beyond the bound.
    fn meet(&self, label: &str, most: usize) -> Option<Arc<Caller>> {
        match self.seen.entry(label.to_owned()) {
            Entry::Occupied(known) => Some(Arc::clone(known.get())),
            Entry::Vacant(vacant) => {
                // Counted while the entry is locked, so that two at once cannot exceed the bound together.
                let fits = is_special(label) || self.count.fetch_add(1, Ordering::Relaxed) < most;
                fits.then(|| Arc::clone(&vacant.insert(Arc::new(self.resolve(label)))))
            }
        }
    }

    fn resolve(&self, label: &str) -> Caller {
        Caller {
            requests: self.requests.with_label_values(&[label]),
            input: self.tokens.with_label_values(&[label, "input"]),
            output: self.tokens.with_label_values(&[label, "output"]),
            cost: self.cost.with_label_values(&[label]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::record::Route;
    use prometheus::Registry;

    fn record(name: &str) -> RequestRecord {
        let mut record = RequestRecord::new(Route::Chat);
        record.caller_name = Some(caller_name(name.as_bytes()));
        (record.tokens.prompt, record.tokens.completion, record.cost) = (10, 2, Some(500_000_000));
        record
    }

    fn callers(most: usize) -> Callers {
        let callers = Callers::new(&Maker(&Registry::new())).unwrap();
        callers.bound(most);
        callers
    }

    #[test]
    fn the_first_callers_have_series_and_the_rest_share_one_so_that_sums_hold() {
        let callers = callers(3);
        for nth in 0..10 {
            callers.record(&record(&format!("customer {nth}")));
            callers.record(&record(&format!("customer {nth}")));
        }
        callers.record(&record(""));
        let requests = |label: &str| callers.requests.with_label_values(&[label]).get();
        assert_eq!(["customer 0", "customer 2", OTHER, NONE].map(requests), [2, 2, 14, 1]);
        assert_eq!(callers.seen.len(), 5);
        assert!((callers.cost.with_label_values(&[OTHER]).get() - 7.0).abs() < 1e-9);
        assert_eq!(callers.tokens.with_label_values(&[OTHER, "output"]).get(), 28);
    }

    #[test]
    fn a_bound_of_none_forgets_the_callers_that_were_counted() {
        let callers = callers(3);
        callers.record(&record("ann"));
        callers.bound(0);
        callers.record(&record("ann"));
        callers.bound(1);
        callers.record(&record("bob"));
        let requests = |label: &str| callers.requests.with_label_values(&[label]).get();
        assert_eq!(["ann", "bob"].map(requests), [0, 1]);
    }

    #[test]
    fn without_a_bound_or_a_name_nothing_is_counted() {
        let (off, on) = (callers(0), callers(3));
        off.record(&record("ann"));
        on.record(&RequestRecord::new(Route::Chat));
        assert!(off.seen.is_empty() && on.seen.is_empty());
    }

    #[test]
    fn no_two_names_become_one_label_but_that_of_all_others() {
        let names = [
            "a b",
            "a_b",
            "A b",
            "J\u{f6}rg",
            "Jorg",
            "王伟",
            "\"} 1\n",
            "a\u{0}b",
            "a\u{200b}b",
            NONE,
            OTHER,
        ];
        let labels = names.map(|name| label_of(&caller_name(name.as_bytes())).to_owned());
        assert_eq!(labels[..6], names[..6]);
        assert_eq!(labels[6..], [OTHER; 5]);
        let long = "x".repeat(NAME_CHARS);
        assert_eq!(label_of(&caller_name(long.as_bytes())), long);
        assert_eq!(caller_name(format!("{long}x").as_bytes()), CallerName::Unshown);
        assert_eq!(caller_name(b"J\xf6rg"), CallerName::Unshown);
    }
}
