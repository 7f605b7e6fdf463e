//! The bridge from `tracing`, which libraries and our own shell use, to the log. Filters by module; changes no wording.

use super::log::{Level, Log};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, registry, reload};

/// The filter of events.
#[derive(Debug)]
pub struct Filter(reload::Handle<EnvFilter, Registry>);

/// Sends every event that `filter` accepts to `log`. Only the first call in a process has an effect.
pub fn forward(log: &Log, filter: &str) -> Filter {
    let (layer, handle) = reload::Layer::new(read(filter));
    let _ = registry().with(layer).with(Forward(log.clone())).try_init();
    Filter(handle)
}

impl Filter {
    /// Replaces the filter.
    pub fn set(&self, filter: &str) {
        // A second program in one process keeps the filter of the first.
        let _ = self.0.reload(read(filter));
    }
}

/// The filter was checked with the configuration.
fn read(filter: &str) -> EnvFilter {
    EnvFilter::builder().parse(filter).unwrap_or_default()
}

struct Forward(Log);

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        self.0.forwarded(level, event.metadata().target(), event.field_map());
    }
}
