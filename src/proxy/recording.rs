//! The recording of one governed request while it runs: its body as it came, and a copy of the reply as the client
//! gets it, for the recorder and for contents in traces. Where both are off, no recording is made.

use crate::recorder::{Layout, Recorder, ReplyCopy, Taken, TraceContents};
use crate::telemetry::spans::Trace;
use bytes::Bytes;
use dialects::AnyDialect;
use engine::Inspection;
use model::record::{JudgedCall, RequestRecord};
use model::request::Request;

/// See the file's head.
pub(super) struct Recording {
    keepers: Keepers,
    dialect: AnyDialect,
    body: Bytes,
    layout: Layout,
    arrived_ms: u64,
    copy: Option<ReplyCopy>,
    /// Whether anything of the reply went out, so that the copy was asked for.
    has_begun: bool,
}

/// The consumers of a recording: the recorder, and the contents of traces.
#[derive(Clone)]
pub struct Keepers {
    pub recorder: Recorder,
    /// Where traces have contents.
    pub contents: Option<TraceContents>,
}

impl Keepers {
    /// Whether the request of this `record` may be kept.
    fn keep(&self, record: &RequestRecord) -> bool {
        self.recorder.is_on() || (self.contents.is_some() && record.is_traced)
    }

    /// An empty copy of the reply to the request of this `record`; `None` where neither consumer wants it.
    fn copy(&self, record: &RequestRecord) -> Option<ReplyCopy> {
        self.recorder.copy(record).or_else(|| self.contents.as_ref()?.copy(record))
    }
}

/// A recording that waits for the last facts of its request.
pub(crate) struct Recorded {
    recorder: Recorder,
    taken: Taken,
}

impl Recording {
    /// The recording of the request of this `record`, which came at `arrived_ms` with this `body`, in which `request`
    /// was read; `None` where neither consumer wants it.
    pub(super) fn begin(
        keepers: &Keepers,
        record: &RequestRecord,
        dialect: AnyDialect,
        (body, request): (&Bytes, &Request),
        arrived_ms: u64,
    ) -> Option<Box<Self>> {
        keepers.keep(record).then(|| {
            let (keepers, body, layout) = (keepers.clone(), body.clone(), Layout::of(request));
            Box::new(Self { keepers, dialect, body, layout, arrived_ms, copy: None, has_begun: false })
        })
    }

    /// Adds the next bytes of the reply to the request of this `record`.
    pub(super) fn add(&mut self, record: &RequestRecord, bytes: &[u8]) {
        if !self.has_begun {
            self.has_begun = true;
            self.copy = self.keepers.copy(record);
        }
        if let Some(copy) = &mut self.copy {
            copy.add(bytes);
        }
    }

    /// What is known when the exchange is closed: what is seen of it, and the calls that were judged. Adds the contents to
    /// its `trace`.
    pub(super) fn close(
        self,
        exchange: &Inspection<'_>,
        judged: &[JudgedCall],
        trace: Option<&mut Trace>,
    ) -> Recorded {
        let Self { keepers: Keepers { recorder, contents }, dialect, body, layout, arrived_ms, copy, .. } =
            self;
        let treatment = exchange.treatment();
        let taken = Taken { dialect, body, layout, reply: copy, treatment, arrived_ms };
        if let (Some(contents), Some(trace)) = (contents, trace) {
            trace.contents = Some(Box::new(contents.of(&taken, judged)));
        }
        Recorded { recorder, taken }
    }
}

impl Recorded {
    /// Records the request of this `record`.
    pub(super) fn push(self, record: &RequestRecord) {
        self.recorder.push(self.taken, record);
    }
}
