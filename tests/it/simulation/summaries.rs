//! Another model that is asked for summaries and answers in time, late, or never. Decides as the proxy does when it
//! does not have to wait; asserts nothing.

use super::numbers::Numbers;
use model::identity::Hash;
use model::plan::SummaryWanted;
use model::summaries::{Pin, Summaries as _};
use std::sync::Arc;
use std::time::Duration;
use toolrein::store::summaries::Pins;

/// For how long decisions are kept: longer than any run.
const LIFETIME: Duration = Duration::from_secs(86_400);
/// The latest that an answer comes, in ms.
const LATEST_MS: usize = 8_000;

pub struct Summaries {
    pub pins: Arc<Pins>,
    /// Answers under way: to what, and when they come.
    late: Vec<(SummaryWanted, u64, Arc<str>)>,
    numbers: Numbers,
    asked: usize,
}

impl Summaries {
    pub fn new(numbers: Numbers) -> Self {
        Self { pins: Arc::new(Pins::new(LIFETIME)), late: Vec::new(), numbers, asked: 0 }
    }

    /// The process restarts: no decision is known, and nobody waits for an answer.
    pub fn restart(&mut self) {
        (self.pins, self.late) = (Arc::new(Pins::new(LIFETIME)), Vec::new());
    }

    /// What has come by now is kept.
    pub fn arrive(&mut self, now_ms: u64) {
        let (come, late) = std::mem::take(&mut self.late).into_iter().partition(|(_, at, _)| *at <= now_ms);
        self.late = late;
        let come: Vec<(SummaryWanted, u64, Arc<str>)> = come;
        for (wanted, _, text) in come {
            // The request that asked does not know that the batch was decided meanwhile.
            if !self.pins.decide(&wanted, Some(&text)) {
                self.pins.keep_late(wanted.batch, text);
            }
        }
    }

    /// Batches whose decision is lost are told as cleared from now on.
    pub fn lose(&self, batches: Vec<Hash>) {
        for batch in batches {
            self.pins.pin(batch, Pin::Cleared);
        }
    }

    /// Whether a summary that came late is told with the batch that is wanted, which is behind its own.
    pub fn is_late(&self, wanted: &SummaryWanted) -> bool {
        wanted.earlier.is_some_and(|earlier| self.pins.late(earlier).is_some())
    }

    /// Asks for a summary and decides by what has come: the answer in time, or what came late for the batch before.
    pub fn decide(&mut self, wanted: &SummaryWanted, now_ms: u64) -> Option<Arc<str>> {
        self.asked += 1;
        let text: Arc<str> = format!("Summary {} of what was done.", self.asked).into();
        let answer = self.numbers.below(4);
        self.pins.decide(wanted, Some(&text).filter(|_| answer == 0));
        if matches!(answer, 1 | 2) {
            let at_ms = now_ms + self.numbers.below(LATEST_MS) as u64;
            self.late.push((wanted.clone(), at_ms, text));
        }
        self.pins.pinned(wanted.batch).and_then(Pin::summary)
    }
}
