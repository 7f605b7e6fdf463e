//! Whether a stream that ends here was whole. Where the end of the connection is the end of the stream, a stream that was
//! cut looks like one that has ended; only its own events tell them apart.

use super::reader::{Event, Kind, read_event};
use super::{Phase, ReplyJudge};
use crate::wire::reply::Choice;
use bytes::Bytes;
use std::collections::VecDeque;

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
