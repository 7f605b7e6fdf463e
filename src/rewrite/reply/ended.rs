//! Whether a stream that ends here was whole. Where the end of the connection is the end of the stream, a stream that was
//! cut looks like one that has ended; only its own events tell them apart.

use super::lines::single_events;
use super::{Phase, ReplyJudge};
use crate::wire::error::parse_event;
use crate::wire::reply::Reply;
use crate::wire::sse::parse_fields;
use bytes::Bytes;

/// What the last event says, which may lack the blank line behind it.
#[derive(Default)]
struct Last {
    /// Nothing can come behind it: `[DONE]`, or an error.
    ends: bool,
    /// The places of the choices whose finish it reports.
    finished: Vec<usize>,
}

impl ReplyJudge {
    /// Whether the upstream's reply, if it ends now, has come to an end of its own: `[DONE]`, an error, or a finish
    /// reason for every choice (Perplexity sends no `[DONE]`); and no event is left that breaks off within.
    pub fn is_whole(&self) -> bool {
        let Some(rest) = self.reader.rest() else { return true };
        let begun = match self.phase {
            Phase::Head => false,
            Phase::Reading => true,
            // Of a reply that is read along no further, nobody knows.
            Phase::Unjudged => return self.reader.at_boundary() && self.last(rest).is_some(),
            Phase::Refused(_) | Phase::Failed | Phase::BrokenOff(_) | Phase::Done { .. } => return true,
        };
        let Some(last) = self.last(rest).filter(|_| self.reader.at_boundary()) else { return false };
        // Chunks without any choice (Azure's first one) say nothing that could be cut.
        let some = begun || !last.finished.is_empty();
        let mut choices = self.choices.iter().enumerate();
        last.ends
            || (some && choices.all(|(place, state)| state.finish_came || last.finished.contains(&place)))
    }

    /// The event that has not ended; `None` where it breaks off within.
    fn last(&self, rest: &[u8]) -> Option<Last> {
        let rest = Bytes::copy_from_slice(rest);
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
        let name = fields.name.and_then(|name| std::str::from_utf8(name).ok());
        let is_error = || parse_event(name, fields.field, &fields.data).is_some();
        if fields.data.starts_with(b"[DONE]") || is_error() {
            last.ends = true;
            return Some(());
        }
        let reply = Reply::parse(&fields.data).ok()?;
        let finished = reply.choices.iter().enumerate().filter(|(_, choice)| choice.finish.is_some());
        last.finished.extend(finished.map(|(at, choice)| self.place(self.continuing, at, choice.index)));
        Some(())
    }
}
