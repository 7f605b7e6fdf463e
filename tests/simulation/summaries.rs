//! Another model that is asked for summaries: it answers in time, late, or never. Decides as the handler does where it
//! need not wait; asserts nothing.

use super::numbers::Numbers;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use toolrein::ledger::summaries::Pins;
use toolrein::policy::plan::{BatchSummaries, Plan, SummaryWanted};
use toolrein::policy::set::{Judge, PolicySet};
use toolrein::rewrite::summary::question;
use toolrein::transcript::Transcript;
use toolrein::transcript::summaries::{Pin, Summaries as _};

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
    /// Late ones that were told with the batch behind theirs.
    pub told_late: usize,
}

impl Summaries {
    pub fn new(numbers: Numbers) -> Self {
        let pins = Arc::new(Pins::new(LIFETIME));
        Self { pins, late: Vec::new(), numbers, asked: 0, told_late: 0 }
    }

    /// The process begins anew: no decision is known, and nobody waits for an answer.
    pub fn restart(&mut self) {
        (self.pins, self.late) = (Arc::new(Pins::new(LIFETIME)), Vec::new());
    }

    /// What has come by now is kept.
    pub fn arrive(&mut self, now_ms: u64) {
        let (come, late) = std::mem::take(&mut self.late).into_iter().partition(|(_, at, _)| *at <= now_ms);
        self.late = late;
        let come: Vec<(SummaryWanted, u64, Arc<str>)> = come;
        for (wanted, _, text) in come {
            // Whoever asked knows not that it was decided meanwhile.
            if !self.pins.decide(&wanted, Some(&text)) {
                self.pins.keep_late(wanted.batch, text);
            }
        }
    }

    /// Reads the transcript through the policies, and fills in the summary that was asked for. Tells the question.
    pub fn decide(
        &mut self,
        policies: &PolicySet,
        transcript: &Transcript<'_>,
        (leave, now_ms): (bool, u64),
    ) -> (Plan, Judge, Option<Bytes>) {
        let (mut plan, judge) = policies.read(transcript);
        let known = plan.summaries != BatchSummaries::default();
        if !known || leave || plan.refusal.is_some() || transcript.request.odd {
            return (plan, judge, None);
        }
        for lost in &plan.summaries.lost {
            self.pins.pin(*lost, Pin::Cleared);
        }
        let Some(wanted) = &plan.summaries.wanted else { return (plan, judge, None) };
        let question = question(transcript, wanted);
        self.asked += 1;
        self.told_late +=
            usize::from(wanted.earlier.is_some_and(|earlier| self.pins.late(earlier).is_some()));
        let text: Arc<str> = format!("Summary {} of what was done.", self.asked).into();
        match self.numbers.below(4) {
            0 => {
                self.pins.decide(wanted, Some(&text));
            }
            1 | 2 => {
                self.pins.decide(wanted, None);
                let at_ms = now_ms + self.numbers.below(LATEST_MS) as u64;
                self.late.push((wanted.clone(), at_ms, text));
            }
            _ => {
                self.pins.decide(wanted, None);
            }
        }
        // With what came late for the batch before.
        let summary = self.pins.pinned(wanted.batch).and_then(Pin::summary);
        plan.fulfil_summary(summary.as_deref());
        (plan, judge, Some(question))
    }
}
