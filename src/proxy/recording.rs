//! The recording of one governed request while it runs: its body as it came, and a copy of the reply as the client gets
//! it. Nothing of it exists where nothing is recorded.

use crate::exchange::{AnyDialect, Exchange};
use crate::recorder::{Recorder, ReplyCopy, Taken};
use crate::telemetry::request_record::RequestRecord;
use bytes::Bytes;

/// See the file's head.
pub(super) struct Recording {
    recorder: Recorder,
    dialect: AnyDialect,
    body: Bytes,
    arrived_ms: u64,
    copy: Option<ReplyCopy>,
    /// Whether anything of the reply went out, so that the copy was asked for.
    has_begun: bool,
}

/// A recording that waits for the last facts of its request.
pub(crate) struct Recorded {
    recorder: Recorder,
    taken: Taken,
}

impl Recording {
    /// The recording of a request, where `recorder` is on; the request came at `arrived_ms`.
    pub(super) fn begin(
        recorder: &Recorder,
        dialect: AnyDialect,
        body: &Bytes,
        arrived_ms: u64,
    ) -> Option<Box<Self>> {
        recorder.is_on().then(|| {
            let (recorder, body) = (recorder.clone(), body.clone());
            Box::new(Self { recorder, dialect, body, arrived_ms, copy: None, has_begun: false })
        })
    }

    /// Adds the next bytes of the reply to the request of this `record`.
    pub(super) fn add(&mut self, record: &RequestRecord, bytes: &[u8]) {
        if !self.has_begun {
            self.has_begun = true;
            self.copy = self.recorder.copy(record);
        }
        if let Some(copy) = &mut self.copy {
            copy.add(bytes);
        }
    }

    /// What is known when the `exchange` is closed.
    pub(super) fn close(self, exchange: &Exchange) -> Recorded {
        let Self { recorder, dialect, body, arrived_ms, copy, .. } = self;
        let treatment = exchange.treatment();
        Recorded { recorder, taken: Taken { dialect, body, reply: copy, treatment, arrived_ms } }
    }
}

impl Recorded {
    /// Records the request of this `record`.
    pub(super) fn push(self, record: &RequestRecord) {
        self.recorder.push(self.taken, record);
    }
}
