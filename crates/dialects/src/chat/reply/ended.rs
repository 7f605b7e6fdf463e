//! The last event of a stream, which may lack the blank line after it.

use super::reader::{Event, Kind, read_event};
use crate::chat::completion::Choice;
use crate::codec::{IncompleteEvent, LastEvent};
use bytes::Bytes;

/// What `rest` says, the bytes after the last whole event; `indexes_of`: the client's indexes of the choices of a chunk.
pub(super) fn last_event(
    rest: &[u8],
    indexes_of: impl Fn(&[Choice]) -> Vec<u32>,
) -> Result<LastEvent, IncompleteEvent> {
    let (mut last, mut events) = (LastEvent::default(), Vec::new());
    let first = read_event(Bytes::copy_from_slice(rest), false, &mut events);
    for Event { raw, kind } in std::iter::once(first).chain(events) {
        match kind {
            Kind::Done | Kind::Error { .. } => last.ends = true,
            Kind::Chunk(chunk) => {
                last.ends |= chunk.shows_error;
                let choices = &chunk.reply.choices;
                let finished =
                    choices.iter().zip(indexes_of(choices)).filter(|(choice, _)| choice.finish.is_some());
                last.finished.extend(finished.map(|(_, index)| index));
            }
            Kind::Opaque => {
                let mut lines = raw.split(|byte| matches!(byte, b'\n' | b'\r'));
                let is_whole = |line: &[u8]| line.trim_ascii().is_empty() || line.starts_with(b":");
                if !lines.all(is_whole) {
                    return Err(IncompleteEvent);
                }
            }
            Kind::Unread(_) => return Err(IncompleteEvent),
        }
    }
    Ok(last)
}
