//! Metric families: how they are made and registered, with series resolved once for labels known beforehand. Their
//! users define names, help texts and what is counted.

use super::endpoint::Endpoint;
use super::request_record::{Context, Route};
use prometheus::core::Collector;
use prometheus::{
    Error, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

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

/// Requests by route, endpoint and status.
pub(super) struct Requests(IntCounterVec);

impl Requests {
    pub(super) fn new(make: &Maker<'_>, name: &str, help: &str) -> Result<Self, Error> {
        let requests = Self(make.counters(name, help, &["route", "endpoint", "status"])?);
        for (route, endpoint, status) in [
            (Route::Chat, Endpoint::ChatCompletions, 200),
            (Route::Responses, Endpoint::Responses, 200),
            (Route::Relay, Endpoint::Other, 200),
            (Route::Upgrade, Endpoint::Realtime, 101),
        ] {
            requests.counter(route, endpoint, status);
        }
        Ok(requests)
    }

    pub(super) fn count(&self, route: Route, endpoint: Endpoint, status: u16) {
        self.counter(route, endpoint, status).inc();
    }

    fn counter(&self, route: Route, endpoint: Endpoint, status: u16) -> IntCounter {
        let status = match status {
            0 => "none".to_owned(),
            _ if STATUSES.contains(&status) => status.to_string(),
            _ => "other".to_owned(),
        };
        self.0.with_label_values(&[route.as_str(), endpoint.as_str(), status.as_str()])
    }
}
