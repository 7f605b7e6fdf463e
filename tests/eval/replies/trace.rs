//! The trace of one run: the steps of the exchange, the client's bytes, the request record and what was stored. Text, in
//! which nothing depends on the clock or on how a stream was cut.

use super::stored::Stored;
use model::record::{RequestRecord, Verdict};
use std::fmt::{self, Display, Formatter, Write as _};

/// See the file's head.
#[derive(Default)]
pub struct Trace {
    steps: String,
    /// What the client got.
    pub client: Vec<u8>,
    record: String,
    pub stored: Stored,
    /// The tools that were called, in the order of the record.
    pub tools: Vec<String>,
    /// Part of it came as a stream.
    pub streams: bool,
    pub counts: Counts,
}

/// What was done in one run, or in several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub calls: usize,
    pub blocked: usize,
    pub modified: usize,
    /// Calls that waited for a person's decision.
    pub held: usize,
    /// Calls about which the client was asked.
    pub asked: usize,
    /// Questions to another model.
    pub questions: usize,
    pub reasks: usize,
    pub sends: usize,
    /// Replies that reached the client with other bytes.
    pub changed: usize,
    /// Replies that ended in an error of toolrein's.
    pub failed: usize,
    /// Replies of which something was not judged.
    pub unjudged: usize,
}

impl Counts {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            blocked: self.blocked + other.blocked,
            modified: self.modified + other.modified,
            held: self.held + other.held,
            asked: self.asked + other.asked,
            questions: self.questions + other.questions,
            reasks: self.reasks + other.reasks,
            sends: self.sends + other.sends,
            changed: self.changed + other.changed,
            failed: self.failed + other.failed,
            unjudged: self.unjudged + other.unjudged,
        }
    }
}

impl Display for Counts {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            calls,
            blocked,
            modified,
            held,
            asked,
            questions,
            reasks,
            sends,
            changed,
            failed,
            unjudged,
        } = self;
        write!(
            out,
            "{calls} calls, {blocked} blocked, {modified} modified, {held} held, {asked} asked about, {questions} questions, \
             {reasks} re-asks, {sends} requests; {changed} replies changed, {failed} failed, {unjudged} not wholly judged"
        )
    }
}

impl Trace {
    /// Adds a step.
    pub fn step(&mut self, step: impl Display) {
        let _ = writeln!(self.steps, "{step}");
    }

    /// Notes the record of the request at its end; `came`: the recorded reply.
    pub fn note(&mut self, record: &RequestRecord, came: &[u8]) {
        self.record = text_of(record);
        self.tools = record.judged.iter().map(|call| call.tool.clone()).collect();
        let count = |verdict| record.judged.iter().filter(|call| call.verdict == verdict).count();
        self.counts.calls = record.judged.len();
        self.counts.blocked = count(Verdict::Block);
        self.counts.modified = count(Verdict::Modify);
        self.counts.asked = count(Verdict::Ask);
        self.counts.reasks = record.reasks as usize;
        self.counts.sends = record.upstream_requests as usize;
        self.counts.changed = usize::from(self.client != came);
        self.counts.failed = usize::from(record.error.is_some());
        self.counts.unjudged = usize::from(!record.unjudged.is_empty());
    }

    /// All of it.
    pub fn text(&self) -> Vec<u8> {
        let mut out = format!("== steps\n{}== client\n", self.steps).into_bytes();
        out.extend_from_slice(&self.client);
        out.extend_from_slice(format!("\n== record\n{}== stored\n{}", self.record, self.stored).as_bytes());
        out
    }
}

/// What a request record says of the reply.
fn text_of(record: &RequestRecord) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name}: {text}");
    };
    let RequestRecord { streamed, error, error_detail, ungoverned, partly_ungoverned, reasks, .. } = record;
    line("streamed", streamed.to_string());
    line("error", format!("{error:?} {error_detail:?}"));
    line("ungoverned", format!("{ungoverned:?} {partly_ungoverned:?}"));
    for action in &record.actions {
        line("action", format!("{action:?}"));
    }
    for call in &record.judged {
        line("call", format!("{call:?}"));
    }
    for text in &record.new_texts {
        line("new text", format!("{text:?}"));
    }
    line("confirmations", format!("{:?}", record.confirmations));
    for approval in &record.approvals {
        line("approval", format!("{approval:?}"));
    }
    line("re-requests", format!("{:?}", record.re_requests));
    line("tokens", format!("{:?}", record.tokens));
    line("tokens of policies", format!("{:?}", record.policy_tokens));
    line("cost", format!("{:?}, implausible: {}", record.cost, record.implausible_usage));
    line("limits", format!("{:?}", record.usage_of_limits));
    line("requests", format!("{}, re-asks: {reasks}", record.upstream_requests));
    line("fallbacks", format!("{:?}", record.fallbacks));
    line("refusals", format!("{:?}", record.refusals));
    line("prefix breaks", format!("{:?}", record.prefix_breaks));
    line("carried", format!("{:?}", record.carried));
    line("unjudged", format!("{:?}", record.unjudged));
    out
}
