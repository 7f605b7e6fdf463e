//! What libraries (and our own shell) say through `tracing`, brought to the log as lines like all others.
//! Filters by module; decides no wording.

use super::log::{Level, Log};
use std::fmt::{Debug, Display};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, registry};

/// Sends every event that `filter` lets through to `log`. The first call in a process counts.
pub fn forward(log: &Log, filter: &str) {
    // The filter was checked with the configuration; a second program in one process keeps the first's.
    if let Ok(filter) = EnvFilter::builder().parse(filter) {
        let _ = registry().with(filter).with(Forward(log.clone())).try_init();
    }
}

struct Forward(Log);

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        };
        let target = event.metadata().target();
        let mut shown: Vec<(&str, &dyn Display)> = vec![("target", &target)];
        shown.extend(fields.rest.iter().map(|(name, value)| (*name, value as &dyn Display)));
        self.0.note(level, &fields.message, &shown);
    }
}

/// An event's message and its other fields, as text.
#[derive(Default)]
struct Fields {
    message: String,
    rest: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.rest.push((field.name(), format!("{value:?}")));
        }
    }
}
