//! What there is now: gauges, and who is asked for their values when they are rendered. Counts nothing by itself.

use super::families::Maker;
use prometheus::{Error, IntGauge};
use std::sync::OnceLock;

/// See the file's head.
pub(super) struct Gauges {
    pub(super) streams_open: IntGauge,
    pub(super) conversations: Asked,
    pub(super) connections: Asked,
    pub(super) confirmations_pending: Asked,
    pub(super) body_bytes: Asked,
}

/// A gauge whose value somebody else knows.
pub(super) struct Asked {
    gauge: IntGauge,
    count: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
}

impl Gauges {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            streams_open: make.gauge("toolrein_streams_open", "Streamed replies being relayed now.")?,
            conversations: Asked::of(
                make.gauge("toolrein_conversations", "Conversations that the ledger knows now.")?,
            ),
            connections: Asked::of(make.gauge(
                "toolrein_connections",
                "Clients' connections that are open now, tunnels included; at most limits.connections.",
            )?),
            confirmations_pending: Asked::of(make.gauge(
                "toolrein_confirmations_pending",
                "Calls whose replies wait for a person's word now; questions put in conversations are not among them.",
            )?),
            body_bytes: Asked::of(make.gauge(
                "toolrein_body_bytes",
                "Bytes of requests' and replies' bodies that are held now; at most limits.total_bytes.",
            )?),
        })
    }

    /// Asks for all values.
    pub(super) fn ask(&self) {
        self.conversations.ask();
        self.connections.ask();
        self.confirmations_pending.ask();
        self.body_bytes.ask();
    }
}

impl Asked {
    fn of(gauge: IntGauge) -> Self {
        Self { gauge, count: OnceLock::new() }
    }

    /// Names who knows the value: asked at every rendering, so it must be quick. The first to be named stays.
    pub(super) fn ask_of(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.count.set(Box::new(count));
    }

    fn ask(&self) {
        if let Some(count) = self.count.get() {
            self.gauge.set(i64::try_from(count()).unwrap_or(i64::MAX));
        }
    }
}
