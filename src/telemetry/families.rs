//! Metric families: how they are made and registered, with series resolved once for labels known beforehand. Their
//! users define names, help texts and what is counted.

use model::record::{Context, Endpoint, LimitUse, RequestRecord};
use prometheus::core::Collector;
use prometheus::{
    CounterVec, Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};
use std::borrow::Cow;

/// Shares of a limit at which somebody may want to act.
const OF_LIMIT: [f64; 3] = [0.5, 0.8, 1.0];
/// The share of a context window from which on an alert of ours calls it nearly full. At 0.8 `compact` has freed some as
/// shipped, and at 1 requests are refused. One bucket, since each is a series of every sidecar.
const OF_WINDOW: [f64; 1] = [0.9];
/// The statuses with their own series.
const STATUSES: std::ops::Range<u16> = 100..600;

/// Makes metrics and registers them.
pub(super) struct Maker<'a>(pub(super) &'a Registry);

impl Maker<'_> {
    pub(super) fn add(&self, metric: impl Collector + 'static) -> Result<(), Error> {
        self.0.register(Box::new(metric))
    }

    /// The metric with the version.
    pub(super) fn build_info(&self) -> Result<(), Error> {
        let help = "Always 1, labelled with the running version.";
        self.gauges("toolrein_build_info", help, &["version"])?
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        Ok(())
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        let counter = IntCounter::new(name, help)?;
        self.add(counter.clone())?;
        Ok(counter)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        let gauge = IntGauge::new(name, help)?;
        self.add(gauge.clone())?;
        Ok(gauge)
    }

    pub(super) fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, Error> {
        let family = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.add(family.clone())?;
        Ok(family)
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.add(histogram.clone())?;
        Ok(histogram)
    }

    /// A sum of fractions, by one label.
    pub(super) fn amounts(&self, name: &str, help: &str, label: &str) -> Result<CounterVec, Error> {
        let family = CounterVec::new(Opts::new(name, help), &[label])?;
        self.add(family.clone())?;
        Ok(family)
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.add(family.clone())?;
        Ok(family)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?;
        self.add(family.clone())?;
        Ok(family)
    }

    /// Counters by one label of a closed set. Each exists once it was counted: at 0, all of them would be most of a
    /// sidecar's series.
    pub(super) fn words(&self, name: &str, help: &str, label: &str) -> Result<Counters, Error> {
        self.counters(name, help, &[label]).map(Counters)
    }

    /// As [`Self::words`], for the few `words` whose first increase is worth an alert: their series exist from the
    /// start, at 0.
    pub(super) fn words_from_zero(
        &self,
        name: &str,
        help: &str,
        label: &str,
        words: &[&str],
    ) -> Result<Counters, Error> {
        let Counters(family) = self.words(name, help, label)?;
        for word in words {
            family.with_label_values(&[*word]);
        }
        Ok(Counters(family))
    }
}

/// Counters by one label of a closed set.
pub(super) struct Counters(IntCounterVec);

impl Counters {
    pub(super) fn add(&self, word: &'static str, count: u64) {
        if count > 0 {
            self.0.with_label_values(&[word]).inc_by(count);
        }
    }

    /// The count of a word that has a series already. A word without a series would get one.
    pub(super) fn count(&self, word: &'static str) -> u64 {
        self.0.with_label_values(&[word]).get()
    }

    /// The sum over all words.
    pub(super) fn sum(&self) -> u64 {
        let families = self.0.collect();
        let series = families.iter().flat_map(|family| family.get_metric());
        series.map(|series| series.get_counter().get_value() as u64).sum()
    }
}

/// Billed prompts by what was done to their conversations.
pub(super) struct Contexts {
    all: IntCounterVec,
    from_cache: IntCounterVec,
}

impl Contexts {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        const LABELS: [&str; 2] = ["touched", "held_out"];
        Ok(Self {
            all: make.counters(
                "toolrein_context_tokens_total",
                "Billed tokens of prompts by whether policies changed the conversation's texts (touched) and by whether \
                 it was held out, where they only would have done so.",
                &LABELS,
            )?,
            from_cache: make.counters(
                "toolrein_context_cached_tokens_total",
                "The part of toolrein_context_tokens_total that providers read from their prompt caches.",
                &LABELS,
            )?,
        })
    }

    pub(super) fn count(&self, context: Context, prompt: u64, cached: u64) {
        let word = |holds: bool| if holds { "yes" } else { "no" };
        let labels = [word(context.touched), word(context.held_out)];
        for (family, count) in [(&self.all, prompt), (&self.from_cache, cached)] {
            if count > 0 {
                family.with_label_values(&labels).inc_by(count);
            }
        }
    }
}

/// How much of limits and of context windows is used.
pub(super) struct Shares {
    limits: HistogramVec,
    windows: Histogram,
}

impl Shares {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            limits: make.histograms(
                "toolrein_limit_utilization",
                "The used share of the scarcest limit of each policy, after each request that counts for it.",
                &["policy"],
                &OF_LIMIT,
            )?,
            windows: make.histogram(
                "toolrein_context_utilization",
                "The share of the model's context window that the billed prompt fills, of requests whose window is known and \
                 for which the upstream reported usage.",
                &OF_WINDOW,
            )?,
        })
    }

    /// Counts one request.
    pub(super) fn record(&self, record: &RequestRecord) {
        let share = |limit: &LimitUse| limit.used as f64 / limit.limit.max(1) as f64;
        // Uses of one policy follow each other.
        for of_policy in record.usage_of_limits.chunk_by(|one, next| one.policy == next.policy) {
            let Some(policy) = of_policy.first().and_then(|limit| limit.policy) else { continue };
            let scarcest = of_policy.iter().filter(|limit| limit.is_used).map(share).reduce(f64::max);
            scarcest.into_iter().for_each(|share| self.limits.with_label_values(&[policy]).observe(share));
        }
        let prompt = record.tokens.prompt;
        if let Some(window) = record.context_window.filter(|window| prompt > 0 && *window > 0) {
            // Each reply bills about the same prompt.
            let prompt = prompt as f64 / f64::from(record.reasks + 1);
            self.windows.observe(prompt / f64::from(window));
        }
    }
}

/// Requests by endpoint, model, status and error.
pub(super) struct Requests(IntCounterVec);

impl Requests {
    pub(super) fn new(make: &Maker<'_>, name: &str, help: &str) -> Result<Self, Error> {
        Ok(Self(make.counters(name, help, &["endpoint", "model", "status", "error"])?))
    }

    pub(super) fn count(&self, endpoint: Endpoint, model: &str, status: u16, error: Option<&str>) {
        let status = match status {
            0 => Cow::Borrowed("none"),
            _ if STATUSES.contains(&status) => Cow::Owned(status.to_string()),
            _ => Cow::Borrowed("other"),
        };
        self.0.with_label_values(&[endpoint.as_str(), model, &*status, error.unwrap_or_default()]).inc();
    }
}
