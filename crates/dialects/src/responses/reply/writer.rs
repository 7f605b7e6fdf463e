//! The numbers of a stream's events: dense indexes of items and rising sequence numbers over all replies, rewritten from
//! the first event on that the client does not get as it came.

use super::ResponsesReplies;
use super::event::{Event, EventNumbers, Index};
use crate::lines::framed;
use bytes::Bytes;
use serde_json::Value;
use wire::splice::Splices;
use wire::sse::parse_fields;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Numbers {
    /// The sequence number of the last event that the client has.
    last: Option<u64>,
    /// The index of the next item.
    next_item: u64,
    rewrites: bool,
}

impl Numbers {
    /// From now on the upstream's numbers are not the client's.
    pub fn rewrite(&mut self) {
        self.rewrites = true;
    }

    /// Whether the upstream's numbers are not the client's.
    pub fn rewrites(&self) -> bool {
        self.rewrites
    }

    /// The client's index for an item that begins and has this index at the upstream.
    pub fn begin_item(&mut self, upstream: Option<u64>) -> u64 {
        let index = if self.rewrites { self.next_item } else { upstream.unwrap_or(self.next_item) };
        self.next_item = self.next_item.max(index + 1);
        index
    }

    /// The sequence number of the next event, which has this number at the upstream.
    pub fn next(&mut self, upstream: Option<u64>) -> Option<u64> {
        let next = match (self.rewrites, self.last) {
            (true, Some(last)) => Some(last + 1),
            _ => upstream,
        };
        self.last = next.or(self.last);
        next
    }
}

impl ResponsesReplies {
    /// An event with the client's numbers, which has these `known` ones in its `data`.
    pub(super) fn renumbered(
        &mut self,
        raw: Bytes,
        known: EventNumbers,
        data: &[u8],
        item: Option<u64>,
    ) -> Bytes {
        let sequence = self.numbers.next(known.sequence.map(|(_, number)| number));
        let mut splices = Splices::default();
        if let (Some((span, number)), Some(new)) = (known.sequence, sequence)
            && new != number
        {
            splices.replace(span, new.to_string());
        }
        if let (Some((span, Index::Number(index))), Some(new)) = (known.index, item) {
            if !self.numbers.rewrites() {
                // Several indexes of one item, and one of several, pass as they came until something is left out.
                self.numbers.begin_item(Some(index));
            } else if new != index {
                splices.replace(span, new.to_string());
            }
        }
        if splices.is_empty() {
            return raw;
        }
        self.is_changed = true;
        framed(&raw, &splices.apply(&Bytes::copy_from_slice(data)).join())
    }

    /// A complete event without an item, with the next sequence number.
    pub(super) fn numbered(&mut self, raw: Bytes) -> Bytes {
        let data: Bytes = parse_fields(&raw).data.into_owned().into();
        match Event::parse(&data) {
            Ok(event) => self.renumbered(raw, event.numbers(), &data, None),
            Err(_) => raw,
        }
    }

    /// An event of toolrein's own.
    pub(super) fn own_event(&mut self, mut data: Value) -> Bytes {
        self.numbers.rewrite();
        self.is_changed = true;
        if let Some(sequence) = self.numbers.next(None) {
            data["sequence_number"] = sequence.into();
        }
        let kind = data["type"].as_str().unwrap_or_default();
        format!("event: {kind}\ndata: {data}\n\n").into()
    }
}
