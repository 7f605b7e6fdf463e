//! Metric families: how they are made and registered, with series resolved once for labels known beforehand. Their
//! users define names, help texts and what is counted.

use super::request_record::{Context, Route};
use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};
use std::sync::OnceLock;

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
        let opts = Opts::new("toolrein_build_info", "Always 1, labelled with the running version.");
        let info = IntGaugeVec::new(opts, &["version"])?;
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        self.add(info)
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

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
        self.add(histogram.clone())?;
        Ok(histogram)
    }

    pub(super) fn tool_histograms(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
    ) -> Result<HistogramVec, Error> {
        let family = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), &["tool"])?;
        self.add(family.clone())?;
        Ok(family)
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, Error> {
        let family = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.add(family.clone())?;
        Ok(family)
    }

    /// Counters by one label; those of the `known` labels start at 0.
    pub(super) fn words(
        &self,
        name: &str,
        help: &str,
        label: &str,
        known: &[&'static str],
    ) -> Result<Counters, Error> {
        let family = self.counters(name, help, &[label])?;
        let known = known.iter().map(|word| (*word, family.with_label_values(&[*word]))).collect();
        Ok(Counters { family, known })
    }
}

/// Counters by one label whose usual values are known beforehand.
pub(super) struct Counters {
    family: IntCounterVec,
    known: Vec<(&'static str, IntCounter)>,
}

impl Counters {
    pub(super) fn add(&self, word: &'static str, count: u64) {
        match self.known.iter().find(|(known, _)| *known == word) {
            Some((_, counter)) => counter.inc_by(count),
            None => self.family.with_label_values(&[word]).inc_by(count),
        }
    }
}

/// Billed prompts by what was done to their conversations.
pub(super) struct Contexts {
    /// All tokens and the cached ones, at the index from [`Self::index`].
    by_context: [[IntCounter; 2]; 4],
}

impl Contexts {
    pub(super) fn new(make: &Maker<'_>, name: &str, help: &str) -> Result<Self, Error> {
        let family = make.counters(name, help, &["touched", "held_out", "kind"])?;
        let word = |holds: bool| if holds { "yes" } else { "no" };
        let by_context = [0, 1, 2, 3].map(|index| {
            let (touched, held_out) = (word(index & 1 > 0), word(index & 2 > 0));
            ["prompt", "cached"].map(|kind| family.with_label_values(&[touched, held_out, kind]))
        });
        Ok(Self { by_context })
    }

    pub(super) fn count(&self, context: Context, prompt: u64, cached: u64) {
        let [all, from_cache] = &self.by_context[Self::index(context)];
        all.inc_by(prompt);
        from_cache.inc_by(cached);
    }

    fn index(context: Context) -> usize {
        usize::from(context.touched) | usize::from(context.held_out) << 1
    }
}

/// Requests by route and status, each resolved when it is first seen.
pub(super) struct Requests {
    family: IntCounterVec,
    /// Per route: one for each of [`STATUSES`], one for no status, one for any other.
    by_route: [Vec<OnceLock<IntCounter>>; Route::ALL.len()],
}

impl Requests {
    pub(super) fn new(make: &Maker<'_>, name: &str, help: &str) -> Result<Self, Error> {
        let family = make.counters(name, help, &["route", "status"])?;
        let by_route = Route::ALL.map(|_| (0..STATUSES.len() + 2).map(|_| OnceLock::new()).collect());
        let requests = Self { family, by_route };
        for (route, status) in [(Route::Chat, 200), (Route::Relay, 200), (Route::Upgrade, 101)] {
            requests.counter(route, status);
        }
        Ok(requests)
    }

    pub(super) fn count(&self, route: Route, status: u16) {
        self.counter(route, status).inc();
    }

    fn counter(&self, route: Route, status: u16) -> &IntCounter {
        let is_usual = STATUSES.contains(&status);
        let index = match status {
            0 => STATUSES.len(),
            _ if is_usual => usize::from(status - STATUSES.start),
            _ => STATUSES.len() + 1,
        };
        self.by_route[route as usize][index].get_or_init(|| {
            let label = match status {
                0 => "none".to_owned(),
                _ if is_usual => status.to_string(),
                _ => "other".to_owned(),
            };
            self.family.with_label_values(&[route.as_str(), label.as_str()])
        })
    }
}
