//! Summaries in a plan: which batches have one, which have no known decision, and which could get one; and how a
//! finished summary is put into the plan. Asks nobody.

use super::{Change, Edit, Frame, Plan};
use crate::identity::Hash;
use std::sync::Arc;
use std::time::Duration;

/// What the policies know of the summaries of one conversation's batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSummaries {
    /// Batches whose marker holds a summary.
    pub pinned: usize,
    /// Batches of earlier requests without a known decision: it was forgotten, or never made here.
    pub lost: Vec<Hash>,
    /// A summary that the request's last batch could have.
    pub wanted: Option<SummaryWanted>,
}

/// Where a summary goes in a plan: after the marker of a cleared text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryBlank {
    /// The index of the cleared text's message.
    pub message: usize,
    /// Its index among the message's strings of text.
    pub text: usize,
    /// What the model reads before the summary and after it.
    pub around: Frame,
}

/// A summary that is worth asking for before the request is sent: see [`Plan::fulfil_summary`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryWanted {
    /// The key of the batch to summarise.
    pub batch: Hash,
    /// The key of the batch before, whose summary may have come too late for it.
    pub earlier: Option<Hash>,
    /// The texts to summarise: messages and indexes among their strings of text, oldest first.
    pub texts: Vec<(usize, usize)>,
    /// Who is asked, for how much, and how long that may take.
    pub terms: Arc<SummaryTerms>,
    /// Where the summary goes.
    pub blank: SummaryBlank,
}

/// Who makes summaries, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryTerms {
    pub model: String,
    /// How long a summary may be, in words.
    pub words: usize,
    /// How long a request may wait for one.
    pub wait: Duration,
    /// How long the model may take; what comes after `wait` is for the next batch.
    pub timeout: Duration,
    pub endpoint: ModelEndpoint,
}

/// The endpoint that a model is asked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelEndpoint {
    /// Replaces the upstream's address. The caller's credentials never go there.
    pub url: Option<String>,
    /// The environment variable that holds the key to use in place of the caller's.
    pub key_env: Option<String>,
}

/// What is known of the summary of one batch when the batch is cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchSummary {
    /// It was made before.
    Pinned { blank: SummaryBlank, summary: Arc<str> },
    /// The decision on a batch of an earlier request is not known any more.
    Lost(Hash),
    /// It could be made before the request is sent.
    Wanted(SummaryWanted),
}

impl Plan {
    /// Takes what is known of the summary of a batch that was cleared.
    pub fn summarise(&mut self, batch: BatchSummary) {
        match batch {
            BatchSummary::Pinned { blank, summary } => self.put_summary(&blank, &summary),
            BatchSummary::Lost(name) => self.summaries.lost.push(name),
            BatchSummary::Wanted(wanted) => self.summaries.wanted = Some(wanted),
        }
    }

    /// Puts the summary that is wanted into the plan; without one the plan stays as it is. The conversation need not be
    /// read again: no estimate counts a summary's length, so it moves no boundary.
    pub fn fulfil_summary(&mut self, summary: Option<&str>) {
        let wanted = self.summaries.wanted.take();
        if let Some((wanted, summary)) = wanted.zip(summary) {
            self.put_summary(&wanted.blank, summary);
        }
    }

    /// Puts `summary` into the plan at `blank`.
    fn put_summary(&mut self, blank: &SummaryBlank, summary: &str) {
        let item = self.order.id(blank.message);
        let is_blank = |edit: &Edit| {
            let clears = |text: usize| edit.item == item && text == blank.text;
            matches!(edit.change, Change::Clear { text, .. } if clears(text))
        };
        let Some(at) = self.edits.iter().rposition(is_blank) else { return };
        let edit = &mut self.edits[at];
        if let Change::Clear { by, gone_chars, .. } = &mut edit.change {
            let Frame { before, after } = &blank.around;
            *by = format!("{by}{before}{summary}{after}").into();
            *gone_chars = gone_chars.saturating_sub(summary.chars().count());
        }
        let remark = Edit { change: Change::Remark { word: "summarised", of: None }, ..edit.clone() };
        self.edits.insert(at + 1, remark);
        self.summaries.pinned += 1;
    }
}
