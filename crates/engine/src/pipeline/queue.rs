//! The output queue of a reply: frames that wait for decisions on their calls, and whole replies. Keeps them in order and
//! counts their bytes; decides nothing.

use super::end_of_event;
use dialects::codec::Frame;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// What the place of a frame takes besides the frame: a pointer, twice while the list grows, and the head of an allocation.
const PLACE_BYTES: usize = 24;

/// Frames, oldest first. Each is in a box, so that a list that grows copies pointers alone.
#[derive(Default)]
pub(super) struct Queue {
    frames: VecDeque<Box<Frame>>,
    bytes: usize,
    memory: usize,
    counted_bytes: usize,
    /// The frame that came last is among them.
    has_last: bool,
    /// The choices that the frames are about, each with how many of its parts wait.
    choices: SmallVec<[(u32, usize); 2]>,
}

impl Queue {
    pub(super) fn push(&mut self, frame: Frame) {
        self.bytes += frame.raw.len();
        self.memory += frame.size() + PLACE_BYTES;
        self.counted_bytes += frame.counted_bytes as usize;
        for part in frame.parts() {
            match self.choices.iter_mut().find(|(choice, _)| *choice == part.choice) {
                Some((_, parts)) => *parts += 1,
                None => self.choices.push((part.choice, 1)),
            }
        }
        self.frames.push_back(Box::new(frame));
        self.has_last = true;
    }

    /// Notes that a frame goes out which did not wait.
    pub(super) fn note_passed(&mut self) {
        self.has_last = false;
    }

    /// Whether the frame that came last waits.
    pub(super) fn has_last(&self) -> bool {
        self.has_last
    }

    /// Ends the event that the upstream left open in the last frame: others may follow it.
    pub(super) fn end_last(&mut self) {
        if let Some(frame) = self.frames.back_mut() {
            let end = end_of_event(frame.raw.ends_with(b"\n"));
            self.bytes += end.len();
            self.memory += end.len();
            frame.raw = [&frame.raw[..], end].concat().into();
        }
    }

    /// Takes the first frame that `is_settled` and may go out: no frame before it is about one of its choices. One about no
    /// choice waits for every frame before it.
    pub(super) fn take_free(&mut self, is_settled: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let mut waiting: SmallVec<[u32; 4]> = SmallVec::new();
        let mut found = None;
        for (at, frame) in self.frames.iter().enumerate() {
            let is_first = match frame.parts().next() {
                Some(_) => !frame.parts().any(|part| waiting.contains(&part.choice)),
                None => at == 0,
            };
            if is_first && is_settled(frame) {
                found = Some(at);
                break;
            }
            for part in frame.parts() {
                if !waiting.contains(&part.choice) {
                    waiting.push(part.choice);
                }
            }
            // Every other frame is about one of these, or about none.
            if waiting.len() >= self.choices.len() {
                break;
            }
        }
        let frame = *self.frames.remove(found?)?;
        self.has_last &= found < Some(self.frames.len());
        self.forget(&frame);
        Some(frame)
    }

    /// Drops the later reply for this choice: another one follows.
    pub(super) fn drop_later_reply(&mut self, choice: u32) {
        let is_of = |frame: &Frame| frame.is_later && frame.parts().any(|part| part.choice == choice);
        let at = self.frames.iter().position(|frame| is_of(frame));
        if let Some(frame) = at.and_then(|at| self.frames.remove(at)) {
            self.forget(&frame);
        }
    }

    /// All frames.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        std::mem::take(self).frames.into_iter().map(|frame| *frame).collect()
    }

    pub(super) fn front(&self) -> Option<&Frame> {
        self.frames.front().map(|frame| &**frame)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes of the frames on the wire.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the frames in memory.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes that count against the limit on held bytes.
    pub(super) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }

    fn forget(&mut self, frame: &Frame) {
        self.bytes -= frame.raw.len();
        self.memory -= frame.size() + PLACE_BYTES;
        self.counted_bytes -= frame.counted_bytes as usize;
        for part in frame.parts() {
            let known = self.choices.iter_mut().filter(|(choice, _)| *choice == part.choice);
            known.for_each(|(_, parts)| *parts -= 1);
        }
        self.choices.retain(|(_, parts)| *parts > 0);
    }
}
