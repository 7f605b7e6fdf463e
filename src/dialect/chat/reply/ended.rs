//! Truncation check: whether a stream that ends here is complete. Where the end of the connection ends the stream, only
//! its events show whether it was cut.

use super::reader::{Event, Kind, read_event};
use super::{Phase, ReplyJudge};
use crate::dialect::chat::completion::Choice;
use crate::dialect::judge::CallJudge;
use bytes::Bytes;
use std::collections::VecDeque;

/// The last event's content; the event may lack the blank line after it.
#[derive(Default)]
struct Last {
    /// Nothing can come after it: `[DONE]`, or an error.
    ends: bool,
    /// The indexes of the choices whose finish it reports.
    finished: Vec<usize>,
}

impl<J: CallJudge> ReplyJudge<J> {
    /// Whether the upstream's reply, if it ends now, is complete: with `[DONE]`, an error, or a finish reason for every
    /// choice (Perplexity sends no `[DONE]`), and without an incomplete event.
    pub(super) fn has_whole_stream(&self) -> bool {
        let Some(rest) = self.reader.rest() else { return true };
        let started = match self.phase {
            Phase::Head => false,
            Phase::Reading => true,
            // Unknown for a reply that is no longer read.
            Phase::Unjudged => return self.reader.at_boundary() && self.last(rest).is_some(),
            Phase::Refused(_) | Phase::Failed | Phase::BrokenOff(_) | Phase::Done { .. } => return true,
        };
        let Some(last) = self.last(rest).filter(|_| self.reader.at_boundary()) else { return false };
        // Chunks without any choice (Azure's first one) have nothing that could be cut.
        let some = started || !last.finished.is_empty();
        let mut choices = self.choices.iter().enumerate();
        last.ends
            || (some && choices.all(|(place, state)| state.finish_came || last.finished.contains(&place)))
    }

    /// The event that has not ended; `None` if it is incomplete.
    fn last(&self, rest: &[u8]) -> Option<Last> {
        let (mut last, mut events) = (Last::default(), VecDeque::new());
        let first = read_event(Bytes::copy_from_slice(rest), false, &mut events);
        for Event { raw, kind } in std::iter::once(first).chain(events) {
            match kind {
                Kind::Done | Kind::Error { .. } => last.ends = true,
                Kind::Chunk(chunk) => {
                    last.ends |= chunk.shows_error;
                    let choices = chunk.reply.choices.iter().enumerate();
                    let finished = choices.filter(|(_, choice)| choice.finish.is_some());
                    let place =
                        |(at, choice): (usize, &Choice)| self.place(self.continuing, at, choice.index);
                    last.finished.extend(finished.map(place));
                }
                Kind::Opaque => {
                    let mut lines = raw.split(|byte| matches!(byte, b'\n' | b'\r'));
                    let is_whole = |line: &[u8]| line.trim_ascii().is_empty() || line.starts_with(b":");
                    lines.all(is_whole).then_some(())?;
                }
                Kind::Unread(_) => return None,
            }
        }
        Some(last)
    }
}
