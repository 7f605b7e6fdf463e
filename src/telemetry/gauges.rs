//! Gauges of the current state, and the sources of their values, which are called when they are rendered. Counts
//! nothing itself.

use super::families::Maker;
use super::metrics::{Metrics, RELOADS};
use prometheus::{Error, IntGauge, IntGaugeVec};
use std::sync::OnceLock;

/// See the module's documentation.
pub(super) struct Gauges {
    pub(super) streams_open: IntGauge,
    pub(super) conversations: PolledGauge,
    pub(super) connections: PolledGauge,
    pub(super) confirmations_pending: PolledGauge,
    pub(super) body_bytes: PolledGauge,
    /// Labelled with the hash of the configuration in force.
    config_info: IntGaugeVec,
    config_loaded: IntGauge,
}

/// The state of the process, as far as metrics know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    pub streams: i64,
    pub is_store_up: bool,
    pub store_errors: u64,
    pub reloads: u64,
    pub refused_reloads: u64,
    /// Recordings that were not written.
    pub lost_recordings: u64,
    /// When the configuration in force was loaded, in ms since the epoch.
    pub loaded_ms: i64,
}

impl Metrics {
    /// What the admin server shows of the state of the process.
    pub fn health(&self) -> Health {
        Health {
            streams: self.gauges.streams_open.get(),
            is_store_up: self.store.is_up(),
            store_errors: self.store.errors(),
            reloads: self.reloads.count(RELOADS[0]),
            refused_reloads: self.reloads.count(RELOADS[1]),
            lost_recordings: self.lost.recordings.get(),
            loaded_ms: self.gauges.loaded_seconds().saturating_mul(1_000),
        }
    }
}

/// A gauge whose value comes from a source.
pub(super) struct PolledGauge {
    gauge: IntGauge,
    count: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
}

impl Gauges {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            streams_open: make.gauge("toolrein_streams_open", "Streamed replies that are being relayed.")?,
            conversations: PolledGauge::of(
                make.gauge("toolrein_conversations", "Conversations that the state store knows.")?,
            ),
            connections: PolledGauge::of(make.gauge(
                "toolrein_connections",
                "Open client connections, tunnels included; at most limits.connections.",
            )?),
            confirmations_pending: PolledGauge::of(make.gauge(
                "toolrein_confirmations_pending",
                "Calls whose replies wait for a person's decision, without questions that are put in conversations.",
            )?),
            body_bytes: PolledGauge::of(make.gauge(
                "toolrein_body_bytes",
                "Bytes of request and reply bodies in memory; at most limits.total_bytes.",
            )?),
            config_info: make.gauges(
                "toolrein_config_info",
                "Always 1, labelled with the beginning of the SHA-256 of the configuration in force.",
                &["hash"],
            )?,
            config_loaded: make.gauge(
                "toolrein_config_loaded_timestamp_seconds",
                "When the configuration in force was loaded, in seconds since the epoch.",
            )?,
        })
    }

    /// The configuration with this hash is in force since `at_seconds` since the epoch.
    pub(super) fn configured(&self, hash: &str, at_seconds: i64) {
        self.config_info.reset();
        self.config_info.with_label_values(&[hash]).set(1);
        self.config_loaded.set(at_seconds);
    }

    /// When the configuration in force was loaded.
    pub(super) fn loaded_seconds(&self) -> i64 {
        self.config_loaded.get()
    }

    /// Reads all sources.
    pub(super) fn poll(&self) {
        self.conversations.poll();
        self.connections.poll();
        self.confirmations_pending.poll();
        self.body_bytes.poll();
    }
}

impl PolledGauge {
    fn of(gauge: IntGauge) -> Self {
        Self { gauge, count: OnceLock::new() }
    }

    /// Sets the source of the value: called at every rendering, so it must be quick. The first source stays.
    pub(super) fn set_source(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.count.set(Box::new(count));
    }

    fn poll(&self) {
        if let Some(count) = self.count.get() {
            self.gauge.set(i64::try_from(count()).unwrap_or(i64::MAX));
        }
    }
}
