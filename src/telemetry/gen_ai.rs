//! The metrics of OpenTelemetry's semantic conventions for generative AI: duration and tokens by operation and model.
//! Off unless they are asked for, since they are many series.

use super::families::Maker;
use model::record::{RequestRecord, Tokens};
use prometheus::{Error, HistogramVec};
use std::sync::atomic::{AtomicBool, Ordering};

/// Buckets of the semantic conventions for generative AI, for durations in seconds and for tokens.
const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// The conventions' name of what all governed endpoints do.
const CHAT: &str = "chat";

/// The metrics of the semantic conventions for generative AI, which are off unless they are asked for.
pub(super) struct GenAi {
    is_on: AtomicBool,
    seconds: HistogramVec,
    tokens: HistogramVec,
}

impl GenAi {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        Ok(Self {
            is_on: AtomicBool::new(false),
            seconds: make.histograms(
                "gen_ai_client_operation_duration_seconds",
                "Duration of governed requests as their clients saw it, in seconds.",
                &["gen_ai_operation_name", "gen_ai_request_model"],
                &SECONDS,
            )?,
            tokens: make.histograms(
                "gen_ai_client_token_usage",
                "Billed tokens of governed requests, by type: input, output.",
                &["gen_ai_operation_name", "gen_ai_request_model", "gen_ai_token_type"],
                &TOKENS,
            )?,
        })
    }

    pub(super) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub(super) fn record(&self, record: &RequestRecord, model: &str) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        self.seconds.with_label_values(&[CHAT, model]).observe(record.times.total.as_secs_f64());
        let Tokens { prompt, completion, .. } = record.tokens;
        for (kind, count) in [("input", prompt), ("output", completion)] {
            if count > 0 {
                self.tokens.with_label_values(&[CHAT, model, kind]).observe(count as f64);
            }
        }
    }
}
