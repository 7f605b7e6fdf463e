//! The output queue of a reply: frames that wait for decisions on their calls, and whole replies. Keeps them in order and
//! counts their bytes; decides nothing.

use crate::dialect::codec::Frame;
use std::collections::VecDeque;

/// Frames, oldest first.
#[derive(Default)]
pub(super) struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
    counted_bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, frame: Frame) {
        self.bytes += frame.raw.len();
        self.counted_bytes += frame.counted_bytes as usize;
        self.frames.push_back(frame);
    }

    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.forget(&frame);
        Some(frame)
    }

    /// Drops the later reply for this choice: another one follows.
    pub(super) fn drop_reply(&mut self, choice: u32) {
        let at = self.frames.iter().position(|frame| frame.continues == Some(choice));
        if let Some(frame) = at.and_then(|at| self.frames.remove(at)) {
            self.forget(&frame);
        }
    }

    /// All frames.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        std::mem::take(self).frames.into()
    }

    pub(super) fn front(&self) -> Option<&Frame> {
        self.frames.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes of the frames.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that count against the limit on held bytes.
    pub(super) fn counted_bytes(&self) -> usize {
        self.counted_bytes
    }

    fn forget(&mut self, frame: &Frame) {
        self.bytes -= frame.raw.len();
        self.counted_bytes -= frame.counted_bytes as usize;
    }
}
