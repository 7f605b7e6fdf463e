//! Metrics of TLS with clients: how handshakes end, and when the certificate does. Without TLS they have no series.

use super::families::{Counters, Maker};
use prometheus::{Error, IntGaugeVec};

/// See the module's documentation.
pub struct TlsMetrics {
    handshakes: Counters,
    /// Without labels, as a family: it has no sample until there is a certificate.
    certificate_ends: IntGaugeVec,
}

/// How a TLS handshake with a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    Done,
    Failed,
    Timeout,
    /// The client spoke HTTP without TLS.
    PlainHttp,
}

impl Handshake {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::PlainHttp => "plain_http",
        }
    }
}

impl TlsMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            handshakes: make.words(
                "toolrein_tls_handshakes_total",
                "TLS handshakes of clients: done, failed (a certificate or a protocol that is refused, a client that \
                 left), timeout (listen.tls.handshake_timeout), plain_http (a client without TLS).",
                "result",
            )?,
            certificate_ends: make.gauges(
                "toolrein_tls_certificate_end_timestamp_seconds",
                "When the certificate of the port for clients ends (listen.tls), in seconds since the epoch.",
                &[],
            )?,
        })
    }

    /// Counts how a handshake ended.
    pub fn count_handshake(&self, result: Handshake) {
        self.handshakes.add(result.as_str(), 1);
    }

    /// The certificate ends at `at_seconds` since the epoch.
    pub fn certificate_ends(&self, at_seconds: i64) {
        self.certificate_ends.with_label_values::<&str>(&[]).set(at_seconds);
    }
}
