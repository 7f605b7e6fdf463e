//! Whether a stream that ends here was whole. Where the end of the connection is the end of the stream, a stream that was
//! cut looks like one that has ended; only its own words tell them apart.

use super::StreamJudge;
use super::lines::single_events;
use crate::wire::reply::Reply;
use crate::wire::sse::parse_fields;
use bytes::Bytes;

/// What the last event says, which may lack the blank line behind it.
#[derive(Default)]
struct Last {
    /// Nothing can come behind it: `[DONE]`, or an error.
    ends: bool,
    /// The choices whose finish it tells.
    finished: Vec<u32>,
}

impl StreamJudge {
    /// Whether the upstream's stream, if it ends now, has come to an end of its own: `[DONE]`, an error, or a finish
    /// reason for every choice (Perplexity sends no `[DONE]`); and no event is left that breaks off within.
    pub fn is_whole(&self) -> bool {
        if self.done_seen || self.errored || self.head_error.is_some() {
            return true;
        }
        let Some(last) = self.last().filter(|_| self.splitter.at_boundary()) else { return false };
        let is_finished = |index: u32| last.finished.contains(&self.continuing.unwrap_or(index));
        let mut choices = self.choices.iter();
        // Chunks without any choice (Azure's first one) say nothing that could be cut.
        let some = self.begun || !last.finished.is_empty();
        // Of a reply that is read along no further, nobody knows.
        last.ends
            || self.blind
            || (some && choices.all(|state| state.finish_came || is_finished(state.index)))
    }

    /// The event that has not ended; `None` where it breaks off within.
    fn last(&self) -> Option<Last> {
        let rest = Bytes::copy_from_slice(self.splitter.rest());
        let mut last = Last::default();
        for event in single_events(&rest).unwrap_or_else(|| vec![rest.clone()]) {
            self.add_last(&event, &mut last)?;
        }
        Some(last)
    }

    fn add_last(&self, event: &Bytes, last: &mut Last) -> Option<()> {
        let fields = parse_fields(event);
        if fields.data.is_empty() {
            let mut lines = event.split(|byte| matches!(byte, b'\n' | b'\r'));
            return lines.all(|line| line.trim_ascii().is_empty() || line.starts_with(b":")).then_some(());
        }
        if fields.data.starts_with(b"[DONE]") || self.error_in(&fields).is_some() {
            last.ends = true;
            return Some(());
        }
        let reply = Reply::parse(&fields.data).ok()?;
        let finished = reply.choices.iter().filter(|choice| choice.finish.is_some());
        last.finished.extend(finished.map(|choice| self.continuing.unwrap_or(choice.index)));
        Some(())
    }
}
