//! Typed facts: what the plans of earlier policies mean for later ones, so that these do not depend on the names or
//! forms of other policies' edits. Reports what was planned; plans nothing.

use super::work::step;
use super::{Change, Edit, Finding, Frame, Plan};
use crate::source::Order;
use std::collections::HashMap;
use std::ops::Range;
use wire::escaped_text::EscapedText;

/// What policies before this one have planned for one text of the result being read.
#[derive(Debug, Default)]
pub struct TextFacts<'a> {
    /// It may hold instructions that do not come from the user.
    pub flagged: bool,
    /// It is hidden from the model.
    pub blocked: bool,
    /// The text that replaces it, pointers left out.
    pub replaced: Option<&'a EscapedText>,
    /// Its own text with placeholders for values that the model must not read.
    pub redacted: Option<&'a EscapedText>,
    /// A text that only says which earlier message holds an equal one, and the position of that message. Not shown where
    /// the text is blocked.
    pub pointer: Option<(&'a EscapedText, usize)>,
    /// Characters that hide text from people are removed from it.
    pub cleaned: bool,
    /// Lines of ours before and after it.
    pub around: Vec<&'a Frame>,
}

/// The facts of all texts of the result being read, made in one pass: a result may have any number of texts.
#[derive(Debug, Default)]
pub struct ResultFacts<'a>(HashMap<usize, TextFacts<'a>>);

/// What is no longer shown of earlier messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A text that is cleared.
    Text { message: usize, text: usize },
    /// Messages that are dropped with their turns.
    Messages(Range<usize>),
}

/// How much of a plan a policy has read.
#[derive(Clone, Copy, Debug, Default)]
pub struct TakenIn {
    edits: usize,
    dropped: usize,
}

impl<'a> ResultFacts<'a> {
    /// The facts of the `text`-th text, where anything was planned for it.
    pub fn text(&self, text: usize) -> Option<&TextFacts<'a>> {
        self.0.get(&text)
    }

    fn take(&mut self, change: &'a Change, order: &Order) {
        let text = match change {
            Change::Clear { text, .. }
            | Change::Hide { text, .. }
            | Change::BlockText { text, .. }
            | Change::Point { text, .. }
            | Change::Shorten { text, .. }
            | Change::Redact { text, .. }
            | Change::Clean { text, .. }
            | Change::Surround { text, .. } => *text,
            Change::RedactCall { .. }
            | Change::RedactValue { .. }
            | Change::Notice { .. }
            | Change::Remark { .. } => return,
        };
        let facts = self.0.entry(text).or_default();
        match change {
            Change::BlockText { by, .. } => (facts.blocked, facts.replaced) = (true, Some(by)),
            Change::Shorten { by, .. } if !facts.blocked => facts.replaced = Some(by),
            Change::Point { by, original, .. } => {
                facts.pointer = order.position(*original).map(|original| (by, original));
            }
            Change::Clean { .. } => facts.cleaned = true,
            Change::Surround { frame, .. } => facts.around.push(frame),
            Change::Redact { by, .. } => {
                facts.redacted = Some(by);
                // The other new texts are made from this one.
                facts.replaced = facts.replaced.or(Some(by));
            }
            // Only earlier messages are cleared.
            Change::Shorten { .. } | Change::Clear { .. } | Change::Hide { .. } => {}
            Change::RedactCall { .. }
            | Change::RedactValue { .. }
            | Change::Notice { .. }
            | Change::Remark { .. } => {}
        }
    }
}

impl Plan {
    /// Whether a policy before this one changes any text of the result being read.
    pub fn changes_text_here(&self) -> bool {
        let changes = |change: &Change| !matches!(change, Change::Notice { .. } | Change::Remark { .. });
        self.planned_here().any(|edit| changes(&edit.change))
    }

    /// What policies before this one have planned for the texts of the result being read.
    pub fn facts_here(&self) -> ResultFacts<'_> {
        let mut facts = ResultFacts::default();
        // Newest first, so that of equal changes the first planned overwrites the others.
        for edit in self.planned_here() {
            facts.take(&edit.change, &self.order);
        }
        for finding in self.findings_here() {
            if let Finding::Instructions { text } = finding {
                facts.0.entry(*text).or_default().flagged = true;
            }
        }
        facts
    }

    /// What was cleared and dropped since `taken_in`, which is advanced.
    pub fn gone_since<'a>(&'a self, taken_in: &mut TakenIn) -> impl Iterator<Item = Gone> + use<'a> {
        let TakenIn { edits, dropped } = *taken_in;
        *taken_in = TakenIn { edits: self.edits.len(), dropped: self.dropped.len() };
        let cleared = self.edits[edits..].iter().filter_map(|edit| match edit.change {
            Change::Clear { text, .. } | Change::Hide { text, .. } => {
                Some(Gone::Text { message: self.order.position(edit.item)?, text })
            }
            _ => None,
        });
        cleared.chain(self.dropped[dropped..].iter().map(|dropped| Gone::Messages(dropped.messages.clone())))
    }

    fn planned_here(&self) -> impl Iterator<Item = &Edit> {
        let here = self.at.message;
        let item = self.order.id(here);
        self.edits
            .iter()
            .rev()
            .take_while(move |edit| edit.decided == here)
            .inspect(|_| step())
            .filter(move |edit| edit.item == item)
    }
}
