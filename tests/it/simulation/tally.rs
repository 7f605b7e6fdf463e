//! Counts how often interesting events occurred: a run in which little happens proves little.

use super::check::is_fallback;
use super::client::Client;
use super::driver::Passed;
use dialects::variant::{Tools, Variant};
use model::adaptation::Adaptation;
use model::plan::decision::Decision;
use model::record::Retry;
use std::collections::BTreeMap;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Tally {
    pub steps: usize,
    /// Requests that were sent as the one before went on.
    pub prefixes: usize,
    strict: usize,
    seen: BTreeMap<&'static str, usize>,
    /// Policies that changed something.
    acted: BTreeMap<&'static str, usize>,
}

/// The events that must occur in every run, with their minimum counts.
const OFTEN: [(&str, usize); 20] = [
    ("blocked", 20),
    ("restored", 20),
    ("landed", 5),
    ("dropped", 20),
    ("edited", 20),
    ("untouched", 20),
    ("lost", 1),
    ("asked", 5),
    ("answered", 5),
    ("several choices", 20),
    ("without tools", 5),
    ("without choice", 5),
    ("flattened", 5),
    ("placed anew", 5),
    ("shortened", 5),
    ("refused", 20),
    ("known refusal", 20),
    ("observed", 50),
    ("objections observed", 10),
    ("held out", 20),
];
/// The events that must occur in a long run, in addition.
const SELDOM: [(&str, usize); 8] = [
    ("lost", 10),
    ("approved", 5),
    ("three tries", 5),
    ("summary wanted", 20),
    ("late summary told", 2),
    ("adopted", 20),
    ("broken off", 2),
    ("landed bare", 5),
];
/// Steps of a long run.
const LONG: usize = 20_000;

impl Tally {
    pub fn count(&mut self, client: &Client, passed: &Passed) {
        let judged = |fits: fn(&Decision) -> bool| {
            passed.record.iter().filter(|judged| fits(&judged.decision)).count()
        };
        let tried = |adaptation| usize::from(passed.tried.contains(&Retry::Adapted(adaptation)));
        let is_plain = passed.plan.edits.is_empty() && passed.restored.is_empty();
        let known = passed.forms.first().is_some_and(is_fallback);
        let in_asking = passed.refused.iter().any(|(at, _)| *at >= passed.tries);
        let objected = passed.record.iter().filter(|judged| !judged.objections.is_empty());
        let objections = if passed.observed { objected.count() } else { 0 };
        let is_bare = |form: &Variant| form.tools() == Tools::Dropped;
        let landed_bare = passed.landed_at.is_some()
            && passed.forms.last().is_some_and(is_bare)
            && !passed.forms.first().is_some_and(is_bare);
        self.steps += 1;
        self.strict += usize::from(!client.is_careless);
        for (what, times) in [
            ("blocked", judged(|decision| matches!(decision, Decision::Block { .. }))),
            ("asked", judged(|decision| matches!(decision, Decision::Ask { .. }))),
            ("answered", judged(|decision| matches!(decision, Decision::Answer { .. }))),
            ("restored", passed.restored.len()),
            ("lost", passed.lost as usize),
            ("landed", usize::from(passed.landed_at.is_some())),
            ("approved", usize::from(passed.approved.is_some())),
            ("dropped", passed.plan.dropped.len()),
            ("edited", passed.plan.edits.len()),
            ("untouched", usize::from(is_plain)),
            ("several choices", usize::from(passed.hidden.len() > 1)),
            ("without tools", tried(Adaptation::Tools)),
            ("without choice", tried(Adaptation::ToolChoice)),
            ("flattened", tried(Adaptation::Flattened)),
            ("placed anew", tried(Adaptation::Placement)),
            ("shortened", tried(Adaptation::Overflow)),
            ("three tries", usize::from(passed.tried.len() == 3)),
            ("refused", usize::from(passed.error.is_some())),
            ("known refusal", usize::from(known)),
            ("observed", usize::from(passed.observed)),
            ("objections observed", objections),
            ("held out", usize::from(passed.held_out)),
            ("summary wanted", usize::from(passed.question.is_some())),
            ("late summary told", usize::from(passed.tells_late)),
            ("adopted", passed.adopted),
            ("broken off", usize::from(passed.error.is_some() && in_asking)),
            ("landed bare", usize::from(landed_bare)),
            ("other rounds", usize::from(passed.other_rounds)),
        ] {
            *self.seen.entry(what).or_default() += times;
        }
        let edits = passed.plan.edits.iter().map(|edit| edit.policy);
        let dropped = passed.plan.dropped.iter().map(|dropped| dropped.policy);
        let objections =
            passed.record.iter().flat_map(|judged| &judged.objections).map(|(policy, _)| *policy);
        let acts = passed.record.iter().flat_map(|judged| &judged.acts).map(|(policy, _)| *policy);
        for policy in edits.chain(dropped).chain(objections).chain(acts) {
            *self.acted.entry(policy).or_default() += 1;
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.prefixes += other.prefixes;
        self.strict += other.strict;
        for (what, times) in &other.seen {
            *self.seen.entry(what).or_default() += times;
        }
        for (policy, times) in &other.acted {
            *self.acted.entry(policy).or_default() += times;
        }
    }

    /// What was not seen often enough.
    pub fn missing(&self) -> Vec<&'static str> {
        let seen = |what: &str| self.seen.get(what).copied().unwrap_or_default();
        let seldom = SELDOM.iter().filter(|_| self.steps >= LONG);
        let wanted = OFTEN.iter().chain(seldom);
        let mut missing: Vec<&str> =
            wanted.filter(|(what, least)| seen(what) < *least).map(|(what, _)| *what).collect();
        missing.extend((self.strict * 2 <= self.steps).then_some("clients that are careful"));
        missing.extend((self.prefixes * 10 <= self.steps).then_some("conversations that go on"));
        missing
    }
}
